"""Whether everything that an object can be is known: it was made by the project, or by a library that has a table."""

from __future__ import annotations

import re
import sys

from torchmemlint.index.arguments import argument_given
from torchmemlint.index.fact_words import AttrKind
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.semantics.state import MODULE, World, memoized
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect

MAX_UP = 12
"""Names, of one function after the other, through which an object is followed back to where it is made."""
Asked = frozenset[tuple[FunctionRef, str]]
KNOWN_PACKAGES = (
    frozenset(name.partition(".")[0] for name in (*TORCH.classes, *TORCH.functions))
    | TORCH.words["quiet-packages"]
    | TORCH.words["plain-packages"]
    | TORCH.words["array-libraries"]
    | sys.stdlib_module_names
)
"""Packages of which a table says what their calls do."""
LOOKS_UP = TORCH.words["calls-by-name"] | {"globals", "vars"}
RETURNS = re.compile(r"\breturn\b")
SAME = TORCH.words["gives-itself"]
"""Methods of modules that give the module back."""


def is_known_package(absolute: str) -> bool:
    return absolute.partition(".")[0] in KNOWN_PACKAGES


def is_known(world: World, ref: FunctionRef, text: str, asked: Asked = frozenset()) -> bool:
    """Whether all that a name or attribute can be in a function is of a visible class, or of one of a known library. ``asked``: what is
    being looked into, of which this is a part: what is bound to itself is what else it is bound to."""
    if (ref, text) in asked:
        return True
    if len(asked) > MAX_UP or not text:
        return False
    asked |= {(ref, text)}
    if text.endswith("()"):
        return _is_known_maker(world, ref, text, asked)
    facts = world.facts(ref)
    head, _, rest = text.partition(".")
    values = [value for name, value in (*facts.bound, *facts.rebound) if name == text]
    is_param = any(param.name == text for param in facts.params)
    if values and not all(is_known(world, ref, value, asked) for value in values):
        return False
    if is_param:
        return _is_known_parameter(world, FunctionRef(ref.path, facts.qualname), text, asked)
    if values:
        return True
    if head == "self" and rest.isidentifier() and facts.owner:
        return _is_known_attribute(world, ClassRef(ref.path, facts.owner), rest, asked)
    if text in facts.locals or rest:
        return _is_class_known(world, ref, text) if rest and head not in facts.locals else False
    if facts.parent:
        return is_known(world, FunctionRef(ref.path, facts.parent), text, asked)
    if ref.qualname != MODULE:
        return is_known(world, FunctionRef(ref.path, MODULE), text, asked)
    variable = world.project.variable(ref.path, text)
    if variable is None or variable == (ref.path, text):
        return False
    return is_known(world, FunctionRef(variable[0], MODULE), variable[1], asked)


def _is_class_known(world: World, ref: FunctionRef, text: str) -> bool:
    cls = world.project.class_of(ref.path, ref.qualname, text)
    return isinstance(cls, ClassRef) or (cls is not None and cls not in TORCH.words["any-module"] and is_known_package(cls))


def _is_known_maker(world: World, ref: FunctionRef, text: str, asked: Asked) -> bool:
    """Whether what a call gives is known: an object of a class, or a network of a library."""
    if _is_class_known(world, ref, text):
        return True
    maker, _, method = text.removesuffix("()").rpartition(".")
    if maker.endswith("()"):  # `Net().to(device)`
        return method in SAME and _is_known_maker(world, ref, maker, asked)
    found = world.project.callees(ref.path, ref.qualname, text.removesuffix("()"))
    if found.refs and found.certain:
        return all(_gives_known(world, each, asked) for each in found.refs)
    absolute = world.project.resolve(ref.path, text.removesuffix("()"), ref.qualname)
    return absolute is not None and TORCH.function_effect(absolute) is Effect.MODULE


def _gives_known(world: World, ref: FunctionRef, asked: Asked) -> bool:
    """Whether all that a function of the project returns is known."""
    facts = world.facts(ref)
    given = [f"{use.callee}()" if use.called else use.callee for use in facts.returned if use.alternative is None]
    written = sum(
        len(RETURNS.findall(line)) for line in world.lines_of(ref)
    )  # facts have those that give names and calls alone
    return len(given) == len(facts.returned) == written > 0 and all(is_known(world, ref, each, asked) for each in given)


def _is_known_attribute(world: World, cls: ClassRef, name: str, asked: Asked) -> bool:
    """Whether every assignment to an attribute of the object, in its class and those above, is of what is known."""
    found = world.project.attr(cls, name)
    if not found or world.project.is_stored_by_name(name):
        return False
    return all(
        fact.kind is AttrKind.CONST or is_known(world, FunctionRef(at.path, fact.method or MODULE), fact.value, asked)
        for fact, at in found
    )


def _is_known_parameter(world: World, ref: FunctionRef, name: str, asked: Asked) -> bool:
    """Whether every call of a function gives what is known for a parameter, and all calls are visible."""
    project, header = world.project, world.header(ref)
    method = header.owner and not ref.qualname.endswith(".__init__")
    if not (project.has_visible_users_alone(ref) if method else is_called_by_name_alone(world, ref)):
        return False
    params = header.params[1:] if header.owner else header.params
    default = next((param for param in params if param.name == name), None)
    calls = project.callers(ref).calls
    for caller in calls:
        args = caller.call.args
        given = argument_given(params, name, args)
        if any(arg.keyword in ("*", "**") for arg in args):
            return False
        if given is None:
            if default is None or default.default != "None":
                return False
        elif not given.const and not is_known(world, caller.ref, given.name, asked):
            return False
    return bool(calls)


def is_called_by_name_alone(world: World, ref: FunctionRef) -> bool:
    """Whether a function or class (by its constructor) of a program is never handed on, nor taken out of its module by a text, in all that
    may be loaded with it."""
    project, header = world.project, world.header(ref)
    if header.parent or header.decorators or not project.is_part_of_program(ref.path) or project.callers(ref).escapes:
        return False
    name = header.owner or ref.qualname
    return not any(looks_up(world, path) or _renames(world, path, name) for path in sorted(files_with(world, ref.path)))


@memoized
def files_with(world: World, path: str) -> frozenset[str]:
    """The files that may be loaded together with one."""
    return world.project.files_of_programs(path)


def _renames(world: World, path: str, name: str) -> bool:
    return any(target.rpartition(".")[2] == name and local != name for local, target in world.project.imports(path))


@memoized
def looks_up(world: World, path: str) -> bool:
    """Whether a file takes something out of a namespace by a text."""
    imported = {local for local, _ in world.project.imports(path)}
    calls = [call for facts in world.project.module(path).functions for call in facts.calls]
    if any(call.callee in LOOKS_UP or "__dict__[" in call.callee for call in calls):
        return True
    found = [
        call for call in calls if call.callee in TORCH.words["takes-by-text"] and len(call.args) > 1 and not call.args[1].const
    ]
    return any(not call.args[0].name or call.args[0].name.partition(".")[0].partition("[")[0] in imported for call in found)
