"""Tests on which a grad mode depends: of a parameter, ``not`` of it, or its comparison with a literal."""

from __future__ import annotations

import ast
import re

TEST = re.compile(r"^(not )?(\w+)(?: (==|!=|is|is not) (.+))?$")


def negated(effect: str) -> str:
    """The effect (see ``index.effects``) of switching grad on where another one switches it off."""
    if effect.startswith("param:"):
        text = effect.removeprefix("param:")
        return f"param:{text.removeprefix('not ')}" if text.startswith("not ") else f"param:not {text}"
    return {"on": "off", "off": "on"}.get(effect, "mixed")


def truth(const: str) -> bool:
    """Whether a literal, as its repr, counts as true."""
    return bool(_literal(const))


def test_holds(match: re.Match[str], const: str) -> bool | None:
    """Whether the test that ``match`` took apart holds when its name is the literal ``const``."""
    value = _literal(const)
    if match[3] is None:
        holds = bool(value)
    else:
        same = value == _literal(match[4])
        holds = same if match[3] in ("==", "is") else not same
    return not holds if match[1] else holds


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
