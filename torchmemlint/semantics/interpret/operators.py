"""Operators: the result depends on what its operands are attached to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from torchmemlint.semantics.state import (
    CERTAIN_KINDS,
    CONTAINERS,
    ELEMENTS,
    EMPTY,
    GUESSED,
    LOGITS,
    MARK_KINDS,
    NOTHING,
    PLAIN,
    SCORES,
    TURNED,
    UNKNOWN,
    WEIGHTS,
    Atom,
    Attention,
    Const,
    GraphKind,
    Kind,
    Machine,
    Mode,
    Obj,
    Plain,
    RecordFlag,
    SinkKind,
    State,
    Tensor,
    Tuple,
    Unknown,
    Value,
    hints_of,
    join,
    join_all,
    min_flags,
    only_const,
    tensor,
    unknown,
    with_flags,
)
from torchmemlint.torch_facts import TORCH

PRODUCTS = TORCH.words["products"] | {"@"}
KEEPS = TORCH.words["keeps-scores"] | {"*", "+", "-", "/"}
MIXES = -1
"""The product of weights and values: no role of its own."""


def role(operation: str, operands: Sequence[Value], is_parameter: Callable[[Value], bool]) -> int:
    """The flags that an operation's result has as a step of attention, ``MIXES`` for its last step.

    ``q @ k.transpose(-2, -1)`` are scores; scaled, masked, moved or dropped out they stay scores; their softmax are weights, and a
    product of weights with something is the end of it. A parameter is no key: its scores do not grow with the sequence.
    """
    held = [flags_of(value) for value in operands]
    if operation in PRODUCTS:
        factors = [(v, f) for v, f in zip(operands, held, strict=True) if any(type(a) in (Tensor, Obj) for a in v)]
        if any(f & WEIGHTS for _, f in factors):
            return MIXES
        turned = operation == TORCH.names["einsum"] or any(f & TURNED for _, f in factors)
        return SCORES if turned and len(factors) == 2 and not any(is_parameter(v) for v, _ in factors) else 0
    either = 0
    for flags in held:
        either |= flags
    if operation in TORCH.words["softmax"]:
        return WEIGHTS if either & SCORES else 0
    if operation in KEEPS:
        return either & (SCORES | WEIGHTS)
    return TURNED if operation in TORCH.words["turns"] else 0


def flags_of(value: Value) -> int:
    out = 0
    for atom in value:
        if type(atom) is Tensor:
            out |= atom.flags
    return out


OPERATION = 50
"""Steps that are counted for an operation on tensors, beside the graphs that it looks at."""
SCALING = frozenset({"/", "//", "%"})
"""Operators of which the right operand is more likely a number than a tensor with a graph; in place, ``*`` is one more."""


def arithmetic(m: Machine, operands: list[Value], node: int, state: State, scale: Value = EMPTY) -> Value:
    """The result of an operation on tensors and numbers: it depends on what its operands are attached to.

    Where one operand certainly has a graph, what the others may have (an opaque batch, a target) is only a hint: a
    ``backward()`` through the result says nothing of them. ``scale`` is one more operand, which a tensor is divided or
    multiplied by in its place: usually a count that is not visible, so that what may be a number is one.
    """
    atoms = [atom for value in operands for atom in as_tensors(m, value, state, node)]
    held = NOTHING.union(*(atom.graphs for atom in atoms if type(atom) is Tensor)) if scale else NOTHING
    if scale:
        atoms += as_tensors(m, scale, state, node)
    tensors = [atom for atom in atoms if type(atom) is Tensor]
    m.meter.take(OPERATION + sum(len(atom.graphs) + len(atom.hints) for atom in tensors))
    blind = [atom for atom in atoms if type(atom) is Unknown]
    if not tensors:
        if all(type(atom) in (Const, Plain) for atom in atoms):
            return PLAIN
        return unknown(NOTHING.union(*(atom.hints for atom in blind)))
    hints = {gid for atom in tensors for gid in atom.hints}.union(*(atom.hints for atom in blind))
    graphs, marks, unsure, given = in_roles(m, tensors)
    outputs = NOTHING.union(*(a.outputs for a in tensors))
    if state.mode is Mode.OFF:
        m.sink(graphs | unsure | marks, SinkKind.CUT, "no_grad", node)
        return tensor(NOTHING, NOTHING, outputs, min_flags(tensors))
    if scale and held & (graphs | unsure | given):
        numbers = {g for g in (unsure | given) - held if held & (graphs | unsure) or not m.record.graphs[g].direct}
        hints |= numbers
        unsure, given = unsure - numbers, given - numbers
    # What was only given (an attribute, an argument) may be a number, where anything else can be the tensor.
    if graphs:
        hints |= unsure | given
    elif unsure:
        graphs = unsure
        hints |= given
    elif blind:
        hints |= given
    else:
        graphs = given
    result = tensor(frozenset(graphs | marks), frozenset(hints), outputs, min_flags(tensors))
    return result if graphs or hints or not blind else result | UNKNOWN


def in_roles(m: Machine, tensors: list[Tensor]) -> tuple[set[int], set[int], set[int], set[int]]:
    """The graphs that tensors are attached to: those that are there, marks, those that may be there, and those that were only
    given."""
    graphs: set[int] = set()
    marks: set[int] = set()
    unsure: set[int] = set()
    given: set[int] = set()
    known = m.record.graphs
    for atom in tensors:
        for gid in atom.graphs:
            kind = known[gid].kind
            if kind in CERTAIN_KINDS:
                graphs.add(gid)
            elif kind in MARK_KINDS:
                marks.add(gid)
            elif kind is GraphKind.PARAM:
                given.add(gid)
            else:
                unsure.add(gid)
    return graphs, marks, unsure, given


def made_in_mode(m: Machine, value: Value, node: int, state: State) -> Value:
    """What an operation that makes a view of a tensor returns: with grad mode off even that has no graph."""
    if state.mode is not Mode.OFF:
        return value
    m.sink(hints_of(value), SinkKind.CUT, "no_grad", node)
    return frozenset(Tensor(NOTHING, NOTHING, a.outputs, a.flags) if type(a) is Tensor else a for a in value)


def as_tensors(m: Machine, value: Value, state: State, node: int) -> list[Atom]:
    """Atoms with unknown objects replaced by the graph that they may be."""
    out: list[Atom] = []
    for atom in value:
        if type(atom) is Obj:
            info = m.heap[atom.oid]
            if info.kind is Kind.THING:
                out.append(Tensor(frozenset((m.thing_graph(atom.oid),)), flags=GUESSED))
                continue
            if info.kind in CONTAINERS:
                for item in m.contents(atom.oid, state):
                    out.extend(a for a in item if type(a) in (Tensor, Unknown))
                out.append(Unknown())
                continue
            if info.kind is Kind.DISTRIBUTION:  # a loss takes it, or another distribution is made of it
                out.extend(state.vars.get((atom.oid, ELEMENTS), UNKNOWN))
                continue
            out.append(Unknown())
        elif type(atom) is Tuple:
            for item in atom.items:
                out.extend(as_tensors(m, item, state, node))
        else:
            out.append(atom)
    return out


def operate(m: Machine, op: str, left: Value, right: Value, node: int, state: State, in_place: bool = False) -> Value:
    a, b = only_const(left), only_const(right)
    if a is not None and b is not None:
        return PLAIN
    if op == "+":
        joined = concatenate(m, left, right, node, state)
        if joined is not None:
            return with_other_items(m, joined, left | right, node, state)
    if op == "*":
        repeated = [a for v in (left, right) for a in v if type(a) is Obj and m.heap[a.oid].kind is Kind.LIST]
        if repeated:
            return concatenate(m, left, right, node, state) or UNKNOWN
    if op == "%" and a is not None and isinstance(a.value, str):
        m.sink(*m.whole(right, state), SinkKind.SHOWN, "%", node)
        return PLAIN
    if op == "**":
        m.operation(hints_of(left), "pow")
    elif op in ("*", "@", "/"):
        # Of two sums, or of one with itself, it is no sum of its parts any more.
        if hints_of(right):
            m.operation(hints_of(left) & hints_of(right) if op != "/" else hints_of(right), "product")
    scaled = op in SCALING or (in_place and op == "*")
    result = arithmetic(m, [left], node, state, right) if scaled else arithmetic(m, [left, right], node, state)
    return in_role(m, op, result, [left, right], node, state)


def in_role(m: Machine, operation: str, result: Value, operands: list[Value], node: int, state: State) -> Value:
    """The result, with the flags that it has as a step of attention; reports the last step."""
    flags = role(operation, operands, partial(is_parameter, m))
    if operation in TORCH.words["casts"]:
        flags |= flags_of(operands[0]) & LOGITS
    else:
        whole_logits(m, operands, state)
    if flags == MIXES:
        m.emit(Attention(m.site(node), state.mode))
        return result
    return with_flags(result, flags)


def whole_logits(m: Machine, operands: list[Value], state: State) -> None:
    """Note where something is done with the logits of all positions."""
    for value in operands:
        for atom in value:
            if type(atom) is Tensor:
                flags = atom.flags
            elif type(atom) is Obj or type(atom) is Tuple:
                flags = m.deep(frozenset((atom,)), state)[3]
            else:
                continue
            if flags & LOGITS:
                m.record.flags.add(RecordFlag.LOGITS_USED)


def is_parameter(m: Machine, value: Value) -> bool:
    graphs = [m.record.graphs[g].kind for a in value if type(a) is Tensor for g in a.graphs]
    return bool(graphs) and all(kind in (GraphKind.LEAF, GraphKind.CARRIED, GraphKind.SPENT) for kind in graphs)


def with_other_items(m: Machine, joined: Value, operands: Value, node: int, state: State) -> Value:
    """A list that was made by ``+`` with what the operands that are not visibly containers may bring: ``[x] + net(x)`` holds
    what the network gave."""
    others = frozenset(a for a in operands if type(a) is not Tuple and not (type(a) is Obj and m.heap[a.oid].kind is Kind.LIST))
    brought = frozenset(a for a in as_tensors(m, others, state, node) if type(a) in (Tensor, Unknown))
    for atom in joined if brought else ():
        if type(atom) is Obj:
            state.vars[atom.oid, ELEMENTS] = join(state.vars.get((atom.oid, ELEMENTS), EMPTY), brought)
    return joined


def concatenate(m: Machine, left: Value, right: Value, node: int, state: State) -> Value | None:
    """``list + list`` and ``tuple + tuple``; None when no container is among the operands."""
    lists = [a for v in (left, right) for a in v if type(a) is Obj and m.heap[a.oid].kind is Kind.LIST]
    if lists:
        oid = m.allocate(Kind.LIST, node)
        items = [item for a in lists for item in m.contents(a.oid, state)]
        state.vars[oid, ELEMENTS] = join(
            join_all(items), join_all([join_all(t.items) for v in (left, right) for t in v if type(t) is Tuple])
        )
        return frozenset((Obj(oid),))
    pairs = [[a for a in v if type(a) is Tuple] for v in (left, right)]
    if pairs[0] and pairs[1]:
        return frozenset((Tuple(pairs[0][0].items + pairs[1][0].items),))
    return None
