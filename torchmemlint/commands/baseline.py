"""``torchmemlint --write-baseline`` and ``--prune-baseline``: what is found, kept in a file instead of reported."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from torchmemlint.errors import UsageError
from torchmemlint.files.checkout import is_inside, leads_out
from torchmemlint.files.quoting import printable, quoted
from torchmemlint.findings import INTERNAL_ERROR, Finding
from torchmemlint.project.config import Configuration
from torchmemlint.project.settings import DEFAULT_BASELINE, Settings
from torchmemlint.run import check_paths
from torchmemlint.suppress.baseline import Baseline, empty_baseline, read_baseline, renewed, write_baseline


def run(arguments: argparse.Namespace, paths: Sequence[str], configuration: Configuration) -> int:
    """Renews the baseline of every configuration that the checked files have; exit status 2 where a file was not read."""
    if arguments.write_baseline and arguments.prune_baseline:
        raise UsageError("--write-baseline cannot be combined with --prune-baseline")
    if "-" in paths:
        raise UsageError("a baseline needs files, not standard input")
    for option in ("fix", "diff", "since"):
        if getattr(arguments, option):
            raise UsageError(f"--{option} cannot be combined with --write-baseline or --prune-baseline")
    outcome = check_paths(paths, configuration, arguments.jobs, baseline=False)
    found: dict[str, list[Finding]] = {path: [] for path in outcome.settings}
    for finding in outcome.found:  # what is not printed may be in the baseline from the time when it was
        found[finding.path].append(finding)
    targets: dict[str, list[str]] = {}
    for path, settings in outcome.settings.items():
        targets.setdefault(_target(settings, arguments), []).append(path)
    if problems := [*outcome.problems, *outcome.unread]:  # what is in such a file would be missing, or be reported next time
        for problem in problems:
            print(f"torchmemlint: error: {printable(problem)}; no baseline was written", file=sys.stderr)
        return 2
    codes = {path: settings.codes for path, settings in outcome.settings.items()}
    if not targets:
        settings = configuration.for_folder(os.getcwd())
        targets[_target(settings, arguments)] = []

    def add(finding: Finding) -> bool:
        return bool(arguments.write_baseline) and outcome.settings[finding.path].prints(finding)

    for target, covered in sorted(targets.items()):
        before = _before(target, arguments.write_baseline)
        after = renewed(before, {path: found[path] for path in covered}, codes, add)
        write_baseline(target, after, before)
        if not arguments.quiet:
            had, has = _size(before), _size(after)
            words = f"{has} finding{'' if has == 1 else 's'}" + (f", {had} before" if had not in (0, has) else "")
            print(f"{quoted(os.path.relpath(target))}: {words}.")
    failures = [finding for finding in outcome.findings if finding.code == INTERNAL_ERROR]
    for finding in failures:
        print(f"torchmemlint: error: {quoted(finding.path)}: {finding.code} {printable(finding.message)}", file=sys.stderr)
    return 2 if failures else 0


def _target(settings: Settings, arguments: argparse.Namespace) -> str:
    """Where the baseline of files with these settings is written: below the folder of their configuration, unless the command
    line says otherwise. Raises UsageError."""
    target = settings.baseline or os.path.join(settings.root, DEFAULT_BASELINE)
    if arguments.baseline is None and (not is_inside(target, settings.root) or leads_out(target, settings.root)):
        raise UsageError(f"baseline `{target}` is outside the configuration file's folder; use --baseline to write it")
    return target


def _before(target: str, write: bool) -> Baseline:
    return empty_baseline(target) if write and not os.path.exists(target) else read_baseline(target)


def _size(baseline: Baseline) -> int:
    return sum(sum(counts.values()) for counts in baseline.files.values())
