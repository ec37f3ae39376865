from __future__ import annotations

import sys


def refuse_without_bytecode() -> None:
    """Raises SystemExit where Python writes no ``.pyc`` files (``PYTHONDONTWRITEBYTECODE``): each run would compile the checkout again,
    half a second that no user pays."""
    if sys.dont_write_bytecode:
        print(
            "unset PYTHONDONTWRITEBYTECODE (or leave out -B): without .pyc files each run compiles the program again",
            file=sys.stderr,
        )
        raise SystemExit(2)
