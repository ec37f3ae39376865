"""The query log: which queries each result asked, of the project and of texts.

A file's findings hold as long as every query that was asked for them gives the same answer, "nothing calls it" included.
What the engine memoizes from one file to the next goes through ``QueryLog.memoize``: whoever uses a memoized result rests on
all the queries that were asked to compute it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")

Query = tuple[Hashable, ...]
"""The name of a method of ``Project`` and its arguments; or about texts, with a path and the name of an outermost function:

    text    all of a file
    source  a function
    code    a function, but for comments and white space
    placed  a function, and the row where it begins
"""


@dataclass(slots=True, eq=False)
class QueryTrace:
    """What was asked to compute one result: queries, memoized results that were used, and notes made on the way.

    Where that is all, ``close`` puts it into tuples, which take a fifth of the memory: there are tens of thousands of traces.
    """

    queries: set[Query] = field(default_factory=set)
    used: set[QueryTrace] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    speaks: bool = True
    """Whether a note was made on the way; without the queries, nothing else of a result concerns who uses it."""
    answer: tuple[Callable[..., Any], Any, object] | None = None
    """What can be asked again: a function of the engine, its arguments, and the result."""
    closed: tuple[tuple[Query, ...], tuple[QueryTrace, ...], tuple[str, ...]] | None = None

    def close(self) -> None:
        self.closed = tuple(self.queries), tuple(self.used), tuple(self.notes)
        del self.queries, self.used, self.notes

    def all(self) -> tuple[Collection[Query], Collection[QueryTrace], Collection[str]]:
        """The queries, the traces of used results, and the notes."""
        return self.closed or (self.queries, self.used, self.notes)


class QueryLog:
    """The log of one process. ``current`` is the trace of the result that is being computed; ``records`` False leaves out the
    queries, where nobody will ask for them."""

    def __init__(self) -> None:
        self.current = QueryTrace()
        self.records = True
        self._unfinished: dict[tuple[int, Hashable], QueryTrace] = {}

    def memoize(
        self,
        known: dict[Key, tuple[Result, QueryTrace]],
        key: Key,
        compute: Callable[[], Result],
        find: Callable[..., Result] | None = None,
    ) -> Result:
        """``known[key]``, computed if it is missing; the current trace takes in what that asked. ``find`` can be asked for it again
        (``QueryTrace.answer``)."""
        found = known.get(key)
        if found is None:
            trace, around = QueryTrace(), self.current
            around.used.add(trace)
            self.current = trace
            self._unfinished[id(known), key] = trace
            try:
                found = known[key] = compute(), trace
                if find is not None:
                    trace.answer = find, key, found[0]
            finally:
                self.current = around
                trace.close()
                if not self.records and not any(trace.all()[1:]):
                    trace.speaks = False
                    around.used.discard(trace)
                del self._unfinished[id(known), key]
        elif self.records or found[1].speaks:
            self.current.used.add(found[1])
        return found[0]

    def is_open(self, known: dict[Key, tuple[Result, QueryTrace]], key: Key) -> bool:
        """Whether ``known[key]`` is being computed now; the current trace takes it in, because it goes on without the result."""
        trace = self._unfinished.get((id(known), key))
        if trace is not None:
            self.current.used.add(trace)
        return trace is not None

    def note(self, text: str) -> None:
        """Something to report with whatever rests on the current trace."""
        self.current.notes.append(text)


def queries_and_notes(trace: QueryTrace) -> tuple[set[Query], list[str]]:
    """All queries that a trace rests on, and the notes made for them, each once."""
    queries: set[Query] = set()
    notes: dict[str, None] = {}
    seen = {trace}
    waiting = [trace]
    while waiting:
        asked, used, noted = waiting.pop().all()
        queries.update(asked)
        notes.update(dict.fromkeys(noted))
        new = {each for each in used if each not in seen}
        seen |= new
        waiting += new
    return queries, sorted(notes)
