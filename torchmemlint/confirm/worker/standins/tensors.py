"""Tensors of stand-ins: each forward makes a graph of a known size, marked with the guess that it rests on."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import torch

from torchmemlint.confirm.worker.standins.frames import unpack_count
from torchmemlint.confirm.worker.standins.stage import FORWARD_BYTES, Stage

LAYERS = 4
SHAPE = (4, 4)
SHARE = 1e-3
_NETWORK = re.compile(
    r"(^|_)(model|net|network|module|encoder|decoder|generator|discriminator|critic|actor|policy|backbone|head|classifier|embedding|"
    r"embeddings|rnn|lstm|gru|transformer|bert|unet|resnet|teacher|student|agent|q|qnet|criterion|loss_fn|loss_func|fc\d*|conv\d*|linear\d*)\d*$"
)
"""Attributes that no visible line sets, and that a verb would not be called by: taken for modules (a name alone decides
nothing else)."""
_CRITERION = re.compile(r"(^|[._])(criterion|loss_fn|loss_func)\w*$")


def plain_data() -> torch.Tensor:
    """Small random numbers, of torch's own class."""
    return torch.rand(SHAPE).clamp_(0.1, 0.9)


def as_standin(stage: Stage, tensor: torch.Tensor) -> torch.Tensor:
    """The same object, from now on one that never fails."""
    if type(tensor) is torch.Tensor:
        tensor.__class__ = StandInTensor
        tensor._tml_stage = stage  # type: ignore[attr-defined]
    return tensor


def data(stage: Stage) -> torch.Tensor:
    """A batch's part: a small tensor without a graph."""
    return as_standin(stage, plain_data())


def leaves(values: object) -> list[Any]:
    """What the containers in ``values`` hold. (``torch.utils._pytree`` does the same eight times slower, and this runs
    at every operation.)"""
    found: list[Any] = []
    waiting = [values]
    while waiting:
        item = waiting.pop()
        if isinstance(item, (tuple, list)):
            waiting.extend(item[::-1])
        elif isinstance(item, dict):
            waiting.extend(item.values())
        else:
            found.append(item)
    return found


def guess_of(values: object) -> str:
    """Of what unseen callee a value was made, "" when nothing in it rests on a guess."""
    for item in leaves(values):
        if isinstance(item, StandInTensor) and "_tml_guess" in item.__dict__:
            return str(item._tml_guess)
    return ""


def made_by(tensor: torch.Tensor) -> str | None:
    """The name of the callee whose very result a tensor is, None for others."""
    return tensor.__dict__.get("_tml_made")


def marked(tensor: torch.Tensor, guess: str, direct: bool = False) -> torch.Tensor:
    """The tensor, with the name of the unseen callee that it rests on; ``direct``: the very result of that callee."""
    if guess:
        tensor._tml_guess = guess  # type: ignore[attr-defined]
        tensor._tml_direct = direct  # type: ignore[attr-defined]
    return tensor


def tensors_among(values: object) -> list[torch.Tensor]:
    """The tensors that the containers in ``values`` hold."""
    return [item for item in leaves(values) if isinstance(item, torch.Tensor)]


def forward(stage: Stage, name: str, inputs: list[torch.Tensor], guess: str = "") -> torch.Tensor:
    """What a stand-in model (or criterion) returns for ``inputs``; saves ``FORWARD_BYTES`` when grad mode is on and it
    has something to train.

    A callee that first saw a tensor with a graph is taken for one without parameters of its own, unless it is known or named as a
    network; with several tensors it is a criterion, gives a scalar and saves no more than that. One that is named as a criterion has no
    parameters, whatever it sees.
    """
    if guess and guess in stage.record.inert:
        return marked(data(stage), guess, True)
    with torch._C.DisableTorchFunctionSubclass():
        hangs = any(tensor.requires_grad for tensor in inputs)
        loses = _CRITERION.search(name) is not None
        model = (is_network(stage, name) and not loses) or not (hangs or loses)
        role = stage.roles.setdefault(name, "model" if model else "criterion" if len(inputs) > 1 or loses else "layer")
        link = link_to(stage, inputs)
        stage.record.on_forward()
        plain = plain_data()
        if role == "criterion":
            result = link.sin() + plain.mean()  # saves as good as nothing, as losses do
        else:
            result = activations(stage, stage.weight(name) if role == "model" else None, link) + plain
            stage.record.graph_forwards += result.requires_grad
    result._tml_made = name  # type: ignore[attr-defined]
    return marked(as_standin(stage, result), guess or guess_of(inputs), bool(guess))


def is_network(stage: Stage, name: str) -> bool:
    """Whether a callee that is not visible is taken for a module: a visible line makes one of it, or its name says so."""
    last = name.rsplit(".", 1)[-1]
    return last in stage.record.modules or _NETWORK.search(last) is not None


def link_to(stage: Stage, inputs: list[torch.Tensor]) -> torch.Tensor:
    """A zero (or what is as good as that) that is attached to the graphs of all inputs; nothing is saved for it."""
    total = torch.zeros(())
    for tensor in inputs:
        # Where results are compared, they are the same with a graph and without one.
        if (tensor.requires_grad or stage.record.apart) and tensor.is_floating_point():
            total = total + tensor.sum() * (_share(stage) / max(1, tensor.numel()))
    return total


def _share(stage: Stage) -> float:
    """What of its inputs and parameters is in a stand-in's result: nothing, or, where gradients are compared, as much as shows in them."""
    return SHARE if stage.record.apart else 0.0


def activations(stage: Stage, parameters: torch.Tensor | None, link: torch.Tensor) -> torch.Tensor:
    """A zero whose graph saves ``FORWARD_BYTES``, made layer by layer: without grad mode each layer is freed before the
    next, as in a model."""
    result = link
    for layer in range(LAYERS):
        size = FORWARD_BYTES // 4 // LAYERS
        start = parameters[layer * size : (layer + 1) * size] if parameters is not None else torch.full((size,), 0.5) + link
        result = result + start.exp().sum() * (_share(stage) / size)
    return result


class StandInTensor(torch.Tensor):
    """A tensor that never fails (see ``Bench``) and that may also be used as a model's output object or a batch."""

    __module__ = "torchmemlint.confirm.worker.standins"
    _tml_stage: Stage

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # reached where no Bench is active (inside the harness itself)
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        stage = next(leaf._tml_stage for leaf in leaves((args, kwargs)) if isinstance(leaf, StandInTensor))
        for item in tensors_among(result):
            as_standin(stage, item)
        return result

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("__", "_tml")):
            raise AttributeError(name)
        if name == "keys":
            return lambda: ["input_ids", "labels"]
        if name == "values":
            return lambda: [self, data(self._tml_stage)]
        if name == "items":
            return lambda: [("input_ids", self), ("labels", data(self._tml_stage))]
        if name in {"size", "shape"}:
            raise AttributeError(name)
        return part_of(self._tml_stage, self, f".{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        inputs = tensors_among((args, kwargs))
        return forward(self._tml_stage, "an item", inputs) if inputs else part_of(self._tml_stage, self, "()")

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return of_output(self._tml_stage, self, key)
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[Any]:
        count = unpack_count(sys._getframe(1))
        if count is None:
            count = SHAPE[0]
        return iter([part_of(self._tml_stage, self, f"[{index}]") for index in range(count)])

    def __bool__(self) -> bool:
        self._tml_stage.record.asked += 1
        return super().__bool__()

    def __contains__(self, item: object) -> bool:
        return True

    def __format__(self, spec: str) -> str:
        return "0.5"

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]  # torch gives it another name
        return "StandInTensor"

    def __reduce_ex__(self, protocol: Any) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return self.detach().__reduce_ex__(protocol)

    def __deepcopy__(self, memory: Any) -> Any:
        if self.grad_fn is not None:
            raise RuntimeError("Only Tensors created explicitly by the user support the deepcopy protocol at the moment")
        with torch._C.DisableTorchFunctionSubclass():
            return as_standin(self._tml_stage, self.detach().clone().requires_grad_(self.requires_grad))


def of_output(stage: Stage, output: torch.Tensor, key: str) -> torch.Tensor:
    """What a callee's result holds under a key: that it is read so, says that it is a dict."""
    name = made_by(output)
    if name is not None:
        stage.keyed.add(name)
    return part_of(stage, output, f"[{key!r}]")


def part_of(stage: Stage, tensor: torch.Tensor, which: str) -> torch.Tensor:
    """``out.logits``, ``batch["x"]``, an element of a returned tuple: a value on the same graph. Of a guess each part is one
    of its own: a callee may well return a loss with a graph and figures without."""
    guess, direct = guess_of(tensor), getattr(tensor, "_tml_direct", False)
    if guess and direct:
        guess = f"{guess}{which}"[:200]
        if guess in stage.record.inert:
            return marked(data(stage), guess, True)
    with torch._C.DisableTorchFunction():
        if tensor.is_floating_point():  # with a graph or without: the same figures
            return marked(as_standin(stage, (tensor + 0.0).as_subclass(torch.Tensor)), guess, direct)
    return marked(data(stage), guess, direct)
