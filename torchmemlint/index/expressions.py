"""What expressions say, taken down in one walk: calls, words, reads, with dotted text as the result."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from typing import Any

from torchmemlint.errors import SourceError
from torchmemlint.index.dotted import ELLIPSIS, dotted, list_text, literal, name_pattern, test_text
from torchmemlint.index.fact_words import ResultUse
from torchmemlint.index.facts import ArgFact, CallableUse, CallFact
from torchmemlint.index.walk import MAX_DEPTH, Walk
from torchmemlint.torch_facts import TORCH

_AT_ONCE = TORCH.words["runs-at-once"]
"""What calls a function that it is given before it returns."""


def read(walk: Walk, node: ast.expr, depth: int) -> str:
    """Visit an expression whose value is used; a name or attribute is noted as read."""
    kind = type(node)
    if kind is ast.Name:  # the most frequent, without another call
        name: str = node.id  # type: ignore[attr-defined]
        frame = walk.frame
        frame.names.add(name)
        frame.loads.add(name)
        return name
    text = visit(walk, node, depth)
    if kind is ast.Attribute:
        walk.frame.loads.add(text)
    return text


def read_test(walk: Walk, node: ast.expr, depth: int) -> None:
    """Visit an expression of which only the truth is asked, or whose value is compared: an attribute in it goes nowhere."""
    kind = type(node)
    if kind is ast.Attribute:
        walk.frame.tested.add(visit(walk, node, depth))
    elif kind is ast.BoolOp and depth <= MAX_DEPTH:
        for value in node.values:  # type: ignore[attr-defined]
            read_test(walk, value, depth + 1)
    else:
        read(walk, node, depth)


def visit(walk: Walk, node: ast.expr, depth: int, used: ResultUse = ResultUse.OTHER) -> str:
    """Note the calls and words of an expression and return its dotted text."""
    kind = type(node)
    if kind is ast.Constant:
        return ""
    frame = walk.frame
    if kind is ast.Name:
        name: str = node.id  # type: ignore[attr-defined]
        frame.names.add(name)
        return name
    if depth > MAX_DEPTH:
        raise SourceError(f"is nested more than {MAX_DEPTH} levels deep", node.lineno, node.col_offset + 1)
    depth += 1
    if kind is ast.Attribute:
        attr: str = node.attr  # type: ignore[attr-defined]
        frame.names.add(attr)
        value = node.value  # type: ignore[attr-defined]
        if type(value) is ast.Name:
            frame.names.add(value.id)
            return f"{value.id}.{attr}"
        return f"{visit(walk, value, depth) or '?'}.{attr}"
    if kind is ast.Call:
        return call(walk, node, depth, used)  # type: ignore[arg-type]
    if kind is ast.Await:
        return visit(walk, node.value, depth, used)  # type: ignore[attr-defined]
    handler = _EXPRESSIONS.get(kind)
    return handler(walk, node, depth) if handler is not None else _parts(walk, node, depth)


def _parts(walk: Walk, node: ast.expr, depth: int) -> str:
    """Visit an expression that has no text of its own, but parts that are read."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            read(walk, child, depth)
    return ""


def _subscript(walk: Walk, node: ast.Subscript, depth: int) -> str:
    text = visit(walk, node.value, depth)
    if text in ("sys.modules", "vars()", "locals()"):  # by which a module's names may be bound
        walk.top.unsure.add(ANY_NAME)
    read(walk, node.slice, depth)
    return f"{text}[]" if text else ""


def _binary(walk: Walk, node: ast.BinOp, depth: int) -> str:
    read(walk, node.left, depth)
    read(walk, node.right, depth)
    return ""


def _display(walk: Walk, node: ast.Tuple | ast.List | ast.Set, depth: int) -> str:
    for element in node.elts:
        read(walk, element, depth)
    return ""


def _unary(walk: Walk, node: ast.UnaryOp, depth: int) -> str:
    (read_test if type(node.op) is ast.Not else read)(walk, node.operand, depth)
    return ""


def _compare(walk: Walk, node: ast.Compare, depth: int) -> str:
    read_test(walk, node.left, depth)
    for value in node.comparators:
        read_test(walk, value, depth)
    return ""


def _conditional(walk: Walk, node: ast.IfExp, depth: int) -> str:
    read_test(walk, node.test, depth)
    read(walk, node.body, depth)
    read(walk, node.orelse, depth)
    return ""


def _named(walk: Walk, node: ast.NamedExpr, depth: int) -> str:
    text = read(walk, node.value, depth)
    walk.frame.bind(node.target.id, text)
    return text


def _yield(walk: Walk, node: ast.Yield | ast.YieldFrom, depth: int) -> str:
    walk.frame.generator = True
    walk.frame.yields.append(walk.managers)
    return _parts(walk, node, depth)


def call(walk: Walk, node: ast.Call, depth: int, used: ResultUse) -> str:
    frame = walk.frame
    func = node.func
    callee = visit(walk, func, depth)
    if callee.rpartition(".")[2] in _AT_ONCE:
        given = [*node.args, *[keyword.value for keyword in node.keywords]]
        frame.at_once.update([id(argument) for argument in given if type(argument) is ast.Lambda])
    args: list[ArgFact] = []
    for argument in node.args:
        if type(argument) is ast.Starred:
            args.append(argument_fact(walk, "*", argument.value, depth))
        else:
            args.append(argument_fact(walk, "", argument, depth))
    for keyword in node.keywords:
        if keyword.arg:
            frame.names.add(keyword.arg)
        args.append(argument_fact(walk, keyword.arg or "**", keyword.value, depth))
    if callee in walk.plain:
        return f"{callee}()"
    if callee == "getattr" and len(args) > 1 and not args[1].const:
        pattern = name_pattern(node.args[1])
        if pattern.strip("*"):
            args[1] = ArgFact("", "", "", pattern)
    callee = sys.intern(callee)
    frame.calls.append(
        CallFact(callee, tuple(args), walk.loops, walk.managers, used, walk.branch, len(frame.calls), frame.deferred > 0)
    )
    if callee.endswith(_BINDS) and "()" not in callee and isinstance(func, ast.Attribute):
        read(walk, func.value, depth)  # a function that is bound to an object is taken as a value
    if callee.endswith(_FILLS):
        _note_setter(walk, callee, args)
    statement, end_row = walk.statement, node.end_lineno or node.lineno
    frame.calls_at += (
        node.lineno - frame.row,
        node.lineno - statement.lineno,
        walk.column(statement.lineno, statement.col_offset),
        end_row - frame.row,
        walk.column(end_row, node.end_col_offset or 0),
    )
    return f"{callee}()" if callee else ""


def argument_fact(walk: Walk, keyword: str, node: ast.expr, depth: int) -> ArgFact:
    name = read(walk, node, depth)
    test = const = ""
    if not name:
        const = literal(node)
        if not const:
            kind = type(node)
            if kind is ast.UnaryOp or kind is ast.Compare:
                test = test_text(node)
            elif kind is ast.List:
                test = list_text(node)  # type: ignore[arg-type]
            elif kind is ast.Lambda and not _runs_anything(node):  # type: ignore[arg-type]
                const = FORMULA
    key = (keyword, name, const, test)
    fact = walk.arg_cache.get(key)
    if fact is None:
        fact = walk.arg_cache[key] = ArgFact(keyword, name, const, test)
    return fact


FORMULA = ELLIPSIS
"""Stands for a function of arithmetic alone: a value that is no module, and that equals no literal of the code."""


def _runs_anything(node: ast.Lambda) -> bool:
    """Whether a lambda calls anything but torch's functions by their full name (``torch.log``): it may run, or make, a module."""
    calls = [dotted(each.func) for each in ast.walk(node.body) if isinstance(each, ast.Call)]
    return any(callee.count(".") != 1 or not callee.startswith("torch.") for callee in calls)


def _lambda(walk: Walk, node: ast.Lambda, depth: int) -> str:
    """Calls in a lambda are kept with the function around it, marked as deferred where it is not given to what runs it at once; its
    parameters are no locals of it."""
    for default in [*node.args.defaults, *node.args.kw_defaults]:
        if default is not None:
            read(walk, default, depth)
    later = id(node) not in walk.frame.at_once
    walk.frame.deferred += later
    read(walk, node.body, depth)
    walk.frame.deferred -= later
    return ""


def _comprehension(walk: Walk, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, depth: int) -> str:
    for clause in node.generators:
        text = read(walk, clause.iter, depth)
        walk.loops += 1
        bind_loop_target(walk, clause.target, text, depth)
        for condition in clause.ifs:
            read_test(walk, condition, depth)
    if isinstance(node, ast.DictComp):
        read(walk, node.key, depth)
        read(walk, node.value, depth)
    else:
        read(walk, node.elt, depth)
    walk.loops -= len(node.generators)
    return ""


def callable_use(walk: Walk, node: ast.expr) -> CallableUse:
    """A manager, decorator or returned value as data; its parts are visited elsewhere."""
    if isinstance(node, ast.IfExp):
        return either(callable_use(walk, node.body), callable_use(walk, node.orelse))
    if isinstance(node, ast.Call):
        args = tuple(
            [plain_argument_fact("*" if isinstance(a, ast.Starred) else "", a) for a in node.args]
            + [plain_argument_fact(k.arg or "**", k.value) for k in node.keywords]
        )
        if isinstance(node.func, ast.IfExp):
            then, other = callable_use(walk, node.func.body), callable_use(walk, node.func.orelse)
            return either(CallableUse(then.callee, args, True), CallableUse(other.callee, args, True))
        return CallableUse(dotted(node.func), args, True)
    return CallableUse(dotted(node), (), False)


def plain_argument_fact(keyword: str, node: ast.expr) -> ArgFact:
    node = node.value if isinstance(node, ast.Starred) else node
    name = dotted(node)
    const = "" if name else literal(node)
    return ArgFact(keyword, name, const, "" if name or const else test_text(node))


def bind_target(walk: Walk, target: ast.expr, depth: int) -> None:
    """Bind the names of an assignment target to values that are not known."""
    kind = type(target)
    if kind is ast.Name:
        walk.frame.bind(target.id, "")  # type: ignore[attr-defined]
    elif kind is ast.Tuple or kind is ast.List:
        for element in target.elts:  # type: ignore[attr-defined]
            bind_target(walk, element, depth + 1)
    elif kind is ast.Starred:
        bind_target(walk, target.value, depth + 1)  # type: ignore[attr-defined]
    else:
        note_store(walk, visit(walk, target, depth))


def note_store(walk: Walk, text: str, own: bool = False) -> None:
    """Something is stored in what has this text: an attribute, or an item, which may be one by what ``vars`` or ``__dict__`` give;
    ``own``: of the own object."""
    receiver, _, name = text.rpartition(".")
    if name in _TABLES:
        walk.frame.stores.add("self*" if own or (receiver and receiver == walk.frame.receiver) else ANY_NAME)
    elif "." in text and "[" not in name:
        walk.frame.stores.add(name)


def _note_setter(walk: Walk, callee: str, args: list[ArgFact]) -> None:
    """What a call stores in attributes: ``setattr``, and others by which this is done."""
    own = callee == "super().__setattr__" or (bool(args) and args[0].name == walk.frame.receiver != "")
    named = callee == "setattr" and len(args) > 1 and args[1].const
    note_store(walk, f".{args[1].const[1:-1]}" if named else "__dict__", own)


ANY_NAME = "*"
_TABLES = frozenset({"vars()", "vars()[]", "__dict__", "__dict__[]"})
_BINDS = ".__get__"
_FILLS = ("setattr", "__setattr__", "__dict__.update", "__dict__.setdefault", "vars().update", "vars().setdefault")


def bind_loop_target(walk: Walk, target: ast.expr, text: str, depth: int) -> None:
    if type(target) is ast.Name and text:
        walk.frame.bind(target.id, f"{text}[]")
    else:
        bind_target(walk, target, depth)


def either(then: CallableUse, other: CallableUse) -> CallableUse:
    return CallableUse(then.callee, then.args, then.called, other)


_EXPRESSIONS: dict[type[ast.expr], Callable[[Walk, Any, int], str]] = {
    ast.Subscript: _subscript,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.Compare: _compare,
    ast.IfExp: _conditional,
    ast.Tuple: _display,
    ast.List: _display,
    ast.Set: _display,
    ast.Lambda: _lambda,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.DictComp: _comprehension,
    ast.NamedExpr: _named,
    ast.Yield: _yield,
    ast.YieldFrom: _yield,
}
"""The kinds that ``visit`` does not look at itself; of any other, the parts are read."""
