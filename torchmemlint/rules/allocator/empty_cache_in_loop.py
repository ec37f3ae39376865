"""The allocator's cache is emptied in every step.

## What it does
Reports `torch.cuda.empty_cache()`, and the same call for other devices, if it runs in every step: in a loop of steps, in
a `forward` or a function that only it calls, or in a method that runs a model and is called in each step by the code or a
framework, or that a framework calls for each batch (`on_train_batch_end` of Lightning, `on_step_end` of transformers). A loop is a loop of steps if it iterates over a loader, or if its body runs a network, a backward or an
optimizer's step. Deleting names before the call makes no difference.

It does not report:

- a loop of stages: training runs only in an inner loop (epochs), each iteration creates, loads, fills or deletes its own
  model, or the loop goes through the components of a model;
- the end of a forward that runs a model over frames or chunks in its own loop;
- a loop of attempts that ends with the first success;
- calls that are rate-limited or depend on a measurement, unless a backward or an optimizer's step has the same condition;
- calls that run only in iterations without a step of training, such as one that an infinite loss ends;
- methods of that name on other objects;
- calls under `if not self.training:` in a module that no visible `eval()` reaches, such as a loss that a trainer keeps
  beside its network;
- unit tests and their helpers.

## What it costs
The call frees no tensor. It returns cached blocks that no tensor uses to the driver. The allocator would have reused them
for the next allocation, and it returns them by itself before it raises an out-of-memory error. Each call waits for the
device, and the following allocations must ask the driver again, which is slow. How slow has not been measured: CUDA
measurements are still to come. The finding is a note if nothing trains and each iteration also runs a loop of forwards or writes
a picture.

## Example
```python
import torch


def train(model, loader, criterion, optimizer):
    for inputs, labels in loader:
        loss = criterion(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.cuda.empty_cache()
```

Use instead:

```python
import torch


def train(model, loader, criterion, optimizer):
    for inputs, labels in loader:
        loss = criterion(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
```

## Fix
Removes the statement, or replaces it by `pass` if the block would be empty. Unsafe: a program that shares its device may
need to return blocks.

## When to ignore
Another process, or a library with a memory pool of its own on the same device (MinkowskiEngine, dlib, CuPy), needs the memory
between two steps, or you have measured that the call reduces fragmentation because the
sizes of the steps differ a lot.

## References
- torch.cuda.empty_cache, "doesn't increase the amount of GPU memory available for PyTorch":
  https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.empty_cache.html
- CUDA semantics: memory management: https://docs.pytorch.org/docs/stable/notes/cuda.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchmemlint.findings import Safety, Severity
from torchmemlint.index.edges import Caller
from torchmemlint.index.layout import is_test
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.walk import names_inside, nodes_of, walk
from torchmemlint.lower.written import are_opposite, dotted
from torchmemlint.rules.allocator.slow_iterations import calls_in, is_training, why_little
from torchmemlint.rules.api import Draft, Flow, Rule, short
from torchmemlint.rules.assumed import CALLED_SELDOM, memory_of_another, stage_ends
from torchmemlint.rules.card import About, Advice
from torchmemlint.rules.cost.table import price
from torchmemlint.rules.fact import Fact
from torchmemlint.rules.reach import is_of_test_case, is_part_of_forward
from torchmemlint.semantics.dataflow import has_no_tensors
from torchmemlint.semantics.identity import is_put_as_forward
from torchmemlint.semantics.mode import purpose
from torchmemlint.semantics.state import CALLED_KINDS, MODULE, CallEffect, Graph, GraphKind, Kind, LoopInfo, Seen, is_batch_hook
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import CallByName, Effect

RULE = Rule(
    code="TML301",
    name="empty-cache-in-loop",
    summary="The allocator's cache is emptied in every step",
    severity=Severity.WARNING,
    about=About.ALLOCATOR,
    fix=Safety.UNSAFE,
    triggers=TORCH.words["empties-cache"],
    yields_to=frozenset({"TML303"}),
    advice=frozenset({Advice.STEADY_SHAPES}),
)
EVENT = CallEffect

MEASURES = re.compile("|".join(sorted(TORCH.words["measures-memory"])))
ALLOCATES = TORCH.words["allocates-by-itself"]
"""Libraries that take memory of the GPU beside torch's allocator."""
EPOCHS = re.compile(r"(max_|num_|n_|nb_)?epochs?")
"""Arguments that say for how many epochs a call trains."""
STEPS = re.compile(
    r"(^|_)(step|batch|iter\w*|forward|call|predict\w*|infer\w*|generate\w*|decode\w*|encode\w*|sample\w*|loss\w*|optimize\w*|update\w*"
    r"|policy|act|action|apply|observe\w*|states?|train|valid\w*|extract\w*|embed\w*|classify|detect|segment|score\w*)(_|$)",
    re.IGNORECASE,
)
"""Words of methods that a framework calls for each step, or each input."""
ROOT_NAME = re.compile(r"[.\[(]")
DEVICE = re.compile(r"cuda|device|is_available|gpu|rank|(?<![a-z])(?:mps|xpu|npu)", re.IGNORECASE)
"""Tests of where the code runs: they limit no rate."""
CONJUNCTION = re.compile(r"\b(?:and|or)\b")
SHORT = re.compile(r"memory|mem_|[<>%]", re.IGNORECASE)
RATE = re.compile(
    r"oom|fail|error|retry|short|%|==|freq|interval|every|> |< |>=|<=|memory|mem_|threshold|flag|debug", re.IGNORECASE
)


EVALUATION = "not self.training"
BY_NAME = "in every call of a method that a framework calls in each step"
BY_FRAMEWORK = "in every call of a method that a framework calls for each batch"
MAX_CALLERS_ABOVE = 3
"""Callers that are looked at, from who calls a method to who calls that."""
MAX_HOLDERS_ABOVE = 3
"""Objects that are looked at, from what holds a module to what holds that."""
ANSWERS = re.compile(r"\w\(")
SETTLED = re.compile(
    r"\b(hasattr|getattr|isinstance|issubclass|callable|bool|len|get|pop|getenv|startswith|endswith|lower|upper|type|int|str)\("
)
"""Calls that ask for a setting, which stays as it is from one step to the next."""
FLAG = re.compile(r"(self\.)?\w+")
SWITCH = re.compile(r"[A-Za-z_][\w.]*")
HOUSEKEEPING = frozenset({Effect.EMPTY_CACHE, Effect.NO_EFFECT})
"""What calls have for an effect that compute nothing: they care for memory, or print."""
WEIGHTS = re.compile(
    r"to_empty|load_state_dict|from_pretrained|load_(weights|checkpoint|pretrained|model|lora)\w*|set_module_tensor_to_device|quantize\w*"
    r"|\w*quantize_fn|fill_\w*(block|weight|param|tensor|layer)\w*|materialize\w*"
)
"""Calls that give a model its weights, or other ones."""
GETTERS = TORCH.words["hands-out"]
"""Calls that hand out what is there: nothing runs in them."""
GETATTR = re.compile(r"getattr\(.*?,\s*(\w+)\s*[,)]", re.DOTALL)


COST = "saves nothing: the allocator would reuse the memory; each call synchronizes, and later allocations are slow"


def check(event: CallEffect, flow: Flow) -> Iterator[Draft | Fact]:
    if event.effect is not Effect.EMPTY_CACHE or not flow.own(event.site):
        return
    where = step_path(event, flow)
    if isinstance(where, Fact):
        yield where
        return
    option = switch_of(event, flow)
    severity, cost = price("clean-up", COST, {"slow-iterations": lambda: why_little(event, flow), "an-option": lambda: option})
    fix = None
    if flow.source(event.site, event.site.node) == flow.lowered(event.site).statement(event.site.node)[1]:
        fix = flow.edits.remove(event.site, "Remove the call")
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`{event.name}()` runs {where}{when(event, option, flow)}: it frees no tensor, it only returns unused cached blocks to the driver",
            severity=severity,
            doubts=(*((CALLED_SELDOM,) if where == BY_NAME else may_end_a_stage(event, flow)), *is_shared(flow)),
            label="waits for the device, and the next allocation asks the driver again",
            cost=cost,
            help="remove it; if memory runs out, free tensors that are still referenced (`del`, `detach()`, `no_grad()`)",
            fix=fix,
        ),
        handler=event.site.handler,
    )


def is_shared(flow: Flow) -> Iterator[Fact]:
    """The doubt of a file that uses a library which takes memory of the GPU by itself: that can use only what torch gives back."""
    for target in sorted({target.partition(".")[0] for _, target in flow.runs.world.project.imports(flow.record.root.path)}):
        if target in ALLOCATES:
            yield memory_of_another(target)


def switch_of(event: CallEffect, flow: Flow) -> str:
    """The setting that lets the call through, and nothing beside it but other care for memory, or that is off unless a caller asks for
    it; "" where there is none."""
    ref = flow.frame(event.site).ref
    facts = flow.runs.world.facts(ref)
    params = (*flow.runs.world.header(flow.runs.world.outermost(ref)).params, *facts.params)
    off = {param.name for param in params if param.default == "False"}
    for test in event.site.guards:
        if any(is_training(e) and test in e.site.guards for e in flow.record.events.values()):
            continue
        for part in CONJUNCTION.split(test):
            name = part.strip("() ")
            last = name.rpartition(".")[2]
            if not SWITCH.fullmatch(name) or DEVICE.search(name):
                continue
            if last == TORCH.names["mode-of-training"] or purpose.trains(last) or purpose.evaluates(last):
                continue
            if name in off:
                return name
            guarded = [call.callee for call in facts.calls if test in call.branch]
            names = [flow.runs.world.project.resolve(ref.path, callee, ref.qualname) or "" for callee in guarded]
            if names and all(TORCH.function_effect(each) in HOUSEKEEPING for each in names) and is_setting(name, event, flow):
                return name
    return ""


def is_setting(name: str, event: CallEffect, flow: Flow) -> bool:
    """Whether a name or attribute stays as it is from one step to the next: an attribute of an object that no loop around binds, of
    which no method but a constructor sets it."""
    root, dot, rest = name.partition(".")
    facts = flow.runs.world.facts(flow.frame(event.site).ref)
    targets = {each for loop in event.site.loops if loop in flow.record.loops for each in flow.record.loops[loop].targets}
    if root in targets or any(root == bound or name == bound for bound, _ in facts.rebound):
        return False
    if root == "self" and "." not in rest and facts.owner:
        attrs = flow.runs.world.project.attr(ClassRef(flow.frame(event.site).ref.path, facts.owner), rest)
        return all(attr.method.rpartition(".")[2] in ("", "__init__") for attr, _ in attrs)
    params = {param.name for param in flow.runs.world.header(flow.runs.world.outermost(flow.frame(event.site).ref)).params}
    return bool(dot) and (root in params or root not in facts.locals)


def when(event: CallEffect, option: str, flow: Flow) -> str:
    """The flag on which the call waits, where a caller or the object's maker sets it, or the setting that lets it through."""
    if option:
        return f" when `{short(option)}` is set"
    params = {param.name for param in flow.runs.world.header(flow.frame(event.site).ref).params}
    flags = [test for test in event.site.guards if FLAG.fullmatch(test) and (test in params or test.startswith("self."))]
    return f" when `{flags[0]}` is set" if flags else ""


def is_of_tests(flow: Flow) -> bool:
    """Whether the function is a unit test, or helps those of its file: nobody waits for its steps."""
    root = flow.record.root
    if is_of_test_case(flow.runs.world, root):
        return True
    if not is_test(root.path, "" if root.qualname == MODULE else root.qualname):
        return False
    folder = root.path.replace("\\", "/").rpartition("/")[0]
    imports = flow.runs.world.project.imports(root.path)  # `test_net.py` may as well evaluate a network
    return is_test(f"{folder}/", "") or any(target.partition(".")[0] in TORCH.words["test-libraries"] for _, target in imports)


def step_path(event: CallEffect, flow: Flow) -> str | Fact:
    """Where in the steps the call stands, in words; Fact where it runs seldom or at a stage's end."""
    if event.site.handler >= 0:
        return Fact("clean-up-in-handler", "it is in an exception handler")
    if is_of_tests(flow):
        return Fact("in-a-test", "it is part of a unit test")
    if is_limited(event, flow):
        return Fact("clean-up-sometimes", "a condition runs it only sometimes")
    if event.followed_by in ("break", "raise") or (event.followed_by == "return" and event.site.loops):
        return Fact("clean-up-at-the-end", "the steps end after it")
    if MEASURES.search(event.followed_by):
        return Fact("clean-up-for-measuring", "the memory is measured after it")
    if not event.site.loops and is_measurement(flow):
        return Fact("clean-up-for-measuring", "the function gives back how much memory it measured")
    if event.site.loops:
        return in_loop(event, flow)
    ref = flow.record.root
    if ref.qualname == MODULE:
        return Fact("clean-up-in-no-loop", "it is not in a loop")
    header = flow.runs.world.header(ref)
    if ref.qualname.rpartition(".")[2] == TORCH.names["forward"] and header.owner:
        return in_forward(event, ClassRef(ref.path, header.owner), flow)
    if is_put_as_forward(flow.runs.world, ref):
        whole = is_whole_stage(flow) or goes_over_pieces(flow)
        return Fact("forward-over-a-data-set", "the forward iterates over a whole data set") if whole else "in every forward"
    if is_batch_hook(flow.runs.world, ref) and all(DEVICE.search(test) for test in event.site.guards):
        return BY_FRAMEWORK
    if event.site.guards:
        return Fact("clean-up-on-condition", "it is not in a loop of this function, and depends on a condition")
    if drives_steps(flow):
        return Fact("clean-up-beside-steps", "it is before or after the function's loop of steps")
    if header.owner and next(own_models(flow), None) is not None and called_in_steps(ref, flow):
        return BY_NAME if not flow.runs.world.project.callers(ref).calls else "in every call of a method that runs in each step"
    return Fact("clean-up-loop-elsewhere", "it is not in a loop of this function")


def in_loop(event: CallEffect, flow: Flow) -> str | Fact:
    """As ``step_path``, of a call in a loop."""
    loop = event.site.loops[-1]
    if loop[0] != event.site.frame and is_stage(event.site.frame, flow):
        return Fact("clean-up-of-a-stage", "each call of the enclosing function iterates over a whole data set: it is a stage")
    if loop not in flow.record.loops:
        return Fact("clean-up-loop-unknown", "its loop is unknown")
    if deletes_model(event, flow):
        return Fact("clean-up-after-a-model", "a model was deleted just before, which ends a stage")
    if loop_of_steps(event, flow, loop):
        return "in every step of the loop"
    if is_part_of_forward(flow.record.root, flow.runs.world):
        return "in every forward"
    return Fact("clean-up-without-step", "no step runs in the body of its loop: each iteration is a stage")


def in_forward(event: CallEffect, owner: ClassRef, flow: Flow) -> str | Fact:
    """As ``step_path``, of a call in a class's forward."""
    if is_whole_stage(flow) or goes_over_pieces(flow):
        return Fact("forward-over-a-data-set", "the forward iterates over a whole data set")
    if EVALUATION not in event.site.guards:
        return "in every forward"
    if TORCH.words["loss-classes"].intersection(purpose.words(owner.qualname)) or not is_put_into_evaluation(owner, flow):
        return Fact("module-not-evaluated", "nothing puts the module in evaluation mode")
    return "in every forward outside training"


def is_limited(event: CallEffect, flow: Flow) -> bool:
    """Whether a test lets the call through now and then only. A test that a step of training waits for as well decides how often
    there is a step, not how often the call comes with one."""
    steps = [
        other.site.guards
        for other in flow.record.events.values()
        if (is_training(other) or is_possible_step(other)) and other.site.loops == event.site.loops
    ]
    if any(is_without_step(test, steps, event, flow) for test in event.site.guards):
        return True
    of_steps = {test for guards in steps for test in guards}
    if not of_steps and event.site.loops:
        of_steps = of_forwards(event, flow)
    own = [test for test in event.site.guards if test not in of_steps]
    tests = [test for test in own if not test.startswith("not ")]
    gates = event.gates if own else ()
    if any(is_listed_turn(test, event, flow) for test in tests):
        return True
    return any(is_rate(test) for test in [*tests, *gates]) or any(is_answer(test) for test in gates)


def is_without_step(test: str, steps: list[tuple[str, ...]], event: CallEffect, flow: Flow) -> bool:
    """Whether a test lets through only turns of the loop in which nothing trains or runs a network: every step of training waits for the
    opposite (``if not torch.isfinite(loss): …; continue``)."""
    if not steps or not all(
        any(are_opposite(test, other) or are_opposite(other, test) for other in guards) for guards in steps
    ):
        return False
    return all(test not in graph.site.guards for graph in networks_beside(event, flow))


def networks_beside(event: CallEffect, flow: Flow) -> list[Graph]:
    """The networks that run in the call's loop, itself."""
    graphs = [*flow.record.graphs.values(), *flow.record.forwards.values()]
    return [g for g in graphs if g.site.loops == event.site.loops and (g.kind is GraphKind.FORWARD or g.direct)]


def of_forwards(event: CallEffect, flow: Flow) -> set[str]:
    """The tests that all networks wait for that run in the call's loop, itself: whether there is a batch, and whether it is worth a run.
    A test of the iteration's number is none of them: what comes every hundredth time is no step of its own."""
    networks = [set(graph.site.guards) for graph in networks_beside(event, flow)]
    shared = set[str].intersection(*networks) if networks else set[str]()
    return {test for test in shared if REMAINDER not in test}


REMAINDER = " % "


def is_possible_step(event: object) -> bool:
    """Whether an optimizer that a function out of sight made may take a step: under the test by which gradients are accumulated."""
    return isinstance(event, CallEffect) and event.effect is CallByName.POSSIBLE_STEP


def is_listed_turn(test: str, event: CallEffect, flow: Flow) -> bool:
    """Whether a test lets only some iterations through, by their number: ``step in config.steps_to_grow``."""
    number, inside, listed = test.strip("()").partition(" in ")
    loops = (flow.record.loops.get(loop) for loop in event.site.loops)
    counted = (info for info in loops if info is not None and COUNTS.search(info.text))
    return bool(inside) and not COUNTS.search(listed) and any(number in info.targets for info in counted)


COUNTS = re.compile(r"\b(\w*range|enumerate)\(")
"""Loops, and what a number is looked for in, that count."""


def is_put_into_evaluation(cls: ClassRef, flow: Flow, depth: int = 0) -> bool:
    """Whether ``eval()`` may reach the modules of a class. It does not where each that is made visible is held, or held by what
    is held, by an object that is no module itself (a trainer's ``self.loss``) and never evaluates what it holds there."""
    world = flow.runs.world
    project = world.project
    init = project.method(cls, "__init__")
    callers = project.callers(init) if init is not None else None
    if callers is None or not callers.calls or callers.escapes or depth == MAX_HOLDERS_ABOVE:
        return True
    for caller in callers.calls:
        holder = world.class_of_method(caller.ref)
        if is_test(caller.ref.path, caller.ref.qualname):
            continue
        if holder is None:
            return True
        made = (caller.ref.qualname, f"{caller.call.callee}()")
        names = {fact.name for fact in project.attrs(holder) if (fact.method, fact.value) == made}
        if not names:
            return True
        if world.is_module_class(holder) is not False:
            if is_put_into_evaluation(holder, flow, depth + 1):
                return True
        elif any(
            call.callee in (f"self.{name}.eval", f"self.{name}.train")
            for name in names
            for method in world.project.within(holder.path, holder.qualname)
            for call in method.calls
        ):
            return True
    return False


def is_measurement(flow: Flow) -> bool:
    """Whether the function returns, or computes what it returns of, how much memory was in use."""
    if not any(MEASURES.search(call.callee) for call in flow.runs.world.facts(flow.record.root).calls):
        return False
    nodes = list(nodes_of(flow.runs.world.body(flow.record.root)))
    measured = {
        target.id
        for node in nodes
        if isinstance(node, ir.Assign) and any(MEASURES.search(callee) for callee in callees_inside(node.value))
        for target in node.targets
        if isinstance(target, ir.Name)
    }
    given = [node.value for node in nodes if isinstance(node, ir.Return) and node.value is not None]
    return any(
        measured & names_inside(value) or any(MEASURES.search(callee) for callee in callees_inside(value)) for value in given
    )


def callees_inside(expr: ir.Expr) -> Iterator[str]:
    return (dotted(node.func) for node in walk(expr) if isinstance(node, ir.Call))


def is_rate(test: str) -> bool:
    """Whether a test lets the call through now and then: by a count, a size or a measurement."""
    parts = CONJUNCTION.split(test)
    return any(
        RATE.search(part) and (not DEVICE.search(part) or SHORT.search(part)) and not NEARLY_ALWAYS.search(part)
        for part in parts
    )


NEARLY_ALWAYS = re.compile(r" % .*!=")
"""Tests that hold for all numbers but those that can be divided."""


def is_answer(value: str) -> bool:
    """Whether a gate is what a function says in each step, which only that function knows, and no setting."""
    return bool(ANSWERS.search(SETTLED.sub("", value))) and not DEVICE.search(value)


def loop_of_steps(event: CallEffect, flow: Flow, loop: tuple[int, int]) -> bool:
    """Whether an iteration of the loop is a step: a batch of a loader, or a body that runs a network, back-propagates or steps
    an optimizer in the loop itself. A loop in which these only run in a loop inside it is one of stages (epochs, folds,
    tasks)."""
    record = flow.record
    info = record.loops[loop]
    if info.attempts:
        return False
    if info.kind is Kind.LOADER or purpose.STRIDE.search(info.text):
        return True
    around = event.site.loops
    networks = [
        g
        for g in [*record.graphs.values(), *record.forwards.values()]
        if g.site.loops[: len(around)] == around
        and (g.kind is GraphKind.FORWARD or (g.kind is GraphKind.OPAQUE and runs_model(flow, g, info)))
    ]
    trained = [
        e.site.loops
        for e in record.events.values()
        if is_training(e) and e.site.loops[: len(around)] == around and not is_of_scheduler(e, flow)
    ]
    if around not in trained and any(g.kind is GraphKind.FORWARD and loop in g.module_loops for g in networks):
        return False  # a model is made or loaded in every iteration, and used: an iteration is a stage
    if loop[0] == event.site.frame and trains_again(event, flow, loop):
        return False
    if not trained and (
        fills_weights(event, flow, loop) or brings_a_part(event, flow, loop) or goes_over_names(event, flow, loop)
    ):
        return False  # an iteration is one checkpoint, block or component
    if trained and around not in trained:
        return False
    return around in trained or any(g.site.loops == around for g in networks)


def is_of_scheduler(event: object, flow: Flow) -> bool:
    """Whether a step is a scheduler's, or of what looks like one: that comes once an epoch as well."""
    if not isinstance(event, CallEffect) or event.effect is not CallByName.OPTIMIZER_STEP:
        return False
    return has_no_tensors(flow.runs.world, flow.frame(event.site).ref, event.name.rpartition(".")[0])


def deletes_model(event: CallEffect, flow: Flow) -> bool:
    """Whether a model was deleted in the same iteration before: what is a module or is called as one, what a call made of nothing
    that the iteration brings (``build()``), or what a call made and is then given something to work on (``net.fit(x, y)``)."""
    networks = [
        g for g in [*flow.record.graphs.values(), *flow.record.forwards.values()] if g.kind is GraphKind.FORWARD or g.direct
    ]
    called = {g.what for g in networks}
    calls = flow.runs.world.facts(flow.frame(event.site).ref).calls
    fed = {call.callee for call in calls if call.args}
    bare = {call.callee for call in calls}
    works = {owner for owner, _, name in (callee.rpartition(".") for callee in fed) if name not in OF_VALUES}
    return any(
        text in bare
        or (text in works and makers(text, event, flow))
        or any(what == text or what.startswith(f"{text}.") for what in called)
        or not makers(text, event, flow) <= fed
        for text in event.deleted_before
    )


OF_VALUES = frozenset(TORCH.methods) | TORCH.words["container-methods"]
"""Methods of tensors, and of what holds them."""


def makers(text: str, event: CallEffect, flow: Flow) -> set[str]:
    """The functions whose results a name is given."""
    facts = flow.runs.world.facts(flow.frame(event.site).ref)
    bare = {call.callee for call in facts.calls}
    made = {value.partition("()")[0] for name, value in (*facts.bound, *facts.rebound) if name == text and "()" in value}
    return made & bare


def may_end_a_stage(event: CallEffect, flow: Flow) -> tuple[Fact, ...]:
    """A doubt where only names say that what was deleted is a network that was made for the iteration, and not a network's result:
    ``model = model_for(task)``, ``net = load_net(path)``."""
    for text in sorted(event.deleted_before):
        if purpose.may_be_network(text) and any(reads_like_a_maker(each) for each in makers(text, event, flow)):
            return (stage_ends(text),)
    return ()


def reads_like_a_maker(callee: str) -> bool:
    return purpose.is_helper(callee) or not FROM.isdisjoint(purpose.words(callee))


FROM = frozenset({"for", "from"})
"""Words of what gives an object for, or from, what it is given."""


def is_stage(frame: int, flow: Flow) -> bool:
    """Whether the function that runs in a frame goes over a whole set by itself: it has a loop in which a model runs, or trains."""
    record = flow.record
    sites = [g.site for g in [*record.graphs.values(), *record.forwards.values()] if g.kind in CALLED_KINDS]
    sites += [e.site for e in record.events.values() if is_training(e)]
    return any(loop[0] == frame and loop in record.loops for site in sites for loop in site.loops)


def trains_again(event: CallEffect, flow: Flow, loop: tuple[int, int]) -> bool:
    """Whether each iteration of a loop is a training of its own: it makes an optimizer, or asks for a number of epochs."""
    ref = flow.frame(event.site).ref
    return any(
        any(EPOCHS.fullmatch(arg.keyword) for arg in call.args)
        or (flow.runs.world.project.resolve(ref.path, call.callee, ref.qualname) or "").startswith("torch.optim.")
        for call in calls_in(loop, event, flow)
        if not is_scheduler(call.callee)
    )


def fills_weights(event: CallEffect, flow: Flow, loop: tuple[int, int]) -> bool:
    """Whether each iteration of the loop gives a model its weights, or replaces them."""
    if loop[0] != event.site.frame:
        return False
    return any(WEIGHTS.fullmatch(call.callee.rpartition(".")[2]) for call in calls_in(loop, event, flow))


def brings_a_part(event: CallEffect, flow: Flow, loop: tuple[int, int]) -> bool:
    """Whether each iteration moves a network of its own to the device, and runs it there: one of the blocks of a model that the device
    does not hold as a whole (``layer = layers[i].to(device)``)."""
    if loop[0] != event.site.frame:
        return False
    facts = flow.runs.world.facts(flow.frame(event.site).ref)
    inside = [call.callee for call in calls_in(loop, event, flow)]
    elements = {name: text for name, text in (*facts.bound, *facts.rebound) if "[]" in text and name in inside}
    moved = [
        f"{owner}.{move}"
        for name, text in elements.items()
        for move in MOVES
        for owner in (name, text.rpartition("[]")[0] + "[]")
    ]
    return not set(moved).isdisjoint(inside)


MOVES = TORCH.words["moves-tensors"]


def goes_over_names(event: CallEffect, flow: Flow, loop: tuple[int, int]) -> bool:
    """Whether an iteration's only value is a name, by which one part of an object is looked up (``getattr(pipe, name)``)."""
    targets = flow.record.loops[loop].targets
    if len(targets) != 1:
        return False
    texts = [
        flow.source(g.site, g.site.node)
        for g in flow.record.graphs.values()
        if g.what == "getattr" and g.site.loops == event.site.loops and g.site.frame == event.site.frame
    ]
    return any(found[1] in targets for text in texts if (found := GETATTR.match(text)))


def runs_model(flow: Flow, graph: Graph, loop: LoopInfo) -> bool:
    """Whether an unresolved call runs a model, by its name, by what is done with its result, or because the loop iterates over what
    reads like batches: any function may be called so."""
    named = purpose.may_be_network(graph.what) or purpose.trains(graph.what)
    if graph.direct and (named or purpose.BATCHES.search(loop.text)):
        return True
    if not graph.direct and (graph.what.endswith("]") or graph.what.rpartition(".")[2] in GETTERS):
        return False
    return tensor_like(flow, graph.gid)


def is_scheduler(callee: str) -> bool:
    """Whether what is called is made of an optimizer, not for one: a scheduler of its rates."""
    return "lr_scheduler" in callee or callee.endswith("LR")


def tensor_like(flow: Flow, gid: int) -> bool:
    """Whether an unresolved call's result is treated as only a tensor can be."""
    return bool(flow.record.evidence.get(gid, set()) & (TORCH.words["tensor-results"] | {Seen.TORCH_OP}))


def drives_steps(flow: Flow) -> bool:
    """Whether the function has a loop of its own in which a model runs, or over a loader: outside of it is before or after all steps."""
    loads = any(frame == 0 and info.kind is Kind.LOADER for (frame, _), info in flow.record.loops.items())
    return loads or any(graph.site.loops for graph in own_models(flow))


def own_models(flow: Flow) -> Iterator[Graph]:
    """The graphs of the models that the function runs itself."""
    for graph in [*flow.record.graphs.values(), *flow.record.forwards.values()]:
        if flow.own(graph.site) and (graph.kind is GraphKind.FORWARD or graph.direct):
            yield graph


def is_whole_stage(flow: Flow) -> bool:
    """Whether the function is a method of a class that is no module, and has all steps in a loop of its own: a job's stage, by
    whatever name."""
    record = flow.record
    if flow.root_is_module() is not False:
        return False
    return any(
        loop[0] == 0
        for g in [*record.graphs.values(), *record.forwards.values()]
        if g.kind in CALLED_KINDS
        for loop in g.site.loops
    )


def goes_over_pieces(flow: Flow) -> bool:
    """Whether a module's forward runs models on one piece after the other (frames, chunks) in a loop of its own: it is a whole
    job, and outside the loop is between its stages. A loop over layers, or over time steps, is one forward."""
    record = flow.record
    for graph in [*record.graphs.values(), *record.forwards.values()]:
        for loop in graph.site.loops:
            info = record.loops.get(loop)
            if loop[0] == 0 and info is not None and is_run(graph):
                layers = ROOT_NAME.split(graph.what, maxsplit=1)[0] in info.targets
                if info.targets and not layers and not info.text.startswith(("self.", "range(", "reversed(range(")):
                    return True
    return False


def is_run(graph: Graph) -> bool:
    """Whether a module runs, or by its name a method of one."""
    return graph.kind is GraphKind.FORWARD or (
        graph.kind is GraphKind.OPAQUE and bool(purpose.RUNS_MODEL.search(graph.what.rpartition(".")[2]))
    )


def stands_in_steps(caller: Caller, flow: Flow) -> bool:
    """Whether a call stands in a loop whose turns may be steps: no model runs or trains only in loops further in (an episode's)."""
    depths = {
        call.loops
        for call in flow.runs.world.facts(caller.ref).calls
        if call.callee.rpartition(".")[2] in TORCH.words["ends-a-step"] or (call.loops and purpose.may_be_network(call.callee))
    }
    own = caller.call.loops
    return own > 0 and (own in depths or not any(depth > own for depth in depths))


def called_in_steps(ref: FunctionRef, flow: Flow, depth: int = 0) -> bool:
    """Whether some call of the method stands in a loop, or nothing visible calls it (a framework's hook) and its name is no
    stage's."""
    if depth > MAX_CALLERS_ABOVE:
        return False
    project = flow.runs.world.project
    callers = project.callers(ref)
    if callers.calls:
        return any(
            stands_in_steps(c, flow) or (not c.call.loops and c.ref != ref and called_in_steps(c.ref, flow, depth + 1))
            for c in callers.calls
        )
    # Nothing visible calls it: a method that overrides one of a base that is not visible is a framework's hook.
    hook = project.grad_mode(ref).mode in ("unseen-base", "off") and bool(flow.runs.world.header(ref).owner)
    return hook and bool(STEPS.search(ref.qualname.rpartition(".")[2]))
