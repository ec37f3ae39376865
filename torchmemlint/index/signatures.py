"""The header of a function: its parameters, its rows."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from torchmemlint.index.dotted import annotation_text, literal
from torchmemlint.index.fact_words import ParamKind
from torchmemlint.index.facts import CallableUse, ParamFact


def receiver_name(node: ast.FunctionDef | ast.AsyncFunctionDef, decorators: Iterable[CallableUse]) -> str:
    """The name that a method's instance goes by, "" in a static or class method."""
    if any(use.callee in ("staticmethod", "classmethod") for use in decorators):
        return ""
    first = [*node.args.posonlyargs, *node.args.args][:1]
    return first[0].arg if first else ""


def all_arguments(arguments: ast.arguments) -> Iterator[ast.arg]:
    yield from arguments.posonlyargs
    yield from arguments.args
    if arguments.vararg:
        yield arguments.vararg
    yield from arguments.kwonlyargs
    if arguments.kwarg:
        yield arguments.kwarg


def params_of(arguments: ast.arguments) -> Iterator[ParamFact]:
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    for argument, default in zip(positional, defaults, strict=True):
        yield _param(argument, default, ParamKind.POSITIONAL)
    if arguments.vararg:
        yield _param(arguments.vararg, None, ParamKind.VAR_POSITIONAL)
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _param(argument, default, ParamKind.KEYWORD)
    if arguments.kwarg:
        yield _param(arguments.kwarg, None, ParamKind.VAR_KEYWORD)


def _param(argument: ast.arg, default: ast.expr | None, kind: ParamKind) -> ParamFact:
    return _param_fact(
        argument.arg,
        annotation_text(argument.annotation),
        literal(default) if default is not None else "",
        kind,
        default is None and kind in (ParamKind.POSITIONAL, ParamKind.KEYWORD),
    )


@lru_cache(maxsize=5000)
def _param_fact(name: str, annotation: str, default: str, kind: ParamKind, required: bool) -> ParamFact:
    return ParamFact(name, annotation, default, kind, required)  # a project's functions have many of the same


def header_end(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: Sequence[str]) -> int:
    """The row of the colon that ends a ``def``."""
    row = node.lineno
    for argument in all_arguments(node.args):
        row = max(row, argument.end_lineno or row)
    for expression in [*node.args.defaults, *node.args.kw_defaults, node.returns]:
        if expression is not None:
            row = max(row, expression.end_lineno or row)
    # Only closing brackets, commas and comments can stand between here and the colon.
    body = node.body[0].lineno
    while row < body and not lines[row - 1].partition("#")[0].rstrip().endswith(":"):
        row += 1
    return min(row, body)
