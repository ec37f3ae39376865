"""The program is killed: at random instants, and at each call that touches files or processes. What is there then is whole, and does not
mislead the next run; no process lives on."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from benchmarks.reliability.child import Done
from benchmarks.reliability.faults import Calls, Faults, dying, in_turn
from benchmarks.reliability.project import CACHE, Bench, Scenario, by_name


def place(bench: Bench, name: str) -> str:
    """Where the calls are made at which a scenario is killed."""
    return str(bench.cache if name == CACHE.name else bench.root)


@dataclass(slots=True)
class Kills:
    """The campaign. A case is ``scenario random number`` or ``scenario call number``."""

    bench: Bench
    scenarios: Sequence[str]
    beside: Sequence[str] = ()
    seconds: dict[str, float] = field(default_factory=dict)

    def cases(self) -> Iterator[str]:
        """Without end: when every call had its turn, random instants go on."""
        return in_turn([*map(self.cases_of, self.scenarios), self.cases_beside()])

    def cases_of(self, name: str) -> Iterator[str]:
        """Random instants and calls by turns; the calls in an order that is always the same."""
        calls = [*range(1, Faults(self.bench, ()).uses(name, place(self.bench, name)).total() + 1)]
        random.Random(name).shuffle(calls)
        for number in count():
            yield f"{name} random {number}"
            if number < len(calls):
                yield f"{name} call {calls[number]}"

    def cases_beside(self) -> Iterator[str]:
        """Every third is one of ``confirm``, the first, which takes seconds."""
        for number in count() if self.beside else ():
            yield f"{self.beside[-1 if number % 3 else 0]} random {number}"

    def check(self, case: str) -> list[str]:
        name, way, number = case.split()
        scenario = by_name[name]
        self.bench.undisturbed(scenario)
        before = self.bench.start(scenario)
        if way == "call":
            calls = Calls(place(self.bench, name), "any", int(number), dying)
            done = self.bench.disturbed(scenario, calls.listen)
        else:
            after = random.Random(case).uniform(0, 1.1 * self.length(scenario))
            self.bench.start(scenario)
            done = self._killed(scenario, after)
        wrong = [f"left {done.left} processes"] if done.left else []
        if done.status not in (-9, 0, 1, 2):
            wrong.append(f"ended with {done.status}")
        return wrong + self.bench.aftermath(scenario, before, killed=True)

    def length(self, scenario: Scenario) -> float:
        """Seconds that a scenario takes, on the clock, undisturbed."""
        if scenario.name not in self.seconds:
            self.bench.start(scenario)
            began = time.monotonic()
            self._killed(scenario, 60)
            self.seconds[scenario.name] = time.monotonic() - began
        return self.seconds[scenario.name]

    def _killed(self, scenario: Scenario, after: float) -> Done:
        return self.bench.disturbed(scenario, kill_after=after)
