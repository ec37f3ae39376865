"""How a program is laid out in lines says nothing: simple statements joined by ``;``, bodies on the line of their header, and
statements spread over lines have the same findings at the same statements."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

import pytest
from gaps import Case, alarms, cases, without_marks

Place = tuple[int, int]
"""Row from 1 and column from 0 in bytes, as ``ast`` counts them."""

OPENING = frozenset("([{")
CLOSING = frozenset(")]}")


def blocks(tree: ast.Module) -> Iterator[tuple[ast.stmt | ast.excepthandler | None, list[ast.stmt]]]:
    """Every list of statements, with what it is the body of; None for the module's, and for a second body (``else``)."""
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield (node if name == "body" and isinstance(node, ast.stmt | ast.excepthandler) else None), value


def is_simple(statement: ast.stmt) -> bool:
    return not hasattr(statement, "body") and not isinstance(statement, ast.Match)


def start_of(node: ast.stmt) -> Place:
    return node.lineno, node.col_offset


def end_of(node: ast.stmt) -> Place:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


def edited(text: str, edits: list[tuple[Place, Place, str]]) -> str:
    """The text with stretches of it replaced, none inside another."""
    lines = text.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    data = b"".join(lines)
    for start, end, new in sorted(edits, reverse=True):
        data = data[: starts[start[0] - 1] + start[1]] + new.encode() + data[starts[end[0] - 1] + end[1] :]
    return data.decode()


def uncommented(text: str) -> str:
    """The text without its comments, of the same statements in the same rows."""
    found = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT]
    lines = text.splitlines(keepends=True)
    for token in found:
        row, column = token.start
        lines[row - 1] = lines[row - 1][:column].rstrip() + "\n"
    return "".join(lines)


def joined(text: str) -> str:
    """Simple statements that follow each other, on one line."""
    gaps = [
        (end_of(one), start_of(other), "; ")
        for _, body in blocks(ast.parse(text))
        for one, other in pairwise(body)
        if is_simple(one) and is_simple(other)
    ]
    return edited(text, gaps)


def dense(text: str) -> str:
    """The same, and bodies of simple statements on the line of their header."""
    text = joined(text)
    lines = text.encode().splitlines()
    edits = []
    for owner, body in blocks(ast.parse(text)):
        if owner is None or not all(map(is_simple, body)):
            continue
        first = start_of(body[0])
        row = first[0] - 1
        while row and not lines[row - 1].strip():
            row -= 1
        header = lines[row - 1].rstrip()
        if row >= owner.lineno and header.endswith(b":") and not lines[first[0] - 1][: first[1]].strip():
            edits.append(((row, len(header)), first, " "))
    return edited(text, edits)


def spread(text: str) -> str:
    """A line of its own for what stands in brackets, item by item, and for what is assigned or added."""
    out: list[tuple[Place, Place, str]] = []
    for node in ast.walk(ast.parse(text)):
        value = getattr(node, "value", None)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Return) and isinstance(value, ast.Call | ast.Name | ast.BinOp):
            start, end = (value.lineno, value.col_offset), end_of(node)
            out += [(start, start, "(\n"), (end, end, "\n)")]
    text = edited(text, out)
    breaks: list[tuple[Place, Place, str]] = []
    depth = strings = 0
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        strings += (tokenize.tok_name[token.type] == "FSTRING_START") - (tokenize.tok_name[token.type] == "FSTRING_END")
        if token.type != tokenize.OP:
            continue
        depth += (token.string in OPENING) - (token.string in CLOSING)
        if depth and not strings and (token.string in OPENING or token.string == ","):
            row, column = token.end
            at = (row, len(lines[row - 1][:column].encode()))
            breaks.append((at, at, "\n"))
    return edited(text, breaks)


def found_in(plain: Mapping[str, str], layout: Callable[[str], str]) -> set[tuple[str, int, str, str, str]]:
    """Path, number of the statement, code, severity and confidence of each finding."""
    texts = {name: layout(text) for name, text in plain.items()}
    spans: dict[str, list[tuple[Place, Place]]] = {}
    for name, text in texts.items():
        statements = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
        spans[name] = [(start_of(node), end_of(node)) for node in statements]
    found = set()
    for one in alarms(texts, "ALL", "low"):
        row, column = one.span.start.row, one.span.start.column
        line = texts[one.path].splitlines()[row - 1]
        at = (row, len(line[: column - 1].encode()))
        around = [number for number, (start, end) in enumerate(spans[one.path]) if start <= at < end]
        found.add((one.path, around[-1] if around else -1, one.code, one.severity.value, one.confidence.value))
    return found


CASES = [case for case in cases() if case.name[:4] in ("TML1", "TML2", "TML3")]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_layout_of_a_program_changes_no_finding(case: Case) -> None:
    texts = {name: uncommented(without_marks(text)) for name, text in case.texts.items()}
    plain = found_in(texts, lambda text: text)
    for layout in (dense, spread):
        other = found_in(texts, layout)
        assert (sorted(plain - other), sorted(other - plain)) == ([], []), layout.__name__


def test_the_layouts_hold_the_same_statements() -> None:
    changed = 0
    for case in CASES[::40]:
        for text in case.texts.values():
            text = uncommented(without_marks(text))
            for layout in (joined, dense, spread):
                assert ast.dump(ast.parse(layout(text))) == ast.dump(ast.parse(text))
                changed += layout(text) != text
    assert changed
