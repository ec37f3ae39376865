"""Writes files until nothing more goes in."""

import os

written = 0
try:
    for number in range(100_000):
        with open(f"file{number}", "wb") as file:
            for _ in range(60):
                file.write(bytes(1 << 20))
                file.flush()
                written += 1
except OSError as error:
    emit({"written_mib": written, "refused": type(error).__name__, "left": os.statvfs(".").f_bavail})
