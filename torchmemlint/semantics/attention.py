"""Which step of attention a value is: read from the operation that made it and what its operands were.

``q @ k.transpose(-2, -1)`` are scores; scaled, masked, moved or dropped out they stay scores; their softmax are weights, and a
product of weights with something is the end of it. A parameter is no key: its scores do not grow with the sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torchmemlint.semantics.values import SCORES, TURNED, WEIGHTS, Obj, Tensor, Value
from torchmemlint.torch_facts import TORCH

PRODUCTS = TORCH.words["products"] | {"@"}
TURNS = TORCH.words["turns"]
KEEPS = TORCH.words["keeps-scores"] | {"*", "+", "-", "/"}
SOFTMAX = TORCH.words["softmax"]
MIXES = -1
"""The product of weights and values: no role of its own."""


def role(operation: str, operands: Sequence[Value], is_parameter: Callable[[Value], bool]) -> int:
    """The flags that an operation's result has as a step of attention, ``MIXES`` for its last step."""
    held = [flags_of(value) for value in operands]
    if operation in PRODUCTS:
        factors = [(v, f) for v, f in zip(operands, held, strict=True) if any(type(a) in (Tensor, Obj) for a in v)]
        if any(f & WEIGHTS for _, f in factors):
            return MIXES
        turned = operation == TORCH.names["einsum"] or any(f & TURNED for _, f in factors)
        return SCORES if turned and len(factors) == 2 and not any(is_parameter(v) for v, _ in factors) else 0
    either = 0
    for flags in held:
        either |= flags
    if operation in SOFTMAX:
        return WEIGHTS if either & SCORES else 0
    if operation in KEEPS:
        return either & (SCORES | WEIGHTS)
    return TURNED if operation in TURNS else 0


def flags_of(value: Value) -> int:
    out = 0
    for atom in value:
        if type(atom) is Tensor:
            out |= atom.flags
    return out
