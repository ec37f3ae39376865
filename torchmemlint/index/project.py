"""The project: all modules' facts as one, and the questions that the analysis asks of it.

Answers do not depend on the order in which files were given. Everything beyond the tables of names is worked out when asked
for, and remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from torchmemlint.index import keys
from torchmemlint.index.facts import ClassFacts, FunctionFacts, ModuleFacts
from torchmemlint.index.ledger import Ledger
from torchmemlint.index.linked import Linked
from torchmemlint.index.modules import Modules
from torchmemlint.index.questions import calls, classes, contents, gradmode, names
from torchmemlint.index.references import ClassRef, FunctionRef
from torchmemlint.index.trail import MISSING, Trail

if TYPE_CHECKING:
    from torchmemlint.processes.board import Board

__all__ = ["ClassRef", "FunctionRef", "Project"]

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def question(
    function: Callable[Concatenate[Linked, Arguments], Answer],
) -> Callable[Concatenate[Project, Arguments], Answer]:
    """A method that bears the function's name, whose answers findings rest on: every call is written into the project's ledger.
    Arguments go by place, and are of the kinds that ``index.answers`` can write down."""
    name = function.__name__

    def ask(self: Project, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        ledger = self.ledger
        if ledger.writes:
            ledger.open.questions.add((name, *args))
        if self.earlier is not None:
            found: Answer = self.earlier.answer((name, *args))
            if found is not MISSING:
                if self.trail.on:
                    self.trail.page = [self.earlier.step((name, *args))]
                return found
        if self.trail.on:
            self.trail.page = []  # no question asks another: these are the steps to this answer
        return function(self.linked, *args, **kwargs)

    update_wrapper(ask, function)
    return ask


class Known(Protocol):
    """Answers that are known to hold in a project (see ``index.answers.Earlier``)."""

    def answer(self, question: tuple[Hashable, ...], /) -> Any:
        """The answer to a question, ``MISSING`` where it is not among them."""

    def step(self, question: tuple[Hashable, ...], /) -> int:
        """The step of the project's trail that the answer is."""


class Project:
    """The modules of one run. The questions about them are the functions in ``index.questions``.

    no_grad_wrappers  absolute names of decorators and managers outside the project that switch grad off
    complete          False where modules were left out that may hold callers: then "no caller" is never an answer
    trail             the number of the first node, where it is written down of what answers are made; else None
    earlier           answers that are known to hold
    """

    def __init__(
        self,
        modules: Modules,
        no_grad_wrappers: Sequence[str] = (),
        complete: bool = True,
        trail: int | None = None,
        earlier: Known | None = None,
    ) -> None:
        self.earlier = earlier
        self.trail = Trail()
        if trail is not None:
            self.trail.begin(trail)
        self.ledger = Ledger()
        self.linked = Linked(modules, self.trail, no_grad_wrappers, complete)
        self._at_hand = False

    @classmethod
    def build(
        cls,
        facts: Iterable[ModuleFacts],
        no_grad_wrappers: Sequence[str] = (),
        complete: bool = True,
        trail: int | None = None,
    ) -> Project:
        """The project of modules whose facts are at hand, linked: what every question needs of all of them is there."""
        project = cls(Modules.of(facts), no_grad_wrappers, complete, trail)
        project._at_hand = True
        project.linked.link()
        return project

    def meet(self, board: Board) -> None:
        """From now on other processes, forked from this one, are told on a board what all of them need, and tell this one; not
        where few questions are asked of the project. Where a trail is written, what was told are roots, which one process alone
        writes down."""
        if self._at_hand:
            board.sign, board.believes = self.trail.sign, self.trail.believes
            self.linked.calls.meet(board)

    @property
    def modules(self) -> Modules:
        """The facts of all modules."""
        return self.linked.reader.modules

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all modules, sorted."""
        return tuple(self.modules)

    @overload
    def facts(self, ref: FunctionRef) -> FunctionFacts: ...
    @overload
    def facts(self, ref: ClassRef) -> ClassFacts: ...
    def facts(self, ref: FunctionRef | ClassRef) -> FunctionFacts | ClassFacts:
        """The facts behind a reference; of a name that is defined several times, the last definition (a property's getter)."""
        if self.ledger.writes:
            self.ledger.open.questions.add(("facts", ref))
        self.linked.note(keys.WHOLE, ref.path, ref.qualname)
        return self.linked.reader.facts_of(ref)

    # --- what single modules say

    module = question(contents.module)
    imports = question(contents.imports)
    assigned = question(contents.assigned)
    within = question(contents.within)
    receivers = question(contents.receivers)
    saying = question(contents.saying)
    module_name = question(contents.module_name)

    # --- what names and expressions mean

    resolve = question(names.resolve)
    variable = question(names.variable)
    imported = question(names.imported)
    function = question(names.function)
    klass = question(names.klass)
    is_inside = question(names.is_inside)
    is_function = question(names.is_function)
    class_of = question(names.class_of)
    outside = question(names.outside)

    # --- classes, their methods and attributes

    mro = question(classes.mro)
    method = question(classes.method)
    subclasses = question(classes.subclasses)
    attr = question(classes.attr)
    attrs = question(classes.attrs)
    is_subclass = question(classes.is_subclass)
    attribute_class = question(classes.attribute_class)
    attribute_classes = question(classes.attribute_classes)
    methods_named = question(classes.methods_named)
    is_attribute_only = question(classes.is_attribute_only)
    is_attribute = question(classes.is_attribute)
    classes_with_attribute = question(classes.classes_with_attribute)

    # --- calls and words

    calls_by_name = question(calls.calls_by_name)
    functions_calling = question(calls.functions_calling)
    callees = question(calls.callees)
    callers = question(calls.callers)
    functions_given = question(calls.functions_given)
    classes_given = question(calls.classes_given)
    objects_given = question(calls.objects_given)
    says = question(calls.says)
    speaks_of_cuda = question(calls.speaks_of_cuda)

    # --- grad mode and gradients

    grad_mode = question(gradmode.grad_mode)
    test_holds = question(gradmode.test_holds)
    asked_with_grad = question(gradmode.asked_with_grad)
    manager_effect = question(gradmode.manager_effect)
    decorator_effect = question(gradmode.decorator_effect)
    driven_without_grad = question(gradmode.driven_without_grad)
    differentiates = question(gradmode.differentiates)
    differentiates_somewhere = question(gradmode.differentiates_somewhere)
