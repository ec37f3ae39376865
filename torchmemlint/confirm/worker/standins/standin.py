"""One object for everything that is not there: container, context, loader, module, criterion or number, as it is used."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_map

from torchmemlint.confirm.verdict import Located
from torchmemlint.confirm.worker.standins.frames import discards, row_of_the_code, unpack_count
from torchmemlint.confirm.worker.standins.stage import Stage
from torchmemlint.confirm.worker.standins.tensors import data, forward, is_network, leaves, of_output, part_of, tensors_among
from torchmemlint.torch_facts import TORCH

_TRAINERS = frozenset(["backward", "step", "optimize", "optimise", "train", "update"])
"""Words in names of callees that may run a backward even where their result is used."""
_OPTIONS = re.compile(
    r"(^|[._])(args?|opts?|options|flags|cfg|conf|config|hparams|hyper\w*|params|hp|parse_args\(\)|settings)$", re.I
)
_TENSOR_MEMBERS = TORCH.words["tensor-members"]
_ALONE = TORCH.words["alone"]
"""Of these the ones that a tensor does without arguments: ``accelerator.log(info, step=…)`` is no logarithm."""
_SAME_DATA = TORCH.words["same-data"]
_FALSE_NAMES = tuple(
    [
        "dry_run",
        "debug",
        "fp16",
        "ddp",
        "distributed",
        "resume",
        "verbose",
        "half",
        "amp",
        "dist",
        "none",
        "empty",
        "error",
        "exit",
    ]
)
_UNIMPLEMENTED = torch.nn.Module.forward
"""The ``forward`` of a module whose subclasses have one."""


class _Alone:
    """``out.log``: of a tensor when it is called without arguments, else of an object that logs."""

    def __init__(self, owner: StandIn, name: str) -> None:
        self._owner, self._name = owner, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs:
            return self._owner.tml_part(self._name)(*args, **kwargs)
        return getattr(self._owner.tml_tensor(), self._name)()


class Guess(int):
    """The answer of a comparison with a stand-in: a bool, except that nobody knows it."""


class StandIn:
    """One object for everything that is not there.

    origin  "given" (an argument, an instance that the code made, a name that it bound), "own" (an attribute of ``self``
    that no line in
            sight sets), "part" (an attribute of another stand-in), "unseen" (imported, or bound by code that was left out)
    """

    __module__ = "torchmemlint.confirm.worker.standins"  # torch names the class in what it says of a stand-in

    def __new__(
        cls, stage: Stage | None = None, name: str = "", klass: type | None = None, origin: str = "given", called: Any = None
    ) -> StandIn:
        self = object.__new__(cls)
        vars(self).update(
            tml_stage=stage, tml_name=name, tml_klass=klass, tml_parts={}, tml_origin=origin, tml_called=called, tml_value=None
        )
        return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: code that calls ``Base.__init__(self, …)`` on a base that is a stand-in comes here."""

    # -- attributes and items
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        klass = self.tml_klass
        if klass is not None:
            for base in klass.__mro__:
                if name in vars(base) and base is not object and not base.__module__.startswith("torch"):
                    found = vars(base)[name]
                    return found.__get__(self, klass) if hasattr(found, "__get__") else found
        if self.tml_called is not None and name in _TENSOR_MEMBERS:
            return _Alone(self, name) if name in _ALONE else getattr(self.tml_tensor(), name)
        return self.tml_part(name)

    def tml_part(self, name: str) -> Any:
        parts = self.tml_parts
        if name not in parts:
            if name in self.tml_stage.defaults and _OPTIONS.search(self.tml_name):
                return self.tml_stage.defaults[name]
            same = name in {"forward", "module"}
            origin = self.tml_origin if same else "own" if self.tml_klass is not None else "part"
            parts[name] = StandIn(self.tml_stage, f"{self.tml_name}.{name}", origin=origin)
        return parts[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self.tml_parts[name] = value

    def __delattr__(self, name: str) -> None:
        self.tml_parts.pop(name, None)

    def __getitem__(self, key: Any) -> Any:
        if self.tml_called is not None and isinstance(key, str) and ("item", key) not in self.tml_parts:
            return of_output(self.tml_stage, self.tml_tensor(), key)
        if isinstance(key, (str, int, bytes, bool, type(None))):
            return self.tml_parts.setdefault(("item", key), StandIn(self.tml_stage, f"{self.tml_name}[{key!r}]"))
        return data(self.tml_stage)

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, (str, int, bytes, bool, type(None))):
            self.tml_parts["item", key] = value

    def __delitem__(self, key: Any) -> None:
        self.tml_parts.pop(("item", key), None)

    def __contains__(self, item: object) -> bool:
        self.tml_stage.record.asked += 1
        return True

    def __len__(self) -> int:
        return int(self.tml_stage.steps)

    def __iter__(self) -> Iterator[Any]:
        count = unpack_count(sys._getframe(1))
        if count is not None:
            if self.tml_called is not None:
                return iter([part_of(self.tml_stage, self.tml_tensor(), f"[{index}]") for index in range(count)])
            return iter([StandIn(self.tml_stage, f"{self.tml_name}[{index}]") for index in range(count)])
        return (data(self.tml_stage) for _ in range(self.tml_stage.steps))

    def __next__(self) -> Any:
        return data(self.tml_stage)

    def keys(self) -> list[str]:
        """As a mapping: one key."""
        return ["key"]

    # -- calls
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        klass: Any = self.tml_klass
        if klass is not None and getattr(klass, "forward", _UNIMPLEMENTED) is not _UNIMPLEMENTED:
            return klass.forward(self, *args, **kwargs)
        if (
            len(args) == 1
            and not kwargs
            and (isinstance(args[0], type) or type(args[0]).__name__ in {"function", "staticmethod", "classmethod"})
        ):
            self.tml_stage.record.unknown_decorators.append((getattr(args[0], "__name__", ""), self.tml_name))
            return args[0]
        inputs = tensors_among((args, kwargs))
        if self.tml_origin == "part" and self.tml_name.rsplit(".", 1)[-1] in _SAME_DATA:
            return StandIn(self.tml_stage, self.tml_name.rsplit(".", 1)[0])  # data moved, cast or reshaped is data
        if inputs:
            return self.tml_forward(inputs, sys._getframe(1))
        unknown = [item for item in leaves((args, kwargs)) if isinstance(item, StandIn)]
        for item in unknown:
            item.tml_taken(self.tml_name)
        return StandIn(
            self.tml_stage, f"{self.tml_name}()", called=(self, unknown, torch.is_grad_enabled()) if unknown else None
        )

    def tml_forward(self, inputs: list[torch.Tensor], caller: Any) -> Any:
        discarded = discards(caller)
        attached = [tensor for tensor in inputs if tensor.requires_grad]
        last = self.tml_name.rsplit(".", 1)[-1]
        if discarded and "backward" in last and inputs:  # accelerator.backward(loss), engine.backward(loss)
            return inputs[0].backward()  # type: ignore[no-untyped-call, unused-ignore]
        if attached and (discarded or not _TRAINERS.isdisjoint(last.split("_"))):
            self.tml_stage.record.swallow(self.tml_name, row_of_the_code())
        guess = self.tml_guess()
        if guess:
            self.tml_stage.record.guess_rows.setdefault(guess, row_of_the_code())
        return forward(self.tml_stage, self.tml_name, inputs, guess)

    def tml_guess(self) -> str:
        """Whether this callee, called with tensors, may be no model at all: then its name."""
        noun = self.tml_origin in {"own", "part"} and is_network(self.tml_stage, self.tml_name)
        trusted = (self.tml_stage.record.trusted or noun) and not self.tml_name.endswith((".generate", ".sample"))
        return "" if self.tml_origin == "given" or trusted else str(self.tml_name)

    def tml_taken(self, callee: str) -> None:
        """It is an argument of this callee."""

    # -- contexts
    def __enter__(self) -> Any:
        self.tml_stage.record.open_contexts.append(Located(row_of_the_code(), self.tml_name))
        return self

    def __exit__(self, *exc: Any) -> None:
        self.tml_stage.record.open_contexts.pop()

    async def __aenter__(self) -> Any:
        return self.__enter__()

    async def __aexit__(self, *exc: Any) -> None:
        self.__exit__()

    def __await__(self) -> Iterator[Any]:
        return iter(())

    async def __aiter__(self) -> Any:
        for _ in range(self.tml_stage.steps):
            yield data(self.tml_stage)

    # -- as a tensor
    def tml_tensor(self) -> torch.Tensor:
        """What a torch function gets in its place.

        The result of a call with stand-ins turns out to be a model's output when it is used as a tensor: the forward is
        done now, under the grad
        mode of then. For anything else it is unknown whether the true value is attached to a graph, so it counts as a fallback.
        """
        if self.tml_value is None:
            if self.tml_called is None:
                self.tml_stage.record.fallback(f"{self.tml_name} used as a tensor")
                return data(self.tml_stage)
            callee, unknown, grad = self.tml_called
            with torch.set_grad_enabled(grad):
                inputs = [item.tml_tensor() for item in unknown]
                vars(self)["tml_value"] = forward(self.tml_stage, callee.tml_name, inputs, callee.tml_guess())
        value = self.tml_value
        assert isinstance(value, torch.Tensor)
        return value

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map(lambda leaf: leaf.tml_tensor() if isinstance(leaf, StandIn) else leaf, (args, kwargs or {}))
        return func(*args, **kwargs)

    # -- as a number, a text, a class
    def tml_truth(self) -> bool:
        self.tml_stage.record.asked += 1
        last = self.tml_name.lower().rsplit(".", 1)[-1]
        return not any(word in last for word in _FALSE_NAMES)

    def __bool__(self) -> bool:
        return self.tml_truth()

    __int__ = __index__ = __len__

    def __float__(self) -> float:
        return 1.0

    def __str__(self) -> str:
        return str(self.tml_name)

    def __repr__(self) -> str:
        return f"StandIn({self.tml_name})"

    def __format__(self, spec: str) -> str:
        return str(self.tml_name)

    def __fspath__(self) -> str:
        return "stand-in"

    def __hash__(self) -> int:
        return hash(self.tml_name)

    def __eq__(self, other: object) -> bool:
        return Guess(self.tml_truth())  # type: ignore[return-value]

    def __ne__(self, other: object) -> bool:
        return Guess(not self.tml_truth())  # type: ignore[return-value]

    def __lt__(self, other: object) -> Guess:
        return Guess(self.tml_truth())

    __le__ = __gt__ = __ge__ = __lt__

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, StandIn) and self.tml_truth()

    def __subclasscheck__(self, subclass: type) -> bool:
        return False

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return ()


def _binary(name: str) -> Callable[[StandIn, object], object]:
    def operate(self: StandIn, other: object) -> object:
        if isinstance(other, torch.Tensor):
            own = self.tml_tensor()
            return getattr(own, name)(other)
        return StandIn(self.tml_stage, f"{self.tml_name}")

    operate.__name__ = name
    return operate


for _name in ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift"]:
    setattr(StandIn, f"__{_name}__", _binary(f"__{_name}__"))
    setattr(StandIn, f"__r{_name}__", _binary(f"__r{_name}__"))
for _name in ["neg", "pos", "invert", "abs"]:
    setattr(StandIn, f"__{_name}__", lambda self: StandIn(self.tml_stage, self.tml_name))
StandIn.__round__ = lambda self, digits=0: 1  # type: ignore[attr-defined]
