"""Two steps on fake tensors, of which the second is measured."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from torchmemlint.budget.worker.cuda import Cuda, Gpu
from torchmemlint.budget.worker.patch import put
from torchmemlint.budget.worker.tape import BUFFERS, GRADIENTS, PARAMETERS, STATE, VALUES, Tape


class EndOfRun(BaseException):
    """Raised out of the program when the step has been seen; no handler for Exception stops it."""


class Unknown(BaseException):
    """What the step needs rests on something that is not here. No handler for Exception stops it."""


class Mode(FakeTensorMode):
    """One mode for the whole run: a deep copy of a fake tensor copies its mode too, and each view of what belongs to another mode
    would count as memory of its own. ``nn.TransformerEncoder`` copies its layers so, and so do averaged copies of a model."""

    def __enter__(self) -> Mode:
        put(fake_tensor, "CONSTANT_NUMEL_LIMIT", VALUES)
        # draws until every value is within the bounds: values that nobody has never are
        put(torch.nn.init, "_no_grad_trunc_normal_", lambda tensor, *args, **kwargs: tensor)
        super().__enter__()
        return self

    def __deepcopy__(self, memo: object) -> Mode:
        return self


class Run:
    """One run of a program on fake tensors. ``marks`` are the places on the tape where an optimizer's step ended."""

    real = False

    def __init__(self, gpu: Gpu, own: Callable[[str], bool] = lambda path: False, all_on_device: bool = True) -> None:
        self.tape = Tape(own, all_on_device)
        self.cuda = Cuda(self.tape, gpu)
        self.fake = Mode(allow_non_fake_inputs=True)
        self.marks: list[tuple[int, int]] = []
        self.stepping: list[tuple[int, int]] = []
        self.optimizers: list[Any] = []
        self.stop_at_steps = 0
        self.saw_forward = False
        self.reading = False
        self.watching: list[Any] = []
        self.on_forward: Callable[[Any, Any], None] = lambda module, inputs: None
        self.on_step: Callable[[], None] = lambda: None
        self._names: dict[int, str] = {}
        self._roots: list[Any] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[Run]:
        """Everything within is on fake tensors, and on the tape."""
        self.cuda.install()
        hooks = self.hooks()
        try:
            with self.fake, self.tape, torch.backends.mkldnn.flags(enabled=False):
                yield self
        finally:
            for hook in hooks:
                hook.remove()

    def hooks(self) -> list[Any]:
        """What sees modules and optimizers at work."""
        return [
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
            register_module_forward_pre_hook(self._into),
            register_module_forward_hook(self._out_of, always_call=True),
        ]

    # -- modules
    def _into(self, module: Any, inputs: Any) -> None:
        if not self.tape.modules:
            self.saw_forward |= not self.reading  # a transform of torchvision is a module, too
            self._learn(module)
        self.on_forward(module, inputs)
        self.tape.modules.append(self._names.get(id(module), type(module).__name__))

    def _out_of(self, module: Any, inputs: Any, output: Any) -> None:
        if self.tape.modules:
            self.tape.modules.pop()

    def _learn(self, root: Any) -> None:
        if any(known is root for known in self._roots):
            return
        self._roots.append(root)
        for name, module in root.named_modules():
            self._names[id(module)] = f"{type(root).__name__}.{name}" if name else type(root).__name__

    # -- optimizers
    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if all(known is not optimizer for known in self.optimizers):
            self.optimizers.append(optimizer)
        self.stepping.append((len(self.tape.events), self.optimizers.index(optimizer)))
        self.mark_gradients()

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        for state in optimizer.state.values():
            for value in state.values():
                self.tape.mark(value, STATE)
        self.on_step()
        number = next(index for index, known in enumerate(self.optimizers) if known is optimizer)
        self.marks.append((len(self.tape.events), number))
        wanted = 2 if len(self.optimizers) == 1 else 3
        if self.stop_at_steps and sum(1 for _, other in self.marks if other == 0) >= wanted:
            raise EndOfRun

    def _optimized(self) -> Iterator[torch.Tensor]:
        return (item for optimizer in self.optimizers for group in optimizer.param_groups for item in group["params"])

    def mark_gradients(self) -> None:
        """Name the storages of the gradients that are there."""
        for parameter in self._optimized():
            self.tape.mark(parameter.grad, GRADIENTS)

    def mark_parameters(self) -> None:
        """Name the storages of parameters and buffers of all that ran."""
        for parameter in self._optimized():
            self.tape.mark(parameter, PARAMETERS)
        for root in self._roots:
            for tensor in root.buffers():
                self.tape.mark(tensor, BUFFERS)
            for tensor in root.parameters():
                self.tape.mark(tensor, PARAMETERS)
                self.tape.mark(tensor.grad, GRADIENTS)

    def largest_block(self) -> int:
        """Bytes of the parameters of the largest of the repeated blocks, which sharding gathers one after the other."""
        lists = (part for root in self._roots for part in root.modules() if isinstance(part, torch.nn.ModuleList))
        return max((sum(item.nbytes for item in block.parameters()) for part in lists for block in part), default=0)

    def window(self, whole: bool = False) -> tuple[int, int]:
        """The events of the step that is reported: from the end of one to the end of the next, or everything; with ``whole`` all that
        came after the first step."""
        first = [at for at, number in self.marks if number == 0]
        if whole:
            return (first[0] if first else 0), len(self.tape.events)
        if len(first) >= 2:
            return first[-2], first[-1]
        return 0, len(self.tape.events)
