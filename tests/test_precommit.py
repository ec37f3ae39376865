"""The hooks, run by a real pre-commit on a clone of this repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from notebooks import SETUP, TRAINING, notebook

pytest.importorskip("pre_commit")
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

REPOSITORY = Path(__file__).parent.parent
SHIPPED = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".pre-commit-hooks.yaml", "torchmemlint")
NO_NETWORK = ("ConnectionError", "NewConnectionError", "Temporary failure in name resolution", "No matching distribution found")
HOSTILE = ("--fix.py", "--fix", "-h", "@names.py", "--output-file=sarif=report.py", "-j1.py", "--config=evil.py", "-")
BROKEN = "import torch\ndef f(:\n"
MISTAKE = REPOSITORY / "fixtures" / "TML202" / "not_called.py"


def run(*command: str | Path, cwd: Path, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "NO_COLOR": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if home is not None:
        environment["PRE_COMMIT_HOME"] = str(home)
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)


def commit_all(folder: Path) -> str:
    """Makes a folder a repository with one commit, and names that commit."""
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "all"]):
        done = run("git", *command, cwd=folder)
        assert done.returncode == 0, done.stderr
    return run("git", "rev-parse", "HEAD", cwd=folder).stdout.strip()


def write_user_project(folder: Path) -> None:
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[tool.torchmemlint]\nextend-exclude = ["vendored"]\n')
    (folder / "broken.py").write_text(BROKEN)
    (folder / "mistake.py").write_bytes(MISTAKE.read_bytes())
    (folder / "clean.py").write_text("import torch\n")
    (folder / "notes.txt").write_text(BROKEN)
    (folder / "notebook.ipynb").write_text(notebook(SETUP, TRAINING), encoding="utf-8")
    (folder / "vendored").mkdir()
    (folder / "vendored" / "broken.py").write_text(BROKEN)


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A user's project with both hooks installed, and pre-commit's home."""
    base = tmp_path_factory.mktemp("hooks")
    released, project, home = base / "released", base / "project", base / "home"
    released.mkdir()
    for name in SHIPPED:
        if (REPOSITORY / name).is_dir():
            shutil.copytree(REPOSITORY / name, released / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(REPOSITORY / name, released / name)
    revision = commit_all(released)
    write_user_project(project)
    (project / ".pre-commit-config.yaml").write_text(
        f"repos:\n  - repo: {released}\n    rev: {revision}\n    hooks:\n"
        "      - id: torchmemlint\n        args: [--output-format=concise]\n"
        "      - id: torchmemlint-fix\n        args: [--output-format=concise]\n"
    )
    commit_all(project)
    done = run(sys.executable, "-m", "pre_commit", "install-hooks", cwd=project, home=home)
    if done.returncode and any(sign in done.stdout + done.stderr for sign in NO_NETWORK):
        pytest.skip("pre-commit cannot install the hooks' environment without a network")
    assert done.returncode == 0, done.stdout + done.stderr
    return project, home


def pre_commit(
    hooks: tuple[Path, Path], hook: str, *files: str, config: Path | None = None
) -> subprocess.CompletedProcess[str]:
    project, home = hooks
    which = ["--files", *files] if files else ["--all-files"]
    if config is not None:
        which += ["--config", str(config)]
    return run(sys.executable, "-m", "pre_commit", "run", hook, "--verbose", *which, cwd=project, home=home)


def reported(output: str) -> list[str]:
    return [line for line in output.splitlines() if ": TML" in line]


@pytest.mark.slow
def test_the_manifest_is_valid() -> None:
    manifest = REPOSITORY / ".pre-commit-hooks.yaml"
    assert run(sys.executable, "-m", "pre_commit", "validate-manifest", manifest, cwd=REPOSITORY).returncode == 0


@pytest.mark.slow
def test_the_hook_reports_what_the_command_reports(hooks: tuple[Path, Path], tmp_path: Path) -> None:
    write_user_project(tmp_path / "same")
    command = run(sys.executable, "-m", "torchmemlint", "--output-format=concise", cwd=tmp_path / "same")
    done = pre_commit(hooks, "torchmemlint")
    assert done.returncode == 1
    assert reported(done.stdout) == reported(command.stdout)
    assert any(line.startswith("broken.py:2:") for line in reported(done.stdout))
    assert any(line.startswith("notebook.ipynb:cell 2:4:5: TML101") for line in reported(done.stdout))
    assert "vendored" not in done.stdout
    assert "notes.txt" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("files", [("clean.py",), ("vendored/broken.py",), ("notes.txt",)])
def test_the_hook_passes(hooks: tuple[Path, Path], files: tuple[str, ...]) -> None:
    done = pre_commit(hooks, "torchmemlint", *files)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_fixing_hook_writes_what_the_command_writes(hooks: tuple[Path, Path], tmp_path: Path) -> None:
    write_user_project(tmp_path / "same")
    run(sys.executable, "-m", "torchmemlint", "--fix", cwd=tmp_path / "same")
    fixed = (tmp_path / "same" / "mistake.py").read_bytes()
    notebook_fixed = (tmp_path / "same" / "notebook.ipynb").read_bytes()
    assert b"loss.detach()" in notebook_fixed
    done = pre_commit(hooks, "torchmemlint-fix")
    assert done.returncode == 1  # broken.py
    assert (hooks[0] / "mistake.py").read_bytes() == fixed
    assert (hooks[0] / "notebook.ipynb").read_bytes() == notebook_fixed
    assert ("files were modified by this hook" in done.stdout) is (fixed != MISTAKE.read_bytes())
    assert (hooks[0] / "vendored" / "broken.py").read_text() == BROKEN


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["", "[--output-format=concise, --]", "[--output-format=concise]"])
def test_names_that_look_like_options(hooks: tuple[Path, Path], tmp_path: Path, arguments: str) -> None:
    """With ``--``, the default, they are files; where a user's ``args`` have none, they are refused. Nothing is switched on."""
    text = (hooks[0] / ".pre-commit-config.yaml").read_text()
    config = tmp_path / "config.yaml"
    given = f"\n        args: {arguments}" if arguments else ""
    config.write_text(text.replace("\n        args: [--output-format=concise]", given))
    home, project = hooks[1], tmp_path / "project"
    project.mkdir()
    (project / "names.py").write_text("--fix\n")
    commit_all(project)
    for name in HOSTILE:
        (project / name).write_text("#!/usr/bin/env python\n" + MISTAKE.read_text())
        (project / name).chmod(0o755)
    refused = arguments == "[--output-format=concise]"
    for names in [*((name,) for name in HOSTILE if refused), HOSTILE]:
        assert run("git", "reset", "-q", cwd=project).returncode == 0
        assert run("git", "add", "--", *(f"./{name}" for name in names), cwd=project).returncode == 0
        command = ("pre_commit", "run", "torchmemlint", "--verbose", "--config", str(config))
        done = run(sys.executable, "-m", *command, cwd=project, home=home)
        assert done.returncode == 1, done.stdout
        if refused:
            assert "exit code: 2" in done.stdout
            assert done.stdout.count("could be an option, but a file has this name") == 1
            assert "TML" not in done.stdout
        else:
            assert [name for name in names if f"{name}:" not in done.stdout] == []
            assert "could be an option" not in done.stdout
    assert all(MISTAKE.read_text() in (project / name).read_text() for name in HOSTILE)
    assert not list(project.glob("report*"))
