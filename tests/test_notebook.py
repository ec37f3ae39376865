"""Notebooks: one module over their cells, places in cells, and fixes that change nothing but a cell's source."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import forked
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from notebooks import SETUP, TRAINING, notebook, rows

from torchmemlint.api import check_source
from torchmemlint.errors import SourceError
from torchmemlint.findings import Finding, Position, Span
from torchmemlint.source.file import SourceFile, source_from_text
from torchmemlint.source.notebook import Notebook, read_notebook

pytestmark = pytest.mark.usefixtures("nothing_around")

ROOT = Path(__file__).parent.parent
FIXTURE = (ROOT / "fixtures" / "TML101" / "running_total.py").read_text(encoding="utf-8")


def read(raw: str) -> tuple[SourceFile, Notebook]:
    source = source_from_text("n.ipynb", raw)
    assert source.notebook is not None
    return source, source.notebook


def code_of(*cells: str | list[str]) -> list[str]:
    """What the module has of each cell, without marks and tails."""
    found: list[str] = []
    for row in read(notebook(*cells))[0].text.splitlines():
        if row.startswith("# torchmemlint: enable, cell "):
            found.append("")
        else:
            found[-1] += re.sub(r"  # magic \d+$", "", row) + "\n"
    return [code[:-1] for code in found]


def check(*cells: str | list[str], **options: object) -> list[Finding]:
    return check_source(notebook(*cells), "n.ipynb", options=options, isolated=True)


# --- masks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "masked"),
    [
        ("%matplotlib inline", "pass              "),
        ("!ls", "pass"),
        ("?print", "pass  "),
        ("print?", "pass  "),
        ("torch.nn.Linear??  # how", "pass" + " " * 20),
        ("if x:\n    !pip install y", "if x:\n    pass          "),
        ("!pip install \\\n    torch\nx = 1", "pass          \n\nx = 1"),
        ("files = !ls *.pt", "files = _       "),
        ("a, b = %load_thing é", "a, b = _            "),
        ("out = %time model(x)", "out =       model(x)"),
        ("%time out = model(x)", "if 1: out = model(x)"),
        ("%timeit -n 10 -r3 model(x)", "if 1:             model(x)"),
        ("%time for x in y: f(x)", "pass" + " " * 18),
        ("%%time\nx = 1", "pass  \nx = 1"),
        ("\n%%capture out\nx = 1", "\npass         \nx = 1"),
        ("/f x", "pass"),
        ("pip install torch\nls = 1\nls -= 2", "pass             \nls = 1\nls -= 2"),
        # Python that only looks like it
        ("x = (a\n% b)\n!ls", "x = (a\n% b)\npass"),
        ("s = '''\n%d items\n!!\n'''\n%cd x", "s = '''\n%d items\n!!\n'''\npass "),
        ("s = '''a\\'''\n%d'''\n%cd x", "s = '''a\\'''\n%d'''\npass "),
        ("x = 5 \\\n% 3\n!ls", "x = 5 \\\n% 3\npass"),
        ("f('(', \"[\")  # {\n%cd x", "f('(', \"[\")  # {\npass "),
        ("x == 3 != 4\n!ls", "x == 3 != 4\npass"),
    ],
)
def test_what_only_ipython_reads_is_masked(source: str, masked: str) -> None:
    (code,) = code_of(source)
    assert code == masked
    ast.parse(code)


def test_a_cell_that_is_python_is_left_alone() -> None:
    assert code_of("x = (a\n% b)", "s = '''\n%%bash\n'''") == ["x = (a\n% b)", "s = '''\n%%bash\n'''"]


@pytest.mark.parametrize("magic", ["%%bash", "%%writefile a.py", "%%html", "%%", "%%javascript"])
def test_cells_of_other_languages_are_left_out(magic: str) -> None:
    assert code_of("x = 1", f"{magic}\nimport torch") == ["x = 1"]


def test_cells_that_hold_no_python_are_left_out() -> None:
    raw = notebook(
        {"cell_type": "markdown", "metadata": {}, "source": "x ="},
        {"cell_type": "raw", "metadata": {}, "source": ["y ="]},
        {"cell_type": "code", "metadata": {"vscode": {"languageId": "julia"}}, "outputs": [], "source": "z ="},
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": [1]},
        "x = 1",
    )
    source, found = read(raw)
    assert [cell.number for cell in found.cells] == [5]
    assert found.broken == ()
    assert source.text == "# torchmemlint: enable, cell 5\nx = 1\n"


@pytest.mark.parametrize(
    ("metadata", "other"),
    [
        ({}, ""),
        ({"language_info": {"name": "python"}}, ""),
        ({"kernelspec": {"language": "Python", "name": "x"}}, ""),
        ({"kernelspec": {"name": "ir"}, "language_info": {"name": "R"}}, "its kernel runs r"),
        ({"kernelspec": {"language": "julia"}}, "its kernel runs julia"),
        ({"language_info": 3, "kernelspec": []}, ""),
    ],
)
def test_only_python_kernels(metadata: dict[str, Any], other: str) -> None:
    found = read(notebook("x = 1", **metadata))[1]
    assert found.other == other
    assert bool(found.cells) is not bool(other)


@pytest.mark.parametrize(
    ("raw", "words", "place"),
    [
        ("", "is not valid JSON: Expecting value", (1, 1)),
        ('{"cells": [\n  }', "is not valid JSON: Expecting value", (2, 3)),
        ("[]", "is not a notebook", (1, 1)),
        ('{"cells": 3}', "is not a notebook", (1, 1)),
        ('{"cells": ' + "[" * 100_000, "nested too deeply", (1, 1)),
        ('{"cells": [' + "9" * 10_000 + "]}", "is not valid JSON: Exceeds the limit", (1, 1)),
    ],
)
def test_what_is_no_notebook(raw: str, words: str, place: tuple[int, int]) -> None:
    with pytest.raises(SourceError, match=words) as caught:
        read_notebook(raw)
    assert (caught.value.row, caught.value.column) == place


def test_an_old_notebook_is_not_read() -> None:
    assert "format from before 2015" in read('{"worksheets": [], "nbformat": 3}')[1].other


# --- places ---------------------------------------------------------------------------------------------------------


def test_flow_crosses_cells_and_places_count_in_cells() -> None:
    setup = "import torch\n%matplotlib inline\nmodel = torch.nn.Linear(3, 3)\nloader = [torch.ones(3)] * 99\ntotal = 0"
    (finding,) = check(setup, "%%bash\nls", {"cell_type": "markdown", "source": "# é"}, TRAINING, "print(total)")  # type: ignore[arg-type]
    assert finding.code == "TML101"
    assert (finding.cell, finding.span) == (4, Span(Position(4, 5), Position(4, 18)))
    assert [(step.cell, step.span.start) for step in finding.flow] == [(4, Position(2, 12))]
    assert finding.fix is not None
    assert {edit.span.start.row for edit in finding.fix.edits} == {4}
    assert finding.noqa_row == 4


def test_a_finding_on_a_row_with_a_magic_has_no_fix() -> None:
    (finding,) = check(SETUP, TRAINING.replace("total += loss", "%time total += loss"))
    assert (finding.code, finding.cell) == ("TML101", 2)
    assert finding.span == Span(Position(4, 11), Position(4, 24))
    assert finding.fix is None


def test_a_notebook_has_the_findings_of_its_code_as_a_script() -> None:
    script = check_source(FIXTURE, "n.py", isolated=True)
    assert script
    tree = ast.parse(FIXTURE)
    cut = [0, *(node.end_lineno for node in tree.body if node.end_lineno), FIXTURE.count("\n")]
    lines = FIXTURE.splitlines(keepends=True)
    cells = ["".join(lines[first:last]).rstrip("\n") for first, last in pairwise(cut)]
    first_rows = [row + 1 for row in cut]
    found = check(*cells)
    assert [(one.code, first_rows[(one.cell or 0) - 1] + one.span.start.row - 1) for one in found] == [
        (one.code, one.span.start.row) for one in script
    ]


def test_broken_cells_are_reported_and_the_others_are_checked() -> None:
    found = check("import torch\nmodel = torch.nn.Linear(3, 3)\ntotal = 0", "x = (", TRAINING, "y = $  # noqa")
    assert [(one.code, one.cell, one.span.start) for one in found] == [
        ("TML000", 2, Position(1, 5)),
        ("TML101", 3, Position(4, 5)),
    ]


def test_a_cell_cannot_swallow_the_next() -> None:
    found = check("x = '''", "import torch", "'''")
    assert [(one.code, one.cell) for one in found] == [("TML000", 1), ("TML000", 3)]


def test_a_row_like_one_of_ours_stays_the_users() -> None:
    cells = ["# torchmemlint: enable, cell 2\nx = 1  # magic 0", "!ls\ny = 2  # magic 0'"]
    raw = notebook(*cells)
    source, found = read(raw)
    assert [source.cells and source.cells.place(row) for row in (3, 6)] == [(1, 2), (2, 2)]
    after = source.file_text(source.text.replace("y = 2", "y = 3"))
    assert after == raw.replace("y = 2", "y = 3")
    assert found.nonce


# --- suppression ----------------------------------------------------------------------------------------------------


def test_comments_in_cells() -> None:
    assert check(SETUP, TRAINING + "  # noqa: TML101") == []
    assert check(SETUP, TRAINING.replace("    total", "    # torchmemlint: ignore[TML101] why\n    total")) == []
    assert check(SETUP, TRAINING, "# torchmemlint: file-ignore[TML101]") == []
    assert check("# torchmemlint: disable[TML1]\n" + SETUP + "\n" + TRAINING) == []


def test_disable_ends_with_its_cell() -> None:
    (finding,) = check(f"# torchmemlint: disable\n{SETUP}", TRAINING)
    assert finding.cell == 2
    assert check(SETUP, f"# torchmemlint: disable\n{TRAINING}") == []


# --- writing back ---------------------------------------------------------------------------------------------------


def replaced(raw: str, old: str, new: str) -> str:
    source, _ = read(raw)
    assert old in source.text
    return source.file_text(source.text.replace(old, new))


CODE = "%cd é\nx = 'é漢👍'\ny = 1\n"


@pytest.mark.parametrize("indent", [None, 1, 2, 4])
@pytest.mark.parametrize("as_list", [True, False])
def test_only_the_changed_source_is_written(indent: int | None, as_list: bool) -> None:
    cells = [CODE, "z = 1", CODE]
    raw = notebook(*(rows(cell) if as_list else cell for cell in cells), indent=indent)
    after = replaced(raw, "z = 1", "z = 1\nw = 'é👍'")
    cells[1] = "z = 1\nw = 'é👍'"
    assert after == notebook(*(rows(cell) if as_list else cell for cell in cells), indent=indent)


def test_the_spelling_of_what_stays_is_kept() -> None:
    raw = (
        notebook(["a = '\\u00e9'\n", "b = 'é'\n", "c = 1"])
        .replace("b = 'é'", r"b = '\u00e9\ud83d\udc4d\/'")
        .replace("\n", "\r\n")
    )
    after = replaced(raw, "c = 1", "c = 2\nd = 3")
    assert after == raw.replace('"c = 1"', '"c = 2\\n",\r\n    "d = 3"')
    escaped = json.dumps(json.loads(notebook(["a = 'é'\n", "b"])), indent=1)
    assert replaced(escaped, "\nb\n", "\nb = '漢'\n").count("\\u6f22") == 1


def test_rows_may_go_and_lists_stay_lists() -> None:
    raw = notebook(["a = 1\n", "b = 2"], ["c = 3"])
    assert replaced(raw, "\nb = 2", "") == notebook(["a = 1"], ["c = 3"])
    assert replaced(raw, "c = 3", "") == notebook(["a = 1\n", "b = 2"], [])
    assert replaced(raw, "c = 3", "c = 3\nd = 4") == notebook(["a = 1\n", "b = 2"], ["c = 3\n", "d = 4"])


def test_uncommon_but_valid_json() -> None:
    raw = '\ufeff{"cells":[{"source":"old","source" :[ "a = 1\\n" ,"b\\u000ac", " = 2\\r\\nd"],"cell_type":"code"}, {"x":[{}]}],"nbformat":4}'
    after = replaced(raw, "\nd\n", "\nd = 4\n")
    assert json.loads(after)["cells"][0] == {"source": ["a = 1\n", "b\n", "c = 2\r\n", "d = 4"], "cell_type": "code"}
    assert after.startswith('{"cells":[{"source":"old","source" :[ "a = 1\\n" ,"')


def test_masked_rows_are_written_as_they_were_and_never_edited() -> None:
    raw = notebook("%matplotlib inline\n!ls \\\n  -l\nx = 1\n%time y = f(x)")
    source, found = read(raw)
    assert replaced(raw, "x = 1", "import os\nx = 2") == raw.replace("x = 1", "import os\\nx = 2")
    row = source.lines.starts.index(source.text.index("if 1:")) + 1
    assert not source.editable(Span(Position(row, 7), Position(row, 8)))
    assert not source.editable(Span(Position(row - 1, 1), Position(row, 8)))
    assert source.editable(Span(Position(row, 1), Position(row, 1)))
    assert source.editable(Span(Position(row - 1, 1), Position(row - 1, 2)))
    assert not source.editable(Span(Position(1, 1), Position(1, 1)))
    assert found.with_code(source.text) == raw


def test_nothing_goes_above_a_cell_magic() -> None:
    source, _ = read(notebook("%%time\nx = 1"))
    assert source.can_hold(source.text.replace("x = 1", "import torch\nx = 1"))
    assert not source.can_hold(source.text.replace("pass", "import torch\npass"))


def test_code_that_lost_a_cell_is_refused() -> None:
    source, _ = read(notebook("x = 1", "y = 2"))
    for code in (source.text.replace("cell 2", "cell 3"), "z\n" + source.text, source.text[:-1], ""):
        with pytest.raises(SourceError, match="put back"):
            source.file_text(code)


PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
TEXT = st.text(alphabet="ab=1 \n\r\t\\\"'é漢👍\x0c\u2028", max_size=24)


@PATIENT
@given(st.lists(st.tuples(TEXT, TEXT, st.booleans()), min_size=1, max_size=3), st.sampled_from([None, 1, 2]), st.booleans())
def test_any_cells_can_be_written(cells: list[tuple[str, str, bool]], indent: int | None, ascii_only: bool) -> None:
    before = [rows(old) if as_list else old for old, _, as_list in cells]
    raw = json.dumps(json.loads(notebook(*before)), indent=indent, ensure_ascii=ascii_only)
    source, found = read(raw)
    assert source.file_text(source.text) == raw
    wanted = [json.loads(json.dumps(cell)) for cell in before]
    code = source.text
    for cell in found.cells:
        new = cells[cell.number - 1][1]
        try:
            ast.parse(new)
        except SyntaxError:
            continue
        if not new.strip() or (not code.isascii() and "\x0c" in new):
            continue
        code = code.replace(f"cell {cell.number}\n{cell.code}\n", f"cell {cell.number}\n{new}\n", 1)
        wanted[cell.number - 1] = new
    after = json.loads(source.file_text(code))
    assert ["".join(cell["source"]) for cell in after["cells"]] == ["".join(cell) for cell in wanted]
    assert [type(cell["source"]) for cell in after["cells"]] == [type(cell) for cell in before]


@PATIENT
@given(st.lists(TEXT, max_size=3), st.booleans(), st.booleans(), st.data())
def test_places_in_the_file_are_those_of_the_characters(
    cells: list[str], as_list: bool, ascii_only: bool, data: st.DataObject
) -> None:
    raw = json.dumps(json.loads(notebook(*(rows(cell) if as_list else cell for cell in cells))), ensure_ascii=ascii_only)
    found = read_notebook(raw)
    for number, cell in enumerate(cells, 1):
        if not cell:
            continue
        assert found.source_of(number) == cell
        lines = SourceFile("x.py", cell).lines
        offset = data.draw(st.integers(0, len(cell) - 1))
        if cell[offset - 1 : offset + 1] == "\r\n":
            continue
        at = found.in_file(number, lines.position(offset))
        assert at.row == 1
        there = raw[at.column - 1 :]
        spelled = re.match(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|.", there, re.DOTALL)
        assert spelled is not None
        assert json.loads(f'"{spelled[0]}"', strict=False) == cell[offset]


# --- as a user ------------------------------------------------------------------------------------------------------


def lint(*arguments: str, cwd: Path, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    return forked.run(["-m", "torchmemlint", *arguments], cwd, stdin=stdin)


@pytest.mark.slow
def test_fix_and_diff_on_the_command_line(tmp_path: Path) -> None:
    raw = notebook(rows(SETUP), rows("%%time\n" + TRAINING))
    (tmp_path / "n.ipynb").write_text(raw, encoding="utf-8")
    done = lint("n.ipynb", "--output-format", "concise", cwd=tmp_path)
    assert done.stdout.startswith(b"n.ipynb:cell 2:5:5: TML101 ")
    diff = lint("n.ipynb", "--diff", cwd=tmp_path).stdout.decode()
    assert '-    "    total += loss"\n+    "    total += loss.detach()"\n' in diff
    stdin = lint("-", "--stdin-filename", "n.ipynb", "--fix", cwd=tmp_path, stdin=raw.encode())
    fixed = lint("n.ipynb", "--fix", cwd=tmp_path)
    assert fixed.returncode == 0, fixed.stdout
    assert (tmp_path / "n.ipynb").read_text(encoding="utf-8") == raw.replace("total += loss", "total += loss.detach()")
    assert stdin.stdout.decode() == raw.replace("total += loss", "total += loss.detach()")


@pytest.mark.slow
def test_the_frame_shows_the_cell_as_the_user_wrote_it(tmp_path: Path) -> None:
    (tmp_path / "n.ipynb").write_text(notebook(SETUP, "%time x = 1\n" + TRAINING + "\n!ls"), encoding="utf-8")
    shown = lint("n.ipynb", cwd=tmp_path).stdout.decode()
    assert " --> n.ipynb:cell 2:5:5\n" in shown
    assert "6 | !ls\n" in shown
    assert "magic" not in shown


@pytest.mark.slow
def test_a_script_that_is_called_from_a_notebook(tmp_path: Path) -> None:
    (tmp_path / "lib.py").write_text(
        "import torch\n\ndef predict(model, loader):\n    out = []\n    for x in loader:\n        out.append(model(x))\n    return out\n"
    )
    caller = "import torch\nimport lib\nmodel = torch.nn.Linear(3, 3).eval()\nwith torch.no_grad():\n    lib.predict(model, [])"
    (tmp_path / "n.ipynb").write_text(notebook(caller), encoding="utf-8")
    assert lint(".", cwd=tmp_path).returncode == 0
    (tmp_path / "n.ipynb").write_text(notebook(caller.replace("torch.no_grad()", "open('x')")), encoding="utf-8")
    found = json.loads(lint(".", "--output-format", "json", cwd=tmp_path).stdout)
    assert {one["filename"] for one in found} <= {"lib.py", "n.ipynb"}


def test_nbformat_finds_the_fixed_notebook_valid() -> None:
    nbformat = pytest.importorskip("nbformat")
    after = replaced(notebook(rows(CODE), "z = 1"), "z = 1", "z = 2\nw = 3")
    nbformat.validate(nbformat.reads(after, as_version=4))


@pytest.mark.slow
def test_what_is_defined_again_is_reported_once() -> None:
    evaluate = "def evaluate(model, loader):\n    model.eval()\n    for x in loader:\n        print(model(x).argmax().item())"
    found = check("import torch", evaluate, "print(1)", evaluate, "print(2)", evaluate)
    assert [(finding.code, finding.cell) for finding in found] == [("TML201", 6)]
