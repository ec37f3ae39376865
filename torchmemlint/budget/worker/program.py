"""Runs a program, a function of it, or a model alone, on fake tensors, and says what its step needs."""

from __future__ import annotations

import ast
import importlib
import logging
import os
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from torchmemlint.budget.account import account
from torchmemlint.budget.worker import strangers
from torchmemlint.budget.worker.cuda import Gpu
from torchmemlint.budget.worker.measure import EndOfRun, Run
from torchmemlint.budget.worker.placement import Placement, move_in_place, pretend_cuda
from torchmemlint.budget.worker.remedies import apply_remedy
from torchmemlint.budget.worker.strangers import CannotTell
from torchmemlint.budget.worker.tape import INPUTS
from torchmemlint.confirm.worker.standins import StandIn

Emit = Callable[[Mapping[str, object]], None]
GUARD = "__tml_guard__"


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
        self.measured = Run(gpu, self._own, all_on_device=bool(job.get("model")))
        self.gpu = gpu
        self.skipped: list[str] = []
        inputs = [(str(name), str(dtype), list(shape)) for name, dtype, shape in job.get("inputs", ())]
        self.data = strangers.Data(self.measured, inputs, int(job.get("batch", 0)), self._told)

    def _own(self, path: str) -> bool:
        if self._job.get("model"):
            return "torchmemlint" not in path and f"{os.sep}torch{os.sep}" not in path and not path.startswith("<")
        return path.startswith(self._root) and "site-packages" not in path

    def _told(self, words: str) -> str:
        row, path = self.measured.tape.here()
        return f"{os.path.relpath(path, self._root)}:{row}: {words}" if row else words

    # -- the run
    def run(self, guard: Callable[[], None]) -> None:
        """Run to the end of the second step."""
        job, run = self._job, self.measured
        packages = strangers.Packages(self._own)
        if not job.get("model"):
            sys.meta_path.append(packages)
        run.stop_at_steps = 2
        reason = ""
        placement = Placement(run.tape)
        try:
            pretend_cuda(self.gpu)
            move_in_place()
            strangers.stand_ins_tell(self._told)
            guard()
            strangers.no_loggers()
            strangers.fill_arguments(job.get("values", {}))
            self.data.install()
            with run.running():
                with torch.utils._python_dispatch._disable_current_modes():
                    strangers.known_pictures(run.tape.assume)
                    strangers.no_outside(run.tape.assume)
                    apply_remedy(str(job.get("remedy", "")), run)
                with placement:
                    if job.get("model"):
                        self._model(str(job["model"]))
                    else:
                        self._program(packages)
        except EndOfRun:
            pass
        except CannotTell as stopped:
            reason = str(stopped)
        except (Exception, SystemExit) as error:
            reason = self._where(error)
        self._report(reason, placement.moved, packages)

    def _report(self, reason: str, moved: bool, packages: strangers.Packages) -> None:
        run = self.measured
        run.mark_parameters()
        if not self._job.get("model") and not moved:
            run.tape.assume("the program uses no device: everything was counted as if it were on one")
            for block in run.tape.blocks:
                block.on_device = True
        steps = len(run.marks)
        seen = steps or (run.saw_forward and not reason)
        ended = "the program ended after it" if steps else "" if seen else "the program ended before a step"
        record: dict[str, object] = {
            "reason": "" if steps >= 2 else reason or ended, "steps": steps, "told": bool(seen), "skipped": self.skipped[:20],
            "assumed": [_short(text, self._root) for text in run.tape.assumed][:20], "missing": sorted(packages.missing),
            "batch": self.data.batch_sizes[:1] or [0],
        }  # fmt: skip
        if seen:
            begin, end = run.window()
            told = account(run.tape.blocks, run.tape.events, (begin, end), run.tape.before_backward)
            told.path = _short(told.path, self._root)
            record["budget"] = asdict(told)
        self._emit({"told": record})

    # -- a program
    def _program(self, packages: strangers.Packages) -> None:
        path = str(self._job["path"])
        sys.path.insert(0, os.path.dirname(path))
        if self._root not in (os.sep, os.path.dirname(path) + os.sep):
            sys.path.insert(1, self._root)
        for folder in (os.path.dirname(path), self._root):
            try:
                os.chdir(folder)
                break
            except OSError:
                continue
        sys.argv = [path, *self._job.get("arguments", ())]
        with open(path, encoding="utf-8", errors="replace") as file:
            tree = ast.parse(file.read(), path)
        packages.optional |= strangers.optional_imports(tree, path)
        tree = Guarded(self._job.get("values", {}), int(self._job.get("batch", 0))).transform(tree)
        module = types.ModuleType("__main__")
        module.__file__ = path
        setattr(module, GUARD, self._failed)
        sys.modules["__main__"] = module
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

    def _failed(self, row: int, error: Exception, names: Sequence[str]) -> Any:
        """A guarded statement failed: what it binds is a stand-in."""
        self.skipped.append(f"{row}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200])
        error.__traceback__ = None
        return [StandIn(name) for name in names]

    def _where(self, error: BaseException) -> str:
        """The program's own innermost line of a traceback."""
        words = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if self._own(frame.filename)]
        return f"{_short(own[-1].filename, self._root)}:{own[-1].lineno}: {words}" if own else words

    # -- a model alone
    def _model(self, factory: str) -> None:
        package, _, name = factory.partition(":")
        module = importlib.import_module(package)
        made: Any = module
        for part in name.partition("(")[0].split("."):
            made = getattr(made, part)
        arguments = ast.parse("f" + name[name.index("(") :], mode="eval").body if "(" in name else None
        assert arguments is None or isinstance(arguments, ast.Call)
        given = [self._argument(module, item) for item in arguments.args] if arguments else []
        named = {item.arg: self._argument(module, item.value) for item in arguments.keywords if item.arg} if arguments else {}
        model = made(*given, **named)
        inputs = {key: self._tensor(dtype, shape) for key, dtype, shape in self._job.get("inputs", ())}
        if not inputs:
            raise CannotTell("--model needs --input, once for each argument of forward: --input 'x:float32[16,3,224,224]'")
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
        tensor = torch.zeros(sizes, dtype=kind)
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

        for _ in range(3):
            step()


def _loss(out: Any) -> torch.Tensor:
    """The output's own loss, or the mean square of its first tensor."""
    if isinstance(getattr(out, "loss", None), torch.Tensor):
        return out.loss  # type: ignore[no-any-return]
    found = [item for item in torch.utils._pytree.tree_leaves(out) if isinstance(item, torch.Tensor) and item.requires_grad]
    return found[0].float().pow(2).mean()


def _short(text: str, root: str) -> str:
    return text.replace(root, "")


class Guarded(ast.NodeTransformer):
    """The program with its statements guarded: what fails before the step binds stand-ins. Nothing is guarded in a function or
    a loop that has a ``backward`` in it, or in a class. ``values`` replace constants that are assigned to these names."""

    def __init__(self, values: Mapping[str, str], batch: int) -> None:
        self._values = dict(values)
        self._batch = batch

    def transform(self, tree: ast.Module) -> ast.Module:
        """The same tree, changed."""
        tree.body = self._block(tree.body)
        return ast.fix_missing_locations(tree)

    def _block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [changed for statement in body for changed in self._statement(statement)]

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.body = self._block(node.body)
        elif isinstance(node, ast.If):
            node.body, node.orelse = self._block(node.body), self._block(node.orelse)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            node.body = self._block(node.body)
        elif isinstance(node, ast.Assert) and "__version__" in ast.unparse(node.test):
            return [ast.copy_location(ast.Pass(), node)]
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            self._set(node)
            if not _trains(node):
                return [self._guard(node, _bound(node))]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not _trains(node) and not _runs(node.value):
            return [self._guard(node, [])]
        return [node]

    def _set(self, node: ast.Assign | ast.AnnAssign) -> None:
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        name = target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""
        if name in self._values and isinstance(node.value, ast.Constant):
            node.value = ast.Constant(strangers._value(self._values[name], type(node.value.value)))
        elif (
            self._batch
            and name.lower() in ("batch_size", "bs", "batchsize", "train_batch_size")
            and isinstance(node.value, ast.Constant)
        ):
            node.value = ast.Constant(self._batch)

    def _guard(self, node: ast.stmt, names: Sequence[str]) -> ast.stmt:
        call = ast.Call(
            ast.Name(GUARD, ast.Load()),
            [ast.Constant(node.lineno), ast.Name("__tml_error__", ast.Load()), ast.List([ast.Constant(name) for name in names], ast.Load())],
            [],
        )  # fmt: skip
        bind: ast.stmt = ast.Expr(call)
        if names:
            bind = ast.Assign([ast.List([ast.Name(name, ast.Store()) for name in names], ast.Store())], call)
        kinds = ast.Tuple([ast.Name(name, ast.Load()) for name in ("OSError", "ImportError", "LookupError")], ast.Load())
        handler = ast.ExceptHandler(kinds, "__tml_error__", [bind])
        return ast.copy_location(ast.Try([node], [handler], [], []), node)


def _trains(node: ast.AST) -> bool:
    return any(isinstance(item, ast.Attribute) and item.attr in ("backward", "step") for item in ast.walk(node))


def _runs(call: ast.Call) -> bool:
    """``main()``, ``train(…)``: a call of the program's own whose failure is the program's."""
    return isinstance(call.func, ast.Name)


def _bound(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return list(
        dict.fromkeys(
            item.id
            for target in targets
            for item in ast.walk(target)
            if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store)
        )
    )


RUNNERS = {"budget": run_budget}
