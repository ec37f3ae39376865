"""One line of a log: its writer, then its text once colours, clocks and other prefixes are gone.

Known writers' marks: ``[rank3]:`` (torchrun), ``[default0]:`` (its log tee), ``(Trainer pid=123, ip=…)`` (Ray),
``[1,0]<stderr>:`` (Open MPI), ``0: `` (``srun --label``), ``[Stage-0]``/``[gw6]`` (serving stacks, pytest-xdist).
``> `` is a quotation, as in mail.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_PREFIXES = 10
"""A line is not searched for more prefixes than this; real stacks of launchers have up to five."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """``source`` is the writer's mark ("rank3", "Trainer pid=123", "" when there is none); ``text`` keeps its indentation."""

    source: str
    text: str


_ANSI = re.compile(r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)|[@-Z\\^_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

_SOURCE = re.compile(
    r"""\[(?P<rank>(?:rank|default|gw|Stage-|worker-?)\ ?\d{1,6})\]:?\ ?
    | \((?P<ray>[A-Za-z_][\w.:]{0,60}(?:\ \w{1,12}=\w{1,12})?(?:\[\w{1,12}=\w{1,12}\])?\ pid=\d{1,10}(?:,\ ip=[\w.:]{1,60})?|pid=\d{1,10}(?:,\ ip=[\w.:]{1,60})?)\)\ ?
    | \[(?P<mpi>\d{1,6},\d{1,6})\]<std(?:err|out|diag)>:\ ?
    | (?P<named>[Rr]ank[ _-]?\d{1,6}|[\w.-]{1,40}-\d{1,6}|\d{1,5}):\ (?=\S|\ {2})
    """,
    re.VERBOSE,
)
_TIME = r"\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?"
_CLOCK = rf"(?:\d{{4}}[-/])?\d{{1,2}}[-/]\d{{1,2}}[T ]{_TIME}(?:Z|[+-]\d{{2}}:?\d{{2}})?|{_TIME}"
_NOISE = re.compile(
    rf"""(?:
      \[?(?:{_CLOCK})\]?(?:\ -)?
    | \[?(?:DEBUG|INFO|WARN(?:ING)?|ERROR|FATAL|CRITICAL|TRACE)\]?(?=[\s:|])(?:\ *[:|-](?=\s))?
    | (?:std(?:err|out)\ )[FP](?=\ )
    | \[[A-Z]\d{{3,4}}\ [\d:.]{{8,20}}\ [\w./-]{{1,120}}:\d{{1,7}}\]
    | \[?[\w./-]{{1,120}}\.(?:py|cc|cpp):\d{{1,7}}\]
    | [|>]
    )[ ]?""",
    re.VERBOSE,
)
_BOX = re.compile(r"^[│┃║]\s?(.*?)\s*[│┃║]?$")
_DOCKER = re.compile(r'^\{"log":"')


def read_line(raw: str) -> LogLine:
    """Split one raw line (no newline at its end) into its writer and its text. Never raises; linear in the line's length."""
    line = _ANSI.sub("", raw) if "\x1b" in raw else raw
    line = line.rstrip("\r").rpartition("\r")[2]  # a progress bar rewrites its line; the last version counts
    line = _CONTROL.sub("", line)
    if _DOCKER.match(line):
        line = line[8:].replace('\\"', '"').replace("\\u003c", "<").replace("\\u003e", ">").partition("\\n")[0]
    sources: list[str] = []
    at = 0
    for _ in range(MAX_PREFIXES):
        mark = _SOURCE.match(line, at)
        if mark is not None:
            sources.append(next(group for group in mark.groups() if group))
            at = mark.end()
            continue
        noise = _NOISE.match(line, at)
        if noise is None or noise.end() == at:
            break
        at = noise.end()
    text = line[at:]
    if text[:1] in "│┃║":
        boxed = _BOX.match(text)
        text = boxed[1] if boxed else text
    return LogLine(" ".join(sources), text)
