"""What becomes of the tensors of a checkpoint that is loaded: asked before a fix puts them on the host."""

from __future__ import annotations

import re

from torchmemlint.index.project import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.walk import everything
from torchmemlint.lower.written import dotted
from torchmemlint.semantics.dataflow.tracking import TOO_MUCH, Tracker, bounded, counted
from torchmemlint.semantics.state import MODULE, Meter, World
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


class Loaded(Tracker):
    """Follows what one call loads, and parts of it."""

    def __init__(self, meter: Meter, source: int) -> None:
        super().__init__(meter)
        self.source = source

    def gives(self, expr: ir.Expr | None, state: set[str]) -> bool:
        if not isinstance(expr, ir.Subscript):
            return super().gives(expr, state)
        for index in expr.index:
            self.value(index, state)
        return self.value(expr.value, state)


class Taken(Loaded):
    """Whether that is ``kept`` in an attribute, given to a computation, or handed to a function that is not visible."""

    def __init__(self, meter: Meter, source: int, given: frozenset[str] = frozenset()) -> None:
        super().__init__(meter, source)
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
        if key and not COUNTS.search(str(key).lower()) and self.value(value, state):
            self.computed = self.computed or next((dotted(target) for target in targets if isinstance(target, ir.Attr)), "")

    def gives(self, expr: ir.Expr | None, state: set[str]) -> bool:
        return super().gives(expr, state) or (isinstance(expr, ir.Name) and expr.id in self.given)

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
    tracked = Taken(world.following, node)
    tracked.run(world.body(world.outermost(ref)))
    return f"`{tracked.computed}` takes what is loaded as well, and may need it on the device" if tracked.computed else ""


class CopiedAlone(Loaded):
    """Notes the first use of it that does anything else than to restore a state of it, to take it apart, or
    to make a number of a part."""

    def __init__(self, meter: Meter, source: int) -> None:
        super().__init__(meter, source)
        self.otherwise = ""

    def uses(self, how: str) -> None:
        self.otherwise = self.otherwise or how

    def kept(self, text: str) -> None:
        self.uses(text)

    def returned(self, expr: ir.Expr) -> None:
        self.uses("return")

    def augmented(self, statement: ir.AugAssign, state: set[str]) -> bool:
        if self.value(statement.value, state) or self.value(statement.target, state):
            self.uses(dotted(statement.target))
        return False

    def begins(self, statement: ir.Stmt, state: set[str]) -> bool:
        if isinstance(statement, ir.OuterNames):  # the name may be one of these
            self.uses("global")
        return False

    def take(self, target: ir.Expr, iterable: ir.Expr, state: set[str]) -> None:
        items = isinstance(iterable, ir.Call) and isinstance(iterable.func, ir.Attr) and iterable.func.name == ITEMS
        held = self.value(iterable, state)
        if items and isinstance(target, ir.Sequence) and len(target.items) == 2:  # a key has no tensors
            self.bind(target.items[0], False, state)
            self.bind(target.items[1], held, state)
        else:
            self.bind(target, held, state)

    def gives(self, expr: ir.Expr | None, state: set[str]) -> bool:
        match expr:
            case ir.Attr():
                if self.value(expr.value, state):
                    self.uses(expr.name)
                return dotted(expr) in state
            case ir.Binary() | ir.Unary() | ir.Lambda() | ir.Yield() | ir.Await() | ir.Slice():
                if self.inner(expr, state):
                    self.uses(dotted(expr) or "an operator")
                return False
            case _:
                return super().gives(expr, state)

    def call(self, expr: ir.Call, state: set[str]) -> bool:
        given = [self.value(arg.value, state) for arg in expr.args]
        if expr.node == self.source:
            return True
        if isinstance(expr.func, ir.Attr):
            held, last = self.value(expr.func.value, state), expr.func.name
            if held and last not in TAKES_APART:
                self.uses(last)
            if any(given) and last != RESTORES:
                self.uses(last)
            return held and last not in KEYS
        if self.value(expr.func, state):
            self.uses(dotted(expr.func))
        name = dotted(expr.func)
        if any(given) and name not in NUMBERS and name not in COPIES_DICTS:
            self.uses(name)
        return any(given) and name in COPIES_DICTS


RESTORES = TORCH.names["restores"]
ITEMS = "items"
KEYS = frozenset({"keys"})
TAKES_APART = KEYS | {ITEMS, "values", "get", "pop", "copy"}
NUMBERS = TORCH.words["gives-plain-values"] | {"range"}
"""Functions of Python that give numbers, or texts, of what they are given."""
COPIES_DICTS = TORCH.words["copies-dicts"]


@bounded(TOO_MUCH)
def used_otherwise(world: World, ref: FunctionRef, node: int) -> str:
    """What is done with what a call loads, beside restoring states of it; "" where every use is visible and is none but that."""
    found = world.ir_of(world.outermost(ref))
    if found is None:
        return "it cannot be read"
    tracked = CopiedAlone(world.following, node)
    tracked.run(found.body)
    if world.outermost(ref).qualname == MODULE:
        functions = world.project.module(ref.path).functions[1:]
        read = sorted(name for facts in functions for name in tracked.ever & (facts.names - facts.locals))
        return tracked.otherwise or next(iter(read), "") or ("import" if world.project.is_imported_file(ref.path) else "")
    return tracked.otherwise


@bounded(True)
def keeps_a_parameter(world: World, ref: FunctionRef) -> bool:
    """Whether a method binds what it is given, or a part of it, to an attribute, or hands it to what may."""
    found = world.ir_of(ref)
    if found is None:
        return True
    names = frozenset(param.name for param in found.params[1:])
    tracked = Taken(world.following, -1, names)
    tracked.run(found.body)
    makes = any(
        isinstance(each, ir.Call) and dotted(each.func).endswith("__dict__.update") for each in counted(world, found.body)
    )
    return bool(tracked.attribute or tracked.handed) or makes
