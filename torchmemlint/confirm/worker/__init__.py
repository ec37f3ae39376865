"""The side of ``confirm`` that runs in a child process, where torch is.

``main`` is the child from its job to its last word. Below it stand, in this order, ``experiments`` (what a job asks for), ``harness``
(what a program runs in), ``standins`` (what it lacks), ``program`` (the flagged code, cut out), beside ``meter``, ``graphs`` and
``target``. No module keeps state: what stand-ins of a job share is a ``Stage``, which is made once and handed down. Next to read:
``program``.
"""
