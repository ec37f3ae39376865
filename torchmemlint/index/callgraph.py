"""The call graph: who can reach a function, whom a call can reach.

Both answers are worked out when they are asked for. Callers are looked for among the calls that end in the function's name
(or an alias of it), so that a question costs as much as there are such calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from torchmemlint.index import keys
from torchmemlint.index.callees import CallResolver
from torchmemlint.index.dependency_log import memoized
from torchmemlint.index.edges import Callees, Caller, Callers
from torchmemlint.index.escapes import Escapes
from torchmemlint.index.names import Names
from torchmemlint.index.points_to import PointsTo
from torchmemlint.index.references import ClassRef, FunctionRef, Outside
from torchmemlint.index.tables import Site, Tables
from torchmemlint.torch_facts import TORCH, TorchFacts

_FORWARDS = tuple(f".{name}" for name in TORCH.words["forward"])

if TYPE_CHECKING:
    from torchmemlint.processes.exchange import Exchange

_OBJECTS = "calls of objects"
"""What processes share out (see ``Project.share_through``)."""
_MANY_SITES = 20
"""Calls that end in one word, from which on it pays to share what they reach."""

_Plain = list[tuple[int, bool, list[tuple[str, str]]]]
"""Calls, by their places among some that all processes have in the same order: whether it is certain what each reaches, and that."""


class CallGraph:
    """The call graph of a project. ``resolver`` follows calls, ``escapes`` knows which functions are called by others than these."""

    def __init__(self, names: Names, points_to: PointsTo, torch: TorchFacts) -> None:
        self._names = names
        self._reader = names.reader
        self._classes = names.classes
        self._points_to = points_to
        self._log = log = names.log
        self.resolver = CallResolver(names, points_to, torch)
        self.escapes = Escapes(names, points_to, self.resolver, torch)
        self._callers = memoized(log, self._find_callers)
        self._found = memoized(log, self._find)
        self._namesakes = memoized(log, self._find_namesakes)
        self._sites: dict[str, dict[FunctionRef, list[Caller]]] = {}
        self._objects: dict[FunctionRef, list[Caller]] | None = None
        self._exchange: Exchange | None = None

    @property
    def tables(self) -> Tables:
        """What all modules say of one word."""
        return self.resolver.tables

    def callers(self, ref: FunctionRef) -> Callers:
        """The calls that can reach ``ref``, and whether it may be called by code that is not visible. As with ``calls_of``, who
        hands their places on notes them."""
        return self._callers.answer(ref)

    def _find_callers(self, ref: FunctionRef) -> Callers:
        return Callers(self.calls_of(ref), self.escapes.escapes(ref))

    def calls_of(self, ref: FunctionRef) -> tuple[Caller, ...]:
        """The calls that can reach ``ref``, by place. Another call before them in their function moves them: who hands their places
        on, or what depends on them, notes ``PLACES`` of ``ref``, or ``PLACED`` of the functions in which they stand."""
        return self._found.answer(ref)

    def _find(self, ref: FunctionRef) -> tuple[Caller, ...]:
        name = ref.qualname.rpartition(".")[2]
        facts = self._reader.header(ref)
        words = {name}
        if facts.owner and name == "__init__":
            owner = ClassRef(ref.path, facts.owner)
            words |= {"cls", "__class__"}
            words |= {klass.qualname.rpartition(".")[2] for klass in (owner, *self._classes.subclasses(owner))}
        self._log.read(keys.CALLS, ref.path, ref.qualname)  # for what ``_called`` and ``_called_objects`` say of it
        found = [caller for word in self.resolver.with_aliases(words) for caller in self._called(word).get(ref, ())]
        if facts.owner and name in TORCH.words["forward"]:
            seen = {id(caller.call) for caller in found}
            found += [caller for caller in self._called_objects().get(ref, ()) if id(caller.call) not in seen]
        return tuple(sorted(found, key=lambda caller: (caller.ref, caller.call.place, caller.call.callee)))

    def namesakes(self, ref: FunctionRef) -> tuple[Caller, ...]:
        """The calls of a method of that name on objects of which nothing is known, in the top package or the folder of ``ref``:
        where too many classes have such a method to say which is meant, each of them may be. For a ``forward``: the calls of
        objects that are known to be of its class by their other methods (``CallResolver.shown_by_methods``)."""
        return self._namesakes.answer(ref)

    def _find_namesakes(self, ref: FunctionRef) -> tuple[Caller, ...]:
        name = ref.qualname.rpartition(".")[2]
        owner = self._reader.header(ref).owner
        if owner and name in TORCH.words["forward"]:
            klass = ClassRef(ref.path, owner)
            own = {each.rpartition(".")[2] for each in self._reader.methods_of(klass)}
            found = {site for each in own for site in self._beside(klass, each)}
            return tuple(Caller(*each, False) for each in sorted(found, key=lambda each: (each[0], each[1].place)))
        if not owner or name in self.resolver.common:
            return ()
        near = [(site, call) for site, call in self.resolver.tables.calls(name) if self._names.layout.near(site.path, ref.path)]
        return tuple(
            Caller(site, call, False)
            for site, call in sorted(near, key=lambda each: (each[0], each[1].place))
            if self.resolver.meaning(site.path, site.qualname, call.callee) is None
            or self._is_of_base_outside(site, call.callee)
        )

    def _beside(self, klass: ClassRef, name: str) -> Iterator[Site]:
        """The calls of what is known to be of a class by the methods that are called on it alone, one of which is this."""
        resolver = self.resolver
        for site, call in resolver.tables.calls(name) if resolver.shows_class(name) else ():
            text = call.callee.rpartition(".")[0]
            if text and resolver.shown_by_methods(site.path, site.qualname, text) == klass:
                for ref, facts in resolver.around(site, text):
                    yield from ((ref, each) for each in facts.calls if each.callee == text)

    def _is_of_base_outside(self, site: FunctionRef, callee: str) -> bool:
        """Whether ``callee`` is a method of what only a base class that is not visible keeps (``self.model.preprocess`` below
        an engine of another package): which may be an object of the project."""
        me, _, rest = callee.partition(".")
        attribute, dot, _ = rest.partition(".")
        owner = self._reader.header(site).owner
        if me != "self" or not dot or not owner:
            return False
        held = self._points_to.values(site.path, site.qualname, f"self.{attribute}")
        return all(isinstance(each, Outside) for each in held) and not self._classes.attr(ClassRef(site.path, owner), attribute)

    def share_through(self, exchange: Exchange) -> None:
        """See ``Project.share_through``."""
        self._exchange = exchange
        exchange.begin(_OBJECTS)

    def _called(self, word: str) -> dict[FunctionRef, list[Caller]]:
        """What the calls that end in ``word`` reach."""
        found = self._sites.get(word)
        if found is None:
            found = self._sites[word] = {}
            with self._log.untracked():
                sites = self.resolver.tables.calls(word)
                exchange = self._exchange if len(sites) >= _MANY_SITES else None
                plain: _Plain | None = exchange.received(word) if exchange is not None else None
                if plain is None:
                    reached = enumerate(map(self.reached, sites))
                    plain = [(place, each.certain, _plain(each.refs)) for place, each in reached if each.refs]
                    if exchange is not None:
                        exchange.publish(word, plain)
                for place, certain, refs in plain:
                    for path, qualname in refs:
                        found.setdefault(FunctionRef(path, qualname), []).append(Caller(*sites[place], certain))
        return found

    def reached(self, site: Site) -> Callees:
        """What a call reaches, for the tables of all calls: a firewall of the dependency log."""
        ref, call = site
        self._log.reads = []
        keywords = call.keywords
        found = self.resolver.meaning(ref.path, ref.qualname, call.callee)
        if found is None:
            found = self.resolver.by_shape(ref.path, call.callee, keywords)
        if self._log.on:
            names = (ref.path, ref.qualname, call.callee, *keywords)
            values = [part for each in found.refs for part in each[:2]]
            self._log.firewall(keys.SITE, self._log.reads, names, ["certain" if found.certain else "", *values])
        return found

    def object_reached(self, site: Site) -> list[FunctionRef]:
        """The ``forward`` or ``__call__`` that a call of an object certainly reaches, as ``reached`` does."""
        ref, call = site
        self._log.reads = []
        callees = self.resolver.meaning(ref.path, ref.qualname, call.callee)
        certain = callees.refs if callees is not None and callees.certain else ()
        found = [each for each in certain if each.qualname.endswith(_FORWARDS)]
        if self._log.on:
            values = [part for each in found for part in each[:2]]
            self._log.firewall(keys.OBJECT, self._log.reads, (ref.path, ref.qualname, call.callee), values)
        return found

    def _called_objects(self) -> dict[FunctionRef, list[Caller]]:
        """The calls of objects (``self.model(x)``) by the ``forward`` or ``__call__`` that they reach."""
        if self._objects is None:
            self._objects = {}
            with self._log.untracked():
                sites = [site for each in self.resolver.tables.calls_of_objects().values() for site in each]
                self._log.firewall(keys.OBJECTS, (), (), self.resolver.tables.all_forms())
                for place, _, refs in self._reached_by(sites):
                    for path, qualname in refs:
                        self._objects.setdefault(FunctionRef(path, qualname), []).append(Caller(*sites[place], True))
        return self._objects

    def _reached_by(self, sites: Sequence[Site]) -> _Plain:
        """Of calls that may be of objects those that are, each with what it reaches."""

        def reached(places: Iterable[int]) -> _Plain:
            return [(place, True, _plain(refs)) for place in places if (refs := self.object_reached(sites[place]))]

        if self._exchange is None:
            return reached(range(len(sites)))
        # Files in one folder use the same classes.
        order = sorted(range(len(sites)), key=lambda place: sites[place][0].path)
        return sorted(row for rows in self._exchange.share_out(_OBJECTS, order, reached) for row in rows)


def _plain(refs: Iterable[FunctionRef]) -> list[tuple[str, str]]:
    return [(ref.path, ref.qualname) for ref in refs]
