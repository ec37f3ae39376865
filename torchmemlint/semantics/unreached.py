"""Functions that a visible program does not reach, though it uses their file."""

from __future__ import annotations

from torchmemlint.index.modes import StartMode
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.semantics.world import MODULE, World
from torchmemlint.torch_facts import TORCH

HOOKS = TORCH.words["forward"] | TORCH.words["training-steps"] | {name for _, name in TORCH.hooks}
COMMANDS = TORCH.words["makes-commands"]
MAIN = "main"
MAX_DEPTH = 3
"""How far callers are followed up."""


def is_unreached(world: World, ref: FunctionRef) -> bool:
    """Whether a program is visible that does not reach a function: nothing calls it or hands it on, where a script's own statements or
    its ``main`` call others of the same file, or other files call others of the same class; or only functions call it of which that is so."""
    return world.memoize(_is_unreached, (ref, 0))


def _is_unreached(world: World, asked: tuple[FunctionRef, int]) -> bool:
    ref, depth = asked
    project = world.project
    callers = project.callers(ref)
    owner, _, name = ref.qualname.rpartition(".")
    if callers.escapes or ref.qualname == MODULE or name == MAIN:
        return False
    above = list(dict.fromkeys(caller.ref for caller in callers.calls if caller.ref != ref))
    if above:  # not by way of methods: those that only a library's users call lead to all others
        if owner or depth == MAX_DEPTH or any(world.header(each).owner for each in above):
            return False
        return all(world.memoize(_is_unreached, (each, depth + 1)) for each in above)
    if _may_be_a_hook(world, ref) or project.grad_mode(ref).mode == StartMode.UNSEEN_BASE:
        return False
    if owner and project.calls_by_name(name):
        return False  # on an object of which the class is not known
    if world.memoize(_makes_commands, ref.path):
        return False
    beside = [FunctionRef(ref.path, each) for each in world.memoize(_functions_of, (ref.path, owner))]
    return any(
        caller.ref.qualname == MODULE
        or caller.ref.qualname.rpartition(".")[2] == MAIN
        or (owner and caller.ref.path != ref.path)
        for other in beside
        if other != ref
        for caller in project.callers(other).calls
    )


def is_left_over(world: World, ref: FunctionRef) -> bool:
    """Whether nothing in the project calls a function or hands it on, though other files use its file: it may be left over."""
    project = world.project
    owner, _, name = ref.qualname.rpartition(".")
    if ref.qualname == MODULE or name == MAIN or not project.is_imported_file(ref.path):
        return False
    callers = project.callers(ref)
    if callers.escapes or any(caller.ref != ref for caller in callers.calls) or (owner and project.calls_by_name(name)):
        return False
    if world.memoize(_makes_commands, ref.path) or world.facts(ref).decorators:
        return False  # what a command line calls, or a property
    special = name.startswith("__") and name.endswith("__")
    return not special and not _may_be_a_hook(world, ref) and project.grad_mode(ref).mode != StartMode.UNSEEN_BASE


def _may_be_a_hook(world: World, ref: FunctionRef) -> bool:
    """Whether a framework may call a method by its name: one of its classes is another package's."""
    owner, _, name = ref.qualname.rpartition(".")
    return name in HOOKS and bool(owner) and any(isinstance(base, str) for base in world.project.mro(ClassRef(ref.path, owner)))


def _makes_commands(world: World, path: str) -> bool:
    return any(call.callee.rpartition(".")[2] in COMMANDS for call in world.project.module(path).functions[0].calls)


def _functions_of(world: World, key: tuple[str, str]) -> tuple[str, ...]:
    """The methods of a class, or a file's functions outside of classes."""
    path, owner = key
    return tuple(facts.qualname for facts in world.project.module(path).functions if facts.owner == owner)
