"""Which torch a project asks for, by what its metadata says."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchmemlint.project.config import CommandLine, Configuration
from torchmemlint.project.requirement import NOT_TORCH, lower_bound, required_torch


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ("torch>=2.1", (2, 1)),
        ("torch >= 2.1, < 3", (2, 1)),
        ("torch<3,>=1.13.1", (1, 13)),
        ("torch==2.4.0+cu121", (2, 4)),
        ("torch==2.*", (2, 0)),
        ("torch~=2.6.0", (2, 6)),
        ("torch>2", (2, 0)),
        ("Torch[opt-einsum]>=2.2 ; python_version > '3.9'", (2, 2)),
        ("torch (>=1.8)", (1, 8)),
        ("torch>=2.0  # the first with compile", (2, 0)),
        ("torch", None),
        ("torch<2.5", None),
        ("torch!=2.0.1", None),
        ("torch @ https://example.com/torch-2.1.whl", None),
        ("torchvision>=0.15", NOT_TORCH),
        ("torch-geometric>=2.3", NOT_TORCH),
        ("torch_scatter==2.1", NOT_TORCH),
        ("pytorch-lightning>=2.0", NOT_TORCH),
        ("# torch>=2.0", NOT_TORCH),
        ("", NOT_TORCH),
    ],
)
def test_the_lower_bound_of_one_requirement(requirement: str, expected: tuple[int, int] | None) -> None:
    assert lower_bound(requirement) == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("pyproject.toml", '[project]\ndependencies = ["numpy", "torch>=2.3"]\n', (2, 3)),
        (
            "pyproject.toml",
            '[project]\ndependencies = ["torch"]\n[project.optional-dependencies]\ndev = ["torch==2.9.0"]\n',
            None,
        ),
        (
            "pyproject.toml",
            '[project]\n[project.optional-dependencies]\nrun = ["torch>=2.2"]\ndev = ["torch==2.9.0"]\n',
            (2, 2),
        ),
        ("pyproject.toml", '[dependency-groups]\ntrain = ["torch>=2.5", {include-group = "x"}]\n', (2, 5)),
        ("pyproject.toml", '[tool.poetry.dependencies]\ntorch = "^2.1"\n', (2, 1)),
        ("pyproject.toml", '[tool.poetry.dependencies]\ntorch = "2.1.0"\n', (2, 1)),
        ("pyproject.toml", '[tool.poetry.dependencies]\ntorch = "*"\n', None),
        (
            "pyproject.toml",
            '[tool.poetry.dependencies]\ntorch = [{version = ">=1.12", python = "<3.10"}, {version = "^2.0"}]\n',
            (1, 12),
        ),
        ("pyproject.toml", '[tool.poetry.group.gpu.dependencies]\ntorch = {version = ">=2.4", source = "cu"}\n', (2, 4)),
        ("pyproject.toml", '[project]\ndependencies = "torch>=2.3"\n', None),
        ("pyproject.toml", "torch = [", None),
        ("setup.cfg", "[options]\ninstall_requires =\n    numpy\n    torch>=1.10\n", (1, 10)),
        ("setup.cfg", "torch\n", None),
        ("setup.py", "from setuptools import setup\nsetup(name='x', install_requires=['torch>=1.9', 'tqdm'])\n", (1, 9)),
        ("setup.py", "setup(install_requires=read('requirements.txt'))  # torch\n", None),
        ("setup.py", "setup(torch", None),
        ("requirements.txt", "-r base.txt\ntorch==2.0.1\ntorchvision\n", (2, 0)),
        ("requirements.txt", "torch>=1.7; sys_platform == 'linux'\ntorch>=2.0; sys_platform == 'darwin'\n", (1, 7)),
    ],
)
def test_each_kind_of_metadata(tmp_path: Path, name: str, text: str, expected: tuple[int, int] | None) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "pkg").mkdir()
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert required_torch(str(tmp_path / "pkg"), {}) == expected


def test_nothing_is_run_or_broken_by_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("raise SystemExit('torch')\nsetup(install_requires=['torch>=2.1'])\n")
    (tmp_path / "pyproject.toml").mkdir()
    (tmp_path / "setup.cfg").write_bytes(b"\xff\xfe torch")
    assert required_torch(str(tmp_path), {}) == (2, 1)


def test_the_search_ends_at_the_project(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch>=2.2\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "pyproject.toml").write_text('[project]\nname = "other"\n')
    (tmp_path / "scripts").mkdir()
    assert required_torch(str(tmp_path / "other"), {}) is None
    assert required_torch(str(tmp_path / "scripts"), {}) == (2, 2)


def test_the_configuration_goes_before_what_the_project_requires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "setup.py").write_text("setup(install_requires=['torch>=1.13'])\n")
    required = Configuration()
    assert required.for_file("a.py").target_torch == (1, 13)
    assert required.for_file("a.py") is required.for_file("b.py")
    assert Configuration(CommandLine(isolated=True)).for_file("a.py").target_torch is None
    (tmp_path / "torchmemlint.toml").write_text('target-torch = "2.6"\n')
    assert Configuration().for_file("a.py").target_torch == (2, 6)
