"""What a program reaches for in vain: arguments, files, weights, data sets, processes."""

from __future__ import annotations

import argparse
import ast
import builtins
import contextlib
import importlib
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader

from torchmemlint.budget.worker.measure import EndOfRun, Unknown
from torchmemlint.budget.worker.patch import put
from torchmemlint.budget.worker.tape import BUCKETS, VALUES, Tape, keep_values
from torchmemlint.confirm.worker.standins import Stage, StandIn

# -- arguments


def fill_arguments(values: Mapping[str, str], assume: Callable[[str], None]) -> None:
    """``parse_args`` gives the defaults, and what ``--set`` says; what must be given and is not gets a value of its type."""
    parse = argparse.ArgumentParser.parse_known_args

    def parse_known_args(self: Any, args: Any = None, namespace: Any = None) -> Any:
        required = {action.dest for action in self._actions if action.required}
        for action in self._actions:
            action.required = False
            if not action.option_strings and action.nargs is None:
                action.nargs = "?"
        for group in self._mutually_exclusive_groups:
            group.required = False
        found, rest = parse(self, args, namespace)
        for action in self._actions:
            if action.dest in values:
                setattr(found, action.dest, value_of(values[action.dest], action.type or type(action.default)))
            elif action.dest in required and getattr(found, action.dest, None) is None:
                made = next(iter(action.choices), None) if action.choices else 1 if action.type in (int, float) else action.dest
                setattr(found, action.dest, [made] if action.nargs in ("+", "*") or isinstance(action.nargs, int) else made)
                assume(f"the program requires {'/'.join(action.option_strings) or action.dest}; {made!r} was assumed")
        return found, rest

    put(argparse.ArgumentParser, "parse_known_args", parse_known_args)


def value_of(text: str, kind: Any) -> Any:
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


COUNT = 1000
"""A number that nobody knows, on the way to the program's model: of words, of classes, of examples."""
EPOCH_BATCHES = 4
"""So many batches of a loop are run where the whole epoch is wanted."""
GIVEN_BATCHES = 64
"""So many batches a loop gets where ``--input`` says what one is: enough for a step that accumulates gradients."""
BATCH = 16
"""Size of a batch where nothing says it."""


class Fetches:
    """Counts the batches that each loop takes, and the bytes that live when it takes one. Where the whole program is wanted, a loop
    has few, and a second epoch ends the run."""

    def __init__(self, run: Any, whole: bool) -> None:
        self._run, self._whole = run, whole
        self._live: dict[str, list[int]] = {}

    def counted(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The same batches."""
        row, path = self._run.tape.here()
        place = f"{path}:{row}"
        if self._whole and len(self._live.get(place, ())) >= EPOCH_BATCHES:
            raise EndOfRun
        seen = self._live[place] = []
        for batch in batches:
            seen.append(self._run.tape.live)
            yield batch
            if self._whole and len(seen) >= EPOCH_BATCHES:
                del batch
                seen.append(self._run.tape.live)
                return

    def growth(self) -> dict[str, int]:
        """By place of the loop: what each batch leaves behind, once the first two have made what stays."""
        return {place: min(seen[4] - seen[3], seen[3] - seen[2]) for place, seen in self._live.items() if len(seen) > 4}


SAMPLED = 16
"""Where a batch size is asked for, so many real examples are read, and the first dimension is made as large as asked."""


class Data:
    """Loaders run outside of the fake mode, on real items; what they give becomes fake."""

    def __init__(
        self,
        run: Any,
        inputs: Sequence[tuple[str, str, Sequence[int]]],
        batch: int,
        note: Callable[[str], str],
        whole: bool = False,
    ) -> None:
        self.fetches = Fetches(run, whole)
        self._run, self._inputs, self._batch, self._note = run, inputs, batch, note
        self.batch_sizes: list[int] = []
        self.guessed: list[str] = []

    def assume(self, words: str) -> None:
        """Note what was taken for granted."""
        self._run.tape.assume(words)

    def number(self, name: str) -> int:
        """A number that nobody knows."""
        if f"{name}={COUNT}" not in self.guessed:
            self.guessed.append(f"{name}={COUNT}")
        return COUNT

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
                raise Unknown(data._note("the batch size is unknown"))
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
            batches = data.endless("the data") if this._tml_given else data._real(go, this)
            return data.fetches.counted(batches)

        put(DataLoader, "__init__", init)
        put(DataLoader, "__iter__", iterate)

    def endless(self, name: str) -> Iterator[Any]:
        """Batches by ``--input``."""
        for _ in range(GIVEN_BATCHES):
            batch = self.given()
            if batch is None:
                raise Unknown(self._note(f"`{name}` is missing"))
            yield batch

    def _real(self, go: Any, loader: Any) -> Iterator[Any]:
        """The loader's own batches; with a batch size that was asked for, as many as two steps need, of that size."""
        from torch.utils._python_dispatch import _disable_current_modes

        count, given = _examples(loader), 0
        items: Any = iter(())
        while True:
            self._run.reading = True
            try:
                with _disable_current_modes():
                    if not given:
                        items = go(loader)
                    batch = next(items)
            except StopIteration:
                if not loader._tml_grown or not 0 < given < 4:
                    return
                given = 0
                continue
            finally:
                self._run.reading = False
            given += 1
            yield tree_map(lambda item: self._fake(item, count, loader._tml_grown), batch)

    def _fake(self, item: Any, count: int, grown: int) -> Any:
        if not isinstance(item, torch.Tensor):
            return item
        from torch._subclasses.fake_tensor import FakeTensor

        with self._run.tape.placed(False):
            if self._run.real and not (grown and item.dim() and item.size(0) == count):
                return item
            if grown and item.dim() and item.size(0) == count:
                return torch.zeros((grown, *item.shape[1:]), dtype=item.dtype)
            if isinstance(item, FakeTensor):
                return item
            made = torch.empty_strided(item.size(), item.stride(), dtype=item.dtype)
            if item.numel() <= VALUES and isinstance(made, FakeTensor):  # lengths, sizes of a grid
                keep_values(made, item.clone)
            return made


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


MOST_PIXELS = 1 << 28
"""A data set with more is no array in memory."""


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
        with contextlib.suppress(AttributeError):  # where it is a property of the class
            self.classes = [str(index) for index in range(classes)]
            self.class_to_idx = {word: index for index, word in enumerate(self.classes)}
        self.targets = self.labels = [index % classes for index in range(count)]
        self.samples = self.imgs = [("", target) for target in self.targets]
        if count * size[0] * size[1] < MOST_PIXELS:
            shape = (count, *size[::-1], *((3,) if mode == "RGB" else ()))
            pixels = importlib.import_module("numpy").zeros(shape, "uint8")
            self.data = torch.from_numpy(pixels) if mode == "L" else pixels
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


def no_outside(tape: Tape, stage: Stage) -> None:
    """Nothing is written, downloaded, compiled or started; what would do so does nothing, or gives a stand-in."""
    for name in ("makedirs", "mkdir", "remove", "rename", "replace", "unlink"):
        setattr(os, name, _forgiving(getattr(os, name)))
    real_open = builtins.open

    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if any(letter in mode for letter in "wax+"):
            return io.BytesIO() if "b" in mode else io.StringIO()
        return real_open(file, mode, *args, **kwargs)

    builtins.open = io.open = opened  # pathlib has the other
    put(torch, "save", lambda *args, **kwargs: None)
    load = torch.load

    def loaded(file: Any, *args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(Exception), torch.utils._python_dispatch._disable_current_modes():
            return load(
                file, **{**kwargs, "map_location": "cpu", "weights_only": False}
            )  # here a file may do what a program may
        return StandIn(stage, "torch.load()")

    put(torch, "load", loaded)
    put(torch, "compile", _compile)
    from torch.utils import model_zoo

    for place, name in ((torch.hub, "load_state_dict_from_url"), (model_zoo, "load_url")):
        put(place, name, lambda *args, **kwargs: StandIn(stage, "weights"))
    put(torch.hub, "load", lambda *args, **kwargs: StandIn(stage, "torch.hub.load()", origin="unseen"))
    put(torch.hub, "list", lambda *args, **kwargs: [])
    first = torch.nn.Module.load_state_dict

    def load_state_dict(self: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        return None if isinstance(state, StandIn) else first(self, state, *args, **kwargs)

    put(torch.nn.Module, "load_state_dict", load_state_dict)
    put(torch.optim.Optimizer, "load_state_dict", lambda self, state: None)
    put(torch.backends.cudnn, "is_available", lambda: True)
    _one_process(tape)
    _untrained(stage)


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


FIRST_BUCKET, BUCKET = 1 << 20, 25 << 20
"""torch/nn/parallel/distributed.py: ``bucket_cap_mb``'s default; torch.distributed's ``_DEFAULT_FIRST_BUCKET_BYTES``."""


class _Distributed(_Same):
    """``DistributedDataParallel``: beside the gradients it keeps them in buckets (reducer.cpp, ``initialize_buckets``), unless they
    are views of these."""

    def __init__(self, module: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(module)
        limit = int((kwargs.get("bucket_cap_mb") or BUCKET >> 20) * (1 << 20))
        trained = [] if kwargs.get("gradient_as_bucket_view") else [item for item in module.parameters() if item.requires_grad]
        self._tml_buckets: list[Any] = []
        for dtype in dict.fromkeys(item.dtype for item in trained):
            self._fill([item for item in reversed(trained) if item.dtype == dtype], limit)

    def keep(self, bucket: Any) -> None:
        """Hold a bucket."""
        self._tml_buckets.append(bucket)

    def _fill(self, parameters: Sequence[Any], limit: int) -> None:
        count, cap = 0, FIRST_BUCKET
        for parameter in parameters:
            count += parameter.numel()
            if count * parameter.element_size() >= cap or parameter is parameters[-1]:
                self.keep(torch.empty(count, dtype=parameter.dtype, device="cuda"))
                count, cap = 0, limit


def _one_process(tape: Tape) -> None:
    class Distributed(_Distributed):
        def keep(self, bucket: Any) -> None:
            """As a part of its own."""
            tape.mark(bucket, BUCKETS)
            self._tml_buckets.append(bucket)

    put(torch.nn, "DataParallel", _Same)
    put(torch.nn.parallel, "DataParallel", _Same)
    put(torch.nn.parallel, "DistributedDataParallel", Distributed)
    distributed = torch.distributed
    answers: dict[str, Any] = {
        "init_process_group": None, "destroy_process_group": None, "barrier": None, "get_rank": 0, "get_world_size": 1,
        "is_initialized": False, "all_reduce": None, "broadcast": None,
    }  # fmt: skip
    for name, value in answers.items():
        setattr(distributed, name, lambda *args, _value=value, **kwargs: _value)
    import torch.multiprocessing as processes

    put(processes, "spawn", lambda fn, args=(), nprocs=1, **kwargs: fn(0, *args))


def _untrained(stage: Stage) -> None:
    """torchvision's models have their configuration, and no weights."""
    with contextlib.suppress(Exception):  # not installed, or broken
        api = importlib.import_module("torchvision.models._api")
        put(api.WeightsEnum, "get_state_dict", lambda self, *args, **kwargs: StandIn(stage, "weights"))
