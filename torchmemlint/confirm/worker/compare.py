"""Whether a fix changes what the program does: the original and the repaired function on the same stand-ins, in every phase.

Compared are what the calls return and leave in their receiver and arguments, the graph and the gradients of every ``backward()``, and
exceptions. A *phase* is one answer to the ``if`` statements that nothing in sight answers: as guessed first, then each of them turned.
Loops over what the code itself lists (``for phase in ["train", "val"]``) run over all of it, others a few steps.
"""

from __future__ import annotations

import ast
import gc
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from typing import Any

import torch

from torchmemlint.confirm.worker import cut, isolate, standins
from torchmemlint.confirm.worker.meter import StorageMeter, tensors_in
from torchmemlint.confirm.worker.standins import StandIn

SECONDS = 10.0
"""No further phase is begun after this much CPU time."""
PHASES = 8
LISTED, STEPS = 6, 3
CALLS = 2
"""So often is a function without a loop around the line called: what it keeps, the second call finds."""


@dataclass(frozen=True, slots=True)
class Backward:
    """One backward: the kinds of nodes that hung below it, the gradients that it left, and its row."""

    nodes: Counter[str]
    gradients: list[tuple[tuple[int, ...], float | None]]
    row: int


@dataclass(slots=True)
class Seen:
    """What one run of the function did."""

    results: list[object] = field(default_factory=list)
    backwards: list[Backward] = field(default_factory=list)
    errors: list[tuple[str, int]] = field(default_factory=list)
    guessed: set[int] = field(default_factory=set)
    reached: int = 0


class Watcher(isolate.Harness):
    """A harness that changes nothing, and takes down what the code does."""

    def __init__(self, order: Mapping[int, int], turned: frozenset[int]) -> None:
        super().__init__(StorageMeter(), None, force=False)
        self._order, self._answers = order, turned
        self.seen_here = Seen()
        self._whiles_here: Counter[int] = Counter()

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

    def branch(self, wanted: bool | None, remainder: bool, row: int, test: Any) -> bool:
        """The answer itself; where nobody knows it the guess, or in another phase the opposite."""
        truth, known = isolate.answer(test)
        if known:
            return truth
        number = self._order.get(row, 0)
        self.seen_here.guessed.add(number)
        return truth != (number in self._answers)

    def gave(self, known: frozenset[int], *results: Any) -> None:
        """Take down what the call returned and left behind."""
        self.seen_here.results.append([fingerprint(result) for result in results])

    def failed(self, row: int, error: Exception) -> None:
        """A guarded statement raised."""
        self.seen_here.errors.append((f"{type(error).__name__}: {error}"[:160], row))
        error.__traceback__ = None

    def before_backward(self, roots: list[torch.Tensor]) -> Callable[[], None]:
        """What hangs below a backward now, and after it which gradients there are."""
        names, leaves = below(roots)

        def after() -> None:
            gradients = [(tuple(leaf.shape), None if leaf.grad is None else _number(leaf.grad)) for leaf in leaves]
            self.seen_here.backwards.append(Backward(names, gradients, isolate.row_here()))

        return after


def below(roots: list[torch.Tensor]) -> tuple[Counter[str], list[torch.Tensor]]:
    """The kinds of the nodes that hang on the tensors, counted, and the leaves that they end in."""
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
    """A value as plain data: of a tensor shape and sum, whether it hangs on a graph is left out."""
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
        parts = {str(key): fingerprint(part, depth - 1) for key, part in value._parts.items() if _holds_tensors(part)}
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
    return abs(mine - other) <= 1e-4 * max(1.0, abs(mine), abs(other))


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
    record = standins.Record(frozenset(), cut.modules_of(tree, site.klass))
    standins.begin(record)
    standins.weight()
    watcher = Watcher(order, turned)
    record.on_backward = watcher.before_backward
    program = cut.plain(tree, site)
    with torch.set_grad_enabled(target.grad != "off"):
        errors = isolate.drive(program, site, watcher, target, CALLS)
    standins.begin(standins.Record())
    seen = watcher.seen_here
    for text in errors:
        row, _, words = text.partition(": ")
        seen.errors.append((words, int(row) if row.isdigit() else 0))
    return seen


def _words(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+|\d+", "N", text)


def difference(first: Seen, second: Seen) -> str:
    """What the repaired function does otherwise, in words; "" for nothing."""
    known = Counter(_words(text) for text, _ in first.errors)
    for text, row in second.errors:
        if known[_words(text)] <= 0:
            return f"row {row} of the fixed code: {text}"
        known[_words(text)] -= 1
    for mine, other in zip_longest(first.backwards, second.backwards):
        if mine is None or other is None:
            return "the fixed code runs a different number of backwards"
        if mine.nodes != other.nodes:
            fewer = sum((mine.nodes - other.nodes).values())
            more = sum((other.nodes - mine.nodes).values())
            return f"the backward in row {mine.row} goes through a different graph: {fewer} nodes less, {more} more"
        if not same(mine.gradients, other.gradients):
            return f"the backward in row {mine.row} leaves different gradients"
    if not same(first.results, second.results):
        return "another result"
    return ""


def compared(job: Mapping[str, Any]) -> Mapping[str, object]:
    """The answer on the job's fix: "same", "differed" or "could not be run", and why; ``phases`` that were run."""
    target = isolate.target_of(job)
    repaired = isolate.fixed(target, str(job["fixed_source"]), int(job["fixed_row"]))
    deadline = time.process_time() + SECONDS
    waiting: list[frozenset[int]] = [frozenset()]
    phases = reached = 0
    worst = ""
    while waiting and phases < PHASES and (phases < 1 or time.process_time() < deadline):
        turned = waiting.pop(0)
        first = run_once(target, turned)
        second = run_once(repaired, turned)
        if first is None or second is None:
            return {"answer": "could not be run", "why": "the flagged line is in no statement", "phases": phases}
        phases += 1
        reached += first.reached
        why = difference(first, second)
        if why:
            where = f" (in phase {phases}: with inverted answers to the unknown `if` statements)" if turned else ""
            return {"answer": "differed", "why": f"{why}{where}", "phases": phases}
        worst = worst or next((f"row {row}: {text}" for text, row in first.errors), "")
        if not turned:
            waiting += [frozenset({number}) for number in sorted(first.guessed)]
    if not reached:
        return {"answer": "could not be run", "why": worst or "the flagged line never ran", "phases": phases}
    return {"answer": "same", "why": worst and f"as far as it ran: {worst}", "phases": phases}


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
