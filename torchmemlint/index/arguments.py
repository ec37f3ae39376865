"""Which argument of a call a parameter gets."""

from __future__ import annotations

from collections.abc import Sequence

from torchmemlint.index.fact_words import ParamKind
from torchmemlint.index.facts import ArgFact, ParamFact


def argument_given(params: Sequence[ParamFact], name: str, args: Sequence[ArgFact]) -> ArgFact | None:
    """What the parameter ``name`` is given in ``args``; None where it is left out, or may be within a starred argument."""
    for arg in args:
        if arg.keyword == name:
            return arg
    place = next((i for i, param in enumerate(_positional(params)) if param.name == name), None)
    given = [arg for arg in args if arg.keyword in ("", "*")][: None if place is None else place + 1]
    if place is None or len(given) <= place or any(arg.keyword == "*" for arg in given):
        return None
    return given[place]


def argument_for(params: Sequence[ParamFact], name: str, args: Sequence[ArgFact]) -> ArgFact | None:
    """What the parameter ``name`` gets from ``args``: the argument, its default, or None when that is not known."""
    given = argument_given(params, name, args)
    if given is not None:
        return given
    starred = {arg.keyword for arg in args} & {"*", "**"}
    if "**" in starred or (starred and any(param.name == name for param in _positional(params))):
        return None
    return next((ArgFact("", "", param.default) for param in params if param.name == name and param.default), None)


def params_given(params: Sequence[ParamFact], text: str, args: Sequence[ArgFact]) -> list[str]:
    """The parameters that get what the caller knows by a text."""
    return [param.name for param in params if (arg := argument_for(params, param.name, args)) and arg.name == text]


def _positional(params: Sequence[ParamFact]) -> list[ParamFact]:
    return [param for param in params if param.kind is ParamKind.POSITIONAL]
