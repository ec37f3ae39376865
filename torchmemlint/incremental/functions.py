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
    from torchmemlint.index.facts import ModuleFacts
    from torchmemlint.index.project import FunctionRef, Project
    from torchmemlint.source.file import SourceFile


@dataclass(slots=True, eq=False)
class FunctionResults:
    """The results of the functions of one file, as it was last checked. Before each check it must ``begin``."""

    _known: dict[FunctionRef, tuple[OfFunction, tuple[tuple[Query, str], ...]]] = field(default_factory=dict)
    _now: dict[FunctionRef, tuple[OfFunction, tuple[tuple[Query, str], ...]]] = field(default_factory=dict)
    _versions: dict[str, tuple[ModuleFacts, int]] = field(default_factory=dict)
    _shapes: dict[str, tuple[ModuleFacts, str]] = field(default_factory=dict)
    _results: QueryResults | None = None

    def begin(self, project: Project, texts: Mapping[str, SourceFile]) -> None:
        """From now on results are those of this project. What was not asked for since the last time is forgotten."""
        self._known, self._now = self._now, {}
        self._versions = {path: known for path, known in self._versions.items() if path in project.modules}
        self._shapes = {path: known for path, known in self._shapes.items() if path in project.modules}
        self._results = QueryResults(project, _Digests(self, project, texts), exact=True)

    def known(self, ref: FunctionRef) -> OfFunction | None:
        """The result of a function, if every query that it rests on has the result that it had."""
        assert self._results is not None
        found = self._known.get(ref)
        if found is None or any(self._results.fingerprint(query) != fingerprint for query, fingerprint in found[1]):
            return None
        self._now[ref] = found
        return found[0]

    def store(self, ref: FunctionRef, result: OfFunction, trace: QueryTrace) -> None:
        """Remembers a result that rests on these queries."""
        assert self._results is not None
        queries, _ = queries_and_notes(trace)
        # Those that mostly change are looked at first.
        ordered = sorted(queries, key=lambda query: (query[0] not in ("text", "source", "facts"), len(query)))
        self._now[ref] = result, tuple((query, self._results.fingerprint(query)) for query in ordered)

    def end(self) -> None:
        """Lets go of the project."""
        self._results = None

    def version(self, path: str, facts: ModuleFacts) -> int:
        """A number that is another when a file around was read again."""
        before, number = self._versions.get(path, (facts, 0))
        number += before is not facts
        self._versions[path] = facts, number
        return number

    def shape_of(self, path: str, facts: ModuleFacts) -> str:
        """The digest of the shape of a module's facts."""
        known = self._shapes.get(path)
        if known is None or known[0] is not facts:
            known = self._shapes[path] = facts, digest(shape(facts).encode())
        return known[1]


@dataclass(slots=True, eq=False)
class _Digests:
    """Digests of the files of a project, of which some ``texts`` stand in for what is on disk (see ``query_results.Files``)."""

    of: FunctionResults
    project: Project
    texts: Mapping[str, SourceFile]
    _sources: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def text(self, path: str) -> str:
        if path in self.texts:
            return digest(self.texts[path].text.encode(errors="surrogatepass"))
        return f"{self.of.version(path, self.project.modules[path])}" if path in self.project.modules else ""

    def shape(self, path: str) -> str:
        return self.of.shape_of(path, self.project.modules[path]) if path in self.project.modules else ""

    def sources(self, path: str) -> Mapping[str, str]:
        facts = self.project.modules[path] if path in self.texts and path in self.project.modules else None
        if facts is None or facts.repaired:
            return {}
        if path not in self._sources:
            self._sources[path] = sources_of(facts, self.texts[path].text)
        return self._sources[path]
