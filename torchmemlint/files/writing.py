"""A file is replaced in one step or not at all, in its own place, with all but its content as it was.

What is written stands beside it until then, and is removed on every way out. Another link to the same file keeps the old content:
to write into it would change a file that nobody named.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

PATIENCE_SECONDS = 10
"""For another run that writes into the same folder: it takes milliseconds."""


def folders_of(path: str, given: Sequence[str]) -> tuple[str, ...]:
    """The real folders inside which a file may be written, that was found below the paths ``given``: those that were asked for; its
    own, where it was named itself."""
    folders = [os.path.realpath(one) for one in given if os.path.isdir(one)]
    if any(os.path.normpath(one) == os.path.normpath(path) for one in given):
        folders.append(os.path.realpath(os.path.dirname(path)))
    return tuple(folders)


def refusal(target: str, inside: Sequence[str] | None = None) -> str:
    """Why a file that was read must not be written, "" where it may be. ``target`` has no links in it; ``inside`` are real folders.

    The bits of its mode count for root, too: whoever removed them meant it."""
    if inside is not None and not any(target.startswith(f"{folder.rstrip(os.sep)}{os.sep}") for folder in inside):
        return "is a link that leads out of what is to be fixed"
    try:
        mode = os.stat(target).st_mode
    except OSError as error:
        return f"cannot be written: {error.strerror}"
    if not (mode & 0o222 and os.access(target, os.W_OK)):
        return "cannot be written: it is read-only"
    return ""


def replace_file(target: str, data: bytes, unchanged: Callable[[bytes | None], bool] = lambda now: True) -> bool:
    """Writes a file (``target`` has no links in it). False where its content (None: there is no file) is not, or no longer, such
    that it is ``unchanged``. Raises OSError."""
    folder = os.path.dirname(target)
    temporary = os.path.join(folder, f".torchmemlint-{os.getpid()}-{os.urandom(6).hex()}")
    with _alone_in(folder):
        if not unchanged(_content(target)):
            return False
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                _make_alike(descriptor, temporary, target)
            # Not every program that writes knows of our lock.
            if not unchanged(_content(target)):
                return False
            os.replace(temporary, target)
        finally:
            with suppress(OSError):  # it is where it shall be
                os.unlink(temporary)
    return True


def write_whole(path: str, data: bytes) -> None:
    """Writes a file that the user named, and the folders above it. A pipe or a device is written to, and stays what it is; a link
    that leads elsewhere may be anybody's, and is not followed. Raises OSError."""
    target = os.path.realpath(path)
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        with open(path, "wb") as file:
            file.write(data)
        return
    folder = os.path.realpath(os.path.dirname(path))
    if os.path.islink(path) and not (
        target.startswith(f"{folder.rstrip(os.sep)}{os.sep}") or path.startswith(("/dev/", "/proc/"))
    ):
        raise OSError(errno.ELOOP, "it is a link that leads out of its folder")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    replace_file(target, data)


@contextmanager
def _alone_in(folder: str) -> Iterator[None]:
    """Others that replace a file of this folder wait meanwhile; where the file system has no locks, they do not."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        ends = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > ends:
                    raise OSError(errno.EAGAIN, "another program has locked its folder") from None
                time.sleep(0.01)
                continue
            except OSError:
                pass
            break
        yield
    finally:
        os.close(descriptor)


def _content(target: str) -> bytes | None:
    """None where there is no file. Raises OSError, also for what is not a regular file."""
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(target, os.O_RDONLY | flags)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        return file.read()


def _make_alike(descriptor: int, path: str, target: str) -> None:
    """Gives a new file the owner, group, mode and attributes (access control lists are such) of another, as far as we may."""
    try:
        as_it_was = os.stat(target)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(path, 0o666 & ~mask)
        return
    mode = stat.S_IMODE(as_it_was.st_mode)
    if hasattr(os, "fchown"):  # not on Windows
        mine = os.fstat(descriptor)
        if mine.st_gid != as_it_was.st_gid:
            with suppress(OSError):
                os.fchown(descriptor, -1, as_it_was.st_gid)
        if mine.st_uid != as_it_was.st_uid:
            with suppress(OSError):  # only root may give a file away; one of another owner that we may write stays fixable
                os.fchown(descriptor, as_it_was.st_uid, -1)
        mine = os.fstat(descriptor)
        if (mine.st_uid, mine.st_gid) != (as_it_was.st_uid, as_it_was.st_gid):
            mode &= 0o777  # what ran as its owner must not run as another
    os.chmod(path, mode)
    if hasattr(os, "listxattr"):
        with suppress(OSError):
            for name in os.listxattr(target):
                with suppress(OSError):
                    os.setxattr(descriptor, name, os.getxattr(target, name))
