"""Shuts the running process in before it touches code of others.

Imported by the child only; stdlib only.

On Linux, where the kernel allows it: new mount, PID, network, IPC and UTS namespaces (and a user namespace when not
root), a root
file system that holds nothing but the interpreter, torch, the system's libraries (all read-only) and one writable
directory in memory, a fresh
``/proc``, no capability, no way to regain one. A process limit binds because root becomes a user id that nobody else has.
Where namespaces are forbidden, Landlock closes the file system and a filter of system calls the rest, with an audit hook above
them that says in Python's words what is refused. Where there is neither, nothing is run unasked.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torchmemlint.confirm import landlock, syscalls

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 1, 38, 24, 47, 4
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
SYS_MOUNT_SETATTR = 442
SYS_KEYCTL = {"x86_64": 250, "aarch64": 219}
KEYCTL_JOIN_SESSION_KEYRING = 1
AT_RECURSIVE, MOUNT_ATTR_RDONLY = 0x8000, 1

SYSTEM_DIRECTORIES = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/gnu", "/sys")
SYSTEM_FILES = (
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime", "/etc/OpenCL",
)  # fmt: skip
PRIVATE_LEVELS = 4
"""How deep a directory that only root may enter is opened entry by entry: as far as an environment's ``site-packages``."""
MOST_ENTRIES = 4_000
"""Of a directory to be opened so: each entry is a mount, and a namespace holds 100,000."""

UNLIMITED = "namespaces, without a process limit"
"""The note when the files that the code needs are root's alone: the child stays root then, whom no process limit binds."""

NAMESPACES, LANDLOCK = "namespaces", "landlock"
UNFILTERED = ", without a filter of system calls"
"""What is added where the kernel has none."""

DEVICES = ("null", "zero", "full", "random", "urandom")
ACCELERATORS = ("nvidia", "kfd", "dri", "dxg")


@dataclass(frozen=True, slots=True)
class Limits:
    """What the child may use. ``address_space_bytes`` is 0 where a device maps more memory than it uses (CUDA)."""

    cpu_seconds: int = 60
    file_bytes: int = 64 << 20
    processes: int = 64
    address_space_bytes: int = 8 << 30


def first_to_go() -> None:
    """Where memory runs out, the kernel shall end this process and its children before any other: each of them may have its
    limit's bytes, and all of them together more than there is."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def end_with_parent() -> None:
    """On Linux, this process ends with the one that started it, also where nothing shuts it in."""
    if sys.platform.startswith("linux"):
        _libc().prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Unavailable(OSError):
    """The platform does not give what the sandbox needs."""


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise Unavailable(error, f"{what}: {os.strerror(error)}")


def _mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    _check(
        _libc().mount(
            source.encode(), target.encode(), kind.encode() if kind else None, ctypes.c_ulong(flags), data.encode() or None
        ),
        f"mount {target}",
    )


def _public(path: str) -> bool:
    """Whether a stranger may read this file or directory (what is not there stands in nobody's way)."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return True
    wanted = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
    return mode & wanted == wanted


def _stranger_can_read(paths: Sequence[str]) -> bool:
    """Whether a stranger may come to every path, and read it where it is a package: only then can root become one."""
    for path in (os.path.realpath(path) for path in paths):
        if not _public(path) or not _public(os.path.join(path, "__init__.py")):
            return False
        while path != os.path.dirname(path):
            path = os.path.dirname(path)
            if not os.stat(path).st_mode & stat.S_IXOTH:
                return False
    return True


def enter(readable: Sequence[str], work: str, limits: Limits, device: bool) -> str:
    """Shut this process in and return how: ``"namespaces"``, or ``UNLIMITED`` where root had to stay root. Forks: the caller
    goes on in the child, as PID 1 of its own world.

    ``readable`` are directories that the code needs (prefixes, ``sys.path``); ``work`` is the one writable directory;
    ``device`` lets
    accelerators in. Raises Unavailable, with nothing changed that matters, when namespaces cannot be had.
    """
    if not sys.platform.startswith("linux") or os.uname().machine not in SYS_PIVOT_ROOT:
        raise Unavailable("namespaces need Linux on x86-64 or arm64")
    libc = _libc()
    uid, gid = os.getuid(), os.getgid()
    flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
    if uid == 0:
        _check(libc.unshare(flags), "unshare")
    else:
        _check(libc.unshare(flags | CLONE_NEWUSER), "unshare")
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    _become_first_process(libc)
    _new_root(readable, work, device, open_private=uid == 0)
    _forbid_privileges(libc)
    stranger = uid == 0 and _stranger_can_read(readable)
    if stranger:
        # an id of its own: as root a process limit does not bind
        alone = 0x40000000 + os.getpid() + int.from_bytes(os.urandom(3), "big")
        if not device:  # the groups may be what opens /dev/kfd or /dev/dri
            os.setgroups([])
        os.setgid(alone)
        os.setuid(alone)
    _drop_capabilities(libc)
    leave_keyrings(libc)
    filtered = True
    try:
        syscalls.restrict(syscalls.NEVER)
    except OSError:
        filtered = False
    set_limits(limits)
    return (UNLIMITED if uid == 0 and not stranger else NAMESPACES) + ("" if filtered else UNFILTERED)


def close_in(readable: Sequence[str], work: str, limits: Limits, device: bool) -> str:
    """Where namespaces are forbidden: shut this process in by Landlock and a filter of system calls, and return ``"landlock"``. Files
    outside ``work`` cannot be changed, those outside ``readable`` and the system's not read; there is no network, and no process of
    others to signal or look into. With ``device``, all files can be read and sockets made, as drivers want. Raises OSError."""
    if not sys.platform.startswith("linux"):
        raise Unavailable("Landlock needs Linux")
    libc = _libc()
    leave_keyrings(libc)
    _forbid_privileges(libc)
    _drop_capabilities(libc)
    open_to_all = [*SYSTEM_DIRECTORIES, *SYSTEM_FILES, *readable, *(f"/dev/{name}" for name in DEVICES), "/proc"]
    accelerators = [f"/dev/{name}" for name in os.listdir("/dev") if name.startswith(ACCELERATORS)] if device else []
    landlock.close_files(None if device else open_to_all, [work], ["/dev/null", *accelerators])
    syscalls.restrict((*syscalls.NEVER, *syscalls.OUTSIDE, *(() if device else syscalls.NETWORK)), only_itself=True)
    set_limits(limits)
    return LANDLOCK


def leave_keyrings(libc: ctypes.CDLL) -> None:
    """A session's keys are handed on by ``fork`` and ``exec``: join a new keyring, which is empty."""
    number = SYS_KEYCTL.get(os.uname().machine)
    if number is not None:  # a kernel without keys, or a filter that forbids them, keeps none of them here
        libc.syscall(ctypes.c_long(number), ctypes.c_long(KEYCTL_JOIN_SESSION_KEYRING), None)


def resident_bytes() -> int:
    """The most memory that this process ever had, as the kernel says; 0 where it does not."""
    try:
        resource = importlib.import_module("resource")
    except ImportError:  # Windows
        return 0
    most = int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return most if sys.platform == "darwin" else most << 10


def _become_first_process(libc: ctypes.CDLL) -> None:
    """Fork into the new PID namespace; the outer process waits, hands on the exit status, and kills the inner one when
    it is asked to end."""
    inner = os.fork()
    if inner == 0:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.setsid()  # its own process group: kill(0) must not reach out
        return

    def end(signum: int, frame: object) -> None:
        os.kill(inner, signal.SIGKILL)

    signal.signal(signal.SIGTERM, end)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    for descriptor in range(0, 64):  # the pipes belong to the inner process: their end must mean its end
        try:
            os.close(descriptor)
        except OSError:
            continue
    _, status = os.waitpid(inner, 0)
    os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def _new_root(readable: Sequence[str], work: str, device: bool, open_private: bool) -> None:
    os.umask(0o022)  # the directories made here have to let a stranger through
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    root = work  # an empty directory of ours: covered by the new root until it is the root itself
    _mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=256m,mode=0755")
    wanted = dict.fromkeys([*SYSTEM_DIRECTORIES, *SYSTEM_FILES, *readable])
    for path in wanted:
        real = os.path.realpath(path)
        if not os.path.exists(real) or real == "/":
            continue
        if open_private:
            _expose(real, root + real, PRIVATE_LEVELS)
        else:
            _bind(real, root + real)
        if os.path.normpath(path) != real and not os.path.lexists(root + path):
            os.makedirs(os.path.dirname(root + path), exist_ok=True)
            os.symlink(real, root + path)
    os.makedirs(root + "/dev", exist_ok=True)
    names = list(DEVICES)
    if device:
        names += [name for name in os.listdir("/dev") if name.startswith(ACCELERATORS)]
    for name in names:
        if os.path.exists(f"/dev/{name}"):
            _bind(f"/dev/{name}", f"{root}/dev/{name}")
    # everything so far is to be read only; what is mounted after this line may be written
    _read_only(root)
    for directory, size in ((root + "/dev/shm", "64m"), (root + work, "128m")):
        _mount("tmpfs", directory, "tmpfs", MS_NOSUID | MS_NODEV, f"size={size},mode=0777")
    _mount("proc", root + "/proc", "proc", MS_NOSUID | MS_NODEV)
    os.chdir(root)
    number = SYS_PIVOT_ROOT[os.uname().machine]
    # pivot_root(".", ".") stacks the old root on the new one: the detach uncovers it (pivot_root(2), "Notes")
    _check(_libc().syscall(ctypes.c_long(number), b".", b"."), "pivot_root")
    _check(_libc().umount2(b".", MNT_DETACH), "umount the old root")
    os.chdir(work)


def _expose(source: str, target: str, levels: int) -> None:
    """Bind ``source``; of a directory that is closed to others (an environment made in a ``mktemp -d``) the entries, in a
    directory that is open. What is closed further down than ``levels`` stays so."""
    entries = [] if levels == 0 or _public(source) or not os.path.isdir(source) else list(os.scandir(source))
    if not 0 < len(entries) <= MOST_ENTRIES:
        _bind(source, target)
        return
    os.makedirs(target, exist_ok=True)
    for entry in entries:
        there = os.path.join(target, entry.name)
        if not entry.is_symlink():
            _expose(entry.path, there, levels - 1)
        elif not os.path.lexists(there):
            os.symlink(os.readlink(entry.path), there)


def _bind(source: str, target: str) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.lexists(target):
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
    _mount(source, target, None, MS_BIND | MS_REC)


def _read_only(root: str) -> None:
    for name in ("dev/shm", "proc"):
        os.makedirs(f"{root}/{name}", exist_ok=True)
    os.makedirs(root + root, exist_ok=True)
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY, 0, 0, 0)
    done = _libc().syscall(
        ctypes.c_long(SYS_MOUNT_SETATTR),
        ctypes.c_long(-1),
        root.encode(),
        ctypes.c_long(AT_RECURSIVE),
        attributes,
        ctypes.c_long(32),
    )
    if done == 0:
        return
    # before Linux 5.12: one remount for each mount point, keeping the flags that a user namespace may not clear
    with open("/proc/self/mountinfo") as file:
        points = [line.split()[4].replace("\\040", " ") for line in file]
    for point in points:
        if point == root or point.startswith(root + "/"):
            kept = os.statvfs(point).f_flag & (MS_NOSUID | MS_NODEV | 8 | 1024 | 2048)
            _mount("none", point, None, MS_REMOUNT | MS_BIND | MS_RDONLY | kept)


def _forbid_privileges(libc: ctypes.CDLL) -> None:
    _check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for capability in range(64):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _check(libc.capset(header, nothing), "capset")


def set_limits(limits: Limits) -> None:
    """Bind this process and its children; a limit that the platform lacks is left out."""
    try:
        resource = importlib.import_module("resource")
    except ImportError:  # Windows
        return
    wanted = [
        ("RLIMIT_CPU", limits.cpu_seconds),
        ("RLIMIT_FSIZE", limits.file_bytes),
        ("RLIMIT_NPROC", limits.processes),
        ("RLIMIT_NOFILE", 1024),
        ("RLIMIT_CORE", 0),
        ("RLIMIT_AS", limits.address_space_bytes),
    ]
    for name, value in wanted:
        kind = getattr(resource, name, None)
        if kind is None or (value == 0 and name == "RLIMIT_AS"):
            continue
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


WALLS: Mapping[str, Callable[[Sequence[str], str, Limits, bool], str]] = {NAMESPACES: enter, LANDLOCK: close_in}
"""What shuts a process in, the best first."""

REFUSED = (
    "socket.",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.spawn",
    "os.startfile",
    "os.kill",
    "os.killpg",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
    "os.chown",
    "os.putenv",
    "os.mkdir",
    "shutil.",
    "ctypes.",
    "winreg.",
    "urllib.",
    "ftplib.",
    "smtplib.",
    "webbrowser.",
    "pty.spawn",
    "sqlite3.connect",
    "signal.pthread_kill",
)
PATH_EVENTS = ("os.remove", "os.rename", "os.rmdir", "os.truncate", "os.chmod", "os.mkdir", "os.link", "os.symlink", "shutil.")


def fasten_seat_belt(work: str, closed: Sequence[str] = REFUSED) -> None:
    """Install the audit hook that says what is refused; it cannot be taken off, but code that means harm can go round it: what
    holds is behind it."""
    inside = os.path.realpath(work) + os.sep

    def within(path: object) -> bool:
        return isinstance(path, (str, bytes)) and (os.path.realpath(os.fsdecode(path)) + os.sep).startswith(inside)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments[0], arguments[1], arguments[2]
            writes = isinstance(mode, str) and any(letter in mode for letter in "wax+")
            if isinstance(flags, int):
                writes = writes or bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
            if writes and not isinstance(path, int) and not within(path) and path != os.devnull:
                raise PermissionError(f"confirm: writing to {path!r} is not allowed")
        elif event.startswith(tuple(closed)):
            if event.startswith(PATH_EVENTS) and all(within(item) for item in arguments if isinstance(item, (str, bytes))):
                return
            raise PermissionError(f"confirm: {event} is not allowed")

    sys.addaudithook(hook)
