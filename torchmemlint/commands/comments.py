"""``torchmemlint --add-ignore`` and ``--add-noqa``: a comment in the code for every finding that is there."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchmemlint.errors import SourceError, UsageError
from torchmemlint.files.quoting import quoted
from torchmemlint.files.writing import folders_of
from torchmemlint.findings import UNPARSABLE, Finding
from torchmemlint.fixes.comments import add_comments
from torchmemlint.project.config import Configuration
from torchmemlint.project.discover import discover
from torchmemlint.rules import ALL_RULES
from torchmemlint.run import Outcome, check_paths
from torchmemlint.running.fixing import CHANGED, stamp
from torchmemlint.source.file import write_source
from torchmemlint.workers import read

NO_REASON = "not reviewed yet"
"""What a comment says where the user gave no reason: a later reader knows that nobody looked."""


@dataclass(frozen=True, slots=True)
class Written:
    """What is left to report when the comments are written, and the files that could not be written."""

    outcome: Outcome
    failures: tuple[str, ...]


MAX_ROUNDS = 10


def write(arguments: argparse.Namespace, paths: Sequence[str], configuration: Configuration) -> Written:
    """Checks, and writes the comments. Raises UsageError for options that do not go together."""
    noqa = arguments.add_noqa is not None
    if noqa and arguments.add_ignore is not None:
        raise UsageError("--add-ignore cannot be combined with --add-noqa")
    option = "--add-noqa" if noqa else "--add-ignore"
    if "-" in paths:
        raise UsageError(f"{option} needs files, not standard input")
    if arguments.fix or arguments.diff:
        raise UsageError(f"{option} cannot be combined with --fix or --diff: run --fix first, then {option} for the rest")
    reason = (arguments.add_noqa if noqa else arguments.add_ignore).strip() or NO_REASON
    if "#" in reason or "\n" in reason or "\r" in reason:
        raise UsageError(f"{option}: the reason must be one line, without `#`")
    names = {rule.name for rule in ALL_RULES}
    written: list[Finding] = []
    changed: set[str] = set()
    for _ in range(MAX_ROUNDS):  # where one finding stands for others, the next is reported once the first has its comment
        stamps = {file.path: stamp(file.path) for file in discover(paths, configuration).files}
        outcome = check_paths(paths, configuration, arguments.jobs, since=arguments.since or "")
        by_path: dict[str, list[Finding]] = {}
        for finding in outcome.findings:
            by_path.setdefault(finding.path, []).append(finding)
        left: list[Finding] = []
        failures: list[str] = []
        done = 0
        for path, findings in by_path.items():
            try:
                source = read(path)
                commented = add_comments(source, findings, reason, names, noqa=noqa)
                if commented.done:
                    if stamps.get(path) != stamp(path):
                        raise SourceError(CHANGED)
                    write_source(Path(path), source, commented.text, folders_of(path, paths))
                    changed.add(path)
                written += commented.done
                done += len(commented.done)
                left += commented.left
            except SourceError as error:
                left += findings
                if any(finding.code != UNPARSABLE for finding in findings):
                    failures.append(f"{quoted(path)}: {error}")
        if not done:
            break
    files = len(changed)
    if not arguments.quiet:
        count = len(written)
        words = f"{count} finding{'' if count == 1 else 's'} in {files} file{'' if files == 1 else 's'}"
        print(f"Added comments for {words}." if count else "No findings: no comments were added.", file=sys.stderr)
    return Written(replace(outcome, found=tuple(left)), tuple(failures))
