"""``torchmemlint run``: what grows in the user's own run, by who keeps it at which line.

command.py     the command line; it becomes the user's program (``exec``), so the exit status and the signals are the program's own
worker/        what runs in that process; it imports torch only after the program has
report.py      the report, in a process of its own: joins what grew with the linter's findings
words.py       the report in words
watching.py    ``torchmemlint.watching()``, for notebooks and servers
"""
