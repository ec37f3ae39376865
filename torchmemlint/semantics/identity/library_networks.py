"""Networks that libraries make, by what the text of a function says of each."""

from __future__ import annotations

import re

from torchmemlint.index.arguments import params_given
from torchmemlint.index.facts import CallFact, FunctionFacts
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.walk import nodes_of
from torchmemlint.lower.written import dotted
from torchmemlint.semantics.state import World
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect

SIZES = TORCH.words["sizes"]
FREEZES = TORCH.words["may-freeze"]
ASKS_OR_FREEZES = TORCH.words["parameter-iterators"] | TORCH.words["freezing-methods"] | TORCH.words["gives-itself"]
NUMBER = re.compile(r"(in|out|num)_\w+|\w+_(size|dim|shape)|\w*(cfg|config|info|name)\w*")
"""Attributes of networks and layers that are sizes or settings (``fc.in_features``)."""


def is_size(text: str) -> bool:
    """Whether a text reads a size or setting of a network."""
    name = text.rpartition(".")[2].replace("[]", "")
    return name in SIZES or bool(NUMBER.fullmatch(name))


def is_library_network(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether a text of a function is a network that a library makes (``vgg19().cuda()``), or a part of one by its attribute or index
    (``vgg19().features[]``): it has parameters, which require grad as they are made."""
    root = re.match(r"\w+", text)
    if root is not None and "()" not in text:
        text = made_by(world, ref, root[0]) + text[root.end() :]
    absolute = maker_of_module(world, ref, text)
    if absolute is None or absolute.partition(".")[0] not in TORCH.words["makes-networks"]:
        return False
    rest = text.partition("()")[2]
    links = [link.replace("[]", "") for link in rest.split(".")[1:]]
    return not (links and is_size(text)) and all(
        link.removesuffix("()") in TORCH.words["gives-itself"] if link.endswith("()") else link.isidentifier() for link in links
    )


def made_by(world: World, ref: FunctionRef, name: str) -> str:
    """What a function binds a name to, as text (``vgg19().cuda()``); "" where it does so several times, or not."""
    return dict(world.facts(ref).bound).get(name, "")


def maker_of_module(world: World, ref: FunctionRef, text: str) -> str | None:
    """The absolute name of what a text of a function calls first, if a library makes a network by it."""
    maker, called, _ = text.partition("()")
    absolute = world.project.resolve(ref.path, maker, ref.qualname) if called else None
    return absolute if absolute is not None and TORCH.function_effect(absolute) is Effect.MODULE else None


def is_of_library(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether an attribute holds nothing but a network that a library makes."""
    owner = world.facts(ref).owner
    held = world.project.attr(ClassRef(ref.path, owner), text.removeprefix("self.")) if owner else ()
    return bool(held) and all(
        fact.method and is_library_network(world, FunctionRef(at.path, fact.method), fact.value) for fact, at in held
    )


def only_runs(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether a function does nothing with a module but make it, run it or a part of it, set its mode and ask for its sizes and
    settings: none of its parts is replaced or held."""
    found = world.ir_of(ref)
    if found is None:
        return False
    uses = harmless = 0
    nodes = [*nodes_of(found.body)]
    calls = [call for call in world.facts(ref).calls if any(arg.name == text for arg in call.args)]
    others = {call.callee for call in calls if not runs_alone(world, ref, call, text)}
    runners = {call.callee for call in calls} - others
    dropped = {id(node.value) for node in nodes if isinstance(node, ir.ExprStmt)}
    for node in nodes:
        uses += isinstance(node, ir.Name | ir.Attr) and dotted(node) == text
        if isinstance(node, ir.Call):
            itself = isinstance(node.func, ir.Attr) and node.func.name in TORCH.words["gives-itself"]
            harmless += dotted(node.func.value if itself and isinstance(node.func, ir.Attr) else node.func) == text
            harmless += id(node) not in dropped and _runs_part(node, text)
            if any(dotted(arg.value) == text for arg in node.args):
                callee = dotted(node.func)
                harmless += asks_for_settings(world, ref, callee) or callee in runners
        elif isinstance(node, ir.Assign):
            harmless += sum(isinstance(target, ir.Name | ir.Attr) and dotted(target) == text for target in node.targets)
        elif isinstance(node, ir.Attr) and is_size(node.name):
            harmless += dotted(node.value) == text
    return uses == harmless


def _runs_part(call: ir.Call, text: str) -> bool:
    """Whether a call whose result is used runs a part or method of a module on what it is given (``net.encoder(x)``): it is given
    something computed, which ``get_submodule("fc")`` is not, and its name says nothing of parameters."""
    callee = dotted(call.func)
    own, name = callee.startswith(f"{text}."), callee.rpartition(".")[2]
    return own and name not in ASKS_OR_FREEZES and any(not isinstance(arg.value, ir.Const) for arg in call.args)


def runs_alone(world: World, ref: FunctionRef, call: CallFact, text: str) -> bool:
    """Whether the functions of the project that a call means do nothing with a module that it gives them but run it."""
    seen = world.project.callees(ref.path, ref.qualname, call.callee, *call.keywords).refs
    return bool(seen) and all(_runs_given(world.facts(each), call, text) for each in seen)


def _runs_given(facts: FunctionFacts, call: CallFact, text: str) -> bool:
    given = params_given(facts.params[bool(facts.owner) :], text, call.args)
    called = {each.callee for each in facts.calls}
    return bool(given) and called.issuperset(given) and facts.taken.isdisjoint(given) and facts.names.isdisjoint(FREEZES)


def asks_for_settings(world: World, ref: FunctionRef, callee: str) -> bool:
    """Whether a call of a library gives plain values of the module that it is given, and keeps nothing of it."""
    name = world.project.resolve(ref.path, callee, ref.qualname)
    return isinstance(name, str) and TORCH.function_effect(name) in (Effect.NUMBER, Effect.NO_EFFECT)
