"""What a name in a module means: a function, class or module of the project, or something outside by its absolute name."""

from __future__ import annotations

import builtins
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from typing import Literal, NamedTuple, Protocol, TypeVar, Union

from torchmemlint.index import keys
from torchmemlint.index.facts import AttrFact, CallableUse, ClassFacts, FunctionFacts, ModuleFacts, ParamFact
from torchmemlint.index.layout import Layout, Module
from torchmemlint.index.memo import Memo
from torchmemlint.index.modules import Modules
from torchmemlint.index.trail import MISSING, Trail, answered

Value = TypeVar("Value")

TOP = "<module>"
_MAX_BASES = 60
"""Classes above each other, at the most."""
_BUILTINS = frozenset(dir(builtins))
_DOTTED = re.compile(r"^[^\W\d]\w*(\.[^\W\d]\w*)*$")


class FunctionRef(NamedTuple):
    """A function of the project: its file and its qualified name there. (A tuple, because it is the key of most tables: its
    hash costs a tenth of a dataclass's. ``of`` keeps it apart from a class of that name.)"""

    path: str
    qualname: str
    of: Literal["function"] = "function"


class ClassRef(NamedTuple):
    """A class of the project: its file and its qualified name there."""

    path: str
    qualname: str
    of: Literal["class"] = "class"


@dataclass(frozen=True, slots=True)
class Outside:
    """Something that is not in the project, by its absolute name."""

    name: str


_MANY_NAMES = 100_000
_outside: dict[str, Outside] = {}


def outside(name: str) -> Outside:
    """What is outside by this name: the same object for the same name, for there are many of few."""
    found = _outside.get(name)
    if found is None:
        if len(_outside) > _MANY_NAMES:
            _outside.clear()
        found = _outside[name] = Outside(name)
    return found


@dataclass(frozen=True, slots=True)
class Variable:
    """A module-level name that is assigned a value (no function, class or alias of one)."""

    path: str
    name: str
    text: str


Symbol = Union[FunctionRef, ClassRef, Outside, Variable, Module]


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


class Scope(Head, Protocol):
    """A function's header, and its locals."""

    @property
    def locals(self) -> frozenset[str]: ...
    @property
    def bound(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def rebound(self) -> tuple[tuple[str, str], ...]: ...


class Flow(Head, Protocol):
    """A function's header, what it returns, and which managers it holds."""

    @property
    def returned(self) -> tuple[CallableUse, ...]: ...
    @property
    def wraps(self) -> tuple[CallableUse, ...]: ...
    @property
    def yields(self) -> tuple[tuple[CallableUse, ...], ...]: ...
    @property
    def leaves(self) -> tuple[CallableUse, ...]: ...


_BACKWARD = frozenset({"backward", "manual_backward"})
_MANY = 30
"""Classes below one from which a method of theirs is looked for by its name."""


class _OfModules(dict[str, Value]):
    """Something of each module, made of its facts when it is first asked for. Raises KeyError for what is no module."""

    def __init__(self, modules: Modules, make: Callable[[ModuleFacts], Value]) -> None:
        self._modules = modules
        self._make = make

    def __missing__(self, path: str) -> Value:
        found = self[path] = self._make(self._modules[path])
        return found


class Names:
    """Scopes, imports, classes and their bases over all modules of the project.

    Whatever is read here of facts is written into the ``trail``, so facts are read in no other way; but for the tables of all
    modules (``index.tables``), which are made of ``modules``.
    """

    def __init__(self, modules: Modules, trail: Trail) -> None:
        self.trail = trail
        self.modules = modules
        self._functions = _OfModules(modules, _functions_of)
        self._classes = _OfModules(modules, _classes_of)
        self._imports = _OfModules(modules, _imports_of)
        self._stars = _OfModules(modules, star_imports)
        self._assigned = _OfModules(modules, _assigned_of)
        self._symbols = answered(trail, self._outermost_symbol)
        self._star_closure = answered(trail, self._find_star_modules)
        self._binders: dict[str, list[str]] | None = None
        self._asked: set[tuple[str, str]] = set()
        # A class that is below itself, which Python refuses, is cut there.
        self._mros: Memo[ClassRef, tuple[ClassRef | str, ...]] = Memo(trail, self._linearise, (), _MAX_BASES)
        self._methods = answered(trail, self._find_method)
        self._attrs: dict[ClassRef, dict[str, list[AttrFact]]] = {}
        self._tests: dict[str, bool] = {}
        self._below: dict[ClassRef, tuple[ClassRef, ...]] | None = None
        self.known_above: Callable[[], Iterable[tuple[ClassRef, Sequence[ClassRef]]]] | None = None
        """Of all classes, what is above them, where that is known."""
        self._overrides = answered(trail, self._find_overrides)
        self._having: dict[str, set[ClassRef]] | None = None

    @cached_property
    def layout(self) -> Layout:
        """Which module a file is."""
        return Layout(self.modules)

    def link(self) -> Layout:
        """Makes now what is made of modules when they are first looked at: processes that are forked from this one have it."""
        for made in (self._functions, self._classes, self._imports, self._stars, self._assigned):
            for path in self.modules:
                made[path]
        return self.layout

    # --- facts

    def head(self, path: str, qualname: str) -> Head | None:
        """A function's header; None where there is no such function."""
        if self.trail.on:
            self.trail.page.append((keys.HEAD, path, qualname))
        return self._functions[path].get(qualname)

    def header(self, ref: FunctionRef) -> Head:
        """The header of a function that there is. Raises KeyError."""
        if self.trail.on:
            self.trail.page.append((keys.HEAD, ref.path, ref.qualname))
        return self._functions[ref.path][ref.qualname]

    def scope(self, path: str, qualname: str) -> Scope | None:
        """A function's header and locals; None where there is no such function."""
        if self.trail.on:
            self.trail.page.append((keys.SCOPE, path, qualname))
        return self._functions[path].get(qualname)

    def flow(self, ref: FunctionRef) -> Flow:
        """A function's header, and what it does to grad mode by itself. Raises KeyError."""
        if self.trail.on:
            self.trail.page.append((keys.FLOW, ref.path, ref.qualname))
        return self._functions[ref.path][ref.qualname]

    def calls_backward(self, ref: FunctionRef) -> bool:
        """Whether a function back-propagates."""
        if self.trail.on:
            self.trail.page.append((keys.BACKWARD, ref.path, ref.qualname))
        return calls_backward(self._functions[ref.path][ref.qualname])

    def inside(self, ref: FunctionRef) -> dict[str, FunctionFacts]:
        """A function and all that are inside it, by name, in the order of the file."""
        if self.trail.on:
            self.trail.page.append((keys.INSIDE, ref.path, ref.qualname))
        return inside(self._functions[ref.path], ref.qualname)

    def methods_of(self, ref: ClassRef) -> tuple[str, ...]:
        """The qualified names of a class's own methods, in the order of the file, all definitions of each."""
        if self.trail.on:
            self.trail.page.append((keys.OWN, ref.path, ref.qualname))
        return tuple(facts.qualname for facts in self.modules[ref.path].functions if facts.owner == ref.qualname)

    def whole(self, path: str) -> ModuleFacts:
        """All facts of a module; the reader notes what of it. Raises KeyError."""
        return self.modules[path]

    def facts_of(self, ref: FunctionRef | ClassRef) -> FunctionFacts | ClassFacts:
        """All facts of a function or class; the reader notes them. Raises KeyError."""
        return self._classes[ref.path][ref.qualname] if isinstance(ref, ClassRef) else self._functions[ref.path][ref.qualname]

    def has_tests(self, path: str) -> bool:
        """Whether a module has unit tests, or what serves them."""
        if self.trail.on:
            self.trail.page.append((keys.TESTS, path, ""))
        found = self._tests.get(path)
        if found is None:
            found = self._tests[path] = has_tests(self.modules[path])
        return found

    def imports(self, path: str) -> tuple[tuple[str, str], ...]:
        """What a module imports."""
        if self.trail.on:
            self.trail.page.append((keys.IMPORTS, path, ""))
        return self.modules[path].imports

    def has_function(self, path: str, qualname: str) -> bool:
        if self.trail.on:
            self.trail.page.append((keys.NAME, path, qualname))
        return qualname in self._functions[path]

    def has_class(self, path: str, qualname: str) -> bool:
        if self.trail.on:
            self.trail.page.append((keys.NAME, path, qualname))
        return qualname in self._classes[path]

    def has_method(self, klass: ClassRef, name: str) -> bool:
        """Whether a class itself defines a method."""
        if self.trail.on:
            self.trail.page.append((keys.MEMBER, klass, name))
        return f"{klass.qualname}.{name}" in self._functions[klass.path]

    def inner(self, scope: Scope, path: str, name: str) -> FunctionRef | ClassRef | None:
        """The function or class of that name right inside a function, which was read as a ``scope``."""
        qualname = f"{scope.qualname}.{name}"
        if qualname in self._functions[path]:
            return FunctionRef(path, qualname)
        return ClassRef(path, qualname) if qualname in self._classes[path] else None

    def _own_attrs(self, klass: ClassRef, name: str) -> Sequence[AttrFact]:
        """The assignments to an attribute in a class itself."""
        if self.trail.on:
            self.trail.page.append((keys.MEMBER, klass, name))
        own = self._attrs.get(klass)
        if own is None:
            own = self._attrs[klass] = {}
            for fact in self._classes[klass.path][klass.qualname].attrs:
                own.setdefault(fact.name, []).append(fact)
        return own.get(name, ())

    # --- names

    def absolute(self, symbol: Symbol) -> str:
        """The absolute dotted name of a symbol."""
        if isinstance(symbol, Outside):
            return symbol.name
        if isinstance(symbol, Module):
            return self.layout.names.get(symbol.path, symbol.directory.replace("/", "."))
        name = symbol.name if isinstance(symbol, Variable) else symbol.qualname
        return f"{self.layout.names[symbol.path]}.{name}"

    def lookup(self, path: str, name: str) -> Symbol | None:
        """What ``name`` means at module level of ``path``; builtins included."""
        found = self.defined(path, name)
        if found is None and name in _BUILTINS:
            return outside(f"builtins.{name}")
        return found

    def defined(self, path: str, name: str) -> Symbol | None:
        """What the module at ``path`` binds ``name`` to, None when it does not."""
        key = (path, name)
        if not self._asked:
            return self._symbols.answer(key)
        # Answers inside a circle depend on where it was entered: only the question that was asked from outside is remembered.
        found = self._symbols.known(key)
        if found is not MISSING:
            return found
        if key in self._asked:
            return None  # a circle of imports
        self._asked.add(key)
        return self._find_symbol(path, name)

    def _outermost_symbol(self, key: tuple[str, str]) -> Symbol | None:
        self._asked.add(key)
        try:
            return self._find_symbol(*key)
        finally:
            self._asked.clear()

    def _find_symbol(self, path: str, name: str) -> Symbol | None:
        found = self._direct(path, name)
        if found is None and not name.startswith("_"):
            for module in self._star_binders(path, name):
                found = self._direct(module, name)
                if found is not None:
                    break
        return found

    def _direct(self, path: str, name: str) -> Symbol | None:
        """What the module binds ``name`` to by itself, star imports aside."""
        if self.has_function(path, name):  # this notes all that the name is
            return FunctionRef(path, name)
        if name in self._classes[path]:
            return ClassRef(path, name)
        foreign: Symbol | None = None
        for target in self._imports[path].get(name, ()):
            found = self.imported(path, target)
            if found is not None and not isinstance(found, Outside):
                return found
            foreign = foreign or found
        if foreign is not None:
            return foreign
        text = self._assigned[path].get(name)
        if text == "sys.modules[]":
            return self.layout.module_of(path)
        if text is not None:
            alias = self.dotted(path, text) if text != name and _DOTTED.match(text) else None
            return alias if alias is not None and not isinstance(alias, Variable) else Variable(path, name, text)
        return None

    def _star_binders(self, path: str, name: str) -> list[str]:
        """The modules from which ``path`` may have a name by star imports, through any number of them, in the order of the
        imports. A package's ``__init__`` can have thousands of them, few of which bind the name."""
        order = self._star_closure.answer(path)
        if not order:
            return []
        if self.trail.on:
            self.trail.page.append((keys.BINDERS, name, ""))
        return sorted((module for module in self._modules_that_bind(name) if module in order), key=order.__getitem__)

    def _modules_that_bind(self, name: str) -> Sequence[str]:
        if self.modules.words is not None:
            return self.modules.words.modules(keys.BINDERS, name)
        if self._binders is None:
            self._binders = defaultdict(list)
            for path, module in self.modules.items():
                for bound in bound_names(module):
                    self._binders[bound].append(path)
        return self._binders.get(name, ())

    def _find_star_modules(self, path: str) -> dict[str, int]:
        """The modules that the star imports of ``path`` lead to, with their ranks in the order of the imports."""
        seen = {path: None}
        stack = [path]
        while stack:
            current = stack.pop()
            seen[current] = None
            if self.trail.on:
                self.trail.page.append((keys.STARS, current, ""))
            targets = [self._file_of(current, target) for target in reversed(self._stars[current])]
            stack += [target for target in targets if target and target not in seen]
        del seen[path]
        return {module: rank for rank, module in enumerate(seen)}

    def _file_of(self, path: str, target: str) -> str:
        """The file that the module ``target`` of an import in ``path`` is, by its place alone; "" when it is not in sight."""
        name = target.lstrip(".")
        parts = name.split(".") if name else []
        dots = len(target) - len(name)
        if dots:
            package = self.layout.relative(path, dots)
            starts = [package] if package is not None else []
        else:
            starts = self.layout.candidates(path, parts[0])
            parts = parts[1:]
        for start in starts:
            module: Module | None = start
            for part in parts:
                module = self.layout.child(module, part) if module is not None else None
            if module is not None and module.path:
                return module.path
        return ""

    def imported(self, path: str, target: str) -> Symbol | None:
        """What an import of ``target`` ("a.b.c", "..x.Y") in ``path`` means."""
        name = target.lstrip(".")
        parts = name.split(".") if name else []
        dots = len(target) - len(name)
        if dots:
            package = self.layout.relative(path, dots)
            found = self._walk_import(package, parts) if package is not None else None
            if found is not None or self._in_sight(package, parts[:-1]):
                return found
            return outside(f"{self._package_name(path, dots)}.{name}".strip("."))
        in_sight = False
        for start in self.layout.candidates(path, parts[0]):
            found = self._walk_import(start, parts[1:])
            # A directory without __init__.py that leads nowhere is not the module that was meant.
            if found is not None and not (isinstance(found, Module) and not found.path and len(parts) == 1):
                return found
            in_sight = in_sight or (len(parts) > 1 and self._in_sight(start, parts[1:-1]))
        return None if in_sight else outside(target)

    def _in_sight(self, start: Symbol | None, parts: Sequence[str]) -> bool:
        """Whether a path of names leads to a file of the project (which then does not have what is imported from it)."""
        module = self._walk_import(start, [*parts, ""])
        return isinstance(module, Module) and bool(module.path)

    def _walk_import(self, start: Symbol | None, parts: Sequence[str]) -> Symbol | None:
        """As ``_walk``, along the target of an import: up to its last part it goes through modules, whatever else their packages
        bind to these names (``from .convert import convert``). With "" at the end, the module before that."""
        found = start
        for part in parts[:-1]:
            module = self.layout.child(found, part) if isinstance(found, Module) else None
            found = module if module is not None and module.path else self._walk(found, [part])
        return self._walk(found, [part for part in parts[-1:] if part])

    def _walk(self, start: Symbol | None, parts: Sequence[str]) -> Symbol | None:
        found = start
        for part in parts:
            if found is None:
                return None
            found = self.member(found, part)
        return found

    def member(self, symbol: Symbol, name: str) -> Symbol | None:
        """``symbol.name``: of a module, a class (through its bases), or something outside."""
        if isinstance(symbol, Outside):
            return outside(f"{symbol.name}.{name}")
        if isinstance(symbol, Module):
            if not symbol.path and self.trail.on:
                self.trail.page.append((keys.NAME, symbol.directory, name))
            found = self.defined(symbol.path, name) if symbol.path else None
            return found if found is not None else self.layout.child(symbol, name)
        if isinstance(symbol, ClassRef):
            nested = ClassRef(symbol.path, f"{symbol.qualname}.{name}")
            if self.has_class(symbol.path, nested.qualname):
                return nested
            return self.method(symbol, name)
        return None

    def dotted(self, path: str, text: str) -> Symbol | None:
        """What dotted text means at module level of ``path``."""
        head, *rest = text.split(".")
        return self._walk(self.lookup(path, head), rest)

    def by_absolute(self, name: str) -> Symbol | None:
        """The symbol of an absolute name, re-exports followed."""
        self.note_absolute(name)
        parts = name.split(".")
        for count in range(len(parts), 0, -1):
            path = self.layout.path_of.get(".".join(parts[:count]))
            if path is not None:
                found = self._walk(self.layout.module_of(path), parts[count:])
                if found is not None:
                    return found
        return None

    def note_absolute(self, name: str) -> None:
        """Notes that it was looked up which file an absolute name, or the beginning of it, is."""
        if self.trail.on:
            self.trail.page.append((keys.ABSOLUTE, name, ""))

    def _package_name(self, path: str, dots: int) -> str:
        name = self.layout.names[path].split(".")
        if not path.endswith("__init__.py"):
            name = name[:-1]
        return ".".join(name[: len(name) - (dots - 1)] if dots > 1 else name)

    # --- classes

    def class_symbol(self, ref: ClassRef, text: str) -> Symbol | None:
        """What dotted text means in the scope around the class ``ref``: nested classes first."""
        head, *rest = text.split(".")
        outer = ref.qualname.rpartition(".")[0]
        while outer:
            inner = ClassRef(ref.path, f"{outer}.{head}")
            if self.has_class(ref.path, inner.qualname) and inner != ref:
                return self._walk(inner, rest)
            outer = outer.rpartition(".")[0]
        return self.dotted(ref.path, text)

    def bases(self, ref: ClassRef) -> tuple[ClassRef | str, ...]:
        """The bases as written: classes of the project, absolute names of outside ones, "?" for what is unknown."""
        around, self._asked = self._asked, set()  # bases are remembered, so they must not depend on what asked for them
        try:
            return self._bases(ref)
        finally:
            self._asked = around

    def _bases(self, ref: ClassRef) -> tuple[ClassRef | str, ...]:
        found: list[ClassRef | str] = []
        if self.trail.on:
            self.trail.page.append((keys.BASES, ref.path, ref.qualname))
        for text in self._classes[ref.path][ref.qualname].bases:
            if text.startswith(("six.with_metaclass", "with_metaclass", "future.utils.with_metaclass")):
                continue
            symbol = self.class_symbol(ref, text) if _DOTTED.match(text) else None
            if isinstance(symbol, Module):  # a module that is called like the class in it
                symbol = self.member(symbol, text.rpartition(".")[2])
            if isinstance(symbol, ClassRef):
                found.append(symbol)
            elif isinstance(symbol, Outside):
                if symbol.name != "builtins.object":
                    found.append(symbol.name)
            else:
                found.append("?")
        return tuple(found)

    def mro(self, ref: ClassRef) -> tuple[ClassRef | str, ...]:
        """The method resolution order, ``ref`` first."""
        return self._mros.answer(ref)

    def _linearise(self, ref: ClassRef) -> tuple[ClassRef | str, ...]:
        bases = self.bases(ref)
        queues: list[list[ClassRef | str]] = [list(self.mro(base)) if isinstance(base, ClassRef) else [base] for base in bases]
        queues.append(list(bases))
        return (ref, *merged(queues))

    def method(self, ref: ClassRef, name: str, after: ClassRef | None = None) -> FunctionRef | None:
        """The function that ``name`` is in ``ref`` or the first of its bases that has it (after ``after``, for ``super()``)."""
        return self._methods.answer((ref, name, after))

    def _find_method(self, key: tuple[ClassRef, str, ClassRef | None]) -> FunctionRef | None:
        ref, name, after = key
        order = self.mro(ref)
        if after is not None:
            order = order[order.index(after) + 1 :] if after in order else ()
        for klass in order:
            if isinstance(klass, ClassRef):
                if self.has_method(klass, name):
                    return FunctionRef(klass.path, f"{klass.qualname}.{name}")
                for attr in self._own_attrs(klass, name):
                    if attr.method == "" and attr.kind == "name":  # `decode = decode_function`
                        given = self.dotted(klass.path, attr.value)
                        if isinstance(given, FunctionRef):
                            return given
        return None

    def subclasses(self, ref: ClassRef) -> tuple[ClassRef, ...]:
        """All classes of the project below ``ref``, sorted."""
        if self.trail.on:
            self.trail.page.append((keys.BELOW, ref.path, ref.qualname))
        return self._subclasses(ref)

    def _subclasses(self, ref: ClassRef) -> tuple[ClassRef, ...]:
        if self._below is None:
            self._below = self._find_below()
        return self._below.get(ref, ())

    def _find_below(self) -> dict[ClassRef, tuple[ClassRef, ...]]:
        found: dict[ClassRef, list[ClassRef]] = defaultdict(list)
        with self.trail.apart():
            every = (ClassRef(path, qualname) for path in self.modules for qualname in self._classes[path])
            known = self.known_above
            for klass, above in known() if known is not None else ((each, self.classes_above(each)) for each in every):
                for base in above:
                    found[base].append(klass)
        return {base: tuple(sorted(below)) for base, below in found.items()}

    def classes_above(self, klass: ClassRef) -> list[ClassRef]:
        """The bases of a class in the project, for all of them to know who is below: a root of the trail."""
        self.trail.page = []
        above = [base for base in self.mro(klass)[1:] if isinstance(base, ClassRef)]
        values = [part for base in above for part in base[:2]]
        self.trail.root(keys.ORDER, self.trail.page, klass[:2], values)
        return above

    def overrides(self, ref: ClassRef, name: str) -> tuple[FunctionRef, ...]:
        """The functions that the method ``name`` is in classes below ``ref`` which define it themselves."""
        return self._overrides.answer((ref, name))

    def _find_overrides(self, key: tuple[ClassRef, str]) -> tuple[FunctionRef, ...]:
        ref, name = key
        if self.trail.on:  # one key for all classes below, and whether they have it
            self.trail.page.append((keys.OVERRIDES, ref, name))
        below = self._subclasses(ref)
        if len(below) < _MANY:
            methods = (FunctionRef(each.path, f"{each.qualname}.{name}") for each in below)
            return tuple(each for each in methods if each.qualname in self._functions[each.path])
        words = self.modules.words
        if words is not None:
            there = {*words.modules(keys.NAMED, name)}
            named = (FunctionRef(each.path, f"{each.qualname}.{name}") for each in below if each.path in there)
            return tuple(each for each in named if each.qualname in self._functions[each.path])
        having = self._classes_with(name)
        return tuple(FunctionRef(each.path, f"{each.qualname}.{name}") for each in below if each in having)

    def _classes_with(self, name: str) -> Collection[ClassRef]:
        """Those that define a method of that name themselves."""
        if self._having is None:
            self._having = defaultdict(set)
            for path in self.modules:
                classes = {qualname: ClassRef(path, qualname) for qualname in self._classes[path]}
                for qualname in self._functions[path]:
                    around, _, last = qualname.rpartition(".")
                    if around in classes:
                        self._having[last].add(classes[around])
        return self._having.get(name, ())

    def attr(self, ref: ClassRef, name: str) -> tuple[tuple[AttrFact, ClassRef], ...]:
        """Every assignment to the attribute ``name`` in the class and its bases, nearest class first."""
        return tuple(
            (fact, klass) for klass in self.mro(ref) if isinstance(klass, ClassRef) for fact in self._own_attrs(klass, name)
        )

    def is_subclass(self, ref: ClassRef, name: str) -> bool | None:
        """Whether ``name`` (absolute) is among the bases; None when it is not, but a base is not in sight."""
        order = self.mro(ref)
        for klass in order:
            if (klass if isinstance(klass, str) else self.absolute(klass)) == name:
                return True
        return None if any(isinstance(klass, str) and klass not in _CLOSED_BASES for klass in order) else False


_CLOSED_BASES = frozenset(
    {
        "abc.ABC", "builtins.Exception", "builtins.dict", "builtins.float", "builtins.int", "builtins.list", "builtins.object",
        "builtins.set", "builtins.str", "builtins.tuple", "collections.OrderedDict", "collections.abc.Mapping", "enum.Enum",
        "enum.IntEnum", "torch.autograd.Function", "torch.nn.Module", "torch.nn.ModuleDict", "torch.nn.ModuleList",
        "torch.nn.Sequential", "torch.nn.modules.Module", "torch.nn.modules.module.Module", "torch.optim.Optimizer",
        "torch.utils.data.Dataset", "torch.utils.data.IterableDataset", "torch.utils.data.Sampler", "typing.Generic",
        "typing.NamedTuple", "typing.Protocol", "typing_extensions.Protocol",
    }
)  # fmt: skip
"""Outside bases whose own bases are known to be none of interest."""

_QUIET_PACKAGES = frozenset(sys.stdlib_module_names) | {
    "PIL", "absl", "attr", "celery", "cherrypy", "click", "datasets", "docutils", "fastapi", "fire", "flask", "gin", "gradio",
    "gym", "gymnasium", "h5py", "hydra", "imgaug", "jinja2", "librosa", "matplotlib", "networkx", "nltk", "numba", "numpy",
    "omegaconf", "optuna", "pandas", "pettingzoo", "pydantic", "pytest", "ray", "requests", "sacred", "scipy", "six", "sklearn",
    "starlette", "streamlit", "tokenizers", "torch", "torchaudio", "torchtext", "torchvision", "tornado", "tqdm", "typer",
    "typing_extensions", "yaml",
}  # fmt: skip


def is_quiet(name: str) -> bool:
    """Whether what bears the absolute name ``name`` comes from a package that calls code of ours without touching grad mode.

    Of torch itself that is true as well, but for what ``torch_facts`` tells.
    """
    return name.partition(".")[0] in _QUIET_PACKAGES


def by_qualname(functions: Sequence[FunctionFacts]) -> dict[str, FunctionFacts]:
    """By name; of several definitions the last, but of a property its getter."""
    found: dict[str, FunctionFacts] = {}
    for facts in functions:
        accessor = any(use.callee.endswith((".setter", ".deleter", ".getter")) for use in facts.decorators)
        if not (accessor and facts.qualname in found):
            found[facts.qualname] = facts
    return found


def _functions_of(module: ModuleFacts) -> dict[str, FunctionFacts]:
    return by_qualname(module.functions)


def _classes_of(module: ModuleFacts) -> dict[str, ClassFacts]:
    return {facts.qualname: facts for facts in module.classes}


def _imports_of(module: ModuleFacts) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, target in module.imports:
        found.setdefault(name, []).append(target)
    return found


def _assigned_of(module: ModuleFacts) -> dict[str, str]:
    return dict(module.assigned)


def star_imports(module: ModuleFacts) -> list[str]:
    """What a module imports all names from."""
    return [target for name, target in module.imports if name[0] == "*"]


def bound_names(module: ModuleFacts) -> set[str]:
    """The names that a module binds itself."""
    found = {facts.qualname for facts in module.functions} | {facts.qualname for facts in module.classes}
    found.update(name for name, _ in (*module.imports, *module.assigned))
    return {name for name in found if "." not in name}


def calls_backward(facts: FunctionFacts) -> bool:
    return any(call.callee.rpartition(".")[2] in _BACKWARD for call in facts.calls)


def inside(functions: dict[str, FunctionFacts], qualname: str) -> dict[str, FunctionFacts]:
    """Of a module's functions one, and all that are inside it."""
    below = f"{qualname}."
    return {name: facts for name, facts in functions.items() if name == qualname or name.startswith(below)}


def has_tests(module: ModuleFacts) -> bool:
    """Whether a module has unit tests by its names or imports, or no class of its own."""
    names = [facts.qualname.rpartition(".")[2] for facts in module.functions]
    names += [facts.qualname.rpartition(".")[2] for facts in module.classes]
    return (
        any(name.startswith(("test_", "Test")) for name in names)
        or any(target.partition(".")[0] in ("pytest", "unittest") for _, target in module.imports)
        or not module.classes
    )


def merged(queues: list[list[ClassRef | str]]) -> list[ClassRef | str]:
    """The C3 merge of linear orders: again and again the first head of a queue that stands behind no other's head, taken out of
    all of them. In steps that grow with the length of all queues, however many these are."""
    for queue in queues:
        queue.reverse()  # the head is the last item
    behind = Counter(item for queue in queues for item in queue[:-1])
    heads: dict[ClassRef | str, list[int]] = {}
    for number, queue in enumerate(queues):
        if queue:
            heads.setdefault(queue[-1], []).append(number)
    free = [number for number, queue in enumerate(queues) if queue and not behind[queue[-1]]]
    result: list[ClassRef | str] = []
    first = 0
    while True:
        while free and not (queues[free[0]] and not behind[queues[free[0]][-1]]):
            heappop(free)
        if free:
            head = queues[free[0]][-1]
        else:
            while first < len(queues) and not queues[first]:
                first += 1
            if first == len(queues):
                return result
            head = queues[first][-1]  # no order is consistent (Python would refuse the class): take what comes first
            for queue in queues:
                if head in queue[:-1]:
                    queue[:-1] = [item for item in queue[:-1] if item != head]
            behind[head] = 0
        result.append(head)
        for number in heads.pop(head):
            queue = queues[number]
            queue.pop()
            if queue:
                after = queue[-1]
                behind[after] -= 1
                heads.setdefault(after, []).append(number)
                if not behind[after]:
                    for other in heads[after]:
                        heappush(free, other)
