"""The command line: which command, what is printed where, colours, summaries, fixes, exit status.

Findings come from a stand-in for the analysis, so that these tests are about the program around it: ``x += loss`` and
``y = loss`` are "mistakes", with a safe and an unsafe fix.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from torchmemlint import cli, screen, suppress, workers
from torchmemlint.commands import check
from torchmemlint.commands import rule as rule_command
from torchmemlint.errors import UsageError
from torchmemlint.findings import Confidence, Edit, Finding, Fix, Position, Safety, Severity, Span
from torchmemlint.project import results, selection
from torchmemlint.rules.card import About, Rule
from torchmemlint.running import inspecting

CARDS = (
    Rule("TML000", "unparsable-file", "", Severity.ERROR, About.RUN),
    Rule("TML001", "internal-error", "", Severity.ERROR, About.RUN),
    Rule("TML101", "running-total", "A total", Severity.ERROR, About.GRAPH_KEPT, Safety.SAFE, triggers=frozenset({"loss"})),
    Rule("TML301", "empty-cache", "A cache", Severity.WARNING, About.ALLOCATOR, Safety.UNSAFE, triggers=frozenset({"loss"})),
    Rule("TML308", "cap", "A cap", Severity.NOTE, About.ALLOCATOR, default=False, triggers=frozenset({"loss"})),
)
MISTAKE = re.compile(r"(?:x \+= loss|y = loss)\b(?!\.)|z = loss\b|crash\(\)")


def stand_in(shared: workers.InspectAll, path: str) -> results.Checked:
    """What the analysis would do, as far as these tests need it; the rest of ``workers.inspect`` is the real one."""
    text = (shared.texts.get(path) or workers.read(path)).text
    settings = shared.settings[path]
    findings = []
    for row, line in enumerate(text.split("\n"), 1):
        for match in MISTAKE.finditer(line):
            if match[0] == "crash()":
                return workers.crashed(path, "Traceback (most recent call last):\n  …\nRuntimeError: fell over\n")
            rule = CARDS[2 + "xyz".index(match[0][0])]
            if rule.code in settings.codes:
                start, end = Position(row, match.start() + 1), Position(row, match.end() + 1)
                fix = None if rule.fix is Safety.NONE else Fix("detach", rule.fix, (Edit(Span(end, end), ".detach()"),))
                findings.append(
                    Finding(
                        *(rule.code, rule.name, rule.severity, Confidence.HIGH, f"`{match[0]}` is a mistake"),
                        *(path, Span(start, end)),
                        fix=fix,
                        noqa_rows=frozenset({row}),
                        noqa_row=row,
                    )
                )
    return results.Checked(path, tuple(suppress.apply(findings, text, settings, path)), ("looked at",))


def install(put: Callable[[object, str, object], None] = setattr) -> None:
    """Puts the stand-in and its rules in place, by ``setattr`` or pytest's."""
    put(selection, "_cards", lambda: CARDS)
    for module in (screen, suppress, rule_command):
        put(module, "ALL_RULES", CARDS)
    put(rule_command, "page", lambda code: f"The page of {code}.")
    put(inspecting, "inspect", stand_in)
    selection._by_word.cache_clear()
    screen._triggers.cache_clear()


A = "import torch\nx += loss\ny = loss\n"

Done = subprocess.CompletedProcess


class Runner:
    """Runs the program in a folder: in this process, or with ``in_child`` in one of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._patch = monkeypatch

    def __call__(self, *arguments: str, stdin: bytes = b"", **environment: str) -> Done[str]:
        with self._patch.context() as patch:
            for name in ("FORCE_COLOR", "NO_COLOR", "CLICOLOR_FORCE", "TORCHMEMLINT_OUTPUT_FORMAT"):
                patch.delenv(name, raising=False)
            for name, value in environment.items():
                patch.setenv(name, value)
            streams = {name: io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for name in ("stdout", "stderr")}
            for name, stream in streams.items():
                patch.setattr(sys, name, stream)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
            try:
                code = cli.main(arguments)
            except SystemExit as end:
                code = cast(int, end.code)
            written = []
            for stream in streams.values():
                stream.flush()
                written.append(stream.buffer.getvalue().decode())
        return Done(arguments, code, *written)

    def child(self, *arguments: str) -> subprocess.Popen[str]:
        program = "import sys, test_cli; test_cli.install(); sys.exit(test_cli.cli.main(sys.argv[1:]))"
        return subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": os.path.dirname(__file__)},
        )  # fmt: skip

    def in_child(self, *arguments: str) -> Done[str]:
        with self.child(*arguments) as process:
            out, err = process.communicate(timeout=120)
        return Done(arguments, process.returncode, out, err)


@pytest.fixture
def lint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    (tmp_path / "a.py").write_text(A)
    monkeypatch.chdir(tmp_path)
    install(monkeypatch.setattr)
    yield Runner(tmp_path, monkeypatch)
    monkeypatch.undo()
    selection._by_word.cache_clear()
    screen._triggers.cache_clear()


CONCISE = ("--output-format", "concise")

# --- which command --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "command", "rest"),
    [
        ([], "check", []),
        (["src"], "check", ["src"]),
        (["check", "src"], "check", ["src"]),
        (["./check"], "check", ["./check"]),
        (["src", "check"], "check", ["src", "check"]),
        (["rule", "TML101"], "rule", ["TML101"]),
        (["-q", "check", "src"], "check", ["-q", "src"]),
        (["--select", "rule", "src"], "check", ["--select", "rule", "src"]),
        (["--select=TML1", "rule", "x"], "rule", ["--select=TML1", "x"]),
        (["--", "rule"], "check", ["--", "rule"]),
        (["-"], "check", ["-"]),
        (["-", "rule"], "check", ["-", "rule"]),
        (["-j", "2", "check"], "check", ["-j", "2"]),
        (["rules"], "check", ["rules"]),
    ],
)
def test_the_command_is_the_first_word_that_is_exactly_one(arguments: list[str], command: str, rest: list[str]) -> None:
    assert cli.split_command(arguments) == (command, rest)


def test_the_options_that_take_a_value_are_known() -> None:
    taking = {
        name
        for action in cli.check_parser()._actions
        for name in action.option_strings
        if action.nargs not in (0, "?") and action.option_strings  # an optional value comes after "="
    }
    assert taking == cli.VALUED


def test_version(lint: Runner) -> None:
    from torchmemlint import __version__

    for flag in ("--version", "-V"):
        done = lint(flag)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"torchmemlint {__version__}\n", "")
    assert lint("check", "--version").stdout == f"torchmemlint {__version__}\n"


def test_help_names_every_option(lint: Runner) -> None:
    done = lint("--help")
    assert done.returncode == 0
    for option in cli.VALUED | {"--fix", "--unsafe-fixes", "--diff", "--preview", "--isolated", "--exit-zero", "--show-files"}:
        assert option in done.stdout


# --- findings and their summary -------------------------------------------------------------------------------------


def test_check_is_the_default_and_no_path_is_the_current_folder(lint: Runner) -> None:
    outputs = {lint(*arguments, *CONCISE).stdout for arguments in ([], ["."], ["check"], ["check", "."], ["a.py"])}
    assert outputs == {
        "a.py:2:1: TML101 `x += loss` is a mistake\n"
        "a.py:3:1: TML301 `y = loss` is a mistake\n"
        "Found 1 error, 1 warning.\n"
        "[*] 1 fixable with `--fix` (1 more with `--unsafe-fixes`).\n"
    }


def test_clean(lint: Runner) -> None:
    (lint.folder / "a.py").write_text("import torch\n")
    done = lint()
    assert (done.returncode, done.stdout, done.stderr) == (0, "All checks passed!\n", "")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--select", "TML1"], "Found 1 error.\n[*] 1 fixable with `--fix`.\n"),
        (["--select", "TML301"], "Found 1 warning.\n[*] 1 fixable with `--fix --unsafe-fixes`.\n"),
        (["--unsafe-fixes"], "Found 1 error, 1 warning.\n[*] 2 fixable with `--fix`.\n"),
        (["--ignore", "TML1,TML3"], "All checks passed!\n"),
    ],
)
def test_summary(lint: Runner, arguments: list[str], expected: str) -> None:
    assert lint(*arguments, *CONCISE).stdout.endswith(expected)
    assert expected not in lint(*arguments, *CONCISE, "-q").stdout


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ([], 1),
        (["--exit-zero"], 0),
        (["--fail-on", "error"], 1),
        (["--fail-on", "error", "--select", "TML301"], 0),
        (["--select", "TML301"], 1),
        (["--extend-select", "TML308", "--ignore", "TML1,TML301"], 0),
        (["--select", "TML308", "--fail-on", "note"], 1),
        (["a.py", "missing.py"], 2),
        (["a.py", "missing.py", "--exit-zero"], 2),
    ],
)
def test_exit_status(lint: Runner, arguments: list[str], status: int) -> None:
    (lint.folder / "a.py").write_text(A + "z = loss\n")
    assert lint(*arguments).returncode == status


def test_fail_on_is_asked_of_the_settings_of_each_file(lint: Runner) -> None:
    (lint.folder / "a.py").write_text("import torch\n")
    (lint.folder / "strict").mkdir()
    (lint.folder / "strict" / "b.py").write_text("import torch\ny = loss\n")
    (lint.folder / "pyproject.toml").write_text("[tool.torchmemlint]\nfail-on = 'error'\n")
    assert lint().returncode == 0
    (lint.folder / "strict" / "pyproject.toml").write_text("[tool.torchmemlint]\n")
    assert lint().returncode == 1


def test_a_crash_in_one_file_is_a_finding_and_status_2(lint: Runner) -> None:
    (lint.folder / "b.py").write_text("import torch\nloss = crash()\n")
    done = lint(*CONCISE)
    assert done.returncode == 2
    assert "a.py:2:1: TML101" in done.stdout
    assert "b.py:1:1: TML001" in done.stdout
    assert "RuntimeError: fell over" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert "Traceback" in lint("-v").stderr
    assert lint("--exit-zero").returncode == 2


def test_formats_for_programs_have_no_summary(lint: Runner) -> None:
    found = json.loads(lint("--output-format", "json").stdout)
    assert [(one["code"], one["location"]["row"]) for one in found] == [("TML101", 2), ("TML301", 3)]
    assert json.loads(lint("--output-format", "json", "--ignore", "ALL").stdout) == []
    assert "Found" not in lint("--output-format", "github").stdout
    assert json.loads(lint(TORCHMEMLINT_OUTPUT_FORMAT="json").stdout) == found
    wrong = lint(TORCHMEMLINT_OUTPUT_FORMAT="xml")
    assert (wrong.returncode, "full, concise" in wrong.stderr) == (2, True)


def test_statistics(lint: Runner) -> None:
    (lint.folder / "b.py").write_text("import torch\ny = loss; x += loss\ny = loss\n")
    assert lint("--statistics").stdout == "3  TML301  [ ] empty-cache\n2  TML101  [*] running-total\n"
    plain = json.loads(lint("--statistics", "--output-format", "json").stdout)
    assert plain[1] == {"code": "TML101", "name": "running-total", "count": 2, "fixable": 2}


@pytest.mark.slow
def test_the_order_and_the_output_do_not_depend_on_the_jobs(lint: Runner) -> None:
    for number in range(30):
        (lint.folder / f"m{number:02}.py").write_text(A * (number % 3))
    (lint.folder / "bad.py").write_text("import torch\nloss = (\n")
    one, two, four = (lint.in_child("-j", jobs, "-v") for jobs in ("1", "2", "4"))
    assert one.stdout == two.stdout == four.stdout
    assert one.stderr == two.stderr == four.stderr
    assert "bad.py" in one.stdout
    rows = re.findall(r"--> (\S+):(\d+):(\d+)", one.stdout)
    assert rows == sorted(rows, key=lambda row: (row[0], int(row[1]), int(row[2])))


def test_verbose_says_what_was_left_out(lint: Runner) -> None:
    os.mkfifo(lint.folder / "pipe.py")
    assert "pipe.py: is a FIFO, not a regular file" in lint("-v").stderr
    assert "pipe.py" not in lint().stderr


# --- colour ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        ([], {}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"CLICOLOR_FORCE": "1"}, True),
        ([], {"FORCE_COLOR": "0"}, False),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colour(lint: Runner, arguments: list[str], environment: dict[str, Any], expected: bool) -> None:
    assert ("\x1b[" in lint(*arguments, **environment).stdout) is expected


# --- fixes ----------------------------------------------------------------------------------------------------------


def test_fix_writes_and_says_how_many(lint: Runner) -> None:
    done = lint("--fix", *CONCISE)
    assert (lint.folder / "a.py").read_text() == A.replace("x += loss", "x += loss.detach()")
    assert "Fixed 1 finding.\nFound 1 warning.\n" in done.stdout
    assert done.returncode == 1
    again = lint("--fix", "--unsafe-fixes")
    assert (lint.folder / "a.py").read_text() == "import torch\nx += loss.detach()\ny = loss.detach()\n"
    assert (again.returncode, again.stdout) == (0, "Fixed 1 finding.\nAll checks passed!\n")
    assert lint("--fix", "--unsafe-fixes").stdout == "All checks passed!\n"


def test_suppressed_findings_are_not_fixed(lint: Runner) -> None:
    text = "import torch\nx += loss  # noqa: TML101\n"
    (lint.folder / "a.py").write_text(text)
    assert lint("--fix").stdout == "All checks passed!\n"
    assert (lint.folder / "a.py").read_text() == text


def test_diff_changes_nothing(lint: Runner) -> None:
    done = lint("--diff")
    assert (lint.folder / "a.py").read_text() == A
    assert done.returncode == 1
    assert "-x += loss\n+x += loss.detach()\n" in done.stdout
    assert done.stderr == "Would fix 1 error (1 more with `--unsafe-fixes`).\n"
    none = lint("--diff", "--select", "TML301")
    assert (none.returncode, none.stdout, none.stderr) == (0, "", "No safe fixes (1 with `--unsafe-fixes`).\n")
    assert lint("--diff", "--exit-zero").returncode == 0


def test_a_file_that_cannot_be_written_is_an_error(lint: Runner) -> None:
    (lint.folder / "a.py").write_bytes(b"# coding: latin-1\nimport torch\nx += loss  # \xe9\n")
    assert lint("--fix").returncode == 0
    assert (lint.folder / "a.py").read_bytes().endswith(b"x += loss.detach()  # \xe9\n")


def test_standard_input(lint: Runner) -> None:
    done = lint("-", *CONCISE, stdin=A.encode())
    assert done.returncode == 1
    assert done.stdout.startswith("-:2:1: TML101")
    assert lint("-", "--stdin-filename", "pkg/new.py", *CONCISE, stdin=A.encode()).stdout.startswith("pkg/new.py:2:1: TML101")
    assert "+x += loss.detach()" in lint("-", "--diff", stdin=A.encode()).stdout


def test_standard_input_with_fix_is_a_filter(lint: Runner) -> None:
    source = "\ufeffimport torch\r\nx += loss  # é\r\n".encode()
    done = lint("-", "--fix", stdin=source)
    assert (done.returncode, done.stdout) == (0, "\ufeffimport torch\r\nx += loss.detach()  # é\r\n")
    assert "Fixed 1 finding." in done.stderr
    clean = lint("-", "--fix", stdin=b"x = 1")
    assert (clean.returncode, clean.stdout) == (0, "x = 1")


def test_standard_input_is_excluded_by_its_name_where_that_is_forced(lint: Runner) -> None:
    excluded = ("-", "--stdin-filename", "gen/x.py", "--force-exclude", "--extend-exclude", "gen")
    assert lint(*excluded, stdin=A.encode()).returncode == 0
    assert lint(*excluded, "--fix", stdin=A.encode()).stdout == A


# --- files, settings, rules -----------------------------------------------------------------------------------------


def test_show_files_and_settings(lint: Runner) -> None:
    (lint.folder / "b.txt").write_text("")
    assert lint("--show-files").stdout == "a.py\n"
    (lint.folder / "pyproject.toml").write_text("[tool.torchmemlint]\nfail-on = 'note'\n")
    shown = lint("--show-settings").stdout
    assert "fail_on = 'note'" in shown
    assert "pyproject.toml" in shown
    assert lint("--show-files", "missing").returncode == 2


def test_per_file_ignores() -> None:
    assert check.per_file_ignores(["a/*.py:TML1,TML2,b.py:ALL", "c.py:TML3"]) == {
        "a/*.py": ["TML1", "TML2"],
        "b.py": ["ALL"],
        "c.py": ["TML3"],
    }
    for wrong in ("a.py", ":TML1", "a.py:"):
        with pytest.raises(UsageError, match="must be GLOB:RULE"):
            check.per_file_ignores([wrong])


def test_per_file_ignores_on_the_command_line(lint: Runner) -> None:
    assert "TML101" not in lint("--per-file-ignores", "a.py:TML101").stdout
    assert "TML101" in lint("--per-file-ignores", "b.py:TML101").stdout


def test_rule_pages(lint: Runner) -> None:
    assert lint("rule", "TML101").stdout == (
        "TML101 running-total\nSeverity: error. Fix: safe. Enabled: default.\n\nThe page of TML101.\n"
    )
    assert lint("rule", "cap").stdout.startswith("TML308 cap\nSeverity: note. Fix: none. Enabled: on request.")
    assert lint("rule", "TML101", "--output-format", "markdown").stdout.startswith("# TML101: running-total\n")
    one = json.loads(lint("rule", "TML301", "--output-format", "json").stdout)
    assert (one["code"], one["fix"], one["explanation"]) == ("TML301", "unsafe", "The page of TML301.")
    everything = json.loads(lint("rule", "--all", "--output-format", "json").stdout)
    assert [rule["code"] for rule in everything] == ["TML000", "TML001", "TML101", "TML301", "TML308"]
    unknown = lint("rule", "TML102")
    assert (unknown.returncode, unknown.stderr) == (
        2,
        "torchmemlint: error: unknown rule `TML102`; did you mean `TML101`?\n",
    )
    assert lint("rule").returncode == 2
    assert lint("rule", "TML101", "--all").returncode == 2


@pytest.mark.parametrize("place", ["a.py", "a.py:x", "a.py:0", "a.py:9999", "missing.py:1", ":3"])
def test_trace_of_a_wrong_place(lint: Runner, place: str) -> None:
    done = lint("trace", place)
    assert done.returncode == 2
    assert done.stderr.startswith("torchmemlint: error: ")


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_traceback(lint: Runner) -> None:
    for number in range(200):
        (lint.folder / f"m{number:03}.py").write_text(A * 10)
    with lint.child("-j", "1") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""


# --- what a run imports ---------------------------------------------------------------------------------------------


def imported_by(folder: Path, *arguments: str) -> set[str]:
    program = (
        "import sys; from torchmemlint.cli import main; main(sys.argv[1:]); print('MODULES', *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stderr.partition("MODULES")[2].split())


def test_version_imports_next_to_nothing(tmp_path: Path) -> None:
    modules = imported_by(tmp_path, "--version")
    assert modules.isdisjoint({"argparse", "ast", "dataclasses", "libcst", "torch", "torchmemlint.project.config"})


def test_a_file_without_torch_brings_in_neither_torch_nor_the_parser_nor_the_engine(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("def f(losses):\n    for loss in losses:\n        total += loss\n")
    (tmp_path / "notes.py").write_text('"""torch"""\nx = 1\n')
    modules = imported_by(tmp_path, ".", "-j", "1")
    forbidden = {
        "torch",
        "libcst",
        "numpy",
        "rich",
        "asyncio",
        "importlib.metadata",
        "multiprocessing",
        "libcst.native",
        "torchmemlint.rules.api",
        "torchmemlint.index.project",
    }
    assert modules & forbidden == set()
    assert not any(name.startswith(("torchmemlint.semantics", "torchmemlint.lower")) for name in modules)
    assert "torchmemlint.run" in modules


@pytest.mark.slow
def test_a_finding_brings_in_no_libcst_where_python_notes_its_places(tmp_path: Path) -> None:
    train = tmp_path / "train.py"
    text = (
        "import torch\n\n\ndef train(model, data):\n    total = 0\n    for x in data:\n        loss = model(x).sum()\n"
        "        loss.backward()\n        total += loss.item()\n    return total\n"
    )
    train.write_text(text)
    modules = imported_by(tmp_path, "train.py")
    assert "torchmemlint.semantics.roots.root_run" in modules
    assert modules.isdisjoint({"libcst", "torchmemlint.lower.exact"})
    train.write_text(text.replace(".item()", ""))
    modules = imported_by(tmp_path, "train.py", "--exit-zero", "--diff")
    assert "torchmemlint.lower.spans" in modules
    assert modules.isdisjoint({"libcst", "torchmemlint.lower.exact"})


@pytest.mark.slow
def test_linting_never_imports_torch_nor_what_it_reads(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\nraise SystemExit('was run')\nfor x in data:\n    loss = model(x).sum()\n    total += loss\n"
        "    loss.backward()\n    torch.cuda.empty_cache()\n"
    )
    modules = imported_by(tmp_path, "train.py", "--exit-zero")
    assert modules.isdisjoint({"torch", "train", "numpy", "rich", "asyncio", "importlib.metadata"})


def test_the_public_names_come_on_first_use() -> None:
    program = (
        "import sys, torchmemlint; assert 'dataclasses' not in sys.modules; "
        "assert all(hasattr(torchmemlint, name) for name in torchmemlint.__all__); "
        "assert not hasattr(torchmemlint, 'nonsense')"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_the_public_calls(tmp_path: Path) -> None:
    import torchmemlint

    (tmp_path / "bad.py").write_text("import torch\nx = (\n")
    (found,) = torchmemlint.check_paths([tmp_path])
    assert (found.code, found.path) == ("TML000", f"{tmp_path.as_posix()}/bad.py")
    (found,) = torchmemlint.check_source("import torch\nx = (\n", "new.py", options={"select": ["TML1"]}, isolated=True)
    assert (found.code, found.path, found.span.start.row) == ("TML000", "new.py", 2)
    with pytest.raises(UsageError, match=r"missing\.py: no such file"):
        torchmemlint.check_paths([tmp_path / "missing.py"])


# --- hyperlinks -----------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "terminal", "asked", "expected"),
    [
        ({"TERM_PROGRAM": "WezTerm"}, True, "auto", True),
        ({"TERM_PROGRAM": "WezTerm"}, False, "auto", False),
        ({"TERM_PROGRAM": "WezTerm"}, True, "never", False),
        ({"TERM_PROGRAM": "WezTerm", "NO_COLOR": "1"}, True, "auto", False),
        ({"TERM_PROGRAM": "WezTerm", "CI": "true"}, True, "auto", False),
        ({"TERM_PROGRAM": "WezTerm", "TERM": "tmux-256color"}, True, "auto", False),
        ({"TERM_PROGRAM": "Apple_Terminal"}, True, "auto", False),
        ({"TERM": "xterm-kitty"}, True, "auto", True),
        ({"VTE_VERSION": "7600"}, True, "auto", True),
        ({"VTE_VERSION": "4600"}, True, "auto", False),
        ({"WT_SESSION": "1"}, True, "always", True),
        ({"FORCE_HYPERLINK": "1"}, False, "auto", True),
        ({"FORCE_HYPERLINK": "0", "TERM_PROGRAM": "WezTerm"}, True, "auto", False),
        ({}, True, "auto", False),
    ],
)
def test_who_gets_hyperlinks(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], terminal: bool, asked: str, expected: bool
) -> None:
    for name in [*os.environ]:
        if name not in ("PATH", "HOME"):
            monkeypatch.delenv(name)
    for name, value in {"TERM": "xterm-256color", **environment}.items():
        monkeypatch.setenv(name, value)
    assert check.linked(asked, Terminal() if terminal else io.StringIO()) is expected


def test_what_a_hyperlink_leads_to(lint: Runner) -> None:
    (lint.folder / "a b.py").write_text(A)
    plain = lint("a b.py", "--output-format=full").stdout
    assert "\x1b" not in plain
    linked = lint(
        "a b.py", "--output-format=full", FORCE_HYPERLINK="1", TORCHMEMLINT_DOCS_URL="https://example.org/rules/"
    ).stdout
    address = f"file://{lint.folder.as_posix()}/a%20b.py"
    assert f"\x1b]8;;{address}\x1b\\a b.py:2:1\x1b]8;;\x1b\\" in linked
    assert "[\x1b]8;;https://example.org/rules/TML101.html\x1b\\TML101\x1b]8;;\x1b\\]" in linked
    assert re.sub("\x1b]8;;[^\x1b]*\x1b\\\\", "", linked) == plain
    without = lint("a b.py", "--output-format=full", FORCE_HYPERLINK="1").stdout
    assert "[TML101]" in without
    assert address in without
