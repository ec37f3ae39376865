"""``python -m benchmarks.budget [--write] [NAME …]``: peaks of a step on real and on fake tensors, for sixty models on the CPU.

The real step is counted by `confirm`'s meter of live storages, the fake one by `budget`'s tape; neither models CUDA here. A step is
zero_grad, forward, loss, backward and AdamW (the second is reported), or a prompt and four tokens with their cache. ``--write`` keeps the
record that docs/budget.md quotes.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

from benchmarks.budget.counts import counted, fake, real
from benchmarks.budget.models import ENTRIES, Entry

RECORD = Path(__file__).with_name("record.json")


def compared(entry: Entry, others: ProcessPoolExecutor) -> dict[str, object]:
    """One row of the record. Fake tensors are ``others``': a process of their own."""
    row: dict[str, object] = {"model": entry.name, "kind": entry.kind, "step": "training" if entry.train else "generation"}
    for name, count in (("fake", fake), ("real", real)):
        try:
            found = others.submit(counted, entry.name, count).result() if count is fake else counted(entry.name, count)
        except Exception as error:
            row["reason"] = f"{name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]
            return row
        row[f"{name}_bytes"], row[f"{name}_seconds"] = found
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
    others = ProcessPoolExecutor(1, get_context("spawn"))
    for entry in ENTRIES:
        if arguments.names and not any(name in entry.name for name in arguments.names):
            continue
        row = compared(entry, others)
        rows.append(row)
        print(f"{row['model']:<40}{row.get('percent', row.get('reason'))!s:>8}", flush=True)
        if arguments.write:
            keep(row)
    within = sum("percent" in row and abs(float(str(row["percent"]))) <= 2 for row in rows)
    print(f"{within} of {len(rows)} within 2 %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
