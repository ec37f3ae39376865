"""Paths → the files to check, in one walk.

What the user names is taken at its word: a folder is entered whatever it or a folder above it is called, and a file is checked
even where an exclusion covers it (unless ``force-exclude``). Below a given folder, excluded names and what ``.gitignore``
files say are left out, and links to folders are not followed (so a loop of links ends nothing and repeats nothing).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from torchmemlint.errors import ConfigError
from torchmemlint.files.checkout import checkout_of
from torchmemlint.files.quoting import quoted
from torchmemlint.files.reading import kind, read_beginning
from torchmemlint.project.config import Configuration
from torchmemlint.project.gitignore import IgnoreFile, ignore_files, ignored, ignores_above, read_ignore_file
from torchmemlint.project.globs import Globs, literally, pieces_of
from torchmemlint.project.settings import Settings
from torchmemlint.source import NOTEBOOK, is_notebook, normal

SUFFIXES = (".py", NOTEBOOK)
_FAILURES = (errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Of the system, which another run may not meet."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file to check: ``path`` as it is shown (as named, posix separators), and its settings."""

    path: str
    settings: Settings


@dataclass(slots=True)
class Discovery:
    """``files`` sorted by path, each real file once; ``problems`` (a path named by hand that cannot be checked, a bad
    configuration file) make the exit status 2; ``notes`` are for ``-v``."""

    files: list[Found] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def discover(paths: Sequence[str], configuration: Configuration) -> Discovery:
    result = Discovery()
    ignore_files.cache_clear()  # what an earlier run of this process read may have changed
    by_identity: dict[str, Found] = {}
    links: list[Found] = []
    if "" in paths:  # of a variable that is not set: it must not mean the current folder
        result.problems.append("'': an empty path names no file")
    for path in sorted(dict.fromkeys(normal(path) for path in paths if path)):
        for found, is_link in _from(path, configuration, result):
            if is_link:
                links.append(found)
            else:
                by_identity.setdefault(os.path.abspath(found.path), found)
    # A link to a file that is checked under its own name adds nothing; of two links to one file the first is kept.
    for found in sorted(links, key=lambda found: found.path):
        by_identity.setdefault(os.path.realpath(found.path), found)
    result.files = sorted(by_identity.values(), key=lambda found: found.path)
    result.problems = list(dict.fromkeys(result.problems))
    return result


def python_files_below(folder: str, configuration: Configuration) -> Iterator[Found]:
    """The Python files below a folder as they are met, for callers that stop early; notebooks, links and failures are left
    out."""
    walked = _walk(folder, configuration, Discovery())
    return (found for found, is_link in walked if not is_link and not is_notebook(found.path))


def _from(path: str, configuration: Configuration, result: Discovery) -> Iterator[tuple[Found, bool]]:
    """The files that one given path stands for, each with whether it is a symbolic link; failures go to ``result``."""
    shown = path.replace(os.sep, "/")
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        result.problems.append(f"{quoted(shown)}: {_reason(error)}")
        return
    except ValueError:  # a null character
        result.problems.append(f"{quoted(shown)}: no such file or directory")
        return
    folder = path if stat.S_ISDIR(mode) else os.path.dirname(path) or "."
    try:
        settings = configuration.for_folder(os.path.abspath(folder))
    except ConfigError as error:
        result.problems.append(str(error))
        return
    if settings.force_exclude and excluded_by_hand(path, stat.S_ISDIR(mode), settings):
        result.notes.append(f"{quoted(shown)}: excluded")
    elif stat.S_ISDIR(mode):
        yield from _walk(path, configuration, result)
    elif not stat.S_ISREG(mode):
        result.problems.append(f"{quoted(shown)}: {kind(mode)}")
    elif (unhandled := _unhandled_kind(path)) is not None:
        result.problems.append(f"{quoted(shown)}: {unhandled}")
    elif not os.access(path, os.R_OK):
        result.problems.append(f"{quoted(shown)}: permission denied")
    else:
        yield Found(shown, settings), os.path.islink(path)


def _reason(error: OSError) -> str:
    """``No such file or directory`` and the like, in words that start lower-case."""
    words = error.strerror or type(error).__name__
    return words[:1].lower() + words[1:]


def _unhandled_kind(path: str) -> str | None:
    """Why a regular file named by hand is not Python source, None when it is: by its name, else by its first line."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix in (*SUFFIXES, ".pyw"):
        return None
    if suffix == ".pyi":
        return "stub files hold no code that runs, so there is nothing to check"
    try:
        first = read_beginning(path, 200)
    except OSError as error:
        return _reason(error)
    if first.startswith(b"#!") and b"python" in first.partition(b"\n")[0]:
        return None
    return "not a Python file or a notebook"


def _walk(top: str, configuration: Configuration, result: Discovery) -> Iterator[tuple[Found, bool]]:
    """Every Python file and notebook below a folder. ``stack`` holds (folder, ignore files that apply there, outermost first)."""
    real_top = os.path.abspath(top)
    ignores = ignores_above(real_top)
    stack: list[tuple[str, str, tuple[IgnoreFile, ...]]] = [(top, real_top, ignores)]
    while stack:
        folder, real_folder, ignores = stack.pop()
        shown = "" if folder == "." else folder.replace(os.sep, "/").rstrip("/") + "/"
        try:
            settings = configuration.for_folder(real_folder)
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except ConfigError as error:
            result.problems.append(str(error))
            continue
        except OSError as error:
            # The folder that the user named, unreadable, must not look clean, nor one that the system failed to list; one below
            # it that is not ours to read is reported under -v.
            reported = result.problems if folder == top or error.errno in _FAILURES else result.notes
            reported.append(f"{quoted(shown)}: {_reason(error)}")
            continue
        if settings.respect_gitignore and any(entry.name == ".gitignore" for entry in entries):
            ignores = (*ignores, *read_ignore_file(real_folder))
        applied = ignores if settings.respect_gitignore else ()
        for entry in entries:
            is_folder = entry.is_dir(follow_symlinks=False)
            if not is_folder and not entry.name.endswith(SUFFIXES):
                continue
            real = f"{real_folder.rstrip('/')}/{entry.name}"
            if _excluded(real, entry.name, settings) or ignored(real, is_folder, applied):
                continue
            if is_folder:
                stack.append((entry.name if folder == "." else os.path.join(folder, entry.name), real, ignores))
                continue
            why = _left_out(entry, real_top)
            if why:
                result.notes.append(f"{quoted(shown + entry.name)}: {why}")
            else:
                yield Found(shown + entry.name, settings), entry.is_symlink()


def _left_out(entry: os.DirEntry[str], top: str) -> str:
    """Why something below ``top`` that is named as a Python file is none to check, "" where it is one."""
    try:
        if entry.is_file():
            if entry.is_symlink() and _leads_out(entry.path, top):
                return "leads out of the repository, to a file that is not Python"
            return ""
        return kind(entry.stat().st_mode)
    except OSError as error:
        return _reason(error)


def _leads_out(link: str, top: str) -> bool:
    """Whether a link leads out of the repository to a file that is not named as Python's are: lines of such a file (a key, a
    configuration of the machine) would be shown where they cannot be parsed."""
    target = os.path.realpath(link)
    if target.endswith(SUFFIXES):
        return False
    root = _repository(top)
    return root is not None and not target.startswith(f"{root.rstrip(os.sep)}{os.sep}")


@lru_cache(maxsize=256)
def _repository(folder: str) -> str | None:
    """As ``checkout_of``, without links."""
    found = checkout_of(folder)
    return None if found is None else os.path.realpath(found)


def excluded_by_hand(path: str, is_folder: bool, settings: Settings) -> bool:
    """Whether ``force-exclude`` leaves out a path named by hand: it, or a folder between it and the configuration's root."""
    real = os.path.abspath(path)
    above: list[tuple[str, bool]] = [(real, is_folder)]
    while (parent := os.path.dirname(above[-1][0])) != above[-1][0] and f"{parent}/".startswith(f"{settings.root}/"):
        if parent == settings.root:
            break
        above.append((parent, True))
    if any(_excluded(step, os.path.basename(step), settings) for step, _ in above):
        return True
    if not settings.respect_gitignore:
        return False
    return any(ignored(step, folder, ignore_files(os.path.dirname(step))) for step, folder in above)


def _excluded(real: str, name: str, settings: Settings) -> bool:
    names, pattern = _exclusions(settings.exclude + settings.extend_exclude, settings.root)
    return name in names or (pattern is not None and (pattern.match(name) or pattern.match(real)))


@lru_cache(maxsize=256)
def _exclusions(globs: tuple[str, ...], root: str) -> tuple[frozenset[str], Globs | None]:
    """Exclude globs as plain names, and one pattern for the others.

    A glob without a slash is matched against names; one with a slash against the path from the root of the configuration.
    """
    plain = frozenset(glob for glob in globs if not set("/*?[\\") & set(glob))
    parts = []
    for glob in (glob.rstrip("/") for glob in globs if glob not in plain):
        relative = "/" in glob and not glob.startswith("/")
        above = literally(root.rstrip("/") + "/") if relative else []
        parts.append([*above, *pieces_of(glob.removeprefix("./"))])
    return plain, Globs(parts) if parts else None
