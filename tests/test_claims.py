"""What findings say beside their place: how bad it is, and the steps that lead to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchmemlint import Finding, check_source

pytestmark = pytest.mark.usefixtures("nothing_around")

FIXTURES = Path(__file__).parent.parent / "fixtures"

NESTED = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        return self.layers[0](x) + 1


def train(loader, optimizer):
    net = Net()
    criterion = nn.MSELoss()
    history = []
    for x, y in loader:
        loss = criterion(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss)
    return [float(value) for value in history]
"""


def found(text: str, code: str) -> list[Finding]:
    options = {"notes": True}
    return [finding for finding in check_source(text, "claims.py", options=options, isolated=True) if finding.code == code]


def test_graphs_that_a_callers_list_keeps_are_an_error() -> None:
    text = (FIXTURES / "TML201" / "kept_by_the_caller.py").read_text(encoding="utf-8")
    kept, dropped = found(text, "TML201")
    assert kept.severity.value == "error"
    assert [step.message for step in kept.flow] == ["kept with its graph in `outputs`"]
    row = kept.flow[0].span.start.row
    assert "outputs.append" in text.splitlines()[row - 1]
    assert dropped.severity.value == "warning"
    assert [step.message for step in dropped.flow] == ["`Evaluator._infer_batch` is called here with grad mode on"]


CALLED = """
from torch import nn


class Trainer:
    def __init__(self, model: nn.Module):
        self.model = model

    def infer(self, x):
        return self.model(x)

    def test(self, loader):
        self.model.eval()
        for x in loader:
            print(self.infer(x).argmax(1))
"""


def test_calls_that_use_a_result_are_shown_with_the_forward() -> None:
    (finding,) = found(CALLED, "TML201")
    (step,) = finding.flow
    assert CALLED.splitlines()[finding.span.start.row - 1].strip() == "return self.model(x)"
    assert step.message == "`Trainer.infer` is called here with grad mode on"
    assert CALLED.splitlines()[step.span.start.row - 1].strip() == "print(self.infer(x).argmax(1))"


def test_what_another_forward_keeps_and_one_graph_kept_in_turns_are_no_mistake_of_this_one() -> None:
    text = (FIXTURES / "TML201" / "kept_by_another_forward.py").read_text(encoding="utf-8")
    kept, by_rows = found(text, "TML201")
    assert (kept.severity.value, kept.message.partition("(")[0]) == ("error", "`smooth")
    assert [step.span.start.row for step in kept.flow] == [kept.span.start.row]
    assert (by_rows.severity.value, by_rows.flow) == ("note", ())


@pytest.mark.slow
def test_a_step_names_the_call_that_the_function_makes_not_one_inside_the_module() -> None:
    (finding,) = found(NESTED, "TML102")
    (step,) = finding.flow
    assert step.message.startswith("`net(…)` runs here")
    assert NESTED.splitlines()[step.span.start.row - 1].strip() == "loss = criterion(net(x), y)"


ASYNC = """
import torch


@torch.no_grad()
async def send(engine, weights, buffer):
    for name, weight in weights:
        buffer.copy_(weight.view(-1).view(torch.uint8))
        await engine.send(name)


@torch.no_grad()
async def stream(model, items):
    async for item in items:
        yield model(item)
"""


def test_an_async_function_without_a_visible_graph_says_so() -> None:
    coroutine, generator = found(ASYNC, "TML202")
    assert (coroutine.severity.value, generator.severity.value) == ("warning", "warning")
    assert "creates the coroutine" in coroutine.message
    assert "creates the generator" in generator.message
    assert "autograd graphs" in generator.cost
    assert "autograd graphs" not in coroutine.cost


ASKED = """
import torch
import pytorch_lightning as pl
from torch import nn


class Task(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(4, 4)

    @torch.enable_grad()
    def validation_step(self, batch, index):
        loss = self.encoder(batch).detach().mean()
        self.log("loss", loss)
"""


def test_grad_mode_that_a_decorator_switches_on_is_switched_off_by_taking_it_away() -> None:
    (finding,) = found(ASKED, "TML201")
    assert finding.help.startswith("remove `@torch.enable_grad()`")


HANDLED = """
import torch
from torch import nn

net = nn.Linear(4, 4)


def step(batch, failed):
    try:
        MAKE
    except torch.OutOfMemoryError as error:
        torch.cuda.empty_cache()
        failed.append(1)
"""


def test_a_handler_mentions_a_graph_only_where_one_is_built() -> None:
    (plain,) = found(HANDLED.replace("MAKE", "rows = torch.cdist(batch, batch)\n        return rows.sum()"), "TML303")
    (trained,) = found(HANDLED.replace("MAKE", "net(batch).sum().backward()"), "TML303")
    assert "graph" not in plain.cost
    assert "the failed graph" in trained.cost


ROUNDS = """
import torch


def fit(model: torch.nn.Module, loader, optimizer):
    for epoch in range(3):
        total = 0
        for x in loader:
            loss = model(x).mean()
            loss.backward()
            optimizer.step()
            total += loss
        print(total)


def fit_once(model: torch.nn.Module, loader, optimizer):
    total = 0
    for x in loader:
        loss = model(x).mean()
        loss.backward()
        optimizer.step()
        total += loss
    print(total)
"""


def test_a_total_that_a_loop_resets_is_bounded_by_it() -> None:
    again, once = found(ROUNDS, "TML101")
    assert again.cost.endswith("all of it is freed when the outer loop resets `total`")
    assert "resets" not in once.cost


def test_a_total_that_is_also_stored_elsewhere_is_not_called_freed() -> None:
    kept = (
        ROUNDS.replace("range(3)", "range(30)")
        .replace("    for epoch in", "    history = []\n    for epoch in")
        .replace("        print(total)\n\n\ndef fit_once", "        history.append(total)\n\n\ndef fit_once")
    )
    assert kept != ROUNDS
    added, *_ = found(kept, "TML101")
    assert added.cost.endswith("the kept tensor itself stays")
    (stored,) = found(kept, "TML102")
    assert stored.cost.endswith("all of it is freed when `fit` returns")


def test_a_forward_that_another_phase_trains_says_when_it_needs_no_graph() -> None:
    text = (FIXTURES / "TML201" / "trained_in_another_phase.py").read_text(encoding="utf-8")
    messages = [finding.message for finding in found(text, "TML201")]
    assert "graph when `optimizer is None`, but" in messages[0]
    assert "graph when `not optimizer`, but" in messages[1]
    assert not any(" when `" in message for message in messages[2:])


def test_a_fix_says_what_it_needs_where_torch_is_bound_in_a_function_alone() -> None:
    text = (FIXTURES / "TML201" / "torch_is_bound_elsewhere.py").read_text(encoding="utf-8")
    assert [finding.fix.needs_import for finding in found(text, "TML201") if finding.fix] == ["torch", "torch"]
    bound = text.replace("import torch.nn as nn", "import torch\nimport torch.nn as nn")
    assert [finding.fix.needs_import for finding in found(bound, "TML201") if finding.fix] == [None, None]


LONG = """
import torch
from torch import nn


class Served(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Linear(4, 4)
        self.offset = 1

    def forward(self, x):
        x = x * 2
        with {manager}:
            return self.network(x)


def export(x):
    n = 0
{lines}
    served = Served().to("cpu")
    out = served(x[None])
    print(out.argmax(1).tolist())
"""


@pytest.mark.slow
def test_a_guarded_forward_is_known_where_the_function_is_too_long_to_follow_it() -> None:
    lines = "\n".join("    n = n + 1" for _ in range(2_600))
    assert not found(LONG.format(manager="torch.no_grad()", lines=lines), "TML201")
    assert found(LONG.format(manager="torch.autocast('cpu')", lines=lines), "TML201")


def test_the_missing_parentheses_are_no_safe_fix_where_a_model_is_trained_on_what_the_block_gives() -> None:
    text = (FIXTURES / "TML202" / "not_called_around_a_loss.py").read_text(encoding="utf-8")
    all_found = found(text, "TML202")
    assert {finding.cost for finding in all_found} == {"the block never runs: the program always fails here"}
    safety = {finding.function: finding.fix.safety.value for finding in all_found if finding.fix}
    assert safety == {
        "Shifted.forward": "safe",
        "evaluate_loss": "safe",
    }
    assert not any("remove the `with`" in finding.help for finding in all_found)


def test_a_call_that_waits_for_a_flag_says_so() -> None:
    text = (FIXTURES / "TML301" / "parts_of_a_model.py").read_text(encoding="utf-8")
    messages = [finding.message for finding in found(text, "TML301") if finding.function == "behind_a_flag"]
    assert len(messages) == 1
    assert "in every step of the loop when `tidy` is set:" in messages[0]


LISTED = """
import torch


def joined_first(net, rows):
    net.eval()
    return torch.cat([net(x) for x in rows], 0).detach().cpu().numpy()


def cut_in_each_turn(net, rows):
    net.eval()
    return torch.cat([net(x).detach() for x in rows], 0).cpu().numpy()


def bound_to_a_name(net, rows):
    net.eval()
    for x in rows:
        out = net(x)
        yield out.detach().cpu().numpy()
"""


def test_a_list_of_attached_results_keeps_the_graph_of_every_turn() -> None:
    joined, cut, bound = found(LISTED, "TML201")
    assert "the peak grows with the number of iterations" in joined.cost
    assert cut.cost.endswith("up to one extra graph at peak")
    assert "one more for each earlier result" in bound.cost


LAYERS = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(3, 512, 3)
        self.head = nn.Linear(512, 1000)

    def features(self, x):
        return self.body(x).mean((2, 3))

    def classify(self, x):
        return self.head(self.features(x))


def evaluate(loader, again):
    model = Model()
    model.eval()
    kept = []
    for x in loader:
        kept.append(model.classify(x))
    for x in again:
        hidden = model.features(x)
        kept.append(model.head(hidden))
    return kept
"""


def test_a_forward_through_methods_of_a_module_is_one_finding_at_the_outermost_call() -> None:
    """The network runs four layers in two loops: one cause, with the second loop in the flow."""
    (finding,) = found(LAYERS, "TML201")
    rows = LAYERS.splitlines()
    assert finding.message.startswith("`model.classify(…)`")
    assert rows[finding.span.start.row - 1].strip() == "kept.append(model.classify(x))"
    assert "hidden = model.features(x)" in [rows[step.span.start.row - 1].strip() for step in finding.flow]


UNREAD = """
import torch
from torch import nn


def answer(loader, docs):
    model = nn.Conv2d(3, 64, 3).cuda()
    model.eval()
    for x in loader:
        y = model(x.cuda())
        {use}


answer(torch.utils.data.DataLoader([torch.rand(3, 32, 32)] * 100), "abc")
"""


@pytest.mark.parametrize("use", ["pass", "z = y"])
def test_a_result_that_feeds_only_unread_names_is_unread(use: str) -> None:
    (found,) = check_source(UNREAD.format(use=use))
    assert "nothing reads its result" in found.message


@pytest.mark.parametrize("use", ["print([docs[row] for row in y])", "if docs[y]: break", "z = y; docs[z]"])
def test_a_result_that_is_read_by_what_is_no_tensor_is_not_unread(use: str) -> None:
    (found,) = check_source(UNREAD.format(use=use))
    assert "nothing reads" not in found.message
