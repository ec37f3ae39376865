"""Operations of torch: one handler for each effect word of the table of torch facts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torchmemlint.lower import ir
from torchmemlint.lower.syntax import is_small
from torchmemlint.semantics.identity import want
from torchmemlint.semantics.interpret import (
    accumulate_into,
    arithmetic,
    cut_all,
    in_role,
    made_in_mode,
    note_array,
    thing_element,
    whole_logits,
)
from torchmemlint.semantics.models.backward import back_propagate
from torchmemlint.semantics.state import (
    CALLED_KINDS,
    COLUMN,
    COMPUTED,
    CONTAINERS,
    DETACHED,
    DOUBTED,
    EMPTY,
    FREE_TENSOR,
    GUESSED,
    HOST,
    INTEGER,
    NONE,
    NOTHING,
    PACKED,
    PLAIN,
    SCALAR,
    VIEW,
    Atom,
    Call,
    Const,
    GraphKind,
    Kind,
    Machine,
    Mode,
    Obj,
    RecordFlag,
    Seen,
    SinkKind,
    State,
    Tensor,
    Tuple,
    Value,
    assign,
    const,
    detached,
    evaluate,
    graphs_of,
    join,
    join_all,
    names_device,
    normal,
    only_const,
    tensor,
    truth,
    unknown,
    with_flags,
    with_flags_set,
)
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect

GRADIENT_FLAG = TORCH.names["gradient-flag"]
DETACH = TORCH.names["detach"]
PLACE = TORCH.names["place"]
ON_HOST = TORCH.names["host"]
CUDA_MAKERS = f"torch.{TORCH.names['cuda']}."
HOST_ARRAYS = f"{TORCH.names['host-arrays']}."
TAKING = TORCH.words["takes-elements"]
"""Tensor methods whose result has the type of numbers that the receiver has."""
SCALING_METHODS = TORCH.words["scales-in-place"]
"""Tensor methods that scale their receiver in place."""
ACCUMULATING_METHODS = TORCH.words["accumulates-in-place"]
"""Tensor methods that change their receiver by what they are given."""
JOINS = TORCH.words["joins"]
"""Last names of torch functions that put tensors together: what is in the list is tensors."""
TENSORS_ONLY = TORCH.words["tensors-only"]
"""Functions of which every positional argument is a tensor."""
FROM_ARRAYS = TORCH.words["from-arrays"]
"""What these are given is no tensor: they refuse one."""
SMALL_VIEWS = TORCH.words["small-views"]
"""Views that are much smaller than the storage they keep."""
ALWAYS_PAIRS = TORCH.words["always-pairs"]
"""Methods that give values and indices, also where the call has no dimension."""
CUT_FLOATS = TORCH.words["cut-floats"]
"""Methods without a graph whose result is no index and no truth value."""
SHARE_VALUES = TORCH.words["shares-values"]
"""Functions without a graph whose result shares storage with what they are given."""
COPIES_VALUES = TORCH.words["copies-values"]
RESHAPES = TORCH.words["reshapes"]

OF_TENSORS = frozenset({Effect.KEEP, Effect.LOSS, Effect.VIEW, Effect.CUT, Effect.MIXED_MAX})
"""Effects of functions whose first argument is a tensor."""


@dataclass(slots=True)
class Operation:
    """An operation of torch that is called.

    name      the method's name, or the function's absolute name
    last      the last part of it
    effect    its word in the table of torch facts
    receiver  the tensor whose method is called; None for a function
    sure      whether the receiver is certainly a tensor
    me        the receiver as a value
    """

    name: str
    last: str
    effect: Effect
    receiver: Tensor | None = None
    sure: bool = True
    me: Value = frozenset()

    def operands(self, call: Call) -> list[Value]:
        return call.all() if self.receiver is None else [self.me, *call.all()]

    @property
    def first(self) -> int:
        """Position of the first argument behind the tensor."""
        return 1 if self.receiver is None else 0

    @property
    def shown(self) -> str:
        return self.name if self.receiver is None else f".{self.name}()"

    @property
    def graphs(self) -> frozenset[int]:
        """What the receiver is attached to, or may be attached to."""
        return NOTHING if self.receiver is None else self.receiver.graphs | self.receiver.hints


EffectHandler = Callable[[Machine, Operation, Call, State], Value]
EFFECTS: dict[Effect, EffectHandler] = {}
"""Effect word → what a call with it does, and gives."""


def has_effect(*words: Effect) -> Callable[[EffectHandler], EffectHandler]:
    """Registers the handler of some effect words."""

    def register(handler: EffectHandler) -> EffectHandler:
        EFFECTS.update(dict.fromkeys(words, handler))
        return handler

    return register


def check_handlers(words: Iterable[Effect]) -> None:
    """Raises LookupError where a word of the table has no handler."""
    missing = sorted(set(words) - EFFECTS.keys())
    if missing:
        raise LookupError(
            f"no handler for the effect {', '.join(repr(str(word)) for word in missing)} of torch_facts: write one in semantics/models, "
            "registered with @has_effect"
        )


def torch_function(m: Machine, name: str, effect: Effect, call: Call, state: State) -> Value:
    last = name.rpartition(".")[2]
    note_operands(m, name, last, effect, call, state)
    return EFFECTS[effect](m, Operation(name, last, effect), call, state)


def note_operands(m: Machine, name: str, last: str, effect: Effect, call: Call, state: State) -> None:
    """What a call of a function of torch shows about its arguments."""
    values = call.all()
    if names_device(call.keywords.get(PLACE)):
        m.record.flags.add(RecordFlag.DEVICE)
    for value in values[:2]:
        for atom in value:
            if type(atom) is Tensor and name in FROM_ARRAYS:
                m.notice(atom.graphs, Seen.ARRAY)
            elif type(atom) is Tensor and name.partition(".")[0] not in STANDARD_LIBRARY:
                m.notice_done(atom, Seen.TORCH_OP)
                m.operation(atom.graphs, "loss" if effect is Effect.LOSS else last)
    if last in JOINS:
        note_joined(m, call, state)
    if m.weighs_evidence and effect in OF_TENSORS:
        for value in values if last in TENSORS_ONLY else values[:1]:
            m.notice((m.thing_graph(a.oid) for a in value if type(a) is Obj and m.heap[a.oid].kind is Kind.THING), Seen.TENSOR)


STANDARD_LIBRARY = sys.stdlib_module_names - {"builtins"}
"""Packages whose functions say nothing of what they are given: ``os.path.join(folder, name)`` takes no tensor."""


def note_joined(m: Machine, call: Call, state: State) -> None:
    """What is put together are tensors, in whatever list they came."""
    for value in call.all()[:1]:
        graphs, hints, _, _ = m.deep(value, state)
        m.notice(graphs | hints, Seen.JOINED)


# --- what keeps the graph -------------------------------------------------------------------------------------------


@has_effect(Effect.KEEP, Effect.LOSS)
def keep(m: Machine, op: Operation, call: Call, state: State) -> Value:
    operands = op.operands(call)
    inside: list[Value] = []
    if op.receiver is None:
        for value in operands:
            for atom in value:
                if type(atom) is Obj and m.heap[atom.oid].kind in CONTAINERS | {Kind.GENERATOR}:
                    inside += m.contents(atom.oid, state)
                    if m.heap[atom.oid].external:  # and what it held before
                        held = thing_element(m, atom.oid, None)
                        inside.append(unknown(frozenset(m.thing_graph(each.oid) for each in held if type(each) is Obj)))
    step = "" if op.last == TORCH.names["softmax"] and over_queries(call.get(op.first, "dim")) else op.last
    result = in_role(m, step, arithmetic(m, [*operands, *inside], call.node, state), operands, call.node, state)
    if op.effect is Effect.LOSS:
        reduction = call.keywords.get("reduction")
        if reduction is None or only_const(reduction) != Const("none", "str"):
            return with_flags_set(result, SCALAR)
    if (
        op.last in TORCH.words["reductions"]
        and len(call.positional) == op.first
        and not TORCH.words["dimension-arguments"] & call.keywords.keys()
    ):
        return with_flags_set(result, SCALAR)
    indices = op.last in TAKING and op.receiver is not None and op.receiver.flags & INTEGER
    return with_flags(result, INTEGER) if indices else result


@has_effect(Effect.VIEW)
def view(m: Machine, op: Operation, call: Call, state: State) -> Value:
    if op.receiver is None:
        if op.last in TORCH.words["aliases-a-tensor"]:
            return alias_or_copy(m, op, call, state)
        result = keep(m, op, call, state)
        return with_flags(result, VIEW) if op.name in SMALL_VIEWS else result
    made = in_role(m, op.name, made_in_mode(m, op.me, call.node, state), [op.me], call.node, state)
    made = with_flags(made, COMPUTED) if op.sure else made
    if is_column(op.name, call.all()):
        made = with_flags(made, COLUMN)
    return with_flags(made, VIEW) if op.name in SMALL_VIEWS and op.receiver.outputs else made


def alias_or_copy(m: Machine, op: Operation, call: Call, state: State) -> Value:
    """``torch.Tensor(x)``: a tensor stays what it is; of a list of numbers, or of tensors, the values alone are taken."""
    lists = frozenset(
        atom
        for value in call.all()
        for atom in value
        if type(atom) is Tuple or (type(atom) is Obj and m.heap[atom.oid].kind in CONTAINERS)
    )
    if not lists:
        return keep(m, op, call, state)
    m.sink(*m.whole(lists, state), SinkKind.CUT, op.shown, call.node)
    aliased = frozenset(atom for value in call.all() for atom in value if type(atom) is Tensor)
    return join(aliased, FREE_TENSOR)


@has_effect(Effect.PACK)
def pack(m: Machine, op: Operation, call: Call, state: State) -> Value:
    return with_flags(arithmetic(m, op.operands(call)[:1], call.node, state), PACKED)


@has_effect(Effect.MIXED_MAX)
def keep_values(m: Machine, op: Operation, call: Call, state: State) -> Value:
    """``max(dim)``, ``sort``, ``topk``: values and indices; one result where the call has no dimension."""
    operands = op.operands(call)
    another = takes_another(op.last, call.get(op.first, "other"))
    if op.receiver is None:
        if another:
            return arithmetic(m, operands[:2], call.node, state)
        values = arithmetic(m, operands[:1], call.node, state)
        if len(call.positional) == 1 and not call.keywords:
            return with_flags_set(values, SCALAR)
        for value in operands[:1]:
            m.sink(*m.whole(value, state), SinkKind.KEPT_PART, op.shown, call.node)
        return frozenset((Tuple((values, tensor(flags=INTEGER))),))
    if another:
        return arithmetic(m, operands, call.node, state)
    if not call.all() and op.name not in ALWAYS_PAIRS:
        return with_flags_set(op.me, SCALAR)
    whole = frozenset((op.receiver._replace(flags=op.receiver.flags & ~VIEW),))
    values = made_in_mode(m, whole, call.node, state)
    m.sink(op.graphs, SinkKind.KEPT_PART, op.shown, call.node)
    return frozenset((Tuple((values, tensor(flags=INTEGER))),)) if op.sure else op.me


@has_effect(Effect.INPLACE)
def change_in_place(m: Machine, op: Operation, call: Call, state: State) -> Value:
    operands = op.operands(call)
    if op.receiver is None:
        return arithmetic(m, operands, call.node, state)
    added = join_all(call.all())
    if op.name in SCALING_METHODS:
        value = arithmetic(m, [op.me], call.node, state, added)
    else:
        value = arithmetic(m, operands, call.node, state)
    value = in_role(m, op.name, value, operands, call.node, state)
    if not isinstance(call.func, ir.Attr):
        return value
    target = call.func.value
    if op.name in ACCUMULATING_METHODS:
        term = call.exprs[0].node if call.exprs else -1
        accumulate_into(m, target, "+=", value, added, state, call.node, term)
    elif op.name == TORCH.names["copies-into"]:
        assign(m, target, arithmetic(m, call.all(), call.node, state), state, call.node)
    elif isinstance(target, (ir.Name, ir.Attr, ir.Subscript)) and any(map(graphs_of, call.all())):
        assign(m, target, value, state, call.node)  # `embeds.masked_scatter_(mask, features)`
    return value


# --- what cuts it ---------------------------------------------------------------------------------------------------


@has_effect(Effect.CUT)
def cut(m: Machine, op: Operation, call: Call, state: State) -> Value:
    if op.receiver is None:
        cut_all(m, call, state, op.shown)
        if op.last not in SHARE_VALUES:
            return tensor(flags=0 if op.last in CUT_FLOATS else INTEGER)
        shared = [m.deep(value, state)[2] for value in call.all()]
        free = tensor(outputs=NOTHING.union(*shared), flags=DETACHED)
        return want(m, free, call.node) if truth(call.get(1, GRADIENT_FLAG) or const(False)) is True else free
    whole_logits(m, [op.me], state)
    m.sink(op.graphs, SinkKind.CUT, op.shown, call.node)
    if op.name == DETACH:
        return detached(op.me) if op.sure else FREE_TENSOR
    flags = INTEGER if op.name not in CUT_FLOATS else 0
    return tensor(NOTHING, NOTHING, NOTHING, flags | (op.receiver.flags & SCALAR))


@has_effect(Effect.ITEM, Effect.NUMBER, Effect.SHAPE)
def read_number(m: Machine, op: Operation, call: Call, state: State) -> Value:
    if op.receiver is None:
        values = call.all()
        if op.name == TORCH.names["device-class"] and values and all(type(a) is Const for a in values[0]):
            return values[0]  # a device and its name are the same here
        if op.name.startswith(HOST_ARRAYS):
            for atom in EMPTY.union(*values):
                if type(atom) is Tensor:
                    note_array(m, atom.outputs, atom.flags, call.node)
        cut_all(m, call, state, op.shown)
        return PLAIN
    if op.effect is Effect.ITEM:
        m.sink(op.graphs, SinkKind.CUT, op.shown, call.node)
    if op.name == TORCH.names["to-array"] and op.sure:
        note_array(m, op.receiver.outputs, op.receiver.flags, call.node)
        m.notice(must_be_free(m, op.receiver), Seen.MUST_BE_FREE)
    return PLAIN


@has_effect(Effect.DETACH_INPLACE)
def detach_in_place(m: Machine, op: Operation, call: Call, state: State) -> Value:
    m.sink(op.graphs, SinkKind.CUT, op.shown, call.node)
    value = detached(op.me)
    rebind(m, call.func, value, state)
    return value


def has_one_element(name: str, exprs: list[ir.Expr]) -> bool:
    """Whether a tensor is made of one number, or of the size 1 (``torch.zeros(1)``): a coefficient that is learned, as a temperature
    is, and no input of which gradients are taken."""
    flat = [item for expr in exprs for item in (expr.items if isinstance(expr, ir.Sequence) else [expr])]
    if name == TORCH.names["copies-values"]:
        return len(flat) == 1 and isinstance(flat[0], ir.Const)
    return bool(flat) and all(isinstance(item, ir.Const) and item.value == 1 for item in flat)


def is_made_on_host(op: Operation, call: Call) -> bool:
    """Whether a function of torch makes a tensor on the host: it is given that, or no device and no tensor that may be on one."""
    if PLACE in call.keywords:
        place = only_const(call.keywords[PLACE])
        return place is not None and place.value == ON_HOST
    if op.name.startswith(CUDA_MAKERS) or op.last.endswith("_like"):
        return False
    if op.name in FROM_ARRAYS:
        return True
    return not any(type(atom) is Tensor and not atom.flags & HOST for value in call.all() for atom in value)


@has_effect(Effect.SOURCE)
def make_leaf(m: Machine, op: Operation, call: Call, state: State) -> Value:
    if op.receiver is not None:
        return FREE_TENSOR
    made = tensor(flags=HOST) if is_made_on_host(op, call) else FREE_TENSOR
    if op.name in COPIES_VALUES:
        cut_all(m, call, state, op.shown)
    if truth(call.keywords.get(GRADIENT_FLAG, const(False))) is True:
        if not has_one_element(op.name, call.exprs):
            return want(m, made, call.node)
        m.record.flags.add(RecordFlag.LEARNED_NUMBER)
    if op.name == TORCH.names["copies-values"] and call.exprs and is_small(call.exprs[0]):
        return tensor(flags=SCALAR)
    return made


@has_effect(Effect.BACKWARD)
def run_backward(m: Machine, op: Operation, call: Call, state: State) -> Value:
    if op.receiver is None:
        back_propagate(m, [join_all(call.positional[:1])], call, state, retain_at=2)
    else:
        back_propagate(m, [op.me], call, state, retain_at=1)
    return NONE


# --- what the handlers ask ------------------------------------------------------------------------------------------


def is_column(name: str, values: list[Value]) -> bool:
    """Whether a tensor is made one-dimensional: ``flatten()``, ``view(-1)``."""
    if name in TORCH.words["flattens"]:
        return not values
    return name in RESHAPES and [only_const(v) for v in values] == [Const(-1, "int")]


def over_queries(dim: Value | None) -> bool:
    """Whether a softmax is not over the last dimension of its scores: the weights of each key add up to one."""
    single = only_const(dim) if dim is not None else None
    return single is not None and single.value in (-2, 0)


def takes_another(name: str, other: Value | None) -> bool:
    """Whether ``max`` and ``min`` choose between two tensors, element by element, and not along a dimension."""
    return name in TORCH.words["picks-one"] and any(type(a) is Tensor and not a.flags & GUESSED for a in other or ())


def must_be_free(m: Machine, atom: Tensor) -> frozenset[int]:
    """Graphs of which ``numpy()`` of a tensor shows that they are not real, since it would raise on every path: torch's operations
    made it of what a module gave, no path detaches it, and no test decides whether this is reached. Of what a function
    returned something depends on a module that it calls itself."""
    if m.guards or m.handlers or not atom.flags & COMPUTED or atom.flags & (INTEGER | GUESSED | DETACHED | DOUBTED):
        return NOTHING
    graphs = [m.record.graphs[gid] for gid in atom.graphs]
    real = [graph for graph in graphs if graph.kind in CALLED_KINDS and graph.mode is Mode.ON]
    called_in = {m.frame_closure[graph.site.frame].ref for graph in real}
    results = [graph for graph in graphs if graph.kind is GraphKind.RESULT and graph.callee in called_in]
    return frozenset(graph.gid for graph in (*real, *results))


def rebind(m: Machine, func: ir.Expr, value: Value, state: State) -> None:
    """A method changed its receiver in place: the name that holds it holds the new value."""
    if isinstance(func, ir.Attr) and isinstance(func.value, ir.Name):
        state.vars[m.frame, func.value.id] = value
    elif isinstance(func, ir.Attr) and isinstance(func.value, ir.Attr):
        for atom in evaluate(m, func.value.value, state):
            if type(atom) is Obj:
                state.vars[atom.oid, func.value.name] = value
    elif isinstance(func, ir.Attr) and isinstance(func.value, ir.Subscript) and isinstance(func.value.value, ir.Name):
        rebind_item(m, func.value, func.value.value.id, value, state)


def rebind_item(m: Machine, target: ir.Subscript, name: str, value: Value, state: State) -> None:
    """``state[0].detach_()`` changes that tensor of a tuple. A tensor stands for a tuple here, as no view of one can be detached in
    place: its tensors are not distinguished, and one stands for all."""
    held = state.vars.get((m.frame, name))
    if held is None:
        return
    key = only_const(evaluate(m, target.index[0], state)) if len(target.index) == 1 else None
    index = key.value if key is not None and isinstance(key.value, int) else None
    out: list[Atom] = []
    for atom in held:
        if type(atom) is Tensor:
            out += value
        elif type(atom) is Tuple and index is not None and -len(atom.items) <= index < len(atom.items):
            items = list(atom.items)
            items[index] = value
            out.append(Tuple(tuple(items)))
        else:
            out.append(atom)
    state.vars[m.frame, name] = normal(out)
