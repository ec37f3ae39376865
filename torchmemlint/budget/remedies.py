"""The remedies that can be run."""

from __future__ import annotations

ACCUMULATION = "gradient accumulation"
MICRO_BATCHES = 4
"""Into so many parts gradient accumulation divides a batch."""

REMEDIES = (
    "bf16 autocast", "fp16 autocast", "checkpointing", "fused optimizer", "foreach=False", "8-bit AdamW",
    "SGD without momentum", "set_to_none", "chunked loss", ACCUMULATION, "no_grad for frozen parts", "fused attention",
)  # fmt: skip
