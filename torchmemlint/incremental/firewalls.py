"""The firewalls of the dependency log, computed again: ``incremental.dependency_graph`` compares them with what they were."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torchmemlint.incremental.changed_keys import empty_module
from torchmemlint.index import keys
from torchmemlint.index.facts import ModuleFacts
from torchmemlint.index.project import Project
from torchmemlint.index.references import ClassRef, FunctionRef
from torchmemlint.index.tables import form_of, last_name


class Firewalls:
    """The firewalls of a project. Each that is computed is logged."""

    def __init__(self, project: Project) -> None:
        linked = project.linked
        self._reader, self._classes, self._calls, self._leaks = linked.reader, linked.classes, linked.calls, linked.leaks
        self._log = project.log

    def classes_above(self, ref: ClassRef) -> list[ClassRef]:
        """The bases of a class, in order; none where there is no such class."""
        try:
            return self._classes.classes_above(ref)
        except KeyError:
            self._log.firewall(keys.ORDER, (), ref[:2], ())
            return []

    def module(self, path: str) -> ModuleFacts:
        """The facts of a file, ``empty_module`` where it is no module."""
        return self._reader.whole(path) if path in self._reader.modules else empty_module(path)

    def knows_above(self, above: Callable[[], Iterable[tuple[ClassRef, list[ClassRef]]]]) -> None:
        """From now on the bases of all classes are known."""
        self._classes.known_above = above

    def reached_now(self, kind: int, names: tuple[str, ...]) -> list[str]:
        """The values of a firewall of the kind ``SITE`` or ``OBJECT``; of a call that there is not, none."""
        path, qualname, callee, *keywords = names
        ref = FunctionRef(path, qualname)
        calls = (call for facts in self.module(path).functions if facts.qualname == qualname for call in facts.calls)
        if kind == keys.OBJECT:
            call = next((call for call in calls if call.callee == callee), None)
            if call is not None and form_of(callee) in self._calls.tables.forms(last_name(callee)):
                return [part for found in self._calls.object_reached((ref, call)) for part in found[:2]]
        else:
            call = next((call for call in calls if call.callee == callee and call.keywords == tuple(keywords)), None)
            if call is not None:
                reached = self._calls.reached((ref, call))
                return ["certain" if reached.certain else "", *(part for found in reached.refs for part in found[:2])]
        self._log.firewall(kind, (), names, ())
        return []

    def forms_of_objects(self) -> list[str]:
        """See ``Tables.all_forms``."""
        found = self._calls.tables.all_forms()
        self._log.firewall(keys.OBJECTS, (), (), found)
        return found

    def sites_of(self, form: str) -> list[tuple[str, ...]]:
        """The names of the firewalls for the calls of this form (see ``Tables.forms``)."""
        sites = self._calls.tables.calls(form[1:])
        return [(ref.path, ref.qualname, call.callee) for ref, call in sites if form_of(call.callee) == form[0]]

    def leaks_again(self) -> list[str]:
        """The values of the firewall of the kind ``LEAKS``."""
        return self._leaks.leaks_again()
