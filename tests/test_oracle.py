"""torch is the judge: small programs are generated and run, and what the engine commits to must be what torch does.

Where the engine says that a value has no graph, no run may show one; where it says that there is a graph, some run must show
one; where it says that grad mode is on or off, every run must agree. "Unknown" and "maybe" are always allowed.
"""

from __future__ import annotations

import os
import random
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from probes import revealed

torch = pytest.importorskip("torch")

RUNS = 12
MORE_RUNS = 300
"""Runs of a program, and those that look for a claimed graph that the first did not show."""
TENSORS = ("t0", "t1", "t2")
TOTALS = ("a0", "a1")

HEAD = """\
import contextlib

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.last = None

    def forward(self, x):
        hidden = torch.relu(self.layer(x))
        reveal(hidden)
        return {net_result}


class Box:
    def __init__(self):
        self.value = torch.ones(2, 2)

    def keep(self, value):
        self.value = {kept}

    def read(self):
        return self.value


{decorator}
def helper(x, layer):
    y = {helper_body}
    reveal(y)
    reveal()
    return y


def each(x, layer):
    for _ in range(2):
        x = {step}
        yield x


def early(x, flag, layer):
    if flag:
        return {early}
    return x


def program(c, n, train):
    model = nn.Linear(2, 2)
    net = Net()
    box = Box()
    criterion = nn.MSELoss()
    t0 = torch.ones(2, 2)
    t1 = model(t0)
    t2 = torch.zeros(2, 2)
    a0 = 0
    a1 = {total}
    kept = [torch.ones(2, 2)]
    named = {{"k": torch.ones(2, 2)}}
"""

TAIL = """\
    reveal(t0)
    reveal(t1)
    reveal(t2)
    reveal(a0)
    reveal(a1)
    reveal(kept[0])
    reveal(kept[-1])
    reveal(named["k"])
    reveal(box.value)
    reveal()
"""

UNARY = (
    "{0} * 2",
    "{0} + 1",
    "-{0}",
    "torch.relu({0})",
    "F.relu({0})",
    "{0}.relu()",
    "{0}.softmax(-1)",
    "{0}.clone()",
    "{0}.cpu() * 1",
    "{0}.float() * 1",
    "{0}.t()",
    "{0}.view(2, 2)",
    "{0}[:, [1, 0]]",
    "{0}.mean().expand(2, 2)",
    "{0}.round()",
    "{0}.contiguous() * 1",
    "torch.as_tensor({0}) * 1",
    "{0}.detach()",
    "{0}.data",
    "{0}.detach().cpu()",
    "{0}.clone().detach() + 0",
    "({0} > 0).float()",
    "{0}.long().float()",
    "{0}.argmax(1).float().expand(2, 2)",
    "torch.zeros_like({0})",
    "torch.tensor({0}.tolist())",
    "torch.from_numpy({0}.detach().numpy())",
    "torch.full((2, 2), {0}.sum().item())",
    "torch.full((2, 2), float({0}.mean()))",
    "(lambda v: v * 2)({0})",
    "(lambda v: v.detach())({0})",
    "{0}.max(1).values.expand(2, 2)",
    "{0}.max(1)[0].expand(2, 2)",
    "{0}.max(1)[1].float().expand(2, 2)",
    "{0}.new_zeros(2, 2)",
    "F.one_hot({0}.argmax(1), 2).float()",
    "{0}.masked_fill({0} > 0, 0.0)",
    "{0}.chunk(2)[0].expand(2, 2)",
    "sum([v for v in {0}]).expand(2, 2)",
    "model({0})",
    "net({0})",
    "net.layer({0})",
    "nn.ReLU()({0})",
    "helper({0}, model)",
    "early({0}, c(1), model)",
    "list(each({0}, model))[-1]",
    "[u * 2 for u in [{0}]][0]",
    "dict(one={0})['one']",
    "({0}, 1)[0]",
)
BINARY = (
    "{0} + {1}",
    "{0} * {1}",
    "{0} @ {1}",
    "torch.stack([{0}, {1}]).mean(0)",
    "torch.cat([{0}, {1}])[:2]",
    "torch.cat(({0}, {1}))[:2]",
    "torch.where({0} > 0, {0}, {1})",
    "({0} if c(2) else {1})",
    "{0}.lerp({1}, 0.5)",
    "torch.maximum({0}, {1})",
    "{0} + {1}.sum()",
    "{0} + {1}.sum().item()",
    "{0} + {1}.detach()",
    "{0}.new_tensor({1}.tolist())",
    "(({0}, {1})[0] + 1)",
    "{1}.type_as({0}) * 1",
    "{1}.to({0}) * 1",
)
OTHERS = (
    "torch.ones(2, 2)",
    "torch.rand(2, 2)",
    "model.weight * 1",
    "model.weight.data",
    "kept[0]",
    "kept[-1]",
    "sum(kept)",
    "torch.stack(kept).sum(0)",
    "named['k']",
    "box.value",
    "box.read()",
)
SCALARS = ("{0}.sum()", "{0}.mean()", "criterion({0}, {1})", "F.mse_loss({0}, {1})", "{0}.norm()", "{0}.max()", "{0}[0, 0]")
NUMBERS = (
    "{0}.sum().item()",
    "float({0}.mean())",
    "{0}.tolist()[0][0]",
    "{0}.argmax().item()",
    "{0}.mean().detach()",
    "len({0})",
)
MANAGERS = (
    "torch.no_grad()",
    "torch.no_grad()",
    "torch.enable_grad()",
    "torch.set_grad_enabled(False)",
    "torch.set_grad_enabled(True)",
    "torch.set_grad_enabled(c(3))",
    "torch.set_grad_enabled(train)",
    "torch.autocast('cpu', enabled=False)",
    "contextlib.nullcontext()",
    "torch.no_grad() if c(4) else contextlib.nullcontext()",
)


@dataclass
class Writer:
    """Draws a program; every variable keeps its type, so that runs rarely fail."""

    draw: Callable[[st.SearchStrategy], object]
    lines: list[str] = field(default_factory=list)
    left: int = 14

    def one_of(self, options: tuple[str, ...]) -> str:
        return self.draw(st.sampled_from(options))  # type: ignore[return-value]

    def number(self, most: int) -> int:
        return self.draw(st.integers(0, most))  # type: ignore[return-value]

    def tensor(self, depth: int = 2) -> str:
        kind = self.number(3) if depth else 0
        if kind == 0:
            return self.one_of(TENSORS)
        if kind == 1:
            return self.one_of(OTHERS)
        if kind == 2:
            return self.one_of(UNARY).format(self.operand(depth - 1))
        return self.one_of(BINARY).format(self.operand(depth - 1), self.operand(depth - 1))

    def operand(self, depth: int) -> str:
        text = self.tensor(depth)
        return text if text.isidentifier() else f"({text})"

    def filled(self, options: tuple[str, ...]) -> str:
        return self.one_of(options).format(self.operand(1), self.operand(1))

    def put(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def block(self, depth: int, most: int, loop: bool = False) -> None:
        self.statement(depth, loop)
        for _ in range(self.number(most)):
            if self.left > 0:
                self.statement(depth, loop)

    def statement(self, depth: int, loop: bool) -> None:
        self.left -= 1
        kinds = [self.assign, self.assign, self.total, self.keep, self.look]
        if depth < 4 and self.left > 0:
            kinds += [self.branch, self.loop, self.managed, self.managed, self.attempt, self.train]
        if depth == 1:
            kinds += [self.switch, self.freeze]
        if loop:
            kinds += [self.leave]
        self.draw(st.sampled_from(kinds))(depth)  # type: ignore[operator]

    def assign(self, depth: int) -> None:
        target = self.one_of(TENSORS)
        if self.number(6) == 0:
            self.put(depth, f"{target}, {self.one_of(TENSORS)} = {self.tensor()}, {self.tensor()}")
        else:
            self.put(depth, f"{target} = {self.tensor()}")

    def total(self, depth: int) -> None:
        total = self.one_of(TOTALS)
        term = self.filled(SCALARS if self.number(2) else NUMBERS)
        forms = (
            "{0} += {1}",
            "{0} = {0} + {1}",
            "{0} = 0.9 * {0} + 0.1 * {1}",
            "{0} -= {1}",
            "{0} = {1}",
            "{0} = float({0})",
            "{0} = 0",
        )
        self.put(depth, self.one_of(forms).format(total, term))

    def keep(self, depth: int) -> None:
        forms = (
            "kept.append({0})",
            "kept = [{0}]",
            "kept += [{0}]",
            "kept.extend([{0}, t0])",
            "kept[0] = {0}",
            "kept = [v.detach() for v in kept]",
            "kept = [v * 1 for v in kept]",
            "named['k'] = {0}",
            "named.update(k={0})",
            "named = {{'k': {0}}}",
            "named = {{k: v.clone() for k, v in named.items()}}",
            "box.keep({0})",
            "box.value = {0}",
        )
        self.put(depth, self.one_of(forms).format(self.tensor()))

    def look(self, depth: int) -> None:
        self.put(depth, self.one_of((*(f"reveal({name})" for name in (*TENSORS, *TOTALS)), "reveal()")))

    def branch(self, depth: int) -> None:
        test = self.one_of(("c(5)", "train", "c(6) and train", "not train", "n(1) > 2", "t0 is None", "a0 is None"))
        self.put(depth, f"if {test}:")
        self.block(depth + 1, 2)
        if self.number(1):
            self.put(depth, "else:")
            self.block(depth + 1, 2)

    def loop(self, depth: int) -> None:
        heads = (
            "for i in range(n(1)):",
            "while c(7):",
            "for x in [t0, t1][: n(2)]:",
            "for i, x in zip(range(n(2)), [t0, t1]):",
            "for i, v in enumerate(kept[:3]):",
        )
        self.put(depth, self.one_of(heads))
        self.block(depth + 1, 3, loop=True)

    def leave(self, depth: int) -> None:
        self.put(depth, "if c(8):")
        self.put(depth + 1, self.one_of(("break", "continue")))

    def managed(self, depth: int) -> None:
        self.put(depth, f"with {self.one_of(MANAGERS)}:")
        self.block(depth + 1, 2)
        self.put(depth + 1, "reveal()")

    def attempt(self, depth: int) -> None:
        self.put(depth, "try:")
        self.block(depth + 1, 1)
        self.put(depth + 1, "boom()")
        self.block(depth + 1, 1)
        self.put(depth, self.one_of(("except ValueError:", "except Exception:", "finally:")))
        self.block(depth + 1, 1)

    def train(self, depth: int) -> None:
        self.put(
            depth,
            f"loss = criterion({self.one_of(('model', 'net'))}({self.one_of(('t0', 't2', 'torch.ones(2, 2)'))}), t2.detach())",
        )
        self.put(depth, "if loss.requires_grad:")
        self.put(depth + 1, "loss.backward(retain_graph=True)")

    def switch(self, depth: int) -> None:
        self.put(depth, f"torch.set_grad_enabled({self.one_of(('True', 'False', 'train'))})")

    def freeze(self, depth: int) -> None:
        forms = ("model.requires_grad_(False)", "for p in net.parameters(): p.requires_grad = False")
        self.put(depth, self.one_of(forms))


@st.composite
def programs(draw: Callable[[st.SearchStrategy], object]) -> str:
    writer = Writer(draw)
    head = HEAD.format(
        net_result=writer.one_of(("hidden", "hidden", "hidden.detach()", "self.layer(hidden) + x", "x.detach() * 2")),
        kept=writer.one_of(("value", "value.detach()", "value + self.value")),
        decorator=writer.one_of(("", "", "@torch.no_grad()", "@torch.enable_grad()", "@torch.no_grad")),
        helper_body=writer.one_of(("layer(x)", "x * 2", "layer(x).detach()", "x")),
        step=writer.one_of(("layer(x)", "x * 2", "x.detach()")),
        early=writer.one_of(("layer(x)", "x.detach()")),
        total=writer.one_of(("0.0", "torch.zeros(())", "0")),
    )
    writer.block(1, 9)
    return head + "\n".join(writer.lines) + "\n" + TAIL


class Boom(ValueError):
    """What a program's ``try`` may meet."""


@dataclass
class Observed:
    """What runs showed: row → whether there was a graph, and grad modes; ``failed`` when a run ended in an error."""

    graphs: dict[int, set[bool]] = field(default_factory=dict)
    modes: dict[int, set[str]] = field(default_factory=dict)
    failed: str = ""


def run_once(code: object, seed: int, seen: Observed) -> None:
    chance = random.Random(seed)

    def reveal(*values: object) -> None:
        row = sys._getframe(1).f_lineno
        if not values:
            seen.modes.setdefault(row, set()).add("grad on" if torch.is_grad_enabled() else "grad off")
        else:
            value = values[0]
            seen.graphs.setdefault(row, set()).add(isinstance(value, torch.Tensor) and value.grad_fn is not None)

    def boom() -> None:
        if chance.random() < 0.5:
            raise Boom

    budget = iter(range(60))

    def c(_: int) -> bool:
        return chance.random() < 0.5 and next(budget, None) is not None

    space = {"reveal": reveal, "boom": boom, "__name__": "program"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(code, space)  # type: ignore[arg-type]
            space["program"](c, lambda _: chance.choice((0, 1, 2, 4)), chance.random() < 0.5)  # type: ignore[operator]
    except Boom:
        pass
    except Exception as error:
        seen.failed = f"{type(error).__name__}: {error}"
    finally:
        torch.set_grad_enabled(True)


def disagreements(text: str) -> list[str]:
    claims = revealed(text, ("program",))
    code = compile(text, "<program>", "exec")
    seen = Observed()
    for seed in range(RUNS):
        run_once(code, seed, seen)
    out = unsound(claims, seen)
    if not out and not seen.failed and exact(text):
        seed = RUNS
        while unseen(claims, seen) and seed < MORE_RUNS:
            run_once(code, seed, seen)
            seed += 1
        out = [] if seen.failed else unseen(claims, seen)
    return out


def exact(text: str) -> bool:
    """Whether every path that the engine sees can be taken: no statement that may or may not raise, no list (whose elements it
    does not keep apart), no test of the same thing twice."""
    body = text.partition("def program")[2].partition('named = {"k"')[2].removesuffix(TAIL)
    return "try:" not in body and "kept" not in body and body.count("train") < 2


def unsound(claims: dict[int, set[str]], seen: Observed) -> list[str]:
    """What runs showed and the engine excludes."""
    out = []
    for row, graphs in sorted(seen.graphs.items()):
        claimed = claims.get(row, set())
        if True in graphs and claimed and claimed <= {"no graph", "number"}:
            out.append(f"row {row}: claimed {claimed}, but there is a graph")
    for row, modes in sorted(seen.modes.items()):
        claimed = claims.get(row, set())
        if claimed and "grad unknown" not in claimed and not modes <= claimed:
            out.append(f"row {row}: claimed {claimed}, but torch says {modes}")
    return out


def unseen(claims: dict[int, set[str]], seen: Observed) -> list[str]:
    """What the engine is sure of and no run showed, though they came by."""
    out = []
    for row, graphs in sorted(seen.graphs.items()):
        claimed = claims.get(row, set())
        if graphs == {False} and claimed & {"graph", "graph freed"}:
            out.append(f"row {row}: claimed {claimed}, but no run has a graph")
    for row, modes in sorted(seen.modes.items()):
        claimed = claims.get(row, set()) - {"grad unknown"}
        if not claimed <= modes:
            out.append(f"row {row}: claimed {claimed}, but torch says {modes}")
    return out


NEVER_SEEN = pytest.mark.skipif(
    not os.environ.get("TORCHMEMLINT_NEVER_SEEN"),
    reason="other programs in each run: for finding faults, not for a verdict on a change; set TORCHMEMLINT_NEVER_SEEN=1",
)
"""Of tests that look at programs of their own making in each run."""

checks = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)


@pytest.mark.slow
@settings(checks, max_examples=80)
@given(programs())
def test_the_engine_and_torch_agree(text: str) -> None:
    note(text)
    assert disagreements(text) == []


@NEVER_SEEN
@settings(checks, max_examples=1500, derandomize=False)
@given(programs())
def test_the_engine_and_torch_agree_on_programs_never_seen(text: str) -> None:
    note(text)
    assert disagreements(text) == []


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({10: {"no graph"}, 11: {"grad on"}}, ["row 10: claimed {'no graph'}, but there is a graph"]),
        ({10: {"graph"}, 11: {"grad off"}}, ["row 11: claimed {'grad off'}, but torch says {'grad on'}"]),
        ({10: {"maybe graph"}, 11: {"grad unknown"}}, []),
    ],
)
def test_the_judge_sees_a_wrong_claim(wrong: dict[int, set[str]], expected: list[str]) -> None:
    seen = Observed(graphs={10: {True, False}}, modes={11: {"grad on"}})
    assert unsound(wrong, seen) == expected


def test_the_judge_asks_for_a_claimed_graph() -> None:
    seen = Observed(graphs={10: {False}, 11: {False, True}})
    assert unseen({10: {"graph"}, 11: {"graph"}}, seen) == ["row 10: claimed {'graph'}, but no run has a graph"]
