"""``python -m torchmemlint``."""

import sys

from torchmemlint.cli import main

if __name__ == "__main__":
    sys.exit(main())
