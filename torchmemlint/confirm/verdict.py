"""What the figures of two runs prove about a finding."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from torchmemlint.rules import rule_of
from torchmemlint.rules.card import About, Correction, Shown

if TYPE_CHECKING:
    from torchmemlint.rules.card import Rule

MIN_STEPS = 5
"""Fewer samples than this at the loop head prove nothing."""

FLAT_SHARE = 0.05
"""The fixed twin is flat when it grows by at most this share of what the broken one grows by."""


OF_GRAPHS = frozenset({About.GRAPH_KEPT, About.NEEDLESS_GRAPH})
"""What is claimed of these is about autograd graphs: tensors that pile up without one prove nothing for them."""


UNUSED = "a graph at each call, that no backward uses"
"""Nothing grows and the peak lies elsewhere, but the graph is built for nothing."""


COPY = "a second copy of the weights at peak"
"""A checkpoint beside the model that it is for; the device that it was saved from is pretended on a CPU."""


COPY_WHILE_LOADING = "a second copy of the weights until they are dropped"
"""The same where no module runs in the function that loads."""


OWN_RUN = "run(steps)"
"""The mode of an experiment on a function that performs the mistake itself: its backwards are not counted."""


EACH = "a graph of each part at peak"
"""Of losses that are summed before one backward: with a backward of its own each frees its graph."""


OF_FOOTPRINT = frozenset({Correction.ROOM, Correction.NO_CHECKPOINT, Correction.FREE, Correction.NO_CACHE})
"""Corrections of mistakes that neither a graph nor growth alone shows."""


COPIED, GRADIENTS = "all of it copied at every step", "a set of gradients at peak"
UNTRAINED, UNSAVED = "nothing inside is trained", "as much at the peak as without a checkpoint"
REFUSED, CACHED, FULL = "raises TypeError", "tensors kept by a cache", "tensors kept by a cache, until it is full"


class Outcome(Enum):
    """What an experiment says about a finding."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"


class Answer(Enum):
    """Whether a fix changes what the program does."""

    SAME = "same"
    DIFFERED = "differed"
    NOT_RUN = "could not be run"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The original and the corrected function on the same stand-ins: the answer, why, and how many phases were run."""

    answer: Answer
    why: str = ""
    phases: int = 0


@dataclass(frozen=True, slots=True, order=True)
class Located:
    """An exception or a name, and the line of the flagged file that it is about; 0: the line is unknown."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"{on_line(self.line)}{self.text}"

    @classmethod
    def raised(cls, line: int, error: Exception, longest: int = 300) -> Located:
        """An exception of the code, with so many characters at most."""
        return cls(line, f"{type(error).__name__}: {error}"[:longest])

    def packed(self) -> list[object]:
        """As JSON has it."""
        return [self.line, self.text]


@dataclass(frozen=True, slots=True)
class Run:
    """One variant's figures, a sample per step at the head of the loop.

    live_bytes         after the cyclic collector ran
    uncollected_bytes  before it ran
    nodes              autograd nodes that are attached to the flagged place
    retained_bytes     bytes that those nodes save for a backward
    requested_bytes    on CUDA: live bytes before the allocator rounds them up
    fragmented_bytes   on CUDA, at the last sample: reserved by the allocator and in no tensor; part of no verdict
    peak_bytes         highest live figure from step 2 on
    graph_bytes        what one step's graph saves, 0 when no graph was built
    fallbacks          operations that could not be done on stand-ins and were replaced
    seen               what the probe saw: "tensor", "number", "other", "stand-in" or "" (the line never ran)
    place              what holds the value: "real", "stand-in", "local" (of a call without a loop), "context" (of an
                       ``autograd.Function``) or "" (not known)
    errors             the first exceptions of the code that ran, with its type
    attached           a probed tensor was attached to a graph
    backwards          how many backward calls ran
    graphs_built       how many stand-in forwards built a graph
    grad_modes         the grad modes in force at the probe
    guesses            callees that are not visible that the probed value rests on
    decorators, contexts   stand-ins that decorate the function, or were entered around the probe: either may switch grad mode
    forced             rows of ``if`` statements whose known answer was overruled to reach the line
    later_backwards    backward calls after the sampled loop
    empty_backwards    backward calls on a value without a graph: outside they are an error
    swallowed          callees that are not visible that were handed a graph and may have run a backward on it
    probe_bytes        bytes that the graph of one flagged value saves for a backward
    value_bytes        bytes of the storages of one flagged value; of a checkpoint, what the call leaves allocated
    ran                how often modules were called after a flagged load
    went_back          how often a backward came through a flagged value
    assumed            rows of ``if`` statements whose answer may be another one in another step or call: the flagged line's side was taken
    turned             rows of ``if`` statements whose guessed answer was turned, to come to the phase without a backward
    escapes            something with a graph leaves the flagged function (None: it did not come to its end)
    blocked            what led past the flagged line or ended the run, in words
    hung               an operation of the code gave a value with a graph
    may_retain         a backward has a ``retain_graph`` that nobody knows
    partly_freed       a backward had been through a part of the flagged value's graph
    allocated_bytes    all that was allocated up to each sample, freed or not
    joined_bytes       bytes of what the flagged call gave, each time that it joined what it had given before
    left_gradients     bytes of gradients that the flagged line left allocated
    raised             how the flagged call refused its arguments
    ungraphed          the flagged call gave a value without a graph, in grad mode
    hidden_inputs      whether inputs of the flagged call ask for a gradient is not known
    backward_row       the row of the last backward, 0 for none
    guess_row          the row that calls the first of ``guesses``
    needed_at          rows of ``if`` statements whose answer, an option's default or a guess, keeps a backward from the flagged value
    keys               what the flagged cache was called with: "module", "tensor", or "" for nothing that is known
    """

    live_bytes: tuple[int, ...] = ()
    uncollected_bytes: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    retained_bytes: tuple[int, ...] = ()
    requested_bytes: tuple[int, ...] = ()
    fragmented_bytes: int = 0
    peak_bytes: int = 0
    graph_bytes: int = 0
    fallbacks: int = 0
    seen: str = ""
    place: str = ""
    errors: tuple[Located, ...] = ()
    device: str = "cpu"
    seconds: float = 0.0
    mode: str = ""
    attached: bool = False
    backwards: int = 0
    graphs_built: int = 0
    grad_modes: tuple[bool, ...] = ()
    guesses: tuple[str, ...] = ()
    decorators: tuple[Located, ...] = ()
    contexts: tuple[Located, ...] = ()
    forced: tuple[int, ...] = ()
    later_backwards: int = 0
    empty_backwards: int = 0
    swallowed: tuple[Located, ...] = ()
    probe_bytes: int = 0
    value_bytes: int = 0
    ran: int = 0
    went_back: int = 0
    turned: tuple[int, ...] = ()
    assumed: tuple[int, ...] = ()
    escapes: bool | None = None
    blocked: tuple[Located, ...] = ()
    partly_freed: bool = False
    allocated_bytes: tuple[int, ...] = ()
    joined_bytes: tuple[int, ...] = ()
    left_gradients: int = 0
    raised: str = ""
    ungraphed: bool = False
    hidden_inputs: bool = False
    keys: str = ""
    backward_row: int = 0
    guess_row: int = 0
    needed_at: tuple[int, ...] = ()
    hung: bool = False
    may_retain: bool = False

    @property
    def live_bytes_per_step(self) -> int:
        """Bytes by which the live figure grows each step, collector run."""
        return slope(self.live_bytes)

    @property
    def uncollected_per_step(self) -> int:
        """The same without the collector: what a reference cycle keeps until it runs."""
        return slope(self.uncollected_bytes)

    @property
    def nodes_per_step(self) -> int:
        """Autograd nodes by which the flagged place grows each step."""
        return slope(self.nodes)

    @property
    def graphs_per_step(self) -> float:
        """Growth in graphs of one step; 0.0 when no graph was seen."""
        return round(self.live_bytes_per_step / self.graph_bytes, 4) if self.graph_bytes else 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is proved about one finding, in figures.

    kind     the sort of growth that was measured, "" when none
    reason   for "inconclusive": which name, line or exception; for "refuted": what was seen instead
    helped   whether the corrected twin is flat, and the fix takes nothing away (None: not known)
    fix      whether the finding's fix changes what the program does (None: it has none)
    """

    outcome: Outcome
    kind: str = ""
    reason: str = ""
    device: str = ""
    before: Run | None = None
    after: Run | None = None
    helped: bool | None = None
    notes: tuple[str, ...] = field(default=())
    fix: Comparison | None = None


@dataclass(frozen=True, slots=True)
class Doubts:
    """What the file and the project say about the function that ran, and the run itself cannot.

    grad      the grad mode that its callers start it in: "on", "off", "unknown", or "default" where no visible caller
              changes it
    consumed  the line where something may run a backward later on what the flagged place keeps, 0 for none
    claimed   the linter itself reports the line (it is not only asked about)
    frozen    which line may freeze all that the flagged forward trains, in words, "" for none
    bounded   why what the flagged line lets grow may not grow on, "" where no visible code says so
    """

    grad: str = "unknown"
    consumed: int = 0
    frozen: str = ""
    claimed: bool = True
    bounded: str = ""


def slope(samples: Sequence[int]) -> int:
    """Growth per step, as the middle of the differences from the third sample on (gradients, optimizer state and caches
    exist by then)."""
    steady = samples[2:] if len(samples) > 3 else samples
    differences = [later - earlier for earlier, later in pairwise(steady)]
    return int(median(differences)) if differences else 0


def inconclusive(reason: str, before: Run | None = None, after: Run | None = None, device: str = "") -> Verdict:
    """An abstention and its reason."""
    return Verdict(Outcome.INCONCLUSIVE, "", reason, device or (before.device if before else ""), before, after)


def _without_control(why: str, before: Run, after: Run | None) -> Verdict:
    return inconclusive(f"no control: {why or 'there is no fixed version to compare with'}", before, after)


def decide(code: str, before: Run, after: Run | None) -> Verdict:
    """What the two runs prove.

    A positive verdict needs growth in the broken code that the corrected twin does not have (the control). A negative one
    needs that the
    value was seen, that no operation was replaced, that nothing grows and that the peak is the twin's.
    """
    rule = rule_of(code)
    if rule.correction is Correction.LOAD and before.mode != OWN_RUN:
        return decide_load(before, after)
    if rule.correction in OF_FOOTPRINT and before.mode != OWN_RUN:
        return decide_footprint(rule.correction, before, after)
    if _needed(rule, before, after):
        assert after is not None
        return Verdict(
            Outcome.REFUTED, "", "a backward() needs this graph, and fails without it", before.device, before, after
        )  # fmt: skip
    if _again(before) and Shown.SECOND_STEP in rule.shown:
        return Verdict(
            Outcome.CONFIRMED, "crash at the second step", "", before.device, before, after, after is None or not after.errors
        )
    if len(before.live_bytes) < MIN_STEPS:
        return inconclusive(_why_not_run(before), before, after)
    if after is None or len(after.live_bytes) < MIN_STEPS:
        return _without_control(_why_not_run(after) if after else "", before, after)
    if _again(after) and not _again(before):
        return Verdict(
            Outcome.REFUTED, "", "another backward() goes through this graph, and fails without it", before.device, before, after
        )  # fmt: skip
    if before.went_back and after.backwards < before.backwards and Shown.NO_BACKWARD in rule.shown:
        return inconclusive(
            f"{on_line(before.backward_row)}a backward() goes through this graph, and does not run without it", before, after
        )
    if after.empty_backwards > before.empty_backwards:
        return inconclusive(
            f"{on_line(before.backward_row)}a backward() may need the graph that the fix removes", before, after
        )
    kind = growth_kind(rule, before, after)
    if kind and before.seen not in {"tensor", "number"}:
        return inconclusive(_stopped("something grows, but the flagged line never ran on a tensor", before), before, after)
    if kind:
        helped = _flat(kind, before, after)
        if not helped:
            return Verdict(
                Outcome.INCONCLUSIVE, kind, "the fixed version grows, too: the fix does not help, or this is not the cause",
                before.device, before, after, False,
            )  # fmt: skip
        return Verdict(Outcome.CONFIRMED, kind, "", before.device, before, after, True)
    if rule.about is About.NEEDLESS_GRAPH and before.seen == "tensor" and before.grad_modes == (False,) and not before.forced:
        return Verdict(
            Outcome.REFUTED, "", "grad mode is off where it runs: no graph is built", before.device, before, after
        )  # fmt: skip
    if before.attached and before.nodes_per_step > 0:
        return inconclusive("it grows, and fixing only this line does not stop it", before, after)
    if before.seen == "" or before.seen == "stand-in":
        words = "the flagged line never ran" if not before.seen else "the flagged value is a stand-in"
        return inconclusive(_stopped(words, before), before, after)
    if before.place == "local":
        return inconclusive("it is kept in a local variable, once per call: its lifetime is unknown", before, after)
    if before.place == "context":
        return inconclusive("there is no cycle; the context keeps its other tensors as long as the loss", before, after)
    if before.place == "stand-in":
        return inconclusive("the object that keeps the value is not in this file", before, after)
    if _differ(before, after):
        return inconclusive("it does not grow, but uses more memory than the fixed version", before, after)
    if before.fallbacks or before.errors:
        why = str(before.errors[0]) if before.errors else f"{before.fallbacks} operations had to be replaced"
        return inconclusive(f"nothing grew, but not everything ran: {why}", before, after)
    return Verdict(
        Outcome.REFUTED,
        "",
        f"ran {len(before.live_bytes)} steps on a {before.seen}: nothing grows, and the peak is that of the fixed version",
        before.device,
        before,
        after,
        None,
    )


def decide_load(before: Run, after: Run | None) -> Verdict:
    """What the two runs prove of a checkpoint that is loaded onto a device: whether its weights are held when the modules run."""
    if before.seen != "tensor":
        return inconclusive(_stopped("the flagged line never ran", before), before, after)
    if after is None or after.seen != "tensor":
        return _without_control(_stopped("the flagged line never ran", after) if after else "", before, after)
    more = before.peak_bytes - after.peak_bytes
    if before.value_bytes and more >= 0.9 * before.value_bytes and before.ran == after.ran:
        kind = COPY if before.ran else COPY_WHILE_LOADING
        return Verdict(Outcome.CONFIRMED, kind, "", before.device, before, after, True)
    if not before.value_bytes:
        return inconclusive("`map_location` names the host", before, after)
    if before.ran:
        return inconclusive("the loaded weights are freed before the model runs", before, after)
    return inconclusive(_stopped("the loaded weights do not raise the peak of this function", before), before, after)


def decide_footprint(correction: Correction, before: Run, after: Run | None) -> Verdict:
    """What the two runs prove of copied bytes, of a peak, of a checkpoint or a cache."""
    if before.raised:
        return Verdict(Outcome.CONFIRMED, REFUSED, "", before.device, before, None, notes=(before.raised,))
    if before.seen != "tensor":
        return inconclusive(_stopped("the flagged line never ran on a tensor", before), before, after)
    if len(before.live_bytes) < MIN_STEPS:
        return inconclusive(_why_not_run(before), before, after)
    if after is None or len(after.live_bytes) < MIN_STEPS:
        return _without_control(_why_not_run(after) if after else "", before, after)
    kind, reason = _FOOTPRINTS[correction](before, after)
    if kind:
        return Verdict(Outcome.CONFIRMED, kind, "", before.device, before, after, True)
    if not reason and (before.fallbacks or before.errors):
        reason = _stopped("no difference was found, but not everything ran", before)
    if reason:
        return inconclusive(reason, before, after)
    words = f"ran {len(before.live_bytes)} steps: {_REFUTED[correction]}"
    return Verdict(Outcome.REFUTED, "", words, before.device, before, after)


def _copied(before: Run, after: Run) -> tuple[str, str]:
    """Whether each step allocates more than the one before, by what the joined tensor grows."""
    joined = slope(before.joined_bytes)
    more, rest = (slope([later - earlier for earlier, later in pairwise(run.allocated_bytes)]) for run in (before, after))
    if not any(before.allocated_bytes):
        return "", "this device does not report how much was allocated"
    if joined > 0 and len(before.joined_bytes) >= MIN_STEPS - 1 and more - rest >= 0.9 * joined:  # other lines may copy, too
        return COPIED, ""
    if more > 0:
        return "", "each step allocates more, and fixing only this line does not stop it"
    if before.joined_bytes:
        return "", "it joins its previous result, and no step allocates more than the previous one"
    return "", ""


def _gradients(before: Run, after: Run) -> tuple[str, str]:
    if not before.backwards + before.later_backwards:
        return "", _stopped("no backward ran, so there are no gradients", before)
    more = before.peak_bytes - after.peak_bytes
    if before.left_gradients and more >= max(SAME_BYTES, before.peak_bytes // 20) and not before.errors:
        return GRADIENTS, ""
    if before.left_gradients or _differ(before, after):
        return "", _stopped("the gradients stay allocated, but the peak is elsewhere", before)
    return "", ""


def _checkpointed(before: Run, after: Run) -> tuple[str, str]:
    if before.grad_modes != (True,):
        return "", "grad mode is off where it runs"
    if before.hidden_inputs:
        return "", "it is unknown whether an input requires grad"
    if before.ungraphed:
        if after.attached and not before.attached:
            return UNTRAINED, ""
        return "", "nothing that ran inside has parameters to train"
    if not (before.went_back and after.went_back):
        return "", _stopped("no backward goes through it", before)
    if before.errors or before.fallbacks:
        return "", _stopped("not everything ran", before)
    if after.value_bytes * 4 < after.peak_bytes:
        return "", "the tensors saved inside are a small part of the peak: the effect of the checkpoint cannot be measured"
    if before.peak_bytes >= 0.97 * after.peak_bytes:
        return UNSAVED, ""
    # Where gradients are freed between forward and backward, they are beside the activations in one of the two runs alone.
    if before.peak_bytes > 0.75 * after.peak_bytes:
        return "", "the peak is a little lower than without a checkpoint"
    return "", ""


def _cached(before: Run, after: Run) -> tuple[str, str]:
    if not before.keys:
        return "", "no argument of the function is known to be a tensor or a module"
    if before.errors:
        return "", _stopped("not everything ran", before)
    grew = before.live_bytes_per_step - after.live_bytes_per_step
    heads = [mine - theirs for mine, theirs in zip(before.live_bytes[2:], after.live_bytes[2:], strict=False)]
    if grew > 0 and after.live_bytes_per_step <= FLAT_SHARE * before.live_bytes_per_step:
        return CACHED, ""
    if grew <= 0 < median(heads) and median(heads) >= before.value_bytes > 0:
        return FULL, ""
    return "", "it uses more memory than without the cache" if _differ(before, after) else ""


_FOOTPRINTS = {
    Correction.ROOM: _copied,
    Correction.FREE: _gradients,
    Correction.NO_CHECKPOINT: _checkpointed,
    Correction.NO_CACHE: _cached,
}
_REFUTED = {
    Correction.ROOM: "its result is not joined again, and no step allocates more than the previous one",
    Correction.FREE: "it leaves no gradients, and the peak is the same as with freed gradients",
    Correction.NO_CHECKPOINT: "it is trained, and the peak is lower than without a checkpoint",
    Correction.NO_CACHE: "nothing more is kept than without the cache",
}


def _again(run: Run) -> bool:
    return any("backward through the graph a second time" in error.text for error in run.errors)


SAME_BYTES = 4096
"""By this much two runs of the same memory may differ: results that are a number in one, a small tensor in the other."""


def _differ(before: Run, after: Run) -> bool:
    """Whether the code has more in memory than the corrected code, at its peak or at the head of the loop."""
    allowed = max(SAME_BYTES, before.peak_bytes // 200)
    heads = [mine - theirs for mine, theirs in zip(before.live_bytes[2:], after.live_bytes[2:], strict=False)]
    return before.peak_bytes - after.peak_bytes > allowed or (bool(heads) and median(heads) > allowed)


def _needed(rule: Rule, before: Run, after: Run | None) -> bool:
    """Whether a backward runs on the flagged value itself: then its graph is there for a purpose."""
    if after is None or Shown.NO_BACKWARD not in rule.shown:
        return False
    if before.guesses or before.forced or before.seen != "tensor" or before.fallbacks:
        return False
    return after.empty_backwards > 0 == before.empty_backwards and before.backwards + before.later_backwards > 0


def decide_isolated(
    code: str,
    before: Run,
    control: Run | None,
    fixed: Run | None,
    doubts: Doubts,
    inert: tuple[Run | None, Run | None] = (None, None),
) -> Verdict:
    """The verdict on code that was cut out and ran on stand-ins: what ``decide`` says, unless something that was not
    seen could turn it.

    ``control`` is the run whose flagged value the harness corrected, ``fixed`` that of the code with the finding's own fix;
    ``inert`` the first two once more, with the callees that are not visible that the value rests on giving nothing but data.
    """
    twin = control or fixed
    rule = rule_of(code)
    verdict = decide(code, before, twin)
    if verdict.outcome is Outcome.CONFIRMED:
        reason = ""
        if before.guesses:
            verdict, reason = _without_guesses(code, verdict, before, inert)
            before, twin = verdict.before or before, verdict.after or twin
        reason = reason or _doubt_of_growth(rule, verdict.kind, before, doubts)
        if reason:
            return inconclusive(reason, before, twin)
        if control and fixed and (rule.correction is Correction.LOAD or len(fixed.live_bytes) >= MIN_STEPS):
            helped = _helps(rule, verdict.kind, before, fixed)
            notes = () if helped else ("the printed fix does not stop the growth",)
            verdict = replace(verdict, after=fixed, helped=helped, notes=(*verdict.notes, *notes))
        verdict = replace(verdict, notes=(*verdict.notes, *_conditions(verdict, before, doubts)))
    elif verdict.outcome is Outcome.REFUTED and not (_needed(rule, before, twin) or (twin and _again(twin))):
        reason = _doubt_of_nothing(rule, before)
        if reason:
            return inconclusive(reason, before, twin)
    return verdict


def _conditions(verdict: Verdict, before: Run, doubts: Doubts) -> Iterator[str]:
    """What a proof of growth takes for granted."""

    def lines(rows: tuple[int, ...]) -> str:
        return ", ".join(f"line {row}" for row in rows)

    if before.assumed:
        yield f"where the `if` on {lines(before.assumed)} leads to this line"
    if before.turned:
        yield f"in the phase that the `if` on {lines(before.turned)} separates from training"
    if before.needed_at:
        yield f"with the default options: if the `if` on {lines(before.needed_at)} goes the other way, a backward uses the graph"
    if doubts.grad == "default" and not before.backwards and "kept" not in verdict.kind:
        yield "assumes that no caller outside the project disables grad mode"


def with_comparison(verdict: Verdict, fix: Comparison | None) -> Verdict:
    """The verdict and what the fix does: one that changes the program helps nobody, whatever it does to the memory."""
    if fix is None:
        return verdict
    if fix.answer is Answer.DIFFERED:
        note = f"the printed fix changes the program: {fix.why}"
        return replace(verdict, helped=False, fix=fix, notes=(*verdict.notes, note))
    return replace(verdict, fix=fix)


def _without_guesses(code: str, verdict: Verdict, before: Run, inert: tuple[Run | None, Run | None]) -> tuple[Verdict, str]:
    """The verdict that does not rest on callees that are not visible, or why there is none.

    It stands where the growth stays when they give nothing but data; and where a backward of the code itself would fail if the
    one such callee gave nothing but data: then it does give a value with a graph.
    """
    first, second = inert
    if first is not None and second is not None:
        again = decide(code, first, second)
        if again.outcome is Outcome.CONFIRMED:
            return again, ""
        if len(before.guesses) == 1 and first.empty_backwards > 0 == before.empty_backwards:
            return replace(verdict, notes=(f"`backward()` shows that `{before.guesses[0]}` returns a value with a graph",)), ""
    return verdict, f"{on_line(before.guess_row)}the value comes from `{before.guesses[0]}`, which is not in this file"


def _doubt_of_growth(rule: Rule, kind: str, before: Run, doubts: Doubts) -> str:
    if before.forced:
        return f"it grows only where the `if` on line {before.forced[0]} holds, which it did not"
    if rule.correction in OF_FOOTPRINT:
        return doubts.bounded
    if kind in {COPY, COPY_WHILE_LOADING}:
        return ""
    if kind == EACH:  # a later backward takes what is kept: that is the claim
        return ""
    if "graph per step" in kind and (doubts.consumed or (before.later_backwards and Shown.ONLY_CONSTANT not in rule.shown)):
        # (a target network is not trained: whatever a later backward runs through, this graph is for nothing)
        return f"{on_line(doubts.consumed or before.backward_row)}a later backward may use the kept value: it is retained until then"
    if before.may_retain and "per step" in kind and rule.about is About.GRAPH_KEPT:
        return f"{on_line(before.backward_row)}it is unknown whether this backward keeps its graph: a later one may use the kept value"
    if "device" in kind or "storage" in kind or kind == "tensors kept" or before.place == "context":
        return ""
    if kind == UNUSED and before.escapes is not False and not doubts.claimed:
        return "its callers may need the graph of its result"
    if doubts.frozen and Shown.ONLY_CONSTANT in rule.shown:
        return f"{doubts.frozen}, and whether this forward trains others is unknown"
    if before.backwards and rule.about is About.NEEDLESS_GRAPH and not doubts.claimed:
        return "the linter does not report this line, and its result may be part of another step's backward"
    if before.backwards:  # a training step: grad mode is on, parameters are trained
        return ""
    if before.swallowed:
        callee = before.swallowed[0]
        return f"{on_line(callee.line)}`{callee.text}` is not in this file, gets the graph, and may run a backward"
    if before.decorators:
        decorator = before.decorators[0]
        return f"{on_line(decorator.line)}the decorator `{decorator.text}` is not in this file, and may disable grad mode"
    if before.contexts:
        context = before.contexts[0]
        return f"{on_line(context.line)}`with {context.text}` is not in this file, and may disable grad mode"
    if doubts.frozen:
        return f"{doubts.frozen}, and whether this forward trains others is unknown"
    if not doubts.claimed and before.escapes is not False:
        return "the linter does not report this line, and its callers may need the graph of its result"
    if doubts.grad not in {"on", "default"}:
        return "the callers of the function decide grad mode, and not all of them are visible"
    return ""


def _doubt_of_nothing(rule: Rule, before: Run) -> str:
    if before.guesses:
        return f"{on_line(before.guess_row)}the value comes from `{before.guesses[0]}`, which is not in this file"
    if before.forced:
        return f"the line was only reached by overriding the `if` on line {before.forced[0]}"
    if rule.correction in OF_FOOTPRINT:
        return ""
    if before.attached:
        return "a graph was built and dropped: it does not grow, and the peak of this step is elsewhere"
    if not (before.graphs_built or before.hung) and True in before.grad_modes:
        return "nothing that ran built a graph"
    return ""


def growth_kind(rule: Rule, before: Run, after: Run) -> str:
    """The words for what grows (or what is higher at the peak) in ``before`` against ``after``; "" for nothing."""
    grew = before.live_bytes_per_step - after.live_bytes_per_step
    graph = before.graph_bytes
    nodes = before.nodes_per_step - after.nodes_per_step
    # the same value may be kept by other lines too: then the bytes stay, and what depends on this place distinguishes the two
    held = min(before.live_bytes_per_step, slope(before.retained_bytes) - slope(after.retained_bytes))
    grew = max(grew, held)
    more = before.peak_bytes - after.peak_bytes
    if rule.correction is Correction.BACKWARD:
        trained = before.backwards + before.later_backwards > 0 or before.mode == OWN_RUN
        return EACH if graph and max(grew, more) >= graph // 2 and trained else ""
    if rule.correction is Correction.CLONE and after.live_bytes_per_step > 0 and grew > 0:
        return f"{before.live_bytes_per_step / after.live_bytes_per_step:.0f} × storage kept"
    if rule.correction is Correction.HOST and grew > 0:
        return "tensors kept on the device"
    if rule.about is About.NEEDLESS_GRAPH and before.probe_bytes:
        graph = min(graph, before.probe_bytes)  # of the flagged forward; a step may have others
    if graph and grew >= 0.9 * graph:
        return "whole graph per step"
    if graph and grew >= 0.1 * graph and before.retained_bytes and slope(before.retained_bytes) > 0:
        return "part of the graph per step"
    if not graph and grew > 0 and before.partly_freed and slope(before.retained_bytes) > 0:
        return "part of the graph per step"
    if nodes > 0:
        return "nodes per step"
    uncollected = before.uncollected_per_step - after.uncollected_per_step - max(0, grew)
    if grew > 0 and rule.about not in OF_GRAPHS:
        return "tensors kept"
    if uncollected > 0:
        return "until the cyclic collector runs"
    higher = more >= max(1, before.peak_bytes // 20) or (graph > 0 and more >= graph // 2)
    if rule.correction is Correction.LOAD:  # of a fixture, that loads a file of its own
        return COPY if higher else ""
    if rule.about in OF_GRAPHS and higher and before.attached and (graph or rule.correction is Correction.OWN_FIX):
        return "extra graph at peak"
    if rule.about is About.NEEDLESS_GRAPH and before.probe_bytes and not (before.went_back or after.probe_bytes):
        return UNUSED
    if rule.correction is Correction.OWN_FIX and before.attached and not (before.backwards or after.attached):
        return UNUSED
    if rule.about in OF_GRAPHS:
        return ""
    return "higher peak" if higher else ""


def _helps(rule: Rule, kind: str, before: Run, fixed: Run) -> bool:
    if rule.correction is Correction.LOAD:
        return decide_load(before, fixed).outcome is Outcome.CONFIRMED
    return _flat(kind, before, fixed) and bool(growth_kind(rule, before, fixed))


def _flat(kind: str, before: Run, after: Run) -> bool:
    if "storage" in kind or "peak" in kind:
        return True
    if "nodes" in kind:
        return after.nodes_per_step <= FLAT_SHARE * before.nodes_per_step
    if "collector" in kind:
        return after.uncollected_per_step <= FLAT_SHARE * before.uncollected_per_step
    if "graph" in kind:
        # outputs that the program wants to keep stay in the corrected twin: it is the graph that has to be gone
        return after.nodes_per_step <= FLAT_SHARE * before.nodes_per_step
    less = before.live_bytes_per_step - after.live_bytes_per_step
    # other lines may keep tensors, too: what this one keeps has to be gone
    return after.live_bytes_per_step <= FLAT_SHARE * before.live_bytes_per_step or less >= max(1, before.value_bytes)


def _why_not_run(run: Run) -> str:
    return _stopped(f"only {len(run.live_bytes)} of {MIN_STEPS} steps ran", run)


def _stopped(words: str, run: Run) -> str:
    """The words, and what stopped the run: the row and its exception, or the ``if`` that led past."""
    why = next(iter([*run.errors, *run.blocked]), None)
    return f"{words}: {why}" if why else words


def on_line(line: int) -> str:
    """What a sentence about the line begins with; nothing where the line is unknown."""
    return f"line {line}: " if line else ""


def naming_line(verdict: Verdict, row: int) -> Verdict:
    """An abstention that names no line is about the flagged one, in ``row``."""
    if verdict.outcome is not Outcome.INCONCLUSIVE or re.search(r"\bline \d", verdict.reason):
        return verdict
    return replace(verdict, reason=f"line {row}: {verdict.reason}")


def run_json(run: Run | None) -> dict[str, object] | None:
    """A run as the JSON output has it."""
    if run is None:
        return None
    return {
        "live_bytes_per_step": run.live_bytes_per_step,
        "uncollected_bytes_per_step": run.uncollected_per_step,
        "graphs_per_step": run.graphs_per_step,
        "nodes_per_step": run.nodes_per_step,
        "peak_bytes": run.peak_bytes,
        "graph_bytes": run.graph_bytes,
        "live_bytes": list(run.live_bytes),
        "nodes": list(run.nodes),
        "fallbacks": run.fallbacks,
        "seconds": round(run.seconds, 3),
        "mode": run.mode,
    } | _allocator_json(run)


def _allocator_json(run: Run) -> dict[str, object]:
    if not run.requested_bytes:
        return {}
    return {"requested_bytes_per_step": slope(run.requested_bytes), "fragmented_bytes": run.fragmented_bytes}


def verdict_json(verdict: Verdict) -> dict[str, object]:
    """A verdict as the ``confirm`` member of a finding."""
    return {
        "verdict": verdict.outcome.value,
        "kind": verdict.kind or None,
        "reason": verdict.reason or None,
        "device": verdict.device or None,
        "helped": verdict.helped,
        "before": run_json(verdict.before),
        "after": run_json(verdict.after),
        "notes": list(verdict.notes),
        "fix": fix_json(verdict.fix),
    }


def fix_json(fix: Comparison | None) -> dict[str, object] | None:
    """What a comparison says, as the JSON output has it."""
    return None if fix is None else {"answer": fix.answer.value, "why": fix.why or None, "phases": fix.phases}
