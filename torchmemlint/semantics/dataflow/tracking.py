"""Where the values of some expressions go in one function, whichever way its tests come out.

The machine follows one phase at a time and knows what values are; what is found here holds on every path together, as it must
before a fix changes what a statement gives. So a test's two branches are both taken, each after the other's state is kept
apart, and nothing is assumed of what a test asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar, cast

from torchmemlint.index.project import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.walk import FIELDS, everything
from torchmemlint.lower.written import dotted
from torchmemlint.semantics.state import Meter, RunLimit, World

MAX_TURNS = 8
"""Turns of a loop after which its state is taken as it is: each adds a name, and few loops pass a value through more."""
TOO_MUCH = "it takes too long to follow"
"""Why there is no fix where a question about it was given up."""

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")
Question = Callable[Concatenate[World, Asked], Answer]


def bounded(otherwise: Answer) -> Callable[[Question[Asked, Answer]], Question[Asked, Answer]]:
    """For a question that follows values before a fix: what is answered when the steps for those of a file are used up,
    or where code is nested too deeply."""

    def bound(question: Question[Asked, Answer]) -> Question[Asked, Answer]:
        @wraps(question)
        def ask(world: World, *arguments: Asked.args, **named: Asked.kwargs) -> Answer:
            try:
                return question(world, *arguments, **named)
            except (RunLimit, RecursionError):
                return otherwise

        return cast(Callable[Concatenate[World, Asked], Answer], ask)

    return bound


def counted(world: World, node: object) -> Iterator[object]:
    """Every node of the IR below one, itself included; each is a step."""
    for each in everything(node):
        world.following.take(1)
        yield each


class Tracker:
    """Follows values through statements. The state is the set of texts ("loss", "self.total") that may hold one.

    A kind of tracking says what an expression gives (``gives``), and what is done with it on the way. Each statement, expression
    and name of a state that is copied is a step of the ``meter``.
    """

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.closures: list[ir.Function] = []
        self.ever: set[str] = set()
        """All that held a value at some time: what closures may read."""
        self._jumped: list[set[str]] = [set()]

    # --- what a kind of tracking says ---------------------------------------------------------------------------------

    def gives(self, expr: ir.Expr | None, state: set[str]) -> bool:
        """Whether an expression gives a value that is followed; ``value`` asks."""
        match expr:
            case None | ir.Const():
                return False
            case ir.Name():
                return expr.id in state
            case ir.Attr():
                return self.value(expr.value, state) or dotted(expr) in state
            case ir.Compare() | ir.FormattedString():
                self.inner(expr, state)
                return False
            case ir.Call():
                return self.call(expr, state)
            case _:
                return self.inner(expr, state)

    def call(self, expr: ir.Call, state: set[str]) -> bool:
        """As ``gives``, for a call."""
        raise NotImplementedError

    def returned(self, expr: ir.Expr) -> None:
        """A value that is followed is returned or yielded."""

    def kept(self, text: str) -> None:
        """A value that is followed is bound to an attribute, or put into what an attribute holds."""

    def augmented(self, statement: ir.AugAssign, state: set[str]) -> bool:
        """Whether what a statement like ``total += value`` adds is followed."""
        return self.value(statement.value, state)

    def begins(self, statement: ir.Stmt, state: set[str]) -> bool:
        """Whether a statement is one that is treated apart, and was."""
        return False

    # --- statements -----------------------------------------------------------------------------------------------------

    def value(self, expr: ir.Expr | None, state: set[str]) -> bool:
        self.meter.take(1)
        return self.gives(expr, state)

    def run(self, body: list[ir.Stmt]) -> None:
        self.block(body, set())
        for closure in self.closures:  # those inside of them are added meanwhile
            self.block(closure.body, self.copied(self.ever))

    def copied(self, state: set[str]) -> set[str]:
        self.meter.take(len(state))
        return set(state)

    def block(self, body: Iterable[ir.Stmt], state: set[str]) -> None:
        for statement in body:
            if not self.begins(statement, state):
                self.statement(statement, state)

    def statement(self, statement: ir.Stmt, state: set[str]) -> None:
        self.meter.take(1)
        match statement:
            case ir.Assign():
                self.assign(statement.targets, statement.value, state)
            case ir.AugAssign():
                held = dotted(root_of(statement.target)) in state
                self.bind(statement.target, self.augmented(statement, state) or held, state)
            case ir.If():
                self.value(statement.test, state)
                self.branches([statement.then, statement.orelse], state)
            case ir.For():
                self.loop(statement.body, state, statement.target, statement.iterable)
                self.block(statement.orelse, state)
            case ir.While():
                self.value(statement.test, state)
                self.loop(statement.body, state)
                self.block(statement.orelse, state)
            case ir.FunctionDef():
                self.closures.append(statement.function)
            case ir.Break() | ir.Continue() | ir.Raise():
                self._jumped[-1] |= self.copied(state)
                state.clear()
            case _:
                self.other(statement, state)

    def other(self, statement: ir.Stmt, state: set[str]) -> None:
        """As ``statement``, for the rarer kinds."""
        match statement:
            case ir.With():
                for item in statement.items:
                    given = self.value(item.manager, state)
                    if item.target is not None:
                        self.bind(item.target, given, state)
                self.block(statement.body, state)
            case ir.Try():
                self.tried(statement, state)
            case ir.Match():
                self.value(statement.subject, state)
                self.branches([[], *(case.body for case in statement.cases)], state)
            case ir.Return():
                if statement.value is not None and self.value(statement.value, state):
                    self.returned(statement.value)
                state.clear()
            case ir.ClassDef():
                self.block(statement.body, self.copied(state))
            case ir.Delete():
                state -= {dotted(target) for target in statement.targets}
            case ir.ExprStmt() | ir.Assert():
                for expr in parts_of(statement):
                    self.value(expr, state)

    def tried(self, statement: ir.Try, state: set[str]) -> None:
        before = self.copied(state)
        self.block(statement.body, state)
        after = state | before
        self.block(statement.orelse, state)
        for handler in statement.handlers:
            caught = self.copied(after)
            self.block(handler.body, caught)
            state |= caught
        self.block(statement.final, state)

    def branches(self, bodies: Iterable[list[ir.Stmt]], state: set[str]) -> None:
        before = self.copied(state)
        state.clear()
        for body in bodies:
            own = self.copied(before)
            self.block(body, own)
            state |= own

    def loop(
        self, body: list[ir.Stmt], state: set[str], target: ir.Expr | None = None, iterable: ir.Expr | None = None
    ) -> None:
        for _ in range(MAX_TURNS):
            before = self.copied(state)
            self._jumped.append(set())
            if target is not None and iterable is not None:
                self.take(target, iterable, state)
            self.block(body, state)
            state |= before | self._jumped.pop()
            if state == before:
                break

    # --- names ----------------------------------------------------------------------------------------------------------

    def take(self, target: ir.Expr, iterable: ir.Expr, state: set[str]) -> None:
        """What each iteration of a loop binds."""
        self.bind(target, self.value(iterable, state), state)

    def assign(self, targets: list[ir.Expr], value: ir.Expr, state: set[str]) -> None:
        for target in targets:
            if isinstance(target, ir.Sequence) and isinstance(value, ir.Sequence) and len(target.items) == len(value.items):
                given = [self.value(item, state) for item in value.items]
                for one, held in zip(target.items, given, strict=True):
                    self.bind(one, held, state)
            else:
                self.bind(target, self.value(value, state), state)

    def bind(self, target: ir.Expr, held: bool, state: set[str]) -> None:
        match target:
            case ir.Name() | ir.Attr():
                text = dotted(target)
                if held:
                    self.put(text, state)
                elif text:
                    self.meter.take(len(state))
                    state -= {one for one in state if one == text or one.startswith(text + ".")}
            case ir.Subscript():
                self.value(target, state)
                if held:
                    self.put(dotted(root_of(target)), state)
            case ir.Star():
                self.bind(target.value, held, state)
            case ir.Sequence():
                for item in target.items:
                    self.bind(item, held, state)

    def put(self, text: str, state: set[str]) -> None:
        """A place holds a value from here on."""
        if text:
            state.add(text)
            self.ever.add(text)
            if "." in text:
                self.kept(text)

    def inner(self, expr: object, state: set[str]) -> bool:
        """Whether a part of an expression gives a value that is followed; comprehensions and lambdas bind names of their own."""
        match expr:
            case ir.Comprehension():
                own = self.copied(state)
                for clause in expr.clauses:
                    self.take(clause.target, clause.iterable, own)
                    for condition in clause.conditions:
                        self.value(condition, own)
                if expr.key is not None:
                    self.value(expr.key, own)
                return self.value(expr.element, own)
            case ir.Lambda():
                self.block(expr.function.body, self.copied(state))
                return False
            case ir.Walrus():
                held = self.value(expr.value, state)
                self.bind(expr.target, held, state)
                return held
            case ir.IfExp():
                self.value(expr.test, state)
                then, orelse = self.value(expr.then, state), self.value(expr.orelse, state)
                return then or orelse
        found = [self.value(part, state) for part in parts_of(expr)]
        return any(found)


class FunctionTracker(Tracker):
    """Follows values through a function of a project, and notes whether one ``leaves`` it: is returned or yielded."""

    def __init__(self, world: World, ref: FunctionRef) -> None:
        super().__init__(world.following)
        self.world = world
        self.ref = ref
        self.leaves = False

    def returned(self, expr: ir.Expr) -> None:
        self.leaves = True

    def inner(self, expr: object, state: set[str]) -> bool:
        if not isinstance(expr, ir.Yield):
            return super().inner(expr, state)
        if expr.value is not None and self.value(expr.value, state):
            self.leaves = True
        return False


def parts_of(node: object) -> Iterator[ir.Expr]:
    """The expressions right inside an expression or simple statement, in order."""
    for name in FIELDS.get(type(node), ()):
        yield from _expressions(getattr(node, name))


def _expressions(value: object) -> Iterator[ir.Expr]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _expressions(item)
    elif isinstance(value, ir.Arg):
        yield value.value
    elif type(value) in FIELDS and not isinstance(value, (ir.Function, ir.CompClause)):
        yield value  # type: ignore[misc]


def root_of(expr: ir.Expr) -> ir.Expr:
    """What a subscript, or a chain of them, is taken of."""
    while isinstance(expr, ir.Subscript):
        expr = expr.value
    return expr
