"""Questions about calls, by the words in them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torchmemlint.index import keys
from torchmemlint.index.arguments import argument_given
from torchmemlint.index.edges import Callees, Callers
from torchmemlint.index.facts import ParamFact
from torchmemlint.index.linked import Linked
from torchmemlint.index.points_to import Instance, Method
from torchmemlint.index.references import ClassRef, FunctionRef, Outside
from torchmemlint.torch_facts import TORCH

_GUARDS = re.compile(r"no_grad|inference|grad|eval", re.IGNORECASE)
_MAX_CALLS = 30
MAX_FUNCTIONS = 60
_MAX_UP = 2
"""Calls over which a parameter is followed to where an object is made."""


def calls_by_name(linked: Linked, name: str) -> tuple[tuple[FunctionRef, str, bool], ...]:
    """The first calls of a method of that name on something other than ``self``: in which function, the receiver's text,
    and whether a manager that may switch grad mode off, by its name, is around the call."""
    found = []
    for ref, call in linked.calls.tables.calls(name):
        receiver = call.callee.rpartition(".")[0]
        if receiver and receiver not in ("self", "cls", "super()"):
            found.append((ref, receiver, any(_GUARDS.search(use.callee) for use in call.managers)))
            if len(found) == _MAX_CALLS:
                break
    return tuple(found)


def functions_calling(linked: Linked, callee: str) -> tuple[FunctionRef, ...]:
    """The functions that call something by exactly this text, which has a dot, or by its last part alone; in order, the first of many."""
    name = callee.rpartition(".")[2]
    found = dict.fromkeys(ref for ref, call in linked.calls.tables.calls(name) if call.callee in (callee, name))
    return tuple(found)[:MAX_FUNCTIONS]


def callees(linked: Linked, path: str, qualname: str, callee: str, *keywords: str) -> Callees:
    """The functions of the project that a call of ``callee``, with these ``CallFact.keywords``, can reach in the function
    ``qualname`` of ``path``."""
    return linked.calls.resolver.callees(path, qualname, callee, keywords)


def callers(linked: Linked, ref: FunctionRef) -> Callers:
    """The calls that can reach a function, and whether it is also handed on as a value."""
    linked.note(keys.PLACES, ref.path, ref.qualname)
    return linked.calls.callers(ref)


def functions_given(linked: Linked, ref: FunctionRef, parameter: str) -> tuple[FunctionRef, ...]:
    """The functions and bound methods that calls give for a parameter, sorted; none where not all calls are visible, or one
    gives anything else."""
    callers = linked.calls.callers(ref)
    if callers.escapes:
        return ()
    params = parameters(linked, ref)
    found: set[FunctionRef] = set()
    for caller in callers.calls:
        arg = argument_given(params, parameter, caller.call.args)
        stars = {arg.keyword for arg in caller.call.args} & {"*", "**"}
        if "*" in stars or (stars and arg is None):
            return ()
        if arg is None or arg.const == "None":
            continue
        for value in linked.points_to.values(caller.ref.path, caller.ref.qualname, arg.name) or (None,):
            if isinstance(value, Outside) and value.name.startswith("builtins."):
                continue
            if not isinstance(value, FunctionRef | Method):
                return ()
            found.add(value if isinstance(value, FunctionRef) else value.function)
    return tuple(sorted(found))


def arguments_given(linked: Linked, ref: FunctionRef, parameter: str) -> tuple[tuple[FunctionRef, str], ...]:
    """What visible calls give for a parameter, where that is a name or an attribute: the function that calls, and the text; nothing for
    a lambda, whose calls are not among the facts."""
    if linked.reader.head(ref.path, ref.qualname) is None:
        return ()
    params = parameters(linked, ref)
    calls = linked.calls.callers(ref).calls[:_MAX_CALLS]
    given = [(caller.ref, argument_given(params, parameter, caller.call.args)) for caller in calls]
    return tuple(sorted({(caller, arg.name) for caller, arg in given if arg is not None and arg.name}))


def parameters(linked: Linked, ref: FunctionRef) -> Sequence[ParamFact]:
    """The parameters that a call of a function gives arguments to: not the object that a method is called on."""
    facts = linked.reader.header(ref)
    bound = facts.owner and not any(use.callee == "staticmethod" for use in facts.decorators)
    return facts.params[1:] if bound else facts.params


def objects_given(linked: Linked, ref: FunctionRef, parameter: str, depth: int = 0) -> tuple[tuple[FunctionRef, str], ...]:
    """As ``arguments_given``, where an argument that is a parameter of its function in turn is followed to what its callers give."""
    found: dict[tuple[FunctionRef, str], None] = {}
    for caller, text in arguments_given(linked, ref, parameter):
        found[caller, text] = None
        if depth < _MAX_UP and caller != ref and text in {param.name for param in linked.reader.header(caller).params}:
            found.update(dict.fromkeys(objects_given(linked, caller, text, depth + 1)))
    return tuple(sorted(found))


def classes_given(linked: Linked, ref: FunctionRef, parameter: str) -> tuple[ClassRef | str, ...]:
    """The classes of the objects that visible calls give for a parameter, as far as they are known, sorted."""
    values = [
        value
        for caller, text in objects_given(linked, ref, parameter)
        for value in linked.points_to.values(caller.path, caller.qualname, text)
    ]
    return tuple(sorted({value.klass for value in values if isinstance(value, Instance)}, key=str))


def says(linked: Linked, word: str) -> bool:
    """Whether any function of the project says this word (see ``FunctionFacts.names``), or gives an argument of that name."""
    return linked.calls.tables.has_word(word)


def mentions_cuda(linked: Linked) -> bool:
    """Whether the project works with CUDA devices: some function says ``.cuda`` or ``torch.cuda``, or "cuda" is given for a
    device."""
    return linked.calls.tables.has_word(TORCH.names["cuda"]) or linked.calls.tables.gives_cuda()
