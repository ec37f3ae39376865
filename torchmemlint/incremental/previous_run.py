"""An earlier run over nearly the same files, brought up to date: which files are stale after an edit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from torchmemlint.errors import SourceError
from torchmemlint.incremental.records import BESIDE, Dependencies, FileDependencies, FileEntry, Manifest, StoredFindings
from torchmemlint.incremental.runs import CachedRun, FindingsKeys, Outcome, findings_and_reads, interface_of, kind_of, outcome
from torchmemlint.project.results import Checked, Scanned
from torchmemlint.project.settings import Settings
from torchmemlint.source import is_notebook
from torchmemlint.workers import ScanAll, scan

if TYPE_CHECKING:
    from torchmemlint.incremental.propagation import Edit, Propagation
    from torchmemlint.incremental.word_index import WordIndex
    from torchmemlint.index.facts import ModuleFacts
    from torchmemlint.index.modules import Modules
    from torchmemlint.index.project import Project

MANY = 50
"""Changed files from which a run starts from nothing."""


class PreviousRun:
    """An earlier run, of which ``changed`` files have other contents now, or are new, and ``deleted`` ones are gone.

    ``earlier`` are the entries of its files, in its order; ``entries`` those of the files that exist now, in theirs. ``stale`` gets
    the files to be checked again once ``interfaces_unchanged`` or ``propagates`` is true; all others are as they were.
    """

    def __init__(self, run: CachedRun, manifest: Manifest, changed: tuple[str, ...], deleted: tuple[str, ...]) -> None:
        assert run.earlier is not None
        self._run = run
        self._cache = run.cache
        self._manifest = manifest
        self._contents = {path: stamp.digest for path, stamp in run.earlier.files}
        self._keys = FindingsKeys(run.settings, False, run.comments)
        self.changed = changed
        self.deleted = deleted
        self.stamps = run.stamps
        self.earlier: Mapping[str, FileEntry] = dict(zip(self._contents, manifest.files, strict=True))
        self.entries = {path: self.earlier.get(path, FileEntry("", "", "", ())) for path in self.stamps}
        self.stale: list[str] = []
        self.unchanged: Mapping[str, int | None] = {}
        """Queries of stale files whose results hold (see ``query_results.QueryResults``)."""
        self._edits: dict[str, Edit] = {}
        self._propagation: Propagation | None = None
        self._stored: dict[str, StoredFindings] = {}
        self._modules: Modules | None = None
        self._lacks_words = False
        self._facts: dict[tuple[str, str], tuple[ModuleFacts, str, Mapping[str, str]] | None] = {}

    @classmethod
    def of(cls, run: CachedRun) -> PreviousRun | None:
        """The earlier run, when after ``CachedRun.result`` gave none it is known which few files changed, came or went."""
        manifest = run.manifest()
        if manifest is None or run.earlier is None:
            return None
        files = dict(run.earlier.files)
        changed = tuple(path for path, now in run.stamps.items() if path not in files or now.digest != files[path].digest)
        deleted = tuple(path for path in files if path not in run.stamps)
        return cls(run, manifest, changed, deleted) if 0 < len(changed) + len(deleted) <= MANY else None

    def interfaces_unchanged(self, scanned: Mapping[str, Scanned]) -> bool:
        """Whether the ``changed`` files, ``scanned`` again, are to all other files what they were, and what is stored of the stale
        files is at hand."""
        from torchmemlint.incremental.propagation import Edit

        for path in self.changed:
            entry, given = self.entries[path], scanned[path]
            now = self._fuller(given) if entry.shape else given
            if not entry.interface or entry.interface != interface_of(now, given):
                self._edits[path] = Edit(given, now)
        self._find_stale(scanned, lambda path: False)
        return not self._edits and not self.deleted and self._load_findings()

    def propagates(self, scanned: Mapping[str, Scanned]) -> bool:
        """Whether the dependency log says which files are stale after edits that others see, and what is stored of these files
        is at hand."""
        from torchmemlint.incremental.changed_keys import empty_module
        from torchmemlint.incremental.propagation import Propagation, kinds_after

        digest = self._manifest.dependencies
        logged = self._cache.dependencies(self._run.key, digest) if digest else None
        if logged is None or any(map(is_notebook, (*self._edits, *self.deleted))):
            return False
        files = dict(zip(self.earlier, logged.files, strict=False))
        if len(files) != len(self.earlier):
            return False
        known = kinds_after(files, self.earlier, self._edits, self.deleted)
        kinds = {path: known[path] for path in self.entries}
        others = {path for path, kind in kinds.items() if path in files and files[path].kind != kind}
        edits: list[tuple[ModuleFacts, ModuleFacts]] = []
        for path in sorted({*self._edits, *self.deleted, *others}):
            was_module = path in self.earlier and bool(self.earlier[path].shape)
            found = self._facts_of(path) if was_module else None
            if found is None and was_module:
                return False
            now = None if path in self.deleted else self._as_now(path, kinds, files)
            if now is not None and now.digest not in ("", self.stamps[path].digest):
                return False  # it changed once more
            if (found[1] if found is not None else "") != (now.shape if now is not None else ""):
                before = found[0] if found is not None else empty_module(path)
                edits.append((before, (now.facts if now is not None else None) or empty_module(path)))
        modules = [path for path, entry in self.earlier.items() if entry.shape]
        make = partial(self._new_project, scanned)
        try:
            propagation = self._propagation = Propagation(self._cache, logged.segments, files, kinds, modules, edits, make)
        except ValueError:
            return False
        self._find_stale(scanned, lambda path: propagation.is_stale(path, self.entries[path]))
        return self._load_findings()

    def _as_now(self, path: str, kinds: dict[str, str], files: Mapping[str, FileDependencies]) -> Scanned:
        """A file whose facts are others now, or one that is beside others as it was not before, or the other way round: with its
        facts if it is a module. ``kinds`` learn of files beside others that cannot be parsed."""
        from torchmemlint.incremental.propagation import Edit

        edit = self._edits.get(path)
        if edit is None:
            imports = frozenset(name.encode(errors="surrogateescape") for name in files[path].imports)
            edit = Edit(Scanned(path, imports=imports), Scanned(path))
        now = edit.given
        if kinds[path] == BESIDE:
            fuller = edit.now if edit.now.facts is not None else self._fuller(edit.given)
            now = fuller if fuller.facts is not None else now
            kinds[path] = kind_of(edit.given, now)
        self._edits[path] = Edit(edit.given, now)
        self.entries[path] = replace(self.entries[path], interface=interface_of(now, edit.given), shape=now.shape)
        return now

    def _fuller(self, given: Scanned) -> Scanned:
        """A file with its facts, also where it does not mention torch."""
        if given.facts is not None or given.failed is not None or given.skipped:
            return given
        return scan(ScanAll({given.path: Settings()}, {}, parse_all=True, cache=self._cache), given.path)

    def _find_stale(self, scanned: Mapping[str, Scanned], depends_on_edits: Callable[[str], bool]) -> None:
        """Files are ``stale`` that changed, or are new, that read texts which changed, and that depend on edits of others."""
        others = frozenset((*self.changed, *self.deleted))
        changed = {
            number: self._changed_functions(path, scanned[path] if path in self.entries else Scanned(path))
            for number, path in enumerate(self.earlier)
            if path in others
        }
        self.stale = [
            path
            for path, entry in self.entries.items()
            if path in self.changed
            or any(number in changed and not changed[number].isdisjoint(names) for number, names in entry.reads)
            or depends_on_edits(path)
        ]

    def _load_findings(self) -> bool:
        """Whether what is stored of the stale files is at hand."""
        for path in self.stale:
            entry = self.entries[path].findings
            found = self._cache.findings(self._keys.of(path)) if entry else None
            if found is not None and found[1] == entry:
                self._stored[path] = found[0]
            elif entry:
                return False  # another run was here
        return True

    def _changed_functions(self, path: str, now: Scanned) -> frozenset[str]:
        """The functions of a changed file whose texts changed; among them "", which stands for the whole text."""
        then = self.sources(path)
        return frozenset({"", *(name for name in {*then, *now.sources} if then.get(name) != now.sources.get(name))})

    def sources(self, path: str) -> Mapping[str, str]:
        """The digests of a file's functions, as the earlier run saw it."""
        found = self._facts_of(path) if path in self.earlier and self.earlier[path].shape else None
        return found[2] if found is not None else {}

    def _facts_of(self, path: str) -> tuple[ModuleFacts, str, Mapping[str, str]] | None:
        """``Cache.facts`` of a file of the earlier run, read once."""
        key = path, self._contents[path]
        if key not in self._facts:
            self._facts[key] = self._cache.facts(key[1], path)
        return self._facts[key]

    def project(self, scanned: Mapping[str, Scanned]) -> Project:
        """The project, which gives the stored results of all queries of stale files that still hold."""
        from torchmemlint.incremental.query_results import StoredQueries

        pairs = {pair for stored in self._stored.values() for pair in stored.queries}
        long = dict(pair for stored in self._stored.values() for pair in stored.results)
        if self._propagation is None:
            project = self._new_project(scanned, None)
            project.earlier = StoredQueries(pairs, long)
            return project
        hold: dict[str, int | None] = {}
        again: set[str] = set()
        for path, stored in self._stored.items():
            unchanged, changed = self._propagation.queries(path, self.entries[path].findings, stored.queries)
            hold |= unchanged
            again |= changed
        self.unchanged = {query: node for query, node in hold.items() if query not in again}
        nodes = {query: node for query, node in self.unchanged.items() if node is not None}
        project = self._propagation.project
        project.earlier = StoredQueries((pair for pair in pairs if pair[0] in nodes), long, nodes)
        return project

    def _new_project(self, scanned: Mapping[str, Scanned], first_node: int | None) -> Project:
        """The modules as they are now, the facts of each made when they are asked for: from the cache, if it did not change."""
        from torchmemlint.index.modules import Modules
        from torchmemlint.index.project import Project

        def facts_now(path: str) -> ModuleFacts:
            at_hand = self._edits[path].now if path in self._edits else scanned.get(path)
            facts = at_hand.facts if at_hand is not None else None
            if facts is None:
                found = self._cache.facts(self.stamps[path].digest, path)
                facts = found[0] if found is not None else None
            facts = facts or scan(ScanAll({path: Settings()}, {}, parse_all=True), path).facts
            if facts is None:
                raise SourceError(f"{path} changed while it was looked at")
            return facts

        paths = [path for path, entry in self.entries.items() if entry.shape]
        self._modules = Modules(paths, facts_now, partial(self._word_index, facts_now))
        return Project(self._modules, self._keys.wrappers, first_node=first_node)

    def _word_index(self, facts_now: Callable[[str], ModuleFacts]) -> WordIndex | None:
        """The word index of the earlier run, if not too many modules changed since it was made."""
        from torchmemlint.incremental.word_index import WordIndex

        digest = self._manifest.words
        data = self._cache.read("words", self._run.key, digest) if digest else None
        try:
            if data is not None:
                return WordIndex(data, self._shapes(), facts_now, MANY)
        except ValueError:
            pass
        self._lacks_words = True
        return None

    def _words_now(self) -> bytes | str:
        """The word index to be stored: the digest of the stored one, unless it is out of date."""
        if self._modules is None or not self._lacks_words:
            return self._manifest.words
        from torchmemlint.incremental.word_index import serialized

        shapes = self._shapes()
        return serialized(shapes, (self._modules[path] for path, shape in shapes.items() if shape))

    def _shapes(self) -> dict[str, str]:
        return {path: entry.shape for path, entry in self.entries.items()}

    def store(self, scanned: Mapping[str, Scanned], checked: Mapping[str, Checked]) -> Outcome:
        """Stores the run after its stale files were checked again; its whole result."""
        assert self._run.earlier is not None
        was_scanned, was_checked = outcome(self._run.earlier)
        skipped = {path: one for path, one in was_scanned.items() if path in self.entries and path not in self.stale}
        found = {path: one for path, one in was_checked.items() if path in self.entries and path not in self.stale}
        contents = {path: one.digest for path, one in self.stamps.items()} | {p: one.digest for p, one in scanned.items()}
        entries, propagation = self._entries_now(checked), self._propagation

        def dependencies() -> Dependencies:
            assert propagation is not None
            return propagation.dependencies(self._edits, checked)

        logged = self._manifest.dependencies if propagation is None else dependencies
        self._run.store(contents, skipped | dict(scanned), found | dict(checked), entries, logged, self._words_now)
        return skipped | dict(scanned), found | dict(checked)

    def _entries_now(self, checked: Mapping[str, Checked]) -> dict[str, FileEntry]:
        """The entries, after the stale files were checked again."""
        numbers = {path: number for number, path in enumerate(self.entries)}
        places = [numbers.get(path, -1) for path in self.earlier]

        def moved(entry: FileEntry) -> FileEntry:
            """With the places of files as they are now."""
            reads = sorted((places[number], names) for number, names in entry.reads if places[number] >= 0)
            return replace(entry, reads=tuple(reads))

        found = self.entries
        if [*self.earlier] != [*found]:
            found = {path: moved(entry) if entry.reads else entry for path, entry in found.items()}
        for path in self.stale:
            findings, reads = findings_and_reads(checked.get(path), numbers)
            found[path] = replace(self.entries[path], findings=findings, reads=reads)
        return found
