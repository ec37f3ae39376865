"""``--findings``: what each finding of a program costs there, at its own sizes.

The flagged and the fixed program are both run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from torchmemlint.budget import runs
from torchmemlint.budget.runs import Estimate, Options
from torchmemlint.budget.sizes import written
from torchmemlint.confirm.plan import fixed_twin
from torchmemlint.files.reading import MAX_BYTES, read_text
from torchmemlint.findings import INTERNAL_ERROR, UNPARSABLE, UNUSED_SUPPRESSION, Finding

SMALL = 4096
"""Less than this is no price: a few blocks of the allocator."""


@dataclass(frozen=True, slots=True)
class Price:
    """What a finding costs: at the peak of the run, and in each step beyond; ``reason`` says why it has none."""

    finding: Finding
    peak: int = 0
    growth: int = 0
    reason: str = ""

    @property
    def order(self) -> tuple[int, int, str, int]:
        """The costliest first: what grows before what does not."""
        return -self.growth, -self.peak, self.finding.path, self.finding.span.start.row

    def words(self, whole: int) -> str:
        """``412 MiB of 5.30 GiB at the peak, and 40 MiB more with each batch``."""
        if self.reason:
            return self.reason
        parts = [f"{written(self.peak)} of {written(whole)} at the peak"] if self.peak >= SMALL else []
        parts += [f"{written(self.growth)} more with each batch"] if self.growth >= SMALL else []
        if self.peak <= -SMALL:
            parts.append(f"the fixed program needs {written(-self.peak)} more at the peak")
        return ", and ".join(parts) or "costs no device memory here"


ABOUT_THE_RUN = frozenset({UNPARSABLE, INTERNAL_ERROR, UNUSED_SUPPRESSION})
"""Findings that are about files, not about memory."""


def findings_of(path: str, root: str) -> list[Finding]:
    """Those of the program and of the project's files, notes among them. Raises what ``check_paths`` raises."""
    from torchmemlint import check_paths

    found = check_paths([root if os.path.isdir(root) else path], options={"notes": True})
    return [finding for finding in found if finding.code not in ABOUT_THE_RUN]


def priced(
    findings: Sequence[Finding], job: Mapping[str, object], options: Options, run: Callable[..., Estimate] = runs.estimate
) -> tuple[Estimate, list[Price]]:
    """The run of the program as it is, to the end of its first epoch, and the price of each finding, the costliest first."""
    flagged = run(job, options, whole=True)
    if not flagged.budget:
        return flagged, []

    def price(finding: Finding) -> Price:
        path = os.path.realpath(finding.path)
        if path not in flagged.ran:
            return Price(finding, reason="cost unknown: the program did not run this file")
        twin = fixed_twin(finding, read_text(path, MAX_BYTES))
        if twin is None:
            return Price(finding, reason="cost unknown: it has no automatic fix to compare with")
        fixed = run(job, options, whole=True, replaced={path: twin[0]})
        if not fixed.budget:
            return Price(finding, reason=f"cost unknown: the fixed program could not be run: {fixed.reason}")
        return Price(finding, flagged.allocated - fixed.allocated, _growth(flagged, fixed))

    with ThreadPoolExecutor(2) as pool:
        return flagged, sorted(pool.map(price, findings), key=lambda item: item.order)


def _growth(flagged: Estimate, fixed: Estimate) -> int:
    """How much more the flagged program keeps with each batch than the corrected one, in the loop where that is most."""
    return max((flagged.growth[loop] - fixed.growth.get(loop, 0) for loop in flagged.growth), default=0)
