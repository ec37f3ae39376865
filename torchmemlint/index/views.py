"""Views of one module's facts: functions by name, classes by name, what it binds."""

from __future__ import annotations

from collections.abc import Sequence

from torchmemlint.index.fact_words import ResultUse
from torchmemlint.index.facts import CallFact, ClassFacts, FunctionFacts, ModuleFacts
from torchmemlint.index.references import TOP
from torchmemlint.torch_facts import TORCH


def by_qualname(functions: Sequence[FunctionFacts]) -> dict[str, FunctionFacts]:
    """By name; of several definitions the last, but of a property its getter."""
    found: dict[str, FunctionFacts] = {}
    for facts in functions:
        accessor = any(use.callee.endswith((".setter", ".deleter", ".getter")) for use in facts.decorators)
        if not (accessor and facts.qualname in found):
            found[facts.qualname] = facts
    return found


def functions_of(module: ModuleFacts) -> dict[str, FunctionFacts]:
    return by_qualname(module.functions)


def classes_of(module: ModuleFacts) -> dict[str, ClassFacts]:
    return {facts.qualname: facts for facts in module.classes}


def methods_of(module: ModuleFacts) -> dict[str, tuple[str, ...]]:
    """The qualified names of each class's own methods, in the order of the file, all definitions of each."""
    found: dict[str, list[str]] = {}
    for facts in module.functions:
        if facts.owner:
            found.setdefault(facts.owner, []).append(facts.qualname)
    return {owner: tuple(methods) for owner, methods in found.items()}


def imports_of(module: ModuleFacts) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, target in module.imports:
        found.setdefault(name, []).append(target)
    return found


def assigned_of(module: ModuleFacts) -> dict[str, str]:
    return dict(module.assigned)


def star_imports(module: ModuleFacts) -> list[str]:
    """What a module imports all names from."""
    return [target for name, target in module.imports if name[0] == "*"]


def bound_names(module: ModuleFacts) -> set[str]:
    """The names that a module binds itself."""
    found = {facts.qualname for facts in module.functions} | {facts.qualname for facts in module.classes}
    found.update(name for name, _ in (*module.imports, *module.assigned))
    return {name for name in found if "." not in name}


def calls_backward(facts: FunctionFacts) -> bool:
    return any(call.callee.rpartition(".")[2] in TORCH.words["back-propagates"] for call in facts.calls)


def inside(functions: dict[str, FunctionFacts], qualname: str) -> dict[str, FunctionFacts]:
    """Of a module's functions one, and all that are inside it."""
    below = f"{qualname}."
    return {name: facts for name, facts in functions.items() if name == qualname or name.startswith(below)}


def has_tests(module: ModuleFacts) -> bool:
    """Whether a module has unit tests by its names or imports, or serves them: it has no class of its own, and does nothing by itself."""
    names = [facts.qualname.rpartition(".")[2] for facts in module.functions]
    names += [facts.qualname.rpartition(".")[2] for facts in module.classes]
    found = any(name.startswith(("test_", "Test")) for name in names) or imports_tests(module.imports)
    return found or not (module.classes or acts(module))


def imports_tests(imports: tuple[tuple[str, str], ...]) -> bool:
    """Whether a library for unit tests is among what a module imports."""
    return any(target.partition(".")[0] in TORCH.words["test-libraries"] for _, target in imports)


def acts(module: ModuleFacts) -> bool:
    """Whether a module visibly does something when it is run: it has a ``main``, a test of its ``__name__``, or statements of its
    own that are calls, or loops with calls in them."""
    return any(
        facts.qualname == "main" or (facts.qualname == TOP and any(_does_something(call) for call in facts.calls))
        for facts in module.functions
    )


def is_started(module: ModuleFacts) -> bool:
    """Whether a module is a program for sure, by a ``main`` or a test of its ``__name__``: a library sets up its logging, too."""
    return any(
        facts.qualname == "main"
        or (facts.qualname == TOP and any("__name__" in test for call in facts.calls for test in call.branch))
        for facts in module.functions
    )


def _does_something(call: CallFact) -> bool:
    return call.loops > 0 or call.used is ResultUse.DROPPED or any("__name__" in test for test in call.branch)
