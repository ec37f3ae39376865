"""Calls of code that is not visible, such as methods of unknown objects."""

from __future__ import annotations

import builtins
from collections.abc import Iterator

from torchmemlint.index.fact_words import AttrKind
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.written import dotted, text_of
from torchmemlint.semantics.identity import condition_of, texts_of_module
from torchmemlint.semantics.interpret import (
    STORING,
    arithmetic,
    cut_all,
    function_value,
    is_plain_name,
    record_call,
    store_in,
    thing_element,
    whole_logits,
)
from torchmemlint.semantics.mode import guards_itself, purpose
from torchmemlint.semantics.models.backward import back_propagate
from torchmemlint.semantics.models.forward import is_given_data, is_given_on_host, keeps_packed, stays_free, through_module
from torchmemlint.semantics.models.grad_managers import grad_manager
from torchmemlint.semantics.models.modules import methods_meant
from torchmemlint.semantics.models.operations import STANDARD_LIBRARY, torch_function
from torchmemlint.semantics.state import (
    BATCH,
    EMPTY,
    FREE_TENSOR,
    GUESSED,
    INTEGER,
    MADE_KINDS,
    MOVED,
    NONE,
    NOTHING,
    PLAIN,
    SCALAR,
    UNKNOWN,
    Atom,
    Call,
    Ext,
    Graph,
    GraphKind,
    Kind,
    Machine,
    Mode,
    Obj,
    Seen,
    Shape,
    SinkKind,
    State,
    Tensor,
    Value,
    World,
    call_atom,
    call_method,
    does_nothing,
    hints_of,
    is_number,
    is_text,
    join_all,
    memoized,
    only_const,
    tensor,
)
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import CallByName, Effect

FORWARD = TORCH.names["forward"]
BACKWARD = TORCH.names["backward"]
STEPS = TORCH.names["steps"]
CLEARS = TORCH.names["clears-gradients"]
ARRAYS = TORCH.words["chooses-arrays"]
"""Arguments of tokenizers that choose whose tensors they give."""
OTHER_FRAMEWORKS = TORCH.words["other-frameworks"]
"""What tokenizers call the tensors of other frameworks: https://huggingface.co/docs/transformers/main_classes/tokenizer."""
COMMON_METHODS = TORCH.words["common-methods"]
"""Methods that objects outside the project have as well: their name says nothing about the class."""
PARTS = frozenset({"get", "pop"})
"""Methods of a dict that give a part of it."""
PASS_THROUGH = TORCH.words["passes-through"]
"""Methods that hand their tensor argument on with its graph, or with none: GradScaler.scale, distributed reductions."""


def torch_name(func: ir.Expr) -> str:
    """The absolute name of torch's function that is written ``torch.x``, ``nn.functional.x`` or ``F.x``; empty where torch has
    none of that name."""
    head, _, rest = dotted(func).partition(".")
    module = TORCH.usual_names.get(head)  # however it came to be: `torch, nn = try_import_torch()`
    name = f"{module}.{rest}" if module else ""
    return name if name in TORCH.functions else ""


def call_opaque(
    m: Machine,
    what: str,
    call: Call,
    state: State,
    hints: frozenset[int] = NOTHING,
    oid: int = -1,
    direct: bool = False,
) -> Value:
    """An unresolved call: its result may depend on whatever went in, and may be attached by itself. ``oid`` is the unknown
    object that is called, or whose method is; ``direct`` says that this may run a network."""
    # What is given nothing has nothing to run on (``env_fn()``); a tokenizer gets an argument for what to return.
    values = call.all()
    direct = direct and bool(values) and not ARRAYS & call.keywords.keys()
    whole_logits(m, values, state)
    last = what.rpartition(".")[2].partition("(")[0]
    named = known_by_name(m, last, call, state, oid, direct)
    if named is not None:
        return named
    gathered = hints.union(*(m.whole(value, state)[0] for value in values))
    inert = last in TORCH.inert_methods or what in TORCH.inert_calls
    if gathered and state.mode is not Mode.OFF:
        m.sink(gathered, SinkKind.SHOWN if inert else SinkKind.PASSED, what, call.node)
    if inert:
        return PLAIN
    if state.mode is Mode.OFF:
        m.sink(gathered, SinkKind.CUT, "no_grad", call.node)
        return opaque_without_grad(m, what, call) if direct else tensor(flags=GUESSED)
    known = frozenset(g for g in gathered if g in m.record.graphs)
    gid = m.graph(
        GraphKind.OPAQUE, call.node, what, key=(what, oid), parents=known, mode=state.mode, module=oid, direct=direct,
        training=m.training(oid, state),
        frozen=oid >= 0 and (direct or m.heap[oid].kind is Kind.MODULE) and stays_free(m, oid, known, state),
    )  # fmt: skip
    m.record.graphs[gid].given_on_host = is_given_on_host(call)
    if direct and oid >= 0 and is_given_data(m, known):
        m.record.graphs[gid].frozen_if = condition_of(m, oid, state)
    if is_foreign(call) or not m.foreign.isdisjoint(known):
        m.foreign.add(gid)
        m.notice((gid,), Seen.ARRAY)
    through = through_module(m, known) if direct else set()
    return tensor(frozenset((gid, *through)), known, flags=keeps_packed(call, None) if direct else 0)


def known_by_name(m: Machine, last: str, call: Call, state: State, oid: int, direct: bool) -> Value | None:
    """What a call that is not visible returns, if the last part of its name shows that; else None."""
    values = call.all()
    for name in dict.fromkeys((last, *methods_kept(m, call, oid))) if oid >= 0 else ():
        if name not in TORCH.words["forward"] and guards_itself(m.world, name, call.shape):
            cut_all(m, call, state, "no_grad")
            return guarded_result(m, name, call)
    if "detach" in last or any(type(a) is Ext and a.name.endswith(".detach") for v in values for a in v):
        # A helper that is named for what it does, or that is handed ``torch.Tensor.detach`` to map.
        cut_all(m, call, state, ".detach()")
        return FREE_TENSOR
    if not direct and oid < 0 and values:
        # A wrapper library's function with the name of a tensor operation does what the operation does.
        effect = TORCH.methods.get(last) or TORCH.function_effect(f"torch.{last}")
        if effect in (Effect.KEEP, Effect.VIEW, Effect.CUT, Effect.LOSS):
            return torch_function(m, f"torch.{last}", effect, call, state)
    passing = TORCH.backward_methods.get(last)
    if passing is Effect.PASSES and call.positional:
        return arithmetic(m, [call.positional[0]], call.node, state)
    if passing is Effect.BACKPROPAGATES and values:
        back_propagate(m, [join_all(call.positional[:1] or values)], call, state)
        return NONE
    if last in PASS_THROUGH and call.positional:
        return arithmetic(m, [call.positional[0]], call.node, state)
    return None


def methods_kept(m: Machine, call: Call, oid: int) -> Iterator[str]:
    """The names of the methods that the object which is called may be, where it is kept under another name: ``make = net.generate``."""
    owner, _, name = m.heap[oid].name.rpartition(".")
    if type(call.func) is ir.Attr and call.func.name != name:
        return  # a method of the object
    if owner:
        yield name
    if owner != "self":
        return
    for fact, _ in m.world.assigned(m.ref, f"self.{name}"):
        if fact.kind is AttrKind.NAME and "." in fact.value:
            yield fact.value.rpartition(".")[2]


def opaque_without_grad(m: Machine, what: str, call: Call, kind: GraphKind = GraphKind.OPAQUE) -> Value:
    """What may be a network's output, made with grad mode off: its storage is on the device all the same."""
    number = m.number("graph", "opaque-off", m.frame, call.node, m.turn, what)
    m.record.forwards.setdefault(number, Graph(number, kind, m.site(call.node), what, mode=Mode.OFF, direct=True))
    return tensor(outputs=frozenset((number,)), flags=BATCH)


def guarded_result(m: Machine, name: str, call: Call) -> Value:
    """What a method that switches grad mode off by itself gives: no graph, but where every method of the project that may be meant
    is a module's and returns a network's output, that is on the device all the same."""
    meant = methods_meant(m, name, call)
    if not meant or not all(gives_an_output(m, ref) for ref in meant):
        return FREE_TENSOR
    return opaque_without_grad(m, text_of(call.func), call, GraphKind.FORWARD)


def gives_an_output(m: Machine, ref: FunctionRef) -> bool:
    """Whether a method is a module's and returns a network's output, on the device."""
    if not m.world.is_of_module(ref):
        return False
    given = m.result_of(ref, Mode.OFF)
    return bool(given) and all(map(is_output, given))


def handed_output(m: Machine) -> tuple[int, Value] | None:
    """The position of the root's parameter in which a framework hands it what a network gave, and what that is; None where there is none,
    or where the step of a visible module gives something else."""
    handed = m.world.as_overriding(m.record.root, TORCH.handed_outputs)
    if handed is None or not all(gives_an_output(m, ref) for ref in m.world.project.methods_named(handed.step)):
        return None
    number = m.number("graph", "handed", m.frame)
    m.record.forwards[number] = Graph(number, GraphKind.FORWARD, m.site(-1), handed.step, mode=Mode.OFF)
    return handed.at, tensor(outputs=frozenset((number,)), flags=BATCH)


def is_output(atom: Atom) -> bool:
    """Whether a value is all or a part of a network's output, on the device as far as its function shows."""
    return type(atom) is Tensor and bool(atom.outputs) and not atom.flags & (MOVED | SCALAR | INTEGER)


def is_foreign(call: Call) -> bool:
    """Whether a tokenizer or processor is asked for another framework's arrays. (Who is asked for the kind of tensors makes them
    of text, sound or pictures, and is no network.)"""
    wanted = [only_const(call.keywords[name]) for name in ARRAYS & call.keywords.keys()]
    return any(const is not None and const.value in OTHER_FRAMEWORKS for const in wanted)


def thing_method(m: Machine, oid: int, name: str, call: Call, state: State) -> Value:
    """A method of an unknown object: a tensor's if tensors have it, a container's, or a name of the project's own."""
    if oid in m.loaded and name in PARTS and call.positional:
        return thing_element(m, oid, only_const(call.positional[0]))
    own = m.world.project.methods_named(name)
    known = torch_name(call.func)
    if known and call.all() and not own:
        return call_atom(m, Ext(known), call, state)
    gid = m.thing_graph(oid)
    manager = TORCH.functions.get(f"torch.{name}") if not own else None
    if manager in (Effect.GRAD_OFF, Effect.GRAD_ON, Effect.GRAD_SET):  # torch itself, handed on as an argument
        return grad_manager(m, f"torch.{name}", manager, call, state)
    if name == FORWARD:
        return call_opaque(m, text_of(call.func), call, state, oid=oid, direct=True)
    if name in STORING and len(call.positional) >= 1 and name != "add":
        store_in(m, oid, m.heap[oid].name, STORING[name], call.positional[-1], call.node, call.exprs[-1], state)
        return NONE
    if hands_out_a_number(name, call):
        return PLAIN
    if name in TORCH.methods and not is_of_standard_library(m.heap[oid].cls):
        return call_method(m, Tensor(frozenset((gid,))), name, call, state)
    if m.weighs_evidence:
        m.notice((gid,), Seen.NO_TENSOR)
    return method_no_tensor_has(m, oid, name, call, state)


def hands_out_a_number(name: str, call: Call) -> bool:
    """Whether a mapping is asked for a value with a number in its stead: ``out.get("patch_size", 16)``."""
    return name == "get" and len(call.positional) == 2 and is_number(call.positional[1])


def may_be_attached(m: Machine, call: Call, state: State) -> bool:
    """Whether the first argument depends on what a network, or a call that is not visible, gave."""
    graphs, _, _, _ = m.deep(call.positional[0], state) if call.positional else (NOTHING, NOTHING, NOTHING, 0)
    return any(m.record.graphs[g].kind in MADE_KINDS for g in graphs)


def method_no_tensor_has(m: Machine, oid: int, name: str, call: Call, state: State) -> Value:
    """What no tensor has: a method, or a network that the object holds (``nets.generator(x)``), by the name where nothing else tells."""
    if is_method_of_builtin(m.heap[oid].cls, name) or is_method_of_text(m, name, call):
        return PLAIN
    if name not in COMMON_METHODS and guards_itself(m.world, name, call.shape):
        return guarded_result(m, name, call)
    if name in TORCH.part_methods and not call.all() and not m.world.project.methods_named(name):
        return frozenset((Obj(oid),))
    if name == STEPS and (not call.positional or is_given_an_optimizer(m, call)):
        record_call(m, CallByName.OPTIMIZER_STEP, text_of(call.func), call)
    if give_plain_values(m.world, name) and not is_given_from_outside(m, oid):
        return plain_result(m, frozenset((Obj(oid),)), name, call, state)
    methods = methods_meant_by(m, name, call)
    if methods and not is_given_from_outside(m, oid):
        return call_methods(m, methods, m.heap[oid].name, (oid, "as"), call, state)
    if name not in HANDS_OUT and is_given_text(m, call) and not any(m.whole(value, state)[0] for value in call.all()):
        return UNKNOWN  # a setting that is asked for by its name: a network is given tensors
    held = m.world.project.is_attribute_only(name) or (purpose.may_be_network(name) and not m.world.project.methods_named(name))
    runs = name not in TORCH.module_methods and held
    out = call_opaque(m, text_of(call.func), call, state, oid=oid, direct=runs)
    if runs and m.frozen_wherever(name):
        freeze(m, out, call)
    return out


def is_of_standard_library(cls: object) -> bool:
    """Whether a class is one of Python's library, whatever its methods are called: ``logger.log(level, text)``."""
    return isinstance(cls, str) and cls.partition(".")[0] in STANDARD_LIBRARY


def is_method_of_builtin(cls: object, name: str) -> bool:
    """Whether a class is one of Python's own that has a method of that name: ``text.encode("utf-8")`` of a parameter that is annotated."""
    package, _, last = str(cls).partition(".")
    return package == builtins.__name__ and hasattr(getattr(builtins, last, None), name)


def is_method_of_text(m: Machine, name: str, call: Call) -> bool:
    """Whether a method that strings, or bytes, have is given strings alone: ``raw.decode("utf-8")``. A network is given tensors."""
    if not (hasattr(str, name) or hasattr(bytes, name)):
        return False
    values = call.all()
    return is_given_text(m, call) and all(map(is_text, values[1:]))


def is_given_text(m: Machine, call: Call) -> bool:
    """Whether the first argument is a string, or a variable of the module that its own statements bind to one (``SAMPLE_TEXT``)."""
    if is_text(next(iter(call.all()), EMPTY)):
        return True
    first = call.exprs[0] if call.exprs else None
    closure = m.frame_closure[m.frame]
    if type(first) is not ir.Name or first.id in closure.function.locals:
        return False
    return first.id in texts_of_module(m.world, closure.ref.path)


def is_given_an_optimizer(m: Machine, call: Call) -> bool:
    """Whether the first argument is an optimizer, by its kind or by what the code does with it: ``scaler.step(optimizer)``."""
    return any(
        type(atom) is Obj
        and (m.heap[atom.oid].kind is Kind.OPTIMIZER or CLEARS in m.evidence.get(m.heap[atom.oid].name, frozenset()))
        for atom in call.positional[0]
    )


def freeze(m: Machine, out: Value, call: Call) -> None:
    """Note that what a call gives has no graph where what it is given has none: wherever the project sets an attribute of that name,
    it freezes the network."""
    for graph in (m.record.graphs[gid] for gid in hints_of(out) if gid in m.record.graphs):
        if graph.site == m.site(call.node) and graph.kind is GraphKind.OPAQUE and is_given_data(m, graph.parents):
            graph.frozen = True


def methods_meant_by(m: Machine, name: str, call: Call) -> tuple[FunctionRef, ...]:
    """The methods of the project that a call on an unknown object may run."""
    return _methods_meant_by(m.world, name, None if call.more else call.shape)


@memoized
def _methods_meant_by(world: World, name: str, shape: Shape | None) -> tuple[FunctionRef, ...]:
    """Of the methods of a name that take such arguments, the only one that does something, or a few that override one method;
    none where the name is everybody's."""
    named = world.project.methods_named(name)
    if name in COMMON_METHODS or len(named) > MAX_NAMESAKES:
        return ()
    found = [ref for ref in named if shape is None or shape.fits(world.header(ref).params)]
    doing = tuple(ref for ref in found if len(found) == 1 or not does_nothing(world, ref))
    owners = [ClassRef(ref.path, world.header(ref).owner) for ref in found]
    related = any({*owners} <= {each, *world.project.subclasses(each)} for each in owners)
    return doing if len(doing) == 1 or (related and len(doing) <= MAX_OVERRIDES) else ()


@memoized
def give_plain_values(world: World, name: str) -> bool:
    """Whether every method of the project that has a name says by its annotation that it gives numbers or words, or a container of them:
    ``def as_dict(self) -> dict[str, float]``."""
    named = world.project.methods_named(name)
    if name in COMMON_METHODS or not 0 < len(named) <= MAX_NAMESAKES:
        return False
    return all(is_plain_name(world.header(ref).returns.rstrip("[]{}")) for ref in named)


def plain_result(m: Machine, receiver: Value, name: str, call: Call, state: State) -> Value:
    """What such a method gives: its object, and what it is given, ends there as numbers do."""
    for value in (receiver, *call.all()):
        m.sink(*m.whole(value, state), SinkKind.CUT, name, call.node)
    return PLAIN


HANDS_OUT = TORCH.words["hands-out"]
MAX_NAMESAKES = 8
"""Methods of one name that are looked at: a name that many have says nothing."""
MAX_OVERRIDES = 3
"""Methods that a call on an unknown object runs, one after the other."""


def call_methods(
    m: Machine, methods: tuple[FunctionRef, ...], receiver: str, key: tuple[object, ...], call: Call, state: State
) -> Value:
    """What a call on an unknown object gives that may run each of these methods."""
    given = []
    for method in methods:
        cls = ClassRef(method.path, m.world.header(method).owner)
        oid = m.outside(Kind.INSTANCE, receiver, cls, key=(*key, method))
        given += [call_atom(m, atom, call, state) for atom in function_value(m, method, oid)]
    return join_all(given)


def is_given_from_outside(m: Machine, oid: int) -> bool:
    """Whether an object is a parameter for which all calls give objects of other packages' classes."""
    name, ref = m.heap[oid].name, m.ref
    facts = m.world.facts(ref)  # of a lambda, those of the function around it
    if not name.isidentifier() or all(param.name != name for param in facts.params):
        return False
    given = m.world.project.classes_given(FunctionRef(ref.path, facts.qualname), name)
    return bool(given) and all(isinstance(cls, str) for cls in given)
