"""The values with which a constructor is followed: Python's own as they are, modules by the number of their parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.semantics.size.layers import Unbounded
from torchmemlint.torch_facts import TORCH

MOVES = TORCH.words["keeps-parameters"]


@dataclass(slots=True)
class UnknownPart:
    """A value of which nothing is known; ``count`` are its parameters, if it is a module."""

    count: int = 0
    attrs: dict[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class OneOf(UnknownPart):
    """One of some values, by a test that is not known: ``act = nn.ReLU if last else nn.Tanh``."""

    options: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Symbol:
    """A function or class: of the project, or by its absolute name."""

    of: FunctionRef | ClassRef | str


def plain_value(literal: str) -> object:
    """A number, a truth value or a string, by its literal."""
    if literal in ("False", "True"):
        return literal == "True"
    if literal[:1] in ("'", '"') and "\\" not in literal:
        return literal[1:-1]
    return int(literal) if literal.isdecimal() else UnknownPart()


def flat(value: object) -> list[object]:
    """A value, or those in lists of it."""
    if isinstance(value, dict):
        value = list(value.values())
    return [inner for item in value for inner in flat(item)] if isinstance(value, (list, tuple)) else [value]


def compared(op: str, left: object, right: object) -> object:
    if isinstance(left, (UnknownPart, Symbol)) or isinstance(right, (UnknownPart, Symbol)):
        return UnknownPart()
    if op in ("is", "is not", "==", "!="):
        return (left == right) is (op in ("is", "=="))
    if op in ("in", "not in"):
        return (left in right) is (op == "in")  # type: ignore[operator]
    found = {"<": left < right, ">": left > right, "<=": left <= right, ">=": left >= right}  # type: ignore[operator]
    return found.get(op, UnknownPart())


def method_of_value(held: object, name: str, args: list[object]) -> object:
    """A method of a list, a dict or of something that is not known: no layer is made by it."""
    if isinstance(held, list) and name in ("append", "extend", "insert"):
        if name == "extend" and not isinstance(args[0], (list, tuple)):
            raise Unbounded
        held.extend(args[0] if name == "extend" else [args[-1]])  # type: ignore[arg-type]
        return None
    if isinstance(held, dict) and name in ("items", "keys", "values"):
        return list(getattr(held, name)())
    if isinstance(held, str) and name in ("startswith", "endswith") and isinstance(args[0], (str, tuple)):
        return bool(getattr(held, name)(args[0]))
    if isinstance(held, str) and name in ("lower", "upper", "strip"):
        return getattr(held, name)()
    if isinstance(held, dict) and name == "get" and args:
        return held.get(args[0], args[1] if len(args) > 1 else None)
    return held if isinstance(held, UnknownPart) and (name in MOVES or name.endswith("_")) else UnknownPart()


def built_in(name: str, args: list[object], keywords: dict[str, object]) -> object:
    """One of Python's own functions."""
    if any(isinstance(arg, (UnknownPart, Symbol)) for arg in args):
        return UnknownPart()
    plain: dict[str, Callable[..., object]] = {
        "int": int, "float": float, "len": len, "max": max, "min": min, "sum": sum, "abs": abs, "round": round,
        "list": list, "tuple": tuple, "range": range, "bool": bool, "dict": dict,
    }  # fmt: skip
    if name in plain:
        return plain[name](*args, **(keywords if name == "dict" else {}))
    if name in ("enumerate", "zip", "reversed"):
        return [
            tuple(each) if isinstance(each, tuple) else each
            for each in {"enumerate": enumerate, "zip": zip, "reversed": reversed}[name](*args)
        ]
    if name in ("getattr", "eval", "exec", "__import__"):
        raise Unbounded
    return UnknownPart()
