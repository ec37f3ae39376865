"""Definitions inside a root function: closures, classes, decorated ones."""

from __future__ import annotations

from torchmemlint.index.project import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.written import dotted, text_of
from torchmemlint.semantics.interpret import record_call
from torchmemlint.semantics.models.calls import evaluate_arguments
from torchmemlint.semantics.state import (
    STATEMENTS,
    Cls,
    Ext,
    Func,
    GradModeMisuse,
    Handed,
    Machine,
    Misuse,
    State,
    evaluate,
    handles,
    place_of,
)
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import CallByName, Effect


@handles(STATEMENTS, ir.FunctionDef)
def run_definition(m: Machine, statement: ir.FunctionDef, state: State) -> State | None:
    function = statement.function
    closure = m.frame_closure[m.frame]
    key = m.closure(function, closure.lowered, FunctionRef(closure.ref.path, function.qualname), m.frame, closure.owner)
    for decorator in function.decorators:
        check_decorator(m, decorator, function, state)
        if registers(m, decorator):
            m.handed[key] = Handed(decorator.node, text_of(decorator), m.snapshots.keep(state))
            m.record.handed.add(m.closures[key].ref)
    state.vars[place_of(m, function.name)] = frozenset((Func(key),))
    m.defined[key] = m.snapshots.keep(state)
    return state


def registers(m: Machine, decorator: ir.Expr) -> bool:
    """Whether a decorator hands the function to a server or a command line, which calls it when it is asked to."""
    callee = dotted(decorator.func if isinstance(decorator, ir.Call) else decorator)
    name = m.world.project.outside(m.path, m.ref.qualname, callee) if "." in callee else None
    return name is not None and name.partition(".")[0] in TORCH.servers


def check_decorator(m: Machine, decorator: ir.Expr, function: ir.Function, state: State) -> None:
    callee = decorator.func if isinstance(decorator, ir.Call) else decorator
    for atom in evaluate(m, callee, state) if dotted(callee) else ():
        if type(atom) is Ext and atom.name in TORCH.renamed:
            use = decorator if isinstance(decorator, ir.Call) else ir.Call(decorator.node, decorator, [])
            record_call(m, CallByName.RENAMED, atom.name, evaluate_arguments(m, use, state))
        if type(atom) is Ext and TORCH.function_effect(atom.name) is Effect.GRAD_OFF:
            if function.is_async:
                kind = Misuse.ASYNC_GENERATOR_DECORATOR if function.is_generator else Misuse.ASYNC_DECORATOR
                m.emit(GradModeMisuse(m.site(decorator.node), kind, text_of(decorator)))
            elif not isinstance(decorator, ir.Call):
                m.emit(GradModeMisuse(m.site(decorator.node), Misuse.BARE_DECORATOR, text_of(decorator)))


@handles(STATEMENTS, ir.ClassDef)
def run_class(m: Machine, statement: ir.ClassDef, state: State) -> State | None:
    for decorator in statement.decorators:
        callee = decorator.func if isinstance(decorator, ir.Call) else decorator
        for atom in evaluate(m, callee, state) if dotted(callee) else ():
            if type(atom) is Ext and TORCH.function_effect(atom.name) is Effect.GRAD_OFF:
                m.emit(GradModeMisuse(m.site(decorator.node), Misuse.CLASS_DECORATOR, text_of(decorator)))
    qualname = statement.name
    found = m.world.project.klass(f"{m.world.project.module_name(m.path)}.{qualname}")
    state.vars[place_of(m, statement.name)] = (
        frozenset((Cls(found.path, found.qualname),)) if found is not None else frozenset((Ext(f"?.{qualname}"),))
    )
    return state
