"""Edits of a file that fixes are made of: what is put behind an expression, around a statement, or taken away."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torchmemlint.findings import Edit, Fix, Position, Safety, Span
from torchmemlint.index.references import FunctionRef
from torchmemlint.lower.syntax import has_siblings
from torchmemlint.semantics.dataflow import shown
from torchmemlint.semantics.state import MODULE, CallEffect, Record, Site, World, memoized

KEYWORD = re.compile(r"(?P<comma>,\s*)?\b\w+\s*=\s*\Z")
COMMA = re.compile(r"\s*(?P<comma>,\s*)?")
SEMICOLON_BEHIND = re.compile(r"\s*;[ \t]*(?=\S)(?!#)")
SEMICOLON_AHEAD = re.compile(r"\s*;\s*\Z")


class NoFix(str):
    """Why a finding has no fix though its rule has one; the finding's help says it. "" where no reason is known for sure."""


@dataclass(frozen=True, slots=True)
class Edits:
    """Fixes at the sites of one record."""

    world: World
    record: Record

    def _ref(self, site: Site) -> FunctionRef:
        return self.record.frames[site.frame].ref

    def _lowered(self, site: Site) -> Any:
        ref = self._ref(site)
        return self.world.placed(ref.path, self.world.outermost(ref).qualname)

    def append_to(
        self,
        site: Site,
        node: int,
        text: str,
        message: str,
        safety: Safety,
        *,
        sure: bool = False,
        strict: bool = False,
        container: str = "",
    ) -> Fix | NoFix | None:
        """A fix that appends a method call to an expression, in parentheses where its form needs them; None for a display or
        literal, which has no such method. It is a tensor's method: so the value must be shown to be one, if the caller is not
        ``sure``, and nothing may contradict that, nor be done with the elements of the ``container`` that it is put into.
        ``strict``: the machine does not know that it is no number."""
        lowered = self._lowered(site)
        source = lowered.source(node)
        if is_display(source):
            return None
        if source.rstrip().endswith(text):
            return NoFix(f"`{text}` is there")
        seen = shown(self.world, self._ref(site), node, container, strict)
        if seen.may_not or not (seen.surely or sure):
            return NoFix(seen.why)
        if is_primary(source):
            end = lowered.span(node).end
            return Fix(message, safety, (Edit(Span(end, end), text),))
        span = lowered.outer_span(node)
        if lowered.span(node) != span:
            return Fix(message, safety, (Edit(Span(span.end, span.end), text),))
        return Fix(message, safety, (Edit(Span(span.start, span.start), "("), Edit(Span(span.end, span.end), ")" + text)))

    def under_no_grad(self, site: Site, message: str, call: str = "no_grad()") -> Fix | None:
        """A fix that puts the statement under ``with torch.no_grad():``, or another call of torch's; only for a simple statement
        that shares its rows with no other."""
        world = self.world
        ref = self._ref(site)
        span, _ = self._lowered(site).statement(site.node)
        rows = world.lines_around(ref)[span.start.row - 1 : span.end.row]
        line, last = rows[0], rows[-1]
        around = line[: span.start.column - 1] + last[span.end.column - 1 :].split("#")[0]
        text = "".join(rows)[span.start.column - 1 :]
        goes_on = any(row.rstrip("\r\n").endswith("\\") for row in rows[:-1])
        if around.strip() or self._opens_a_block(site) or has_quotes(text) or goes_on:
            return None
        name, needed = self.torch_at(site)
        if name is None:
            return None
        indent = line[: span.start.column - 1]
        newline = line[len(line.rstrip("\r\n")) :] or "\n"
        head = f"with {name}.{call}:"
        lines, row, end = world.lines_around(ref), span.start.row, span.end.row
        unit = unit_of_block_above(lines, row, indent, head)
        edits = [Edit(Span(span.start, span.start), unit)]
        if not unit:
            unit = "\t" if indent.startswith("\t") else "    "
            edits = [Edit(Span(span.start, span.start), f"{head}{newline}{indent}{unit}")]
        for more in range(row + 1, end + 1):
            if lines[more - 1].strip():
                edits.append(Edit(Span(Position(more, 1), Position(more, 1)), unit))
        below = unit_of_block_below(lines, end, indent, head)
        if below == unit:
            edits.append(Edit(Span(Position(end + 1, 1), Position(end + 2, 1)), ""))
        return Fix(message, Safety.UNSAFE, tuple(edits), needed)

    def add_argument(self, event: CallEffect, text: str, message: str, safety: Safety) -> Fix | None:
        """A fix that adds a keyword argument to a call, behind its last one; None for a call without arguments."""
        lowered = self._lowered(event.site)
        if "**" in event.more:
            return None
        end = lowered.span(event.site.node).end
        if event.more or not event.nodes:
            source = lowered.source(event.site.node)
            if "\n" in source or source.rstrip(") ").endswith(("(", ",")):
                return None
            end = Position(end.row, end.column - 1)
        else:
            end = max(lowered.outer_span(node).end for _, node in event.nodes)
        return Fix(message, safety, (Edit(Span(end, end), f", {text}"),))

    def is_statement(self, site: Site) -> bool:
        """Whether a call is a statement of its own: nothing is done with its result."""
        return bool(self._lowered(site).statement(site.node)[1] == " ".join(self._lowered(site).source(site.node).split()))

    def replace(self, site: Site, node: int, text: str, message: str, safety: Safety) -> Fix:
        """A fix that puts other text in the place of an expression or statement."""
        return Fix(message, safety, (Edit(self._lowered(site).outer_span(node), text),))

    def _opens_a_block(self, site: Site) -> bool:
        """Whether a site is in the header of a compound statement, and not in a simple one."""
        lowered = self._lowered(site)
        span = lowered.statement(site.node)[0]
        line = self.world.lines_around(self._ref(site))[span.end.row - 1]
        return bool(line[: span.end.column - 1].rstrip().endswith(":"))

    def torch_name(self, path: str, row: int, around: int = 0) -> tuple[str | None, str | None]:
        """The name for torch in code written above a row, and the module to import where none is bound there for sure; (None,
        None) where "torch" is taken. ``around`` is the first row of the function that the code is in: an import anywhere at the
        left margin serves it, and one above it in the function. A decorator is in none, and needs an import above it."""
        for number, is_indented, name in imports_of_torch(self.world, path):
            served = number < row if is_indented or not around else True
            if served and (not is_indented or 0 < around < number):
                return name, None
        imports = self.world.project.imports(path)
        taken = any(local == "torch" and target.partition(".")[0] != "torch" for local, target in imports)
        return (None, None) if taken else ("torch", "torch")

    def torch_at(self, site: Site) -> tuple[str | None, str | None]:
        """As ``torch_name``, for code at a site."""
        world, ref = self.world, self._ref(site)
        around = 0 if ref.qualname == MODULE else world.facts(world.outermost(ref)).row
        return self.torch_name(ref.path, self._lowered(site).span(site.node).start.row, around)

    def remove(self, site: Site, message: str) -> Fix:
        """A fix that takes a statement away: its whole line, or its part of a line; ``pass`` takes its place where a block would be
        left empty."""
        lines = self.world.lines_around(self._ref(site))
        lowered = self._lowered(site)
        span = lowered.statement(site.node)[0]
        row = span.start.row
        line = lines[row - 1]
        text = line[span.start.column - 1 : span.end.column - 1] if span.end.row == row else ""
        function = lowered.functions[next(iter(lowered.functions))]
        if not text or not has_siblings(function.body, lowered.enclosing(site.node)):
            return Fix(message, Safety.UNSAFE, (Edit(span, "pass"),))
        before, after = line[: span.start.column - 1], line[span.end.column - 1 :]
        if not before.strip() and not after.split("#")[0].strip():
            end = Position(row + 1, 1) if line.endswith(("\n", "\r")) else Position(row, len(line) + 1)
            return Fix(message, Safety.UNSAFE, (Edit(Span(Position(row, 1), end), ""),))
        if (behind := SEMICOLON_BEHIND.match(after)) is not None:
            span = Span(span.start, Position(row, span.end.column + behind.end()))
        elif (ahead := SEMICOLON_AHEAD.search(before)) is not None:
            span = Span(Position(row, ahead.start() + 1), span.end)
        else:
            return Fix(message, Safety.UNSAFE, (Edit(span, "pass"),))
        return Fix(message, Safety.UNSAFE, (Edit(span, ""),))

    def without_argument(self, site: Site, value: int, message: str, safety: Safety) -> Fix | None:
        """A fix that takes the keyword argument with this value node, and one comma, out of the call at a site; None where its
        surroundings are not as expected (comments in between)."""
        if value < 0:
            return None
        lowered = self._lowered(site)
        lines = self.world.lines_around(self._ref(site))
        held: Span = lowered.outer_span(value)
        before = KEYWORD.search("".join(lines[: held.start.row - 1]) + lines[held.start.row - 1][: held.start.column - 1])
        after = COMMA.match(lines[held.end.row - 1][held.end.column - 1 :] + "".join(lines[held.end.row :]))
        if before is None or after is None:
            return None
        first, last = before["comma"], after["comma"]
        if first:
            start, end = moved(lines, held.start, -len(before[0])), held.end
        else:
            start = moved(lines, held.start, -len(before[0]))
            end = moved(lines, held.end, len(after[0]) if last else 0)
        return Fix(message, safety, (Edit(Span(start, end), ""),))


def has_quotes(text: str) -> bool:
    return '"""' in text or "'''" in text


def imported(line: str) -> Iterator[tuple[str, str]]:
    """The names that a row with an ``import`` statement binds, and the modules they stand for."""
    words = line.split("#")[0].strip()
    if words.startswith("import "):
        for one in words.removeprefix("import ").split(","):
            target, _, name = one.strip().partition(" as ")
            yield (name.strip(), target.strip()) if name else (target.partition(".")[0], target.partition(".")[0])


@memoized
def imports_of_torch(world: World, path: str) -> tuple[tuple[int, bool, str], ...]:
    """Where a file imports torch: the row, whether it is indented, and the name."""
    lines = [(row, line) for row, line in enumerate(world.lines(path), 1) if "import " in line]
    return tuple((row, line[:1].isspace(), name) for row, line in lines for name, target in imported(line) if target == "torch")


def moved(lines: list[str], at: Position, by: int) -> Position:
    """The position that many characters further on (back for a negative number), line ends counted as they are."""
    row, column = at.row, at.column + by
    while column < 1:
        row -= 1
        column += len(lines[row - 1])
    while column > len(lines[row - 1]) and row < len(lines):
        column -= len(lines[row - 1])
        row += 1
    return Position(row, column)


def unit_of_block_above(lines: list[str], row: int, indent: str, head: str) -> str:
    """By how much a statement in a row would be indented in the block that ends in the row above it, where that is one with this head;
    "" where there is none."""
    index = row - 2
    while index >= 0 and lines[index].startswith(indent) and lines[index][len(indent) :][:1].isspace() and lines[index].strip():
        index -= 1
    if index < 0 or index == row - 2 or lines[index].rstrip() != indent + head:
        return ""
    return indentation_below(lines, index + 1, indent)


def unit_of_block_below(lines: list[str], row: int, indent: str, head: str) -> str:
    """The same for the block that begins in the row below."""
    found = row + 1 < len(lines) and lines[row].rstrip() == indent + head
    return indentation_below(lines, row + 1, indent) if found else ""


def indentation_below(lines: list[str], index: int, indent: str) -> str:
    """How much deeper a line is indented."""
    line = lines[index]
    return line[len(indent) : len(line) - len(line.lstrip())] if line.strip() else ""


def is_display(source: str) -> bool:
    """Whether the source is a list, tuple, set or dict display, a comprehension, or a literal."""
    try:
        tree = ast.parse(source.strip(), mode="eval").body
    except SyntaxError:
        return True
    return isinstance(
        tree,
        (
            ast.List,
            ast.Tuple,
            ast.Set,
            ast.Dict,
            ast.ListComp,
            ast.SetComp,
            ast.DictComp,
            ast.GeneratorExp,
            ast.Constant,
            ast.JoinedStr,
        ),
    )


def is_primary(source: str) -> bool:
    """Whether ``.name`` can follow the source directly: a name, an attribute, a call, a subscript."""
    try:
        tree = ast.parse(source.strip(), mode="eval").body
    except SyntaxError:
        return False
    return isinstance(tree, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)) and "\n" not in source.strip().split("(")[0]
