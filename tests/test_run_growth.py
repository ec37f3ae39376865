"""`torchmemlint run`: the parts that need no torch, and whole runs of small programs."""

from __future__ import annotations

import dis
import io
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from textwrap import dedent
from types import CodeType, FrameType

import forked
import pytest

from torchmemlint.errors import UsageError
from torchmemlint.growth import command, report, words
from torchmemlint.growth.worker import frames, lines, series

NETWORK = """\
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 8))


"""
KEPT = NETWORK + "kept = []\nfor i in range(60):\n    kept.append(model(torch.randn(32, 16)))\n"
SUMMED = NETWORK + "total = 0\nfor i in range(60):\n    total = total + model(torch.randn(32, 16)).sum()\nprint(total.item())\n"
BOUNDED = NETWORK + (
    "kept = []\nfor i in range(100):\n    kept.append(model(torch.randn(32, 16)))\n    if len(kept) > 20:\n        kept.pop(0)\n"
)
HOOKED = NETWORK + (
    "seen = []\n\n\ndef keep(module, inputs, output):\n    seen.append(output)\n\n\nmodel[0].register_forward_hook(keep)\n"
    "for i in range(60):\n    model(torch.randn(32, 16))\n"
)


Done = subprocess.CompletedProcess[str]


def run(tmp_path: Path, text: str, *options: str) -> Done:
    """The command on a program, in a copy of a process that has torch: what the program imports is there."""
    write(tmp_path, text)
    return forked.growth(*options, "train.py", cwd=tmp_path)


def write(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.py").write_text(dedent(text), encoding="utf-8")


def fresh(tmp_path: Path, *words: str) -> Done:
    """A process of its own."""
    return subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)


# -- without torch


def test_a_steady_rise_is_growth_and_a_filled_buffer_is_not() -> None:
    rising = [(step, 10_000 + 1_000 * step) for step in range(1, 13)]
    found = series.trend(rising)
    assert found is not None
    assert found.rate == pytest.approx(1_000)
    assert found.period == 1
    assert series.trend([(step, 1_000 * min(step, 5)) for step in range(1, 13)]) is None
    assert series.trend([(step, 1_000 * (step % 3)) for step in range(1, 40)]) is None
    assert series.trend(rising[:6]) is None


def test_a_staircase_has_a_period() -> None:
    found = series.trend([(step, 50_000 * (step // 10)) for step in range(1, 120)])
    assert found is not None
    assert 8 <= found.period <= 12
    assert found.rate == pytest.approx(5_000, rel=0.2)


def _two_loops(calls: list[int]) -> None:
    for _ in range(2):
        calls.append(1)
    for _ in range(2):
        for _ in range(2):
            calls.append(2)


def test_the_bytecode_says_which_loop_a_call_is_in() -> None:
    code: CodeType = _two_loops.__code__
    first = code.co_firstlineno
    assert [line - first for _, _, line in frames.loops_of(code)] == [1, 3, 4]
    offsets = {frames.loop_around(code, instruction.offset) for instruction in dis.get_instructions(code)}
    assert None in offsets
    assert len(offsets) == 4


def _marked(marks: frames.Marks, heads: list[int], times: int) -> None:
    for _ in range(times):
        _call(marks, heads)
        _call(marks, heads)


def _call(marks: frames.Marks, heads: list[int]) -> None:
    found = marks.iteration(sys._getframe(1))
    if found is not None:
        heads.append(found[3])


def test_two_calls_in_one_iteration_are_one_iteration() -> None:
    heads: list[int] = []
    _marked(frames.Marks(), heads, 5)
    assert heads == [_marked.__code__.co_firstlineno + 1] * 4
    outer: list[int] = []
    marks = frames.Marks()
    for _ in range(3):
        _marked(marks, outer, 2)
    assert len(set(outer)) == 2, "the loop around is another loop"


def _grows(kept: list[int]) -> None:
    value = len(kept)
    kept.append(value)
    value += 1


def test_the_line_after_which_a_container_is_longer_is_found() -> None:
    kept: list[int] = []

    def mark(frame: FrameType | None) -> object:
        return len(kept)

    watched = lines.Watched(mark)
    tracer = lines.Tracer([watched])
    before = sys.gettrace()
    tracer.start(sys._getframe())
    if tracer.refused:
        pytest.skip("another tracer is at work")
    _grows(kept)
    _grows(kept)
    tracer.stop(sys._getframe())
    assert {place[0].line for place in watched.found} == {_grows.__code__.co_firstlineno + 2}
    assert len(watched.found) == 2
    assert watched.found[0][1].function == "test_the_line_after_which_a_container_is_longer_is_found"
    assert sys.gettrace() is before


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="sys.monitoring lets several tools trace")
def test_another_tracer_is_not_replaced() -> None:
    def other(frame: FrameType, event: str, argument: object) -> None:
        return None

    before = sys.gettrace()
    sys.settrace(other)
    try:
        tracer = lines.Tracer([])
        tracer.start(sys._getframe())
        assert tracer.refused
        assert sys.gettrace() is other
    finally:
        sys.settrace(before)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="sys.monitoring watches all threads at once")
def test_whatever_ends_the_tracing_leaves_no_tracer() -> None:
    def fails(frame: FrameType | None) -> object:
        if frame is not None:
            raise ValueError
        return None

    before = sys.gettrace()
    traced: list[object] = []
    begun, go = threading.Event(), threading.Event()

    def other() -> None:
        begun.set()
        go.wait(60)
        _grows([])  # a call, by which the thread can see that the tracing is over
        traced.append(sys.gettrace())

    tracer = lines.Tracer([lines.Watched(fails)])
    tracer.start(sys._getframe())
    if tracer.refused:
        pytest.skip("another tracer is at work")
    thread = threading.Thread(target=other)
    thread.start()
    begun.wait(60)
    _grows([])
    assert not tracer.running
    tracer.stop(None)
    assert sys.gettrace() is before
    assert type(sys._getframe().f_trace) is not lines._Function
    go.set()
    thread.join(60)
    assert traced == [None]


def test_the_command_line_is_taken_apart() -> None:
    assert command.split(["--steps", "5", "train.py", "--steps", "7"]) == (["--steps", "5"], ["train.py", "--steps", "7"])
    assert command.split(["--live", "-m", "pkg.train", "-x"]) == (["--live"], ["-m", "pkg.train", "-x"])
    assert command.split(["--", "python", "-u", "a.py"]) == ([], ["python", "-u", "a.py"])
    assert command._taken_apart(["python3", "-u", "a.py", "1"]) == (["python3", "-u"], ["a.py", "1"])
    for wrong in ([], ["-m"], ["--steps", "0", "a.py"]):
        with pytest.raises(UsageError):
            command.main(wrong)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (999, "999 B"), (7_520, "7.5 kB"), (74_000, "74 kB"), (303_000, "303 kB"), (2.5e9, "2.5 GB")],
)
def test_sizes_are_short(number: float, text: str) -> None:
    assert words.size(number) == text


# -- whole runs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "line", "holder"),
    [(KEPT, 10, "`kept`"), (SUMMED, 10, "`total`"), (HOOKED, 12, "`seen`")],
    ids=["kept", "summed", "hooked"],
)
def test_what_grows_is_named_with_its_line(tmp_path: Path, text: str, line: int, holder: str) -> None:
    pytest.importorskip("torch")
    done = run(tmp_path, text)
    assert done.returncode == 0, done.stderr
    first = done.stderr.splitlines()[0]
    assert first.startswith(f"train.py:{line}: grows "), done.stderr
    assert holder in first


CONTEXT = NETWORK + (
    "import contextvars\ntrail = contextvars.ContextVar('trail', default=())\n"
    "for i in range(40):\n    out = model(torch.randn(32, 16))\n    trail.set((*trail.get(), out))\n"
)
ARRAY = NETWORK + (
    "import numpy\nresults = numpy.empty((60, 2), dtype=object)\n"
    "for i in range(60):\n    results[i, 0] = float(i)\n    results[i, 1] = model(torch.randn(32, 16)).mean()\n"
)
GENERATOR = NETWORK + (
    "def window():\n    seen = []\n    while True:\n        seen.append((yield len(seen)))\n\n\n"
    "kept = window()\nnext(kept)\nfor i in range(40):\n    kept.send(model(torch.randn(32, 16)))\n"
)
TWO_NAMES = NETWORK + (
    "cell = nn.RNNCell(16, 64)\n\n\ndef train():\n    hidden = torch.zeros(8, 64)\n    for i in range(40):\n        state = hidden\n"
    "        hidden = cell(torch.randn(8, 16), state)\n\n\ntrain()\n"
)
RECORDS = NETWORK + (
    "class Record:\n    def __init__(self, value):\n        self.args = ('loss', value)\n\n\nrecords = []\n"
    "for i in range(40):\n    out = model(torch.randn(32, 16))\n    records.append(Record(out.square().mean() + out.mean()))\n"
)
COLLECTED = NETWORK + (
    "import gc\nclass Step:\n    def run(self):\n        self.out = model(torch.randn(32, 16))\n        self.done = self.run\n\n\n"
    "for i in range(60):\n    Step().run()\n    if i % 7 == 6:\n        gc.collect()\n"
)
GROUPS = NETWORK + (
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor i in range(40):\n    code = torch.zeros(32, 16, requires_grad=True)\n"
    "    optimizer.add_param_group({'params': [code]})\n    model(code).sum().backward()\n    optimizer.step()\n"
)
SHOWN = NETWORK + (
    "class Evaluation:\n    def __init__(self):\n        self.outputs = []\n\n    def step(self):\n        out = model(torch.randn(32, 16))\n"
    "        self.outputs.append(out.detach().numpy()[:, :4])\n\n\nevaluation = Evaluation()\nfor i in range(40):\n    evaluation.step()\n"
)
MADE = NETWORK + "kept = [model(torch.randn(32, 16)) for i in range(60)]\n"
THREAD = NETWORK + (
    "import queue, threading\ninbox = queue.Queue()\n\n\ndef writer():\n    pending = []\n    while (item := inbox.get()) is not None:\n"
    "        pending.append(item)\n        inbox.task_done()\n\n\nthread = threading.Thread(target=writer)\nthread.start()\n"
    "for i in range(40):\n    inbox.put(model(torch.randn(32, 16)))\n    inbox.join()\ninbox.put(None)\nthread.join()\n"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "line", "holder"),
    [
        (CONTEXT, 12, "`trail` (context variable)"), (ARRAY, 12, "`results`"), (GENERATOR, 11, "`seen` (local of the generator `window`)"),
        (TWO_NAMES, 15, "`hidden` (local of `train`)"), (RECORDS, 16, "`records`"), (COLLECTED, 12, "through `Step.done`"),
        (GROUPS, 11, "`optimizer.param_groups`"), (MADE, 8, "`list` (that an expression is making)"), (SHOWN, 14, "`self.outputs` (local of "), (THREAD, 15, "`pending` (local of `writer`)"),
    ],
    ids=["context", "array", "generator", "two names", "records", "collected", "groups", "made", "shown", "thread"],
)  # fmt: skip
def test_holders_of_other_kinds_are_named(tmp_path: Path, text: str, line: int, holder: str) -> None:
    pytest.importorskip("torch")
    done = run(tmp_path, text)
    first = done.stderr.splitlines()[0]
    assert first.startswith(f"train.py:{line}: grows "), done.stderr
    assert holder in first
    assert "no Python object holds it" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kept", "keep", "gets"),
    [
        ("[]", "kept.append({'output': output, 'weights': weights})", "`{'output': …}`"),
        ("[]", "kept.append(Record(output))", "a `Record`"),
        ("{}", "kept[i] = ('output', output)", "a tuple with a tensor"),
        ("{}", "kept[i] = output", "an array that shows a tensor"),
    ],
    ids=["records", "objects", "tuples", "arrays"],
)
def test_containers_that_the_collector_leaves_out_are_named(tmp_path: Path, kept: str, keep: str, gets: str) -> None:
    pytest.importorskip("torch")
    text = NETWORK + (
        "weights = torch.zeros(4).numpy()\n\n\nclass Record:\n    def __init__(self, output):\n"
        "        self.output, self.weights = output, weights\n\n\n"
        f"kept = {kept}\nfor i in range(40):\n    output = model(torch.randn(32, 16)).detach().numpy()\n    {keep}\n"
    )
    done = run(tmp_path, text)
    first = done.stderr.splitlines()[0]
    assert first.startswith("train.py:19: note: grows "), done.stderr
    assert f"`kept` gets {gets} in each step" in first


@pytest.mark.slow
def test_a_buffer_that_fills_up_is_not_reported(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = run(tmp_path, BOUNDED, "--fail-on-growth")
    assert done.returncode == 0, done.stderr
    assert "nothing grows: 100 steps" in done.stderr


@pytest.mark.slow
def test_what_prepares_a_batch_is_no_step(tmp_path: Path) -> None:
    text = NETWORK + (
        "from torch.utils.data import DataLoader, Dataset\n\n\n"
        "class Samples(Dataset):\n"
        "    def __init__(self):\n        self.change = nn.Upsample(2048)\n        self.used = []\n\n"
        "    def __len__(self):\n        return 2048\n\n"
        "    def __getitem__(self, index):\n"
        "        if KEEPS:\n            self.used.append(torch.ones(256))\n"
        "        return self.change(torch.ones(1, 1, 16))[0, 0, :16].clone()\n\n\n"
        "for epoch in range(2):\n"
        "    for batch in DataLoader(Samples(), batch_size=64):\n        model(batch)\n"
    )
    done = run(tmp_path, text.replace("KEEPS", "False"))
    assert done.returncode == 0, done.stderr
    assert done.stderr == "torchmemlint: nothing grows: 64 steps of the loop at train.py:26 were measured.\n"
    done = run(tmp_path, text.replace("KEEPS", "True"))
    assert done.stderr.startswith("train.py:21: "), done.stderr
    assert ".used`" in done.stderr.splitlines()[0]


def test_growth_can_fail_a_run_and_is_a_record_for_check(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    report = tmp_path / "grown.json"
    done = run(tmp_path, HOOKED, "--fail-on-growth", "--output-format", "json", "--output-file", str(report))
    assert done.returncode == 1, done.stderr
    (entry,) = json.loads(report.read_text(encoding="utf-8"))
    assert (entry["filename"], entry["location"]["row"], entry["code"]) == ("train.py", 12, "TML108")
    assert entry["confirm"]["verdict"] == "confirmed"
    growth = entry["confirm"]["growth"]
    assert growth["bytes_per_step"] == pytest.approx(32 * 64 * 4, rel=0.35)
    from torchmemlint.commands.confirmed import read_results

    assert read_results(str(report)) is not None


@pytest.mark.slow
def test_output_status_and_results_are_the_programs_own(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    text = SUMMED + "import sys\nprint(torch.randn(2).tolist(), sys.argv, __name__)\nsys.exit(3)\n"
    write(tmp_path, text)
    done = fresh(tmp_path, "-m", "torchmemlint", "run", "train.py", "--epochs", "1")
    alone = fresh(tmp_path, "train.py", "--epochs", "1")
    assert (done.returncode, done.stdout) == (3, alone.stdout)


@pytest.mark.slow
def test_an_exception_has_the_programs_traceback(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    text = KEPT + "def fails():\n    raise ValueError('no')\n\n\nfails()\n"
    done = run(tmp_path, text)
    alone = fresh(tmp_path, "train.py")
    assert done.returncode == 1
    assert done.stderr.startswith(alone.stderr)
    assert "grows" in done.stderr


@pytest.mark.slow
def test_too_few_steps_are_said(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = run(tmp_path, KEPT.replace("range(60)", "range(5)"))
    assert "the longest loop ran 5 steps, 19 are needed (at train.py:9)" in done.stderr


@pytest.mark.slow
def test_a_block_can_be_watched(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    body = KEPT.replace("for i in range(60):", "with torchmemlint.watching(report=False) as watch:\n  for i in range(60):")
    write(tmp_path, "import torchmemlint\n" + body + "print(bool(watch), [one['holder'] for one in watch.growths])\n")
    alone = fresh(tmp_path, "train.py")
    assert alone.stdout == "True ['kept']\n", alone.stderr


def test_only_the_users_files_are_checked() -> None:
    """With a framework's loop beside them, the linter says other things of them."""
    places = {name: {"path": f"{name}.py", "line": 1} for name in ("line", "caller", "loop")}
    growth = {"line": places["line"], "callers": [places["caller"]], "defined": None, "loop": places["loop"]}
    assert [place["path"] for place in report._places(growth)] == ["line.py", "caller.py"]


# -- loops of frameworks, other ways in and out

TRAINER = """\
class Trainer:
    def __init__(self, keep=False):
        self.keep, self.outputs = keep, []

    def fit(self, task, batches):
        for batch in batches:
            out = task.training_step(batch)
            if self.keep:
                self.outputs.append(out)
            for callback in task.callbacks:
                callback.on_step_end(task, out)
"""
TASK = (
    NETWORK
    + """\
from tinytrainer import Trainer


class Recorder:
    def __init__(self):
        self.seen = []

    def on_step_end(self, task, out):
        self.seen.append(out)


class Task:
    def __init__(self, *callbacks):
        self.callbacks = callbacks

    def training_step(self, batch):
        loss = model(batch).square().mean()
        return loss


"""
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "line", "holder"),
    [
        ("trainer.fit(Task(recorder), batches)", 16, "`recorder.seen`"),
        ("trainer.fit(Task(), batches)", 30, "`trainer.outputs`"),
    ],
    ids=["the user's hook", "the framework's list"],
)
def test_in_a_frameworks_loop_the_line_is_the_users(tmp_path: Path, call: str, line: int, holder: str) -> None:
    pytest.importorskip("torch")
    package = tmp_path / "lib" / "site-packages" / "tinytrainer"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(TRAINER)
    installed = f"__import__('sys').path.append({str(package.parent)!r}); from tinytrainer import"
    keep = "True" if "Task()" in call else "False"
    text = f"batches = [torch.randn(32, 16) for _ in range(60)]\nrecorder, trainer = Recorder(), Trainer({keep})\n{call}\n"
    done = run(tmp_path, TASK.replace("from tinytrainer import", installed) + text)
    first = done.stderr.splitlines()[0]
    assert first.startswith(f"train.py:{line}: grows "), done.stderr
    assert holder in first
    assert "tinytrainer" in first, "the loop is the framework's"


@pytest.mark.slow
def test_after_ctrl_c_there_is_a_report(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    text = KEPT + "    if i == 40:\n        import os, signal\n        os.kill(os.getpid(), signal.SIGINT)\n"
    done = run(tmp_path, text)
    assert done.returncode == -signal.SIGINT
    assert "KeyboardInterrupt\n" in done.stderr
    assert "torchmemlint/growth" not in done.stderr, "the traceback is the program's own"
    assert "train.py:10: grows " in done.stderr.partition("KeyboardInterrupt\n")[2]


@pytest.mark.slow
def test_a_module_is_run_as_python_runs_it(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "train.py").write_text(KEPT + "import sys\nprint(__name__, __package__, sys.argv[1:])\n")
    done = fresh(tmp_path, "-m", "torchmemlint", "run", "--output-format", "github", "-m", "package.train", "--epochs", "1")
    assert (done.returncode, done.stdout) == (0, "__main__ package ['--epochs', '1']\n")
    assert done.stderr.startswith("::"), done.stderr
    assert "file=package/train.py,line=10" in done.stderr


@pytest.mark.slow
def test_an_out_of_memory_error_says_what_was_alive(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = run(tmp_path, KEPT + "torch.empty(1 << 55)\n")
    assert done.returncode == 1
    assert "RuntimeError" in done.stderr
    after = done.stderr.partition("Out of memory: ")[2]
    assert "of tensors were alive. The largest holders:" in after, done.stderr
    assert "`kept`" in after
    assert "train.py:10: grows " in after


GROWTH: dict[str, object] = {
    "kind": "container", "holder": "kept", "root": "global", "of": "__main__", "gets": "a tensor", "bytes_per_step": 8192.0,
    "total_per_step": 8592.0, "tensors_per_step": 1.0, "nodes_per_step": 3.0, "saved_bytes_per_step": 0.0, "unknown_saved": 0,
    "chained": False, "line": {"path": "train.py", "line": 3, "function": "<module>"}, "defined": None, "callers": [], "no_line": "",
    "loop": {"path": "train.py", "line": 2, "function": "<module>"}, "iterations": 60, "asked_after": 58, "note": False,
    "words": "`kept` gets a tensor in each step",
}  # fmt: skip


@pytest.mark.parametrize("output_format", ["sarif", "github", "json"])
def test_reports_of_other_formats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], output_format: str
) -> None:
    from torchmemlint.growth import report

    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("kept = []\nfor batch in batches:\n    kept.append(work(batch))\n")
    data = {"growths": [GROWTH], "loops": [], "device": "cpu", "files": []}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps({"data": data, "options": {"format": output_format}})))
    assert report.main() == 0
    text = capsys.readouterr().err
    if output_format == "github":
        assert text.startswith("::warning ")
        assert "file=train.py,line=3" in text
        assert "TML901" in text
        return
    given = json.loads(text)
    if output_format == "json":
        assert given[0]["confirm"]["growth"]["holder"] == "kept"
        return
    (result,) = given["runs"][0]["results"]
    assert result["ruleId"] == "TML901"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 3


LONG = """\
import gc
import sys
import tracemalloc

import torch
from torchmemlint.growth.worker.session import Session

session = Session()
kept = []


def held():
    gc.collect()
    ours = tracemalloc.Filter(True, "*/torchmemlint/growth/*")
    return sum(one.size for one in tracemalloc.take_snapshot().filter_traces([ours]).statistics("filename"))


def loop(steps):
    for step in range(steps):
        session.event(sys._getframe())
        session.creates_graph(place)
        if GROWS:
            kept.append(torch.ones(64))


from torchmemlint.growth.worker.frames import Place

place = Place("train.py", 1, "loop")
tracemalloc.start()
sizes = []
for steps in (5_000, 10_000):
    loop(steps)
    sizes.append(held())
session.finish()
assert not session.off, session.off
print(*sizes, sum(len(loop.found) for loop in session.loops.values()))
"""


@pytest.mark.slow
@pytest.mark.parametrize("grows", [False, True])
def test_its_own_memory_does_not_grow_with_the_steps(tmp_path: Path, grows: bool) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(LONG.replace("GROWS", str(grows)), encoding="utf-8")
    done = forked.script("train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, last, found = map(int, done.stdout.split())
    assert first < 2_000_000
    assert last < first + 500_000, (
        "10,000 steps later; on a busy machine there are more looks at first, and 227,000 bytes were seen"
    )
    assert (found > 0) is grows


POOL = NETWORK + (
    "from concurrent.futures import ThreadPoolExecutor\n\nkept = []\nwith ThreadPoolExecutor(1) as pool:\n    for i in range(100):\n"
    "        kept.append(pool.submit(model, torch.ones(64, 16)).result())\n"
)
SESSIONS = NETWORK + (
    "sessions = []\n\n\ndef session(x):\n    state = model(x).detach()\n    while True:\n        yield state\n\n\n"
    "for i in range(100):\n    one = session(torch.randn(64, 16))\n    next(one)\n    sessions.append(one)\n"
)
TASKS = NETWORK + (
    "import asyncio\n\n\nasync def work(x):\n    return {'out': model(x)}\n\n\nasync def main():\n    done = []\n    for i in range(100):\n"
    "        task = asyncio.ensure_future(work(torch.randn(64, 16)))\n        await task\n        done.append(task)\n\n\nasyncio.run(main())\n"
)
CHAINED = NETWORK + (
    "import warnings\n\nwarnings.simplefilter('ignore')\nfor i in range(100):\n    loss = model(torch.randn(64, 16)).square().mean()\n"
    "    loss.backward(create_graph=True)\n    with torch.no_grad():\n        for p in model.parameters():\n            p.sub_(p.grad, alpha=1e-4)\n"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (POOL, "kept.append(pool", "`kept` gets a tensor in each step"),
        (SESSIONS, "sessions.append", "`sessions` gets a generator in each step"),
        (TASKS, "done.append", "`done` (local of the generator `main`) gets a `Task` in each step, with its graph"),
        (CHAINED, "loss.backward(create", "a cycle through C++, `.grad` → graph → leaf"),
    ],
    ids=["a pool of threads", "suspended generators", "tasks that have ended", "gradients with graphs"],
)
def test_holders_that_are_not_in_the_stack_of_the_loop(tmp_path: Path, text: str, line: str, words: str) -> None:
    pytest.importorskip("torch")
    said = run(tmp_path, text).stderr
    row = next(number for number, each in enumerate(text.splitlines(), 1) if line in each)
    assert f"train.py:{row}:" in said, said
    assert words in said, said
