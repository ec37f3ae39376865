"""From a call to the functions of the project that it can reach: by what its text can be, else by the name of the method."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from torchmemlint.index import keys
from torchmemlint.index.dependency_log import MISSING, memoized
from torchmemlint.index.edges import Callees
from torchmemlint.index.fact_words import ParamKind
from torchmemlint.index.facts import CallFact, FunctionFacts
from torchmemlint.index.names import Names
from torchmemlint.index.points_to import Instance, Method, PointsTo, Value
from torchmemlint.index.references import TOP, ClassRef, FunctionRef, Outside
from torchmemlint.index.tables import Tables, last_name
from torchmemlint.torch_facts import TORCH, TorchFacts

_BY_NAME = 5
"""A method of an unknown object is taken for the project's when at most so many unrelated classes of it define it."""

_MAX_ALIASES = 60
"""Names by which a function goes, beyond its own, that are followed."""

_KEPT = 500
"""Functions whose calls are kept by what they are called on: what asks for them asks for those of one class after the other."""

_OUTSIDE = Callees((), True)
_UNKNOWN = Callees((), False)


class CallResolver:
    """Resolves calls; everything is worked out when it is asked for, and cached."""

    def __init__(self, names: Names, points_to: PointsTo, torch: TorchFacts) -> None:
        self._names = names
        self._reader = names.reader
        self._classes = names.classes
        self._points_to = points_to
        self._log = log = names.log
        self._named = memoized(log, self._named_anywhere)
        self._named_near = memoized(log, self._find_named_near)
        self._callees = memoized(log, self._resolve)
        self._overridden = memoized(log, self._is_always_overridden)
        self._by_receiver: dict[FunctionRef, dict[str, list[CallFact]]] = {}
        self.common = _methods_of_everything(torch)
        """Names of methods that show nothing about an object."""

    @cached_property
    def tables(self) -> Tables:
        """What all modules say of one word."""
        return Tables(self._reader.modules, self._log)

    def link(self) -> Tables:
        """As ``FactReader.link``."""
        return self.tables

    def callees(self, path: str, qualname: str, callee: str, keywords: tuple[str, ...]) -> Callees:
        """The functions of the project that a call of ``callee`` with these keywords can reach in the function ``qualname`` of
        ``path``."""
        found = self.meaning(path, qualname, callee)
        return self.by_shape(path, callee, keywords) if found is None else found

    def meaning(self, path: str, qualname: str, callee: str) -> Callees | None:
        """The functions that a call of ``callee`` reaches by what ``callee`` can be; None for a method of an unknown object."""
        if self._is_outside(path, qualname, callee):
            return _OUTSIDE
        key = (path, qualname, callee)
        found = self._callees.known(key)
        if found is MISSING:
            log = self._log
            around, log.reads = log.reads, []
            try:
                found = self._resolve(key)
            finally:
                reads, log.reads = log.reads, around
            if found is None:
                log.reads += reads
            else:
                self._callees.put(key, found, log.node(reads))
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
        """What ``callee`` means; None for a method of an unknown object."""
        path, qualname, callee = key
        values = self._points_to.values_at(key)
        refs = dict.fromkeys(ref for value in values for ref in self.targets(value))
        receiver, dot, name = callee.rpartition(".")
        if receiver == "self" and qualname.endswith(f".{name}"):
            refs = self._without_replaced(FunctionRef(path, qualname), name, refs)
        if refs:
            return Callees(tuple(refs), True)
        if dot and name not in self.common and self.tables.methods(name):
            below = self._below_outside(self._points_to.values(path, qualname, receiver), name)
            if below.refs:
                return below
        if values:
            return _OUTSIDE
        if not dot or name in self.common or (name.startswith("__") and name.endswith("__")):
            return _UNKNOWN
        if receiver and self._points_to.values(path, qualname, receiver):
            return _UNKNOWN  # the receiver is known, and has no such visible method
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

    def by_shape(self, path: str, callee: str, keywords: tuple[str, ...]) -> Callees:
        """The methods that a call on an unknown object can mean, by the name and the keywords that it gives."""
        name = last_name(callee)
        return Callees(self.by_name(name, self._names.layout.top_package(path), path, frozenset(keywords)), False)

    def by_name(self, name: str, top: str, path: str = "", keywords: frozenset[str] = frozenset()) -> tuple[FunctionRef, ...]:
        """The methods that ``name`` can mean on an unknown object in the top package ``top``, whose own classes go first.

        Those that take the ``keywords`` of the call are meant before others. Where too many unrelated classes have such a
        method, those that the file at ``path`` imports are meant, else those of its folder; none when these are too many, too.
        """
        found = self._named.answer((name, top, keywords))
        return self._named_near.answer((name, top, path, keywords)) if found is None else found

    def shown_by_methods(self, path: str, qualname: str, text: str) -> ClassRef | None:
        """The class of an object, of which nothing else is known, by the methods that are called on it in the function, and on an
        attribute in its class (``self.decoder.setup_caches()``): the one class that has them."""
        if self._points_to.values(path, qualname, text):
            return None
        names: dict[str, CallFact] = {}
        for ref, facts in self.around(FunctionRef(path, qualname), text):
            for call in self._calls_on(ref, facts).get(text, ()):
                name = call.callee.rpartition(".")[2]
                if self.shows_class(name):
                    names.setdefault(name, call)
        shown = [self.by_shape(path, call.callee, call.keywords).refs for call in names.values()]
        if not shown or len(shown[0]) != 1:
            return None
        (method,) = shown[0]
        owner = self._reader.header(method).owner
        klass = ClassRef(method.path, owner)
        if not owner or self._classes.subclasses(klass):
            return None
        return klass if all(self._classes.method(klass, name) is not None for name in names) else None

    def _calls_on(self, ref: FunctionRef, facts: FunctionFacts) -> dict[str, list[CallFact]]:
        """The calls of methods in a function, by what they are called on: each attribute of a class asks this of each of its methods."""
        found = self._by_receiver.get(ref)
        if found is None:
            if len(self._by_receiver) == _KEPT:
                self._by_receiver.clear()
            found = self._by_receiver[ref] = {}
            for call in facts.calls:
                receiver, dot, _ = call.callee.rpartition(".")
                if dot:
                    found.setdefault(receiver, []).append(call)
        return found

    def shows_class(self, name: str) -> bool:
        """Whether the name of a method may show an object's class."""
        return name not in self.common and not name.startswith("__")

    def around(self, ref: FunctionRef, text: str) -> Iterator[tuple[FunctionRef, FunctionFacts]]:
        """The functions in which a text is the same object as in this one: the methods of its class for an attribute of ``self``."""
        head = self._reader.head(ref.path, ref.qualname)
        if head is None:
            return
        of_self = bool(head.owner) and text.startswith("self.")
        for qualname in self._reader.methods_of(ClassRef(ref.path, head.owner)) if of_self else (ref.qualname,):
            self._log.read(keys.WHOLE, ref.path, qualname)
            facts = self._reader.facts_of(FunctionRef(ref.path, qualname))
            assert isinstance(facts, FunctionFacts)
            yield FunctionRef(ref.path, qualname), facts

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
        """Whether the class's method ``name`` has parameters of these names; True where it is no visible method."""
        method = self._classes.method(klass, name)
        if method is None:
            return True
        params = self._reader.header(method).params
        return any(param.kind is ParamKind.VAR_KEYWORD for param in params) or keywords <= {param.name for param in params}

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
        found = {method for ref in classes for value in self._points_to.attribute(ref, name) for method in self.targets(value)}
        return tuple(sorted(found))

    def targets(self, value: Value) -> Iterator[FunctionRef]:
        """The functions that a call of ``value`` can run, overrides included."""
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
            for name in sorted(TORCH.words["forward"]):
                method = self._classes.method(value.klass, name)
                if method is not None:
                    yield method
                    if not value.exact:
                        yield from self._classes.overrides(value.klass, name)
                    break

    def _stood_for(self, ref: FunctionRef) -> tuple[FunctionRef, ...]:
        """The methods that an abstract one which no visible class overrides stands for: those of its name, as with a
        protocol."""
        facts = self._reader.header(ref)
        name = ref.qualname.rpartition(".")[2]
        if not facts.owner or name in self.common or name.startswith("__"):
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

        if self._log.any(lambda: self._classes.subclasses(klass), has_it):
            return False
        if self.tables.is_value(own, {each.path for each in (klass, *self._classes.subclasses(klass))}):
            return False
        return not any(self.tables.calls(word) for word in self.with_aliases([own]))

    def with_aliases(self, words: Iterable[str]) -> list[str]:
        """The words, and what else is called what they are, in the whole project."""
        seen = dict.fromkeys(sorted(words))
        queue = list(seen)
        most = len(seen) + _MAX_ALIASES
        while queue:
            for alias in sorted(self.tables.aliases(queue.pop())):
                if alias not in seen and len(seen) < most:
                    seen[alias] = None
                    queue.append(alias)
        return list(seen)


def _methods_of_everything(torch: TorchFacts) -> frozenset[str]:
    """Names of methods that containers, strings, tensors, modules and optimizers have: they show nothing about an object."""
    found = {name for kind in (list, dict, set, str, bytes, tuple, float) for name in dir(kind)}
    return torch.words["methods-of-everything"].union(found, torch.methods, torch.module_methods)
