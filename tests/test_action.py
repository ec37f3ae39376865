"""``action.yml``: its two steps, run as GitHub's runner runs them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from notebooks import SETUP, TRAINING

yaml = pytest.importorskip("yaml")
pytestmark = pytest.mark.skipif(shutil.which("bash") is None or os.name == "nt", reason="needs bash")

ACTION = Path(__file__).parent.parent / "action.yml"
NO_NETWORK = ("ConnectionError", "NewConnectionError", "Temporary failure in name resolution", "No matching distribution found")


@dataclass(frozen=True)
class Done:
    """What a step printed and returned, and its outputs."""

    code: int
    text: str
    outputs: dict[str, str]


def step(number: int, folder: Path, temporary: Path, **inputs: str) -> Done:
    """Runs a step's script with ``set -e -o pipefail``, as ``shell: bash`` has it, and the inputs' defaults for the others."""
    action = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    values = {name: str(about["default"]) for name, about in action["inputs"].items()} | {
        name.replace("_", "-"): value for name, value in inputs.items()
    }
    given = {"github.action_path": str(ACTION.parent)} | {f"inputs.{name}": value for name, value in values.items()}
    chosen = action["runs"]["steps"][number]
    environment = {
        name: re.sub(r"\$\{\{ (.+?) \}\}", lambda use: given[str(use[1])], text) for name, text in chosen["env"].items()
    }
    assert "${{" not in chosen["run"]  # an input in the script itself would be read as shell
    temporary.mkdir(exist_ok=True)
    output = temporary / "output"
    output.write_text("")
    plain = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TORCHMEMLINT_OUTPUT_FORMAT")}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", chosen["run"]],
        cwd=folder,
        env={**plain, **environment, "RUNNER_TEMP": str(temporary), "GITHUB_OUTPUT": str(output)},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=300,
    )
    outputs = dict(line.split("=", 1) for line in output.read_text().splitlines())
    return Done(done.returncode, done.stdout + done.stderr, outputs)


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """A runner's temporary folder in which the first step has been done, with this torchmemlint."""
    program = tmp_path / "temporary" / "torchmemlint" / "bin" / "torchmemlint"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ACTION.parent}" exec "{sys.executable}" -m torchmemlint "$@"\n')
    program.chmod(0o755)
    return tmp_path / "temporary"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src dir").mkdir(parents=True)
    (folder / "mistake.py").write_text(f"{SETUP}\n{TRAINING}\n")
    (folder / "clean.py").write_text("import torch\n")
    return folder


@pytest.mark.slow
def test_findings_are_annotations_and_fail_the_step(project: Path, runner: Path) -> None:
    done = step(1, project, runner)
    assert (done.code, done.outputs) == (1, {"exit-code": "1"})
    assert "::warning title=torchmemlint (TML101),file=mistake.py,line=7,col=5," in done.text


@pytest.mark.slow
def test_inputs(project: Path, runner: Path) -> None:
    assert step(1, project, runner, paths="clean.py").code == 0
    assert step(1, project, runner, paths="clean.py\nmistake.py").code == 1
    assert step(1, project, runner, fail_on="error").code == 0
    never = step(1, project, runner, fail_on="never", args="--select TML1\n--no-cache", sarif_file="out/r.sarif")
    assert (never.code, never.outputs) == (0, {"exit-code": "0"})
    assert json.loads((project / "out" / "r.sarif").read_text())["runs"][0]["results"]
    assert step(1, project, runner, args="--nonsense").outputs == {"exit-code": "2"}
    assert step(1, project, runner, fail_on="sometimes").code == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "value", ["; touch pwned", "$(touch pwned)", "`touch pwned`", "* && touch pwned", '" ; touch pwned ; "']
)
def test_inputs_are_never_run(project: Path, runner: Path, value: str) -> None:
    """What the shell does with them is the same whatever program it then starts."""
    (runner / "torchmemlint" / "bin" / "torchmemlint").write_text("#!/bin/sh\nexit 1\n")
    for name in ("paths", "args", "sarif_file", "fail_on"):
        step(1, project, runner, **{name: value})
    assert not list(project.rglob("pwned"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """The first step, done in a checkout that has modules of its own by the names of those that it needs."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "checkout").mkdir()
    for name in ("venv", "pip", "ensurepip", "runpy", "json", "types", "warnings"):
        (folder / "checkout" / f"{name}.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
    return folder, step(0, folder / "checkout", folder / "temporary", python=sys.executable)


@pytest.mark.slow
def test_the_installation(project: Path, installed: tuple[Path, Done]) -> None:
    folder, done = installed
    if done.code and any(sign in done.text for sign in NO_NETWORK):
        pytest.skip("nothing can be installed without a network")
    assert done.code == 0, done.text
    assert step(1, project, folder / "temporary").code == 1


@pytest.mark.slow
def test_modules_of_the_checkout_install_nothing(installed: tuple[Path, Done]) -> None:
    """The steps run in the checkout, where `python -m` looks for modules first."""
    folder, _ = installed
    assert (folder / "temporary" / "torchmemlint").is_dir()
    assert not (folder / "ran").exists()
