"""The experiment on a function that has a ``functools`` cache: new arguments in every step, with the cache or without."""

from __future__ import annotations

import ast
import gc
import inspect
import time
from collections.abc import Mapping
from typing import Any

import torch

from torchmemlint.confirm.channel import Emit
from torchmemlint.confirm.syntax import FunctionNode
from torchmemlint.confirm.verdict import Located
from torchmemlint.confirm.worker.harness import Harness, Modules, compiled, namespace
from torchmemlint.confirm.worker.meter import StorageMeter, meter_for
from torchmemlint.confirm.worker.program import Site, definitions
from torchmemlint.confirm.worker.standins import FORWARD_BYTES, Bench, Record, Stage, StandIn
from torchmemlint.confirm.worker.target import Target
from torchmemlint.torch_facts import TORCH

_MEMBERS = TORCH.words["tensor-members"]
_PLAIN: Mapping[str, object] = {"int": 4, "float": 0.5, "bool": True, "str": "cpu", "bytes": b""}


class Keys:
    """What one step calls the function with: what is a tensor by its annotation or its use is a new one each time, the receiver
    of a module's method a new module; all else is the same in every step."""

    def __init__(self, stage: Stage, node: FunctionNode, klass: Any) -> None:
        self._stage = stage
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        self._tensors = {item.arg for item in arguments if _is_tensor(item, node)}
        self._modules = {item.arg for item in arguments if _annotation(item).rpartition(".")[2] == "Module"}
        self.klass = klass if isinstance(klass, type) and issubclass(klass, torch.nn.Module) else None
        self._same: dict[str, object] = {}
        self._annotations = {item.arg: _annotation(item) for item in arguments}
        self.words = "module" if self.klass or self._modules else "tensor" if self._tensors else ""

    def receiver(self) -> Any:
        """A new module of the function's class."""
        assert self.klass is not None
        module: Any = type(self.klass.__name__, (_Lenient, self.klass), {})(self._stage)
        return module

    def given(self, name: str, default: object) -> Any:
        """The argument of this name in this step."""
        if name in self._tensors:
            return _weights()
        if name in self._modules:
            module = torch.nn.Module()
            module.register_parameter("weight", torch.nn.Parameter(_weights()))
            return module
        if default is not inspect.Parameter.empty:
            return default
        return self._same.setdefault(name, _PLAIN.get(self._annotations[name], StandIn(self._stage, name)))


def _weights() -> torch.Tensor:
    return torch.full((FORWARD_BYTES // 4,), 0.5)


class _Lenient(torch.nn.Module):
    """A module of the class that follows: made with stand-ins, as far as its own initialiser runs; what it lacks is one."""

    def __init__(self, stage: Stage) -> None:
        super(torch.nn.Module, self).__init__()
        torch.nn.Module.__init__(self)
        vars(self)["_tml_stage"] = stage
        klass = type(self).__mro__[2]
        first = klass.__dict__.get("__init__")
        if first is not None:
            parameters = list(inspect.signature(first).parameters.values())[1:]
            wanted = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty]
            try:
                first(self, *(StandIn(stage, p.name) for p in wanted))
            except Exception as error:
                error.__traceback__ = None
        self._parameters["weights of a stand-in"] = torch.nn.Parameter(_weights())

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__"):
                raise
            return StandIn(self._tml_stage, name, origin="own")


def _annotation(item: ast.arg) -> str:
    if isinstance(item.annotation, ast.Constant):
        return str(item.annotation.value)
    return ast.unparse(item.annotation) if item.annotation is not None else ""


def _is_tensor(item: ast.arg, node: FunctionNode) -> bool:
    annotation = _annotation(item)
    if annotation:
        return annotation.replace(" | None", "").rpartition(".")[2] == "Tensor"
    return any(
        isinstance(part, ast.Attribute)
        and isinstance(part.value, ast.Name)
        and part.value.id == item.arg
        and part.attr in _MEMBERS
        for part in ast.walk(node)
    )


def measure_cached(stage: Stage, target: Target, site: Site, emit: Emit) -> None:
    """Both variants of a finding on a cached function."""
    if site.function is None:
        emit({"failed": f"line {target.place.row} is in no function"})
        return
    for variant, is_cached in (("before", True), ("after", False)):
        emit({"variant": variant, "run": _measured(stage, target, site, site.function, is_cached)})


def _measured(stage: Stage, target: Target, site: Site, node: FunctionNode, cached: bool) -> Mapping[str, object]:
    """The figures of as many calls as there are steps."""
    harness = Harness(stage, StorageMeter())
    started = time.monotonic()
    gc.collect()
    torch.manual_seed(0)
    stage.begin(Record())
    stage.weight()
    errors: list[Located] = []
    keys: Keys | None = None
    modes: set[bool] = set()
    meter = meter_for(target.device)
    live: list[int] = []
    with meter, Bench(stage, target.device), torch.set_grad_enabled(target.grad != "off"):
        try:
            program = definitions(ast.parse(target.source))
            space = namespace(program, harness, Modules(stage, target), target.module)
            exec(compiled(program), space)
            holder = space.get(site.klass.name) if site.klass is not None else None
            keys = Keys(stage, node, holder)
            found = vars(holder)[node.name] if holder is not None else space[node.name]
            function: Any = found.fget if isinstance(found, property) else found
            if not hasattr(function, "cache_info"):
                raise TypeError(f"{node.name} has no cache of functools here")
            function = function if cached else function.__wrapped__
            meter.reset_peak()
            for _ in range(stage.steps):
                gc.collect()
                live.append(meter.live_bytes())
                modes.add(torch.is_grad_enabled())
                _call(function, keys)
            gc.collect()
            live.append(meter.live_bytes())
        except Exception as error:
            errors.append(Located.raised(node.lineno, error))
            error.__traceback__ = None
        peak = meter.peak_bytes()
    rows = range(node.lineno, (node.end_lineno or 0) + 1)
    errors = [*errors, *(item for item in harness.errors if item.line in rows)]
    return {
        "live_bytes": live, "uncollected_bytes": live, "peak_bytes": peak, "device": target.device, "grad_modes": sorted(modes),
        "seen": "tensor" if len(live) > 1 else "", "errors": [item.packed() for item in errors[:5]], "seconds": time.monotonic() - started,
        "value_bytes": FORWARD_BYTES, "keys": keys.words if keys else "", "mode": "cached function",
        "fallbacks": len(stage.record.fallbacks),
    }  # fmt: skip


def _call(function: Any, keys: Keys) -> None:
    parameters = list(inspect.signature(function).parameters.values())
    positional: list[Any] = []
    named: dict[str, Any] = {}
    if keys.klass is not None:
        positional.append(keys.receiver())
        parameters = parameters[1:]
    for item in parameters:
        if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD):
            positional.append(keys.given(item.name, item.default))
        elif item.kind is item.KEYWORD_ONLY:
            named[item.name] = keys.given(item.name, item.default)
    function(*positional, **named)
