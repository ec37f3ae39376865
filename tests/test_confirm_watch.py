"""Watch mode on runnable scripts of different styles; the verdicts that are expected stand on the watched lines."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import forked
import pytest

pytest.importorskip("torch")

from torchmemlint.confirm import watch
from torchmemlint.errors import UsageError
from torchmemlint.findings import Confidence, Finding, Position, Severity, Span

SCRIPTS = Path(__file__).parent / "confirm_snippets" / "watch"
MARK = re.compile(r"# watch: (TML\d{3}) (confirmed|refuted|inconclusive) ?(.*)$")

PROGRAMS = {
    "plain_loop": (["plain_loop.py"], ["plain_loop.py"]),
    "trainer_class": (["trainer_class.py"], ["trainer_class.py", "--width", "24", "--epochs", "3"]),
    "amp_and_gan": (["amp_and_gan.py"], ["amp_and_gan.py"]),
    "recurrent": (["recurrent.py"], ["recurrent.py"]),
    "hooks_of_a_framework": (["hooks_of_a_framework.py"], ["hooks_of_a_framework.py"]),
    "kept_exceptions": (["kept_exceptions.py"], ["kept_exceptions.py"]),
    "several_files": (["several_files/meters.py", "several_files/__main__.py"], ["-m", "several_files"]),
}


def findings_of(file: str) -> tuple[list[Finding], list[tuple[str, str]]]:
    """A finding for each marked line, and what its verdict must be."""
    findings, expected = [], []
    for row, line in enumerate((SCRIPTS / file).read_text().splitlines(), 1):
        mark = MARK.search(line)
        if mark:
            span = Span(Position(row, 1), Position(row, len(line)))
            path = str(SCRIPTS / file)
            findings.append(Finding(mark[1], "a-rule", Severity.WARNING, Confidence.HIGH, "a message", path, span))
            expected.append((mark[2], mark[3]))
    return findings, expected


def copied(command: Sequence[str]) -> int:
    """The status of a script, run in a copy of a process that has torch."""
    done = forked.script(*command[1:], cwd=Path.cwd())
    assert done.returncode >= 0, done.stderr
    return done.returncode


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_verdict_of_a_script_is_right(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, program = PROGRAMS[name]
    findings, expected = [], []
    for file in files:
        more, words = findings_of(file)
        findings += more
        expected += words
    assert expected
    monkeypatch.chdir(SCRIPTS)
    monkeypatch.setattr(watch, "_run", copied)
    report = tmp_path / "report.json"
    status = watch.run(findings, [sys.executable, *program], "json", str(report))
    verdicts = [row["confirm"] for row in json.loads(report.read_text())]
    reported = [(verdict["verdict"], verdict["kind"] or "") for verdict in verdicts]
    for (outcome, kind), (want, word) in zip(reported, expected, strict=True):
        assert outcome == want, (name, reported, [verdict["reason"] for verdict in verdicts])
        assert word in kind
    assert status == int(any(outcome == "refuted" for outcome, _ in reported))


def _one(path: Path, row: int, code: str = "TML102") -> Finding:
    span = Span(Position(row, 1), Position(row, 2))
    return Finding(code, "a-rule", Severity.WARNING, Confidence.HIGH, "a message", str(path), span)


def test_a_failure_of_the_script_is_its_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "fails.py"
    script.write_text("kept = []\nfor step in range(6):\n    kept.append(step)\nraise SystemExit(7)\n")
    assert watch.run([_one(script, 3)], [sys.executable, str(script)], "full", None) == 7
    assert "exit status 7" in capfd.readouterr().err


def test_a_traceback_names_the_file_and_the_row_of_the_user(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "raises.py"
    script.write_text("kept = []\nfor step in range(6):\n    kept.append(step)\n\nraise ValueError('mine')\n")
    assert watch.run([_one(script, 3)], [sys.executable, str(script)], "full", None) == 1
    error = capfd.readouterr().err
    assert f'File "{script}", line 5' in error
    assert "ValueError: mine" in error
    assert "watching.py" not in error


@pytest.mark.slow
def test_an_interrupt_still_writes_the_report(tmp_path: Path) -> None:
    script = tmp_path / "long.py"
    script.write_text(
        "import time, torch\nkept = []\nw = torch.ones(3, requires_grad=True)\nfor step in range(100_000):\n"
        "    kept.append((w * 2).sum())\n    time.sleep(0.05)\n    print('step', flush=True)\n"
    )
    report = tmp_path / "report.json"
    program = (
        "import sys\nfrom torchmemlint.confirm import watch\nfrom torchmemlint.findings import *\n"
        f"f = Finding('TML102', 'a-rule', Severity.WARNING, Confidence.HIGH, 'm', {str(script)!r},"
        " Span(Position(5, 1), Position(5, 2)))\n"
        f"sys.exit(watch.run([f], [sys.executable, {str(script)!r}], 'json', {str(report)!r}))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert process.stdout is not None
    for _ in range(12):
        assert process.stdout.readline()
    import os

    os.killpg(process.pid, signal.SIGINT)
    process.stdout.close()
    process.wait(30)
    (row,) = json.loads(report.read_text())
    assert row["confirm"]["verdict"] == "confirmed"


@pytest.mark.slow
def test_looking_costs_less_than_a_tenth(tmp_path: Path) -> None:
    """The share of the script's own time, as the watcher counts it: wall time of two runs differs by more on a busy machine. There, a
    look may be interrupted, so that one of three runs has to hold."""
    script = tmp_path / "busy.py"
    script.write_text(
        "import torch\nnet = torch.nn.Linear(64, 64)\nkept = []\nfor step in range(1500):\n"
        "    loss = net(torch.randn(32, 64)).sum()\n    loss.backward()\n    kept.append(loss)\n"
    )
    report = tmp_path / "seen.json"
    specification = tmp_path / "watch.json"
    specification.write_text(json.dumps(watch._specification([_one(script, 7)], str(report))))
    runner = Path(watch.__file__).parent / "worker" / "watching.py"
    shares = []
    for _ in range(3):
        started = time.monotonic()
        subprocess.run([sys.executable, str(runner), str(specification), str(script)], check=True)
        seen = json.loads(report.read_text())
        assert seen["hits"]["0"] == 1500
        assert seen["seconds"] <= time.monotonic() - started
        shares.append(seen["spent"] / seen["seconds"])
        if shares[-1] < 0.1:
            break
    assert min(shares) < 0.1


@pytest.mark.parametrize(
    ("command", "python", "program"),
    [
        (["python", "train.py", "--epochs", "1"], ("python",), ("train.py", "--epochs", "1")),
        (
            ["/usr/bin/python3.11", "-u", "-X", "utf8", "-m", "pkg.mod", "-v"],
            ("/usr/bin/python3.11", "-u", "-X", "utf8"),
            ("-m", "pkg.mod", "-v"),
        ),
    ],
)
def test_a_command_is_taken_apart(command: list[str], python: tuple[str, ...], program: tuple[str, ...]) -> None:
    parts = watch.take_apart(command)
    assert (parts.python, parts.program) == (python, program)


@pytest.mark.parametrize("command", [[], ["python"], ["python", "-m"], ["python", "-c", "pass"], ["bash", "train.sh"]])
def test_what_is_no_python_program_is_refused(command: list[str]) -> None:
    with pytest.raises(UsageError):
        watch.take_apart(command)
