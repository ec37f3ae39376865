"""What only older versions of Python read, put in the words of today.

Only what no Python 3 accepts is touched (and ``print >>f, x``, which no Python 3 program says). Rows stay; so do columns, as far as
that can be had: ``print x`` becomes ``print(x)``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from torchmemlint.source.tokens import Line, Token, margin_of

PYTHON_2, BEFORE_3_7 = "Python 2", "Python before 3.7"


class Change(NamedTuple):
    """``text[start:end]`` becomes ``new``. ``of`` is the Python that reads what was there, "" where that is not known."""

    start: int
    end: int
    new: str
    of: str = PYTHON_2


COMPOUND = frozenset(("async", "class", "def", "elif", "else", "except", "finally", "for", "if", "try", "while", "with"))
"""Words that begin a header."""
_GOES_ON = frozenset(("and", "as", "else", "for", "from", "if", "in", "is", "or"))
"""Names that go on an expression: ``print`` before them is a name."""
_OCTAL = re.compile(r"0[0-7]+[lL]?")
_LONG = re.compile(r"[\da-fA-FxXoObB_]+[lL]")
MOST_OF_A_HEADER = 300
"""Words and signs among which the parameters of a function are looked for."""
_ENDS_A_NAME = frozenset((")", "]", "}", ",", ".", ":", "=", ";"))
_EXCEPTION = re.compile(r"[A-Z]\w*(?:Error|Exception|Warning|Interrupt|Exit|Iteration)$")


def changes(lines: Iterable[Line]) -> list[Change]:
    """What is to be changed in some logical lines, in order."""
    found: list[Change] = []
    for line in lines:
        found += _of_words(line.tokens)
        for statement in _statements(line.tokens):
            found += _of_statement(statement)
    return sorted(set(found))


def plain_margins(text: str, lines: Iterable[Line]) -> list[Change]:
    """Spaces up to the tab stops of Python 2 in the place of margins with tabs."""
    found = []
    for line in lines:
        first = line.tokens[0].start
        if "\t" in text[line.start : first]:
            found.append(Change(line.start, first, " " * margin_of(text, line.start, first), ""))
    return found


def is_of_python_3(tree: ast.AST) -> bool:
    """Whether a tree has what Python 2 never read."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr | ast.AnnAssign | ast.NamedExpr | ast.AsyncFunctionDef | ast.Nonlocal | ast.Match):
            return True
        if isinstance(node, ast.arg) and node.annotation is not None:
            return True
        if isinstance(node, ast.FunctionDef) and node.returns is not None:
            return True
    return False


def _of_words(tokens: Sequence[Token]) -> Iterator[Change]:
    """What is changed wherever it stands."""
    ticks = [token for token in tokens if token.text == "`"]
    if len(ticks) % 2 == 0:
        yield from (Change(tick.start, tick.end, ")" if number % 2 else "repr(") for number, tick in enumerate(ticks))
    for at, token in enumerate(tokens):
        kind, start, end, text, _ = token
        after = tokens[at + 1].text if at + 1 < len(tokens) else ""
        if text == "<>":
            yield Change(start, end, "!=")
        elif kind == "number" and text[-1] in "lL" and (_LONG.fullmatch(text) or _OCTAL.fullmatch(text)):
            number = text[:-1]
            octal = _OCTAL.fullmatch(number) and number.strip("0")
            yield Change(start, end, f"0o{number[1:]}" if octal else f"{number} ")
        elif kind == "number" and _OCTAL.fullmatch(text) and text.strip("0"):
            yield Change(start, start + 1, "0o")
        elif kind == "string" and text[:2].lower() == "ur":
            yield Change(start, start + 1, "")
        elif text in ("async", "await") and kind == "name":
            before = tokens[at - 1].text if at else ""
            is_name = after not in ("def", "for", "with") if text == "async" else after in _ENDS_A_NAME or not after
            if is_name or before in (".", "def", "import"):
                yield Change(end, end, "_", BEFORE_3_7)
        elif text in ("def", "lambda") and kind == "name":
            yield from _tuple_parameters(tokens, at)


def _tuple_parameters(tokens: Sequence[Token], at: int) -> Iterator[Change]:
    """``def f(a, (b, c)):`` and ``lambda (b, c): b``: one parameter for each tuple, and its names behind the others."""
    tokens = tokens[at : at + MOST_OF_A_HEADER]
    depth = tokens[0].depth + (tokens[0].text == "def")
    at = 1 if tokens[0].text == "lambda" else 3
    names: list[str] = []
    found: list[Change] = []
    starred = False
    begins = True
    while at < len(tokens) and not (tokens[at].depth < depth or (tokens[at].depth == depth and tokens[at].text == ":")):
        token = tokens[at]
        if begins and token.text == "(" and token.depth == depth:
            close = next((n for n in range(at + 1, len(tokens)) if tokens[n].depth == depth), None)
            if close is None or tokens[close].text != ")":
                return
            inside = [one.text for one in tokens[at + 1 : close] if one.kind == "name"]
            if not inside:
                return
            names += inside
            found.append(Change(token.start, tokens[close].end, f"_{'_'.join(inside)}"))
            at = close
        starred |= token.depth == depth and token.text in ("*", "**")
        begins = token.depth == depth and token.text == ","
        at += 1
    if not found or starred or at == len(tokens):
        return
    yield from found
    behind = tokens[at - 1].text == ","
    of_each = "".join(f", {name}={found[0].new}" for name in names)
    yield Change(tokens[at].start, tokens[at].start, f"{' ' if behind else ', '}*{of_each}")


def _statements(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """The simple statements and headers of a logical line, each without its semicolon; a header with its colon."""
    start, lambdas = 0, 0
    header = tokens[0].text in COMPOUND
    for at, token in enumerate(tokens):
        if token.depth:
            continue
        lambdas += token.text == "lambda"
        if token.text == ":" and lambdas:
            lambdas -= 1
        elif token.text == ":" and header:
            yield tokens[start : at + 1]
            start, header = at + 1, False
        elif token.text == ";":
            yield tokens[start:at]
            start, lambdas = at + 1, 0
    yield tokens[start:]


def _of_statement(tokens: Sequence[Token]) -> Iterator[Change]:
    if len(tokens) < 2 or tokens[0].kind != "name":
        return
    word, second = tokens[0], tokens[1]
    if word.text == "print" and (second.text in (">>", "{", "`", "~") or _begins_an_expression(second, tokens)):
        yield from _call(tokens)
        if second.text == ">>":
            yield Change(second.start, second.end, "  ")
    elif word.text == "exec" and _begins_an_expression(second, tokens):
        yield from _call(tokens)
        yield from (Change(t.start, t.end, ", ") for t in tokens if t.text == "in" and not t.depth)
    elif word.text == "raise":
        comma = next((token for token in tokens if token.text == "," and not token.depth), None)
        if comma is not None:
            yield Change(comma.start, comma.end, "(")
            yield Change(tokens[-1].end, tokens[-1].end, ")")
    elif word.text == "except" and len(tokens) > 4 and tokens[-1].text == ":":
        commas = [token for token in tokens if token.text == "," and not token.depth]
        name = tokens[-2]
        # `except ValueError, TypeError:` is of Python 3.14, and catches both.
        if len(commas) == 1 and commas[0] is tokens[-3] and name.kind == "name" and not _EXCEPTION.match(name.text):
            yield Change(commas[0].start, commas[0].end, " as")


def _begins_an_expression(token: Token, tokens: Sequence[Token]) -> bool:
    if token.kind != "name":
        return token.kind in ("number", "string")
    return token.text not in _GOES_ON and not (token.text == "not" and len(tokens) > 2 and tokens[2].text == "in")


def _call(tokens: Sequence[Token]) -> Iterator[Change]:
    """``word x`` as ``word(x)``."""
    word, second = tokens[0], tokens[1]
    yield Change(word.end, min(word.end + 1, second.start), "(")
    yield Change(tokens[-1].end, tokens[-1].end, ")")
