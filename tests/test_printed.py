"""Which findings are printed: by confidence and cost, in every format, for the exit status, for fixes and baselines.

Findings come from real code: a note (`NOTE`) and an error (`ERROR`).
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import forked
import pytest

from torchmemlint import cli
from torchmemlint.commands.check import WHOLE

IMPORTS = "import torch\nfrom torch import nn\n\n"
ERROR = """\
def predict(loader):
    model = nn.Linear(3, 4)
    model.eval()
    kept = []
    for x in loader:
        kept.append(model(x))
    return kept


"""
NOTE = """\
def once(pool, x):
    model = nn.Linear(3, 4)
    model.eval()
    print(model(x).mean().item())


"""

DOUBTFUL = """\
class Captions(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(3, 512, 3)
        self.cell = nn.GRUCell(512, 512)
        self.head = nn.Linear(512, 20_000)

    def forward(self, images, words):
        features = self.body(images).mean((2, 3))
        if self.training:
            return nn.functional.cross_entropy(self.head(self.cell(features)), words)
        return self.greedy(features)

    def greedy(self, features):
        state, found = None, []
        for _ in range(20):
            state = self.cell(features, state)
            found.append(self.head(state).argmax(1))
        return torch.stack(found, 1)
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return forked.lint("--isolated", "--no-cache", "--color=never", *arguments, cwd=folder)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_text(IMPORTS + ERROR + NOTE)
    return tmp_path


@pytest.mark.slow
def test_a_note_is_counted_and_not_shown(project: Path) -> None:
    done = run(project, "--output-format", "concise")
    assert [line.split(": ")[0] for line in done.stdout.splitlines()[:1]] == ["a.py:9:21"]
    assert "1 note not shown: `--notes`." in done.stdout
    assert run(project, "--notes", "--output-format", "concise").stdout.count("TML201") == 2


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    cli.main(["--isolated", "--no-cache", "--color=never", *arguments])
    return capsys.readouterr().out


def test_what_is_not_shown_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.py").write_text(IMPORTS + ERROR + NOTE + NOTE.replace("once", "again") + DOUBTFUL)
    out = printed(capsys)
    assert out.count("[TML") == 1
    assert "\n2 notes and 1 doubtful finding not shown: `--notes`, `--min-confidence low`.\n" in out
    assert printed(capsys, "--notes", "--min-confidence=low").count("[TML") == 4
    for output_format in ("json", "sarif"):
        for level, findings in (("medium", 3), ("low", 4)):
            out = printed(capsys, "--output-format", output_format, "--min-confidence", level)
            assert len(re.findall(r'"(?:code|ruleId)": "TML201"', out)) == findings


@pytest.mark.parametrize(
    ("output_format", "mildest"),
    [
        ("full", "note[TML201]"),
        ("json", '"severity": "note"'),
        ("json-lines", '"severity": "note"'),
        ("sarif", '"level": "note"'),
        ("github", "::notice title=torchmemlint (TML201)"),
        ("gitlab", '"severity": "info"'),
        ("junit", 'type="note"'),
        ("rdjson", '"severity": "INFO"'),
        ("lintrunner", '"severity": "advice"'),
        ("azure", "logissue type=warning"),  # there is no milder one
    ],
)
def test_a_note_has_the_mildest_level_of_its_format(
    output_format: str,
    mildest: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.py").write_text(IMPORTS + NOTE)
    assert mildest in printed(capsys, "--notes", "--output-format", output_format)
    assert (mildest in printed(capsys, "--output-format", output_format)) is (output_format in WHOLE)


@pytest.mark.slow
def test_programs_get_notes_and_people_do_not(project: Path) -> None:
    severities = [entry["severity"] for entry in json.loads(run(project, "--output-format", "json").stdout)]
    assert severities == ["error", "note"]
    levels = [result["level"] for result in json.loads(run(project, "--output-format", "sarif").stdout)["runs"][0]["results"]]
    assert levels == ["error", "note"]
    for output_format in ("github", "gitlab", "junit", "rdjson", "grouped", "azure"):
        assert run(project, "--output-format", output_format).stdout.count("TML201") < run(
            project, "--output-format", output_format, "--notes"
        ).stdout.count("TML201")


@pytest.mark.slow
def test_a_note_fails_only_where_it_is_printed(project: Path) -> None:
    (project / "a.py").write_text(IMPORTS + NOTE)
    assert run(project).returncode == 0
    assert run(project, "--notes").returncode == 0
    failed = run(project, "--fail-on", "note")
    assert failed.returncode == 1
    assert "TML201" in failed.stdout  # what fails is shown


@pytest.mark.slow
def test_a_rule_that_is_named_shows_its_notes(project: Path) -> None:
    (project / "a.py").write_text(IMPORTS + NOTE)
    assert "TML201" not in run(project, "--select", "TML2", "--output-format", "concise").stdout
    assert "TML201" in run(project, "--select", "TML201", "--output-format", "concise").stdout
    assert "TML201" in run(project, "--extend-select", "inference-with-grad", "--output-format", "concise").stdout


@pytest.mark.slow
def test_a_fix_touches_what_is_printed_alone(project: Path) -> None:
    run(project, "--fix", "--unsafe-fixes")
    fixed = (project / "a.py").read_text()
    assert "@torch.no_grad()\ndef predict" in fixed
    assert "@torch.no_grad()\ndef once" not in fixed
    assert "no_grad()" in run(project, "--fix", "--unsafe-fixes", "--notes", "--diff").stdout


@pytest.mark.slow
def test_a_baseline_holds_for_what_became_a_note(project: Path) -> None:
    command = ["--baseline", "b.json"]
    assert run(project, *command, "--write-baseline", "--notes").stdout.strip() == "b.json: 2 findings."
    done = run(project, *command, "--output-format", "concise")
    assert done.returncode == 0
    assert "1 finding is in the baseline." in done.stdout  # the one that would be printed
    assert "no longer found" not in done.stdout
    assert run(project, *command, "--prune-baseline").stdout.strip() == "b.json: 2 findings."
    assert run(project, *command, "--notes", "--output-format", "concise").stdout.startswith("All checks passed!")


@pytest.mark.slow
def test_a_baseline_is_written_of_what_is_printed(project: Path) -> None:
    assert run(project, "--baseline", "b.json", "--write-baseline").stdout.strip() == "b.json: 1 finding."


@pytest.mark.slow
def test_the_costliest_first(project: Path) -> None:
    (project / "a.py").write_text(IMPORTS + NOTE + ERROR)
    rows = run(project, "--notes", "--output-format", "json", "--sort", "cost").stdout
    assert [entry["severity"] for entry in json.loads(rows)] == ["error", "note"]
    by_place = run(project, "--notes", "--output-format", "json").stdout
    assert [entry["severity"] for entry in json.loads(by_place)] == ["note", "error"]


@pytest.mark.slow
def test_the_summary_names_the_three_costliest(project: Path) -> None:
    (project / "a.py").write_text(IMPORTS + NOTE + "".join(ERROR.replace("predict", f"predict_{n}") for n in range(4)))
    words = run(project, "--output-format", "concise").stdout
    assert "Most costly: a.py:15:21 TML201, a.py:24:21 TML201, a.py:33:21 TML201." in words


@pytest.mark.parametrize("given", ["sure", "", "HIGH"])
def test_a_confidence_that_there_is_not(project: Path, given: str) -> None:
    assert run(project, "--min-confidence", given).returncode == 2
    done = run(project, "--config", f'min-confidence="{given}"')
    assert done.returncode == 2
    assert "must be one of low, medium, high" in done.stderr


@pytest.mark.slow
def test_what_an_old_torch_lacks_is_no_advice(tmp_path: Path) -> None:
    """A project that declares a torch before 0.4 has no ``no_grad`` to report; one that declares a later one has."""
    (tmp_path / "a.py").write_text(IMPORTS + ERROR)
    for version, severity in (("0.3.1", "note"), ("0.4.1", "error")):
        (tmp_path / "requirements.txt").write_text(f"torch=={version}\n")
        (entry,) = json.loads(forked.lint("--no-cache", "--output-format", "json", ".", cwd=tmp_path).stdout)
        assert entry["severity"] == severity
        assert entry["help"].startswith("written for torch before 0.4") is (severity == "note")


OLD = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


def predict(loader):
    model = nn.Linear(3, 4)
    model.eval()
    return [model(x) for x in loader]


def train(model, loader, optimizer, criterion):
    for x, y in loader:
        try:
            optimizer.zero_grad(set_to_none=False)
            criterion(model(x), y).backward()
            optimizer.step()
        except RuntimeError as error:
            if "out of memory" in str(error):
                print("skipped")
            else:
                raise


def of_noise():
    generator, critic = nn.Linear(8, 8), nn.Linear(8, 1)
    critic(checkpoint(generator, torch.randn(16, 8), use_reentrant=True)).mean().backward()


def of_noise_in_parts():
    generator, critic = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 1)
    critic(checkpoint_sequential(generator, 2, torch.randn(16, 8))).mean().backward()


scaler = torch.cuda.amp.GradScaler()


def attend(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1), -1) @ v
"""
CAME_WITH = {
    "inference_mode": (1, 9),
    "torch.cuda.OutOfMemoryError": (1, 13),
    "torch.OutOfMemoryError": (2, 4),
    "remove the argument": (2, 0),
    "torch.amp.GradScaler": (2, 3),
    "scaled_dot_product_attention": (2, 0),
}
"""Advice, and the version of torch that it needs."""


@pytest.mark.parametrize("version", ["1.4", "1.8", "1.11", "1.13", "2.0", "2.3", "2.4"])
def test_advice_works_with_the_torch_that_the_project_declares(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("requirements.txt").write_text(f"torch=={version}\n")
    Path("a.py").write_text(OLD)
    cli.main(["--no-cache", "--select", "ALL", "--output-format", "json"])
    found = json.loads(capsys.readouterr().out)
    advice = "\n".join(f"{one['help']} {[edit['content'] for edit in (one['fix'] or {}).get('edits', [])]}" for one in found)
    declared = tuple(map(int, version.split(".")))
    for words, needed in CAME_WITH.items():
        better = words == "torch.cuda.OutOfMemoryError" and declared >= (2, 4)
        assert (words in advice) is (declared >= needed and not better), words
    reentrant = [one for one in found if one["code"] == "TML503"]
    assert len(reentrant) == 2
    for one, needed in zip(reentrant, ((1, 11), (2, 0)), strict=True):
        assert ("use_reentrant=False" in one["help"]) is (one["fix"] is not None) is (declared >= needed)
