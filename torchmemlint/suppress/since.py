"""Which rows of a file changed since a revision, for ``--since``: git has what the file was, its bytes on disk say what it is.

A finding counts as new when what it marks, or a step that led there, lies on a changed row. Where rows were only taken out (a
decorator, a ``detach`` line), the rows beside the gap stand for them, and then a function's header stands for its findings.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from torchmemlint.errors import UsageError
from torchmemlint.findings import Finding
from torchmemlint.suppress.git import GitError, ask, difference

_HUNK = re.compile(rb"@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True, slots=True)
class Changed:
    """Rows of a file as it is now. ``everything``: the whole file is new."""

    rows: frozenset[int] = frozenset()
    beside_gaps: frozenset[int] = frozenset()
    everything: bool = False

    def covers(self, finding: Finding) -> bool:
        """Whether a finding of this file belongs to what changed; one about a notebook's cell that does not parse always does."""
        if self.everything or finding.cell is not None:
            return True
        spans = [finding.span, *(step.span for step in finding.flow if step.path == finding.path)]
        shown = {row for span in spans for row in range(span.start.row, span.end.row + 1)}
        return bool(shown & self.rows or (shown | finding.noqa_rows) & self.beside_gaps)

    def renumbered(self, rows: Mapping[int, int]) -> Changed:
        """The same change in rows that are counted otherwise: ``rows`` has the row in the file of each."""
        if self.everything:
            return self
        return Changed(
            frozenset(row for row, in_file in rows.items() if in_file in self.rows),
            frozenset(row for row, in_file in rows.items() if in_file in self.beside_gaps),
        )

    def carried(self, before: str, after: str) -> Changed:
        """The same rows when ``before``, the text that git compared, has become ``after``; what differs has changed too."""
        if before == after or self.everything:
            return self
        from difflib import SequenceMatcher

        rows: set[int] = set()
        beside: set[int] = set()
        same = SequenceMatcher(None, before.split("\n"), after.split("\n"), autojunk=False)
        for kind, start, end, new_start, new_end in same.get_opcodes():
            if kind == "equal":
                shift = new_start - start
                rows.update(row + shift for row in self.rows if start < row <= end)
                beside.update(row + shift for row in self.beside_gaps if start < row <= end)
            else:
                rows.update(range(new_start + 1, new_end + 1))
        return Changed(frozenset(rows), frozenset(beside))


EVERYTHING = Changed(everything=True)
NOTHING = Changed()


@dataclass(slots=True)
class _Repository:
    """One work tree: its blobs at the merge base, by path below ``top``, and those of them that are no longer there."""

    top: str
    base: Mapping[str, str]
    _gone: dict[str, bytes] | None = None

    def earlier(self, name: str, data: bytes) -> bytes | None:
        """What the file ``name``, which now has these bytes, was; None for a new one."""
        if name in self.base:
            return self._blob(self.base[name], data)
        return self._renamed(name, data)

    def _blob(self, blob: str, data: bytes) -> bytes:
        """A blob. ``data`` is not asked of git where it is that blob: a partial clone lacks many, but those that it checked out."""
        for same in (data, data.replace(b"\r\n", b"\n")):
            if _name_of(same, blob) == blob:
                return same
        return _content(self.top, blob)

    def _renamed(self, name: str, data: bytes) -> bytes | None:
        """The file that was moved to ``name``: of those that are gone the one that it is most like, if half of it is the same."""
        if self._gone is None:
            self._gone = self._read_gone()
        ending = os.path.splitext(name)[1]
        likest, most, data = None, 0.5, data.replace(b"\r\n", b"\n")
        for before, text in self._gone.items():
            if os.path.splitext(before)[1] == ending and (alike := _likeness(text.replace(b"\r\n", b"\n"), data, most)) > most:
                likest, most = text, alike
        return likest

    def _read_gone(self) -> dict[str, bytes]:
        gone = {
            name: blob
            for name, blob in sorted(self.base.items())
            if name.endswith(_ENDINGS) and not os.path.lexists(os.path.join(self.top, name))
        }
        if len(gone) > MOST_GONE:
            return {}
        found: dict[str, bytes] = {}
        for name, blob in gone.items():
            with suppress(GitError):  # a partial clone lacks it; then nothing was moved from there
                found[name] = _content(self.top, blob)
        return found


MOST_GONE = 1000
"""Of more files that are gone (a sparse checkout, a large move) none is looked at, as git does."""
MOST_BLOB_BYTES = 32 << 20
_ENDINGS = (".py", ".ipynb")


class Since:
    """Answers for files of any repository; each is asked once."""

    def __init__(self, revision: str) -> None:
        """``revision`` is compared by its merge base with HEAD, so that what others did since then does not count."""
        self.revision = revision
        self._repositories: dict[str, _Repository] = {}
        self._tops: dict[str, str | None] = {}

    def ask(self, path: str) -> _Repository:
        """The repository of a file or folder. Raises UsageError where git does not know: no repository, no such revision, no git."""
        real = os.path.realpath(path)
        top = self._top(real if os.path.isdir(real) else os.path.dirname(real))
        if top is None:
            raise UsageError(f"--since: {path} is not in a git repository")
        if top not in self._repositories:
            self._repositories[top] = _asked(top, self.revision)
        return self._repositories[top]

    def changed(self, path: str, data: bytes) -> Changed:
        """The rows of a file, with its bytes on disk, that changed. Raises UsageError as ``ask`` does."""
        repository = self.ask(path)
        name = os.path.relpath(os.path.realpath(path), repository.top).replace(os.sep, "/")
        try:
            before = repository.earlier(name, data)
        except GitError as error:
            raise UsageError(f"--since: {error} (a partial clone lacks old files, and nothing is fetched)") from None
        if before is None:
            return EVERYTHING
        # Git may have written other ends of lines into the work tree than it keeps: they are no change.
        before, after = (text.replace(b"\r\n", b"\n") for text in (before, data))
        if before == after:
            return NOTHING
        # git's rows end at \n alone: where that is not so, the file stands as one.
        if b"\r" in after:
            return EVERYTHING
        return parsed_diff(difference(before, after)).get("after", NOTHING)

    def _top(self, folder: str) -> str | None:
        if folder not in self._tops:
            parent = os.path.dirname(folder)
            if os.path.exists(os.path.join(folder, ".git")):
                self._tops[folder] = folder
            else:
                self._tops[folder] = None if parent == folder else self._top(parent)
        return self._tops[folder]


def _asked(top: str, revision: str) -> _Repository:
    if revision.startswith("-") or not revision:
        raise UsageError(f"--since: `{revision}` is not a revision")
    try:
        ask(top, "rev-parse", "--git-dir")
    except GitError as error:
        raise UsageError(f"--since: {error}") from None
    try:
        commit = ask(top, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").decode("ascii").strip()
    except GitError:
        raise UsageError(f"--since: no revision `{revision}` in {top}") from None
    try:
        base = ask(top, "merge-base", commit, "HEAD").decode("ascii").strip()
    except GitError:
        raise UsageError(
            f"--since: `{revision}` and HEAD have no common ancestor in {top} (a shallow clone needs more history)"
        ) from None
    try:
        listed = ask(top, "ls-tree", "-r", "-z", "--full-tree", base)
    except GitError as error:
        raise UsageError(f"--since: {error}") from None
    blobs: dict[str, str] = {}
    for entry in listed.split(b"\0"):
        about, tab, name = entry.partition(b"\t")
        if tab and about.startswith(b"100"):  # a file: no link, no submodule
            blobs[os.fsdecode(name)] = about.split()[2].decode("ascii")
    return _Repository(top, blobs)


def _content(top: str, blob: str) -> bytes:
    """A blob, as git keeps it: no filter is run. Raises GitError where it is not there, or huge."""
    size = int(ask(top, "cat-file", "-s", blob))
    if size > MOST_BLOB_BYTES:
        raise GitError(f"the object {blob} has {size} bytes")
    return ask(top, "cat-file", "blob", blob)


def _name_of(data: bytes, like: str) -> str:
    """The name that git gives to a blob, by the hash that the repository uses."""
    made = hashlib.new("sha1" if len(like) == 40 else "sha256", b"blob %d\0" % len(data), usedforsecurity=False)
    made.update(data)
    return made.hexdigest()


def _likeness(before: bytes, after: bytes, least: float) -> float:
    """How much of the larger text stands in the smaller, by lines; 0 where it cannot be more than ``least``."""
    small, large = sorted((len(before), len(after)))
    if not small or small <= least * large:
        return 0
    common = Counter(before.splitlines(keepends=True)) & Counter(after.splitlines(keepends=True))
    return sum(len(line) * count for line, count in common.items()) / large


def parsed_diff(diff: bytes) -> dict[str, Changed]:
    """Changed rows by path, from a patch without context; files that are gone are left out."""
    changed: dict[str, Changed] = {}
    name: str | None = None
    body = 0  # rows of the hunk that are still to come: one of them may look like a header
    for line in diff.split(b"\n"):
        if body and line[:1] in (b"-", b"+", b"\\"):
            body -= line[:1] != b"\\"
        elif line.startswith(b"diff --git "):
            name = None
        elif line.startswith(b"+++ "):
            name = _new_name(line[4:])
            if name is not None:
                changed[name] = NOTHING
        elif (hunk := _HUNK.match(line)) is not None:
            body = sum(int(count or 1) for count in re.findall(rb"[-+]\d+(?:,(\d+))?", hunk[0]))
            if name is not None:
                start, count = int(hunk[1]), int(hunk[2] or 1)
                old = changed[name]
                if count:
                    changed[name] = Changed(old.rows | set(range(start, start + count)), old.beside_gaps)
                else:
                    changed[name] = Changed(old.rows, old.beside_gaps | {start, start + 1})
    return changed


def _new_name(quoted: bytes) -> str | None:
    """The path in a ``+++`` line; git quotes odd names as C does, and ends one that has a space with a tab."""
    raw = quoted.rstrip(b"\t")
    if raw.startswith(b'"'):
        import ast  # its octal and letter escapes are Python's, too

        raw = str(ast.literal_eval(raw.decode("latin-1"))).encode("latin-1")
    return os.fsdecode(raw[2:]) if raw.startswith(b"b/") else None
