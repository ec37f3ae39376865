"""Fixes as text: what is applied together, what is taken back, where an import goes, and what a diff says."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchmemlint.findings import Confidence, Edit, Finding, Fix, Position, Safety, Severity, Span
from torchmemlint.fixes import apply_fixes, unified_diff
from torchmemlint.source.file import SourceFile, decode_source, read_source, write_source
from torchmemlint.source.lines import Lines


def edit(row: int, start: int, end: int, content: str, end_row: int | None = None) -> Edit:
    return Edit(Span(Position(row, start), Position(end_row or row, end)), content)


def finding(*edits: Edit, safety: Safety = Safety.SAFE, needs: str | None = None, span: Span | None = None) -> Finding:
    return Finding(
        code="TML101",
        name="graph-attached-running-total",
        severity=Severity.ERROR,
        confidence=Confidence.HIGH,
        message="m",
        path="a.py",
        span=span or Span(edits[0].span.start, edits[-1].span.end),
        fix=Fix("fix it", safety, edits, needs),
    )


def detach_each_loss(text: str) -> list[Finding]:
    """A rule in small: every ``+= loss`` of a text, with its fix."""
    found = []
    for row in range(1, len(Lines.of(text)) + 1):
        for match in re.finditer(r"\+= loss$", Lines.of(text).row(row)):
            at = match.end() + 1
            found.append(finding(edit(row, at, at, ".detach()")))
    return found


def in_rounds(source: SourceFile, find: Callable[[str], list[Finding]]) -> str:
    for _ in range(5):
        result = apply_fixes(source, find(source.text))
        if not result.applied:
            break
        source = replace(source, text=result.text)
    return source.text


def fixed(text: str, *findings: Finding, unsafe: bool = False) -> str:
    return apply_fixes(SourceFile("a.py", text), findings, unsafe=unsafe).text


@pytest.mark.parametrize("data", [b"\xef\xbb\xbf", b"", b"# coding: latin-1\r\n", b"\f"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("end", ["", "\n"])
def test_all_else_stays_byte_for_byte(tmp_path: Path, data: bytes, newline: str, end: str) -> None:
    rows = ["total = 0  # é", "s = '\x85\f'", "total += loss", "", "total += loss"]
    encoding = "latin-1" if b"latin" in data else "utf-8"
    body = newline.join(rows) + (newline if end else "")
    path = tmp_path / "a.py"
    path.write_bytes(data.replace(b"\r\n", newline.encode()) + body.encode(encoding))
    before = path.read_bytes()
    source = read_source(path, "a.py")
    write_source(path, source, in_rounds(source, detach_each_loss))
    assert path.read_bytes() == before.replace(b"+= loss", b"+= loss.detach()")


def test_columns_are_code_points() -> None:
    assert fixed("x = '👍漢é'; t += y\n", finding(edit(1, 17, 18, "z"))) == "x = '👍漢é'; t += z\n"


def test_only_what_is_asked_for() -> None:
    text = "a\nb\nc\n"
    one, two = finding(edit(1, 1, 2, "A")), finding(edit(2, 1, 2, "B"), safety=Safety.UNSAFE)
    three = finding(edit(3, 1, 2, "C"), safety=Safety.NONE)
    assert fixed(text, one, two, three) == "A\nb\nc\n"
    assert fixed(text, one, two, three, unsafe=True) == "A\nB\nc\n"
    assert apply_fixes(SourceFile("a.py", text), [three]).applied == ()


def test_edits_that_touch_wait_for_the_next_round() -> None:
    text = "abcd\n"
    first, touching, clear = finding(edit(1, 1, 3, "x")), finding(edit(1, 3, 4, "y")), finding(edit(1, 5, 5, "z"))
    result = apply_fixes(SourceFile("a.py", text), [touching, clear, first])
    assert result.text == "xcdz\n"
    assert result.applied == (first, clear)
    assert result.rejected == ()


def test_flagged_code_that_overlaps_waits_too() -> None:
    outer = finding(edit(1, 1, 1, "f("), edit(1, 9, 9, ")"))
    inner = finding(edit(1, 5, 6, "z"))
    assert apply_fixes(SourceFile("a.py", "aa + b*c\n"), [inner, outer]).applied == (outer,)


def test_the_same_fix_answers_two_findings() -> None:
    decorator = edit(1, 1, 1, "@torch.no_grad()\n")
    here = Span(Position(2, 5), Position(2, 6))
    there = Span(Position(3, 5), Position(3, 6))
    both = [finding(decorator, span=here), finding(decorator, span=there)]
    result = apply_fixes(SourceFile("a.py", "def f():\n    a\n    b\n"), both)
    assert result.text == "@torch.no_grad()\ndef f():\n    a\n    b\n"
    assert list(result.applied) == both


@pytest.mark.parametrize(
    "edits",
    [
        (edit(9, 1, 1, "x"),),
        (edit(1, 9, 9, "x"),),
        (edit(1, 3, 1, "x"),),
        (edit(1, 1, 3, "x"), edit(1, 2, 3, "y")),
        (edit(1, 1, 1, "(("),),
        (edit(1, 1, 3, "\0"),),
    ],
)
def test_a_fix_that_is_off_is_taken_back_alone(edits: Sequence[Edit]) -> None:
    bad = finding(*edits, span=Span(Position(1, 1), Position(1, 2)))
    good = finding(edit(2, 1, 3, "ok"))
    result = apply_fixes(SourceFile("a.py", "aa\nbb\n"), [bad, good])
    assert (result.text, result.applied, result.rejected) == ("aa\nok\n", (good,), (bad,))


def test_a_text_that_does_not_parse_is_left_alone() -> None:
    result = apply_fixes(SourceFile("a.py", "def f(:\n"), [finding(edit(1, 5, 6, "g"))])
    assert result.text == "def f(:\n"
    assert result.applied == ()


def test_insertions_at_one_place_keep_their_order() -> None:
    assert fixed("x\n", finding(edit(1, 1, 1, "b;"), edit(1, 1, 1, "a;"), edit(1, 1, 2, "c"))) == "b;a;c\n"


def test_new_rows_get_the_newline_of_the_file() -> None:
    source = decode_source("a.py", b"a\r\nb\r\nc\n")
    assert apply_fixes(source, [finding(edit(2, 1, 2, "if b:\n    b"))]).text == "a\r\nif b:\r\n    b\r\nc\n"


def test_a_broken_fix_makes_room_for_the_one_it_was_in_the_way_of() -> None:
    bad, good = finding(edit(1, 1, 3, "((")), finding(edit(1, 2, 3, "b"))
    result = apply_fixes(SourceFile("a.py", "aa\n"), [bad, good])
    assert (result.text, result.applied, result.rejected) == ("ab\n", (good,), (bad,))


IMPORT_CASES = {
    "after the docstring": ('"""Doc."""\nuse\n', '"""Doc."""\nimport torch\nuse\n'),
    "and its blank row": ('"""Doc."""\n\nuse\n', '"""Doc."""\n\nimport torch\nuse\n'),
    "after __future__": (
        '"""Doc."""\nfrom __future__ import annotations\n\nuse\n',
        '"""Doc."""\nfrom __future__ import annotations\n\nimport torch\nuse\n',
    ),
    "after the imports": (
        "import os\nfrom x import (\n    y,\n)\n\nuse\n",
        "import os\nfrom x import (\n    y,\n)\nimport torch\n\nuse\n",
    ),
    "before torch's own": (
        "import os\nfrom torch import nn\n\nuse\n",
        "import os\nimport torch\nfrom torch import nn\n\nuse\n",
    ),
    "before torch.nn as nn": ("import torch.nn as nn\nuse\n", "import torch\nimport torch.nn as nn\nuse\n"),
    "an alias does not bind it": ("import torch as th\nuse\n", "import torch\nimport torch as th\nuse\n"),
    "not inside a shared row": ("import os; import sys\nuse\n", "import os; import sys\nimport torch\nuse\n"),
    "not before a docstring": (
        '"""Doc."""; import torch.nn as nn\nuse\n',
        '"""Doc."""; import torch.nn as nn\nimport torch\nuse\n',
    ),
    "after a shebang and a licence": (
        "#!/bin/python\n# coding: utf-8\n\nuse\n",
        "#!/bin/python\n# coding: utf-8\nimport torch\n\nuse\n",
    ),
    "type checking does not bind": (
        "import typing\nif typing.TYPE_CHECKING:\n    import torch\nuse\n",
        "import typing\nimport torch\nif typing.TYPE_CHECKING:\n    import torch\nuse\n",
    ),
    "a function's import does not bind outside": (
        "def g():\n    import torch\nuse\n",
        "import torch\ndef g():\n    import torch\nuse\n",
    ),
    "an import below a decorator is too late": (
        "import os\n@use\ndef g(): ...\nimport torch\n",
        "import os\nimport torch\n@use\ndef g(): ...\nimport torch\n",
    ),
    "bound": ("import torch\nuse\n", "import torch\nuse\n"),
    "bound by a part": ("import torch.nn.functional\nuse\n", "import torch.nn.functional\nuse\n"),
    "bound in try": (
        "try:\n    import torch\nexcept ImportError:\n    torch = None\nuse\n",
        "try:\n    import torch\nexcept ImportError:\n    torch = None\nuse\n",
    ),
    "bound among others": ("import os, torch\nuse\n", "import os, torch\nuse\n"),
    "bound in its function": (
        "def g():\n    import torch\n    def h():\n        use\n",
        "def g():\n    import torch\n    def h():\n        use\n",
    ),
    "bound below a function": ("def g():\n    use\nimport torch\n", "def g():\n    use\nimport torch\n"),
    "bound too late in its function": (
        "def g():\n    use\n    import torch\n",
        "import torch\ndef g():\n    use\n    import torch\n",
    ),
}


def with_import(text: str) -> str:
    lines = Lines.of(text)
    at = lines.position(text.index("use"))
    return fixed(text, finding(edit(at.row, at.column, at.column + 3, "torch.x"), needs="torch"))


@pytest.mark.parametrize(("before", "after"), IMPORT_CASES.values(), ids=IMPORT_CASES.keys())
def test_import(before: str, after: str) -> None:
    result = with_import(before)
    assert result == after.replace("use", "torch.x")
    compile(result, "a.py", "exec", dont_inherit=True)


@pytest.mark.parametrize("binding", ["torch = 1", "from x import torch", "def torch(): ...", "import x as torch"])
def test_a_name_that_means_something_else_is_not_rebound(binding: str) -> None:
    text = f"{binding}\nuse\n"
    assert with_import(text) == text


def test_one_import_line_for_many_fixes_and_rounds() -> None:
    text = "import os\n\na\nb\n"

    def find(now: str) -> list[Finding]:
        lines = Lines.of(now)
        rows = [row for row in range(1, len(lines)) if lines.row(row) in ("a", "b")]
        return [finding(edit(row, 1, 2, "torch.x"), needs="torch") for row in rows[:2]]

    first = apply_fixes(SourceFile("a.py", text), find(text)[:1])
    assert in_rounds(SourceFile("a.py", first.text), find) == "import os\nimport torch\n\ntorch.x\ntorch.x\n"


def test_an_import_and_a_decorator_on_the_same_row() -> None:
    text = "import os\ndef f(): ..."
    result = fixed(text, finding(edit(2, 1, 1, "@torch.no_grad()\n"), needs="torch"))
    assert result == "import os\nimport torch\n@torch.no_grad()\ndef f(): ..."


def test_an_import_behind_the_last_row() -> None:
    source = decode_source("a.py", b"def f():\r\n    import torch.nn as nn; use\r\nimport os")
    result = apply_fixes(source, [finding(edit(2, 28, 31, "torch.x"), needs="torch")])
    assert result.text == "import torch\r\ndef f():\r\n    import torch.nn as nn; torch.x\r\nimport os"
    only = decode_source("a.py", b"'doc'")
    assert apply_fixes(only, [finding(edit(1, 1, 6, "'doc'"), needs="torch")]).text == "'doc'\nimport torch"


@given(st.data())
def test_whatever_the_edits_the_result_parses_and_fixing_is_stable(data: st.DataObject) -> None:
    rows = data.draw(
        st.lists(st.sampled_from(["total += loss", "if x:", "    total += loss", "# é", "s = '''", "'''", "pass"]), max_size=9)
    )
    text = data.draw(st.sampled_from(["\n", "\r\n"])).join(rows)
    wild = [
        finding(edit(row, column, column + length, content), needs=data.draw(st.sampled_from([None, "torch"])))
        for row, column, length, content in data.draw(
            st.lists(
                st.tuples(
                    st.integers(0, 10), st.integers(0, 14), st.integers(-1, 5), st.sampled_from(["", "(", "x", "\n", ")"])
                ),
                max_size=4,
            )
        )
    ]
    result = apply_fixes(SourceFile("a.py", text, newline="\n"), wild)
    if result.text != text:
        ast.parse(result.text)
    else:
        assert result.applied == () or all(one.fix and one.fix.edits for one in result.applied)
    try:
        ast.parse(text)
    except SyntaxError:
        return
    once = in_rounds(SourceFile("a.py", text), detach_each_loss)
    assert detach_each_loss(once) == []


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_diff_can_be_applied(tmp_path: Path, newline: str, end: str, mark: str) -> None:
    path = tmp_path / "a.py"
    rows = ["total += loss", *["x = '\x85\f é'"] * 9, "total += loss"]
    path.write_bytes((mark + newline.join(rows) + (newline if end else "")).encode())
    source = read_source(path, "a.py")
    result = apply_fixes(source, detach_each_loss(source.text))
    diff = unified_diff(source, result.text)
    assert diff.startswith("--- a.py\n+++ a.py\n@@ -1")
    patch = tmp_path / "a.diff"
    patch.write_bytes(diff.encode())
    subprocess.run(["git", "apply", "-p0", "--whitespace=nowarn", "a.diff"], cwd=tmp_path, check=True, timeout=30)
    assert path.read_bytes() == source.encode(result.text)


def test_no_change_no_diff() -> None:
    assert unified_diff(SourceFile("a.py", "a\n"), "a\n") == ""
