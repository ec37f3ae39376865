"""The word index: for each word the modules that say it, as an earlier run stored it.

By kind of key (``index.keys``). What a project says of a word then takes the facts of few modules.

Modules have numbers here, their places among the files of the run that stored it.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import accumulate

from torchmemlint.incremental.parts import joined, split
from torchmemlint.index import keys
from torchmemlint.index.facts import ModuleFacts
from torchmemlint.index.tables import of_one
from torchmemlint.index.views import bound_names


def serialized(shapes: Mapping[str, str], modules: Iterable[ModuleFacts]) -> bytes:
    """The word index of some modules, to be stored. ``shapes`` are the digests of the shapes of all files' facts, by path ("" for
    a file that is no module), which show later what changed."""
    numbers_of = {path: number for number, path in enumerate(shapes)}
    tables: dict[int, dict[str, array[int]]] = defaultdict(dict)
    for module in modules:
        number = numbers_of[module.path]
        for kind, words in _words_of(module):
            table = tables[kind]
            for word in words:
                if word in table:
                    table[word].append(number)
                else:
                    table[word] = array("I", (number,))
    counts = array("I", (len(numbers) for table in tables.values() for numbers in table.values()))
    numbers = b"".join(numbers.tobytes() for table in tables.values() for numbers in table.values())
    texts = ([*shapes.items()], [[kind, *table] for kind, table in tables.items()])
    return zlib.compress(joined([*(json.dumps(text).encode() for text in texts), counts.tobytes(), numbers]), 1)


class WordIndex:
    """What ``serialized`` gave, where the facts of the files have these ``shapes`` now, other files than then included; ``one`` has
    the facts. Raises ValueError for anything else, and where more than ``most`` of them changed."""

    def __init__(self, data: bytes, shapes: Mapping[str, str], one: Callable[[str], ModuleFacts], most: int) -> None:
        try:
            (then, words, counts, numbers), _ = split(zlib.decompress(data), 4)
        except zlib.error as error:
            raise ValueError(str(error)) from None
        known: dict[str, str] = dict(json.loads(then))
        changed = [path for path in (*known, *(shapes.keys() - known)) if known.get(path, "") != shapes.get(path, "")]
        if len(changed) > most:
            raise ValueError("too much changed")
        self._numbers = array("I")
        self._numbers.frombytes(numbers)
        lengths = array("I")
        lengths.frombytes(counts)
        self._ends = [0, *accumulate(lengths)]
        self._places: dict[int, dict[str, int]] = {}
        at = 0
        for kind, *each in json.loads(words):
            self._places[kind] = {word: place for place, word in enumerate(each, at)}
            at += len(each)
        if at + 1 != len(self._ends) or self._ends[-1] != len(self._numbers):
            raise ValueError("there is not a number for each word")
        self._paths = [*known]
        self._changed = frozenset(changed)
        self._now: dict[tuple[int, str], list[str]] = defaultdict(list)
        for path in sorted(changed):
            for kind, names in _words_of(one(path)) if shapes.get(path) else ():
                for word in names:
                    self._now[kind, word].append(path)

    def modules(self, kind: int, word: str) -> list[str]:
        """The modules that say a word."""
        at = self._places.get(kind, {}).get(word)
        numbers = self._numbers[self._ends[at] : self._ends[at + 1]] if at is not None else ()
        found = [path for number in numbers if (path := self._paths[number]) not in self._changed]
        return found + self._now.get((kind, word), [])

    def says(self, kind: int, word: str) -> bool:
        """Whether any module says a word."""
        return bool(self.modules(kind, word))

    def all(self, kind: int) -> list[str]:
        """All words of a kind, sorted."""
        known = {word for word in self._places.get(kind, ()) if not self._changed or self.says(kind, word)}
        return sorted(known.union(word for of, word in self._now if of == kind))


def _words_of(module: ModuleFacts) -> Iterator[tuple[int, Collection[str]]]:
    yield from of_one(module).words()
    yield keys.BINDERS, bound_names(module)
