"""What stands in for packages that are not installed: for their modules, functions, objects."""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from torchmemlint.budget.worker.measure import Unknown
from torchmemlint.budget.worker.patch import put
from torchmemlint.budget.worker.surroundings import Data
from torchmemlint.confirm.worker.standins import Stage, StandIn, unpack_count


class Packages(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Comes last: a package that nobody finds is a stand-in. ``optional`` are the (file, line) of imports that the program
    guards itself: these fail, as they would."""

    def __init__(self, own: Callable[[str], bool], stage: Stage) -> None:
        self._own, self._stage = own, stage
        self.optional: set[tuple[str, int]] = set()
        self.missing: set[str] = set()

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname.partition(".")[0] in sys.stdlib_module_names:
            return None
        frame: Any = sys._getframe(1)
        while frame is not None and not self._own(frame.f_code.co_filename):
            code = frame.f_code
            if "importlib" not in code.co_filename and "importlib" not in frame.f_globals.get("__name__", ""):
                return None  # an installed package tries something out
            frame = frame.f_back
        if frame is None or (frame.f_code.co_filename, frame.f_lineno) in self.optional:
            return None
        self.missing.add(fullname.partition(".")[0])
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Missing(spec.name, self._stage)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


class _Missing(types.ModuleType):
    def __init__(self, name: str, stage: Stage) -> None:
        super().__init__(name)
        self._tml_stage = stage

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(self._tml_stage, f"{self.__name__}.{name}", origin="unseen")


_LOGGERS = ("torch.utils.tensorboard", "tensorboardX", "wandb")
"""What writes files or sends data, and keeps no tensor."""


def no_loggers(stage: Stage) -> None:
    """Loggers are stand-ins, installed or not."""
    for name in _LOGGERS:
        sys.modules[name] = made = _Missing(name, stage)
        made.__spec__ = importlib.machinery.ModuleSpec(name, None)


def optional_imports(tree: ast.AST, path: str) -> set[tuple[str, int]]:
    """Imports inside a ``try`` with a handler: they fail, as they would."""
    return {
        (path, node.lineno)
        for block in ast.walk(tree) if isinstance(block, ast.Try) and block.handlers
        for statement in block.body for node in ast.walk(statement) if isinstance(node, (ast.Import, ast.ImportFrom))
    }  # fmt: skip


# -- objects of such packages


def limit_stand_ins(note: Callable[[str], str], data: Data) -> None:
    """A stand-in of ``confirm`` makes up tensors and numbers; here, where sizes count, nobody knows them. It serves to get to the
    program's model."""

    def unknown(self: Any, *args: Any) -> Any:
        raise Unknown(note(f"`{self.tml_name}` is not installed or not here, so its tensor is unknown"))

    def iterate(self: Any) -> Iterator[Any]:
        count = unpack_count(sys._getframe(1))
        if count is not None:
            return iter([StandIn(self.tml_stage, f"{self.tml_name}[{index}]") for index in range(count)])
        batches: Iterator[Any] = data.fetches.counted(data.endless(str(self.tml_name)))
        return batches

    def item(self: Any, key: Any) -> Any:
        known = isinstance(key, (str, int))
        return self.tml_parts.setdefault(
            ("item", key if known else repr(key)), StandIn(self.tml_stage, f"{self.tml_name}[{repr(key) if known else '…'}]")
        )

    def array(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Without this, NumPy goes through a thousand items, of each a thousand, and so on."""
        raise TypeError(f"`{self.tml_name}` is missing, so its array is unknown")

    def number(self: Any) -> int:
        return data.number(str(self.tml_name))

    put(StandIn, "tml_tensor", unknown)
    put(StandIn, "tml_forward", unknown)
    put(StandIn, "__getitem__", item)
    put(StandIn, "__iter__", iterate)
    put(StandIn, "__array__", array)
    put(StandIn, "keys", lambda self: StandIn(self.tml_stage, f"{self.tml_name}.keys()"))
    put(StandIn, "__next__", lambda self: next(data.endless(str(self.tml_name))))
    for name in ("__len__", "__int__", "__index__"):
        put(StandIn, name, number)
