"""Hooks that each turn of a loop puts on the same module, where nothing takes them off again.

What they have stored stays for as long as the module does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from torchmemlint.index.arguments import argument_for
from torchmemlint.index.edges import Caller
from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.syntax import names_bound
from torchmemlint.lower.walk import names_inside, nodes_of, walk
from torchmemlint.lower.ways import tests_to
from torchmemlint.lower.written import dotted, text_of
from torchmemlint.semantics.identity import function_or_closure
from torchmemlint.semantics.interpret import FILLS_LISTS
from torchmemlint.semantics.state import World, memoized
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect

CONSTRUCTOR = "__init__"
REMOVES = f".{TORCH.names['removes-hook']}"
ENDS_WITH = "__exit__"
FINALIZER = "__del__"
NO_TENSOR = frozenset({Effect.ITEM, Effect.NUMBER, Effect.SHAPE})
GIVES_PARTS = frozenset(TORCH.module_methods) | frozenset(TORCH.part_methods) | TORCH.words["views-of-dict"]
"""Methods that give the module itself, or parts of it."""
GOES_OVER = TORCH.words["hands-elements-on"] | TORCH.words["goes-over"] | TORCH.words["takes-parts"]
"""Functions of Python that give the elements, or an attribute, of their argument."""
MAX_UP = 4
"""How far callers are followed up."""
MAX_CALLERS = 8
MAX_STEPS = 6
"""How far names are followed to what they are bound to."""


class Turns(NamedTuple):
    """A loop: its function and statement; ``through``: the functions that lead from who registers to that one."""

    ref: FunctionRef
    node: int
    through: tuple[FunctionRef, ...]


@memoized
def hooked_in_turns(world: World, ref: FunctionRef, node: int) -> Turns | None:
    """The loop in a caller whose turns all register a hook by this call (function, and node), which keeps something of its own, on what
    was there before the loop; None where there is none, or where something visible may take the hooks off."""
    body = world.body(ref)
    call = next((each for each in nodes_of(body) if isinstance(each, ir.Call) and each.node == node), None)
    if call is None or not isinstance(call.func, ir.Attr) or not call.args:
        return None
    own = {text_of(t) for n in nodes_of(body) if isinstance(n, ir.Assign) for t in n.targets if isinstance(t, ir.Attr)}
    if any(rests_on(test, own) for test, _ in tests_to(body, node)):
        return None  # once: `if self.handle is None: self.handle = …`
    holders = holders_of(body, call.func.value)
    turns = repeated(world, ref, holders, ()) if holders else None
    if turns is None or not keeps_its_own(world, ref, call.args[0].value, turns) or may_be_taken_off(world, turns):
        return None
    return turns


def holders_of(body: list[ir.Stmt], expr: ir.Expr, depth: int = 0) -> frozenset[str] | None:
    """The names, and attributes of ``self``, of which an expression is the very object, or a part; None where something else made it."""
    if depth > MAX_STEPS:
        return None
    match expr:
        case ir.Name():
            values = [value for name, value in bound_names(body) if name == expr.id]
            same = [value for value in values if expr.id in names_inside(value)]
            if any(holders_of([], value) is None for value in same):
                return None  # another object of that name: `net = copy.deepcopy(net)`
            others = [value for value in values if value not in same]
            return union(body, others, depth) if others else frozenset((expr.id,))
        case ir.Attr(value=ir.Name(id="self")):
            return frozenset((text_of(expr),))
        case ir.Attr() | ir.Subscript():
            return holders_of(body, expr.value, depth + 1)
        case ir.IfExp():
            return union(body, [expr.then, expr.orelse], depth)
        case ir.Sequence():
            return union(body, expr.items, depth)
        case ir.Call(func=ir.Attr(value=inner, name=name)) if name in GIVES_PARTS:
            return holders_of(body, inner, depth + 1)
        case ir.Call(func=ir.Name(id=name), args=args) if name in GOES_OVER and args:
            return union(body, [arg.value for arg in args[: None if name == "zip" else 1]], depth)
    return None


def bound_names(body: list[ir.Stmt]) -> Iterator[tuple[str, ir.Expr]]:
    """The names that statements of a block bind, each with the value, or what a loop goes over."""
    for each in nodes_of(body):
        if isinstance(each, ir.Assign | ir.For):
            targets = each.targets if isinstance(each, ir.Assign) else [each.target]
            value = each.value if isinstance(each, ir.Assign) else each.iterable
            for name in sorted(names_inside([target for target in targets if isinstance(target, ir.Name | ir.Sequence)])):
                yield name, value


def union(body: list[ir.Stmt], values: list[ir.Expr], depth: int) -> frozenset[str] | None:
    """As ``holders_of``, of several expressions: all of them must be known. Text and numbers are held by nobody."""
    found: frozenset[str] = frozenset()
    for value in values:
        if isinstance(value, ir.Const):
            continue
        inner = holders_of(body, value, depth + 1)
        if inner is None:
            return None
        found |= inner
    return found


def repeated(world: World, ref: FunctionRef, holders: frozenset[str], below: tuple[FunctionRef, ...]) -> Turns | None:
    """The loop around a call of a function, or of one of its callers, which binds nothing that leads to what these holders are."""
    through = (*below, ref)
    callers = world.project.callers(ref)
    if len(through) > MAX_UP or len(callers.calls) > MAX_CALLERS:
        return None
    for caller in callers.calls:
        given = holders_at(world, ref, holders, caller) if caller.certain and caller.ref not in through else None
        if not given:
            continue
        body = world.body(caller.ref)
        calls = [each for each in nodes_of(body) if isinstance(each, ir.Call) and dotted(each.func) == caller.call.callee]
        for call in calls:
            loop = next((each for each in loops_around(body, call) if not changes(each, call, given)), None)
            if loop is not None and not is_set_again(world, caller.ref, own_attributes(given)):
                return Turns(caller.ref, loop.node, through)
        if any(next(loops_around(body, call), None) is not None for call in calls):
            continue  # each turn has another one
        before = frozenset[str]()
        for name in sorted(given):
            inner = frozenset((name,)) if name.startswith("self.") else holders_of(body, ir.Name(-1, name))
            before = before | inner if inner is not None else before | {""}
        turns = repeated(world, caller.ref, before, through) if "" not in before else None
        if turns is not None:
            return turns
    return None


def changes(loop: ir.For | ir.While, call: ir.Call, holders: frozenset[str]) -> bool:
    """Whether a loop gives what these holders are another value, or lets a call through by a test of what it changes."""
    bound = bound_in(loop)
    names = {*holders, *(holder.partition(".")[0] for holder in holders)}
    return bool(bound & names) or any(rests_on(test, bound) for test, _ in tests_to(loop.body, call.node))


def rests_on(test: ir.Expr, bound: set[str]) -> bool:
    return bool(names_inside(test) & bound) or any(isinstance(n, ir.Attr) and text_of(n) in bound for n in walk(test))


def holders_at(world: World, ref: FunctionRef, holders: frozenset[str], caller: Caller) -> frozenset[str] | None:
    """What the caller calls what these names and attributes of a function's are; None where that is not known."""
    facts = world.facts(ref)
    found = world.ir_of(ref)
    if found is None:
        return None
    names: set[str] = set()
    for holder in holders:
        if holder.startswith("self.") and ref.qualname.rpartition(".")[2] != CONSTRUCTOR:
            if not caller.call.callee.startswith("self.") or world.header(caller.ref).owner != facts.owner:
                return None
            names.add(holder)
            continue
        given = {holder}
        if holder.startswith("self."):
            values = [
                each.value
                for each in nodes_of(found.body)
                if isinstance(each, ir.Assign) and holder in map(text_of, each.targets)
            ]
            inner = union(found.body, values, 0) if values else None
            if inner is None or any(each.startswith("self.") for each in inner):
                return None
            given = {*inner}
        params = facts.params[1:] if facts.owner else facts.params
        for name in given:
            argument = argument_for(params, name, caller.call.args)
            if argument is None:
                return None
            if argument.const:
                continue
            first, _, rest = argument.name.partition(".")
            if not first or "(" in argument.name:
                return None
            names.add(f"self.{rest.partition('.')[0].rstrip('[]')}" if first == "self" and rest else first.rstrip("[]"))
    return frozenset(names) or None


def loops_around(body: list[ir.Stmt], call: ir.Call) -> Iterator[ir.For | ir.While]:
    """The loops around a call, the innermost first."""
    around = [
        each
        for each in nodes_of(body)
        if isinstance(each, ir.For | ir.While) and any(inner is call for inner in nodes_of(each.body))
    ]
    yield from reversed(around)


def bound_in(loop: ir.For | ir.While) -> set[str]:
    """The names and attributes that each turn of a loop may give another value."""
    assigned = (target for each in nodes_of(loop.body) if isinstance(each, ir.Assign) for target in each.targets)
    return {*names_bound(loop), *(text_of(target) for target in assigned if isinstance(target, ir.Attr))}


def own_attributes(holders: Iterable[str]) -> list[str]:
    return [holder.removeprefix("self.") for holder in holders if holder.startswith("self.")]


def is_set_again(world: World, ref: FunctionRef, attributes: Iterable[str]) -> bool:
    """Whether the class of a method gives one of its attributes another value than the constructor does."""
    owner = world.header(ref).owner
    found = (each for name in attributes if owner for each, _ in world.project.attr(ClassRef(ref.path, owner), name))
    return any(fact.method and not fact.method.endswith(CONSTRUCTOR) for fact in found)


def keeps_its_own(world: World, ref: FunctionRef, given: ir.Expr, turns: Turns) -> bool:
    """Whether what is registered is a visible function that stores tensors in something which each turn makes: an attribute of an object
    that is constructed on the way, or a variable of the function around it."""
    callees = world.project.callees(ref.path, ref.qualname, dotted(given))
    for hook in callees.refs if callees.certain or len(callees.refs) == 1 else ():
        header = world.header(hook)
        function = function_or_closure(world, hook)
        body = function.body if function is not None else []
        own = {param.name for param in header.params}
        made = {each.qualname.removesuffix(f".{CONSTRUCTOR}") for each in turns.through if each.qualname.endswith(CONSTRUCTOR)}
        owner = header.owner
        new = bool(owner) and (owner in made or is_made_in(world, ClassRef(hook.path, owner), turns))
        around = {
            name for each in turns.through if hook.qualname.startswith(f"{each.qualname}.") for name in world.facts(each).locals
        }
        inputs = own - {"self"} if owner else {p.name for p in header.params if not p.default and p.required}
        for holder, value in stored_in(body):
            first = holder.partition(".")[0].partition("[")[0]
            is_new = (
                (first == "self" and (new or "self" not in own)) or first in around or (first in own and first not in inputs)
            )
            if is_new and names_inside(value) & inputs and is_tensor(value):
                return True
    return False


def is_made_in(world: World, cls: ClassRef, turns: Turns) -> bool:
    """Whether one of the functions on the way makes an object of a class."""
    name = cls.qualname.rpartition(".")[2]
    return any(call.callee.rpartition(".")[2] == name for ref in turns.through for call in world.facts(ref).calls)


def stored_in(body: list[ir.Stmt]) -> Iterator[tuple[str, ir.Expr]]:
    """What a hook keeps, each with the text of where."""
    for each in nodes_of(body):
        if isinstance(each, ir.Assign):
            for target in each.targets:
                if isinstance(target, ir.Attr | ir.Subscript):
                    yield text_of(target), each.value
        elif isinstance(each, ir.Call) and isinstance(each.func, ir.Attr) and each.func.name in FILLS_LISTS and each.args:
            yield text_of(each.func.value), each.args[-1].value


def is_tensor(value: ir.Expr) -> bool:
    """Whether nothing in an expression makes a number or a shape of a tensor."""
    for each in walk(value):
        if isinstance(each, ir.Attr):
            if {TORCH.methods.get(each.name), TORCH.attributes.get(each.name)} & NO_TENSOR:
                return False
        elif isinstance(each, ir.Call) and isinstance(each.func, ir.Name):
            return False
    return True


def may_be_taken_off(world: World, turns: Turns) -> bool:
    """Whether the hooks may be removed again: by a function on the way, by a finalizer, or by what removes hooks of an object and is
    called somewhere, or stands at the end of a ``with`` in the function of the loop."""
    near: dict[FunctionRef, FunctionFacts] = {}
    for ref in (*turns.through, turns.ref):
        owner = world.header(ref).owner
        for facts in world.project.within(ref.path, owner or world.outermost(ref).qualname):
            near[FunctionRef(ref.path, facts.qualname)] = facts
    taking = {ref for ref, facts in near.items() if removes(facts)}
    while more := {
        ref
        for ref, facts in near.items()
        if ref not in taking and any(call.callee.rpartition(".")[2] in {last(each) for each in taking} for call in facts.calls)
    }:
        taking |= more
    names = {last(each) for each in taking}
    if taking & {*turns.through, turns.ref} or FINALIZER in names:
        return True
    if ENDS_WITH in names and any(isinstance(each, ir.With) for each in nodes_of(world.body(turns.ref))):
        return True
    if any(call.callee.rpartition(".")[2] in names for ref in (*turns.through, turns.ref) for call in world.facts(ref).calls):
        return True
    return any(caller.ref not in taking for each in sorted(taking) for caller in world.project.callers(each).calls)


def last(ref: FunctionRef) -> str:
    return ref.qualname.rpartition(".")[2]


def removes(facts: FunctionFacts) -> bool:
    """Whether a function takes a hook away, by its handle or out of the module."""
    return removes_by_handle(facts) or any(name.endswith("_hooks") and name.startswith("_") for name in facts.names)


def removes_by_handle(facts: FunctionFacts) -> bool:
    """Whether a function calls ``remove()`` of what may be a hook's handle."""
    return any(call.callee.endswith(REMOVES) and not call.args for call in facts.calls)
