"""``python -m torchmemlint``.

Python looks for modules in the current folder first then, and the linted project is often there: its ``json.py`` or ``libcst``
must not be taken for the true one. What Python itself imports before this line is out of reach (SECURITY.md).
"""

import os
import sys


def _forget_current_folder() -> None:
    """Takes out of the path what ``-m`` has put there, unless torchmemlint itself comes from there."""
    here = os.getcwd()
    added = not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)) and sys.path[:1] in ([here], [""])
    if added and os.path.dirname(os.path.dirname(os.path.realpath(__file__))) != os.path.realpath(here):
        del sys.path[0]


if __name__ == "__main__":
    _forget_current_folder()

    from torchmemlint.cli import program

    program()
