"""The fixtures are true: each `run` executes under torch, the mistake grows or peaks, and its twin does neither.

Bytes are counted by a dispatch mode that follows every storage to its death; graph nodes by a walk from what `run` returns.
"""

from __future__ import annotations

import ast
import gc
import importlib.util
import json
import shutil
import sys
import warnings
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from gaps import MARKER

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

torch.set_num_threads(1)  # tiny models: more threads only wait for each other

ROOT = Path(__file__).parent.parent / "fixtures"
FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent.name not in ("programs", "asked"))  # those are run by nobody
RUNNABLE = [path for path in FILES if "\ndef run(" in path.read_text(encoding="utf-8")]
SCRIPTS = [path for path in FILES if path.name.startswith("script")]

# Detaching a carried state cuts the gradient through time, as it must; a kept exception has no numbers, its text has none.
CHANGES_NUMBERS = ("TML104/", "TML303/")


@pytest.fixture(scope="module", autouse=True)
def quick_collections() -> Iterator[None]:
    """What was there before needs no walk: each of the many collections below sees a fixture's objects alone."""
    torch.optim.SGD([torch.zeros(1)], lr=0.1)  # the first one loads torch's compiler, with as many objects as all before
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def label(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def project_of(path: Path) -> Path | None:
    """The folder that is one project with `path`, None where a file stands alone."""
    return None if path.parent.parent == ROOT else path.parent


def has_twin(path: Path) -> bool:
    folder = project_of(path)
    return any(folder.rglob("*.fixed.py")) if folder else path.with_suffix(".fixed.py").exists()


PAIRS = [path for path in RUNNABLE if not path.name.endswith(".fixed.py") and has_twin(path)]


def fixed_copy(path: Path, into: Path) -> Path:
    """A copy of `path`, or of its whole project, in which every file that has a twin reads as its twin."""
    folder = project_of(path)
    into.mkdir()
    if folder is None:
        return Path(shutil.copy(path.with_suffix(".fixed.py"), into / path.name))
    copy = into / folder.name
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for twin in copy.rglob("*.fixed.py"):
        twin.replace(twin.with_name(twin.name.replace(".fixed.py", ".py")))
    return copy / path.name


@contextmanager
def loaded(path: Path) -> Iterator[ModuleType]:
    """The module at `path`, with its folder importable while it is in use."""
    before = set(sys.modules)
    sys.path.insert(0, str(path.parent))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield load(path)
    finally:
        sys.path.remove(str(path.parent))
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(path.parent)):
                del sys.modules[name]
        importlib.invalidate_caches()


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("fixture_under_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fixture_under_test"] = module
    spec.loader.exec_module(module)
    return module


class LiveBytes(TorchDispatchMode):
    """Bytes of all storages born under the mode: alive now, and at most."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sizes: dict[int, int] = {}
        self.live = 0
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.follow(leaf.untyped_storage())
        return out

    def follow(self, storage: Any) -> None:
        key = storage._cdata
        if key in self.sizes:
            return
        self.sizes[key] = storage.nbytes()
        self.live += storage.nbytes()
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self.forget, key).atexit = False  # type: ignore[misc]  # a property, for typeshed a slot

    def forget(self, key: int) -> None:
        self.live -= self.sizes.pop(key)


def tensors_in(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple, set, deque)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, (int, float)):
        yield torch.tensor(float(value))


def graph_nodes(value: Any) -> int:
    """How many autograd nodes what is kept holds on to."""
    todo = [t.grad_fn for t in tensors_in(value) if t.grad_fn is not None]
    seen = set(todo)
    while todo:
        for node, _ in todo.pop().next_functions:
            if node is not None and node not in seen:
                seen.add(node)
                todo.append(node)
    return len(seen)


@dataclass(frozen=True)
class Measured:
    """What `run(steps)` leaves: bytes alive while its result is held, peak bytes, graph nodes, and the result's numbers."""

    live_bytes: int
    peak_bytes: int
    nodes: int
    numbers: tuple[Any, ...]


def measure(path: Path, steps: int) -> Measured:
    with loaded(path) as module:
        gc.collect()
        with LiveBytes() as meter:
            kept = module.run(steps)
            gc.collect()
            live, peak = meter.live, meter.peak
        numbers = tuple(t.detach().clone() for t in tensors_in(kept))
        return Measured(live, peak, graph_nodes(kept), numbers)


def test_there_are_fixtures() -> None:
    assert len(RUNNABLE) > 20


def test_every_fixture_is_python() -> None:
    for path in FILES:
        compile(path.read_text(encoding="utf-8"), str(path), "exec")


@pytest.mark.parametrize("path", RUNNABLE, ids=label)
def test_run_executes(path: Path) -> None:
    with loaded(path) as module:
        assert module.run(3) is not None


@pytest.mark.parametrize("path", SCRIPTS, ids=label)
def test_script_executes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(path)])  # some read their arguments: not those of pytest
    with loaded(path):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("path", PAIRS, ids=label)
def test_the_mistake_costs_and_its_fix_does_not_and_computes_the_same_numbers(path: Path, tmp_path: Path) -> None:
    few, many = 4, 10
    twin = fixed_copy(path, tmp_path / "twin")
    loud_few, loud_many = measure(path, few), measure(path, many)
    fixed_few, fixed_many = measure(twin, few), measure(twin, many)

    assert fixed_many.nodes == fixed_few.nodes, "the twin keeps graph nodes"
    grown = loud_many.live_bytes - loud_few.live_bytes
    grown_after = fixed_many.live_bytes - fixed_few.live_bytes
    grows = loud_many.nodes > loud_few.nodes or grown > 1.5 * max(grown_after, 1)
    peaks = loud_many.peak_bytes > 1.05 * fixed_many.peak_bytes
    assert grows or peaks, (loud_many, fixed_many)
    if label(path).startswith(CHANGES_NUMBERS):
        return
    assert len(loud_few.numbers) == len(fixed_few.numbers)
    for a, b in zip(loud_few.numbers, fixed_few.numbers, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_twins_carry_no_markers() -> None:
    for path in FILES:
        if path.name.endswith(".fixed.py"):
            assert "# expect:" not in path.read_text(encoding="utf-8"), label(path)


def test_markers_are_well_formed_and_live_in_the_folder_of_one_of_their_codes() -> None:
    for path in FILES:
        for row, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if "# expect" in line:
                assert MARKER.search(line), f"{label(path)}:{row}"


def test_a_generator_that_yields_under_no_grad_takes_its_consumers_gradient() -> None:
    with loaded(ROOT / "TML202" / "leaking_generator.py") as module:
        assert module.consumed(2) == [0.0, 0.0]
    with loaded(ROOT / "TML202" / "leaking_generator.fixed.py") as module:
        assert module.consumed(2) == [1.0, 1.0]


def test_a_flag_of_a_module_leaves_its_parameters_with_gradients() -> None:
    with loaded(ROOT / "TML202" / "flag_of_a_module.py") as module:
        assert module.gradients_of_a_step() == 8 * 64 + 64 + 64 * 64 + 64
        with pytest.raises(AttributeError):
            module.fails([], module.nn.Linear(2, 2))
    with loaded(ROOT / "TML202" / "flag_of_a_module.fixed.py") as module:
        assert module.gradients_of_a_step() == 0


def test_every_example_of_a_mistake_has_its_expectation_and_its_corrected_form() -> None:
    expected = json.loads((ROOT.parent / "examples" / "expected.json").read_text(encoding="utf-8"))
    for name, findings in expected.items():
        path = ROOT.parent / "examples" / name
        assert path.exists(), name
        assert all(row <= len(path.read_text(encoding="utf-8").splitlines()) for row, _ in findings)
        if findings:
            assert expected[f"corrected/{name}"] == []


@pytest.mark.parametrize("name", ["inference_without_no_grad", "loss_accumulation", "oom_handler", "cache_every_step"])
@pytest.mark.parametrize("folder", ["", "corrected"])
def test_example_runs(folder: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with loaded(ROOT.parent / "examples" / folder / f"{name}.py") as module:
        module.main()
    assert capsys.readouterr().out


STEP = ["model", "loader", "criterion", "optimizer"]


def step_functions() -> list[tuple[Path, str, bool]]:
    """Every function of a training step's usual parameters, and whether one of its lines is marked."""
    found = []
    for path in FILES:
        if path.parent.name not in {"TML101", "TML102", "TML103", "TML204"} or path.name.endswith(".fixed.py"):
            continue
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and [a.arg for a in node.args.args] == STEP:
                body = lines[node.lineno - 1 : node.end_lineno]
                found.append((path, node.name, any("# expect:" in line for line in body)))
    return found


@pytest.mark.parametrize(
    ("path", "name", "loud"), [pytest.param(*case, id=f"{label(case[0])}-{case[1]}") for case in step_functions()]
)
def test_each_function_keeps_a_growing_graph_where_it_is_marked_and_only_there(path: Path, name: str, loud: bool) -> None:
    def nodes_after(steps: int) -> int:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
        loader = [(torch.randn(4, 8), torch.randint(0, 4, (4,))) for _ in range(steps)]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with loaded(path) as module:
            kept = getattr(module, name)(model, loader, torch.nn.CrossEntropyLoss(), optimizer)
        return graph_nodes(kept)

    assert (nodes_after(9) > nodes_after(4)) == loud


def evaluating_functions() -> list[tuple[Path, str, bool]]:
    """Every plain function of a model and a loader, and whether one of its lines is marked."""
    found = []
    for path in FILES:
        if path.parent.name != "TML201" or path.name.endswith(".fixed.py"):
            continue
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and [a.arg for a in node.args.args] == ["model", "loader"]:
                loud = any("# expect:" in line for line in lines[node.lineno - 1 : node.end_lineno])
                if loud or node.name.startswith("quiet_"):
                    found.append((path, node.name, loud))
    return found


@pytest.mark.parametrize(
    ("path", "name", "loud"), [pytest.param(*case, id=f"{label(case[0])}-{case[1]}") for case in evaluating_functions()]
)
def test_each_evaluation_records_a_graph_where_it_is_marked_and_only_there(path: Path, name: str, loud: bool) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    loader = [(torch.randn(4, 8), torch.randint(0, 4, (4,))) for _ in range(3)]
    recorded: list[int] = []

    def pack(tensor: Any) -> Any:
        recorded.append(tensor.numel())
        return tensor.detach()

    try:
        with loaded(path) as module, torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            getattr(module, name)(model, loader)
    finally:
        torch.set_grad_enabled(True)
    assert bool(recorded) == loud
