"""Facts of modules, read so that the dependency log knows what was read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from torchmemlint.index import keys, views
from torchmemlint.index.dependency_log import DependencyLog
from torchmemlint.index.facts import AttrFact, CallableUse, ClassFacts, FunctionFacts, ModuleFacts, ParamFact
from torchmemlint.index.modules import Modules
from torchmemlint.index.references import ClassRef, FunctionRef

Value = TypeVar("Value")


class Head(Protocol):
    """What a function's header says, and where it stands: see ``FunctionFacts``."""

    @property
    def qualname(self) -> str: ...
    @property
    def owner(self) -> str: ...
    @property
    def parent(self) -> str: ...
    @property
    def params(self) -> tuple[ParamFact, ...]: ...
    @property
    def decorators(self) -> tuple[CallableUse, ...]: ...
    @property
    def is_async(self) -> bool: ...
    @property
    def is_generator(self) -> bool: ...
    @property
    def returns(self) -> str: ...


class HeadWithLocals(Head, Protocol):
    """A function's header, and its locals."""

    @property
    def locals(self) -> frozenset[str]: ...
    @property
    def bound(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def rebound(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def unsure(self) -> frozenset[str]: ...
    @property
    def constants(self) -> tuple[tuple[str, str], ...]: ...


class HeadWithReturns(Head, Protocol):
    """A function's header, what it returns, and which managers it holds."""

    @property
    def returned(self) -> tuple[CallableUse, ...]: ...
    @property
    def wraps(self) -> tuple[CallableUse, ...]: ...
    @property
    def yields(self) -> tuple[tuple[CallableUse, ...], ...]: ...
    @property
    def leaves(self) -> tuple[CallableUse, ...]: ...


class _OfModules(dict[str, Value]):
    """Something of each module, made of its facts when it is first asked for. Raises KeyError for what is no module."""

    def __init__(self, modules: Modules, make: Callable[[ModuleFacts], Value]) -> None:
        self._modules = modules
        self._make = make

    def __missing__(self, path: str) -> Value:
        found = self[path] = self._make(self._modules[path])
        return found


class FactReader:
    """Reads what modules say of functions and classes. Whatever is read is noted in the ``log``, so facts are read in no
    other way; but for the tables of all modules (``index.tables``), which are made of ``modules``."""

    def __init__(self, modules: Modules, log: DependencyLog) -> None:
        self.log = log
        self.modules = modules
        self.functions = _OfModules(modules, views.functions_of)
        self.classes = _OfModules(modules, views.classes_of)
        self.import_targets = _OfModules(modules, views.imports_of)
        self.star_imports = _OfModules(modules, views.star_imports)
        self.assigned = _OfModules(modules, views.assigned_of)
        self.acts = _OfModules(modules, views.acts)
        self.is_started = _OfModules(modules, views.is_started)
        self._owned = _OfModules(modules, views.methods_of)
        self._attrs: dict[ClassRef, dict[str, list[AttrFact]]] = {}
        self._tests: dict[str, bool] = {}

    def link(self) -> None:
        """Makes now what is made of modules when they are first looked at: processes that are forked from this one have it."""
        for made in (self.functions, self.classes, self.import_targets, self.star_imports, self.assigned):
            for path in self.modules:
                made[path]

    def head(self, path: str, qualname: str) -> Head | None:
        """A function's header; None where there is no such function."""
        self.log.read(keys.HEAD, path, qualname)
        return self.functions[path].get(qualname)

    def header(self, ref: FunctionRef) -> Head:
        """The header of a function that there is. Raises KeyError."""
        self.log.read(keys.HEAD, ref.path, ref.qualname)
        return self.functions[ref.path][ref.qualname]

    def scope(self, path: str, qualname: str) -> HeadWithLocals | None:
        """A function's header and locals; None where there is no such function."""
        self.log.read(keys.SCOPE, path, qualname)
        return self.functions[path].get(qualname)

    def flow(self, ref: FunctionRef) -> HeadWithReturns:
        """A function's header, and what it does to grad mode by itself. Raises KeyError."""
        self.log.read(keys.FLOW, ref.path, ref.qualname)
        return self.functions[ref.path][ref.qualname]

    def calls_backward(self, ref: FunctionRef) -> bool:
        """Whether a function back-propagates."""
        self.log.read(keys.BACKWARD, ref.path, ref.qualname)
        return views.calls_backward(self.functions[ref.path][ref.qualname])

    def inside(self, ref: FunctionRef) -> dict[str, FunctionFacts]:
        """A function and all that are inside it, by name, in the order of the file."""
        self.log.read(keys.INSIDE, ref.path, ref.qualname)
        return views.inside(self.functions[ref.path], ref.qualname)

    def methods_of(self, ref: ClassRef) -> tuple[str, ...]:
        """The qualified names of a class's own methods, in the order of the file, all definitions of each."""
        self.log.read(keys.OWN, ref.path, ref.qualname)
        return self._owned[ref.path].get(ref.qualname, ())

    def whole(self, path: str) -> ModuleFacts:
        """All facts of a module; the reader notes what of it. Raises KeyError."""
        return self.modules[path]

    def facts_of(self, ref: FunctionRef | ClassRef) -> FunctionFacts | ClassFacts:
        """All facts of a function or class; the reader notes them. Raises KeyError."""
        return self.classes[ref.path][ref.qualname] if isinstance(ref, ClassRef) else self.functions[ref.path][ref.qualname]

    def has_tests(self, path: str) -> bool:
        """Whether a module has unit tests, or what serves them."""
        self.log.read(keys.TESTS, path, "")
        found = self._tests.get(path)
        if found is None:
            found = self._tests[path] = views.has_tests(self.modules[path])
        return found

    def imports(self, path: str) -> tuple[tuple[str, str], ...]:
        """What a module imports."""
        self.log.read(keys.IMPORTS, path, "")
        return self.modules[path].imports

    def has_function(self, path: str, qualname: str) -> bool:
        self.log.read(keys.NAME, path, qualname)
        return qualname in self.functions[path]

    def has_class(self, path: str, qualname: str) -> bool:
        self.log.read(keys.NAME, path, qualname)
        return qualname in self.classes[path]

    def has_method(self, klass: ClassRef, name: str) -> bool:
        """Whether a class itself defines a method."""
        self.log.read(keys.MEMBER, klass, name)
        return f"{klass.qualname}.{name}" in self.functions[klass.path]

    def inner(self, scope: HeadWithLocals, path: str, name: str) -> FunctionRef | ClassRef | None:
        """The function or class of that name right inside a function, which was read as a ``scope``."""
        qualname = f"{scope.qualname}.{name}"
        if qualname in self.functions[path]:
            return FunctionRef(path, qualname)
        return ClassRef(path, qualname) if qualname in self.classes[path] else None

    def own_attrs(self, klass: ClassRef, name: str) -> Sequence[AttrFact]:
        """The assignments to an attribute in a class itself."""
        self.log.read(keys.MEMBER, klass, name)
        own = self._attrs.get(klass)
        if own is None:
            own = self._attrs[klass] = {}
            for fact in self.classes[klass.path][klass.qualname].attrs:
                own.setdefault(fact.name, []).append(fact)
        return own.get(name, ())
