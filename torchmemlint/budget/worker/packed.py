"""Packed sequences, each taken to be as long as the padded batch.

Their size depends on the lengths in a tensor, which fake tensors do not have; that is the most that packing can need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from torchmemlint.budget.worker.patch import put
from torchmemlint.budget.worker.tape import Tape, keep_values


def install(tape: Tape) -> None:
    """``pack_padded_sequence`` and its inverse without lengths; recurrent layers run a packed batch as the padded one that it is."""
    rnn, functions = torch.nn.utils.rnn, torch._VF

    def pack(input: Any, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True) -> Any:
        tape.assume("a packed batch was assumed to have no padding: every sequence is as long as the longest")
        steps_first = input.transpose(0, 1) if batch_first else input
        order = None if enforce_sorted else torch.arange(steps_first.size(1), device=input.device)
        if order is not None:
            steps_first = steps_first.index_select(1, order)
        steps, batch = steps_first.shape[:2]
        data = steps_first.clone(memory_format=torch.contiguous_format).view(steps * batch, *steps_first.shape[2:])
        return rnn._packed_sequence_init(data, _sizes(tape, steps, batch), order, None)

    def pad(data: Any, batch_sizes: Any, batch_first: bool, padding_value: float, total_length: int) -> tuple[Any, Any]:
        steps = batch_sizes.size(0)
        padded = data.new_full((total_length, data.size(0) // steps, *data.shape[1:]), padding_value)
        padded[:steps] = data.view(steps, -1, *data.shape[1:])
        lengths = _sizes(tape, padded.size(1), steps)
        return padded.transpose(0, 1) if batch_first else padded, lengths

    put(rnn, "pack_padded_sequence", pack)
    put(functions, "_pad_packed_sequence", pad)
    for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        put(functions, name, _padded(getattr(functions, name)))


def _padded(layer: Callable[..., Any]) -> Callable[..., Any]:
    """``layer(data, batch_sizes, hx, weights, bias, …)`` by ``layer(input, hx, weights, bias, …, batch_first)``; other calls as they are."""

    def run(*args: Any) -> Any:
        if len(args) < 4 or not isinstance(args[3], (list, tuple)):
            return layer(*args)
        data, batch_sizes, *rest = args
        result, *hidden = layer(data.view(batch_sizes.size(0), -1, data.size(-1)), *rest, False)
        return result.reshape(data.size(0), -1), *hidden

    return run


def _sizes(tape: Tape, count: int, size: int) -> torch.Tensor:
    """``count`` times the same size, on the host and with its values, for programs that read them."""
    with tape.placed(False):
        made = torch.full((count,), size, dtype=torch.int64)
    if isinstance(made, FakeTensor):
        keep_values(made, lambda: torch.full((count,), size, dtype=torch.int64))
    return made
