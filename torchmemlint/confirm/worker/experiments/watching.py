"""What one run of a function does, to be compared with that of its fixed twin."""

from __future__ import annotations

import ast
import gc
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch

from torchmemlint.confirm.verdict import Located
from torchmemlint.confirm.worker.experiments.fingerprints import fingerprint, number
from torchmemlint.confirm.worker.graphs import is_leaf, nodes_below, tensors_in
from torchmemlint.confirm.worker.harness import Harness, answer, drive
from torchmemlint.confirm.worker.meter import StorageMeter
from torchmemlint.confirm.worker.program import locate, modules_of, plain
from torchmemlint.confirm.worker.standins import Record, Stage, StandIn, row_of_the_code
from torchmemlint.confirm.worker.target import Target

LISTED, STEPS = 6, 3
CALLS = 2
"""So often is a function without a loop around the line called: what it keeps, the second call finds."""
MANY_NODES = 20_000
MANY_LEAVES = 500
"""Of more parameters below flagged forwards no others are looked for."""


Gradients = list[tuple[tuple[int, ...], float | None]]
"""Of each leaf that a backward came to, its shape and the sum of a gradient (None: it has none)."""


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


class Watcher(Harness):
    """A harness that changes nothing, and takes down what the code does."""

    def __init__(self, stage: Stage, order: Mapping[int, int], turned: frozenset[int]) -> None:
        super().__init__(stage, StorageMeter())
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

    def look(self, place: Callable[[], object] | None) -> None:
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
        truth, known = answer(self.stage, test)
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
        first = [0.0 if leaf.grad is None else number(leaf.grad) for leaf in leaves]

        def after() -> None:
            gradients = [(tuple(leaf.shape), None if leaf.grad is None else number(leaf.grad)) for leaf in leaves]
            added: tuple[Gradients, Gradients] = ([], [])
            for leaf, before, (shape, there) in zip(leaves, first, gradients, strict=True):
                of_flagged = any(leaf is item for item in self._flagged)
                added[of_flagged].append((shape, None if there is None else there - before))
            self.seen_here.backwards.append(Backward(names, gradients, row_of_the_code(), *added))

        return after


def below(roots: list[torch.Tensor]) -> tuple[Counter[str], list[torch.Tensor]]:
    """The kinds of the nodes that are attached to the tensors, counted, and the leaves that they end in."""
    nodes = nodes_below(roots, MANY_NODES)
    return Counter(type(node).__name__ for node in nodes), [node.variable for node in nodes if is_leaf(node)]


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


def run_once(stage: Stage, target: Target, turned: frozenset[int]) -> Seen | None:
    """One run of the whole function in one phase; None where the line is in no statement."""
    tree = ast.parse(target.source)
    site = locate(tree, target.place)
    if site is None:
        return None
    order = questions(tree)
    gc.collect()
    torch.manual_seed(0)
    record = Record(frozenset(), modules_of(tree, site.klass), apart=True)
    stage.begin(record)
    watcher = Watcher(stage, order, turned)
    record.on_backward = watcher.before_backward
    program = plain(tree, site, target.flaw)
    with torch.set_grad_enabled(target.grad != "off"):
        errors = drive(program, site, watcher, target, CALLS)
    stage.begin(Record())
    seen = watcher.seen_here
    seen.errors += errors
    return seen
