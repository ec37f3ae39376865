"""The traceback that leads to a message, down to the user's files that it names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath

from torchmemlint.files.reading import MAX_NOTEBOOK_BYTES, as_text, read_beginning
from torchmemlint.oom.log_line import read_line

MAX_LINES = 4000
"""Lines looked at before a message; a traceback has some hundreds, times the ranks that write at the same time."""
MAX_FRAMES = 200


@dataclass(frozen=True, slots=True)
class Frame:
    """One call of a traceback, outermost first in a list of them; ``code`` is "" where the log does not show it."""

    path: str
    row: int
    function: str
    code: str = ""


@dataclass(frozen=True, slots=True)
class LocalFrame:
    """A frame whose file lies under the source root.

    path     the file as found, relative to the working directory where that is possible
    current  the text of that row as it is now, stripped
    changed  whether the row no longer reads as the traceback shows it
    """

    frame: Frame
    path: str
    current: str
    changed: bool


_FILE = re.compile(r'^\s*File "([^"]{1,500})", line (\d{1,9})(?:, in (.{1,200}))?\s*$')
_IPYTHON = re.compile(
    r"^(?:File )?(?P<path>(?:[A-Za-z]:)?[^\s:][^:\"]{0,400}):(?P<row>\d{1,9}),? in (?P<function>[^\s(]{1,200})"
)
_CELL = re.compile(
    r"^(?P<path>(?:Cell|Input) In ?\[\d{1,6}\]),? (?:line (?P<row>\d{1,9})(?:, in (?P<function>[\w.<>]{1,200}))?|in <cell line: \d{1,6}>)"
)
"""A frame in a notebook's cell, by IPython 8; some releases give its row at the arrow only."""
_IPYTHON_OLD = re.compile(
    r"^\[?(?P<path><ipython-input-[\w-]{1,60}>|(?:~|/|[A-Za-z]:\\)[^\s\[\]()]{1,400}\.py)(?:\]\(https?://[^)\s]{1,80}\))? in "
    r"(?P<function><cell line: \d{1,6}>|[\w.<>]{1,200})\("
)
"""A frame of IPython before 8, as Colab prints it: its row stands in the line with the arrow."""
_ARROW = re.compile(r"^(?:-{1,6}>|\s*❱)\s*(\d{1,9})\s?(.*)$")
_CARETS = re.compile(r"^\s*[~^]+\s*$")
_LIBRARY = re.compile(
    r"(?:^|/)(?:site-packages|dist-packages|lib/python\d(?:\.\d{1,2})?|lib64/python\d(?:\.\d{1,2})?|torch/nn|torch/utils|torch/_\w+)/|^<(?!ipython-input)|^(?:python\d?/)?torch/"
)


def read_traceback(before: bytes, source: str) -> tuple[Frame, ...]:
    """The last traceback of ``source`` in ``before`` (the log up to the message), outermost frame first; () for none."""
    lines: list[str] = []
    for raw in reversed(before.decode("utf-8", "replace").split("\n")[-MAX_LINES:]):
        line = read_line(raw[:2000])
        if line.source != source:
            continue
        lines.append(line.text)
        if "Traceback (most recent call last)" in line.text:
            break
    else:
        # No header (a truncated log, or a box without one): frames that stand right above the message still count.
        lines = lines[:60]
    lines.reverse()
    return () if _ended(lines) else _frames(lines)[-MAX_FRAMES:]


_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]{0,100}(?:Error|Exception|Interrupt|Exit)(?::|$)")


def _ended(lines: Sequence[str]) -> bool:
    """Whether the traceback in ``lines`` is that of another exception: its last line stands there, with an empty line below it.

    A message of several lines has such a line inside it, with no empty one.
    """
    # The last of the lines is the beginning of the message's own.
    return any(_EXCEPTION.match(text) is not None and not following.strip() for text, following in pairwise(lines[:-1]))


_BELOW = re.compile(r"Stack ?[Tt]race|Traceback|Call [Ss]tack")


def read_traceback_below(after: bytes) -> tuple[Frame, ...]:
    """The traceback that an error report prints below its message, under a heading or without one; () for none.

    Some reports print the innermost frame first: then each frame's line calls the function of the frame above it.
    """
    lines = [read_line(raw[:2000]).text for raw in after.decode("utf-8", "replace").split("\n")]
    first = next((number for number, text in enumerate(lines[:4]) if _BELOW.search(text) or _FILE.match(text)), None)
    frames = () if first is None else _frames(lines[first:])[-MAX_FRAMES:]
    upwards = len(frames) > 1 and all(f"{inner.function}(" in outer.code for inner, outer in pairwise(frames))
    return frames[::-1] if upwards else frames


def _frames(lines: Sequence[str]) -> tuple[Frame, ...]:
    frames: list[Frame] = []
    for number, text in enumerate(lines):
        found = _FILE.match(text)
        if found is not None:
            following = lines[number + 1] if number + 1 < len(lines) else ""
            code = (
                "" if _FILE.match(following) or _CARETS.match(following) or not following[:1].isspace() else following.strip()
            )
            frames.append(Frame(found[1], int(found[2]), (found[3] or "<module>").strip(), code))
            continue
        found = _IPYTHON.match(text)
        if found is not None:
            frames.append(Frame(found["path"].strip(), int(found["row"]), found["function"]))
            continue
        found = _IPYTHON_OLD.match(text)
        if found is not None:
            frames.append(Frame(found["path"], 0, found["function"]))
            continue
        found = _CELL.match(text)
        if found is not None:
            frames.append(Frame(found["path"], int(found["row"] or 0), found["function"] or "<module>"))
            continue
        arrow = _ARROW.match(text)
        if arrow is not None and frames and not frames[-1].code:
            last = frames[-1]
            frames[-1] = Frame(last.path, int(arrow[1]), last.function, arrow[2].strip(" │"))
    return tuple(frames)


def is_library(path: str) -> bool:
    """Whether a frame's file belongs to Python, to torch or to an installed package."""
    return _LIBRARY.search(path.replace("\\", "/")) is not None


def find_local(frames: Sequence[Frame], root: Path) -> tuple[LocalFrame, ...]:
    """The frames whose files lie under ``root``, outermost first.

    The log may come from another machine: a file is the one under ``root`` whose path ends as the frame's path does, the
    longest such ending. Nothing outside ``root`` is opened. Library files are not looked for.
    """
    base = root.resolve()
    known: dict[str, Path | None] = {}
    local = []
    for frame in frames:
        if frame.path not in known:
            known[frame.path] = None if is_library(frame.path) else _under(frame.path, base)
        path = known[frame.path]
        if path is None:
            continue
        current = _row_text(path, frame.row)
        changed = bool(frame.code) and " ".join(current.split()) != " ".join(frame.code.split())
        local.append(LocalFrame(frame, _shown_path(path), current, changed))
    return tuple(local)


def _under(named: str, base: Path) -> Path | None:
    parts = [part for part in PurePosixPath(named.replace("\\", "/")).parts if part not in ("/", ".", "~")]
    if ".." in parts or not parts or not parts[-1].endswith((".py", ".ipynb")):
        return None
    for first in range(len(parts)):
        try:
            path = base.joinpath(*parts[first:])
            if path.is_file() and path.resolve().is_relative_to(base):
                return path
            # `--src pkg` with frames in …/pkg/train.py: the root's own name may be part of the ending.
            if parts[first] == base.name and first + 1 < len(parts) and base.joinpath(*parts[first + 1 :]).is_file():
                return base.joinpath(*parts[first + 1 :])
        except (OSError, ValueError):  # a name that the file system cannot hold
            return None
    return None


def _row_text(path: Path, row: int) -> str:
    try:
        text = as_text(read_beginning(str(path), MAX_NOTEBOOK_BYTES), "replace")
    except OSError:
        return ""
    lines = text.split("\n", row)
    return lines[row - 1].strip() if 1 <= row <= len(lines) else ""


def _shown_path(path: Path) -> str:
    try:
        return path.relative_to(Path.cwd().resolve()).as_posix()
    except ValueError:
        return path.as_posix()
