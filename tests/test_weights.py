"""How many parameters a network has, by the numbers in the code that makes it: the same as torch counts."""

import textwrap

import pytest
from torch import nn

from torchmemlint.index.module_facts import module_facts
from torchmemlint.index.project import FunctionRef, Project
from torchmemlint.project.settings import Settings
from torchmemlint.semantics.size.weights import Weights, weights_of
from torchmemlint.semantics.state.world import World

HEAD = "import argparse\nimport torch\nfrom torch import nn\n"


def weights(source: str, name: str = "net", function: str = "<module>") -> Weights | None:
    """What is said of a name in one file."""
    text = HEAD + textwrap.dedent(source)
    project = Project.build([module_facts("m.py", text)])
    return weights_of(World(project, Settings(), {"m.py": text}.__getitem__), FunctionRef("m.py", function), name)


def in_torch(source: str, name: str = "net") -> int:
    """What torch counts when the code runs, with the buffers of norms."""
    names: dict[str, object] = {}
    exec(HEAD + textwrap.dedent(source), names)
    net = names[name]
    assert isinstance(net, nn.Module)
    running = [buffer for key, buffer in net.named_buffers() if "running" in key]
    return sum(tensor.numel() for tensor in (*net.parameters(), *running))


RESIDUAL = """
class Block(nn.Module):
    expansion = 2

    def __init__(self, inputs, outputs, stride=1, norm=nn.BatchNorm2d):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1), norm(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs * self.expansion, kernel_size=(3, 3)), norm(outputs * self.expansion),
        )
        self.short = nn.Conv2d(inputs, outputs * self.expansion, 1) if inputs != outputs * self.expansion else None


class Net(nn.Module):
    def __init__(self, block, widths=(16, 32), depth=2, classes=10):
        super().__init__()
        self.inputs = 8
        self.stem = nn.Conv2d(3, self.inputs, 7)
        layers = []
        for place, width in enumerate(widths):
            layers.append(self.layer(block, width, depth, 2 if place else 1))
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(self.inputs, classes)
        for each in self.modules():
            if isinstance(each, nn.Conv2d):
                nn.init.kaiming_normal_(each.weight)

    def layer(self, block, width, depth, stride):
        made = [block(self.inputs, width, stride)]
        self.inputs = width * block.expansion
        made += [block(self.inputs, width) for _ in range(1, depth)]
        return nn.Sequential(*made)


def make(depth):
    return Net(Block, depth=depth)


net = make(3).to("cpu")
"""
SEQUENCE = """
WIDTH = 24
options = argparse.Namespace(layers=2, heads=4)


class Tagger(nn.Module):
    def __init__(self, words, width, layers):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.body = nn.LSTM(width, width // 2, layers, bidirectional=True)
        self.gate = nn.GRUCell(width, width)
        self.norm = nn.LayerNorm(width)
        self.scale = nn.Parameter(torch.ones(width, 3))
        self.shift = nn.Parameter(torch.empty(size=(width, 5)))
        self.bias = nn.Parameter(torch.full((3, 7), 0.5))
        self.one = nn.Parameter(torch.zeros(()))


net = Tagger(50, WIDTH, options.layers)
"""
ATTENTION = """
class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(16, 4)
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, dim_feedforward=32), num_layers=3)
        self.moved = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4).to("cpu"), num_layers=2)


net = Reader()
"""
EMPTY = """
net = nn.Sequential(nn.Embedding(0, 8), nn.Linear(8, 0), nn.Linear(0, 3))
"""


@pytest.mark.parametrize(("source", "slack"), [(RESIDUAL, 0.0), (SEQUENCE, 0.05), (ATTENTION, 0.05), (EMPTY, 0.0)])
def test_the_count_is_a_bound_and_near(source: str, slack: float) -> None:
    found = weights(source)
    assert found is not None
    real = in_torch(source)
    assert real <= found.count <= real * (1 + slack)


def test_layers_over_positions_are_recognized() -> None:
    kinds = [weights(source) for source in (RESIDUAL, SEQUENCE, ATTENTION)]
    assert [kind is not None and kind.spatial for kind in kinds] == [True, False, True]


def test_an_option_counts_with_its_default() -> None:
    source = """
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden-size", type=int, default=32)
    args = parser.parse_args([])
    net = nn.Sequential(nn.Linear(4, args.hidden_size), nn.Linear(args.hidden_size, 2))
    """
    assert weights(source) == Weights(4 * 32 + 32 + 32 * 2 + 2, False)


def test_either_branch_of_an_unknown_test_counts() -> None:
    source = """
    class Net(nn.Module):
        def __init__(self, deep):
            super().__init__()
            if deep:
                self.body = nn.Linear(10, 10)
            else:
                self.body = nn.Linear(10, 1)

    def main(deep):
        net = Net(deep)
        return net
    """
    assert weights(source, function="main") == Weights(110 + 11, False)


@pytest.mark.parametrize(
    "made",
    [
        "nn.Linear(width, 10)",
        "nn.Sequential(*[nn.Linear(8, 8) for _ in range(width)])",
        "make_of(width)",
        "getattr(nn, width)(3, 4)",
        "timm.create_model('resnet18')",
        "nn.LazyLinear(10)",
        "nn.ParameterList([nn.Parameter(torch.empty(size=width))])",
        "nn.ParameterList([nn.Parameter(torch.arange(4.0))])",
    ],
)
def test_what_is_not_known_has_no_count(made: str) -> None:
    assert weights(f"import timm\ndef main(width, make_of):\n    net = {made}\n    return net\n", function="main") is None


def test_a_network_is_found_where_callers_make_it() -> None:
    source = """
    class Trainer:
        def __init__(self, net):
            self.net = net

        def run(self):
            return self.net(torch.zeros(4))

    def main():
        small = nn.Linear(4, 4).cuda()
        return Trainer(small).run()
    """
    assert weights(source, "self.net", "Trainer.run") == Weights(20, False)


def test_constructors_that_do_not_end_are_left() -> None:
    source = """
    class Net(nn.Module):
        def __init__(self, depth):
            super().__init__()
            self.inner = Net(depth + 1)

    net = Net(0)
    """
    assert weights(source) is None
