"""Comments that switch findings off.

    # noqa                                     this statement, every code (any linter's)
    # noqa: TML101, TML2                       this statement, these codes or prefixes
    # torchmemlint: ignore[TML101] reason      the same; on a row of its own it covers the next statement too
    # torchmemlint: ignore                     every code of ours
    # torchmemlint: disable[TML1]              from this row on …
    # torchmemlint: enable[TML1]               … up to this row; without brackets: all codes
    # torchmemlint: file-ignore[TML301]        the whole file, wherever it stands
    # flake8: noqa                             the whole file, on a row of its own; also ``# flake8: noqa: TML101``

A rule's name may stand wherever a code may. Only comments count: the tokenizer is asked, because ``"# noqa"`` in a string
is no comment. It is asked only where the text has one of the words at all.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum

_WORTH_TOKENIZING = re.compile(r"#[^\n\r]*(?:noqa|torchmemlint\s*:)", re.IGNORECASE)
_NOQA = re.compile(r"#\s*noqa(?![\w-])(?:\s*:\s*(?P<codes>[^#]*))?", re.IGNORECASE)
_FLAKE8_FILE = re.compile(r"#\s*flake8\s*[:=]\s*noqa(?![\w-])(?:\s*:\s*(?P<codes>[^#]*))?", re.IGNORECASE)
_OURS = re.compile(
    r"#\s*torchmemlint\s*:\s*(?P<verb>[\w-]+)[ \t]*"
    r"(?:\[(?P<codes>[^\]#]*)(?P<closed>\])?)?[ \t]*(?P<reason>[^#]*)",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(r"[,\s]+")
_CODE = re.compile(r"[A-Za-z]+[0-9]+")
_CODE_OR_PREFIX = re.compile(r"[A-Za-z]+[0-9]*\Z")
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)+\Z", re.IGNORECASE)


class Kind(Enum):
    """How far a directive reaches."""

    STATEMENT = "statement"
    FILE = "file"
    DISABLE = "disable"
    ENABLE = "enable"


@dataclass(frozen=True, slots=True)
class Directive:
    """One suppression comment.

    row         where it stands
    selectors   codes, prefixes of codes, or rule names; empty means every code
    reason      what the author wrote after it
    alone       nothing but the comment stands on its row
    """

    row: int
    kind: Kind
    selectors: tuple[str, ...] = ()
    reason: str = ""
    alone: bool = False

    def names(self, code: str, name: str) -> bool:
        """Whether the directive is about this rule."""
        return not self.selectors or any(code.startswith(selector) or name == selector for selector in self.selectors)


@dataclass(frozen=True, slots=True)
class Directives:
    """All suppression comments of a file, in order.

    next_code   row of a directive that stands alone → the row of the code that follows it
    problems    (row, message) of comments that address us but say nothing that we know
    """

    found: tuple[Directive, ...] = ()
    next_code: tuple[tuple[int, int], ...] = ()
    problems: tuple[tuple[int, str], ...] = ()

    def covers(self, code: str, name: str, row: int, statement_rows: Collection[int]) -> bool:
        """Whether a finding that starts on ``row`` and may be suppressed on ``statement_rows`` is switched off."""
        following = dict(self.next_code)
        enabled = True
        for directive in self.found:
            if not directive.names(code, name):
                continue
            match directive.kind:
                case Kind.FILE:
                    return True
                case Kind.STATEMENT:
                    if directive.row in statement_rows or following.get(directive.row) in statement_rows:
                        return True
                case Kind.DISABLE | Kind.ENABLE if directive.row <= row:
                    enabled = directive.kind is Kind.ENABLE
                case _:  # a range that begins below the finding
                    pass
        return not enabled


def read_directives(text: str, rule_names: Collection[str] = ()) -> Directives:
    """The suppression comments of a Python text.

    ``rule_names`` tells a rule's name from a word of prose after ``# noqa:``. A text that does not tokenize gives the
    comments above the place where it stops making sense.
    """
    if _WORTH_TOKENIZING.search(text) is None:
        return Directives()
    found: list[Directive] = []
    problems: list[tuple[int, str]] = []
    waiting: list[int] = []
    next_code: list[tuple[int, int]] = []
    for row, comment, alone in _rows_of_interest(text):
        if comment is None:
            next_code.extend((above, row) for above in waiting)
            waiting.clear()
            continue
        for item in _parse(row, comment, alone, rule_names):
            if isinstance(item, str):
                problems.append((row, item))
                continue
            found.append(item)
            if alone and item.kind is Kind.STATEMENT and _OURS.search(comment):
                waiting.append(row)
    return Directives(tuple(found), tuple(next_code), tuple(problems))


def _rows_of_interest(text: str) -> Iterator[tuple[int, str | None, bool]]:
    """(row, comment, it stands alone) for each comment, and (row, None, False) where a row of code begins."""
    last_code_row = 0
    try:
        # newline=None makes a lone \r end a row, as it does for the parser.
        for token in tokenize.generate_tokens(io.StringIO(text, newline=None).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string, token.start[0] != last_code_row
            elif token.type not in (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER):
                if token.start[0] > last_code_row:
                    yield token.start[0], None, False
                last_code_row = token.end[0]
    except (tokenize.TokenError, SyntaxError):
        return


def _parse(row: int, comment: str, alone: bool, rule_names: Collection[str]) -> Iterator[Directive | str]:
    """The directives in one comment; a string is a complaint about one."""
    if (flake8 := _FLAKE8_FILE.match(comment)) and alone:
        yield Directive(row, Kind.FILE, _noqa_codes(flake8["codes"], rule_names), alone=alone)
    for noqa in _NOQA.finditer(comment):
        yield Directive(row, Kind.STATEMENT, _noqa_codes(noqa["codes"], rule_names), alone=alone)
    if ours := _OURS.search(comment):
        kind = {"ignore": Kind.STATEMENT, "file-ignore": Kind.FILE, "disable": Kind.DISABLE, "enable": Kind.ENABLE}.get(
            ours["verb"].lower()
        )
        if kind is None:
            yield f"`torchmemlint: {ours['verb']}` means nothing; use ignore, file-ignore, disable or enable"
        elif ours["codes"] is None:
            yield Directive(row, kind, (), ours["reason"].strip(), alone)
        elif not ours["closed"]:
            yield f"`torchmemlint: {ours['verb']}[` lacks its closing bracket"
        else:
            words = [word for word in _SEPARATOR.split(ours["codes"]) if word]
            strange = [word for word in words if not (_CODE_OR_PREFIX.match(word) or _NAME.match(word))]
            if strange or not words:
                yield f"`torchmemlint: {ours['verb']}[{ours['codes']}]` names no code or rule"
            else:
                yield Directive(row, kind, tuple(_normal(word) for word in words), ours["reason"].strip(), alone)


def _noqa_codes(listed: str | None, rule_names: Collection[str]) -> tuple[str, ...]:
    """The codes after ``noqa:``, up to the first word that is none; none at all means every code, as flake8 has it."""
    codes: list[str] = []
    for word in _SEPARATOR.split(listed.strip()) if listed else ():
        if word.lower() in rule_names:
            codes.append(_normal(word))
            continue
        # Codes may touch ("F401F841") and prose may touch a code ("TML101:", "TML101(logged)"), in flake8 and ruff too.
        rest = word
        while code := _CODE.match(rest):
            codes.append(_normal(code[0]))
            rest = rest[code.end() :]
        if rest:
            break
    return tuple(codes)


def _normal(word: str) -> str:
    return word.lower() if "-" in word else word.upper()
