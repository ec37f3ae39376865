"""Whether a fix changes what the program does: the original beside the corrected function, in every phase.

Compared are what the calls return and leave in their receiver and arguments, the graph and the gradients of every ``backward()``, and
exceptions. A *phase* is one answer to the ``if`` statements whose answer is not visible: as guessed first, then each of them
turned. Loops over what the code itself lists (``for phase in ["train", "val"]``) run over all of it, others a few steps.
"""

from __future__ import annotations

import ast
import math
import re
import time
from collections import Counter
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from torchmemlint.confirm.worker.experiments.fingerprints import close, first_difference, same, shown
from torchmemlint.confirm.worker.experiments.watching import Backward, Gradients, Seen, run_once
from torchmemlint.confirm.worker.program import Place, locate
from torchmemlint.confirm.worker.standins import Stage
from torchmemlint.confirm.worker.target import Target, target_of
from torchmemlint.str_enum import StrEnum

SECONDS = 10.0
"""No further phase is begun after this much CPU time."""
PHASES = 8
REPEATS = 3
"""So many more runs of each program must agree before a fix is said to change it."""
PARTS_OF_A_CALL = ("the return value", "the receiver", "the arguments")
"""What is compared of each call, in this order."""


class Cut(StrEnum):
    """What a fix takes from the backwards of the program on purpose.

    OTHERS   the gradients of parameters that nothing trains there: a teacher's, a generator's in the discriminator's step
    EARLIER  what earlier steps add to the gradients: the state of a recurrent network
    """

    NONE = ""
    OTHERS = "others"
    EARLIER = "earlier"


def compared(stage: Stage, job: Mapping[str, Any]) -> Mapping[str, object]:
    """The answer on the job's fix: "same", "differed" or "could not be run", and why; ``phases`` that were run."""
    try:
        return _compared(stage, job)
    except Exception as error:  # objects of the code are looked at, and may do what they like
        return {"answer": "could not be run", "why": f"{type(error).__name__}: {error}"[:300], "phases": 0}


def _compared(stage: Stage, job: Mapping[str, Any]) -> Mapping[str, object]:
    target = target_of(job)
    source = str(job["fixed_source"])
    function = _function_of(ast.parse(target.source), target.place.row) or ""
    corrected = target.fixed(source, _row_of_a_statement(source, int(job["fixed_row"]), function))
    meant = Cut(str(job.get("cuts", "")))
    deadline = time.process_time() + SECONDS
    waiting: list[frozenset[int]] = [frozenset()]
    phases = reached = 0
    worst, cut_off = "", False
    while waiting and phases < PHASES and (phases < 1 or time.process_time() < deadline):
        turned = waiting.pop(0)
        first = run_once(stage, target, turned)
        second = run_once(stage, corrected, turned)
        if first is None or second is None:
            return {"answer": "could not be run", "why": "the flagged line is in no statement", "phases": phases}
        phases += 1
        reached += first.reached
        why = difference(first, second, meant)
        if why:
            # The first run of all shows which parts stand-ins play: once it is known, the original may go another way, too.
            again = run_once(stage, target, turned)
            assert again is not None
            if difference(first, again):
                second = run_once(stage, corrected, turned) or second
                why, first = difference(again, second, meant), again
            if why and _varies(stage, target, corrected, turned, first, second):
                return {"answer": "could not be run", "why": "two runs of the original differ", "phases": phases}
        cut_off = cut_off or any(
            mine.nodes != other.nodes for mine, other in zip(first.backwards, second.backwards, strict=False)
        )
        raised = next((str(error) for error in first.errors if error.line == target.place.row), "")
        if why and raised:  # on stand-ins: what the statement does is not known
            return {"answer": "could not be run", "why": raised, "phases": phases}
        if why:
            where = f" (in phase {phases}: with inverted answers to the unknown `if` statements)" if turned else ""
            return {"answer": "differed", "why": f"{why}{where}", "phases": phases}
        worst = worst or next((str(error) for error in first.errors), "")
        if not turned:
            waiting += [frozenset({number}) for number in sorted(first.guessed)]
    if not reached:
        return {"answer": "could not be run", "why": worst or "the flagged line never ran", "phases": phases}
    notes = ["a backward goes through less of the graph, as the fix intends"] if cut_off else []
    notes += [f"as far as it ran: {worst}"] if worst else []
    return {"answer": "same", "why": "; ".join(notes), "phases": phases}


def _varies(stage: Stage, target: Target, corrected: Target, turned: frozenset[int], first: Seen, second: Seen) -> bool:
    """Whether a program has other results each time, such as one that reads memory that it never wrote: then a difference says nothing
    about its fix."""
    return any(
        difference(seen, run_once(stage, program, turned) or seen)
        for _ in range(REPEATS)
        for program, seen in ((target, first), (corrected, second))
    )


def _row_of_a_statement(source: str, row: int, function: str) -> int:
    """The row, or the nearest one above that has a statement of this function ("" for the module): a fix may remove the flagged one."""
    tree = ast.parse(source)
    return next((above for above in range(row, 0, -1) if _function_of(tree, above) == function), row)


def _function_of(tree: ast.Module, row: int) -> str | None:
    """The name of the function of a row's statement, "" at module level; None where there is no statement."""
    site = locate(tree, Place(row))
    return None if site is None else site.function.name if site.function is not None else ""


def difference(first: Seen, second: Seen, meant: Cut = Cut.NONE) -> str:
    """What the corrected function does otherwise than it is meant to, in words; "" for nothing."""
    known = Counter(_words(error.text) for error in first.errors)
    for error in second.errors:
        if known[_words(error.text)] <= 0:
            return f"line {error.line} of the fixed code: {error.text}"
        known[_words(error.text)] -= 1
    for mine, other in zip_longest(first.backwards, second.backwards):
        if mine is None or other is None:
            return "the fixed code runs a different number of backwards"
        if meant and cuts_only(mine, other, meant):
            continue
        if mine.nodes != other.nodes:
            fewer = sum((mine.nodes - other.nodes).values())
            more = sum((other.nodes - mine.nodes).values())
            return f"the backward on line {mine.row} goes through a different graph: {fewer} nodes less, {more} more"
        if not _gradients_agree(mine.gradients, other.gradients):
            return f"the backward on line {mine.row} leaves different gradients"
    return _other_result(first.results, second.results)


def cuts_only(mine: Backward, other: Backward, meant: Cut) -> bool:
    """Whether the corrected code's backward lacks what the fix is meant to take, and nothing else."""
    if other.nodes - mine.nodes or not other.nodes:
        return False
    if meant is Cut.EARLIER:
        return not Counter(shape for shape, _ in other.added) - Counter(shape for shape, _ in mine.added)
    added = [*other.added, *other.added_to_flagged]
    may_lack = list(mine.added_to_flagged)
    for leaf in mine.added:
        if not _taken(leaf, added):
            return False
    return all(_taken(leaf, may_lack) for leaf in added)


def _taken(leaf: tuple[tuple[int, ...], float | None], of: Gradients) -> bool:
    """Take a leaf of this shape, to which as much was added, out of ``of``; False where it has none."""
    found = next((index for index, (shape, amount) in enumerate(of) if shape == leaf[0] and _as_much(amount, leaf[1])), None)
    if found is None:
        return False
    del of[found]
    return True


def _as_much(mine: float | None, other: float | None) -> bool:
    """Whether two gradients are equal but for rounding: of a stand-in they are small."""
    if mine is None or other is None or not (math.isfinite(mine) and math.isfinite(other)):
        return mine is other or close(mine, other)
    return abs(mine - other) <= 1e-3 * max(abs(mine), abs(other)) + 1e-9


def _gradients_agree(mine: Gradients, other: Gradients) -> bool:
    return len(mine) == len(other) and all(
        one[0] == two[0] and _as_much(one[1], two[1]) for one, two in zip(mine, other, strict=True)
    )


def _words(text: str) -> str:
    """What an exception says, without the numbers, which differ from run to run. Where the limit of the recursion strikes differs, too:
    a decorator is one more frame."""
    if text.startswith(RecursionError.__name__):
        return RecursionError.__name__
    return re.sub(r"0x[0-9a-f]+|\d+", "N", text)


def _other_result(first: list[object], second: list[object]) -> str:
    """Which call leaves something else in the corrected code, where, and what; "" for none."""
    for number, (mine, other) in enumerate(zip_longest(first, second), 1):
        if same(mine, other):
            continue
        found = first_difference(mine, other)
        if found is None:
            return f"another result of call {number}"
        (part, *path), one, two = found
        where = PARTS_OF_A_CALL[part] if isinstance(part, int) and part < len(PARTS_OF_A_CALL) else str(part)
        inside = "".join(f"[{key!r}]" for key in path)
        return (
            f"another result: call {number} leaves {shown(two)} instead of {shown(one)} in {where}{inside and ' at ' + inside}"
        )
    return ""
