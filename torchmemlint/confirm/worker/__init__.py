"""The side of `confirm` that runs in a child process: the only package of torchmemlint that imports torch."""
