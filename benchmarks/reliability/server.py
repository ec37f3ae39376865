"""Load on the language server: a typist in a large workspace with many notebooks open, and messages that are none."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.reliability.client import Client, Message, frame
from benchmarks.reliability.project import MODEL, TRAIN

BURST = 8
"""Keystrokes without a pause: as many as come before a typist stops to look."""
WARM = 500
"""Edits after which memory is to be flat."""
FLAT = 1.1


EDITS, NOTEBOOKS, FILES = 2000, 50, 10_000
LARGEST = 20_000_000
INTERLEAVED = 300


@dataclass(frozen=True, slots=True)
class Size:
    edits: int = EDITS
    notebooks: int = NOTEBOOKS
    files: int = FILES


WHOLE = Size()


def workspace(root: Path, files: int) -> Path:
    """A project with so many files; the one that is edited."""
    for number in range(files):
        folder = root / f"part{number // 100}"
        folder.mkdir(parents=True, exist_ok=True)
        text = f"import torch\n\n\ndef step{number}(model, x):\n    return model(x).sum() + {number}\n"
        (folder / f"file{number}.py").write_text(text if number % 4 else f"VALUE = {number}\n")
    (root / "parts").mkdir(parents=True)
    (root / "parts" / "__init__.py").write_text("")
    (root / "parts" / "model.py").write_text(MODEL)
    (root / "train.py").write_text(TRAIN)
    return root / "train.py"


def notebook(uri: str, number: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    cells = [
        {"uri": f"{uri}#c{cell}", "languageId": "python", "version": 1, "text": text}
        for cell, text in enumerate(("import torch\n", TRAIN, f"x = {number}\n"))
    ]
    described = [{"kind": 2, "document": one["uri"]} for one in cells]
    return {"uri": uri, "notebookType": "jupyter-notebook", "version": 1, "cells": described}, cells


class Books:
    """The notebooks that are open, and what is shown of the cell in each that is edited."""

    def __init__(self, root: Path, number: int) -> None:
        self.uris = [(root / f"book{one}.ipynb").as_uri() for one in range(number)]
        self.versions = dict.fromkeys(self.uris, 1)
        self.wrong_of_cell = dict.fromkeys(self.uris, True)
        """Whether the cell has a mistake now."""
        self.shown: dict[str, bool] = {}
        self.edits = 0

    def open(self, client: Client) -> None:
        for number, uri in enumerate(self.uris):
            described, cells = notebook(uri, number)
            client.notify("notebookDocument/didOpen", {"notebookDocument": described, "cellTextDocuments": cells})

    def see(self, message: Message) -> None:
        params = message.get("params") or {}
        if message.get("method") == "textDocument/publishDiagnostics":
            book, _, cell = str(params.get("uri")).partition("#")
            if cell == "c1":
                self.shown[book] = bool(params["diagnostics"])

    def edit(self, client: Client, chance: random.Random) -> None:
        """Types into the cell of one, and ends with a mistake or without."""
        uri = chance.choice(self.uris)
        wrong = self.wrong_of_cell[uri] = chance.random() < 0.5
        texts = [typed(chance, TRAIN) for _ in range(chance.randrange(BURST))]
        for text in [*texts, TRAIN if wrong else f"x = {self.edits}\n"]:
            self.versions[uri] += 1
            self.edits += 1
            version = {"uri": f"{uri}#c1", "version": self.versions[uri]}
            changed = {"cells": {"textContent": [{"document": version, "changes": [{"text": text}]}]}}
            about = {"uri": uri, "version": self.versions[uri]}
            client.notify("notebookDocument/didChange", {"notebookDocument": about, "change": changed})

    def outdated(self) -> list[str]:
        """Notebooks of which something else is shown than what their text has."""
        return [uri for uri, wrong in self.wrong_of_cell.items() if self.shown.get(uri) != wrong]


def typed(chance: random.Random, text: str) -> str:
    """The text after a keystroke."""
    if len(text) > 2 * len(TRAIN):
        return TRAIN
    at = chance.randrange(len(text) + 1)
    return text[:at] + chance.choice(("x", " ", "\n", "1", ".", "(", ")", "    ", "#")) + text[at:]


def load(root: Path, temporary: Path, size: Size = WHOLE, seed: int = 1) -> tuple[dict[str, Any], list[str]]:
    """Figures, and what is wrong."""
    chance = random.Random(seed)
    edited = workspace(root, size.files)
    client = Client(root, temporary)
    wrong: list[str] = []
    books = Books(root, size.notebooks)
    books.open(client)
    uri, text, version = edited.as_uri(), TRAIN, 1
    client.open(uri, text)
    published: list[int] = []

    def each(message: Message) -> None:
        params = message.get("params") or {}
        books.see(message)
        if message.get("method") == "textDocument/publishDiagnostics" and params.get("uri") == uri:
            published.append(params["version"])
            # What the server has not read yet it cannot know of: but it never goes back.
            if published[-2:] != sorted(published[-2:]):
                wrong.append(f"an answer to version {published[-1]} after one to {published[-2]}")

    def answered(message: Message) -> bool:
        params = message.get("params") or {}
        return params.get("uri") == uri and params.get("version") == version

    client.until(answered, each)
    took, cpu, warm = [], [], client.holds()
    half = False
    while version < size.edits:
        keystrokes = min(chance.randint(1, BURST), size.edits - version)
        for stroke in range(keystrokes):
            text = typed(chance, text)
            # What was said before is looked at with the version that held then.
            while not client.messages.empty() and (one := client.messages.get()) is not None:
                each(one)
            version += 1
            client.change(uri, text, version)
            time.sleep(0.002)
            if stroke == 0 and chance.randrange(8) == 0:  # a request that the editor takes back
                place = {"textDocument": {"uri": uri}, "position": {"line": 1, "character": 1}}
                client.notify("$/cancelRequest", {"id": client.request("textDocument/hover", place)})
        if chance.randrange(4) == 0:
            books.edit(client, chance)
        began, before = time.monotonic(), client.cpu()
        client.until(answered, each)
        took.append(time.monotonic() - began)
        cpu.append(client.cpu() - before)
        if not half and version >= min(WARM, size.edits // 4):
            warm, half = client.holds(), True
    try:
        while books.outdated():
            client.until(lambda one: True, each)
    except TimeoutError:
        wrong.append(f"{len(books.outdated())} notebooks show what they no longer have")
    after = client.holds()
    if after["megabytes"] > FLAT * warm["megabytes"]:
        wrong.append(f"memory grew from {warm['megabytes']} to {after['megabytes']} MB")
    status = client.end()
    if status:
        wrong.append(f"the server ended with {status}")
    figures = {
        "edits": size.edits, "notebooks": size.notebooks, "files": size.files, "cell_edits": books.edits, "checks": len(took), "warm": warm, "after": after,
        "seconds_95": round(percentile(took, 0.95), 3), "cpu_seconds_95": round(percentile(cpu, 0.95), 3),
        "cpu_seconds_median": round(percentile(cpu, 0.5), 3),
    }  # fmt: skip
    return figures, wrong


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def bad_messages(uri: str) -> list[tuple[str, bytes]]:
    """What no editor says, each in a frame of its own; the server is to live on."""
    document = {"textDocument": {"uri": uri}}
    texts: list[tuple[str, object]] = [
        ("a method that there is not", {"id": 901, "method": "no/such", "params": {}}),
        ("no parameters", {"id": 902, "method": "textDocument/hover"}),
        ("parameters of another kind", {"id": 903, "method": "textDocument/hover", "params": [1, 2]}),
        ("a place outside", {"id": 904, "method": "textDocument/hover", "params": {**document, "position": {"line": 10**9, "character": 10**9}}}),
        ("a negative place", {"id": 905, "method": "textDocument/hover", "params": {**document, "position": {"line": -1, "character": -1}}}),
        ("a document that is not open", {"method": "textDocument/didChange", "params": {"textDocument": {"uri": "file:///no/such.py", "version": 1}, "contentChanges": [{"text": ""}]}}),
        ("no document", {"method": "textDocument/didClose", "params": {"textDocument": {"uri": "untitled:1"}}}),
        ("an address that is none", {"method": "textDocument/didOpen", "params": {"textDocument": {"uri": "file://[::1", "languageId": "python", "version": 1, "text": "x"}}}),
        ("half a character", {"method": "textDocument/didOpen", "params": {"textDocument": {"uri": "untitled:2", "languageId": "python", "version": 1, "text": "'\ud800'"}}}),
        ("an answer to no question", {"id": 77777, "result": None}),
        ("a request taken back that is none", {"method": "$/cancelRequest", "params": {"id": 123456}}),
        ("an action that is none", {"id": 906, "method": "codeAction/resolve", "params": {"title": "x", "data": {"uri": 1, "do": [], "finding": "x"}}}),
    ]  # fmt: skip
    found = [(name, frame(message)) for name, message in texts]  # type: ignore[arg-type]
    for name, body in (
        ("no JSON", b"{nonsense"),
        ("an array", b"[1, 2]"),
        ("a number", b"1"),
        ("nothing", b""),
        ("no text", b"\xff\xfe\x00"),
    ):
        found.append((name, b"Content-Length: %d\r\n\r\n%s" % (len(body), body)))
    return found


def odd_messages(root: Path, temporary: Path, size: int = LARGEST) -> tuple[dict[str, Any], list[str]]:
    """Messages that are none, one of ``size`` bytes, messages in pieces and in a crowd: the server answers the next question."""
    (root / "train.py").write_text(TRAIN)
    uri = (root / "train.py").as_uri()
    client = Client(root, temporary)
    wrong: list[str] = []
    place = {"textDocument": {"uri": uri}, "position": {"line": 1, "character": 1}}

    def alive(after: str) -> None:
        try:
            client.ask("textDocument/hover", place)
        except (EOFError, OSError, TimeoutError) as error:
            wrong.append(f"after {after}: {error}")

    client.open(uri, TRAIN)
    bad = bad_messages(uri)
    for name, data in bad:
        if not wrong:
            client.send(data)
            alive(name)
    if not wrong:
        client.change(uri, "x = 1\n" * (size // 6), 2)
        alive("a message of many bytes")
        client.change(uri, TRAIN, 3)
        for byte in frame({"id": 950, "method": "textDocument/hover", "params": place}):  # one byte at a time
            client.send(bytes([byte]))
        alive("a message in pieces")
        crowd = b"".join(frame({"id": 1000 + number, "method": "textDocument/hover", "params": place}) for number in range(200))
        answers: set[int] = set()
        client.send(crowd)
        client.until(
            lambda one: len(answers) == 200,
            lambda one: answers.add(one["id"]) if one.get("id", 0) in range(1000, 1200) else None,
        )
        wrong += _interleaved(client, root)
    status = client.end()
    figures = {"messages": len(bad) + 2 + 200 + INTERLEAVED, "largest": size, "interleaved": INTERLEAVED}
    return figures, wrong + ([f"the server ended with {status}"] if status else [])


def _interleaved(client: Client, root: Path) -> list[str]:
    """Edits, requests and requests taken back, of several documents at once and without waiting: every request is answered once, and
    the last diagnostics of each document are those of its last version."""
    chance = random.Random(1)
    uris = [(root / f"several{number}.py").as_uri() for number in range(5)]
    versions = dict.fromkeys(uris, 1)
    for uri in uris:
        client.open(uri, TRAIN)
    asked, answers, shown = set(), Counter[int](), dict.fromkeys(uris, 0)
    for number in range(INTERLEAVED):
        uri = chance.choice(uris)
        document = {"textDocument": {"uri": uri}}
        match chance.randrange(4):
            case 0 | 1:
                versions[uri] += 1
                client.change(uri, typed(chance, TRAIN) if number % 2 else TRAIN, versions[uri])
            case 2:
                asked.add(client.request("textDocument/hover", {**document, "position": {"line": 13, "character": 9}}))
            case _:
                asked.add(client.request("textDocument/diagnostic", document))
        if asked and chance.randrange(3) == 0:
            client.notify("$/cancelRequest", {"id": chance.choice(sorted(asked))})

    def each(message: Message) -> None:
        params = message.get("params") or {}
        if message.get("id") in asked and "method" not in message:
            answers[message["id"]] += 1
        if message.get("method") == "textDocument/publishDiagnostics" and params.get("uri") in shown:
            shown[params["uri"]] = params["version"]

    try:
        client.until(lambda one: len(answers) == len(asked) and shown == versions, each)
    except (EOFError, TimeoutError) as error:
        return [f"{len(answers)} of {len(asked)} requests answered, versions {shown} shown of {versions}: {error}"]
    return [f"{number} answered {times} times" for number, times in answers.items() if times > 1]
