"""``python -m benchmarks.field.names FOLDER…``: what people call networks and losses, counted where their class is known.

Each FOLDER is a package or repository. Of every name or attribute that a function calls there, and of which the engine knows what it
stands for, the answer is hidden, and it is counted under its name and the last word of that: a network (a module with parameters), a loss, or something else.
Writes ``torchmemlint/semantics/mode/callees.toml``, by which a name says something where nothing else is known. Functions and classes are
left out that are called by their own names: a definition or an import says what these are.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from torchmemlint.errors import SourceError
from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.module_facts import module_facts
from torchmemlint.index.project import ClassRef, FunctionRef, Project
from torchmemlint.project.settings import Settings
from torchmemlint.semantics.identity.parameters import has_parameters
from torchmemlint.semantics.mode.purpose import words_of
from torchmemlint.semantics.state.world import World
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import ClassKind

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "torchmemlint" / "semantics" / "mode" / "callees.toml"
LEAST, LEAST_FOLDERS = 8, 3
"""Functions, and folders, that must call something by a word for it to have a row."""
NETWORKS = frozenset({ClassKind.MODULE, ClassKind.WRAPPER, ClassKind.EMA, ClassKind.LIGHTNING_MODULE, ClassKind.HF_MODEL})
NETWORK, LOSS, OTHER = "network", "loss", "other"
CRITERION = re.compile("loss|criterion", re.IGNORECASE)

Counts = dict[str, Counter[str]]


def kind_of(world: World, cls: ClassRef | str) -> str:
    """What objects of a class are; "" where a base is not visible."""
    if isinstance(cls, str):
        kind = TORCH.class_kind(cls)
        return NETWORK if kind in NETWORKS else LOSS if kind is ClassKind.LOSS else OTHER
    module = world.is_module_class(cls)
    if module is None:
        return ""
    if module and CRITERION.search(cls.qualname):
        return LOSS
    return NETWORK if module and has_parameters(world, cls) else OTHER


def answer(world: World, ref: FunctionRef, facts: FunctionFacts, text: str) -> str:
    """What is called by ``text`` in a function; "" where that is not known, or a name of a class or an import says it."""
    project = world.project
    cls = project.class_of(ref.path, ref.qualname, text)
    if cls is not None:
        return kind_of(world, cls)
    if any(param.name == text for param in facts.params):
        kinds = {kind_of(world, each) for each in project.classes_given(ref, text)}
        kinds |= {OTHER} if project.functions_given(ref, text) else set()
        return kinds.pop() if len(kinds) == 1 else ""
    return ""


def counted(folder: Path) -> Iterator[tuple[str, str]]:
    """The words and the kind of each name in each function."""
    texts = {str(path): path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.rglob("*.py"))}
    found = []
    for path, text in texts.items():
        try:
            found.append(module_facts(path, text))
        except SourceError:
            continue
    project = Project.build(found)
    world = World(project, Settings(), texts.__getitem__)
    for module in found:
        for facts in module.functions:
            ref = FunctionRef(module.path, facts.qualname)
            for text in dict.fromkeys(call.callee for call in facts.calls if call.args):
                kind = answer(world, ref, facts, text) if text.removeprefix("self.").isidentifier() else ""
                yield from ((word, kind) for word in words_of(text) if kind)


def table(counts: dict[str, Counts]) -> str:
    """The file: a row a word, from the counts of each folder."""
    of_words: dict[str, Counter[str]] = defaultdict(Counter)
    for each in counts.values():
        for word, kinds in each.items():
            of_words[word].update(kinds)
    rows = []
    for word, kinds in sorted(of_words.items()):
        n = kinds.total()
        if n < LEAST or sum(word in each for each in counts.values()) < LEAST_FOLDERS:
            continue
        if kinds[NETWORK] + kinds[LOSS] == 0:
            continue
        rows.append(f"{word}={n}/{kinds[NETWORK]}/{kinds[LOSS]}")
    lines, line = [], ""
    for row in rows:
        if len(line) + len(row) > 126:
            lines.append(line.strip())
            line = ""
        line += f" {row}"
    body = "\n".join([*lines, line.strip()])
    return (
        "# Written by `python -m benchmarks.field.names`: what is called by a name, or by one that ends in a word, where its class is known.\n"
        "# word=functions that call it/of these a network/a loss. Words that name neither in any of them have no row.\n\n"
        f"source = '{len(counts)} packages and repositories'\nwords = '''\n{body}'''\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+")
    counts: dict[str, Counts] = {}
    for folder in parser.parse_args().folders:
        of_folder: Counts = defaultdict(Counter)
        for word, kind in counted(folder):
            of_folder[word][kind] += 1
        counts[folder.name] = of_folder
        print(folder.name, sum(kinds.total() for kinds in of_folder.values()), flush=True)
    TABLE.write_text(table(counts), encoding="utf-8")


if __name__ == "__main__":
    main()
