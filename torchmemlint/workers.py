"""What is done to one file at a time, in this process or in several. Nothing here raises: a failure is a result.

    scan     bytes → Scanned: facts, or why there are none
    inspect  one file of a project → Checked

All take what all files share as their first argument; ``pool`` maps them over files.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from torchmemlint.errors import SourceError
from torchmemlint.files.digest import digest
from torchmemlint.files.quoting import quoted
from torchmemlint.files.reading import MAX_BYTES, MAX_NOTEBOOK_BYTES, read_beginning, reason
from torchmemlint.findings import INTERNAL_ERROR, UNPARSABLE, UNUSED_SUPPRESSION, Confidence, Finding, Position, Severity, Span
from torchmemlint.project.settings import Settings
from torchmemlint.screen import imported_names, may_fire, torch_related
from torchmemlint.source import is_notebook

if TYPE_CHECKING:
    from torchmemlint.incremental.cache import Cache
    from torchmemlint.incremental.functions import FunctionResults
    from torchmemlint.incremental.query_results import QueryResults
    from torchmemlint.index.facts import ModuleFacts
    from torchmemlint.index.project import Project
    from torchmemlint.running.profile import Profile
    from torchmemlint.semantics.runs import Runs
    from torchmemlint.source.file import SourceFile
    from torchmemlint.source.tolerant import Reading


@dataclass(frozen=True, slots=True)
class Checked:
    """One file's findings after suppression; ``notes`` are for ``-v``, ``crashes`` are tracebacks of ours."""

    path: str
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    crashes: tuple[str, ...] = ()
    queries: tuple[tuple[str, str], ...] = ()
    """The queries that the rest depends on, with their fingerprints: only under a cache, until they are stored."""
    dependencies: bytes = b""
    """The codes of their dependencies, in their order, in ``segment`` (``incremental.dependency_graph``), packed by zlib; nothing
    where that is unknown."""
    segment: str = ""
    entry: str = ""
    """Digest of what the cache stores of this."""
    reads: tuple[tuple[str, str], ...] = ()
    """Then, the other files whose texts it rests on, with the function there; "" for all of the text."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """What is known of a file before the project is.

    facts      None when the file was screened out, skipped or cannot be parsed
    candidate  a rule may fire here, so the file is inspected
    imports    for a file that is not torch-related: the names that it imports (``screen.imported_names``)
    failed     TML000 for a file (or for cells of a notebook) that cannot be read or parsed, TML001 where we failed
    skipped    why a readable file is not checked, "" when it is
    digest     of the content, ``shape`` of the shape of the facts, ``sources`` of the functions' texts: only under a cache
    """

    path: str
    facts: ModuleFacts | None = None
    candidate: bool = False
    imports: frozenset[bytes] = frozenset()
    failed: Checked | None = None
    skipped: str = ""
    digest: str = ""
    shape: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def too_large(self) -> bool:
        """Whether it is skipped for its size."""
        return self.skipped.startswith(("skipped: larger", "skipped: more"))


@dataclass(frozen=True, slots=True)
class ScanAll:
    """How files are scanned: ``texts`` stand in for files that are not (or no longer) as on disk; ``parse_all`` gives facts of
    files that the screen would stop; ``cache`` has facts of known contents."""

    settings: Mapping[str, Settings]
    texts: Mapping[str, SourceFile]
    parse_all: bool = False
    cache: Cache | None = None


@dataclass(frozen=True, slots=True)
class ScanAround:
    """Scans one file, or the text that stands in for it, that is not checked but stands around those that are."""

    cache: Cache | None = None

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
    results: QueryResults | None = None
    store: Callable[[Checked], Checked] | None = None
    watch: Profile | None = None
    memory: FunctionResults | None = None
    engines: dict[Settings, Runs] = field(default_factory=dict)
    """One engine a process (and kind of settings), made when the first file is inspected: what it learns serves the next."""

    def source(self, path: str) -> SourceFile:
        """Any file of the project. Raises SourceError."""
        if path in self.texts:
            return self.texts[path]
        from torchmemlint.source.file import decode_source

        data = read_bytes(path)
        if self.results is not None:
            self.results.saw_text(path, digest(data))
        return decode_source(path, data)

    def text(self, path: str) -> str:
        """The text of any file of the project. Raises SourceError."""
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
        if not shared.parse_all and not torch_related(data):
            failed = None
            if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                failed = Checked(path, (), (f"{quoted(path)}: skipped: UTF-16, which Python does not read",))
            return Scanned(path, imports=imported_names(data), failed=failed, digest=content)
        settings = shared.settings[path]
        known = shared.cache.facts(content, path) if shared.cache is not None and not is_notebook(path) else None
        if known is not None and not known[0].repaired:  # then what could not be read is told again
            facts, shape, sources = known
            names = imported_names(data)
            return Scanned(path, facts, may_fire(data, settings.codes), names, None, "", content, shape, sources)
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
        reading = source.reading(facts.repaired)
        shape, sources = "", {}
        if shared.cache is not None:
            from torchmemlint.index.sources import sources_of

            sources = sources_of(facts, reading.text if reading is not None else source.text)
            shape = shared.cache.store_facts(content, facts, sources)
        broken = _broken(path, source, reading, settings)
        names = imported_names(source.code)
        return Scanned(path, facts, may_fire(source.code, settings.codes), names, broken, "", content, shape, sources)
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
        from torchmemlint.suppress import apply

        if settings not in shared.engines:
            shared.project.query_log.records = shared.results is not None or shared.memory is not None
            make = make_runs if shared.watch is None else shared.watch.make_runs
            shared.engines[settings] = make(shared.project, settings, shared.text)
        ask = None if shared.watch is None else shared.watch.ask
        if shared.memory is not None:
            shared.memory.begin(shared.project, shared.texts)
        analysis = analyze_module(shared.project, path, settings, shared.engines[settings], ask, shared.memory)
        findings = [*analysis.findings, *(_internal_error(path, crash) for crash in analysis.crashes)]
        kept = []
        if findings or UNUSED_SUPPRESSION in settings.codes:
            source = shared.source(path)
            reading = source.reading(shared.project.module(path).repaired)
            whole = not (analysis.notes or analysis.crashes) and (reading is None or reading.is_whole)
            text = source.text if reading is None else reading.text
            comments = shared.comments
            kept = apply(findings, text, settings, path, comments=comments, judge_comments=whole, also=analysis.also)
            if reading is not None:
                kept = [reading.told(finding) for finding in kept]
        queries, codes = shared.results.recorded(analysis.queries) if shared.results is not None else ((), b"")
        checked = Checked(path, tuple(kept), tuple(analysis.notes), tuple(analysis.crashes), queries, codes)
        return checked if shared.store is None else shared.store(checked)
    except SourceError as error:  # it was readable when it was scanned
        return cannot_parse(path, error, settings, "")
    except Exception as error:
        return crashed(path, _traceback(error))


def _broken(path: str, source: SourceFile, reading: Reading | None, settings: Settings) -> Checked | None:
    """TML000 for what does not parse, in a notebook for each cell; the rest is checked without it."""
    if source.notebook is None:
        return None if reading is None else _read_in_part(path, reading, settings)
    told = [cannot_parse(path, error, settings, text, cell) for cell, text, error in source.notebook.broken]
    read = [(cell.number, cell.reading) for cell in source.notebook.cells if cell.reading is not None]
    of_older = [(cell, one) for cell, one in read if one.is_of_older_python]  # told once
    read = [(cell, one) for cell, one in read if not one.is_of_older_python] + of_older[:1]
    told += [_read_in_part(path, one, settings, cell) for cell, one in read]
    return Checked(path, tuple(finding for one in told for finding in one.findings)) if told else None


def _read_in_part(path: str, reading: Reading, settings: Settings, cell: int | None = None) -> Checked:
    """TML000 for a file (or a cell) that was read though it does not parse; a note where an older Python runs it."""
    error = SourceError(reading.message, reading.troubles[0].row, reading.troubles[0].column)
    severity = Severity.NOTE if reading.is_of_older_python else Severity.ERROR
    return cannot_parse(path, error, settings, reading.text, cell, severity)


def inspect_comments(shared: ScanAll, path: str) -> Checked:
    """Judges the suppression comments (TML002) of a file in which no other rule can speak."""
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
        raise SourceError(reason(error)) from error


def _limit(path: str) -> int:
    return MAX_NOTEBOOK_BYTES if is_notebook(path) else MAX_BYTES


def cannot_parse(
    path: str,
    error: SourceError,
    settings: Settings,
    text: str,
    cell: int | None = None,
    severity: Severity = Severity.ERROR,
) -> Checked:
    """TML000, unless it is ignored for this file or by a comment in what could be read of it (or of the cell)."""
    from torchmemlint.suppress import apply

    finding = _about_file(
        UNPARSABLE, "unparsable-file", path, error.message.removeprefix("is "), Position(error.row, error.column)
    )
    finding = replace(finding, cell=cell, severity=severity)
    wanted = [finding] if finding.code in settings.codes else []
    return Checked(path, tuple(apply(wanted, text, settings, path, judge_comments=False)))


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
