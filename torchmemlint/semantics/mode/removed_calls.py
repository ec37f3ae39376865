"""Code that raises on any torch of today (https://pytorch.org/blog/pytorch-0_4_0-migration-guide/).

A number that is taken out of a loss by ``loss.data[0]``: since torch 0.4 a loss has no dimension, and since 1.0 an index of it raises
IndexError. Of another tensor ``x.data[0]`` is right: so what is indexed must be back-propagated in the same function, or come from a
loss or a sum over everything.

A function that makes new variables of hidden states, and of what is no variable goes through the elements: since torch 0.4
``type(h) == Variable`` holds for no tensor, and the last elements are tensors over which nobody can iterate (TypeError, measured with
torch 2.13).
"""

from __future__ import annotations

from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.walk import nodes_of
from torchmemlint.lower.written import dotted
from torchmemlint.semantics.state import World, memoized
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import ClassKind, Effect

BACKWARD, DATA = TORCH.names["backward"], TORCH.names["data"]
MAX_CALLERS = 4
WHOLE = frozenset({"mean", "sum"})
"""Methods that, without arguments, leave no dimension."""
WHOLE_FUNCTIONS = frozenset(f"torch.{name}" for name in WHOLE)
"""The same, of a tensor alone."""


INDEXED = "written for torch before 0.5: `loss.data[0]` raises IndexError on any later one"
REWRAPPED = (
    "written for torch before 0.4: `type(h) == Variable` holds for no tensor of a later one, and `{name}` raises TypeError"
)


def why_dead(world: World, ref: FunctionRef) -> str:
    """Why a function raises on any torch of today, in words; "" where nothing says so."""
    rewrapping = rewrapped_by(world, world.outermost(ref))
    if rewrapping:
        return REWRAPPED.format(name=rewrapping)
    return INDEXED if runs_into_index(world, ref) else ""


@memoized
def rewrapped_by(world: World, ref: FunctionRef) -> str:
    """The function by which another one makes new variables of hidden states, whatever branch it takes; "" for none."""
    if not world.project.says(VARIABLE.rpartition(".")[2]):
        return ""
    for call in world.facts(ref).calls:
        if not call.branch:
            for callee in world.project.callees(ref.path, ref.qualname, call.callee).refs[:1]:
                if callee != ref and rewraps(world, callee):
                    return call.callee
    return ""


@memoized
def rewraps(world: World, ref: FunctionRef) -> bool:
    """Whether a function asks for the exact type ``Variable`` of what it is given, and else calls itself with the elements."""
    facts, own = world.facts(ref), ref.qualname.rpartition(".")[2]
    if VARIABLE.rpartition(".")[2] not in facts.names or all(call.callee != own for call in facts.calls):
        return False
    nodes = [*nodes_of(world.body(ref))]
    if facts.names & KNOWS_TENSORS or any(isinstance(node, ir.Try) for node in nodes):
        return False
    given = {param.name for param in facts.params}
    return any(
        isinstance(node, ir.Compare)
        and node.ops[0] in ("==", "is")
        and isinstance(node.left, ir.Call)
        and dotted(node.left.func) == "type"
        and {dotted(arg.value) for arg in node.left.args} <= given
        and world.project.resolve(ref.path, dotted(node.comparators[0]), ref.qualname) == VARIABLE
        for node in nodes
    )


VARIABLE = TORCH.names["variable-class"]
KNOWS_TENSORS = TORCH.words["knows-tensors"]
"""Words of a function that has another way for tensors."""


def runs_into_index(world: World, ref: FunctionRef) -> bool:
    """Whether a function, or another that one of its callers runs, takes a number out of a loss by an index."""
    if indexes_a_loss(world, world.outermost(ref)):
        return True
    callers = world.project.callers(ref).calls
    if not callers or len(callers) > MAX_CALLERS:
        return False
    return all(runs_one(world, world.outermost(caller.ref)) for caller in callers)


@memoized
def runs_one(world: World, ref: FunctionRef) -> bool:
    """Whether a function indexes a loss, or one that it calls does."""
    found = [ref]
    for call in world.facts(ref).calls:
        found += world.project.callees(ref.path, ref.qualname, call.callee).refs[:1]
    return any(indexes_a_loss(world, world.outermost(each)) for each in dict.fromkeys(found))


@memoized
def indexes_a_loss(world: World, ref: FunctionRef) -> bool:
    if DATA not in world.facts(ref).names:
        return False
    body = [*nodes_of(world.body(ref))]
    indexed = [tensor for node in body if (tensor := tensor_of_indexed_data(node)) is not None]
    if not indexed:
        return False
    evidence = world.evidence(ref)
    assigned = {
        dotted(target): node.value for node in body if isinstance(node, ir.Assign) for target in node.targets if dotted(target)
    }
    return any(
        BACKWARD in evidence.get(dotted(tensor), ()) or is_whole(world, ref, assigned.get(dotted(tensor), tensor))
        for tensor in indexed
    )


def tensor_of_indexed_data(node: object) -> ir.Expr | None:
    """``loss`` of ``loss.data[0]``."""
    if (
        isinstance(node, ir.Subscript)
        and isinstance(node.value, ir.Attr)
        and node.value.name == DATA
        and len(node.index) == 1
        and isinstance(node.index[0], ir.Const)
        and node.index[0].value == 0
    ):
        return node.value.value
    return None


def is_whole(world: World, ref: FunctionRef, value: ir.Expr) -> bool:
    """Whether a value surely has no dimension: a loss of torch, or the sum or the mean over all of a tensor."""
    if not isinstance(value, ir.Call) or any(arg.keyword in ("reduce", "reduction") for arg in value.args):
        return False
    text = dotted(value.func)
    absolute = world.project.resolve(ref.path, text, ref.qualname)
    if absolute in WHOLE_FUNCTIONS:
        return len(value.args) == 1
    if isinstance(value.func, ir.Attr) and value.func.name in WHOLE:
        return not value.args
    if absolute is not None and TORCH.function_effect(absolute) is Effect.LOSS:
        return True
    made = world.project.class_of(ref.path, ref.qualname, text)
    return not isinstance(made, ClassRef) and made is not None and TORCH.class_kind(made) is ClassKind.LOSS
