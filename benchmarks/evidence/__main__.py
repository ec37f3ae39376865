"""``python -m benchmarks.evidence --device cpu|cuda``: every fixture pair and every claim, into one dated record (JSON)
and its table (Markdown)."""

from __future__ import annotations

import argparse
import datetime
import json
import math
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.pairs import Pair, find_pairs, settle_pair
from torchmemlint import __version__
from torchmemlint.confirm.report import size
from torchmemlint.confirm.verdict import run_json

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDS = Path(__file__).parent / "records"


def measure_pair(pair: Pair, device: str, timeout: float) -> dict[str, object]:
    """One pair's row of the record."""
    verdict, ended = settle_pair(pair, device, timeout)
    return {
        "code": pair.code,
        "pair": pair.name,
        "verdict": verdict.outcome.value,
        "kind": verdict.kind,
        "reason": verdict.reason,
        "control_flat": verdict.helped,
        "before": run_json(verdict.before),
        "after": run_json(verdict.after),
        "seconds": round(ended.seconds, 1),
    }


def measure_claims(device: str, only: Sequence[str] = ()) -> list[dict[str, object]]:
    """The claims' rows; the first one names the device."""
    command = [sys.executable, "-m", "benchmarks.evidence.claims", "--device", device, *(["--only", *only] if only else [])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
    return rows


def table(record: dict[str, object]) -> str:
    """The record for reading."""
    pairs, claims = record["pairs"], record["claims"]
    assert isinstance(pairs, list)
    assert isinstance(claims, list)
    lines = [
        f"# Evidence, {record['date']}, {record['device']}",
        "",
        f"torchmemlint {record['torchmemlint']}, torch {record['torch']}, Python {record['python']}. Written by `python "
        f"-m benchmarks.evidence`.",
        "",
        "## Fixture pairs",
        "",
        "Growth per step of what `run(steps)` keeps, with the mistake and corrected; graphs are those of one step of "
        "the same program.",
        "",
        "| pair | verdict | bytes/step | graphs/step | nodes/step | peak | corrected: bytes/step | nodes/step | peak |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in pairs:
        before, after = row["before"], row["after"]
        name = f"{row['code']} {row['pair']}"
        if not before or not after:
            lines.append(f"| {name} | {row['verdict']}: {row['reason']} | | | | | | | |")
            continue
        kind = row["kind"] or row["reason"]
        lines.append(
            f"| {name} | {row['verdict']}: {kind} | {before['live_bytes_per_step']} | {before['graphs_per_step']:.2f} | "
            f"{before['nodes_per_step']} | "
            f"{size(before['peak_bytes'])} | {after['live_bytes_per_step']} | {after['nodes_per_step']} | "
            f"{size(after['peak_bytes'])} |"
        )
    lines += ["", "## Claims", "", "Ratios of seconds are of CPU seconds on a CPU (one thread), of wall time elsewhere.", ""]
    for claim in dict.fromkeys(str(row["claim"]) for row in claims):
        rows = [row for row in claims if row["claim"] == claim]
        columns = [key for key in dict.fromkeys(key for row in rows for key in row) if key != "claim"]
        lines += [f"### {claim}", "", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        lines += ["| " + " | ".join(_cell(column, row.get(column, "")) for column in columns) + " |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def _cell(column: str, value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, int) and column.split("_")[0] in {
        "peak",
        "base",
        "activations",
        "kept",
        "plain",
        "allocated",
        "reserved",
        "held",
    }:
        return size(value)
    return str(value)


def renewed(record: dict[str, object], rows: Sequence[dict[str, object]]) -> dict[str, object]:
    """A record with these claims' rows in the place of its own of the same names."""
    old = record["claims"]
    assert isinstance(old, list)
    names = {row["claim"] for row in rows}
    return {**record, "claims": [*(row for row in old if row["claim"] not in names), *rows]}


def write(record: dict[str, object], stem: Path) -> None:
    """The record as JSON and as a table."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    stem.with_suffix(".md").write_text(table(record) + "\n", encoding="utf-8")


def main() -> int:
    """Measure and write; 1 when a pair that this device can show is not confirmed."""
    parser = argparse.ArgumentParser("python -m benchmarks.evidence", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--fixtures", type=Path, default=ROOT / "fixtures")
    parser.add_argument("--output", type=Path, default=RECORDS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--limit", type=float, default=math.inf, metavar="SECONDS", help="begin no pair after so many seconds")
    parser.add_argument("--claims", nargs="+", default=[], metavar="CLAIM", help="of the claims measure these alone")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="CLAIM", help="measure these claims alone, into the latest record"
    )
    arguments = parser.parse_args()
    if arguments.only:
        latest = max(arguments.output.glob(f"*-{arguments.device.replace(':', '')}.json"))
        rows = measure_claims(arguments.device, arguments.only)[1:]
        write(renewed(json.loads(latest.read_text(encoding="utf-8")), rows), latest.with_suffix(""))
        print(latest)
        return 0
    jobs = 1 if arguments.device != "cpu" else arguments.jobs
    end = time.monotonic() + arguments.limit
    about, *claims = measure_claims(arguments.device, arguments.claims) or [{}]

    def measured(pair: Pair) -> dict[str, object] | None:
        return measure_pair(pair, arguments.device, arguments.timeout) if time.monotonic() < end else None

    found = list(find_pairs(arguments.fixtures))
    with ThreadPoolExecutor(jobs) as threads:
        pairs = [row for row in threads.map(measured, found) if row is not None]
    record: dict[str, object] = {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "device": about.get("device", arguments.device),
        "torch": about.get("torch", ""),
        "python": platform.python_version(),
        "torchmemlint": __version__,
        "pairs": pairs,
        "claims": claims,
    }
    stem = arguments.output / f"{record['date']}-{arguments.device.replace(':', '')}"
    write(record, stem)
    failed = [row for row in pairs if row["verdict"] != "confirmed"]
    print(f"{len(pairs)} of {len(found)} pairs, {len(pairs) - len(failed)} confirmed; {len(claims)} figures of claims")
    print(stem.with_suffix(".json"))
    for row in failed:
        print(f"  {row['code']} {row['pair']}: {row['verdict']}: {row['reason']}")
    return 1 if failed or len(pairs) < len(found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
