"""Results of single functions, kept in memory from one check of a file to the next: what a language server reuses while one types.

They are valid while every query that they depend on has the same result, as findings in the cache are (``findings``). Here, what the
engine memoized on the way (``World.memoize``) is computed again if a query below it has another result. If the answer is the
same, the results that depend on it are still valid.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from torchmemlint.files.digest import digest
from torchmemlint.findings import Finding, FlowStep, Span
from torchmemlint.incremental.project_memory import ProjectMemory
from torchmemlint.index.dependency_log import MISSING
from torchmemlint.index.plain import same_shape
from torchmemlint.index.query_log import Query, QueryTrace, queries_and_notes
from torchmemlint.index.references import TOP, FunctionRef
from torchmemlint.index.sources import rows_of, sources_of, split_lines
from torchmemlint.source.tolerant import readable

if TYPE_CHECKING:
    from threading import Event

    from torchmemlint.analysis import OfFunction
    from torchmemlint.index.project import Project
    from torchmemlint.project.results import Checked
    from torchmemlint.semantics.state import World
    from torchmemlint.source.file import SourceFile


@dataclass(slots=True, eq=False)
class FunctionResults:
    """The results of the functions of one file, as it was last checked. Before each check it must ``begin``. The
    project of the last check is kept, to compare its answers."""

    report_early: Callable[[Checked], None] | None = None
    """Called with the findings of the edited functions, before functions are run that only depend on these."""
    cancel: Event | None = None
    """Set when nobody waits for the current check any more."""
    projects: ProjectMemory = field(default_factory=ProjectMemory)
    _previous: dict[FunctionRef, tuple[OfFunction, QueryTrace]] = field(default_factory=dict)
    _current: dict[FunctionRef, tuple[OfFunction, QueryTrace]] = field(default_factory=dict)
    _last_results: dict[FunctionRef, _LastResult] = field(default_factory=dict)
    _before: _State | None = None
    _now: _State | None = None
    _world: World | None = None
    _valid: dict[QueryTrace, bool] = field(default_factory=dict)
    _unchanged: dict[Query, bool] = field(default_factory=dict)

    def begin(self, world: World, texts: Mapping[str, SourceFile]) -> None:
        """Starts a check with this engine. Results that the last check did not use are dropped."""
        self._previous, self._current = self._current, {}
        self._before, self._now = self._now, _State(world.project, texts)
        self._world = world
        world.cancel = self.cancel
        self._valid, self._unchanged = {}, {}

    def known(self, ref: FunctionRef) -> OfFunction | None:
        """The result of a function, if the queries that it depends on have the same results, or only differ in the rows where the
        functions of its file stand."""
        if ref in self._current:
            return self._current[ref][0]
        found = self._previous.get(ref)
        moves = self._moves(ref.path, found[1]) if found is not None else None
        if found is None or moves is None:
            return None
        result = _moved(found[0], moves) if any(down for _, _, down in moves) else found[0]
        if result is not None:
            self.store(ref, result, found[1])
        return result

    def last_result(self, ref: FunctionRef) -> OfFunction | None:
        """The last result of a function whose own text is as it was then, at the place where it stands now; without what shows code
        elsewhere."""
        last, now = self._last_results.get(ref), self._now
        if last is None or now is None or last.text != now.own_text(ref):
            return None
        down = now.rows(ref.path, ref.qualname)[0] - last.row
        return _moved(last.result, [(0, sys.maxsize, down)], alone=True)

    def store(self, ref: FunctionRef, result: OfFunction, trace: QueryTrace) -> None:
        """Stores a result that depends on these queries."""
        self._current[ref] = result, trace
        if self._now is not None and (text := self._now.own_text(ref)):
            self._last_results[ref] = _LastResult(result, text, self._now.rows(ref.path, ref.qualname)[0])

    def end(self) -> None:
        """Releases the previous project and the engine. After a cancelled check, the results computed so far are valid, and the last
        results of the other functions can still be shown."""
        if self.cancel is None or not self.cancel.is_set():
            self._last_results = {ref: last for ref, last in self._last_results.items() if ref in self._current}
        self._previous, self._before, self._world = {}, None, None
        self._valid, self._unchanged = {}, {}
        self.report_early = self.cancel = None

    def _moves(self, path: str, trace: QueryTrace) -> list[_Move] | None:
        """Where the functions of a file stand on which a result rests; None where anything else changed, or their order."""
        queries, answers = _rests_on(trace)
        then, now = self._before, self._now
        if then is None or now is None:
            return None
        placed = {query for query in queries if query[:2] == ("placed", path)}
        if not all(self._has_same_result(query) for query in queries if query not in placed):
            return None
        moves: list[_Move] = []
        for _, _, name in placed:
            down = now.moved(path, str(name), then)
            if down is None:
                return None
            moves.append((*then.rows(path, str(name)), down))
        moves.sort()
        begin = [first + down for first, _, down in moves]
        return moves if begin == sorted(begin) and all(map(self._is_valid, answers)) else None

    def _is_unchanged(self, trace: QueryTrace) -> bool:
        """Whether all queries have the same results, at the same places, and all answers below."""
        return self._moves("", trace) is not None

    def _has_same_result(self, query: Query) -> bool:
        if query not in self._unchanged:
            then, now = self._before, self._now
            self._unchanged[query] = then is not None and now is not None and now.has_same(query, then)
        return self._unchanged[query]

    def _is_valid(self, trace: QueryTrace) -> bool:
        known = self._valid.get(trace)
        if known is None:
            self._valid[trace] = False  # while it is looked at: an answer that leads back to itself is not asked again
            known = self._valid[trace] = self._is_unchanged(trace) or self._recomputed_is_equal(trace)
        return known

    def _recomputed_is_equal(self, trace: QueryTrace) -> bool:
        """Asks again. From then on, the answer rests on what was asked now."""
        world = self._world
        if trace.answer is None or world is None:
            return False
        find, key, before = trace.answer
        around, now = world.query_log.current, QueryTrace()
        world.query_log.current = now
        try:
            same = bool(world.memoize(find, *key) == before)
        except Exception:  # whoever needs the answer runs into it again
            return False
        finally:
            world.query_log.current = around
        if not same or queries_and_notes(now)[1] != queries_and_notes(trace)[1]:
            return False
        now.close()
        trace.closed = now.closed
        return True


@dataclass(frozen=True, slots=True)
class _LastResult:
    """What a function gave when it was last run or known to be unchanged, the digest of its text and its row then."""

    result: OfFunction
    text: str
    row: int


_Move = tuple[int, int, int]
"""The first and the last row of a function, and how many rows further down it stands now."""
_NAMES_A_ROW = re.compile(r"\blines? \d")


def _moved(result: OfFunction, moves: Sequence[_Move], alone: bool = False) -> OfFunction | None:
    """A result where its functions stand now; ``alone`` without what shows code elsewhere. None where it shows code outside them, or
    its words name a row."""
    every = (*result.findings, *(each for _, others in result.also for each in others))
    words = (*result.notes, *(text for one in every for text in _words(one)))
    if not alone and any(map(_NAMES_A_ROW.search, words)):
        return None
    try:
        found = {one: _moved_finding(one, moves, alone) for one in every}
    except LookupError:
        return None
    also = tuple((found.get(one, one), tuple(found[each] for each in others)) for one, others in result.also)
    return replace(result, findings=tuple(found[one] for one in result.findings), also=also)


def _words(one: Finding) -> Iterator[str]:
    yield from (one.message, one.label, one.cost, one.help, one.unless)
    yield from (step.message for step in one.flow)
    if one.fix is not None:
        yield from (one.fix.message, *(edit.content for edit in one.fix.edits))


def _moved_finding(one: Finding, moves: Sequence[_Move], alone: bool) -> Finding:
    """Raises LookupError where it shows code outside these functions."""

    def moved(row: int) -> int:
        for first, end, down in moves:
            if first <= row <= end:
                return row + down
        raise LookupError(row)

    def moved_span(span: Span) -> Span:
        return Span(replace(span.start, row=moved(span.start.row)), replace(span.end, row=moved(span.end.row)))

    flow: tuple[FlowStep, ...] = ()
    fix = None
    if not alone:
        flow = tuple(replace(step, span=moved_span(step.span)) if step.path == one.path else step for step in one.flow)
        if one.fix is not None:
            fix = replace(one.fix, edits=tuple(replace(edit, span=moved_span(edit.span)) for edit in one.fix.edits))
    rows = frozenset(map(moved, one.noqa_rows))
    return replace(one, span=moved_span(one.span), noqa_rows=rows, noqa_row=moved(one.noqa_row), flow=flow, fix=fix)


def _rests_on(trace: QueryTrace) -> tuple[Collection[Query], Collection[QueryTrace]]:
    """The queries that a trace rests on, and the answers, whose own queries are not among them."""
    queries: set[Query] = set()
    answers: dict[QueryTrace, None] = {}
    seen = {trace}
    waiting = [trace]
    while waiting:
        asked, used, _ = waiting.pop().all()
        queries.update(asked)
        for each in used:
            if each not in seen:
                seen.add(each)
                if each.answer is not None:
                    answers[each] = None
                else:
                    waiting.append(each)
    return queries, answers


class _State:
    """A project, some of whose files have the ``texts`` of buffers, and its answers, compared with those of another. An answer that was
    kept is one object in both, and so are the facts of a file around until it is read again."""

    def __init__(self, project: Project, texts: Mapping[str, SourceFile]) -> None:
        self._project, self._texts = project, texts
        self._answers: dict[Query, object] = {}
        self._digests: dict[str, Mapping[str, str]] = {}
        self._read: dict[str, str] = {}

    def has_same(self, query: Query, other: _State) -> bool:
        """Whether a query has the same answer in another project."""
        if query[0] not in ("placed", "code"):
            return same_shape(self._answer(query), other._answer(query))
        path, qualname = map(str, query[1:])
        down = self.moved(path, qualname, other)
        if query[0] == "placed":
            return down == 0
        return down is not None or (self._tokens(path, qualname) or [""]) == other._tokens(path, qualname)

    def _answer(self, query: Query) -> object:
        if query not in self._answers:
            query_log, log = self._project.query_log, self._project.log
            around, query_log.current, log.reads = query_log.current, QueryTrace(), []
            try:
                self._answers[query] = self._ask(*query)
            except (KeyError, TypeError, AttributeError):  # what it asks about is gone
                self._answers[query] = MISSING
            finally:
                query_log.current = around
        return self._answers[query]

    def _ask(self, name: Hashable, *arguments: Hashable) -> object:
        if name == "text":
            path = str(arguments[0])
            return self._texts[path].text if path in self._texts else self._project.modules.get(path)
        if name == "source":  # where it is not known, all of the text stands for it
            return self._sources(str(arguments[0])).get(str(arguments[1])) or self._ask("text", arguments[0])
        return getattr(self._project, str(name))(*arguments)

    def moved(self, path: str, qualname: str, other: _State) -> int | None:
        """How many rows further down a function stands than in another project; None where its text differs."""
        if not self.has_same(("source", path, qualname), other):
            return None
        return self.rows(path, qualname)[0] - other.rows(path, qualname)[0]

    def own_text(self, ref: FunctionRef) -> str:
        """A digest of the text of an outermost function, or of what a file has around these; "" where it is not known."""
        sources = self._sources(ref.path)
        if ref.qualname != TOP or not sources:
            return sources.get(ref.qualname, "")
        lines = split_lines(self._text(ref.path))
        for name in sources:
            first, last = rows_of(lines, self._project.facts(FunctionRef(ref.path, name)))
            lines[first - 1 : last] = [""] * (last - first + 1)
        return digest("".join(lines).encode(errors="surrogatepass"))

    def rows(self, path: str, qualname: str) -> tuple[int, int]:
        """The first and the last row of a function."""
        try:
            facts = self._project.facts(FunctionRef(path, qualname))
        except KeyError:
            return 0, 0
        return facts.first_row, facts.end_row

    def _tokens(self, path: str, qualname: str) -> list[str]:
        """The tokens of a function of a buffer, without comments and white space; none where they are not known."""
        if qualname not in self._sources(path):
            return []
        lines = split_lines(self._text(path))
        first, last = rows_of(lines, self._project.facts(FunctionRef(path, qualname)))
        text = io.StringIO("".join(lines[first - 1 : last]))
        try:
            tokens = list(tokenize.generate_tokens(text.readline))
        except (tokenize.TokenError, SyntaxError):
            return []
        return [f"{one.type} {'' if one.type in _BLANK else one.string}" for one in tokens if one.type not in _SKIPPED]

    def _sources(self, path: str) -> Mapping[str, str]:
        """Digests of the texts of the functions of a buffer."""
        if path not in self._texts or path not in self._project.modules:
            return {}
        if path not in self._digests:
            self._digests[path] = sources_of(self._project.modules[path], self._text(path))
        return self._digests[path]

    def _text(self, path: str) -> str:
        """The text of a buffer as the engine has it (see ``World.lines``)."""
        if path not in self._read:
            text = self._texts[path].text
            self._read[path] = readable(text) if self._project.modules[path].recovered else text
        return self._read[path]


_SKIPPED = (tokenize.COMMENT, tokenize.NL)
_BLANK = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
