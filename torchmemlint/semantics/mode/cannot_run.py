"""Why a place of the code is never reached, or raises before it is: certain, or no answer at all."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import NamedTuple

from torchmemlint.index.conditions import truth, value_of
from torchmemlint.index.edges import Caller
from torchmemlint.index.fact_words import AttrKind
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.walk import everything, nodes_of
from torchmemlint.lower.ways import evaluated, parts_of, rest_of_turn, way_to
from torchmemlint.lower.written import dotted, short
from torchmemlint.semantics.mode.removed_calls import why_dead
from torchmemlint.semantics.state import MODULE, World, compare_literals, memoized, memoized_or, memoized_with_code
from torchmemlint.torch_facts import TORCH

OLD_BUILTINS = TORCH.words["builtins-of-python-2"]
OLD_PYTHON, OLD_TORCH = TORCH.words["removed-from-python"], TORCH.words["removed-from-torch"]
DEVICE = TORCH.names["device-class"]
RESOLVED, CALLERS, NAME = "resolved names", "all callers", "a user's name"
WORDS = {
    "unused-file": (CALLERS, "nothing in the project imports or runs this file"),
    "unused-function": (CALLERS, "nothing in the project calls this function"),
    "idle": (CALLERS, "nothing in the project uses `{}`"),
    "in-a-test": (NAME, "it is part of a unit test"),
    "by-a-constant": (RESOLVED, "it is never reached: `{}` is always {}"),
    "unfit-call": (RESOLVED, "it cannot run: the call of `{}(…)` does not fit its parameters"),
    "raising-call": (RESOLVED, "it cannot run: `{}(…)` always raises"),
    "no-name": (RESOLVED, "it cannot run: nothing defines `{}`, which it reads"),
    "no-attribute": (RESOLVED, "it cannot run: nothing defines `{}`, which it reads"),
    "no-import": (RESOLVED, "it cannot run: `{}` is imported, which is not there"),
    "old-python": (RESOLVED, "written for Python 2, which had `{}`"),
    "old-torch": (RESOLVED, "written for torch before 1.0, which had `{}`"),
}
"""How each reason is known, and what it says."""


class Reason(NamedTuple):
    """``words`` say it behind a semicolon: "nothing in the project calls this function"."""

    why: str
    known_by: str
    words: str


MAY_RAISE = ir.Name | ir.Attr | ir.Call | ir.ImportStmt
Place = tuple[FunctionRef, int]  # a node of the IR of an outermost function, or of a module


def _reason(why: str, *texts: str) -> Reason:
    known_by, words = WORDS[why]
    return Reason(why, known_by, words.format(*map(short, texts)))


def why_not_run(world: World, root: FunctionRef, places: Iterable[Place]) -> Reason | None:
    """Why nothing but tests runs a function, or no run of it comes to the last of these places, each of which is a call that leads to the next;
    None where one may."""
    project, outermost = world.project, world.outermost(root)
    if project.is_unused_file(root.path):
        return _reason("unused-file")
    if world.hook(root) is None and (reason := _why_not_entered(world, outermost)):
        return reason
    if project.is_test(root):
        return _reason("in-a-test")
    if project.is_idle(outermost):
        return _reason("idle", outermost.qualname)
    if words := why_dead(world, root):
        return Reason("old-torch", RESOLVED, words)
    if reason := _why_not_imported(world, root.path):
        return reason
    for place in places:
        if reason := _why_not_come_to(world, *place):
            return reason
    return None


def _why_not_imported(world: World, path: str) -> Reason | None:
    """Why a file's own statements raise before its functions are called."""
    return _not_there(world.project.missing_import(path))


def _not_there(missing: str) -> Reason | None:
    return _reason(_old(missing) or "no-import", missing) if missing else None


@memoized_or(None)
def _why_not_entered(world: World, ref: FunctionRef) -> Reason | None:
    """Why no run comes to a call of a function, of which all users are visible: there is none, or each is one that no run comes to, or
    that raises."""
    project, name = world.project, ref.qualname.rpartition(".")[2]
    if name in ("main", MODULE) or not project.has_visible_callers(ref):
        return None
    callers = [caller for caller in project.callers(ref).calls if caller.ref != ref]
    imported = "." not in ref.qualname and project.is_imported_by_name(name)
    if not callers and not imported and project.has_visible_users_alone(ref):
        return _reason("unused-function")
    return _of_all(_why_not_called(world, caller) for caller in callers)


def _why_not_called(world: World, caller: Caller) -> Reason | None:
    outermost, callee = world.outermost(caller.ref), caller.call.callee
    if reason := _why_not_imported(world, outermost.path):
        return reason
    given = [arg.keyword for arg in caller.call.args]
    if world.project.does_not_fit(caller.ref.path, caller.ref.qualname, callee, *given):
        return _reason("unfit-call", callee)
    nodes = everything(world.body(outermost))
    calls = [each.node for each in nodes if isinstance(each, ir.Call) and dotted(each.func) == callee]
    if reason := _of_all(_why_not_come_to(world, outermost, node) for node in calls):
        return reason
    return _why_not_entered(world, outermost)


def _of_all(reasons: Iterable[Reason | None]) -> Reason | None:
    """One of the reasons, the same whatever their order, where there is one for each."""
    known = [*reasons]
    return max(reason for reason in known if reason is not None) if known and all(known) else None


def _old(name: str) -> str:
    return "old-python" if name in OLD_PYTHON or name in OLD_BUILTINS else "old-torch" if name in OLD_TORCH else ""


@memoized
def _why_not_come_to(world: World, ref: FunctionRef, node: int) -> Reason | None:
    """Why no run comes to a place of a function once it has been called."""
    found = world.ir_of(ref)
    if found is None or ref.path.endswith(".ipynb") or world.project.modules[ref.path].recovered:
        return None  # statements may be missing, or run in another order
    obstacles = _obstacles(world, ref)
    rest = rest_of_turn(found.body, node, world.hook(ref) is not None)  # what ends the first turn leaves no second one
    node = rest[-1].node if rest else node
    for expr, value in way_to(found.body, node) if obstacles.raising or obstacles.decided else ():
        if value is None:
            reason = obstacles.raising.get(id(expr))
        else:
            comes_out, reason = obstacles.decided.get(id(expr), (value, None))
            reason = None if comes_out is value else reason
        if reason is not None:
            return reason
    return None


class _Obstacles(NamedTuple):
    """By the ``id`` of an expression: why it raises whatever its names hold, or how a test comes out in every run, and why."""

    raising: dict[int, Reason]
    decided: dict[int, tuple[bool, Reason]]


@memoized_with_code
def _obstacles(world: World, ref: FunctionRef) -> _Obstacles:
    """Found once for all places in a function: a long one has hundreds, each behind thousands of statements."""
    obstacles = _Obstacles({}, {})
    function = world.ir_of(ref)
    assert function is not None
    for expr, is_test in evaluated(function.body):
        if is_test and not isinstance(expr, ir.ImportStmt) and (known := _decided(world, ref, expr)) is not None:
            obstacles.decided[id(expr)] = known[0], _reason("by-a-constant", *known[1:])
        for part in parts_of(expr):
            if isinstance(part, MAY_RAISE) and (reason := _why_raises(world, ref, function, part)):
                obstacles.raising.setdefault(id(expr), reason)
    return obstacles


def _decided(world: World, ref: FunctionRef, test: ir.Expr) -> tuple[bool, str, str] | None:
    """How a test comes out in every run, the name that decides it, and its constant, as it is written; None where that is not known."""
    match test:
        case ir.Unary(op="not"):
            found = _decided(world, ref, test.value)
            return None if found is None else (not found[0], *found[1:])
        case ir.BoolOp():
            sides = [_decided(world, ref, side) for side in (test.left, test.right)]
            shuts = next((side for side in sides if side is not None and side[0] is (test.op == "or")), None)
            return shuts or (sides[0] if all(sides) else None)
        case ir.Compare(ops=[op], comparators=[ir.Const(value=other)]):
            text = dotted(test.left)
            if op in ("==", "!=") and isinstance(other, str) and _is_device(world, ref, text):
                return op == "!=", text, "a torch.device, which equals no string"
            const = _constant(world, ref, text)
            holds = compare_literals(op, value_of(const), other) if const else None
            return None if holds is None else (holds, text, const)
    text = dotted(test)
    const = _constant(world, ref, text)
    return (truth(const), text, const) if const else None


def _constant(world: World, ref: FunctionRef, text: str) -> str:
    return world.project.constant(ref.path, ref.qualname, text) if text and text.count(".") < 2 and "(" not in text else ""


def _is_device(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether all that a name, or an attribute of the object, is bound to is made by ``torch.device``. A string never equals that: measured
    with torch 2.13, ``torch.device("cuda") == "cuda"`` is False."""
    facts = world.facts(ref)
    made = {value for name, value in (*facts.bound, *facts.rebound) if name == text}
    if facts.owner and text.startswith("self."):
        held = world.project.attr(ClassRef(ref.path, facts.owner), text.removeprefix("self."))
        made = {fact.value if fact.kind is AttrKind.CALL else "" for fact, _ in held}
    named = [value.removesuffix("()") for value in made if value.endswith("()")]
    return 0 < len(made) == len(named) and all(world.project.resolve(ref.path, name, ref.qualname) == DEVICE for name in named)


def _why_raises(world: World, ref: FunctionRef, function: ir.Function, part: MAY_RAISE) -> Reason | None:
    """Why evaluating an expression raises whatever its names hold."""
    project, (path, qualname, _) = world.project, ref
    match part:
        case ir.Name(id=name) if name not in function.locals and project.is_unbound(path, name):
            if _old(name):
                return _reason("old-python", name)
            return _reason("no-name", name) if project.is_part_of_a_program(path) else None
        case ir.Attr() if (text := dotted(part)).count(".") == 1 and "(" not in text:
            absolute, module = f"{project.resolve(path, text, qualname)}", text.partition(".")[0]
            if absolute in OLD_PYTHON and project.imported(path, module) == absolute.partition(".")[0]:
                return _reason("old-python", absolute)
            lacks = project.lacks(path, qualname, text) or _lacks_option(world, ref, text)
            return _reason("no-attribute", text) if lacks else None
        case ir.Call() if (text := dotted(part.func)) and "(" not in text:
            given = [arg.star or arg.keyword or "" for arg in part.args]
            if project.does_not_fit(path, qualname, text, *given):
                return _reason("unfit-call", text)
            return _reason("raising-call", text) if _always_raises(world, ref, text) else None
        case ir.ImportStmt(bindings=bindings):
            return _not_there(next(filter(None, (project.not_there(path, *binding) for binding in bindings)), ""))
    return None


def _always_raises(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether each function that a call can reach ends in an error."""
    project = world.project
    found = project.callees(ref.path, ref.qualname, text)
    owners = {ClassRef(each.path, owner) for each in found.refs if (owner := each.qualname.rpartition(".")[0])}
    known = found.certain and bool(found.refs) and all(_ends_in_error(world, each) for each in found.refs)
    return known and all(project.is_made_as_it_is(owner) for owner in sorted(owners))


@memoized
def _ends_in_error(world: World, ref: FunctionRef) -> bool:
    """Whether every call of a function ends in the first ``raise`` of its own block."""
    found = world.ir_of(ref)
    if found is None or found.is_generator:
        return False
    before = [*takewhile(lambda each: not isinstance(each, ir.Raise), found.body)]
    return len(before) < len(found.body) and not any(isinstance(node, ir.Return) for node in nodes_of(before))


def _lacks_option(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether ``args.name`` raises AttributeError: no parser of the project has such an option, and nothing stores one."""
    name, _, option = text.partition(".")
    known = _options(world, ref.path)
    if known is None or option in known or option[0] == "_":
        return False
    return world.project.is_option_alone(ref.path, ref.qualname, name, option)


@memoized
def _options(world: World, path: str) -> frozenset[str] | None:
    return world.project.options(path)
