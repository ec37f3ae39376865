"""What calls do to the state of a run, a file for each kind of callee: tensors, modules, containers, code that is not visible.

They register themselves in ``state.dispatch``. Next to read: ``roots``.
"""

from torchmemlint.semantics.models import calls, tensors, torch_functions
from torchmemlint.semantics.models.definitions import check_decorator
from torchmemlint.semantics.models.functions import run_function, take_body
from torchmemlint.semantics.models.operations import OF_TENSORS, check_handlers
from torchmemlint.semantics.models.unknown_objects import handed_output

__all__ = [
    "OF_TENSORS",
    "calls",
    "check_decorator",
    "check_handlers",
    "handed_output",
    "run_function",
    "take_body",
    "tensors",
    "torch_functions",
]
