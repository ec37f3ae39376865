"""Each call that opens, reads, writes, renames, deletes, locks or forks fails once: the first, the second, and so on to the last. Then
all calls of a kind fail from one of them on, as on a disk that is full; then each once more, with the other errors of its kind.

An audit hook hears of most of these calls, and what it raises is what the call raises; the others are wrapped in ``os``. A write that
fails has written half. Only files of the project, the cache and the folder for temporary files count, and what has no name.
"""

from __future__ import annotations

import builtins
import errno
import io
import mmap
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.reliability.project import BESIDE, Bench, Scenario, by_name

ERRORS: dict[str, tuple[int, ...]] = {
    "open": (errno.EIO, errno.EMFILE, errno.EACCES),
    "read": (errno.EIO,),
    "write": (errno.ENOSPC, errno.EIO),
    "rename": (errno.EIO, errno.EXDEV),
    "remove": (errno.EACCES,),
    "mkdir": (errno.ENOSPC,),
    "rmdir": (errno.EACCES,),
    "scandir": (errno.EIO, errno.EMFILE),
    "listdir": (errno.EIO,),
    "link": (errno.EPERM,),
    "chmod": (errno.EPERM,),
    "lock": (errno.ENOLCK,),
    "fork": (errno.EAGAIN,),
    "pipe": (errno.EMFILE,),
    "memfd": (errno.EMFILE, errno.ENOMEM),
}
LASTING = {
    "open": errno.EMFILE, "write": errno.ENOSPC, "mkdir": errno.ENOSPC, "lock": errno.ENOLCK, "fork": errno.EAGAIN,
    "pipe": errno.EMFILE, "memfd": errno.EMFILE,
}  # fmt: skip
"""What stays so: no room, no descriptors, no processes, no locks."""
_EVENTS = {
    "open": "open", "os.rename": "rename", "os.remove": "remove", "os.mkdir": "mkdir", "os.rmdir": "rmdir", "os.scandir": "scandir",
    "os.listdir": "listdir", "os.link": "link", "os.chmod": "chmod", "fcntl.flock": "lock", "os.fork": "fork",
}  # fmt: skip
_NAMED = frozenset(_EVENTS.values()) - {"lock", "fork"}
_KINDS = tuple(ERRORS)
_WIDTH = 8


class Calls:
    """Counts calls by kind, in this process and those that it forks, and does something at one of them, or (``lasting``) from it on."""

    def __init__(
        self, root: str, kind: str = "", number: int = 0, act: Callable[[], None] = lambda: None, lasting: bool = False
    ) -> None:
        self.root, self.kind, self.number, self.act, self.lasting = root, kind, number, act, lasting
        self.memory = mmap.mmap(-1, _WIDTH * (len(_KINDS) + 1))
        self.busy = False

    def count(self, kind: str) -> int:
        at = _WIDTH * _KINDS.index(kind)
        return int.from_bytes(self.memory[at : at + _WIDTH], "little")

    def total(self) -> int:
        return sum(self.count(kind) for kind in _KINDS)

    @property
    def reached(self) -> bool:
        return self.memory[-1] == 1

    def tick(self, kind: str) -> None:
        at = _WIDTH * _KINDS.index(kind)
        count = self.count(kind) + 1
        self.memory[at : at + _WIDTH] = count.to_bytes(_WIDTH, "little")
        here = count if self.kind == kind else self.total() if self.kind == "any" else 0
        if here >= self.number > 0 and (self.lasting or (here == self.number and not self.reached)):
            self.memory[-1] = 1
            self.act()

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        kind = _EVENTS.get(event)
        if kind is None or self.busy:
            return
        if kind in _NAMED:
            name = arguments[0]
            if isinstance(name, bytes):
                name = os.fsdecode(name)
            if not isinstance(name, str):
                return
            self.busy = True
            try:
                inside = os.path.abspath(name).startswith(self.root)
            finally:
                self.busy = False
            if not inside:
                return
        self.tick(kind)

    def listen(self) -> None:
        """From now on, in this process: there is no way back."""
        calls = self

        class Raw(io.FileIO):
            def write(self, data: Any, /) -> int:
                try:
                    calls.tick("write")
                except OSError:
                    super().write(bytes(data)[: len(bytes(data)) // 2])
                    raise
                return int(super().write(data) or 0)

        plain_open = builtins.open

        def opened(file: Any, mode: str = "r", *arguments: Any, **more: Any) -> Any:
            if "b" in mode and set("wax") & set(mode) and not arguments and not set(more) - {"closefd"}:
                return io.BufferedWriter(Raw(file, mode.replace("b", ""), **more))
            return plain_open(file, mode, *arguments, **more)

        builtins.open = opened
        for kind, name in (("read", "read"), ("write", "write"), ("pipe", "pipe"), ("memfd", "memfd_create")):
            setattr(os, name, self._wrapped(kind, getattr(os, name)))
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(Raw(1, "w", closefd=False)), encoding="utf-8")
        sys.addaudithook(self.hook)

    def _wrapped(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            self.tick(kind)
            return function(*arguments, **more)

        return call


def raising(number: int) -> Callable[[], None]:
    def act() -> None:
        raise OSError(number, os.strerror(number))

    return act


def dying() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(slots=True)
class Faults:
    """The campaign. A case is ``scenario kind number errno``; the number has a ``+`` where the later calls fail, too."""

    bench: Bench
    scenarios: Sequence[str]

    def uses(self, name: str, place: str = "") -> Calls:
        """How often a scenario makes each kind of call, below a folder."""
        scenario = by_name[name]
        self.bench.undisturbed(scenario)
        self.bench.start(scenario)
        calls = Calls(place or str(self.bench.root))
        self.bench.disturbed(scenario, calls.listen)
        return calls

    def cases(self) -> Iterator[str]:
        yield from in_turn([self.cases_of(name) for name in self.scenarios])

    def cases_of(self, name: str) -> Iterator[str]:
        """Every call of a scenario, in an order that is always the same and mixes the kinds: a short run sees some of each."""
        calls = self.uses(name)
        places = [(kind, number) for kind in ERRORS for number in range(1, calls.count(kind) + 1)]
        chance = random.Random(name)
        yield from _shuffled(chance, [_case(name, kind, number, ERRORS[kind], number) for kind, number in places])
        yield from _shuffled(
            chance, [f"{name} {kind} {number}+ {errno.errorcode[LASTING[kind]]}" for kind, number in places if kind in LASTING]
        )
        for turn in range(1, max(map(len, ERRORS.values()))):
            left = [(kind, number) for kind, number in places if turn < len(ERRORS[kind])]
            yield from _shuffled(chance, [_case(name, kind, number, ERRORS[kind], number + turn) for kind, number in left])

    def check(self, case: str) -> list[str]:
        name, kind, number, error = case.split()
        scenario = by_name[name]
        expected, _ = self.bench.undisturbed(scenario)
        before = self.bench.start(scenario)
        failing = raising(getattr(errno, error))
        calls = Calls(str(self.bench.root), kind, int(number.rstrip("+")), failing, lasting=number.endswith("+"))
        done = self.bench.disturbed(scenario, calls.listen)
        wrong = done.wrong
        if (
            name not in BESIDE
            and done.status != 2
            and (done.status, done.out) != (expected.status, expected.out)
            and not _reported(done.out + done.err)
        ):
            wrong.append(f"ended with {done.status}, not {expected.status}, or said something else, and did not say why")
        return wrong + self.bench.aftermath(
            scenario,
            before,
            reported=done.status == 2 or _reported(done.out + done.err) or "TML000" in _written(self.bench, scenario),
        )


def _case(name: str, kind: str, number: int, errors: Sequence[int], turn: int) -> str:
    return f"{name} {kind} {number} {errno.errorcode[errors[turn % len(errors)]]}"


def _shuffled(chance: random.Random, cases: list[str]) -> list[str]:
    chance.shuffle(cases)
    return cases


def in_turn(several: Sequence[Iterator[str]]) -> Iterator[str]:
    """One of each, over and over, until all are at their end."""
    left = list(several)
    while left:
        for one in list(left):
            case = next(one, None)
            if case is None:
                left.remove(one)
            else:
                yield case


def _written(bench: Bench, scenario: Scenario) -> str:
    """The reports that a run wrote."""
    paths = [bench.project / name for name in scenario.writes]
    return "".join(path.read_text(encoding="utf-8") for path in paths if path.is_file())


def _reported(text: str) -> bool:
    """Whether a run that found something else says that something could not be done."""
    return any(word in text for word in ("cannot be", "could not", "skipped", "TML000"))
