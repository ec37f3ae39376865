"""What an editor has open → its findings, its text after a fix.

Nothing here knows the protocol.

A file is checked as ``torchmemlint FILE`` checks it: in the project around it, here with what is open in the place of what is on
disk. So the editor says what the command says.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event

from torchmemlint.errors import Cancelled, SourceError
from torchmemlint.findings import Finding
from torchmemlint.fixes import apply_fixes
from torchmemlint.fixes.comments import add_comments
from torchmemlint.incremental.functions import FunctionResults
from torchmemlint.project.config import CommandLine, Configuration
from torchmemlint.project.discover import excluded_by_hand
from torchmemlint.project.settings import Settings
from torchmemlint.rules import ALL_RULES
from torchmemlint.run import check_source, fix_source
from torchmemlint.source import normal
from torchmemlint.source.file import SourceFile, source_from_text
from torchmemlint.workers import cannot_parse

MOST_FILES = 8
"""Files of which the results of functions are kept."""
_memories: dict[str, tuple[Settings, FunctionResults]] = {}
_from_nothing: set[str] = set()
"""Files that were checked without such results since the last ``collect``."""

Options = Mapping[str, object]
"""Settings by their configuration key, which go before those of configuration files, as the command line's do."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A buffer as it was checked; ``source`` None where its text is none that a file can hold."""

    text: str
    source: SourceFile | None
    settings: Settings
    findings: tuple[Finding, ...]


def check(
    path: str,
    text: str,
    buffers: Mapping[str, str],
    options: Options,
    report_early: Callable[[Sequence[Finding]], None] | None = None,
    cancel: Event | None = None,
) -> Checked:
    """Checks the text of one file; ``buffers`` are the texts of all that is open, by absolute path. ``report_early`` hears what is
    found once the functions whose text changed were run; those that depend on them follow, until ``cancel`` is set: then it raises
    Cancelled.

    A file that the configuration or .gitignore leaves out has no findings. Raises ConfigError and BaselineError.
    """
    if cancel is not None and cancel.is_set():
        raise Cancelled
    settings = Configuration(CommandLine(options)).for_file(path)
    if excluded_by_hand(path, False, settings):
        return Checked(text, None, settings, ())
    try:
        source = source_from_text(path, text)
    except SourceError as error:
        return Checked(text, None, settings, cannot_parse(path, error, settings, text).findings)
    memory = _memory_of(path, settings)
    first = None if report_early is None else lambda outcome: report_early(outcome.findings)
    gc.disable()  # it would look at all that is kept, for longer than most checks take: see ``collect``
    try:
        outcome = check_source(source, settings, _sources(path, buffers), memory=memory, report_early=first, cancel=cancel)
    finally:
        memory.end()
        gc.enable()
    return Checked(text, source, settings, outcome.findings)


def _memory_of(path: str, settings: Settings) -> FunctionResults:
    """The results of the functions of a file, when it was last checked with these settings."""
    known = _memories.pop(path, None)
    if known is not None and known[0] == settings:
        memory = known[1]
    else:
        memory = FunctionResults()
        _from_nothing.add(path)
    _memories[path] = settings, memory
    while len(_memories) > MOST_FILES:
        del _memories[next(iter(_memories))]
    return memory


def collect() -> None:
    """Frees what checks left in cycles, once their findings are shown. What a check from nothing keeps is not looked at again until the
    next one."""
    if _from_nothing:
        gc.unfreeze()
    gc.collect()
    if _from_nothing:
        _from_nothing.clear()
        gc.freeze()


def forget(path: str | None = None) -> None:
    """Forgets results of functions, of all files or of one."""
    if path is None:
        _memories.clear()
    else:
        _memories.pop(path, None)


def _sources(but: str, buffers: Mapping[str, str]) -> dict[str, SourceFile]:
    sources = {}
    for path, text in buffers.items():
        if path != but:
            try:
                sources[path] = source_from_text(path, text)
            except SourceError:  # then what is on disk has to serve
                continue
    return sources


def fixed_text(checked: Checked, finding: Finding) -> str | None:
    """The code after one finding's fix, safe or not; None where it has none that can be written."""
    if checked.source is None or finding.fix is None:
        return None
    result = apply_fixes(checked.source, [_in_module(checked.source, finding)], unsafe=True)
    return result.text if result.applied else None


def ignored(checked: Checked, finding: Finding) -> str | None:
    """The code with a comment that switches one finding off."""
    if checked.source is None:
        return None
    commented = add_comments(checked.source, [finding], "", {rule.name for rule in ALL_RULES}, noqa=False)
    return commented.text if commented.done else None


def all_fixed(checked: Checked, buffers: Mapping[str, str]) -> str | None:
    """The code after every safe fix; None where there is none."""
    if checked.source is None:
        return None
    path = checked.source.path
    settings = replace(checked.settings, unsafe_fixes=False)
    return fix_source(checked.source, settings, _sources(path, buffers)).after.get(path)


def _in_module(source: SourceFile, finding: Finding) -> Finding:
    return finding if source.cells is None or finding.cell is None else source.cells.in_module(finding)


def open_path(path: str) -> str:
    """A path as findings have it."""
    return normal(path).replace(os.sep, "/")
