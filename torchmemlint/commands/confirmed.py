"""What ``torchmemlint confirm --output-format json`` has measured, beside the findings of now (``--confirmed FILE``)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace

from torchmemlint.errors import UsageError
from torchmemlint.files.quoting import quoted, unquoted
from torchmemlint.files.reading import MAX_REPORT_BYTES, read_given
from torchmemlint.findings import Finding
from torchmemlint.reporters import Measurement
from torchmemlint.rules import rule_of
from torchmemlint.rules.card import About
from torchmemlint.run import Outcome
from torchmemlint.suppress.fingerprint import fingerprint

VERDICTS = ("confirmed", "refuted", "inconclusive")

Key = tuple[str, str, str]
Measured = Callable[[Finding], Measurement | None]


def read_results(file: str) -> Measured:
    """Gives a finding its measurement: matched by file, code and fingerprint, so that it holds while code around the flagged
    statement moves, and no longer once that statement is another. Paths in the file count from the current folder.

    Raises UsageError for a file that is no such report.
    """
    try:
        rows = json.loads(read_given(file, MAX_REPORT_BYTES).decode())
    except OSError as error:
        raise UsageError(f"--confirmed {quoted(file)}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--confirmed {quoted(file)}: not valid JSON: {str(error).splitlines()[0]}") from error
    if not isinstance(rows, list):
        raise UsageError(
            f"--confirmed {quoted(file)}: must be an array, as `torchmemlint confirm --output-format json` writes it"
        )
    found: dict[Key, Measurement] = {}
    for number, row in enumerate(rows, 1):
        entry = _entry(row)
        if entry is None:
            raise UsageError(f"--confirmed {quoted(file)}: entry {number} is not a finding with a verdict in `confirm`")
        key, measurement = entry
        if found.get(key, measurement).verdict != "confirmed" or measurement.verdict == "confirmed":
            found[key] = measurement
    return lambda finding: found.get((os.path.realpath(finding.path), finding.code, fingerprint(finding)))


def _entry(row: object) -> tuple[Key, Measurement] | None:
    if not isinstance(row, dict):
        return None
    path, code, print_, record = row.get("filename"), row.get("code"), row.get("fingerprint"), row.get("confirm")
    if not isinstance(path, str) or not isinstance(code, str) or not isinstance(print_, str) or not isinstance(record, dict):
        return None
    verdict = record.get("verdict")
    if verdict not in VERDICTS or "\0" in path:
        return None
    return (os.path.realpath(unquoted(path)), code, print_), Measurement(verdict, _words(record), record)


def _words(record: Mapping[str, object]) -> str:
    measured = record.get("measured")
    if isinstance(measured, str) and measured:
        return measured
    return ": ".join(str(record[name]) for name in ("verdict", "kind", "reason") if record.get(name))


def only_confirmed(outcome: Outcome, measured: Measured) -> Outcome:
    """The findings that an experiment has confirmed, and what is about the files and the run themselves (TML0…)."""

    def kept(finding: Finding) -> bool:
        measurement = measured(finding)
        return rule_of(finding.code).about is About.RUN or (measurement is not None and measurement.verdict == "confirmed")

    left = replace(outcome, found=tuple(finding for finding in outcome.found if kept(finding)))
    return replace(left, unconfirmed=len(outcome.findings) - len(left.findings))
