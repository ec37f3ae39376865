"""Whole programs, written by somebody who had not read the analyzer, at the default settings, with notes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from gaps import ROOT

from torchmemlint.findings import Finding
from torchmemlint.project.config import CommandLine, Configuration
from torchmemlint.run import check_paths

PROGRAMS = sorted((ROOT / "programs").glob("*.py"))


def found_in(program: Path, folder: Path) -> Sequence[Finding]:
    """The findings of a program that lies alone in a folder, notes included, and without the line that says what is expected."""
    text = program.read_text(encoding="utf-8")
    script = folder / "script.py"
    script.write_text("#\n" + text.partition("\n")[2], encoding="utf-8")
    return check_paths([str(script)], Configuration(CommandLine({"notes": True}, isolated=True)), 1).findings


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_has_the_findings_that_its_author_expects(program: Path, tmp_path: Path) -> None:
    expected = program.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# expect: ").split()
    found = {(one.span.start.row, one.code): one.severity.value for one in found_in(program, tmp_path)}
    if expected == ["clean"]:
        assert not found
    elif expected[0] == "gap":
        assert (int(expected[1]), expected[2]) not in found, "found by now: say so in its first line"
    else:
        row, code, *severity = expected
        assert list(found) == [(int(row), code)]
        assert not severity or found[int(row), code] == severity[0]


def test_dense_programs_and_their_twins_are_all_there() -> None:
    names = {path.stem for path in PROGRAMS}
    assert {name for name in names if name.startswith("line") and f"{name}_spread" in names} == {
        f"line_{n:02}" for n in range(1, 11)
    }
    assert {name for name in names if name.startswith("valid")} == {f"valid_{n:02}" for n in range(1, 11)}
