"""Which networks have only layers of a kind, by the code that makes them: what goes over single features, or one that saves its input.

Numbers that are not known do not matter: an unknown width is taken for a usual one, a loop of an unknown length is followed once, and
both branches of a test that is not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.written import dotted
from torchmemlint.semantics.size.constructor_values import UnknownPart, flat
from torchmemlint.semantics.size.constructors import UNFOLLOWED, Environment, Returned
from torchmemlint.semantics.size.layers import Unbounded
from torchmemlint.semantics.size.weights import CONTAINERS, FORWARD, Counter, unwrapped
from torchmemlint.semantics.state import World, memoized
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import ClassKind

DENSE = TORCH.words["dense-layers"]
LONE = TORCH.words["saves-its-input"]
WIDE = 4096
"""Features of a linear layer from which on its graph is not small: 256 samples of three such layers save 13 MB."""


@memoized
def is_made_of_dense(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether every network that a function calls by a name or attribute has only linear layers, none known to be wide."""
    return all(_layers_of(world, ref, text, DENSE, WIDE))


@memoized
def is_class_of_dense(world: World, cls: ClassRef) -> bool:
    """Whether a class makes only linear layers, none known to be wide, whatever its constructor is given."""
    try:
        return _Layers(world, DENSE, WIDE).whole(cls) > 0
    except (*UNFOLLOWED, RecursionError):
        return False


@memoized
def is_one_layer(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether every network that a function calls by a name or attribute has one linear or embedding layer, of any width."""
    return set(_layers_of(world, ref, text, LONE, math.inf)) == {1}


def _layers_of(world: World, ref: FunctionRef, text: str, kinds: frozenset[str], widest: float) -> list[int]:
    """How many layers each network has; one 0 where one is not of these kinds, or is too wide."""
    try:
        return _Layers(world, kinds, widest).counts_of(ref, text)
    except (*UNFOLLOWED, RecursionError):
        return [0]


def attends(names: frozenset[str]) -> bool:
    """Whether a method's names are those of an attention, whose graph has all pairs of positions, whatever layers are around it."""
    written_out = bool(names & TORCH.words["softmax"]) and bool(names & TORCH.words["turns"])
    return written_out or TORCH.names["fused-attention"] in names


def names_of_forward(world: World, cls: ClassRef) -> frozenset[str]:
    """The names in a class's forward, and in the methods of the class whose names these are; in all methods where it has no forward."""
    methods = {facts.qualname.rpartition(".")[2]: facts.names for facts in world.project.within(cls.path, cls.qualname)}
    found = methods.pop(FORWARD, frozenset().union(*methods.values()))
    while called := found & methods.keys():
        found = found.union(*(methods.pop(name) for name in called))
    return found


class _Layers(Counter):
    """Counts the layers that a constructor makes, and ends at one of another kind."""

    def __init__(self, world: World, kinds: frozenset[str], widest: float) -> None:
        super().__init__(world)
        self.kinds = kinds
        self.widest = widest

    def count(self, value: ir.Expr, scope: Environment) -> int:
        self.made = 0
        self.value(unwrapped(value), scope)
        if not self.made:
            raise Unbounded
        return self.made

    def goes_by_default(self, param: ir.Param) -> bool:
        return param.default is not None and bool(dotted(param.default))  # a class, as of an activation

    def instance(self, cls: ClassRef, args: list[object], keywords: dict[str, object]) -> UnknownPart:
        if attends(names_of_forward(self.world, cls)):
            raise Unbounded
        return super().instance(cls, args, keywords)

    def undecided(self, statement: ir.If, scope: Environment) -> None:
        ends = 0
        for body in (statement.then, statement.orelse):
            if any(isinstance(each, ir.Raise) for each in body):
                ends += 1
                continue
            try:
                self.run(body, scope)
            except Returned:
                ends += 1
        if ends == 2:
            raise Returned(UnknownPart())

    def loop(self, target: ir.Expr, over: object, scope: Environment, turn: Callable[[], None]) -> None:
        if not isinstance(over, (list, tuple, range, str, dict)):
            self.bind(target, UnknownPart(), scope)
            turn()
            return
        super().loop(target, over, scope, turn)

    def spread(self, value: object) -> list[object]:
        return [value]

    def outside(self, name: str, args: list[object], keywords: dict[str, object]) -> object:
        if TORCH.class_kind(name) not in (ClassKind.MODULE, ClassKind.WRAPPER):
            return UnknownPart() if name in TORCH.words["parameter-classes"] else super().outside(name, args, keywords)
        last = name.rpartition(".")[2]
        if last not in self.kinds | CONTAINERS or any(self.is_wide(each) for each in (*args, *keywords.values())):
            raise Unbounded(name)
        own = int(last not in CONTAINERS)
        self.made += own
        return UnknownPart(own + sum(each.count for value in args for each in flat(value) if isinstance(each, UnknownPart)))

    def is_wide(self, size: object) -> bool:
        return isinstance(size, int) and size > self.widest
