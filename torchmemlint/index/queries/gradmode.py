"""Questions about grad mode and gradients."""

from __future__ import annotations

import re

from torchmemlint.index.fact_words import ResultUse
from torchmemlint.index.facts import CallableUse
from torchmemlint.index.grad_effects import GradEffect
from torchmemlint.index.linked import Linked
from torchmemlint.index.modes import CallerMode
from torchmemlint.index.references import TOP, ClassRef, FunctionRef
from torchmemlint.torch_facts import TORCH

_MANY, _FEW = 5, 50
"""One class in so many takes gradients in its forward: in a package about such models, and in one where a model may be one."""
_LOSS = re.compile(r"loss|penalty|regulari|criterion", re.IGNORECASE)


def grad_mode(linked: Linked, ref: FunctionRef) -> CallerMode:
    """The grad mode in which the function's body starts."""
    return linked.grad.grad_mode(ref)


def is_test(linked: Linked, ref: FunctionRef) -> bool:
    """Whether a function is a unit test or part of one, by its file's place and content."""
    return linked.starts.is_test(ref)


def test_holds(linked: Linked, ref: FunctionRef, test: str) -> bool | None:
    """How a test of a parameter comes out under every visible caller; None where that is not known, or not one answer."""
    return linked.starts.test_holds(ref, test)


def asked_with_grad(linked: Linked, ref: FunctionRef, test: str) -> bool:
    """Whether some visible call for which a test of a parameter surely holds runs with grad mode on."""
    return linked.grad.asked_with_grad(ref, test)


def manager_effect(linked: Linked, path: str, qualname: str, use: CallableUse) -> GradEffect | None:
    """What a with item or statement does to grad mode, None for nothing."""
    return linked.effects.manager_effect(path, qualname or TOP, use)


def decorator_effect(linked: Linked, path: str, scope: str, use: CallableUse) -> GradEffect | None:
    """What a decorator, standing in the function ``scope`` ("": module level), does to the body under it."""
    return linked.effects.decorator_effect(path, scope or TOP, use)


def driven_without_grad(linked: Linked, ref: ClassRef) -> bool:
    """Whether a file of the class's top package that has ``torch.set_grad_enabled(False)`` as a statement calls a method of that
    name as one of the class: objects that it does not know the class of may be of this one."""
    layout = linked.names.layout
    top = layout.top_package(ref.path)
    switching = {
        site.path
        for site, call in linked.calls.tables.calls(TORCH.names["sets-grad-mode"])
        if call.used is ResultUse.DROPPED
        and [arg.const for arg in call.args] == ["False"]
        and layout.top_package(site.path) == top
    }
    if not switching:
        return False
    classes = [base for base in linked.classes.mro(ref) if isinstance(base, ClassRef)]
    methods = {method.rpartition(".")[2] for base in classes for method in linked.reader.methods_of(base)}
    return any(
        site.path in switching
        for name in sorted(methods)
        if not name.startswith("__")
        for site, _ in linked.calls.tables.calls(name)
    )


def differentiates(linked: Linked, ref: ClassRef) -> bool:
    """Whether a class's own forward takes gradients (the forces of an energy), itself or in what it calls."""
    return linked.classes.method(ref, TORCH.names["forward"]) in linked.differentiating.answer("")


def differentiates_often(linked: Linked, path: str) -> bool:
    """Whether the forward of some class in the top package or the folder of a file, or in a folder beside it, takes gradients, of
    a package that is about such models. Losses, by their names, are left aside."""
    return _differentiates_near(linked, path, _MANY)


def differentiates_somewhere(linked: Linked, path: str) -> bool:
    """The same of a package where a model may be such a one."""
    return _differentiates_near(linked, path, _FEW)


def _may_be_module(linked: Linked, method: FunctionRef) -> bool:
    """Whether the class of a method is below one that is not of the project: else it is no network, as what explains one."""
    cls = ClassRef(method.path, method.qualname.rpartition(".")[0])
    return any(isinstance(base, str) and base != "object" for base in linked.classes.mro(cls))


def _differentiates_near(linked: Linked, path: str, of_so_many: int) -> bool:
    layout = linked.names.layout
    found = [each for each in linked.differentiating.answer("") if not _LOSS.search(each.qualname.partition(".")[0])]
    near = [each for each in found if layout.near(each.path, path) or layout.beside(each.path, path)]
    near = [each for each in near if _may_be_module(linked, each)]
    top = layout.top_package(path)
    everyone = linked.calls.tables.named(TORCH.names["forward"]) if near else ()
    forwards = sum(layout.top_package(ref.path) == top or layout.beside(ref.path, path) for ref in everyone)
    return bool(near) and len(near) * of_so_many >= forwards
