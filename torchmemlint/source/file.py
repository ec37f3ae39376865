"""A file's Python code as text that can be written back byte for byte: encoding, byte order mark, newlines.

A notebook is such a file too: its code is one module made of its cells (``notebook.py``), and everything between reading and
writing works on that.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from torchmemlint.errors import SourceError
from torchmemlint.files.reading import MAX_BYTES, MAX_NOTEBOOK_BYTES, read_file, reason
from torchmemlint.findings import Span
from torchmemlint.source import is_notebook
from torchmemlint.source.lines import Lines

if TYPE_CHECKING:
    from torchmemlint.source.notebook import CellRows, Notebook
    from torchmemlint.source.tolerant import Reading

_FIRST_TWO_ROWS = re.compile(rb"([^\r\n]*)(?:\r\n|\r|\n)?([^\r\n]*)")
# PEP 263, as https://docs.python.org/3/reference/lexical_analysis.html#encoding-declarations words it.
_COOKIE = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_COMMENT_OR_BLANK = re.compile(rb"[ \t\f]*(?:#|$)")
_LATIN_1 = ("latin-1", "iso-8859-1", "iso-latin-1")


@dataclass(frozen=True)
class SourceFile:
    """One file's text and what is needed to write it back.

    path        the name under which it is reported (posix separators)
    text        its Python code: decoded, without the byte order mark, newlines as they are in the file
    encoding    the codec that the file is written back with
    bom         the file begins with a UTF-8 byte order mark
    newline     the commonest newline of the code, for rows that a fix adds
    notebook    where the code comes from when the file is a notebook
    """

    path: str
    text: str
    encoding: str = "utf-8"
    bom: bool = False
    newline: str = "\n"
    notebook: Notebook | None = None

    @cached_property
    def lines(self) -> Lines:
        return Lines.of(self.text)

    @cached_property
    def code(self) -> bytes:
        """The code as UTF-8, whatever the file is written in."""
        return self.text.encode("utf-8", "surrogatepass")

    @cached_property
    def cells(self) -> CellRows | None:
        """Where the cells of a notebook begin in the code; None for other files."""
        return None if self.notebook is None else self.notebook.rows_of_cells(self.lines)

    def reading(self, recovered: bool) -> Reading | None:
        """How the code is read where it does not parse (``recovered`` says so of a file that is no notebook); None where it
        does."""
        if self.notebook is not None:
            return self.notebook.reading
        if not recovered:
            return None
        from torchmemlint.source import tolerant

        return tolerant.read(self.text)

    def file_text(self, text: str) -> str:
        """The text of the whole file when its code is ``text``."""
        return text if self.notebook is None else self.notebook.with_code(text)

    def can_hold(self, text: str) -> bool:
        """Whether the file can be written so that its code is ``text``."""
        try:
            self.file_text(text)
        except SourceError:
            return False
        return True

    def editable(self, span: Span) -> bool:
        """Whether the code of ``span`` is the user's own, and can be written back after a change."""
        return self.notebook is None or self.notebook.editable(self.lines, span)

    def encode(self, text: str) -> bytes:
        """The bytes of this file when its code is ``text``. Raises SourceError where its encoding has no bytes for a character."""
        try:
            data = self.file_text(text).encode(self.encoding)
        except UnicodeError as error:
            raise SourceError(f"the fixed text cannot be written as {self.encoding}: {error}") from error
        return codecs.BOM_UTF8 + data if self.bom else data


def read_source(path: Path, display: str) -> SourceFile:
    """Reads and decodes a regular file; ``display`` becomes its reported path. Raises SourceError."""
    try:
        data = read_file(str(path), MAX_NOTEBOOK_BYTES if is_notebook(display) else MAX_BYTES)
    except OSError as error:
        raise SourceError(reason(error)) from error
    return decode_source(display, data)


def decode_source(display: str, data: bytes) -> SourceFile:
    """Decodes the bytes of a Python file the way Python does (PEP 263, PEP 3120), or of a notebook. Raises SourceError."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise SourceError("is UTF-16, which Python does not read; save it as UTF-8")
    nul = data.find(b"\0")
    if nul >= 0:
        raise SourceError("contains a null byte", *_place(data[:nul].decode("utf-8", "replace")))
    bom = data.startswith(codecs.BOM_UTF8)
    if bom:
        data = data[len(codecs.BOM_UTF8) :]
    encoding = "utf-8" if is_notebook(display) else _declared_encoding(data, bom)
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        row, column = _place(data[: error.start].decode(encoding, "replace"))
        raise SourceError(f"is not valid {encoding}: {error.reason}", row, column) from error
    except (UnicodeError, LookupError) as error:
        raise SourceError(f"is not valid {encoding}: {error}") from error
    return _source(display, text, encoding, bom)


def source_from_text(display: str, text: str) -> SourceFile:
    """A source that was never a file of its own: an editor's buffer, standard input, what flake8 passes.

    A display name that ends in ``.ipynb`` makes the text a notebook's JSON. Raises SourceError for a null character or a lone surrogate, which no Python file can hold.
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
    return _source(display, text, "utf-8", bom)


def _source(display: str, text: str, encoding: str, bom: bool) -> SourceFile:
    if not is_notebook(display):
        return SourceFile(display, text, encoding, bom, _commonest_newline(text))
    from torchmemlint.source.notebook import read_notebook  # most runs meet none

    notebook = read_notebook(text)
    return SourceFile(display, notebook.code, encoding, bom, _commonest_newline(notebook.code), notebook)


def write_source(path: Path, source: SourceFile, text: str, inside: Sequence[str] | None = None) -> None:
    """Replaces the file's content by ``text`` in one step, keeping whose it is and who may use it; a symbolic link keeps pointing
    there.

    Nothing is written, and SourceError raised, where the file is not writable, lies ``inside`` none of some real folders, is no
    longer what ``source`` was read from, or uses an encoding that does not give back the bytes it came from.
    """
    from torchmemlint.files.writing import refusal, replace_file  # only a run that fixes pays for it

    target = os.path.realpath(path)
    before, after = source.encode(source.text), source.encode(text)
    if why := refusal(target, inside):
        raise SourceError(why)
    try:
        written = replace_file(target, after, before.__eq__)
    except OSError as error:
        raise SourceError(f"cannot be written: {error.strerror or error}") from error
    if not written:
        raise SourceError(f"was not written: it changed meanwhile, or {source.encoding} does not give its bytes back")


_UTF_8_OF_NEWER_PYTHON = frozenset({"future-fstrings", "future-annotations", "future-breakpoint", "future-typing"})
"""Encodings that packages of these names register: UTF-8, in which a newer Python's syntax is put in an older one's words
(https://pypi.org/project/future-fstrings/ and its kin). What they read needs no such help here."""


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
    if plain in ("utf-8", "utf8") or plain.startswith("utf-8-") or plain in _UTF_8_OF_NEWER_PYTHON:
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
