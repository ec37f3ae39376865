"""A cached run says what a fresh one says, after any row of edits of any kind to a project of files that use each other."""

import json
import random
import re
import shutil
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import bent_project
import pytest

from torchmemlint.cli import main
from torchmemlint.errors import SourceError
from torchmemlint.incremental.findings import FileDigests
from torchmemlint.incremental.location import FOLDER
from torchmemlint.incremental.query_results import QueryResults, from_text
from torchmemlint.index import callgraph
from torchmemlint.index.module_facts import module_facts
from torchmemlint.index.project import Project

FIXTURES = Path(__file__).parent.parent / "fixtures"
EDITS_OF_ONE_RUN = 12
QUESTIONS = 60
NAME = re.compile(r"\b[a-zA-Z_]\w+\b")


def first_files() -> dict[str, str]:
    """Projects of several files from the fixtures, beside the bent one."""
    files = dict(bent_project.project(()))
    folders = sorted({path.parent for path in FIXTURES.glob("*/*/*.py") if ".fixed" not in path.name})
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            if ".fixed" not in path.name:
                files[path.relative_to(FIXTURES).as_posix()] = path.read_text(encoding="utf-8")
    return files


def some_projects(chance: random.Random) -> dict[str, str]:
    """The bent project and a few of the others, which say nothing to each other but by names."""
    files = first_files()
    tops = sorted({"/".join(name.split("/")[:2]) for name in files if name.startswith("TML")})
    chosen = tuple(f"{top}/" for top in chance.sample(tops, min(len(tops), 6)))
    return {name: text for name, text in files.items() if not name.startswith("TML") or name.startswith(chosen)}


def comment(chance: random.Random, lines: list[str]) -> None:
    lines.insert(chance.randrange(len(lines) + 1), "# a comment")


def blank(chance: random.Random, lines: list[str]) -> None:
    lines.insert(chance.randrange(len(lines) + 1), "")


def delete(chance: random.Random, lines: list[str]) -> None:
    if lines:
        del lines[chance.randrange(len(lines))]


def double(chance: random.Random, lines: list[str]) -> None:
    if lines:
        at = chance.randrange(len(lines))
        lines.insert(at, lines[at])


def swap(chance: random.Random, lines: list[str]) -> None:
    if len(lines) > 1:
        at = chance.randrange(len(lines) - 1)
        lines[at : at + 2] = reversed(lines[at : at + 2])


def number(chance: random.Random, lines: list[str]) -> None:
    places = [at for at, line in enumerate(lines) if re.search(r"\b\d\b", line)]
    if places:
        at = chance.choice(places)
        lines[at] = re.sub(r"\b\d\b", str(chance.randrange(10)), lines[at])


def rename(chance: random.Random, lines: list[str]) -> None:
    names = NAME.findall("\n".join(lines))
    if len(names) > 1:
        one, other = chance.choice(names), chance.choice(names)
        lines[:] = [re.sub(rf"\b{one}\b", other, line) for line in lines]


def guard(chance: random.Random, lines: list[str]) -> None:
    places = [at for at, line in enumerate(lines) if line.lstrip().startswith("def ")]
    if places:
        at = chance.choice(places)
        lines.insert(at, lines[at][: len(lines[at]) - len(lines[at].lstrip())] + "@torch.no_grad()")


def detach(chance: random.Random, lines: list[str]) -> None:
    places = [at for at, line in enumerate(lines) if re.search(r"(append|update)\(\w+\)", line)]
    if places:
        at = chance.choice(places)
        lines[at] = re.sub(r"(append|update)\((\w+)\)", r"\1(\2.detach())", lines[at])


def suppressed(chance: random.Random, lines: list[str]) -> None:
    if lines:
        lines[chance.randrange(len(lines))] += "  # noqa: TML201"


def some_name(chance: random.Random, lines: list[str]) -> str:
    names: list[str] = NAME.findall("\n".join(lines))
    return chance.choice(names or ["model"])


def add_function(chance: random.Random, lines: list[str]) -> None:
    name = chance.choice(("added", "helper", "forward", some_name(chance, lines)))
    guarded = chance.choice(("", "@torch.no_grad()"))
    body = chance.choice(("return x", f"return {some_name(chance, lines)}(x)", f"return x.{some_name(chance, lines)}(x)"))
    lines += ["", "", *filter(None, (guarded,)), f"def {name}(x):", f"    {body}"]


def add_method(chance: random.Random, lines: list[str]) -> None:
    places = [at for at, line in enumerate(lines) if re.match(r"class \w+", line)]
    if places:
        at = chance.choice(places) + 1
        name = chance.choice(("added", "forward", "__init__", "__call__", some_name(chance, lines)))
        body = chance.choice(
            (f"return self.{some_name(chance, lines)}(x)", f"self.{some_name(chance, lines)} = {some_name(chance, lines)}()")
        )
        lines[at:at] = [
            *chance.choice(([], ["    @property"], ["    @torch.no_grad()"])),
            f"    def {name}(self, x):",
            f"        {body}",
        ]


def add_statement(chance: random.Random, lines: list[str]) -> None:
    """A call, a local, an attribute or a switch, somewhere in a body."""
    places = [
        at
        for at, line in enumerate(lines)
        if line.startswith("    ") and line.strip() and not line.rstrip().endswith((",", "("))
    ]
    if places:
        at = chance.choice(places)
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        one, other = some_name(chance, lines), some_name(chance, lines)
        words = (
            f"{one}({other})", f"{one}.{other}()", f"{one} = {other}", f"{one} = {other}()", f"self.{one} = {other}",
            f"self.{one}.{other}({one})", f"{one}({other}={one})", "torch.set_grad_enabled(False)", "loss.backward()",
            f"return {one}", f"getattr({one}, '{other}')()",
        )  # fmt: skip
        lines.insert(at, indent + chance.choice(words))


def change_base(chance: random.Random, lines: list[str]) -> None:
    places = [at for at, line in enumerate(lines) if re.match(r"class \w+", line)]
    if places:
        at = chance.choice(places)
        base = chance.choice(("", "nn.Module", "torch.nn.Module", "object", "Unknown", some_name(chance, lines)))
        lines[at] = re.sub(r"^(class \w+).*", rf"\1({base}):", lines[at])


def unfinished(chance: random.Random, lines: list[str]) -> None:
    """A statement that is being typed: the file does not parse until it is taken back."""
    if "def unfinished(" in lines:
        lines.remove("def unfinished(")
    else:
        lines.insert(chance.randrange(len(lines) + 1), "def unfinished(")


def rename_method(chance: random.Random, lines: list[str]) -> None:
    places = [at for at, line in enumerate(lines) if re.match(r"    def \w+\(self", line)]
    if places:
        at = chance.choice(places)
        name = chance.choice(("forward", "renamed", "__call__", some_name(chance, lines)))
        lines[at] = re.sub(r"def \w+", f"def {name}", lines[at])


def class_below(chance: random.Random, lines: list[str]) -> None:
    """A class below one that the file defines or knows."""
    names = re.findall(r"^class (\w+)|import (\w+)$", "\n".join(lines), re.M)
    base = chance.choice([one or other for one, other in names] or ["object"])
    method = chance.choice(("__init__", "forward", "__call__", some_name(chance, lines)))
    lines += [
        "",
        "",
        f"class Under{chance.randrange(3)}({base}):",
        f"    def {method}(self, x):",
        f"        super().{method}(x)",
    ]
    if chance.randrange(2):
        lines.append(f"        self.{some_name(chance, lines)}()")


EDITS: tuple[Callable[[random.Random, list[str]], None], ...] = (
    comment, comment, blank, delete, double, swap, number, rename, rename, guard, detach, suppressed,
    add_function, add_method, add_method, add_statement, add_statement, add_statement, change_base,
    unfinished, unfinished, rename_method, class_below, class_below,
)  # fmt: skip


def module_of(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def call_of(chance: random.Random, files: dict[str, str]) -> tuple[str, str]:
    """A new file that imports and calls a function of another one, under a guard or not."""
    names = sorted(name for name, text in files.items() if re.search(r"^def (\w+)\(", text, re.M))
    name = chance.choice(names)
    function = chance.choice(re.findall(r"^def (\w+)\(", files[name], re.M))
    module = module_of(name)
    guarded = chance.choice(("if True", "with torch.no_grad()"))
    text = f"import torch\nfrom {module} import {function}\n\n\ndef run(model, loader):\n    {guarded}:\n        return {function}(model, loader)\n"
    return f"callers/call_{chance.randrange(4)}.py", text


def bases_of(chance: random.Random, files: dict[str, str]) -> tuple[str, str]:
    """A new file with a class below one of another file, which overrides one of its methods."""
    names = sorted(name for name, text in files.items() if re.search(r"^class (\w+)", text, re.M))
    name = chance.choice(names)
    cls = chance.choice(re.findall(r"^class (\w+)", files[name], re.M))
    method = chance.choice(re.findall(r"^    def (\w+)\(self", files[name], re.M) or ["forward"])
    module = module_of(name)
    body = chance.choice(("return x.detach()", "return super().forward(x)", "return [x]"))
    text = f"import torch\nfrom {module} import {cls}\n\n\nclass Below({cls}):\n    def {method}(self, x):\n        {body}\n"
    return f"below/below_{chance.randrange(4)}.py", text


def edit(chance: random.Random, files: dict[str, str], first: dict[str, str]) -> str:
    """Changes the project in one way; what was done."""
    kind = chance.randrange(20)
    if kind == 0 and len(files) > 4:
        name = chance.choice(sorted(files))
        del files[name]
        return f"deleted {name}"
    if kind == 1:
        name = chance.choice(sorted(first))
        files[name] = first[name]
        return f"as at first: {name}"
    if kind in (2, 3):
        name, text = (call_of if kind == 2 else bases_of)(chance, files)
        files[name] = text
        return f"wrote {name}:\n{text}"
    if kind == 4:
        name, other = chance.sample(sorted(files), 2)
        files[name] = files[other]
        return f"{name} says what {other} says"
    if kind in (5, 6):
        name = chance.choice(sorted(files))
        module = module_of(chance.choice(sorted(files)))
        functions = re.findall(r"^(?:def|class) (\w+)", "\n".join(files.values()), re.M)
        what = chance.choice(
            (f"from {module} import *", f"import {module}", f"from {module} import {chance.choice(functions)}")
        )
        files[name] = chance.choice((f"{what}\n{files[name]}", f"{files[name]}\n{what}\n"))
        return f"{what} in {name}"
    if kind == 7:
        name = chance.choice(sorted(files))
        if name.endswith("/__init__.py"):
            other = f"{name.removesuffix('/__init__.py')}.py"
        else:
            other = f"{name.removesuffix('.py')}/__init__.py"
        files[other] = files.pop(name)
        return f"{name} is {other} now"
    name = chance.choice(sorted(files))
    lines = files[name].split("\n")
    how = chance.choice(EDITS)
    how(chance, lines)
    files[name] = "\n".join(lines)
    return f"{how.__name__} in {name}"


MANY_SITES = 2
"""Few calls end in one word here: the processes of a run are to share nearly all."""


def walk(seed: int, edits: int, root: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    chance, ways = random.Random(seed), random.Random(seed)
    first = some_projects(chance)
    files = dict(first)
    done: list[str] = []
    written: dict[str, str] = {}
    for turn in range(edits):
        for name in written.keys() - files.keys():
            (root / name).unlink()
        for name, text in files.items():
            if written.get(name) != text:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
        written = dict(files)
        words = (".", "--preview", "-v", "--output-format", "json")
        if ways.random() < 0.1:  # all is found and written down again
            shutil.rmtree(root / FOLDER, ignore_errors=True)
        cached, fresh = run(*words, "--cache-dir", FOLDER, "-j", ways.choice("112")), run(*words, "--no-cache")
        assert cached == fresh, f"seed {seed}, after edit {turn}: {done[-3:]}"
        for _ in range(chance.choice((1, 1, 1, 1, 2, 5))):
            done.append(edit(chance, files, first))
    assert len(done) >= edits
    the_order_of_questions_is_nothing(chance, written)


def the_order_of_questions_is_nothing(chance: random.Random, files: dict[str, str]) -> None:
    """What was asked in any state of the project, much of it about what is gone, has the same answer in any order."""
    facts = []
    for name, text in files.items():
        with suppress(SourceError):
            facts.append(module_facts(name, text))
    kept = [
        zlib.decompress(path.read_bytes().partition(b"\n")[2]).decode().split("\n") for path in Path().rglob("findings/*/*")
    ]
    questions = sorted({question for head, *lines in kept for question in lines[: 2 * json.loads(head)[2] : 2]})
    chosen = chance.sample(questions, min(len(questions), QUESTIONS))
    alone = [QueryResults(Project.build(facts), FileDigests((), None)).fingerprint(from_text(question)) for question in chosen]
    for order in (questions, questions[::-1], chance.sample(questions, len(questions))):
        together = QueryResults(Project.build(facts), FileDigests((), None))
        found = {question: together.fingerprint(from_text(question)) for question in order}
        others = [
            (question, one, found[question]) for question, one in zip(chosen, alone, strict=True) if found[question] != one
        ]
        assert not others, others[:3]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_any_row_of_edits(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torchmemlint.index.callgraph._MANY_SITES", MANY_SITES)

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main([*arguments])
        done = capsys.readouterr()
        return status, done.out, done.err

    walk(seed, EDITS_OF_ONE_RUN, tmp_path, run)


def _long(seed: int, edits: int) -> None:
    """``python tests/test_cache_edits.py SEED EDITS``: as many as there is time for."""
    import contextlib
    import io
    import os
    import tempfile

    def run(*arguments: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main([*arguments])
        return status, out.getvalue(), err.getvalue()

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        callgraph._MANY_SITES = MANY_SITES
        walk(seed, edits, Path(folder), run)


if __name__ == "__main__":
    _long(int(sys.argv[1]), int(sys.argv[2]))
