"""The facts of one module: what the project graph needs of it, as plain data without trees.

Everything here is picklable and turns to JSON and back (``to_plain`` / ``from_plain`` in ``index.module_facts``), so that
facts can be cached and sent between processes. Expressions are kept as *dotted text* where they are names and attributes
("self.model", "torch.no_grad"), with ``()`` after a part that is called ("super().forward", "get_model().eval"), ``[]`` after
a part that is subscripted or looped over ("self.layers[].step"), and ``?`` in front where the attribute of any other expression
is meant ("?.validate"); any other expression is "".

What there are hundreds of thousands of are named tuples: a project's facts go to another process, and come from it, in two
thirds of the time that they take as frozen dataclasses (CPython 3.11).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class ArgFact(NamedTuple):
    """One argument as far as facts know it: dotted text in ``name``, or the literal in ``const`` as its repr, or neither.

    ``keyword`` is "" for positional arguments, "*" and "**" for starred ones. ``test`` is the text of an argument that is
    ``not`` of a name, or a comparison with a literal (``phase == 'train'``), as in ``CallFact.branch``; of a name that is put together
    for ``getattr`` it is the name with ``*`` for what is not known.
    """

    keyword: str
    name: str
    const: str
    test: str = ""


class CallableUse(NamedTuple):
    """A callee and its arguments where it is used as a decorator or context manager, or assigned: ``torch.no_grad()``.

    ``called`` is False for a bare decorator (``@torch.no_grad``). ``alternative`` is the other operand of a conditional
    expression (``torch.no_grad() if flag else nullcontext()``), or what holds on the other branch; its callee is "" where
    nothing does. ``statement`` marks what was no ``with`` item: ``torch.set_grad_enabled(False)`` as a statement,
    ``stack.enter_context(torch.no_grad())``.
    """

    callee: str
    args: tuple[ArgFact, ...]
    called: bool
    alternative: CallableUse | None = None
    statement: bool = False


class CallFact(NamedTuple):
    """One call in a function's own body (calls in nested functions belong to those; a call in a lambda is ``deferred``).

    Calls of plain builtins (``len``, ``float``, ``print``…) are left out. ``managers`` are the ``with`` items around the call
    inside this function and the statements before it that change the grad mode for the rest of the function
    (``torch.set_grad_enabled(False)``), in the order in which they take effect: the last that touches the grad mode wins.
    ``loops`` counts the loops and comprehensions around it.
    ``used`` tells what becomes of the result: "dropped" (an expression statement), "returned", "other".
    ``branch``: dotted text of the innermost enclosing ``if`` tests, outermost first, with "not " in front on the else branch;
    "" for a test that is no name, attribute, ``not`` of one, or comparison of one with a literal (``phase == 'train'``) or another.
    ``place`` is its place among the calls of its function, in the order of evaluation: on which row it stands, the function
    knows (``FunctionFacts.call_rows``), so that a call is the same when its file grows above it.
    """

    callee: str
    args: tuple[ArgFact, ...]
    loops: int
    managers: tuple[CallableUse, ...]
    used: str
    branch: tuple[str, ...]
    place: int
    deferred: bool = False

    @property
    def keywords(self) -> tuple[str, ...]:
        """The keywords that it gives by name, sorted."""
        return tuple(sorted([arg.keyword for arg in self.args if arg.keyword not in ("", "*", "**")]))


class ParamFact(NamedTuple):
    """``default`` is the repr of a literal default, "" when there is none or it is no literal; ``annotation`` is dotted text
    (of ``Optional[X]``, ``X | None`` and a quoted "X": X)."""

    name: str
    annotation: str
    default: str
    kind: str


@dataclass(frozen=True, slots=True)
class FunctionFacts:
    """One function, method or, with qualname "<module>", the module's own statements.

    qualname    dotted path in the module ("Trainer.fit", "train.step"), nested functions included
    first_row   row of the first decorator, or of ``def``
    row         row of ``def``; header_end_row the row of the colon that ends its header
    end_row     last row
    calls_at    of each of the ``calls``, two numbers: how far below ``row`` it stands, and how far below its statement's first row
    owner       qualname of the class whose body holds the ``def`` directly, else ""
    parent      qualname of the enclosing function, else ""
    names       every attribute name, and every name that is called or read, in the body: the words that rules screen by.
                Nested functions' words are included (a region covers its closures).
    bound       local name → dotted text of what is assigned to it when that is a name or attribute, or of the callee with
                "()" when it is a call ("net" → "Net()"), or of what is looped over with "[]"; only names assigned once
                (``net = net.to(device)`` and the like do not count)
    rebound     the same for names assigned two to four times, one pair for each different value, where all values have text
    locals      names that the body binds, parameters included, less those declared global or nonlocal
    reads       dotted text of the names and attributes whose value is taken without being called
    returned    what ``return`` statements give back, when it is a name, an attribute, a call or a choice of these
    wraps       for ``return torch.no_grad()(function)``: the ``torch.no_grad()``
    yields      the managers in force at each ``yield``
    leaves      the statements that change the grad mode and still hold at the function's end
    """

    qualname: str
    first_row: int
    row: int
    header_end_row: int
    end_row: int
    owner: str
    parent: str
    params: tuple[ParamFact, ...]
    decorators: tuple[CallableUse, ...]
    is_async: bool
    is_generator: bool
    calls: tuple[CallFact, ...]
    calls_at: tuple[int, ...]
    names: frozenset[str]
    bound: tuple[tuple[str, str], ...]
    returns: str
    """Dotted text of the return annotation, "" when there is none."""
    rebound: tuple[tuple[str, str], ...] = ()
    locals: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    returned: tuple[CallableUse, ...] = ()
    wraps: tuple[CallableUse, ...] = ()
    yields: tuple[tuple[CallableUse, ...], ...] = ()
    leaves: tuple[CallableUse, ...] = ()

    @property
    def call_rows(self) -> tuple[tuple[int, int], ...]:
        """Of each of the ``calls``, its row and the first row of its statement."""
        rows = [self.row + below for below in self.calls_at[::2]]
        return tuple((row, row - below) for row, below in zip(rows, self.calls_at[1::2], strict=True))


class AttrFact(NamedTuple):
    """One assignment to an attribute of ``self`` (or in the class body, with method "").

    ``value`` is dotted text, with "()" when it is a call; ``kind`` is "call", "name", "const", "list", "dict", "set", "tuple"
    or "other" by the form of the value; ``const`` is the repr of a literal. ``annotation`` is as for parameters; ``element`` is
    the text of what a container holds when all of it has the same (``ModuleList([Block() for …])``: "Block()").
    """

    name: str
    kind: str
    value: str
    const: str
    method: str
    annotation: str = ""
    element: str = ""


@dataclass(frozen=True, slots=True)
class ClassFacts:
    """One class: ``methods`` maps a method's name to its qualname; ``bases`` are dotted text ("" for anything else)."""

    qualname: str
    row: int
    end_row: int
    bases: tuple[str, ...]
    decorators: tuple[CallableUse, ...]
    methods: tuple[tuple[str, str], ...]
    attrs: tuple[AttrFact, ...]


@dataclass(frozen=True, slots=True)
class ModuleFacts:
    """One file. ``path`` is as given to the linter; ``imports`` maps a name bound anywhere in the file by an import to the
    dotted name it stands for (relative imports keep their leading dots; star imports bind "*module" to the module).

    ``assigned`` maps a module-level name to dotted text of its value, as ``FunctionFacts.bound`` does ("sys.modules[]" is the
    module itself).
    ``functions`` holds "<module>" first, then every function in source order.
    """

    path: str
    imports: tuple[tuple[str, str], ...]
    assigned: tuple[tuple[str, str], ...]
    functions: tuple[FunctionFacts, ...]
    classes: tuple[ClassFacts, ...]
    rows: int


POSITIONS: dict[type, frozenset[str]] = {
    FunctionFacts: frozenset({"first_row", "row", "header_end_row", "end_row", "calls_at"}),
    ClassFacts: frozenset({"row", "end_row"}),
    ModuleFacts: frozenset({"rows"}),
}
"""The fields that only say where something stands in the text. Whoever uses them reads the text as well: so facts without them,
their *shape*, and the texts that were read are all that a finding rests on."""
