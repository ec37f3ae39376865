"""``python -m benchmarks.budget.t4``: the estimate beside eight peaks that were measured on a Tesla T4.

``t4_peaks.csv`` has facts of torch-preflight's public calibration record (MIT licence, ``tests/calibration/measured_peaks.json``):
``max_memory_allocated`` and ``max_memory_reserved`` over the second step. ``transformers`` and ``torchvision`` are needed, without weights.
Writes ``t4_record.json``, from which docs/budget.md has its table.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import torch

from torchmemlint.budget import runs
from torchmemlint.budget.sizes import gpu_of, input_of

HERE = Path(__file__).parent
RECORD = HERE / "t4_record.json"
MODELS = {
    "gpt2": "transformers:GPT2LMHeadModel(GPT2Config())",
    "distilbert-base-uncased": "transformers:DistilBertModel(DistilBertConfig())",
    "bert-base-uncased": "transformers:BertModel(BertConfig())",
    "resnet50": "torchvision.models:resnet50()",
}


def job(row: dict[str, str]) -> dict[str, object]:
    """What the command line would ask: ``--gpu T4 --autocast float16 --model … --input …``."""
    capability, memory = gpu_of("T4")
    batch = row["batch"]
    if row["image_size"]:
        inputs = [f"x:float32[{batch},3,{row['image_size']},{row['image_size']}]"]
    else:
        names = ["input_ids", "labels"] if row["model"] == "gpt2" else ["input_ids"]
        inputs = [f"{name}:int64[{batch},{row['sequence_length']}]" for name in names]
    return {
        "model": MODELS[row["model"]], "inputs": [input_of(text) for text in inputs], "values": {}, "capability": capability,
        "memory": memory, "attention": "auto", "batch": 0, "inference": False, "autocast": "float16", "optimizer": "AdamW",
    }  # fmt: skip


def main() -> int:
    """Run the eight, print and keep them."""
    rows: list[dict[str, object]] = []
    with (HERE / "t4_peaks.csv").open() as file:
        for row in csv.DictReader(file):
            estimate = runs.estimate(job(row), runs.Options())
            size = row["image_size"] or row["sequence_length"]
            found: dict[str, object] = {"model": row["model"], "batch": int(row["batch"]), "size": int(size)}
            for name, expected in (("allocated", estimate.allocated), ("reserved", estimate.reserved)):
                measured = int(row[f"max_{name}_bytes"])
                found |= {
                    name: expected,
                    f"{name}_measured": measured,
                    f"{name}_percent": round(100 * (expected / measured - 1), 1),
                }
            rows.append(found)
            print(f"{row['model']:<26}{row['batch']:>3} × {size:<5}{estimate.allocated >> 20:>6}{found['allocated_percent']:>7}"
                  f"{estimate.reserved >> 20:>8}{found['reserved_percent']:>7}  {estimate.reason}", flush=True)  # fmt: skip
    for name in ("allocated", "reserved"):
        off = [abs(float(str(found[f"{name}_percent"]))) for found in rows]
        print(f"{name}: mean {sum(off) / len(off):.2f} %, worst {max(off)} %")
    RECORD.write_text(json.dumps({"torch": torch.__version__, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
