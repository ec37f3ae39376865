"""The object that the instrumented code calls on its way to the flagged line, where it is sampled."""

from __future__ import annotations

import contextlib
import gc
import itertools
import time
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from torchmemlint.confirm.verdict import Located
from torchmemlint.confirm.worker.graphs import tensors_in, walk
from torchmemlint.confirm.worker.harness.in_place import Checkpoint, Joins, let_go
from torchmemlint.confirm.worker.harness.values import answer, corrected, hangs_on_a_graph, kind_of
from torchmemlint.confirm.worker.meter import Meter
from torchmemlint.confirm.worker.standins import (
    FILE_BYTES,
    ON_DEVICE,
    Stage,
    StandIn,
    StandInTensor,
    data,
    guess_of,
    row_of_the_code,
)
from torchmemlint.rules.card import Correction

_NO_GRAD = frozenset({Correction.NO_GRAD, Correction.NO_GRAD_AROUND})

OTHER_STEPS = 16
"""Loops that the flagged line is not in run this often at most; one in another a quarter as often."""
FORWARDS_AFTER_LOAD = 40
"""A run of a flagged load ends after so many calls of modules."""
SERIES = ("live_bytes", "uncollected_bytes", "nodes", "retained_bytes", "requested_bytes", "allocated_bytes")
"""What is read at the head of the sampled loop, once a step (``verdict.Run`` says what each is)."""
RUN_SECONDS = 8.0
"""A run that has taken this much CPU time ends at the next sample."""


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
    """The object that the instrumented code calls; corrects the flagged value in the corrected variant.

    correction  of this variant, None in the original
    flaw        what corrects the finding
    force       go past an ``if`` that leads away from the flagged line
    turned      rows of the ``if`` statements whose guessed answer is to be the other one
    claimed     the linter says that the flagged call is a forward
    at_end      called when the last sample is taken
    """

    def __init__(
        self,
        stage: Stage,
        meter: Meter,
        correction: Correction | None = None,
        flaw: Correction | None = None,
        *,
        force: bool = False,
        turned: frozenset[int] = frozenset(),
        claimed: bool = False,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.stage, self._meter = stage, meter
        self.correction, self._force, self._turned = correction, force, turned
        self.claimed, self.at_end = claimed, at_end
        self.looks = flaw is not Correction.NO_CHECKPOINT
        self.own_fix, self.once = flaw is Correction.OWN_FIX, flaw is Correction.LOAD
        self.waits = False
        # what was read at the head of the sampled loop, once a step
        self.samples: dict[str, list[int]] = {name: [] for name in SERIES}
        self.graph_forwards: list[int] = []
        self.fragmented = 0
        self._waited = 0
        self._look: Callable[[], object] | None = None
        self.places: set[str] = set()
        self.sampled: Sampled | None = None
        self._deadline = time.process_time() + RUN_SECONDS
        # the way through loops and conditions
        self._counting = self.done = False
        self._depth = self.left = 0
        self._whiles: dict[int, int] = {}
        self.guessed: dict[int, bool] = {}
        self.assumed: dict[int, bool] = {}
        self.forced: list[int] = []
        self.blocked: dict[int, Located] = {}
        self.errors: list[Located] = []
        # the flagged value
        self.hits = self.value_bytes = self.went_back = self.ran = self.left_gradients = 0
        self.attached = self.inexact = self.partly = False
        self.escapes: bool | None = None
        self.seen: set[str] = set()
        self.guesses: set[str] = set()
        self.grad_modes: set[bool] = set()
        self.contexts: set[Located] = set()
        self._graphs: list[int] = []
        self._probed: list[weakref.ref[torch.Tensor]] = []
        self.joins, self.checkpoint = Joins(stage), Checkpoint()

    # -- the steps
    def tick(self) -> None:
        """The head of the sampled loop: read everything."""
        place: object = None
        if self._look is not None:
            with contextlib.suppress(Exception):  # not bound yet
                place = self._look()
            self.places.add(kind_of(place))
        else:
            # no place is known: what the probe saw may live on in a comprehension, in a caller's list
            place = [tensor for reference in self._probed if (tensor := reference()) is not None]
        held, samples, meter = walk(place if self.looks else None), self.samples, self._meter
        del place
        samples["nodes"].append(held.nodes)
        samples["retained_bytes"].append(held.retained_bytes)
        live = samples["live_bytes"]
        if len(live) == 2:
            meter.reset_peak()
        samples["allocated_bytes"].append(meter.allocated_bytes())
        uncollected = meter.live_bytes()
        gc.collect()
        live.append(meter.live_bytes())
        if self.waits:  # each sample runs the collector: without it all of this were still there
            self._waited += uncollected - live[-1]
            uncollected = live[-1] + self._waited
        samples["uncollected_bytes"].append(uncollected)
        if meter.rounds:
            samples["requested_bytes"].append(meter.requested_bytes())
            self.fragmented = meter.fragmented_bytes()
        self.graph_forwards.append(self.stage.record.graph_forwards)
        self._stop_in_time()

    def _stop_in_time(self) -> None:
        if time.process_time() > self._deadline:
            self.blocked[0] = Located(0, f"it ran for {RUN_SECONDS:.0f} seconds, as far as line {row_of_the_code()}")
            raise EndOfRun

    def look(self, place: Callable[[], object] | None) -> None:
        """Records where the flagged value is kept; None once that is no part of the run any more."""
        self._look = place

    def loop(self, role: str, items: Any) -> Iterator[Any]:
        """Stands around a loop's iterable: the sampled one runs as many times as it has steps whatever it holds, those around it
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
        wanted = {"sample": self.stage.steps, "around": 1, "within": 3}[role]
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
                yield count - 1 if self._counting else data(self.stage)
        if role == "sample":
            self._sampled()

    def _sampled(self) -> None:
        """The last sample is taken; what comes after the loop runs on, to see what the function gives out."""
        self.tick()
        self.at_end()
        self.done = True
        self.sampled = Sampled(
            self._meter.peak_bytes(),
            len(self.errors),
            len(self.stage.record.fallbacks),
            self.stage.record.backwards,
            self.stage.record.graph_forwards,
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
            row = row_of_the_code()
            self.blocked.setdefault(row, Located.raised(row, error, 200))
        for _ in range(2 if not count else 0):
            yield data(self.stage)

    async def aloop(self, role: str, items: Any) -> Any:
        """The same for ``async for``; the iterable is not asked, stand-ins are."""
        for item in self.loop(role, lambda: StandIn(self.stage, "async items")):
            yield item

    def while_(self, role: str, row: int, test: Any) -> bool:
        """Stands in a while's condition."""
        count = self._whiles[row] = self._whiles.get(row, 0) + 1
        if self.done and (count > OTHER_STEPS or time.process_time() > self._deadline):
            return False
        if role == "sample" and not self.done:
            if count > self.stage.steps:
                self._sampled()
                return False
            self.tick()
            return True
        if role in {"around", "within"}:
            self._whiles[row] = count % 2
            return count % 2 == 1
        if count > 20 * self.stage.steps:
            return False
        try:
            return bool(test())
        except Exception:
            return False

    def asked(self, value: Any) -> Any:
        """What an ``if`` asks of, whether it is None."""
        if isinstance(value, StandIn):
            self.stage.record.asked += 1
        return value

    def branch(self, wanted: bool | None, varies: bool, option: bool, row: int, test: Any) -> bool:
        """Stands in an if's condition: ``wanted`` is the side that the flagged line is on; ``varies``: it may be either in some step;
        ``option``: its answer is what the default of an option says."""
        truth, known = answer(self.stage, test)
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
            self.errors.append(Located(row_of_the_code(), f"with {text}: {type(error).__name__}"[:200]))
            return StandIn(self.stage, text)
        if isinstance(value, StandInTensor):  # `with amp.scale_loss(loss, optimizer) as scaled:`
            return _opened(self.stage, text, value)
        if isinstance(value, type) or not (hasattr(type(value), "__enter__") or hasattr(type(value), "__aenter__")):
            return StandIn(self.stage, text)
        return value

    # -- the flagged value
    def value(self, value: Any) -> Any:
        """The probe."""
        if isinstance(value, StandIn) and value.tml_called is not None:
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
        self.stage.record.trusted = self.claimed  # the linter says that this very call is a forward
        try:
            with torch.no_grad() if self.correction in _NO_GRAD else contextlib.nullcontext():
                value = call()
                if isinstance(value, StandIn) and value.tml_called is not None:
                    value = value.tml_tensor()
        finally:
            self.stage.record.trusted = False
        if exact or kind_of(value) == "tensor":  # of several calls, those that make no tensor are not the forward
            self._saw(value)
        return value

    def _came(self, kind: str) -> None:
        self.hits += 1
        self.seen.add(kind)

    def switch(self, value: Any) -> Any:
        """The probe on a keyword that the correction turns off."""
        self._came("tensor")
        return False if self.correction is Correction.SWITCH else value

    def mapped(self, host: bool, place: Any) -> Any:
        """The probe on the place that a checkpoint is loaded to: unless it names the host, the device that it was saved from."""
        self._came("tensor")
        self._meter.reset_peak()
        self.value_bytes = 0 if host else FILE_BYTES
        self.stage.record.on_forward = self._ran
        self.ran = 0
        return "cpu" if host or self.correction is Correction.LOAD else ON_DEVICE

    def _ran(self) -> None:
        """A module runs after the load: from here on the peak is that of its work, and some of it is enough."""
        if self.ran == 0:
            self._meter.reset_peak()
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
        before = self._meter.live_bytes()
        result = self.checkpoint.call(function, args, kwargs, self.correction)
        self.value_bytes = max(self.value_bytes, self._meter.live_bytes() - before)
        self.note(result)
        return result

    def zeroed(self, receiver: Any, call: Callable[[], Any]) -> Any:
        """Stands for a flagged ``zero_grad``, or for what fills one gradient with zeros."""
        self._came("tensor")
        result, left = let_go(self.stage, receiver, call, self.correction is Correction.FREE)
        self.left_gradients = max(self.left_gradients, left)
        return result

    def note(self, value: Any) -> str:
        """Take down what sort of value came, in which grad mode; saved tensors are not looked at: a checkpoint would make them."""
        kind = kind_of(value)
        self._came(kind)
        self.grad_modes.add(torch.is_grad_enabled())
        self.contexts.update(self.stage.record.open_contexts)
        if guess := guess_of(value):
            self.guesses.add(guess)
        for tensor in tensors_in(value) if kind == "tensor" else ():
            self.attached = self.attached or tensor.requires_grad
            if tensor.grad_fn is not None:
                tensor.register_hook(self._passed)  # type: ignore[no-untyped-call, unused-ignore]
        return kind

    def _saw(self, value: Any) -> None:
        if self.note(value) != "tensor" or self.hits > 50 * self.stage.steps:
            return
        size = 0
        for tensor in tensors_in(value):
            self._probed.append(weakref.ref(tensor))
            with contextlib.suppress(RuntimeError, NotImplementedError):  # sparse and nested ones have no storage
                size += tensor.untyped_storage().nbytes()
        self.value_bytes = max(self.value_bytes, size)
        if self.hits <= self.stage.steps:
            self._weigh(value)

    def root(self, value: Any) -> Any:
        """What a flagged backward starts from; a module that the call is looked up in passes."""
        if isinstance(value, torch.Tensor) and value.grad_fn is not None:
            self.attached = True
            if len(self._graphs) < self.stage.steps:
                self._weigh(value)
        return value

    def _weigh(self, value: Any) -> None:
        graph = walk(value, owned=self.stage.record.owned)
        self.partly = self.partly or graph.freed_slots > 0
        if graph.retained_bytes and not graph.freed_slots:
            self._graphs.append(graph.retained_bytes)

    @property
    def probe_bytes(self) -> int:
        """What the graph of one flagged value saves for a backward, of one that takes up those before, what a step adds; 0 where a
        backward had been through it."""
        added = [later - earlier for earlier, later in itertools.pairwise(self._graphs)]
        grows = len(added) > 2 and min(added) > 0
        sizes = sorted(added if grows else self._graphs)
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
            return [*value[:count], *(data(self.stage) for _ in range(count - len(value)))]
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
        return StandIn(self.stage, name, origin="given" if self.claimed else "unseen")


@contextlib.contextmanager
def _opened(stage: Stage, text: str, value: Any) -> Iterator[Any]:
    """A manager that nobody sees, and that gives ``value``."""
    stage.record.open_contexts.append(Located(row_of_the_code(), text))
    try:
        yield value
    finally:
        stage.record.open_contexts.pop()
