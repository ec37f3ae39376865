"""What is known of how a function is reached: whether anything in sight calls it, in loops, or for an environment's next action."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchmemlint.index.modes import StartMode
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.rules.api import Flow
from torchmemlint.semantics.events import Site
from torchmemlint.semantics.runs import MAX_CALLERS
from torchmemlint.semantics.world import MODULE
from torchmemlint.torch_facts import TORCH

STEPS = TORCH.words["environment-steps"]
HOOKS = TORCH.words["forward"] | TORCH.words["training-steps"] | {name for _, name in TORCH.hooks}
COMMANDS = TORCH.words["makes-commands"]
WITHOUT_CUDA = re.compile(r"^not \(*[\w.]*(cuda|gpu)(?!.*( is None|==|<))", re.IGNORECASE)
"""Tests under which no GPU is used; ``not gpu is None`` is none of them."""
MAX_DEPTH = 3
"""How far callers are followed up."""


def is_without_gpu(site: Site) -> bool:
    """Whether a statement runs under a test by which no GPU is used (``else`` of ``if use_cuda:``)."""
    return any(WITHOUT_CUDA.match(test) for test in site.guards)


def acts(ref: FunctionRef, flow: Flow, depth: int = 0) -> bool:
    """Whether a function, or one that calls it, gives an environment its next action (``state, reward, … = env.step(action)``)."""
    world = flow.runs.world
    if steps(ref, flow) or (depth and any(steps(other, flow) for other in own_methods(ref, flow))):
        return True
    callers = world.project.callers(ref).calls
    if depth == MAX_DEPTH or not callers or len(callers) > MAX_CALLERS:
        return False
    return all(caller.ref != ref and acts(caller.ref, flow, depth + 1) for caller in callers)


def steps(ref: FunctionRef, flow: Flow) -> bool:
    """Whether a function gives an environment an action itself, and takes apart what that answers."""
    return any(
        call.used == "unpacked" and call.args and call.callee.rpartition(".")[2] in STEPS and "." in call.callee
        for call in flow.runs.world.facts(ref).calls
    )


def own_methods(ref: FunctionRef, flow: Flow) -> Iterator[FunctionRef]:
    """The methods of the same class that a method calls."""
    world = flow.runs.world
    facts = world.facts(ref)
    for call in facts.calls if facts.owner else ():
        name = call.callee.removeprefix("self.")
        if name != call.callee and name.isidentifier():
            found = world.project.method(ClassRef(ref.path, facts.owner), name)
            if found is not None:
                yield found


def is_unreached(ref: FunctionRef, flow: Flow) -> bool:
    """Whether a program is visible that does not reach a function: nothing calls it or hands it on, where a script's own statements or
    its ``main`` call others of the same file, or other files call others of the same class."""
    project = flow.runs.world.project
    callers = project.callers(ref)
    if callers.calls or callers.escapes or flow.root_is_entry():
        return False
    owner, _, name = ref.qualname.rpartition(".")
    if name in HOOKS or project.grad_mode(ref).mode == StartMode.UNSEEN_BASE or (owner and project.calls_by_name(name)):
        return False  # a framework's hook, or a method that is called on an object of which the class is not known
    if any(call.callee.rpartition(".")[2] in COMMANDS for call in project.module(ref.path).functions[0].calls):
        return False
    beside = [FunctionRef(ref.path, facts.qualname) for facts in project.module(ref.path).functions if facts.owner == owner]
    return any(
        caller.ref.qualname == MODULE
        or caller.ref.qualname.rpartition(".")[2] == "main"
        or (owner and caller.ref.path != ref.path)
        for other in beside
        if other != ref
        for caller in project.callers(other).calls
    )


def is_called_in_loops(ref: FunctionRef, flow: Flow, depth: int = 0) -> bool:
    """Whether a call of a function, or of one that calls it, stands in a loop."""
    callers = flow.runs.world.project.callers(ref).calls
    return len(callers) > MAX_CALLERS or any(
        caller.call.loops or (caller.ref != ref and depth < MAX_DEPTH and is_called_in_loops(caller.ref, flow, depth + 1))
        for caller in callers
    )
