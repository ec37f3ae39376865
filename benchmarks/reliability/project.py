"""A small project with mistakes in it, and the runs over it that campaigns disturb."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.reliability.child import Done, run, silenced

TRAIN = """import torch

from parts.model import Net, evaluate


def train(model: torch.nn.Module, loader, optimizer, criterion):
    total = 0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss
    return total


def main(loader):
    model = Net().cuda()
    train(model, loader, torch.optim.SGD(model.parameters(), 0.1), torch.nn.functional.mse_loss)
    print(evaluate(model, loader))
"""
MODEL = """import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(x).relu()


def evaluate(model, loader):
    model.eval()
    outputs = []
    for x, _ in loader:
        outputs.append(model(x))
    return [one.mean().item() for one in outputs]
"""
BARE = """import torch

from train import train


def fit(model: torch.nn.Module, loader):
    torch.no_grad()
    losses = []
    for x in loader:
        losses.append(model(x).sum().cpu())
        torch.cuda.empty_cache()
    return losses
"""
NOTEBOOK = {
    "cells": [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": ["import torch\n", "%time x = 1\n"]},
        {
            "cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [],
            "source": ["total = 0\n", "for x in loader:\n", "    loss = model(x).sum()\n", "    loss.backward()\n", "    total += loss\n"],
        },
    ],
    "metadata": {}, "nbformat": 4, "nbformat_minor": 5,
}  # fmt: skip
FILES = {
    "train.py": TRAIN,
    "parts/__init__.py": "",
    "parts/model.py": MODEL,
    "fit.py": BARE,
    "book.ipynb": json.dumps(NOTEBOOK, indent=1) + "\n",
    "pyproject.toml": "[tool.torchmemlint]\npreview = true\n",
    ".gitignore": "build/\n",
}
EDITED = TRAIN.replace("total += loss", "total += loss * 2")
JSON = ("--output-format", "json")

Tree = dict[str, bytes]


def tree(folder: Path) -> Tree:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@dataclass(frozen=True, slots=True)
class Scenario:
    """A command, what is there before it (``edited`` after a run that filled the cache: a warm run), and whether its report is the
    same however often it is asked for."""

    name: str
    arguments: tuple[str, ...]
    edited: bool = False
    writes: tuple[str, ...] = ()
    """Files that it may make."""


SCENARIOS = (
    Scenario("cold", (".", "-j1", *JSON)),
    Scenario("jobs", (".", "-j2", *JSON)),
    Scenario("warm", (".", "-j1", *JSON), edited=True),
    Scenario("warm-jobs", (".", "-j2", *JSON), edited=True),
    Scenario("named", ("train.py", *JSON), edited=True),
    Scenario("fix", (".", "-j1", "--fix", "--unsafe-fixes", *JSON)),
    Scenario("noqa", (".", "-j1", "--add-noqa")),
    Scenario("baseline", (".", "-j1", "--write-baseline")),  # what it writes is what it should be, or is not written
    Scenario("prune", (".", "-j1", "--prune-baseline", "--baseline", "old.json")),
    Scenario("output", (".", "-j1", "--output-format", "sarif", "--output-file", "r.sarif"), writes=("r.sarif",)),
    Scenario("merge", ("merge", "one.json", "two.json", *JSON, "-o", "merged.json"), writes=("merged.json",)),
    Scenario("clean", ("clean",)),
)
CACHE = Scenario("cache", (".", "-j1", *JSON))
"""A cold run that is killed while it writes to the cache."""
BESIDE = {
    "confirm": Scenario("confirm", ("confirm", "train.py")),
    "server": Scenario("server", ("server",), edited=True),
}
"""What has no report that is the same each time."""
AFTER = (".", "-j1", *JSON)
"""The run that must not be misled by what another one left."""


@dataclass(slots=True)
class Bench:
    """A folder with the project and the cache, as scenarios find them, and what they say when nothing disturbs them."""

    root: Path
    fresh: dict[str, Done] = field(default_factory=dict)
    expected: dict[str, tuple[Done, Tree]] = field(default_factory=dict)

    @classmethod
    def below(cls, folder: Path) -> Bench:
        bench = cls(folder)
        for name, text in FILES.items():
            path = folder / "clean" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        (folder / "empty").mkdir()
        (folder / "temporary").mkdir()
        bench.start(SCENARIOS[0], kept="empty")
        for number, name in enumerate(("one", "two"), 1):
            shard = (".", "-j1", *JSON, "--shard", f"{number}/2", "--no-cache")
            (folder / "clean" / f"{name}.json").write_text(bench.run(shard).out, encoding="utf-8")
        bench.start(SCENARIOS[0], kept="empty")
        bench.run((".", "-j1", "--no-cache", "--write-baseline", "--baseline", "old.json"))
        known = (bench.project / "old.json").read_text(encoding="utf-8")
        (folder / "clean" / "old.json").write_text(known.replace("total += loss", "gone += loss"), encoding="utf-8")
        bench.start(SCENARIOS[0], kept="empty")
        bench.run(AFTER)
        shutil.copytree(bench.cache, folder / "filled")
        return bench

    @property
    def project(self) -> Path:
        return self.root / "project"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    def start(self, scenario: Scenario, kept: str | None = None) -> Tree:
        """Lays out what a scenario finds; the project's files."""
        kept = kept or ("filled" if scenario.edited or scenario.name == "clean" else "empty")
        for place, source in ((self.project, "clean"), (self.cache, kept)):
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(self.root / source, place)
        if scenario.edited:
            (self.project / "train.py").write_text(EDITED, encoding="utf-8")
        return tree(self.project)

    def run(
        self,
        arguments: tuple[str, ...],
        prepare: Callable[[], None] = lambda: None,
        kill_after: float | None = None,
        stdin: bytes = b"",
    ) -> Done:
        environment = {"XDG_CACHE_HOME": str(self.cache), "TMPDIR": str(self.root / "temporary")}
        return run(arguments, self.project, environment, prepare, kill_after, stdin)

    def disturbed(
        self, scenario: Scenario, prepare: Callable[[], None] = lambda: None, kill_after: float | None = None
    ) -> Done:
        """A scenario, of which ``start`` laid out what it finds."""
        return self.run(scenario.arguments, prepare, kill_after, messages(self) if scenario.name == "server" else b"")

    def warm_up(self, scenario: Scenario) -> None:
        """Imports what the scenario imports."""
        from torchmemlint.cli import main

        self.start(scenario)
        before = os.environ.get("XDG_CACHE_HOME")
        os.environ["XDG_CACHE_HOME"] = str(self.cache)

        def work() -> None:
            os.chdir(self.project)
            main([*scenario.arguments])

        try:
            silenced(work)
        finally:
            if before is None:
                del os.environ["XDG_CACHE_HOME"]
            else:
                os.environ["XDG_CACHE_HOME"] = before

    def undisturbed(self, scenario: Scenario) -> tuple[Done, Tree]:
        if scenario.name in BESIDE:
            self.expected.setdefault(scenario.name, (Done(0, "", ""), self.start(scenario)))
        if scenario.name not in self.expected:
            self.warm_up(scenario)
            self.start(scenario)
            done = self.run(scenario.arguments)
            self.expected[scenario.name] = done, tree(self.project)
        return self.expected[scenario.name]

    def from_nothing(self) -> Done:
        """What a run from nothing says of the project as it is."""
        key = repr(sorted(tree(self.project).items()))
        if key not in self.fresh:
            self.fresh[key] = self.run((*AFTER, "--no-cache"))
        return self.fresh[key]

    def aftermath(self, scenario: Scenario, before: Tree, killed: bool = False, reported: bool = False) -> list[str]:
        """What is wrong with the files, or with the next run. A process that is killed may leave the file that it was writing; one
        that ``reported`` of a failure may have written a report that contains it, too."""
        _, wanted = self.undisturbed(scenario)
        wrong = []
        now = tree(self.project)
        for name in sorted({*before, *wanted, *now}):
            allowed = {before.get(name), wanted.get(name)}
            if reported and name in scenario.writes and _is_json(now.get(name)):
                continue
            if now.get(name) not in allowed and not (killed and Path(name).name.startswith(".torchmemlint-")):
                wrong.append(f"{name} is neither what it was nor what it was to be")
        then, fresh = self.run(AFTER), self.from_nothing()
        if (then.status, then.out) != (fresh.status, fresh.out):
            wrong.append(f"the next run ended with {then.status}, not {fresh.status}, or said something else {then.err[-200:]}")
        return wrong + [f"the next run {one}" for one in then.wrong]


def _is_json(data: bytes | None) -> bool:
    try:
        json.loads(data or b"")
    except ValueError:
        return False
    return True


by_name = {one.name: one for one in (*SCENARIOS, CACHE)} | BESIDE


def messages(bench: Bench) -> bytes:
    """What an editor says that opens a file, edits it and saves it."""
    uri = (bench.project / "train.py").as_uri()
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": {"processId": None, "rootUri": bench.project.as_uri(), "capabilities": {}}},
        {"method": "initialized", "params": {}},
        {
            "method": "textDocument/didOpen",
            "params": {"textDocument": {"uri": uri, "languageId": "python", "version": 1, "text": EDITED}},
        },
    ]
    for version in range(2, 30):
        text = EDITED + f"x = {version}\n"
        changed = {"textDocument": {"uri": uri, "version": version}, "contentChanges": [{"text": text}]}
        messages.append({"method": "textDocument/didChange", "params": changed})
        messages.append(
            {
                "id": version,
                "method": "textDocument/hover",
                "params": {"textDocument": {"uri": uri}, "position": {"line": 0, "character": 0}},
            }
        )
    bodies = [json.dumps({"jsonrpc": "2.0", **one}).encode() for one in messages]
    return b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(body), body) for body in bodies)
