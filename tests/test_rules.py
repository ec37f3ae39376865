"""Every rule over every fixture: the linter says what the markers say, the fixer writes the twin, a suppression silences.

What is wrong today stands in ``known_gaps.txt`` and must still be wrong, so that the list stays true.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from gaps import (
    KNOWN,
    Case,
    Gap,
    again_gaps,
    alarm_gaps,
    alarms,
    cases,
    examples,
    fix_gaps,
    graded,
    guards,
    known,
    marks,
    noqa_gaps,
    table,
    twin_gaps,
)

from torchmemlint.rules import ALL_RULES

CASES = cases()
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
"""The tests of one case run in a row (``conftest``), and ask the linter once what they all want to know."""


def judge(case: Case, found: Iterable[Gap], kinds: set[str], paths: Iterable[str]) -> None:
    """Fails for a gap that is not listed, and for a listed one that is closed."""
    found = list(found)
    names = set(paths)
    listed = {line for line in known() if line.split()[0] in names and line.split()[2] in kinds}
    new = [gap for gap in found if gap.known_as not in listed]
    closed = sorted(listed - {gap.known_as for gap in found})
    assert not new, f"{case.name}: wrong, and not in {KNOWN.name}\n{table(new)}"
    assert not closed, f"{case.name}: right by now, take it off {KNOWN.name}\n" + "\n".join(closed)


@each_case
def test_alarms_are_those_that_are_marked(case: Case) -> None:
    judge(case, alarm_gaps(case.texts), {"missed", "false"}, case.texts)


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if any(grades for text in case.texts.values() for *_, grades in graded(text))],
    ids=lambda case: case.name,
)
def test_cost_and_confidence_are_those_that_are_marked(case: Case) -> None:
    found = {
        (f.path, f.span.start.row, f.code): {f.severity.value, f.confidence.value, f.fix.safety.value if f.fix else "none"}
        for f in alarms(case.texts, "ALL", "low")
    }
    wrong = {
        (name, row, code): (grades, found.get((name, row, code)))
        for name, text in case.texts.items()
        for row, code, grades in graded(text)
        if not set(grades) <= found.get((name, row, code), set())
    }
    assert not wrong


@each_case
def test_no_two_findings_contradict_each_other(case: Case) -> None:
    """One forward is either used for a number or kept with its graph, and either evaluates or teaches."""
    found = alarms(case.texts, "ALL", "low")
    cut = {(one.path, one.span) for one in found if "every result is detached" in one.message}
    for one in found:
        kept = {(step.path, step.span) for step in one.flow if step.message.endswith("its result carries an autograd graph")}
        assert (one.path, one.span) in cut or not cut & kept, one
    for code, other in (("TML201", "TML203"), ("TML101", "TML204"), ("TML102", "TML204")):
        assert not {one.span for one in found if one.code == code} & {one.span for one in found if one.code == other}


@pytest.mark.parametrize("case", [case for case in CASES if case.name.startswith("TML2")], ids=lambda case: case.name)
def test_no_guard_starves_a_backward(case: Case) -> None:
    assert [guard for guard in guards(case.texts) if guard.starved] == []


@each_case
def test_fixing_writes_the_twin(case: Case) -> None:
    judge(case, fix_gaps(case, alarm_gaps(case.texts)), {"fix"}, case.texts)


@each_case
def test_a_twin_is_silent(case: Case) -> None:
    judge(case, twin_gaps(case), {"false"}, [name.replace(".py", ".fixed.py") for name in case.twins])


@each_case
def test_fixing_again_changes_nothing(case: Case) -> None:
    judge(case, again_gaps(case), {"again"}, case.texts)


@each_case
def test_a_suppression_on_each_marked_line_silences_it(case: Case) -> None:
    judge(case, noqa_gaps(case, alarm_gaps(case.texts)), {"noqa"}, case.texts)


def test_every_known_gap_is_in_a_fixture() -> None:
    names = {name for case in [*CASES, examples()] for name in case.texts}
    twins = {name.replace(".py", ".fixed.py") for case in CASES for name in case.twins}
    assert {line.split()[0] for line in known()} <= names | twins


def test_every_rule_about_code_has_a_marked_fixture() -> None:
    marked = {code for case in CASES for text in case.texts.values() for _, code in marks(text)}
    assert {rule.code for rule in ALL_RULES} - {"TML000", "TML001", "TML002", "TML901"} <= marked


def test_examples_say_what_they_are_examples_of() -> None:
    case = examples()
    judge(case, alarm_gaps(case.texts), {"missed", "false"}, case.texts)


@pytest.mark.parametrize("case", CASES[::3], ids=lambda case: case.name)
def test_a_rule_alone_finds_what_it_finds_beside_the_others(case: Case) -> None:
    together: dict[str, set[tuple[str, int]]] = {}
    for one in alarms(case.texts):
        together.setdefault(one.code, set()).add((one.path, one.span.start.row))
    for code, places in together.items():
        alone = {(one.path, one.span.start.row) for one in alarms(case.texts, code)}
        assert places <= alone, code
