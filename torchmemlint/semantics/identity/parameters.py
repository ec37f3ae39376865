"""Which modules have parameters: what the facts of classes, their constructors and attributes show before anything is run."""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence

from torchmemlint.index.arguments import argument_for
from torchmemlint.index.fact_words import AttrKind
from torchmemlint.index.facts import ArgFact, AttrFact, CallFact, FunctionFacts, ParamFact
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.semantics.identity.kinds import class_kind, looks_like_module
from torchmemlint.semantics.identity.library_networks import is_library_network, made_by, maker_of_module
from torchmemlint.semantics.state import MODULE, PLAIN_ROOTS, Kind, World, does_nothing, memoized, memoized_or
from torchmemlint.torch_facts import MODULE_KINDS, TORCH
from torchmemlint.torch_facts.words import ClassKind, Effect

MODULE_CLASS = TORCH.names["module"]
AFFINE = {
    **dict.fromkeys(TORCH.words["affine-norms"], True),
    **dict.fromkeys(TORCH.words["plain-norms"], False),
}
"""Normalisations, and whether they have parameters by default."""
HOLDERS = TORCH.words["holders"]
"""Modules of which the parameters are those of what they are given."""
PARAMETERS = TORCH.words["parameter-classes"]
RUNS = re.compile(r"_?(forward|encode|decode|generate|extract|predict|apply|get)(_|$)")
"""Methods of other packages' objects that may run a module, or give one."""
PLAIN = PLAIN_ROOTS | TORCH.words["without-parameters"]
"""Packages whose functions and classes have no parameters."""
HARMLESS_METHODS = TORCH.methods.keys() | TORCH.words["container-methods"] | TORCH.words["reads-or-reports"]
"""Methods of tensors, containers and texts, which make no module (``to`` and ``type`` give what they are asked of)."""


def has_parameters(world: World, cls: ClassRef) -> bool:
    """Whether a module class may have parameters: False only when all its classes are visible and none of them makes a
    parameter, or holds anything that may have one."""
    return parametric(world, cls) != frozenset()


@memoized_or(None)  # a class that holds its own kind
def parametric(world: World, cls: ClassRef, exact: bool = False) -> frozenset[str] | None:
    """The parameters of a module class's constructor by which modules with parameters may come in; None where the class may
    make some itself, or is not wholly visible. ``exact``: what is asked of is constructed from this very class, and from
    none below it."""
    project = world.project
    forward = project.method(cls, TORCH.names["forward"]) or project.method(cls, "__call__")
    is_abstract = forward is None or does_nothing(world, forward)
    if (is_abstract and not exact) or (project.subclasses(cls) and (is_abstract or not exact)):
        return None  # one that stands for its subclasses
    needed: frozenset[str] = frozenset()
    params: tuple[ParamFact, ...] = ()
    for base in reversed(project.mro(cls)):
        if isinstance(base, str):
            if not _is_bare_base(base):
                return None
            continue
        found = _with_constructor(world, base, params, needed)
        if found is None:
            return None
        params, needed = found
    return needed


def _is_bare_base(base: str) -> bool:
    """Whether a base class that is not visible brings no parameters of its own."""
    if base in TORCH.words["bare-bases"] or base.split(".")[0] in PLAIN_ROOTS:
        return True
    return TORCH.class_kind(base) in (ClassKind.LOSS, ClassKind.MODULE_NOPARAM)


def _with_constructor(
    world: World, cls: ClassRef, params: tuple[ParamFact, ...], needed: frozenset[str]
) -> tuple[tuple[ParamFact, ...], frozenset[str]] | None:
    """The parameters of a class's constructor, and the ``needed`` ones of them, where these are those of its nearest base; None
    where the class may make modules with parameters itself."""
    init = FunctionRef(cls.path, f"{cls.qualname}.__init__")
    given: set[str] = set()
    if world.project.method(cls, "__init__") == init:
        own = world.facts(init)
        handed = None if _adds_modules(own) else _handed_on(world, init, own, params, needed)
        if handed is None:
            return None
        needed, params = handed, own.params[1:]
        given = {param.name for param in params}
    for attr in (choice for fact in world.project.attrs(cls) for choice in _choices(fact)):
        if _may_hold_parameter(world, cls, attr):
            if attr.kind is not AttrKind.NAME or attr.method != init.qualname or attr.value not in given:
                return None
            needed |= {attr.value}
    return params, needed


def _adds_modules(constructor: FunctionFacts) -> bool:
    """Whether a constructor adds parameters or modules in another way than by assigning attributes."""
    names = constructor.names
    if names & TORCH.words["registers"]:
        return True
    return "append" in names and bool(names & TORCH.words["parameter-containers"])


def _handed_on(
    world: World, init: FunctionRef, facts: FunctionFacts, params: tuple[ParamFact, ...], needed: frozenset[str]
) -> frozenset[str] | None:
    """Of the ``needed`` parameters (``params``) of the constructor above this one, those that get what this one is given, by
    its own names; None where one of them may get a module that is made here."""
    own = {param.name for param in facts.params}
    found: set[str] = set()
    for call in facts.calls if needed else ():
        receiver, _, name = call.callee.rpartition(".")
        if name != "__init__":
            continue
        args = call.args if receiver == "super()" else call.args[1:]
        for word in needed:
            arg = argument_for(params, word, args)
            if arg is None:
                if any(one.keyword in ("*", "**") for one in args):
                    found.add(word)
            elif arg.name in own:
                found.add(arg.name)
            elif not _is_without_parameters(world, init, arg):
                return None
    return frozenset(found)


@memoized_or(False)
def made_without_parameters(world: World, ref: FunctionRef, callee: str, cls: ClassRef) -> bool:
    """Whether every call of ``callee`` in a function, which constructs ``cls``, makes a module that has no parameters."""
    needed = parametric(world, cls, True)
    if not needed:
        return needed is not None
    init = world.project.method(cls, "__init__")
    calls = [call for call in world.facts(ref).calls if call.callee == callee]
    if init is None or not calls:
        return False
    params = world.header(init).params[1:]
    for call in calls:
        for word in needed:
            arg = argument_for(params, word, call.args)
            if arg is None and any(one.keyword in ("*", "**") for one in call.args):
                return False
            if arg is not None and not _is_without_parameters(world, ref, arg):
                return False
    return True


def _is_without_parameters(world: World, ref: FunctionRef, arg: ArgFact) -> bool:
    """Whether an argument in a function is not a module with parameters, by what it says: a literal, a formula, a function."""
    if arg.const:
        return True
    return bool(arg.name) and _is_known_function(world, ref.path, ref.qualname, arg.name)


def _is_known_function(world: World, path: str, qualname: str, text: str) -> bool:
    """Whether dotted text is a function or method of the project, or one of torch's functions."""
    if world.project.is_function(path, qualname, text):
        return True
    absolute = world.project.resolve(path, text, qualname)
    return absolute is not None and is_torch_function(absolute)


def parametric_attributes(world: World, cls: ClassRef) -> frozenset[str]:
    """The attributes of a class, inherited ones too, that may hold a module with parameters, or a parameter."""
    return frozenset(
        attr.name
        for base in world.project.mro(cls)
        if isinstance(base, ClassRef)
        for attr in world.project.attrs(base)
        if any(_may_hold_parameter(world, base, choice) for choice in _choices(attr))
    )


def _choices(attr: AttrFact) -> tuple[AttrFact, ...]:
    """What an assignment may put into an attribute, one by one: ``given or self.made()`` is what is given, or what the call gives."""
    if attr.kind is not AttrKind.OTHER or not attr.element:
        return (attr,)
    return (
        attr._replace(kind=AttrKind.CALL, element=""),
        attr._replace(kind=AttrKind.NAME, value=attr.element, element=""),
    )


def module_given(world: World, ref: FunctionRef, parameter: str) -> ClassRef | str | None:
    """The class of the modules that visible calls give for a parameter, ``torch.nn.Module`` where they are of several; None
    where one gives an object of another kind, or nothing is known of any."""
    found = world.project.classes_given(ref, parameter)
    if not found:
        return MODULE_CLASS if is_module_given(world, ref, parameter) else None
    if not all(_is_module(world, cls) for cls in found):
        return None
    return found[0] if len(found) == 1 else MODULE_CLASS


@memoized
def callable_given(world: World, ref: FunctionRef, parameter: str) -> ClassRef | None:
    """The one class, no module's, of the objects that visible calls give for a parameter, where objects of it are called: a criterion."""
    found = world.project.classes_given(ref, parameter)
    cls = found[0] if len(found) == 1 else None
    if not isinstance(cls, ClassRef) or world.is_module_class(cls) is not False:
        return None
    return cls if world.project.method(cls, "__call__") is not None else None


@memoized
def callable_with(world: World, names: tuple[str, ...]) -> ClassRef | None:
    """The one class of the project, no module's, whose objects are called with arguments that are called so."""
    found = []
    for method in world.project.methods_named("__call__"):
        header = world.header(method)
        cls = ClassRef(method.path, header.owner)
        if tuple(param.name for param in header.params[1:]) == names and world.is_module_class(cls) is False:
            found.append(cls)
    return found[0] if len(found) == 1 else None


MAX_GIVEN = 12
"""Objects that are looked at, of those that calls give for a parameter."""


def is_module_given(world: World, ref: FunctionRef, parameter: str) -> bool:
    """Whether what is done with the objects that callers give for a parameter, here and there, or how they are made, shows modules."""
    given = world.project.objects_given(ref, parameter)
    if looks_like_module(frozenset().union(*(words_on(world, *each) for each in given))):
        return True
    words = words_given(world, ref, parameter)
    if words and looks_like_module(words | words_on(world, ref, parameter)):
        return True
    made = makers_of(world, given)
    return bool(made) and all(maker_of_module(world, giver, made_by(world, giver, text)) is not None for giver, text in made)


def makers_of(world: World, given: Sequence[tuple[FunctionRef, str]]) -> list[tuple[FunctionRef, str]]:
    """Those of the objects that calls give for a parameter which the function that gives them was not given itself."""
    return [each for each in given if each[1] not in {param.name for param in world.header(each[0]).params}]


@memoized
def words_given(world: World, ref: FunctionRef, parameter: str) -> frozenset[str]:
    """The methods that everyone who makes an object which is given for a parameter calls on it."""
    given = world.project.objects_given(ref, parameter)
    made = makers_of(world, given) or given
    return frozenset.intersection(*(words_on(world, *each) for each in made)) if 0 < len(given) <= MAX_GIVEN else frozenset()


def words_on(world: World, ref: FunctionRef, text: str) -> frozenset[str]:
    """The methods that a function calls on what it calls by a text, also where it binds that (``net = make().cuda().eval()``)."""
    _, called, links = made_by(world, ref, text).partition("()")
    chained = (link.removesuffix("()") for link in links.split(".")[1:]) if called else ()
    return world.evidence(ref).get(text, frozenset()) | frozenset(chained)


def _is_module(world: World, cls: ClassRef | str) -> bool:
    return bool(world.is_module_class(cls)) if isinstance(cls, ClassRef) else class_kind(cls) is Kind.MODULE


@memoized
def makes_bare(world: World, ref: FunctionRef, callee: str, absolute: str) -> bool:
    """Whether every call of ``callee`` in the function makes one of torch's normalisations (``absolute``) without its affine
    parameters, all that it could have, or an embedding of given weights that stay as they are."""
    calls = _calls_by_callee(world, ref).get(callee, [])
    if absolute in TORCH.given_weights:
        return bool(calls) and not any(arg.keyword == "freeze" and arg.const != "True" for call in calls for arg in call.args)
    default = AFFINE.get(absolute)
    if default is None:
        return False
    given = [[arg.const for arg in call.args if arg.keyword in TORCH.words["affine-arguments"]] for call in calls]
    return bool(calls) and all(
        one == ["False"] or (not one and not default and len(call.args) < 4) for one, call in zip(given, calls, strict=True)
    )


def made_constant(world: World, ref: FunctionRef, callee: str, absolute: str) -> bool:
    """Whether every call of ``callee`` in a function makes a parameter that never learns: ``nn.Parameter(mean, requires_grad=False)``."""
    return absolute in PARAMETERS and _made_constant(world, ref, callee)


@memoized
def _made_constant(world: World, ref: FunctionRef, callee: str) -> bool:
    calls = _calls_by_callee(world, ref).get(callee, [])
    return bool(calls) and all(
        any(arg.const == "False" and arg.keyword in (TORCH.names["gradient-flag"], "") for arg in call.args[1:])
        for call in calls
    )


def made_bounded(world: World, ref: FunctionRef, callee: str) -> bool:
    """Whether every call of ``callee`` in a function gives a ``maxlen``, by name or behind what to begin with."""
    calls = _calls_by_callee(world, ref).get(callee, [])
    return bool(calls) and all("maxlen" in call.keywords or len(call.args) > 1 for call in calls)


@memoized
def _calls_by_callee(world: World, ref: FunctionRef) -> dict[str, list[CallFact]]:
    found: dict[str, list[CallFact]] = {}
    for call in world.facts(ref).calls:
        found.setdefault(call.callee, []).append(call)
    return found


def may_hold_module(world: World, cls: ClassRef, name: str) -> bool:
    """Whether a class's own assignments to an attribute may put a module there: not where all of them are literals, or
    objects of classes that are known to be none."""
    for attr in world.project.attrs(cls):
        if attr.name != name or attr.kind is AttrKind.CONST:
            continue
        absolute = (
            world.project.resolve(cls.path, attr.value.removesuffix("()"), attr.method) if attr.kind is AttrKind.CALL else None
        )
        inner = world.project.klass(absolute) if absolute is not None else None
        if inner is None or world.is_module_class(inner) is not False:
            return True
    return False


def _may_hold_parameter(world: World, cls: ClassRef, attr: AttrFact) -> bool:
    """Whether an assignment to an attribute may put a module with parameters there, or a parameter."""
    if attr.kind in (AttrKind.CONST, AttrKind.FUNCTION):
        return False
    if attr.kind is AttrKind.NAME and _is_known_function(world, cls.path, attr.method, attr.value):
        return False
    if attr.kind is AttrKind.PART:  # of what a function gives: a module if it makes any, and if no other thing is known of it
        made = world.project.resolve(cls.path, attr.element.removesuffix("()"), attr.method)
        maker = world.project.function(made) if made is not None else None
        return maker is not None and _may_make_module(world, maker)
    if attr.kind is not AttrKind.CALL:
        # A bare name or an expression: a number from the arguments, unless a module's class is known, or it is called as one.
        known = world.project.attribute_class(cls, attr.name)
        of_module = isinstance(known, ClassRef) and world.is_module_class(known) and has_parameters(world, known)
        return of_module or _is_used_as_module(world, cls, attr) or _is_part_of_library_network(world, cls, attr)
    made, _, method = attr.value.removesuffix("()").partition("().")
    absolute = world.project.resolve(cls.path, made, attr.method)
    if absolute is None:
        return not _is_asked_as_tensor(attr.value) and _may_own_method_give_parameter(world, cls, attr, made)
    if method and "(" not in method and method in TORCH.methods:
        # `torch.ones(3).bool()`: a tensor, which is no parameter of the module that holds it.
        return absolute != TORCH.names["tensor-class"] and TORCH.function_effect(absolute) is not Effect.SOURCE
    maker = FunctionRef(cls.path, attr.method or MODULE)
    inner = world.project.klass(absolute)
    if inner is not None:
        return bool(world.is_module_class(inner)) and not made_without_parameters(world, maker, made, inner)
    if absolute in HOLDERS and attr.element:
        text = attr.element.removesuffix("()")
        found = world.project.resolve(cls.path, text, attr.method) if text != attr.element else None
        each = world.project.klass(found) if found is not None else None
        return each is None or not made_without_parameters(world, maker, text, each)
    if (
        absolute in HOLDERS
        and attr.value == f"{made}()"
        and (holds_none(world, maker, made) or is_filled_with_none(world, cls, attr, made))
    ):
        return False
    return _may_give_parameter(world, cls, attr, made, absolute)


def _is_asked_as_tensor(chain: str) -> bool:
    """Whether a chain of calls (``given.view().to()``) has a method of tensors that modules do not have."""
    methods = [link.rpartition(".")[2] for link in chain.split("()") if "." in link]
    return any(method in TORCH.methods and method not in TORCH.module_methods for method in methods)


def _may_own_method_give_parameter(world: World, cls: ClassRef, attr: AttrFact, callee: str) -> bool:
    """Whether what is called may give a module or a parameter: not a method of this class that makes none, in a subclass either.
    One that only hands on what it was given (``self.checked(gamma)``) may where the attribute is used as a module."""
    receiver, _, name = callee.rpartition(".")
    if receiver != "self":
        return True
    methods = _methods_of_all(world, cls, name)
    if not methods or any(_may_make_module(world, method) for method in methods):
        return True
    return any(_may_hand_on(world, method) for method in methods) and _is_used_as_module(world, cls, attr)


@memoized
def _methods_of_all(world: World, cls: ClassRef, name: str) -> tuple[FunctionRef, ...]:
    """The methods of a name that a class and those below it have; none where one of them has no such method."""
    found = dict.fromkeys(world.project.method(one, name) for one in (cls, *world.project.subclasses(cls)))
    return () if None in found else tuple(method for method in found if method is not None)


def _is_used_as_module(world: World, cls: ClassRef, attr: AttrFact) -> bool:
    return bool(_methods_called_on(world, cls, attr) & {"()", TORCH.names["parameters"], TORCH.names["forward"]})


def _is_part_of_library_network(world: World, cls: ClassRef, attr: AttrFact) -> bool:
    """Whether an attribute is assigned a part of a network that a library makes, there or under a local name."""
    if not attr.value or not attr.method:
        return False
    ref = FunctionRef(cls.path, attr.method)
    return is_library_network(world, ref, attr.value)


@memoized_or(True)
def _may_hand_on(world: World, method: FunctionRef) -> bool:
    """Whether a method may give back a module that it did not make: it computes nothing, or returns what it was given or holds
    (``return body.to(device)``), by itself or through another method of its class."""
    facts = world.facts(method)
    outside = {param.name for param in facts.params}
    bound = dict(facts.bound)
    uses = list(facts.returned)
    for use in uses:
        if use.alternative is not None:
            uses.append(use.alternative)
        root, dot, rest = use.callee.partition(".")
        text = f"{bound.get(root, root)}{dot}{rest}"
        if text.partition(".")[0] not in outside or _is_asked_as_tensor(text):
            continue
        own = world.project.callees(method.path, method.qualname, text.removesuffix("()")).refs
        if not own or any(_may_hand_on(world, each) for each in own):
            return True
    return not facts.calls


@memoized
def holds_none(world: World, ref: FunctionRef, callee: str) -> bool:
    """Whether every call of ``callee`` in a function, which makes a ``Sequential`` or the like, is given modules, and none that has
    parameters; and nothing is put in later."""
    if world.facts(ref).names & TORCH.words["fills-holders"]:
        return False
    calls = _calls_by_callee(world, ref).get(callee, [])
    given = [arg for call in calls for arg in call.args]
    return bool(given) and all(call.args for call in calls) and all(_is_bare_part(world, ref, callee, arg) for arg in given)


def is_filled_with_none(world: World, cls: ClassRef, attr: AttrFact, callee: str) -> bool:
    """Whether a list of modules is made empty, and methods of its class put modules without parameters in, and nothing else is
    (``self.kernels.append(Gaussian(size))``)."""
    return _is_filled_with_none(world, cls, attr.method, attr.name, callee)


@memoized
def _is_filled_with_none(world: World, cls: ClassRef, method: str, name: str, callee: str) -> bool:
    made = _calls_by_callee(world, FunctionRef(cls.path, method)).get(callee, [])
    if not method or not made or any(call.args for call in made) or world.project.subclasses(cls):
        return False
    place = f"self.{name}"
    filled = [
        (FunctionRef(cls.path, facts.qualname), call)
        for facts in world.project.within(cls.path, cls.qualname)
        for call in facts.calls
        if call.callee.rpartition(".")[0] == place and call.callee.rpartition(".")[2] in TORCH.words["fills-holders"]
    ]
    return bool(filled) and all(
        bool(call.args) and all(_is_bare_part(world, ref, "", arg) for arg in call.args) for ref, call in filled
    )


def _is_bare_part(world: World, ref: FunctionRef, holder: str, arg: ArgFact) -> bool:
    """Whether an argument is a module that is made there, and has no parameters; what is another ``holder`` is asked of itself."""
    made = arg.name.removesuffix("()")
    if arg.keyword or made == arg.name:
        return False
    if made == holder:
        return True
    absolute = world.project.resolve(ref.path, made, ref.qualname)
    if absolute is None:
        return False
    cls = world.project.klass(absolute)
    if cls is not None:
        return made_without_parameters(world, ref, made, cls)
    return TORCH.class_kind(absolute) in (ClassKind.MODULE_NOPARAM, ClassKind.LOSS) or makes_bare(world, ref, made, absolute)


_WITHOUT_PARAMETERS = frozenset(
    {ClassKind.MODULE_NOPARAM, ClassKind.LOSS, ClassKind.OPTIMIZER, ClassKind.LOADER, ClassKind.DISTRIBUTION}
)
_MAY_GIVE_PARAMETER = frozenset({Effect.LEAF, Effect.MODULE, Effect.COMPILE})


def _may_give_parameter(world: World, cls: ClassRef, attr: AttrFact, made: str, absolute: str) -> bool:
    """As ``_may_hold_parameter``, for the result of a call that constructs no class of the project."""
    kind = TORCH.class_kind(absolute)
    bare = kind is ClassKind.MODULE or absolute in TORCH.given_weights
    if bare and attr.method and makes_bare(world, FunctionRef(cls.path, attr.method), made, absolute):
        return False
    if made_constant(world, FunctionRef(cls.path, attr.method), made, absolute):
        return False
    if kind is not None:
        return kind not in _WITHOUT_PARAMETERS
    effect = TORCH.function_effect(absolute)
    if effect is Effect.LOAD:
        return "()" in _methods_called_on(world, cls, attr)  # what is called is a compiled module
    if effect is not None or absolute.split(".")[0] in PLAIN:
        return effect in _MAY_GIVE_PARAMETER
    function = world.project.function(absolute)
    if function is not None:
        return _may_make_module(world, function)
    # An object of another package: no module where all that is asked of it is what modules do not have.
    words = _methods_called_on(world, cls, attr)
    return not words or any(word == "()" or word in TORCH.module_methods or RUNS.match(word) for word in words)


def _methods_called_on(world: World, cls: ClassRef, attr: AttrFact) -> frozenset[str]:
    """What the class calls on an attribute (see ``World.evidence``)."""
    if not attr.method:
        return frozenset()
    return world.evidence(FunctionRef(cls.path, attr.method)).get(f"self.{attr.name}", frozenset())


@memoized_or(True)
def _may_make_module(world: World, ref: FunctionRef) -> bool:
    """Whether a function may construct a module or a parameter: it names a class or torch's modules, or calls what may."""
    facts = world.facts(ref)
    if facts.returns in TORCH.words["plain-returns"]:
        return False
    if "nn" in facts.names or any(name[:1].isupper() and _may_be_class(world, ref, facts, name) for name in facts.names):
        return True
    return any(_may_call_give_module(world, ref, call) for call in facts.calls)


def _may_call_give_module(world: World, ref: FunctionRef, call: CallFact) -> bool:
    """Whether a call in a function may give a module: not where all that it runs is visible and makes none, nor for functions of torch
    and numpy or methods of tensors and containers. What is called without a name that is known (``find(name)(…)``) may."""
    called = world.project.callees(ref.path, ref.qualname, call.callee, *call.keywords).refs
    if called:
        return any(_may_make_module(world, callee) for callee in called)
    absolute = world.project.resolve(ref.path, call.callee, ref.qualname)
    if absolute is not None:
        return not is_torch_function(absolute) and absolute.split(".")[0] not in PLAIN
    receiver, _, method = call.callee.rpartition(".")
    return not receiver or method not in HARMLESS_METHODS


def _may_be_class(world: World, ref: FunctionRef, facts: FunctionFacts, name: str) -> bool:
    """Whether a name that is written as a class's may be a module's: not a local, and not a type of tensors (``torch.FloatTensor``)."""
    if hasattr(builtins, name) or name in TORCH.words["abstract-classes"]:
        return False  # an exception of Python's, or what an argument is asked to be
    if name in facts.locals:
        return any(call.callee == name for call in facts.calls)
    return world.project.resolve(ref.path, name, ref.qualname) is not None or not is_torch_function(f"torch.{name}")


def is_made_parametric(world: World, cls: ClassRef, name: str) -> bool:
    """Whether an attribute is assigned a parameter, or a module, that is made there by its name."""
    for attr, at in world.project.attr(cls, name):
        absolute = (
            world.project.resolve(at.path, attr.value.partition("()")[0], attr.method) if attr.kind is AttrKind.CALL else None
        )
        if absolute is None:
            continue
        inner = world.project.klass(absolute)
        if inner is not None and world.is_module_class(inner) is not False:
            return True
        if TORCH.class_kind(absolute) in MODULE_KINDS or TORCH.function_effect(absolute) in (Effect.LEAF, Effect.MODULE):
            return True
    return False


def is_torch_function(absolute: str) -> bool:
    """Whether an absolute name is that of a function of torch's, and none that gives a module."""
    return TORCH.class_kind(absolute) is None and TORCH.function_effect(absolute) not in (None, Effect.MODULE, Effect.LEAF)
