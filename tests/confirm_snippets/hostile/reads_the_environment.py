import os
try:
    first = open("/proc/1/environ", "rb").read().decode(errors="replace")
except OSError as error:
    first = type(error).__name__
emit({"environment": dict(os.environ), "of_first_process": first})
