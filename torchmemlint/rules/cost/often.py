"""How often the program comes to a place: a known number of iterations, once, a few times."""

from __future__ import annotations

import math
from collections.abc import Collection

from torchmemlint.lower import ir
from torchmemlint.lower.ways import behind
from torchmemlint.lower.written import dotted
from torchmemlint.rules.api import Flow
from torchmemlint.rules.cost.size import is_cut_at_once
from torchmemlint.rules.reach import is_called_in_loops
from torchmemlint.semantics.mode import is_exit
from torchmemlint.semantics.state import Graph, RecordFlag, Site

Loop = tuple[int, int]
FEW = 10
"""Iterations up to which what runs once in a program is few: a warm-up."""


def turns_of(loops: Collection[Loop], flow: Flow) -> int:
    """How many iterations these loops have together, one inside the other; -1 where that is not known."""
    known = flow.record.loops
    turns = [known[loop].turns if loop in known else -1 for loop in loops]
    return math.prod(turns) if turns and min(turns) >= 0 else -1


def why_once(event: Graph, flow: Flow) -> str:
    """Why a program runs a forward once or a few times, in words; "" where it may run it often."""
    if ends_the_program(event.site, flow):
        return "the program ends behind it"
    if any(may_turn_often(loop, flow) for loop in event.site.loops):
        return ""
    if flow.root_is_entry():
        return "the program runs it once, or a few times"
    ends = RecordFlag.BACKWARD not in flow.record.flags and bool(flow.runs.world.project.callers(flow.record.root).calls)
    alone = (ends or is_cut_at_once(event, flow)) and not flow.beside_backward(event)
    return "no loop runs it" if alone and not is_called_in_loops(flow.record.root, flow, epochs=False) else ""


def may_turn_often(loop: Loop, flow: Flow) -> bool:
    """Whether a loop may turn more than a few times: its body does not leave it in any case."""
    info = flow.record.loops.get(loop)
    return info is None or not (info.attempts or 0 <= info.turns <= FEW)


def ends_the_program(site: Site, flow: Flow) -> bool:
    """Whether what follows in the block of a statement ends the program."""
    lowered, world = flow.lowered(site), flow.runs.world
    body = lowered.functions[next(iter(lowered.functions))].body
    following = [each.value for each in behind(body, site.node) if isinstance(each, ir.ExprStmt)]
    called = [dotted(value.func) for value in following if isinstance(value, ir.Call)]
    return any(is_exit(world, flow.frame(site).ref, text) for text in called)
