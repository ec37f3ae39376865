"""Inputs that a model's forward takes, found by trying.

Each unknown size is a number of its own, so that a layer or an error that names it says which one has to change, and to what.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import linecache
import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

BATCH = 5
"""Examples while the sizes are looked for."""
_PRIMES = (
    101,
    103,
    107,
    109,
    113,
    127,
    131,
    137,
    139,
    149,
    151,
    157,
    163,
    167,
    173,
    179,
    181,
    191,
    193,
    197,
    199,
    211,
    223,
    227,
)
SIDES = (224, 256, 32, 64, 128, 28, 512, 96, 84, 16)
"""Widths of pictures, the likeliest first."""
LENGTHS = (128, 256, 64, 512, 16, 77, 32, 1024)
"""Lengths of sequences."""
MOST_TRIES = 40
MOST_PAIRS = 24
_TIMES = re.compile(
    r"^(t|ts|r|times?|time_?steps?|t_emb|sigmas?|noise_(levels?|labels?)|c_noise|steps?|diffusion_steps?|lengths?|\w*_lens?|\w*_lengths?)$",
    re.I,
)
_CLASSES = re.compile(r"^(y|labels?|class_?(labels?|ids?)|targets?)$", re.I)
_IDS = re.compile(r"^(\w*_?ids?|idx|indices|tokens?|\w*_tokens?|src|tgt|x_ids|captions?|text|sentences?|words?|seq)$", re.I)
_MASKS = re.compile(r"mask", re.I)
_FIRST = ("input_ids", "pixel_values", "input_features", "input_values", "sample", "hidden_states")
"""What models of libraries take first, where every parameter of their forward has a default."""
_OF_SIZES = re.compile(
    r"(?i)(img|image|input|crop|sample|resolution|side|height|width|length|(^|_)len|window|block_size|context|horizon|seq|positions|"
    r"frames|^size$|n_ctx|max_)"
)
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_RANK = (
    re.compile(r"to unpack \(expected (\d)"), re.compile(r"equal to len\(dims\) = (\d)"), re.compile(r"expected (\d) dims"),
    re.compile(r"[Ee]xpected (\d)D? ?(?:or \dD )?(?:\(|input|tensor|-D|dim)"), re.compile(r"(\d)-D(?:imensional)? (?:input|tensor)"),
)  # fmt: skip
_TOO_FEW = re.compile(r"[Dd]imension out of range|index out of range|too many indices|dimension specified as")
_CHANNELS = re.compile(r"to have (\d+) channels, but got (\d+)")
_MATCH = re.compile(
    r"Expected(?: size)? (\d+)(?: in dimension \d+)? but got(?: size)? (\d+)|a \((\d+)\) must match .* b \((\d+)\)"
)
_TARGET = re.compile(r"input batch_size \((\d+)\) to match target batch_size \((\d+)\)")
_PRODUCT = re.compile(r"\(\d+x(\d+) and (\d+)x\d+\)")
_BROADCAST = re.compile(r"length (\d+) at (-\d+)!.*broadcastable to \[([\d, ]+)\]")
_TOO_MANY = re.compile(r"repeat dims can not be smaller|must be (?:1D|1-D|a vector)")
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(slots=True)
class Input:
    """One tensor: its sizes, and the places of those that are known."""

    name: str
    dtype: torch.dtype
    sizes: list[int]
    known: set[int] = field(default_factory=set)
    counted: bool = False
    """Whether an embedding got it: it stays one of whole numbers."""

    @property
    def open(self) -> list[int]:
        """The places of sizes that nothing has decided, but for the batch's."""
        return [at for at in range(1, len(self.sizes)) if at not in self.known]

    @property
    def pictured(self) -> bool:
        """Whether the open sizes are those of a picture or a volume: two or more, behind the channels."""
        return (
            len(self.sizes) > 3
            and len(self.open) > 1
            and self.open == list(range(len(self.sizes) - len(self.open), len(self.sizes)))
        )


class _Wrong(Exception):
    """A layer got a tensor that it does not take: its sizes have been changed."""


class Search:
    """Looks for the inputs of one model."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._tags = itertools.cycle(_PRIMES)
        self.inputs = [self._first(name) for name in _required(model)]
        if [item.name for item in self.inputs] == ["input_ids", "labels"]:
            self.inputs[1].sizes = list(self.inputs[0].sizes)
        self.error = "its forward takes no tensor"
        self._tensors: list[torch.Tensor] = []

    def _first(self, name: str) -> Input:
        """What a parameter is taken for at first: by its name, else by the model's first layer."""
        if _TIMES.match(name) or _CLASSES.match(name):
            return Input(name, torch.int64, [BATCH])
        if _IDS.match(name):
            return Input(name, torch.int64, [BATCH, next(self._tags)])
        if _MASKS.search(name):
            return Input(name, torch.float32, [BATCH, next(self._tags)])
        rank, dtype = _by_layers(self._model)
        return Input(name, dtype, [BATCH, *(next(self._tags) for _ in range(rank - 1))])

    # -- trying
    def found(self) -> bool:
        """Look for sizes that the forward takes: whether there are any."""
        if not self.inputs:
            return False
        worked = self._corrected(MOST_TRIES)
        kept = [(list(item.sizes), set(item.known), item.dtype) for item in self.inputs]
        if worked and not any(item.open for item in self.inputs):
            return True
        for side, length in itertools.islice(self._pairs(), MOST_PAIRS):
            for features in dict.fromkeys((length, 1) if any(item.open[:2] == [1, 2] for item in self.inputs) else (length,)):
                for item, (sizes, known, dtype) in zip(self.inputs, kept, strict=True):
                    item.sizes, item.known, item.dtype = list(sizes), set(known), dtype
                    for at in item.open:
                        item.sizes[at] = side if item.pictured else features if at == 2 else length
                if self._corrected(4):
                    return True
        return False

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Sides of pictures and lengths of sequences to try: first those that the model names."""
        named = list(dict.fromkeys(_named_sizes(self._model)))
        sides = list(dict.fromkeys([*named, *SIDES])) if any(item.pictured for item in self.inputs) else [0]
        lengths = (
            list(dict.fromkeys([*named, *LENGTHS])) if any(item.open and not item.pictured for item in self.inputs) else [0]
        )
        if sides == [0] or lengths == [0]:
            return itertools.product(sides, lengths)
        return iter([*itertools.product(sides, lengths[:1]), *itertools.product(sides[:2], lengths[1:])])

    def _corrected(self, tries: int) -> bool:
        """Run the forward, with its inputs corrected as often as an error says how."""
        for _ in range(tries):
            before = self._state()
            error = self._run()
            if error is None:
                return True
            if not isinstance(error, _Wrong):
                self.error = f"{type(error).__name__}: {error}".splitlines()[0]
                if not self._understood(error):
                    return False
            if self._state() == before:
                return False
        return False

    def _state(self) -> list[Any]:
        return [(list(item.sizes), item.dtype, set(item.known), item.counted) for item in self.inputs]

    def _run(self) -> Exception | None:
        self._tensors = [torch.zeros(item.sizes, dtype=item.dtype) for item in self.inputs]
        hook = register_module_forward_pre_hook(self._into)
        try:
            with torch.no_grad():
                self._model(*self._tensors) if self._by_place() else self._model(**self.named())
        except Exception as error:
            return error
        finally:
            hook.remove()
        return None

    def named(self) -> dict[str, torch.Tensor]:
        """The tensors by their names."""
        return {item.name: tensor for item, tensor in zip(self.inputs, self._tensors, strict=True)}

    def _by_place(self) -> bool:
        return not {item.name for item in self.inputs} <= set(inspect.signature(self._model.forward).parameters)

    # -- what a layer wants
    def _into(self, layer: Any, given: Any) -> None:
        if not given or not isinstance(given[0], torch.Tensor):
            return
        nn, tensor = torch.nn, given[0]
        if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
            for item in self._like(tensor):
                item.counted = True
                self._typed(item, torch.int64)
            return
        wanted = _wanted(layer)
        if wanted is None:
            return
        rank, at, size = wanted
        if rank and tensor.dim() != rank:
            self._ranked(self._like(tensor)[:1], rank - tensor.dim())
            raise _Wrong
        if tensor.size(at) != size and self._sized(tensor.size(at), size):
            raise _Wrong
        for item in [] if tensor.is_floating_point() else self._like(tensor):
            if not item.counted:
                self._typed(item, torch.float32)

    def _typed(self, item: Input, dtype: torch.dtype) -> None:
        if item.dtype != dtype:
            item.dtype = dtype
            raise _Wrong

    def _like(self, tensor: torch.Tensor) -> list[Input]:
        """The inputs that a tensor was made of: itself, else those with a size of its own."""
        sizes = set(tensor.shape)
        return (
            self._mine(tensor)
            or [item for item in self.inputs if any(item.sizes[at] in sizes for at in item.open)]
            or (self.inputs if len(self.inputs) == 1 else [])
        )

    def _sized(self, got: int, size: int) -> bool:
        """Make every open size ``got`` this size; whether there was one."""
        places = [(item, at) for item in self.inputs for at in item.open if item.sizes[at] == got]
        for item, at in places:
            item.sizes[at] = size
            item.known.add(at)
        return bool(places)

    def _alike(self, one: int, other: int) -> bool:
        """Make two open sizes the same, if both are open."""
        places = [(item, at) for item in self.inputs for at in item.open if item.sizes[at] == other]
        if one == other or not any(item.sizes[at] == one for item in self.inputs for at in item.open):
            return False
        for item, at in places:
            item.sizes[at] = one
        return bool(places)

    def _ranked(self, inputs: Sequence[Input], more: int) -> bool:
        """Give an input more dimensions, or fewer."""
        for item in inputs:
            if not 0 < len(item.sizes) + more < 7:
                return False
            if more < 0:
                del item.sizes[more:]
            item.sizes += [next(self._tags) for _ in range(more)]
            item.known = {at for at in item.known if at < len(item.sizes)}
        return bool(inputs) and bool(more)

    # -- what an error says
    def _understood(self, error: Exception) -> bool:
        text = str(error)
        if any(word in text for word in ("dtype", "Long", "long int", "scalar type", "Float")):
            for item in self.inputs:
                if item.dtype == torch.int64 and not item.counted:
                    item.dtype = torch.float32
                    return True
        for pattern in _RANK:
            match = pattern.search(text)
            if match is not None:
                blamed = self._blamed(error)
                return self._ranked(blamed, int(match[1]) - len(blamed[0].sizes))
        if _TOO_FEW.search(text):
            return self._ranked(self._blamed(error), 1)
        if _TOO_MANY.search(text):
            return self._ranked(self._blamed(error), -1)
        target = _TARGET.search(text)
        if target is not None:
            return self._ranked(self.inputs[-1:], 1 if int(target[1]) > int(target[2]) else -1)
        match = _MATCH.search(text)
        if match is not None:
            one, other = (int(number) for number in match.groups() if number is not None)
            return self._alike(one, other) or self._sized(other, one) or self._sized(one, other)
        channels = _CHANNELS.search(text)
        if channels is not None:
            return self._sized(int(channels[2]), int(channels[1]))
        product = _PRODUCT.search(text)
        if product is not None:
            return self._sized(int(product[1]), int(product[2]))
        broadcast = _BROADCAST.search(text)
        if broadcast is not None:
            one, other = int(broadcast[1]), int(broadcast[3].split(", ")[int(broadcast[2])])
            return self._sized(other, one) or self._sized(one, other)
        if isinstance(error, AssertionError) and any(
            [self._sized(*pair) or self._sized(*pair[::-1]) for pair in _compared(error)]
        ):
            return True
        numbers = [int(word) for word in _NUMBER.findall(text)]
        mine = {item.sizes[at] for item in self.inputs for at in item.open}
        tags = list(dict.fromkeys(number for number in numbers if number in mine))
        others = list(dict.fromkeys(number for number in numbers if number not in mine and number > 1 and number != BATCH))
        if not tags or not others or len(others) > len(tags) + 1:
            return False
        return any([self._sized(tag, others[min(at, len(others) - 1)]) for at, tag in enumerate(tags)])

    def _blamed(self, error: Exception) -> list[Input]:
        """The input that the line of an error names, or that what it names was made of; else the first."""
        frames = list(reversed(list(traceback.walk_tb(error.__traceback__))))
        for frame, row in frames:
            words = set(_WORD.findall(linecache.getline(frame.f_code.co_filename, row)))
            for found in (self._mine, self._like):
                for name, value in frame.f_locals.items():
                    if name in words and isinstance(value, torch.Tensor) and found(value):
                        return found(value)[:1]
        return self.inputs[:1]

    def _mine(self, tensor: torch.Tensor) -> list[Input]:
        return [item for item, mine in zip(self.inputs, self._tensors, strict=True) if mine is tensor]


def _required(model: Any) -> list[str]:
    """The parameters of a forward without a default; of a model of transformers its first, and what gives it a loss."""
    parameters = inspect.signature(model.forward).parameters
    found = [
        name for name, one in parameters.items()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]  # fmt: skip
    if found:
        return found
    first = next((name for name in _FIRST if name in parameters), next(iter(parameters), ""))
    return [name for name in (first, "labels") if name in parameters and (name == first or first == "input_ids")]


def _by_layers(model: Any) -> tuple[int, torch.dtype]:
    """Dimensions and type of what the first registered layer gets."""
    nn = torch.nn
    mixes = any(isinstance(layer, (nn.LayerNorm, nn.MultiheadAttention, nn.RNNBase)) for layer in model.modules())
    for layer in model.modules():
        if isinstance(layer, nn.modules.conv._ConvNd):
            return len(layer.kernel_size) + 2, torch.float32
        if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
            return 2, torch.int64
        if isinstance(layer, (nn.RNNBase, nn.MultiheadAttention)):
            return 3, torch.float32
        if isinstance(layer, nn.Linear):
            return 2 + mixes, torch.float32
    return 2, torch.float32


def _wanted(layer: Any) -> tuple[int, int, int] | None:
    """Of a layer's input: the dimensions (0 for any), the place of a size, and that size."""
    nn = torch.nn
    if isinstance(layer, nn.modules.conv._ConvNd):
        return len(layer.kernel_size) + 2, 1, layer.in_channels
    if isinstance(layer, nn.Linear):
        return 0, -1, layer.in_features
    if isinstance(layer, nn.RNNBase):
        return 3, -1, layer.input_size
    if isinstance(layer, nn.MultiheadAttention):
        return 3, -1, layer.embed_dim
    if isinstance(layer, nn.LayerNorm):
        return 0, -1, layer.normalized_shape[-1]
    return None


def _named_sizes(model: Any) -> Iterator[int]:
    """Whole numbers that a model, its parts or its configuration have under the name of a size."""
    holders = [vars(model), *(vars(one) for name, one in vars(model).items() if hasattr(one, "__dict__") and "conf" in name)]
    parts = (part for part in model.modules() if not type(part).__module__.startswith("torch.") and part is not model)
    holders += [vars(part) for part in itertools.islice(parts, 12)]
    for values in holders:
        for name, value in values.items():
            if _OF_SIZES.search(name) and "kernel" not in name and "vocab" not in name:
                for number in value if isinstance(value, (list, tuple)) else (value,):
                    if type(number) is int and 8 <= number <= 2048:
                        yield number


def _compared(error: Exception) -> list[tuple[int, int]]:
    """The pairs of whole numbers that an assertion compares."""
    frame, row = list(traceback.walk_tb(error.__traceback__))[-1]
    found: list[tuple[int, int]] = []
    try:
        line = linecache.getline(frame.f_code.co_filename, row).strip()
        for node in ast.walk(ast.parse(line)):
            if isinstance(node, ast.Compare):
                sides = [eval(ast.unparse(side), frame.f_globals, frame.f_locals) for side in (node.left, node.comparators[0])]
                pairs = zip(*sides, strict=False) if all(isinstance(side, (tuple, list)) for side in sides) else [sides]
                found += [(one, other) for one, other in pairs if type(one) is int and type(other) is int]
    except Exception:  # only a part of the statement is on this line, or it does something
        return found
    return found
