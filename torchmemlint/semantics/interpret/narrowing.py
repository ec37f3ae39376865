"""What a test shows about the names in it: ``x is None``, ``isinstance(x, torch.Tensor)``, ``not``, ``and``, ``or``."""

from __future__ import annotations

from torchmemlint.index.project import ClassRef
from torchmemlint.lower import ir
from torchmemlint.lower.syntax import type_names
from torchmemlint.lower.written import dotted, text_of
from torchmemlint.semantics.state import (
    CONTAINERS,
    FROZEN,
    NONE,
    PLAIN,
    Atom,
    Cls,
    Const,
    Ext,
    Key,
    Kind,
    Machine,
    Obj,
    Plain,
    Seen,
    State,
    Tensor,
    Tuple,
    Unknown,
    Value,
    const,
    evaluate,
)
from torchmemlint.torch_facts import TORCH

FLAG = TORCH.names["gradient-flag"]

WITHOUT_NAMES = frozenset({ir.Name, ir.Attr, ir.Const})
"""Tests that show nothing about the names in them: of a truth value no type follows."""


def narrow(m: Machine, test: ir.Expr, holds: bool, state: State) -> bool:
    """Apply what a test shows about the names in it (``x is None``, ``isinstance(x, torch.Tensor)``, ``not``, ``and``, ``or``);
    False where no value is left, so that the branch cannot be reached."""
    if type(test) in WITHOUT_NAMES:
        narrow_parameter(m, test, holds, state)
        return True
    match test:
        case ir.Unary(op="not"):
            return narrow(m, test.value, not holds, state)
        case ir.BoolOp(op="and") if holds:
            return narrow(m, test.left, True, state) and narrow(m, test.right, True, state)
        case ir.BoolOp(op="or") if not holds:
            return narrow(m, test.left, False, state) and narrow(m, test.right, False, state)
        case ir.BoolOp(op="or") | ir.Compare(left=ir.Call()):
            return narrow_types(m, test, holds, state)
        case ir.Compare(left=name, ops=["is" | "is not" | "==" | "!=" as op], comparators=[ir.Const(value=None)]):
            for place in places_of(m, name, state):
                narrow_none(place, (op in ("is", "==")) == holds, state)
        case ir.Call(func=func, args=[ir.Arg(value=ir.Name() as name), *rest]):
            return narrow_type(m, (m.frame, name.id), func, rest, holds, state)
        case ir.Call(func=func, args=[ir.Arg(value=ir.Subscript(value=ir.Name() as name)), *rest]):
            # What one entry is, the others are: it is asked of one for all.
            place = (m.frame, name.id)
            if holds and place in state.vars and asks_for_record(m, func, rest, state):
                state.vars[place] = PLAIN
    return True


def places_of(m: Machine, name: ir.Expr, state: State) -> list[Key]:
    """The place of a name, or of an attribute of the one object that its owner is."""
    if isinstance(name, ir.Name):
        return [(m.frame, name.id)]
    if not isinstance(name, ir.Attr):
        return []
    owners = evaluate(m, name.value, state)
    return [(atom.oid, name.name) for atom in owners if type(atom) is Obj] if len(owners) == 1 else []


def narrow_types(m: Machine, test: ir.Expr, holds: bool, state: State) -> bool:
    """As ``narrow``, for the tests of ``asked_types``."""
    asked = asked_types(test)
    if asked is None:
        return True
    types = ir.Arg(ir.Sequence(-1, ir.Display.TUPLE, asked[1]))
    return narrow_type(m, (m.frame, asked[0]), ir.Name(-1, "isinstance"), [types], holds, state)


def narrow_parameter(m: Machine, test: ir.Expr, holds: bool, state: State) -> None:
    """``param.requires_grad`` in an iteration over parameters, where it does not hold: this one wants no gradient as it is."""
    if holds or not isinstance(test, ir.Attr) or test.name != FLAG or not isinstance(test.value, ir.Name):
        return
    for atom in evaluate(m, test.value, state):
        if type(atom) is Obj and atom.oid in m.owner_of_params:
            state.vars[m.owner_of_params[atom.oid], FROZEN] = const(True)


def narrow_none(place: Key, none: bool, state: State) -> None:
    """``x is None``, where it holds that x is, or is not."""
    old = state.vars.get(place)
    if old is not None and none:
        state.vars[place] = NONE
    elif old is not None:
        kept = frozenset(a for a in old if not (type(a) is Const and a.value is None))
        if kept:
            state.vars[place] = kept


def asked_types(test: ir.Expr) -> tuple[str, list[ir.Expr]] | None:
    """The name of which a test asks the type, and the types: ``type(x) is float``, ``type(x) in (int, float)``, and several such with
    ``or``; None for any other test."""
    match test:
        case ir.Compare(
            left=ir.Call(func=ir.Name(id="type"), args=[ir.Arg(value=ir.Name() as name)]),
            ops=["is" | "==" | "in"],
            comparators=[types],
        ):
            return name.id, [types]
        case ir.Call(func=ir.Name(id="isinstance"), args=[ir.Arg(value=ir.Name() as name), ir.Arg(value=types)]):
            return name.id, [types]
        case ir.BoolOp(op="or"):
            left, right = asked_types(test.left), asked_types(test.right)
            if left is not None and right is not None and left[0] == right[0]:
                return left[0], [*left[1], *right[1]]
    return None


def narrow_type(m: Machine, place: Key, func: ir.Expr, rest: list[ir.Arg], holds: bool, state: State) -> bool:
    """``isinstance(x, types)`` and ``torch.is_tensor(x)``; False where no value is left."""
    old = state.vars.get(place)
    if old is None:
        return True
    kept = old
    if holds and asks_for_number(func, rest):
        if all(name.rpartition(".")[2] == TORCH.names["array-class"] for name in type_names(rest[0].value)):
            m.notice((g for a in old if type(a) is Tensor for g in a.graphs), Seen.MAYBE_ARRAY)
        kept = PLAIN
    elif asks_for_tensor(m, func, rest, state):
        kept = only_tensors(m, old) if holds else without_tensors(m, old)
    elif not holds and asks_for_attribute(func, rest):
        kept = without_tensors(m, old)
    elif asked := asked_containers(func, rest):
        kept = frozenset(a for a in old if (kind := kind_of_container(m, a)) is None or (kind in asked) == holds)
    elif holds and asks_for_record(m, func, rest, state):
        kept = PLAIN
    if not kept:
        return False
    state.vars[place] = kept
    return True


def chosen_value(m: Machine, test: ir.Expr, holds: bool, branch: ir.Expr, value: Value, state: State) -> Value:
    """What a branch of a conditional expression gives, where it is the very part that the test asks for (``losses["kl"].item() if
    hasattr(losses["kl"], "item") else losses["kl"]``)."""
    match test:
        case ir.Unary(op="not"):
            return chosen_value(m, test.value, not holds, branch, value, state)
        case ir.Call(func=func, args=[ir.Arg(value=ir.Subscript() | ir.Attr() as asked), *rest]) if not holds:
            if text_of(asked) == text_of(branch) and (asks_for_attribute(func, rest) or asks_for_tensor(m, func, rest, state)):
                return without_tensors(m, value)
    return value


def asks_for_attribute(func: ir.Expr, rest: list[ir.Arg]) -> bool:
    """``hasattr(x, "item")``, of an attribute that all tensors have."""
    if dotted(func) != "hasattr" or len(rest) != 1 or not isinstance(rest[0].value, ir.Const):
        return False
    name = rest[0].value.value
    return isinstance(name, str) and (name in TORCH.methods or name in TORCH.attributes)


def only_tensors(m: Machine, value: Value) -> Value:
    """What of a value may be a tensor."""
    return frozenset(
        a for a in value if type(a) in (Tensor, Unknown) or (type(a) is Obj and m.heap[a.oid].kind not in CONTAINERS)
    )


def without_tensors(m: Machine, value: Value) -> Value:
    """What is left is no tensor, whatever else it is."""
    return frozenset(
        Plain() if type(a) is Unknown or (type(a) is Obj and m.heap[a.oid].kind is Kind.THING) else a
        for a in value
        if type(a) is not Tensor
    )


def kind_of_container(m: Machine, atom: Atom) -> str | None:
    """``TUPLE`` or the kind of what surely is a container, None for anything else."""
    if type(atom) is Tuple:
        return TUPLE
    kind = m.heap[atom.oid].kind if type(atom) is Obj else None
    return kind if kind in CONTAINERS else None


def asked_containers(func: ir.Expr, rest: list[ir.Arg]) -> frozenset[str]:
    """The kinds of container that ``isinstance(x, (list, tuple))`` asks for; empty where it asks for anything else."""
    if dotted(func) != "isinstance" or len(rest) != 1:
        return frozenset()
    kinds = [CONTAINER_TYPES.get(name.rpartition(".")[2]) for name in type_names(rest[0].value)]
    return frozenset().union(*(kind for kind in kinds if kind)) if kinds and all(kinds) else frozenset()


def asks_for_number(func: ir.Expr, rest: list[ir.Arg]) -> bool:
    """``isinstance(x, (int, float, np.ndarray))``: what passes is no tensor."""
    if dotted(func) != "isinstance" or len(rest) != 1:
        return False
    return is_plain_type(rest[0].value)


def is_plain_type(expr: ir.Expr) -> bool:
    """Whether all types that an annotation, or the second argument of ``isinstance``, names are of no tensor."""
    names = type_names(expr)
    return bool(names) and all(map(is_plain_name, names))


def is_plain_name(name: str) -> bool:
    """Whether a type of that name is of no tensor."""
    return name.rpartition(".")[2] in TORCH.words["plain-types"]


def asks_for_record(m: Machine, func: ir.Expr, rest: list[ir.Arg], state: State) -> bool:
    """``isinstance(x, Pointer)`` for classes of the project whose objects hold numbers and words alone."""
    if dotted(func) != "isinstance" or len(rest) != 1:
        return False
    types = rest[0].value.items if isinstance(rest[0].value, ir.Sequence) else [rest[0].value]
    atoms = [a for t in types if dotted(t) for a in evaluate(m, t, state)]
    return bool(atoms) and all(type(a) is Cls and m.world.is_plain_record(ClassRef(a.path, a.qualname)) for a in atoms)


def asks_for_tensor(m: Machine, func: ir.Expr, rest: list[ir.Arg], state: State) -> bool:
    """``isinstance(x, torch.Tensor)`` or ``torch.is_tensor(x)``."""
    name = dotted(func)
    if name == "isinstance" and len(rest) == 1:
        types = rest[0].value.items if isinstance(rest[0].value, ir.Sequence) else [rest[0].value]
        names = {a.name for t in types if dotted(t) for a in evaluate(m, t, state) if type(a) is Ext}
        return bool(names) and any(n.rpartition(".")[2] in TORCH.words["tensor-types"] and n.startswith("torch") for n in names)
    return any(type(a) is Ext and a.name == TORCH.names["asks-tensor"] for a in evaluate(m, func, state)) if name else False


TUPLE = "tuple"
"""Stands beside the kinds of containers for a tuple, which is a value and no object."""
CONTAINER_TYPES: dict[str, frozenset[str]] = {
    "list": frozenset({Kind.LIST}), "tuple": frozenset({TUPLE}), "set": frozenset({Kind.SET}), "dict": frozenset({Kind.DICT}),
    "Mapping": frozenset({Kind.DICT}), "MutableMapping": frozenset({Kind.DICT}), "OrderedDict": frozenset({Kind.DICT}),
    "Sequence": frozenset({Kind.LIST, TUPLE}),
}  # fmt: skip
"""Types that are asked for, by their last name, and the kinds of container that pass."""
