"""Closes the file system to this process with its children: Landlock, which needs no privilege, no namespace.

Imported by the child only; stdlib only.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REMOVE_AND_MAKE = 0x1FF << 4  # remove a directory or file; make a device, directory, file, socket, pipe or link
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_SCOPES = 3  # abstract sockets and signals of processes outside


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64), ("handled_access_net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def version() -> int:
    """Which rights the kernel knows (1: Linux 5.13, 3: 6.2, 6: 6.12); 0 where there is no Landlock."""
    known: int = _libc().syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    return max(0, known)


def close_files(readable: Iterable[str] | None, writable: Iterable[str], devices: Iterable[str]) -> None:
    """From now on only files below ``writable`` can be made, changed or removed, only those below ``readable`` read (None: all), and
    ``devices`` written to. Needs ``no_new_privs``. Raises OSError where the kernel has no Landlock."""
    known = version()
    if not known:
        raise OSError(errno.ENOSYS, "the kernel has no Landlock, or it is disabled")
    writing = _WRITE_FILE | _REMOVE_AND_MAKE | (_REFER if known >= 2 else 0) | (_TRUNCATE if known >= 3 else 0)
    reading = 0 if readable is None else _READ_FILE | _READ_DIR
    rules = _Ruleset(writing | reading, 0, _SCOPES if known >= 6 else 0)
    size = 24 if known >= 6 else 8
    ruleset = _checked(_libc().syscall(ctypes.c_long(_CREATE_RULESET), ctypes.byref(rules), ctypes.c_size_t(size), 0))
    try:
        for path in readable or ():
            _allow(ruleset, path, reading)
        for path in devices:
            _allow(ruleset, path, _WRITE_FILE | reading & _READ_FILE)
        for path in writable:
            _allow(ruleset, path, writing | reading)
        _checked(_libc().syscall(ctypes.c_long(_RESTRICT_SELF), ctypes.c_int(ruleset), ctypes.c_uint32(0)))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # what is not there needs no right
        return
    try:
        if not os.path.isdir(path):
            rights &= _READ_FILE | _WRITE_FILE | _TRUNCATE
        rule = _Beneath(rights, descriptor)
        if rights:
            arguments = ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint32(0)
            _checked(_libc().syscall(ctypes.c_long(_ADD_RULE), *arguments))
    finally:
        os.close(descriptor)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"Landlock: {os.strerror(error)}")
    return result
