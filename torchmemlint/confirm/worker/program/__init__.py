"""The flagged code as a program to watch: cut out of its file, on its own rows.

The standard library's ``ast`` is used, not libcst: the result is only executed, and a compiled ``ast`` keeps the file's own row
numbers, so that an exception names the user's line. Needs no torch.

What is done to the flagged function: each simple statement is guarded (an exception is noted, its targets become stand-ins), loops
around the flagged line run a fixed number of steps and are sampled at their head, exits from the sampled loop are left out, and the
flagged value passes through a probe, which in the corrected variant also corrects it. Next to read: ``worker/standins``.
"""

from torchmemlint.confirm.worker.program.ask import HARNESS
from torchmemlint.confirm.worker.program.probes import OF_FORWARDS
from torchmemlint.confirm.worker.program.programs import definitions, plain, sliced, whole
from torchmemlint.confirm.worker.program.site import Flaw, Place, Site, left_before, locate, place_of, way_out
from torchmemlint.confirm.worker.program.visible import modules_of, over_parameters, set_later

__all__ = [
    "HARNESS",
    "OF_FORWARDS",
    "Flaw",
    "Place",
    "Site",
    "definitions",
    "left_before",
    "locate",
    "modules_of",
    "over_parameters",
    "place_of",
    "plain",
    "set_later",
    "sliced",
    "way_out",
    "whole",
]
