"""Attributes that nothing defines: of a function's own object, and of the options of a program."""

from __future__ import annotations

import sys

from torchmemlint.index.arguments import argument_given
from torchmemlint.index.fact_words import AttrKind
from torchmemlint.index.facts import CallFact
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.semantics.cannot_run.definitions import BARE, INIT, defined, family, owner_of
from torchmemlint.semantics.cannot_run.reasons import KnownBy, Reason, Why
from torchmemlint.semantics.cannot_run.stores import file_meant, is_declared_global, may_be_set
from torchmemlint.semantics.cannot_run.ways import Scopes, binders
from torchmemlint.semantics.text import dotted, short
from torchmemlint.semantics.walk import nodes_of
from torchmemlint.semantics.world import MODULE, World
from torchmemlint.torch_facts import TORCH

OF_MODULES = TORCH.words["module-attributes"]
REGISTERS = TORCH.words["registers-names"]
PARSER = TORCH.names["parser-class"]
PARSES, ADDS = TORCH.names["parses-options"], TORCH.names["adds-option"]
DEFAULTS, SUBPARSERS = TORCH.names["sets-option-defaults"], TORCH.names["adds-commands"]
LEAVE_ALONE = TORCH.words["leave-options-alone"] | sys.stdlib_module_names
MAX_UP = 4
"""Calls over which an object is followed to where it was parsed."""


def undefined(world: World, path: str, scopes: Scopes, expr: ir.Attr) -> Reason | None:
    """The reason, where reading an attribute raises AttributeError."""
    if expr.name.startswith("_"):
        return None
    if isinstance(expr.value, ir.Name):
        cls = owner_of(world, path, scopes, expr.value.id)
        if cls is not None and world.memoize(_lacks, (cls, expr.name)):
            return _reason(f"{expr.value.id}.{expr.name}", "nothing defines")
    if isinstance(expr.value, ir.Name | ir.Attr) and _is_no_option(world, expr.name):
        if _is_parsed(world, path, scopes, expr.value, 0) and not _goes_out(world, dotted(expr.value)):
            return _reason(dotted(expr), "no parser of the program defines")
    return None


def _reason(text: str, words: str) -> Reason:
    return Reason(Why.ATTRIBUTE, KnownBy.RESOLVED, f"it cannot run: {words} `{short(text)}`, which is read before")


# --- of an object


def _lacks(world: World, key: tuple[ClassRef, str]) -> bool:
    """Whether no object of a class, or of one below it, has an attribute."""
    cls, name = key
    project = world.project
    classes = family(world, cls)
    init = project.method(cls, INIT)
    if classes is None or init is None or not project.has_visible_users_alone(init):
        return False
    if any(base in BARE for each in classes for base in project.mro(each)):
        registered = world.memoize(_registered, "")
        if name in TORCH.module_methods or name in OF_MODULES or registered is None or name in registered:
            return False
    for each in classes:
        if project.method(each, name) is not None or any(fact.name == name for fact in project.attrs(each)):
            return False
        if any(other.qualname == f"{each.qualname}.{name}" for other in project.module(each.path).classes):
            return False
    return not may_be_set(world, name, classes)


def _registered(world: World, _: str) -> frozenset[str] | None:
    """The names under which modules register buffers, parameters and modules; None where one is computed."""
    found: set[str] = set()
    for call in _calls_of(world, REGISTERS):
        if not call.args or not call.args[0].const.startswith("'"):
            return None
        found.add(call.args[0].const[1:-1])
    return frozenset(found)


def _calls_of(world: World, words: frozenset[str]) -> list[CallFact]:
    paths = sorted({path for word in sorted(words) for path in world.project.modules_saying(word)})
    functions = [facts for path in paths for facts in world.project.module(path).functions]
    return [call for facts in functions for call in facts.calls if call.callee.rpartition(".")[2] in words]


# --- of the options of a program


def _is_no_option(world: World, name: str) -> bool:
    options = world.memoize(_options, "")
    return options is not None and name not in options and not may_be_set(world, name)


def _options(world: World, _: str) -> frozenset[str] | None:
    """The names of all options that parsers of the project define; None where one is computed, or may be hidden."""
    project = world.project
    found: set[str] = set()
    paths = project.modules_saying(ADDS)
    if any(text.endswith(f".{ADDS}") for path in paths for facts in project.module(path).functions for text in facts.reads):
        return None
    for call in _calls_of(world, frozenset({ADDS, DEFAULTS, SUBPARSERS, PARSER.rpartition(".")[2]})):
        last = call.callee.rpartition(".")[2]
        keywords = {arg.keyword: arg for arg in call.args if arg.keyword}
        if "**" in keywords or "*" in keywords or "parents" in keywords:
            return None
        if last == DEFAULTS:
            found.update(keywords)
        given = [arg for arg in call.args if not arg.keyword] if last == ADDS else []
        given += [keywords["dest"]] if "dest" in keywords else []
        if not all(arg.const.startswith("'") for arg in given):
            return None
        found.update(arg.const[1:-1].lstrip("-").replace("-", "_") for arg in given)
    return frozenset(found) if found else None


def _is_parsed(world: World, path: str, scopes: Scopes, place: ir.Expr, depth: int) -> bool:
    """Whether a name or attribute holds what ``parse_args`` of a visible parser gave, whoever calls."""
    if depth > MAX_UP:
        return False
    if isinstance(place, ir.Attr) and isinstance(place.value, ir.Name):
        cls = owner_of(world, path, scopes, place.value.id)
        return cls is not None and world.memoize(_holds_parsed, (cls, place.name, depth))
    if not isinstance(place, ir.Name):
        return False
    around = next((each for each in reversed(scopes) if place.id in each.locals), None)
    if around is None or around.qualname == MODULE:
        return world.memoize(_is_parsed_by_module, (path, place.id, depth))
    bound = binders(around, place.id)
    if any(param.name == place.id for param in around.params):
        return not bound and world.memoize(_is_given_parsed, (FunctionRef(path, around.qualname), place.id, depth))
    return len(bound) == 1 and _parses(world, path, scopes, bound[0], depth)


def _parses(world: World, path: str, scopes: Scopes, statement: object, depth: int) -> bool:
    """Whether a statement binds what ``parse_args`` gives, or a function that returns that."""
    if not isinstance(statement, ir.Assign) or len(statement.targets) != 1 or isinstance(statement.targets[0], ir.Sequence):
        return False
    match statement.value:
        case ir.Call(func=ir.Attr(name=name, value=parser), args=args) if name == PARSES:
            return (
                all(arg.keyword in (None, "args") and not arg.star for arg in args)
                and len(args) < 2
                and _is_parser(world, path, scopes, parser)
            )
        case ir.Call(func=ir.Name(id=name)):
            ref = defined(world, path, scopes, name)
            return isinstance(ref, FunctionRef) and world.memoize(_returns_parsed, (ref, depth + 1))
    return False


def _returns_parsed(world: World, key: tuple[FunctionRef, int]) -> bool:
    ref, depth = key
    found = world.function(ref)
    if found is None or world.header(ref).decorators or depth > MAX_UP:
        return False
    given = [each.value for each in nodes_of(found[0].body) if isinstance(each, ir.Return)]
    return bool(given) and all(each is not None and _is_parsed_value(world, ref.path, found[0], each, depth) for each in given)


def _is_parsed_value(world: World, path: str, function: ir.Function, value: ir.Expr, depth: int) -> bool:
    if isinstance(value, ir.Name):
        return _is_parsed(world, path, (function,), value, depth)
    return _parses(world, path, (function,), ir.Assign(-1, [ir.Name(-1, "")], value), depth)


def _is_parser(world: World, path: str, scopes: Scopes, parser: ir.Expr) -> bool:
    """Whether a name is bound once, to an ``ArgumentParser``, which no code that is not visible gets."""
    if not isinstance(parser, ir.Name):
        return False
    around = next((each for each in reversed(scopes) if parser.id in each.locals), None)
    if around is None:
        found = world.function(FunctionRef(path, MODULE))
        around = found[0] if found is not None else None
    bound = binders(around, parser.id) if around is not None else []
    if around is None or len(bound) != 1 or any(param.name == parser.id for param in around.params):
        return False
    match bound[0]:
        case ir.Assign(targets=[ir.Name()], value=ir.Call(func=func)):
            made = world.project.resolve(path, dotted(func), around.qualname)
            return made == PARSER and not _goes_out(world, parser.id)
    return False


def _is_parsed_by_module(world: World, key: tuple[str, str, int]) -> bool:
    path, name, depth = key
    found = world.function(FunctionRef(path, MODULE))
    bound = binders(found[0], name) if found is not None else []
    if found is None or len(bound) != 1 or is_declared_global(world, path, name):
        return False
    if isinstance(bound[0], ir.ImportStmt):
        module, _, there = dict(bound[0].bindings)[name].rpartition(".")
        file = file_meant(world, path, name, module) if module else ""
        return bool(file) and depth < MAX_UP and world.memoize(_is_parsed_by_module, (file, there, depth + 1))
    return _parses(world, path, (found[0],), bound[0], depth)


def _is_given_parsed(world: World, key: tuple[FunctionRef, str, int]) -> bool:
    """Whether every call of a function gives a parameter what was parsed."""
    ref, name, depth = key
    project, header = world.project, world.header(ref)
    if depth == MAX_UP or not project.has_visible_users_alone(ref):
        return False
    bound = header.owner and all(use.callee != "staticmethod" for use in header.decorators)
    calls = [caller for caller in project.callers(ref).calls if caller.ref != ref]
    for caller in calls:
        given = argument_given(header.params[1:] if bound else header.params, name, caller.call.args)
        found = world.function(caller.ref)
        if found is None or given is None or not given.name or "(" in given.name or "[" in given.name:
            return False
        if not _is_parsed(world, caller.ref.path, (found[0],), _expression(given.name), depth + 1):
            return False
    return bool(calls)


def _expression(text: str) -> ir.Expr:
    head, *rest = text.split(".")
    expr: ir.Expr = ir.Name(-1, head)
    for part in rest:
        expr = ir.Attr(-1, expr, part)
    return expr


def _holds_parsed(world: World, key: tuple[ClassRef, str, int]) -> bool:
    """Whether an attribute of a class's objects is what its constructor is given, and that was parsed."""
    cls, name, depth = key
    classes = family(world, cls)
    facts = [(fact, each) for each in classes or () for fact in world.project.attrs(each) if fact.name == name]
    if len(facts) != 1 or may_be_set(world, name, classes or ()):
        return False
    fact, owner = facts[0]
    found = world.function(FunctionRef(owner.path, fact.method)) if fact.kind is AttrKind.NAME and fact.method else None
    if found is None or "." in fact.value:
        return False
    return _is_parsed(world, owner.path, (found[0],), ir.Name(-1, fact.value), depth + 1)


def _goes_out(world: World, text: str) -> bool:
    """Whether something of that name is given to code that is not visible, which may add to it."""
    return world.memoize(_is_given_outside, text.rpartition(".")[2])


def _is_given_outside(world: World, name: str) -> bool:
    project = world.project
    for path in project.modules_saying(name):
        for facts in project.module(path).functions:
            for call in facts.calls:
                if any(arg.name.rpartition(".")[2] == name for arg in call.args) and not _is_known(
                    world, path, facts.qualname, call
                ):
                    return True
    return False


def _is_known(world: World, path: str, qualname: str, call: CallFact) -> bool:
    """Whether what is called is a function of the project, of Python or of torch."""
    absolute = world.project.resolve(path, call.callee, qualname)
    top = (absolute or "").partition(".")[0]
    if top in LEAVE_ALONE:
        return True
    return bool(world.project.callees(path, qualname, call.callee, *call.keywords).refs)
