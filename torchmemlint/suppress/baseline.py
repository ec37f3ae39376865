"""The findings that a project had when it began to be checked, so that only new ones are reported.

A baseline names a finding by file, code, function and statement, with how often these occur together, and never by a row: it
holds when code moves inside its file. What it has for files that no longer exist is taken as moved, and hides the same finding
in any other file. Nobody edits one by hand, but people read its changes: one line an entry, sorted.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torchmemlint.errors import BaselineError
from torchmemlint.files.quoting import quoted
from torchmemlint.files.reading import MAX_REPORT_BYTES, read_text, reason
from torchmemlint.findings import INTERNAL_ERROR, Finding

VERSION = 1
NEVER = frozenset({INTERNAL_ERROR})
"""A failure of our own must not be made to look as if it had always been there."""


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """What makes two findings of a file the same one to a baseline."""

    function: str
    code: str
    statement: str


Counts = Mapping[Key, int]


@dataclass(frozen=True, slots=True)
class Baseline:
    """How many findings of each kind every file had; ``folder`` is the absolute folder that the names of files are below, and
    ``text`` that of the file that says so, None where there is none."""

    folder: str
    files: Mapping[str, Counts]
    text: str | None = field(default=None, compare=False, repr=False)

    def name(self, path: str) -> str:
        """A path (absolute, or relative to the current folder) as the baseline has it."""
        return os.path.relpath(os.path.abspath(path), self.folder).replace(os.sep, "/")

    def exists(self, name: str) -> bool:
        return os.path.exists(os.path.join(self.folder, name))


@dataclass(frozen=True, slots=True)
class Screened:
    """What a baseline leaves of some files' findings (``kept``, in the order given), how many it hides, and how many entries
    of these files, or of files that are gone, have no finding any more."""

    kept: Mapping[str, tuple[Finding, ...]]
    hidden: int
    stale: int


def key_of(finding: Finding) -> Key:
    return Key(finding.function, finding.code, finding.statement)


def screen(baseline: Baseline, findings: Mapping[str, Sequence[Finding]], codes: Mapping[str, Collection[str]]) -> Screened:
    """Takes out of each file's findings what the baseline has; of several alike the first ones.

    ``findings`` has every file that was looked at, also those without any; ``codes``, the rules that were on for each.
    """
    kept: dict[str, tuple[Finding, ...]] = {}
    stale = 0
    moved = _moved(baseline, findings)
    for path in sorted(findings):
        left = Counter(baseline.files.get(baseline.name(path), {}))
        kept[path] = tuple([finding for finding in findings[path] if not _taken(finding, left, moved)])
        stale += sum(count for key, count in left.items() if key.code in codes[path])
    hidden = sum(len(findings[path]) - len(kept[path]) for path in findings)
    return Screened({path: kept[path] for path in findings}, hidden, stale + sum(moved.values()))


def renewed(
    baseline: Baseline,
    findings: Mapping[str, Sequence[Finding]],
    codes: Mapping[str, Collection[str]],
    add: Callable[[Finding], bool],
) -> Baseline:
    """The baseline after a look at some files: it loses what is gone, and has those of their findings, too, for which ``add`` says
    so. What was not looked at stays: other files that exist, and rules that were off.
    """
    files = {name: dict(counts) for name, counts in baseline.files.items() if baseline.exists(name)}
    moved = _moved(baseline, findings)
    for path in sorted(findings):
        name = baseline.name(path)
        old = files.get(name, {})
        left = Counter(old)
        new = {key: count for key, count in old.items() if key.code not in codes[path]}
        for finding in findings[path]:
            if _taken(finding, left, moved) or (add(finding) and finding.code not in NEVER):
                new[key_of(finding)] = new.get(key_of(finding), 0) + 1
        files[name] = new
    return Baseline(baseline.folder, {name: counts for name, counts in files.items() if counts})


def _moved(baseline: Baseline, looked_at: Iterable[str]) -> Counter[Key]:
    """Entries of files that are gone."""
    names = {baseline.name(path) for path in looked_at}
    gone = [name for name in baseline.files if name not in names and not baseline.exists(name)]
    return sum((Counter(baseline.files[name]) for name in gone), Counter[Key]())


def _taken(finding: Finding, left: Counter[Key], moved: Counter[Key]) -> bool:
    """Whether an entry stands for this finding; it then stands for one less."""
    key = key_of(finding)
    source = left if left[key] > 0 else moved
    if source[key] < 1 or finding.code in NEVER:
        return False
    source[key] -= 1
    return True


# --- the file -------------------------------------------------------------------------------------------------------


def empty_baseline(path: str) -> Baseline:
    """One without entries, for a file that does not exist yet."""
    return Baseline(os.path.dirname(os.path.abspath(path)), {})


def read_baseline(path: str) -> Baseline:
    """Raises BaselineError for a file that is missing, unreadable or not a baseline."""
    import json  # most runs have no baseline

    try:
        text = read_text(path, MAX_REPORT_BYTES)
    except FileNotFoundError:
        raise BaselineError(f"baseline `{quoted(path)}` does not exist; `--write-baseline` writes one") from None
    except (OSError, UnicodeDecodeError) as error:
        why = reason(error) if isinstance(error, OSError) else "cannot be read: it is not UTF-8"
        raise BaselineError(f"baseline `{quoted(path)}` {why}") from None
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):
        raise BaselineError(
            f"baseline `{quoted(path)}` is not valid JSON (a merge conflict?); `--write-baseline` writes a new one"
        ) from None
    if not isinstance(table, dict) or not isinstance(table.get("files"), dict):
        raise BaselineError(f"`{quoted(path)}` is not a baseline of torchmemlint")
    if table.get("version") != VERSION:
        raise BaselineError(
            f"baseline `{quoted(path)}` has version {table.get('version')!r}; this torchmemlint reads version {VERSION}"
        )
    try:
        files = {str(name): _counts(entries) for name, entries in table["files"].items()}
    except (TypeError, KeyError, ValueError):
        raise BaselineError(f"`{quoted(path)}` is not a baseline of torchmemlint: an entry is incomplete") from None
    return Baseline(os.path.dirname(os.path.abspath(path)), files, text)


def _counts(entries: object) -> Counts:
    if not isinstance(entries, list):
        raise TypeError
    counts: Counter[Key] = Counter()
    for entry in entries:
        words = [entry[name] for name in ("function", "code", "statement")]
        count = entry.get("count", 1)
        if (
            not all(isinstance(word, str) for word in words)
            or not isinstance(count, int)
            or isinstance(count, bool)
            or count < 1
        ):
            raise ValueError
        counts[Key(*words)] += count
    return counts


def written(baseline: Baseline) -> str:
    """The text of the file."""
    return "".join(_lines(baseline))


def _lines(baseline: Baseline) -> Iterator[str]:
    import json

    yield f'{{\n  "version": {VERSION},\n  "files": {{'
    for number, name in enumerate(sorted(baseline.files)):
        yield f"{',' if number else ''}\n    {json.dumps(name, ensure_ascii=False)}: ["
        for place, (key, count) in enumerate(sorted(baseline.files[name].items())):
            entry = {"code": key.code, "function": key.function, "statement": key.statement, "count": count}
            yield f"{',' if place else ''}\n      {json.dumps(entry, ensure_ascii=False)}"
        yield "\n    ]"
    yield "\n  }\n}\n" if baseline.files else "}\n}\n"


def write_baseline(path: str, baseline: Baseline, before: Baseline) -> None:
    """Replaces the file, which says ``before``, in one step. Raises BaselineError, also where it says something else by now."""
    from torchmemlint.files.writing import refusal, replace_file

    target = os.path.realpath(path)
    data = written(baseline).encode("utf-8", "backslashreplace")
    why = refusal(target) if before.text is not None else ""
    if why:
        raise BaselineError(f"baseline `{path}` {why}")

    def unchanged(now: bytes | None) -> bool:
        if now is None or before.text is None:
            return now is None and before.text is None
        return _one_newline(now) == _one_newline(before.text.encode())

    try:
        done = replace_file(target, data, unchanged)
    except OSError as error:
        raise BaselineError(f"baseline `{quoted(path)}` cannot be written: {error.strerror or error}") from error
    if not done:
        raise BaselineError(f"baseline `{quoted(path)}` was not written: it changed meanwhile; run again")


def _one_newline(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
