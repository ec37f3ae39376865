"""Files that are named one by one get the answer of the folder that they stand in, where an earlier run knows it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import bent_project
import pytest
from test_cache import lay_out

from torchmemlint.cli import main
from torchmemlint.project import neighbours

Found = Callable[..., list[tuple[str, str, int]]]
LIBRARY = """
import torch


def step(model, batch, optimizer):
    loss = torch.nn.functional.cross_entropy(model(batch), batch.argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
"""
CALLER = """
import torch
from library import step


def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters())
    history = []
    for batch in loader:
        history.append(step(model, batch, optimizer))
    return history
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHMEMLINT_CACHE_DIR", ".cache")
    monkeypatch.delenv("TORCHMEMLINT_NO_CACHE", raising=False)
    return tmp_path


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search around named files finds nothing: what is known of other files comes from an earlier run."""
    monkeypatch.setattr(neighbours, "MAX_FILES", 0)


@pytest.fixture
def found(capsys: pytest.CaptureFixture[str]) -> Found:
    def run(*arguments: str) -> list[tuple[str, str, int]]:
        neighbours.forget()  # each run stands for a process of its own
        main(["--output-format", "json", "--preview", "--min-confidence", "low", *arguments])
        return [(one["code"], one["filename"], one["location"]["row"]) for one in json.loads(capsys.readouterr().out)]

    return run


def of(path: str, findings: Sequence[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    return [one for one in findings if one[1] == path]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_named_files_are_answered_as_their_folder_is(seed: int, here: Path, found: Found, alone: None) -> None:
    lay_out(bent_project.project(()), here)
    some = found(".")
    for on in bent_project.walk(seed, 4):
        project = bent_project.project(on)
        lay_out(project, here)
        whole = found(".", "--no-cache")
        some += whole
        for path in project:
            assert found(path) == of(path, whole)
        assert found(*project) == whole
    assert some


def test_a_caller_that_no_search_finds_is_known_after_a_run_over_the_folder(here: Path, found: Found, alone: None) -> None:
    lay_out({"library.py": LIBRARY, "caller.py": CALLER}, here)
    before = found("caller.py")
    whole = found(".")
    assert before != of("caller.py", whole)
    assert found("caller.py") == of("caller.py", whole)


def test_other_settings_are_not_answered_from_it(here: Path, found: Found, alone: None) -> None:
    lay_out({"library.py": LIBRARY, "caller.py": CALLER}, here)
    whole = found(".")
    assert of("caller.py", whole) != found("caller.py", "--no-cache")
    assert found("caller.py", "--select", "TML101") == []


def test_an_excluded_file_and_a_syntax_error_are_reported_when_named(here: Path, found: Found) -> None:
    (here / "pyproject.toml").write_text('[tool.torchmemlint]\nexclude = ["out.py"]\n')
    lay_out({"library.py": LIBRARY, "caller.py": CALLER, "out.py": CALLER, "broken.py": "def f(:\n"}, here)
    whole = found(".")
    assert not of("out.py", whole)
    assert not of("broken.py", whole)
    assert found("out.py")
    assert found("broken.py") == [("TML000", "broken.py", 1)]


def test_fixes_touch_the_named_file_alone(here: Path, found: Found, alone: None) -> None:
    lay_out({"library.py": LIBRARY, "caller.py": CALLER, "other.py": CALLER}, here)
    whole = found(".")
    assert of("other.py", whole)
    assert of("caller.py", whole)
    assert found("--fix", "--unsafe-fixes", "caller.py") == []
    assert (here / "other.py").read_text() == CALLER
    assert "detach()" in (here / "caller.py").read_text()
    assert found("caller.py") == []
    assert of("other.py", found(".")) == of("other.py", whole)


@pytest.mark.slow
def test_many_changes_are_left_to_the_next_run_over_the_folder(here: Path, found: Found, alone: None) -> None:
    lay_out({"library.py": LIBRARY, "caller.py": CALLER, **{f"part{n}.py": CALLER for n in range(60)}}, here)
    whole = found(".")
    lay_out({"library.py": LIBRARY + "\n\n", "caller.py": CALLER, **{f"part{n}.py": CALLER + "#\n" for n in range(60)}}, here)
    assert found("caller.py") == found("caller.py", "--no-cache") != of("caller.py", whole)
    assert of("caller.py", found(".")) == found("caller.py")


def test_an_answer_without_all_files_says_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "pyproject.toml").touch()
    (here / "library.py").write_text(LIBRARY)
    (here / "caller.py").write_text(CALLER)
    (here / "beside.py").write_text("import torch\nx = torch.ones(3)\n")

    def run(*arguments: str) -> tuple[str, str]:
        neighbours.forget()
        main([*arguments, "--preview", "--min-confidence", "low", "-v"])
        return capsys.readouterr()

    def says(*arguments: str) -> tuple[bool, bool, bool]:
        in_json, verbose = run("--output-format", "json", *arguments)
        findings = json.loads(in_json)
        assert findings
        in_sarif = json.loads(run("--output-format", "sarif", *arguments)[0])["runs"][0]["invocations"][0]
        ids = [note["descriptor"]["id"] for note in in_sarif.get("toolExecutionNotifications", ())]
        return all(one.get("partial") is True for one in findings), "partial: 1 file around" in verbose, "partial" in ids

    assert says("caller.py") == (True, True, True)
    assert says(".") == (False, False, False)
    assert says("caller.py") == (False, False, False), "the run over the folder knows all files"
    assert says("caller.py", "--no-cache") == (True, True, True)
    assert says("caller.py", "beside.py", "--no-cache") == (False, False, False), "all files are named or were read"


def test_facts_in_the_cache_do_not_change_the_answer(here: Path, found: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "MAX_BYTES_READ", 1_500)
    lay_out(bent_project.project(()), here)
    (here / "pyproject.toml").touch()
    names = sorted(path.relative_to(here).as_posix() for path in here.rglob("*.py"))
    without = [found(name, "--no-cache") for name in names]
    found(".", "--select", "TML101")  # of other settings: nothing is answered from it, but all facts are known
    assert [found(name) for name in names] == without
