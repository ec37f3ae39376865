"""Whether a fix changes what the program does: the original and the corrected function on the same stand-ins, in every phase.

Compared are what the calls return and leave in their receiver and arguments, the graph and the gradients of every ``backward()``, and
exceptions. A *phase* is one answer to the ``if`` statements whose answer is not visible: as guessed first, then each of them
turned. Loops over what the code itself lists (``for phase in ["train", "val"]``) run over all of it, others a few steps.
"""

from __future__ import annotations

import ast
import gc
import math
import re
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from typing import Any

import torch

from torchmemlint.confirm.verdict import Located
from torchmemlint.confirm.worker import cut, isolate, standins
from torchmemlint.confirm.worker.meter import StorageMeter, tensors_in
from torchmemlint.confirm.worker.standins import StandIn
from torchmemlint.str_enum import StrEnum

SECONDS = 10.0
"""No further phase is begun after this much CPU time."""
PHASES = 8
LISTED, STEPS = 6, 3
CALLS = 2
"""So often is a function without a loop around the line called: what it keeps, the second call finds."""
MANY_LEAVES = 500
"""Of more parameters below flagged forwards no others are looked for."""


Gradients = list[tuple[tuple[int, ...], float | None]]
"""Of each leaf that a backward came to, its shape and the sum of a gradient (None: it has none)."""


class Cut(StrEnum):
    """What a fix takes from the backwards of the program on purpose.

    OTHERS   the gradients of parameters that nothing trains there: a teacher's, a generator's in the discriminator's step
    EARLIER  what earlier steps add to the gradients: the state of a recurrent network
    """

    NONE = ""
    OTHERS = "others"
    EARLIER = "earlier"


@dataclass(frozen=True, slots=True)
class Backward:
    """One backward: the kinds of nodes that hung below it, the gradients that it left, and its row; what it added to the gradients of
    the leaves, those below a flagged forward apart."""

    nodes: Counter[str]
    gradients: Gradients
    row: int
    added: Gradients = field(default_factory=list)
    added_to_flagged: Gradients = field(default_factory=list)


@dataclass(slots=True)
class Seen:
    """What one run of the function did."""

    results: list[object] = field(default_factory=list)
    backwards: list[Backward] = field(default_factory=list)
    errors: list[Located] = field(default_factory=list)
    guessed: set[int] = field(default_factory=set)
    reached: int = 0


class Watcher(isolate.Harness):
    """A harness that changes nothing, and takes down what the code does."""

    def __init__(self, order: Mapping[int, int], turned: frozenset[int]) -> None:
        super().__init__(StorageMeter(), None, force=False)
        self._order, self._answers = order, turned
        self.seen_here = Seen()
        self._whiles_here: Counter[int] = Counter()
        self._flagged: list[torch.Tensor] = []

    def forward(self, call: Any, exact: bool = False) -> Any:
        """A flagged forward: takes down the parameters that its result is attached to."""
        value = call() if isinstance(call, types.FunctionType) else call
        roots = [tensor for tensor in tensors_in(value) if tensor.requires_grad] if len(self._flagged) < MANY_LEAVES else []
        _, leaves = below(roots)
        self._flagged += [leaf for leaf in leaves if not any(leaf is item for item in self._flagged)]
        return value

    def tick(self) -> None:
        """Nothing is sampled."""

    def look(self, place: Callable[[], object]) -> None:
        """Nothing is looked at."""

    def reached(self) -> None:
        """The flagged statement comes next."""
        self.seen_here.reached += 1

    def loop(self, role: str, items: Any) -> Iterator[Any]:
        """Few steps of a loop over stand-ins; all that the code lists itself."""
        try:
            value = items() if callable(items) and not isinstance(items, StandIn) else items
            listed = isinstance(value, (list, tuple, dict, set, str))
            yield from islice(value, LISTED if listed else STEPS)
        except (TypeError, ValueError, RuntimeError, AttributeError, StopIteration):
            return

    def while_(self, role: str, row: int, test: Any) -> bool:
        """As ``loop``."""
        self._whiles_here[row] += 1
        if self._whiles_here[row] % (STEPS + 1) == 0:
            return False
        try:
            return bool(test()) or role != "other"
        except Exception:
            return False

    def branch(self, wanted: bool | None, varies: bool, option: bool, row: int, test: Any) -> bool:
        """The answer itself; where nobody knows it the guess, or in another phase the opposite."""
        truth, known = isolate.answer(test)
        if known and not option:
            return truth
        number = self._order.get(row, 0)
        self.seen_here.guessed.add(number)
        return truth != (number in self._answers)

    def gave(self, known: frozenset[int], *results: Any) -> None:
        """Take down what the call returned and left behind."""
        self.seen_here.results.append([fingerprint(result) for result in results])

    def failed(self, row: int, error: Exception) -> None:
        """A guarded statement raised."""
        self.seen_here.errors.append(Located.raised(row, error, 160))
        error.__traceback__ = None

    def before_backward(self, roots: list[torch.Tensor]) -> Callable[[], None]:
        """What hangs below a backward now, and after it which gradients there are."""
        names, leaves = below(roots)
        first = [0.0 if leaf.grad is None else _number(leaf.grad) for leaf in leaves]

        def after() -> None:
            gradients = [(tuple(leaf.shape), None if leaf.grad is None else _number(leaf.grad)) for leaf in leaves]
            added: tuple[Gradients, Gradients] = ([], [])
            for leaf, before, (shape, there) in zip(leaves, first, gradients, strict=True):
                of_flagged = any(leaf is item for item in self._flagged)
                added[of_flagged].append((shape, None if there is None else there - before))
            self.seen_here.backwards.append(Backward(names, gradients, isolate.row_here(), *added))

        return after


def below(roots: list[torch.Tensor]) -> tuple[Counter[str], list[torch.Tensor]]:
    """The kinds of the nodes that are attached to the tensors, counted, and the leaves that they end in."""
    waiting: list[Any] = [root.grad_fn for root in roots if root.grad_fn is not None]
    seen: dict[object, None] = {}
    leaves: list[torch.Tensor] = []
    while waiting and len(seen) < 20_000:
        node = waiting.pop()
        if node in seen:
            continue
        seen[node] = None
        if type(node).__name__ == "AccumulateGrad":
            leaves.append(node.variable)
        waiting.extend(parent for parent, _ in node.next_functions if parent is not None)
    return Counter(type(node).__name__ for node in seen), leaves


def _number(tensor: torch.Tensor) -> float:
    with torch._C.DisableTorchFunction(), torch.no_grad():
        plain = tensor.as_subclass(torch.Tensor) if type(tensor) is not torch.Tensor else tensor
        return float(plain.detach().double().nan_to_num().sum()) if plain.layout is torch.strided else 0.0


def fingerprint(value: Any, depth: int = 6) -> object:
    """A value as plain data: of a tensor shape and sum. Whether it is attached to a graph, or needs gradients, is left out: gradients
    are compared after each backward."""
    if isinstance(value, torch.Tensor):
        with torch._C.DisableTorchFunction():
            return ("tensor", tuple(value.shape), _number(value) if not value.is_complex() else 0.0)
    if isinstance(value, bool | int | str | type(None)):
        return value
    if isinstance(value, float):
        return ("number", value)
    if depth == 0:
        return type(value).__name__
    if isinstance(value, StandIn):
        parts = {
            str(key): fingerprint(part, depth - 1)
            for key, part in value._parts.items()
            if key not in ("requires_grad", "requires_grad_") and _holds_tensors(part)
        }
        return ("stand-in", parts)
    if isinstance(value, dict):
        return {str(key): fingerprint(item, depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
        return [fingerprint(item, depth - 1) for item in value]
    return [type(value).__name__, *(fingerprint(tensor, 1) for tensor in tensors_in(value))]


def _holds_tensors(value: Any) -> bool:
    return isinstance(value, (StandIn, float, int)) or any(True for _ in tensors_in(value))


def same(mine: object, other: object) -> bool:
    """Whether two fingerprints are equal but for rounding; a number and a tensor of that number are."""
    if isinstance(mine, (tuple, list)) and isinstance(other, (tuple, list)):
        if _figure(mine) and _figure(other):
            return _close(mine[-1], other[-1]) and (mine[0] != other[0] or mine[1:-1] == other[1:-1])
        return len(mine) == len(other) and all(same(one, two) for one, two in zip(mine, other, strict=True))
    if isinstance(mine, dict) and isinstance(other, dict):
        return mine.keys() == other.keys() and all(same(value, other[key]) for key, value in mine.items())
    if isinstance(mine, float) and isinstance(other, float):
        return _close(mine, other)
    return mine == other


def _figure(value: tuple[object, ...] | list[object]) -> bool:
    return isinstance(value, tuple) and bool(value) and value[0] in ("tensor", "number")


def _close(mine: object, other: object) -> bool:
    if not isinstance(mine, (int, float)) or not isinstance(other, (int, float)):
        return mine == other
    if not (math.isfinite(mine) and math.isfinite(other)):
        return mine == other or (math.isnan(mine) and math.isnan(other))
    return abs(mine - other) <= 1e-4 * max(1.0, abs(mine), abs(other))


def _as_much(mine: float | None, other: float | None) -> bool:
    """Whether two gradients are equal but for rounding: of a stand-in they are small."""
    if mine is None or other is None or not (math.isfinite(mine) and math.isfinite(other)):
        return mine is other or _close(mine, other)
    return abs(mine - other) <= 1e-3 * max(abs(mine), abs(other)) + 1e-9


def _gradients_agree(mine: Gradients, other: Gradients) -> bool:
    return len(mine) == len(other) and all(
        one[0] == two[0] and _as_much(one[1], two[1]) for one, two in zip(mine, other, strict=True)
    )


def questions(tree: ast.Module) -> Mapping[int, int]:
    """The rows of all ``if`` statements with the number of what they ask: those that ask the same, or its opposite, share one, and
    are turned together."""
    numbers: dict[str, int] = {}
    rows: dict[int, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.If):
            test = node.test
            while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
                test = test.operand
            rows[node.lineno] = numbers.setdefault(ast.unparse(test), len(numbers))
    return rows


def run_once(target: isolate.Target, turned: frozenset[int]) -> Seen | None:
    """One run of the whole function in one phase; None where the line is in no statement."""
    tree = ast.parse(target.source)
    site = cut.locate(tree, target.place)
    if site is None:
        return None
    order = questions(tree)
    gc.collect()
    torch.manual_seed(0)
    record = standins.Record(frozenset(), cut.modules_of(tree, site.klass), apart=True)
    standins.begin(record)
    watcher = Watcher(order, turned)
    record.on_backward = watcher.before_backward
    program = cut.plain(tree, site, target.flaw)
    with torch.set_grad_enabled(target.grad != "off"):
        errors = isolate.drive(program, site, watcher, target, CALLS)
    standins.begin(standins.Record())
    seen = watcher.seen_here
    seen.errors += errors
    return seen


def _words(text: str) -> str:
    """What an exception says, without the numbers, which differ from run to run. Where the limit of the recursion strikes differs, too:
    a decorator is one more frame."""
    if text.startswith(RecursionError.__name__):
        return RecursionError.__name__
    return re.sub(r"0x[0-9a-f]+|\d+", "N", text)


def difference(first: Seen, second: Seen, meant: Cut = Cut.NONE) -> str:
    """What the corrected function does otherwise than it is meant to, in words; "" for nothing."""
    known = Counter(_words(error.text) for error in first.errors)
    for error in second.errors:
        if known[_words(error.text)] <= 0:
            return f"line {error.line} of the fixed code: {error.text}"
        known[_words(error.text)] -= 1
    for mine, other in zip_longest(first.backwards, second.backwards):
        if mine is None or other is None:
            return "the fixed code runs a different number of backwards"
        if meant and cuts_only(mine, other, meant):
            continue
        if mine.nodes != other.nodes:
            fewer = sum((mine.nodes - other.nodes).values())
            more = sum((other.nodes - mine.nodes).values())
            return f"the backward on line {mine.row} goes through a different graph: {fewer} nodes less, {more} more"
        if not _gradients_agree(mine.gradients, other.gradients):
            return f"the backward on line {mine.row} leaves different gradients"
    return _other_result(first.results, second.results)


def cuts_only(mine: Backward, other: Backward, meant: Cut) -> bool:
    """Whether the corrected code's backward lacks what the fix is meant to take, and nothing else."""
    if other.nodes - mine.nodes or not other.nodes:
        return False
    if meant is Cut.EARLIER:
        return not Counter(shape for shape, _ in other.added) - Counter(shape for shape, _ in mine.added)
    added = [*other.added, *other.added_to_flagged]
    may_lack = list(mine.added_to_flagged)
    for leaf in mine.added:
        if not _taken(leaf, added):
            return False
    return all(_taken(leaf, may_lack) for leaf in added)


def _taken(leaf: tuple[tuple[int, ...], float | None], of: Gradients) -> bool:
    """Take a leaf of this shape, to which as much was added, out of ``of``; False where it has none."""
    found = next((index for index, (shape, amount) in enumerate(of) if shape == leaf[0] and _as_much(amount, leaf[1])), None)
    if found is None:
        return False
    del of[found]
    return True


PARTS_OF_A_CALL = ("the return value", "the receiver", "the arguments")
"""What is compared of each call, in this order."""


def _other_result(first: list[object], second: list[object]) -> str:
    """Which call leaves something else in the corrected code, where, and what; "" for none."""
    for number, (mine, other) in enumerate(zip_longest(first, second), 1):
        if same(mine, other):
            continue
        found = first_difference(mine, other)
        if found is None:
            return f"another result of call {number}"
        (part, *path), one, two = found
        where = PARTS_OF_A_CALL[part] if isinstance(part, int) and part < len(PARTS_OF_A_CALL) else str(part)
        inside = "".join(f"[{key!r}]" for key in path)
        return f"another result: call {number} leaves {_shown(two)} instead of {_shown(one)} in {where}{inside and ' at ' + inside}"
    return ""


def first_difference(mine: object, other: object) -> tuple[tuple[object, ...], object, object] | None:
    """The way to the first part in which two fingerprints differ, and that part of each; None where they differ as a whole, or not."""
    if isinstance(mine, dict) and isinstance(other, dict):
        pairs: list[tuple[object, object, object]] = [
            (key, mine.get(key, "nothing"), other.get(key, "nothing")) for key in {**mine, **other}
        ]
    elif isinstance(mine, (list, tuple)) and isinstance(other, (list, tuple)) and not (_figure(mine) and _figure(other)):
        pairs = [(index, one, two) for index, (one, two) in enumerate(zip_longest(mine, other, fillvalue="nothing"))]
    else:
        return None
    for key, one, two in pairs:
        if not same(one, two):
            deeper = first_difference(one, two)
            return ((key, *deeper[0]), deeper[1], deeper[2]) if deeper is not None else ((key,), one, two)
    return None


def _shown(value: object) -> str:
    if isinstance(value, tuple) and value and value[0] == "tensor":
        return f"a tensor of shape {value[1]} and sum {value[2]:.4g}"
    if isinstance(value, tuple) and value and value[0] == "number":
        return f"{value[1]:.4g}"
    return repr(value)[:60]


REPEATS = 3
"""So many more runs of each program must agree before a fix is said to change it."""


def compared(job: Mapping[str, Any]) -> Mapping[str, object]:
    """The answer on the job's fix: "same", "differed" or "could not be run", and why; ``phases`` that were run."""
    target = isolate.target_of(job)
    source = str(job["fixed_source"])
    function = _function_of(ast.parse(target.source), target.place.row) or ""
    corrected = isolate.fixed(target, source, _row_of_a_statement(source, int(job["fixed_row"]), function))
    meant = Cut(str(job.get("cuts", "")))
    deadline = time.process_time() + SECONDS
    waiting: list[frozenset[int]] = [frozenset()]
    phases = reached = 0
    worst, cut_off = "", False
    while waiting and phases < PHASES and (phases < 1 or time.process_time() < deadline):
        turned = waiting.pop(0)
        first = run_once(target, turned)
        second = run_once(corrected, turned)
        if first is None or second is None:
            return {"answer": "could not be run", "why": "the flagged line is in no statement", "phases": phases}
        phases += 1
        reached += first.reached
        why = difference(first, second, meant)
        if why:
            # The first run of all shows which parts stand-ins play: once it is known, the original may go another way, too.
            again = run_once(target, turned)
            assert again is not None
            if difference(first, again):
                second = run_once(corrected, turned) or second
                why, first = difference(again, second, meant), again
            if why and _varies(target, corrected, turned, first, second):
                return {"answer": "could not be run", "why": "two runs of the original differ", "phases": phases}
        cut_off = cut_off or any(
            mine.nodes != other.nodes for mine, other in zip(first.backwards, second.backwards, strict=False)
        )
        raised = next((str(error) for error in first.errors if error.line == target.place.row), "")
        if why and raised:  # on stand-ins: what the statement does is not known
            return {"answer": "could not be run", "why": raised, "phases": phases}
        if why:
            where = f" (in phase {phases}: with inverted answers to the unknown `if` statements)" if turned else ""
            return {"answer": "differed", "why": f"{why}{where}", "phases": phases}
        worst = worst or next((str(error) for error in first.errors), "")
        if not turned:
            waiting += [frozenset({number}) for number in sorted(first.guessed)]
    if not reached:
        return {"answer": "could not be run", "why": worst or "the flagged line never ran", "phases": phases}
    notes = ["a backward goes through less of the graph, as the fix intends"] if cut_off else []
    notes += [f"as far as it ran: {worst}"] if worst else []
    return {"answer": "same", "why": "; ".join(notes), "phases": phases}


def _varies(target: isolate.Target, corrected: isolate.Target, turned: frozenset[int], first: Seen, second: Seen) -> bool:
    """Whether a program has other results each time, such as one that reads memory that it never wrote: then a difference says nothing
    about its fix."""
    return any(
        difference(seen, run_once(program, turned) or seen)
        for _ in range(REPEATS)
        for program, seen in ((target, first), (corrected, second))
    )


def _row_of_a_statement(source: str, row: int, function: str) -> int:
    """The row, or the nearest one above that has a statement of this function ("" for the module): a fix may remove the flagged one."""
    tree = ast.parse(source)
    return next((above for above in range(row, 0, -1) if _function_of(tree, above) == function), row)


def _function_of(tree: ast.Module, row: int) -> str | None:
    """The name of the function of a row's statement, "" at module level; None where there is no statement."""
    site = cut.locate(tree, cut.Place(row))
    return None if site is None else site.function.name if site.function is not None else ""


def run_compared(job: Mapping[str, Any], emit: Callable[[Mapping[str, object]], None]) -> None:
    """Only the fix: nothing is measured."""
    isolate.prepare_torch(str(job["device"]))
    emit({"compared": _answer(job)})


def _answer(job: Mapping[str, Any]) -> Mapping[str, object]:
    try:
        return compared(job)
    except Exception as error:  # objects of the code are looked at, and may do what they like
        return {"answer": "could not be run", "why": f"{type(error).__name__}: {error}"[:300], "phases": 0}


def run_finding(job: Mapping[str, Any], emit: Callable[[Mapping[str, object]], None]) -> None:
    """The experiment on a finding, and after it whether its fix changes what the program does."""
    isolate.run_isolated(job, emit)
    if job.get("fixed_source"):
        emit({"compared": _answer(job)})
