"""Runs the user's program as Python would, with the hooks in it.

Started with any Python that has torch:

python -m torchmemlint.growth.worker.main OPTIONS.json train.py ARGS      or      … -m package.module ARGS
"""

from __future__ import annotations

import atexit
import io
import json
import os
import runpy
import signal
import sys
import types
from collections.abc import Sequence
from typing import Any, NoReturn

from torchmemlint.growth.worker.flagged import Looks
from torchmemlint.growth.worker.frames import program_is_at
from torchmemlint.growth.worker.running import Running


def main(arguments: Sequence[str]) -> NoReturn:
    """Run the program; the exit status and all that is printed are its own, then comes the report on standard error."""
    options: dict[str, Any] = json.loads(arguments[0])
    program = list(arguments[1:])
    running = Running(options)
    atexit.register(running.report)  # the first one registered is the last one called
    try:
        running.begin()
        _run(program, running.looks)
    except SystemExit as end:
        running.ended(None)
        if running.fails(end.code):
            sys.exit(1)
        raise
    except BaseException as error:
        _strip(error)
        running.ended(error)
        if isinstance(error, KeyboardInterrupt):
            _interrupted(running, error)
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)
    running.ended(None)
    sys.exit(1 if running.fails(0) else 0)


def _run(program: list[str], looks: Looks | None = None) -> None:
    module = types.ModuleType("__main__")
    module.__builtins__ = __builtins__  # type: ignore[attr-defined]
    sys.modules["__main__"] = module
    if program[0] == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = ["-m", *program[2:]]
        runpy._run_module_as_main(program[1])  # type: ignore[attr-defined]
        return
    path = program[0]
    sys.argv = program
    if os.path.isdir(path) or path.endswith((".zip", ".pyz")):
        sys.path[0] = path
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
        return
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    program_is_at(path)
    try:
        with io.open_code(os.path.abspath(path)) as file:
            text = file.read()
    except OSError as error:
        print(
            f"{sys.executable}: can't open file {os.path.abspath(path)!r}: [Errno {error.errno}] {error.strerror}",
            file=sys.stderr,
        )
        sys.exit(2)
    from importlib.machinery import SourceFileLoader

    module.__file__ = path if sys.version_info < (3, 9) else os.path.abspath(path)
    module.__loader__ = SourceFileLoader("__main__", path)
    module.__dict__["__cached__"] = None
    module.__dict__["__annotations__"] = {}
    code = (
        looks.compiled(text, module.__file__)
        if looks is not None
        else compile(text, module.__file__, "exec", dont_inherit=True)
    )
    exec(code, module.__dict__)


def _strip(error: BaseException) -> None:
    """Take our frames out of an error's traceback, and of those that led to it."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = _without_ours(one.__traceback__)
        todo += [one.__cause__, one.__context__]


def _without_ours(trace: types.TracebackType | None) -> types.TracebackType | None:
    while trace is not None and _ours(trace):
        trace = trace.tb_next
    first = trace
    while trace is not None:
        following = trace.tb_next
        while following is not None and _ours(following):
            following = following.tb_next
        trace.tb_next = following
        trace = following
    return first


def _ours(trace: types.TracebackType) -> bool:
    name = str(trace.tb_frame.f_globals.get("__name__", ""))
    return (
        name.startswith("torchmemlint.growth")
        or (name == "runpy" and trace.tb_frame.f_globals is vars(runpy))
        or trace.tb_frame.f_code is _CODE
    )


_CODE = main.__code__


def _interrupted(running: Running, error: KeyboardInterrupt) -> NoReturn:
    """As Python ends at Ctrl-C: the traceback, what is registered for the end, and the signal again."""
    sys.excepthook(type(error), error, error.__traceback__)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    if os.name == "posix":
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(130)


if __name__ == "__main__":
    main(sys.argv[1:])
