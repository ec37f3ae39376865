"""Which modules no optimizer holds: copies of a network, as a target network is, whose gradients nobody uses."""

from __future__ import annotations

from torchmemlint.index.facts import CallFact, FunctionFacts
from torchmemlint.index.project import FunctionRef
from torchmemlint.semantics.kinds import class_kind
from torchmemlint.semantics.state import Kind
from torchmemlint.semantics.world import MODULE, World

PARAMETERS = ("parameters", "named_parameters")
MAX_BELOW = 60
"""Functions that are looked through for the making of an optimizer, below one that is given a module."""


def is_copy(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether the module that a function knows under a name or attribute gets its weights from another one, and no optimizer in
    sight holds them, while one holds another module's."""
    given = world.project.objects_given(ref, text) if text.isidentifier() else ()
    places = [
        (caller, name) for caller, name in given if world.facts(caller).qualname == MODULE or name not in _params(world, caller)
    ]
    if text in _params(world, ref) and not places:
        return False
    return all(_is_copy_in(world, where, name) for where, name in places or [(ref, text)])


def _params(world: World, ref: FunctionRef) -> frozenset[str]:
    return frozenset(param.name for param in world.facts(ref).params)


def _is_copy_in(world: World, ref: FunctionRef, text: str) -> bool:
    scope = _scope(world, ref, text)
    if not any(_copies_into(facts, text) for facts in scope):
        return False
    places = [FunctionRef(ref.path, facts.qualname) for facts in scope]
    makers = [each for each in places if world.remember(_makes_optimizer, each)]
    return bool(makers) and not any(_may_give(world, each, text) for each in makers)


def _scope(world: World, ref: FunctionRef, text: str) -> tuple[FunctionFacts, ...]:
    """The functions in which the module goes by that name: those of the class for an attribute, else the function itself, and the
    file's own statements for what is no local of it."""
    facts = world.facts(ref)
    if text.startswith("self."):
        return world.within(ref.path, facts.owner) if facts.owner else ()
    if text in facts.locals and facts.qualname != MODULE:
        return world.within(ref.path, facts.qualname)
    return tuple(
        each for each in world.project.module(ref.path).functions if each.qualname == MODULE or text not in each.locals
    )


def _makes_optimizer(world: World, ref: FunctionRef) -> bool:
    """Whether a function calls the constructor of an optimizer."""
    return bool(_constructors(world, ref))


def _constructors(world: World, ref: FunctionRef) -> list[CallFact]:
    """The calls of a function that make optimizers, or give one more parameters."""
    names = {call.callee: world.project.resolve(ref.path, call.callee, ref.qualname) for call in world.facts(ref).calls}
    made = {callee for callee, name in names.items() if name is not None and class_kind(name) is Kind.OPTIMIZER}
    return [call for call in world.facts(ref).calls if call.callee in made or call.callee.endswith(".add_param_group")]


def _may_give(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether a function that makes optimizers may give one of them the module's parameters: it asks for them before it makes the
    last (what comes later copies weights), or hands the module to what may make one."""
    made = _constructors(world, ref)
    last = max(call.place for call in made)
    in_loop = any(call.loops for call in made)
    asks = {f"{text}.{name}" for name in PARAMETERS}
    for call in world.facts(ref).calls:
        if call.callee in asks and (in_loop or call.place < last):
            return True
        handed = not call.callee.endswith("load_state_dict") and any(arg.name == text for arg in call.args)
        if handed and (call in made or _may_make_optimizer(world, ref, call)):
            return True
    return False


def _may_make_optimizer(world: World, ref: FunctionRef, call: CallFact) -> bool:
    """Whether what is called makes an optimizer, by itself or by what it calls in the project; out of sight it may."""
    seen = set(world.project.callees(ref.path, ref.qualname, call.callee, *call.keywords).refs)
    todo = sorted(seen)
    while todo and len(seen) <= MAX_BELOW:
        each = todo.pop()
        if world.remember(_makes_optimizer, each):
            return True
        for inner in world.facts(each).calls:
            below = set(world.project.callees(each.path, each.qualname, inner.callee, *inner.keywords).refs) - seen
            seen |= below
            todo += sorted(below)
    return not seen or bool(todo)


def _copies_into(facts: FunctionFacts, text: str) -> bool:
    """Whether a function copies another module's weights into this one: a state dict, parameter by parameter, or all of it."""
    for call in facts.calls:
        if call.callee == f"{text}.load_state_dict" and any(arg.name.endswith(".state_dict()") for arg in call.args):
            return True
    called = {call.callee for call in facts.calls}
    others = {callee for callee in called if callee.rpartition(".")[2] in PARAMETERS and callee.rpartition(".")[0] != text}
    if others and called & {f"{text}.{name}" for name in PARAMETERS}:
        return True
    return any(name == text and made in ("copy.deepcopy()", "deepcopy()") for name, made in (*facts.bound, *facts.rebound))
