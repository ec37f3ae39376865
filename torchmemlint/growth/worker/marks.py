"""Marks: what of a holder is compared from line to line."""

from __future__ import annotations

import collections
import sys
import types
from collections import Counter
from typing import Any

from torchmemlint.growth.worker.heap import is_tensor
from torchmemlint.growth.worker.holders import Path, Root, attributes, is_a, is_array, is_numbers, names_in
from torchmemlint.growth.worker.lines import Mark

DEQUE: Any = collections.deque
LONG = 10_000
CONTAINERS: tuple[Any, ...] = (list, dict, set, bytearray, DEQUE)


class Bindings:
    """The names that one value has in one namespace. Its ``mark`` changes when one of them gets a value that none of them had."""

    def __init__(self, root: Root, value: Any) -> None:
        self._root = root
        self._names = [name for name, held in names_in(root).items() if held is value] or [root.name]
        self._values: frozenset[object] = frozenset()
        self._changes = 0
        self._first: Counter[str] = Counter()

    def mark(self, frame: types.FrameType | None) -> object:
        """A number that rises when a new value appears."""
        space = names_in(self._root)
        now = {name: identity(space.get(name)) for name in self._names}
        fresh = [name for name, value in now.items() if value not in self._values]
        if fresh and self._values:
            self._changes += 1
            self._first.update(fresh)
        self._values = frozenset(now.values())
        return self._changes

    def renamed(self, words: str) -> str:
        """A holder that begins with the root's name, with the name that got new values first."""
        if not self._first or not words.startswith(self._root.name):
            return words
        return self._first.most_common(1)[0][0] + words[len(self._root.name) :]


def identity(thing: Any) -> object:
    """What tells one value from the next: of a tensor also its version and its node."""
    if is_tensor(thing):
        return id(thing), thing._version, id(thing.grad_fn)
    return id(thing)


def contents(container: Any, held: Any) -> Mark:
    """The length of a container; of a dict or list, also what lies where ``held`` does."""
    kind = next(base for base in CONTAINERS if is_a(container, base))
    key = None
    if kind is dict:
        key = next((name for name, value in list(dict.items(container)) if value is held), None)

    def mark(frame: types.FrameType | None) -> object:
        at = dict.get(container, key) if kind is dict and key is not None else None
        return kind.__len__(container), id(at), _ends(kind, container)

    return mark


def _ends(kind: Any, container: Any) -> object:
    """The first and last element: a bounded deque keeps its length."""
    if kind in (list, DEQUE) and kind.__len__(container):
        return id(kind.__getitem__(container, -1)), id(kind.__getitem__(container, 0))
    return None


def elements(array: Any, held: Any) -> Mark:
    """The elements of an array of objects that are of the kind of ``held``; of a long array, all of them."""
    numpy: Any = sys.modules["numpy"]
    if numpy.ndarray.size.__get__(array) > LONG:
        return lambda frame: numpy.ndarray.tobytes(array)
    kind = type(held)
    return lambda frame: [id(one) for one in numpy.ndarray.ravel(array, "K").tolist() if type(one) is kind]


def slot(path: Path) -> Mark | Bindings | None:
    """The value of what a root names, or, below it, of the attribute or item that holds the tensor."""
    chain, root = path.objects, path.root
    if root.kind == "generator":
        chain = chain[:-1]
    holder = next((one for one in chain[1:] if not is_a(one, (tuple, types.CellType)) and not is_numbers(one)), None)
    if is_a(holder, (dict, list)):
        return item(holder, chain[place_of(chain, holder) - 1])
    if is_array(holder):
        return elements(holder, chain[place_of(chain, holder) - 1])
    if holder is not None and not is_a(holder, (types.FunctionType, types.FrameType)):
        return attribute(holder, chain[place_of(chain, holder) - 1])
    cell = next((one for one in chain[1:] if is_a(one, types.CellType)), None)
    if cell is not None:
        return lambda frame: identity(cell.cell_contents)
    if holder is None and root.kind in ("local", "global", "class", "generator", "context"):
        return Bindings(root, chain[-1])
    return None


def place_of(chain: list[Any], thing: Any) -> int:
    """Where an object is in a chain."""
    return next(index for index, one in enumerate(chain) if one is thing)


def item(container: Any, held: Any) -> Mark:
    """The elements of a list; of a dict, what lies where ``held`` does."""
    if is_a(container, list):
        return lambda frame: tuple(map(identity, list.__iter__(container)))
    key = next((name for name, value in list(dict.items(container)) if value is held), None)
    return lambda frame: identity(dict.get(container, key))


def attribute(owner: Any, held: Any) -> Mark:
    """The attribute of an object that holds something; all of them if none does."""
    if is_a(owner, dict):
        return item(owner, held)
    name = next((key for key, value in attributes(owner).items() if value is held), None)
    if name is None:
        return lambda frame: {key: identity(value) for key, value in attributes(owner).items()}
    return lambda frame: identity(attributes(owner).get(name))


__all__ = ["CONTAINERS", "Bindings", "attribute", "contents", "elements", "item", "place_of", "slot"]
