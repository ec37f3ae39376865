"""Where the CPU time of a run goes, by stage or by rule.

find     looking for files and their settings
scan     reading and screening them; ``ast`` → facts
link     the project
lower    ``ast`` → IR, of the regions that a run reaches
run      interpretation, callers that a rule asks for included
libcst   reading the regions of which a finding shows a place that `ast` does not say
TML…     the rules, each without the runs that it asks for
rest     all else: choosing functions, suppression
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchmemlint.index.project import Project
    from torchmemlint.project.settings import Settings
    from torchmemlint.semantics.roots import Runs

STAGES = ("find", "scan", "link", "lower", "run", "libcst", "rest")


@dataclass(slots=True)
class Clock:
    """CPU seconds by stage; time inside an inner stage is not the outer one's."""

    spent: dict[str, float] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)
    _since: float = field(default_factory=time.process_time)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self._close()
        self._open.append(name)
        try:
            yield
        finally:
            self._close()
            self._open.pop()

    def _close(self) -> None:
        now = time.process_time()
        if self._open:
            self.spent[self._open[-1]] = self.spent.get(self._open[-1], 0.0) + now - self._since
        self._since = now


@dataclass(slots=True)
class Profile:
    """Times of one run in one process; ``lines`` that were lowered and that LibCST ``read``, ``runs`` of functions, and how often
    rules were ``asked``."""

    clock: Clock = field(default_factory=Clock)
    lines: int = 0
    read: int = 0
    runs: int = 0
    asked: dict[str, int] = field(default_factory=dict)

    def make_runs(self, project: Project, settings: Settings, read: Callable[[str], str]) -> Runs:
        """As ``analysis.make_runs``."""
        from torchmemlint.index.project import FunctionRef
        from torchmemlint.lower.lowered import Lowered
        from torchmemlint.lower.places import Places
        from torchmemlint.lower.spans import NotedPlaces
        from torchmemlint.semantics.roots import Runs
        from torchmemlint.semantics.state import Record, World

        profile = self

        class TimedLowered(Lowered):
            def _note(self) -> NotedPlaces:
                places = super()._note()
                read, lines = places.read, self.region.text.count("\n")

                def timed() -> Places:
                    profile.read += lines
                    with profile.clock.stage("libcst"):
                        return read()

                places.read = timed
                return places

        class TimedWorld(World):
            def _lower(self, path: str, outermost: str) -> object:
                with profile.clock.stage("lower"):
                    found: Any = super()._lower(path, outermost)
                if found is None:
                    return None
                profile.lines += found.region.text.count("\n")
                return TimedLowered(found.region, found.functions, found._places)

        class TimedRuns(Runs):
            def _run(self, ref: FunctionRef) -> list[Record]:
                with profile.clock.stage("run"):
                    found = super()._run(ref)
                profile.runs += len(found)
                return found

        return TimedRuns(TimedWorld(project, settings, read))

    def ask(self, module: Any, event: object, flow: object) -> Iterable[Any]:
        """As ``analysis.ask_rule``."""
        code = module.RULE.code
        self.asked[code] = self.asked.get(code, 0) + 1
        with self.clock.stage(code):
            return list(module.check(event, flow))

    def table(self) -> str:
        """The stages in order, then the rules, the dearest first; seconds of CPU."""
        spent = self.clock.spent
        total = sum(spent.values())
        amounts = {"lower": f"{self.lines:,} lines", "run": f"{self.runs:,} runs", "libcst": f"{self.read:,} lines"}
        rows = [(name, spent.get(name, 0.0), amounts.get(name, "")) for name in STAGES]
        rules = sorted((code for code in spent if code not in STAGES), key=lambda code: (-spent[code], code))
        rows += [(code, spent[code], f"{self.asked[code]:,} events") for code in rules]
        lines = [
            f"{name:8}{seconds:9.3f} s{100 * seconds / (total or 1):6.1f} %  {words}".rstrip() for name, seconds, words in rows
        ]
        return "\n".join([*lines, f"{'total':8}{total:9.3f} s of CPU", ""])
