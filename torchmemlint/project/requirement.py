"""The torch that a project asks for: what its own metadata says, read as text.

Nothing is installed, imported or run.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator, Mapping

from torchmemlint.files.reading import MAX_SETTINGS_BYTES, read_text
from torchmemlint.files.toml import parsed

Version = tuple[int, int]

_TORCH = re.compile(r"\s*torch\s*(?:\[[^\]]*\])?\s*(?P<specifiers>[^;#@]*)(?:[;#@]|\Z)", re.IGNORECASE)
_BOUND = re.compile(r"(?:>=|===?|~=|>|\^)\s*v?(\d{1,9})(?:\.(\d{1,9}))?")
_CONDA = re.compile(r"""-\s*["']?(?:[\w.-]+::)?(?:py)?torch\s*(?P<bound>[=<>!~][^#"']*)?(?:["'#]|\Z)""")
"""An entry of an environment for conda, or of its list for pip."""
_INSTALL = re.compile(r"[\s$>!`]*(?:python3? -m )?(?:pip3?|conda|mamba)\s+install\b")
_PINNED = re.compile(r"""(?<![\w.-])(?:py)?torch(?P<bound>(?:==?|>=|~=)\d[\w.]*)""")
MAX_LINE = 1000
"""Characters of a line of these; a longer one is no list entry and no command."""
_MARKS = ("pyproject.toml", "setup.cfg", "setup.py", ".git")


def required_torch(folder: str, known: dict[str, Version | None]) -> Version | None:
    """The oldest torch that the project of an absolute folder admits, as (major, minor); None where it names none, or no
    lower bound. ``known`` keeps the answers by folder.

    Looks into the folder and those above it, up to the first that is a project's (has metadata or ``.git``). The first of
    these that names torch decides: the dependencies of pyproject.toml (standard, then Poetry's), its extras and groups,
    setup.cfg, setup.py (a literal ``install_requires``), requirements.txt (or requirement.txt), conda's environment.yml, and the
    install commands of a README.
    """
    if folder not in known:
        known[folder] = None
        known[folder] = _required(folder, known)
    return known[folder]


def _required(folder: str, known: dict[str, Version | None]) -> Version | None:
    for read in (_pyproject, _setup_cfg, _setup_py, _requirements, _environment, _readme):
        for requirements in read(folder):
            bounds = [bound for bound in map(lower_bound, requirements) if bound is not NOT_TORCH]
            if bounds:
                lowest = [bound for bound in bounds if bound is not None]
                return min(lowest) if len(lowest) == len(bounds) else None
    parent = os.path.dirname(folder)
    if parent == folder or any(os.path.exists(os.path.join(folder, mark)) for mark in _MARKS):
        return None
    return required_torch(parent, known)


NOT_TORCH: Version = (-1, -1)
"""What ``lower_bound`` answers for a requirement of something else."""


def lower_bound(requirement: str) -> Version | None:
    """The oldest version that one requirement (``torch>=2.1,<3; python_version > "3.9"``) admits; None when it has no lower
    bound, ``NOT_TORCH`` when it is about another package."""
    match = _TORCH.match(requirement)
    if match is None or re.match(r"[\w.-]", match["specifiers"]):  # torchvision, torch-geometric
        return NOT_TORCH
    bounds = [(int(major), int(minor or 0)) for major, minor in _BOUND.findall(match["specifiers"])]
    return max(bounds) if bounds else None


def _text(folder: str, name: str) -> str:
    """The text of a file that mentions torch, "" for any other file, or if there is none."""
    try:
        text = read_text(os.path.join(folder, name), MAX_SETTINGS_BYTES)
    except (OSError, ValueError):  # not there, no regular file, not readable, not UTF-8: it says nothing
        return ""
    return text if "torch" in text.lower() else ""


def _pyproject(folder: str) -> Iterator[list[str]]:
    text = _text(folder, "pyproject.toml")
    if not text:
        return
    try:
        table: object = parsed(text)
    except ValueError:  # the code that reads its settings says so
        return
    yield _strings(_at(table, "project", "dependencies"))
    yield _poetry(_at(table, "tool", "poetry", "dependencies"))
    extras = [_at(table, "project", "optional-dependencies"), _at(table, "dependency-groups")]
    yield [one for extra in extras if isinstance(extra, Mapping) for held in extra.values() for one in _strings(held)]
    groups = _at(table, "tool", "poetry", "group")
    if isinstance(groups, Mapping):
        yield [one for group in groups.values() for one in _poetry(_at(group, "dependencies"))]


def _poetry(entries: object) -> list[str]:
    """Poetry's ``torch = "^2.1"`` and ``torch = {version = "^2.1"}``, written as requirements; several for several markers."""
    if not isinstance(entries, Mapping):
        return []
    out = []
    for name, held in entries.items():
        for entry in held if isinstance(held, list) else [held]:
            version = entry.get("version", "") if isinstance(entry, Mapping) else entry
            text = str(version)
            out.append(f"{name} {'==' if text[:1].isdigit() else ''}{text}")
    return out


def _at(table: object, *keys: str) -> object:
    for key in keys:
        table = table.get(key) if isinstance(table, Mapping) else None
    return table


def _strings(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _setup_cfg(folder: str) -> Iterable[list[str]]:
    text = _text(folder, "setup.cfg")
    if not text:
        return []
    import configparser

    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return []
    return [parser.get("options", "install_requires", fallback="").splitlines()]


def _setup_py(folder: str) -> Iterable[list[str]]:
    text = _text(folder, "setup.py")
    if not text:
        return []
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    lists = [
        word.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for word in node.keywords
        if word.arg == "install_requires" and isinstance(word.value, (ast.List, ast.Tuple))
    ]
    return [
        [item.value for item in found.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)] for found in lists
    ]


def _requirements(folder: str) -> Iterable[list[str]]:
    return [_text(folder, name).splitlines() for name in ("requirements.txt", "requirement.txt")]


def _environment(folder: str) -> Iterator[list[str]]:
    for name in ("environment.yml", "environment.yaml"):
        section, found = "", list[str]()
        for line in _short_lines(folder, name):
            if line[:1].isalpha():
                section = line.partition(":")[0]
            elif section == "dependencies" and (entry := _CONDA.match(line.strip())):
                found.append(_as_requirement(entry["bound"] or ""))
        yield found


def _readme(folder: str) -> Iterator[list[str]]:
    for name in ("README.md", "README.rst"):
        commands = [line for line in _short_lines(folder, name) if _INSTALL.match(line)]
        yield [_as_requirement(found["bound"]) for line in commands for found in _PINNED.finditer(line)]


def _short_lines(folder: str, name: str) -> list[str]:
    return [line for line in _text(folder, name).splitlines() if len(line) <= MAX_LINE]


def _as_requirement(bound: str) -> str:
    """``=1.4`` of conda, which any 1.4 fits, and ``=1.4.0=py37``, as pip writes them."""
    return f"torch{re.sub(r'^=(?!=)', '==', bound)}"
