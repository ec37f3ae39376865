"""What a run can take from the cache, and what it leaves there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torchmemlint.cache import Cache, Kept, Stamp, WholeRun, key_of, stamp
from torchmemlint.discover import Found
from torchmemlint.errors import SourceError
from torchmemlint.plain import to_json
from torchmemlint.settings import Settings
from torchmemlint.workers import Checked, Scanned, read_bytes

if TYPE_CHECKING:
    from torchmemlint.index.project import Project


class Remembered:
    """Findings of earlier runs, as far as they still hold in this project."""

    def __init__(
        self, cache: Cache, project: Project, scanned: Sequence[Scanned], settings: Mapping[str, Settings], by_hand: bool
    ) -> None:
        from torchmemlint.index.answers import Answers

        self._cache = cache
        self._settings = settings
        self._by_hand = by_hand
        texts = {one.path: one.digest for one in scanned}
        facts = {one.path: one.facts_digest for one in scanned}
        self.answers = Answers(project, texts, facts)
        self._wrappers = sorted({name for each in settings.values() for name in each.no_grad_wrappers})

    def checked(self, path: str) -> Checked | None:
        """What was found in a file, when every question that this rests on has the answer that it had."""
        kept = self._cache.findings(self._key(path))
        if kept is None or not kept.rests_on:
            return None
        if not all(self.answers.holds(question, answer) for question, answer in kept.rests_on):
            return None
        return Checked(path, kept.findings, kept.notes, (), kept.rests_on)

    def keep(self, checked: Checked) -> None:
        """Keeps what was found in a file, unless we failed there."""
        if checked.rests_on and not checked.crashes:
            self._cache.keep_findings(self._key(checked.path), Kept(checked.findings, checked.notes, checked.rests_on))

    def _key(self, path: str) -> str:
        # A file that is checked alone sees another project than in a run over its folder: the two do not displace each other.
        return key_of(path, os.getcwd(), self._settings[path], self._wrappers, self._by_hand)


class Repeated:
    """A run that may be the same as an earlier one over the same paths: the same files with the same content and settings.
    ``part`` of its result is told, all by default."""

    def __init__(self, cache: Cache, files: Sequence[Found], given: Sequence[str], part: object = None) -> None:
        self._cache = cache
        self._paths = [file.path for file in files]
        settings = sorted({to_json(file.settings) for file in files})
        number = {each: place for place, each in enumerate(settings)}
        self._key = key_of(
            os.getcwd(), tuple(given), part, settings, len(number) > 1 and [number[to_json(f.settings)] for f in files]
        )
        self._earlier: dict[str, Stamp] = {}
        self._stamps: dict[str, Stamp] = {}

    def result(self) -> tuple[dict[str, Scanned], dict[str, Checked]] | None:
        """What the earlier run ended with: of the files of which there is something to say."""
        run = self._cache.run(self._key)
        earlier = dict(run.files) if run is not None else {}
        self._stamps = _stamps(self._paths, earlier)
        if run is None or [path for path, _ in run.files] != self._paths:
            return None
        if any(path not in self._stamps or self._stamps[path].digest != before.digest for path, before in earlier.items()):
            return None
        scanned = {path: Scanned(path, skipped=why) for path, why in run.skipped}
        findings, notes = dict(run.findings), dict(run.notes)
        paths = sorted({*findings, *notes})
        return scanned, {path: Checked(path, findings.get(path, ()), notes.get(path, ())) for path in paths}

    def keep(self, scanned: Mapping[str, Scanned], checked: Mapping[str, Checked]) -> None:
        """Keeps this run's end, if it is one that another run would come to."""
        if any(one.crashes for one in checked.values()):
            return
        now = _stamps(self._paths, self._stamps)
        if any(path not in now or scanned[path].digest != now[path].digest for path in self._paths):
            return  # a file that cannot be read, or that changed meanwhile
        run = WholeRun(
            files=tuple((path, self._stamps[path]) for path in self._paths),
            findings=tuple((path, one.findings) for path, one in checked.items() if one.findings),
            notes=tuple((path, one.notes) for path, one in checked.items() if one.notes),
            skipped=tuple((path, one.skipped) for path, one in scanned.items() if one.skipped),
        )
        self._cache.keep_run(self._key, run)


def _stamps(paths: Sequence[str], earlier: Mapping[str, Stamp]) -> dict[str, Stamp]:
    found = {}
    for path in paths:
        try:
            now = stamp(path, read_bytes, earlier.get(path))
        except SourceError:
            continue
        if now is not None:
            found[path] = now
    return found
