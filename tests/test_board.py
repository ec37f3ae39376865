"""What processes tell each other, and that their answers are the same as without it."""

import os
import sys
from collections.abc import Callable, Iterator

import pytest

from torchmemlint.board import PIECES, Board
from torchmemlint.index.module_facts import module_facts
from torchmemlint.index.project import FunctionRef, Project

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a board is in memory that Linux shares")

MODELS = 90
"""So many classes, each in a file of its own: more calls than there are pieces."""


@pytest.fixture
def board() -> Iterator[Board]:
    one = Board(2)
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


def project() -> Project:
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
    return Project.build([module_facts(path, text) for path, text in files.items()])


def asked(one: Project) -> list[object]:
    """Who calls each model, and each function ``helper``."""
    refs = [FunctionRef(f"pack/m{n}.py", name) for n in range(MODELS) for name in (f"Net{n}.forward", "helper")]
    return [one.callers(ref) for ref in (*refs, FunctionRef("pack/base.py", "Base.forward"))]


def test_what_one_tells_the_others_hear_once(board: Board) -> None:
    messages = [b"one", b"", b"x" * 300_000]

    def work() -> None:
        for message in messages:
            board.tell(message)
        assert list(board.heard()) == []  # one's own

    beside(work)
    assert list(board.heard()) == messages
    assert list(board.heard()) == []


def test_each_number_is_taken_once(board: Board) -> None:
    def work() -> None:
        taken = [board.take() for _ in range(PIECES - 10)]
        board.tell(bytes(number for number in taken if number is not None))

    beside(work)
    (theirs,) = board.heard()
    ours = [board.take() for _ in range(10)]
    assert sorted([*theirs, *(number for number in ours if number is not None)]) == list(range(PIECES))
    assert board.take() is None


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:-1] + b"?", lambda data: data[:5]])
def test_what_is_not_written_to_its_end_is_not_heard(board: Board, damage: Callable[[bytes], bytes]) -> None:
    beside(lambda: board.tell(b"whole"))
    beside(lambda: os._exit(0))
    log = next(log for log in board._logs if os.fstat(log).st_size)
    whole = os.pread(log, 100, 0)
    os.ftruncate(log, 0)
    os.pwrite(log, damage(whole), 0)
    assert list(board.heard()) == []
    os.pwrite(log, whole, 0)
    assert list(board.heard()) == [b"whole"]


def test_a_closed_board_is_silent() -> None:
    board = Board(2)
    board.close()
    board.tell(b"nobody")
    assert board.take() is None
    assert list(board.heard()) == []


def test_one_that_is_forked_from_a_writer_writes_nothing(board: Board) -> None:
    def work() -> None:
        board.tell(b"first")
        beside(lambda: board.tell(b"second"))

    beside(work)
    assert list(board.heard()) == [b"first"]


def test_answers_are_the_same_with_a_board(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = asked(project())
    one = project()
    one.meet(board)
    beside(lambda: asked(one))  # type: ignore[arg-type,return-value]
    told = list(board.heard())
    assert len(told) > PIECES  # all calls of objects, and those that end in ``helper``
    board._read = [0, 0]
    work = one._calls.reached
    monkeypatch.setattr(one._calls, "object_reached", None)  # all is heard, nothing is worked out
    monkeypatch.setattr(
        one._calls, "reached", lambda site: pytest.fail("it was told") if site[1].callee == "helper" else work(site)
    )
    assert asked(one) == expected


def test_pieces_of_one_that_died_are_done_by_the_others(board: Board) -> None:
    expected = asked(project())
    one = project()
    one.meet(board)

    def work() -> None:
        for _ in range(PIECES // 2):
            board.take()
        os._exit(0)

    beside(work)
    assert asked(one) == expected


def test_where_a_trail_is_written_each_works_for_itself(board: Board) -> None:
    files = {"a.py": "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x\n"}
    one = Project.build([module_facts(path, text) for path, text in files.items()], trail=True)
    one.meet(board)
    one.callers(FunctionRef("a.py", "Net.forward"))
    assert board.take() == 0  # none was taken
