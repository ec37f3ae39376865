"""Whether an expression is a tensor on every path: asked before a fix calls a method of tensors on it.

That follows from how it and its names are made and used: a network may give a dict, a helper a number.

A network may give a dict, a helper a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.index.query_log import QueryTrace
from torchmemlint.lower import ir
from torchmemlint.lower.syntax import nested_blocks
from torchmemlint.lower.walk import everything
from torchmemlint.lower.written import dotted
from torchmemlint.semantics.state import World, memoized_with_code
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect

MAX_DEPTH = 3
"""How far calls of the project's functions, and names bound to names, are looked into."""
UNFOLLOWED = -1
"""The depth at which neither calls nor names are looked into."""
WHOLE = -1
OF_TENSORS = (
    frozenset(TORCH.methods)
    | TORCH.words["back-propagates"]
    | TORCH.words["tensor-members"]
    | TORCH.words["sizes"]
    | frozenset(TORCH.attributes)
)
"""Methods and attributes that a tensor has; it may be something else that has them, too."""
ONLY_OF_TENSORS = (
    frozenset(TORCH.methods) - TORCH.words["not-tensors-alone"] - TORCH.words["container-methods"]
) | TORCH.words["back-propagates"]
NUMBERS = TORCH.words["reads-out"]
PLAIN = TORCH.words["makes-no-tensor"]
MAKES_TENSORS = frozenset({Effect.KEEP, Effect.VIEW, Effect.LOSS, Effect.CUT, Effect.SOURCE, Effect.LEAF, Effect.DEVICE})
KINDS = TORCH.words["other-types"]
GOES_OVER = TORCH.words["goes-over"]


@dataclass(frozen=True, slots=True)
class Shown:
    """``surely``: something shows that it is a tensor; ``may_not``: something shows that it may be something else; ``why``: that, in words,
    where it can be named."""

    surely: bool
    why: str
    may_not: bool = False


@dataclass(slots=True)
class NamesUsed:
    """A function with all that its text says of names: how each is bound (and at which place of what is unpacked), and used."""

    world: World
    ref: FunctionRef
    function: ir.Function
    bound: dict[str, list[tuple[ir.Expr, int]]]
    """``WHOLE`` for the place where all of the value is bound."""
    summed: dict[str, list[ir.Expr]]
    """Name → what is added to it in place."""
    uses: dict[str, set[str]]
    """Methods and attributes; "[]" for a text as a subscript, "()" for what a function of torch takes, "*" for what is unpacked."""
    strict: bool
    """Whether a number or None that a name is bound to as well counts: else the machine knows that it does not come here."""
    expressions: dict[int, ir.Expr] = field(default_factory=dict)
    """Number of a node → the first that has it."""
    elements: dict[str, set[str]] = field(default_factory=dict)
    """Container → names that are bound to its elements."""
    returns: list[ir.Expr] = field(default_factory=list)
    used: dict[str, str] = field(default_factory=dict)
    """Container → how one of its elements is used that is no tensor then."""
    given: dict[tuple[int, int], tuple[frozenset[bool | None], QueryTrace]] = field(default_factory=dict)
    """Place in what is returned, and how deep that is looked into → what stands there on the paths."""
    kinds: dict[tuple[str, int], tuple[bool | None, QueryTrace]] = field(default_factory=dict)
    """What names were found to be, each looked into so deep: they are bound often, to each other."""

    def at(self, place: int) -> list[ir.Expr]:
        """What is returned, or what stands at one place of it."""
        if place == WHOLE:
            return self.returns
        return [each.items[place] for each in self.returns if isinstance(each, ir.Sequence) and place < len(each.items)]

    def uses_of(self, text: str) -> set[str]:
        return self.uses.get(text, set())


def shown(world: World, ref: FunctionRef, node: int, container: str = "", strict: bool = False) -> Shown:
    """What the function's text shows of an expression and, where it is put into a container, of the container's elements."""
    scope = scope_of(world, ref, strict)
    if scope is None:
        return Shown(False, "it cannot be read", may_not=True)
    expr = scope.expressions.get(node)
    if expr is None:
        return Shown(False, "it cannot be read", may_not=True)
    why = elements_used(scope, container) if container else ""
    found = kind_of(scope, expr, MAX_DEPTH)
    may_not = found is False or (found is None and may_sum_numbers(scope, text_of(expr)))
    return Shown(found is True, why, bool(why) or may_not)


def may_sum_numbers(scope: NamesUsed, text: str) -> bool:
    """Whether a name begins as a number, and nothing shows that what is added to it is a tensor: rewards of an environment are not."""
    begins = any(isinstance(value, ir.Const) for value, _ in scope.bound.get(text, ()))
    terms = scope.summed.get(text, ())
    return begins and bool(terms) and not any(kind_of(scope, term, MAX_DEPTH) for term in terms)


@memoized_with_code
def scope_of(world: World, ref: FunctionRef, strict: bool) -> NamesUsed | None:
    found = world.ir_of(world.outermost(ref))
    if found is None:
        return None
    scope = NamesUsed(world, ref, found, {}, {}, {}, strict)
    for node in everything(found.body):
        scope.expressions.setdefault(getattr(node, "node", -1), node)  # type: ignore[arg-type]
        _note(scope, node)
        for container, name in _elements(node):
            scope.elements.setdefault(container, set()).add(name)
    scope.returns = [each.value for each in _returns(found.body) if each.value is not None]
    return scope


def _note(scope: NamesUsed, node: object) -> None:
    match node:
        case ir.Assign():
            for target in node.targets:
                _bind(scope, target, node.value)
        case ir.AugAssign() if text_of(node.target):
            scope.summed.setdefault(text_of(node.target), []).append(node.value)
        case ir.Attr():
            scope.uses.setdefault(text_of(node.value), set()).add(node.name)
            if node.name in TORCH.words["back-propagates"] and isinstance(node.value, ir.Binary):
                for term in everything(node.value):
                    if isinstance(term, (ir.Name, ir.Attr, ir.Subscript)):
                        scope.uses.setdefault(text_of(term), set()).add("()")
        case ir.Subscript():
            if any(isinstance(index, ir.Const) and isinstance(index.value, str) for index in node.index):
                scope.uses.setdefault(text_of(node.value), set()).add("[]")
        case ir.Call():
            _note_call(scope, node)


def _note_call(scope: NamesUsed, call: ir.Call) -> None:
    text = dotted(call.func)
    if text == "isinstance" and len(call.args) == 2:
        names = {
            dotted(each).rpartition(".")[2] for each in everything(call.args[1].value) if isinstance(each, (ir.Name, ir.Attr))
        }
        scope.uses.setdefault(text_of(call.args[0].value), set()).add("is a" if names & KINDS else "isinstance")
    for arg in call.args:
        if arg.star:
            scope.uses.setdefault(text_of(arg.value), set()).add("*")
    last = text.rpartition(".")[2]
    absolute = scope.world.project.resolve(scope.ref.path, text, scope.ref.qualname) if text else None
    if last in TORCH.words["back-propagates"] and call.args:
        scope.uses.setdefault(text_of(call.args[0].value), set()).add("()")
    if absolute is not None and absolute.startswith("torch.") and TORCH.function_effect(absolute) in MAKES_TENSORS:
        for arg in call.args:
            scope.uses.setdefault(text_of(arg.value), set()).add("()")


def _bind(scope: NamesUsed, target: ir.Expr, value: ir.Expr) -> None:
    if isinstance(target, ir.Sequence):
        scope.uses.setdefault(text_of(value), set()).add("*")
        items = value.items if isinstance(value, ir.Sequence) and len(value.items) == len(target.items) else []
        for place, item in enumerate(target.items):
            if text_of(item):
                scope.bound.setdefault(text_of(item), []).append((items[place], WHOLE) if items else (value, place))
    elif text_of(target):
        scope.bound.setdefault(text_of(target), []).append((value, WHOLE))


def text_of(expr: ir.Expr) -> str:
    """A name, attribute or element as one text, "" for what has none."""
    if isinstance(expr, ir.Subscript):
        inner = text_of(expr.value)
        return f"{inner}[]" if inner else ""
    return dotted(expr)


def evidence_against(words: Iterable[str]) -> str:
    """What is done with a name that no tensor is asked for."""
    for word in sorted(words):
        if word in ("[]", "is a", "*") or (word.isidentifier() and word not in OF_TENSORS and word != "isinstance"):
            return word
    return ""


def kind_of(scope: NamesUsed, expr: ir.Expr, depth: int) -> bool | None:
    """Whether an expression is a tensor: surely, surely not or not on every path, or not known."""
    match expr:
        case ir.Const() | ir.DictDisplay() | ir.Sequence() | ir.Comprehension() | ir.FormattedString() | ir.Compare():
            return False
        case ir.Binary():
            return _of_operands(kind_of(scope, expr.left, depth), kind_of(scope, expr.right, depth))
        case ir.Unary():
            return None if expr.op == "not" else kind_of(scope, expr.value, depth)
        case ir.IfExp():
            return _on_all_paths([kind_of(scope, expr.then, depth), kind_of(scope, expr.orelse, depth)])
        case ir.Call():
            return _of_call(scope, expr, depth)
        case ir.Name() | ir.Attr() | ir.Subscript():
            return _of_name(scope, expr, depth)
        case _:
            return None


def _of_operands(left: bool | None, right: bool | None) -> bool | None:
    if left or right:
        return True
    return False if left is False and right is False else None


def _on_all_paths(found: list[bool | None]) -> bool | None:
    if False in found:
        return False
    return True if found and all(found) else None


def _of_name(scope: NamesUsed, expr: ir.Name | ir.Attr | ir.Subscript, depth: int) -> bool | None:
    text = text_of(expr)
    if not text:
        return _of_text(scope, expr, text, depth)
    return scope.world.query_log.memoize(scope.kinds, (text, depth), lambda: _of_text(scope, expr, text, depth))


def _of_text(scope: NamesUsed, expr: ir.Name | ir.Attr | ir.Subscript, text: str, depth: int) -> bool | None:
    words = scope.uses_of(text)
    if evidence_against(words):
        return False
    bound = scope.bound.get(text, ())
    trained = bool(words & TORCH.words["back-propagates"])
    if trained and depth >= 0 and not any(kind_of(scope, value, UNFOLLOWED) is False for value, _ in bound):
        return True  # whatever a callee may give on another path
    made = [
        kind_of(scope, value, depth - 1) if place == WHOLE else _of_part(scope, value, place, depth - 1)
        for value, place in bound
        if depth > 0 and (scope.strict or not isinstance(value, ir.Const))
    ]
    if False in made:
        return False
    if words & ONLY_OF_TENSORS or "()" in words:
        return True
    if (isinstance(expr, ir.Attr) and expr.name == TORCH.names["data"]) or (isinstance(expr, ir.Subscript) and not made):
        return kind_of(scope, expr.value, depth) or None
    return _on_all_paths(made)


def _of_part(scope: NamesUsed, value: ir.Expr, place: int, depth: int) -> bool | None:
    """As ``kind_of``, for one part of what is unpacked."""
    if isinstance(value, ir.Call) and depth >= 0:
        return _on_all_paths([kind for inner in _called(scope, value) for kind in _kinds_returned(inner, place, depth - 1)])
    return None


def _kinds_returned(scope: NamesUsed, place: int, depth: int) -> frozenset[bool | None]:
    """What a function returns on its paths, or at one place of what it returns."""
    return scope.world.query_log.memoize(
        scope.given, (place, depth), lambda: frozenset(kind_of(scope, value, depth) for value in scope.at(place))
    )


def _of_call(scope: NamesUsed, call: ir.Call, depth: int) -> bool | None:
    text = dotted(call.func)
    last = call.func.name if isinstance(call.func, ir.Attr) else text
    if last in NUMBERS or (text == last and last in PLAIN):
        return False
    absolute = scope.world.project.resolve(scope.ref.path, text, scope.ref.qualname) if text else None
    if absolute is not None and absolute.startswith("torch."):
        return True if TORCH.function_effect(absolute) in MAKES_TENSORS else None
    returned = [k for inner in _called(scope, call) for k in _kinds_returned(inner, WHOLE, depth - 1)] if depth > 0 else []
    if returned:
        return _on_all_paths(returned)
    if isinstance(call.func, ir.Attr) and last in TORCH.methods:
        inside = kind_of(scope, call.func.value, depth)
        return True if last in ONLY_OF_TENSORS and inside is not False else inside
    words = set(last.lower().split("_"))
    return True if words & TORCH.words["loss-classes"] else None


def _called(scope: NamesUsed, call: ir.Call) -> Iterator[NamesUsed]:
    """The functions of the project that a call may reach."""
    text = dotted(call.func)
    refs = scope.world.project.callees(scope.ref.path, scope.ref.qualname, text).refs if text else ()
    for ref in refs[:4]:
        inner = scope_of(scope.world, ref, True)
        if inner is not None and inner.function.qualname == ref.qualname:
            yield inner


def _returns(body: Iterable[ir.Stmt]) -> Iterator[ir.Return]:
    for statement in body:
        if isinstance(statement, ir.Return):
            yield statement
        for block in nested_blocks(statement):
            yield from _returns(block)


# --- containers -------------------------------------------------------------------------------------------------------


def elements_used(scope: NamesUsed, container: str) -> str:
    """How an element of a container is used that is no tensor then; "" where no element is. An attribute's are looked at in all
    methods of the class."""
    for each in _scopes(scope, container):
        if container not in each.used:
            each.used[container] = _misused(each, container)
        if each.used[container]:
            return f"what it collects is used as no tensor is: {each.used[container]}"
    return ""


def _misused(scope: NamesUsed, container: str) -> str:
    for name in sorted(scope.elements.get(container, set()) | {f"{container}[]"}):
        if word := evidence_against(scope.uses_of(name)):
            return f"`{name}[…]`" if word == "[]" else f"`{name}.{word}`" if word.isidentifier() else f"`{name}`"
    return ""


def _scopes(scope: NamesUsed, container: str) -> Iterator[NamesUsed]:
    yield scope
    owner = scope.world.header(scope.ref).owner
    if not container.startswith("self.") or not owner:
        return
    cls = ClassRef(scope.ref.path, owner)
    for facts in scope.world.project.within(cls.path, cls.qualname):
        ref = FunctionRef(cls.path, facts.qualname)
        inner = scope_of(scope.world, ref, True) if not facts.parent and ref != scope.ref and container in facts.reads else None
        if inner is not None:
            yield inner


def _elements(node: object) -> Iterator[tuple[str, str]]:
    """Containers, and the names that a node binds to their elements."""
    if isinstance(node, (ir.For, ir.CompClause)):
        yield from _bound_by(node.target, node.iterable)
    elif isinstance(node, ir.Assign) and isinstance(node.value, ir.Subscript):
        container = dotted(node.value.value)
        yield from ((container, dotted(target)) for target in node.targets if dotted(target))


def _bound_by(target: ir.Expr, iterable: ir.Expr) -> Iterator[tuple[str, str]]:
    """What each iteration of a loop binds to an element: containers, and the names."""
    if container := dotted(iterable):
        yield from [(container, dotted(target))] if dotted(target) else []
        if isinstance(target, ir.Sequence):
            yield container, container + "[]"
        return
    if not isinstance(iterable, ir.Call) or dotted(iterable.func).rpartition(".")[2] not in GOES_OVER:
        return
    name = dotted(iterable.func).rpartition(".")[2]
    items = target.items if isinstance(target, ir.Sequence) else []
    if name == "zip" and len(items) == len(iterable.args):
        for item, arg in zip(items, iterable.args, strict=True):
            yield from _bound_by(item, arg.value)
    elif name == "enumerate" and len(items) == 2:
        yield from _bound_by(items[1], iterable.args[0].value) if iterable.args else ()
    elif iterable.args and name != "zip":
        yield from _bound_by(target, iterable.args[0].value)
