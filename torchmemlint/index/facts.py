"""The facts of one module: what the project graph needs of it, as plain data without trees.

Everything here is picklable and turns to JSON and back (``index.plain``), so that
facts can be cached and sent between processes. Expressions are kept as *dotted text* where they are names and attributes
("self.model", "torch.no_grad"), with ``()`` after a part that is called ("super().forward", "get_model().eval"), ``[]`` after
a part that is subscripted or looped over ("self.layers[].step"), and ``?`` in front where the attribute of any other expression
is meant ("?.validate"); any other expression is "".

What there are hundreds of thousands of are named tuples. They go to another process as columns (all callees of a file, all
keywords…), because to pickle and unpickle each by itself takes twice the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from operator import attrgetter
from typing import NamedTuple, TypeVar

from torchmemlint.findings import Position
from torchmemlint.index.fact_words import AttrKind, ParamKind, ResultUse

Kind = TypeVar("Kind", bound=tuple[object, ...])


class ArgFact(NamedTuple):
    """One argument as far as facts know it: dotted text in ``name``, or the literal in ``const`` as ``ast.literal_eval`` reads
    it ("..." for a lambda that only computes), or neither.

    ``keyword`` is "" for positional arguments, "*" and "**" for starred ones. ``test`` is the text of an argument that is
    ``not`` of a name, or a comparison with a literal (``phase == 'train'``), as in ``CallFact.branch``, or a list of names (``[image]``);
    of a name that is put together for ``getattr`` it is the name with ``*`` for what is not known.
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


_KEYWORD = attrgetter("keyword")
_NO_NAMES = frozenset({"", "*", "**"})
"""Keywords of arguments that are given by position, and of starred ones."""


class CallFact(NamedTuple):
    """One call in a function's own body (calls in nested functions belong to those; a call in a lambda is ``deferred``).

    Calls of plain builtins (``len``, ``float``, ``print``…) are left out. ``managers`` are the ``with`` items around the call
    inside this function and the statements before it that change the grad mode for the rest of the function
    (``torch.set_grad_enabled(False)``), in the order in which they take effect: the last that touches the grad mode wins.
    ``loops`` counts the loops and comprehensions around it, but for loops whose body ends in ``break``.
    ``branch``: dotted text of the innermost enclosing ``if`` tests, outermost first, with "not " in front on the else branch;
    "" for a test that is no name, attribute, ``not`` of one, or comparison of one with a literal (``phase == 'train'``) or another.
    ``place`` is its place among the calls of its function, in the order of evaluation: where it stands in the text, the function
    knows (``FunctionFacts.call_places``), so that a call is the same when its file grows above it.
    """

    callee: str
    args: tuple[ArgFact, ...]
    loops: int
    managers: tuple[CallableUse, ...]
    used: ResultUse
    branch: tuple[str, ...]
    place: int
    deferred: bool = False

    @property
    def keywords(self) -> tuple[str, ...]:
        """The keywords that it gives by name, sorted."""
        names = set(map(_KEYWORD, self.args)) - _NO_NAMES
        return tuple(sorted(names)) if names else ()


class CallPlace(NamedTuple):
    """Where a call stands: its row, the start of its statement, and its end. Of two calls that one pass through a function evaluates,
    the first is the one that ends first (``f(g())``, ``a.f().g()``)."""

    row: int
    statement: Position
    end: Position


PLACE_NUMBERS = 5
"""Numbers of a call in ``FunctionFacts.calls_at``: rows below the function's ``row``, rows below its statement's first, the
statement's column, and rows below ``row`` and column of its end."""


class ParamFact(NamedTuple):
    """``default`` is the repr of a literal default, "" when there is none or it is no literal; ``annotation`` is dotted text
    (of ``Optional[X]``, ``X | None`` and a quoted "X": X). ``required``: there is no default."""

    name: str
    annotation: str
    default: str
    kind: ParamKind
    required: bool = False


@dataclass(frozen=True, slots=True)
class Header:
    """What a function's header says, and where it stands: see ``FunctionFacts``."""

    owner: str
    parent: str
    params: tuple[ParamFact, ...]
    decorators: tuple[CallableUse, ...]
    is_async: bool
    is_generator: bool
    returns: str


@dataclass(frozen=True, slots=True)
class FunctionFacts:
    """One function, method or, with qualname "<module>", the module's own statements.

    qualname    dotted path in the module ("Trainer.fit", "train.step"), nested functions included
    first_row   row of the first decorator, or of ``def``
    row         row of ``def``; header_end_row the row of the colon that ends its header
    end_row     last row
    calls_at    of each of the ``calls``, the five numbers of which ``call_places`` is made
    owner       qualname of the class whose body holds the ``def`` directly, else ""
    parent      qualname of the enclosing function, else ""
    names       every attribute name, and every name that is called or read, in the body: the words that rules screen by.
                Nested functions' words are included (a region covers its closures). A flag that is stored in an object's
                ``requires_grad`` is one, too: "requires_grad=False", "requires_grad=" where it is no literal.
    bound       local name → dotted text of what is assigned to it when that is a name or attribute, or of the callee with
                "()" when it is a call ("net" → "Net()"), or of what is looped over with "[]"; only names assigned once
                (``net = net.to(device)`` and the like do not count)
    rebound     the same for names assigned two to four times, one pair for each different value, where all values have text
    locals      names that the body binds, parameters included, less those declared global or nonlocal
    reads       dotted text of the names and attributes whose value is taken without being called, less plain names of its own
    tested      those of the ``reads`` that are attributes of which only the truth is asked, or which are compared (``if args.test:``)
    taken       parameters that it calls, and whose value it takes without calling it as well
    returned    what ``return`` statements give back, when it is a name, an attribute, a call or a choice of these
    wraps       for ``return torch.no_grad()(function)``: the ``torch.no_grad()``
    yields      the managers in force at each ``yield``
    leaves      the statements that change the grad mode and still hold at the function's end
    unsure      names of its own that more than one statement binds, or binds in another function, and of the module classes with a
                metaclass; "*" of a module of which names may be bound unseen (a star import, ``exec``)
    constants   of a module's own statements: names that are bound to a constant, with that as it is written
    stores      names of attributes that it stores, but by a plain assignment to those of its own object; "*" where it stores some by
                a text that it computes (``setattr(x, name, 1)``), "self*" if on its own object
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
    tested: frozenset[str] = frozenset()
    returned: tuple[CallableUse, ...] = ()
    wraps: tuple[CallableUse, ...] = ()
    yields: tuple[tuple[CallableUse, ...], ...] = ()
    leaves: tuple[CallableUse, ...] = ()
    taken: frozenset[str] = frozenset()
    unsure: frozenset[str] = frozenset()
    constants: tuple[tuple[str, str], ...] = ()
    stores: frozenset[str] = frozenset()

    @property
    def header(self) -> Header:
        return Header(self.owner, self.parent, self.params, self.decorators, self.is_async, self.is_generator, self.returns)

    @property
    def call_places(self) -> tuple[CallPlace, ...]:
        """Where each of the ``calls`` stands."""
        numbers = self.calls_at
        return tuple(
            CallPlace(
                self.row + numbers[at],
                Position(self.row + numbers[at] - numbers[at + 1], numbers[at + 2]),
                Position(self.row + numbers[at + 3], numbers[at + 4]),
            )
            for at in range(0, len(numbers), PLACE_NUMBERS)
        )

    def call_ending(self, end: Position) -> CallFact | None:
        """The call whose text ends at a position: no two do. None for one that is not kept, as those of plain builtins."""
        return next((call for call, place in zip(self.calls, self.call_places, strict=True) if place.end == end), None)


class AttrFact(NamedTuple):
    """One assignment to an attribute of ``self`` (or in the class body, with method "").

    ``value`` is dotted text, with "()" when it is a call; ``const`` is the repr of a literal. ``annotation`` is as for parameters; ``element`` is
    the text of what a container holds when all of it has the same (``ModuleList([Block() for …])``: "Block()"), for a "part"
    (``self.x, self.y = make()``) of what gives the whole, for a call that is an alternative (``given or make()``) of the name
    beside it.
    """

    name: str
    kind: AttrKind
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
    dotted name it stands for (relative imports keep their leading dots; star imports bind "*module" to the module; ``import a.b``
    binds "a" to itself, and stands there as "a.b" too).

    ``assigned`` maps a module-level name to dotted text of its value, as ``FunctionFacts.bound`` does ("sys.modules[]" is the
    module itself), or of the first of its values where each of a few is an attribute.
    ``functions`` holds "<module>" first, then every function in source order.
    ``recovered``: the file does not parse; these are the facts of what ``source.tolerant`` reads.
    ``needs`` are those names of the imports that its statements bind before the first function, whatever happens: not in a ``try`` or under
    a test.
    """

    path: str
    imports: tuple[tuple[str, str], ...]
    assigned: tuple[tuple[str, str], ...]
    functions: tuple[FunctionFacts, ...]
    classes: tuple[ClassFacts, ...]
    rows: int
    recovered: bool = False
    needs: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[Callable[..., ModuleFacts], tuple[object, ...]]:
        return _unpacked, _packed(self)


POSITIONS: dict[type, frozenset[str]] = {
    FunctionFacts: frozenset({"first_row", "row", "header_end_row", "end_row", "calls_at"}),
    ClassFacts: frozenset({"row", "end_row"}),
    ModuleFacts: frozenset({"rows", "recovered"}),
}
"""The fields that only say where something stands in the text. Whoever uses them reads the text as well: so facts without them,
their *shape*, and the texts that were read are all that a finding rests on."""


_CALLS = [field.name for field in fields(FunctionFacts)].index("calls")
_ATTRS = [field.name for field in fields(ClassFacts)].index("attrs")
_ARGS = CallFact._fields.index("args")
_of_function = attrgetter(*(field.name for field in fields(FunctionFacts) if field.name != "calls"))
_of_class = attrgetter(*(field.name for field in fields(ClassFacts) if field.name != "attrs"))


def _packed(module: ModuleFacts) -> tuple[object, ...]:
    """What ``_unpacked`` makes the module's facts of."""
    calls = [call for facts in module.functions for call in facts.calls]
    args = {id(arg): arg for call in calls for arg in call.args}  # a file's equal arguments are one
    place = {key: number for number, key in enumerate(args)}
    return (
        (module.path, module.imports, module.assigned, module.rows, module.recovered, module.needs),
        [_of_function(facts) for facts in module.functions],
        [len(facts.calls) for facts in module.functions],
        _columns([(*call[:_ARGS], len(call.args), *call[_ARGS + 1 :]) for call in calls]),
        [place[id(arg)] for call in calls for arg in call.args],
        _columns(args.values()),
        [_of_class(facts) for facts in module.classes],
        [len(facts.attrs) for facts in module.classes],
        _columns(attr for facts in module.classes for attr in facts.attrs),
    )


def _unpacked(
    module: tuple[str, tuple[tuple[str, str], ...], tuple[tuple[str, str], ...], int, bool, tuple[str, ...]],
    functions: Sequence[tuple[object, ...]],
    of_functions: Sequence[int],
    calls: Sequence[tuple[object, ...]],
    of_calls: Sequence[int],
    args: Sequence[tuple[object, ...]],
    classes: Sequence[tuple[object, ...]],
    of_classes: Sequence[int],
    attrs: Sequence[tuple[object, ...]],
) -> ModuleFacts:
    path, imports, assigned, rows, recovered, needs = module
    each_arg = _rows(ArgFact, args)
    if calls:
        given = _portions([each_arg[number] for number in of_calls], calls[_ARGS])  # type: ignore[arg-type]
        calls = (*calls[:_ARGS], tuple(given), *calls[_ARGS + 1 :])
    calls_of = _portions(_rows(CallFact, calls), of_functions)
    attrs_of = _portions(_rows(AttrFact, attrs), of_classes)
    return ModuleFacts(
        path,
        imports,
        assigned,
        tuple([FunctionFacts(*row[:_CALLS], own, *row[_CALLS:]) for row, own in zip(functions, calls_of, strict=True)]),  # type: ignore[call-arg,arg-type]
        tuple([ClassFacts(*row[:_ATTRS], own, *row[_ATTRS:]) for row, own in zip(classes, attrs_of, strict=True)]),  # type: ignore[call-arg,arg-type]
        rows,
        recovered,
        needs,
    )


def _columns(rows: Iterable[tuple[object, ...]]) -> tuple[tuple[object, ...], ...]:
    return tuple(zip(*rows, strict=True))


def _rows(kind: type[Kind], columns: Sequence[tuple[object, ...]]) -> list[Kind]:
    # Not by the type's own ``__new__``, which is a function of Python.
    return [tuple.__new__(kind, row) for row in zip(*columns, strict=True)]


def _portions(items: Iterable[Kind], sizes: Sequence[int]) -> Iterator[tuple[Kind, ...]]:
    """The items, so many at a time."""
    left = iter(items)
    return (tuple(islice(left, size)) for size in sizes)
