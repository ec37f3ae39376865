"""All rules, in code order.

``ALL_RULES`` are the cards; the modules behind them are imported by ``modules()`` only when files are checked, so that
``--help`` and ``--select`` stay quick.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchmemlint.rules.api import Rule

MODULES = (
    "run.unparsable_file",
    "run.internal_error",
    "retention.graph_attached_running_total",
    "retention.graph_attached_tensor_stored",
    "retention.graph_attached_tensor_recorded",
    "retention.undetached_recurrent_state",
    "gradmode.inference_with_grad",
    "gradmode.ineffective_no_grad",
    "gradmode.frozen_model_with_grad",
    "retention.half_detached_result",
    "allocator.empty_cache_in_loop",
    "allocator.empty_cache_with_live_tensors",
    "allocator.recovery_inside_oom_handler",
    "allocator.oom_matched_by_message",
    "allocator.memory_fraction_as_remedy",
    "allocator.memory_fraction_misused",
    "allocator.memory_fraction_cap",
    "device.outputs_accumulated_on_device",
    "device.view_keeps_storage",
)
"""One module a rule, in code order, below this package."""


def modules() -> tuple[ModuleType, ...]:
    """The rule modules: each has ``RULE``, and those that look at events ``EVENT`` and ``check``."""
    return tuple(import_module(f"{__name__}.{name}") for name in MODULES)


def page(code: str) -> str:
    """The page of a rule: its module's docstring. Raises KeyError for an unknown code."""
    for module in modules():
        if module.RULE.code == code:
            return str(module.__doc__)
    raise KeyError(code)


ALL_RULES: tuple[Rule, ...]


def __getattr__(name: str) -> tuple[Rule, ...]:
    if name == "ALL_RULES":
        return tuple(module.RULE for module in modules())
    raise AttributeError(name)
