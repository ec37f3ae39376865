"""Reading, addressing and writing back source text."""

from __future__ import annotations

import ast
import os
import stat
import sys
import tokenize
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchmemlint.errors import SourceError
from torchmemlint.findings import Position
from torchmemlint.source.file import decode_source, read_source, source_from_text, write_source
from torchmemlint.source.lines import Lines

ODD = "é漢👍\t\f\x0b\x1c\x85\u2028"


@given(st.text(alphabet="a#\n\r" + ODD, max_size=60))
def test_rows_and_offsets_are_inverse(text: str) -> None:
    lines = Lines.of(text)
    for offset in range(len(text) + 1):
        at = lines.position(offset)
        inside_crlf = text[offset - 1 : offset + 1] == "\r\n"
        if not inside_crlf:
            assert lines.offset(at) == offset
    assert "".join(lines.row(row) + lines.newline_of(row) for row in range(1, len(lines) + 1)) == text


@given(
    st.lists(st.sampled_from(["x = 1", "", "# " + ODD, "y = '" + "é漢👍\t\f" + "'", "if x:\\", " \f"]), max_size=8), st.data()
)
def test_rows_are_those_of_the_parser(rows: list[str], data: st.DataObject) -> None:
    text = "".join(row + data.draw(st.sampled_from(["\n", "\r\n", "\r"])) for row in rows) + "last = 1"
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    (row,) = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "last"}
    assert Lines.of(text).row(row) == "last = 1"


@pytest.mark.parametrize("at", [Position(0, 1), Position(4, 1), Position(1, 0), Position(1, 5)])
def test_a_place_outside_the_text_is_refused(at: Position) -> None:
    with pytest.raises(IndexError):
        Lines.of("abc\r\nd\n").offset(at)


@pytest.mark.parametrize(
    ("data", "encoding", "text"),
    [
        ("x = 'é'\n".encode(), "utf-8", "x = 'é'\n"),
        (b"# -*- coding: latin-1 -*-\nx = '\xe9'\n", "iso-8859-1", "# -*- coding: latin-1 -*-\nx = 'é'\n"),
        (
            b"#!/bin/sh\n# vim: set fileencoding=cp1252 :\n'\x80'\n",
            "cp1252",
            "#!/bin/sh\n# vim: set fileencoding=cp1252 :\n'€'\n",
        ),
        (b"\r# coding: iso-8859-15\r'\xa4'\r", "iso8859-15", "\r# coding: iso-8859-15\r'€'\r"),
        (b"# coding: shift_jis\n'\x8a\xbf'", "shift_jis", "# coding: shift_jis\n'漢'"),
        ("x = 1\n# coding: latin-1\n'é'\n".encode(), "utf-8", "x = 1\n# coding: latin-1\n'é'\n"),
        ("\n\n# coding: latin-1\n'é'\n".encode(), "utf-8", "\n\n# coding: latin-1\n'é'\n"),
        (b"# coding: UTF_8\nx", "utf-8", "# coding: UTF_8\nx"),
        (b"", "utf-8", ""),
    ],
)
def test_declared_encodings(data: bytes, encoding: str, text: str) -> None:
    source = decode_source("a.py", data)
    assert (source.encoding, source.text) == (encoding, text)
    assert source.encode(source.text) == data
    if b"\r" not in data:  # tokenize.detect_encoding knows only \n
        assert tokenize.detect_encoding(BytesIO(data).readline)[0].replace("-", "") in (
            encoding.replace("-", ""),
            encoding.replace("iso8859", "iso8859-").replace("-", ""),
        )


@pytest.mark.parametrize("name", ["future_fstrings", "future-annotations"])
def test_encodings_that_put_newer_syntax_in_older_words_are_utf_8(name: str) -> None:
    text = f"# -*- coding: {name} -*-\nk = f'{{é}}'\n"
    source = decode_source("a.py", text.encode())
    assert (source.encoding, source.text) == ("utf-8", text)
    assert source.encode(text) == text.encode()


def test_byte_order_mark_is_not_text_and_comes_back() -> None:
    data = b"\xef\xbb\xbfimport torch\r\nx = 1\n\r\n"
    source = decode_source("a.py", data)
    assert source.bom
    assert source.text == "import torch\r\nx = 1\n\r\n"
    assert source.newline == "\r\n"
    assert source.encode(source.text) == data
    assert source_from_text("-", data.decode()) == source_from_text("-", "\ufeff" + source.text)


@pytest.mark.parametrize(
    ("data", "message", "row", "column"),
    [
        (b"a = 1\nb = '\xff'\n", "not valid utf-8", 2, 6),
        ("é = '".encode() + b"\xc3'", "not valid utf-8", 1, 6),
        (b"a\r\nb\rc\x00d", "null byte", 3, 2),
        ("x = 1\n".encode("utf-16"), "UTF-16", 1, 1),
        (b"# coding: klingon\n", "unknown encoding: klingon", 1, 1),
        (b"#\n# coding: klingon\n", "unknown encoding", 2, 1),
        (b"\xef\xbb\xbf# coding: latin-1\n", "byte order mark", 1, 1),
        (b"# coding: rot13\nk = 1\n", "not a text encoding", 1, 1),
        (b"# coding: ascii\n'\xe9'\n", "not valid ascii", 2, 2),
    ],
)
def test_what_is_no_source_is_reported_with_its_place(data: bytes, message: str, row: int, column: int) -> None:
    with pytest.raises(SourceError, match=message) as raised:
        decode_source("a.py", data)
    assert (raised.value.row, raised.value.column) == (row, column)


@pytest.mark.parametrize(("text", "row"), [("a\n\0", 2), ("a\rb\r\ud800", 3)])
def test_text_that_no_file_can_hold(text: str, row: int) -> None:
    with pytest.raises(SourceError) as raised:
        source_from_text("-", text)
    assert raised.value.row == row


def test_reading_what_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No such file"):
        read_source(tmp_path / "missing.py", "missing.py")
    with pytest.raises(SourceError, match="not a regular file"):
        read_source(tmp_path, "folder")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.py")
        with pytest.raises(SourceError, match="not a regular file"):
            read_source(tmp_path / "pipe.py", "pipe.py")


def test_writing_keeps_mode_link_mark_and_newlines(tmp_path: Path) -> None:
    real = tmp_path / "deep" / "real.py"
    real.parent.mkdir()
    real.write_bytes(b"\xef\xbb\xbfx = 1\r\ny = 2")
    real.chmod(0o754)
    link = tmp_path / "link.py"
    link.symlink_to(real)
    source = read_source(link, "link.py")
    write_source(link, source, source.text.replace("1", "'é'"))
    assert link.is_symlink()
    assert real.read_bytes() == b"\xef\xbb\xbfx = '\xc3\xa9'\r\ny = 2"
    assert stat.S_IMODE(real.stat().st_mode) == 0o754
    assert [path.name for path in real.parent.iterdir()] == ["real.py"]


def test_nothing_is_written_over_a_change_of_someone_else(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("x = 1\n")
    source = read_source(path, "a.py")
    path.write_text("x = 2\n")
    with pytest.raises(SourceError, match="changed meanwhile"):
        write_source(path, source, "x = 3\n")
    assert path.read_text() == "x = 2\n"


def test_a_character_without_bytes_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"# coding: latin-1\n'\xe9'\n")
    source = read_source(path, "a.py")
    with pytest.raises(SourceError, match="iso-8859-1"):
        write_source(path, source, source.text + "'漢'\n")
    assert path.read_bytes() == b"# coding: latin-1\n'\xe9'\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.py"]


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="permissions do not bind root")
def test_read_only_files_are_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("x = 1\n")
    path.chmod(0o444)
    with pytest.raises(SourceError, match="read-only"):
        write_source(path, read_source(path, "a.py"), "x = 2\n")
    assert path.read_text() == "x = 1\n"
