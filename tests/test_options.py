"""Options that users of ruff look for, and small promises of the command line, on real findings."""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from torchmemlint import cli

TRAIN = """import torch

def train(model, loader, optimizer):
    total = 0
    for x in loader:
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        total += loss
    print(total)
"""
FIXED = TRAIN.replace("+= loss", "+= loss.detach()")
EVALUATE = """import torch

def evaluate(model, loader):
    model.eval()
    outputs = []
    for x in loader:
        outputs.append(model(x))
    print(len(outputs))
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "a.py").write_text(TRAIN)
    (tmp_path / "b.py").write_text(EVALUATE)
    return tmp_path


@pytest.fixture
def lint(capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    def run(*arguments: str) -> tuple[int, str, str]:
        status = cli.main(["--no-cache", *arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return run


# --- fixing ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_fix_only_fixes_and_does_not_report_the_rest(lint, project: Path) -> None:  # type: ignore[no-untyped-def]
    assert lint("--fix-only", "--output-format=concise") == (0, "Fixed 1 finding.\nAll checks passed!\n", "")
    assert (project / "a.py").read_text() == FIXED
    (project / "a.py").write_text("import torch\ndef f(:\n")
    assert lint("--fix-only")[0] == 1, "a file that cannot be parsed is no clean one"


def test_show_fixes(lint) -> None:  # type: ignore[no-untyped-def]
    out = lint("--fix", "--unsafe-fixes", "--show-fixes")[1]
    shown, _, _ = out.partition("Fixed 2 findings.")
    assert shown.split("\n")[:3] == ["Fixes:", "- a.py:", "    1 × TML101 (graph-attached-running-total)"]
    assert "- b.py:\n    1 × TML201 (inference-with-grad)\n" in shown


def test_exit_non_zero_on_fix(lint) -> None:  # type: ignore[no-untyped-def]
    assert lint("--fix", "--exit-non-zero-on-fix", "a.py")[0] == 1
    assert lint("--fix", "--exit-non-zero-on-fix", "a.py")[0] == 0


def test_unfixable_and_fixable(lint, project: Path) -> None:  # type: ignore[no-untyped-def]
    status, out, _ = lint("--fix", "--unfixable", "TML1", "a.py")
    assert status == 1
    assert (project / "a.py").read_text() == TRAIN
    assert "safe fix" not in out
    assert "fixable" not in out
    (project / "torchmemlint.toml").write_text('fixable = ["inference-with-grad"]\nunsafe-fixes = true\n')
    lint("--fix")
    assert (project / "a.py").read_text() == TRAIN
    assert "no_grad" in (project / "b.py").read_text()
    assert lint("--unfixable", "TML7")[0] == 2


def test_a_team_says_once_which_fixes_it_takes_for_safe(lint, project: Path) -> None:  # type: ignore[no-untyped-def]
    settings = project / "torchmemlint.toml"
    settings.write_text('extend-safe-fixes = ["TML2"]\nextend-unsafe-fixes = ["graph-attached-running-total"]\n')
    fixes = {one["code"]: one["fix"]["applicability"] for one in json.loads(lint("--output-format=json")[1])}
    assert fixes == {"TML101": "unsafe", "TML201": "safe"}
    assert lint("--fix")[1].endswith("[*] 1 fixable with `--fix --unsafe-fixes`.\n")
    assert (project / "a.py").read_text() == TRAIN
    assert "no_grad" in (project / "b.py").read_text()


@pytest.mark.parametrize(
    ("words", "safe"),
    [
        (["--extend-safe-fixes", "ALL"], True),
        (["--extend-safe-fixes", "ALL", "--extend-unsafe-fixes", "TML2"], False),
        (["--extend-safe-fixes", "TML201", "--extend-unsafe-fixes", "TML2"], True),
        (["--extend-safe-fixes", "TML201", "--extend-unsafe-fixes", "inference-with-grad"], False),
        (["--config", 'extend-unsafe-fixes = ["TML201"]', "--extend-safe-fixes", "TML2"], True),
    ],
)
def test_the_more_specific_word_wins_and_then_the_command_line(lint, words: list[str], safe: bool) -> None:  # type: ignore[no-untyped-def]
    (found,) = json.loads(lint("--output-format=json", *words, "b.py")[1])
    assert found["fix"]["applicability"] == ("safe" if safe else "unsafe")


def test_a_rule_that_is_none_cannot_be_taken_for_safe(lint) -> None:  # type: ignore[no-untyped-def]
    assert lint("--extend-safe-fixes", "TML7")[0] == 2


def test_the_summary_names_the_rule_with_most_unsafe_fixes(lint, project: Path) -> None:  # type: ignore[no-untyped-def]
    (project / "c.py").write_text(EVALUATE)
    last = lint("--extend-unsafe-fixes", "TML101")[1].splitlines()[-1]
    assert last == "[*] 3 fixable with `--fix --unsafe-fixes`, 2 of them with `--fix --extend-safe-fixes TML201`."


def test_the_diff_names_what_waits(lint) -> None:  # type: ignore[no-untyped-def]
    assert lint("--diff")[2] == "Would fix 1 warning (1 more with `--unsafe-fixes`).\n"
    assert lint("--diff", "--unsafe-fixes")[2] == "Would fix 1 error, 1 warning.\n"


def test_nothing_is_called_fixed_that_was_not_written(lint, project: Path) -> None:  # type: ignore[no-untyped-def]
    (project / "a.py").chmod(0o444)
    status, out, err = lint("--fix", "--show-fixes", "a.py")
    assert status == 2
    assert "Fixed" not in out
    assert "Fixes" not in out
    assert "a.py: cannot be written: it is read-only" in err


# --- what is read ---------------------------------------------------------------------------------------------------


def test_ignore_noqa(lint, project: Path) -> None:  # type: ignore[no-untyped-def]
    (project / "a.py").write_text(TRAIN.replace("+= loss", "+= loss  # noqa: TML101"))
    assert lint("a.py")[0] == 0
    assert "TML101" in lint("--ignore-noqa", "a.py")[1]


def test_the_name_of_standard_input_is_enough(lint, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    def given(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    given(TRAIN)
    assert lint("--stdin-filename", "x.py", "--output-format=concise")[1].startswith("x.py:9:9: TML101")
    given("import torch\n")
    status, _, err = lint("--stdin-filename", "x.py", "a.py")
    assert status == 0
    assert err == "torchmemlint: warning: a.py is ignored: --stdin-filename reads standard input\n"


def test_an_empty_path_is_not_the_current_folder(lint) -> None:  # type: ignore[no-untyped-def]
    assert lint("")[0] == 2
    assert lint("")[2] == "torchmemlint: error: '': an empty path names no file\n"


def test_a_large_file_that_is_named_is_not_clean(lint, project: Path) -> None:  # type: ignore[no-untyped-def]
    (project / "big.py").write_text("x = 1\n" * 200_000)
    words = "torchmemlint: error: big.py: not checked: larger than 1 MB\n"
    assert lint("big.py")[0] == 2
    assert lint("big.py")[2] == words
    assert lint(".", "big.py")[2] == words
    assert lint("--force-exclude", "big.py")[0] == 0, "pre-commit names all that was changed"
    assert lint(".")[2] == "torchmemlint: note: big.py: skipped: larger than 1 MB\n"


def test_what_cannot_be_read_in_a_folder_is_named(lint, project: Path) -> None:  # type: ignore[no-untyped-def]
    (project / "wide.py").write_bytes("x = 1\n".encode("utf-16"))
    (project / "link.py").symlink_to("nowhere.py")
    err = lint("-v", ".")[2]
    assert "torchmemlint: note: wide.py: skipped: UTF-16, which Python does not read\n" in err
    assert "torchmemlint: note: link.py: no such file or directory\n" in err
    assert lint("wide.py")[0] == 2
    assert lint("wide.py")[2] == "torchmemlint: error: wide.py: not checked: UTF-16, which Python does not read\n"


def test_skipped_files_are_not_counted_as_checked(lint, project: Path) -> None:  # type: ignore[no-untyped-def]
    def counted(*arguments: str) -> str:
        return str(lint("-v", *arguments)[2]).splitlines()[-1]

    (project / "big.py").write_text("x = 1\n" * 200_000)
    assert counted(".") == "torchmemlint: note: checked 2 files, skipped 1"
    assert counted("a.py") == "torchmemlint: note: checked 1 file"
    assert counted("a.py", "big.py") == "torchmemlint: note: checked 1 file, skipped 1"
    assert counted("--shard=1/3", ".") == counted("--shard=2/3", ".") == "torchmemlint: note: checked 1 file"
    assert counted("--shard=3/3", ".") == "torchmemlint: note: checked 0 files, skipped 1"


def test_a_named_file_that_a_folder_s_results_answer_for_counts_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, expected in ((["."], "checked 2 files"), (["a.py"], "checked 1 file"), (["."], "checked 2 files")):
        cli.main(["-v", "--cache-dir", ".cache", *arguments])
        assert capsys.readouterr().err.splitlines()[-1] == f"torchmemlint: note: {expected}"


@pytest.mark.parametrize("command", ["merge", "oom"])
def test_an_empty_path_is_shown(command: str, lint, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    assert cli.main([command, ""]) == 2
    assert capsys.readouterr().err == "torchmemlint: error: '': cannot be read: No such file or directory\n"


def test_an_option_with_a_slip_is_suggested(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--outputformat=json"])
    assert "unrecognized arguments: --outputformat=json; did you mean --output-format?\n" in capsys.readouterr().err


@pytest.mark.parametrize("name", [name for name in cli.COMMANDS if name not in ("check", "confirm", "run", "server")])
def test_a_folder_that_is_called_like_a_command(name: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"torchmemlint: note: `{name}` is the command; to check the path, write ./{name}\n"
    for there in (False, True):
        if there:
            (project / name).mkdir()
        for options in ([], ["-q", "--output-format", "concise"]):
            with suppress(SystemExit):
                cli.main([*options, name])
            assert (words in capsys.readouterr().err) is there
    assert cli.main([f"./{name}", "--no-cache"]) == 0


def test_a_folder_called_confirm_is_not_run(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "confirm").mkdir()
    assert cli.main(["confirm"]) == 2
    assert "write ./confirm for the path" in capsys.readouterr().err


@pytest.mark.parametrize("terminal", [True, False])
def test_a_folder_called_server(
    terminal: bool, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "server").mkdir()
    monkeypatch.setattr("sys.stdin.isatty", lambda: terminal)
    monkeypatch.setattr("torchmemlint.lsp.command.main", lambda _: 0)
    cli.main(["server"])
    assert ("to check the path, write ./server" in capsys.readouterr().err) is terminal, "an editor is not asked"


# --- configuration --------------------------------------------------------------------------------------------------


def test_extend(lint, project: Path) -> None:  # type: ignore[no-untyped-def]
    (project / "shared").mkdir()
    (project / "shared" / "base.toml").write_text('ignore = ["TML101"]\nfail-on = "error"\n')
    (project / "torchmemlint.toml").write_text('extend = "shared/base.toml"\nextend-select = ["TML308"]\n')
    status, out, _ = lint("--output-format=json", "a.py")
    assert (status, json.loads(out)) == (0, [])
    (project / "torchmemlint.toml").write_text('extend = "shared/base.toml"\nextend-select = ["TML101"]\nfail-on = "warning"\n')
    assert lint("a.py")[0] == 1, "what extends goes before what is extended"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("gone.toml", "which has no settings"),
        ("torchmemlint.toml", "leads back to"),
        ("/etc/passwd", "must be the path of a .toml file"),
        ("../other.toml", "leads out of"),
    ],
)
def test_extend_that_leads_nowhere(lint, project: Path, value: str, words: str) -> None:  # type: ignore[no-untyped-def]
    (project / "torchmemlint.toml").write_text(f'extend = "{value}"\n')
    status, _, err = lint("a.py")
    assert status == 2
    assert words in err


# --- colours and width ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [("--output-format=concise",), ("--statistics",), ("--diff",)])
def test_colours_of_every_output_for_people(lint, arguments: tuple[str, ...]) -> None:  # type: ignore[no-untyped-def]
    plain, painted = lint("--color=never", *arguments)[1], lint("--color=always", *arguments)[1]
    assert "\x1b[" in painted
    assert "\x1b[" not in plain
    import re

    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == plain


def test_long_words_are_wrapped(lint) -> None:  # type: ignore[no-untyped-def]
    out = lint("a.py", "b.py")[1]
    details = [line for line in out.split("\n") if line.lstrip().startswith("=")]
    assert details
    assert all(len(line) <= 100 for line in details), details


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["a.py"], ["rule", "TML101"], ["--show-settings"], ["--diff"]]
)
def test_a_full_disk_is_one_line(arguments: list[str], project: Path) -> None:
    import subprocess

    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "torchmemlint", *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert "torchmemlint: error: standard output: No space left on device\n" in done.stderr
    assert "report" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
@pytest.mark.parametrize("arguments", ["--help", "a.py", "--fix", "rule TML101", "oom a.py", "completion bash"])
def test_a_closed_output_is_one_line(arguments: str, project: Path) -> None:
    import subprocess

    command = f"{sys.executable} -m torchmemlint {arguments} >&-"
    done = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert "standard output: Bad file descriptor" in done.stderr
