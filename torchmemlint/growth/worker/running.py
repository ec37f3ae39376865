"""One run of a program from its begin to its report: the import hook, the session, the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import ModuleType
from typing import Any

from torchmemlint.growth import words
from torchmemlint.growth.worker.attach import Finder
from torchmemlint.growth.worker.flagged import Looks


class Running:
    """``options``: format, file, live, steps, fail, python (of torchmemlint), root, folder (that paths in the report count from), and
    ``flagged``, the file that says where to look."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._session: Any = None
        self._hooks: Any = None
        self._data: dict[str, Any] | None = None
        self._finder: Finder | None = None
        self._pid = os.getpid()
        self._found: list[dict[str, Any]] = []
        self._flagged = _taken(options.pop("flagged", None))
        self.looks = Looks(self._flagged.pop("files")) if self._flagged else None

    def begin(self) -> None:
        """Wait for torch, or take it if it is here."""
        if self.looks is not None:
            self.looks.install()
        if "torch" in sys.modules:
            self._ready(sys.modules["torch"])
            return
        self._finder = Finder(self._ready)
        sys.meta_path.insert(0, self._finder)

    def _ready(self, torch: ModuleType) -> None:
        try:
            from torchmemlint.growth.worker.attach import Hooks
            from torchmemlint.growth.worker.session import Session

            self._session = Session(self._live if self._options.get("live") else None, self._options.get("steps"))
            self._session.stop_program = self._stop
            self._hooks = Hooks(self._session.event, self._session.creates_graph, self._session.begin_anew)
            self._session.collected.start(self._hooks.again)
            self._hooks.install(torch)
            os.register_at_fork(after_in_child=self._in_child)
        except Exception as error:
            print(f"torchmemlint: nothing is measured: {type(error).__name__}: {error}", file=sys.stderr)

    def _in_child(self) -> None:
        """A worker of a loader measures nothing."""
        if self._session is not None:
            self._session.off = "forked"
            self._session.collected.stop()
            self._hooks.remove()

    def _stop(self) -> None:
        raise SystemExit(0)

    def _live(self, loop: Any, found: Any) -> None:
        from torchmemlint.growth.worker.result import growth_of

        print(f"torchmemlint: {words.headline(growth_of(loop, found, self._session))}", file=sys.stderr, flush=True)

    def ended(self, error: BaseException | None) -> None:
        """The program's last line has run, or ``error`` has ended it; its frames are still there."""
        if os.getpid() != self._pid or self._data is not None:
            return
        if self._finder is not None and self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        alive: list[str] = []
        if self._session is not None:
            self._hooks.remove()
            self._session.finish()
            if error is not None:
                alive = self._alive(error)
        self._data = self._as_data(alive)
        if self.looks is not None:
            self._data["flagged"] = {**self._flagged, **self.looks.seen()}
        self._found = list(self._data["growths"])

    def _alive(self, error: BaseException) -> list[str]:
        from torchmemlint.growth.worker.alive import alive_at, is_out_of_memory

        try:
            return alive_at(error) if is_out_of_memory(error) else []
        except Exception as failure:  # there may be no memory for it
            return [f"Out of memory: what was alive could not be listed: {type(failure).__name__}: {failure}"]

    def growths(self) -> list[dict[str, Any]]:
        """What grew, as plain data, once the program has ended."""
        return self._found

    def _as_data(self, alive: list[str]) -> dict[str, Any]:
        if self._session is None:
            return {
                "growths": [],
                "loops": [],
                "device": "cpu",
                "off": "",
                "alive": alive,
                "torch": False,
                "iterations": 0,
                "files": [],
            }
        from torchmemlint.growth.worker.result import data_of

        return {**data_of(self._session, alive), "files": _users_files()}

    def fails(self, code: object) -> bool:
        """Whether the exit status is to be 1, for growth alone."""
        if not self._options.get("fail") or code not in (0, None) or self._data is None:
            return False
        return any(not growth["note"] for growth in self._data["growths"]) or any(
            loop["residue"] for loop in self._data["loops"]
        )

    def report(self) -> None:
        """At the very end of the process."""
        if os.getpid() != self._pid or self._data is None:
            return
        data, self._data = self._data, None
        plain = self._options.get("format", "full") == "full" and not self._options.get("file")
        if plain and not data["growths"] and "flagged" not in data:
            sys.stderr.write(words.full(data))
            return
        # the current folder comes first in the path until then, and a `json.py` may lie there
        start = f"import sys; sys.path[0] = {self._options['root']!r}; from torchmemlint.growth.report import main; sys.exit(main())"
        given = json.dumps({"data": data, "options": self._options})
        try:
            done = subprocess.run(
                [self._options["python"], "-c", start], cwd=self._options.get("folder"), input=given, text=True, check=False
            )
        except OSError:  # no memory for another process
            sys.stderr.write(words.full(data))
            return
        if done.returncode not in (0, 1):
            sys.stderr.write(words.full(data))


def _taken(file: str | None) -> dict[str, Any]:
    if file is None:
        return {}
    with open(file, encoding="utf-8") as opened:
        found: dict[str, Any] = json.load(opened)
    os.unlink(file)
    return found


def _users_files() -> list[str]:
    """The files of the user's own modules that the program has loaded, at most 200."""
    from torchmemlint.growth.worker.frames import is_users_file

    paths = {getattr(module, "__file__", None) for module in list(sys.modules.values()) if type(module) is ModuleType}
    return sorted(path for path in paths if isinstance(path, str) and path.endswith(".py") and is_users_file(path))[:200]
