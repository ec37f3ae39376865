"""Networks that libraries make: what a text of a function says of one, and of a part of one."""

from __future__ import annotations

import re

from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.semantics.world import World
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect

NUMBER = re.compile(r"(in|out|num)_\w+|\w+_(size|dim|shape)|\w*(cfg|config|info|name)\w*")
"""Attributes of networks and layers that are sizes or settings (``fc.in_features``)."""


def is_library_network(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether a text of a function is a network that a library makes (``vgg19().cuda()``), or a part of one by its attribute or index
    (``vgg19().features[]``): it has parameters, which require grad as they are made."""
    root = re.match(r"\w+", text)
    if root is not None and "()" not in text:
        made = dict(world.facts(ref).bound).get(root[0], "")
        text = made + text[root.end() :]
    maker, called, rest = text.partition("()")
    absolute = world.project.resolve(ref.path, maker, ref.qualname) if called else None
    if absolute is None or TORCH.function_effect(absolute) is not Effect.MODULE:
        return False
    if absolute.partition(".")[0] not in TORCH.words["makes-networks"]:
        return False
    links = [link.replace("[]", "") for link in rest.split(".")[1:]]
    return (not links or not NUMBER.fullmatch(links[-1])) and all(
        link.removesuffix("()") in TORCH.words["gives-itself"] if link.endswith("()") else link.isidentifier() for link in links
    )


def is_of_library(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether an attribute holds nothing but a network that a library makes."""
    owner = world.facts(ref).owner
    held = world.project.attr(ClassRef(ref.path, owner), text.removeprefix("self.")) if owner else ()
    return bool(held) and all(
        fact.method and is_library_network(world, FunctionRef(at.path, fact.method), fact.value) for fact, at in held
    )
