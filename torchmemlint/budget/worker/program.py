"""What a step of a job needs: of a program, of a function of it, or of a model alone, run on fake tensors."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import inspect
import logging
import os
import re
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
from torchmemlint.budget.worker import (
    device_queries,
    fake_tensor_gaps,
    launcher,
    lazy,
    legacy_types,
    packed,
    pretrained,
    surroundings,
)
from torchmemlint.budget.worker.cuda import Gpu
from torchmemlint.budget.worker.guarded import ERRORS, GUARD, TENSOR, TRY, Guarded, OwnFiles, package_of
from torchmemlint.budget.worker.inputs import BATCH, Search
from torchmemlint.budget.worker.measure import EndOfRun, Mode, Run, Unknown
from torchmemlint.budget.worker.models import Hole, Models
from torchmemlint.budget.worker.packages import Packages, limit_stand_ins, no_loggers, optional_imports
from torchmemlint.budget.worker.patch import put
from torchmemlint.budget.worker.placement import (
    Placement,
    default_device,
    in_backward,
    move_in_place,
    pretend_cuda,
)
from torchmemlint.budget.worker.real_device import RealRun
from torchmemlint.budget.worker.remedies import apply_remedy
from torchmemlint.budget.worker.tape import INPUTS
from torchmemlint.confirm.worker.standins import Stage, StandIn

Emit = Callable[[Mapping[str, object]], None]
MOST_MODELS = 3
"""So many models of a program that gives no estimate are described."""


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
        self._root = os.path.realpath(str(job.get("project") or job.get("root") or "")) + os.sep
        gpu = Gpu(tuple(job.get("capability", (8, 0))), int(job.get("memory", 0)), str(job.get("attention", "auto")))
        kind = RealRun if job.get("real") else Run
        self.measured = kind(gpu, self._own, all_on_device=bool(job.get("model")))
        self.gpu = gpu
        self.models = Models()
        self._stage = Stage()
        self.found: list[tuple[str, str, list[int]]] = []
        self.skipped: list[str] = []
        self.guessed: list[str] = []
        self._replaced = {str(path): str(text) for path, text in (job.get("replaced") or {}).items()}
        inputs = [(str(name), str(dtype), list(shape)) for name, dtype, shape in job.get("inputs", ())]
        self.data = surroundings.Data(
            self.measured,
            inputs,
            int(job.get("batch", 0)),
            self._located,
            bool(job.get("whole")),
        )

    def _own(self, path: str) -> bool:
        if self._job.get("model") and not self._job.get("root"):
            return "torchmemlint" not in path and f"{os.sep}torch{os.sep}" not in path and not path.startswith("<")
        return path.startswith(self._root) and "site-packages" not in path

    def _located(self, words: str) -> str:
        row, path = self.measured.tape.here()
        return f"{os.path.relpath(path, self._root)}:{row}: {words}" if row else words

    def _stepped(self) -> None:
        """A step was reached: it counts if no size in it was made up on the way."""
        if self.data.guessed:
            raise Unknown(f"`{self.data.guessed[0].partition('=')[0]}` is missing, and a size may rest on it")
        self.models.forget()

    # -- the run
    def run(self, guard: Callable[[], None]) -> None:
        """Run to the end of the second step."""
        job, run = self._job, self.measured
        packages = Packages(self._own, self._stage)
        if job.get("root"):
            sys.meta_path.append(packages)
        if not job.get("model"):
            sys.meta_path.insert(0, OwnFiles(self._own, self._guards, packages.optional, self._replaced, self._root))
        run.stop_at_steps = 0 if job.get("whole") else 2
        reason = ""
        placement = Placement(run.tape)
        try:
            self._until(float(job.get("until", 0)))
            if not run.real:
                pretend_cuda(self.gpu, run.tape)
                move_in_place()
                fake_tensor_gaps.install()
                default_device(placement)
                in_backward(placement)
                legacy_types.install(run.tape)
            limit_stand_ins(self._located, self.data)
            guard()
            no_loggers(self._stage)
            launcher.install()
            surroundings.fill_arguments(job.get("values", {}), self.data.assume)
            self.data.install()
            pretrained.install(self.data.assume)
            if not run.real and not job.get("model"):
                self.models.install()
                run.on_forward, run.on_step = self.models.called, self._stepped
            if not run.real:
                packed.install(run.tape)
                lazy.install(run.tape)
                device_queries.install(run.tape, placement.is_asked)
            with run.running():
                with torch.utils._python_dispatch._disable_current_modes():
                    surroundings.known_pictures(run.tape.assume)
                    surroundings.no_outside(run.tape, self._stage)
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
            reason = self._where(stopped, "still running at the time limit")
        except (Exception, SystemExit) as error:
            reason = self._where(error)
        finally:
            self._until(0)
        self._report(reason, placement.moved, packages)

    def _until(self, when: float) -> None:
        """Stop the program at that time, with its line; 0 lets it go on. (The parent ends the process a little later, without one.)"""

        def late(number: int, frame: object) -> None:
            raise Late

        if hasattr(signal, "setitimer") and not 0 < when < time.time() + 1:
            signal.signal(signal.SIGALRM, late)
            signal.setitimer(signal.ITIMER_REAL, when - time.time() if when else 0)

    def _report(self, reason: str, moved: bool, packages: Packages) -> None:
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
        if not self._job.get("model") and not moved:
            run.tape.assume("the program uses no device: everything was counted as if it were on one")
            for block in run.tape.blocks:
                block.on_device = True
        steps = len(run.marks)
        seen = steps or (run.saw_forward and not reason and not self.skipped)  # else the model may be what was skipped
        first = f"; first {self.skipped[0]}" if self.skipped and not steps else ""
        unstepped = (
            "a backward ran, but no optimizer's step was seen: its state is not counted" if run.tape.before_backward else ""
        )
        ended = "the program ended after it" if steps else unstepped if seen else f"the program ended before a step{first}"
        if not seen and not reason:
            ended += self._end()
        record: dict[str, object] = {
            "reason": "" if steps >= 2 else f"{reason}{first}" if reason else ended, "steps": steps, "estimated": bool(seen), "skipped": self.skipped[:20],
            "assumed": [_short(text, self._root) for text in run.tape.assumed][:20], "missing": sorted(packages.missing),
            "batch": self.data.batch_sizes[:1] or [0], "inputs": self.found, "guessed": self.guessed,
        }  # fmt: skip
        if not seen:
            record["models"] = self._described()
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
            record["budget"] = {**asdict(estimate), "block": run.largest_block()}
        self._emit({"estimate": record})

    def _described(self) -> list[dict[str, object]]:
        """The models that the program made, as ``--model`` and ``--root`` name them, and what it gave them."""
        found: dict[str, dict[str, object]] = {}
        for made in self.models.candidates(self._own):
            with contextlib.suppress(Hole):
                self.models.guessed = []
                expression = self.models.expression(made)
                module = type(made.module).__module__
                root, name = self._place_of(module)
                rest = expression.removeprefix(f"{module}.").replace("__main__.", f"{name}.")
                found.setdefault(
                    f"{name}:{rest}",
                    {
                        "model": f"{name}:{rest}", "root": root, "guessed": [*self.models.guessed, *self._made_up(expression)],
                        "inputs": [[key, str(dtype).removeprefix("torch."), shape] for key, dtype, shape in made.inputs],
                    },
                )  # fmt: skip
            if len(found) >= MOST_MODELS:
                break
        return list(found.values())

    def _made_up(self, expression: str) -> list[str]:
        """The numbers in an expression that stand for the size of something missing."""
        made_up = not self.models.guessed and re.search(rf"\b{surroundings.COUNT}\b", expression)
        return self.data.guessed[:3] if made_up else []

    def _place_of(self, module: str) -> tuple[str, str]:
        """The folder that a module of the project is imported from ("" for others), and its name there."""
        file = os.path.realpath(str(getattr(sys.modules.get(module), "__file__", "") or ""))
        if module == "__main__":
            main = sys.modules["__main__"]
            name = os.path.basename(file).removesuffix(".py")
            package = str(getattr(main, "__package__", "") or "")
            folder = os.path.dirname(file)
            return folder[: len(folder) - len(package) - 1] if package else folder, f"{package}.{name}" if package else name
        if not self._own(file):
            return "", module
        place = os.path.dirname(file) if os.path.basename(file) == "__init__.py" else file.removesuffix(".py")
        return place[: -len(module) - 1], module

    def _end(self) -> str:
        """Where a program that made no step has its backward, or, without one, its last line."""
        path = str(self._job.get("path", ""))
        others = {str(getattr(module, "__file__", None) or "") for module in list(sys.modules.values())}
        trees = []
        for name in [path, *sorted(name for name in others - {path} if name.endswith(".py") and self._own(name))]:
            with contextlib.suppress(OSError, SyntaxError), open(name, encoding="utf-8", errors="replace") as file:
                trees.append((name, ast.parse(self._replaced.get(name) or file.read(), name)))
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
            tree = ast.parse(self._replaced.get(path) or file.read(), path)
        os.chdir(str(self._job.get("folder") or os.path.dirname(path)))
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
        """``torch.device(0)`` is one of CUDA, for which torch would ask the driver; ``torch.FloatTensor([x, y])`` wants the values of
        tensors, which are not there."""
        if kind is torch.device and type(item) is int:
            return torch.device("cuda", item)
        if isinstance(item, list) and item and all(isinstance(one, torch.Tensor) and one.numel() == 1 for one in item):
            return kind(len(item), **kwargs)
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
        return [StandIn(self._stage, name) for name in names]

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
        if self._job.get("root"):  # the user's own module, as `python -m` would find it
            sys.path[:0] = [str(self._job["root"]), str(self._job["project"])]
            os.chdir(str(self._job["root"]))
        model = _evaluated(_imported(package, name), name if "(" in name else f"{name}()")
        if self.measured.real:
            model = model.to("cuda")
        inputs = {key: self._tensor(dtype, shape) for key, dtype, shape in self._job.get("inputs", ())}
        if not inputs:
            self._search(model)
        self._steps(model, inputs)

    def _search(self, model: Any) -> None:
        """Find inputs, for a run of their own."""
        search = Search(model)
        if not search.found():
            tried = ", ".join(f"{item.name}:{item.sizes}" for item in search.inputs)
            raise Unknown(f"give --input, once for each argument of forward: with {tried} it said {search.error[:200]}")
        size = int(self._job.get("batch", 0)) or surroundings.BATCH
        for item in search.inputs:
            sizes = [size if at == 0 and each == BATCH else each for at, each in enumerate(item.sizes)]
            if item.open:
                self.guessed.append(f"{item.name} {'×'.join(str(item.sizes[at]) for at in item.open)}")
            self.found.append((item.name, str(item.dtype).removeprefix("torch."), sizes))
        raise EndOfRun

    def _tensor(self, dtype: str, shape: Sequence[int]) -> torch.Tensor:
        batch = int(self._job.get("batch", 0))
        sizes = [batch, *shape[1:]] if batch and shape else list(shape)
        kind = getattr(torch, dtype)
        tensor = torch.zeros(sizes, dtype=kind, device="cuda" if self.measured.real else "cpu")
        self.measured.tape.mark(tensor, INPUTS)
        return tensor

    def _steps(self, model: Any, inputs: Mapping[str, Any]) -> None:
        """Two steps of training with AdamW, or one forward under ``no_grad``."""
        taken = inspect.signature(model.forward).parameters
        by_name = set(inputs) <= set(taken) or any(one.kind is one.VAR_KEYWORD for one in taken.values())
        positional = [] if by_name else list(inputs.values())
        named = dict(inputs) if by_name else {}
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


def _imported(package: str, name: str) -> types.ModuleType:
    """The module. A script of which a later line fails has its classes none the less."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.loader is None or package in sys.modules:
        return importlib.import_module(package)
    module = sys.modules[package] = importlib.util.module_from_spec(spec)
    above, _, last = package.rpartition(".")
    if above:
        put(sys.modules[above], last, module)
    try:
        spec.loader.exec_module(module)
    except Exception:
        if not hasattr(module, re.split(r"[.(]", name)[0]):
            raise
    return sys.modules[package]  # a package may put another object there


class _Names(dict[str, Any]):
    """The names of a module, also those that it imports when they are asked for."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __missing__(self, name: str) -> Any:
        if not hasattr(self._module, name):
            raise KeyError(name)
        return getattr(self._module, name)


def _evaluated(module: types.ModuleType, text: str) -> Any:
    """``UNet(3, norm=torch.nn.LayerNorm)``, with the names of a module and those of what can be imported."""
    tree = ast.parse(text, mode="eval")
    names: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            with contextlib.suppress(ImportError):
                package, *parts = ast.unparse(node).split(".")
                for part in ["", *parts[:-1]]:
                    package = f"{package}.{part}" if part else package
                    importlib.import_module(package)
                    names.setdefault(package.partition(".")[0], sys.modules[package.partition(".")[0]])
    return eval(compile(tree, "<--model>", "eval"), names, _Names(module))


def _said(error: BaseException) -> str:
    """An exception's kind, and the first line of what it says."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


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
