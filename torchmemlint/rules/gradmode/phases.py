"""Which callers ask for the phase that a run assumes, and in which grad mode they do."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.index.arguments import argument_for
from torchmemlint.index.facts import CallFact, FunctionFacts
from torchmemlint.index.modes import StartMode
from torchmemlint.index.project import FunctionRef
from torchmemlint.rules.api import Flow
from torchmemlint.rules.gradmode.wanted_graphs import GUARDS
from torchmemlint.semantics.runs import MAX_CALLERS
from torchmemlint.semantics.world import World


def is_asked_without_grad(flow: Flow) -> bool:
    """Whether the run assumes a value of a parameter that callers in sight ask for, and all that do switch grad mode off around the
    call: those that ask for the other value say nothing of this phase. A method's callers may be calls of its name on objects of
    which the class is not known."""
    record, world = flow.record, flow.runs.world
    root = world.facts(record.root)
    params = {param.name for param in root.params}
    for key, value in record.assumptions:
        frame, _, test = key.partition(":")
        if int(frame) or test not in params:
            continue
        asking = [
            (ref, call)
            for ref, call in calls_of(world, record.root, root)
            if asked_for(root, test, call) in (value, None)
        ]  # fmt: skip
        if asking and all(is_guarded(world, ref, call) for ref, call in asking):
            return True
    return False


def calls_of(world: World, ref: FunctionRef, facts: FunctionFacts) -> Iterator[tuple[FunctionRef, CallFact]]:
    """The calls that reach a function, and those of a method's name on objects of no known class."""
    found = world.project.callers(ref).calls[:MAX_CALLERS]
    known = {caller.ref for caller in found}
    yield from ((caller.ref, caller.call) for caller in found)
    name = ref.qualname.rpartition(".")[2]
    for caller, receiver, _ in world.project.calls_by_name(name) if facts.owner else ():
        if caller in known or world.project.class_of(caller.path, caller.qualname, receiver) is not None:
            continue
        words = {param.name for param in facts.params}
        for call in world.facts(caller).calls:
            if call.callee == f"{receiver}.{name}" and words.issuperset(call.keywords):
                yield caller, call


def asked_for(facts: FunctionFacts, parameter: str, call: CallFact) -> bool | None:
    """The value that a call gives for a parameter, or leaves it at; None where it is no literal."""
    params = facts.params[bool(facts.owner) :]
    arg = argument_for(params, parameter, call.args)
    if arg is None and any(one.keyword in ("*", "**") for one in call.args):
        return None
    text = arg.const if arg is not None else next(param.default for param in facts.params if param.name == parameter)
    return {"True": True, "False": False}.get(text)


def is_guarded(world: World, ref: FunctionRef, call: CallFact) -> bool:
    """Whether a call runs with grad mode off, by what stands around it or by its function."""
    if any(use.callee.rpartition(".")[2] in GUARDS for use in call.managers):
        return True
    return world.project.grad_mode(ref).mode == StartMode.OFF
