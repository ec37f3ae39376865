"""TOML that somebody else wrote: what is not valid, or takes a parser to its limits, is a ValueError."""

from __future__ import annotations

import re
import sys

MOST_PARTS = 64
"""Of a dotted key: the time for one grows with their square, and more."""
_MOST_DIGITS = 4000
"""Of a number, below the limit of Python's ``int``."""

_PART = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*"""
_LONG_KEY = re.compile(f"(?<![\\w-])(?:{_PART}){{{MOST_PARTS}}}")
_LONG_NUMBER = re.compile(f"[0-9][0-9_]{{{_MOST_DIGITS}}}")


def parsed(text: str) -> dict[str, object]:
    """A TOML document as a table. Raises ValueError, which says why in one line."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    if len(text) > MOST_PARTS and (found := _LONG_KEY.search(text)):
        raise ValueError(f"a key has more than {MOST_PARTS} parts ({_line(text, found)})")
    try:
        table: dict[str, object] = tomllib.loads(text)
        return table
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:
        found = _LONG_NUMBER.search(text)
        raise ValueError(f"a number has too many digits{f' ({_line(text, found)})' if found else ''}") from None


def _line(text: str, found: re.Match[str]) -> str:
    return f"at line {text.count(chr(10), 0, found.start()) + 1}"
