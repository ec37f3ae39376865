"""Whether the arguments of calls fit what they call."""

from __future__ import annotations

from torchmemlint.index.fact_words import ParamKind
from torchmemlint.index.linked import Linked
from torchmemlint.index.queries.certain import UNBOUND, binder, definition, is_plain, own_class
from torchmemlint.index.queries.constants import INIT
from torchmemlint.index.references import ClassRef, FunctionRef, Outside
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import GRAD_EFFECTS


def does_not_fit(linked: Linked, path: str, qualname: str, callee: str, *given: str) -> bool:
    """Whether none of the functions that a call may run takes its arguments, which are ``given`` by these keywords, "" by position."""
    keywords = tuple(sorted({*given} - {""}))
    likely = linked.calls.resolver.callees(path, qualname, callee, keywords).refs
    if not likely or not {"*", "**"}.isdisjoint(given) or any(_takes(linked, ref, given) for ref in likely):
        return False  # mostly: to be sure of what is called takes more
    return _is_certain(linked, path, qualname, callee, likely)


def _is_certain(linked: Linked, path: str, qualname: str, callee: str, refs: tuple[FunctionRef, ...]) -> bool:
    """Whether a call runs one of these functions beyond doubt, which are what it may run by all that is visible."""
    head, _, name = callee.partition(".")
    scope = binder(linked, path, qualname, head)
    found = definition(linked, path, callee) if scope is None else None
    if found == refs[0][:2]:
        return not linked.calls.tables.stores(found[1])
    own = own_class(scope, path, head) if scope is not None else None
    if own is not None:
        return all(_is_own(linked, cls, name) for cls in (own, *linked.classes.subclasses(own)))
    return found is not None and linked.reader.has_class(*found) and _is_own(linked, ClassRef(*found), INIT)


def _is_own(linked: Linked, cls: ClassRef, name: str) -> bool:
    """Whether the method of that name of a class's objects is the one that is defined in it, or in a base: once, and set by nothing."""
    order, ref = linked.classes.mro(cls), linked.classes.method(cls, name)
    if not all(base.startswith("torch.") if isinstance(base, str) else is_plain(linked, base) for base in order):
        return False
    owner = ClassRef(ref.path, ref.qualname.rpartition(".")[0]) if ref is not None else None
    if ref is None or owner not in order or any(isinstance(base, str) for base in order[: order.index(owner)]):
        return False
    stored = linked.calls.tables.stores(name) or linked.classes.attr(cls, name)
    return not stored and linked.reader.methods_of(owner).count(ref.qualname) == 1


def _takes(linked: Linked, ref: FunctionRef, given: tuple[str, ...]) -> bool:
    """Whether arguments, none of them starred, bind to a function's parameters, or may: a decorator may change these."""
    head = linked.reader.header(ref)
    for use in head.decorators:
        symbol = linked.names.dotted(ref.path, use.callee) if use.callee not in UNBOUND else None
        effect = TORCH.function_effect(symbol.name) if isinstance(symbol, Outside) else None
        if use.callee not in UNBOUND and effect not in GRAD_EFFECTS:
            return True
    bound = head.owner and all(use.callee != "staticmethod" for use in head.decorators)
    params = head.params[1:] if bound else head.params
    kinds = {param.kind for param in params}
    by_place = [param.name for param in params if param.kind is ParamKind.POSITIONAL]
    names = {*by_place, *(param.name for param in params if param.kind is ParamKind.KEYWORD)}
    filled, keywords = by_place[: given.count("")], {*given} - {""}
    return (
        (given.count("") <= len(by_place) or ParamKind.VAR_POSITIONAL in kinds)
        and (ParamKind.VAR_KEYWORD in kinds or (keywords <= names and keywords.isdisjoint(filled)))
        and keywords.union(filled).issuperset(param.name for param in params if param.required)
    )
