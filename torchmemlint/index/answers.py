"""Questions asked of a project as text, and their answers: what a cache keeps to know whether a finding still holds.

A *told* answer is JSON of its shape (without rows, see ``index.plain``), or for a long one, and for facts and texts, ``#`` and
its digest.
"""

from __future__ import annotations

import json
import json.encoder
import zlib
from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol, get_type_hints

from torchmemlint.files.digest import digest
from torchmemlint.files.plain import from_plain, reader, to_json
from torchmemlint.index import keys
from torchmemlint.index.facts import ArgFact, CallableUse, CallFact
from torchmemlint.index.ledger import Page, Question
from torchmemlint.index.plain import shape
from torchmemlint.index.project import Project
from torchmemlint.index.references import ClassRef, FunctionRef
from torchmemlint.index.trail import MISSING, counted

NO_ANSWER = "-"
"""What is told of what there is not: a module or function that is out of sight, a text that cannot be read."""
SHORT = 300
"""Characters up to which an answer is told as it is: most are names and references."""

_in_json = json.encoder.encode_basestring_ascii
_KINDS = {kind.__name__: kind for kind in (ArgFact, CallableUse, CallFact, ClassRef, FunctionRef)}

_AT_HAND = ("text", "source", "module")
"""Answers that are known without asking the project: a file's findings are mostly refuted by them, so they are looked at first."""
_OF_FILES = ("text", "module", "facts", "within", "attrs", "receivers")
"""Answers that are contents of files: told by digest, never kept, for the file itself has them."""
_COMMON = {told: told for told in (NO_ANSWER, "null", "true", "false", "[]", "[[],true]", "[[],false]")}
"""Told of two in three questions: each is kept once."""
_OF_TEXTS: Mapping[Hashable, int] = {"text": keys.TEXT, "source": keys.SOURCE, "module": keys.MODULE, "within": keys.INSIDE}
"""Questions whose answers are a key each."""
_QUESTIONS = {"facts", *(name for name, method in vars(Project).items() if hasattr(method, "__wrapped__"))}


def to_text(question: Question) -> str:
    """A question in one line of ASCII: JSON, as ``to_json`` writes it, of texts and of pairs of a type's name and a value."""
    return f"[{','.join([_in_json(part) if type(part) is str else _typed_in_json(part) for part in question])}]"


def _typed_in_json(part: Hashable) -> str:
    # The encoder that JSON has for everything takes ten times as long for the references that most questions are about.
    if type(part) is FunctionRef or type(part) is ClassRef:
        return f'["{type(part).__name__}",[{",".join(map(_in_json, part))}]]'
    return to_json([type(part).__name__, part])


def from_text(text: str) -> Question:
    """The question that ``to_text`` wrote. Raises ValueError for anything else."""
    parts = json.loads(text)
    if not isinstance(parts, list) or not parts or not isinstance(parts[0], str):
        raise ValueError(f"not a question: {text}")
    try:
        return tuple(part if type(part) is str else from_plain(_KINDS[part[0]], part[1]) for part in parts)
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"not a question: {text}: {error}") from None


class Files(Protocol):
    """Digests of files by path, "" or nothing where they are not known."""

    def text(self, path: str, /) -> str:
        """Of the content."""

    def shape(self, path: str, /) -> str:
        """Of the shape of the facts."""

    def sources(self, path: str, /) -> Mapping[str, str]:
        """Of the texts of the functions, by their names (see ``index.sources``)."""


class Answers:
    """What is told of one project's answers, each worked out once.

    ``files`` knows the digests of files as they were seen. Long answers are in ``long``, by what is told of them and packed by zlib,
    if it ``keeps`` them. ``holding`` are questions, as text, whose answers are known to be what they were: with the steps that they are, None where
    these are keys.
    """

    def __init__(
        self,
        project: Project,
        files: Files,
        keeps: bool = False,
        holding: Mapping[str, int | None] | None = None,
    ) -> None:
        self._project = project
        self._holding = holding or {}
        self._files = files
        self._keeps = keeps
        self.long: dict[str, bytes] = {}
        self._trail = project.trail
        self._places: dict[Question, int] = {}
        self._told: list[str] = []
        self._codes = array("Q")
        self._changed: set[str] = set()
        self._by_text: dict[str, int] = {}

    def written(self, questions: Iterable[Question]) -> tuple[tuple[tuple[str, str], ...], bytes]:
        """Questions as text, each with what is told of its answer; those first whose answers are at hand. And the codes of the
        steps that these answers are, where the project's trail is on."""
        found = sorted((question[0] not in _AT_HAND, to_text(question), self._place(question)) for question in questions)
        codes = self._codes_at([place for _, _, place in found])
        return tuple((text, self._told[place]) for _, text, place in found), codes

    def codes(self, texts: Iterable[str]) -> bytes:
        """The codes of the steps to answers that were looked at by ``holds``."""
        return _packed(map(self._code_of, texts)) if self._trail.on else b""

    def _code_of(self, text: str) -> int:
        if text not in self._holding:
            return self._codes[self._by_text[text]]
        step = self._holding[text]
        return self._code_of_key(from_text(text)) if step is None else step

    def _code_of_key(self, question: Question) -> int:
        path, name = (*map(str, question[1:]), "")[:2]
        return self._trail.code((_OF_TEXTS[question[0]], path, name))

    def _codes_at(self, places: Sequence[int]) -> bytes:
        return _packed(self._codes[place] for place in places) if self._trail.on else b""

    def saw_text(self, path: str, content: str) -> None:
        """What was really read of a file, which may have changed since it was told of."""
        self._put(("text", path), f"#{content}")
        if content != self._files.text(path):
            self._changed.add(path)

    def holds(self, text: str, expected: str) -> bool:
        """Whether of the answer to a question (as text) the same is told as then; not so for what is no question."""
        if text in self._holding:
            return True
        place = self._by_text.get(text)
        if place is None:
            try:
                place = self._place(from_text(text))
            except ValueError:
                place = -1
            self._by_text[text] = place
        return place >= 0 and self._told[place] == expected

    def told(self, question: Question) -> str:
        return self._told[self._place(question)]

    def _place(self, question: Question) -> int:
        found = self._places.get(question)
        if found is None:
            self._trail.page = []
            found = self._put(question, self._ask(question))
        return found

    def _put(self, question: Question, told: str) -> int:
        place = self._places[question] = counted(len(self._told))
        self._told.append(_COMMON.get(told, told))
        if self._trail.on:
            is_key = question[0] in _OF_TEXTS
            self._codes.append(self._code_of_key(question) if is_key else self._trail.node(self._trail.page))
        return place

    def without_keeping(self) -> Answers:
        """The same where the cache is out of reach."""
        return Answers(self._project, self._files)

    def _ask(self, question: Question) -> str:
        name, *arguments = question
        if name == "text":
            known = self._files.text(str(arguments[0]))
            return f"#{known}" if known else NO_ANSWER
        if name == "source":  # where it is not known, all of the text stands for it
            path, qualname = map(str, arguments)
            found = self._files.sources(path).get(qualname) if path not in self._changed else None
            return f"#{found}" if found is not None else self.told(("text", path))
        if name == "within":  # of such an answer nothing is kept: without its trail, it holds as long as all of the module does
            return self.told(("module", arguments[0]))
        if name == "module" and self._files.shape(str(arguments[0])):
            return f"#{self._files.shape(str(arguments[0]))}"
        if name not in _QUESTIONS:
            return NO_ANSWER
        around, self._project.ledger.open = self._project.ledger.open, Page()
        try:
            answer = getattr(self._project, str(name))(*arguments)
        except (KeyError, TypeError, AttributeError):  # what it asks about is gone, or its arguments were never ours
            return NO_ANSWER
        finally:
            self._project.ledger.open = around
        text = shape(answer)
        if name not in _OF_FILES:
            if len(text) <= SHORT:
                return text
            if self._keeps:
                return self._kept(text)
        return f"#{digest(text.encode())}"

    def _kept(self, text: str) -> str:
        data = text.encode()
        told = f"#{digest(data)}"
        self.long[told] = zlib.compress(data, 1)
        return told


def _packed(codes: Iterable[int]) -> bytes:
    return zlib.compress(array("Q", codes).tobytes(), 1)


class Earlier:
    """Answers of an earlier run, for a project that gives the same ones. ``long`` are long answers, by what is told of them;
    ``codes`` those of their steps, by question, for a project whose trail is on."""

    def __init__(
        self, pairs: Iterable[tuple[str, str]], long: Mapping[str, str], codes: Mapping[str, int] | None = None
    ) -> None:
        self._told = dict(pairs)
        self._long = long
        self._codes = codes or {}

    def step(self, question: Question) -> int:
        """The code of the step that an answer is."""
        return self._codes[to_text(question)]

    def answer(self, question: Question) -> Any:
        """The answer to a question; ``MISSING`` where it was not asked, or is not kept."""
        name = str(question[0])
        told = self._told.get(to_text(question)) if name not in _OF_FILES else None
        if told is not None and told.startswith("#"):
            told = self._long.get(told)
        if told is None or told == NO_ANSWER:
            return MISSING
        try:
            return _answer_of(name)(json.loads(told))
        except (ValueError, TypeError, AttributeError, KeyError):
            return MISSING


@cache
def _answer_of(name: str) -> Callable[[Any], Any]:
    """What reads an answer to questions of this name, by the type that the method declares."""
    return reader(get_type_hints(getattr(Project, name).__wrapped__)["return"])
