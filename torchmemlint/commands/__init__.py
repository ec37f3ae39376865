"""What each command of ``torchmemlint`` does with its parsed arguments: one file each, ``run(arguments) -> exit status``."""
