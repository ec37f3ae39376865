"""From a change to the tests that it can break.

``python -m tests.affected`` prints a command for what differs from the last commit; with ``--since REVISION``, from that one; with
paths, for these files. A test file is named for what it imports or names in its text, directly or through another module of tests,
and for what the table below says: the packages that it runs without naming them.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from torchmemlint.rules.cards import CARDS

TESTS = Path(__file__).parent
ROOT = TESTS.parent
PACKAGE = ROOT / "torchmemlint"

ALL = ("**/test_*.py",)
ENGINE = (
    "test_rules.py", "test_oracle.py", "test_claims.py", "test_plumbing.py", "test_fixing.py", "test_fix_of_sums.py",
    "test_functions.py", "test_unused.py", "test_comments.py", "test_printed.py", "test_docs.py", "test_trace.py",
    "test_settings_of_the_engine.py", "test_root_choice.py", "test_fuzz.py", "test_bounds.py", "test_probes.py", "test_work.py",
    "test_cache_edits.py",
)  # fmt: skip
PROGRAM = (
    "test_bad_input.py", "test_cli.py", "test_options.py", "test_run.py", "test_everywhere.py", "test_named_files.py",
    "test_watch.py", "hostile/*.py",
)  # fmt: skip
WIDER: dict[str, tuple[str, ...]] = {
    "__init__": ("test_cli.py", "test_docs.py"),
    "__main__": ("test_bad_input.py", "hostile/test_arguments.py"),
    "analysis": ENGINE,
    "api": ("test_docs.py", "test_flake8.py", "test_server.py"),
    "budget": ("test_budget_*.py", "test_docs.py"),
    "cli": PROGRAM,
    "commands": (*PROGRAM, "test_baseline.py", "test_since.py", "test_shards.py", "test_precommit.py", "test_action.py"),
    "confirm": (
        "test_confirm*.py",
        "test_budget_*.py",
        "hostile/test_stopping.py",
        "hostile/test_arguments.py",
        "test_docs.py",
    ),
    "errors": ALL,
    "files": ALL,
    "findings": ALL,
    "fixes": ("test_rules.py", "test_fixing.py", "test_fix*.py", "hostile/test_fix_writes.py", "hostile/test_while_running.py"),
    "flake8_plugin": ("test_flake8.py", "test_everywhere.py", "hostile/test_special_files.py", "hostile/test_names.py"),
    "incremental": (
        "test_cache*.py",
        "test_dependencies.py",
        "test_named_files.py",
        "test_server.py",
        "test_shards.py",
        *PROGRAM,
    ),
    "index": (*ENGINE, "test_project.py", "test_facts.py", "test_query_log.py", "test_dependencies.py", "test_everywhere.py"),
    "lower": ENGINE,
    "lsp": ("test_server.py", "test_functions.py", "hostile/test_addresses.py", "test_everywhere.py"),
    "oom": ("test_oom_*.py", "hostile/test_special_files.py", "test_docs.py"),
    "processes": ("test_pool.py", "test_forks.py", "test_shards.py", "test_cache.py", "hostile/*.py"),
    "project": (*PROGRAM, "test_config.py", "test_discover.py", "test_requirement.py", "test_flake8.py", "test_server.py"),
    "reporters": ("test_formats.py", "test_reporters.py", "test_printed.py", "test_action.py", "test_docs.py", *PROGRAM),
    "rules": (*ENGINE, "test_weights.py", "test_frozen.py", "test_confirm*.py", "test_budget_remedies.py"),
    "run": (*ENGINE, *PROGRAM),
    "running": (*PROGRAM, "test_cache*.py", "test_profile.py", "test_shards.py", "test_fixing.py", "test_rules.py"),
    "screen": (*ENGINE, *PROGRAM),
    "semantics": ENGINE,
    "source": ALL,
    "str_enum": ALL,
    "suppress": (
        "test_suppress.py",
        "test_baseline.py",
        "test_since.py",
        "test_comments.py",
        "test_rules.py",
        "hostile/test_git.py",
    ),
    "torch_facts": (*ENGINE, "test_torch_facts.py", "test_confirm*.py"),
    "workers": (*ENGINE, *PROGRAM),
}
"""Package or module at the top of torchmemlint → the tests that run it without naming it. Without a row it is all of them."""


@cache
def packages() -> frozenset[str]:
    return frozenset(path.stem for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py") - {"__pycache__"}


NAMED = re.compile(r"torchmemlint\.(\w+)|from torchmemlint import ([\w, ]+)")
HELPER = re.compile(r"^\s*(?:from (?:hostile\.)?(\w+) import|import (\w+))", re.MULTILINE)


@cache
def test_files() -> tuple[Path, ...]:
    return tuple(sorted(TESTS.rglob("test_*.py")))


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def with_helpers(path: Path) -> frozenset[Path]:
    """A module of tests, and the others that it imports."""
    found, todo = set(), [path]
    while todo:
        one = todo.pop()
        found.add(one)
        for names in HELPER.findall(text_of(one)):
            for folder in (TESTS, TESTS / "hostile"):
                other = folder / f"{''.join(names)}.py"
                if other.exists() and other not in found:
                    todo.append(other)
    return frozenset(found)


@cache
def names_package(path: Path, package: str) -> bool:
    """Whether a test file, or a module of tests that it imports, has the package's name."""
    for one in with_helpers(path):
        for dotted, listed in NAMED.findall(text_of(one)):
            if package == dotted or package in re.findall(r"\w+", listed):
                return True
    return False


def matched(patterns: Iterable[str]) -> set[Path]:
    return {path for pattern in patterns for path in TESTS.glob(pattern) if path.name.startswith("test_")}


def of(changed: str) -> set[Path]:
    """The test files that a change of this file, given below the root, can break."""
    path = ROOT / changed
    if PACKAGE in path.parents:
        package = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        named = {one for one in test_files() if names_package(one, package)}
        return named | matched((*WIDER.get(package, ALL), "test_architecture.py"))
    if path.name == "conftest.py" or changed == "pyproject.toml":
        return set(test_files())
    if TESTS in path.parents and path.suffix == ".py":
        return {one for one in test_files() if path in with_helpers(one)}
    parts = Path(changed).parts
    word = path.name if TESTS in path.parents or len(parts) == 1 else parts[0]
    return {one for one in test_files() if any(word in text_of(each) for each in with_helpers(one))}


def differing(revision: str) -> list[str]:
    """The files that differ from a revision, and those that git does not know yet."""
    commands = (["git", "diff", "--name-only", revision], ["git", "ls-files", "--others", "--exclude-standard"])
    return [
        line
        for command in commands
        for line in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    ]


def codes_of(changed: Iterable[str]) -> list[str]:
    """The rules whose files or fixtures changed."""
    found = set()
    for name in changed:
        if match := re.match(r"fixtures/(TML\d{3})/", name):
            found.add(match[1])
        elif match := re.match(r"torchmemlint/rules/(.+)\.py$", name):
            card = CARDS.get(match[1].replace("/", "."))
            found |= {card.code} if card is not None else set()
    return sorted(found)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.affected", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--since", default="HEAD", metavar="REVISION", help="compare with this revision (default: HEAD)")
    parser.add_argument("paths", nargs="*", help="files, given below the root, in place of those that differ")
    arguments = parser.parse_args()
    changed = arguments.paths or differing(arguments.since)
    found = {path for name in changed for path in of(name)}
    if codes := codes_of(changed):
        print(f"first: python -m pytest -q -n 2 tests/test_rules.py -k '{' or '.join(codes)}'", file=sys.stderr)
    if not found:
        print("no test names what changed", file=sys.stderr)
        return 0
    names = [path.relative_to(ROOT).as_posix() for path in sorted(found)]
    print("python -m pytest -q -n 2", *(["tests"] if len(names) == len(test_files()) else names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
