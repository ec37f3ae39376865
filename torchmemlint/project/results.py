"""What is known of one file, before it is inspected or after.

Plain data, which the steps of a run and the cache hand on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torchmemlint.findings import Finding

if TYPE_CHECKING:
    from torchmemlint.index.facts import ModuleFacts


@dataclass(frozen=True, slots=True)
class Checked:
    """One file's findings after suppression; ``notes`` are for ``-v``, ``crashes`` are tracebacks of ours."""

    path: str
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    crashes: tuple[str, ...] = ()
    queries: tuple[tuple[str, str], ...] = ()
    """The queries that the rest depends on, with their fingerprints: only under a cache, until they are stored."""
    dependencies: bytes = b""
    """The codes of their dependencies, in their order, in ``segment`` (``incremental.dependency_graph``), packed by zlib; nothing
    where that is unknown."""
    segment: str = ""
    entry: str = ""
    """Digest of what the cache stores of this."""
    unread: str = ""
    """Why this file, or one that it needs, could not be read, as a message about its path: another run may come to something else."""
    reads: tuple[tuple[str, str], ...] = ()
    """Then, the other files whose texts it rests on, with the function there; "" for all of the text."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """What is known of a file before the project is.

    facts      None when the file was screened out, skipped or cannot be parsed
    candidate  a rule may fire here, so the file is inspected
    imports    for a file that is not torch-related: the names that it imports (``screen.imported_names``)
    failed     TML000 for a file (or for cells of a notebook) that cannot be read or parsed, TML001 where we failed
    skipped    why a readable file is not checked, "" when it is
    digest     of the content, ``shape`` of the shape of the facts, ``sources`` of the functions' texts: only under a cache
    """

    path: str
    facts: ModuleFacts | None = None
    candidate: bool = False
    imports: frozenset[bytes] = frozenset()
    failed: Checked | None = None
    skipped: str = ""
    digest: str = ""
    shape: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def unread(self) -> bool:
        """Whether it is Python code that is skipped all the same: for its size, or its encoding."""
        return self.skipped.startswith(("skipped: larger", "skipped: more", "skipped: UTF-16"))
