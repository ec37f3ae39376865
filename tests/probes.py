"""What the engine believes where a program says ``reveal(x)`` or ``reveal()``, in a few words.

    graph        a tensor that is attached to a graph that surely exists (on some path at least)
    graph freed  the same, and a backward of this function freed it, whether before or after this line
    maybe graph  a tensor, or anything, that may be attached to a graph
    no graph     a tensor, on no path with a graph
    number       data without a graph: numbers, strings, literals
    module …     objects by their kind: module, loss, list, dict, optimizer, …
    function     anything that is only there to be called
    unknown      nothing is known
    grad on, grad off, grad unknown     the grad mode, for ``reveal()``

Several possibilities are joined by " | ", a tuple's elements stand in parentheses.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torchmemlint.analysis import make_runs
from torchmemlint.index.module_facts import module_facts
from torchmemlint.index.project import ClassRef, FunctionRef, Project
from torchmemlint.index.query_log import queries_and_notes
from torchmemlint.lower import ir
from torchmemlint.project.settings import Settings
from torchmemlint.semantics.roots.runs import Runs
from torchmemlint.semantics.state.dispatch import evaluate
from torchmemlint.semantics.state.flow_state import Meter, Mode, State
from torchmemlint.semantics.state.machine import Machine
from torchmemlint.semantics.state.record import Record
from torchmemlint.semantics.state.values import Const, Obj, Plain, Tensor, Tuple, Unknown, Value

PATH = "program.py"


@dataclass(slots=True)
class Looks:
    """Every state in which each ``reveal`` of a run was reached; those of a loop's first passes are true of its first turns."""

    run: Machine
    seen: dict[tuple[int, int], set[tuple[Value | None, str]]] = field(default_factory=dict)

    def look(self, run: Machine, statement: ir.Stmt, state: State) -> None:
        if not isinstance(statement, ir.ExprStmt) or not isinstance(statement.value, ir.Call):
            return
        call = statement.value
        if isinstance(call.func, ir.Name) and call.func.id == "reveal":
            value = evaluate(run, call.args[0].value, state.copy()) if call.args else None
            self.seen.setdefault((run.frame, statement.node), set()).add((value, state.mode))


class ProbedRuns(Runs):
    """Runs that are looked into."""

    def __init__(self, runs: Runs) -> None:
        super().__init__(runs.world)
        self.looks: list[Looks] = []

    def _machine(
        self, ref: FunctionRef, mode: Mode, meter: Meter, assumptions: tuple[tuple[str, bool], ...], owner: ClassRef | None
    ) -> Machine:
        run = super()._machine(ref, mode, meter, assumptions, owner)
        looks = Looks(run)
        run.watch = looks.look
        self.looks.append(looks)
        return run


def revealed(text: str, roots: tuple[str, ...] = ()) -> dict[int, set[str]]:
    """Row of each ``reveal`` → what was believed there, over all calls and phases of these root functions (of all that are in
    no other function, when none are given)."""
    facts = module_facts(PATH, text)
    project = Project.build([facts])
    runs = ProbedRuns(make_runs(project, Settings(), lambda _: text))
    records = [
        record
        for function in facts.functions
        if function.qualname in roots or (not roots and not function.parent)
        for record in runs.records(FunctionRef(PATH, function.qualname))
    ]
    out: dict[int, set[str]] = {}
    for looks in runs.looks:
        record = looks.run.record
        if not any(record is one for one in records):
            continue  # a first run, which only found the phases
        for (frame, node), states in looks.seen.items():
            ref = record.frames[frame].ref
            outermost = runs.world.outermost(ref).qualname
            row = runs.world.lowered(ref.path, outermost).span(node).start.row
            words = out.setdefault(row, set())
            for value, mode in states:
                words |= {f"grad {mode}"} if value is None else words_of(value, looks.run, record)
    notes = queries_and_notes(runs.world.query_log.current)[1]
    assert not notes, notes
    return out


def words_of(value: Value, run: Machine, record: Record) -> set[str]:
    words = set()
    for atom in value:
        match atom:
            case Tensor():
                words.add(graph_word(atom, record))
            case Unknown():
                words.add("maybe graph" if atom.hints else "unknown")
            case Const() | Plain():
                words.add("number")
            case Tuple():
                parts = (" | ".join(sorted(words_of(item, run, record))) for item in atom.items)
                words.add(f"({', '.join(parts)})")
            case Obj():
                kind = run.heap[atom.oid].kind
                words.add("unknown" if kind == "thing" else kind)
            case _:
                words.add("function")
    return words


def graph_word(atom: Tensor, record: Record) -> str:
    kinds = {gid: record.graphs[gid].kind for gid in atom.graphs | atom.hints}
    graphs = {gid for gid, kind in kinds.items() if kind in ("forward", "leaf", "opaque", "param")}
    real = {gid for gid in graphs & atom.graphs if record.real(gid)}
    if real:
        return "graph freed" if real <= record.freed else "graph"
    return "maybe graph" if any(not record.graphs[gid].frozen for gid in graphs) else "no graph"
