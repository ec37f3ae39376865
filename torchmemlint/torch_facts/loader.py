"""One table, read from a TOML file for each library: refused where these contradict each other.

What is true of names stands there, in the words of ``words.py``; what follows from it is decided in ``semantics``. A library's
file has its names alone; those of the standard library stand in ``python.toml``, and what is true of whole packages in
``packages.toml``. The tables:

    operations      names that exist both as torch.X(tensor, …) and as tensor.X(…)
    functions       absolute names, or names under every module of ``under``
    methods         methods of torch.Tensor; attributes: its attributes
    classes         absolute class names and their kind
    class_patterns, function_patterns
                    regular expressions for families of names under each module of ``under``
    packages        top packages of which every function has one effect
    module_methods  methods of torch.nn.Module
    kind_methods    methods of objects whose kind is known
    hooks           methods that a framework calls on a subclass, and the grad mode or the backward around that call; ``network``: at which
                    position it hands them the network that it trains
    handed_outputs  methods of a subclass to which a framework hands what a network gave, and at which position
    guarded_methods methods of unknown objects that switch grad mode off by themselves
    backward_methods, inert_methods, runner_methods
                    methods only by name, for receivers that are not known
    runners         what runs a function that it is given, in the grad mode in which it is called, or with grad mode on
    servers         top packages whose decorators hand a function to a server or a command line
    given_weights   what makes a module of weights that want no gradient
    renamed         deprecated names and what stands for them
    networks        architectures and how many million parameters they have, ``resnet50=25``
    names           single names, by what they are to the engine or a rule, ``gradient=grad``
    held            what objects of a library's class hold in an attribute, ``accelerator=accelerate.Accelerator``
    usual_names     names under which modules are imported everywhere, ``nn=torch.nn``
    words           names of which the engine or a rule asks one thing, which ``asked`` names: ``TORCH.words["joins"]``. Several
                    libraries may add to it

Every group carries its source. "measured" means: ``tests/test_torch_facts.py`` runs the name on small tensors and checks the
effect. Strings are literal ones ('…'), because those are what a TOML reader written in Python reads fastest, and names are
separated by white space in one of them for the same reason.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeAlias, TypeVar, cast

from torchmemlint.errors import TorchFactsError
from torchmemlint.torch_facts.words import (
    ATTRIBUTE_EFFECTS,
    BACKWARD_EFFECTS,
    FUNCTION_EFFECTS,
    KIND_METHOD_EFFECTS,
    METHOD_EFFECTS,
    ClassKind,
    Effect,
    HookEffect,
    ModuleEffect,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


_K = TypeVar("_K", bound=Hashable)
_W = TypeVar("_W", bound=str)
_Group: TypeAlias = Mapping[str, object]
_Document: TypeAlias = dict[str, list[_Group]]
"""Groups by table; a table is taken out when it is read, so that what is left is a name that nothing reads."""
FILE = ""
"""The key under which a group knows its file: no key of a table is empty."""


@dataclass(frozen=True, slots=True)
class GuardedMethod:
    """A method that runs a model under no_grad by itself: any method of that name where ``keywords`` and ``package`` are empty,
    else one that is called with one of the keywords, or in a file that imports the package. ``asks`` is the argument with which a
    caller asks it for gradients."""

    keywords: frozenset[str]
    package: str
    asks: str


@dataclass(frozen=True, slots=True)
class HandedOutput:
    """Where a method is given what a network gave: ``step`` is the method whose result it is, which by default is the network's, and
    ``at`` the position of the parameter, from 0 for ``self``."""

    step: str
    at: int


@dataclass(frozen=True, slots=True)
class Renamed:
    """The name that stands for a deprecated one, and how its arguments are written.

    keyword     the argument that the old name implied, and its value (``device_type``, ``cuda``)
    parameters  the old name's positional parameters, which have other places in the new one
    names       all new names of the same thing
    """

    name: str
    keyword: str
    value: str
    parameters: tuple[str, ...]
    names: frozenset[str]


@dataclass(frozen=True)
class TorchFacts:
    """What is known about names. Absolute names are full dotted paths as imported; builtins start with "builtins."."""

    functions: dict[str, Effect]
    """Absolute name → effect. ``function_effect`` also knows families of names."""
    methods: dict[str, Effect]
    """Name of a torch.Tensor method → effect."""
    attributes: dict[str, Effect]
    """Name of a torch.Tensor attribute → effect."""
    classes: dict[str, ClassKind]
    """Absolute name → kind. ``class_kind`` also knows families of names."""
    module_methods: dict[str, ModuleEffect]
    """Name of a torch.nn.Module method → effect."""
    part_methods: frozenset[str]
    """Methods of other libraries' modules that return a module that is part of them."""
    kind_methods: dict[tuple[str, str], Effect]
    """(kind of class, method) → effect."""
    guarded_methods: dict[str, tuple[GuardedMethod, ...]]
    """Name of a method of an unknown object that switches grad mode off by itself → what says that it is meant."""
    hooks: dict[tuple[str, str], HookEffect]
    """(absolute name of a base class, method that overrides) → what surrounds the call."""
    handed_networks: dict[tuple[str, str], int]
    """As ``hooks`` → the position of the parameter, from 0 for ``self``, that is the framework's network."""
    handed_outputs: dict[tuple[str, str], HandedOutput]
    """(absolute name of a base class, method that overrides) → where it gets what a network gave."""
    backward_methods: dict[str, Effect]
    """Name of a method of an unknown object → "backpropagates" or "passes" (its first argument)."""
    inert_calls: frozenset[str]
    """Absolute names of functions that neither keep nor back-propagate their arguments."""
    inert_methods: frozenset[str]
    """The same by method name alone, for receivers that are not known."""
    runners: frozenset[str]
    """Absolute names of functions, methods and classes that run a function which they are given: in the grad mode of the call, or
    in a thread of its own, where it is on. (A forked process goes on in the mode of the one that forks it.)"""
    runner_methods: frozenset[str]
    """The same by method name alone, for receivers that are not known."""
    servers: frozenset[str]
    """Top packages that run the functions they decorate in threads or programs of their own, and do not touch grad mode."""
    given_weights: frozenset[str]
    """Absolute names of what makes a module of given weights, which want no gradient unless set otherwise
    (``freeze=False``)."""
    concatenations: frozenset[str]
    """Absolute names of functions that copy a sequence of tensors, their first argument, into one."""
    allocator_options: frozenset[str]
    """Options of ``PYTORCH_CUDA_ALLOC_CONF``."""
    cut_dtypes: frozenset[str]
    """Absolute names of dtypes that cannot carry a graph."""
    oom_exceptions: dict[str, str]
    """Absolute name of an exception that an out-of-memory error can be → first torch version that has it."""
    versions: dict[str, str]
    """Name → first torch version in which it can be used."""
    package_effects: dict[str, Effect]
    """Top package → effect of all its functions."""
    renamed: dict[str, Renamed]
    """Absolute name that is deprecated → what stands for it today."""
    class_patterns: dict[str, tuple[tuple[str, ClassKind], ...]]
    """Top package → regular expressions for absolute names, and their kind; the first that matches counts."""
    function_patterns: dict[str, tuple[tuple[str, Effect], ...]]
    """Top package → regular expressions for absolute names, and their effect."""
    millions: dict[str, int]
    """Name of an architecture, in lower case → how many million parameters it has, rounded down."""
    names: dict[str, str]
    """What the engine or a rule asks for → its name: of a method, an attribute, an argument, a class …"""
    held: dict[tuple[str, str], str]
    """Class of a library, attribute → the class of what its objects, and those of classes below, hold there."""
    usual_names: dict[str, str]
    """Name in code → the module that it stands for, however it came to be."""
    words: dict[str, frozenset[str]]
    """Names of methods, functions, packages … of which the engine or a rule asks one thing, by what that is called."""
    _effects: dict[str, Effect | None] = field(default_factory=dict, repr=False, compare=False)
    _kinds: dict[str, ClassKind | None] = field(default_factory=dict, repr=False, compare=False)

    def function_effect(self, name: str) -> Effect | None:
        """The effect of the function with this absolute name, or None when nothing is known about it."""
        effect = self.functions.get(name)
        if effect is not None:
            return effect
        package = name.partition(".")[0]
        return self.package_effects.get(package) or _match(name, self.function_patterns.get(package, ()), self._effects)

    def class_kind(self, name: str) -> ClassKind | None:
        """The kind of the class with this absolute name, or None when nothing is known about it. A class of torch may be named by
        the file that defines it: ``torch.nn.modules.conv.Conv2d`` is what ``torch.nn`` exports."""
        kind = self.classes.get(name) or _match(name, self.class_patterns.get(name.partition(".")[0], ()), self._kinds)
        while kind is None and name.startswith("torch.") and name.count(".") > MIN_DOTS:
            package, _, last = name.rpartition(".")
            name = f"{package.rpartition('.')[0]}.{last}"
            kind = self.classes.get(name)
        return kind


MIN_DOTS = 2
"""In the name of a class that a package of torch exports ("torch.nn.Linear")."""


def _match(name: str, patterns: tuple[tuple[str, _W], ...], found: dict[str, _W | None]) -> _W | None:
    if patterns and name not in found:
        found[name] = next((word for pattern, word in patterns if re.fullmatch(pattern, name)), None)
    return found.get(name)


@cache
def load() -> TorchFacts:
    """The tables that ship with torchmemlint, read once."""
    return parse({path.name: path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*.toml"))})


def parse(files: Mapping[str, str]) -> TorchFacts:
    """The tables from TOML texts, by the names of their files. Raises TorchFactsError when one is malformed or lacks a source, and
    when something is named twice."""
    document: _Document = {}
    for file, text in files.items():
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise TorchFactsError(f"{file} is not TOML: {error}") from error
        for table, groups in tables.items():
            for group in groups if isinstance(groups, list) else [groups]:
                group[FILE] = file
                document.setdefault(table, []).append(group)

    functions: dict[str, Effect] = {}
    methods: dict[str, Effect] = {}
    for effect, names in _groups(document, "operations", "effect", FUNCTION_EFFECTS & METHOD_EFFECTS):
        _add_all(functions, "functions", (f"torch.{name}" for name in names), effect)
        _add_all(methods, "methods", names, effect)
    for effect, names in _groups(document, "functions", "effect", FUNCTION_EFFECTS):
        _add_all(functions, "functions", names, effect)
    for effect, names in _groups(document, "methods", "effect", METHOD_EFFECTS):
        _add_all(methods, "methods", names, effect)
    kind_methods: dict[tuple[str, str], Effect] = {}
    for group in _tables(document, "kind_methods"):
        kind, effect = _word(group, "kind", frozenset(ClassKind)), _word(group, "effect", KIND_METHOD_EFFECTS)
        _add_all(kind_methods, "kind_methods", ((kind, name) for name in _names(group)), effect)
    guarded: dict[str, tuple[GuardedMethod, ...]] = {}
    for group in _tables(document, "guarded_methods"):
        keywords = frozenset(str(group.get("keywords", "")).split())
        known = GuardedMethod(keywords, str(group.get("package", "")), str(group.get("asks", "")))
        for name in _names(group):
            guarded[name] = (*guarded.get(name, ()), known)
    hooks: dict[tuple[str, str], HookEffect] = {}
    networks: dict[tuple[str, str], int] = {}
    for group in _tables(document, "hooks"):
        around, bases = _word(group, "effect", frozenset(HookEffect)), cast("list[str]", group["bases"])
        of_bases = [(base, name) for base in bases for name in _names(group)]
        _add_all(hooks, "hooks", of_bases, around)
        if "network" in group:
            networks.update(dict.fromkeys(of_bases, int(str(group["network"]))))
    handed: dict[tuple[str, str], HandedOutput] = {}
    for group in _tables(document, "handed_outputs"):
        output, bases = HandedOutput(str(group["step"]), int(str(group["at"]))), cast("list[str]", group["bases"])
        handed.update(((base, name), output) for base in bases for name in _names(group))
    renamed: dict[str, Renamed] = {}
    for group in _tables(document, "renamed"):
        new, keyword, value = (str(group[key]) for key in ("new", "keyword", "value"))
        for name in _names(group):
            parameters = tuple(str(group["parameters"]).split())
            renamed[name] = Renamed(new, keyword, value, parameters, frozenset((new, *str(group.get("also", "")).split())))
    words: dict[str, frozenset[str]] = {}
    for group in _tables(document, "words"):
        asked = str(group["asked"])
        words[asked] = words.get(asked, frozenset()).union(_names(group))
    millions: dict[str, int] = {}
    for group in _tables(document, "networks"):
        for pair in _names(group):
            name, _, count = pair.rpartition("=")
            if name in millions or not count.isdecimal():
                raise TorchFactsError(
                    f"{group[FILE]}: [networks] has {pair!r}, which stands there twice or is not NAME=MILLIONS"
                )
            millions[name] = int(count)
    facts = TorchFacts(
        functions=functions,
        methods=methods,
        attributes=_flat(document, "attributes", "effect", ATTRIBUTE_EFFECTS),
        classes=_flat(document, "classes", "kind", frozenset(ClassKind)),
        module_methods=_flat(document, "module_methods", "effect", frozenset(ModuleEffect)),
        part_methods=_name_set(document, "part_methods"),
        kind_methods=kind_methods,
        guarded_methods=guarded,
        hooks=hooks,
        handed_networks=networks,
        handed_outputs=handed,
        backward_methods=_flat(document, "backward_methods", "effect", BACKWARD_EFFECTS),
        inert_calls=_name_set(document, "inert_calls"),
        inert_methods=_name_set(document, "inert_methods"),
        runners=_name_set(document, "runners"),
        runner_methods=_name_set(document, "runner_methods"),
        servers=_name_set(document, "servers"),
        given_weights=_name_set(document, "given_weights"),
        concatenations=_name_set(document, "concatenations"),
        allocator_options=_name_set(document, "allocator_options"),
        cut_dtypes=_name_set(document, "cut_dtypes"),
        oom_exceptions=_strings(document, "oom_exceptions"),
        versions=_strings(document, "versions"),
        package_effects=_flat(document, "packages", "effect", FUNCTION_EFFECTS),
        renamed=renamed,
        class_patterns=_patterns(document, "class_patterns", "kind", frozenset(ClassKind)),
        function_patterns=_patterns(document, "function_patterns", "effect", FUNCTION_EFFECTS),
        millions=millions,
        names=_pairs(document, "names"),
        held=_held(document),
        usual_names=_pairs(document, "usual_names"),
        words=words,
    )
    for table, (group, *_) in document.items():
        raise TorchFactsError(f"{group[FILE]}: nothing reads [{table}]: torch_facts/loader.py lists the tables that there are")
    return facts


def _tables(document: _Document, table: str) -> list[_Group]:
    groups = document.pop(table, [])
    for group in groups:
        if not group.get("source"):
            raise TorchFactsError(f"{group[FILE]}: a group of [{table}] has no source")
    return groups


def _word(group: _Group, key: str, allowed: frozenset[_W]) -> _W:
    word = group.get(key)
    for member in allowed:
        if member == word:
            return member
    known = ", ".join(sorted(allowed))
    raise TorchFactsError(
        f"{group[FILE]}: {key} = {word!r} is none of {known}: a new word goes into torch_facts/words.py, twice: the enum and the set of what is allowed"
    )


def _names(group: _Group) -> list[str]:
    """The names of a group; where it has ``under``, each of them under each of those modules."""
    written = group.get("names")
    names = written.split() if isinstance(written, str) else []
    if not names:
        raise TorchFactsError(f"{group[FILE]}: a group has no `names`, a string of names with white space between them")
    modules = cast("list[str]", group.get("under", []))
    return [f"{module}.{name}" for module in modules for name in names] if modules else names


def _groups(document: _Document, table: str, key: str, allowed: frozenset[_W]) -> Iterator[tuple[_W, list[str]]]:
    for group in _tables(document, table):
        yield _word(group, key, allowed), _names(group)


def _add_all(into: dict[_K, _W], table: str, names: Iterable[_K], word: _W) -> None:
    for name in names:
        if name in into:
            raise TorchFactsError(
                f"[{table}] has {name!r} twice, as '{into[name]}' and as '{word}': take it out of one group; "
                f"`grep -rnw {str(name).rpartition('.')[2]} torchmemlint/torch_facts` finds them"
            )
        into[name] = word


def _flat(document: _Document, table: str, key: str, allowed: frozenset[_W]) -> dict[str, _W]:
    flat: dict[str, _W] = {}
    for word, names in _groups(document, table, key, allowed):
        _add_all(flat, table, names, word)
    return flat


def _name_set(document: _Document, table: str) -> frozenset[str]:
    seen: dict[str, str] = {}
    for group in _tables(document, table):
        _add_all(seen, table, _names(group), table)
    return frozenset(seen)


def _pairs(document: _Document, table: str) -> dict[str, str]:
    """``nn=torch.nn``"""
    pairs: dict[str, str] = {}
    for group in _tables(document, table):
        for key, _, value in (text.partition("=") for text in _names(group)):
            _add_all(pairs, table, [key], value)
    return pairs


def _held(document: _Document) -> dict[tuple[str, str], str]:
    held: dict[tuple[str, str], str] = {}
    for group in _tables(document, "held"):
        for name, _, made in (text.partition("=") for text in _names(group)):
            _add_all(held, "held", [(base, name) for base in cast("list[str]", group["bases"])], made)
    return held


def _strings(document: _Document, table: str) -> dict[str, str]:
    return {name: str(value) for group in document.pop(table, []) for name, value in group.items() if name != FILE}


def _patterns(document: _Document, table: str, key: str, allowed: frozenset[_W]) -> dict[str, tuple[tuple[str, _W], ...]]:
    found: dict[str, tuple[tuple[str, _W], ...]] = {}
    for group in _tables(document, table):
        for module in cast("list[str]", group["under"]):
            pattern = rf"{re.escape(module)}\.{group['pattern']}"
            root = module.partition(".")[0]
            found[root] = (*found.get(root, ()), (pattern, _word(group, key, allowed)))
    return found
