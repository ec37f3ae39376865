"""Which rows of a file changed since a revision: asked of git, for ``--since``.

A finding counts as new when what it marks, or a step that led there, lies on a changed row. Where rows were only taken out (a
decorator, a ``detach`` line), the rows beside the gap stand for them, and then a function's header speaks for its findings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from torchmemlint.errors import UsageError
from torchmemlint.findings import Finding

_HUNK = re.compile(rb"@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@")
_LONE_RETURN = re.compile(r"\r(?!\n)")


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


@dataclass(frozen=True, slots=True)
class _Repository:
    """What git said about one work tree: changed rows by path below ``top``, and the tracked files."""

    top: str
    changed: dict[str, Changed]
    tracked: frozenset[str]


class Since:
    """Answers for files of any repository; each is asked once."""

    def __init__(self, revision: str) -> None:
        """``revision`` is compared by its merge base with HEAD, so that what others did since then does not count."""
        self.revision = revision
        self._repositories: dict[str, _Repository] = {}
        self._tops: dict[str, str | None] = {}

    def ask(self, path: str) -> _Repository:
        """The repository of a file or folder. Raises UsageError where git cannot tell: no repository, no such revision, no git."""
        real = os.path.realpath(path)
        top = self._top(real if os.path.isdir(real) else os.path.dirname(real))
        if top is None:
            raise UsageError(f"--since: {path} is in no git repository")
        if top not in self._repositories:
            self._repositories[top] = _asked(top, self.revision)
        return self._repositories[top]

    def changed(self, path: str, text: str) -> Changed:
        """The rows of a file, with its text on disk, that changed. Raises UsageError as ``ask`` does."""
        repository = self.ask(path)
        name = os.path.relpath(os.path.realpath(path), repository.top).replace(os.sep, "/")
        if name in repository.changed:
            # git's rows end at \n alone: where that is not so, the file stands as one.
            return EVERYTHING if _LONE_RETURN.search(text) else repository.changed[name]
        return NOTHING if name in repository.tracked else EVERYTHING

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
        raise UsageError(f"--since: `{revision}` is no revision")
    if _git(top, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", fails=True) is None:
        raise UsageError(f"--since: git knows no revision `{revision}` in {top}")
    base = _git(top, "merge-base", revision, "HEAD", fails=True)
    if base is None:
        raise UsageError(
            f"--since: `{revision}` and HEAD have no common ancestor in {top} (a shallow clone needs more history)"
        )
    # Whatever the user's or the repository's configuration says, the shape of the answer must be this one.
    diff = _git(
        top, "diff", "--unified=0", "--inter-hunk-context=0", "--find-renames", "--text", "--no-color", "--no-ext-diff",
        "--no-textconv", "--no-relative", "--ignore-submodules", "--src-prefix=a/", "--dst-prefix=b/",
        base.decode("ascii").strip(), "--",
    )  # fmt: skip
    tracked = _git(top, "ls-files", "-z") or b""
    return _Repository(top, parsed_diff(diff or b""), frozenset(os.fsdecode(name) for name in tracked.split(b"\0") if name))


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


def _git(top: str, *arguments: str, fails: bool = False) -> bytes | None:
    """What git prints; None where it fails and ``fails`` expects that.

    A repository's own configuration can name programs (a file system monitor, a diff driver): none may run, and the index is
    not written.
    """
    import subprocess

    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "-C", top, *arguments]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as error:
        raise UsageError(f"--since needs git, which cannot be run: {error.strerror}") from None
    if done.returncode == 0:
        return done.stdout
    if fails:
        return None
    words = done.stderr.decode("utf-8", "replace").strip().splitlines()
    raise UsageError(f"--since: git {arguments[0]} failed in {top}: {words[-1] if words else done.returncode}")
