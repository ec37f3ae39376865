"""Who keeps an object: one search upwards, from tensors to a name.

Above a tensor come containers, instances, cells, frames that have ended; on top is a *root*: a local variable of a running frame (Python's
collector does not see those, so their values are looked up by id), a module's global, a class, a generator, or nobody in Python.
"""

from __future__ import annotations

import collections
import contextvars
import functools
import gc
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torchmemlint.growth.worker.frames import is_users_file, locals_of, name_of
from torchmemlint.growth.worker.heap import is_node, is_tensor

DEPTH, WIDTH = 24, 240
_SKIPPED = (types.ModuleType, types.BuiltinFunctionType, types.CodeType)
CACHE = type(functools.lru_cache(print))
MODULE_SPACE: Any = vars(types.ModuleType)["__dict__"].__get__
CLASS_SPACE: Any = vars(type)["__dict__"].__get__
"""The namespace of a module or class, without asking it for its ``__dict__``."""
GENERATORS = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)


@dataclass(frozen=True, slots=True)
class Root:
    """Where a path ends. ``kind``: local, global, class, generator, context, frame, stack, function, node, nobody. ``name`` is the variable; ``of``
    the function or module; ``owner`` the frame, the namespace or the object itself."""

    kind: str
    name: str
    of: str
    owner: Any


@dataclass(slots=True)
class Path:
    """``objects`` from what is kept up to what the root names."""

    objects: list[Any]
    root: Root


def is_a(thing: object, kinds: type | tuple[type, ...]) -> bool:
    """``isinstance`` by the type alone: a proxy's ``__class__`` is not asked."""
    return issubclass(type(thing), kinds)


class Roots:
    """The values that have a name now: locals of the running frames of all threads, globals of modules."""

    def __init__(self, stack: types.FrameType) -> None:
        self.by_id: dict[int, Root] = {}
        self.namespaces: dict[int, tuple[str, dict[str, Any]]] = {}
        for name, module in list(sys.modules.items()):
            if is_a(module, types.ModuleType):
                space = MODULE_SPACE(module)
                self.namespaces.setdefault(id(space), (name, space))
        frames: list[types.FrameType] = []
        for top in (stack, *(frame for frame in sys._current_frames().values())):
            current: types.FrameType | None = top
            while current is not None:
                if current not in frames and not is_ours(current):
                    frames.append(current)
                current = current.f_back
        for frame in frames:
            if id(frame.f_globals) not in self.namespaces:
                self.namespaces[id(frame.f_globals)] = (str(frame.f_globals.get("__name__", "?")), frame.f_globals)
        self.frames = frames
        for frame in frames:
            if not is_users_file(frame.f_code.co_filename):
                self._locals(frame)
        for name, space in self.namespaces.values():  # a global of the user's says more than a local of a library's loop
            if is_users_file(str(space.get("__file__", "<"))):
                self._globals(name, space)
        for frame in frames:
            if is_users_file(frame.f_code.co_filename):
                self._locals(frame)

    def _locals(self, frame: types.FrameType) -> None:
        if id(locals_of(frame)) in self.namespaces or frame.f_code.co_name == "<module>":
            return
        for name, value in list(locals_of(frame).items()):
            if not is_a(value, types.ModuleType):
                self.by_id[id(value)] = Root("local", name, name_of(frame.f_code), frame)

    def _globals(self, module: str, space: dict[str, Any]) -> None:
        for name, value in reversed(list(space.items())):
            if (
                type(name) is str
                and not name.startswith("__")
                and not is_a(value, (types.ModuleType, type, types.FunctionType))
            ):
                self.by_id[id(value)] = Root("global", name, module, space)

    def of(self, thing: Any) -> Root | None:
        """The root that a value is named by: a running frame's local, or a global of the user's."""
        return self.by_id.get(id(thing))


def is_ours(frame: types.FrameType) -> bool:
    """Whether a frame is one of this package's."""
    return str(frame.f_globals.get("__name__", "")).startswith("torchmemlint.growth")


class Search:
    """Searches upwards from some objects, all at once; ``mine`` are the containers of whoever searches, ``unseen`` the holders of an object,
    by its id, that the collector does not see. Above a generator that ``is_new`` and has no name the search goes on: it is one of many, as a
    session in a list is."""

    def __init__(
        self,
        objects: list[Any],
        roots: Roots,
        mine: Iterable[object] = (),
        unseen: Mapping[int, list[Any]] | None = None,
        is_new: Callable[[Any], bool] = lambda thing: False,
    ) -> None:
        if gc.get_freeze_count():
            gc.unfreeze()  # holders that the program froze would not be found; to freeze again would keep what is garbage by now
        self.roots = roots
        self._unseen = unseen or {}
        self._is_new = is_new
        self._above: dict[int, list[Any]] = {}
        self._kept: list[Any] = []
        self._mine = {id(one) for one in (objects, self._above, self._kept, roots.by_id, roots.namespaces, roots.frames, *mine)}
        self._mine.update((id(self._unseen), *map(id, self._unseen.values())))
        self._mine.update(id(root) for root in roots.by_id.values())
        self._mine.update(id(pair) for pair in roots.namespaces.values())
        self._climb(objects)

    def _climb(self, objects: list[Any]) -> None:
        level = [*objects]
        self._mine.update((id(level), id(self._mine)))
        for thing in level:
            self._above[id(thing)] = []
        for _ in range(DEPTH):
            level = [thing for thing in level if not self._ends(thing)][:WIDTH]
            self._mine.add(id(level))
            if not level:
                break
            asked = tuple(level)  # from Python 3.13 on, the tuple of the arguments is among the referrers
            self._mine.add(id(asked))
            self._kept.append(asked)
            referrers = gc.get_referrers(*asked)
            self._mine.add(id(referrers))
            found = [one for one in referrers if id(one) not in self._mine and not self._ignored(one)]
            self._mine.add(id(found))
            below = {id(thing) for thing in level}
            fresh: list[Any] = []
            self._mine.add(id(fresh))
            for one in found:
                if id(one) not in self._above:
                    self._above[id(one)] = []
                    fresh.append(one)
                for held in below.intersection(map(id, gc.get_referents(one))):
                    self._above[held].append(one)
            for thing in level:
                for one in self._unseen.get(id(thing), ()):
                    if id(one) not in self._above:
                        self._above[id(one)] = []
                        fresh.append(one)
                    self._above[id(thing)].append(one)
            self._mine.update(map(id, self._above.values()))
            self._kept.append(fresh)
            level = fresh

    def _ends(self, thing: Any) -> bool:
        return (
            self.roots.of(thing) is not None
            or id(thing) in self.roots.namespaces
            or (is_a(thing, (type, contextvars.Context, *GENERATORS)) and not self._is_put_away(thing))
        )

    def _is_put_away(self, thing: Any) -> bool:
        return (
            is_a(thing, types.GeneratorType) and not thing.gi_running and self.roots.of(thing) is None and self._is_new(thing)
        )

    def _ignored(self, one: Any) -> bool:
        if is_a(one, types.FrameType):
            return is_ours(one) or one in self.roots.frames
        return is_a(one, _SKIPPED) or type(one).__module__.startswith("torchmemlint.growth")

    def path(self, thing: Any) -> Path:
        """The shortest way from an object up to a root; one through the key of a dict only if there is no other."""
        found = self._way(thing, keys=False)
        found = found if found.root.kind != "nobody" else self._way(thing, keys=True)
        if found.root.kind == "nobody":  # but for a generator that nobody has
            for place, one in enumerate(found.objects[1:], 1):
                if is_a(one, types.GeneratorType):
                    chain = found.objects[: place + 1]
                    root = _generator(chain)
                    return Path(_below_the_root(chain, root), root)
        return found

    def _way(self, thing: Any, keys: bool) -> Path:
        todo = collections.deque([[thing]])
        seen, longest = {id(thing)}, [thing]
        while todo:
            chain = todo.popleft()
            top = chain[-1]
            root = self._root(chain)
            if root is not None:
                return Path(_below_the_root(chain, root), root)
            longest = max(longest, chain, key=_telling)
            for one in self._above.get(id(top), ()):
                if id(one) not in seen and (keys or not (is_a(one, dict) and is_tensor(top) and _only_key(one, top))):
                    seen.add(id(one))
                    todo.append([*chain, one])
        return self._unnamed(longest)

    def _root(self, chain: list[Any]) -> Root | None:
        top = chain[-1]
        if id(top) in self.roots.namespaces and len(chain) > 1:
            name, space = self.roots.namespaces[id(top)]
            return Root("global", _key(space, chain[-2]) or "?", name, space)
        # before a name that it has: it holds by a local of its own
        if is_a(top, GENERATORS) and len(chain) > 1 and not self._is_put_away(top):
            return _generator(chain)
        if is_a(top, contextvars.Context):
            return Root("context", next((key for key, value in context(top).items() if _is_in(value, chain)), "?"), "", top)
        if is_a(top, type) and len(chain) > 1:
            below = chain[-2]
            inside = CLASS_SPACE(top)
            if is_a(below, dict) and len(chain) > 2:
                attribute = _key(inside, chain[-3])
                if attribute is not None:
                    return Root("class", attribute, top.__qualname__, top)
            return Root("class", _key(inside, below) or "?", top.__qualname__, top)
        return self.roots.of(top)

    def _unnamed(self, chain: list[Any]) -> Path:
        top = chain[-1]
        for place, one in enumerate(chain):
            if is_node(one):
                return Path(chain[: place + 1], Root("node", "", type(one).__name__, one))
        if is_a(top, types.FrameType):
            return Path(chain, Root("frame", _local_in(top, chain[-2] if len(chain) > 1 else None), name_of(top.f_code), top))
        if is_a(top, (types.FunctionType, types.MethodType)):
            return Path(chain, Root("function", "", str(getattr(top, "__qualname__", "?")), top))
        return Path(chain, Root("nobody", "", "", None))


def _generator(chain: list[Any]) -> Root:
    """The generator, or coroutine, at the end of a way, by the local of its own that holds the rest."""
    top = chain[-1]
    code = getattr(top, "gi_code", None) or getattr(top, "cr_code", None) or getattr(top, "ag_code", None)
    held = _below_the_generator(chain)[-1:]
    return Root("generator", _local_of(top, held[0]) if held else "?", name_of(code) if code else "?", top)


def _below_the_root(chain: list[Any], root: Root) -> list[Any]:
    if root.kind == "context":  # above the value come the nodes of the context's own table
        return [one for one in chain[:-1] if not type(one).__name__.startswith("hamt")]
    if root.kind == "generator":
        return [*_below_the_generator(chain), root.owner]
    return chain[:-1] if chain[-1] is root.owner and len(chain) > 1 else chain


def _below_the_generator(chain: list[Any]) -> list[Any]:
    """In Python 3.10 a generator holds its locals by a frame."""
    frame = _frame_of(chain[-1])
    return [one for one in chain[:-1] if one is not frame]


def _telling(chain: list[Any]) -> tuple[bool, int]:
    return is_a(chain[-1], (types.FrameType, types.FunctionType, types.MethodType)), len(chain)


def context(one: Any) -> dict[str, Any]:
    """The values of a context's variables by their names."""
    return {variable.name: value for variable, value in contextvars.Context.items(one)}


def _is_in(value: Any, chain: list[Any]) -> bool:
    return any(value is one for one in chain)


def names_in(root: Root) -> Mapping[str, Any]:
    """All that the namespace of a root has now; empty for roots without one."""
    owner = root.owner
    if root.kind == "local":
        return locals_of(owner)
    if root.kind == "global":
        return dict(owner)
    if root.kind == "class":
        return dict(CLASS_SPACE(owner))
    if root.kind == "generator":
        frame = _frame_of(owner)
        return locals_of(frame) if frame is not None else {}
    return context(owner) if root.kind == "context" else {}


def _key(space: Any, value: Any) -> str | None:
    for name, held in list(space.items()):
        if held is value:
            return name if type(name) is str else repr(name)
    return None


def _only_key(space: dict[Any, Any], thing: Any) -> bool:
    return not any(value is thing for value in list(dict.values(space)))


def _local_in(frame: types.FrameType, value: Any) -> str:
    return _key(locals_of(frame), value) or "?"


def _local_of(generator: Any, value: Any) -> str:
    frame = _frame_of(generator)
    return _local_in(frame, value) if frame is not None else "?"


def _frame_of(generator: Any) -> types.FrameType | None:
    return getattr(generator, "gi_frame", None) or getattr(generator, "cr_frame", None) or getattr(generator, "ag_frame", None)


def is_array(thing: object) -> bool:
    """Whether something is an array of numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and is_a(thing, numpy.ndarray)


def is_numbers(thing: object) -> bool:
    """Whether something is an array of numpy that holds no objects; it may show the memory of a tensor."""
    if not is_array(thing):
        return False
    return bool(sys.modules["numpy"].ndarray.dtype.__get__(thing).char != "O")


def attributes(thing: Any) -> dict[str, Any]:
    """The attributes of an instance, without asking its class for them."""
    found: dict[str, Any] = {}
    for base in type.mro(type(thing)):
        for name, value in vars(base).items():
            if type(value) is types.MemberDescriptorType and base.__module__ != "builtins":
                try:
                    found[name] = value.__get__(thing)
                except (AttributeError, TypeError):
                    continue
        dictionary = vars(base).get("__dict__")
        if type(dictionary) is types.GetSetDescriptorType:
            try:
                held = dictionary.__get__(thing)
            except (AttributeError, TypeError):
                continue
            if type(held) is dict:
                found.update(held)
    return found


_INSIDE = ("_buffers", "_parameters", "_modules")


def named(path: Path, upto: Any = None) -> str:
    """The path in words, from the root down to the object ``upto`` (by default what the path is of, left out)."""
    objects = path.objects
    start = next((place for place, one in enumerate(objects) if one is upto), 0)
    root = path.root
    words = {
        "local": root.name, "global": root.name, "class": f"{root.of}.{root.name}", "generator": root.name, "frame": root.name,
        "context": root.name, "stack": root.name, "function": f"{root.of}", "node": f"the ctx of {root.of}", "nobody": "",
    }[root.kind]  # fmt: skip
    chain = objects[start:]
    if root.kind in ("generator", "frame"):
        chain = chain[:-1]
    if root.kind == "class" and len(chain) > 1 and is_a(chain[-1], dict):
        chain = chain[:-1]
    above = [*chain[1:], root.owner]
    for place in range(len(chain) - 1, 0, -1):
        holder, held = chain[place], chain[place - 1]
        if is_a(above[place], types.FunctionType) and is_a(holder, tuple):
            words += f" → {_variable_of(above[place], holder, held)}"
        else:
            words += _attribute(holder, held) if is_namespace(holder, above[place]) else _step(holder, held)
    for inside in _INSIDE:
        words = words.replace(f".{inside}['", ".").replace("']", "") if f".{inside}['" in words else words
    return words or type(chain[-1]).__name__


def _variable_of(function: Any, space: Any, held: Any) -> str:
    """The variable that a cell of a function's closure is, or the parameter that one of its defaults is for."""
    code = function.__code__
    names, values = code.co_freevars, function.__closure__
    if space is function.__defaults__:
        values = function.__defaults__
        names = code.co_varnames[code.co_argcount - len(values) : code.co_argcount]
    return next((name for name, one in zip(names, values or (), strict=False) if one is held), "?")


def _attribute(space: Any, held: Any) -> str:
    """The attribute that a namespace holds something by; a namespace of each thread has no name."""
    name = next((name for name, value in list(dict.items(space)) if value is held), None)
    return f".{name}" if type(name) is str else ""


def is_namespace(holder: Any, above: Any) -> bool:
    """Whether a dict is the ``__dict__`` of the object that holds it."""
    if (
        type(holder) is not dict
        or above is None
        or is_a(above, (dict, list, tuple, set, types.FrameType, types.CellType, CACHE))
    ):
        return False
    return not any(value is holder for value in attributes(above).values())


def _step(holder: Any, held: Any) -> str:
    if is_a(holder, dict):
        name = next((key for key, value in list(dict.items(holder)) if value is held), None)
        return f"[{name!r}]" if type(name) in (str, int, float, bool, type(None)) else "[…]"
    if is_a(holder, (list, tuple, set, frozenset, collections.deque)) or is_array(holder):
        return "[…]"
    if is_a(holder, types.FrameType):
        return f" → frame of `{name_of(holder.f_code)}`, its `{_local_in(holder, held)}`"
    if is_a(holder, types.TracebackType):
        return ""
    if is_a(holder, BaseException) and is_a(held, types.TracebackType):
        return ".__traceback__"
    if is_a(holder, types.FunctionType):
        return ""
    if is_a(holder, types.CellType):
        return ""
    if is_a(holder, types.MethodType):
        return ".__self__" if held is holder.__self__ else ""
    if is_a(holder, functools.partial):
        return " (partial)"
    if is_a(holder, CACHE):
        return " (cache)"
    if is_tensor(holder):
        return (
            "._backward_hooks"
            if is_a(held, dict) and held is holder._backward_hooks
            else ".grad"
            if held is holder.grad
            else ""
        )
    inside = attributes(holder)
    name = next((key for key, value in inside.items() if value is held), None)
    return f".{name}" if name is not None else ""


def element(path: Path, container: Any) -> str:
    """What a container gets, in a few words: the object below it on the path."""
    place = next(index for index, one in enumerate(path.objects) if one is container)
    return described(path.objects[:place]) if place else "a tensor"


def described(chain: list[Any]) -> str:
    """An object that holds a tensor, in words; the tensor comes first in the chain."""
    top = chain[-1]
    if is_tensor(top):
        return "a tensor"
    if is_node(top):
        return "a node of a graph"
    if is_a(top, dict):
        return "a dict" if len(chain) < 2 else "`{" + repr(_key_of(top, chain[-2])) + ": …}`"
    if is_a(top, (list, set, frozenset, collections.deque)):
        return f"a {type(top).__name__} of tensors"
    if is_numbers(top):
        return "an array that shows a tensor"
    if is_array(top):
        return "an array of tensors"
    if is_a(top, tuple):
        return "a tuple with a tensor"
    if is_a(top, BaseException):
        frame = next((one for one in chain if is_a(one, types.FrameType)), None)
        inner = f", whose traceback holds the frame of `{name_of(frame.f_code)}`" if frame is not None else ""
        return f"a `{type(top).__name__}`{inner}"
    if is_a(top, (types.FunctionType, types.MethodType)):
        return f"the function `{getattr(top, '__qualname__', '?')}`"
    if is_a(top, types.FrameType):
        return f"the frame of `{name_of(top.f_code)}`"
    if is_a(top, GENERATORS):
        return "a generator"
    return f"a `{type(top).__qualname__}`"


def _key_of(space: dict[Any, Any], value: Any) -> Any:
    for name, held in list(dict.items(space)):
        if held is value:
            return name if type(name) in (str, int) else "…"
    return "…"
