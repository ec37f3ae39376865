"""What ``.gitignore`` files leave out, without asking git (a repository's own configuration can name a program to run)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from torchmemlint.files.checkout import checkout_of
from torchmemlint.files.reading import MAX_SETTINGS_BYTES, as_text, read_file
from torchmemlint.project.globs import FOLDERS, Globs, pieces_of


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """One line of a .gitignore; ``pattern`` is matched against the path below the file's folder."""

    pattern: Globs
    negated: bool
    folders_only: bool


@dataclass(frozen=True, slots=True)
class IgnoreFile:
    """One .gitignore: its folder with a slash at the end, its rules, and a pattern that matches where any rule may."""

    base: str
    rules: tuple[IgnoreRule, ...]
    any_rule: Globs


def ignored(real: str, is_folder: bool, files: Sequence[IgnoreFile]) -> bool:
    """Whether git would ignore an absolute path whose parent is not ignored: the last rule that matches decides, and a file
    deeper in the tree comes after those above it."""
    for file in reversed(files):
        if not real.startswith(file.base):
            continue
        relative = real[len(file.base) :]
        if not file.any_rule.match(relative):
            continue
        for rule in reversed(file.rules):
            if (is_folder or not rule.folders_only) and rule.pattern.match(relative):
                return not rule.negated
    return False


def parse_ignore_file(text: str, folder: str) -> IgnoreFile | None:
    """The rules of a .gitignore that stands in ``folder`` (absolute); None when it has none."""
    rules = []
    parts = []
    for line in text.removeprefix("\ufeff").split("\n"):
        rule = re.sub(r"(?<!\\) +\Z", "", line.rstrip("\r"))
        if not rule or rule.startswith("#"):
            continue
        negated = rule.startswith("!")
        rule = rule[1:] if negated else rule
        folders_only = rule.endswith("/")
        rule = rule.rstrip("/") if folders_only else rule
        if not rule:
            continue
        # A slash at the start or in the middle ties the rule to this folder; without one it holds at any depth.
        anchored = "/" in rule
        pieces = [*([] if anchored else [FOLDERS]), *pieces_of(rule.removeprefix("/"))]
        rules.append(IgnoreRule(Globs([pieces]), negated, folders_only))
        parts.append(pieces)
    return IgnoreFile(folder.rstrip("/") + "/", tuple(rules), Globs(parts)) if rules else None


def read_ignore_file(folder: str) -> tuple[IgnoreFile, ...]:
    """The .gitignore in a folder; none where that is no regular file, or one that nobody wrote by hand: git warns of such."""
    try:
        text = as_text(read_file(os.path.join(folder, ".gitignore"), MAX_SETTINGS_BYTES), "replace")
    except OSError:
        return ()
    parsed = parse_ignore_file(text, folder)
    return (parsed,) if parsed else ()


@lru_cache(maxsize=1024)
def ignore_files(folder: str) -> tuple[IgnoreFile, ...]:
    """The .gitignore files from the root of folder's repository down to the folder, or none when it is in no repository."""
    if os.path.exists(os.path.join(folder, ".git")):
        return read_ignore_file(folder)
    parent = os.path.dirname(folder)
    if parent == folder:
        return ()
    above = ignore_files(parent)
    return (*above, *read_ignore_file(folder)) if above or checkout_of(parent) is not None else ()


def ignores_above(top: str) -> tuple[IgnoreFile, ...]:
    """The .gitignore files above a folder given by hand that hold below it.

    None of them does when they ignore the folder itself or one above it: a user who names it wants to see what is in it.
    """
    if os.path.exists(os.path.join(top, ".git")):
        return ()
    files = ignore_files(os.path.dirname(top))
    step = top
    while files and len(step) >= len(files[0].base):
        if ignored(step, True, files):
            return ()
        step = os.path.dirname(step)
    return files
