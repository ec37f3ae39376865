"""Runs a flagged function or loop, cut out of its file, on stand-ins, and samples the memory at the head of the loop."""

from __future__ import annotations

import ast
import asyncio
import builtins
import contextlib
import copy
import gc
import importlib
import inspect
import io
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_map

from torchmemlint.confirm.worker import cut, standins
from torchmemlint.confirm.worker.meter import StorageMeter, meter_for, tensors_in, walk
from torchmemlint.confirm.worker.standins import STEPS, StandIn, StandInTensor

REAL_MODULES = frozenset(
    "torch torchvision numpy math cmath collections itertools functools operator copy random typing typing_extensions dataclasses enum abc "
    "contextlib time datetime warnings string re statistics numbers fractions decimal types heapq bisect json csv io queue weakref gc "
    "inspect traceback textwrap __future__ array struct uuid hashlib tempfile errno builtins asyncio".split()
)  # fmt: skip
"""Modules that the code gets as they are, where they are installed; every other import gives a stand-in."""

REPAIRS = {
    "TML101": "detach", "TML102": "detach", "TML103": "detach", "TML104": "detach", "TML108": "detach", "TML204": "detach",
    "TML201": "no_grad", "TML202": "no_grad", "TML203": "no_grad", "TML401": "host", "TML402": "clone",
    "TML105": "switch", "TML106": "switch",
}  # fmt: skip


class EndOfRun(BaseException):
    """Raised through the code when enough steps were sampled; no handler for Exception stops it."""


class Harness:
    """The object that the instrumented code calls; mends the flagged value in the repaired variant."""

    def __init__(self, live: Callable[[], int], repair: str, force: bool) -> None:
        self._live, self.repair, self._force = live, repair, force
        self.live: list[int] = []
        self.uncollected: list[int] = []
        self.nodes: list[int] = []
        self.retained: list[int] = []
        self.graph_forwards: list[int] = []
        self.graph_bytes = 0
        self.seen: set[str] = set()
        self.grad_modes: set[bool] = set()
        self.grad_off_by: list[str] = []
        self.contexts: set[str] = set()
        self.places: set[str] = set()
        self.errors: list[str] = []
        self.forced: list[int] = []
        self.hits = 0
        self._look: Callable[[], object] | None = None
        self._whiles: dict[int, int] = {}

    # -- the steps
    def tick(self) -> None:
        """The head of the sampled loop: read everything."""
        if self._look is not None:
            try:
                place = self._look()
            except Exception:  # not bound yet
                place = None
            self.places.add(_kind(place))
            held = walk(place)
            self.nodes.append(held.nodes)
            self.retained.append(held.retained_bytes)
            del place
        self.uncollected.append(self._live())
        gc.collect()
        self.live.append(self._live())
        self.graph_forwards.append(standins.record.graph_forwards)

    def look(self, place: Callable[[], object]) -> None:
        """Tells where the flagged value is kept."""
        self._look = place

    def loop(self, role: str, items: Any) -> Iterator[Any]:
        """Stands around a loop's iterable: the sampled one runs STEPS times whatever it holds, those around it once."""
        count = 0
        if role == "other":
            yield from self._items(items)
            return
        wanted = {"sample": STEPS, "around": 1, "within": 3}[role]
        empty = 0
        while count < wanted and empty < 2:
            empty += 1
            for item in self._items(items):
                empty = 0
                if role == "sample":
                    self.tick()
                count += 1
                yield item
                del item
                if count >= wanted:
                    break
            if empty and count < wanted:
                if role == "sample":
                    self.tick()
                count += 1
                yield standins.data()
        if role == "sample":
            self.tick()
            raise EndOfRun

    def _items(self, items: Any) -> Iterator[Any]:
        try:
            value = items() if callable(items) and not isinstance(items, StandIn) else items
            yield from value
        except (TypeError, ValueError, RuntimeError, AttributeError, StopIteration):
            return

    async def aloop(self, role: str, items: Any) -> Any:
        """The same for ``async for``; the iterable is not asked, stand-ins are."""
        for item in self.loop(role, lambda: StandIn("async items")):
            yield item

    def while_(self, role: str, row: int, test: Any) -> bool:
        """Stands in a while's condition."""
        count = self._whiles[row] = self._whiles.get(row, 0) + 1
        if role == "sample":
            self.tick()
            if count > STEPS:
                raise EndOfRun
            return True
        if role in {"around", "within"}:
            self._whiles[row] = count % 2
            return count % 2 == 1
        if count > 20 * STEPS:
            return False
        try:
            return bool(test())
        except Exception:
            return False

    def branch(self, wanted: bool | None, remainder: bool, row: int, test: Any) -> bool:
        """Stands in an if's condition: ``wanted`` is the side that the flagged line is on."""
        try:
            value = test() if callable(test) and not isinstance(test, StandIn) else test
            known = not isinstance(value, (StandIn, StandInTensor))
            truth = bool(value)
        except Exception:
            known, truth = False, True
        if wanted is None or (wanted == truth):
            return truth
        if not known or remainder:
            return wanted
        if self._force:
            self.forced.append(row)
            return wanted
        return truth

    def context(self, manager: Any, text: str) -> Any:
        """Stands around a with-block's manager: one that cannot be had is a stand-in."""
        try:
            value = manager() if callable(manager) and not isinstance(manager, StandIn) else manager
        except Exception as error:
            self.errors.append(f"with {text}: {type(error).__name__}"[:200])
            return StandIn(text)
        if isinstance(value, type) or not (hasattr(type(value), "__enter__") or hasattr(type(value), "__aenter__")):
            return StandIn(text)
        return value

    # -- the flagged value
    def value(self, value: Any) -> Any:
        """The probe."""
        self._saw(value)
        return mend(value, self.repair)

    def forward(self, call: Any) -> Any:
        """The probe around a forward call."""
        if not callable(call) or isinstance(call, StandIn):
            self._saw(call)
            return call
        if self.repair == "no_grad":
            with torch.no_grad():
                value = call()
        else:
            value = call()
        self._saw(value)
        return value

    def switch(self, value: Any) -> Any:
        """The probe on a keyword that the repair turns off."""
        self.hits += 1
        self.seen.add("tensor")
        return False if self.repair == "switch" else value

    def _saw(self, value: Any) -> None:
        self.hits += 1
        kind = _kind(value)
        self.seen.add(kind)
        self.grad_modes.add(torch.is_grad_enabled())
        self.contexts.update(standins.record.open_contexts)
        if kind == "tensor" and self.hits <= STEPS:
            self.graph_bytes = max(self.graph_bytes, walk(value).retained_bytes)

    # -- what fails
    def failed(self, row: int, error: Exception) -> None:
        """A guarded statement raised."""
        if len(self.errors) < 20:
            self.errors.append(f"{row}: {type(error).__name__}: {error}"[:300])
        error.__traceback__ = None  # it holds every frame's tensors

    def standin(self, name: str) -> StandIn:
        """For a name that the failed statement should have bound."""
        return StandIn(name)


def _kind(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return "tensor"
    if isinstance(value, (bool, int, float, complex, str)):
        return "number"
    if isinstance(value, StandIn):
        return "stand-in" if value._klass is None else "real"
    if value is None:
        return ""
    if any(True for _ in tensors_in(value)):
        return "tensor"
    return "other"


def mend(value: Any, repair: str) -> Any:
    """The value as the repaired code has it."""
    if repair not in {"detach", "host", "clone"}:
        return value

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if repair == "detach":
            return leaf.detach()
        return leaf.clone() if repair == "clone" else leaf.cpu()

    return tree_map(one, value)


# -- the module around the code


def _import(name: str, names: Any = None, scope: Any = None, wanted: Any = (), level: int = 0) -> Any:
    top = name.split(".")[0]
    if level == 0 and top in REAL_MODULES:
        with contextlib.suppress(ImportError):
            module = importlib.import_module(name)
            if wanted:
                missing = [item for item in wanted if item != "*" and not hasattr(module, item)]
                for item in missing:
                    with contextlib.suppress(ImportError):
                        importlib.import_module(f"{name}.{item}")
                if all(hasattr(module, item) for item in missing):
                    return module
                return _Partly(module)
            return importlib.import_module(top)
    return StandIn(name if wanted else top)


class _Partly:
    """A module some of whose names this version does not have."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name, None)
        return StandIn(name) if found is None else found


def _namespace(tree: ast.Module, harness: Harness, main: bool) -> dict[str, Any]:
    own = dict(vars(builtins))
    own.update(
        __import__=_import, open=lambda *args, **kwargs: io.StringIO(""), input=lambda *args: "", print=_print, exit=_nothing, quit=_nothing,
        breakpoint=_nothing,
    )  # fmt: skip
    space: dict[str, Any] = {"__builtins__": own, "__name__": "__main__" if main else "confirmed_module", cut.HARNESS: harness}
    space["__file__"] = "module.py"
    defined = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    defined |= {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
    defined |= {(item.asname or item.name).split(".")[0] for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom)) for item in node.names}
    defined |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    defined |= {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in defined and node.id not in own and node.id not in space:
            space[node.id] = StandIn(node.id)
    return space


def _print(*values: object, **options: object) -> None:
    for value in values:
        format(value)


def _nothing(*args: object, **kwargs: object) -> None:
    return None


def _prepare_torch() -> None:
    """Make the parts of torch that reach outside do nothing in this process."""
    from torch.utils.data import DataLoader

    torch.save = _nothing
    torch.load = lambda *args, **kwargs: StandIn("loaded")  # type: ignore[assignment]
    first = DataLoader.__init__

    def plain(self: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
        for name in ("num_workers", "pin_memory", "persistent_workers", "prefetch_factor", "multiprocessing_context", "timeout"):
            kwargs.pop(name, None)
        first(self, dataset, *args, **kwargs)

    DataLoader.__init__ = plain  # type: ignore[method-assign]
    warnings.simplefilter("ignore")


# -- one run


def run_isolated(job: Mapping[str, Any], emit: Callable[[Mapping[str, object]], None]) -> None:
    """Both variants of one finding: whole function first; where it does not reach the line often enough, the slice; outward through the loops."""
    _prepare_torch()
    chosen: tuple[str, int, bool] | None = None
    best: Mapping[str, object] | None = None
    source, row, column, code = job["source"], int(job["row"]), int(job.get("column", 1)), str(job["code"])
    site = cut.locate(ast.parse(source), row, column)
    if site is None:
        emit({"failed": f"row {row} holds no statement"})
        return
    for attempt in _attempts(len(site.loops)):
        figures = _measure(source, row, column, code, "", attempt, job["device"])
        if best is None or _worth(figures) > _worth(best):
            best, chosen = figures, attempt
        if _grows(figures):
            break
        if _complete(figures) and attempt[1] + 1 >= len(site.loops):
            break
    assert best is not None
    emit({"variant": "before", "run": best})
    repair = str(job.get("repair") or REPAIRS.get(code, ""))
    assert chosen is not None
    if job.get("fixed_source"):
        figures = _measure(job["fixed_source"], int(job["fixed_row"]), column, code, "", chosen, job["device"])
        emit({"variant": "fixed", "run": figures})
    if repair:
        figures = _measure(source, row, column, code, repair, chosen, job["device"])
        emit({"variant": "after", "run": figures})


def _attempts(loops: int) -> Iterator[tuple[str, int, bool]]:
    levels = range(max(1, loops))
    for level in levels:
        yield "whole function", level, False
    for level in levels:
        if loops:
            yield "slice", level, False
    for level in levels:
        yield "slice" if loops else "whole function", level, True


def _series(figures: Mapping[str, object], name: str) -> list[int]:
    value = figures[name]
    assert isinstance(value, list)
    return value


def _grows(figures: Mapping[str, object]) -> bool:
    for name in ("live_bytes", "nodes"):
        series = _series(figures, name)
        if len(series) > 4 and series[-1] > series[-2] > series[-3]:
            return True
    return False


def _complete(figures: Mapping[str, object]) -> bool:
    return len(_series(figures, "live_bytes")) >= STEPS and figures["seen"] in {"tensor", "number"} and not figures["fallbacks"]


def _worth(figures: Mapping[str, object]) -> tuple[bool, bool, int, bool]:
    return (
        _grows(figures), figures["seen"] in {"tensor", "number"}, min(len(_series(figures, "live_bytes")), STEPS), not figures["fallbacks"],
    )  # fmt: skip


def _measure(source: str, row: int, column: int, code: str, repair: str, attempt: tuple[str, int, bool], device: str) -> Mapping[str, object]:
    mode, level, force = attempt
    started = time.monotonic()
    gc.collect()
    torch.manual_seed(0)
    record = standins.Record()
    standins.begin(record)
    meter = meter_for(device)
    tree = ast.parse(source)
    site = cut.locate(tree, row, column)
    assert site is not None
    program = cut.whole(tree, site, code, level) if mode == "whole function" else cut.sliced(tree, site, code, level)
    errors: list[str] = []
    with meter:
        if isinstance(meter, StorageMeter):
            record.on_host = meter.forget
        standins.weight()
        harness = Harness(meter.live_bytes, repair, force)
        meter.reset_peak()
        if program is not None:
            errors = _drive(program, site, harness, device)
        peak = meter.peak_bytes()
        standins.begin(standins.Record())
    seen = next((kind for kind in ("stand-in", "tensor", "number", "other") if kind in harness.seen), "")
    errors = [*harness.errors, *errors]
    place = "stand-in" if "stand-in" in harness.places else "real" if harness.places else ""
    per_step = _per_step(harness.graph_forwards)
    return {
        "live_bytes": harness.live, "uncollected_bytes": harness.uncollected, "nodes": harness.nodes, "retained_bytes": harness.retained,
        "peak_bytes": peak, "graph_bytes": per_step * standins.FORWARD_BYTES or harness.graph_bytes, "fallbacks": len(record.fallbacks),
        "seen": seen, "place": place, "errors": list(dict.fromkeys([*errors, *record.fallbacks]))[:5], "device": device,
        "seconds": time.monotonic() - started, "mode": f"{mode}, loop {level}" + (", forced branch" if harness.forced else ""),
        "grad_modes": sorted(harness.grad_modes), "decorators": record.unknown_decorators, "contexts": sorted(harness.contexts),
        "backwards": record.backwards, "forced": harness.forced, "graphs_built": record.graph_forwards,
    }  # fmt: skip


def _per_step(counts: list[int]) -> int:
    differences = [later - earlier for earlier, later in zip(counts, counts[1:], strict=False)]
    return sorted(differences)[len(differences) // 2] if differences else 0


def _drive(program: ast.Module, site: cut.Site, harness: Harness, device: str) -> list[str]:
    """Execute the program and call the flagged function: once where it has a loop to sample, else once per step."""
    errors: list[str] = []
    sys.argv = ["module.py"]
    with standins.Bench(device):
        space: dict[str, Any] = {}
        try:
            space = _namespace(program, harness, main=site.function is None)
            exec(compile(program, "<confirmed>", "exec"), space)
            if site.function is not None:
                _call_flagged(site, space, harness)
        except EndOfRun:
            pass
        except Exception as error:
            line = error.__traceback__
            while line is not None and line.tb_next is not None and line.tb_next.tb_frame.f_code.co_filename == "<confirmed>":
                line = line.tb_next
            errors.append(f"{line.tb_lineno if line else 0}: {type(error).__name__}: {error}"[:300])
            error.__traceback__ = None
        harness._look = None
        space.clear()
    gc.collect()
    return errors


def _call_flagged(site: cut.Site, space: dict[str, Any], harness: Harness) -> None:
    outermost = next(node for node in site.around if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    place = cut.place_of(site.statement)
    function: Any
    receiver: Any = None
    if site.klass is not None and outermost is site.function:
        klass = space.get(site.klass.name)
        if not isinstance(klass, type):
            raise TypeError(f"class {site.klass.name} could not be made")
        receiver = StandIn(site.klass.name, klass)
        with contextlib.suppress(Exception):
            if "__init__" in vars(klass):
                klass.__init__(receiver, *_arguments(klass.__init__, skip=1))
        function = getattr(receiver, outermost.name)
    else:
        holder = next((node for node in site.around if isinstance(node, ast.ClassDef)), None)
        function = getattr(StandIn(holder.name, space[holder.name]), outermost.name) if holder else space[outermost.name]
    if isinstance(function, StandIn) or not callable(function):
        raise TypeError(f"{outermost.name} could not be made")
    repeat = not site.loops
    if repeat and isinstance(place, ast.Attribute):
        text = compile(ast.Expression(ast.parse(ast.unparse(place), mode="eval").body), "<place>", "eval")
        first = next(iter(inspect.signature(function).parameters), "")
        scope = {"self": receiver} if receiver is not None else {first: None}
        harness.look(lambda: eval(text, scope))
    for _ in range(STEPS if repeat else 1):
        if repeat:
            harness.tick()
        _consume(function(*_arguments(function), **_keywords(function)))
    if repeat:
        harness.tick()


def _consume(result: Any) -> None:
    if inspect.iscoroutine(result):
        asyncio.run(result)
    elif inspect.isasyncgen(result):

        async def drain() -> None:
            async for _ in result:
                pass

        asyncio.run(drain())
    elif inspect.isgenerator(result):
        for _ in result:
            pass


def _arguments(function: Any, skip: int = 0) -> list[Any]:
    """A stand-in for each required positional parameter; defaults stay."""
    given: list[Any] = []
    for parameter in list(inspect.signature(function).parameters.values())[skip:]:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            if parameter.default is not parameter.empty and not (parameter.default is None):
                given.append(copy.copy(parameter.default))
            else:
                given.append(StandIn(parameter.name))
    return given


def _keywords(function: Any) -> dict[str, Any]:
    found = inspect.signature(function).parameters.values()
    return {item.name: StandIn(item.name) for item in found if item.kind is item.KEYWORD_ONLY and item.default is item.empty}
