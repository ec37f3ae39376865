"""Facts as data that JSON can hold, to be read back: every dataclass is the list of its fields, sets are sorted lists.

The *shape* of facts is what they say without where it stands (``facts.POSITIONS``). Facts are kept as two texts: their shape, of
which a digest is wanted anyway, and ``positions``.
"""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from operator import attrgetter
from typing import Any

from torchmemlint.files.plain import plain_value
from torchmemlint.index.fact_words import AttrKind, ParamKind, ResultUse
from torchmemlint.index.facts import (
    PLACE_NUMBERS,
    POSITIONS,
    ArgFact,
    AttrFact,
    CallableUse,
    CallFact,
    ClassFacts,
    FunctionFacts,
    ModuleFacts,
    ParamFact,
)
from torchmemlint.index.shared import same


def shape(answer: object) -> str:
    """Anything made of facts as JSON text, as ``torchmemlint.files.plain.to_json`` writes it but without rows."""
    return "null" if answer is None else _ENCODER.encode(answer)


_SAYING = {
    kind: attrgetter(*(field.name for field in fields(kind) if field.name not in positions))
    for kind, positions in POSITIONS.items()
}
"""What gets the fields of facts that are no positions."""


def saying(facts: FunctionFacts | ClassFacts | ModuleFacts) -> object:
    """What facts say, without where: equal for two of the same shape."""
    return _SAYING[type(facts)](facts)


def same_shape(one: object, other: object) -> bool:
    """Whether two answers made of facts only differ in rows, if at all."""
    if one is other or type(one) is not type(other):
        return one is other
    if type(one) in POSITIONS:
        one, other = _SAYING[type(one)](one), _SAYING[type(other)](other)
    if type(one) is not tuple or type(other) is not tuple or one == other:
        return one == other
    return len(one) == len(other) and all(map(same_shape, one, other))


def positions(facts: ModuleFacts) -> str:
    """What the shape of a module's facts leaves out, as JSON: numbers for each function and class, in their order, and the rows."""
    functions = [(each.first_row, each.row, each.header_end_row, each.end_row, *each.calls_at) for each in facts.functions]
    classes = [(each.row, each.end_row) for each in facts.classes]
    return _ENCODER.encode((functions, classes, facts.rows, facts.recovered))


def _shape_of(value: Any) -> object:
    if type(value) is frozenset:
        return sorted(value)
    get = _SAYING.get(type(value))
    return get(value) if get is not None else plain_value(value)


_ENCODER = json.JSONEncoder(default=_shape_of, separators=(",", ":"), check_circular=False)  # what is frozen is in no circle


# The members by their words: to look one up takes a tenth of calling the enum.
_USES = {word.value: word for word in ResultUse}
_PARAM_KINDS = {word.value: word for word in ParamKind}
_ATTR_KINDS = {word.value: word for word in AttrKind}


def from_plain(shape: str, positions: str) -> ModuleFacts:
    """The facts of which these are the ``shape`` and the ``positions``. Raises ValueError for anything that has not their form."""
    try:
        return _module(json.loads(shape), json.loads(positions))
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise ValueError(f"not the plain form of facts: {error}") from None


def _strings(plain: Any) -> tuple[str, ...]:
    return tuple(map(sys.intern, plain))


def _pairs(plain: Any) -> tuple[tuple[str, str], ...]:
    return tuple((sys.intern(one), sys.intern(two)) for one, two in plain)


def _args(plain: Any) -> tuple[ArgFact, ...]:
    return same(ArgFact, tuple(ArgFact(*map(sys.intern, row)) for row in plain)) if plain else ()


def _use(plain: Any) -> CallableUse:
    callee, args, called, alternative, statement = plain
    return CallableUse(callee, _args(args), called, None if alternative is None else _use(alternative), statement)


def _uses(plain: Any) -> tuple[CallableUse, ...]:
    return tuple(map(_use, plain))


def _param(plain: Any) -> ParamFact:
    name, annotation, default, kind, required = plain
    return ParamFact(sys.intern(name), sys.intern(annotation), sys.intern(default), _PARAM_KINDS[kind], required)


def _attr(plain: Any) -> AttrFact:
    name, kind, *texts = plain
    return AttrFact(sys.intern(name), _ATTR_KINDS[kind], *map(sys.intern, texts))


def _call(plain: Any) -> CallFact:
    callee, args, loops, managers, used, branch, place, deferred = plain
    return CallFact(sys.intern(callee), _args(args), loops, _uses(managers), _USES[used], _strings(branch), place, deferred)


def _function(plain: Any, rows: Any) -> FunctionFacts:
    (
        qualname, owner, parent, params, decorators, is_async, is_generator, calls, names, bound, returns, rebound, local_names,
        reads, tested, returned, wraps, yields, leaves, taken, unsure, constants, stores,
    ) = plain  # fmt: skip
    first_row, row, header_end_row, end_row, *calls_at = rows
    if len(calls_at) != PLACE_NUMBERS * len(calls):
        raise ValueError(f"{PLACE_NUMBERS} numbers for each call")
    return FunctionFacts(
        qualname=qualname,
        first_row=first_row,
        row=row,
        header_end_row=header_end_row,
        end_row=end_row,
        owner=owner,
        parent=parent,
        params=same(ParamFact, tuple(map(_param, params))),
        decorators=_uses(decorators),
        is_async=is_async,
        is_generator=is_generator,
        calls=tuple(map(_call, calls)),
        calls_at=tuple(calls_at),
        names=same(str, frozenset(_strings(names))),
        bound=same(str, _pairs(bound)),
        returns=returns,
        rebound=_pairs(rebound),
        locals=same(str, frozenset(_strings(local_names))),
        reads=same(str, frozenset(_strings(reads))),
        tested=same(str, frozenset(_strings(tested))),
        returned=_uses(returned),
        wraps=_uses(wraps),
        yields=tuple(map(_uses, yields)),
        leaves=_uses(leaves),
        taken=same(str, frozenset(_strings(taken))),
        unsure=frozenset(_strings(unsure)),
        constants=_pairs(constants),
        stores=frozenset(_strings(stores)),
    )


def _class(plain: Any, rows: Any) -> ClassFacts:
    qualname, bases, decorators, methods, attrs = plain
    row, end_row = rows
    return ClassFacts(qualname, row, end_row, _strings(bases), _uses(decorators), _pairs(methods), tuple(map(_attr, attrs)))


def _module(plain: Any, positions: Any) -> ModuleFacts:
    path, imports, assigned, functions, classes, needs = plain
    rows_of_functions, rows_of_classes, rows, recovered = positions
    return ModuleFacts(
        path=path,
        imports=_pairs(imports),
        assigned=_pairs(assigned),
        functions=tuple([_function(*each) for each in zip(functions, rows_of_functions, strict=True)]),
        classes=tuple([_class(*each) for each in zip(classes, rows_of_classes, strict=True)]),
        rows=rows,
        recovered=recovered,
        needs=_strings(needs),
    )
