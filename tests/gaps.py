"""Where the linter and the fixtures disagree.

``python -m tests.gaps`` prints one table of all disagreements; ``--write`` also makes ``known_gaps.txt`` say the same.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import zip_longest
from pathlib import Path
from unittest.mock import patch

from torchmemlint import analysis
from torchmemlint.analysis import Analysis
from torchmemlint.findings import Confidence, Finding, Fix
from torchmemlint.index import module_facts
from torchmemlint.index.project import Project
from torchmemlint.lower import quick
from torchmemlint.lower.lowered import Lowered
from torchmemlint.lower.regions import Region
from torchmemlint.project.config import CommandLine, Configuration
from torchmemlint.project.settings import Settings
from torchmemlint.rules import ALL_RULES, scorecard
from torchmemlint.rules.api import Flow
from torchmemlint.rules.card import Once
from torchmemlint.rules.edits import Edits
from torchmemlint.run import Outcome, check_paths, fix_paths
from torchmemlint.semantics.roots.runs import Runs
from torchmemlint.semantics.state.events import Backward
from torchmemlint.semantics.state.graphs import Site
from torchmemlint.suppress.together import ALSO

ROOT = Path(__file__).parent.parent / "fixtures"
KNOWN = Path(__file__).parent / "known_gaps.txt"
GRADE = "note|warning|error|low|medium|high|safe|unsafe"
MARKER = re.compile(rf"  # expect: (TML\d{{3}}(?: (?:{GRADE}))*(?:, TML\d{{3}}(?: (?:{GRADE}))*)*)$", re.MULTILINE)
"""The codes that are expected in a row, each with its severity and its confidence where these are to be checked."""
COMMENT = re.compile(MARKER.pattern.replace("expect", "(?:expect|noqa)", 1), re.MULTILINE)
MODULE = "<module>"

Texts = Mapping[str, str]
"""Path below ``fixtures/`` → text."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is linted together: one file, or all files of a folder. ``twins`` has the texts that fixing must end in; a text that
    begins with ``# twin: by hand`` is no fixer's."""

    name: str
    texts: Texts
    twins: Texts

    @property
    def corrected(self) -> Texts:
        return {**self.texts, **self.twins}


@dataclass(frozen=True, slots=True, order=True)
class Gap:
    """One disagreement in one function. ``kind`` is "missed" or "false" (an alarm), "fix" (the fixed function is not that of
    the twin), "again" (a fixed function is fixed once more) or "noqa" (a suppressed alarm that is reported)."""

    path: str
    row: int
    function: str
    kind: str
    code: str
    message: str = ""

    @property
    def known_as(self) -> str:
        """The line of ``known_gaps.txt``: without a row, which any edit of the fixture moves."""
        return " ".join((self.path, self.function, self.kind, self.code))


@dataclass(frozen=True, slots=True)
class Guard:
    """A fix that puts a statement below ``no_grad``, and the backwards that it leaves nothing to go through."""

    fix: Fix
    starved: list[Backward]


def cases() -> list[Case]:
    """Every fixture of a rule."""
    found: dict[str, tuple[dict[str, str], dict[str, str]]] = {}
    for path in sorted(ROOT.glob("TML*/**/*.py")):
        name = path.relative_to(ROOT).as_posix()
        own = name.replace(".fixed.py", ".py")
        case = "/".join(own.split("/")[:2])
        texts, twins = found.setdefault(case, ({}, {}))
        (texts if own == name else twins)[own] = path.read_text(encoding="utf-8")
    return [Case(name, *pair) for name, pair in found.items()]


def examples() -> Case:
    """The examples, marked as ``expected.json`` says; their corrected forms are no fixer's."""
    folder = ROOT.parent / "examples"
    texts = {}
    for name, expected in json.loads((folder / "expected.json").read_text(encoding="utf-8")).items():
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
        for row, code in expected:
            lines[row - 1] += f"  # expect: {code}"
        texts[f"examples/{name}"] = "\n".join([*lines, ""])
    return Case("examples", texts, {})


def marks(text: str) -> set[tuple[int, str]]:
    """Row and code of every alarm that a text asks for, the doubtful ones left out."""
    return {(row, code) for row, code, grades in graded(text) if "low" not in grades}


def graded(text: str) -> list[tuple[int, str, list[str]]]:
    """Row, code and grades (severity, confidence, whether its fix is safe) of every alarm that a text asks for."""
    out = []
    for row, line in enumerate(text.splitlines(), 1):
        if marker := MARKER.search(line):
            out += [(row, words[:6], words[6:].split()) for words in marker[1].split(", ")]
    return out


def without_marks(text: str) -> str:
    return MARKER.sub("", text)


def alarms(texts: Texts, code: str = "ALL", confidence: str = "medium", target: str = "") -> list[Finding]:
    """What the linter, with all rules on or one, says of these files as one project, of at least a confidence, for a torch if any."""
    return [*_alarms(tuple(texts.items()), code, confidence, target)]


REMEMBERED = 32
"""Answers: the tests of one case, which run in a row, ask for the same ones."""
ANALYSED = 100
"""Files whose analysis is remembered for these answers."""
LOWERED = 200
"""Functions whose lowered form is: libcst's trees are large."""


def _alarms(files: tuple[tuple[str, str], ...], code: str, confidence: str, target: str) -> list[Finding]:
    outcome, _ = _checked(files, code, target)
    sure = {path: replace(one, min_confidence=Confidence(confidence)) for path, one in outcome.settings.items()}
    found = replace(outcome, settings=sure).findings
    once = {rule.code for rule in ALL_RULES if rule.once is Once.A_FILE}
    also = [replace(one, span=s.span) for one in found if one.code in once for s in one.flow if s.message == ALSO]
    return sorted([*found, *also], key=lambda one: one.sort_key)


def guards(texts: Texts) -> list[Guard]:
    """Every fix of these files that puts a statement below ``no_grad``, with all rules on."""
    return _checked(tuple(texts.items()), "ALL", "")[1]


@lru_cache(REMEMBERED)
def _checked(files: tuple[tuple[str, str], ...], code: str, target: str) -> tuple[Outcome, list[Guard]]:
    with _written(dict(files), code, target) as (folder, configuration), analysed_once() as noted:
        return check_paths([folder], configuration, 1), noted


def forget() -> None:
    """Remember no answer: for a test that changes the linter, before and after."""
    _checked.cache_clear()
    _fixed.cache_clear()
    _analyses.clear()
    _facts.cache_clear()
    _lowered.clear()


def fixed(texts: Texts) -> Texts:
    """The files after all fixes, safe and unsafe."""
    return _fixed(tuple(texts.items()))


@lru_cache(REMEMBERED)
def _fixed(files: tuple[tuple[str, str], ...]) -> Texts:
    texts = dict(files)
    with _written(texts) as (folder, configuration), analysed_once(exactly=True):
        return {**texts, **fix_paths([folder], configuration, 1).after}


def _starved(flow: Flow, site: Site) -> list[Backward]:
    """The backwards of a run whose values have no graph any more once the statement at a site makes none."""
    record = flow.record

    def statement(where: Site) -> object:
        own = flow.own_site(where)
        return flow.lowered(own).statement(own.node)[0]

    guarded = statement(site)
    gone = {graph.gid for graph in record.graphs.values() if graph.site.node >= 0 and statement(graph.site) == guarded}
    backwards = [event for event in record.events.values() if isinstance(event, Backward)]
    return [
        event
        for event in backwards
        if (real := {graph.gid for graph in flow.real(event.graphs)}) and (real <= gone or statement(event.site) == guarded)
    ]


_analyses: OrderedDict[object, tuple[Analysis, list[Guard]]] = OrderedDict()
_facts = lru_cache(ANALYSED)(module_facts.module_facts)
_lowered: OrderedDict[object, Lowered] = OrderedDict()


@contextmanager
def analysed_once(exactly: bool = False) -> Iterator[list[Guard]]:
    """Each file is analysed once for the same code in all files and the same settings: where texts differ in a marker, or a suppression
    in its place, the same is found, of which the comments then suppress what they do. Fixes write between comments; they need
    ``exactly`` the same texts. What stands at the same place with the same text is lowered once. Gives a list that gets the guards of
    all files."""
    analyze_module, put_below, lower = analysis.analyze_module, Edits.under_no_grad, quick.lower
    noted: list[Guard] = []
    of_one: list[Guard] = []

    def remembered(project: Project, path: str, settings: Settings, runs: Runs, *others: None) -> Analysis:
        settings = replace(settings.of_analysis(), root="")  # each time in another folder
        texts = [(one, "\n".join(runs.world.lines(one))) for one in project.paths]
        keys = [(path, settings, *texts), (path, settings, *((one, COMMENT.sub("", text)) for one, text in texts))]
        found = _analyses.get(keys[0 if exactly else 1])
        if found is None:
            of_one.clear()
            found = analyze_module(project, path, settings, runs, *others), of_one.copy()
            _analyses.update(dict.fromkeys(keys, found))
            while len(_analyses) > 2 * ANALYSED:
                _analyses.popitem(last=False)
        noted.extend(found[1])
        return found[0]

    def lowered_once(region: Region) -> Lowered:
        key = region.path, region.qualname, region.text, region.indented, *region.rows, *region.cut_columns.items()
        found = _lowered[key] = _lowered.pop(key) if key in _lowered else lower(region)
        if len(_lowered) > LOWERED:
            _lowered.popitem(last=False)
        return found

    def noting(edits: Edits, site: Site, message: str, *call: str) -> Fix | None:
        fix = put_below(edits, site, message, *call)
        if fix is not None and call != ("set_grad_enabled",):
            of_one.append(Guard(fix, _starved(Flow(Runs(edits.world), edits.record, ""), site)))
        return fix

    with (
        patch.object(analysis, "analyze_module", remembered),
        patch.object(module_facts, "module_facts", _facts),
        patch.object(quick, "lower", lowered_once),
        patch.object(Edits, "under_no_grad", noting),
    ):
        yield noted


@contextmanager
def _written(texts: Texts, code: str = "ALL", target: str = "") -> Iterator[tuple[str, Configuration]]:
    """These files, alone in a folder that is the current one, and settings with every rule on, or one."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        os.chdir(folder)
        try:
            options = {
                "select": [code],
                "preview": True,
                "unsafe-fixes": True,
                "notes": True,
                **({"target-torch": target} if target else {}),
            }
            with _believed():
                yield ".", Configuration(CommandLine(options, isolated=True))
        finally:
            os.chdir(before)


@contextmanager
def _believed() -> Iterator[None]:
    """Findings are believed by a table that stays as it is."""
    with patch.object(scorecard, "TABLE", Path(__file__).with_name("scorecard.toml")):
        fixed_table = scorecard.table.__wrapped__()
    levels = {Confidence.HIGH: 0.93, Confidence.MEDIUM: 0.55}
    with patch.object(scorecard, "table", lambda: fixed_table), patch.dict(scorecard.LEVELS, levels):
        yield


@cache
def functions(text: str) -> tuple[tuple[int, int, str], ...]:
    """First row (decorators are above it), last row and name of every function that is not inside another."""

    def walk(body: Iterable[ast.stmt], prefix: str) -> Iterator[tuple[int, int, str]]:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                yield first, node.end_lineno or node.lineno, prefix + node.name
            elif isinstance(node, ast.ClassDef):
                yield from walk(node.body, f"{prefix}{node.name}.")

    return tuple(walk(ast.parse(text).body, ""))


def function_at(text: str, row: int) -> str:
    return next((name for first, last, name in functions(text) if first <= row <= last), MODULE)


def pieces(text: str) -> dict[str, list[str]]:
    """The lines of every function, and those of no function, blank ones left out."""
    out: dict[str, list[str]] = {}
    for row, line in enumerate(text.splitlines(), 1):
        if line.strip():
            out.setdefault(function_at(text, row), []).append(line)
    return out


def alarm_gaps(texts: Texts, twin: bool = False) -> list[Gap]:
    """Missed and false alarms; nothing is expected of a twin."""
    reported: dict[tuple[str, int, str], str] = {}
    for finding in alarms(texts):
        reported.setdefault((finding.path, finding.span.start.row, finding.code), finding.message)
    wanted = set() if twin else {(name, *mark) for name, text in texts.items() for mark in marks(text)}
    out = []
    for kind, some in (("missed", wanted - reported.keys()), ("false", reported.keys() - wanted)):
        for name, row, code in some:
            shown = name.replace(".py", ".fixed.py") if twin else name
            out.append(Gap(shown, row, function_at(texts[name], row), kind, code, reported.get((name, row, code), "")))
    return sorted(out)


def fix_gaps(case: Case, broken: Iterable[Gap]) -> list[Gap]:
    """Functions whose fixed text is not their twin's; those with wrong alarms, and the fixes by hand, are not judged."""
    skip = {(gap.path, gap.function) for gap in broken}
    after = fixed(case.texts)
    out = []
    for name, text in case.texts.items():
        if case.corrected[name].startswith("# twin: by hand"):
            continue
        mine, its = (
            pieces(without_marks(after[name])),
            pieces(case.corrected[name] if name in case.twins else without_marks(text)),
        )
        for function in sorted({*mine, *its}):
            if mine.get(function) != its.get(function) and (name, function) not in skip:
                pairs = zip_longest(mine.get(function, []), its.get(function, []), fillvalue="")
                got, want = next((a.strip(), b.strip()) for a, b in pairs if a != b)
                row = next((first for first, _, one in functions(text) if one == function), 1)
                out.append(Gap(name, row, function, "fix", "-", f"`{got}` for `{want}`"))
    return out


def again_gaps(case: Case) -> list[Gap]:
    """Functions that fixing changes once more: their finding outlives its fix."""
    once = fixed(case.texts)
    out = []
    for name, text in fixed(once).items():
        before, after = pieces(once[name]), pieces(text)
        changed = [function for function in after if after[function] != before.get(function)]
        out += [Gap(name, 1, function, "again", "-", "a second fixing adds more") for function in sorted(changed)]
    return out


def noqa_gaps(case: Case, broken: Iterable[Gap]) -> list[Gap]:
    """What is still reported, in rows with a marker, with every marker turned into a suppression: what a finding stood for in
    other loops is reported there, then."""
    skip = {(gap.path, gap.function) for gap in broken}
    texts = {name: MARKER.sub(r"  # noqa: \1", text) for name, text in case.texts.items()}
    found = [(one.path, one.span.start.row, one.code, one.message) for one in alarms(texts)]
    gaps = [Gap(path, row, function_at(texts[path], row), "noqa", code, message) for path, row, code, message in found]
    marked = {(name, row) for name, text in case.texts.items() for row, _ in marks(text)}
    return [gap for gap in gaps if (gap.path, gap.function) not in skip and (gap.path, gap.row) in marked]


def twin_gaps(case: Case) -> list[Gap]:
    """Alarms in what is fixed."""
    return [gap for gap in alarm_gaps(case.corrected, twin=True) if gap.path.replace(".fixed.py", ".py") in case.twins]


def gaps(case: Case) -> list[Gap]:
    """Everything in which the linter and a case disagree."""
    wrong = alarm_gaps(case.texts)
    return [*wrong, *twin_gaps(case), *fix_gaps(case, wrong), *again_gaps(case), *noqa_gaps(case, wrong)]


def known() -> frozenset[str]:
    lines = KNOWN.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def table(found: Iterable[Gap]) -> str:
    rows = [(f"{gap.path}:{gap.row}", gap.function, gap.kind, gap.code, gap.message[:150]) for gap in found]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]) for row in rows
    )


HEAD = """\
# Functions of fixtures about which the linter is wrong today: file, function, kind, code.
# A test fails for what is wrong and not listed, and for what is listed and right. `python -m tests.gaps --write` renews it.
"""


def main() -> None:
    found = [*(gap for case in cases() for gap in gaps(case)), *alarm_gaps(examples().texts)]
    print(table(found))
    reported = {kind: sum(gap.kind == kind for gap in found) for kind in ("missed", "false", "fix", "again", "noqa")}
    print("; ".join(f"{kind}: {count}" for kind, count in reported.items()))
    if "--write" in sys.argv:
        KNOWN.write_text(HEAD + "".join(f"{line}\n" for line in sorted({gap.known_as for gap in found})), encoding="utf-8")


if __name__ == "__main__":
    main()
