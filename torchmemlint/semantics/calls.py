"""Calls: forwards, inlined functions of the project, torch functions and methods by their effect, containers, builtins."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from torchmemlint.index.facts import ArgFact, CallableUse, ParamFact
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.semantics import purpose
from torchmemlint.semantics.base import CONTAINERS, EVERYTHING, MAX_STATEMENTS, NO_TENSOR, TENSOR, Closure, Handed
from torchmemlint.semantics.evaluate import (
    Evaluator,
    class_kind,
    is_property,
    looks_like_module,
    shallow,
    sorted_atoms,
    with_flags,
)
from torchmemlint.semantics.events import (
    MUST_BE_FREE,
    Backward,
    CallEffect,
    CallFate,
    EnvironmentSet,
    GradientsFreed,
    GradModeMisuse,
    Graph,
    HookStore,
    Store,
)
from torchmemlint.semantics.grad_guards import guards_itself, guards_what_it_runs
from torchmemlint.semantics.parameters import HOLDERS, has_parameters, is_torch_function, parametric
from torchmemlint.semantics.state import State, join_states
from torchmemlint.semantics.text import dotted, text_of
from torchmemlint.semantics.values import (
    BATCH,
    COLUMN,
    COMPUTED,
    DETACHED,
    DOUBTED,
    EMPTY,
    FREE_TENSOR,
    GUESSED,
    INTEGER,
    LOGITS,
    MOVED,
    NONE,
    NOTHING,
    PACKED,
    PLAIN,
    SCALAR,
    UNKNOWN,
    VIEW,
    WEIGHTS,
    Atom,
    Cls,
    Const,
    Ext,
    Func,
    Method,
    Obj,
    Plain,
    Tensor,
    Tuple,
    Unknown,
    Value,
    add_marks,
    const,
    detached,
    graphs_of,
    hints_of,
    is_none,
    join,
    join_all,
    only_const,
    tensor,
    truth,
    unknown,
)
from torchmemlint.semantics.world import MODULE
from torchmemlint.torch_facts import TORCH

MAX_DEPTH = 5
MAX_RECURSION = 2
"""Times that a function is followed inside itself: a helper that flattens or detaches a container of containers."""
TAKING = frozenset({"gather", "index_select", "masked_select", "take", "take_along_dim", "masked_fill", "scatter"})
"""Tensor methods whose result has the type of numbers that the receiver has."""
MAX_METHODS = 8
"""Methods of one name that are run to see what they return."""
MAKES_ANEW = frozenset({"tensor", "as_tensor", "from_numpy", "argmax", "argmin", "argsort", "long", "zeros", "ones"})
"""Words of a method that may return a tensor without a history: no other is run to see."""
TORCH_NAMES = {"torch": "torch", "nn": "torch.nn", "F": "torch.nn.functional"}
"""What these names stand for, however they came to be (``torch, nn = try_import_torch()``)."""
DRAWING = frozenset({"sample", "predict", "act"})
"""Methods of a model that may run it without an argument."""
PARAMETERS = frozenset({"parameters", "named_parameters", "requires_grad_"})
FREEZING = {"requires_grad": False, "trainable": False, "freeze": True, "frozen": True}
"""Constructor arguments of modules, and the value with which no parameter requires grad."""
INSIDE = ir.Const(-1, None)
"""Stands for a stored value that no expression of its own names (it is inside an argument): nothing a fix could change."""
STORING = {"append": "append", "extend": "extend", "insert": "insert", "appendleft": "append", "add": "add", "put": "append"}
"""Container methods that keep their last argument."""
STDLIB_WITH_VALUES = frozenset(
    {"functools", "itertools", "copy", "collections", "contextlib", "operator", "builtins", "concurrent"}
)
REDUCTIONS = frozenset({"sum", "mean", "max", "min", "norm", "prod", "std", "var", "median", "logsumexp", "amax", "amin"})
SCALING_METHODS = frozenset({"mul_", "div_", "divide_", "multiply_", "true_divide_"})
"""Tensor methods that scale their receiver in place."""
JOINS = frozenset(
    {"cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack", "row_stack", "pad_sequence"}
)
"""Last names of torch functions that put tensors together: what is in the list is tensors."""
GUARD_EFFECTS = frozenset({"empty-cache", "memory-fraction"})
PASS_THROUGH = frozenset(
    {"scale", "scale_loss", "reduce_loss", "gather", "all_reduce", "reduce_mean", "all_gather", "gather_for_metrics"}
)
"""Methods that hand their tensor argument on with its graph, or with none: GradScaler.scale, distributed reductions."""


@dataclass(slots=True)
class Arguments:
    """Evaluated arguments of a call; ``exprs`` runs beside ``positional``."""

    positional: list[Value]
    keywords: dict[str, Value]
    exprs: list[ir.Expr]
    keyword_exprs: dict[str, ir.Expr]
    more: list[Value]
    """Values that came in with * or **."""

    def all(self) -> list[Value]:
        return [*self.positional, *self.keywords.values(), *self.more]

    def get(self, position: int, keyword: str) -> Value | None:
        if keyword in self.keywords:
            return self.keywords[keyword]
        if 0 <= position < len(self.positional):
            return self.positional[position]
        return None


class Calls(Evaluator):
    """What calls do."""

    following: ir.Stmt | None

    # --- to be had from statements ----------------------------------------------------------------------------------

    def run_function(self, closure: Closure, bound: dict[str, Value], call: int, state: State) -> Value:
        raise NotImplementedError

    def accumulate_into(
        self, target: ir.Expr, how: str, value: Value, added: Value, state: State, node: int, term: int
    ) -> None:
        raise NotImplementedError

    # --- the call itself --------------------------------------------------------------------------------------------

    def call(self, expr: ir.Call, state: State) -> Value:
        func = expr.func
        special = self.special_form(expr, state)
        if special is not None:
            return special
        if type(func) is ir.Attr:
            if type(func.value) is ir.Call and type(func.value.func) is ir.Name and func.value.func.id == "super":
                return self.super_call(func.name, expr, state)
            receiver = self.eval(func.value, state)
            arguments = self.arguments(expr, state)
            if func.name in HOOKS and arguments.positional:
                self.hooked |= {a for a in arguments.positional[0] if type(a) is Func}
            self.hand_over(receiver, func.name, arguments, expr, state)
            if func.name in ("cuda", "to") and self.reaches_device(func.name, arguments):
                self.record.flags.add("device")
            if func.name in ("zero_grad", "zero_", "fill_", "load_state_dict", "cuda", "to"):
                self.tell_by_name(func, receiver, arguments, expr, state)
            out = EMPTY
            for atom in sorted_atoms(receiver):
                out = join(out, self.call_method(atom, func.name, arguments, expr, state))
            return out or UNKNOWN
        if type(func) is ir.Call and type(func.func) is ir.Name and func.func.id == "type" and len(func.args) == 1:
            # `type(batch)(moved(item) for item in batch)`: a container like the one that it was made from.
            like = self.eval(func.args[0].value, state)
            kinds = {self.heap[a.oid].kind for a in like if type(a) is Obj} | {"tuple" for a in like if type(a) is Tuple}
            if kinds & {"tuple", "list", "dict", "set"}:
                kind = next(kind for kind in ("dict", "set", "list", "tuple") if kind in kinds)
                return _make_container(self, kind.replace("tuple", "list"), self.arguments(expr, state), expr, state)
        callee = self.eval(func, state)
        arguments = self.arguments(expr, state)
        self.hand_over(callee, "", arguments, expr, state)
        out = EMPTY
        for atom in sorted_atoms(callee):
            out = join(out, self.call_atom(atom, arguments, expr, state))
        return out or UNKNOWN

    def hand_over(self, receiver: Value, method: str, arguments: Arguments, expr: ir.Call, state: State) -> None:
        """Note which closures a call of ``method`` on the receiver, or of the receiver itself, is given and runs."""
        given = [a for value in arguments.all() for a in value if type(a) is Func and a.key not in self.handed]
        if given and any(runs_functions(atom, method, self) for atom in receiver):
            for atom in given:
                self.handed[atom.key] = Handed(expr.node, text_of(expr.func), state.copy())
                self.record.handed.add(self.closures[atom.key].ref)

    def arguments(self, expr: ir.Call, state: State) -> Arguments:
        positional: list[Value] = []
        keywords: dict[str, Value] = {}
        exprs: list[ir.Expr] = []
        keyword_exprs: dict[str, ir.Expr] = {}
        more: list[Value] = []
        for arg in expr.args:
            value = self.eval(arg.value, state)
            if arg.star == "*":
                items = self.items_of(value, state) if not more else None
                if items is not None:
                    positional.extend(items)
                    exprs.extend([arg.value] * len(items))
                else:
                    more.append(self.iterate(value, arg.value.node, state))
            elif arg.star == "**":
                held = [a for a in value if type(a) is Obj and self.heap[a.oid].kind == "dict"]
                named = False
                for atom in held:
                    for key in state.vars.get((atom.oid, "$keys"), EMPTY):
                        name = str(getattr(key, "value", ""))
                        if name.startswith("['"):
                            keywords[name[2:-2]] = state.vars.get((atom.oid, name), UNKNOWN)
                            named = True
                if not named:
                    more.append(value)
            elif arg.keyword is not None:
                keywords[arg.keyword] = value
                keyword_exprs[arg.keyword] = arg.value
            else:
                positional.append(value)
                exprs.append(arg.value)
        return Arguments(positional, keywords, exprs, keyword_exprs, more)

    def tell_by_name(self, func: ir.Attr, receiver: Value, arguments: Arguments, expr: ir.Call, state: State) -> None:
        """Tell calls whose method's name says enough: ``load_state_dict``; gradients that are filled with zeros, where the
        receiver is known to have parameters, or to be one's gradient."""
        kinds = {self.heap[a.oid].kind for a in receiver if type(a) is Obj}
        if func.name == "zero_grad":
            self.zeroed(arguments.get(0, "set_to_none"), expr.node)
        match func.name:
            case "load_state_dict" if arguments.all() and "scheduler" not in kinds:
                self.effect("restore", text_of(func), arguments, expr, state)
            case "zero_grad" if "set_to_none" in arguments.keywords or (
                kinds & {"optimizer", "module"} and arguments.positional
            ):
                self.effect("zero-grad", text_of(func), arguments, expr)
            case "cuda":
                self.record.flags.add("on-cuda")
            case "to":
                place = arguments.get(0, "device")
                single = only_const(place) if place is not None else None
                if single is not None and str(single.value).startswith("cuda"):
                    self.record.flags.add("on-cuda")
                elif place is not None and single is None and not any(type(a) is Ext for a in place):  # no dtype
                    self.record.flags.add("on-some-device")
            case "zero_" | "fill_":
                owner = gradient_owner(func.value)
                if owner is None or (func.name == "fill_" and not is_zero(arguments.get(0, "value"))):
                    return
                if any(type(a) is Obj and self.heap[a.oid].kind == "params" for a in self.eval(owner, state)):
                    self.effect("gradient-zeroed", text_of(owner), arguments, expr)

    def reaches_device(self, name: str, arguments: Arguments) -> bool:
        """Whether ``x.cuda()`` or ``x.to(…)`` puts something on a device."""
        return name == "cuda" or names_device(arguments.get(0, "device"))

    def environment(self, key: Value, value: Value, node: int) -> None:
        """``os.environ[key] = value``, where the key is one of the allocator's."""
        name, held = only_const(key), only_const(value)
        if name is None or not isinstance(name.value, str) or name.value not in ALLOCATOR_VARIABLES:
            return
        text = held.value if held is not None and isinstance(held.value, str) else None
        self.emit(EnvironmentSet(self.site(node), name.value, text, "device" in self.record.flags, self.torch_loaded()))

    def torch_loaded(self) -> bool:
        """Whether torch is imported when the statement at hand runs: above it at module level, or by the module of this
        function (unless the function imports it itself)."""
        function = self.frame_closure[self.frame].function
        if function.name == MODULE:
            return "torch" in self.record.flags
        imports = self.world.project.imports(self.path)
        roots = {local for local, target in imports if target.partition(".")[0] == "torch"}
        return bool(roots - function.locals)

    def zeroed(self, to_none: Value | None, node: int) -> None:
        """``zero_grad()``, which sets gradients to None unless it is told otherwise, from torch 2.0 on."""
        target = self.world.settings.target_torch
        free = truth(to_none) is not False if to_none is not None else target is None or target >= (2, 0)
        if free:
            self.gradients_freed(node)

    def gradients_freed(self, node: int) -> None:
        if "create-graph" in self.record.flags:
            self.emit(GradientsFreed(self.site(node)))

    def special_form(self, expr: ir.Call, state: State) -> Value | None:
        func = expr.func
        if type(func) is not ir.Name:
            return None
        if func.id == "getattr" and len(expr.args) >= 2 and type(expr.args[1].value) is ir.Const:
            name = expr.args[1].value.value
            if isinstance(name, str):
                return self.attribute_of(
                    self.eval(expr.args[0].value, state), name, ir.Attr(expr.node, expr.args[0].value, name), state
                )
        if func.id == "setattr" and len(expr.args) == 3:
            target = expr.args[1].value
            if type(target) is ir.Const and isinstance(target.value, str):
                value = self.eval(expr.args[2].value, state)
                self.assign(ir.Attr(expr.node, expr.args[0].value, target.value), value, state, expr.node, expr.args[2].value)
                return NONE
        return None

    def super_call(self, name: str, expr: ir.Call, state: State) -> Value:
        arguments = self.arguments(expr, state)
        closure = self.frame_closure[self.frame]
        receiver = state.vars.get((self.frame, first_parameter(closure.function)), EMPTY)
        oids = [a.oid for a in receiver if type(a) is Obj]
        if closure.owner is None:
            return self.opaque(f"super().{name}", arguments, expr, state)
        mro = [base for base in self.world.project.mro(closure.owner)]
        for base in mro[1:]:
            if isinstance(base, ClassRef):
                method = self.own_method(base, name)
                if method is not None and oids:
                    (key_atom,) = self.function_value(method, oids[0])
                    return self.call_atom(key_atom, arguments, expr, state)
        if name in ("forward", "__call__") and oids and self.heap[oids[0]].kind in ("module", "self"):
            return self.forward(oids[0], arguments, expr, state, "super().forward")
        if name in ("__init__", "__setattr__", "setUp", "train", "eval"):
            return NONE
        return self.opaque(f"super().{name}", arguments, expr, state)

    def own_method(self, cls: ClassRef, name: str) -> FunctionRef | None:
        found = self.world.project.method(cls, name)
        return found if found is not None and self.world.facts(found).owner == cls.qualname and found.path == cls.path else None

    def call_atom(self, atom: Atom, arguments: Arguments, expr: ir.Call, state: State) -> Value:
        match atom:
            case Func():
                return self.call_function(atom, arguments, expr, state)
            case Cls():
                return self.construct(ClassRef(atom.path, atom.qualname), arguments, expr, state)
            case Ext():
                return self.external(atom.name, arguments, expr, state)
            case Obj():
                return self.call_object(atom.oid, arguments, expr, state)
            case Method():
                out = EMPTY
                for receiver in sorted_atoms(atom.receiver):
                    out = join(out, self.call_method(receiver, atom.name, arguments, expr, state))
                return out
            case Tensor() | Unknown():
                if type(atom) is Tensor:
                    self.notice(atom.graphs, "called")
                text = dotted(expr.func)
                if text and looks_like_module(self.evidence.get(text, frozenset())):
                    oid = self.outside("module", text, None, key=("called", text))
                    made = [g for g in hints_of(frozenset((atom,))) if self.record.graphs[g].kind == "opaque"]
                    if made:  # what a call out of sight returned: as old as that call
                        self.heap[oid] = self.heap[oid]._replace(loops=self.record.graphs[min(made)].site.loops)
                    return self.forward(oid, arguments, expr, state, text)
                return self.opaque(text_of(expr.func), arguments, expr, state, hints_of(frozenset((atom,))))
            case _:
                return PLAIN if type(atom) in (Plain, Const) else UNKNOWN

    # --- functions of the project -----------------------------------------------------------------------------------

    def note_joined(self, arguments: Arguments, state: State) -> None:
        """What is put together are tensors, in whatever list they came."""
        for value in arguments.all()[:1]:
            graphs, hints, _, _ = self.deep(value, state)
            self.notice(graphs | hints, "joined")

    def call_function(self, atom: Func, arguments: Arguments, expr: ir.Call, state: State) -> Value:
        closure = self.closures[atom.key]
        if closure.ref.qualname.rpartition(".")[2] in JOINS:
            self.note_joined(arguments, state)
        if closure.lowered is None:
            found = None if self.tired() else self.world.function(closure.ref)
            if found is None:
                return self.opaque(text_of(expr.func), arguments, expr, state)
            closure.function, closure.lowered = found
        closure.called = True
        if is_abstract(closure.function):
            return self.opaque(text_of(expr.func), arguments, expr, state, oid=atom.receiver)
        record = self.record
        depth = record.frames[self.frame].depth
        chain, within = self.frame, 0
        while chain >= 0:
            within += self.frame_closure[chain].function is closure.function
            chain = record.frames[chain].parent
        if within >= MAX_RECURSION:
            # A function that calls itself returns what its other branches do: here nothing is added to them.
            return self.beyond(arguments, state)
        if depth >= MAX_DEPTH or self.tired():
            record.flags.add("limit")
            return self.opaque(text_of(expr.func), arguments, expr, state)
        if self.is_plumbing(closure, atom.receiver, arguments, state):
            return self.handed_back(closure, atom.receiver, arguments) or self.beyond(arguments, state)
        bound = self.bind(closure.function, arguments, atom.receiver, closure)
        mode = state.mode
        own = self.decorated_mode(closure.ref)
        if own is not None:
            state.mode = own
        ran_in = state.mode
        result = self.run_function(closure, bound, expr.node, state)
        if own is not None:
            state.mode = mode
        graphs, hints, _, _ = self.deep(result, state)
        mark = self.graph("result", expr.node, text_of(expr.func), key=("result", closure.ref), callee=closure.ref)
        record.fates.append(CallFate(closure.ref, self.site(expr.node), ran_in, mark, bool(graphs | hints)))
        if depth > 0 or not (graphs or hints):
            return result
        self.mark_contents(result, frozenset((mark,)), state)
        return add_marks(result, frozenset((mark,)))

    def beyond(self, arguments: Arguments, state: State) -> Value:
        """What a function gives that is not followed: anything of what it is given."""
        values = arguments.all()
        return unknown(NOTHING.union(*(self.whole(v, state)[0] for v in values)) if values else NOTHING)

    def handed_back(self, closure: Closure, receiver: int, arguments: Arguments) -> Value:
        """What a function that is not followed returns, where that is nothing but what it is given; empty where it may be more."""
        facts = self.world.facts(closure.ref)
        names = {use.callee for use in facts.returned if not use.called and use.alternative is None}
        rebound = {name for name, _ in (*facts.bound, *facts.rebound)}
        if len(facts.returned) != 1 or not names or names & rebound or not names <= {param.name for param in facts.params}:
            return EMPTY
        return self.bind(closure.function, arguments, receiver, closure)[names.pop()]

    def is_plumbing(self, closure: Closure, receiver: int, arguments: Arguments, state: State) -> bool:
        """Whether nothing can happen to a tensor in a call: the function has to do with none, is given none, and finds none in
        the attributes of what it is given."""
        if closure.parent >= 0:
            return False
        names = self.plumbing(closure.ref)
        if names is None:
            return False
        oids: set[int] = set()
        for value in [*arguments.all(), frozenset((Obj(receiver),))] if receiver >= 0 else arguments.all():
            graphs, hints, outputs, _ = self.deep(value, state)
            if outputs or any(self.record.graphs[gid].kind != "param" for gid in graphs | hints):
                return False
            for atom in value:
                if type(atom) in (Func, Method, Cls):
                    return False
                if type(atom) is Obj:
                    oids.add(atom.oid)
        if not all(self.heap[oid].kind in ("thing", "instance", "self", "dict", "list", "set") for oid in oids):
            return False
        for oid in oids:
            for name in names:
                held = state.vars.get((oid, name))
                if held and any(self.deep(held, state)):
                    return False
        return True

    def mark_contents(self, result: Value, marks: frozenset[int], state: State) -> None:
        """What a callee returns in containers that it has made: their tensors are results of the call as well."""
        for atom in result:
            if type(atom) is not Obj or self.heap[atom.oid].kind not in CONTAINERS or self.heap[atom.oid].external:
                continue
            if self.heap[atom.oid].frame == self.frame:
                continue
            names = {str(getattr(key, "value", "")) for key in state.vars.get((atom.oid, "$keys"), EMPTY)}
            for name in sorted(names | {"[]"}):
                held = state.vars.get((atom.oid, name))
                if held:
                    state.vars[atom.oid, name] = add_marks(held, marks)

    def tired(self) -> bool:
        return self.statements > MAX_STATEMENTS

    def decorated_mode(self, ref: FunctionRef) -> str | None:
        """Grad mode that a function's own decorators set, None when they set none."""
        facts = self.world.facts(ref)
        if facts.is_async or not facts.decorators or facts.qualname != ref.qualname:
            return None
        for use in facts.decorators:
            effect = self.world.project.decorator_effect(ref.path, facts.parent, use)
            if effect in ("off", "on"):
                return effect
        return None

    def bind(self, function: ir.Function, arguments: Arguments, receiver: int, closure: Closure) -> dict[str, Value]:
        """Arguments to parameters; what is missing takes its default when that is a literal."""
        bound: dict[str, Value] = {}
        positional = list(arguments.positional)
        params = [p for p in function.params if p.kind == "positional"]
        static = any(text_of(d) == "staticmethod" for d in function.decorators)
        if receiver >= 0 and params and not static:
            bound[params[0].name] = frozenset((Obj(receiver),))
            params = params[1:]
        elif params and closure.owner is not None and any(text_of(d) == "classmethod" for d in function.decorators):
            bound[params[0].name] = frozenset((Cls(closure.owner.path, closure.owner.qualname),))
            params = params[1:]
        rest = join_all(arguments.more)
        for param in params:
            if positional:
                bound[param.name] = positional.pop(0)
            elif param.name in arguments.keywords:
                bound[param.name] = arguments.keywords[param.name]
        for param in function.params:
            if param.name in bound:
                continue
            if param.kind == "*":
                bound[param.name] = frozenset((Tuple(tuple(positional[:12])),)) if not rest else join_all([*positional, rest])
                positional = []
            elif param.kind == "**":
                names = {p.name for p in function.params}
                extra = {k: v for k, v in arguments.keywords.items() if k not in names}
                oid = self.allocate("dict", function.node, "kwargs", tag=(self.frame, param.name))
                bound[param.name] = frozenset((Obj(oid),))
                self._pending_kwargs = (oid, extra, rest)
            elif param.name in arguments.keywords:
                bound[param.name] = arguments.keywords[param.name]
            elif rest:
                bound[param.name] = rest
            elif type(param.default) is ir.Const:
                bound[param.name] = self.constant(param.default, State({}, "on"))
            elif param.default is not None:
                bound[param.name] = UNKNOWN
            else:
                bound[param.name] = UNKNOWN
        return bound

    _pending_kwargs: tuple[int, dict[str, Value], Value] | None = None

    def inline_property(self, ref: FunctionRef, oid: int, node: int, state: State) -> Value:
        (atom,) = self.function_value(ref, oid)
        assert isinstance(atom, Func)
        call = ir.Call(node, ir.Name(node, ref.qualname), [])
        return self.call_function(atom, Arguments([], {}, [], {}, []), call, state)

    def construct(self, cls: ClassRef, arguments: Arguments, expr: ir.Call, state: State) -> Value:
        """``Class(...)``: a module or an instance; ``__init__`` is not run (attributes come from the class's facts)."""
        module = self.world.is_module_class(cls)
        text = text_of(expr.func)
        mro = self.world.project.mro(cls)
        if any(isinstance(b, str) and class_kind(b) == "loader" for b in mro):
            return frozenset((Obj(self.allocate("loader", expr.node, text, cls)),))
        kind = "module" if module else "instance"
        oid = self.allocate(kind, expr.node, text, cls)
        if module and (self.built_frozen(cls, arguments) or EVERYTHING in self.frozen_in(cls)):
            state.vars[oid, "$frozen"] = const(True)
        if module and self.built_bare(cls, arguments):
            self.bare.add(oid)
        elif module and self.built_bare(cls, arguments, state):
            state.vars[oid, "$frozen"] = const(True)  # around modules that are
        else:
            self.bare.discard(oid)  # made here in another turn, with other arguments
        if kind == "instance":
            # What the constructor is given it may keep.
            gids = [self.whole(v, state)[0] for v in arguments.all()]
            kept = NOTHING.union(*gids) if gids else NOTHING
            self.sink(kept, "passed", text, expr.node)
            state.vars[oid, "[]"] = unknown(kept) if kept else EMPTY
            if self.world.project.method(cls, "__init__") is None:  # a dataclass keeps them as they are
                for word, value in arguments.keywords.items():
                    state.vars[oid, word] = value
        return frozenset((Obj(oid),))

    def built_bare(self, cls: ClassRef, arguments: Arguments, frozen_in: State | None = None) -> bool:
        """Whether a module of this class is built without parameters: its class makes none, and none comes in with what it is
        given. With a state ``frozen_in``, those that come in may be frozen there."""
        needed = parametric(self.world, cls, exact=True)
        init = self.world.project.method(cls, "__init__") if needed else None
        if not needed or init is None or arguments.more:
            return needed == frozenset()
        places = [param.name for param in self.world.facts(init).params[1:] if param.kind == "positional"]
        given = [arguments.get(places.index(word) if word in places else -1, word) for word in needed]
        return all(
            type(a) in (Const, Plain, Func)
            or (type(a) is Ext and is_torch_function(a.name))
            or (type(a) is Obj and (a.oid in self.bare or (frozen_in is not None and self.frozen(a.oid, frozen_in))))
            for v in given
            for a in v or ()
        )

    def built_frozen(self, cls: ClassRef, arguments: Arguments) -> bool:
        """Whether a module is built without anything that requires grad: by an argument that says so, or by the default of a
        parameter of that name."""
        for word, frozen in FREEZING.items():
            if word in arguments.keywords:
                return truth(arguments.keywords[word]) is frozen
            init = self.world.project.method(cls, "__init__")
            if init is not None and not arguments.more:
                params = [p for p in self.world.facts(init).params if p.name == word]
                if params and params[0].default == str(frozen):
                    return len(arguments.positional) < len([p for p in self.world.facts(init).params if p.kind == "positional"])
        return False

    # --- objects ----------------------------------------------------------------------------------------------------

    def call_object(self, oid: int, arguments: Arguments, expr: ir.Call, state: State) -> Value:
        info = self.heap[oid]
        if isinstance(info.cls, ClassRef) and info.kind == "module":
            own = self.world.project.method(info.cls, "__call__")
            if own is not None:
                (function,) = self.function_value(own, oid)
                return self.call_atom(function, arguments, expr, state)
        match info.kind:
            case "module":
                return self.forward(oid, arguments, expr, state, text_of(expr.func))
            case "wrapper" | "ema" | "lightning-module" | "hf-model":
                return self.forward(oid, arguments, expr, state, text_of(expr.func))
            case "metric" | "predictor":
                self.cut_all(arguments, expr, state, text_of(expr.func))
                return FREE_TENSOR
            case "backward-callable":
                self.backward([join_all(arguments.positional[:1])], arguments, expr, state)
                return NONE
            case "self" if isinstance(info.cls, ClassRef) and self.world.is_module_class(info.cls):
                return self.forward(oid, arguments, expr, state, text_of(expr.func))
            case "loss":
                self.whole_logits(arguments.all(), state)
                for value in arguments.positional[:1]:
                    self.operation(hints_of(value), "loss")
                return with_flags_set(self.arithmetic(arguments.all(), expr.node, state), SCALAR)
            case "function-module":
                result = self.arithmetic(arguments.all(), expr.node, state)
                name = info.cls.rpartition(".")[2] if isinstance(info.cls, str) else ""
                return self.in_role(name, result, arguments.all(), expr.node, state)
        if isinstance(info.cls, ClassRef):
            for name in ("__call__", "forward"):
                method = self.world.project.method(info.cls, name)
                if method is not None:
                    (atom,) = self.function_value(method, oid)
                    return self.call_atom(atom, arguments, expr, state)
        text = dotted(expr.func)
        if info.kind == "thing" and text:
            if looks_like_module(self.evidence.get(text, frozenset())):
                self.retype(oid, "module")
                return self.forward(oid, arguments, expr, state, text)
        return self.opaque(text_of(expr.func), arguments, expr, state, oid=oid, direct=info.kind == "thing")

    def forward(self, oid: int, arguments: Arguments, expr: ir.Call, state: State, text: str) -> Value:
        """A module runs: with grad mode on its result hangs on a new graph."""
        info = self.heap[oid]
        bare = oid in self.bare
        if isinstance(info.cls, ClassRef) and info.kind == "module":
            own = self.world.project.method(info.cls, "forward")
            if own is not None and self.decorated_mode(own) == "off":
                return FREE_TENSOR
            if own is not None and self.world.facts(own).names & TO_INDICES and only_indices(self.result_of(own, "off")):
                return tensor(flags=INTEGER)
            bare = bare or not has_parameters(self.world, info.cls)
        if bare:
            # Its result hangs on what it is given, unless it cuts that off itself.
            through = self.inside_forward(oid, arguments, expr, state)
            return through if through is not None else self.arithmetic(arguments.all(), expr.node, state)
        graphs: set[int] = set()
        certain: set[int] = set()
        for value in arguments.all():
            g, h, _, _ = self.deep(value, state)
            graphs |= g | h
            certain |= g
        # A recurrent network that is given a PackedSequence returns one.
        # What is no bigger than a number stays so: layers want a dimension at least, so this one works element by element.
        number = is_single_number(arguments.positional)
        packed = PACKED if any(type(a) is Tensor and a.flags & PACKED for v in arguments.positional for a in v) else 0
        training = truth(state.vars.get((oid, "$training"), UNKNOWN))
        frozen = self.stays_free(oid, graphs, state)
        inner = self.inside_forward(oid, arguments, expr, state)
        if (
            inner is None
            and isinstance(info.cls, ClassRef)
            and info.kind == "module"
            and guards_what_it_runs(self.world, info.cls)
        ):
            return self.arithmetic(arguments.all(), expr.node, state)
        self.record.flags.add("forward")
        if training is None:
            training = self.world.training_of(self.frame_closure[self.frame].ref, info.name)
        if state.mode == "off":
            self.sink(graphs, "cut", "no_grad", expr.node)
            gid = self.number("graph", "forward-off", self.frame, expr.node, self.turn, text)
            if gid not in self.record.forwards:
                self.record.forwards[gid] = Graph(
                    gid, "forward", self.site(expr.node), text, mode="off", module=oid, module_loops=info.loops,
                    cls=info.cls if isinstance(info.cls, ClassRef) else None,
                )  # fmt: skip
            if inner is None and number:
                return tensor(flags=SCALAR | COMPUTED)
            return reshape(
                inner,
                lambda t: Tensor(
                    NOTHING,
                    NOTHING,
                    frozenset((gid,)) if not t.flags & (SCALAR | INTEGER) else NOTHING,
                    t.flags | BATCH | (packed if inner is None else 0),
                ),
            )
        if inner is not None and not self.has_graph(inner):
            return inner
        gid = self.graph(
            "forward", expr.node, text, key=text, parents=frozenset(graphs), mode=state.mode, training=training, module=oid,
            frozen=frozen,
        )  # fmt: skip
        graph = self.record.graphs[gid]
        graph.cls = info.cls if isinstance(info.cls, ClassRef) else None
        graph.training = training if graph.training == training else None
        marks = frozenset((gid, *self.through_module(certain)))
        # Where some of its outputs hang on a graph, the others are those that it detaches itself.
        by_place = inner is not None and self.is_attached(inner)

        def marked(t: Tensor) -> Tensor:
            mine = NOTHING if by_place and not self.is_attached(frozenset((t,))) else marks
            return Tensor(
                NOTHING if t.flags & INTEGER else t.graphs | mine,
                t.hints,
                frozenset((gid,)) if not t.flags & (SCALAR | INTEGER) else NOTHING,
                t.flags | BATCH | (packed if inner is None else 0),
            )

        return reshape(inner, marked)

    def is_attached(self, value: Value) -> bool:
        """Whether any tensor inside hangs on more than the call that returned it."""
        for atom in value:
            if type(atom) is Tensor and (atom.hints or any(self.record.graphs[gid].kind != "result" for gid in atom.graphs)):
                return True
            if type(atom) is Tuple and any(self.is_attached(item) for item in atom.items):
                return True
        return False

    def stays_free(self, oid: int, graphs: Iterable[int], state: State) -> bool:
        """Whether a call of a module records nothing, though grad mode is on: it is frozen, and so is all that its input hangs on."""
        return self.frozen(oid, state) and not any(
            self.record.graphs[g].kind in ("forward", "leaf") and not self.record.graphs[g].frozen for g in graphs
        )

    def through_module(self, graphs: set[int]) -> set[int]:
        """Marks of loop-carried places, renamed to say that they went through a module: a recurrent state."""
        out = set()
        for gid in graphs:
            graph = self.record.graphs[gid]
            if graph.kind == "carried" and graph.place != (-1, ""):
                key = self.number("mark", "through", gid)
                if key not in self.record.graphs:
                    self.record.graphs[key] = Graph(key, "carried", graph.site, graph.what, mode="module", place=graph.place)
                    self.record.graphs[key].parents = frozenset()
                out.add(key)
        return out

    def has_graph(self, value: Value) -> bool:
        """Whether any tensor inside may hang on a graph (unknown parts may)."""
        for atom in value:
            if type(atom) is Tensor:
                if atom.graphs or atom.hints:
                    return True
            elif type(atom) is Tuple:
                if any(self.has_graph(i) for i in atom.items):
                    return True
            elif type(atom) not in (Plain, Const):
                return True
        return not value

    def inside_forward(self, oid: int, arguments: Arguments, expr: ir.Call, state: State) -> Value | None:
        """What a module's own ``forward`` returns, when the project shows it; None when it is out of sight."""
        info = self.heap[oid]
        if not isinstance(info.cls, ClassRef) or self.record.frames[self.frame].depth > 0:
            return None
        method = self.world.project.method(info.cls, "forward")
        if method is None:
            return None
        if self.world.length(method) > 120 or method == self.record.root:
            return None
        (atom,) = self.function_value(method, oid)
        before = state.copy()
        try:
            result = self.call_atom(atom, arguments, expr, state)
        finally:
            state.mode = before.mode
        return result if result and not any(type(a) in (Unknown, Obj) for a in result) else None

    # --- methods ----------------------------------------------------------------------------------------------------

    def call_method(self, atom: Atom, name: str, arguments: Arguments, expr: ir.Call, state: State) -> Value:
        if name == "enter_context" and arguments.positional:
            for entered in arguments.positional[0]:
                if type(entered) is Obj and self.heap[entered.oid].kind == "manager" and self.heap[entered.oid].cls != "none":
                    state.mode = str(self.heap[entered.oid].cls)
            return arguments.positional[0]
        match atom:
            case Ext():
                value = self.absolute(f"{atom.name}.{name}", self.path, name)
                out = EMPTY
                for inner in sorted_atoms(value):
                    out = join(out, self.call_atom(inner, arguments, expr, state))
                return out
            case Obj():
                return self.call_object_method(atom.oid, name, arguments, expr, state)
            case Tensor():
                return self.tensor_method(atom, name, arguments, expr, state)
            case Unknown():
                return self.tensor_method(Tensor(NOTHING, atom.hints), name, arguments, expr, state, sure=False)
            case Cls():
                return self.class_method(ClassRef(atom.path, atom.qualname), name, arguments, expr, state)
            case Tuple():
                return PLAIN if name in ("index", "count") else UNKNOWN
            case Const() | Plain():
                gids = [self.whole(v, state)[0] for v in arguments.all()]
                self.sink(NOTHING.union(*gids) if gids else NOTHING, "shown", f".{name}", expr.node)
                return PLAIN if not is_none(frozenset((atom,))) else EMPTY
            case _:
                return UNKNOWN

    def class_method(self, cls: ClassRef, name: str, arguments: Arguments, expr: ir.Call, state: State) -> Value:
        method = self.world.project.method(cls, name)
        if method is not None:
            (atom,) = self.function_value(method)
            return self.call_atom(atom, arguments, expr, state)
        if name == "apply" and self.world.project.is_subclass(cls, "torch.autograd.Function"):
            return self.arithmetic(arguments.all(), expr.node, state)
        if name in ("from_pretrained", "from_config", "load_from_checkpoint") and self.world.is_module_class(cls):
            return frozenset((Obj(self.allocate("module", expr.node, text_of(expr.func), cls)),))
        return self.opaque(text_of(expr.func), arguments, expr, state)

    def call_object_method(self, oid: int, name: str, arguments: Arguments, expr: ir.Call, state: State) -> Value:
        info = self.heap[oid]
        if info.kind in CONTAINERS:
            return self.container_method(oid, name, arguments, expr, state)
        held = state.vars.get((oid, name))
        if held is not None:
            out = EMPTY
            for atom in sorted_atoms(held):
                out = join(out, self.call_atom(atom, arguments, expr, state))
            return out
        if isinstance(info.cls, ClassRef):
            method = self.world.project.method(info.cls, name)
            if method is not None and type(expr.func) is ir.Attr and is_property(self.world.facts(method)):
                # What the property gives is called, and not the property.
                held = self.object_attribute(oid, name, expr.func, state)
                return join_all([self.call_atom(atom, arguments, expr, state) for atom in sorted_atoms(held)]) or UNKNOWN
            if method is not None:
                (atom,) = self.function_value(method, oid)
                return self.call_atom(atom, arguments, expr, state)
            for base in self.world.project.mro(info.cls):
                if isinstance(base, str) and f"{base}.{name}" in TORCH.functions:
                    return self.external(f"{base}.{name}", arguments, expr, state)
        if info.kind == "distribution":
            return self.distribution_method(oid, name, arguments, expr, state)
        generic = self.method_by_name(oid, name, arguments, expr, state)
        if generic is not None:
            return generic
        kind = info.kind
        if kind == "self" and name in TORCH.module_methods and name not in ("forward", "__call__"):
            # A method that every module has: it runs nothing.
            return me_or_plain(oid, TORCH.module_methods[name])
        if isinstance(info.cls, ClassRef) and kind in ("self", "module", "instance"):
            value = self.object_attribute(oid, name, None, state)
            callable_atoms = [
                a for a in value if type(a) in (Func, Cls, Ext) or (type(a) is Obj and self.heap[a.oid].kind != "thing")
            ]
            if callable_atoms:
                out = EMPTY
                for atom in sorted_atoms(value):
                    out = join(out, self.call_atom(atom, arguments, expr, state))
                return out
            inner = next((a for a in value if type(a) is Obj), None)
            if inner is not None and kind == "self":
                return self.call_object(inner.oid, arguments, expr, state)
        if (kind in ("module", "self", "thing") and self.guards_itself(name, arguments)) or kind == "predictor":
            self.sink(NOTHING.union(*(self.whole(v, state)[0] for v in arguments.all())), "cut", name, expr.node)
            return FREE_TENSOR
        if kind == "module" or (
            kind == "self" and isinstance(info.cls, ClassRef) and self.world.is_module_class(info.cls) and name in ("forward",)
        ):
            effect = TORCH.module_methods.get(name)
            if name in TORCH.part_methods:
                return frozenset((Obj(oid),))
            if name in ("forward", "__call__") or (
                effect is None
                and name not in DICT_METHODS
                and (arguments.all() or name in DRAWING)  # what is given nothing has nothing to run on
                and (purpose.RUNS_MODEL.match(name) or self.world.is_attribute_only(name))
            ):
                if guards_itself(self.world, name):
                    return FREE_TENSOR
                if name not in ("forward", "__call__"):
                    if is_text(next(iter(arguments.all()), EMPTY)):
                        return UNKNOWN  # a tokenizer, or a pipeline with its own grad mode: a network is given tensors
                    if self.gives_data(name, arguments):
                        self.cut_all(arguments, expr, state, text_of(expr.func))
                        return PLAIN
                    if state.mode == "off" and self.gives_indices(name, arguments):
                        return tensor(flags=INTEGER)
                    if state.mode != "off" and self.gives_no_graph(name, arguments):
                        return FREE_TENSOR
                return self.forward(oid, arguments, expr, state, text_of(expr.func))
            if effect is None:
                return self.opaque(text_of(expr.func), arguments, expr, state, oid=oid)
            return PLAIN
        if kind == "params":
            if name == "requires_grad_" and oid in self.owner_of_params:
                known = truth(arguments.positional[0]) if arguments.positional else True
                state.vars[self.owner_of_params[oid], "$frozen"] = const(True) if known is False else UNKNOWN
            return frozenset((Obj(oid),))
        if kind == "thing":
            return self.thing_method(oid, name, arguments, expr, state)
        if kind == "generator" and name in ("send", "__next__"):
            return self.iterate(frozenset((Obj(oid),)), expr.node, state)
        return self.opaque(text_of(expr.func), arguments, expr, state, oid=oid)

    def gives_indices(self, name: str, arguments: Arguments) -> bool:
        """Whether every method of the project that a call on a module of unknown class may mean returns indices alone (a
        decoder's ``argmax``)."""
        found = self.meant(name, arguments)
        return bool(found) and all(only_indices(self.result_of(ref, "off")) for ref in found)

    def gives_data(self, name: str, arguments: Arguments) -> bool:
        """Whether every method of the project that a call on a module of unknown class may mean ends in arrays, lists or text (a
        decoder's)."""
        found = self.meant(name, arguments)
        return bool(found) and all(self.world.ends_as_data(ref) for ref in found)

    def gives_no_graph(self, name: str, arguments: Arguments) -> bool:
        """Whether every method of the project that a call on a module of unknown class may mean returns tensors that it has made
        anew (of an array, of indices), and so runs nothing whose graph could be kept."""
        found = self.meant(name, arguments)
        if not found or not all(self.world.facts(ref).names & MAKES_ANEW for ref in found):
            return False
        return all(only_free(self.result_of(ref, "on")) for ref in found)

    def meant(self, name: str, arguments: Arguments) -> list[FunctionRef]:
        """The methods of the project that a call on a module of unknown class may mean; none where they are too many."""
        found = [
            ref for ref in self.world.methods_named(name) if self.may_take(self.world.facts(ref).params, arguments)
        ]  # fmt: skip
        return found if len(found) <= MAX_METHODS and not arguments.more else []

    def may_take(self, params: tuple[ParamFact, ...], arguments: Arguments) -> bool:
        """Whether a method with these parameters, the object first, takes so many arguments of these names."""
        if any(param.kind in ("*", "**") for param in params):
            return True
        names = [param.name for param in params[1:]]
        positional = [param for param in params[1:] if param.kind == "positional"]
        return len(arguments.positional) <= len(positional) and arguments.keywords.keys() <= set(names)

    def guards_itself(self, name: str, arguments: Arguments) -> bool:
        """Whether a method of an object out of sight is one that switches grad mode off by itself (``generate``)."""
        known = TORCH.guarded_methods.get(name)
        if known is None:
            return False
        if not known.keywords and not known.package:
            return True
        return bool(known.keywords & arguments.keywords.keys()) or self.world.imports_package(self.path, known.package)

    def method_by_name(self, oid: int, name: str, arguments: Arguments, expr: ir.Call, state: State) -> Value | None:
        """Methods that mean the same on a module and on an unknown object; None for the others."""
        info = self.heap[oid]
        me = frozenset((Obj(oid),))
        if name in ("train", "eval") and info.kind in ("module", "thing", "self"):
            on = name == "train"
            if on and arguments.positional:
                known = truth(arguments.positional[0])
                state.vars[oid, "$training"] = UNKNOWN if known is None else const(known)
                self.record.flags.add("train()" if known is not False else "eval()")
            elif not arguments.all():
                state.vars[oid, "$training"] = const(on)
                self.record.flags.add("train()" if on else "eval()")
            return me
        if name in ("freeze", "unfreeze") and not arguments.all() and self.freezes_all(oid):
            state.vars[oid, "$frozen"] = const(True) if name == "freeze" else UNKNOWN
            return PLAIN
        if info.kind not in ("module", "thing") and not (info.kind == "self" and name in PARAMETERS):
            held = TORCH.kind_methods.get((info.kind, name))
            return self.kind_method(held, info.kind, name, arguments, expr, state) if held is not None else None
        if name == "requires_grad_":
            known = truth(arguments.positional[0]) if arguments.positional else True
            if known is False:
                state.vars[oid, "$frozen"] = const(True)
            elif known is True and info.kind == "thing":
                self.record.flags.add("input-grad")
            else:
                state.vars[oid, "$frozen"] = UNKNOWN
            return me
        if name in ("parameters", "named_parameters"):
            params = self.outside("params", f"{info.name}.{name}()", None, key=(oid, "params"))
            self.owner_of_params[params] = oid
            return frozenset((Obj(params),))
        effect = TORCH.module_methods.get(name)
        if effect == "self":
            if name in ("cuda", "to") and info.kind == "module":
                self.record.flags.add("moved")
            return me
        if effect == "plain" and info.kind == "module":
            return PLAIN
        return None

    def freezes_all(self, oid: int) -> bool:
        """Whether ``freeze()`` of an object is no method of the project, which may freeze a part, but Lightning's or the like."""
        kind = self.heap[oid].kind
        return kind in ("self", "module", "lightning-module") or (kind == "thing" and not self.world.methods_named("freeze"))

    def kind_method(self, effect: str, kind: str, name: str, arguments: Arguments, expr: ir.Call, state: State) -> Value:
        """A method of an optimizer, a scaler, a writer and the like, by its row in the facts."""
        values = arguments.all()
        match effect:
            case "backpropagates" if values:
                self.backward([join_all(arguments.positional[:1] or values)], arguments, expr, state)
                return NONE
            case "keep":
                return self.arithmetic(arguments.positional[:1], expr.node, state)
            case "wraps":
                if len(arguments.positional) == 1:
                    return arguments.positional[0]
                return frozenset((Tuple(tuple(arguments.positional)),)) if len(arguments.positional) <= 12 else UNKNOWN
            case "cut":
                self.cut_all(arguments, expr, state, name)
                return FREE_TENSOR
        gids = [self.whole(v, state)[0] for v in values]
        self.sink(NOTHING.union(*gids) if gids else NOTHING, "shown", name, expr.node)
        if name == "step" and kind in ("optimizer", "scaler"):
            self.effect("optimizer-step", text_of(expr.func), arguments, expr)
        return PLAIN

    @property
    def owner_of_params(self) -> dict[int, int]:
        if not hasattr(self, "_owner_of_params"):
            self._owner_of_params: dict[int, int] = {}
        return self._owner_of_params

    def thing_method(self, oid: int, name: str, arguments: Arguments, expr: ir.Call, state: State) -> Value:
        """A method of an unknown object: a tensor's if tensors have it, a container's, or a name of the project's own."""
        known = torch_name(expr.func)
        if known and arguments.all() and not self.world.methods_named(name):
            return self.external(known, arguments, expr, state)
        gid = self.thing_graph(oid)
        manager = TORCH.functions.get(f"torch.{name}", "") if not self.world.methods_named(name) else ""
        if manager in ("grad-off", "grad-on", "grad-set"):  # torch itself, handed on as an argument
            return self.grad_manager(f"torch.{name}", manager, arguments, expr, state)
        if name == "forward":
            return self.opaque(text_of(expr.func), arguments, expr, state, oid=oid, direct=True)
        if name in STORING and len(arguments.positional) >= 1 and name != "add":
            self.store(oid, self.heap[oid].name, STORING[name], arguments.positional[-1], expr, arguments.exprs[-1], state)
            return NONE
        if name == "backward" and arguments.positional:
            graphs, _, _, _ = self.deep(arguments.positional[0], state)
            if any(self.record.graphs[g].kind in ("forward", "leaf", "opaque") for g in graphs):
                # An accelerator or an engine: what it is given is back-propagated. (A tensor's gradient has no graph.)
                self.backward(arguments.positional[:1], arguments, expr, state)
                return NONE
        if name == "get" and len(arguments.positional) == 2 and is_number(arguments.positional[1]):
            return PLAIN
        if name in TORCH.methods:
            return self.tensor_method(Tensor(frozenset((gid,))), name, arguments, expr, state)
        if self.weighs_evidence:
            self.notice((gid,), NO_TENSOR)
        if name not in COMMON_METHODS and guards_itself(self.world, name):
            return FREE_TENSOR
        if name == "step" and not arguments.positional:
            self.effect("optimizer-step", text_of(expr.func), arguments, expr)
        method = self.only_method(name)
        if method is not None:
            (atom,) = self.function_value(
                method,
                self.outside(
                    "instance",
                    self.heap[oid].name,
                    ClassRef(method.path, self.world.facts(method).owner),
                    key=(oid, "as", method),
                ),
            )
            return self.call_atom(atom, arguments, expr, state)
        runs = name not in TORCH.module_methods and self.world.is_attribute_only(name)
        return self.opaque(text_of(expr.func), arguments, expr, state, oid=oid, direct=runs)

    def only_method(self, name: str) -> FunctionRef | None:
        """The one method of that name in the project, when just one class defines it and the name is not everybody's."""
        found = self.world.methods_named(name)
        if len(found) != 1 or name in COMMON_METHODS:
            return None
        return found[0]

    def distribution_method(self, oid: int, name: str, arguments: Arguments, expr: ir.Call, state: State) -> Value:
        """Everything that a distribution gives hangs on what it was made of, but for its samples."""
        held = state.vars.get((oid, "[]"), UNKNOWN)
        match TORCH.kind_methods.get(("distribution", name)):
            case "cut":
                self.sink(*self.whole(held, state), "cut", f".{name}()", expr.node)
                return FREE_TENSOR
            case "keep":
                self.notice(hints_of(held), name)
                return self.arithmetic([held, *arguments.all()], expr.node, state)
        return self.arithmetic([held], expr.node, state)

    # --- tensors ----------------------------------------------------------------------------------------------------

    def must_be_free(self, atom: Tensor) -> frozenset[int]:
        """Graphs of which ``numpy()`` of a tensor shows that they are not real, since it would raise on every path: torch's operations
        made it of what a module gave, no path detaches it, and no test decides whether this is reached. Of what a function
        returned something hangs on a module that it calls itself."""
        if self.guards or self.handlers or not atom.flags & COMPUTED or atom.flags & (INTEGER | GUESSED | DETACHED | DOUBTED):
            return NOTHING
        graphs = [self.record.graphs[gid] for gid in atom.graphs]
        real = [graph for graph in graphs if graph.kind in ("forward", "opaque") and graph.mode == "on"]
        called_in = {self.frame_closure[graph.site.frame].ref for graph in real}
        results = [graph for graph in graphs if graph.kind == "result" and graph.callee in called_in]
        return frozenset(graph.gid for graph in (*real, *results))

    def tensor_method(
        self, atom: Tensor, name: str, arguments: Arguments, expr: ir.Call, state: State, sure: bool = True
    ) -> Value:
        me: Value = frozenset((atom,)) if sure else unknown(atom.hints)
        effect = TORCH.methods.get(name)
        gids = atom.graphs | atom.hints
        self.notice(atom.graphs, name)
        if effect == "cut":
            self.whole_logits([me], state)
        match effect:
            case "cut":
                self.sink(gids, "cut", f".{name}()", expr.node)
                if name == "detach":
                    return detached(me) if sure else FREE_TENSOR
                flags = INTEGER if name not in ("sign", "zeros_like") else 0
                return tensor(NOTHING, NOTHING, NOTHING, flags | (atom.flags & SCALAR))
            case "item" | "number" | "shape":
                if effect == "item":
                    self.sink(gids, "cut", f".{name}()", expr.node)
                if name == "numpy" and sure:
                    self.notice(self.must_be_free(atom), MUST_BE_FREE)
                return PLAIN
            case "detach-inplace":
                self.sink(gids, "cut", f".{name}()", expr.node)
                self.rebind(expr, detached(me), state)
                return detached(me)
            case "backward":
                self.backward([me], arguments, expr, state, retain_at=1)
                return NONE
            case "view":
                made = self.in_role(name, self.made(me, expr.node, state), [me], expr.node, state)
                if (name in ("flatten", "ravel") and not arguments.all()) or (
                    name in ("view", "reshape") and [only_const(v) for v in arguments.all()] == [Const(-1, "int")]
                ):
                    made = with_flags(made, COLUMN)
                return with_flags(made, VIEW) if name in ("select", "diagonal", "narrow") and atom.outputs else made
            case "device":
                return self.move(atom, me, name, arguments, state)
            case "mixed-max":
                if takes_another(name, arguments.get(0, "other")):
                    return self.arithmetic([me, *arguments.all()], expr.node, state)
                if not arguments.all() and name not in ("sort", "topk", "kthvalue"):
                    return with_flags_set(me, SCALAR)
                values = self.made(
                    frozenset((Tensor(atom.graphs, atom.hints, atom.outputs, atom.flags & ~VIEW),)), expr.node, state
                )
                self.sink(gids, "kept-part", f".{name}()", expr.node)
                return frozenset((Tuple((values, tensor(flags=INTEGER))),)) if sure else me
            case "inplace":
                operands = [me, *arguments.all()]
                value = (
                    self.arithmetic([me], expr.node, state, join_all(arguments.all()))
                    if name in SCALING_METHODS
                    else self.arithmetic(operands, expr.node, state)
                )
                value = self.in_role(name, value, operands, expr.node, state)
                func = expr.func
                if isinstance(func, ir.Attr) and name in ("add_", "sub_", "lerp_", "addcmul_", "mul_", "copy_", "addcdiv_"):
                    added = join_all(arguments.all())
                    term = arguments.exprs[0].node if arguments.exprs else -1
                    if name != "copy_":
                        self.accumulate_into(func.value, "+=", value, added, state, expr.node, term)
                    else:
                        self.assign(func.value, self.arithmetic(arguments.all(), expr.node, state), state, expr.node)
                elif isinstance(func, ir.Attr) and type(func.value) is ir.Name and any(map(graphs_of, arguments.all())):
                    self.assign(func.value, value, state, expr.node)  # `embeds.masked_scatter_(mask, features)`
                return value
            case "requires-grad":
                on = truth(arguments.positional[0]) if arguments.positional else True
                if on is not False:
                    self.record.flags.add("input-grad")
                return me
            case "hook":
                self.record.flags.add("input-grad")
                return UNKNOWN
            case "keep" | "clone":
                operands = [me, *arguments.all()]
                step = "" if name == "softmax" and over_queries(arguments.get(0, "dim")) else name
                result = self.in_role(step, self.arithmetic(operands, expr.node, state), operands, expr.node, state)
                if (
                    name in REDUCTIONS
                    and not any(k in ("dim", "axis") for k in arguments.keywords)
                    and not arguments.positional
                ):
                    return with_flags_set(result, SCALAR)
                return with_flags(result, INTEGER) if name in TAKING and atom.flags & INTEGER else result
            case "source":
                return FREE_TENSOR
        if name in TORCH.module_methods and not sure:
            return me
        if TORCH.backward_methods.get(name) == "backpropagates" and arguments.all():
            self.backward([join_all(arguments.all())], arguments, expr, state)
            return NONE
        if name in PASS_THROUGH and arguments.positional:
            return self.arithmetic([arguments.positional[0]], expr.node, state)
        if (
            name in ("append", "extend", "insert")
            and arguments.positional
            and not any(self.record.graphs[g].kind in ("forward", "leaf") for g in atom.graphs)
        ):
            same = tuple(sorted(atom.graphs)) or text_of(expr.func)
            oid = self.outside(
                "thing", text_of(expr.func.value) if isinstance(expr.func, ir.Attr) else "?", None, key=("list", same)
            )
            self.store(oid, self.heap[oid].name, STORING[name], arguments.positional[-1], expr, arguments.exprs[-1], state)
            return NONE
        if (
            name in ("items", "keys", "values", "get", "pop", "copy", "split", "next", "popleft", "popitem", "setdefault")
            or not sure
        ):
            if name == "items":
                return frozenset((Tuple((PLAIN, self.part(atom, "[…]", expr.node))),)) if atom.graphs else unknown(atom.hints)
            if name == "keys":
                return PLAIN
            if atom.graphs and name in ("values", "get", "pop"):
                key = only_const(arguments.positional[0]) if arguments.positional else None
                return self.part(atom, f"[{key.value!r}]" if key is not None else "[…]", expr.node)
        method = (
            self.only_method(name) if not any(self.record.graphs[g].kind in ("forward", "leaf") for g in atom.graphs) else None
        )
        if method is not None:
            cls = ClassRef(method.path, self.world.facts(method).owner)
            receiver = self.outside("instance", text_of(expr.func), cls, key=("as", method, tuple(sorted(atom.graphs))))
            (function,) = self.function_value(method, receiver)
            result = self.call_atom(function, arguments, expr, state)
            # What the object holds came with it: what is made of that hangs on the same graph.
            return join(result, self.arithmetic([me], expr.node, state)) if self.has_graph(result) else result
        if any(self.record.graphs[g].kind in ("forward", "leaf") for g in atom.graphs):
            return self.arithmetic([me, *arguments.all()], expr.node, state)
        return self.opaque(text_of(expr.func), arguments, expr, state, gids)

    def move(self, atom: Tensor, me: Value, name: str, arguments: Arguments, state: State) -> Value:
        """``.cpu()``, ``.cuda()``, ``.to(...)``: the graph comes along; on the CPU the device's storage is let go."""
        to_cpu = name == "cpu"
        if name == "to":
            target = arguments.get(0, "device")
            single = only_const(target) if target is not None else None
            to_cpu = single is not None and single.value == "cpu"
            if target is not None and any(type(a) is Ext and a.name in INTEGER_DTYPES for v in arguments.all() for a in v):
                return tensor(flags=INTEGER)
        if to_cpu:
            return (
                frozenset((Tensor(atom.graphs, atom.hints, NOTHING, atom.flags & ~VIEW | MOVED),))
                if me != unknown(atom.hints)
                else me
            )
        return me

    def rebind(self, expr: ir.Call, value: Value, state: State) -> None:
        """A method changed its receiver in place: the name that holds it holds the new value."""
        func = expr.func
        if isinstance(func, ir.Attr) and isinstance(func.value, ir.Name):
            state.vars[self.frame, func.value.id] = value
        elif isinstance(func, ir.Attr) and isinstance(func.value, ir.Attr):
            for atom in self.eval(func.value.value, state):
                if type(atom) is Obj:
                    state.vars[atom.oid, func.value.name] = value

    def backward(
        self,
        values: list[Value],
        arguments: Arguments,
        expr: ir.Call,
        state: State,
        partial: bool = False,
        retain_at: int = -1,
    ) -> None:
        """``retain_at`` is the position of ``retain_graph`` in the call, -1 where it has none; ``create_graph`` is the next."""
        graphs: set[int] = set()
        hints: set[int] = set()
        for value in values:
            g, h, _, _ = self.deep(value, state)
            graphs |= g
            hints |= h
            for atom in value:
                if type(atom) is Obj and self.heap[atom.oid].kind == "thing":
                    graphs.add(self.thing_graph(atom.oid))
        created = arguments.get(retain_at + 1 if retain_at >= 0 else -1, "create_graph")
        retained = arguments.get(retain_at, "retain_graph")
        create = truth(created) if created is not None else False
        retain = truth(retained) if retained is not None and not is_none(retained) else create
        kept_by = arguments.keyword_exprs.get("retain_graph")
        self.record.flags |= {"backward", "create-graph"} if create is True else {"backward"}
        if self.loaded and self.loops:
            self.record.alive |= {
                a.oid for value in state.vars.values() for a in value if type(a) is Obj and a.oid in self.loaded
            }
        sole = [g for g in graphs if self.record.graphs[g].kind in ("opaque", "param", "forward", "leaf")]
        if len(sole) == 1:
            self.notice(sole, "backward")
        self.sink(graphs | hints, "backward", text_of(expr.func), expr.node)
        event = Backward(
            self.site(expr.node), frozenset(graphs), frozenset(hints), retain is not False, create is not False,
            partial or "inputs" in arguments.keywords, retain is True, create is True,
            kept_by.node if kept_by is not None else -1, retain_at == 3,
        )  # fmt: skip
        old = self.record.events.get(("Backward", self.frame, expr.node, f"/{self.turn}"))
        if isinstance(old, Backward):
            event = replace(event, graphs=event.graphs | old.graphs, hints=event.hints | old.hints)
        self.emit(event)

    # --- containers ---------------------------------------------------------------------------------------------------

    def container_method(self, oid: int, name: str, arguments: Arguments, expr: ir.Call, state: State) -> Value:
        info = self.heap[oid]
        me: Value = frozenset((Obj(oid),))
        match name:
            case "append" | "extend" | "insert" | "appendleft" | "add" if arguments.positional:
                value = arguments.positional[-1]
                if name == "extend":
                    value = self.iterate(value, expr.node, state)
                self.store(oid, info.name or text_of(receiver_of(expr)), STORING[name], value, expr, arguments.exprs[-1], state)
                return NONE
            case "update" if info.kind == "dict":
                for value in arguments.positional:
                    for atom in value:
                        if type(atom) is Obj and self.heap[atom.oid].kind == "dict":
                            self.copy_contents(atom.oid, oid, state)
                            value = join_all(self.contents(atom.oid, state))
                    # What another dict brings along is put under the names that are there already, step after step.
                    self.store(
                        oid, info.name or text_of(receiver_of(expr)), "item", value, expr, INSIDE, state, keyed=True,
                        constant_key=info.external,
                    )  # fmt: skip
                for word, value in arguments.keywords.items():
                    self.put(oid, const(word), value, state)
                    stored = arguments.keyword_exprs.get(word, INSIDE)
                    self.store(oid, info.name or text_of(receiver_of(expr)), "item", value, expr, stored, state, keyed=True)
                return NONE
            case "setdefault" if len(arguments.positional) == 2:
                index, value = arguments.positional
                single = only_const(index)
                held = state.vars.get((oid, f"[{single.value!r}]")) if single is not None else None
                if held is not None:
                    return held
                self.put(oid, index, value, state)
                for atom in value:
                    if type(atom) is Obj:
                        # What is put in lives as long as what it is put in.
                        inner = self.heap[atom.oid]
                        self.heap[atom.oid] = inner._replace(name=info.name, loops=info.loops, external=info.external)
                return value
            case "clear":
                self.forget(oid, state)
                self.record.cleared.add(oid)
                return NONE
            case "items":
                held = join_all(self.contents(oid, state)) or (self.thing_element(oid, None) if info.external else UNKNOWN)
                result = self.allocate("generator", expr.node, "items")
                state.vars[result, "[]"] = frozenset((Tuple((PLAIN, held)),))
                return frozenset((Obj(result),))
            case "keys" | "index" | "count":
                return PLAIN
            case "values" | "copy":
                result = self.allocate("list" if name == "values" else info.kind, expr.node, info.name)
                self.copy_contents(oid, result, state)
                return frozenset((Obj(result),))
            case "get" | "pop" | "popleft":
                if name == "popleft" or (name == "pop" and is_zero(next(iter(arguments.positional), None))):
                    self.record.trimmed.update((oid, loop) for loop in (*self.loops, None))
                key = only_const(arguments.positional[0]) if arguments.positional else None
                held = state.vars.get((oid, f"[{key.value!r}]")) if key is not None else None
                if held is None:
                    held = join_all(self.contents(oid, state))
                if name == "get":
                    held = join(held, arguments.positional[1] if len(arguments.positional) > 1 else NONE)
                return held or UNKNOWN
            case "sort" | "reverse" | "remove" | "discard":
                return NONE
        del me
        return UNKNOWN

    def store(
        self,
        oid: int,
        place: str,
        how: str,
        value: Value,
        expr: ir.Expr,
        stored: ir.Expr,
        state: State,
        keyed: bool = False,
        constant_key: bool = False,
    ) -> Value:
        """A value is put into a holder; told when the holder outlives a loop or the calls of the root function. Returns the value
        as it lies in the holder, marked."""
        graphs, hints, outputs, flags = self.deep(value, state)
        if flags & WEIGHTS:
            self.record.flags.add("weights-kept")
        if flags & LOGITS:
            self.record.flags.add("logits-used")
        things = frozenset(self.thing_graph(a.oid) for a in value if type(a) is Obj and self.heap[a.oid].kind == "thing")
        graphs |= things
        if self.hook_arguments & (graphs | hints) and not keyed and self.heap[oid].frame != self.frame:
            single = len(value) == 1 and bool(things)
            self.emit(HookStore(self.site(expr.node), place, stored.node, single and how == "append"), tag=place)
        mark = self.graph("stored", expr.node, place, key=(oid, how))
        value = add_marks(value, frozenset((mark,)))
        info = self.heap[oid]
        if (not keyed and info.kind in CONTAINERS) or (info.kind == "thing" and not keyed):
            state.vars[oid, "[]"] = join(state.vars.get((oid, "[]"), EMPTY), shallow(value))
        loop = self.outlived_loop(oid)
        if loop is None and not info.external:
            return value
        if not graphs and not hints and not outputs:
            return value
        if graphs | hints:
            self.sink(graphs | hints, "stored", place, expr.node)
        self.emit(
            Store(
                self.site(expr.node), place, oid, how, mark, graphs, hints, outputs, flags, loop, stored.node, info.external,
                *half_fix(stored), constant_key, info.frame,
                all(type(a) is Tensor for a in value), self.outlived_loops(oid),
            ),
            tag=f"{oid}",
        )  # fmt: skip
        return value

    # --- code outside the project ---------------------------------------------------------------------------------------

    def external(self, name: str, arguments: Arguments, expr: ir.Call, state: State) -> Value:
        volatile = truth(arguments.keywords.get("volatile", const(False))) is True and name.startswith("torch.")
        if volatile and state.mode != "off":  # else what it asks for is so
            self.emit(GradModeMisuse(self.site(expr.node), "volatile", name))
        if name in TORCH.renamed:
            self.effect("renamed", name, arguments, expr)
        if name in TORCH.given_weights:
            oid = self.allocate("module", expr.node, text_of(expr.func), name.rpartition(".")[0])
            state.vars[oid, "$frozen"] = const(truth(arguments.get(1, "freeze") or const(True)) is True)
            return frozenset((Obj(oid),))
        builtin = _BUILTINS.get(name)
        if builtin is not None:
            return builtin(self, arguments, expr, state)
        if name in ("os.environ.setdefault", "os.putenv") and len(arguments.positional) == 2:
            self.environment(arguments.positional[0], arguments.positional[1], expr.node)
        elif name == "os.environ.update":
            pairs = [(const(word), value) for word, value in arguments.keywords.items()]
            for atom in join_all(arguments.positional):
                if type(atom) is Obj and self.heap[atom.oid].kind == "dict":
                    words = [str(getattr(key, "value", "")) for key in state.vars.get((atom.oid, "$keys"), EMPTY)]
                    pairs += [(const(word[2:-2]), state.vars.get((atom.oid, word), UNKNOWN)) for word in sorted(words)]
            for key, value in pairs:
                self.environment(key, value, expr.node)
        effect = TORCH.function_effect(name)
        if effect is not None:
            return self.torch_function(name, effect, arguments, expr, state)
        kind = class_kind(name)
        if kind != "thing":
            return self.construct_external(name, kind, arguments, expr, state)
        settings = self.world.settings
        if name in settings.detaching_calls:
            self.cut_all(arguments, expr, state, name)
            return FREE_TENSOR
        if name in settings.no_grad_wrappers:
            return self.manager("off", expr)
        root, _, rest = name.partition(".")
        last = name.rpartition(".")[2]
        if name in TORCH.inert_calls or (root in sys.stdlib_module_names and root not in STDLIB_WITH_VALUES):
            gids = [self.whole(v, state)[0] for v in arguments.all()]
            self.sink(NOTHING.union(*gids) if gids else NOTHING, "shown", name, expr.node)
            return PLAIN
        if root in ("numpy", "np", "sklearn", "scipy", "pandas", "cv2", "PIL", "matplotlib", "einops"):
            if root == "einops" and last not in ("parse_shape", "asnumpy"):
                return self.arithmetic(arguments.all(), expr.node, state)
            self.cut_all(arguments, expr, state, name)
            return PLAIN
        if root == "torch" and rest and last[:1].islower() and "." not in rest:
            return self.arithmetic(arguments.all(), expr.node, state)
        return self.opaque(text_of(expr.func), arguments, expr, state)

    def cut_all(self, arguments: Arguments, expr: ir.Call, state: State, how: str) -> None:
        for value in arguments.all():
            self.sink(*self.whole(value, state), "cut", how, expr.node)

    def torch_function(self, name: str, effect: str, arguments: Arguments, expr: ir.Call, state: State) -> Value:
        values = arguments.all()
        if names_device(arguments.keywords.get("device")):
            self.record.flags.add("device")
        for value in values[:2]:
            for atom in value:
                if type(atom) is Tensor and name in FROM_ARRAYS:
                    self.notice(atom.graphs, "array")
                elif type(atom) is Tensor:
                    self.notice(atom.graphs, "torch-op")
                    self.operation(atom.graphs, "loss" if effect == "loss" else name.rpartition(".")[2])
        if name.rpartition(".")[2] in JOINS:
            self.note_joined(arguments, state)
        if self.weighs_evidence and effect in ("keep", "loss", "view", "cut", "mixed-max"):
            for value in values if name.rpartition(".")[2] in TENSORS_ONLY else values[:1]:
                self.notice(
                    (self.thing_graph(a.oid) for a in value if type(a) is Obj and self.heap[a.oid].kind == "thing"), TENSOR
                )
        match effect:
            case "keep" | "loss" | "view" | "checkpoint":
                if effect == "checkpoint":
                    self.effect(effect, name, arguments, expr, state)
                if effect == "checkpoint" and arguments.positional:
                    out = EMPTY
                    rest = Arguments(
                        arguments.positional[1:],
                        arguments.keywords,
                        arguments.exprs[1:],
                        arguments.keyword_exprs,
                        arguments.more,
                    )
                    for atom in sorted_atoms(arguments.positional[0]):
                        if type(atom) in (Func, Obj, Cls):
                            out = join(out, self.call_atom(atom, rest, expr, state))
                    return out or self.opaque(name, arguments, expr, state)
                operands = values
                for value in values:
                    for atom in value:
                        if type(atom) is Obj and self.heap[atom.oid].kind in CONTAINERS | {"generator"}:
                            operands = [*operands, *self.contents(atom.oid, state)]
                last = name.rpartition(".")[2]
                step = "" if last == "softmax" and over_queries(arguments.get(1, "dim")) else last
                result = self.in_role(step, self.arithmetic(operands, expr.node, state), values, expr.node, state)
                if effect == "loss":
                    reduction = arguments.keywords.get("reduction")
                    if reduction is None or only_const(reduction) not in (Const("none", "str"),):
                        return with_flags_set(result, SCALAR)
                if (
                    last in REDUCTIONS
                    and len(arguments.positional) == 1
                    and not any(k in ("dim", "axis") for k in arguments.keywords)
                ):
                    return with_flags_set(result, SCALAR)
                return with_flags(result, VIEW) if name in ("torch.select", "torch.diagonal") else result
            case "pack":
                return with_flags(self.arithmetic(values[:1], expr.node, state), PACKED)
            case "inplace":
                return self.arithmetic(values, expr.node, state)
            case "leaf":
                self.record.flags.add("input-grad")
                return FREE_TENSOR
            case "autocast":
                return self.manager("none", expr)
            case "number" if name == "torch.device" and values and all(type(a) is Const for a in values[0]):
                return values[0]  # a device and its name are the same here
            case "cut" | "number":
                for value in values:
                    self.sink(*self.whole(value, state), "cut", name, expr.node)
                return PLAIN if effect == "number" else tensor(flags=INTEGER)
            case "rng-state":
                return tensor(flags=SCALAR)
            case "source" | "clip-grad":
                if effect == "source" and name in ("torch.tensor", "torch.as_tensor", "torch.stack"):
                    self.cut_all(arguments, expr, state, name)
                if truth(arguments.keywords.get("requires_grad", const(False))) is True:
                    self.record.flags.add("input-grad")
                if name == "torch.tensor" and arguments.exprs and is_small(arguments.exprs[0]):
                    return tensor(flags=SCALAR)
                return FREE_TENSOR
            case "mixed-max":
                if takes_another(name.rpartition(".")[2], arguments.get(1, "other")):
                    return self.arithmetic(values[:2], expr.node, state)
                result = self.arithmetic(values[:1], expr.node, state)
                if len(arguments.positional) == 1 and not arguments.keywords:
                    return with_flags_set(result, SCALAR)
                for value in values[:1]:
                    self.sink(*self.whole(value, state), "kept-part", name, expr.node)
                return frozenset((Tuple((result, tensor(flags=INTEGER))),))
            case "grad-off" | "grad-on" | "grad-set":
                return self.grad_manager(name, effect, arguments, expr, state)
            case "backward":
                self.backward([join_all(arguments.positional[:1])], arguments, expr, state, retain_at=2)
                return NONE
            case "autograd-grad":
                self.record.flags.add("autograd-grad")
                graphs = [self.whole(v, state)[0] for v in arguments.positional[:1]]
                self.sink(NOTHING.union(*graphs) if graphs else NOTHING, "backward", name, expr.node)
                self.backward([join_all(arguments.positional[:1])], arguments, expr, state, partial=True, retain_at=3)
                if truth(arguments.keywords.get("create_graph", const(False))) is not False:
                    result = self.arithmetic(arguments.positional[:1], expr.node, state)
                    return result
                return FREE_TENSOR
            case "module":
                return frozenset((Obj(self.allocate("module", expr.node, text_of(expr.func), name)),))
            case "compile":
                return arguments.positional[0] if arguments.positional else UNKNOWN
            case "load":
                made = self.allocate("thing", expr.node, text_of(expr.func))
                self.loaded[made] = made
                self.effect(effect, name, arguments, expr, state, made)
                return frozenset((Obj(made),))
        if effect in GUARD_EFFECTS:
            self.effect(effect, name, arguments, expr)
            return NONE
        return PLAIN if effect == "no-effect" else UNKNOWN

    def effect(
        self, effect: str, name: str, arguments: Arguments, expr: ir.Call, state: State | None = None, result: int = -1
    ) -> None:
        """Tell a call; with ``state`` also the grad mode and what the arguments hang on."""
        takes = NOTHING
        if state is not None:
            held = [self.whole(value, state)[0] for value in arguments.all()]
            known = self.record.ancestors(NOTHING.union(*held)) if held else NOTHING
            modules = {self.record.graphs[g].module for g in known if g in self.record.graphs} - {-1}
            takes = frozenset(modules | {self.loaded[oid] for oid in modules if oid in self.loaded})
        pairs = [(str(i), v) for i, v in enumerate(arguments.positional)] + sorted(
            arguments.keywords.items(), key=lambda p: p[0]
        )
        self.emit(
            CallEffect(
                self.site(expr.node),
                effect,
                name,
                tuple(pairs),
                True,
                bool({"forward", "moved"} & self.record.flags),
                tuple(self.deleted),
                next_words(self.following),
                (
                    *((str(i), e.node) for i, e in enumerate(arguments.exprs)),
                    *sorted((word, e.node) for word, e in arguments.keyword_exprs.items()),
                ),
                stars_of(expr) if arguments.more else "",
                state.mode if state is not None else "",
                result,
                takes,
                self.gates() if effect == "empty-cache" else (),
            ),
            tag=effect,
        )

    def gates(self) -> tuple[str, ...]:
        """What the names in the tests around are bound to, again and again (``CallEffect.gates``)."""
        from torchmemlint.semantics.gates import bound_to

        tests = [text for text in self.site(-1).guards if not text.startswith("not ")]
        turn = self.loop_statements.get(self.loops[-1]) if self.loops and self.loops[-1][0] == self.frame else None
        if not tests or (self.loops and turn is None):
            return ()
        return tuple(bound_to(tests, turn.body if turn is not None else self.frame_closure[self.frame].function.body))

    @property
    def deleted(self) -> list[str]:
        if not hasattr(self, "_deleted"):
            self._deleted: list[str] = []
        return self._deleted

    def grad_manager(self, name: str, effect: str, arguments: Arguments, expr: ir.Call, state: State) -> Value:
        """``no_grad()`` and its kin used as a value: what a ``with`` or a decorator makes of it. ``set_grad_enabled`` acts at
        once, as torch's does."""
        if effect == "grad-off" and arguments.positional and type(next(iter(arguments.positional[0]), None)) is Func:
            return arguments.positional[0]
        if effect == "grad-set" or name.endswith("inference_mode"):
            value = arguments.get(0, "mode")
            if value is None:
                known: bool | None = effect == "grad-set"
            else:
                known = truth(value)
                if known is None and arguments.exprs:
                    known = self.assumed(arguments.exprs[0])
            if effect == "grad-off":
                known = (
                    None
                    if known is None and value is not None
                    else not (known is False and value is None)
                    if value is None
                    else not known
                )
                if value is None:
                    known = False
            mode = "unknown" if known is None else "on" if known else "off"
            if effect == "grad-set":
                self._mode_before = state.mode
                state.mode = mode
            return self.manager(mode, expr)
        return self.manager("off" if effect == "grad-off" else "on", expr)

    _mode_before: str | None = None

    def manager(self, mode: str, expr: ir.Call) -> Value:
        return frozenset((Obj(self.allocate("manager", expr.node, text_of(expr.func), mode, tag=mode)),))

    def construct_external(self, name: str, kind: str, arguments: Arguments, expr: ir.Call, state: State) -> Value:
        if kind in CONTAINERS:
            return _make_container(self, kind, arguments, expr, state)
        if kind == "parameter":
            return self.leaf(expr.node, text_of(expr.func), state)
        if kind == "distribution":
            oid = self.allocate(kind, expr.node, text_of(expr.func), name)
            state.vars[oid, "[]"] = self.arithmetic(arguments.all(), expr.node, state)
            return frozenset((Obj(oid),))
        if kind in ("module", "ema") and arguments.positional:
            wrapped = [a for a in arguments.positional[0] if type(a) is Obj and self.heap[a.oid].kind in ("module", "thing")]
            if wrapped and name.rpartition(".")[2] in ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel"):
                return frozenset(wrapped)
        if kind == "no-grad-variable":
            return UNKNOWN
        oid = self.allocate(kind, expr.node, text_of(expr.func), name)
        if name in HOLDERS:
            held = [a for v in arguments.all() for a in self.parts_of(v, state)]
            self.bare -= {oid}
            self.bare |= {oid} if held and all(type(a) is Obj and a.oid in self.bare for a in held) else set()
            if held and all(type(a) is Obj and (a.oid in self.bare or self.frozen(a.oid, state)) for a in held):
                state.vars[oid, "$frozen"] = const(True)
        return frozenset((Obj(oid),))

    def parts_of(self, value: Value, state: State) -> list[Atom]:
        """What a value is, the items of lists, dictionaries and tuples in the place of these."""
        out: list[Atom] = []
        for atom in value:
            if type(atom) is Tuple:
                out += [a for item in atom.items for a in self.parts_of(item, state)]
            elif type(atom) is Obj and self.heap[atom.oid].kind in CONTAINERS:
                out += [a for item in self.contents(atom.oid, state) for a in item]
            else:
                out.append(atom)
        return out

    def opaque(
        self,
        what: str,
        arguments: Arguments,
        expr: ir.Call,
        state: State,
        hints: frozenset[int] = NOTHING,
        oid: int = -1,
        direct: bool = False,
    ) -> Value:
        """An unresolved call: its result may hang on whatever went in, and may be attached by itself."""
        last = what.rpartition(".")[2].partition("(")[0]
        values = arguments.all()
        # Who is asked for the kind of tensors makes them of text, sound or pictures: a tokenizer or processor, no network.
        wanted = only_const(arguments.keywords["return_tensors"]) if "return_tensors" in arguments.keywords else None
        foreign = wanted is not None and wanted.value in OTHER_FRAMEWORKS
        direct = direct and "return_tensors" not in arguments.keywords
        self.whole_logits(values, state)
        if oid >= 0 and last not in ("forward", "__call__") and guards_itself(self.world, last):
            self.cut_all(arguments, expr, state, "no_grad")
            return FREE_TENSOR
        if "detach" in last or any(type(a) is Ext and a.name.endswith(".detach") for v in values for a in v):
            # A helper that is named for what it does, or that is handed ``torch.Tensor.detach`` to map.
            self.cut_all(arguments, expr, state, ".detach()")
            return FREE_TENSOR
        if not direct and oid < 0 and values:
            # A wrapper library's function with the name of a tensor operation does what the operation does.
            effect = TORCH.methods.get(last) or TORCH.function_effect(f"torch.{last}")
            if effect in ("keep", "view", "cut", "loss"):
                return self.torch_function(f"torch.{last}", effect, arguments, expr, state)
        passing = TORCH.backward_methods.get(last)
        if passing == "passes" and arguments.positional:
            return self.arithmetic([arguments.positional[0]], expr.node, state)
        if passing == "backpropagates" and values:
            self.backward([join_all(arguments.positional[:1] or values)], arguments, expr, state)
            return NONE
        if last in PASS_THROUGH and arguments.positional:
            return self.arithmetic([arguments.positional[0]], expr.node, state)
        gathered: set[int] = set(hints)
        for value in values:
            gathered |= self.whole(value, state)[0]
        inert = last in TORCH.inert_methods or what in TORCH.inert_calls
        if gathered and state.mode != "off":
            self.sink(gathered, "shown" if inert else "passed", what, expr.node)
        if inert:
            return PLAIN
        if state.mode == "off":
            self.sink(gathered, "cut", "no_grad", expr.node)
            if direct:
                number = self.number("graph", "opaque-off", self.frame, expr.node, self.turn, what)
                self.record.forwards.setdefault(
                    number, Graph(number, "opaque", self.site(expr.node), what, mode="off", direct=True)
                )
                return tensor(outputs=frozenset((number,)), flags=BATCH)
            return tensor(flags=GUESSED)
        known = frozenset(g for g in gathered if g in self.record.graphs)
        gid = self.graph(
            "opaque",
            expr.node,
            what,
            key=(what, oid),
            parents=known,
            mode=state.mode,
            module=oid,
            direct=direct,
            training=truth(state.vars.get((oid, "$training"), UNKNOWN)),
            frozen=direct and oid >= 0 and self.stays_free(oid, known, state),
        )
        if foreign or not self.foreign.isdisjoint(known):
            self.foreign.add(gid)
            self.notice((gid,), "array")
        through = self.through_module(set(known)) if direct else set()
        return tensor(frozenset((gid, *through)), known)

    @property
    def foreign(self) -> set[int]:
        """What hangs on inputs that a tokenizer made for another framework: a network that takes them is of that framework."""
        if not hasattr(self, "_foreign"):
            self._foreign: set[int] = set()
        return self._foreign

    # --- home-made grad managers --------------------------------------------------------------------------------------

    def project_manager_mode(self, expr: ir.Expr, state: State) -> str | None:
        """Grad mode inside ``with expr:`` when a function or class of the project makes the manager; None for none."""
        call = expr if isinstance(expr, ir.Call) else None
        text = dotted(call.func if call is not None else expr)
        if not text:
            return None
        facts: list[ArgFact] = []
        exprs: dict[str, ir.Expr] = {}
        if call is not None:
            for position, arg in enumerate(call.args):
                single = only_const(self.eval(arg.value, state)) if type(arg.value) in (ir.Const, ir.Name, ir.Attr) else None
                facts.append(
                    ArgFact(arg.keyword or arg.star, dotted(arg.value), repr(single.value) if single is not None else "")
                )
                exprs[arg.keyword or str(position)] = arg.value
        closure = self.frame_closure[self.frame]
        effect = self.world.project.manager_effect(
            closure.ref.path, closure.ref.qualname, CallableUse(text, tuple(facts), call is not None)
        )
        if effect is None:
            return None
        if effect.startswith("param:"):
            value = exprs.get(effect[6:]) or (next(iter(exprs.values())) if exprs else None)
            known = self.decide(value, state) if value is not None else None
            return "unknown" if known is None else "on" if known else "off"
        return {"off": "off", "on": "on"}.get(effect, "unknown")


TO_INDICES = frozenset({"argmax", "argmin", "argsort", "bucketize", "multinomial", "searchsorted", "topk"})
"""Words of a forward that may give class ids: others are not run for it."""
OTHER_FRAMEWORKS = frozenset({"jax", "tf", "np", "mlx"})
"""What tokenizers call the tensors of other frameworks: https://huggingface.co/docs/transformers/main_classes/tokenizer."""


# --- helpers ----------------------------------------------------------------------------------------------------------

DICT_METHODS = frozenset({"keys", "values", "items", "get", "pop", "update", "append", "extend", "insert", "clear", "copy"})
"""Methods of containers of modules: none of them runs a module."""
COMMON_METHODS = frozenset(
    {
        "append", "extend", "update", "get", "items", "keys", "values", "step", "train", "eval", "forward", "reset", "close",
        "write", "read", "run", "start", "stop", "join", "copy", "save", "load", "log", "format", "apply", "fit", "predict",
        "split", "sample", "backward", "build", "init", "add", "put", "set", "send", "call", "compute", "process",
    }
)  # fmt: skip
"""Methods that objects outside the project have as well: their name says nothing about the class."""
HOOKS = frozenset(
    {
        "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook", "register_backward_hook",
        "register_module_forward_hook",
    }
)  # fmt: skip
"""Methods of a module (or functions of torch) that keep a function and call it with inputs, outputs or gradients."""
ALLOCATOR_VARIABLES = frozenset({"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"})
"""Environment variables that the caching allocator reads: https://docs.pytorch.org/docs/stable/notes/cuda.html."""
TENSORS_ONLY = frozenset({"matmul", "mm", "bmm", "addmm", "mv", "dot", "linear", "cat", "stack", "outer"})
"""Functions of which every positional argument is a tensor."""
INTEGER_DTYPES = frozenset(
    {
        "torch.long", "torch.int", "torch.int64", "torch.int32", "torch.int16", "torch.short", "torch.int8", "torch.uint8",
        "torch.bool",
    }
)  # fmt: skip


FROM_ARRAYS = frozenset({"torch.from_numpy", "torch.frombuffer"})
"""What these are given is no tensor: they refuse one."""


def stars_of(expr: ir.Call) -> str:
    """Which stars a call's arguments have: "", "*", "**" or "***" for both."""
    return "".join(sorted({arg.star for arg in expr.args}))


def gradient_owner(expr: ir.Expr) -> ir.Expr | None:
    """``p`` of ``p.grad`` and of ``p.grad.data``; None for any other expression."""
    if isinstance(expr, ir.Attr) and expr.name == "data":
        expr = expr.value
    return expr.value if isinstance(expr, ir.Attr) and expr.name == "grad" else None


def over_queries(dim: Value | None) -> bool:
    """Whether a softmax is not over the last dimension of its scores: the weights of each key add up to one."""
    single = only_const(dim) if dim is not None else None
    return single is not None and single.value in (-2, 0)


def only_indices(value: Value) -> bool:
    """Whether all that a value is, or holds in tuples, are indices and truth values."""
    return bool(value) and all(
        (type(a) is Tensor and bool(a.flags & INTEGER))
        or (type(a) is Tuple and bool(a.items) and all(only_indices(item) for item in a.items))
        for a in value
    )


def torch_name(func: ir.Expr) -> str:
    """The absolute name of torch's function that is written ``torch.x``, ``nn.functional.x`` or ``F.x``; empty where torch has
    none of that name."""
    head, _, rest = dotted(func).partition(".")
    name = f"{TORCH_NAMES[head]}.{rest}" if head in TORCH_NAMES else ""
    return name if name in TORCH.functions else ""


def is_text(value: Value) -> bool:
    """Whether a value is known to be a string."""
    return bool(value) and all(type(atom) is Const and type(atom.value) is str for atom in value)


def is_single_number(values: list[Value]) -> bool:
    """Whether the arguments are one tensor without dimensions, and no index: that stands for a row of a table."""
    return (
        len(values) == 1
        and bool(values[0])
        and all(type(a) is Tensor and bool(a.flags & SCALAR) and not a.flags & INTEGER for a in values[0])
    )


def takes_another(name: str, other: Value | None) -> bool:
    """Whether ``max`` and ``min`` choose between two tensors, element by element, and not along a dimension."""
    return name in ("max", "min") and any(type(a) is Tensor and not a.flags & GUESSED for a in other or ())


def only_free(value: Value) -> bool:
    """Whether all that a value is, or holds in tuples, are tensors and other values that hang on nothing."""
    return bool(value) and all(
        type(a) in (Plain, Const)
        or (type(a) is Tensor and not a.graphs and not a.hints and not a.flags & GUESSED)
        or (type(a) is Tuple and bool(a.items) and all(only_free(item) for item in a.items))
        for a in value
    )


def is_number(value: Value) -> bool:
    """Whether a default tells that what it stands in for is a number: one that is no empty sum."""
    single = only_const(value)
    return single is not None and type(single.value) in (int, float) and bool(single.value)


def is_zero(value: Value | None) -> bool:
    single = only_const(value) if value is not None else None
    return single is not None and single.value == 0


def next_words(statement: ir.Stmt | None) -> str:
    """What the next statement of the block is, as far as rules ask: "break", "return", or the text of its call or value."""
    match statement:
        case ir.Break() | ir.Return() | ir.Raise():
            return type(statement).__name__.lower()
        case ir.ExprStmt() | ir.Assign():
            return text_of(statement.value)
        case _:
            return ""


def me_or_plain(oid: int, effect: str) -> Value:
    """What a method of every ``nn.Module`` returns: the module itself, or plain data."""
    return frozenset((Obj(oid),)) if effect in ("self", "eval", "train", "freeze") else PLAIN


def is_abstract(function: ir.Function) -> bool:
    """Whether a body does nothing but raise (or nothing at all): subclasses have the real one."""
    for statement in function.body:
        if isinstance(statement, ir.ExprStmt) and isinstance(statement.value, ir.Const):
            continue
        if not isinstance(statement, ir.Raise):
            return False
    return not function.name.startswith("__")


def first_parameter(function: ir.Function) -> str:
    return function.params[0].name if function.params else ""


def receiver_of(expr: ir.Expr) -> ir.Expr | None:
    if isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr):
        return expr.func.value
    return None


def outputs_in(value: Value) -> bool:
    return any(type(a) is Tensor and a.outputs for a in value)


def with_flags_set(value: Value, flags: int) -> Value:
    """The value with flags set; a scalar keeps no output alive and is no view."""
    return frozenset(
        Tensor(
            a.graphs,
            a.hints,
            NOTHING if flags & SCALAR else a.outputs,
            (a.flags | flags) & ~(VIEW | BATCH if flags & SCALAR else 0),
        )
        if type(a) is Tensor
        else a
        for a in value
    )


def reshape(inner: Value | None, make: Callable[[Tensor], Tensor]) -> Value:
    """A module's result: as its own forward built it, with each tensor remade; one tensor when that is out of sight."""
    if inner is None:
        return frozenset((make(Tensor()),))
    out: list[Atom] = []
    for atom in inner:
        if type(atom) is Tensor:
            out.append(make(atom))
        elif type(atom) is Tuple:
            out.append(Tuple(tuple(reshape(item, make) for item in atom.items)))
        elif type(atom) is Unknown:
            out.append(make(Tensor(NOTHING, atom.hints)))
        else:
            out.append(atom)
    return frozenset(out)


def names_device(value: Value | None) -> bool:
    """Whether a device that may be meant is a CUDA device."""
    return any(type(a) is Const and isinstance(a.value, str) and a.value.startswith("cuda") for a in value or ())


def is_small(expr: ir.Expr) -> bool:
    """A number, or a display of numbers: a tensor of it is no more than a scalar on the device."""
    if isinstance(expr, ir.Sequence):
        return all(type(item) in (ir.Const, ir.Name, ir.Unary) for item in expr.items)
    return isinstance(expr, ir.Const)


def sure(value: Value) -> Value:
    """The value of a function that gives tensors and nothing else."""
    return frozenset(
        Tensor(a.graphs, a.hints, a.outputs, a.flags & ~GUESSED) if type(a) is Tensor and a.flags & GUESSED else a
        for a in value
    )


def half_fix(expr: ir.Expr | None) -> tuple[str, int]:
    """The move or copy that stands where a detach should, and the node it is called on: ("cpu", out) for ``out.cpu()``."""
    name, base = "", -1
    while isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr):
        if expr.func.name in ("cpu", "clone", "float", "double", "half", "contiguous", "to"):
            name, base = expr.func.name, expr.func.value.node
        else:
            break
        expr = expr.func.value
    return name, base


def runs_functions(atom: Atom, method: str, run: Calls) -> bool:
    """Whether what is called, a method of an atom or the atom itself, runs a function that it is given."""
    if type(atom) is Ext:
        return (f"{atom.name}.{method}" if method else atom.name) in TORCH.runners
    if type(atom) is Obj:
        info = run.heap[atom.oid]
        if info.kind != "thing" or isinstance(info.cls, ClassRef):
            return False
        return f"{info.cls}.{method}" in TORCH.runners or (not info.cls and method in TORCH.runner_methods)
    return type(atom) in (Tensor, Unknown) and method in TORCH.runner_methods


# --- builtins and a few library functions, by what they do to values -----------------------------------------------------

Builtin = Callable[[Calls, Arguments, ir.Call, State], Value]


def _make_container(run: Calls, kind: str, arguments: Arguments, expr: ir.Call, state: State) -> Value:
    bounded = kind == "list" and "maxlen" in arguments.keywords
    oid = run.allocate("window" if bounded else kind, expr.node)
    run.forget(oid, state)
    for position, value in enumerate(arguments.positional):
        if kind == "dict":
            for atom in value:
                if type(atom) is Obj and run.heap[atom.oid].kind == "dict":
                    run.copy_contents(atom.oid, oid, state)
                elif type(atom) in (Func, Ext, Cls) and position == 0:
                    made = run.call_atom(atom, Arguments([], {}, [], {}, []), expr, state)
                    state.vars[oid, "[]"] = join(state.vars.get((oid, "[]"), EMPTY), made)
        elif position == 0:
            state.vars[oid, "[]"] = shallow(run.iterate(value, expr.node, state))
    for name, value in arguments.keywords.items():
        if kind == "dict":
            run.put(oid, const(name), value, state)
    return frozenset((Obj(oid),))


def _container(kind: str) -> Builtin:
    return lambda run, arguments, expr, state: _make_container(run, kind, arguments, expr, state)


def _tuple(run: Calls, arguments: Arguments, expr: ir.Call, state: State) -> Value:
    if arguments.positional and all(type(a) is Tuple for a in arguments.positional[0]):
        return arguments.positional[0]
    return _make_container(run, "list", arguments, expr, state)


def _generator(run: Calls, element: Value, expr: ir.Call, state: State, name: str) -> Value:
    oid = run.allocate("generator", expr.node, name)
    state.vars[oid, "[]"] = shallow(element)
    return frozenset((Obj(oid),))


def _enumerate(run: Calls, arguments: Arguments, expr: ir.Call, state: State) -> Value:
    inner = run.iterate(arguments.positional[0], expr.node, state) if arguments.positional else UNKNOWN
    return _generator(run, frozenset((Tuple((PLAIN, inner)),)), expr, state, "enumerate")


def _zip(run: Calls, arguments: Arguments, expr: ir.Call, state: State) -> Value:
    if arguments.more:
        return _generator(run, join_all(arguments.more), expr, state, "zip")
    items = tuple(run.iterate(v, expr.node, state) for v in arguments.positional)
    return _generator(run, frozenset((Tuple(items),)), expr, state, "zip")


def _same_elements(run: Calls, arguments: Arguments, expr: ir.Call, state: State) -> Value:
    values = arguments.positional or list(arguments.keywords.values())[:1]
    if not values:
        return UNKNOWN
    if all(type(a) is Obj and run.heap[a.oid].kind in ("loader", "params", "generator") for a in values[0]):
        return values[0]
    return _generator(run, run.iterate(values[0], expr.node, state), expr, state, "iterator")


def _range(run: Calls, arguments: Arguments, expr: ir.Call, state: State) -> Value:
    return _generator(run, PLAIN, expr, state, "range")


def _next(run: Calls, arguments: Arguments, expr: ir.Call, state: State) -> Value:
    return run.iterate(arguments.positional[0], expr.node, state) if arguments.positional else UNKNOWN


def _first(run: Calls, arguments: Arguments, expr: ir.Call, state: State) -> Value:
    return arguments.positional[0] if arguments.positional else UNKNOWN


def _sum(run: Calls, arguments: Arguments, expr: ir.Call, state: State) -> Value:
    if not arguments.positional:
        return PLAIN
    element = run.iterate(arguments.positional[0], expr.node, state)
    if all(type(a) in (Plain, Const) for a in element):
        return PLAIN
    start = [element, *arguments.positional[1:2]]
    return run.arithmetic(start, expr.node, state)


def _extreme(run: Calls, arguments: Arguments, expr: ir.Call, state: State) -> Value:
    """``max``/``min``: one of the arguments, or one of the elements; their comparison needs no graph."""
    out = (
        run.iterate(arguments.positional[0], expr.node, state)
        if len(arguments.positional) == 1
        else join_all(arguments.positional)
    )
    run.operation(hints_of(out), text_of(expr.func))
    return out


def _number(run: Calls, arguments: Arguments, expr: ir.Call, state: State) -> Value:
    run.cut_all(arguments, expr, state, text_of(expr.func))
    return PLAIN


def _shown(run: Calls, arguments: Arguments, expr: ir.Call, state: State) -> Value:
    for value in arguments.all():
        run.sink(*run.whole(value, state), "shown", text_of(expr.func), expr.node)
    return PLAIN


def _none(run: Calls, arguments: Arguments, expr: ir.Call, state: State) -> Value:
    return NONE


def _plain(run: Calls, arguments: Arguments, expr: ir.Call, state: State) -> Value:
    return PLAIN


def _isinstance(run: Calls, arguments: Arguments, expr: ir.Call, state: State) -> Value:
    return PLAIN


def _abs(run: Calls, arguments: Arguments, expr: ir.Call, state: State) -> Value:
    return run.arithmetic(arguments.positional[:1], expr.node, state)


def _map(run: Calls, arguments: Arguments, expr: ir.Call, state: State) -> Value:
    if len(arguments.positional) < 2:
        return UNKNOWN
    items = [run.iterate(v, expr.node, state) for v in arguments.positional[1:]]
    out = EMPTY
    for atom in sorted_atoms(arguments.positional[0]):
        out = join(out, run.call_atom(atom, Arguments(items, {}, arguments.exprs[1:], {}, []), expr, state))
    return _generator(run, out or UNKNOWN, expr, state, "map")


def _filter(run: Calls, arguments: Arguments, expr: ir.Call, state: State) -> Value:
    if len(arguments.positional) < 2:
        return UNKNOWN
    return _generator(run, run.iterate(arguments.positional[1], expr.node, state), expr, state, "filter")


def _partial(run: Calls, arguments: Arguments, expr: ir.Call, state: State) -> Value:
    if arguments.positional and any(
        type(a) is Ext and TORCH.function_effect(a.name) in ("checkpoint", "load") for a in arguments.positional[0]
    ):
        return UNKNOWN  # what is said of these calls depends on arguments that were bound here
    return arguments.positional[0] if arguments.positional else UNKNOWN


def _deepcopy(run: Calls, arguments: Arguments, expr: ir.Call, state: State) -> Value:
    if not arguments.positional:
        return UNKNOWN
    out = EMPTY
    for atom in sorted_atoms(arguments.positional[0]):
        if type(atom) is Obj and run.heap[atom.oid].kind in ("module", "thing"):
            info = run.heap[atom.oid]
            copy = run.allocate(info.kind, expr.node, text_of(expr.func), info.cls, tag=atom.oid)
            out = join(out, frozenset((Obj(copy),)))
        else:
            out = join(out, frozenset((atom,)))
    return out


def _null(run: Calls, arguments: Arguments, expr: ir.Call, state: State) -> Value:
    return run.manager("none", expr)


def _iadd(run: Calls, arguments: Arguments, expr: ir.Call, state: State) -> Value:
    return run.arithmetic(arguments.positional[:2], expr.node, state)


_BUILTINS: dict[str, Builtin] = {
    "builtins.list": _container("list"),
    "builtins.dict": _container("dict"),
    "builtins.set": _container("set"),
    "collections.deque": _container("list"),
    "collections.defaultdict": _container("dict"),
    "collections.OrderedDict": _container("dict"),
    "builtins.tuple": _tuple,
    "builtins.enumerate": _enumerate,
    "builtins.zip": _zip,
    "itertools.zip_longest": _zip,
    "builtins.range": _range,
    "tqdm.trange": _range,
    "builtins.iter": _same_elements,
    "builtins.reversed": _same_elements,
    "builtins.sorted": _same_elements,
    "itertools.cycle": _same_elements,
    "itertools.islice": _same_elements,
    "itertools.chain": _same_elements,
    "tqdm.tqdm": _same_elements,
    "tqdm.auto.tqdm": _same_elements,
    "tqdm.notebook.tqdm": _same_elements,
    "tqdm.std.tqdm": _same_elements,
    "tqdm.autonotebook.tqdm": _same_elements,
    "rich.progress.track": _same_elements,
    "builtins.next": _next,
    "builtins.sum": _sum,
    "builtins.max": _extreme,
    "builtins.min": _extreme,
    "builtins.float": _number,
    "builtins.int": _number,
    "builtins.bool": _number,
    "builtins.len": _plain,
    "builtins.str": _shown,
    "builtins.repr": _shown,
    "builtins.format": _shown,
    "builtins.print": _shown,
    "builtins.isinstance": _isinstance,
    "builtins.hasattr": _plain,
    "builtins.callable": _plain,
    "builtins.type": _plain,
    "builtins.id": _plain,
    "builtins.abs": _abs,
    "builtins.round": _plain,  # a tensor has no `__round__`: what is rounded so is a number
    "builtins.map": _map,
    "builtins.filter": _filter,
    "functools.partial": _partial,
    "copy.deepcopy": _deepcopy,
    "copy.copy": _deepcopy,
    "typing.cast": lambda run, arguments, expr, state: arguments.positional[-1] if arguments.positional else UNKNOWN,
    "contextlib.nullcontext": _null,
    "contextlib.suppress": _null,
    "operator.iadd": _iadd,
    "operator.add": _iadd,
}
"""Absolute name → what it does to values. Python's own semantics, so it is code and not a table of torch facts."""

__all__ = ["Arguments", "Calls", "GradModeMisuse", "join_states"]
