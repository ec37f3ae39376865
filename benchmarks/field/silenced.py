"""``python -m benchmarks.field.silenced REPOSITORIES WORK``: draws candidates that a soft fact silences, for people to read.

REPOSITORIES holds ``owner+name`` for each repository of a sample, at its commit; WORK keeps what each of them gave, so that a run that
was cut off goes on where it ended (candidates of another version of the linter go when WORK goes). The rules are asked as in any
check, and as ``trace`` asks them. Writes, beside WORK, ``WORK.jsonl``: the candidates with the fact that silenced each, and
``WORK_list.jsonl``: what readers get, which says nothing of facts.

No candidate is one that a gate ends, in the same run or behind the soft fact, nor one at a place where something is found.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.field.evidence import readings, repositories
from torchmemlint.analysis import make_runs
from torchmemlint.errors import SourceError
from torchmemlint.findings import Confidence, Finding, Severity, Span
from torchmemlint.index.project import Project
from torchmemlint.project.config import CommandLine, Configuration
from torchmemlint.project.settings import Settings
from torchmemlint.rules.api import Draft, Flow, short
from torchmemlint.rules.evidence.candidate import Candidate
from torchmemlint.rules.fact import Fact
from torchmemlint.rules.gradmode.judgement import facts_of
from torchmemlint.rules.scorecard import by_hand, silences
from torchmemlint.run import Means, check_paths
from torchmemlint.running.profile import Profile
from torchmemlint.semantics.roots.runs import Runs
from torchmemlint.semantics.state.events import Accumulate, Store
from torchmemlint.semantics.state.flow_state import RunLimit
from torchmemlint.semantics.state.graphs import Graph, Site
from torchmemlint.source.notebook import CellRows, in_cells
from torchmemlint.source.tolerant import Reading
from torchmemlint.workers import read

CODES = ("TML101", "TML102", "TML103", "TML104", "TML201", "TML203", "TML301", "TML401", "TML506")
DRAWN, OF_A_FACT, OF_A_REPOSITORY = 200, 12, 8
SHOWN = ("id", "repo", "path", "cell", "row", "code", "callee")
"""What readers are told."""
MAX_BEHIND = 1_000_000
"""Steps that it may take to see what stands behind a soft fact; where it takes more, the rest is not seen."""
MAX_SECONDS = 900
SOFT = by_hand()["silences"]["soft"]
"""Facts that silence by a judgement; the others that silence are gates."""

Entry = dict[str, Any]
Place = tuple[str, str, int]
"""A file, an outermost function, and a node of it."""


@dataclass(slots=True)
class Seen:
    """What is silenced at one place, for one rule: where and what it is, and what silences it in each run of the function."""

    span: Span
    callee: str
    function: str
    runs: dict[int, list[Fact]] = field(default_factory=dict)


@dataclass(slots=True)
class Collector(Profile):
    """Asks the rules as a profile does, and keeps what silences them."""

    project: Project | None = None
    seen: dict[tuple[Place, str, Place], Seen] = field(default_factory=dict)
    """By the place of a finding, its rule, and where the event itself is: a call runs several of which some stand elsewhere."""
    found: set[Place] = field(default_factory=set)
    """Where a finding stands in some run, whichever rule's and however sure."""
    unplaced: int = 0
    _sources: dict[str, tuple[Reading | None, CellRows | None]] = field(default_factory=dict)
    _flow: Flow | None = None
    _run: int = 0
    _gated: set[tuple[Place, str, Place]] = field(default_factory=set)
    """What gates ended in this run."""

    def make_runs(self, project: Project, settings: Settings, read: Callable[[str], str]) -> Runs:
        self.project = project
        return make_runs(project, settings, read)

    def ask(self, module: Any, event: Any, flow: Any) -> Iterable[Any]:
        answers = list(module.check(event, flow))
        facts = [answer for answer in answers if isinstance(answer, Fact) and silences(answer)]
        if any(isinstance(answer, Draft) for answer in answers):
            self.found.add(place_of(flow.own_site(event.site), flow))
        elif facts and module.RULE.code in CODES:
            if flow is not self._flow:
                self._flow, self._run, self._gated = flow, self._run + 1, set()
            try:
                self._keep(module.RULE.code, event, flow, facts)
            except SourceError:  # nothing could show the place
                self.unplaced += 1
        return answers

    def _keep(self, code: str, event: Any, flow: Flow, facts: list[Fact]) -> None:
        site = flow.own_site(event.site)
        if site.node < 0:
            return
        key = (place_of(site, flow), code, place_of(event.site, flow))
        if not all(map(is_soft, facts)):
            self._gated.add(key)
        if key not in self.seen:
            if key in self._gated:
                return  # most that is silenced is: libcst need not read where it stands
            callee = short(event.place) if isinstance(event, Store | Accumulate) else flow.callee(site)
            self.seen[key] = Seen(flow.span(site), callee, flow.frame(site).ref.qualname)
        of_run = self.seen[key].runs.setdefault(self._run, [])
        of_run += facts
        if all(map(is_soft, of_run)) and isinstance(event, Graph):
            of_run += silencing(event, flow)

    def candidates(self, folder: Path) -> list[Entry]:
        """Each place and rule that soft facts alone silence in some run, as data: the one that the rule hears, and the others."""
        entries: dict[tuple[Place, str], Entry] = {}
        for (place, code, _), seen in self.seen.items():
            soft = [fact for facts in seen.runs.values() if all(map(is_soft, facts)) for fact in facts]
            if place in self.found or (place, code) in entries or not soft:
                continue
            finding = self._placed(place[0], code, seen)
            entries[place, code] = {
                "path": Path(place[0]).resolve().relative_to(folder.resolve()).as_posix(),
                "cell": finding.cell,
                "row": finding.span.start.row,
                "column": finding.span.start.column,
                "code": code,
                "callee": seen.callee,
                "fact": soft[0].name,
                "words": soft[0].words,
                "known_by": soft[0].known_by.value,
                "also": sorted({fact.name for fact in soft} - {soft[0].name}),
                "function": seen.function,
            }
        return sorted(entries.values(), key=lambda one: (one["path"], one["cell"] or 0, one["row"], one["column"], one["code"]))

    def _placed(self, path: str, code: str, seen: Seen) -> Finding:
        """A stand-in for the finding, at its place in the file, or in the cell of a notebook."""
        assert self.project is not None
        finding = Finding(code, "", Severity.NOTE, Confidence.LOW, "", path, seen.span)
        if path not in self._sources:
            source = read(path)
            self._sources[path] = source.reading(self.project.module(path).recovered), source.cells
        reading, cells = self._sources[path]
        if reading is not None:
            finding = reading.relocated(finding)
        return in_cells(finding, lambda _: cells)


def place_of(site: Site, flow: Flow) -> Place:
    """A site by the text that it stands in, whatever runs that."""
    ref = flow.frame(site).ref
    return ref.path, flow.runs.world.outermost(ref).qualname, site.node


def is_soft(fact: Fact) -> bool:
    """Whether what silences is a judgement, and no gate."""
    return fact.name in SOFT


def silencing(event: Graph, flow: Flow) -> list[Fact]:
    """All that silences a forward, where the rules hear the first alone: what a gate ends anyhow is no matter of judgement."""
    meter = flow.runs.world.asking
    left, meter.left = meter.left, MAX_BEHIND
    found = []
    try:
        for fact in facts_of(Candidate(event, flow)):
            if silences(fact):
                found.append(fact)
                if not is_soft(fact):
                    break
    except RunLimit:
        pass
    finally:
        meter.left = left
    return found


def collected(folder: Path) -> Entry:
    """What is silenced in a repository, and how much of it was lost."""
    collector = Collector()
    outcome = check_paths([str(folder)], Configuration(CommandLine(isolated=True)), means=Means(profile=collector))
    return {"candidates": collector.candidates(folder), "unplaced": collector.unplaced, "crashes": list(outcome.crashes)}


def of_repository(repositories: Path, name: str, work: Path) -> Entry | None:
    """As ``collected``, in a process of its own and remembered in ``work``; None where it failed."""
    kept = work / f"{name}.json"
    if not kept.exists():
        command = [sys.executable, "-m", "benchmarks.field.silenced", str(repositories), str(work), "--only", name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MAX_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"{name}: took more than {MAX_SECONDS} s", file=sys.stderr)
            return None
        if done.returncode:
            print(f"{name}: ended with {done.returncode}: {done.stderr[-300:].strip()}", file=sys.stderr)
            return None
    remembered: Entry = json.loads(kept.read_text(encoding="utf-8"))
    return remembered


def drawn(candidates: Iterable[Entry], seed: int, later: frozenset[str] = frozenset()) -> list[Entry]:
    """A sample by fact: in turn each fact, the rarest first, gives one of its candidates until there are enough: the one of whose
    repository it gave fewest, and of those by chance. Repositories that were read come ``later`` than any other."""
    mixed = sorted(
        candidates, key=lambda one: (one["repo"], one["path"], one["cell"] or 0, one["row"], one["column"], one["code"])
    )
    random.Random(seed).shuffle(mixed)
    by_fact: dict[str, list[Entry]] = defaultdict(list)
    for one in mixed:
        by_fact[one["fact"]].append(one)
    taken: list[Entry] = []
    places: set[tuple[object, ...]] = set()
    of_repository, of_both = Counter[str](), Counter[tuple[str, str]]()

    def next_of(fact: str) -> Entry | None:
        left = [one for one in by_fact[fact] if of_repository[one["repo"]] < OF_A_REPOSITORY and place(one) not in places]
        return min(left, key=lambda one: (one["repo"] in later, of_both[one["repo"], fact]), default=None)

    for _ in range(OF_A_FACT):
        for fact in sorted(by_fact, key=lambda name: (len(by_fact[name]), name)):
            given = next_of(fact) if len(taken) < DRAWN else None
            if given is not None:
                taken.append(given)
                places.add(place(given))
                of_repository[given["repo"]] += 1
                of_both[given["repo"], fact] += 1
    return taken


def place(one: Mapping[str, Any]) -> tuple[object, ...]:
    """Where a candidate is; two rules that are silenced there are read once."""
    return one["repo"], one["path"], one["cell"], one["row"]


def numbered(taken: Iterable[Entry]) -> list[Entry]:
    """The sample by repository and file, so that the order says nothing of facts."""
    ordered = sorted(taken, key=lambda one: (one["repo"], one["path"], one["cell"] or 0, one["row"], one["column"]))
    return [{"id": number} | one for number, one in enumerate(ordered, 1)]


def write(path: Path, entries: Iterable[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(one) + "\n" for one in entries), encoding="utf-8")


def table(counts: Counter[str], of: Counter[str]) -> str:
    return "\n".join(f"{counts[name]:5} of {of[name]:6}  {name}" for name in sorted(of, key=lambda name: (-counts[name], name)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("repositories", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--sample", default="twentyfirst", help="a sample of repositories.txt")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", metavar="OWNER+NAME", help="collect in this repository, and draw nothing")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.only:
        text = json.dumps(collected(options.repositories / options.only))
        (options.work / f"{options.only}.json").write_text(text, encoding="utf-8")
        return
    candidates: list[Entry] = []
    counts = Counter[str]()
    for repository, commit in sorted(repositories()[options.sample].items()):
        name = repository.replace("/", "+")
        there = (options.repositories / name).is_dir()
        given = of_repository(options.repositories, name, options.work) if there else None
        counts["repositories" if given else "repositories that failed" if there else "repositories that are not there"] += 1
        if given:
            of = {"sample": options.sample, "repo": repository, "commit": commit}
            candidates += [of | one for one in given["candidates"]]
            counts["candidates without a place"] += given["unplaced"]
            counts["crashes"] += len(given["crashes"])
    taken = numbered(drawn(candidates, options.seed, frozenset(row["repo"] for row in readings())))
    write(options.work.with_name(f"{options.work.name}.jsonl"), taken)
    write(options.work.with_name(f"{options.work.name}_list.jsonl"), ({key: one[key] for key in SHOWN} for one in taken))
    for key in ("code", "fact"):
        print(table(Counter(one[key] for one in taken), Counter(one[key] for one in candidates)), end="\n\n")
    counts["candidates"], counts["drawn"] = len(candidates), len(taken)
    counts["repositories drawn from"] = len({one["repo"] for one in taken})
    print("\n".join(f"{count} {what}" for what, count in counts.items()))


if __name__ == "__main__":
    main()
