"""Which modules no optimizer holds: nobody uses their gradients.

They are copies of a network, as a target network is, or networks that only give features to what learns.
"""

from __future__ import annotations

import re

from torchmemlint.index.arguments import params_given
from torchmemlint.index.fact_words import AttrKind
from torchmemlint.index.facts import ArgFact, CallFact, FunctionFacts
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.semantics.identity.frozen_by_callers import STORED_FLAGS, given_frozen
from torchmemlint.semantics.identity.kinds import class_kind
from torchmemlint.semantics.identity.library_networks import (
    asks_for_settings,
    is_library_network,
    is_of_library,
    is_size,
    only_runs,
    runs_alone,
)
from torchmemlint.semantics.identity.parameters import is_torch_function, parametric_attributes
from torchmemlint.semantics.state import MODULE, Kind, World, memoized, memoized_or
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import ClassKind

RESTORES = TORCH.names["restores"]
PARALLEL = TORCH.words["parallel"]
PARAMETERS = TORCH.words["parameter-iterators"]
WRITES = TORCH.words["writes-into-parameters"]
"""Words of a function that writes into parameters, and does not only go through those of two modules."""
FREEZING = STORED_FLAGS | {TORCH.names["sets-gradient-flag"]}
"""Words of a function that may freeze a module."""
DEEP_COPIES = tuple(f"{name}()" for name in sorted(TORCH.words["deep-copies"]))
MAX_BELOW = 60
"""Functions that are looked through for the making of an optimizer, below one that is given a module."""


def is_copy(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether the module that a function knows under a name or attribute gets its weights from another one, and no optimizer in
    sight holds them, while one holds another module's."""
    places = _places(world, ref, text)
    return bool(places) and all(
        _is_copy_within(world, *where_known(world, where, name), name)
        and not _is_part_of_held(world, where, name)
        and not _is_held_by_giver(world, where, name)
        for where, name in places
    )


def _is_held_by_giver(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether an attribute holds what a constructor was given, and an optimizer holds that where it was made."""
    for fact, at in world.assigned(ref, text):
        maker = FunctionRef(at.path, fact.method)
        if fact.kind is AttrKind.NAME and fact.method and fact.value in _params(world, maker):
            if any(
                is_held(world, giver, name) for giver, name in world.project.objects_given(maker, fact.value) if giver != maker
            ):
                return True
    return False


def _is_part_of_held(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether an optimizer in sight is made with the parameters of a whole that a module is a part of (``self.model`` of
    ``self.model.base``)."""
    names = text.split(".")
    wholes = [".".join(names[:count]) for count in range(1 + (names[0] == "self"), len(names))]
    return any(is_held(world, ref, whole) for whole in wholes)


def holds_tensors(world: World, ref: FunctionRef) -> bool:
    """Whether a function makes an optimizer of a list of tensors (``Adam([image])``)."""
    return any(_listed(arg) for call in _constructors(world, ref) for arg in call.args[:1])


def is_left_out(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether a module was made, or is an attribute, where optimizers are made of other modules' parameters, and none may hold its
    own: a backbone whose features a new layer learns from, a teacher that is only evaluated. A part is left out with its whole."""
    names = text.split(".")
    text = ".".join(names[: 1 + (names[0] == "self")])
    if not text.removeprefix("self.").isidentifier() or text == "self":
        return False
    places = _places(world, ref, text)
    if _is_set_aside(world, *where_known(world, ref, text), text) and not given_frozen(world, ref, text):
        if not any(is_held(world, where, name) or _is_held_by_giver(world, where, name) for where, name in places):
            return True
    asked = [(*where_known(world, where, name), name) for where, name in places]
    return bool(places) and all(
        _is_left_out_within(world, *each) or _is_left_out_with_its_object(world, *each) for each in asked
    )


@memoized
def _is_set_aside(world: World, path: str, inside: str, text: str) -> bool:
    """Whether a module that something gives is only evaluated where optimizers are made of others' parameters, or a framework
    trains another one: a teacher, a reference model."""
    places = scope_of(world, path, inside, text)
    of_class = text.startswith("self.")
    if not (of_class and inside) and not any(text in _params(world, each) for each in places):
        return False
    words = frozenset[str]().union(*(world.evidence(each).get(text, frozenset()) for each in places))
    if TORCH.names["trains"] in words:
        return False
    names = _where_named(world, path, inside, text)
    if any(_may_hand_on(world, each, name) or _holds_trained(world, each, name) for each, name in names):
        return False
    networks = _networks_held(world, _makers_without(world, path, inside, text), not of_class)
    if of_class and not networks:
        networks = _trained_by_framework(world, ClassRef(path, inside), text)
    elif TORCH.names["evaluates"] not in words:
        return False
    return bool(networks) and not any(_may_have_parts(world, each, network) for network in networks for each in places)


def _names_given(world: World, cls: ClassRef, text: str) -> list[tuple[FunctionRef, str]]:
    """What methods call that which they store in an attribute: ``teacher`` of ``self.teacher = teacher.to(device)``."""
    held = [(fact, at, fact.value.partition(".")[0]) for fact, at in world.project.attr(cls, text.removeprefix("self."))]
    return [
        (FunctionRef(at.path, fact.method), name) for fact, at, name in held if fact.method and _is_itself(fact.value, name)
    ]


def _trained_by_framework(world: World, cls: ClassRef, text: str) -> set[str]:
    """What a trainer of a library makes its optimizer of, beside another attribute."""
    order = world.project.mro(cls)
    trainer = any(isinstance(base, str) and TORCH.class_kind(base) is ClassKind.HF_TRAINER for base in order)
    return {f"self.{TRAINED}"} - {text} if trainer else set()


TRAINED = TORCH.names["trained-by-trainer"]
"""The attribute in which the trainer of transformers has what it trains."""


@memoized_or(False)
def _is_left_out_with_its_object(world: World, path: str, inside: str, text: str) -> bool:
    """Whether a module is an attribute of objects that are left out wherever one is made: the network of a criterion."""
    places = scope_of(world, path, inside, text) if inside and text.startswith("self.") else []
    init = world.project.method(ClassRef(path, inside), "__init__") if places else None
    if init is None or any(makes_optimizer(world, each) or _may_hand_on(world, each, text) for each in places):
        return False
    if not _certainly_learns(world, path, inside, text):
        return False
    makers = {(caller.ref, f"{caller.call.callee}()") for caller in world.project.callers(init).calls}
    found = [(ref, [name for name, value in _values(world, ref) if _is_itself(value, made)]) for ref, made in sorted(makers)]
    return bool(found) and all(names and all(is_left_out(world, ref, name) for name in names) for ref, names in found)


def _values(world: World, ref: FunctionRef) -> list[tuple[str, str]]:
    """What a function binds names and attributes to, in words."""
    facts = world.facts(ref)
    found = [*facts.bound, *facts.rebound]
    if facts.owner:
        attrs = world.project.attrs(ClassRef(ref.path, facts.owner))
        found += [(f"self.{attr.name}", attr.value) for attr in attrs if attr.method == facts.qualname]
    return found


def _is_itself(value: str, made: str) -> bool:
    """Whether a text is what a call makes, or what a method of that gives which gives the object itself: ``Loss().cuda()``."""
    rest = value.removeprefix(made).split(".")
    return (
        value.startswith(made)
        and not rest[0]
        and all(each.removesuffix("()") in TORCH.words["gives-itself"] for each in rest[1:])
    )


def _places(world: World, ref: FunctionRef, text: str) -> list[tuple[FunctionRef, str]]:
    """Where a module that a function knows by a name or attribute comes from: the callers that give it, else the function itself;
    none where callers that are not visible do."""
    declared = FunctionRef(ref.path, world.facts(ref).qualname)  # a lambda has its function's parameters
    given = world.project.objects_given(declared, text) if text.isidentifier() else ()
    places = [
        (caller, name) for caller, name in given if world.facts(caller).qualname == MODULE or name not in _params(world, caller)
    ]
    return places if places or text in _params(world, ref) else [(ref, text)]


def is_held(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether some optimizer in a network's scope is made with its parameters."""
    known = _where_named(world, *where_known(world, ref, text), text)
    return any(_is_given_all(world.facts(place), call, name) for place, name in known for call in _constructors(world, place))


def _where_named(world: World, path: str, inside: str, text: str) -> list[tuple[FunctionRef, str]]:
    """The functions in which a module goes by a name, and those that store it as an attribute, with what they call it."""
    given = _names_given(world, ClassRef(path, inside), text) if inside and text.startswith("self.") else []
    return [*((place, text) for place in scope_of(world, path, inside, text)), *given]


def _is_given_all(facts: FunctionFacts, call: CallFact, text: str) -> bool:
    """Whether the constructor of an optimizer is given the parameters of one network, and of no other: as they are, or in a list."""
    before = facts.calls[call.place - 1].callee if call.place else ""
    listed = before == f"{text}.parameters" and any(arg.name in ("list()", "tuple()") for arg in call.args[:1])
    return listed or any(arg.name == f"{text}.parameters()" for arg in call.args)


@memoized
def optimizer_of(world: World, ref: FunctionRef, text: str) -> str:
    """The name or attribute of the one optimizer that holds a network's parameters, "" where it is not known."""
    asked, found = 0, []
    for place, known in _where_named(world, *where_known(world, ref, text), text):
        facts = world.facts(place)
        made = _constructors(world, place)
        asked += sum(call.callee in {f"{known}.{name}" for name in PARAMETERS} for call in facts.calls) if made else 0
        for position, call in enumerate(made):
            if _is_given_all(facts, call, known):
                same = [each.callee for each in made[: position + 1]].count(call.callee)
                names = _assigned(world, place, facts, f"{call.callee}()")
                complete = len(names) == [each.callee for each in made].count(call.callee)
                found.append(names[same - 1] if complete else "")
    return found[0] if asked == len(found) and len(set(found)) == 1 else ""


def _assigned(world: World, ref: FunctionRef, facts: FunctionFacts, made: str) -> list[str]:
    """The names and attributes that a function assigns what the text makes, in its order."""
    once = {name for name, _ in facts.rebound}
    return [name for name, value in _values(world, ref) if value == made and name not in once]


def _params(world: World, ref: FunctionRef) -> frozenset[str]:
    return frozenset(param.name for param in world.header(ref).params)


@memoized
def _is_copy_within(world: World, path: str, inside: str, text: str) -> bool:
    # Few functions say the name of a module that is no local: whether it is a copy then rests on these alone.
    is_global = not inside and not text.startswith("self.")
    saying = [FunctionRef(path, name) for name in world.project.knowing(path, text)] if is_global else None
    if not _is_deep_copy(world, path, inside, text) and not any(
        _copies_into(world.facts(each), text) or _is_given_weights(world, each, text)
        for each in (scope_of(world, path, inside, text) if saying is None else saying)
    ):
        return False
    return bool(_makers_without(world, path, inside, text)) or _is_copied_beside_trained(world, path, inside, text)


def _is_copied_beside_trained(world: World, path: str, inside: str, text: str) -> bool:
    """Whether a class keeps a deep copy in an attribute, and asks for another attribute's parameters, never for the copy's nor for all:
    its optimizer is made where nobody sees it."""
    places = scope_of(world, path, inside, text)
    if not _is_deep_copy(world, path, inside, text) or any(_may_hand_on(world, each, text) for each in places):
        return False
    called = [call.callee for each in places for call in world.facts(each).calls]
    asked = {callee.rpartition(".")[0] for callee in called if callee.rpartition(".")[2] in PARAMETERS}
    return any(each.startswith("self.") for each in asked) and "self" not in asked


@memoized
def _is_left_out_within(world: World, path: str, inside: str, text: str) -> bool:
    if text.startswith("self."):
        held = world.project.attr(ClassRef(path, inside), text.removeprefix("self.")) if inside else ()
        if not held or not all(fact.value.endswith("()") for fact, _ in held):
            return False  # it has another name, under which an optimizer may hold it
    places = scope_of(world, path, inside, text)
    if not text.startswith("self.") and not any(_is_made(world.facts(each), text) for each in places):
        return False  # a function, or what was imported
    if any(_may_hand_on(world, each, text) or _holds_trained(world, each, text) for each in places):
        return False
    if not _certainly_learns(world, path, inside, text):
        return False
    networks = _networks_held(world, _makers_without(world, path, inside, text), bool(inside) and not text.startswith("self."))
    return bool(networks) and not any(_may_have_parts(world, each, network) for network in networks for each in places)


def _networks_held(world: World, makers: list[FunctionRef], alone: bool) -> set[str]:
    """The networks whose parameters optimizers are made with, and the tensors where the module is known in one function ``alone``; none
    where they are given anything else."""
    held: set[str] = set()
    for maker in makers:
        asked = {call.callee for call in world.facts(maker).calls if call.callee.rpartition(".")[2] in PARAMETERS}
        for call in _constructors(world, maker):
            first = call.args[0] if call.args else None
            if first is None:
                return set()
            if listed := _listed(first):
                if not alone or not all(map(_is_tensor, listed)):
                    return set()
                held |= {name.partition(".")[0] for name in listed}
                continue
            plain = bool(first.name) and asks_for_parameters(first.name)
            if not plain and ((first.name and not _is_group(world, maker, first.name)) or not asked):
                return set()
            held |= {callee.rpartition(".")[0] for callee in ([first.name] if plain else asked)}
    return held


def _listed(arg: ArgFact) -> list[str]:
    """What an argument that is a list of names holds; empty for any other."""
    return arg.test[1:-1].split(", ") if arg.test.startswith("[") and arg.test.endswith("]") else []


def _is_tensor(text: str) -> bool:
    """Whether a text in a list that an optimizer is given is a tensor, by its name or made to require grad: no group of parameters."""
    return text.isidentifier() or text.endswith(f".{TORCH.names['sets-gradient-flag']}()")


def _is_group(world: World, ref: FunctionRef, name: str) -> bool:
    """Whether a name is a local that the function itself makes of parameters: a list of groups, a list of what it asked for."""
    facts = world.facts(ref)
    made = {value for bound, value in (*facts.bound, *facts.rebound) if bound == name}
    return name in facts.locals - _params(world, ref) and all(_is_collected(value) for value in made)


def _is_collected(value: str) -> bool:
    """Whether a text is a call of a builtin that only collects, or asks for parameters."""
    return value in ("list()", "filter()", "chain()", "itertools.chain()") or asks_for_parameters(value)


def _may_have_parts(world: World, ref: FunctionRef, network: str) -> bool:
    """Whether a function makes a network of what its text does not name (``ModuleList([a, b])``): a module may be a part of it."""
    facts = world.facts(ref)
    values = [value for name, value in (*facts.bound, *facts.rebound) if name == network]
    values += [fact.value for fact, _ in world.assigned(ref, network)]
    for call in facts.calls:
        if any(value.startswith(f"{call.callee}()") for value in values):
            name = world.project.resolve(ref.path, call.callee, ref.qualname)
            layer = isinstance(name, str) and name.startswith("torch.nn.") and name not in TORCH.words["holders"]
            tensor = isinstance(name, str) and name.startswith("torch.") and is_torch_function(name)
            if not layer and not tensor and any(arg.keyword == "*" or not (arg.name or arg.const) for arg in call.args):
                return True
    return False


def _makers_without(world: World, path: str, inside: str, text: str) -> list[FunctionRef]:
    """The functions that make optimizers where a module goes by that name; none where one of them may hold it."""
    places = scope_of(world, path, inside, text)
    if any(_steps(call.callee, text) for each in places for call in world.facts(each).calls):
        return []  # it goes by its own optimizer (``self.critic.optimizer.step()``)
    makers = [each for each in places if makes_optimizer(world, each)]
    return [] if any(_may_give(world, each, text) for each in makers) else makers


def _certainly_learns(world: World, path: str, inside: str, text: str) -> bool:
    """Whether a module surely has parameters that want gradients: its class is one of the project's that has some and never
    mentions freezing, or weights are loaded into it."""
    places = scope_of(world, path, inside, text)
    classes = {world.project.class_of(each.path, each.qualname, text) for each in places} - {None}
    for cls in classes:
        if isinstance(cls, ClassRef):
            names = frozenset[str]().union(*(facts.names for facts in world.project.within(cls.path, cls.qualname)))
            return names.isdisjoint(FREEZING) and bool(parametric_attributes(world, cls))
    if any(call.callee == f"{text}.load_state_dict" for each in places for call in world.facts(each).calls):
        return True
    if text.startswith("self."):
        known = bool(inside) and all(is_of_library(world, each, text) for each in places[:1])
    else:
        made = [(each, value) for each in places for name, value in world.facts(each).bound if name == text]
        known = bool(made) and all(is_library_network(world, ref, value) for ref, value in made)
    if not known:
        return False
    return all(only_runs(world, each, text) for each in places)


def _may_hand_on(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether a function may hand a module, or its parameters, to what keeps or trains it under another name: an object, a function
    that is not visible, or one that gives back what is trained."""
    facts = world.facts(ref)
    bound = {*facts.bound, *facts.rebound}
    for call in facts.calls:
        given = any(arg.name == text or (arg.name.startswith(f"{text}.") and not is_size(arg.name)) for arg in call.args)
        if not given or _keeps_nothing(world, ref, call):
            continue
        seen = world.project.callees(ref.path, ref.qualname, call.callee, *call.keywords).refs
        if runs_alone(world, ref, call, text):
            continue
        if not seen or any(world.header(each).owner or world.facts(each).names & FREEZING for each in seen):
            return True
        if _may_make_optimizer(world, ref, call):
            return True
        if any(value == f"{call.callee}()" and _is_asked(facts, name) for name, value in bound):
            return True
    if _is_asked(facts, text):
        return True
    # A part that is given something computed gives an output; ``get_submodule("fc")`` and ``get_encoder()`` may give a part.
    run = [call.callee for call in facts.calls if not all(arg.const for arg in call.args)]
    outputs = tuple(f"{callee}()" for callee in run if callee.startswith(f"{text}."))
    return any(_is_part(value, text) and not value.startswith(outputs) for name, value in bound if name != text)


def _steps(callee: str, text: str) -> bool:
    """Whether a call zeroes a module's own gradients, or steps an optimizer that it holds."""
    return callee.startswith(f"{text}.") and callee.rpartition(".")[2] in TORCH.words["optimizer-words"]


def where_known(world: World, ref: FunctionRef, text: str) -> tuple[str, str]:
    """The file in which a function knows a module by a name, and the class or function that has it as an attribute or local."""
    facts = world.facts(ref)
    if text.startswith("self."):
        return ref.path, facts.owner
    return ref.path, facts.qualname if text in facts.locals and facts.qualname != MODULE else ""


def scope_of(world: World, path: str, inside: str, text: str) -> list[FunctionRef]:
    """The functions in which the module goes by that name: those of the class and its bases for an attribute, else the function
    itself, and the file's own statements for what is no local of it."""
    if text.startswith("self."):
        classes = [cls for cls in world.project.mro(ClassRef(path, inside)) if isinstance(cls, ClassRef)] if inside else []
        found = [(cls.path, world.project.within(cls.path, cls.qualname)) for cls in classes]
    elif inside:
        found = [(path, world.project.within(path, inside))]
    else:
        functions = world.project.module(path).functions
        found = [(path, tuple(each for each in functions if each.qualname == MODULE or text not in each.locals))]
    return [FunctionRef(at, each.qualname) for at, functions in found for each in functions]


@memoized
def makes_optimizer(world: World, ref: FunctionRef) -> bool:
    """Whether a function calls the constructor of an optimizer."""
    return bool(_constructors(world, ref))


def _constructors(world: World, ref: FunctionRef) -> list[CallFact]:
    """The calls of a function that make optimizers, or give one more parameters."""
    names = {call.callee: world.project.resolve(ref.path, call.callee, ref.qualname) for call in world.facts(ref).calls}
    made = {callee for callee, name in names.items() if name is not None and _is_optimizer_class(world, name)}
    return [call for call in world.facts(ref).calls if call.callee in made or call.callee.endswith(".add_param_group")]


@memoized
def _is_optimizer_class(world: World, name: str) -> bool:
    """Whether a class is an optimizer, or one of the project below one."""
    if class_kind(name) is Kind.OPTIMIZER:
        return True
    cls = world.symbol(name)
    bases = world.project.mro(cls) if isinstance(cls, ClassRef) else ()
    return any(isinstance(base, str) and class_kind(base) is Kind.OPTIMIZER for base in bases)


def _may_give(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether a function that makes optimizers may give one of them the module's parameters: it asks for them before it makes the
    last (what comes later copies weights), or hands the module to what may make one."""
    made = _constructors(world, ref)
    if _may_hold_element(world, ref, made, text):
        return True
    facts = world.facts(ref)
    last = max(call.place for call in made)
    in_loop = any(call.loops for call in made)
    whole = {f"self.{name}" for name in PARAMETERS} if text.startswith("self.") else set()
    for call in facts.calls:
        asks = _asks(call, text) or call.callee in whole
        if asks and (in_loop or call.place < last):
            return True
        if call in made and any(_is_part(name, text) for arg in call.args for name in _listed(arg)):
            return True
        handed = any(arg.name == text for arg in call.args) and not _keeps_nothing(world, ref, call)
        if handed and (call in made or _may_make_optimizer(world, ref, call)):
            return True
    return False


def _holds_trained(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether a function makes a module of others of which it asks for the parameters: an optimizer holds it in part."""
    facts = world.facts(ref)
    made = tuple(value for name, value in (*facts.bound, *facts.rebound) if name == text)
    given = [arg.name for call in facts.calls for arg in call.args if any(v.startswith(f"{call.callee}()") for v in made)]
    return any(name and _is_asked(facts, name) for name in given)


def _is_made(facts: FunctionFacts, text: str) -> bool:
    """Whether a function binds a name to what a call gives."""
    return any(name == text and value.endswith("()") for name, value in (*facts.bound, *facts.rebound))


def _is_part(value: str, text: str) -> bool:
    """Whether a text is a module, a part of it, or what a method of it gives, but for its weights as data."""
    return value == text or (value.startswith(f"{text}.") and not value.endswith("state_dict()"))


def _is_asked(facts: FunctionFacts, text: str) -> bool:
    """Whether a function asks for the parameters of a module, or of a part of it."""
    return any(_asks(call, text) for call in facts.calls)


def _asks(call: CallFact, text: str) -> bool:
    """Whether a call gives the parameters of a module, or of a part of it."""
    return call.callee.startswith(f"{text}.") and call.callee.rpartition(".")[2] in PARAMETERS


def _keeps_nothing(world: World, ref: FunctionRef, call: CallFact) -> bool:
    """Whether a call that is given a module neither trains it nor keeps it under another name."""
    return call.callee.endswith(RESTORES) or _is_wrapped(world.facts(ref), call) or asks_for_settings(world, ref, call.callee)


def _is_wrapped(facts: FunctionFacts, call: CallFact) -> bool:
    """Whether a call gives a module its own name again, as one that runs on several devices: ``net = DataParallel(net)``."""
    made = f"{call.callee}()"
    return call.callee.rpartition(".")[2] in PARALLEL and all(value != made for _, value in (*facts.bound, *facts.rebound))


def _may_hold_element(world: World, ref: FunctionRef, made: list[CallFact], text: str) -> bool:
    """Whether optimizers are made in a loop over networks, of which the module may be one: each with the parameters of an element
    (``for name in self.nets: Adam(self.nets[name].parameters())``), or one with those of all. Which container is meant, its last
    name shows; where it has none, as a tuple of networks, it may be any."""
    facts = world.facts(ref)
    direct = [arg.name for call in made for arg in call.args if call.loops and asks_for_parameters(arg.name)]
    if not all(any(asks_for_parameters(arg.name) for arg in call.args) for call in made):
        direct += [f"{call.callee}()" for call in facts.calls if call.loops and asks_for_parameters(f"{call.callee}()")]
    container = TAKEN.sub("", text).rpartition(".")[2] if TAKEN.search(text) else ""
    sources = dict(facts.bound)
    params = {param.name for param in facts.params}
    for asked in direct:
        element = asked.rpartition(".")[0]
        if element.isidentifier() and element in facts.locals - params:
            element = sources.get(element, "[]")
        if not element.endswith("[]"):
            continue
        holder = VIEWS.sub("", element.removesuffix("[]"))
        if not holder or (container and holder.rpartition(".")[2] == container):
            return True
    return False


TAKEN = re.compile(r"(?<!^self)(\.\w+|\[[^\[\]]*\])$")
"""The end of a text that takes an element of a container, or an attribute of another object than ``self``."""
VIEWS = re.compile(r"\.(values|items|children|named_children|modules)\(\)$")
"""Ways to the elements of a container."""


def asks_for_parameters(text: str) -> bool:
    """Whether a text is ``net.parameters()``, or the like."""
    return text.endswith("()") and text.removesuffix("()").rpartition(".")[2] in PARAMETERS


def _may_make_optimizer(world: World, ref: FunctionRef, call: CallFact) -> bool:
    """Whether what is called makes an optimizer, by itself or by what it calls in the project; what is not visible may."""
    seen = set(world.project.callees(ref.path, ref.qualname, call.callee, *call.keywords).refs)
    todo = sorted(seen)
    while todo and len(seen) <= MAX_BELOW:
        each = todo.pop()
        if makes_optimizer(world, each):
            return True
        for inner in world.facts(each).calls:
            below = set(world.project.callees(each.path, each.qualname, inner.callee, *inner.keywords).refs) - seen
            seen |= below
            todo += sorted(below)
    return not seen or bool(todo)


def _is_given_weights(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether a function hands the module to one that copies another's weights into it: ``hard_update(target, source)``."""
    for call in _calls_by_argument(world, ref).get(text, ()):
        for callee in world.project.callees(ref.path, ref.qualname, call.callee, *call.keywords).refs:
            facts = world.facts(callee)
            params = facts.params[bool(facts.owner) :]
            given = params_given(params, text, call.args)
            if any(_copies_into(facts, name) for name in given):
                return True
            states = any(arg.name.endswith(".state_dict()") for arg in call.args)
            if states and any(each.callee == f"{name}.load_state_dict" for name in given for each in facts.calls):
                return True
    return False


@memoized
def _calls_by_argument(world: World, ref: FunctionRef) -> dict[str, list[CallFact]]:
    """The calls of a function by the names that they are given."""
    found: dict[str, list[CallFact]] = {}
    for call in world.facts(ref).calls:
        for name in {arg.name: None for arg in call.args if arg.name}:
            found.setdefault(name, []).append(call)
    return found


def _copies_into(facts: FunctionFacts, text: str) -> bool:
    """Whether a function copies another module's weights into this one: a state dict, parameter by parameter, or all of it."""
    for call in facts.calls:
        if call.callee == f"{text}.load_state_dict" and any(arg.name.endswith(".state_dict()") for arg in call.args):
            return True
    called = {call.callee for call in facts.calls}
    others = {callee for callee in called if callee.rpartition(".")[2] in PARAMETERS and callee.rpartition(".")[0] != text}
    if others and called & {f"{text}.{name}" for name in PARAMETERS} and facts.names & WRITES:
        return True
    return any(name == text and made.startswith(DEEP_COPIES) for name, made in (*facts.bound, *facts.rebound))


def _is_deep_copy(world: World, path: str, inside: str, text: str) -> bool:
    """Whether a class assigns its attribute a deep copy of something."""
    if not inside or not text.startswith("self."):
        return False
    held = world.project.attr(ClassRef(path, inside), text.removeprefix("self."))
    return any(fact.value.startswith(DEEP_COPIES) for fact, _ in held)
