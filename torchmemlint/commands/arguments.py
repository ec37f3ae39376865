"""Which words of the command line are options, which are paths, whoever wrote them.

A shell that expands ``*.py``, or a program that passes changed files, gives names that a stranger may have chosen. A file
called ``--fix`` must not switch anything on. Behind ``--`` all words are paths; before it, a word that could be both is refused.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Sequence

from torchmemlint.errors import UsageError
from torchmemlint.files.reading import read_given, reason

MAX_LIST_BYTES = 100_000_000
"""A list of paths: a million of a hundred characters."""

_ROW = re.compile(r":\d+\Z")


def refuse_file_names(arguments: Sequence[str]) -> None:
    """Raises UsageError for a word before ``--`` that begins as an option does, ``-`` or ``@``, and is a file of the current
    folder (with ``:ROW`` or without)."""
    for word in arguments:
        if word == "--":
            return
        if word.startswith(("-", "@")) and (_exists(word) or _exists(_ROW.sub("", word))):
            raise UsageError(
                f"{word!r} could be an option, but a file has this name: write {'./' + word!r} for the file, or `--` before paths"
            )


def refuse_command(command: str) -> None:
    """Raises UsageError where the first of the names that a shell wrote for ``*`` may have been taken for the command that runs
    code."""
    if command == "confirm" and _exists(command):
        raise UsageError(
            "`confirm` runs code, but a file or folder here has that name: write ./confirm for the path, or start the command in "
            "another folder"
        )


TAKEN_FOR_PATHS = ("budget", "clean", "completion", "merge", "oom", "rule", "server", "trace")
"""Commands with a name that a folder is likely to have."""


def named_like_a_command(command: str, rest: Sequence[str], valued: Collection[str]) -> str:
    """A note if the command is also the name of a file or folder here and could be meant as a path, else "". ``valued`` are the
    options whose value is the next word. There is none if an editor starts the server."""
    if command not in TAKEN_FOR_PATHS or not _exists(command) or (command == "server" and not sys.stdin.isatty()):
        return ""
    before = ["", *rest]
    if any(not word.startswith("-") and last not in valued for last, word in zip(before, rest, strict=False)):
        return ""
    return f"`{command}` is the command; to check the path, write ./{command}"


def with_paths(arguments: Sequence[str], valued: Collection[str]) -> list[str]:
    """``@FILE`` replaced by the paths in it, one a line, none of which can be an option; behind ``--`` every word is a path, also
    ``@FILE`` and ``-``. ``valued`` are the options whose value is the next word. Raises UsageError."""
    given: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            return [*given, word, *("./-" if path == "-" else path for path in words)]
        if word.startswith("@"):
            given += _paths_in(word[1:])
        else:
            given.append(word)
            if word in valued:
                given += [value for value in (next(words, None),) if value is not None]
    return given


def _paths_in(file: str) -> list[str]:
    try:
        data = read_given(file, MAX_LIST_BYTES)
    except OSError as error:
        raise UsageError(f"@{file}: {reason(error)}") from None
    except ValueError as error:  # a null character in the name
        raise UsageError(f"@{file}: cannot be read: {error}") from None
    if b"\0" in data:
        raise UsageError(f"@{file}: has null bytes; write one path per line")
    lines = (os.fsdecode(line.removesuffix(b"\r")) for line in data.split(b"\n"))
    return [f"./{line}" if line.startswith("-") else line for line in lines if line]


def _exists(name: str) -> bool:
    try:
        return os.path.lexists(name)
    except ValueError:  # a null character, in a word that another program wrote
        return False
