"""One tree, the same findings: the command, the hook of pre-commit, flake8 and the language server.

The tree has callers in other files, a configuration, a suppressed line, a baseline and a folder that is left out. What differs by
design stands in docs/limits.md and is not in it: comments away from the reported line, and projects too large to look around in.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import forked
import pytest

pytest.importorskip("flake8")
pytest.importorskip("pre_commit")
pytest.importorskip("pygls", reason="needs the extra `lsp`")
pytest.importorskip("pytest_lsp")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("git") is None, reason="needs git")]

from lsprotocol import types  # noqa: E402
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities  # noqa: E402

FIXTURES = Path(__file__).parent.parent / "fixtures"
COPIED = (
    "TML101/running_total.py", "TML102/kept_losses.py", "TML201/evaluate_function.py", "TML201/acting.py", "TML202/not_called.py",
    "TML203/teacher.py", "TML204/half_fixes.py", "TML303/inside_the_handler.py", "TML401/kept_on_the_device.py",
)  # fmt: skip
TRAIN = """import torch

from toolbox.meters import Meter


def train(model, loader, optimizer):
    meter, total, kept = Meter(), 0, 0
    for x in loader:
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        meter.update(loss)
        total += loss
        kept += loss  # noqa: TML101
    return meter, total, kept
"""
METERS = (
    "class Meter:\n    def __init__(self):\n        self.sum = 0\n\n    def update(self, value):\n        self.sum += value\n"
)
SCORE = "import torch\n\n\ndef score(model, loader):\n    model.eval()\n    return [model(x) for x in loader]\n"
GUARD = (
    "import torch\n\nfrom score import score\n\n\n@torch.no_grad()\ndef main(model, loader):\n    print(score(model, loader))\n"
)
CONFIGURATION = """[tool.torchmemlint]
preview = true
extend-exclude = ["vendored"]
[tool.torchmemlint.per-file-ignores]
"teacher.py" = ["TML203"]
"""

Found = set[tuple[str, int, int, str]]


def write_tree(folder: Path) -> list[str]:
    """The tree, committed; its Python files."""
    files = {
        "train.py": TRAIN, "toolbox/__init__.py": "", "toolbox/meters.py": METERS, "score.py": SCORE, "main.py": GUARD,
        "vendored/copy.py": TRAIN, "pyproject.toml": CONFIGURATION, "quiet.py": "import torch\n",
        **{Path(name).name: (FIXTURES / name).read_text() for name in COPIED},
    }  # fmt: skip
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    # What half_fixes.py has is in the baseline; then it gets one more.
    assert command(folder, "--write-baseline", "half_fixes.py").returncode == 0
    (folder / "half_fixes.py").write_text(files["half_fixes.py"] + SCORE.replace("import torch\n", ""))
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return sorted(name for name in files if name.endswith(".py"))


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = forked.lint("--output-format=concise", *arguments, cwd=folder)
    assert done.returncode < 2, done.stderr
    return done


def findings_in(text: str) -> Found:
    found = re.findall(r"^(?:\./)?(\S+\.py):(\d+):(\d+): (TML\d{3}) ", text, re.MULTILINE)
    return {(path, int(row), int(column), code) for path, row, column, code in found}


def by_flake8(folder: Path) -> Found:
    done = forked.run(["-m", "flake8", "--select=TML", "--exclude=vendored,.git", "."], folder)
    assert done.stderr == b""
    return findings_in(done.stdout.decode())


def by_pre_commit(folder: Path) -> Found:
    """The hook as the manifest has it, run from here: tests/test_precommit.py installs it as users do."""
    manifest = (FIXTURES.parent / ".pre-commit-hooks.yaml").read_text()
    entry = re.findall(r"entry: torchmemlint (check --force-exclude)$", manifest, re.MULTILINE)[0]
    (folder / ".pre-commit-config.yaml").write_text(
        "repos:\n  - repo: local\n    hooks:\n      - id: torchmemlint\n        name: torchmemlint\n        language: system\n"
        f"        entry: {sys.executable} -m torchmemlint {entry} --output-format=concise\n"
        "        types_or: [python]\n        require_serial: true\n"
    )
    environment = {**os.environ, "PRE_COMMIT_HOME": str(folder / ".git" / "pre-commit"), "GIT_CONFIG_GLOBAL": os.devnull}
    words = [sys.executable, "-m", "pre_commit", "run", "--all-files", "--verbose"]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1, done.stdout + done.stderr
    return findings_in(done.stdout)


async def by_server(folder: Path, names: list[str]) -> Found:
    config = ClientServerConfig([sys.executable, "-m", "torchmemlint", "server"])
    client = await config.start()
    assert isinstance(client, LanguageClient)
    root = types.InitializeParams(client_capabilities("neovim"), root_uri=folder.as_uri())
    await client.initialize_session(root)
    found: Found = set()
    for name in names:
        uri = (folder / name).as_uri()
        document = types.TextDocumentItem(uri, "python", 1, (folder / name).read_text())
        client.text_document_did_open(types.DidOpenTextDocumentParams(document))
        asked = types.DocumentDiagnosticParams(types.TextDocumentIdentifier(uri))
        report = await asyncio.wait_for(client.text_document_diagnostic_async(asked), 60)
        assert isinstance(report, types.RelatedFullDocumentDiagnosticReport)
        for one in report.items:
            found.add((name, one.range.start.line + 1, one.range.start.character + 1, str(one.code)))
    assert client.messages == []
    await client.shutdown_session()
    return found


def test_the_same_findings_everywhere(tmp_path: Path) -> None:
    names = write_tree(tmp_path)
    expected = findings_in(command(tmp_path, ".").stdout)
    files = {path for path, *_ in expected}
    assert {"train.py", "half_fixes.py", "running_total.py", "evaluate_function.py"} <= files
    assert {code for path, _, _, code in expected if path == "train.py"} == {"TML101", "TML103"}
    assert len([one for one in expected if one[0] == "half_fixes.py"]) == 1, "the baseline has the others"
    assert files.isdisjoint({"score.py", "vendored/copy.py", "teacher.py"})
    assert findings_in(command(tmp_path, "--force-exclude", *names).stdout) == expected
    assert by_pre_commit(tmp_path) == expected
    assert by_flake8(tmp_path) == expected
    assert asyncio.run(by_server(tmp_path, names)) == expected
