"""Suppression comments that suppress nothing: TML002.

A comment is judged only by what this run can know. A code is unused where its rule was on for the file and no finding needed
the comment; a prefix, a bare ``ignore`` or ``disable`` where all of its rules that are on by default were. What other linters
read too, a bare ``# noqa`` or their codes in one, is never touched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from torchmemlint.findings import UNUSED_SUPPRESSION, Confidence, Edit, Finding, Fix, Position, Safety, Severity, Span
from torchmemlint.source.directives import Directive, Directives, Kind, selects
from torchmemlint.source.lines import Lines

if TYPE_CHECKING:
    from torchmemlint.rules.api import Rule

CODE, NAME = UNUSED_SUPPRESSION, "unused-suppression"


def unused_suppressions(
    directives: Directives, findings: Iterable[Finding], path: str, text: str, rules: Sequence[Rule], judged: Collection[str]
) -> list[Finding]:
    """TML002 for one file. ``findings`` are all that were made, also those that comments switch off; ``judged`` are the codes
    of rules that were on for this file."""
    used: set[tuple[Directive, str]] = set()
    for finding in findings:
        rows = finding.noqa_rows or {finding.span.start.row}
        for directive in directives.covering(finding.code, finding.name, finding.span.start.row, rows):
            for selector in directive.selectors or ("",):
                if selects(selector, finding.code, finding.name):
                    used.add((directive, selector))
    lines = Lines.of(text)
    found = []
    for directive in directives.found:
        if directive.kind is Kind.ENABLE or not (directive.selectors or directive.ours):
            continue
        idle = [
            place
            for place, selector in enumerate(directive.selectors or ("",))
            if (directive, selector) not in used and _is_judged(selector, directive, rules, judged)
        ]
        if idle:
            found.append(_finding(directive, idle, path, lines, rules))
    for row, problem in directives.problems:
        at = Span(Position(row, 1), Position(row, len(lines.row(row)) + 1))
        found.append(_about(path, at, problem, lines.row(row).strip(), None))
    return found


def _is_judged(selector: str, directive: Directive, rules: Sequence[Rule], judged: Collection[str]) -> bool:
    if selector in (CODE, NAME):
        return False
    if not directive.ours and not selector.startswith("TML") and not any(rule.name == selector for rule in rules):
        return False  # another linter's
    meant = [rule for rule in rules if selects(selector, rule.code, rule.name)]
    exact = len(meant) == 1 and selector in (meant[0].code, meant[0].name)
    if not exact:
        meant = [rule for rule in meant if rule.default and not rule.preview] or meant
    return all(rule.code in judged for rule in meant)


def _finding(directive: Directive, idle: Sequence[int], path: str, lines: Lines, rules: Sequence[Rule]) -> Finding:
    row = directive.row
    text = lines.row(row)[directive.columns[0] - 1 : directive.columns[1] - 1]
    if directive.selectors:
        words = [directive.selectors[place] for place in idle]
        known = {word for word in words if any(selects(word, rule.code, rule.name) for rule in rules)}
        does = "suppress" if len(words) > 1 else "suppresses"
        message = f"{', '.join(f'`{word}`' for word in words)} {does} nothing here"
        if strange := [word for word in words if word not in known]:
            message += f": there is no rule {', '.join(f'`{word}`' for word in strange)}"
    else:
        message = "this comment suppresses nothing"
    span = Span(Position(row, directive.columns[0]), Position(row, directive.columns[1]))
    edit = _without(directive, idle, lines)
    return _about(path, span, message, text, Fix("take it out", Safety.SAFE, (edit,)))


def _about(path: str, span: Span, message: str, text: str, fix: Fix | None) -> Finding:
    row = span.start.row
    return Finding(
        *(CODE, NAME, Severity.WARNING, Confidence.HIGH, message, path, span),
        label="suppresses nothing" if fix else "means nothing",
        help="remove it: it would hide the next mistake on this line" if fix else "correct or remove it",
        statement=" ".join(text.split()),
        noqa_rows=frozenset({row}),
        noqa_row=row,
        fix=fix,
    )


def _without(directive: Directive, idle: Sequence[int], lines: Lines) -> Edit:
    """The edit that takes selectors out of a directive, or the directive out of its comment, or the comment out of its row."""
    row, text = directive.row, lines.row(directive.row)
    if len(idle) < len(directive.places):
        kept = [place for number, place in enumerate(directive.places) if number not in idle]
        first, second = directive.places[:2]
        between = text[first[1] - 1 : second[0] - 1]
        words = between.join(text[start - 1 : end - 1] for start, end in kept)
        return _edit(row, directive.places[0][0], directive.places[-1][1], words)
    start, end = directive.columns
    before, after = text[directive.comment - 1 : start - 1].rstrip(), text[end - 1 :].strip()
    if not directive.ours:
        after = after.lstrip(":,;(").strip()  # "noqa: TML101: why"
    if after and not after.startswith("#") and not before:
        after = f"# {after}"
    left = "  ".join(part for part in (before, after) if part)
    if left:
        return _edit(row, directive.comment, len(text) + 1, left)
    if directive.alone and row < len(lines):
        return Edit(Span(Position(row, 1), Position(row + 1, 1)), "")
    return _edit(row, len(text[: directive.comment - 1].rstrip()) + 1, len(text) + 1, "")


def _edit(row: int, start: int, end: int, content: str) -> Edit:
    return Edit(Span(Position(row, start), Position(row, end)), content)
