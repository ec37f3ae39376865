"""Values: sets of atoms that can be joined."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntFlag
from functools import lru_cache
from typing import NamedTuple, Union

from torchmemlint.torch_facts import TORCH

CUDA = TORCH.names["cuda"]
NOTHING: frozenset[int] = frozenset()


class Flag(IntFlag):
    """What is known of a tensor beside its graphs."""

    SCALAR = 1
    """Zero-dimensional (a loss, a mean), 512 bytes on CUDA at most."""
    VIEW = 2
    """Shares the storage of a larger tensor that a forward made."""
    INTEGER = 4
    """Holds indices or truth values, which carry no graph."""
    BATCH = 8
    """Has the batch's dimension (comes straight from a forward)."""
    DETACHED = 16
    """A graph was cut from it on purpose."""
    GUESSED = 32
    """A call that is not visible gave it, so that it may be no tensor at all."""
    PACKED = 64
    """Stands for a tensor: a ``PackedSequence``, whose ``.data`` is a field that keeps the graph."""
    TURNED = 128
    """Two of its dimensions were exchanged."""
    SCORES = 256
    """The product of two activations, one of them turned: each position against each other."""
    WEIGHTS = 512
    """A softmax of such scores."""
    LOGITS = 1024
    """The ``logits`` of a model's output, for every position."""
    COLUMN = 2048
    """Made one-dimensional, so mostly one number for each sample."""
    COMPUTED = 4096
    """An operation of torch made it, so that it is one."""
    DOUBTED = 8192
    """On one path a graph was cut from it on purpose, on another one not."""
    MOVED = 16384
    """Moved to the host; beside ``outputs`` on one path alone."""
    PLACED = 32768
    """Moved, on one path at least, to the host or to a place that is not known."""
    HOST = 65536
    """Made on the host, as is all that torch makes without a device, and moved nowhere."""


# Plain integers: the arithmetic of IntFlag takes 35 to 75 times as long, and the engine does it for each tensor that it makes.
SCALAR = int(Flag.SCALAR)
VIEW = int(Flag.VIEW)
INTEGER = int(Flag.INTEGER)
BATCH = int(Flag.BATCH)
DETACHED = int(Flag.DETACHED)
GUESSED = int(Flag.GUESSED)
PACKED = int(Flag.PACKED)
TURNED = int(Flag.TURNED)
SCORES = int(Flag.SCORES)
WEIGHTS = int(Flag.WEIGHTS)
LOGITS = int(Flag.LOGITS)
COLUMN = int(Flag.COLUMN)
COMPUTED = int(Flag.COMPUTED)
DOUBTED = int(Flag.DOUBTED)
MOVED = int(Flag.MOVED)
PLACED = int(Flag.PLACED)
HOST = int(Flag.HOST)


class Tensor(NamedTuple):
    """A tensor.

    graphs   graphs and marks that it is certainly attached to, if those graphs are real
    hints    graphs and marks that it may be attached to
    outputs  forwards whose output storage it keeps alive on the device (under no_grad too)
    flags    what ``Flag`` has
    """

    graphs: frozenset[int] = NOTHING
    hints: frozenset[int] = NOTHING
    outputs: frozenset[int] = NOTHING
    flags: int = 0


class Unknown(NamedTuple):
    """Nothing is known, but it may be attached to these graphs."""

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

WITHOUT_PARTS = frozenset({Const, Plain, Ext, Cls, Func})
"""Atoms that are attached to no graph and hold nothing that is."""

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
    every = list(values)
    atoms = EMPTY.union(*every)
    if len(every) > 2 and all(type(atom) is Tensor or type(atom) is Unknown for atom in atoms):
        return normal(atoms)  # nothing can be widened on the way: all at once, as two by two takes the square of their number
    out = EMPTY
    for value in every:
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
    hints = union([u.hints for u in unknowns]) if unknowns else NOTHING
    if len(others) + len(tuples) > MAX_ATOMS:
        dropped = frozenset(out)
        keep: list[Atom] = [a for a in out if type(a) in (Tensor, Const, Plain)]
        return frozenset([*keep, Unknown(hints | hints_of(dropped))])
    if unknowns:
        out.append(unknowns[0] if len(unknowns) == 1 else Unknown(hints))
    return frozenset(out)


def union(sets: list[frozenset[int]]) -> frozenset[int]:
    """All that is in any of the sets: the largest itself, where it has all of that, so that a thousand values which are
    attached to the same graphs hold one set of them."""
    largest = max(sets, key=len)
    return largest if all(one is largest or one <= largest for one in sets) else largest.union(*sets)


def _join_tensors(tensors: list[Tensor]) -> Tensor:
    first = tensors[0]
    both = first.flags
    either = first.flags
    doubted = any((other.flags ^ first.flags) & DETACHED for other in tensors[1:])
    for other in tensors[1:]:
        both &= other.flags
        either |= other.flags
    return Tensor(
        union([each.graphs for each in tensors]),
        union([each.hints for each in tensors]),
        union([each.outputs for each in tensors]),
        (both & (SCALAR | INTEGER | DETACHED | COLUMN | COMPUTED | HOST))
        | (either & (VIEW | BATCH | PACKED | SCORES | WEIGHTS | LOGITS | DOUBTED | MOVED | PLACED))
        | (DOUBTED if doubted else 0),
    )


def graphs_of(value: Value) -> frozenset[int]:
    """Graphs and marks that the value is certainly attached to, inside tuples too."""
    out = NOTHING
    for atom in value:
        if type(atom) is Tensor:
            out |= atom.graphs
        elif type(atom) is Tuple:
            for item in atom.items:
                out |= graphs_of(item)
    return out


def hints_of(value: Value) -> frozenset[int]:
    """Graphs and marks that the value is certainly or possibly attached to, inside tuples too."""
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


def weight(value: Value) -> int:
    """How much there is to look at in a value: its atoms, and the graphs and marks of each; inside tuples the items alone."""
    count = len(value)
    for atom in value:
        if type(atom) is Tensor:
            count += len(atom.graphs) + len(atom.hints) + len(atom.outputs)
        elif type(atom) is Unknown:
            count += len(atom.hints)
        elif type(atom) is Tuple:
            count += len(atom.items)
    return count


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


def without(value: Value, marks: set[int]) -> Value:
    """The value without marks on its tensors and unknown parts."""
    out: list[Atom] = []
    for atom in value:
        if type(atom) is Tensor:
            out.append(atom._replace(graphs=atom.graphs - marks, hints=atom.hints - marks))
        elif type(atom) is Unknown:
            out.append(Unknown(atom.hints - marks))
        else:
            out.append(atom)
    return frozenset(out)


def mark_attached(value: Value, marks: frozenset[int]) -> Value:
    """As ``add_marks``, but only what may have a graph is marked: of several results, one without says nothing of the others."""
    out: list[Atom] = []
    for atom in value:
        if type(atom) is Tuple:
            out.append(Tuple(tuple(mark_attached(item, marks) for item in atom.items)))
        elif type(atom) is Tensor and not atom.graphs and not atom.hints:
            out.append(atom)
        else:
            out += add_marks(frozenset((atom,)), marks)
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
        elif type(atom) in (Func, Cls, Method):
            answers.add(True)
        else:
            return None  # a name outside may be a setting's as well as a function's
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


def with_flags(value: Value, flags: int) -> Value:
    if not flags:
        return value
    return frozenset(
        Tensor(a.graphs, a.hints, a.outputs, (a.flags | flags) & ~(SCALAR if flags & VIEW else 0)) if type(a) is Tensor else a
        for a in value
    )


def with_flags_set(value: Value, flags: int) -> Value:
    """The value with flags set; a scalar keeps no output alive and is no view."""
    return frozenset(
        Tensor(
            a.graphs,
            a.hints,
            NOTHING if flags & SCALAR else a.outputs,
            (a.flags | flags) & ~(VIEW | BATCH if flags & SCALAR else 0),
        )
        if type(a) is Tensor
        else a
        for a in value
    )


def min_flags(tensors: list[Tensor]) -> int:
    """Flags of an arithmetic result: computed; scalar or integer only when all operands are; never a view."""
    both = tensors[0].flags
    for atom in tensors[1:]:
        both &= atom.flags
    batch = BATCH if any(a.flags & BATCH for a in tensors) and not both & SCALAR else 0
    lasting = 0
    for atom in tensors:
        lasting |= atom.flags & (DOUBTED | PLACED)
    return both & (SCALAR | INTEGER | GUESSED | COLUMN | HOST) | batch | COMPUTED | lasting


def sorted_atoms(value: Value) -> list[Atom]:
    """Atoms in an order that does not depend on hashing: that of their texts, which begin with the name of the type."""
    if len(value) < 2:
        return list(value)
    if len(set(map(type, value))) == len(value):
        return sorted(value, key=_name_of_type)
    return sorted(value, key=repr)


def _name_of_type(atom: Atom) -> str:
    return type(atom).__name__


def shallow(value: Value, depth: int = 3) -> Value:
    """The value with tuples no deeper than ``depth``: what keeps a loop over ``x = (x, y)`` finite."""
    out: list[Atom] = []
    changed = False
    for atom in value:
        if type(atom) is Tuple:
            changed = True
            if depth == 0:
                out.append(Unknown(hints_of(frozenset((atom,)))))
            else:
                out.append(Tuple(tuple(shallow(item, depth - 1) for item in atom.items)))
        else:
            out.append(atom)
    return normal(out) if changed else value


@lru_cache(maxsize=1000)
def literal(text: str) -> Value:
    """The value of a literal's repr, as facts keep it."""

    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return PLAIN
    return const(value) if isinstance(value, (int, float, str, bool, type(None))) else PLAIN


def compare_consts(op: str, left: Value, right: Value) -> Value:
    """The truth of a comparison where both sides are literals (or one of few), else a truth value without graph."""
    lefts = [a for a in left if type(a) is Const]
    rights = [a for a in right if type(a) is Const]
    if op in ("is", "is not") and right == NONE and left and not any(type(a) in (Unknown, Const, Obj) for a in left):
        return const(op == "is not")
    if len(lefts) == len(left) and len(rights) == len(right) and lefts and rights:
        answers = {compare_literals(op, a.value, b.value) for a in lefts for b in rights}
        if len(answers) == 1 and None not in answers:
            return const(answers.pop())
    if op in ("in", "not in") and len(lefts) == len(left) == 1:
        for atom in right:
            if type(atom) is Tuple and all(only_const(i) is not None for i in atom.items):
                values = [only_const(i).value for i in atom.items]  # type: ignore[union-attr]
                return const((lefts[0].value in values) == (op == "in"))
    return PLAIN if op in ("is", "is not", "in", "not in") else FREE_TENSOR


def compare_literals(op: str, left: object, right: object) -> bool | None:
    """How two literals compare; None where that raises, or is not known."""
    match op:
        case "is" | "==":
            return left == right
        case "is not" | "!=":
            return left != right
        case "in" | "not in" if isinstance(left, str) and isinstance(right, str):
            return (left in right) == (op == "in")
        case "<" | ">=" if isinstance(left, int | float) and isinstance(right, int | float):
            return (left < right) == (op == "<")
        case ">" | "<=" if isinstance(left, int | float) and isinstance(right, int | float):
            return (left > right) == (op == ">")
    return None


def only_indices(value: Value) -> bool:
    """Whether all that a value is, or holds in tuples, are indices and truth values."""
    return bool(value) and all(
        (type(a) is Tensor and bool(a.flags & INTEGER))
        or (type(a) is Tuple and bool(a.items) and all(only_indices(item) for item in a.items))
        for a in value
    )


def only_free(value: Value) -> bool:
    """Whether all that a value is, or holds in tuples, are tensors and other values that are attached to nothing."""
    return bool(value) and all(
        type(a) in (Plain, Const)
        or (type(a) is Tensor and not a.graphs and not a.hints and not a.flags & GUESSED)
        or (type(a) is Tuple and bool(a.items) and all(only_free(item) for item in a.items))
        for a in value
    )


def is_text(value: Value) -> bool:
    """Whether a value is known to be a string."""
    return bool(value) and all(type(atom) is Const and type(atom.value) is str for atom in value)


def is_single_number(values: list[Value]) -> bool:
    """Whether the arguments are one tensor without dimensions, and no index: that stands for a row of a table."""
    return (
        len(values) == 1
        and bool(values[0])
        and all(type(a) is Tensor and bool(a.flags & SCALAR) and not a.flags & INTEGER for a in values[0])
    )


def is_number(value: Value) -> bool:
    """Whether a default shows that what it replaces is a number: one that is no empty sum."""
    single = only_const(value)
    return single is not None and type(single.value) in (int, float) and bool(single.value)


def is_zero(value: Value | None) -> bool:
    single = only_const(value) if value is not None else None
    return single is not None and single.value == 0


def names_device(value: Value | None) -> bool:
    """Whether a device that may be meant is a CUDA device."""
    return any(type(a) is Const and isinstance(a.value, str) and a.value.startswith(CUDA) for a in value or ())


def reshape(inner: Value | None, make: Callable[[Tensor], Tensor]) -> Value:
    """A module's result: as its own forward built it, with each tensor remade; one tensor when that is not visible."""
    if inner is None:
        return frozenset((make(Tensor()),))
    out: list[Atom] = []
    for atom in inner:
        if type(atom) is Tensor:
            out.append(make(atom))
        elif type(atom) is Tuple:
            out.append(Tuple(tuple(reshape(item, make) for item in atom.items)))
        elif type(atom) is Unknown:
            out.append(make(Tensor(NOTHING, atom.hints)))
        else:
            out.append(atom)
    return frozenset(out)
