"""The facts of all modules of a project, by path.

Those of a module may be made when they are first looked at; then it may be known without looking which modules say a word
(``incremental.word_index``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Protocol

from torchmemlint.index.facts import ModuleFacts


class WordIndex(Protocol):
    """Which modules say a word, by kind of key (see ``incremental.word_index``)."""

    def modules(self, kind: int, word: str) -> list[str]:
        """The modules that say a word."""

    def says(self, kind: int, word: str) -> bool:
        """Whether any module says a word."""

    def all(self, kind: int) -> list[str]:
        """All words of a kind, sorted."""


class Modules(Mapping[str, ModuleFacts]):
    """The modules at ``paths``, in their order; ``one`` makes the facts of one of them."""

    def __init__(
        self,
        paths: Iterable[str],
        one: Callable[[str], ModuleFacts],
        words: Callable[[], WordIndex | None] | None = None,
    ) -> None:
        self._facts: dict[str, ModuleFacts | None] = dict.fromkeys(sorted(paths))
        self._one = one
        self._find_word_index = words

    @classmethod
    def of(cls, facts: Iterable[ModuleFacts]) -> Modules:
        """Modules of which all facts are at hand."""
        by_path = {module.path: module for module in facts}
        found = cls(by_path, by_path.__getitem__)
        found._facts.update(by_path)
        return found

    @cached_property
    def words(self) -> WordIndex | None:
        """Which modules say a word; None where only the facts of all of them show it."""
        return self._find_word_index() if self._find_word_index is not None else None

    def __getitem__(self, path: str) -> ModuleFacts:
        found = self._facts[path]
        if found is None:
            found = self._facts[path] = self._one(path)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)

    def __reduce__(self) -> tuple[Callable[..., Modules], tuple[object, ...]]:
        # Another process has all of them: what makes them may be at home here alone.
        return Modules.of, ([*self.values()],)
