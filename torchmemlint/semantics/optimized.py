"""Which modules no optimizer holds: copies of a network, as a target network is, whose gradients nobody uses."""

from __future__ import annotations

from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import FunctionRef
from torchmemlint.semantics.kinds import class_kind
from torchmemlint.semantics.state import Kind
from torchmemlint.semantics.world import MODULE, World

PARAMETERS = ("parameters", "named_parameters")


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
    makers = [facts for facts in scope if world.remember(_makes_optimizer, FunctionRef(ref.path, facts.qualname))]
    return bool(makers) and not any(_speaks_of(facts, text) for facts in makers)


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
    names = {world.project.resolve(ref.path, call.callee, ref.qualname) for call in world.facts(ref).calls}
    return any(name is not None and class_kind(name) is Kind.OPTIMIZER for name in names)


def _speaks_of(facts: FunctionFacts, text: str) -> bool:
    """Whether a function that makes an optimizer may give it the module's parameters: it asks for them, or hands the module on."""
    return any(
        call.callee in {f"{text}.{name}" for name in PARAMETERS} or any(arg.name == text for arg in call.args)
        for call in facts.calls
        if not call.callee.endswith("load_state_dict")
    )


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
