"""Reads ``torch.toml`` into one frozen table, and refuses it when it contradicts itself.

The table says what is true of names; what follows from it is decided in ``semantics``. The words it uses:

Effects of calls (``functions``, ``methods``, values of ``kind_methods``):

    keep            the result hangs on the graphs of the tensor arguments (none of them attached: no graph)
    view            keep, and the result may share the storage of the receiver or first tensor argument
    loss            keep; a loss function
    cut             the result is a tensor without a graph, whatever the arguments
    source          a fresh tensor without a graph (a leaf that requires grad when called with ``requires_grad=True``)
    leaf            a fresh leaf that requires grad
    mixed-max       several results: the values keep, the indices (integers) are cut; one result when called without a dim
    inplace         keep; changes the receiver or first argument, which takes the graphs of the other arguments
    device          keep; moves or converts the receiver (to an integer or boolean dtype: cut, see ``cut_dtypes``)
    item            a plain value read from the tensor
    number, shape   a plain value
    detach-inplace  the receiver loses its graph
    requires-grad   the receiver starts to require grad, or stops with ``False``
    hook            keeps the function that it is given
    grad-off        context manager or decorator that switches grad mode off (unless its argument is False)
    grad-on         the same, on
    grad-set        grad mode becomes the argument: context manager, decorator, or a plain call for what follows
    autocast        context manager or decorator
    backward        back-propagates the receiver (method) or the first argument (function)
    autograd-grad   differentiates the first argument; the result has a graph only with ``create_graph=True``
    checkpoint      runs the function that is its first argument on the others; the result keeps
    pack            makes a PackedSequence of its first argument: ``.data`` of it keeps the graph
    module          builds a module
    compile         returns (a form of) the module or function that is its first argument
    load            reads a file; the result is a container of tensors without graphs
    rng-state       a small tensor without a graph
    clip-grad       changes gradients in place; a tensor without a graph
    empty-cache, memory-fraction
                    the allocator calls that rules are about
    no-effect       neither keeps nor back-propagates its arguments; the result is of no interest
    backpropagates  back-propagates its first argument
    passes          returns something that hangs on its first argument
    wraps           returns forms of its arguments, a tuple when there are several

Attributes have the effects ``cut``, ``view``, ``number`` and ``graph`` (a node of the graph itself).
Methods of a Module: ``self`` (returns the module), ``eval``, ``train``, ``freeze`` (self; with False nothing requires grad any
more), ``forward``, ``hook``, ``plain``.
Hooks, for what surrounds the body of an overriding method: ``grad-off``, ``grad-on``, ``backward-return`` (grad is on, and the
framework back-propagates what is returned, or its "loss" entry).
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

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FUNCTION_EFFECTS = _words(
    """keep view loss cut source leaf mixed-max inplace number grad-off grad-on grad-set autocast backward autograd-grad
    checkpoint pack module compile load rng-state clip-grad empty-cache memory-fraction no-effect"""
)
METHOD_EFFECTS = _words(
    """keep view cut source mixed-max inplace device item number shape detach-inplace requires-grad hook backward"""
)
ATTRIBUTE_EFFECTS = frozenset({"cut", "view", "number", "graph"})
MODULE_EFFECTS = frozenset({"self", "eval", "train", "freeze", "forward", "hook", "plain"})
KIND_METHOD_EFFECTS = frozenset({"keep", "cut", "number", "no-effect", "backpropagates", "wraps", "clip-grad", "autocast"})
HOOK_EFFECTS = frozenset({"grad-off", "grad-on", "backward-return"})
BACKWARD_EFFECTS = frozenset({"backpropagates", "passes"})
CLASS_KINDS = _words(
    """module module-noparam loss wrapper ema optimizer scheduler loader dataset scaler backward-callable distribution
    lightning-module lightning-callback lightning-trainer accelerator hf-trainer hf-model metric writer predictor"""
)
MODULE_KINDS = frozenset({"module", "module-noparam", "loss", "wrapper", "ema", "lightning-module", "hf-model"})
"""Kinds of classes that are torch.nn.Module and are called on tensors (metrics are too, but have no parameters)."""

_K = TypeVar("_K", bound=Hashable)
_Group: TypeAlias = Mapping[str, object]
_Pattern: TypeAlias = tuple[re.Pattern[str], str]


@dataclass(frozen=True, slots=True)
class GuardedMethod:
    """A method that runs a model under no_grad by itself: any method of that name where ``keywords`` and ``package`` are empty,
    else one that is called with one of the keywords, or in a file that imports the package."""

    keywords: frozenset[str]
    package: str


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

    functions: dict[str, str]
    """Absolute name → effect. ``function_effect`` also knows families of names."""
    methods: dict[str, str]
    """Name of a torch.Tensor method → effect."""
    attributes: dict[str, str]
    """Name of a torch.Tensor attribute → effect."""
    classes: dict[str, str]
    """Absolute name → kind. ``class_kind`` also knows families of names."""
    module_methods: dict[str, str]
    """Name of a torch.nn.Module method → effect."""
    part_methods: frozenset[str]
    """Methods of other libraries' modules that return a module that is part of them."""
    module_evidence: frozenset[str]
    """Methods whose call tells that the receiver is a Module (``eval``: only without arguments)."""
    kind_methods: dict[tuple[str, str], str]
    """(kind of class, method) → effect."""
    guarded_methods: dict[str, GuardedMethod]
    """Name of a method of an unknown object that switches grad mode off by itself → what tells that it is meant."""
    hooks: dict[tuple[str, str], str]
    """(absolute name of a base class, method that overrides) → what surrounds the call."""
    backward_methods: dict[str, str]
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
    """Absolute names of what makes a module of given weights, which want no gradient unless it is told otherwise
    (``freeze=False``)."""
    shares_storage: frozenset[str]
    """Tensor methods and attributes whose result shares the receiver's storage (where nothing has to be copied), though
    their effect is not "view"."""
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
    roots: dict[str, str]
    """Top package → effect of all its functions."""
    renamed: dict[str, Renamed]
    """Absolute name that is deprecated → what stands for it today."""
    class_patterns: tuple[_Pattern, ...]
    function_patterns: tuple[_Pattern, ...]
    _found: dict[tuple[str, str], str | None] = field(default_factory=dict, repr=False, compare=False)

    def function_effect(self, name: str) -> str | None:
        """The effect of the function with this absolute name, or None when nothing is known about it."""
        effect = self.functions.get(name)
        if effect is not None:
            return effect
        root = name.partition(".")[0]
        return self.roots.get(root) or self._match("function", name, self.function_patterns)

    def class_kind(self, name: str) -> str | None:
        """The kind of the class with this absolute name, or None when nothing is known about it."""
        return self.classes.get(name) or self._match("class", name, self.class_patterns)

    def _match(self, table: str, name: str, patterns: tuple[_Pattern, ...]) -> str | None:
        key = (table, name)
        if key not in self._found:
            self._found[key] = next((word for pattern, word in patterns if pattern.fullmatch(name)), None)
        return self._found[key]


@cache
def load() -> TorchFacts:
    """The table that ships with torchmemlint, read once."""
    return parse(Path(__file__).with_name("torch.toml").read_text(encoding="utf-8"))


def parse(text: str) -> TorchFacts:
    """A table from TOML text. Raises TorchFactsError when it is malformed, lacks a source, or names something twice."""
    try:
        document: dict[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TorchFactsError(f"the table of torch knowledge is not TOML: {error}") from error

    functions: dict[str, str] = {}
    methods: dict[str, str] = {}
    for effect, names in _groups(document, "operations", "effect", FUNCTION_EFFECTS & METHOD_EFFECTS):
        _add_all(functions, "functions", (f"torch.{name}" for name in names), effect)
        _add_all(methods, "methods", names, effect)
    for effect, names in _groups(document, "functions", "effect", FUNCTION_EFFECTS):
        _add_all(functions, "functions", names, effect)
    for effect, names in _groups(document, "methods", "effect", METHOD_EFFECTS):
        _add_all(methods, "methods", names, effect)
    kind_methods: dict[tuple[str, str], str] = {}
    for group in _tables(document, "kind_methods"):
        kind, effect = _word(group, "kind", CLASS_KINDS), _word(group, "effect", KIND_METHOD_EFFECTS)
        _add_all(kind_methods, "kind_methods", ((kind, name) for name in _names(group)), effect)
    guarded = {
        name: GuardedMethod(frozenset(str(group.get("keywords", "")).split()), str(group.get("package", "")))
        for group in _tables(document, "guarded_methods")
        for name in _names(group)
    }
    hooks: dict[tuple[str, str], str] = {}
    for group in _tables(document, "hooks"):
        effect, bases = _word(group, "effect", HOOK_EFFECTS), cast("list[str]", group["bases"])
        _add_all(hooks, "hooks", ((base, name) for base in bases for name in _names(group)), effect)
    renamed: dict[str, Renamed] = {}
    for group in _tables(document, "renamed"):
        new, keyword, value = (str(group[key]) for key in ("new", "keyword", "value"))
        for name in _names(group):
            parameters = tuple(str(group["parameters"]).split())
            renamed[name] = Renamed(new, keyword, value, parameters, frozenset((new, *str(group.get("also", "")).split())))
    return TorchFacts(
        functions=functions,
        methods=methods,
        attributes=_flat(document, "attributes", "effect", ATTRIBUTE_EFFECTS),
        classes=_flat(document, "classes", "kind", CLASS_KINDS),
        module_methods=_flat(document, "module_methods", "effect", MODULE_EFFECTS),
        part_methods=_name_set(document, "part_methods"),
        module_evidence=_name_set(document, "module_evidence"),
        kind_methods=kind_methods,
        guarded_methods=guarded,
        hooks=hooks,
        backward_methods=_flat(document, "backward_methods", "effect", BACKWARD_EFFECTS),
        inert_calls=_name_set(document, "inert_calls"),
        inert_methods=_name_set(document, "inert_methods"),
        runners=_name_set(document, "runners"),
        runner_methods=_name_set(document, "runner_methods"),
        servers=_name_set(document, "servers"),
        given_weights=_name_set(document, "given_weights"),
        shares_storage=_name_set(document, "shares_storage"),
        concatenations=_name_set(document, "concatenations"),
        allocator_options=_name_set(document, "allocator_options"),
        cut_dtypes=_name_set(document, "cut_dtypes"),
        oom_exceptions=_strings(document, "oom_exceptions"),
        versions=_strings(document, "versions"),
        roots=_strings(document, "roots"),
        renamed=renamed,
        class_patterns=_patterns(document, "class_patterns", "kind", CLASS_KINDS),
        function_patterns=_patterns(document, "function_patterns", "effect", FUNCTION_EFFECTS),
    )


def _tables(document: Mapping[str, object], table: str) -> list[_Group]:
    found = document.get(table, [])
    groups = cast("list[_Group]", [found] if isinstance(found, dict) else found)
    for group in groups:
        if not group.get("source"):
            raise TorchFactsError(f"a group of [{table}] has no source")
    return groups


def _word(group: _Group, key: str, allowed: frozenset[str]) -> str:
    word = group.get(key)
    if not isinstance(word, str) or word not in allowed:
        raise TorchFactsError(f"{key} = {word!r} is none of {', '.join(sorted(allowed))}")
    return word


def _names(group: _Group) -> list[str]:
    """The names of a group; where it has ``under``, each of them under each of those modules."""
    names = cast(str, group["names"]).split()
    if not names:
        raise TorchFactsError("a group has no names")
    modules = cast("list[str]", group.get("under", []))
    return [f"{module}.{name}" for module in modules for name in names] if modules else names


def _groups(document: Mapping[str, object], table: str, key: str, allowed: frozenset[str]) -> Iterator[tuple[str, list[str]]]:
    for group in _tables(document, table):
        yield _word(group, key, allowed), _names(group)


def _add_all(into: dict[_K, str], table: str, names: Iterable[_K], word: str) -> None:
    for name in names:
        if name in into:
            raise TorchFactsError(f"{table} has {name!r} twice, as {into[name]!r} and as {word!r}")
        into[name] = word


def _flat(document: Mapping[str, object], table: str, key: str, allowed: frozenset[str]) -> dict[str, str]:
    flat: dict[str, str] = {}
    for word, names in _groups(document, table, key, allowed):
        _add_all(flat, table, names, word)
    return flat


def _name_set(document: Mapping[str, object], table: str) -> frozenset[str]:
    seen: dict[str, str] = {}
    for group in _tables(document, table):
        _add_all(seen, table, _names(group), table)
    return frozenset(seen)


def _strings(document: Mapping[str, object], table: str) -> dict[str, str]:
    return dict(cast("dict[str, str]", document.get(table, {})))


def _patterns(document: Mapping[str, object], table: str, key: str, allowed: frozenset[str]) -> tuple[_Pattern, ...]:
    return tuple((re.compile(cast(str, group["pattern"])), _word(group, key, allowed)) for group in _tables(document, table))
