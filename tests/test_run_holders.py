"""The ways up from a tensor to a name: which holder is found, and what it is called."""

from __future__ import annotations

import collections
import contextvars
import functools
import gc
import queue
import sys
import threading
import types
import weakref
from collections.abc import Generator
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from torchmemlint.growth.worker import unseen
from torchmemlint.growth.worker.frames import Place
from torchmemlint.growth.worker.heap import Snapshot
from torchmemlint.growth.worker.holders import Roots, Search, named

pytestmark = pytest.mark.slow  # it imports torch

KEPT: list[Any] = []
TRAIL: contextvars.ContextVar[Any] = contextvars.ContextVar("trail")


class Holder:
    """An object with an attribute."""

    of_class: list[Any] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.mine: Any = None


class Slotted:
    """An object without a ``__dict__``."""

    __slots__ = ("mine",)


def remembers(seen: list[Any] = []) -> list[Any]:  # noqa: B006
    """A function whose default is shared by all calls."""
    return seen


def collects() -> Generator[None, Any, None]:
    """A generator that keeps what it is sent."""
    seen = []
    while True:
        seen.append((yield))


@functools.cache
def cached(key: int) -> Any:
    """A function that remembers its results."""
    return torch.zeros(key)


# the search leaves the frames of its own package out, and this one holds the tensors
_HERE: dict[str, Any] = {
    "__name__": "torchmemlint.growth.tests",
    "Search": Search,
    "Roots": Roots,
    "named": named,
    "sys": sys,
    "unseen": unseen,
}
exec(
    """def names(box):
    tensors = list(box)
    box.clear()
    roots = Roots(sys._getframe(1))
    search = Search(tensors, roots, (), unseen.holders([], roots))
    return [(path.root.kind, named(path)) for path in map(search.path, tensors)]
""",
    _HERE,
)


def put_attribute(tensor: Any, scope: Holder) -> None:
    scope.mine = [tensor]


def put_slot(tensor: Any, scope: Holder) -> None:
    scope.mine = Slotted()
    scope.mine.mine = {"key": tensor}


def put_partial(tensor: Any, scope: Holder) -> None:
    scope.mine = functools.partial(print, tensor)


def put_chain(tensor: Any, scope: Holder) -> None:
    scope.mine = collections.ChainMap({"key": tensor})


def put_queue(tensor: Any, scope: Holder) -> None:
    scope.mine = queue.SimpleQueue()
    scope.mine.put(tensor)


def put_thread_local(tensor: Any, scope: Holder) -> None:
    scope.mine = threading.local()
    scope.mine.value = [tensor]


def put_array(tensor: Any, scope: Holder) -> None:
    scope.mine = pytest.importorskip("numpy").empty(3, dtype=object)
    scope.mine[1] = tensor


def put_arrays(tensor: Any, scope: Holder) -> None:
    """What the collector leaves out: when it has seen the tuple it knows that there is nothing for it in there."""
    put_array(tensor, scope)
    scope.mine = {"key": ("text", scope.mine)}
    gc.collect()


def put_function(tensor: Any, scope: Holder) -> None:
    inner = [tensor]
    scope.mine = lambda: inner


def put_generator(tensor: Any, scope: Holder) -> None:
    scope.mine = collects()
    next(scope.mine)
    scope.mine.send(tensor)


def test_the_way_up_is_named() -> None:
    scopes = {}
    box = [torch.zeros(2) for _ in range(15)]
    puts = (
        put_attribute,
        put_slot,
        put_partial,
        put_chain,
        put_queue,
        put_thread_local,
        put_array,
        put_arrays,
        put_function,
        put_generator,
    )
    for put in puts:
        scopes[put.__name__] = Holder()
        put(box[len(scopes) - 1], scopes[put.__name__])
    KEPT.append(box[10])
    Holder.of_class.append(box[11])
    remembers().append(box[12])
    TRAIL.set((box[13],))
    box[14] = cached(2)
    try:
        said = _HERE["names"](box)
    finally:
        KEPT.clear()
        Holder.of_class.clear()
        remembers().clear()
        TRAIL.set(())
        cached.cache_clear()
    of = "scopes['{}'].mine".format
    assert said[:9] == [
        ("local", of("put_attribute") + "[…]"), ("local", of("put_slot") + ".mine['key']"), ("local", of("put_partial") + " (partial)[…]"),
        ("local", of("put_chain") + ".maps[…]['key']"), ("local", of("put_queue") + ("[…]" if sys.version_info < (3, 13) else "")),
        ("local", of("put_thread_local") + "['value'][…]"), ("local", of("put_array") + "[…]"),
        ("local", of("put_arrays") + "['key'][…][…]"), ("local", of("put_function") + " → inner[…]"),
    ]  # fmt: skip
    assert said[9:] == [
        ("generator", "seen[…]"), ("global", "KEPT[…]"), ("class", "Holder.of_class[…]"), ("global", "remembers → seen[…]"),
        ("context", "trail[…]"), ("global", "cached (cache)[2]"),
    ]  # fmt: skip


def test_the_gradient_of_a_tensor_is_held_by_it() -> None:
    kept = [torch.zeros(2, requires_grad=True)]
    kept[0].sum().backward()
    roots = Roots(sys._getframe())
    gradient = kept[0].grad
    held = unseen.holders(kept, roots)[id(gradient)]
    assert held[0] is kept[0]
    del held, roots
    assert not [one for one in gc.get_referrers(gradient) if isinstance(one, torch.Tensor)], "or the collector sees it by now"


def test_the_one_line_that_fills_a_variable_is_read_from_the_code(tmp_path: Any) -> None:
    from torchmemlint.growth.worker.fills import line_that_fills

    file = tmp_path / "threads.py"
    file.write_text(
        "def one():\n    kept = []\n    kept.append(1)\n    kept.clear()\n\n\n"
        "def two():\n    kept = {}\n    kept[1] = 2\n    kept.update(a=3)\n\n\ndef none():\n    kept = []\n    print(kept)\n"
    )
    space: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), space)
    codes: dict[str, types.CodeType] = {name: space[name].__code__ for name in ("one", "two", "none")}
    assert line_that_fills(codes["one"], "kept") == Place(str(file), 3, "one")
    assert line_that_fills(codes["two"], "kept") is None
    assert line_that_fills(codes["none"], "kept") is None


def test_a_holder_that_the_program_froze_is_found() -> None:
    box = [torch.zeros(2)]
    KEPT.append(box[0])
    gc.freeze()
    try:
        assert _HERE["names"](box) == [("global", "KEPT[…]")]
    finally:
        gc.unfreeze()
        KEPT.clear()


@pytest.mark.parametrize("young", [False, True])
def test_a_snapshot_keeps_nothing(young: bool) -> None:
    """Without the collector: a list of all objects that is one of them is a cycle."""
    gc.disable()
    try:
        value = torch.zeros(3)
        reference = weakref.ref(value)
        assert Snapshot(young).has(value)
        del value
        assert reference() is None
    finally:
        gc.enable()
