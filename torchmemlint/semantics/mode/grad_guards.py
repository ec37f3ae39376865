"""Grad mode, as the facts of callers and methods show it before anything is run."""

from __future__ import annotations

from torchmemlint.index.edges import Caller
from torchmemlint.index.grad_effects import OFF
from torchmemlint.index.modes import StartMode
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.semantics.identity import is_made_parametric, is_never_chosen, parametric_attributes
from torchmemlint.semantics.mode import purpose
from torchmemlint.semantics.state import MODULE, Mode, Shape, World, memoized
from torchmemlint.torch_facts import TORCH

CALLS_INSIDE = 2
"""How deep a module's forward is followed into methods of its own class."""


def start_mode(world: World, ref: FunctionRef) -> StartMode:
    """The grad mode in which a root starts, as ``CallerMode.mode``; UNKNOWN where only a guess would say "on": a path
    through a call that merely has the same method name, or a method without callers of a class that is driven where grad mode is
    switched off by a statement."""
    found = world.project.grad_mode(ref)
    if found.mode == StartMode.MIXED and any(not c.certain for c in found.path):
        return StartMode.UNKNOWN
    if is_called_by_what_is_handed_on(world, ref):
        return StartMode.NO_CALLERS
    owner = world.header(ref).owner
    if found.mode == StartMode.NO_CALLERS and owner:
        first = found.path[-1].ref if found.path else ref  # nothing visible calls this one
        by_name = called_by_name(world, ref) or (first.qualname != MODULE and called_by_name(world, first))
        if by_name or world.project.driven_without_grad(ClassRef(ref.path, owner)):
            return StartMode.UNKNOWN
    return found.mode


def is_called_by_what_is_handed_on(world: World, ref: FunctionRef) -> bool:
    """Whether the callers of a function run it with grad mode as they find it, and one of them, or who calls that, is handed on as a
    value: whoever runs that one mostly leaves grad mode alone."""
    found = world.project.grad_mode(ref)
    path = found.path if found.mode == StartMode.ESCAPES else ()
    if not path or not all(caller.certain or is_sole(world, caller) for caller in path):
        return False
    above = [ref, *(caller.ref for caller in path)]
    methods = [each for each in above if each.qualname != MODULE and world.header(each).owner]
    if any(_called_by_name(world, each, WITHOUT_GRAD) for each in methods):
        return False
    first = above[-1]  # of a method that is handed on, the object's class chooses what runs it
    return first.qualname == MODULE or (not world.header(first).owner and world.project.callers(first).escapes)


def is_sole(world: World, caller: Caller) -> bool:
    """Whether a call can only mean the methods of one class and of those below it: no other of the project has one of that name."""
    owners = [
        ClassRef(method.path, method.qualname.rpartition(".")[0])
        for method in world.project.methods_named(caller.call.callee.rpartition(".")[2])
    ]
    return any(all(owner in world.project.mro(each) for each in owners) for owner in owners)


def called_by_name(world: World, ref: FunctionRef) -> bool:
    """Whether some call in the project, in a place where grad mode may be off, has the method's name and a receiver of which
    nothing is known: the method's caller may be there."""
    return _called_by_name(world, ref, (*WITHOUT_GRAD, StartMode.UNSEEN_BASE, StartMode.ESCAPES))


WITHOUT_GRAD = (StartMode.OFF, StartMode.MIXED)


def _called_by_name(world: World, ref: FunctionRef, modes: tuple[StartMode, ...]) -> bool:
    last = ref.qualname.rpartition(".")[2]
    if last.startswith("__") or last in TORCH.methods or any(last == name for _, name in TORCH.kind_methods):
        return False  # tensors, distributions and optimizers have a method of that name: a call of it shows nothing
    for caller, receiver, guarded in world.project.calls_by_name(last):
        if world.project.class_of(caller.path, caller.qualname, receiver) is not None or is_imported(
            world, caller.path, receiver
        ):
            continue
        if guarded or world.project.grad_mode(caller).mode in modes:
            return True
    return False


def is_imported(world: World, path: str, receiver: str) -> bool:
    root = receiver.partition(".")[0]
    return any(local == root for local, _ in world.project.imports(path))


@memoized
def guards_itself(world: World, name: str, shape: Shape) -> bool:
    """Whether most methods in the project that a call of that name may mean, by its arguments, switch grad mode off by
    themselves: by decorator, or inside. Those that only hand on to another object's method of that name, as they are called, say
    nothing; nor does any other where one that switches it off calls that name itself, of a part that it holds."""
    methods = [ref for ref in world.project.methods_named(name) if shape.fits(world.header(ref).params)]
    guarding = {ref for ref in methods if guards(world, ref)}
    others = [ref for ref in methods if ref not in guarding and not _hands_on(world, ref, name)]
    return len(guarding) > len(others) or any(_runs_part(world, ref, name) for ref in guarding)


@memoized
def may_guard(world: World, ref: FunctionRef, callee: str) -> bool:
    """Whether a call of ``callee`` in a function fits some method of that name that switches grad mode off by itself, whatever others
    of the name do."""
    guarding = [each for each in world.project.methods_named(callee.rpartition(".")[2]) if guards(world, each)]
    calls = [call for call in world.facts(ref).calls if call.callee == callee] if guarding else ()
    shapes = {Shape(sum(not arg.keyword for arg in call.args), frozenset(call.keywords)) for call in calls}
    return any(shape.fits(world.header(each).params) for each in guarding for shape in shapes)


def _hands_on(world: World, ref: FunctionRef, name: str) -> bool:
    calls = world.facts(ref).calls
    return any(call.callee.endswith("." + name) for call in calls) and not any(
        purpose.may_be_network(call.callee) for call in calls
    )


def _runs_part(world: World, ref: FunctionRef, name: str) -> bool:
    """Whether a method calls one of that name of what its object holds."""
    parts = (call.callee.removesuffix(f".{name}") for call in world.facts(ref).calls if call.callee.endswith(f".{name}"))
    return any(part.startswith("self.") for part in parts)


def guards(world: World, ref: FunctionRef) -> bool:
    """Whether a function switches grad mode off by itself: by decorator, inside, or through methods of its class that do."""
    return _switches_off(world, ref) or _runs_by_what_guards(world, ref)


def _switches_off(world: World, ref: FunctionRef) -> bool:
    facts = world.facts(ref)
    if facts.names & TORCH.words["switches-grad"] and not _guards_numbers_alone(world, ref):
        return True
    return any(world.project.decorator_effect(ref.path, facts.parent, use) == OFF for use in facts.decorators)


def _guards_numbers_alone(world: World, ref: FunctionRef) -> bool:
    """Whether a method runs nothing that may be a network with grad mode off, beside arithmetic of torch's functions with grad mode on:
    a loss that measures something on the side, or matches targets."""
    facts = world.facts(ref)
    inside, outside = set[str](), set[str]()
    for call in facts.calls:
        effects = (world.project.manager_effect(ref.path, ref.qualname, use) for use in call.managers)
        (inside if OFF in effects else outside).add(call.callee)

    def computes(callee: str) -> bool:
        return (world.project.resolve(ref.path, callee, ref.qualname) or "").startswith("torch.")

    def runs(callee: str) -> bool:
        if computes(callee) or ("." not in callee and world.project.is_function(ref.path, ref.qualname, callee)):
            return False
        return callee.startswith(("self.", "super()")) or purpose.may_be_network(callee)

    return bool(inside) and not any(map(runs, inside)) and any(map(computes, outside - inside))


def _runs_by_what_guards(world: World, ref: FunctionRef) -> bool:
    """Whether a method runs its object's networks only through methods of the same class that guard themselves."""
    facts = world.facts(ref)
    cls = ClassRef(ref.path, facts.owner)
    names = (
        {call.callee.removeprefix("self.") for call in facts.calls if call.callee.startswith("self.")} if facts.owner else set()
    )
    methods = {name: method for name in sorted(names) if (method := world.project.method(cls, name)) is not None}
    guarding = {name for name, method in methods.items() if method != ref and _switches_off(world, method)}
    return bool(guarding) and names <= guarding


@memoized
def guards_what_it_runs(world: World, cls: ClassRef) -> bool:
    """Whether a module's forward, and what it calls of its own class, runs modules of its own, and each with grad mode off."""
    return _runs_of(world, cls, TORCH.names["forward"], 0) == {Mode.OFF}


def _runs_of(world: World, cls: ClassRef, name: str, depth: int) -> set[Mode]:
    """The grad modes in which a method runs the parts of its object that may have parameters, and its parameters."""
    method = world.project.method(cls, name)
    if method is None or depth > CALLS_INSIDE:
        return {Mode.ON}
    facts, parts = world.facts(method), parametric_attributes(world, cls)
    found: set[Mode] = set()
    called: set[str] = set()
    for call in facts.calls:
        if any(is_never_chosen(world, cls, test) for test in call.branch):
            continue
        effects = [world.project.manager_effect(method.path, method.qualname, use) for use in reversed(call.managers)]
        off = next((effect for effect in effects if effect is not None), None) == OFF
        handed = {arg.name.removeprefix("self.") for arg in call.args if arg.name.startswith("self.")} & parts if off else set()
        called |= handed
        found |= {Mode.OFF} if handed else set()
        start, _, rest = call.callee.partition(".")
        part = rest.partition(".")[0].partition("[")[0].partition("(")[0]
        if start == "super()":
            found.add(Mode.ON)
        if start != "self" or not part:
            continue
        own = part == rest and world.project.method(cls, part) is not None
        if not own and part not in parts:
            continue
        called.add(part)
        inside = _runs_of(world, cls, part, depth + 1) if own else {Mode.ON}
        found |= {Mode.OFF} if off and inside else inside
    if any(is_made_parametric(world, cls, part) for part in sorted(facts.names & (parts - called))):
        found.add(Mode.ON)  # a parameter, or a part that is handed on or gone through
    return found
