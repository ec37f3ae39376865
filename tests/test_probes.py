"""The engine's beliefs at every ``reveal`` of ``fixtures/engine`` are those that stand beside it (``probes`` has the words)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from probes import revealed

ROOT = Path(__file__).parent.parent / "fixtures" / "engine"
PROBE = re.compile(r"^\s*reveal\(")
EXPECTED = re.compile(r"  # reveals: (.+)$")


@pytest.mark.parametrize("path", sorted(ROOT.glob("*.py")), ids=lambda path: path.stem)
def test_every_reveal_says_what_stands_beside_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = revealed(text)
    lines = text.splitlines()
    reported = {
        row: " | ".join(sorted(found.get(row, {"never reached"}))) for row, line in enumerate(lines, 1) if PROBE.match(line)
    }
    wanted = {row: match[1] for row, line in enumerate(lines, 1) if (match := EXPECTED.search(line))}
    assert reported.keys() == wanted.keys()
    wrong = [
        f"{path.stem}:{row} {lines[row - 1].strip()}\n    but: {reported[row]}"
        for row in reported
        if reported[row] != wanted[row]
    ]
    assert not wrong, "\n" + "\n".join(wrong)
