"""The program with its statements guarded: what fails before the step, for want of files, binds stand-ins."""

from __future__ import annotations

import ast
import copy
import glob
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from torchmemlint.budget.worker import surroundings
from torchmemlint.budget.worker.packages import optional_imports

GUARD = "__tml_guard__"
TRY = "__tml_try__"
TENSOR = "__tml_tensor__"
ERRORS = "__tml_errors__"
_ERROR = "__tml_error__"


class Guarded:
    """Changes a tree. Nothing is guarded in a loop that has a ``backward`` in it, or in a class with a ``forward``: what fails
    there is the step's. ``values`` replace constants that are assigned to these names."""

    def __init__(self, values: Mapping[str, str], batch: int) -> None:
        self._values = dict(values)
        self._batch = batch

    def transform(self, tree: ast.Module) -> ast.Module:
        """The same tree, changed."""
        tree.body = self._block(_Tensors().visit(tree).body)
        return ast.fix_missing_locations(tree)

    def _block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [self._statement(statement) for statement in body]

    def _statement(self, node: ast.stmt) -> ast.stmt:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.With, ast.AsyncWith)):
            node.body = self._block(node.body)
            if isinstance(node, ast.With) and _may_fail(node):
                return _guard(node, _stored(node))  # a file that is missing: what its lines bind is a stand-in
        elif isinstance(node, ast.ClassDef):
            methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
            called = {method.name for method in methods}
            for method in methods:
                if not called & {"forward", "__iter__"}:
                    method.body = self._block(method.body)
        elif isinstance(node, ast.If):
            node.body, node.orelse = self._block(node.body), self._block(node.orelse)
        elif isinstance(node, ast.For) and not _trains(node) and not _leaves(node):
            node.iter = _tried(node.iter)  # the lines or files of what is missing
            return _guard(node, _stored(node))
        elif isinstance(node, ast.Assert):
            return _guard(node, [])
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            self._set(node)
            if isinstance(node.value, ast.Call):
                node.value.args = [_tried(item) for item in node.value.args]
                for keyword in node.value.keywords:
                    keyword.value = _tried(keyword.value)
            if not _trains(node):
                return _guard(node, _bound(node))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [item.asname or item.name.partition(".")[0] for item in node.names]
            if "*" not in names and getattr(node, "module", "") != "__future__":
                return _guard(node, [ast.Name(name, ast.Store()) for name in names])
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not _trains(node):
            return _guard(node, [])
        return node

    def _set(self, node: ast.Assign | ast.AnnAssign) -> None:
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        name = target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""
        if name in self._values and isinstance(node.value, ast.Constant):
            node.value = ast.Constant(surroundings.value_of(self._values[name], type(node.value.value)))
        elif (
            self._batch
            and name.lower() in ("batch_size", "bs", "batchsize", "train_batch_size")
            and isinstance(node.value, ast.Constant)
        ):
            node.value = ast.Constant(self._batch)


class _Tensors(ast.NodeTransformer):
    """``torch.Tensor(x)``, ``torch.LongTensor(x)``, ``torch.from_numpy(x)`` and ``torch.device(x)`` ask ``TENSOR`` first: torch lets
    nothing else see these calls."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        kind = node.func
        made = isinstance(kind, ast.Attribute) and (kind.attr.endswith("Tensor") or kind.attr in ("from_numpy", "device"))
        if isinstance(kind, ast.Attribute) and made and _is_torch(kind.value) and len(node.args) == 1:
            if isinstance(node.args[0], ast.Starred):  # sizes
                return node
            return ast.copy_location(ast.Call(ast.Name(TENSOR, ast.Load()), [kind, *node.args], node.keywords), node)
        return node


def _is_torch(node: ast.expr) -> bool:
    return ast.unparse(node) in ("torch", "torch.cuda")


def _guard(node: ast.stmt, targets: Sequence[ast.expr]) -> ast.stmt:
    """The statement in a ``try``. Arguments of the handler: the line, the error, the names of what it binds."""
    names = [ast.Constant(ast.unparse(target)) for target in targets]
    call = ast.Call(
        ast.Name(GUARD, ast.Load()),
        [ast.Constant(node.lineno), ast.Name(_ERROR, ast.Load()), ast.List(list(names), ast.Load())],
        [],
    )  # fmt: skip
    bind: ast.stmt = ast.Expr(call)
    if targets:
        bind = ast.Assign([ast.List([copy.deepcopy(target) for target in targets], ast.Store())], call)
    handler = ast.ExceptHandler(ast.Name(ERRORS, ast.Load()), _ERROR, [bind])
    return ast.copy_location(ast.Try([node], [handler], [], []), node)


def _tried(node: ast.expr) -> ast.expr:
    """A call that is an argument of a call, such as the data set of a loader: where it fails, the loader is made none the less."""
    if not isinstance(node, (ast.Call, ast.Subscript)) or _trains(node):
        return node
    for item in ast.walk(node):
        if isinstance(item, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)) or (
            isinstance(item, ast.Name) and item.id == "super"
        ):
            return node
    empty = ast.arguments([], [], None, [], [], None, [])
    call = ast.Call(
        ast.Name(TRY, ast.Load()),
        [
            ast.Lambda(empty, node),
            ast.Constant(node.lineno),
            ast.Constant(ast.unparse(node.func if isinstance(node, ast.Call) else node.value)),
        ],
        [],
    )
    return ast.copy_location(call, node)


def _trains(node: ast.AST) -> bool:
    return any(isinstance(item, ast.Attribute) and item.attr in ("backward", "step") for item in ast.walk(node))


def _may_fail(node: ast.With) -> bool:
    """Whether a block can be left out: it enters what a call gives, trains nothing, defines nothing, and leaves no function."""
    kept = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Return, ast.Yield, ast.YieldFrom)
    entered = any(isinstance(item.context_expr, ast.Call) for item in node.items)
    return entered and not _trains(node) and not any(isinstance(item, kept) for item in ast.walk(node))


def _leaves(node: ast.For) -> bool:
    """Whether a loop ends its function, or defines something."""
    kept = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Return, ast.Yield, ast.YieldFrom, ast.Await)
    return any(isinstance(item, kept) for item in ast.walk(node))


def _stored(node: ast.With | ast.For) -> list[ast.expr]:
    """The names that a block binds."""
    found = [item for item in ast.walk(node) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store)]
    return [ast.Name(name, ast.Store()) for name in dict.fromkeys(item.id for item in found) if not name.startswith("__tml")]


def _bound(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    found = [
        item
        for target in targets
        for item in ast.walk(target)
        if isinstance(item, (ast.Name, ast.Attribute)) and isinstance(item.ctx, ast.Store)
    ]
    return list({ast.unparse(item): item for item in found}.values())


def package_of(tree: ast.Module, path: str) -> tuple[str, str]:
    """The folder to start in, and the package, of a program with relative imports (``python -m package.train``); the package is ""
    without any."""
    levels = max((node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)), default=0)
    names: list[str] = []
    folder = os.path.dirname(path)
    while levels and (len(names) < levels or os.path.exists(os.path.join(folder, "__init__.py"))):
        folder, name = os.path.split(folder)
        if not name:
            return folder, ""
        names.insert(0, name)
    return folder, ".".join(names)


class OwnFiles(importlib.abc.MetaPathFinder):
    """The program's other files, guarded as its first."""

    def __init__(
        self,
        own: Callable[[str], bool],
        failed: Mapping[str, Any],
        optional: set[tuple[str, int]],
        replaced: Mapping[str, str],
        root: str,
    ) -> None:
        self._own, self._failed, self._optional, self._replaced = own, failed, optional, replaced
        self._root, self._folders = root, cast("dict[str, str] | None", None)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """The program's own file of that name, None for other modules."""
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if path is None and (spec is None or not spec.origin or not self._own(spec.origin)):
            # a folder of the program without an __init__ is hidden by an installed package of that name
            mine = [folder for folder in sys.path if self._own(folder + "/")]
            hidden = importlib.machinery.PathFinder.find_spec(fullname, mine, target)
            if hidden is not None and glob.glob(
                f"{glob.escape(next(iter(hidden.submodule_search_locations or []), '?'))}/*.py"
            ):
                return hidden
        if path is None and spec is None:
            spec = self._elsewhere(fullname)
            if spec is not None and not spec.origin:
                return spec
        if spec is None or not spec.origin or not spec.origin.endswith(".py") or not self._own(spec.origin):
            return None
        spec.loader = _Loader(fullname, spec.origin, self._failed, self._optional, self._replaced)
        return spec

    def _elsewhere(self, name: str) -> Any:
        """A module of the project in a folder that is on no path: the program is started with another ``PYTHONPATH``."""
        frame: Any = sys._getframe(2)
        while frame is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        if name in sys.stdlib_module_names or frame is None or not self._own(frame.f_code.co_filename):
            return None
        if self._folders is None:
            self._folders = {}
            folders: dict[str, str] = {}
            for folder, below, files in os.walk(self._root):
                below[:] = sorted(item for item in below if not item.startswith(".") and item != "site-packages")
                folders |= {item: folder for item in below if item not in folders}
                for file in sorted(files):
                    if file.endswith(".py"):
                        self._folders.setdefault(file.removesuffix(".py"), folder)
            self._folders = {**folders, **self._folders}  # a file before a folder of that name
        found = self._folders.get(name)
        return importlib.machinery.PathFinder.find_spec(name, [found]) if found else None


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(
        self, name: str, path: str, failed: Mapping[str, Any], optional: set[tuple[str, int]], replaced: Mapping[str, str]
    ) -> None:
        super().__init__(name, path)
        self._failed, self._optional, self._replaced = failed, optional, replaced

    def get_code(self, fullname: str) -> Any:
        """Compiled each time: a cache would hold the file as it is."""
        text = self._replaced.get(self.path)
        tree = ast.parse(importlib.util.decode_source(self.get_data(self.path)) if text is None else text, self.path)
        self._optional |= optional_imports(tree, self.path)
        return compile(Guarded({}, 0).transform(tree), self.path, "exec", dont_inherit=True)

    def exec_module(self, module: Any) -> None:
        """Run it, with what its guards call."""
        module.__dict__.update(self._failed)
        super().exec_module(module)
