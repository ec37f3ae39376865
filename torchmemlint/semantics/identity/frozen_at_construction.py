"""Modules whose own parameters learn nothing, by what their constructor is given: ``Rates(train_bias=False)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchmemlint.index.arguments import argument_for
from torchmemlint.index.facts import CallFact, ParamFact
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.written import dotted
from torchmemlint.semantics.identity.parameters import PARAMETERS, parametric_attributes
from torchmemlint.semantics.state import World, memoized
from torchmemlint.torch_facts import TORCH

FLAG, METHOD = TORCH.names["gradient-flag"], TORCH.names["sets-gradient-flag"]

Flags = dict[str, "bool | None"]  # attribute → whether its parameter wants a gradient, None where that is not known


def frozen_by_arguments(world: World, cls: ClassRef, known: Mapping[str, bool]) -> bool:
    """Whether a module has parameters of its own alone, none of which wants a gradient where its constructor has these flags: ``known``
    are the parameters whose values are known, by what is given or by default."""
    init = world.project.method(cls, "__init__")
    return init is not None and says_flag(world, init) and _frozen_by_arguments(world, cls, tuple(sorted(known.items())))


@memoized
def _frozen_by_arguments(world: World, cls: ClassRef, known: tuple[tuple[str, bool], ...]) -> bool:
    init = world.project.method(cls, "__init__")
    held = parametric_attributes(world, cls)
    found = world.ir_of(init) if init is not None and held else None
    if init is None or found is None or not found.params:
        return False
    changed = {name for name, _ in world.facts(init).rebound}
    flags: Flags = {}
    values = {name: value for name, value in known if name not in changed}
    _Constructed(world, init, found.params[0].name, values).run(found.body, flags)
    return all(flags.get(name) is False for name in held)


def says_flag(world: World, init: FunctionRef) -> bool:
    """Whether a constructor says of anything whether it wants a gradient."""
    facts = world.facts(init)
    return any(name.startswith(FLAG) for name in facts.names) or any(FLAG in call.keywords for call in facts.calls)


def made_frozen(world: World, ref: FunctionRef, callee: str, cls: ClassRef) -> bool:
    """Whether every call of ``callee`` in a function, which constructs ``cls``, makes a module in which nothing wants a gradient."""
    init = world.project.method(cls, "__init__")
    if init is None or not says_flag(world, init):
        return False
    params = world.header(init).params[1:]
    calls = [call for call in world.facts(ref).calls if call.callee == callee]
    return bool(calls) and all(frozen_by_arguments(world, cls, _flags_given(params, call)) for call in calls)


def _flags_given(params: Sequence[ParamFact], call: CallFact) -> dict[str, bool]:
    given = {param.name: argument_for(params, param.name, call.args) for param in params}
    return {name: arg.const == "True" for name, arg in given.items() if arg is not None and arg.const in ("True", "False")}


class _Constructed:
    """Follows what a constructor says of its own parameters."""

    def __init__(self, world: World, init: FunctionRef, me: str, known: Mapping[str, bool]) -> None:
        self.world = world
        self.init = init
        self.me = me
        self.known = known

    def run(self, body: list[ir.Stmt], flags: Flags) -> None:
        for statement in body:
            match statement:
                case ir.Assign():
                    for target in statement.targets:
                        self.assign(target, statement.value, flags)
                case ir.ExprStmt(value=ir.Call(func=ir.Attr(value=owner, name=name), args=args)) if name == METHOD:
                    self.set(owner, args[0].value if args else None, flags)
                case ir.If():
                    self.branch(statement, flags)
                case ir.With() | ir.Try() | ir.For() | ir.While():
                    self.run(statement.body, flags)

    def branch(self, statement: ir.If, flags: Flags) -> None:
        test = self.truth(statement.test)
        if test is not None:
            self.run(statement.then if test else statement.orelse, flags)
            return
        then, other = dict(flags), dict(flags)
        self.run(statement.then, then)
        self.run(statement.orelse, other)
        for name in then.keys() | other.keys():
            flags[name] = then.get(name) if name in then and then.get(name) == other.get(name) else None

    def assign(self, target: ir.Expr, value: ir.Expr, flags: Flags) -> None:
        match target:
            case ir.Attr(value=owner, name=name) if name == FLAG:
                self.set(owner, value, flags)
            case ir.Attr(value=ir.Name(id=owner), name=name) if owner == self.me:
                flags[name] = self.wanted(value)

    def set(self, owner: ir.Expr, value: ir.Expr | None, flags: Flags) -> None:
        """``self.bias.requires_grad = value``"""
        holder, _, name = dotted(owner).partition(".")
        if holder == self.me and name in flags:
            flags[name] = True if value is None else self.truth(value)

    def wanted(self, value: ir.Expr) -> bool | None:
        """Whether what is put into an attribute is a parameter that wants a gradient; None for all else."""
        if not isinstance(value, ir.Call):
            return None
        absolute = self.world.project.resolve(self.init.path, dotted(value.func), self.init.qualname)
        if absolute not in PARAMETERS:
            return None
        flag = next((arg.value for arg in value.args if arg.keyword == FLAG), None)
        places = [arg.value for arg in value.args if arg.keyword is None and not arg.star]
        flag = flag if flag is not None else places[1] if len(places) > 1 else None
        return True if flag is None else self.truth(flag)

    def truth(self, expr: ir.Expr) -> bool | None:
        match expr:
            case ir.Const(value=bool() as value):
                return value
            case ir.Name(id=name):
                return self.known.get(name)
            case ir.Unary(op="not"):
                inner = self.truth(expr.value)
                return None if inner is None else not inner
            case ir.Compare(
                left=left, ops=["==" | "is" | "!=" | "is not" as op], comparators=[ir.Const(value=bool() as value)]
            ):
                one = self.truth(left)
                return None if one is None else (one is value) is (op in ("==", "is"))
            case _:
                return None
