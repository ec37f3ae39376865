"""Whether a backward may go through what some calls of a function give.

It may run on any path of the function or in a caller. Asked before a fix switches grad mode off for these calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torchmemlint.index.project import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.written import dotted
from torchmemlint.semantics.dataflow.tracking import TOO_MUCH, FunctionTracker, bounded, counted, parts_of, root_of
from torchmemlint.semantics.interpret import STORING
from torchmemlint.semantics.state import MODULE, World, memoized, memoized_or, memoized_with_code
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect

MAX_DEPTH = 2
"""How far returned values are followed up, from caller to caller."""
MAX_CALLERS = 30
CUTS = frozenset({Effect.CUT, Effect.ITEM, Effect.NUMBER, Effect.SHAPE, Effect.SOURCE, Effect.DETACH_INPLACE, Effect.NO_EFFECT})
CUTTING = frozenset(name for name, effect in TORCH.methods.items() if effect in CUTS) | TORCH.words["gives-no-graph"]
"""Methods and functions whose result has no graph."""
PLAIN = TORCH.words["gives-plain-values"]
"""Builtins whose result has no graph."""
CUT_ATTRIBUTES = TORCH.words["detaches"] | TORCH.words["sizes"] | TORCH.words["gradient-flags"]
BACKWARD = TORCH.words["back-propagates"]
FORWARD = TORCH.words["forward"]
STEPS = TORCH.words["may-step"]
OPTIMIZERS = TORCH.words["may-train"]
"""What may back-propagate the loss that a method of ``STEPS`` is given."""
KEEPING = frozenset(STORING) | TORCH.words["fills-by-key"]
LIBRARIES = TORCH.words["adds-no-graph"] | TORCH.words["array-libraries"]

Source = Callable[[ir.Call], bool]


class GradNeeds(FunctionTracker):
    """Follows what is attached to the graphs of some calls to the backward calls of a function.

    sources     which calls make the graphs
    statements  nodes of statements in which everything makes one: a fix would switch grad mode off for all of them
    """

    def __init__(self, world: World, ref: FunctionRef, sources: Source, statements: frozenset[int] = frozenset()) -> None:
        super().__init__(world, ref)
        self.sources = sources
        self.statements = statements
        self.trained = ""
        """The first backward that goes through a graph, as it is written."""
        self.attributes: set[str] = set()
        self.all_made = False

    def begins(self, statement: ir.Stmt, state: set[str]) -> bool:
        if statement.node not in self.statements or self.all_made:
            return False
        self.all_made = True
        self.statement(statement, state)
        self.all_made = False
        return True

    def kept(self, text: str) -> None:
        if text.startswith("self."):
            self.attributes.add(".".join(text.split(".")[:2]))

    def gives(self, expr: ir.Expr | None, state: set[str]) -> bool:
        match expr:
            case ir.Name():
                return expr.id in state or (self.all_made and not self.is_library(expr.id))
            case ir.Attr():
                inner = self.value(expr.value, state)
                return expr.name not in CUT_ATTRIBUTES and (inner or dotted(expr) in state)
            case _:
                return super().gives(expr, state)

    def call(self, expr: ir.Call, state: set[str]) -> bool:
        given = [self.value(arg.value, state) for arg in expr.args]
        receiver = expr.func.value if isinstance(expr.func, ir.Attr) else None
        held = receiver is not None and self.value(receiver, state)
        last = expr.func.name if isinstance(expr.func, ir.Attr) else dotted(expr.func)
        some = held or any(given)
        text = dotted(expr.func)
        if some and (
            last in BACKWARD
            or text.endswith("autograd.grad")
            or (any(given) and self.hands_to_trainer(expr, text, last, given))
        ):
            self.trained = self.trained or f"{text or last}(…)"
        if last in CUTTING or (receiver is None and last in PLAIN):
            return False
        if any(given) and receiver is not None and (last in KEEPING or (last.endswith("_") and not last.endswith("__"))):
            self.put(dotted(root_of(receiver)), state)
        return some or (self.all_made and not self.is_library(text)) or self.sources(expr)

    def hands_to_trainer(self, expr: ir.Call, text: str, last: str, given: list[bool]) -> bool:
        """Whether a call may back-propagate what it is given."""
        words = set(text.replace(".", "_").lower().split("_")[:-1])
        return (last in STEPS and bool(words & OPTIMIZERS)) or is_trainer(self.world, self.ref, expr, given)

    def is_library(self, text: str) -> bool:
        """Whether a text is a module or function of a library, which makes no graph of what has none."""
        absolute = self.world.project.resolve(self.ref.path, text, self.ref.qualname) if text else None
        return absolute is not None and absolute.partition(".")[0] in LIBRARIES


class StoredNeeds(GradNeeds):
    """Follows what is stored at one place from there on: its container, and not the name that it was stored by."""

    def __init__(self, world: World, ref: FunctionRef, node: int) -> None:
        super().__init__(world, ref, lambda call: False)
        self.node = node

    def kept(self, text: str) -> None:
        self.attributes.add(text)

    def gives(self, expr: ir.Expr | None, state: set[str]) -> bool:
        return super().gives(expr, state) or getattr(expr, "node", -1) == self.node


@bounded(TOO_MUCH)
def stored_needed(world: World, ref: FunctionRef, node: int) -> str:
    """What may need the graph of a stored expression, on any path of the function: a backward, an attribute, a caller; "" for nothing."""
    found = world.ir_of(world.outermost(ref))
    if found is None:
        return "it cannot be read"
    tracked = StoredNeeds(world, ref, node)
    tracked.run(found.body)
    return tracked.trained or next(iter(sorted(tracked.attributes)), "") or ("return" if tracked.leaves else "")


@bounded(TOO_MUCH)
def backward_needs(world: World, ref: FunctionRef, nodes: frozenset[int], statement: bool) -> str:
    """What back-propagates what the calls ``nodes`` of a function give, or, for a ``statement``, all that the statements around them
    make; "" where no visible code does."""
    body = world.body(ref)
    if not body:
        return "it cannot be read"
    around = statements_around(world, body, nodes) if statement else frozenset[int]()
    unseen = statement and ref.qualname.rpartition(".")[2] in FORWARD and not world.project.callers(ref).calls
    called_by = "a step that is not visible may back-propagate what the forward returns" if unseen else ""
    return _needed(world, ref, body, lambda call: call.node in nodes, around, 0, called_by)


@bounded(TOO_MUCH)
def block_needed(world: World, ref: FunctionRef, item_node: int) -> str:
    """As ``needed``, for all that the block of a ``with`` makes, given by the node of its item."""
    body = world.body(world.outermost(ref))
    for statement in counted(world, body):
        if isinstance(statement, ir.With) and any(item.node == item_node for item in statement.items):
            inside = {each.node for each in counted(world, statement.body) if isinstance(each, SIMPLE)}
            return _needed(world, ref, body, lambda call: False, frozenset(inside), 0)
    return ""


SIMPLE = (ir.Assign, ir.AugAssign, ir.ExprStmt, ir.Return, ir.Assert)


@bounded(TOO_MUCH)
def backward_needs_returned(world: World, ref: FunctionRef) -> str:
    """What in the callers of a function back-propagates what it returns."""
    return _by_callers(world, ref, 0)


def _needed(
    world: World,
    ref: FunctionRef,
    body: list[ir.Stmt],
    sources: Source,
    statements: frozenset[int],
    depth: int,
    called_by: str = "",
) -> str:
    """As ``needed``; ``called_by`` says who back-propagates what the function returns where no caller is visible."""
    tracked = GradNeeds(world, ref, sources, statements)
    tracked.run(body)
    if called_by and tracked.leaves:
        return called_by
    if tracked.trained:
        where = "" if depth == 0 else f" in `{ref.qualname}`"
        return f"`{tracked.trained}`{where} may go through it on another path"
    for attribute in sorted(tracked.attributes):
        reader = reader_that_trains(world, ref, attribute)
        if reader:
            return f"`{reader}` reads `{attribute}` and back-propagates"
    return _by_callers(world, ref, depth) if tracked.leaves else ""


def _by_callers(world: World, ref: FunctionRef, depth: int) -> str:
    if depth == MAX_DEPTH or ref.qualname == MODULE:
        return ""
    calls = world.project.callers(ref).calls
    last = ref.qualname.rpartition(".")[2]
    if len(calls) > MAX_CALLERS:
        return ""
    names = frozenset({last}) if last not in FORWARD else frozenset(call.call.callee.rpartition(".")[2] for call in calls)
    for caller in sorted({world.outermost(call.ref) for call in calls} - {ref}):

        def makes(call: ir.Call, caller: FunctionRef = caller) -> bool:
            text = dotted(call.func)
            return text.rpartition(".")[2] in names and ref in world.project.callees(caller.path, caller.qualname, text).refs

        why = _needed(world, caller, world.body(caller), makes, frozenset(), depth + 1)
        if why:
            return why
    return ""


def is_trainer(world: World, ref: FunctionRef, call: ir.Call, given: list[bool]) -> bool:
    """Whether a function of the project that is called may back-propagate what it is given, of each argument whether that is asked."""
    text = dotted(call.func)
    if not text:
        return False
    refs = world.project.callees(ref.path, ref.qualname, text).refs
    return any(
        world.facts(callee).names & BACKWARD
        and _back_propagates_a_parameter(world, callee, _params_given(world, callee, call, given))
        for callee in refs
    )


def _params_given(world: World, ref: FunctionRef, call: ir.Call, given: list[bool]) -> frozenset[str]:
    """The parameters of a function that may get these arguments of a call: all, where one is given by stars."""
    header = world.header(ref)
    names = [param.name for param in header.params[bool(header.owner) :]]
    if any(arg.star for arg in call.args):
        return frozenset(names)
    asked = [(at, arg) for at, arg in enumerate(call.args) if given[at]]
    return frozenset(arg.keyword or (names[at] if at < len(names) else "*") for at, arg in asked)


@memoized_or(True)
@bounded(True)
def _back_propagates_a_parameter(world: World, ref: FunctionRef, names: frozenset[str]) -> bool:
    """Whether a backward in a function may go through some of its parameters, or through what it keeps of them."""
    found = world.ir_of(ref)
    if found is None:
        return True
    tracked = GradNeeds(world, ref, lambda call: False)
    tracked.ever = {*names}
    if not names <= {param.name for param in found.params}:
        return True
    tracked.block(found.body, set(tracked.ever))
    for closure in tracked.closures:
        tracked.block(closure.body, set(tracked.ever))
    return bool(tracked.trained or tracked.attributes)


def reader_that_trains(world: World, ref: FunctionRef, attribute: str) -> str:
    """The method of the root's class that reads an attribute and back-propagates what it holds, or hands that out in a class that
    back-propagates anything; "" for none."""
    owner = world.header(ref).owner
    for other in _readers_beside_a_backward(world, ref.path, owner, attribute) if owner else ():
        tracked = GradNeeds(world, other, lambda call: False)
        tracked.block(world.body(other), {attribute})
        if tracked.trained or (tracked.leaves and other != ref):
            return other.qualname
    return ""


@memoized
def _readers_beside_a_backward(world: World, path: str, owner: str, text: str) -> list[FunctionRef]:
    """The methods of a class of a file that read an attribute, where one of its methods back-propagates."""
    methods = world.project.within(path, owner)
    trains = any(facts.names & BACKWARD for facts in methods)
    found = []
    for facts in methods if trains else ():
        read = any(each == text or each.startswith(f"{text}.") for each in facts.reads)
        called = any(call.callee.startswith(f"{text}.") for call in facts.calls)
        if (read or called) and not facts.parent:
            found.append(FunctionRef(path, facts.qualname))
    return found


def statements_around(world: World, body: list[ir.Stmt], nodes: frozenset[int]) -> frozenset[int]:
    """The nodes of the simple statements that hold these expressions."""
    found: set[int] = set()
    for statement in counted(world, body):
        if isinstance(statement, SIMPLE):
            inside = {getattr(node, "node", -1) for part in parts_of(statement) for node in counted(world, part)}
            if inside & nodes:
                found.add(statement.node)
    return frozenset(found)


@bounded(False)
def is_whole_value(world: World, ref: FunctionRef, node: int) -> bool:
    """Whether a statement binds new names to what one call gives, or to what is computed from it without any other call but those of
    libraries."""
    tracked = GradNeeds(world, ref, lambda call: False)
    for statement in counted(world, world.body(ref)):
        if isinstance(statement, ir.Assign) and any(
            getattr(each, "node", -1) == node for each in counted(world, statement.value)
        ):
            inside = next(each for each in counted(world, statement.value) if getattr(each, "node", -1) == node)
            own = {id(each) for each in counted(world, inside)}
            others = [each for each in counted(world, statement.value) if isinstance(each, ir.Call) and id(each) not in own]
            return all(_takes(world, each, inside) or tracked.is_library(dotted(each.func)) for each in others)
    return False


def _takes(world: World, call: ir.Call, inside: object) -> bool:
    """Whether a call is a method of another expression's value, or of a part of it."""
    return isinstance(call.func, ir.Attr) and any(each is inside for each in counted(world, call.func.value))


@dataclass(frozen=True, slots=True)
class _GradientUses:
    """What a function's text does with gradients, in its order."""

    reads: tuple[bool, ...]
    """Of each backward and each expression that reads a gradient: whether it is the latter."""
    before: Mapping[int, int]
    """How many of these stand before each call, by its node, and before its parts."""


@bounded(True)
def read_before_backward(world: World, ref: FunctionRef, node: int) -> bool:
    """Whether gradients are read between a call that fills them with zeros and the next backward, in the order of the text, which goes
    on at the function's first row."""
    outermost = world.outermost(ref)
    uses = _gradient_uses(world, outermost)
    if uses is None:
        return True
    return bool(uses.reads) and uses.reads[uses.before.get(node, 0) % len(uses.reads)]


@memoized_with_code
def _gradient_uses(world: World, ref: FunctionRef) -> _GradientUses | None:
    found = world.ir_of(ref)
    if found is None:
        return None
    own = _gradients_in_place(world, found.body)
    reads: list[bool] = []
    before: dict[int, int] = {}
    for each in counted(world, found.body):
        if isinstance(each, ir.Call):
            before[each.node] = len(reads)
            if (each.func.name if isinstance(each.func, ir.Attr) else dotted(each.func)) in BACKWARD:
                reads.append(False)
        elif isinstance(each, ir.Attr) and each.name == TORCH.names["gradient"] and not dotted(each).startswith("torch."):
            if each.node not in own:
                reads.append(True)
    return _GradientUses(tuple(reads), before)


def _gradients_in_place(world: World, body: list[ir.Stmt]) -> set[int]:
    """The nodes of gradients that are only compared, zeroed, cut off or replaced."""
    found: set[int] = set()
    for each in counted(world, body):
        inside: list[object] = []
        if isinstance(each, ir.Compare):
            inside = [each]
        elif isinstance(each, ir.Call) and isinstance(each.func, ir.Attr) and each.func.name in TORCH.words["resets-gradients"]:
            inside = [each.func.value]
        elif isinstance(each, (ir.Assign, ir.If)):
            inside = list(each.targets) if isinstance(each, ir.Assign) else [each.test]
        found |= {part.node for one in inside for part in counted(world, one) if isinstance(part, ir.Attr)}
    return found
