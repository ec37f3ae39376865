"""Graphs, by what becomes of the values that are attached to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.semantics.state.flow_state import Mode
from torchmemlint.semantics.state.values import NOTHING
from torchmemlint.str_enum import StrEnum


class GraphKind(StrEnum):
    """What a graph is, or a mark, which says by what way a value came (see ``semantics``)."""

    FORWARD = "forward"
    """A module ran."""
    LEAF = "leaf"
    """A parameter used directly."""
    OPAQUE = "opaque"
    """An unresolved call's result."""
    PARAM = "param"
    """What a parameter of the root brought in."""
    ADDED = "added"
    """A value on its way through an accumulating statement."""
    STORED = "stored"
    """A value on its way through a storing statement."""
    CARRIED = "carried"
    """What a place held when the pass of a loop began."""
    RESULT = "result"
    """What a project function returned to this call."""
    SPENT = "spent"
    """A backward ran through a graph that the value is attached to, while some name held the value."""
    WANTED = "wanted"
    """The value is made of a tensor that is no parameter and requires grad: an image that is optimized."""


# Sets by name, also because reading a member of an enum takes four times as long as reading a name, up to Python 3.11.
CERTAIN_KINDS = frozenset({GraphKind.FORWARD, GraphKind.LEAF})
"""There is a graph."""
UNSURE_KINDS = frozenset({GraphKind.OPAQUE, GraphKind.PARAM})
"""There may be one."""
CALLED_KINDS = frozenset({GraphKind.FORWARD, GraphKind.OPAQUE})
"""A call made it."""
MADE_KINDS = CERTAIN_KINDS | CALLED_KINDS
"""Visible code made it: no parameter brought it in."""
GRAPH_KINDS = CERTAIN_KINDS | UNSURE_KINDS
MARK_KINDS = frozenset(
    {GraphKind.ADDED, GraphKind.STORED, GraphKind.CARRIED, GraphKind.RESULT, GraphKind.SPENT, GraphKind.WANTED}
)
ANY_PART = "[…]"
"""Stands for the key of a part that is not known: what is put into a container need not be the part that was restored."""
EACH_PART = "[each]"
"""Stands for the key of the parts that a loop over the keys of an opaque result takes in turn: all of them."""


class SinkKind(StrEnum):
    """What became of a value that is attached to a graph."""

    CUT = "cut"
    """Its graph was cut (``how``: the operation)."""
    KEPT_PART = "kept-part"
    """An operation gave a part with the graph and one without (``max(dim=…)``)."""
    BACKWARD = "backward"
    STORED = "stored"
    RETURNED = "returned"
    YIELDED = "yielded"
    PASSED = "passed"
    """To code that is not visible (``how``: the callee's text)."""
    DROPPED = "dropped"
    """An expression statement."""
    SHOWN = "shown"
    """Formatted, printed."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A function being run: the root (depth 0), or a callee inlined at ``call`` of its parent frame."""

    number: int
    ref: FunctionRef
    parent: int
    call: int
    depth: int


class Site(NamedTuple):
    """Where something happens: the frame, the IR node, the loops around it (outermost first; a loop is (frame, node)), the
    tests that guard it inside the innermost loop (their text), the ``except`` handler around it (its node, -1 for none)."""

    frame: int
    node: int
    loops: tuple[tuple[int, int], ...] = ()
    guards: tuple[str, ...] = ()
    handler: int = -1

    @property
    def key(self) -> tuple[int, int]:
        return (self.frame, self.node)


@dataclass(slots=True)
class Graph:
    """A graph or a mark (see ``semantics``).

    what      the callee's or place's text, for messages
    parents   graphs that it is attached to
    mode      grad mode when it was made
    training  what is known of the module's training flag: True after ``.train()``, False after ``.eval()``, None unknown
    module    number of the module object, -1
    frozen    all parameters of the module were frozen and no argument had a graph
    fixed     all parameters of the module were frozen, whatever it was given
    in_part   all were but those of some parts, and no argument had a graph: what comes before these parts saves nothing
    frozen_if  they are frozen under this condition, and no argument had a graph
    place     for "carried": the place
    cls       the module's class, where it is one of the project
    given_on_host  its first argument is a tensor that was made on the host, and not moved
    """

    gid: int
    kind: GraphKind
    site: Site
    what: str
    parents: frozenset[int] = NOTHING
    mode: Mode = Mode.ON
    training: bool | None = None
    module: int = -1
    frozen: bool = False
    place: tuple[int, str] = (-1, "")
    callee: FunctionRef | None = None
    module_loops: tuple[tuple[int, int], ...] = ()
    """The loops in which the module was made."""
    direct: bool = False
    """For "opaque": an object that the code does not show (a parameter, an attribute) was called like a function: it may
    well be a module."""
    cls: ClassRef | None = None
    fixed: bool = False
    in_part: bool = False
    frozen_if: Condition | None = None
    given_on_host: bool = False

    @property
    def frozen_when_run(self) -> bool | None:
        """True where the module runs only under the test under which it is frozen, False where it is not frozen when it runs, None
        where it may be. Two tests are the same in one function, or of the object that the constructor and the method share: a
        name in two functions may be two things."""
        condition = self.frozen_if
        if condition is None:
            return False
        plain = condition.test.removeprefix("not ")
        here = condition.site is not None and condition.site.frame == self.site.frame
        if here or plain.startswith("self."):
            if condition.test in self.site.guards:
                return True
            if (f"not {plain}" if condition.test == plain else plain) in self.site.guards:
                return False
        return None


class Condition(NamedTuple):
    """A test under which a module is frozen: the ``if``, or the constructor that makes the test."""

    test: str
    site: Site | None
    method: FunctionRef | None = None


class Sink(NamedTuple):
    """What became of a value that is attached to a graph, by what, and where."""

    kind: SinkKind
    how: str
    site: Site
