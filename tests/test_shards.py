"""A run in parts, on other machines, and put together again: the same findings as one run."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import bent_project
import pytest

from torchmemlint.cli import main
from torchmemlint.findings import Confidence, Edit, Finding, Fix, FlowStep, Position, Safety, Severity, Span
from torchmemlint.project.results import Checked
from torchmemlint.reporters import Context, render
from torchmemlint.reporters.json import findings_in
from torchmemlint.workers import InspectAll, inspect

COPIES = 6


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHMEMLINT_NO_CACHE", "1")
    for copy in range(COPIES):
        on = ["second_caller", "subclass"] if copy % 3 else ["validate_guarded"]
        for name, text in bent_project.project(on).items():
            path = tmp_path / f"part{copy}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    (tmp_path / "bad.py").write_text("import torch\ndef (\n")
    return tmp_path


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    status = main([*arguments])
    return status, capsys.readouterr().out


# --- shards and merge -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3, 7])
def test_shards_put_together_are_the_whole(count: int, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, whole = output(capsys, ".", "--preview", "--output-format", "json")
    parts = []
    for number in range(1, count + 1):
        _, text = output(capsys, ".", "--preview", "--output-format", "json", "--shard", f"{number}/{count}")
        (here / f"{number}.json").write_text(text)
        parts.append({finding["filename"] for finding in json.loads(text)})
    assert sum(map(len, parts)) == len(set().union(*parts))
    assert count == 1 or all(parts)
    reports = [f"{number}.json" for number in range(count, 0, -1)]
    assert output(capsys, "merge", *reports, "--output-format", "json") == (status, whole)
    full = output(capsys, ".", "--preview")[1]
    merged = output(capsys, "merge", *reports)[1]
    assert full.startswith(merged)
    assert merged.count("TML000") == 1


@pytest.mark.slow
def test_shards_use_the_cache(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = [output(capsys, ".", "--shard", f"{number}/2") for number in (1, 2)]
    monkeypatch.delenv("TORCHMEMLINT_NO_CACHE")
    for _ in range(2):
        assert [output(capsys, ".", "--shard", f"{number}/2") for number in (1, 2)] == fresh
    whole = output(capsys, ".", "--output-format", "json")[1]
    printed = [entry for entry in json.loads(whole) if entry["severity"] != "note"]
    assert len(printed) == sum(text.count("--> ") for _, text in fresh)


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "1/0", "a/b", "-1/2", "1/2/3"])
def test_what_is_no_shard(shard: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([".", f"--shard={shard}"])
    assert ended.value.code == 2
    assert "must be I/N" in capsys.readouterr().err


def test_shards_do_not_fix(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([".", "--shard", "1/2", "--fix"]) == 2
    assert "cannot be combined with --fix" in capsys.readouterr().err


def test_reports_of_overlapping_runs_have_each_finding_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, whole = output(capsys, ".", "--output-format", "json")
    (here / "a.json").write_text(whole)
    (here / "b.json").write_text(whole)
    assert output(capsys, "merge", "a.json", "b.json", "-o", "all.json") == (status, "")
    assert (here / "all.json").read_text() == whole
    assert output(capsys, "merge", "a.json", "--exit-zero")[0] == 0
    (here / "none.json").write_text("[]")
    assert output(capsys, "merge", "none.json", "--output-format", "json") == (0, "[]\n")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "Expecting value"),
        ("{}", "not a list of findings"),
        ("[1]", "not a report in JSON"),
        ('[{"code": "TML101"}]', "not a report in JSON"),
        ("[" * 100_000, ""),
    ],
)
def test_what_is_no_report(content: str, words: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.json").write_text(content)
    assert main(["merge", "a.json"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("torchmemlint: error: a.json: ")
    assert err.count("\n") == 1
    assert words in err


def test_reports_that_are_not_there(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["merge", "none.json"]) == 2
    assert capsys.readouterr().err == "torchmemlint: error: none.json: cannot be read: No such file or directory\n"
    (here / "a.json").write_text("[]")
    assert main(["merge", "a.json", "-o", "x.what"]) == 2
    assert "unknown format" in capsys.readouterr().err
    assert main(["merge", "a.json", "-o", "a.json/where.json"]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert main(["merge", "a.json", "-o", "all.sarif"]) == 0
    assert json.loads((here / "all.sarif").read_text())["runs"][0]["results"] == []


def test_a_report_holds_the_whole_finding() -> None:
    span = Span(Position(1, 2), Position(3, 4))
    finding = Finding(
        "TML101", "name", Severity.ERROR, Confidence.MEDIUM, "é", "a.ipynb", span, "label", "cost", "help", "f", "x = 1",
        noqa_row=1, flow=(FlowStep("b.py", span, "there", 2),), cell=1, occurrence=2,
        fix=Fix("fix", Safety.UNSAFE, (Edit(span, "y"),), "torch"),
    )  # fmt: skip
    assert findings_in(render("json", [finding], Context())) == (finding,)


# --- executors ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_any_executor_will_do(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "cluster.py").write_text(
        "from concurrent.futures import ProcessPoolExecutor\n\ndef two():\n    return ProcessPoolExecutor(2)\n"
    )
    fresh = output(capsys, ".", "--preview", "-v")
    command = [sys.executable, "-m", "torchmemlint", ".", "--preview", "-v"]
    paths = os.pathsep.join([str(tmp_path / "installed"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "TORCHMEMLINT_EXECUTOR": "cluster:two"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout) == fresh


@pytest.mark.slow
def test_the_files_need_not_be_where_the_work_is_done(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def elsewhere(path: str) -> bytes:
        raise AssertionError(f"{path} was read")

    class Elsewhere(ThreadPoolExecutor):
        def submit(self, function: Any, /, *arguments: Any) -> Any:  # type: ignore[override]
            with monkeypatch.context() as far:
                far.setattr("torchmemlint.workers.read_bytes", elsewhere)
                future = super().submit(function, *arguments)
                future.result()
            return future

    monkeypatch.setattr("test_shards.FACTORY", lambda: Elsewhere(1), raising=False)
    fresh = output(capsys, ".", "--preview")
    monkeypatch.setenv("TORCHMEMLINT_EXECUTOR", "test_shards:FACTORY")
    assert output(capsys, ".", "--preview") == fresh


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("nothing", "must be module:factory"),
        ("no_such_module:make", "ModuleNotFoundError"),
        ("json:no_such_name", "AttributeError"),
        ("builtins:dict", "returns a dict, not a concurrent.futures.Executor"),
        ("builtins:len", "TypeError"),
    ],
)
def test_what_is_no_executor(
    spec: str, words: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHMEMLINT_EXECUTOR", spec)
    assert main(["."]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"torchmemlint: error: $TORCHMEMLINT_EXECUTOR {spec}: ")
    assert words in err


@pytest.mark.slow
def test_a_dask_cluster_that_loses_a_worker_loses_no_finding(
    cluster: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import Client

    fresh = output(capsys, ".", "--preview")
    monkeypatch.setenv("TORCHMEMLINT_EXECUTOR", f"dask:{cluster}")
    killed: list[int] = []
    with Client(cluster, set_as_default=False) as client:
        pids = [*client.run(os.getpid).values()]

        def kill_one() -> None:
            # As soon as a worker has begun; the other has it all to itself then, until another is started.
            while not any(client.processing().values()):
                time.sleep(0.01)
            os.kill(pids[0], signal.SIGKILL)
            killed.append(pids[0])

        killer = threading.Thread(target=kill_one)
        killer.start()
        found = output(capsys, ".", "--preview")
        killer.join(20)
        assert killed
    assert found == fresh


def test_no_scheduler_answers(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("torchmemlint.processes.executors.PATIENCE_SECONDS", 1)
    monkeypatch.setenv("TORCHMEMLINT_EXECUTOR", "dask:tcp://127.0.0.1:1")
    assert main(["."]) == 2
    assert "no scheduler answers" in capsys.readouterr().err.splitlines()[-1]


def deadly(shared: InspectAll, path: str) -> Checked:
    assert str(os.getpid()) != os.environ["OWN_PID"]
    if path == "part1/train.py":
        os.kill(os.getpid(), signal.SIGKILL)
    return inspect(shared, path)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="kills by signal")
def test_a_file_that_kills_its_process_twice_is_reported(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, whole = output(capsys, ".", "--output-format", "json")
    monkeypatch.setenv("OWN_PID", str(os.getpid()))
    monkeypatch.setattr("torchmemlint.running.inspecting.inspect", deadly)
    status, text = output(capsys, ".", "--output-format", "json", "-j", "2")
    assert status == 2
    found = json.loads(text)
    assert [(one["code"], one["filename"]) for one in found if one["code"] == "TML001"] == [("TML001", "part1/train.py")]
    expected = [one for one in json.loads(whole) if one["filename"] != "part1/train.py"]
    assert [one for one in found if one["code"] != "TML001"] == expected
