"""Whether what a container collects could lie on the host: asked before a fix moves it there.

A tensor on the host cannot be joined, compared or indexed with one on the device.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.index.fact_words import ParamKind
from torchmemlint.index.project import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.written import dotted, text_of
from torchmemlint.semantics.dataflow.tracking import TOO_MUCH, FunctionTracker, bounded, counted, parts_of, root_of
from torchmemlint.semantics.interpret import FILLS_LISTS
from torchmemlint.semantics.state import MODULE, World
from torchmemlint.torch_facts import TORCH

TO_HOST = TORCH.words["on-host"]
PLAIN = TORCH.words["sizes"] | TORCH.words["asks-no-device"]
"""What is asked of a tensor or list that gives no tensor."""
BY_NUMBERS = frozenset(TORCH.methods) - TORCH.words["meets-tensors"]
"""Methods of a tensor whose arguments may be numbers."""
PARTS = TORCH.words["takes-parts"]
NUMBERS = TORCH.words["reads-number"]
TO_DEVICE = TORCH.words["to-device"]
HOST_LIBRARIES = TORCH.words["array-libraries"] | TORCH.words["host-libraries"]
READS = TORCH.words["reads-anywhere"]
"""What takes a tensor wherever it lies, and gives none."""
PASSES = TORCH.words["hands-elements-on"]
JOINS = TORCH.words["joins"]
COLLECTS = frozenset(FILLS_LISTS)
MAX_CALLERS = 4


class HostUses(FunctionTracker):
    """Follows tensors that would be on the host, and notes the first use that asks for one on the device."""

    def __init__(self, world: World, ref: FunctionRef, container: str, store: int, maker: FunctionRef | None = None) -> None:
        super().__init__(world, ref)
        self.maker = maker
        """A function whose results are followed."""
        self.found = False
        """Whether a call of it was seen."""
        self.container = container
        self.store = store
        self.met = ""
        self.taken_whole = ""
        """The first operation that takes what is followed, as one tensor, with what may be on the device."""
        self.handed: list[tuple[str, list[int | str]]] = []
        """The functions that are given what is followed, each with the places or keywords of the arguments that are it."""
        self.numbers: set[str] = set()
        """Names that hold numbers: of loops over ``range`` and the like."""

    def begins(self, statement: ir.Stmt, state: set[str]) -> bool:
        if statement.node != self.store:
            return False
        self.put(self.container, state)
        return True

    def kept(self, text: str) -> None:
        if text != self.container:
            self.note(f"`{text}` keeps it")

    def note(self, what: str, whole: bool = False) -> None:
        self.met = self.met or what
        if whole:
            self.taken_whole = self.taken_whole or what

    def augmented(self, statement: ir.AugAssign, state: set[str]) -> bool:
        return self.together([statement.target, statement.value], state, statement.target)

    # --- expressions ----------------------------------------------------------------------------------------------------

    def gives(self, expr: ir.Expr | None, state: set[str]) -> bool:
        match expr:
            case ir.Attr():
                inner = self.value(expr.value, state)
                return (inner and expr.name not in PLAIN) or dotted(expr) in state
            case ir.Subscript():
                held = self.value(expr.value, state)
                for index in expr.index:
                    self.value(index, state)
                if held and not all(self.is_number(index) for index in expr.index):
                    self.note(f"`{text_of(expr)}` takes a part of it")
                return held
            case ir.Binary():
                return self.together([expr.left, expr.right], state, expr)
            case ir.Compare():
                return self.together([expr.left, *expr.comparators], state, expr)
            case _:
                return super().gives(expr, state)

    def together(self, operands: list[ir.Expr], state: set[str], whole: ir.Expr) -> bool:
        held = [self.value(operand, state) for operand in operands]
        if any(held) and not all(one or self.is_number(operand) for one, operand in zip(held, operands, strict=True)):
            self.note(f"`{text_of(whole)}` takes it with what may be on the device", self.is_of_tensors(whole))
        elif any(held) and isinstance(whole, ir.Binary) and whole.op == "@":
            self.taken_whole = self.taken_whole or "a matrix product takes it"  # which a device is for
        return any(held)

    def is_of_tensors(self, whole: ir.Expr) -> bool:
        """Whether an operation is one of tensors for sure: text is added too, and what a caller gets may be numbers."""
        return isinstance(whole, ir.Binary) and (whole.op == "@" or (self.maker is None and whole.op != "+"))

    def is_number(self, expr: ir.Expr) -> bool:
        """Whether an expression is a number, a slice or a key: no tensor of the device."""
        match expr:
            case ir.Const():
                return True
            case ir.Name():
                return expr.id in self.numbers
            case ir.Slice():
                return True  # a tensor in a slice is read as a number
            case ir.Unary():
                return self.is_number(expr.value)
            case ir.Binary():
                return self.is_number(expr.left) and self.is_number(expr.right)
            case ir.Call():
                text = dotted(expr.func)
                return text in READS or text.rpartition(".")[2] in NUMBERS
            case ir.Attr():
                return expr.name in PLAIN
            case ir.Subscript():
                return isinstance(expr.value, ir.Attr) and expr.value.name == TORCH.names["shape"]
            case _:
                return False

    def call(self, expr: ir.Call, state: set[str]) -> bool:
        given = [self.value(arg.value, state) for arg in expr.args]
        text = dotted(expr.func)
        last = expr.func.name if isinstance(expr.func, ir.Attr) else text
        if isinstance(expr.func, ir.Attr) and self.value(expr.func.value, state):
            return self.method(expr, last, given)
        if self.maker is not None and last == self.maker.qualname.rpartition(".")[2] and self.is_made_by(text):
            self.found = True
            return True
        if not any(given):
            return False
        root = text.partition(".")[0]
        absolute = self.world.project.resolve(self.ref.path, text, self.ref.qualname) if text else None
        if text in READS or last in READS or (absolute or root).partition(".")[0] in HOST_LIBRARIES:
            return False
        if last in COLLECTS and isinstance(expr.func, ir.Attr):
            self.put(dotted(root_of(expr.func.value)), state)
            return False
        for arg in expr.args if last in JOINS else ():
            if isinstance(arg.value, ir.Sequence):
                self.together(list(parts_of(arg.value)), state, arg.value)
        if text in PASSES or text == "zip" or (last in JOINS and all(given)):
            return True
        if absolute is not None and absolute.startswith("torch."):
            others = [arg.value for arg, held in zip(expr.args, given, strict=True) if not held]
            if not all(self.is_number(other) or self.is_mode(other) for other in others):
                self.note(f"`{text}(…)` takes it with what may be on the device", whole=True)
            return True
        self.note(f"`{text or last}(…)` is given it")
        self.handed.append((text, [arg.keyword or at for at, arg in enumerate(expr.args) if given[at]]))
        return True

    def is_made_by(self, text: str) -> bool:
        return self.maker in self.world.project.callees(self.ref.path, self.ref.qualname, text).refs

    def method(self, expr: ir.Call, last: str, given: list[bool]) -> bool:
        """A method of what is followed."""
        if last in TO_HOST or last in PLAIN or last in COLLECTS:
            if last in COLLECTS and expr.args and not all(given):
                self.note(f"`{text_of(expr.func)}(…)` adds what may be on the device")
            return False
        if last in TO_DEVICE:
            if self.maker is not None and not all(is_host_or_type(arg.value) for arg in expr.args):
                self.taken_whole = self.taken_whole or f"`{text_of(expr.func)}(…)` moves it to a device"
            return False  # it says where the tensor shall be
        others = [arg.value for arg, held in zip(expr.args, given, strict=True) if not held]
        if last not in BY_NUMBERS and others and last not in PARTS:
            self.note(f"`.{last}(…)` takes it with what may be on the device", whole=True)
        elif last in BY_NUMBERS and any(
            isinstance(other, (ir.Name, ir.Call, ir.Attr)) and not self.is_number(other) for other in others
        ):
            if last in TORCH.words["meets-operands"]:
                self.note(f"`.{last}(…)` takes it with what may be on the device", whole=self.maker is None)
        return True

    @staticmethod
    def is_mode(expr: ir.Expr) -> bool:
        """Whether an argument says how something is done, as a name or attribute of torch's does (``torch.float``)."""
        return isinstance(expr, ir.Attr) and dotted(expr).startswith("torch.")

    # --- names ----------------------------------------------------------------------------------------------------------

    def take(self, target: ir.Expr, iterable: ir.Expr, state: set[str]) -> None:
        name = dotted(iterable.func).rpartition(".")[2] if isinstance(iterable, ir.Call) else ""
        items = target.items if isinstance(target, ir.Sequence) else []
        if isinstance(iterable, ir.Call) and name == "zip" and len(items) == len(iterable.args):
            for item, arg in zip(items, iterable.args, strict=True):
                self.bind(item, self.value(arg.value, state), state)
        elif isinstance(iterable, ir.Call) and name == "enumerate" and len(items) == 2 and iterable.args:
            self.numbers.add(dotted(items[0]))
            self.take(items[1], iterable.args[0].value, state)
        else:
            if name in TORCH.words["counts-up"]:
                self.numbers.add(dotted(target))
            self.bind(target, self.value(iterable, state), state)


def is_host_or_type(expr: ir.Expr) -> bool:
    """Whether an argument of ``to()`` is the host, or a type of numbers."""
    if isinstance(expr, ir.Call) and expr.args:
        expr = expr.args[0].value  # `torch.device("cpu")`
    return HostUses.is_mode(expr) or (isinstance(expr, ir.Const) and expr.value == TORCH.names["host"])


@bounded(TOO_MUCH)
def met_on_device(world: World, ref: FunctionRef, place: str, node: int) -> str:
    """The first use of what a container collects that may need it on the device; "" where none does. What is returned to callers in
    sight is such a use; an attribute is looked at in all methods of its class."""
    container = place.split("[")[0]
    outermost = world.outermost(ref)
    tracked = _followed(world, outermost, container, node)
    if tracked is None:
        return "it cannot be read"
    if tracked.met:
        return tracked.met
    for each in _in_callers(world, outermost) if tracked.leaves else ():
        if each.met or each.leaves or not each.found:
            return each.taken_whole or NOT_FOLLOWED  # what else a caller does is followed roughly
    return _met_in_methods(world, outermost, container) if "." in container else ""


NOT_FOLLOWED = "what becomes of it is not followed to its end"


def _in_callers(world: World, outermost: FunctionRef) -> Iterator[HostUses]:
    """What the functions that call one do with what it returns."""
    callers = world.project.callers(outermost).calls if outermost.qualname != MODULE else ()
    for caller in sorted({call.ref for call in callers})[:MAX_CALLERS]:
        found = world.ir_of(caller)
        if found is not None:
            in_caller = HostUses(world, caller, "", -1, outermost)
            in_caller.run(found.body)
            yield in_caller


@bounded("")
def taken_whole(world: World, ref: FunctionRef, place: str, node: int) -> str:
    """The first operation of a function, of one that calls it, of a method where an attribute collects, or of a function that one of
    these gives it to, that takes all that a container collects, put together, with what may be on the device; "" where none does."""
    outermost = world.outermost(ref)
    container = place.split("[")[0]
    tracked = _followed(world, outermost, container, node)
    if tracked is None:
        return ""
    after = _in_callers(world, outermost) if tracked.leaves else iter(())
    for each in (tracked, *after, *_in_methods(world, outermost, container)):
        for found in (each, *_in_callees(each)):
            if found.taken_whole:
                return found.taken_whole
    return ""


def _in_callees(above: HostUses) -> Iterator[HostUses]:
    """What functions of the project do with what they are given of what is followed."""
    world = above.world
    for text, given in above.handed:
        for ref in world.project.callees(above.ref.path, above.ref.qualname, text).refs[:MAX_CALLERS] if text else ():
            found = world.ir_of(ref)
            if found is None or found.qualname != ref.qualname:
                continue
            inside = HostUses(world, ref, "", -1, above.ref)
            inside.block(found.body, _names_of(found, given))
            yield inside


def _names_of(function: ir.Function, given: list[int | str]) -> set[str]:
    """The parameters that get some arguments: by their places, the object of a method aside, or by their names."""
    names = [param.name for param in function.params if param.kind is ParamKind.POSITIONAL]
    bound = int(names[:1] == ["self"])
    return {names[at + bound] if isinstance(at, int) else at for at in given if isinstance(at, str) or at + bound < len(names)}


def _followed(world: World, outermost: FunctionRef, container: str, node: int) -> HostUses | None:
    """What a function does with a container, from the store at a node on; None where it cannot be read."""
    found = world.ir_of(outermost)
    if found is None or not container:
        return None
    stores = [
        each.node
        for each in counted(world, found.body)
        if isinstance(each, (ir.ExprStmt, ir.Assign))
        and any(getattr(inner, "node", -1) == node for inner in counted(world, each))
    ]
    tracked = HostUses(world, outermost, container, stores[-1] if stores else -1)
    tracked.run(found.body)
    return tracked


def _met_in_methods(world: World, ref: FunctionRef, container: str) -> str:
    if not container.startswith("self.") or not world.header(ref).owner:
        return "code that is not visible uses it"
    for tracked in _in_methods(world, ref, container):
        if tracked.met or (tracked.leaves and world.project.callers(tracked.ref).calls):
            return tracked.met or NOT_FOLLOWED
    return ""


def _in_methods(world: World, ref: FunctionRef, container: str) -> Iterator[HostUses]:
    """What the other methods of a class do with what an attribute of its objects collects."""
    owner = world.header(ref).owner
    for facts in world.project.within(ref.path, owner) if owner and container.startswith("self.") else ():
        other = FunctionRef(ref.path, facts.qualname)
        found = world.ir_of(other) if not facts.parent and other != ref and container in facts.reads else None
        if found is not None:
            tracked = HostUses(world, other, container, -1)
            tracked.block(found.body, {container})
            yield tracked
