"""Where experiments run: one at a time on each GPU, on any executor, on a Dask cluster; and the path of a CUDA run, pretended."""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from concurrent.futures import Executor, Future
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import forked
import pytest

pytest.importorskip("torch")

from torchmemlint.confirm import command, devices, settle
from torchmemlint.confirm.launch import Ended
from torchmemlint.confirm.output import write_snapshots
from torchmemlint.confirm.plan import Plan
from torchmemlint.confirm.results import snapshot_of
from torchmemlint.confirm.settle import Options, Settled, settle_all, settle_there
from torchmemlint.confirm.verdict import Doubts, Outcome, Verdict
from torchmemlint.errors import UsageError
from torchmemlint.findings import Confidence, Finding, Position, Severity, Span

KEEPS = "def run(model, loader):\n    kept = []\n    for x in loader:\n        kept.append(model(x))\n    return len(kept)\n"


def _plan(row: int = 1) -> Plan:
    span = Span(Position(row, 1), Position(row, 2))
    return Plan(Finding("TML102", "a-rule", Severity.WARNING, Confidence.HIGH, "m", "x.py", span), {"source": ""}, Doubts())


class Watcher:
    """In the place of ``settle``: notes who runs on which device at the same time."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.together = 0

    def __call__(self, plan: Plan, options: Options) -> Settled:
        with self.lock:
            self.now[options.device] += 1
            self.most[options.device] = max(self.most[options.device], self.now[options.device])
            self.together = max(self.together, sum(self.now.values()))
        time.sleep(0.02)
        with self.lock:
            self.now[options.device] -= 1
        return Settled(plan, Verdict(Outcome.CONFIRMED, device=options.device))


def test_each_gpu_has_one_experiment_at_a_time_and_none_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = Watcher()
    monkeypatch.setattr(settle, "settle", watcher)
    gpus = ["cuda:0", "cuda:1", "cuda:2"]
    plans = [_plan(row) for row in range(1, 25)]
    done = list(settle_all(plans, Options(), gpus))
    assert [item.plan for item in done] == plans
    assert watcher.most == {gpu: 1 for gpu in gpus}
    assert watcher.together == 3
    assert {item.verdict.device for item in done} == set(gpus)


@pytest.mark.parametrize(
    ("device", "jobs", "found"),
    [
        ("auto", 0, ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]),
        ("cuda", 2, ["cuda:0", "cuda:1"]),
        ("cuda", 9, ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]),
        ("cuda:3", 2, ["cuda:3"]),
        ("cpu", 3, ["cpu"] * 3),
    ],
)
def test_jobs_are_placed_on_the_gpus_that_torch_sees(
    device: str, jobs: int, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Ended(({"cuda_devices": 4, "mps": False},), "", "namespaces", "", 1.0)
    monkeypatch.setattr(devices, "launch", lambda job, timeout, sandbox, device: seen)
    monkeypatch.setattr(devices, "_may_have_accelerator", lambda: True)
    assert devices.devices_for(device, jobs) == found
    with pytest.raises(UsageError, match="torch finds 4 CUDA devices"):
        devices.devices_for("cuda:4", 1)


def test_threads_of_one_worker_take_turns_on_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import ThreadPoolExecutor

    watcher = Watcher()
    monkeypatch.setattr(settle, "settle", watcher)
    monkeypatch.setattr(settle, "_device_here", lambda device: {"auto": "cuda:0"}.get(device, device))
    with ThreadPoolExecutor(4) as threads:
        assert len(list(settle_all([_plan()] * 6, Options("auto"), [], threads))) == 6
        assert watcher.most == {"cuda:0": 1}
        assert len(list(settle_all([_plan()] * 6, Options("cpu"), [], threads))) == 6
    assert watcher.most["cpu"] > 1


class Losing(Executor):
    """Loses what it is given."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def submit(self, function, /, *arguments, **options):  # type: ignore[no-untyped-def]
        future: Future[Settled] = Future()
        future.set_exception(self._error)
        return future


def test_what_an_executor_loses_is_not_settled() -> None:
    (item,) = settle_all([_plan()], Options(), [], Losing(OSError("the worker died")))
    assert item.verdict.outcome is Outcome.INCONCLUSIVE
    assert "OSError: the worker died" in item.verdict.reason
    with pytest.raises(UsageError):  # a machine without torch: of every experiment the same
        list(settle_all([_plan()], Options(), [], Losing(UsageError("needs PyTorch"))))


def test_rules_without_an_experiment_ask_for_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settle, "devices_for", lambda device, jobs: pytest.fail("looked for a device"))
    item = settle_there(replace(_plan(), job=None, reason="cuda only"), Options("cuda"))
    assert item.verdict.reason == "cuda only"


# --- the command line -----------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(KEEPS)
    return tmp_path


@pytest.mark.slow
def test_the_executor_that_is_named_settles(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "fleet.py").write_text(
        "from concurrent.futures import ProcessPoolExecutor\nfrom multiprocessing import get_context\n\n"
        "def two():\n    return ProcessPoolExecutor(2, mp_context=get_context('spawn'))\n"
    )
    script = "import sys\nfrom torchmemlint.cli import main\n\nif __name__ == '__main__':\n    sys.exit(main(sys.argv[1:]))\n"
    (here / "go.py").write_text(script)
    (here / "two.py").write_text(KEEPS + KEEPS.replace("run", "second"))
    target = ["confirm", "two.py:4", "two.py:9", "--rule", "TML102", "--output-format", "json"]
    monkeypatch.setenv("TORCHMEMLINT_EXECUTOR", "fleet:two")  # go.py's folder is in its path, as of any script
    done = subprocess.run([sys.executable, "go.py", *target], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [row["confirm"]["verdict"] for row in json.loads(done.stdout)] == ["confirmed"] * 2
    monkeypatch.setenv("TORCHMEMLINT_EXECUTOR", "nothing")
    assert command.main(["train.py:4", "--rule", "TML102"]) == 2
    assert "must be module:factory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "tpu"], "--device tpu"),
        (["--snapshots", "out", "--device", "cpu"], "needs a CUDA device"),
    ],
)
def test_what_does_not_go_together(arguments: list[str], words: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([*arguments, "train.py:4", "--rule", "TML102"]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.slow
def test_a_dask_cluster_settles_findings(cluster: str, here: Path) -> None:
    text = KEEPS + KEEPS.replace("run", "second").replace("model(x)", "model(x).detach()")
    (here / "two.py").write_text(text)
    arguments = ["two.py:4", "two.py:9", "--rule", "TML102", "--output-format", "json"]
    arguments += ["--timeout", "300"]  # the workers may have little of the machine
    # A process of its own: the cluster's scheduler runs in this one, and the search for callers is bounded by CPU time.
    done = subprocess.run(
        [sys.executable, "-m", "torchmemlint", "confirm", *arguments],
        cwd=here, env={**os.environ, "TORCHMEMLINT_EXECUTOR": f"dask:{cluster}"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in {0, 1}, done.stderr
    verdicts = [row["confirm"] for row in json.loads(done.stdout)]
    assert (verdicts[0]["verdict"], verdicts[0]["device"]) == ("confirmed", "cpu"), verdicts[0]["reason"]
    assert verdicts[1]["verdict"] != "confirmed"


# --- snapshots ------------------------------------------------------------------------------------------------------


def test_a_snapshot_comes_home_unread(tmp_path: Path) -> None:
    data = pickle.dumps({"segments": []})
    packed = base64.b64encode(zlib.compress(data)).decode()
    assert snapshot_of(Ended(({"snapshot": packed},), "", "", "", 0.0)) == (data, "")
    assert snapshot_of(Ended(({"no_snapshot": "too much"},), "", "", "", 0.0)) == (b"", "too much")
    assert snapshot_of(Ended((), "", "", "", 0.0)) == (b"", "")
    for forged in ("???", packed[:-8] + "AAAAAAAA"):
        assert snapshot_of(Ended(({"snapshot": forged},), "", "", "", 0.0)) == (b"", "what the child sent cannot be unpacked")
    item = Settled(_plan(7), Verdict(Outcome.CONFIRMED), snapshot=data)
    (reported,) = write_snapshots([item], str(tmp_path / "new" / "folder"))
    path = tmp_path / "new" / "folder" / "001-TML102-x-7.pickle"
    assert path.read_bytes() == data
    assert str(path) in reported.verdict.notes[-1]
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError):
        write_snapshots([item], str(tmp_path / "file"))


# --- a CUDA run, pretended ------------------------------------------------------------------------------------------

PRETENDED = """
import gc, json, sys
sys.path.insert(0, {tests!r})
import pretend_cuda
allocator = pretend_cuda.pretend()
from torchmemlint.confirm.worker import experiments
from torchmemlint.confirm.worker.harness import driving
gc.collect()
gc.freeze()  # as a child of confirm does it
bench = driving.Bench
driving.Bench = lambda stage, device: bench(stage, "cpu")  # the tensors are the CPU's
records = []
experiments.run_finding({job!r} | {{"device": "cuda:1", "snapshot": True}}, records.append)
twin = {{"twin.py": "import torch\\ndef run(steps):\\n    return [torch.ones(3) for _ in range(steps)]\\n"}}
experiments.run_pair({{"before": twin, "after": twin, "module": "twin", "device": "cuda:1"}}, records.append)
print(json.dumps([allocator.asked, records]))
"""


def test_the_pretended_allocator_caches_as_cuda_does() -> None:
    from pretend_cuda import MIB, CachingAllocator

    model = CachingAllocator()
    model.allocate(1, 1)
    assert (model.allocated(), model.requested(), model.reserved()) == (512, 1, 2 * MIB)
    model.allocate(2, 513)
    assert (model.allocated(), model.reserved()) == (1536, 2 * MIB)
    model.allocate(3, 2 * MIB)  # a large one: from a segment of 20 MiB
    model.allocate(4, 19 * MIB)  # one of its own, a multiple of 2 MiB
    assert model.reserved() == (2 + 20 + 20) * MIB
    for key in (1, 2, 3, 4):
        model.free(key)
    assert (model.allocated(), model.reserved(), model.peak) == (0, 42 * MIB, 1536 + 21 * MIB)
    model.allocate(5, MIB)  # what was freed is used again, and its neighbours are one
    assert model.reserved() == 42 * MIB
    model.empty_cache()
    assert model.reserved() == 2 * MIB


CUDA_METER = """
import sys
sys.path.insert(0, {tests!r})
import pretend_cuda
pretend_cuda.pretend()
import torch
from torchmemlint.confirm.worker.meter import meter_for
held = torch.ones(1)
meter = meter_for("cuda:0")
assert meter.rounds
with meter:
    kept = torch.zeros(1)
    assert (meter.live_bytes(), meter.requested_bytes()) == (512, 4)
    assert meter.fragmented_bytes() == (2 << 20) - 1024
    more = torch.zeros(1000)
    del more
    assert (meter.live_bytes(), meter.peak_bytes()) == (512, 512 + 4096)
    meter.reset_peak()
    assert meter.peak_bytes() == 512
    meter.forget(kept)  # the device knows by itself
    assert meter.live_bytes() == 512
print("held")
"""


@pytest.mark.slow
def test_the_meter_of_cuda_reads_the_allocator(tmp_path: Path) -> None:
    program = CUDA_METER.format(tests=str(Path(__file__).parent))
    done = forked.script("-c", program, cwd=tmp_path)
    assert done.stdout == "held\n", done.stderr


@pytest.mark.slow
def test_the_path_of_a_cuda_run_holds_together(tmp_path: Path) -> None:
    """The allocator is initialised before it is read, stand-ins are made on the device, and a growth leaves a snapshot."""
    job = {"source": KEEPS, "place": [4, 9, 4, 30], "correction": "detach", "claimed": True}
    program = PRETENDED.format(tests=str(Path(__file__).parent), job=job)
    done = forked.script("-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    asked, records = json.loads(done.stdout.splitlines()[-1])
    assert asked == ["default device cuda:1", "device cuda:1", "history all", "history None", "default device cuda:1"]
    runs = {record["variant"]: record["run"] for record in records if "variant" in record}
    isolated = next(record["run"] for record in records if record.get("variant") == "before")
    grown = [later - earlier for earlier, later in pairwise(isolated["live_bytes"][2:])]
    assert all(step >= 1 << 20 for step in grown)
    snapshot = next(record["snapshot"] for record in records if "snapshot" in record)
    reported = pickle.loads(zlib.decompress(base64.b64decode(snapshot)))
    assert reported["live"] >= 8 << 20  # taken while everything is still kept
    # an allocator rounds up, so more is allocated than was asked for, and more reserved than both
    assert all(asked < got for asked, got in zip(isolated["requested_bytes"], isolated["live_bytes"], strict=True))
    assert isolated["fragmented_bytes"] > 0
    assert isolated["peak_bytes"] % 512 == 0
    # three floats are 12 bytes asked for, and a block of 512
    assert {later - earlier for earlier, later in pairwise(runs["after"]["live_bytes"])} == {512}
    assert {later - earlier for earlier, later in pairwise(runs["after"]["requested_bytes"])} == {12}
