"""What becomes of the tensors of a checkpoint that is loaded: asked before a fix puts them on the host."""

from __future__ import annotations

import re

from torchmemlint.index.project import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.semantics.state import Meter
from torchmemlint.semantics.text import dotted
from torchmemlint.semantics.tracking import TOO_MUCH, Tracker, bounded, counted
from torchmemlint.semantics.walk import everything
from torchmemlint.semantics.world import World
from torchmemlint.torch_facts import TORCH

COPIES = TORCH.words["says-place"]
"""Methods that copy a tensor, or say where it shall be."""
READS_OR_REPORTS = TORCH.words["reads-parts"] | TORCH.words["reads-or-reports"]
COUNTED = TORCH.words["keeps-nothing"]
"""Functions of Python, and checks, that keep nothing of what they are given."""
PASSES = TORCH.words["hands-parts-on"]

COUNTS = re.compile(
    r"epoch|step|iter|best|acc|loss|lr|arg|conf|cfg|opt|hyper|param|name|vers|state|model|score|metric|hist|vocab|seed|time"
)
"""Keys of a checkpoint under which no tensors are, or a state that is restored."""


class Taken(Tracker):
    """Follows what is loaded; ``kept`` in an attribute, given to a computation, or handed to a function that is not visible."""

    def __init__(self, meter: Meter, source: int, given: frozenset[str] = frozenset()) -> None:
        super().__init__(meter)
        self.source = source
        self.given = given
        self.computed = ""
        self.attribute = ""
        self.handed = ""

    def kept(self, text: str) -> None:
        self.attribute = self.attribute or text

    def assign(self, targets: list[ir.Expr], value: ir.Expr, state: set[str]) -> None:
        super().assign(targets, value, state)
        if not isinstance(value, ir.Subscript):
            return
        key = next((each.value for each in everything(value) if isinstance(each, ir.Const) and isinstance(each.value, str)), "")
        if key and not COUNTS.search(str(key)) and self.value(value, state):
            self.computed = self.computed or next((dotted(target) for target in targets if isinstance(target, ir.Attr)), "")

    def gives(self, expr: ir.Expr | None, state: set[str]) -> bool:
        match expr:
            case None | ir.Const():
                return False
            case ir.Name():
                return expr.id in state or expr.id in self.given
            case ir.Attr():
                return self.value(expr.value, state) or dotted(expr) in state
            case ir.Subscript():
                for index in expr.index:
                    self.value(index, state)
                return self.value(expr.value, state)
            case ir.Compare() | ir.FormattedString():
                self.inner(expr, state)
                return False
            case ir.Binary():
                held = [self.value(expr.left, state), self.value(expr.right, state)]
                return any(held)
            case ir.Call():
                return self.call(expr, state)
            case _:
                return self.inner(expr, state)

    def call(self, expr: ir.Call, state: set[str]) -> bool:
        given = [self.value(arg.value, state) for arg in expr.args]
        last = expr.func.name if isinstance(expr.func, ir.Attr) else dotted(expr.func)
        held = isinstance(expr.func, ir.Attr) and self.value(expr.func.value, state)
        if expr.node == self.source:
            return True
        if last in COPIES or last in READS_OR_REPORTS:
            return False
        if any(given) and last not in PASSES | COUNTED:
            self.handed = self.handed or last
        if any(given) and last not in PASSES and not self.computed and last[:1].islower() and is_computation(last):
            self.computed = f"{dotted(expr.func) or last}(…)"
        return held or (any(given) and last in PASSES)


def is_computation(name: str) -> bool:
    """Whether a function computes with the tensors that it is given."""
    return name in TORCH.methods or name in TORCH.words["joins"]


@bounded(TOO_MUCH)
def taken_otherwise(world: World, ref: FunctionRef, node: int) -> str:
    """Why what a call loads may be needed on the device: something else than ``load_state_dict`` computes with it. "" for nothing in
    sight."""
    found = world.function(world.outermost(ref))
    if found is None:
        return ""
    tracked = Taken(world.following, node)
    tracked.run(found[0].body)
    return f"`{tracked.computed}` takes what is loaded as well, and may need it on the device" if tracked.computed else ""


@bounded(True)
def keeps_a_parameter(world: World, ref: FunctionRef) -> bool:
    """Whether a method binds what it is given, or a part of it, to an attribute, or hands it to what may."""
    found = world.function(ref)
    if found is None:
        return True
    names = frozenset(param.name for param in found[0].params[1:])
    tracked = Taken(world.following, -1, names)
    tracked.run(found[0].body)
    makes = any(
        isinstance(each, ir.Call) and dotted(each.func).endswith("__dict__.update") for each in counted(world, found[0].body)
    )
    return bool(tracked.attribute or tracked.handed) or makes
