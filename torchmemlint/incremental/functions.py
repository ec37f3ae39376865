"""Results of single functions, kept in memory from one check of a file to the next: what a language server reuses while one types.

They hold as long as every query that they rest on has the same result, as findings in the cache do (``findings``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torchmemlint.files.digest import digest
from torchmemlint.incremental.query_results import QueryResults
from torchmemlint.index.plain import shape
from torchmemlint.index.query_log import Query, QueryTrace, queries_and_notes
from torchmemlint.index.sources import sources_of

if TYPE_CHECKING:
    from torchmemlint.analysis import OfFunction
    from torchmemlint.index.project import FunctionRef, Project
    from torchmemlint.source.file import SourceFile


@dataclass(slots=True, eq=False)
class FunctionResults:
    """The results of the functions of one file, as it was last checked. Before each check it must ``begin``. Fingerprints are
    computed when they are compared, so the project of the last check is kept."""

    _before: dict[FunctionRef, tuple[OfFunction, list[Query]]] = field(default_factory=dict)
    _now: dict[FunctionRef, tuple[OfFunction, list[Query]]] = field(default_factory=dict)
    _then: QueryResults | None = None
    _results: QueryResults | None = None

    def begin(self, project: Project, texts: Mapping[str, SourceFile]) -> None:
        """From now on results are those of this project. What was not asked for in the last check is forgotten."""
        self._before, self._now = self._now, {}
        self._then, self._results = self._results, QueryResults(project, _Digests(project, texts), exact=True)

    def known(self, ref: FunctionRef) -> OfFunction | None:
        """The result of a function, if every query that it rests on has the result that it had."""
        found, then, now = self._before.get(ref), self._then, self._results
        if found is None or then is None or now is None:
            return None
        if any(then.fingerprint(query) != now.fingerprint(query) for query in found[1]):
            return None
        self._now[ref] = found
        return found[0]

    def store(self, ref: FunctionRef, result: OfFunction, trace: QueryTrace) -> None:
        """Remembers a result that rests on these queries."""
        queries, _ = queries_and_notes(trace)
        # Those that mostly change are compared first.
        self._now[ref] = result, sorted(queries, key=lambda query: query[0] not in _CHANGE_OFTEN)

    def end(self) -> None:
        """Lets go of the project before."""
        self._before, self._then = {}, None


_CHANGE_OFTEN = ("text", "source", "facts", "module", "within")


@dataclass(slots=True, eq=False)
class _Digests:
    """Digests of the files of a project, of which some ``texts`` stand in for what is on disk (see ``query_results.Files``). The facts
    of a file around are one object until it is read again, and both projects that are compared are alive."""

    project: Project
    texts: Mapping[str, SourceFile]
    _sources: dict[str, Mapping[str, str]] = field(default_factory=dict)

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
        facts = self.project.modules[path] if path in self.texts and path in self.project.modules else None
        if facts is None or facts.repaired:
            return {}
        if path not in self._sources:
            self._sources[path] = sources_of(facts, self.texts[path].text)
        return self._sources[path]
