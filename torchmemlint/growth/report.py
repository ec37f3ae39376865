"""The report of a run, in a process of its own: ``main`` reads the run's data from standard input.

What grew is joined with the linter's findings: the growth at a line that a finding names, or whose flow leads there, has its code. What
no finding explains is a finding of the rule that is about growth at run time.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from torchmemlint.confirm.report import measured
from torchmemlint.confirm.verdict import Outcome, verdict_json
from torchmemlint.errors import SourceError, TorchmemlintError
from torchmemlint.files.quoting import quoted
from torchmemlint.files.writing import write_whole
from torchmemlint.findings import Confidence, Finding, Position, Safety, Severity, Span
from torchmemlint.growth import words
from torchmemlint.growth.flagged import verdicts
from torchmemlint.reporters import Context, Measurement
from torchmemlint.rules import ALL_RULES, rule_of
from torchmemlint.rules.card import About

WITH_GRAPH = frozenset({About.GRAPH_KEPT, About.NEEDLESS_GRAPH, About.TENSORS_KEPT, About.RESULTS_KEPT})
WITHOUT = frozenset({About.TENSORS_KEPT, About.RESULTS_KEPT})
GROWS = next(rule for rule in ALL_RULES if rule.about is About.GROWTH)


@dataclass(frozen=True, slots=True)
class Joined:
    """A growth as a finding: the linter's own if ``static``."""

    growth: Mapping[str, Any]
    finding: Finding
    static: bool


def main() -> int:
    """Write the report where it is wanted."""
    given = json.load(sys.stdin)
    data, options = given["data"], given["options"]
    text = render(data, join(data), options.get("format", "full"))
    file = options.get("file")
    if file is None:
        sys.stderr.write(text)
        return 0
    try:
        write_whole(file, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        print(f"torchmemlint: error: {file}: {error.strerror or error}", file=sys.stderr)
        sys.stderr.write(text)
    return 0


def render(data: Mapping[str, Any], joined: Sequence[Joined], output_format: str) -> str:
    """The report in one of the formats of ``run``."""
    mine = {_key(one.finding) for one in joined}
    flagged = verdicts(data["flagged"], data["device"]) if "flagged" in data else ()
    others = [(finding, verdict) for finding, verdict in flagged if _key(finding) not in mine]
    if output_format == "full":
        looked = (
            f"{quoted(finding.path)}:{finding.span.start.row}: {finding.code} {measured(verdict)}\n"
            for finding, verdict in others
        )
        return words.full(data, {number: list(_explained(one)) for number, one in enumerate(joined)}) + "".join(looked)
    from importlib import import_module

    records = {id(one.finding): Measurement("confirmed", _measured(one.growth), _record(one.growth, data)) for one in joined}
    for finding, verdict in others:
        record = {**verdict_json(verdict), "measured": measured(verdict)}
        records[id(finding)] = Measurement(verdict.outcome.value, measured(verdict), record)
    context = Context(_text, root=_root(), measured=lambda finding: records.get(id(finding)))
    whole = output_format == "json"  # the others show what there is to mend
    findings = [one.finding for one in joined]
    findings += [finding for finding, verdict in others if whole or verdict.outcome is Outcome.CONFIRMED]
    return str(import_module(f"torchmemlint.reporters.{output_format}").render(findings, context))


def _key(finding: Finding) -> tuple[str, str, Span]:
    return finding.code, os.path.realpath(finding.path), finding.span


def join(data: Mapping[str, Any]) -> list[Joined]:
    """Each growth with the finding that explains it."""
    growths = data["growths"]
    paths = sorted({place["path"] for growth in growths for place in _places(growth) if _text(place["path"]) is not None})
    findings = _findings([*paths, *(path for path in data.get("files", ()) if path not in paths and _text(path) is not None)])
    return [_joined(growth, findings) for growth in growths]


def _findings(paths: Sequence[str]) -> list[Finding]:
    from torchmemlint.project.config import CommandLine, Configuration
    from torchmemlint.run import check_paths

    if not paths:
        return []
    options: dict[str, object] = {"notes": True, "min-confidence": "low", "preview": True}
    try:
        outcome = check_paths(
            [os.path.relpath(path) for path in paths], Configuration(CommandLine(options)), 1, baseline=False, comments=False
        )
    except (TorchmemlintError, OSError, ValueError) as error:
        print(f"torchmemlint: note: the files could not be checked: {error}", file=sys.stderr)
        return []
    return list(outcome.findings)


def _places(growth: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from (place for place in (growth["line"], *growth["callers"]) if place)


def _joined(growth: Mapping[str, Any], findings: Sequence[Finding]) -> Joined:
    wanted = WITH_GRAPH if growth["nodes_per_step"] else WITHOUT
    some = [finding for finding in findings if rule_of(finding.code).about in wanted]
    places = [place for place in (growth["defined"], growth["line"], *growth["callers"]) if place]
    for place in places:
        for found in (_at(place, some), _through(place, some)):
            if found is not None:
                return Joined(growth, found, True)
    return Joined(growth, _own(growth), False)


def _at(place: Mapping[str, Any], findings: Sequence[Finding]) -> Finding | None:
    here = [
        finding
        for finding in findings
        if _same(finding.path, place["path"]) and finding.span.start.row <= place["line"] <= finding.span.end.row
    ]
    return min(here, key=lambda finding: list(About).index(rule_of(finding.code).about), default=None)


def _through(place: Mapping[str, Any], findings: Sequence[Finding]) -> Finding | None:
    for finding in findings:
        for step in finding.flow:
            if _same(step.path, place["path"]) and step.span.start.row <= place["line"] <= step.span.end.row:
                return finding
    return None


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _own(growth: Mapping[str, Any]) -> Finding:
    place = growth["line"] or growth["loop"]
    path, row = os.path.relpath(place["path"]), place["line"]
    span, statement = _statement(place["path"], row)
    return Finding(
        GROWS.code,
        GROWS.name,
        Severity.NOTE if growth["note"] else Severity.WARNING,
        Confidence.HIGH,
        growth["words"].partition(";")[0].replace(" in each step", " in each step of the loop", 1),
        path.replace(os.sep, "/"),
        span,
        label="grows here",
        cost=f"{words.size(growth['total_per_step'])} per step of the loop at {words.where(growth['loop'])}",
        help="release it, or keep what has no graph: `.detach()` or `.item()`"
        if growth["nodes_per_step"]
        else "release it, or bound it",
        function="" if place["function"] == "<module>" else place["function"],
        statement=statement,
        noqa_rows=frozenset({row}),
        noqa_row=row,
    )


def _statement(path: str, row: int) -> tuple[Span, str]:
    text = _text(path) or ""
    lines = text.splitlines()
    line = lines[row - 1] if 1 <= row <= len(lines) else ""
    span = Span(Position(row, len(line) - len(line.lstrip()) + 1), Position(row, len(line) + 1))
    try:
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt) and node.lineno == row]
    except (SyntaxError, ValueError, RecursionError):
        return span, " ".join(line.split())
    if not nodes:
        return span, " ".join(line.split())
    return span, " ".join((ast.get_source_segment(text, nodes[-1]) or line).splitlines()[0].split())


@lru_cache(maxsize=512)
def _text(path: str) -> str | None:
    from torchmemlint.source.file import read_source

    try:
        return read_source(Path(path), path).text
    except (OSError, SourceError):
        return None


def _root() -> str:
    from torchmemlint.files.checkout import repository_root

    return repository_root()


def _explained(one: Joined) -> Iterator[str]:
    finding = one.finding
    if not one.static:
        yield f"{finding.code} {finding.name}: no finding of `torchmemlint check` is about this line"
        return
    fix = ""
    if finding.fix is not None and finding.fix.safety is not Safety.NONE:
        unsafe = " --unsafe-fixes" if finding.fix.safety is Safety.UNSAFE else ""
        fix = f"   [{finding.fix.safety.value} fix: --fix{unsafe}]"
    yield f"{finding.code} ({finding.path}:{finding.span.start.row}): {finding.help or finding.message}{fix}"


def _measured(growth: Mapping[str, Any]) -> str:
    return f"grows {words.size(growth['total_per_step'])} per step at run time: {growth['words']}"


def _record(growth: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, object]:
    """As ``confirm`` writes it, with the growth itself."""
    loop = next((one for one in data["loops"] if one["place"] == growth["loop"]), None)
    return {
        "verdict": "confirmed",
        "kind": "grows at run time",
        "reason": None,
        "device": data["device"],
        "helped": None,
        "before": {
            "live_bytes_per_step": round(growth["bytes_per_step"]),
            "nodes_per_step": round(growth["nodes_per_step"]),
            "mode": f"your own run, {growth['iterations']} steps",
        },
        "notes": [],
        "fix": None,
        "measured": _measured(growth),
        "growth": dict(growth),
        "loop": loop,
    }


__all__ = ["Joined", "join", "main", "render"]
