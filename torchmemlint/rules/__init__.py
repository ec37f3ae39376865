"""All rules, in code order.

``ALL_RULES`` are the cards. They are kept a second time in ``cards.py``, which ``python docs/generate.py`` writes from the
``RULE`` of every module below this package: importing those brings the whole engine, which ``--help``, ``--select`` and
a file without a word of torch can do without.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchmemlint.rules.card import Rule

ALL_RULES: tuple[Rule, ...]


@cache
def rule_of(code: str) -> Rule:
    """The card of a rule. Raises KeyError for an unknown code."""
    from torchmemlint.rules.cards import CARDS

    return {rule.code: rule for rule in CARDS.values()}[code]


@cache
def looked_at_for(codes: frozenset[str]) -> frozenset[str]:
    """The rules whose words choose the files and functions that are looked at where these are selected: what a rule that is
    ``of_results`` finds beside the others it finds alone."""
    from torchmemlint.rules.cards import CARDS

    if not any(rule.of_results for rule in CARDS.values() if rule.code in codes):
        return codes
    return codes | {rule.code for rule in CARDS.values() if rule.default and not rule.preview}


@cache
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


def page_file(code: str) -> str:
    """The absolute path of the file that a rule's page is in. Raises KeyError for an unknown code."""
    for module in modules():
        if module.RULE.code == code:
            return str(module.__file__)
    raise KeyError(code)


def __getattr__(name: str) -> tuple[Rule, ...]:
    if name == "ALL_RULES":
        from torchmemlint.rules.cards import CARDS

        return tuple(CARDS.values())
    raise AttributeError(name)
