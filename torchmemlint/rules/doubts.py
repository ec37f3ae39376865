"""What a finding assumes, and how sure that leaves it: the one place where findings get their confidence.

A finding of high confidence assumes nothing: all that becomes of the graph is visible, what is called is a module for sure, and so
is the grad mode. Each assumption that is left has a weight, by how often it is wrong; the weights are measured on labelled code
(docs/accuracy.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torchmemlint.findings import Confidence

MEDIUM = 2
"""The weight up to which a finding is of medium confidence."""


@dataclass(frozen=True, slots=True, order=True)
class Doubt:
    """An assumption: what would make the finding false, in words behind "unless", and how much that weighs."""

    weight: int
    unless: str


def confidence_of(doubts: Iterable[Doubt]) -> Confidence:
    weight = sum(doubt.weight for doubt in set(doubts))
    return Confidence.HIGH if not weight else Confidence.MEDIUM if weight <= MEDIUM else Confidence.LOW


def unless_of(doubts: Iterable[Doubt]) -> str:
    """What would make the finding false: its weightiest assumptions, two at most; "" where there is none."""
    heaviest = sorted({doubt for doubt in doubts if doubt.weight}, key=lambda one: (-one.weight, one.unless))
    return ", or ".join(doubt.unless for doubt in heaviest[:2])


def not_a_module(what: str, weight: int) -> Doubt:
    """What is called may be a plain function, or have no parameters."""
    return Doubt(weight, f"`{what}` is not a module with parameters")


def may_be_frozen(what: str, test: str, place: str, default: bool = False) -> Doubt:
    """One branch freezes the module: whether it is the one that runs, nobody can see, but by default it is where the test holds then."""
    return Doubt(3 if default else 1, f"`{what}` is frozen, because `{test}` holds {place}")


def named_as_helper(what: str) -> Doubt:
    """What is called, or whose method is, has a name of what is no network: a tokenizer, a sampler."""
    return Doubt(2, f"`{what}` is a helper without parameters")


def memory_of_another(library: str) -> Doubt:
    """A library allocates memory of the device beside torch."""
    return Doubt(1, f"`{library}`, which allocates on the device by itself, needs the memory between two steps")


def frozen_by_name(name: str) -> Doubt:
    """Callers give a network by a name of which another function freezes one."""
    return Doubt(3, f"its parameters are frozen, as another function freezes those of a `{name}`")


def no_tensor(what: str) -> Doubt:
    """What a function that is not visible gives may be a number."""
    return Doubt(1, f"`{what}` gives no tensor with a graph")


def always_given(parameter: str) -> Doubt:
    """The function has a phase for callers that leave a parameter out, and every visible caller gives it."""
    return Doubt(3, f"every caller gives `{parameter}`, and none leaves it None")


def wrapped(name: str, evaluates: bool) -> Doubt:
    """A decorator that is not visible may switch grad mode off; one whose name says evaluation probably does."""
    return Doubt(3 if evaluates else 1, f"`@{name}`, which is not visible, disables grad mode")


GUARDED = Doubt(1, "a caller outside this project disables grad mode")
"""Nothing visible calls the function."""
PIECE_GUARDED = Doubt(3, GUARDED.unless)
"""Other files use the function's file, and none calls it; it neither puts the module into evaluation mode nor runs it in a loop: a
piece of what is run without grad, or what nobody runs (of 19 such findings on code that was not used during development 11 were true,
and two worth a commit)."""
NAMESAKE_GUARDS = Doubt(1, "what is called is one of the methods of its name that disable grad mode themselves")
GUARDS_ITSELF = Doubt(1, "the method, which is not visible, disables grad mode itself")
"""A method of a class that is not visible, named for inference."""
OTHERS_WITHOUT = Doubt(3, "the method disables grad mode itself, or no result of it has a graph")
"""One of its results has none."""
OBJECT_GUARDED = Doubt(2, "what calls the object disables grad mode")
"""Objects of the class are made, and nothing visible calls one: it is handed on as a callback."""
HANDED_ON_CALLER = Doubt(3, "whoever runs the function that is handed on, and calls this one, disables grad mode")
"""Runs of it by way of a list, a registry or a ``partial`` are not seen."""
FORWARD_GUARDED = Doubt(3, "whoever runs the model disables grad mode")
"""The function is part of a forward, and nothing visible runs that: code that evaluates a model mostly guards the call."""
GRAPH_WANTED_BY_SOME = Doubt(3, "the callers that leave grad mode on need the graph")
"""Of five such findings on code that was not used during development two were true."""
MODE_NOT_SURE = Doubt(3, "every caller disables grad mode")
OTHERS_GUARDED = Doubt(3, "only the calls on the object that are guarded run a network")
"""The function disables grad mode around other calls on the same object: who wrote it knows of grad mode."""
ASKED_FOR = Doubt(3, "what the forward keeps elsewhere is back-propagated")
"""The function enables grad mode around the call by a statement of its own."""
TRAINS_ITSELF = Doubt(3, "the method, which is named for training, runs the backward itself")
FOR_ITS_EFFECT = Doubt(2, "the call returns no tensor")
NO_GRAPH = Doubt(1, "the result of the call has no graph")
PASSED_UNKNOWN = Doubt(3, "code outside this project back-propagates the value that it gets")
"""Nothing says that the function evaluates."""
KEPT_UNKNOWN = Doubt(3, "the stored value is back-propagated later")
LEFT_UNKNOWN = Doubt(3, "code that is not visible back-propagates the result")
RETURNED = Doubt(1, "a caller outside this project back-propagates the returned value")
HANDED_BACK = Doubt(3, "the caller back-propagates the returned value")
PASSED = Doubt(1, "code outside this project back-propagates the value that it gets")
KEPT = Doubt(1, "the stored value is back-propagated later")
READ_ELSEWHERE = Doubt(1, "code outside this project back-propagates the object's attributes")
KEPT_BY_MODULE = Doubt(1, "a value that the module's forward keeps is back-propagated")
NOT_EVALUATED = Doubt(1, "the function also runs in training")
TAKES_GRADIENTS = Doubt(3, "the model computes gradients in its own forward, as others of the project do")
CALLED_SELDOM = Doubt(1, "the method is called only once for many steps")
"""Only its name, and that it overrides one of another library, say when it is called."""
NO_BATCHES = Doubt(1, "the loop has few iterations and does not iterate over a data set")
READ_BY_A_CALLER = Doubt(1, "code outside this project back-propagates through the same graph again")
EMPTIED_ELSEWHERE = Doubt(1, "code that is not visible empties the container")
OPTIMIZED = Doubt(1, "an optimizer that is not visible has its parameters")
ANNOTATED = Doubt(1, "callers pass something else than the annotation says")
"""Nothing but an annotation says that an argument is a tensor."""
