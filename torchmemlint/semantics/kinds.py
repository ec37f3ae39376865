"""What kind of object a class, or what the code calls on an object, shows it to be."""

from __future__ import annotations

from torchmemlint.index.facts import FunctionFacts
from torchmemlint.torch_facts import TORCH

MODULE_EVIDENCE = frozenset(
    {
        "eval", "parameters", "named_parameters", "state_dict", "load_state_dict", "zero_grad", "requires_grad_", "modules",
        "named_modules", "train", "children", "named_children", "buffers",
    }
)  # fmt: skip
STRONG_EVIDENCE = frozenset({"parameters", "named_parameters", "named_modules", "named_children", "named_buffers"})
"""Methods that only an ``nn.Module`` has; one of them, or two of the others, make an object a module. (Data sets and metrics
have ``eval`` and ``train`` in some projects, optimizers have ``state_dict``.)"""
TRAINER_WORDS = frozenset({"fit", "predict", "score", "transform", "step", "backward"})
"""Methods that a module does not have: an object with one of these has ``eval``/``train`` of its own."""
PROPERTIES = frozenset({"property", "cached_property", "abstractproperty"})


def looks_like_module(words: frozenset[str]) -> bool:
    """Whether what is called on an object shows that it is an ``nn.Module``. The word "()" says that it is itself called."""
    if words & STRONG_EVIDENCE:
        return True
    if words & TRAINER_WORDS:
        return False
    return len(words & MODULE_EVIDENCE) >= 2 or (
        "()" in words and bool(words & {"eval", "train", "state_dict", "load_state_dict"})
    )


def class_kind(name: str) -> str:
    """The kind of object that a class outside the project makes, "thing" when it is not known."""
    kind = TORCH.class_kind(name)
    if name == "torch.nn.Module":
        return "module"
    if name in ("torch.nn.Parameter", "torch.nn.parameter.Parameter"):
        return "parameter"
    if kind is None:
        if name in ("builtins.list", "builtins.dict", "builtins.set"):
            return name[9:]
        if name in ("collections.defaultdict", "collections.OrderedDict", "collections.Counter"):
            return "dict"
        if name == "collections.deque":
            return "list"
        return "thing"
    if kind in ("module", "wrapper", "lightning-module", "hf-model", "ema"):
        return "module"
    return "function-module" if kind == "module-noparam" else kind


def is_property(facts: FunctionFacts) -> bool:
    """Whether a method is read as an attribute, without a call."""
    return any(use.callee.rpartition(".")[2] in PROPERTIES for use in facts.decorators)
