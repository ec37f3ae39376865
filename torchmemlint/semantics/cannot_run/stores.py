"""Where attributes are stored, by whatever way, in the whole project; and what in a file binds names that nobody sees."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.semantics.text import dotted
from torchmemlint.semantics.walk import everything
from torchmemlint.semantics.world import MODULE, World
from torchmemlint.torch_facts import TORCH

MAX_FILES = 30
"""Files that say a name: more are not looked at."""
BINDS_UNSEEN = TORCH.words["binds-unseen"]
"""Words of a module that may bind names of its own, or attributes, by a text."""
FILLS = re.compile(
    r"=\s*vars\([^()]*\)\s*(#|$)|\bvars\([^()]*\)\s*(\[[^\]]*\]\s*=(?!=)|\.(update|setdefault|pop)\b)"
    r"|[\w.()]*__dict__\s*(=(?!=)|\[[^\]]*\]\s*=(?!=)|\.(update|setdefault|pop)\b)|=\s*[\w.()]*__dict__\s*(#|$)|[\w.()]*__setattr__\s*\("
)
"""Ways to store attributes by what ``vars`` and its kin give; to read these changes nothing."""
SETS = "setattr"
UNBOUND = ("staticmethod", "classmethod")


def may_bind_unseen(world: World, path: str, by_stars: bool = True) -> bool:
    """Whether a file may bind names of its own that its statements do not show, star imports left out where not ``by_stars``."""
    module = world.project.module(path)
    return (
        module.recovered
        or path.endswith(".ipynb")
        or (by_stars and any(name[0] == "*" for name, _ in module.imports))
        or any(facts.names & BINDS_UNSEEN for facts in module.functions)
    )


def file_meant(world: World, path: str, name: str, module: str) -> str:
    """The file of the project that Python takes for a module of which a file imports a name: by dots, beside the file, or from a folder
    above it; "" where it may be another one."""
    file = world.project.imported_file(path, name, module)
    if not file or module.startswith("."):
        return file
    found = posixpath.normpath(file).removesuffix("/__init__.py").removesuffix(".py")
    below = module.replace(".", "/")
    folder = posixpath.dirname(posixpath.normpath(path))
    meant = f"/{found}".endswith(f"/{below}") and f"{folder}/".startswith(found.removesuffix(below))
    return file if meant else ""


def given_by_stars(world: World, path: str) -> tuple[str, ...] | None:
    """The files of which a file may have names by star imports, in any number of steps; None where one is not visible, or may give names
    that it does not bind (the parts of a package in ``__all__``)."""
    found, waiting = dict[str, None](), [path]
    while waiting:
        current = waiting.pop()
        for name, module in world.project.imports(current):
            if name[0] != "*":
                continue
            file = file_meant(world, current, name, module)
            if not file or (file.endswith("__init__.py") and any("__all__" in line for line in world.lines(file))):
                return None
            if file not in found:
                found[file] = None
                waiting.append(file)
    return tuple(found)


def is_declared_global(world: World, path: str, name: str) -> bool:
    """Whether a function of a file may bind a name of the module."""
    declared = re.compile(rf"^\s*global\b.*\b{re.escape(name)}\b")
    return any(declared.match(line) for line in world.lines(path))


def is_stored(world: World, name: str) -> bool:
    """Whether an attribute of that name is stored anywhere in the project but by a plain assignment of a method to its own object: that is
    among the facts of its class."""
    return world.memoize(_is_stored, name)


def may_be_set(world: World, name: str, classes: Iterable[ClassRef] = ()) -> bool:
    """As ``is_stored``, and whether the project stores attributes by a text that it computes; on the own object of a method it may be one
    of objects of these classes alone."""
    writers = world.memoize(_writers, "")
    return is_stored(world, name) or None in writers or not {cls.path for cls in classes}.isdisjoint(writers)


def _writers(world: World, _: str) -> frozenset[str | None]:
    """The files in which methods set attributes of their own object by a text that they compute; None is among them where anything
    sets those of another."""
    project, found = world.project, set[str | None]()
    for path in project.modules_saying(SETS):
        for facts in project.module(path).functions:
            own = facts.params[0].name if facts.params else ""
            for call in facts.calls:
                if call.callee == SETS and not (len(call.args) > 1 and call.args[1].const):
                    found.add(path if call.args and own and call.args[0].name == own else None)
    for word in ("vars", "__dict__", "__setattr__"):
        for path in project.modules_saying(word):
            for line in world.lines(path):
                for written in FILLS.finditer(line):
                    found.add(path if "self" in written[0] else None)
    return frozenset(found)


def _is_stored(world: World, name: str) -> bool:
    project = world.project
    paths = project.modules_saying(name)
    if len(paths) > MAX_FILES:
        return True
    text = repr(name)
    for path in project.modules_saying(SETS):
        calls = [call for facts in project.module(path).functions for call in facts.calls if call.callee == SETS]
        if any(call.args[1].const == text for call in calls if len(call.args) > 1):
            return True
    return any(world.memoize(_stores_in, (path, name)) for path in paths)


def _stores_in(world: World, key: tuple[str, str]) -> bool:
    """Whether a function of a file stores an attribute of that name on what is not its own object, or by anything but a plain
    assignment."""
    path, name = key
    for facts in world.project.module(path).functions:
        if facts.parent or (facts.qualname != MODULE and name not in facts.names):
            continue
        found = world.function(FunctionRef(path, facts.qualname))
        if found is None:
            return True
        bound = facts.owner and facts.params and all(use.callee not in UNBOUND for use in facts.decorators)
        own = facts.params[0].name if bound else ""
        for each in everything(found[0].body):
            plain = each.targets if isinstance(each, ir.Assign) else []
            for target in _targets(each):
                if isinstance(target, ir.Attr) and target.name == name:
                    if not own or target not in plain or dotted(target.value) != own:
                        return True
    return False


def _targets(node: object) -> list[ir.Expr]:
    match node:
        case ir.Assign() | ir.Delete():
            return [part for target in node.targets for part in _flat(target)]
        case ir.AugAssign() | ir.For() | ir.CompClause():
            return _flat(node.target)
        case ir.WithItem() if node.target is not None:
            return _flat(node.target)
    return []


def _flat(target: ir.Expr) -> list[ir.Expr]:
    match target:
        case ir.Sequence():
            return [part for item in target.items for part in _flat(item)]
        case ir.Star():
            return _flat(target.value)
    return [target]
