"""What earlier runs learned, in a folder that may be deleted at any time. Each entry is sealed with a secret of the user's
(``places``): what anybody else wrote, or put in another's place, is not there.

    facts/     facts of a file by the digest of its content: they depend on nothing else
    findings/  findings of a file, with every question asked of the project for them and its answer
    runs/      the whole result of a run, with size, time and digest of each file: for when nothing changed
    links/     what ties the files of a run together: for when what changed in it changed nothing that others can see
    trails/    on which answers the findings of each file of a run rest, for when it did
    segments/  of which keys and answers these were made (``index.dependencies``), as one process wrote it down
    words/     which modules of a run say a word (``index.words``)
    folders/   the paths that earlier runs over folders were given, by the folder where they ran

Everything is JSON, or numbers as bytes, some of it packed by zlib: reading it runs nothing. Files are written beside their place and moved there, so that
two runs at once see whole ones. What cannot be read, or has not our form, is not there; what cannot be written is not kept.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from torchmemlint import __version__
from torchmemlint.files.checkout import has_link
from torchmemlint.files.digest import digest as digest_of
from torchmemlint.files.digest import digest_of_file, same, sealed
from torchmemlint.files.plain import from_plain, to_json
from torchmemlint.files.quoting import quoted
from torchmemlint.files.reading import MAX_CACHE_BYTES, read_beginning, read_file
from torchmemlint.findings import Finding
from torchmemlint.incremental.places import FOLDER, KEY_FILE, Place, make_private, place_for, secret, user_folder

if TYPE_CHECKING:
    from torchmemlint.index.facts import ModuleFacts
    from torchmemlint.project.config import Configuration

_TAG = "CACHEDIR.TAG"
_SIGNATURE = "Signature: 8a477f597d28d172789f06886806bc55"
_TAG_TEXT = f"""{_SIGNATURE}
# This folder is torchmemlint's; it can be deleted at any time. What the line above means: https://bford.info/cachedir/
"""
_KINDS = ("facts", "findings", "runs", "links", "trails", "segments", "words", "folders")
_PACKED = ("findings", "words")
_KEPT_DAYS = 30
_LOST_SECONDS = 3600
_FOLDERS = 4
"""Runs over folders that are remembered in one place."""
_LINK = "a link in the checkout leads elsewhere"
_RACY_NS = 2_000_000_000
"""A file that changed so shortly before it was looked at may change again without a new time or size: its content counts."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stamp:
    """A file as it was when it was read: ``digest`` of its content; ``trusted`` when size and time alone tell that it is so
    still."""

    size: int
    mtime_ns: int
    digest: str
    trusted: bool


@dataclass(frozen=True, slots=True)
class Kept:
    """One file's findings and notes, the questions (as text, with what is told of their answers: see ``index.answers``) that they
    rest on, and those ``answers`` of which no more than a digest is told there."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    rests_on: tuple[tuple[str, str], ...]
    answers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class WholeRun:
    """A run's result over these ``files``: ``findings`` and ``notes`` of those that have any, and why some were
    ``skipped``."""

    files: tuple[tuple[str, Stamp], ...]
    findings: tuple[tuple[str, tuple[Finding, ...]], ...]
    notes: tuple[tuple[str, tuple[str, ...]], ...]
    skipped: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Link:
    """One file of a run, as the others see it.

    state   digest of all that others can see of it: the shape of its facts and what it imports; "" where that cannot be said
    shape   digest of the shape of its facts, "" where it has none
    kept    digest of what is kept in ``findings/`` for it, "" where nothing is
    reads   the files, by their places in the run, on whose texts its findings rest, with the functions there; "" for all of it
    """

    state: str
    shape: str
    kept: str
    reads: tuple[tuple[int, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Links:
    """The files of a run, in its order; ``run`` is the digest of its result, ``trails`` that of its trails, "" without any, and
    ``words`` that of its words."""

    run: str
    trails: str
    words: str
    files: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """What one file of a run asked.

    segment  the place in ``Trails.segments`` of the process that asked, -1 where nothing was written down
    codes    the steps of the answers to its questions, in the order of ``Kept.rests_on``, as ``index.dependencies`` has them (zlib, base64)
    kept     digest of what is kept in ``findings/`` for it, as in ``Link``: the questions are those
    kind     "related" to torch, "beside" such files, "other", or "" for a file of which that cannot be said
    imports  the names that it imports (``screen.imported_names``)
    """

    segment: int
    codes: str
    kept: str
    kind: str
    imports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SegmentName:
    """A segment: its name, the number of its first node, and the digest of what is kept under that name."""

    name: str
    first: int
    digest: str


@dataclass(frozen=True, slots=True)
class Trails:
    """How the answers of a run were made: its segments, and its files."""

    segments: tuple[SegmentName, ...]
    files: tuple[Asked, ...]


@dataclass(frozen=True, slots=True)
class Folders:
    """What earlier runs over folders were given, the last one first."""

    given: tuple[tuple[str, ...], ...]


@dataclass(slots=True, eq=False)
class Cache:
    """The part of a cache folder that this version of torchmemlint, under this version of Python, wrote. ``trouble`` says why
    nothing can be kept, "" as long as all goes well."""

    folder: str
    trouble: str = ""
    _secret: bytes = field(default=b"", repr=False)
    _made: set[str] = field(default_factory=set)

    @classmethod
    def below(cls, place: Place | str) -> Cache:
        """The cache in a place (which is made), or in a folder."""
        place = place if isinstance(place, Place) else Place(place)
        found = cls(place.folder)
        try:
            if not place.root:
                raise FileNotFoundError(0, "there is no cache folder of the user; --cache-dir names another")
            found._secret = secret()
            found.folder = os.path.join(place.folder, _version_of(found._secret))
            found._prepare(place.root)
        except OSError as error:
            found.trouble = f"{quoted(place.root or '~')}: nothing is cached: {error.strerror or error}"
        return found

    def _prepare(self, root: str) -> None:
        by_default = os.path.basename(root) == FOLDER  # not necessarily the user's words
        if has_link(root) or (by_default and os.path.islink(root)) or os.path.islink(self.folder):
            raise OSError(0, _LINK)
        own = root == user_folder()
        if own:
            make_private(root)
        os.makedirs(root, exist_ok=True)
        if not _is_ours(root):
            # Another run may be making it at this moment: it is looked at once more.
            known = (_TAG, KEY_FILE) if own else (_TAG,)
            if any(not name.startswith(known) for name in os.listdir(root)) and not _is_ours(root):
                raise OSError(0, "the folder holds something else")
            _write(os.path.join(root, _TAG), _TAG_TEXT.encode())
            _write(os.path.join(root, ".gitignore"), b"*\n")
        if any(os.path.islink(os.path.join(self.folder, kind)) for kind in _KINDS):
            # Nobody but who wants our files elsewhere, or files elsewhere deleted, makes one.
            raise OSError(0, "a folder in it is a link")
        if not os.path.isdir(self.folder):
            os.makedirs(self.folder, exist_ok=True)
            _sweep(root)

    def facts(self, content: str, path: str) -> tuple[ModuleFacts, str, Mapping[str, str]] | None:
        """The facts of the file ``path`` whose content has this digest, the digest of their shape, and those of its functions'
        texts (``index.sources``)."""
        from torchmemlint.index import plain

        data = self._read("facts", content)
        if data is None:
            return None
        try:
            of_shape, sources, shape, positions = data.decode().split("\n")
            return (
                replace(plain.from_plain(shape, positions), path=path),
                of_shape,
                from_plain(dict[str, str], json.loads(sources)),
            )
        except (ValueError, RecursionError):
            return None

    def facts_alone(self, content: str, path: str) -> ModuleFacts | None:
        """As ``facts``, where no more is wanted."""
        from torchmemlint.index import plain

        try:
            _, _, shape, positions = (self._read("facts", content) or b"").decode().split("\n")
            return replace(plain.from_plain(shape, positions), path=path)
        except (ValueError, RecursionError):
            return None

    def keep_facts(self, content: str, facts: ModuleFacts, sources: Mapping[str, str]) -> str:
        """Keeps the facts of a content, and the digests of its functions' texts; the digest of the facts' shape."""
        from torchmemlint.index import plain

        anywhere = replace(facts, path="")  # the same content may stand in several places
        shape = plain.shape(anywhere)
        of_shape = digest_of(shape.encode())
        self._keep("facts", content, f"{of_shape}\n{to_json(dict(sources))}\n{shape}\n{plain.positions(facts)}".encode())
        return of_shape

    def findings(self, key: str) -> tuple[Kept, str] | None:
        """What is kept of a file, and its digest."""
        data = self._read("findings", key)
        if data is None:
            return None
        try:
            return _unpacked(data), digest_of(data)
        except (ValueError, RecursionError):
            return None

    def keep_findings(self, key: str, kept: Kept) -> str:
        """Keeps the findings of a file; their digest."""
        return self._keep_told("findings", key, _packed(kept))

    def run(self, key: str) -> tuple[WholeRun, str] | None:
        """The result of a run, and its digest."""
        return self._value("runs", key, WholeRun)

    def keep_run(self, key: str, run: WholeRun) -> str:
        """Keeps the result of a run; its digest."""
        return self._keep_told("runs", key, to_json(run).encode())

    def folders(self, key: str) -> tuple[tuple[str, ...], ...]:
        """What earlier runs over folders were given, the last one first."""
        found = self._value("folders", key, Folders)
        return () if found is None else found[0].given

    def keep_folder(self, key: str, given: tuple[str, ...]) -> None:
        earlier = self.folders(key)
        if earlier[:1] != (given,):
            others = tuple(one for one in earlier if one != given)
            self._keep("folders", key, to_json(Folders((given, *others)[:_FOLDERS])).encode())

    def links(self, key: str) -> Links | None:
        found = self._value("links", key, Links)
        return None if found is None else found[0]

    def keep_links(self, key: str, links: Links) -> None:
        self._keep("links", key, to_json(links).encode())

    def trails(self, key: str, digest: str) -> Trails | None:
        """How the answers of a run were made, if it is what was kept with this digest."""
        data = self._read("trails", key)
        return _trails(data) if data is not None and digest_of(data) == digest else None

    def keep_trails(self, key: str, segments: Sequence[SegmentName], files: Iterable[Asked]) -> str:
        """Keeps how the answers of a run were made, and lets go of the segments that only the run before it had; the digest."""
        earlier = _trails(self._read("trails", key) or b"")
        data = "\n".join([to_json(tuple(segments)), *map(to_json, files)]).encode()
        self._keep("trails", key, data)
        gone = {one.name for one in earlier.segments} if earlier is not None else set()
        for name in gone - {one.name for one in segments} if not self._leads_away("segments") else ():
            with suppress(OSError):
                os.unlink(self._segment(name))
        self._let_go_of_lost_segments()
        return digest_of(data)

    def words(self, key: str, digest: str) -> bytes | None:
        """Which modules of a run say a word, if it is what was kept with this digest."""
        data = self._read("words", key)
        return data if data is not None and digest_of(data) == digest else None

    def keep_words(self, key: str, words: bytes) -> str:
        """Keeps which modules of a run say a word; the digest."""
        return self._keep_told("words", key, words)

    def _let_go_of_lost_segments(self) -> None:
        """Of runs that did not come to their end: what no run's trails name, and nobody added to for a while."""
        if self._leads_away("segments"):
            return
        named: set[str] = set()
        before = time.time() - _LOST_SECONDS
        try:
            for folder, _, names in os.walk(os.path.join(self.folder, "trails")):
                for name in names:
                    data = self._read("trails", os.path.basename(folder) + name.removesuffix(".json"))
                    if data is None:  # cut off, or none of ours
                        return
                    first = from_plain(tuple[SegmentName, ...], json.loads(data.partition(b"\n")[0]))
                    named.update(one.name for one in first)
            for entry in os.scandir(os.path.join(self.folder, "segments")):
                if entry.name not in named and entry.stat().st_mtime < before:
                    os.unlink(entry.path)
        except (OSError, ValueError, RecursionError):  # another run is at work, or something is damaged: then they stay
            return

    def named(self, name: str, first: int) -> SegmentName:
        """A segment that was written to its end."""
        try:
            return SegmentName(name, first, digest_of_file(self._segment(name)))
        except OSError:
            return SegmentName(name, first, "")

    def segment(self, segment: SegmentName) -> bytes | None:
        """What a process wrote down, if it is whole."""
        try:
            data = read_file(self._segment(segment.name), MAX_CACHE_BYTES)
        except OSError:
            return None
        return data if digest_of(data) == segment.digest else None

    def add_to_segment(self, name: str, data: bytes) -> None:
        """Adds to what this process wrote down under a name of its own."""
        if self.trouble:
            return
        path = self._segment(name)
        try:
            if "segments" not in self._made:
                self._make(os.path.dirname(path))
                self._made.add("segments")
            with open(path, "ab") as file:
                file.write(data)
        except OSError as error:
            self.trouble = f"{quoted(self.folder)}: nothing is cached: {error.strerror or error}"

    def _segment(self, name: str) -> str:
        return os.path.join(self.folder, "segments", os.path.basename(name))

    def _keep_told(self, kind: str, key: str, data: bytes) -> str:
        self._keep(kind, key, data)
        return digest_of(data)

    def _value(self, kind: str, key: str, of: type[T]) -> tuple[T, str] | None:
        data = self._read(kind, key)
        if data is None:
            return None
        try:
            return from_plain(of, json.loads(data)), digest_of(data)
        except (ValueError, RecursionError):
            return None

    def _path(self, kind: str, key: str) -> str:
        return os.path.join(self.folder, kind, key[:2], key[2:] if kind in _PACKED else f"{key[2:]}.json")

    def _read(self, kind: str, key: str) -> bytes | None:
        """What is kept under this key, if we wrote it."""
        try:
            seal, _, data = read_file(self._path(kind, key), MAX_CACHE_BYTES).partition(b"\n")
        except OSError:
            return None
        return data if self._secret and same(seal, self._seal(kind, key, data)) else None

    def _seal(self, kind: str, key: str, data: bytes) -> bytes:
        return sealed(self._secret, f"{kind}/{key}", data)

    def _keep(self, kind: str, key: str, data: bytes) -> None:
        if self.trouble:
            return
        path = self._path(kind, key)
        try:
            folder = os.path.dirname(path)
            if folder not in self._made:
                self._make(folder)
                self._made.add(folder)
            _write(path, self._seal(kind, key, data) + b"\n" + data)
        except OSError as error:
            self.trouble = f"{quoted(self.folder)}: nothing is cached: {error.strerror or error}"

    def _make(self, folder: str) -> None:
        """Makes a folder below this one. Raises OSError, also where a link has the name of one: a checkout may bring its own
        cache, and what is written, or deleted as old, would be elsewhere."""
        if self._leads_away(folder):
            raise OSError(0, _LINK)
        os.makedirs(folder, exist_ok=True)

    def _leads_away(self, folder: str) -> bool:
        return has_link(os.path.join(self.folder, folder), self.folder)


def _packed(kept: Kept) -> bytes:
    """A line of JSON; then questions and answers, each in a line, as they are: JSON, which JSON would quote once more."""
    head = to_json((kept.findings, kept.notes, len(kept.rests_on)))
    lines = [head, *chain.from_iterable(kept.rests_on), *chain.from_iterable(kept.answers)]
    return zlib.compress("\n".join(lines).encode(), 1)


def _unpacked(data: bytes) -> Kept:
    """What ``_packed`` was given. Raises ValueError for anything else."""
    try:
        unpack = zlib.decompressobj()
        head, *lines = unpack.decompress(data, MAX_CACHE_BYTES).decode().split("\n")
        if not unpack.eof or unpack.unused_data:
            raise ValueError("not whole, or more than was kept")
    except zlib.error as error:
        raise ValueError(str(error)) from None
    findings, notes, questions = from_plain(tuple[tuple[Finding, ...], tuple[str, ...], int], json.loads(head))
    pairs = tuple(zip(lines[::2], lines[1::2], strict=True))
    if not 0 <= questions <= len(pairs):
        raise ValueError("questions are missing")
    return Kept(findings, notes, pairs[:questions], pairs[questions:])


def _trails(data: bytes) -> Trails | None:
    first, *lines = data.splitlines() or [b""]
    try:
        segments = from_plain(tuple[SegmentName, ...], json.loads(first))
        return Trails(segments, tuple(from_plain(Asked, json.loads(line)) for line in lines))
    except (ValueError, RecursionError):
        return None


def stamp(path: str, read: Callable[[str], bytes], earlier: Stamp | None = None) -> Stamp | None:
    """A file as it is now; None when it is not there. Its content is read only where ``earlier`` does not tell it."""
    try:
        taken = time.time_ns()
        status = os.stat(path)
        trusted = status.st_mtime_ns < taken - _RACY_NS
        if earlier and earlier.trusted and (earlier.size, earlier.mtime_ns) == (status.st_size, status.st_mtime_ns):
            return earlier
        return Stamp(status.st_size, status.st_mtime_ns, digest_of(read(path)), trusted)
    except OSError:
        return None


def cache_for(configuration: Configuration, given: str | None = None) -> Cache | None:
    """The cache where it is to be, None where the environment says that there is to be none."""
    if os.environ.get("TORCHMEMLINT_NO_CACHE", "") not in ("", "0"):
        return None
    return Cache.below(place_for(given, configuration))


def clean(place: Place | str) -> bool:
    """Deletes a cache; False when there is none. Raises OSError, and ValueError for a folder that is none of ours."""
    place = place if isinstance(place, Place) else Place(place)
    if not place.root or not os.path.lexists(place.folder):
        return False
    if not _is_ours(place.root):
        raise ValueError(f"{quoted(place.root)} is not a cache of torchmemlint: it has no {_TAG} of ours")
    if has_link(place.root) or os.path.islink(place.folder):
        raise ValueError(f"{quoted(place.folder)}: {_LINK}")
    shutil.rmtree(place.folder)
    return True


def _is_ours(root: str) -> bool:
    try:
        return read_beginning(os.path.join(root, _TAG), len(_TAG_TEXT)) == _TAG_TEXT.encode()
    except OSError:
        return False


def _write(path: str, data: bytes) -> None:
    beside = f"{path}.{os.getpid()}.{time.monotonic_ns()}"
    try:
        with open(beside, "wb") as file:
            file.write(data)
        os.replace(beside, path)
    except BaseException:  # it may be stopped
        with suppress(OSError):
            os.unlink(beside)
        raise


def _sweep(root: str) -> None:
    """Deletes what was written long ago, also by other versions."""
    before = time.time() - _KEPT_DAYS * 86400
    for folder, _, names in os.walk(root, topdown=False):
        if folder == root:
            continue
        for name in names:
            path = os.path.join(folder, name)
            try:
                if os.stat(path).st_mtime < before:
                    os.unlink(path)
            except OSError:  # another run was quicker
                continue
        try:
            os.rmdir(folder)
        except OSError:  # it still holds something
            continue


def _version_of(key: bytes) -> str:
    """The folder of what this program, under this Python, keeps with this secret: others of all three stand beside it."""
    return f"{__version__}-{sys.implementation.cache_tag}-{_own_digest()}-{digest_of(b'name' + key)[:8]}"


def _own_digest() -> str:
    """Tells this program from another one of the same version (work in progress, another LibCST), by sizes and times."""
    places = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    libcst = find_spec("libcst")
    if libcst is not None and libcst.origin:
        places.append(os.path.join(os.path.dirname(libcst.origin), "_version.py"))
    found: list[tuple[str, int, int]] = []
    while places:
        place = places.pop()
        try:
            status = os.stat(place)
            if os.path.isdir(place):
                places += [entry.path for entry in os.scandir(place) if not entry.name.startswith(("__pycache__", "."))]
            else:
                found.append((place, status.st_size, status.st_mtime_ns))
        except OSError:
            continue
    return digest_of(json.dumps(sorted(found)).encode())[:8]


def key_of(*parts: object) -> str:
    """The name under which something is kept that depends on all of these."""
    return digest_of(to_json(parts).encode())
