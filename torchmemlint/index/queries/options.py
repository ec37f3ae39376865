"""Options of a program's command line, as ``argparse`` parses it: what may define one, and what has them."""

from __future__ import annotations

from torchmemlint.index.arguments import argument_given
from torchmemlint.index.facts import CallFact
from torchmemlint.index.linked import Linked
from torchmemlint.index.points_to import Instance
from torchmemlint.index.queries.calls import parameters
from torchmemlint.index.queries.certain import binder, definition, may_be_stored
from torchmemlint.index.queries.contents import files_of_programs, functions_saying, has_visible_callers
from torchmemlint.index.references import TOP, FunctionRef
from torchmemlint.torch_facts import TORCH

PARSER, ADDS, PARSES = TORCH.names["option-parser"], TORCH.names["adds-option"], TORCH.names["parses-options"]
DEFINES = sorted(TORCH.words["defines-options"])
MAX_UP = 8  # names, of one function after the other, through which options are followed back to their parser


def option_names(call: CallFact) -> set[str]:
    """The attributes, one of which ``add_argument("--batch-size", "-b")`` defines."""
    return {arg.const[1:-1].lstrip("-").replace("-", "_") for arg in call.args if arg.keyword in ("", "dest")}


def options(linked: Linked, path: str) -> frozenset[str] | None:
    """Every option that a parser may have in a process that loads the module at ``path``; None where other code may define one, or a
    text that is computed."""
    tables, files, found, parsers = linked.calls.tables, files_of_programs(linked, path), set(), set()
    for word in DEFINES:
        for call in (call for ref, call in tables.calls(word) if ref.path in files):
            if any(arg.keyword in ("*", "**") or (not arg.keyword and not arg.const) for arg in call.args):
                return None
            found |= option_names(call) | ({arg.keyword for arg in call.args} if word != ADDS else set())
            parsers.add(call.callee.rpartition(".")[0])
    if any(call.callee.startswith("vars()") or "__dict__" in call.callee for _, call in tables.calls("update")):
        return None
    for ref in (ref for ref in functions_saying(linked, ADDS) if ref.path in files):
        for call in linked.reader.functions[ref.path][ref.qualname].calls:
            handed = any(arg.name in parsers or arg.keyword in ("parents", "namespace") for arg in call.args)
            if handed and not linked.calls.resolver.callees(ref.path, ref.qualname, call.callee, call.keywords).refs:
                return None
    return frozenset(found)


def is_option_alone(linked: Linked, path: str, qualname: str, name: str, option: str) -> bool:
    """Whether ``name.option`` is there only if a parser has that option: the name stands for what one has parsed, and nothing stores
    an attribute of that name."""
    return not may_be_stored(linked, option) and _has_options(linked, path, qualname, name, 0)


def _has_options(linked: Linked, path: str, qualname: str, name: str, depth: int) -> bool:
    """Whether a name surely stands for what a parser of the project has parsed: what ``parse_args`` gave here, in a function that is
    called, or in all that call this one."""
    scope = binder(linked, path, qualname, name)
    found = definition(linked, path, name) if scope is None else (path, name)
    if found is None or depth > MAX_UP or (scope is not None and name in scope.unsure):
        return False
    where, name = FunctionRef(found[0], scope.qualname if scope is not None else TOP), found[1]
    texts = linked.points_to.bound(*where[:2]).get(name, [])
    if texts:
        return all(_gives_options(linked, where, text, depth) for text in texts)
    if scope is None or all(param.name != name for param in scope.params) or not has_visible_callers(linked, where):
        return False
    calls = linked.calls.callers(where).calls
    given = [(caller.ref, argument_given(parameters(linked, where), name, caller.call.args)) for caller in calls]
    return bool(calls) and all(
        arg is not None and arg.name.isidentifier() and _has_options(linked, *ref[:2], arg.name, depth + 1)
        for ref, arg in given
    )


def _gives_options(linked: Linked, ref: FunctionRef, text: str, depth: int) -> bool:
    """Whether what a name is bound to is what a parser has parsed."""
    maker = text.removesuffix("()")
    receiver, _, method = maker.rpartition(".")
    if depth > MAX_UP:
        return False
    if maker == text:
        return text.isidentifier() and _has_options(linked, *ref[:2], text, depth + 1)
    if method == PARSES and receiver:
        made = linked.points_to.values(*ref[:2], receiver)
        return bool(made) and all(isinstance(value, Instance) and value.klass == PARSER for value in made)
    found = linked.calls.resolver.callees(*ref[:2], maker, ())
    return bool(found.refs) and all(_returns_options(linked, each, depth) for each in found.refs)


def _returns_options(linked: Linked, ref: FunctionRef, depth: int) -> bool:
    returned = linked.reader.flow(ref).returned
    texts = [f"{use.callee}()" if use.called else use.callee for use in returned if use.alternative is None]
    return 0 < len(texts) == len(returned) and all(_gives_options(linked, ref, text, depth + 1) for text in texts)
