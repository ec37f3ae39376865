"""What a traceback holds of what was tried, until a handler drops it.

Where only torch's own operations ran, nothing is left.
"""

from __future__ import annotations

import sys

from torchmemlint.lower import ir
from torchmemlint.lower.walk import nodes_of, walk
from torchmemlint.lower.written import dotted
from torchmemlint.semantics.state import Ext, Machine, State, evaluate
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect

EMPTIES = TORCH.names["empties-cache"]
LAYERS = TORCH.names["layers"]
QUIET = TORCH.words["reads-or-reports"]
"""Names of calls that run nothing on a device: they query, report or leave."""
MOVES = TORCH.words["moves"]
"""Methods that bring a module or tensor to a device or type: what fails there holds one parameter, and no graph."""


def leaves_nothing(tried: list[ir.Stmt], body: list[ir.Stmt], m: Machine, state: State) -> bool:
    """Whether all that is tried is torch's own operations in this very function, and the handler drops each name that it binds: these
    have no frames of Python, and what else they had made is gone when they raise."""
    bound: set[str] = set()
    last = final_of(tried)
    for node in nodes_of(tried):
        if isinstance(node, ir.AugAssign | ir.For | ir.Walrus | ir.FunctionDef):
            return False
        if isinstance(node, ir.With) and not all(only_guards(item.manager) for item in node.items):
            return False
        if isinstance(node, ir.Assign):
            if not all(isinstance(target, ir.Name) for target in node.targets):
                return False
            if node is not last:
                bound |= {dotted(target) for target in node.targets}
    calls = [n for n in nodes_of(tried) if isinstance(n, ir.Call) and not only_guards(n)]
    if bound:  # what was moved is one of the names
        calls = [n for n in calls if not (isinstance(n.func, ir.Attr) and n.func.name in MOVES)]
    works = bool(calls) or any(isinstance(n, ir.Binary) for n in nodes_of(tried))
    return bound <= dropped_names(body) and works and all(is_torchs_own(call.func, m, state) for call in calls)


def final_of(tried: list[ir.Stmt]) -> ir.Stmt:
    """The statement at the end of a block, also inside ``with``: if it fails, its names are not bound yet."""
    last = tried[-1]
    while isinstance(last, ir.With):
        last = last.body[-1]
    return last


def only_guards(expr: ir.Expr) -> bool:
    """Whether an expression is a call of one of torch's managers of grad mode: its frame holds no tensor."""
    return isinstance(expr, ir.Call) and dotted(expr.func).rpartition(".")[2] in GUARDS


GUARDS = TORCH.words["grad-guards"]


def dropped_names(body: list[ir.Stmt]) -> set[str]:
    """The names that a handler deletes, or binds to None, before anything else of it empties the cache."""
    found: set[str] = set()
    for statement in body:
        if isinstance(statement, ir.Delete) or (isinstance(statement, ir.Assign) and is_none(statement.value)):
            found |= {dotted(target) for target in statement.targets}
        elif any(isinstance(n, ir.Call) and dotted(n.func).rpartition(".")[2] == EMPTIES for n in walk(statement)):
            break
    return found


def lets_traceback_go(body: list[ir.Stmt]) -> bool:
    """Whether a handler begins by taking the traceback off the exception, or clears its frames: what it deletes then is gone."""
    for statement in body:
        for node in walk(statement):
            if isinstance(node, ir.Call) and dotted(node.func).rpartition(".")[2] in ("with_traceback", "clear_frames"):
                given = node.args[0].value if node.args else None
                return not (isinstance(node.func, ir.Attr) and node.func.name == "with_traceback") or is_none(given)
            if isinstance(node, ir.Assign) and any(dotted(t).endswith(".__traceback__") for t in node.targets):
                return is_none(node.value)
            if isinstance(node, ir.Call) and dotted(node.func).rpartition(".")[2] == EMPTIES:
                return False
    return False


def is_none(value: ir.Expr | None) -> bool:
    return isinstance(value, ir.Const) and value.value is None


def is_torchs_own(callee: ir.Expr, m: Machine, state: State) -> bool:
    """Whether a call can leave no tensor on a traceback: it is a function of torch that calculates or makes one, a tensor's method,
    one of the standard library, one of ``QUIET``."""
    if "(" not in dotted(callee):
        atoms = evaluate(m, callee, state) if isinstance(callee, (ir.Name, ir.Attr)) and dotted(callee) else None
        if atoms and all(isinstance(atom, Ext) for atom in atoms):
            names = [atom.name for atom in atoms if isinstance(atom, Ext)]
            return all(
                name.partition(".")[0] in sys.stdlib_module_names
                or (TORCH.functions.get(name) in OPERATIONS and not name.startswith(f"{LAYERS}."))
                for name in names
            )
    if not isinstance(callee, ir.Attr):
        return False
    name = callee.name
    return name in QUIET or (
        name in TORCH.methods and name not in TORCH.module_methods and not m.world.project.methods_named(name)
    )


OPERATIONS = frozenset({Effect.KEEP, Effect.VIEW, Effect.INPLACE, Effect.MIXED_MAX, Effect.CUT, Effect.SOURCE, Effect.NUMBER})
"""Effects of torch functions that are written in C++."""
