"""Closes every pipe, as if it had ended, and goes on in a process of its own session."""

import ctypes
import os
import time

ctypes.CDLL(None).prctl(15, MARK.encode())
os.setsid() if os.getpid() != os.getsid(0) else None
if os.fork() == 0:
    os.setsid()
    os.closerange(0, 200)
    time.sleep(600)
    os._exit(0)
os.closerange(0, 200)
time.sleep(600)
