"""What is printed: text for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torchmemlint import __version__
from torchmemlint.budget.runs import CONTEXT, Told
from torchmemlint.budget.sizes import written


@dataclass(frozen=True, slots=True)
class Result:
    """All that a call of the command found."""

    target: str
    told: Told
    remedies: Sequence[tuple[str, Told]] = ()
    limit: int = 0
    fit: int = 0
    fit_told: Told | None = None
    fit_reason: str = ""

    @property
    def status(self) -> int:
        """0 fits (or nothing was asked), 1 does not, 2 could not be told."""
        if not self.told.budget:
            return 2
        return 1 if self.limit and self.told.needed > self.limit else 0


def text(result: Result) -> str:
    """The report."""
    told = result.told
    if not told.budget:
        lines = [f"{result.target}: no estimate: {told.reason}"]
        if told.disbelieved:
            return lines[0] + "\n"
        lines += [f"  note: line {line}" for line in told.skipped[:5]]
        if told.missing:
            lines.append(f"  note: not installed here: {', '.join(told.missing)}")
        lines.append("  help: describe a batch with --input 'x:float32[16,3,224,224]', an option with --set NAME=VALUE,")
        lines.append("        or name the model alone: --model package:factory")
        return "\n".join(lines) + "\n"
    budget = told.budget
    low, high = told.allocated_interval
    reserved = told.reserved_interval
    lines = [
        f"{result.target}: peak of one step",
        f"  allocated  {written(told.allocated):>11}   ({written(low)} to {written(high)})",
        f"  reserved   {written(told.reserved):>11}   ({written(reserved[0])} to {written(reserved[1])})",
        f"  with the CUDA context, the device must have {written(told.needed)}",
        f"  reached {place(budget)}",
        "",
        "  at the peak",
    ]
    for name, size in sorted(budget["parts"].items(), key=lambda item: -item[1]):
        lines.append(f"    {name:<20}{written(size):>11}{100 * size / max(1, told.allocated):>7.1f} %")
    lines.append(f"    {'fragmentation':<20}{written(told.reserved - told.allocated):>11}   (reserved, not in tensors)")
    lines.append(f"    {'context':<20}{written(CONTEXT):>11}   (outside of the allocator)")
    if budget["modules"]:
        lines += ["", "  saved activations, by module"]
        for name, size in grouped(budget["modules"])[:8]:
            lines.append(f"    {written(size):>11}  {name}")
    if result.remedies:
        lines += ["", "  remedies (each was run)"]
        for name, other in sorted(result.remedies, key=lambda item: item[1].allocated or 1 << 62):
            lines.append(f"    {name:<22}{remedy(told, other)}")
    if result.limit:
        fits = told.needed <= result.limit
        lines += ["", f"  {'fits' if fits else 'does not fit'} in {written(result.limit)}"]
        if result.fit_told is not None:
            lines.append(f"  the largest batch that fits, to 2 %: {result.fit} ({written(result.fit_told.needed)} needed)")
        elif result.fit_reason:
            lines.append(f"  the largest batch was not searched: {result.fit_reason}")
        else:
            lines.append("  not even a batch of one fits")
    lines += _notes(told)
    return "\n".join(lines) + "\n"


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


def remedy(told: Told, other: Told) -> str:
    """What one remedy changed."""
    if not other.budget:
        return f"could not be run: {other.reason}"
    change = other.allocated - told.allocated
    if abs(change) < max(1 << 20, told.allocated // 1000):
        return "changes nothing here"
    sign = "+" if change > 0 else "−"
    return f"{written(other.allocated):>11}   {sign}{written(abs(change))} ({100 * change / told.allocated:+.0f} %)".replace(
        "-", "−"
    )


def _notes(told: Told) -> list[str]:
    lines = [""] if told.assumed or told.skipped or told.reason else []
    if told.reason:
        lines.append(f"  note: only {told.steps} step was seen: {told.reason}" if told.steps else f"  note: {told.reason}")
    lines += [f"  assumed: {words}" for words in told.assumed[:8]]
    lines += [f"  skipped: line {words}" for words in told.skipped[:8]]
    return lines


def as_json(result: Result) -> str:
    """The report for programs."""
    told = result.told
    made: dict[str, object] = {
        "version": __version__, "target": result.target, "told": bool(told.budget), "reason": told.reason, "steps": told.steps,
        "assumed": told.assumed, "skipped": told.skipped, "missing": told.missing, "seconds": round(told.seconds, 1),
        "sandbox": told.sandbox,
    }  # fmt: skip
    if told.budget:
        made |= {
            "allocated_bytes": told.allocated, "allocated_interval": told.allocated_interval,
            "reserved_bytes": told.reserved, "reserved_interval": told.reserved_interval,
            "context_bytes": CONTEXT, "needed_bytes": told.needed,
            "peak": {key: told.budget[key] for key in ("path", "row", "module", "op", "phase")},
            "parts": told.budget["parts"], "modules": told.budget["modules"], "curve": told.budget["curve"],
            "remedies": {
                name: {"allocated_bytes": other.allocated, "reserved_bytes": other.reserved, "reason": other.reason}
                for name, other in result.remedies
            },
        }  # fmt: skip
    if result.limit:
        made["fit"] = {
            "limit_bytes": result.limit, "fits": result.status == 0, "largest_batch": result.fit, "reason": result.fit_reason,
        }  # fmt: skip
    return json.dumps(made, indent=2) + "\n"
