"""Packages that are not installed: what stands in for their modules, functions and objects."""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader

from torchmemlint.budget.worker import numbers
from torchmemlint.budget.worker.patch import put
from torchmemlint.budget.worker.unsized import Unsized
from torchmemlint.confirm.worker import standins
from torchmemlint.confirm.worker.standins import StandIn


class Data(numbers.Data, Protocol):
    """What makes up the data that is missing (``outside.Data``)."""

    fetches: Any

    def assume(self, words: str) -> None: ...
    def guess(self, words: str, short: str) -> None: ...
    def sized(self, batch: int) -> None: ...
    def unseen(self, name: str, count: int = 0) -> Any: ...
    def endless(self, name: str) -> Iterator[Any]: ...


class Unknown(BaseException):
    """What the step needs rests on something that is not here. No handler for Exception stops it."""


class Packages(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Comes last: a package that nobody finds is a stand-in. ``optional`` are the (file, line) of imports that the program
    guards itself: these fail, as they would."""

    def __init__(self, own: Callable[[str], bool]) -> None:
        self._own = own
        self.optional: set[tuple[str, int]] = set()
        self.missing: set[str] = set()

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname.partition(".")[0] in sys.stdlib_module_names:
            return None
        frame: Any = sys._getframe(1)
        while frame is not None and not self._own(frame.f_code.co_filename):
            code = frame.f_code
            if "importlib" not in code.co_filename and "importlib" not in frame.f_globals.get("__name__", ""):
                return None  # an installed package tries something out
            frame = frame.f_back
        if frame is None or (frame.f_code.co_filename, frame.f_lineno) in self.optional:
            return None
        self.missing.add(fullname.partition(".")[0])
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Missing(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


class _Missing(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(f"{self.__name__}.{name}", origin="unseen")


_LOGGERS = ("torch.utils.tensorboard", "tensorboardX", "wandb")
"""What writes files or sends data, and keeps no tensor."""


def no_loggers() -> None:
    """Loggers are stand-ins, installed or not."""
    for name in _LOGGERS:
        sys.modules[name] = made = _Missing(name)
        made.__spec__ = importlib.machinery.ModuleSpec(name, None)


def optional_imports(tree: ast.AST, path: str) -> set[tuple[str, int]]:
    """Imports inside a ``try`` whose handler gives the program something to go on with. One that only prints leaves the name
    unbound, and the program fails where it uses it."""
    return {
        (path, node.lineno)
        for block in ast.walk(tree) if isinstance(block, ast.Try) and block.handlers and _goes_on(block)
        for statement in block.body for node in ast.walk(statement) if isinstance(node, (ast.Import, ast.ImportFrom))
    }  # fmt: skip


def _goes_on(block: ast.Try) -> bool:
    """Whether a handler, or the ``else``, binds a name, or imports another package."""
    after: Sequence[ast.AST] = [*block.handlers, *block.orelse, *(item for item in block.body if isinstance(item, ast.Assign))]
    return any(
        isinstance(node, (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.ClassDef, ast.Return))
        for top in after for node in ast.walk(top)
    )  # fmt: skip


# -- objects of such packages


class Passed(StandIn):
    """What a missing package made of the program's modules, optimizers or loaders: ``DistributedDataParallel(model)``,
    ``amp.initialize(model, optimizer)``, ``Checkpointer(model)``. Used as the first of them it is that; unpacked it is all of them."""

    def __getattr__(self, name: str) -> Any:
        given = object.__getattribute__(self, "_given")
        if name == "module" and isinstance(given[0], torch.nn.Module) and not hasattr(given[0], "module"):
            return given[0]
        return getattr(given[0], name) if hasattr(given[0], name) else super().__getattr__(name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._given[0](*args, **kwargs)

    def __iter__(self) -> Iterator[Any]:
        given = self._given
        return iter(given if len(given) > 1 else given[0])

    def __getitem__(self, key: Any) -> Any:
        return self._given[key] if isinstance(key, int) and len(self._given) > 1 else self._given[0][key]

    def __len__(self) -> int:
        return len(self._given) if len(self._given) > 1 else len(self._given[0])


class Items(StandIn):
    """What a missing package made of something to loop over, such as a progress bar: the same items."""

    def __iter__(self) -> Iterator[Any]:
        return iter(self._given[0])


class Settings(StandIn):
    """What a missing package made of a dict of settings (``EasyDict({…})``, ``OmegaConf.create({…})``): its items by name and by key."""

    def keys(self) -> list[str]:
        """As of the dict."""
        return list(self._given[0])

    def values(self) -> list[Any]:
        """As of the dict."""
        return [self[name] for name in self._given[0]]

    def items(self) -> list[tuple[str, Any]]:
        """As of the dict."""
        return [(name, self[name]) for name in self._given[0]]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self._given[0])


class _Scaled(StandIn):
    """What a missing package made of a loss: ``with amp.scale_loss(loss, optimizer) as scaled:``."""

    def __enter__(self) -> Any:
        return self._given[0]

    def __exit__(self, *exc: object) -> None: ...


_HANDED_ON = (torch.nn.Module, torch.optim.Optimizer, DataLoader)


def _with(kind: type[StandIn], name: str, given: Sequence[Any]) -> StandIn:
    made = kind(name, origin="unseen")
    object.__setattr__(made, "_given", given)
    return made


def _optimizer(name: str, parameters: Any, kwargs: Any, data: Data) -> Any:
    """An optimizer that is not installed: torch's of that name, else AdamW."""
    last = name.rsplit(".", 1)[-1]
    kind = getattr(torch.optim, last, None) or torch.optim.AdamW
    rate = kwargs.get("lr", 1e-3)
    data.guess(f"`{name}` is not installed; torch.optim.{kind.__name__} was assumed", f"the optimizer {last}")
    return kind(parameters, lr=rate if isinstance(rate, (int, float)) else 1e-3)


def _are_parameters(item: Any) -> list[Any]:
    """The parameters, or groups of them, that an optimizer is given; none for other arguments."""
    if isinstance(item, types.GeneratorType) and item.gi_code.co_name in ("parameters", "_named_members"):
        return list(item)
    if isinstance(item, (list, filter, map)):
        found = list(item)
        groups = all((isinstance(one, dict) and "params" in one) or isinstance(one, torch.nn.Parameter) for one in found)
        return found if found and groups else []
    return []


def _are_settings(item: Any) -> bool:
    """A dict of names, none of whose values is a tensor or a stand-in for data."""
    return (
        type(item) is dict
        and bool(item)
        and all(isinstance(name, str) for name in item)
        and not any(isinstance(value, (torch.Tensor, Unsized, StandIn)) for value in tree_leaves(item))
    )


def _settings(name: str, values: dict[str, Any]) -> StandIn:
    made = _with(Settings, name, [values])
    nested = {key: _settings(f"{name}.{key}", value) if _are_settings(value) else value for key, value in values.items()}
    _store(made, nested)
    return made


def _store(made: StandIn, values: dict[str, Any]) -> None:
    """Its attributes and its items."""
    for name, value in values.items():
        made._parts[name] = made._parts["item", name] = value


def limit_stand_ins(note: Callable[[str], str], data: Data) -> None:
    """A stand-in of ``confirm`` makes up tensors and numbers; here, where sizes count, it says that nobody knows them."""

    def unknown(self: Any) -> Any:
        """A tensor of the data, whose shape shows in its use; what a missing package computes is none."""
        if str(self._name).startswith(tuple(computed)):
            raise Unknown(note(f"`{self._name}` is not installed, so its tensor is unknown"))
        if self._value is None:
            object.__setattr__(self, "_value", data.unseen(str(self._name), vars(self).get("_count", 0)))
        return self._value

    computed: set[str] = set()

    def made(*args: Any) -> Any:
        raise Unknown(note("the data is missing, so its shape is unknown"))

    put(StandIn, "tml_tensor", unknown)
    put(StandIn, "_forward", _forward)
    standins.data = made
    _called(data, computed)
    _as_containers(note, data)
    numbers.install(data)


def _forward(self: Any, inputs: Sequence[torch.Tensor], caller: Any) -> Any:
    attached = [tensor for tensor in inputs if tensor.requires_grad]
    if attached and "backward" in self._name.rsplit(".", 1)[-1]:  # accelerator.backward(loss)
        return attached[0].backward()
    return _with(_Scaled, f"{self._name}()", attached) if attached else StandIn(f"{self._name}()", called=None)


def _called(data: Data, computed: set[str]) -> None:
    call = StandIn.__call__

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(kwargs.get("batch_size"), int):
            data.sized(kwargs["batch_size"])
        if self._klass is None and args:
            handed = [item for item in args if isinstance(item, _HANDED_ON)]
            if handed and isinstance(args[0], _HANDED_ON):
                data.assume(f"`{self._name}` is not installed; it was assumed to change nothing in what it is given")
                return _with(Passed, f"{self._name}()", handed)
            if isinstance(args[0], (range, enumerate, zip)):
                data.assume(f"`{self._name}` is not installed; it was assumed to give the items of its argument")
                return _with(Items, f"{self._name}()", args)
            parameters = _are_parameters(args[0])
            if parameters:
                return _optimizer(self._name, parameters, kwargs, data)
            if _are_settings(args[0]):
                return _settings(f"{self._name}()", {**args[0], **kwargs})
        made = call(self, *args, **kwargs)
        if type(made) is not StandIn:
            return made
        if any(isinstance(item, (torch.Tensor, Unsized)) for item in tree_leaves((args, kwargs))):
            computed.add(made._name)
        elif self._klass is None:
            _store(made, kwargs)  # HParams(batch_size=64): most objects have what they were made with
        return made

    put(StandIn, "__call__", called)


def _as_containers(note: Callable[[str], str], data: Data) -> None:
    def iterate(self: Any) -> Iterator[Any]:
        count = standins._unpack_count(sys._getframe(1))
        if count is not None:
            return iter([StandIn(f"{self._name}[{index}]") for index in range(count)])
        if str(self._name).endswith(_OF_MODELS):
            raise Unknown(note(f"`{str(self._name).rsplit('.', 1)[0]}` is unknown"))
        batches: Iterator[Any] = data.fetches.counted(entries(str(self._name)))
        return batches

    def entries(name: str) -> Iterator[Any]:
        count = 0
        for entry in data.endless(name):
            count += 1
            yield entry
        # something was made of all of them, such as a vocabulary; a loop of steps ends the run before
        data.guess(f"`{name}` is missing; {count} entries were assumed", f"{count} entries of {name}")

    def item(self: Any, key: Any) -> Any:
        found = self._parts.setdefault(
            ("item", key if isinstance(key, (str, int)) else repr(key)), StandIn(f"{self._name}[{_written(key)}]")
        )
        if isinstance(found, StandIn) and _length(key):
            object.__setattr__(found, "_count", _length(key))
        return found

    put(StandIn, "__getitem__", item)
    put(StandIn, "__iter__", iterate)

    def array(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Without this, NumPy goes through a thousand items, of each a thousand, and so on."""
        raise TypeError(f"`{self._name}` is missing, so its array is unknown")

    for kind in (StandIn, Unsized):
        put(kind, "__array__", array)
    put(StandIn, "keys", lambda self: StandIn(f"{self._name}.keys()"))
    put(StandIn, "__next__", lambda self: next(data.endless(str(self._name))))


def _length(key: Any) -> int:
    """How many rows a slice of numbers takes, 0 where it does not say it."""
    first = key[0] if isinstance(key, tuple) and key else key
    if not isinstance(first, slice) or first.step is not None or not isinstance(first.stop, int):
        return 0
    return max(0, first.stop - (first.start or 0)) if isinstance(first.start, (int, type(None))) and first.stop > 0 else 0


def _written(key: Any) -> str:
    return repr(key) if isinstance(key, (str, int)) else "…"


_OF_MODELS = tuple(
    f".{name}()" for name in ("parameters", "named_parameters", "modules", "named_modules", "children", "buffers")
)
"""What only a model has."""
