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
from torchmemlint.lower.syntax import does_training, target_names
from torchmemlint.lower.walk import names_inside, nodes_of
from torchmemlint.lower.written import dotted, text_of
from torchmemlint.semantics.state import World, memoized_with_code


@dataclass(frozen=True, slots=True)
class Placed:
    """A statement with the tests that it stands under, and the loops around it, outermost first."""

    statement: ir.Stmt
    tests: frozenset[str]
    loops: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """Where a ``name`` is deleted or bound again.

    early    before any training loop, wherever it was bound; else in the iterations of a loop, if need be under a test of its
    own
    deletes  it is deleted
    """

    node: int
    early: bool
    name: str
    deletes: bool


def release(world: World, ref: FunctionRef, node: int, stepping: frozenset[int], name: str = "") -> Release | None:
    """The first statement behind a call that lets go of its result, bound to one name; None where there is none. With ``name``: of the
    part of the result that is bound to that name later; where nothing is, the release is that of the call itself, early.

    Tests that the binding does not stand under count only in a loop, whose turns come to them again and again. ``stepping`` are the
    loops and calls in which steps run.
    """
    outermost = world.outermost(ref)
    statements, calls = text_of_function(world, outermost)
    place = calls.get(node)
    if place is None:
        return None
    if name:
        place = next((p for p in range(place + 1, len(statements)) if binds(statements[p].statement, name)), None)
        if place is None:
            return Release(node, True, name, False)
    made = statements[place]
    assert isinstance(made.statement, ir.Assign)
    target = made.statement.targets[0]
    name = target.id if isinstance(target, ir.Name) else ""
    stepped = False
    sometimes: Release | None = None
    for one in islice(statements, place + 1, None):
        statement = one.statement
        stepped = stepped or does_steps(statement, stepping)
        if not lets_go(statement, name):
            continue
        inside = one.loops[: len(made.loops)] == made.loops
        deeper = len(one.loops) > len(made.loops)
        found = Release(statement.node, not deeper, name, isinstance(statement, ir.Delete))
        if one.tests <= made.tests:
            return sometimes or (found if inside and (deeper or not stepped) else None)
        if inside and deeper and not excludes(one.tests, made.tests):
            sometimes = sometimes or found
    return sometimes


def does_steps(statement: ir.Stmt, stepping: frozenset[int]) -> bool:
    """Whether a statement is a loop with steps, or calls what runs them."""
    match statement:
        case ir.For() | ir.While():
            return statement.node in stepping or does_training(statement.body)
        case ir.If() | ir.With() | ir.Try() | ir.Match() | ir.FunctionDef() | ir.ClassDef():
            return False
        case _:
            return any(isinstance(part, ir.Call) and part.node in stepping for part in nodes_of([statement]))


def binds(statement: ir.Stmt, name: str) -> bool:
    """Whether a statement binds a name to one value."""
    return isinstance(statement, ir.Assign) and isinstance(statement.targets[0], ir.Name) and statement.targets[0].id == name


def excludes(tests: frozenset[str], others: frozenset[str]) -> bool:
    """Whether two statements stand under the two outcomes of one test."""
    return any(f"not {test}" in others for test in tests) or any(f"not {test}" in tests for test in others)


@memoized_with_code
def text_of_function(world: World, ref: FunctionRef) -> tuple[list[Placed], dict[int, int]]:
    """The statements of a function in order, and for each call in an assignment the place of that: for all questions about it."""
    statements = list(placed(world.body(world.outermost(ref))))
    calls: dict[int, int] = {}
    for place, one in enumerate(statements):
        if isinstance(one.statement, ir.Assign):
            for part in nodes_of([one.statement]):
                if isinstance(part, ir.Call):
                    calls.setdefault(part.node, place)
    return statements, calls


def is_rebound(world: World, ref: FunctionRef, attribute: str) -> bool:
    """Whether a function assigns an attribute (``self.outputs``) more than once, or deletes it."""
    statements = [one.statement for one in text_of_function(world, ref)[0]]
    bound = [
        target for one in statements if isinstance(one, ir.Assign) for target in one.targets if dotted(target) == attribute
    ]
    deleted = [
        target for one in statements if isinstance(one, ir.Delete) for target in one.targets if dotted(target) == attribute
    ]
    return len(bound) > 1 or bool(deleted)


def lets_go(statement: ir.Stmt, name: str) -> bool:
    match statement:
        case ir.Delete():
            return any(isinstance(target, ir.Name) and target.id == name for target in statement.targets)
        case ir.Assign():
            again = any(name in target_names(target) for target in statement.targets)
            return again and name not in names_inside(statement.value)  # else it holds a part, or all of it in another dict
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
