"""Queries of a project as text, each with the fingerprint of its result.

By these the cache knows whether a finding still holds.

A *fingerprint* is the JSON of a result's shape (without rows, see ``index.plain``), or for a long one, and for facts and texts,
``#`` and its digest.
"""

from __future__ import annotations

import json
import json.encoder
from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol, get_type_hints

from torchmemlint.files.digest import digest
from torchmemlint.files.plain import from_plain, reader, to_json
from torchmemlint.index import keys
from torchmemlint.index.dependency_log import MISSING, shared_number
from torchmemlint.index.facts import ArgFact, CallableUse, CallFact
from torchmemlint.index.plain import shape
from torchmemlint.index.project import Project
from torchmemlint.index.query_log import Query, QueryTrace
from torchmemlint.index.references import ClassRef, FunctionRef

MISSING_RESULT = "-"
"""The fingerprint of what does not exist: a module or function that is not visible, a text that cannot be read."""
SHORT = 300
"""Characters up to which a fingerprint is the result itself: most are names and references."""

_in_json = json.encoder.encode_basestring_ascii
_KINDS = {kind.__name__: kind for kind in (ArgFact, CallableUse, CallFact, ClassRef, FunctionRef)}

_WITHOUT_PROJECT = ("text", "source", "module")
"""Queries answered without the project: mostly one of these has changed, so they are checked first."""
_COMMON = {each: each for each in (MISSING_RESULT, "null", "true", "false", "[]", "[[],true]", "[[],false]")}
"""The fingerprints of two in three queries: each is one object."""
OF_FILES = ("text", "module", "facts", "within", "attrs", "receivers", "header")
"""Queries for contents of files: their results are never stored, for the file itself has them."""
_OF_TEXTS: Mapping[Hashable, int] = {"text": keys.TEXT, "source": keys.SOURCE, "module": keys.MODULE, "within": keys.INSIDE}
"""Queries whose results are a key each."""
_QUERIES = {"facts", *(name for name, method in vars(Project).items() if hasattr(method, "__wrapped__"))}


def stored_as(query: Query) -> Query:
    """The query that stands for one in the cache, which has only digests of texts and so distinguishes fewer queries."""
    return ("source", *query[1:]) if query[0] == "code" else ("text", query[1]) if query[0] == "placed" else query


def to_text(query: Query) -> str:
    """A query in one line of ASCII: JSON, as ``to_json`` writes it, of texts and of pairs of a type's name and a value."""
    return f"[{','.join([_in_json(part) if type(part) is str else _typed_in_json(part) for part in query])}]"


def _typed_in_json(part: Hashable) -> str:
    # The general encoder takes ten times as long for the references that most queries are about.
    if type(part) is FunctionRef or type(part) is ClassRef:
        return f'["{type(part).__name__}",[{",".join(map(_in_json, part))}]]'
    return to_json([type(part).__name__, part])


def from_text(text: str) -> Query:
    """The query that ``to_text`` wrote. Raises ValueError for anything else."""
    parts = json.loads(text)
    if not isinstance(parts, list) or not parts or not isinstance(parts[0], str):
        raise ValueError(f"not a query: {text}")
    try:
        return tuple(part if type(part) is str else from_plain(_KINDS[part[0]], part[1]) for part in parts)
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"not a query: {text}: {error}") from None


class Files(Protocol):
    """Digests of files by path, "" or nothing where they are not known."""

    def text(self, path: str, /) -> str:
        """Of the content."""

    def shape(self, path: str, /) -> str:
        """Of the shape of the facts."""

    def sources(self, path: str, /) -> Mapping[str, str]:
        """Of the texts of the functions, by their names (see ``index.sources``)."""


class QueryResults:
    """The fingerprints of one project's results, each computed once.

    ``files`` knows the digests of files as they were seen. Long results are in ``long``, by their fingerprints and packed by zlib,
    if it ``stores`` them. ``unchanged`` are queries, as text, whose results are known to be what they were, with their dependencies;
    None where these are keys.
    """

    def __init__(
        self,
        project: Project,
        files: Files,
        stores: bool = False,
        unchanged: Mapping[str, int | None] | None = None,
    ) -> None:
        self._project = project
        self._unchanged = unchanged or {}
        self._files = files
        self._stores = stores
        self.long: dict[str, bytes] = {}
        self._log = project.log
        self._places: dict[Query, int] = {}
        self._fingerprints: list[str] = []
        self._codes = array("Q")
        self._changed: set[str] = set()
        self._by_text: dict[str, int] = {}

    def recorded(self, queries: Iterable[Query]) -> tuple[tuple[tuple[str, str], ...], bytes]:
        """Queries as text, each with its fingerprint; those first that need no project. And the codes of their dependencies, where
        these are logged."""
        stored = {stored_as(query) for query in queries}
        found = sorted((query[0] not in _WITHOUT_PROJECT, to_text(query), self._place(query)) for query in stored)
        codes = self._codes_at([place for _, _, place in found])
        return tuple((text, self._fingerprints[place]) for _, text, place in found), codes

    def codes(self, texts: Iterable[str]) -> bytes:
        """The codes of the dependencies of queries that ``is_unchanged`` was asked for."""
        return _packed(map(self._code_of, texts)) if self._log.on else b""

    def _code_of(self, text: str) -> int:
        if text not in self._unchanged:
            return self._codes[self._by_text[text]]
        dependency = self._unchanged[text]
        return self._code_of_key(from_text(text)) if dependency is None else dependency

    def _code_of_key(self, query: Query) -> int:
        path, name = (*map(str, query[1:]), "")[:2]
        return self._log.code((_OF_TEXTS[query[0]], path, name))

    def _codes_at(self, places: Sequence[int]) -> bytes:
        return _packed(self._codes[place] for place in places) if self._log.on else b""

    def saw_text(self, path: str, content: str) -> None:
        """What was read of a file, which may have changed since it was scanned."""
        self._put(("text", path), f"#{content}")
        if content != self._files.text(path):
            self._changed.add(path)

    def is_unchanged(self, text: str, expected: str) -> bool:
        """Whether a query (as text) has this fingerprint; False for what is no query."""
        if text in self._unchanged:
            return True
        place = self._by_text.get(text)
        if place is None:
            try:
                place = self._place(from_text(text))
            except ValueError:
                place = -1
            self._by_text[text] = place
        return place >= 0 and self._fingerprints[place] == expected

    def fingerprint(self, query: Query) -> str:
        return self._fingerprints[self._place(query)]

    def _place(self, query: Query) -> int:
        found = self._places.get(query)
        if found is None:
            self._log.reads = []
            found = self._put(query, self._ask(query))
        return found

    def _put(self, query: Query, fingerprint: str) -> int:
        place = self._places[query] = shared_number(len(self._fingerprints))
        self._fingerprints.append(_COMMON.get(fingerprint, fingerprint))
        if self._log.on:
            is_key = query[0] in _OF_TEXTS
            self._codes.append(self._code_of_key(query) if is_key else self._log.node(self._log.reads))
        return place

    def without_storing(self) -> QueryResults:
        """The same where the cache is out of reach."""
        return QueryResults(self._project, self._files)

    def _ask(self, query: Query) -> str:
        name, *arguments = query
        if name == "text":
            known = self._files.text(str(arguments[0]))
            return f"#{known}" if known else MISSING_RESULT
        if name == "source":  # where it is not known, all of the text stands for it
            path, qualname = map(str, arguments)
            found = self._files.sources(path).get(qualname) if path not in self._changed else None
            return f"#{found}" if found is not None else self.fingerprint(("text", path))
        # Nothing is stored of it: without a dependency log, it is unchanged as long as the whole module is.
        if name == "within":
            return self.fingerprint(("module", arguments[0]))
        if name == "module" and self._files.shape(str(arguments[0])):
            return f"#{self._files.shape(str(arguments[0]))}"
        if name not in _QUERIES:
            return MISSING_RESULT
        around, self._project.query_log.current = self._project.query_log.current, QueryTrace()
        try:
            answer = getattr(self._project, str(name))(*arguments)
        except (KeyError, TypeError, AttributeError):  # what it asks about is gone, or its arguments were never ours
            return MISSING_RESULT
        finally:
            self._project.query_log.current = around
        text = shape(answer)
        if name not in OF_FILES:
            if len(text) <= SHORT:
                return text
            if self._stores:
                return self._stored(text)
        return f"#{digest(text.encode())}"

    def _stored(self, text: str) -> str:
        import zlib

        data = text.encode()
        fingerprint = f"#{digest(data)}"
        self.long[fingerprint] = zlib.compress(data, 1)
        return fingerprint


def _packed(codes: Iterable[int]) -> bytes:
    import zlib

    return zlib.compress(array("Q", codes).tobytes(), 1)


class StoredQueries:
    """Results of an earlier run that still hold, for a project that gives the same ones. ``long`` are long results, by their
    fingerprints; ``codes`` the dependencies of each query, for a project that logs them."""

    def __init__(
        self, pairs: Iterable[tuple[str, str]], long: Mapping[str, str], codes: Mapping[str, int] | None = None
    ) -> None:
        self._fingerprints = dict(pairs)
        self._long = long
        self._codes = codes or {}

    def dependency(self, query: Query) -> int:
        """What stands for the result in the dependency log."""
        return self._codes[to_text(query)]

    def answer(self, query: Query) -> Any:
        """The result of a query; ``MISSING`` where it was not asked, or is not stored."""
        name = str(query[0])
        found = self._fingerprints.get(to_text(query)) if name not in OF_FILES else None
        if found is not None and found.startswith("#"):
            found = self._long.get(found)
        if found is None or found == MISSING_RESULT:
            return MISSING
        try:
            return _result_reader(name)(json.loads(found))
        except (ValueError, TypeError, AttributeError, KeyError):
            return MISSING


@cache
def _result_reader(name: str) -> Callable[[Any], Any]:
    """What reads results of the query of this name, by the type that the method declares."""
    return reader(get_type_hints(getattr(Project, name).__wrapped__)["return"])
