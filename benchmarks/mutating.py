"""A plugin of pytest for ``benchmarks.mutants``: which tests come by a place, and which notice a mistake.

It is loaded from beside a copy of the tree, in all processes of the tests: by its own name, without the package.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

_said: set[str] = set()
CPU = 600
"""Seconds that the tests of one mistake may take."""


def by(number: int) -> None:
    """The test that runs now, in this process or in one that has started it, comes by a place."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if test:
        _say(f"{number}\t{test}\n")


def pytest_runtest_logstart(nodeid: str) -> None:
    _say(f"runs\t{nodeid}\n")


def _say(line: str) -> None:
    if line not in _said and "REACHED" in os.environ:
        _said.add(line)
        with suppress(OSError), open(os.environ["REACHED"], "a", encoding="utf-8") as file:  # not in a sandbox
            file.write(line)


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Each mistake of the orders gets a copy of this process, which has loaded all tests, and runs its own until one fails."""
    if "ORDERS" not in os.environ:
        return None
    items = {item.nodeid: item for item in session.items}
    for line in Path(os.environ["ORDERS"]).read_text(encoding="utf-8").splitlines():
        order = json.loads(line)
        path, kept = Path(order["file"]), Path(os.environ["ORDERS"]).with_name("kept")
        shutil.copy2(path, kept)
        path.write_text(order["text"], encoding="utf-8")
        child = os.fork()
        if not child:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (CPU, CPU))
            _replace(path, order["function"], order["text"])
            _run(session, order["number"], [items[test] for test in order["tests"] if test in items])
        _, status = os.waitpid(child, 0)
        with suppress(ProcessLookupError):  # what a test has left behind ends as well
            os.killpg(child, signal.SIGKILL)
        shutil.copy2(kept, path)  # with its date, so that nothing that was compiled meanwhile is taken for it
        if os.WIFSIGNALED(status):
            _answer(order["number"], f"ended by {signal.Signals(os.WTERMSIG(status)).name}")
        elif status:
            raise RuntimeError(f"{order['file']}: {order['function']}: its tests could not be run")
    return True


def _run(session: pytest.Session, number: int, items: list[pytest.Item]) -> None:
    failed = ""
    for item, following in zip_longest(items, items[1:]):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            failed = item.nodeid
            break
    _answer(number, failed)
    os._exit(0)


def _answer(number: int, failed: str) -> None:
    with open(os.environ["ANSWERS"], "a", encoding="utf-8") as file:
        file.write(f"{number}\t{failed}\n")


def _replace(path: Path, function: str, text: str) -> None:
    """Where the module is loaded: whoever has imported the function has the mistake then."""
    loaded = [one for one in sys.modules.values() if getattr(one, "__file__", None) == str(path)]
    code = compile(text, path, "exec", dont_inherit=True)
    for name in function.split("."):
        code = [one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == name][-1]
    for module in loaded:
        found: Any = module
        for name in function.split("."):
            found = vars(found)[name]
        while not hasattr(found, "__code__"):
            found = next(getattr(found, name) for name in ("__wrapped__", "__func__", "fget", "func") if hasattr(found, name))
        found = getattr(found, "__wrapped__", found)
        found.__code__ = code
