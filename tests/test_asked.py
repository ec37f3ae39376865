"""Programs of the kind that people paste, by authors who had not seen the analyzer: alone, at the default settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from gaps import ROOT

from torchmemlint.findings import Finding, Severity
from torchmemlint.project.config import CommandLine, Configuration
from torchmemlint.run import check_paths

ASKED = sorted((ROOT / "asked").glob("*.py"))
GAPS = frozenset((ROOT / "asked" / "gaps.txt").read_text(encoding="utf-8").split())


def printed_for(text: str, folder: Path) -> list[Finding]:
    """The findings of a program that lies alone in a folder, without its first line, which says what is expected."""
    script = folder / "script.py"
    script.write_text("#\n" + text.partition("\n")[2], encoding="utf-8")
    found = check_paths([str(script)], Configuration(CommandLine({}, isolated=True)), 1).findings
    return [one for one in found if one.severity is not Severity.NOTE]


def is_answered(text: str, found: list[Finding]) -> bool:
    """Whether one finding has one of the expected codes in one of the expected rows; nothing at all for a clean program."""
    expected = text.partition("\n")[0].removeprefix("# expect: ").split()
    if expected == ["clean"]:
        return not found
    rows = {int(row) for row in expected[0].split(",")}
    return any(one.span.start.row in rows and one.code in expected[1:] for one in found)


@pytest.mark.slow
@pytest.mark.parametrize("program", ASKED, ids=lambda path: path.stem)
def test_a_program_gets_the_answer_that_its_author_expects(program: Path, tmp_path: Path) -> None:
    text = program.read_text(encoding="utf-8")
    assert is_answered(text, printed_for(text, tmp_path)) == (program.stem not in GAPS)


def test_half_of_the_programs_are_clean_and_no_gap_is_of_a_program_that_is_gone() -> None:
    clean = [path for path in ASKED if path.read_text(encoding="utf-8").startswith("# expect: clean\n")]
    assert len(clean) * 2 == len(ASKED) >= 100
    assert {path.stem for path in ASKED} >= GAPS
