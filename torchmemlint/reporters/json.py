"""A JSON array with ruff's keys, among others; rows and columns 1-based, columns in code points, ends exclusive."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from torchmemlint.files.quoting import portable, unquoted
from torchmemlint.findings import Confidence, Edit, Finding, Fix, FlowStep, Position, Safety, Severity, Span
from torchmemlint.reporters import Context, as_json
from torchmemlint.rules import ALL_RULES
from torchmemlint.rules.scorecard import points_of
from torchmemlint.suppress.fingerprint import fingerprint


def render(findings: Sequence[Finding], context: Context) -> str:
    return as_json([entry(finding, context) for finding in findings], indent=2) + "\n"


def entry(finding: Finding, context: Context) -> dict[str, object]:
    """One finding as the value of the array; ``confirm`` is there where an experiment was, ``partial`` where not all files were read."""
    measurement = context.measured(finding)
    return {
        "code": finding.code,
        "name": finding.name,
        "fingerprint": fingerprint(finding),
        "noqa_row": finding.noqa_row or finding.span.start.row,
        "severity": finding.severity.value,
        "confidence": finding.confidence.value,
        "message": finding.message,
        "label": finding.label,
        "cost": finding.cost,
        "help": finding.help,
        "unless": finding.unless,
        "probability": finding.probability,
        "evidence": [{"fact": fact, "known_by": known_by, "points": points_of(fact)} for fact, known_by in finding.evidence],
        "filename": portable(finding.path),
        "cell": finding.cell,
        "location": _position(finding.span.start),
        "end_location": _position(finding.span.end),
        "function": finding.function,
        "statement": finding.statement,
        "occurrence": finding.occurrence,
        "flow": [
            {
                "filename": portable(step.path),
                "cell": step.cell,
                "row": step.span.start.row,
                "column": step.span.start.column,
                "end_row": step.span.end.row,
                "end_column": step.span.end.column,
                "message": step.message,
            }
            for step in finding.flow
        ],
        "url": context.url(finding.code),
        "fix": _fix(finding.fix),
        **({"partial": True} if context.partial else {}),
        **({} if measurement is None else {"confirm": dict(measurement.record)}),
    }


def _fix(fix: Fix | None) -> dict[str, object] | None:
    if fix is None or fix.safety is Safety.NONE:
        return None
    return {
        "applicability": fix.safety.value,
        "message": fix.message,
        "needs_import": fix.needs_import,
        "proof": [{"fact": fact, "known_by": known_by} for fact, known_by in fix.proof],
        "edits": [
            {
                "content": edit.content,
                "location": _position(edit.span.start),
                "end_location": _position(edit.span.end),
            }
            for edit in fix.edits
        ],
    }


def _position(at: Position) -> dict[str, int]:
    return {"row": at.row, "column": at.column}


def findings_in(text: str) -> tuple[Finding, ...]:
    """The findings of a report that ``render`` made; their ``noqa_rows`` are not in it. Raises ValueError for anything else."""
    try:
        entries = json.loads(text)
        if not isinstance(entries, list):
            raise ValueError("not a list of findings")
        return tuple(_finding(entry) for entry in entries)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a report in JSON of this version: {type(error).__name__}: {error}") from None


def _finding(entry: dict[str, Any]) -> Finding:
    return Finding(
        code=_code(entry["code"]),
        name=_text(entry["name"]),
        severity=Severity(entry["severity"]),
        confidence=Confidence(entry["confidence"]),
        message=_text(entry["message"]),
        path=unquoted(_text(entry["filename"])),
        span=_span(entry),
        label=_text(entry["label"]),
        cost=_text(entry["cost"]),
        help=_text(entry["help"]),
        unless=_text(entry.get("unless", "")),
        probability=_share(entry.get("probability", 1.0)),
        evidence=tuple((_text(fact["fact"]), _text(fact["known_by"])) for fact in entry.get("evidence", ())),
        function=_text(entry["function"]),
        statement=_text(entry["statement"]),
        noqa_row=_number(entry["noqa_row"]),
        flow=tuple(
            FlowStep(
                unquoted(_text(step["filename"])),
                Span(
                    Position(_number(step["row"]), _number(step["column"])),
                    Position(_number(step["end_row"]), _number(step["end_column"])),
                ),
                _text(step["message"]),
                None if step["cell"] is None else _number(step["cell"]),
            )
            for step in entry["flow"]
        ),
        fix=None if entry["fix"] is None else _fix_in(entry["fix"]),
        cell=None if entry["cell"] is None else _number(entry["cell"]),
        occurrence=_number(entry["occurrence"]),
    )


def _fix_in(fix: dict[str, Any]) -> Fix:
    return Fix(
        message=_text(fix["message"]),
        safety=Safety(fix["applicability"]),
        edits=tuple(Edit(_span(edit), _text(edit["content"])) for edit in fix["edits"]),
        needs_import=None if fix["needs_import"] is None else _text(fix["needs_import"]),
        proof=tuple((_text(each["fact"]), _text(each["known_by"])) for each in fix.get("proof", ())),
    )


def _span(entry: dict[str, Any]) -> Span:
    start, end = entry["location"], entry["end_location"]
    return Span(
        Position(_number(start["row"]), _number(start["column"])),
        Position(_number(end["row"]), _number(end["column"])),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _code(value: object) -> str:
    if not any(rule.code == value for rule in ALL_RULES):
        raise TypeError(f"{value!r} is no rule")
    return str(value)


def _share(value: object) -> float:
    if not isinstance(value, float | int) or not 0 <= value <= 1:
        raise TypeError(f"{value!r} is no probability")
    return value


def _number(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no number")
    return value
