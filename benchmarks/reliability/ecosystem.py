"""What two commits find in the same folders, and the CPU time they take, as a table: for every change that touches findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.field import __main__ as field
from benchmarks.field.__main__ import Failed, Run, checkout, difference, lint, output, places
from benchmarks.reliability.packages import OPTIONS


@dataclass(frozen=True, slots=True)
class Row:
    """A folder. What one of the commits could not check has no findings that could differ."""

    folder: str
    before: Run | None
    after: Run | None
    added: int = 0
    removed: int = 0


def compare(before: Path, after: Path, folders: Sequence[Path], times: int = 1) -> tuple[list[Row], str]:
    """The trees ``before`` and ``after`` over each folder, in turn, so that both have the same machine; the rows, and the findings that
    differ. The least CPU time of ``times`` runs counts."""
    rows, differences = [], []
    for folder in folders:
        runs: list[list[Run]] = [[], []]
        try:
            for _ in range(times):
                for found, tree in zip(runs, (before, after), strict=True):
                    found.append(lint(folder, tree, OPTIONS))
        except Failed as failure:
            differences.append(f"### {folder.name}\n\n{'after' if runs[0] else 'before'}: {failure}")
            rows.append(Row(folder.name, runs[0][0] if runs[0] else None, None))
            continue
        first, last = (min(found, key=lambda run: run.cpu) for found in runs)
        was, now = places(folder, [first]), places(folder, [last])
        rows.append(Row(folder.name, first, last, (now - was).total(), (was - now).total()))
        if text := difference(was, now):
            differences.append(f"### {folder.name}\n\n{text}")
    return rows, "\n\n".join(differences)


def table(rows: Sequence[Row]) -> str:
    lines = ["| project | findings | added | removed | CPU s before | CPU s after | |", "|---|---:|---:|---:|---:|---:|---:|"]
    found = added = removed = 0
    before = after = 0.0
    for row in rows:
        if row.before is None or row.after is None:
            lines.append(f"| {row.folder} | failed | | | {f'{row.before.cpu:.2f}' if row.before else 'failed'} | failed | |")
            continue
        lines.append(_line(row.folder, len(row.after.findings), row.added, row.removed, row.before.cpu, row.after.cpu))
        found, added, removed = found + len(row.after.findings), added + row.added, removed + row.removed
        before, after = before + row.before.cpu, after + row.after.cpu
    return "\n".join([*lines, _line("all", found, added, removed, before, after)])


def _line(name: str, found: int, added: int, removed: int, before: float, after: float) -> str:
    share = f"{100 * (after / before - 1):+.0f} %" if before else ""
    return f"| {name} | {found} | {added} | {removed} | {before:.2f} | {after:.2f} | {share} |"


def main(revisions: str, folders: Sequence[Path], times: int = 1) -> tuple[str, int]:
    """The report of two revisions, ``A..B``, or of one and the working tree; 1 where their findings differ, 2 where a folder could not
    be checked. Raises Failed."""
    base, _, head = revisions.partition("..")
    base, head = (name and output("git", "rev-parse", "--verify", f"{name}^{{commit}}") for name in (base, head))
    if missing := [str(folder) for folder in folders if not folder.is_dir()]:
        raise Failed(f"no folder: {', '.join(missing)}")
    resolved = [folder.resolve() for folder in folders]
    with checkout(base) as before:
        if head:
            with checkout(head) as after:
                rows, differences = compare(before, after, resolved, times)
        else:
            rows, differences = compare(before, field.ROOT, resolved, times)
    failed = any(row.after is None for row in rows)
    return f"{table(rows)}\n\n{differences or 'no finding added or removed'}", 2 if failed else int(bool(differences))
