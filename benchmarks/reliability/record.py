"""What a campaign has done, in JSON: it goes on where it was left, and looks first at what it found before."""

from __future__ import annotations

import json
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torchmemlint import __version__

RECORDS = Path(__file__).with_name("records")
SAVED_SECONDS = 10

Check = Callable[[str], list[str]]
"""Tries one case, by its name; what is wrong."""


@dataclass(slots=True)
class Record:
    """``cases`` by kind; ``failures`` by case, with what was wrong, ``fixed`` the same of those that hold now."""

    campaign: str
    version: str = __version__
    cpu_seconds: float = 0.0
    cases: dict[str, int] = field(default_factory=dict)
    open: dict[str, list[str]] = field(default_factory=dict)
    fixed: dict[str, list[str]] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, campaign: str) -> Record:
        if not path.is_file():
            return cls(campaign)
        return cls(**{**json.loads(path.read_text(encoding="utf-8")), "version": __version__})

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        shown = asdict(self)
        shown["cpu_seconds"] = round(self.cpu_seconds, 1)
        path.write_text(json.dumps(shown, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    @property
    def done(self) -> int:
        return sum(self.cases.values())

    def report(self) -> str:
        rate = f", {self.done / self.cpu_seconds:.1f} a second" if self.cpu_seconds else ""
        lines = [
            f"{self.campaign}: {self.done} cases in {self.cpu_seconds:.0f} s of CPU{rate}; "
            f"{len(self.fixed)} failures fixed, {len(self.open)} open",
            *(f"  {case}: {'; '.join(wrong)}" for case, wrong in self.open.items()),
        ]
        return "\n".join(lines)


def cpu() -> float:
    """Seconds of this process and of those that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def run(record: Record, cases: Iterable[str], check: Check, seconds: float, path: Path | None = None) -> None:
    """Tries what failed before, then the ``cases`` that were not tried yet, for so many seconds of CPU. The kind of a case is its name
    up to the first space."""
    began, before = cpu(), record.cpu_seconds

    def save() -> None:
        record.cpu_seconds = before + cpu() - began
        if path is not None:
            record.write(path)

    for case in list(record.open):
        if wrong := check(case):
            record.open[case] = wrong
        else:
            record.fixed[case] = record.open.pop(case)
    left = Counter(record.cases)
    written = time.monotonic()
    try:
        for case in cases:
            kind = case.partition(" ")[0]
            if left[kind]:  # of each kind, the first ones were tried
                left[kind] -= 1
                continue
            if cpu() - began > seconds:
                break
            if wrong := check(case):
                record.open[case] = wrong
            record.cases[kind] = record.cases.get(kind, 0) + 1
            if time.monotonic() > written + SAVED_SECONDS:
                save()
                written = time.monotonic()
    finally:  # also where the campaign itself fails, or is stopped
        save()
