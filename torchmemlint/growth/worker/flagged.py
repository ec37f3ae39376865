"""Looks at flagged lines, for ``run --check``.

After each flagged statement a call is put in, with the statement's own row, that looks at what the statement changed: the first eight
times, then at 16, 32 …, and never for more than a twentieth of the time that the program has run. Nothing else of the program is touched.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib.abc
import importlib.machinery
import os
import sys
import time
import types
from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[tuple[int, int]]
"""Rows of a file, each with the number of the finding there."""

SHARE = 0.05
CONSECUTIVE = 8
NODE_LIMIT = 20_000
WATCH = "__tml_watch__"


class Looks:
    """Keeps what was seen at each flagged statement, by its number. ``files``: the rows of each file that has some."""

    def __init__(self, files: Mapping[str, Rows]) -> None:
        self._files = files
        self._started = time.monotonic()
        self._spent = 0.0
        self._hits: dict[int, int] = {}
        self._samples: dict[int, list[dict[str, object]]] = {}
        self._backwards: dict[int, int] = {}

    def install(self) -> None:
        """From now on, flagged files are imported with the looks in."""
        setattr(builtins, WATCH, self)  # seen from every module, and shadowed by none
        sys.meta_path.insert(0, _Finder(self._files))

    def compiled(self, text: str | bytes, path: str) -> types.CodeType:
        """The program's own file, with the looks in."""
        return _compiled(text, path, self._files.get(os.path.realpath(path), ()))

    def seen(self) -> dict[str, object]:
        """What was seen, as plain data."""
        return {"hits": self._hits, "samples": self._samples, "backwards": self._backwards}

    def __call__(self, number: int, place: object) -> Any:
        """Look at ``place``, now and then; gives it back."""
        hit = self._hits[number] = self._hits.get(number, 0) + 1
        if hit > CONSECUTIVE and (hit & (hit - 1) or self._spent > SHARE * (time.monotonic() - self._started)):
            return place
        if "torch" not in sys.modules:
            return place
        begin = time.monotonic()
        with contextlib.suppress(Exception):  # a look must never end the script
            self._look(number, hit, place)
        self._spent += time.monotonic() - begin
        return place

    def _look(self, number: int, hit: int, place: object) -> None:
        import torch

        from torchmemlint.confirm.worker.graphs import tensors_in, walk

        attached = size = 0
        for tensor in tensors_in(place, limit=5_000):
            size += tensor.untyped_storage().nbytes()
            if tensor.requires_grad:
                attached += 1
                if tensor.grad_fn is not None and isinstance(place, torch.Tensor):
                    tensor.register_hook(lambda _, number=number: self._went_back(number))
        graph = walk(place, NODE_LIMIT)
        self._samples.setdefault(number, []).append(
            {
                "hit": hit, "nodes": graph.nodes, "retained_bytes": graph.retained_bytes, "slots": graph.slots,
                "freed_slots": graph.freed_slots, "tensors": graph.tensors, "tensor_bytes": size,
                "attached": attached,
            }
        )  # fmt: skip

    def _went_back(self, number: int) -> None:
        self._backwards[number] = self._backwards.get(number, 0) + 1


def instrument(tree: ast.Module, rows: Rows) -> ast.Module:
    """Put a look after the statements at these rows; ``rows`` are (row, number) pairs. Row numbers of the file stay."""
    wanted: dict[int, list[int]] = {}
    for row, number in rows:
        statement = _innermost(tree, row)
        if statement is not None:
            wanted.setdefault(id(statement), []).append(number)
    if wanted:
        _Insert(wanted).visit(tree)
    return ast.fix_missing_locations(tree)


def _innermost(tree: ast.Module, row: int) -> ast.stmt | None:
    found: ast.stmt | None = None
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.lineno <= row <= (node.end_lineno or row):
            if found is None or node.lineno >= found.lineno:
                found = node
    return found


class _Insert(ast.NodeTransformer):
    def __init__(self, wanted: Mapping[int, Sequence[int]]) -> None:
        self._wanted = wanted

    def visit(self, node: ast.AST) -> Any:
        numbers = self._wanted.get(id(node), ())
        done = self.generic_visit(node)
        if not numbers or not isinstance(done, ast.stmt):
            return done
        result: ast.AST | list[ast.stmt] = done
        for number in numbers:
            target = _changed(done)
            if target is not None:
                look = ast.copy_location(ast.Expr(_watch(number, ast.parse(ast.unparse(target), mode="eval").body)), done)
                result = [*(result if isinstance(result, list) else [done]), look]
            elif isinstance(done, (ast.Return, ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign)) and done.value is not None:
                done.value = ast.copy_location(_watch(number, done.value), done.value)
            elif isinstance(done, (ast.For, ast.AsyncFor)):
                continue
            elif isinstance(done, (ast.If, ast.While)):
                done.test = ast.copy_location(_watch(number, done.test), done.test)
        return result


def _watch(number: int, value: ast.expr) -> ast.expr:
    if isinstance(value, (ast.Yield, ast.YieldFrom, ast.Await)):
        return value
    return ast.Call(ast.Name(WATCH, ast.Load()), [ast.Constant(number), value], [])


def _changed(statement: ast.stmt) -> ast.expr | None:
    """What a statement stores into, when that is a name, an attribute or a constant item; None: look at its value instead."""
    target: ast.expr | None = None
    if isinstance(statement, (ast.AugAssign, ast.AnnAssign)) and statement.value is not None:
        target = statement.target
    elif isinstance(statement, ast.Assign):
        target = statement.targets[0]
    elif (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Attribute)
    ):
        target = statement.value.func.value
    while isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Constant):
        target = target.value
    if isinstance(target, (ast.Tuple, ast.List)) and target.elts and all(isinstance(item, ast.Name) for item in target.elts):
        return ast.Tuple([ast.Name(item.id, ast.Load()) for item in target.elts if isinstance(item, ast.Name)], ast.Load())
    plain = isinstance(target, (ast.Name, ast.Attribute, ast.Subscript))
    if plain and target is not None and not any(isinstance(node, ast.Call) for node in ast.walk(target)):
        return target
    return None


def _compiled(text: str | bytes, path: str, rows: Rows, optimize: int = -1) -> types.CodeType:
    tree = instrument(ast.parse(text, path), rows)
    code: types.CodeType = compile(tree, path, "exec", dont_inherit=True, optimize=optimize)
    return code


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles a flagged file with the looks in; its bytecode is not cached."""

    rows: Rows = ()

    def get_code(self, fullname: str) -> types.CodeType | None:
        return self.source_to_code(self.get_data(self.path), self.path)

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> types.CodeType:  # type: ignore[override]
        return _compiled(data, path, self.rows, _optimize)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, files: Mapping[str, Rows]) -> None:
        self._files = files

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader) or not spec.origin:
            return None
        rows = self._files.get(os.path.realpath(spec.origin))
        if rows is None:
            return None
        spec.loader = _Loader(fullname, spec.origin)
        spec.loader.rows = rows
        return spec
