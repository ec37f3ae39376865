"""The names that a function gives to what an environment answers: ``obs, info = env.reset()``, ``obs, reward, … = env.step(action)``."""

from __future__ import annotations

from torchmemlint.index.project import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.walk import nodes_of
from torchmemlint.lower.written import dotted
from torchmemlint.semantics.state import World, memoized
from torchmemlint.torch_facts import TORCH

STEPS = TORCH.words["environment-steps"]
STARTS = TORCH.words["environment-starts"]


@memoized
def observations(world: World, ref: FunctionRef) -> frozenset[str]:
    """The first of what each step of an environment answers, and what it is bound to again, as dotted text; nothing where the function
    steps none."""
    assigned = [node for node in nodes_of(world.body(world.outermost(ref))) if isinstance(node, ir.Assign)]
    acted = [
        node.value
        for node in assigned
        if any(isinstance(target, ir.Sequence) for target in node.targets)
        and isinstance(node.value, ir.Call)
        and node.value.args
    ]
    stepped = {receiver(value, STEPS) for value in acted} - {""}
    if not stepped:
        return frozenset()
    names = {first(node) for node in assigned if receiver(node.value, STEPS | STARTS) in stepped}
    names |= {first(node) for node in assigned if dotted(node.value) in names}
    return frozenset(names - {""})


def receiver(value: ir.Expr, methods: frozenset[str]) -> str:
    """The object of which one of these methods is called, as dotted text; "" for any other value."""
    owner, _, method = dotted(value.func).rpartition(".") if isinstance(value, ir.Call) else ("", "", "")
    return owner if method in methods else ""


def first(node: ir.Assign) -> str:
    """The name or attribute that is assigned, the first of several."""
    target = node.targets[0]
    if isinstance(target, ir.Sequence):
        return dotted(target.items[0]) if target.items else ""
    return dotted(target)
