"""Run a program under a limit on its memory: `python limited.py GIB SCRIPT`. Stands in for a small GPU on any Linux machine."""

import resource
import subprocess
import sys


def main():
    gib, script = float(sys.argv[1]), sys.argv[2]
    size = int(gib * 2**30)
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size))  # noqa: E731
    return subprocess.run([sys.executable, script], preexec_fn=limit, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
