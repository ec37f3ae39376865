"""Columns in code points, UTF-8 and UTF-16, against Python's own codecs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torchmemlint.source.columns import from_utf16, utf8_column, utf16_column

ROWS = st.text(alphabet="ab \té漢👍\u0301\ud800", max_size=20)


@given(ROWS, st.data())
def test_a_column_is_one_more_than_the_units_before_it(row: str, data: st.DataObject) -> None:
    column = data.draw(st.integers(1, len(row) + 1))
    before = row[: column - 1]
    assert utf8_column(row, column) == len(before.encode("utf-8", "surrogatepass")) + 1
    assert utf16_column(row, column) == len(before.encode("utf-16-le", "surrogatepass")) // 2 + 1
    assert from_utf16(row, utf16_column(row, column)) == column


def test_columns_inside_a_pair_and_after_the_end() -> None:
    assert [from_utf16("a👍b", column) for column in range(1, 8)] == [1, 2, 2, 3, 4, 4, 4]
    assert from_utf16("ab", 9) == 3
