"""What each format writes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchmemlint.findings import Confidence, Edit, Finding, Fix, FlowStep, Position, Safety, Severity, Span
from torchmemlint.reporters import FORMATS, Context, render
from torchmemlint.suppress import fingerprint

TEXT = """import torch

def train(model, loader, crit):
    total = 0
    for x, y in loader:
        loss = crit(model(x), y)
        log("漢字👍é"); total += loss

    return total
"""


def span(row: int, start: int, end: int, end_row: int | None = None) -> Span:
    return Span(Position(row, start), Position(end_row or row, end))


FINDING = Finding(
    code="TML101",
    name="graph-attached-running-total",
    severity=Severity.ERROR,
    confidence=Confidence.HIGH,
    message="`total` keeps the autograd graph of every step it adds",
    path="src/a.py",
    span=span(7, 22, 35),
    label="added here, outlives the loop",
    cost="1.00 training graph per step",
    help="add `loss.detach()`",
    function="train",
    statement="total += loss",
    noqa_rows=frozenset({3, 7}),
    noqa_row=7,
    flow=(
        FlowStep("src/a.py", span(6, 16, 33), "`loss` is made here"),
        FlowStep("src/b.py", span(3, 1, 4), "called with grad on"),
    ),
    fix=Fix("detach it", Safety.SAFE, (Edit(span(7, 35, 35), ".detach()"),)),
)


def full(finding: Finding = FINDING, text: str | None = TEXT, color: bool = False) -> str:
    return render("full", [finding], Context(text=lambda path: text, color=color))


def test_full() -> None:
    assert (
        full()
        == """\
error[TML101]: `total` keeps the autograd graph of every step it adds
 --> src/a.py:7:22
  |
5 |     for x, y in loader:
6 |         loss = crit(model(x), y)
  |                ----------------- `loss` is made here
7 |         log("漢字👍é"); total += loss
  |                         ^^^^^^^^^^^^^ added here, outlives the loop
  |
  = note: src/b.py:3:1: called with grad on
  = cost: 1.00 training graph per step
  = help: add `loss.detach()` [safe fix: --fix]
  |
7 -         log("漢字👍é"); total += loss
7 +         log("漢字👍é"); total += loss.detach()
"""
    )


def test_full_without_the_file_and_with_a_changed_one() -> None:
    bare = """\
error[TML101]: `total` keeps the autograd graph of every step it adds
 --> src/a.py:7:22
  = note: src/a.py:6:16: `loss` is made here
  = note: src/b.py:3:1: called with grad on
  = cost: 1.00 training graph per step
  = help: add `loss.detach()` [safe fix: --fix]
"""
    assert full(text=None) == bare
    assert full(text="short\n") == bare


def test_full_far_apart_with_tabs_and_both_labels_on_one_row() -> None:
    text = "\tx = f()\n" * 12
    both = replace(
        FINDING,
        span=span(11, 2, 9),
        flow=(FlowStep("src/a.py", span(11, 6, 9), "made here"),),
        fix=Fix("wrap it", Safety.UNSAFE, tuple(Edit(span(row, 1, 1), "\t") for row in range(2, 12))),
        help="",
        cost="",
    )
    assert (
        full(both, text)
        == """\
error[TML101]: `total` keeps the autograd graph of every step it adds
  --> src/a.py:11:2
   |
10 |     x = f()
11 |     x = f()
   |     ^^^^^^^ added here, outlives the loop
   |         --- made here
12 |     x = f()
   |
   = help: wrap it [unsafe fix: --fix --unsafe-fixes]
   |
 2 -     x = f()
 3 -     x = f()
 4 -     x = f()
 5 -     x = f()
 6 -     x = f()
 7 -     x = f()
 8 -     x = f()
   | … and 13 more lines
"""
    )
    apart = replace(both, flow=(FlowStep("src/a.py", span(3, 2, 3), "made here"),), fix=None)
    rows = full(apart, text).splitlines()
    assert rows.index("   |     - made here") < rows.index("...") < rows.index("11 |     x = f()")


def test_full_over_many_rows() -> None:
    text = "a = f(\n    1,\n    2,\n    3,\n    4,\n)\n"
    many = replace(FINDING, span=span(1, 5, 2, end_row=6), flow=(), fix=None, help="", cost="")
    assert (
        full(many, text).split("\n", 3)[3]
        == """\
1 | a = f(
  |     ^^
2 |     1,
  |     ^^
3 |     2,
  |     ^^
...
6 | )
  | ^ added here, outlives the loop
  |
"""
    )


@pytest.mark.parametrize(
    ("edits", "rows"),
    [
        ([Edit(span(2, 1, 1), "@g()\n")], ["2 + @g()"]),
        ([Edit(span(2, 1, 1, end_row=3), "")], ["2 - b"]),
        ([Edit(span(1, 2, 1, end_row=2), "")], ["1 - a", "2 - b", "1 + ab"]),
        ([Edit(span(1, 2, 2), "\nz"), Edit(span(4, 1, 2), "D")], ["2 + z", "4 - d", "5 + D"]),
        ([Edit(span(9, 1, 1), "x")], []),
    ],
)
def test_the_diff_of_a_fix(edits: Sequence[Edit], rows: list[str]) -> None:
    finding = replace(FINDING, span=span(1, 1, 2), flow=(), fix=Fix("m", Safety.SAFE, tuple(edits)))
    after = full(finding, "a\nb\nc\nd\n").split("[safe fix: --fix]\n")[1]
    assert after.splitlines()[1:] == rows


def test_characters_that_would_drive_a_terminal_are_replaced() -> None:
    hostile = replace(
        FINDING, message="m\x1b[2J\r\n", path="a\u202e\n.py", label="\x9b2J", flow=(), fix=None, span=span(1, 1, 2)
    )
    text = "x\x1b]0;t\x07 = '\u202e'\n"
    for output_format in ("full", "concise"):
        written = render(output_format, [hostile], Context(text=lambda path: text))
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", written)
        assert r'"a\342\200\256\n.py":1:1' in written


def test_colour_adds_nothing_but_colour() -> None:
    painted = full(color=True)
    assert "\x1b[1;31merror[TML101]\x1b[0m" in painted
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == full()


@pytest.mark.timed
def test_a_row_without_end_is_cut_around_what_is_marked() -> None:
    text = "x = [" + "'漢', " * 1_000_000 + "total]\n"
    column = text.index("total") + 1
    far = replace(FINDING, span=span(1, column, column + 5), flow=(), fix=Fix("m", Safety.SAFE, (Edit(span(1, 1, 2), "y"),)))
    began = time.process_time()
    rows = full(far, text).splitlines()
    assert time.process_time() - began < 2
    assert max(map(len, rows)) < 400
    code, marks = rows[3:5]
    assert code.startswith("1 | …")
    wide = sum(2 if char == "漢" else 1 for char in code[: code.index("total")])
    assert marks.index("^") == wide


@given(st.text(alphabet="ab \t漢é👍e\u0301\u200d\x1b", max_size=30), st.data())
def test_marks_stand_under_what_is_marked(row: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(row)))
    end = data.draw(st.integers(start, len(row)))
    text = f"{row}\n"
    finding = replace(FINDING, span=span(1, start + 1, end + 1), label="<", flow=(), fix=None)
    marks = full(finding, text).splitlines()[4]

    def columns(upto: int) -> int:
        at = 0
        for char in row[:upto]:
            at += {"\t": 4 - at % 4, "漢": 2, "👍": 2, "\u0301": 0, "\u200d": 0}.get(char, 1)
        return at

    assert marks.index("^") == 4 + columns(start)
    assert marks.count("^") == max(1, columns(end) - columns(start))


def test_concise() -> None:
    cell = replace(FINDING, path="n.ipynb", cell=3)
    assert render("concise", [FINDING, cell], Context()) == (
        "src/a.py:7:22: TML101 `total` keeps the autograd graph of every step it adds\n"
        "n.ipynb:cell 3:7:22: TML101 `total` keeps the autograd graph of every step it adds\n"
    )


FLOW_PLACES = (
    {"row": 6, "column": 16, "end_row": FINDING.flow[0].span.end.row, "end_column": FINDING.flow[0].span.end.column},
    {"row": 3, "column": 1, "end_row": FINDING.flow[1].span.end.row, "end_column": FINDING.flow[1].span.end.column},
)


def test_json_has_exactly_the_promised_keys() -> None:
    (entry,) = json.loads(render("json", [FINDING], Context(docs="https://example.org/rules")))
    assert entry == {
        "code": "TML101",
        "name": "graph-attached-running-total",
        "fingerprint": fingerprint(FINDING),
        "noqa_row": 7,
        "severity": "error",
        "confidence": "high",
        "message": "`total` keeps the autograd graph of every step it adds",
        "label": FINDING.label,
        "cost": FINDING.cost,
        "help": FINDING.help,
        "probability": 1.0,
        "unless": "",
        "evidence": [],
        "filename": "src/a.py",
        "cell": None,
        "location": {"row": 7, "column": 22},
        "end_location": {"row": 7, "column": 35},
        "function": "train",
        "statement": FINDING.statement,
        "occurrence": 0,
        "flow": [
            {"filename": "src/a.py", "cell": None, **FLOW_PLACES[0], "message": "`loss` is made here"},
            {"filename": "src/b.py", "cell": None, **FLOW_PLACES[1], "message": "called with grad on"},
        ],
        "url": "https://example.org/rules/TML101.html",
        "fix": {
            "applicability": "safe",
            "message": "detach it",
            "needs_import": None,
            "proof": [],
            "edits": [{"content": ".detach()", "location": {"row": 7, "column": 35}, "end_location": {"row": 7, "column": 35}}],
        },
    }


def test_json_of_nothing_and_of_little() -> None:
    assert json.loads(render("json", [], Context())) == []
    bare = replace(FINDING, fix=Fix("m", Safety.NONE, ()), noqa_row=0, cell=2, path="\udcff.py")
    (entry,) = json.loads(render("json", [bare], Context()))
    assert (entry["fix"], entry["url"], entry["noqa_row"], entry["cell"]) == (None, None, 7, 2)
    assert entry["filename"] == r'"\377.py"'  # half a character is none in JSON that is strictly read


def test_github() -> None:
    finding = replace(FINDING, path="a,b:c%.py", severity=Severity.WARNING, message="100 % sure", help="")
    assert render("github", [finding], Context()) == (
        "::warning title=torchmemlint (TML101),file=a%2Cb%3Ac%25.py,line=7,col=22,endLine=7,endColumn=35::"
        "a,b:c%25.py:7:22: TML101 100 %25 sure%0A  cost: 1.00 training graph per step\n"
    )


def test_github_shows_the_worst_and_counts_the_rest() -> None:
    notes = [replace(FINDING, severity=Severity.NOTE, span=span(row, 1, 2)) for row in range(1, 11)]
    errors = [replace(FINDING, span=span(row, 1, 2)) for row in range(1, 13)]
    lines = render("github", [*notes, *errors], Context()).splitlines()
    assert [line.startswith("::error ") for line in lines] == [*[True] * 10, *[False] * 13]
    assert lines[9] == "::error title=torchmemlint::3 more, see the log of this step"
    assert [line.split(" TML101")[0] for line in lines[10:13]] == ["src/a.py:10:1:", "src/a.py:11:1:", "src/a.py:12:1:"]
    assert all(line.startswith("::notice ") for line in lines[13:])


@pytest.mark.parametrize("output_format", sorted({*FORMATS} - {"sarif", "junit", "rdjson"}))
def test_no_findings(output_format: str) -> None:
    assert render(output_format, [], Context()) == ("[]\n" if output_format in ("json", "gitlab") else "")


def test_unknown_format() -> None:
    with pytest.raises(KeyError):
        render("yaml", [], Context())


def test_only_the_asked_for_format_is_loaded() -> None:
    code = (
        "import sys; from torchmemlint.reporters import Context, render; render('concise', [], Context());"
        "print([name for name in sys.modules if name in ('json', 'hashlib', 'rich', 'torch', 'libcst')"
        " or name.startswith('torchmemlint.reporters.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "['torchmemlint.reporters.style', 'torchmemlint.reporters.concise']"
