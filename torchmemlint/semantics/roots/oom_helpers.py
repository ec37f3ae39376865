"""Functions that say by an exception's message whether memory ran out.

They are handed the exception: what a handler decides, one call away.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchmemlint.lower import ir
from torchmemlint.lower.walk import names_inside, nodes_of
from torchmemlint.lower.written import dotted
from torchmemlint.semantics.interpret import CATCHES_OOM, names_oom_class, names_other_device, reads_error, tests_message
from torchmemlint.semantics.state import Machine, OomHandler

WIDE = frozenset(name.rpartition(".")[2] for name in CATCHES_OOM if name)
"""The last parts of the names of exceptions that are wide enough for an out-of-memory error."""


def record_helper(m: Machine, function: ir.Function) -> None:
    """The event of a function that tests the message of an exception that it is given; none where it knows the class, too: what a
    handler decides, one call away."""
    if not function.params or not (m.world.facts(m.record.root).names & WIDE or annotated(function)):
        return
    nodes = [*nodes_of(function.body)]
    errors = exceptions_of(function, nodes)
    if not errors or any(names_oom_class(node) for node in nodes):
        return
    names = set(errors)
    for node in nodes:
        if isinstance(node, ir.Assign) and reads_error(node.value, frozenset(names)):
            names |= names_inside(node.targets)
    tests = [node for node in nodes if tests_message(node) and reads_error(node, frozenset(names))]
    places = tuple(test.node for test in tests if isinstance(test, (ir.Compare, ir.Call)))
    if places and not names_other_device(tests):
        m.emit(OomHandler(m.site(places[0]), ("builtins.RuntimeError",), places, False, (), -1, False))


def annotated(function: ir.Function) -> set[str]:
    """The parameters that are such exceptions by their annotation."""
    return {p.name for p in function.params if p.annotation is not None and dotted(p.annotation).rpartition(".")[2] in WIDE}


def exceptions_of(function: ir.Function, nodes: Sequence[object]) -> frozenset[str]:
    """The parameters that are exceptions wide enough for an out-of-memory error: by their annotation, or as the function tests."""
    found = annotated(function)
    params = {p.name for p in function.params}
    for node in nodes:
        if isinstance(node, ir.Call) and dotted(node.func) == "isinstance" and len(node.args) == 2:
            tested, kinds = (arg.value for arg in node.args)
            each = kinds.items if isinstance(kinds, ir.Sequence) else [kinds]
            if isinstance(tested, ir.Name) and tested.id in params and WIDE.intersection(map(dotted, each)):
                found.add(tested.id)
    return frozenset(found)
