"""All rules, in code order.

``ALL_RULES`` are the cards. They are kept a second time in ``cards.py``, which ``python docs/generate.py`` writes from the
``RULE`` of every module below this package: importing those brings the whole engine, which ``--help``, ``--select`` and
a file without a word of torch can do without.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchmemlint.rules.card import Rule

ALL_RULES: tuple[Rule, ...]
OF_GRAPHS = frozenset({"TML101", "TML102", "TML103", "TML104", "TML201", "TML203", "TML204", "TML401", "TML402"})
"""Rules about what a model gives: words of any rule may bring them to a function in which they have something to say."""


def looked_at_for(codes: frozenset[str]) -> frozenset[str]:
    """The rules whose words choose the files and functions that are looked at where these are selected: what one of
    ``OF_GRAPHS`` finds beside the others it finds alone."""
    if not codes & OF_GRAPHS:
        return codes
    from torchmemlint.rules.cards import CARDS

    return codes | {rule.code for rule in CARDS.values() if rule.default and not rule.preview}


def modules() -> tuple[ModuleType, ...]:
    """The rule modules: each has ``RULE``, and those that look at events ``EVENT`` and ``check``."""
    from torchmemlint.rules.cards import CARDS

    return tuple(import_module(f"{__name__}.{name}") for name in CARDS)


def page(code: str) -> str:
    """The page of a rule: its module's docstring. Raises KeyError for an unknown code."""
    for module in modules():
        if module.RULE.code == code:
            return str(module.__doc__)
    raise KeyError(code)


def __getattr__(name: str) -> tuple[Rule, ...]:
    if name == "ALL_RULES":
        from torchmemlint.rules.cards import CARDS

        return tuple(CARDS.values())
    raise AttributeError(name)
