"""SARIF 2.1.0, for GitHub code scanning, Azure DevOps, Jenkins and viewers in editors.

- Places are relative to the root of the repository (``%SRCROOT%``), columns count UTF-16, as SARIF has it by default.
- A finding's steps are a code flow ("made here", "passed here", "kept here") and related locations, linked in the message.
- GitHub follows an alert from commit to commit by ``partialFingerprints.primaryLocationLineHash`` and no other key.
- Of a notebook, the places are those in the file's JSON.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html,
https://docs.github.com/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from torchmemlint import __version__
from torchmemlint.files.quoting import uri_path
from torchmemlint.findings import Edit, Finding, Position, Safety, Severity, Span
from torchmemlint.reporters import Context, as_json
from torchmemlint.reporters.style import in_cell
from torchmemlint.rules import ALL_RULES, page
from torchmemlint.rules.card import Rule
from torchmemlint.source.columns import utf16_column
from torchmemlint.suppress.fingerprint import fingerprint

HOME = "https://example.org/torchmemlint"
"""Where to learn more: the address that the documentation has for this repository, while it has no public one. Without any,
Sarif.Multitool warns (SARIF2005)."""

MAX_RESULTS = 25_000
"""GitHub refuses files with more; the heaviest stay, and a notification says how many do not."""

MAX_DESCRIPTION = 1024
"""Characters that GitHub takes of a rule's descriptions."""

_LEVEL = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}
_PROBLEM = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "recommendation"}
_FAMILY = {"0": "run", "1": "retention", "2": "grad-mode", "3": "allocator", "4": "device", "5": "footprint", "9": "growth"}


def render(findings: Sequence[Finding], context: Context) -> str:
    kept = findings
    if len(findings) > MAX_RESULTS:
        heaviest = sorted(findings, key=lambda one: -one.severity.weight)[:MAX_RESULTS]
        kept = sorted(heaviest, key=lambda one: one.sort_key)
    rules = {rule.code: rule for rule in ALL_RULES}
    reported = sorted({finding.code for finding in kept})
    index = {code: at for at, code in enumerate(reported)}
    driver = {
        "name": "torchmemlint",
        "version": __version__,
        "semanticVersion": __version__,
        "informationUri": context.docs or HOME,
        "shortDescription": {"text": "Finds the mistakes in PyTorch code that waste or leak GPU memory."},
        "rules": [_rule(rules[code], context) for code in reported],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "utf16CodeUnits",
        "automationDetails": {"id": "torchmemlint/"},
        "originalUriBaseIds": {"%SRCROOT%": {"description": {"text": "The root of the repository."}}},
        "invocations": [_invocation(len(findings) - len(kept), context)],
        "results": [_result(finding, index[finding.code], context) for finding in kept],
    }
    whole = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return as_json(whole, indent=2) + "\n"


def _invocation(left_out: int, context: Context) -> dict[str, object]:
    notes: list[dict[str, object]] = [
        {"level": "note", "message": {"text": words}, "descriptor": {"id": "not-analysed"}} for words in context.skipped
    ]
    if context.partial:
        words = (
            "Not all files around those that were named were read: a run over their folder may report more or fewer findings."
        )
        notes.append({"level": "note", "message": {"text": words}, "descriptor": {"id": "partial"}})
    if left_out:
        words = f"{left_out} findings of the lightest kinds are left out: this file has the {MAX_RESULTS} heaviest."
        notes.append({"level": "warning", "message": {"text": words}, "descriptor": {"id": "too-many-results"}})
    return {"executionSuccessful": True, **({"toolExecutionNotifications": notes} if notes else {})}


def _rule(rule: Rule, context: Context) -> dict[str, object]:
    url = context.url(rule.code)
    text = page(rule.code).strip() + ("" if url else f"\n\nThis page: `torchmemlint rule {rule.code}`.")
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": _sentence(rule.summary)},
        "fullDescription": {"text": _what_it_does(text) or _sentence(rule.summary)},
        "help": {"text": text, "markdown": f"# {rule.code}: {rule.name}\n\n{text}"},
        **({"helpUri": url} if url else {}),
        "defaultConfiguration": {"level": _LEVEL[rule.severity], "enabled": rule.default and not rule.preview},
        "properties": {
            "precision": "medium" if rule.preview else "high",
            "problem.severity": _PROBLEM[rule.severity],
            "tags": ["memory", "pytorch", _FAMILY.get(rule.code[3], "other")],
        },
    }


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _what_it_does(text: str) -> str:
    """The first paragraph of that section of a rule's page, on one line."""
    found = re.search(r"^## What it does\n(.+?)(?:\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    words = " ".join(found[1].split()) if found else ""
    return words if len(words) <= MAX_DESCRIPTION else f"{words[: MAX_DESCRIPTION - 1]}…"


def _result(finding: Finding, rule_index: int, context: Context) -> dict[str, object]:
    placed = context.in_file(finding)
    steps = [
        {"id": at, "message": {"text": _sentence(step.message)}, **_location(step.path, step.span, context)}
        for at, step in enumerate(placed.flow, 1)
    ]
    links = [f"[{_escaped(step.message)}]({at})" for at, step in enumerate(placed.flow, 1)]
    paragraphs = [_sentence(in_cell(finding) + _escaped(finding.message)), *links]
    measurement = context.measured(finding)
    words = (*finding.details, *((("measured", measurement.words),) if measurement is not None and measurement.words else ()))
    paragraphs += [f"{word.capitalize()}: {_sentence(_escaped(text))}" for word, text in words]
    primary = _location(placed.path, placed.span, context, around=True)
    result: dict[str, object] = {
        "ruleId": finding.code,
        "ruleIndex": rule_index,
        "level": _LEVEL[finding.severity],
        "message": {"text": "\n".join(paragraphs)},
        "locations": [primary],
        "partialFingerprints": {"primaryLocationLineHash": f"{fingerprint(finding)}:{finding.occurrence + 1}"},
        "rank": round(100 * finding.probability, 1),
        "properties": {
            "confidence": finding.confidence.value,
            "function": finding.function,
            **({"confirm": dict(measurement.record)} if measurement else {}),
        },
    }
    if steps:
        result["relatedLocations"] = steps
        last = {**primary, "message": {"text": _sentence(finding.label or finding.message)}}
        way = [*({key: value for key, value in step.items() if key != "id"} for step in steps), last]
        result["codeFlows"] = [{"threadFlows": [{"locations": [{"location": location} for location in way]}]}]
    if fixes := _fixes(finding, context):
        result["fixes"] = fixes
    return result


def _escaped(text: str) -> str:
    """Text in which nothing is a link (SARIF 2.1.0, 3.11.6)."""
    return text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")


def _location(path: str, span: Span, context: Context, around: bool = False) -> dict[str, object]:
    """A place with its code, and with a row on each side where ``around`` says so."""
    region = _region(path, span, context)
    if snippet := _snippet(path, span, context):
        region["snippet"] = {"text": snippet}
    physical: dict[str, object] = {"artifactLocation": _artifact(path, context), "region": region}
    lines = context.lines(path) if around else None
    if lines is not None and span.end.row <= len(lines):
        first, last = max(1, span.start.row - 1), min(len(lines), span.end.row + 1)
        shown = lines.text[lines.starts[first - 1] : lines.starts[last - 1]] + lines.row(last)
        physical["contextRegion"] = {"startLine": first, "endLine": last, "snippet": {"text": shown}}
    return {"physicalLocation": physical}


def _artifact(path: str, context: Context) -> Mapping[str, object]:
    uri = uri_path(context.path(path))
    if uri.startswith("/"):  # outside of the repository
        return {"uri": f"file://{uri}"}
    return {"uri": uri, "uriBaseId": "%SRCROOT%"}


def _region(path: str, span: Span, context: Context) -> dict[str, object]:
    return {
        "startLine": span.start.row,
        "startColumn": _column(path, span.start, context),
        "endLine": span.end.row,
        "endColumn": _column(path, span.end, context),
    }


def _column(path: str, at: Position, context: Context) -> int:
    return utf16_column(context.row(path, at.row), at.column)


def _snippet(path: str, span: Span, context: Context) -> str:
    lines = context.lines(path)
    try:
        return "" if lines is None else lines.text[lines.offset(span.start) : lines.offset(span.end)]
    except IndexError:
        return ""


def _fixes(finding: Finding, context: Context) -> list[dict[str, object]]:
    fix = finding.fix
    if fix is None or fix.safety is Safety.NONE or not fix.edits:
        return []
    edits = fix.edits
    if finding.cell is not None:
        in_json = context.edit_in_file(finding)
        if in_json is None:
            return []
        edits = (in_json,)
    replacements = [_replacement(finding.path, edit, context) for edit in edits]
    change = {"artifactLocation": _artifact(finding.path, context), "replacements": replacements}
    words = _sentence(fix.message or finding.help or "Fix it")
    return [{"description": {"text": words}, "artifactChanges": [change], "properties": {"fixApplicability": fix.safety.value}}]


def _replacement(path: str, edit: Edit, context: Context) -> dict[str, object]:
    return {"deletedRegion": _region(path, edit.span, context), "insertedContent": {"text": edit.content}}
