"""Canonical text of IR expressions: for names in messages, for guards, for tests that decide a phase."""

from __future__ import annotations

from torchmemlint.lower import ir


def text_of(expr: ir.Expr | None, depth: int = 6) -> str:
    """The expression on one line, "…" for what is long or unusual."""
    if expr is None:
        return ""
    if depth == 0:
        return "…"
    match expr:
        case ir.Name():
            return expr.id
        case ir.Attr():
            return f"{text_of(expr.value, depth - 1)}.{expr.name}"
        case ir.Const():
            return repr(expr.value) if expr.value is not ... else "..."
        case ir.Call():
            inner = ", ".join(
                arg.star + (f"{arg.keyword}=" if arg.keyword else "") + text_of(arg.value, depth - 2 if depth > 2 else 0)
                for arg in expr.args[:4]
            )
            return f"{text_of(expr.func, depth - 1)}({inner}{', …' if len(expr.args) > 4 else ''})"
        case ir.Subscript():
            return f"{text_of(expr.value, depth - 1)}[{', '.join(text_of(i, depth - 1) for i in expr.index)}]"
        case ir.Slice():
            return ":"
        case ir.Sequence():
            opened, closed = {"list": ("[", "]"), "tuple": ("(", ")"), "set": ("{", "}")}[expr.kind]
            return opened + ", ".join(text_of(i, depth - 2 if depth > 2 else 0) for i in expr.items[:4]) + closed
        case _:
            return _operation(expr, depth)


def _operation(expr: ir.Expr, depth: int) -> str:
    """As ``text_of``, for operators and their operands."""
    match expr:
        case ir.Compare():
            parts = [text_of(expr.left, depth - 1)]
            for op, right in zip(expr.ops, expr.comparators, strict=True):
                parts += [op, text_of(right, depth - 1)]
            return " ".join(parts)
        case ir.Unary():
            space = " " if expr.op == "not" else ""
            return f"{expr.op}{space}{text_of(expr.value, depth - 1)}"
        case ir.BoolOp() | ir.Binary():
            return f"{text_of(expr.left, depth - 1)} {expr.op} {text_of(expr.right, depth - 1)}"
        case ir.Await():
            return f"await {text_of(expr.value, depth - 1)}"
        case _:
            return "…"


def conditions(test: ir.Expr, holds: bool) -> list[str]:
    """What holds where a test does, or does not, as texts: ``not (a % n != 0 or b)`` is ``a % n == 0`` and ``not b``."""
    match test:
        case ir.Unary(op="not"):
            return conditions(test.value, not holds)
        case ir.BoolOp() if holds is (test.op == "and"):
            return [*conditions(test.left, holds), *conditions(test.right, holds)]
        case ir.Compare(ops=[op]) if not holds:
            return [text_of(ir.Compare(test.node, test.left, [OPPOSITE[op]], test.comparators))]
        case ir.Binary(op="%"):
            return [f"{text_of(test)} {'!=' if holds else '=='} 0"]
        case _:
            return [text_of(test) if holds else f"not {text_of(test)}"]


OPPOSITES = [("==", "!="), ("<", ">="), (">", "<="), ("is", "is not"), ("in", "not in")]
OPPOSITE = dict(OPPOSITES) | {right: left for left, right in OPPOSITES}


def are_opposite(one: str, other: str) -> bool:
    """Whether of two conditions, as ``conditions`` writes them, one holds where the other does not."""
    flipped = (one.replace(f" {op} ", f" {opposite} ", 1) for op, opposite in OPPOSITE.items() if f" {op} " in one)
    return other in (f"not {one}", *flipped) or one == f"not {other}"


def short(text: str, width: int = 40) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def dotted(expr: ir.Expr) -> str:
    """ "a.b.c" for names and attributes, with "()" after called parts, "" for anything else (as in ``index.facts``)."""
    match expr:
        case ir.Name():
            return expr.id
        case ir.Attr():
            inner = dotted(expr.value)
            return f"{inner}.{expr.name}" if inner else ""
        case ir.Call():
            inner = dotted(expr.func)
            return f"{inner}()" if inner else ""
        case _:
            return ""
