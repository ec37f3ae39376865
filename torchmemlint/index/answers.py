"""Questions asked of a project as text, and their answers as digests: what a cache keeps to know whether a finding still holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from torchmemlint.digest import digest
from torchmemlint.index.facts import ArgFact, CallableUse, CallFact
from torchmemlint.index.ledger import Page, Question
from torchmemlint.index.project import ClassRef, FunctionRef, Project
from torchmemlint.plain import from_plain, to_json

NO_ANSWER = "-"
"""The digest of what there is not: a module or function that is out of sight, a text that cannot be read."""

_KINDS = {kind.__name__: kind for kind in (ArgFact, CallableUse, CallFact, ClassRef, FunctionRef)}

_AT_HAND = ("text", "module")
_QUESTIONS = {"facts", *(name for name, method in vars(Project).items() if hasattr(method, "__wrapped__"))}


def to_text(question: Question) -> str:
    """A question in one line."""
    return json.dumps([part if isinstance(part, str) else [type(part).__name__, to_json(part)] for part in question])


def from_text(text: str) -> Question:
    """The question that ``to_text`` wrote. Raises ValueError for anything else."""
    parts = json.loads(text)
    if not isinstance(parts, list) or not parts or not isinstance(parts[0], str):
        raise ValueError(f"not a question: {text}")
    try:
        return tuple(part if isinstance(part, str) else from_plain(_KINDS[part[0]], json.loads(part[1])) for part in parts)
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"not a question: {text}: {error}") from None


class Answers:
    """Digests of one project's answers, each worked out once.

    ``texts`` and ``facts`` are digests of files' contents and of their facts, by path, as far as they are known.
    """

    def __init__(self, project: Project, texts: Mapping[str, str], facts: Mapping[str, str]) -> None:
        self._project = project
        self._texts = texts
        self._facts = facts
        self._known: dict[Question, str] = {}
        self._by_text: dict[str, str | None] = {}

    def written(self, questions: Iterable[Question]) -> tuple[tuple[str, str], ...]:
        """Questions as text, each with the digest of its answer; those first whose answers are at hand."""
        pairs = ((question[0] not in _AT_HAND, to_text(question), self.digest(question)) for question in questions)
        return tuple((text, answer) for _, text, answer in sorted(pairs))

    def saw_text(self, path: str, content: str) -> None:
        """What was really read of a file, which may have changed since it was told of."""
        self._known["text", path] = content

    def holds(self, text: str, expected: str) -> bool:
        """Whether the answer to a question (as text) still has this digest; not so for what is no question."""
        if text not in self._by_text:
            try:
                self._by_text[text] = self.digest(from_text(text))
            except ValueError:
                self._by_text[text] = None
        return self._by_text[text] == expected

    def digest(self, question: Question) -> str:
        found = self._known.get(question)
        if found is None:
            found = self._known[question] = self._ask(question)
        return found

    def _ask(self, question: Question) -> str:
        name, *arguments = question
        if name == "text":
            return self._texts.get(str(arguments[0]), "") or NO_ANSWER
        if name == "module" and self._facts.get(str(arguments[0])):
            return self._facts[str(arguments[0])]
        if name not in _QUESTIONS:
            return NO_ANSWER
        around, self._project.ledger.open = self._project.ledger.open, Page()
        try:
            answer = getattr(self._project, str(name))(*arguments)
        except (KeyError, TypeError, AttributeError):  # what it asks about is gone, or its arguments were never ours
            return NO_ANSWER
        finally:
            self._project.ledger.open = around
        return digest(to_json(answer).encode())
