"""Functions that no visible program uses, by who says their name, or that of their class."""

from __future__ import annotations

import posixpath

from torchmemlint.index import keys
from torchmemlint.index.layout import Module
from torchmemlint.index.linked import Linked
from torchmemlint.index.queries.certain import UNBOUND, family
from torchmemlint.index.queries.contents import MAIN, header, imports_of_others, is_offered, is_program, may_look_up
from torchmemlint.index.references import TOP, ClassRef, FunctionRef, Outside
from torchmemlint.torch_facts import TORCH

MAX_UP = 3  # callers that are themselves looked at for a use
MAX_LOOKED_AT = 200
"""Functions of a file, or methods of a class, up to which who calls them is looked at, for each finding; more are taken for used."""
INIT = "/__init__.py"
BY_NAME, GIVES = sorted(TORCH.words["calls-by-name"]), sorted(TORCH.words["gives-by-name"])
IMPORTS = sorted(TORCH.words["imports-by-name"] - TORCH.words["gives-by-name"])
COMMANDS = TORCH.words["makes-commands"]


def is_idle(linked: Linked, ref: FunctionRef, depth: int = 0) -> bool:
    """Whether programs are visible that may use a function, and none does: nothing calls it, takes it as a value, or may have it by a
    text, and no package offers it; or nothing does so with its class; or all that calls it is idle itself."""
    name = ref.qualname.rpartition(".")[2]
    if not linked.complete or ref.path.endswith(".ipynb") or name in (TOP, MAIN) or depth > MAX_UP:
        return False
    head = header(linked, ref)
    if head.parent:
        return False
    cls = ClassRef(ref.path, head.owner)
    if head.owner and _is_class_idle(linked, cls, depth):
        return True
    if any(use.callee not in UNBOUND and _may_hand_on(linked, ref.path, use.callee) for use in head.decorators):
        return False
    callers = linked.calls.callers(ref)
    above = sorted({caller.ref for caller in callers.calls} - {ref})
    if callers.escapes or above:
        return not callers.escapes and all(is_idle(linked, each, depth + 1) for each in above)
    if head.owner and (name.startswith("__") or not family(linked, cls) or _may_run_by_itself(name)):
        return False
    if not head.owner and not any(param.required for param in head.params):
        return False  # a command's entry point, which packaging names, takes none
    if (head.owner and may_look_up(linked, True)) or linked.calls.tables.reads(name) or _is_had_by_text(linked, ref):
        return False
    private = any(part.startswith("_") for part in ref.qualname.split("."))
    return not _is_called_on_something(linked, ref, name) and (private or is_used_by_programs(linked, ref.path))


def _is_called_on_something(linked: Linked, ref: FunctionRef, name: str) -> bool:
    """Whether a call is by that name, on what may be an object of its class, or a module that has the function."""
    calls = linked.calls.tables.calls(name)
    if "." in ref.qualname:
        return bool(calls)
    return any("(" in call.callee or _may_mean(linked, caller.path, call.callee, ref) for caller, call in calls)


def _is_class_idle(linked: Linked, cls: ClassRef, depth: int) -> bool:
    """Whether nothing but itself, and what is idle, makes an object of a class or has it as a value, and no class is below it."""
    linked.note(keys.WHOLE, cls.path, cls.qualname)
    methods = linked.reader.methods_of(cls)
    if (
        len(methods) > MAX_LOOKED_AT
        or "." in cls.qualname
        or linked.reader.classes[cls.path][cls.qualname].decorators
        or _is_had_by_text(linked, cls)
    ):
        return False
    if any(
        linked.reader.has_method(base, "__init_subclass__") for base in linked.classes.mro(cls) if isinstance(base, ClassRef)
    ):
        return False
    tables = linked.calls.tables
    named = [(ref, call.callee) for ref, call in tables.calls(cls.qualname)] + [*tables.reads(cls.qualname)]
    users = {ref for ref, text in named if _may_mean(linked, ref.path, text, cls)}
    for method in methods:
        callers = linked.calls.callers(FunctionRef(cls.path, method))
        if callers.escapes:
            return False
        users.update(caller.ref for caller in callers.calls)
    own = f"{cls.qualname}."
    others = {ref for ref in users if not (ref.path == cls.path and ref.qualname.startswith(own))}
    if linked.classes.subclasses(cls) or not (others or is_used_by_programs(linked, cls.path)):
        return False
    return all(is_idle(linked, each, depth + 1) for each in sorted(others))


def _may_mean(linked: Linked, path: str, text: str, what: ClassRef | FunctionRef) -> bool:
    """Whether what a text stands for in a module is not known to be something else: imports under different tests may bind it."""
    head = text.partition(".")[0]
    linked.note(keys.NAME, path, head)
    if len(linked.reader.import_targets[path].get(head, ())) > 1:
        return True
    symbol = linked.names.dotted(path, text)
    if isinstance(symbol, Outside):  # a project may be imported by a name that is not its folder's
        return symbol.name.split(".")[-2:-1] == [posixpath.basename(what.path.removesuffix(INIT)).removesuffix(".py")]
    return not isinstance(symbol, (FunctionRef, ClassRef)) or symbol[:2] == what[:2]


def _is_had_by_text(linked: Linked, what: ClassRef | FunctionRef) -> bool:
    """Whether a name goes by another, is offered by a package, or may be looked up by a text."""
    tables, name = linked.calls.tables, what.qualname.rpartition(".")[2]
    if tables.aliases(name) or tables.is_looked_up(name) or tables.is_put_together(name) or is_offered(linked, what):
        return True
    by_name = any(_has(linked, path, what, name) for word in BY_NAME for path in {ref.path for ref, _ in tables.calls(word)})
    return by_name or _is_looked_up(linked, what, name)


def _is_looked_up(linked: Linked, what: ClassRef | FunctionRef, name: str) -> bool:
    """Whether a text that is computed may name it: for ``instantiate(config)``, for a ``getattr`` of a module that has the name, or of one
    that is imported by such a text; what then goes over the module may take each class."""
    tables = linked.calls.tables
    imports = {ref for word in IMPORTS for ref, call in tables.calls(word) if call.args and not call.args[0].const}
    if any(not (call.args and call.args[0].const) for word in GIVES for _, call in tables.calls(word)) or (
        imports and isinstance(what, ClassRef)
    ):
        return True
    for ref, call in tables.calls("getattr"):
        if len(call.args) < 2 or call.args[1].const:
            continue
        symbol = linked.names.dotted(ref.path, call.args[0].name) if call.args[0].name else None
        if ref in imports or (isinstance(symbol, Module) and _has(linked, symbol.path, what, name)):
            return True
    return False


def _has(linked: Linked, path: str, what: ClassRef | FunctionRef, name: str) -> bool:
    """Whether the module at ``path`` defines it, or imports something of that name."""
    return path == what.path or path in linked.calls.tables.importers(name)


def _may_run_by_itself(name: str) -> bool:
    """Whether a method has a name under which torch or a framework calls it."""
    return name in TORCH.words["forward"] or name in TORCH.module_methods or name in HOOKS


HOOKS = TORCH.words["training-steps"] | {name for _, name in TORCH.hooks}


def _may_hand_on(linked: Linked, path: str, decorator: str) -> bool:
    """Whether a decorator may hand a function on: one that is not torch's."""
    symbol = linked.names.dotted(path, decorator)
    return not isinstance(symbol, Outside) or not symbol.name.startswith("torch.")


def is_used_by_programs(linked: Linked, path: str) -> bool:
    """Whether the own statements of the module at ``path``, or its ``main``, call others of its functions, or programs import it, a part of
    its package, or what it imports itself."""
    linked.note(keys.MODULE, path)
    if any(call.callee.rpartition(".")[2] in COMMANDS for call in linked.reader.functions[path][TOP].calls):
        return False  # whatever the command line asks for
    functions = linked.reader.whole(path).functions
    if len(functions) > MAX_LOOKED_AT:
        return False
    decorators = {use.callee for facts in functions for use in facts.decorators}
    for facts in functions:
        callers = () if facts.parent or facts.owner else linked.calls.callers(FunctionRef(path, facts.qualname)).calls
        running = (each for each in callers if each.ref.path == path and each.call.callee not in decorators)
        if any(each.ref.qualname.rpartition(".")[2] in (TOP, MAIN) for each in running):
            return True
    package = linked.names.layout.names[path].partition(".")[0]
    users = linked.calls.tables.importers(package)
    # ``is_program`` is asked first: it notes what both rest on.
    if any(user != path and (is_program(linked, user) or linked.reader.is_started[user]) for user in users):
        return True
    return imports_of_others(linked, path)
