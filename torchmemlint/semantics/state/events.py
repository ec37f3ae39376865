"""What happens in one run over a function, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from torchmemlint.index.project import ClassRef
from torchmemlint.semantics.state.event_words import Misuse, Recovery, StoreKind
from torchmemlint.semantics.state.flow_state import Kind, Mode
from torchmemlint.semantics.state.graphs import Site
from torchmemlint.semantics.state.values import NOTHING, Value
from torchmemlint.torch_facts.words import CallByName, Effect


@dataclass(frozen=True, slots=True)
class Accumulate:
    """A place that outlives a loop (or the calls of a method) gets a value that holds its former one plus something new.

    place     text of the target; key (object or frame number, name)
    how       "+=", "+", "ema", "call"
    mark      the mark that the value carries from here on
    graphs    graphs that the added value is certainly attached to if they are real; hints those it may be attached to
    loop      the innermost loop that the place outlives; None when it outlives the calls of this function
    term      node of the added expression when the statement names it (``total += term``), else -1
    through_module  the former value went through a module's call: a recurrent state
    """

    site: Site
    place: str
    key: tuple[int, str]
    how: str
    mark: int
    graphs: frozenset[int]
    hints: frozenset[int]
    loop: tuple[int, int] | None
    term: int
    through_module: bool = False
    sure_tensor: bool = False
    """The added value is a tensor on every path."""
    holder_frame: int = -1
    """Frame that made the place or its holder; -1 for one that was there before the root ran."""
    outlived: tuple[tuple[int, int], ...] = ()
    """Every open loop that the place outlives, as far as it is known; ``loop`` is the innermost of them."""


@dataclass(frozen=True, slots=True)
class Store:
    """A value is put where it outlives a loop, or the calls of this function.

    external: the holder was not made in the root function (an attribute, a parameter, a global)
    ``value`` node is the stored expression
    """

    site: Site
    place: str
    holder: int
    how: StoreKind
    mark: int
    graphs: frozenset[int]
    hints: frozenset[int]
    outputs: frozenset[int]
    flags: int
    loop: tuple[int, int] | None
    value: int
    external: bool
    half_fix: str = ""
    half_base: int = -1
    """Node of what the half fix is called on (``out`` in ``out.cpu()``)."""
    constant_key: bool = False
    holder_frame: int = -1
    """Frame that made the holder; -1 for one that was there before the root ran."""
    sure_tensor: bool = False
    """The stored value is a tensor on every path, and no container of tensors."""
    outlived: tuple[tuple[int, int], ...] = ()
    """Every open loop that the holder outlives, the outermost first; ``loop`` is the last of them."""
    holds_tensors: bool = False
    """The stored value is a container, and each value in it is a tensor that a module or a visible operation made."""


@dataclass(frozen=True, slots=True)
class ContextStore:
    """``ctx.name = value`` in the forward of an ``autograd.Function``.

    place    text of the attribute; mark: what the value carries from here on (in ``Record.returned``: it is an output)
    tensor   the value is a tensor, or holds one
    things   graphs of the unknown objects that it is or holds: tensors, if there is evidence
    """

    site: Site
    place: str
    mark: int
    tensor: bool
    things: frozenset[int]


@dataclass(frozen=True, slots=True)
class Regrowth:
    """``place = torch.cat([place, …])`` in a loop that does nothing else with the place."""

    site: Site
    place: str
    loop: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Backward:
    """``value.backward(...)``, or a call that back-propagates its argument.

    retain                 the call may keep the graph
    partial                it runs through part of the graph only (``inputs=…``, ``autograd.grad``)
    retains, creates       ``retain_graph=True``, ``create_graph=True`` in so many words
    kept_by                node of the value of ``retain_graph``, -1 where it is not given by its name
    gradients              it returns the gradients (``autograd.grad``) and leaves ``.grad`` alone
    known                  all values are tensors: what they are attached to beside ``graphs`` and ``hints`` are leaves
    """

    site: Site
    graphs: frozenset[int]
    hints: frozenset[int]
    retain: bool
    partial: bool
    retains: bool = False
    creates: bool = False
    kept_by: int = -1
    gradients: bool = False
    known: bool = False


@dataclass(frozen=True, slots=True)
class CachedFunction:
    """``functools.lru_cache`` or ``cache`` on the root function.

    name     the decorator's text; entries: how many calls it keeps, None for all
    modules  parameters that are modules; tensors: those that are annotated as tensors
    things   parameters of which nothing is known, and the graphs that stand for them: tensors, if there is evidence
    """

    site: Site
    name: str
    entries: int | None
    modules: tuple[str, ...]
    tensors: tuple[str, ...]
    things: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class EnvironmentSet:
    """An environment variable of the allocator is set for this process.

    value         its text, None when that is not known
    device_used   something was put on a device before, in this run
    torch_loaded  torch is imported by then
    """

    site: Site
    name: str
    value: str | None
    device_used: bool
    torch_loaded: bool


@dataclass(frozen=True, slots=True)
class HookStore:
    """A module's hook appends one of its arguments, or what is attached to it, to a container that outlives the call.

    value  node of the appended expression; sure: it is the argument itself
    """

    site: Site
    place: str
    value: int
    sure: bool


@dataclass(frozen=True, slots=True)
class HookAdded:
    """The root registers a hook on a module (``name``: the method that is called)."""

    site: Site
    name: str


@dataclass(frozen=True, slots=True)
class GradientsFreed:
    """Gradients are set to None, or deleted; emitted only in runs that build a graph of gradients (``create_graph=True``).

    wanted   the marks (``GraphKind.WANTED``) of the one tensor whose gradient it is; empty for parameters
    """

    site: Site
    wanted: frozenset[int] = NOTHING


@dataclass(frozen=True, slots=True)
class CallEffect:
    """A call whose effect the torch facts name, or one that is known by its method's name.

    args   positional values and keyword values as text → Value; nodes: the same names → node of the argument's expression
    more   the stars ("*", "**", "***") with which arguments came in that are not known one by one, "" for none
    mode   grad mode at the call
    result number of the object that the call made, -1 for none
    takes  numbers of the unknown objects that the arguments are attached to (what "load" made, parameters, attributes)
    ``statement`` True when the call is a statement of its own
    """

    site: Site
    effect: Effect | CallByName
    name: str
    args: tuple[tuple[str, Value], ...]
    statement: bool
    after_forward: bool = False
    deleted_before: tuple[str, ...] = ()
    """Texts of what was deleted or set to None before in the same iteration of the innermost loop (or in no loop)."""
    followed_by: str = ""
    """What the next statement of the block is: "break", "return", "raise", or the text of its call or value."""
    nodes: tuple[tuple[str, int], ...] = ()
    more: str = ""
    mode: Mode | None = None
    result: int = -1
    takes: frozenset[int] = NOTHING
    on: frozenset[Kind] = frozenset()
    """For what is known by a method's name: the kinds of what it is called on."""
    gates: tuple[str, ...] = ()
    """What the names in ``site.guards`` are bound to in each iteration of the loop, or in each call where no loop is around."""


@dataclass(frozen=True, slots=True)
class GradModeMisuse:
    """A spelling of grad mode that switches nothing off, or fails.

    name: what is spelled so; for a leak the text of the manager, "" where grad mode was switched off by no ``with``
    hands_out: for an uncalled manager: what the block makes is what the function returns
    cls:  for a flag of a module: the module's class, None where it is not known
    """

    site: Site
    kind: Misuse
    name: str
    hands_out: bool = False
    cls: ClassRef | str | None = None


@dataclass(frozen=True, slots=True)
class OomHandler:
    """An ``except`` that may catch an out-of-memory error.

    types    absolute names of the caught types ("" for a bare except)
    tests    nodes of comparisons of the message with out-of-memory words inside
    reraises every path through the out-of-memory branch ends in ``raise``
    recovery (node, what) of statements that run inside the handler and need memory or free it
    keeps    node of a statement that keeps the exception beyond the handler, -1
    moves    all that was tried is to bring something to a device
    of_any_error   nothing in it is about memory: it runs a network again on each part of what failed
    """

    site: Site
    types: tuple[str, ...]
    tests: tuple[int, ...]
    reraises: bool
    recovery: tuple[tuple[int, Recovery], ...]
    keeps: int
    moves: bool
    of_any_error: bool = False


@dataclass(frozen=True, slots=True)
class LastLogits:
    """The last position is taken of a model's logits (``model(ids).logits[:, -1]``)."""

    site: Site


@dataclass(frozen=True, slots=True)
class TrainerMade:
    """A trainer of transformers, or of a class of the project below one, is made.

    made    its class
    given   the names of the arguments that are given, and are neither None nor False
    models  absolute names of the classes of its model, and of what makes it; none where that is not known
    more    whether arguments came in that are not known one by one
    """

    site: Site
    made: ClassRef | str
    given: frozenset[str]
    models: frozenset[str]
    more: bool


@dataclass(frozen=True, slots=True)
class Attention:
    """Values are mixed by attention weights that lie in memory: ``softmax(q @ k.T) @ v``. ``mode`` is the grad mode there."""

    site: Site
    mode: Mode


@dataclass(frozen=True, slots=True)
class DeprecatedImport:
    """An import of names that torch calls otherwise today: (name that it binds here, absolute old name)."""

    site: Site
    names: tuple[tuple[str, str], ...]


Event = (
    Accumulate
    | Store
    | ContextStore
    | Regrowth
    | Backward
    | CachedFunction
    | EnvironmentSet
    | HookAdded
    | HookStore
    | GradientsFreed
    | CallEffect
    | GradModeMisuse
    | OomHandler
    | DeprecatedImport
    | Attention
    | LastLogits
    | TrainerMade
)
