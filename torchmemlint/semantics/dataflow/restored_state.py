"""What an object is that gets a state back by ``load_state_dict()``: by what the function, or its class, does with it."""

from __future__ import annotations

from torchmemlint.index.fact_words import AttrKind
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.semantics.dataflow.readers import OWN
from torchmemlint.semantics.state import World, memoized
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import ClassKind

OF_OPTIMIZERS = TORCH.words["of-schedulers"] | {TORCH.names["clears-gradients"]}
"""Methods of an optimizer: those of a scheduler, and one."""
SCALES = TORCH.words["scales-losses"]
OF_SCHEDULERS = TORCH.words["of-schedulers"]
WITHOUT_TENSORS = frozenset({ClassKind.SCHEDULER, ClassKind.SCALER, ClassKind.LOADER, ClassKind.DATASET})
STEPS = TORCH.names["steps"]
ZEROES = TORCH.names["clears-gradients"]


def has_no_tensors(world: World, ref: FunctionRef, receiver: str) -> bool:
    """Whether the state of what a function calls ``receiver`` is numbers: that of a scheduler, of a gradient scaler, or of what gives
    batches (where it is, and of what its generator goes on)."""
    found = classes_of(world, ref, receiver)
    kinds = {_kind_of(world, cls) for cls in found}
    if found and kinds <= WITHOUT_TENSORS:
        return True
    if kinds - WITHOUT_TENSORS - {None}:
        return False
    facts, evidence = world.facts(ref), world.evidence(ref)
    names = {receiver, *(text for name, text in facts.bound if name == receiver and "(" not in text)}
    words = frozenset[str]().union(*(evidence.get(name, frozenset()) for name in names))
    if words & (TORCH.words["gives-rates"] | SCALES):
        return True
    read = {text.rpartition(".")[2] for text in facts.reads if text.rpartition(".")[0] in names}
    if not words <= OF_SCHEDULERS or not read <= OF_SCHEDULERS:
        return False
    if is_made_of_optimizer(world, ref, names) or is_held_for_optimizer(world, ref, receiver):
        return True
    return STEPS in words and is_stepped_beside(evidence, names)


def _kind_of(world: World, cls: object) -> object:
    """The kind of a library's class, or of the one below which a class of the project stands; that class itself where there is none."""
    bases = world.project.mro(cls) if isinstance(cls, ClassRef) else (cls,)
    kinds = {TORCH.class_kind(base) for base in bases if isinstance(base, str)} - {None}
    return kinds.pop() if len(kinds) == 1 else None if isinstance(cls, str) else cls


def classes_of(world: World, ref: FunctionRef, text: str) -> tuple[object, ...]:
    """The classes that an expression may be an instance of: those of a parameter, or of an attribute that a constructor's parameter is bound
    to, by what calls give for it."""
    known = world.project.class_of(ref.path, ref.qualname, text)
    if known is not None:
        return (known,)
    facts = world.facts(ref)
    if any(param.name == text for param in facts.params):
        return world.project.classes_given(
            FunctionRef(ref.path, facts.qualname), text
        )  # a lambda has its function's parameters
    found: list[object] = []
    for fact, cls in world.assigned(ref, text):
        if fact.kind is AttrKind.NAME and fact.method.endswith("__init__"):
            found += classes_of_parameter(world, FunctionRef(cls.path, fact.method), fact.value)
    return tuple(found)


def classes_of_parameter(world: World, init: FunctionRef, name: str) -> tuple[object, ...]:
    return world.project.classes_given(init, name) if any(p.name == name for p in world.header(init).params) else ()


def is_made_of_optimizer(world: World, ref: FunctionRef, names: set[str]) -> bool:
    """Whether a call made the object, and an optimizer was among its arguments: it is known for one, or its gradients are zeroed."""
    facts, evidence = world.facts(ref), world.evidence(ref)
    makers = {text.removesuffix("()") for name, text in (*facts.bound, *facts.rebound) if name in names and text.endswith("()")}
    given = {arg.name for call in facts.calls if call.callee in makers for arg in call.args if arg.name}
    return any(is_optimizer(world, ref, name, evidence.get(name, frozenset())) for name in sorted(given))


def is_held_for_optimizer(world: World, ref: FunctionRef, receiver: str) -> bool:
    """Whether an attribute holds what a call made that got an optimizer by that name: ``get_scheduler(kind, optimizer=…)``."""
    owner = world.header(ref).owner
    if not owner or not OWN.fullmatch(receiver):
        return False
    called = {call.callee for facts in world.project.within(ref.path, owner) for call in facts.calls}
    if f"{receiver}.{STEPS}" not in called:
        return False
    made = [
        (FunctionRef(cls.path, fact.method), fact.value.removesuffix("()"))
        for fact, cls in world.assigned(ref, receiver)
        if fact.method and fact.kind is AttrKind.CALL
    ]
    return any(
        call.callee == callee and any(arg.keyword == OPTIMIZER for arg in call.args)
        for maker, callee in made
        for call in world.facts(maker).calls
    )


OPTIMIZER = TORCH.names["optimizer-argument"]
"""What schedulers call the optimizer that they are given."""


def is_optimizer(world: World, ref: FunctionRef, text: str, words: frozenset[str]) -> bool:
    found = classes_of(world, ref, text)
    kinds = {TORCH.class_kind(cls) if isinstance(cls, str) else cls for cls in found}
    if kinds - {None}:
        return kinds == {ClassKind.OPTIMIZER}
    return ZEROES in words or (bool(found) and STEPS in words and words <= OF_OPTIMIZERS)


@memoized
def keeps_optimizers(world: World) -> bool:
    """Whether the project saves the state of an optimizer, or saves nothing that is visible."""
    saving = world.project.functions_calling(TORCH.names["saves"])
    refs = dict.fromkeys([*saving, *(caller.ref for ref in saving for caller in world.project.callers(ref).calls)])
    return not refs or any(
        TORCH.names["state"] in words and is_optimizer(world, ref, receiver, words)
        for ref in refs
        for receiver, words in world.evidence(ref).items()
    )


def is_stepped_beside(evidence: dict[str, frozenset[str]], names: set[str]) -> bool:
    """Whether another object is stepped and has its gradients zeroed, and gradients are zeroed by nothing that is not stepped: where
    ``net.zero_grad()`` does it, what is stepped may be the optimizer."""
    zeroed = {text for text, words in evidence.items() if ZEROES in words}
    return bool(zeroed) and not zeroed & names and all(STEPS in evidence[text] for text in zeroed)
