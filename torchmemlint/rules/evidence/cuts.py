"""How a result is cut off from its graph: by what is written for the graph's sake, or on the way to something else."""

from __future__ import annotations

from torchmemlint.rules.evidence.module_evidence import DETACHES, WITHOUT_GRAPH, written
from torchmemlint.semantics.roots import Fate
from torchmemlint.semantics.state import SinkKind
from torchmemlint.torch_facts import TORCH


def is_detached(fate: Fate) -> bool:
    """Whether the result is detached somewhere, whatever else becomes of it."""
    return any(s.how in DETACHES for s in fate.cuts)


def explicit(fate: Fate) -> bool:
    """Whether the code itself says that the graph is not wanted: a detach, or a conversion that needs one."""
    return any(s.kind is SinkKind.CUT and s.how in EXPLICIT for s in fate.cuts)


EXPLICIT = WITHOUT_GRAPH | written(TORCH.words["reads-out"])
