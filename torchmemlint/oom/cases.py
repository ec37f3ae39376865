"""A log → its cases: every distinct message once, with its traceback, the verdict, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchmemlint.findings import Finding
from torchmemlint.oom.advice import codes_of, remedies_for
from torchmemlint.oom.diagnose import diagnose
from torchmemlint.oom.meanings import Diagnosis
from torchmemlint.oom.messages import Message
from torchmemlint.oom.remedies import Remedy
from torchmemlint.oom.scene import Scene, scene_of
from torchmemlint.oom.signs import Sign
from torchmemlint.oom.stream import ByteReader, Occurrence, is_strong, scan
from torchmemlint.oom.traceback import Frame, LocalFrame, find_local, is_library, read_traceback, read_traceback_below
from torchmemlint.oom.wordings import Family

MAX_CASES = 64
"""Distinct messages kept of one log (and the last one): an eight-GPU node that retries eight times fits."""
TRACEBACK_TRIES = 4
ECHO = 12
"""Lines next to a message within which general words of failure repeat it."""
_SILENT = frozenset(
    {Family.UNNAMED, Family.WORKER_KILLED, Family.WORKER_GONE, Family.BUS_ERROR, Family.LIBRARY_INIT, Family.NO_PLAN}
)
"""Families that say less than general words of failure, or no more."""
_CHECK = "THCudaCheck"
_PLACE = re.compile(r"(?:file=| at )(\S{1,300}?)(?: line=|:)(\d{1,6})")


@dataclass(frozen=True, slots=True)
class Ranked:
    """A finding and its distance: 0 in a function of the failing call path, 1 in one of its files, 2 elsewhere."""

    finding: Finding
    distance: int


@dataclass(frozen=True, slots=True)
class Case:
    """One distinct message of a log; ``times`` counts its repetitions (a logger and the traceback print it twice)."""

    row: int
    source: str
    message: Message
    diagnosis: Diagnosis
    remedies: tuple[Remedy, ...]
    scene: Scene
    frames: tuple[Frame, ...] = ()
    local: tuple[LocalFrame, ...] = ()
    findings: tuple[Ranked, ...] = ()
    times: int = 1

    @property
    def certain(self) -> bool:
        """Whether the message itself says that memory ran out, and not only for a moment."""
        return is_strong(self.message.family) and not self.diagnosis.survived

    @property
    def program(self) -> str:
        """The user's script that the traceback starts in, "" when it shows none."""
        named = (frame for frame in self.frames if frame.function == "<module>" and frame.path.endswith(".py"))
        script = next((frame for frame in named if not is_library(frame.path)), None)
        if script is None:
            return ""
        return next((local.path for local in self.local if local.frame == script), script.path)


@dataclass(frozen=True, slots=True)
class Log:
    """``cases`` in the order of the log, those that only hint at memory last; ``uncounted`` messages were seen but not kept."""

    name: str
    cases: tuple[Case, ...]
    uncounted: int = 0


def read_log(name: str, stream: ByteReader) -> Log:
    """The cases of one log. Memory is bounded by ``MAX_CASES`` whatever the log holds."""
    kept: dict[object, Case] = {}
    tries: dict[object, int] = {}
    last: Occurrence | None = None
    uncounted = 0
    for occurrence in scan(stream):
        key = _same(occurrence)
        case = kept.get(key)
        if case is not None:
            case = replace(case, times=case.times + 1)
        elif len(kept) < MAX_CASES:
            case = _open_case(occurrence)
        else:
            uncounted += 1
            last = occurrence
            continue
        if not case.frames and tries.get(key, 0) < TRACEBACK_TRIES and _has_traceback(occurrence):
            tries[key] = tries.get(key, 0) + 1
            case = replace(_open_case(occurrence), row=case.row, times=case.times)
        kept[key] = case
    cases = list(kept.values())
    if last is not None:
        uncounted -= 1
        cases.append(_open_case(last))
    cases = _without_echoes(cases)
    cases.sort(key=lambda case: (not case.certain, case.row))
    return Log(name, tuple(cases), uncounted)


def _without_echoes(cases: Sequence[Case]) -> list[Case]:
    """``cases`` without those in general words that repeat another: programs say a failure twice, and that memory ran out is known then."""
    known = [case.row for case in cases if case.message.family not in _SILENT]
    certain = any(case.certain for case in cases)
    return [
        case
        for case in cases
        if (case.message.family is not Family.UNNAMED or not (certain or any(abs(case.row - row) <= ECHO for row in known)))
        and not any(_repeats(case.message, other.message) or _says_again(case, other) for other in cases)
    ]


_FIGURES = ("requested", "total", "free", "allocated", "reserved", "unallocated")


def _repeats(message: Message, other: Message) -> bool:
    """Whether ``message`` is ``other`` cut off: a client or a logger prints the first figures of what its server has raised."""
    if (message.family, message.backend, message.device) != (other.family, other.backend, other.device):
        return False
    own = [(name, size) for name in _FIGURES if (size := getattr(message, name)) is not None]
    more = sum(getattr(other, name) is not None for name in _FIGURES)
    return 3 <= len(own) < more and all(getattr(other, name) == size for name, size in own)


def _says_again(case: Case, other: Case) -> bool:
    """Whether ``case`` says in a line nearby what ``other`` has said: the next layer of a program names the same size, or a handler quotes the
    words of the exception."""
    message, first = case.message, other.message
    if case is other or message.family is not first.family or abs(case.row - other.row) > ECHO:
        return False
    if message.family is Family.OTHER_PROGRAM:
        sizes = message.requested, first.requested
        near = sizes[0] is not None and sizes[1] is not None and abs(sizes[0] - sizes[1]) <= sizes[1] / 1000
        return near and message.writer == first.writer and case.row > other.row and case.source == other.source
    bare = all(getattr(message, name) is None for name in _FIGURES)
    return bare and len(message.text) > len(first.text) and message.text.startswith(first.text)


def _same(occurrence: Occurrence) -> object:
    """What occurrences of one failure have in common: before torch 1.0 the check in C writes a line, and the exception says it again
    in other words."""
    message = occurrence.message
    if message.family is Family.LEGACY:
        place = _PLACE.search(message.text)
        if place is not None:
            return occurrence.source, place[1], place[2]
    return occurrence.source, message


def _has_traceback(occurrence: Occurrence) -> bool:
    """Whether a traceback above the message is its own; that of the check's line comes below it, with the exception."""
    return not occurrence.message.text.startswith(_CHECK)


def _open_case(occurrence: Occurrence) -> Case:
    message, before = occurrence.message, bytes(occurrence.before)
    frames = read_traceback(before, occurrence.source) if _has_traceback(occurrence) else ()
    frames = frames or read_traceback_below(bytes(occurrence.after))
    scene = scene_of(
        frames, before, bytes(occurrence.after), f"{occurrence.source} {occurrence.lead}", message.writer, message.text
    )
    if Sign.NPU in scene.signs and message.backend == "CUDA" and "CUDA" not in message.text:
        message = replace(message, backend="NPU")
    diagnosis = diagnose(message, scene)
    remedies = remedies_for(message, diagnosis, scene)
    return Case(occurrence.row, occurrence.source, message, diagnosis, remedies, scene, frames)


def with_sources(log: Log, root: Path) -> Log:
    """The same log with the frames of every case looked up under ``root``."""
    return replace(log, cases=tuple(replace(case, local=find_local(case.frames, root)) for case in log.cases))


def files_to_check(logs: Iterable[Log]) -> list[str]:
    """The user's files on the failing call paths of cases that the program itself can have caused, each once, sorted."""
    return sorted(
        {frame.path for log in logs for case in log.cases if case.diagnosis.explained_by_code for frame in case.local}
    )


def findings_for(paths: Sequence[str]) -> list[Finding]:
    """What the linter says about ``paths`` under the project's own configuration.

    Raises ConfigError for a bad configuration and UsageError for a path that cannot be checked.
    """
    from torchmemlint.api import check_paths

    return check_paths(paths)


def with_findings(log: Log, findings: Sequence[Finding]) -> Log:
    """The same log with the findings that bear on each case, nearest to its failing call path first."""
    return replace(log, cases=tuple(replace(case, findings=_rank(case, findings)) for case in log.cases))


def _rank(case: Case, findings: Sequence[Finding]) -> tuple[Ranked, ...]:
    if not case.diagnosis.explained_by_code:
        return ()
    order = {code: number for number, code in enumerate(codes_of(case.remedies))}
    functions = {(_key(frame.path), frame.frame.function) for frame in case.local}
    files = {path for path, _ in functions}
    ranked = []
    for finding in findings:
        if finding.code not in order:
            continue
        path = _key(finding.path)
        function = finding.function.rpartition(".")[2] or "<module>"
        ranked.append(Ranked(finding, 0 if (path, function) in functions else 1 if path in files else 2))
    # A mistake of the kind that the first remedy fixes comes first among those equally near.
    return tuple(sorted(ranked, key=lambda item: (item.distance, order[item.finding.code], item.finding.sort_key)))


def _key(path: str) -> str:
    return str(Path(path).resolve())
