"""A day of edits, in the server and under ``--watch``: descriptors, threads and files for temporary use stay as many as they were.

Time is simulated: edits follow each other as fast as they are checked, and count as one in ``PAUSE_SECONDS``.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.reliability.client import Client, held
from benchmarks.reliability.project import FILES, TRAIN
from benchmarks.reliability.server import FLAT, typed

FILLED = 2
"""MB in use that the first hundreds of edits fill, once: under ``--watch`` 31.6 were 32.8 at the 500th edit."""
PAUSE_SECONDS = 60
DAY = 24 * 3600 // PAUSE_SECONDS
WATCH = """
import ctypes, sys
from torchmemlint.cli import main
from torchmemlint.commands import watch
from torchmemlint.growth.worker.meters import MallocMeter
watch.SECONDS, watch.BUSY = 0.005, 1
meter = MallocMeter(ctypes.CDLL(None).mallinfo2)
def told(text, **options):
    print(text, f"[{meter.live()} bytes in use]" * text.startswith("Watching"), **options)
watch.print = told
sys.exit(main(["--watch", "."]))
"""
"""It tells the bytes that malloc has given out, Python's small objects among them (``PYTHONMALLOC=malloc``). Resident memory would not
do: what one run has filled at its peak stays resident or not, as the allocator's free blocks lie (45 or 54 MB after the same edits)."""
IN_USE = re.compile(rb"Watching for changes.*\[(\d+) bytes in use\]\n")


def _lay_out(root: Path) -> None:
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


def _temporary(folder: Path) -> int:
    return sum(1 for path in folder.iterdir() if path.name != "cache")


def _grown(before: dict[str, float], after: dict[str, float], filled: float = 0) -> list[str]:
    # Python starts the threads of a pool when they are first needed, which may be late. A thread for each edit would be hundreds.
    slack = {"descriptors": 0, "threads": min(32, (os.cpu_count() or 1) + 4)}
    wrong = [
        f"{name}: {before[name]} at first, {after[name]} at the end"
        for name in slack
        if after[name] > before[name] + slack[name]
    ]
    if after["megabytes"] > FLAT * before["megabytes"] + filled:
        wrong.append(f"memory: {before['megabytes']} MB at first, {after['megabytes']} MB at the end")
    return wrong


def in_server(root: Path, temporary: Path, edits: int = DAY, seed: int = 1) -> tuple[dict[str, Any], list[str]]:
    """Files are edited, saved, closed and opened again, and questions are asked."""
    chance = random.Random(seed)
    _lay_out(root)
    client = Client(root, temporary)
    texts = {name: text for name, text in FILES.items() if name.endswith(".py")}
    versions = dict.fromkeys(texts, 1)
    before: dict[str, float] = {}
    wrong: list[str] = []
    for name, text in texts.items():
        client.open((root / name).as_uri(), text)
    for edit in range(edits):
        name = chance.choice([*texts])
        uri = (root / name).as_uri()
        versions[name] += 1
        match chance.randrange(10):
            case 0:
                client.close(uri)
                client.open(uri, texts[name], versions[name])
            case 1:
                (root / name).write_text(texts[name], encoding="utf-8")
                client.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
                client.notify("workspace/didChangeWatchedFiles", {"changes": [{"uri": uri, "type": 2}]})
            case _:
                texts[name] = typed(chance, texts[name]) if len(texts[name]) < 4000 else FILES[name]
                client.change(uri, texts[name], versions[name])
        context: dict[str, list[object]] = {"diagnostics": []}
        whole = {"start": {"line": 0, "character": 0}, "end": {"line": 999, "character": 0}}
        client.ask("textDocument/codeAction", {"textDocument": {"uri": uri}, "range": whole, "context": context})
        if edit == edits // 4:
            before = {**client.holds(), "temporary": _temporary(temporary)}
    after = {**client.holds(), "temporary": _temporary(temporary)}
    status = client.end()
    if status:
        wrong.append(f"the server ended with {status}")
    if after["temporary"] > before["temporary"]:
        wrong.append(f"{after['temporary']} files are left for temporary use")
    return {"edits": edits, "hours": edits * PAUSE_SECONDS / 3600, "quarter": before, "end": after}, wrong + _grown(
        before, after
    )


def under_watch(root: Path, temporary: Path, edits: int = DAY, seed: int = 1) -> tuple[dict[str, Any], list[str]]:
    chance = random.Random(seed)
    _lay_out(root)
    environment = {**os.environ, "TMPDIR": str(temporary), "XDG_CACHE_HOME": str(temporary / "cache"), "PYTHONMALLOC": "malloc"}
    out = temporary.parent / "watch.err"
    with out.open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-c", WATCH], cwd=root, env=environment, stdout=subprocess.DEVNULL, stderr=err
        )
    wrong: list[str] = []
    before: dict[str, float] = {}
    runs, text = 0, TRAIN

    def wait(count: int) -> None:
        ends = time.monotonic() + 300
        while len(IN_USE.findall(out.read_bytes())) < count:
            if process.poll() is not None or time.monotonic() > ends:
                raise EOFError(f"--watch ended or hangs: {out.read_bytes()[-300:]!r}")
            time.sleep(0.005)

    def holds() -> dict[str, float]:
        in_use = int(IN_USE.findall(out.read_bytes())[-1])
        return {**held(process.pid), "megabytes": round(in_use / 1e6, 1), "temporary": _temporary(temporary)}

    try:
        for edit in range(edits + 1):
            runs += 1
            wait(runs)
            if edit == edits // 4:
                before = holds()
            if edit < edits:
                text = typed(chance, text)
                (root / "train.py.new").write_text(f"{text}\n# {edit}\n", encoding="utf-8")
                os.replace(root / "train.py.new", root / "train.py")
        after = holds()
    finally:
        process.kill()
        process.wait()
    if b"Traceback" in out.read_bytes():
        wrong.append("internal error under --watch")
    if after["temporary"] > before["temporary"]:
        wrong.append(f"{after['temporary']} files are left for temporary use")
    return {"edits": edits, "hours": edits * PAUSE_SECONDS / 3600, "quarter": before, "end": after}, wrong + _grown(
        before, after, FILLED
    )
