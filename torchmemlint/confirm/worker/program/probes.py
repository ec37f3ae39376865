"""How the flagged value comes to the harness: the calls that are put around it, or in its place."""

from __future__ import annotations

import ast

from torchmemlint.confirm.syntax import calls_at, last_name
from torchmemlint.confirm.worker.program.ask import Transformer, ask, later
from torchmemlint.confirm.worker.program.site import Flaw, Place, Site
from torchmemlint.confirm.worker.program.visible import store_names
from torchmemlint.rules.card import Correction
from torchmemlint.torch_facts import TORCH

OF_FORWARDS = frozenset({Correction.NO_GRAD, Correction.NO_GRAD_AROUND, Correction.OWN_FIX})
"""Corrections of findings that point at a forward call."""
OF_CALLS = frozenset({Correction.ROOM, Correction.NO_CHECKPOINT, Correction.FREE})
"""Corrections of which the harness takes the place of a call in the flagged statement."""
JOINS = frozenset(name.rpartition(".")[2] for name in TORCH.concatenations)
CHECKPOINTS = frozenset({"checkpoint", "checkpoint_sequential"})
FILLS = frozenset({"zero_", "fill_"})


class Probe:
    """Sends the flagged value through the harness: what is added, stored, passed on or called."""

    def __init__(self, site: Site, flaw: Flaw) -> None:
        self._site, self._flaw = site, flaw

    def statement(self, node: ast.stmt) -> None:
        """The flagged statement."""
        correction = self._flaw.correction
        if correction is Correction.SWITCH:
            _set_keyword(node, self._flaw.keyword)
        elif correction in OF_CALLS:
            self._in_place(node)
        elif correction is Correction.LOAD:
            self._loaded_to(node)
        elif correction in OF_FORWARDS:
            if not self._wrap_call(node):
                _change_value(node, _WrapCalls())
        elif correction is Correction.DETACH_STATE:
            _change_value(node, _Carried(set(store_names(node))))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            call.args = [item if isinstance(item, ast.Starred) else ask("value", item) for item in call.args]
            for keyword in call.keywords:
                if keyword.arg is not None:
                    keyword.value = ask("value", keyword.value)
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)) and node.value is not None:
            node.value = self.expression(node.value)

    def expression(self, value: ast.expr) -> ast.expr:
        """What the flagged statement asks, runs over or returns."""
        if self._flaw.correction in OF_CALLS:
            holder = ast.Expr(value)
            self._in_place(holder)
            return holder.value
        if self._flaw.correction in OF_FORWARDS:
            holder = ast.Expr(value)
            if self._wrap_call(holder):
                return holder.value
            return ask("forward", later(value))
        inner = next(
            (item for item in ast.walk(value) if isinstance(item, (ast.ListComp, ast.SetComp, ast.GeneratorExp))), None
        )
        if inner is not None and not self._site.loops:
            # a comprehension over the loader is the loop
            inner.generators[0].iter = ask("loop", ast.Constant("sample"), later(inner.generators[0].iter))
            inner.elt = ask("value", inner.elt)
            return value
        if isinstance(value, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            value.elt = ask("value", value.elt)
            return value
        if isinstance(value, ast.DictComp):
            value.value = ask("value", value.value)
            return value
        if isinstance(value, (ast.Yield, ast.Await)) and value.value is not None:
            value.value = ask("value", value.value)
            return value
        return ask("value", value)

    def _in_place(self, node: ast.AST) -> None:
        _InPlace(self._flaw.correction).generic_visit(node)

    def _loaded_to(self, node: ast.stmt) -> None:
        """Send the flagged load's ``map_location`` through the probe: whether it names the host, and what it is."""
        calls = [item for item in ast.walk(node) if isinstance(item, ast.Call)]
        call = _WrapCall(self._site.place, node).call or next((item for item in calls if last_name(item.func) == "load"), None)
        if call is None or last_name(call.func) != "load":
            return  # other loaders call the argument otherwise, and nothing here takes their place
        given = next((item for item in call.keywords if item.arg == "map_location"), None)
        if given is None:
            given = ast.keyword("map_location", call.args.pop(1) if len(call.args) > 1 else ast.Constant(None))
            call.keywords.append(given)
        text = ast.unparse(given.value)
        host = isinstance(given.value, ast.Lambda) or ("cpu" in text and "cuda" not in text)
        given.value = ask("mapped", ast.Constant(host), given.value)

    def _wrap_call(self, node: ast.AST) -> bool:
        """Send exactly the call that the finding points at through the probe; False where none starts in its column."""
        wrap = _WrapCall(self._site.place, node)
        wrap.visit(node)
        return wrap.call is not None


class ForwardProbe(Probe):
    """Sends flagged forwards through the harness, and nothing else."""

    def statement(self, node: ast.stmt) -> None:
        """The flagged statement."""
        if self._flaw.correction in OF_FORWARDS:
            self._wrap_call(node)

    def expression(self, value: ast.expr) -> ast.expr:
        """What the flagged statement asks, runs over or returns."""
        holder = ast.Expr(value)
        self.statement(holder)
        return holder.value


class _WrapCall(ast.NodeTransformer):
    """Wraps the call that a finding's span covers; where none ends with the span, the longest that starts there.

    Columns are in code points and 1-based in a finding, in UTF-8 bytes and 0-based in the tree: they agree where a line
    is ASCII, which is
    enough, because a call that is not found is only a probe less exact.
    """

    def __init__(self, place: Place, node: ast.AST) -> None:
        exact, starting = calls_at(node, (place.row, place.column), (place.end_row, place.end_column))
        self.exact = bool(exact)
        self.call = next(iter([*exact, *starting]), None)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if node is not self.call:
            return node
        return ast.copy_location(ask("forward", later(node), ast.Constant(self.exact)), node)


class _WrapCalls(Transformer):
    """Wraps every call of a statement of which it is not known which one is the forward."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        return ast.copy_location(ask("forward", later(node)), node)


class _Carried(ast.NodeTransformer):
    """Sends each argument that the statement assigns as well (a carried state) through the probe."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.names and isinstance(node.ctx, ast.Load):
            return ast.copy_location(ask("value", node), node)
        return node


def _change_value(node: ast.stmt, change: ast.NodeTransformer) -> None:
    value = getattr(node, "value", None)
    if isinstance(value, ast.expr):
        node.value = change.visit(value)  # type: ignore[attr-defined]


def _set_keyword(node: ast.stmt, keyword: str) -> None:
    for call in [item for item in ast.walk(node) if isinstance(item, ast.Call)]:
        switched = [item for item in call.keywords if item.arg == keyword]
        for item in switched:
            item.value = ask("switch", item.value)
        if switched:  # the value that the backward starts from: `loss` of `loss.backward(…)`, of `autograd.grad(loss, …)`
            call.args = [argument if isinstance(argument, ast.Starred) else ask("root", argument) for argument in call.args]
            if isinstance(call.func, ast.Attribute):
                call.func.value = ask("root", call.func.value)


class _InPlace(Transformer):
    """Replaces the calls of a statement that a correction is about."""

    def __init__(self, correction: Correction) -> None:
        self._correction = correction

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = last_name(node.func)
        if self._correction is Correction.ROOM and name in JOINS:
            return _through("joined", node)
        if self._correction is Correction.NO_CHECKPOINT and name in CHECKPOINTS:
            return _through("checkpointed", node)
        if self._correction is Correction.FREE and isinstance(node.func, ast.Attribute):
            receiver = node.func.value if name == "zero_grad" else _parameter(node.func) if name in FILLS else None
            if receiver is not None:
                return ast.copy_location(ask("zeroed", receiver, later(node)), node)
        return node


def _through(method: str, node: ast.Call) -> ast.expr:
    return ast.copy_location(ask(method, node.func, *node.args, keywords=node.keywords), node)


def _parameter(node: ast.Attribute) -> ast.expr | None:
    """``p`` of ``p.grad.zero_`` and ``p.grad.data.zero_``."""
    value = node.value
    while isinstance(value, ast.Attribute):
        if value.attr == "grad":
            return value.value
        value = value.value
    return None
