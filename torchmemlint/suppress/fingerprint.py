"""A name for a finding that survives everything but a change of the flagged code itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from torchmemlint.findings import Finding


def numbered(findings: Iterable[Finding]) -> list[Finding]:
    """One file's findings in output order, each with its occurrence among those of the same code, function and statement."""
    seen: Counter[tuple[str, str, str]] = Counter()
    result = []
    for finding in sorted(findings, key=lambda one: one.sort_key):
        same = (finding.code, finding.function, finding.statement)
        result.append(replace(finding, occurrence=seen[same]))
        seen[same] += 1
    return result


def fingerprint(finding: Finding) -> str:
    """16 hex digits from code, function, statement and occurrence: the same in a moved or reformatted function.

    Neither the row nor the path goes in; two files may share a fingerprint.
    """
    from hashlib import blake2b  # loads OpenSSL, which most runs do not need

    parts = (finding.code, finding.function, finding.statement, str(finding.occurrence))
    return blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
