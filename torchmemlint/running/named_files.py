"""Files that were named one by one, answered from the last run over a folder that holds them.

pre-commit, an editor and a user name files; who calls their functions stands elsewhere. A run over the folder has all of that in
the cache: where few files changed since, it is brought up to date, and the answer is the folder's. Else the search around the
files (``project.neighbours``) has to do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from torchmemlint.project.discover import discover
from torchmemlint.running.checking import check_again
from torchmemlint.running.scanning import scan_all
from torchmemlint.running.state import Run
from torchmemlint.workers import ScanAll

if TYPE_CHECKING:
    from torchmemlint.project.config import Configuration


def from_folder(run: Run, configuration: Configuration) -> Run | None:
    """The run over a folder that these named files are a part of, checked, which reports only them; None where there was none in
    this place with these settings, or too much changed since."""
    cache = run.means.cache
    if cache is None or not run.by_hand or not run.files or run.texts:
        return None

    for given in cache.folders():
        files = discover(given, configuration).files
        settings = {file.path: file.settings for file in files}
        if all(settings.get(file.path) == file.settings for file in run.files):
            whole = replace(
                run, files=files, by_hand=False, given=given, reported=frozenset(run.settings), scanned={}, checked={}
            )
            if check_again(whole):
                _parse_named(run, whole)
                return whole
    return None


def _parse_named(run: Run, whole: Run) -> None:
    """A file that was named is parsed whatever is in it: one without a word of torch that has an error, too."""
    paths = [file.path for file in run.files]
    for one in scan_all(run, ScanAll(run.settings, {}, True, run.means.cache), paths):
        if one.failed is not None:
            whole.checked.setdefault(one.path, one.failed)
        if one.skipped:
            whole.scanned[one.path] = one
