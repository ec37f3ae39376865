"""Expressions → values."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.semantics.attention import MIXES, flags_of, role
from torchmemlint.semantics.base import CONTAINERS, Book
from torchmemlint.semantics.events import Attention, LastLogits
from torchmemlint.semantics.parameters import HOLDERS, made_without_parameters, makes_bare, parametric_attributes
from torchmemlint.semantics.state import State, join_states
from torchmemlint.semantics.text import text_of
from torchmemlint.semantics.values import (
    BATCH,
    COLUMN,
    COMPUTED,
    DOUBTED,
    EMPTY,
    FREE_TENSOR,
    GUESSED,
    INTEGER,
    LOGITS,
    NONE,
    NOTHING,
    PACKED,
    PLAIN,
    SCALAR,
    UNKNOWN,
    VIEW,
    Atom,
    Cls,
    Const,
    Ext,
    Func,
    Obj,
    Plain,
    Tensor,
    Tuple,
    Unknown,
    Value,
    add_marks,
    const,
    detached,
    hints_of,
    join,
    join_all,
    normal,
    only_const,
    tensor,
    truth,
    unknown,
)
from torchmemlint.semantics.variables import may_freeze_variable, said_of_variable, trains_in
from torchmemlint.semantics.world import MODULE
from torchmemlint.torch_facts import TORCH

CERTAIN = ("forward", "leaf")
EXTERNAL = {"builtins.True": const(True), "builtins.False": const(False), "builtins.None": NONE}
"""Names outside the project that stand for literals."""
ABSTRACT_WORDS = frozenset({"NotImplementedError", "NotImplemented", "abstractmethod", "property", "abc", "self"})
"""The words of a body that only says that subclasses have one."""
MANY_GRAPHS = 800
"""Graphs of one run after which parts are no longer told apart."""
MAX_PART_TEXT = 60
"""Parts of parts of unknown things stop having an identity of their own beyond this length of their text: ``x = x.next`` in a
loop would make new ones for ever."""
SCALING = frozenset({"/", "//", "%"})
"""Operators of which the right operand is more likely a number than a tensor with a graph; in place, ``*`` is one more."""
COMPARISONS = frozenset({"==", "!=", "<", ">", "<=", ">="})
MODULE_EVIDENCE = frozenset(
    {
        "eval", "parameters", "named_parameters", "state_dict", "load_state_dict", "zero_grad", "requires_grad_", "modules",
        "named_modules", "train", "children", "named_children", "buffers",
    }
)  # fmt: skip
STRONG_EVIDENCE = frozenset({"parameters", "named_parameters", "named_modules", "named_children", "named_buffers"})
"""Methods that only an ``nn.Module`` has; one of them, or two of the others, make an object a module. (Data sets and metrics
have ``eval`` and ``train`` in some projects, optimizers have ``state_dict``.)"""
TRAINER_WORDS = frozenset({"fit", "predict", "score", "transform", "step", "backward"})
"""Methods that a module does not have: an object with one of these has ``eval``/``train`` of its own."""


WITHOUT_PARTS = frozenset({Const, Plain, Ext, Cls, Func})
"""Atoms that hang on no graph and hold nothing that does."""


def is_property(facts: FunctionFacts) -> bool:
    """Whether a method is read as an attribute, without a call."""
    return any(use.callee.rpartition(".")[2] in PROPERTIES for use in facts.decorators)


PROPERTIES = frozenset({"property", "cached_property", "abstractproperty"})


def looks_like_module(words: frozenset[str]) -> bool:
    """Whether what is called on an object shows that it is an ``nn.Module``. The word "()" says that it is itself called."""
    if words & STRONG_EVIDENCE:
        return True
    if words & TRAINER_WORDS:
        return False
    return len(words & MODULE_EVIDENCE) >= 2 or (
        "()" in words and bool(words & {"eval", "train", "state_dict", "load_state_dict"})
    )


class Evaluator(Book):
    """Values of expressions in a state; walrus targets, calls and comprehensions change the state."""

    def eval(self, expr: ir.Expr | None, state: State) -> Value:
        if expr is None:
            return NONE
        return _DISPATCH[type(expr)](self, expr, state)

    # --- to be had from calls and statements ------------------------------------------------------------------------

    def call(self, expr: ir.Call, state: State) -> Value:
        raise NotImplementedError

    def assign(self, target: ir.Expr, value: Value, state: State, node: int, source: ir.Expr | None = None) -> None:
        raise NotImplementedError

    def narrow(self, test: ir.Expr, holds: bool, state: State) -> bool:
        raise NotImplementedError

    def loop_passes(self, loop, state: State, body, endless: bool = False, own=frozenset()):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    def inline_property(self, ref: FunctionRef, oid: int, node: int, state: State) -> Value:
        raise NotImplementedError

    # --- names ------------------------------------------------------------------------------------------------------

    def name(self, expr: ir.Name, state: State) -> Value:
        frame = self.frame
        ident = expr.id
        while frame >= 0:
            value = state.vars.get((frame, ident))
            if value is not None:
                return value
            closure = self.frame_closure[frame]
            if ident in closure.function.locals and closure.function.name != MODULE:
                return UNKNOWN
            frame = closure.parent
        return self.global_name(ident, state)

    def global_name(self, ident: str, state: State) -> Value:
        closure = self.frame_closure[self.frame]
        path = closure.ref.path
        held = state.vars.get((-2, f"{path}:{ident}"))
        if held is not None:
            return held
        absolute = self.world.resolved(path, ident)
        if absolute is None:
            return self.module_variable(path, ident)
        variable = self.world.variable(path, ident)
        return (variable and self.known_variable(*variable, ident, state)) or self.absolute(absolute, path, ident)

    def known_variable(self, path: str, name: str, ident: str, state: State) -> Value | None:
        """What a module-level variable holds, read inside a function as ``ident``; None where the module does not show what that
        is, or may leave it frozen."""
        found = self.world.project.class_of(path, MODULE, name)
        words = said_of_variable(self.world, path, name)
        if (found is None and not looks_like_module(words)) or may_freeze_variable(self.world, path, name):
            return None
        oid = self.outside("thing", ident, found, key=(path, name))
        if self.heap[oid].kind == "thing":
            self.classify(oid, found, ident)
            if self.heap[oid].kind == "thing":
                self.retype(oid, "module" if looks_like_module(words) else "thing", found)
            text = self.world.project.assigned(path, name)
            if isinstance(found, ClassRef) and text is not None and text.endswith("()"):
                self.note_bare(oid, found, FunctionRef(path, MODULE), text.removesuffix("()"))
        if "eval" in words and "train" not in words and not trains_in(self.world, path):
            state.vars.setdefault((oid, "$training"), const(False))
        return frozenset((Obj(oid),))

    def absolute(self, absolute: str, path: str, text: str) -> Value:
        found = self.absolutes.get(absolute)
        if found is None:
            known = self.world.symbol(absolute)
            if known is None:
                found = EXTERNAL.get(absolute) or frozenset((Ext(absolute),))
            elif isinstance(known, FunctionRef):
                found = self.function_value(known)
            else:
                found = frozenset((Cls(known.path, known.qualname),))
            self.absolutes[absolute] = found
        return found

    def function_value(self, ref: FunctionRef, receiver: int = -1, owner: ClassRef | None = None) -> Value:
        """A function of the project; it is lowered only when it is called."""
        key = self._closure_keys.get(("ref", ref))
        if key is None:
            from torchmemlint.semantics.base import Closure

            facts = self.world.facts(ref)
            if owner is None and facts.owner:
                owner = ClassRef(ref.path, facts.owner)
            placeholder = ir.Function(-1, ref.qualname.rpartition(".")[2], ref.qualname, [], [], [])
            key = len(self.closures)
            self._closure_keys["ref", ref] = key
            self.closures.append(Closure(placeholder, None, ref, -1, owner))
        return frozenset((Func(key, receiver),))

    def module_variable(self, path: str, ident: str) -> Value:
        """A module-level variable read inside a function: an object by what the module assigns to it."""
        text = self.world.project.assigned(path, ident)
        if text is not None:
            found = self.world.project.class_of(path, MODULE, ident)
            oid = self.outside("thing", ident, found, key=(path, ident))
            self.classify(oid, found, ident)
            if isinstance(found, ClassRef) and text.endswith("()"):
                self.note_bare(oid, found, FunctionRef(path, MODULE), text.removesuffix("()"))
            return frozenset((Obj(oid),))
        if ident == "torch":  # bound by an import that is not in sight (``from common import *``), or forgotten
            return self.absolute(ident, path, ident)
        return frozenset((Obj(self.outside("thing", ident, None, key=(path, ident))),))

    def classify(self, oid: int, cls: ClassRef | str | None, text: str) -> None:
        """Give an object from outside the kind that its class, or what the code calls on it, shows."""
        if self.heap[oid].kind != "thing":
            return
        kind = "thing"
        if isinstance(cls, ClassRef):
            kind = "module" if self.world.is_module_class(cls) else "instance"
        elif isinstance(cls, str):
            kind = class_kind(cls)
        if kind == "thing":
            evidence = self.evidence if self.frame >= 0 else self.world.evidence(self.record.root)
            if looks_like_module(evidence.get(text, frozenset())):
                kind = "module"
        self.retype(oid, kind, cls)

    def note_bare(self, oid: int, cls: ClassRef, ref: FunctionRef, callee: str) -> None:
        """Remember of an object that is constructed by calls of ``callee`` in a function that it is a module without parameters."""
        if self.heap[oid].kind == "module" and made_without_parameters(self.world, ref, callee, cls):
            self.bare.add(oid)

    # --- attributes ---------------------------------------------------------------------------------------------------

    def attribute(self, expr: ir.Attr, state: State) -> Value:
        receiver = self.eval(expr.value, state)
        return self.attribute_of(receiver, expr.name, expr, state)

    def attribute_of(self, receiver: Value, name: str, expr: ir.Attr, state: State) -> Value:
        out = EMPTY
        for atom in sorted_atoms(receiver):
            out = join(out, self.attribute_of_atom(atom, name, expr, state))
        return out or UNKNOWN

    def attribute_of_atom(self, atom: Atom, name: str, expr: ir.Attr, state: State) -> Value:
        match atom:
            case Ext():
                return self.absolute(f"{atom.name}.{name}", self.path, name)
            case Obj():
                if name == "mT" and self.heap[atom.oid].kind == "thing":  # only tensors have it
                    return self.attribute_of_atom(Tensor(frozenset((self.thing_graph(atom.oid),))), name, expr, state)
                return self.object_attribute(atom.oid, name, expr, state)
            case Tensor():
                effect = TORCH.attributes.get(name)
                if atom.flags & PACKED:
                    effect = "keep" if name == "data" else None
                    atom = atom._replace(flags=atom.flags & ~PACKED)
                if effect is not None:
                    self.notice(atom.graphs, name)
                single = frozenset((atom,))
                if effect == "cut":
                    self.sink(atom.graphs | atom.hints, "cut", f".{name}", expr.node)
                    return detached(single)
                if effect in ("number", "shape"):
                    return PLAIN
                if effect in ("view", "keep"):
                    return self.in_role(name, self.made(single, expr.node, state), [single], expr.node, state)
                part = self.part(atom, f".{name}", expr.node)
                return with_flags(part, LOGITS) if name == "logits" else part
            case Cls():
                ref = ClassRef(atom.path, atom.qualname)
                method = self.world.project.method(ref, name)
                if method is not None:
                    return self.function_value(method)
                found = [a for a, _ in self.world.project.attr(ref, name) if a.method == ""]
                if found and found[0].kind == "const":
                    return literal(found[0].const)
                return frozenset((Obj(self.outside("thing", f"{atom.qualname}.{name}", None)),))
            case Unknown():
                return unknown(atom.hints)
            case Plain() | Const():
                return PLAIN
            case Tuple() if name in ("values", "indices") and len(atom.items) == 2:  # what `max(dim)`, `sort` and `topk` return
                return atom.items[name == "indices"]
            case _:
                return UNKNOWN

    def part(self, atom: Tensor, key: str, node: int, unpacked: bool = False) -> Value:
        """A named part of a result: of a module's output it hangs on the same graph; of an opaque result each part has an
        identity of its own, because only evidence about that very part tells whether it is attached."""
        graphs = NOTHING
        hints = atom.hints
        for gid in atom.graphs:
            graph = self.record.graphs[gid]
            # What a module out of sight returns beside a loss may be a number: each piece that is unpacked stands for itself.
            apart = graph.kind in ("opaque", "param") or (unpacked and graph.kind == "forward")
            if apart and len(graph.what) < MAX_PART_TEXT and len(self.record.graphs) < MANY_GRAPHS:
                graphs |= {
                    self.graph(
                        "opaque",
                        graph.site.node,
                        graph.what + key,
                        key=(gid, key),
                        parents=frozenset((gid,)),
                        mode=graph.mode,
                        site=graph.site,
                        direct=graph.direct or graph.kind == "forward",
                        training=graph.training,
                    )
                }
            elif apart and graph.kind != "forward":
                hints |= {gid}  # no longer told apart: this part may be a number beside the loss
            else:
                graphs |= {gid}
        return tensor(graphs, hints, atom.outputs, atom.flags & ~SCALAR)

    def object_attribute(self, oid: int, name: str, expr: ir.Attr | None, state: State) -> Value:
        held = state.vars.get((oid, name))
        if held is not None:
            return held
        info = self.heap[oid]
        if info.kind in CONTAINERS or info.kind == "generator":
            return UNKNOWN
        if info.kind == "distribution":
            if name == "base_dist":
                return frozenset((Obj(oid),))
            if not name.endswith(("_shape", "_ndims", "_support", "support")):
                return state.vars.get((oid, "[]"), UNKNOWN)  # `loc`, `logits`, `mean`: what it was made of
        if name == "training":
            if info.kind == "thing":
                self.retype(oid, "module")  # only modules have it
            return state.vars.get((oid, "$training"), UNKNOWN)
        if name in ("module", "_orig_mod") and info.kind == "module":
            return frozenset((Obj(oid),))
        if info.kind == "params":
            return UNKNOWN
        value = self.first_value(oid, name, expr, state)
        given = state.vars.get((oid, "[]"), EMPTY) if info.kind == "instance" else EMPTY
        if given and not any(type(a) in (Func, Plain, Const) for a in value):
            value = join(value, given)
        if info.kind in ("module", "self", "instance"):
            for atom in value:
                if type(atom) is Obj and atom.oid != oid:
                    self.holders.setdefault(atom.oid, oid)
        return value

    def first_value(self, oid: int, name: str, expr: ir.Attr | None, state: State) -> Value:
        """What an attribute holds when the root function starts, by what the class assigns to it."""
        info = self.heap[oid]
        text = f"{info.name}.{name}" if info.name else name
        if len(text) > MAX_PART_TEXT and info.kind == "thing":
            return frozenset((Obj(oid),))
        known = self.first_values.get((self.frame, oid, name))
        if known is not None and known[0] is info:
            return known[1]
        if isinstance(info.cls, ClassRef):
            project = self.world.project
            method = project.method(info.cls, name)
            if method is not None:
                facts = self.world.facts(method)
                if is_property(facts):
                    if expr is None:
                        return UNKNOWN
                    if not facts.names - ABSTRACT_WORDS:
                        return frozenset((Obj(self.outside("thing", text, None, key=(oid, name))),))
                    return self.inline_property(method, oid, expr.node, state)
        value = self.stored_value(oid, name, text, expr, state)
        if not any(type(atom) is Tensor for atom in value):
            self.first_values[self.frame, oid, name] = info, value
        return value

    def stored_value(self, oid: int, name: str, text: str, expr: ir.Attr | None, state: State) -> Value:
        """What an attribute that is no property holds."""
        info = self.heap[oid]
        if isinstance(info.cls, ClassRef):
            project = self.world.project
            method = project.method(info.cls, name)
            if method is not None:
                return self.function_value(method, oid)
            found = [fact for fact, _ in project.attr(info.cls, name)]
            init = [a for a in found if a.method.endswith("__init__") or a.method == ""] or list(found)
            value = EMPTY
            for fact in init:
                if fact.kind in CONTAINERS:
                    value = join(value, frozenset((Obj(self.outside(fact.kind, text, None, key=(oid, name, fact.kind))),)))
                elif fact.kind == "const":
                    one = literal(fact.const)
                    value = join(value, one if len(found) == 1 else join(one, UNKNOWN) if one != NONE else EMPTY)
                elif fact.kind == "call":
                    value = join(value, self.constructed(fact.value, oid, name, text, fact.method))
            if value:
                return add_marks(value, self.carried_calls(oid, name, text))
            if found:
                cls = project.attribute_class(info.cls, name)
                inner = self.outside("thing", text, cls, key=(oid, name))
                self.classify(inner, cls, f"self.{name}")
                return frozenset((Obj(inner),))
            parameter = self.parameter_attribute(info.cls, name)
            if parameter:
                return parameter
        inner = self.outside("thing", text, None, key=(oid, name))
        self.classify(inner, None, text)
        if (
            self.heap[inner].kind == "thing"
            and isinstance(info.cls, str)
            and info.cls.startswith("torch.nn.")
            and name
            in (
                "weight",
                "bias",
            )
        ):
            if self.frozen(oid, state):
                return FREE_TENSOR
            return self.leaf(expr.node if expr is not None else 0, text, state)
        return frozenset((Obj(inner),))

    def class_path(self, cls: ClassRef, name: str) -> str:
        """Path of the class in the MRO that assigns the attribute."""
        found = self.world.project.attr(cls, name)
        return found[0][1].path if found else cls.path

    def parameter_attribute(self, cls: ClassRef, name: str) -> Value:
        return EMPTY

    def carried_calls(self, oid: int, name: str, text: str) -> frozenset[int]:
        """The mark of what an attribute of an outside object held when the root function was called."""
        return frozenset((self.number_mark("carried", text, (oid, name)),))

    def number_mark(self, kind: str, what: str, place: tuple[int, str], node: int = -1, key: object = "calls") -> int:
        gid = self.number("mark", kind, place, node, key)
        if gid not in self.record.graphs:
            from torchmemlint.semantics.events import Graph

            self.record.graphs[gid] = Graph(gid, kind, self.site(node), what, place=place)
        return gid

    def constructed(self, callee: str, oid: int, name: str, text: str, method: str) -> Value:
        """The object that ``self.name = callee`` made in another method; ``callee`` is dotted text ending in "()"."""
        info = self.heap[oid]
        assert isinstance(info.cls, ClassRef)
        path = self.class_path(info.cls, name)
        bare = callee.removesuffix("()")
        absolute = self.world.project.resolve(path, bare, method) if "(" not in bare else None
        if absolute is not None:
            cls = self.world.project.klass(absolute)
            if cls is not None:
                inner = self.outside("thing", text, cls, key=(oid, name, absolute))
                self.classify(inner, cls, f"self.{name}")
                self.note_bare(inner, cls, FunctionRef(path, method or MODULE), bare)
                return frozenset((Obj(inner),))
            kind = "module" if absolute in TORCH.given_weights else class_kind(absolute)
            if kind == "module" and method and makes_bare(self.world, FunctionRef(path, method), bare, absolute):
                kind = "function-module"
            if kind == "parameter":
                return self.leaf(0, text, None)
            if kind in ("list", "dict", "set"):
                return frozenset((Obj(self.outside(kind, text, None, key=(oid, name, kind))),))
            if kind != "thing":
                inner = self.outside(kind, text, absolute, key=(oid, name, absolute))
                if absolute in HOLDERS and name not in parametric_attributes(self.world, info.cls):
                    self.bare.add(inner)
                return frozenset((Obj(inner),))
            effect = TORCH.function_effect(absolute)
            if effect in ("source", "cut"):
                return FREE_TENSOR
            if effect == "number":
                return PLAIN
            if effect == "module":
                return frozenset((Obj(self.outside("module", text, absolute, key=(oid, name, absolute))),))
        found = self.world.project.class_of(path, method, f"self.{name}")
        inner = self.outside("thing", text, found, key=(oid, name))
        self.classify(inner, found, f"self.{name}")
        return frozenset((Obj(inner),))

    def leaf(self, node: int, text: str, state: State | None) -> Value:
        """A parameter used directly: an operation on it makes a graph."""
        if state is not None and state.mode == "off":
            return FREE_TENSOR
        return tensor(frozenset((self.graph("leaf", node, text, key=text),)))

    # --- subscripts ---------------------------------------------------------------------------------------------------

    def subscript(self, expr: ir.Subscript, state: State) -> Value:
        receiver = self.eval(expr.value, state)
        index = [self.eval(i, state) for i in expr.index]
        out = EMPTY
        for atom in sorted_atoms(receiver):
            out = join(out, self.element(atom, index, expr, state))
        return out or UNKNOWN

    def element(self, atom: Atom, index: list[Value], expr: ir.Subscript, state: State) -> Value:
        key = only_const(index[0]) if len(index) == 1 else None
        match atom:
            case Tuple():
                if key is not None and isinstance(key.value, int) and -len(atom.items) <= key.value < len(atom.items):
                    return atom.items[key.value]
                return join_all(atom.items)
            case Obj():
                info = self.heap[atom.oid]
                if info.kind in CONTAINERS:
                    if isinstance(expr.index[0], ir.Slice):
                        return frozenset((atom,))
                    if key is not None:
                        held = state.vars.get((atom.oid, f"[{key.value!r}]"))
                        if held is not None and info.kind == "dict":
                            return held
                    held = join_all(self.contents(atom.oid, state))
                    if held:
                        return held
                    if info.external:
                        return self.thing_element(atom.oid, key)
                    return UNKNOWN
                if info.kind in ("module", "self"):
                    inner = self.outside("thing", f"{info.name}[…]", None, key=(atom.oid, "[]"))
                    if info.kind == "module" and self.heap[inner].kind == "thing":
                        self.retype(inner, "module")
                    if atom.oid in self.bare:
                        self.bare.add(inner)
                    return frozenset((Obj(inner),))
                if info.kind == "loader":
                    return FREE_TENSOR
                held = state.vars.get((atom.oid, f"[{key.value!r}]")) if key is not None else None
                return held if held is not None else self.thing_element(atom.oid, key)
            case Tensor():
                view = VIEW if atom.outputs and takes_small_part(expr.index, index) else 0
                if key is not None or all(type(e) is ir.Slice for e in expr.index):
                    part = (
                        self.part(atom, f"[{key.value!r}]" if key is not None else "", expr.node)
                        if key is not None
                        else frozenset((atom,))
                    )
                else:
                    part = frozenset((atom,))
                if len(expr.index) > 1:  # no tuple of outputs is indexed so, only a tensor
                    part = self.made(part, expr.node, state)
                if atom.flags & LOGITS:
                    if is_last(expr.index, index):
                        self.emit(LastLogits(self.site(expr.node)))
                    else:
                        self.record.flags.add("logits-used")
                    part = frozenset(a._replace(flags=a.flags & ~LOGITS) if type(a) is Tensor else a for a in part)
                return with_flags(part, view)
            case Unknown():
                return unknown(atom.hints)
            case Const() | Plain():
                return PLAIN
            case _:
                return UNKNOWN

    def thing_element(self, oid: int, key: Const | None) -> Value:
        """An element of an unknown object: a part of what came in with it."""
        info = self.heap[oid]
        if len(info.name) >= MAX_PART_TEXT:
            return frozenset((Obj(oid),))
        label = f"[{key.value!r}]" if key is not None else "[…]"
        inner = self.outside("thing", info.name + label, None, key=(oid, label))
        if oid in self.loaded:
            self.loaded[inner] = self.loaded[oid]
        return frozenset((Obj(inner),))

    # --- operators ----------------------------------------------------------------------------------------------------

    def arithmetic(self, operands: list[Value], node: int, state: State, scale: Value = EMPTY) -> Value:
        """The result of an operation on tensors and numbers: it hangs on what its operands hang on.

        Where one operand certainly has a graph, what the others may have (an opaque batch, a target) is only a hint: a
        ``backward()`` through the result says nothing of them. ``scale`` is one more operand, which a tensor is divided or
        multiplied by in its place: a count out of sight as a rule, so that what may be a number is one.
        """
        tensors: list[Tensor] = []
        hints: set[int] = set()
        plain = True
        blind = False
        held = NOTHING
        for position, value in enumerate((*operands, scale)):
            if position == len(operands):
                held = NOTHING.union(*(a.graphs for a in tensors))
            for atom in self.as_tensors(value, state, node):
                if type(atom) is Tensor:
                    tensors.append(atom)
                    plain = False
                elif type(atom) is Unknown:
                    hints |= atom.hints
                    plain = False
                    blind = True
                elif type(atom) not in (Const, Plain):
                    plain = False
        if plain:
            return PLAIN
        if not tensors:
            return unknown(frozenset(hints))
        graphs: set[int] = set()
        marks: set[int] = set()
        unsure: set[int] = set()
        given: set[int] = set()
        for atom in tensors:
            hints |= atom.hints
            for gid in atom.graphs:
                kind = self.record.graphs[gid].kind
                (
                    graphs
                    if kind in CERTAIN
                    else marks
                    if kind in ("added", "stored", "carried", "result")
                    else given
                    if kind == "param"
                    else unsure
                ).add(gid)
        outputs = NOTHING.union(*(a.outputs for a in tensors))
        if state.mode == "off":
            self.sink(graphs | unsure | marks, "cut", "no_grad", node)
            return tensor(NOTHING, NOTHING, outputs, min_flags(tensors))
        if scale and held & (graphs | unsure | given):
            numbers = {g for g in (unsure | given) - held if held & (graphs | unsure) or not self.record.graphs[g].direct}
            hints |= numbers
            unsure, given = unsure - numbers, given - numbers
        # What was only given (an attribute, an argument) may be a number, where anything else can be the tensor.
        if graphs:
            hints |= unsure | given
        elif unsure:
            graphs |= unsure
            hints |= given
        elif blind:
            hints |= given
        else:
            graphs |= given
        result = tensor(frozenset(graphs | marks), frozenset(hints), outputs, min_flags(tensors))
        return result if graphs or hints or not blind else result | UNKNOWN

    def made(self, value: Value, node: int, state: State) -> Value:
        """What an operation that makes a view of a tensor returns: with grad mode off even that has no graph."""
        if state.mode != "off":
            return value
        self.sink(hints_of(value), "cut", "no_grad", node)
        return frozenset(Tensor(NOTHING, NOTHING, a.outputs, a.flags) if type(a) is Tensor else a for a in value)

    def as_tensors(self, value: Value, state: State, node: int) -> list[Atom]:
        """Atoms with unknown objects replaced by the graph that they may be."""
        out: list[Atom] = []
        for atom in value:
            if type(atom) is Obj:
                info = self.heap[atom.oid]
                if info.kind == "thing":
                    out.append(Tensor(frozenset((self.thing_graph(atom.oid),)), flags=GUESSED))
                    continue
                if info.kind in CONTAINERS:
                    for item in self.contents(atom.oid, state):
                        out.extend(a for a in item if type(a) in (Tensor, Unknown))
                    out.append(Unknown())
                    continue
                if info.kind == "distribution":  # a loss takes it, or another distribution is made of it
                    out.extend(state.vars.get((atom.oid, "[]"), UNKNOWN))
                    continue
                out.append(Unknown())
            elif type(atom) is Tuple:
                for item in atom.items:
                    out.extend(self.as_tensors(item, state, node))
            else:
                out.append(atom)
        return out

    def thing_graph(self, oid: int) -> int:
        """The graph that an unknown object (a parameter, an attribute) brings with it, if it is a tensor."""
        info = self.heap[oid]
        gid = self.number("graph", "param", oid)
        if gid not in self.record.graphs:
            from torchmemlint.semantics.events import Graph, Site

            self.record.graphs[gid] = Graph(gid, "param", Site(max(self.frame, 0), -1), info.name, mode="unknown", module=oid)
        return gid

    def binary(self, expr: ir.Binary, state: State) -> Value:
        left = self.eval(expr.left, state)
        right = self.eval(expr.right, state)
        return self.operate(expr.op, left, right, expr.node, state)

    def operate(self, op: str, left: Value, right: Value, node: int, state: State, in_place: bool = False) -> Value:
        a, b = only_const(left), only_const(right)
        if a is not None and b is not None:
            return PLAIN
        if op == "+":
            joined = self.concatenate(left, right, node, state)
            if joined is not None:
                return joined
        if op == "*":
            repeated = [a for v in (left, right) for a in v if type(a) is Obj and self.heap[a.oid].kind == "list"]
            if repeated:
                return self.concatenate(left, right, node, state) or UNKNOWN
        if op == "%" and a is not None and isinstance(a.value, str):
            self.sink(*self.whole(right, state), "shown", "%", node)
            return PLAIN
        if op == "**":
            self.operation(hints_of(left), "pow")
        elif op in ("*", "@", "/"):
            # Of two sums, or of one with itself, it is no sum of its parts any more.
            if hints_of(right):
                self.operation(hints_of(left) & hints_of(right) if op != "/" else hints_of(right), "product")
        scaled = op in SCALING or (in_place and op == "*")
        result = self.arithmetic([left], node, state, right) if scaled else self.arithmetic([left, right], node, state)
        return self.in_role(op, result, [left, right], node, state)

    def in_role(self, operation: str, result: Value, operands: list[Value], node: int, state: State) -> Value:
        """The result, with the flags that it has as a step of attention; tells the last step."""
        flags = role(operation, operands, self.is_parameter)
        if operation in CASTS:
            flags |= flags_of(operands[0]) & LOGITS
        else:
            self.whole_logits(operands, state)
        if flags == MIXES:
            self.emit(Attention(self.site(node), state.mode))
            return result
        return with_flags(result, flags)

    def whole_logits(self, operands: list[Value], state: State) -> None:
        """Note where something is done with the logits of all positions."""
        for value in operands:
            if self.deep(value, state)[3] & LOGITS:
                self.record.flags.add("logits-used")

    def is_parameter(self, value: Value) -> bool:
        graphs = [self.record.graphs[g].kind for a in value if type(a) is Tensor for g in a.graphs]
        return bool(graphs) and all(kind in ("leaf", "carried") for kind in graphs)

    def concatenate(self, left: Value, right: Value, node: int, state: State) -> Value | None:
        """``list + list`` and ``tuple + tuple``; None when no container is among the operands."""
        lists = [a for v in (left, right) for a in v if type(a) is Obj and self.heap[a.oid].kind == "list"]
        if lists:
            oid = self.allocate("list", node)
            items = [item for a in lists for item in self.contents(a.oid, state)]
            state.vars[oid, "[]"] = join(
                join_all(items), join_all([join_all(t.items) for v in (left, right) for t in v if type(t) is Tuple])
            )
            return frozenset((Obj(oid),))
        pairs = [[a for a in v if type(a) is Tuple] for v in (left, right)]
        if pairs[0] and pairs[1]:
            return frozenset((Tuple(pairs[0][0].items + pairs[1][0].items),))
        return None

    def whole(self, value: Value, state: State) -> tuple[frozenset[int]]:
        """Graphs, marks and hints of a value, containers included: what a sink takes."""
        if len(value) == 1 and type(next(iter(value))) in WITHOUT_PARTS:
            return (NOTHING,)
        graphs, hints, _, _ = self.deep(value, state)
        extra = {self.thing_graph(a.oid) for a in value if type(a) is Obj and self.heap[a.oid].kind == "thing"}
        return (graphs | hints | extra,)

    def unary(self, expr: ir.Unary, state: State) -> Value:
        value = self.eval(expr.value, state)
        if expr.op == "not":
            self.sink(*self.whole(value, state), "cut", "not", expr.node)
            known = truth(value)
            return PLAIN if known is None else const(not known)
        single = only_const(value)
        if single is not None:
            if expr.op == "-" and isinstance(single.value, (int, float)):
                return const(-single.value)
            return PLAIN
        return self.arithmetic([value], expr.node, state)

    def boolean(self, expr: ir.BoolOp, state: State) -> Value:
        left = self.eval(expr.left, state)
        known = truth(left)
        if known is not None and known == (expr.op == "or"):
            return left
        if known is not None:
            return self.eval(expr.right, state)
        if expr.op == "or" and any(type(a) is Obj and self.frozen(a.oid, state) for a in left):
            return left  # the copy with averaged weights, where there is one
        if changes_nothing(expr.right):
            right = self.eval(expr.right, state)
        else:
            branch = state.copy()
            right = self.eval(expr.right, branch)
            merged = join_states(state, branch)
            assert merged is not None
            state.vars, state.mode = merged.vars, merged.mode
        other = truth(right)
        if other is not None and other == (expr.op == "or") and all(type(a) in (Plain, Const) for a in right):
            return right if known is None and expr.op == "or" and other else join(left, right)
        return join(left, right)

    def compare(self, expr: ir.Compare, state: State) -> Value:
        values = [self.eval(expr.left, state), *(self.eval(c, state) for c in expr.comparators)]
        for value in values:
            self.sink(*self.whole(value, state), "cut", expr.ops[0], expr.node)
        if len(values) == 2:
            return compare_consts(expr.ops[0], values[0], values[1])
        return FREE_TENSOR

    def conditional(self, expr: ir.IfExp, state: State) -> Value:
        answer = self.decide(expr.test, state)
        if answer is True:
            return self.eval(expr.then, state)
        if answer is False:
            return self.eval(expr.orelse, state)
        branch = state.copy()
        tested = [(self.frame, name) for name in names_tested(expr.test)]
        kept = {place: state.vars[place] for place in tested if place in state.vars}
        then = self.eval(expr.then, state) if self.narrow(expr.test, True, state) else EMPTY
        orelse = self.eval(expr.orelse, branch) if self.narrow(expr.test, False, branch) else EMPTY
        for place, value in kept.items():
            # What the test told of a name held inside the expression only.
            state.vars[place] = branch.vars[place] = value
        merged = join_states(state, branch)
        assert merged is not None
        state.vars, state.mode = merged.vars, merged.mode
        return join(then, orelse)

    def decide(self, test: ir.Expr, state: State) -> bool | None:
        """Which way a test goes, if it is known: by constants, or by the assumption about a phase that this run makes."""
        value = self.eval(test, state)
        known = truth(value)
        if known is not None:
            return known
        return self.assumed(test)

    def assumed(self, test: ir.Expr) -> bool | None:
        if not self.assumptions:
            return None
        match test:
            case ir.Unary(op="not"):
                inner = self.assumed(test.value)
                return None if inner is None else not inner
            case ir.BoolOp():
                left, right = self.assumed(test.left), self.assumed(test.right)
                decisive = test.op == "or"
                if left is decisive or right is decisive:
                    return decisive
                return None if left is None or right is None else left and right if test.op == "and" else left or right
            case ir.Compare(ops=[op]) if op in ("!=", "is not"):
                positive = ir.Compare(test.node, test.left, ["==" if op == "!=" else "is"], test.comparators)
                inner = self.assumptions.get(self.phase_key(positive))
                return None if inner is None else not inner
            case _:
                return self.assumptions.get(self.phase_key(test))

    def phase_key(self, test: ir.Expr) -> str:
        return f"{self.frame}:{text_of(test)}"

    # --- displays -----------------------------------------------------------------------------------------------------

    def display(self, expr: ir.Sequence, state: State) -> Value:
        if expr.kind == "tuple":
            items: list[Value] = []
            for item in expr.items:
                if type(item) is ir.Star:
                    value = self.iterate(self.eval(item.value, state), item.node, state)
                    return join_all([*items, value])
                items.append(shallow(self.eval(item, state)))
            return frozenset((Tuple(tuple(items)),)) if len(items) <= 12 else join_all(items)
        oid = self.allocate(expr.kind, expr.node)
        self.forget(oid, state)
        held = EMPTY
        apart: list[Value] = []
        for item in expr.items:
            if type(item) is ir.Star:
                held = join(held, self.iterate(self.eval(item.value, state), item.node, state))
            else:
                apart.append(shallow(self.eval(item, state)))
                held = join(held, apart[-1])
        state.vars[oid, "[]"] = shallow(held)
        if 1 < len(apart) == len(expr.items) <= 12 and expr.kind == "list":
            state.vars[oid, "$items"] = frozenset((Tuple(tuple(apart)),))
        return frozenset((Obj(oid),))

    def items_of(self, value: Value, state: State) -> tuple[Value, ...] | None:
        """The items of a tuple, or of a list that was written out and holds the same still; None where they are not known."""
        single = next(iter(value)) if len(value) == 1 else None
        if type(single) is Tuple:
            return single.items
        if type(single) is not Obj or state.vars.get((single.oid, "$keys")):
            return None
        listed = state.vars.get((single.oid, "$items"), EMPTY)
        (items,) = listed if len(listed) == 1 else (None,)
        if type(items) is not Tuple or shallow(join_all(items.items)) != state.vars.get((single.oid, "[]")):
            return None
        return items.items

    def forget(self, oid: int, state: State) -> None:
        """A container is made anew: what the same site held before is gone."""
        state.vars.pop((oid, "$items"), None)
        keys = state.vars.pop((oid, "$keys"), None)
        if keys:
            for atom in keys:
                name = getattr(atom, "value", None)
                if isinstance(name, str):
                    state.vars.pop((oid, name), None)
        state.vars[oid, "[]"] = EMPTY

    def dict_display(self, expr: ir.DictDisplay, state: State) -> Value:
        oid = self.allocate("dict", expr.node)
        self.forget(oid, state)
        for key, item in expr.items:
            value = shallow(self.eval(item, state))
            if key is None:
                for atom in value:
                    if type(atom) is Obj:
                        self.copy_contents(atom.oid, oid, state)
                continue
            self.put(oid, self.eval(key, state), value, state)
        return frozenset((Obj(oid),))

    def put(self, oid: int, key: Value, value: Value, state: State) -> None:
        """Set ``container[key]``: a constant key is replaced, any other key is joined to what is held."""
        single = only_const(key)
        if single is not None and self.heap[oid].kind == "dict":
            name = f"[{single.value!r}]"
            state.vars[oid, name] = value
            state.vars[oid, "$keys"] = frozenset(state.vars.get((oid, "$keys"), EMPTY) | {Const(name, "str")})
        else:
            state.vars[oid, "[]"] = join(state.vars.get((oid, "[]"), EMPTY), value)

    def copy_contents(self, source: int, target: int, state: State) -> None:
        for (owner, name), value in list(state.vars.items()):
            if owner == source and name.startswith("["):
                state.vars[target, name] = join(state.vars.get((target, name), EMPTY), value)
        keys = state.vars.get((source, "$keys"))
        if keys:
            state.vars[target, "$keys"] = state.vars.get((target, "$keys"), EMPTY) | keys

    def comprehension(self, expr: ir.Comprehension, state: State) -> Value:
        kind = "list" if expr.kind == "list" else expr.kind
        oid = self.allocate(kind, expr.node)
        self.forget(oid, state)
        self.comprehension_clause(expr, 0, oid, state)
        return frozenset((Obj(oid),))

    def comprehension_clause(self, expr: ir.Comprehension, index: int, oid: int, state: State) -> None:
        if index == len(expr.clauses):
            value = shallow(self.eval(expr.element, state))
            if expr.key is not None:
                self.eval(expr.key, state)
            self.keep_in_comprehension(oid, value, expr, state)
            return
        clause = expr.clauses[index]
        iterable = self.eval(clause.iterable, state)

        def body(inner: State) -> State | None:
            names = target_names(clause.target)
            self.comprehension_names.append(names)
            self.assign(clause.target, self.iterate(iterable, clause.node, inner), inner, clause.node)
            self.comprehension_names.pop()
            for condition in clause.conditions:
                if self.decide(condition, inner) is False:
                    return None
            self.comprehension_clause(expr, index + 1, oid, inner)
            return inner

        loop, listed = (self.frame, clause.node), expr.kind == "list"
        self.note_loop(loop, clause.iterable, iterable, target_names(clause.target), listed=listed)
        # The clause's names are a scope of their own: what they held before, they hold again afterwards.
        places = [(self.frame, name) for name in target_names(clause.target)]
        before = {place: state.vars.pop(place, None) for place in places}
        # What the comprehension has collected so far is in nobody's reach yet, and its names are bound by each turn.
        own = frozenset((*places, (oid, "[]")))
        after = self.loop_passes((self.frame, clause.node), state, body, own=own)
        if after is not None:
            state.vars, state.mode = after.vars, after.mode
        for place, held in before.items():
            state.vars.pop(place, None)
            if held is not None:
                state.vars[place] = held

    @property
    def comprehension_names(self) -> list[frozenset[str]]:
        """Names that the comprehension clauses being bound right now introduce: locals of their own, whatever is outside."""
        if not hasattr(self, "_comprehension_names"):
            self._comprehension_names: list[frozenset[str]] = []
        return self._comprehension_names

    def keep_in_comprehension(self, oid: int, value: Value, expr: ir.Comprehension, state: State) -> None:
        state.vars[oid, "[]"] = join(state.vars.get((oid, "[]"), EMPTY), value)

    def note_loop(
        self,
        loop: tuple[int, int],
        iterable: ir.Expr,
        value: Value,
        targets: set[str] | frozenset[str] = frozenset(),
        attempts: bool = False,
        listed: bool = False,
    ) -> None:
        raise NotImplementedError

    # --- iteration ----------------------------------------------------------------------------------------------------

    def iterate(self, value: Value, node: int, state: State) -> Value:
        """What one turn of a loop over the value gets."""
        out = EMPTY
        for atom in sorted_atoms(value):
            match atom:
                case Obj():
                    info = self.heap[atom.oid]
                    if info.kind in CONTAINERS or info.kind == "generator":
                        if info.kind == "dict":
                            out = join(out, PLAIN)
                            continue
                        held = join_all(self.contents(atom.oid, state))
                        if not held and info.external:
                            held = self.thing_element(atom.oid, None)
                        out = join(out, held or UNKNOWN)
                    elif info.kind == "loader":
                        out = join(out, FREE_TENSOR)
                    elif info.kind == "params":
                        out = join(out, frozenset((Obj(atom.oid),)))
                    elif info.kind == "module":
                        inner = self.outside("module", f"{info.name}[…]", None, key=(atom.oid, "[]"))
                        if atom.oid in self.bare:
                            self.bare.add(inner)
                        out = join(out, frozenset((Obj(inner),)))
                    elif info.kind == "thing":
                        out = join(out, unknown(frozenset((self.thing_graph(atom.oid),))))
                    elif isinstance(info.cls, ClassRef) and info.kind == "instance":
                        out = join(out, self.iterate_instance(atom.oid, info.cls, node, state))
                    else:
                        out = join(out, UNKNOWN)
                case Tuple():
                    out = join(out, join_all(atom.items))
                case Tensor():
                    out = join(
                        out,
                        self.part(atom, "[…]", node)
                        if any(self.record.graphs[g].kind in ("opaque", "param") for g in atom.graphs)
                        else frozenset((atom,)),
                    )
                case Unknown():
                    out = join(out, unknown(atom.hints))
                case Ext():
                    out = join(out, UNKNOWN)
                case _:
                    out = join(out, PLAIN)
        return out or UNKNOWN

    def iterate_instance(self, oid: int, cls: ClassRef, node: int, state: State) -> Value:
        return UNKNOWN

    # --- the rest -----------------------------------------------------------------------------------------------------

    def constant(self, expr: ir.Const, state: State) -> Value:
        return const(expr.value) if isinstance(expr.value, (int, float, str, bool, type(None))) else PLAIN

    def formatted(self, expr: ir.FormattedString, state: State) -> Value:
        for part in expr.values:
            self.sink(*self.whole(self.eval(part, state), state), "shown", "f-string", expr.node)
        return PLAIN

    def walrus(self, expr: ir.Walrus, state: State) -> Value:
        value = self.eval(expr.value, state)
        self.assign(expr.target, value, state, expr.node, expr.value)
        return value

    def star(self, expr: ir.Star, state: State) -> Value:
        return self.iterate(self.eval(expr.value, state), expr.node, state)

    def slice(self, expr: ir.Slice, state: State) -> Value:
        for part in expr.parts:
            self.eval(part, state)
        return PLAIN

    def awaited(self, expr: ir.Await, state: State) -> Value:
        return self.eval(expr.value, state)

    def lambda_(self, expr: ir.Lambda, state: State) -> Value:
        closure = self.frame_closure[self.frame]
        ref = FunctionRef(closure.ref.path, expr.function.qualname)
        key = self.closure(expr.function, closure.lowered, ref, self.frame, closure.owner)
        return frozenset((Func(key),))

    def yielded(self, expr: ir.Yield, state: State) -> Value:
        raise NotImplementedError


def names_tested(test: ir.Expr) -> list[str]:
    """Names that ``narrow`` may change for this test."""
    match test:
        case ir.Unary():
            return names_tested(test.value)
        case ir.BoolOp():
            return names_tested(test.left) + names_tested(test.right)
        case ir.Compare(left=ir.Name() as name):
            return [name.id]
        case ir.Call(args=[ir.Arg(value=ir.Name() as name), *_]):
            return [name.id]
        case _:
            return []


def target_names(target: ir.Expr) -> frozenset[str]:
    """The bare names that an assignment target binds."""
    match target:
        case ir.Name():
            return frozenset((target.id,))
        case ir.Star():
            return target_names(target.value)
        case ir.Sequence():
            return frozenset().union(*(target_names(i) for i in target.items))
        case _:
            return frozenset()


def compare_consts(op: str, left: Value, right: Value) -> Value:
    """The truth of a comparison where both sides are literals (or one of few), else a truth value without graph."""
    lefts = [a for a in left if type(a) is Const]
    rights = [a for a in right if type(a) is Const]
    if op in ("is", "is not", "==", "!="):
        if right == NONE and left and not any(type(a) in (Unknown, Const) for a in left) and op in ("is", "is not"):
            if not any(type(a) is Obj for a in left):
                return const(op == "is not")
        if len(lefts) == len(left) and len(rights) == len(right) and lefts and rights:
            answers = {(a.value == b.value) == (op in ("is", "==")) for a in lefts for b in rights}
            if len(answers) == 1:
                return const(answers.pop())
    if op in ("in", "not in") and len(lefts) == len(left) == 1:
        for atom in right:
            if type(atom) is Tuple and all(only_const(i) is not None for i in atom.items):
                values = [only_const(i).value for i in atom.items]  # type: ignore[union-attr]
                return const((lefts[0].value in values) == (op == "in"))
    return PLAIN if op in ("is", "is not", "in", "not in") else FREE_TENSOR


@lru_cache(maxsize=1000)
def literal(text: str) -> Value:
    """The value of a literal's repr, as facts keep it."""
    import ast

    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return PLAIN
    return const(value) if isinstance(value, (int, float, str, bool, type(None))) else PLAIN


def class_kind(name: str) -> str:
    """The kind of object that a class outside the project makes, "thing" when it is not known."""
    kind = TORCH.class_kind(name)
    if name == "torch.nn.Module":
        return "module"
    if name in ("torch.nn.Parameter", "torch.nn.parameter.Parameter"):
        return "parameter"
    if kind is None:
        if name in ("builtins.list", "builtins.dict", "builtins.set"):
            return name[9:]
        if name in ("collections.defaultdict", "collections.OrderedDict", "collections.Counter"):
            return "dict"
        if name == "collections.deque":
            return "list"
        return "thing"
    if kind in ("module", "wrapper", "lightning-module", "hf-model", "ema"):
        return "module"
    return "function-module" if kind == "module-noparam" else kind


def changes_nothing(expr: ir.Expr) -> bool:
    """Whether an expression is so plain (names, literals and what operators make of them) that evaluating it leaves the state as
    it is: an attribute may be a property."""
    match expr:
        case ir.Name() | ir.Const():
            return True
        case ir.Unary():
            return changes_nothing(expr.value)
        case ir.BoolOp():
            return changes_nothing(expr.left) and changes_nothing(expr.right)
        case ir.Compare():
            return changes_nothing(expr.left) and all(map(changes_nothing, expr.comparators))
        case _:
            return False


def sorted_atoms(value: Value) -> list[Atom]:
    """Atoms in an order that does not depend on hashing."""
    if len(value) < 2:
        return list(value)
    return sorted(value, key=repr)


def shallow(value: Value, depth: int = 3) -> Value:
    """The value with tuples no deeper than ``depth``: what keeps a loop over ``x = (x, y)`` finite."""
    out: list[Atom] = []
    changed = False
    for atom in value:
        if type(atom) is Tuple:
            changed = True
            if depth == 0:
                out.append(Unknown(hints_of(frozenset((atom,)))))
            else:
                out.append(Tuple(tuple(shallow(item, depth - 1) for item in atom.items)))
        else:
            out.append(atom)
    return normal(out) if changed else value


def with_flags(value: Value, flags: int) -> Value:
    if not flags:
        return value
    return frozenset(
        Tensor(a.graphs, a.hints, a.outputs, (a.flags | flags) & ~(SCALAR if flags & VIEW else 0)) if type(a) is Tensor else a
        for a in value
    )


def min_flags(tensors: list[Tensor]) -> int:
    """Flags of an arithmetic result: computed; scalar or integer only when all operands are; never a view."""
    both = tensors[0].flags
    for atom in tensors[1:]:
        both &= atom.flags
    batch = BATCH if any(a.flags & BATCH for a in tensors) and not both & SCALAR else 0
    doubted = DOUBTED if any(a.flags & DOUBTED for a in tensors) else 0
    return both & (SCALAR | INTEGER | GUESSED | COLUMN) | batch | COMPUTED | doubted


CASTS = frozenset({"float", "double", "half", "bfloat16", "type", "contiguous", "clone"})


def is_last(exprs: list[ir.Expr], values: list[Value]) -> bool:
    """Whether an indexing is ``[:, -1]``, perhaps with whole dimensions behind."""
    if len(exprs) < 2 or not all(type(e) is ir.Slice and not e.parts for i, e in enumerate(exprs) if i != 1):
        return False
    single = only_const(values[1])
    return single is not None and single.value == -1


def takes_small_part(exprs: list[ir.Expr], values: list[Value]) -> bool:
    """Whether this indexing gives a view of a small part: a whole dimension (the batch) kept, and one position picked in a later
    one (``hidden[:, 0]``). A tensor or list of indices copies; a slice may cover nearly everything; ``x[i]`` alone may be one
    of the pieces that are all kept."""
    picked = False
    for position, (expr, value) in enumerate(zip(exprs, values, strict=True)):
        if type(expr) is ir.Slice:
            if position == 0 and expr.parts:
                return False
            continue
        single = only_const(value)
        if single is not None and isinstance(single.value, int) and not isinstance(single.value, bool):
            picked = picked or position > 0
            continue
        if single is not None and single.value is None:
            continue
        if type(expr) is ir.Const and expr.value is ...:
            continue
        return False
    return picked


_DISPATCH: dict[type, Callable[[Any, Any, State], Value]] = {
    ir.Const: Evaluator.constant,
    ir.Name: Evaluator.name,
    ir.Attr: Evaluator.attribute,
    ir.Call: lambda self, expr, state: self.call(expr, state),
    ir.Subscript: Evaluator.subscript,
    ir.Slice: Evaluator.slice,
    ir.Binary: Evaluator.binary,
    ir.Unary: Evaluator.unary,
    ir.BoolOp: Evaluator.boolean,
    ir.Compare: Evaluator.compare,
    ir.IfExp: Evaluator.conditional,
    ir.Sequence: Evaluator.display,
    ir.DictDisplay: Evaluator.dict_display,
    ir.Star: Evaluator.star,
    ir.Comprehension: Evaluator.comprehension,
    ir.Lambda: Evaluator.lambda_,
    ir.Walrus: Evaluator.walrus,
    ir.FormattedString: Evaluator.formatted,
    ir.Await: Evaluator.awaited,
    ir.Yield: lambda self, expr, state: self.yielded(expr, state),
}
