"""Proves a finding by running it: the flagged code and its corrected twin, in a sandboxed child process, with the bytes
counted.

The data goes one way: findings → ``plan`` (what to run, cut out by ``cut``) → ``launch`` (a fresh child behind ``sandbox``)
→ ``worker`` (the only importer of torch; stand-ins and the meter) → ``verdict`` → ``report``. ``watch`` is the second
way in: it runs
the user's own script, and only looks.
"""
