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
        ("environment.yml", "channels:\n  - pytorch\ndependencies:\n  - python=3.7\n  - pytorch=1.4.0=py3.7_cuda10\n", (1, 4)),
        ("environment.yaml", "dependencies:\n- pytorch::pytorch>=1.8  # or newer\n- torchvision=0.9\n", (1, 8)),
        ("environment.yml", "dependencies:\n  - pip:\n    - 'torch==1.13.1+cu117'\n    - torch-scatter==2.1\n", (1, 13)),
        ("environment.yml", "dependencies:\n  - pytorch\n", None),
        ("environment.yml", "dependencies:\n\n# of torch\n  - pytorch>=1.6\nchannels:\n  - pytorch", (1, 6)),
        ("README.md", "# Net\n```\npip install torch==0.3.1 torchvision==0.2\n```\n", (0, 3)),
        ("README.md", "    $ conda install pytorch=1.2 cudatoolkit -c pytorch\n`pip3 install torch==1.3.0`\n", (1, 2)),
        ("README.md", "    python -m pip install 'torch>=1.7' numpy\n", (1, 7)),
        ("README.rst", "  conda install pytorch==1.5.0 -c pytorch\n", (1, 5)),
        ("README.md", "Tested with torch==1.2. For torch 0.4, see below.\n    pip install torch\n", None),
        ("README.md", "    pip install pytorch-lightning==1.2 torch_geometric==1.7 mytorch==0.1\n", None),
        ("requirement.txt", "numpy\ntorch==0.3.1\n", (0, 3)),
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
