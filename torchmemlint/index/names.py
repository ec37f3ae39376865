"""What a name in a module means: a function, class or module of the project, or something outside by its absolute name."""

from __future__ import annotations

import builtins
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

from torchmemlint.index import keys
from torchmemlint.index.dependency_log import MISSING, memoized
from torchmemlint.index.hierarchy import ClassHierarchy
from torchmemlint.index.layout import Layout, Module
from torchmemlint.index.reader import FactReader
from torchmemlint.index.references import UNKNOWN_BASE, ClassRef, FunctionRef, Outside, Symbol, Variable, outside
from torchmemlint.index.views import bound_names

_BUILTINS = frozenset(dir(builtins))
_DOTTED = re.compile(r"^[^\W\d]\w*(\.[^\W\d]\w*)*$")


class Names:
    """Resolves names by scopes, imports and star imports; ``classes`` are the classes that they name."""

    def __init__(self, reader: FactReader) -> None:
        self.reader = reader
        self.log = log = reader.log
        self.classes = ClassHierarchy(reader, self.bases, self.dotted, self.absolute)
        self._symbols = memoized(log, self._outermost_symbol)
        self._star_targets = memoized(log, self._find_star_targets)
        self._star_closure = memoized(log, self._find_star_modules)
        self._binders: dict[str, list[str]] | None = None
        self._asked: set[tuple[str, str]] = set()

    @cached_property
    def layout(self) -> Layout:
        """Which module a file is."""
        return Layout(self.reader.modules)

    def link(self) -> Layout:
        """As ``FactReader.link``."""
        self.reader.link()
        return self.layout

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
        # Answers inside a circle depend on where it was entered: only the question that was asked from outside is cached.
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
        if self.reader.has_function(path, name):  # this notes all that the name is
            return FunctionRef(path, name)
        if name in self.reader.classes[path]:
            return ClassRef(path, name)
        text = self.reader.assigned[path].get(name)
        if text is not None and text.startswith(f"{name}."):  # `import model`, and then `model = model.Net()`
            return Variable(path, name, text)
        found = self.by_import(path, name)
        if isinstance(found, Module) and text is not None and text.endswith("()"):  # and then `model = torch.load(path)`
            return Variable(path, name, text)
        if found is not None:
            return found
        if text == "sys.modules[]":
            return self.layout.module_of(path)
        if text is not None:
            alias = self.dotted(path, text) if text != name and _DOTTED.match(text) else None
            return alias if alias is not None and not isinstance(alias, Variable) else Variable(path, name, text)
        return None

    def by_import(self, path: str, name: str) -> Symbol | None:
        """What the imports of the module at ``path`` bind ``name`` to: something in the project, if any does."""
        foreign: Symbol | None = None
        for target in self.reader.import_targets[path].get(name, ()):
            found = self.imported(path, target)
            if found is not None and not isinstance(found, Outside):
                return found
            foreign = foreign or found
        return foreign

    def _star_binders(self, path: str, name: str) -> list[str]:
        """The modules from which ``path`` may have a name by star imports, through any number of them, in the order of the
        imports. A package's ``__init__`` can have thousands of them, few of which bind the name."""
        if not self._star_targets.answer(path):
            return []
        self.log.read(keys.BINDERS, name, "")
        binders = self._modules_that_bind(name)
        if not binders:  # wherever the star imports lead
            return []
        order = self._star_closure.answer(path)
        return sorted((module for module in binders if module in order), key=order.__getitem__)

    def _modules_that_bind(self, name: str) -> Sequence[str]:
        if self.reader.modules.words is not None:
            return self.reader.modules.words.modules(keys.BINDERS, name)
        if self._binders is None:
            self._binders = defaultdict(list)
            for path, module in self.reader.modules.items():
                for bound in bound_names(module):
                    self._binders[bound].append(path)
        return self._binders.get(name, ())

    def _find_star_modules(self, path: str) -> dict[str, int]:
        """The modules that the star imports of ``path`` lead to, with their ranks in the order of the imports."""
        seen: dict[str, None] = {}
        stack = [path]
        while stack:
            current = stack.pop()
            if current in seen:  # by another way
                continue
            seen[current] = None
            stack += [target for target in self._star_targets.answer(current) if target not in seen]
        del seen[path]
        return {module: rank for rank, module in enumerate(seen)}

    def _find_star_targets(self, path: str) -> list[str]:
        """The files that the star imports of ``path`` name, the last one first."""
        self.log.read(keys.STARS, path, "")
        targets = [self.file_of(path, target) for target in reversed(self.reader.star_imports[path])]
        return [target for target in targets if target]

    def file_of(self, path: str, target: str) -> str:
        """The file that the module ``target`` of an import in ``path`` is, by its place alone; "" when it is not visible."""
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
            if not symbol.path and self.log.on:
                self.log.reads.append((keys.NAME, symbol.directory, name))
            found = self.defined(symbol.path, name) if symbol.path else None
            return found if found is not None else self.layout.child(symbol, name)
        if isinstance(symbol, ClassRef):
            nested = ClassRef(symbol.path, f"{symbol.qualname}.{name}")
            if self.reader.has_class(symbol.path, nested.qualname):
                return nested
            return self.classes.method(symbol, name)
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
        self.log.read(keys.ABSOLUTE, name, "")

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
            if self.reader.has_class(ref.path, inner.qualname) and inner != ref:
                return self._walk(inner, rest)
            outer = outer.rpartition(".")[0]
        return self.dotted(ref.path, text)

    def bases(self, ref: ClassRef) -> tuple[ClassRef | str, ...]:
        """The bases as written: classes of the project, absolute names of outside ones, "?" for what is unknown."""
        around, self._asked = self._asked, set()  # bases are cached, so they must not depend on what asked for them
        try:
            return self._bases(ref)
        finally:
            self._asked = around

    def _bases(self, ref: ClassRef) -> tuple[ClassRef | str, ...]:
        found: list[ClassRef | str] = []
        self.log.read(keys.BASES, ref.path, ref.qualname)
        for text in self.reader.classes[ref.path][ref.qualname].bases:
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
                found.append(UNKNOWN_BASE)
        return tuple(found)
