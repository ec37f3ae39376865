"""What a finding assumes: facts that would make it false, each under one name. How much one weighs stands in the scorecard."""

from __future__ import annotations

from torchmemlint.rules.fact import Fact, Known


def not_a_module(what: str, known_by: Known) -> Fact:
    """What is called may be a plain function, or have no parameters; ``known_by``: what says that it is a module, a method of
    modules, or a name alone."""
    name = "module-by-name" if known_by is Known.NAME else "module-by-use"
    return Fact(name, f"`{what}` is not a module with parameters", known_by)


def may_be_frozen(what: str, test: str, place: str, default: bool = False) -> Fact:
    """One branch freezes the module: whether it is the one that runs, nobody can see, but by default it is where the test holds then."""
    name = "frozen-by-default" if default else "frozen-on-a-branch"
    return Fact(name, f"`{what}` is frozen, because `{test}` holds {place}", Known.ASSUMED)


def named_as_helper(what: str) -> Fact:
    """What is called, or whose method is, has a name of what is no network: a tokenizer, a sampler."""
    return Fact("named-as-helper", f"`{what}` is a helper without parameters", Known.NAME)


def memory_of_another(library: str) -> Fact:
    """A library allocates memory of the device beside torch."""
    return Fact(
        "another-allocator", f"`{library}`, which allocates on the device by itself, needs the memory between two steps"
    )


def frozen_by_name(name: str) -> Fact:
    """Callers give a network by a name of which another function freezes one."""
    return Fact("namesake-frozen", f"its parameters are frozen, as another function freezes those of a `{name}`", Known.NAME)


def no_tensor(what: str) -> Fact:
    """What a function that is not visible gives may be a number."""
    return Fact("may-be-a-number", f"`{what}` gives no tensor with a graph", Known.ASSUMED)


def always_given(parameter: str) -> Fact:
    """The function has a phase for callers that leave a parameter out, and every visible caller gives it."""
    return Fact("always-given", f"every caller gives `{parameter}`, and none leaves it None", Known.ALL_CALLERS)


def wrapped(name: str, evaluates: bool) -> Fact:
    """A decorator that is not visible may switch grad mode off; one whose name says evaluation probably does."""
    return Fact(
        "wrapped-for-evaluation" if evaluates else "wrapped",
        f"`@{name}`, which is not visible, disables grad mode",
        Known.ASSUMED,
    )


GUARDED = Fact("no-caller", "a caller outside this project disables grad mode", Known.ASSUMED)
"""Nothing visible calls the function."""
PIECE_GUARDED = Fact("piece-without-caller", GUARDED.words, Known.ASSUMED)
"""Other files use the function's file, and none calls it; it neither puts the module into evaluation mode nor runs it in a loop: a
piece of what is run without grad, or what nobody runs (of 19 such findings on code that was not used during development 11 were true,
and two worth a commit)."""
NAMESAKE_GUARDS = Fact(
    "namesake-guards", "what is called is one of the methods of its name that disable grad mode themselves", Known.METHOD
)
GUARDS_ITSELF = Fact("method-for-inference", "the method, which is not visible, disables grad mode itself", Known.METHOD)
"""A method of a class that is not visible, named for inference."""
OTHERS_WITHOUT = Fact(
    "another-result-without-graph", "the method disables grad mode itself, or no result of it has a graph", Known.RESOLVED
)
"""One of its results has none."""
OBJECT_GUARDED = Fact("object-handed-on", "what calls the object disables grad mode", Known.ASSUMED)
"""Objects of the class are made, and nothing visible calls one: it is handed on as a callback."""
HANDED_ON_CALLER = Fact(
    "caller-handed-on", "whoever runs the function that is handed on, and calls this one, disables grad mode", Known.ASSUMED
)
"""Runs of it by way of a list, a registry or a ``partial`` are not seen."""
FORWARD_GUARDED = Fact("forward-without-caller", "whoever runs the model disables grad mode", Known.ASSUMED)
"""The function is part of a forward, and nothing visible runs that: code that evaluates a model mostly guards the call."""
GRAPH_WANTED_BY_SOME = Fact("some-callers-with-grad", "the callers that leave grad mode on need the graph", Known.SOME_CALLERS)
"""Of five such findings on code that was not used during development two were true."""
MODE_NOT_SURE = Fact("callers-mode-assumed", "every caller disables grad mode", Known.ASSUMED)
OTHERS_GUARDED = Fact("other-calls-guarded", "only the calls on the object that are guarded run a network", Known.RESOLVED)
"""The function disables grad mode around other calls on the same object: who wrote it knows of grad mode."""
ASKED_FOR = Fact("grad-enabled-around", "what the forward keeps elsewhere is back-propagated", Known.RESOLVED)
"""The function enables grad mode around the call by a statement of its own."""
TRAINS_ITSELF = Fact("named-for-training", "the method, which is named for training, runs the backward itself", Known.NAME)
FOR_ITS_EFFECT = Fact("never-read", "the call returns no tensor", Known.ASSUMED)
NO_GRAPH = Fact("callee-not-visible", "the result of the call has no graph", Known.ASSUMED)
PASSED_UNKNOWN = Fact("passed-unevaluated", "code outside this project back-propagates the value that it gets", Known.ASSUMED)
"""Nothing says that the function evaluates."""
KEPT_UNKNOWN = Fact("kept-unevaluated", "the stored value is back-propagated later", Known.ASSUMED)
LEFT_UNKNOWN = Fact("left-unevaluated", "code that is not visible back-propagates the result", Known.ASSUMED)
RETURNED = Fact("returned", "a caller outside this project back-propagates the returned value", Known.ASSUMED)
HANDED_BACK = Fact("returned-in-a-phase", "the caller back-propagates the returned value", Known.ASSUMED)
PASSED = Fact("passed", "code outside this project back-propagates the value that it gets", Known.ASSUMED)
KEPT = Fact("kept", "the stored value is back-propagated later", Known.ASSUMED)
READ_ELSEWHERE = Fact(
    "attribute-read-elsewhere", "code outside this project back-propagates the object's attributes", Known.ASSUMED
)
KEPT_BY_MODULE = Fact("kept-by-its-module", "a value that the module's forward keeps is back-propagated", Known.ASSUMED)
NOT_EVALUATED = Fact("not-evaluated", "the function also runs in training", Known.ASSUMED)
TAKES_GRADIENTS = Fact(
    "namesakes-take-gradients", "the model computes gradients in its own forward, as others of the project do", Known.NAME
)
CALLED_SELDOM = Fact("hook-by-name", "the method is called only once for many steps", Known.METHOD)
"""Only its name, and that it overrides one of another library, say when it is called."""
NO_BATCHES = Fact("no-batches", "the loop has few iterations and does not iterate over a data set", Known.ASSUMED)
READ_BY_A_CALLER = Fact(
    "graph-left-to-callers", "code outside this project back-propagates through the same graph again", Known.ASSUMED
)
EMPTIED_ELSEWHERE = Fact("emptied-elsewhere", "code that is not visible empties the container", Known.ASSUMED)
OPTIMIZED = Fact("no-optimizer-visible", "an optimizer that is not visible has its parameters", Known.ASSUMED)
ANNOTATED = Fact("by-annotation", "callers pass something else than the annotation says", Known.ASSUMED)
"""Nothing but an annotation says that an argument is a tensor."""


def stage_ends(text: str) -> Fact:
    """Only names say that what was deleted is a network that was made for the iteration."""
    return Fact("named-for-a-stage", f"`{text}` is a network that is made for each iteration: a stage ends", Known.NAME)
