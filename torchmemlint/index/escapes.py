"""Escape analysis: whether a function is handed on as a value, so that it may be called by code that is not visible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchmemlint.index import keys
from torchmemlint.index.arguments import params_given
from torchmemlint.index.callees import CallResolver
from torchmemlint.index.decorators import INERT, argument_calls, is_property
from torchmemlint.index.dependency_log import memoized
from torchmemlint.index.edges import Caller
from torchmemlint.index.facts import CallFact, FunctionFacts
from torchmemlint.index.names import Names
from torchmemlint.index.points_to import Instance, Method, PointsTo, Value
from torchmemlint.index.quiet import is_quiet
from torchmemlint.index.reader import Head
from torchmemlint.index.references import TOP, ClassRef, FunctionRef, Outside
from torchmemlint.torch_facts import TORCH, TorchFacts


class Escapes:
    """Where functions go as values."""

    def __init__(self, names: Names, points_to: PointsTo, resolver: CallResolver, torch: TorchFacts) -> None:
        self._names = names
        self._reader = names.reader
        self._points_to = points_to
        self._resolver = resolver
        self._log = log = names.log
        self._handed = memoized(log, self._find_handed)
        self._torch = torch

    def escapes(self, ref: FunctionRef) -> bool:
        """Whether a function may be called by code that is not visible."""
        return self._is_had_or_registered(ref) or any(True for _ in self._readings(ref))

    def _readings(self, ref: FunctionRef) -> Iterator[tuple[FunctionRef, str, bool]]:
        """What is read that may be a function: where, by which text, and whether it surely may."""
        for word in self._resolver.with_aliases([ref.qualname.rpartition(".")[2]]):
            for reader, text in self._resolver.tables.reads(word):
                values = self._points_to.values(reader.path, reader.qualname, text)
                meant = any(
                    ref in self._resolver.targets(value) for value in values if not isinstance(value, Instance | ClassRef)
                )
                may_be = not values and "." in text and bool(self._reader.header(ref).owner)
                if meant or (may_be and self._might_mean(reader, text, ref)):
                    yield reader, text, meant

    def _is_had_or_registered(self, ref: FunctionRef) -> bool:
        """Whether a method may be had, or called, without its name as an attribute in the text, or a decorator keeps the function."""
        facts, name, tables = self._reader.header(ref), ref.qualname.rpartition(".")[2], self._resolver.tables
        had = tables.is_looked_up(name) or _called_implicitly(name) or tables.is_put_together(name) if facts.owner else False
        return had or any(self._registers(ref.path, facts, use.callee) for use in facts.decorators)

    def handed(self, ref: FunctionRef) -> tuple[Caller, ...]:
        """The calls that run a function which they are given (``pool.map(score, batches)``), where all that is done with ``ref`` as
        a value is to give it to such calls; none where it may be called by anything else."""
        return self._handed.answer(ref)

    def given_where_defined(self, ref: FunctionRef) -> tuple[Caller, ...]:
        """The calls that run a closure which the function around it gives them, as ``handed``."""
        around, _, name = ref.qualname.rpartition(".")
        if not around or self._reader.header(ref).parent != around:
            return ()
        return self._given_to_runners(FunctionRef(ref.path, around), name)

    def _find_handed(self, ref: FunctionRef) -> tuple[Caller, ...]:
        if self._is_had_or_registered(ref):
            return ()
        found: list[Caller] = []
        for reader, text, meant in self._readings(ref):
            runs = self._given_to_runners(reader, text) if meant else ()
            if not runs:
                return ()
            found += runs
        return tuple(sorted(set(found), key=lambda caller: (caller.ref, caller.call.place)))

    def _given_to_runners(self, reader: FunctionRef, text: str) -> tuple[Caller, ...]:
        """The calls in ``reader`` that are given ``text``, or a ``partial`` of it; none where one is not known to run it."""
        self._log.read(keys.WHOLE, reader.path, reader.qualname)
        facts = self._reader.facts_of(reader)
        assert isinstance(facts, FunctionFacts)
        given = [call for call in facts.calls if any(arg.name == text for arg in call.args)]
        runs: list[Caller] = []
        for call in given:
            values = self._points_to.values(reader.path, reader.qualname, call.callee)
            found = (
                [Caller(reader, call, True)]
                if self._runs_its_argument(reader, call)
                else self._runs_inside(reader, call, values, text)
            )
            if values == (Outside("functools.partial"),):
                names = {f"{call.callee}()", *(name for name, bound in facts.bound if bound == f"{call.callee}()")}
                takers = [each for each in facts.calls if any(arg.name in names for arg in each.args)]
                run = all(self._runs_its_argument(reader, each) for each in takers)
                found = [Caller(reader, each, True) for each in takers] if run else []
            if not found:
                return ()
            runs += found
        return tuple(runs)

    def _runs_its_argument(self, reader: FunctionRef, call: CallFact) -> bool:
        values = self._points_to.values(reader.path, reader.qualname, call.callee)
        if values:
            return all(isinstance(value, Outside) and value.name in self._torch.runners for value in values)
        receiver, _, name = call.callee.rpartition(".")
        return bool(receiver) and name in self._torch.runner_methods and not call.deferred

    def starts_a_thread(self, caller: Caller) -> bool:
        """Whether a call that is given a function runs it in a thread of its own, which starts with grad mode on."""
        values = self._points_to.values(caller.ref.path, caller.ref.qualname, caller.call.callee)
        return bool(values) and all(
            isinstance(value, Outside) and value.name in TORCH.words["starts-threads"] for value in values
        )

    def _runs_inside(self, reader: FunctionRef, call: CallFact, values: Sequence[Value], text: str) -> list[Caller]:
        """Where functions of the project that are given ``text`` call it, if each of them does no more with it than that: in the call
        that gives it, where the function adds no context manager of its own, so that two of its callers may differ."""
        found: list[Caller] = []
        for value in values:
            if not isinstance(value, FunctionRef | Method):
                return []
            ref = value.function if isinstance(value, Method) else value
            head = self._reader.header(ref)
            bound = isinstance(value, Method) and not any(use.callee == "staticmethod" for use in head.decorators)
            params = head.params[1 if bound else 0 :]
            given = set(params_given(params, text, call.args))
            inside = self._reader.inside(ref)
            runs = [
                Caller(FunctionRef(ref.path, qualname), each, True)
                for qualname, facts in inside.items()
                for each in facts.calls
                if each.callee in given
            ]
            if len(given) != 1 or not runs or any((facts.reads | facts.taken) & given for facts in inside.values()):
                return []
            bare = not head.decorators and not any(each.call.managers or each.call.deferred for each in runs)
            found += [Caller(reader, call, True)] if bare and not call.deferred else runs
        return found

    def _might_mean(self, reader: FunctionRef, text: str, ref: FunctionRef) -> bool:
        """Whether ``text``, an attribute of an unknown object, may be the project's method ``ref`` taken as a value. Where too
        many classes of its package have such a method to say which is meant, each of them may be."""
        receiver, _, name = text.rpartition(".")
        if name in self._resolver.common or self._points_to.values(reader.path, reader.qualname, receiver):
            return False
        top = self._names.layout.top_package(reader.path)
        if self._names.layout.top_package(ref.path) == top and not is_property(self._reader.header(ref)):
            return True
        return bool(self._resolver.by_name(name, top))

    def _registers(self, path: str, facts: Head, callee: str) -> bool:
        """Whether a decorator may hand the function to code that is not visible."""
        if callee.rpartition(".")[2] in INERT:
            return False
        values = self._points_to.values(path, facts.parent or TOP, callee)
        if not values:
            return not self._is_of_quiet(path, facts, callee)
        for value in values:
            if isinstance(value, FunctionRef):
                if not self._reader.flow(value).wraps and not self._calls_its_argument(value):
                    return True
            elif isinstance(value, Method) or (isinstance(value, Outside) and not is_quiet(value.name)):
                return True
        return False

    def _is_of_quiet(self, path: str, facts: Head, callee: str) -> bool:
        """Whether a method of what a decorator of a quiet package made of a function is called (``@cli.command()`` below
        ``@click.group()``)."""
        receiver = callee.rpartition(".")[0]
        made = self._points_to.values(path, facts.parent or TOP, receiver) if receiver else ()
        return bool(made) and all(isinstance(each, FunctionRef) and self._is_made_by_quiet(each) for each in made)

    def _is_made_by_quiet(self, ref: FunctionRef) -> bool:
        head = self._reader.header(ref)
        found = [value for use in head.decorators for value in self._points_to.values(ref.path, head.parent or TOP, use.callee)]
        return bool(found) and all(isinstance(value, Outside) and is_quiet(value.name) for value in found)

    def _calls_its_argument(self, decorator: FunctionRef) -> bool:
        return any(True for _ in argument_calls(self._reader, decorator))


def _called_implicitly(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in ("__init__", "__call__")
