"""From a change to its tests: the table has every package and only tests that exist, and no test file is out of reach. And what
pytest runs where nobody says what."""

from __future__ import annotations

import re
import subprocess
import sys
from types import SimpleNamespace

import affected
import conftest
import pytest

from torchmemlint.rules import ALL_RULES
from torchmemlint.rules.cards import CARDS


def names(changed: str) -> set[str]:
    return {path.relative_to(affected.TESTS).as_posix() for path in affected.of(changed)}


def test_every_row_is_of_a_package_and_a_package_without_one_can_break_all_tests() -> None:
    assert {*affected.WIDER} <= affected.packages()
    assert affected.of("torchmemlint/a_new_one/x.py") == {*affected.test_files()}


def test_every_pattern_names_a_test_file() -> None:
    assert [one for row in affected.WIDER.values() for one in row if not affected.matched([one])] == []


def test_every_test_file_is_named_for_a_change() -> None:
    """Of the package, or else of the benchmarks, fixtures and documents that it is about. A row that has all of them counts for none."""
    broad = {package for package in affected.packages() if affected.WIDER.get(package, affected.ALL) is affected.ALL}
    own = {path for path in affected.test_files() if any(affected.names_package(path, package) for package in broad)}
    changes = [f"torchmemlint/{package}/x.py" for package in affected.packages() - broad]
    changes += ["fixtures/TML101/x.py", "benchmarks/x.py", "docs/x.md", "action.yml", ".pre-commit-hooks.yaml", "examples/x.py"]
    named = own.union(*map(affected.of, changes))
    assert [path.name for path in affected.test_files() if path not in named] == []


def test_a_test_file_is_named_for_each_package_that_it_imports() -> None:
    assert {"test_values.py", "test_weights.py"} <= names("torchmemlint/semantics/state/values.py")  # its own imports
    assert {"hostile/test_stopping.py"} <= names("tests/forked.py")  # by way of hostile/program.py
    assert "test_rules.py" in names("torchmemlint/run.py")  # by way of gaps.py
    assert "test_rules.py" in names("tests/known_gaps.txt")
    assert names("tests/test_frames.py") == {"test_frames.py"}
    assert len(names("tests/conftest.py")) == len(affected.test_files())


def test_what_a_rule_s_change_breaks_first_is_named() -> None:
    assert affected.codes_of(["torchmemlint/rules/gradmode/inference_with_grad.py", "fixtures/TML101/x.py"]) == [
        "TML101",
        "TML201",
    ]
    own = {card.code for card in CARDS.values()}
    assert own == {rule.code for rule in ALL_RULES}


@pytest.mark.parametrize("changed", ["torchmemlint/suppress/git.py", "README.md", "fixtures/TML201/x.py"])
def test_the_command_names_files_that_exist(
    changed: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["affected", changed])
    assert affected.main() == 0
    words = capsys.readouterr().out.split()
    assert words[:6] == ["python", "-m", "pytest", "-q", "-n", "2"]
    assert all((affected.ROOT / word).exists() for word in words[6:])
    assert len(words) > 6


def test_it_is_a_program() -> None:
    command = [sys.executable, "-m", "tests.affected", "torchmemlint/oom/command.py"]
    done = subprocess.run(command, cwd=affected.ROOT, capture_output=True, text=True, check=True)
    assert "tests/test_oom_log.py" in done.stdout.split()


# --- what pytest runs by itself ----------------------------------------------------------------------------------------

Source = pytest.Config.ArgsSource


@pytest.mark.parametrize(
    ("source", "given", "worker", "markers", "processes"),
    [
        (Source.TESTPATHS, {}, False, "not slow", 2),
        (Source.TESTPATHS, {}, True, "not slow", None),  # xdist gives its processes the same command line
        (Source.TESTPATHS, {"numprocesses": 4}, False, "not slow", 4),
        (Source.TESTPATHS, {"usepdb": True}, False, "not slow", None),
        (Source.TESTPATHS, {"markexpr": "slow"}, False, "slow", None),
        (Source.TESTPATHS, {"capture": "no"}, False, "not slow", None),  # xdist would show nothing
        (Source.TESTPATHS, {"keyword": "TML201"}, False, "", 2),
        (Source.TESTPATHS, {"lf": True}, False, "", None),
        (Source.ARGS, {}, False, "", None),
    ],
)
def test_pytest_alone_runs_the_fast_tests(
    source: object, given: dict[str, object], worker: bool, markers: str, processes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    if worker:
        monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    plain = {
        "markexpr": "",
        "keyword": "",
        "numprocesses": None,
        "dist": "no",
        "usepdb": False,
        "capture": "fd",
        "collectonly": False,
    }
    option = SimpleNamespace(**{**plain, "lf": False, **given})
    conftest.pytest_cmdline_main(SimpleNamespace(option=option, args_source=source))  # type: ignore[arg-type]
    assert (option.markexpr, option.numprocesses) == (markers, processes)


def test_a_slow_test_says_so_in_its_own_file() -> None:
    """Files without the words are not loaded for ``-m slow``: no mark comes from elsewhere, or is written in another way."""
    written = {path: path.read_bytes() for path in affected.TESTS.rglob("*.py") if path.name != "conftest.py"}
    assert [path.name for path, text in written.items() if conftest.SLOW in text and not path.name.startswith("test_")] == []
    other = re.compile(rb"(?<!pytest\.)\bmark\.slow\b|from pytest import .*\bmark\b")
    assert [path.name for path, text in written.items() if other.search(text)] == []


@pytest.mark.parametrize(
    ("given", "dist"),
    [
        ({"markexpr": "slow", "numprocesses": 2}, "worksteal"),
        ({"markexpr": "slow", "numprocesses": 2, "dist": "loadfile"}, "loadfile"),
        ({"markexpr": "slow", "numprocesses": None}, "no"),
        ({"markexpr": "not slow", "numprocesses": 2}, "no"),  # of which pytest-xdist then makes its own way
    ],
)
def test_slow_tests_of_a_file_stay_together(given: dict[str, object], dist: str) -> None:
    option = SimpleNamespace(**{"dist": "no", **given})
    conftest.pytest_cmdline_main(SimpleNamespace(option=option, args_source=Source.ARGS))  # type: ignore[arg-type]
    assert option.dist == dist
