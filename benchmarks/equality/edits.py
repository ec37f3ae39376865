"""Edits as people make them, and as they do not: one file at a time, at random."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

Lines = list[str]
_NAME = re.compile(r"\b[a-zA-Z_]\w+\b")


def _at(chance: random.Random, lines: Lines) -> int:
    return chance.randrange(len(lines) + 1)


def _body(lines: Lines) -> list[int]:
    return [at for at, line in enumerate(lines) if line.startswith("    ") and line.strip() and line[-1:] not in ",([{\\"]


def _name(chance: random.Random, lines: Lines) -> str:
    return str(chance.choice(_NAME.findall("\n".join(lines)) or ["model"]))


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def comment(chance: random.Random, lines: Lines) -> None:
    lines.insert(_at(chance, lines), "# a comment")


def blank(chance: random.Random, lines: Lines) -> None:
    lines.insert(_at(chance, lines), "")


def delete(chance: random.Random, lines: Lines) -> None:
    if lines:
        del lines[chance.randrange(len(lines))]


def double(chance: random.Random, lines: Lines) -> None:
    if lines:
        at = chance.randrange(len(lines))
        lines.insert(at, lines[at])


def rename(chance: random.Random, lines: Lines) -> None:
    one, other = _name(chance, lines), _name(chance, lines)
    lines[:] = [re.sub(rf"\b{one}\b", other, line) for line in lines]


def statement(chance: random.Random, lines: Lines) -> None:
    places = _body(lines)
    if places:
        at = chance.choice(places)
        one, other = _name(chance, lines), _name(chance, lines)
        words = (f"{one}({other})", f"{one} = {other}()", f"self.{one} = {other}", "loss.backward()", f"{one} += {other}.sum()")
        lines.insert(at, _indent(lines[at]) + chance.choice(words))


def function(chance: random.Random, lines: Lines) -> None:
    guard = chance.choice(([], ["@torch.no_grad()"]))
    lines += ["", "", *guard, f"def {_name(chance, lines)}(x):", f"    return {_name(chance, lines)}(x)"]


def guard(chance: random.Random, lines: Lines) -> None:
    places = [at for at, line in enumerate(lines) if line.lstrip().startswith("def ")]
    if places:
        at = chance.choice(places)
        lines.insert(at, f"{_indent(lines[at])}@torch.no_grad()")


def base(chance: random.Random, lines: Lines) -> None:
    places = [at for at, line in enumerate(lines) if re.match(r"class \w+.*:$", line)]
    if places:
        at = chance.choice(places)
        lines[at] = re.sub(
            r"^(class \w+).*", rf"\1({chance.choice(('torch.nn.Module', 'object', _name(chance, lines)))}):", lines[at]
        )


def unfinished(chance: random.Random, lines: Lines) -> None:
    if "def unfinished(" in lines:
        lines.remove("def unfinished(")
    else:
        lines.insert(_at(chance, lines), "def unfinished(")


def suppressed(chance: random.Random, lines: Lines) -> None:
    if lines:
        lines[chance.randrange(len(lines))] += "  # noqa"


IN_A_FILE: tuple[Callable[[random.Random, Lines], None], ...] = (
    comment, blank, delete, double, rename, statement, statement, statement, function, guard, base, unfinished, suppressed,
)  # fmt: skip


def edit(chance: random.Random, root: Path, first: dict[str, bytes]) -> str:
    """Edits the project below ``root``, whose files were ``first``; what was done."""
    now = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py"))
    kind = chance.randrange(16)
    if kind == 0 and len(now) > 3:
        name = chance.choice(now)
        (root / name).unlink()
        return f"deleted {name}"
    if kind == 1:
        name = chance.choice(sorted(first))
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(first[name])
        return f"restored {name}"
    name = chance.choice(now)
    if kind == 2:
        other = (root / name).with_name(f"copied_{chance.randrange(3)}.py")
        other.write_bytes((root / name).read_bytes())
        return f"copied {name}"
    text = (root / name).read_bytes().decode("utf-8", "surrogateescape")
    lines = text.split("\n")
    how = chance.choice(IN_A_FILE)
    how(chance, lines)
    (root / name).write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    return f"{how.__name__} in {name}"
