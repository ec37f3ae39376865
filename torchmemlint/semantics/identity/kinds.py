"""What kind of object a class, or what the code calls on an object, shows it to be."""

from __future__ import annotations

from torchmemlint.semantics.state import Kind
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import ClassKind

MODULE_EVIDENCE = TORCH.words["module-evidence"]
STRONG_EVIDENCE = TORCH.words["sure-module-evidence"]
"""Methods that only an ``nn.Module`` has; one of them, or two of the others, make an object a module. (Data sets and metrics
have ``eval`` and ``train`` in some projects, optimizers have ``state_dict``.)"""
TRAINER_WORDS = TORCH.words["trainers"]
"""Methods that a module does not have: an object with one of these has ``eval``/``train`` of its own."""


def looks_like_module(words: frozenset[str]) -> bool:
    """Whether what is called on an object shows that it is an ``nn.Module``. The word "()" says that it is itself called."""
    if words & STRONG_EVIDENCE:
        return True
    if words & TRAINER_WORDS:
        return False
    return len(words & MODULE_EVIDENCE) >= 2 or ("()" in words and bool(words & TORCH.words["evidence-when-called"]))


MADE = {
    **dict.fromkeys(TORCH.words["parameter-classes"], Kind.PARAMETER),
    **dict.fromkeys(TORCH.words["makes-lists"], Kind.LIST),
    **dict.fromkeys(TORCH.words["makes-dicts"], Kind.DICT),
    **dict.fromkeys(TORCH.words["makes-sets"], Kind.SET),
}
"""Absolute name of a class → the kind of its objects, before the table of torch facts is asked."""
KINDS = {
    **{made: kind for made in ClassKind for kind in Kind if str(made) == str(kind)},
    **dict.fromkeys((ClassKind.WRAPPER, ClassKind.LIGHTNING_MODULE, ClassKind.HF_MODEL, ClassKind.EMA), Kind.MODULE),
    ClassKind.MODULE_NOPARAM: Kind.FUNCTION_MODULE,
}
"""What the table says that a class makes → the kind of its objects."""


def class_kind(name: str) -> Kind:
    """The kind of object that a class outside the project makes, ``Kind.THING`` when it is not known."""
    made = MADE.get(name)
    if made is not None:
        return made
    kind = TORCH.class_kind(name)
    return Kind.THING if kind is None else KINDS[kind]
