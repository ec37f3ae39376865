"""Writes what stands in two places: the rules' cards, their pages and memory curves, the tables of rules, and what commands print.

    python docs/generate.py

The ``RULE`` of a rule's module is its card; ``rules/cards.py`` repeats all of them, so that they can be read without the
engine behind them. It is written first, because everything else is made with it.

The docstring of a rule's module is its page; here it only gets a heading and links. In the README and the guide, what stands
below ``$ torchmemlint …`` in a ``console`` block is what that command prints in this repository. A test holds them to this.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from functools import lru_cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from pkgutil import walk_packages
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from torchmemlint import check_source, rules
from torchmemlint.findings import INTERNAL_ERROR
from torchmemlint.rules.card import Rule

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.field.calibration import interval
from docs import curves
from torchmemlint.rules import scorecard

DOCS = Path(__file__).parent
CURVES = DOCS / "images"
WITH_CURVES = ("1", "2", "4")
"""Groups of rules whose pages show a curve."""
CARDS = DOCS.parent / "torchmemlint" / "rules" / "cards.py"
README = DOCS.parent / "README.md"
WITH_OUTPUT = (README, DOCS / "getting-started.md", DOCS / "oom.md")
CONSOLE = re.compile(r"(?<=^```console\n)\$ torchmemlint ([^\n]+)\n.*?(?=^```$)", re.MULTILINE | re.DOTALL)
SITE = DOCS.parent / "zensical.toml"
IN_SITE = re.compile(r"(?<=# rules: written by docs/generate\.py\n).*?(?=^ *# end of rules$)", re.MULTILINE | re.DOTALL)
ACCURACY = DOCS / "accuracy.md"
CALIBRATION = DOCS.parent / "benchmarks" / "field" / "calibration.json"
RELIABILITY = CALIBRATION.parent / "reliability.json"
EVIDENCE = DOCS.parent / "benchmarks" / "evidence"
EXAMPLE = EVIDENCE / "example.json"
"""What ``torchmemlint confirm`` measured of the README's first example. ``TMLnnn.json`` beside it is the same of a fixture, for
a rule whose programs show nothing when they only run: on the CPU, TML401's mistake and its fix keep the same bytes."""
FAMILIES = {
    "A": "graphs that outlive their step (TML101 to TML104, TML204)",
    "B": "inference with grad mode on (TML201 to TML203)",
    "C": "`empty_cache()` (TML301 to TML303)",
    "D": "caps on memory (TML305, TML306)",
    "E": "out-of-memory handlers (TML303, TML304)",
    "F": "results on the device (TML401 to TML403)",
    "G": "other graphs and tensors, and what a step needs (TML105 to TML109, TML503, TML506, TML507)",
}
"""Families of labelled mistakes, in words."""
GROUPS = {
    "1": "Graphs that outlive their step",
    "2": "Inference with grad mode on",
    "3": "The allocator and out-of-memory handlers",
    "4": "Results on the device",
    "5": "What a step needs",
    "0": "About the run itself",
    "9": "What a run of the program reports",
}
"""Groups of rules by the first digit of their codes, in the order of the tables."""


def rule_modules() -> list[ModuleType]:
    """Every module below ``rules`` that has a ``RULE``, in code order; found on disk, so that a new one only has to be there."""
    below = rules.__name__.count(".") + 2  # beside the packages lies what reads the cards, which may be out of date now
    names = [module.name for module in walk_packages(rules.__path__, f"{rules.__name__}.") if module.name.count(".") == below]
    found = sorted(
        (module for module in map(import_module, names) if hasattr(module, "RULE")), key=lambda module: module.RULE.code
    )
    for one, other in pairwise(found):
        if one.RULE.code == other.RULE.code:
            raise SystemExit(
                f"{one.RULE.code} is taken: {one.__name__} and {other.__name__} have it; docs/rules/README.md lists all codes"
            )
    return found


def cards() -> str:
    """``rules/cards.py``: the card of every rule, by the name of its module."""
    lines = [
        '"""The cards of all rules, in code order: a copy of each module\'s ``RULE``. Written by ``python docs/generate.py``."""',
        "",
        "from torchmemlint.findings import Safety, Severity",
        "from torchmemlint.rules.card import About, Advice, Correction, Once, Rule, Same, Shown",
        "",
        "# fmt: off",
        "CARDS = {",
    ]
    for module in rule_modules():
        lines.append(f'    "{module.__name__.removeprefix(rules.__name__ + ".")}": Rule(')
        lines += [f"        {name}={written(value)}," for name, value in own_words(module.RULE)]
        lines.append("    ),")
    return "\n".join([*lines, "}", ""])


def own_words(rule: Rule) -> Iterator[tuple[str, object]]:
    """The fields of a card that say something: those without a default, and those that differ from it."""
    for one in fields(rule):
        value = getattr(rule, one.name)
        if value != one.default:
            yield one.name, value


def written(value: object) -> str:
    """A field's value as source text, the same on every run."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, frozenset):
        return f"frozenset({{{', '.join(written(item) for item in sorted(value))}}})"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)


@lru_cache
def typical(code: str) -> str:
    """The severity that the example of a rule's page is reported with."""
    rule = rules.rule_of(code)
    blocks = re.findall(r"^```python\n(.*?)^```$", rules.page(code), re.MULTILINE | re.DOTALL)
    options = {"preview": True, "extend-select": [code], "notes": True, "min-confidence": "low"}
    with TemporaryDirectory() as alone:  # else a file of the current folder, around which others are looked for
        name = os.path.join(alone, "example.py")
        found = check_source(blocks[0], name, options=options, isolated=True) if blocks and code > "TML1" else []
    crash = next((one for one in found if one.code == INTERNAL_ERROR), None)
    if crash is not None:
        raise SystemExit(f"{code}: the example of its page: {crash.message}")
    return next((one.severity.value for one in found if one.code == code), rule.severity.value)


def severity(rule: Rule) -> str:
    """What the card says of it, which must be true of the page's example."""
    usual = (rule.typical or rule.severity).value
    if usual != typical(rule.code):
        raise SystemExit(f"{rule.code}: the card says {usual}, and the example of the page is reported as {typical(rule.code)}")
    return rule.severities()


def table(folder: str) -> str:
    """All rules in groups, one row each; ``folder`` is where the pages are, as seen from the file that the table is in."""
    rows = []
    for digit, title in GROUPS.items():
        rows += [f"### {title}", "", "| code | reports | severity | fix | enabled |", "|---|---|---|---|---|"]
        for rule in (one for one in rules.ALL_RULES if one.code[3] == digit):
            fix = "" if rule.fix.value == "none" else rule.fix.value
            link = f"[{rule.code}]({folder}{rule.code}.md) {rule.name}"
            rows.append(f"| {' | '.join((link, rule.summary, severity(rule), fix, rule.when()))} |")
        rows.append("")
    return "\n".join(rows).rstrip("\n")


def linked(text: str, own: str) -> str:
    """Codes of other rules and names of guide pages made links, but not in code."""
    parts = re.split(r"(```.*?```|`[^`]*`)", text, flags=re.DOTALL)
    for index in range(0, len(parts), 2):
        parts[index] = re.sub(rf"\b(?!{own})TML\d{{3}}\b", r"[\g<0>](\g<0>.md)", parts[index])
        parts[index] = re.sub(r"\bdocs/(\w+\.md)\b", r"[\g<0>](../\1)", parts[index])
    return "".join(parts)


def rule_page(rule: Rule) -> str:
    """A rule's page as Markdown."""
    page = linked(rules.page(rule.code).strip(), rule.code)
    page = page.replace("\n## Example\n", "\n".join(["", *picture(rule.code), "## Example", ""]), 1)
    return f"# {rule.code}: {rule.name}\n\n{rule.facts()}\n\n{page}\n{measured(rule.code)}"


@lru_cache
def curve_of(code: str) -> tuple[str, str] | None:
    """The curve of a rule as SVG, and the pair of programs that it is of; None without a confirmed experiment."""
    for _, record in records():
        row = curves.best([row for row in record["pairs"] if row["code"] == code]) if code[3] in WITH_CURVES else None
        if row is not None:
            return curves.curve(code, row, record), row["pair"]
    single = EVIDENCE / f"{code}.json"
    if single.exists():
        row = json.loads(single.read_text(encoding="utf-8"))
        return curves.curve(code, row, row), row["pair"]
    return None


@lru_cache
def records() -> tuple[tuple[str, dict[str, Any]], ...]:
    """The latest record of each kind of device, by the name of its file."""
    latest: dict[str, Path] = {}
    for path in sorted((EVIDENCE / "records").glob("*.json")):
        latest[path.stem.split("-", 3)[3]] = path
    return tuple((path.stem, json.loads(path.read_text(encoding="utf-8"))) for _, path in sorted(latest.items()))


def measured(code: str) -> str:
    """The section of a rule's page that quotes the records of evidence; "" for a rule without an experiment."""
    from torchmemlint.confirm.report import size  # reads the cards, which are written first

    rows = []
    sources = []
    for stem, record in records():
        found = [row for row in record["pairs"] if row["code"] == code and row["before"] and row["after"]]
        for row in found:
            before, after = row["before"], row["after"]
            cells = [
                row["pair"],
                f"{row['verdict']}: {row['kind']}",
                *(f"{before[name]:,} → {after[name]:,}" for name in ("live_bytes_per_step", "nodes_per_step")),
                f"{size(before['peak_bytes'])} → {size(after['peak_bytes'])}",
                record["device"],
            ]
            rows.append(f"| {' | '.join(cells)} |")
        if found:
            sources.append(f"`benchmarks/evidence/records/{stem}.md` (torch {record['torch']}, {record['device']})")
    if not rows:
        return ""
    lines = [
        "## Measured",
        f"Pairs of programs in `fixtures/{code}` that differ only by the mistake, run by `python -m benchmarks.evidence`. Each cell: with the mistake → without it.",
        "",
        "| program | verdict | bytes kept per step | graph nodes per step | peak | device |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        f"From {' and '.join(sources)}.",
    ]
    return "\n" + "\n".join(lines) + "\n"


def picture(code: str) -> list[str]:
    """The rule's curve, and the sentence below it."""
    drawn = curve_of(code)
    if drawn is None:
        return []
    return [
        f"![Memory with the mistake and without it](../images/{code}.svg)",
        "",
        f"Measured on `{drawn[1]}` in `fixtures/{code}`, a small model: look at the shape of the curves, not at the bytes.",
        "",
    ]


def levels(record: dict[str, Any]) -> str:
    """The table of true and false findings by confidence and severity."""
    rows = ["| confidence | error | warning | note | true | 95% interval |", "|---|---|---|---|---|---|"]
    for level, by_severity in record["levels"].items():
        cells = [f"{true} of {true + false}" if true + false else "" for true, false in by_severity.values()]
        true, false = (sum(pair[at] for pair in by_severity.values()) for at in (0, 1))
        low, high = interval(true, true + false)
        share = f"{true / (true + false):.0%}" if true + false else ""
        rows.append(f"| {level} | {' | '.join(cells)} | {share} | {low:.0%} to {high:.0%} |")
    return "\n".join(rows)


def recall(record: dict[str, Any]) -> str:
    """The table of mistakes found, by family and by the least confidence that is printed."""
    found, mistakes = record["found"], record["mistakes"]
    rows = ["| mistakes | labelled | high | and medium | and low |", "|---|---|---|---|---|"]
    sums = {level: sum(found[level].values()) for level in ("high", "medium", "low")}
    for family, words in FAMILIES.items():
        cells = [str(found[level].get(family, 0)) for level in sums]
        rows.append(f"| {words} | {mistakes.get(family, 0)} | {' | '.join(cells)} |")
    total = sum(mistakes.values())
    rows.append(f"| all | {total} | {' | '.join(f'{count} ({count / total:.0%})' for count in sums.values())} |")
    costly = (
        "One finding may be on several labelled mistakes, and several on one, so these counts differ from those above.\n"
        f"Of the {total}, {record['costly']} cost something, which means that they are not notes; "
        f"{sum(found['printed'].values())} of these are printed by default."
    )
    return "\n".join([*rows, "", costly])


def between(text: str, mark: str, content: str) -> str:
    """A text with the content between two marks replaced."""
    begin, end = f"<!-- {mark}: written by docs/generate.py -->", f"<!-- end of {mark} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"the marks around {mark} are gone")
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


def points() -> str:
    """The table of what the facts of a finding weigh."""
    rows = ["| | points | standard error | findings |", "|---|---|---|---|"]
    for name, row in (
        *scorecard.table().rules.items(),
        *sorted(scorecard.table().rows.items(), key=lambda each: each[1].points),
    ):
        rows.append(f"| {name} | {row.points:+.1f} | {row.error:.1f} | {row.n} |")
    return "\n".join(rows)


def reliability(record: dict[str, Any]) -> str:
    """What the table expected, and what readers found."""
    rows = ["| | findings | expected | not false |", "|---|---|---|---|"]
    for title, levels in (("", record["fitted"]), (", held out", record["not fitted"])):
        rows += [f"| {level}{title} | {n} | {expected:.0%} | {found:.0%} |" for level, (n, expected, found) in levels.items()]
    losses = ", ".join(f"{way} {loss:.4f}" for way, loss in record["log-loss"].items())
    return "\n".join([*rows, "", f"Log-loss, each sample predicted from the others: {losses}."])


def accuracy() -> str:
    """``accuracy.md`` with the tables of the latest calibration and fit."""
    text = ACCURACY.read_text(encoding="utf-8")
    record = json.loads(CALIBRATION.read_text(encoding="utf-8"))
    for mark, content in {
        "levels": levels(record),
        "points": points(),
        "reliability": reliability(json.loads(RELIABILITY.read_text(encoding="utf-8"))),
        "families": recall(record),
    }.items():
        text = between(text, mark, content)
    return text


def printed(command: re.Match[str]) -> str:
    """The command and what it prints, run at the root of the repository."""
    words = [sys.executable, "-m", "torchmemlint", *command[1].split()]
    done = subprocess.run(
        words, cwd=DOCS.parent, env={**os.environ, "NO_COLOR": "1"}, capture_output=True, encoding="utf-8", check=False
    )
    if done.returncode > 1:
        raise SystemExit(f"torchmemlint {command[1]}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return f"$ torchmemlint {command[1]}\n{done.stdout}"


def generated() -> dict[Path, str]:
    """Every file that is written from the rules, with its text; the cards must be written before the others are asked for."""
    files = {DOCS / "rules" / f"{rule.code}.md": rule_page(rule) for rule in rules.ALL_RULES}
    files[DOCS / "rules" / "README.md"] = (
        "# The rules\n\n*Severity* is that of a typical finding; *at worst* is the highest that the rule gives. Most rules also give "
        "lower ones: see their pages. *Fix* is the best fix that the rule offers. A rule is enabled by default, on request (`--extend-select CODE`), "
        "or with `--preview`. The accuracy of a preview rule on real code is still being measured. `torchmemlint rule CODE` prints the same "
        "pages.\n\n" + table("") + "\n"
    )
    files |= {CURVES / f"{rule.code}.svg": drawn[0] for rule in rules.ALL_RULES if (drawn := curve_of(rule.code))}
    example = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    files[CURVES / "example.svg"] = curves.curve(example["code"], example, example)
    index = DOCS / "index.md"
    files[index] = between(index.read_text(encoding="utf-8"), "rules", table("rules/"))
    for path in WITH_OUTPUT:
        files[path] = CONSOLE.sub(printed, path.read_text(encoding="utf-8"))
    files[ACCURACY] = accuracy()
    site = SITE.read_text(encoding="utf-8")
    if IN_SITE.search(site) is None:
        raise SystemExit(f"{SITE}: the marks around the rules are gone")
    entries = "".join(f'    {{ "{rule.code} {rule.name}" = "rules/{rule.code}.md" }},\n' for rule in rules.ALL_RULES)
    files[SITE] = IN_SITE.sub(lambda _: entries, site)
    return files


if __name__ == "__main__":
    CARDS.write_text(cards(), encoding="utf-8")
    for path, text in generated().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
