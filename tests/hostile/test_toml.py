"""Configuration that is nested, long or odd: one line that names the file and, where there is one, the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchmemlint.errors import ConfigError
from torchmemlint.project.config import CommandLine, Configuration
from torchmemlint.project.requirement import lower_bound, required_torch

OWN = "[tool.torchmemlint]\n"
CASES = {
    "arrays without end": (f"{OWN}select = {'[' * 20_000}", "nested too deeply"),
    "tables without end": (f"{OWN}select = {'{a=' * 5_000}1{'}' * 5_000}", "nested too deeply"),
    "a key of 30,000 parts": (f"{OWN}{'a.' * 30_000}a = 1", "more than 64 parts (at line 2)"),
    "the same in quotes": (f"""{OWN}{'"a" . ' * 30_000}a = 1""", "more than 64 parts (at line 2)"),
    "a header of 30,000 parts": (f"[{'a.' * 30_000}a]\nb = 1\n{OWN}", "more than 64 parts (at line 1)"),
    "a number of 10,000 digits": (f"{OWN}preview = {'9' * 10_000}", "too many digits (at line 2)"),
    "a date": (f"{OWN}fail-on = 1979-05-27", "`fail-on`"),
    "no number": (f"{OWN}target-torch = nan", "`target-torch`"),
    "a version of 5,000 digits": (f"{OWN}target-torch = '{'9' * 5_000}.1'", "`target-torch`"),
    "a table in place of a list": ("tool.torchmemlint.select.a.b = 1", "`select`"),
    "an array of tables": ("[[tool.torchmemlint]]\npreview = true", "`tool.torchmemlint`"),
    "an array of tables for globs": ("[[tool.torchmemlint.per-file-ignores]]\na = 1", "`per-file-ignores`"),
    "a key with a newline and colours": (f'{OWN}"a\\nb\\u001b[31m" = 1', r"`a\nb\x1b[31m`"),
    "a key of 100,000 letters": (f'{OWN}"{"a" * 100_000}" = 1', "`aaaa"),
    "a rule with a newline": (f'{OWN}select = ["a\\nb"]', r"`a\nb`"),
    "a baseline with a null": (f'{OWN}baseline = "a\\u0000b"', "`baseline`"),
    "a baseline with a newline": (f'{OWN}baseline = "a\\nb"', "`baseline`"),
}


@pytest.mark.parametrize("case", CASES)
def test_one_line_names_what_is_wrong(tmp_path: Path, case: str) -> None:
    text, words = CASES[case]
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        Configuration(CommandLine()).for_folder(str(tmp_path))
    message = str(caught.value)
    assert words in message
    assert message.startswith(str(tmp_path / "pyproject.toml"))
    assert message.isprintable()
    assert len(message) < len(str(tmp_path)) + 250


@pytest.mark.parametrize("text", [f"# torch\nx = {'[' * 20_000}", f"{'a.' * 30_000}torch = 1", f"torch = {'9' * 10_000}"])
def test_what_cannot_be_read_requires_no_torch(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    assert required_torch(str(tmp_path), {}) is None


def test_a_requirement_of_5000_digits() -> None:
    lower_bound(f"torch>={'9' * 5_000}.1")
    assert lower_bound("torch>=2.4") == (2, 4)


def test_what_is_long_but_sound_is_read(tmp_path: Path) -> None:
    words = ".".join(["a"] * 50)
    (tmp_path / "pyproject.toml").write_text(f"description = '{words}... and {'so on ' * 10_000}'\n{OWN}preview = true\n")
    assert "TML108" in Configuration(CommandLine()).for_folder(str(tmp_path)).codes
