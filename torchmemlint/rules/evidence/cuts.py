"""How a result is cut off from its graph: by what is written for the graph's sake, or on the way to something else."""

from __future__ import annotations

from torchmemlint.rules.evidence.module_evidence import DETACHES, WITHOUT_GRAPH, written
from torchmemlint.semantics.graphs import SinkKind
from torchmemlint.semantics.runs import Fate
from torchmemlint.torch_facts import TORCH


def is_detached(fate: Fate) -> bool:
    """Whether the result is detached somewhere, whatever else becomes of it."""
    return any(s.how in DETACHES for s in fate.cuts)


def all_detached(fate: Fate) -> bool:
    """Whether every cut is one that is written for the graph's sake; the best one's index may be taken of the value as well."""
    hows = {s.how for s in fate.cuts if s.kind is SinkKind.CUT}
    return hows <= WITHOUT_GRAPH | INDICES and not (hows and hows <= INDICES)


INDICES = written(TORCH.words["best-index"]) | {f"torch.{name}" for name in TORCH.words["best-index"]}
"""Ways to an index, as they are written."""


def explicit(fate: Fate) -> bool:
    """Whether the code itself says that the graph is not wanted: a detach, or a conversion that needs one."""
    return any(s.kind is SinkKind.CUT and s.how in EXPLICIT for s in fate.cuts)


EXPLICIT = WITHOUT_GRAPH | written(TORCH.words["reads-out"])
