"""``x.requires_grad = …``: of a parameter it freezes or thaws, of a module it is a plain attribute."""

from __future__ import annotations

from torchmemlint.lower import ir
from torchmemlint.lower.written import text_of
from torchmemlint.semantics.identity.kinds import looks_like_module
from torchmemlint.semantics.state import (
    MARK_KINDS,
    NOTHING,
    GradModeMisuse,
    GraphKind,
    Kind,
    Machine,
    Misuse,
    Obj,
    RecordFlag,
    State,
    Tensor,
    Unknown,
    Value,
    evaluate,
    is_none,
    place_of,
    truth,
)
from torchmemlint.torch_facts import TORCH

FLAG, METHOD = TORCH.names["gradient-flag"], TORCH.names["sets-gradient-flag"]
PARAMETER_ITERATORS = TORCH.words["parameter-iterators"]


def assign_requires_grad(m: Machine, target: ir.Attr, owners: Value, known: bool | None, state: State, node: int) -> None:
    """``x.requires_grad = known``: of a parameter, or of an input; of a module it has no effect."""
    if known is False:
        record_misuse(m, target, owners, state, node)
    if iterates_parameters(target.value):
        return  # a generator takes no attribute
    if isinstance(target.value, ir.Attr) and target.value.name in TORCH.words["layer-parameters"] and known is False:
        layers = frozenset(a for a in evaluate(m, target.value.value, state) if type(a) is Obj)
        owners = frozenset(a for a in owners if not is_module(m, a)) | layers
    else:
        owners = frozenset(a for a in owners if not is_module(m, a))
    for atom in owners:
        kind = m.heap[atom.oid].kind if type(atom) is Obj else ""
        if type(atom) is Obj and kind in (Kind.PARAMS, Kind.MODULE):
            owner = m.owner_of_params.get(atom.oid, atom.oid)
            m.set_frozen(owner, known is False, state)
        elif known is not False:
            m.record.flags |= INPUT_GRAD
            if known and type(atom) is Obj:
                want_object(m, atom.oid, node)
    if isinstance(target.value, ir.Name) and any(type(a) is Tensor for a in owners):
        # Only a leaf may be set so: whatever made the tensor gave it no history.
        leaves = frozenset(Tensor(NOTHING, NOTHING, a.outputs, a.flags) if type(a) is Tensor else a for a in owners)
        state.vars[place_of(m, target.value.id)] = owners = leaves
    inputs = frozenset(a for a in owners if type(a) in (Tensor, Unknown))
    if known and inputs:
        want_in_place(m, target.value, inputs, state, node)


INPUT_GRAD = frozenset({RecordFlag.INPUT_GRAD, RecordFlag.UNMARKED_INPUT_GRAD})
"""What a run is told of an input that requires grad and that it does not mark."""


def want(m: Machine, value: Value, node: int) -> Value:
    """A new tensor that is made to require grad and is no parameter, marked as such, and so is what is made of it."""
    m.record.flags.add(RecordFlag.INPUT_GRAD)
    mark = frozenset((m.graph(GraphKind.WANTED, node, "", key="wanted"),))
    marked = frozenset(a._replace(graphs=a.graphs | mark) if type(a) is Tensor else a for a in value)
    if marked == value:
        m.record.flags.add(RecordFlag.UNMARKED_INPUT_GRAD)
    return marked


def want_in_place(m: Machine, holder: ir.Expr, value: Value, state: State, node: int) -> Value:
    """The same for what an expression gives. A name stands for the marked tensor from then on (what is not known, and not called, is one);
    other names, or what holds the part, may stand for the same one, and are not marked."""
    marked = want(m, value, node)
    if isinstance(holder, ir.Name | ir.Attr | ir.Subscript):
        m.record.flags.add(RecordFlag.UNMARKED_INPUT_GRAD)
    if isinstance(holder, ir.Name):
        if may_be_tensor(m, holder.id):
            mark = frozenset((m.graph(GraphKind.WANTED, node, "", key="wanted"),))
            marked = frozenset(Unknown(a.hints | mark) if type(a) is Unknown else a for a in marked)
        place = place_of(m, holder.id)
        state.vars[place] = state.vars.get(place, value) - value | marked
    return marked


def want_object(m: Machine, oid: int, node: int) -> None:
    """The same for an object of which nothing is known: an argument, an attribute."""
    if m.heap[oid].kind is Kind.THING and may_be_tensor(m, m.heap[oid].name):
        graph = m.record.graphs[m.thing_graph(oid)]
        graph.parents |= {m.graph(GraphKind.WANTED, node, "", key="wanted")}


def may_be_tensor(m: Machine, text: str) -> bool:
    """Whether the code does nothing with what it calls so that shows a module: it does not call it."""
    words = m.evidence.get(text, frozenset())
    return "()" not in words and not looks_like_module(words)


def overwrite_method(m: Machine, target: ir.Attr, owners: Value, value: Value, state: State, node: int) -> None:
    """``net.requires_grad_ = False``: the name of the method is bound to a flag, and nothing is frozen."""
    if truth(value) is False and not is_none(value):
        record_misuse(m, target, owners, state, node)


def record_misuse(m: Machine, target: ir.Attr, owners: Value, state: State, node: int) -> None:
    """Report a flag that is set on what has none: on modules alone, or on the generator that ``parameters()`` gives."""
    owner = target.value
    if iterates_parameters(owner):
        if any(type(a) is Obj and m.heap[a.oid].kind is Kind.PARAMS for a in owners):
            m.emit(GradModeMisuse(m.site(node), Misuse.PARAMETERS_FLAG, text_of(owner)))
        return
    if isinstance(owner, ir.Subscript) and any(holds_parameters(m, a) for a in evaluate(m, owner.value, state)):
        return
    text = text_of(owner)
    modules = [a for a in owners if is_module(m, a) or is_called(m, a, text) or is_layer(m, a, text)]
    others = frozenset(a for a in owners if a not in modules)
    if not modules or not (not others or is_none(others)):
        return
    if any(type(a) is Obj and (a.oid in m.bare or m.frozen(a.oid, state)) for a in modules):
        return  # there is nothing to freeze, or it is frozen
    classes = [m.heap[a.oid].cls for a in modules if type(a) is Obj]
    kind = Misuse.MODULE_FLAG if target.name == FLAG else Misuse.METHOD_OVERWRITTEN
    m.emit(GradModeMisuse(m.site(node), kind, text, cls=classes[0] if len(classes) == 1 else None))


def iterates_parameters(owner: ir.Expr) -> bool:
    """Whether an expression is ``net.parameters()`` itself."""
    return isinstance(owner, ir.Call) and isinstance(owner.func, ir.Attr) and owner.func.name in PARAMETER_ITERATORS


def holds_parameters(m: Machine, atom: object) -> bool:
    """Whether a value is torch's list or dictionary of parameters."""
    return type(atom) is Obj and str(m.heap[atom.oid].cls).startswith("torch.nn.") and "Parameter" in str(m.heap[atom.oid].cls)


def is_called(m: Machine, atom: object, text: str) -> bool:
    """Whether the code calls an object of which nothing is known, as no tensor or parameter can be."""
    if type(atom) is not Obj or m.heap[atom.oid].kind is not Kind.THING or m.heap[atom.oid].cls is not None:
        return False
    words = m.evidence.get(text, frozenset())
    return "()" in words or looks_like_module(words)


def is_layer(m: Machine, atom: object, text: str) -> bool:
    """Whether the code takes the ``weight`` of what a function that is not visible gave, as of no tensor."""
    if type(atom) is not Tensor:
        return False
    kinds = {m.record.graphs[gid].kind for gid in atom.graphs}
    if GraphKind.OPAQUE not in kinds or kinds - {GraphKind.OPAQUE, *MARK_KINDS}:
        return False
    parts = tuple(f"{text}.{name}" for name in sorted(TORCH.words["layer-parameters"]))
    reads = m.world.facts(m.ref).reads
    return any(known in parts or known.startswith(tuple(f"{part}." for part in parts)) for known in (*m.evidence, *reads))


def is_module(m: Machine, atom: object) -> bool:
    """Whether a value is a module, or ``self`` in a method of one."""
    if type(atom) is not Obj:
        return False
    info = m.heap[atom.oid]
    if info.kind is Kind.SELF:
        return not isinstance(info.cls, str) and info.cls is not None and bool(m.world.is_module_class(info.cls))
    return info.kind is Kind.MODULE
