"""What processes share, and that their answers are the same as without it."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from torchmemlint.incremental.dependency_graph import DependencyGraph, Segment, segments_of, serialized
from torchmemlint.index.dependency_log import Key
from torchmemlint.index.keys import HEAD, NAME, OBJECT, OBJECTS, SCOPE, SITE
from torchmemlint.index.module_facts import module_facts
from torchmemlint.index.project import FunctionRef, Project
from torchmemlint.processes.exchange import PIECES, Exchange, _taken

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a exchange is in memory that Linux shares")

MODELS = 90
"""So many classes, each in a file of its own: more calls than there are pieces."""


@pytest.fixture
def exchange() -> Iterator[Exchange]:
    one = Exchange(2)
    one.begin("work")
    yield one
    one.close()


def beside(work: Callable[[], None]) -> None:
    """Does something in another process, until its end."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def project(log: int | None = None) -> Project:
    files = {
        f"pack/m{number}.py": f"""
import torch.nn as nn
from pack.base import Base
class Net{number}(Base):
    def __init__(self):
        self.inner = nn.Linear(2, 2)
    def forward(self, x):
        return self.inner(x)
def run{number}(x):
    net = Net{number}()
    return helper(net(x))
def helper(x):
    return x
"""
        for number in range(MODELS)
    }
    files["pack/base.py"] = "import torch.nn as nn\nclass Base(nn.Module):\n    def forward(self, x):\n        return x\n"
    files["pack/__init__.py"] = ""
    return Project.build([module_facts(path, text) for path, text in files.items()], first_node=log)


def asked(one: Project) -> list[object]:
    """Who calls each model, and each function ``helper``."""
    refs = [FunctionRef(f"pack/m{n}.py", name) for n in range(MODELS) for name in (f"Net{n}.forward", "helper")]
    return [one.callers(ref) for ref in (*refs, FunctionRef("pack/base.py", "Base.forward"))]


def test_what_one_publishes_the_others_receive_once(exchange: Exchange) -> None:
    published: dict[str | tuple[str, int], object] = {
        "one": 1,
        "none": [],
        "large": ["x" * 300_000],
        ("work", 3): [("a", True)],
    }

    def work() -> None:
        for of, value in published.items():
            exchange.publish(of, value)
        assert exchange.received("one") is None  # one's own

    beside(work)
    assert {of: exchange.received(of) for of in published} == published
    assert exchange.received("one") is None


def test_each_piece_is_done_once(exchange: Exchange) -> None:
    items = range(5 * PIECES - 7)
    here = os.getpid()

    def work() -> None:
        for _ in range(PIECES // 2):  # as if it had gone on to other things
            number = _taken(exchange._pieces["work"])
            assert number is not None
            each = len(items) // PIECES + 1
            exchange.publish(("work", number), [[at, os.getpid()] for at in items[number * each : (number + 1) * each]])

    beside(work)
    found = [row for rows in exchange.share_out("work", items, lambda piece: [[at, here] for at in piece]) for row in rows]
    assert [at for at, _ in found] == list(items)
    assert 0 < sum(pid == here for _, pid in found) < len(items)
    assert [pid == here for _, pid in found] == sorted(pid == here for _, pid in found)


@pytest.mark.parametrize("count", [0, 1, PIECES - 1, PIECES, PIECES + 1, 1000])
def test_all_items_are_shared_out(count: int) -> None:
    exchange = Exchange(1)
    exchange.begin("work")
    assert [at for rows in exchange.share_out("work", range(count), list) for at in rows] == list(range(count))
    exchange.close()


def test_pieces_of_one_that_died_are_done_by_the_others(exchange: Exchange) -> None:
    def work() -> None:
        for _ in range(PIECES):
            _taken(exchange._pieces["work"])

    beside(work)
    assert [at for rows in exchange.share_out("work", range(100), list) for at in rows] == list(range(100))


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:-1] + b"?", lambda data: data[:5]])
def test_what_is_not_written_to_its_end_is_not_heard(exchange: Exchange, damage: Callable[[bytes], bytes]) -> None:
    beside(lambda: exchange.publish("of", "whole"))
    log = next(log for log in exchange._logs if os.fstat(log).st_size)
    whole = os.pread(log, 100, 0)
    os.ftruncate(log, 0)
    os.pwrite(log, damage(whole), 0)
    assert exchange.received("of") is None
    os.pwrite(log, whole, 0)
    assert exchange.received("of") == "whole"


def test_a_closed_exchange_is_silent() -> None:
    exchange = Exchange(2)
    exchange.begin("work")
    exchange.close()
    exchange.publish("nobody", 1)
    assert exchange.received("nobody") is None
    assert exchange.share_out("work", range(3), list)[:3] == [[0], [1], [2]]


def test_one_that_is_forked_from_a_writer_writes_nothing(exchange: Exchange) -> None:
    def work() -> None:
        exchange.publish("first", 1)
        beside(lambda: exchange.publish("second", 2))

    beside(work)
    assert exchange.received("first") == 1
    assert exchange.received("second") is None


def test_results_are_the_same_with_an_exchange(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = asked(project())
    one = project()
    one.share_through(exchange)
    beside(lambda: asked(one))  # type: ignore[arg-type]
    calls = one.linked.calls
    work = calls.reached
    monkeypatch.setattr(calls, "object_reached", None)  # all is heard, nothing is worked out
    monkeypatch.setattr(calls, "reached", lambda site: pytest.fail("shared") if site[1].callee == "helper" else work(site))
    assert asked(one) == expected


def graph_of(*written_down: tuple[str, bytes]) -> DependencyGraph:
    return DependencyGraph(segments_of((name, 0, data) for name, data in written_down))


def test_what_was_published_is_in_the_log_of_who_published_it(exchange: Exchange, tmp_path: Path) -> None:
    alone = project(0)
    asked(alone)
    expected = graph_of(("alone", serialized(alone.log)))
    one = project(0)
    one.share_through(exchange)

    def work() -> None:
        asked(one)
        (tmp_path / one.log.segment()).write_bytes(serialized(one.log))

    beside(work)
    asked(one)
    (other,) = tmp_path.iterdir()
    here = one.log.segment(), serialized(one.log)
    assert [*one.log.needs] == [other.name]
    graph = graph_of(here, (other.name, other.read_bytes()))
    for kind in (OBJECT, SITE, OBJECTS):
        assert expected.firewalls_of(kind)
        assert graph.firewalls_of(kind) == expected.firewalls_of(kind)
    own = Segment(0, 0)
    own.read(here[1])
    assert not own.firewalls_of((OBJECT,))
    changes: list[Key] = [(HEAD, "pack/m3.py", "Net3.forward"), (NAME, "pack/m7.py", "Net7"), (SCOPE, "pack/m80.py", "run80")]
    for change in changes:
        dirty = expected.dirty((OBJECT, SITE), expected.invalidated({change}))
        assert dirty == graph.dirty((OBJECT, SITE), graph.invalidated({change}))
        assert dirty or change[0] == HEAD


def test_a_log_is_nothing_without_those_whose_results_it_uses(exchange: Exchange, tmp_path: Path) -> None:
    one = project(0)
    one.share_through(exchange)

    def work() -> None:
        one.callers(FunctionRef("pack/m3.py", "Net3.forward"))
        (tmp_path / one.log.segment()).write_bytes(serialized(one.log))
        one.callers(FunctionRef("pack/m3.py", "helper"))  # it dies before it has written that

    beside(work)
    (other,) = tmp_path.iterdir()
    one.callers(FunctionRef("pack/m4.py", "Net4.forward"))
    first = one.log.segment(), serialized(one.log)
    graph_of(first, (other.name, other.read_bytes()))
    with pytest.raises(ValueError, match="did not log them"):
        graph_of(first)
    one.callers(FunctionRef("pack/m4.py", "helper"))
    second = first[0], first[1] + serialized(one.log)
    with pytest.raises(ValueError, match="did not log them"):
        graph_of(second, (other.name, other.read_bytes()))


def test_results_that_nobody_logged_are_not_accepted_by_those_that_log(exchange: Exchange) -> None:
    one = project(0)
    one.share_through(exchange)

    def work() -> None:
        one.log.on = False
        asked(one)

    beside(work)
    alone = project(0)
    assert asked(one) == asked(alone)
    assert one.log.needs == {}
    expected, found = graph_of(("alone", serialized(alone.log))), graph_of(("here", serialized(one.log)))
    assert found.firewalls_of(OBJECT) == expected.firewalls_of(OBJECT)
