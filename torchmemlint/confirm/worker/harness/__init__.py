"""What a program runs in: its torch, its imports, the harness that it calls.

Next to read: ``worker/experiments``.
"""

from torchmemlint.confirm.worker.harness.driving import drive
from torchmemlint.confirm.worker.harness.harness import Harness, Sampled
from torchmemlint.confirm.worker.harness.imports import Modules, compiled, namespace
from torchmemlint.confirm.worker.harness.patched_torch import prepare_torch
from torchmemlint.confirm.worker.harness.values import answer

__all__ = ["Harness", "Modules", "Sampled", "answer", "compiled", "drive", "namespace", "prepare_torch"]
