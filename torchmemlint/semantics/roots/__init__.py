"""Runs over root functions: from the first statement to what becomes of a graph in callers.

``Runs`` is what rules hold. Next to read: ``rules/api.py``.
"""

from torchmemlint.semantics.roots.earlier_turns import gives_a_graph
from torchmemlint.semantics.roots.retained_graphs import GATHERING, need_of, precedes
from torchmemlint.semantics.roots.runs import MAX_CALLER_DEPTH, MAX_CALLERS, Fate, Runs, descendants, is_part

__all__ = [
    "GATHERING",
    "MAX_CALLERS",
    "MAX_CALLER_DEPTH",
    "Fate",
    "Runs",
    "descendants",
    "gives_a_graph",
    "is_part",
    "need_of",
    "precedes",
]
