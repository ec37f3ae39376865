"""One HTML page that needs nothing else: inline SVG, no script, no network."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Sequence
from difflib import SequenceMatcher
from html import escape

from torchmemlint import __version__
from torchmemlint.confirm.plan import Plan
from torchmemlint.confirm.report import allocator, caveats, figures, size, totals
from torchmemlint.confirm.settle import Settled
from torchmemlint.confirm.verdict import Outcome, Run
from torchmemlint.files.quoting import printable_lines, quoted

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #5b6575; --paper: #fff; --card: #f6f7f9; --line: #d8dde5;
  --bad: #c0392b; --good: #1f8a4c; --unsure: #8a6d1f; --mark: #fbe3df;
  --new: #dcf2e3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --soft: #9aa4b5; --paper: #14181f; --card: #1d232d;
  --line: #343d4b;
  --bad: #ff7b6b; --good: #5fd08c; --unsure: #e0c060; --mark: #4a2723; --new: #1d3f2b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1rem 4rem; max-width: 72rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.05rem; margin: 0; overflow-wrap: anywhere; }
p { margin: .3rem 0; } .soft { color: var(--soft); }
article { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 1rem; margin: 1.2rem 0; }
.verdict { font-weight: 600; } .confirmed { color: var(--bad); } .refuted { color: var(--good); } .inconclusive {
  color: var(--unsure); }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: .8rem; margin: .8rem 0 0; }
.pair > div { min-width: 0; } pre { margin: .2rem 0; padding: .6rem; overflow-x: auto; background: var(--paper);
  border: 1px solid var(--line);
  border-radius: 6px; font: 13px/1.45 ui-monospace, monospace; } mark { background: var(--mark); color: inherit;
    display: block; }
mark.new { background: var(--new); }
svg { width: 100%; height: auto; max-width: 36rem; display: block; } svg text { fill: var(--soft);
  font: 12px system-ui, sans-serif; }
.axis { stroke: var(--line); } .before { stroke: var(--bad); fill: none; stroke-width: 2; } .after { stroke:
  var(--good); fill: none;
  stroke-width: 2; stroke-dasharray: 5 3; } table { border-collapse: collapse; } td, th { padding: .1rem .9rem .1rem 0;
    text-align: left; }
"""


def render(settled: Sequence[Settled], text_of: Callable[[str], str | None], when: datetime.datetime) -> str:
    """The page. ``text_of`` gives a file's text by its path, None where it is not at hand."""
    parts = [
        "<!doctype html>", '<html lang="en"><head><meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>torchmemlint confirm</title><style>{_STYLE}</style></head><body>",
        "<h1>torchmemlint confirm</h1>",
        f'<p>{escape(totals(settled))}</p>',
        *(f'<p class="soft">{escape(words)}</p>' for words in caveats(settled)),
        f'<p class="soft">torchmemlint {__version__}, {when:%Y-%m-%d %H:%M} UTC</p>',
    ]  # fmt: skip
    parts.extend(_article(item, text_of(item.plan.finding.path)) for item in settled)
    parts.append("</body></html>")
    return printable_lines("\n".join(parts) + "\n")


def _article(item: Settled, text: str | None) -> str:
    finding, verdict = item.plan.finding, item.verdict
    outcome = verdict.outcome.value
    words = outcome + (f": {verdict.kind}" if verdict.kind else "")
    rows = [
        f"<article><h2>{escape(finding.code)} {escape(finding.name)} · {escape(quoted(finding.path))}:{finding.span.start.row}</h2>",
        f'<p class="verdict {outcome}">{escape(words)}</p>',
    ]
    if finding.message:
        rows.append(f"<p>{escape(finding.message)}</p>")
    if verdict.reason:
        rows.append(f'<p class="soft">{escape(verdict.reason)}</p>')
    runs = [(name, run) for name, run in (("before", verdict.before), ("after", verdict.after)) if run and run.live_bytes]
    if runs and (verdict.kind or verdict.outcome is not Outcome.INCONCLUSIVE):
        rows.append(chart(runs, nodes=verdict.kind == "nodes per step"))
        cells = "".join(f"<tr><th>{name}</th><td>{escape(figures(run))}</td></tr>" for name, run in runs)
        rows.append(f"<table>{cells}</table>")
    if verdict.before is not None and verdict.before.requested_bytes:
        rows.append(f"<p>allocator: {escape(allocator(verdict.before))}</p>")
    rows += [f'<p class="soft">{escape(note)}</p>' for note in verdict.notes]
    if text is not None:
        rows.append(_code(item.plan, text))
    device = f"{verdict.device}, torch {item.torch}" if item.torch else verdict.device
    mode = f", {verdict.before.mode}" if verdict.before and verdict.before.mode else ""
    rows.append(f'<p class="soft">{escape(device)}{escape(mode)}, sandbox: {escape(item.sandbox or "not run")}</p></article>')
    return "\n".join(rows)


def chart(runs: Sequence[tuple[str, Run]], nodes: bool = False) -> str:
    """Live bytes (or autograd nodes that are kept) over steps as an SVG, a line for each run; the ends are labelled."""
    width, height, left, right, bottom = 460, 150, 62, 46, 22  # so narrow that its words can be read on a telephone
    series = [(name, run.nodes if nodes else run.live_bytes) for name, run in runs]
    top = max(1, *(max(samples, default=0) for _, samples in series))
    longest = max(2, *(len(samples) for _, samples in series))
    text = str if nodes else size

    def point(index: int, value: int) -> tuple[float, float]:
        x = left + index * (width - left - right) / (longest - 1)
        return round(x, 1), round(8 + (height - bottom - 8) * (1 - value / top), 1)

    what = "Autograd nodes kept" if nodes else "Live tensor bytes"
    ends = "; ".join(f"{name}: {text(samples[0])} to {text(samples[-1])}" for name, samples in series if samples)
    lines = [
        f'<svg viewBox="0 0 {width} {height}" role="img"><title>{what} at each step. {escape(ends)}</title>',
        f'<line class="axis" x1="{left}" y1="{height - bottom}" x2="{width - right}" y2="{height - bottom}"/>',
        f'<line class="axis" x1="{left}" y1="8" x2="{left}" y2="{height - bottom}"/>',
        f'<text x="{left - 6}" y="14" text-anchor="end">{text(top)}</text>',
        f'<text x="{left - 6}" y="{height - bottom}" text-anchor="end">0{" nodes" if nodes else ""}</text>',
        f'<text x="{left}" y="{height - 6}">step 1</text>',
        f'<text x="{width - right}" y="{height - 6}" text-anchor="end">step {longest}</text>',
    ]
    taken: list[float] = []
    for name, samples in series:
        if not samples:
            continue
        points = [point(index, value) for index, value in enumerate(samples)]
        path = " ".join(f"{x},{y}" for x, y in points)
        lines.append(f'<polyline class="{name}" points="{path}"/>')
        x, y = points[-1]
        while any(abs(y - other) < 13 for other in taken):
            y += 13 if y < height / 2 else -13  # away from the nearer edge
        taken.append(y)
        lines.append(f'<text x="{x + 6}" y="{y + 4}">{name}</text>')
    return "\n".join([*lines, "</svg>"])


def _code(plan: Plan, text: str) -> str:
    shown = plan.cells.in_module(plan.finding) if plan.cells is not None else plan.finding  # the text is that of the module
    row, last = shown.span.start.row, shown.span.end.row
    blocks = [f"<div><b>broken</b>{_excerpt(text, row, last, range(row, last + 1))}</div>"]
    fixed = plan.job.get("fixed_source") if plan.job else None
    if plan.job and isinstance(fixed, str):
        at = plan.job["fixed_row"]
        assert isinstance(at, int)
        blocks.append(f"<div><b>fixed</b>{_excerpt(fixed, at, at + last - row, _new_rows(text, fixed), 'new')}</div>")
    return f'<div class="pair">{"".join(blocks)}</div>'


def _new_rows(text: str, fixed: str) -> frozenset[int]:
    """Rows of the fixed text that the text does not have."""
    parts = SequenceMatcher(None, text.splitlines(), fixed.splitlines(), autojunk=False).get_opcodes()
    return frozenset(row + 1 for kind, _, _, first, last in parts if kind != "equal" for row in range(first, last))


def _excerpt(text: str, first: int, last: int, marked: Collection[int], sort: str = "old") -> str:
    """The rows around the flagged ones, and around what is marked elsewhere (a decorator, an import)."""
    lines = text.splitlines()
    wanted = {*range(first - 5, last + 4), *(row + near for row in marked for near in (-1, 0, 1))}
    shown: list[str] = []
    before = 0
    for number in sorted(wanted.intersection(range(1, len(lines) + 1))):
        if before and number > before + 1:
            shown.append("   …\n")
        before = number
        line = f"{number:>4}  {escape(lines[number - 1])}"
        shown.append(f'<mark class="{sort}">{line}</mark>' if number in marked else line + "\n")
    return f"<pre>{''.join(shown)}</pre>"
