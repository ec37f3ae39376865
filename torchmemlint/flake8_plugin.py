"""The flake8 plugin: one file in, findings out.

flake8 keeps what is its own: it applies ``# noqa`` (to the reported row only) and its ``select`` and ``ignore``. A rule that is
off by default runs when ``[tool.torchmemlint]`` turns it on, or when flake8's ``select`` or ``extend-select`` names it by more
than ``TML``; where it selects none of ours, nothing is read. All files are checked in one run, before flake8
starts its processes, and each is answered from it. Not by ``extend_default_ignore``: flake8 drops that list as soon as a project sets ``ignore`` of its own.
"""

from __future__ import annotations

import ast
import codecs
import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

from torchmemlint import __version__

if TYPE_CHECKING:
    from argparse import Namespace

    from torchmemlint.findings import Finding
    from torchmemlint.project.config import Configuration
    from torchmemlint.run import Means

    # Row (1-based), column (0-based, code points), "CODE message", the plugin.
    Report = tuple[int, int, str, type["Checker"]]

_PREFIX = "TML"


class Checker:
    """What flake8 makes for each file; the attributes and parameter names are those of its plugin interface."""

    name = "torchmemlint"
    version = __version__
    _asked_for: ClassVar[tuple[str, ...]] = ()
    _selected: ClassVar[bool] = True
    _configuration: ClassVar[Configuration | None] = None
    _means: ClassVar[Means | None] = None
    _known: ClassVar[dict[str, list[Finding]]] = {}

    def __init__(self, tree: ast.AST, filename: str, lines: Sequence[str]) -> None:
        self._filename = filename
        self._lines = lines

    @classmethod
    def parse_options(cls, options: Namespace) -> None:
        """Keeps the codes that flake8 was asked for. The configuration is read later: an error in it is a report."""
        cls._asked_for = (*(options.select or ()), *(options.extend_select or ()))
        cls._selected = _selects_any(options)
        cls._configuration = cls._means = None
        cls._known = {}
        if cls._selected:
            # A failure is reported for each file, where flake8 expects reports.
            with suppress(Exception):
                cls._known = cls._whole(list(getattr(options, "filenames", None) or ["."]), _jobs(options))

    def run(self) -> Iterator[Report]:
        if not self._selected:
            return
        try:
            yield from list(self._reports())
        except Exception as error:  # flake8 would end its whole run with a traceback
            from torchmemlint.errors import ConfigError
            from torchmemlint.files.quoting import printable

            kind = (
                "configuration" if isinstance(error, ConfigError) else f"internal error, please report: {type(error).__name__}"
            )
            yield 1, 0, printable(" ".join(f"TML001 {kind}: {error}".split())), type(self)

    def _reports(self) -> Iterator[Report]:
        from torchmemlint.files.quoting import printable
        from torchmemlint.run import check_text
        from torchmemlint.source import normal

        text = "".join(self._lines)
        findings = self._known.get(normal(self._filename).replace(os.sep, "/"))
        if findings is None or not _is_content_of(text, self._filename):
            settings = self._settings().for_file(self._filename)
            findings = check_text(text, self._filename, settings, comments=False, means=self._shared())
        for finding in findings:
            at = finding.span.start
            yield at.row, at.column - 1, f"{finding.code} {printable(finding.message)}", type(self)

    @classmethod
    def _whole(cls, names: Sequence[str], jobs: int | None) -> dict[str, list[Finding]]:
        """The findings of each file that flake8 was given, or that is in a folder which it was given: of one run, made before flake8
        starts its processes."""
        if "-" in names:
            return {}
        from torchmemlint.run import check_paths

        # Little of what a run makes is garbage. flake8 then would look through what is left of it again and again.
        thresholds = gc.get_threshold()
        gc.set_threshold(50_000, 20, 100)
        try:
            outcome = check_paths(names, cls._settings(), jobs, comments=False, means=cls._shared())
        finally:
            gc.set_threshold(*thresholds)
            gc.freeze()
        known: dict[str, list[Finding]] = {path: [] for path in outcome.settings}
        for finding in outcome.findings:
            known[finding.path].append(finding)
        return known

    @classmethod
    def _shared(cls) -> Means:
        if cls._means is None:
            from torchmemlint.incremental.cache import cache_for
            from torchmemlint.run import Means

            cls._means = Means(cache_for(cls._settings()))
        return cls._means

    @classmethod
    def _settings(cls) -> Configuration:
        if cls._configuration is None:
            from torchmemlint.project.config import CommandLine, Configuration
            from torchmemlint.rules import ALL_RULES

            named = [word for word in cls._asked_for if any(len(word) > 3 and rule.code.startswith(word) for rule in ALL_RULES)]
            cls._configuration = Configuration(CommandLine({"extend-select": named}))
        return cls._configuration


def _jobs(options: Namespace) -> int | None:
    """The number of processes that flake8 was asked for; None where it decides itself."""
    jobs = getattr(getattr(options, "jobs", None), "n_jobs", 0)
    return jobs if isinstance(jobs, int) and jobs > 0 else None


def _is_content_of(text: str, filename: str) -> bool:
    """Whether a file is what flake8 read: in any encoding, and with any ends of lines, which flake8 makes those of Unix."""
    from torchmemlint.errors import SourceError
    from torchmemlint.source import is_notebook
    from torchmemlint.workers import read_bytes

    try:
        data = read_bytes(filename)
        if text.encode() == data.removeprefix(codecs.BOM_UTF8):
            return True
        from torchmemlint.source.file import decode_source

        return not is_notebook(filename) and _in_unix_lines(decode_source(filename, data).text) == _in_unix_lines(text)
    except (SourceError, UnicodeError):
        return False


def _in_unix_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _selects_any(options: Namespace) -> bool:
    """Whether flake8 prints any of our codes, as it decides itself; True where this flake8 does not say.

    It decides by the longest prefix that names a code: what it is asked to select, or else all of ours. So no list of our rules, whose
    import takes a tenth of flake8's own start, is needed."""
    try:
        from flake8.style_guide import Decision, DecisionEngine

        engine = DecisionEngine(options)
        named = {word for word in engine.selected if word.startswith(_PREFIX)}
        return any(engine.decision_for(code) is Decision.Selected for code in sorted({_PREFIX, *named}))
    except (ImportError, AttributeError, TypeError):
        return True
