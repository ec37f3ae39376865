"""Changes what the experiment's own functions compute, without replacing one of them."""

import torch
from torch import UntypedStorage

first = UntypedStorage.nbytes
UntypedStorage.nbytes = lambda self: first(self) << 20


def run(steps):
    return [torch.zeros(1000) for _ in range(steps)]
