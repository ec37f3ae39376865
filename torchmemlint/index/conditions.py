"""Tests on which a grad mode depends: of a parameter, ``not`` of it, or its comparison with a literal."""

from __future__ import annotations

import ast
import re

TEST = re.compile(r"^(not )?(\w+)(?: (==|!=|is|is not) (.+))?$")


def truth(const: str) -> bool:
    """Whether a literal, as its repr, counts as true."""
    return bool(value_of(const))


MEMBER = re.compile(r"^([A-Za-z_][\w.]*)\.\w+$")
"""What may be a member of an enumeration (``Phase.TRAIN``), and the enumeration."""


def test_holds(match: re.Match[str], const: str) -> bool | None:
    """Whether the test that ``match`` took apart holds when its name is the literal ``const``; None where the test is of no literal."""
    value = value_of(const)
    if match[3] is None:
        holds = bool(value)
    elif MEMBER.match(match[4]):
        return None
    else:
        holds = _as_compared(match[3], value == value_of(match[4]))
    return not holds if match[1] else holds


def member_holds(match: re.Match[str], name: str) -> bool | None:
    """Whether the test holds when its name is the member ``name`` of the enumeration whose member it is compared with."""
    asked, given = MEMBER.match(match[4] or ""), MEMBER.match(name)
    if asked is None or given is None or asked[1] != given[1] or asked[1] == "self":
        return None
    holds = _as_compared(match[3], match[4] == name)
    return not holds if match[1] else holds


def _as_compared(operator: str, same: bool) -> bool:
    return same if operator in ("==", "is") else not same


def value_of(text: str) -> object:
    """The value of a literal, as its repr; None for what is none."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
