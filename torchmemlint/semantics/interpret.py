"""Statements and control flow; one run over a root function, from its first statement to its record."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from torchmemlint.findings import Span
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.index.questions.contents import BACKWARD_ALONE
from torchmemlint.lower import ir
from torchmemlint.semantics.base import CONTAINERS, EVERYTHING, FIRST_NUMBER, HARD_LIMIT, TENSOR, Closure, Handed, RunLimit
from torchmemlint.semantics.calls import Arguments, Calls, first_parameter, half_fix, with_flags_set
from torchmemlint.semantics.evaluate import looks_like_module, shallow, sorted_atoms
from torchmemlint.semantics.events import (
    Accumulate,
    Backward,
    CachedFunction,
    ContextStore,
    DeprecatedImport,
    GradModeMisuse,
    LoopInfo,
    Record,
    Regrowth,
    Store,
)
from torchmemlint.semantics.regrowth import added_to, grown_in, only_grows, turns_of
from torchmemlint.semantics.state import Key, State, changed, join_states
from torchmemlint.semantics.text import dotted, text_of
from torchmemlint.semantics.values import (
    EMPTY,
    GUESSED,
    LOGITS,
    NONE,
    NOTHING,
    PLAIN,
    SCALAR,
    UNKNOWN,
    WEIGHTS,
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
    graphs_of,
    hints_of,
    is_none,
    join,
    join_all,
    only_const,
    truth,
    unknown,
)
from torchmemlint.semantics.world import MODULE, World
from torchmemlint.torch_facts import TORCH

MAX_PASSES = 3
"""Passes over a loop's body; the lattice of a place is low, and what has not settled by then is joined as it stands."""
OPERATORS = {"+": "__iadd__", "-": "__isub__", "*": "__imul__", "|": "__ior__", "@": "__imatmul__"}
MAX_PHASES = 2
"""Tests of a phase on which a root is run once per value."""
PHASE_WORD = re.compile(
    r"(^|[._\W])(is_)?(train(ing)?|eval(uate|uation)?|val(id|idation)?|test(ing)?|phase|mode|split|stage|infer(ence)?|predict(ing)?"
    r"|optim(izer)?|opt|backward|no_grad|with_grad|requires_grad|track_grad\w*|update|learn)($|[._\W])"
)
FREEZING_FLAG = re.compile(r"(^|_)(freez\w*|frozen|fix(ed)?|trainable|learnable|requires_grad|fine_?tune)(_|$)")
"""Parameters of a constructor that say whether what it builds learns."""


class LoopEnds:
    """States that leave a loop's body by ``break`` and ``continue``."""

    __slots__ = ("breaks", "continues")

    def __init__(self) -> None:
        self.breaks: State | None = None
        self.continues: State | None = None


class FrameEnds:
    """States and values with which a frame's body returns."""

    __slots__ = ("returns", "state", "yields")

    def __init__(self) -> None:
        self.returns: Value = EMPTY
        self.yields: Value = EMPTY
        self.state: State | None = None


class Interpreter(Calls):
    """Runs statements over abstract states."""

    def __init__(self, world: World, root: FunctionRef, mode: str, assumptions: tuple[tuple[str, bool], ...] = ()) -> None:
        super().__init__(world, root, mode, assumptions)
        self.ends: list[FrameEnds] = []
        self.loop_ends: list[LoopEnds] = []
        self.phase_tests: dict[str, int] = {}
        """Tests that the run could not decide → 2 when a branch of theirs trains (backward, step), else 1."""
        self.loop_names: set[str] = set()
        self.frozen_attributes: frozenset[str] = frozenset()
        self.texts: dict[int, str] = {}
        """Text of the tests of ``if`` statements, by the identity of these (which live as long as the run)."""
        self.phases: dict[int, list[tuple[set[str], str, int]]] = {}
        """What ``phases_in`` tells of them."""
        self.following: ir.Stmt | None = None
        """The statement after the one being run, in its block."""
        self.offs: list[tuple[int, str]] = []
        """The ``with`` items around that switched grad mode off, innermost last: node and text of the manager."""
        self.leaks: dict[int, int] = {}
        """Such an item → the first ``yield`` inside it."""
        self.stored_items: dict[tuple[int, int, int], Value] = {}
        """(frame, turn, node of ``d[k]``) → all that was put there."""
        self.watch: Callable[[Interpreter, ir.Stmt, State], None] | None = None
        """Called before each statement with the state there (``trace`` looks through it)."""

    # --- blocks -------------------------------------------------------------------------------------------------------

    def block(self, body: list[ir.Stmt], state: State | None) -> State | None:
        for position, statement in enumerate(body):
            if state is None:
                return None
            self.following = body[position + 1] if position + 1 < len(body) else None
            self.statements += 1
            if self.statements > HARD_LIMIT:
                raise RunLimit
            if self.watch is not None:
                self.watch(self, statement, state)
            state = _STATEMENTS[type(statement)](self, statement, state)
        return state

    def expression(self, statement: ir.ExprStmt, state: State) -> State | None:
        value = statement.value
        self.check_bare_manager(value, statement, state)
        self._mode_before = None
        result = self.eval(value, state)
        graphs, _, _, _ = self.deep(result, state)
        if graphs:
            self.sink(graphs, "dropped", "", statement.node)
        if isinstance(value, ir.Call) and dotted(value.func) in ("sys.exit", "exit", "quit", "os._exit"):
            return None
        return state

    def check_bare_manager(self, value: ir.Expr, statement: ir.ExprStmt, state: State) -> None:
        """``torch.no_grad()`` as a statement switches nothing off."""
        if not isinstance(value, ir.Call) or value.args:
            return
        name = dotted(value.func)
        if not name or "(" in name:
            return  # evaluating a callee that itself calls would run that call twice
        for atom in self.eval(value.func, state):
            effect = TORCH.function_effect(atom.name) if type(atom) is Ext else None
            if effect == "grad-off":
                self.emit(GradModeMisuse(self.site(statement.node), "statement", text_of(value)))
            elif effect == "grad-on":
                kind = "enable-statement-off" if state.mode == "off" else "enable-statement"
                self.emit(GradModeMisuse(self.site(statement.node), kind, text_of(value)))

    # --- assignment -----------------------------------------------------------------------------------------------------

    def assignment(self, statement: ir.Assign, state: State) -> State | None:
        value = self.eval(statement.value, state)
        for target in statement.targets:
            if self.loops and isinstance(statement.value, (ir.Call, ir.IfExp)):
                self.note_regrowth(target, statement.value, state)
            self.assign(target, value, state, statement.node, statement.value)
        return state

    def note_regrowth(self, target: ir.Expr, source: ir.Expr, state: State) -> None:
        """``out = torch.cat([out, x])`` in a loop of this function."""
        text = text_of(target)
        loop = self.loop_statements.get(self.loops[-1])
        call = grown_in(source, text) if loop is not None and self.loops[-1][0] == self.frame else None
        if call is None or loop is None or not dotted(call.func):
            return
        site = self.site(call.node)
        if isinstance(source, ir.IfExp) and {text_of(source.test), f"not {text_of(source.test)}"} & set(site.guards):
            return  # the branch around it has decided the test
        if any(type(a) is Ext and a.name in TORCH.concatenations for a in self.eval(call.func, state)):
            if only_grows(loop, target, call) and not all(self.is_constant(part, state) for part in added_to(call, text)):
                self.emit(Regrowth(site, text, self.loops[-1], turns_of(loop)))

    def is_constant(self, part: ir.Expr, state: State) -> bool:
        """``torch.ones(1)``: a source of tensors with literals alone."""
        if not isinstance(part, ir.Call) or not all(type(a.value) is ir.Const for a in part.args) or not dotted(part.func):
            return False
        return any(type(a) is Ext and TORCH.function_effect(a.name) == "source" for a in self.eval(part.func, state))

    def declaration(self, statement: ir.Declare, state: State) -> State | None:
        return state

    def assign(self, target: ir.Expr, value: Value, state: State, node: int, source: ir.Expr | None = None) -> None:
        match target:
            case ir.Name():
                value = self.by_evidence(target.id, value, node)
                place = self.place_of(target.id)
                value = self.accumulated(place, target.id, value, state, node, source)
                state.vars[place] = shallow(value)
                if place[0] == -2:
                    self.keep_global(place, target.id, value, state, node, source)
            case ir.Attr():
                self.assign_attribute(target, value, state, node, source)
            case ir.Subscript():
                self.assign_item(target, value, state, node, source)
            case ir.Sequence():
                self.unpack(target, value, state, node, source)
            case ir.Star():
                self.assign(target.value, value, state, node, source)
            case _:
                self.eval(target, state)

    def place_of(self, ident: str) -> tuple[int, str]:
        """The place that a bare name is bound to from here: a local, an enclosing function's local, or a global."""
        frame = self.frame
        if any(ident in names for names in self.comprehension_names):
            return (frame, ident)
        if ident in self.frame_closure[frame].function.locals or self.frame_closure[frame].function.name == "<lambda>":
            return (frame, ident)
        frame = self.frame_closure[frame].parent
        while frame >= 0:
            if ident in self.frame_closure[frame].function.locals:
                return (frame, ident)
            frame = self.frame_closure[frame].parent
        if self.frame_closure[self.frame].function.name == MODULE:
            return (self.frame, ident)
        return (-2, f"{self.path}:{ident}")

    def keep_global(
        self, place: tuple[int, str], name: str, value: Value, state: State, node: int, source: ir.Expr | None
    ) -> None:
        oid = self.outside("thing", name, None, key=("global", self.path))
        self.keep_attribute(oid, name, name, value, node, source, state)

    def by_evidence(self, text: str, value: Value, node: int) -> Value:
        """An opaque result on which the code calls ``eval()`` or ``parameters()`` is a module; a tensor that is back-propagated
        as it is, in whatever phase, has one element."""
        for atom in value:
            if type(atom) is Tensor:
                break
        else:
            return value
        words = self.evidence.get(text)
        if not words:
            return value
        if BACKWARD_ALONE in words and all(type(a) in (Tensor, Const) for a in value):
            return with_flags_set(value, SCALAR)  # a backward that is given no gradient starts at a single number
        if not looks_like_module(words):
            return value
        for atom in value:
            if type(atom) is Tensor and any(self.record.graphs[g].kind in ("forward", "leaf") for g in atom.graphs):
                return value
        return frozenset((Obj(self.allocate("module", node, text, None, tag=text)),))

    def accumulated(
        self,
        place: tuple[int, str],
        text: str,
        value: Value,
        state: State,
        node: int,
        source: ir.Expr | None,
        how: str = "",
        sure_tensor: bool = False,
    ) -> Value:
        """Tell an accumulation: the value assigned to a place holds what the place held when the loop's pass began."""
        graphs, hints, _, _ = self.deep(value, state)
        both = graphs | hints
        carried = [g for g in both if self.record.graphs[g].kind == "carried" and self.record.graphs[g].place == place]
        if not carried:
            return value
        fresh = frozenset(g for g in graphs if self.record.graphs[g].kind not in ("carried", "result"))
        maybe = frozenset(g for g in hints if self.record.graphs[g].kind not in ("carried", "result"))
        if not fresh and not maybe:
            return value
        if fresh and all(self.record.graphs[g].kind == "leaf" and self.record.graphs[g].what == text for g in fresh | maybe):
            return value  # a module's attribute that is a parameter takes nothing but a parameter, which has no history
        if isinstance(source, ir.IfExp):
            if not any(takes_part(text, branch) for branch in (source.then, source.orelse)):
                return value  # one of several values is chosen
            source = None  # no one term is added
        if isinstance(source, ir.BoolOp) or (isinstance(source, ir.Call) and dotted(source.func) in ("min", "max")):
            return value
        rounds = {self.record.graphs[g].site.loops[-1] for g in carried if self.record.graphs[g].site.loops}
        if rounds and rounds.isdisjoint(self.loops):
            return value  # after the loop: once, and not in each of its turns
        outlived = tuple(sorted(rounds, key=lambda known: (self.loops.index(known) if known in self.loops else -1, known)))
        loop = outlived[-1] if outlived else None
        certain = [g for g in carried if g in graphs] or carried
        through = all(self.record.graphs[g].mode == "module" for g in certain)
        mark = self.graph("added", node, text, key=place)
        self.emit(
            Accumulate(
                self.site(node), text, place, how or "+", mark, fresh - {mark}, maybe - {mark}, loop, self.term_of(source, text),
                through, sure_tensor, place[0] if place[0] < len(self.record.frames) else self.heap[place[0]].frame, outlived,
            ),
            tag=text,
        )  # fmt: skip
        self.sink(fresh - {mark}, "stored", text, node)
        return add_marks(value, frozenset((mark,)))

    def term_of(self, source: ir.Expr | None, text: str) -> int:
        """Node of the term in ``place = place + term``."""
        if isinstance(source, ir.Binary) and source.op == "+":
            if text_of(source.left) == text:
                return source.right.node
            if text_of(source.right) == text:
                return source.left.node
        return -1

    def augmented(self, statement: ir.AugAssign, state: State) -> State | None:
        target = statement.target
        old = self.eval(target, state)
        added = self.eval(statement.value, state)
        own = [a for a in old if type(a) is Obj and isinstance(self.heap[a.oid].cls, ClassRef)]
        if own:
            # An object of the project: its own operator, if it has one, says what becomes of the operand.
            for atom in own:
                name = OPERATORS.get(statement.op, "")
                method = self.world.project.method(self.heap[atom.oid].cls, name) if name else None  # type: ignore[arg-type]
                if method is not None:
                    call = ir.Call(statement.node, ir.Attr(statement.node, target, name), [ir.Arg(statement.value)])
                    (function,) = self.function_value(method, atom.oid)
                    self.call_atom(function, Arguments([added], {}, [statement.value], {}, []), call, state)
            return state
        if any(type(a) is Obj and self.heap[a.oid].kind == "params" for a in old):
            return state  # a parameter changes in place, and stays what it is
        lists = [a for a in old if type(a) is Obj and self.heap[a.oid].kind == "list"]
        if lists and statement.op == "+":
            item = self.iterate(added, statement.node, state)
            for atom in lists:
                self.store(atom.oid, text_of(target), "extend", item, ir.Const(statement.node, 0), statement.value, state)
            return state
        value = self.operate(statement.op, old, added, statement.node, state, in_place=True)
        tensors = frozenset(a for a in old if type(a) is Tensor)
        if state.mode == "off" and tensors and isinstance(target, ir.Name):
            # In place on a tensor, with grad mode off: it keeps the history that it has, and gets none from the operand.
            state.vars[self.place_of(target.id)] = tensors if len(tensors) == len(old) else join(tensors, value)
            return state
        self.accumulate_into(target, statement.op + "=", value, added, state, statement.node, statement.value.node)
        return state

    def accumulate_into(
        self, target: ir.Expr, how: str, value: Value, added: Value, state: State, node: int, term: int
    ) -> None:
        """``target op= added``: for attributes and elements the holder tells whether the place outlives a loop."""
        graphs, hints, _, _ = self.deep(added, state)
        things = frozenset(self.thing_graph(a.oid) for a in added if type(a) is Obj and self.heap[a.oid].kind == "thing")
        graphs |= things
        if how in ("/=", "*=", "//=", "**=", "%=", "@=", ">>=", "<<=") and not graphs:
            self.assign(target, value, state, node)
            return
        if isinstance(target, ir.Name):
            place = self.place_of(target.id)
            sure = all(type(a) is Tensor for a in added)
            carried = self.accumulated(
                place, target.id, value, state, node, ir.Binary(node, "+", target, ir.Const(term, 0)), how, sure
            )
            if place[0] == -2 and carried == value:
                oid = self.outside("thing", target.id, None, key=("global", self.path))
                carried = self.outside_total(oid, target.id, target.id, how, value, graphs, hints, node, term)
            state.vars[place] = shallow(carried)
            return
        owners: list[tuple[int, str]] = []
        if isinstance(target, ir.Attr):
            owners = [(a.oid, target.name) for a in self.eval(target.value, state) if type(a) is Obj]
        elif isinstance(target, ir.Subscript):
            index = [self.eval(i, state) for i in target.index]
            key = only_const(index[0]) if len(index) == 1 else None
            name = f"[{key.value!r}]" if key is not None else "[]"
            owners = [(a.oid, name) for a in self.eval(target.value, state) if type(a) is Obj]
            if not owners and isinstance(target.value, (ir.Name, ir.Attr)):
                # An element of a tensor: the tensor itself is the total.
                self.accumulate_into(target.value, how, value, added, state, node, term)
                return
        fresh = frozenset(g for g in graphs if self.record.graphs[g].kind not in ("carried", "result"))
        maybe = frozenset(g for g in hints if self.record.graphs[g].kind not in ("carried", "result"))
        for oid, name in owners:
            info = self.heap[oid]
            loop = self.outlived_loop(oid)
            if (loop is not None or info.external) and (fresh or maybe):
                value = self.outside_total(oid, name, text_of(target), how, value, fresh, maybe, node, term)
            if name.startswith("["):
                state.vars[oid, name] = join(state.vars.get((oid, name), EMPTY), shallow(value))
                if name != "[]":
                    state.vars[oid, "$keys"] = state.vars.get((oid, "$keys"), EMPTY) | {Const(name, "str")}
            else:
                state.vars[oid, name] = shallow(value)

    def outside_total(
        self,
        oid: int,
        name: str,
        text: str,
        how: str,
        value: Value,
        fresh: frozenset[int],
        maybe: frozenset[int],
        node: int,
        term: int,
    ) -> Value:
        mark = self.graph("added", node, text, key=(oid, name))
        outlived = self.outlived_loops(oid)
        loop = outlived[-1] if outlived else None
        self.emit(
            Accumulate(
                self.site(node), text, (oid, name), how, mark, fresh - {mark}, maybe - {mark}, loop, term, False, False,
                self.heap[oid].frame, outlived,
            ),
            tag=text,
        )  # fmt: skip
        self.sink(fresh - {mark}, "stored", text, node)
        return add_marks(value, frozenset((mark,)))

    def assign_attribute(self, target: ir.Attr, value: Value, state: State, node: int, source: ir.Expr | None) -> None:
        owners = self.eval(target.value, state)
        if target.name == "requires_grad":
            known = truth(value)
            if isinstance(target.value, ir.Attr) and target.value.name in ("weight", "bias") and known is False:
                owners = frozenset(a for a in self.eval(target.value.value, state) if type(a) is Obj)
            for atom in owners:
                if type(atom) is Obj and self.heap[atom.oid].kind in ("params", "module"):
                    owner = self.owner_of_params.get(atom.oid, atom.oid)
                    if known is False:
                        state.vars[owner, "$frozen"] = const(True)
                    else:
                        state.vars[owner, "$frozen"] = UNKNOWN
                elif known is True or (known is not False and not (type(atom) is Obj and self.heap[atom.oid].kind == "params")):
                    self.record.flags.add("input-grad")
            if isinstance(target.value, ir.Name) and any(type(a) is Tensor for a in owners):
                # Only a leaf may be told so: whatever made the tensor gave it no history.
                state.vars[self.place_of(target.value.id)] = frozenset(
                    Tensor(NOTHING, NOTHING, a.outputs, a.flags) if type(a) is Tensor else a for a in owners
                )
            return
        if target.name in ("data", "grad"):
            if target.name == "grad" and is_none(value):
                self.gradients_freed(node)
            return
        text = text_of(target)
        value = self.by_evidence(text, value, node)
        flags = self.deep(value, state)[3]
        if flags & WEIGHTS:
            self.record.flags.add("weights-kept")
        if flags & LOGITS:
            self.record.flags.add("logits-used")
        for atom in owners:
            if type(atom) is not Obj:
                continue
            info = self.heap[atom.oid]
            place = (atom.oid, target.name)
            if atom.oid in self.contexts:
                value = self.keep_on_context(text, value, state, node, source)
            marked = self.accumulated(place, text, value, state, node, source)
            if marked == value and (info.external or self.outlived_loop(atom.oid) is not None):
                self.keep_attribute(atom.oid, target.name, text, value, node, source, state)
            state.vars[place] = shallow(marked)

    def keep_on_context(self, text: str, value: Value, state: State, node: int, source: ir.Expr | None) -> Value:
        """``ctx.x = x`` in an ``autograd.Function``. Grad mode is off there, so that a mark on the value stays with this very
        tensor: where it is returned, it is an output."""
        atoms = [inner for atom in value for inner in flat(atom, self, state)]
        graphs = NOTHING
        for atom in atoms:
            if type(atom) is Obj and self.heap[atom.oid].kind == "thing":
                graphs |= {self.thing_graph(atom.oid)}
        tensors = [a for a in atoms if type(a) is Tensor and not a.flags & (SCALAR | GUESSED)]
        if not tensors and not graphs:
            return value
        mark = self.graph("stored", node, text, key=("context", text))
        self.emit(ContextStore(self.site(node), text, mark, bool(tensors), graphs), tag=text)
        marked = add_marks(value, frozenset((mark,)))
        if isinstance(source, ir.Name):
            state.vars[self.place_of(source.id)] = marked
        return marked

    def keep_attribute(
        self, oid: int, name: str, text: str, value: Value, node: int, source: ir.Expr | None, state: State
    ) -> None:
        """``self.last = out``: the attribute holds one value at a time; told as a store with a constant key."""
        graphs, hints, outputs, flags = self.deep(value, state)
        if not graphs and not hints and not outputs:
            return
        mark = self.graph("stored", node, text, key=(oid, name))
        self.sink(graphs | hints, "stored", text, node)
        info = self.heap[oid]
        self.emit(
            Store(
                self.site(node), text, oid, "attr", mark, graphs, hints, outputs, flags, self.outlived_loop(oid),
                source.node if source is not None else node, info.external, *half_fix(source), True, info.frame,
            ),
            tag=f"{oid}",
        )  # fmt: skip

    def assign_item(self, target: ir.Subscript, value: Value, state: State, node: int, source: ir.Expr | None) -> None:
        owners = self.eval(target.value, state)
        index = [self.eval(i, state) for i in target.index]
        key = only_const(index[0]) if len(index) == 1 else None
        text = text_of(target)
        slots = len(target.index) == 1 and isinstance(target.index[0], ir.Binary) and target.index[0].op == "%"
        put = (self.frame, self.turn, target.node)
        for atom in sorted_atoms(owners):
            if type(atom) is Ext and atom.name == "os.environ" and len(index) == 1:
                self.environment(index[0], value, node)
            elif type(atom) is Obj:
                info = self.heap[atom.oid]
                if info.kind in CONTAINERS or info.kind == "thing":
                    place = (atom.oid, f"[{key.value!r}]" if key is not None else "[]")
                    marked = value
                    if isinstance(source, ir.Binary):
                        carried = reads_item(source.left, target) or reads_item(source.right, target)
                        if carried and (info.external or self.outlived_loop(atom.oid) is not None):
                            graphs, hints, _, _ = self.deep(value, state)
                            fresh = frozenset(g for g in graphs if self.record.graphs[g].kind not in ("carried", "result"))
                            marked = self.outside_total(
                                atom.oid, place[1], text, "+", value, fresh, hints, node, self.term_of(source, text)
                            )
                    if marked is value:
                        marked = self.store(
                            atom.oid, text, "item", value, ir.Const(node, 0), source if source is not None else target, state,
                            keyed=True, constant_key=key is not None or slots,
                        )  # fmt: skip
                    self.put(atom.oid, index[0] if len(index) == 1 else PLAIN, shallow(marked), state)
                    self.stored_items[put] = join(self.stored_items.get(put, EMPTY), marked)
            elif type(atom) is Tensor:
                # Writing into a tensor: it hangs on what is written from here on.
                self.stored_items[put] = join(self.stored_items.get(put, EMPTY), value)
                graphs, hints, _, _ = self.deep(value, state)
                if isinstance(target.value, ir.Name) and (graphs or hints) and state.mode != "off":
                    place = self.place_of(target.value.id)
                    old = state.vars.get(place)
                    if old is not None:
                        loop = None
                        for gid in atom.graphs:
                            if self.record.graphs[gid].kind == "carried" and self.record.graphs[gid].place == place:
                                loops = self.record.graphs[gid].site.loops
                                loop = loops[-1] if loops and loops[-1] in self.loops else None
                        mark = self.graph("stored", node, text, key=place)
                        self.stored_items[put] = add_marks(self.stored_items[put], frozenset((mark,)))
                        if loop is not None:
                            self.emit(
                                Store(
                                    self.site(node), text_of(target.value), -1, "item", mark,
                                    frozenset(g for g in graphs if self.record.graphs[g].kind not in ("carried", "result")),
                                    hints, NOTHING, 0, loop, source.node if source is not None else node, False,
                                )
                            )  # fmt: skip
                        state.vars[place] = frozenset(
                            Tensor(a.graphs | graphs | {mark}, a.hints | hints, a.outputs, a.flags) if type(a) is Tensor else a
                            for a in old
                        )

    def unpack(self, target: ir.Sequence, value: Value, state: State, node: int, source: ir.Expr | None) -> None:
        count = len(target.items)
        starred = any(type(t) is ir.Star for t in target.items)
        parts: list[Value] = [EMPTY] * count
        for atom in sorted_atoms(value):
            if type(atom) is Tuple and len(atom.items) == count and not starred:
                for i in range(count):
                    parts[i] = join(parts[i], atom.items[i])
                continue
            single = frozenset((atom,))
            for i in range(count):
                if type(atom) is Tensor:
                    piece = self.part(atom, f"[{i}]", node, unpacked=True)
                elif type(atom) is Obj and self.heap[atom.oid].kind == "thing":
                    piece = self.thing_element(atom.oid, Const(i, "int"))
                else:
                    piece = self.iterate(single, node, state)
                parts[i] = join(parts[i], piece)
        sources: list[ir.Expr | None] = [None] * count
        if isinstance(source, ir.Sequence) and len(source.items) == count:
            sources = list(source.items)
        for item, part, origin in zip(target.items, parts, sources, strict=True):
            self.assign(
                item.value if type(item) is ir.Star else item,
                part or UNKNOWN,
                state,
                node,
                origin if origin is not None else source,
            )

    # --- branches -------------------------------------------------------------------------------------------------------

    def branch(self, statement: ir.If, state: State) -> State | None:
        answer = self.decide(statement.test, state)
        text = self.texts.get(id(statement))
        if text is None:
            text = self.texts[id(statement)] = text_of(statement.test)
        if answer is None:
            self.note_phase(statement)
        then_state: State | None = None
        else_state: State | None = None
        depth = len(self.loops)
        if answer is not False:
            branch = state.copy() if answer is None else state
            if self.narrow(statement.test, True, branch):
                self.guards.append((depth, text))
                then_state = self.block(statement.then, branch)
                self.guards.pop()
        if answer is not True:
            if self.narrow(statement.test, False, state):
                self.guards.append((depth, f"not {text}"))
                else_state = self.block(statement.orelse, state)
                self.guards.pop()
        return join_states(then_state, else_state)

    def narrow(self, test: ir.Expr, holds: bool, state: State) -> bool:
        """Apply what a test tells of the names in it (``x is None``, ``isinstance(x, torch.Tensor)``, ``not``, ``and``, ``or``);
        False where no value is left, so that the branch cannot be reached."""
        match test:
            case ir.Unary(op="not"):
                return self.narrow(test.value, not holds, state)
            case ir.BoolOp(op="and") if holds:
                return self.narrow(test.left, True, state) and self.narrow(test.right, True, state)
            case ir.BoolOp(op="or") if not holds:
                return self.narrow(test.left, False, state) and self.narrow(test.right, False, state)
            case ir.Compare(left=ir.Name() as name, ops=[op], comparators=[ir.Const(value=None)]) if op in (
                "is",
                "is not",
                "==",
                "!=",
            ):
                place = (self.frame, name.id)
                old = state.vars.get(place)
                if old is not None:
                    none = (op in ("is", "==")) == holds
                    kept = frozenset(a for a in old if (type(a) is Const and a.value is None) == none)
                    if kept and not none:
                        state.vars[place] = kept
            case ir.Call(func=func, args=[ir.Arg(value=ir.Name() as name), *rest]):
                place = (self.frame, name.id)
                old = state.vars.get(place)
                if old is not None and holds and self.asks_for_number(func, rest):
                    if all(name.rpartition(".")[2] == "ndarray" for name in type_names(rest[0].value)):
                        self.notice((g for a in old if type(a) is Tensor for g in a.graphs), "maybe-array")
                    state.vars[place] = PLAIN
                elif old is not None and self.asks_for_tensor(func, rest, state):
                    if holds:
                        kept = frozenset(
                            a
                            for a in old
                            if type(a) in (Tensor, Unknown) or (type(a) is Obj and self.heap[a.oid].kind not in CONTAINERS)
                        )
                    else:
                        # What is left is no tensor, whatever else it is.
                        kept = frozenset(
                            Plain() if type(a) is Unknown or (type(a) is Obj and self.heap[a.oid].kind == "thing") else a
                            for a in old
                            if type(a) is not Tensor
                        )
                    if not kept:
                        return False
                    state.vars[place] = kept
                elif old is not None and (asked := self.asked_containers(func, rest)):
                    kept = frozenset(a for a in old if (kind := self.container_kind(a)) is None or (kind in asked) == holds)
                    if not kept:
                        return False
                    state.vars[place] = kept
                elif old is not None and holds and self.asks_for_record(func, rest, state):
                    state.vars[place] = PLAIN
            case ir.Call(func=func, args=[ir.Arg(value=ir.Subscript(value=ir.Name() as name)), *rest]):
                # What one entry is, the others are: it is asked of one for all.
                place = (self.frame, name.id)
                if holds and place in state.vars and self.asks_for_record(func, rest, state):
                    state.vars[place] = PLAIN
        return True

    def container_kind(self, atom: Atom) -> str | None:
        """ "list", "tuple", "dict", "set" for what surely is one, None for anything else."""
        if type(atom) is Tuple:
            return "tuple"
        kind = self.heap[atom.oid].kind if type(atom) is Obj else ""
        return kind if kind in CONTAINERS else None

    def asked_containers(self, func: ir.Expr, rest: list[ir.Arg]) -> frozenset[str]:
        """The kinds of container that ``isinstance(x, (list, tuple))`` asks for; empty where it asks for anything else."""
        if dotted(func) != "isinstance" or len(rest) != 1:
            return frozenset()
        kinds = [CONTAINER_TYPES.get(name.rpartition(".")[2]) for name in type_names(rest[0].value)]
        return frozenset().union(*(kind for kind in kinds if kind)) if kinds and all(kinds) else frozenset()

    def asks_for_number(self, func: ir.Expr, rest: list[ir.Arg]) -> bool:
        """``isinstance(x, (int, float, np.ndarray))``: what passes is no tensor."""
        if dotted(func) != "isinstance" or len(rest) != 1:
            return False
        names = type_names(rest[0].value)
        return bool(names) and all(name.rpartition(".")[2] in PLAIN_TYPES for name in names)

    def asks_for_record(self, func: ir.Expr, rest: list[ir.Arg], state: State) -> bool:
        """``isinstance(x, Pointer)`` for classes of the project whose objects hold numbers and words alone."""
        if dotted(func) != "isinstance" or len(rest) != 1:
            return False
        types = rest[0].value.items if isinstance(rest[0].value, ir.Sequence) else [rest[0].value]
        atoms = [a for t in types if dotted(t) for a in self.eval(t, state)]
        return bool(atoms) and all(type(a) is Cls and self.world.is_plain_record(ClassRef(a.path, a.qualname)) for a in atoms)

    def asks_for_tensor(self, func: ir.Expr, rest: list[ir.Arg], state: State) -> bool:
        """``isinstance(x, torch.Tensor)`` or ``torch.is_tensor(x)``."""
        name = dotted(func)
        if name == "isinstance" and len(rest) == 1:
            types = rest[0].value.items if isinstance(rest[0].value, ir.Sequence) else [rest[0].value]
            names = {a.name for t in types if dotted(t) for a in self.eval(t, state) if type(a) is Ext}
            return bool(names) and any(n.rpartition(".")[2] in ("Tensor", "Variable") and n.startswith("torch") for n in names)
        return any(type(a) is Ext and a.name == "torch.is_tensor" for a in self.eval(func, state)) if name else False

    def note_phase(self, statement: ir.If) -> None:
        """Remember an undecided test that looks like a phase, by what its branches do and by its words."""
        found = self.phases.get(id(statement))
        if found is None:
            found = self.phases[id(statement)] = phases_in(statement)
        for names, text, weight in found:
            if not names & self.loop_names:
                key = f"{self.frame}:{text}"  # as ``phase_key``
                self.phase_tests[key] = max(self.phase_tests.get(key, 0), weight)

    def matching(self, statement: ir.Match, state: State) -> State | None:
        subject = self.eval(statement.subject, state)
        out: State | None = None
        rest: State | None = state
        for case in statement.cases:
            if rest is None:
                break
            branch = rest.copy()
            for name in case.binds:
                branch.vars[self.place_of(name)] = (
                    subject
                    if len(case.binds) == 1
                    else self.iterate(subject, case.body[0].node if case.body else statement.node, branch)
                )
            if case.guard is not None:
                self.eval(case.guard, branch)
            out = join_states(out, self.block(case.body, branch))
            if case.matches_all and case.guard is None:
                rest = None
        return join_states(out, rest)

    # --- loops ----------------------------------------------------------------------------------------------------------

    def note_loop(
        self,
        loop: tuple[int, int],
        iterable: ir.Expr,
        value: Value,
        targets: set[str] | frozenset[str] = frozenset(),
        attempts: bool = False,
        listed: bool = False,
    ) -> None:
        kinds = {self.heap[a.oid].kind for a in value if type(a) is Obj}
        kind = "loader" if "loader" in kinds else next(iter(sorted(kinds)), "")
        self.record.loops[loop] = LoopInfo(text_of(iterable), kind, frozenset(targets), attempts, listed)

    def for_loop(self, statement: ir.For, state: State) -> State | None:
        iterable = self.eval(statement.iterable, state)
        literals = literal_turns(statement.iterable, iterable)
        if literals is not None:
            return self.unrolled(statement, literals, state)
        loop = (self.frame, statement.node)
        self.loop_statements[loop] = statement
        self.note_loop(loop, statement.iterable, iterable, names_in(statement.target), leaves(statement.body))
        self.loop_names |= names_in(statement.target)

        def body(inner: State) -> State | None:
            self.assign(statement.target, self.iterate(iterable, statement.node, inner), inner, statement.node)
            return self.block(statement.body, inner)

        after = self.loop_passes(loop, state, body)
        if after is not None:
            self.replace_items(statement, after)
        if statement.orelse and after is not None:
            after = self.block(statement.orelse, after)
        return after

    def replace_items(self, statement: ir.For, state: State) -> None:
        """After ``for k, v in d.items(): d[k] = v.detach()`` nothing is left of what the dict held before."""
        found = replaced_items(statement)
        if found is None:
            return
        target = found
        new = shallow(self.stored_items.get((self.frame, self.turn, target.node), EMPTY))
        if not new:
            return
        held = self.eval(target.value, state)
        for atom in held:
            if type(atom) is Obj and self.heap[atom.oid].kind == "dict":
                self.forget(atom.oid, state)
                state.vars[atom.oid, "[]"] = new
        if isinstance(target.value, ir.Name) and any(type(a) is Tensor for a in held):
            rest = frozenset(a for a in held if type(a) is not Tensor)
            state.vars[self.place_of(target.value.id)] = join(rest, frozenset(a for a in new if type(a) in (Tensor, Plain)))

    def unrolled(self, statement: ir.For, turns: list[Value], state: State) -> State | None:
        """``for phase in ["train", "val"]``: each literal is a turn of its own."""
        outer = self.turn
        out: State | None = state
        for value in turns:
            if out is None:
                break
            self.turn = self.number("turn", outer, statement.node, repr(value))
            self.assign(statement.target, value, out, statement.node)
            ends = LoopEnds()
            self.loop_ends.append(ends)
            out = join_states(self.block(statement.body, out), ends.continues)
            self.loop_ends.pop()
            out = join_states(out, ends.breaks)
        self.turn = outer
        if out is not None and statement.orelse:
            out = self.block(statement.orelse, out)
        return out

    def while_loop(self, statement: ir.While, state: State) -> State | None:
        loop = (self.frame, statement.node)
        self.loop_statements[loop] = statement
        self.record.loops[loop] = LoopInfo(text_of(statement.test), "while", attempts=leaves(statement.body))
        forever = only_const(self.eval(statement.test, state))
        endless = forever is not None and bool(forever.value)

        def body(inner: State) -> State | None:
            if self.decide(statement.test, inner) is False and not endless:
                return inner
            return self.block(statement.body, inner)

        after = self.loop_passes(loop, state, body, endless)
        if statement.orelse and after is not None:
            after = self.block(statement.orelse, after)
        return after

    def loop_passes(
        self,
        loop: tuple[int, int],
        state: State,
        body: Callable[[State], State | None],
        endless: bool = False,
        own: frozenset[Key] = frozenset(),
    ) -> State | None:
        """Run a loop's body until its head state settles. From the second pass on, places that were bound before the loop and
        changed in it are marked as carried round it.

        ``own`` are places that the body binds before it reads them, whatever they held. A pass that would start where the one
        before it did would tell the same again, and is left out.
        """
        self.loops.append(loop)
        head = state
        last: State | None = None
        retyped = 0
        exits: State | None = None
        marks: dict[tuple[int, str], frozenset[int]] = {}
        for number in range(MAX_PASSES):
            inner = head.copy()
            for place, mark in marks.items():
                held = inner.vars.get(place)
                if held is not None:
                    inner.vars[place] = add_marks(held, mark)
            if last is not None and retyped == self.retyped and self.starts_alike(inner, last, loop, own):
                break
            last, retyped = inner.copy(), self.retyped
            ends = LoopEnds()
            self.loop_ends.append(ends)
            end = join_states(body(inner), ends.continues)
            self.loop_ends.pop()
            exits = join_states(exits, ends.breaks)
            if end is None:
                break
            marked = False
            for place in changed(head.vars, end.vars):
                value = end.vars[place]
                if head.vars.get(place) == value:
                    continue
                if place not in marks and carries(place, value, state, self):
                    marks[place] = frozenset((self.number_mark("carried", place[1], place, loop[1], loop),))
                    marked = True
            merged = join_states(head, end)
            assert merged is not None
            if number and not marked and merged.vars == head.vars and merged.mode == head.mode:
                head = merged
                break
            head = merged
        self.loops.pop()
        return exits if endless else join_states(head, exits)

    def starts_alike(self, now: State, last: State, loop: tuple[int, int], own: frozenset[Key]) -> bool:
        """Whether two passes of a loop start alike: in all that the body can read before it binds it."""
        if now.mode != last.mode:
            return False
        if not own:
            return now.vars == last.vars
        for place in changed(last.vars, now.vars):
            if place in own or last.vars.get(place) == now.vars[place]:
                continue
            if place[0] < FIRST_NUMBER or loop not in self.heap[place[0]].loops:
                return False  # neither the body's own name nor inside an object that the body makes
        return True

    def break_(self, statement: ir.Break, state: State) -> State | None:
        if self.loop_ends:
            self.loop_ends[-1].breaks = join_states(self.loop_ends[-1].breaks, state)
        return None

    def continue_(self, statement: ir.Continue, state: State) -> State | None:
        if self.loop_ends:
            self.loop_ends[-1].continues = join_states(self.loop_ends[-1].continues, state)
        return None

    # --- with, try --------------------------------------------------------------------------------------------------------

    def with_block(self, statement: ir.With, state: State) -> State | None:
        before = state.mode
        frame, around = self.ends[-1], self.loop_ends[-1] if self.loop_ends else LoopEnds()
        ways = frame.state, around.breaks, around.continues
        frame.state = around.breaks = around.continues = None
        held = len(self.offs)
        for item in statement.items:
            mode = state.mode
            self.enter(item, state, statement)
            if state.mode == "off" and mode != "off":
                self.offs.append((item.node, text_of(item.manager)))
        after = self.block(statement.body, state)
        del self.offs[held:]
        # Whichever way the block is left, the managers restore what was before.
        for left in (after, frame.state, around.breaks, around.continues):
            if left is not None:
                left.mode = before
        frame.state = join_states(ways[0], frame.state)
        around.breaks, around.continues = join_states(ways[1], around.breaks), join_states(ways[2], around.continues)
        return after

    def mode_before_call(self) -> str | None:
        """The grad mode before the ``set_grad_enabled`` that the last evaluation called, None when it called none."""
        return self._mode_before

    def enter(self, item: ir.WithItem, state: State, statement: ir.With) -> None:
        current = state.mode
        self._mode_before = None
        value = self.eval(item.manager, state)
        acted = self.mode_before_call()
        if acted is not None:
            # ``set_grad_enabled`` acts when it is called; as a manager it restores at the end what was before.
            current = acted
            state.mode = current
        ready = any(type(a) is Obj and self.heap[a.oid].kind == "manager" for a in value)
        home_made = None if ready else self.project_manager_mode(item.manager, state)
        modes: set[str] = set()
        for atom in value:
            if type(atom) is Obj and self.heap[atom.oid].kind == "manager":
                mode = str(self.heap[atom.oid].cls)
                modes.add(current if mode == "none" else mode)
            elif type(atom) is Ext and TORCH.function_effect(atom.name) in ("grad-off", "grad-on", "grad-set"):
                from torchmemlint.semantics.results import hands_out

                name, gives = text_of(item.manager), hands_out(statement.body, self.frame_closure[self.frame].function.body)
                self.emit(GradModeMisuse(self.site(item.node), "with-uncalled", name, gives))
            elif home_made is None:
                modes.add(current)
        if home_made is not None:
            modes = {home_made}
        if len(modes) == 1:
            state.mode = modes.pop()
        elif modes:
            known = {self.assumed(item.manager.test)} if isinstance(item.manager, ir.IfExp) else {None}
            state.mode = "unknown" if known == {None} else state.mode
        if item.target is not None:
            self.assign(item.target, self.given_by(item.manager, value, state), state, item.node)

    def given_by(self, manager: ir.Expr, value: Value, state: State) -> Value:
        """What ``with manager as x`` binds: a progress bar itself, and what a tensor of a graph was made into (a scaled loss)."""
        if not isinstance(manager, ir.Call):
            return UNKNOWN
        if dotted(manager.func).rpartition(".")[2] in ("tqdm", "trange"):
            return value
        if manager.args and not manager.args[0].star and type(manager.args[0].value) in (ir.Name, ir.Attr, ir.Subscript):
            first = self.eval(manager.args[0].value, state)
            if any(type(atom) is Tensor and atom.graphs for atom in first):
                return first
        return UNKNOWN

    def try_block(self, statement: ir.Try, state: State) -> State | None:
        entry = state.copy()
        following = self.following
        # A handler can start after any statement of the body; statements inside nested blocks are joined at their ends.
        raised: list[State] = []
        end: State | None = state
        for inner in statement.body:
            end = self.block([inner], end)
            if end is None:
                break
            raised.append(end.copy())
        if statement.orelse:
            end = self.block(statement.orelse, end)
        failing: State | None = entry
        for other in raised:
            failing = join_states(failing, other)
        out = end
        for handler in statement.handlers:
            if failing is None:
                continue
            branch = failing.copy()
            branch.mode = entry.mode
            if handler.name is not None:
                branch.vars[self.place_of(handler.name)] = UNKNOWN
            self.note_handler(handler, statement, branch, following)
            self.handlers.append(handler.node)
            out = join_states(out, self.block(handler.body, branch))
            self.handlers.pop()
        if statement.final:
            if out is None or not statement.handlers:
                # An exception or a return passes through the final block on its way out.
                leaving = failing.copy() if failing is not None else entry
                leaving.mode = entry.mode
                self.block(statement.final, leaving)
            return None if out is None else self.block(statement.final, out)
        return out

    def note_handler(self, handler: ir.Handler, statement: ir.Try, state: State, following: ir.Stmt | None) -> None:
        from torchmemlint.semantics.handlers import describe

        described = describe(self, handler, statement, state, following)
        if described is not None:
            self.emit(described)

    def raise_(self, statement: ir.Raise, state: State) -> State | None:
        if statement.value is not None:
            self.eval(statement.value, state)
        return None

    # --- functions --------------------------------------------------------------------------------------------------------

    def return_(self, statement: ir.Return, state: State) -> State | None:
        value = self.eval(statement.value, state) if statement.value is not None else NONE
        flags = self.deep(value, state)[3]
        if flags & WEIGHTS:
            self.record.flags.add("weights-kept")
        if flags & LOGITS:
            self.record.flags.add("logits-used")
        ends = self.ends[-1]
        ends.returns = join(ends.returns, shallow(value))
        ends.state = join_states(ends.state, state)
        if len(self.ends) == 1:
            graphs, hints, _, _ = self.deep(value, state)
            if self.world.trains_result(self.record.root):
                call = ir.Call(statement.node, ir.Name(statement.node, "framework.backward"), [])
                self.backward([value], Arguments([], {}, [], {}, []), call, state)
            self.sink(graphs | hints, "returned", "", statement.node)
            self.record.returned |= graphs | hints
        return None

    def yielded(self, expr: ir.Yield, state: State) -> Value:
        value = self.eval(expr.value, state) if expr.value is not None else NONE
        if expr.is_from:
            value = self.iterate(value, expr.node, state)
        ends = self.ends[-1]
        ends.yields = join(ends.yields, shallow(value))
        if len(self.ends) == 1:
            graphs, hints, _, _ = self.deep(value, state)
            self.sink(graphs | hints, "yielded", "", expr.node)
            self.record.returned |= graphs | hints
            if state.mode == "off" and self.own_mode_off_by_with and not self.is_manager():
                # One for a block, at its first yield.
                block, manager = self.offs[-1] if self.offs else (-1, "")
                if self.leaks.setdefault(block, expr.node) == expr.node:
                    self.emit(GradModeMisuse(self.site(expr.node), "generator-leak", manager))
        return UNKNOWN

    @property
    def own_mode_off_by_with(self) -> bool:
        return self.record.mode != "off"

    def is_manager(self) -> bool:
        """Whether the root is a context manager's generator, a fixture or the like: one that is meant to change its consumer."""
        return bool(self.frame_closure[self.frame].function.decorators)

    def define(self, statement: ir.FunctionDef, state: State) -> State | None:
        function = statement.function
        closure = self.frame_closure[self.frame]
        key = self.closure(
            function, closure.lowered, FunctionRef(closure.ref.path, function.qualname), self.frame, closure.owner
        )
        for decorator in function.decorators:
            self.check_decorator(decorator, function, statement.node, state)
            if self.registers(decorator):
                self.handed[key] = Handed(decorator.node, text_of(decorator), state.copy())
                self.record.handed.add(self.closures[key].ref)
        state.vars[self.place_of(function.name)] = frozenset((Func(key),))
        self.defined[key] = state.copy()
        return state

    def registers(self, decorator: ir.Expr) -> bool:
        """Whether a decorator hands the function to a server or a command line, which calls it when it is asked to."""
        callee = dotted(decorator.func if isinstance(decorator, ir.Call) else decorator)
        ref = self.frame_closure[self.frame].ref
        name = self.world.project.outside(ref.path, ref.qualname, callee) if "." in callee else None
        return name is not None and name.partition(".")[0] in TORCH.servers

    @property
    def defined(self) -> dict[int, State]:
        if not hasattr(self, "_defined"):
            self._defined: dict[int, State] = {}
        return self._defined

    def check_decorator(self, decorator: ir.Expr, function: ir.Function, node: int, state: State) -> None:
        callee = decorator.func if isinstance(decorator, ir.Call) else decorator
        for atom in self.eval(callee, state) if dotted(callee) else ():
            if type(atom) is Ext and atom.name in TORCH.renamed:
                use = decorator if isinstance(decorator, ir.Call) else ir.Call(decorator.node, decorator, [])
                self.effect("renamed", atom.name, self.arguments(use, state), use)
            if type(atom) is Ext and TORCH.function_effect(atom.name) == "grad-off":
                if function.is_async:
                    kind = "async-generator-decorator" if function.is_generator else "async-decorator"
                    self.emit(GradModeMisuse(self.site(decorator.node), kind, text_of(decorator)))
                elif not isinstance(decorator, ir.Call):
                    self.emit(GradModeMisuse(self.site(decorator.node), "bare-decorator", text_of(decorator)))

    def class_(self, statement: ir.ClassDef, state: State) -> State | None:
        for decorator in statement.decorators:
            callee = decorator.func if isinstance(decorator, ir.Call) else decorator
            for atom in self.eval(callee, state) if dotted(callee) else ():
                if type(atom) is Ext and TORCH.function_effect(atom.name) == "grad-off":
                    self.emit(GradModeMisuse(self.site(decorator.node), "class-decorator", text_of(decorator)))
        qualname = statement.name
        found = self.world.project.klass(f"{self.world.project.module_name(self.path)}.{qualname}")
        state.vars[self.place_of(statement.name)] = (
            frozenset((Cls(found.path, found.qualname),)) if found is not None else frozenset((Ext(f"?.{qualname}"),))
        )
        return state

    def import_(self, statement: ir.ImportStmt, state: State) -> State | None:
        old = tuple((name, absolute) for name, absolute in statement.bindings if absolute in TORCH.renamed)
        if old:
            self.emit(DeprecatedImport(self.site(statement.node), old))
        for name, absolute in statement.bindings:
            if absolute.partition(".")[0] == "torch":
                self.record.flags.add("torch")
            if not name.startswith("*"):
                resolved = self.world.project.resolve(self.path, name)
                value = self.absolute(resolved if resolved is not None else absolute.lstrip("."), self.path, name)
                state.vars[self.place_of(name)] = value
        return state

    def delete(self, statement: ir.Delete, state: State) -> State | None:
        for target in statement.targets:
            if self.record.frames[self.frame].depth == 0:
                self.deleted.append(text_of(target))
            if isinstance(target, ir.Attr) and target.name == "grad":
                self.gradients_freed(statement.node)
            if isinstance(target, ir.Name):
                state.vars.pop(self.place_of(target.id), None)
        return state

    def assert_(self, statement: ir.Assert, state: State) -> State | None:
        self.eval(statement.test, state)
        self.narrow(statement.test, True, state)
        return state

    def scope(self, statement: ir.Scope, state: State) -> State | None:
        return state

    def run_function(self, closure: Closure, bound: dict[str, Value], call: int, state: State) -> Value:
        """Run a function's body in the caller's state; its locals are gone afterwards unless a closure keeps them."""
        outer_frame = self.frame
        number = self.open_frame(closure, call)
        self.frame = number
        for name, value in bound.items():
            state.vars[number, name] = shallow(value)
        if self._pending_kwargs is not None:
            oid, extra, rest = self._pending_kwargs
            self._pending_kwargs = None
            self.forget(oid, state)
            for name, value in extra.items():
                self.put(oid, const(name), value, state)
            if rest:
                state.vars[oid, "[]"] = rest
        ends = FrameEnds()
        self.ends.append(ends)
        outer_loop_ends, self.loop_ends = self.loop_ends, []
        mode = state.mode
        end = self.block(closure.function.body, state.copy())
        self.loop_ends = outer_loop_ends
        self.ends.pop()
        self.frame = outer_frame
        final = join_states(end, ends.state)
        if final is not None:
            state.vars = places = final.vars
            if not closure.function.is_generator:
                for place in [place for place in places if place[0] == number]:
                    del places[place]
            state.mode = final.mode if not closure.function.is_generator else mode
        if closure.function.is_generator:
            oid = self.allocate("generator", call, text_of(ir.Name(call, closure.function.name)), tag=number)
            state.vars[oid, "[]"] = ends.yields or UNKNOWN
            return frozenset((Obj(oid),))
        result = ends.returns
        if end is not None:
            result = join(result, NONE) if result else NONE
        return result or NONE

    # --- the root -----------------------------------------------------------------------------------------------------------

    def run(self, function: ir.Function, lowered: object, owner: ClassRef | None) -> Record:
        """Run the root function with what is known of its parameters; returns its record."""
        record = self.record
        closure = Closure(function, lowered, record.root, -1, owner)
        self.frame = self.open_frame(closure, -1)
        state = State(
            {}, "on" if record.mode in ("on", "mixed", "no-callers") else "off" if record.mode == "off" else "unknown"
        )
        self.bind_root(function, owner, state)
        for decorator in function.decorators:
            self.check_decorator(decorator, function, decorator.node, state)
        cached = [d for d in function.decorators if self.is_cache(d, state)]
        self.weighs_evidence = self.weighs_evidence or bool(cached)
        given = {p.name: state.vars.get((self.frame, p.name), EMPTY) for p in function.params} if cached else {}
        ends = FrameEnds()
        self.ends.append(ends)
        end = self.block(function.body, state)
        for decorator in cached:
            self.note_cache(decorator, function, given)
        final = join_states(end, ends.state)
        self.run_hooks(final if final is not None else State({}, state.mode))
        self.run_uncalled(final if final is not None else State({}, state.mode))
        self.ends.pop()
        record.final = final
        record.result = ends.returns
        finish(record)
        return record

    def is_cache(self, decorator: ir.Expr, state: State) -> bool:
        callee = decorator.func if isinstance(decorator, ir.Call) else decorator
        if dotted(callee).rpartition(".")[2] not in ("lru_cache", "cache"):
            return False
        return any(type(a) is Ext and a.name in ("functools.lru_cache", "functools.cache") for a in self.eval(callee, state))

    def note_cache(self, decorator: ir.Expr, function: ir.Function, given: dict[str, Value]) -> None:
        """What a cached function is called with: judged after its body has shown what its parameters are."""
        entries = cache_size(decorator)
        if entries == 0:
            return
        modules: list[str] = []
        tensors: list[str] = []
        things: list[tuple[str, int]] = []
        ref = self.record.root
        for param in function.params:
            for atom in given[param.name]:
                if type(atom) is not Obj:
                    continue
                info = self.heap[atom.oid]
                own = info.kind == "self" and isinstance(info.cls, ClassRef) and self.world.is_module_class(info.cls)
                if own or info.kind == "module":
                    modules.append(param.name)
                elif self.world.project.class_of(ref.path, ref.qualname, param.name) == "torch.Tensor":
                    tensors.append(param.name)
                elif info.kind == "thing":
                    things.append((param.name, self.thing_graph(atom.oid)))
        name = text_of(decorator.func if isinstance(decorator, ir.Call) else decorator)
        self.emit(CachedFunction(self.site(decorator.node), name, entries, tuple(modules), tuple(tensors), tuple(things)))

    def bind_root(self, function: ir.Function, owner: ClassRef | None, state: State) -> None:
        params = function.params
        static = any(text_of(d) in ("staticmethod",) for d in function.decorators)
        start = 0
        if owner is not None and params and not static:
            first = params[0].name
            if any(text_of(d) == "classmethod" for d in function.decorators):
                state.vars[self.frame, first] = frozenset((Cls(owner.path, owner.qualname),))
            else:
                me = self.outside("self", first, owner, key="self")
                state.vars[self.frame, first] = frozenset((Obj(me),))
                if EVERYTHING in self.frozen_attributes:
                    state.vars[me, "$frozen"] = const(True)
                for name in sorted(self.frozen_attributes - {EVERYTHING}):
                    for atom in self.object_attribute(me, name, None, state):
                        if type(atom) is Obj:
                            state.vars[atom.oid, "$frozen"] = const(True)
            start = 1
        for param in params[start:]:
            state.vars[self.frame, param.name] = self.root_parameter(param)
        if owner is not None and function.name in ("forward", "setup_context") and self.world.is_autograd_function(owner):
            self.open_context(function, state)

    def open_context(self, function: ir.Function, state: State) -> None:
        """In an ``autograd.Function``'s forward or setup_context: the first parameter is its context; without grad, nothing
        that it is given has a graph here."""
        state.mode = "off"
        self.weighs_evidence = True
        for number, param in enumerate(function.params):
            for atom in state.vars.get((self.frame, param.name), EMPTY):
                if type(atom) is not Obj:
                    continue
                if number == 0:
                    self.contexts.add(atom.oid)
                elif self.heap[atom.oid].kind != "thing":
                    continue
                elif param.annotation is not None and text_of(param.annotation) in ("torch.Tensor", "Tensor"):
                    self.notice((self.thing_graph(atom.oid),), TENSOR)
                if number == 2 and function.name == "setup_context":
                    self.record.returned.add(self.thing_graph(atom.oid))  # the output
                    self.notice((self.thing_graph(atom.oid),), TENSOR)

    def root_parameter(self, param: ir.Param) -> Value:
        if param.kind == "*":
            return UNKNOWN
        if param.kind == "**":
            return frozenset((Obj(self.outside("dict", param.name, None, key=("param", self.frame, param.name))),))
        ref = self.frame_closure[self.frame].ref
        if ref.qualname.endswith(".__init__") and FREEZING_FLAG.search(param.name):
            known = self.constructed_with(ref, param.name)
            if known is not None:
                return const(known)
        found = self.world.project.class_of(ref.path, ref.qualname, param.name)
        oid = self.outside("thing", param.name, found, key=("param", self.frame, param.name))
        if found == "torch.Tensor":
            found = None
        self.classify(oid, found, param.name)
        return frozenset((Obj(oid),))

    def constructed_with(self, init: FunctionRef, flag: str) -> bool | None:
        """What a flag of a constructor is wherever objects are made in sight, or by default where nobody makes any."""
        params = self.world.facts(init).params
        if not any(param.name == flag and param.default in ("True", "False") for param in params):
            return None
        return self.world.project.test_holds(init, flag)

    def run_hooks(self, state: State) -> None:
        """Functions that the root registered as hooks: what they do with what a module gives them."""
        mode = "off" if self.hooks_only_without_grad() else "on"
        for atom in sorted_atoms(frozenset(self.hooked)):
            assert type(atom) is Func
            closure = self.closures[atom.key]
            if closure.lowered is None:
                found = None if self.tired() else self.world.function(closure.ref)
                if found is None:
                    continue
                closure.function, closure.lowered = found
            params = list(closure.function.params)
            bound: dict[str, Value] = {}
            if atom.receiver >= 0 and params:
                bound[params.pop(0).name] = frozenset((Obj(atom.receiver),))
            for param in params:
                oid = self.outside("thing", param.name, None, key=("hook", atom.key, param.name))
                bound[param.name] = frozenset((Obj(oid),))
            given = [a.oid for p in params[1:] for a in bound[p.name] if type(a) is Obj]
            self.hook_arguments = frozenset(self.thing_graph(oid) for oid in given)
            inner = State({**self.defined[atom.key].vars, **state.vars} if atom.key in self.defined else dict(state.vars), mode)
            self.ends.append(FrameEnds())
            self.run_function(closure, bound, closure.function.node, inner)
            self.ends.pop()
            self.hook_arguments = NOTHING

    def hooks_only_without_grad(self) -> bool:
        """Whether the root takes its hooks away again, and all that it runs itself meanwhile runs with grad mode off."""
        record = self.record
        if not record.forwards or "remove" not in self.world.facts(record.root).names:
            return False
        return not any(graph.mode != "off" and (graph.kind == "forward" or graph.direct) for graph in record.graphs.values())

    def run_uncalled(self, state: State) -> None:
        """Closures that the root never called itself (callbacks, hooks): run once with unknown arguments, in an unknown grad mode,
        or that of the call that runs them."""
        lambdas = {key: handed.state for key, handed in self.handed.items() if key not in self.defined}
        for key, at_definition in [*self.defined.items(), *sorted(lambdas.items())]:
            closure = self.closures[key]
            if closure.called or closure.parent != 0:
                continue
            handed = self.handed.get(key)
            mode = handed.state.mode if handed is not None else "unknown"
            inner = State({**state.vars, **{k: v for k, v in at_definition.vars.items() if k not in state.vars}}, mode)
            own = self.decorated_mode_or_none(closure.ref)
            if own is not None:
                inner.mode = own
            bound: dict[str, Value] = {}
            for param in closure.function.params:
                oid = self.outside("thing", param.name, None, key=("closure", key, param.name))
                bound[param.name] = frozenset((Obj(oid),))
            self.ends.append(FrameEnds())
            result = self.run_function(closure, bound, closure.function.node, inner)
            self.ends.pop()
            if handed is not None:
                self.sink(*self.whole(result, inner), "passed", handed.text, handed.node)

    def decorated_mode_or_none(self, ref: FunctionRef) -> str | None:
        try:
            return self.decorated_mode(ref)
        except KeyError:
            return None


def finish(record: Record) -> None:
    """Back-propagation, once all graphs know what they hang on: judged at the end, because a backward frees a graph for every
    value that hangs on it, whether it was stored before or after."""
    for event in record.events.values():
        if isinstance(event, Backward):
            sure = record.ancestors(event.graphs)
            record.backwarded |= sure | record.ancestors(event.hints)
            record.trained |= sure
            if not event.retain and not event.partial:
                record.freed |= sure


def cache_size(decorator: ir.Expr) -> int | None:
    """How many calls ``lru_cache`` or ``cache`` keeps, None for all."""
    call = decorator if isinstance(decorator, ir.Call) else None
    if dotted(call.func if call is not None else decorator).rpartition(".")[2] == "cache":
        return None
    given = next((a.value for a in call.args if a.keyword in (None, "maxsize")), None) if call is not None else None
    if not isinstance(given, ir.Const):
        return 128
    return given.value if isinstance(given.value, int) else None


def flat(atom: Atom, run: Interpreter, state: State, depth: int = 2) -> list[Atom]:
    """The atom, or what a tuple or a known container of that name holds."""
    inner: list[Value] = []
    if depth and type(atom) is Tuple:
        inner = list(atom.items)
    elif depth and type(atom) is Obj and run.heap[atom.oid].kind in CONTAINERS:
        inner = run.contents(atom.oid, state)
    else:
        return [atom]
    return [one for value in inner for part in value for one in flat(part, run, state, depth - 1)]


def takes_part(text: str, expr: ir.Expr) -> bool:
    """Whether a name or attribute is an operand of arithmetic."""
    if not isinstance(expr, ir.Binary):
        return False
    return any(text_of(operand) == text or takes_part(text, operand) for operand in (expr.left, expr.right))


def carries(place: tuple[int, str], value: Value, before: State, run: Interpreter) -> bool:
    """Whether a place that changed in a loop's pass was there before the loop, and may hold a tensor that brings something of
    this pass along: one that was detached in place (``total.detach_()``) brings nothing."""
    if place[1].startswith("$") or place not in before.vars:
        return False
    if not any(type(a) in (Unknown, Tuple) or (type(a) is Tensor and (a.graphs or a.hints or a.outputs)) for a in value):
        return False
    return place[0] < len(run.record.frames) or not place[1].startswith("[")


def replaced_items(statement: ir.For) -> ir.Subscript | None:
    """The target ``d[k]`` where a loop over a dict's keys or items gives each key a new value."""
    iterable, key = statement.iterable, statement.target
    if isinstance(iterable, ir.Call) and dotted(iterable.func) in ("list", "tuple", "sorted") and len(iterable.args) == 1:
        iterable = iterable.args[0].value
    if isinstance(iterable, ir.Call) and isinstance(iterable.func, ir.Attr) and not iterable.args:
        if iterable.func.name == "items" and isinstance(key, ir.Sequence) and len(key.items) == 2:
            key = key.items[0]
        elif iterable.func.name != "keys":
            return None
        iterable = iterable.func.value
    text = dotted(iterable)
    if not text or not isinstance(key, ir.Name) or leaves_early(statement.body):
        return None
    for inner in statement.body:
        if isinstance(inner, ir.Assign) and len(inner.targets) == 1:
            target = inner.targets[0]
            if isinstance(target, ir.Subscript) and dotted(target.value) == text and len(target.index) == 1:
                if isinstance(target.index[0], ir.Name) and target.index[0].id == key.id:
                    return target
    return None


def leaves_early(body: list[ir.Stmt]) -> bool:
    """Whether a turn of a loop may end before its body does."""
    return any(
        isinstance(statement, (ir.Break, ir.Continue)) or any(leaves_early(inner) for inner in nested_blocks(statement))
        for statement in body
    )


def reads_item(expr: ir.Expr, target: ir.Subscript) -> bool:
    """Whether an expression reads the very item that is assigned: ``d[k]``, or ``d.get(k, 0)``."""
    if text_of(expr) == text_of(target):
        return True
    return (
        isinstance(expr, ir.Call)
        and isinstance(expr.func, ir.Attr)
        and expr.func.name in ("get", "setdefault", "pop")
        and text_of(expr.func.value) == text_of(target.value)
        and bool(expr.args)
        and len(target.index) == 1
        and text_of(expr.args[0].value) == text_of(target.index[0])
    )


def literal_turns(expr: ir.Expr, value: Value) -> list[Value] | None:
    """The turns of a loop over a short display of strings or truth values; None for any other loop."""
    if isinstance(expr, ir.Sequence) and 1 <= len(expr.items) <= 4:
        turns = []
        for item in expr.items:
            if not isinstance(item, ir.Const) or not isinstance(item.value, (str, bool)):
                return None
            turns.append(const(item.value))
        return turns
    return None


PLAIN_TYPES = frozenset({"int", "float", "str", "bool", "bytes", "Number", "ndarray"})
CONTAINER_TYPES: dict[str, frozenset[str]] = {
    "list": frozenset({"list"}), "tuple": frozenset({"tuple"}), "set": frozenset({"set"}), "dict": frozenset({"dict"}),
    "Mapping": frozenset({"dict"}), "MutableMapping": frozenset({"dict"}), "OrderedDict": frozenset({"dict"}),
    "Sequence": frozenset({"list", "tuple"}),
}  # fmt: skip
"""Types that are asked for, by their last name, and the kinds of container that pass."""


def type_names(expr: ir.Expr) -> list[str]:
    """The types in the second argument of ``isinstance``, as written: ``(list, tuple)``, ``list | tuple``."""
    match expr:
        case ir.Sequence():
            return [name for item in expr.items for name in type_names(item)]
        case ir.Binary(op="|"):
            return [*type_names(expr.left), *type_names(expr.right)]
        case _:
            return [dotted(expr)]


def phases_in(statement: ir.If) -> list[tuple[set[str], str, int]]:
    """The tests in an ``if`` that look like phases: their names, their text, and 2 for one that is sure, by what the branches do
    and by its words, 1 for a suspicion."""
    test = statement.test
    while isinstance(test, ir.Unary) and test.op == "not":
        test = test.value
    found: list[tuple[set[str], str, int]] = []
    trains = does_training(statement.then) or does_training(statement.orelse)
    for one in [test.left, test.right] if isinstance(test, ir.BoolOp) else [test]:
        while isinstance(one, ir.Unary) and one.op == "not":
            one = one.value
        if isinstance(one, ir.Compare) and one.ops[0] in ("!=", "is not"):
            one = ir.Compare(one.node, one.left, ["==" if one.ops[0] == "!=" else "is"], one.comparators)
        if is_phase_test(one):
            text = text_of(one)
            says_so = PHASE_WORD.search(text.lower()) is not None
            if trains or says_so:
                found.append((names_in(one), text, 2 if trains and says_so else 1))
    return found


def is_phase_test(test: ir.Expr) -> bool:
    """Tests that can be assumed: a name, an attribute, a comparison of one with a literal or None, a call without arguments."""
    match test:
        case ir.Name() | ir.Attr():
            return bool(dotted(test))
        case ir.Call(args=[]):
            return bool(dotted(test.func))
        case ir.Compare(ops=["==" | "is"], comparators=[ir.Const()]):
            return bool(dotted(test.left))
        case _:
            return False


def leaves(body: list[ir.Stmt]) -> bool:
    """Whether a loop's body, run to its end without an exception, leaves the loop."""
    match body[-1] if body else None:
        case ir.Break() | ir.Return():
            return True
        case ir.Try() as last:
            return leaves(last.orelse or last.body)
        case ir.With() as last:
            return leaves(last.body)
        case _:
            return False


def names_in(expr: ir.Expr) -> set[str]:
    """Bare names at the roots of an expression's parts."""
    match expr:
        case ir.Name():
            return {expr.id}
        case ir.Attr() | ir.Star():
            return names_in(expr.value)
        case ir.Subscript():
            return names_in(expr.value)
        case ir.Call():
            return names_in(expr.func)
        case ir.Compare():
            return names_in(expr.left)
        case ir.Sequence():
            return set().union(*(names_in(i) for i in expr.items)) if expr.items else set()
        case _:
            return set()


def does_training(body: list[ir.Stmt]) -> bool:
    """Whether a block back-propagates or steps an optimizer in its own statements."""
    for statement in body:
        if isinstance(statement, ir.ExprStmt) and isinstance(statement.value, ir.Call):
            func = statement.value.func
            last = func.name if isinstance(func, ir.Attr) else dotted(func)
            if last in ("backward", "step", "zero_grad", "manual_backward"):
                return True
        for inner in nested_blocks(statement):
            if does_training(inner):
                return True
    return False


def nested_blocks(statement: ir.Stmt) -> list[list[ir.Stmt]]:
    """The blocks inside a compound statement, functions and classes left out."""
    match statement:
        case ir.If():
            return [statement.then, statement.orelse]
        case ir.For() | ir.While():
            return [statement.body, statement.orelse]
        case ir.With():
            return [statement.body]
        case ir.Try():
            return [statement.body, statement.orelse, statement.final, *(h.body for h in statement.handlers)]
        case ir.Match():
            return [c.body for c in statement.cases]
        case _:
            return []


_STATEMENTS: dict[type, Callable[[Any, Any, State], State | None]] = {
    ir.ExprStmt: Interpreter.expression,
    ir.Assign: Interpreter.assignment,
    ir.Declare: Interpreter.declaration,
    ir.AugAssign: Interpreter.augmented,
    ir.If: Interpreter.branch,
    ir.For: Interpreter.for_loop,
    ir.While: Interpreter.while_loop,
    ir.Try: Interpreter.try_block,
    ir.With: Interpreter.with_block,
    ir.Return: Interpreter.return_,
    ir.Raise: Interpreter.raise_,
    ir.Break: Interpreter.break_,
    ir.Continue: Interpreter.continue_,
    ir.Delete: Interpreter.delete,
    ir.Assert: Interpreter.assert_,
    ir.Scope: Interpreter.scope,
    ir.ImportStmt: Interpreter.import_,
    ir.FunctionDef: Interpreter.define,
    ir.ClassDef: Interpreter.class_,
    ir.Match: Interpreter.matching,
}

__all__ = ["Interpreter", "Span", "first_parameter", "graphs_of", "hints_of", "join_all", "unknown"]
