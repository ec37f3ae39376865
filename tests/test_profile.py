"""What a run reports about itself while it goes on, and of its time."""

import io
import re
from pathlib import Path

import bent_project
import pytest

from torchmemlint.cli import main
from torchmemlint.processes import pool, progress
from torchmemlint.processes.progress import Progress
from torchmemlint.running.profile import STAGES, Clock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in bent_project.project(["second_caller"]).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that ``progress`` sees; each look takes a tenth of a second more."""
    now = [0.0]

    def look() -> float:
        now[0] += 0.1
        return now[0]

    monkeypatch.setattr("time.monotonic", look)
    return now


def test_nothing_is_shown_in_the_first_second(seconds: list[float]) -> None:
    line = Progress(out := Terminal())
    line.begin("reading", 20)
    for _ in range(8):
        line.add(1)
    line.end()
    assert out.getvalue() == ""


def test_then_one_line_is_written_over_and_taken_away(seconds: list[float]) -> None:
    line = Progress(out := Terminal())
    line.begin("reading", 1000)
    for _ in range(12):
        line.add(80)
    line.begin("checking", 20)
    line.add(1)
    line.end()
    line.end()
    steps = out.getvalue().split("\r")
    assert steps[1] == "reading 880/1000 files"
    assert steps[-3] == "checking 1/20 files   "
    assert steps[-2:] == [" " * len("checking 1/20 files"), ""]
    assert "\n" not in out.getvalue()


def test_nothing_is_shown_in_a_pipe(seconds: list[float]) -> None:
    line = Progress(out := io.StringIO())
    line.begin("reading", 100)
    for _ in range(50):
        line.add(2)
    line.end()
    assert out.getvalue() == ""


def same(first: object, second: object) -> object:
    """Stands for work on a file, and for what is said of a lost one; any process can find it by its name."""
    return second


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_run_counts_every_file(jobs: int, here: Path) -> None:
    progress: list[int] = []
    paths = [str(path) for path in here.rglob("*.py")]
    pool.run_all(same, None, paths, jobs, same, progress.append)
    assert sum(progress) == len(paths)


def test_a_run_on_a_terminal(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    main([".", "--no-cache"])
    before = capsys.readouterr()
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0)
    monkeypatch.setattr(progress, "_EVERY_SECONDS", 0)
    main([".", "--no-cache"])
    assert capsys.readouterr() == before  # standard error is no terminal here
    monkeypatch.setattr("sys.stderr", out := Terminal())
    main([".", "--no-cache", "-j", "1"])
    assert re.search(r"\rreading \d+/8 files", out.getvalue())
    assert "checking" in out.getvalue()
    assert out.getvalue().endswith(" \r")
    out.truncate(0)
    main([".", "--no-cache", "-q"])
    assert out.getvalue().strip("\0") == ""


def test_the_profile_names_stages_and_rules(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([".", "--no-cache"])
    fresh = capsys.readouterr().out
    status = main([".", "--profile", "-j", "4"])
    out, err = capsys.readouterr()
    assert status == 1
    assert out == fresh
    rows = [line.split() for line in err.splitlines()]
    names = [row[0] for row in rows]
    assert tuple(names[: len(STAGES)]) == STAGES
    assert names[-1] == "total"
    assert "TML201" in names
    spent = [float(row[1]) for row in rows]
    assert abs(sum(spent[:-1]) - spent[-1]) < 0.02
    assert not (here / ".torchmemlint_cache").exists()


def test_time_inside_a_stage_is_not_the_outer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0, 1, 3, 6])
    monkeypatch.setattr("time.process_time", lambda: next(times))
    clock = Clock()
    with clock.stage("outer"), clock.stage("inner"):
        pass
    assert clock.spent == {"outer": 1 + 3, "inner": 2}
