"""Text of others in what is printed: names of files, and code.

A name or a line of code may hold what drives a terminal (escape sequences), shows the code in another order than it runs, ends
the line, or is a command to the CI system that reads the output.
"""

from __future__ import annotations

import os
import re
from urllib.parse import quote_from_bytes

# Control characters; bidirectional overrides, isolates and marks (CVE-2021-42574); what ends a line in some programs; halves
# of characters, as which Python holds the bytes of a name that are not UTF-8.
_CONTROLS = "\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
# Commands wherever they stand in a line, to the runners of GitHub (ActionCommand.TryParse) and of Azure (Command.TryParse).
_COMMAND = r"#(?=#(?:vso)?\[)"
_UNSAFE = re.compile(f"[{_CONTROLS}]|{_COMMAND}")
_QUOTED = re.compile(f'[{_CONTROLS}\t"{"" if os.sep == chr(92) else chr(92) * 2}]|{_COMMAND}')
# A command to GitHub's runner where a line begins with it (ActionCommand.TryParseV2).
_BEGINS_COMMAND = re.compile(r"\s*::")
_SHORT = {"\a": "a", "\b": "b", "\t": "t", "\n": "n", "\v": "v", "\f": "f", "\r": "r", '"': '"', "\\": "\\"}
_HALF = re.compile("[\ud800-\udfff]")


def printable(text: str) -> str:
    """Text that cannot move the cursor, break the line, turn the reading direction or command a CI system; tabs stay."""
    return _UNSAFE.sub("\ufffd", text)


def quoted(path: str) -> str:
    """A path as it stands in a line for people: as it is, or in quotes as git has it (``core.quotePath``) and C reads it, where
    it holds what must not be printed."""
    if _QUOTED.search(path) is None and not _BEGINS_COMMAND.match(path):
        return path
    return '"' + _QUOTED.sub(_escape, path) + '"'


def printable_lines(text: str) -> str:
    """As ``printable``, of text that has more than one line."""
    return "\n".join(map(printable, text.split("\n")))


def printable_path(path: str) -> str:
    """A path for other programs, in a line that is printed: as it is, or quoted where it must not be printed."""
    return quoted(path) if path.startswith('"') or "\t" in path or _UNSAFE.search(path) else path


def portable(path: str) -> str:
    """A path for formats that are Unicode throughout: as it is, or quoted where it is not, or looks as if it were quoted."""
    return quoted(path) if path.startswith('"') or _HALF.search(path) else path


def unquoted(path: str) -> str:
    """The path that ``quoted`` was given."""
    if not (len(path) > 1 and path.startswith('"') and path.endswith('"')):
        return path
    long = {value: key for key, value in _SHORT.items()}

    def plain(match: re.Match[str]) -> bytes:
        word = match[1]
        return bytes([int(word, 8) & 255]) if word.isdecimal() else long.get(word, word).encode()

    out = bytearray()
    at = 1
    for match in re.finditer(r"\\([0-7]{3}|.)", path[:-1]):
        out += _bytes(path[at : match.start()]) + plain(match)
        at = match.end()
    out += _bytes(path[at:-1])
    return out.decode("utf-8", "surrogatepass" if os.name == "nt" else "surrogateescape")  # as names are decoded


def uri_path(path: str) -> str:
    """A path with ``/`` as URIs have it: what is not plain, byte by byte, as ``%E9``."""
    return quote_from_bytes(_bytes(path))


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    if char in _SHORT:
        return f"\\{_SHORT[char]}"
    return "".join(f"\\{byte:03o}" for byte in _bytes(char))


def _bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # halves of characters, as names may have on Windows
        return text.encode("utf-8", "surrogatepass")
