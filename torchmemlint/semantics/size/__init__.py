"""How large a network is, by the code that makes it, followed with the numbers that it is given.

``constructors`` follows; ``weights`` has the bound from above and ``estimate`` the guess. Next to read: ``rules/cost``.
"""

from torchmemlint.semantics.size.constructors import assignments
from torchmemlint.semantics.size.estimate import estimate_of
from torchmemlint.semantics.size.layer_kinds import WIDE, is_class_of_dense, is_made_of_dense, is_one_layer
from torchmemlint.semantics.size.weights import sizes_of, weights_of

__all__ = [
    "WIDE",
    "assignments",
    "estimate_of",
    "is_class_of_dense",
    "is_made_of_dense",
    "is_one_layer",
    "sizes_of",
    "weights_of",
]
