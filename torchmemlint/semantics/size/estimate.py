"""About how many parameters a network has, as far as the code that makes it says.

Where ``weights.py`` gives a bound from above or none, this gives what is plainly large: layers whose numbers are not known count
nothing, one iteration of a loop is followed where their number is not known, and the larger branch of a test that is not known.
Networks of libraries count what ``torch_facts`` says.
"""

from __future__ import annotations

from collections.abc import Iterable

from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.written import dotted
from torchmemlint.semantics.size.constructor_values import Symbol, UnknownPart
from torchmemlint.semantics.size.constructors import MAX_DEPTH, UNFOLLOWED, Environment, Returned
from torchmemlint.semantics.size.layers import Unbounded
from torchmemlint.semantics.size.weights import Counter
from torchmemlint.semantics.state import World, memoized
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect

MILLION = 1_000_000
LIBRARIES = TORCH.words["makes-networks"]
"""Packages whose functions and classes make networks, of an architecture that the name or a string says."""
CHOSEN = "torchvision.models"
"""Where ``models.__dict__[name]`` looks an architecture up, which in itself is one of usual size."""
PRETRAINED = TORCH.names["pretrained"]
RETURNED = "return"
"""The name, which no program can use, of what a branch returned that may have been taken."""
MAX_STEPS = 8_000


class TooLong(Exception):
    """The constructor takes more statements than are followed: what was counted so far stands."""


@memoized
def estimate_of(world: World, ref: FunctionRef, text: str) -> int:
    """About how many parameters the largest network has that a function calls by a name or attribute; 0 where nothing is known."""
    estimate = _Estimate(world)
    try:
        return max(estimate.counts_of(ref, text))
    except TooLong:
        return estimate.made
    except (*UNFOLLOWED, RecursionError):
        return 0


class _Estimate(Counter):
    def step(self) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise TooLong

    def count(self, value: ir.Expr, scope: Environment) -> int:
        self.made = 0
        found = self.value(value, scope)
        return max(found.count if isinstance(found, UnknownPart) else 0, self.made)

    def enter(
        self, ref: FunctionRef, args: list[object], keywords: dict[str, object], me: UnknownPart | None, cls: ClassRef | None
    ) -> object:
        if self.depth > MAX_DEPTH:
            raise Unbounded
        return super().enter(ref, args, keywords, me, cls)

    def makes(self, value: ir.Expr, text: str) -> bool:
        return super().makes(value.then if isinstance(value, ir.IfExp) else value, text)

    def instance(self, cls: ClassRef, args: list[object], keywords: dict[str, object]) -> UnknownPart:
        """Also an object that is no module may hold networks."""
        init = self.world.project.method(cls, "__init__")
        if init is None or self.world.is_module_class(cls):
            return super().instance(cls, args, keywords)
        before, me = self.made, UnknownPart()
        self.enter(init, args, keywords, me, cls)
        me.count = self.made - before
        return me

    def value(self, expr: ir.Expr, scope: Environment) -> object:
        depth = self.depth
        try:
            return super().value(expr, scope)
        except UNFOLLOWED:
            self.depth = depth
            return UnknownPart()

    def statement(self, statement: ir.Stmt, scope: Environment) -> None:
        try:
            super().statement(statement, scope)
        except UNFOLLOWED:
            return

    def undecided(self, statement: ir.If, scope: Environment) -> None:
        before, names, ends = self.made, scope.names, list[dict[str, object]]()
        most = before
        for body in (statement.then, statement.orelse):
            self.made, scope.names = before, dict(names)
            self.run_or_return(body, scope)
            most = max(most, self.made)
            ends.append(scope.names)
        then, other = ends
        scope.names = {name: self.larger(then.get(name), other.get(name)) for name in {**then, **other}}
        self.made = most

    def run_or_return(self, body: Iterable[ir.Stmt], scope: Environment) -> None:
        """Runs a branch that may be taken; what it returns is one of the values that the function may return."""
        try:
            self.run(body, scope)
        except Returned as end:
            scope.names[RETURNED] = self.larger(scope.names.get(RETURNED), end.value)

    @staticmethod
    def larger(one: object, other: object) -> object:
        """The larger of two values, each that of a branch."""
        if isinstance(one, UnknownPart) and isinstance(other, UnknownPart):
            return one if one.count >= other.count else other
        if isinstance(one, (int, float)) and isinstance(other, (int, float)):
            return max(one, other)
        return other if one is None or isinstance(one, UnknownPart) else one

    def ended(self, scope: Environment) -> object:
        return scope.names.get(RETURNED)

    def item(self, expr: ir.Subscript, scope: Environment) -> object:
        """``models.__dict__[name]`` is that architecture."""
        if isinstance(expr.value, ir.Attr) and expr.value.name == "__dict__" and (module := dotted(expr.value.value)):
            facts = self.world.facts(scope.ref)
            return self.chosen(self.world.project.resolve(scope.ref.path, module, facts.qualname), self.index(expr, scope))
        return super().item(expr, scope)

    def chosen(self, module: str | None, name: object) -> object:
        if module is None:
            return UnknownPart()
        return Symbol(f"{module}.{name}" if isinstance(name, str) else module)

    def apply(self, called: object, args: list[object], keywords: dict[str, object]) -> object:
        return super().apply(called, args, keywords) if isinstance(called, Symbol) else UnknownPart()

    def outside(self, name: str, args: list[object], keywords: dict[str, object]) -> object:
        if name == "builtins.getattr" and args and isinstance(args[0], Symbol) and isinstance(args[0].of, str):
            return self.chosen(args[0].of, args[1])
        count = million_of(name, (*args, *keywords.values())) * MILLION
        if not count:
            return super().outside(name, args, keywords)
        self.made += count
        return UnknownPart(count)


def million_of(name: str, given: Iterable[object]) -> int:
    """How many million parameters a network of a library has, by what makes it and the strings that this is given; 0 if not known."""
    if name.partition(".")[0] not in LIBRARIES and name not in LIBRARIES:
        return 0
    last = name.rpartition(".")[2]
    words = [word.rpartition("/")[2].lower() for word in given if isinstance(word, str)]
    found = next((TORCH.millions[word] for word in (last, *words) if word in TORCH.millions), 0)
    if not found and (name == CHOSEN or (last == PRETRAINED and TORCH.function_effect(name) is Effect.MODULE)):
        return TORCH.millions[name if name == CHOSEN else PRETRAINED]
    return found
