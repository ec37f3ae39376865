"""The cache: a folder that may be deleted at any time.

Each entry has a keyed digest (HMAC) made with a secret of the user's (``location``): an entry that anybody else wrote, or that
was moved to another place, is ignored.

    facts/         facts of a file by the digest of its content: they depend on nothing else
    findings/      findings of a file, with every query that they depend on and its fingerprint
    results/       the whole result of a run, with size, time and digest of each file: enough when nothing changed
    manifests/     the files of a run as other files see them: enough when an edit changed no interface
    dependencies/  which logged results the findings of each file of a run depend on: enough when an edit changed an interface
    segments/      the dependency log (``dependency_graph``), by the process that wrote it
    words/         the word index of a run (``word_index``)
    folders/       the arguments of earlier runs over folders, by the folder where they ran

Everything is JSON, or numbers as bytes, some of it packed by zlib: reading it runs nothing. Each file is written under another name and
renamed, so that two runs at once see only whole files. What cannot be read, or has another form, counts as missing; what cannot be
written is not stored.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from torchmemlint import __version__
from torchmemlint.files.checkout import has_link
from torchmemlint.files.digest import digest, digest_of_file, same, sealed
from torchmemlint.files.plain import from_plain, to_json
from torchmemlint.files.quoting import quoted
from torchmemlint.files.reading import MAX_CACHE_BYTES, read_beginning, read_file
from torchmemlint.incremental.location import FOLDER, KEY_FILE, Location, location_for, make_private, secret, user_folder
from torchmemlint.incremental.records import (
    Dependencies,
    Folders,
    SegmentRef,
    Stamp,
    StoredFindings,
    segments_in,
)

if TYPE_CHECKING:
    from torchmemlint.index.facts import ModuleFacts
    from torchmemlint.project.config import Configuration

_TAG = "CACHEDIR.TAG"
_SIGNATURE = "Signature: 8a477f597d28d172789f06886806bc55"
_TAG_TEXT = f"""{_SIGNATURE}
# This folder is torchmemlint's; it can be deleted at any time. What the line above means: https://bford.info/cachedir/
"""
_KINDS = ("facts", "findings", "results", "manifests", "dependencies", "segments", "words", "folders")
_PACKED = ("findings", "words")
_KEPT_DAYS = 30
_LOST_SECONDS = 3600
_FOLDERS = 4
"""Runs over folders whose results one location keeps."""
_LINK = "a link in the checkout leads elsewhere"
_RACY_NS = 2_000_000_000
"""A file that changed so shortly before it was looked at may change again without a new time or size: its content counts."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Cache:
    """The part of a cache folder that this version of torchmemlint, under this version of Python, wrote. ``trouble`` says why
    nothing can be stored; it is "" otherwise."""

    folder: str
    trouble: str = ""
    _secret: bytes = field(default=b"", repr=False)
    _made: set[str] = field(default_factory=set)

    @classmethod
    def below(cls, location: Location | str) -> Cache:
        """The cache in a location (which is made), or in a folder."""
        location = location if isinstance(location, Location) else Location(location)
        found = cls(location.folder)
        try:
            if not location.root:
                raise FileNotFoundError(0, "there is no cache folder of the user; --cache-dir names another")
            found._secret = secret()
            found.folder = os.path.join(location.folder, _version_of(found._secret))
            found._prepare(location.root)
        except OSError as error:
            found.trouble = f"{quoted(location.root or '~')}: nothing is cached: {error.strerror or error}"
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

        data = self.read("facts", content)
        if data is None:
            return None
        try:
            of_shape, sources, shape, positions = data.decode().split("\n")
            facts = replace(plain.from_plain(shape, positions), path=path)
            return facts, of_shape, from_plain(dict[str, str], json.loads(sources))
        except (ValueError, RecursionError):
            return None

    def store_facts(self, content: str, facts: ModuleFacts, sources: Mapping[str, str]) -> str:
        """Stores the facts of a content, and the digests of its functions' texts; the digest of the facts' shape."""
        from torchmemlint.index import plain

        shape = plain.shape(replace(facts, path=""))  # the same content may stand in several places
        of_shape = digest(shape.encode())
        self.write("facts", content, f"{of_shape}\n{to_json(dict(sources))}\n{shape}\n{plain.positions(facts)}".encode())
        return of_shape

    def findings(self, key: str) -> tuple[StoredFindings, str] | None:
        """What is stored of a file, and its digest."""
        data = self.read("findings", key)
        try:
            return (StoredFindings.unpacked(data), digest(data)) if data is not None else None
        except (ValueError, RecursionError):
            return None

    def value(self, kind: str, key: str, of: type[T]) -> tuple[T, str] | None:
        """A value that is stored as JSON, and its digest."""
        data = self.read(kind, key)
        try:
            return (from_plain(of, json.loads(data)), digest(data)) if data is not None else None
        except (ValueError, RecursionError):
            return None

    def store_value(self, kind: str, key: str, value: object) -> str:
        """Stores a value as JSON; its digest."""
        return self.write(kind, key, to_json(value).encode())

    def folders(self) -> tuple[tuple[str, ...], ...]:
        """The arguments of earlier runs over folders, the last one first. Paths of files begin in the current folder."""
        found = self.value("folders", key_of(os.getcwd()), Folders)
        return () if found is None else found[0].given

    def store_folder(self, given: tuple[str, ...]) -> None:
        earlier = self.folders()
        if earlier[:1] != (given,):
            others = tuple(one for one in earlier if one != given)
            self.store_value("folders", key_of(os.getcwd()), Folders((given, *others)[:_FOLDERS]))

    def dependencies(self, key: str, expected: str) -> Dependencies | None:
        """The dependencies of a run, if they are those with this digest."""
        data = self.read("dependencies", key, expected)
        return Dependencies.read(data) if data is not None else None

    def store_dependencies(self, key: str, found: Dependencies) -> str:
        """Stores the dependencies of a run, and deletes the segments that only the run before it had; the digest."""
        earlier = self._segments_of(key) or set()
        written = self.write("dependencies", key, found.serialized())
        for name in earlier - {one.name for one in found.segments} if not self._leads_away("segments") else ():
            with suppress(OSError):
                os.unlink(self._segment(name))
        self._delete_lost_segments()
        return written

    def _segments_of(self, key: str) -> set[str] | None:
        """The names of the segments of a run; None where they cannot be read."""
        data = self.read("dependencies", key)
        try:
            return {one.name for one in segments_in(data.partition(b"\n")[0])} if data is not None else None
        except (ValueError, RecursionError):
            return None

    def _delete_lost_segments(self) -> None:
        """Deletes the segments of runs that did not come to their end: those that no run names, and nobody added to for a while."""
        if self._leads_away("segments"):
            return
        named: set[str] = set()
        before = time.time() - _LOST_SECONDS
        try:
            for folder, _, names in os.walk(os.path.join(self.folder, "dependencies")):
                for name in names:
                    key = os.path.basename(folder) + name.removesuffix(".json")
                    if (found := self._segments_of(key)) is None:  # cut off, or none of ours
                        return
                    named |= found
            for entry in os.scandir(os.path.join(self.folder, "segments")):
                if entry.name not in named and entry.stat().st_mtime < before:
                    os.unlink(entry.path)
        except (OSError, ValueError, RecursionError):  # another run is at work, or something is damaged: then they stay
            return

    def segment_ref(self, name: str, first: int) -> SegmentRef:
        """A segment that is complete."""
        try:
            return SegmentRef(name, first, digest_of_file(self._segment(name)))
        except OSError:
            return SegmentRef(name, first, "")

    def segment(self, segment: SegmentRef) -> bytes | None:
        """The content of a segment, if it is whole."""
        try:
            data = read_file(self._segment(segment.name), MAX_CACHE_BYTES)
        except OSError:
            return None
        return data if digest(data) == segment.digest else None

    def add_to_segment(self, name: str, data: bytes) -> None:
        """Adds to the segment of this process."""
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

    def _path(self, kind: str, key: str) -> str:
        return os.path.join(self.folder, kind, key[:2], key[2:] if kind in _PACKED else f"{key[2:]}.json")

    def read(self, kind: str, key: str, expected: str = "") -> bytes | None:
        """What is stored under this key, if we wrote it; only with the ``expected`` digest, if one is given."""
        try:
            seal, _, data = read_file(self._path(kind, key), MAX_CACHE_BYTES).partition(b"\n")
        except OSError:
            return None
        genuine = self._secret and same(seal, self._seal(kind, key, data))
        return data if genuine and (not expected or digest(data) == expected) else None

    def _seal(self, kind: str, key: str, data: bytes) -> bytes:
        return sealed(self._secret, f"{kind}/{key}", data)

    def write(self, kind: str, key: str, data: bytes) -> str:
        """Stores data under a key; its digest."""
        if self.trouble:
            return digest(data)
        path = self._path(kind, key)
        try:
            folder = os.path.dirname(path)
            if folder not in self._made:
                self._make(folder)
                self._made.add(folder)
            _write(path, self._seal(kind, key, data) + b"\n" + data)
        except OSError as error:
            self.trouble = f"{quoted(self.folder)}: nothing is cached: {error.strerror or error}"
        return digest(data)

    def _make(self, folder: str) -> None:
        """Makes a folder below this one. Raises OSError, also where a link has the name of one: a checkout may bring its own
        cache, and what is written, or deleted as old, would be elsewhere."""
        if self._leads_away(folder):
            raise OSError(0, _LINK)
        os.makedirs(folder, exist_ok=True)

    def _leads_away(self, folder: str) -> bool:
        return has_link(os.path.join(self.folder, folder), self.folder)


def stamp(path: str, read: Callable[[str], bytes], earlier: Stamp | None = None) -> Stamp | None:
    """A file as it is now; None when it is not there. Its content is read only if ``earlier`` does not show that it is unchanged."""
    try:
        taken = time.time_ns()
        status = os.stat(path)
        trusted = status.st_mtime_ns < taken - _RACY_NS
        if earlier and earlier.trusted and (earlier.size, earlier.mtime_ns) == (status.st_size, status.st_mtime_ns):
            return earlier
        return Stamp(status.st_size, status.st_mtime_ns, digest(read(path)), trusted)
    except OSError:
        return None


def cache_for(configuration: Configuration, given: str | None = None) -> Cache | None:
    """The cache where it is to be, None where the environment says that there is to be none."""
    if os.environ.get("TORCHMEMLINT_NO_CACHE", "") not in ("", "0"):
        return None
    return Cache.below(location_for(given, configuration))


def clean(location: Location | str) -> bool:
    """Deletes a cache; False when there is none. Raises OSError, and ValueError for a folder that is none of ours."""
    location = location if isinstance(location, Location) else Location(location)
    if not location.root or not os.path.lexists(location.folder):
        return False
    if not _is_ours(location.root):
        raise ValueError(f"{quoted(location.root)} is not a cache of torchmemlint: it has no {_TAG} of ours")
    if has_link(location.root) or os.path.islink(location.folder):
        raise ValueError(f"{quoted(location.folder)}: {_LINK}")
    shutil.rmtree(location.folder)
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
    return f"{__version__}-{sys.implementation.cache_tag}-{_own_digest()}-{digest(b'name' + key)[:8]}"


def _own_digest() -> str:
    """Distinguishes this program from another one of the same version (work in progress, another LibCST), by sizes and
    times."""
    from importlib.util import find_spec

    places = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    libcst = find_spec("libcst")
    if libcst is not None and libcst.origin:
        places.append(os.path.join(os.path.dirname(libcst.origin), "_version.py"))
    found: list[tuple[str, int, int]] = []
    while places:
        location = places.pop()
        try:
            status = os.stat(location)
            if os.path.isdir(location):
                places += [entry.path for entry in os.scandir(location) if not entry.name.startswith(("__pycache__", "."))]
            else:
                found.append((location, status.st_size, status.st_mtime_ns))
        except OSError:
            continue
    return digest(json.dumps(sorted(found)).encode())[:8]


def key_of(*parts: object) -> str:
    """The name under which something is stored that depends on all of these."""
    return digest(to_json(parts).encode())
