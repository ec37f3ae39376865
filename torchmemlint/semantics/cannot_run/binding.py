"""Calls that raise TypeError because their arguments do not fit the parameters of what they run."""

from __future__ import annotations

from collections.abc import Sequence

from torchmemlint.index.fact_words import ParamKind
from torchmemlint.index.project import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.semantics.cannot_run.definitions import called
from torchmemlint.semantics.cannot_run.ways import Scopes
from torchmemlint.semantics.world import World
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import GRAD_EFFECTS

PLAIN = frozenset({"staticmethod", "classmethod"})


def does_not_fit(world: World, path: str, scopes: Scopes, call: ir.Call) -> bool:
    """Whether none of the functions that a call may run takes its arguments."""
    if any(arg.star for arg in call.args):
        return False
    found = called(world, path, scopes, call.func)
    return bool(found) and not any(_takes(world, ref, bound, call) for ref, bound in found)


def _takes(world: World, ref: FunctionRef, bound: bool, call: ir.Call) -> bool:
    function = world.function(ref)
    if function is None or not _keeps_signature(world, ref):
        return True
    return fits(function[0].params[1 if bound else 0 :], call.args)


def _keeps_signature(world: World, ref: FunctionRef) -> bool:
    """Whether every decorator of a function leaves its parameters as they are."""
    for use in world.header(ref).decorators:
        name = world.project.resolve(ref.path, use.callee) or use.callee
        if use.callee not in PLAIN and TORCH.function_effect(name) not in GRAD_EFFECTS:
            return False
    return True


def fits(params: Sequence[ir.Param], args: Sequence[ir.Arg]) -> bool:
    """Whether arguments, none of them starred, bind to parameters."""
    kinds = {param.kind for param in params}
    by_place = [param for param in params if param.kind is ParamKind.POSITIONAL]
    given = [arg.keyword for arg in args if arg.keyword is not None]
    count = len(args) - len(given)
    if count > len(by_place) and ParamKind.VAR_POSITIONAL not in kinds:
        return False
    filled = {param.name for param in by_place[:count]}
    if ParamKind.VAR_KEYWORD not in kinds:
        names = {param.name for param in params if param.kind in (ParamKind.POSITIONAL, ParamKind.KEYWORD)}
        if not names.issuperset(given) or not filled.isdisjoint(given):
            return False
    required = {
        param.name for param in params if param.default is None and param.kind in (ParamKind.POSITIONAL, ParamKind.KEYWORD)
    }
    return required <= filled.union(given)
