"""The report of a run, in a process of its own: ``python -m torchmemlint.growth.report`` reads the run's data from standard input."""

from __future__ import annotations

import json
import sys

from torchmemlint.growth import words


def main() -> int:
    """Print the report."""
    given = json.load(sys.stdin)
    sys.stderr.write(words.full(given["data"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
