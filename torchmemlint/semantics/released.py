"""When the name that a call's result is bound to lets go of it, by the text of the function.

Runs of the engine join what happens under one test with what happens without it; ``if resume: … del checkpoint`` far below
``if resume: checkpoint = torch.load(…)`` is therefore read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from torchmemlint.index.project import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.semantics.syntax import does_training, target_names
from torchmemlint.semantics.text import text_of
from torchmemlint.semantics.walk import nodes_of
from torchmemlint.semantics.world import MODULE, World


@dataclass(frozen=True, slots=True)
class Placed:
    """A statement with the tests that it stands under, and the loops around it, outermost first."""

    statement: ir.Stmt
    tests: frozenset[str]
    loops: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """Where a name is deleted or bound again. ``early``: before any training loop, wherever it was bound; else in the turns of one."""

    node: int
    early: bool


def release(world: World, ref: FunctionRef, node: int) -> Release | None:
    """The first statement behind a call that certainly lets go of its result, bound to one name; None where there is none."""
    outermost = FunctionRef(ref.path, world.outermost(ref) if ref.qualname != MODULE else MODULE)
    statements, calls = world.remember_of_function(text_of_function, outermost)
    if node not in calls:
        return None
    made = statements[calls[node]]
    assert isinstance(made.statement, ir.Assign)
    target = made.statement.targets[0]
    name, trained = target.id if isinstance(target, ir.Name) else "", False
    for one in islice(statements, calls[node] + 1, None):
        statement = one.statement
        if lets_go(statement, name) and one.tests <= made.tests:
            inside = one.loops[: len(made.loops)] == made.loops
            if inside and len(one.loops) == len(made.loops):
                return None if trained else Release(statement.node, True)
            return Release(statement.node, False) if inside else None
        elif isinstance(statement, (ir.For, ir.While)):
            trained = trained or does_training(statement.body)
    return None


def text_of_function(world: World, ref: FunctionRef) -> tuple[list[Placed], dict[int, int]]:
    """The statements of a function in order, and for each call in an assignment the place of that: for all questions about it."""
    found = world.function(ref)
    statements = list(placed(found[0].body)) if found is not None else []
    calls: dict[int, int] = {}
    for place, one in enumerate(statements):
        if isinstance(one.statement, ir.Assign):
            for part in nodes_of([one.statement]):
                if isinstance(part, ir.Call):
                    calls.setdefault(part.node, place)
    return statements, calls


def lets_go(statement: ir.Stmt, name: str) -> bool:
    match statement:
        case ir.Delete():
            return any(isinstance(target, ir.Name) and target.id == name for target in statement.targets)
        case ir.Assign():
            return any(name in target_names(target) for target in statement.targets)
        case _:
            return False


def placed(body: list[ir.Stmt], tests: frozenset[str] = frozenset(), loops: tuple[int, ...] = ()) -> Iterator[Placed]:
    """The statements of a function in the order of its text."""
    for statement in body:
        yield Placed(statement, tests, loops)
        match statement:
            case ir.If():
                text = text_of(statement.test)
                yield from placed(statement.then, tests | {text}, loops)
                yield from placed(statement.orelse, tests | {f"not {text}"}, loops)
            case ir.For() | ir.While():
                yield from placed(statement.body, tests, (*loops, statement.node))
                yield from placed(statement.orelse, tests, loops)
            case ir.With():
                yield from placed(statement.body, tests, loops)
            case ir.Try():
                yield from placed(statement.body, tests, loops)
                for handler in statement.handlers:
                    yield from placed(handler.body, tests | {f"except {handler.node}"}, loops)
                yield from placed(statement.orelse, tests, loops)
                yield from placed(statement.final, tests, loops)
            case _:
                pass
