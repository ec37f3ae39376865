"""Runs a program, a function of it, or a model alone, on fake tensors, and says what its step needs."""

from __future__ import annotations

import ast
import contextlib
import importlib
import logging
import os
import signal
import sys
import time
import traceback
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from torchmemlint.budget.account import account
from torchmemlint.budget.worker import absent, asked, launcher, lazy, legacy_types, older, others, outside, own_class, packed
from torchmemlint.budget.worker.cuda import Gpu
from torchmemlint.budget.worker.guarded import ERRORS, GUARD, TENSOR, TRY, Guarded, OwnFiles, package_of, parsed
from torchmemlint.budget.worker.measure import EndOfRun, Mode, Run
from torchmemlint.budget.worker.packages import Packages, Unknown, limit_stand_ins, no_loggers, optional_imports
from torchmemlint.budget.worker.placement import (
    Placement,
    default_device,
    in_backward,
    move_in_place,
    pretend_cuda,
)
from torchmemlint.budget.worker.real import RealRun
from torchmemlint.budget.worker.remedies import apply_remedy
from torchmemlint.budget.worker.sizes import Sizes
from torchmemlint.budget.worker.tape import INPUTS
from torchmemlint.budget.worker.unsized import Unsized
from torchmemlint.confirm.worker.standins import StandIn

Emit = Callable[[Mapping[str, object]], None]


class Late(BaseException):
    """The time limit is near. No handler for Exception stops it."""


def run_budget(job: Mapping[str, Any], emit: Emit, guard: Callable[[], None]) -> None:
    """One program, once. Emits one record: the budget, or the line that stopped it. ``guard`` is called before the program runs:
    what is said afterwards must come from here."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    Budgeted(job, emit).run(guard)


class Budgeted:
    """The run of one job."""

    def __init__(self, job: Mapping[str, Any], emit: Emit) -> None:
        self._job, self._emit = job, emit
        self._root = os.path.realpath(str(job.get("root") or "")) + os.sep
        gpu = Gpu(tuple(job.get("capability", (8, 0))), int(job.get("memory", 0)), str(job.get("attention", "auto")))
        kind = RealRun if job.get("real") else Run
        self.measured = kind(gpu, self._own, all_on_device=bool(job.get("model")))
        self.gpu = gpu
        self.skipped: list[str] = []
        self.required = self.late = self.open = False
        self._replaced = {str(path): str(text) for path, text in (job.get("replaced") or {}).items()}
        inputs = [(str(name), str(dtype), list(shape)) for name, dtype, shape in job.get("inputs", ())]
        self.data = outside.Data(
            self.measured,
            inputs,
            int(job.get("batch", 0)),
            self._located,
            bool(job.get("whole")),
            int(job.get("side", 0)),
            int(job.get("size", 0)),
            int(job.get("count", 0)),
        )

        self.data.incomplete = lambda: bool(self.skipped)

    def _own(self, path: str) -> bool:
        if self._job.get("model"):
            return "torchmemlint" not in path and f"{os.sep}torch{os.sep}" not in path and not path.startswith("<")
        return path.startswith(self._root) and "site-packages" not in path

    def _located(self, words: str) -> str:
        row, path = self.measured.tape.here()
        return f"{os.path.relpath(path, self._root)}:{row}: {words}" if row else words

    def _required(self, words: str) -> None:
        self.required = True
        self.measured.tape.assume(words)

    def _choose(self, name: str, choice: Any) -> bool:
        """Whether what is not given gets its first choice; else note that this was not tried."""
        self.open = True
        if self._job.get("choose"):
            self.data.guess(f"{name} is not given; its first choice {choice!r} was assumed", f"{name} = {choice!r}")
        return bool(self._job.get("choose"))

    # -- the run
    def run(self, guard: Callable[[], None]) -> None:
        """Run to the end of the second step."""
        job, run = self._job, self.measured
        packages = Packages(self._own)
        if not job.get("model"):
            sys.meta_path.append(packages)
            sys.meta_path.insert(0, OwnFiles(self._own, self._guards, packages.optional, self._replaced, self._root))
        run.stop_at_steps = 0 if job.get("whole") else 2
        reason, misfit = "", False
        sizes: list[int] = []
        counts: list[int] = []
        placement = Placement(run.tape)
        try:
            self._until(float(job.get("until", 0)))
            if not run.real:
                pretend_cuda(self.gpu, run.tape)
                move_in_place()
                own_class.install()
                default_device(placement)
                in_backward(placement)
                legacy_types.install(run.tape)
            limit_stand_ins(self._located, self.data)
            guard()
            no_loggers()
            older.put_back()
            launcher.install()
            outside.fill_arguments(
                job.get("values", {}), self._required, self._choose, self.data.options, bool(job.get("documented"))
            )
            self.data.install()
            absent.install(self.data)
            if not run.real:
                packed.install(run.tape)
                lazy.install(run.tape)
                asked.install(run.tape, placement.is_asked)
            with run.running():
                with torch.utils._python_dispatch._disable_current_modes():
                    outside.known_pictures(run.tape.assume)
                    outside.no_outside(run.tape)
                    apply_remedy(str(job.get("remedy", "")), run)
                with contextlib.ExitStack() as modes:
                    for mode in [] if run.real else [placement, *run.watching]:
                        modes.enter_context(mode)
                    if job.get("model"):
                        self._model(str(job["model"]))
                    else:
                        self._program(packages)
        except EndOfRun:
            pass
        except Unknown as stopped:
            reason = str(stopped)
        except Late as stopped:
            self.late, reason = True, self._where(stopped, "still running at the time limit")
        except (Exception, SystemExit) as error:
            reason = self._where(error)
            misfit = isinstance(error, RuntimeError) and bool(self.data.maker.pictures)
            sizes = others.sizes(error, self._own, self.data.maker)
            counts = others.counts(error, self.data.count) if self.data.made_up else []
        finally:
            self._until(0)
        self._report(reason, placement.moved, packages, misfit, sizes, counts)

    def _until(self, when: float) -> None:
        """Stop the program at that time, with its line; 0 lets it go on. (The parent ends the process a little later, without one.)"""

        def late(number: int, frame: object) -> None:
            raise Late

        if hasattr(signal, "setitimer") and not 0 < when < time.time() + 1:
            signal.signal(signal.SIGALRM, late)
            signal.setitimer(signal.ITIMER_REAL, when - time.time() if when else 0)

    def _report(
        self, reason: str, moved: bool, packages: Packages, misfit: bool, sizes: Sequence[int], counts: Sequence[int]
    ) -> None:
        run = self.measured
        if isinstance(run, RealRun):
            done = len(run.marks) >= 2 or (run.saw_forward and not reason)
            allocated, reserved = run.peaks
            self._emit(
                {
                    "estimate": {
                        "reason": reason,
                        "steps": len(run.marks),
                        "budget": {"allocated": allocated, "reserved": reserved} if done else None,
                    }
                }
            )
            return
        run.mark_parameters()
        self.data.counted_layers(run.parameters())
        if not self._job.get("model") and not moved:
            run.tape.assume("the program uses no device: everything was counted as if it were on one")
            for block in run.tape.blocks:
                block.on_device = True
        steps = len(run.marks)
        seen = steps or (run.saw_forward and not reason)
        first = f"; first {self.skipped[0]}" if self.skipped and not steps else ""
        unstepped = (
            "a backward ran, but no optimizer's step was seen: its state is not counted" if run.tape.before_backward else ""
        )
        ended = "the program ended after it" if steps else unstepped if seen else f"the program ended before a step{first}"
        if not seen and not reason:
            ended += self._end()
        record: dict[str, object] = {
            "reason": "" if steps >= 2 else f"{reason}{first}" if reason else ended, "steps": steps, "estimated": bool(seen), "misfit": misfit, "sizes": list(sizes), "counts": list(counts), "required": self.required, "late": self.late, "open": self.open, "skipped": self.skipped[:20],
            "assumed": [_short(text, self._root) for text in run.tape.assumed][:20], "missing": sorted(packages.missing),
            "batch": self.data.batch_sizes[:1] or [0], "guessed": self._guesses(),
        }  # fmt: skip
        if seen:
            begin, end = run.window(bool(self._job.get("whole")))
            record["ran"] = sorted(
                {
                    os.path.realpath(name)
                    for module in list(sys.modules.values())
                    if (name := getattr(module, "__file__", "")) and self._own(name)
                }
            )
            record["either_attention"] = run.cuda.guessed_attention
            record["growth"] = self.data.fetches.growth()
            estimate = account(run.tape.blocks, run.tape.events, (begin, end), run.tape.before_backward)
            estimate.path = _short(estimate.path, self._root)
            record["budget"] = asdict(estimate)
        self._emit({"estimate": record})

    def _guesses(self) -> list[str]:
        """Each once, numbers whose use is not known last."""
        return sorted(dict.fromkeys(self.data.maker.guessed), key=lambda words: words.endswith(f" = {self.data.count}"))[:20]

    def _end(self) -> str:
        """Where a program that made no step has its backward, or, without one, its last line."""
        path = str(self._job.get("path", ""))
        others = {str(getattr(module, "__file__", None) or "") for module in list(sys.modules.values())}
        trees = []
        for name in [path, *sorted(name for name in others - {path} if name.endswith(".py") and self._own(name))]:
            with contextlib.suppress(OSError, SyntaxError), open(name, encoding="utf-8", errors="replace") as file:
                trees.append((name, parsed(self._replaced.get(name) or file.read(), name)))
        for name, tree in trees:
            rows = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "backward"]
            if rows:
                return f"; its backward is at {_short(name, self._root)}:{min(rows)}"
        last = [(name, tree.body[-1].lineno) for name, tree in trees[:1] if tree.body]
        return f"; it has no backward, and ended at {_short(last[0][0], self._root)}:{last[0][1]}" if last else ""

    # -- a program
    def _program(self, packages: Packages) -> None:
        path = str(self._job["path"])
        sys.path.insert(0, os.path.dirname(path))
        if self._root not in (os.sep, os.path.dirname(path) + os.sep):
            sys.path.insert(1, self._root)
        sys.argv = [path, *self._job.get("arguments", ())]
        with open(path, encoding="utf-8", errors="replace") as file:
            tree = parsed(self._replaced.get(path) or file.read(), path)
        own = os.path.dirname(path)
        for folder in (
            str(self._job.get("folder") or (own if not _names_files_of(tree, self._root, own) else self._root)),
            self._root,
        ):
            try:
                os.chdir(folder)
                break
            except OSError:
                continue
        packages.optional |= optional_imports(tree, path)
        tree = Guarded(self._job.get("values", {}), int(self._job.get("batch", 0))).transform(tree)
        module = types.ModuleType("__main__")
        module.__file__ = path
        module.__dict__.update(self._guards)
        sys.modules["__main__"] = module
        base, module.__package__ = package_of(tree, path)
        if module.__package__:
            sys.path.insert(0, base)
        code = compile(tree, path, "exec", dont_inherit=True)
        function = str(self._job.get("function", ""))
        if function:
            module.__name__ = "program"
        exec(code, module.__dict__)
        if function:
            self._function(module, function)

    def _function(self, module: types.ModuleType, name: str) -> None:
        target: Any = module
        for part in name.split("."):
            target = getattr(target, part)
        given = {key: self._tensor(dtype, shape) for key, dtype, shape in self._job.get("inputs", ())}
        result = target(**given)
        if isinstance(result, torch.nn.Module):
            self._steps(result, given)

    @property
    def _guards(self) -> dict[str, Any]:
        """What the guards of a changed program call."""
        return {GUARD: self._failed, TRY: self._tried, TENSOR: self._of_values, ERRORS: (Exception, Unknown)}

    def _of_values(self, kind: Any, item: Any, **kwargs: Any) -> Any:
        """``torch.FloatTensor(x)`` of what is missing is a tensor whose shape shows in its use; ``torch.device(0)`` is one of CUDA, for
        which torch would ask the driver."""
        if kind is torch.device:
            return torch.device("cuda", item) if type(item) is int else kind(item, **kwargs)
        if isinstance(item, Sizes):
            item = torch.Size(item)
        if isinstance(item, (list, tuple)) and any(isinstance(one, StandIn) for one in item):
            if not all(isinstance(one, StandIn) for one in item):  # numbers, of which some are unknown
                return kind([1 if isinstance(one, StandIn) else one for one in item], **kwargs)
            item = self.data.joined("stack", item)
        elif isinstance(item, list) and item and all(isinstance(one, torch.Tensor) and one.numel() == 1 for one in item):
            return kind(len(item), **kwargs)  # their values are not there
        if isinstance(item, StandIn):
            item = item.tml_tensor()
        if isinstance(item, Unsized):
            return item.long() if "Long" in kind.__name__ else item
        return kind(item, **kwargs)

    def _tried(self, made: Callable[[], Any], row: int, name: str) -> Any:
        try:
            return made()
        except (Exception, Unknown) as error:
            return self._failed(row, error, [f"{name}()"], sys._getframe(1))[0]

    def _failed(self, row: int, error: BaseException, names: Sequence[str], frame: Any = None) -> Any:
        """A guarded statement failed: what it binds is a stand-in. Once a model has run, or where the error comes from a function with
        a backward in it, what fails belongs to the step."""
        if (self.measured.saw_forward and not self.measured.reading) or _trained(error):
            raise error
        path = _short((frame or sys._getframe(1)).f_code.co_filename, self._root)
        outer, inner = f"{path}:{row}", self._innermost(error)
        words = f"{outer}: {_said(error)}"[:200] + (f" (at {inner})" if inner not in ("", outer) else "")
        words = (str(error) if isinstance(error, Unknown) else words)[:260]
        if words not in self.skipped:
            self.skipped.append(words)
        error.__traceback__ = None
        return [StandIn(name) for name in names]

    def _innermost(self, error: BaseException) -> str:
        """The program's own innermost line of a traceback, "" where it has none."""
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if self._own(frame.filename)]
        return f"{_short(own[-1].filename, self._root)}:{own[-1].lineno}" if own else ""

    def _where(self, error: BaseException, words: str = "") -> str:
        """What was raised, and where."""
        words = words or _said(error)[:300]
        place = self._innermost(error)
        return f"{place}: {words}" if place else words

    # -- a model alone
    def _model(self, factory: str) -> None:
        package, _, name = factory.partition(":")
        if "root" in self._job:  # the user's own module, as `python -m` would find it
            sys.path.insert(0, str(self._job["root"]))
            os.chdir(str(self._job["root"]))
        module = importlib.import_module(package)
        made: Any = module
        for part in name.partition("(")[0].split("."):
            made = getattr(made, part)
        arguments = ast.parse("f" + name[name.index("(") :], mode="eval").body if "(" in name else None
        assert arguments is None or isinstance(arguments, ast.Call)
        given = [self._argument(module, item) for item in arguments.args] if arguments else []
        named = {item.arg: self._argument(module, item.value) for item in arguments.keywords if item.arg} if arguments else {}
        model = made(*given, **named)
        if self.measured.real:
            model = model.to("cuda")
        inputs = {key: self._tensor(dtype, shape) for key, dtype, shape in self._job.get("inputs", ())}
        if not inputs:
            raise Unknown("--model needs --input, once for each argument of forward: --input 'x:float32[16,3,224,224]'")
        self._steps(model, inputs)

    def _argument(self, module: Any, node: ast.expr) -> Any:
        """A literal, or a call of a name of the same package: ``GPT2Config(n_layer=24)``."""
        if isinstance(node, ast.Call):
            function: Any = module
            for part in ast.unparse(node.func).split("."):
                function = getattr(function, part)
            return function(
                *[self._argument(module, item) for item in node.args],
                **{item.arg: self._argument(module, item.value) for item in node.keywords if item.arg},
            )
        return ast.literal_eval(node)

    def _tensor(self, dtype: str, shape: Sequence[int]) -> torch.Tensor:
        batch = int(self._job.get("batch", 0))
        sizes = [batch, *shape[1:]] if batch and shape else list(shape)
        kind = getattr(torch, dtype)
        tensor = torch.zeros(sizes, dtype=kind, device="cuda" if self.measured.real else "cpu")
        self.measured.tape.mark(tensor, INPUTS)
        return tensor

    def _steps(self, model: Any, inputs: Mapping[str, Any]) -> None:
        """Two steps of training with AdamW, or one forward under ``no_grad``."""
        positional = [value for name, value in inputs.items() if name.isdigit() or name == "x"]
        named = {name: value for name, value in inputs.items() if not (name.isdigit() or name == "x")}
        kind = str(self._job.get("autocast") or "")
        if self._job.get("inference"):
            model.eval()
            with torch.no_grad(), torch.autocast("cuda", getattr(torch, kind or "float16"), enabled=bool(kind)):
                model(*positional, **named)
            self.measured.saw_forward = True
            return
        model.train()
        optimizer = getattr(torch.optim, str(self._job.get("optimizer") or "AdamW"))(model.parameters(), lr=1e-4)

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", getattr(torch, kind or "float16"), enabled=bool(kind)):
                out = model(*positional, **named)
                loss = _loss(out)
            loss.backward()
            optimizer.step()

        while True:  # to the end of the run
            step()


def _said(error: BaseException) -> str:
    """An exception's kind, and the first line of what it says."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def _names_files_of(tree: ast.AST, root: str, own: str) -> bool:
    """Whether a program names files by their place in the project, not beside itself: it is started in the project's folder."""
    words = {
        node.value for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "/" in node.value[:200] and "\n" not in node.value
    }  # fmt: skip
    return any(
        not os.path.isabs(word) and os.path.isfile(os.path.join(root, word)) and not os.path.isfile(os.path.join(own, word))
        for word in words
    )


def _trained(error: BaseException) -> bool:
    """Whether a function that the error passed through, below the statement itself, has a backward in it."""
    below = error.__traceback__.tb_next if error.__traceback__ is not None else None
    return any("backward" in frame.f_code.co_names for frame, _ in traceback.walk_tb(below))


def _loss(out: Any) -> torch.Tensor:
    """The output's own loss, or the mean square of its first tensor."""
    if isinstance(getattr(out, "loss", None), torch.Tensor):
        return out.loss  # type: ignore[no-any-return]
    found = [item for item in torch.utils._pytree.tree_leaves(out) if isinstance(item, torch.Tensor) and item.requires_grad]
    return found[0].float().pow(2).mean()


def _short(text: str, root: str) -> str:
    return text.replace(root, "")


def load() -> None:
    """Load what every run loads, for a process that is copied: the first mode of fake tensors loads the compiler of torch."""
    Mode(allow_non_fake_inputs=True)


RUNNERS = {"budget": run_budget}
