"""Comments that switch findings off.

    # noqa                                     this statement, every code (any linter's)
    # noqa: TML101, TML2                       this statement, these codes or prefixes
    # torchmemlint: ignore[TML101] reason      the same; on a row of its own it covers the next statement too
    # torchmemlint: ignore                     every code of ours
    # torchmemlint: disable[TML1]              from this row on …
    # torchmemlint: enable[TML1]               … up to this row; without brackets: all codes
    # torchmemlint: file-ignore[TML301]        the whole file, wherever it stands
    # flake8: noqa: TML101                     the whole file, on a row of its own; without codes it is for flake8 alone

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
_WORD = re.compile(r"[^,\s]+")
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
    ours        it is written ``# torchmemlint: …``; otherwise other linters read it, too
    comment     column of the comment that it is part of
    columns     where it begins and ends in its row, with the reason if it is ours
    places      where each selector begins and ends, in the order of ``selectors``
    """

    row: int
    kind: Kind
    selectors: tuple[str, ...] = ()
    reason: str = ""
    alone: bool = False
    ours: bool = False
    comment: int = 1
    columns: tuple[int, int] = (1, 1)
    places: tuple[tuple[int, int], ...] = ()

    def names(self, code: str, name: str) -> bool:
        """Whether the directive is about this rule."""
        return not self.selectors or any(selects(selector, code, name) for selector in self.selectors)


def selects(selector: str, code: str, name: str) -> bool:
    """Whether a selector stands for a rule."""
    return code.startswith(selector) or name == selector


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
        return bool(self.covering(code, name, row, statement_rows))

    def covering(self, code: str, name: str, row: int, statement_rows: Collection[int]) -> list[Directive]:
        """The directives each of which switches such a finding off."""
        following = dict(self.next_code)
        covering: list[Directive] = []
        disabled: list[Directive] = []
        for directive in self.found:
            if not directive.names(code, name):
                continue
            match directive.kind:
                case Kind.FILE:
                    covering.append(directive)
                case Kind.STATEMENT:
                    if directive.row in statement_rows or following.get(directive.row) in statement_rows:
                        covering.append(directive)
                case Kind.DISABLE if directive.row <= row:
                    disabled.append(directive)
                case Kind.ENABLE if directive.row <= row:
                    disabled.clear()
                case _:  # a range that begins below the finding
                    pass
        return [*covering, *disabled]


def read_directives(text: str, rule_names: Collection[str] = ()) -> Directives:
    """The suppression comments of a Python text.

    ``rule_names`` distinguishes a rule's name from a word of prose after ``# noqa:``. A text that does not tokenize gives the
    comments above the place where it stops making sense.
    """
    if _WORTH_TOKENIZING.search(text) is None:
        return Directives()
    found: list[Directive] = []
    problems: list[tuple[int, str]] = []
    waiting: list[int] = []
    next_code: list[tuple[int, int]] = []
    for row, column, comment, alone in _rows_of_interest(text):
        if comment is None:
            next_code.extend((above, row) for above in waiting)
            waiting.clear()
            continue
        for item in _parse(row, column, comment, alone, rule_names):
            if isinstance(item, str):
                problems.append((row, item))
                continue
            found.append(item)
            if alone and item.kind is Kind.STATEMENT and _OURS.search(comment):
                waiting.append(row)
    return Directives(tuple(found), tuple(next_code), tuple(problems))


def _rows_of_interest(text: str) -> Iterator[tuple[int, int, str | None, bool]]:
    """(row, column, comment, it stands alone) for each comment, and (row, 1, None, False) where a row of code begins."""
    last_code_row = 0
    try:
        # newline=None makes a lone \r end a row, as it does for the parser.
        for token in tokenize.generate_tokens(io.StringIO(text, newline=None).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.start[1] + 1, token.string, token.start[0] != last_code_row
            elif token.type not in (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER):
                if token.start[0] > last_code_row:
                    yield token.start[0], 1, None, False
                last_code_row = token.end[0]
    except (tokenize.TokenError, SyntaxError):
        return


def _parse(row: int, column: int, comment: str, alone: bool, rule_names: Collection[str]) -> Iterator[Directive | str]:
    """The directives in one comment; a string is a complaint about one."""
    noqas = [(noqa, Kind.STATEMENT) for noqa in _NOQA.finditer(comment)]
    if (flake8 := _FLAKE8_FILE.match(comment)) and alone and flake8["codes"]:
        noqas.insert(0, (flake8, Kind.FILE))
    for match, kind in noqas:
        words = _noqa_codes(match, rule_names)
        end = words[-1][2] if words else match.start() + len(_bare(match))
        yield Directive(
            row, kind, tuple(word for word, _, _ in words), alone=alone, comment=column,
            columns=(column + match.start(), column + end),
            places=tuple((column + start, column + end) for _, start, end in words),
        )  # fmt: skip
    for ours in _OURS.finditer(comment):
        kind_of_ours = {
            "ignore": Kind.STATEMENT, "file-ignore": Kind.FILE, "disable": Kind.DISABLE, "enable": Kind.ENABLE
        }.get(ours["verb"].lower())  # fmt: skip
        listed = list(_WORD.finditer(ours["codes"] or ""))
        if kind_of_ours is None:
            yield f"unknown directive `torchmemlint: {ours['verb']}`; use ignore, file-ignore, disable or enable"
        elif ours["codes"] is not None and not ours["closed"]:
            yield f"`torchmemlint: {ours['verb']}[` has no closing bracket"
        elif ours["codes"] is not None and (
            not listed or any(not (_CODE_OR_PREFIX.match(word[0]) or _NAME.match(word[0])) for word in listed)
        ):
            yield f"`torchmemlint: {ours['verb']}[{ours['codes']}]` names no code or rule"
        else:
            first = column + ours.start("codes")
            yield Directive(
                row, kind_of_ours, tuple(_normal(word[0]) for word in listed), ours["reason"].strip(), alone, True, column,
                columns=(column + ours.start(), column + ours.start() + len(ours[0].rstrip())),
                places=tuple((first + word.start(), first + word.end()) for word in listed),
            )  # fmt: skip


def _bare(noqa: re.Match[str]) -> str:
    """What a ``# noqa`` without codes consists of: prose after it is not part of it."""
    return noqa[0][: noqa.start("codes") - noqa.start()] if noqa["codes"] is not None else noqa[0]


def _noqa_codes(noqa: re.Match[str], rule_names: Collection[str]) -> list[tuple[str, int, int]]:
    """The codes after ``noqa:`` and where they stand in the comment, up to the first word that is none; none at all means every
    code, as flake8 has it."""
    codes: list[tuple[str, int, int]] = []
    for word in _WORD.finditer(noqa["codes"] or ""):
        start = noqa.start("codes") + word.start()
        if word[0].lower() in rule_names:
            codes.append((_normal(word[0]), start, start + len(word[0])))
            continue
        # Codes may touch ("F401F841") and prose may touch a code ("TML101:", "TML101(logged)"), in flake8 and ruff too.
        rest = word[0]
        while code := _CODE.match(rest):
            codes.append((_normal(code[0]), start, start + code.end()))
            start += code.end()
            rest = rest[code.end() :]
        if rest:
            break
    return codes


def _normal(word: str) -> str:
    return word.lower() if "-" in word else word.upper()
