"""Completion scripts, in the shells themselves."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from torchmemlint import cli
from torchmemlint.rules import ALL_RULES

SHELLS = ("bash", "zsh", "fish", "powershell")
PATIENCE = 20.0


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    from torchmemlint.commands.completion import script

    folder = tmp_path_factory.mktemp("scripts")
    made = {}
    for shell in SHELLS:
        made[shell] = folder / ("_torchmemlint" if shell == "zsh" else f"complete.{shell}")
        made[shell].write_text(script(shell, cli.parsers()))
    return made


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "train it.py").write_text("")
    (tmp_path / "rules").mkdir()
    return tmp_path


def in_bash(script: Path, folder: Path, line: str) -> list[str]:
    """What bash would offer."""
    words = line.split(" ")
    program = f"source {script}; COMP_WORDS=({' '.join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}; "
    program += '_shtab_torchmemlint; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", program], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


def in_fish(script: Path, folder: Path, line: str) -> list[str]:
    environment = {
        **os.environ,
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder / "none"),
        "XDG_DATA_HOME": str(folder / "none"),
    }
    command = ["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return [one.split("\t")[0] for one in done.stdout.splitlines()]


def in_zsh(script: Path, folder: Path, line: str, expected: list[str]) -> str:
    """What stands on the terminal of an interactive zsh after a tab, when all that is expected does."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ.update(TERM="dumb", HOME=str(folder), PS1="$ ", COLUMNS="300")
        os.execlp("zsh", "zsh", "-f", "-i")
    shown = ""

    def until(*words: str) -> None:
        nonlocal shown
        end = time.monotonic() + PATIENCE
        while not all(one in shown for one in words) and time.monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0]:
                shown += os.read(terminal, 65536).decode("utf-8", "replace")

    try:
        setup = f"unsetopt zle_bracketed_paste prompt_cr; fpath=({script.parent} $fpath); autoload -U compinit; compinit -u -D; print rea''dy"
        os.write(terminal, f"{setup}\n".encode())
        until("ready")
        shown = ""
        os.write(terminal, f"{line}\t".encode())
        until(*expected)
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)
    return shown


@pytest.mark.parametrize("shell", SHELLS)
def test_every_option_of_every_command_is_in_it(scripts: dict[str, Path], shell: str) -> None:
    text = scripts[shell].read_text()
    for name, parser in cli.parsers().items():
        assert name in text
        for action in parser._actions:
            for option in action.option_strings:
                assert (option if shell != "fish" else option.lstrip("-")) in text, f"{name} {option}"


def test_every_command_has_a_parser() -> None:
    assert tuple(cli.parsers()) == cli.COMMANDS


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_can_read_it(scripts: dict[str, Path], shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    done = subprocess.run([shell, "-n", scripts[shell]], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


CASES = [
    ("torchmemlint --output-fo", {"--output-format"}),
    ("torchmemlint --output-format js", {"json", "json-lines"}),
    ("torchmemlint --select TML10", {rule.code for rule in ALL_RULES if rule.code.startswith("TML10")}),
    ("torchmemlint rul", {"rule", "rules"}),
    ("torchmemlint trai", {"train it.py"}),
    ("torchmemlint --config trai", {"train it.py"}),
    ("torchmemlint rule TML101 --a", {"--all"}),
    ("torchmemlint rule inference", {"inference-with-grad"}),
    ("torchmemlint confirm --dev", {"--device"}),
    ("torchmemlint completion f", {"fish"}),
    ("torchmemlint check --fai", {"--fail-on"}),
    ("torchmemlint --fail-on ", {"note", "warning", "error"}),
]


@pytest.mark.parametrize(("line", "expected"), CASES)
def test_bash(scripts: dict[str, Path], files: Path, line: str, expected: set[str]) -> None:
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    assert set(in_bash(scripts["bash"], files, line)) == expected


@pytest.mark.parametrize("word", ["--output-format", "json-lines", "TML101", "inference-with-grad", "confirm", "--snapshots"])
def test_powershell_knows_the_words(scripts: dict[str, Path], word: str) -> None:
    """Read as text: no PowerShell is to be had here."""
    assert f"'{word}'" in scripts["powershell"].read_text()


@pytest.mark.parametrize(("line", "expected"), CASES)
def test_fish(scripts: dict[str, Path], files: Path, line: str, expected: set[str]) -> None:
    if shutil.which("fish") is None:
        pytest.skip("needs fish")
    found = {
        one.removesuffix("/").replace("\\ ", " ").split("=")[-1].strip('"') for one in in_fish(scripts["fish"], files, line)
    }
    assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torchmemlint --output-fo", ["torchmemlint --output-format"]),
        ("torchmemlint --output-format js", ["torchmemlint --output-format json"]),
        ("torchmemlint rule inference", ["torchmemlint rule inference-with-grad"]),
        ("torchmemlint trai", ["torchmemlint train\\ it.py"]),
        ("torchmemlint complet", ["torchmemlint completion"]),
        ("torchmemlint oom --sr", ["torchmemlint oom --src"]),
        ("torchmemlint --select TML101 trai", ["TML101 train\\ it.py"]),
    ],
)
def test_zsh(scripts: dict[str, Path], files: Path, line: str, expected: list[str]) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("needs zsh")
    shown = in_zsh(scripts["zsh"], files, line, expected)
    assert all(words in shown for words in expected), shown


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "bash"]) == 0
    assert capsys.readouterr().out.endswith("complete -o bashdefault -F _shtab_torchmemlint torchmemlint\n")
    with pytest.raises(SystemExit):
        cli.main(["completion", "csh"])
