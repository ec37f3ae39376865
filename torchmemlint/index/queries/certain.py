"""What is beyond doubt about names, classes too, whoever binds them: no answer where something unseen may do so."""

from __future__ import annotations

import builtins
import posixpath
from collections.abc import Callable

from torchmemlint.index import keys
from torchmemlint.index.expressions import ANY_NAME
from torchmemlint.index.linked import Linked
from torchmemlint.index.reader import HeadWithLocals
from torchmemlint.index.references import TOP, ClassRef
from torchmemlint.torch_facts import TORCH

MAX_IMPORTS = 4  # modules from which a name is imported by another in turn
BARE = TORCH.words["bare-bases"]
UNBOUND = ("staticmethod", "classmethod")
HIDES_ATTRIBUTES = frozenset({"__getattr__", "__getattribute__", "__setattr__", "__setstate__", "__init_subclass__", "__new__"})
"""Methods by which an object may have other attributes than those that are assigned."""
BUILTINS = frozenset(dir(builtins)) | TORCH.words["names-of-ipython"]


def _top(linked: Linked, path: str, name: str) -> HeadWithLocals:
    """What a module's own statements bind, read for one name."""
    linked.note(keys.NAME, path, name)
    linked.note(keys.NAME, path, ANY_NAME)
    return linked.reader.functions[path][TOP]


def is_bound(linked: Linked, path: str, name: str) -> bool:
    """Whether a module has a name, or may have it."""
    top = _top(linked, path, name)
    own = name in top.locals or name in linked.reader.import_targets[path] or not top.unsure.isdisjoint((name, ANY_NAME))
    return own or bool(linked.calls.tables.stores(name))


def is_unbound(linked: Linked, path: str, name: str) -> bool:
    """Whether reading a name in a module, where it is no local, raises NameError."""
    return name not in BUILTINS and name[0] != "_" and not is_bound(linked, path, name)


def is_part_of_a_program(linked: Linked, path: str) -> bool:
    """Whether a file imports another of the project: one that stands alone may be a piece of what binds the names that it lacks."""
    linked.note(keys.IMPORTS, path)
    targets = {target for each in linked.reader.import_targets[path].values() for target in each}
    return linked.complete and any(linked.names.file_of(path, parted(target)[0] or target) for target in sorted(targets))


def file_meant(linked: Linked, path: str, module: str) -> str:
    """The file that Python takes for a module of which a file imports a name: by dots, beside the file, or in its own package; "" where
    it may be another one, as in a folder above (``datasets.py`` there, or the library)."""
    file = linked.names.file_of(path, module) if module else ""
    if not file or module[0] == ".":
        return file
    layout, top = linked.names.layout, module.partition(".")[0]
    folder = posixpath.dirname(posixpath.normpath(path))
    found = posixpath.normpath(file).removesuffix("/__init__.py").removesuffix(".py")
    above = [
        place
        for each in layout.candidates(path, top)
        if not (place := posixpath.dirname(each.directory or each.path)) or f"{folder}/".startswith(f"{place}/")
    ]
    beside = found == posixpath.join(folder, module.replace(".", "/"))
    meant = beside or layout.top_package(path) == top or _takes_from(linked, path, top)
    return file if meant and len(above) < 2 else ""


def _takes_from(linked: Linked, path: str, top: str) -> bool:
    """Whether a file imports something that is there from a module inside a package of the project, which hence is what it means by the
    package's name."""
    targets = {
        target for each in linked.reader.import_targets[path].values() for target in each if target.startswith(f"{top}.")
    }
    return any(
        "." in module and (file := linked.names.file_of(path, module)) and name in _top(linked, file, name).locals
        for module, name in map(parted, sorted(targets))
    )


def parted(target: str) -> tuple[str, str]:
    """The module from which an import takes a name, and the name: ("a.b", "c"), ("..", "c")."""
    name = target.rpartition(".")[2]
    module = target.removesuffix(name)
    return module.rstrip(".") or module, name


def definition(linked: Linked, path: str, text: str, depth: int = 0) -> tuple[str, str] | None:
    """The file and name of what the only statement binds that binds a module's name (``config.DEBUG``, too), imports followed."""
    name, _, member = text.partition(".")
    top, targets = _top(linked, path, name), linked.reader.import_targets[path].get(name, ())
    if not top.unsure.isdisjoint((name, ANY_NAME)) or depth > MAX_IMPORTS:
        return None
    if not targets:
        return (path, name) if name in top.locals and not member else None
    module, there = parted(targets[0])
    file = file_meant(linked, path, module)
    if not member:
        return definition(linked, file, there, depth + 1) if file else None
    whole = file_meant(linked, path, targets[0])
    if not whole or (file and is_bound(linked, file, there)):
        return None
    return definition(linked, whole, member, depth + 1)


def binder(linked: Linked, path: str, qualname: str, name: str) -> HeadWithLocals | None:
    """The function of which a name is a local, that or one around; None for a name of the module."""
    facts = linked.reader.scope(path, qualname) if qualname != TOP else None
    while facts is not None and name not in facts.locals:
        facts = linked.reader.scope(path, facts.parent) if facts.parent else None
    return facts


def own_class(facts: HeadWithLocals, path: str, name: str) -> ClassRef | None:
    """The class of whose objects a method is, where they go by that name in it."""
    own = facts.owner and facts.params[:1] and facts.params[0].name == name and name not in facts.unsure
    if not own or any(use.callee in UNBOUND for use in facts.decorators):
        return None
    return ClassRef(path, facts.owner)


def is_stored_in(linked: Linked, path: str, name: str) -> bool:
    """Whether a module stores an attribute of that name on something that is not the object of its own methods."""
    return path in linked.calls.tables.stores(name)


def is_stored_by_name(linked: Linked, name: str) -> bool:
    """Whether any module stores an attribute of that name on something that is not the object of its own methods."""
    return bool(linked.calls.tables.stores(name))


def may_be_stored(linked: Linked, name: str, classes: list[ClassRef] | None = None) -> bool:
    """Whether anything but the methods of its own object stores an attribute of that name, or one whose name it computes; on its own
    object that can be one of these classes alone."""
    stores = linked.calls.tables.stores
    return bool(stores(name) or stores(ANY_NAME)) or any(cls.path in stores("self*") for cls in classes or ())


def family(linked: Linked, cls: ClassRef, is_known: Callable[[str], bool] = BARE.__contains__) -> list[ClassRef]:
    """A class, those below it and all that are above one of these, sorted; none where one of them is not what its text says, or is
    below a class of a library that is not known."""
    found = {base for each in (cls, *linked.classes.subclasses(cls)) for base in linked.classes.mro(each)}
    classes = sorted(base for base in found if isinstance(base, ClassRef))
    plain = all(is_known(base) for base in found if isinstance(base, str)) and all(is_plain(linked, each) for each in classes)
    return classes if plain else []


def is_plain(linked: Linked, cls: ClassRef) -> bool:
    """Whether a class has no decorator, metaclass or second definition, and no method by which its objects hide attributes."""
    linked.note(keys.WHOLE, cls.path, cls.qualname)
    facts = linked.reader.classes[cls.path][cls.qualname]
    if "." in cls.qualname or facts.decorators or any(linked.reader.has_method(cls, name) for name in HIDES_ATTRIBUTES):
        return False
    return cls.qualname not in _top(linked, cls.path, cls.qualname).unsure
