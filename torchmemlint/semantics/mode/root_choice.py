"""Which functions are worth a run of their own, where only a name or a word of inference suggests it.

It is a look at their facts, before anything is parsed again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchmemlint.index.edges import Callees
from torchmemlint.index.fact_words import ResultUse
from torchmemlint.index.facts import ArgFact, CallFact, FunctionFacts
from torchmemlint.index.modes import StartMode
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.semantics.identity import class_kind, has_parameters, looks_like_module
from torchmemlint.semantics.mode import purpose
from torchmemlint.semantics.mode.grad_guards import start_mode
from torchmemlint.semantics.state import MODULE, Kind, World, memoized
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import ClassKind, Effect

WITH_GRAPHS = frozenset({StartMode.ON, StartMode.MIXED, StartMode.NO_CALLERS, StartMode.ESCAPES})
"""Modes of a function's callers (``grad_guards.start_mode``) in which a model that it runs may build a graph."""
BACKWARD = TORCH.words["back-propagates"]
DEVICE_WORDS = TORCH.words["device-words"]
CUTS = TORCH.words["detaches"] | TORCH.words["reads-out"]
CALLS_DEEP = 2
"""Calls over which a word is looked for."""
MAX_DEPTH = 5
"""Calls over which a network is looked for: as many as a run follows (``models.functions``)."""
LOOP = re.compile(r"^\s*(async\s+)?for\b|\bfor\b.*\bin\b")
DRAWS = re.compile(r"\bnext\(")
"""An iteration that takes its batch itself."""
NAME = re.compile(r"[^\W\d][\w.]*")
RUN_WHAT_THEY_GET = TORCH.words["runs-its-argument"]
"""Functions that call their argument: facts leave ``map`` out, and list the others by their own name."""
OF_EVERYTHING = TORCH.words["methods-of-plain-objects"].union(*map(dir, (list, dict, set, str, bytes, float)))
"""Methods of containers, strings, files, patterns and loggers."""


def may_build_graphs(world: World, ref: FunctionRef) -> bool:
    """Whether the function may run a model with grad mode on in its own statements: nothing else can be inference with grad."""
    if world.project.is_test(ref):
        return False
    return (
        any(may_run_model(world, each, facts) for each, facts in family(world, ref)) and start_mode(world, ref) in WITH_GRAPHS
    )


def reads_data(world: World, ref: FunctionRef) -> bool:
    """Whether the function reads the ``data`` of something: what only sets it, cuts nothing off."""
    return any(
        ".data." in f"{text}."
        for _, facts in family(world, ref)
        for text in (*facts.reads, *(call.callee for call in facts.calls))
    )


def reaches_network(world: World, ref: FunctionRef) -> bool:
    """Whether the function may run a model, or calls a function of the project that runs a network, over as many calls as a run follows:
    only then can it have what a network gives."""
    if any(may_run_model(world, each, facts) for each, facts in family(world, ref)):
        return True
    cls = world.class_of_method(ref)
    return any(_reaches_network(world, *each, MAX_DEPTH - 1) for each in called_on(world, ref, cls))


@memoized
def _reaches_network(world: World, ref: FunctionRef, cls: ClassRef | None, depth: int) -> bool:
    return any(is_network(world, each, call) for each, facts in family(world, ref) for call in calls_by_meaning(facts)) or (
        depth > 0 and any(_reaches_network(world, *each, depth - 1) for each in called_on(world, ref, cls))
    )


def called_on(world: World, ref: FunctionRef, cls: ClassRef | None) -> dict[tuple[FunctionRef, ClassRef | None], None]:
    """The functions of the project that a function may call where its object is of a class, or of one below it; each with the class of
    its object where that is the same."""
    found: dict[tuple[FunctionRef, ClassRef | None], None] = {}
    only = cls if cls is not None and not world.project.subclasses(cls) else None
    inside = dict(family(world, ref))
    for each, facts in inside.items():
        for call in calls_by_meaning(facts):
            owner, _, name = call.callee.partition(".")
            own = world.project.method(only, name) if only is not None and owner == "self" else None
            refs = (own,) if own is not None else callees(world, each, call).refs
            same = only if own is not None or owner == "super()" else None
            found |= {(callee, same): None for callee in refs if callee not in inside}
    return found


def may_waste_graphs(world: World, ref: FunctionRef) -> bool:
    """Whether the function, which has no word of a mistake, may run a network for nothing but its result: what it calls is known
    for a module, or reads like one, and it is itself no part of a module, or goes over data in a loop and cuts the results off."""
    facts = world.facts(ref)
    if world.project.is_test(ref):
        return False
    is_part = world.is_of_module(ref) is not False
    if is_part and (ref.qualname.rpartition(".")[2] in TORCH.words["forward"] or facts.names.isdisjoint(CUTS)):
        return False
    called = calls_by_meaning(facts, loops_alone=bool(is_part))
    runs = any(is_network(world, ref, call) for call in called) or cuts_what_others_run(world, ref, facts)
    return runs and start_mode(world, ref) in WITH_GRAPHS


def calls_by_meaning(facts: FunctionFacts, loops_alone: bool = False) -> list[CallFact]:
    """The calls of a function, of those alike in what is asked of them here one alone; ``loops_alone`` those inside its loops."""
    alike = {
        (call.callee, call.keywords, call.used is ResultUse.DROPPED): call
        for call in facts.calls
        if call.loops or not loops_alone
    }
    return [alike[key] for key in sorted(alike)]


def cuts_what_others_run(world: World, ref: FunctionRef, facts: FunctionFacts) -> bool:
    """Whether the function calls a function of the project that runs a network and cuts nothing off, and cuts off in a loop what that
    gives, or hands it to callers that do: a method of an object that is no module, too."""
    cuts = not facts.names.isdisjoint(CUTS)
    runs = any(
        callee != ref and runs_a_network(world, callee, CALLS_DEEP)
        for call in calls_by_meaning(facts, loops_alone=cuts)
        for callee in callees(world, ref, call).refs
    )
    if cuts or not runs:
        return runs
    return any(not world.facts(caller.ref).names.isdisjoint(CUTS) for caller in world.project.callers(ref).calls)


@memoized
def runs_a_network(world: World, ref: FunctionRef, depth: int) -> bool:
    """Whether a function that is no method of a module and cuts nothing off calls what is known for a module, itself or in a function of
    the project, over as many calls."""
    facts = world.facts(ref)
    if not facts.names.isdisjoint(CUTS) or (world.is_of_module(ref) is not False):
        return False
    called = calls_by_meaning(facts)
    if any(is_network(world, ref, call, by_name=False) for call in called):
        return True
    return depth > 0 and any(
        callee != ref and runs_a_network(world, callee, depth - 1)
        for call in called
        for callee in callees(world, ref, call).refs
    )


def callees(world: World, ref: FunctionRef, call: CallFact) -> Callees:
    """The functions of the project that a call in a function may reach."""
    return world.project.callees(ref.path, ref.qualname, call.callee, *call.keywords)


def is_network(world: World, ref: FunctionRef, call: CallFact, by_name: bool = True) -> bool:
    """Whether what a call names is known for a module, or reads like a network (``by_name``), or is a method of such a one whose result
    is used.

    What is known to be a function, a class or a method of something else is none, whatever its name says (``build_model(args)``,
    ``nn.Linear(1, 2)``)."""
    callee = call.callee
    receiver, _, name = callee.rpartition(".")
    if name in TORCH.module_methods or name in TORCH.methods:
        return False
    if name in OF_EVERYTHING:
        return bool(receiver) and call.used is not ResultUse.DROPPED and has_one_of_everything(world, ref, callee, by_name)
    reached = callees(world, ref, call)
    if reached.refs and all(is_of_module(world, each) for each in reached.refs):
        if not any(has_parameters(world, ClassRef(each.path, world.header(each).owner)) for each in reached.refs):
            return False
        direct = all(each.qualname.rpartition(".")[2] in TORCH.words["forward"] for each in reached.refs)
        return direct or call.used is not ResultUse.DROPPED
    if reached.certain and reached.refs:
        return False
    for text in (callee, receiver):
        if not text or text in ("self", "cls") or (text == receiver and call.used is ResultUse.DROPPED):
            continue
        found = world.project.class_of(ref.path, ref.qualname, text.removesuffix("[]"))
        if isinstance(found, ClassRef):
            return bool(world.is_module_class(found))
        kind = class_kind(found) if found is not None else Kind.THING
        if kind is not Kind.THING:
            return kind is Kind.MODULE
        if looks_like_module(world.evidence(ref).get(text, frozenset())) or makes_module(world, ref, text):
            return True
        unseen = text == callee if found is not None else not reached.certain
        if by_name and unseen and purpose.may_be_network(text):
            return True
    return False


def has_one_of_everything(world: World, ref: FunctionRef, callee: str, by_name: bool) -> bool:
    """Whether a module is asked for a method that strings and other objects have as well: its own ``decode``; ``by_name``: what reads like
    a network, where modules alone have such a method in the project."""
    receiver, _, name = callee.rpartition(".")
    cls = world.project.class_of(ref.path, ref.qualname, receiver)
    if cls is None and by_name and purpose.may_be_network(receiver):
        named = world.project.methods_named(name)
        return bool(named) and all(is_of_module(world, each) for each in named)
    return isinstance(cls, ClassRef) and bool(world.is_module_class(cls))


def is_of_module(world: World, ref: FunctionRef) -> bool:
    """Whether a function is a method of what may be a module, called on an object of it."""
    without_object = any(use.callee in ("classmethod", "staticmethod") for use in world.header(ref).decorators)
    return not (without_object or ref.qualname.endswith(".__init__")) and world.is_of_module(ref) is not False


def makes_module(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether a name of a function is assigned what a function outside the project makes that is known to make modules:
    ``net = models.vgg16()``."""
    facts = world.facts(ref)
    made = [value.removesuffix("()") for name, value in (*facts.bound, *facts.rebound) if name == text and value.endswith("()")]
    names = (world.project.resolve(ref.path, value, ref.qualname) for value in made)
    return any(name is not None and TORCH.function_effect(name) is Effect.MODULE for name in names)


def stores_in_loop(world: World, ref: FunctionRef) -> bool:
    """Whether the function calls something inside a loop or comprehension of its own, as every store that outlives an iteration
    does."""
    return any(call.loops for _, facts in family(world, ref) for call in facts.calls)


def may_collect_on_device(world: World, ref: FunctionRef) -> bool:
    """Whether outputs that the function collects may be those of a data set, and on a device: no part of a model or of a training
    step does that, nor a method that a framework calls for one batch, nor code that never mentions devices."""
    if world.is_forward(ref) or world.hook(ref) is not None:
        return False
    if not mentions_devices(world, ref) or not stores_in_loop(world, ref):
        return False
    return joins_by_flag(world.facts(ref)) or (not purpose.trains(ref.qualname) and loops_over_data(world, ref))


def joins_by_flag(facts: FunctionFacts) -> bool:
    """Whether a parameter that nobody need give may say whether what the function collects is put together."""
    return not facts.names.isdisjoint(TORCH.words["joins"]) and any(param.default == "False" for param in facts.params)


def loops_over_data(world: World, ref: FunctionRef) -> bool:
    """Whether a loop of the function may run over the batches of a data set: its text says so, what it names is a loader, or each turn
    moves something."""
    if moves_in_a_loop(world.facts(ref)):
        return True
    for line in world.lines_of(ref):
        if DRAWS.search(line):
            return True
        if not LOOP.search(line):
            continue
        if purpose.BATCHES.search(line) or line.rstrip().endswith(("(", ",", "\\")):  # it goes on in the next line
            return True
        if any(makes_batches(world, world.project.class_of(ref.path, ref.qualname, name)) for name in NAME.findall(line)):
            return True
    return False


def makes_batches(world: World, cls: ClassRef | str | None) -> bool:
    """Whether a class is a data loader's, or below one."""
    above = world.project.mro(cls) if isinstance(cls, ClassRef) else (cls,)
    return any(isinstance(base, str) and TORCH.class_kind(base) is ClassKind.LOADER for base in above)


@memoized
def mentions_devices(world: World, ref: FunctionRef) -> bool:
    """Whether the function or its class mentions devices at all: on the CPU nothing piles up on one."""
    facts = world.facts(ref)
    prefix = (facts.owner or facts.qualname) + "."
    return any(
        other.names & DEVICE_WORDS and (other.qualname == facts.qualname or other.qualname.startswith(prefix))
        for other in world.project.within(ref.path, prefix[:-1])
    )


def is_off_by_decorator(world: World, ref: FunctionRef, words: frozenset[str]) -> bool:
    """Whether a decorator with one of these words, called as it should be, switches grad mode off for all of the function, and
    none of the words stands in the function itself."""
    facts = world.facts(ref)
    if facts.is_async or not facts.decorators or facts.qualname == MODULE:
        return False
    if any(not use.called for use in facts.decorators if use.callee.rpartition(".")[2] in words):
        return False
    text = "".join(world.lines_of(ref))
    return not any(word in text for word in words) and start_mode(world, ref) == StartMode.OFF


def stands_above_functions(world: World, path: str, words: frozenset[str]) -> bool:
    """Whether a file's own statements have these words in decorators alone, called as they should be: the functions under them are
    looked at by themselves."""
    functions = [facts for facts in world.project.module(path).functions if facts.qualname != MODULE]
    if any(not use.called and use.callee.rpartition(".")[2] in words for facts in functions for use in facts.decorators):
        return False
    inside = {row for facts in functions for row in range(facts.first_row, facts.end_row + 1)}
    own = "".join(line for row, line in enumerate(world.lines(path), start=1) if row not in inside)
    return not any(word in own for word in words)


def may_misuse(world: World, ref: FunctionRef, words: frozenset[str]) -> bool:
    """Whether a function may spell one of these managers so that it has no effect: uncalled, thrown away, above what is run
    later, or around a ``yield``."""
    for _, facts in family(world, ref):
        texts = [*facts.reads, *(text for _, text in (*facts.bound, *facts.rebound)), *(use.callee for use in facts.decorators)]
        texts += [call.callee for call in facts.calls if call.used is ResultUse.DROPPED]
        if facts.is_generator or any(text.rpartition(".")[2].removesuffix("()") in words for text in texts):
            return True
    return False


@memoized
def reaches(world: World, ref: FunctionRef, words: frozenset[str], depth: int = CALLS_DEEP) -> bool:
    """Whether the function, or a function of the project that it calls, has one of the words."""
    if any(facts.names & words for _, facts in family(world, ref)):
        return True
    return depth > 0 and any(
        callee != ref and reaches(world, callee, words, depth - 1)
        for each, facts in family(world, ref)
        for call in facts.calls
        for callee in callees(world, each, call).refs
    )


def is_move(call: CallFact) -> bool:
    """Whether a call moves something to a device, which may be the host: ``x.to(y.dtype)`` and ``x.to(torch.long)`` are no moves."""
    name = call.callee.rpartition(".")[2]
    return name == TORCH.names["to-cuda"] or (
        name == TORCH.names["to-place"] and any(not DTYPE.fullmatch(arg.name) for arg in call.args)
    )


def names_the_host(world: World, ref: FunctionRef, arg: ArgFact) -> bool:
    """Whether an argument is the host as a device: ``"cpu"``, or a name of the function or the file that is bound once, to
    ``torch.device("cpu")``."""
    if arg.const == HOST:
        return True
    if not arg.name.isidentifier():
        return False
    facts = world.facts(ref)
    if arg.name in {param.name for param in facts.params}:
        return False
    scope = facts if arg.name in facts.locals or ref.qualname == MODULE else world.facts(FunctionRef(ref.path, MODULE))
    texts = [text for name, text in (*scope.bound, *scope.rebound) if name == arg.name]
    made = [call for call in scope.calls if f"{call.callee}()" in texts]
    return (
        len(texts) == 1
        and bool(made)
        and all([each.const for each in call.args] == [HOST] for call in made)
        and world.project.resolve(ref.path, made[0].callee, scope.qualname) == TORCH.names["device-class"]
    )


HOST = repr(TORCH.names["host"])
"""The host as a device, as a literal."""


def moves_in_a_loop(facts: FunctionFacts) -> bool:
    """Whether each turn of a loop moves something to a device, as that of a data set does: what is there already needs no move."""
    return any(is_move(call) and call.loops for call in facts.calls)


DTYPE = re.compile(r"[\w.]*dtype|torch\.\w+")
"""What ``to()`` is given for another type of numbers: ``torch.device(…)`` is a call."""


def moves_something(world: World, ref: FunctionRef, depth: int = CALLS_DEEP) -> bool:
    """Whether the function, or one that it calls, moves something to a device: ``x.to(y.dtype)`` is no move."""
    for each, facts in family(world, ref):
        for call in facts.calls:
            if is_move(call):
                return True
            if depth:
                for callee in callees(world, each, call).refs:
                    if callee != ref and moves_something(world, callee, depth - 1):
                        return True
    return False


@memoized
def back_propagates(world: World, ref: FunctionRef) -> bool:
    """Whether the function, or one that it calls, back-propagates."""
    return reaches(world, ref, BACKWARD)


def trains_in_a_loop(world: World, ref: FunctionRef) -> bool:
    """Whether something that the function calls in a loop back-propagates, wherever it stands: the iterations are training
    steps."""
    return any(
        callee != ref and back_propagates(world, callee)
        for each, facts in family(world, ref)
        for call in facts.calls
        if call.loops
        for callee in callees(world, each, call).refs
    )


@memoized
def runs_steps(world: World, ref: FunctionRef) -> bool:
    """Whether the function trains or evaluates in a loop of its own: it back-propagates, or what it calls there is a module."""
    if stores_in_loop(world, ref) and back_propagates(world, ref):
        return True
    return any(
        call.loops and looks_like_module(world.evidence(each).get(call.callee, frozenset()))
        for each, facts in family(world, ref)
        for call in facts.calls
    )


def family(world: World, ref: FunctionRef) -> Iterator[tuple[FunctionRef, FunctionFacts]]:
    """The function and those inside it."""
    for facts in world.project.within(ref.path, ref.qualname):
        yield FunctionRef(ref.path, facts.qualname), facts


def may_run_model(world: World, ref: FunctionRef, facts: FunctionFacts) -> bool:
    """Whether one function's own calls may run a module.

    Errs on the side of yes. What is no model: functions and classes of the project and of other packages, methods of the
    function's own class, and methods of other objects that neither have a name that runs a model nor are attributes.
    """
    if facts.names & RUN_WHAT_THEY_GET:
        return True
    cls = world.class_of_method(world.outermost(ref))
    return any(may_be_module(world, ref, cls, callee) for callee in dict.fromkeys(call.callee for call in facts.calls))


def may_be_module(world: World, ref: FunctionRef, cls: ClassRef | None, callee: str) -> bool:
    """Whether what a call names may be a module, or run one in its place."""
    receiver, _, name = callee.rpartition(".")
    if not name.isidentifier() or name in TORCH.words["forward"]:
        return True  # a text that is no name, or what a call or a subscript gives
    if receiver in ("self", "cls") and cls is not None:
        return world.project.method(cls, name) is None and name not in TORCH.module_methods
    if receiver == "super()":
        return False
    absolute = world.project.resolve(ref.path, callee, ref.qualname)
    if absolute is not None:
        return world.symbol(absolute) is None and world.project.is_inside(absolute)
    if not receiver or purpose.RUNS_MODEL.match(name):
        return True
    if name in TORCH.methods or name in OF_EVERYTHING:
        found = world.project.class_of(ref.path, ref.qualname, receiver)
        if found is None or found == TORCH.names["tensor-class"] or (isinstance(found, str) and found.startswith("builtins.")):
            return looks_like_module(world.evidence(ref).get(receiver, frozenset()))  # else it is what tensors and others have
    return world.project.is_attribute(name)
