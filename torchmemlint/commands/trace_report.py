"""The text of ``torchmemlint trace``: what the engine knows at one line, as each rule decides by it.

The file is analyzed as by ``check``, with a watcher on each statement of the line. Each combination of phases that the function was
run under gets a section; equal sections are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass

from torchmemlint import rules
from torchmemlint.analysis import analyze_module, checks_for, make_runs, roots_of
from torchmemlint.errors import UsageError
from torchmemlint.files.quoting import quoted
from torchmemlint.findings import Finding
from torchmemlint.index.edges import Caller
from torchmemlint.index.project import ClassRef, FunctionRef, Project
from torchmemlint.lower import ir
from torchmemlint.lower.written import dotted
from torchmemlint.project.settings import Settings
from torchmemlint.rules.api import Draft, Flow, short
from torchmemlint.rules.fact import Fact
from torchmemlint.rules.reach import is_of_another_framework
from torchmemlint.rules.scorecard import intercepts, points_of
from torchmemlint.semantics.roots import Runs, is_part
from torchmemlint.semantics.state import (
    CONTAINERS,
    GRAPH_KINDS,
    MODULE,
    TRAINING,
    UNKNOWN,
    Accumulate,
    Attention,
    Backward,
    CallEffect,
    Const,
    DeprecatedImport,
    Event,
    GradModeMisuse,
    Graph,
    GraphKind,
    Kind,
    LastLogits,
    Machine,
    Meter,
    Mode,
    Obj,
    OomHandler,
    Plain,
    Record,
    SinkKind,
    Site,
    State,
    Store,
    Tensor,
    TrainerMade,
    Tuple,
    Unknown,
    Value,
    join,
    normal,
    place_of,
    truth,
)
from torchmemlint.source.tolerant import Reading
from torchmemlint.suppress import apply
from torchmemlint.workers import read

START = {
    "on": "on in every visible caller",
    "off": "off in every caller",
    "mixed": "on in some callers, off in others",
    "no-callers": "assumed to be on: nothing visible calls it",
    "unseen-base": "unknown: it overrides a method of a class that is not visible",
    "escapes": "unknown: it is passed as a value",
}


@dataclass(slots=True)
class Watcher:
    """Looks at the statements of one line in one run."""

    run: Machine
    path: str
    row: int
    modes: set[str] = field(default_factory=set)
    before: dict[str, Value] = field(default_factory=dict)
    after: dict[str, Value] = field(default_factory=dict)
    last: State | None = None
    left: tuple[int, ir.Stmt] | None = None
    """The frame and the statement of the line that was run last; what it assigned shows at the frame's next statement."""

    def look(self, run: Machine, statement: ir.Stmt, state: State) -> None:
        if self.left is not None and self.left[0] == run.frame:
            self._see(self.after, targets(self.left[1]), state)
            self.left = None
        closure = run.frame_closure[run.frame]
        if closure.ref.path != self.path or not Flow(Runs(run.world), run.record, self.path).own(Site(run.frame, -1)):
            return
        root = run.record.root.qualname
        span = run.world.placed(self.path, root).header_span(statement.node)
        if span.start.row <= self.row <= span.end.row:
            self.modes.add(state.mode)
            self._see(self.before, places(statement), state)
            self.left = (run.frame, statement)

    def end(self, state: State | None) -> None:
        if self.left is not None and state is not None and not isinstance(self.left[1], ir.Return | ir.Raise):
            self._see(self.after, targets(self.left[1]), state)

    def _see(self, into: dict[str, Value], exprs: Iterable[ir.Expr], state: State) -> None:
        self.last = state.copy()
        for expr in exprs:
            value = self._value(expr, state)
            if value is not None:
                into[dotted(expr)] = join(into.get(dotted(expr), frozenset()), value)

    def _value(self, expr: ir.Expr, state: State) -> Value | None:
        """What a name or attribute holds, as far as the state has it: looking must not make the engine learn anything."""
        if isinstance(expr, ir.Name):
            return state.vars.get(place_of(self.run, expr.id))
        if isinstance(expr, ir.Attr):
            held = self._value(expr.value, state) or frozenset()
            found = [state.vars[a.oid, expr.name] for a in held if isinstance(a, Obj) and (a.oid, expr.name) in state.vars]
            return frozenset().union(*found) if found else None
        return None


class WatchedRuns(Runs):
    """Runs that are looked at while they go on."""

    def __init__(self, runs: Runs, path: str, row: int) -> None:
        super().__init__(runs.world)
        self.place = (path, row)
        self.watchers: list[Watcher] = []

    def _machine(
        self, ref: FunctionRef, mode: Mode, meter: Meter, assumptions: tuple[tuple[str, bool], ...], owner: ClassRef | None
    ) -> Machine:
        run = super()._machine(ref, mode, meter, assumptions, owner)
        if ref.path == self.place[0]:
            self.watchers.append(Watcher(run, *self.place))
            run.watch = self.watchers[-1].look
        return run


def unread(path: str, reading: Reading | None) -> list[str]:
    """What of the file could not be parsed, so that the analysis knows nothing of it."""
    if reading is None or reading.is_of_older_python:
        return []
    first = reading.troubles[0]
    return [f"{quoted(path)}:{first.row}:{first.column}: cannot parse: {reading.message}"]


def trace(project: Project, path: str, row: int, settings: Settings) -> str:
    """What is known at a line, as text. Raises SourceError for a file that cannot be read, UsageError for a line that is not there."""
    source = read(path)
    reading = source.reading(project.module(path).recovered)
    text = source.text if reading is None else reading.text
    runs = WatchedRuns(make_runs(project, settings, lambda other: read(other).text), path, row)
    lines = runs.world.lines(path)
    if row > len(lines):
        raise UsageError(f"{quoted(path)}:{row}: the file has {len(lines)} line{'' if len(lines) == 1 else 's'}")
    analysis = analyze_module(project, path, settings, runs)
    ref = function_at(project, path, row)
    root = runs.world.outermost(ref)
    own = lines if reading is None else reading.given.split("\n")
    out = [f"{quoted(path)}:{row}: {own[row - 1].strip()}".rstrip(), *unread(path, reading), *grad_mode(runs, ref)]
    asked = not is_of_another_framework(project, path) and root in set(
        roots_of(project, path, runs, checks_for(frozenset(settings.codes), beside=True))
    )
    found = Found(analysis.findings, apply(analysis.findings, text, settings, path, also=analysis.also), settings.codes, asked)
    records = runs.records(root)
    sections: dict[tuple[str, ...], list[str]] = {}
    for record in records:
        watcher = next(w for w in runs.watchers if w.run.record is record)
        watcher.end(record.final)
        phase = " and ".join(f"`{test.partition(':')[2] or test}` is {value}" for test, value in record.assumptions)
        sections.setdefault(tuple(section(runs, record, watcher, found)), []).append(phase)
    for lines_of_section, phases in sections.items():
        if any(phases) and len(sections) > 1:
            out += ["", f"assuming {', or '.join(phases)}"]
        out += lines_of_section
    if not records:
        out += ["", *(f"note: {note}" for note in analysis.notes or ["the analysis could not run this function"])]
    return "\n".join([*out, *analysis.crashes]) + "\n"


def function_at(project: Project, path: str, row: int) -> FunctionRef:
    """The innermost function around a row."""
    around = [f for f in project.module(path).functions if f.qualname != MODULE and f.first_row <= row <= f.end_row]
    return FunctionRef(path, max(around, key=lambda f: f.first_row).qualname if around else MODULE)


def grad_mode(runs: Runs, ref: FunctionRef) -> list[str]:
    """In which function the line is, in which grad mode that starts, and through which calls."""
    if ref.qualname == MODULE:
        return ["at module level; grad mode starts on"]
    found = runs.world.project.grad_mode(ref)
    start = "assumed to be on: nothing visible calls the last of these callers" if found.path and found.assumed else ""
    out = [
        f"in `{ref.qualname}`; grad mode at its start is {start if found.mode == 'no-callers' and start else START[found.mode]}"
    ]
    for caller in found.path:
        likely = "" if caller.certain else ", if the method is this one"
        out.append(f"  called by `{caller.ref.qualname}` ({quoted(caller.ref.path)}:{_row_of(runs, caller)}){likely}")
    return out


def _row_of(runs: Runs, caller: Caller) -> int:
    facts = runs.world.facts(caller.ref)
    # Of a name that is defined several times, facts are those of one definition.
    same = caller.call.place < len(facts.calls) and facts.calls[caller.call.place] == caller.call
    return facts.call_places[caller.call.place].row if same else facts.row


@dataclass(frozen=True, slots=True)
class Found:
    """The file's findings: all that were reported, those left after suppression, and the codes that are on; whether a run asks the
    rules of this function at all."""

    reported: list[Finding]
    kept: list[Finding]
    codes: frozenset[str] | tuple[str, ...]
    asked: bool

    def verdict(self, draft: Draft) -> str:
        """Whether a finding is reported, suppressed or disabled."""
        one = draft.finding

        def among(findings: Iterable[Finding]) -> bool:
            return any((f.code, f.path, f.span) == (one.code, one.path, one.span) for f in findings)

        if among(self.kept):
            confidence = f", {one.confidence.value} confidence, unless {one.unless}" if one.unless else ""
            return f"{one.code} {one.severity.value}{confidence}: {one.message}"
        if one.code not in self.codes:
            return f"{one.code} would report this, but is not selected: {one.message}"
        if among(self.reported):
            return f"{one.code} is suppressed here by a comment or the configuration: {one.message}"
        if not self.asked:
            return f"{one.code} does not check this function, which uses none of the names that point to a mistake; it would report: {one.message}"
        other = next((f for f in self.reported if f.function == one.function and f.path == one.path), None)
        cover = f"{other.code} on line {other.span.start.row}" if other is not None else "another finding of this function"
        return f"{one.code} is covered by {cover}: {one.message}"


def section(runs: Runs, record: Record, watcher: Watcher, found: Found) -> Iterator[str]:
    """What one record says about the line."""
    flow = Flow(runs, record, watcher.path)
    words = Words(flow, watcher)
    if not watcher.modes:
        yield from ("", "no statement runs on this line: it is empty, or never reached")
    else:
        yield from ("", f"grad mode here: {' or '.join(sorted(watcher.modes))}")
    for title, values in (("before", watcher.before), ("after", watcher.after)):
        lines = [f"  {name}: {words.value(value)}" for name, value in sorted(values.items())]
        if lines:
            yield from (title, *lines)
    made = [g for g in [*record.graphs.values(), *record.forwards.values()] if g.kind in GRAPH_KINDS and not is_part(record, g)]
    events = [e for e in [*record.events.values(), *made] if words.here(e.site)]
    happens = sorted({line for e in events if (line := words.event(e))} | set(words.sinks()))
    if happens:
        yield from ("here", *(f"  {line}" for line in happens))
    verdicts: dict[str, None] = {}
    reasons: dict[str, None] = {}
    for event in events:
        for module in rules.modules():
            code = module.RULE.code
            if not hasattr(module, "check") or not isinstance(event, module.EVENT):
                continue
            for answer in module.check(event, flow):
                if isinstance(answer, Fact):
                    verdicts[f"{code} does not report it: {answer.words} ({answer.name}, {answer.known_by})"] = None
                elif event not in record.forwards.values():
                    verdicts[found.verdict(answer)] = None
                    reason = flow.why_not_run(event.site)
                    if reason is not None:
                        reasons[f"{reason.words} ({reason.why}, known by: {reason.known_by})"] = None
    if reasons:
        yield from ("does not run", *(f"  {line}" for line in reasons))
    yield from ("rules", *(f"  {line}" for line in sorted(verdicts) or ["none: no rule checks anything here"]))
    for finding, facts in flow.weighed:
        yield from evidence(finding, facts)


def evidence(finding: Finding, facts: Iterable[Fact]) -> Iterator[str]:
    """What a finding rests on: each fact, how it is known, and its points; the sum is the log-odds that it is not false."""
    yield f"evidence for {finding.code} on line {finding.span.start.row}: {finding.probability:.0%} not false"
    rows = [(points, name) for name, points in intercepts(finding.code)]
    rows += [
        (points_of(fact.name), f"{fact.name} ({fact.known_by}): {fact.words or f'unless {fact.unless}'}")
        for fact in sorted(set(facts))
    ]
    yield from (f"  {points:+.1f}  {text}" if points else f"        {text}" for points, text in rows)


MAX_NAMED = 6
"""Graphs, and kinds of values, that are named for one value: a dict of everything may hold a hundred."""


def some(texts: list[str]) -> list[str]:
    """The first of a list, and how many the others are, where they are two at least."""
    return texts if len(texts) <= MAX_NAMED + 1 else [*texts[:MAX_NAMED], f"{len(texts) - MAX_NAMED} more"]


@dataclass(slots=True)
class Words:
    """What is known from one record, in words."""

    flow: Flow
    watcher: Watcher

    def at(self, site: Site) -> str:
        path = self.flow.frame(site).ref.path
        row = self.flow.span(site).start.row
        return f"line {row}" if path == self.flow.path else f"{quoted(path)}:{row}"

    def here(self, site: Site) -> bool:
        """Whether something happens in a statement of the line, or in a function that the statement calls."""
        if site.node < 0:
            return False
        call = site if self.flow.own(site) else self.flow.own_call(site)[0]
        if call.node < 0 or self.flow.frame(call).ref.path != self.flow.path:
            return False
        span = self.flow.lowered(call).statement(call.node)[0]
        return bool(span.start.row <= self.watcher.row <= span.end.row)

    def value(self, value: Value, depth: int = 2) -> str:
        texts = sorted({self._atom(atom, depth) for atom in normal(value)})
        return " or ".join(some(texts)) or "nothing"

    def _atom(self, atom: object, depth: int) -> str:
        run, state = self.watcher.run, self.watcher.last
        match atom:
            case Tensor():
                return "tensor, " + self._graphs(atom.graphs, atom.hints)
            case Unknown():
                return "unknown, " + self._graphs(frozenset(), atom.hints) if atom.hints else "unknown"
            case Const():
                return repr(atom.value)
            case Plain():
                return "data without a graph"
            case Tuple():
                return f"({', '.join(self.value(item, depth - 1) if depth else '…' for item in atom.items)})"
            case Obj():
                info = run.heap[atom.oid]
                kind = "unknown object" if info.kind is Kind.THING else info.kind
                details = [f"of class {info.cls.qualname if isinstance(info.cls, ClassRef) else info.cls}"] if info.cls else []
                if state is not None and info.kind in CONTAINERS and depth:
                    inner = frozenset(a for item in run.contents(atom.oid, state) for a in item)
                    details.append(f"holds {self.value(inner, depth - 1)}" if inner else "is empty")
                if state is not None and (training := truth(state.vars.get((atom.oid, TRAINING), UNKNOWN))) is not None:
                    details.append("in training mode" if training else "in evaluation mode")
                if state is not None and run.frozen(atom.oid, state):
                    details.append("all parameters frozen")
                return ", ".join([kind, *details])
            case _:
                return "callable"

    def _graphs(self, gids: frozenset[int], hints: frozenset[int]) -> str:
        record = self.flow.record
        graphs = [record.graphs[g] for g in sorted(gids | hints) if record.graphs[g].kind in GRAPH_KINDS]
        real = [g for g in graphs if g.gid in gids and record.real(g.gid)]
        if real:
            return "belongs to the graph of " + self.graphs(real)
        maybe = [g for g in graphs if not g.frozen]
        return "may belong to the graph of " + self.graphs(maybe) if maybe else "no graph"

    def graphs(self, graphs: Iterable[Graph]) -> str:
        texts = dict.fromkeys(f"`{short(g.what)}` ({self.place(g)}{self.passed_back(g.gid)})" for g in graphs)
        return "; ".join(some([*texts]))

    def place(self, graph: Graph) -> str:
        return self.at(graph.site) if graph.site.node >= 0 else "from outside"

    def passed_back(self, *gids: int) -> str:
        """By which lines a backward goes through the graph, and whether its saved tensors are freed."""
        record = self.flow.record
        backwards = [e for e in record.events.values() if isinstance(e, Backward)]
        through = [e for e in backwards if record.ancestors(e.graphs | e.hints) & {*gids}]
        if not through:
            return ""
        lines = ", ".join(sorted({self.at(e.site) for e in through}, key=lambda text: (len(text), text)))
        return f", back-propagated at {lines}" + ("" if {*gids} & record.freed else ", not certainly freed")

    def event(self, event: Event | Graph) -> str:
        match event:
            case Accumulate():
                return f"adds to `{short(event.place)}`, which outlives {self.loop(event.loop)}"
            case Store():
                return f"stores in `{short(event.place)}` ({event.how}), which outlives {self.loop(event.loop)}"
            case Backward():
                more = [w for w, on in (("graph retained", event.retain), ("partial", event.partial)) if on]
                return f"back-propagates{': ' if more else ''}{', '.join(more)}"
            case CallEffect():
                return f"`{short(event.name)}`: {event.effect}"
            case Attention():
                return "values are combined with attention weights that are kept in memory"
            case LastLogits():
                return "uses only the last position of all logits"
            case TrainerMade():
                return "makes a trainer of transformers"
            case DeprecatedImport():
                return f"imports a deprecated name: {', '.join(old for _, old in event.names)}"
            case GradModeMisuse():
                return f"`{short(event.name or 'grad mode')}` has no effect as written ({event.kind})"
            case OomHandler():
                return "an `except` that may catch an out-of-memory error"
            case Graph(mode="off"):
                return f"`{short(event.what)}` runs with grad mode off: it builds no graph"
            case Graph(kind="forward"):
                return f"`{short(event.what)}` runs as a module: {'frozen, no graph' if event.frozen else 'it builds a graph'}"
            case Graph(kind="opaque") if self.flow.own(event.site):
                known = "its result has a graph" if self.flow.record.real(event.gid) else "its result may have a graph"
                return f"`{short(event.what)}` is not visible: {known}"
        return ""

    def loop(self, loop: tuple[int, int] | None) -> str:
        return "this call" if loop is None else f"the loop at {self.at(Site(*loop))}"

    def sinks(self) -> Iterator[str]:
        """What becomes, at the line, of graphs made anywhere."""
        for gid, sinks in self.flow.record.sinks.items():
            graph = self.flow.record.graphs[gid]
            if graph.kind not in GRAPH_KINDS or (graph.kind is not GraphKind.FORWARD and not self.flow.record.real(gid)):
                continue
            for sink in sinks:
                if sink.kind in (SinkKind.CUT, SinkKind.RETURNED, SinkKind.YIELDED, SinkKind.PASSED) and self.here(sink.site):
                    how = f" by `{short(sink.how)}`" if sink.kind is SinkKind.CUT and sink.how else ""
                    how = f" to `{short(sink.how)}`, which is not visible" if sink.kind is SinkKind.PASSED else how
                    yield f"the graph of `{short(graph.what)}` ({self.place(graph)}) is {sink.kind}{how}"


# --- the places in a statement ---------------------------------------------------------------------------------------


def targets(statement: ir.Stmt) -> list[ir.Expr]:
    """The names and attributes that a statement assigns."""
    match statement:
        case ir.Assign():
            found: list[ir.Expr] = statement.targets
        case ir.AugAssign() | ir.For():
            found = [statement.target]
        case _:
            return []
    return [part for target in found for part in _walk(target)]


def places(statement: ir.Stmt) -> list[ir.Expr]:
    """The names and attributes on a statement's own lines, without the blocks inside."""
    return list(_walk(statement))


def _walk(node: object) -> Iterator[ir.Expr]:
    if isinstance(node, ir.Function | ir.Lambda | ir.FunctionDef | ir.ClassDef):
        return
    if isinstance(node, ir.Name):
        yield node
        return
    if isinstance(node, ir.Attr):
        if dotted(node) and "(" not in dotted(node):
            yield node
        yield from _walk(node.value)
    elif isinstance(node, list | tuple):
        for item in node:
            yield from _walk(item)
    elif is_dataclass(node):
        for one in fields(node):
            if not isinstance(node, ir.If | ir.For | ir.While | ir.With | ir.Try | ir.Match) or one.name in HEADS:
                yield from _walk(getattr(node, one.name))


HEADS = frozenset({"test", "target", "iterable", "items", "subject"})
