"""What a finding assumes: facts that would make it false, each under one name.

How much one weighs stands in the scorecard.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchmemlint.rules.fact import Fact, Known


def not_a_module(what: str, known_by: Known) -> Fact:
    """What is called may be a plain function, or have no parameters; ``known_by``: what says that it is a module, a method of
    modules, or a name alone."""
    name = "module-by-name" if known_by is Known.NAME else "module-by-use"
    return Fact(name, unless=f"`{what}` is not a module with parameters", known_by=known_by)


def named_alone(callees: Sequence[str], chance: float) -> Fact:
    """Names alone say what is called; ``chance``: of all that are called so, the share of which it is true."""
    quoted = " and ".join(f"`{callee}`" for callee in callees)
    unless = f"{quoted} {'is' if len(callees) == 1 else 'are'} not what {'its name says' if len(callees) == 1 else 'their names say'}"
    return Fact("known-by-name", unless=unless, known_by=Known.NAME, chance=chance)


def may_be_frozen(what: str, test: str, place: str, default: bool = False) -> Fact:
    """One branch freezes the module: whether it is the one that runs, nobody can see, but by default it is where the test holds then."""
    name = "frozen-by-default" if default else "frozen-on-a-branch"
    return Fact(name, unless=f"`{what}` is frozen, because `{test}` holds {place}", known_by=Known.ASSUMED)


def named_as_helper(what: str) -> Fact:
    """What is called, or whose method is, has a name of what is no network: a tokenizer, a sampler."""
    return Fact("named-as-helper", unless=f"`{what}` is a helper without parameters", known_by=Known.NAME)


def memory_of_another(library: str) -> Fact:
    """A library allocates memory of the device beside torch."""
    return Fact(
        "another-allocator", unless=f"`{library}`, which allocates on the device by itself, needs the memory between two steps"
    )


def frozen_by_name(name: str) -> Fact:
    """Callers give a network by a name of which another function freezes one."""
    return Fact(
        "namesake-frozen",
        unless=f"its parameters are frozen, as another function freezes those of a `{name}`",
        known_by=Known.NAME,
    )


def no_tensor(what: str) -> Fact:
    """What a function that is not visible gives may be a number."""
    return Fact("may-be-a-number", unless=f"`{what}` gives no tensor with a graph", known_by=Known.ASSUMED)


def moved_by_the_step(step: str) -> Fact:
    """A framework hands on what a step gives that is not visible."""
    return Fact("step-not-visible", unless=f"the module's `{step}` moves its result to the host", known_by=Known.ASSUMED)


def always_given(parameter: str) -> Fact:
    """The function has a phase for callers that leave a parameter out, and every visible caller gives it."""
    return Fact("always-given", unless=f"every caller gives `{parameter}`, and none leaves it None", known_by=Known.ALL_CALLERS)


def wrapped(name: str, evaluates: bool) -> Fact:
    """A decorator that is not visible may switch grad mode off; one whose name says evaluation probably does."""
    return Fact(
        "wrapped-for-evaluation" if evaluates else "wrapped",
        unless=f"`@{name}`, which is not visible, disables grad mode",
        known_by=Known.ASSUMED,
    )


GUARDED = Fact("no-caller", unless="a caller outside this project disables grad mode", known_by=Known.ASSUMED)
"""Nothing visible calls the function."""
PIECE_GUARDED = Fact("piece-without-caller", unless=GUARDED.unless, known_by=Known.ASSUMED)
"""Other files use the function's file, and none calls it; it neither puts the module into evaluation mode nor runs it in a loop: a
piece of what is run without grad, or what nobody runs (of 19 such findings on code that was not used during development 11 were true,
and two worth a commit)."""
NAMESAKE_GUARDS = Fact(
    "namesake-guards",
    unless="what is called is one of the methods of its name that disable grad mode themselves",
    known_by=Known.METHOD,
)
GUARDS_ITSELF = Fact(
    "method-for-inference", unless="the method, which is not visible, disables grad mode itself", known_by=Known.METHOD
)
"""A method of a class that is not visible, named for inference."""
OBJECT_GUARDED = Fact("object-handed-on", unless="what calls the object disables grad mode", known_by=Known.ASSUMED)
"""Objects of the class are made, and nothing visible calls one: it is handed on as a callback."""
HANDED_ON_CALLER = Fact(
    "caller-handed-on",
    unless="whoever runs the function that is handed on, and calls this one, disables grad mode",
    known_by=Known.ASSUMED,
)
"""Runs of it by way of a list, a registry or a ``partial`` are not seen."""
FORWARD_GUARDED = Fact("forward-without-caller", unless="whoever runs the model disables grad mode", known_by=Known.ASSUMED)
"""The function is part of a forward, and nothing visible runs that: code that evaluates a model mostly guards the call."""
GRAPH_WANTED_BY_SOME = Fact(
    "some-callers-with-grad", unless="the callers that leave grad mode on need the graph", known_by=Known.SOME_CALLERS
)
"""Of five such findings on code that was not used during development two were true."""
MODE_NOT_SURE = Fact("callers-mode-assumed", unless="every caller disables grad mode", known_by=Known.ASSUMED)
OTHERS_GUARDED = Fact(
    "other-calls-guarded", unless="only the calls on the object that are guarded run a network", known_by=Known.RESOLVED
)
"""The function disables grad mode around other calls on the same object: who wrote it knows of grad mode."""
ASKED_FOR = Fact("grad-enabled-around", unless="what the forward keeps elsewhere is back-propagated", known_by=Known.RESOLVED)
"""The function enables grad mode around the call by a statement of its own."""
TRAINS_ITSELF = Fact(
    "named-for-training", unless="the method, which is named for training, runs the backward itself", known_by=Known.NAME
)
FOR_ITS_EFFECT = Fact("never-read", unless="the call returns no tensor", known_by=Known.ASSUMED)
NO_GRAPH = Fact("callee-not-visible", unless="the result of the call has no graph", known_by=Known.ASSUMED)
PASSED_UNKNOWN = Fact(
    "passed-unevaluated", unless="code outside this project back-propagates the value that it gets", known_by=Known.ASSUMED
)
"""Nothing says that the function evaluates."""
KEPT_UNKNOWN = Fact("kept-unevaluated", unless="the stored value is back-propagated later", known_by=Known.ASSUMED)
LEFT_UNKNOWN = Fact("left-unevaluated", unless="code that is not visible back-propagates the result", known_by=Known.ASSUMED)
RETURNED = Fact("returned", unless="a caller outside this project back-propagates the returned value", known_by=Known.ASSUMED)
HANDED_BACK = Fact("returned-in-a-phase", unless="the caller back-propagates the returned value", known_by=Known.ASSUMED)
PASSED = Fact("passed", unless="code outside this project back-propagates the value that it gets", known_by=Known.ASSUMED)
KEPT = Fact("kept", unless="the stored value is back-propagated later", known_by=Known.ASSUMED)
READ_ELSEWHERE = Fact(
    "attribute-read-elsewhere",
    unless="code outside this project back-propagates the object's attributes",
    known_by=Known.ASSUMED,
)
KEPT_BY_MODULE = Fact(
    "kept-by-its-module", unless="a value that the module's forward keeps is back-propagated", known_by=Known.ASSUMED
)
NOT_EVALUATED = Fact("not-evaluated", unless="the function also runs in training", known_by=Known.ASSUMED)
TAKES_GRADIENTS = Fact(
    "namesakes-take-gradients",
    unless="the model computes gradients in its own forward, as others of the project do",
    known_by=Known.NAME,
)
CALLED_SELDOM = Fact("hook-by-name", unless="the method is called only once for many steps", known_by=Known.METHOD)
"""Only its name, and that it overrides one of another library, say when it is called."""
NO_BATCHES = Fact(
    "no-batches", unless="the loop has few iterations and does not iterate over a data set", known_by=Known.ASSUMED
)
READ_BY_A_CALLER = Fact(
    "graph-left-to-callers",
    unless="code outside this project back-propagates through the same graph again",
    known_by=Known.ASSUMED,
)
EMPTIED_ELSEWHERE = Fact("emptied-elsewhere", unless="code that is not visible empties the container", known_by=Known.ASSUMED)
OPTIMIZED = Fact("no-optimizer-visible", unless="an optimizer that is not visible has its parameters", known_by=Known.ASSUMED)
ANNOTATED = Fact("by-annotation", unless="callers pass something else than the annotation says", known_by=Known.ASSUMED)
"""Nothing but an annotation says that an argument is a tensor."""


def stage_ends(text: str) -> Fact:
    """Only names say that what was deleted is a network that was made for the iteration."""
    return Fact(
        "named-for-a-stage", unless=f"`{text}` is a network that is made for each iteration: a stage ends", known_by=Known.NAME
    )
