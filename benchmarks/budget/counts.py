"""The peak of two steps of a model, counted on real tensors, and on fake ones as `budget` counts them."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.budget.models import ENTRIES, Entry
from torchmemlint.budget.worker import fake_tensor_gaps
from torchmemlint.budget.worker.measure import Mode
from torchmemlint.budget.worker.placement import Placement, move_in_place
from torchmemlint.budget.worker.program import _loss
from torchmemlint.budget.worker.tape import Tape
from torchmemlint.confirm.worker.meter import StorageMeter

TOKENS = 4


def steps(entry: Entry, mark: Callable[[], None]) -> None:
    """Two steps; ``mark`` is called between them."""
    torch.manual_seed(0)
    model, batch = entry.make()
    if not entry.train:
        model.eval()
        mark()
        _generate(model, batch["input_ids"])
        return
    model.train()
    optimizer = entry.optimizer([item for item in model.parameters() if item.requires_grad])
    for number in range(2):
        if number:
            mark()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=entry.autocast):
            loss = _loss(model(**batch) if "input" not in batch else model(batch["input"]))
        loss.backward()
        optimizer.step()


@torch.no_grad()
def _generate(model: Any, ids: torch.Tensor) -> None:
    """A prompt and some tokens, with what the model caches."""
    kept: dict[str, Any] = {}
    token = ids
    for _ in range(TOKENS):
        out = model(input_ids=token, use_cache=True, **kept)
        token = out.logits[:, -1:].argmax(-1)
        past = getattr(out, "past_key_values", None)
        kept = {"past_key_values": past} if past is not None else {"cache_params": out.cache_params}


def real(entry: Entry) -> int:
    """Peak of live bytes of real tensors."""
    meter = StorageMeter("cpu")
    with meter, torch.backends.mkldnn.flags(enabled=False):
        steps(entry, meter.reset_peak)
        return meter.peak_bytes()


def fake(entry: Entry) -> int:
    """The same of fake ones, from what the tape has. What `budget` changes in torch for them stays changed in this process."""
    tape = Tape(lambda path: False)
    marks: list[int] = []
    move_in_place()
    fake_tensor_gaps.install()
    with Placement(tape), Mode(allow_non_fake_inputs=True), tape, torch.backends.mkldnn.flags(enabled=False):
        steps(entry, lambda: marks.append(len(tape.events)))
        end = len(tape.events)
    peak = live = 0
    for index, (number, sign) in enumerate(tape.events[:end]):
        if index == marks[0]:
            peak = live
        live += sign * tape.blocks[number].size
        peak = max(peak, live)
    return peak


def counted(name: str, count: Callable[[Entry], int]) -> tuple[int, float]:
    """The peak of a model, and the seconds that it took."""
    gc.collect()
    begun = time.process_time()
    peak = count(next(entry for entry in ENTRIES if entry.name == name))
    return peak, round(time.process_time() - begun, 1)
