"""What the stand-ins of one job share: the parts that they play, the weights of models, the record of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from torchmemlint.confirm.verdict import Located
from torchmemlint.confirm.worker.standins.frames import row_of_the_code

FORWARD_BYTES = 1 << 20
STEPS = 8


_KEEPERS = frozenset(
    ["append", "extend", "appendleft", "extendleft", "add", "insert", "put", "set", "write", "log", "info", "debug", "warning", "print", "add_scalar", "set_postfix", "set_description", "register_hook", "retain_grad", "log_metric", "log_metrics"]
)  # fmt: skip
"""Callees that by their name keep or print what they are given."""


@dataclass(slots=True)
class Record:
    """What happened during one run, for the verdict.

    ``inert`` names callees that are not visible and whose results are plain data in this run: what still grows then does not
    rest on them. ``modules`` names attributes of the flagged method's class that some line of it sets to a module. ``asked``
    counts how often something depended on whether a stand-in is true; ``hung`` says that an operation of the code gave a value
    with a graph. ``apart``: each stand-in model has a parameter of its own, else they share one. ``owned`` are the storages of
    the parameters and buffers of the real modules that ran: what a graph saves of frozen weights or running means is there
    without it.
    """

    inert: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    apart: bool = False
    fallbacks: list[Located] = field(default_factory=list)
    graph_forwards: int = 0
    unknown_decorators: list[tuple[str, str]] = field(default_factory=list)
    open_contexts: list[Located] = field(default_factory=list)
    backwards: int = 0
    trusted: bool = False
    empty_backwards: int = 0
    backward_rows: set[tuple[int, ...]] = field(default_factory=set)
    backward_row: int = 0
    guess_rows: dict[str, int] = field(default_factory=dict)
    swallowed: list[Located] = field(default_factory=list)
    asked: int = 0
    hung: bool = False
    owned: set[int] = field(default_factory=set)
    may_retain: bool = False
    on_backward: Callable[[list[torch.Tensor]], Callable[[], None]] | None = None
    on_host: Callable[[torch.Tensor], None] = lambda tensor: None
    on_forward: Callable[[], None] = lambda: None

    def fallback(self, what: str) -> None:
        """Note that an operation was replaced."""
        if len(self.fallbacks) < 200:
            self.fallbacks.append(Located(row_of_the_code(), what))

    def swallow(self, name: str, row: int) -> None:
        """Note that a callee that is not visible was handed a graph and that the code makes nothing of its result: it may run a
        backward on it."""
        callee = Located(row, name)
        if name.rsplit(".", 1)[-1] not in _KEEPERS and callee not in self.swallowed:
            self.swallowed.append(callee)


class Stage:
    """Made once for a job, and handed to everything that makes or meets stand-ins.

    steps     samples of a loop, and how long a stand-in is
    defaults  what the code itself gives as the default of an option that is a fraction
    roles     the part that each callee plays, by name: for good the one in which the first run saw it
    keyed     callees whose result some run read by a key: it is a dict, and has no method of a tensor
    dicts     the keys that lead to the dicts of weights in a saved file, as the runs so far used it
    """

    def __init__(self, steps: int = STEPS, defaults: Mapping[str, float] | None = None) -> None:
        self.steps, self.defaults = steps, dict(defaults or {})
        self.roles: dict[str, str] = {}
        self.keyed: set[str] = set()
        self.dicts: set[tuple[object, ...]] = set()
        self.begin(Record())

    def begin(self, record: Record) -> None:
        """Start a run; the parts that stand-ins play stay."""
        self.record = record
        self._weights: dict[str, torch.Tensor] = {}

    def weight(self, name: str = "") -> torch.Tensor:
        """The parameter of a stand-in model: the same one for all, unless the run keeps them apart."""
        owner = name if self.record.apart else ""
        if owner not in self._weights:
            self._weights[owner] = torch.full((FORWARD_BYTES // 4,), 0.5, requires_grad=True)
        return self._weights[owner]

    def __deepcopy__(self, memory: object) -> Stage:
        return self  # a copy of a stand-in stands on the same stage

    def __reduce__(self) -> tuple[Any, ...]:
        return Stage, ()  # one that the code pickles gets another
