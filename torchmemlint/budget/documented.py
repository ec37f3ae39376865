"""The commands with which a project's own documents and shell scripts start a program: its arguments, and the folder it runs in."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from torchmemlint.files.reading import MAX_BYTES, read_text

_DOCUMENTS = (".md", ".rst", ".txt", ".sh", ".bash")
MOST_FILES = 400
"""So many documents are read."""
_INTERPRETER = re.compile(r"(^|[/\\])(python[\d.]*|torchrun|accelerate|deepspeed|horovodrun|srun|mpirun)$")
_ASSIGNED = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)=(?:\"([^\"]*)\"|'([^']*)'|([^\s;&|#]*))\s*(?:#.*)?$")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_UNFILLED = re.compile(r"[$<>{}()\[\]]|\.\.\.|^…$")
_PLACE = re.compile(r"<[\w /.,-]+>")
_CHOICE = re.compile(r"(?<![^\s=])[\[{<(](\w[\w.-]*(?:([|/,])\w[\w.-]*)(?:\2\w[\w.-]*)*)[\]}>)](?!\S)")
_ALIKE = 3
"""Words between slashes are choices, and not a path, if so many of their first or last letters are the same."""
_BEFORE = re.compile(r"^([A-Za-z_]\w*=.*|env|nohup|sudo|time|CUDA_VISIBLE_DEVICES.*)$")
_CODE = re.compile(r"`([^`]+)`")
_HERE = re.compile(r"`pwd`|\$\(pwd\)|\$PWD|\$\{PWD\}")
_ENDS = frozenset({"|", "||", "&&", ";", "&", ">", ">>", "2>&1", "<", "#", "2>", "&>"})


@dataclass(frozen=True, slots=True)
class Command:
    """One way to start the program; ``path`` and ``row`` say where it stands, ``folder`` where it is typed."""

    arguments: tuple[str, ...]
    folder: str
    path: str
    row: int
    left_out: tuple[str, ...] = ()
    """Options whose values the reader has to fill in."""


def commands(root: str, program: str) -> list[Command]:
    """All of them, those of the project's front page first; each set of arguments once. One with values to be filled in comes last if
    another fills them in."""
    seen: dict[tuple[str, ...], Command] = {}
    for path in _documents(root):
        try:
            text = read_text(path, MAX_BYTES)
        except (OSError, ValueError, SyntaxError):
            continue
        if os.path.basename(program).removesuffix(".py") in text:
            for command in _of(text, path, root, program):
                seen.setdefault(command.arguments, command)
    filled_in = [_filled_in(command) for command in seen.values()]

    def is_pattern(command: Command) -> bool:
        return bool(command.left_out) and any(names.issuperset(command.left_out) for names in filled_in)

    return sorted(seen.values(), key=is_pattern)


def _documents(root: str) -> list[str]:
    """Nearest to the root first; a page before a script."""
    found: list[tuple[int, bool, str]] = []
    for folder, below, files in os.walk(root):
        below[:] = sorted(name for name in below if not name.startswith(".") and name != "site-packages")
        depth = folder.count(os.sep)
        found += [
            (depth, name.endswith((".sh", ".bash")), os.path.join(folder, name))
            for name in files
            if name.lower().endswith(_DOCUMENTS)
        ]
        if len(found) >= MOST_FILES:
            break
    return [path for _, _, path in sorted(found)]


def _of(text: str, path: str, root: str, program: str) -> Iterator[Command]:
    values: dict[str, str] = {}
    for row, line in _lines(text):
        assigned = _ASSIGNED.match(line)
        if assigned:
            values[assigned[1]] = _filled(next((part for part in assigned.groups()[1:] if part is not None), ""), values)
            continue
        words = _words(_PLACE.sub("<>", _CHOICE.sub(_first_choice, _filled(line, values))))
        at = next((at for at, word in enumerate(words) if not _BEFORE.match(word)), len(words))
        if at == len(words) or not _INTERPRETER.search(words[at]):
            continue
        for place in range(at + 1, len(words)):
            folder = _names(words[place], words[place - 1] == "-m", root, program)
            if folder:
                arguments, left_out = _arguments(words[place + 1 :])
                if not {"-h", "--help"} & set(arguments):
                    yield Command(arguments, folder, path, row, left_out)
                break


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines, those that a backslash goes on in joined; code within a line of prose is a line of its own."""
    begun, row = "", 0
    for number, whole in enumerate(text.splitlines(), 1):
        line = _HERE.sub(".", whole)
        spans = [] if begun or line.lstrip().startswith("`") else _CODE.findall(line)
        if spans:
            yield from ((number, span) for span in spans)
            continue
        row = row or number
        if line.rstrip().endswith("\\"):
            begun += line.rstrip()[:-1] + " "
            continue
        yield row, begun + line
        begun, row = "", 0


def _words(line: str) -> list[str]:
    """As a shell has them; a line of a document may be none."""
    line = line.strip().lstrip("`$>- ").replace("`", " ")
    reader = shlex.shlex(line, posix=True, punctuation_chars="|&;")
    reader.whitespace_split, reader.commenters = True, "#"
    try:
        return list(reader)
    except ValueError:  # quotes that do not close
        return line.split()


def _filled(text: str, values: dict[str, str]) -> str:
    return _VARIABLE.sub(lambda match: values.get(match[1] or match[2], match[0]), text)


def _names(word: str, module: bool, root: str, program: str) -> str:
    """The folder in which this word names the program, "" where it does not."""
    mention = f"{word.replace('.', '/')}.py" if module else word
    mention = os.path.normpath(mention)
    if not mention.endswith(".py") or os.path.isabs(mention):
        return ""
    if mention.startswith(".."):
        mention = mention.lstrip("./")
    if program != f"{os.sep}{mention}" and not program.endswith(os.sep + mention):
        return ""
    folder = program[: -len(mention)].rstrip(os.sep)
    return folder if (folder + os.sep).startswith(root.rstrip(os.sep) + os.sep) else ""


def _arguments(words: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Up to the end of the command; an option whose value the reader has to fill in is left out, and named in the second tuple."""
    made: list[str] = []
    left_out: list[str] = []
    for word in words:
        if word in _ENDS or word.strip("|&;") == "":
            break
        if _UNFILLED.search(word):
            if made and made[-1].startswith("-") and "=" not in made[-1] and not word.startswith("-"):
                left_out.append(made.pop())
            elif "=" in word:
                left_out.append(word.partition("=")[0])
            continue
        made.append(word)
    return tuple(made), tuple(left_out)


def _filled_in(command: Command) -> set[str]:
    return {word.partition("=")[0] for word in command.arguments if word.startswith("-")}


def _first_choice(found: re.Match[str]) -> str:
    """Of several values, ``[small/large]``, the first; a path, ``[path/to/data]``, stays as it is."""
    choices = found[1].split(found[2])
    alike = max(len(os.path.commonprefix(choices)), len(os.path.commonprefix([choice[::-1] for choice in choices])))
    return found[0] if found[2] == "/" and alike < _ALIKE else choices[0]
