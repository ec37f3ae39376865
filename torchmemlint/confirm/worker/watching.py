"""Runs a user's script unchanged but for a look at the flagged statements. Started by path, with any Python that has torch.

    watching.py SPEC.json script.py ARGS…      or      watching.py SPEC.json -m package.module ARGS…

After each flagged statement a call is put in, with the statement's own row, that looks at what the statement changed:
the first eight
times, then at 16, 32 …, and never for more than a twentieth of the time that the script has run. Nothing else of the
script is touched.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import time
import types
from collections.abc import Mapping, Sequence
from typing import Any

SHARE = 0.05
CONSECUTIVE = 8
NODE_LIMIT = 20_000
WATCH = "__tml_watch__"


class Watcher:
    """Keeps what was seen at each flagged statement, by its number."""

    def __init__(self, report: str) -> None:
        self._report = report
        self._started = self._written = time.monotonic()
        self._spent = 0.0
        self.hits: dict[int, int] = {}
        self.samples: dict[int, list[dict[str, object]]] = {}
        self.backwards: dict[int, int] = {}

    def __call__(self, number: int, place: object) -> Any:
        """Look at ``place``, now and then; gives it back."""
        hit = self.hits[number] = self.hits.get(number, 0) + 1
        if hit > CONSECUTIVE and (hit & (hit - 1) or self._spent > SHARE * (time.monotonic() - self._started)):
            return place
        if "torch" not in sys.modules:
            return place
        begin = time.monotonic()
        with contextlib.suppress(Exception):  # a look must never end the script
            self._look(number, hit, place)
        now = time.monotonic()
        self._spent += now - begin
        if now - self._written > 2:
            self.write(None)
        return place

    def _look(self, number: int, hit: int, place: object) -> None:
        import torch

        from torchmemlint.confirm.worker.meter import tensors_in, walk

        attached = size = 0
        for tensor in tensors_in(place, limit=5_000):
            size += tensor.untyped_storage().nbytes()
            if tensor.requires_grad:
                attached += 1
                if tensor.grad_fn is not None and isinstance(place, torch.Tensor):
                    tensor.register_hook(lambda _, number=number: self._went_back(number))
        graph = walk(place, NODE_LIMIT)
        live = torch.cuda.memory_allocated() if torch.cuda.is_available() and _uses_cuda(torch) else None
        self.samples.setdefault(number, []).append(
            {
                "hit": hit, "nodes": graph.nodes, "retained_bytes": graph.retained_bytes, "slots": graph.slots,
                "freed_slots": graph.freed_slots, "tensors": graph.tensors, "tensor_bytes": size,
                "attached": attached, "truncated": graph.truncated, "live_bytes": live, "grad": torch.is_grad_enabled(),
                "kind": "number" if isinstance(place, (int, float, complex)) else type(place).__name__,
            }
        )  # fmt: skip

    def _went_back(self, number: int) -> None:
        self.backwards[number] = self.backwards.get(number, 0) + 1

    def write(self, ending: str | None) -> None:
        """Put what is known into the report file."""
        self._written = time.monotonic()
        torch = sys.modules.get("torch")
        seen = {
            "hits": self.hits, "samples": self.samples, "backwards": self.backwards, "ending": ending, "spent": self._spent,
            "seconds": self._written - self._started, "torch": getattr(torch, "__version__", ""), "device": _device(torch),
        }  # fmt: skip
        part = self._report + ".part"
        with open(part, "w", encoding="utf-8") as file:
            json.dump(seen, file)
        os.replace(part, self._report)


def _uses_cuda(torch: Any) -> bool:
    return bool(torch.cuda.is_initialized())


def _device(torch: Any) -> str:
    with contextlib.suppress(Exception):
        if _uses_cuda(torch):
            return str(torch.cuda.get_device_name())
    return "cpu"


def instrument(tree: ast.Module, rows: Sequence[tuple[int, int]]) -> ast.Module:
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


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles a flagged file with the looks in; its bytecode is not cached."""

    rows: Sequence[tuple[int, int]] = ()

    def get_code(self, fullname: str) -> types.CodeType | None:
        data = self.get_data(self.path)
        return self.source_to_code(data, self.path)

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> types.CodeType:  # type: ignore[override]
        code: types.CodeType = compile(
            instrument(ast.parse(data), self.rows), path, "exec", dont_inherit=True, optimize=_optimize
        )
        return code


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, files: Mapping[str, Sequence[tuple[int, int]]]) -> None:
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


def _main_module(
    arguments: Sequence[str], files: Mapping[str, Sequence[tuple[int, int]]]
) -> tuple[types.CodeType, types.ModuleType]:
    """The program as ``__main__``, its own file instrumented when it is flagged."""
    module = types.ModuleType("__main__")
    if arguments[0] == "-m":
        name = arguments[1]
        sys.path[0] = os.getcwd()
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
        if spec is None or not spec.origin:
            sys.exit(f"{sys.executable}: No module named {name}")
        path = spec.origin
        module.__spec__, module.__package__ = spec, spec.parent
        sys.argv = [path, *arguments[2:]]
    else:
        path = arguments[0]
        sys.path[0] = os.path.dirname(os.path.abspath(path))
        sys.argv = list(arguments)
        module.__package__ = None
    module.__file__ = path
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(), path)
    except OSError as error:
        sys.exit(f"{sys.executable}: can't open file {path!r}: {error}")
    tree = instrument(tree, files.get(os.path.realpath(path), ()))
    return compile(tree, path, "exec", dont_inherit=True), module


def main() -> None:
    """Run the script; whatever its end, write the report first."""
    specification, arguments = sys.argv[1], sys.argv[2:]
    with open(specification, encoding="utf-8") as file:
        spec = json.load(file)
    sys.path.append(spec["root"])
    files = {path: [(row, number) for row, number in rows] for path, rows in spec["files"].items()}
    watcher = Watcher(spec["report"])
    import builtins

    setattr(builtins, WATCH, watcher)  # seen from every module, and shadowed by none
    sys.meta_path.insert(0, _Finder(files))
    ending = "failed"
    try:
        code, module = _main_module(arguments, files)
        sys.modules["__main__"] = module
        exec(code, module.__dict__)
        ending = "finished"
    except KeyboardInterrupt:
        ending = "interrupted"
        raise
    except SystemExit as error:
        ending = "finished" if error.code in (None, 0) else "failed"
        raise
    except BaseException as error:
        # the traceback starts in the script, as if it had been run alone
        trace = error.__traceback__
        error.__traceback__ = trace.tb_next if trace else None
        sys.excepthook(type(error), error, error.__traceback__)
        watcher.write("failed")
        sys.exit(1)
    finally:
        watcher.write(ending)


if __name__ == "__main__":
    main()
