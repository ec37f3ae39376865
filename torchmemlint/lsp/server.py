"""The protocol: when something is checked, as what findings are sent.

One thread checks, one file at a time, another makes the edits of actions when one is chosen; the event loop only answers. A change waits
until typing stops. What is found in the functions that were edited is shown first; those that depend on them are checked behind that,
until the text changes again.

Features are registered by plain calls and nothing is subclassed, so that this module is type-checked where pygls is not
installed, too.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from lsprotocol import types
from pygls.exceptions import JsonRpcException, PyglsError
from pygls.lsp.server import LanguageServer

from torchmemlint import __version__
from torchmemlint.errors import Cancelled, SourceError, TorchmemlintError
from torchmemlint.files.digest import digest
from torchmemlint.findings import UNUSED_SUPPRESSION, Finding, FlowStep, Position, Safety, Severity, Span
from torchmemlint.lsp import buffers
from torchmemlint.lsp.addresses import file_of, path_of
from torchmemlint.lsp.buffers import Checked
from torchmemlint.lsp.places import Place, Places, edits
from torchmemlint.project import neighbours
from torchmemlint.rules import ALL_RULES, page, page_file
from torchmemlint.running.fixing import is_fixable
from torchmemlint.source.notebook import read_notebook
from torchmemlint.workers import read

SOURCE = "torchmemlint"
FIX_ALL = "source.fixAll.torchmemlint"
CLIENT_SECONDS = 2
"""How often the server looks whether the editor is still there."""
DEBOUNCE_SECONDS = 0.3
"""Without a keystroke for so long, a changed text is checked."""

_SEVERITY = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.NOTE: types.DiagnosticSeverity.Information,
}
_WATCHED = ("**/*.{py,ipynb}", "**/pyproject.toml", "**/torchmemlint.toml", "**/.torchmemlint-baseline.json", "**/.gitignore")
_WORD = re.compile(r"[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class _Document:
    """A file, or a notebook, that is open. ``cells`` are the (number, URI, text) of a notebook's cells, () for a file."""

    uri: str
    path: str
    text: str
    version: int | None
    cells: tuple[tuple[int, str, str], ...] = ()

    @property
    def fingerprint(self) -> str:
        return digest(self.text.encode(errors="surrogatepass"))

    def text_of(self, cell: int | None) -> str:
        """What the user sees where a place of this cell (None for a file) counts its rows."""
        return next((text for number, _, text in self.cells if number == cell), self.text if cell is None else "")

    def uri_of(self, cell: int | None) -> str:
        return next((uri for number, uri, _ in self.cells if number == cell), self.uri)


@dataclass(slots=True)
class _State:
    """What is known while the server runs: results by URI of the document, pending checks, and the editor's settings."""

    results: dict[str, Checked] = field(default_factory=dict)
    waiting: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    running: set[asyncio.Task[None]] = field(default_factory=set)
    cancels: dict[str, threading.Event] = field(default_factory=dict)
    published: dict[str, set[str]] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
    complaint: str = ""


def serve() -> int:
    """Communicates on standard input and output until the editor ends it."""
    logging.getLogger("pygls").setLevel(logging.CRITICAL)  # it logs every broken pipe at exit; ours goes to the editor
    for name in ("SIGTERM", "SIGHUP", "SIGINT"):
        if hasattr(signal, name):  # nothing is being written; an orderly end would wait for the editor's next message
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    make_server().start_io()
    return 0


def _end_with(client: int) -> None:
    """Ends this process some time after the editor's, whose pipe to us another process may hold open. The editor's number may be one
    of another container: then there is no such process from the start."""
    if os.name != "posix" or not _lives(client):
        return

    def watch() -> None:
        while _lives(client):
            time.sleep(CLIENT_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return True


class _Server(LanguageServer):
    def report_server_error(self, error: Exception, source: type[PyglsError] | type[JsonRpcException]) -> None:
        """What cannot be written cannot be reported to the editor either: pygls would try that, fail, and report it in turn, a thousand
        times for each message."""
        if not isinstance(error, OSError):
            super().report_server_error(error, source)


def make_server() -> LanguageServer:
    server = _Server(
        SOURCE,
        __version__,
        # The whole text each time: pygls counts the lines of partial changes by str.splitlines, and so would go wrong below a
        # form feed.
        text_document_sync_kind=types.TextDocumentSyncKind.Full,
        notebook_document_sync=types.NotebookDocumentSyncOptions(
            notebook_selector=[
                types.NotebookDocumentFilterWithCells(cells=[types.NotebookCellLanguage(language="python")]),
            ],
            save=True,
        ),
    )
    _Service(server, _State(), ThreadPoolExecutor(1), ThreadPoolExecutor(1)).register()
    return server


@dataclass(frozen=True, slots=True)
class _Service:
    """The features of one server."""

    server: LanguageServer
    state: _State
    pool: ThreadPoolExecutor
    beside: ThreadPoolExecutor

    def register(self) -> None:
        actions = types.CodeActionOptions([types.CodeActionKind.QuickFix, FIX_ALL], resolve_provider=True)
        pulled = types.DiagnosticOptions(inter_file_dependencies=True, workspace_diagnostics=False, identifier=SOURCE)
        for name, options, handler in (
            (types.INITIALIZE, None, self.initialize),
            (types.INITIALIZED, None, self.initialized),
            (types.TEXT_DOCUMENT_DID_OPEN, None, self.did_open),
            (types.TEXT_DOCUMENT_DID_CHANGE, None, self.did_change),
            (types.TEXT_DOCUMENT_DID_SAVE, None, self.did_save),
            (types.TEXT_DOCUMENT_DID_CLOSE, None, self.did_close),
            (types.NOTEBOOK_DOCUMENT_DID_OPEN, None, self.notebook_did_open),
            (types.NOTEBOOK_DOCUMENT_DID_CHANGE, None, self.notebook_did_change),
            (types.NOTEBOOK_DOCUMENT_DID_SAVE, None, self.did_save),
            (types.NOTEBOOK_DOCUMENT_DID_CLOSE, None, self.notebook_did_close),
            (types.WORKSPACE_DID_CHANGE_WATCHED_FILES, None, self.files_changed),
            (types.TEXT_DOCUMENT_CODE_ACTION, actions, self.code_actions),
            (types.CODE_ACTION_RESOLVE, None, self.resolve),
            (types.TEXT_DOCUMENT_DIAGNOSTIC, pulled, self.pull),
            (types.TEXT_DOCUMENT_HOVER, None, self.hover),
        ):
            self.server.feature(name, options)(partial(handler))  # pygls writes attributes, which a method cannot have

    # --- what is open -----------------------------------------------------------------------------------------------

    def documents(self) -> Iterator[_Document]:
        workspace = self.server.workspace
        in_notebooks = set()
        for notebook in workspace.notebook_documents.values():
            cells = []
            for number, cell in enumerate(notebook.cells, 1):
                in_notebooks.add(cell.document)
                if cell.kind is types.NotebookCellKind.Code:
                    cells.append((number, cell.document, str(workspace.get_text_document(cell.document).source)))
            text = _as_json(len(notebook.cells), cells)
            yield _Document(notebook.uri, path_of(notebook.uri), text, notebook.version, tuple(cells))
        for document in workspace.text_documents.values():
            if document.uri not in in_notebooks:
                yield _Document(document.uri, path_of(document.uri), str(document.source), document.version)

    def document(self, uri: str) -> _Document | None:
        """The open document of a URI, or the notebook of which it is a cell."""
        for document in self.documents():
            if uri == document.uri or any(uri == cell for _, cell, _ in document.cells):
                return document
        return None

    @property
    def encoding(self) -> str:
        return str(getattr(self.server.workspace.position_encoding, "value", self.server.workspace.position_encoding))

    # --- when it is checked -----------------------------------------------------------------------------------------

    def initialize(self, params: types.InitializeParams) -> None:
        folders = [folder.uri for folder in params.workspace_folders or ()] or [params.root_uri or ""]
        root = file_of(folders[0])
        if root and os.path.isdir(root):
            os.chdir(root)  # as for the command: globs and the baseline of a project without configuration are relative to it
        if params.process_id is not None and params.process_id > 0:
            _end_with(params.process_id)
        given = params.initialization_options
        if isinstance(given, dict) and isinstance(given.get("settings", {}), dict):
            self.state.options = dict(given.get("settings", {}))

    def initialized(self, _: types.InitializedParams) -> None:
        files = self.server.client_capabilities.workspace and self.server.client_capabilities.workspace.did_change_watched_files
        if files and files.dynamic_registration:
            watchers = [types.FileSystemWatcher(glob_pattern=glob) for glob in _WATCHED]
            options = types.DidChangeWatchedFilesRegistrationOptions(watchers=watchers)
            wanted = types.Registration("torchmemlint-files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
            self.server.client_register_capability(types.RegistrationParams([wanted]))

    def did_open(self, params: types.DidOpenTextDocumentParams) -> None:
        self.soon(params.text_document.uri, 0)

    def did_change(self, params: types.DidChangeTextDocumentParams) -> None:
        self.cancel(params.text_document.uri)
        self.soon(params.text_document.uri, DEBOUNCE_SECONDS)

    def notebook_did_open(self, params: types.DidOpenNotebookDocumentParams) -> None:
        self.soon(params.notebook_document.uri, 0)

    def notebook_did_change(self, params: types.DidChangeNotebookDocumentParams) -> None:
        self.cancel(params.notebook_document.uri)
        self.soon(params.notebook_document.uri, DEBOUNCE_SECONDS)

    def did_save(self, _: object) -> None:
        """What one file says may change what is true in another: all that is open is checked again."""
        self.everything_again()

    def files_changed(self, _: types.DidChangeWatchedFilesParams) -> None:
        self.everything_again()

    def everything_again(self) -> None:
        neighbours.forget()
        buffers.forget()
        self.state.results.clear()
        if self.pulls and self.refreshes:
            self.server.workspace_diagnostic_refresh(None)
        for document in self.documents():
            self.soon(document.uri, DEBOUNCE_SECONDS)

    def did_close(self, params: types.DidCloseTextDocumentParams) -> None:
        self.closed(params.text_document.uri)

    def notebook_did_close(self, params: types.DidCloseNotebookDocumentParams) -> None:
        self.closed(params.notebook_document.uri)

    def cancel(self, uri: str) -> None:
        """Ends the checks of a document that are going on: its text has changed."""
        if cancel := self.state.cancels.pop(uri, None):
            cancel.set()

    def closed(self, uri: str) -> None:
        self.cancel(uri)
        self.state.results.pop(uri, None)
        buffers.forget(path_of(uri))
        if timer := self.state.waiting.pop(uri, None):
            timer.cancel()
        for one in self.state.published.pop(uri, ()):
            self.server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(one, []))

    def soon(self, uri: str, seconds: float) -> None:
        """Checks a document when so much time has passed without another reason to."""
        document = self.document(uri)
        if document is None or (self.pulls and not document.cells):  # the editor asks when it wants to know
            return
        if timer := self.state.waiting.pop(document.uri, None):
            timer.cancel()
        loop = asyncio.get_running_loop()
        self.state.waiting[document.uri] = loop.call_later(seconds, self.now, document.uri)

    def now(self, uri: str) -> None:
        self.state.waiting.pop(uri, None)
        task = asyncio.get_running_loop().create_task(self.check(uri))
        self.state.running.add(task)
        task.add_done_callback(self.state.running.discard)

    async def check(self, uri: str, report_early: Callable[[Sequence[Finding]], None] | None = None) -> None:
        """Checks a document and shows what was found, unless its text has changed meanwhile; what is found first, before the rest is
        checked, at once."""
        document = self.document(uri)
        if document is None:
            return
        texts = {one.path: one.text for one in self.documents()}
        loop = asyncio.get_running_loop()
        cancel = self.state.cancels.setdefault(document.uri, threading.Event())

        def publish_early(findings: Sequence[Finding]) -> None:  # in the thread that checks
            loop.call_soon_threadsafe(partial(self.first, document, findings, report_early))

        check = partial(buffers.check, document.path, document.text, texts, self.state.options, publish_early, cancel)
        try:
            checked = await loop.run_in_executor(self.pool, check)
        except Cancelled:
            return
        except TorchmemlintError as error:
            self.complain(str(error))
            checked = None
        except Exception as error:
            self.complain(f"internal error, please report: {type(error).__name__}: {error}")
            checked = None
        else:
            self.state.complaint = ""
        if not self.is_current(document):
            return
        if checked is not None:
            self.state.results[document.uri] = checked
        self.publish(document, checked.findings if checked else ())
        loop.run_in_executor(self.pool, buffers.collect)

    def first(
        self, document: _Document, findings: Sequence[Finding], publish_early: Callable[[Sequence[Finding]], None] | None
    ) -> None:
        if self.is_current(document):
            self.publish(document, findings)
            if publish_early is not None:
                publish_early(findings)

    def is_current(self, document: _Document) -> bool:
        now = self.document(document.uri)
        return now is not None and now.text == document.text

    def complain(self, words: str) -> None:
        """Informs the user, once, of what will not go away by itself."""
        if words != self.state.complaint:
            self.state.complaint = words
            message = types.ShowMessageParams(types.MessageType.Error, f"torchmemlint: {words}")
            self.server.window_show_message(message)

    async def fresh(
        self, uri: str, report_early: Callable[[Sequence[Finding]], None] | None = None
    ) -> tuple[_Document, Checked] | None:
        """An open document and what was found in its text as it is now."""
        document = self.document(uri)
        if document is None:
            return None
        done = self.state.results.get(document.uri)
        if done is None or done.text != document.text:
            await self.check(document.uri, report_early)
            done = self.state.results.get(document.uri)
        return (document, done) if done is not None and done.text == document.text else None

    # --- diagnostics ------------------------------------------------------------------------------------------------

    @property
    def pulls(self) -> bool:
        """Whether the editor asks for diagnostics of files itself; those of notebooks are sent to it."""
        return bool((text := self.server.client_capabilities.text_document) and text.diagnostic)

    async def pull(self, params: types.DocumentDiagnosticParams) -> types.RelatedFullDocumentDiagnosticReport:
        """The diagnostics of a file, asked for by the editor; none of a cell, whose notebook gets its own. Where the editor can be asked
        to ask again, it gets what is found first."""
        document = self.document(params.text_document.uri)
        if document is None or document.cells:
            return types.RelatedFullDocumentDiagnosticReport([])
        first: asyncio.Future[Sequence[Finding]] = asyncio.get_running_loop().create_future()

        def publish_early(findings: Sequence[Finding]) -> None:
            if self.refreshes and not first.done():
                first.set_result(findings)

        whole = asyncio.get_running_loop().create_task(self.fresh(document.uri, publish_early))
        await asyncio.wait((first, whole), return_when=asyncio.FIRST_COMPLETED)
        if whole.done():
            fresh = whole.result()
            shown: Sequence[Finding] = fresh[1].findings if fresh is not None else ()
        else:
            shown = first.result()
            self.state.running.add(again := asyncio.get_running_loop().create_task(self.ask_again(whole, shown)))
            again.add_done_callback(self.state.running.discard)
        return types.RelatedFullDocumentDiagnosticReport([self.diagnostic(document, one) for one in shown])

    async def ask_again(self, whole: asyncio.Task[tuple[_Document, Checked] | None], shown: Sequence[Finding]) -> None:
        """Has the editor ask again once all is checked, where there is more than was shown."""
        fresh = await whole
        if fresh is not None and [*fresh[1].findings] != [*shown]:
            self.server.workspace_diagnostic_refresh(None)

    @property
    def refreshes(self) -> bool:
        """Whether the editor can be asked to ask for diagnostics again."""
        workspace = self.server.client_capabilities.workspace
        return bool(workspace and workspace.diagnostics and workspace.diagnostics.refresh_support)

    def publish(self, document: _Document, findings: Iterable[Finding]) -> None:
        if self.pulls and not document.cells:
            return
        uris_of_cells = [uri for _, uri, _ in document.cells] or [document.uri]
        by_uri: dict[str, list[types.Diagnostic]] = {uri: [] for uri in uris_of_cells}
        for finding in findings:
            by_uri.setdefault(document.uri_of(finding.cell), []).append(self.diagnostic(document, finding))
        for uri in self.state.published.get(document.uri, set()) - set(by_uri):
            by_uri[uri] = []  # a cell that is gone
        self.state.published[document.uri] = set(by_uri)
        version = None if document.cells else document.version
        for uri, diagnostics in by_uri.items():
            params = types.PublishDiagnosticsParams(uri, diagnostics, version)
            self.server.text_document_publish_diagnostics(params)

    def diagnostic(self, document: _Document, finding: Finding) -> types.Diagnostic:
        places = Places.of(document.text_of(finding.cell), self.encoding)
        words = [
            finding.message,
            *(f"{word}: {text}" for word, text in finding.details),
        ]
        related = [one for step in finding.flow if (one := self.related(step)) is not None]
        return types.Diagnostic(
            range=_range(places.span(finding.span)),
            message="\n".join(words),
            severity=_SEVERITY[finding.severity],
            code=finding.code,
            code_description=types.CodeDescription(_page_address(finding.code)),
            source=SOURCE,
            related_information=related or None,
            tags=[types.DiagnosticTag.Unnecessary] if finding.code == UNUSED_SUPPRESSION else None,
        )

    def related(self, step: FlowStep) -> types.DiagnosticRelatedInformation | None:
        """One step of how memory comes to be held; None where its text is not at hand."""
        opened = next((one for one in self.documents() if one.path == step.path), None)
        if opened is not None:
            uri, text = opened.uri_of(step.cell), opened.text_of(step.cell)
        elif step.cell is not None:
            return None  # a notebook that is not open has no place for a cell
        else:
            try:
                uri, text = Path(os.path.abspath(step.path)).as_uri(), read(step.path).text
            except SourceError:
                return None
        place = _range(Places.of(text, self.encoding).span(step.span))
        return types.DiagnosticRelatedInformation(types.Location(uri, place), step.message)

    # --- code actions -----------------------------------------------------------------------------------------------

    async def code_actions(self, params: types.CodeActionParams) -> list[types.CodeAction]:
        """Fixes of what is found in a range, comments that switch it off, and all safe fixes of the document."""
        fresh = await self.fresh(params.text_document.uri)
        if fresh is None:
            return []
        document, checked = fresh
        uri, wanted = params.text_document.uri, params.context.only
        actions: list[types.CodeAction] = []
        if _asked_for(types.CodeActionKind.QuickFix.value, wanted):
            here = [
                one
                for one in checked.findings
                if document.uri_of(one.cell) == uri and self.touches(document, one, params.range)
            ]
            for finding in here:
                actions += self.quick_fixes(document, checked, finding)
        if _asked_for(FIX_ALL, wanted) and any(is_fixable(one, False) for one in checked.findings):
            data = _data(document, "fix-all")
            actions.append(types.CodeAction("torchmemlint: apply all safe fixes", FIX_ALL, data=data))
        if not self.resolves:
            actions = [action for action in [await self.resolve(one) for one in actions] if action.edit is not None]
        return actions

    @property
    def resolves(self) -> bool:
        """Whether the editor asks for an action's edit when it is chosen: most are only looked at."""
        text = self.server.client_capabilities.text_document
        support = text.code_action.resolve_support if text and text.code_action else None
        return support is not None and "edit" in support.properties

    async def resolve(self, action: types.CodeAction) -> types.CodeAction:
        """The action with its edit; without one where the text is another now, or nothing can be written. No check waits for this."""
        data = action.data if isinstance(action.data, dict) else {}
        fresh = await self.fresh(str(data.get("uri")))
        if fresh is None or fresh[0].fingerprint != data.get("text"):
            return action
        document, checked = fresh
        work = self.work_of(checked, data.get("do"), data.get("finding"))
        after = await asyncio.get_running_loop().run_in_executor(self.beside, work) if work is not None else None
        if after is not None:
            action.edit = self.workspace_edit(document, checked, after)
        return action

    def work_of(self, checked: Checked, do: object, number: object) -> Callable[[], str | None] | None:
        """What gives the text after an action."""
        if do == "fix-all":
            return partial(buffers.all_fixed, checked, {one.path: one.text for one in self.documents()})
        if not isinstance(number, int) or not 0 <= number < len(checked.findings):
            return None
        return partial(buffers.fixed_text if do == "fix" else buffers.ignored, checked, checked.findings[number])

    def touches(self, document: _Document, finding: Finding, at: types.Range) -> bool:
        places = Places.of(document.text_of(finding.cell), self.encoding)
        start, end = (places.position((place.line, place.character)) for place in (at.start, at.end))
        return finding.span.start <= end and start <= finding.span.end

    def quick_fixes(self, document: _Document, checked: Checked, finding: Finding) -> Iterator[types.CodeAction]:
        quick = types.CodeActionKind.QuickFix
        diagnostics = [self.diagnostic(document, finding)]
        fix, number = finding.fix, checked.findings.index(finding)
        if fix is not None:
            safe = fix.safety is Safety.SAFE
            title = f"{finding.code}: {fix.message}{'' if safe else ' (unsafe: may change a result)'}"
            yield types.CodeAction(title, quick, diagnostics, is_preferred=safe, data=_data(document, "fix", number))
        data = _data(document, "ignore", number)
        yield types.CodeAction(f"{finding.code}: ignore here", quick, diagnostics, is_preferred=False, data=data)

    def workspace_edit(self, document: _Document, checked: Checked, code: str) -> types.WorkspaceEdit:
        """What turns the document into one whose code is ``code``."""
        assert checked.source is not None  # else there is no fix
        if not document.cells:
            pairs = [(document.uri, document.version, document.text, code)]
        else:
            after = read_notebook(checked.source.file_text(code))
            pairs = [(uri, None, text, after.source_of(number) or "") for number, uri, text in document.cells]
        changes = [
            (
                uri,
                version,
                [types.TextEdit(_range((start, end)), new) for start, end, new in edits(before, text, self.encoding)],
            )
            for uri, version, before, text in pairs
        ]
        changes = [change for change in changes if change[2]]
        workspace = self.server.client_capabilities.workspace
        if workspace and workspace.workspace_edit and workspace.workspace_edit.document_changes:
            return types.WorkspaceEdit(
                document_changes=[
                    types.TextDocumentEdit(types.OptionalVersionedTextDocumentIdentifier(uri, version), new)
                    for uri, version, new in changes
                ]
            )
        return types.WorkspaceEdit(changes={uri: new for uri, _, new in changes})

    # --- hover ------------------------------------------------------------------------------------------------------

    async def hover(self, params: types.HoverParams) -> types.Hover | None:
        """The page of the rule whose code or name is pointed at in a comment, or that has a finding there."""
        fresh = await self.fresh(params.text_document.uri)
        if fresh is None:
            return None
        document, checked = fresh
        uri = params.text_document.uri
        cell = next((number for number, one, _ in document.cells if one == uri), None)
        places = Places.of(document.text_of(cell), self.encoding)
        at = places.position((params.position.line, params.position.character))
        row = places.lines.row(at.row)
        for word in _WORD.finditer(row):
            known = [rule for rule in ALL_RULES if word[0].upper() == rule.code or word[0].lower() == rule.name]
            if known and word.start() < at.column <= word.end() + 1 and "#" in row[: word.start()]:
                start, end = (Position(at.row, column + 1) for column in word.span())
                return _page(known[0].code, places.span(Span(start, end)))
        for finding in checked.findings:
            if document.uri_of(finding.cell) == uri and finding.span.start <= at <= finding.span.end:
                return _page(finding.code, places.span(finding.span))
        return None


def _data(document: _Document, do: str, finding: int = -1) -> dict[str, object]:
    """What an action is resolved by."""
    return {"uri": document.uri, "text": document.fingerprint, "do": do, "finding": finding}


def _page_address(code: str) -> str:
    """Where a rule is explained: the published pages, or the file of this installation that has the page."""
    docs = os.environ.get("TORCHMEMLINT_DOCS_URL", "").rstrip("/")
    return f"{docs}/{code}.html" if docs else Path(page_file(code)).as_uri()


def _page(code: str, span: tuple[Place, Place]) -> types.Hover:
    name = next(rule.name for rule in ALL_RULES if rule.code == code)
    text = f"# {code}: {name}\n\n{page(code).strip()}\n"
    return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text), _range(span))


def _range(span: tuple[Place, Place]) -> types.Range:
    return types.Range(types.Position(*span[0]), types.Position(*span[1]))


def _asked_for(kind: str, wanted: Iterable[object] | None) -> bool:
    """Whether the editor wants actions of this kind: it says none, the kind, or one above it (``source``)."""
    if wanted is None:
        return True
    words = [str(getattr(one, "value", one)) for one in wanted]
    return any(kind == word or kind.startswith(f"{word}.") for word in words)


def _as_json(count: int, cells: Iterable[tuple[int, str, str]]) -> str:
    """A notebook with these cells as its file would have them."""
    sources = {number: text for number, _, text in cells}
    content: list[dict[str, object]] = [
        {"cell_type": "code" if number in sources else "markdown", "metadata": {}, "source": sources.get(number, "")}
        for number in range(1, count + 1)
    ]
    return json.dumps({"cells": content, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, ensure_ascii=False)
