"""What statements say: bindings, attributes, imports, branches, loops and the managers in force; functions and classes in them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Sequence

from torchmemlint.errors import SourceError
from torchmemlint.index.dotted import (
    alternative,
    annotation_text,
    base_text,
    branch_text,
    dotted,
    element_text,
    is_same,
    literal,
    name_beside_call,
)
from torchmemlint.index.expressions import bind_loop_target, bind_target, callable_use, note_store, read, read_test, visit
from torchmemlint.index.fact_words import AttrKind, ResultUse
from torchmemlint.index.facts import AttrFact, CallableUse, ClassFacts
from torchmemlint.index.signatures import all_arguments, receiver_name
from torchmemlint.index.walk import MAX_DEPTH, ClassBody, Frame, Walk, finished
from torchmemlint.torch_facts import TORCH

SETS_GRAD = TORCH.names["sets-grad-mode"]

_NO_USE = CallableUse("", (), False)
GRADIENT_FLAG = TORCH.names["gradient-flag"]
"""The attribute whose stored values the index keeps: it freezes parameters, or thaws them."""


def block(walk: Walk, statements: Sequence[ast.stmt], depth: int) -> bool:
    """Visit statements in order; True when control cannot reach the end of them."""
    if depth > MAX_DEPTH and statements:
        raise SourceError(f"is nested more than {MAX_DEPTH} levels deep", statements[0].lineno)
    table = _STATEMENTS
    ends = False
    for statement in statements:
        walk.statement = statement
        kind = type(statement)
        handler = table.get(kind)
        if handler is not None:
            handler(walk, statement, depth)
        else:
            for child in ast.iter_child_nodes(statement):
                if isinstance(child, ast.expr):
                    read(walk, child, depth)
        if kind in _ENDS:
            ends = True
    return ends


def nothing(walk: Walk, statement: ast.stmt, depth: int) -> None:
    pass


def expression_statement(walk: Walk, statement: ast.stmt, depth: int) -> None:
    assert isinstance(statement, ast.Expr)
    value = statement.value
    visit(walk, value, depth + 1, ResultUse.DROPPED)
    if type(value) is ast.Call:
        mode_change(walk, value)


def mode_change(walk: Walk, node: ast.Call) -> None:
    """A statement that changes the grad mode for what follows: ``set_grad_enabled(…)``, ``stack.enter_context(…)`` …"""
    func = node.func
    name = func.attr if type(func) is ast.Attribute else func.id if type(func) is ast.Name else ""
    if name == "enter_context" and len(node.args) == 1:
        use = callable_use(walk, node.args[0])
    elif name == "__enter__" and type(func) is ast.Attribute:
        use = callable_use(walk, func.value)
        use = CallableUse(use.callee, use.args, True, use.alternative)
    elif name == "__exit__" and type(func) is ast.Attribute:
        closed = callable_use(walk, func.value).callee
        walk.managers = tuple(use for use in walk.managers if use.callee != closed)
        return
    elif name.endswith(SETS_GRAD) or stands_for_set_grad(walk, name):
        use = callable_use(walk, node)
        if walk.managers and walk.managers[-1].callee == use.callee and walk.managers[-1].statement:
            walk.managers = walk.managers[:-1]
    else:
        return
    walk.managers = (*walk.managers, CallableUse(use.callee, use.args, use.called, use.alternative, True))


def stands_for_set_grad(walk: Walk, name: str) -> bool:
    return bool(name) and any(
        bound == name and target.endswith(".set_grad_enabled") for bound, target in walk.imports if bound == name
    )


def assign(walk: Walk, statement: ast.stmt, depth: int) -> None:
    assert isinstance(statement, ast.Assign)
    value = statement.value
    several = any(type(target) is ast.Tuple and len(target.elts) > 1 for target in statement.targets)
    text = visit(walk, value, depth + 1, ResultUse.UNPACKED if several else ResultUse.OTHER)
    if text.endswith(("vars()", "__dict__")):  # which is filled by that name
        note_store(walk, text)
    for target in statement.targets:
        store(walk, target, value, text, "", depth + 1)
        if walk.frame is walk.top and isinstance(value, ast.Call) and is_module_getattr(target):
            lazily_imported(walk, value)


def is_module_getattr(target: ast.expr) -> bool:
    """Whether what looks names of the module up is bound (PEP 562)."""
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    return any(isinstance(part, ast.Name) and part.id == "__getattr__" for part in parts)


def lazily_imported(walk: Walk, call: ast.Call) -> None:
    """The names that a package has from its modules when they are asked for, in ``lazy_loader.attach(__name__, submod_attrs={"part":
    ["name"]})``: as if they were imported."""
    for given in (*call.args, *(keyword.value for keyword in call.keywords)):
        for key, names in zip(given.keys, given.values, strict=True) if isinstance(given, ast.Dict) else ():
            listed = names.elts if isinstance(names, ast.List | ast.Tuple) else []
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                bound = (name.value for name in listed if isinstance(name, ast.Constant) and isinstance(name.value, str))
                walk.imports.update(dict.fromkeys((name, f".{key.value}.{name}") for name in bound))


def unpack(walk: Walk, targets: list[ast.expr], value: ast.expr | None, text: str, depth: int) -> bool:
    """Stores the parts of a value that is written out in as many targets; else says so, and what gave the attributes of
    ``self.layers, self.rest = make()``."""
    if isinstance(value, ast.Tuple | ast.List) and len(targets) == len(value.elts):
        for inner, part in zip(targets, value.elts, strict=True):
            store(walk, inner, part, dotted(part), "", depth)
        return True
    frame = walk.frame
    owner = walk.classes.get(frame.owner) if frame.owner and frame.receiver and text else None
    if owner is None:
        return False
    for target in targets:
        if type(target) is ast.Attribute and type(target.value) is ast.Name and target.value.id == frame.receiver:
            owner.attrs.append(AttrFact(target.attr, AttrKind.PART, "", "", frame.qualname, element=text))
    return False


def annotated(walk: Walk, statement: ast.stmt, depth: int) -> None:
    assert isinstance(statement, ast.AnnAssign)
    annotation = annotation_text(statement.annotation)
    text = visit(walk, statement.value, depth + 1) if statement.value is not None else ""
    store(walk, statement.target, statement.value, text, annotation, depth + 1)


def store(walk: Walk, target: ast.expr, value: ast.expr | None, text: str, annotation: str, depth: int) -> None:
    kind = type(target)
    if kind is ast.Name:
        name: str = target.id  # type: ignore[attr-defined]
        if walk.scope is not None:
            walk.scope.attrs.append(attr_fact(name, value, text, annotation, ""))
        elif not annotation and (type(value) is ast.Constant or type(value) is ast.Lambda):
            # No object that has methods: of `net = None` and `net = Net()` the second one counts.
            walk.frame.own(name, const=literal(value))
        elif not (value is not None and is_same(name, value)):
            walk.frame.bind(name, text or (f"{annotation}()" if annotation else ""))
        return
    if kind is ast.Attribute:
        receiver = target.value  # type: ignore[attr-defined]
        frame = walk.frame
        if type(receiver) is ast.Name and receiver.id == frame.receiver and frame.receiver and frame.owner:
            same = value is not None and is_same(dotted(target), value)
            if not same:
                owner = walk.classes.get(frame.owner)
                if owner is not None:
                    name = target.attr  # type: ignore[attr-defined]
                    owner.attrs.append(attr_fact(name, value, text, annotation, frame.qualname))
                    frame.names.add(name)
                    return
        elif target.attr == GRADIENT_FLAG:  # type: ignore[attr-defined]
            frame.names.add(f"{GRADIENT_FLAG}={literal(value) if value is not None else ''}")
    elif (kind is ast.Tuple or kind is ast.List) and unpack(walk, target.elts, value, text, depth):  # type: ignore[attr-defined]
        return
    if type(value) is ast.Name or type(value) is ast.Attribute:
        walk.frame.loads.add(text)
    bind_target(walk, target, depth)


def augmented(walk: Walk, statement: ast.stmt, depth: int) -> None:
    assert isinstance(statement, ast.AugAssign)
    note_store(walk, visit(walk, statement.target, depth + 1))
    read(walk, statement.value, depth + 1)
    if type(statement.target) is ast.Name and walk.scope is None:
        walk.frame.bind(statement.target.id, "")


def return_(walk: Walk, statement: ast.stmt, depth: int) -> None:
    assert isinstance(statement, ast.Return)
    value = statement.value
    if value is None:
        return
    text = visit(walk, value, depth + 1, ResultUse.RETURNED)
    if type(value) is ast.Name or type(value) is ast.Attribute:
        walk.frame.loads.add(text)
        walk.frame.returned.append(CallableUse(text, (), False))
    elif type(value) is ast.Call:
        # `return torch.no_grad()(function)` decorates, anything else is what the caller gets.
        if type(value.func) is ast.Call and len(value.args) == 1 and type(value.args[0]) is ast.Name:
            walk.frame.wraps.append(callable_use(walk, value.func))
        else:
            walk.frame.returned.append(callable_use(walk, value))
    elif type(value) is ast.IfExp:
        walk.frame.returned.append(callable_use(walk, value))
    else:
        walk.frame.returned.append(_NO_USE)


def if_(walk: Walk, statement: ast.stmt, depth: int) -> None:
    assert isinstance(statement, ast.If)
    read_test(walk, statement.test, depth + 1)
    test = branch_text(statement.test)
    outside, before = walk.branch, walk.managers
    walk.branch = (*outside, test)
    then_ends = block(walk, statement.body, depth + 1)
    then_managers, walk.managers = walk.managers, before
    else_ends = False
    if statement.orelse:
        walk.branch = (*outside, f"not {test}" if test else "")
        else_ends = block(walk, statement.orelse, depth + 1)
    walk.branch = outside
    if then_ends == else_ends:
        walk.managers = joined(before, then_managers, walk.managers)
    elif else_ends:
        walk.managers = then_managers


def for_(walk: Walk, statement: ast.stmt, depth: int) -> None:
    assert isinstance(statement, ast.For | ast.AsyncFor)
    text = read(walk, statement.iter, depth + 1)
    bind_loop_target(walk, statement.target, text, depth + 1)
    loops = walk.loops
    walk.loops += turns(statement.body)
    block(walk, statement.body, depth + 1)
    walk.loops = loops
    block(walk, statement.orelse, depth + 1)


def turns(body: list[ast.stmt]) -> bool:
    """Whether a loop with this body turns: not where its end is a ``break`` that nothing jumps over."""
    return type(body[-1]) is not ast.Break or any(type(node) is ast.Continue for each in body for node in ast.walk(each))


def while_(walk: Walk, statement: ast.stmt, depth: int) -> None:
    assert isinstance(statement, ast.While)
    loops = walk.loops
    walk.loops += turns(statement.body)
    read_test(walk, statement.test, depth + 1)
    block(walk, statement.body, depth + 1)
    walk.loops = loops
    block(walk, statement.orelse, depth + 1)


def with_(walk: Walk, statement: ast.stmt, depth: int) -> None:
    assert isinstance(statement, ast.With | ast.AsyncWith)
    before = walk.managers
    touches_grad = False
    for item in statement.items:
        text = read(walk, item.context_expr, depth + 1)
        use = callable_use(walk, item.context_expr)
        walk.managers = (*walk.managers, use)
        touches_grad = touches_grad or TORCH.names["gradient"] in use.callee or TORCH.names["inference-mode"] in use.callee
        if item.optional_vars is not None:
            if type(item.optional_vars) is ast.Name:
                walk.frame.bind(item.optional_vars.id, text)
            else:
                bind_target(walk, item.optional_vars, depth + 1)
    inside = len(walk.managers)
    block(walk, statement.body, depth + 1)
    # What a with-block entered it leaves; a `set_grad_enabled` inside outlives it unless it restores the mode itwalk.
    left = () if touches_grad else tuple(use for use in walk.managers[inside:] if use.callee.endswith(SETS_GRAD))
    walk.managers = before + left


def try_(walk: Walk, statement: ast.stmt, depth: int) -> None:
    before = walk.managers
    ends = block(walk, statement.body, depth + 1)  # type: ignore[attr-defined]
    after = walk.managers
    for handler in statement.handlers:  # type: ignore[attr-defined]
        walk.managers = before
        walk.statement = handler
        if handler.type is not None:
            read(walk, handler.type, depth + 1)
        if handler.name:
            walk.frame.bind(handler.name, "")
        block(walk, handler.body, depth + 2)
    walk.managers = after if not ends else before
    block(walk, statement.orelse, depth + 1)  # type: ignore[attr-defined]
    block(walk, statement.finalbody, depth + 1)  # type: ignore[attr-defined]


def match(walk: Walk, statement: ast.stmt, depth: int) -> None:
    assert isinstance(statement, ast.Match)
    read(walk, statement.subject, depth + 1)
    outside, before = walk.branch, walk.managers
    walk.branch = (*outside, "")
    after = before
    for case in statement.cases:
        walk.managers = before
        for node in ast.walk(case.pattern):
            if isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
                walk.frame.bind(node.name, "")
            elif isinstance(node, ast.MatchMapping) and node.rest:
                walk.frame.bind(node.rest, "")
            elif isinstance(node, ast.MatchValue):
                read(walk, node.value, depth + 2)
            elif isinstance(node, ast.MatchClass):
                read(walk, node.cls, depth + 2)
        if case.guard is not None:
            read(walk, case.guard, depth + 2)
        if not block(walk, case.body, depth + 2):
            after = joined(before, after, walk.managers)
    walk.branch, walk.managers = outside, after


def global_(walk: Walk, statement: ast.stmt, depth: int) -> None:
    assert isinstance(statement, ast.Global | ast.Nonlocal)
    walk.frame.globals.update(statement.names)
    walk.declared.update(statement.names)


def import_(walk: Walk, statement: ast.stmt, depth: int) -> None:
    assert isinstance(statement, ast.Import)
    for alias in statement.names:
        if alias.asname:
            walk.imports[alias.asname, alias.name] = None
            imported(walk, alias.asname, depth)
        else:
            head = alias.name.partition(".")[0]
            walk.imports[head, head] = None
            walk.imports[alias.name, alias.name] = None
            imported(walk, alias.name, depth)


def import_from(walk: Walk, statement: ast.stmt, depth: int) -> None:
    assert isinstance(statement, ast.ImportFrom)
    module = "." * statement.level + (statement.module or "")
    for alias in statement.names:
        if alias.name == "*":
            walk.imports[f"*{module}", module] = None
            imported(walk, f"*{module}", depth)
        else:
            dotted = module + alias.name if module.endswith(".") else f"{module}.{alias.name}"
            walk.imports[alias.asname or alias.name, dotted] = None
            imported(walk, alias.asname or alias.name, depth)


def imported(walk: Walk, name: str, depth: int) -> None:
    """``name``, which stands among the imports, is bound."""
    if walk.frame is not walk.top:
        walk.frame.unsure.add(name.partition(".")[0])
    elif depth == 1 and not walk.functions:
        walk.needs.append(name)


def function(walk: Walk, statement: ast.stmt, depth: int) -> None:
    assert isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
    outer, scope = walk.frame, walk.scope
    # The words of decorators are both the surroundings' (which call them) and the function's (whose region has them).
    around, outer.names = outer.names, set()
    for decorator in statement.decorator_list:
        visit(walk, decorator, depth + 1)
    header_words, outer.names = outer.names, around
    around |= header_words
    arguments = statement.args
    for default in [*arguments.defaults, *arguments.kw_defaults]:
        if default is not None:
            read(walk, default, depth + 2)
    if scope is not None:
        prefix, owner = f"{scope.qualname}.", scope.qualname
        scope.methods[statement.name] = prefix + statement.name
    else:
        prefix, owner = "" if outer is walk.top else f"{outer.qualname}.", ""
        outer.bind(statement.name, "")
        # A function is no value that facts can name by its text; it is found among the functions.
        outer.bound.pop(statement.name, None)
    parent = "" if outer is walk.top else outer.qualname
    frame = Frame(sys.intern(prefix + statement.name), outer.owner, outer.receiver, statement.lineno)
    decorators = tuple(callable_use(walk, decorator) for decorator in statement.decorator_list)
    if owner:
        frame.owner, frame.receiver = owner, receiver_name(statement, decorators)
    frame.names |= header_words
    for argument in all_arguments(arguments):
        frame.locals.add(argument.arg)
    state = (walk.managers, walk.loops, walk.branch)
    walk.frame, walk.scope, walk.managers, walk.loops, walk.branch = frame, None, (), 0, ()
    block(walk, statement.body, depth + 1)
    walk.functions.append(finished(walk, frame, statement, decorators, owner, parent))
    walk.frame, walk.scope = outer, scope
    walk.managers, walk.loops, walk.branch = state
    if outer is not walk.top:
        outer.names |= frame.names


def class_(walk: Walk, statement: ast.stmt, depth: int) -> None:
    assert isinstance(statement, ast.ClassDef)
    outer_scope = walk.scope
    for decorator in statement.decorator_list:
        visit(walk, decorator, depth + 1)
    for base in statement.bases:
        visit(walk, base, depth + 1)
    for keyword in statement.keywords:
        read(walk, keyword.value, depth + 2)
    if outer_scope is not None:
        qualname = f"{outer_scope.qualname}.{statement.name}"
    elif walk.frame is walk.top:
        qualname = statement.name
    else:
        qualname = f"{walk.frame.qualname}.{statement.name}"
    if outer_scope is None:
        walk.frame.own(statement.name, bool(statement.keywords))
    scope = ClassBody(sys.intern(qualname))
    walk.classes[qualname] = scope
    walk.scope = scope
    block(walk, statement.body, depth + 1)
    walk.scope = outer_scope
    walk.order.append(
        ClassFacts(
            qualname=scope.qualname,
            row=statement.lineno,
            end_row=statement.end_lineno or statement.lineno,
            bases=tuple(base_text(base) for base in statement.bases),
            decorators=tuple(callable_use(walk, decorator) for decorator in statement.decorator_list),
            methods=tuple(scope.methods.items()),
            attrs=tuple(scope.attrs),
        )
    )


_STATEMENTS: dict[type[ast.AST], Callable[[Walk, ast.stmt, int], None]] = {
    ast.Expr: expression_statement,
    ast.Assign: assign,
    ast.AnnAssign: annotated,
    ast.AugAssign: augmented,
    ast.Return: return_,
    ast.If: if_,
    ast.For: for_,
    ast.AsyncFor: for_,
    ast.While: while_,
    ast.With: with_,
    ast.AsyncWith: with_,
    ast.FunctionDef: function,
    ast.AsyncFunctionDef: function,
    ast.ClassDef: class_,
    ast.Import: import_,
    ast.ImportFrom: import_from,
    ast.Global: global_,
    ast.Nonlocal: global_,
    ast.Match: match,
    ast.Try: try_,
    ast.Pass: nothing,
    ast.Break: nothing,
    ast.Continue: nothing,
}
if sys.version_info >= (3, 11):
    _STATEMENTS[ast.TryStar] = try_

_ENDS = frozenset({ast.Return, ast.Raise, ast.Break, ast.Continue})


def joined(
    before: tuple[CallableUse, ...], one: tuple[CallableUse, ...], other: tuple[CallableUse, ...]
) -> tuple[CallableUse, ...]:
    """The managers in force after two branches meet."""
    if one == other:
        return one
    last_one = one[-1] if len(one) >= len(before) and one != before else _NO_USE
    last_other = other[-1] if len(other) >= len(before) and other != before else _NO_USE
    if last_one == _NO_USE:
        last_one, last_other = last_other, last_one
    return (*before, CallableUse(last_one.callee, last_one.args, last_one.called, last_other, last_one.statement))


_KINDS: dict[type, AttrKind] = {
    ast.Call: AttrKind.CALL,
    **dict.fromkeys((ast.Name, ast.Attribute), AttrKind.NAME),
    **dict.fromkeys((ast.List, ast.ListComp), AttrKind.LIST),
    **dict.fromkeys((ast.Dict, ast.DictComp), AttrKind.DICT),
    **dict.fromkeys((ast.Set, ast.SetComp), AttrKind.SET),
    ast.Tuple: AttrKind.TUPLE,
    ast.Lambda: AttrKind.FUNCTION,
}
"""See ``AttrFact.kind``."""


def _is_looked_up(value: ast.expr | None) -> bool:
    """Whether a value is one of those that a display of literals holds: ``{"small": 224, "large": 336}.get(size)``."""
    table = value.func.value if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else None
    return isinstance(table, ast.Dict) and all(isinstance(each, ast.Constant) for each in table.values)


def attr_fact(name: str, value: ast.expr | None, text: str, annotation: str, method: str) -> AttrFact:
    const = literal(value) if value is not None else ""
    kind = AttrKind.CONST if const else _KINDS.get(type(value), AttrKind.OTHER)
    if _is_looked_up(value):
        kind, text = AttrKind.OTHER, ""
    element = element_text(value)
    if not text and kind is AttrKind.OTHER and isinstance(value, ast.BoolOp | ast.IfExp):
        text, element = alternative(value), name_beside_call(value)
    return AttrFact(name, kind, text, const, method, annotation, element)
