"""Packages that call code of ours only in the grad mode in which they are called."""

from __future__ import annotations

import sys

from torchmemlint.torch_facts import TORCH

_QUIET_PACKAGES = frozenset(sys.stdlib_module_names) | TORCH.words["quiet-packages"]


def is_quiet(name: str) -> bool:
    """Whether what bears the absolute name ``name`` comes from a package that calls code of ours without touching grad mode.

    Of torch itself that is true as well, except for what ``torch_facts`` says.
    """
    return name.partition(".")[0] in _QUIET_PACKAGES
