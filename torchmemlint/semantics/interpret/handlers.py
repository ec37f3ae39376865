"""What an ``except`` block does about running out of memory, read from its IR."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from torchmemlint.index.references import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.walk import names_inside, nodes_of, walk
from torchmemlint.lower.written import dotted, text_of
from torchmemlint.semantics.interpret.fallbacks import (
    RUNS,
    Place,
    calculates,
    flat,
    followed,
    heads,
    in_place_of_what_failed,
    is_given_all_of,
    makes_a_generator,
    runs_model,
    works_on_the_host,
)
from torchmemlint.semantics.interpret.tracebacks import EMPTIES, MOVES, QUIET, leaves_nothing, lets_traceback_go
from torchmemlint.semantics.mode import purpose
from torchmemlint.semantics.state import Cls, Ext, Func, Machine, OomHandler, Recovery, State, World, evaluate, memoized
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect

CLEARS = TORCH.names["clears-gradients"]
OUT_OF_MEMORY = TORCH.names["out-of-memory"]
MOVES_TO_HOST = TORCH.names["to-host"]
TO_PLACE = TORCH.names["to-place"]
HOST = TORCH.names["host"]
DETACHES = TORCH.words["detaches"]
DATA_PACKAGE = TORCH.names["data-package"]
OOM_WORDS = re.compile(
    r"out of (?:gpu |device )?memory|out_of_memory|memory exhausted|CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED|can't allocate memory",
    re.IGNORECASE,
)
HELPER = re.compile(
    r"(^|_)(is|should|check)\w*(oom|out_?of_?memory|memory)|(oom|out_?of_?memory)_?(error|exception)", re.IGNORECASE
)
CLEANS = re.compile(
    r"(clear|free|empty|release|clean)\w*(mem|cache|gpu|cuda)|(mem|cache|gpu|cuda)\w*(clear|free|clean)|cleanup|clean_up",
    re.IGNORECASE,
)
CATCHES_OOM = TORCH.words["wide-exceptions"] | {""}
"""Types wide enough to catch an out-of-memory error; by themselves they say nothing of memory."""
CALCULATES = frozenset(
    {
        Effect.KEEP, Effect.VIEW, Effect.LOSS, Effect.INPLACE, Effect.MIXED_MAX, Effect.CHECKPOINT, Effect.BACKWARD,
        Effect.AUTOGRAD_GRAD, Effect.LOAD,
    }
)  # fmt: skip
"""Effects of torch functions that may be what ran out of memory, and be tried again."""


def describe(m: Machine, handler: ir.Handler, statement: ir.Try, state: State, following: ir.Stmt | None) -> OomHandler | None:
    """The OomHandler event of an ``except`` that is about out-of-memory errors; None for any other. ``following`` is the statement
    after the whole ``try`` statement."""
    types = caught(m, handler.type, state)
    by_type = any(is_oom_type(t) for t in types)
    if not by_type and CATCHES_OOM.isdisjoint(types):
        return None
    about_error = names_of_error(handler)
    tests = [node for node in nodes_of(handler.body) if tests_message(node) and reads_error(node, about_error)]
    asked = tests or [node for node in nodes_of(handler.body) if asks_helper(node, handler.name)]
    # A handler of RuntimeError that empties the cache is about memory, whether it asks or not.
    empties = "builtins.RuntimeError" in types and any(
        isinstance(n, ir.Call) and dotted(n.func).rpartition(".")[2] == EMPTIES for n in nodes_of(handler.body)
    )
    by_words = empties or (bool(asked) and any(t in CATCHES_OOM for t in types))
    if not by_type and not by_words:
        return done_again_in_parts(m, handler, statement, types, state)
    behind = is_behind_class(m, handler, statement, state)
    if behind and not names_other_device(tests):
        return None
    body = handler.body
    if not by_type:
        body = about_memory(handler.body, verdict_names(handler.body), handler.name)
    fallbacks = beside_type(handler.body)
    gone = leaves_nothing(statement.body, body, m, state) or lets_traceback_go(handler.body)
    found = [] if gone else recoveries(body, statement.body, m, about_error, state)
    if found and all(what in CLEANUPS for _, what in found) and cleans_again(statement, following, turn_of(m)):
        found = []  # what frees nothing here is done once more where it does
    return OomHandler(
        m.site(handler.node), types,
        tuple(t.node for t in tests if isinstance(t, (ir.Compare, ir.Call)) and t.node not in fallbacks and not behind),
        always_raises(body), tuple(found), keeping(body, handler.name), only_moves(statement.body),
    )  # fmt: skip


def done_again_in_parts(
    m: Machine, handler: ir.Handler, statement: ir.Try, types: tuple[str, ...], state: State
) -> OomHandler | None:
    """The event of a handler of any error that runs the network once more on each part of what failed: whatever the error was, the
    exception holds what the whole had made. None for any other, also where all that remains of the exception is let go first."""
    if lets_traceback_go(handler.body):
        return None
    data = made_of_the_same(handler.body, statement.body, names_of_error(handler))
    in_parts = {
        inner.node
        for loop in nodes_of(handler.body)
        for target, iterable, inside in each_turn(loop)
        if names_inside(iterable) & data
        for inner in walk(inside)
        if isinstance(inner, ir.Call) and names_inside(target) & names_inside(inner.args)
    }
    if not in_parts:
        return None
    again = [
        (node, what)
        for node, what in recoveries(handler.body, statement.body, m, names_of_error(handler), state)
        if what is Recovery.RETRY and node in in_parts
    ]
    calls = {n.node: dotted(n.func) for n in nodes_of(handler.body) if isinstance(n, ir.Call)}
    each = {  # what failed was one part already
        dotted(inner.func)
        for loop in nodes_of(statement.body)
        for _, _, inside in each_turn(loop)
        for inner in walk(inside)
        if isinstance(inner, ir.Call)
    }
    again = [
        (node, what) for node, what in again if calls[node] not in each and is_shown_to_run_model(m.world, m.ref, calls[node])
    ]
    if not again or is_behind_class(m, handler, statement, state):
        return None
    return OomHandler(m.site(handler.node), types, (), False, tuple(again), -1, False, of_any_error=True)


def each_turn(node: object) -> Iterator[tuple[ir.Expr, ir.Expr, object]]:
    """Of a loop or comprehension: its variable, what it goes over, and what it does in each turn."""
    if isinstance(node, ir.For):
        yield node.target, node.iterable, node.body
    elif isinstance(node, ir.Comprehension):
        for clause in node.clauses:
            yield clause.target, clause.iterable, node.element


def is_oom_type(name: str) -> bool:
    return name in TORCH.oom_exceptions or name.rpartition(".")[2] == OUT_OF_MEMORY


CLEANUPS = frozenset(Recovery) - {
    Recovery.RETRY,
    Recovery.FALLBACK,
    Recovery.UNSEEN_FALLBACK,
    Recovery.HOST_RETRY,
    Recovery.MOVE,
}
"""What frees memory, and needs none."""


def is_behind_class(m: Machine, handler: ir.Handler, statement: ir.Try, state: State) -> bool:
    """Whether a handler above this one catches CUDA's out-of-memory errors, so that none arrives here: an exception that leaves a
    handler goes to no other of the same ``try``."""
    above = [caught(m, other.type, state) for other in statement.handlers[: statement.handlers.index(handler)]]
    return any(name in TORCH.oom_exceptions or name in CATCHES_OOM for types in above for name in types)


def names_other_device(tests: Sequence[object]) -> bool:
    """Whether a test of the message is for a device whose out-of-memory errors are plain ``RuntimeError``: words are all there is."""
    texts = [node.value for test in tests for node in walk(test) if isinstance(node, ir.Const)]
    return any(isinstance(text, str) and OTHER_DEVICES.search(text) for text in texts)


OTHER_DEVICES = re.compile(
    rf"\b({'|'.join(sorted(TORCH.words['devices-without-oom-class']))})\b|DefaultCPUAllocator", re.IGNORECASE
)
"""Devices that have no class of their own for being out of memory."""


def beside_type(body: list[ir.Stmt]) -> frozenset[int]:
    """The nodes of alternatives to a test of the class: there the words are for older releases and other libraries."""
    found: set[int] = set()
    for node in nodes_of(body):
        if isinstance(node, ir.BoolOp) and node.op == "or" and any(names_oom_class(n) for n in walk(node)):
            found |= {n.node for n in walk(node) if isinstance(n, (ir.Compare, ir.Call))}
    return frozenset(found)


def names_oom_class(node: object) -> bool:
    return (isinstance(node, ir.Attr) and node.name == OUT_OF_MEMORY) or (
        isinstance(node, ir.Const) and node.value == OUT_OF_MEMORY
    )


def names_of_error(handler: ir.Handler) -> frozenset[str]:
    """The handler's name of the exception, and what the handler makes of it (``text = str(e)``, ``kind, e, tb = sys.exc_info()``)."""
    names = {handler.name} if handler.name else set()
    for node in nodes_of(handler.body):
        if isinstance(node, ir.Assign) and reads_error(node.value, frozenset(names)):
            names |= names_inside(node.targets)
    return frozenset(names)


def reads_error(node: object, names: frozenset[str]) -> bool:
    """Whether the exception at hand is read in an expression: by one of its names, or by ``traceback`` and ``sys.exc_info``."""
    for inner in walk(node):
        if isinstance(inner, ir.Name) and inner.id in names:
            return True
        if isinstance(inner, ir.Call) and dotted(inner.func).rpartition(".")[2] in TORCH.words["reads-error"]:
            return True
    return False


def only_moves(tried: list[ir.Stmt]) -> bool:
    """Whether all that is tried is to bring something to a device."""
    calls = [n for n in nodes_of(tried) if isinstance(n, ir.Call)]
    lasts = [n.func.name if isinstance(n.func, ir.Attr) else dotted(n.func) for n in calls]
    lasts = [last for last in lasts if last not in QUIET]
    return bool(lasts) and all(last in MOVES for last in lasts)


def turn_of(m: Machine) -> list[ir.Stmt]:
    """The body of the loop of this function in which a statement stands, [] for none."""
    loop = m.loop_statements.get(m.loops[-1]) if m.loops and m.loops[-1][0] == m.frame else None
    return loop.body if loop is not None else []


def cleans_again(statement: ir.Try, following: ir.Stmt | None, turn: list[ir.Stmt]) -> bool:
    """Whether the cache is emptied (or a cleanup called) where the exception is gone: first thing of the next attempt, or of the
    loop's iteration (``turn``) in which it is made, in the ``finally``, or right after the ``try``."""
    first: list[ir.Stmt] = []
    for block in (statement.body, turn):
        for inner in block:
            if not isinstance(inner, ir.ExprStmt) or not isinstance(inner.value, ir.Call):
                break
            first.append(inner)
    after = [following] if isinstance(following, ir.ExprStmt) else []
    return any(
        isinstance(inner, ir.ExprStmt) and isinstance(inner.value, ir.Call) and frees(inner.value)
        for inner in [*first, *statement.final, *after]
    )


def frees(call: ir.Call) -> bool:
    last = dotted(call.func).rpartition(".")[2]
    return last == EMPTIES or bool(CLEANS.search(last))


def verdict_names(body: list[ir.Stmt]) -> frozenset[str]:
    """Names that hold the answer to "is this about memory?" (``oom = "out of memory" in str(e)``)."""
    names = set()
    for statement in body:
        if isinstance(statement, ir.Assign) and any(tests_message(n) for n in walk(statement.value)):
            names |= {t.id for t in statement.targets if isinstance(t, ir.Name)}
    return frozenset(names)


def about_memory(body: list[ir.Stmt], names: frozenset[str], error: str | None) -> list[ir.Stmt]:
    """The statements of a handler that run when the error is one of memory: what stands before and after the test, and its
    branch for "yes"."""
    out: list[ir.Stmt] = []
    for statement in body:
        sign = asks(statement.test, names, error) if isinstance(statement, ir.If) else None
        if isinstance(statement, ir.If) and sign is not None:
            yes = statement.then if sign else statement.orelse
            out += about_memory(yes, names, error)
            if always_leaves(yes):
                return out
        elif isinstance(statement, ir.If) and mentions(statement, names, error):
            out += about_memory(statement.then, names, error) + about_memory(statement.orelse, names, error)
        else:
            out.append(statement)
    return out


def asks(test: ir.Expr, names: frozenset[str], error: str | None) -> bool | None:
    """True for a test that holds for memory errors, False for one that does not, None for a test of something else."""
    match test:
        case ir.Unary(op="not"):
            inner = asks(test.value, names, error)
            return None if inner is None else not inner
        case ir.BoolOp():
            left, right = asks(test.left, names, error), asks(test.right, names, error)
            return left if left is not None else right
        case ir.Name():
            return True if test.id in names else None
        case ir.Compare() if test.ops[0] == "not in" and tests_message(test):
            return False
        case _:
            found = any(tests_message(n) or asks_helper(n, error) for n in walk(test))
            return True if found else None


def mentions(statement: ir.If, names: frozenset[str], error: str | None) -> bool:
    return any(
        isinstance(n, ir.If) and asks(n.test, names, error) is not None for n in nodes_of([*statement.then, *statement.orelse])
    )


def asks_helper(node: object, error: str | None) -> bool:
    """``is_oom_error(e)``: a helper that is named for the question and is handed the exception."""
    if not isinstance(node, ir.Call) or error is None:
        return False
    last = dotted(node.func).rpartition(".")[2]
    return bool(HELPER.search(last)) and any(isinstance(a.value, ir.Name) and a.value.id == error for a in node.args)


def caught(m: Machine, expr: ir.Expr | None, state: State) -> tuple[str, ...]:
    """Absolute names of the types that a handler catches; "" for a bare ``except``."""
    if expr is None:
        return ("",)
    parts = expr.items if isinstance(expr, ir.Sequence) else [expr]
    names = []
    for part in parts:
        found = ""
        for atom in evaluate(m, part, state):
            if isinstance(atom, Ext):
                found = atom.name
            elif isinstance(atom, Cls):
                found = f"project.{atom.qualname}"
        names.append(found or dotted(part) or "?")
    return tuple(names)


def tests_message(node: object) -> bool:
    """``"out of memory" in str(e)`` and its kin."""
    if isinstance(node, ir.Compare) and node.ops[0] in ("in", "not in"):
        left = node.left
        return isinstance(left, ir.Const) and isinstance(left.value, str) and bool(OOM_WORDS.search(left.value))
    if isinstance(node, ir.Call) and isinstance(node.func, ir.Attr) and node.func.name in TORCH.words["finds-in-text"]:
        return any(
            isinstance(a.value, ir.Const) and isinstance(a.value.value, str) and bool(OOM_WORDS.search(a.value.value))
            for a in node.args
        )
    return False


def recoveries(
    body: list[ir.Stmt], tried: list[ir.Stmt], m: Machine, about_error: frozenset[str], state: State
) -> list[tuple[int, Recovery]]:
    """Statements inside the handler that need memory or mean to free it, in order."""
    attempted, first = attempts(tried, m)
    moving = only_moves(tried)
    data = made_of_the_same(body, tried, about_error)
    out: list[tuple[int, Recovery]] = []
    own = m.ref.qualname.rpartition(".")[2]
    places = in_place_of_what_failed(body, tried)
    on_host = {
        name: names_inside(node.value)
        for node in nodes_of(body)
        if isinstance(node, ir.Assign) and moves_to_host(node.value)
        for name in names_inside(node.targets)
    }
    for node in nodes_of(body):
        if isinstance(node, ir.Delete):
            if any(isinstance(target, ir.Name) for target in node.targets):
                out.append((node.node, Recovery.DELETE))
        elif isinstance(node, ir.Call):
            name = dotted(node.func)
            last = name.rpartition(".")[2]
            if not name or last in QUIET or (last in DETACHES and not node.args):
                continue
            if makes_a_generator(m.world, m.ref, name):
                continue
            if (freed := freeing(node, name)) is not None:
                out.append((node.node, freed))
            elif last == own or (
                name in attempted
                and (moving or last not in MOVES)
                and not reads_error(node.args, about_error)
                and on_the_same(node, data, m, state)
                and may_calculate(node.func, m, state)
                and ((name in first and repeats(node, tried, on_host)) or may_calculate_there(m.world, m.ref, name))
            ):
                hosted = moves_to_host(node.args) or not names_inside(node.args).isdisjoint(on_host)
                out.append((node.node, Recovery.HOST_RETRY if hosted else Recovery.RETRY))
            elif last not in MOVES and not reads_error(node.args, about_error) and on_the_same(node, data, m, state):
                instead = does_the_work(node, name, places, m, state)
                if instead is not None:
                    hosted = moves_to_host(node.args) or not names_inside(node.args).isdisjoint(on_host)
                    out.append((node.node, Recovery.HOST_RETRY if hosted else instead))
    return out


def freeing(call: ir.Call, name: str) -> Recovery | None:
    """What a call does that frees memory by its name, or brings something to the host."""
    last = name.rpartition(".")[2]
    if last == EMPTIES:
        return Recovery.EMPTY_CACHE
    if name == "gc.collect":
        return Recovery.COLLECT
    if last == CLEARS:
        return Recovery.ZERO_GRAD
    if CLEANS.search(last):
        return Recovery.CLEANUP
    if last == MOVES_TO_HOST or (last == TO_PLACE and call.args and text_of(call.args[0].value) in TO_HOST):
        return Recovery.MOVE
    return None


def attempts(tried: list[ir.Stmt], m: Machine) -> tuple[set[str], set[str]]:
    """What a ``try`` block calls, by its text, as far as it may be the step that failed; and those calls that no call which runs
    a model goes before. Behind such a call only what gives a result counts: the rest only records that it went well."""
    found: set[str] = set()
    first: set[str] = set()
    ran = False
    for statement in flat(tried):
        calls = {dotted(n.func): n for n in heads(statement) if isinstance(n, ir.Call)}
        names = [name for name in calls if name and name.rpartition(".")[2] not in QUIET]
        running = {name for name in names if surely_runs_model(m, name)}
        is_statement = isinstance(statement, ir.ExprStmt)
        if not ran:
            first |= set(names)
        found |= running if ran and is_statement else set(names)
        ran = ran or bool(running)
    return found, first


def surely_runs_model(m: Machine, callee: str) -> bool:
    """Whether a call in the root runs a model by its name, or by what the project shows of it."""
    last = callee.rpartition(".")[2]
    if last in RUNS or purpose.may_be_network(callee):
        return True
    return any(runs_model(m.world, ref) for ref in followed(m.world, m.ref, callee))


@memoized
def is_shown_to_run_model(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether a call in a function, by its text, runs a network by what it is called, or by what is visible of the function."""
    refs = followed(world, ref, text)
    return any(runs_model(world, each) for each in refs) if refs else purpose.may_be_network(text)


def does_the_work(call: ir.Call, name: str, places: Mapping[int, Place], m: Machine, state: State) -> Recovery | None:
    """What a call is that does in another way what was tried: of a function of the project, which calculates what takes the place of
    the failed result, or runs a network on all that another was to run on for its effect; or of a function that is not visible,
    which is given all that the failed call was given and whose result goes to the very same place. None for any other."""
    place = places.get(call.node)
    if place is None:
        return None
    refs = followed(m.world, m.ref, name)
    code = {n for n in names_inside([call.args, *(r.args for r in place.rivals)]) if is_code(n, m, state)}
    given = names_inside(call.args) - code
    given_all = is_given_all_of(call, place.rivals, code)
    if not refs:
        unseen = given and given_all and not place.is_statement and may_calculate(call.func, m, state)
        return Recovery.UNSEEN_FALLBACK if unseen else None
    if not (given and given_all if place.is_statement else given or given_all):
        return None
    if not any((runs_model if place.is_statement else calculates)(m.world, ref) for ref in refs):
        return None
    return Recovery.HOST_RETRY if all(works_on_the_host(m.world, ref) for ref in refs) else Recovery.FALLBACK


def moves_to_host(args: object) -> bool:
    """Whether an argument is brought to the host first, or says that the call is to run there."""
    for node in walk(args):
        if isinstance(node, ir.Call) and isinstance(node.func, ir.Attr) and node.func.name == MOVES_TO_HOST:
            return True
        if isinstance(node, (ir.Const, ir.Call)) and text_of(node) in TO_HOST:
            return True
    return False


TO_HOST = {repr(HOST), *(f"{maker}({HOST!r})" for maker in TORCH.words["makes-devices"])}


def made_of_the_same(body: list[ir.Stmt], tried: list[ir.Stmt], about_error: frozenset[str]) -> set[str]:
    """Names of what was tried, and those that a handler gives to parts of it (``for half in batch.chunk(2)``); not what the
    handler creates to report the error (``answer = {"text": str(e)}``)."""
    known = names_inside(tried)
    for node in nodes_of(body):
        if isinstance(node, ir.Assign) and (reads_error(node.value, about_error) or is_report(node.value, known)):
            known -= names_inside(node.targets)
        elif isinstance(node, ir.Assign) and names_inside(node.value) & known:
            known |= names_inside(node.targets)
        elif isinstance(node, (ir.For, ir.CompClause)) and names_inside(node.iterable) & known:
            known |= names_inside(node.target)
    return known


def repeats(call: ir.Call, tried: list[ir.Stmt], copies: Mapping[str, set[str]]) -> bool:
    """Whether a call is one of those that were tried, done again with much of the same, or with copies of it: whatever it is, it failed
    there."""
    words = names_inside(call.args)
    words = words.union(*(copies[name] for name in words & copies.keys()))
    return any(
        isinstance(n, ir.Call) and dotted(n.func) == dotted(call.func) and len(names_inside(n.args) & words) >= SAME_WORDS
        for n in nodes_of(tried)
    )


SAME_WORDS = 3
"""Names that two calls share at the least to be the same again: ``halve(batch_size)`` in both places is bookkeeping."""


def on_the_same(call: ir.Call, data: set[str], m: Machine, state: State) -> bool:
    """Whether a call is handed something that the failed one could have been handed, or nothing but numbers: a dict of words
    for a queue (``events.put({"kind": "error"})``) has nothing to do with the failed step."""
    names = names_inside(call.args)
    if not names:
        return not any(isinstance(n, (ir.DictDisplay, ir.FormattedString)) or is_text(n) for n in walk(call.args))
    return any(name in data and not is_code(name, m, state) for name in names)


def is_text(node: object) -> bool:
    return isinstance(node, ir.Const) and isinstance(node.value, str)


def is_report(value: ir.Expr, known: set[str]) -> bool:
    """Whether a value is words, or a display with words, in which nothing stands of what was tried."""
    worded = is_text(value) or isinstance(value, (ir.DictDisplay, ir.FormattedString))
    return worded and not names_inside(value) & known


def is_code(name: str, m: Machine, state: State) -> bool:
    """Whether a name stands for a module, function or class that is imported or defined."""
    return all(isinstance(atom, (Ext, Cls, Func)) for atom in evaluate(m, ir.Name(-1, name), state))


def may_calculate(callee: ir.Expr, m: Machine, state: State) -> bool:
    """Whether a callee may be what ran out of memory: not the standard library, and no torch function that only wraps or makes
    something (``nn.Parameter``), and nothing that brings the data (``DataLoader``)."""
    if "(" in dotted(callee):
        # Evaluating a callee that itself calls would run that call twice: what is asked is who makes the object.
        maker: ir.Expr = callee
        while isinstance(maker, (ir.Attr, ir.Call, ir.Subscript)):
            if isinstance(maker, ir.Attr) and "(" not in dotted(maker):
                break
            maker = maker.func if isinstance(maker, ir.Call) else maker.value
        made = evaluate(m, maker, state) if isinstance(maker, (ir.Name, ir.Attr)) else None
        return not made or not all(
            isinstance(atom, Ext) and atom.name.partition(".")[0] in sys.stdlib_module_names for atom in made
        )
    for atom in evaluate(m, callee, state):
        if isinstance(atom, Ext):
            root = atom.name.partition(".")[0]
            effect = TORCH.function_effect(atom.name)
            if root in sys.stdlib_module_names or (effect is not None and effect not in CALCULATES):
                return False
            if root == "torch" and effect is None and TORCH.class_kind(atom.name) is None:
                return False
            if atom.name.startswith(f"{DATA_PACKAGE}."):
                return False
    return True


@memoized
def may_calculate_there(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether a call in a function, by its text, may run a model or make tensors, as far as the project shows: bookkeeping that the
    ``try`` block does as well (``halve(batch_size)``) is no retry. What is not visible may."""
    refs = followed(world, ref, text)
    return not refs or any(calculates(world, each) for each in refs)


def keeping(body: list[ir.Stmt], name: str | None) -> int:
    """Node of a statement that keeps the exception object beyond the handler, -1 for none."""
    if not name:
        return -1
    for node in nodes_of(body):
        if isinstance(node, ir.Assign):
            kept = node.value.items if isinstance(node.value, ir.Sequence) else [node.value]
            if any(isinstance(item, ir.Name) and item.id == name for item in kept):
                return node.node
        if isinstance(node, ir.Call) and isinstance(node.func, ir.Attr) and node.func.name in TORCH.words["keeps-one"]:
            if any(isinstance(a.value, ir.Name) and a.value.id == name for a in node.args):
                return node.node
    return -1


def always_leaves(body: list[ir.Stmt]) -> bool:
    """Whether every path through a block ends in raise, return, break or continue."""
    return ends_by(lambda last: isinstance(last, (ir.Raise, ir.Return, ir.Break, ir.Continue)), body)


def ends_by(leaves: Callable[[ir.Stmt], bool], body: list[ir.Stmt]) -> bool:
    """Whether every path through a block ends in such a statement."""
    last = body[-1] if body else None
    if isinstance(last, ir.If):
        return ends_by(leaves, last.then) and ends_by(leaves, last.orelse)
    return last is not None and leaves(last)


def always_raises(body: list[ir.Stmt]) -> bool:
    """Whether every path through a block ends in ``raise``, or ends the process."""

    def raises(last: ir.Stmt) -> bool:
        call = last.value if isinstance(last, ir.ExprStmt) else None
        return isinstance(last, ir.Raise) or (isinstance(call, ir.Call) and dotted(call.func) in TORCH.words["ends-process"])

    return ends_by(raises, body)
