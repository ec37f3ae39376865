"""What an expression can be, a points-to analysis: from its dotted text to functions, classes and instances.

It follows constructor calls, annotations, attributes that are assigned from either, and what a function in the project returns. Where
several values are possible it gives all; where it knows none the answer is empty, never a guess from a name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Union

from torchmemlint.index.decorators import is_property
from torchmemlint.index.fact_words import AttrKind, ParamKind
from torchmemlint.index.facts import AttrFact
from torchmemlint.index.layout import Module
from torchmemlint.index.memo import Memo
from torchmemlint.index.names import Names
from torchmemlint.index.reader import Head, HeadWithLocals
from torchmemlint.index.references import TOP, UNKNOWN_BASE, ClassRef, FunctionRef, Outside, Symbol, Variable, outside
from torchmemlint.torch_facts import TORCH, TorchFacts
from torchmemlint.torch_facts.words import GRAD_EFFECTS, Effect

_PARTS = re.compile(r"[^\W\d]\w*|\?|\(\)|\[\]")
_MAX_VALUES = 12
_MAX_DEPTH = 40

# Methods of nn.Module (and of tensors) that give the receiver back.
_OF_TYPING = tuple(f"{package}." for package in sorted(TORCH.words["typing-packages"]))
_SAME = TORCH.words["gives-itself"] | {"apply"}
_MAKES = TORCH.words["makes-model"]
"""Methods by which the classes of libraries make an object of the class that is asked."""


@dataclass(frozen=True, slots=True)
class Instance:
    """An object of a class; ``exact`` where visible code constructed it, so that it is of no subclass."""

    klass: ClassRef | str
    exact: bool


@dataclass(frozen=True, slots=True)
class Method:
    """A method of the project bound to an object (or class) of ``klass``; ``exact`` as for ``Instance``."""

    function: FunctionRef
    klass: ClassRef
    exact: bool


@dataclass(frozen=True, slots=True)
class Annotated:
    """A container whose elements are objects of the class that ``text`` means in the class ``owner`` of ``path``."""

    path: str
    owner: str
    text: str
    is_mapping: bool


@dataclass(frozen=True, slots=True)
class Same:
    """A method of outside code that returns its receiver (``module.to``), an object of it (``Net.from_pretrained``), or its elements
    (``dict.values``)."""

    instance: Instance | Annotated


@dataclass(frozen=True, slots=True)
class Super:
    """``super()`` in a method of ``klass``."""

    klass: ClassRef


@dataclass(frozen=True, slots=True)
class Elements:
    """A container whose elements all are what ``text`` is in the function ``qualname`` of ``path``."""

    path: str
    qualname: str
    text: str


Value = Union[Symbol, Instance, Method, Same, Super, Elements, Annotated]


class PointsTo:
    """Evaluates dotted text; every answer is cached."""

    def __init__(self, names: Names, torch: TorchFacts) -> None:
        self._names = names
        self._reader = names.reader
        self._classes = names.classes
        self._torch = torch
        self._known: Memo[tuple[str, str, str], tuple[Value, ...]] = Memo(names.log, self._evaluate, (), _MAX_DEPTH)
        self._bound: dict[tuple[str, str], dict[str, list[str]]] = {}

    def values(self, path: str, qualname: str, text: str) -> tuple[Value, ...]:
        """Everything that ``text`` can be inside the function ``qualname`` of ``path``."""
        return self.values_at((path, qualname, text))

    def values_at(self, key: tuple[str, str, str]) -> tuple[Value, ...]:
        """As ``values``. (Who memoizes something by the same key has one tuple for both.)"""
        return self._known.answer(key) if key[2] else ()

    def attribute(self, klass: ClassRef, name: str) -> tuple[Value, ...]:
        """What ``name`` is on an object that is constructed from ``klass``."""
        return self._of_instance(Instance(klass, True), klass, name)

    def class_of(self, path: str, qualname: str, text: str) -> ClassRef | str | None:
        """The class of the object that ``text`` is; None when there is no evidence, or evidence of several."""
        classes = {value.klass for value in self.values(path, qualname, text) if isinstance(value, Instance)}
        return classes.pop() if len(classes) == 1 else None

    def _evaluate(self, key: tuple[str, str, str]) -> tuple[Value, ...]:
        path, qualname, text = key
        head, *steps = _PARTS.findall(text) or [""]  # a text that stands for any expression ("…") has no parts
        if head == "super" and steps[:1] == ["()"]:
            owner = self._owner(path, qualname)
            values: tuple[Value, ...] = (Super(owner),) if owner is not None else ()
            steps = steps[1:]
        else:
            values = self._name(path, qualname, head)
        return self._after(values, steps)

    def _after(self, values: tuple[Value, ...], steps: list[str]) -> tuple[Value, ...]:
        """What the members, calls and items of these give, one after the other."""
        for step in steps:
            if not values:
                return ()
            found: dict[Value, None] = {}
            for value in values:
                for result in (
                    self._call(value) if step == "()" else self._item(value) if step == "[]" else self._member(value, step)
                ):
                    found[result] = None
            values = tuple(found)[:_MAX_VALUES]
        return values

    # --- names

    def _owner(self, path: str, qualname: str) -> ClassRef | None:
        facts = self._reader.head(path, qualname)
        while facts is not None and not facts.owner and facts.parent:
            facts = self._reader.head(path, facts.parent)
        return ClassRef(path, facts.owner) if facts is not None and facts.owner else None

    def bound(self, path: str, qualname: str) -> dict[str, list[str]]:
        """The texts that each known local of a function is assigned."""
        key = (path, qualname)
        facts = self._reader.scope(path, qualname)  # also where it is known: this notes what is read
        found = self._bound.get(key)
        if found is None:
            found = self._bound[key] = {}
            for name, text in (*facts.bound, *facts.rebound) if facts is not None else ():
                found.setdefault(name, []).append(text)
        return found

    def _name(self, path: str, qualname: str, name: str) -> tuple[Value, ...]:
        facts = self._reader.scope(path, qualname) if qualname != TOP else None
        while facts is not None:
            inner = self._reader.inner(facts, path, name)
            if inner is not None:
                return (inner,)
            if name in facts.locals:
                texts = self.bound(path, facts.qualname).get(name)
                if texts:
                    found = dict.fromkeys(value for text in texts for value in self.values(path, facts.qualname, text))
                    return tuple(found)[:_MAX_VALUES]
                return self._parameter(path, facts, name)
            facts = self._reader.scope(path, facts.parent) if facts.parent else None
        symbol = self._names.lookup(path, name)
        return self._symbol(symbol) if symbol is not None else ()

    def _symbol(self, symbol: Symbol) -> tuple[Value, ...]:
        if not isinstance(symbol, Variable):
            return (symbol,)
        if symbol.text.startswith(f"{symbol.name}."):  # `model = model.Net()`: on the right it is what was imported
            imported = self._names.by_import(symbol.path, symbol.name)
            return self._after((imported,), _PARTS.findall(symbol.text)[1:]) if imported is not None else ()
        return self.values(symbol.path, TOP, symbol.text) if symbol.text != symbol.name else ()

    def _parameter(self, path: str, facts: HeadWithLocals, name: str) -> tuple[Value, ...]:
        for index, param in enumerate(facts.params):
            if param.name != name:
                continue
            if index == 0 and facts.owner and param.kind is ParamKind.POSITIONAL:
                decorators = {use.callee for use in facts.decorators}
                if "staticmethod" not in decorators:
                    owner = ClassRef(path, facts.owner)
                    if "classmethod" in decorators or name == "cls":
                        return (owner,)
                    return (Instance(owner, False),)
            if param.annotation and param.kind in (ParamKind.POSITIONAL, ParamKind.KEYWORD):
                return self._annotated(path, facts.owner, param.annotation)
        return ()

    def _annotated(self, path: str, owner: str, annotation: str) -> tuple[Value, ...]:
        if annotation[-1:] in ("]", "}"):
            return (Annotated(path, owner, annotation[:-2], annotation[-1] == "}"),)
        symbol = (
            self._names.class_symbol(ClassRef(path, f"{owner}.?"), annotation)
            if owner
            else self._names.dotted(path, annotation)
        )
        if isinstance(symbol, ClassRef):
            return (Instance(symbol, False),)
        if isinstance(symbol, Outside) and not symbol.name.startswith(_OF_TYPING):
            return (Instance(symbol.name, False),)
        return ()

    # --- steps

    def _member(self, value: Value, name: str) -> tuple[Value, ...]:
        if isinstance(value, Instance):
            if isinstance(value.klass, ClassRef):
                return self._of_instance(value, value.klass, name)
            if name in _SAME and not value.klass.startswith("builtins."):
                return (Same(value),)
            return (outside(f"{value.klass}.{name}"),)
        if isinstance(value, ClassRef):
            method = self._classes.method(value, name)
            if method is not None:
                return (Method(method, value, True),)
            if name in _MAKES and any(isinstance(base, str) for base in self._classes.mro(value)):
                return (Same(Instance(value, True)),)  # of a base that is not visible: `Net.from_pretrained(…)` gives a `Net`
            symbol = self._names.member(value, name)
            return self._symbol(symbol) if symbol is not None else self._assignments(value, name)
        if isinstance(value, Super):
            method = self._classes.method(value.klass, name, after=value.klass)
            if method is not None:
                return (Method(method, value.klass, True),)
            bases = [base for base in self._classes.mro(value.klass) if isinstance(base, str) and base != UNKNOWN_BASE]
            return tuple(outside(f"{base}.{name}") for base in bases[:1])
        if isinstance(value, Annotated) and value.is_mapping and name == "values":
            return (Same(value),)
        if isinstance(value, Outside | Module):
            symbol = self._names.member(value, name)
            return self._symbol(symbol) if symbol is not None else ()
        return ()

    def _of_instance(self, value: Instance, klass: ClassRef, name: str) -> tuple[Value, ...]:
        method = self._classes.method(klass, name)
        if method is not None:
            facts = self._reader.header(method)
            if is_property(facts):
                return self._result(method, facts)
            # `self.step = self.step_with_graph`: the object's own attribute goes before the method of its class.
            given = [each for each in self._assignments(klass, name) if isinstance(each, FunctionRef | Method)]
            return (Method(method, klass, value.exact), *given)[:_MAX_VALUES]
        found = self._assignments(klass, name)
        if found:
            return found
        if not value.exact:
            hooks = self._classes.overrides(klass, name)
            if hooks:
                below = (ClassRef(hook.path, hook.qualname.rpartition(".")[0]) for hook in hooks[:_MAX_VALUES])
                return tuple(Method(hook, each, True) for hook, each in zip(hooks, below, strict=False))
        if name in _SAME:
            return (Same(value),)
        if any(fact.name == name for fact, _ in self._classes.attr(klass, name)):
            return ()
        bases = [base for base in self._classes.mro(klass) if isinstance(base, str) and base != UNKNOWN_BASE]
        return (outside(f"{bases[0]}.{name}"),) if bases else ()

    def _assignments(self, klass: ClassRef, name: str) -> tuple[Value, ...]:
        """What the attribute is, by all assignments to it in the nearest class that assigns it."""
        found: dict[Value, None] = {}
        nearest: ClassRef | None = None
        for fact, owner in self._classes.attr(klass, name):
            if nearest is not None and owner != nearest and found:
                break
            nearest = owner
            for value in self._assigned(fact, owner):
                found[value] = None
        return tuple(found)[:_MAX_VALUES]

    def _assigned(self, fact: AttrFact, owner: ClassRef) -> tuple[Value, ...]:
        scope = fact.method or TOP
        if fact.element and fact.kind is not AttrKind.OTHER:
            return (Elements(owner.path, scope, fact.element),)
        values = self.values(owner.path, scope, fact.value) if fact.value else ()
        if not values and fact.annotation:
            values = self._annotated(owner.path, owner.qualname, fact.annotation)
        return values

    def _item(self, value: Value) -> tuple[Value, ...]:
        if isinstance(value, Elements):
            return self.values(value.path, value.qualname, value.text)
        if isinstance(value, Annotated):
            return self._annotated(value.path, value.owner, value.text)
        return (value,) if isinstance(value, ClassRef) else ()

    def _call(self, value: Value) -> tuple[Value, ...]:
        if isinstance(value, ClassRef):
            # A class with a `__new__` of its own may make an object of one below it.
            return (Instance(value, self._classes.method(value, "__new__") is None),)
        if isinstance(value, FunctionRef):
            return self._result(value, self._reader.header(value))
        if isinstance(value, Method):
            return self._result_of_method(value)
        if isinstance(value, Same):
            return (value.instance,)
        if isinstance(value, Outside):
            if value.name in self._torch.classes or value.name.rpartition(".")[2][:1].isupper():
                return (Instance(value.name, True),)
            effect = self._torch.functions.get(value.name)
            if effect in GRAD_EFFECTS:
                return (Instance(value.name, True),)
            if effect is Effect.MODULE:
                return (Instance(TORCH.names["module"], False),)
        return ()

    def _result_of_method(self, value: Method) -> tuple[Value, ...]:
        """What a call of a method gives; one of a class that makes an object of its own makes one of the class that it is asked of."""
        ref = value.function
        facts = self._reader.header(ref)
        found = self._result(ref, facts)
        if not any(use.callee == "classmethod" for use in facts.decorators):
            return found
        own = ClassRef(ref.path, facts.owner)
        return tuple(
            Instance(value.klass, False) if isinstance(each, Instance) and each.klass == own else each for each in found
        )

    def _result(self, ref: FunctionRef, facts: Head) -> tuple[Value, ...]:
        """What a call of a project's function gives: by annotation, else by what it returns."""
        if facts.is_generator:
            return ()
        if facts.returns:
            if facts.returns.rpartition(".")[2] == "Self" and facts.owner:
                return (Instance(ClassRef(ref.path, facts.owner), False),)
            found = self._annotated(ref.path, facts.owner, facts.returns)
            # "Some nn.Module" says less than the class of the project that is returned.
            outside = all(isinstance(value, Instance) and isinstance(value.klass, str) for value in found)
            return (self._returned(ref) or found) if outside else found
        return self._returned(ref)

    def _returned(self, ref: FunctionRef) -> tuple[Value, ...]:
        found: dict[Value, None] = {}
        for use in self._reader.flow(ref).returned:
            option = use
            while option is not None:
                text = f"{option.callee}()" if option.called else option.callee
                for value in self.values(ref.path, ref.qualname, text):
                    found[value] = None
                if option.alternative is None:
                    break
                option = option.alternative
        return tuple(found)[:_MAX_VALUES]
