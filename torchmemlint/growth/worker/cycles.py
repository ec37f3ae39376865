"""What only the cyclic collector frees: the objects of each cycle, by the line that makes it."""

from __future__ import annotations

import gc
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torchmemlint.growth.worker.frames import is_users_file, locals_of, name_of
from torchmemlint.growth.worker.heap import is_node, is_tensor
from torchmemlint.growth.worker.holders import attributes, is_a
from torchmemlint.growth.worker.lines import Mark

MOST = 20_000


@dataclass(frozen=True, slots=True)
class Cycle:
    """A cycle in words; ``attribute`` of ``owner`` closes it, ``mark`` says whether it is there; or ``lines`` are known at once."""

    words: str
    owner: str = ""
    attribute: str = ""
    mark: Mark | None = None
    lines: tuple[tuple[str, int, str], ...] = ()


def cycles_in(garbage: Sequence[Any], tensors: Sequence[Any]) -> list[Cycle]:
    """The cycles in garbage that keep tensors alive, the most telling first."""
    parts = {id(one): one for one in garbage[:MOST]}
    below = {key: [id(held) for held in gc.get_referents(one) if id(held) in parts] for key, one in parts.items()}
    found: dict[str, Cycle] = {}
    for component in _components(below):
        if len(component) < 2 and component[0] not in below[component[0]]:
            continue
        if not _leads_to_tensor(component, below, parts):
            continue
        cycle = _described([parts[key] for key in component])
        if cycle is not None:
            found.setdefault(cycle.words, cycle)
    return sorted(found.values(), key=lambda cycle: not (cycle.lines or cycle.mark))


def _leads_to_tensor(component: list[int], below: dict[int, list[int]], parts: dict[int, Any]) -> bool:
    todo, seen = [*component], set(component)
    while todo:
        key = todo.pop()
        if is_tensor(parts[key]):
            return True
        for held in below[key]:
            if held not in seen:
                seen.add(held)
                todo.append(held)
    return False


def _components(below: dict[int, list[int]]) -> list[list[int]]:
    """Strongly connected components (Tarjan's algorithm, without recursion)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    found: list[list[int]] = []
    for start in below:
        if start in number:
            continue
        work = [(start, iter(below[start]))]
        number[start] = low[start] = len(number)
        stack.append(start)
        on_stack.add(start)
        while work:
            key, rest = work[-1]
            following = next((one for one in rest if one not in number or one in on_stack), None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[key])
                if low[key] == number[key]:
                    at = stack.index(key)
                    found.append(stack[at:])
                    on_stack.difference_update(stack[at:])
                    del stack[at:]
            elif following in number:
                low[key] = min(low[key], number[following])
            else:
                number[following] = low[following] = len(number)
                stack.append(following)
                on_stack.add(following)
                work.append((following, iter(below[following])))
    return found


def _described(members: list[Any]) -> Cycle | None:
    """A cycle by what tells most of it: an exception's frame, a function that holds itself, an attribute of an instance."""
    ids = {id(one) for one in members}
    for one in members:
        if is_a(one, types.FrameType) and is_users_file(one.f_code.co_filename):
            name = next((key for key, value in locals_of(one).items() if id(value) in ids), "")
            words = f"a reference cycle: the frame of `{name_of(one.f_code)}` and its variable `{name}`"
            return Cycle(
                words, lines=((one.f_code.co_filename, one.f_lineno or one.f_code.co_firstlineno, name_of(one.f_code)),)
            )
    for one in members:
        cycle = _through_attribute(one, ids)
        if cycle is not None:
            return cycle
    for one in members:
        if is_a(one, types.FunctionType) and is_users_file(one.__code__.co_filename):
            code = one.__code__
            words = f"a reference cycle: the function `{name_of(code)}` refers to itself"
            return Cycle(words, lines=((code.co_filename, code.co_firstlineno, name_of(code)),))
    kinds = sorted({type(one).__name__ for one in members if not is_a(one, types.CellType)})
    return Cycle(f"a reference cycle of {', '.join(kinds[:4])}", mark=_containers(members))


def _through_attribute(one: Any, ids: set[int]) -> Cycle | None:
    cls, node = type(one), is_node(one)
    if cls.__module__ == "builtins" or is_tensor(one) or is_a(one, (dict, list, type)):
        return None
    inside = attributes(one)
    names = [name for name, value in inside.items() if id(value) in ids and (node or not is_tensor(value))]
    if not names:
        return None
    name = names[-1]
    if node:
        words = (
            f"a reference cycle: `ctx.{name}` of `{cls.__name__.removesuffix('Backward')}` is kept by the graph that it keeps"
        )
        return Cycle(words, cls.__qualname__, name, _appears(cls, name, type(inside[name])))
    return Cycle(
        f"a reference cycle through `{cls.__qualname__}.{name}`",
        cls.__qualname__,
        name,
        _appears(cls, name, type(inside[name])),
    )


def _appears(cls: type, name: str, kind: type) -> Mark:
    def mark(frame: types.FrameType | None) -> object:
        values = list(locals_of(frame).values()) if frame is not None else []
        some = [(one, attributes(one).get(name)) for one in values if type(one) is cls]
        return frozenset(id(one) for one, value in some if type(value) is kind and _leads_back(value, one))

    return mark


def _leads_back(value: Any, to: Any, limit: int = 300) -> bool:
    """Whether an object holds another, directly or through others: a list that is empty yet closes no cycle. Through C++ nothing is seen:
    of a tensor on a ctx it is known already."""
    if is_node(to) and is_tensor(value):
        return True
    todo, seen = [value], {id(value)}
    while todo and len(seen) < limit:
        for held in gc.get_referents(todo.pop(0)):
            if held is to:
                return True
            if id(held) not in seen and not is_a(held, (type, types.ModuleType, types.FunctionType, str, int)):
                seen.add(id(held))
                todo.append(held)
    return False


def _containers(members: list[Any]) -> Mark | None:
    """For a cycle of containers: one of such a kind that holds itself, directly or through another."""
    kinds = {type(one) for one in members if is_a(one, (list, dict))}
    if not kinds:
        return None

    def mark(frame: types.FrameType | None) -> object:
        found = set()
        for one in list(locals_of(frame).values()) if frame is not None else ():
            if type(one) in kinds and any(
                one is again for held in gc.get_referents(one) for again in (held, *gc.get_referents(held))
            ):
                found.add(id(one))
        return frozenset(found)

    return mark
