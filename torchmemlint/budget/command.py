"""``torchmemlint budget``: what a program's step needs on a CUDA device, without one."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence

from torchmemlint import __version__
from torchmemlint.budget import runs
from torchmemlint.budget.report import Result, as_json, text
from torchmemlint.budget.sizes import bytes_of, gpu_of, input_of
from torchmemlint.confirm.output import write
from torchmemlint.errors import UsageError
from torchmemlint.files.quoting import quoted
from torchmemlint.files.reading import MAX_BYTES, read_text

_TARGET = re.compile(r"^(?P<path>.+\.py):(?P<place>[\w.]+)$")
FORMATS = ("text", "json", "html", "svg")
_ROOTS = ("pyproject.toml", "setup.py", "setup.cfg", ".git", "requirements.txt")


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(
        "torchmemlint budget",
        description="Experimental: estimate the memory that one training step of a program needs on a CUDA device. Runs the code on fake "
        "tensors in a sandbox: no GPU, no weights, no data. Modelled: autocast, dropout, attention kernels, foreach and fused "
        "optimizers, cuBLAS workspaces, the caching allocator. Not modelled: cuDNN workspaces, custom kernels, several devices or "
        "streams, torch.compile. Before compute capability 8.0 attention is assumed to use the math kernel, because the rows "
        "measured on a T4 fit it. Exit status: 0 it fits (or no --fit), 1 it does not, 2 no estimate.",
        allow_abbrev=False,
    )
    made.add_argument("-V", "--version", action="version", version=f"torchmemlint {__version__}")
    made.add_argument("target", nargs="?", metavar="FILE[:LINE|:FUNCTION]", help="a program, or a function of it")
    made.add_argument("arguments", nargs="*", metavar="ARGUMENT", help="arguments of the program, after --")
    what = made.add_argument_group("what is run")
    what.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="an option of the program, or a constant in it"
    )
    what.add_argument(
        "--input", action="append", default=[], metavar="SPEC", help="a batch: 'ids:int64[8,256]', once for each tensor"
    )
    what.add_argument("--model", metavar="PACKAGE:FACTORY", help="a model alone: torchvision.models:resnet50, with --input")
    what.add_argument("--root", metavar="DIR", help="the project, which the program may read (default: found from the file)")
    what.add_argument("--batch", type=int, default=0, metavar="N", help="the batch size of loaders and of --input")
    model = made.add_argument_group("with --model")
    model.add_argument("--inference", action="store_true", help="one forward under no_grad, in place of training steps")
    model.add_argument("--autocast", choices=("float16", "bfloat16"), help="forward and loss under autocast")
    model.add_argument("--optimizer", default="AdamW", metavar="NAME", help="of torch.optim (default: AdamW)")
    device = made.add_argument_group("the device")
    device.add_argument(
        "--gpu", default="A100", metavar="NAME", help="decides the kernels: T4, A100, RTX4090, H100, … (default: A100)"
    )
    device.add_argument(
        "--attention", choices=("auto", "flash", "efficient", "math"), default="auto", help="the kernel of attention"
    )
    device.add_argument(
        "--fit",
        metavar="SIZE",
        help="does it fit in 24GiB (or on a T4, H100, …), and what is the largest batch that does, to 2 %%",
    )
    output = made.add_argument_group("output")
    output.add_argument("--remedies", action="store_true", help="run each remedy, and print what it saves")
    output.add_argument("--output-format", choices=FORMATS, default="text")
    output.add_argument("--output-file", metavar="FILE")
    output.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS", help="for each run (default: 120)")
    output.add_argument("--no-sandbox", action="store_true", help="only for code that you would run anyway")
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command; raises UsageError."""
    arguments = parser().parse_args(list(argv))
    if bool(arguments.target) == bool(arguments.model):
        raise UsageError("name a program, or a model with --model")
    job, options, target = _job(arguments)
    limit = _limit(arguments.fit)
    first = runs.told(job, options)
    result = Result(target, first, limit=limit)
    if first.budget and limit:
        result = _fitted(result, job, options, arguments)
    if first.budget and arguments.remedies:
        result = Result(target, first, runs.with_remedies(job, options), limit, result.fit, result.fit_told, result.fit_reason)
    write(_rendered(result, arguments.output_format), arguments.output_file)
    return result.status


def _rendered(result: Result, output_format: str) -> str:
    if output_format == "json":
        return as_json(result)
    if output_format == "text":
        return text(result)
    from torchmemlint.budget import html

    if output_format == "html":
        return html.page(result)
    if not result.told.budget:
        raise UsageError(f"there is nothing to draw: {result.told.reason}")
    return html.svg(result.told.budget["curve"], int(result.told.budget["events"]))


def _limit(fit: str | None) -> int:
    if not fit:
        return 0
    return bytes_of(fit) if fit[0].isdigit() else gpu_of(fit)[1]


def _fitted(result: Result, job: dict[str, object], options: runs.Options, arguments: argparse.Namespace) -> Result:
    inputs = [input_of(spec) for spec in arguments.input]
    batch = arguments.batch or result.told.batch or (inputs[0][2][0] if inputs and inputs[0][2] else 0)
    if not batch:
        return Result(result.target, result.told, limit=result.limit, fit_reason="no loader and no --input describes a batch")
    try:
        fit, told = runs.largest_batch(job, options, result.told, batch, result.limit)
    except ValueError as error:
        return Result(result.target, result.told, limit=result.limit, fit_reason=str(error))
    return Result(result.target, result.told, limit=result.limit, fit=fit, fit_told=told)


def _job(arguments: argparse.Namespace) -> tuple[dict[str, object], runs.Options, str]:
    capability, memory = gpu_of(arguments.gpu)
    values = dict(item.partition("=")[::2] for item in arguments.set)
    job: dict[str, object] = {
        "inputs": [input_of(spec) for spec in arguments.input], "values": values, "capability": capability, "memory": memory,
        "attention": arguments.attention, "batch": arguments.batch,
    }  # fmt: skip
    if arguments.model:
        job |= {
            "model": arguments.model, "inference": arguments.inference, "autocast": arguments.autocast or "",
            "optimizer": arguments.optimizer,
        }  # fmt: skip
        if ":" not in arguments.model:
            raise UsageError("--model needs PACKAGE:FACTORY: torchvision.models:resnet50")
        return job, runs.Options(arguments.timeout, not arguments.no_sandbox), arguments.model
    path, place = _target(arguments.target)
    root = os.path.realpath(arguments.root) if arguments.root else root_of(path)
    job |= {"path": path, "root": root, "function": function_at(path, place), "arguments": arguments.arguments}
    return job, runs.Options(arguments.timeout, not arguments.no_sandbox, (root,)), quoted(arguments.target)


def _target(target: str) -> tuple[str, str]:
    match = None if os.path.exists(target) else _TARGET.match(target)
    path = match["path"] if match else target
    if not os.path.isfile(path):
        raise UsageError(f"{quoted(path)}: no such file")
    return os.path.realpath(path), match["place"] if match else ""


def function_at(path: str, place: str) -> str:
    """The function of that name, or the outermost one around that line; "" for the whole program."""
    if not place.isdigit():
        return place
    import ast

    try:
        tree = ast.parse(read_text(path, MAX_BYTES))
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{quoted(path)}: cannot be parsed: {error}") from error
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.lineno <= int(place) <= (node.end_lineno or 0):
            required = len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults)
            return node.name if not required else ""
    return ""


def root_of(path: str) -> str:
    """The project's folder: the nearest one above with a sign of a project, else the file's own."""
    folder = start = os.path.dirname(path)
    while folder != os.path.dirname(folder):
        if any(os.path.exists(os.path.join(folder, name)) for name in _ROOTS):
            return folder
        folder = os.path.dirname(folder)
    return start
