"""What is known of how a function is reached: whether anything visible calls it, in loops, or for an environment's next action."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchmemlint.index.edges import Caller
from torchmemlint.index.fact_words import ResultUse
from torchmemlint.index.facts import CallFact, ModuleFacts
from torchmemlint.index.grad_effects import OFF
from torchmemlint.index.modes import StartMode
from torchmemlint.index.project import ClassRef, FunctionRef, Project
from torchmemlint.index.tables import says_cuda
from torchmemlint.rules import assumed
from torchmemlint.rules.api import Flow
from torchmemlint.rules.fact import Fact
from torchmemlint.semantics.identity import is_free, is_put_as_forward, parametric_attributes
from torchmemlint.semantics.mode import (
    DEVICE_WORDS,
    back_propagates,
    callees,
    family,
    is_move,
    moves_something,
    names_the_host,
    observations,
    trains_in_a_loop,
)
from torchmemlint.semantics.roots import MAX_CALLERS
from torchmemlint.semantics.state import MODULE, Graph, GraphKind, Site, World, memoized
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import ClassKind

STEPS = TORCH.words["environment-steps"]
OTHER_FRAMEWORKS = TORCH.words["rival-frameworks"]
"""Top packages of frameworks with networks and gradients of their own."""
FORWARDS = TORCH.words["forward"]
WITHOUT_CUDA = re.compile(r"^not \(*[\w.]*(cuda|gpu)(?!.*( is None|==|<))", re.IGNORECASE)
"""Tests under which no GPU is used; ``not gpu is None`` is none of them."""
MOVES_ITSELF = TORCH.words["moves-by-itself"]
"""Libraries whose trainers move networks and batches."""
MAX_ON_THE_WAY = 24
"""Functions between a program and what it calls in the end."""
CALLERS_UP = 2
"""How far the callers of a function are looked up that give it what it works on."""
MAX_DEPTH = 3
"""How far callers are followed up."""


def is_of_another_framework(project: Project, path: str) -> bool:
    """Whether a file imports another framework, and nothing of torch or around it: its networks are not ours."""
    packages = {target.lstrip(".").partition(".")[0] for _, target in project.imports(path)}
    return bool(packages & OTHER_FRAMEWORKS) and not any(
        word in each for each in packages for word in TORCH.words["around-torch"]
    )


@memoized
def runs_another_framework(world: World, path: str) -> bool:
    """As ``is_of_another_framework``, worked out once a file."""
    return is_of_another_framework(world.project, path)


def callers_of(ref: FunctionRef, world: World, up: int = CALLERS_UP) -> list[FunctionRef]:
    """The outermost functions that call a function, and those that call these, so many calls up."""
    found: dict[FunctionRef, None] = {}
    todo = [ref]
    for _ in range(up):
        above = [caller.ref for each in todo for caller in world.project.callers(each).calls[:MAX_CALLERS]]
        todo = [world.outermost(each) for each in above]
        todo = [each for each in dict.fromkeys(todo) if each not in found and each != ref]
        found.update(dict.fromkeys(todo))
    return [*found][:MAX_CALLERS]


def is_without_gpu(site: Site) -> bool:
    """Whether a statement runs under a test by which no GPU is used (``else`` of ``if use_cuda:``)."""
    return any(WITHOUT_CUDA.match(test) for test in site.guards)


def is_read_on_host(graph: Graph, flow: Flow) -> bool:
    """Whether an array is made of what a module gave, which nothing moved to the host: that raises for a tensor on a GPU. Under a test of
    its own it may be a branch that nobody takes, or the one for the host."""
    if graph.kind is GraphKind.OPAQUE and not graph.direct:  # a method of its own may move its result
        return False
    return any(set(site.guards) <= set(graph.site.guards) for site in flow.record.arrays.get(graph.gid, ()))


def is_fed_on_host(graph: Graph, flow: Flow) -> bool:
    """Whether a module is given a tensor that was made on the host: a module on a GPU refuses it, unless its own forward moves it, or
    something around the module or the program does. Code that names no device anywhere leaves that out for a network that is made
    out of sight, as what is pasted does."""
    world = flow.runs.world
    if not graph.given_on_host or any(world.project.says(word) for word in MOVES_INPUTS):
        return False
    if not isinstance(graph.cls, ClassRef) and not any(world.project.says(word) for word in DEVICE_WORDS):
        return False
    own = world.project.method(graph.cls, FORWARD) if graph.cls is not None else None
    return own is None or not moves_something(world, own)


MOVES_INPUTS = TORCH.words["moves-inputs"]
"""Words of a project in which what is made without a device may be on one, or a wrapper moves what a module is given."""
FORWARD = TORCH.names["forward"]


def is_on_host(graph: Graph, flow: Flow) -> bool:
    """Whether a forward runs on the host: in a program that moves nothing to a device, or of a network that the function makes itself
    and moves nowhere."""
    world, root = flow.runs.world, flow.record.root
    project, path = world.project, root.path
    if any(target.partition(".")[0] in MOVES_ITSELF for _, target in project.imports(path)):
        return False
    if is_free(world, root, graph.what):
        return False
    if is_made_on_host(world, root, graph.what) or is_moved_to_host(world, root, graph.what):
        return True
    made = dict(world.facts(root).bound).get(graph.what, "").removesuffix("()")
    maker = project.resolve(path, made, root.qualname) if made else None
    if maker is not None and (isinstance(world.symbol(maker), ClassRef) or TORCH.class_kind(maker)):
        words = frozenset[str]().union(*(facts.names for _, facts in family(world, root)))
        return not words & DEVICE_WORDS - {TORCH.names["to-place"]} and not moves_something(world, root)
    if not project.is_program(path) or mentions_devices_anywhere(flow):
        return False
    callers = project.callers(root)
    apart = callers.escapes or not callers.calls or any(caller.ref.path != path for caller in callers.calls)
    if apart and not flow.root_is_entry():
        return False
    own = [found for name, _ in project.imports(path) if (found := project.imported(path, name)) and project.is_inside(found)]
    if own and project.mentions_cuda():
        return False
    return not any(moves_something(world, ref) for ref in dict.fromkeys((root, FunctionRef(path, MODULE))))


def is_made_on_host(world: World, ref: FunctionRef, name: str) -> bool:
    """Whether a function makes a network of a visible class, or of a layer of torch, under that name, and neither its constructor nor the
    function moves it, nor anything that gets it."""
    facts, project = world.facts(ref), world.project
    texts = [text for bound, text in (*facts.bound, *facts.rebound) if bound == name]
    makers = {project.resolve(ref.path, text.removesuffix("()"), ref.qualname) for text in texts if text.endswith("()")}
    if not texts or len(makers) < len(set(texts)) or any(project.says(word) for word in TORCH.words["default-device"]):
        return False
    if not all(maker is not None and is_built_on_host(world, maker) for maker in makers):
        return False
    if world.evidence(ref).get(name, frozenset()) & MOVES:
        return False
    for each, within in family(world, ref):
        for call in within.calls:
            if any(arg.name == name for arg in call.args) and not stays_on_host(world, each, call):
                return False
            if f"{call.callee}()" in texts and TORCH.names["place"] in call.keywords:
                return False
    return True


def is_moved_to_host(world: World, ref: FunctionRef, name: str) -> bool:
    """Whether a function makes a network under that name and moves it to the host, where everything leaves it that gets it."""
    facts = world.facts(ref)
    texts = [text for bound, text in (*facts.bound, *facts.rebound) if bound == name]
    moves = [
        call
        for call in facts.calls
        if is_move(call) and (f"{call.callee}()" in texts or call.callee.rpartition(".")[0] == name)
    ]
    return (
        bool(moves)
        and len(texts) == 1
        and all(any(names_the_host(world, ref, arg) for arg in call.args) for call in moves)
        and all(
            stays_on_host(world, each, call)
            for each, within in family(world, ref)
            for call in within.calls
            if any(arg.name == name for arg in call.args)
        )
    )


def is_built_on_host(world: World, maker: str) -> bool:
    """Whether a class has parameters, and its constructor moves none: what has none works wherever its input is."""
    cls = world.symbol(maker)
    if not isinstance(cls, ClassRef):
        return TORCH.class_kind(maker) is ClassKind.MODULE
    init = world.project.method(cls, "__init__")
    return bool(parametric_attributes(world, cls)) and (init is None or not moves_something(world, init))


def stays_on_host(world: World, ref: FunctionRef, call: CallFact) -> bool:
    """Whether functions of the project alone get what a call gives, and they move nothing."""
    refs = callees(world, ref, call).refs
    return bool(refs) and not any(moves_something(world, each) for each in refs)


MOVES = frozenset({TORCH.names["to-cuda"], TORCH.names["to-place"]}) | TORCH.words["other-devices"]


@memoized
def _moves_by_itself(world: World, path: str) -> bool:
    """Whether a file chooses a device, or imports what does."""
    module = world.project.module(path)
    return any(target.partition(".")[0] in MOVES_ITSELF for _, target in module.imports) or chooses_device(module)


@memoized
def is_of_host_program(world: World, root: FunctionRef) -> bool:
    """Whether a program calls a root, by whatever way, in a project that never mentions CUDA, and neither does anything on that way
    mention devices: what it wastes is memory of the host."""
    project = world.project
    if project.mentions_cuda():
        return False
    seen, todo, ran = {root: None}, [root], False
    while todo and len(seen) <= MAX_ON_THE_WAY:
        ref = todo.pop()
        if _moves_by_itself(world, ref.path):
            return False
        ran = ran or (ref.path != root.path and (ref.qualname == MODULE or ref.qualname.rpartition(".")[2] == "main"))
        above = [caller.ref for caller in project.callers(ref).calls if caller.ref not in seen]
        seen.update(dict.fromkeys(above))
        todo += above
    return ran and not todo


def chooses_device(module: ModuleFacts) -> bool:
    return says_cuda(module) or any(
        is_move(call) or TORCH.names["place"] in call.keywords for facts in module.functions for call in facts.calls
    )


def mentions_devices_anywhere(flow: Flow) -> bool:
    """Whether the root's file mentions devices, in names, as an argument or as a default."""
    return flow.file_says(DEVICE_WORDS - {TORCH.names["to-place"]}) or chooses_device(
        flow.runs.world.project.module(flow.record.root.path)
    )


def acts(ref: FunctionRef, flow: Flow, depth: int = 0) -> bool:
    """Whether a function, or one that calls it, gives an environment its next action (``state, reward, … = env.step(action)``)."""
    world = flow.runs.world
    if steps(ref, flow) or (depth and any(steps(other, flow) for other in own_methods(ref, flow))):
        return True
    callers = world.project.callers(ref).calls
    if depth == MAX_DEPTH or not callers or len(callers) > MAX_CALLERS:
        return False
    return all(caller.ref != ref and acts(caller.ref, flow, depth + 1) for caller in callers)


def is_given_an_observation(graph: Graph, flow: Flow) -> bool:
    """Whether a forward in a loop of the root is given what an environment answered there (``net(torch.Tensor(obs))``): a batch of as
    many samples as there are environments."""
    site = flow.own_site(graph.site)
    if not site.loops:
        return False
    answers = observations(flow.runs.world, flow.frame(site).ref)
    args = flow.source(site, site.node).partition("(")[2] if answers else ""
    return any(f"{text}.".startswith(f"{answer}.") for text in NAMES.findall(args) for answer in answers)


NAMES = re.compile(r"(?<![.\w])[A-Za-z_][\w.]*")
"""Names and attributes in a source text."""


def guarded(site: Site | None, flow: Flow) -> Fact:
    """That a caller that is not visible disables grad mode: likelier where a module's forward alone calls the root, or runs the call in
    one of its phases, and nothing is seen to run that; or where the root is what runs when an object of its class is called, objects are made, and no call of one is visible."""
    root, world = flow.record.root, flow.runs.world
    owner = world.header(root).owner
    if owner and root.qualname.endswith(".__call__") and is_made(ClassRef(root.path, owner), world):
        return assumed.OBJECT_GUARDED
    in_forward = root.qualname.rpartition(".")[2] in FORWARDS
    if flow.root_is_module() and (is_of_a_phase(site, flow) if in_forward else is_called_by_forwards(flow)):
        return assumed.FORWARD_GUARDED
    return assumed.GUARDED


def is_of_a_phase(site: Site | None, flow: Flow) -> bool:
    """Whether a call stands under a test of what its function is given, or is left out (``if targets is not None: … else: …``): a forward
    that decodes without targets."""
    if site is None:
        return False
    facts = flow.runs.world.facts(flow.frame(site).ref)
    params = {param.name for param in facts.params}
    call = facts.call_ending(flow.span(site).end)
    return call is not None and any(not params.isdisjoint(NAMES.findall(test)) for test in call.branch)


def is_called_by_forwards(flow: Flow) -> bool:
    """Whether modules' forwards alone call the root where grad mode may be on; where no call of it is visible, all calls of a method
    of its name on objects of which nothing is known (a head that a registry makes)."""
    world, root = flow.runs.world, flow.record.root
    calls = world.project.callers(root).calls
    with_grad = [
        caller.ref
        for caller in calls
        if not is_guarded(caller, flow) and world.project.grad_mode(caller.ref).mode != StartMode.OFF
    ]
    if not calls:
        with_grad = [ref for ref, _, _ in world.project.calls_by_name(root.qualname.rpartition(".")[2])]
    return bool(with_grad) and all(is_part_of_forward(ref, world) for ref in with_grad)


def is_part_of_forward(ref: FunctionRef, world: World, depth: int = 0) -> bool:
    """Whether a method is a module's forward, or every call of it visible is made by one."""
    owner = world.header(ref).owner if ref.qualname != MODULE else ""
    if not owner:
        return is_put_as_forward(world, ref)
    if ref.qualname.rpartition(".")[2] in FORWARDS:
        return bool(world.is_module_class(ClassRef(ref.path, owner)))
    callers = world.project.callers(ref)
    if not callers.calls and not callers.escapes:
        return calls_by_computed_name(ClassRef(ref.path, owner), world)
    if callers.escapes or depth == MAX_DEPTH:
        return False
    return all(c.ref != ref and is_part_of_forward(c.ref, world, depth + 1) for c in callers.calls)


def calls_by_computed_name(cls: ClassRef, world: World) -> bool:
    """Whether a class's forward calls methods by names that it computes: ``getattr(self, "_" + mode)(*args)``."""
    forward = world.project.method(cls, TORCH.names["forward"])
    return forward is not None and any(call.callee == "getattr()" for call in world.facts(forward).calls)


def is_made(cls: ClassRef, world: World) -> bool:
    """Whether a function of the project makes an object of a class, or of one below, and not only a program's own statements."""
    return any(
        caller.ref.qualname != MODULE
        for each in (cls, *world.project.subclasses(cls))
        if (init := world.project.method(each, "__init__")) is not None
        for caller in world.project.callers(init).calls
    )


@memoized
def is_part_of_tests(world: World, ref: FunctionRef) -> bool:
    """Whether a function is a unit test, a method below ``unittest.TestCase``, or called by such methods alone."""
    if world.project.is_test(ref) or is_of_test_case(world, ref):
        return True
    callers = world.project.callers(ref)
    return bool(callers.calls) and not callers.escapes and all(is_of_test_case(world, caller.ref) for caller in callers.calls)


def is_of_test_case(world: World, ref: FunctionRef) -> bool:
    """Whether a function is a method below ``unittest.TestCase``."""
    owner = world.header(ref).owner
    return bool(owner) and "unittest.TestCase" in world.project.mro(ClassRef(ref.path, owner))


def steps(ref: FunctionRef, flow: Flow) -> bool:
    """Whether a function gives an environment an action itself, and takes apart what that answers."""
    return bool(rows_of_steps(ref, flow))


def rows_of_steps(ref: FunctionRef, flow: Flow) -> list[int]:
    facts = flow.runs.world.facts(ref)
    return [
        place.row
        for call, place in zip(facts.calls, facts.call_places, strict=True)
        if call.used is ResultUse.UNPACKED and call.args and call.callee.rpartition(".")[2] in STEPS and "." in call.callee
    ]


def own_methods(ref: FunctionRef, flow: Flow) -> Iterator[FunctionRef]:
    """The methods of the same class that a method calls."""
    world = flow.runs.world
    facts = world.facts(ref)
    for call in facts.calls if facts.owner else ():
        name = call.callee.removeprefix("self.")
        if name != call.callee and name.isidentifier():
            found = world.project.method(ClassRef(ref.path, facts.owner), name)
            if found is not None:
                yield found


def is_guarded(caller: Caller, flow: Flow) -> bool:
    """Whether a call stands in a block that disables grad mode."""
    project, ref = flow.runs.world.project, caller.ref
    return any(project.manager_effect(ref.path, ref.qualname, use) == OFF for use in caller.call.managers)


def is_called_in_loops(ref: FunctionRef, flow: Flow, epochs: bool = True, depth: int = 0) -> bool:
    """Whether a call of a function, or of one that calls it, stands in a loop; calls under ``no_grad`` are left aside. Without ``epochs``
    a loop whose training steps run in a loop inside it is none: it calls a function once an epoch."""
    world = flow.runs.world
    callers = [caller for caller in world.project.callers(ref).calls if not is_guarded(caller, flow)]
    return len(callers) > MAX_CALLERS or any(
        (caller.call.loops and (epochs or not _is_once_an_epoch(world, caller)))
        or (caller.ref != ref and depth < MAX_DEPTH and is_called_in_loops(caller.ref, flow, epochs, depth + 1))
        for caller in callers
    )


@memoized
def _is_once_an_epoch(world: World, caller: Caller) -> bool:
    """Whether a call stands in a loop that trains in a loop inside it, there or in a function that it calls, which may be that of the call,
    and not by itself."""
    around, inside = caller.call.loops, False
    for call in world.facts(caller.ref).calls:
        if call.loops < around:
            continue
        if call.callee.rpartition(".")[2] == BACKWARD:
            if call.loops == around:
                return False
            inside = True
            continue
        for callee in callees(world, caller.ref, call).refs:
            if callee != caller.ref and back_propagates(world, callee):
                in_loop = call.loops > around or _trains_in_own_loop(world, callee)
                if not in_loop:
                    return False
                inside = True
    return inside


@memoized
def _trains_in_own_loop(world: World, ref: FunctionRef) -> bool:
    """Whether a function back-propagates in a loop, its own or, called in a loop, that of a step."""
    own = [call for _, facts in family(world, ref) for call in facts.calls if call.callee.rpartition(".")[2] == BACKWARD]
    return all(call.loops for call in own) if own else trains_in_a_loop(world, ref)


BACKWARD = TORCH.names["backward"]
