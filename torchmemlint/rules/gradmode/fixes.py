"""Where a fix may switch grad mode off: nothing back-propagates what that takes the graph from.

On no path of the function, in none of its phases, and in no caller that is visible.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from torchmemlint.findings import Edit, Fix, Position, Safety, Span
from torchmemlint.index.arguments import argument_for
from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.rules import assumed
from torchmemlint.rules.api import Flow, NoFix, holds, is_twin, short
from torchmemlint.rules.evidence.kept_attributes import may_be_left, reads_of_kept, trains_where_it_is_known, where_it_is_known
from torchmemlint.rules.evidence.module_evidence import BACKWARD
from torchmemlint.rules.gradmode.judgement import Verdict, judge
from torchmemlint.rules.gradmode.proof import with_proof
from torchmemlint.semantics.dataflow import backward_needs, backward_needs_returned, is_whole_value
from torchmemlint.semantics.identity import looks_like_module
from torchmemlint.semantics.mode import purpose
from torchmemlint.semantics.state import Graph, GraphKind, RecordFlag, Site, World, memoized
from torchmemlint.torch_facts import TORCH

OPEN = frozenset({assumed.PASSED_UNKNOWN, assumed.KEPT_UNKNOWN, assumed.LEFT_UNKNOWN, assumed.HANDED_BACK})
"""Assumptions that a finding may make, and a fix may not: what becomes of the result is not known at all."""
MAX_GUARDS = 12
"""Statements of one run of a function for which a guard is looked into."""
OF_EVERY_MODULE = frozenset(TORCH.module_methods) | TORCH.words["of-every-module"]


def guard_statement(event: Graph, flow: Flow, site: Site, message: str, call: str = "no_grad()") -> Fix | NoFix | None:
    """``with torch.no_grad():`` around a statement, or why not."""
    root = flow.record.root
    flow.guards += 1
    if flow.guards > MAX_GUARDS:
        return NoFix("the function has too many such statements to follow each")
    why = wanted_elsewhere(event, flow) or backward_needs(flow.runs.world, root, frozenset((site.node,)), True)
    fix = NoFix(why) if why else flow.edits.under_no_grad(site, message, call)
    return with_proof(fix, event, flow, site) if isinstance(fix, Fix) else fix


def why_not_function(event: Graph, flow: Flow) -> str:
    """Why grad mode cannot be switched off for the whole function; "" where it can."""
    runs = flow.runs.records(flow.record.root)
    made = frozenset(
        graph.site.node
        for record in runs
        for graph in record.graphs.values()
        if (graph.kind is GraphKind.FORWARD or graph.direct) and graph.site.frame == 0
    )
    why = wanted_elsewhere(event, flow) or backward_needs(flow.runs.world, flow.record.root, made, False)
    if why or not any(record.returned for record in runs):
        return why
    return backward_needs_returned(flow.runs.world, flow.record.root)


def above_function(ref: FunctionRef, flow: Flow, call: str, message: str) -> Fix | None:
    """A decorator of torch's above a function."""
    facts = flow.runs.world.facts(ref)
    torch_name, needed = flow.edits.torch_name(ref.path, facts.first_row)
    if torch_name is None:
        return None
    line = flow.runs.world.lines_around(ref)[facts.row - 1]
    indent = line[: len(line) - len(line.lstrip())]
    newline = line[len(line.rstrip("\r\n")) :] or "\n"
    start = Position(facts.row, len(indent) + 1)
    text = f"@{torch_name}.{call}{newline}{indent}"
    return Fix(message, Safety.UNSAFE, (Edit(Span(start, start), text),), needed)


def guard_unheld(event: Graph, flow: Flow, site: Site, message: str) -> Fix | NoFix | None:
    """As ``guard_statement``, for a network that is back-propagated into though no optimizer holds it: what else is in the
    statement, or in another phase, is trained."""
    for other in flow.runs.records(flow.record.root):
        if other is not flow.record and any(is_twin(twin, event) for twin in other.graphs.values()):
            tests = [
                holds(key.partition(":")[2], value)
                for key, value in other.assumptions
                if (key, value) not in flow.record.assumptions
            ]
            return NoFix(f"when `{short(' and '.join(tests))}`, the same statement may be trained")
    if not is_whole_value(flow.runs.world, flow.record.root, site.node):
        return NoFix("the rest of the statement is trained")
    return flow.edits.under_no_grad(site, message)


def wanted_elsewhere(event: Graph, flow: Flow) -> str:
    """Why a graph may be wanted for what the function itself does not show."""
    verdict = judge(event, flow)
    if isinstance(verdict, Verdict):
        for doubt in verdict.facts:
            if doubt in OPEN:
                return f"it may be that {doubt.unless}"
        if verdict.fate.escapes and may_be_part_of_forward(flow):
            return "the method may be part of a forward that is trained"
    read = next(chain(kept_and_read(event, flow), left_for_callers(event, flow)), "")
    return f"`{short(read)}` is read, which the forward may have set" if read else ""


def may_be_part_of_forward(flow: Flow) -> bool:
    """Whether a method of a module that does not call `eval()` may be a branch of its forward: one of the module's own methods calls
    it, or it is kept as a value; or it is named for what the network does (`classification`), and not for using it (`classify`)."""
    root, project = flow.record.root, flow.runs.world.project
    if not flow.root_is_module() or RecordFlag.EVAL in flow.record.flags:
        return False
    callers = project.callers(root)
    owner = flow.runs.world.header(root).owner
    inside = any(flow.runs.world.header(call.ref).owner == owner and call.ref != root for call in callers.calls)
    return inside or callers.escapes or purpose.words(root.qualname.rpartition(".")[2])[-1:] in (("prediction",), *DEEDS)


DEEDS = tuple((word,) for word in sorted(TORCH.words["says-deed"]))


def kept_and_read(event: Graph, flow: Flow) -> Iterator[str]:
    """What is read of the module that is called, and may be what its forward left there, where something is back-propagated."""
    asked = (flow.runs.world, flow.record.root, event.what)
    if not trains_where_it_is_known(*asked):
        return
    if event.cls is not None:
        yield from reads_of_kept(event, ClassRef(event.cls.path, event.cls.qualname), flow)
        return
    yield from _left_where_it_is_known(*asked)


@memoized
def _left_where_it_is_known(world: World, root: FunctionRef, what: str) -> list[str]:
    return [text for facts in where_it_is_known(world, root, what) for text in left_by(world, what, facts)]


def left_for_callers(event: Graph, flow: Flow) -> Iterator[str]:
    """The same for callers that back-propagate something and hand over the module, by their names for it."""
    world, root = flow.runs.world, flow.record.root
    own = world.facts(root)
    params = own.params[bool(own.owner) :]
    holders = holders_of(event, flow) if flow.own(event.site) else None
    for caller in world.project.callers(root).calls:
        facts = world.facts(caller.ref)
        for param in params if facts.names & BACKWARD else ():
            arg = argument_for(params, param.name, caller.call.args)
            rest = "" if holders is None else holders.get(param.name)
            if arg is None or not arg.name or rest is None:
                continue
            if rest != MADE_OF or looks_like_module(
                world.evidence(root).get(param.name, NOTHING) | world.evidence(caller.ref).get(arg.name, NOTHING)
            ):
                yield from left_by(world, arg.name + rest.removesuffix(MADE_OF), facts)


def holders_of(event: Graph, flow: Flow) -> dict[str, str]:
    """The parameters that may hold the module which is called, with what leads from each to it (``.model``): a forward sets attributes
    of its own module, and none of the options and tensors beside it. ``MADE_OF`` of one that the module may only be made of."""
    world, root = flow.runs.world, flow.record.root
    own = world.facts(root)
    params = [param.name for param in own.params]
    head, dot, rest = event.what.partition(".")
    texts = [text for name, text in (*own.bound, *own.rebound) if name == head]
    if own.owner and params[:1] == [head]:  # what callers hand over is no part of it, but for what the method itself puts there
        kept = world.project.attrs(ClassRef(root.path, own.owner))
        texts = [each.value for each in kept if each.method == own.qualname and each.name == rest.partition(".")[0]]
    elif head in params:
        return {head: dot + rest}
    elif not texts:  # what is called is given tensors, and is none
        given = {first_name(arg.name) for call in own.calls if call.callee == event.what for arg in call.args}
        return {name: "" for name in params if name not in given}
    makers = {text.removesuffix("()") for text in texts if text.endswith("()")}
    sources = {first_name(arg.name) for call in own.calls if call.callee in makers for arg in call.args}
    found = {name: MADE_OF for name in params if name in sources}
    return found | {name: "" for name in params if name in {first_name(text) for text in texts}}


MADE_OF = "()"
NOTHING = frozenset[str]()


def first_name(text: str) -> str:
    """The name that a text begins with: "images[]" → images."""
    return text.partition(".")[0].partition("[")[0].partition("(")[0]


def left_by(world: World, what: str, facts: FunctionFacts) -> Iterator[str]:
    """What a function reads of a module that is called, or asks it for, and may be what its forward left there."""
    start = what + "."
    asked = [call.callee for call in facts.calls if not call.args and call.callee.startswith(start)]
    ends = [text.rpartition(".")[0] for text in asked if text.rpartition(".")[2] in TORCH.methods or text.endswith(".backward")]
    for text in (*sorted(facts.reads), *asked, *ends):
        name = text.removeprefix(start)
        if name != text and name.isidentifier() and name not in OF_EVERY_MODULE and may_be_left(world, name):
            yield text
