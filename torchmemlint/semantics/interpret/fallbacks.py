"""What an ``except`` block runs in place of what failed: the same work, done in another way by another function."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from torchmemlint.index.facts import CallFact
from torchmemlint.index.references import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.walk import FIELDS, everything, names_inside, nodes_of, walk
from torchmemlint.lower.written import dotted
from torchmemlint.semantics.mode import purpose
from torchmemlint.semantics.state import MODULE, World, memoized
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect

RUNS = (TORCH.words["trains-something"] | {TORCH.names["forward"]}) - {TORCH.names["clears-gradients"]}
"""Words of a function that runs a model."""
CALCULATES = frozenset({Effect.KEEP, Effect.LOSS, Effect.MIXED_MAX, Effect.CHECKPOINT})
"""Effects of what makes a tensor out of tensors."""
OF_CONTAINERS = frozenset(name for kind in (dict, list, set, str) for name in dir(kind))
CALCULATING_METHODS = (
    frozenset(name for name, effect in TORCH.methods.items() if effect in CALCULATES)
    - OF_CONTAINERS
    - TORCH.words["not-tensors-alone"]
    - TORCH.words["container-methods"]
    - TORCH.words["reads-or-reports"]
)
"""Methods that make a tensor. Arrays have some of them, but what ran out of device memory was given tensors."""
MOVES = frozenset({TORCH.names["to-host"], TORCH.names["to-place"]})
STATEMENTS = (
    ir.ExprStmt, ir.Assign, ir.AugAssign, ir.Declare, ir.If, ir.For, ir.While, ir.Try, ir.With, ir.Return, ir.Raise, ir.Delete,
)  # fmt: skip
MAX_DEPTH = 2
"""How far calls of functions of the project are followed."""


def flat(body: list[ir.Stmt]) -> Iterator[ir.Stmt]:
    """Every statement of a block, in text order, those inside others after their heads."""
    for node in nodes_of(body):
        if isinstance(node, STATEMENTS):
            yield node


def heads(statement: ir.Stmt) -> Iterator[object]:
    """The expressions of a statement, without the statements inside it."""
    for name in FIELDS[type(statement)]:
        part = getattr(statement, name)
        if not (isinstance(part, list) and part and isinstance(part[0], (*STATEMENTS, ir.Handler, ir.MatchCase))):
            yield from walk(part)


class Place(NamedTuple):
    """Where a call of a handler puts what it makes. ``rivals``: the calls that were to make what stands in the very same place;
    ``is_statement``: it is called for its effect, and so are they."""

    rivals: list[ir.Call]
    is_statement: bool = False


def in_place_of_what_failed(body: list[ir.Stmt], tried: list[ir.Stmt]) -> dict[int, Place]:
    """The calls of a handler that make what the rest of the program gets instead of what was tried, by node: what is returned, put
    where the ``try`` block puts its result, or read only behind the handler; what is made for a message is none of them."""
    rivals: dict[str, list[ir.Call]] = {}
    effects: list[ir.Call] = []
    for statement in flat(tried):
        for place in places_of(statement):
            rivals.setdefault(place, []).extend(calls_in(value_of(statement)))
        if isinstance(statement, ir.ExprStmt) and isinstance(statement.value, ir.Call):
            effects.append(statement.value)
    read = {n.id for n in nodes_of(body) if isinstance(n, ir.Name)} - bound_only(body)
    found: dict[int, Place] = {}
    wanted: set[str] = set()
    for statement in reversed([*flat(body)]):  # what is read below is bound above
        mine = places_of(statement)
        same = Place([call for place in sorted(mine & rivals.keys()) for call in rivals[place]])
        behind = isinstance(statement, ir.Assign) and bool(mine) and not mine & read
        if behind or RETURNED in mine or mine & (wanted | rivals.keys()):
            wanted |= names_inside(value_of(statement))
            found |= {call.node: same for call in calls_in(value_of(statement))}
        elif isinstance(statement, ir.ExprStmt) and isinstance(statement.value, ir.Call):
            found[statement.value.node] = Place(effects, is_statement=True)
    return found


def calls_in(part: object) -> list[ir.Call]:
    return [n for n in walk(part) if isinstance(n, ir.Call)]


RETURNED = "return"
"""The place of what a function gives; no expression is spelled so."""


def places_of(statement: ir.Stmt) -> set[str]:
    """Where a statement puts its value, as texts; the container's method for one that is called for that (``parts.append(x)``)."""
    match statement:
        case ir.Return():
            return {RETURNED} if statement.value is not None else set()
        case ir.Assign():
            return {
                dotted(t) for each in statement.targets for t in (each.items if isinstance(each, ir.Sequence) else [each])
            } - {""}
        case ir.AugAssign():
            return {dotted(statement.target)} - {""}
        case ir.ExprStmt(value=ir.Yield()):
            return {RETURNED}
        case ir.ExprStmt(value=ir.Call(func=ir.Attr(name=name) as func)) if name in TORCH.words["keeps-one"]:
            return {dotted(func)} - {""}
        case _:
            return set()


def value_of(statement: ir.Stmt) -> object:
    match statement:
        case ir.Return() | ir.Assign() | ir.AugAssign():
            return statement.value
        case ir.ExprStmt(value=ir.Call() as call):
            return call.args
        case ir.ExprStmt():
            return statement.value
        case _:
            return ()


def bound_only(body: list[ir.Stmt]) -> set[str]:
    """Names that are targets in a block, and nothing else there."""
    targets = [n for n in nodes_of(body) if isinstance(n, ir.Assign)]
    bound = [name.id for each in targets for t in each.targets for name in walk(t) if isinstance(name, ir.Name)]
    every = [n.id for n in nodes_of(body) if isinstance(n, ir.Name)]
    return {name for name in bound if bound.count(name) == every.count(name)}


def is_given_all_of(call: ir.Call, rivals: Sequence[ir.Call], code: set[str]) -> bool:
    """Whether a call is given all that another one is given, beside names of ``code``; nothing where that is given nothing."""
    given = names_inside(call.args) - code
    wanted = [names_inside(rival.args) - code for rival in rivals]
    return any(names <= given if names else not given for names in wanted)


@memoized
def calculates(world: World, ref: FunctionRef) -> bool:
    """Whether a function makes tensors out of tensors, or runs a network, as far as the project shows."""
    return any(
        facts_run(world, each)
        or any(makes_tensors(world, each, call) for call in world.facts(each).calls)
        or multiplies(world, each)
        for each in reached(world, ref)
    )


@memoized
def runs_model(world: World, ref: FunctionRef) -> bool:
    """Whether a function runs a network, or trains one, as far as the project shows."""
    return any(facts_run(world, each) for each in reached(world, ref))


def facts_run(world: World, ref: FunctionRef) -> bool:
    facts = world.facts(ref)
    return bool(facts.names & RUNS) or any(purpose.may_be_network(call.callee) for call in facts.calls)


def reached(world: World, ref: FunctionRef) -> Sequence[FunctionRef]:
    """A function, and what it surely calls, so far as calls are followed."""
    found = [ref]
    level = [ref]
    for _ in range(MAX_DEPTH):
        below: list[FunctionRef] = []
        for each in level:
            for call in world.facts(each).calls:
                callees = world.project.callees(each.path, each.qualname, call.callee, *call.keywords)
                below += [inner for inner in callees.refs if callees.certain and inner not in found and inner not in below]
        found += below
        level = below
    return found


def makes_tensors(world: World, ref: FunctionRef, call: CallFact) -> bool:
    """Whether a call surely makes a tensor out of another: a function or method of torch that calculates."""
    outside = world.project.outside(ref.path, ref.qualname, call.callee)
    if outside is not None:
        return TORCH.function_effect(outside) in CALCULATES
    receiver, _, last = call.callee.rpartition(".")
    return bool(receiver) and last in CALCULATING_METHODS


def multiplies(world: World, ref: FunctionRef) -> bool:
    """Whether a function that is in no other multiplies matrices by the operator, which facts of calls do not tell."""
    return ref.qualname != MODULE and any(isinstance(n, ir.Binary) and n.op == "@" for n in everything(world.body(ref)))


@memoized
def works_on_the_host(world: World, ref: FunctionRef) -> bool:
    """Whether a function brings what it is given to the host before anything else is made of it."""
    facts = world.facts(ref)
    params = {param.name for param in facts.params}
    for call in facts.calls:
        receiver, _, last = call.callee.rpartition(".")
        if last in MOVES and re.split(r"\W", receiver)[0] in params:
            return last == TORCH.names["to-host"] or any(arg.const == repr(TORCH.names["host"]) for arg in call.args)
    return False


@memoized
def followed(world: World, ref: FunctionRef, text: str) -> tuple[FunctionRef, ...]:
    """The functions of the project that a call in a function, by its text, surely reaches; none where that is not visible."""
    call = next((c for c in world.facts(ref).calls if c.callee == text), None)
    callees = world.project.callees(ref.path, ref.qualname, text, *call.keywords) if call is not None else None
    return callees.refs if callees is not None and callees.certain else ()


@memoized
def makes_a_generator(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether a call in a function, by its text, only makes a generator, and runs nothing of the function yet."""
    refs = followed(world, ref, text)
    return bool(refs) and all(world.header(each).is_generator for each in refs)
