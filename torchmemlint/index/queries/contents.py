"""Questions about what single modules say."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Container, Iterator
from itertools import chain

from torchmemlint.index import keys
from torchmemlint.index.facts import CallFact, FunctionFacts, Header, ModuleFacts
from torchmemlint.index.linked import Linked
from torchmemlint.index.queries.certain import UNBOUND, binder, definition, family, file_meant
from torchmemlint.index.references import TOP, ClassRef, FunctionRef, Outside, Symbol
from torchmemlint.torch_facts import TORCH

FIRST_NAME = re.compile(r"\w+")
BACKWARD_ALONE = "backward()"
"""What ``receivers`` says of ``x.backward()`` without a gradient."""


def module(linked: Linked, path: str) -> ModuleFacts:
    """The facts of the module at ``path``; KeyError when it is not in the project."""
    linked.note(keys.MODULE, path)
    return linked.reader.whole(path)


def imports(linked: Linked, path: str) -> tuple[tuple[str, str], ...]:
    """What the module at ``path`` imports (see ``ModuleFacts.imports``): ask for this alone where no more is wanted, so that
    findings do not rest on all that the module says."""
    linked.note(keys.IMPORTS, path)
    return linked.reader.whole(path).imports


def assigned(linked: Linked, path: str, name: str) -> str | None:
    """What the module at ``path`` assigns to a name, as ``ModuleFacts.assigned`` has it; None where it does not."""
    linked.note(keys.NAME, path, name)
    return next((text for assigned, text in linked.reader.whole(path).assigned if name == assigned), None)


def within(linked: Linked, path: str, qualname: str) -> tuple[FunctionFacts, ...]:
    """The function of that name in the module at ``path`` and all that are inside it, or inside the class of that name; in the
    order of the file, every definition of each."""
    linked.note(keys.INSIDE, path, qualname)
    known = linked.within.get(path)
    if known is None:
        inside: dict[str, list[FunctionFacts]] = {}
        for facts in linked.reader.whole(path).functions:
            around = facts.qualname
            while around:
                inside.setdefault(around, []).append(facts)
                around = around.rpartition(".")[0]
        known = linked.within[path] = {around: tuple(each) for around, each in inside.items()}
    return known.get(qualname, ())


def header(linked: Linked, ref: FunctionRef) -> Header:
    """The header of a function: ask for this alone where no more is wanted, so that findings do not rest on its body. Raises
    KeyError."""
    linked.note(keys.HEAD, ref.path, ref.qualname)
    known = linked.headers.get(ref)
    if known is None:
        known = linked.headers[ref] = linked.reader.functions[ref.path][ref.qualname].header
    return known


MAIN = "main"
MADE_BY = re.compile(rf"\.({'|'.join(sorted(TORCH.words['gives-itself']))})\(\)$")
"""A call of a module's method that gives the module itself."""
MAX_INSIDE = 400
"""Functions inside a class that are looked at for what they show about its attributes. Each method asks for it, of all
others."""


def receivers(linked: Linked, path: str, around: str, qualname: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """On what the function of that name calls which methods, sorted; of the others in the class or function ``around``, on
    what of ``self``. "()" is the method of what is called itself with arguments, ``BACKWARD_ALONE`` that of a plain
    ``backward()``. Of all that ``within`` gives, what others mostly want to know."""
    gathered: dict[str, set[str]] = {}
    inside = within(linked, path, around)
    for other in inside if len(inside) <= MAX_INSIDE else within(linked, path, qualname):
        same = other.qualname == qualname or other.qualname.startswith(f"{qualname}.")
        if not same and other.qualname == around:
            continue
        for name, value in (*other.bound, *other.rebound) if same else ():
            while link := MADE_BY.search(value):  # `net = build(settings).to(device)`
                gathered.setdefault(name, set()).add(link[1])
                value = value[: link.start()]
        for call in other.calls:
            callee = call.callee
            if not same and callee[:5] != "self.":
                continue
            if call.args and "(" not in callee:
                gathered.setdefault(callee, set()).add("()")
            receiver, _, method = callee.rpartition(".")
            while receiver.endswith("()") and MADE_BY.search(receiver):  # `net.to(device).eval()`
                receiver = receiver.rpartition(".")[0]
            if receiver and (same or receiver.startswith("self.")):
                gathered.setdefault(receiver, set()).add(method)
                if method == TORCH.names["backward"] and all(
                    a.keyword in TORCH.words["keeps-graph-arguments"] for a in call.args
                ):
                    gathered[receiver].add(BACKWARD_ALONE)
    return tuple((receiver, tuple(sorted(methods))) for receiver, methods in sorted(gathered.items()))


def saying(linked: Linked, path: str, qualname: str, *words: str) -> tuple[str, ...]:
    """The functions inside a class that say one of the words (see ``FunctionFacts.names``), by name, in the order of the file."""
    inside = within(linked, path, qualname)
    return tuple(f.qualname for f in inside if f.qualname.startswith(f"{qualname}.") and not f.names.isdisjoint(words))


def functions_saying(linked: Linked, word: str) -> tuple[FunctionRef, ...]:
    """The functions of the project, and files' own statements, that say a word (see ``FunctionFacts.names``), in the order of the
    modules."""
    found: list[FunctionRef] = []
    for path in linked.calls.tables.saying(word):
        linked.note(keys.MODULE, path)
        found += [FunctionRef(path, f.qualname) for f in linked.reader.whole(path).functions if word in f.names]
    return tuple(found)


def is_looked_up(linked: Linked, name: str) -> bool:
    """Whether some code may look up what has a name by a text of it."""
    return linked.calls.tables.is_looked_up(name) or linked.calls.tables.is_put_together(name)


def knowing(linked: Linked, path: str, text: str) -> tuple[str, ...]:
    """The functions of the module at ``path`` that may say dotted text which is no local of theirs, and its own statements, in the
    order of the file: those that read or bind its first name."""
    linked.note(keys.MODULE, path)
    first = FIRST_NAME.match(text)
    functions = (f for f in linked.reader.whole(path).functions if f.qualname == TOP or text not in f.locals)
    if first is None:
        return tuple(f.qualname for f in functions)
    return tuple(
        f.qualname for f in functions if f.qualname == TOP or first[0] in f.names or first[0] in dict((*f.bound, *f.rebound))
    )


def module_name(linked: Linked, path: str) -> str:
    """The module's absolute dotted name, unique in the project."""
    return linked.names.layout.names[path]


def is_unused_file(linked: Linked, path: str) -> bool:
    """Whether a program is visible that does not use the file at ``path``: no module imports it, by its name or by a text, it does
    nothing when it is run, and others of its folder, or what it imports itself, are imported."""
    linked.note(keys.MODULE, path)
    if not linked.complete or path.endswith(".ipynb") or is_program(linked, path):
        return False
    folder, name = _folder_and_name(path)
    if any(symbol is None or isinstance(symbol, Outside) or symbol.path == path for _, symbol in _imported_by(linked, name)):
        return False
    if any(linked.calls.tables.calls(word) for word in sorted(TORCH.words["imports-by-name"])):
        return False
    if "." in linked.names.layout.names[path]:
        return _is_of_a_program(linked, path)
    users = linked.calls.tables.importers(posixpath.basename(folder))
    if any(posixpath.dirname(posixpath.normpath(user)) != folder and is_program(linked, user) for user in users):
        return True
    return imports_of_others(linked, path)


def imports_of_others(linked: Linked, path: str) -> bool:
    """Whether the module at ``path`` imports something of the project that a program imports, too."""
    linked.note(keys.IMPORTS, path)
    return any(_is_used_elsewhere(linked, path, target) for _, target in linked.reader.whole(path).imports)


def is_imported_file(linked: Linked, path: str) -> bool:
    """Whether another module imports the module at ``path``, or something of it."""
    return any(
        symbol is not None and not isinstance(symbol, Outside) and symbol.path == path and user != path
        for user, symbol in _imported_by(linked, _folder_and_name(path)[1])
    )


def _imports_with(linked: Linked, name: str) -> Iterator[tuple[str, str]]:
    """What modules import of which a name is a part, each with the module."""
    for user in linked.calls.tables.importers(name):
        linked.note(keys.IMPORTS, user)
        for _, target in linked.reader.whole(user).imports:
            if name in target.split("."):
                yield user, target


def _imported_by(linked: Linked, name: str) -> Iterator[tuple[str, Symbol | None]]:
    """What these imports mean; None: nothing that is visible."""
    return ((user, linked.names.imported(user, target)) for user, target in _imports_with(linked, name))


def _modules_named(linked: Linked, name: str) -> Iterator[tuple[str, str]]:
    """The modules of that name that these imports go through, as they are written."""
    for user, target in _imports_with(linked, name):
        parts = target.split(".")
        yield user, ".".join(parts[: parts.index(name) + 1])


def _who_may_import(linked: Linked, path: str) -> frozenset[str]:
    """The modules that import the module at ``path``, or may: what is called so may be another file, which is not known."""
    name, found = _folder_and_name(path)[1], set()
    for user, module in dict.fromkeys(_modules_named(linked, name)):
        file, top = file_meant(linked, user, module), module.partition(".")[0]
        if file == path or (not file and (top in ("", name) or linked.names.layout.candidates(user, top))):
            found.add(user)
    return frozenset(found)


def _folder_and_name(path: str) -> tuple[str, str]:
    return posixpath.split(posixpath.normpath(path).removesuffix("/__init__.py").removesuffix(".py"))


def _is_of_a_program(linked: Linked, path: str) -> bool:
    """Whether a program that stands beside the package of a module imports something of that, or one beside the module imports it by
    its own name alone."""
    package, (folder, name) = linked.names.layout.names[path], _folder_and_name(path)
    root = posixpath.normpath(posixpath.join(folder, *[".."] * package.count(".")))
    users = [(user, root) for user in linked.calls.tables.importers(package.partition(".")[0])]
    users += [
        (user, folder)
        for user, module in _modules_named(linked, name)
        if module == name and file_meant(linked, user, name) == path
    ]
    return any(posixpath.normpath(posixpath.dirname(user)) == place and is_program(linked, user) for user, place in users)


def is_part_of_program(linked: Linked, path: str) -> bool:
    """Whether the module at ``path`` is a program, or part of one beside it, and not of a library that others may use."""
    linked.note(keys.WHOLE, path, TOP)
    linked.note(keys.NAME, path, MAIN)
    known = linked.complete and not path.endswith(".ipynb")
    return known and (linked.reader.is_started[path] or _is_of_a_program(linked, path))


def files_of_programs(linked: Linked, path: str) -> frozenset[str]:
    """See ``_files_of_programs``."""
    return linked.once(_files_of_programs, path)


def _files_of_programs(linked: Linked, path: str) -> frozenset[str]:
    """The modules that may be loaded in a process that loads the module at ``path``: those that import it, be it by way of others, and
    all that these import; every module, where one of them imports by a text, or one may import a module that is no program so."""
    by_text = {ref.path for word in sorted(TORCH.words["imports-by-name"]) for ref, _ in linked.calls.tables.calls(word)}
    linked.note(keys.NAME, path, MAIN)
    above, todo = {path}, [path]
    while todo:
        known = todo.pop()
        users = linked.once(_who_may_import, known) - above
        above |= users
        todo += sorted(users)
    found, todo = set(above), [*above]
    while todo:
        known = todo.pop()
        linked.note(keys.IMPORTS, known)
        for _, target in linked.reader.whole(known).imports:
            symbol = linked.names.imported(known, target.removesuffix(".*"))
            if symbol is not None and not isinstance(symbol, Outside) and symbol.path and symbol.path not in found:
                found.add(symbol.path)
                todo.append(symbol.path)
    known_alone = not by_text or (linked.reader.is_started[path] and by_text.isdisjoint(found))
    return frozenset(found if known_alone else linked.names.layout.names)


def has_visible_users_alone(linked: Linked, ref: FunctionRef) -> bool:
    """Whether all calls of a function, or of its class where it makes objects, are among its callers: they are by all that names it, and
    nothing may have it by a text of which nothing is known."""
    of_objects = "." in ref.qualname and not ref.qualname.endswith(".__init__")
    return has_visible_callers(linked, ref) and not may_look_up(linked, of_objects, files_of_programs(linked, ref.path))


def has_visible_callers(linked: Linked, ref: FunctionRef) -> bool:
    """Whether all that names a function, or its class where it makes objects, are its callers: it is part of a program, and nothing
    hands it on, offers it to others, or calls a method of that name of an object that may be its own."""
    tables, head = linked.calls.tables, header(linked, ref)
    if ref.qualname == TOP or head.parent or any(use.callee not in UNBOUND for use in head.decorators):
        return False
    owner, _, name = ref.qualname.rpartition(".")
    makes = name == "__init__"
    if (owner and (name in TORCH.words["forward"] or name in TORCH.module_methods)) or (name.startswith("__") and not makes):
        return False
    if not is_part_of_program(linked, ref.path) or (owner and not family(linked, ClassRef(ref.path, owner))):
        return False
    known = owner if makes else name
    named = [tables.reads(known), tables.aliases(known), tables.is_looked_up(known), tables.is_put_together(known)]
    if any(named) or is_offered(linked, ClassRef(ref.path, owner) if owner else ref) or linked.calls.callers(ref).escapes:
        return False
    files = files_of_programs(linked, ref.path)
    calls = tables.calls(name) if owner and not makes else ()
    return not any(caller.path in files and _may_be_of_any(linked, caller, call) for caller, call in calls)


def is_offered(linked: Linked, what: ClassRef | FunctionRef) -> bool:
    """Whether a package imports a function or class for others to use."""
    name = what.qualname.rpartition(".")[2]
    for path in linked.calls.tables.importers(name):
        if path.endswith("/__init__.py"):
            linked.note(keys.IMPORTS, path)
            targets = [target for _, target in linked.reader.whole(path).imports if target.rpartition(".")[2] == name]
            symbols = [linked.names.imported(path, target) for target in targets]
            if any(not isinstance(symbol, (FunctionRef, ClassRef)) or symbol[:2] == what[:2] for symbol in symbols):
                return True
    return False


def may_look_up(linked: Linked, of_objects: bool, files: Container[str] | None = None) -> bool:
    """Whether some module, of these alone where they are given, takes a name out of a namespace by a text of which nothing is known:
    ``getattr(models, arch)``, ``models.__dict__[arch]``, ``eval(arch)``; ``of_objects``: also out of an object's. (Of others
    ``is_put_together`` knows.)"""
    tables = linked.calls.tables
    by_word = (ref for word in sorted(TORCH.words["calls-by-name"]) for ref in functions_saying(linked, word))
    by_key = (  # an object's own `__dict__` holds none of its methods
        ref
        for ref, call in tables.calls("")
        if call.callee.startswith("eval()") or ".__dict__[" in call.callee.removeprefix("self.")
    )
    by_text = (
        ref
        for ref, call in tables.calls("getattr")
        if len(call.args) > 1
        and not (call.args[1].const or call.args[1].test)
        and (of_objects or not call.args[0].name.startswith("self"))
        and not isinstance(linked.names.dotted(ref.path, call.args[0].name) if call.args[0].name else None, Outside)
    )
    return any(files is None or ref.path in files for ref in chain(by_word, by_key, by_text))


def _may_be_of_any(linked: Linked, caller: FunctionRef, call: CallFact) -> bool:
    """Whether a call of a method may be on an object of any class: not on ``self``, or on an attribute of that, or a variable that one
    statement binds, of which the class is known. Others may be bound to objects of several classes."""
    receiver = call.callee.rpartition(".")[0]
    if receiver in ("", "self", "super()"):
        return False
    scope = binder(linked, caller.path, caller.qualname, receiver.partition(".")[0])
    once = receiver not in scope.unsure if scope is not None else definition(linked, caller.path, receiver) is not None
    known = (receiver.startswith("self.") or once) and linked.points_to.values(caller.path, caller.qualname, receiver)
    return not known or not linked.calls.resolver.callees(caller.path, caller.qualname, call.callee, call.keywords).refs


def is_imported_by_name(linked: Linked, name: str) -> bool:
    """Whether some module imports what has this name."""
    for path in linked.calls.tables.importers(name):
        linked.note(keys.IMPORTS, path)
        if any(target.rpartition(".")[2] == name for _, target in linked.reader.whole(path).imports):
            return True
    return False


def is_program(linked: Linked, path: str) -> bool:
    """Whether the module at ``path`` does something when it is run, as a library does not, which programs that are not visible may
    use: it acts (``views.acts``), or its own statements call a function or method of the project, whatever becomes of the result
    (``best = train(args)``, ``raise SystemExit(run())``). To make an object is not enough: a library does that, too."""
    linked.note(keys.WHOLE, path, TOP)
    linked.note(keys.NAME, path, MAIN)
    if linked.reader.acts[path]:
        return True
    calls = [call for call in linked.reader.functions[path][TOP].calls if not call.deferred]
    reached = (linked.calls.resolver.callees(path, TOP, call.callee, call.keywords).refs for call in calls)
    return any(ref.qualname.rpartition(".")[2] not in ("__init__", "__new__") for refs in reached for ref in refs)


def _is_used_elsewhere(linked: Linked, path: str, target: str) -> bool:
    """Whether a program imports a module of the project that the module at ``path`` imports as well."""
    symbol = linked.names.imported(path, target)
    if symbol is None or isinstance(symbol, Outside):
        return False
    file = posixpath.normpath(symbol.path).removesuffix("/__init__.py").removesuffix(".py")
    users = linked.calls.tables.importers(posixpath.basename(file))
    return any(user not in (path, symbol.path) and is_program(linked, user) for user in users)
