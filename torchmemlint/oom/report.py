"""Cases as text, Markdown or JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from torchmemlint.files.quoting import portable, printable_lines, quoted
from torchmemlint.oom.advice import commands_that_tell_more, sentence_about_empty_cache
from torchmemlint.oom.cases import Case, Log, Ranked
from torchmemlint.oom.diagnose import others
from torchmemlint.oom.meanings import Kind
from torchmemlint.oom.messages import Message
from torchmemlint.oom.scene import Activity
from torchmemlint.oom.traceback import is_library
from torchmemlint.oom.wordings import Family
from torchmemlint.reporters import as_json as dumped

SCHEMA_VERSION = 1
MAX_FINDINGS = 20
MAX_FRAMES_SHOWN = 8


def in_full(log: Log) -> list[Case]:
    """The cases that are printed in full: the first of every kind. The others differ in rank and figures only.

    A message that only makes it likely that memory ran out is printed in full if no other says so: after a failure, a launcher
    kills what is left, and libraries cannot start. So is one without figures if no other has any: loggers repeat the first
    words of a message.
    """
    certain = [case for case in log.cases if case.certain] or _of_memory(log.cases) or list(log.cases)
    told = [case for case in certain if case.diagnosis.kind is not Kind.UNCLEAR or case.message.total is not None]
    first: dict[str, Case] = {}
    for case in sorted(told or certain, key=lambda case: _figures(case) == 0):
        first.setdefault(case.diagnosis.kind.value, case)
    return [case for case in log.cases if case in first.values()]


def _of_memory(cases: Sequence[Case]) -> list[Case]:
    """Those that speak of memory, if in general words: a process that was killed beside them says less."""
    told = [
        case for case in cases if case.message.family in (Family.UNNAMED, Family.OTHER_PROGRAM) and not case.diagnosis.survived
    ]
    return told if any(case.message.family is Family.UNNAMED for case in told) else []


def _figures(case: Case) -> int:
    """How many sizes a message gives: one that repeats another in fewer words gives fewer."""
    message = case.message
    return sum(size is not None for size in (message.requested, message.total, message.free, message.allocated))


def _where(case: Case) -> str:
    device = f" on device {case.message.device}" if case.message.device is not None else ""
    source = f" [{case.source}]" if case.source else ""
    times = f" ({case.times} times)" if case.times > 1 else ""
    return f"{case.message.backend}{device}{source}{times}"


def _verdict(case: Case) -> str:
    return f"{case.diagnosis.kind.value}{', survived' if case.diagnosis.survived else ''}"


def _scene(case: Case) -> str:
    """What was running, and the frame or line that shows it; "" where nothing does."""
    scene = case.scene
    if scene.activity is Activity.UNKNOWN:
        return ""
    stage = f", {scene.stage}" if scene.stage and scene.stage not in scene.activity.value else ""
    engine = f" ({scene.engine})" if scene.engine else ""
    return f"{scene.activity.value}{engine}{stage}" + (f", shown by {quoted(scene.shown_by)}" if scene.shown_by else "")


def _next(case: Case) -> tuple[tuple[str, str], ...]:
    """Commands that would tell more, each with what it tells."""
    if case.message.family is Family.UNNAMED and not case.scene.raised:
        return ()  # it may be any program's line
    near = next((item.finding for item in case.findings if item.distance < 2 and item.finding.cell is None), None)
    place = f"{near.path}:{near.span.start.row}" if near is not None else ""
    return commands_that_tell_more(case.diagnosis, case.scene, case.program, place)


def _died(case: Case) -> Iterator[str]:
    """The user's frames of the failing call, innermost last; the library's frames only when there are no others."""
    own = {(frame.frame.path, frame.frame.row): frame for frame in case.local}
    frames = [frame for frame in case.frames if not is_library(frame.path)] or list(case.frames[-1:])
    for frame in frames[-MAX_FRAMES_SHOWN:]:
        local = own.get((frame.path, frame.row))
        yield f"{quoted(local.path if local else frame.path)}:{frame.row} in {frame.function}"
        code = frame.code or (local.current if local else "")
        if code:
            yield f"    {code}"
        if local and local.changed:
            yield f"    (the file now has there: {local.current or 'nothing'})"


def _finding(item: Ranked) -> str:
    finding = item.finding
    cell = f"cell {finding.cell}:" if finding.cell is not None else ""
    return f"{quoted(finding.path)}:{cell}{finding.span.start.row}:{finding.span.start.column} {finding.code} {finding.message}"


def _details(item: Ranked) -> Iterator[str]:
    """What the finding costs, and the steps that lead to it."""
    if item.finding.cost:
        yield f"cost: {item.finding.cost}"
    yield from (f"{quoted(step.path)}:{step.span.start.row} {step.message}" for step in item.finding.flow)


_DISTANCES = ("on the failing call path", "in its files", "elsewhere")


def as_text(logs: Sequence[Log]) -> str:
    """For a terminal; no colours, no control characters."""
    blocks = []
    for log in logs:
        if not log.cases:
            blocks.append(f"{quoted(log.name)}: no out-of-memory message found")
        for case in in_full(log):
            blocks.append("\n".join(_case_text(log, case)))
        rest = _rest(log)
        if rest:
            blocks.append("\n".join([f"{quoted(log.name)}: also", *(f"  {row}" for row in rest)]))
    return printable_lines("\n\n".join(blocks) + "\n")


def _case_text(log: Log, case: Case) -> Iterator[str]:
    yield f"{quoted(log.name)}:{case.row}: {_where(case)}: {_verdict(case)}"
    yield f"  {case.diagnosis.headline}"
    yield from (f"    - {sentence}" for sentence in case.diagnosis.because)
    yield f"  Message: {case.message.text}"
    scene = _scene(case)
    if scene:
        yield f"  Running: {scene}"
    died = list(_died(case))
    if died:
        yield "  It failed here:"
        yield from (f"    {row}" for row in died)
    if case.findings:
        yield "  Likely causes, or mistakes that make it worse:"
        for item in case.findings[:MAX_FINDINGS]:
            yield f"    {_finding(item)} ({_DISTANCES[item.distance]})"
            yield from (f"        {row}" for row in _details(item))
        if len(case.findings) > MAX_FINDINGS:
            yield f"    … and {len(case.findings) - MAX_FINDINGS} more"
    elif case.local and case.diagnosis.explained_by_code:
        yield "  The linter reports nothing in the files of the call path."
    if case.diagnosis.kind is Kind.UNCLEAR:
        yield "  Whether the program's code is the cause, the message does not say."
    elif not case.diagnosis.explained_by_code:
        yield "  According to the message, the cause is not in the program's code."
    yield "  What to do, in this order:"
    for number, remedy in enumerate(case.remedies, 1):
        yield f"    {number}. {remedy.title}"
        yield f"       {remedy.why}"
        yield from (f"         | {row}" for row in remedy.code.splitlines())
        yield from (
            f"         here: {quoted(item.finding.path)}:{item.finding.span.start.row} {item.finding.code}"
            for item in case.findings[:MAX_FINDINGS]
            if item.finding.code in remedy.rules
        )
    note = sentence_about_empty_cache(case.message, case.diagnosis)
    if note:
        yield f"  {note}"
    commands = _next(case)
    if commands:
        yield "  To learn more:"
        yield from (f"    {command}    # {what}" for command, what in commands)


def _rest(log: Log) -> list[str]:
    full = in_full(log)
    rows = [
        f"line {case.row}: {_where(case)}: {_verdict(case)}: {case.diagnosis.headline}"
        for case in log.cases
        if case not in full
    ]
    if log.uncounted:
        rows.append(f"{log.uncounted} more messages, not examined")
    return rows


def as_markdown(logs: Sequence[Log]) -> str:
    """For an issue or a job summary."""
    out: list[str] = []
    for log in logs:
        if not log.cases:
            out += [f"## {_md(quoted(log.name))}", "", "No out-of-memory message found.", ""]
        for case in in_full(log):
            out += [f"## {_md(quoted(log.name))}, line {case.row}: {_verdict(case)}", ""]
            out += [f"**{_md(case.diagnosis.headline)}** ({_md(_where(case))})", ""]
            out += [*(f"- {_md(sentence)}" for sentence in case.diagnosis.because), ""] if case.diagnosis.because else []
            out += [*_fenced([case.message.text]), ""]
            scene = _scene(case)
            out += [f"Running: {_md(scene)}", ""] if scene else []
            died = list(_died(case))
            if died:
                out += ["### It failed here", "", *_fenced(died), ""]
            if case.findings:
                out += ["### Likely causes, or mistakes that make it worse", ""]
                for item in case.findings[:MAX_FINDINGS]:
                    out += [f"- {_md(_finding(item))} ({_DISTANCES[item.distance]})"]
                    out += [f"  - {_md(row)}" for row in _details(item)]
                out += [""]
            out += ["### What to do, in this order", ""]
            for number, remedy in enumerate(case.remedies, 1):
                out += [f"{number}. **{_md(remedy.title)}**: {_md(remedy.why)}", ""]
                out += [*(f"   {row}" for row in _fenced(remedy.code.splitlines())), ""] if remedy.code else []
            note = sentence_about_empty_cache(case.message, case.diagnosis)
            out += [_md(note), ""] if note else []
            commands = [f"{command}    # {what}" for command, what in _next(case)]
            out += ["### To learn more", "", *_fenced(commands), ""] if commands else []
        rest = _rest(log)
        out += ["### Also", "", *(f"- {_md(row)}" for row in rest), ""] if rest else []
    return printable_lines("\n".join(out))


def _fenced(rows: Sequence[str]) -> list[str]:
    """``rows`` as a code block whose fence is longer than any run of backticks in them."""
    longest = max((len(run) for row in rows for run in re.findall("`+", row)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}text", *rows, fence]


def _md(text: str) -> str:
    """``text`` with what Markdown or HTML would interpret made literal."""
    for sign in "\\`*_[]<>|#":
        text = text.replace(sign, f"\\{sign}" if sign not in "<>" else {"<": "&lt;", ">": "&gt;"}[sign])
    return text


def as_json(logs: Sequence[Log]) -> str:
    """One object; sizes are integers in bytes, rows and columns 1-based, absent figures null."""
    return dumped({"schema_version": SCHEMA_VERSION, "logs": [_log_object(log) for log in logs]}, indent=2) + "\n"


def _log_object(log: Log) -> dict[str, object]:
    return {"log": log.name, "not_examined": log.uncounted, "messages": [_case_object(case) for case in log.cases]}


def _case_object(case: Case) -> dict[str, object]:
    return {
        "row": case.row,
        "source": case.source,
        "times": case.times,
        "kind": case.diagnosis.kind.value,
        "certain": case.certain,
        "headline": case.diagnosis.headline,
        "because": list(case.diagnosis.because),
        "survived": case.diagnosis.survived,
        "explained_by_code": case.diagnosis.explained_by_code,
        "running": {"activity": case.scene.activity.value, "stage": case.scene.stage, "engine": case.scene.engine},
        "message": _message_object(case.message),
        "traceback": [asdict(frame) for frame in case.frames],
        "files": [
            {
                "path": frame.path,
                "row": frame.frame.row,
                "function": frame.frame.function,
                "current": frame.current,
                "changed": frame.changed,
            }
            for frame in case.local
        ],
        "findings": [
            {
                "code": item.finding.code,
                "name": item.finding.name,
                "severity": item.finding.severity.value,
                "message": item.finding.message,
                "cost": item.finding.cost,
                "filename": portable(item.finding.path),
                "row": item.finding.span.start.row,
                "column": item.finding.span.start.column,
                "cell": item.finding.cell,
                "function": item.finding.function,
                "place": _DISTANCES[item.distance],
                "flow": [
                    {"filename": portable(step.path), "row": step.span.start.row, "message": step.message}
                    for step in item.finding.flow
                ],
            }
            for item in case.findings
        ],
        "remedies": [
            {"title": remedy.title, "why": remedy.why, "code": remedy.code, "rules": list(remedy.rules)}
            for remedy in case.remedies
        ],
        "commands": [{"command": command, "tells": what} for command, what in _next(case)],
    }


def _message_object(message: Message) -> dict[str, object]:
    foreign = others(message)
    return {
        "text": message.text,
        "family": message.family.name.lower().replace("_", "-"),
        "backend": message.backend,
        "writer": message.writer,
        "device": message.device,
        "requested": message.requested,
        "total": message.total,
        "free": message.free,
        "allocated": message.allocated,
        "reserved": message.reserved,
        "unallocated": message.unallocated,
        "active": message.active,
        "allowed": message.allowed,
        "private_pools": message.private_pools,
        "this_process": message.this_process,
        "other_allocations": message.other_allocations,
        "processes": [{"pid": pid, "bytes": size} for pid, size in message.processes],
        "held_by_named_others": foreign[0] if foreign else None,
        "held_by_unnamed_others": foreign[1] if foreign else None,
    }
