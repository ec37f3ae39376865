"""What a program reaches for and must not have, or cannot: packages, files, weights, data sets, processes."""

from __future__ import annotations

import argparse
import ast
import builtins
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader

from torchmemlint.budget.worker.patch import put
from torchmemlint.confirm.worker import standins
from torchmemlint.confirm.worker.standins import StandIn


class CannotTell(BaseException):
    """What the step needs rests on something that is not here. No handler for Exception stops it."""


# -- packages that are not installed


class Packages(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Comes last: a package that nobody finds is a stand-in. ``optional`` are the (file, line) of imports that the program
    guards itself: these fail, as they would."""

    def __init__(self, own: Callable[[str], bool]) -> None:
        self._own = own
        self.optional: set[tuple[str, int]] = set()
        self.missing: set[str] = set()

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname.partition(".")[0] in sys.stdlib_module_names:
            return None
        frame: Any = sys._getframe(1)
        while frame is not None and not self._own(frame.f_code.co_filename):
            code = frame.f_code
            if "importlib" not in code.co_filename and "importlib" not in frame.f_globals.get("__name__", ""):
                return None  # an installed package tries something out
            frame = frame.f_back
        if frame is None or (frame.f_code.co_filename, frame.f_lineno) in self.optional:
            return None
        self.missing.add(fullname.partition(".")[0])
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Missing(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


class _Missing(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(f"{self.__name__}.{name}", origin="unseen")


def no_loggers() -> None:
    """``torch.utils.tensorboard`` wants a package of its own; without it, it is a stand-in."""
    if importlib.util.find_spec("tensorboard") is None:
        sys.modules["torch.utils.tensorboard"] = _Missing("torch.utils.tensorboard")


def optional_imports(tree: ast.AST, path: str) -> set[tuple[str, int]]:
    """Imports inside a ``try`` with a handler."""
    return {
        (path, node.lineno)
        for block in ast.walk(tree) if isinstance(block, ast.Try) and block.handlers
        for statement in block.body for node in ast.walk(statement) if isinstance(node, (ast.Import, ast.ImportFrom))
    }  # fmt: skip


def stand_ins_tell(tell: Callable[[str], str]) -> None:
    """A stand-in of ``confirm`` makes up tensors; here, where sizes count, it says that nobody knows them."""

    def unknown(self: Any) -> Any:
        raise CannotTell(tell(f"`{self._name}` is not installed, so its tensor is unknown"))

    def made(*args: Any) -> Any:
        raise CannotTell(tell("the data is missing, so its shape is unknown"))

    put(StandIn, "tml_tensor", unknown)
    put(StandIn, "_forward", lambda self, inputs, caller: StandIn(f"{self._name}()", called=None))
    standins.data = made

    def iterate(self: Any) -> Iterator[Any]:
        count = standins._unpack_count(sys._getframe(1))
        if count is not None:
            return iter([StandIn(f"{self._name}[{index}]") for index in range(count)])
        raise CannotTell(tell(f"`{self._name}` is not installed, so its contents are unknown"))

    put(StandIn, "__iter__", iterate)


# -- arguments


def fill_arguments(values: Mapping[str, str]) -> None:
    """``parse_args`` gives the defaults, and what ``--set`` says."""
    parse = argparse.ArgumentParser.parse_known_args

    def parse_known_args(self: Any, args: Any = None, namespace: Any = None) -> Any:
        for action in self._actions:
            action.required = False
            if not action.option_strings and action.nargs is None:
                action.nargs = "?"
        for group in self._mutually_exclusive_groups:
            group.required = False
        found, rest = parse(self, args, namespace)
        for action in self._actions:
            if action.dest in values:
                setattr(found, action.dest, _value(values[action.dest], action.type or type(action.default)))
        return found, rest

    put(argparse.ArgumentParser, "parse_known_args", parse_known_args)


def _value(text: str, kind: Any) -> Any:
    if kind in (int, float, str):
        return kind(text)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


# -- data


class Batch(dict[str, Any]):
    """What ``--input`` says that a batch is: unpacked it is a tuple, by name a dict, alone a tensor."""

    def __iter__(self) -> Any:
        return iter(self.values())

    def __getitem__(self, key: Any) -> Any:
        return list(self.values())[key] if isinstance(key, int) else super().__getitem__(key)

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(name)

    def to(self, *args: Any, **kwargs: Any) -> Batch:
        """On the device, as ``BatchEncoding.to``."""
        return Batch({name: value.to(*args, **kwargs) for name, value in self.items()})


SAMPLED = 16
"""Where a batch size is asked for, so many real examples are read, and the first dimension is made as large as asked."""


class Data:
    """Loaders run outside of the fake mode, on real items; what they give becomes fake."""

    def __init__(
        self, run: Any, inputs: Sequence[tuple[str, str, Sequence[int]]], batch: int, tell: Callable[[str], str]
    ) -> None:
        self._run, self._inputs, self._batch, self._tell = run, inputs, batch, tell
        self.batch_sizes: list[int] = []

    def given(self) -> Any:
        """A batch by ``--input``, None without."""
        if not self._inputs:
            return None
        made = Batch()
        with self._run.tape.placed(False):
            for name, dtype, shape in self._inputs:
                sizes = [self._batch, *shape[1:]] if self._batch and shape else list(shape)
                made[name] = torch.zeros(sizes, dtype=getattr(torch, dtype))
        return next(iter(made.values())) if len(made) == 1 else made

    def install(self) -> None:
        """Loaders without workers, with the batch size that was asked for."""
        data = self
        begin, go = DataLoader.__init__, DataLoader.__iter__

        def init(this: Any, dataset: Any, batch_size: Any = 1, *args: Any, **kwargs: Any) -> None:
            for name in (
                "num_workers",
                "persistent_workers",
                "prefetch_factor",
                "multiprocessing_context",
                "timeout",
                "pin_memory",
            ):
                kwargs.pop(name, None)
            args = args[:3]
            if isinstance(batch_size, StandIn):
                raise CannotTell(data._tell("the batch size is unknown"))
            this._tml_grown = data._batch if batch_size and batch_size > 1 else 0
            this._tml_given = isinstance(dataset, StandIn) or data._inputs
            if batch_size:
                data.batch_sizes.append(this._tml_grown or int(batch_size))
            if this._tml_grown:
                batch_size = min(batch_size, SAMPLED)
            if this._tml_given:
                dataset, kwargs, args = [0] * (4 * int(batch_size or 1)), {}, ()
            kwargs = {name: value for name, value in kwargs.items() if not isinstance(value, StandIn)}
            begin(this, dataset, batch_size, *args, **kwargs)

        def iterate(this: Any) -> Iterator[Any]:
            if this._tml_given:
                return data._endless()
            return data._real(go, this)

        put(DataLoader, "__init__", init)
        put(DataLoader, "__iter__", iterate)

    def _endless(self) -> Iterator[Any]:
        for _ in range(4):
            batch = self.given()
            if batch is None:
                raise CannotTell(self._tell("the data set is missing, so its batches are unknown"))
            yield batch

    def _real(self, go: Any, loader: Any) -> Iterator[Any]:
        """The loader's own batches; with a batch size that was asked for, as many as two steps need, of that size."""
        from torch.utils._python_dispatch import _disable_current_modes

        with _disable_current_modes():
            items, count, given = go(loader), _examples(loader), 0
        while True:
            with _disable_current_modes():
                try:
                    batch = next(items)
                except StopIteration:
                    if not loader._tml_grown or not 0 < given < 4:
                        return
                    items = go(loader)
                    continue
            given += 1
            yield tree_map(lambda item: self._fake(item, count, loader._tml_grown), batch)

    def _fake(self, item: Any, count: int, grown: int) -> Any:
        if not isinstance(item, torch.Tensor):
            return item
        from torch._subclasses.fake_tensor import FakeTensor

        with self._run.tape.placed(False):
            if grown and item.dim() and item.size(0) == count:
                return torch.empty((grown, *item.shape[1:]), dtype=item.dtype)
            if isinstance(item, FakeTensor):
                return item
            return torch.empty_strided(item.size(), item.stride(), dtype=item.dtype)


def _examples(loader: Any) -> int:
    """How many examples are in the loader's first batch."""
    try:
        return min(int(loader.batch_size or 0), len(loader.dataset))
    except TypeError:  # an iterable data set has no length
        return int(loader.batch_size or 0)


# sizes of the pictures and how many there are: the data sets' own pages, which torchvision's documentation links to
_PICTURES: dict[str, tuple[str, tuple[int, int], int, int]] = {
    "MNIST": ("L", (28, 28), 60000, 10), "FashionMNIST": ("L", (28, 28), 60000, 10), "KMNIST": ("L", (28, 28), 60000, 10),
    "EMNIST": ("L", (28, 28), 112800, 47), "QMNIST": ("L", (28, 28), 60000, 10), "USPS": ("L", (16, 16), 7291, 10),
    "CIFAR10": ("RGB", (32, 32), 50000, 10), "CIFAR100": ("RGB", (32, 32), 50000, 100), "SVHN": ("RGB", (32, 32), 73257, 10),
    "STL10": ("RGB", (96, 96), 5000, 10), "ImageNet": ("RGB", (500, 375), 1281167, 1000), "CelebA": ("RGB", (178, 218), 162770, 40),
    "ImageFolder": ("RGB", (500, 375), 10000, 1000),
}  # fmt: skip


def known_pictures(assume: Callable[[str], None]) -> None:
    """torchvision's data sets without their files: pictures of the right size, through the program's own transforms."""
    try:
        datasets = importlib.import_module("torchvision.datasets")
    except Exception:  # not installed, or broken
        return
    for name, (mode, size, count, classes) in _PICTURES.items():
        kind = getattr(datasets, name, None)
        if isinstance(kind, type):
            setattr(datasets, name, _pictures(kind, mode, size, count, classes, assume))
    datasets.folder.ImageFolder = datasets.ImageFolder


def _pictures(kind: Any, mode: str, size: tuple[int, int], count: int, classes: int, assume: Callable[[str], None]) -> Any:
    def init(self: Any, root: Any = "", *args: Any, **kwargs: Any) -> None:
        vision = importlib.import_module("torchvision.datasets").VisionDataset
        transform = kwargs.get("transform")
        if transform is None:
            transform = next((item for item in args if callable(item)), None)
        vision.__init__(self, "data", transform=transform, target_transform=kwargs.get("target_transform"))
        self.classes = [str(index) for index in range(classes)]
        self.class_to_idx = {word: index for index, word in enumerate(self.classes)}
        self.targets = self.labels = [index % classes for index in range(count)]
        self.samples = self.imgs = [("", target) for target in self.targets]
        self.train, self.split = True, kwargs.get("split", "train")
        if kind.__name__ == "ImageFolder":
            assume("an ImageFolder was assumed to have 500×375 pictures of 1000 classes")

    def item(self: Any, index: int) -> Any:
        picture: Any = importlib.import_module("PIL.Image").new(mode, size)
        target: Any = index % classes
        if self.transform is not None:
            picture = self.transform(picture)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return picture, target

    return type(kind.__name__, (kind,), {"__init__": init, "__getitem__": item, "__len__": lambda self: count})


# -- files, weights, processes


def no_outside(assume: Callable[[str], None]) -> None:
    """Nothing is written, downloaded, compiled or started; what would do so does nothing, or gives a stand-in."""
    for name in ("makedirs", "mkdir", "remove", "rename", "replace", "unlink"):
        setattr(os, name, _forgiving(getattr(os, name)))
    real_open = builtins.open

    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if any(letter in mode for letter in "wax+"):
            return io.BytesIO() if "b" in mode else io.StringIO()
        return real_open(file, mode, *args, **kwargs)

    builtins.open = opened
    put(torch, "save", lambda *args, **kwargs: None)
    put(torch, "load", lambda *args, **kwargs: StandIn("torch.load()"))
    put(torch, "compile", _compile)
    from torch.utils import model_zoo

    for place, name in ((torch.hub, "load_state_dict_from_url"), (model_zoo, "load_url"), (torch.hub, "load")):
        put(place, name, lambda *args, **kwargs: StandIn("weights"))
    first = torch.nn.Module.load_state_dict

    def load_state_dict(self: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        return None if isinstance(state, StandIn) else first(self, state, *args, **kwargs)

    put(torch.nn.Module, "load_state_dict", load_state_dict)
    put(torch.optim.Optimizer, "load_state_dict", lambda self, state: None)
    put(torch.backends.cudnn, "is_available", lambda: True)
    _one_process()
    _untrained(assume)


def _forgiving(function: Callable[..., Any]) -> Callable[..., Any]:
    def quiet(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except OSError:
            return None

    return quiet


def _compile(model: Any = None, **options: Any) -> Any:
    return model if model is not None else (lambda function: function)


class _Same(torch.nn.Module):
    """``DistributedDataParallel`` or ``DataParallel`` of one process and one device."""

    def __init__(self, module: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own."""
        return self.module(*args, **kwargs)

    def no_sync(self) -> Any:
        """As in DistributedDataParallel."""
        return contextlib.nullcontext()


def _one_process() -> None:
    put(torch.nn, "DataParallel", _Same)
    put(torch.nn.parallel, "DataParallel", _Same)
    put(torch.nn.parallel, "DistributedDataParallel", _Same)
    distributed = torch.distributed
    answers: dict[str, Any] = {
        "init_process_group": None, "destroy_process_group": None, "barrier": None, "get_rank": 0, "get_world_size": 1,
        "is_initialized": False, "all_reduce": None, "broadcast": None,
    }  # fmt: skip
    for name, value in answers.items():
        setattr(distributed, name, lambda *args, _value=value, **kwargs: _value)
    import torch.multiprocessing as processes

    put(processes, "spawn", lambda fn, args=(), nprocs=1, **kwargs: fn(0, *args))


def _untrained(assume: Callable[[str], None]) -> None:
    """Pretrained models come from their configuration, where a library here has it."""
    with contextlib.suppress(Exception):  # not installed, or broken
        timm = importlib.import_module("timm")
        create = timm.create_model
        put(timm, "create_model", lambda name, pretrained=False, **kwargs: create(name, pretrained=False, **kwargs))
