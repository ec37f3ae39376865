"""Dataclasses and named tuples as data that JSON can hold, read back by the types that their fields declare.

Read back by the types that the fields declare, and by nothing that the data says, so that it may come from anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_json(value: object) -> str:
    """Any value made of dataclasses, named or other tuples, sets, enums, strings, numbers, booleans and None, in one line of ASCII."""
    return _ENCODER.encode(value)


def from_plain(kind: type[T], plain: object) -> T:
    """The value of this type that ``to_json`` was given, from what ``json.loads`` made of it. Raises ValueError for anything
    that has not its form."""
    try:
        of: Any = kind
        value: T = reader(of)(plain)
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise ValueError(f"not the plain form of a {kind.__name__}: {error}") from None
    return value


@cache
def _values_of(kind: Any) -> Callable[[object], object]:
    names = [field.name for field in fields(kind)]
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda value: (get(value),)


def plain_value(value: Any) -> object:
    """One value of ``to_json`` that JSON does not know, by what it is made of. Raises TypeError for what has no plain form."""
    if isinstance(value, frozenset | set):
        return sorted(value)
    if isinstance(value, Enum):
        return value.value
    kind: Any = type(value)
    if is_dataclass(value):
        return _values_of(kind)(value)
    raise TypeError(f"{type(value).__name__} has no plain form")


_ENCODER = json.JSONEncoder(default=plain_value, separators=(",", ":"), check_circular=False)
"""Made once: an encoder of its own for each of many small values would take longer than they do."""


@cache
def reader(kind: Any) -> Callable[[Any], Any]:
    """What makes values of a type out of what ``json.loads`` gave; it raises ValueError, or whatever a wrong form leads to.
    Raises TypeError for a type that has no plain form."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in (str, int, bool, float, type(None)):
        return lambda plain: _of_type(kind, plain)
    if origin in (Union, UnionType):
        options = [option for option in inner if option is not type(None)]
        others = [reader(option) for option in options if option is not str]
        if len(others) > 1:
            raise TypeError(f"{kind} is not one type, text or None")
        if str not in options:
            only = others[0]
            return lambda plain: None if plain is None else only(plain)
        other = others[0] if others else reader(str)
        return lambda plain: plain if plain is None or type(plain) is str else other(plain)
    if origin is Literal:
        return lambda plain: inner[inner.index(plain)]
    if origin is tuple and inner[1:] == (...,):
        read = reader(inner[0])
        return lambda plain: tuple(map(read, _of_type(list, plain)))
    if origin is tuple:
        each = [reader(one) for one in inner]
        return lambda plain: tuple(read(one) for read, one in zip(each, _of_type(list, plain), strict=True))
    if origin is dict:
        of_key, of_value = map(reader, inner)
        return lambda plain: {of_key(key): of_value(value) for key, value in _of_type(dict, plain).items()}
    if origin is frozenset:
        read = reader(inner[0])
        return lambda plain: frozenset(map(read, _of_type(list, plain)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields")):
        return lambda plain: kind(*(read(one) for read, one in zip(_field_readers(kind), _of_type(list, plain), strict=True)))
    raise TypeError(f"{kind} cannot be read back")


@cache
def _field_readers(kind: Any) -> list[Callable[[Any], Any]]:
    hints = get_type_hints(kind)
    return [reader(hints[name]) for name in getattr(kind, "_fields", None) or [field.name for field in fields(kind)]]


def _of_type(kind: type, plain: Any) -> Any:
    if type(plain) is not kind:
        raise ValueError(f"{plain!r} is no {kind.__name__}")
    return plain
