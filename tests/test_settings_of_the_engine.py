"""Settings about code that is not visible reach the engine, and every setting and table of torch knowledge is read somewhere."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from gaps import ROOT, marks, without_marks

import torchmemlint
from torchmemlint.project.config import CommandLine, Configuration
from torchmemlint.project.settings import Settings
from torchmemlint.run import check_paths
from torchmemlint.torch_facts import TORCH, TorchFacts

RECORDERS = ["ourlib.keep", "ourlib.logs.store", "ourlib.History.add"]
STEP = """import torch
import ourlib


def train(model, loader, criterion, optimizer):
    kept = []
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {statement}
    return kept


def evaluate(model, loader):
    model.eval()
    out = []
    with ourlib.evaluating():
        for x in loader:
            out.append(model(x).argmax())
    return out
"""


def reported(folder: Path, text: str, **options: object) -> set[tuple[int, str]]:
    path = folder / "code.py"
    path.write_text(text)
    configuration = Configuration(CommandLine({"select": ["ALL"], "preview": True, **options}, isolated=True))
    return {(finding.span.start.row, finding.code) for finding in check_paths([str(path)], configuration, 1).findings}


def test_recorders_keep_what_they_are_given(tmp_path: Path) -> None:
    text = (ROOT / "settings/recorders.py").read_text()
    assert reported(tmp_path, without_marks(text), recorders=RECORDERS) == marks(text)
    assert reported(tmp_path, without_marks(text)) == set()


def test_a_recorder_is_named_in_the_finding(tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text(STEP.format(statement="ourlib.keep(loss)"))
    configuration = Configuration(CommandLine({"select": ["TML103"], "preview": True, "recorders": RECORDERS}, isolated=True))
    (finding,) = check_paths([str(path)], configuration, 1).findings
    assert finding.message.startswith("`ourlib.keep` keeps the tensor passed here")


def test_detaching_calls_cut(tmp_path: Path) -> None:
    text = STEP.format(statement="kept.append(ourlib.plain(loss))")
    row = text.splitlines().index("        kept.append(ourlib.plain(loss))") + 1
    assert (row, "TML102") in reported(tmp_path, text.replace("ourlib.plain(loss)", "loss + 1"))
    assert row not in {at for at, _ in reported(tmp_path, text, **{"detaching-calls": ["ourlib.plain"]})}


def test_no_grad_wrappers_switch_grad_mode_off(tmp_path: Path) -> None:
    text = STEP.format(statement="pass")
    assert "TML201" in {code for _, code in reported(tmp_path, text)}
    assert "TML201" not in {code for _, code in reported(tmp_path, text, **{"no-grad-wrappers": ["ourlib.evaluating"]})}


@pytest.mark.parametrize(
    "converted",
    [
        *("loss.to(int)", "loss.to(bool)", "loss.type(torch.LongTensor)", 'loss.type("torch.LongTensor")'),
        *("loss.type(torch.int64)", "loss.to(torch.uint16)", "loss.to(dtype=torch.long)", 'loss.to("cuda", torch.bool)'),
    ],
)
def test_types_that_carry_no_graph_cut(tmp_path: Path, converted: str) -> None:
    text = STEP.format(statement=f"kept.append({converted})")
    assert not {code for _, code in reported(tmp_path, text)} & {"TML101", "TML102", "TML204", "TML402"}


@pytest.mark.parametrize("converted", ["loss.to(float)", "loss.type(torch.float16)", 'loss.type("torch.FloatTensor")'])
def test_types_that_carry_a_graph_keep_it(tmp_path: Path, converted: str) -> None:
    text = STEP.format(statement=f"kept.append({converted})")
    assert {code for _, code in reported(tmp_path, text)} & {"TML102", "TML204"}


FOLDER = Path(torchmemlint.__file__).parent
HOMES = {
    Settings: (FOLDER / "project/settings.py", re.compile(r"(\w+\.)*settings(\[.*\]|_for\(.*\))?")),
    TorchFacts: (FOLDER / "torch_facts/loader.py", re.compile(r"TORCH|torch|self\._torch")),
}
"""Where the fields of each are defined, and how code calls the object that has them."""


def nodes() -> Iterator[ast.AST]:
    """Every node of the package's code."""
    for path in sorted(FOLDER.rglob("*.py")):
        yield from ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def reads(node: ast.AST, receiver: re.Pattern[str]) -> bool:
    return (
        isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and bool(receiver.fullmatch(ast.unparse(node.value)))
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Settings, TorchFacts])
def test_every_setting_and_table_has_a_reader(kind: type[Settings] | type[TorchFacts]) -> None:
    home, receiver = HOMES[kind]
    own = re.compile("self")
    found = [node for node in nodes() if reads(node, receiver)]
    found += [node for node in ast.walk(ast.parse(home.read_text(encoding="utf-8"))) if reads(node, own)]
    read = {node.attr for node in found if isinstance(node, ast.Attribute)}
    assert {field.name for field in dataclasses.fields(kind)} - read == set()


@pytest.mark.slow
@pytest.mark.parametrize("table", ["words", "names"])
def test_every_word_is_asked_for(table: str) -> None:
    asked = {
        str(node.slice.value)
        for node in nodes()
        if isinstance(node, ast.Subscript)
        and ast.unparse(node.value) in (f"TORCH.{table}", f"torch.{table}")
        and isinstance(node.slice, ast.Constant)
    }
    assert asked == set(getattr(TORCH, table))
