"""The project: all modules' facts as one, with the queries that the analysis asks of it.

Answers do not depend on the order in which files were given. Everything beyond the tables of names is worked out when asked
for, and cached.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from torchmemlint.index import keys
from torchmemlint.index.dependency_log import MISSING, Dependency, DependencyLog
from torchmemlint.index.facts import ClassFacts, FunctionFacts, ModuleFacts
from torchmemlint.index.linked import Linked
from torchmemlint.index.modules import Modules
from torchmemlint.index.queries import (
    absent,
    arguments_fit,
    calls,
    certain,
    classes,
    constants,
    contents,
    gradmode,
    idle,
    names,
)
from torchmemlint.index.queries import options as parsed
from torchmemlint.index.query_log import QueryLog
from torchmemlint.index.references import ClassRef, FunctionRef

if TYPE_CHECKING:
    from torchmemlint.processes.exchange import Exchange

__all__ = ["ClassRef", "FunctionRef", "Project"]

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def query(
    function: Callable[Concatenate[Linked, Arguments], Answer],
) -> Callable[Concatenate[Project, Arguments], Answer]:
    """A method that bears the function's name, whose answers findings rest on: every call is noted in the project's query log.
    Arguments go by place, and are of the kinds that ``incremental.query_results`` can store."""
    name = function.__name__

    def ask(self: Project, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        if self.forgets:
            return function(self.linked, *args, **kwargs)
        query_log, asked = self.query_log, (name, *args)
        if query_log.records:
            query_log.current.queries.add(asked)
        if self.earlier is not None:
            found: Answer = self.earlier.answer(asked)
            if found is not MISSING:
                if self.log.on:
                    self.log.reads = [self.earlier.dependency(asked)]
                return found
        if self.answers is not None and asked in self.answers:
            known = self.answers[asked]
            self.log.reads = [known[1]]
            return known[0]  # type: ignore[no-any-return]
        if self.log.on:
            self.log.reads = []  # no query asks another: these are the dependencies of this answer
        answer = function(self.linked, *args, **kwargs)
        if self.answers is not None and not kwargs:
            self.answers[asked] = answer, self.log.whole(self.log.reads)
        return answer

    update_wrapper(ask, function)
    return ask


class StoredResults(Protocol):
    """Results of an earlier run that still hold (see ``incremental.query_results.StoredQueries``)."""

    def answer(self, query: tuple[Hashable, ...], /) -> Any:
        """The answer to a query, ``MISSING`` where it is not among them."""

    def dependency(self, query: tuple[Hashable, ...], /) -> Dependency:
        """What stands for the answer in the project's dependency log."""


class Project:
    """The modules of one run. The queries about them are the functions in ``index.queries``.

    no_grad_wrappers  absolute names of decorators and managers outside the project that switch grad off
    complete          False where modules were left out that may hold callers: then "no caller" is never an answer
    first_node        where dependencies are logged: the number of the first node; else None
    earlier           stored answers that still hold
    answers           answers so far, each with what it depends on; None where nobody keeps them
    forgets           nothing is noted of a query, because nobody will ask for it (``note_queries``)
    """

    def __init__(
        self,
        modules: Modules,
        no_grad_wrappers: Sequence[str] = (),
        complete: bool = True,
        first_node: int | None = None,
        earlier: StoredResults | None = None,
    ) -> None:
        self.earlier = earlier
        self.answers: dict[tuple[Hashable, ...], tuple[Any, Dependency]] | None = None
        self.log = DependencyLog()
        if first_node is not None:
            self.log.start(first_node)
        self.query_log = QueryLog()
        self.linked = Linked(modules, self.log, no_grad_wrappers, complete)
        self.forgets = False
        self._linked = False

    @classmethod
    def build(
        cls,
        facts: Iterable[ModuleFacts],
        no_grad_wrappers: Sequence[str] = (),
        complete: bool = True,
        first_node: int | None = None,
    ) -> Project:
        """The project of modules whose facts are at hand, linked: what every query needs of all of them is there."""
        project = cls(Modules.of(facts), no_grad_wrappers, complete, first_node)
        project._linked = True
        project.linked.link()
        return project

    def share_through(self, exchange: Exchange) -> None:
        """From now on what all processes that are forked from this one need goes through an exchange; not where few queries are asked
        of the project. Where dependencies are logged, what is exchanged are firewalls, which one process alone logs."""
        if self._linked:
            exchange.position, exchange.accepts = self.log.position, self.log.accepts
            self.linked.calls.share_through(exchange)

    def note_queries(self, wanted: bool) -> None:
        """Whether findings are stored with the queries that they rest on, from here on."""
        self.query_log.records = wanted
        self.forgets = not wanted and self.earlier is None and self.answers is None and not self.log.on

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
        if self.query_log.records:
            self.query_log.current.queries.add(("facts", ref))
        self.linked.note(keys.WHOLE, ref.path, ref.qualname)
        return self.linked.reader.facts_of(ref)

    # --- what single modules say

    module = query(contents.module)
    imports = query(contents.imports)
    assigned = query(contents.assigned)
    within = query(contents.within)
    header = query(contents.header)
    receivers = query(contents.receivers)
    saying = query(contents.saying)
    functions_saying = query(contents.functions_saying)
    is_looked_up = query(contents.is_looked_up)
    knowing = query(contents.knowing)
    module_name = query(contents.module_name)
    is_program = query(contents.is_program)
    is_imported_file = query(contents.is_imported_file)
    is_unused_file = query(contents.is_unused_file)
    is_part_of_program = query(contents.is_part_of_program)
    files_of_programs = query(contents.files_of_programs)
    has_visible_users_alone = query(contents.has_visible_users_alone)
    has_visible_callers = query(contents.has_visible_callers)
    is_imported_by_name = query(contents.is_imported_by_name)

    # --- what names and expressions mean

    resolve = query(names.resolve)
    variable = query(names.variable)
    imported = query(names.imported)
    function = query(names.function)
    klass = query(names.klass)
    is_inside = query(names.is_inside)
    is_function = query(names.is_function)
    class_of = query(names.class_of)
    class_by_methods = query(names.class_by_methods)
    outside = query(names.outside)

    # --- classes, their methods and attributes

    mro = query(classes.mro)
    method = query(classes.method)
    subclasses = query(classes.subclasses)
    attr = query(classes.attr)
    attrs = query(classes.attrs)
    is_subclass = query(classes.is_subclass)
    attribute_class = query(classes.attribute_class)
    methods_named = query(classes.methods_named)
    is_attribute_only = query(classes.is_attribute_only)
    is_attribute = query(classes.is_attribute)
    classes_with_attribute = query(classes.classes_with_attribute)

    # --- calls and words

    calls_by_name = query(calls.calls_by_name)
    callees = query(calls.callees)
    callers = query(calls.callers)
    functions_calling = query(calls.functions_calling)
    functions_given = query(calls.functions_given)
    classes_given = query(calls.classes_given)
    objects_given = query(calls.objects_given)
    says = query(calls.says)
    mentions_cuda = query(calls.mentions_cuda)

    # --- what is beyond doubt

    is_unbound = query(certain.is_unbound)
    is_part_of_a_program = query(certain.is_part_of_a_program)
    missing_import = query(absent.missing_import)
    not_there = query(absent.not_there)
    is_idle = query(idle.is_idle)
    is_stored_in = query(certain.is_stored_in)
    is_stored_by_name = query(certain.is_stored_by_name)
    constant = query(constants.constant)
    lacks = query(constants.lacks)
    is_made_as_it_is = query(constants.is_made_as_it_is)
    does_not_fit = query(arguments_fit.does_not_fit)
    options = query(parsed.options)
    is_option_alone = query(parsed.is_option_alone)

    # --- grad mode and gradients

    grad_mode = query(gradmode.grad_mode)
    is_test = query(gradmode.is_test)
    test_holds = query(gradmode.test_holds)
    asked_with_grad = query(gradmode.asked_with_grad)
    manager_effect = query(gradmode.manager_effect)
    decorator_effect = query(gradmode.decorator_effect)
    driven_without_grad = query(gradmode.driven_without_grad)
    differentiates = query(gradmode.differentiates)
    differentiates_often = query(gradmode.differentiates_often)
    differentiates_somewhere = query(gradmode.differentiates_somewhere)
