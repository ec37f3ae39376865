"""What the code finds around it: imports, globals, builtins."""

from __future__ import annotations
import __future__

import ast
import builtins
import contextlib
import functools
import importlib
import io
import sys
import types
from collections.abc import Mapping
from typing import Any

from torchmemlint.confirm.worker.harness.harness import Harness
from torchmemlint.confirm.worker.harness.patched_torch import nothing
from torchmemlint.confirm.worker.meter import StorageMeter
from torchmemlint.confirm.worker.program import HARNESS, definitions
from torchmemlint.confirm.worker.standins import CODE, Stage, StandIn
from torchmemlint.confirm.worker.target import Target

REAL_MODULES = frozenset(
    ["torch", "torchvision", "numpy", "math", "cmath", "collections", "itertools", "functools", "operator", "copy", "random", "typing", "typing_extensions", "dataclasses", "enum", "abc", "contextlib", "time", "datetime", "warnings", "string", "re", "statistics", "numbers", "fractions", "decimal", "types", "heapq", "bisect", "json", "csv", "io", "queue", "weakref", "gc", "inspect", "sys", "traceback", "textwrap", "__future__", "array", "struct", "uuid", "hashlib", "tempfile", "errno", "builtins", "asyncio"]
)  # fmt: skip
"""Modules that the code gets as they are, where they are installed; every other import gives a stand-in."""


def compiled(program: ast.Module, file: str = CODE) -> types.CodeType:
    """The program as code that can be executed; its annotations are not."""
    code: types.CodeType = compile(program, file, "exec", __future__.annotations.compiler_flag)
    return code


class Modules:
    """The imports of the code: real where a module is on the list, the project's own files where the job has them, else
    stand-ins."""

    def __init__(self, stage: Stage, target: Target) -> None:
        self._stage = stage
        self._sources, self._packages, self._name = target.modules, target.packages, target.module
        self._loaded: dict[str, Any] = {}

    def load(self, name: str, names: Any = None, scope: Any = None, wanted: Any = (), level: int = 0) -> Any:
        """``__import__`` for the code."""
        absolute = name
        if level:
            importer = (scope or {}).get("__name__", self._name)
            importer = self._name if importer == "__main__" else importer
            here = importer if importer in self._packages else importer.rpartition(".")[0]
            above = here.split(".")[: len(here.split(".")) - (level - 1)]
            absolute = ".".join([*above, *([name] if name else [])])
        if not level and name.split(".")[0] in REAL_MODULES:
            return _import(self._stage, name, wanted, level)
        if absolute in self._sources and wanted:
            return self._project_module(absolute, wanted)
        if wanted and any(f"{absolute}.{item}" in self._sources for item in wanted):
            return _Package(
                self._stage,
                {
                    item: self._project_module(f"{absolute}.{item}", ())
                    for item in wanted
                    if f"{absolute}.{item}" in self._sources
                },
            )
        return _import(self._stage, name, wanted, level)

    def _project_module(self, absolute: str, wanted: Any) -> Any:
        if absolute not in self._loaded:
            self._loaded[absolute] = module = types.SimpleNamespace()
            program = definitions(ast.parse(self._sources[absolute]))
            space = namespace(program, Harness(self._stage, StorageMeter()), self, absolute)
            exec(compiled(program, f"<{absolute}>"), space)
            vars(module).update(space)
        module = self._loaded[absolute]
        return _all_of(vars(module), absolute) if "*" in (wanted or ()) else _Package(self._stage, {**vars(module)})


def _all_of(names: Mapping[str, Any], absolute: str) -> types.ModuleType:
    """A module of the project for ``from … import *``."""
    listed = names.get("__all__")
    public = listed if isinstance(listed, list) else [name for name in names if not name.startswith("_")]
    module = types.ModuleType(absolute)
    vars(module).update({name: names[name] for name in public if name in names})
    return module


class _Package:
    """What a module of the project gives; names that it does not define are stand-ins."""

    def __init__(self, stage: Stage, names: dict[str, Any]) -> None:
        self._stage, self._names = stage, names

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._names[name] if name in self._names else StandIn(self._stage, name, origin="unseen")


class _Base:
    """``super()`` of a receiver that is a stand-in: the methods of the visible bases; what they lack does nothing."""

    def __init__(self, stage: Stage, klass: Any, receiver: Any) -> None:
        object.__setattr__(self, "_about", (stage, klass, receiver))

    def __getattribute__(self, name: str) -> Any:  # every name, "__init__" above all, is the code's
        stage, klass, receiver = object.__getattribute__(self, "_about")
        own = receiver.tml_klass if isinstance(receiver, StandIn) else type(receiver)
        order = own.__mro__ if isinstance(own, type) else ()
        after = order[order.index(klass) + 1 :] if klass in order else ()
        for base in after:
            if name in vars(base) and base is not object and not base.__module__.startswith("torch"):
                found = vars(base)[name]
                return found.__get__(receiver, own) if hasattr(found, "__get__") else found
        return nothing if name.startswith("__") else StandIn(stage, f"super.{name}", origin="part")


def _super(stage: Stage, *given: Any) -> Any:
    frame = sys._getframe(1)
    klass = given[0] if given else frame.f_locals.get("__class__")
    receiver = (
        given[1] if len(given) > 1 else frame.f_locals.get(frame.f_code.co_varnames[0] if frame.f_code.co_varnames else "")
    )
    if isinstance(klass, type) and isinstance(receiver, klass):
        return builtins.super(klass, receiver)
    return _Base(stage, klass, receiver)


def _import(stage: Stage, name: str, wanted: Any, level: int) -> Any:
    top = name.split(".")[0]
    if level == 0 and top in REAL_MODULES:
        with contextlib.suppress(ImportError):
            module = importlib.import_module(name)
            if wanted:
                missing = [item for item in wanted if item != "*" and not hasattr(module, item)]
                for item in missing:
                    with contextlib.suppress(ImportError):
                        importlib.import_module(f"{name}.{item}")
                if all(hasattr(module, item) for item in missing):
                    return module
                return _Partly(stage, module)
            return importlib.import_module(top)
        if not wanted:
            with contextlib.suppress(ImportError):  # a part that is not installed must not take the whole away
                return importlib.import_module(top)
    return StandIn(stage, name if wanted else top, origin="unseen")


class _Partly:
    """A module some of whose names this version does not have."""

    def __init__(self, stage: Stage, module: types.ModuleType) -> None:
        self._stage, self._module = stage, module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name, None)
        return StandIn(self._stage, name, origin="unseen") if found is None else found


def namespace(tree: ast.Module, harness: Harness, modules: Modules, name: str) -> dict[str, Any]:
    """The globals that a program begins with: what it uses and does not define, stand-ins are."""
    own = dict(vars(builtins))
    own.update(
        __import__=modules.load,
        super=functools.partial(_super, harness.stage),
        open=lambda *args, **kwargs: io.StringIO(""),
        input=lambda *args: "",
        print=_print,
        exit=nothing,
        quit=nothing,
        breakpoint=nothing,
    )
    module = types.ModuleType(name)  # dataclasses and pickle look a class's module up
    if name != "__main__":
        sys.modules[name] = module
    space = vars(module)
    space.update({"__builtins__": own, "__name__": name, HARNESS: harness})
    space["__file__"] = "module.py"
    space["__package__"] = name.rpartition(".")[0]
    defined = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    defined |= {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
    defined |= {
        (item.asname or item.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for item in node.names
    }
    defined |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    defined |= {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in defined and node.id not in own and node.id not in space:
            space[node.id] = StandIn(harness.stage, node.id, origin="unseen")
    return space


def _print(*values: object, **options: object) -> None:
    for value in values:
        format(value)
