import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
results = {
    "remount": libc.mount(b"none", b"/usr", None, 32 | 4096, None),
    "unmount": libc.umount2(b"/usr", 2),
    "setuid": libc.setuid(0),
    "mknod": libc.mknod(b"disk", 0o60666, os.makedev(8, 0)),
}
emit({"results": results})
