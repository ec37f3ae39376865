"""What a module's constructor makes, followed with the numbers that it is given: each layer on the way is counted.

Of a test that is not known both branches are followed, so that the count is a bound from above. Where a width, a number of layers or
a callable is not known, there is no bound (``Unbounded``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torchmemlint.index.fact_words import ParamKind
from torchmemlint.index.facts import CallFact
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.index.queries.options import option_names
from torchmemlint.lower import ir
from torchmemlint.lower.walk import nodes_of
from torchmemlint.lower.written import dotted
from torchmemlint.semantics.identity import function_or_closure
from torchmemlint.semantics.size.constructor_values import (
    OneOf,
    Symbol,
    UnknownPart,
    built_in,
    compared,
    flat,
    method_of_value,
    plain_value,
)
from torchmemlint.semantics.size.layers import Unbounded, entries_of, is_spatial, parameters_of_layer
from torchmemlint.semantics.state import MODULE, World, memoized, memoized_with_code
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import ClassKind

MAX_STEPS = 20_000
"""Expressions and statements that are followed for one network."""
MAX_DEPTH = 24
UNFOLLOWED = (Unbounded, ArithmeticError, LookupError, TypeError, ValueError, AttributeError)
"""What ends the following of a constructor: a callable that is not known, or values that do not fit what is done with them."""
MAX_TURNS = 256


@dataclass(slots=True)
class Environment:
    """What the names of a function stand for; ``me`` is its object, ``cls`` the class whose method it is."""

    ref: FunctionRef
    names: dict[str, object]
    me: UnknownPart | None = None
    cls: ClassRef | None = None


class Returned(Exception):
    def __init__(self, value: object) -> None:
        self.value = value


@memoized_with_code
def assignments(world: World, ref: FunctionRef) -> list[ir.Assign]:
    """The assignments of an outermost function, in order."""
    return [node for node in nodes_of(world.body(ref)) if isinstance(node, ir.Assign)]


class Constructor:
    """Follows constructors. ``made`` are the parameters of all layers so far; ``spatial``: one of them goes over positions."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.steps = 0
        self.depth = 0
        self.made = 0
        self.spatial = False

    def bindings(self, ref: FunctionRef, text: str) -> list[ir.Expr]:
        """What a function assigns to a name or attribute, in order."""
        assigned = assignments(self.world, self.world.outermost(ref))
        return [
            value for each in assigned for target in each.targets if (value := part_for(text, target, each.value)) is not None
        ]

    # --- statements ---------------------------------------------------------------------------------------------------

    def run(self, body: Iterable[ir.Stmt], scope: Environment) -> None:
        for statement in body:
            self.step()
            self.statement(statement, scope)

    def step(self) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS or self.depth > MAX_DEPTH:
            raise Unbounded

    def statement(self, statement: ir.Stmt, scope: Environment) -> None:
        match statement:
            case ir.ExprStmt():
                self.value(statement.value, scope)
            case ir.Assign():
                value = self.value(statement.value, scope)
                for target in statement.targets:
                    self.bind(target, value, scope)
            case ir.AugAssign():
                both = self.operate(statement.op, self.value(statement.target, scope), self.value(statement.value, scope))
                self.bind(statement.target, both, scope)
            case ir.Return():
                raise Returned(None if statement.value is None else self.value(statement.value, scope))
            case ir.If():
                self.branch(statement, scope)
            case ir.For():
                self.loop(
                    statement.target, self.value(statement.iterable, scope), scope, lambda: self.run(statement.body, scope)
                )
            case ir.With():
                self.run(statement.body, scope)
            case ir.Try():
                self.run(statement.body, scope)
            case ir.While() | ir.FunctionDef() | ir.ClassDef() | ir.Match():
                raise Unbounded

    def branch(self, statement: ir.If, scope: Environment) -> None:
        test = self.value(statement.test, scope)
        if not isinstance(test, (UnknownPart, Symbol)):
            self.run(statement.then if test else statement.orelse, scope)
        else:
            self.undecided(statement, scope)

    def undecided(self, statement: ir.If, scope: Environment) -> None:
        """A branch whose test may come out either way."""
        before = dict(scope.names)
        self.returning(statement.then, scope)
        then, scope.names = scope.names, before
        self.returning(statement.orelse, scope)
        for name in then.keys() | scope.names.keys():
            if then.get(name) != scope.names.get(name):
                scope.names[name] = UnknownPart()

    def returning(self, body: list[ir.Stmt], scope: Environment) -> None:
        """Runs a branch that may be taken; what it returns is not known to be what is returned."""
        if any(isinstance(statement, ir.Raise) for statement in body):
            return
        try:
            self.run(body, scope)
        except Returned:
            raise Unbounded from None

    def loop(self, target: ir.Expr, over: object, scope: Environment, turn: Callable[[], None]) -> None:
        if isinstance(over, UnknownPart):
            before = self.made
            self.bind(target, UnknownPart(), scope)
            turn()
            if self.made != before:
                raise Unbounded("layers in a loop of which the number of iterations is not known")
            return
        if not isinstance(over, (list, tuple, range, str, dict)) or len(over) > MAX_TURNS:
            raise Unbounded
        for item in list(over):
            self.bind(target, item, scope)
            turn()

    def bind(self, target: ir.Expr, value: object, scope: Environment) -> None:
        match target:
            case ir.Name():
                scope.names[target.id] = value
            case ir.Attr(value=ir.Name(id="self")) if scope.me is not None:
                scope.me.attrs[target.name] = value
            case ir.Sequence():
                items = list(value) if isinstance(value, (list, tuple)) and len(value) == len(target.items) else None
                for place, each in enumerate(target.items):
                    self.bind(each, items[place] if items is not None else UnknownPart(), scope)
            case ir.Subscript():
                held, key = self.value(target.value, scope), self.index(target, scope)
                if isinstance(held, list) and isinstance(key, int):
                    held[key] = value
                if isinstance(held, dict):
                    held[key] = value

    # --- expressions --------------------------------------------------------------------------------------------------

    def value(self, expr: ir.Expr, scope: Environment) -> object:
        self.step()
        match expr:
            case ir.Const():
                return expr.value
            case ir.Name():
                return self.name(expr.id, scope)
            case ir.Attr():
                return self.attribute(expr, scope)
            case ir.Call():
                return self.call(expr, scope)
            case ir.Binary():
                return self.operate(expr.op, self.value(expr.left, scope), self.value(expr.right, scope))
            case ir.Sequence():
                items = [self.value(item, scope) for item in expr.items]
                return tuple(items) if expr.kind is ir.Display.TUPLE else items
            case ir.Comprehension():
                return self.comprehension(expr, scope)
            case ir.Subscript():
                return self.item(expr, scope)
            case _:
                return self.choice(expr, scope)

    def choice(self, expr: ir.Expr, scope: Environment) -> object:
        match expr:
            case ir.IfExp():
                test = self.value(expr.test, scope)
                if not isinstance(test, (UnknownPart, Symbol)):
                    return self.value(expr.then if test else expr.orelse, scope)
                one, other = self.value(expr.then, scope), self.value(expr.orelse, scope)
                return one if one == other else OneOf(options=(one, other))
            case ir.BoolOp():
                left, right = self.value(expr.left, scope), self.value(expr.right, scope)
                if isinstance(left, (UnknownPart, Symbol)):
                    return UnknownPart()
                return (left and right) if expr.op == "and" else (left or right)
            case ir.Unary():
                value = self.value(expr.value, scope)
                if isinstance(value, (UnknownPart, Symbol)):
                    return UnknownPart()
                return not value if expr.op == "not" else -value if expr.op == "-" else value  # type: ignore[operator]
            case ir.Compare(ops=[op], comparators=[right]):
                return compared(op, self.value(expr.left, scope), self.value(right, scope))
            case ir.DictDisplay() if all(isinstance(key, ir.Const) for key, _ in expr.items):
                return {key.value: self.value(value, scope) for key, value in expr.items}  # type: ignore[union-attr]
            case _:
                return UnknownPart()

    def name(self, name: str, scope: Environment) -> object:
        if name in scope.names:
            return scope.names[name]
        facts = self.world.facts(scope.ref)
        absolute = self.world.project.resolve(scope.ref.path, name, facts.qualname)
        if absolute is None and name in facts.locals:
            return self.local(name, scope)
        if absolute is not None and ((found := self.world.symbol(absolute)) is not None or not self.is_own(absolute)):
            return Symbol(found or absolute)
        variable = self.world.project.variable(scope.ref.path, name)
        if variable is not None:
            return self.local(variable[1], Environment(FunctionRef(variable[0], MODULE), {}))
        return self.local(name, Environment(FunctionRef(scope.ref.path, MODULE), {}))

    def is_own(self, absolute: str) -> bool:
        return self.world.project.is_inside(absolute)

    def local(self, name: str, scope: Environment) -> object:
        """What a name of a function stands for that was not run: the one value that it is given, or a parameter's default."""
        found = self.bindings(scope.ref, name)
        if len(found) == 1:
            self.depth += 1
            scope.names[name] = UnknownPart()  # where it leads back to itself
            scope.names[name] = self.value(found[0], scope)
            self.depth -= 1
            return scope.names[name]
        return UnknownPart()

    def attribute(self, expr: ir.Attr, scope: Environment) -> object:
        text = dotted(expr)
        head = text.partition(".")[0]
        if text and head not in scope.names and head != "self":
            absolute = self.world.project.resolve(scope.ref.path, text, self.world.facts(scope.ref).qualname)
            if absolute is not None and absolute.startswith(FLAGS):
                return self.option(expr.name, scope)
            if absolute is not None:
                return Symbol(self.world.symbol(absolute) or absolute)
        if isinstance(expr.value, ir.Name) and expr.value.id == "self" and scope.me is not None:
            if expr.name not in scope.me.attrs and scope.cls is not None:
                return self.of_class(scope.cls, expr.name)
            return scope.me.attrs.get(expr.name, UnknownPart())
        held = self.value(expr.value, scope)
        if isinstance(held, Symbol):
            return self.of_class(held.of, expr.name) if isinstance(held.of, ClassRef) else UnknownPart()
        if isinstance(held, UnknownPart) and expr.name in held.attrs:
            return held.attrs[expr.name]
        return self.option(expr.name, scope) if isinstance(expr.value, ir.Name) else UnknownPart()

    def of_class(self, cls: ClassRef, name: str) -> object:
        """What a class's own body gives a name: ``expansion = 4``."""
        found = [fact.const for fact, _ in self.world.project.attr(cls, name) if not fact.method]
        return int(found[0]) if len(found) == 1 and found[0].isdecimal() else UnknownPart()

    def option(self, name: str, scope: Environment) -> object:
        """The default of the option of that name, where the file, or one that has a parser, gives it one alone."""
        project = self.world.project
        paths = dict.fromkeys([scope.ref.path, *(ref.path for ref in project.functions_calling("parser.add_argument"))])
        for path in paths:
            found = {default for call in _options_of(self.world, path) if (default := default_of(call, name)) is not None}
            if found:
                (only,) = found if len(found) == 1 else ("",)
                return plain_value(only)
        return UnknownPart()

    def item(self, expr: ir.Subscript, scope: Environment) -> object:
        held = self.value(expr.value, scope)
        if isinstance(expr.index[0], ir.Slice):
            ends = [self.value(part, scope) for part in expr.index[0].parts]
            plain = isinstance(held, (list, tuple)) and len(ends) == 1 and isinstance(ends[0], int)
            return held[: ends[0]] if plain and ends[0] < 0 else held[ends[0] :] if plain else UnknownPart()  # type: ignore[index,operator,misc]
        key = self.index(expr, scope)
        known = isinstance(held, (list, tuple, dict)) and not isinstance(key, (UnknownPart, Symbol))
        return held[key] if known else UnknownPart()  # type: ignore[index]

    def index(self, expr: ir.Subscript, scope: Environment) -> object:
        return self.value(expr.index[0], scope) if len(expr.index) == 1 else UnknownPart()

    def comprehension(self, expr: ir.Comprehension, scope: Environment) -> object:
        if len(expr.clauses) != 1 or expr.kind is ir.Display.DICT:
            return UnknownPart()
        clause = expr.clauses[0]
        found: list[object] = []

        def turn() -> None:
            tests = [self.value(condition, scope) for condition in clause.conditions]
            if any(isinstance(test, (UnknownPart, Symbol)) for test in tests) or all(tests):
                found.append(self.value(expr.element, scope))

        self.loop(clause.target, self.value(clause.iterable, scope), scope, turn)
        return found

    def operate(self, op: str, left: object, right: object) -> object:
        if isinstance(left, (list, tuple)) and op in ("+", "*") and isinstance(right, (list, tuple, int)):
            if isinstance(right, int) and (op != "*" or right * len(left) > MAX_TURNS):
                return UnknownPart()
            return left + right if op == "+" else left * right  # type: ignore[operator]
        if isinstance(left, UnknownPart) and "" in left.attrs:
            return left  # a tensor of that size
        if not isinstance(left, (int, float)) or not isinstance(right, (int, float)) or op not in OPERATIONS:
            return UnknownPart()
        return OPERATIONS[op](left, right) if op != "**" or (abs(left) < 2**16 and abs(right) < 64) else UnknownPart()

    # --- calls --------------------------------------------------------------------------------------------------------

    def call(self, expr: ir.Call, scope: Environment) -> object:
        if is_super(expr.func):
            return self.inherited(expr, scope)
        args, keywords = self.arguments(expr, scope)
        if isinstance(expr.func, ir.Attr):
            if isinstance(expr.func.value, ir.Name) and expr.func.value.id == "self" and scope.cls is not None:
                method = self.world.project.method(scope.cls, expr.func.name)
                if method is not None:
                    return self.enter(method, args, keywords, scope.me, scope.cls)
            plain = dotted(expr.func) and "()" not in dotted(expr.func)  # else a call would be followed twice
            found = self.attribute(expr.func, scope) if plain else None
            if not isinstance(found, Symbol):
                return method_of_value(self.value(expr.func.value, scope), expr.func.name, args)
            return self.apply(found, args, keywords)
        return self.apply(self.value(expr.func, scope), args, keywords)

    def arguments(self, expr: ir.Call, scope: Environment) -> tuple[list[object], dict[str, object]]:
        args: list[object] = []
        keywords: dict[str, object] = {}
        for each in expr.args:
            value = self.value(each.value, scope)
            if each.star is ir.Stars.ONE:
                args += value if isinstance(value, (list, tuple)) else self.spread(value)
            elif each.star is ir.Stars.TWO:
                if not isinstance(value, dict):
                    raise Unbounded
                keywords |= value
            elif each.keyword is not None:
                keywords[each.keyword] = value
            else:
                args.append(value)
        return args, keywords

    def spread(self, value: object) -> list[object]:
        """The arguments that ``*value`` stands for, of which the number is not known."""
        raise Unbounded

    def apply(self, called: object, args: list[object], keywords: dict[str, object]) -> object:
        if isinstance(called, OneOf):
            first, *_ = [self.apply(each, args, keywords) for each in called.options]
            return first
        if not isinstance(called, Symbol):
            raise Unbounded(f"a call of {called}")  # it may make layers
        if isinstance(called.of, FunctionRef):
            return self.enter(called.of, args, keywords, None, None)
        if isinstance(called.of, ClassRef):
            return self.instance(called.of, args, keywords)
        return self.outside(called.of, args, keywords)

    def instance(self, cls: ClassRef, args: list[object], keywords: dict[str, object]) -> UnknownPart:
        """A new object of a class of the project."""
        before, me = self.made, UnknownPart()
        if self.world.is_module_class(cls) is not True:
            if self.world.is_module_class(cls) is None:
                raise Unbounded
            return me
        init = self.world.project.method(cls, "__init__")
        if init is not None:
            self.enter(init, args, keywords, me, cls)
        else:
            self.base(cls, cls, args, keywords)
        me.count = self.made - before
        return me

    def inherited(self, expr: ir.Call, scope: Environment) -> object:
        """``super().__init__(…)``."""
        if not isinstance(expr.func, ir.Attr) or expr.func.name != "__init__" or scope.cls is None or scope.me is None:
            return UnknownPart()
        args, keywords = self.arguments(expr, scope)
        around = self.world.header(scope.ref).owner
        return self.base(scope.cls, ClassRef(scope.ref.path, around), args, keywords, scope.me)

    def base(
        self, cls: ClassRef, after: ClassRef, args: list[object], keywords: dict[str, object], me: UnknownPart | None = None
    ) -> object:
        """Runs the constructor that comes next in the order of an object's classes."""
        order = list(self.world.project.mro(cls))
        for each in order[order.index(after) + 1 :]:
            if isinstance(each, str):
                return self.outside(each, args, keywords)
            own = FunctionRef(each.path, f"{each.qualname}.__init__")
            if self.world.ir_of(own) is not None:
                return self.enter(own, args, keywords, me, cls)
        return None

    def enter(
        self, ref: FunctionRef, args: list[object], keywords: dict[str, object], me: UnknownPart | None, cls: ClassRef | None
    ) -> object:
        """Runs a function of the project."""
        function = self.function(ref)
        params = function.params[1:] if me is not None else function.params
        scope = Environment(ref, {}, me, cls)
        given = iter(args)
        for param in params:
            if param.kind is ParamKind.VAR_POSITIONAL:
                scope.names[param.name] = list(given)
            elif param.kind is ParamKind.VAR_KEYWORD:
                scope.names[param.name] = dict(keywords)
            elif param.kind is ParamKind.POSITIONAL and (value := next(given, MISSING)) is not MISSING:
                scope.names[param.name] = value
            elif param.name in keywords:
                scope.names[param.name] = keywords.pop(param.name)
            elif param.default is not None:
                scope.names[param.name] = self.value(param.default, Environment(FunctionRef(ref.path, MODULE), {}))
            else:
                scope.names[param.name] = UnknownPart()
        self.depth += 1
        try:
            self.run(function.body, scope)
        except Returned as end:
            return end.value
        finally:
            self.depth -= 1
        return self.ended(scope)

    def ended(self, scope: Environment) -> object:
        """What a function gives that comes to its end."""
        return None

    def function(self, ref: FunctionRef) -> ir.Function:
        found = function_or_closure(self.world, ref)
        if found is None:
            raise Unbounded(ref.qualname)
        return found

    def outside(self, name: str, args: list[object], keywords: dict[str, object]) -> object:
        """What a function or class of a library gives."""
        if name.startswith("builtins."):
            return built_in(name.removeprefix("builtins."), args, keywords)
        if name == "copy.deepcopy" and args:
            count = sum(each.count for each in flat(args[0]) if isinstance(each, UnknownPart))
            self.made += count
            return args[0]
        if not name.startswith("torch."):
            if name.partition(".")[0] in HARMLESS:
                return UnknownPart(attrs=dict(keywords))  # ``Namespace(width=64)`` keeps them
            raise Unbounded(name)
        kind = TORCH.class_kind(name)
        if kind in (ClassKind.MODULE, ClassKind.WRAPPER):
            inner = sum(each.count for value in args for each in flat(value) if isinstance(each, UnknownPart))
            count = parameters_of_layer(name, args, keywords, inner)
            self.made += count
            self.spatial = self.spatial or is_spatial(name)
            return UnknownPart(inner + count)
        if name in TORCH.words["parameter-classes"]:
            size = args[0] if args else None
            self.made += entries_of(size.attrs.get("") if isinstance(size, UnknownPart) else None)
            return UnknownPart()
        if name in FRESH:
            sizes = args or [keywords.get(TORCH.names["size-argument"])]
            return UnknownPart(attrs={"": sizes[0] if len(sizes) == 1 or name == TORCH.names["filled"] else sizes})
        return UnknownPart()


MISSING = object()
FLAGS = "absl.flags.FLAGS."
OPERATIONS: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": lambda a, b: a**b,
}
FRESH = TORCH.words["sized-by-arguments"]
"""Functions that are given the sizes of the tensor that they make."""
HARMLESS = TORCH.words["stdlib-with-values"] | TORCH.words["makes-no-module"]


def part_for(text: str, target: ir.Expr, value: ir.Expr) -> ir.Expr | None:
    """What an assignment gives a name or attribute, None where it is not among its targets (``net, _ = networks()``)."""
    if dotted(target) == text:
        return value
    if isinstance(target, ir.Sequence):
        for place, each in enumerate(target.items):
            if dotted(each) == text:
                if isinstance(value, ir.Sequence) and len(value.items) == len(target.items):
                    return value.items[place]
                return ir.Subscript(value.node, value, [ir.Const(value.node, place)])
    return None


def is_super(func: ir.Expr) -> bool:
    return isinstance(func, ir.Attr) and isinstance(func.value, ir.Call) and dotted(func.value.func) == "super"


@memoized
def _options_of(world: World, path: str) -> tuple[CallFact, ...]:
    """The calls in a file that may define an option."""
    calls = (call for facts in world.project.module(path).functions for call in facts.calls)
    return tuple(call for call in calls if call.callee.rpartition(".")[2].startswith(DEFINES))


DEFINES = ("add_argument", "DEFINE_")


def default_of(call: CallFact, option: str) -> str | None:
    """The default that a call gives to an option, as a literal: ``add_argument("--width", default=64)``; None where it defines another."""
    last = call.callee.rpartition(".")[2]
    if last == "add_argument" and option in option_names(call):
        action = next((arg.const for arg in call.args if arg.keyword == "action"), "")
        if action in FLAG_ACTIONS:
            return FLAG_ACTIONS[action]
        return next((arg.const for arg in call.args if arg.keyword == "default"), "None")
    if last.startswith("DEFINE_") and len(call.args) > 1 and call.args[0].const == f"'{option}'":
        return call.args[1].const
    return None


FLAG_ACTIONS = {"'store_true'": "False", "'store_false'": "True"}
