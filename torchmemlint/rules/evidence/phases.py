"""Which callers ask for the phase that a run assumes, each in its grad mode."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchmemlint.findings import FlowStep
from torchmemlint.index.arguments import argument_for
from torchmemlint.index.facts import CallFact, FunctionFacts
from torchmemlint.index.modes import StartMode
from torchmemlint.index.project import FunctionRef
from torchmemlint.rules.api import Flow, short
from torchmemlint.rules.evidence.wanted_graphs import GUARDS
from torchmemlint.semantics.roots import MAX_CALLER_DEPTH, MAX_CALLERS
from torchmemlint.semantics.state import Mode, World


def is_asked_without_grad(flow: Flow) -> bool:
    """Whether the run assumes a value of a parameter that visible callers ask for, and all that do switch grad mode off around the
    call: those that ask for the other value say nothing of this phase. A method's callers may be calls of its name on objects of
    which the class is not known."""
    record, world = flow.record, flow.runs.world
    root = world.facts(record.root)
    for test, value in assumed_of_callers(flow):
        asking = [
            (ref, call)
            for ref, call in calls_of(world, record.root, root)
            if asked_for(root, test, call) in (value, None)
        ]  # fmt: skip
        if asking and all(is_guarded(world, ref, call) for ref, call in asking):
            return True
    return False


IS_NONE = re.compile(r"(\w+) is (not )?None")


def assumed_of_callers(flow: Flow) -> Iterator[tuple[str, bool]]:
    """The values that a run assumes of the root's parameters, or of tests whether they are None."""
    params = {param.name for param in flow.runs.world.facts(flow.record.root).params}
    for key, value in flow.record.assumptions:
        frame, _, test = key.partition(":")
        match = IS_NONE.fullmatch(test)
        if not int(frame) and (match[1] if match is not None else test) in params:
            yield test, value


def left_out_by_callers(flow: Flow) -> str:
    """A parameter of which a run assumes that it is None, though every visible caller gives something else for it that may be anything;
    "" where there is none."""
    root = flow.runs.world.facts(flow.record.root)
    for test, value in assumed_of_callers(flow):
        match = IS_NONE.fullmatch(test)
        if match is None or value is bool(match[2]):
            continue
        calls = [call for _, call in calls_of(flow.runs.world, flow.record.root, root)]
        if calls and all(asked_for(root, test, call) is not value for call in calls):
            return match[1]
    return ""


def asking_with_grad(flow: Flow) -> Iterator[FlowStep]:
    """The calls that ask for the phase which the run assumes, with grad mode on: a guard may stand there. They may do so through
    functions that hand the parameter on."""
    record, world = flow.record, flow.runs.world
    asked = [
        (record.root, test, value)
        for key, value in record.assumptions
        for frame, _, test in (key.partition(":"),)
        if frame == "0" and test in {param.name for param in world.facts(record.root).params}
    ]
    for _ in range(MAX_CALLER_DEPTH):
        above = []
        for ref, parameter, value in asked:
            callers = world.project.callers(ref).calls
            for caller in callers if len(callers) <= MAX_CALLERS else ():
                facts = world.facts(ref)
                given = asked_for(facts, parameter, caller.call)
                arg = argument_for(facts.params[bool(facts.owner) :], parameter, caller.call.args)
                if given is value:
                    yield from steps_with_grad(flow, caller.ref, ref)
                elif given is None and arg is not None and arg.name in {p.name for p in world.facts(caller.ref).params}:
                    above.append((caller.ref, arg.name, value))
        asked = list(dict.fromkeys(above))


def steps_with_grad(flow: Flow, caller: FunctionRef, callee: FunctionRef) -> Iterator[FlowStep]:
    """Where a function calls another with grad mode on."""
    name = short(callee.qualname)
    for record in flow.runs.records(flow.runs.root_of(caller)):
        there = Flow(flow.runs, record, caller.path)
        calls = [call for call in record.fates if call.callee == callee and call.mode is Mode.ON and there.own(call.site)]
        yield from (there.step(call.site, f"`{name}` is called here with grad mode on") for call in calls)


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
    """The value that a call gives for a parameter, or leaves it at, or how a test whether that is None comes out; None where it is no
    literal."""
    params = facts.params[bool(facts.owner) :]
    match = IS_NONE.fullmatch(parameter)
    parameter = match[1] if match is not None else parameter
    arg = argument_for(params, parameter, call.args)
    if arg is None and any(one.keyword in ("*", "**") for one in call.args):
        return None
    text = arg.const if arg is not None else next(param.default for param in facts.params if param.name == parameter)
    if match is not None:
        return None if not text else (text == "None") is not bool(match[2])
    return {"True": True, "False": False, "None": False}.get(text)


def is_guarded(world: World, ref: FunctionRef, call: CallFact) -> bool:
    """Whether a call runs with grad mode off, by what stands around it or by its function."""
    if any(use.callee.rpartition(".")[2] in GUARDS for use in call.managers):
        return True
    return world.project.grad_mode(ref).mode == StartMode.OFF
