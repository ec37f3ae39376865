"""Who calls whom: the functions a call can reach, and the calls that can reach a function.

Both answers are worked out when they are asked for. Callers are looked for among the calls that end in the function's name
(or an alias of it), so that a question costs as much as there are such calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from torchmemlint.index import keys
from torchmemlint.index.evidence import Evidence, Instance, Method, Value
from torchmemlint.index.facts import CallFact, FunctionFacts
from torchmemlint.index.names import Names
from torchmemlint.index.quiet import is_quiet
from torchmemlint.index.reader import FactReader, Head
from torchmemlint.index.references import TOP, ClassRef, FunctionRef, Outside
from torchmemlint.index.tables import Site, Tables, last_name
from torchmemlint.index.trail import MISSING, answered
from torchmemlint.torch_facts import TorchFacts

if TYPE_CHECKING:
    from torchmemlint.board import Board

_OBJECTS = "calls of objects"
"""What processes share out (see ``Project.meet``)."""
_MANY_SITES = 20
"""Calls that end in one word, from which on it pays to tell others what they reach."""

_BY_NAME = 5
"""A method of an unknown object is taken for the project's when at most so many unrelated classes of it define it."""

_MAX_ALIASES = 60
"""Names by which a function goes, beyond its own, that are followed."""


@dataclass(frozen=True, slots=True)
class Callees:
    """The functions of the project that a call can reach. ``certain`` is False where only a method's name matched."""

    refs: tuple[FunctionRef, ...]
    certain: bool


_Told = list[tuple[int, bool, list[tuple[str, str]]]]
"""Calls, by their places among some that all processes have in the same order: whether it is certain what each reaches, and that."""

_OUTSIDE = Callees((), True)
_UNKNOWN = Callees((), False)


@dataclass(frozen=True, slots=True)
class Caller:
    """One call of a function: in which function it stands."""

    ref: FunctionRef
    call: CallFact
    certain: bool


@dataclass(frozen=True, slots=True)
class Callers:
    """All calls of a function, sorted by place. ``escapes``: it is also handed on as a value, so that others may call it."""

    calls: tuple[Caller, ...]
    escapes: bool


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Decorators that leave a function to be called by its name alone.
_INERT_DECORATORS = _words(
    """staticmethod classmethod abstractmethod wraps lru_cache cache overload override final contextmanager asynccontextmanager
    no_grad inference_mode enable_grad set_grad_enabled autocast custom_fwd custom_bwd script export ignore unused compile
    disable script_method rank_zero_only deprecated typechecked jit njit experimental torch_required singledispatch
    record_function replace_return_docstrings add_start_docstrings add_start_docstrings_to_model_forward
    add_end_docstrings can_return_tuple check_model_inputs auto_docstring requires_backends retry synchronized jaxtyped
    beartype type_check"""
)


class Calls:
    """The call graph of a project."""

    def __init__(self, names: Names, evidence: Evidence, torch: TorchFacts) -> None:
        self._names = names
        self._reader = names.reader
        self._classes = names.classes
        self._evidence = evidence
        self._trail = trail = names.trail
        self._named = answered(trail, self._named_anywhere)
        self._named_near = answered(trail, self._find_named_near)
        self._callees = answered(trail, self._resolve)
        self._callers = answered(trail, self._find_callers)
        self._found = answered(trail, self._find)
        self._namesakes = answered(trail, self._find_namesakes)
        self._handed = answered(trail, self._find_handed)
        self._overridden = answered(trail, self._is_always_overridden)
        self._sites: dict[str, dict[FunctionRef, list[Caller]]] = {}
        self._objects: dict[FunctionRef, list[Caller]] | None = None
        self._board: Board | None = None
        self._common = _methods_of_everything(torch)
        self._torch = torch

    @cached_property
    def tables(self) -> Tables:
        """What all modules say of one word."""
        return Tables(self._reader.modules, self._trail)

    def link(self) -> Tables:
        """As ``Names.link``."""
        return self.tables

    # --- from a call to functions

    def callees(self, path: str, qualname: str, callee: str, keywords: tuple[str, ...]) -> Callees:
        """The functions of the project that a call of ``callee`` with these keywords can reach in the function ``qualname`` of
        ``path``."""
        found = self._meaning(path, qualname, callee)
        return self._by_shape(path, callee, keywords) if found is None else found

    def _meaning(self, path: str, qualname: str, callee: str) -> Callees | None:
        """``_resolve``, remembered where it has an answer."""
        if self._is_outside(path, qualname, callee):
            return _OUTSIDE
        key = (path, qualname, callee)
        found = self._callees.known(key)
        if found is MISSING:
            trail = self._trail
            around, trail.page = trail.page, []
            try:
                found = self._resolve(key)
            finally:
                page, trail.page = trail.page, around
            if found is None:
                trail.page += page
            else:
                self._callees.put(key, found, trail.node(page))
        return found

    def _is_outside(self, path: str, qualname: str, callee: str) -> bool:
        """Whether ``callee`` is a name, or an attribute of one, that the module at ``path`` has from outside the project."""
        if "(" in callee or "[" in callee:
            return False
        head = callee.partition(".")[0]
        known = isinstance(self._names.lookup(path, head), Outside)
        if not known or qualname == TOP:
            return known
        facts = self._reader.scope(path, qualname)
        while facts is not None and head not in facts.locals:
            facts = self._reader.scope(path, facts.parent) if facts.parent else None
        return facts is None

    def _resolve(self, key: tuple[str, str, str]) -> Callees | None:
        """What ``callee`` means; None for a method of an object of which nothing is known."""
        path, qualname, callee = key
        values = self._evidence.values_at(key)
        refs = dict.fromkeys(ref for value in values for ref in self._targets(value))
        receiver, dot, name = callee.rpartition(".")
        if receiver == "self" and qualname.endswith(f".{name}"):
            refs = self._without_replaced(FunctionRef(path, qualname), name, refs)
        if refs:
            return Callees(tuple(refs), True)
        if dot and name not in self._common and self.tables.methods(name):
            below = self._below_outside(self._evidence.values(path, qualname, receiver), name)
            if below.refs:
                return below
        if values:
            return _OUTSIDE
        if not dot or name in self._common or (name.startswith("__") and name.endswith("__")):
            return _UNKNOWN
        if receiver and self._evidence.values(path, qualname, receiver):
            return _UNKNOWN  # the receiver is known, and has no such method in sight
        return None

    def _without_replaced(self, method: FunctionRef, name: str, refs: dict[FunctionRef, None]) -> dict[FunctionRef, None]:
        """What a method may reach by a call of itself (``self.forward(x)`` in ``forward``): no override that never calls the
        method of its base, for then an object of that class does not come here."""
        if method not in refs or len(refs) == 1:
            return refs
        on_others = {site for site, call in self.tables.calls(name) if call.callee != f"self.{name}"}
        return {ref: None for ref in refs if ref == method or ref in on_others}

    def _below_outside(self, receivers: Iterable[Value], name: str) -> Callees:
        """The methods ``name`` of the project's classes below an outside class that the receiver is of (``torch.nn.Module``,
        by its annotation): what the outside class does not have, a class below it has. None where too many unrelated have it."""
        outside = {each.klass for each in receivers if isinstance(each, Instance) and not each.exact}
        if not outside:
            return Callees((), False)
        classes = {ref for ref in self.tables.methods(name) if not outside.isdisjoint(self._classes.mro(ref))}
        return Callees(self._methods_of(classes, name) if self._are_few(classes) else (), self._are_few(classes, 1))

    def _by_shape(self, path: str, callee: str, keywords: tuple[str, ...]) -> Callees:
        """The methods that a call on an unknown object can mean, by the name and the keywords that it gives."""
        name = last_name(callee)
        return Callees(self._by_name(name, self._names.layout.top_package(path), path, frozenset(keywords)), False)

    def _by_name(self, name: str, top: str, path: str = "", keywords: frozenset[str] = frozenset()) -> tuple[FunctionRef, ...]:
        """The methods that ``name`` can mean on an unknown object in the top package ``top``, whose own classes go first.

        Those that take the ``keywords`` of the call are meant before others. Where too many unrelated classes have such a
        method, those that the file at ``path`` imports are meant, else those of its folder; none when these are too many, too.
        """
        found = self._named.answer((name, top, keywords))
        return self._named_near.answer((name, top, path, keywords)) if found is None else found

    def _meant(self, name: str, top: str, keywords: frozenset[str]) -> set[ClassRef]:
        everywhere = self.tables.methods(name)
        classes = {ref for ref in everywhere if self._names.layout.top_package(ref.path) == top} or set(everywhere)
        if keywords:
            classes = {ref for ref in classes if self._takes(ref, name, keywords)} or classes
        return classes

    def _named_anywhere(self, key: tuple[str, str, frozenset[str]]) -> tuple[FunctionRef, ...] | None:
        classes = self._meant(*key)
        return self._methods_of(classes, key[0]) if self._are_few(classes) else None

    def _find_named_near(self, key: tuple[str, str, str, frozenset[str]]) -> tuple[FunctionRef, ...]:
        name, top, path, keywords = key
        near = self._nearest(self._meant(name, top, keywords), path)
        return self._methods_of(near, name) if self._are_few(near) else ()

    def _takes(self, klass: ClassRef, name: str, keywords: frozenset[str]) -> bool:
        """Whether the class's method ``name`` has parameters of these names; True where it is no method in sight."""
        method = self._classes.method(klass, name)
        if method is None:
            return True
        params = self._reader.header(method).params
        return any(param.kind == "**" for param in params) or keywords <= {param.name for param in params}

    def _are_few(self, classes: set[ClassRef], most: int = _BY_NAME) -> bool:
        """Whether these classes are at most so many unrelated groups: they are related through the base that has the method first."""
        families: set[ClassRef | str] = set()
        for ref in classes:
            families.add(next(base for base in reversed(self._classes.mro(ref)) if base in classes))
            if len(families) > most:
                return False
        return True

    def _nearest(self, classes: set[ClassRef], path: str) -> set[ClassRef]:
        """Of these classes, those that a file defines or imports, else those defined in its folder."""
        if not path:
            return set()
        named = {self._names.defined(path, name) for name, _ in self._reader.imports(path)}
        near = {ref for ref in classes if ref.path == path or ref in named}
        folder = path.rpartition("/")[0]
        return near or {ref for ref in classes if ref.path.rpartition("/")[0] == folder}

    def _methods_of(self, classes: set[ClassRef], name: str) -> tuple[FunctionRef, ...]:
        found = {method for ref in classes for value in self._evidence.attribute(ref, name) for method in self._targets(value)}
        return tuple(sorted(found))

    def _targets(self, value: Value) -> Iterator[FunctionRef]:
        if isinstance(value, FunctionRef):
            yield value
        elif isinstance(value, Method):
            overrides = () if value.exact else self._classes.overrides(value.klass, value.function.qualname.rpartition(".")[2])
            if not overrides or not self._overridden.answer((value.klass, value.function)):
                yield value.function
            yield from overrides or self._stood_for(value.function)
        elif isinstance(value, ClassRef):
            method = self._classes.method(value, "__init__")
            if method is not None:
                yield method
        elif isinstance(value, Instance) and isinstance(value.klass, ClassRef):
            for name in ("__call__", "forward"):
                method = self._classes.method(value.klass, name)
                if method is not None:
                    yield method
                    if not value.exact:
                        yield from self._classes.overrides(value.klass, name)
                    break

    def _stood_for(self, ref: FunctionRef) -> tuple[FunctionRef, ...]:
        """The methods that an abstract one which nothing in sight overrides stands for: those of its name, as with a protocol."""
        facts = self._reader.header(ref)
        name = ref.qualname.rpartition(".")[2]
        if not facts.owner or name in self._common or name.startswith("__"):
            return ()
        protocol = "typing.Protocol" in self._classes.mro(ClassRef(ref.path, facts.owner))
        if not protocol and all(use.callee.rpartition(".")[2] != "abstractmethod" for use in facts.decorators):
            return ()
        classes = {each for each in self.tables.methods(name) if self._names.layout.near(each.path, ref.path)}
        classes -= {ClassRef(ref.path, facts.owner)}
        found = classes if self._are_few(classes) else set()
        return tuple(
            sorted(FunctionRef(each.path, f"{each.qualname}.{name}") for each in found if self._reader.has_method(each, name))
        )

    def _is_always_overridden(self, key: tuple[ClassRef, FunctionRef]) -> bool:
        """Whether no object runs this method of its base but by ``super()``: each class below has its own, and nothing in
        sight constructs the class itself, or has it as a value (``loader=Base``) for others to construct."""
        klass, function = key
        name, own = function.qualname.rpartition(".")[2], klass.qualname.rpartition(".")[2]

        def has_it(below: ClassRef) -> bool:
            return klass in self._classes.mro(below) and self._classes.method(below, name) == function

        if self._trail.any(lambda: self._classes.subclasses(klass), has_it):
            return False
        if self.tables.is_value(own, {each.path for each in (klass, *self._classes.subclasses(klass))}):
            return False
        return not any(self.tables.calls(word) for word in self._with_aliases([own]))

    # --- from a function to its calls

    def callers(self, ref: FunctionRef) -> Callers:
        """The calls that can reach ``ref``, and whether it may be called by what is not in sight. As with ``calls_of``, who hands
        their places on notes them."""
        return self._callers.answer(ref)

    def _find_callers(self, ref: FunctionRef) -> Callers:
        return Callers(self.calls_of(ref), self._escapes(ref))

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
        if self._trail.on:  # for what ``_called`` and ``_called_objects`` say of it
            self._trail.page.append((keys.CALLS, ref.path, ref.qualname))
        found = [caller for word in self._with_aliases(words) for caller in self._called(word).get(ref, ())]
        if facts.owner and name in ("forward", "__call__"):
            seen = {id(caller.call) for caller in found}
            found += [caller for caller in self._called_objects().get(ref, ()) if id(caller.call) not in seen]
        return tuple(sorted(found, key=lambda caller: (caller.ref, caller.call.place, caller.call.callee)))

    def namesakes(self, ref: FunctionRef) -> tuple[Caller, ...]:
        """The calls of a method of that name on objects of which nothing is known, in the top package or the folder of ``ref``:
        where too many classes have such a method to say which is meant, each of them may be."""
        return self._namesakes.answer(ref)

    def _find_namesakes(self, ref: FunctionRef) -> tuple[Caller, ...]:
        name = ref.qualname.rpartition(".")[2]
        if not self._reader.header(ref).owner or name in self._common:
            return ()
        near = [(site, call) for site, call in self.tables.calls(name) if self._names.layout.near(site.path, ref.path)]
        return tuple(
            Caller(site, call, False)
            for site, call in sorted(near, key=lambda each: (each[0], each[1].place))
            if self._meaning(site.path, site.qualname, call.callee) is None or self._is_of_base_outside(site, call.callee)
        )

    def _is_of_base_outside(self, site: FunctionRef, callee: str) -> bool:
        """Whether ``callee`` is a method of what only a base class out of sight keeps (``self.model.preprocess`` below an engine of
        another package): which may be an object of the project."""
        me, _, rest = callee.partition(".")
        attribute, dot, _ = rest.partition(".")
        owner = self._reader.header(site).owner
        if me != "self" or not dot or not owner:
            return False
        held = self._evidence.values(site.path, site.qualname, f"self.{attribute}")
        return all(isinstance(each, Outside) for each in held) and not self._classes.attr(ClassRef(site.path, owner), attribute)

    def meet(self, board: Board) -> None:
        """See ``Project.meet``."""
        self._board = board
        board.begin(_OBJECTS)

    def _called(self, word: str) -> dict[FunctionRef, list[Caller]]:
        """What the calls that end in ``word`` reach."""
        found = self._sites.get(word)
        if found is None:
            found = self._sites[word] = {}
            with self._trail.apart():
                sites = self.tables.calls(word)
                board = self._board if len(sites) >= _MANY_SITES else None
                told: _Told | None = board.told(word) if board is not None else None
                if told is None:
                    reached = enumerate(map(self.reached, sites))
                    told = [(place, each.certain, _plain(each.refs)) for place, each in reached if each.refs]
                    if board is not None:
                        board.tell(word, told)
                for place, certain, refs in told:
                    for path, qualname in refs:
                        found.setdefault(FunctionRef(path, qualname), []).append(Caller(*sites[place], certain))
        return found

    def reached(self, site: Site) -> Callees:
        """What a call reaches, for the tables of all calls: a root of the trail."""
        ref, call = site
        self._trail.page = []
        keywords = call.keywords
        found = self._meaning(ref.path, ref.qualname, call.callee)
        if found is None:
            found = self._by_shape(ref.path, call.callee, keywords)
        if self._trail.on:
            names = (ref.path, ref.qualname, call.callee, *keywords)
            values = [part for each in found.refs for part in each[:2]]
            self._trail.root(keys.SITE, self._trail.page, names, ["certain" if found.certain else "", *values])
        return found

    def object_reached(self, site: Site) -> list[FunctionRef]:
        """The ``forward`` or ``__call__`` that a call of an object certainly reaches, as ``reached`` does."""
        ref, call = site
        self._trail.page = []
        callees = self._meaning(ref.path, ref.qualname, call.callee)
        certain = callees.refs if callees is not None and callees.certain else ()
        found = [each for each in certain if each.qualname.endswith((".forward", ".__call__"))]
        if self._trail.on:
            values = [part for each in found for part in each[:2]]
            self._trail.root(keys.OBJECT, self._trail.page, (ref.path, ref.qualname, call.callee), values)
        return found

    def _with_aliases(self, words: Iterable[str]) -> list[str]:
        seen = dict.fromkeys(sorted(words))
        queue = list(seen)
        most = len(seen) + _MAX_ALIASES
        while queue:
            for alias in sorted(self.tables.aliases(queue.pop())):
                if alias not in seen and len(seen) < most:
                    seen[alias] = None
                    queue.append(alias)
        return list(seen)

    def _called_objects(self) -> dict[FunctionRef, list[Caller]]:
        """The calls of objects (``self.model(x)``) by the ``forward`` or ``__call__`` that they reach."""
        if self._objects is None:
            self._objects = {}
            with self._trail.apart():
                sites = [site for each in self.tables.calls_of_objects().values() for site in each]
                self._trail.root(keys.OBJECTS, (), (), self.tables.all_forms())
                for place, _, refs in self._reached_by(sites):
                    for path, qualname in refs:
                        self._objects.setdefault(FunctionRef(path, qualname), []).append(Caller(*sites[place], True))
        return self._objects

    def _reached_by(self, sites: Sequence[Site]) -> _Told:
        """Of calls that may be of objects those that are, each with what it reaches."""

        def reached(places: Iterable[int]) -> _Told:
            return [(place, True, _plain(refs)) for place in places if (refs := self.object_reached(sites[place]))]

        if self._board is None:
            return reached(range(len(sites)))
        # Files that stand together speak of the same classes.
        order = sorted(range(len(sites)), key=lambda place: sites[place][0].path)
        return sorted(row for rows in self._board.share_out(_OBJECTS, order, reached) for row in rows)

    def _escapes(self, ref: FunctionRef) -> bool:
        name = ref.qualname.rpartition(".")[2]
        facts = self._reader.header(ref)
        if facts.owner and (self.tables.is_looked_up(name) or _called_implicitly(name) or self.tables.is_put_together(name)):
            return True
        if any(self._registers(ref.path, facts, use.callee) for use in facts.decorators):
            return True
        for word in self._with_aliases([name]):
            for reader, text in self.tables.reads(word):
                values = self._evidence.values(reader.path, reader.qualname, text)
                if any(ref in self._targets(value) for value in values if not isinstance(value, Instance | ClassRef)):
                    return True
                if not values and "." in text and facts.owner and self._might_mean(reader, text, ref):
                    return True
        return False

    def handed(self, ref: FunctionRef) -> tuple[Caller, ...]:
        """The calls that run a function which they are given (``pool.map(score, batches)``), where all that is done with ``ref`` as
        a value is to give it to such calls; none where it may be called by anything else."""
        return self._handed.answer(ref)

    def _find_handed(self, ref: FunctionRef) -> tuple[Caller, ...]:
        name = ref.qualname.rpartition(".")[2]
        facts = self._reader.header(ref)
        if facts.owner and (self.tables.is_looked_up(name) or _called_implicitly(name) or self.tables.is_put_together(name)):
            return ()
        if any(self._registers(ref.path, facts, use.callee) for use in facts.decorators):
            return ()
        found: list[Caller] = []
        for word in self._with_aliases([name]):
            for reader, text in self.tables.reads(word):
                values = self._evidence.values(reader.path, reader.qualname, text)
                meant = any(ref in self._targets(value) for value in values if not isinstance(value, Instance | ClassRef))
                if not meant and (values or "." not in text or not facts.owner or not self._might_mean(reader, text, ref)):
                    continue
                runs = self._given_to_runners(reader, text) if meant else ()
                if not runs:
                    return ()
                found += runs
        return tuple(sorted(set(found), key=lambda caller: (caller.ref, caller.call.place)))

    def _given_to_runners(self, reader: FunctionRef, text: str) -> tuple[Caller, ...]:
        """The calls in ``reader`` that are given ``text``, or a ``partial`` of it; none where one is not known to run it."""
        if self._trail.on:
            self._trail.page.append((keys.WHOLE, reader.path, reader.qualname))
        facts = self._reader.facts_of(reader)
        assert isinstance(facts, FunctionFacts)
        given = [call for call in facts.calls if any(arg.name == text for arg in call.args)]
        runs: list[Caller] = []
        for call in given:
            values = self._evidence.values(reader.path, reader.qualname, call.callee)
            if values == (Outside("functools.partial"),):
                names = {f"{call.callee}()", *(name for name, bound in facts.bound if bound == f"{call.callee}()")}
                takers = [each for each in facts.calls if any(arg.name in names for arg in each.args)]
                if not takers or not all(self._runs_its_argument(reader, each) for each in takers):
                    return ()
                runs += [Caller(reader, each, True) for each in takers]
            elif self._runs_its_argument(reader, call):
                runs.append(Caller(reader, call, True))
            else:
                return ()
        return tuple(runs)

    def _runs_its_argument(self, reader: FunctionRef, call: CallFact) -> bool:
        values = self._evidence.values(reader.path, reader.qualname, call.callee)
        if values:
            return all(isinstance(value, Outside) and value.name in self._torch.runners for value in values)
        receiver, _, name = call.callee.rpartition(".")
        return bool(receiver) and name in self._torch.runner_methods and not call.deferred

    def _might_mean(self, reader: FunctionRef, text: str, ref: FunctionRef) -> bool:
        """Whether ``text``, an attribute of an unknown object, may be the project's method ``ref`` taken as a value. Where too
        many classes of its package have such a method to say which is meant, each of them may be."""
        receiver, _, name = text.rpartition(".")
        if name in self._common or self._evidence.values(reader.path, reader.qualname, receiver):
            return False
        top = self._names.layout.top_package(reader.path)
        if self._names.layout.top_package(ref.path) == top and not _is_property(self._reader.header(ref)):
            return True
        return bool(self._by_name(name, top))

    def _registers(self, path: str, facts: Head, callee: str) -> bool:
        """Whether a decorator may hand the function to code that is not in sight."""
        if callee.rpartition(".")[2] in _INERT_DECORATORS:
            return False
        values = self._evidence.values(path, facts.parent or TOP, callee)
        if not values:
            return True
        for value in values:
            if isinstance(value, FunctionRef):
                if not self._reader.flow(value).wraps and not self._calls_its_argument(value):
                    return True
            elif isinstance(value, Method) or (isinstance(value, Outside) and not is_quiet(value.name)):
                return True
        return False

    def _calls_its_argument(self, decorator: FunctionRef) -> bool:
        return any(True for _ in argument_calls(self._reader, decorator))


def argument_calls(reader: FactReader, decorator: FunctionRef) -> Iterator[tuple[FunctionRef, CallFact]]:
    """Where a decorator's wrapper runs what it wraps: calls, in its inner functions, of a parameter of a function around."""
    functions = reader.inside(decorator)
    for qualname, facts in functions.items():
        if not facts.parent and qualname != decorator.qualname:
            continue
        around: set[str] = set()
        outer = functions.get(facts.parent) if facts.parent else None
        while outer is not None:
            around |= {param.name for param in outer.params}
            outer = functions.get(outer.parent) if outer.parent else None
        for call in facts.calls:
            if call.callee in around and call.callee not in facts.locals:
                yield FunctionRef(decorator.path, qualname), call


def _plain(refs: Iterable[FunctionRef]) -> list[tuple[str, str]]:
    return [(ref.path, ref.qualname) for ref in refs]


def _is_property(facts: Head) -> bool:
    """Whether to read the attribute is to call the function."""
    return any(use.callee.rpartition(".")[2] in ("property", "cached_property") for use in facts.decorators)


def _called_implicitly(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in ("__init__", "__call__")


def _methods_of_everything(torch: TorchFacts) -> frozenset[str]:
    """Names of methods that containers, strings, tensors, modules and optimizers have: they tell nothing about an object."""
    found = {name for kind in (list, dict, set, str, bytes, tuple, float) for name in dir(kind)}
    found |= {"step", "close", "write", "read", "flush", "put", "run", "start", "item"}
    return frozenset(found | set(torch.methods) | set(torch.module_methods))
