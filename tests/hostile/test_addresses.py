"""URIs that an editor may send: each is a file of this machine or none, and the server goes on."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

pytest.importorskip("pygls", reason="needs the extra `lsp`")
pytest.importorskip("pytest_lsp")

from lsprotocol import types
from test_server import TRAIN, change, put, shown, start

from torchmemlint.lsp.addresses import file_of, path_of

ODD = [
    "file:////x.py",
    "file://host/x.py",
    "file://localhost/x.py",
    "file:",
    "file://",
    "file:///",
    "file:x.py",
    "file:///a%00b.py",
    "file:///caf%E9.py",
    "file:///a%0Ab.py",
    "file:///%2e%2e/x.py",
    f"file:///{'x' * 5000}.py",
    "untitled:Untitled-1",
]


def test_files_of_uris() -> None:
    if os.name == "nt":
        pytest.skip("other paths")
    assert file_of("file:////x.py") in ("/x.py", "//x.py")
    assert path_of("file:////x.py") == path_of("file://localhost/x.py") == "/x.py"
    assert file_of("file:///caf%E9%0A.py") == "/caf\udce9\n.py"
    for uri in ("file://host/x.py", "file:", "file:x.py", "file:///a%00b.py", "file://[x/y", "untitled:x", ""):
        assert file_of(uri) is None
        assert os.path.dirname(path_of(uri)) == os.getcwd()
    assert all("\0" not in path_of(uri) and os.path.isabs(path_of(uri)) for uri in ODD)


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs")
async def test_the_server_goes_on(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "helper.py")
    client = await start(tmp_path)
    try:
        for uri in ODD:
            item = types.TextDocumentItem(uri, "python", 1, TRAIN)
            client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        text = f"from helper import x\n{TRAIN}"
        uri = put(client, tmp_path / "a.py", text)
        await asyncio.wait_for(shown(client, uri, ["TML101"]), 100)
        change(client, uri, text.replace("+= loss", "+= loss.item()"))
        await asyncio.wait_for(shown(client, uri, []), 100)
        for odd in ("file:////x.py", "file://host/x.py", "file:///a%00b.py", "file:///caf%E9.py"):
            await asyncio.wait_for(shown(client, odd, ["TML101"]), 100)
    finally:
        await client.shutdown_session()
