"""Questions about the IR alone: which names a test asks of, what a block does, what an expression is written as."""

from __future__ import annotations

from torchmemlint.lower import ir
from torchmemlint.lower.walk import nodes_of
from torchmemlint.lower.written import dotted, text_of
from torchmemlint.torch_facts import TORCH

INSIDE = ir.Const(-1, None)
"""Stands for a stored value that no expression of its own names (it is inside an argument): nothing a fix could change."""
TRAINS = TORCH.words["back-propagates"] | TORCH.words["optimizer-words"]


def names_tested(test: ir.Expr) -> list[str]:
    """Names that ``narrow`` may change for this test."""
    match test:
        case ir.Unary():
            return names_tested(test.value)
        case ir.BoolOp():
            return names_tested(test.left) + names_tested(test.right)
        case ir.Compare(left=ir.Name() as name):
            return [name.id]
        case ir.Call(args=[ir.Arg(value=ir.Name() as name), *_]):
            return [name.id]
        case _:
            return []


def target_names(target: ir.Expr) -> frozenset[str]:
    """The bare names that an assignment target binds."""
    match target:
        case ir.Name():
            return frozenset((target.id,))
        case ir.Star():
            return target_names(target.value)
        case ir.Sequence():
            return frozenset().union(*(target_names(i) for i in target.items))
        case _:
            return frozenset()


def changes_nothing(expr: ir.Expr) -> bool:
    """Whether an expression is so plain (names, literals and what operators make of them) that evaluating it leaves the state as
    it is: an attribute may be a property."""
    match expr:
        case ir.Name() | ir.Const():
            return True
        case ir.Unary():
            return changes_nothing(expr.value)
        case ir.BoolOp():
            return changes_nothing(expr.left) and changes_nothing(expr.right)
        case ir.Compare():
            return changes_nothing(expr.left) and all(map(changes_nothing, expr.comparators))
        case _:
            return False


def takes_part(text: str, expr: ir.Expr) -> bool:
    """Whether a name or attribute is an operand of arithmetic."""
    if not isinstance(expr, ir.Binary):
        return False
    return any(text_of(operand) == text or takes_part(text, operand) for operand in (expr.left, expr.right))


def replaced_items(statement: ir.For) -> ir.Subscript | None:
    """The target ``d[k]`` where a loop over a dict's keys or items gives each key a new value."""
    iterable, key = statement.iterable, statement.target
    if (
        isinstance(iterable, ir.Call)
        and dotted(iterable.func) == "enumerate"
        and isinstance(key, ir.Sequence)
        and len(key.items) == 2
        and iterable.args
    ):
        iterable, key = iterable.args[0].value, key.items[1]
    if isinstance(iterable, ir.Call) and dotted(iterable.func) in ("list", "tuple", "sorted") and len(iterable.args) == 1:
        iterable = iterable.args[0].value
    if isinstance(iterable, ir.Call) and isinstance(iterable.func, ir.Attr) and not iterable.args:
        if iterable.func.name == "items" and isinstance(key, ir.Sequence) and len(key.items) == 2:
            key = key.items[0]
        elif iterable.func.name != "keys":
            return None
        iterable = iterable.func.value
    text = dotted(iterable)
    if not text or not isinstance(key, ir.Name):
        return None
    for position, inner in enumerate(statement.body):
        if isinstance(inner, ir.Assign) and len(inner.targets) == 1:
            target = inner.targets[0]
            if isinstance(target, ir.Subscript) and dotted(target.value) == text and len(target.index) == 1:
                if isinstance(target.index[0], ir.Name) and target.index[0].id == key.id:
                    early = holds(statement.body[:position], ir.Continue) or holds(statement.body, ir.Break)
                    return None if early else target
    return None


def holds(body: list[ir.Stmt], kind: type[ir.Break] | type[ir.Continue]) -> bool:
    """Whether a block of statements has one of a kind, or a block inside of it has."""
    return any(
        isinstance(statement, kind) or any(holds(inner, kind) for inner in nested_blocks(statement)) for statement in body
    )


def reads_item(expr: ir.Expr, target: ir.Subscript) -> bool:
    """Whether an expression reads the very item that is assigned: ``d[k]``, or ``d.get(k, 0)``."""
    if text_of(expr) == text_of(target):
        return True
    return (
        isinstance(expr, ir.Call)
        and isinstance(expr.func, ir.Attr)
        and expr.func.name in TORCH.words["takes-by-key"]
        and text_of(expr.func.value) == text_of(target.value)
        and bool(expr.args)
        and len(target.index) == 1
        and text_of(expr.args[0].value) == text_of(target.index[0])
    )


def type_names(expr: ir.Expr) -> list[str]:
    """The types in the second argument of ``isinstance``, as written: ``(list, tuple)``, ``list | tuple``."""
    match expr:
        case ir.Sequence():
            return [name for item in expr.items for name in type_names(item)]
        case ir.Binary(op="|"):
            return [*type_names(expr.left), *type_names(expr.right)]
        case _:
            return [dotted(expr)]


def leaves(body: list[ir.Stmt]) -> bool:
    """Whether a loop's body, run to its end without an exception, leaves the loop: an iteration is one more attempt. A name that the
    body sets to a literal tells which branch such a run takes (``failed = False``, and ``True`` in a handler)."""
    return _run_to_end(body, {}) is True


def _run_to_end(body: list[ir.Stmt], flags: dict[str, object]) -> bool | None:
    """Whether a run of a block without an exception leaves the loop, None if it goes on behind the block."""
    for statement in body:
        ends: bool | None = None
        match statement:
            case ir.Break() | ir.Return():
                return True
            case ir.Continue() | ir.Raise():
                return False
            case ir.Try():
                ends = _run_to_end([*statement.body, *statement.orelse, *statement.final], flags)
            case ir.With():
                ends = _run_to_end(statement.body, flags)
            case ir.If() if (holds := _holds(statement.test, flags)) is not None:
                ends = _run_to_end(statement.then if holds else statement.orelse, flags)
            case ir.Assign(targets=[ir.Name() as name], value=ir.Const() as value):
                flags[name.id] = value.value
            case _ if flags:
                for bound in names_bound(statement):
                    flags.pop(bound, None)
        if ends is not None:
            return ends
    return None


def _holds(test: ir.Expr, flags: dict[str, object]) -> bool | None:
    """Whether a test of one name holds, None if it is not known."""
    match test:
        case ir.Name() if test.id in flags:
            return bool(flags[test.id])
        case ir.Unary(op="not"):
            inner = _holds(test.value, flags)
            return None if inner is None else not inner
        case _:
            return None


def names_bound(statement: ir.Stmt) -> frozenset[str]:
    """The names that a statement may bind, with those inside it."""
    bound = frozenset[str]()
    for node in nodes_of([statement]):
        match node:
            case ir.Assign():
                bound = bound.union(*map(target_names, node.targets))
            case ir.AugAssign() | ir.For() | ir.Walrus():
                bound |= target_names(node.target)
            case ir.With():
                bound = bound.union(*(target_names(item.target) for item in node.items if item.target is not None))
    return bound


def names_in(expr: ir.Expr) -> set[str]:
    """Bare names with which the parts of an expression begin."""
    match expr:
        case ir.Name():
            return {expr.id}
        case ir.Attr() | ir.Star():
            return names_in(expr.value)
        case ir.Subscript():
            return names_in(expr.value)
        case ir.Call():
            return names_in(expr.func)
        case ir.Compare():
            return names_in(expr.left)
        case ir.Sequence():
            return set().union(*(names_in(i) for i in expr.items)) if expr.items else set()
        case _:
            return set()


def does_training(body: list[ir.Stmt]) -> bool:
    """Whether a block back-propagates or steps an optimizer in its own statements."""
    for statement in body:
        if isinstance(statement, ir.ExprStmt) and isinstance(statement.value, ir.Call):
            func = statement.value.func
            last = func.name if isinstance(func, ir.Attr) else dotted(func)
            if last in TRAINS:
                return True
        for inner in nested_blocks(statement):
            if does_training(inner):
                return True
    return False


def nested_blocks(statement: ir.Stmt) -> list[list[ir.Stmt]]:
    """The blocks inside a compound statement, functions and classes left out."""
    match statement:
        case ir.If():
            return [statement.then, statement.orelse]
        case ir.For() | ir.While():
            return [statement.body, statement.orelse]
        case ir.With():
            return [statement.body]
        case ir.Try():
            return [statement.body, statement.orelse, statement.final, *(h.body for h in statement.handlers)]
        case ir.Match():
            return [c.body for c in statement.cases]
        case _:
            return []


def every_block(statement: ir.Stmt) -> list[list[ir.Stmt]]:
    """As ``nested_blocks``, with the body of a function or class."""
    match statement:
        case ir.FunctionDef():
            return [statement.function.body]
        case ir.ClassDef():
            return [statement.body]
        case _:
            return nested_blocks(statement)


def has_siblings(body: list[ir.Stmt], node: int) -> bool:
    """Whether a statement, given by its node, stands in a block with others; functions and classes inside the body included."""
    for statement in body:
        if statement.node == node:
            return len(body) > 1
        if any(has_siblings(block, node) for block in every_block(statement)):
            return True
    return False


def gates_of(body: list[ir.Stmt], node: int, around: tuple[str, ...] = ()) -> tuple[str, ...] | None:
    """The tests of all ``if`` around a node, and "try" for each ``try`` with a handler, from the outermost on; None where the node is
    not in these statements."""
    for statement in body:
        gates = around
        if isinstance(statement, (ir.If, ir.While)):
            gates = (*around, every_text(statement.test))
        elif isinstance(statement, ir.Try) and statement.handlers:
            gates = (*around, "try")
        for block in every_block(statement):
            found = gates_of(block, node, gates)
            if found is not None:
                return found
        if statement.node == node:
            return around
    return None


def every_text(test: ir.Expr) -> str:
    """As ``text_of``, with the operands of ``and``, ``or`` and ``not``, and what calls are given."""
    match test:
        case ir.BoolOp():
            return f"{every_text(test.left)} {test.op} {every_text(test.right)}"
        case ir.Unary():
            return f"{test.op} {every_text(test.value)}"
        case _:
            return text_of(test)


def half_fix(expr: ir.Expr | None) -> tuple[str, int]:
    """The move or copy that stands where a detach should, and the node it is called on: ("cpu", out) for ``out.cpu()``."""
    name, base = "", -1
    while isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr):
        if expr.func.name in TORCH.words["half-fixes"]:
            name, base = expr.func.name, expr.func.value.node
        else:
            break
        expr = expr.func.value
    return name, base


def gradient_owner(expr: ir.Expr) -> ir.Expr | None:
    """``p`` of ``p.grad`` and of ``p.grad.data``; None for any other expression."""
    if isinstance(expr, ir.Attr) and expr.name == TORCH.names["data"]:
        expr = expr.value
    return expr.value if isinstance(expr, ir.Attr) and expr.name == TORCH.names["gradient"] else None


def is_small(expr: ir.Expr) -> bool:
    """A number, or a display of numbers: a tensor of it is no more than a scalar on the device."""
    if isinstance(expr, ir.Sequence):
        return all(type(item) in (ir.Const, ir.Name, ir.Unary) for item in expr.items)
    return isinstance(expr, ir.Const)


def next_words(statement: ir.Stmt | None) -> str:
    """What the next statement of the block is, as far as rules ask: "break", "return", or the text of its call or value."""
    match statement:
        case ir.Break() | ir.Return() | ir.Raise():
            return type(statement).__name__.lower()
        case ir.ExprStmt() | ir.Assign():
            return text_of(statement.value)
        case _:
            return ""


def is_abstract(function: ir.Function) -> bool:
    """Whether a body does nothing but raise (or nothing at all): subclasses have the real one."""
    for statement in function.body:
        if isinstance(statement, ir.ExprStmt) and isinstance(statement.value, ir.Const):
            continue
        if not isinstance(statement, ir.Raise):
            return False
    return not function.name.startswith("__")


def first_parameter(function: ir.Function) -> str:
    return function.params[0].name if function.params else ""


def receiver_of(callee: ir.Expr) -> ir.Expr | None:
    """What a method is called on; None where the callee is none."""
    return callee.value if isinstance(callee, ir.Attr) else None
