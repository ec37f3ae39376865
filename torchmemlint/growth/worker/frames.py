"""Frames of the user's program, each known by the loop that it is in.

A mark says whether a frame was seen before.

A frame is recognized by a ``Tag`` in its ``f_trace``, which is of no effect while nobody traces: holding the frame itself would keep its
locals alive, and the id of a frame is used again after its end. Where a debugger or coverage has taken that place, the id must do.
"""

from __future__ import annotations

import dis
import inspect
import os
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder of torchmemlint."""


class Tag:
    """Marks one activation of a function; ``seen`` has, of each loop in it, the calls of the iteration that is going on."""

    __slots__ = ("loops", "seen")

    def __init__(self) -> None:
        self.seen: dict[int, set[int]] = {}
        self.loops: dict[int, tuple[int, int] | None] = {}

    def loop(self, frame: FrameType) -> tuple[int, int] | None:
        """``loop_around`` where the frame is now."""
        at = frame.f_lasti
        if at not in self.loops:
            self.loops[at] = loop_around(frame.f_code, at)
        return self.loops[at]

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """A debugger that starts later calls what it finds in ``f_trace``: nothing happens then."""


class LineTrace:
    """Base of what traces the lines of one frame for us: it holds the frame's tag meanwhile, and where it is left after that."""

    __slots__ = ("tag",)

    def __init__(self, tag: Tag | None) -> None:
        self.tag = tag


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file, and the function that it is in."""

    path: str
    line: int
    function: str

    def as_json(self) -> dict[str, object]:
        """The place as plain data."""
        return {"path": self.path, "line": self.line, "function": self.function}


def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders.update(site.getsitepackages() if hasattr(site, "getsitepackages") else ())
    if site.ENABLE_USER_SITE:
        folders.add(site.getusersitepackages())
    folders.update((os.path.dirname(os.__file__), HERE))
    return tuple(sorted(os.path.join(folder, "") for folder in folders))


_PACKAGES = frozenset({"site-packages", "dist-packages"})
_FOLDERS = _library_folders()
_OWN: set[str] = set()


def program_is_at(path: str) -> None:
    """The files beside the program are the user's, wherever they are installed."""
    _OWN.add(os.path.join(os.path.dirname(os.path.abspath(path)), ""))


@lru_cache(maxsize=4096)
def is_users_file(path: str) -> bool:
    """Whether a file is the user's: no library's, not Python's, not ours."""
    if path.startswith("<") and not path.startswith("<ipython"):
        return False
    if path.startswith(os.path.join(HERE, "")):
        return False
    path = os.path.abspath(path)
    for folder in _OWN:
        if path.startswith(folder):  # there may be a virtual environment in it
            return not _PACKAGES.intersection(path[len(folder) :].split(os.sep))
    return not path.startswith(_FOLDERS) and not _PACKAGES.intersection(path.split(os.sep))


def users(frame: FrameType | None) -> Iterator[FrameType]:
    """The user's frames from this one outwards."""
    while frame is not None:
        if is_users_file(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def place(frame: FrameType, line: int | None = None) -> Place:
    """Where a frame is now."""
    code = frame.f_code
    return Place(code.co_filename, line or frame.f_lineno or code.co_firstlineno, name_of(code))


def name_of(code: CodeType) -> str:
    """The name of a code object as one would write it."""
    return str(getattr(code, "co_qualname", code.co_name)).replace(".<locals>.", ".")


@lru_cache(maxsize=1024)
def loops_of(code: CodeType) -> tuple[tuple[int, int, int], ...]:
    """The loops of a code object as (first offset, last offset, line of its head), from the bytecode's jumps backwards."""
    loops: dict[int, int] = {}
    lines: dict[int, int] = {}
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        positions = getattr(instruction, "positions", None)
        line = (positions.lineno if positions is not None else instruction.starts_line) or line
        lines[instruction.offset] = int(line)
        if instruction.opcode in _JUMPS and isinstance(instruction.argval, int) and instruction.argval <= instruction.offset:
            loops[instruction.argval] = max(loops.get(instruction.argval, 0), instruction.offset)
    # the head of `while` is tested again at the end, and the first offset is then that of its body
    return tuple(sorted((start, end, min(lines[start], lines[end])) for start, end in loops.items()))


_JUMPS = frozenset([*dis.hasjrel, *dis.hasjabs])


def loop_around(code: CodeType, offset: int) -> tuple[int, int] | None:
    """The innermost loop around an offset as (first offset, line of its head), None where there is none."""
    around = [(end - start, start, line) for start, end, line in loops_of(code) if start <= offset <= end]
    return min(around)[1:] if around else None


_SNAPSHOTS = sys.version_info < (3, 13)


def locals_of(frame: FrameType) -> Mapping[str, Any]:
    """The local variables of a frame. Before Python 3.13 this leaves a copy in the frame: ``forget_locals`` after a look."""
    return frame.f_locals


def forget_locals(frame: FrameType | None) -> None:
    """Empty the copies of local variables that looks have left in the frames from this one outwards, so that no value lives longer for
    it. While somebody traces, Python writes these copies back, and they stay."""
    if not _SNAPSHOTS or sys.gettrace() is not None:
        return
    while frame is not None:
        if frame.f_code.co_flags & inspect.CO_NEWLOCALS and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            frame.f_locals.clear()
        frame = frame.f_back


class Marks:
    """Tags the frames of a stack and finds the loop that a call is an iteration of."""

    def __init__(self) -> None:
        self._by_id: dict[tuple[int, CodeType], Tag] = {}

    def iteration(self, frame: FrameType) -> tuple[FrameType, Tag, int, int] | None:
        """The frame, its tag, first offset and line of the loop of which this call begins an iteration, None if it begins none. All frames
        up to the first one that an earlier call saw are tagged."""
        current: FrameType | None = frame
        while current is not None:
            tag: Any = current.f_trace
            if tag is not None and type(tag) is not Tag:
                tag = tag.tag if issubclass(type(tag), LineTrace) else self._other(current)
            if tag is not None:
                return self.again(current, tag)
            self._tag(current)
            current = current.f_back
        return None

    def _tag(self, frame: FrameType) -> None:
        tag = Tag()
        loop = tag.loop(frame)
        if loop is not None:
            tag.seen[loop[0]] = {frame.f_lasti}
        there: Any = frame.f_trace
        if there is None:
            frame.f_trace = tag
        elif issubclass(type(there), LineTrace):
            there.tag = tag
        else:
            self._by_id[id(frame), frame.f_code] = tag

    def _other(self, frame: FrameType) -> Tag | None:
        if len(self._by_id) > 1000:  # frames that have ended
            self._by_id.clear()
        return self._by_id.get((id(frame), frame.f_code))

    def again(self, frame: FrameType, tag: Tag) -> tuple[FrameType, Tag, int, int] | None:
        """As ``iteration``, of a frame that an earlier call saw."""
        loop = tag.loop(frame)
        if loop is None:
            return None
        start, line = loop
        calls = tag.seen.get(start)
        if calls is None:  # a second loop in the same function
            tag.seen[start] = {frame.f_lasti}
            return None
        if frame.f_lasti not in calls:  # another call in the iteration that is going on
            calls.add(frame.f_lasti)
            return None
        tag.seen[start] = {frame.f_lasti}
        return frame, tag, start, line
