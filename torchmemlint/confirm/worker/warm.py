"""The warm worker: a process that imports torch once, then forks a child for each experiment.

It runs no code of others and reads no job.

It runs no code of others and reads no job.

What comes through its socket are orders: start a child on these three descriptors, in this directory; end that child. What it
answers: which process it is, and how it ended. The child that it forks lets go of the socket first and then is what a fresh one
is: it reads its job, with the key of its answers, from its own standard input, and goes behind the sandbox before code of others
runs. Stdlib only until torch is imported.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping

ORDER_BYTES = 4096
SWEEP_SECONDS = 0.02
"""How often the worker looks whether a child has ended, while it has any."""


def serve(descriptor: int, runners: str, main: Callable[[str], None]) -> None:
    """Obey orders until their sender is gone; then nothing that was forked here lives on."""
    control = socket.socket(fileno=descriptor)
    children: dict[int, int] = {}
    if not _warm_up(runners):
        return
    _answer(control, {"ready": True})
    while True:
        ready, _, _ = select.select([control], [], [], SWEEP_SECONDS if children else None)
        if ready:
            order, descriptors = _heard(control)
            if order is None:
                break
            if "start" in order:
                _start(control, order, descriptors, children, runners, main)
            elif pid := children.get(int(order["end"])):
                _signal(pid, order)
        _sweep(control, children)
    for pid in children.values():
        for group in (False, True):
            _signal(pid, {"signal": int(signal.SIGKILL if group else signal.SIGTERM), "group": group})


def _warm_up(runners: str) -> bool:
    """Import what every child needs; False where a copy of this process could not work."""
    try:
        import torch
    except ImportError:  # a fresh child says so in its own words
        return False
    torch.set_num_threads(1)
    import gc
    import importlib

    loaded = importlib.import_module(runners)
    if hasattr(loaded, "load"):
        loaded.load()
    gc.collect()
    gc.freeze()
    return len(os.listdir("/proc/self/task")) == 1  # what another thread holds, a copy waits for without end


def _heard(control: socket.socket) -> tuple[dict[str, int | str] | None, list[int]]:
    data, ancillary, _, _ = control.recvmsg(ORDER_BYTES, socket.CMSG_SPACE(3 * array.array("i").itemsize))
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    return (json.loads(data) if data else None), list(descriptors)


def _answer(control: socket.socket, answer: dict[str, object]) -> None:
    with contextlib.suppress(OSError):
        control.send(json.dumps(answer).encode())


def _start(
    control: socket.socket,
    order: dict[str, int | str],
    descriptors: list[int],
    children: dict[int, int],
    runners: str,
    main: Callable[[str], None],
) -> None:
    number, work = int(order["start"]), str(order["work"])
    try:
        pid = os.fork()
    except OSError as error:
        pid = -1
        _answer(control, {"started": number, "failed": str(error)})
    if pid == 0:
        try:
            _become(control, descriptors, work)
            main(runners)
        finally:
            os._exit(1)  # never back into the worker's loop
    for descriptor in descriptors:
        os.close(descriptor)
    if pid > 0:
        children[number] = pid
        _answer(control, {"started": number, "pid": pid})


def _become(control: socket.socket, descriptors: list[int], work: str) -> None:
    """What ``subprocess`` would have done for a fresh process."""
    control.close()
    os.setsid()
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
    os.closerange(3, 4096)
    os.chdir(work)
    os.environ.update(HOME=work, TMPDIR=work)
    tempfile.tempdir = None


def _signal(pid: int, order: Mapping[str, int | str]) -> None:
    send = os.killpg if order.get("group") else os.kill
    with contextlib.suppress(ProcessLookupError, PermissionError):
        send(pid, int(order["signal"]))


def _sweep(control: socket.socket, children: dict[int, int]) -> None:
    for number, pid in list(children.items()):
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            del children[number]
            resident = usage.ru_maxrss if sys.platform == "darwin" else usage.ru_maxrss << 10
            _answer(control, {"ended": number, "status": os.waitstatus_to_exitcode(status), "resident": resident})
