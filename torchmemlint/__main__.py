"""``python -m torchmemlint``."""

from torchmemlint.cli import program

if __name__ == "__main__":
    program()
