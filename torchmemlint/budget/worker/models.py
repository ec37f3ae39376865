"""The models that a program makes, each with the expression that makes it again: ``nets.unet:UNet(3, width=64)``."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from torchmemlint.budget.worker.patch import put
from torchmemlint.confirm.worker.standins import StandIn

DEEPEST = 6
"""Arguments within arguments are written down so deep."""
UNKNOWN = 64
"""What is written for a number that nobody knows."""
_KNOWN_BY_NAME = (
    (re.compile(r"(?i)class|vocab|token|word|label|output_size|n_?out"), 1000),
    (re.compile(r"(?i)(^|_)(in_)?(c|ch|chans?|channels?|nc)(_in)?$|in_?ch|image_channels|input_nc"), 3),
    (re.compile(r"(?i)layer|depth|block|stage"), 4),
    (re.compile(r"(?i)head"), 4),
    (re.compile(r"(?i)drop|rate|prob|eps|alpha|beta|scale|weight|sigma|gamma"), 0.1),
    (re.compile(r"(?i)^(use|is|has|with|no)_|_only$|bias|pretrained|checkpoint"), False),
)
"""What is written where a name says what kind of number it is."""
_WORDS = re.compile(r"[A-Za-z_]\w*")


class Hole(Exception):
    """A value that cannot be written down."""


@dataclass(slots=True)
class Made:
    """A module and what it was made with. ``within``: another module was being made; ``inputs`` what its first forward got."""

    module: Any
    arguments: dict[str, Any]
    within: Any
    inputs: tuple[tuple[str, torch.dtype, tuple[int, ...]], ...] = ()


@dataclass(slots=True)
class Models:
    """All modules in the order in which they were begun, until the first step of an optimizer."""

    made: dict[int, Made] = field(default_factory=dict)
    guessed: list[str] = field(default_factory=list)
    watching: bool = True

    def install(self) -> None:
        """Note each module that is made, with the arguments of its class."""
        begin = torch.nn.Module.__init__

        def init(module: Any, *args: Any, **kwargs: Any) -> None:
            begin(module, *args, **kwargs)
            if self.watching and id(module) not in self.made:
                self.made[id(module)] = Made(module, *_outermost(module, sys._getframe(1)))

        put(torch.nn.Module, "__init__", init)

    def forget(self) -> None:
        """The step was reached: nothing is to be written down."""
        self.watching = False
        self.made.clear()

    def called(self, module: Any, inputs: Any) -> None:
        """Note what a module's forward got first, where it is all tensors."""
        made = self.made.get(id(module))
        if made is None or made.inputs or not inputs or not all(isinstance(item, torch.Tensor) for item in inputs):
            return
        parameters = list(inspect.signature(type(module).forward).parameters.values())[1:]
        taken = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD, one.KEYWORD_ONLY)]
        if len(taken) >= len(inputs):
            made.inputs = tuple((one.name, item.dtype, tuple(item.shape)) for one, item in zip(taken, inputs, strict=False))

    def candidates(self, own: Callable[[str], bool]) -> Iterator[Made]:
        """The program's own models first, then those of libraries, those with the most parameters first; then parts of the program's
        that have at least half of its parameters."""
        every = [made for made in self.made.values() if _is_named(made.module)]

        def order(made: Made) -> tuple[bool, int]:
            file = str(getattr(sys.modules.get(type(made.module).__module__), "__file__", "") or "")
            return not own(file), -_size(made.module)

        outer = sorted((made for made in every if made.within is None), key=order)
        largest = max((_size(made.module) for made in outer if not order(made)[0]), default=0)
        inner = sorted((made for made in every if made.within is not None), key=order)
        yield from outer
        yield from (made for made in inner if not order(made)[0] and 0 < largest <= 2 * _size(made.module))

    # -- as an expression
    def expression(self, made: Made, depth: int = 0) -> str:
        """The call that makes a module again. What is unknown is left out where it has a default, else guessed. Raises Hole."""
        kind = type(made.module)
        parameters = _parameters(kind)
        words: list[str] = []
        by_place = any(one.kind is one.VAR_POSITIONAL and made.arguments.get(name) for name, one in parameters.items())
        shown = [name for name, one in parameters.items() if not _is_default(made.arguments.get(name, one.default), one)]
        alone = shown[:1] == list(parameters)[:1] and not any(made.arguments.get(name) for name in shown[1:])
        for name, parameter in parameters.items():
            value = made.arguments.get(name, parameter.default)
            if parameter.kind is parameter.VAR_POSITIONAL:
                words += [self.value(item, name, depth + 1) for item in made.arguments.get(name, ())]
            elif parameter.kind is parameter.VAR_KEYWORD:
                words += [f"{key}={self.value(item, key, depth + 1)}" for key, item in made.arguments.get(name, {}).items()]
            elif (placed := by_place and parameter.kind is not parameter.KEYWORD_ONLY) or name in shown:
                try:
                    text = self.value(value, name, depth + 1)
                except Hole:
                    if parameter.default is not parameter.empty:
                        continue
                    text = self.guess(name)
                words.append(text if placed or alone or parameter.kind is parameter.POSITIONAL_ONLY else f"{name}={text}")
        return f"{dotted(kind)}({', '.join(words)})"

    def guess(self, name: str) -> str:
        """A number that nobody knows, by its name."""
        number = next((number for pattern, number in _KNOWN_BY_NAME if pattern.search(name)), UNKNOWN)
        if f"{name}={number}" not in self.guessed:
            self.guessed.append(f"{name}={number}")
        return repr(number)

    def value(self, item: Any, name: str, depth: int) -> str:  # one case for each kind of value
        """A value as an expression. Raises Hole."""
        if depth > DEEPEST or isinstance(item, StandIn):
            raise Hole
        if item is None or item is Ellipsis or type(item) in (bool, int, float, str, bytes):
            return repr(item) if item == item and item not in (float("inf"), -float("inf")) else f"float('{item}')"
        if type(item) in (list, tuple, set, torch.Size):
            words = [self.known(one, name, depth + 1) for one in item]
            text = ", ".join(words) + "," * (len(words) == 1 and type(item) is not list)
            return f"[{text}]" if type(item) is list else f"{{{text}}}" if words and type(item) is set else f"({text})"
        if type(item) is dict:
            words = [f"{self.value(key, name, depth + 1)}: {self.known(one, str(key), depth + 1)}" for key, one in item.items()]
            return f"{{{', '.join(words)}}}"
        if isinstance(item, enum.Enum):
            return f"{dotted(type(item))}.{item.name}"
        if isinstance(item, torch.dtype):
            return str(item)
        if isinstance(item, torch.nn.Module):
            made = self.made.get(id(item))
            if made is None:
                raise Hole
            return self.expression(made, depth + 1)
        if isinstance(item, functools.partial):
            words = [self.value(item.func, name, depth + 1), *(self.value(one, name, depth + 1) for one in item.args)]
            words += [f"{key}={self.value(one, key, depth + 1)}" for key, one in item.keywords.items()]
            return f"functools.partial({', '.join(words)})"
        if isinstance(item, (type, types.FunctionType, types.BuiltinFunctionType)):
            return dotted(item)
        if hasattr(item, "item") and getattr(item, "ndim", 1) == 0 and not isinstance(item, torch.Tensor):
            return repr(item.item())  # a number of NumPy
        return self._settings(item, depth)

    def known(self, item: Any, name: str, depth: int) -> str:
        """A value as an expression; a guess where it is a number that nobody knows."""
        return self.guess(name) if isinstance(item, StandIn) else self.value(item, name, depth)

    def _settings(self, item: Any, depth: int) -> str:
        """An object of settings: those of its attributes that the program's code names."""
        if dataclasses.is_dataclass(item):
            changed = {
                one.name: getattr(item, one.name) for one in dataclasses.fields(item)
                if one.init and hasattr(item, one.name) and not _same(getattr(item, one.name), _default_of(one))
            }  # fmt: skip
            return f"{dotted(type(item))}({self._named(changed, depth)})"
        if hasattr(item, "to_diff_dict"):  # a configuration of transformers
            return f"{dotted(type(item))}({self._named(item.to_diff_dict(), depth)})"
        if not isinstance(item, (Mapping, types.SimpleNamespace)) and not hasattr(item, "__dict__"):
            raise Hole
        values = dict(item) if isinstance(item, Mapping) else vars(item)
        used = _names_of(self)
        return f"types.SimpleNamespace({self._named({key: one for key, one in values.items() if key in used}, depth)})"

    def _named(self, values: Mapping[Any, Any], depth: int) -> str:
        words: list[str] = []
        for name, item in values.items():
            if isinstance(name, str) and name.isidentifier() and not name.startswith("_"):
                try:
                    words.append(f"{name}={self.known(item, name, depth + 1)}")
                except Hole:
                    continue
        return ", ".join(words)


def dotted(item: Any) -> str:
    """The name under which a class or a function can be imported. Raises Hole."""
    name, module = str(getattr(item, "__qualname__", "<")), str(getattr(item, "__module__", ""))
    if "<" in name or not module:
        raise Hole
    if module.startswith("torch.nn.modules.") and hasattr(torch.nn, name):
        module = "torch.nn"
    return name if module == "builtins" else f"{module}.{name}"


def _names_of(models: Models) -> set[str]:
    """Names in the files of the classes of which modules were made."""
    found: set[str] = set()
    for module in {type(made.module).__module__ for made in models.made.values()}:
        if not module.startswith("torch."):
            try:
                found |= set(_WORDS.findall(inspect.getsource(sys.modules[module])))
            except (OSError, TypeError, KeyError):
                continue
    return found


def _is_named(module: Any) -> bool:
    """Whether it is a model that can be named: a class of its own, or a container of layers; no criterion and no single layer."""
    kind = type(module)
    if "<" in kind.__qualname__ or kind.__module__.startswith(("torchvision.transforms", "torchmetrics", "torchmemlint.")):
        return False
    return not kind.__module__.startswith("torch.") or isinstance(module, (torch.nn.Sequential, torch.nn.Transformer))


def _size(module: Any) -> int:
    try:
        return sum(item.numel() for item in module.parameters())
    except Exception:  # it was not made to its end
        return 0


def _parameters(kind: type) -> Mapping[str, inspect.Parameter]:
    return dict(list(inspect.signature(vars(kind).get("__init__", kind.__init__)).parameters.items())[1:])  # type: ignore[misc]


def _outermost(module: Any, frame: Any) -> tuple[dict[str, Any], Any]:
    """The arguments that the class of a module was called with, and the module that was being made when it was."""
    given: dict[str, Any] = {}
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__init__" and code.co_argcount:
            owner = frame.f_locals.get(code.co_varnames[0])
            if owner is module:
                given = _given(frame)
            elif isinstance(owner, torch.nn.Module):
                return given, owner
        frame = frame.f_back
    return given, None


def _given(frame: Any) -> dict[str, Any]:
    code, values = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return {name: values[name] for name in code.co_varnames[1:count] if name in values}


def _same(one: Any, other: Any) -> bool:
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # arrays, and what cannot be compared
        return False


def _is_default(value: Any, parameter: inspect.Parameter) -> bool:
    return value is parameter.default or (parameter.default is not parameter.empty and _same(value, parameter.default))


def _default_of(one: Any) -> Any:
    return (
        one.default_factory()
        if one.default is dataclasses.MISSING and one.default_factory is not dataclasses.MISSING
        else one.default
    )
