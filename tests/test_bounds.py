"""Time and memory are bounded: programs that once took minutes take seconds of CPU, and what is too large is reported as such."""

import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.bounds.__main__ import MIXTURES, faults, heaviest, over_memory, row, search, tree
from benchmarks.bounds.measure import Cost, cost
from benchmarks.bounds.shapes import SHAPES, random_mix
from benchmarks.bounds.whole import rows
from torchmemlint import analysis
from torchmemlint.index.module_facts import module_facts
from torchmemlint.index.project import ClassRef, Project
from torchmemlint.lower.limits import MAX_WEIGHT, weight
from torchmemlint.project.config import CommandLine, Configuration
from torchmemlint.project.gitignore import ignored, parse_ignore_file
from torchmemlint.project.globs import FOLDERS, REST, STAR, Globs, literally, pieces_of
from torchmemlint.project.settings import Settings
from torchmemlint.run import Outcome, check_paths
from torchmemlint.semantics.state import flow_state as state
from torchmemlint.semantics.state.values import EMPTY, Atom, Tensor, Unknown, join, join_all, normal
from torchmemlint.suppress.per_file import ignored_prefixes

STARS = ("a*a*a*a*a*a*a*a*b", "**/**/**/**/x", "**/a*/**/a*/**/a*/**/b", "*a*a*a*a*a*a*[b]")


def cpu(work: Callable[[], object]) -> float:
    before = os.times()
    work()
    after = os.times()
    return after.user + after.system - before.user - before.system


def checked(folder: Path) -> Outcome:
    return check_paths([str(folder)], Configuration(CommandLine(isolated=True)), 1)


# --- globs --------------------------------------------------------------------------------------------------------------


@pytest.mark.timed
@pytest.mark.parametrize("glob", STARS)
@pytest.mark.parametrize("path", ["a" * 3000, "a/" * 1500 + "c"])
def test_stars_take_no_time(glob: str, path: str) -> None:
    def match() -> None:
        assert not Globs([[FOLDERS, *pieces_of(glob)]]).match(path)
        assert not ignored_prefixes(Settings(root="/r", per_file_ignores=((glob, ("TML1",)),)), "/r/" + path[:400])
        rules = parse_ignore_file(glob, "/r")
        assert rules is not None
        assert not ignored("/r/" + path, False, [rules])

    assert cpu(match) < 5


@pytest.mark.timed
def test_stars_in_a_configuration_take_no_time(tmp_path: Path) -> None:
    folder = tmp_path / "/".join(["a" * 60] * 8)
    folder.mkdir(parents=True)
    (folder / ("a" * 100 + ".py")).write_text("import torch\n")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("".join(f"{glob}\n" for glob in STARS))
    quoted = ", ".join(f'"{glob}"' for glob in STARS)
    ignores = "".join(f'"{glob}" = ["TML1"]\n' for glob in STARS)
    (tmp_path / "torchmemlint.toml").write_text(f"exclude = [{quoted}]\n[per-file-ignores]\n{ignores}")
    outcome: list[Outcome] = []
    assert cpu(lambda: outcome.append(check_paths([str(tmp_path)], Configuration(CommandLine()), 1))) < 10
    assert len(outcome[0].settings) == 1


def test_an_automaton_matches_what_the_regular_expression_does() -> None:
    """The two ways to match a glob: forced to be an automaton by pieces that match nothing more, and as one expression."""
    chance = random.Random(1)
    parts = ["a", "b", "/", "*", "**", "?", "[ab]", "[!a]", "[^b-z]", "**/", "/**", ".", "\\*", "[z-a]", "["]
    seen = set()
    for _ in range(1500):
        pieces = pieces_of("".join(chance.choice(parts) for _ in range(chance.randint(1, 9))))
        expression = re.compile("".join(pieces) + r"\Z", re.DOTALL)
        automaton = Globs([[*pieces, STAR, STAR, STAR]]) if pieces[-1:] == [STAR] else Globs([pieces])
        for _ in range(12):
            text = "".join(chance.choice("aab//.*") for _ in range(chance.randint(0, 9)))
            assert automaton.match(text) == bool(expression.match(text)), (pieces, text)
            long = sum(piece in (STAR, FOLDERS, REST) for piece in pieces) > 2
            seen.add((long, automaton.match(text)))
    assert seen == {(True, True), (True, False), (False, True), (False, False)}


def test_a_folder_with_odd_letters_stands_for_itself() -> None:
    assert Globs([[*literally("/a+b*/"), *pieces_of("*c*c*c*.py")]]).match("/a+b*/ccc.py")


# --- a search -----------------------------------------------------------------------------------------------------------
# Of what is timed it takes longest, so it runs first: nobody waits for it at the end.

SEARCHED = 12


def is_grave(fault: str) -> bool:
    """Whether a fault is one of time, or of far more memory than is allowed."""
    megabytes, unit, _ = fault.partition(" MB, where ")
    return not unit or float(megabytes) > 200


@pytest.mark.timed
@pytest.mark.slow
def test_a_search_finds_nothing(tmp_path: Path) -> None:
    """In so many cases, the same ones on each machine: half a minute of CPU on a slow one."""
    record = tmp_path / "search.jsonl"
    wanted = [(name, 1200) for name in sorted(SHAPES)] + [(f"mix-{seed}", 400) for seed in range(MIXTURES)]
    chosen = random.Random(7).sample(wanted, SEARCHED)
    found = search(600, record, chosen)
    # Machines differ by some megabytes: none may need far more memory than is allowed.
    grave = {key: faults for key, faults in found.items() if any(is_grave(fault) for fault in faults)}
    assert grave == {}
    assert len(record.read_text().splitlines()) == SEARCHED


# --- functions ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_too_large_is_reported_and_no_error(tmp_path: Path) -> None:
    for name, text in SHAPES["sums_from_outside"](2400).items():
        (tmp_path / name).write_text(text)
    small = SHAPES["sums_from_outside"](30)["a.py"]
    (tmp_path / "b.py").write_text(small)
    run = subprocess.run(
        [sys.executable, "-m", "torchmemlint", "check", ".", "--isolated", "--no-cache", "--output-file", "out.sarif"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1
    assert run.stderr == "torchmemlint: note: a.py: train: function too large: not analyzed\n"
    assert "b.py" in run.stdout
    assert "a.py" not in run.stdout
    assert '"text": "a.py: train: function too large: not analyzed"' in (tmp_path / "out.sarif").read_text()


def test_a_step_more_or_less_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is counted is the same each time: a limit that a function just meets lets it pass, one step less does not."""
    (tmp_path / "a.py").write_text(SHAPES["sums_from_outside"](30)["a.py"])
    taken: Counter[state.Meter] = Counter()
    plain = state.Meter.take

    def take(meter: state.Meter, steps: int) -> None:
        taken[meter] += steps
        plain(meter, steps)

    monkeypatch.setattr(state.Meter, "take", take)
    assert checked(tmp_path).findings
    whole = max(taken.values())  # the other meter counts what the rules look at
    monkeypatch.setattr(state.Meter.__init__, "__defaults__", (whole,))
    assert checked(tmp_path).findings
    monkeypatch.setattr(state.Meter.__init__, "__defaults__", (whole - 1,))
    outcome = checked(tmp_path)
    assert not outcome.findings
    assert [line.endswith("train: function too large: not analyzed") for line in outcome.skipped] == [True]


@pytest.mark.timed
@pytest.mark.slow
@pytest.mark.parametrize("name", ["names_bound_to_each_other", "totals_of_one_loss", "gradients_zeroed"])
def test_questions_before_a_fix_take_no_time(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SHAPES[name](300)["a.py"])
    assert cpu(lambda: checked(tmp_path)) < 10


def test_a_finding_stays_where_its_fix_takes_too_long_to_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text(
        "import torch\n\ndef evaluate(model, loader):\n    model.eval()\n    for x in loader:\n        print(model(x).argmax())\n"
    )
    (before,) = checked(tmp_path).findings
    assert before.fix is not None
    monkeypatch.setattr(analysis, "MAX_TRACKED", 3)
    (after,) = checked(tmp_path).findings
    assert after.fix is None
    assert after.help.endswith("there is no automatic fix: it takes too long to follow")
    assert (after.code, after.message, after.span) == (before.code, before.message, before.span)


@pytest.mark.timed
@pytest.mark.slow
@pytest.mark.parametrize("name", ["swapped", "unpacked_loop", "pairs_of_pairs"])
def test_walks_over_graphs_are_counted(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the rules ask goes from graph to graph, for each graph, over all that are attached to it: a function that asks for
    too many of these steps is left out, one with fewer is not."""
    (tmp_path / "a.py").write_text(SHAPES[name](24)["a.py"])
    assert not checked(tmp_path).skipped
    (tmp_path / "a.py").write_text(SHAPES[name](150)["a.py"])
    outcome: list[Outcome] = []
    assert cpu(lambda: outcome.append(checked(tmp_path))) < 8
    monkeypatch.setattr("torchmemlint.analysis.MAX_WALKED", 1000)
    (skipped,) = checked(tmp_path).skipped
    assert skipped.endswith("a.py: train: function too large: not analyzed")


@pytest.mark.timed
@pytest.mark.parametrize(("name", "size"), [("f_strings", 5000), ("booleans", 20000), ("deep_unary", 20000)])
def test_python_is_not_given_what_fills_the_memory(name: str, size: int, tmp_path: Path) -> None:
    """A tree of many words and signs takes hundreds of bytes for each, so the file is left out before it is parsed."""
    (tmp_path / "a.py").write_text(SHAPES[name](size)["a.py"])
    (skipped,) = checked(tmp_path).skipped
    assert re.search(r"a\.py: skipped: more than [\d,]+ words and signs$", skipped)
    assert cost(SHAPES[name](size), 30).megabytes < 40


@pytest.mark.timed
@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), [("conditionals", 60), ("deep_unary", 1200), ("f_strings", 200), ("booleans", 1200)])
def test_libcst_is_not_given_what_fills_the_memory(name: str, size: int, tmp_path: Path) -> None:
    """Nested brackets, and signs in a row, take libcst kilobytes for each character."""
    (tmp_path / "a.py").write_text(SHAPES[name](size)["a.py"])
    outcome = checked(tmp_path)
    assert not outcome.findings
    assert [line.endswith("a.py: train: function too large: not analyzed") for line in outcome.skipped] == [True]
    measured = cost(SHAPES[name](size), 30)
    assert measured.megabytes < 90


@pytest.mark.timed
@pytest.mark.slow
@pytest.mark.parametrize("name", ["appended", "deleted", "sums_in_loop"])
def test_what_libcst_may_just_read_keeps_the_bound_of_memory(name: str) -> None:
    """As heavy as it gets: libcst's tree and where its nodes stand are in memory together."""
    files = SHAPES[name](heaviest(name))
    assert 0.98 * MAX_WEIGHT < weight(files["a.py"]) <= MAX_WEIGHT
    measured = cost(files, 120)
    assert measured.done
    assert over_memory(replace(measured, megabytes=measured.megabytes - BETWEEN_PYTHONS)) == []


BETWEEN_PYTHONS = 1.0
"""MB that one version of Python may take more than another from its start on."""


def test_what_is_in_brackets_weighs_more() -> None:
    assert weight("a + b  # ((((") == 6
    assert weight("f(a)") == 2 + 3 + 3 + 2
    assert weight("f(\na)\n\n  # a comment\nb\n") == weight("f(a)") + 2 + 2 + 2 + 2
    assert weight('\'((((\' + ("""((\n""")') == 2 + 2 + 3 + 3 + 2
    assert weight("f'{a}'") == 5 * 2
    assert weight("(" * 50 + ")" * 50) > 10 * weight("()" * 10)
    assert weight("-" * 90 + "x") > weight("- x\n" * 90)


@pytest.mark.timed
@pytest.mark.slow
@pytest.mark.parametrize("name", ["class_chain", "many_methods", "small_functions"])
def test_long_files_take_seconds_and_no_memory_for_each_function(name: str) -> None:
    """Twice the lines take twice the time at most, of which a machine that is busy takes more for both."""
    half, measured = cost(SHAPES[name](1000), 60), cost(SHAPES[name](2000), 60)
    assert measured.done
    assert measured.seconds < 10
    assert measured.seconds < 3 * half.seconds
    assert measured.megabytes < 130


def test_a_long_chain_of_classes_ends_unknown() -> None:
    chain = "\n".join(f"class C{i}(C{i - 1}): pass" for i in range(1, 300))
    facts = module_facts("a.py", f"import torch\nclass C0(torch.nn.Module): pass\n{chain}\n")
    project = Project.build([facts])
    orders = [project.mro(ClassRef("a.py", f"C{i}")) for i in range(300)]
    assert max(map(len, orders)) == 61
    assert orders[40][-1] == "torch.nn.Module"
    assert Project.build([facts]).mro(ClassRef("a.py", "C299")) == orders[299]
    assert project.is_subclass(ClassRef("a.py", "C299"), "torch.nn.Module") is None


def test_tensors_are_joined_at_once_as_two_by_two() -> None:
    chance = random.Random(3)

    def some() -> frozenset[int]:
        return frozenset(chance.sample(range(6), chance.randint(0, 3)))

    for _ in range(2000):
        flags = [chance.choice((0, 1, 2, 4, 16, 16384, 8192, 4096)) for _ in range(3)]
        atoms: list[Atom] = [*(Tensor(some(), some(), some(), flag) for flag in flags), Unknown(some()), Unknown()]
        values = [normal(chance.sample(atoms, chance.randint(0, 2))) for _ in range(chance.randint(0, 5))]
        pairs = EMPTY
        for value in values:
            pairs = join(pairs, value)
        assert join_all(values) == pairs


@pytest.mark.timed
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["sums_from_outside", "concatenated", "stored_by_key_outside", "nested_loops", "chain_of_models", "booleans"]
)
def test_long_functions_take_seconds(name: str) -> None:
    measured = cost(SHAPES[name](2400), 30)
    assert measured.done
    assert measured.seconds < 12
    assert measured.megabytes < 200


def test_mixtures_are_valid_and_the_same_each_time() -> None:
    for seed in range(MIXTURES):
        (text,) = random_mix(seed, 200).values()
        assert random_mix(seed, 200)["a.py"] == text
        compile(text, "a.py", "exec", dont_inherit=True)


def test_growth_and_memory_are_judged() -> None:
    known = {("x", 100): Cost(100, 1000, 2.0, 50, True), ("x", 200): Cost(200, 2000, 5.0, 300, True)}
    assert faults(("x", 100), known) == []
    assert faults(("x", 200), known) == ["300 MB, where 100 are allowed"]
    known["x", 400] = Cost(400, 4000, 30.0, 50, False)
    assert len(faults(("x", 400), known)) == 2


def test_a_record_is_of_one_state_of_the_code(tmp_path: Path) -> None:
    record = tmp_path / "search.jsonl"
    now, before = row(("appended", 3), Cost(3, 60, 1.0, 40, True)), row(("appended", 5), Cost(5, 90, 1.0, 40, True))
    record.write_text(now + before.replace(tree(), "0" * 12))
    assert search(0, record, [("appended", 3), ("appended", 5)]) == {}
    assert record.read_text() == now


@pytest.mark.timed
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is reported in other units elsewhere")
def test_a_run_over_a_folder_prints_what_each_file_took(tmp_path: Path) -> None:
    folder, record = tmp_path / "project", tmp_path / "records" / "whole.jsonl"
    folder.mkdir()
    for name, size in (("long", 800), ("short", 20)):
        (folder / f"{name}.py").write_text(SHAPES["appended"](size)["a.py"])
    (folder / "plain.py").write_text("VALUE = 1\n")
    lines = {path.name: path.read_text().count("\n") + 1 for path in folder.iterdir()}
    filled = b"1" * 200_000_000  # a process has its own memory, not that of the one that starts it
    ((name, row),) = rows([folder], record)
    del filled
    assert (name, row["files"], row["long"], row["lines"]) == ("project", 3, 1, sum(lines.values()))
    assert 0 < row["longest"][0] <= row["seconds"] < 60
    assert row["worst"][1] == row["longest"][1] == lines["long.py"]
    assert row["worst"][0] == pytest.approx(row["longest"][0] / lines["long.py"] * 1000, abs=0.1)
    assert 20 < row["megabytes"] < 100
    before = record.read_text()
    assert dict(rows([folder], record)) == {"project": row}  # it is not run again
    assert record.read_text() == before
