"""``python -m benchmarks.word_lists``: the constants that are sets or tables of three words or more, outside ``torch_facts``, and what
the words are names of; then the single names of libraries in the engine and the rules.

A word is Python's if Python has it (a keyword, a builtin, a module of the standard library, a member of a built-in type, an operator),
and a library's if one of the tables has it. Only the engine and the rules compare words with names in code, and the workers with what
they run; elsewhere all that is not Python's is the product's own: its options, formats, files and messages. So are the keys under which
code asks for words of the tables.
"""

from __future__ import annotations

import ast
import builtins
import collections
import collections.abc
import contextlib
import copy
import functools
import itertools
import keyword
import operator
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

from torchmemlint.torch_facts import loader

PACKAGE = Path(loader.__file__).parents[1]
CONSTANT = re.compile(r"[A-Z_]+")
ENGINE = ("semantics", "lower", "index")
CHECKS = (*ENGINE, "rules")
RUNS_TORCH = ("budget/worker", "confirm/worker")
LIBRARY, WORKER, PYTHON, OWN = "libraries", "libraries (workers)", "Python", "product"
KNOWN = {
    ("budget/worker/checkpoints.py", "_BERT_LARGE"): (WORKER, "settings of transformers"),
    ("budget/worker/checkpoints.py", "_ROBERTA"): (WORKER, "settings of transformers"),
    ("lower/exact.py", "_PLAIN"): (PYTHON, "fields of syntax nodes"),
    ("lower/exact.py", "_WRAPPERS"): (PYTHON, "fields of syntax nodes"),
    ("rules/allocator/recovery_inside_oom_handler.py", "WORDS"): (OWN, "texts for the engine's own words (Recovery)"),
    ("rules/cards.py", "CARDS"): (OWN, "generated from the rules' cards"),
    ("rules/gradmode/ineffective_no_grad.py", "SAYINGS"): (OWN, "texts for the engine's own words (Spelling)"),
    ("semantics/size/constructors.py", "FLAG_ACTIONS"): (PYTHON, "actions of argparse"),
}
"""Constants that the words do not explain: what they are, and why."""
NOT_LIBRARIES = ("python.toml", "packages.toml", "users.toml")
"""Tables that name no members of libraries."""
TYPES = (list, dict, set, tuple, str, bytes, int, float, type, collections.deque, collections.OrderedDict)
MODULES = (builtins, ast, collections, collections.abc, contextlib, copy, functools, itertools, operator, typing)


@functools.cache
def library_names() -> frozenset[str]:
    """What the tables name, the last part of each name, and the package of each."""
    folder = Path(loader.__file__).parent
    facts = loader.parse(
        {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.toml") if path.name not in NOT_LIBRARIES}
    )
    names = {*facts.functions, *facts.classes, *facts.methods, *facts.attributes, *facts.module_methods, *facts.part_methods}
    names |= {*facts.guarded_methods, *facts.backward_methods, *facts.inert_calls, *facts.inert_methods, *facts.cut_dtypes}
    names |= {*facts.runners, *facts.runner_methods, *facts.given_weights, *facts.oom_exceptions, *facts.allocator_options}
    names |= {name for _, name in facts.kind_methods} | {name for pair in facts.hooks for name in pair} | {*facts.renamed}
    names = names.union(facts.names.values(), facts.usual_names.values(), *facts.words.values())
    return frozenset(names | {name.rpartition(".")[2] for name in names} | {name.partition(".")[0] for name in names})


@functools.cache
def python_names() -> frozenset[str]:
    names = {*keyword.kwlist, *keyword.softkwlist, *sys.stdlib_module_names, "self", "cls"}
    return frozenset(names.union(*map(dir, (*TYPES, *MODULES))))


def is_python(word: str) -> bool:
    parts = re.findall(r"\w+", word)
    return all(part in python_names() or part.isdecimal() or re.fullmatch(r"__\w+__", part) for part in parts)


def is_library(word: str) -> bool:
    """Whether a word has a name of a library in it, and is no text and no name of the product's own, which have hyphens."""
    names = [] if re.search(r"[\s-]", word) else re.findall(r"[\w.]+", word)
    return any(name in library_names() and not is_python(name) for name in names)


def word_lists(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Constants at the top of a module that spell out words: name, and the words that are no keys of the tables."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        names = [target.id for target in targets if isinstance(target, ast.Name) and CONSTANT.fullmatch(target.id)]
        if names and isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            inside = list(ast.walk(node.value))
            shown = any(isinstance(each, (ast.Set, ast.Dict, ast.Tuple, ast.List)) for each in inside)
            words = list(strings(node.value))
            if shown and len(words) >= 3:
                keys = {id(key) for key in keys_of_tables(node.value)}
                yield names[0], [text for word, text in words if id(word) not in keys]


def strings(node: ast.AST) -> Iterator[tuple[ast.Constant, str]]:
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each, each.value


def keys_of_tables(node: ast.AST) -> Iterator[ast.AST]:
    """``TORCH.words["joins"]``, ``TORCH.names["gradient"]``"""
    for each in ast.walk(node):
        if isinstance(each, ast.Subscript) and isinstance(each.value, ast.Attribute) and each.value.attr in ("words", "names"):
            yield each.slice


def kind_of(file: str, name: str, words: list[str]) -> str:
    """What the words of a constant are names of; ``file`` is below the package."""
    if (file, name) in KNOWN:
        return KNOWN[file, name][0]
    return kind_by_words(file, words)


def kind_by_words(file: str, words: list[str]) -> str:
    if all(map(is_python, words)):
        return PYTHON if words else OWN
    if file.startswith((*CHECKS, *RUNS_TORCH)) and any(map(is_library, words)):
        return LIBRARY if file.startswith(CHECKS) else WORKER
    return OWN


def trees(package: Path, below: tuple[str, ...] = ("",)) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(package.rglob("*.py")):
        file = path.relative_to(package).as_posix()
        if "torch_facts" not in path.parts and file.startswith(below):
            yield file, ast.parse(path.read_text(encoding="utf-8"))


def listed(package: Path) -> list[tuple[str, str, str, list[str]]]:
    """The constants of one state of the package: what their words are names of, file, name, words."""
    return sorted(
        (kind_of(file, name, words), file, name, words) for file, tree in trees(package) for name, words in word_lists(tree)
    )


def single_names(package: Path) -> list[tuple[str, int, str]]:
    """Names of libraries that stand alone in the engine and the rules, outside of those constants: file, row, name."""
    found = []
    for file, tree in trees(package, tuple(f"{part}/" for part in CHECKS if part != "lower")):
        words = [(word, text) for word, text in strings(tree) if alone(text)]
        if words:
            skipped = {id(each) for node in ast.walk(tree) for part in not_compared(node) for each in ast.walk(part)}
            skipped |= {id(key) for key in keys_of_tables(tree)}
            found += [(file, word.lineno, text) for word, text in words if id(word) not in skipped]
    return found


def alone(word: str) -> bool:
    return len(word) > 1 and word in library_names() and not is_python(word)


def not_compared(node: ast.AST) -> Iterator[ast.AST]:
    """Parts of a node whose texts are compared with no name in code: docstrings, messages, annotations, members of enums, attributes
    of its own objects, constants that are listed, and what becomes part of a longer text."""
    match node:
        case ast.Expr(value=ast.Constant()) | ast.JoinedStr():
            yield node
        case ast.ClassDef() if any("Enum" in ast.unparse(base) for base in node.bases):
            yield node
        case ast.Module():
            listed = {"__all__", *(name for name, _ in word_lists(node))}
            yield from (
                each
                for each in node.body
                if isinstance(each, (ast.Assign, ast.AnnAssign))
                and listed & {n.id for n in ast.walk(each) if isinstance(n, ast.Name)}
            )
        case ast.FunctionDef() | ast.AsyncFunctionDef() if node.returns is not None:
            yield node.returns
        case ast.arg() | ast.AnnAssign() if node.annotation is not None:
            yield node.annotation
        case ast.Call(func=ast.Name(id="TypeVar" | "cast")):
            yield from node.args
        case ast.Call(func=ast.Name(id="getattr")):
            yield from node.args[1:]


def main() -> None:
    for kind, file, name, words in listed(PACKAGE):
        print(f"{kind:20}{file}: {name}: {' '.join(' '.join(words).split())[:120]}")
    for file, row, name in single_names(PACKAGE):
        print(f"{'single':20}{file}:{row}: {name}")


if __name__ == "__main__":
    main()
