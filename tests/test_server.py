"""The language server, driven by a real client over standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import forked
import pytest

pytest.importorskip("pygls", reason="needs the extra `lsp`")
pytest_lsp = pytest.importorskip("pytest_lsp")

import pytest_asyncio  # noqa: E402  comes with pytest_lsp
from lsprotocol import types  # noqa: E402
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities, make_test_lsp_client  # noqa: E402

FIXTURES = Path(__file__).parent.parent / "fixtures"

TRAIN = """import torch

def train(model, loader, optimizer):
    total = 0
    for x in loader:
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        total += loss
    print(total)
"""
EVALUATE = """import torch

def evaluate(model, loader):
    model.eval()
    outputs = []
    for x in loader:
        outputs.append(model(x))
    return outputs
"""


def make_client() -> LanguageClient:
    client = make_test_lsp_client()
    client.feature(types.CLIENT_REGISTER_CAPABILITY)(lambda params: None)  # a real editor watches the files
    return client


async def start(
    folder: Path, capabilities: str = "visual-studio-code", pulls: bool = False, **settings: object
) -> LanguageClient:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(FIXTURES.parent), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    config = ClientServerConfig([sys.executable, "-m", "torchmemlint", "server"], make_client, server_env=environment)
    client = await config.start()
    assert isinstance(client, LanguageClient)
    able = client_capabilities(capabilities)
    if pulls:
        assert able.text_document is not None
        able.text_document.diagnostic = types.DiagnosticClientCapabilities()
    params = types.InitializeParams(able, root_uri=folder.as_uri(), initialization_options={"settings": settings})
    await client.initialize_session(params)
    return client


@pytest_asyncio.fixture
async def client(tmp_path: Path) -> AsyncIterator[LanguageClient]:
    client = await start(tmp_path)
    yield client
    await client.shutdown_session()


def put(client: LanguageClient, path: Path, text: str) -> str:
    uri = path.as_uri()
    client.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, "python", 1, text)))
    return uri


def change(client: LanguageClient, uri: str, text: str, version: int = 2) -> None:
    whole = types.TextDocumentContentChangeWholeDocument(text)
    client.text_document_did_change(
        types.DidChangeTextDocumentParams(types.VersionedTextDocumentIdentifier(version, uri), [whole])
    )


async def shown(client: LanguageClient, uri: str, codes: list[str] | None = None) -> list[types.Diagnostic]:
    """The diagnostics of a document, when they are those that are waited for (or the first, for None)."""
    for _ in range(1200):
        found = client.diagnostics.get(uri)
        if found is not None and (codes is None or [one.code for one in found] == codes):
            return list(found)
        await asyncio.sleep(0.05)
    raise AssertionError(f"{uri} shows {[one.code for one in client.diagnostics.get(uri, [])]}, not {codes}")


async def actions(client: LanguageClient, uri: str, place: types.Range, *only: str) -> list[types.CodeAction]:
    context = types.CodeActionContext([], only=list(only) or None)
    params = types.CodeActionParams(types.TextDocumentIdentifier(uri), place, context)
    found = await client.text_document_code_action_async(params) or []
    actions = [each for each in found if isinstance(each, types.CodeAction)]
    return [one if one.edit is not None else await client.code_action_resolve_async(one) for one in actions]


def applied(text: str, edits: list[types.TextEdit]) -> str:
    """The text after edits, by the words of the protocol: UTF-16, lines end at \\n, \\r\\n and \\r."""
    units = text.encode("utf-16-le")
    starts = [0]
    for index, char in enumerate(text):
        if char == "\n" or (char == "\r" and text[index + 1 : index + 2] != "\n"):
            starts.append(len(text[: index + 1].encode("utf-16-le")))
    for edit in sorted(edits, key=lambda one: (one.range.start.line, one.range.start.character), reverse=True):
        start, end = (starts[at.line] + 2 * at.character for at in (edit.range.start, edit.range.end))
        units = units[:start] + edit.new_text.encode("utf-16-le") + units[end:]
    return units.decode("utf-16-le")


def edits_of(action: types.CodeAction, uri: str) -> list[types.TextEdit]:
    assert action.edit is not None
    if action.edit.changes:
        assert list(action.edit.changes) == [uri]
        return list(action.edit.changes[uri])
    assert action.edit.document_changes is not None
    (only,) = action.edit.document_changes
    assert isinstance(only, types.TextDocumentEdit)
    assert only.text_document.uri == uri
    return [edit for edit in only.edits if isinstance(edit, types.TextEdit)]


EVERYWHERE = types.Range(types.Position(0, 0), types.Position(10_000, 0))


@pytest.mark.slow
@pytest.mark.asyncio
async def test_findings_on_open_change_save_and_close(client: LanguageClient, tmp_path: Path) -> None:
    uri = put(client, tmp_path / "a.py", TRAIN)
    (found,) = await shown(client, uri, ["TML101"])
    assert (found.range.start, found.range.end) == (types.Position(8, 8), types.Position(8, 21))
    assert found.severity is types.DiagnosticSeverity.Warning
    assert found.source == "torchmemlint"
    assert "cost: " in found.message
    (step,) = found.related_information or []
    assert (step.location.uri, step.location.range.start.line) == (uri, 5)
    assert "carries an autograd graph" in step.message
    change(client, uri, TRAIN.replace("+= loss", "+= loss.item()"))
    await shown(client, uri, [])
    change(client, uri, TRAIN, 3)
    await shown(client, uri, ["TML101"])
    (tmp_path / "pyproject.toml").write_text('[tool.torchmemlint]\nignore = ["TML101"]\n')
    client.text_document_did_save(types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(uri)))
    await shown(client, uri, [])
    (tmp_path / "pyproject.toml").unlink()
    client.text_document_did_save(types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(uri)))
    await shown(client, uri, ["TML101"])
    client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri)))
    await shown(client, uri, [])


@pytest.mark.slow
@pytest.mark.asyncio
async def test_an_editor_that_asks_for_diagnostics(tmp_path: Path) -> None:
    client = await start(tmp_path, pulls=True)
    uri = put(client, tmp_path / "a.py", TRAIN)
    asked = types.DocumentDiagnosticParams(types.TextDocumentIdentifier(uri))
    report = await client.text_document_diagnostic_async(asked)
    assert isinstance(report, types.RelatedFullDocumentDiagnosticReport)
    (one,) = report.items
    assert one.code == "TML101"
    assert one.code_description is not None
    page = Path(one.code_description.href.removeprefix("file://")).read_text(encoding="utf-8")
    assert "## What it does" in page
    change(client, uri, TRAIN.replace("+= loss", "+= loss.item()"))
    report = await client.text_document_diagnostic_async(asked)
    assert isinstance(report, types.RelatedFullDocumentDiagnosticReport)
    assert not report.items
    assert uri not in client.diagnostics, "nothing is sent unasked"
    await client.shutdown_session()


DEPENDING = """import torch

def compute(model, batch):
    loss = model(batch).mean()
    loss.backward(retain_graph=True)
    return loss

def train(model, loader, optimizer):
    total = 0
    for batch in loader:
        total += compute(model, batch)
        optimizer.step()
    print(total)
"""


@pytest.mark.slow
@pytest.mark.asyncio
async def test_what_depends_on_a_change_follows(client: LanguageClient, tmp_path: Path) -> None:
    uri = put(client, tmp_path / "a.py", DEPENDING)
    await shown(client, uri, ["TML105", "TML101"])
    for version, text in enumerate((DEPENDING + "\n", DEPENDING.replace("return loss", "return loss.detach()")), 2):
        change(client, uri, text, version)
    await shown(client, uri, [])  # what is kept is gone when `compute` returns: a note
    change(client, uri, DEPENDING, 4)
    await shown(client, uri, ["TML105", "TML101"])


@pytest.mark.slow
@pytest.mark.asyncio
async def test_an_editor_that_asks_is_asked_to_ask_again(tmp_path: Path) -> None:
    client = await start(tmp_path, pulls=True)
    uri = put(client, tmp_path / "a.py", DEPENDING)
    asked = types.DocumentDiagnosticParams(types.TextDocumentIdentifier(uri))

    async def codes() -> list[object]:
        report = await client.text_document_diagnostic_async(asked)
        assert isinstance(report, types.RelatedFullDocumentDiagnosticReport)
        return [one.code for one in report.items]

    assert await codes() == ["TML105", "TML101"]
    change(client, uri, DEPENDING.replace("return loss", "return loss.detach()"))
    found = await codes()  # first with ``train`` as it was
    for _ in range(600):
        if not found:
            break
        await asyncio.sleep(0.1)
        found = await codes()
    assert found == []
    await client.shutdown_session()


@pytest.mark.slow
@pytest.mark.asyncio
async def test_quick_fixes(client: LanguageClient, tmp_path: Path) -> None:
    text = TRAIN + EVALUATE.replace("import torch\n", "")
    uri = put(client, tmp_path / "a.py", text)
    total, evaluated = await shown(client, uri, ["TML101", "TML201"])
    fix, ignore = await actions(client, uri, total.range, "quickfix")
    assert fix.title.startswith("TML101: ")
    assert "unsafe" not in fix.title
    assert fix.is_preferred
    assert applied(text, edits_of(fix, uri)) == text.replace("+= loss", "+= loss.detach()")
    assert ignore.title == "TML101: ignore here"
    comment = "  # torchmemlint: ignore[TML101]"
    assert applied(text, edits_of(ignore, uri)) == text.replace("+= loss", f"+= loss{comment}")
    fix, _ = await actions(client, uri, evaluated.range, "quickfix")
    assert fix.title.endswith("(unsafe: may change a result)")
    assert not fix.is_preferred
    assert applied(text, edits_of(fix, uri)) == text.replace("def evaluate", "@torch.no_grad()\ndef evaluate")
    nowhere = types.Range(types.Position(0, 0), types.Position(0, 3))
    assert await actions(client, uri, nowhere, "quickfix") == []


@pytest.mark.slow
@pytest.mark.asyncio
async def test_every_safe_fix_at_once(client: LanguageClient, tmp_path: Path) -> None:
    text = TRAIN + TRAIN.replace("def train", "def again") + EVALUATE
    uri = put(client, tmp_path / "a.py", text)
    await shown(client, uri, ["TML101", "TML101", "TML201"])
    for only in (("source.fixAll.torchmemlint",), ("source.fixAll",), ("source",)):
        (action,) = await actions(client, uri, EVERYWHERE, *only)
        assert action.kind == "source.fixAll.torchmemlint"
        assert applied(text, edits_of(action, uri)) == text.replace("+= loss", "+= loss.detach()")
    assert await actions(client, uri, EVERYWHERE, "refactor") == []
    change(client, uri, EVALUATE)
    assert await actions(client, uri, EVERYWHERE, "source.fixAll") == [], "an unsafe fix is nobody's on save"


@pytest.mark.slow
@pytest.mark.asyncio
async def test_actions_are_about_the_text_as_it_is_now(client: LanguageClient, tmp_path: Path) -> None:
    uri = put(client, tmp_path / "a.py", TRAIN)
    await shown(client, uri, ["TML101"])
    text = "# one more line\n" + TRAIN
    change(client, uri, text)
    fix, *_ = await actions(client, uri, EVERYWHERE, "quickfix")
    assert applied(text, edits_of(fix, uri)) == text.replace("+= loss", "+= loss.detach()")


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
async def test_places_in_any_text(tmp_path: Path, encoding: str) -> None:
    config = ClientServerConfig([sys.executable, "-m", "torchmemlint", "server"], make_client)
    client = await config.start()
    assert isinstance(client, LanguageClient)
    capabilities = types.ClientCapabilities(
        general=types.GeneralClientCapabilities(position_encodings=[types.PositionEncodingKind(encoding)])
    )
    await client.initialize_session(types.InitializeParams(capabilities, root_uri=tmp_path.as_uri()))
    odd = TRAIN.replace("        total += loss", "        '漢👍é'; total += loss  # 👍").replace("\n", "\r\n")
    odd = odd.replace("import torch", "import torch\f  # \u2028 \x85")
    uri = put(client, tmp_path / "a.py", odd)
    (found,) = await shown(client, uri, ["TML101"])
    before = "        '漢👍é'; "
    width = {"utf-8": len(before.encode()), "utf-16": len(before.encode("utf-16-le")) // 2, "utf-32": len(before)}[encoding]
    assert found.range.start == types.Position(8, width)
    assert found.range.end == types.Position(8, width + len("total += loss"))
    at = types.Range(types.Position(8, width + 1), types.Position(8, width + 1))
    fix, _ = await actions(client, uri, at, "quickfix")
    assert applied(odd, edits_of(fix, uri)) == odd.replace("+= loss ", "+= loss.detach() ")
    await client.shutdown_session()


@pytest.mark.slow
@pytest.mark.asyncio
async def test_hovering(client: LanguageClient, tmp_path: Path) -> None:
    text = TRAIN + "x = 1  # noqa: TML301\ny = 2  # torchmemlint: ignore[inference-with-grad]\nz = 'TML301'\n"
    uri = put(client, tmp_path / "a.py", text)
    await shown(client, uri, ["TML101"])

    async def page(line: int, character: int) -> str:
        params = types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(line, character))
        hover = await client.text_document_hover_async(params)
        if hover is None:
            return ""
        assert isinstance(hover.contents, types.MarkupContent)
        return hover.contents.value.partition("\n")[0]

    assert await page(8, 10) == "# TML101: graph-attached-running-total"
    assert await page(10, 17) == "# TML301: empty-cache-in-loop"
    assert await page(11, 35) == "# TML201: inference-with-grad"
    assert await page(12, 6) == ""
    assert await page(0, 0) == ""


@pytest.mark.slow
@pytest.mark.asyncio
async def test_what_is_not_saved_counts_in_other_files(client: LanguageClient, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    helper = "class Meter:\n    def __init__(self):\n        self.sum = 0\n\n    def update(self, value):\n        self.sum += value{}\n"
    (tmp_path / "meter.py").write_text(helper.format(".item()"))
    train = TRAIN.replace("import torch\n", "import torch\nfrom meter import Meter\n")
    train = train.replace("total = 0", "total = Meter()").replace("total += loss", "total.update(loss)")
    (tmp_path / "pyproject.toml").write_text("[tool.torchmemlint]\npreview = true\n")
    (tmp_path / "train.py").write_text(train)
    uri = put(client, tmp_path / "train.py", train)
    await shown(client, uri, [])
    other = put(client, tmp_path / "meter.py", helper.format(""))
    client.text_document_did_save(types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(other)))
    (found,) = await shown(client, uri, ["TML103"])
    assert {one.location.uri for one in found.related_information or []} == {uri, other}
    change(client, other, helper.format(".item()"))
    client.text_document_did_save(types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(other)))
    await shown(client, uri, [])


TEXTS: list[tuple[str, list[str] | None]] = [
    ("import torch\ndef f(:\n", ["TML000"]),
    ("import torch\nx = (\n", ["TML000"]),
    ("import torch\n\0\n", ["TML000"]),
    ("", []),
    ("\ufeffimport torch\n", []),
    ("import torch\nx = " + "(" * 5000, ["TML000"]),
    ("import torch\nx = " + "+".join("1" * 20_000), None),
    ("not python at all ¿?", ["TML000"]),
    (TRAIN[:-60], None),
]


@pytest.mark.slow
@pytest.mark.asyncio
async def test_no_text_ends_the_server(client: LanguageClient, tmp_path: Path) -> None:
    for number, (text, codes) in enumerate(TEXTS):
        uri = put(client, tmp_path / f"{number}.py", text)
        await shown(client, uri, codes)
        await actions(client, uri, EVERYWHERE)
    await shown(client, put(client, tmp_path / "b.py", TRAIN), ["TML101"])
    assert client.messages == []


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_broken_configuration_is_reported_once(client: LanguageClient, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.torchmemlint]\nselekt = ["TML1"]\n')
    uri = put(client, tmp_path / "a.py", TRAIN)
    await shown(client, uri, [])
    change(client, uri, TRAIN + "\n")
    await asyncio.sleep(1)
    (message,) = client.messages
    assert "unknown key `selekt`" in message.message
    (tmp_path / "pyproject.toml").unlink()
    change(client, uri, TRAIN, 3)
    await shown(client, uri, ["TML101"])


@pytest.mark.slow
@pytest.mark.asyncio
async def test_settings_of_the_editor(tmp_path: Path) -> None:
    client = await start(tmp_path, ignore=["TML101"])
    uri = put(client, tmp_path / "a.py", TRAIN + EVALUATE)
    await shown(client, uri, ["TML201"])
    await client.shutdown_session()


@pytest.mark.slow
@pytest.mark.asyncio
async def test_what_is_left_out_is_left_out_here_too(client: LanguageClient, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("made.py\n")
    for name in ("made.py", "build/a.py"):
        uri = put(client, tmp_path / name, TRAIN)
        assert await shown(client, uri) == []


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_file_without_a_name(client: LanguageClient) -> None:
    item = types.TextDocumentItem("untitled:Untitled-1", "python", 1, TRAIN)
    client.text_document_did_open(types.DidOpenTextDocumentParams(item))
    await shown(client, "untitled:Untitled-1", ["TML101"])


@pytest.mark.slow
@pytest.mark.asyncio
async def test_notebooks(client: LanguageClient, tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    cells = ["%matplotlib inline\nimport torch", "some *text*", "'👍'; total = 0\n" + TRAIN[14:], "x = 1"]
    uris = [f"vscode-notebook-cell:{path}#{number}" for number in range(len(cells))]
    kinds = [types.NotebookCellKind.Markup if "*" in text else types.NotebookCellKind.Code for text in cells]
    notebook = types.NotebookDocument(
        path.as_uri(), "jupyter-notebook", 1, [types.NotebookCell(*pair) for pair in zip(kinds, uris, strict=True)]
    )
    documents = [
        types.TextDocumentItem(uri, "python", 1, text)
        for uri, text, kind in zip(uris, cells, kinds, strict=True)
        if kind is types.NotebookCellKind.Code
    ]
    client.notebook_document_did_open(types.DidOpenNotebookDocumentParams(notebook, documents))
    (found,) = await shown(client, uris[2], ["TML101"])
    line = cells[2].split("\n").index("        total += loss")
    assert found.range.start == types.Position(line, 8)
    assert [one.location.uri for one in found.related_information or []] == [uris[2]]
    fix, ignore = await actions(client, uris[2], found.range, "quickfix")
    assert applied(cells[2], edits_of(fix, uris[2])) == cells[2].replace("+= loss", "+= loss.detach()")
    assert "ignore[TML101]" in applied(cells[2], edits_of(ignore, uris[2]))
    assert await actions(client, uris[0], EVERYWHERE, "quickfix") == []
    (every,) = await actions(client, uris[0], EVERYWHERE, "source.fixAll")
    assert edits_of(every, uris[2]) == edits_of(fix, uris[2])
    event = types.NotebookDocumentCellContentChanges(
        types.VersionedTextDocumentIdentifier(2, uris[2]),
        [types.TextDocumentContentChangeWholeDocument("x = 2")],
    )
    client.notebook_document_did_change(
        types.DidChangeNotebookDocumentParams(
            types.VersionedNotebookDocumentIdentifier(2, path.as_uri()),
            types.NotebookDocumentChangeEvent(cells=types.NotebookDocumentCellChanges(text_content=[event])),
        )
    )
    await shown(client, uris[2], [])


@pytest.mark.slow
@pytest.mark.asyncio
async def test_the_same_findings_as_the_command(client: LanguageClient, tmp_path: Path) -> None:
    names = sorted(path.relative_to(FIXTURES) for path in FIXTURES.glob("TML*/*.py"))[::36]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((FIXTURES / name).read_bytes())
        path = tmp_path / name
        printed = forked.lint("--output-format=json", str(path), cwd=tmp_path).stdout
        whole = [one for one in json.loads(printed) if one["severity"] != "note"]  # which only data formats have
        expected = [(one["code"], one["location"]["row"], one["location"]["column"]) for one in whole]
        uri = put(client, path, path.read_text())
        found = await shown(client, uri)
        assert [(one.code, one.range.start.line + 1, one.range.start.character + 1) for one in found] == expected, name


@pytest.mark.slow
@pytest.mark.asyncio
async def test_edits_of_actions_are_made_when_one_is_chosen(client: LanguageClient, tmp_path: Path) -> None:
    uri = put(client, tmp_path / "a.py", TRAIN)
    await shown(client, uri, ["TML101"])
    params = types.CodeActionParams(types.TextDocumentIdentifier(uri), EVERYWHERE, types.CodeActionContext([]))
    found = [one for one in await client.text_document_code_action_async(params) or [] if isinstance(one, types.CodeAction)]
    assert len(found) >= 3
    assert all(one.edit is None for one in found)
    resolved = await client.code_action_resolve_async(found[0])
    assert "detach" in applied(TRAIN, edits_of(resolved, uri))
    change(client, uri, f"# above\n{TRAIN}")  # what the action was made for is no longer there
    assert (await client.code_action_resolve_async(found[0])).edit is None


def test_without_pygls(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from torchmemlint import cli
    from torchmemlint.lsp import command

    monkeypatch.setattr(command, "find_spec", lambda _: None)
    assert cli.main(["server"]) == 2
    assert capsys.readouterr().err == "torchmemlint: error: the server needs pygls: pip install 'pygls>=2,<3'\n"


def test_what_cannot_be_written_is_tried_once() -> None:
    """Not reported to the editor over the same pipe, again and again."""
    from torchmemlint.lsp.server import make_server

    class Full:
        tried = 0

        def write(self, data: bytes) -> None:
            self.tried += 1
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            raise AssertionError

    server, full = make_server(), Full()
    server.protocol.set_writer(full)
    server.window_log_message(types.LogMessageParams(types.MessageType.Info, "x"))
    assert full.tried == 1
