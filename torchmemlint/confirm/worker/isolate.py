"""Runs a flagged function or loop, cut out of its file, on stand-ins, and samples the memory at the head of the loop."""

from __future__ import annotations
import __future__

import ast
import asyncio
import base64
import builtins
import contextlib
import copy
import dis
import faulthandler
import functools
import gc
import importlib
import inspect
import io
import itertools
import sys
import time
import types
import warnings
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._pytree import tree_map

from torchmemlint.confirm.verdict import Located, slope
from torchmemlint.confirm.worker import cached, cut, saved, standins
from torchmemlint.confirm.worker.calls import over_parameters
from torchmemlint.confirm.worker.footprint import Checkpoint, Joins, let_go
from torchmemlint.confirm.worker.meter import (
    Meter,
    StorageMeter,
    end_history,
    meter_for,
    start_history,
    tensors_in,
    walk,
)
from torchmemlint.confirm.worker.standins import StandIn, StandInTensor, words
from torchmemlint.rules.card import Correction

REAL_MODULES = frozenset(
    words(
        """
    torch torchvision numpy math cmath collections itertools functools operator copy random typing
    typing_extensions dataclasses enum abc contextlib time datetime warnings string re statistics numbers
    fractions decimal types heapq bisect json csv io queue weakref gc inspect sys traceback textwrap __future__
    array struct uuid hashlib tempfile errno builtins asyncio
    """
    )
)  # fmt: skip
"""Modules that the code gets as they are, where they are installed; every other import gives a stand-in."""

_DETACH = frozenset({Correction.DETACH, Correction.DETACH_STATE})
_OF_VALUES = _DETACH | {Correction.HOST, Correction.CLONE, Correction.BACKWARD}
_NO_GRAD = frozenset({Correction.NO_GRAD, Correction.NO_GRAD_AROUND})

SEARCH_SECONDS = 12.0
"""No further way to run the line is tried after this much CPU time (wall time depends on what else the machine does)."""
OTHER_STEPS = 16
"""Loops that the flagged line is not in run this often at most; one in another a quarter as often."""
FORWARDS_AFTER_LOAD = 40
"""A run of a flagged load ends after so many calls of modules."""
RUN_SECONDS = 8.0
"""A run that has taken this much CPU time ends at the next sample."""


MODULE_RUNS = 6
"""So often is a module run whose own statement is flagged, outside a loop."""
SNAPSHOT_BYTES = 8 << 20
"""A memory snapshot of more than this, packed, does not go through the pipe."""


class EndOfRun(BaseException):
    """Raised through the code when enough steps were sampled; no handler for Exception stops it."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """Where the counts stood at the end of the sampled loop: what runs after it is no part of the experiment."""

    peak: int
    errors: int
    fallbacks: int
    backwards: int
    graph_forwards: int


class Harness:
    """The object that the instrumented code calls; corrects the flagged value in the corrected variant."""

    def __init__(self, meter: Meter, correction: Correction | None, force: bool, turned: frozenset[int] = frozenset()) -> None:
        self._live, self._peak, self._reset_peak = meter.live_bytes, meter.peak_bytes, meter.reset_peak
        self._meter = meter
        self.requested: list[int] = []
        self.fragmented = 0
        self.at_end: Callable[[], None] = lambda: None
        self.correction, self._force, self._turned = correction, force, turned
        self.own_fix = self.once = False
        self.looks = True
        self.waits = False
        self._waited = 0
        self.guessed: dict[int, bool] = {}
        self.assumed: dict[int, bool] = {}
        self.value_bytes = self.went_back = self.ran = 0
        self.graphs: list[int] = []
        self.partly = False
        self.left = 0
        self.blocked: dict[int, Located] = {}
        self.done = False
        self.sampled: Sampled | None = None
        self.escapes: bool | None = None
        self._deadline = time.process_time() + RUN_SECONDS
        self._probed: list[weakref.ref[torch.Tensor]] = []
        self.attached = self.inexact = False
        self.joins, self.checkpoint, self.left_gradients = Joins(), Checkpoint(), 0
        self.allocated: list[int] = []
        self.claimed = False
        self.guesses: set[str] = set()
        self.live: list[int] = []
        self.uncollected: list[int] = []
        self.nodes: list[int] = []
        self.retained: list[int] = []
        self.graph_forwards: list[int] = []
        self._counting = False
        self._depth = 0
        self.seen: set[str] = set()
        self.grad_modes: set[bool] = set()
        self.contexts: set[Located] = set()
        self.places: set[str] = set()
        self.errors: list[Located] = []
        self.forced: list[int] = []
        self.hits = 0
        self._look: Callable[[], object] | None = None
        self._whiles: dict[int, int] = {}

    # -- the steps
    def tick(self) -> None:
        """The head of the sampled loop: read everything."""
        place: object = None
        if self._look is not None:
            try:
                place = self._look()
            except Exception:  # not bound yet
                place = None
            self.places.add(_kind(place))
        if self._look is None:
            # no place is known: what the probe saw may live on in a comprehension, in a caller's list
            place = [tensor for reference in self._probed if (tensor := reference()) is not None]
        held = walk(place if self.looks else None)
        self.nodes.append(held.nodes)
        self.retained.append(held.retained_bytes)
        del place
        if len(self.live) == 2:
            self._reset_peak()
        self.allocated.append(self._meter.allocated_bytes())
        uncollected = self._live()
        gc.collect()
        self.live.append(self._live())
        if self.waits:  # each sample runs the collector: without it all of this were still there
            self._waited += uncollected - self.live[-1]
            uncollected = self.live[-1] + self._waited
        self.uncollected.append(uncollected)
        if self._meter.rounds:
            self.requested.append(self._meter.requested_bytes())
            self.fragmented = self._meter.fragmented_bytes()
        self.graph_forwards.append(standins.record.graph_forwards)
        self._stop_in_time()

    def _stop_in_time(self) -> None:
        if time.process_time() > self._deadline:
            self.blocked[0] = Located(0, f"it ran for {RUN_SECONDS:.0f} seconds, as far as line {row_here()}")
            raise EndOfRun

    def look(self, place: Callable[[], object]) -> None:
        """Records where the flagged value is kept."""
        self._look = place

    def loop(self, role: str, items: Any) -> Iterator[Any]:
        """Stands around a loop's iterable: the sampled one runs standins.STEPS times whatever it holds, those around it
        once."""
        count = 0
        self._counting = False
        self._stop_in_time()
        if role == "other" or self.done:
            self._depth += 1
            try:
                yield from itertools.islice(self._items(items), max(2, OTHER_STEPS >> 2 * (self._depth - 1)))
            finally:
                self._depth -= 1
            return
        wanted = {"sample": standins.STEPS, "around": 1, "within": 3}[role]
        while count < wanted:
            nothing = True
            for item in self._items(items):
                nothing = False
                if role == "sample":
                    self.tick()
                count += 1
                yield item
                del item
                if count >= wanted:
                    break
            if nothing:
                if role == "sample":
                    self.tick()
                count += 1
                yield count - 1 if self._counting else standins.data()
        if role == "sample":
            self._sampled()

    def _sampled(self) -> None:
        """The last sample is taken; what comes after the loop runs on, to see what the function gives out."""
        self.tick()
        self.at_end()
        self.done = True
        self.sampled = Sampled(
            self._peak(),
            len(self.errors),
            len(standins.record.fallbacks),
            standins.record.backwards,
            standins.record.graph_forwards,
        )

    def _items(self, items: Any) -> Iterator[Any]:
        """What a loop runs over; where that cannot be had, some data."""
        count = 0
        try:
            value = items() if callable(items) and not isinstance(items, StandIn) else items
            self._counting = isinstance(value, range)
            for item in value:
                count += 1
                yield item
                del item
            return
        except (TypeError, ValueError, RuntimeError, AttributeError, StopIteration) as error:
            row = row_here()
            self.blocked.setdefault(row, Located.raised(row, error, 200))
        for _ in range(2 if not count else 0):
            yield standins.data()

    async def aloop(self, role: str, items: Any) -> Any:
        """The same for ``async for``; the iterable is not asked, stand-ins are."""
        for item in self.loop(role, lambda: StandIn("async items")):
            yield item

    def while_(self, role: str, row: int, test: Any) -> bool:
        """Stands in a while's condition."""
        count = self._whiles[row] = self._whiles.get(row, 0) + 1
        if self.done and (count > OTHER_STEPS or time.process_time() > self._deadline):
            return False
        if role == "sample" and not self.done:
            if count > standins.STEPS:
                self._sampled()
                return False
            self.tick()
            return True
        if role in {"around", "within"}:
            self._whiles[row] = count % 2
            return count % 2 == 1
        if count > 20 * standins.STEPS:
            return False
        try:
            return bool(test())
        except Exception:
            return False

    def asked(self, value: Any) -> Any:
        """What an ``if`` asks of, whether it is None."""
        if isinstance(value, StandIn):
            standins.record.asked += 1
        return value

    def branch(self, wanted: bool | None, varies: bool, option: bool, row: int, test: Any) -> bool:
        """Stands in an if's condition: ``wanted`` is the side that the flagged line is on; ``varies``: it may be either in some step;
        ``option``: its answer is what the default of an option says."""
        truth, known = answer(test)
        if wanted is None and (option or not known):
            truth = truth != (row in self._turned)
            self.guessed[row] = truth
        if wanted is None or (wanted == truth):
            return truth
        if not known:
            return wanted
        if varies:
            self.assumed[row] = wanted
            return wanted
        if self._force:
            self.forced.append(row)
            return wanted
        self.blocked.setdefault(row, Located(0, f"the `if` on line {row} leads elsewhere"))
        return truth

    def context(self, manager: Any, text: str) -> Any:
        """Stands around a with-block's manager: one that cannot be had is a stand-in."""
        try:
            value = manager() if callable(manager) and not isinstance(manager, StandIn) else manager
        except Exception as error:
            self.errors.append(Located(row_here(), f"with {text}: {type(error).__name__}"[:200]))
            return StandIn(text)
        if isinstance(value, StandInTensor):  # `with amp.scale_loss(loss, optimizer) as scaled:`
            return _opened(text, value)
        if isinstance(value, type) or not (hasattr(type(value), "__enter__") or hasattr(type(value), "__aenter__")):
            return StandIn(text)
        return value

    # -- the flagged value
    def value(self, value: Any) -> Any:
        """The probe."""
        if isinstance(value, StandIn) and value._called is not None:
            value = value.tml_tensor()
        self._saw(value)
        return corrected(value, self.correction)

    def forward(self, call: Any, exact: bool = False) -> Any:
        """The probe around a forward call; not ``exact``: around a whole statement that may also cut the graph off again."""
        self.inexact = self.inexact or not exact
        if not isinstance(call, types.FunctionType):  # what no lambda can hold comes as a value
            self._saw(call)
            return call
        if self.own_fix:
            self.hits += 1
        standins.record.trusted = self.claimed  # the linter says that this very call is a forward
        try:
            with torch.no_grad() if self.correction in _NO_GRAD else contextlib.nullcontext():
                value = call()
                if isinstance(value, StandIn) and value._called is not None:
                    value = value.tml_tensor()
        finally:
            standins.record.trusted = False
        if exact or _kind(value) == "tensor":  # of several calls, those that make no tensor are not the forward
            self._saw(value)
        return value

    def switch(self, value: Any) -> Any:
        """The probe on a keyword that the correction turns off."""
        self.hits += 1
        self.seen.add("tensor")
        return False if self.correction is Correction.SWITCH else value

    def mapped(self, host: bool, place: Any) -> Any:
        """The probe on the place that a checkpoint is loaded to: unless it names the host, the device that it was saved from."""
        self.hits += 1
        self.seen.add("tensor")
        self._reset_peak()
        self.value_bytes = 0 if host else saved.FILE_BYTES
        standins.record.on_forward = self._ran
        self.ran = 0
        return "cpu" if host or self.correction is Correction.LOAD else standins.ON_DEVICE

    def _ran(self) -> None:
        """A module runs after the load: from here on the peak is that of its work, and some of it is enough."""
        if self.ran == 0:
            self._reset_peak()
        self.ran += 1
        if self.ran > FORWARDS_AFTER_LOAD:
            raise EndOfRun

    def joined(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Stands for a flagged ``cat``."""
        result = self.joins.call(function, args, kwargs, self.correction is Correction.ROOM)
        self._saw(result)
        return result

    def checkpointed(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Stands for a flagged checkpoint."""
        before = self._live()
        result = self.checkpoint.call(function, args, kwargs, self.correction)
        self.value_bytes = max(self.value_bytes, self._live() - before)
        self.note(result)
        return result

    def zeroed(self, receiver: Any, call: Callable[[], Any]) -> Any:
        """Stands for a flagged ``zero_grad``, or for what fills one gradient with zeros."""
        self.hits += 1
        self.seen.add("tensor")
        result, left = let_go(receiver, call, self.correction is Correction.FREE)
        self.left_gradients = max(self.left_gradients, left)
        return result

    def note(self, value: Any) -> str:
        """Take down what sort of value came, in which grad mode; saved tensors are not looked at: a checkpoint would make them."""
        self.hits += 1
        kind = _kind(value)
        self.seen.add(kind)
        self.grad_modes.add(torch.is_grad_enabled())
        self.contexts.update(standins.record.open_contexts)
        if guess := standins.guess_of(value):
            self.guesses.add(guess)
        for tensor in tensors_in(value) if kind == "tensor" else ():
            self.attached = self.attached or tensor.requires_grad
            if tensor.grad_fn is not None:
                tensor.register_hook(self._passed)  # type: ignore[no-untyped-call, unused-ignore]
        return kind

    def _saw(self, value: Any) -> None:
        if self.note(value) != "tensor" or self.hits > 50 * standins.STEPS:
            return
        size = 0
        for tensor in tensors_in(value):
            self._probed.append(weakref.ref(tensor))
            with contextlib.suppress(RuntimeError, NotImplementedError):  # sparse and nested ones have no storage
                size += tensor.untyped_storage().nbytes()
        self.value_bytes = max(self.value_bytes, size)
        if self.hits <= standins.STEPS:
            self._weigh(value)

    def root(self, value: Any) -> Any:
        """What a flagged backward starts from; a module that the call is looked up in passes."""
        if isinstance(value, torch.Tensor) and value.grad_fn is not None:
            self.attached = True
            if len(self.graphs) < standins.STEPS:
                self._weigh(value)
        return value

    def _weigh(self, value: Any) -> None:
        graph = walk(value, owned=standins.record.owned)
        self.partly = self.partly or graph.freed_slots > 0
        if graph.retained_bytes and not graph.freed_slots:
            self.graphs.append(graph.retained_bytes)

    @property
    def probe_bytes(self) -> int:
        """What the graph of one flagged value saves for a backward, of one that takes up those before, what a step adds; 0 where a
        backward had been through it."""
        added = [later - earlier for earlier, later in itertools.pairwise(self.graphs)]
        grows = len(added) > 2 and min(added) > 0
        sizes = sorted(added if grows else self.graphs)
        return sizes[len(sizes) // 2] if sizes else 0

    def _passed(self, gradient: torch.Tensor) -> None:
        """A backward comes through a flagged value."""
        self.went_back += 1

    def fit(self, value: Any, count: int) -> Any:
        """A value that is unpacked into ``count`` names: a list of stand-ins takes that length."""
        if (
            isinstance(value, (list, tuple))
            and len(value) != count
            and any(isinstance(item, (StandIn, torch.Tensor)) for item in value)
        ):
            return [*value[:count], *(standins.data() for _ in range(count - len(value)))]
        return value

    def gave(self, known: frozenset[int], *results: Any) -> None:
        """What the flagged function returned, and what it may have stored into: its receiver, its arguments. ``known`` are the
        stand-ins that were there before."""
        self.escapes = bool(self.escapes) or hangs_on_a_graph(results, known)

    # -- what fails
    def failed(self, row: int, error: Exception) -> None:
        """A guarded statement raised."""
        if len(self.errors) < 20:
            self.errors.append(Located.raised(row, error))
        error.__traceback__ = None  # it holds every frame's tensors

    def standin(self, name: str) -> StandIn:
        """For a name that the failed statement should have bound."""
        return StandIn(name, origin="given" if self.claimed else "unseen")


@contextlib.contextmanager
def _opened(text: str, value: Any) -> Iterator[Any]:
    """A manager that nobody sees, and that gives ``value``."""
    standins.record.open_contexts.append(Located(row_here(), text))
    try:
        yield value
    finally:
        standins.record.open_contexts.pop()


def answer(test: Any) -> tuple[bool, bool]:
    """Whether a condition holds, and whether that is known: no stand-in was asked whether it is true."""
    asked = standins.record.asked
    try:
        value = test() if callable(test) and not isinstance(test, StandIn) else test
        known = not isinstance(value, (StandIn, StandInTensor, standins.Guess))
        return bool(value), known and standins.record.asked == asked
    except Exception:
        return True, False


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


def corrected(value: Any, correction: Correction | None) -> Any:
    """The value as the corrected code has it."""
    if correction not in _OF_VALUES:
        return value

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if correction in _DETACH:
            return leaf.detach()
        if correction is Correction.BACKWARD:
            return _gone_back(leaf)
        return leaf.clone() if correction is Correction.CLONE else leaf.cpu()

    return tree_map(one, value)


def _gone_back(part: torch.Tensor) -> torch.Tensor:
    """The part after a backward of its own: a leaf, through which the later backward goes no further."""
    if not part.requires_grad or part.is_leaf:
        return part
    part.sum().backward()  # type: ignore[no-untyped-call, unused-ignore]
    return part.detach().requires_grad_()


# -- the module around the code


class Modules:
    """The imports of the code: real where a module is on the list, the project's own files where the job has them, else
    stand-ins."""

    def __init__(self, sources: Mapping[str, str], packages: frozenset[str], name: str) -> None:
        self._sources, self._packages, self._name = sources, packages, name
        self._loaded: dict[str, Any] = {}

    def load(self, name: str, names: Any = None, scope: Any = None, wanted: Any = (), level: int = 0) -> Any:
        """``__import__`` for the code."""
        absolute = name
        if level:
            importer = (scope or {}).get("__name__", self._name)
            importer = self._name if importer == "__main__" else importer
            here = importer if importer in self._packages else importer.rpartition(".")[0]
            above = here.split(".")[: len(here.split(".")) - (level - 1)]
            absolute = ".".join([*above, *([name] if name else [])])
        if not level and name.split(".")[0] in REAL_MODULES:
            return _import(name, names, scope, wanted)
        if absolute in self._sources and wanted:
            return self._project_module(absolute, wanted)
        if wanted and any(f"{absolute}.{item}" in self._sources for item in wanted):
            return _Package(
                {
                    item: self._project_module(f"{absolute}.{item}", ())
                    for item in wanted
                    if f"{absolute}.{item}" in self._sources
                }
            )
        return _import(name, names, scope, wanted, level)

    def _project_module(self, absolute: str, wanted: Any) -> Any:
        if absolute not in self._loaded:
            self._loaded[absolute] = module = types.SimpleNamespace()
            space = self.namespace(cut.definitions(ast.parse(self._sources[absolute])), None, absolute)
            for key, value in space.items():
                setattr(module, key, value)
        module = self._loaded[absolute]
        return _all_of(vars(module), absolute) if "*" in (wanted or ()) else _Package({**vars(module)})

    def namespace(self, tree: ast.Module, harness: Harness | None, absolute: str) -> dict[str, Any]:
        """The globals that the definitions of a module leave."""
        space = _namespace(tree, harness or Harness(StorageMeter(), None, False), self, absolute)
        exec(compile(tree, f"<{absolute}>", "exec", __future__.annotations.compiler_flag), space)
        return space


def _all_of(names: Mapping[str, Any], absolute: str) -> types.ModuleType:
    """A module of the project for ``from … import *``."""
    listed = names.get("__all__")
    public = listed if isinstance(listed, list) else [name for name in names if not name.startswith("_")]
    module = types.ModuleType(absolute)
    vars(module).update({name: names[name] for name in public if name in names})
    return module


class _Package:
    """What a module of the project gives; names that it does not define are stand-ins."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._names[name] if name in self._names else StandIn(name, origin="unseen")


class _Base:
    """``super()`` of a receiver that is a stand-in: the methods of the visible bases; what they lack does nothing."""

    def __init__(self, klass: Any, receiver: Any) -> None:
        object.__setattr__(self, "_about", (klass, receiver))

    def __getattribute__(self, name: str) -> Any:  # every name, "__init__" above all, is the code's
        klass, receiver = object.__getattribute__(self, "_about")
        own = receiver._klass if isinstance(receiver, StandIn) else type(receiver)
        order = own.__mro__ if isinstance(own, type) else ()
        after = order[order.index(klass) + 1 :] if klass in order else ()
        for base in after:
            if name in vars(base) and base is not object and not base.__module__.startswith("torch"):
                found = vars(base)[name]
                return found.__get__(receiver, own) if hasattr(found, "__get__") else found
        return _nothing if name.startswith("__") else StandIn(f"super.{name}", origin="part")


def _super(*given: Any) -> Any:
    frame = sys._getframe(1)
    klass = given[0] if given else frame.f_locals.get("__class__")
    receiver = (
        given[1] if len(given) > 1 else frame.f_locals.get(frame.f_code.co_varnames[0] if frame.f_code.co_varnames else "")
    )
    if isinstance(klass, type) and isinstance(receiver, klass):
        return builtins.super(klass, receiver)
    return _Base(klass, receiver)


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
        if not wanted:
            with contextlib.suppress(ImportError):  # a part that is not installed must not take the whole away
                return importlib.import_module(top)
    return StandIn(name if wanted else top, origin="unseen")


class _Partly:
    """A module some of whose names this version does not have."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name, None)
        return StandIn(name, origin="unseen") if found is None else found


def _namespace(tree: ast.Module, harness: Harness, modules: Modules, name: str) -> dict[str, Any]:
    own = dict(vars(builtins))
    own.update(
        __import__=modules.load,
        super=_super,
        open=lambda *args, **kwargs: io.StringIO(""),
        input=lambda *args: "",
        print=_print,
        exit=_nothing,
        quit=_nothing,
        breakpoint=_nothing,
    )
    module = types.ModuleType(name)  # dataclasses and pickle look a class's module up
    if name != "__main__":
        sys.modules[name] = module
    space = vars(module)
    space.update({"__builtins__": own, "__name__": name, cut.HARNESS: harness})
    space["__file__"] = "module.py"
    space["__package__"] = name.rpartition(".")[0]
    defined = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    defined |= {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
    defined |= {
        (item.asname or item.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for item in node.names
    }
    defined |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    defined |= {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in defined and node.id not in own and node.id not in space:
            space[node.id] = StandIn(node.id, origin="unseen")
    return space


def _print(*values: object, **options: object) -> None:
    for value in values:
        format(value)


def _nothing(*args: object, **kwargs: object) -> None:
    return None


def prepare_torch(device: str) -> None:
    """Make the parts of torch that reach outside do nothing in this process; what is made without saying where, stand-ins above
    all, is made on the device."""
    from torch.utils.data import DataLoader

    elsewhere = torch.device(device).type != "cpu"
    if elsewhere:
        torch.set_default_device(device)
    if torch.device(device).type == "cuda":
        torch.cuda.set_device(device)  # where the code's own "cuda" is
    torch.save = _nothing
    for name, dtype in _LEGACY.items():
        setattr(torch, name, functools.partial(_legacy, getattr(torch, name), dtype))
    torch.load = _load  # type: ignore[assignment]
    saved.let_in()
    if torch.device(device).type == "cpu":
        _without_cuda()
    torch.nn.modules.module.register_module_forward_pre_hook(standins.entered)  # type: ignore[arg-type]
    for dropout in (torch.nn.Dropout, torch.nn.Dropout2d, torch.nn.Dropout3d, torch.nn.AlphaDropout):
        dropout.__init__ = functools.partialmethod(_dropout, dropout.__init__)  # type: ignore[method-assign, assignment]
    first = DataLoader.__init__

    def plain(self: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
        for name in (
            "num_workers",
            "pin_memory",
            "persistent_workers",
            "prefetch_factor",
            "multiprocessing_context",
            "timeout",
        ):
            kwargs.pop(name, None)
        if elsewhere:  # a sampler shuffles by the default device's generator alone
            kwargs["generator"] = torch.Generator(device)
        first(self, dataset, *args, **kwargs)

    DataLoader.__init__ = plain  # type: ignore[method-assign]
    warnings.simplefilter("ignore")


def _load(file: Any = None, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
    """A checkpoint: a stand-in, whose weights are on the device where the flagged call loads them there."""
    return saved.loaded(map_location is standins.ON_DEVICE)


def _dropout(self: Any, first: Any, p: Any = 0.5, *args: Any, **kwargs: Any) -> None:
    first(self, 0.5 if isinstance(p, StandIn) else p, *args, **kwargs)


def _without_cuda() -> None:
    """What code asks of a GPU, where there is none and all of it runs on the CPU: to wait, to be chosen, its streams."""
    cuda: Any = torch.cuda
    answers: Mapping[str, Callable[[], Any]] = {
        "synchronize": _nothing, "set_device": _nothing, "empty_cache": _nothing, "reset_peak_memory_stats": _nothing,
        "current_device": int, "get_device_name": lambda: "cpu", "Event": _stream, "Stream": _stream, "current_stream": _stream,
        "default_stream": _stream, "device": contextlib.nullcontext, "stream": contextlib.nullcontext,
    }  # fmt: skip
    for name, answer_of in answers.items():
        setattr(cuda, name, _answering(answer_of))  # each its own: torch._dynamo refuses two names of one function
    cuda.is_available = lambda: sys._getframe(1).f_code.co_filename.startswith("<")  # to the code there is one; not to torch


def _stream() -> StandIn:
    return StandIn("stream")


def _answering(answer_of: Callable[[], Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: answer_of()


_LEGACY = {
    "FloatTensor": torch.float32,
    "LongTensor": torch.int64,
    "IntTensor": torch.int32,
    "DoubleTensor": torch.float64,
    "BoolTensor": torch.bool,
    "HalfTensor": torch.float16,
    "ByteTensor": torch.uint8,
}


def _legacy(first: Any, dtype: torch.dtype, *args: Any, **kwargs: Any) -> Any:
    """``torch.FloatTensor(…)``: a class, so no mode sees the call."""
    try:
        return first(*args, **kwargs)
    except (TypeError, ValueError, RuntimeError):
        return standins.data().to(dtype)


# -- one run


@dataclass(frozen=True, slots=True)
class Target:
    """The flagged line, and the grad mode that its function is called in. ``turned`` are rows of ``if`` statements whose guessed
    answer is to be the other one."""

    source: str
    place: cut.Place
    flaw: cut.Flaw
    device: str
    grad: str
    module: str
    modules: Mapping[str, str]
    packages: frozenset[str]
    claimed: bool
    inert: frozenset[str] = frozenset()
    turned: frozenset[int] = frozenset()


def target_of(job: Mapping[str, Any]) -> Target:
    """What a job asks about."""
    standins.defaults.update(job.get("defaults", {}))
    return Target(
        job["source"], cut.Place(*job["place"]), cut.Flaw(Correction(str(job["correction"])), str(job.get("keyword", ""))), job["device"],
        str(job.get("grad", "on")), str(job.get("module", "confirmed_module")), job.get("modules", {}),
        frozenset(job.get("packages", ())), job.get("claimed") is True,
    )  # fmt: skip


def run_isolated(job: Mapping[str, Any], emit: Callable[[Mapping[str, object]], None]) -> None:
    """Both variants of one finding: whole function first; where it does not reach the line often enough, the slice;
    outward through the loops."""
    if job.get("timeout"):  # what is stopped says where it is
        faulthandler.dump_traceback_later(max(1.0, float(job["timeout"]) - 2.0))
    prepare_torch(str(job["device"]))
    standins.STEPS = int(job.get("steps", standins.STEPS))
    chosen: tuple[str, int, bool] | None = None
    best: Mapping[str, object] | None = None
    target = target_of(job)
    correction = target.flaw.correction
    site = cut.locate(ast.parse(target.source), target.place)
    if site is None:
        emit({"failed": f"line {target.place.row} holds no statement"})
        return
    if correction is Correction.NO_CACHE:
        _of_a_cache(target, site, emit)
        return
    if row := cut.left_before(site):
        emit({"failed": f"line {row} leaves before the flagged one: it never runs"})
        return
    if correction is Correction.LOAD:
        _of_a_load(target, site, job, emit)
        return
    deadline = time.process_time() + SEARCH_SECONDS
    for attempt in _attempts(len(site.loops), first_loop(site, correction)):
        if best is not None and time.process_time() > deadline:
            break
        figures = _measure(target, None, attempt)
        if best is None or _worth(figures) > _worth(best):
            best, chosen = figures, attempt
        if _grows(figures):
            break
        if figures["left"] and not figures["hits"] and cut.way_out(ast.parse(target.source), _whole(figures, "left")):
            best, chosen = figures, attempt
            break  # a slice would run what the program never comes to
        if _complete(figures) and attempt[1] + 1 >= len(site.loops):
            break
    assert best is not None
    assert chosen is not None
    if target.claimed and correction in cut.OF_FORWARDS and best["guards"]:
        # its backward runs in a phase that no visible code is known to be in; the linter reports the other one
        other = replace(target, turned=frozenset(_series(best, "guards")))
        figures = _measure(other, None, chosen)
        if not figures["backwards"] and figures["seen"] == "tensor" and len(_series(figures, "live_bytes")) > standins.STEPS:
            target, best = other, figures
    if target.claimed and correction in cut.OF_FORWARDS and best["seen"] == "tensor" and not best["went_back"]:
        best = {**best, "needed_at": _needed_at(target, chosen, best, deadline)}
    emit({"variant": "before", "run": best})
    if job.get("snapshot") and torch.device(target.device).type == "cuda" and _grows(best):
        emit(_snapshot(target, chosen))
    assert chosen is not None
    if job.get("fixed_source"):
        emit({"variant": "fixed", "run": _measure(fixed(target, job["fixed_source"], int(job["fixed_row"])), None, chosen)})
    if correction is Correction.OWN_FIX and (job.get("fixed_source") or best["backwards"]):
        return
    # nothing is trained where it ran: the correction is a decorator, or a with-block around all of it
    around = correction in {Correction.NO_GRAD_AROUND, Correction.OWN_FIX} and not best["backwards"]

    def corrected(target: Target) -> Mapping[str, object]:
        return _measure(replace(target, grad="off"), None, chosen) if around else _measure(target, correction, chosen)

    emit({"variant": "after", "run": corrected(target)})
    guesses = best["guesses"]
    if isinstance(guesses, list) and guesses:
        # the same once more, with nothing but data from the callees that nobody can see
        doubtful = replace(target, inert=frozenset(guesses))
        emit({"variant": "inert before", "run": _measure(doubtful, None, chosen)})
        emit({"variant": "inert after", "run": corrected(doubtful)})


OTHER_ANSWERS = 4
"""So many `if` statements below the flagged line are tried with the other answer."""


def _needed_at(target: Target, chosen: tuple[str, int, bool], best: Mapping[str, object], deadline: float) -> list[int]:
    """Rows of the ``if`` statements below the flagged line that an option's default or a guess answered, and where the other answer
    sends a backward through the flagged value."""
    below = [row for row in _series(best, "guessed") if row > target.place.row and row not in target.turned]
    found = []
    for row in below[:OTHER_ANSWERS]:
        if time.process_time() > deadline:
            break
        if _measure(replace(target, turned=target.turned | {row}), None, chosen)["went_back"]:
            found.append(row)
    return found


def fixed(target: Target, source: str, row: int) -> Target:
    """The target in the file with the finding's own fix, whose flagged statement is in ``row``."""
    longer = source.count("\n") - target.source.count("\n")
    turned = frozenset(item + (longer if item > target.place.row else row - target.place.row) for item in target.turned)
    return replace(target, source=source, place=cut.Place(row, target.place.column), turned=turned)


def _of_a_load(target: Target, site: cut.Site, job: Mapping[str, Any], emit: Callable[[Mapping[str, object]], None]) -> None:
    """A load, once: no growth is asked about, but what is held when the modules run. The first run shows which parts of the
    file hold weights."""
    best: Mapping[str, object] = {}
    chosen = ("whole function", 0, False)
    for attempt in [chosen, ("whole function", 0, True), *([("slice", len(site.loops) - 1, True)] if site.loops else [])]:
        known = saved.learned()
        best, chosen = _measure(target, None, attempt), attempt
        if best["hits"]:
            if saved.learned() != known:
                best = _measure(target, None, attempt)
            break
    emit({"variant": "before", "run": best})
    if job.get("fixed_source"):
        emit({"variant": "fixed", "run": _measure(fixed(target, job["fixed_source"], int(job["fixed_row"])), None, chosen)})
    emit({"variant": "after", "run": _measure(target, Correction.LOAD, chosen)})


def _of_a_cache(target: Target, site: cut.Site, emit: Callable[[Mapping[str, object]], None]) -> None:
    if site.function is None:
        emit({"failed": f"line {target.place.row} is in no function"})
        return

    def make(target: Target, program: ast.Module, harness: Harness) -> dict[str, Any]:
        space = _namespace(program, harness, Modules(target.modules, target.packages, target.module), target.module)
        exec(compile(program, standins.CODE, "exec", __future__.annotations.compiler_flag), space)
        return space

    for variant, is_cached in (("before", True), ("after", False)):
        harness = Harness(StorageMeter(), None, False)
        emit({"variant": variant, "run": cached.measured(target, site, is_cached, make, harness)})


def first_loop(site: cut.Site, correction: Correction) -> int:
    """The innermost loop of steps: where a correction is about gradients, none over parameters."""
    inner = range(len(site.loops)) if correction is Correction.FREE else ()
    return next((level for level in inner if not over_parameters(site.loops[level])), 0)


def _attempts(loops: int, first: int = 0) -> Iterator[tuple[str, int, bool]]:
    levels = range(first, max(1, loops))
    for level in levels:
        yield "whole function", level, False
    for level in levels:
        if loops:
            yield "slice", level, False
    for level in levels:
        yield "slice" if loops else "whole function", level, True


def _whole(figures: Mapping[str, object], name: str) -> int:
    value = figures[name]
    assert isinstance(value, int)
    return value


def _series(figures: Mapping[str, object], name: str) -> list[int]:
    value = figures[name]
    assert isinstance(value, list)
    return value


def _grows(figures: Mapping[str, object]) -> bool:
    if figures["seen"] not in {"tensor", "number"}:  # whatever grows, it is not the flagged line's
        return False
    for name in ("live_bytes", "nodes"):
        series = _series(figures, name)
        if len(series) > 4 and series[-1] > series[-2] > series[-3]:
            return True
    return False


def _complete(figures: Mapping[str, object]) -> bool:
    return (
        len(_series(figures, "live_bytes")) >= standins.STEPS
        and figures["seen"] in {"tensor", "number"}
        and not figures["fallbacks"]
    )


def _worth(figures: Mapping[str, object]) -> tuple[bool, bool, int, bool]:
    return (
        _grows(figures),
        figures["seen"] in {"tensor", "number"},
        min(len(_series(figures, "live_bytes")), standins.STEPS),
        not figures["fallbacks"],
    )


def _snapshot(target: Target, attempt: tuple[str, int, bool]) -> Mapping[str, object]:
    """The record of a run of its own, at whose end the allocator reports what it holds and who asked for it."""
    taken: list[bytes] = []
    start_history()
    _measure(target, None, attempt, lambda: taken.append(end_history()))
    packed = base64.b64encode(zlib.compress(taken[0])).decode() if taken else ""
    if not packed:
        return {"no_snapshot": "the run with the allocator's history on did not come to its end"}
    return {"snapshot": packed} if len(packed) <= SNAPSHOT_BYTES else {"no_snapshot": f"it would have {len(packed)} bytes"}


def _measure(
    target: Target, correction: Correction | None, attempt: tuple[str, int, bool], at_end: Callable[[], None] = lambda: None
) -> Mapping[str, object]:
    mode, level, force = attempt
    started = time.monotonic()
    gc.collect()
    torch.manual_seed(0)
    tree = ast.parse(target.source)
    site = cut.locate(tree, target.place)
    assert site is not None
    record = standins.Record(target.inert, cut.modules_of(tree, site.klass))
    standins.begin(record)
    meter = meter_for(target.device)
    make = cut.whole if mode == "whole function" else cut.sliced
    program = make(tree, site, target.flaw, level)
    errors: list[Located] = []
    standins.weight()  # of ours, and no part of the program
    with meter:
        record.on_host = meter.forget
        harness = Harness(meter, correction, force, target.turned)
        harness.claimed = target.claimed
        harness.looks = target.flaw.correction is not Correction.NO_CHECKPOINT
        harness.own_fix = target.flaw.correction is Correction.OWN_FIX
        harness.once = target.flaw.correction is Correction.LOAD
        harness.at_end = at_end
        meter.reset_peak()
        if program is not None:
            with torch.set_grad_enabled(target.grad != "off"):  # the callers' mode, where it is known to be off
                errors = drive(program, site, harness, target)
        end = harness.sampled or Sampled(
            meter.peak_bytes(), len(harness.errors), len(record.fallbacks), record.backwards, record.graph_forwards
        )
        standins.begin(standins.Record())
    seen = next((kind for kind in ("stand-in", "tensor", "number", "other") if kind in harness.seen), "")
    if harness.own_fix and harness.hits:  # it is about grad mode, not about a value
        seen = "tensor"
    errors = [*harness.errors[: end.errors], *(() if harness.sampled else errors)]
    fallbacks = record.fallbacks[: end.fallbacks]
    kept = cut.place_of(site.statement)
    place = "stand-in" if "stand-in" in harness.places else "real" if harness.places else ""
    if site.function is not None and not site.loops and not site.comprehends and not isinstance(kept, ast.Attribute):
        place = "local"
    if harness.waits:
        place = "context"
    per_step = _per_step(harness.graph_forwards)
    return {
        "live_bytes": harness.live,
        "uncollected_bytes": harness.uncollected,
        "nodes": harness.nodes,
        "retained_bytes": harness.retained,
        "requested_bytes": harness.requested,
        "fragmented_bytes": harness.fragmented,
        "peak_bytes": end.peak,
        "graph_bytes": _graph_bytes(harness, per_step * standins.FORWARD_BYTES),
        "probe_bytes": harness.probe_bytes,
        "value_bytes": harness.value_bytes,
        "ran": harness.ran,
        "went_back": harness.went_back,
        "turned": sorted(target.turned & harness.guessed.keys()),
        "assumed": sorted(harness.assumed),
        "guards": _guards(tree, record.backward_rows, harness.guessed),
        "fallbacks": len(fallbacks),
        "seen": seen,
        "place": place,
        "errors": [item.packed() for item in dict.fromkeys([*errors, *fallbacks])][:5],
        "device": target.device,
        "seconds": time.monotonic() - started,
        "mode": f"{mode}, loop {level}" + (", forced branch" if harness.forced else ""),
        "grad_modes": sorted(harness.grad_modes),
        "decorators": _decorators(record, site),
        "contexts": [item.packed() for item in sorted(harness.contexts)],
        "backward_row": record.backward_row,
        "guess_row": next(
            (row for name, row in record.guess_rows.items() if min(harness.guesses, default="").startswith(name)), 0
        ),
        "guessed": sorted(harness.guessed),
        "attached": harness.attached
        or ((harness.inexact or harness.own_fix) and end.graph_forwards > 0)
        or (harness.own_fix and record.hung),
        "guesses": sorted(harness.guesses),
        "backwards": end.backwards,
        "later_backwards": record.backwards - end.backwards,
        "empty_backwards": record.empty_backwards,
        "swallowed": _swallowed(record, site),
        "escapes": harness.escapes if mode == "whole function" else None,
        "forced": harness.forced,
        "graphs_built": end.graph_forwards,
        "hung": record.hung,
        "may_retain": record.may_retain,
        "left": harness.left,
        "hits": harness.hits,
        "blocked": [item.packed() for item in harness.blocked.values()][:3],
        "partly_freed": harness.partly,
        "allocated_bytes": harness.allocated,
        "joined_bytes": harness.joins.bytes,
        "left_gradients": harness.left_gradients,
        "raised": harness.checkpoint.raised,
        "ungraphed": harness.checkpoint.ungraphed,
        "hidden_inputs": harness.checkpoint.hidden,
    }


def _graph_bytes(harness: Harness, forwards: int) -> int:
    """What one step's graph saves: that of the flagged value, except where what grows is more, and the step's ``forwards`` make it
    so."""
    probed = harness.probe_bytes
    if not probed:
        return forwards
    grew = slope(harness.live)
    return forwards if forwards and grew > 1.5 * probed else probed


def _guards(tree: ast.Module, backwards: Iterable[tuple[int, ...]], guessed: Mapping[int, bool]) -> list[int]:
    """Rows of the ``if`` statements whose guessed answers led to the backward calls (each is identified by the rows of its
    frames); none where some call rests on no guess."""
    sides: dict[int, range] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and node.lineno in guessed:
            side = node.body if guessed[node.lineno] else node.orelse
            if side:
                sides[node.lineno] = range(side[0].lineno, (side[-1].end_lineno or side[-1].lineno) + 1)
    rows: set[int] = set()
    for frames in backwards:
        behind = {row for row, side in sides.items() if any(frame in side for frame in frames)}
        if not behind:
            return []
        rows |= behind
    return sorted(rows)


def _decorators(record: standins.Record, site: cut.Site) -> list[list[object]]:
    around = {node.name: node for node in site.around if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    return [
        [next((item.lineno for item in around[function].decorator_list), 0), decorator]
        for function, decorator in record.unknown_decorators
        if function in around
    ]


def _swallowed(record: standins.Record, site: cut.Site) -> list[list[object]]:
    """Callees that are not visible, other than in the flagged statement, that may have run a backward."""
    own = range(site.statement.lineno, (site.statement.end_lineno or site.statement.lineno) + 1)
    return [callee.packed() for callee in record.swallowed if callee.line not in own]


def _per_step(counts: list[int]) -> int:
    differences = [later - earlier for earlier, later in itertools.pairwise(counts)]
    return sorted(differences)[len(differences) // 2] if differences else 0


def drive(program: ast.Module, site: cut.Site, harness: Harness, target: Target, calls: int = 0) -> list[Located]:
    """Execute the program and call the flagged function: once where it has a loop to sample, else once per step, or as many ``calls`` as are
    wanted."""
    errors: list[Located] = []
    sys.argv = ["module.py"]
    with standins.Bench(target.device):
        space: dict[str, Any] = {}
        try:
            name = "__main__" if site.function is None else str(target.module)
            space = _namespace(program, harness, Modules(target.modules, target.packages, target.module), name)
            code = compile(program, standins.CODE, "exec", __future__.annotations.compiler_flag)
            again = site.function is None and not (site.loops or site.comprehends or harness.once or calls)
            for _ in range(MODULE_RUNS if again else 1):
                if again:
                    harness.tick()
                exec(code, space)
            if again:
                harness.tick()
                harness.at_end()
            if site.function is not None:
                _call_flagged(site, space, harness, calls)
        except EndOfRun:
            pass
        except SystemExit as error:
            row = _row_of(error)
            harness.left = row
            errors.append(Located(row, "SystemExit: the code leaves the program"))
        except Exception as error:
            errors.append(Located.raised(_row_of(error), error))
            error.__traceback__ = None
        harness._look = None
        space.clear()
    gc.collect()
    return errors


def row_here() -> int:
    """The row of the flagged file that is being executed."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != standins.CODE:
        frame = frame.f_back
    return frame.f_lineno if frame is not None else 0


def _row_of(error: BaseException) -> int:
    """The row of the flagged file, outside the harness, that the exception came through last."""
    row = 0
    line = error.__traceback__
    while line is not None:
        if line.tb_frame.f_code.co_filename == standins.CODE:
            row = line.tb_lineno
        line = line.tb_next
    return row


def _call_flagged(site: cut.Site, space: dict[str, Any], harness: Harness, calls: int = 0) -> None:
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
                vars(klass)["__init__"](receiver, *_arguments(vars(klass)["__init__"], skip=1))
        for name in [name for name, value in receiver._parts.items() if value is None and name in _set_later(klass)]:
            del receiver._parts[name]  # None until another method sets it
            for value in cut.set_later(site.klass, name):
                with contextlib.suppress(Exception):
                    receiver._parts[name] = eval(compile(value, standins.CODE, "eval"), space, {"self": receiver})
                    break
        function = _method(receiver, klass, outermost.name)
    else:
        holder = next((node for node in site.around if isinstance(node, ast.ClassDef)), None)
        klass = space[holder.name] if holder else None
        function = _method(StandIn(holder.name, klass), klass, outermost.name) if holder else space[outermost.name]
    applied = _applied(site, space, outermost.name)
    if applied is not None:
        receiver, function = None, applied
        harness.waits = True
    if isinstance(function, StandIn) or not callable(function):
        raise TypeError(f"{outermost.name} could not be made")
    repeat = not site.loops and not site.comprehends
    if repeat and isinstance(place, ast.Attribute):
        text = compile(ast.Expression(ast.parse(ast.unparse(place), mode="eval").body), "<place>", "eval")
        first = next(iter(inspect.signature(function).parameters), "")
        scope = {"self": receiver} if receiver is not None else {first: None}
        harness.look(lambda: eval(text, scope))
    known = _standins_in(receiver) if receiver is not None else frozenset()
    if harness.once:
        calls = 1
    for _ in range((calls or standins.STEPS) if repeat else 1):
        if repeat:
            harness.tick()
        given = [*_arguments(function), *_keywords(function).values()]
        names = list(_keywords(function))
        split = len(given) - len(names)
        result = function(*given[:split], **dict(zip(names, given[split:], strict=True)))
        harness.gave(known, _consume(result), receiver, given)
        del result, given
    if repeat:
        harness.tick()
        harness.at_end()


def _set_later(klass: type) -> frozenset[str]:
    """Attributes that methods other than the initialisers set."""
    return frozenset(
        instruction.argval
        for base in klass.__mro__
        if base is not object and not base.__module__.startswith("torch")
        for name, function in vars(base).items()
        if isinstance(function, types.FunctionType) and name != "__init__"
        for instruction in dis.get_instructions(function)
        if instruction.opname == "STORE_ATTR"
    )


def _applied(site: cut.Site, space: Mapping[str, Any], name: str) -> Callable[[], Any] | None:
    """The call of an ``autograd.Function`` whose ``forward`` is flagged: autograd gives it its context, and its tensors are leaves
    that want a gradient."""
    klass = space.get(site.klass.name) if site.klass is not None else None
    if (
        not isinstance(klass, type)
        or not issubclass(klass, torch.autograd.Function)
        or name not in {"forward", "setup_context"}
    ):
        return None
    parameters = list(inspect.signature(klass.forward).parameters.values())
    new_style = "setup_context" in vars(klass)

    def apply() -> Any:
        given = [
            copy.copy(item.default) if item.default not in {item.empty, None} else standins.data().requires_grad_()
            for item in parameters[0 if new_style else 1 :]
            if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)
        ]
        with torch.enable_grad():
            return klass.apply(*given)

    return apply


def _method(receiver: Any, klass: Any, name: str) -> Any:
    """The class's function bound to the stand-in: its own attributes (``__call__``) are not meant."""
    found = vars(klass).get(name) if isinstance(klass, type) else None
    if found is None:
        return getattr(receiver, name)
    return found.__get__(receiver, klass) if hasattr(found, "__get__") else found


def _consume(result: Any) -> Any:
    """What the call gave: of a generator whether any of its values is attached to a graph, that value."""
    if inspect.iscoroutine(result):
        return asyncio.run(result)
    found: Any = None
    if inspect.isasyncgen(result):

        async def drain() -> Any:
            found = None
            async for item in result:
                found = item if hangs_on_a_graph(item) else found
            return found

        return asyncio.run(drain())
    if inspect.isgenerator(result):
        for item in result:
            found = item if hangs_on_a_graph(item) else found
        return found
    return result


def _standins_in(value: StandIn) -> frozenset[int]:
    """The identities of the stand-in and all that is stored in it."""
    seen: set[int] = set()
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, StandIn) and id(item) not in seen:
            seen.add(id(item))
            waiting.extend(item._parts.values())
    return frozenset(seen)


def hangs_on_a_graph(value: Any, known: frozenset[int] = frozenset()) -> bool:
    """Whether anything in ``value`` has a history, also what was stored in stand-ins; of those that are ``known``, only what was
    stored."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, StandIn):
            if item._called is not None and item._value is None and item._called[2] and id(item) not in known:
                return True  # the result of a call that was never used: its history is not known
            waiting.extend(item._parts.values())
            waiting.append(item._value)
        elif any(tensor.grad_fn is not None for tensor in tensors_in(item)):
            return True
        elif isinstance(item, (list, tuple)):
            waiting.extend(item)
        elif isinstance(item, dict):
            waiting.extend(item.values())
    return False


def _arguments(function: Any, skip: int = 0) -> list[Any]:
    """A stand-in for each required positional parameter; defaults stay."""
    given: list[Any] = []
    for parameter in list(inspect.signature(function).parameters.values())[skip:]:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            if parameter.default is not parameter.empty and parameter.default is not None:
                given.append(copy.copy(parameter.default))
            else:
                given.append(StandIn(parameter.name))
    return given


def _keywords(function: Any) -> dict[str, Any]:
    found = inspect.signature(function).parameters.values()
    return {item.name: StandIn(item.name) for item in found if item.kind is item.KEYWORD_ONLY and item.default is item.empty}
