"""What an edit may have changed is found by the log of each answer: every other answer is what it was."""

from __future__ import annotations

import random
import sys
import zlib
from array import array
from collections.abc import Iterator, Mapping
from contextlib import suppress

import pytest
from test_cache_edits import edit, some_projects

from torchmemlint.errors import SourceError
from torchmemlint.incremental import word_index
from torchmemlint.incremental.changed_keys import changed_in, empty_module
from torchmemlint.incremental.dependency_graph import DependencyGraph, Segment, after_edits, serialized
from torchmemlint.incremental.findings import FileDigests
from torchmemlint.incremental.query_results import QueryResults
from torchmemlint.index.dependency_log import Key
from torchmemlint.index.facts import ModuleFacts
from torchmemlint.index.keys import HEAD, INSIDE
from torchmemlint.index.module_facts import module_facts
from torchmemlint.index.modules import Modules
from torchmemlint.index.plain import shape
from torchmemlint.index.project import ClassRef, FunctionRef, Project
from torchmemlint.index.query_log import Query

EDITS = 25


def facts_of(files: Mapping[str, str]) -> dict[str, ModuleFacts]:
    found = {}
    for path, text in files.items():
        with suppress(SourceError):
            found[path] = module_facts(path, text)
    return found


def all_questions(module: ModuleFacts) -> Iterator[Query]:
    """Whatever can be asked about a module."""
    path = module.path
    yield from ((kind, path) for kind in ("imports", "module_name", "differentiates_somewhere"))
    yield ("mentions_cuda",)
    for facts in module.functions:
        ref, name = FunctionRef(path, facts.qualname), facts.qualname
        last = name.rpartition(".")[2]
        yield from ((kind, ref) for kind in ("grad_mode", "callers", "facts", "is_test"))
        yield from ((kind, last) for kind in ("methods_named", "calls_by_name", "is_attribute_only", "says"))
        for param in facts.params:
            yield "functions_given", ref, param.name
            yield from ((kind, ref, param.name) for kind in ("test_holds", "asked_with_grad"))
            yield "class_of", path, name, param.name
        yield from (("decorator_effect", path, facts.parent, use) for use in facts.decorators)
        for call in facts.calls:
            yield ("callees", path, name, call.callee, *call.keywords)
            yield "resolve", path, call.callee, name
            yield "functions_calling", call.callee
            receiver = call.callee.rpartition(".")[0]
            for text in {call.callee, receiver} - {""}:
                yield from ((kind, path, name, text) for kind in ("class_of", "is_function", "outside"))
            yield from (("manager_effect", path, name, use) for use in call.managers)
    yield from (("assigned", path, name) for name, _ in module.assigned)
    for klass in module.classes:
        cls = ClassRef(path, klass.qualname)
        yield from ((kind, cls) for kind in ("mro", "subclasses", "differentiates", "facts"))
        yield "is_subclass", cls, "torch.nn.Module"
        for attr in klass.attrs:
            yield from ((kind, cls, attr.name) for kind in ("attr", "attribute_class", "method"))
            yield from ((kind, attr.name) for kind in ("is_attribute", "classes_with_attribute"))
        yield "method", cls, "forward"
    for name, target in module.imports:
        yield from ((kind, target.lstrip(".")) for kind in ("function", "klass", "is_inside"))
        yield "resolve", path, name


def is_within_what_it_was(before: ModuleFacts, now: ModuleFacts, keys: set[Key]) -> None:
    """Of these answers nothing is kept: their log must have it all."""
    one, other = Project.build([before]), Project.build([now])
    for name in {*(each.qualname for each in before.functions), *(each.qualname for each in before.classes)}:
        if (INSIDE, before.path, name) not in keys:
            assert shape(one.within(before.path, name)) == shape(other.within(before.path, name))


class Kept:
    """QueryResults to all questions about a project, kept up by asking again what may have changed."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.facts = facts_of(files)
        self.words = word_index.serialized(self._shapes(), self.facts.values())
        self.segments: list[Segment] = []
        self.known: dict[Query, tuple[str, int]] = {}
        project = self._project(0)
        self._ask(project, self._questions(), Segment(0, 0))

    def _questions(self) -> set[Query]:
        return {each for facts in self.facts.values() for each in all_questions(facts)}

    def _project(self, first: int) -> Project:
        """The project of the facts as they are now, by the words that they said at first."""

        def now() -> word_index.WordIndex:
            return word_index.WordIndex(self.words, self._shapes(), self.facts.__getitem__, 1000)

        return Project(Modules(self.facts, self.facts.__getitem__, now), first_node=first)

    def _shapes(self) -> dict[str, str]:
        return {path: shape(each) for path, each in self.facts.items()}

    def _ask(self, project: Project, questions: set[Query], segment: Segment) -> None:
        answers = QueryResults(project, FileDigests((), None))
        for question in sorted(questions, key=str):
            ((_, known),), code = answers.recorded([question])
            (node,) = array("Q", zlib.decompress(code))
            self.known[question] = known, node
        segment.read(serialized(project.log))
        self.segments.append(segment)

    def follow(self, files: Mapping[str, str]) -> tuple[int, int, set[Query]]:
        """Looks at the files as they are now: how many answers there were, and how many of these were asked for again."""
        facts, then = facts_of(files), self.facts
        pairs = [(then.get(path, empty_module(path)), facts.get(path, empty_module(path))) for path in sorted({*then, *facts})]
        edits = [(before, now) for before, now in pairs if before != now]
        for one, other in edits:
            if one.functions and other.functions:
                is_within_what_it_was(one, other, changed_in(one, other))
        self.facts = facts
        graph = DependencyGraph(self.segments)
        project = self._project(graph.size)
        try:
            _, affected = after_edits(graph, then, edits, project)
        except ValueError:  # another package
            self.__init__(files)  # type: ignore[misc]
            return 0, 0, set()
        gone = {*then} - {*facts}  # nobody asks about what is gone but who has heard of it from an answer
        self.known = {each: known for each, known in self.known.items() if gone.isdisjoint(_paths_in(each))}
        # Questions keep the code of the segment in which they were asked, where it is a key's.
        again = {question for question, (_, code) in self.known.items() if code in affected.nodes}
        fresh = QueryResults(Project.build([*facts.values()]), FileDigests((), None))
        for question, (known, _) in self.known.items():
            if question not in again:
                assert fresh.fingerprint(question) == known, (question, known, fresh.fingerprint(question))
        before = len(self.known)
        new = self._questions() - self.known.keys()
        self._ask(project, again | new, Segment(graph.size, graph.size))
        for question in again | new:
            assert fresh.fingerprint(question) == self.known[question][0], question
        return before, len(again), again


def _paths_in(question: Query) -> Iterator[str]:
    """The files that a question names."""
    for part in question[1:]:
        yield part.path if isinstance(part, FunctionRef | ClassRef) else str(part)


def test_that_there_is_no_answer_rests_on_what_was_looked_for() -> None:
    files = {"a.py": "def g():\n    pass\n"}
    project = Project.build(facts_of(files).values(), first_node=0)
    question = "grad_mode", FunctionRef("a.py", "f")
    ((_, known),), codes = QueryResults(project, FileDigests((), None)).recorded([question])
    segment = Segment(0, 0)
    segment.read(serialized(project.log))
    (code,) = array("Q", zlib.decompress(codes))
    assert known == "-"
    assert code in DependencyGraph([segment]).invalidated({(HEAD, "a.py", "f")}).nodes


def walk(seed: int, edits: int) -> None:
    chance = random.Random(seed)
    first = some_projects(chance)
    files = dict(first)
    kept = Kept(files)
    done: list[str] = []
    asked = among = 0
    for _ in range(edits):
        done.append(edit(chance, files, first))
        try:
            before, again, _ = kept.follow(files)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, after {len(done)} edits, the last: {done[-1]}") from error
        asked, among = asked + again, among + before
        if len(kept.segments) > 12:
            kept = Kept(files)
    print(seed, edits, f"asked again: {asked} of {among}")
    assert asked < among / 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_what_is_not_asked_again_is_what_it_was(seed: int) -> None:
    walk(seed, EDITS)


if __name__ == "__main__":
    walk(int(sys.argv[1]), int(sys.argv[2]))
