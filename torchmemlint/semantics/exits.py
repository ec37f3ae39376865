"""Calls that end the process."""

from __future__ import annotations

from torchmemlint.index.project import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.semantics.text import dotted
from torchmemlint.semantics.world import World
from torchmemlint.torch_facts import TORCH

EXITS = TORCH.words["ends-process"]


def ends_process(world: World, ref: FunctionRef, value: ir.Expr) -> bool:
    """Whether an expression of a function ends the process: ``sys.exit(1)``, and no ``quit`` of the project's own."""
    text = dotted(value.func) if isinstance(value, ir.Call) else ""
    return text in EXITS and world.project.resolve(ref.path, text, ref.qualname) in (text, f"builtins.{text}")
