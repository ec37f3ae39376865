"""What a value of the code is to an experiment: its kind, its graph, its corrected form."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map

from torchmemlint.confirm.worker.graphs import tensors_in
from torchmemlint.confirm.worker.standins import Guess, Stage, StandIn, StandInTensor
from torchmemlint.rules.card import Correction

_DETACH = frozenset({Correction.DETACH, Correction.DETACH_STATE})
_OF_VALUES = _DETACH | {Correction.HOST, Correction.CLONE, Correction.BACKWARD}


def answer(stage: Stage, test: Any) -> tuple[bool, bool]:
    """Whether a condition holds, and whether that is known: no stand-in was asked whether it is true."""
    asked = stage.record.asked
    try:
        value = test() if callable(test) and not isinstance(test, StandIn) else test
        known = not isinstance(value, (StandIn, StandInTensor, Guess))
        return bool(value), known and stage.record.asked == asked
    except Exception:
        return True, False


def kind_of(value: object) -> str:
    """What sort of value it is, in a word; "" for None."""
    if isinstance(value, torch.Tensor):
        return "tensor"
    if isinstance(value, (bool, int, float, complex, str)):
        return "number"
    if isinstance(value, StandIn):
        return "stand-in" if value.tml_klass is None else "real"
    if value is None:
        return ""
    if any(True for _ in tensors_in(value)):
        return "tensor"
    return "other"


def corrected(value: Any, correction: Correction | None) -> Any:
    """The value as the corrected code has it."""
    if correction not in _OF_VALUES:
        return value

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if correction in _DETACH:
            return leaf.detach()
        if correction is Correction.BACKWARD:
            return _gone_back(leaf)
        return leaf.clone() if correction is Correction.CLONE else leaf.cpu()

    return tree_map(one, value)


def _gone_back(part: torch.Tensor) -> torch.Tensor:
    """The part after a backward of its own: a leaf, through which the later backward goes no further."""
    if not part.requires_grad or part.is_leaf:
        return part
    part.sum().backward()  # type: ignore[no-untyped-call, unused-ignore]
    return part.detach().requires_grad_()


def standins_in(value: StandIn) -> frozenset[int]:
    """The identities of the stand-in and all that is stored in it."""
    seen: set[int] = set()
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, StandIn) and id(item) not in seen:
            seen.add(id(item))
            waiting.extend(item.tml_parts.values())
    return frozenset(seen)


def hangs_on_a_graph(value: Any, known: frozenset[int] = frozenset()) -> bool:
    """Whether anything in ``value`` has a history, also what was stored in stand-ins; of those that are ``known``, only what was
    stored."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, StandIn):
            if item.tml_called is not None and item.tml_value is None and item.tml_called[2] and id(item) not in known:
                return True  # the result of a call that was never used: its history is not known
            waiting.extend(item.tml_parts.values())
            waiting.append(item.tml_value)
        elif any(tensor.grad_fn is not None for tensor in tensors_in(item)):
            return True
        elif isinstance(item, (list, tuple)):
            waiting.extend(item)
        elif isinstance(item, dict):
            waiting.extend(item.values())
    return False
