"""What a run can take from the cache, and what it leaves there."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from torchmemlint.errors import SourceError
from torchmemlint.files.plain import to_json
from torchmemlint.incremental.cache import Asked, Cache, Kept, Link, Links, Stamp, WholeRun, key_of, stamp
from torchmemlint.incremental.told import BESIDE, Written, asked_of, kind_of, written
from torchmemlint.project.discover import Found
from torchmemlint.project.settings import Settings
from torchmemlint.source import is_notebook
from torchmemlint.workers import Checked, ScanAll, Scanned, read_bytes, scan

if TYPE_CHECKING:
    from torchmemlint.incremental.followed import Change, Edit, Followed
    from torchmemlint.index.facts import ModuleFacts
    from torchmemlint.index.modules import Modules
    from torchmemlint.index.project import Project
    from torchmemlint.index.words import Words

MANY = 50
"""Changed files from which a run starts anew."""


class Remembered:
    """Findings of earlier runs, as far as they still hold in this project."""

    def __init__(
        self,
        cache: Cache,
        project: Project,
        seen: Seen,
        settings: Mapping[str, Settings],
        by_hand: bool = False,
        holding: Mapping[str, int | None] | None = None,
        comments: bool = True,
    ) -> None:
        from torchmemlint.index.answers import Answers

        self._cache = cache
        self._keys = Keys(settings, by_hand, comments)
        self._trail = project.trail
        self.answers = Answers(project, seen, True, holding)

    def checked(self, path: str) -> Checked | None:
        """What was found in a file, when every question that this rests on has the answer that it had."""
        found = self._cache.findings(self._keys.of(path))
        if found is None or not found[0].rests_on:
            return None
        kept, digest = found
        if not all(self.answers.holds(question, answer) for question, answer in kept.rests_on):
            return None
        asked = self.answers.codes(question for question, _ in kept.rests_on)
        reads = _reads(path, kept.rests_on)
        return Checked(path, kept.findings, kept.notes, asked=asked, segment=self._trail.segment(), kept=digest, reads=reads)

    def keep(self, checked: Checked) -> Checked:
        """Keeps what was found in a file, unless we failed there; the same without what it rests on, which is much."""
        if not checked.rests_on or checked.crashes:
            return checked
        long = self.answers.long
        kept = Kept(
            checked.findings,
            checked.notes,
            checked.rests_on,
            tuple(
                (told, zlib.decompress(long[told]).decode())
                for told in dict.fromkeys(t for _, t in checked.rests_on if t in long)
            ),
        )
        digest = self._cache.keep_findings(self._keys.of(checked.path), kept)
        segment = self.flush() if checked.asked else ""
        reads = _reads(checked.path, checked.rests_on)
        return replace(checked, rests_on=(), segment=segment, kept=digest, reads=reads)

    def flush(self) -> str:
        """Writes down of what answers were made; the name of this process's segment."""
        name = self._trail.segment()
        if name:
            from torchmemlint.index.dependencies import written

            self._cache.add_to_segment(name, written(self._trail))
        return name


class Seen:
    """What a run saw of its files, as digests; what it did not look at is as it was ``before``."""

    def __init__(self, scanned: Iterable[Scanned], before: Before | None) -> None:
        # Not the files' facts: this goes to other processes.
        self._files = {one.path: (one.digest, one.shape, one.sources) for one in scanned}
        self._before = before

    def text(self, path: str) -> str:
        """Of a file's content; "" where it is not known."""
        if path in self._files:
            return self._files[path][0]
        stamp = self._before.stamps.get(path) if self._before is not None else None
        return stamp.digest if stamp is not None else ""

    def shape(self, path: str) -> str:
        """Of the shape of a file's facts; "" where it has none."""
        if self._before is not None and path in self._before.links:
            return self._before.links[path].shape
        return self._files[path][1] if path in self._files else ""

    def sources(self, path: str) -> Mapping[str, str]:
        """Of the texts of a file's functions (``index.sources``)."""
        if path in self._files or self._before is None:
            return self._files[path][2] if path in self._files else {}
        return self._before.sources(path)


class Keys:
    """Under what the findings of files are kept."""

    def __init__(self, settings: Mapping[str, Settings], by_hand: bool, comments: bool = True) -> None:
        self._settings = settings
        self._by_hand = by_hand
        self._comments = comments
        self.wrappers = sorted({name for each in settings.values() for name in each.no_grad_wrappers})

    def of(self, path: str) -> str:
        # A file that is checked alone sees another project than in a run over its folder: the two do not displace each other.
        return key_of(path, os.getcwd(), self._settings[path].of_analysis(), self.wrappers, self._by_hand, self._comments)


@dataclass(slots=True, eq=False)
class Before:
    """An earlier run over nearly the same files, of which ``changed`` have other contents now, or are new, and ``gone`` are not
    there any more.

    ``then`` are the links of its files, in its order; ``links`` those of the files that are there now, in theirs. ``wanted`` gets
    the files that are to be checked again once ``same_for_others`` or ``follows`` says yes; of all others the earlier run says what
    there is to say.
    """

    cache: Cache
    run: WholeRun
    then: Mapping[str, Link]
    changed: tuple[str, ...]
    gone: tuple[str, ...]
    stamps: Mapping[str, Stamp]
    keys: Keys
    key: str
    trails: str
    words: str
    contents: dict[str, str] = field(init=False)
    links: dict[str, Link] = field(init=False)
    wanted: list[str] = field(default_factory=list)
    edits: dict[str, Edit] = field(default_factory=dict)
    followed: Followed | None = None
    holding: Mapping[str, int | None] = field(default_factory=dict)
    _kept: dict[str, Kept] = field(default_factory=dict)
    _modules: Modules | None = None
    _words_are_lost: bool = False
    _facts: dict[tuple[str, str], tuple[ModuleFacts, str, Mapping[str, str]] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.contents = {path: stamp.digest for path, stamp in self.run.files}
        self.links = {path: self.then.get(path, Link("", "", "", ())) for path in self.stamps}

    def same_for_others(self, scanned: Mapping[str, Scanned]) -> bool:
        """Whether the ``changed`` files, ``scanned`` again, are to all other files what they were; and what those keep that read
        their texts is at hand."""
        from torchmemlint.incremental.followed import Edit

        for path in self.changed:
            link, given = self.links[path], scanned[path]
            now = self._fuller(given) if link.shape else given
            if not link.state or link.state != state_of(now, given):
                self.edits[path] = Edit(given, now)
        self._want(scanned, lambda path: False)
        return not self.edits and not self.gone and self._has_kept()

    def follows(self, scanned: Mapping[str, Scanned]) -> bool:
        """Whether it is known what rests on the ``edits`` that others see, and all that is kept of these files is at hand."""
        from torchmemlint.incremental.followed import Change, Followed, kinds_now
        from torchmemlint.index.said import nothing

        trails = self.cache.trails(self.key, self.trails) if self.trails else None
        if trails is None or len(trails.files) != len(self.then) or any(map(is_notebook, (*self.edits, *self.gone))):
            return False
        files = dict(zip(self.then, trails.files, strict=True))
        known = kinds_now(files, self.then, self.edits, self.gone)
        kinds = {path: known[path] for path in self.links}
        others = {path for path, kind in kinds.items() if path in files and files[path].kind != kind}
        changes: list[Change] = []
        for path in sorted({*self.edits, *self.gone, *others}):
            found = self._facts_of(path, self.contents[path]) if path in self.then and self.then[path].shape else None
            if found is None and path in self.then and self.then[path].shape:
                return False
            now = None if path in self.gone else self._as_now(path, kinds, files)
            if now is not None and now.digest not in ("", self.stamps[path].digest):
                return False  # it changed once more
            if (found[1] if found is not None else "") != (now.shape if now is not None else ""):
                facts = now.facts if now is not None else None
                changes.append(Change(found[0] if found is not None else nothing(path), facts or nothing(path)))
        modules = [path for path, link in self.then.items() if link.shape]
        make = partial(self._new_project, scanned)
        try:
            followed = self.followed = Followed(self.cache, trails, files, kinds, modules, changes, make)
        except ValueError:
            return False
        self._want(scanned, lambda path: followed.rests_on_them(path, self.links[path]))
        return self._has_kept()

    def _as_now(self, path: str, kinds: dict[str, str], files: Mapping[str, Asked]) -> Scanned:
        """A file whose facts are others now, or one that is beside others as it was not before, or the other way round: with its
        facts if it is a module. ``kinds`` learn of files beside others that cannot be parsed."""
        from torchmemlint.incremental.followed import Edit

        edit = self.edits.get(path)
        if edit is None:
            imports = frozenset(name.encode(errors="surrogateescape") for name in files[path].imports)
            edit = Edit(Scanned(path, imports=imports), Scanned(path))
        now = edit.given
        if kinds[path] == BESIDE:
            fuller = edit.now if edit.now.facts is not None else self._fuller(edit.given)
            now = fuller if fuller.facts is not None else now
            kinds[path] = kind_of(edit.given, now)
        self.edits[path] = Edit(edit.given, now)
        self.links[path] = replace(self.links[path], state=state_of(now, edit.given), shape=now.shape)
        return now

    def _fuller(self, given: Scanned) -> Scanned:
        """A file with its facts, also where it does not speak of torch."""
        if given.facts is not None or given.failed is not None or given.skipped:
            return given
        return scan(ScanAll({given.path: Settings()}, {}, parse_all=True, cache=self.cache), given.path)

    def _want(self, scanned: Mapping[str, Scanned], rests_on_edits: Callable[[str], bool]) -> None:
        """Files are ``wanted`` that changed, or are new, that read texts which changed, and that rest on edits of others."""
        others = frozenset((*self.changed, *self.gone))
        changed = {
            number: self._changed_functions(path, scanned[path] if path in self.links else Scanned(path))
            for number, path in enumerate(self.then)
            if path in others
        }
        self.wanted = [
            path
            for path in self.links
            if path in self.changed
            or any(number in changed and not changed[number].isdisjoint(names) for number, names in self.links[path].reads)
            or rests_on_edits(path)
        ]

    def _has_kept(self) -> bool:
        """Whether what is kept of the files that are wanted is at hand."""
        for path in self.wanted:
            found = self.cache.findings(self.keys.of(path)) if self.links[path].kept else None
            if found is not None and found[1] == self.links[path].kept:
                self._kept[path] = found[0]
            elif self.links[path].kept:
                return False  # another run was here
        return True

    def _changed_functions(self, path: str, now: Scanned) -> frozenset[str]:
        """The functions of a changed file whose texts changed; among them "", which stands for the whole text."""
        then = self.sources(path)
        return frozenset({"", *(name for name in {*then, *now.sources} if then.get(name) != now.sources.get(name))})

    def sources(self, path: str) -> Mapping[str, str]:
        """The digests of a file's functions, as the earlier run saw it."""
        found = self._facts_of(path, self.contents[path]) if path in self.then and self.then[path].shape else None
        return found[2] if found is not None else {}

    def _facts_of(self, path: str, content: str) -> tuple[ModuleFacts, str, Mapping[str, str]] | None:
        """``Cache.facts``, read once: both its facts and the digests of its functions are asked for."""
        if (path, content) not in self._facts:
            self._facts[path, content] = self.cache.facts(content, path)
        return self._facts[path, content]

    def project(self, scanned: Mapping[str, Scanned]) -> Project:
        """The project, in which what was answered for the files that are ``wanted`` still holds."""
        from torchmemlint.index.answers import Earlier

        pairs = {pair for kept in self._kept.values() for pair in kept.rests_on}
        long = dict(pair for kept in self._kept.values() for pair in kept.answers)
        if self.followed is None:
            project = self._new_project(scanned, None)
            project.earlier = Earlier(pairs, long)
            return project
        steps: dict[str, int | None] = {}
        again: set[str] = set()
        for path, kept in self._kept.items():
            holding, asked = self.followed.still(path, self.links[path].kept, kept.rests_on)
            steps |= holding
            again |= asked
        self.holding = {question: step for question, step in steps.items() if question not in again}
        known = {question: step for question, step in self.holding.items() if step is not None}
        project = self.followed.project
        project.earlier = Earlier((pair for pair in pairs if pair[0] in known), long, known)
        return project

    def _new_project(self, scanned: Mapping[str, Scanned], trail: int | None) -> Project:
        """The modules of the project as they are now, each looked at when it is asked about: those that did not change are had
        from the cache."""
        from torchmemlint.index.modules import Modules
        from torchmemlint.index.project import Project

        def one(path: str) -> ModuleFacts:
            at_hand = self.edits[path].now if path in self.edits else scanned.get(path)
            facts = at_hand.facts if at_hand is not None else None
            facts = facts or self.cache.facts_alone(self.stamps[path].digest, path)
            facts = facts or scan(ScanAll({path: Settings()}, {}, parse_all=True), path).facts
            if facts is None:
                raise SourceError(f"{path} changed while it was looked at")
            return facts

        paths = [path for path, link in self.links.items() if link.shape]
        self._modules = Modules(paths, one, partial(self._words, one))
        return Project(self._modules, self.keys.wrappers, trail=trail)

    def _words(self, one: Callable[[str], ModuleFacts]) -> Words | None:
        """Which modules say a word, if it was written down, and not too many changed since."""
        from torchmemlint.index.words import Words

        data = self.cache.words(self.key, self.words) if self.words else None
        try:
            if data is not None:
                return Words(data, self._shapes(), one, MANY)
        except ValueError:
            pass
        self._words_are_lost = True
        return None

    def words_now(self) -> bytes | str:
        """Which modules say a word, to be kept: the digest of what is kept unless that does not serve any more."""
        if self._modules is None or not self._words_are_lost:
            return self.words
        from torchmemlint.index.words import written

        shapes = self._shapes()
        return written(shapes, (self._modules[path] for path, shape in shapes.items() if shape))

    def _shapes(self) -> dict[str, str]:
        return {path: link.shape for path, link in self.links.items()}

    def now(self, checked: Mapping[str, Checked]) -> dict[str, Link]:
        """The links, after the files that are wanted were checked again."""
        numbers = {path: number for number, path in enumerate(self.links)}
        found = dict(self.links) if [*self.then] == [*self.links] else self._renumbered(numbers)
        for path in self.wanted:
            kept, reads = _linked(checked.get(path), numbers)
            found[path] = replace(self.links[path], kept=kept, reads=reads)
        return found

    def _renumbered(self, numbers: Mapping[str, int]) -> dict[str, Link]:
        """The links with the places of files as they are now."""
        places = [numbers.get(path, -1) for path in self.then]

        def moved(link: Link) -> Link:
            reads = sorted((places[number], names) for number, names in link.reads if places[number] >= 0)
            return replace(link, reads=tuple(reads))

        return {path: moved(link) if link.reads else link for path, link in self.links.items()}

    def result(self) -> tuple[dict[str, Scanned], dict[str, Checked]]:
        """What the earlier run says of the files that are not wanted."""
        again = frozenset(self.wanted)
        scanned, checked = _result(self.run)
        return (
            {path: one for path, one in scanned.items() if path in self.links and path not in again},
            {path: one for path, one in checked.items() if path in self.links and path not in again},
        )


def state_of(scanned: Scanned, as_given: Scanned) -> str:
    """Digest of all that others can see of a file; "" where that cannot be said. ``as_given`` is what the run's own scan gave,
    ``scanned`` may have facts beyond that."""
    if scanned.failed is not None or scanned.skipped or is_notebook(scanned.path):
        return ""
    imports = sorted(name.decode(errors="replace") for name in as_given.imports)
    return key_of(as_given.facts is None, scanned.shape, imports)


class Repeated:
    """A run that may be the same as an earlier one over the same paths: the same files with the same content and settings.
    ``part`` of its result is told, all by default; ``comments`` False, what they suppress, too."""

    def __init__(
        self, cache: Cache, files: Sequence[Found], given: Sequence[str], part: object = None, *, comments: bool = True
    ) -> None:
        self._cache = cache
        self._comments = comments
        self._given = tuple(given) if part is None else None
        self._paths = [file.path for file in files]
        self._settings = {file.path: file.settings for file in files}
        each = {file.settings: to_json(file.settings.of_analysis()) for file in files}
        settings = sorted(set(each.values()))
        number = {text: place for place, text in enumerate(settings)}
        self._key = key_of(
            os.getcwd(), tuple(given), part, settings, len(number) > 1 and [number[each[f.settings]] for f in files], comments
        )
        self._run: tuple[WholeRun, str] | None = None
        self._stamps: dict[str, Stamp] = {}

    def result(self) -> tuple[dict[str, Scanned], dict[str, Checked]] | None:
        """What the earlier run ended with, if nothing changed: of the files of which there is something to say."""
        self._run = self._cache.run(self._key)
        earlier = dict(self._run[0].files) if self._run is not None else {}
        self._stamps = _stamps(self._paths, earlier)
        if self._run is None or [*earlier] != self._paths:
            return None
        same = all(path in self._stamps and self._stamps[path].digest == one.digest for path, one in earlier.items())
        return _result(self._run[0]) if same else None

    def before(self) -> Before | None:
        """The earlier run, when after ``result`` gave none it is known which few files changed, came or went."""
        if self._run is None or any(path not in self._stamps for path in self._paths):
            return None
        then = dict(self._run[0].files)
        changed = tuple(path for path in self._paths if path not in then or self._stamps[path].digest != then[path].digest)
        gone = tuple(path for path in then if path not in self._stamps)
        links = self._cache.links(self._key) if changed or gone else None
        if links is None or len(changed) + len(gone) > MANY:
            return None
        if links.run != self._run[1] or len(links.files) != len(then):
            return None
        return Before(
            self._cache,
            self._run[0],
            dict(zip(then, links.files, strict=True)),
            changed,
            gone,
            self._stamps,
            Keys(self._settings, False, self._comments),
            self._key,
            links.trails,
            links.words,
        )

    def keep(
        self,
        texts: Mapping[str, str],
        scanned: Mapping[str, Scanned],
        checked: Mapping[str, Checked],
        links: Mapping[str, Link],
        trails: Callable[[], Written] | str = "",
        words: Callable[[], bytes | str] = str,
    ) -> None:
        """Keeps this run's end, if it is one that another run would come to. ``texts`` are the digests of the contents that it
        saw; ``trails`` gives its trails, or is the digest of those that are kept and are its own, too; so does ``words``."""
        if any(one.crashes for one in checked.values()):
            return
        now = _stamps(self._paths, self._stamps)
        if any(path not in now or texts.get(path) != now[path].digest for path in self._paths):
            return  # a file that cannot be read, or that changed meanwhile
        run = WholeRun(
            files=tuple((path, self._stamps[path]) for path in self._paths),
            findings=tuple((path, one.findings) for path, one in checked.items() if one.findings),
            notes=tuple((path, one.notes) for path, one in checked.items() if one.notes),
            skipped=tuple((path, one.skipped) for path, one in scanned.items() if one.skipped),
        )
        written = self._cache.keep_run(self._key, run)
        told = trails if isinstance(trails, str) else self._cache.keep_trails(self._key, *trails())
        said = words()
        said = said if isinstance(said, str) else self._cache.keep_words(self._key, said)
        self._cache.keep_links(self._key, Links(written, told, said, tuple(links[path] for path in self._paths)))
        if self._given is not None:
            self._cache.keep_folder(folder_key(), self._given)

    def trails(self, scanned: Mapping[str, Scanned], around: Iterable[Scanned], checked: Mapping[str, Checked]) -> Written:
        """Of what the answers for the files were made, in a run that ``scanned`` all; ``around`` as for ``links``."""
        beside = {one.path: one for one in around}
        return written(
            self._cache,
            self._paths,
            lambda path, places: asked_of(scanned[path], beside.get(path, scanned[path]), checked.get(path), places),
            checked.values(),
        )

    def links(
        self,
        scanned: Mapping[str, Scanned],
        around: Iterable[Scanned],
        checked: Mapping[str, Checked],
    ) -> dict[str, Link]:
        """The links of the files that this run ``scanned``; ``around`` are those of which it took facts beyond that."""
        numbers = {path: number for number, path in enumerate(self._paths)}
        beside = {one.path: one for one in around}
        found = {}
        for path, one in scanned.items():
            fuller = beside.get(path, one)
            found[path] = Link(state_of(fuller, one), fuller.shape, *_linked(checked.get(path), numbers))
        return found


def folder_key() -> str:
    """Under what runs over folders are remembered: the paths of their files begin in the current folder."""
    return key_of(os.getcwd())


def _linked(checked: Checked | None, numbers: Mapping[str, int]) -> tuple[str, tuple[tuple[int, tuple[str, ...]], ...]]:
    """``Link.kept`` and ``Link.reads`` of a file."""
    if checked is None:
        return "", ()
    found: dict[int, list[str]] = {}
    for path, function in checked.reads:
        if path in numbers:
            found.setdefault(numbers[path], []).append(function)
    return checked.kept, tuple((number, tuple(names)) for number, names in sorted(found.items()))


def _reads(path: str, rests_on: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The texts in other files that the findings of one rest on (see ``Checked.reads``)."""
    texts = (json.loads(question)[1:] for question, _ in rests_on if question.startswith(('["text"', '["source"')))
    return tuple(sorted((other, name[0] if name else "") for other, *name in texts if other != path))


def _result(run: WholeRun) -> tuple[dict[str, Scanned], dict[str, Checked]]:
    scanned = {path: Scanned(path, skipped=why) for path, why in run.skipped}
    findings, notes = dict(run.findings), dict(run.notes)
    paths = sorted({*findings, *notes})
    return scanned, {path: Checked(path, findings.get(path, ()), notes.get(path, ())) for path in paths}


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
