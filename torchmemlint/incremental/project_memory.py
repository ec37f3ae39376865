"""The project of a language server, kept from one check to the next.

After an edit, only answers that may have changed are computed again.

What ``propagation`` does for files with logs on disk, this does in memory for the answers of one project: each is kept with what it
depends on, and an edit invalidates those that depend on what it changed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchmemlint.incremental.changed_keys import Edit
from torchmemlint.incremental.dependency_graph import DependencyGraph, Segment, after_edits, serialized
from torchmemlint.incremental.query_results import OF_FILES
from torchmemlint.index.dependency_log import MISSING, Dependency
from torchmemlint.index.facts import ModuleFacts
from torchmemlint.index.modules import Modules
from torchmemlint.index.project import Project

_MOST_EDITS = 3
"""Modules that may change at once: more is no typing."""
_MOST_PROJECTS = 40
"""After so many edits in a row, the project is made anew: the log of each of them is looked through."""


_Query = tuple[Hashable, ...]
_Known = tuple[Any, Dependency]
"""An answer, and what it depends on."""


@dataclass(slots=True, eq=False)
class ProjectMemory:
    """The last project, and the logs of those before it."""

    _project: Project | None = None
    _asked: tuple[tuple[str, ...], bool] = ((), True)
    _segments: list[Segment] = field(default_factory=list)

    def project(self, facts: Sequence[ModuleFacts], no_grad_wrappers: Sequence[str], complete: bool) -> Project:
        """The project of these modules. It has the answers of the last one that still hold."""
        asked = (tuple(no_grad_wrappers), complete)
        found = self._after_an_edit(facts, *asked) if self._project is not None and asked == self._asked else None
        if found is None:
            self._segments = []
            found = Project.build(facts, no_grad_wrappers, complete, 0)
        found.answers = {}
        self._project, self._asked = found, asked
        return found

    def _after_an_edit(self, facts: Sequence[ModuleFacts], wrappers: tuple[str, ...], complete: bool) -> Project | None:
        """The project after an edit of few modules; None where anything may have changed."""
        before = self._project
        assert before is not None
        now = {module.path: module for module in facts}
        if [*before.modules] != sorted(now) or before.answers is None or len(self._segments) >= _MOST_PROJECTS:
            return None
        edits = [(before.modules[path], module) for path, module in now.items() if before.modules[path] is not module]
        if len(edits) > _MOST_EDITS:
            return None
        size = sum(len(segment.counts) for segment in self._segments)
        segment = Segment(size, size)
        segment.read(serialized(before.log))
        self._segments.append(segment)
        project = Project(Modules.of(facts), wrappers, complete, size + len(segment.counts))
        try:
            project.earlier = _Kept(before, _holding(before, project, self._segments, edits))
        except ValueError:
            return None
        return project


def _holding(
    before: Project, project: Project, segments: Sequence[Segment], edits: Sequence[Edit]
) -> Callable[[Dependency], bool]:
    """Says whether what has this dependency is as it was. Raises ValueError where anything may have changed."""
    keys, invalidated = after_edits(DependencyGraph(segments), before.paths, edits, project)
    nodes = invalidated.nodes
    return lambda dependency: dependency not in nodes if type(dependency) is int else dependency not in keys


class _Kept:
    """The answers of a project that still hold in the next one (``StoredResults``)."""

    def __init__(self, before: Project, holds: Callable[[Dependency], bool]) -> None:
        assert before.answers is not None
        earlier = before.earlier.kept if isinstance(before.earlier, _Kept) else {}
        every = (*earlier.items(), *before.answers.items())
        self.kept: dict[_Query, _Known] = {
            query: known for query, known in every if query[0] not in OF_FILES and holds(known[1])
        }

    def answer(self, query: tuple[Hashable, ...], /) -> Any:
        known = self.kept.get(query)
        return MISSING if known is None else known[0]

    def dependency(self, query: tuple[Hashable, ...], /) -> Dependency:
        return self.kept[query][1]
