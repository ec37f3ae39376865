"""Damaged input of every kind that the program reads: no crash, no loop without end, an exit status that means something; what a fix
writes parses, a second one finds nothing to do, places are inside the file, and a damaged cache changes nothing.

Fixtures, and real files where folders are given, are cut at any byte, and have bytes, tokens, lines and encodings changed.
"""

from __future__ import annotations

import ast
import json
import random
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from zlib import crc32

from benchmarks.reliability.child import Done, run
from benchmarks.reliability.project import AFTER, JSON, Bench, messages

ROOT = Path(__file__).parents[2]
ALL = ("--isolated", "--no-cache", "-j1", "--preview", "--select", "ALL", "--min-confidence", "low", *JSON)
_TOKEN = re.compile(rb"\w+|\s+|[^\w\s]")
ODD = (
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\r\n", b"\x0c", b"\x1a", b"\xc3", "é".encode(), "\u2028".encode(), "𝒙".encode(),
    b"# -*- coding: latin-1 -*-\n", b"# coding: utf-7\n", b"# coding: rot13\n", b"# noqa", b"# noqa: TML101,", b"# torchmemlint: ignore[",
    b"\\\n", b"'''", b'f"{', b"(" * 90, b"lambda: " * 40, b"\t", b"async ", b"global loss\n", b"*", b":=", b"\xf0\x9f\x98\x80",
    b"9" * 400, b"-1", b"1e999", b"null", b"NaN", b"{}", b"[]", b"[" * 2000, b'{"a":' * 500, b"\\ud800", b'"', b"true", b"../", b"/dev/zero",
)  # fmt: skip
SETTINGS = (
    "select", "ignore", "extend-select", "preview", "exclude", "extend-exclude", "per-file-ignores", "baseline", "min-confidence", "fail-on",
    "no-grad-wrappers", "detaching-calls", "recorders", "cache-in-project", "extend", "fixable", "unfixable", "extend-safe-fixes", "torch-version", "unknown",
    "force-exclude", "respect-gitignore", "unsafe-fixes", "output-format", "severity",
)  # fmt: skip
VALUES = (
    "true", "false", "1", "-1", "1.5", "nan", '""', '"x"', '"TML1"', '"ALL"', '"high"', '"**/*"', '"[a-"', '"../.."', '"\\u0000"', "[]",
    '["TML101"]', '["ALL", 1]', '["*.py", "[!"]', "[[]]", "{}", '{ "*.py" = ["TML1"] }', '{ "**" = 1 }', "2026-01-01", '["torch.no_grad"]',
    '"pyproject.toml"', '["a b", ""]', '"2.1"', '["' + "a*" * 200 + '"]',
)  # fmt: skip
GENERATED = 10
"""Files of generated code in one run: what starts a run costs more than checking one of them."""
Check = Callable[["Fuzz", random.Random], list[str]]


def damaged(chance: random.Random, data: bytes, times: int = 3) -> bytes:
    """Some changes at random places."""
    for _ in range(chance.randint(1, times)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(8):
            case 0:
                data = data[:at]
            case 1:
                data = data[at:]
            case 2:
                data = data[:at] + chance.choice(ODD) + data[at:]
            case 3 if data:
                at = min(at, len(data) - 1)
                data = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
            case 4 if len(words := _TOKEN.findall(data)) > 1:
                one, other = chance.randrange(len(words)), chance.randrange(len(words))
                words[one], words[other] = words[other], words[one]
                data = b"".join(words)
            case 5:
                end = min(len(data), at + chance.randrange(200))
                data = data[:at] + data[end:]
            case 6:
                end = min(len(data), at + chance.randrange(200))
                data = data[:end] + data[at:]
            case _:
                lines = data.split(b"\n")
                one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
                lines[one], lines[other] = lines[other], lines[one]
                data = b"\n".join(lines)
    return data if chance.randrange(10) else data.replace(b"\n", chance.choice((b"\r", b"\r\n", b"\n\n")))


@dataclass(slots=True)
class Fuzz:
    """The campaign. A case is a kind of input and a number."""

    folder: Path
    seeds: Sequence[Path] = ()
    kinds: Sequence[str] = ()
    bench: Bench | None = None
    python: list[Path] = field(default_factory=list)
    notebooks: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder = self.folder.resolve()
        for root in (ROOT / "fixtures", ROOT / "examples", *self.seeds):
            self.python += sorted(path for path in root.rglob("*.py") if path.is_file() and path.stat().st_size < 60_000)
            self.notebooks += sorted(path for path in root.rglob("*.ipynb") if path.is_file() and path.stat().st_size < 60_000)
        (self.folder / "bench").mkdir()
        self.bench = Bench.below(self.folder / "bench")

    def cases(self) -> Iterator[str]:
        for number in count():
            yield from (f"{kind} {number}" for kind in self.kinds)

    def check(self, case: str) -> list[str]:
        place = self.folder / "case"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        return CHECKS[case.partition(" ")[0]](self, random.Random(case))

    @property
    def place(self) -> Path:
        return self.folder / "case"

    @staticmethod
    def chosen(chance: random.Random, paths: Sequence[Path]) -> Path:
        """One of these files, by chance and by their names: another file beside them seldom changes which one a case gets, so that a
        failure is found again."""
        number = chance.getrandbits(64)
        return min(paths, key=lambda path: crc32(f"{number} {path.parent.name}/{path.name}".encode("utf-8", "surrogateescape")))

    def run(self, *arguments: str, stdin: bytes = b"") -> Done:
        return run(arguments, self.place, {"XDG_CACHE_HOME": str(self.folder / "cache")}, stdin=stdin)

    def filled(self) -> Bench:
        assert self.bench is not None
        return self.bench


def source(self: Fuzz, chance: random.Random) -> list[str]:
    name, data = "fuzz.py", damaged(chance, self.chosen(chance, self.python).read_bytes())
    return _checked(self, name, {name: data})


def generated(self: Fuzz, chance: random.Random) -> list[str]:
    """Code from the grammar, several files at once: alone, or inside of a fixture."""
    from benchmarks.reliability.generated import programs

    files = [self.chosen(chance, self.python).read_text(encoding="utf-8", errors="replace") for _ in range(3)]
    texts = {
        f"fuzz{number}.py": text.encode("utf-8", "surrogatepass")
        for number, text in enumerate(programs(chance, files, GENERATED))
    }
    return _checked(self, ".", texts)


def notebook(self: Fuzz, chance: random.Random) -> list[str]:
    """Its bytes are changed, or the code of its cells."""
    if self.notebooks and chance.randrange(2):
        data = self.chosen(chance, self.notebooks).read_bytes()
    else:
        data = (self.filled().root / "clean" / "book.ipynb").read_bytes()
    if chance.randrange(2):
        return _checked(self, "fuzz.ipynb", {"fuzz.ipynb": _odd(chance, data, 2)})
    cells = []
    for _ in range(chance.randint(1, 4)):
        code = damaged(chance, self.chosen(chance, self.python).read_bytes()[:2000]).decode("utf-8", "replace")
        lines = code.splitlines(keepends=True)
        for _ in range(chance.randrange(3)):
            lines.insert(
                chance.randrange(len(lines) + 1),
                chance.choice(("%matplotlib inline\n", "!pip install x\n", "%%bash\n", "x?\n", "%time y\n")),
            )
        kind = chance.choice(("code", "code", "code", "markdown", "raw", "odd"))
        cells.append({"cell_type": kind, "metadata": {}, "source": lines if chance.randrange(2) else "".join(lines)})
    text = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    return _checked(self, "fuzz.ipynb", {"fuzz.ipynb": text.encode()})


def configuration(self: Fuzz, chance: random.Random) -> list[str]:
    table, name = chance.choice((("[tool.torchmemlint]\n", "pyproject.toml"), ("", "torchmemlint.toml")))
    rows = [f"{chance.choice(SETTINGS)} = {chance.choice(VALUES)}\n" for _ in range(chance.randint(1, 3))]
    data = (table + "".join(rows)).encode()
    (self.place / name).write_bytes(damaged(chance, data, 1) if chance.randrange(2) else data)
    shutil.copyfile(self.chosen(chance, self.python), self.place / "train.py")
    return self.run(".", "--no-cache", "-j1", *JSON).wrong


def baseline(self: Fuzz, chance: random.Random) -> list[str]:
    shutil.copyfile(ROOT / "examples" / "loss_accumulation.py", self.place / "train.py")
    self.run(".", "--no-cache", "-j1", "--write-baseline", "--baseline", "b.json")
    path = self.place / "b.json"
    path.write_bytes(before := _odd(chance, path.read_bytes(), 2))
    wrong = self.run(".", "--no-cache", "-j1", "--baseline", "b.json", *JSON).wrong
    pruned = self.run(".", "--no-cache", "-j1", "--baseline", "b.json", "--prune-baseline")
    if pruned.status == 2 and path.read_bytes() != before:
        wrong.append("a baseline that cannot be read was written over")
    return wrong + pruned.wrong


def cache(self: Fuzz, chance: random.Random) -> list[str]:
    bench = self.filled()
    shutil.rmtree(bench.project, ignore_errors=True)
    shutil.rmtree(bench.cache, ignore_errors=True)
    shutil.copytree(bench.root / "clean", bench.project)
    shutil.copytree(bench.root / "filled", bench.cache)
    files = sorted(path for path in bench.cache.rglob("*") if path.is_file())
    for path in chance.sample(files, min(len(files), chance.choice((1, 1, 3, len(files))))):
        if chance.randrange(8):
            path.write_bytes(damaged(chance, path.read_bytes(), 1))
        else:
            path.unlink()
    if chance.randrange(2):
        with (bench.project / "train.py").open("a") as file:
            file.write(f"\n\ndef more{chance.randrange(5)}(x):\n    return x\n")
    done, fresh = bench.run(AFTER), bench.from_nothing()
    return done.wrong + ["said something else"] * ((done.status, done.out) != (fresh.status, fresh.out))


def report(self: Fuzz, chance: random.Random) -> list[str]:
    """Reports that are merged, of both formats."""
    clean = self.filled().root / "clean"
    names = []
    for name in ("one.json", "two.json"):
        data = (clean / name).read_bytes()
        if chance.randrange(2):
            shutil.copyfile(clean / "train.py", self.place / "train.py")
            data, name = (
                self.run("train.py", "--no-cache", "--output-format", "sarif").out.encode(),
                name.replace("json", "sarif"),
            )
        (self.place / name).write_bytes(_odd(chance, data, 2))
        names.append(name)
    return self.run("merge", *names, "--output-format", chance.choice(("json", "sarif", "concise", "gitlab", "junit"))).wrong


def log(self: Fuzz, chance: random.Random) -> list[str]:
    seeds = re.findall(
        r"'''(.*?)'''|\"\"\"(.*?)\"\"\"", (ROOT / "tests" / "oom_messages" / "known.toml").read_text(encoding="utf-8"), re.S
    )
    text = "\n".join(one or other for one, other in chance.sample(seeds, min(3, len(seeds)))) or "CUDA out of memory."
    (self.place / "log").write_bytes(damaged(chance, text.encode(), 4))
    form = chance.choice(((), ("--output-format", "json")))
    done = self.run("oom", "log", *form)
    if form and done.status != 2:
        json.loads(done.out)
    return done.wrong


def protocol(self: Fuzz, chance: random.Random) -> list[str]:
    """Messages to the language server: bodies are changed, frames stay; or all bytes may be changed. It ends by itself."""
    bench = self.filled()
    stream = messages(bench)
    bodies = [part[part.index(b"{") :] for part in stream.split(b"Content-Length: ")[1:]][:8]
    if chance.randrange(3):
        for at in chance.sample(range(1, len(bodies)), 3):
            bodies[at] = _odd(chance, bodies[at], 1)
        framed = b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(one), one) for one in bodies)
    else:
        framed = damaged(chance, b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(one), one) for one in bodies), 2)
    done = self.run("server", stdin=framed)
    # pygls reports messages that are none on standard error; that the server lives is what counts.
    return [] if done.status in (0, 1) else [f"the server ended with {done.status}: {done.err[-200:]}"]


def _odd(chance: random.Random, data: bytes, times: int) -> bytes:
    """A document of JSON whose bytes are damaged, or that has other values."""
    if chance.randrange(2):
        return damaged(chance, data, times)
    from benchmarks.reliability.generated import reshaped

    return reshaped(chance, data, times)


def _checked(self: Fuzz, given: str, files: dict[str, bytes]) -> list[str]:
    """What is wrong with a run over these files, with fixing them, and with fixing them once more."""
    for name, data in files.items():
        (self.place / name).write_bytes(data)
    done = self.run(given, *ALL)
    wrong = done.wrong
    if done.status == 2:
        return wrong
    found = json.loads(done.out)
    names = {name: Path(name).name for name in {one["filename"] for one in found}}
    python = {name: data for name, data in files.items() if name.endswith(".py")}
    wrong += [
        f"{one['code']} stands outside of the file"
        for one in found
        if names[one["filename"]] in python and not _inside(one, python[names[one["filename"]]])
    ]
    if not any(one.get("fix") for one in found):
        return wrong
    wrong += self.run(given, *ALL, "--fix", "--unsafe-fixes").wrong
    after = {name: (self.place / name).read_bytes() for name in files}
    wrong += [f"a fix broke {name}" for name, data in python.items() if parses(data) and not parses(after[name])]
    wrong += self.run(given, *ALL, "--fix", "--unsafe-fixes").wrong
    return wrong + [f"a second fix changed {name} again" for name in files if (self.place / name).read_bytes() != after[name]]


def _inside(finding: dict[str, Any], data: bytes) -> bool:
    lines = re.split(r"\r\n|\r|\n", data.decode("utf-8-sig", "replace"))
    places = [(finding[name]["row"], finding[name]["column"]) for name in ("location", "end_location")]
    return places[0] <= places[1] and all(
        1 <= row <= len(lines) and 1 <= column <= len(lines[row - 1]) + 1 + (row == len(lines)) for row, column in places
    )


def parses(data: bytes) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


CHECKS: dict[str, Check] = {
    "source": source, "generated": generated, "notebook": notebook, "configuration": configuration, "baseline": baseline, "cache": cache, "report": report,
    "log": log, "protocol": protocol,
}  # fmt: skip
