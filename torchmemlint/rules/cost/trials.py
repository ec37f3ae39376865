"""Whether a forward only tries a network out: it is given what the code makes up, or the network has no weights yet."""

from __future__ import annotations

from torchmemlint.index.facts import ArgFact
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.rules.api import Flow
from torchmemlint.rules.evidence.demand import is_unread
from torchmemlint.semantics.roots import Fate
from torchmemlint.semantics.state import MODULE, Graph, RecordFlag, World, memoized
from torchmemlint.torch_facts import TORCH

FILLED = TORCH.words["filled-tensors"]
"""Functions of torch that make a tensor of a shape alone."""


def why_tried_out(event: Graph, fate: Fate, flow: Flow) -> str:
    """Why a forward only tries its network out, in words."""
    if fate.never_read and is_unread(event, flow) and is_given_made_up(flow.runs.world, flow.frame(event.site).ref, event.what):
        return "on made-up input"
    return "which has no weights of a training" if is_self_test(event, flow) else ""


@memoized
def is_given_made_up(world: World, ref: FunctionRef, what: str) -> bool:
    """Whether each call of a network in a function gets only tensors that the function makes of a shape (``torch.randn(1, 3, 64, 64)``),
    and constants: a warm-up, a measurement of speed, a smoke test."""
    calls = [call for call in world.facts(ref).calls if call.callee == what]
    given = [arg for call in calls for arg in call.args]
    return any(arg.name for arg in given) and all(bool(arg.const) or is_made_up(world, ref, arg) for arg in given)


def is_made_up(world: World, ref: FunctionRef, arg: ArgFact) -> bool:
    facts = world.facts(ref)
    root, dot, rest = arg.name.partition(".")
    texts = [f"{text}{dot}{rest}" for name, text in (*facts.bound, *facts.rebound) if name == root] or [arg.name]
    return all(world.project.resolve(ref.path, text.partition("()")[0], ref.qualname) in FILLED for text in texts)


GETS_WEIGHTS = TORCH.words["gets-weights"]
"""Words of code that gives a network the weights of a training, or an option that says which."""
LOADS = frozenset(f"{name}()" for name in TORCH.words["loads-tensors"])
IS_RUN = "__name__"
"""In the test under which a file's own statements run when it is started."""


def is_self_test(event: Graph, flow: Flow) -> bool:
    """Whether a file that defines networks tries one out when it is started, in its own statements or a function without parameters,
    and neither trains it nor gives it weights: nobody waits for what an untrained network predicts."""
    root, world = flow.record.root, flow.runs.world
    if root.qualname != MODULE and world.header(root).params:
        return False
    facts, own = world.facts(root), world.facts(FunctionRef(root.path, MODULE))
    if RecordFlag.BACKWARD in flow.record.flags or (facts.names | own.names) & GETS_WEIGHTS:
        return False
    if any(name == event.what and text in LOADS for name, text in (*facts.bound, *facts.rebound)):
        return False
    if any(arg.name == event.what for call in facts.calls for arg in call.args):
        return False  # what gets the network may train it, or restore it
    if root.qualname == MODULE:
        calls = [call for call in world.facts(root).calls if call.callee == event.what]
    else:
        callers = world.project.callers(root)
        calls = [] if callers.escapes else [caller.call for caller in callers.calls]
        if any(caller.ref != FunctionRef(root.path, MODULE) for caller in callers.calls):
            return False
    if not calls or not all(any(IS_RUN in test for test in call.branch) for call in calls):
        return False
    return any(world.is_module_class(ClassRef(root.path, facts.qualname)) for facts in world.project.module(root.path).classes)
