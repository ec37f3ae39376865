"""The memory curves of the rules' pages, drawn from the records of evidence by ``docs/generate.py``.

An SVG with axes, units and a legend, readable in light and dark, that needs no font and no script.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT = 520, 280
LEFT, RIGHT, TOP, BOTTOM = 92, 20, 66, 48
STYLE = """\
.paper { fill: #fff } text { font: 15px system-ui, sans-serif; fill: #3d4552 } .soft { fill: #5b6575 }
.grid { stroke: #d8dde5 } .axis { stroke: #8791a1 }
.with { stroke: #c0392b; fill: #c0392b } .without { stroke: #1f7a44; fill: #1f7a44 }
polyline { fill: none !important; stroke-width: 2.5 } .without.line { stroke-dasharray: 7 4 }
@media (prefers-color-scheme: dark) {
  .paper { fill: #14181f }
  text { fill: #e6e9ef } .soft { fill: #a8b2c3 } .grid { stroke: #343d4b } .axis { stroke: #78839a }
  .with { stroke: #ff8a7a; fill: #ff8a7a } .without { stroke: #63d394; fill: #63d394 } }"""
UNITS = (("MiB", 1 << 20), ("KiB", 1 << 10), ("bytes", 1))
STEPS_OF_AN_AXIS = (1, 2, 4, 10)


def best(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The experiment of a rule that shows its mistake most clearly: the largest share of memory growth that the correction removes,
    else the most nodes, else the highest peak relative to the corrected program."""
    confirmed = [row for row in rows if row["verdict"] == "confirmed" and row["before"] and row["after"]]

    def plainly(row: dict[str, Any]) -> tuple[float, ...]:
        before, after = row["before"], row["after"]
        grown = before["live_bytes_per_step"] - after["live_bytes_per_step"]
        if grown * 10 < before["nodes_per_step"] * 512:  # a loss that is kept: what grows is the graph
            grown = 0
        share = grown / max(1, before["live_bytes_per_step"])
        return (
            share,
            grown,
            before["nodes_per_step"] - after["nodes_per_step"],
            before["peak_bytes"] / max(1, after["peak_bytes"]),
        )

    return max(confirmed, key=plainly, default=None)


def curve(code: str, row: dict[str, Any], record: dict[str, Any]) -> str:
    """The drawing for one experiment: what is alive after each step, or both peaks where nothing grows."""
    before, after = row["before"], row["after"]
    grows = before["live_bytes_per_step"] * 10 >= before["nodes_per_step"] * 512 and before["live_bytes_per_step"] > 0
    if grows:
        title, series = "Memory still allocated after each step", (before["live_bytes"], after["live_bytes"])
    elif before["nodes_per_step"]:
        title, series = "Autograd nodes still alive after each step", (before["nodes"], after["nodes"])
    else:
        return peaks(code, before["peak_bytes"], after["peak_bytes"], record)
    unit, divisor = ("nodes", 1) if series[0] is before.get("nodes") else unit_of(max(map(max, series)))
    return lines(f"{code}: {title}", unit, [[value / divisor for value in one] for one in series], record)


def unit_of(largest: float) -> tuple[str, int]:
    return next((name, size) for name, size in UNITS if largest >= size or size == 1)


def ticks(largest: float) -> list[float]:
    """Round values from 0 to at least ``largest``, three to six of them."""
    size = 1.0
    while size * 10 <= largest:
        size *= 10
    while size > largest > 0:
        size /= 10
    step = next(part * size / 2 for part in STEPS_OF_AN_AXIS if largest / (part * size / 2) <= 5)
    count = int(-(-largest // step)) or 1
    return [step * at for at in range(count + 1)]


def lines(title: str, unit: str, series: Sequence[Sequence[float]], record: dict[str, Any]) -> str:
    marks = ticks(max(map(max, series)) or 1)
    steps = max(map(len, series))

    def x(step: int) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (step - 1) / max(1, steps - 1), 1)

    y = scale(marks[-1])
    body = grid(marks, unit, y)
    body += [
        f'<text class="soft" x="{x(step)}" y="{HEIGHT - 24}" text-anchor="middle">{step}</text>' for step in range(1, steps + 1)
    ]
    body.append(f'<text class="soft" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">step</text>')
    for name, values in zip(("with", "without"), series, strict=True):
        points = " ".join(f"{x(at)},{y(value)}" for at, value in enumerate(values, 1))
        body.append(f'<polyline class="{name} line" points="{points}"/>')
    return drawing(title, [*legend(), *body], record)


def peaks(code: str, before: int, after: int, record: dict[str, Any]) -> str:
    unit, divisor = unit_of(before)
    marks = ticks(before / divisor)
    y = scale(marks[-1])
    body = grid(marks, unit, y)
    for name, words, value, left in (
        ("with", "with the mistake", before, LEFT + 40),
        ("without", "corrected", after, LEFT + 235),
    ):
        top = y(value / divisor)
        body.append(f'<rect class="{name}" x="{left}" y="{top}" width="130" height="{round(HEIGHT - BOTTOM - top, 1)}"/>')
        body.append(f'<text x="{left + 65}" y="{top - 6}" text-anchor="middle">{value / divisor:.2f} {unit}</text>')
        body.append(f'<text class="soft" x="{left + 65}" y="{HEIGHT - 24}" text-anchor="middle">{words}</text>')
    return drawing(f"{code}: Highest memory during the run", body, record)


def scale(top: float) -> Callable[[float], float]:
    return lambda value: round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top, 1)


def grid(marks: Sequence[float], unit: str, y: Callable[[float], float]) -> list[str]:
    rows = []
    for mark in marks:
        kind = "grid" if mark else "axis"
        rows.append(f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(mark)}" y2="{y(mark)}"/>')
        rows.append(f'<text class="soft" x="{LEFT - 8}" y="{y(mark) + 4}" text-anchor="end">{mark:g} {unit}</text>')
    return rows


def legend() -> list[str]:
    parts = []
    for name, words, left in (("with", "with the mistake", LEFT), ("without", "corrected", LEFT + 185)):
        parts.append(f'<polyline class="{name} line" points="{left},42 {left + 28},42"/>')
        parts.append(f'<text x="{left + 36}" y="47">{words}</text>')
    return parts


def drawing(title: str, body: Sequence[str], record: dict[str, Any]) -> str:
    source = f"torch {record['torch']}, {record['device']}, measured {record['date'][:10]}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img">',
            f"<title>{escape(title)} ({escape(source)})</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',  # a page may be dark where the system is light
            f'<text x="12" y="22" font-weight="bold">{escape(title)}</text>',
            *body,
            "</svg>",
            "",
        ]
    )
