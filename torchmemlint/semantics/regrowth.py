"""Tensors that grow by concatenation in a loop: what the loop's own text says of them.

A value that is only added to could be collected in a list. One that the loop reads as well, beyond its size, or resets,
could not; that is a question about all statements of the loop at once, so it is answered by a walk over its IR.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.lower import ir
from torchmemlint.semantics.text import text_of
from torchmemlint.torch_facts import TORCH

SIZES = TORCH.words["sizes"]
_LEAVES = frozenset({str, int, bool, float, bytes, type(None)})
"""Types of fields that have no parts."""
Branch = tuple[int, bool]
"""An ``if`` by its node, and which of its blocks."""


def grown_in(source: ir.Expr | None, text: str) -> ir.Call | None:
    """The call in ``text = source`` whose first argument is a display with ``text`` itself in it; also in one branch of a
    conditional expression."""
    match source:
        case ir.IfExp():
            return grown_in(source.then, text) or grown_in(source.orelse, text)
        case ir.Call(func=ir.Name() | ir.Attr()):
            first = next((a.value for a in source.args if a.keyword in (None, "tensors") and not a.star), None)
            if isinstance(first, ir.Sequence) and any(text_of(item) == text for item in first.items):
                return source
    return None


def bound_in(loop: ir.For | ir.While) -> tuple[frozenset[str], int]:
    """The texts of what an iteration of the loop binds, and how many parts its IR has."""
    names: set[str] = set()
    count = 0
    todo: list[object] = [loop]
    while todo:
        node = todo.pop()
        count += 1
        if isinstance(node, ir.For):
            names.update(map(text_of, _walk_target(node.target)))
        elif isinstance(node, ir.Assign):
            for target in node.targets:
                names.update(map(text_of, _walk_target(target)))
        todo.extend(_children(node))
    return frozenset(names), count


def only_grows(loop: ir.For | ir.While, target: ir.Expr, call: ir.Call, changing: frozenset[str]) -> bool:
    """Whether nothing in the loop reads the value but the call that makes it longer (and what asks for its size), nothing
    binds it again, unless on the other branch (the first iteration), and each iteration adds to the same place. ``changing``
    are the texts of what the loop binds."""
    text = text_of(target)
    if {text_of(name) for name in _walk(target)} & changing - {text} or (
        isinstance(loop, ir.For) and _binds(loop.target, text)
    ):
        return False
    base = text_of(target.value) if isinstance(target, ir.Subscript) else ""
    if _reads(loop, text, call) or (base and _reads_whole(loop, base, text)):
        return False
    if any(_is_let_go(loop, part) for part in added_to(call, text)):
        return False
    bindings = list(_bindings(loop.body, text, ()))
    own = [path for value, path in bindings if grown_in(value, text) is call]
    others = [path for value, path in bindings if grown_in(value, text) is not call]
    return bool(own) and all(_apart(path, own[0]) for path in others)


def added_to(call: ir.Call, text: str) -> list[ir.Expr]:
    """What the call puts beside the value."""
    return [item for item in _display(call).items if text_of(item) != text]


def _display(call: ir.Call) -> ir.Sequence:
    first = next(a.value for a in call.args if a.keyword in (None, "tensors") and not a.star)
    assert isinstance(first, ir.Sequence)
    return first


def _is_let_go(loop: ir.For | ir.While, part: ir.Expr) -> bool:
    """Whether the loop lets each part go as it takes it (``parts[k] = 0``): it is written to save memory."""
    while isinstance(part, ir.Call) and isinstance(part.func, ir.Attr):
        part = part.func.value
    return isinstance(part, ir.Subscript) and bool(list(_bindings(loop.body, text_of(part), ())))


def _binds(target: ir.Expr, text: str) -> bool:
    return any(text_of(inner) == text for inner in _walk_target(target))


def _reads_whole(node: object, base: str, text: str) -> bool:
    """Whether a container is read otherwise than for its element ``text`` (or for ``key in container``)."""
    match node:
        case ir.Subscript() if text_of(node) == text:
            return False
        case ir.Compare(ops=["in" | "not in"], comparators=[other]) if text_of(other) == base:
            return False
        case ir.Name() | ir.Attr() if text_of(node) == base:
            return True
    return any(_reads_whole(child, base, text) for child in _children(node))


def _apart(left: tuple[Branch, ...], right: tuple[Branch, ...]) -> bool:
    return any((node, not side) in right for node, side in left)


def _bindings(body: list[ir.Stmt], text: str, path: tuple[Branch, ...]) -> Iterator[tuple[ir.Expr | None, tuple[Branch, ...]]]:
    """The values that statements of a block bind to the text, with the branches that they stand on. A block that leaves the
    loop is run once: what it binds is not known."""
    if _leaves(body):
        return
    for statement in body:
        match statement:
            case ir.Assign() if any(_binds(t, text) for t in statement.targets):
                yield statement.value, path
            case ir.If():
                yield from _bindings(statement.then, text, (*path, (statement.node, True)))
                yield from _bindings(statement.orelse, text, (*path, (statement.node, False)))
            case ir.For() | ir.While():
                yield from _bindings([*statement.body, *statement.orelse], text, path)
                if isinstance(statement, ir.For) and _binds(statement.target, text):
                    yield None, path
            case ir.With():
                yield from _bindings(statement.body, text, path)
            case ir.Try():
                handlers = [inner for handler in statement.handlers for inner in handler.body]
                yield from _bindings([*statement.body, *handlers, *statement.orelse, *statement.final], text, path)


def _leaves(body: list[ir.Stmt]) -> bool:
    return any(isinstance(statement, (ir.Break, ir.Return, ir.Raise)) for statement in body)


def _walk_target(target: ir.Expr) -> Iterator[ir.Expr]:
    yield target
    if isinstance(target, ir.Sequence):
        for item in target.items:
            yield from _walk_target(item)


def _reads(node: object, text: str, call: ir.Call) -> bool:
    """Whether a part of the IR reads the text, its size and ``is None`` apart, outside the call's first argument."""
    match node:
        case ir.Name() | ir.Attr() | ir.Subscript() if text_of(node) == text:
            return True
        case ir.Attr(value=value, name=name) if name in SIZES and text_of(value) == text:
            return False
        case ir.Call(func=ir.Name(id="len"), args=[ir.Arg(value=value)]) if text_of(value) == text:
            return False
        case ir.Compare(left=left, ops=["is" | "is not"]) if text_of(left) == text:
            return False
        case ir.Call() if node is call:
            first = _display(node)
            parts: list[object] = [i for i in first.items if text_of(i) != text]
            parts += [a.value for a in node.args if a.value is not first]
            return any(_reads(part, text, call) for part in parts)
        case ir.Return():
            return False  # once, at the end
        case ir.If() if _leaves(node.then) or _leaves(node.orelse):
            stays = [*(node.then if not _leaves(node.then) else []), *(node.orelse if not _leaves(node.orelse) else [])]
            return any(_reads(part, text, call) for part in (node.test, *stays))
        case ir.Assign(targets=targets, value=value):
            # A bare name that is bound is not read; ``x[i] = …`` reads ``x``.
            bound = [t for t in targets if text_of(t) != text]
            return _reads(value, text, call) or any(_reads(t, text, call) for t in bound)
        case ir.Delete():
            return False
    return any(_reads(child, text, call) for child in _children(node))


def _walk(node: object) -> Iterator[ir.Expr]:
    if isinstance(node, (ir.Name, ir.Attr)):
        yield node
    for child in _children(node):
        yield from _walk(child)


def _children(node: object) -> Iterator[object]:
    """The parts of an IR node, those in lists and pairs too."""
    todo = [getattr(node, name) for name in getattr(node, "__slots__", ())]
    while todo:
        part = todo.pop()
        kind = type(part)
        if kind in _LEAVES:
            continue
        if kind is list or kind is tuple:
            todo.extend(part)
        elif hasattr(part, "__dataclass_fields__"):
            yield part
