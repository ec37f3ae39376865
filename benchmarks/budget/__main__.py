"""``python -m benchmarks.budget [--write] [NAME …]``: peaks of a step on real and on fake tensors, for thirty models on the CPU.

The real step is counted by `confirm`'s meter of live storages, the fake one by `budget`'s tape; neither models CUDA here. A step is
zero_grad, forward, loss, backward and AdamW (the second is reported), or a prompt and four tokens with their cache. ``--write`` keeps the
record that docs/budget.md quotes.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.budget.models import ENTRIES, Entry
from torchmemlint.budget.worker.measure import Mode
from torchmemlint.budget.worker.program import _loss
from torchmemlint.budget.worker.tape import Tape
from torchmemlint.confirm.worker.meter import StorageMeter

RECORD = Path(__file__).with_name("record.json")
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
    optimizer = torch.optim.AdamW([item for item in model.parameters() if item.requires_grad], lr=1e-4)
    for number in range(2):
        if number:
            mark()
        optimizer.zero_grad()
        _loss(model(**batch) if "input" not in batch else model(batch["input"])).backward()
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
    """The same of fake ones, from what the tape has."""
    tape = Tape(lambda path: False)
    marks: list[int] = []
    with Mode(allow_non_fake_inputs=True), tape, torch.backends.mkldnn.flags(enabled=False):
        steps(entry, lambda: marks.append(len(tape.events)))
        end = len(tape.events)
    peak = live = 0
    for index, (number, sign) in enumerate(tape.events[:end]):
        if index == marks[0]:
            peak = live
        live += sign * tape.blocks[number].size
        peak = max(peak, live)
    return peak


def compared(entry: Entry) -> dict[str, object]:
    """One row of the record."""
    row: dict[str, object] = {"model": entry.name, "kind": entry.kind, "step": "training" if entry.train else "generation"}
    for name, count in (("fake", fake), ("real", real)):
        gc.collect()
        begun = time.process_time()
        try:
            row[f"{name}_bytes"] = count(entry)
        except Exception as error:
            row["reason"] = f"{name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]
            return row
        row[f"{name}_seconds"] = round(time.process_time() - begun, 1)
    assert isinstance(row["fake_bytes"], int)
    assert isinstance(row["real_bytes"], int)
    row["percent"] = round(100 * (row["fake_bytes"] - row["real_bytes"]) / row["real_bytes"], 2)
    return row


def keep(row: dict[str, object]) -> None:
    """Put a row into the record, in place of an earlier one of that model."""
    kept = json.loads(RECORD.read_text())["rows"] if RECORD.exists() else []
    fresh = {one["model"]: one for one in [*kept, row]}
    rows = [fresh[entry.name] for entry in ENTRIES if entry.name in fresh]
    record = {"torch": torch.__version__, "python": sys.version.split()[0], "rows": rows}
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


def main() -> int:
    """Compare and print."""
    made = argparse.ArgumentParser("python -m benchmarks.budget")
    made.add_argument("names", nargs="*", help="only models whose name has this in it")
    made.add_argument("--write", action="store_true")
    arguments = made.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for entry in ENTRIES:
        if arguments.names and not any(name in entry.name for name in arguments.names):
            continue
        row = compared(entry)
        rows.append(row)
        print(f"{row['model']:<40}{row.get('percent', row.get('reason'))!s:>8}", flush=True)
        if arguments.write:
            keep(row)
    within = sum("percent" in row and abs(float(str(row["percent"]))) <= 2 for row in rows)
    print(f"{within} of {len(rows)} within 2 %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
