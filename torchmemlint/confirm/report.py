"""Verdicts → text for a terminal, JSON, or one HTML page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torchmemlint.confirm.settle import Settled
from torchmemlint.confirm.verdict import Answer, Comparison, Outcome, Run, Verdict, slope, verdict_json
from torchmemlint.files.quoting import quoted
from torchmemlint.findings import Finding
from torchmemlint.reporters import Context
from torchmemlint.reporters import as_json as dumped
from torchmemlint.reporters.json import entry
from torchmemlint.reporters.style import in_cell

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.:-=+*#"


def size(count: int) -> str:
    """Bytes in binary units, with a sign only when negative: "0 B", "12.3 KiB"."""
    value = float(abs(count))
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    number = f"{value:.0f}" if unit == "B" else f"{value:.3g}" if value < 1000 else f"{value:.0f}"
    return f"{'-' if count < 0 else ''}{number} {unit}"


def sparkline(samples: Sequence[int], top: int, ascii_only: bool = False) -> str:
    """One character a step, from 0 to ``top``."""
    blocks = ASCII_BLOCKS if ascii_only else BLOCKS
    return "".join(blocks[min(len(blocks) - 1, max(0, sample * len(blocks) // (top + 1)))] for sample in samples)


def figures(run: Run) -> str:
    """A run in one line: growth per step in bytes and graphs, nodes per step, the peak."""
    graphs = f" ({run.graphs_per_step:.2f} graphs)" if run.graph_bytes and run.live_bytes_per_step else ""
    return (
        f"{size(run.live_bytes_per_step)}/step{graphs}, {run.nodes_per_step} nodes/step, peak {size(run.peak_bytes)}"
    )  # fmt: skip


def allocator(run: Run) -> str:
    """What CUDA's allocator says beside the figures: growth before it rounds up, and what it holds for no tensor."""
    return (
        f"{size(slope(run.requested_bytes))}/step requested; {size(run.fragmented_bytes)} reserved but not in tensors "
        "(cache and fragmentation; not part of the verdict)"
    )


def measured(verdict: Verdict) -> str:
    """A verdict in one sentence, for code frames: "confirmed: nodes per step (22 nodes/step, none with the fix; cpu)"."""
    words = verdict.outcome.value + (f": {verdict.kind}" if verdict.kind else "")
    if verdict.outcome is not Outcome.CONFIRMED or verdict.before is None:
        return words + (f": {verdict.reason}" if verdict.reason else "")
    before, after = verdict.before, verdict.after
    parts = [_change(before, after)]
    if verdict.helped is False:
        parts.append("the printed fix does not help")
    return f"{words} ({'; '.join(part for part in [*parts, verdict.device] if part)})"


def _change(before: Run, after: Run | None) -> str:
    """The figures of the growth, and where they come to with the fix. Bytes of stand-ins are none of the true model's:
    graphs are reported then."""
    figures: list[tuple[str, str]] = []
    if before.graphs_per_step:
        rest = f"{after.graphs_per_step:.2f}" if after else ""
        figures.append((f"{before.graphs_per_step:.2f} graphs/step", rest))
    elif before.live_bytes_per_step:
        figures.append((f"{size(before.live_bytes_per_step)}/step", size(after.live_bytes_per_step) if after else ""))
    if before.nodes_per_step:
        figures.append((f"{before.nodes_per_step} nodes/step", str(after.nodes_per_step) if after else ""))
    if not figures and before.graph_bytes:
        graphs = before.peak_bytes / before.graph_bytes
        figures.append((f"{graphs:.1f} graphs at peak", f"{after.peak_bytes / before.graph_bytes:.1f}" if after else ""))
    return ", ".join(first + (f", {rest} with the fix" if rest else "") for first, rest in figures)


def full(settled: Sequence[Settled], ascii_only: bool = False) -> str:
    """Findings with their verdicts, figures before and after the fix, and a line of totals."""
    lines: list[str] = []
    for item in settled:
        finding, verdict = item.plan.finding, item.verdict
        word = verdict.outcome.value + (f": {verdict.kind}" if verdict.kind else "")
        lines.append(_heading(finding, word))
        if finding.message:
            lines.append(f"    {finding.message}")
        if verdict.reason:
            lines.append(f"    because {verdict.reason}")
        runs = [("before", verdict.before), ("after", verdict.after)]
        top = max([1, *(sample for _, run in runs if run for sample in run.live_bytes)])
        if verdict.outcome is not Outcome.INCONCLUSIVE or verdict.kind:
            for name, run in runs:
                if run is not None:
                    lines.append(f"    {name:<7}{sparkline(run.live_bytes, top, ascii_only)}  {figures(run)}")
        if verdict.before is not None and verdict.before.requested_bytes:
            lines.append(f"    allocator: {allocator(verdict.before)}")
        lines.extend(f"    note: {note}" for note in verdict.notes)
        lines.append("")
    lines.append(totals(settled))
    lines.extend(caveats(settled))
    return "\n".join(lines) + "\n"


def _heading(finding: Finding, word: str) -> str:
    start = finding.span.start
    where = in_cell(finding) or f"{start.row}:{start.column}: "
    return f"{quoted(finding.path)}:{where}{finding.code} {finding.name}: {word}"


def fixes(settled: Sequence[Settled]) -> str:
    """Findings with what their fixes do to the program, and a line of totals."""
    lines: list[str] = []
    for item in settled:
        finding, fix = item.plan.finding, item.verdict.fix or Comparison(Answer.NOT_RUN, item.verdict.reason)
        lines.append(_heading(finding, fix.answer.value))
        if finding.fix is not None:
            lines.append(f"    fix: {finding.fix.message}")
        if fix.why:
            lines.append(f"    because {fix.why}" if fix.answer is not Answer.SAME else f"    {fix.why}")
        if fix.phases > 1:
            lines.append(f"    run in {fix.phases} phases")
    counts = Counter(item.verdict.fix.answer if item.verdict.fix else Answer.NOT_RUN for item in settled)
    parts = [f"{counts[answer]} {answer.value}" for answer in Answer if counts[answer]]
    words = f"{len(settled)} fix{'es' if len(settled) != 1 else ''}" + (f": {', '.join(parts)}" if parts else "")
    return "\n".join([*lines, *([""] if lines else []), f"{words}."]) + "\n"


def caveats(settled: Sequence[Settled]) -> list[str]:
    """What the figures do not say, for those that were measured so."""
    runs = [item.verdict.before for item in settled if item.verdict.before is not None]
    words = []
    if any(run.graphs_built for run in runs):
        words.append(
            "Models that are not visible were replaced by stand-ins that save 1 MiB per forward: graphs per step also hold for the "
            "real model, bytes and node counts do not."
        )
    if any(run.device == "cpu" for run in runs):
        words.append(
            "Bytes were measured on the CPU; on CUDA each block is rounded up to 512 B, and dropout and attention save less."
        )
    return words


def totals(settled: Sequence[Settled]) -> str:
    """ "3 findings: 2 confirmed, 1 inconclusive. Sandbox: namespaces. torch 2.13.0, cpu." """
    counts = Counter(item.verdict.outcome for item in settled)
    parts = [f"{counts[outcome]} {outcome.value}" for outcome in Outcome if counts[outcome]]
    ran = [item for item in settled if item.sandbox]
    how = ", ".join(sorted({item.sandbox for item in ran}))
    where = ", ".join(sorted({f"torch {item.torch}, {item.verdict.device}" for item in ran if item.torch}))
    words = f"{len(settled)} finding{'s' if len(settled) != 1 else ''}" + (f": {', '.join(parts)}" if parts else "")
    return ". ".join(part for part in (words, f"Sandbox: {how}" if how else "", where) if part) + "."


def as_json(settled: Sequence[Settled]) -> str:
    """The array of ``check --output-format json``, each finding with its ``confirm``."""
    context = Context()
    rows = [
        {
            **entry(item.plan.finding, context),
            "confirm": {**verdict_json(item.verdict), "measured": measured(item.verdict), "sandbox": item.sandbox or None},
        }
        for item in settled
    ]
    return dumped(rows, indent=2) + "\n"
