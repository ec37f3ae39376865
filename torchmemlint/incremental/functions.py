"""Results of single functions, kept in memory from one check of a file to the next: what a language server reuses while one types.

They are valid while every query that they depend on has the same result, as findings in the cache are (``findings``). Here, what the
engine memoized on the way (``World.memoize``) is computed again if a query below it has another result. If the answer is the
same, the results that depend on it are still valid.
"""

from __future__ import annotations

import io
import tokenize
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from torchmemlint.files.digest import digest
from torchmemlint.findings import Finding, Span
from torchmemlint.incremental.project_memory import ProjectMemory
from torchmemlint.incremental.query_results import QueryResults
from torchmemlint.index.plain import shape
from torchmemlint.index.query_log import Query, QueryTrace, queries_and_notes
from torchmemlint.index.references import TOP, FunctionRef
from torchmemlint.index.sources import rows_of, sources_of, split_lines
from torchmemlint.source.tolerant import readable

if TYPE_CHECKING:
    from threading import Event

    from torchmemlint.analysis import OfFunction
    from torchmemlint.index.project import Project
    from torchmemlint.project.results import Checked
    from torchmemlint.semantics.world import World
    from torchmemlint.source.file import SourceFile


@dataclass(slots=True, eq=False)
class FunctionResults:
    """The results of the functions of one file, as it was last checked. Before each check it must ``begin``. Fingerprints are
    computed when they are compared, so the project of the last check is kept."""

    report_early: Callable[[Checked], None] | None = None
    """Called with the findings of the edited functions, before functions are run that only depend on these."""
    cancel: Event | None = None
    """Set when nobody waits for the current check any more."""
    projects: ProjectMemory = field(default_factory=ProjectMemory)
    _previous: dict[FunctionRef, tuple[OfFunction, QueryTrace]] = field(default_factory=dict)
    _current: dict[FunctionRef, tuple[OfFunction, QueryTrace]] = field(default_factory=dict)
    _last_results: dict[FunctionRef, _LastResult] = field(default_factory=dict)
    _old_fingerprints: _Fingerprints | None = None
    _fingerprints: _Fingerprints | None = None
    _world: World | None = None
    _valid: dict[QueryTrace, bool] = field(default_factory=dict)
    _unchanged: dict[Query, bool] = field(default_factory=dict)

    def begin(self, world: World, texts: Mapping[str, SourceFile]) -> None:
        """Starts a check with this engine. Results that the last check did not use are dropped."""
        self._previous, self._current = self._current, {}
        self._old_fingerprints, self._fingerprints = self._fingerprints, _Fingerprints(world.project, texts)
        self._world = world
        world.cancel = self.cancel
        self._valid, self._unchanged = {}, {}

    def known(self, ref: FunctionRef) -> OfFunction | None:
        """The result of a function, if the queries that it depends on have the same results."""
        if ref in self._current:
            return self._current[ref][0]
        found = self._previous.get(ref)
        if found is None or self._old_fingerprints is None or not self._is_unchanged(found[1]):
            return None
        self.store(ref, *found)
        return found[0]

    def last_result(self, ref: FunctionRef) -> OfFunction | None:
        """The last result of a function whose own text is as it was then, at the place where it stands now; without what shows code
        elsewhere."""
        last, results = self._last_results.get(ref), self._fingerprints
        if last is None or results is None or last.text != results.own_text(ref):
            return None
        down = results.row(ref.path, ref.qualname) - last.row
        return _moved(last.result, down)

    def store(self, ref: FunctionRef, result: OfFunction, trace: QueryTrace) -> None:
        """Stores a result that depends on these queries."""
        self._current[ref] = result, trace
        if self._fingerprints is not None and (text := self._fingerprints.own_text(ref)):
            self._last_results[ref] = _LastResult(result, text, self._fingerprints.row(ref.path, ref.qualname))

    def end(self) -> None:
        """Releases the previous project and the engine. After a cancelled check, the results computed so far are valid, and the last
        results of the other functions can still be shown."""
        if self.cancel is None or not self.cancel.is_set():
            self._last_results = {ref: last for ref, last in self._last_results.items() if ref in self._current}
        self._previous, self._old_fingerprints, self._world = {}, None, None
        self._valid, self._unchanged = {}, {}
        self.report_early = self.cancel = None

    def _is_unchanged(self, trace: QueryTrace) -> bool:
        """Whether all queries have the same results, and all answers below."""
        queries, answers = _rests_on(trace)
        return all(map(self._has_same_result, queries)) and all(map(self._is_valid, answers))

    def _has_same_result(self, query: Query) -> bool:
        if query not in self._unchanged:
            then, now = self._old_fingerprints, self._fingerprints
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
            same = bool(world.memoize(find, key) == before)
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


def _moved(result: OfFunction, down: int) -> OfFunction:
    """A result so many rows further down."""
    found = {one: _moved_finding(one, down) for one in result.findings}
    also = tuple((found.get(one, one), tuple(_moved_finding(each, down) for each in others)) for one, others in result.also)
    return replace(result, findings=tuple(found.values()), also=also)


def _moved_finding(one: Finding, down: int) -> Finding:
    start, end = (replace(at, row=at.row + down) for at in (one.span.start, one.span.end))
    rows = frozenset(row + down for row in one.noqa_rows)
    return replace(one, span=Span(start, end), noqa_rows=rows, noqa_row=one.noqa_row + down, flow=(), fix=None)


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


class _Fingerprints:
    """The fingerprints of a project's queries, some of whose files have the ``texts`` of buffers."""

    def __init__(self, project: Project, texts: Mapping[str, SourceFile]) -> None:
        self._project = project
        self._digests = _Digests(project, texts)
        self._results = QueryResults(project, self._digests, exact=True)

    def has_same(self, query: Query, other: _Fingerprints) -> bool:
        """Whether a query has the same result in another project."""
        if query[0] not in ("code", "placed"):
            return self._results.fingerprint(query) == other._results.fingerprint(query)
        path, qualname = map(str, query[1:])
        source = ("source", path, qualname)
        same = self._results.fingerprint(source) == other._results.fingerprint(source)
        if query[0] == "placed":
            return same and self.row(path, qualname) == other.row(path, qualname)
        return same or (self._tokens(path, qualname) or [""]) == other._tokens(path, qualname)

    def own_text(self, ref: FunctionRef) -> str:
        """A digest of the text of an outermost function, or of what a file has around these; "" where it is not known."""
        sources = self._digests.sources(ref.path)
        if ref.qualname != TOP or not sources:
            return sources.get(ref.qualname, "")
        lines = split_lines(self._digests.read(ref.path))
        for name in sources:
            first, last = rows_of(lines, self._project.facts(FunctionRef(ref.path, name)))
            lines[first - 1 : last] = [""] * (last - first + 1)
        return digest("".join(lines).encode(errors="surrogatepass"))

    def row(self, path: str, qualname: str) -> int:
        """The row where a function begins."""
        try:
            return self._project.facts(FunctionRef(path, qualname)).first_row
        except KeyError:
            return 0

    def _tokens(self, path: str, qualname: str) -> list[str]:
        """The tokens of a function of a buffer, without comments and white space; none where they are not known."""
        if qualname not in self._digests.sources(path):
            return []
        lines = split_lines(self._digests.read(path))
        first, last = rows_of(lines, self._project.facts(FunctionRef(path, qualname)))
        text = io.StringIO("".join(lines[first - 1 : last]))
        try:
            tokens = list(tokenize.generate_tokens(text.readline))
        except (tokenize.TokenError, SyntaxError):
            return []
        return [f"{one.type} {'' if one.type in _BLANK else one.string}" for one in tokens if one.type not in _SKIPPED]


_SKIPPED = (tokenize.COMMENT, tokenize.NL)
_BLANK = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


@dataclass(slots=True, eq=False)
class _Digests:
    """Digests of the files of a project, of which some ``texts`` stand in for what is on disk (see ``query_results.Files``). The facts
    of a file around are one object until it is read again, and both projects that are compared are alive."""

    project: Project
    texts: Mapping[str, SourceFile]
    _sources: dict[str, Mapping[str, str]] = field(default_factory=dict)
    _read: dict[str, str] = field(default_factory=dict)

    def text(self, path: str) -> str:
        if path in self.texts:
            return digest(self.texts[path].text.encode(errors="surrogatepass"))
        return f"{id(self.project.modules[path])}" if path in self.project.modules else ""

    def shape(self, path: str) -> str:
        if path not in self.project.modules:
            return ""
        facts = self.project.modules[path]
        return digest(shape(facts).encode()) if path in self.texts else f"{id(facts)}"

    def sources(self, path: str) -> Mapping[str, str]:
        if path not in self.texts or path not in self.project.modules:
            return {}
        if path not in self._sources:
            self._sources[path] = sources_of(self.project.modules[path], self.read(path))
        return self._sources[path]

    def read(self, path: str) -> str:
        """The text of a buffer as the engine has it (see ``World.lines``)."""
        if path not in self._read:
            text = self.texts[path].text
            self._read[path] = readable(text) if self.project.modules[path].recovered else text
        return self._read[path]
