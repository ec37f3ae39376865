"""Objects of a git repository, read without trusting the repository.

What git runs is named in the repository's configuration and attributes: filters, drivers of diffs, a file system monitor,
hooks, and whatever a fetch of missing objects uses. So it is never asked about the work tree: a revision is looked up, and trees
and blobs are read, which needs none of these. Two texts are compared by git in an empty folder that is in no repository.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence

from torchmemlint.errors import UsageError

SECONDS = 120
"""What git may take for one answer: it can be made to wait (an `include` of a pipe)."""
MOST_BYTES = 256 << 20
"""What git may answer: trees can name each other so that a few bytes make a list without end."""

_SAFE = (
    *("--no-pager", "--no-optional-locks", "--no-replace-objects", "--literal-pathspecs"),
    *("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "-c", "safe.bareRepository=explicit"),
)
_KEPT = ("GIT_CONFIG", "GIT_EXEC_PATH")
"""Beginnings of git's variables that stay: the user's own configuration says which folders of others are safe to look at."""


class GitError(UsageError):
    """Git did not answer; the words are its own."""


def ask(top: str, *arguments: str) -> bytes:
    """What git says about the repository whose work tree is ``top``. Raises GitError where it fails, UsageError without git."""
    return _output(["-C", top, *arguments], top, os.path.dirname(top))


def difference(before: bytes, after: bytes) -> bytes:
    """A patch without context between two texts, whatever anyone configured."""
    with tempfile.TemporaryDirectory(prefix="torchmemlint-") as folder:
        for name, text in (("before", before), ("after", after)):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(text)
        return _output(
            [
                *("diff", "--no-index", "--unified=0", "--inter-hunk-context=0", "--text", "--no-color", "--no-ext-diff"),
                *("--no-textconv", "--no-renames", "--src-prefix=a/", "--dst-prefix=b/", "--", "before", "after"),
            ],
            folder,
            os.path.dirname(folder),
            {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_COUNT": "0", "GIT_CONFIG_PARAMETERS": ""},
            fine=(0, 1),
        )


def _environment(ceiling: str, more: Mapping[str, str]) -> dict[str, str]:
    """This process's, without what git's hooks and users set for other repositories and for tracing."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name.startswith(_KEPT)}
    return {
        **kept,
        "LC_ALL": "C",
        "GIT_CEILING_DIRECTORIES": ceiling,  # nothing above a folder that only looks like a repository
        "GIT_NO_LAZY_FETCH": "1",  # since git 2.45; before, a fetch is refused every way to the objects:
        "GIT_ALLOW_PROTOCOL": "",
        "GIT_TERMINAL_PROMPT": "0",
        **more,
    }


def _output(
    arguments: Sequence[str], folder: str, ceiling: str, more: Mapping[str, str] | None = None, fine: Sequence[int] = (0,)
) -> bytes:
    words = arguments[2] if arguments[0] == "-C" else arguments[0]
    with tempfile.TemporaryFile() as complaints:
        try:
            process = subprocess.Popen(
                [_program(), *_SAFE, *arguments],
                cwd=folder,
                env=_environment(ceiling, more or {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
            )
        except OSError as error:
            raise UsageError(f"--since needs git, which cannot be run: {error.strerror}") from None
        late = threading.Event()

        def stop() -> None:
            late.set()
            process.kill()

        assert process.stdout is not None
        timer = threading.Timer(SECONDS, stop)
        timer.start()
        try:
            data = process.stdout.read(MOST_BYTES + 1)
            if len(data) > MOST_BYTES:
                process.kill()
            process.wait()
        finally:
            process.kill()
            process.stdout.close()
            process.wait()
            timer.cancel()
        if late.is_set():
            raise GitError(f"git {words} took more than {SECONDS} s")
        if len(data) > MOST_BYTES:
            raise GitError(f"git {words} printed more than {MOST_BYTES >> 20} MiB")
        if process.returncode not in fine:
            complaints.seek(0)
            lines = complaints.read(1 << 16).decode("utf-8", "replace").strip().splitlines()
            why = next((line for line in lines if line.startswith("fatal: ")), lines[-1] if lines else process.returncode)
            raise GitError(f"git {words} failed in {folder}: {why}")
    return data


def _program() -> str:
    """Git in one of the folders of PATH. Windows, and an empty or relative entry of PATH, would look in the current folder, too, which may
    be a stranger's."""
    name = "git.exe" if sys.platform == "win32" else "git"
    for folder in os.get_exec_path():
        program = os.path.join(folder, name)
        if os.path.isabs(folder) and os.path.isfile(program) and os.access(program, os.X_OK):
            return program
    raise UsageError("--since needs git, which is in no folder of PATH")
