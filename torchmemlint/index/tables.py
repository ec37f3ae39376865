"""What all modules say of one word: where it is called, taken as a value, assigned, defined as a method.

What is read here goes into the project's trail, by the word.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from torchmemlint.index import keys
from torchmemlint.index.facts import CallFact, ClassFacts, FunctionFacts, ModuleFacts
from torchmemlint.index.names import ClassRef, FunctionRef, by_qualname
from torchmemlint.index.trail import Trail

_LEAST_LETTERS = 4
"""Letters that a name which is put together shows at least: less of it says nothing."""

Site = tuple[FunctionRef, CallFact]
"""A call, and the function in which it stands."""


class Tables:
    """The tables of some modules; those that only few questions need are made when they are asked for."""

    def __init__(self, modules: Mapping[str, ModuleFacts], trail: Trail) -> None:
        self._modules = modules
        self._trail = trail
        self._index: dict[str, list[Site]] = defaultdict(list)
        self._reads: dict[str, list[tuple[FunctionRef, str]]] = defaultdict(list)
        self._aliases: dict[str, set[str]] = defaultdict(set)
        self._methods: dict[str, list[ClassRef]] = defaultdict(list)
        self._held: set[str] = set()
        self._members = {"forward", "__call__"}  # last names of dotted text that an object, or its method, may go by
        self._locals = {"forward", "__call__"}  # and names that may be bound to one
        self._looked_up: set[str] = set()
        self._patterns: set[str] = set()
        self._put_together: re.Pattern[str] | None = None
        self._named: dict[str, list[FunctionRef]] = defaultdict(list)
        self._holders: dict[str, list[ClassRef]] = defaultdict(list)
        self._sorted_named: dict[str, tuple[FunctionRef, ...]] = {}
        self._sorted_holders: dict[str, tuple[ClassRef, ...]] = {}
        self._words: dict[str, bool] = {}
        self._keywords: frozenset[str] | None = None
        self._cuda: bool | None = None
        functions = {each.qualname.rpartition(".")[2] for module in modules.values() for each in module.functions}
        for path, module in modules.items():
            self._alias(module.imports)
            self._alias(module.assigned)
            for name, _ in module.assigned:
                self._members.add(name)
                self._locals.add(name)
            for facts in module.functions:
                self._read(FunctionRef(path, facts.qualname), facts, functions)
            for klass in module.classes:
                self._read_class(ClassRef(path, klass.qualname), klass)

    def _read(self, ref: FunctionRef, facts: FunctionFacts, functions: Collection[str]) -> None:
        for bound in (facts.bound, facts.rebound):
            if bound:
                self._alias(bound)
                self._locals.update([name for name, _ in bound])
        self._locals.update([param.name for param in facts.params if param.annotation])
        if facts.owner:
            name = facts.qualname.rpartition(".")[2]
            self._named[name].append(ref)
            self._locals.update([param.name for param in facts.params[:1]])
            if any(use.callee.rpartition(".")[2] in ("property", "cached_property") for use in facts.decorators):
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
        for text in facts.reads:
            last = text.rpartition(".")[2]
            if last in functions:
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
                if kind in ("name", "call"):
                    self._held.add(name)
            if kind == "name":
                self._alias(((name, value),))
                if value.startswith("self.") and ref not in self._methods[name]:
                    self._methods[name].append(ref)

    def _alias(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Names, each with the text that it is another name for."""
        aliases = self._aliases
        for name, text in pairs:
            last = last_name(text)
            if last and last != name:
                aliases[last].add(name)

    def _note(self, kind: int, word: str) -> None:
        if self._trail.on:
            self._trail.page.append((kind, word, ""))

    # --- calls and values

    def calls(self, word: str) -> Sequence[Site]:
        """The calls that end in a word, in the order of the modules."""
        self._note(keys.INDEX, word)
        return self._index.get(word, ())

    def reads(self, word: str) -> Sequence[tuple[FunctionRef, str]]:
        """Where a name of a function, or an attribute of that name, is taken as a value: in which function, and the text."""
        self._note(keys.READS, word)
        return self._reads.get(word, ())

    def aliases(self, word: str) -> Collection[str]:
        """What else is called what the word is."""
        self._note(keys.ALIASES, word)
        return self._aliases.get(word, ())

    def methods(self, word: str) -> Sequence[ClassRef]:
        """The classes with a method of that name, or an attribute that is one."""
        self._note(keys.METHODS, word)
        return self._methods.get(word, ())

    def is_looked_up(self, word: str) -> bool:
        """Whether the word stands in a string from which a name may be had."""
        self._note(keys.LOOKED_UP, word)
        return word in self._looked_up

    def is_put_together(self, name: str) -> bool:
        """Whether a ``getattr`` of the project with a name that it puts together (``f"get_{kind}_feature"``) can mean this one."""
        self._note(keys.PATTERNS, "")
        if not self._patterns:
            return False
        if self._put_together is None:
            texts = (".+".join(re.escape(part) for part in pattern.split("*")) for pattern in sorted(self._patterns))
            self._put_together = re.compile("|".join(texts))
        return self._put_together.fullmatch(name) is not None

    def calls_of_objects(self) -> Mapping[str, Sequence[Site]]:
        """The calls that can be of an object (``self.model(x)``), by the word in which they end: only few can, and what a call
        of anything else means is not worked out to know it. They are in no trail: see ``Calls``."""
        found: dict[str, Sequence[Site]] = {}
        for word in sorted(self._index):
            forms = self.forms(word)
            if forms:
                found[word] = [each for each in self._index[word] if form_of(each[1].callee) in forms]
        return found

    def all_forms(self) -> list[str]:
        """The words of ``calls_of_objects``, each behind the forms in which it may be one."""
        return [f"{form}{word}" for word in sorted(self._index) for form in self.forms(word)]

    def forms(self, word: str) -> list[str]:
        """In which forms a call of what ends in the word may be of an object: "." for an attribute, "=" for a name."""
        if word in self._methods and word not in self._aliases and word not in self._held:
            return []
        return [form for form, known in ((".", self._members), ("=", self._locals)) if not word or word in known]

    def switching(self) -> list[tuple[FunctionRef, FunctionFacts]]:
        """The functions that leave grad mode switched."""
        self._note(keys.LEAVES, "")
        return [
            (FunctionRef(path, qualname), facts)
            for path, module in self._modules.items()
            if any(facts.leaves for facts in module.functions)
            for qualname, facts in by_qualname(module.functions).items()
            if facts.leaves
        ]

    # --- names

    def named(self, name: str) -> tuple[FunctionRef, ...]:
        """Every method of that name, sorted."""
        self._note(keys.NAMED, name)
        found = self._sorted_named.get(name)
        if found is None:
            found = self._sorted_named[name] = tuple(sorted(self._named.get(name, ())))
        return found

    def holders(self, attribute: str) -> tuple[ClassRef, ...]:
        """Every class of which a method assigns an attribute of that name, sorted."""
        self._note(keys.HOLDERS, attribute)
        found = self._sorted_holders.get(attribute)
        if found is None:
            # A class may be defined twice.
            found = self._sorted_holders[attribute] = tuple(sorted(set(self._holders.get(attribute, ()))))
        return found

    def has_word(self, word: str) -> bool:
        """Whether any function says this word (see ``FunctionFacts.names``), or gives an argument of that name."""
        self._note(keys.WORD, word)
        found = self._words.get(word)
        if found is None:
            functions = [f for m in self._modules.values() for f in m.functions]
            found = any(word in f.names for f in functions)
            if not found:
                if self._keywords is None:
                    self._keywords = frozenset(arg.keyword for f in functions for call in f.calls for arg in call.args)
                found = word in self._keywords
            self._words[word] = found
        return found

    def gives_cuda(self) -> bool:
        """Whether "cuda" is given for a device."""
        self._note(keys.CUDA, "")
        if self._cuda is None:
            self._cuda = any(map(says_cuda, self._modules.values()))
        return self._cuda

    def contents(self) -> Iterator[tuple[int, str, object]]:
        """All that one module gives to the tables, by kind and word."""
        (module,) = self._modules.values()
        for kind, table in ((keys.INDEX, self._index), (keys.ALIASES, self._aliases), (keys.METHODS, self._methods)):
            yield from ((kind, word, value) for word, value in table.items())
        functions = {each.qualname.rpartition(".")[2] for each in module.functions}
        reads: dict[str, list[tuple[str, str]]] = {word: [] for word in functions}
        for facts in module.functions:
            for text in sorted(facts.reads):
                reads.setdefault(text.rpartition(".")[2], []).append((facts.qualname, text))
        # Of a word that is no function's name anywhere, nothing is kept.
        yield from ((keys.READS, word, (word in functions, rows)) for word, rows in reads.items())
        yield from ((keys.LOOKED_UP, word, True) for word in self._looked_up)
        yield keys.PATTERNS, "", self._patterns
        named: dict[str, list[tuple[str, str]]] = defaultdict(list)
        words: set[str] = set()
        for facts in module.functions:
            if facts.owner or "." in facts.qualname:
                named[facts.qualname.rpartition(".")[2]].append((facts.qualname, facts.owner))
            words |= facts.names
            words.update(arg.keyword for call in facts.calls for arg in call.args)
        yield from ((keys.NAMED, word, rows) for word, rows in named.items())
        yield from ((keys.WORD, word, True) for word in words)
        held: dict[str, set[str]] = defaultdict(set)
        for klass in module.classes:
            for attr in klass.attrs:
                if attr.method:
                    held[attr.name].add(klass.qualname)
        yield from ((keys.HOLDERS, word, classes) for word, classes in held.items())
        yield keys.CUDA, "", says_cuda(module)
        yield keys.LEAVES, "", [(ref, facts.owner, facts.leaves) for ref, facts in self.switching()]


def says_cuda(module: ModuleFacts) -> bool:
    """Whether "cuda" is a default, or an argument, in a module."""
    return any(
        any(p.default.startswith("'cuda") for p in facts.params)
        or any(a.const.startswith("'cuda") for call in facts.calls for a in call.args)
        for facts in module.functions
    )


def form_of(callee: str) -> str:
    """See ``Tables.forms``."""
    return "." if "." in callee else "="


def last_name(text: str) -> str:
    """The last name of dotted text, "" for text that ends in a call or subscript."""
    return "" if text.endswith(("()", "[]")) else text.rpartition(".")[2]
