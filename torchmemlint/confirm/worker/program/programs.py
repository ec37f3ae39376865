"""The programs that are made of a file: its definitions, with the flagged function rewritten, or cut down to its loop."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from torchmemlint.confirm.worker.program.ask import ask
from torchmemlint.confirm.worker.program.probes import ForwardProbe, Probe
from torchmemlint.confirm.worker.program.rewrite import Body, guard
from torchmemlint.confirm.worker.program.site import Flaw, Site
from torchmemlint.confirm.worker.program.visible import store_names


def definitions(tree: ast.Module) -> ast.Module:
    """Another module of the project: its definitions alone."""
    _soften(tree)
    _guard_classes(tree, None)
    return ast.fix_missing_locations(ast.Module(_surroundings(tree), []))


def whole(tree: ast.Module, site: Site, flaw: Flaw, level: int) -> ast.Module:
    """The file's definitions with the flagged function instrumented; at module level, the whole module."""
    return _rewritten(tree, site, Body(site, Probe(site, flaw), level, flaw.correction))


def plain(tree: ast.Module, site: Site, flaw: Flaw) -> ast.Module:
    """As ``whole``, with nothing sampled or corrected: loops and conditions are the harness's, each time that the flagged
    statement comes it is reported, and a flagged forward goes through the harness."""
    return _rewritten(tree, site, _Plain(site, ForwardProbe(site, flaw), len(site.loops)))


def _rewritten(tree: ast.Module, site: Site, rewrite: Body) -> ast.Module:
    _soften(tree)
    _guard_classes(tree, site)
    if site.outermost is None:
        body = rewrite.block([node for node in tree.body if not _is_future(node)])
    else:
        rewrite.visit(site.outermost)
        body = _surroundings(tree)
    return ast.fix_missing_locations(ast.Module(body, []))


class _Plain(Body):
    """Guards and conditions alone."""

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        done = super().statement(node)
        if self.site is None or node is not self.site.statement:
            return done
        return [ast.copy_location(ast.Expr(ask("reached")), node), *done]


def sliced(tree: ast.Module, site: Site, flaw: Flaw, level: int) -> ast.Module | None:
    """As ``whole``, with the flagged function's body cut down to the sampled loop, simple initialisers and the
    with-blocks around it."""
    if level >= len(site.loops):
        return None
    loop = site.loops[level]
    start = site.around.index(site.function) + 1 if site.function else 0
    position = next((index for index, node in enumerate(site.around) if node is loop), len(site.around))
    outside = site.around[start:position]
    block = site.function.body if site.function else tree.body
    closures = [node for node in block if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))] if site.function else []
    first: list[ast.stmt] = [*_initialisers(block, loop), *closures]
    names = {node.id for part in [loop, *closures] for node in ast.walk(part) if isinstance(node, ast.Name)}
    known = {name for node in first for name in _own_stores(node)}
    if site.function is not None:
        arguments = site.function.args
        known |= {item.arg for item in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]}
        known |= {item.arg for item in (arguments.vararg, arguments.kwarg) if item}
    local = {name for node in ast.walk(site.function or tree) if isinstance(node, ast.stmt) for name in _own_stores(node)}
    free = [
        ast.Assign([ast.Name(name, ast.Store())], ask("standin", ast.Constant(name)))
        for name in sorted((names & local) - known)
    ]  # fmt: skip
    kept: list[ast.stmt] = [loop]
    for node in reversed(outside):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            node.body = kept
            kept = [node]
    modes = [node for node in block if _is_mode_statement(node) and node.lineno < loop.lineno]
    body = [*free, *first, *modes, *kept]
    for node in body:
        if not hasattr(node, "lineno"):
            ast.copy_location(node, loop)
    if site.function is not None:
        site.function.body = body
        return whole(tree, site, flaw, level)
    definitions = _surroundings(tree)
    _soften(tree)
    return ast.fix_missing_locations(
        ast.Module([*definitions, *Body(site, Probe(site, flaw), level, flaw.correction).block(body)], [])
    )


def _surroundings(tree: ast.Module) -> list[ast.stmt]:
    """Top-level statements that only define: imports, functions, classes, plain assignments; each guarded."""
    body = Body()
    kept: list[ast.stmt] = []

    def keep(statements: Sequence[ast.stmt]) -> None:
        for node in statements:
            if _is_future(node):
                continue
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                kept.extend(body.statement(node))
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                guarded = guard(node, [node.name])
                kept.append(guarded)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                kept.append(guard(node, store_names(node)))
            elif isinstance(node, ast.Try):
                keep(node.body)
            elif isinstance(node, ast.If) and not _is_main(node):
                keep(node.body)
                keep(node.orelse)

    keep(tree.body)
    return kept


def _is_main(node: ast.If) -> bool:
    return any(isinstance(item, ast.Name) and item.id == "__name__" for item in ast.walk(node.test))


def _soften(tree: ast.Module) -> None:
    """Class headers that stand-ins cannot serve: keywords other than those of the standard library go."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            node.keywords = []


def _guard_classes(tree: ast.Module, site: Site | None) -> None:
    """Guard every method of the file's classes: ``__init__`` and helpers are run with stand-ins too."""
    for klass in tree.body:
        if isinstance(klass, ast.ClassDef):
            klass.body = [node for node in klass.body if not _is_left_to_subclasses(node)] or [ast.Pass()]
            for node in klass.body:
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and (site is None or node not in site.around):
                    Body().visit(node)


def _is_left_to_subclasses(node: ast.stmt) -> bool:
    """Whether a method says only that others implement it: it is not visible."""
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    last = node.body[-1]
    raised = last.exc if isinstance(last, ast.Raise) else None
    raised = raised.func if isinstance(raised, ast.Call) else raised
    words = all(isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant) for item in node.body[:-1])
    return words and isinstance(raised, ast.Name) and raised.id == "NotImplementedError"


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _own_stores(statement: ast.stmt) -> list[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [statement.name]
    return store_names(statement)


def _is_mode_statement(node: ast.stmt) -> bool:
    """``torch.set_grad_enabled(False)`` and its like: a statement that decides what the loop's forward costs."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr in {"set_grad_enabled", "requires_grad_", "eval", "train"}
    )


def _initialisers(block: Sequence[ast.stmt], loop: ast.stmt) -> list[ast.stmt]:
    """Assignments before the loop whose value needs nothing else: literals, empty containers, tensors made of numbers."""
    plain: list[ast.stmt] = []
    for node in block:
        for item in [node, *(part for part in ast.walk(node) if isinstance(part, ast.stmt))]:
            if item.lineno >= loop.lineno or not isinstance(item, (ast.Assign, ast.AnnAssign)) or item.value is None:
                continue
            if item not in plain and _is_plain(item.value):
                plain.append(item)
    return plain


def _is_plain(value: ast.expr) -> bool:
    for node in ast.walk(value):
        if isinstance(node, (ast.Lambda, ast.Await, ast.Yield, ast.Subscript, ast.comprehension)):
            return False
        if isinstance(node, ast.Name) and node.id not in {
            "torch",
            "list",
            "dict",
            "set",
            "defaultdict",
            "deque",
            "collections",
            "float",
            "int",
        }:
            if not (isinstance(value, ast.Call) and value.func is node):
                return False
    return True
