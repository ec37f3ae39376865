"""A model runs only for its result, but builds an autograd graph.

## What it does
Reports a call of a model that builds an autograd graph which no `backward()` uses: everything computed from the result is
detached, converted to numbers, compared, printed or never read. An evaluation inside a training step is reported, too, and
so is an evaluation phase of a function that also trains.

`eval()` changes dropout and batch normalization. It does not disable grad mode.

The analysis follows:

- results through the function, the functions of the project that it calls, and its callers;
- grad mode through `with` blocks, decorators, `set_grad_enabled`, the project's own wrappers, hooks that a framework runs
  without grad (`validation_step`), and callers;
- models by their class, by the arguments of callers, or by their use (`eval()`, `parameters()`, a result that is trained or
  detached elsewhere).

Each assumption lowers the confidence, and the finding names what would make it false. Assumptions are, for example: no
visible code calls the function; only its name says that an object is a model; the result leaves the function, and only
`eval()` says that nothing trains it. Low-confidence findings are printed with `--min-confidence low`.

One finding covers all such calls of a function. In code that trains, one finding covers the calls of one loop; in a
training step, the calls whose results feed each other. It is at the first call, or the first whose results are kept. If a
function that runs the model serves both training and evaluation, the finding is at the call that evaluates, and names the
callers that evaluate with grad mode on.

It does not report:

- code that runs with grad mode off, or whose callers decide it by a flag;
- modules without parameters, or with only frozen ones (`requires_grad_(False)`, Lightning's `freeze()`, also in a caller);
- results that a module keeps in attributes which the function reads, if it back-propagates something;
- graphs whose nodes are read (`grad_fn`);
- modules whose own forward computes gradients (forces from an energy) or disables grad mode;
- results whose `numpy()` would raise with grad mode on;
- networks of other frameworks;
- unit tests, and functions that only methods of `unittest.TestCase` call.

## What it costs
- Results are kept with their graphs (error): one whole graph per step. Measured on the CPU with a 6-layer transformer
  encoder: 19.0 MB per step, until memory runs out, with or without `.cpu()`. A list, a dict, a total or a meter keeps what
  a criterion made of them, too; a state that goes from one forward into the next keeps all of them.
- Results are dropped or detached (warning): no growth, but a higher peak, because each graph lives until its result is
  rebound. Measured: a peak of 39.3 MB if the result stays bound to a name during the next forward, 20.3 MB if it does not,
  2.1 MB under `no_grad`.
- The calls of a method gather results in an attribute, or leave a state there for the next call (warning): the graphs of a
  rollout stay until the rollout ends, however small each of them is.
- The forward is small or runs rarely (note):
  - once per program, or in a function that no loop calls, in at most 10 iterations, or where the program ends behind it;
  - once per epoch, in a function of its own, beside training whose steps run in an inner loop;
  - once for an environment's next action;
  - in a network of linear layers, none known to exceed 4,096 features, or of one linear or embedding layer;
  - in a network of at most 250,000 parameters, by the widths in the code, without convolutions or attention;
  - where a file that defines networks tries one out when it is started, without the weights of a training;
  - in a function that nothing calls, in a file or class that scripts use;
  - in a program that moves nothing to a device, of a network that is moved to the host (`device = torch.device("cpu")`), where an input
    is made on the host and not moved, or where `numpy()` of the result would raise for a tensor on a GPU: the graphs are in host
    memory.

  This goes by what the code shows. The widths, the device or the number of iterations that an option, a configuration file or unseen code
  decides are not known, and make no note of it.
- All parameters are frozen and no input requires grad: no cost, and no finding.

## Example
```python
import torch


def predict(model, loader):
    model.eval()
    outputs = []
    for inputs in loader:
        outputs.append(model(inputs))
    return torch.cat(outputs)
```

Use instead:

```python
import torch


@torch.no_grad()
def predict(model, loader):
    model.eval()
    outputs = []
    for inputs in loader:
        outputs.append(model(inputs))
    return torch.cat(outputs)
```

## Fix
Adds

- `@torch.no_grad()` above the function, if nothing in it trains;
- else, or where that alone is proved safe, `with torch.no_grad():` around the statement, if it shares its lines with no other. Adjacent
  statements share one `with`;
- `with torch.set_grad_enabled(…):` around a forward that another phase of the function trains, with the condition of that
  phase (`optimizer is not None`).

Unsafe: whether a program does something else without a graph cannot be proved in Python (an exception that only the graph raises, and that
is caught; a flag that is read by its name in a text). Where all of this holds, `full` output and JSON (`proof`) say so, and
`extend-safe-fixes` is a smaller step:

- every use of all that the statement or function computes is visible, and none back-propagates: in no phase, and in no caller;
- nothing that runs there works on gradients or goes by grad mode: no function, no network that may run, no hook. Networks keep
  nothing of what they compute, are of visible classes or of known libraries, and have no layer that computes otherwise without a
  graph (`nn.TransformerEncoder` leaves zeros where its mask is; measured). Autocast keeps no weights for a training step;
- the code is part of a program, so no other code can use it, in which nothing takes a gradient or reaches objects by a text
  (`backward`, `autograd.grad`, `exec`, `setattr`): beside a training the ways to a backward are too many to follow them all.

Torch may choose another kernel where no graph is recorded, so that last bits of a result can differ on some devices.

Otherwise a caller that is not visible may back-propagate the result. There is no fix, and the finding says why,

- if a backward may go through the result on any path, in any phase, in a caller, or through an attribute;
- if code reads what the module keeps of its forward;
- if the method may be part of a forward.

`torch.inference_mode()` needs the same memory (measured), but its tensors cannot be used in training later.

## When to ignore
The result is back-propagated by code that the analysis cannot see. If a wrapper of another package disables grad mode, name
it in `no-grad-wrappers` instead.

## References
- Autograd mechanics, locally disabling gradient computation, evaluation mode:
  https://docs.pytorch.org/docs/stable/notes/autograd.html
- torch.no_grad: https://docs.pytorch.org/docs/stable/generated/torch.no_grad.html
- measured: torch 2.13.0 on the CPU, see docs/costs.md; CUDA measurements are still to come
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchmemlint.findings import Fix, FlowStep, Safety, Severity
from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.grad_effects import ON
from torchmemlint.index.project import FunctionRef
from torchmemlint.rules.api import Draft, Flow, NoFix, Rule, short
from torchmemlint.rules.card import About, Advice, Correction, Once, Same, Shown
from torchmemlint.rules.cost.circumstances import of_forward
from torchmemlint.rules.cost.often import ends_the_program, turns_of
from torchmemlint.rules.cost.size import chains, stays_bound, why_on_host
from torchmemlint.rules.cost.table import price
from torchmemlint.rules.evidence.demand import is_unread
from torchmemlint.rules.evidence.module_evidence import is_step_of_evaluated
from torchmemlint.rules.evidence.phases import asking_with_grad, steps_with_grad
from torchmemlint.rules.evidence.standing import twins
from torchmemlint.rules.evidence.wanted_graphs import GUARDS
from torchmemlint.rules.fact import Fact
from torchmemlint.rules.gradmode.fixes import above_function, guard_statement, why_not_function
from torchmemlint.rules.gradmode.judgement import (
    Verdict,
    is_constant,
    is_reported,
    judge,
    meeting,
    when,
)
from torchmemlint.rules.gradmode.proof import with_proof
from torchmemlint.rules.reach import is_called_in_loops
from torchmemlint.rules.retention.claims import WHOLE_COST, Claim, claim, is_detached_in_place, is_over_parts
from torchmemlint.semantics.identity import is_module_given
from torchmemlint.semantics.mode import purpose, reaches
from torchmemlint.semantics.roots import GATHERING, MAX_CALLERS, Fate, Runs, descendants
from torchmemlint.semantics.state import (
    CALLED_KINDS,
    MODULE,
    Accumulate,
    Backward,
    Graph,
    GraphKind,
    Mode,
    RecordFlag,
    Site,
    Store,
    StoreKind,
)
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import HookEffect

RULE = Rule(
    code="TML201",
    name="inference-with-grad",
    summary="A model runs only for its result, but builds an autograd graph",
    severity=Severity.ERROR,
    about=About.NEEDLESS_GRAPH,
    fix=Safety.UNSAFE,
    triggers=TORCH.words["inference-words"] | {"for", "while", "append", "return"},
    of_results=True,
    always=True,
    yields_to=frozenset({"TML202", "TML203"}),
    explains=Same.GRAPHS,
    once=Once.A_PART,
    correction=Correction.NO_GRAD_AROUND,
    shown=frozenset({Shown.NO_BACKWARD}),
    advice=frozenset({Advice.NO_GRAPH}),
)
EVENT = Graph

KEPT_COST = "the stored results keep the whole autograd graph of every step: one graph's saved tensors per step"
HELP = "run it under `torch.no_grad()`{or_}; `eval()` does not disable grad mode"
HELP_BOTH = "run it under `torch.set_grad_enabled(…)` with the condition of the phase; `eval()` does not disable grad mode"
HELP_ASKED = "remove `{name}`: it enables grad mode here, even if the caller has disabled it"
LISTED_COST = (
    "builds an unused autograd graph in each iteration of the comprehension, and the list keeps all of them until they are "
    "detached: the peak grows with the number of iterations"
)
PEAK_COST = "builds an autograd graph that nothing uses: up to one extra graph at peak"
CHAIN_COST = (
    "builds an autograd graph that nothing uses, and each iteration's graph includes the previous one: all of them stay alive "
    "until the loop ends"
)
GATHERED_COST = "`{place}` keeps the graph of every call until it is emptied"
ROUND_COST = "each call's graph includes that of the call before: `{place}` keeps all of them until it is set anew"
HANDED_COST = "`{keeper}` keeps the graph of every iteration until the object that it belongs to is emptied or dropped"
LEFT_COST = f"{PEAK_COST.replace('one extra graph', 'two extra graphs')}, as `{{place}}` keeps that of the call before"
LOOP_COST = f"{PEAK_COST}, and one more for each earlier result that something still holds"


def is_root(facts: FunctionFacts, ref: FunctionRef, runs: Runs) -> bool:
    """Whether a function calls, in a loop, a parameter for which its callers give a module."""
    params = {param.name for param in facts.params}
    called = {call.callee for call in facts.calls if call.loops and call.args and call.callee in params}
    return any(is_module_given(runs.world, ref, name) for name in sorted(called))


def check(event: Graph, flow: Flow) -> Iterator[Draft | Fact]:
    if event.kind not in CALLED_KINDS:
        return
    verdict = judge(event, flow)
    if isinstance(verdict, Fact):
        yield verdict
        return
    if is_constant(event, flow):
        return
    hanging = descendants(flow.record, event.gid)
    kept: list[Accumulate | Store] = [
        e
        for e in flow.record.events.values()
        if isinstance(e, Store)
        and not e.constant_key
        and is_kept_for_sure(event, hanging & e.graphs, flow)
        and not is_over_parts(flow, e.loop, (event,))  # as many as the network has layers
        and turned(e, event)  # else each turn keeps the one graph that was made before
        and flow.own(e.site)
        and not is_step_of_evaluated(event)  # what a step gives is what it chose to hand out: numbers, as a rule
    ]
    totals: list[Accumulate | Store] = [
        e
        for e in flow.record.events.values()
        if isinstance(e, Accumulate)
        and is_kept_for_sure(event, hanging & e.graphs, flow)
        and not e.through_module
        and not is_over_parts(flow, e.loop, (event,))
        and not is_detached_in_place(flow, e.mark)
        and turned(e, event)
        and flow.own(e.site)
    ]
    if not verdict.evaluated and any(isinstance(e, Accumulate) and keeps_whole_graphs(e, flow) for e in totals):
        yield Fact("total-reported", "the total is the mistake, which TML101 reports")
        return
    elsewhere = [] if kept or totals or event.gid not in flow.record.returned else kept_by_callers(event, flow)
    site = flow.own_site(event.site)
    growth, cost, loops = (
        ("whole-graphs", KEPT_COST, [loop for e in kept + totals for loop in turned(e, event)[-1:]])
        if kept or totals or elsewhere
        else bounded(event, verdict.fate, hanging, flow)
    )
    circumstances = of_forward(event, verdict.fate, flow)
    if not (kept or totals or verdict.fate.only_cut or verdict.fate.never_read):
        circumstances = {name: circumstances[name] for name in ("tried-out", "once")}  # a roll-out's results may be kept
    severity, cost = price(growth, cost, circumstances, max((turns_of([loop], flow) for loop in loops), default=-1))
    yield Draft(
        flow.at(
            RULE,
            site,
            f"`{short(flow.callee(site))}(…)` builds an autograd graph{when(event, flow)}{text_of(event, verdict, flow)}",
            severity=severity,
            doubts=verdict.facts,
            label="this graph is never used",
            cost=cost,
            help=help_for(event, flow),
            flow=[
                *(flow.step(e.site, f"kept with its graph in `{short(e.place)}`") for e in (kept + totals)[:3]),
                *(elsewhere or calls_with_grad(verdict.fate, flow))[:3],
            ],
            fix=guard(event, flow),
        ),
        hanging | {graph.gid for graph in flow.made_inside(site)},
        event.site.handler,
        part_of(event, flow),
        site.loops,
        cause=meeting(verdict.fate.cuts, flow) if flow.beside_backward(event) else "",
    )


def turned(keeping: Accumulate | Store, event: Graph) -> list[tuple[int, int]]:
    """The loops around a forward whose turns each add what it gives to what is kept, be it in a loop of their own."""
    outlived = keeping.outlived or (() if keeping.loop is None else (keeping.loop,))
    return [loop for loop in outlived if loop in event.site.loops]


def is_kept_for_sure(event: Graph, gids: frozenset[int], flow: Flow) -> bool:
    """Whether some of the graphs that a stored value hangs on was surely built: not only by a function that is not visible and gets
    the forward's result, and that may as well return a number."""
    graphs = [flow.record.graphs[gid] for gid in gids]
    return any(g.gid == event.gid or g.kind is not GraphKind.OPAQUE or g.direct for g in graphs)


def part_of(event: Graph, flow: Flow) -> tuple[object, ...]:
    """The part of the root that one guard would cover: all of it where nothing trains, the loop of an evaluation where training or
    a script's other work stands around it, in a training step the statements of one chain of forwards."""
    record = flow.record
    if flow.beside_backward(event):
        above = [record.graphs[gid] for gid in record.ancestors(frozenset((event.gid,)))]
        chain = [g.site for g in above if g.kind in CALLED_KINDS and flow.own(g.site) and is_reported(g, flow)]
        starts = [(site.frame, flow.lowered(site).statement(site.node)[0].start) for site in (event.site, *chain)]
        return min(starts)
    if record.root.qualname == MODULE or RecordFlag.BACKWARD in record.flags:
        return event.site.loops
    return ()


def keeps_whole_graphs(event: Accumulate, flow: Flow) -> bool:
    """Whether a running total keeps every step's whole graph."""
    claimed = claim(flow, event.graphs, event.mark, event.holder_frame < 0, event.loop, total=True)
    return isinstance(claimed, Claim) and claimed.cost == WHOLE_COST


def text_of(event: Graph, verdict: Verdict, flow: Flow) -> str:
    """Why the graph is built for nothing, in words."""
    if verdict.fate.only_cut:
        return ", but every result is detached, converted to numbers or compared"
    if verdict.fate.never_read and is_unread(event, flow):
        return ", but nothing reads its result"
    if verdict.evaluated:
        unsaid = flow.runs.world.hook(flow.record.root) is HookEffect.EVALUATION and event.training is not False
        after = "" if unsaid or flow.trains_in_another_phase(event) else " after `eval()`"
        return f"{after}, and no `backward()` uses it"
    return f" in `{short(flow.record.root.qualname)}`, and no `backward()` uses it"


def bounded(event: Graph, fate: Fate, hanging: frozenset[int], flow: Flow) -> tuple[str, str, list[tuple[int, int]]]:
    """What grows, and until when, of a graph that nothing visible keeps beyond its step, or only until a rollout is used up; with the loops
    whose iterations add to it."""
    for place, cost in ((gathered(hanging, flow), GATHERED_COST), (goes_round(event, hanging, flow), ROUND_COST)):
        if place and not why_on_host(event, flow) and is_called_in_loops(flow.record.root, flow):
            return "until-emptied", cost.format(place=place), []
    for keeping, loop in handed_to(event, hanging, flow):
        cost = HANDED_COST.format(keeper=short(flow.own_call(keeping.site)[1].qualname))
        goes = isinstance(keeping, Store) and flow.record.is_let_go(keeping)
        return "until-emptied" if goes else "graphs-until-the-end", cost, [loop]
    if is_listed(event, flow):
        return "graphs-until-the-end", LISTED_COST, [event.site.loops[-1]]
    if any(not is_over_parts(flow, event.site.loops[-1], (chained,)) for chained in chains(event, flow)):
        return "graphs-until-the-end", CHAIN_COST, [event.site.loops[-1]]
    for loop in carried_by_callee(event, hanging, flow):
        return "graphs-until-the-end", CHAIN_COST, [loop]
    return "extra-graph", cost_at_peak(event, flow), []


def carried_by_callee(event: Graph, hanging: frozenset[int], flow: Flow) -> Iterator[tuple[int, int]]:
    """The loops of a function of the project that is called here, and runs the forward in them, in which a value of its own goes from one
    iteration into the next with the graph: ``x = x - eps`` of a sampler."""
    for each in flow.record.events.values():
        if (
            isinstance(each, Accumulate)
            and each.loop in event.site.loops
            and each.site.frame == event.site.frame
            and not flow.own(each.site)
            and not each.through_module
            and not is_over_parts(flow, each.loop, (event,))
            and is_kept_for_sure(event, hanging & each.graphs, flow)
        ):
            yield each.loop


def gathered(hanging: frozenset[int], flow: Flow) -> str:
    """The attribute in which the calls of a method gather what is attached to a graph, one value after another; "" where none
    does."""
    found = (
        each.place
        for each in flow.record.events.values()
        if isinstance(each, Store) and each.how in GATHERING and each.external and each.graphs & hanging and flow.own(each.site)
    )
    return next((short(place) for place in found if place.startswith("self.")), "")


def goes_round(event: Graph, hanging: frozenset[int], flow: Flow) -> str:
    """The attribute that keeps the state which a call takes from the one before and leaves for the next, with its graph; "" where there
    is none."""
    calls = flow.runs.world.facts(flow.record.root).calls
    taken = {arg.name for call in calls if call.callee == event.what for arg in call.args if arg.name.startswith("self.")}
    left = (
        each.place
        for each in flow.record.events.values()
        if isinstance(each, Store) and each.external and each.graphs & hanging and flow.own(each.site)
    )
    return next((short(place) for place in left if place in taken), "")


def handed_to(event: Graph, hanging: frozenset[int], flow: Flow) -> Iterator[tuple[Accumulate | Store, tuple[int, int]]]:
    """Where functions of the project keep what is attached to a graph, iteration after iteration of a loop, in an object that the root
    made before that loop: one value after another, or their total."""
    for each in flow.record.events.values():
        if (
            (isinstance(each, Accumulate) or (isinstance(each, Store) and not each.constant_key))
            and not flow.own(each.site)
            and (outlived := [*filter(event.site.loops.__contains__, each.outlived)])
            and each.holder_frame >= 0
            and flow.own(Site(each.holder_frame, -1))
            and is_kept_for_sure(event, hanging & each.graphs, flow)
        ):
            yield each, outlived[-1]


def cost_at_peak(event: Graph, flow: Flow) -> str:
    """What a graph costs that no result keeps beyond its step."""
    again = bool(event.site.loops) and turns_of(event.site.loops, flow) not in (0, 1) and not ends_the_program(event.site, flow)
    if again and (place := left_in(event, flow)):
        return LEFT_COST.format(place=place)
    return LOOP_COST if again and stays_bound(event, flow) else PEAK_COST


def left_in(event: Graph, flow: Flow) -> str:
    """The attribute in which a module's forward leaves something with its graph until the next call; "" for none."""
    inside = {graph.gid for graph in flow.made_inside(event.site)}
    for each in flow.record.events.values():
        if isinstance(each, Store) and each.how is StoreKind.ATTR and not flow.own(each.site):
            if any(graph.gid in inside for graph in flow.real(each.graphs)):
                return short(each.place)
    return ""


def is_listed(event: Graph, flow: Flow) -> bool:
    """Whether a list comprehension collects what this forward gives with its graph: nothing cuts it inside of an iteration."""
    record = flow.record
    info = record.loops.get(event.site.loops[-1]) if event.site.loops else None
    if info is None or not info.listed:
        return False
    cuts = [s for g in descendants(record, event.gid) for s in record.sinks.get(g, ())]
    return bool(cuts) and not any(event.site.loops[-1] in s.site.loops for s in cuts)


def help_for(event: Graph, flow: Flow) -> str:
    if flow.trains_in_another_phase(event):
        return HELP_BOTH
    world, root = flow.runs.world, flow.record.root
    facts = world.facts(root)
    for use in facts.decorators:
        if facts.qualname == root.qualname and world.project.decorator_effect(root.path, facts.parent, use) == ON:
            return HELP_ASKED.format(name=f"@{use.callee}{'()' if use.called else ''}")
    return HELP.format(or_=" (or `torch.inference_mode()`)" if flow.has(1, 9) else "")


def kept_by_callers(event: Graph, flow: Flow) -> list[FlowStep]:
    """Where callers that were run store what this forward gives, turn after turn, with its graph."""
    root = flow.record.root
    callers = flow.runs.world.project.callers(root).calls
    steps: list[FlowStep] = []
    for caller in sorted({flow.runs.root_of(c.ref) for c in callers} - {root}) if len(callers) <= MAX_CALLERS else ():
        for record in flow.runs.records(caller):
            there = Flow(flow.runs, record, caller.path)
            loops_of = {g.gid: g.site.loops for g in twins(event, root, there) if g.mode is Mode.ON}
            steps += [
                there.step(e.site, f"kept with its graph in `{short(e.place)}`")
                for e in record.events.values()
                if isinstance(e, Store)
                and not e.constant_key
                and not record.is_let_go(e)
                and there.own(e.site)
                and any(e.loop in loops for gid, loops in loops_of.items() if gid in e.graphs and e.loop is not None)
            ]
    return list(dict.fromkeys(steps))


def calls_with_grad(fate: Fate, flow: Flow) -> list[FlowStep]:
    """Where callers call the function with grad mode on, for a result that nothing of theirs back-propagates, or for the phase that
    does not train: a guard may stand there as well."""
    steps = [*asking_with_grad(flow)]
    for caller in fate.callers:
        steps += steps_with_grad(flow, caller, flow.record.root)
    return list(dict.fromkeys(steps))


FOR_STATEMENT = "Disable grad mode for the statement"
CONSTRUCTORS = ("__init__", "__post_init__", "__new__")
"""What these make is trained elsewhere, and may be attached to a graph: only the statement is guarded."""


def guard(event: Graph, flow: Flow) -> Fix | NoFix | None:
    """``@torch.no_grad()`` above the function, where nothing in it trains and a decorator reaches its body; else ``with`` around the
    statement. A forward that another phase trains keeps its graph there."""
    record = flow.record
    root = record.root
    if flow.trains_in_another_phase(event):
        return guard_phase(event, flow)
    own, demanded = own_and_trained(flow)
    trained = bool(demanded - {event.gid})
    guards = flow.runs.world.facts(root).names & GUARDS  # what the author left out of the block may need a graph
    wants = bool(guards) and any(g.mode is Mode.ON for g in own if g.kind is GraphKind.OPAQUE and g.gid != event.gid)
    apart = trained or wants or hands_on_another_graph(flow) or asks_for_gradients(flow)
    trains = any(RecordFlag.BACKWARD in each.flags for each in flow.runs.records(root))
    makes = root.qualname.rpartition(".")[2] in CONSTRUCTORS
    if root.qualname == MODULE or makes or trains or record.assumptions or apart:
        return guard_statement(event, flow, flow.own_site(event.site), FOR_STATEMENT)
    why = why_not_function(event, flow)
    if why:
        return NoFix(why)
    fix = decorate(event, flow)
    if fix is None or not flow.own(event.site):
        return fix
    fix = with_proof(fix, event, flow)
    around = guard_statement(event, flow, event.site, FOR_STATEMENT) if not fix.proof else None
    return around if isinstance(around, Fix) and around.proof else fix


def guard_phase(event: Graph, flow: Flow) -> Fix | NoFix | None:
    """``with torch.set_grad_enabled(…)`` around the statement, with the test of the phase that trains."""
    test = flow.training_test(event)[1]
    names = {p.name for p in flow.runs.world.header(flow.record.root).params} | {"bool", "not", "is", "None", "True", "False"}
    if not flow.own(event.site) and is_trained_by_callees(flow):
        return NoFix("the same statement is trained in another phase, by a function that it calls")
    if not test or not set(BARE_NAMES.findall(STRINGS.sub("", test))) <= names:
        return NoFix("the same statement is trained in another phase, and no single parameter says which phase it is")
    call = f"set_grad_enabled({test})"
    return flow.edits.under_no_grad(flow.own_site(event.site), "Enable grad mode only for training, in this statement", call)


def is_trained_by_callees(flow: Flow) -> bool:
    """Whether functions that the root calls back-propagate, in some phase."""
    phases = (Flow(flow.runs, record, flow.path) for record in flow.runs.records(flow.record.root))
    return any(
        isinstance(each, Backward) and not phase.own(each.site) for phase in phases for each in phase.record.events.values()
    )


def decorate(event: Graph, flow: Flow) -> Fix | None:
    """``@torch.no_grad()`` above the function, where one can stand there."""
    record = flow.record
    root = record.root
    world = flow.runs.world
    site = flow.own_site(event.site)
    inside = flow.frame(site).ref
    facts = world.facts(inside)
    if inside != root and (inside not in record.handed or facts.qualname != inside.qualname):
        return None  # a closure that is called here or is a hook, or a lambda, above which no decorator can stand
    if facts.is_async or world.facts(root).names & {TORCH.names["switches-grad-on"], TORCH.names["sets-grad-mode"]}:
        return None
    return above_function(inside, flow, "no_grad()", "Disable grad mode for the function")


def own_and_trained(flow: Flow) -> tuple[list[Graph], set[int]]:
    """The root's own calls of what may be a module, and those of them that are trained, or may be by its callers."""
    if flow.own_and_trained is None:
        record = flow.record
        evaluates = purpose.uses(record.root.qualname) or RecordFlag.EVAL in record.flags
        own = [g for g in record.graphs.values() if (g.kind is GraphKind.FORWARD or g.direct) and flow.own(g.site)]
        fates = [(g.gid, flow.runs.fate(record, g.gid)) for g in own]
        flow.own_and_trained = own, {gid for gid, fate in fates if fate.trains or (fate.escapes and not evaluates)}
    return flow.own_and_trained


BARE_NAMES = re.compile(r"(?<![.\w])[A-Za-z_]\w*")
"""The names in a test that something must bind."""
STRINGS = re.compile(r"'[^']*'|\"[^\"]*\"")


def hands_on_another_graph(flow: Flow) -> bool:
    """Whether the function's result depends on what it was given, and on no forward of its own: the caller may want that
    graph."""
    graphs = [flow.record.graphs[g] for g in flow.record.returned]
    return any(g.kind is GraphKind.PARAM for g in graphs) and not any(g.kind in CALLED_KINDS for g in graphs)


def asks_for_gradients(flow: Flow) -> bool:
    """Whether the function calls something of the project that takes gradients: a decorator would reach that as well."""
    world, root = flow.runs.world, flow.record.root
    called = world.facts(root).calls
    if reaches(world, root, GRADIENTS) or any(ATTACKS.intersection(purpose.words(call.callee)) for call in called):
        return True
    names = {call.callee.rpartition(".")[2] for call in world.facts(root).calls if call.callee.startswith("self.")}
    named = {name: world.project.methods_named(name) for name in names}
    return any(world.facts(ref).names & GRADIENTS for refs in named.values() if len(refs) <= MAX_NAMESAKES for ref in refs)


ATTACKS = TORCH.words["attacks"]
"""Words of callables that take gradients of a model's inputs."""
GRADIENTS = TORCH.words["takes-gradients"]
"""Words of code that takes gradients."""
MAX_NAMESAKES = 8
"""Methods of one name that are looked at: a name that many have says nothing."""
