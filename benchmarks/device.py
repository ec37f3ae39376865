"""``python -m benchmarks.device [--device cuda] FILE…``: all that waits for a GPU, in one command of at most eight minutes.

Three things are measured there, one after the other, and written into one dated record as soon as each is done: the evidence
(``benchmarks.evidence``: the claims of docs/costs.md, then the fixture pairs, as many as half of the time allows), ``torchmemlint
confirm`` on each of the programs, and ``torchmemlint run`` on those that are given with ``--run``. What the time does not allow is in the
record as not measured. Exit status: 0 all was measured, 1 something was not, 2 wrong usage or no such device.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from torchmemlint import __version__

ROOT = Path(__file__).resolve().parents[1]
RECORDS = Path(__file__).parent / "evidence" / "records"
LIMIT = 480.0
"""Seconds: what is left of a quarter of an hour on a lent machine when it has started and installed torch."""
ABOUT = """
import json, platform, sys, torch
device = torch.device(sys.argv[1])
torch.ones(1, device=device)
name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
print(json.dumps({"name": name, "torch": torch.__version__, "python": platform.python_version()}))
"""


class Clock:
    """The seconds that are left."""

    def __init__(self, limit: float) -> None:
        self._end = time.monotonic() + limit

    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())


def run(command: Sequence[str], seconds: float) -> dict[str, object]:
    """What a command says and how it ends; it and all that it started are ended after so many seconds."""
    if seconds < 1:
        return {"measured": False, "why": "no time was left"}
    begun = time.monotonic()
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, complaint = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, complaint = process.communicate()
        return {"measured": False, "why": f"not done after {seconds:.0f} s", "output": out, "errors": complaint[-2000:]}
    return {
        "measured": process.returncode in (0, 1),
        "status": process.returncode,
        "seconds": round(time.monotonic() - begun, 1),
        "output": out,
        "errors": complaint[-2000:],
    }


def evidence(device: str, fixtures: Path, claims: Sequence[str], clock: Clock) -> dict[str, object]:
    """The record of ``benchmarks.evidence`` on the device, in half of the time."""
    share = clock.left() / 2
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.evidence", "--device", device, "--output", folder]
        command += ["--fixtures", str(fixtures), "--timeout", "30", "--limit", str(share)]
        row = run([*command, *(["--claims", *claims] if claims else [])], share + 45)
        for written in Path(folder).glob("*.json"):
            row["record"] = json.loads(written.read_text(encoding="utf-8"))
    return row


def confirmed(device: str, program: Path, clock: Clock) -> dict[str, object]:
    """What ``confirm`` says of a program."""
    command = [sys.executable, "-m", "torchmemlint", "confirm", str(program), "--device", device, "--timeout", "30"]
    row = run([*command, "--output-format", "json"], min(clock.left(), 60))
    if row["measured"]:
        row["findings"] = json.loads(str(row.pop("output")))
    return {"program": program.name, **row}


def watched(program: Path, clock: Clock) -> dict[str, object]:
    """What ``run`` says of a program, which itself chooses the device."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [sys.executable, "-m", "torchmemlint", "run", "--output-format", "json", "--output-file", str(report)]
        row = run([*command, str(program)], min(clock.left(), 60))
        if report.exists():
            row["report"] = json.loads(report.read_text(encoding="utf-8"))
    return {"program": program.name, **row}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser("python -m benchmarks.device", description="All that waits for a GPU, into one record.")
    parser.add_argument("programs", nargs="*", type=Path, metavar="FILE", help="programs for confirm")
    parser.add_argument("--run", nargs="*", type=Path, default=[], metavar="FILE", help="programs for run")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu (default: cuda)")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS")
    parser.add_argument("--fixtures", type=Path, default=ROOT / "fixtures")
    parser.add_argument("--claims", nargs="+", default=[], metavar="CLAIM", help="of the claims measure these alone")
    parser.add_argument("--output", type=Path, default=RECORDS, metavar="FOLDER")
    options = parser.parse_args(arguments)
    absent = [str(path) for path in (*options.programs, *options.run) if not path.is_file()]
    if absent:
        print(f"no such file: {' '.join(absent)}", file=sys.stderr)
        return 2
    clock = Clock(options.limit)
    about = run([sys.executable, "-c", ABOUT, options.device], min(clock.left(), 120))
    if about.get("status") != 0:
        last = str(about.get("errors", "")).strip().rpartition("\n")[2] or str(about.get("why", ""))
        print(f"nothing can be measured on {options.device}: {last}", file=sys.stderr)
        return 2
    day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    record: dict[str, object] = {"date": day, "torchmemlint": __version__, "device": json.loads(str(about["output"]))}
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / f"{day}-{options.device.replace(':', '')}-all.json"
    rows: list[dict[str, object]] = []

    def note(part: str, row: dict[str, object]) -> None:
        rows.append(row)
        done = record.setdefault(part, [])
        assert isinstance(done, list)
        done.append(row)
        file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    note("evidence", evidence(options.device, options.fixtures, options.claims, clock))
    for program in options.programs:
        note("confirm", confirmed(options.device, program.resolve(), clock))
    for program in options.run:
        note("run", watched(program.resolve(), clock))
    print(f"{sum(bool(row['measured']) for row in rows)} of {len(rows)} measured: {file}")
    return 0 if all(row["measured"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
