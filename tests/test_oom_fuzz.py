"""No log, however odd or hostile, crashes the reader, makes it slow, or reads differently in other portions."""

from __future__ import annotations

import io
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_oom_messages import FROM_FORMATS, KNOWN, STACK

from torchmemlint.oom.cases import read_log
from torchmemlint.oom.log_line import read_line
from torchmemlint.oom.meanings import Kind
from torchmemlint.oom.messages import find_head
from torchmemlint.oom.report import as_json, as_markdown, as_text
from torchmemlint.oom.stream import scan

LOGS = [str(entry["log"]) for entry in (*KNOWN, *FROM_FORMATS, *STACK)]
PARTS = sorted(
    {part for log in LOGS for part in log.replace(".", ". ").split(" ")}
    | {"\n", "\r", "\x1b[31m", "[rank0]: ", " ", "9" * 30, "\x00"}
)


def explain(raw: bytes) -> list[str]:
    log = read_log("log", io.BytesIO(raw))
    for case in log.cases:
        assert isinstance(case.diagnosis.kind, Kind)
        assert case.remedies
        assert len(case.message.text) <= 600
    for render in (as_text, as_markdown, as_json):
        render([log])
    return [case.diagnosis.kind.value for case in log.cases]


@given(st.binary(max_size=4000))
@settings(max_examples=150, deadline=None)
def test_binary(raw: bytes) -> None:
    explain(raw)


@given(st.text(max_size=2000))
@settings(max_examples=150, deadline=None)
def test_text(text: str) -> None:
    explain(text.encode("utf-8", "surrogatepass"))


@given(st.lists(st.sampled_from(PARTS), max_size=120))
@settings(max_examples=300, deadline=None)
def test_pieces_of_messages_in_any_order(parts: list[str]) -> None:
    explain(" ".join(parts).encode())


@given(st.sampled_from(LOGS), st.integers(0, 1000), st.integers(0, 1000), st.binary(max_size=6))
@settings(max_examples=300, deadline=None)
def test_truncated_and_damaged_messages(log: str, start: int, stop: int, inserted: bytes) -> None:
    raw = log.encode()
    low, high = sorted((start % (len(raw) + 1), stop % (len(raw) + 1)))
    explain(raw[low:high])
    explain(raw[:low] + inserted + raw[high:])


@pytest.mark.parametrize("log", LOGS, ids=[str(entry["name"]) for entry in (*KNOWN, *FROM_FORMATS, *STACK)])
def test_every_beginning_of_a_message_is_read(log: str) -> None:
    raw = log.encode()
    for end in range(0, len(raw), 7):
        explain(raw[:end])


class Portions:
    """A reader that hands out a few bytes at a time, as a pipe does."""

    def __init__(self, raw: bytes, seed: int) -> None:
        self.stream, self.random = io.BytesIO(raw), random.Random(seed)

    def read(self, size: int, /) -> bytes:
        return self.stream.read(min(size, self.random.randint(1, 5000)))


@pytest.mark.slow
@given(st.lists(st.one_of(st.sampled_from(LOGS), st.text(max_size=300)), max_size=40), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_portions_do_not_matter(lines: list[str], seed: int) -> None:
    raw = "\n".join(lines).encode("utf-8", "replace")
    whole = [(found.row, found.source, found.message) for found in scan(io.BytesIO(raw))]
    assert [(found.row, found.source, found.message) for found in scan(Portions(raw, seed))] == whole


SIZE = 150_000
HOSTILE = {
    "one letter": "a" * SIZE,
    "spaces": " " * SIZE,
    "digits": "1" * SIZE,
    "escape": "\x1b[" * SIZE,
    "open colours": "\x1b[0;1" * (SIZE // 5),
    "open links": "\x1b]8;;" * (SIZE // 5),
    "prefixes": "[rank1]: " * (SIZE // 9),
    "clocks": "2026-01-01 00:00:00,000 " * (SIZE // 24),
    "brackets": "[" * SIZE,
    "parentheses": "(" * SIZE,
    "words": "out of memory " * (SIZE // 14),
    "heads": "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; " * (SIZE // 55),
    "numbers in a head": "CUDA out of memory. Tried to allocate " + "1." * SIZE,
    "processes": "CUDA out of memory. Tried to allocate 1.00 GiB. " + "Process 1 has 1.00 GiB memory in use. " * (SIZE // 38),
    "unfinished assertion": "NVML_SUCCESS == " * (SIZE // 16),
    "unfinished path": 'NVML_SUCCESS == r INTERNAL ASSERT FAILED at "' + "/" * SIZE,
    "file lines": '  File "a.py", line 1, in f\n' * (SIZE // 28) + "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0;",
    "unfinished file": '  File "' + "x" * SIZE + "\nCUDA out of memory. Tried to allocate 1.00 GiB (GPU 0;",
    "arrows": "-" * SIZE + "\nCUDA out of memory. Tried to allocate 1.00 GiB (GPU 0;",
    "boxes": "│" * SIZE + "\nCUDA out of memory. Tried to allocate 1.00 GiB (GPU 0;",
    "dots": "a." * (SIZE // 2) + ": CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0;",
    "docker": '{"log":"' + "\\n" * SIZE + "CUDA out of memory.",
    "returns": "\r" * SIZE + "CUDA out of memory.",
    "loader": "DataLoader worker (pid(s) " + "1, " * (SIZE // 3) + ") is killed by signal: Killed",
}


@pytest.mark.timed
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_logs_take_linear_time(text: str) -> None:
    """Quadratic matching of 150 KB takes minutes; linear, a fraction of a second. The bound leaves room for a busy machine."""
    started = time.process_time()
    explain(text.encode())
    assert time.process_time() - started < 5


@pytest.mark.timed
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_one_long_line_takes_linear_time(text: str) -> None:
    started = time.process_time()
    line = read_line(text.replace("\n", " "))
    find_head(line.text)
    assert time.process_time() - started < 5
