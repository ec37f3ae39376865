"""A Python file as text that can be written back byte for byte: encoding, byte order mark, newlines, rows and columns.

Rows end where Python's own tokenizer ends them, at ``\\n``, ``\\r\\n`` and a lone ``\\r``, and nowhere else: ``str.splitlines``
also breaks at form feeds and Unicode separators, and would shift every row below one.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torchmemlint.errors import SourceError
from torchmemlint.findings import Position

_NEWLINE = re.compile(r"\r\n|\r|\n")
_FIRST_TWO_ROWS = re.compile(rb"([^\r\n]*)(?:\r\n|\r|\n)?([^\r\n]*)")
# PEP 263, as https://docs.python.org/3/reference/lexical_analysis.html#encoding-declarations words it.
_COOKIE = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_COMMENT_OR_BLANK = re.compile(rb"[ \t\f]*(?:#|$)")
_LATIN_1 = ("latin-1", "iso-8859-1", "iso-latin-1")


@dataclass(frozen=True, slots=True)
class Lines:
    """Rows of a text. ``starts[i]`` is the offset in code points at which row ``i + 1`` begins.

    A text that ends in a newline has an empty last row, so that "after the last line" is a position too.
    """

    text: str
    starts: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> Lines:
        return cls(text, (0, *(newline.end() for newline in _NEWLINE.finditer(text))))

    def __len__(self) -> int:
        return len(self.starts)

    def row(self, row: int) -> str:
        """The text of a 1-based row without its newline. Raises IndexError where there is no such row."""
        if not 1 <= row <= len(self.starts):
            raise IndexError(f"no row {row} in a text of {len(self.starts)} rows")
        start = self.starts[row - 1]
        if row == len(self.starts):
            return self.text[start:]
        end = self.starts[row] - 1
        if self.text[end] == "\n" and end > start and self.text[end - 1] == "\r":
            end -= 1
        return self.text[start:end]

    def newline_of(self, row: int) -> str:
        """The characters that end a row, "" for the last one."""
        if row >= len(self.starts):
            return ""
        return self.text[self.starts[row - 1] + len(self.row(row)) : self.starts[row]]

    def offset(self, at: Position) -> int:
        """The offset of a position. Raises IndexError where the row or column does not exist."""
        length = len(self.row(at.row))
        if not 1 <= at.column <= length + 1:
            raise IndexError(f"no column {at.column} in row {at.row}")
        return self.starts[at.row - 1] + at.column - 1

    def position(self, offset: int) -> Position:
        """The position of an offset between 0 and the length of the text."""
        row = bisect_right(self.starts, offset)
        return Position(row, offset - self.starts[row - 1] + 1)


@dataclass(frozen=True)
class SourceFile:
    """One file's text and what is needed to write it back.

    path        the name under which it is reported (posix separators)
    text        decoded, without the byte order mark, newlines as they are in the file
    encoding    the codec that ``text`` is written back with
    bom         the file begins with a UTF-8 byte order mark
    newline     the commonest newline of the file, for rows that a fix adds
    """

    path: str
    text: str
    encoding: str = "utf-8"
    bom: bool = False
    newline: str = "\n"

    @cached_property
    def lines(self) -> Lines:
        return Lines.of(self.text)

    def encode(self, text: str) -> bytes:
        """``text`` as the bytes of this file. Raises SourceError where its encoding has no bytes for a character."""
        try:
            data = text.encode(self.encoding)
        except UnicodeError as error:
            raise SourceError(f"the fixed text cannot be written as {self.encoding}: {error}") from error
        return codecs.BOM_UTF8 + data if self.bom else data


def read_source(path: Path, display: str) -> SourceFile:
    """Reads and decodes a regular file; ``display`` becomes its reported path. Raises SourceError."""
    try:
        # A FIFO or a device would block or never end, so the kind is asked before the file is opened.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise SourceError("not a regular file")
        data = path.read_bytes()
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror or error}") from error
    return decode_source(display, data)


def decode_source(display: str, data: bytes) -> SourceFile:
    """Decodes the bytes of a Python file the way Python does (PEP 263, PEP 3120). Raises SourceError."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise SourceError("is UTF-16, which Python does not read; save it as UTF-8")
    nul = data.find(b"\0")
    if nul >= 0:
        raise SourceError("contains a null byte", *_place(data[:nul].decode("utf-8", "replace")))
    bom = data.startswith(codecs.BOM_UTF8)
    if bom:
        data = data[len(codecs.BOM_UTF8) :]
    encoding = _declared_encoding(data, bom)
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        row, column = _place(data[: error.start].decode(encoding, "replace"))
        raise SourceError(f"is not valid {encoding}: {error.reason}", row, column) from error
    except (UnicodeError, LookupError) as error:
        raise SourceError(f"is not valid {encoding}: {error}") from error
    return SourceFile(display, text, encoding, bom, _commonest_newline(text))


def source_from_text(display: str, text: str) -> SourceFile:
    """A source that was never a file of its own: an editor's buffer, standard input, what flake8 hands over.

    Raises SourceError for a null character or a lone surrogate, which no Python file can hold.
    """
    bom = text.startswith("\ufeff")
    if bom:
        text = text[1:]
    nul = text.find("\0")
    if nul >= 0:
        raise SourceError("contains a null byte", *_place(text[:nul]))
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SourceError(f"is not valid utf-8: {error.reason}", *_place(text[: error.start])) from error
    return SourceFile(display, text, "utf-8", bom, _commonest_newline(text))


def write_source(path: Path, source: SourceFile, text: str) -> None:
    """Replaces the file's content by ``text`` in one step, keeping its permissions; a symbolic link keeps pointing there.

    Nothing is written, and SourceError raised, where the file is not writable, is no longer what ``source`` was read
    from, or uses an encoding that does not give back the bytes it came from.
    """
    import tempfile  # only a run that fixes pays for it

    target = os.path.realpath(path)
    after = source.encode(text)
    temporary = None
    try:
        if not os.access(target, os.W_OK):
            raise SourceError("cannot be written: it is read-only")
        status = os.stat(target)
        with open(target, "rb") as file:
            if file.read() != source.encode(source.text):
                raise SourceError(f"was not written: it changed meanwhile, or {source.encoding} does not give its bytes back")
        descriptor, temporary = tempfile.mkstemp(prefix=".torchmemlint-", dir=os.path.dirname(target))
        with open(descriptor, "wb") as file:
            file.write(after)
        _copy_owner(temporary, status)
        os.chmod(temporary, stat.S_IMODE(status.st_mode))
        os.replace(temporary, target)
        temporary = None
    except OSError as error:
        raise SourceError(f"cannot be written: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            os.unlink(temporary)


def _copy_owner(path: str, status: os.stat_result) -> None:
    if hasattr(os, "chown"):  # not on Windows
        mine = os.stat(path)
        if (mine.st_uid, mine.st_gid) != (status.st_uid, status.st_gid):
            # Only root may give a file away; a file of another owner that we may write stays fixable without.
            with suppress(PermissionError):
                os.chown(path, status.st_uid, status.st_gid)


def _declared_encoding(data: bytes, bom: bool) -> str:
    rows = _FIRST_TWO_ROWS.match(data)
    assert rows is not None  # both groups may be empty
    first, second = rows.groups()
    cookie = _COOKIE.match(first)
    if cookie is None and _COMMENT_OR_BLANK.match(first):
        cookie = _COOKIE.match(second)
    if cookie is None:
        return "utf-8"
    name = cookie.group(1).decode("latin-1")
    plain = name.lower().replace("_", "-")
    if plain in ("utf-8", "utf8") or plain.startswith("utf-8-"):
        return "utf-8"
    row = 1 if _COOKIE.match(first) else 2
    if bom:
        raise SourceError(f"begins with a UTF-8 byte order mark but declares the encoding {name}", row)
    if plain in _LATIN_1 or plain.startswith(tuple(f"{latin}-" for latin in _LATIN_1)):
        return "iso-8859-1"
    try:
        return codecs.lookup(name).name
    except (LookupError, ValueError) as error:
        raise SourceError(f"declares an unknown encoding: {name}", row) from error


def _commonest_newline(text: str) -> str:
    if "\r" not in text:
        return "\n"
    pairs = text.count("\r\n")
    counts = {"\n": text.count("\n") - pairs, "\r\n": pairs, "\r": text.count("\r") - pairs}
    return max(counts, key=counts.__getitem__)


def _place(before: str) -> tuple[int, int]:
    """Row and column of what follows ``before``."""
    at = Lines.of(before).position(len(before))
    return at.row, at.column
