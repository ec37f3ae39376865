"""Findings counted by rule (``--statistics``), fixes by file (``--show-fixes``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from torchmemlint.files.quoting import quoted
from torchmemlint.findings import Finding
from torchmemlint.project.settings import Settings
from torchmemlint.reporters.style import Style, paint
from torchmemlint.running.fixing import is_fixable


def fixes_by_file(fixed: Sequence[Finding]) -> str:
    """The rules whose fixes were applied, with how many, file by file."""
    counts = Counter((one.path, one.code, one.name) for one in fixed)
    lines = []
    for path in sorted({one.path for one in fixed}):
        rules = sorted((code, name, count) for (where, code, name), count in counts.items() if where == path)
        lines += [f"- {quoted(path)}:", *(f"    {count} × {code} ({name})" for code, name, count in rules)]
    return "".join(f"{line}\n" for line in (["Fixes:", *lines] if lines else []))


def statistics(findings: Sequence[Finding], settings: Mapping[str, Settings], as_json: bool, color: bool = False) -> str:
    """Findings per rule, the most frequent first."""
    counts = Counter((finding.code, finding.name) for finding in findings)
    fixable = Counter(finding.code for finding in findings if is_fixable(finding, settings[finding.path].unsafe_fixes))
    rows = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    if as_json:
        import json

        plain = [{"code": code, "name": name, "count": count, "fixable": fixable[code]} for (code, name), count in rows]
        return json.dumps(plain, indent=2) + "\n"
    width = max((len(str(count)) for _, count in rows), default=0)
    return "".join(
        f"{paint(f'{count:{width}}', Style.BOLD, color)}  {paint(code, Style.ERROR, color)}  "
        f"[{paint('*', Style.FRAME, color) if fixable[code] else ' '}] {name}\n"
        for (code, name), count in rows
    )
