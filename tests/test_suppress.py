"""Which findings are reported: comments, per-file-ignores, fingerprints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from torchmemlint.findings import Confidence, Finding, Position, Severity, Span
from torchmemlint.project.settings import Settings
from torchmemlint.rules import ALL_RULES
from torchmemlint.source.directives import Kind, read_directives
from torchmemlint.suppress import apply, fingerprint, numbered

NAMES = {rule.code: rule.name for rule in ALL_RULES}
TOTAL = NAMES["TML101"]


def finding(row: int, code: str = "TML101", rows: tuple[int, ...] = (), statement: str = "total += loss") -> Finding:
    return Finding(
        code=code,
        name=NAMES.get(code, "some-rule"),
        severity=Severity.ERROR,
        confidence=Confidence.HIGH,
        message="m",
        path="a.py",
        span=Span(Position(row, 1), Position(row, 5)),
        function="f",
        statement=statement,
        noqa_rows=frozenset(rows or (row,)),
        noqa_row=row,
    )


def reported(text: str, *findings: Finding) -> list[tuple[str, int]]:
    return [(one.code, one.span.start.row) for one in apply(findings, text, Settings(), "a.py")]


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa",
        "#noqa",
        "#  NoQA",
        "# NOQA because it is small",
        "# noqa: TML101",
        "#noqa:TML101",
        "# noqa : TML101",
        "# noqa: E501,TML101",
        "# noqa: E501 TML101 and why",
        "# noqa: E501TML101",
        "# noqa: tml101",
        "# noqa: TML1",
        "# noqa: TML101: is logged only",
        "# noqa: TML101(logged)",
        f"# noqa: {TOTAL}",
        "# noqa: the total is small",
        "# type: ignore  # noqa: TML101",
        "# noqa: E501  # noqa: TML101",
        "# torchmemlint: ignore",
        "# torchmemlint: ignore[TML101]",
        "# torchmemlint:ignore[TML301, TML101] is logged only",
        "#torchmemlint: IGNORE [tml101]",
        "# torchmemlint: ignore[TML]",
        f"# torchmemlint: ignore[{TOTAL}]",
        "# torchmemlint: file-ignore",
        "# torchmemlint: file-ignore[TML101] measured",
        "# torchmemlint: disable",
        "# torchmemlint: disable[TML1]",
    ],
)
def test_a_comment_that_covers_the_row(comment: str) -> None:
    assert reported(f"total += loss  {comment}\n", finding(1)) == []


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa: TML102",
        "# noqa: E501",
        "# noqa: E501 then TML101 in prose",
        "# noqa-ish",
        "# noqas",
        "# snoqa",
        "# torchmemlint: ignore[TML102]",
        "# torchmemlint: ignore[TML1011]",
        "# torchmemlint: ignore[TML101",
        "# torchmemlint: ignore[]",
        "# torchmemlint: ingore[TML101]",
        "# torchmemlint: enable",
        "# flake8: noqa",  # a file's directive stands on a row of its own
        "; s = '# noqa'",
        "; s = '# torchmemlint: file-ignore'",
        "; s = '''\n# noqa\n# torchmemlint: ignore\n'''",
    ],
)
def test_what_covers_nothing(comment: str) -> None:
    assert reported(f"total += loss  {comment}\n", finding(1)) == [("TML101", 1)]


@pytest.mark.parametrize("row", [1, 2, 3])
def test_any_row_of_the_statement(row: int) -> None:
    rows = ["total.append(", "    loss", ")"]
    rows[row - 1] += "  # noqa: TML101"
    text = "\n".join(rows)
    assert reported(text, finding(1, rows=(1, 2, 3))) == []
    assert reported(text, finding(row)) == []


def test_a_comment_on_the_def_row_covers_what_lists_that_row() -> None:
    text = "def f():  # noqa: TML101\n    total += loss\n"
    assert reported(text, finding(2, rows=(1, 2))) == []
    assert reported(text, finding(2)) == [("TML101", 2)]


def test_ours_alone_on_a_row_covers_the_next_statement() -> None:
    text = "# torchmemlint: ignore[TML101] small\n\n# more\ntotal += loss\ntotal += loss\n"
    assert reported(text, finding(4), finding(5)) == [("TML101", 5)]
    assert reported(text.replace("torchmemlint: ignore[TML101]", "noqa: TML101"), finding(4)) == [("TML101", 4)]
    trailing = "x = 1  # torchmemlint: ignore[TML101]\ntotal += loss\n"
    assert reported(trailing, finding(2)) == [("TML101", 2)]


def test_ranges() -> None:
    text = (
        "a\n"
        "# torchmemlint: disable[TML1]\n"
        "a\n"
        "# torchmemlint: enable[TML101]\n"
        "a\n"
        "# torchmemlint: disable\n"
        "a\n"
        "# torchmemlint: enable\n"
        "a\n"
    )
    totals = [finding(row) for row in (1, 3, 5, 7, 9)]
    stores = [finding(row, "TML102") for row in (1, 3, 5, 7, 9)]
    assert reported(text, *totals) == [("TML101", 1), ("TML101", 5), ("TML101", 9)]
    assert reported(text, *stores) == [("TML102", 1), ("TML102", 9)]


@pytest.mark.parametrize(
    ("comment", "left"),
    [
        ("# flake8: noqa", ["TML101", "TML301"]),  # what a file is spared in flake8 is style, as a rule
        ("    # FLAKE8: NOQA: TML101", ["TML301"]),
        ("# flake8=noqa:TML101,TML301", []),
        ("# torchmemlint: file-ignore[TML3]", ["TML101"]),
        ("# ruff: noqa", ["TML101", "TML301"]),
    ],
)
def test_whole_file(comment: str, left: list[str]) -> None:
    text = f"if x:\n    a\n{comment}\n"
    assert [code for code, _ in reported(text, finding(1), finding(2, "TML301"))] == left


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_rows_of_any_newline(newline: str) -> None:
    text = newline.join(["\f", "s = '\x85\u2028'", "total += loss  # noqa", "total += loss", ""])
    assert reported(text, finding(3), finding(4)) == [("TML101", 4)]


def test_comments_above_a_syntax_error_still_count() -> None:
    text = "# torchmemlint: file-ignore[TML000]\ndef f(:\n    '''never closed\n"
    assert reported(text, finding(2, "TML000")) == []


@pytest.mark.parametrize("text", ["# noqa\n", "# torchmemlint: file-ignore\n"])
def test_our_own_failure_is_hidden_only_by_name(text: str) -> None:
    assert reported(text, finding(1, "TML001")) == [("TML001", 1)]
    assert reported("# noqa: TML001\n", finding(1, "TML001")) == []


def test_what_a_comment_says() -> None:
    text = "a  # torchmemlint: ignore[TML101, tml2] is logged  # noqa: E501\n# torchmemlint: disable\n"
    first, second, third = read_directives(text).found
    assert (first.kind, first.selectors, first.alone) == (Kind.STATEMENT, ("E501",), False)
    assert (second.selectors, second.reason) == (("TML101", "TML2"), "is logged")
    assert (third.kind, third.row, third.alone) == (Kind.DISABLE, 2, True)


@pytest.mark.parametrize("comment", ["ignore[TML101", "ignore[]", "ignore[T*]", "ignored"])
def test_what_means_nothing_is_reported(comment: str) -> None:
    directives = read_directives(f"\n# torchmemlint: {comment}\n")
    assert directives.found == ()
    ((row, message),) = directives.problems
    assert row == 2
    assert comment.split("[")[0] in message


def settings(root: Path, **globs: tuple[str, ...]) -> Settings:
    return Settings(per_file_ignores=tuple((glob, codes) for glob, codes in globs.items()), root=str(root))


@pytest.mark.parametrize(
    ("glob", "path", "ignored"),
    [
        ("tests/*", "tests/a.py", True),
        ("tests/*", "tests/deep/a.py", True),
        ("tests/**", "tests/deep/a.py", True),
        ("tests", "tests/deep/a.py", True),
        ("./tests/", "tests/a.py", True),
        ("tests/*", "src/tests/a.py", False),
        ("**/tests/*", "src/tests/a.py", True),
        ("test_*.py", "src/deep/test_a.py", True),
        ("test_*.py", "src/atest_a.py", False),
        ("src/*/a.py", "src/b/a.py", True),
        ("/a.py", "a.py", True),
        ("a.py", "src/a.py", True),
        ("[ab].py", "b.py", True),
        ("!src/**", "tests/a.py", True),
        ("!src/**", "src/a.py", False),
        ("a.p", "a.py", False),
    ],
)
def test_per_file_ignores(tmp_path: Path, glob: str, path: str, ignored: bool) -> None:
    left = apply([finding(1), finding(2, "TML301")], "", settings(tmp_path, **{glob: ("TML1",)}), str(tmp_path / path))
    assert [one.code for one in left] == (["TML301"] if ignored else ["TML101", "TML301"])


def test_all_matching_globs_apply(tmp_path: Path) -> None:
    both = settings(tmp_path, **{"tests/*": ("TML1",), "*.py": ("TML301",)})
    assert apply([finding(1), finding(2, "TML301")], "", both, str(tmp_path / "tests/a.py")) == []


def test_comments_are_left_to_flake8_when_asked(tmp_path: Path) -> None:
    text = "total += loss  # noqa\n"
    assert len(apply([finding(1)], text, Settings(), "a.py", comments=False)) == 1


def test_fingerprint_follows_the_code_not_the_row() -> None:
    first, second = apply([finding(9), finding(4)], "", Settings(), "a.py")
    assert (first.span.start.row, first.occurrence, second.occurrence) == (4, 0, 1)
    moved = [
        replace(one, span=Span(Position(one.span.start.row + 7, 9), Position(90, 1)), path="b.py") for one in (second, first)
    ]
    assert [fingerprint(one) for one in numbered(moved)] == [fingerprint(first), fingerprint(second)]
    others = [
        replace(first, code="TML102"),
        replace(first, function="g"),
        replace(first, statement="total += 2 * loss"),
        second,
    ]
    assert len({fingerprint(one) for one in [first, *others]}) == 5
    # Baselines and dashboards keep these: a change here breaks them.
    assert fingerprint(first) == "eb7b1e5e137d3904"


def test_a_suppressed_neighbour_does_not_change_a_fingerprint() -> None:
    both = apply([finding(1), finding(2)], "a\na\n", Settings(), "a.py")
    (second,) = apply([finding(1), finding(2)], "a  # noqa\na\n", Settings(), "a.py")
    assert fingerprint(second) == fingerprint(both[1])
