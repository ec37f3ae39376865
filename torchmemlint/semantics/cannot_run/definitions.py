"""What a call reaches, where that is beyond doubt: the one definition of a name, or of a method of an object whose class is known."""

from __future__ import annotations

from torchmemlint.index.fact_words import AttrKind
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.semantics.cannot_run.stores import file_meant, is_declared_global, is_stored, may_bind_unseen
from torchmemlint.semantics.cannot_run.ways import Scopes, binders
from torchmemlint.semantics.world import MODULE, World
from torchmemlint.torch_facts import TORCH

MAX_IMPORTS = 4
"""Modules from which a name is imported by another in turn."""
BARE = TORCH.words["bare-bases"]
GIVES_ITSELF = TORCH.words["gives-itself"]
FORWARD, INIT, CALL = TORCH.names["forward"], "__init__", "__call__"
OF_TORCH = "torch."
"""Classes of torch have no metaclass, and no ``__new__``, that takes arguments of its own."""
HOOKS_INPUTS = TORCH.names["forward-pre-hook"]
HIDES_ATTRIBUTES = ("__getattr__", "__getattribute__", "__setattr__", "__setstate__", "__init_subclass__", "__new__")
"""Methods by which an object may have other attributes than those that are assigned."""


def defined(world: World, path: str, scopes: Scopes, name: str) -> FunctionRef | ClassRef | None:
    """The function or class that a name is, by its only binding; imports followed."""
    if any(name in function.locals for function in scopes if function.qualname != MODULE):
        return None
    return world.memoize(_defined, (path, name, 0))


def _defined(world: World, key: tuple[str, str, int]) -> FunctionRef | ClassRef | None:
    path, name, depth = key
    found = world.function(FunctionRef(path, MODULE))
    if found is None or may_bind_unseen(world, path) or is_declared_global(world, path, name):
        return None
    match binders(found[0], name):
        case [ir.ImportStmt(bindings=bindings)] if depth < MAX_IMPORTS:
            module, _, there = dict(bindings)[name].rpartition(".")
            file = file_meant(world, path, name, module) if module else ""
            return world.memoize(_defined, (file, there, depth + 1)) if file else None
        case [ir.FunctionDef()] if _is_defined_once(world, path, name) and not is_stored(world, name):
            return FunctionRef(path, name)
        case [ir.ClassDef()] if not is_stored(world, name):
            return ClassRef(path, name)
    return None


def _is_defined_once(world: World, path: str, qualname: str) -> bool:
    return sum(facts.qualname == qualname for facts in world.within(path, qualname)) == 1


def members(world: World, path: str, scopes: Scopes, module: str, name: str) -> FunctionRef | ClassRef | None:
    """As ``defined``, of ``module.name``."""
    if any(module in function.locals for function in scopes if function.qualname != MODULE):
        return None
    target = dict(world.project.imports(path)).get(module, "")
    if not target or len(world.memoize_of_function(_bound_by, (path, module))) != 1 or may_bind_unseen(world, path):
        return None
    file = file_meant(world, path, module, target)
    return world.memoize(_defined, (file, name, 0)) if file else None


def owner_of(world: World, path: str, scopes: Scopes, name: str) -> ClassRef | None:
    """The class whose method a function around is that has ``name`` for its object."""
    method = next((function for function in scopes if any(param.name == name for param in function.params)), None)
    if method is None or any(name in function.locals for function in scopes[scopes.index(method) + 1 :]):
        return None
    ref = FunctionRef(path, method.qualname)
    header = world.header(ref)
    if not header.owner or header.params[0].name != name or header.parent or binders(method, name):
        return None
    if any(use.callee in ("staticmethod", "classmethod") for use in header.decorators):
        return None
    return ClassRef(path, header.owner)


def family(world: World, cls: ClassRef) -> list[ClassRef] | None:
    """A class, those below it, and all that are above one of these, sorted; None where one of them is not what its text says."""
    project = world.project
    found = {base for each in (cls, *project.subclasses(cls)) for base in project.mro(each)}
    if any(isinstance(base, str) and base not in BARE for base in found):
        return None
    classes = sorted(base for base in found if isinstance(base, ClassRef))
    plain = all(world.memoize(is_plain, each) for each in classes)
    return classes if plain else None


def is_plain(world: World, cls: ClassRef) -> bool:
    """Whether a class has no decorator, metaclass or second definition, and no method by which its objects hide attributes."""
    module = world.project.module(cls.path)
    same = [each for each in module.classes if each.qualname == cls.qualname]
    if len(same) != 1 or same[0].decorators or module.recovered:
        return False
    if any(name in HIDES_ATTRIBUTES for name, _ in same[0].methods):
        return False
    found = world.function(FunctionRef(cls.path, MODULE))
    place = [] if found is None else [each for each in binders(found[0], cls.qualname) if isinstance(each, ir.ClassDef)]
    return len(place) == 1 and all(not arg.keyword and not arg.star for arg in place[0].bases)


def called(world: World, path: str, scopes: Scopes, func: ir.Expr) -> list[tuple[FunctionRef, bool]]:
    """Every function that a call may run, and whether its first parameter is bound; none where that is not beyond doubt."""
    match func:
        case ir.Name():
            made = defined(world, path, scopes, func.id)
            if made is None:
                cls = _made(world, path, scopes, func)
                return _forward(world, cls) if cls is not None else []
        case ir.Attr(value=ir.Name(id=owner)):
            made = members(world, path, scopes, owner, func.name)
            if made is None:
                return _of_object(world, path, scopes, func)
        case _:
            return []
    if isinstance(made, FunctionRef):
        return [(made, False)]
    return _constructor(world, made)


def _of_object(world: World, path: str, scopes: Scopes, func: ir.Attr) -> list[tuple[FunctionRef, bool]]:
    """A method of the function's own object, or of one that it or its constructor makes; the ``forward`` of a module that it holds."""
    assert isinstance(func.value, ir.Name)
    cls = owner_of(world, path, scopes, func.value.id)
    if cls is None:
        made = _made(world, path, scopes, func.value)
        return _methods(world, [made], func.name) if made is not None and family(world, made) else []
    classes = family(world, cls)
    if classes is None:
        return []
    if any(fact.name == func.name for each in classes for fact in world.project.attrs(each)):
        held = _made(world, path, scopes, func)
        return _forward(world, held) if held is not None else []
    return _methods(world, [cls, *world.project.subclasses(cls)], func.name)


def _methods(world: World, classes: list[ClassRef], name: str) -> list[tuple[FunctionRef, bool]]:
    found = [world.project.method(each, name) for each in classes]
    if is_stored(world, name) or any(ref is None or not _is_defined_once(world, *ref[:2]) for ref in found):
        return []
    refs = dict.fromkeys(ref for ref in found if ref is not None)
    return [(ref, all(use.callee != "staticmethod" for use in world.header(ref).decorators)) for ref in refs]


def _made(world: World, path: str, scopes: Scopes, place: ir.Expr) -> ClassRef | None:
    """The class of what a local name, or an attribute of the function's own object, is bound to once, by a call of the class."""
    match place:
        case ir.Name():
            within = next((each for each in reversed(scopes) if place.id in each.locals), None)
            if within is not None and within.qualname == MODULE:
                bound = world.memoize_of_function(_bound_by, (path, place.id))
            else:
                bound = binders(within, place.id) if within is not None else []
            if len(bound) != 1 or any(param.name == place.id for each in scopes for param in each.params):
                return None
            if within is not None and within.qualname == MODULE and is_declared_global(world, path, place.id):
                return None
            match bound[0]:
                case ir.Assign(targets=[ir.Name()], value=value):
                    maker = _maker(value)
                    found = defined(world, path, scopes, maker) if maker else None
                    return found if isinstance(found, ClassRef) else None
        case ir.Attr(value=ir.Name(id=owner)):
            cls = owner_of(world, path, scopes, owner)
            classes = family(world, cls) if cls is not None else None
            return _held(world, classes, place.name) if classes else None
    return None


def _bound_by(world: World, key: tuple[str, str]) -> list[object]:
    """What binds a name of a module: asked for each call, of modules that may be long."""
    path, name = key
    found = world.function(FunctionRef(path, MODULE))
    return binders(found[0], name) if found is not None else []


def _maker(value: ir.Expr) -> str:
    """``Net`` of ``Net()``, and of ``Net().cuda().eval()``; "" for anything else."""
    while isinstance(value, ir.Call):
        if isinstance(value.func, ir.Name):
            return value.func.id
        if not isinstance(value.func, ir.Attr) or value.func.name not in GIVES_ITSELF:
            break
        value = value.func.value
    return ""


def _held(world: World, classes: list[ClassRef], name: str) -> ClassRef | None:
    """The class of what an attribute of all these classes is bound to, by a call of it."""
    facts = [(fact, each) for each in classes for fact in world.project.attrs(each) if fact.name == name]
    if len(facts) != 1 or facts[0][0].kind is not AttrKind.CALL or is_stored(world, name):
        return None
    fact, cls = facts[0]
    maker = fact.value.removesuffix("()")
    if not maker.isidentifier() or not fact.method:
        return None
    method = world.function(FunctionRef(cls.path, fact.method))
    found = defined(world, cls.path, (method[0],), maker) if method is not None else None
    return found if isinstance(found, ClassRef) else None


def _forward(world: World, cls: ClassRef) -> list[tuple[FunctionRef, bool]]:
    """The ``forward`` that a call of a module runs."""
    classes = family(world, cls)
    if classes is None or not any(base in BARE for base in world.project.mro(cls)):
        return []
    if world.project.method(cls, CALL) is not None or world.project.says(HOOKS_INPUTS):
        return []
    return _methods(world, [cls], FORWARD)


def _constructor(world: World, cls: ClassRef) -> list[tuple[FunctionRef, bool]]:
    order = world.project.mro(cls)
    if any(not base.startswith(OF_TORCH) if isinstance(base, str) else not world.memoize(is_plain, base) for base in order):
        return []
    for base in order:
        if isinstance(base, str):
            return []
        own = FunctionRef(base.path, f"{base.qualname}.{INIT}")
        if world.project.method(base, INIT) == own:
            return [(own, True)] if _is_defined_once(world, *own[:2]) else []
    return []
