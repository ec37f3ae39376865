"""Whether a forward only tries a network out: it is given what the code makes up, and nothing reads its result."""

from __future__ import annotations

from torchmemlint.index.facts import ArgFact
from torchmemlint.index.project import FunctionRef
from torchmemlint.rules.api import Flow
from torchmemlint.semantics.graphs import Graph
from torchmemlint.semantics.world import World
from torchmemlint.torch_facts import TORCH

FILLED = TORCH.words["filled-tensors"]
"""Functions of torch that make a tensor of a shape alone."""


def is_given_made_up(event: Graph, flow: Flow) -> bool:
    """Whether each call of a network in a function gets only tensors that the function makes of a shape (``torch.randn(1, 3, 64, 64)``),
    and constants: a warm-up, a measurement of speed, a smoke test."""
    return flow.runs.world.memoize(_is_given_made_up, (flow.frame(event.site).ref, event.what))


def _is_given_made_up(world: World, asked: tuple[FunctionRef, str]) -> bool:
    ref, what = asked
    calls = [call for call in world.facts(ref).calls if call.callee == what]
    given = [arg for call in calls for arg in call.args]
    return any(arg.name for arg in given) and all(bool(arg.const) or is_made_up(world, ref, arg) for arg in given)


def is_made_up(world: World, ref: FunctionRef, arg: ArgFact) -> bool:
    facts = world.facts(ref)
    root, dot, rest = arg.name.partition(".")
    texts = [f"{text}{dot}{rest}" for name, text in (*facts.bound, *facts.rebound) if name == root] or [arg.name]
    return all(world.project.resolve(ref.path, text.partition("()")[0], ref.qualname) in FILLED for text in texts)
