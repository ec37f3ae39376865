"""What an answer rests on: the questions that were asked of the project, and the texts that were read, to work it out.

A file's findings hold as long as every question that was asked for them has the same answer, "no caller in sight" included.
What the analysis remembers from one file to the next goes through ``Ledger.remember``, so that the second asker is charged
with all that the first one asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")

Question = tuple[Hashable, ...]
"""The name of a method of ``Project`` and its arguments; or ``("text", path)``."""


@dataclass(slots=True, eq=False)
class Page:
    """What was asked for one answer: questions, remembered answers that were used, and notes made on the way.

    Where that is all, ``close`` puts it into tuples, which take a fifth of the memory: there are tens of thousands of pages.
    """

    questions: set[Question] = field(default_factory=set)
    used: set[Page] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    closed: tuple[tuple[Question, ...], tuple[Page, ...], tuple[str, ...]] | None = None

    def close(self) -> None:
        self.closed = tuple(self.questions), tuple(self.used), tuple(self.notes)
        del self.questions, self.used, self.notes

    def all(self) -> tuple[Collection[Question], Collection[Page], Collection[str]]:
        """The questions, answers and notes."""
        return self.closed or (self.questions, self.used, self.notes)


class Ledger:
    """Keeps the account of one process. ``open`` is the page of the answer that is being worked out; ``writes`` False leaves
    out the questions, where nobody will ask for them."""

    def __init__(self) -> None:
        self.open = Page()
        self.writes = True
        self._unfinished: dict[tuple[int, Hashable], Page] = {}

    def remember(self, known: dict[Key, tuple[Answer, Page]], key: Key, compute: Callable[[], Answer]) -> Answer:
        """``known[key]``, worked out if it is missing; the open page is charged with what that took."""
        found = known.get(key)
        if found is None:
            page, around = Page(), self.open
            around.used.add(page)
            self.open = page
            self._unfinished[id(known), key] = page
            try:
                found = known[key] = compute(), page
            finally:
                self.open = around
                page.close()
                del self._unfinished[id(known), key]
        else:
            self.open.used.add(found[1])
        return found[0]

    def meanwhile(self, known: dict[Key, tuple[Answer, Page]], key: Key) -> bool:
        """Whether ``known[key]`` is being worked out now; the open page is charged with it, because it goes on without."""
        page = self._unfinished.get((id(known), key))
        if page is not None:
            self.open.used.add(page)
        return page is not None

    def note(self, text: str) -> None:
        """Something to tell with whatever rests on the open page."""
        self.open.notes.append(text)


def account(page: Page) -> tuple[set[Question], list[str]]:
    """All questions that a page rests on, and the notes made for them, each once."""
    questions: set[Question] = set()
    notes: dict[str, None] = {}
    seen = {page}
    waiting = [page]
    while waiting:
        current = waiting.pop()
        asked, used, noted = current.all()
        questions.update(asked)
        notes.update(dict.fromkeys(noted))
        new = {each for each in used if each not in seen}
        seen |= new
        waiting += new
    return questions, sorted(notes)
