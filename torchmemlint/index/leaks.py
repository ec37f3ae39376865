"""Calls that leave grad mode switched behind them, with the effect on the calls that follow."""

from __future__ import annotations

from collections import defaultdict

from torchmemlint.index import keys
from torchmemlint.index.callgraph import CallGraph
from torchmemlint.index.dependency_log import DependencyLog
from torchmemlint.index.effects import Effects
from torchmemlint.index.facts import CallableUse, CallFact
from torchmemlint.index.grad_effects import GradEffect
from torchmemlint.index.plain import shape
from torchmemlint.index.references import TOP, FunctionRef


class Leaks:
    """The leaks of a project, found all at once."""

    def __init__(self, effects: Effects, calls: CallGraph, log: DependencyLog) -> None:
        self._effects = effects
        self._calls = calls
        self._log = log
        self._leaks: dict[FunctionRef, list[tuple[CallFact, GradEffect]]] | None = None

    def effect_at(self, ref: FunctionRef, call: CallFact) -> GradEffect | None:
        """The last effect on grad mode in force at a call; None when the function's start mode still holds."""
        leak = self._leak_before(ref, call)
        managers = call.managers
        if leak is not None:
            switch, effect = leak
            inner = self._effects.last_effect(ref, managers[len(switch.managers) :])
            return inner if inner is not None else effect
        return self._effects.last_effect(ref, managers)

    def _leak_before(self, ref: FunctionRef, call: CallFact) -> tuple[CallFact, GradEffect] | None:
        """The last call before ``call`` of a project function that leaves grad mode switched."""
        self._log.read(keys.LEAK, ref.path, ref.qualname)
        if self._leaks is None:
            self._leaks = self._find_leaks()
        found = None
        for leak, effect in self._leaks.get(ref, ()):
            if leak.place < call.place and leak.branch == call.branch[: len(leak.branch)]:
                found = (leak, effect)
        return found

    def leaks_again(self) -> list[str]:
        """The leaks, as the values of their root."""
        self._leaks = self._find_leaks()
        return _as_values(self._leaks)

    def _find_leaks(self) -> dict[FunctionRef, list[tuple[CallFact, GradEffect]]]:
        """The calls that leave grad mode switched, by the functions in which they stand: a firewall of the dependency log."""
        leaks: dict[FunctionRef, list[tuple[CallFact, GradEffect]]] = defaultdict(list)
        with self._log.untracked():
            self._log.reads = []
            for ref, facts in self._calls.tables.switching():
                if ref.qualname == TOP or ref.qualname.rpartition(".")[2] in ("__enter__", "__exit__"):
                    continue
                effect = self._effects.last_effect(ref, facts.leaves)
                if effect is None:
                    continue
                self._log.read(keys.PLACES, ref.path, ref.qualname)
                for caller in self._calls.calls_of(ref):
                    if not caller.certain:
                        continue
                    use = CallableUse(caller.call.callee, caller.call.args, True)
                    bound = bool(facts.owner)
                    given = self._effects.with_arguments(caller.ref.path, caller.ref.qualname, effect, ref, use, bound)
                    if given is not None:
                        leaks[caller.ref].append((caller.call, given))
            for places in leaks.values():
                places.sort(key=lambda leak: leak[0].place)
            self._log.firewall(keys.LEAKS, self._log.reads, (), _as_values(leaks) if self._log.on else ())
        return leaks


def _as_values(leaks: dict[FunctionRef, list[tuple[CallFact, GradEffect]]]) -> list[str]:
    return [part for ref in sorted(leaks) for part in (ref.path, ref.qualname, shape(leaks[ref]))]
