"""Files that this Python cannot parse: what of them is read, what is reported of the rest, and that damage stays where it is."""

from __future__ import annotations

import ast
import json
import sys
import time
from pathlib import Path

import pytest
from gaps import ROOT, without_marks
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_bad_input import lint

from torchmemlint.errors import SourceError
from torchmemlint.findings import Finding, Position, Severity
from torchmemlint.index.module_facts import module_facts
from torchmemlint.project.settings import Settings
from torchmemlint.run import check_text
from torchmemlint.source.lines import Lines
from torchmemlint.source.tolerant import MOST_LEFT_OUT, NOT_READ, Reading, read

pytestmark = pytest.mark.usefixtures("nothing_around")

SEEDS = [without_marks(path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py"))]
SETTINGS = Settings(codes=("TML000", "TML101"), notes=True)
TRAIN = '''def {name}(model, loader, opt):
    """Trains it."""
    total = 0
    for x in loader:
        loss = model(x).sum()
        loss.backward()
        opt.step()
        total += loss
    return total
'''
PYTHON_2 = """import torch, sys
def train(model, loader, opt):
    total = 0
    for x in loader:
        loss = model(x).sum()
        loss.backward()
        opt.step()
        total += loss
        print 'loss %f' % loss.data[0],
    return total
"""


def reading(text: str) -> Reading:
    found = read(text)
    assert found is not None
    ast.parse(found.text)
    assert len(Lines.of(found.text)) == len(Lines.of(text))
    return found


def found_in(text: str, name: str = "train.py") -> list[Finding]:
    return check_text(text, name, SETTINGS)


REMAINS = {
    "print 'a', b": "print('a', b)",
    "print 'a',": "print('a',)",
    "print`x`": "print(repr(x))",
    "print >>f, 'a'; print 1": "print(  f, 'a'); print(1)",
    "print >>f; print 1": "print(  f); print(1)",
    "if x: print 'a'\nelse: print not x": "if x: print('a')\nelse: print(not x)",
    "try:\n  print 'x'\nexcept (A, B), e:\n  raise": "try:\n  print('x')\nexcept (A, B) as e:\n  raise",
    "raise E, 'm'": "raise E( 'm')",
    "raise E, 'm', traceback": "raise E( 'm', traceback)",
    "exec 'x = 1'": "exec('x = 1')",
    "exec code in names": "exec(code ,  names)",
    "x = a <> b": "x = a != b",
    "x = 0777, 00, 10L, 0xFFL, 0L": "x = 0o777, 00, 10 , 0xFF , 0 ",
    'x = ur\'\\d\' + UR"""a"""': 'x = r\'\\d\' + R"""a"""',
    "f = lambda (k, v): v": "f = lambda _k_v, *, k=_k_v, v=_k_v: v",
    "def f(a, (b, c), d=1):\n  return b": "def f(a, _b_c, d=1, *, b=_b_c, c=_b_c):\n  return b",
    "x.cuda(async=True)": "x.cuda(async_=True)",
    "def f(async=False):\n  return g.async(await=async)": "def f(async_=False):\n  return g.async_(await_=async_)",
}


@pytest.mark.parametrize("text", REMAINS)
def test_what_an_older_python_read_is_put_in_words_of_today(text: str) -> None:
    found = reading(text + "\n")
    assert found.text == REMAINS[text] + "\n"
    assert found.is_of_older_python
    assert found.written_for == ("Python before 3.7" if "async" in text else "Python 2")


def test_what_stands_in_strings_and_comments_stays() -> None:
    text = "# print 'x' <> `y`\ns = \"\"\"\nprint 'x' 0777\n\"\"\"\nprint 'a`<>`'  # 10L\n"
    assert reading(text).text == text.replace("print 'a`<>`'", "print('a`<>`')")


def test_margins_have_the_tab_stops_of_python_2() -> None:
    text = "def f(a):\n\tx = 1\n        if a:\n\t    print(x)\n\treturn x\n"
    found = reading(text)
    assert found.text == text.expandtabs(8)
    assert found.written_for == "Python 2"
    assert found.original(Position(4, 13)) == Position(4, 6)


def test_columns_lead_back_to_the_file() -> None:
    found = reading("print `x`, y\n")
    assert found.text == "print(repr(x), y)\n"
    assert [found.original(Position(1, column)).column for column in (1, 12, 16, 17, 18)] == [1, 8, 12, 13, 13]


def test_python_3_with_a_print_statement_is_not_of_python_2() -> None:
    found = reading("def f(x: int) -> int:\n    print 'x'\n    return x\n")
    assert (found.written_for, found.is_of_older_python) == ("", False)


def test_text_that_parses_is_read_as_it_is() -> None:
    assert read("print('x')\n") is None
    assert not module_facts("a.py", "print('x')\n").recovered


def test_findings_of_python_2_are_notes_without_a_fix() -> None:
    finding, about = found_in(PYTHON_2)
    assert (finding.code, finding.span.start.row, finding.severity, finding.fix) == ("TML101", 8, Severity.NOTE, None)
    assert finding.help.startswith("written for Python 2: ")
    assert (about.code, about.severity) == ("TML000", Severity.NOTE)
    assert about.message.startswith("written for Python 2")


def test_a_comment_suppresses_in_such_a_file() -> None:
    assert [one.code for one in found_in(PYTHON_2.replace("total += loss", "total += loss  # noqa: TML101"))] == ["TML000"]
    assert [one.code for one in found_in("# torchmemlint: file-ignore[TML000]\n" + PYTHON_2)] == ["TML101"]


def test_what_is_missing_at_the_end_of_a_row_is_reported_inside_of_the_file() -> None:
    row = "from torch import nn,  "
    (about,) = found_in(f"import torch\n{row}\n\n\ndef train(model):\n    return model\n")
    assert (about.code, about.span.start.row) == ("TML000", 2)
    assert about.span.start.column == about.span.end.column == len(row) + 1


@pytest.mark.parametrize("statement", ["x = 'a\\\n'\\s\n", "with '\\\n'\\s as x:\n    pass\n", "y = '\\\nabc'\\s\n"])
def test_an_error_behind_a_joined_line_is_reported_inside_of_its_own(statement: str) -> None:
    text = f"import torch\n{statement}\n\ndef train(model):\n    return model\n"
    about = next(one for one in found_in(text) if one.code == "TML000")
    row = text.split("\n")[about.span.start.row - 1]
    assert about.span.start <= about.span.end
    assert about.span.end.column <= len(row) + 1


def test_a_lone_carriage_return_ends_a_row_before_an_error() -> None:
    text = "import torch\nx = 1\ry = 2\ndef f(x):\n\tif x:\n\t    pass\n    def g(self, x):\n        return self.fc(self.bn(x)).sum().mean()\n\n\ndef h(model):\n    return model\n"
    about = next(one for one in found_in(text) if one.code == "TML000")
    row = Lines.of(text).row(about.span.start.row)
    assert about.span.start <= about.span.end
    assert about.span.end.column <= len(row) + 1


BROKEN = {
    "a bracket": "def bad(x):\n    y = f(x\n    return y\n",
    "a header": "def bad(x:\n    return x\n",
    "a string": 'def bad(x):\n    """Never closed.\n    return x\n',
    "a decorated function": "@torch.no_grad()\ndef bad(x):\n    x = = 1\n",
    "a statement": "bad = = 1\n",
    "a loop": "for x in bad:\n    x y\n",
    "a row outdented": "def bad(x):\n    x()\ny z\n    return x\n",
    "a conflict": "def bad(x):\n    x()\n<<<<<<< ours\n    return x\n=======\n    return 1\n>>>>>>> theirs\n",
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_read_is_left_out_and_reported(case: str) -> None:
    rows = TRAIN.count("\n")
    text = "import torch\n" + TRAIN.format(name="first") + BROKEN[case] + TRAIN.format(name="last")
    behind = 1 + rows + BROKEN[case].count("\n")
    found = found_in(text)
    assert [(one.code, one.span.start.row) for one in found if one.code != "TML000"] == [("TML101", 9), ("TML101", behind + 8)]
    assert all(one.fix is None for one in found)
    (about,) = (one for one in found if one.code == "TML000")
    assert about.severity is Severity.ERROR
    first, last = (trouble.rows for trouble in (reading(text).troubles[0], reading(text).troubles[-1]))
    assert first is not None
    assert last is not None
    assert 1 + rows < first[0] <= last[1] <= behind
    assert str(first[0]) in about.message


def test_a_function_inside_is_left_out_alone() -> None:
    text = "class A:\n    def f(self):\n        def g(x):\n            return x y\n        return g\n    z = 1\n"
    assert reading(text).troubles[0].rows == (3, 4)


def test_lone_carriage_returns_end_rows() -> None:
    text = "x = 1\ndef f(a,\r b c):\n    return 1\r\r\n\ny = 2\n"
    found = reading(text)
    assert len(Lines.of(found.text)) == len(Lines.of(text))
    assert Lines.of(found.text).row(7) == Lines.of(text).row(7) == "y = 2"


def test_names_in_what_is_left_out_are_unknown() -> None:
    """A helper that a function which cannot be read may train with is not said to be used by nobody."""
    found = reading("def helper(m):\n    return m(1)\ndef bad(self, m):\n    self.kept = helper(m)\n    m.y z\n")
    assert f"self.kept = {NOT_READ}(helper, m, m.y, z); return {NOT_READ}()" in found.text


def test_too_much_that_cannot_be_read_is_refused() -> None:
    assert read("x = 1\n" + "a b\n" * MOST_LEFT_OUT) is not None
    assert read("x = 1\n" + "a b\n" * (MOST_LEFT_OUT + 1)) is None
    assert read("once upon a time\n") is None


def test_findings_of_a_file_that_no_python_reads_are_notes() -> None:
    text = "import torch\n" + TRAIN.format(name="f")
    assert [one.severity for one in found_in(text)] == [Severity.WARNING]
    finding, about = sorted(found_in(text + "\nAs a result we get this:\n"), key=lambda one: one.span.start.row)
    assert (finding.code, finding.severity, about.code, about.severity) == ("TML101", Severity.NOTE, "TML000", Severity.ERROR)
    assert finding.help.startswith("once the file is valid Python: ")


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python reads them")
def test_a_statement_with_a_newer_f_string_is_left_out_alone() -> None:
    text = TRAIN.format(name="f").replace("        opt.step()\n", '        opt.step()\n        s = f"{x["a"]}"\n')
    found = found_in("import torch\n" + text)
    assert sorted((one.code, one.severity.value) for one in found) == [("TML000", "error"), ("TML101", "warning")]
    assert "needs Python 3.12" in next(one.message for one in found if one.code == "TML000")


def test_cells_of_a_notebook_are_read_likewise() -> None:
    cells = ["%matplotlib inline\nimport torch\nprint 'x'", TRAIN.format(name="f"), "x = = 1\ny = 2", "print 'y'"]
    raw = json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells], "metadata": {}, "nbformat": 4})
    found = [(one.code, one.cell, one.span.start.row, one.severity, one.fix) for one in found_in(raw, "train.ipynb")]
    assert found == [
        ("TML000", 1, 3, Severity.NOTE, None),
        ("TML101", 2, 8, Severity.NOTE, None),
        ("TML000", 3, 1, Severity.ERROR, None),
    ]


@pytest.mark.slow
def test_all_ways_in_say_the_same(tmp_path: Path) -> None:
    text = "import torch\n" + TRAIN.format(name="f") + BROKEN["a bracket"]
    (tmp_path / "a.py").write_text(text)
    (tmp_path / "old.py").write_text(PYTHON_2)
    concise = ("--output-format", "concise", "--notes")
    one = lint("a.py", "old.py", *concise, "--no-cache", cwd=tmp_path)
    assert [tuple(line.split()[:2]) for line in one.stdout.splitlines()[:4]] == [
        ("a.py:9:9:", "TML101"),
        ("a.py:12:10:", "TML000"),
        ("old.py:8:9:", "TML101"),
        ("old.py:9:9:", "TML000"),
    ]
    assert lint("a.py", "old.py", *concise, cwd=tmp_path).stdout == one.stdout
    assert lint("a.py", "old.py", *concise, cwd=tmp_path).stdout == one.stdout  # what the cache says
    assert lint("a.py", "old.py", *concise, "--no-cache", "--jobs", "2", cwd=tmp_path).stdout == one.stdout
    given = lint("-", "--stdin-filename", "a.py", *concise, cwd=tmp_path, stdin=text.encode())
    assert given.stdout.splitlines()[:2] == one.stdout.splitlines()[:2]
    assert lint("a.py", "old.py", "--fix", "--unsafe-fixes", "--notes", cwd=tmp_path).returncode == 1
    assert ((tmp_path / "a.py").read_text(), (tmp_path / "old.py").read_text()) == (text, PYTHON_2)


JUNK = (
    "(",
    "]",
    "{",
    '"',
    "'''",
    '"""',
    "\\",
    "\n",
    "\n  ",
    "\n    ",
    "\t",
    "print x ",
    "= =",
    ":",
    "`",
    "0777",
    " async ",
    "#",
    "@",
    "\r",
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_damage_never_reaches_another_function(data: st.DataObject) -> None:
    names = ["first", "second", "third"]
    parts = ["import torch\n", *(TRAIN.format(name=name) for name in names)]
    hit = data.draw(st.integers(1, 3))
    at = data.draw(st.integers(parts[hit].index("\n"), len(parts[hit]) - 2))
    junk = data.draw(st.sampled_from(JUNK))
    parts[hit] = parts[hit][:at] + junk + parts[hit][at + data.draw(st.integers(0, 3)) :].rstrip("\n") + "\n"
    text = "".join(parts)
    wanted = {name for number, name in enumerate(names, 1) if number != hit}
    assert wanted <= {one.function for one in found_in(text) if one.code == "TML101"}


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(SEEDS), st.data())
def test_damaged_files_are_read_or_refused(seed: str, data: st.DataObject) -> None:
    text = seed
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.sampled_from(JUNK)) + text[at + data.draw(st.integers(0, 30)) :]
    try:
        facts = module_facts("a.py", text)
    except SourceError:
        return
    assert facts.recovered == (read(text) is not None)
    if facts.recovered:
        found = read(text)
        assert found is not None
        lines = Lines.of(text)
        assert len(Lines.of(found.text)) == len(lines)
        for row in range(1, len(lines) + 1):
            place = found.original(Position(row, len(Lines.of(found.text).row(row)) + 1))
            assert place.row == row
            assert place.column <= len(lines.row(row)) + 1


LONG = (
    '"""' * 60_001,
    "(" * 90_000,
    "`" * 90_000,
    "def f(" * 10_000,
    "x = '" * 30_000 + "\n",
    "print x\n" * 4_000 + "(\n",
    "@\n" * 60_000,
    "if x:\n" + "".join(" " * depth + "class A:\n" for depth in range(1, 90)) * 30,
    "lambda (a, b): " * 10_000,
)


@pytest.mark.timed
@pytest.mark.slow
@pytest.mark.parametrize("text", LONG)
def test_time_grows_with_the_text(text: str) -> None:
    began = time.process_time()
    read(text)
    assert time.process_time() - began < 5
