"""Findings of single files in the cache, as long as the queries that they depend on have the same results."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from torchmemlint.incremental.cache import Cache
from torchmemlint.incremental.dependency_graph import serialized
from torchmemlint.incremental.query_results import QueryResults
from torchmemlint.incremental.records import StoredFindings
from torchmemlint.incremental.runs import FindingsKeys
from torchmemlint.project.results import Checked, Scanned
from torchmemlint.project.settings import Settings

if TYPE_CHECKING:
    from torchmemlint.incremental.previous_run import PreviousRun
    from torchmemlint.index.project import Project


class FileDigests:
    """The digests of a run's files; of what it did not look at, those of the ``previous`` run."""

    def __init__(self, scanned: Iterable[Scanned], previous: PreviousRun | None) -> None:
        # Not the files' facts: this goes to other processes.
        self._files = {one.path: (one.digest, one.shape, one.sources) for one in scanned}
        self._previous = previous

    def text(self, path: str) -> str:
        """Of a file's content; "" where it is not known."""
        if path in self._files:
            return self._files[path][0]
        stamp = self._previous.stamps.get(path) if self._previous is not None else None
        return stamp.digest if stamp is not None else ""

    def shape(self, path: str) -> str:
        """Of the shape of a file's facts; "" where it has none."""
        if self._previous is not None and path in self._previous.entries:
            return self._previous.entries[path].shape
        return self._files[path][1] if path in self._files else ""

    def sources(self, path: str) -> Mapping[str, str]:
        """Of the texts of a file's functions (``index.sources``)."""
        if path in self._files or self._previous is None:
            return self._files[path][2] if path in self._files else {}
        return self._previous.sources(path)


class FindingsStore:
    """The findings that earlier runs stored, as far as they still hold in this project."""

    def __init__(
        self,
        cache: Cache,
        project: Project,
        scanned: Iterable[Scanned],
        settings: Mapping[str, Settings],
        previous: PreviousRun | None = None,
        *,
        by_hand: bool = False,
        comments: bool = True,
    ) -> None:
        self._cache = cache
        self._keys = FindingsKeys(settings, by_hand, comments)
        self._log = project.log
        unchanged = previous.unchanged if previous is not None else None
        self.results = QueryResults(project, FileDigests(scanned, previous), True, unchanged)

    def valid(self, path: str) -> Checked | None:
        """The findings of a file, if every query that they depend on still has the same result."""
        found = self._cache.findings(self._keys.of(path))
        if found is None or not found[0].queries:
            return None
        stored, entry = found
        if not all(self.results.is_unchanged(query, fingerprint) for query, fingerprint in stored.queries):
            return None
        codes = self.results.codes(query for query, _ in stored.queries)
        reads = texts_read(path, stored.queries)
        segment = self._log.segment()
        return Checked(path, stored.findings, stored.notes, dependencies=codes, segment=segment, entry=entry, reads=reads)

    def store(self, checked: Checked) -> Checked:
        """Stores the findings of a file, unless we failed there; the same without the queries, which are many."""
        if not checked.queries or checked.crashes:
            return checked
        long = self.results.long
        fingerprints = dict.fromkeys(each for _, each in checked.queries if each in long)
        results = tuple((each, zlib.decompress(long[each]).decode()) for each in fingerprints)
        stored = StoredFindings(checked.findings, checked.notes, checked.queries, results)
        entry = self._cache.write("findings", self._keys.of(checked.path), stored.packed())
        segment = self.flush() if checked.dependencies else ""
        return replace(checked, queries=(), segment=segment, entry=entry, reads=texts_read(checked.path, checked.queries))

    def flush(self) -> str:
        """Writes the dependency log of this process to its segment; the name of this."""
        name = self._log.segment()
        if name:
            self._cache.add_to_segment(name, serialized(self._log))
        return name


def texts_read(path: str, queries: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The texts in other files that the findings of one depend on (see ``Checked.reads``)."""
    texts = (json.loads(query)[1:] for query, _ in queries if query.startswith(('["text"', '["source"')))
    return tuple(sorted((other, name[0] if name else "") for other, *name in texts if other != path))
