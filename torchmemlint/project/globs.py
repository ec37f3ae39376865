"""Globs as git reads them, matched in time that grows with the glob times the path, whatever stars the glob has.

A regular expression with many stars tries all ways to share a name among them: one made of ``a*a*a*a*a*b`` takes minutes for a
name of a hundred letters. So a glob with more than a few is run as an automaton: all places in it that the beginning of a path
can have come to are the bits of one number, and each character moves them all at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

STAR = "[^/]*"
FOLDERS = "(?:.*/)?"
"""Any number of whole folders, as ``**/`` stands for."""
REST = ".+"
"""Everything below a folder, as ``/**`` at the end stands for."""
_LONG = frozenset({STAR, FOLDERS, REST})
"""Pieces that stand for more than one character."""
_NEVER = "(?!)"
"""Matches nothing, as git has it for a bracket that does not close or a range that runs backwards."""
MAX_LONG = 2
"""Such pieces that a regular expression may have: it takes as many nested turns over a path."""


def pieces_of(glob: str) -> list[str]:
    """A regular expression for a glob, in pieces, of which all that are not ``STAR``, ``FOLDERS`` or ``REST`` match one character:
    ``*`` and ``?`` stop at a slash, ``**`` does not."""
    out: list[str] = []
    i = 0
    while i < len(glob):
        char = glob[i]
        if char == "*":
            stars = 1
            while glob[i + stars : i + stars + 1] == "*":
                stars += 1
            after = glob[i + stars : i + stars + 1]
            whole_part = stars >= 2 and (i == 0 or glob[i - 1] == "/")
            if whole_part and after == "/":
                out += [FOLDERS] if out[-1:] != [FOLDERS] else []
                stars += 1
            else:
                out.append(REST if whole_part and not after else STAR)
            i += stars
        elif char == "?":
            out.append("[^/]")
            i += 1
        elif char == "[" and (end := glob.find("]", i + (3 if glob[i + 1 : i + 2] in ("!", "^") else 2))) > 0:
            inside = glob[i + 1 : end]
            negated = inside[:1] in ("!", "^")
            inside = re.sub(r"([\[&~|\\])", r"\\\1", inside[1:] if negated else inside)
            piece = f"[{'^/' if negated else ''}{inside}]"
            out.append(piece if _compiles(piece) else _NEVER)
            i = end + 1
        elif char == "\\" and i + 1 < len(glob):
            out.append(re.escape(glob[i + 1]))
            i += 2
        else:
            out.append(_NEVER if char == "[" else re.escape(char))
            i += 1
    return out


def literally(text: str) -> list[str]:
    """The pieces that match just this text."""
    return [re.escape(char) for char in text]


def _compiles(piece: str) -> bool:
    try:
        re.compile(piece)
    except re.error:  # a range that runs backwards, as [z-a]
        return False
    return True


class Globs:
    """Globs, each in pieces, of which one must match the whole of a text."""

    __slots__ = ("_automata", "_simple")

    def __init__(self, globs: Iterable[list[str]]) -> None:
        simple = []
        self._automata: list[_Automaton] = []
        for pieces in globs:
            if sum(piece in _LONG for piece in pieces) <= MAX_LONG:
                simple.append(f"(?:{''.join(pieces)})\\Z")
            else:
                self._automata.append(_Automaton(pieces))
        self._simple = re.compile("|".join(simple), re.DOTALL) if simple else None

    def match(self, text: str) -> bool:
        if self._simple is not None and self._simple.match(text):
            return True
        return any(automaton.match(text) for automaton in self._automata)


class _Automaton:
    """One glob. Bit ``n`` of a number of states says that the text may be matched up to node ``n``; a node is passed by a
    character that its expression matches, and a node that ``loops`` is also stayed at by these; ``skipped`` nodes need no
    character at all, and ``jumps`` stand before two that need none."""

    __slots__ = ("_end", "_expressions", "_jumps", "_loops", "_passing", "_skipped", "_start")

    def __init__(self, pieces: list[str]) -> None:
        self._expressions: list[re.Pattern[str]] = []
        self._loops = self._skipped = self._jumps = 0
        any_character, in_name, slash = re.compile(".", re.DOTALL), re.compile("[^/]"), re.compile("/")
        never = re.compile(_NEVER)
        for piece in pieces:
            here = 1 << len(self._expressions)
            if piece == STAR:
                self._expressions.append(in_name)
                self._loops |= here
                self._skipped |= here
            elif piece == FOLDERS:  # into the folders, or past them; in them, until a slash ends them
                self._expressions += [never, any_character, slash]
                self._skipped |= here | here << 1
                self._jumps |= here
                self._loops |= here << 1
            elif piece == REST:
                self._expressions += [any_character, any_character]
                self._loops |= here << 1
                self._skipped |= here << 1
            else:
                self._expressions.append(re.compile(piece, re.DOTALL))
        self._end = 1 << len(self._expressions)
        self._passing: dict[str, int] = {}
        self._start = self._closed(1)

    def match(self, text: str) -> bool:
        states = self._start
        for char in text:
            passed = states & self._passed_by(char)
            states = self._closed(((passed & ~self._loops) << 1) | (passed & self._loops))
            if not states:
                return False
        return bool(states & self._end)

    def _passed_by(self, char: str) -> int:
        known = self._passing.get(char)
        if known is None:
            bits = (1 << number for number, one in enumerate(self._expressions) if one.match(char))
            known = self._passing[char] = sum(bits)
        return known

    def _closed(self, states: int) -> int:
        """The states and those that are reached from them without another character."""
        while True:
            more = states | (states & self._skipped) << 1 | (states & self._jumps) << 3
            if more == states:
                return states
            states = more
