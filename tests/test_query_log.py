"""What findings rest on is written down whole, also where an answer was cached by another file."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import bent_project
import pytest

from torchmemlint.analysis import Analysis, analyze_module, make_runs
from torchmemlint.errors import SourceError
from torchmemlint.index.module_facts import module_facts
from torchmemlint.index.project import FunctionRef, Project
from torchmemlint.index.query_log import QueryLog, QueryTrace, queries_and_notes
from torchmemlint.project.settings import Settings
from torchmemlint.rules import ALL_RULES

FIXTURES = Path(__file__).parent.parent / "fixtures"
SETTINGS = Settings(codes=tuple(rule.code for rule in ALL_RULES))
SEEDS = range(4)


def analyses(texts: Mapping[str, str], *, alone: bool) -> Iterator[tuple[str, Analysis]]:
    """Every file of a project analysed, each by an engine of its own, or all by one."""
    facts = []
    for path, text in texts.items():
        try:
            facts.append(module_facts(path, text))
        except SourceError:
            continue
    runs = None
    for path in (each.path for each in facts):
        if alone or runs is None:
            project = Project.build(facts)
            runs = make_runs(project, SETTINGS, texts.__getitem__)
        yield path, analyze_module(project, path, SETTINGS, runs)


def nothing_is_lost(texts: Mapping[str, str]) -> None:
    shared = dict(analyses(texts, alone=False))
    for path, alone in analyses(texts, alone=True):
        lost = alone.queries - shared[path].queries
        assert not lost, (
            f"{path}: what the engine memoizes is not charged to who uses it (QueryLog.memoize): {sorted(map(str, lost))}"
        )
        assert alone.findings == shared[path].findings
        assert alone.notes == shared[path].notes


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_memoized_results_are_queries_of_every_file_that_uses_them(seed: int) -> None:
    for on in bent_project.walk(seed, 6):
        nothing_is_lost(bent_project.project(on))


TOGETHER = 10
"""Files of one project: each is analysed beside all others, so that twice as many take four times as long."""
PARTS = [
    pytest.param(paths[part :: -(-len(paths) // TOGETHER)], id=f"{folder}-{part}")
    for folder in ("TML101", "TML201", "engine")
    if (paths := sorted((FIXTURES / folder).glob("*.py")))
    for part in range(-(-len(paths) // TOGETHER))
]


@pytest.mark.slow
@pytest.mark.parametrize("paths", PARTS[::3])
def test_the_same_for_fixtures(paths: list[Path]) -> None:
    nothing_is_lost({path.relative_to(FIXTURES).as_posix(): path.read_text(encoding="utf-8") for path in paths})


def test_findings_rest_on_the_callers_of_their_function() -> None:
    found = dict(analyses(bent_project.project(()), alone=False))
    assert ("code", "pkg/steps.py", "train_step") in found["train.py"].queries
    assert ("grad_mode", FunctionRef("pkg/steps.py", "validate")) in found["pkg/steps.py"].queries


def test_an_answer_is_worked_out_once_and_charged_twice() -> None:
    query_log, calls = QueryLog(), list[int]()
    known: dict[str, tuple[int, QueryTrace]] = {}

    def compute() -> int:
        calls.append(1)
        query_log.current.queries.add(("text", "a.py"))
        query_log.note("slow")
        return 7

    for _ in range(2):
        page = query_log.current = QueryTrace()
        assert query_log.memoize(known, "key", compute) == 7
        assert queries_and_notes(page) == ({("text", "a.py")}, ["slow"])
    assert calls == [1]


def test_a_circle_is_charged_to_both_sides() -> None:
    query_log = QueryLog()
    known: dict[str, tuple[int, QueryTrace]] = {}

    def outer() -> int:
        query_log.current.queries.add(("outer",))
        return query_log.memoize(known, "inner", inner)

    def inner() -> int:
        query_log.current.queries.add(("inner",))
        assert query_log.is_open(known, "outer")
        return 1

    query_log.memoize(known, "outer", outer)
    page = query_log.current = QueryTrace()
    query_log.memoize(known, "inner", inner)
    assert queries_and_notes(page)[0] == {("outer",), ("inner",)}


def test_a_result_that_fails_depends_on_its_queries_and_is_not_memoized() -> None:
    query_log = QueryLog()
    known: dict[str, tuple[int, QueryTrace]] = {}

    def fail() -> int:
        query_log.current.queries.add(("failed",))
        raise KeyError

    with pytest.raises(KeyError):
        query_log.memoize(known, "key", fail)
    assert known == {}
    assert queries_and_notes(query_log.current)[0] == {("failed",)}
    assert not query_log.is_open(known, "key")


def test_every_method_of_the_project_is_a_query() -> None:
    methods = {name: method for name, method in vars(Project).items() if callable(method) and not name.startswith("_")}
    others = [name for name, method in methods.items() if not hasattr(method, "__wrapped__")]
    assert others == ["share_through", "note_queries", "facts"]  # the first two give no answer, the other has overloads
    project = Project.build([module_facts("a.py", "def f(): ...")])
    project.facts(FunctionRef("a.py", "f"))
    assert project.query_log.current.queries == {("facts", FunctionRef("a.py", "f"))}
