"""Room for frames: calls across the end of a chunk of frames cost no memory from the system."""

import sys
from collections.abc import Callable

import pytest

from torchmemlint.processes.frames import with_frame_chunk

CALLS = 300


def leaf(a: int) -> int:
    b = c = d = e = f = a
    return b + c + d + e + f


def deep(depth: int, faults: Callable[[], int]) -> list[int]:
    """At each depth, how many pages came in during many calls of one function."""
    before = faults()
    for number in range(CALLS):
        leaf(number)
    found = [faults() - before]
    return found + deep(depth - 1, faults) if depth else found


@pytest.mark.skipif(sys.platform != "linux" or sys.implementation.name != "cpython", reason="counts pages as Linux does")
def test_no_depth_is_dear() -> None:
    import resource

    def faults() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    plain = max(deep(300, faults))
    in_large_frame = max(with_frame_chunk(deep)(300, faults))
    assert in_large_frame < CALLS // 2
    if (3, 11) <= sys.version_info < (3, 14):  # as these do it: some depth has a page for each call
        assert plain >= CALLS


def test_arguments_answers_and_errors_pass() -> None:
    @with_frame_chunk
    def divide(a: int, *, by: int) -> float:
        """Of two numbers."""
        return a / by

    assert divide(6, by=4) == 1.5
    assert divide.__doc__ == "Of two numbers."
    with pytest.raises(ZeroDivisionError):
        divide(1, by=0)
