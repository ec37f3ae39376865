"""Takes system calls away from this process with its children: a seccomp filter.

Imported by the child only; stdlib only.

No new namespaces (a nested user namespace opens the kernel's most attacked code to everybody), no mounts, no keyrings, no other
process's memory, no io_uring (whose requests no filter sees).
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable, Mapping

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
NEW_NAMESPACES = 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000
NEW_TIME_NAMESPACE = 0x80
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_X32_CALLS = 0x40000000

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X86, _ARM = 0, 1
# name → its number on x86-64 and on arm64, None where there is none; from 424 on they are the same everywhere
_CALLS: Mapping[str, tuple[int | None, int | None]] = {
    "clone": (56, 220), "clone3": (435, 435), "unshare": (272, 97), "setns": (308, 268),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "socket": (41, 198), "truncate": (76, 45),
    "chmod": (90, None), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None), "lchown": (94, None),
    "fchownat": (260, 54), "setxattr": (188, 5), "lsetxattr": (189, 6), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
}  # fmt: skip

NEVER = (
    "setns", "mount", "umount2", "pivot_root", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick",
    "mount_setattr", "add_key", "request_key", "keyctl", "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "bpf",
    "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
)  # fmt: skip
"""What no experiment needs."""
OUTSIDE = (
    "truncate", "chmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchownat", "setxattr", "lsetxattr", "removexattr",
    "lremovexattr", "utime", "utimes", "futimesat", "utimensat", "kill", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo",
    "pidfd_send_signal",
)  # fmt: skip
"""What reaches files and processes of the host where no namespace hides them, and Landlock has (or once had) no right for."""
NETWORK = ("socket",)


def number_of(name: str) -> int | None:
    """A system call's number on this machine."""
    return _CALLS[name][_X86 if os.uname().machine == "x86_64" else _ARM]


def restrict(names: Iterable[str], only_itself: bool = False) -> None:
    """From now on these system calls fail with EPERM, and so does whatever makes a namespace; with ``only_itself`` a thread of
    another process cannot be signalled. Needs no privilege, but ``no_new_privs``. Raises OSError where the kernel has no filters."""
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, "a filter for system calls needs x86-64 or arm64")
    denied = _ERRNO | errno.EPERM
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, ARCHITECTURES[machine]), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
        (_LOAD, 0, 0, _NUMBER),
    ]  # fmt: skip
    if machine == "x86_64":
        program += [(_AT_LEAST, 0, 1, _X32_CALLS), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for number in (number_of(name) for name in names):
        if number is not None:
            program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, denied)]
    # clone3 has its flags in memory, which no filter reads: the C library falls back on clone
    program += [(_EQUAL, 0, 1, number_of("clone3") or 0), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for name, flags in (("clone", NEW_NAMESPACES), ("unshare", NEW_NAMESPACES | NEW_TIME_NAMESPACE)):
        program += [
            (_EQUAL, 0, 4, number_of(name) or 0), (_LOAD, 0, 0, _FIRST_ARGUMENT), (_ANY_BIT, 0, 1, flags), (_RETURN, 0, 0, denied),
            (_RETURN, 0, 0, _ALLOW),
        ]  # fmt: skip
    if only_itself:
        program += [
            (_EQUAL, 0, 3, number_of("tgkill") or 0), (_LOAD, 0, 0, _FIRST_ARGUMENT), (_EQUAL, 1, 0, os.getpid()),
            (_RETURN, 0, 0, denied),
        ]  # fmt: skip
    program.append((_RETURN, 0, 0, _ALLOW))
    _install(program)


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction)))


def _install(program: list[tuple[int, int, int, int]]) -> None:
    instructions = (_Instruction * len(program))(*(_Instruction(*one) for one in program))
    whole = _Program(len(program), instructions)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(whole), 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"seccomp: {os.strerror(error)}")
