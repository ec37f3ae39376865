"""The parts of a run: the screen, the search around named files, several processes, fixes in rounds."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest

from torchmemlint import api, workers
from torchmemlint.index.facts import ModuleFacts
from torchmemlint.processes import pool
from torchmemlint.processes.pool import run_all
from torchmemlint.project import neighbours as around
from torchmemlint.project.config import CommandLine, Configuration
from torchmemlint.project.discover import Found
from torchmemlint.project.results import Checked, Scanned
from torchmemlint.project.settings import Settings
from torchmemlint.run import check_paths, check_text, fix_paths
from torchmemlint.running import fixing
from torchmemlint.running.inspecting import check_some
from torchmemlint.running.linking import link
from torchmemlint.running.scanning import scan_files
from torchmemlint.running.state import Run
from torchmemlint.screen import called_names, imported_names, may_fire, torch_related
from torchmemlint.workers import ScanAll, ScanAround, crashed, scan

# --- screen ---------------------------------------------------------------------------------------------------------


def test_torch_related() -> None:
    assert all(
        torch_related(text)
        for text in (b"import torch as th", b"from pytorch_lightning import Trainer", b"loss.backward()", b"with no_grad():")
    )
    assert not torch_related(b"import numpy as np\nloss += 1\n")


def test_a_file_may_fire_by_the_trigger_words_of_enabled_rules() -> None:
    assert may_fire(b"import torch\ntorch.cuda.empty_cache()\n", ("TML301",))
    assert not may_fire(b"import torch\nempty_cached = 1\n", ("TML301",))
    assert not may_fire(b"import torch\ntorch.cuda.empty_cache()\n", ())
    assert not may_fire(b"import torch\ntorch.cuda.empty_cache()\n", ("TML000", "TML001"))


def test_imported_names() -> None:
    text = b"""
import a.b as c, d.e
from . import f
from .g import (h,
    i as j)
  from ..k.l import m  # n
"What is imported"; import o; from p import q
try: import r; import s.t
"""
    assert imported_names(text) >= {b"b", b"e", b"f", b"g", b"h", b"i", b"l", b"m", b"o", b"p", b"q", b"r", b"t"}
    assert imported_names(text).isdisjoint({b"k", b"n"} | {b"from", b"import"})
    assert imported_names(b"x = 1\n") == frozenset()


def test_called_names() -> None:
    assert called_names(b"f(g.h(1), [i, (2)])\ndef j(k): pass") - {b""} == {b"f", b"h", b"j"}


# --- which files belong together ------------------------------------------------------------------------------------


def scanned(*paths: str) -> list[Scanned]:
    settings = dict.fromkeys(paths, Configuration(CommandLine(isolated=True)).default)
    return [scan(ScanAll(settings, {}), path) for path in paths]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    around.forget()
    return tmp_path


def write(tree: Path, files: dict[str, str]) -> list[str]:
    for path, text in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    return sorted(files)


EVALUATE = "import torch\ndef evaluate(model, x):\n    model.eval()\n    return model(x).argmax()\n"


def test_files_without_torch_are_connected_by_imports(tree: Path) -> None:
    paths = write(
        tree,
        {
            "pkg/__init__.py": "from .engine import evaluate\n",
            "pkg/engine.py": EVALUATE + "from .meter import Meter\n",
            "pkg/meter.py": "class Meter:\n    pass\n",
            "pkg/other.py": "x = 1\n",
            "main.py": "from pkg import evaluate\nevaluate(1, 2)\n",
            "web/views.py": "import django\n",
        },
    )
    assert around.connected(scanned(*paths)) == ["main.py", "pkg/__init__.py", "pkg/meter.py"]
    assert around.connected(scanned("main.py", "web/views.py")) == []


def test_around_a_named_file_are_those_that_it_calls_and_those_that_call_it(tree: Path) -> None:
    write(
        tree,
        {
            "pyproject.toml": "",
            "pkg/__init__.py": "",
            "pkg/engine.py": EVALUATE + "from .meter import Meter\n",
            "pkg/meter.py": "class Meter:\n    pass\n",
            "pkg/unrelated.py": "import torch\nx = torch.ones(3)\n",
            "tools/by_import.py": "from pkg.engine import evaluate as e\n",
            "tools/by_name.py": "import torch\ndef f(trainer, m, x):\n    return trainer.evaluate(m, x)\n",
            ".venv/lib/engine_user.py": "from pkg.engine import evaluate\n",
        },
    )
    facts, complete, unread = around.surroundings(scanned("pkg/engine.py"), ScanAround())
    assert complete
    assert unread == 1
    assert [one.path for one in facts] == ["pkg/__init__.py", "pkg/meter.py", "tools/by_import.py", "tools/by_name.py"]
    assert {one.path for one in _linked("pkg/engine.py")} == {"pkg/engine.py", *(one.path for one in facts)}
    absolute, *_ = around.surroundings(scanned(f"{tree.as_posix()}/pkg/engine.py"), ScanAround())
    assert [one.path for one in absolute] == [f"{tree.as_posix()}/{one.path}" for one in facts]


def test_a_file_around_that_is_named_like_a_library_stays_inside_its_package(tree: Path) -> None:
    write(
        tree,
        {
            "pyproject.toml": "",
            "pkg/__init__.py": "",
            "pkg/openmax/__init__.py": "",
            "pkg/openmax/torch.py": "import torch\nfrom pkg.score import score\n",
            "pkg/score.py": "import torch\n@torch.no_grad()\ndef score(model, x):\n    model.eval()\n    return model(x).argmax(1)\n",
        },
    )
    assert [one.path for one in around.surroundings(scanned("pkg/score.py"), ScanAround())[0]] == [
        "pkg/__init__.py", "pkg/openmax/__init__.py", "pkg/openmax/torch.py",
    ]  # fmt: skip
    assert list(api.check_paths(["pkg/score.py"])) == []


def _linked(path: str) -> list[ModuleFacts]:
    run = Run([Found(path, Configuration(CommandLine(isolated=True)).default)], 1, by_hand=True)
    scan_files(run, [path])
    project = link(run)
    return [project.module(one) for one in project.paths]


def test_a_script_outside_of_any_project_only_has_the_files_beside_it(tree: Path) -> None:
    write(tree, {"s/train.py": EVALUATE, "s/use.py": "import train\n", "s/deep/use.py": "import train\n"})
    facts, *_ = around.surroundings(scanned("s/train.py"), ScanAround())
    assert [one.path for one in facts] == ["s/use.py"]


def test_the_search_has_an_end(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tree, {"pyproject.toml": "", "a.py": EVALUATE, **{f"u{n}.py": "import a\n" for n in range(12)}})
    monkeypatch.setattr(around, "MAX_FILES", 5)
    facts, complete, _ = around.surroundings(scanned("a.py"), ScanAround())
    assert (len(facts), complete) == (5, False)
    monkeypatch.setattr(around, "MAX_LISTED", 3)
    around._neighbours.cache_clear()
    facts, complete, _ = around.surroundings(scanned("a.py"), ScanAround())
    assert (len(facts), complete) == (2, False)  # a.py is one of the three that were opened


@pytest.mark.parametrize(("bound", "bytes_", "most"), [("MAX_BYTES_READ", 30, 2), ("MAX_BYTES_LISTED", 100, 12)])
def test_the_search_ends_by_size_and_asks_no_clock(
    bound: str, bytes_: int, most: int, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tree, {"pyproject.toml": "", "a.py": EVALUATE, **{f"u{n:02}.py": "import a\n" + "# more\n" * n for n in range(12)}})
    monkeypatch.setattr(around, bound, bytes_)
    around.forget()
    first = around.surroundings(scanned("a.py"), ScanAround())
    assert 0 < len(first.read) <= most
    assert not first.complete
    around.forget()
    with_cache = around.surroundings(scanned("a.py"), ScanAround())
    assert [one.path for one in first.read] == [one.path for one in with_cache.read]
    around.forget()


# --- several processes ----------------------------------------------------------------------------------------------


def _label(shared: str, path: str) -> str:
    if path == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{shared}:{path}"


def _lost(path: str, why: str) -> str:
    return f"lost {path}"


PATHS = [f"p{number}" for number in range(50)]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_results_are_in_order_whatever_the_number_and_kind_of_processes(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 1 if method == "fork" else 2)
    expected = [f"7:{path}" for path in PATHS]
    assert all(run_all(_label, "7", PATHS, jobs, _lost) == expected for jobs in (1, 2, 3))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_process_that_dies_loses_its_file_only(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 1 if method == "fork" else 2)
    paths = [*PATHS[:6], "dies", *PATHS[6:8]]
    expected = ["lost dies" if path == "dies" else f"7:{path}" for path in paths]
    assert run_all(_label, "7", paths, 2, _lost) == expected


def test_without_processes_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise PermissionError("no semaphores")

    monkeypatch.setattr(pool, "_in_pool", refuse)
    assert run_all(_label, "7", PATHS, 4, _lost) == [f"7:{path}" for path in PATHS]


@pytest.mark.slow
def test_a_project_goes_to_spawned_processes_too(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tree, {f"m{n}.py": EVALUATE + "import torch\ntorch.cuda.empty_cache()\nx = (\n" * (n % 2) for n in range(6)})
    alone = check_paths(["."], Configuration(CommandLine({"select": ["ALL"]}, isolated=True)), 1)
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    together = check_paths(["."], Configuration(CommandLine({"select": ["ALL"]}, isolated=True)), 2)
    assert together.findings == alone.findings
    assert {finding.code for finding in alone.findings} >= {"TML000"}
    assert together.crashes == alone.crashes


def test_a_crash_becomes_tml001_with_its_last_line() -> None:
    (finding,) = crashed("a.py", "Traceback:\n  …\nValueError: odd\n").findings
    assert (finding.code, finding.path) == ("TML001", "a.py")
    assert finding.message.endswith("ValueError: odd")


def test_whatever_a_file_does_to_us_is_a_result(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fall_over(*arguments: object) -> None:
        raise RuntimeError("odd")

    write(tree, {"a.py": EVALUATE})
    monkeypatch.setattr(workers, "torch_related", fall_over)
    (one,) = scanned("a.py")
    assert isinstance(one.failed, Checked)
    assert one.failed.findings[0].code == "TML001"


# --- texts and fixes ------------------------------------------------------------------------------------------------


TRAIN = """import torch


def train(model, loader, optimizer):
    total = 0
    for x in loader:
        loss = model(x).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss
    return total
"""


def isolated(**table: object) -> Configuration:
    return Configuration(CommandLine(table, isolated=True))


def test_a_text_is_checked_as_the_file_of_that_name(tree: Path) -> None:
    write(tree, {"train.py": "x = 1\n"})
    found = check_text(TRAIN, "./train.py", isolated().default)
    assert {(one.path, one.code, one.span.start.row) for one in found} == {("train.py", "TML101", 11)}
    suppressed = TRAIN.replace("total += loss", "total += loss  # noqa: TML101")
    assert check_text(suppressed, "train.py", isolated().default) == []
    assert len(check_text(suppressed, "train.py", isolated().default, comments=False)) == 1
    assert check_text(TRAIN, "train.py", Settings(codes=("TML301",))) == []


@pytest.mark.parametrize(
    ("files", "looks"),
    [
        (("a.py",), ["a.py", "a.py"]),
        (("a.py", "b.py"), ["a.py b.py", "a.py b.py"]),
        (("a.py", "c.py"), ["a.py c.py", "a.py", "a.py c.py"]),
    ],
)
def test_after_the_last_fix_each_file_is_looked_at_once(
    files: tuple[str, ...], looks: list[str], tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def watch(run: Run, paths: Sequence[str], *scanned: Collection[str], real: Callable[..., None] = check_some) -> None:
        if paths:
            seen.append(" ".join(paths))
        real(run, paths, *scanned)

    monkeypatch.setattr(fixing, "check_some", watch)
    write(tree, {name: TRAIN if name < "c" else "import torch\n" for name in files})
    assert fix_paths(["."], isolated(**{"unsafe-fixes": True}), 1).after
    assert seen == looks


def test_fixing_writes_nothing_and_converges(tree: Path) -> None:
    write(tree, {"a.py": TRAIN, "b.py": TRAIN, "c.py": "x = 1\n"})
    fixed = fix_paths(["."], isolated(**{"unsafe-fixes": True}), 1)
    assert set(fixed.after) == {"a.py", "b.py"}
    assert all("total += loss.detach()" in text for text in fixed.after.values())
    assert [finding.code for finding in fixed.applied] == ["TML101", "TML101"]
    assert fixed.outcome.findings == ()
    assert (tree / "a.py").read_text() == TRAIN
