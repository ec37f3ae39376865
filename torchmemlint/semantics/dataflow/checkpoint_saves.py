"""Where the tensors of the project's checkpoints are when ``torch.save`` writes them: on the host, or wherever the model is.

By the text of the functions that save: ``net.cpu()`` above ``torch.save(net.state_dict(), path)``, also by way of names and dicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import FunctionRef
from torchmemlint.index.queries.calls import MAX_FUNCTIONS
from torchmemlint.lower import ir
from torchmemlint.lower.walk import everything, walk
from torchmemlint.lower.written import dotted
from torchmemlint.semantics.dataflow.released_names import Placed, binds, text_of_function
from torchmemlint.semantics.dataflow.restored_state import has_no_tensors, is_optimizer
from torchmemlint.semantics.size import assignments
from torchmemlint.semantics.state import MODULE, World, memoized, memoized_with_code
from torchmemlint.torch_facts import TORCH

COPIES = TORCH.words["copies-dicts"]
"""Functions that give a dict with the tensors of another."""
MAX_NAMES = 6
"""Names and calls that are followed to where a value comes from."""
WHOLE = ""
"""Stands for the key of all that is saved, where it is no dict of several."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that the project saves: its file's name where that is written out, else ""; the keys under which tensors are on the
    host, and those under which they are where the program has them; and all its keys. They are empty where nothing is known. Whether
    all of it is the state of an optimizer."""

    path: str
    file: str
    on_host: frozenset[str] = frozenset()
    elsewhere: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    of_optimizer: bool = False


def saved_from_host(world: World, ref: FunctionRef, node: int) -> Saved | None:
    """What every save says of the file that a call loads, where its weights, or all of it, were on the host: of the saves with its name,
    those in the same file or folder first; where it has no name that is written out, of those in the same file that have none either, or
    else of all saves of the project."""
    known = all_saved(world, TORCH.names["saves"])
    name = file_of(world, ref, node)
    named = [saved for saved in known if name and saved.file == name]
    near = [saved for saved in named if saved.path == ref.path] or [
        saved for saved in named if PurePosixPath(saved.path).parent == PurePosixPath(ref.path).parent
    ]
    others = [] if name and any(saved.file for saved in known) else [saved for saved in known if may_be(world, ref, saved)]
    beside = [saved for saved in others if saved.path == ref.path and not saved.file]
    read = keys_read(world, ref, node) if beside else frozenset[str]()
    if read and not any(read <= saved.keys for saved in beside):
        beside = []  # a dict with more than what is saved there
    chosen = near or named or beside or others
    if not chosen or not all(saved.on_host for saved in chosen):
        return None
    elsewhere = frozenset[str]().union(*(saved.elsewhere for saved in chosen))
    on_host = frozenset[str]().union(*(saved.on_host for saved in chosen)) - elsewhere
    return Saved(ref.path, name, on_host, elsewhere) if on_host else None


def may_be(world: World, ref: FunctionRef, saved: Saved) -> bool:
    """Whether a function that loads may load that checkpoint: one that restores a module, and names no key of a dict that is saved, does
    not (a ``save_training_state`` beside the ``save_network``); nor does one that restores no optimizer load an optimizer's."""
    if saved.of_optimizer and not restores_optimizer(world, ref):
        return False
    if not saved.keys or TORCH.names["restores"] not in world.facts(ref).names:
        return True
    found = world.ir_of(world.outermost(ref))
    return found is None or any(isinstance(each, ir.Const) and each.value in saved.keys for each in everything(found.body))


def restores_optimizer(world: World, ref: FunctionRef) -> bool:
    """Whether a function calls ``load_state_dict`` of an optimizer, or of what may be one."""
    evidence = world.evidence(ref)
    receivers = {
        receiver
        for call in world.facts(ref).calls
        for receiver, _, method in [call.callee.rpartition(".")]
        if method == TORCH.names["restores"]
    }
    return any(is_optimizer(world, ref, receiver, evidence.get(receiver, frozenset())) for receiver in receivers)


def left_unread(world: World, ref: FunctionRef, node: int) -> tuple[frozenset[str], frozenset[str]]:
    """The keys that a function reads of a file that it loads, and those under which the file has tensors beside, that were not on the
    host: by every save of the project with these keys, those in the same folder first. Both are empty where it is not known what is
    read, or what was saved."""
    read = keys_read(world, ref, node)
    known = [saved for saved in all_saved(world, TORCH.names["saves"]) if read and read <= saved.keys]
    near = [saved for saved in known if PurePosixPath(saved.path).parent == PurePosixPath(ref.path).parent]
    unread = [saved.elsewhere - read for saved in near or known]
    if not unread or not all(unread) or any(saved.elsewhere & read for saved in near or known):
        return frozenset(), frozenset()
    return read, frozenset[str]().union(*unread)


def saves_more(world: World) -> bool:
    """Whether the project saves a dict with a state that was not on the host, and other entries beside."""
    return any(saved.elsewhere and saved.keys - saved.elsewhere for saved in all_saved(world, TORCH.names["saves"]))


def keys_read(world: World, ref: FunctionRef, node: int) -> frozenset[str]:
    """The keys that are read of what a call gives, until its name is bound again; empty where anything else is done with it."""
    statements = Text(world, ref).statements
    place, call = placed_calls(world, ref).get(node, (0, None))
    bound = statements[place].statement if call is not None else None
    if not isinstance(bound, ir.Assign) or bound.value is not call or not isinstance(bound.targets[0], ir.Name):
        return frozenset()
    name = bound.targets[0].id
    if ref.qualname == MODULE and any(name in each.names - each.locals for each in others_of(world, ref)):
        return frozenset()
    read, uses = set[str](), 0
    for one in statements[place + 1 :]:
        if binds(one.statement, name):
            break
        for part in own_parts(one.statement):
            uses += isinstance(part, ir.Name) and part.id == name
            match part:
                case ir.Subscript(value=ir.Name(id=id), index=[ir.Const(value=str() as key)]) if id == name:
                    read.add(key)
                    uses -= 1
    return frozenset(read) if not uses else frozenset()


def others_of(world: World, ref: FunctionRef) -> list[FunctionFacts]:
    """The functions of a module, beside its own statements."""
    return [each for each in world.project.module(ref.path).functions if each.qualname != MODULE]


def own_parts(statement: ir.Stmt) -> Iterator[object]:
    """The parts of a statement without those of the blocks in it, which are statements of their own."""
    match statement:
        case ir.If() | ir.While():
            yield from everything(statement.test)
        case ir.For():
            yield from everything([statement.target, statement.iterable])
        case ir.With():
            yield from everything(statement.items)
        case ir.Try():
            return
        case _:
            yield from everything(statement)


@memoized
def all_saved(world: World, name: str) -> tuple[Saved, ...]:
    """All checkpoints that the project saves by a function of that name."""
    found: dict[Saved, None] = {}
    callers = world.project.functions_calling(name)
    if len(callers) == MAX_FUNCTIONS:
        return ()  # there may be more
    for caller in callers:
        ref = world.outermost(caller)
        found.update(dict.fromkeys(saved_in(world, ref)))
    return tuple(found)


@memoized
def saved_in(world: World, ref: FunctionRef) -> tuple[Saved, ...]:
    """The checkpoints that one function saves."""
    text = Text(world, ref)
    out = []
    for place, one in enumerate(text.statements):
        for call in own_calls(one.statement) if not any(text.is_shut(test) for test in one.tests) else ():
            if (
                world.project.resolve(ref.path, dotted(call.func), ref.qualname) not in TORCH.words["saves-tensors"]
                or len(call.args) < 2
            ):
                continue
            kept = text.kept(call.args[0].value, place)
            on_host, elsewhere = kept if kept is not None else (frozenset[str](), frozenset[str]())
            keys = text.keys(call.args[0].value, place)
            state = text.is_of_optimizer(call.args[0].value, place)
            out.append(Saved(ref.path, text.file(call.args[1].value, place), on_host, elsewhere, keys, state))
    return tuple(out) or (Saved(ref.path, ""),)


def file_of(world: World, ref: FunctionRef, node: int) -> str:
    """The name of the file that a call loads, where it is written out."""
    place, call = placed_calls(world, ref).get(node, (0, None))
    return Text(world, ref).file(call.args[0].value, place) if call is not None and call.args else ""


def nodes_of_file(world: World, ref: FunctionRef, node: int) -> list[int]:
    """The node of the argument that says which file a call loads, and those of what the function assigns to the names in it."""
    _, call = placed_calls(world, ref).get(node, (0, None))
    if call is None or not call.args:
        return []
    file = call.args[0].value
    names = {part.id for part in walk(file) if isinstance(part, ir.Name)}
    given = assignments(world, world.outermost(ref))
    return [file.node, *(each.value.node for each in given if any(dotted(target) in names for target in each.targets))]


@memoized_with_code
def placed_calls(world: World, ref: FunctionRef) -> dict[int, tuple[int, ir.Call | None]]:
    """The calls in the simple statements of a function, with the number of their statement, by node."""
    statements = Text(world, ref).statements
    return {call.node: (place, call) for place, one in enumerate(statements) for call in own_calls(one.statement)}


def own_calls(statement: ir.Stmt) -> Iterator[ir.Call]:
    """The calls in a simple statement, those of a function in it, too."""
    match statement:
        case ir.ExprStmt() | ir.Assign() | ir.Return():
            if statement.value is not None:
                yield from (part for part in everything(statement.value) if isinstance(part, ir.Call))
        case _:
            return


Kept = tuple[frozenset[str], frozenset[str]]
"""Keys under which tensors are on the host, and keys under which they are elsewhere."""
HOST: Kept = (frozenset({WHOLE}), frozenset())
ELSEWHERE: Kept = (frozenset(), frozenset({WHOLE}))
NO_TENSORS: Kept = (frozenset(), frozenset())


class Text:
    """The statements of a function, read for what a value at one of them is made of."""

    def __init__(self, world: World, ref: FunctionRef, depth: int = 0) -> None:
        self.world = world
        self.ref = ref
        self.depth = depth
        self.statements: list[Placed] = text_of_function(world, ref)[0]

    def bound(self, name: str, place: int) -> tuple[ir.Expr, int] | None:
        """What a name was last bound to above a statement, and where."""
        for above in range(place - 1, -1, -1):
            statement = self.statements[above].statement
            if binds(statement, name) and isinstance(statement, ir.Assign):
                return statement.value, above
        return None

    def file(self, expr: ir.Expr, place: int, depth: int = 0) -> str:
        """The last part of a path, where it is written out in an expression or in what its names are bound to."""
        parts = [part for part in walk(expr) if isinstance(part, (ir.Const, ir.Name))]
        for part in reversed(parts):
            if isinstance(part, ir.Const) and isinstance(part.value, str):
                name = PurePosixPath(part.value).name
                if PurePosixPath(name).suffix and "{" not in name and "%" not in name:
                    return name
            elif isinstance(part, ir.Name) and depth < MAX_NAMES and (found := self.bound(part.id, place)) is not None:
                if name := self.file(*found, depth + 1):
                    return name
        return ""

    def kept(self, expr: ir.Expr, place: int, depth: int = 0) -> Kept | None:
        """Where the tensors of a value are; None where it is not known what it is."""
        if depth > MAX_NAMES:
            return None
        match expr:
            case ir.Const():
                return NO_TENSORS
            case ir.Name():
                return self.of_name(expr.id, place, depth)
            case ir.IfExp():
                return either(self.kept(expr.then, place, depth + 1), self.kept(expr.orelse, place, depth + 1))
            case ir.DictDisplay():
                return self.of_display(expr, place, depth)
            case ir.Comprehension(kind=ir.Display.DICT):
                source = expr.clauses[0].iterable
                if moves_to_host(expr.element):
                    return ELSEWHERE if self.is_of_optimizer(source, place) else HOST
                return self.kept(root_of(source), place, depth + 1)
            case ir.Call():
                return self.of_call(expr, place, depth)
            case _:
                return None

    def of_name(self, name: str, place: int, depth: int) -> Kept | None:
        found = self.bound(name, place)
        if found is None:
            return None
        filled = [
            self.kept_item(one.statement.value, at, depth + 1)
            for at, one in enumerate(self.statements[found[1] : place], found[1])
            if one.loops and isinstance(one.statement, ir.Assign) and is_item_of(one.statement.targets[0], name)
            if not any(self.is_shut(test) for test in one.tests)
        ]
        if any(filled):
            return HOST if all(each is not None and not each[1] for each in filled) else ELSEWHERE
        return self.kept(*found, depth + 1)

    def kept_item(self, expr: ir.Expr, place: int, depth: int) -> Kept | None:
        return HOST if moves_to_host(expr) else self.kept(expr, place, depth) or ELSEWHERE

    def is_shut(self, test: str) -> bool:
        """Whether a test, as it is written, fails under every visible caller."""
        return self.world.project.test_holds(self.ref, test) is False

    def keys(self, expr: ir.Expr, place: int) -> frozenset[str]:
        """The keys of a dict that is written out, and bound to a name at most."""
        if isinstance(expr, ir.Name) and (found := self.bound(expr.id, place)) is not None:
            expr = found[0]
        if not isinstance(expr, ir.DictDisplay) or not all(isinstance(key, ir.Const) for key, _ in expr.items):
            return frozenset()
        return frozenset(str(key.value) for key, _ in expr.items if isinstance(key, ir.Const))

    def of_display(self, expr: ir.DictDisplay, place: int, depth: int) -> Kept | None:
        on_host: set[str] = set()
        elsewhere: set[str] = set()
        for key, value in expr.items:
            if not isinstance(key, ir.Const):
                return None
            found = self.kept(value, place, depth + 1)
            if found is None and any(isinstance(part, ir.Call) and is_state(part) for part in walk(value)):
                found = ELSEWHERE
            if found is not None and any(found):
                (elsewhere if found[1] else on_host).add(str(key.value))
        return frozenset(on_host), frozenset(elsewhere)

    def of_call(self, expr: ir.Call, place: int, depth: int) -> Kept | None:
        refs = self.world.project.callees(self.ref.path, self.ref.qualname, dotted(expr.func)).refs
        if len(refs) == 1 and self.depth < MAX_NAMES:
            return self.of_function(refs[0])
        if is_state(expr) and isinstance(expr.func, ir.Attr):
            if has_no_tensors(self.world, self.ref, dotted(expr.func.value)):
                return NO_TENSORS
            moved = moves_to_host(expr.func.value) or self.is_moved(expr.func.value, place)
            return HOST if moved else ELSEWHERE
        if dotted(expr.func).rpartition(".")[2] in COPIES and expr.args:
            return self.kept(expr.args[0].value, place, depth + 1)
        return None

    def of_function(self, ref: FunctionRef) -> Kept | None:
        """What a function of the project returns, where all that it returns is alike, or where it calls itself for what is inside of what
        it is given, and moves a tensor to the host."""
        if self.world.ir_of(ref) is None:
            return None
        text = Text(self.world, ref, self.depth + 1)
        given = [
            (one.statement.value, place)
            for place, one in enumerate(text.statements)
            if isinstance(one.statement, ir.Return) and one.statement.value is not None
        ]
        calls_itself = any(caller.ref == ref for caller in self.world.project.callers(ref).calls)
        if calls_itself and any(moves_to_host(value) for value, _ in given):
            return HOST
        found = [text.kept(value, place) for value, place in given]
        return found[0] if found and all(one == found[0] for one in found) else None

    def is_moved(self, expr: ir.Expr, place: int) -> bool:
        """Whether the last move of a model above a statement certainly was one to the host."""
        name, tests = model_of(expr), self.statements[place].tests
        for _ in range(MAX_NAMES):
            for above in range(place - 1, -1, -1):
                one = self.statements[above]
                value = one.statement.value if isinstance(one.statement, (ir.ExprStmt, ir.Assign)) else None
                if not isinstance(value, ir.Call) or not isinstance(value.func, ir.Attr) or value.func.name not in MOVES:
                    continue
                if name and model_of(value.func.value) == name:
                    return one.tests <= tests and moves_to_host(value)
            found = self.bound(name, place)
            if found is None:
                return False
            name = model_of(found[0].then if isinstance(found[0], ir.IfExp) else found[0])
        return False

    def is_of_optimizer(self, expr: ir.Expr, place: int) -> bool:
        """Whether what is gone through is an optimizer's state: its tensors are two dicts further in."""
        expr = root_of(expr)
        if isinstance(expr, ir.Name) and (found := self.bound(expr.id, place)) is not None:
            expr = root_of(found[0])
        if not isinstance(expr, ir.Call) or not isinstance(expr.func, ir.Attr):
            return False
        receiver = dotted(expr.func.value)
        return is_optimizer(self.world, self.ref, receiver, self.world.evidence(self.ref).get(receiver, frozenset()))


MOVES = TORCH.words["moves-tensors"]


def either(one: Kept | None, other: Kept | None) -> Kept | None:
    return one if one == other else ELSEWHERE if one is not None and other is not None else None


def is_state(call: ir.Call) -> bool:
    return isinstance(call.func, ir.Attr) and call.func.name == TORCH.names["state"]


def is_item_of(target: ir.Expr, name: str) -> bool:
    """Whether a target is an item of a name, or of an item of it."""
    if not isinstance(target, ir.Subscript):
        return False
    return is_item_of(target.value, name) or (isinstance(target.value, ir.Name) and target.value.id == name)


def moves_to_host(expr: ir.Expr) -> bool:
    """Whether an expression, or one branch of a choice between a tensor and what is none, ends in a move to the host."""
    match expr:
        case ir.IfExp():
            return moves_to_host(expr.then) or moves_to_host(expr.orelse)
        case ir.Call(func=ir.Attr(name=name)) if name == TORCH.names["to-host"]:
            return True
        case ir.Call(func=ir.Attr(name=name), args=[ir.Arg(value=place), *_]) if name == TORCH.names["to-place"]:
            given = place.args[0].value if isinstance(place, ir.Call) and place.args else place
            return isinstance(given, ir.Const) and given.value == TORCH.names["host"]
        case ir.Call(func=ir.Attr(name=name, value=inner)) if name in TORCH.words["same-values"]:
            return moves_to_host(inner)
        case _:
            return False


def model_of(expr: ir.Expr) -> str:
    """The model that an expression is, or is the wrapped one of: ``net`` of ``net.module``."""
    return dotted(expr).removesuffix(".module")


def root_of(expr: ir.Expr) -> ir.Expr:
    """What ``.items()`` is called on."""
    while isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr) and expr.func.name in ("items", "copy"):
        expr = expr.func.value
    return expr
