"""Calls that end the process."""

from __future__ import annotations

from torchmemlint.index.project import FunctionRef
from torchmemlint.semantics.state import World
from torchmemlint.torch_facts import TORCH

EXITS = TORCH.words["ends-process"]


def is_exit(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether what a function calls by a text ends the process: ``sys.exit``, and no ``quit`` of the project's own."""
    return text in EXITS and world.project.resolve(ref.path, text, ref.qualname) in (text, f"builtins.{text}")
