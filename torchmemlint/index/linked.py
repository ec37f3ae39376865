"""The modules of one run, linked: what the answers to queries are made of."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, TypeVar

from torchmemlint.index.callgraph import CallGraph
from torchmemlint.index.dependency_log import DependencyLog, Memoized, memoized
from torchmemlint.index.effects import Effects
from torchmemlint.index.facts import FunctionFacts, Header
from torchmemlint.index.gradmode import GradMode
from torchmemlint.index.leaks import Leaks
from torchmemlint.index.modules import Modules
from torchmemlint.index.names import Names
from torchmemlint.index.points_to import PointsTo
from torchmemlint.index.reader import FactReader
from torchmemlint.index.references import FunctionRef, Outside
from torchmemlint.index.starts import Starts
from torchmemlint.torch_facts import TORCH

_DIFFERENTIATING = tuple(f"{package}." for package in sorted(TORCH.words["gradient-packages"]))
Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")
_INWARDS = 8
"""Calls between a module's forward and the gradients that it takes, at the most."""


class Linked:
    """Everything beyond the facts of ``modules`` is worked out when asked for. For the arguments see ``Project``."""

    def __init__(self, modules: Modules, log: DependencyLog, no_grad_wrappers: Sequence[str], complete: bool) -> None:
        self.log = log
        self.complete = complete
        self.reader = FactReader(modules, log)
        self.names = Names(self.reader)
        self.classes = self.names.classes
        self.points_to = PointsTo(self.names, TORCH)
        self.calls = CallGraph(self.names, self.points_to, TORCH)
        self.effects = Effects(self.names, self.points_to, TORCH, no_grad_wrappers)
        self.leaks = Leaks(self.effects, self.calls, log)
        self.starts = Starts(self.names, self.calls, self.effects, self.leaks, TORCH, complete)
        self.grad = GradMode(self.starts, self.calls, log)
        self.within: dict[str, dict[str, tuple[FunctionFacts, ...]]] = {}
        """Of a module, by the name of a function or class, all functions inside it."""
        self.headers: dict[FunctionRef, Header] = {}
        self.differentiating = memoized(log, self._find_differentiating)
        """The methods ``forward`` that take gradients, themselves or in what they call."""
        self._once: dict[object, Memoized[Any, Any]] = {}

    def once(self, find: Callable[[Linked, Key], Answer], key: Key) -> Answer:
        """``find(self, key)``, worked out once, for what queries ask in turn."""
        if find not in self._once:
            self._once[find] = memoized(self.log, partial(find, self))
        answer: Answer = self._once[find].answer(key)
        return answer

    def link(self) -> None:
        """Makes now what every query needs of all modules: processes that are forked from this one have it."""
        self.names.link()
        self.calls.resolver.link()

    def note(self, kind: int, path: str, qualname: str = "") -> None:
        """Notes that facts were read (see ``index.keys``)."""
        self.log.read(kind, path, qualname)

    def _find_differentiating(self, whole: str) -> frozenset[FunctionRef]:
        level = {
            ref
            for word in sorted(TORCH.words["differentiates"])
            for ref, call in self.calls.tables.calls(word)
            if any(
                isinstance(value, Outside) and value.name.startswith(_DIFFERENTIATING)
                for value in self.points_to.values(ref.path, ref.qualname, call.callee)
            )
        }
        seen: set[FunctionRef] = set()
        for _ in range(_INWARDS):
            level -= seen
            seen |= level
            level = {caller.ref for ref in level for caller in self.calls.calls_of(ref) if caller.certain}
        return frozenset(ref for ref in seen if ref.qualname.endswith(".forward"))
