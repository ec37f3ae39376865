"""Which argument of a call a parameter gets."""

from __future__ import annotations

from collections.abc import Sequence

from torchmemlint.index.facts import ArgFact, ParamFact


def argument_for(params: Sequence[ParamFact], name: str, args: Sequence[ArgFact]) -> ArgFact | None:
    """What the parameter ``name`` gets from ``args``: the argument, its default, or None when that is not known."""
    for arg in args:
        if arg.keyword == name:
            return arg
    positional = [param.name for param in params if param.kind == "positional"]
    if name in positional:
        index = positional.index(name)
        given = [arg for arg in args if arg.keyword in ("", "*")]
        if any(arg.keyword == "*" for arg in given[: index + 1]):
            return None
        if index < len(given):
            return given[index]
    if any(arg.keyword == "**" for arg in args):
        return None
    for param in params:
        if param.name == name and param.default:
            return ArgFact("", "", param.default)
    return None
