"""Where the cache is, with the secret without which nothing in it is read.

The user's own cache folder, which no checkout brings and no run of another user writes. Whoever asks for another location may have
it (``--cache-dir``, ``cache-in-project``); entries that others put there are ignored, because each is signed with a secret:
that of the user, made once, or ``TORCHMEMLINT_CACHE_KEY`` for those who share a cache.
"""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from torchmemlint.errors import ConfigError
from torchmemlint.files.checkout import is_inside, repository_root
from torchmemlint.files.digest import digest

if TYPE_CHECKING:
    from torchmemlint.project.config import Configuration

FOLDER = ".torchmemlint_cache"
"""The name of a cache in a project."""
KEY_FILE = "key"
KEY_VARIABLE = "TORCHMEMLINT_CACHE_KEY"
LEAST_KEY = 16
_BYTES = 32
_NAME = 40


@dataclass(frozen=True, slots=True)
class Location:
    """A cache: the folder that is marked as ours, and the part of it that is this project's ("": all of it). ``root`` is "" where
    there is none."""

    root: str
    part: str = ""

    @property
    def folder(self) -> str:
        return os.path.join(self.root, self.part) if self.part else self.root


def location_for(given: str | None, configuration: Configuration) -> Location:
    """As the command line or the environment says; else in the project, where its configuration says so; else in the user's cache
    folder, for each project (where its configuration file is, or the current folder) apart."""
    found = given or os.environ.get("TORCHMEMLINT_CACHE_DIR")
    if found:
        return Location(found)
    try:
        settings = configuration.for_folder(os.getcwd())
        root, inside = settings.root, settings.cache_in_project
    except ConfigError:  # reported where files are looked for
        root, inside = os.getcwd(), False
    if inside:
        return Location(os.path.join(root, FOLDER))
    return Location(user_folder(), _name(os.path.realpath(root)))


def _name(root: str) -> str:
    word = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in os.path.basename(root))
    return f"{word[:_NAME]}-{digest(os.fsencode(root))}"


def user_folder() -> str:
    """torchmemlint's folder among the caches of the user, as the system has them; "" where there is no such place, or it is in the
    checkout."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "")
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")  # a relative one is to be ignored, by its specification
        if not os.path.isabs(base):
            base = os.path.expanduser("~/Library/Caches" if sys.platform == "darwin" else "~/.cache")
    if not os.path.isabs(base):
        return ""
    folder = os.path.join(base, "torchmemlint")
    root = repository_root()
    # Whoever keeps a home in git brought it in themselves.
    return "" if is_inside(base, root) and os.path.realpath(root) != os.path.realpath(os.path.expanduser("~")) else folder


def make_private(folder: str) -> None:
    """Makes the user's own folder. Raises OSError where it is another's, or others may write to it."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if not _is_mine(os.stat(folder), 0o022):
        raise PermissionError(0, "it belongs to another user, or others may write to it")


def secret() -> bytes:
    """What entries are sealed with. Raises OSError where none can be had."""
    given = os.environ.get(KEY_VARIABLE)
    if given:
        if len(given) < LEAST_KEY:
            raise PermissionError(0, f"{KEY_VARIABLE} has less than {LEAST_KEY} characters")
        return blake2b(os.fsencode(given), digest_size=_BYTES).digest()
    folder = user_folder()
    if not folder:
        raise FileNotFoundError(0, "there is no cache folder of the user for its key")
    path = os.path.join(folder, KEY_FILE)
    with suppress(FileNotFoundError):
        return _read(path)
    make_private(folder)
    beside = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600), "wb") as file:
        file.write(os.urandom(_BYTES))
    try:
        with suppress(FileExistsError):  # another run was quicker: its key counts
            os.link(beside, path)
    finally:
        os.unlink(beside)
    return _read(path)


def _read(path: str) -> bytes:
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, os.O_RDONLY | flags), "rb") as file:
        status = os.fstat(file.fileno())
        data = file.read(_BYTES + 1)
    if not stat.S_ISREG(status.st_mode) or not _is_mine(status, 0o077) or len(data) != _BYTES:
        raise PermissionError(0, f"{path} is no key of this user's alone")
    return data


def _is_mine(status: os.stat_result, others: int) -> bool:
    if sys.platform == "win32":  # the folder's access list says who may
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & others
