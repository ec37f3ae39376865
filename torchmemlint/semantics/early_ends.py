"""How many iterations a loop has at most, where its body leaves it after a known number."""

from __future__ import annotations

from collections.abc import Callable

from torchmemlint.lower import ir
from torchmemlint.semantics.text import text_of
from torchmemlint.torch_facts import TORCH

AFTER = {">=": 0, "==": 0, ">": 1}
"""Comparisons with the number after which a body leaves its loop, and how many iterations come on top of that number."""


ADDS = TORCH.words["fills-lists"]


def iterations_until_break(statement: ir.For, counts: str, known: Callable[[ir.Expr], object]) -> int:
    """The most iterations of a loop that counts them, in the name ``counts`` or by the length of a list that each one adds to, and breaks
    at a number; -1 where there is none of it. ``known`` says what constant an expression is."""
    found = [ends for test in statement.body if (ends := _ends(statement, counts, test, known)) > 0]
    return min(found, default=-1)


def _ends(statement: ir.For, counts: str, test: ir.Stmt, known: Callable[[ir.Expr], object]) -> int:
    if not isinstance(test, ir.If) or not test.then or not isinstance(test.then[-1], ir.Break):
        return -1
    compared = test.test
    if not isinstance(compared, ir.Compare) or len(compared.ops) != 1 or compared.ops[0] not in AFTER:
        return -1
    first = _counted_from(statement, counts, compared.left)
    number = known(compared.comparators[0]) if first >= 0 else None
    return number + AFTER[compared.ops[0]] + first if type(number) is int and number >= 0 else -1


def _counted_from(statement: ir.For, counts: str, counter: ir.Expr) -> int:
    """How many more iterations than its number begin until a count reaches it: one more where the count starts at 0 in the first
    (``enumerate``), none where each adds an element before; -1 where it is no count of iterations."""
    if isinstance(counter, ir.Call) and isinstance(counter.func, ir.Name) and counter.func.id == "len" and counter.args:
        place = text_of(counter.args[0].value)
        return 0 if any(_adds_to(place, each) for each in statement.body) else -1
    return 1 if counts and text_of(counter) == counts else -1


def _adds_to(place: str, statement: ir.Stmt) -> bool:
    """Whether a statement is ``place.append(…)``."""
    if not isinstance(statement, ir.ExprStmt) or not isinstance(statement.value, ir.Call):
        return False
    func = statement.value.func
    return isinstance(func, ir.Attr) and func.name in ADDS and text_of(func.value) == place
