"""System calls that reach out of the process, by their numbers."""

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)


def call(*arguments):
    """The error's name, or what came back."""
    ctypes.set_errno(0)
    result = libc.syscall(*(ctypes.c_long(item) if isinstance(item, int) else item for item in arguments))
    return os.strerror(ctypes.get_errno()) if result < 0 else result


X86 = os.uname().machine == "x86_64"
KEYCTL, UNSHARE, CLONE, SOCKET = (250, 272, 56, 41) if X86 else (219, 97, 220, 198)
results = {
    "unshare user": call(UNSHARE, 0x10000000),
    "unshare mount": call(UNSHARE, 0x20000),
    "clone user": call(CLONE, 0x10000000 | 17, 0, 0, 0, 0),
    "clone3": call(435, 0, 0),
    "session keys": call(KEYCTL, 11, -3, 0, 0),
    "user keys": call(KEYCTL, 11, -4, 0, 0),
    "io_uring": call(425, 8, ctypes.create_string_buffer(256)),
    "signal": call(62 if X86 else 129, PARENT, 0),
    "thread": call(234 if X86 else 131, PARENT, PARENT, 0),
    "chmod": call(268 if X86 else 53, -100, TARGET.encode(), 0o777),
    "truncate": call(76 if X86 else 45, TARGET.encode(), 0),
    "socket": call(SOCKET, 2, 1, 0),
}
child = os.fork() if FORK else None  # a plain copy is no namespace
if child == 0:
    os._exit(0)
if child:
    results["fork"] = os.waitpid(child, 0)[1]
emit({"results": results})
