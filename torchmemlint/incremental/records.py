"""What the cache holds of a run, as plain data: the manifest of its files, their findings, and what these depend on."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from torchmemlint.files.plain import from_plain, to_json
from torchmemlint.files.reading import MAX_CACHE_BYTES
from torchmemlint.findings import Finding


@dataclass(frozen=True, slots=True)
class Stamp:
    """A file as it was when it was read: ``digest`` of its content; ``trusted`` when size and time alone show that it is unchanged."""

    size: int
    mtime_ns: int
    digest: str
    trusted: bool


@dataclass(frozen=True, slots=True)
class StoredFindings:
    """One file's findings and notes, the ``queries`` (as text, with their fingerprints: see ``query_results``) that they depend on, and
    the ``results`` of which the fingerprint is no more than a digest."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    queries: tuple[tuple[str, str], ...]
    results: tuple[tuple[str, str], ...]

    def packed(self) -> bytes:
        """A line of JSON; then queries and results, each in a line, as they are: JSON, which JSON would quote once more."""
        head = to_json((self.findings, self.notes, len(self.queries)))
        lines = [head, *chain.from_iterable(self.queries), *chain.from_iterable(self.results)]
        return zlib.compress("\n".join(lines).encode(), 1)

    @classmethod
    def unpacked(cls, data: bytes) -> StoredFindings:
        """What ``packed`` gave. Raises ValueError for anything else."""
        try:
            unpack = zlib.decompressobj()
            head, *lines = unpack.decompress(data, MAX_CACHE_BYTES).decode().split("\n")
            if not unpack.eof or unpack.unused_data:
                raise ValueError("not whole, or more than was stored")
        except zlib.error as error:
            raise ValueError(str(error)) from None
        findings, notes, queries = from_plain(tuple[tuple[Finding, ...], tuple[str, ...], int], json.loads(head))
        pairs = tuple(zip(lines[::2], lines[1::2], strict=True))
        if not 0 <= queries <= len(pairs):
            raise ValueError("queries are missing")
        return cls(findings, notes, pairs[:queries], pairs[queries:])


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run's result over these ``files``: ``findings`` and ``notes`` of those that have any, and why some were
    ``skipped``."""

    files: tuple[tuple[str, Stamp], ...]
    findings: tuple[tuple[str, tuple[Finding, ...]], ...]
    notes: tuple[tuple[str, tuple[str, ...]], ...]
    skipped: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a run, as the others see it.

    interface  digest of all that others can see of it: the shape of its facts and what it imports; "" where that is unknown
    shape      digest of the shape of its facts, "" where it has none
    findings   digest of its ``StoredFindings``, "" without any
    reads      the files, by their places in the run, on whose texts its findings rest, with the functions there; "" for all of it
    """

    interface: str
    shape: str
    findings: str
    reads: tuple[tuple[int, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a run, in its order, and the digests of what else was stored of the run: its ``result``, its ``dependencies`` and
    its word index (``words``); "" without any."""

    result: str
    dependencies: str
    words: str
    files: tuple[FileEntry, ...]


RELATED, BESIDE, OTHER = "related", "beside", "other"


@dataclass(frozen=True, slots=True)
class FileDependencies:
    """What the findings of one file of a run depend on.

    segment  the place in ``Dependencies.segments`` of the process that checked it, -1 where nothing was logged
    codes    the dependencies of its queries, in the order of ``StoredFindings.queries`` (zlib, base64)
    entry    ``FileEntry.findings``: the queries are those
    kind     "related" to torch, "beside" such files, "other", or "" for a file of which that is unknown
    imports  the names that it imports (``screen.imported_names``)
    """

    segment: int
    codes: str
    entry: str
    kind: str
    imports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """A segment of the dependency log: its name, the number of its first node, and the digest of its content."""

    name: str
    first: int
    digest: str


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The dependency log of a run: its segments, and where the queries of its files are in them."""

    segments: Sequence[SegmentRef]
    files: Iterable[FileDependencies]

    def serialized(self) -> bytes:
        return "\n".join([to_json(tuple(self.segments)), *map(to_json, self.files)]).encode()

    @classmethod
    def read(cls, data: bytes) -> Dependencies | None:
        """What ``serialized`` gave; None for anything else."""
        first, *lines = data.splitlines() or [b""]
        try:
            files = [from_plain(FileDependencies, json.loads(line)) for line in lines]
            return cls(segments_in(first), files)
        except (ValueError, RecursionError):
            return None


def segments_in(first_line: bytes) -> tuple[SegmentRef, ...]:
    """The segments in the first line of serialized ``Dependencies``. Raises ValueError."""
    return from_plain(tuple[SegmentRef, ...], json.loads(first_line))


@dataclass(frozen=True, slots=True)
class Folders:
    """The arguments of earlier runs over folders, the last one first."""

    given: tuple[tuple[str, ...], ...]
