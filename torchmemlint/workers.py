"""What is done to one file at a time, in this process or in several.

Nothing here raises: a failure is a result.

    scan     bytes → Scanned: facts, or why there are none
    inspect  one file of a project → Checked

All take what all files share as their first argument; ``pool`` maps them over files.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from torchmemlint.errors import CannotReadError, SourceError, UnreadError
from torchmemlint.files.digest import digest
from torchmemlint.files.quoting import quoted
from torchmemlint.files.reading import MAX_BYTES, MAX_NOTEBOOK_BYTES, read_beginning, reason
from torchmemlint.findings import INTERNAL_ERROR, UNPARSABLE, UNUSED_SUPPRESSION, Confidence, Finding, Position, Severity, Span
from torchmemlint.project.results import Checked, Scanned
from torchmemlint.project.settings import Settings
from torchmemlint.screen import imported_names, may_fire, torch_related
from torchmemlint.source import is_notebook
from torchmemlint.source.lines import Lines

if TYPE_CHECKING:
    from torchmemlint.analysis import Analysis, Memory
    from torchmemlint.index.facts import ModuleFacts
    from torchmemlint.index.project import Project
    from torchmemlint.index.query_log import Query
    from torchmemlint.semantics.roots import Runs
    from torchmemlint.semantics.state import World
    from torchmemlint.source.file import SourceFile
    from torchmemlint.source.tolerant import Reading

    class FunctionMemory(Memory, Protocol):
        """Results of functions from an earlier check (see ``incremental.functions.FunctionResults``)."""

        report_early: Callable[[Checked], None] | None

        def begin(self, world: World, texts: Mapping[str, SourceFile], /) -> None: ...


class FactsStore(Protocol):
    """Facts of known contents (see ``incremental.cache.Cache``)."""

    def facts(self, content: str, path: str, /) -> tuple[ModuleFacts, str, Mapping[str, str]] | None: ...
    def store_facts(self, content: str, facts: ModuleFacts, sources: Mapping[str, str], /) -> str: ...


class Recorder(Protocol):
    """Takes down what findings rest on (see ``incremental.query_results.QueryResults``)."""

    def saw_text(self, path: str, content: str, /) -> None: ...
    def recorded(self, queries: Iterable[Query], /) -> tuple[tuple[tuple[str, str], ...], bytes]: ...
    def without_storing(self) -> Recorder: ...


class Watch(Protocol):
    """Takes the time of what is done (see ``running.profile.Profile``)."""

    def make_runs(self, project: Project, settings: Settings, read: Callable[[str], str], /) -> Runs: ...
    def ask(self, module: Any, event: object, flow: object, /) -> Iterable[Any]: ...


@dataclass(frozen=True, slots=True)
class ScanAll:
    """How files are scanned: ``texts`` stand in for files that are not (or no longer) as on disk; ``parse_all`` gives facts of
    files that the screen would stop; ``cache`` has facts of known contents."""

    settings: Mapping[str, Settings]
    texts: Mapping[str, SourceFile]
    parse_all: bool = False
    cache: FactsStore | None = None


@dataclass(frozen=True, slots=True)
class ScanAround:
    """Scans one file, or the text that stands in for it, that is not checked but stands around those that are."""

    cache: FactsStore | None = None

    def __call__(self, path: str, text: SourceFile | None = None) -> Scanned:
        texts = {} if text is None else {path: text}
        return scan(ScanAll({path: Settings()}, texts, parse_all=True, cache=self.cache), path)


@dataclass(frozen=True, slots=True)
class InspectAll:
    """How files are inspected: the linked project, each file's settings, the texts that stand in for files, and whether
    suppressing comments are obeyed. ``results`` records what findings rest on, for a cache, and ``store`` puts them there;
    ``watch`` takes the time of all that is done, in this process; ``memory`` has results of functions from an earlier check."""

    project: Project
    settings: Mapping[str, Settings]
    texts: Mapping[str, SourceFile]
    comments: bool = True
    results: Recorder | None = None
    store: Callable[[Checked], Checked] | None = None
    watch: Watch | None = None
    memory: FunctionMemory | None = None
    engines: dict[Settings, Runs] = field(default_factory=dict)
    """One engine a process (and kind of settings), made when the first file is inspected: what it learns serves the next."""

    def source(self, path: str) -> SourceFile:
        """Any file of the project. Raises SourceError, and UnreadError where it can no longer be read."""
        if path in self.texts:
            return self.texts[path]
        from torchmemlint.source.file import decode_source

        try:
            data = read_bytes(path)
        except SourceError as error:
            raise UnreadError(f"{quoted(path)} {error}") from error
        if self.results is not None:
            self.results.saw_text(path, digest(data))
        return decode_source(path, data)

    def text(self, path: str) -> str:
        """The text of any file of the project. Raises as ``source``."""
        return self.source(path).text


def scan(shared: ScanAll, path: str) -> Scanned:
    """Reads one file and takes its facts, as far as the screen lets it through."""
    source = shared.texts.get(path)
    content = ""
    try:
        data = source.encode(source.text) if source else read_bytes(path)
        content = digest(data) if shared.cache is not None else ""
        if len(data) > _limit(path):
            return Scanned(path, skipped=f"skipped: larger than {_limit(path) // 1_000_000} MB", digest=content)
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return Scanned(path, skipped="skipped: UTF-16, which Python does not read", digest=content)
        if not shared.parse_all and not torch_related(data):
            return Scanned(path, imports=imported_names(data), digest=content)
        settings = shared.settings[path]
        known = shared.cache.facts(content, path) if shared.cache is not None and not is_notebook(path) else None
        if known is not None and not known[0].recovered:  # then what could not be read is reported again
            facts, shape, sources = known
            names = imported_names(data)
            fires = may_fire(data, settings.codes, settings.alone and not facts.imports)
            return Scanned(path, facts, fires, names, None, "", content, shape, sources)
        from torchmemlint.index.module_facts import module_facts
        from torchmemlint.index.parse import is_dense, most_tokens
        from torchmemlint.source.file import decode_source

        source = source or decode_source(path, data)
        if source.notebook is not None and source.notebook.other:
            return Scanned(path, skipped=f"skipped: {source.notebook.other}", digest=content)
        if len(source.code) > MAX_BYTES:
            return Scanned(path, skipped=f"skipped: more than {MAX_BYTES // 1_000_000} MB of code", digest=content)
        if is_dense(source.text):
            return Scanned(
                path, skipped=f"skipped: more than {most_tokens(len(source.text)):,} words and signs", digest=content
            )
        facts = module_facts(path, source.text)
        reading = source.reading(facts.recovered)
        shape, sources = "", {}
        if shared.cache is not None:
            from torchmemlint.index.sources import sources_of

            sources = sources_of(facts, reading.text if reading is not None else source.text)
            shape = shared.cache.store_facts(content, facts, sources)
        broken = _broken(path, source, reading, settings)
        names = imported_names(source.code)
        fires = may_fire(source.code, settings.codes, settings.alone and not facts.imports)
        return Scanned(path, facts, fires, names, broken, "", content, shape, sources)
    except SourceError as error:
        failed = cannot_parse(path, error, shared.settings[path], source.text if source else "")
        return Scanned(path, failed=failed, digest=content)
    except Exception as error:  # whatever a file does to us, the others are still checked
        return Scanned(path, failed=crashed(path, _traceback(error)))


def inspect(shared: InspectAll, path: str) -> Checked:
    """Finds the mistakes of one file of a project."""
    settings = shared.settings[path]
    try:
        from torchmemlint.analysis import analyze_module, make_runs

        if settings not in shared.engines:
            shared.project.note_queries(shared.results is not None or shared.memory is not None)
            make = make_runs if shared.watch is None else shared.watch.make_runs
            shared.engines[settings] = make(shared.project, settings, shared.text)
        ask = None if shared.watch is None else shared.watch.ask
        if shared.memory is not None:
            shared.memory.begin(shared.engines[settings].world, shared.texts)
        engine, report = shared.engines[settings], shared.memory.report_early if shared.memory is not None else None
        first = None if report is None else lambda analysis: report(_checked(shared, path, analysis))
        checked = _checked(shared, path, analyze_module(shared.project, path, settings, engine, ask, shared.memory, first))
        return checked if shared.store is None else shared.store(checked)
    except UnreadError as error:
        return cannot_parse(path, CannotReadError(f"was not checked: {error}"), settings, "")
    except SourceError as error:
        return cannot_parse(path, error, settings, "")
    except Exception as error:
        return crashed(path, _traceback(error))


def _checked(shared: InspectAll, path: str, analysis: Analysis) -> Checked:
    """What an analysis found, less what comments suppress."""
    from torchmemlint.suppress import apply

    settings = shared.settings[path]
    findings = [*analysis.findings, *(_internal_error(path, crash) for crash in analysis.crashes)]
    kept = []
    if findings or UNUSED_SUPPRESSION in settings.codes:
        source = shared.source(path)
        reading = source.reading(shared.project.module(path).recovered)
        whole = not (analysis.notes or analysis.crashes) and (reading is None or reading.is_whole)
        text = source.text if reading is None else reading.text
        comments = shared.comments
        kept = apply(findings, text, settings, path, comments=comments, judge_comments=whole, also=analysis.also)
        if reading is not None:
            kept = [reading.relocated(finding) for finding in kept]
    queries, codes = shared.results.recorded(analysis.queries) if shared.results is not None else ((), b"")
    return Checked(path, tuple(kept), tuple(analysis.notes), tuple(analysis.crashes), queries, codes)


def _broken(path: str, source: SourceFile, reading: Reading | None, settings: Settings) -> Checked | None:
    """TML000 for what does not parse, in a notebook for each cell; the rest is checked without it."""
    if source.notebook is None:
        return None if reading is None else _read_in_part(path, reading, settings)
    broken = [cannot_parse(path, error, settings, text, cell) for cell, text, error in source.notebook.broken]
    read = [(cell.number, cell.reading) for cell in source.notebook.cells if cell.reading is not None]
    of_older = [(cell, one) for cell, one in read if one.is_of_older_python]  # reported once
    read = [(cell, one) for cell, one in read if not one.is_of_older_python] + of_older[:1]
    broken += [_read_in_part(path, one, settings, cell) for cell, one in read]
    return Checked(path, tuple(finding for one in broken for finding in one.findings)) if broken else None


def _read_in_part(path: str, reading: Reading, settings: Settings, cell: int | None = None) -> Checked:
    """TML000 for a file (or a cell) that was read though it does not parse; a note where an older Python runs it."""
    error = SourceError(reading.message, reading.troubles[0].row, reading.troubles[0].column)
    severity = Severity.NOTE if reading.is_of_older_python else Severity.ERROR
    return cannot_parse(path, error, settings, reading.text, cell, severity, given=reading.given)


def inspect_comments(shared: ScanAll, path: str) -> Checked:
    """Judges the suppression comments (TML002) of a file in which no other rule can report."""
    settings = shared.settings[path]
    try:
        from torchmemlint.suppress import apply

        text = (shared.texts.get(path) or read(path)).text
        return Checked(path, tuple(apply([], text, settings, path)))
    except SourceError as error:
        return cannot_parse(path, error, settings, "")
    except Exception as error:
        return crashed(path, _traceback(error))


def read(path: str) -> SourceFile:
    """A file as text. Raises SourceError."""
    from torchmemlint.source.file import decode_source

    return decode_source(path, read_bytes(path))


def read_bytes(path: str) -> bytes:
    """At most one byte more than the limit of its kind."""
    try:
        return read_beginning(path, _limit(path) + 1)
    except OSError as error:
        raise CannotReadError(reason(error)) from error


def _limit(path: str) -> int:
    return MAX_NOTEBOOK_BYTES if is_notebook(path) else MAX_BYTES


def cannot_parse(
    path: str,
    error: SourceError,
    settings: Settings,
    text: str,
    cell: int | None = None,
    severity: Severity = Severity.ERROR,
    given: str = "",
) -> Checked:
    """TML000, unless it is ignored for this file or by a comment in ``text``, what could be read of it (or of the cell); ``given`` is
    what stands there, where that is another text."""
    from torchmemlint.suppress import apply

    at = _in_line(given or text, Position(error.row, error.column))
    finding = _about_file(UNPARSABLE, "unparsable-file", path, error.message.removeprefix("is "), at)
    finding = replace(finding, cell=cell, severity=severity)
    if _at_end_of_line(given or text, at.row, at.column):
        finding = replace(finding, span=Span(finding.span.start, finding.span.start))  # there is no character to point to
    wanted = [finding] if finding.code in settings.codes else []
    unread = error.message if isinstance(error, CannotReadError) else ""
    return Checked(path, tuple(apply(wanted, text, settings, path, judge_comments=False)), unread=unread)


def _in_line(text: str, at: Position) -> Position:
    """A position no further than behind the last character of its line: Python counts some errors from the first of several lines that
    backslashes join."""
    lines = Lines.of(text)
    return replace(at, column=min(at.column, len(lines.row(at.row)) + 1)) if text and at.row <= len(lines) else at


def _at_end_of_line(text: str, row: int, column: int) -> bool:
    """Whether a position of a text is behind the last character of a line that another follows."""
    lines = Lines.of(text)
    return row < len(lines) and column > len(lines.row(row))


def crashed(path: str, traceback: str) -> Checked:
    return Checked(path, (_internal_error(path, traceback),), crashes=(traceback,))


def _internal_error(path: str, traceback: str) -> Finding:
    last = traceback.rstrip().rpartition("\n")[2]
    return _about_file(INTERNAL_ERROR, "internal-error", path, f"internal error, please report: {last}", Position(1, 1))


def _about_file(code: str, name: str, path: str, message: str, at: Position) -> Finding:
    span = Span(at, Position(at.row, at.column + 1))
    return Finding(
        code, name, Severity.ERROR, Confidence.HIGH, message, path, span, noqa_rows=frozenset({at.row}), noqa_row=at.row
    )


def lost_scan(path: str, why: str) -> Scanned:
    return Scanned(path, failed=crashed(path, why))


def _traceback(error: Exception) -> str:
    import traceback

    return "".join(traceback.format_exception(error))
