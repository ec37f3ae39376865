"""What runs in the child of ``torchmemlint budget``: the only part of it that imports torch."""
