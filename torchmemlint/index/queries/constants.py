"""Attributes, like names, that hold one constant in every run, or that nothing defines."""

from __future__ import annotations

from torchmemlint.index import keys
from torchmemlint.index.arguments import argument_given
from torchmemlint.index.fact_words import AttrKind
from torchmemlint.index.linked import Linked
from torchmemlint.index.queries.certain import BARE, binder, definition, family, may_be_stored, own_class
from torchmemlint.index.queries.contents import MAIN, has_visible_users_alone, is_part_of_program
from torchmemlint.index.references import TOP, ClassRef, FunctionRef
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import ClassKind

INIT = "__init__"
SET_BY_LIBRARIES = TORCH.words["module-attributes"] | TORCH.words["lightning-attributes"]


def constant(linked: Linked, path: str, qualname: str, text: str) -> str:
    """The constant that a name or attribute is in every run, as it is written; "" where that is not known, and of other locals than
    parameters: those are interpreted."""
    name, _, attribute = text.partition(".")
    facts = binder(linked, path, qualname, name)
    if facts is None:
        found = definition(linked, path, text)
        if found is None or not is_part_of_program(linked, found[0]) or may_be_stored(linked, found[1]):
            return ""
        return dict(linked.reader.functions[found[0]][TOP].constants).get(found[1], "")
    if attribute:
        cls = own_class(facts, path, name)
        return _of_class(linked, cls, attribute) if cls is not None else ""
    return _of_parameter(linked, FunctionRef(path, facts.qualname), name)


def _of_parameter(linked: Linked, ref: FunctionRef, name: str, depth: int = 0) -> str:
    """The constant that a parameter is because its default is one, and no call gives it, or gives a parameter that is the same."""
    facts = linked.reader.scope(ref.path, ref.qualname)
    param = next((each for each in facts.params if each.name == name), None) if facts is not None else None
    if facts is None or param is None or not param.default or name in facts.unsure or ref.qualname == MAIN:
        return ""
    calls = linked.calls.callers(ref).calls if depth < MAX_UP and has_visible_users_alone(linked, ref) else ()
    bound = facts.owner and all(use.callee != "staticmethod" for use in facts.decorators)
    for caller in calls:
        args = caller.call.args
        # A method may be called of its class, with the object for its first argument.
        sure = not bound or caller.call.callee.startswith(("self.", "super()"))
        for each in (args,) if sure else (args, args[1:]):
            given = argument_given(facts.params[1:] if bound else facts.params, name, each)
            if any(arg.keyword in ("*", "**") for arg in args):
                return ""
            if given is not None and (given.const or _of_parameter(linked, caller.ref, given.name, depth + 1)) != param.default:
                return ""
    return param.default if calls else ""


MAX_UP = 4  # calls over which a parameter is followed


def _of_class(linked: Linked, cls: ClassRef, name: str) -> str:
    """The constant that an attribute of a class's objects is: wherever it is assigned, it is that, or a parameter of the constructor
    that no call gives."""
    classes, init = family(linked, cls), linked.classes.method(cls, INIT)
    if not classes or init is None or may_be_stored(linked, name, classes) or not has_visible_users_alone(linked, init):
        return ""
    if name in SET_BY_LIBRARIES and any(isinstance(base, str) for base in linked.classes.mro(cls)):
        return ""
    found = set()
    for each in classes:
        found |= {""} if linked.classes.method(each, name) else set()
        for fact in linked.reader.own_attrs(each, name):
            given = fact.kind is AttrKind.NAME and fact.method.endswith(f".{INIT}")
            found.add(_of_parameter(linked, FunctionRef(each.path, fact.method), fact.value) if given else fact.const)
    return found.pop() if len(found) == 1 else ""


def lacks(linked: Linked, path: str, qualname: str, text: str) -> bool:
    """Whether ``self.name`` raises AttributeError: no object of the class, or of one below it, has it."""
    me, _, name = text.partition(".")
    facts = binder(linked, path, qualname, me)
    cls = own_class(facts, path, me) if facts is not None and name.isidentifier() and name[0] != "_" else None
    if cls is None or _has(linked, cls, name):
        return False
    classes = family(linked, cls, _is_module_base)
    if not classes or any(_has(linked, each, name) for each in classes) or may_be_stored(linked, name, classes):
        return False
    if any(isinstance(base, str) for each in classes for base in linked.classes.mro(each)):
        calls = [call for word in sorted(TORCH.words["registers-names"]) for _, call in linked.calls.tables.calls(word)]
        if (
            name in SET_BY_LIBRARIES
            or name in TORCH.module_methods
            or any(not call.args or call.args[0].const in ("", repr(name)) for call in calls)
        ):
            return False
    return is_made_as_it_is(linked, cls)


def is_made_as_it_is(linked: Linked, cls: ClassRef) -> bool:
    """Whether the objects of a class that run are of it, or of the classes below it that are visible: the project makes some of one that
    has none below it, or all that makes some is visible."""
    init = linked.classes.method(cls, INIT)
    if init is None:
        return False
    is_made = bool(linked.calls.callers(init).calls) and not linked.classes.subclasses(cls)
    return is_made or has_visible_users_alone(linked, init)


def _is_module_base(base: str) -> bool:
    """Whether the attributes of a library's class of modules are known."""
    return base in BARE or TORCH.class_kind(base) is ClassKind.LIGHTNING_MODULE


def _has(linked: Linked, cls: ClassRef, name: str) -> bool:
    """Whether a class, or one above it, has a method, an attribute or a class of that name."""
    linked.note(keys.NAME, cls.path, name)
    inside = linked.reader.has_class(cls.path, f"{cls.qualname}.{name}") or name in linked.reader.import_targets[cls.path]
    return inside or linked.classes.method(cls, name) is not None or bool(linked.classes.attr(cls, name))
