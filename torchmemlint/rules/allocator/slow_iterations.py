"""What each iteration of a loop does beside which one call of the allocator costs little."""

from __future__ import annotations

import re

from torchmemlint.index.facts import CallFact, FunctionFacts
from torchmemlint.index.project import FunctionRef
from torchmemlint.rules.api import Flow, short
from torchmemlint.rules.retention.claims import is_over_parts
from torchmemlint.semantics.state import Backward, CallEffect, GraphKind
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import CallByName

SAVES_PICTURE = ".fromarray().save"
MAX_CALLEES = 4
"""Functions that a call may mean, each of which is looked at."""


def why_little(event: CallEffect, flow: Flow) -> str:
    """What an iteration does beside which the call costs little, in words; "" where nothing is known."""
    many = generates(event, flow)
    if many:
        return f"each iteration runs `{many}`, a loop of forwards of its own"
    writer = writes_picture(event, flow)
    return f"each iteration also writes a picture, by `{writer}`" if writer else ""


def writes_picture(event: CallEffect, flow: Flow) -> str:
    """The call by which each iteration of the loop writes a picture to a file, itself or in a function of the project, where nothing
    trains; "" where there is none."""
    around = event.site.loops
    if not around or around[-1][0] != event.site.frame or any(is_training(e) for e in flow.record.events.values()):
        return ""
    ref = flow.frame(event.site).ref
    world = flow.runs.world
    for call in calls_in(around[-1], event, flow):
        if now_and_then(call):
            continue
        callees = world.project.callees(ref.path, ref.qualname, call.callee, *call.keywords).refs
        inside = (inner for each in callees[:MAX_CALLEES] for inner in world.facts(each).calls if not now_and_then(inner))
        if is_writer(call) or any(map(is_writer, inside)):
            return short(call.callee)
    return ""


def now_and_then(call: CallFact) -> bool:
    """Whether a test of a count or a size lets a call through: not in each iteration."""
    return any(COMPARES.search(test) for test in call.branch)


COMPARES = re.compile(r"[%<>]|==|\bfirst\b")


def is_writer(call: CallFact) -> bool:
    """Whether a call writes a picture: ``cv2.imwrite(path, image)``, ``Image.fromarray(image).save(path)``."""
    return call.callee.rpartition(".")[2] in TORCH.words["writes-pictures"] or call.callee.endswith(SAVES_PICTURE)


def generates(event: CallEffect, flow: Flow) -> str:
    """What each iteration of the loop, or each call of a method, runs for many steps, where nothing trains, itself or in a function of
    the project; "" where there is none."""
    record, around = flow.record, event.site.loops
    if around and around[-1][0] != event.site.frame:
        return ""
    if any(is_training(e) and e.site.loops[: len(around)] == around for e in record.events.values()):
        return ""
    inside = [
        graph
        for graph in (*record.graphs.values(), *record.forwards.values())
        if (graph.kind is GraphKind.FORWARD or graph.direct)
        and len(graph.site.loops) > len(around)
        and graph.site.loops[: len(around)] == around
        and not is_over_parts(flow, graph.site.loops[-1], (graph,))
    ]
    if inside:
        return short(inside[0].what)
    ref, world = flow.frame(event.site).ref, flow.runs.world
    for call in calls_in(around[-1], event, flow) if around else []:
        callees = world.project.callees(ref.path, ref.qualname, call.callee, *call.keywords).refs[:MAX_CALLEES]
        if runs_many(call, ref, flow) or any(
            runs_many(inner, each, flow) for each in callees for inner in world.facts(each).calls
        ):
            return short(call.callee)
    return ""


def runs_many(call: CallFact, ref: FunctionRef, flow: Flow) -> bool:
    """Whether a call runs a network many times, by its name, or of another package's by an argument that says in how many parts, or
    steps, or by what is taken of its result (``pipe(**options).images``)."""
    if call.callee.rpartition(".")[2] in TORCH.words["loop-of-forwards"]:
        return True
    if gives_what_pipelines_give(f"{call.callee}()", flow.runs.world.facts(ref)):
        return True
    asked = {arg.keyword for arg in call.args}
    return not (
        asked.isdisjoint(TORCH.words["counts-forwards"])
        or flow.runs.world.project.callees(ref.path, ref.qualname, call.callee).refs
        or flow.runs.world.project.methods_named(call.callee.rpartition(".")[2])
    )


def gives_what_pipelines_give(call: str, facts: FunctionFacts) -> bool:
    """Whether a function reads of what a call gives, or of the name that it gives it, what a pipeline of networks calls its results."""
    bound = (*facts.bound, *facts.rebound)
    owners = {call, *(name for name, text in bound if text == call)}
    texts = {*facts.reads, *(text for _, text in bound), *(each.callee for each in facts.calls)}
    parts = {f"{owner}.{part}" for owner in owners for part in TORCH.words["given-by-pipelines"]}
    return any(text.partition("[")[0] in parts or text.startswith(tuple(f"{part}." for part in parts)) for text in texts)


def is_training(event: object) -> bool:
    """Whether an event is a backward, or an optimizer's step."""
    return isinstance(event, Backward) or (isinstance(event, CallEffect) and event.effect is CallByName.OPTIMIZER_STEP)


def calls_in(loop: tuple[int, int], event: CallEffect, flow: Flow) -> list[CallFact]:
    """The calls in the body of a loop, given by its frame and node, around the event in the event's own function."""
    span = flow.span(event.site, loop[1])
    facts = flow.runs.world.facts(flow.frame(event.site).ref)
    around = event.site.loops
    depth = sum(frame == event.site.frame for frame, _ in around[: around.index(loop) + 1])
    places = zip(facts.calls, facts.call_places, strict=True)
    return [call for call, place in places if call.loops >= depth and span.start < place.end <= span.end]
