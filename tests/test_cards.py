"""What holds of a rule stands in its own file: other code asks its card, and never names it."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

import pytest
from test_settings_of_the_engine import nodes

import torchmemlint
from torchmemlint.findings import INTERNAL_ERROR, UNPARSABLE, UNUSED_SUPPRESSION
from torchmemlint.oom import advice, remedies
from torchmemlint.rules import ALL_RULES, rule_of
from torchmemlint.rules.card import About, Advice, Correction, Once, Rule, Same, Shown

PACKAGE = Path(torchmemlint.__file__).parent
MAY_NAME_RULES = {
    "findings.py": "the rules about the run itself, whose findings the parts of the run make",
    "rules/cards.py": "written from the rules' own files",
}
OTHERS = [
    name
    for name in sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
    if name not in MAY_NAME_RULES and not re.fullmatch(r"rules/\w+/\w+\.py", name)
]


@pytest.mark.slow
def test_no_code_but_the_rules_own_names_a_rule() -> None:
    for name in OTHERS:
        for node in ast.walk(ast.parse((PACKAGE / name).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not re.fullmatch(r"TML\d{1,3}", node.value), f"{name}:{node.lineno}: ask the card (rules/card.py)"


@pytest.mark.slow
def test_every_field_of_a_card_has_a_reader_and_is_set_by_some_rule() -> None:
    read = {node.attr for node in nodes() if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}
    for field in dataclasses.fields(Rule):
        assert field.name in read, field.name
        if field.name != "preview":  # a state that rules pass through
            assert any(getattr(rule, field.name) != field.default for rule in ALL_RULES), field.name


@pytest.mark.parametrize("words", [About, Advice, Once, Correction, Same, Shown])
def test_no_word_on_cards_is_idle(words: type[About | Advice | Once | Correction | Same | Shown]) -> None:
    used: set[object] = set()
    for rule in ALL_RULES:
        used |= {rule.about, rule.once, rule.correction, rule.explains, *rule.shown, *rule.advice}
    assert set(words) <= used


def test_who_explains_says_what_findings_must_share() -> None:
    explaining = {rule.code for rule in ALL_RULES if rule.explains is not None}
    assert frozenset().union(*(rule.yields_to for rule in ALL_RULES)) == explaining


def test_a_switch_has_a_keyword() -> None:
    assert [rule.code for rule in ALL_RULES if bool(rule.keyword) is not (rule.correction is Correction.SWITCH)] == []


def test_a_forward_is_mended_as_a_forward() -> None:
    forwards = (Correction.NO_GRAD, Correction.NO_GRAD_AROUND, Correction.OWN_FIX)
    assert {rule.code for rule in ALL_RULES if rule.about is About.NEEDLESS_GRAPH} == {
        rule.code for rule in ALL_RULES if rule.correction in forwards
    }


def test_all_advice_is_given() -> None:
    texts = [Path(str(module.__file__)).read_text(encoding="utf-8") for module in (remedies, advice)]
    given = {node.attr for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}
    assert {one.name for one in Advice} <= given


def test_the_rules_about_the_run_are_those_with_a_name() -> None:
    assert {rule.code for rule in ALL_RULES if rule.about is About.RUN} == {UNPARSABLE, INTERNAL_ERROR, UNUSED_SUPPRESSION}
    assert rule_of(UNPARSABLE).name == "unparsable-file"
    with pytest.raises(KeyError):
        rule_of("TML999")
