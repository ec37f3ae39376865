"""The step's memory over time by part, as one SVG or as a page around it: no script, no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from torchmemlint.budget.account import PARTS
from torchmemlint.budget.report import Result, text
from torchmemlint.budget.sizes import written
from torchmemlint.files.quoting import printable_lines

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 920, 380, 76, 28, 12
_COLOURS = {
    "parameters": ("#3b6fb6", "#6ea0e6"), "gradients": ("#d1742c", "#f0a060"), "optimizer state": ("#7a5aa8", "#b095dc"),
    "saved activations": ("#2f8f6b", "#5cc79d"), "inputs": ("#8a7a2a", "#d0bd5a"), "buffers": ("#6b7280", "#9aa4b5"),
    "temporaries": ("#c0392b", "#ff7b6b"), "workspaces": ("#455468", "#7f8ea3"),
    "buckets": ("#0f7f92", "#4fc3d6"),
}  # fmt: skip


def _style() -> str:
    def colours(index: int) -> str:
        return " ".join(f".part-{number} {{ fill: {_COLOURS[name][index]}; }}" for number, name in enumerate(PARTS))

    return (
        ":root { color-scheme: light dark; } .paper { fill: #fff; } .ink, .chart text { fill: #1c2330; } "
        f".chart text {{ font: 12px system-ui, sans-serif; }} .grid {{ stroke: #d8dde5; }} .peak {{ stroke: #1c2330; }} {colours(0)} "
        "@media (prefers-color-scheme: dark) { .paper { fill: #14181f; } .ink, .chart text { fill: #e6e9ef; } "
        f".grid {{ stroke: #343d4b; }} .peak {{ stroke: #e6e9ef; }} {colours(1)} }}"
    )


def svg(curve: Sequence[Mapping[str, int]], events: int) -> str:
    """The chart: parts stacked, the lasting ones below."""
    totals = [sum(size for name, size in point.items() if name != "event") for point in curve]
    highest = max(totals, default=1) or 1
    top = highest * 1.06

    def x(event: int) -> float:
        return LEFT + (WIDTH - LEFT - 8) * event / max(1, events)

    def y(size: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - size / top)

    rows = [
        f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + 44}" role="img" '
        f'aria-label="Memory over one step, by part; the peak is {written(highest)}">',
        f"<style>{_style()}</style>", f'<rect class="paper" width="{WIDTH}" height="{HEIGHT + 44}"/>',
    ]  # fmt: skip
    for index in range(5):
        size = highest * index / 4
        rows.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 8}" y1="{y(size):.1f}" y2="{y(size):.1f}"/>')
        rows.append(f'<text x="{LEFT - 6}" y="{y(size) + 4:.1f}" text-anchor="end">{written(size)}</text>')
    below = [0] * len(curve)
    for number, name in enumerate(PARTS):
        above = [low + point.get(name, 0) for low, point in zip(below, curve, strict=True)]
        if above != below:
            upper = [f"{x(point['event']):.1f},{y(size):.1f}" for point, size in zip(curve, above, strict=True)]
            lower = [f"{x(point['event']):.1f},{y(size):.1f}" for point, size in zip(curve, below, strict=True)]
            rows.append(
                f'<polygon class="part-{number}" points="{" ".join(upper + lower[::-1])}"><title>{name}</title></polygon>'
            )
        below = above
    if totals:
        at = totals.index(highest)
        place = x(curve[at]["event"])
        rows.append(
            f'<line class="peak" x1="{place:.1f}" x2="{place:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke-dasharray="3 3"/>'
        )
        anchor = "end" if place > WIDTH / 2 else "start"
        rows.append(f'<text x="{place + (-6 if anchor == "end" else 6):.1f}" y="{TOP + 10}" text-anchor="{anchor}">peak</text>')
    rows.append(f'<text x="{LEFT}" y="{HEIGHT - 6}">start of the step</text>')
    rows.append(f'<text x="{WIDTH - 8}" y="{HEIGHT - 6}" text-anchor="end">its end, in order of allocations</text>')
    place = LEFT
    for number, name in enumerate(PARTS):
        if any(point.get(name) for point in curve):
            rows.append(f'<rect class="part-{number}" x="{place}" y="{HEIGHT + 14}" width="11" height="11"/>')
            rows.append(f'<text x="{place + 15}" y="{HEIGHT + 24}">{name}</text>')
            place += 30 + 7 * len(name)
    return printable_lines("\n".join([*rows, "</svg>"]) + "\n")


def page(result: Result) -> str:
    """The report with its chart."""
    budget = result.estimate.budget
    chart = svg(budget["curve"], int(budget["events"])) if budget else ""
    return printable_lines(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>torchmemlint budget</title><style>'
        ":root { color-scheme: light dark; } body { margin: 0 auto; padding: 2rem 1rem; max-width: 62rem; background: Canvas; "
        "color: CanvasText; font: 15px/1.5 system-ui, sans-serif; } svg { width: 100%; height: auto; } "
        "pre { white-space: pre-wrap; font: 13px/1.5 ui-monospace, monospace; }</style></head><body>\n"
        f"<h1>Memory of one step</h1>\n{chart}<pre>{escape(text(result))}</pre>\n</body></html>\n"
    )
