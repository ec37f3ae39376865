"""Proves a finding by running it: the flagged code beside its corrected twin, in a sandboxed child whose bytes are counted.

The data goes one way: findings → ``plan`` (what to run) → ``launch`` (a child behind ``sandbox``) → ``worker`` (the only importer of
torch, in the child) → ``results`` → ``verdict`` → ``report``. Next to read: ``worker``.
"""
