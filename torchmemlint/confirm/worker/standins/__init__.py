"""Objects that stand in for what a cut-out piece of code lacks: decided by use, not by name.

``StandIn`` is container, context manager, loader, module, criterion or number, as it is used. ``StandInTensor`` is a real tensor that
never fails: under ``Bench``, an operation that raises is replaced by a result on the same graph, and counted as a *fallback*. Each forward
of a stand-in saves exactly ``FORWARD_BYTES`` for the backward, so growth divides into graphs. What they share is on a ``Stage``, which
is made once for a job. Next to read: ``worker/harness``.
"""

from torchmemlint.confirm.worker.standins.bench import Bench
from torchmemlint.confirm.worker.standins.fitting import entered
from torchmemlint.confirm.worker.standins.frames import CODE, row_of, row_of_the_code, unpack_count
from torchmemlint.confirm.worker.standins.saved import FILE_BYTES, ON_DEVICE, SavedFile, loaded
from torchmemlint.confirm.worker.standins.stage import FORWARD_BYTES, STEPS, Record, Stage
from torchmemlint.confirm.worker.standins.standin import Guess, StandIn
from torchmemlint.confirm.worker.standins.tensors import StandInTensor, as_standin, data, guess_of, leaves, link_to, marked

__all__ = [
    "CODE",
    "FILE_BYTES",
    "FORWARD_BYTES",
    "ON_DEVICE",
    "STEPS",
    "Bench",
    "Guess",
    "Record",
    "SavedFile",
    "Stage",
    "StandIn",
    "StandInTensor",
    "as_standin",
    "data",
    "entered",
    "guess_of",
    "leaves",
    "link_to",
    "loaded",
    "marked",
    "row_of",
    "row_of_the_code",
    "unpack_count",
]
