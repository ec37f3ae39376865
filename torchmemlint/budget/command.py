"""``torchmemlint budget``: what a program's step needs on a CUDA device, without one."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

from torchmemlint import __version__
from torchmemlint.budget import prices, runs
from torchmemlint.budget.report import Result, as_json, text
from torchmemlint.budget.sizes import bytes_of, gpu_of, input_of
from torchmemlint.confirm.devices import devices_for
from torchmemlint.confirm.launch import warmed
from torchmemlint.confirm.output import write
from torchmemlint.errors import UsageError
from torchmemlint.files.quoting import quoted
from torchmemlint.files.reading import MAX_BYTES, read_text

_TARGET = re.compile(r"^(?P<path>.+\.py):(?P<place>[\w.]+)$")
FORMATS = ("text", "json", "html", "svg")


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(
        "torchmemlint budget",
        description="Experimental: estimate the memory that one training step needs on a CUDA device: of a model and its input (--model, "
        "--input), of a function (train.py:fit), or of your program, with its packages and data. Runs the code on fake tensors in a "
        "sandbox: no GPU, no weights. Of a program that cannot be run, the report has the command for its model.",
        epilog="Not modelled: cuDNN workspaces, custom kernels, NCCL's buffers, sharding, several streams, torch.compile. Below compute "
        "capability 8.0, the kernel of attention is uncertain, and the interval covers both candidates (--attention). Exit status: "
        "0 it fits (or there is no --fit), 1 it does not, 2 no estimate.",
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
    what.add_argument("--model", metavar="PACKAGE:FACTORY", help="only a model: torchvision.models:resnet50, with --input")
    what.add_argument("--root", metavar="FOLDER", help="the project, which the program may read (default: found from the file)")
    what.add_argument("--batch", type=int, default=0, metavar="N", help="the batch size of loaders and of --input")
    model = made.add_argument_group("with --model")
    model.add_argument("--batches", default="", metavar="N,…", help="a table: what is needed with each of these batch sizes")
    model.add_argument("--lengths", default="", metavar="N,…", help="in the table also each of these lengths of a sequence")
    model.add_argument("--ranks", type=int, default=0, metavar="N", help="what each of N ranks needs with ZeRO and FSDP")
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
        help="say whether it fits in SIZE (24GiB, or a device: T4, H100, …), and find the largest batch that does, to 2 %%; of several "
        "(T4,H100), the table says in which it fits",
    )
    output = made.add_argument_group("output")
    output.add_argument("--remedies", action="store_true", help="run each remedy, and print what it saves")
    output.add_argument(
        "--findings", action="store_true", help="print what each finding costs in this program, by running its fix"
    )
    output.add_argument("--check", action="store_true", help="run the step on this machine's GPU too, and print the difference")
    output.add_argument("--output-format", choices=FORMATS, default="text", help="default: text")
    output.add_argument("--output-file", metavar="FILE", help="write the report there")
    output.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS", help="for each run (default: 120)")
    output.add_argument("--no-sandbox", action="store_true", help="only for code that you would run anyway")
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command; raises UsageError."""
    arguments = parser().parse_args(list(argv))
    if bool(arguments.target) == bool(arguments.model):
        raise UsageError("name a program, or a model with --model")
    if arguments.findings and arguments.model:
        raise UsageError("--findings needs a program, not --model")
    if arguments.check:
        devices_for("cuda", 1)
    job, options, target = _job(arguments)
    limits = {
        name: bytes_of(name) if name[0].isdigit() else gpu_of(name)[1] for name in (arguments.fit or "").split(",") if name
    }
    with warmed(runs.RUNNERS) if options.sandbox else nullcontext():
        result = _result(target, limits, job, options, arguments)
    write(_rendered(result, arguments.output_format), arguments.output_file)
    return result.status


def _result(
    target: str, limits: dict[str, int], job: dict[str, object], options: runs.Options, arguments: argparse.Namespace
) -> Result:
    first = runs.estimate(job, options)
    if job.get("model") and not job["inputs"] and first.inputs:
        job = {**job, "inputs": first.inputs}
        first = replace(runs.estimate(job, options), inputs=first.inputs, guessed=first.guessed)
    limit = next(iter(limits.values()), 0)
    result = Result(target, first, limit=limit, limits=limits, alone="model" in job, ranks=arguments.ranks)
    batches, lengths = (
        [int(number) for number in words.split(",") if number] for words in (arguments.batches, arguments.lengths)
    )
    if first.budget and result.alone and (batches or lengths):
        return replace(result, table=runs.table(job, options, lengths, batches))
    if not first.budget and first.models:
        result = replace(result, advice=runs.advised(job, options, first))
    if first.budget and limit:
        result = _fitted(result, job, options, arguments)
    if first.budget and arguments.remedies:
        result = replace(result, remedies=runs.with_remedies(job, options, _batch_of(first, arguments)))
    if first.budget and first.either_attention:
        result = replace(result, efficient=runs.estimate(job, options, attention="efficient"))
    if first.budget and arguments.check:
        result = replace(result, check=runs.checked(job, options))
    if first.budget and arguments.findings:
        found = prices.findings_of(str(job["path"]), str(job["root"]))
        epoch, priced = prices.priced(found, job, options)
        result = replace(result, prices=priced, epoch=epoch)
    return result


def _rendered(result: Result, output_format: str) -> str:
    if output_format == "json":
        return as_json(result)
    if output_format == "text":
        return text(result)
    from torchmemlint.budget import html

    if output_format == "html":
        return html.page(result)
    if not result.estimate.budget:
        raise UsageError(f"there is nothing to draw: {result.estimate.reason}")
    return html.svg(result.estimate.budget["curve"], int(result.estimate.budget["events"]))


def _batch_of(estimate: runs.Estimate, arguments: argparse.Namespace) -> int:
    """The size of a batch: as asked, by the program's loader, or by ``--input``; 0 where none says it."""
    inputs = [input_of(spec) for spec in arguments.input]
    return arguments.batch or estimate.batch or (inputs[0][2][0] if inputs and inputs[0][2] else 0)


def _fitted(result: Result, job: dict[str, object], options: runs.Options, arguments: argparse.Namespace) -> Result:
    batch = _batch_of(result.estimate, arguments)
    if not batch:
        return replace(result, fit_reason="no loader and no --input describes a batch")
    try:
        fit, estimate = runs.largest_batch(job, options, result.estimate, batch, result.limit)
    except ValueError as error:
        return replace(result, fit_reason=str(error))
    return replace(result, fit=fit, fit_estimate=estimate)


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
        folder = os.path.realpath(arguments.root or os.curdir)
        own = is_module_in(folder, arguments.model.partition(":")[0])
        job |= runs.own_module(folder) if own else {}
        readable = (str(job["project"]),) if own else ()
        return job, runs.Options(arguments.timeout, not arguments.no_sandbox, readable), arguments.model
    path, place = _target(arguments.target)
    root = os.path.realpath(arguments.root) if arguments.root else runs.root_of(path)
    here = os.path.realpath(os.curdir)
    folder = here if (here + os.sep).startswith(root.rstrip(os.sep) + os.sep) else os.path.dirname(path)
    job |= {
        "path": path,
        "root": root,
        "folder": folder,
        "function": function_at(path, place),
        "arguments": arguments.arguments,
    }
    return job, runs.Options(arguments.timeout, not arguments.no_sandbox, (root,)), quoted(arguments.target)


def is_module_in(folder: str, package: str) -> bool:
    """Whether a folder has the module, or the package that it is in: nothing else makes the folder readable in the sandbox."""
    first = os.path.join(folder, package.partition(".")[0])
    return os.path.isdir(first) or os.path.isfile(f"{first}.py")


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
