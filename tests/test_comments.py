"""``--add-ignore`` and ``--add-noqa``: where comments go, what stays, and that nothing is left to say afterwards."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from gaps import analysed_once

from torchmemlint import cli
from torchmemlint.findings import Confidence, Finding, Position, Severity, Span
from torchmemlint.fixes.comments import add_comments
from torchmemlint.source.directives import read_directives
from torchmemlint.source.file import decode_source, source_from_text
from torchmemlint.suppress import suppressed

FIXTURES = Path(__file__).parent.parent / "fixtures"
NAMES = {"graph-attached-running-total"}


def finding(rows: tuple[int, ...], at: int | None = None, code: str = "TML101") -> Finding:
    start = Position(at or rows[0], 1)
    return Finding(
        *(code, "graph-attached-running-total", Severity.ERROR, Confidence.HIGH, "m", "a.py"),
        Span(start, Position(start.row, 2)),
        noqa_rows=frozenset(rows),
        noqa_row=rows[-1],
    )


def added(text: str, *findings: Finding, noqa: bool = False, reason: str = "why") -> str:
    commented = add_comments(source_from_text("a.py", text), findings, reason, NAMES, noqa=noqa)
    directives = read_directives(commented.text, NAMES)
    moved = commented.text.count("\n") - text.count("\n")
    for one in commented.done:
        rows = frozenset(row + moved for row in one.noqa_rows)
        start = Position(one.span.start.row + moved, 1)
        assert suppressed(
            Finding(*(one.code, one.name, one.severity, one.confidence, "", ""), Span(start, start), noqa_rows=rows), directives
        )
    assert (commented.left == ()) is (len(commented.done) == len(findings))
    return commented.text


@pytest.mark.parametrize(
    ("before", "rows", "after"),
    [
        ("x += y\n", (1,), "x += y  # torchmemlint: ignore[TML101] why\n"),
        ("x += y", (1,), "x += y  # torchmemlint: ignore[TML101] why"),
        ("x += y\t\r\nz\r\n", (1,), "x += y  # torchmemlint: ignore[TML101] why\r\nz\r\n"),
        ("x += y  # type: ignore\n", (1,), "x += y  # type: ignore  # torchmemlint: ignore[TML101] why\n"),
        ("x += y  # noqa: E501\n", (1,), "x += y  # noqa: E501  # torchmemlint: ignore[TML101] why\n"),
        (
            "x += y  # torchmemlint: ignore[TML102] small\n",
            (1,),
            "x += y  # torchmemlint: ignore[TML102, TML101] small\n",
        ),
        (
            "x += y  # torchmemlint: disable[TML3]\n",
            (1,),
            "x += y  # torchmemlint: disable[TML3]  # torchmemlint: ignore[TML101] why\n",
        ),
        ("x.append(\n    y\n)\n", (1, 2, 3), "x.append(  # torchmemlint: ignore[TML101] why\n    y\n)\n"),
        ("x += \\\n    y\n", (1, 2), "x += \\\n    y  # torchmemlint: ignore[TML101] why\n"),
        ("x.add('''\n''', y)\n", (1, 2), "x.add('''\n''', y)  # torchmemlint: ignore[TML101] why\n"),
        (
            "if z:\n    x += y; s = '''\n    # no comment\n    '''\n",
            (2,),
            "if z:\n    # torchmemlint: ignore[TML101] why\n    x += y; s = '''\n    # no comment\n    '''\n",
        ),
        ("for y in (\n    z\n): x += y\n", (1, 2, 3), "for y in (  # torchmemlint: ignore[TML101] why\n    z\n): x += y\n"),
    ],
)
def test_where_it_goes(before: str, rows: tuple[int, ...], after: str) -> None:
    assert added(before, finding(rows)) == after


@pytest.mark.parametrize(
    ("before", "rows", "after"),
    [
        ("x += y\n", (1,), "x += y  # noqa: TML101 why\n"),
        ("x += y  # noqa: E501\n", (1,), "x += y  # noqa: E501, TML101\n"),
        ("x += y  # noqa:E501 long\n", (1,), "x += y  # noqa:E501, TML101 long\n"),
        ("x += y  # torchmemlint: ignore[TML102]\n", (1,), "x += y  # torchmemlint: ignore[TML102]  # noqa: TML101 why\n"),
        ("x += y; s = '''\n'''\n", (1,), "x += y; s = '''\n'''\n"),  # it would have to stand on the reported row
    ],
)
def test_as_noqa(before: str, rows: tuple[int, ...], after: str) -> None:
    assert added(before, finding(rows), noqa=True) == after


def test_several_on_one_row() -> None:
    text = added("x += y\n", finding((1,)), finding((1,), code="TML301"), finding((1,)))
    assert text == "x += y  # torchmemlint: ignore[TML101, TML301] why\n"


def test_the_row_that_is_reported_comes_first() -> None:
    assert added("x(\n  y,\n  z\n)\n", finding((1, 2, 3, 4), at=3)) == "x(\n  y,\n  z  # torchmemlint: ignore[TML101] why\n)\n"


def test_not_on_the_header_of_the_function() -> None:
    text = added("def f():\n    x += \\\n        y\n", finding((1, 2, 3), at=2))
    assert text == "def f():\n    x += \\\n        y  # torchmemlint: ignore[TML101] why\n"


def test_inside_a_formatted_string_there_is_no_comment() -> None:
    text = "x = f'''{\n    y\n}''' + z\n"
    assert added(text, finding((1, 2, 3), at=2)).endswith("}''' + z  # torchmemlint: ignore[TML101] why\n")


@pytest.mark.parametrize("code", ["TML000", "TML001", "TML002"])
def test_what_is_about_the_run_gets_none(code: str) -> None:
    assert added("x += y\n", finding((1,), code=code)) == "x += y\n"


def test_a_text_that_does_not_parse_stays(tmp_path: Path) -> None:
    assert added("x += y\ndef f(:\n", finding((1,))) == "x += y\ndef f(:\n"


GAPS = (Path(__file__).parent / "known_gaps.txt").read_text()
FILES = sorted(
    path
    for path in FIXTURES.glob("TML*/*.py")
    if any("expect:" in line and not line.endswith(" low") for line in path.read_text().splitlines())
    and path.stem != "frameworks"
    and f"{path.parent.name}/{path.name}" not in GAPS
)[::8]
OPTIONS = ("--add-ignore", "--add-noqa=it is small")
BY_TURNS = [pytest.param(path, OPTIONS[number % 2], id=f"{path.parent.name}-{path.stem}") for number, path in enumerate(FILES)]


@pytest.mark.slow
@pytest.mark.parametrize(("path", "option"), BY_TURNS)
def test_nothing_is_left_and_the_program_is_the_same(
    path: Path, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "a.py"
    file.write_bytes(path.read_bytes())
    assert cli.main([option, "--select=ALL", "--notes", "--min-confidence=low", "--ignore=TML002", "a.py"]) == 0
    once = file.read_bytes()
    assert capsys.readouterr().err.startswith("Added comments for ")
    with analysed_once(exactly=True):  # the file stays as it is now
        assert cli.main(["-q", "--select=ALL", "--min-confidence=low", "a.py"]) == 0, (
            "all findings are suppressed, and every comment is needed"
        )
        assert cli.main([option, "--select=ALL", "--notes", "--min-confidence=low", "--ignore=TML002", "a.py"]) == 0
        assert file.read_bytes() == once
        assert cli.main(["-q", "--select=ALL", "--fix", "a.py"]) == 0
        assert file.read_bytes() == once
    before, after = decode_source("a.py", path.read_bytes()).text, decode_source("a.py", once).text
    assert ast.dump(ast.parse(before)) == ast.dump(ast.parse(after))


def test_in_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_bytes((FIXTURES / "TML101" / "running_total.py").read_bytes())
    (tmp_path / "b.py").write_text("import torch\ndef f(:\n")
    assert cli.main(["--add-ignore", "src"]) == 0
    assert "not reviewed yet" in (tmp_path / "src" / "a.py").read_text()
    capsys.readouterr()
    assert cli.main(["--add-ignore", "."]) == 1
    printed = capsys.readouterr()
    assert "TML000" in printed.out
    assert printed.err == "No findings: no comments were added.\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--add-ignore", "--add-noqa"],
        ["--add-ignore", "--fix"],
        ["--add-noqa", "-"],
        ["--add-ignore=a # b"],
        ["--add-noqa=a\nb"],
    ],
)
def test_what_does_not_go_together(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_file_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torchmemlint.commands import comments
    from torchmemlint.errors import SourceError

    def refuse(*_: object) -> None:
        raise SourceError("cannot be written: it is read-only")

    monkeypatch.setattr(comments, "write_source", refuse)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_bytes((FIXTURES / "TML101" / "running_total.py").read_bytes())
    assert cli.main(["--add-ignore", "a.py"]) == 2
    assert "read-only" in capsys.readouterr().err


def test_in_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    cells = ["import torch\n%matplotlib inline", "x = 1", (FIXTURES / "TML202" / "not_called.py").read_text()]
    content = {
        "cells": [{"cell_type": "code", "metadata": {}, "outputs": [], "source": text} for text in cells],
        "metadata": {"kernelspec": {"language": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (tmp_path / "a.ipynb").write_text(json.dumps(content, indent=1))
    assert cli.main(["-q", "a.ipynb"]) == 1
    assert cli.main(["--add-ignore", "a.ipynb"]) == 0
    written = json.loads((tmp_path / "a.ipynb").read_text())
    assert [cell["source"] for cell in written["cells"]][:2] == cells[:2]
    assert "# torchmemlint: ignore[TML202] not reviewed yet" in written["cells"][2]["source"]
    assert cli.main(["-q", "--extend-select=TML002", "a.ipynb"]) == 0
