"""Who keeps what grows, as a look at the heap finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from torchmemlint.growth.worker.frames import Place
from torchmemlint.growth.worker.heap import Size
from torchmemlint.growth.worker.lines import Mark
from torchmemlint.growth.worker.marks import Bindings


@dataclass(slots=True)
class Keeper:
    """Who keeps what grows. ``kind``: container, name, attribute, cycle, native. ``size`` is that of ``iterations`` iterations;
    ``defined``: where the function of a cache is; ``elsewhere``: the function of another thread whose variable it is; ``bindings``: the names that its value has, if the holder is such a name."""

    kind: str
    holder: str
    root: str
    of: str
    gets: str
    size: Size
    iterations: int
    mark: Mark | None = None
    appears: bool = False
    alive: list[Callable[[], object]] = field(default_factory=list)
    length: Callable[[Any], int | None] | None = None
    lines: tuple[tuple[str, int, str], ...] = ()
    loop_local: bool = False
    elsewhere: CodeType | None = None
    bindings: Bindings | None = None
    defined: Place | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What is the same in two looks at one growth."""
        return self.kind, self.holder, self.of

    @property
    def called(self) -> str:
        """The holder; of several names for one value, the one that got it first while lines were traced."""
        return self.bindings.renamed(self.holder) if self.bindings is not None else self.holder


def each_once(keepers: Iterable[Keeper]) -> list[Keeper]:
    """Keepers of one name as one: a cache holds its keys and its values."""
    found: dict[tuple[str, str, str], Keeper] = {}
    for one in keepers:
        first = found.setdefault(one.key, one)
        if first is not one:
            first.size += one.size
            first.alive += one.alive
    return list(found.values())


__all__ = ["Keeper", "each_once"]
