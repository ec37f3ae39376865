"""A record of ``compare`` as a table and a drawing in ``docs/performance.md`` and ``docs/performance.svg``."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent.parent / "docs"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
OURS = ("ast.parse", "cold", "two", "cached", "warm", "changed", "edited")
DRAWN = {"ast.parse": "#9aa4b2", "cold": "#c2410c", "warm": "#0f766e", "changed": "#0369a1", "edited": "#7c3aed"}
WORDS = {
    "ast.parse": "ast.parse only",
    "cold": "no cache",
    "warm": "nothing changed",
    "changed": "comment added",
    "edited": "function added",
}


STYLE = (
    "text { fill: #1c2330 } .soft { fill: #5b6575 } .grid { stroke: #d8dde5 } .paper { fill: #fff } "
    "@media (prefers-color-scheme: dark) { text { fill: #e6e9ef } .soft { fill: #a8b2c3 } .grid { stroke: #343d4b } "
    ".paper { fill: #14181f } }"
)
"""Light and dark."""


def write_page(record: dict[str, Any]) -> None:
    """Replaces what stands between the marks of the page, and the drawing."""
    path = DOCS / "performance.md"
    text = path.read_text(encoding="utf-8")
    found = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    path.write_text(found.sub(lambda _: f"{BEGIN}\n{table(record)}\n{END}", text), encoding="utf-8")
    (DOCS / "performance.svg").write_text(drawing(record), encoding="utf-8")


def table(record: dict[str, Any]) -> str:
    """The costs of every tree; CPU seconds unless it says wall."""
    lines = [
        f"CPython {record['python']}, {record['cpus']} cores, {record['date']}; seconds of CPU, and of wall time after the bar.",
        "",
        "| tree | files | lines | `ast.parse` | no cache, one process | × `ast.parse` | largest MB | two processes | of the wall time of one | nothing changed | a comment added to one file | a function added |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in record["rows"]:
        costs = row["costs"]
        cells = [row["name"], f"{row['files']:,}", f"{row['lines']:,}", f"{costs['ast.parse']['cpu']:.2f}"]
        cells += [
            _pair(costs["cold"]),
            f"{costs['cold']['cpu'] / costs['ast.parse']['cpu']:.1f}",
            str(costs["cold"]["megabytes"]),
            _pair(costs["two"]),
            f"{costs['two']['wall'] / costs['cold']['wall']:.2f}",
        ]
        cells += [_pair(costs["warm"]), _pair(costs["changed"]), _pair(costs["edited"])]
        lines.append("| " + " | ".join(cells) + " |")
    peers = [(row, name) for row in record["rows"] for name in row["costs"] if name not in OURS]
    if peers:
        lines += ["", "| tree | program | CPU s | × torchmemlint without a cache |", "|---|---|---:|---:|"]
        for row, name in peers:
            cpu = row["costs"][name]["cpu"]
            lines.append(f"| {row['name']} | {name} | {cpu:.1f} | {cpu / row['costs']['cold']['cpu']:.1f} |")
    return "\n".join(lines)


def _pair(cost: dict[str, float]) -> str:
    return f"{cost['cpu']:.2f} \\| {cost['wall']:.2f}"


def _is_package(name: str) -> bool:
    """``timm==1.0.11``, not a tree that was generated."""
    return "==" in name


def figure(value: float) -> str:
    """Three digits, and never an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def drawing(record: dict[str, Any]) -> str:
    """Milliseconds of CPU for 1,000 lines of real packages, as bars on a scale where each step is ten times the one before. Narrow,
    so that it can be read on a phone; the generated trees are in the table only."""
    bars: list[tuple[str, str, float]] = []
    for row in record["rows"]:
        if not _is_package(row["name"]):
            continue
        bars.append((row["name"], "", 0.0))
        for name, cost in row["costs"].items():
            if name in DRAWN or name not in OURS:
                bars.append((WORDS.get(name, name), DRAWN.get(name, "#857f7a"), 1e6 * cost["cpu"] / row["lines"]))
    left, wide, step = 158, 290, 22
    largest = max((value for _, _, value in bars), default=1.0)
    decades = 1
    while 10 ** (decades - 1) < largest:
        decades += 1

    def place(value: float) -> float:
        from math import log10

        return wide * max(0.0, (log10(max(value, 0.1)) + 1) / decades)

    high = 60 + step * len(bars)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + wide + 60} {high}" font-family="system-ui, sans-serif" font-size="13" role="img">',
        "<title>CPU time for 1,000 lines, by program and tree</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{left + wide + 60}" height="{high}" rx="6"/>',
        '<text x="8" y="18" font-weight="bold">CPU time for 1,000 lines, in milliseconds (logarithmic)</text>',
    ]
    for decade in range(decades + 1):
        x = left + wide * decade / decades
        out.append(f'<line class="grid" x1="{x:.0f}" x2="{x:.0f}" y1="44" y2="{high - 6}"/>')
        out.append(f'<text class="soft" x="{x:.0f}" y="38" text-anchor="middle">{10.0 ** (decade - 1):,g}</text>')
    y = 46
    for name, color, value in bars:
        if color:
            out.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
            out.append(f'<rect x="{left}" y="{y + 4}" width="{place(value):.1f}" height="12" fill="{color}"/>')
            out.append(f'<text x="{left + place(value) + 5:.1f}" y="{y + 14}">{figure(value)}</text>')
        else:
            out.append(f'<text x="8" y="{y + 15}" font-weight="bold">{escape(name)}</text>')
        y += step
    return "\n".join([*out, "</svg>", ""])
