"""Gradients that are thrown away: zeroed before the optimizer that holds a network's parameters steps."""

from __future__ import annotations

from itertools import islice

from torchmemlint.index.facts import CallFact
from torchmemlint.index.project import FunctionRef
from torchmemlint.semantics.identity.optimized import makes_optimizer, optimizer_of, scope_of, where_known
from torchmemlint.semantics.state import World
from torchmemlint.torch_facts import TORCH

BACK_PROPAGATES = TORCH.words["trains-something"] - TORCH.words["clears-gradients"]


def is_made_beside(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether some optimizer is made where a network goes by that name."""
    places = scope_of(world, *where_known(world, ref, text), text)
    return any(makes_optimizer(world, place) for place in places)


def throws_away(world: World, ref: FunctionRef, text: str, backward: CallFact, optimizer: str = "") -> bool:
    """Whether a function throws away the gradients that a backward of its own computes for a network: what it says next of the
    optimizer that holds its parameters is ``zero_grad()``, and ``step()`` only after that. Where it says nothing of it, whether
    each method that steps it does. ``text`` names the network, or a method; ``optimizer`` holds it where none is visibly made."""
    for network in (text, text.rpartition(".")[0]):
        holder = optimizer_of(world, ref, network) if network not in ("", "self") else ""
        if optimizer := holder or optimizer:
            zeroed = {f"{optimizer}.zero_grad", f"{network}.zero_grad"}
            step = f"{optimizer}.step"
            calls = _calls_of(world, ref, zeroed | {step}, optimizer)
            if not calls and optimizer.startswith("self."):
                scope = scope_of(world, *where_known(world, ref, network), optimizer)
                others = [_calls_of(world, each, zeroed | {step}, optimizer) for each in scope]
                stepping = [each for each in others if any(call.callee not in zeroed for call in each)]
                return bool(stepping) and all(each[0].callee in zeroed for each in stepping)
            following = [call for call in calls if call.place > backward.place] or calls
            return bool(following) and following[0].callee in zeroed
    return False


def may_discard(world: World, ref: FunctionRef) -> bool:
    """Whether a function back-propagates more than once: gradients of one backward can be zeroed before the next is stepped by."""
    return len([*islice(filter(back_propagates, world.facts(ref).calls), 2)]) > 1


def discards(world: World, ref: FunctionRef, text: str, backward: CallFact, optimizer: str = "") -> bool:
    """Whether a function zeroes the gradients that a backward of its own computes for a network, before it back-propagates
    again and steps the network's own optimizer, and reads none of them meanwhile. ``optimizer`` holds it where none is visibly made."""
    optimizer = optimizer_of(world, ref, text) or optimizer
    facts = world.facts(ref)
    if not optimizer or TORCH.names["gradient"] in facts.names:
        return False
    if any(_is_given(call, optimizer) for call in facts.calls):
        return False  # what it is given to may step it
    zeroed, step = {f"{optimizer}.zero_grad", f"{text}.zero_grad"}, f"{optimizer}.step"
    if not any(call.callee in zeroed | {step} for call in facts.calls):
        return False  # whoever zeroes them and steps may call this function in between
    if not back_propagates(backward):
        return False
    following = facts.calls[backward.place + 1 :] + facts.calls[: backward.place]
    cleared = False
    for call in following:
        if call.callee == step:
            return False
        if call.callee in zeroed:
            cleared = cleared or backward.branch[: len(call.branch)] == call.branch
        elif cleared and back_propagates(call):
            return True
        elif not cleared and not _makes(call) and any(arg.name in (text, f"{text}.parameters()") for arg in call.args):
            return False
    return False


def _makes(call: CallFact) -> bool:
    """Whether a call makes an object, by the look of its name: an optimizer, or a scheduler of one."""
    return call.callee.rpartition(".")[2][:1].isupper()


def back_propagates(call: CallFact) -> bool:
    """Whether a call is a backward, by its name."""
    return call.callee.rpartition(".")[2] in BACK_PROPAGATES


def _calls_of(world: World, ref: FunctionRef, callees: set[str], optimizer: str) -> list[CallFact]:
    """The calls that a function makes of any of these, and those that it gives the optimizer, which may step it
    (``scaler.step(optimizer)``), in the order of evaluation."""
    return [call for call in world.facts(ref).calls if call.callee in callees or _is_given(call, optimizer)]


def _is_given(call: CallFact, optimizer: str) -> bool:
    """Whether a call is given an optimizer, and does not only make something of it (a scheduler)."""
    return not _makes(call) and any(arg.name == optimizer for arg in call.args)
