"""What all modules say of one word: where it is called, taken as a value, assigned, defined as a method.

What is read here goes into the project's log, by the word.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from torchmemlint.index import keys
from torchmemlint.index.decorators import is_property
from torchmemlint.index.dependency_log import DependencyLog
from torchmemlint.index.fact_words import AttrKind
from torchmemlint.index.facts import CallFact, ClassFacts, FunctionFacts, ModuleFacts
from torchmemlint.index.modules import Modules
from torchmemlint.index.references import TOP, ClassRef, FunctionRef
from torchmemlint.index.views import by_qualname
from torchmemlint.torch_facts import TORCH

_LEAST_LETTERS = 4
"""Letters that a name which is put together shows at least: less of it says nothing."""
_HOLDING = frozenset({AttrKind.NAME, AttrKind.CALL})
"""Forms of what an attribute is assigned that may be an object with methods."""

Site = tuple[FunctionRef, CallFact]
"""A call, and the function in which it stands."""


Row = TypeVar("Row", bound=tuple[object, ...])


class Tables:
    """The tables of some modules. Where it is known which modules say a word (``incremental.word_index``), a module is taken in when a
    word that it says is asked for; else all are at once."""

    def __init__(self, modules: Modules, log: DependencyLog) -> None:
        self._modules = modules
        self._log = log
        self._words = modules.words
        self._taken: set[str] = set()
        self._index: dict[str, list[Site]] = defaultdict(list)
        self._reads: dict[str, list[tuple[FunctionRef, str]]] = defaultdict(list)
        self._aliases: dict[str, set[str]] = defaultdict(set)
        self._methods: dict[str, list[ClassRef]] = defaultdict(list)
        self._held: set[str] = set()
        self._members = set(TORCH.words["forward"])  # last names of dotted text that an object, or its method, may go by
        self._locals = set(TORCH.words["forward"])  # and names that may be bound to one
        self._functions: set[str] = set()
        self._looked_up: set[str] = set()
        self._patterns: set[str] = set()
        self._put_together: re.Pattern[str] | None = None
        self._named: dict[str, list[FunctionRef]] = defaultdict(list)
        self._holders: dict[str, list[ClassRef]] = defaultdict(list)
        self._importers: dict[str, list[tuple[str, str]]] = defaultdict(list)
        self._stores: dict[str, set[str]] = defaultdict(set)
        self._sorted_named: dict[str, tuple[FunctionRef, ...]] = {}
        self._sorted_holders: dict[str, tuple[ClassRef, ...]] = {}
        self._known_words: dict[str, bool] = {}
        self._keywords: frozenset[str] | None = None
        self._cuda: bool | None = None
        self._tables: Mapping[int, Collection[str]] = {
            keys.INDEX: self._index, keys.ALIASES: self._aliases, keys.METHODS: self._methods, keys.LOOKED_UP: self._looked_up,
            keys.HOLDERS: self._holders, keys.FUNCTIONS: self._functions, keys.MEMBERS: self._members, keys.LOCALS: self._locals, keys.HELD: self._held,
            keys.TARGETS: self._importers, keys.STORES: self._stores,
        }  # fmt: skip
        if self._words is None:
            self._functions.update(each.qualname.rpartition(".")[2] for m in modules.values() for each in m.functions)
            self._functions.update(each.qualname.rpartition(".")[2] for m in modules.values() for each in m.classes)
            for path, module in modules.items():
                self._take(path, module)

    def _take(self, path: str, module: ModuleFacts) -> None:
        self._taken.add(path)
        self._alias(module.imports)
        self._alias(module.assigned)
        for _, target in module.imports:
            for part in {*target.split(".")} - {""}:
                self._importers[part].append((path, target))
        for name, _ in module.assigned:
            self._members.add(name)
            self._locals.add(name)
        for facts in module.functions:
            self._read(FunctionRef(path, facts.qualname), facts)
        for klass in module.classes:
            self._read_class(ClassRef(path, klass.qualname), klass)

    def _take_in(self, kind: int, word: str) -> None:
        """Takes in the modules that say a word."""
        for path in self._saying(kind, word) if self._words is not None else ():
            if path not in self._taken:
                self._take(path, self._modules[path])

    def _saying(self, kind: int, word: str) -> Collection[str]:
        """The modules that may say a word."""
        return self._modules if self._words is None else self._words.modules(kind, word)

    def _says(self, kind: int, word: str) -> bool:
        """Whether any module says a word."""
        return word in self._tables[kind] if self._words is None else self._words.says(kind, word)

    def _all(self, kind: int) -> list[str]:
        """All words of a kind, sorted."""
        return sorted(self._tables[kind]) if self._words is None else self._words.all(kind)

    def _rows(self, kind: int, word: str, table: Mapping[str, list[Row]], path: Callable[[Row], str]) -> Sequence[Row]:
        """What a table has for a word, in the order of the modules."""
        self._take_in(kind, word)
        found = table.get(word, ())
        return found if self._words is None else sorted(found, key=path)

    def _read(self, ref: FunctionRef, facts: FunctionFacts) -> None:
        for bound in (facts.bound, facts.rebound):
            if bound:
                self._alias(bound)
                self._locals.update([name for name, _ in bound])
        self._locals.update([param.name for param in facts.params if param.annotation])
        if facts.owner:
            name = facts.qualname.rpartition(".")[2]
            self._named[name].append(ref)
            self._locals.update([param.name for param in facts.params[:1]])
            if is_property(facts):
                self._members.add(name)
        index = self._index
        for call in facts.calls:
            last = last_name(call.callee)
            index[last].append((ref, call))
            for _, _, const, test in call.args:
                # A string is taken for a name in getattr, and elsewhere (`trigger("after_step")`) if it is no plain word.
                if const[:1] == "'" and (last == "getattr" or "_" in const):
                    self._looked_up.add(const[1:-1])
                elif last == "getattr" and len(test.replace("*", "")) >= _LEAST_LETTERS and "*" in test:
                    self._patterns.add(test)
        for name in facts.stores:
            self._stores[name].add(ref.path)
        functions = self._functions if self._words is None else None
        for text in facts.reads - facts.tested:
            last = text.rpartition(".")[2]
            if functions is None or last in functions:
                self._reads[last].append((ref, text))

    def _read_class(self, ref: ClassRef, facts: ClassFacts) -> None:
        for name, _ in facts.methods:
            self._methods[name].append(ref)
        own = {f"'{name}'" for name, _ in facts.methods}
        for name, kind, value, const, method, annotation, _ in facts.attrs:
            if const in own and not method:
                self._looked_up.add(const[1:-1])  # ``FUNCTION = "encode"``: a driver asks the class for the name
            if value or annotation:
                self._members.add(name)
            if method:
                holders = self._holders[name]
                if not holders or holders[-1] is not ref:
                    holders.append(ref)
                if kind in _HOLDING:
                    self._held.add(name)
            if kind is AttrKind.NAME:
                self._alias(((name, value),))
                if value.startswith("self.") and ref not in self._methods[name]:
                    self._methods[name].append(ref)

    def _alias(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Names, each with the text that it is another name for."""
        aliases = self._aliases
        for name, text in pairs:
            last = last_name(text)
            if last and last != name != text:
                aliases[last].add(name)

    def _note(self, kind: int, word: str) -> None:
        self._log.read(kind, word, "")

    # --- calls and values

    def calls(self, word: str) -> Sequence[Site]:
        """The calls that end in a word, in the order of the modules."""
        self._note(keys.INDEX, word)
        return self._rows(keys.INDEX, word, self._index, _path_of_site)

    def reads(self, word: str) -> Sequence[tuple[FunctionRef, str]]:
        """Where a name of a function, or an attribute of that name, is taken as a value: in which function, and the text."""
        self._note(keys.READS, word)
        # Whatever is read is among the words of its function.
        return self._rows(keys.WORD, word, self._reads, _path_of_site) if self._says(keys.FUNCTIONS, word) else ()

    def is_value(self, word: str, paths: Collection[str]) -> bool:
        """Whether one of these modules takes a name as a value at its top level."""
        self._note(keys.READS, word)
        saying = self._saying(keys.WORD, word)
        return any(
            word in facts.reads
            for path in paths
            if path in saying
            for facts in self._modules[path].functions
            if facts.qualname == TOP
        )

    def aliases(self, word: str) -> Collection[str]:
        """What else is called what the word is."""
        self._note(keys.ALIASES, word)
        self._take_in(keys.ALIASES, word)
        return self._aliases.get(word, ())

    def methods(self, word: str) -> Sequence[ClassRef]:
        """The classes with a method of that name, or an attribute that is one."""
        self._note(keys.METHODS, word)
        return self._rows(keys.METHODS, word, self._methods, _path_of)

    def is_looked_up(self, word: str) -> bool:
        """Whether the word stands in a string from which a name may be had."""
        self._note(keys.LOOKED_UP, word)
        return self._says(keys.LOOKED_UP, word)

    def is_put_together(self, name: str) -> bool:
        """Whether a ``getattr`` of the project with a name that it puts together (``f"get_{kind}_feature"``) can mean this one."""
        self._note(keys.PATTERNS, "")
        self._take_in(keys.PATTERNS, "")
        if not self._patterns:
            return False
        if self._put_together is None:
            texts = (".+".join(re.escape(part) for part in pattern.split("*")) for pattern in sorted(self._patterns))
            self._put_together = re.compile("|".join(texts))
        return self._put_together.fullmatch(name) is not None

    def calls_of_objects(self) -> Mapping[str, Sequence[Site]]:
        """The calls that can be of an object (``self.model(x)``), by the word in which they end: only few can, and what a call
        of anything else means is not worked out to know it. They are in no log: see ``Calls``."""
        found: dict[str, Sequence[Site]] = {}
        for word in self._all(keys.INDEX):
            forms = self.forms(word)
            if forms:
                sites = self._rows(keys.INDEX, word, self._index, _path_of_site)
                found[word] = [each for each in sites if form_of(each[1].callee) in forms]
        return found

    def all_forms(self) -> list[str]:
        """The words of ``calls_of_objects``, each behind the forms in which it may be one."""
        return [f"{form}{word}" for word in self._all(keys.INDEX) for form in self.forms(word)]

    def forms(self, word: str) -> list[str]:
        """In which forms a call of what ends in the word may be of an object: "." for an attribute, "=" for a name."""
        known = self._says
        if known(keys.METHODS, word) and not known(keys.ALIASES, word) and not known(keys.HELD, word):
            return []
        return [form for form, kind in ((".", keys.MEMBERS), ("=", keys.LOCALS)) if not word or known(kind, word)]

    def switching(self) -> list[tuple[FunctionRef, FunctionFacts]]:
        """The functions that leave grad mode switched."""
        self._note(keys.LEAVES, "")
        return [
            (FunctionRef(path, qualname), facts)
            for path in sorted(self._saying(keys.LEAVES, ""))
            if any(facts.leaves for facts in self._modules[path].functions)
            for qualname, facts in by_qualname(self._modules[path].functions).items()
            if facts.leaves
        ]

    # --- names

    def importers(self, part: str) -> list[str]:
        """The modules that import something of which a part of the name is this, sorted."""
        self._note(keys.TARGETS, part)
        return sorted({path for path, _ in self._rows(keys.TARGETS, part, self._importers, _path_of_import)})

    def named(self, name: str) -> tuple[FunctionRef, ...]:
        """Every method of that name, sorted."""
        self._note(keys.NAMED, name)
        found = self._sorted_named.get(name)
        if found is None:
            self._take_in(keys.NAMED, name)
            found = self._sorted_named[name] = tuple(sorted(self._named.get(name, ())))
        return found

    def holders(self, attribute: str) -> tuple[ClassRef, ...]:
        """Every class of which a method assigns an attribute of that name, sorted."""
        self._note(keys.HOLDERS, attribute)
        found = self._sorted_holders.get(attribute)
        if found is None:
            self._take_in(keys.HOLDERS, attribute)
            # A class may be defined twice.
            found = self._sorted_holders[attribute] = tuple(sorted(set(self._holders.get(attribute, ()))))
        return found

    def stores(self, name: str) -> Collection[str]:
        """The modules that store an attribute of that name (see ``FunctionFacts.stores``)."""
        self._note(keys.STORES, name)
        self._take_in(keys.STORES, name)
        return self._stores.get(name, ())

    def is_held(self, attribute: str) -> bool:
        """Whether a method of some class assigns an attribute of that name."""
        self._note(keys.HOLDERS, attribute)
        return self._says(keys.HOLDERS, attribute)

    def has_word(self, word: str) -> bool:
        """Whether any function says this word (see ``FunctionFacts.names``), or gives an argument of that name."""
        self._note(keys.WORD, word)
        if self._words is not None:
            return self._words.says(keys.WORD, word)
        found = self._known_words.get(word)
        if found is None:
            functions = [f for m in self._modules.values() for f in m.functions]
            found = any(word in f.names for f in functions)
            if not found:
                if self._keywords is None:
                    self._keywords = frozenset(arg.keyword for f in functions for call in f.calls for arg in call.args)
                found = word in self._keywords
            self._known_words[word] = found
        return found

    def saying(self, word: str) -> list[str]:
        """The modules of which a function says a word, or gives an argument of that name, sorted."""
        self._note(keys.WORD, word)
        return sorted(self._saying(keys.WORD, word))

    def gives_cuda(self) -> bool:
        """Whether "cuda" is given for a device."""
        self._note(keys.CUDA, "")
        if self._cuda is None:
            self._cuda = any(says_cuda(self._modules[path]) for path in self._saying(keys.CUDA, ""))
        return self._cuda

    def words(self) -> Iterator[tuple[int, Collection[str]]]:
        """The words that one module says, by kind: those of which ``contents`` has something, if it is not asked for nothing."""
        (module,) = self._modules.values()
        yield from self._tables.items()
        yield keys.NAMED, {last for around, _, last in map(_parted, module.functions) if around}
        yield keys.WORD, _words_of(module)
        yield keys.PATTERNS, [""] if self._patterns else []
        yield keys.CUDA, [""] if says_cuda(module) else []
        yield keys.LEAVES, [""] if any(facts.leaves for facts in module.functions) else []

    def contents(self) -> Iterator[tuple[int, str, object]]:
        """All that one module gives to the tables, by kind and word."""
        (module,) = self._modules.values()
        for kind, table in (
            (keys.INDEX, self._index),
            (keys.ALIASES, self._aliases),
            (keys.METHODS, self._methods),
            (keys.TARGETS, self._importers),
            (keys.STORES, self._stores),
        ):
            yield from ((kind, word, value) for word, value in table.items())
        reads: dict[str, list[tuple[str, str]]] = {}
        for facts in module.functions:
            for text in sorted(facts.reads - facts.tested):
                reads.setdefault(text.rpartition(".")[2], []).append((facts.qualname, text))
        # The tables have no rows for a word that is no function's name anywhere: see ``incremental.changed_keys``.
        yield from ((keys.READS, word, rows) for word, rows in reads.items())
        yield keys.PATTERNS, "", self._patterns
        named: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for facts in module.functions:
            around, _, last = _parted(facts)
            if around:
                named[last].append((facts.qualname, facts.owner))
        yield from ((keys.NAMED, word, rows) for word, rows in named.items())
        yield from ((keys.WORD, word, True) for word in _words_of(module))
        yield from ((keys.HOLDERS, word, {*classes}) for word, classes in self._holders.items())
        for kind in (keys.LOOKED_UP, keys.FUNCTIONS, keys.MEMBERS, keys.LOCALS, keys.HELD):
            yield from ((kind, word, True) for word in self._tables[kind])
        yield keys.CUDA, "", says_cuda(module)
        yield keys.LEAVES, "", [(ref, facts.owner, facts.leaves) for ref, facts in self.switching()]


def of_one(module: ModuleFacts) -> Tables:
    """The tables of one module alone."""
    return Tables(Modules.of([module]), DependencyLog())


def _parted(facts: FunctionFacts) -> tuple[str, str, str]:
    return facts.qualname.rpartition(".")


def _words_of(module: ModuleFacts) -> set[str]:
    keywords = {arg.keyword for facts in module.functions for call in facts.calls for arg in call.args}
    return keywords.union(*(facts.names for facts in module.functions))


def says_cuda(module: ModuleFacts) -> bool:
    """Whether "cuda" is a default, an argument, or held by an attribute, in a module."""
    return any(attr.const.startswith("'cuda") for facts in module.classes for attr in facts.attrs) or any(
        any(p.default.startswith("'cuda") for p in facts.params)
        or any(a.const.startswith("'cuda") for call in facts.calls for a in call.args)
        for facts in module.functions
    )


def _path_of(ref: ClassRef) -> str:
    return ref.path


def _path_of_import(row: tuple[str, str]) -> str:
    return row[0]


def _path_of_site(row: tuple[FunctionRef, object]) -> str:
    return row[0].path


def form_of(callee: str) -> str:
    """See ``Tables.forms``."""
    return "." if "." in callee else "="


def last_name(text: str) -> str:
    """The last name of dotted text, "" for text that ends in a call or subscript."""
    return "" if text.endswith(("()", "[]")) else text.rpartition(".")[2]
