"""Hooks into torch, once the program has imported it: the head of each outermost call of a module."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import FrameType, ModuleType
from typing import Any

from torchmemlint.growth.worker.calls import Calls
from torchmemlint.growth.worker.frames import Place, place, users

Event = Callable[[FrameType], None]
WRAPPER = "__call__"


class Hooks:
    """The patches; ``remove`` takes them back."""

    def __init__(self, event: Event, create_graph: Callable[[Place], None], begin_anew: Event) -> None:
        self._event, self._create_graph, self._begin_anew = event, create_graph, begin_anew
        self._undo: list[Callable[[], None]] = []
        self._calls = 0
        self._inside: set[int] = set()
        """The threads that are in an outermost call."""
        self.bare: Calls | None = None

    def install(self, torch: Any) -> None:
        """Patch torch."""
        self._module(torch)
        self._backward(torch)
        self._loader(torch)
        self.bare = Calls(self._event, torch)
        self.bare.start()

    def _seen(self, frame: FrameType) -> None:
        """A module, a backward or a loader is called. The loops before the first one were those that prepare the run."""
        if self.bare is not None:
            self.bare.stop()
            self.bare = None
            self._begin_anew(frame)
        self._event(frame)

    def again(self) -> None:
        """Where no module was called so far, and too many calls were seen, calls of torch's functions are watched again for a while."""
        if self.bare is not None:
            self.bare.start()

    def remove(self) -> None:
        """Everything is as it was."""
        if self.bare is not None:
            self.bare.stop()
        while self._undo:
            self._undo.pop()()

    def _module(self, torch: Any) -> None:
        from _thread import get_ident

        original, event, inside, get_frame = torch.nn.Module.__call__, self._seen, self._inside, sys._getframe
        compiling, hooks = torch.compiler.is_compiling, self

        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
            if compiling():
                return original(self, *args, **kwargs)
            thread = get_ident()
            if thread in inside:
                return original(self, *args, **kwargs)
            inside.add(thread)
            try:
                hooks._calls += 1
                event(get_frame(1))
                return original(self, *args, **kwargs)
            finally:
                inside.discard(thread)

        torch.nn.Module.__call__ = __call__
        self._undo.append(lambda: _put_back(torch.nn.Module, "__call__", __call__, original))

    def _backward(self, torch: Any) -> None:
        original, event, hooks, get_frame = torch.Tensor.backward, self._seen, self, sys._getframe
        seen = 0

        def backward(self: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("create_graph"):
                caller = next(users(get_frame(1)), None)
                if caller is not None:
                    hooks._create_graph(place(caller))
            nonlocal seen
            if hooks._calls == seen:  # code without modules
                event(get_frame(1))
            seen = hooks._calls
            return original(self, *args, **kwargs)

        backward.__doc__ = original.__doc__
        torch.Tensor.backward = backward
        self._undo.append(lambda: _put_back(torch.Tensor, "backward", backward, original))

    def _loader(self, torch: Any) -> None:
        from _thread import get_ident

        from torch.utils.data import dataloader

        cls, event, hooks, get_frame = dataloader._BaseDataLoaderIter, self._seen, self, sys._getframe
        original, seen, inside = cls.__next__, 0, self._inside

        def __next__(self: Any) -> Any:
            nonlocal seen
            thread = get_ident()
            if thread in inside:
                return original(self)
            if hooks._calls == seen:
                event(get_frame(1))
            seen = hooks._calls
            inside.add(thread)  # transforms are modules, too, and the samples of a batch are no steps
            try:
                return original(self)
            finally:
                inside.discard(thread)

        setattr(cls, "__next__", __next__)  # noqa: B010
        self._undo.append(lambda: _put_back(cls, "__next__", __next__, original))


def _put_back(owner: Any, name: str, mine: Any, original: Any) -> None:
    if getattr(owner, name) is mine:  # else somebody has patched it since
        setattr(owner, name, original)


class Finder(importlib.abc.MetaPathFinder):
    """Calls back when torch has been imported, and then goes."""

    def __init__(self, ready: Callable[[ModuleType], None]) -> None:
        self._ready = ready
        self._busy = False

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """The spec of ``torch`` from the other finders, its loader wrapped."""
        if fullname != "torch" or self._busy:
            return None
        self._busy = True
        try:
            spec = next(
                (found for finder in sys.meta_path if finder is not self and (found := _asked(finder, fullname, path, target))),
                None,
            )
        finally:
            self._busy = False
        if spec is None or spec.loader is None:
            return spec
        spec.loader = _Loader(spec.loader, self._done)
        return spec

    def _done(self, module: ModuleType) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._ready(module)


def _asked(finder: Any, name: str, path: Sequence[str] | None, target: ModuleType | None) -> Any:
    find = getattr(finder, "find_spec", None)
    return find(name, path, target) if find is not None else None


class _Loader(importlib.abc.Loader):
    """The loader of torch, and a call when it is done."""

    def __init__(self, loader: Any, done: Callable[[ModuleType], None]) -> None:
        self._loader, self._done = loader, done

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """As the loader does it."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """As the loader does it; afterwards the module has its own loader again."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._done(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
