"""Which rules are on: codes, prefixes, rule names and ``ALL``, with the more specific word winning.

In one layer (a configuration file, then the command line) selectors are applied from the least to the most specific:
``ALL``, then prefixes by length, then full codes and names. So ``select = ["TML1"], ignore = ["TML101"]`` and
``ignore = ["TML1"], extend-select = ["TML101"]`` both do what they say, whatever the order of the words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from torchmemlint.errors import ConfigError
from torchmemlint.findings import INTERNAL_ERROR, UNPARSABLE

if TYPE_CHECKING:
    from torchmemlint.rules.api import Rule

ABOUT_THE_RUN = frozenset({UNPARSABLE, INTERNAL_ERROR})
"""On whatever is selected: a file that cannot be read must not look clean. TML000 can be ignored, TML001 cannot."""


@dataclass(frozen=True, slots=True)
class Layer:
    """What one source of settings says; ``select`` None leaves the layer below as it is."""

    select: tuple[str, ...] | None = None
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()


def _cards() -> tuple[Rule, ...]:
    from torchmemlint.rules import ALL_RULES  # the rules bring the whole engine: not before a selection is made

    return ALL_RULES


@cache
def _by_word() -> dict[str, Rule]:
    return {word: rule for rule in _cards() for word in (rule.code, rule.name)}


def named_codes(layers: Sequence[tuple[Layer, str]]) -> tuple[str, ...]:
    """The codes that some layer selects by their full code or name, sorted; the words must be valid."""
    words = {word for layer, _ in layers for word in (*(layer.select or ()), *layer.extend_select)}
    rules = [_by_word().get(word) or _by_word().get(word.upper()) for word in words]
    return tuple(sorted({rule.code for rule in rules if rule is not None}))


def find_rule(word: str) -> Rule:
    """The rule of a full code (any case) or name. Raises ConfigError that names the closest one."""
    words = _by_word()
    rule = words.get(word) or words.get(word.upper())
    if rule is None:
        raise ConfigError(f"unknown rule `{shown(word)}`{closest(word, words)}")
    return rule


def closest(word: str, valid: Iterable[str]) -> str:
    """``"; did you mean `X`?"`` for the valid word that is nearest to ``word``, always one of them."""
    import difflib

    options = sorted(valid)
    word = word[:100]  # nothing longer is near to any, and to find that out takes long
    matches = difflib.get_close_matches(word, options, n=1) or difflib.get_close_matches(word.upper(), options, n=1)
    return f"; did you mean `{(matches or difflib.get_close_matches(word, options, n=1, cutoff=0.0))[0]}`?"


def shown(word: str) -> str:
    """A word that somebody wrote, short and in one line that a terminal only prints."""
    short = word if len(word) <= 60 else f"{word[:57]}..."
    return short if short.isprintable() else repr(short)[1:-1]


def _meant(selector: str, where: str, preview: bool) -> tuple[int, frozenset[str]]:
    """How specific a selector is, and the codes that it stands for."""
    if selector == "ALL":
        return 0, frozenset(rule.code for rule in _cards())
    words = _by_word()
    rule = words.get(selector) or words.get(selector.upper())
    if rule is not None:
        return len(rule.code), frozenset({rule.code})
    prefix = selector.upper()
    under = [rule for rule in _cards() if prefix and rule.code.startswith(prefix)]
    if not under:
        raise ConfigError(f"{where}: unknown rule or prefix `{shown(selector)}`{closest(selector, [*words, 'ALL'])}")
    return len(prefix), frozenset(rule.code for rule in under if preview or not rule.preview)


def prefixes(selectors: Sequence[str], where: str) -> tuple[str, ...]:
    """Selectors checked and written as code prefixes: names become codes, ``ALL`` becomes ``TML``."""
    written = []
    for selector in selectors:
        _meant(selector, where, True)
        rule = _by_word().get(selector)
        written.append("TML" if selector == "ALL" else rule.code if rule else selector.upper())
    return tuple(written)


def enabled_codes(layers: Sequence[tuple[Layer, str]], preview: bool) -> tuple[str, ...]:
    """The codes that are on after all layers, lowest first, sorted; each layer comes with the words that name its source.

    Rules in preview are on with ``preview``, by their full code or name, or by ``ALL``.
    """
    codes = ABOUT_THE_RUN | {rule.code for rule in _cards() if rule.default and (preview or not rule.preview)}
    for layer, where in layers:
        if layer.select is not None:
            codes = ABOUT_THE_RUN
        wanted = [_meant(word, where, preview) for word in (*(layer.select or ()), *layer.extend_select)]
        for meant, on in _by_specificity(wanted, [_meant(word, where, True) for word in layer.ignore]):
            codes = codes | meant if on else codes - meant
    return tuple(sorted(codes | {INTERNAL_ERROR}))


def moved_codes(layers: Iterable[tuple[Sequence[str], Sequence[str], str]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The codes whose fixes are taken for safe, and those whose fixes are taken for unsafe, after all layers, lowest first; each is
    its two lists, and the words that name its source."""
    safe: frozenset[str] = frozenset()
    unsafe: frozenset[str] = frozenset()
    for as_safe, as_unsafe, where in layers:
        lists = [[_meant(word, where, True) for word in words] for words in (as_safe, as_unsafe)]
        for meant, on in _by_specificity(*lists):
            safe, unsafe = (safe | meant, unsafe - meant) if on else (safe - meant, unsafe | meant)
    return tuple(sorted(safe)), tuple(sorted(unsafe))


def _by_specificity(
    on: Iterable[tuple[int, frozenset[str]]], off: Iterable[tuple[int, frozenset[str]]]
) -> Iterator[tuple[frozenset[str], bool]]:
    """The codes that one layer puts on and off, in the order in which they count; within one specificity off wins."""
    orders = [*((*each, True) for each in on), *((*each, False) for each in off)]
    for _, meant, is_on in sorted(orders, key=lambda order: (order[0], not order[2])):
        yield meant, is_on
