"""Values: sets of atoms, and how they join."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Union

NOTHING: frozenset[int] = frozenset()

SCALAR = 1
"""Flag of a tensor: zero-dimensional (a loss, a mean), 512 bytes on CUDA at most."""
VIEW = 2
"""Flag of a tensor: shares the storage of a larger tensor that a forward made."""
INTEGER = 4
"""Flag of a tensor: holds indices or truth values, which carry no graph."""
BATCH = 8
"""Flag of a tensor: has the batch's dimension (comes straight from a forward)."""
DETACHED = 16
"""Flag of a tensor: a graph was cut from it on purpose."""
GUESSED = 32
"""Flag of a tensor: a call out of sight gave it, so that it may be no tensor at all."""
PACKED = 64
"""Flag of what stands for a tensor: a ``PackedSequence``, whose ``.data`` is a field that keeps the graph."""

TURNED = 128
"""Flag of a tensor: two of its dimensions were exchanged."""
SCORES = 256
"""Flag of a tensor: the product of two activations, one of them turned: each position against each other."""
WEIGHTS = 512
"""Flag of a tensor: a softmax of such scores."""
LOGITS = 1024
"""Flag of a tensor: the ``logits`` of a model's output, for every position."""
COLUMN = 2048
"""Flag of a tensor: made one-dimensional, so mostly one number for each sample."""
COMPUTED = 4096
"""Flag of a tensor: an operation of torch made it, so that it is one."""
DOUBTED = 8192
"""Flag of a tensor: on one path a graph was cut from it on purpose, on another one not."""
MOVED = 16384
"""Flag of a tensor: moved to the host; beside ``outputs`` on one path alone."""


class Tensor(NamedTuple):
    """A tensor.

    graphs   graphs and marks that it certainly hangs on, if those graphs are real
    hints    graphs and marks that it may hang on
    outputs  forwards whose output storage it keeps alive on the device (under no_grad too)
    flags    SCALAR | VIEW | INTEGER | BATCH | DETACHED | GUESSED | PACKED | COLUMN | COMPUTED | DOUBTED | MOVED
    """

    graphs: frozenset[int] = NOTHING
    hints: frozenset[int] = NOTHING
    outputs: frozenset[int] = NOTHING
    flags: int = 0


class Unknown(NamedTuple):
    """Nothing is known, but it may hang on these graphs."""

    hints: frozenset[int] = NOTHING


class Const(NamedTuple):
    """A literal. ``kind`` keeps 1, True and 1.0 apart."""

    value: object
    kind: str


@dataclass(frozen=True, slots=True)
class Plain:
    """Data without a graph: a number that is not known, a string, an array."""


class Tuple(NamedTuple):
    """A tuple whose elements are known one by one."""

    items: tuple[Value, ...]


class Obj(NamedTuple):
    """A heap object by number: container, instance, module, optimizer, loader, generator."""

    oid: int


class Func(NamedTuple):
    """A function of the project. ``key`` numbers it in the run; ``receiver`` is the bound object's number, -1 for none."""

    key: int
    receiver: int = -1


class Cls(NamedTuple):
    """A class of the project (path, qualname)."""

    path: str
    qualname: str


class Ext(NamedTuple):
    """Something outside the project, by absolute dotted name ("torch.nn.functional.relu", "builtins.len")."""

    name: str


class Method(NamedTuple):
    """A method taken from a receiver and not called yet (``push = losses.append``)."""

    receiver: Value
    name: str


Atom = Union[Tensor, Unknown, Const, Plain, Tuple, Obj, Func, Cls, Ext, Method]
Value = frozenset[Atom]

PLAIN: Value = frozenset((Plain(),))
UNKNOWN: Value = frozenset((Unknown(),))
NONE: Value = frozenset((Const(None, "NoneType"),))
EMPTY: Value = frozenset()
FREE_TENSOR: Value = frozenset((Tensor(),))
"""A tensor without history."""

MAX_ATOMS = 6


def const(value: object) -> Value:
    kind = type(value).__name__
    known = _CONSTS.get((value, kind))
    if known is None:
        known = frozenset((Const(value, kind),))
        if len(_CONSTS) < MAX_CONSTS:
            _CONSTS[value, kind] = known
    return known


_CONSTS: dict[tuple[object, str], Value] = {}
MAX_CONSTS = 2_000
"""Literals that are kept: few are frequent."""


def tensor(
    graphs: frozenset[int] = NOTHING, hints: frozenset[int] = NOTHING, outputs: frozenset[int] = NOTHING, flags: int = 0
) -> Value:
    return frozenset((Tensor(graphs, hints, outputs, flags),))


def unknown(hints: frozenset[int] = NOTHING) -> Value:
    return frozenset((Unknown(hints),)) if hints else UNKNOWN


def join(left: Value, right: Value) -> Value:
    """The value that is either. Commutative, associative and idempotent up to the widening at ``MAX_ATOMS``."""
    if left is right or not right or left == right:
        return left
    if not left:
        return right
    return normal(left | right)


def join_all(values: Iterable[Value]) -> Value:
    out = EMPTY
    for value in values:
        out = join(out, value)
    return out


def normal(atoms: Iterable[Atom]) -> Value:
    """At most one Tensor, one Unknown and one Tuple per length; more than ``MAX_ATOMS`` others are forgotten."""
    tensors: list[Tensor] = []
    unknowns: list[Unknown] = []
    tuples: dict[int, Tuple] = {}
    consts: list[Atom] = []
    others: list[Atom] = []
    for atom in atoms:
        if type(atom) is Tensor:
            tensors.append(atom)
        elif type(atom) is Unknown:
            unknowns.append(atom)
        elif type(atom) is Tuple:
            old = tuples.get(len(atom.items))
            tuples[len(atom.items)] = (
                atom if old is None else Tuple(tuple(join(a, b) for a, b in zip(old.items, atom.items, strict=True)))
            )
        elif type(atom) is Const:
            consts.append(atom)
        else:
            others.append(atom)
    out: list[Atom] = list(tuples.values()) + others
    if len(consts) > MAX_ATOMS:
        out.append(Plain())
        out += [c for c in consts if isinstance(c, Const) and c.value is None]
    else:
        out += consts
    if tensors:
        out.append(tensors[0] if len(tensors) == 1 else _join_tensors(tensors))
    hints = NOTHING.union(*(u.hints for u in unknowns)) if unknowns else NOTHING
    if len(others) + len(tuples) > MAX_ATOMS:
        dropped = frozenset(out)
        keep: list[Atom] = [a for a in out if type(a) in (Tensor, Const, Plain)]
        return frozenset([*keep, Unknown(hints | hints_of(dropped))])
    if unknowns:
        out.append(unknowns[0] if len(unknowns) == 1 else Unknown(hints))
    return frozenset(out)


def _join_tensors(tensors: list[Tensor]) -> Tensor:
    first = tensors[0]
    graphs, hints, outputs = first.graphs, first.hints, first.outputs
    both = first.flags
    either = first.flags
    doubted = any((other.flags ^ first.flags) & DETACHED for other in tensors[1:])
    for other in tensors[1:]:
        graphs, hints, outputs = graphs | other.graphs, hints | other.hints, outputs | other.outputs
        both &= other.flags
        either |= other.flags
    return Tensor(
        graphs,
        hints,
        outputs,
        (both & (SCALAR | INTEGER | DETACHED | COLUMN | COMPUTED))
        | (either & (VIEW | BATCH | PACKED | SCORES | WEIGHTS | LOGITS | DOUBTED | MOVED))
        | (DOUBTED if doubted else 0),
    )


def graphs_of(value: Value) -> frozenset[int]:
    """Graphs and marks that the value certainly hangs on, inside tuples too."""
    out = NOTHING
    for atom in value:
        if type(atom) is Tensor:
            out |= atom.graphs
        elif type(atom) is Tuple:
            for item in atom.items:
                out |= graphs_of(item)
    return out


def hints_of(value: Value) -> frozenset[int]:
    """Graphs and marks that the value certainly or possibly hangs on, inside tuples too."""
    out = NOTHING
    for atom in value:
        if type(atom) is Tensor:
            out |= atom.graphs | atom.hints
        elif type(atom) is Unknown:
            out |= atom.hints
        elif type(atom) is Tuple:
            for item in atom.items:
                out |= hints_of(item)
    return out


def outputs_of(value: Value) -> frozenset[int]:
    out = NOTHING
    for atom in value:
        if type(atom) is Tensor:
            out |= atom.outputs
        elif type(atom) is Tuple:
            for item in atom.items:
                out |= outputs_of(item)
    return out


def add_marks(value: Value, marks: frozenset[int]) -> Value:
    """The value with marks on its tensors; unknown parts get them as hints."""
    if not marks:
        return value
    out: list[Atom] = []
    for atom in value:
        if type(atom) is Tensor:
            out.append(Tensor(atom.graphs | marks, atom.hints, atom.outputs, atom.flags))
        elif type(atom) is Unknown:
            out.append(Unknown(atom.hints | marks))
        elif type(atom) is Tuple:
            out.append(Tuple(tuple(add_marks(item, marks) for item in atom.items)))
        else:
            out.append(atom)
    return frozenset(out)


def detached(value: Value) -> Value:
    """The value after its graph is cut; what it keeps of a forward's output stays."""
    out: list[Atom] = []
    for atom in value:
        if type(atom) is Tensor:
            out.append(Tensor(NOTHING, NOTHING, atom.outputs, atom.flags | DETACHED))
        elif type(atom) is Unknown:
            out.append(Unknown())
        elif type(atom) is Tuple:
            out.append(Tuple(tuple(detached(item) for item in atom.items)))
        else:
            out.append(atom)
    return frozenset(out)


def is_none(value: Value) -> bool:
    return value == NONE


def truth(value: Value) -> bool | None:
    """True or False when every possibility agrees, None otherwise."""
    answers = set()
    for atom in value:
        if type(atom) is Const:
            answers.add(bool(atom.value))
        elif type(atom) is Tuple:
            answers.add(bool(atom.items))
        elif type(atom) in (Func, Cls, Ext, Method):
            answers.add(True)
        else:
            return None
    return answers.pop() if len(answers) == 1 else None


def only_const(value: Value) -> Const | None:
    """The literal that the value is, when it is one."""
    if len(value) == 1:
        (atom,) = value
        if type(atom) is Const:
            return atom
    return None


def has_tensor(value: Value) -> bool:
    return any(type(a) is Tensor or (type(a) is Tuple and any(has_tensor(i) for i in a.items)) for a in value)
