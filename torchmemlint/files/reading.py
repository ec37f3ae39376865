"""The one way in which files of a linted project are read.

The author of the project chose what its names stand for: a FIFO, which blocks whoever opens it, a device, some of which act
when they are opened, a file without end, or a link to any of these. So what stands there is asked before it is opened, it is
opened without waiting, asked again, and read up to a limit by its kind: a file that grows meanwhile does not matter.

A link is followed, wherever it leads, if it leads to a regular file: Python follows it too, and links into a store outside of
the project are how some build systems lay out sources. (``discover`` leaves out links that lead out of a repository to what is
no Python file: a line of it would be shown.)

What the user names by hand as input, a log or a report, may be a pipe as well: ``open_given``. ``tests/test_reading.py`` shows
that nothing else opens files.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from typing import BinaryIO

MAX_BYTES = 1_000_000
"""Source files above this are skipped with a note: they are generated, and one of them can take longer than all others
together."""

MAX_NOTEBOOK_BYTES = 50_000_000
"""The same for notebooks, most of which is pictures in their outputs; for the code in one, ``MAX_BYTES`` holds."""

MAX_SETTINGS_BYTES = 1_000_000
"""Configuration, metadata and ``.gitignore`` files, which people write: the largest have some hundred thousand bytes."""

MAX_REPORT_BYTES = 200_000_000
"""Baselines and reports, which programs write: a finding takes two hundred bytes in one, some thousands in the other."""

MAX_CACHE_BYTES = 500_000_000
"""What earlier runs kept, of one file or of a whole run: some megabytes for a million lines."""

_READ = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)  # none of the flags is known to Windows, whose own is in the last row
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_PART = 1 << 20


class UnfitFile(OSError):
    """Something that is not read; ``strerror`` says why, as what the path is: ``is a FIFO, not a regular file``."""


def read_file(path: str, most: int) -> bytes:
    """The content of a regular file. Raises OSError, which is UnfitFile for anything else and for more than ``most`` bytes."""
    descriptor, status = _opened(path)
    try:
        if status.st_size <= most:
            data = _read(descriptor, status.st_size, most + 1)
            if len(data) <= most:
                return data
    finally:
        os.close(descriptor)
    raise UnfitFile(errno.EFBIG, f"is larger than {_in_words(most)}", path)


def read_beginning(path: str, most: int) -> bytes:
    """The first ``most`` bytes of a regular file, all of them if there are no more. Raises OSError."""
    descriptor, status = _opened(path)
    try:
        return _read(descriptor, status.st_size, most)
    finally:
        os.close(descriptor)


def read_parts(path: str, most: int) -> Iterator[bytes]:
    """As ``read_file``, in parts: for what need not be in memory as a whole."""
    descriptor, _ = _opened(path)
    read = 0
    try:
        while part := os.read(descriptor, _PART):
            read += len(part)
            if read > most:
                raise UnfitFile(errno.EFBIG, f"is larger than {_in_words(most)}", path)
            yield part
    finally:
        os.close(descriptor)


def read_text(path: str, most: int) -> str:
    """As ``read_file``, decoded from UTF-8, without a byte order mark, with ``\\n`` for every newline. Raises ValueError, too."""
    return as_text(read_file(path, most))


def as_text(data: bytes, errors: str = "strict") -> str:
    return data.decode("utf-8-sig", errors).replace("\r\n", "\n").replace("\r", "\n")


def open_given(path: str) -> BinaryIO:
    """What the user named by hand as input, unbuffered: a regular file, or a pipe (``<(ssh host cat log)``), for whose writer
    it waits as every program does. Raises OSError for anything else."""
    mode = _status(path).st_mode
    if not stat.S_ISFIFO(mode):
        descriptor, _ = _opened(path)
    else:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    return io.FileIO(descriptor)


def read_given(path: str, most: int) -> bytes:
    """The content of what ``open_given`` opens. Raises OSError."""
    parts: list[bytes] = []
    with open_given(path) as file:
        while part := file.read(_PART):
            parts.append(part)
            if sum(map(len, parts)) > most:
                raise UnfitFile(errno.EFBIG, f"is larger than {_in_words(most)}", path)
    return b"".join(parts)


def reason(error: OSError) -> str:
    """Why something was not read, as a message about its path."""
    if isinstance(error, (UnfitFile, IsADirectoryError)):
        return str(error.strerror)
    return f"cannot be read: {error.strerror or error}"


def kind(mode: int) -> str:
    """``is a FIFO, not a regular file`` and the like."""
    for is_kind, words in (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    ):
        if is_kind(mode):
            return f"is {words}, not a regular file"
    return "is not a regular file"


def _opened(path: str) -> tuple[int, os.stat_result]:
    """A descriptor of a regular file, and what is known of it."""
    _fit(path, _status(path))
    descriptor = os.open(path, _READ)
    try:
        status = os.fstat(descriptor)  # something else may have come to stand there
        _fit(path, status)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status


def _status(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except ValueError:  # a null character, or one that the file system's encoding has not
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None


def _fit(path: str, status: os.stat_result) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, kind(status.st_mode), path)
    raise UnfitFile(errno.EINVAL, kind(status.st_mode), path)


def _read(descriptor: int, size: int, most: int) -> bytes:
    """At most so many bytes; ``size`` is how many there seem to be."""
    # A read makes room for all that it may return: of most files, far more than there is.
    data = os.read(descriptor, min(size + 1, most) if size else min(_PART, most))
    if len(data) == size or len(data) == most or not data:
        return data
    parts = [data]
    left = most - len(data)
    while left and (part := os.read(descriptor, min(_PART, left))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _in_words(size: int) -> str:
    return f"{size // 1_000_000} MB"
