"""Tests of a phase (``if self.training``): a run is made for each answer, which holds wherever the test stands."""

from __future__ import annotations

import re

from torchmemlint.index.project import ClassRef
from torchmemlint.lower import ir
from torchmemlint.lower.syntax import does_training, names_in
from torchmemlint.lower.walk import names_inside, walk
from torchmemlint.lower.written import conditions, dotted, text_of
from torchmemlint.semantics.state import Machine, State, evaluate, truth

MAX_PHASES = 2
"""Tests of a phase on which a root is run once per value."""
PHASE_WORD = re.compile(
    r"(^|[._\W])(is_)?(train(ing)?|eval(uate|uation)?|val(id|idation)?|test(ing)?|phase|mode|split|stage|infer(ence)?|predict(ing)?"
    r"|optim(izer)?|opt|backward|no_grad|with_grad|requires_grad|track_grad\w*|update|learn)($|[._\W])"
)

MEMBER = re.compile(r"(^|\.)[A-Z]\w*\.\w+$")
"""A member of an enumeration: an attribute of what is named like a class (``Phase.TRAIN``)."""


def phases_in(statement: ir.If, given: frozenset[str]) -> list[tuple[set[str], str, int]]:
    """The tests in an ``if`` that look like phases: their names, their text, and 2 for one that is sure, by what the branches do
    and by its words, or because it asks what the function was ``given`` (names of parameters); 1 for a suspicion."""
    test = statement.test
    while isinstance(test, ir.Unary) and test.op == "not":
        test = test.value
    found: list[tuple[set[str], str, int]] = []
    either = does_training(statement.then), does_training(statement.orelse)
    trains = any(either)
    for one in [test.left, test.right] if isinstance(test, ir.BoolOp) else [test]:
        while isinstance(one, ir.Unary) and one.op == "not":
            one = one.value
        if isinstance(one, ir.Compare) and one.ops[0] in ("!=", "is not"):
            one = ir.Compare(one.node, one.left, ["==" if one.ops[0] == "!=" else "is"], one.comparators)
        if is_phase_test(one):
            text = text_of(one)
            says_so = PHASE_WORD.search(text.lower()) is not None
            if trains or says_so:
                asks = isinstance(one, ir.Name) and one.id in given and either[0] != either[1]
                found.append((names_in(one), text, 2 if trains and (says_so or asks) else 1))
    return found


def parameters_of(m: Machine) -> frozenset[str]:
    """Names of the parameters of the function that runs."""
    return frozenset(param.name for param in m.frame_closure[m.frame].function.params)


def is_phase_test(test: ir.Expr) -> bool:
    """Tests that can be assumed: a name, an attribute, a comparison of one with a literal, None or a member of an enumeration, a
    call without arguments."""
    match test:
        case ir.Name() | ir.Attr():
            return bool(dotted(test))
        case ir.Call(args=[]):
            return bool(dotted(test.func))
        case ir.Compare(ops=["==" | "is"], comparators=[ir.Const()]):
            return bool(dotted(test.left))
        case ir.Compare(ops=["==" | "is"], comparators=[ir.Attr() as member]):
            return bool(dotted(test.left)) and MEMBER.search(dotted(member)) is not None
        case _:
            return False


def note_phase(m: Machine, statement: ir.If) -> None:
    """Record an undecided test that looks like a phase, by what its branches do and by its words."""
    found = m.phases.get(id(statement))
    if found is None:
        found = m.phases[id(statement)] = phases_in(statement, parameters_of(m))
    for names, text, weight in found:
        if not names & m.loop_names:
            key = f"{m.frame}:{text}"  # as ``phase_key``
            m.phase_tests[key] = max(m.phase_tests.get(key, 0), weight)


def assumed(m: Machine, test: ir.Expr) -> bool | None:
    """What this run assumes of a test, or knows because another way out was not taken above it."""
    if not m.assumptions and not m.passed:
        return None
    match test:
        case ir.Unary(op="not"):
            inner = assumed(m, test.value)
            return None if inner is None else not inner
        case ir.BoolOp():
            left, right = assumed(m, test.left), assumed(m, test.right)
            decisive = test.op == "or"
            if left is decisive or right is decisive:
                return decisive
            return None if left is None or right is None else left and right if test.op == "and" else left or right
        case ir.Compare(ops=[op]) if op in ("!=", "is not"):
            positive = ir.Compare(test.node, test.left, ["==" if op == "!=" else "is"], test.comparators)
            inner = m.assumptions.get(phase_key_of(m, positive))
            return passed(m, test) if inner is None else not inner
        case _:
            known = m.assumptions.get(phase_key_of(m, test))
            return passed(m, test) if known is None else known


def passed(m: Machine, test: ir.Expr) -> bool | None:
    """What an early return or ``continue`` above left of a test of attributes that the method does not set:
    ``if self.step < self.warmup: return``."""
    texts = {text for _, text, frame in m.passed if frame == m.frame}
    found = next((holds for holds in (True, False) if texts and texts.issuperset(conditions(test, holds))), None)
    if found is None:
        return None
    parts = list(walk(test))
    owner = m.world.header(m.ref).owner
    names = {part.name for part in parts if isinstance(part, ir.Attr)}
    if not owner or names_inside(test) != {"self"} or any(isinstance(part, ir.Call) for part in parts):
        return None
    attrs = m.world.project.attrs(ClassRef(m.path, owner))
    return None if any(fact.name in names and fact.method == m.ref.qualname for fact in attrs) else found


def phase_key_of(m: Machine, test: ir.Expr) -> str:
    return f"{m.frame}:{text_of(test)}"


def decide(m: Machine, test: ir.Expr, state: State) -> bool | None:
    """Which way a test goes, if it is known: by constants, or by the assumption about a phase that this run makes."""
    value = evaluate(m, test, state)
    known = truth(value)
    if known is not None:
        return known
    return assumed(m, test)
