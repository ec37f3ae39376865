"""Functions and classes outside the project."""

from __future__ import annotations

import sys

from torchmemlint.lower.written import text_of
from torchmemlint.semantics.identity import HOLDERS, class_kind
from torchmemlint.semantics.interpret import (
    arithmetic,
    cut_all,
    leaf_tensor,
    makes_recorder,
    record,
    record_call,
    record_environment,
)
from torchmemlint.semantics.models.builtins import BUILTINS
from torchmemlint.semantics.models.containers import make_container
from torchmemlint.semantics.models.grad_managers import make_manager
from torchmemlint.semantics.models.operations import torch_function
from torchmemlint.semantics.models.trainers import record_trainer
from torchmemlint.semantics.models.unknown_objects import call_opaque
from torchmemlint.semantics.state import (
    CONTAINERS,
    ELEMENTS,
    EMPTY,
    FREE_TENSOR,
    FROZEN,
    KEYS,
    NOTHING,
    PLAIN,
    UNKNOWN,
    Atom,
    Call,
    GradModeMisuse,
    Kind,
    Machine,
    Misuse,
    Mode,
    Obj,
    SinkKind,
    State,
    Tuple,
    Value,
    const,
    join_all,
    truth,
)
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import CallByName

VOLATILE = TORCH.names["volatile"]
GRADIENT_FLAG = TORCH.names["gradient-flag"]
ARRAY_LIBRARIES = TORCH.words["array-libraries"]
"""Top packages whose functions take arrays: a tensor that they are given is turned into one."""

PARALLEL = TORCH.words["parallel"]
"""Last names of modules that run the one module which they are given, on several devices."""


def call_external(m: Machine, name: str, call: Call, state: State) -> Value:
    volatile = truth(call.keywords.get(VOLATILE, const(False))) is True and name.startswith("torch.")
    if volatile and state.mode is not Mode.OFF:  # else what it asks for is so
        m.emit(GradModeMisuse(m.site(call.node), Misuse.VOLATILE, name))
    if name in TORCH.renamed:
        record_call(m, CallByName.RENAMED, name, call)
    if name in TORCH.given_weights:
        oid = m.allocate(Kind.MODULE, call.node, text_of(call.func), name.rpartition(".")[0])
        m.set_frozen(oid, truth(call.get(1, "freeze") or const(True)) is True, state)
        return frozenset((Obj(oid),))
    builtin = BUILTINS.get(name)
    if builtin is not None:
        return builtin(m, call, state)
    if name.startswith("os."):
        set_environment(m, name, call, state)
    effect = TORCH.function_effect(name)
    if effect is not None:
        return torch_function(m, name, effect, call, state)
    kind = class_kind(name)
    if kind is not Kind.THING:
        return construct_external(m, name, kind, call, state)
    settings = m.world.settings
    if name in settings.detaching_calls:
        cut_all(m, call, state, name)
        return FREE_TENSOR
    if name in settings.no_grad_wrappers:
        return make_manager(m, Mode.OFF, call)
    if name in settings.recorders:
        return record(m, name, call, state)
    if makes_recorder(name, m):
        return frozenset((Obj(m.allocate(Kind.THING, call.node, text_of(call.func), name)),))
    return call_library(m, name, call, state)


def set_environment(m: Machine, name: str, call: Call, state: State) -> None:
    """``os.environ.setdefault(key, value)``, ``os.putenv(key, value)``, ``os.environ.update(pairs)``."""
    if name in ("os.environ.setdefault", "os.putenv") and len(call.positional) == 2:
        record_environment(m, call.positional[0], call.positional[1], call.node)
    elif name == "os.environ.update":
        pairs = [(const(word), value) for word, value in call.keywords.items()]
        for atom in join_all(call.positional):
            if type(atom) is Obj and m.heap[atom.oid].kind is Kind.DICT:
                words = [str(getattr(key, "value", "")) for key in state.vars.get((atom.oid, KEYS), EMPTY)]
                pairs += [(const(word[2:-2]), state.vars.get((atom.oid, word), UNKNOWN)) for word in sorted(words)]
        for key, value in pairs:
            record_environment(m, key, value, call.node)


def call_library(m: Machine, name: str, call: Call, state: State) -> Value:
    """A function of which only the package is known."""
    root, _, rest = name.partition(".")
    if name in IMPORTERS:
        return frozenset((Obj(m.outside(Kind.THING, text_of(call.func), None, key=("imported", m.frame, call.node))),))
    if (data := plain_result(m, name, call, state)) is not None:
        return data
    if root == "einops" and name.rpartition(".")[2] not in TORCH.words["gives-plain-parts"]:
        return arithmetic(m, call.all(), call.node, state)
    if root == "torch" and rest and rest[:1].islower() and "." not in rest:
        return arithmetic(m, call.all(), call.node, state)
    return call_opaque(m, text_of(call.func), call, state)


def plain_result(m: Machine, name: str, call: Call, state: State) -> Value | None:
    """What a function of a package gives, or a method of its class (``gym.Env.step``), whose values have no graph; None for others."""
    root = name.partition(".")[0]
    if name in TORCH.inert_calls or (root in sys.stdlib_module_names and root not in TORCH.words["stdlib-with-values"]):
        gids = [m.whole(v, state)[0] for v in call.all()]
        m.sink(NOTHING.union(*gids) if gids else NOTHING, SinkKind.SHOWN, name, call.node)
        return PLAIN
    if root in ARRAY_LIBRARIES:
        cut_all(m, call, state, name)
        return PLAIN
    return None


IMPORTERS = TORCH.words["imports-by-name"]
"""What gives a module of Python's that is named at run time: it may hold anything."""


def construct_external(m: Machine, name: str, kind: Kind, call: Call, state: State) -> Value:
    if kind in CONTAINERS:
        return make_container(m, kind, call, state)
    if kind is Kind.PARAMETER:
        if truth(call.get(1, GRADIENT_FLAG) or const(True)) is False:
            return FREE_TENSOR
        return leaf_tensor(m, call.node, text_of(call.func), state)
    if kind is Kind.DISTRIBUTION:
        oid = m.allocate(kind, call.node, text_of(call.func), name)
        state.vars[oid, ELEMENTS] = arithmetic(m, call.all(), call.node, state)
        return frozenset((Obj(oid),))
    if kind is Kind.MODULE and call.positional:
        wrapped = [a for a in call.positional[0] if type(a) is Obj and m.heap[a.oid].kind in (Kind.MODULE, Kind.THING)]
        if wrapped and name.rpartition(".")[2] in PARALLEL:
            return frozenset(wrapped)
    oid = m.allocate(kind, call.node, text_of(call.func), name)
    if kind is Kind.HF_TRAINER:
        record_trainer(m, name, call)
    if name in HOLDERS:
        held = [a for v in call.all() for a in parts_of(m, v, state)]
        m.bare -= {oid}
        m.bare |= {oid} if held and all(is_bare(m, a) for a in held) else set()
        if held and all(is_bare(m, a) or (type(a) is Obj and m.frozen(a.oid, state)) for a in held):
            state.vars[oid, FROZEN] = const(True)
    return frozenset((Obj(oid),))


def is_bare(m: Machine, atom: Atom) -> bool:
    """Whether this is a module without parameters: a pooling, an activation, or one that is made of such."""
    return type(atom) is Obj and (atom.oid in m.bare or m.heap[atom.oid].kind in (Kind.FUNCTION_MODULE, Kind.LOSS))


def parts_of(m: Machine, value: Value, state: State) -> list[Atom]:
    """What a value is, the items of lists, dictionaries and tuples in the place of these."""
    out: list[Atom] = []
    for atom in value:
        if type(atom) is Tuple:
            out += [a for item in atom.items for a in parts_of(m, item, state)]
        elif type(atom) is Obj and m.heap[atom.oid].kind in CONTAINERS:
            out += [a for item in m.contents(atom.oid, state) for a in item]
        else:
            out.append(atom)
    return out
