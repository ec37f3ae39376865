"""Who calls whom: the functions a call can reach, and the calls that can reach a function.

Both answers are worked out when they are asked for. Callers are looked for among the calls that end in the function's name
(or an alias of it), so that a question costs as much as there are such calls.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from torchmemlint.index.evidence import Evidence, Instance, Method, Value
from torchmemlint.index.facts import CallFact, FunctionFacts
from torchmemlint.index.names import TOP, ClassRef, FunctionRef, Names, Outside, is_quiet
from torchmemlint.torch_facts import TorchFacts

_BY_NAME = 5
"""A method of an unknown object is taken for the project's when at most so many unrelated classes of it define it."""

_LEAST_LETTERS = 4
"""Letters that a name which is put together shows at least: less of it says nothing."""

_MAX_ALIASES = 60
"""Names by which a function goes, beyond its own, that are followed."""


@dataclass(frozen=True, slots=True)
class Callees:
    """The functions of the project that a call can reach. ``certain`` is False where only a method's name matched."""

    refs: tuple[FunctionRef, ...]
    certain: bool


_OUTSIDE = Callees((), True)


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
        self._evidence = evidence
        self._index: dict[str, list[tuple[FunctionRef, CallFact]]] = defaultdict(list)
        self._reads: dict[str, list[tuple[FunctionRef, str]]] = defaultdict(list)
        self._aliases: dict[str, set[str]] = defaultdict(set)
        self._methods: dict[str, list[ClassRef]] = defaultdict(list)
        self._held: set[str] = set()
        self._members = {"forward", "__call__"}  # last names of dotted text that an object, or its method, may go by
        self._locals = {"forward", "__call__"}  # and names that may be bound to one
        self._looked_up: set[str] = set()
        self._keywords: frozenset[str] | None = None
        self._patterns: set[str] = set()
        self._put_together: re.Pattern[str] | None = None
        self._named: dict[tuple[str, str, str, frozenset[str]], tuple[FunctionRef, ...]] = {}
        self._callees: dict[tuple[str, str, str], Callees] = {}
        self._outside: dict[tuple[str, str], bool] = {}
        self._callers: dict[FunctionRef, Callers] = {}
        self._found: dict[FunctionRef, tuple[Caller, ...]] = {}
        self._below: dict[tuple[ClassRef, str], tuple[FunctionRef, ...]] = {}
        self._sites: dict[str, dict[FunctionRef, list[Caller]]] = {}
        self._objects: dict[FunctionRef, list[Caller]] | None = None
        self._common = _methods_of_everything(torch)
        function_names = {qualname.rpartition(".")[2] for functions in names.functions.values() for qualname in functions}
        for path, module in names.modules.items():
            for name, target in module.imports:
                self._alias(name, target)
            for name, text in module.assigned:
                self._alias(name, text)
                self._members.add(name)
                self._locals.add(name)
            for facts in module.functions:
                self._read(FunctionRef(path, facts.qualname), facts, function_names)
            for klass in module.classes:
                ref = ClassRef(path, klass.qualname)
                for name, _ in klass.methods:
                    self._methods[name].append(ref)
                for attr in klass.attrs:
                    if attr.value or attr.annotation:
                        self._members.add(attr.name)
                    if attr.method and attr.kind in ("name", "call"):
                        self._held.add(attr.name)
                    if attr.kind == "name":
                        self._alias(attr.name, attr.value)
                        if attr.value.startswith("self.") and ref not in self._methods[attr.name]:
                            self._methods[attr.name].append(ref)

    def _read(self, ref: FunctionRef, facts: FunctionFacts, function_names: set[str]) -> None:
        for name, text in (*facts.bound, *facts.rebound):
            self._alias(name, text)
            self._locals.add(name)
        self._locals.update(param.name for param in facts.params if param.annotation)
        if facts.owner:
            self._locals.update(param.name for param in facts.params[:1])
            if any(use.callee.rpartition(".")[2] in ("property", "cached_property") for use in facts.decorators):
                self._members.add(facts.qualname.rpartition(".")[2])
        for call in facts.calls:
            last = _last(call.callee)
            self._index[last].append((ref, call))
            for arg in call.args:
                # A string is taken for a name in getattr, and elsewhere (`trigger("after_step")`) if it is no plain word.
                if arg.const[:1] == "'" and (last == "getattr" or "_" in arg.const):
                    self._looked_up.add(arg.const[1:-1])
                elif last == "getattr" and len(arg.test.replace("*", "")) >= _LEAST_LETTERS and "*" in arg.test:
                    self._patterns.add(arg.test)
        for text in facts.reads:
            last = text.rpartition(".")[2]
            if last in function_names:
                self._reads[last].append((ref, text))

    def _alias(self, name: str, text: str) -> None:
        last = _last(text)
        if last and last != name:
            self._aliases[last].add(name)

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
        found = self._callees.get(key)
        if found is None:
            found = self._resolve(path, qualname, callee)
            if found is not None:
                self._callees[key] = found
        return found

    def _is_outside(self, path: str, qualname: str, callee: str) -> bool:
        """Whether ``callee`` is a name, or an attribute of one, that the module at ``path`` has from outside the project."""
        if "(" in callee or "[" in callee:
            return False
        head = callee.partition(".")[0]
        known = self._outside.get((path, head))
        if known is None:
            known = self._outside[path, head] = isinstance(self._names.lookup(path, head), Outside)
        if not known or qualname == TOP:
            return known
        functions = self._names.functions[path]
        facts = functions.get(qualname)
        while facts is not None and head not in facts.locals:
            facts = functions.get(facts.parent) if facts.parent else None
        return facts is None

    def _resolve(self, path: str, qualname: str, callee: str) -> Callees | None:
        """What ``callee`` means; None for a method of an object of which nothing is known."""
        values = self._evidence.values(path, qualname, callee)
        refs = dict.fromkeys(ref for value in values for ref in self._targets(value))
        receiver, dot, name = callee.rpartition(".")
        if refs:
            return Callees(tuple(refs), True)
        if dot and name not in self._common and name in self._methods:
            below = self._below_outside(self._evidence.values(path, qualname, receiver), name)
            if below.refs:
                return below
        if values:
            return Callees((), True)
        if not dot or name in self._common or (name.startswith("__") and name.endswith("__")):
            return Callees((), False)
        if receiver and self._evidence.values(path, qualname, receiver):
            return Callees((), False)  # the receiver is known, and has no such method in sight
        return None

    def _below_outside(self, receivers: Iterable[Value], name: str) -> Callees:
        """The methods ``name`` of the project's classes below an outside class that the receiver is of (``torch.nn.Module``,
        by its annotation): what the outside class does not have, a class below it has. None where too many unrelated have it."""
        outside = {each.klass for each in receivers if isinstance(each, Instance) and not each.exact}
        if not outside:
            return Callees((), False)
        classes = {ref for ref in self._methods.get(name, ()) if not outside.isdisjoint(self._names.mro(ref))}
        return Callees(self._methods_of(classes, name) if self._are_few(classes) else (), self._are_few(classes, 1))

    def _by_shape(self, path: str, callee: str, keywords: tuple[str, ...]) -> Callees:
        """The methods that a call on an unknown object can mean, by the name and the keywords that it gives."""
        name = _last(callee)
        return Callees(self._by_name(name, self._names.layout.top_package(path), path, frozenset(keywords)), False)

    def _by_name(self, name: str, top: str, path: str = "", keywords: frozenset[str] = frozenset()) -> tuple[FunctionRef, ...]:
        """The methods that ``name`` can mean on an unknown object in the top package ``top``, whose own classes go first.

        Those that take the ``keywords`` of the call are meant before others. Where too many unrelated classes have such a
        method, those that the file at ``path`` imports are meant, else those of its folder; none when these are too many, too.
        """
        found = self._named.get((name, top, "", keywords))
        if found is None:
            everywhere = self._methods.get(name, ())
            classes = {ref for ref in everywhere if self._names.layout.top_package(ref.path) == top} or set(everywhere)
            if keywords:
                classes = {ref for ref in classes if self._takes(ref, name, keywords)} or classes
            if self._are_few(classes):
                found = self._named[name, top, "", keywords] = self._methods_of(classes, name)
            else:
                found = self._named.get((name, top, path, keywords))
                if found is None:
                    near = self._nearest(classes, path)
                    found = self._methods_of(near, name) if self._are_few(near) else ()
                    self._named[name, top, path, keywords] = found
        return found

    def _takes(self, klass: ClassRef, name: str, keywords: frozenset[str]) -> bool:
        """Whether the class's method ``name`` has parameters of these names; True where it is no method in sight."""
        method = self._names.method(klass, name)
        if method is None:
            return True
        params = self._names.functions[method.path][method.qualname].params
        return any(param.kind == "**" for param in params) or keywords <= {param.name for param in params}

    def _are_few(self, classes: set[ClassRef], most: int = _BY_NAME) -> bool:
        """Whether these classes are at most so many unrelated groups: they are related through the base that has the method first."""
        families: set[ClassRef | str] = set()
        for ref in classes:
            families.add(next(base for base in reversed(self._names.mro(ref)) if base in classes))
            if len(families) > most:
                return False
        return True

    def _nearest(self, classes: set[ClassRef], path: str) -> set[ClassRef]:
        """Of these classes, those that a file defines or imports, else those defined in its folder."""
        if not path:
            return set()
        module = self._names.modules[path]
        named = {self._names.defined(path, name) for name, _ in module.imports}
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
            overrides = () if value.exact else tuple(self._overrides(value.klass, value.function.qualname.rpartition(".")[2]))
            if not overrides or not self._always_overridden(value):
                yield value.function
            yield from overrides or self._stood_for(value.function)
        elif isinstance(value, ClassRef):
            method = self._names.method(value, "__init__")
            if method is not None:
                yield method
        elif isinstance(value, Instance) and isinstance(value.klass, ClassRef):
            for name in ("__call__", "forward"):
                method = self._names.method(value.klass, name)
                if method is not None:
                    yield method
                    if not value.exact:
                        yield from self._overrides(value.klass, name)
                    break

    def _stood_for(self, ref: FunctionRef) -> tuple[FunctionRef, ...]:
        """The methods that an abstract one which nothing in sight overrides stands for: those of its name, as with a protocol."""
        facts = self._names.functions[ref.path][ref.qualname]
        name = ref.qualname.rpartition(".")[2]
        if not facts.owner or name in self._common or name.startswith("__"):
            return ()
        protocol = "typing.Protocol" in self._names.mro(ClassRef(ref.path, facts.owner))
        if not protocol and all(use.callee.rpartition(".")[2] != "abstractmethod" for use in facts.decorators):
            return ()
        classes = {each for each in self._methods.get(name, ()) if self._names.layout.near(each.path, ref.path)}
        classes -= {ClassRef(ref.path, facts.owner)}
        found = (FunctionRef(each.path, f"{each.qualname}.{name}") for each in classes) if self._are_few(classes) else ()
        return tuple(sorted(each for each in found if each.qualname in self._names.functions[each.path]))

    def _always_overridden(self, method: Method) -> bool:
        """Whether no object runs this method of its base but by ``super()``: each class below has its own, and nothing in
        sight constructs the class itself."""
        name = method.function.qualname.rpartition(".")[2]
        if any(self._names.method(below, name) == method.function for below in self._names.subclasses(method.klass)):
            return False
        return not any(self._index.get(word) for word in self._with_aliases([method.klass.qualname.rpartition(".")[2]]))

    def _overrides(self, klass: ClassRef, name: str) -> tuple[FunctionRef, ...]:
        found = self._below.get((klass, name))
        if found is None:
            below = ((each.path, f"{each.qualname}.{name}") for each in self._names.subclasses(klass))
            found = tuple(FunctionRef(path, qualname) for path, qualname in below if qualname in self._names.functions[path])
            self._below[klass, name] = found
        return found

    # --- calls by their words

    def named(self, name: str) -> Sequence[tuple[FunctionRef, CallFact]]:
        """All calls of something of that last name, each with the function that it stands in, in the project's order."""
        return self._index.get(name, ())

    def keywords(self) -> frozenset[str]:
        """What some call gives an argument by."""
        if self._keywords is None:
            self._keywords = frozenset(arg.keyword for calls in self._index.values() for _, call in calls for arg in call.args)
        return self._keywords

    # --- from a function to its calls

    def callers(self, ref: FunctionRef) -> Callers:
        """The calls that can reach ``ref``, and whether it may be called by what is not in sight."""
        found = self._callers.get(ref)
        if found is None:
            found = self._callers[ref] = Callers(self.calls_of(ref), self._escapes(ref))
        return found

    def calls_of(self, ref: FunctionRef) -> tuple[Caller, ...]:
        """The calls that can reach ``ref``."""
        found = self._found.get(ref)
        if found is None:
            found = self._found[ref] = self._find(ref)
        return found

    def _find(self, ref: FunctionRef) -> tuple[Caller, ...]:
        name = ref.qualname.rpartition(".")[2]
        facts = self._names.functions[ref.path][ref.qualname]
        words = {name}
        if facts.owner and name == "__init__":
            owner = ClassRef(ref.path, facts.owner)
            words |= {"cls", "__class__"}
            words |= {klass.qualname.rpartition(".")[2] for klass in (owner, *self._names.subclasses(owner))}
        found = [caller for word in self._with_aliases(words) for caller in self._called(word).get(ref, ())]
        if facts.owner and name in ("forward", "__call__"):
            seen = {id(caller.call) for caller in found}
            found += [caller for caller in self._called_objects().get(ref, ()) if id(caller.call) not in seen]
        return tuple(sorted(found, key=lambda caller: (caller.ref, caller.call.place, caller.call.callee)))

    def namesakes(self, ref: FunctionRef) -> tuple[Caller, ...]:
        """The calls of a method of that name on objects of which nothing is known, in the top package or the folder of ``ref``:
        where too many classes have such a method to say which is meant, each of them may be."""
        name = ref.qualname.rpartition(".")[2]
        if not self._names.functions[ref.path][ref.qualname].owner or name in self._common:
            return ()
        near = [(site, call) for site, call in self._index.get(name, ()) if self._names.layout.near(site.path, ref.path)]
        return tuple(
            Caller(site, call, False)
            for site, call in sorted(near, key=lambda each: (each[0], each[1].place))
            if self._meaning(site.path, site.qualname, call.callee) is None
        )

    def _called(self, word: str) -> dict[FunctionRef, list[Caller]]:
        """What the calls that end in ``word`` reach."""
        found = self._sites.get(word)
        if found is None:
            found = self._sites[word] = {}
            for site, call in self._index.get(word, ()):
                callees = self._meaning(site.path, site.qualname, call.callee)
                if callees is None:
                    callees = self._by_shape(site.path, call.callee, call.keywords)
                for ref in callees.refs:
                    found.setdefault(ref, []).append(Caller(site, call, callees.certain))
        return found

    def _with_aliases(self, words: Iterable[str]) -> list[str]:
        seen = dict.fromkeys(sorted(words))
        queue = list(seen)
        most = len(seen) + _MAX_ALIASES
        while queue:
            for alias in sorted(self._aliases.get(queue.pop(), ())):
                if alias not in seen and len(seen) < most:
                    seen[alias] = None
                    queue.append(alias)
        return list(seen)

    def _called_objects(self) -> dict[FunctionRef, list[Caller]]:
        """The calls of objects (``self.model(x)``) by the ``forward`` or ``__call__`` that they reach."""
        if self._objects is None:
            self._objects = {}
            for word in sorted(self._index):
                if word in self._methods and word not in self._aliases and word not in self._held:
                    continue
                # Only few calls can be of an object: what a call of anything else means is not worked out for this.
                of_members, of_locals = not word or word in self._members, not word or word in self._locals
                if not (of_members or of_locals):
                    continue
                for site, call in self._index[word]:
                    if not (of_members if "." in call.callee else of_locals):
                        continue
                    callees = self._meaning(site.path, site.qualname, call.callee)
                    for ref in callees.refs if callees is not None and callees.certain else ():
                        if ref.qualname.endswith((".forward", ".__call__")):
                            self._objects.setdefault(ref, []).append(Caller(site, call, True))
        return self._objects

    def _escapes(self, ref: FunctionRef) -> bool:
        name = ref.qualname.rpartition(".")[2]
        facts = self._names.functions[ref.path][ref.qualname]
        if facts.owner and (name in self._looked_up or _called_implicitly(name) or self._is_put_together(name)):
            return True
        if any(self._registers(ref.path, facts, use.callee) for use in facts.decorators):
            return True
        for word in self._with_aliases([name]):
            for reader, text in self._reads.get(word, ()):
                values = self._evidence.values(reader.path, reader.qualname, text)
                if any(ref in self._targets(value) for value in values if not isinstance(value, Instance | ClassRef)):
                    return True
                if not values and "." in text and facts.owner and self._might_mean(reader, text, name):
                    return True
        return False

    def _is_put_together(self, name: str) -> bool:
        """Whether a ``getattr`` of the project with a name that it puts together (``f"get_{kind}_feature"``) can mean this one."""
        if not self._patterns:
            return False
        if self._put_together is None:
            texts = (".+".join(re.escape(part) for part in pattern.split("*")) for pattern in sorted(self._patterns))
            self._put_together = re.compile("|".join(texts))
        return self._put_together.fullmatch(name) is not None

    def _might_mean(self, reader: FunctionRef, text: str, name: str) -> bool:
        """Whether ``text``, an attribute of an unknown object, may be the project's method ``name`` taken as a value."""
        receiver = text.rpartition(".")[0]
        if name in self._common or self._evidence.values(reader.path, reader.qualname, receiver):
            return False
        return bool(self._by_name(name, self._names.layout.top_package(reader.path)))

    def _registers(self, path: str, facts: FunctionFacts, callee: str) -> bool:
        """Whether a decorator may hand the function to code that is not in sight."""
        if callee.rpartition(".")[2] in _INERT_DECORATORS:
            return False
        values = self._evidence.values(path, facts.parent or TOP, callee)
        if not values:
            return True
        for value in values:
            if isinstance(value, FunctionRef):
                decorator = self._names.functions[value.path][value.qualname]
                if not decorator.wraps and not self._calls_its_argument(value):
                    return True
            elif isinstance(value, Method) or (isinstance(value, Outside) and not is_quiet(value.name)):
                return True
        return False

    def _calls_its_argument(self, decorator: FunctionRef) -> bool:
        return any(True for _ in argument_calls(self._names, decorator))


def argument_calls(names: Names, decorator: FunctionRef) -> Iterator[tuple[FunctionRef, CallFact]]:
    """Where a decorator's wrapper runs what it wraps: calls, in its inner functions, of a parameter of a function around."""
    functions = names.functions[decorator.path]
    inside = f"{decorator.qualname}."
    for qualname, facts in functions.items():
        if qualname != decorator.qualname and not qualname.startswith(inside):
            continue
        if not facts.parent and qualname != decorator.qualname:
            continue
        around: set[str] = set()
        outer = functions.get(facts.parent) if facts.parent else None
        while outer is not None and (outer.qualname == decorator.qualname or outer.qualname.startswith(inside)):
            around |= {param.name for param in outer.params}
            outer = functions.get(outer.parent) if outer.parent else None
        for call in facts.calls:
            if call.callee in around and call.callee not in facts.locals:
                yield FunctionRef(decorator.path, qualname), call


def _last(text: str) -> str:
    """The last name of dotted text, "" for text that ends in a call or subscript."""
    return "" if text.endswith(("()", "[]")) else text.rpartition(".")[2]


def _called_implicitly(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in ("__init__", "__call__")


def _methods_of_everything(torch: TorchFacts) -> frozenset[str]:
    """Names of methods that containers, strings, tensors, modules and optimizers have: they tell nothing about an object."""
    found = {name for kind in (list, dict, set, str, bytes, tuple, float) for name in dir(kind)}
    found |= {"step", "close", "write", "read", "flush", "put", "run", "start", "item"}
    return frozenset(found | set(torch.methods) | set(torch.module_methods))
