"""The flow state, with the heap objects that it refers to."""

from __future__ import annotations

from itertools import compress
from operator import is_not
from typing import NamedTuple

from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.semantics.state.values import Value, join, weight
from torchmemlint.str_enum import StrEnum

Key = tuple[int, str]
"""A place: (frame number, local name), (object number, attribute name), or (object number, ``ELEMENTS``) for a container's
elements and (object number, "['k']") for one constant key."""

ELEMENTS = "[]"
"""The place of what a container holds, all of it joined."""
UNNAMED = "[getattr]"
"""The place of what an object gets, and gives, under names that the code computes, all of it joined."""
KEYS = "$keys"
"""The place of the constant keys under which a dictionary holds something."""
ITEMS = "$items"
"""The place of a list's elements one by one, as a tuple, while they are known."""
FROZEN = "$frozen"
"""The place of whether a module's parameters want no gradient."""
TRAINING = "$training"
"""The place of whether a module is in training mode."""


class Mode(StrEnum):
    """A grad mode: of a point of the program, of a graph when it was made, of a run's start."""

    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"
    MIXED = "mixed"
    """Of a start: on for some callers, off for others."""
    NO_CALLERS = "no-callers"
    """Of a start: no visible code calls the function, so grad mode is taken to be on."""
    UNSEEN_BASE = "unseen-base"
    """Of a start: the function overrides a method of a class that is not visible."""
    ESCAPES = "escapes"
    """Of a start: the function is handed on as a value."""
    MODULE = "module"
    """Of a "carried" mark: the value went through a module's call since."""
    NONE = "none"
    """Of a context manager: it leaves grad mode alone."""


class Kind(StrEnum):
    """What a heap object is."""

    LIST = "list"
    DICT = "dict"
    SET = "set"
    WINDOW = "window"
    """A ``deque`` with ``maxlen``."""
    GENERATOR = "generator"
    MODULE = "module"
    FUNCTION_MODULE = "function-module"
    """A module without parameters."""
    PARAMS = "params"
    """``parameters()`` of a module."""
    PARAMETER = "parameter"
    LOSS = "loss"
    SELF = "self"
    """The root method's own object."""
    INSTANCE = "instance"
    """An object of a class of the project that is no module."""
    THING = "thing"
    """Of which nothing is known."""
    MANAGER = "manager"
    """A context manager that sets grad mode; its class is the mode."""
    DISTRIBUTION = "distribution"
    OPTIMIZER = "optimizer"
    SCHEDULER = "scheduler"
    SCALER = "scaler"
    LOADER = "loader"
    DATASET = "dataset"
    METRIC = "metric"
    PREDICTOR = "predictor"
    WRITER = "writer"
    BACKWARD_CALLABLE = "backward-callable"
    """Back-propagates what it is called on."""
    ACCELERATOR = "accelerator"
    HF_TRAINER = "hf-trainer"
    LIGHTNING_CALLBACK = "lightning-callback"
    LIGHTNING_TRAINER = "lightning-trainer"


MAX_WORK = 10_000_000
"""Steps that the runs over one root function may take, of which none takes longer than some tenth of a microsecond: a few seconds.
Steps are counted, and no clock is asked, so that every machine gives up on the same functions."""
UNBOUNDED = 1 << 62
"""Steps of a meter that only counts."""
STATEMENT = 100
"""Steps that are counted for a statement, beside what it copies and joins."""


class RunLimit(Exception):
    """A run has executed more statements, made more graphs or taken more steps than it may."""


class Meter:
    """Counts the steps of the runs over one root function: places copied and compared, graphs looked at in values."""

    __slots__ = ("left",)

    def __init__(self, steps: int = MAX_WORK) -> None:
        self.left = steps

    def take(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise RunLimit


class State:
    """What holds at one point of the program: places and grad mode (``Mode.ON``, ``OFF`` or ``UNKNOWN``). Copies are cheap enough
    (one dict) for every branch."""

    __slots__ = ("meter", "mode", "vars")

    def __init__(self, variables: dict[Key, Value], mode: Mode, meter: Meter) -> None:
        self.vars = variables
        self.mode = mode
        self.meter = meter

    def copy(self) -> State:
        self.meter.take(len(self.vars))
        return State(dict(self.vars), self.mode, self.meter)


def join_states(left: State | None, right: State | None) -> State | None:
    """The state that is either; None stands for a point that is not reached. A place known on one side only keeps its value:
    on the other side the name is unbound, and reading it would raise."""
    if left is None:
        return right
    if right is None or left is right:
        return left
    mine = dict(left.vars)
    steps = len(mine) + len(right.vars)
    held = mine.get
    theirs = right.vars
    for key in changed(mine, theirs):
        value, old = theirs[key], held(key)
        if old is None:
            mine[key] = value
        elif old != value:
            # A container's keys are a set of names, and no value that could be one or the other.
            mine[key] = old | value if key[1] == KEYS else join(old, value)
            steps += weight(value)
    left.meter.take(steps)
    mode = left.mode if left.mode == right.mode else Mode.UNKNOWN
    return State(mine, mode, left.meter)


def changed(left: dict[Key, Value], right: dict[Key, Value]) -> list[Key]:
    """The places of ``right`` at which ``left`` has not the very same value.

    The two come from one state as a rule, and have most places in the same order: then values are compared side by side,
    in a third of the time that looking each one up would take.
    """
    places, others = list(left), list(right)
    count = min(len(places), len(others))
    if places[:count] == others[:count]:
        return [*compress(places, map(is_not, left.values(), right.values())), *others[count:]]
    held = left.get
    return [place for place, value in right.items() if held(place) is not value]


class ObjInfo(NamedTuple):
    """A heap object.

    cls       its class: of the project, or an absolute name outside, or None
    name      how the code calls it, for messages
    loops     the loops that were open when it was made, outermost first
    external  it was there before the root function ran
    frame     the frame that made it
    """

    oid: int
    kind: Kind
    cls: ClassRef | str | None
    name: str
    loops: tuple[tuple[int, int], ...]
    external: bool
    frame: int


class Closure:
    """A function value: its IR, where it was defined, and the frame whose locals it sees (-1 for none). ``apart``: it stands in the module
    whose statements run, which are cut without it."""

    __slots__ = ("apart", "called", "evidence", "function", "lowered", "owner", "parent", "ref")

    def __init__(self, function: ir.Function, lowered: object, ref: FunctionRef, parent: int, owner: ClassRef | None) -> None:
        self.function = function
        self.lowered = lowered
        self.ref = ref
        self.parent = parent
        self.owner = owner
        self.called = False
        self.apart = False
        self.evidence: dict[str, frozenset[str]] | None = None
