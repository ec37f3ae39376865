"""``torchmemlint budget`` from the command line, on small programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import forked
import pytest

from torchmemlint.budget import command, runs
from torchmemlint.budget.remedies import REMEDIES
from torchmemlint.confirm import launch
from torchmemlint.confirm.launch import Ended
from torchmemlint.confirm.warm import Worker
from torchmemlint.errors import UsageError

pytest.importorskip("torch")

TRAIN = """\
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--width", type=int, default=512)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(*(nn.Linear(args.width, args.width) for _ in range(8))).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.randn(1000, args.width), torch.randint(0, 10, (1000,)))
    for x, y in DataLoader(data, batch_size=args.batch_size, shuffle=True):
        x, y = x.to(device), y.to(device)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
"""
PARAMETERS = 8 * (512 * 512 + 512) * 4

LANGUAGE_MODEL = """\
import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, LENGTH, EXAMPLES = 4000, 128, 128, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        q, k, v = (t.view(EXAMPLES, LENGTH, 4, 32).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        return x + self.mlp(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    ids = torch.zeros(EXAMPLES, LENGTH, dtype=torch.int64).cuda()
    loss = F.cross_entropy(model(ids).view(-1, VOCABULARY), ids.view(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
"""

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def train(tmp_path: Path) -> str:
    """A training script with ``main()`` and ``argparse``."""
    return program(tmp_path, TRAIN)


def program(folder: Path, source: str) -> str:
    path = folder / "train.py"
    path.write_text(textwrap.dedent(source))
    return str(path)


def budget(capsys: Capture, *arguments: str) -> dict[str, Any]:
    """The JSON report of a run that says something."""
    assert command.main(["--output-format", "json", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


@pytest.mark.slow
def test_a_script_with_main_and_argparse_is_budgeted(train: str, capsys: Capture) -> None:
    found = budget(capsys, train)
    assert (found["estimated"], found["steps"]) == (True, 2)
    parts = found["parts"]
    assert parts["parameters"] == parts["gradients"] == PARAMETERS
    assert 2 * PARAMETERS <= parts["optimizer state"] <= 2 * PARAMETERS + 16 * 512  # and the number of the step for each tensor
    assert parts["temporaries"] == PARAMETERS  # AdamW by foreach: the root of every second moment at once
    assert found["peak"]["row"] == 21
    assert sum(parts.values()) == found["allocated_bytes"] <= found["reserved_bytes"] <= found["needed_bytes"]


@pytest.mark.slow
def test_an_option_of_the_program_is_set(train: str, capsys: Capture) -> None:
    assert budget(capsys, train, "--set", "width=256")["parts"]["parameters"] == 8 * (256 * 256 + 256) * 4


@pytest.mark.slow
def test_arguments_behind_two_dashes_are_the_programs(train: str, capsys: Capture) -> None:
    assert budget(capsys, train, "--", "--width", "128")["parts"]["parameters"] == 8 * (128 * 128 + 128) * 4


@pytest.mark.slow
def test_a_batch_may_be_larger_than_the_data(train: str, capsys: Capture) -> None:
    parts = budget(capsys, train, "--batch", "100000")["parts"]
    assert parts["inputs"] == 100000 * 512 * 4 + -(-100000 * 8 // 512) * 512
    # the inputs of the second to the eighth layer, and the logarithm of the softmax
    assert parts["saved activations"] == pytest.approx(8 * 100000 * 512 * 4, rel=0.02)


@pytest.mark.slow
def test_a_constant_at_the_top_level_is_set(tmp_path: Path, capsys: Capture) -> None:
    path = program(
        tmp_path,
        """
        import torch
        width = 64
        model = torch.nn.Linear(width, width, bias=False).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            model(torch.zeros(4, width).cuda()).sum().backward()
            optimizer.step()
        """,
    )
    assert budget(capsys, path, "--set", "width=256")["parts"]["parameters"] == 256 * 256 * 4


@pytest.mark.slow
def test_the_device_may_be_asked_of_torch_accelerator(tmp_path: Path, capsys: Capture) -> None:
    # so does Adam in every step: a torch that is built for CUDA raises there on a machine without a driver
    path = program(
        tmp_path,
        """
        import torch
        device = torch.accelerator.current_accelerator()
        assert torch.accelerator.is_available() and not torch.accelerator.current_stream().is_capturing()
        model = torch.nn.Linear(256, 256, bias=False, device=device)
        optimizer = torch.optim.Adam(model.parameters())
        with torch.accelerator.device_index(0):
            for step in range(3):
                model(torch.zeros(4, 256, device=device)).sum().backward()
                optimizer.step()
                torch.accelerator.synchronize()
        """,
    )
    assert budget(capsys, path)["parts"]["parameters"] == 256 * 256 * 4


@pytest.mark.slow
@pytest.mark.parametrize("place", ["fit", "4"])
def test_a_function_is_budgeted_by_its_name_or_a_line_of_it(tmp_path: Path, place: str, capsys: Capture) -> None:
    path = program(
        tmp_path,
        """\
        import torch

        def fit():
            model = torch.nn.Linear(256, 256, bias=False).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(3):
                model(torch.zeros(4, 256).cuda()).sum().backward()
                optimizer.step()
        """,
    )
    assert budget(capsys, f"{path}:{place}")["parts"]["parameters"] == 256 * 256 * 4


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False])
def test_a_program_may_read_its_project(tmp_path: Path, named: bool, capsys: Capture) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "model.py").write_text(
        "import torch\n\ndef make():\n    return torch.nn.Linear(256, 256, bias=False)\n"
    )
    (tmp_path / "scripts").mkdir()
    if not named:
        (tmp_path / "pyproject.toml").touch()
    path = program(
        tmp_path / "scripts",
        """
        import torch
        from parts.model import make
        model = make().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            model(torch.zeros(4, 256).cuda()).sum().backward()
            optimizer.step()
        """,
    )
    root = ["--root", str(tmp_path)] if named else []
    assert budget(capsys, *root, path)["parts"]["parameters"] == 256 * 256 * 4


@pytest.mark.slow
def test_a_program_without_a_step_is_named(tmp_path: Path, capsys: Capture) -> None:
    assert command.main([program(tmp_path, "def train():\n    pass\n")]) == 2
    printed = capsys.readouterr().out
    assert "no estimate: the program ended before a step; it has no backward, and ended at train.py:1" in printed
    path = program(tmp_path, "def train(loss):\n    loss.backward()\n")
    assert command.main([path]) == 2
    assert "no estimate: the program ended before a step; its backward is at train.py:2" in capsys.readouterr().out


@pytest.mark.slow
def test_a_program_without_an_end_is_stopped(tmp_path: Path, capsys: Capture) -> None:
    assert command.main([program(tmp_path, "while True:\n    pass\n"), "--timeout", "2"]) == 2
    assert "the run ended before its step: time limit" in capsys.readouterr().out


@pytest.mark.slow
def test_one_step_is_reported_as_one(tmp_path: Path, capsys: Capture) -> None:
    path = program(
        tmp_path,
        """
        import torch
        model = torch.nn.Linear(256, 256).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.zeros(4, 256).cuda()).sum().backward()
        optimizer.step()
        """,
    )
    assert command.main(["--no-sandbox", path]) == 0
    assert "note: only 1 step was seen: the program ended after it" in capsys.readouterr().out


@pytest.mark.slow
def test_a_script_whose_model_is_missing_names_it(tmp_path: Path, capsys: Capture) -> None:
    path = program(
        tmp_path,
        """\
        import reader_of_this_company
        import torch

        model = reader_of_this_company.load("x.bin")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            loss = model(torch.zeros(4)).pow(2).mean()
            loss.backward()
            optimizer.step()
        """,
    )
    assert command.main([path]) == 2
    printed = capsys.readouterr().out
    assert "no estimate: train.py:7: `reader_of_this_company.load()` is not installed or not here" in printed
    assert "torchmemlint budget --model PACKAGE:CLASS(ARGUMENTS) --input" in printed


@pytest.mark.slow
def test_a_batch_that_is_not_here_is_given(tmp_path: Path, capsys: Capture) -> None:
    path = program(
        tmp_path,
        """
        import torch
        from reader_of_this_company import Images

        model = torch.nn.Linear(256, 8).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in torch.utils.data.DataLoader(Images("x.bin"), batch_size=16):
            torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
            optimizer.step()
        """,
    )
    found = budget(capsys, path, "--input", "x:float32[16,256]", "--input", "y:int64[16]")
    assert found["parts"]["inputs"] == 16 * 256 * 4  # of the largest moment, when the labels are gone


@pytest.mark.slow
def test_a_chart_and_a_page(train: str, tmp_path: Path) -> None:
    assert command.main([train, "--output-format", "svg", "--output-file", str(tmp_path / "step.svg")]) == 0
    chart = ElementTree.fromstring((tmp_path / "step.svg").read_text())
    titles = [item.text for item in chart.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[:3] == ["parameters", "gradients", "optimizer state"]
    assert command.main([train, "--output-format", "html", "--output-file", str(tmp_path / "step.html")]) == 0
    page = (tmp_path / "step.html").read_text()
    assert "<svg" in page
    assert "peak of one step" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


LAYER = "torch.nn:Linear(512, 512, bias=False)"


@pytest.mark.slow
def test_a_model_alone(capsys: Capture) -> None:
    size = 512 * 512 * 4
    parts = budget(capsys, "--model", LAYER, "--input", "x:float32[16,512]")["parts"]
    assert parts["parameters"] == parts["gradients"] == size
    assert parts["inputs"] == 16 * 512 * 4
    assert (
        "optimizer state" not in budget(capsys, "--model", LAYER, "--input", "x:float32[16,512]", "--optimizer", "SGD")["parts"]
    )
    parts = budget(capsys, "--model", LAYER, "--input", "x:float32[16,512]", "--inference", "--autocast", "bfloat16")["parts"]
    assert set(parts) <= {"parameters", "inputs", "temporaries", "workspaces", "saved activations", "rounding"}


@pytest.mark.slow
def test_the_device_decides_the_attention(tmp_path: Path, capsys: Capture) -> None:
    path = program(tmp_path, LANGUAGE_MODEL)
    old, new = (budget(capsys, path, "--gpu", name)["parts"]["saved activations"] for name in ("T4", "A100"))
    # math keeps the softmax of the scores of each layer, the memory-efficient kernel its output and a number for each row
    softmax, output, rows = (4 * 8 * 4 * 128 * size * 4 for size in (128, 32, 1))
    assert old - new == pytest.approx(softmax - output - rows, rel=0.01)
    assert budget(capsys, path, "--gpu", "T4", "--attention", "efficient")["parts"]["saved activations"] == new


def test_bad_arguments_are_usage_errors(train: str) -> None:
    for arguments in ([], [train, "--model", LAYER], ["--model", "torch.nn"], [train, "--fit", "much"], [train, "--gpu", "abacus"],
                      ["no-such-file.py"], [train, "--input", "x:text[8]"]):  # fmt: skip
        with pytest.raises(UsageError):
            command.main(arguments)


# -- what is not believed

FORGERY = """\
import sys
import torch

def step():
    model = torch.nn.Linear(8, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(3):
        model(torch.zeros(2, 8).cuda()).sum().backward()
        optimizer.step()

"""
CALL = """\
def answer():
    frame = sys._getframe()
    while frame is not None:
        for found in list(frame.f_locals.values()):
            if getattr(found, "__qualname__", "") == "sender.<locals>.emit":
                found({"estimate": {"budget": {"allocated": 1}, "steps": 2}})
                return
        frame = frame.f_back
answer()
step()
"""
WRITE = """\
import os
for number in range(3, 40):
    try:
        os.write(number, b'{"estimate": {"budget": {"allocated": 1}, "steps": 2}}\\n')
    except OSError:
        pass
step()
"""
REPLACE = """\
from torchmemlint.budget.worker import program
program._short = lambda text, root: "nothing"
step()
"""


@pytest.mark.slow
@pytest.mark.parametrize("lines", [CALL, WRITE, REPLACE])
def test_answers_of_the_program_are_forged(tmp_path: Path, lines: str, capsys: Capture) -> None:
    assert command.main([program(tmp_path, FORGERY + lines)]) == 2
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert "no estimate: forged: " in printed


NO_WALL = """
import sys; sys.path.insert(0, {ours!r}); import torchmemlint; del sys.path[0]; sys.path.append({torch!r})
from torchmemlint.confirm import sandbox
def none(*arguments):
    raise OSError("no wall today")
sandbox.WALLS = {{"namespaces": none, "landlock": none}}
from torchmemlint.confirm.worker.main import main; main({runners!r})
"""


def test_without_a_sandbox_nothing_is_run(train: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr("torchmemlint.confirm.launch._BOOT", NO_WALL)
    monkeypatch.setattr("torchmemlint.confirm.launch._workers", {})  # whose copies know the walls that there are
    monkeypatch.setattr(command, "warmed", lambda runners: nullcontext())
    assert command.main([train]) == 2
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert "no estimate: not run: no sandbox is available here (no wall today; no wall today); --no-sandbox" in printed


def test_an_answer_of_a_process_that_did_not_finish_is_not_believed() -> None:
    record = {"estimate": {"budget": {"allocated": 1}, "steps": 2}}
    found = runs.from_records(Ended((record,), "time limit", "namespaces", "", 0.1))
    assert (found.budget, found.reason) == ({}, "the run ended before its step: time limit")


# -- whether it fits


def need(size: int) -> runs.Estimate:
    """A step of 40 MiB and 3 MiB for each example, from 30 examples on 5 MiB."""
    allocated = (40 + max(3 * size, 5 * size - 60)) << 20
    return runs.Estimate(
        {"allocated": allocated, "reserved": allocated, "parts": {}}, "", 2, (), (), (), size, 0.1, "namespaces"
    )


@pytest.mark.parametrize("first", [1, 7, 64, 5000])
@pytest.mark.parametrize("limit", [1 << 28, 1 << 30, 24 << 30, 80 << 30])
def test_the_largest_batch_is_found(monkeypatch: pytest.MonkeyPatch, first: int, limit: int) -> None:
    tried: list[int] = []

    def estimate(job: object, options: object, batch: int) -> runs.Estimate:
        tried.append(batch)
        return need(batch)

    monkeypatch.setattr(runs, "estimate", estimate)
    found, with_it = runs.largest_batch({}, runs.Options(), need(first), first, limit)
    assert with_it is not None
    assert with_it.needed == need(found).needed <= limit < need(found + max(1, found // 50)).needed
    assert len(tried) <= runs.MOST_BATCHES + 1
    assert runs.largest_batch({}, runs.Options(), need(first), first, 1 << 20) == (0, None)


def test_a_step_that_does_not_follow_the_batch_has_no_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "estimate", lambda job, options, batch: need(8))
    with pytest.raises(ValueError, match="does not depend on the batch size"):
        runs.largest_batch({}, runs.Options(), need(8), 8, 1 << 30)


@pytest.mark.slow
def test_fit_says_whether_and_how_much(train: str, capsys: Capture) -> None:
    assert command.main([train, "--fit", "24GiB", "--output-format", "json"]) == 0
    fit = json.loads(capsys.readouterr().out)["fit"]
    assert fit["fits"]
    assert budget(capsys, train, "--batch", str(fit["largest_batch"]))["needed_bytes"] <= 24 << 30
    assert budget(capsys, train, "--batch", str(fit["largest_batch"] * 51 // 50))["needed_bytes"] > 24 << 30


@pytest.mark.slow
def test_what_does_not_fit_is_status_1_and_all_runs_of_a_command_are_copies_of_one_process(
    train: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    made = []

    class Counted(Worker):
        def __init__(self, boot: str, environment: Mapping[str, str]) -> None:
            super().__init__(boot, environment)
            made.append(self)

    monkeypatch.setattr(launch, "_workers", {})
    monkeypatch.setattr(launch, "Worker", Counted)
    assert command.main([train, "--fit", "100MiB"]) == 1
    printed = capsys.readouterr().out
    assert "does not fit in 100 MiB" in printed
    assert "not even a batch of one fits" in printed
    assert "only 1 step was seen" not in printed
    assert launch._workers == {}
    if sys.platform == "linux":  # only there they are forked
        (worker,) = made
        assert worker._next > 1


# -- remedies, each with what it must save here


@pytest.mark.slow
def test_remedies_are_run(train: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    found = budget(capsys, train, "--remedies")
    saved = {name: found["allocated_bytes"] - item["allocated_bytes"] for name, item in found["remedies"].items()}
    assert set(saved) == set(REMEDIES)
    assert all(not item["reason"] for item in found["remedies"].values())
    one_layer = PARAMETERS // 8
    assert saved["fused optimizer"] >= PARAMETERS - 2 * one_layer
    assert saved["foreach=False"] >= PARAMETERS - 4 * one_layer
    assert saved["SGD without momentum"] >= 2 * PARAMETERS
    state = 2 * PARAMETERS - 2 * PARAMETERS // 4
    assert saved["8-bit AdamW"] >= state

    some = ("bf16 autocast", "fp16 autocast", "checkpointing", "chunked loss", "set_to_none")
    monkeypatch.setattr(runs, "with_remedies", partial(runs.with_remedies, names=some))
    (tmp_path / "model").mkdir()
    found = budget(capsys, program(tmp_path / "model", LANGUAGE_MODEL), "--remedies")
    share = {name: 1 - item["allocated_bytes"] / found["allocated_bytes"] for name, item in found["remedies"].items()}
    for name in some[:4]:
        assert share[name] > 0.05, name
    assert share["set_to_none"] > 0.02


# -- against an independent count on real tensors

COUNT = """
import json, sys
import torch
from torch import nn
from torch.nn import functional as F

def models():
    mlp = nn.Sequential(nn.Linear(300, 700), nn.GELU(), nn.LayerNorm(700), nn.Linear(700, 500), nn.ReLU(), nn.Linear(500, 10))
    conv = nn.Sequential(
        nn.Conv2d(3, 24, 3), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(24, 48, 3), nn.SiLU(), nn.Flatten(),
        nn.Linear(48 * 12 * 12, 10))
    return {"mlp": (mlp, (128, 300)), "conv": (conv, (32, 3, 30, 30))}

def size(tensors):
    found = {item.untyped_storage().data_ptr(): item.untyped_storage().nbytes() for item in tensors}
    return sum(found.values())

def real(model, shape):
    x, y = torch.randn(shape), torch.zeros(shape[0], dtype=torch.int64)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(lambda item: saved.append(item) or item, lambda item: item):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    lasting = {item.untyped_storage().data_ptr() for item in (*model.parameters(), *model.buffers(), x, y)}
    return {
        "parameters": size(model.parameters()), "gradients": size(item.grad for item in model.parameters()),
        "optimizer state": size(value for state in optimizer.state.values() for value in state.values()),
        "saved activations": size(item for item in saved if item.untyped_storage().data_ptr() not in lasting)}

def fake(name):
    from torchmemlint.budget.account import part_of
    from torchmemlint.budget.worker.cuda import Gpu
    from torchmemlint.budget.worker.measure import Run
    run = Run(Gpu())
    with run.running():
        model, shape = models()[name]
        x, y = torch.zeros(shape), torch.zeros(shape[0], dtype=torch.int64)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        run.mark_parameters()
        tape, (begin, end) = run.tape, run.window()
        starts = tape.before_backward
        at = {"saved activations": starts[-1]}
        sums = {}
        for block in tape.blocks:
            part = part_of(block, begin, end, starts)
            moment = at.get(part, end - 1)
            if block.born <= moment and (block.died < 0 or block.died > moment):
                sums[part] = sums.get(part, 0) + block.size
    return sums

real = {name: real(*model) for name, model in models().items()}
print(json.dumps({name: [sizes, fake(name)] for name, sizes in real.items()}))
"""


@pytest.fixture(scope="module")
def counted() -> Any:
    """The parts of a real step and those of a budget, for each model."""
    done = forked.script("-c", COUNT, cwd=Path(command.__file__).parents[2])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "conv"])
def test_parts_are_those_of_a_real_step(name: str, counted: Any) -> None:
    real, fake = counted[name]
    assert set(real) <= set(fake)
    for part, size in real.items():
        assert fake[part] == pytest.approx(size, rel=0.02), part


def test_other_commands_import_nothing_of_it() -> None:
    asked = [sys.executable, "-X", "importtime", "-m", "torchmemlint", "--version"]
    given = {**os.environ, "PYTHONPATH": str(Path(command.__file__).parents[2])}
    found = subprocess.run(asked, capture_output=True, text=True, env=given, check=True, timeout=60)
    assert "torchmemlint.cli" in found.stderr
    assert "budget" not in found.stderr
