"""How many parameters torch's layers have, by what their constructors are given (docs.pytorch.org/docs/stable/nn.html)."""

from __future__ import annotations

import math
from collections.abc import Callable

from torchmemlint.torch_facts import TORCH

CONVOLUTIONS, TRANSPOSED = TORCH.words["sized-convolutions"], TORCH.words["sized-transposed-convolutions"]
ATTENTION = TORCH.words["sized-attention"]
GATES = {
    **dict.fromkeys(TORCH.words["one-gate-layers"], 1),
    **dict.fromkeys(TORCH.words["three-gate-layers"], 3),
    **dict.fromkeys(TORCH.words["four-gate-layers"], 4),
}
"""Recurrent layers → gates, each of which has weights of its own."""
TRANSFORMERS = {
    **dict.fromkeys(TORCH.words["sized-encoder-layers"], 1),
    **dict.fromkeys(TORCH.words["sized-decoder-layers"], 2),
}
"""Layers of transformers → attentions in each."""
STACKS = TORCH.words["sized-stacks"]
SPATIAL = CONVOLUTIONS.union(TRANSPOSED, ATTENTION, TRANSFORMERS, STACKS, TORCH.words["whole-transformers"])


class Unbounded(Exception):
    """A number is not known on which the count depends."""


def parameters_of_layer(name: str, args: list[object], keywords: dict[str, object], inner: int) -> int:
    """The parameters that a layer adds to those of the modules that it is given (``inner``); buffers of norms are counted as well."""
    last = name.rpartition(".")[2]
    formula = FORMULAS.get(last)
    if formula is None:
        raise Unbounded(name)
    return formula(last, Given(args, keywords), inner)


def is_spatial(name: str) -> bool:
    """Whether a layer goes over the positions of its input: it saves as much as that is large."""
    return name.rpartition(".")[2] in SPATIAL


def none(last: str, given: Given, inner: int) -> int:
    return 0


def linear(last: str, given: Given, inner: int) -> int:
    return (given.number(0, "in_features") + 1) * given.number(1, "out_features")


def table(last: str, given: Given, inner: int) -> int:
    return given.number(0, "num_embeddings") * given.number(1, "embedding_dim")


def convolution(last: str, given: Given, inner: int) -> int:
    window = given.window(2, "kernel_size", int(last[-2]))
    groups = given.number(7 if last in TRANSPOSED else 6, "groups", 1) or 1
    return (given.number(0, "in_channels") * window // groups + 1) * given.number(1, "out_channels")


def group_norm(last: str, given: Given, inner: int) -> int:
    return 2 * given.number(1, "num_channels")


def norm(last: str, given: Given, inner: int) -> int:
    return 4 * given.entries(0, "num_features")


def shape_norm(last: str, given: Given, inner: int) -> int:
    return 4 * given.entries(0, "normalized_shape")


def recurrent(last: str, given: Given, inner: int) -> int:
    size, hidden = given.number(0, "input_size"), given.number(1, "hidden_size")
    if last.endswith("Cell"):
        return GATES[last] * hidden * (size + hidden + 2)
    layers = given.number(2, "num_layers", 1)
    both = 2 if given.keywords.get("bidirectional", False) is not False else 1
    first = GATES[last] * hidden * (size + hidden + 2)
    return both * (first + (layers - 1) * GATES[last] * hidden * (both * hidden + hidden + 2))


def attention(last: str, given: Given, inner: int) -> int:
    size = given.number(0, "embed_dim")
    return 4 * size * (size + 1)


def transformer_layer(last: str, given: Given, inner: int) -> int:
    size, wide = given.number(0, "d_model"), given.number(2, "dim_feedforward", 2048)
    return 4 * TRANSFORMERS[last] * size * (size + 1) + 2 * size * wide + wide + 13 * size


def stack(last: str, given: Given, inner: int) -> int:
    return inner * (given.number(1, "num_layers") - 1)


def activation(last: str, given: Given, inner: int) -> int:
    return given.number(0, "num_parameters", 1)


FORMULAS: dict[str, Callable[[str, Given, int], int]] = {
    **dict.fromkeys(TORCH.words["weightless-containers"], none),
    **dict.fromkeys(TORCH.words["sized-linear-layers"], linear),
    **dict.fromkeys(TORCH.words["sized-tables"], table),
    **dict.fromkeys(CONVOLUTIONS | TRANSPOSED, convolution),
    **dict.fromkeys(TORCH.words["sized-norms"], norm),
    **dict.fromkeys(TORCH.words["sized-shape-norms"], shape_norm),
    **dict.fromkeys(TORCH.words["sized-group-norms"], group_norm),
    **dict.fromkeys(GATES, recurrent),
    **dict.fromkeys(ATTENTION, attention),
    **dict.fromkeys(TRANSFORMERS, transformer_layer),
    **dict.fromkeys(STACKS, stack),
    **dict.fromkeys(TORCH.words["sized-activations"], activation),
}
"""Layer, by its last name → its formula."""


class Given:
    """The arguments of a layer."""

    def __init__(self, args: list[object], keywords: dict[str, object]) -> None:
        self.args = args
        self.keywords = keywords

    def value(self, place: int, name: str) -> object:
        return self.args[place] if place < len(self.args) else self.keywords.get(name)

    def number(self, place: int, name: str, default: int | None = None) -> int:
        found = self.value(place, name)
        if found is None and default is not None:
            return default
        if not isinstance(found, (int, float)) or isinstance(found, bool) or found != int(found) or found < 0:
            raise Unbounded(f"{name} {found}")
        return int(found)

    def window(self, place: int, name: str, dimensions: int) -> int:
        found = self.value(place, name)
        if isinstance(found, (list, tuple)):
            return entries_of(found)
        return int(self.number(place, name) ** dimensions)

    def entries(self, place: int, name: str) -> int:
        return entries_of(self.value(place, name))


def entries_of(shape: object) -> int:
    """The entries of a tensor of a shape."""
    sizes = list(shape) if isinstance(shape, (list, tuple)) else [shape]
    if not all(isinstance(size, int) and size >= 0 for size in sizes):
        raise Unbounded
    return math.prod(sizes)
