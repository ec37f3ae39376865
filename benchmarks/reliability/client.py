"""A client of the language server that may say what it likes: whole messages, parts of them, and what is none."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Message = dict[str, Any]
WAIT_SECONDS = 300
LOOKS, LOOK_SECONDS = 5, 0.05
PROGRAM = """
import sys
from torchmemlint.lsp import server
server.DEBOUNCE_SECONDS = float(sys.argv[1])
sys.exit(server.serve())
"""
"""The server with a shorter pause after a keystroke: a simulated typist does not sleep."""


def frame(message: Mapping[str, Any]) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


class Client:
    """One server, and its messages."""

    def __init__(self, root: Path, temporary: Path, debounce: float = 0.01) -> None:
        environment = {**os.environ, "TMPDIR": str(temporary), "XDG_CACHE_HOME": str(temporary / "cache")}
        (temporary / "cache").mkdir(exist_ok=True)
        command = [sys.executable, "-c", PROGRAM, str(debounce)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        self.messages: queue.Queue[Message | None] = queue.Queue()
        self.number = 0
        threading.Thread(target=self._listen, daemon=True).start()
        able = {"general": {"positionEncodings": ["utf-16"]}}
        self.ask("initialize", {"processId": None, "rootUri": root.as_uri(), "capabilities": able})
        self.notify("initialized", {})

    def _listen(self) -> None:
        out = self.process.stdout
        assert out is not None
        while True:
            size = 0
            while (line := out.readline()).strip():
                if line.lower().startswith(b"content-length:"):
                    size = int(line.partition(b":")[2])
            if not line:
                self.messages.put(None)
                return
            self.messages.put(json.loads(out.read(size)))

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def notify(self, method: str, params: object) -> None:
        self.send(frame({"method": method, "params": params}))

    def request(self, method: str, params: object) -> int:
        self.number += 1
        self.send(frame({"id": self.number, "method": method, "params": params}))
        return self.number

    def ask(self, method: str, params: object) -> Message:
        number = self.request(method, params)
        return self.until(lambda one: one.get("id") == number and "method" not in one)

    def until(self, wanted: Callable[[Message], bool], each: Callable[[Message], None] = lambda one: None) -> Message:
        """The first message that is wanted; ``each`` sees it and those before it. Raises TimeoutError and EOFError."""
        ends = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                found = self.messages.get(timeout=max(0.0, ends - time.monotonic()))
            except queue.Empty:
                raise TimeoutError("the server does not answer") from None
            if found is None:
                raise EOFError("the server has ended")
            each(found)
            if wanted(found):
                return found

    def open(self, uri: str, text: str, version: int = 1) -> None:
        self.notify(
            "textDocument/didOpen", {"textDocument": {"uri": uri, "languageId": "python", "version": version, "text": text}}
        )

    def change(self, uri: str, text: str, version: int) -> None:
        self.notify(
            "textDocument/didChange", {"textDocument": {"uri": uri, "version": version}, "contentChanges": [{"text": text}]}
        )

    def close(self, uri: str) -> None:
        self.notify("textDocument/didClose", {"textDocument": {"uri": uri}})

    def cpu(self) -> float:
        """Seconds of the server."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def holds(self) -> dict[str, float]:
        return held(self.process.pid)

    def end(self) -> int:
        try:
            self.ask("shutdown", None)
            self.notify("exit", None)
            return self.process.wait(60)
        except (EOFError, OSError, TimeoutError, subprocess.TimeoutExpired):
            self.process.kill()
            return self.process.wait()


def held(process: int) -> dict[str, float]:
    """Megabytes of memory, descriptors and threads of a process. Of descriptors the fewest of some looks: a file that is being read is
    none that was kept."""
    open_now = []
    for _ in range(LOOKS):
        open_now.append(len(os.listdir(f"/proc/{process}/fd")))
        time.sleep(LOOK_SECONDS)
    status = Path(f"/proc/{process}/status").read_text()
    resident = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    return {
        "megabytes": round(int(resident) / 1024, 1),
        "descriptors": min(open_now),
        "threads": len(os.listdir(f"/proc/{process}/task")),
    }
