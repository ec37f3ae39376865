"""The plugin inside a real flake8."""

from __future__ import annotations

import ast
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import tokenize
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import forked
import pytest

from torchmemlint import flake8_plugin, run
from torchmemlint.findings import Confidence, Finding, Position, Severity, Span
from torchmemlint.flake8_plugin import Checker
from torchmemlint.project.settings import Settings

pytest.importorskip("flake8")

# Stands in for the analysis, so that these tests are about the plugin: reports the column of each `total` and of each `cap`.
STAND_IN = """
import re
from torchmemlint import rules
from torchmemlint.findings import Confidence, Finding, Position, Severity, Span
from torchmemlint.rules.card import About, Rule

rules.ALL_RULES += (Rule("TML998", "off", "A rule that is off by default", Severity.NOTE, About.FOOTPRINT, default=False),)

from torchmemlint import run

def check_text(text, filename, settings, *, comments=True, means=None):
    if "crash" in text:
        raise RuntimeError("first line\\nsecond line")
    for row, line in enumerate(text.split("\\n"), 1):
        for match in re.finditer("total|cap", line):
            code = {"total": "TML101", "cap": "TML998"}[match[0]]
            if code in settings.codes:
                at = Position(row, match.start() + 1)
                yield Finding(code, "n", Severity.ERROR, Confidence.HIGH, f"`{match[0]}` is kept", filename, Span(at, at))

run.check_text = check_text
run.check_paths = None  # a run over all files would not know of it
"""


CAN_BE_COPIED = multiprocessing.get_all_start_methods()[0] == "fork"
"""Whether flake8's processes have what the process has that starts them."""


def flake8(folder: Path, *arguments: str, text: str | None = None, stand_in: bool = True) -> subprocess.CompletedProcess[str]:
    return flake8_after(STAND_IN if stand_in else "", "", folder, *arguments, text=text)


def flake8_after(
    first: str, then: str, folder: Path, *arguments: str, text: str | None = None
) -> subprocess.CompletedProcess[str]:
    """flake8 in a process that runs some code before it loads the plugin, and some after that."""
    environment = dict(os.environ)
    if (first or then) and not CAN_BE_COPIED:
        (folder / "stand_in").mkdir(exist_ok=True)
        (folder / "stand_in" / "sitecustomize.py").write_text(first + then)
        environment |= {"PYTHONPATH": str(folder / "stand_in"), "PYTHONIOENCODING": "utf-8"}
        then = ""
    stdin = None if text is None else text.encode()
    code = f"{then}\nimport runpy\nrunpy.run_module('flake8', run_name='__main__', alter_sys=True)"
    command = ["-c", code, "--exclude=stand_in", *arguments]
    done = forked.run(command, folder, stdin=stdin, env=environment, first=first)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def ours(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.stderr == ""
    return sorted(line for line in done.stdout.splitlines() if " TML" in line)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_bytes("\ufeffs = '漢👍'; total = 1\r\nif s:\r\n\ttotal += 1  # noqa: TML101\r\n".encode())
    (tmp_path / "b.py").write_text("cap = 1\n\x0ctotal = (\n    1\n)  # noqa\n")
    (tmp_path / "c.py").write_text("total = 2\n")
    return tmp_path


ALWAYS = ["./a.py:1:11: TML101 `total` is kept", "./b.py:2:2: TML101 `total` is kept", "./c.py:1:1: TML101 `total` is kept"]
CAP = "./b.py:1:1: TML998 `cap` is kept"


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_findings_at_their_places(folder: Path, jobs: str) -> None:
    done = flake8(folder, "-j", jobs, ".")
    assert ours(done) == ALWAYS  # with the finding of b.py: flake8 reads a noqa on the reported row only
    assert done.returncode == 1
    assert ours(flake8(folder, "-j", jobs, "--disable-noqa", ".")) == sorted([*ALWAYS, "./a.py:3:2: TML101 `total` is kept"])


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ((), False),
        (("--ignore=E501",), False),
        (("--select=E,TML",), False),
        (("--extend-select=TML998",), True),
        (("--extend-select=TML9",), True),
        (("--select=TML998,E",), True),
        (("--extend-select=TML998", "--extend-ignore=TML998"), False),
    ],
)
def test_rules_that_are_off_by_default(folder: Path, jobs: str, arguments: tuple[str, ...], shown: bool) -> None:
    assert (CAP in ours(flake8(folder, "-j", jobs, *arguments, "b.py", "./b.py"))) is shown


def test_our_own_configuration_counts(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.torchmemlint]\nignore = ["TML101"]\nextend-select = ["TML998"]\n')
    assert ours(flake8(folder, ".")) == [CAP]


def test_ignored_in_our_own_configuration(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.torchmemlint]\nignore = ["TML101"]\n')
    assert ours(flake8(folder, ".")) == []


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_failure_of_ours_is_a_report(folder: Path, jobs: str) -> None:
    (folder / "d.py").write_text("crash = 1\n")
    lines = ours(flake8(folder, "-j", jobs, "c.py", "d.py"))
    assert lines == [
        "c.py:1:1: TML101 `total` is kept",
        "d.py:1:1: TML001 internal error, please report: RuntimeError: first line second line",
    ]


def test_a_broken_configuration_is_a_report(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.torchmemlint]\nselekt = ["TML1"]\n')
    (line,) = ours(flake8(folder, "c.py"))
    assert line.startswith("c.py:1:1: TML001 configuration: ")
    assert "select" in line


def test_standard_input(folder: Path) -> None:
    lines = ours(flake8(folder, "--stdin-display-name=x.py", "-", text="total = 1\n"))
    assert lines == ["x.py:1:1: TML101 `total` is kept"]


def test_what_flake8_cannot_parse_is_left_to_it(folder: Path) -> None:
    (folder / "bad.py").write_text("def total(:\n")
    done = flake8(folder, "bad.py")
    assert "E999" in done.stdout
    assert ours(done) == []


def test_version_names_the_plugin(folder: Path) -> None:
    assert "torchmemlint" in flake8(folder, "--version", stand_in=False).stdout


def test_the_plugin_does_not_load_what_it_does_not_need(tmp_path: Path) -> None:
    heavy = "{'libcst', 'torch', 'torchmemlint.run', 'torchmemlint.project.config'}"
    code = f"import sys; import torchmemlint.flake8_plugin; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def checker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Checker]]:
    """The plugin in an empty folder: without file names it checks the current one."""
    monkeypatch.chdir(tmp_path)
    yield Checker
    Checker.parse_options(Namespace(select=None, extend_select=None))


def test_reports_can_be_sent_between_processes(checker: type[Checker], monkeypatch: pytest.MonkeyPatch) -> None:
    def check_text(text: str, filename: str, settings: Settings, *, comments: bool, means: object) -> list[Finding]:
        assert (text, filename, comments) == ("a\nb\n", "x.py", False)
        span = Span(Position(2, 3), Position(2, 4))
        return [Finding("TML101", "n", Severity.ERROR, Confidence.HIGH, "m", filename, span)]

    monkeypatch.setattr(run, "check_text", check_text)
    checker.parse_options(Namespace(select=["E", "TML999", "TML1"], extend_select=None))
    (report,) = checker(ast.parse(""), "x.py", ["a\n", "b\n"]).run()
    assert report == (2, 2, "TML101 m", flake8_plugin.Checker)
    assert pickle.loads(pickle.dumps(report)) == report


@pytest.mark.parametrize("error", [RecursionError("deep"), MemoryError(), KeyError("k"), AssertionError()])
def test_no_exception_gets_out(checker: type[Checker], monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def check_text(*_: object, **__: object) -> list[Finding]:
        raise error

    monkeypatch.setattr(run, "check_text", check_text)
    ((row, column, message, _),) = checker(ast.parse(""), "x.py", ["a\n"]).run()
    assert (row, column) == (1, 0)
    assert message.startswith(f"TML001 internal error, please report: {type(error).__name__}")


@pytest.mark.slow
def test_the_same_findings_as_the_command(tmp_path: Path) -> None:
    fixtures = Path(__file__).parent.parent / "fixtures"
    names = sorted(path.name for path in (fixtures / "TML101").glob("*.py"))[::4]
    for name in names:
        (tmp_path / name).write_bytes((fixtures / "TML101" / name).read_bytes())
    done = forked.lint("--isolated", "--output-format=json", ".", cwd=tmp_path)
    at = []
    for finding in json.loads(done.stdout):
        if finding["severity"] == "note":
            continue  # neither prints notes where nobody asks for them
        start = finding["location"]
        at.append(f"./{finding['filename']}:{start['row']}:{start['column']}: {finding['code']} {finding['message']}")
    if not any(" TML101 " in line for line in at):
        pytest.skip("the analysis reports nothing in the fixtures of TML101")
    assert ours(flake8(tmp_path, "--disable-noqa", ".", stand_in=False)) == sorted(line.replace("././", "./") for line in at)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (("--select=E9",), False),
        (("--select=E,W", "--extend-select=F"), False),
        (("--ignore=TML",), False),
        (("--extend-ignore=TML", "--extend-select=E501"), False),
        (("--select=E9,TML101",), True),
        (("--extend-select=TML998",), True),
        (("--select=E9", "--extend-select=TML308"), True),
        (("--ignore=TML", "--extend-select=TML101"), True),
        ((), True),
    ],
)
def test_where_none_of_ours_is_selected_nothing_is_read(
    folder: Path, jobs: str, arguments: tuple[str, ...], asked: bool
) -> None:
    """The stand-in for the analysis fails loudly, and even that is not heard: flake8 would not print it."""
    (folder / "pyproject.toml").write_text("[tool.torchmemlint]\nnonsense = 1\n")
    mark = folder / "looked"
    plugin = (
        "import torchmemlint.flake8_plugin as plugin\n"
        f"first = plugin.Checker._reports\n"
        f"def reports(self):\n    open({str(mark)!r}, 'w').close()\n    return first(self)\n"
        "plugin.Checker._reports = reports\n"
    )
    done = flake8_after("", plugin, folder, "-j", jobs, *arguments, "b.py", "c.py")
    assert done.stderr == ""
    assert mark.exists() is asked


@pytest.mark.parametrize(("asked", "imports"), [("E9", False), ("TML", True)])
def test_where_none_of_ours_is_selected_the_plugin_imports_nothing(folder: Path, asked: str, imports: bool) -> None:
    """flake8 itself imports the plugin by ``importlib``, which Python does not list here: what is listed, the plugin imported."""
    command = [sys.executable, "-X", "importtime", "-m", "flake8", "-j", "1", f"--select={asked}", "c.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0
    assert "flake8.style_guide" in imported
    assert bool({name for name in imported if name.startswith(("torchmemlint.", "libcst"))}) is imports


def test_a_flake8_that_does_not_answer_is_taken_to_select() -> None:
    assert flake8_plugin._selects_any(Namespace())


@pytest.mark.slow
def test_processes_share_one_cache(folder: Path, caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one file's process read of the project is there for the next, in the user's folder and under the user's seal."""
    for path in folder.iterdir():
        path.unlink()
    train = (
        "import torch\nfrom net import step\n\n\ndef train(model: torch.nn.Module, loader, optimizer):\n    total = 0\n"
        "    for x in loader:\n        loss = step(model, x)\n        loss.backward()\n        optimizer.step()\n        total += loss\n"
        "    return total\n"
    )
    net = "import torch\n\n\ndef step(model: torch.nn.Module, x):\n    return model(x).sum()\n"
    (folder / "train.py").write_text(train)
    (folder / "net.py").write_text(net)
    monkeypatch.setenv("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", str(caches / "flake8"))
    first = flake8(folder, "--select=TML", ".", stand_in=False)
    facts = sorted((caches / "flake8").rglob("facts/*/*"))
    assert len(facts) == 2
    assert sorted(path.name for path in folder.iterdir()) == ["net.py", "train.py"]
    times = [path.stat().st_mtime_ns for path in facts]
    again = flake8(folder, "--select=TML", ".", stand_in=False)
    assert (again.stdout, again.returncode) == (first.stdout, first.returncode)
    assert [path.stat().st_mtime_ns for path in facts] == times
    monkeypatch.setenv("TORCHMEMLINT_NO_CACHE", "1")
    assert flake8(folder, "--select=TML", ".", stand_in=False).stdout == first.stdout
    assert "TML101" in first.stdout


MISTAKE = """
import torch


def train(model, loader, optimizer):
    total = 0
    for batch in loader:
        loss = model(batch).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss
    print(total)
"""


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_the_same_as_the_command(tmp_path: Path, jobs: str) -> None:
    (tmp_path / "a.py").write_text(MISTAKE)
    (tmp_path / "b.py").write_text(MISTAKE.replace("total += loss", "total += loss  # noqa: TML101"))
    (tmp_path / "c.py").write_text("import torch\n")
    printed = forked.lint("--output-format", "concise", ".", cwd=tmp_path).stdout
    expected = [line for line in printed.splitlines() if " TML" in line]
    assert len(expected) == 1
    for _ in range(2):  # without and with what the cache holds by then
        found = flake8(tmp_path, "-j", jobs, "--select=TML", ".", stand_in=False)
        assert [line.removeprefix("./") for line in ours(found)] == expected
    assert len(ours(flake8(tmp_path, "-j", jobs, "--select=TML", "--disable-noqa", ".", stand_in=False))) == 2


@pytest.mark.slow
def test_one_run_answers_for_all_files_that_are_as_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text(MISTAKE)
    asked: list[str] = []
    real = run.check_text

    def watched(text: str, filename: str, *arguments: object, **more: object) -> list[Finding]:
        asked.append(filename)
        return real(text, filename, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(run, "check_text", watched)
    Checker.parse_options(Namespace(select=["TML"], extend_select=[], filenames=["."]))
    try:
        saved = MISTAKE.splitlines(keepends=True)
        assert [report[0] for report in Checker(ast.parse(""), "./a.py", saved).run()] == [12]
        assert asked == []
        edited = ["# edited\n", *saved]
        assert [report[0] for report in Checker(ast.parse(""), "./a.py", edited).run()] == [13]
        assert asked == ["./a.py"]
    finally:
        Checker.parse_options(Namespace(select=["E"], extend_select=[], filenames=["-"]))


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"\n", b"\r\n"), (b"\n", b"\r"), (b"import torch\n", b"# -*- coding: latin-1 -*-\nimport torch  # \xe9\n")],
)
def test_ends_of_lines_and_encodings_need_no_run_of_their_own(
    before: bytes, after: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.py"
    path.write_bytes(MISTAKE.encode().replace(before, after))
    assert path.read_bytes() != MISTAKE.encode()
    asked: list[str] = []

    def watched(text: str, filename: str, *_: object, **__: object) -> list[Finding]:
        asked.append(filename)
        return []

    monkeypatch.setattr(run, "check_text", watched)
    Checker.parse_options(Namespace(select=["TML"], extend_select=[], filenames=["a.py"]))
    try:
        with tokenize.open(path) as read:
            lines = read.readlines()
        assert [report[2][:6] for report in Checker(ast.parse(""), "a.py", lines).run()] == ["TML101"]
        assert asked == []
    finally:
        Checker.parse_options(Namespace(select=["E"], extend_select=[], filenames=["-"]))


@pytest.mark.parametrize(("asked", "given"), [(3, 3), (-1, None)])
def test_flake8_says_how_many_processes(asked: int, given: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[int | None] = []
    monkeypatch.setattr(run, "check_paths", lambda names, configuration, jobs_, **_: jobs.append(jobs_))
    Checker.parse_options(Namespace(select=["TML"], extend_select=[], filenames=["."], jobs=Namespace(n_jobs=asked)))
    Checker.parse_options(Namespace(select=["E"], extend_select=[], filenames=["-"]))
    assert jobs == [given]
