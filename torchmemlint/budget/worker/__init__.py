"""The side of ``budget`` that runs in a child process, where torch is.

``program`` runs a job under ``measure``; ``tape`` records what is allocated; every other module makes one part of torch, or of the
program's surroundings, answer as it would on CUDA. Stand-ins for what is missing are those of ``confirm.worker.standins``. Next to
read: ``tape``.
"""
