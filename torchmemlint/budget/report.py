"""What is printed: text for people, JSON for programs."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchmemlint import __version__
from torchmemlint.budget.prices import Price
from torchmemlint.budget.runs import CONTEXT, Advice, Estimate
from torchmemlint.budget.sizes import written


@dataclass(frozen=True, slots=True)
class Result:
    """All that a call of the command found."""

    target: str
    estimate: Estimate
    remedies: Sequence[tuple[str, Estimate]] = ()
    limit: int = 0
    fit: int = 0
    fit_estimate: Estimate | None = None
    fit_reason: str = ""
    prices: Sequence[Price] | None = None
    epoch: Estimate | None = None
    check: Estimate | None = None
    efficient: Estimate | None = None
    advice: Advice | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    table: Sequence[tuple[int, int, Estimate]] = ()
    ranks: int = 0
    alone: bool = False
    """Whether only a model was run."""

    @property
    def status(self) -> int:
        """0 fits (or nothing was asked), 1 does not, 2 no estimate."""
        if not self.estimate.budget:
            return 2
        return 1 if self.limit and self.estimate.needed > self.limit else 0


def text(result: Result) -> str:
    """The report."""
    estimate = result.estimate
    if not estimate.budget:
        lines = [f"{result.target}: no estimate: {estimate.reason}"]
        if estimate.disbelieved:
            return lines[0] + "\n"
        lines += [] if result.alone else _advice(result.advice)
        return "\n".join(lines) + "\n"
    budget = estimate.budget
    low, high = estimate.allocated_interval
    reserved = estimate.reserved_interval
    if result.efficient is not None and result.efficient.budget:
        low = min(low, result.efficient.allocated_interval[0])
        reserved = min(reserved[0], result.efficient.reserved_interval[0]), reserved[1]
    lines = [
        f"{result.target}: peak of one step",
        f"  allocated  {written(estimate.allocated):>11}   ({written(low)} to {written(high)})",
        f"  reserved   {written(estimate.reserved):>11}   ({written(reserved[0])} to {written(reserved[1])})",
        f"  with the CUDA context, the device must have {written(estimate.needed)}",
        f"  reached {place(budget)}",
        *(
            [f"  with {', '.join(specs(estimate.inputs))}{of_guesses(estimate.guessed)}: --input replaces them"]
            if estimate.inputs
            else []
        ),
        "",
        "  at the peak",
    ]
    for name, size in sorted(budget["parts"].items(), key=lambda item: -item[1]):
        lines.append(f"    {name:<20}{written(size):>11}{100 * size / max(1, estimate.allocated):>7.1f} %")
    lines.append(f"    {'fragmentation':<20}{written(estimate.reserved - estimate.allocated):>11}   (reserved, not in tensors)")
    lines.append(f"    {'context':<20}{written(CONTEXT):>11}   (outside of the allocator)")
    if abs(estimate.reserved - estimate.expandable) > max(1 << 20, estimate.reserved // 100):
        lines.append(f"  with expandable_segments:True {written(estimate.expandable)} are reserved")
    if budget["modules"]:
        lines += ["", "  saved activations, by module"]
        for name, size in grouped(budget["modules"])[:8]:
            lines.append(f"    {written(size):>11}  {name}")
    if result.remedies:
        lines += ["", "  remedies (each was run)"]
        for name, other in sorted(result.remedies, key=lambda item: item[1].allocated or 1 << 62):
            lines.append(f"    {name:<22}{remedy(estimate, other)}")
    if result.efficient is not None and result.efficient.budget:
        lines.append(f"  with the memory-efficient attention kernel, {written(result.efficient.allocated)} are allocated")
    lines += _table(result) + _shared(result)
    lines += _checked(result)
    lines += _prices(result)
    if result.limit:
        fits = estimate.needed <= result.limit
        lines += ["", f"  {'fits' if fits else 'does not fit'} in {written(result.limit)}"]
        if result.fit_estimate is not None:
            lines.append(f"  the largest batch that fits, to 2 %: {result.fit} ({written(result.fit_estimate.needed)} needed)")
        elif result.fit_reason:
            lines.append(f"  the largest batch was not searched: {result.fit_reason}")
        else:
            lines.append("  not even a batch of one fits")
    lines += _notes(estimate)
    return "\n".join(lines) + "\n"


def _advice(advice: Advice | None) -> list[str]:
    if advice is None:
        return ["  a model of its own can be estimated without the program, its data and its packages:",
                "    torchmemlint budget --model PACKAGE:CLASS(ARGUMENTS) --input 'x:float32[16,3,224,224]'"]  # fmt: skip
    need = f"{written(advice.estimate.allocated)} allocated, {written(advice.estimate.reserved)} reserved"
    return [f"  its model alone can be run: {need}{of_guesses(advice.guessed)}", f"    {command_of(advice)}"]


def of_guesses(guessed: Sequence[str]) -> str:
    """What of a command is a guess."""
    return f"; guessed: {', '.join(guessed)}" if guessed else ""


def command_of(advice: Advice) -> str:
    """The command that estimates the model, as a shell takes it."""
    words = [
        "torchmemlint",
        "budget",
        *(["--root", os.path.relpath(advice.root)] if advice.root else []),
        "--model",
        advice.model,
    ]
    return shlex.join([*words, *(word for spec in specs(advice.inputs) for word in ("--input", spec))])


def specs(inputs: Sequence[tuple[str, str, Sequence[int]]]) -> list[str]:
    """Inputs as ``--input`` takes them."""
    return [f"{name}:{dtype}[{','.join(map(str, shape))}]" for name, dtype, shape in inputs]


def _table(result: Result) -> list[str]:
    lines = ["", "  needed, with the CUDA context"] if result.table else []
    for length, batch, other in result.table:
        name = ", ".join([*([f"length {length}"] if length else []), *([f"batch {batch}"] if batch else [])])
        fitting = [limit for limit, size in result.limits.items() if other.needed <= size]
        words = f"   fits in {', '.join(fitting)}" if fitting else "   does not fit" if result.limits else ""
        lines.append(f"    {name:<26}{written(other.needed):>11}{words}" if other.budget else f"    {name:<26}{other.reason}")
    return lines


def _shared(result: Result) -> list[str]:
    """By formula: what is divided by the number of ranks of what lives at the peak. FSDP gathers the parameters of a block and of the next
    one, and keeps the gradients of one until they are scattered."""
    parts, ranks, whole = result.estimate.budget["parts"], result.ranks, result.estimate.allocated
    if ranks < 2:
        return []
    lines = ["", f"  allocated on each of {ranks} ranks (by formula)"]
    divided = 0
    for name, part in (("ZeRO-1", "optimizer state"), ("ZeRO-2", "gradients"), ("FSDP, ZeRO-3", "parameters")):
        divided += int(parts.get(part, 0) * (1 - 1 / ranks))
        gathered = 3 * int(result.estimate.budget["block"]) if part == "parameters" else 0
        lines.append(f"    {name:<20}{written(whole - divided + gathered):>11}")
    return lines


def _checked(result: Result) -> list[str]:
    check, estimate = result.check, result.estimate
    if check is None:
        return []
    if not check.budget:
        return ["", f"  not checked: {check.reason}"]
    lines = ["", "  the same step on this machine's GPU"]
    for name, real, expected in (
        ("allocated", check.allocated, estimate.allocated), ("reserved", check.reserved, estimate.reserved),
    ):  # fmt: skip
        difference = f"{100 * (expected - real) / max(1, real):+.1f}".replace("-", "−")
        lines.append(f"    {name:<10} {written(real):>11}   (the estimate is {difference} % off)")
    return lines


def _prices(result: Result) -> list[str]:
    if result.prices is None or result.epoch is None:
        return []
    if not result.epoch.budget:
        return ["", f"  the cost of findings is unknown: {result.epoch.reason}"]
    if not result.prices:
        return ["", "  no findings"]
    lines = ["", "  findings, the costliest first (each was run with and without its fix, over the first epoch)"]
    for price in result.prices:
        finding = price.finding
        lines.append(f"    {finding.path}:{finding.span.start.row} {finding.code} {finding.name}")
        lines.append(f"      {price.words(result.epoch.allocated)}")
    return lines


def place(budget: Any) -> str:
    """Where the peak is, in words."""
    words = [
        f"in the {budget['phase']}" if budget["phase"] else "",
        f"at {budget['path']}:{budget['row']}" if budget["row"] else "",
    ]
    words += [f"in {budget['module']}" if budget["module"] else "", f"({budget['op']})"]
    return " ".join(word for word in words if word)


def grouped(modules: Sequence[Sequence[Any]]) -> list[tuple[str, int]]:
    """Modules of a list under one name: ``layer.0.fc`` and ``layer.1.fc`` are ``layer.*.fc``."""
    sums: dict[str, tuple[int, int]] = {}
    for name, size in modules:
        key = ".".join("*" if part.isdigit() else part for part in str(name).split("."))
        count, total = sums.get(key, (0, 0))
        sums[key] = count + 1, total + int(size)
    return sorted(
        ((f"{name} (×{count})" if count > 1 else name, total) for name, (count, total) in sums.items()),
        key=lambda item: -item[1],
    )


def remedy(estimate: Estimate, other: Estimate) -> str:
    """What one remedy changed."""
    if not other.budget:
        return f"could not be run: {other.reason}"
    change = other.allocated - estimate.allocated
    if abs(change) < max(1 << 20, estimate.allocated // 1000):
        return "changes nothing here"
    sign = "+" if change > 0 else "−"
    return (
        f"{written(other.allocated):>11}   {sign}{written(abs(change))} ({100 * change / estimate.allocated:+.0f} %)".replace(
            "-", "−"
        )
    )


def _notes(estimate: Estimate) -> list[str]:
    lines = [""] if estimate.assumed or estimate.skipped or estimate.reason else []
    if estimate.reason:
        lines.append(
            f"  note: only {estimate.steps} step was seen: {estimate.reason}"
            if estimate.steps
            else f"  note: {estimate.reason}"
        )
    lines += [f"  assumed: {words}" for words in estimate.assumed[:8]]
    lines += [f"  skipped: {words}" for words in estimate.skipped[:8]]
    return lines


def as_json(result: Result) -> str:
    """The report for programs."""
    estimate = result.estimate
    made: dict[str, object] = {
        "version": __version__, "target": result.target, "estimated": bool(estimate.budget), "reason": estimate.reason, "steps": estimate.steps,
        "assumed": estimate.assumed, "skipped": estimate.skipped, "inputs": specs(estimate.inputs), "missing": estimate.missing, "seconds": round(estimate.seconds, 1),
        "sandbox": estimate.sandbox,
    }  # fmt: skip
    if estimate.budget:
        made |= {
            "allocated_bytes": estimate.allocated, "allocated_interval": estimate.allocated_interval,
            "reserved_bytes": estimate.reserved, "reserved_interval": estimate.reserved_interval,
            "reserved_expandable_bytes": estimate.expandable,
            "context_bytes": CONTEXT, "needed_bytes": estimate.needed,
            "peak": {key: estimate.budget[key] for key in ("path", "row", "module", "op", "phase")},
            "parts": estimate.budget["parts"], "modules": estimate.budget["modules"], "curve": estimate.budget["curve"],
            "remedies": {
                name: {"allocated_bytes": other.allocated, "reserved_bytes": other.reserved, "reason": other.reason}
                for name, other in result.remedies
            },
        }  # fmt: skip
    if result.advice is not None:
        made["advice"] = {
            "command": command_of(result.advice),
            "allocated_bytes": result.advice.estimate.allocated,
            "guessed": result.advice.guessed,
        }
    if result.efficient is not None and result.efficient.budget:
        made["efficient_attention_bytes"] = result.efficient.allocated
    if result.check is not None:
        made["check"] = {
            "allocated_bytes": result.check.allocated, "reserved_bytes": result.check.reserved, "reason": result.check.reason,
        }  # fmt: skip
    if result.prices is not None and result.epoch is not None:
        made["findings"] = [
            {
                "path": price.finding.path, "row": price.finding.span.start.row, "code": price.finding.code,
                "peak_bytes": price.peak, "bytes_per_batch": price.growth, "reason": price.reason,
            }
            for price in result.prices
        ]  # fmt: skip
        made["epoch_allocated_bytes"] = result.epoch.allocated
    if result.limit:
        made["fit"] = {
            "limit_bytes": result.limit, "fits": result.status == 0, "largest_batch": result.fit, "reason": result.fit_reason,
        }  # fmt: skip
    return json.dumps(made, indent=2) + "\n"
