"""The call of the flagged function, in the program that was made of its file."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import copy
import dis
import gc
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch

from torchmemlint.confirm.verdict import Located
from torchmemlint.confirm.worker.harness.harness import EndOfRun, Harness
from torchmemlint.confirm.worker.harness.imports import Modules, compiled, namespace
from torchmemlint.confirm.worker.harness.values import hangs_on_a_graph, standins_in
from torchmemlint.confirm.worker.program import Site, place_of, set_later
from torchmemlint.confirm.worker.standins import CODE, Bench, Stage, StandIn, data, row_of
from torchmemlint.confirm.worker.target import Target

MODULE_RUNS = 6
"""So often is a module run whose own statement is flagged, outside a loop."""


def drive(program: ast.Module, site: Site, harness: Harness, target: Target, calls: int = 0) -> list[Located]:
    """Execute the program and call the flagged function: once where it has a loop to sample, else once per step, or as many ``calls`` as are
    wanted."""
    errors: list[Located] = []
    sys.argv = ["module.py"]
    with Bench(harness.stage, target.device):
        space: dict[str, Any] = {}
        try:
            name = "__main__" if site.function is None else str(target.module)
            space = namespace(program, harness, Modules(harness.stage, target), name)
            code = compiled(program)
            again = site.function is None and not (site.loops or site.comprehends or harness.once or calls)
            for _ in range(MODULE_RUNS if again else 1):
                if again:
                    harness.tick()
                exec(code, space)
            if again:
                harness.tick()
                harness.at_end()
            if site.function is not None:
                _call_flagged(site, space, harness, calls)
        except EndOfRun:
            pass
        except SystemExit as error:
            row = row_of(error)
            harness.left = row
            errors.append(Located(row, "SystemExit: the code leaves the program"))
        except Exception as error:
            errors.append(Located.raised(row_of(error), error))
            error.__traceback__ = None
        harness.look(None)
        space.clear()
    gc.collect()
    return errors


def _call_flagged(site: Site, space: dict[str, Any], harness: Harness, calls: int = 0) -> None:
    stage = harness.stage
    outermost = site.outermost
    assert outermost is not None
    place = place_of(site.statement)
    function: Any
    receiver: Any = None
    if site.klass is not None and outermost is site.function:
        klass = space.get(site.klass.name)
        if not isinstance(klass, type):
            raise TypeError(f"class {site.klass.name} could not be made")
        receiver = StandIn(stage, site.klass.name, klass)
        with contextlib.suppress(Exception):
            if "__init__" in vars(klass):
                vars(klass)["__init__"](receiver, *_arguments(stage, vars(klass)["__init__"], skip=1))
        for name in [name for name, value in receiver.tml_parts.items() if value is None and name in _set_later(klass)]:
            del receiver.tml_parts[name]  # None until another method sets it
            for value in set_later(site.klass, name):
                with contextlib.suppress(Exception):
                    receiver.tml_parts[name] = eval(compile(value, CODE, "eval"), space, {"self": receiver})
                    break
        function = _method(receiver, klass, outermost.name)
    else:
        holder = next((node for node in site.around if isinstance(node, ast.ClassDef)), None)
        klass = space[holder.name] if holder else None
        function = _method(StandIn(stage, holder.name, klass), klass, outermost.name) if holder else space[outermost.name]
    applied = _applied(stage, site, space, outermost.name)
    if applied is not None:
        receiver, function = None, applied
        harness.waits = True
    if isinstance(function, StandIn) or not callable(function):
        raise TypeError(f"{outermost.name} could not be made")
    repeat = not site.loops and not site.comprehends
    if repeat and isinstance(place, ast.Attribute):
        text = compile(ast.Expression(ast.parse(ast.unparse(place), mode="eval").body), "<place>", "eval")
        first = next(iter(inspect.signature(function).parameters), "")
        scope = {"self": receiver} if receiver is not None else {first: None}
        harness.look(lambda: eval(text, scope))
    known = standins_in(receiver) if receiver is not None else frozenset()
    if harness.once:
        calls = 1
    for _ in range((calls or stage.steps) if repeat else 1):
        if repeat:
            harness.tick()
        given, named = _arguments(stage, function), _keywords(stage, function)
        result = function(*given, **named)
        harness.gave(known, _consume(result), receiver, [*given, *named.values()])
        del result, given, named
    if repeat:
        harness.tick()
        harness.at_end()


def _set_later(klass: type) -> frozenset[str]:
    """Attributes that methods other than the initialisers set."""
    return frozenset(
        instruction.argval
        for base in klass.__mro__
        if base is not object and not base.__module__.startswith("torch")
        for name, function in vars(base).items()
        if isinstance(function, types.FunctionType) and name != "__init__"
        for instruction in dis.get_instructions(function)
        if instruction.opname == "STORE_ATTR"
    )


def _applied(stage: Stage, site: Site, space: Mapping[str, Any], name: str) -> Callable[[], Any] | None:
    """The call of an ``autograd.Function`` whose ``forward`` is flagged: autograd gives it its context, and its tensors are leaves
    that want a gradient."""
    klass = space.get(site.klass.name) if site.klass is not None else None
    if (
        not isinstance(klass, type)
        or not issubclass(klass, torch.autograd.Function)
        or name not in {"forward", "setup_context"}
    ):
        return None
    parameters = list(inspect.signature(klass.forward).parameters.values())
    new_style = "setup_context" in vars(klass)

    def apply() -> Any:
        given = [
            copy.copy(item.default) if item.default not in {item.empty, None} else data(stage).requires_grad_()
            for item in parameters[0 if new_style else 1 :]
            if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)
        ]
        with torch.enable_grad():
            return klass.apply(*given)

    return apply


def _method(receiver: Any, klass: Any, name: str) -> Any:
    """The class's function bound to the stand-in: its own attributes (``__call__``) are not meant."""
    found = vars(klass).get(name) if isinstance(klass, type) else None
    if found is None:
        return getattr(receiver, name)
    return found.__get__(receiver, klass) if hasattr(found, "__get__") else found


def _consume(result: Any) -> Any:
    """What the call gave: of a generator whether any of its values is attached to a graph, that value."""
    if inspect.iscoroutine(result):
        return asyncio.run(result)
    found: Any = None
    if inspect.isasyncgen(result):

        async def drain() -> Any:
            found = None
            async for item in result:
                found = item if hangs_on_a_graph(item) else found
            return found

        return asyncio.run(drain())
    if inspect.isgenerator(result):
        for item in result:
            found = item if hangs_on_a_graph(item) else found
        return found
    return result


def _arguments(stage: Stage, function: Any, skip: int = 0) -> list[Any]:
    """A stand-in for each required positional parameter; defaults stay."""
    given: list[Any] = []
    for parameter in list(inspect.signature(function).parameters.values())[skip:]:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            if parameter.default is not parameter.empty and parameter.default is not None:
                given.append(copy.copy(parameter.default))
            else:
                given.append(StandIn(stage, parameter.name))
    return given


def _keywords(stage: Stage, function: Any) -> dict[str, Any]:
    found = inspect.signature(function).parameters.values()
    return {
        item.name: StandIn(stage, item.name) for item in found if item.kind is item.KEYWORD_ONLY and item.default is item.empty
    }
