"""That the files of a linted project are opened by ``torchmemlint.files.reading`` alone, and what that opens."""

from __future__ import annotations

import ast
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchmemlint.files import reading
from torchmemlint.files.reading import UnfitFile, open_given, read_beginning, read_file, read_given, read_parts, reason

PACKAGE = Path(reading.__file__).parent.parent

NAMES = {"open", "open_code", "fdopen", "FileIO", "mmap", "getline", "getlines"}
METHODS = {*NAMES, "read_text", "read_bytes"}
"""What opens a file, by itself and as an attribute: ``os.open``, ``io.open``, ``tokenize.open``, ``Path.read_text``. An attribute
``open`` that is not called is one of ours."""

ALLOWED = {
    "files/reading.py": "the one way",
    "cli.py:_close_stdout": "the null device",
    "cli.py:_open_streams": "the null device, and the standard streams",
    "suppress/git.py:": "writes what is compared into a folder of its own",
    "files/writing.py:": "writes; what it compares with is opened without blocking, and is a regular file",
    "torch_facts/loader.py:load": "the package's own table",
    "rules/scorecard.py:": "the package's own tables",
    "rules/cost/table.py:": "the package's own table",
    "semantics/mode/purpose.py:_callees": "the package's own table",
    "incremental/cache.py:_write": "writes a file of the cache, under a name of its own",
    "incremental/cache.py:Cache.add_to_segment": "writes what this process alone adds to, under a name of its own",
    "processes/forks.py:": "a pipe to a process of ours",
    "confirm/warm.py:Forked.__init__": "the ends of a child's pipes",
    "growth/worker/running.py:_taken": "what our own command has just written",
    "confirm/sandbox.py": "/proc, and what a sandbox is made of",
    "growth/worker/fills.py:": "the code of a function that the user's program is running",
    "growth/worker/main.py:_run": "the program that the user asks to run, as Python itself opens it",
    "confirm/worker/": "runs in the sandbox, where the code itself may open what it likes",
    "confirm/landlock.py:_allow": "opens a place for the kernel's rule alone (O_PATH), and reads nothing",
    "incremental/location.py:": "the user's own secret, outside of any project",
    "budget/worker/": "runs in the sandbox, too",
    "oom/report_memory.py": "/proc",
}
"""What may open files for itself, by file or function, and why."""


def _openings() -> Iterator[tuple[str, int]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        yield from _in(ast.parse(path.read_text(encoding="utf-8")), name, ())


def _in(node: ast.AST, name: str, inside: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from _in(child, name, (*inside, child.name))
            continue
        called = isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute) and child.func.attr in METHODS
        named = isinstance(child, ast.Attribute) and child.attr in METHODS - {"open"}
        if called or named or (isinstance(child, ast.Name) and child.id in NAMES and isinstance(child.ctx, ast.Load)):
            assert isinstance(child, ast.expr)
            yield f"{name}:{'.'.join(inside)}", child.lineno
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            for alias in child.names:
                if alias.name.rpartition(".")[2] in {*NAMES, "linecache", "fileinput"}:
                    yield f"{name}:{'.'.join(inside)}", child.lineno
        yield from _in(child, name, inside)


@pytest.mark.slow
def test_nothing_else_opens_files() -> None:
    others = [f"{place} (row {row})" for place, row in _openings() if not place.startswith(tuple(ALLOWED))]
    assert others == []


@pytest.mark.slow
def test_every_exception_is_one() -> None:
    places = [place for place, _ in _openings()]
    assert [name for name in ALLOWED if not any(place.startswith(name) for place in places)] == []


def test_a_regular_file_up_to_a_limit(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    Path(path).write_bytes(b"12345")
    assert read_file(path, 5) == b"12345"
    assert read_beginning(path, 3) == b"123"
    assert b"".join(read_parts(path, 5)) == b"12345"
    with pytest.raises(UnfitFile, match="is larger than"):
        read_file(path, 4)
    with pytest.raises(UnfitFile, match="is larger than"):
        list(read_parts(path, 4))
    Path(path).write_bytes(b"")
    assert read_file(path, 5) == read_beginning(path, 5) == b""
    with pytest.raises(FileNotFoundError):
        read_file("no\0such", 5)
    with pytest.raises(IsADirectoryError) as raised:
        read_file(str(tmp_path), 5)
    assert reason(raised.value) == "is a folder, not a regular file"


def test_a_file_of_unknown_size(tmp_path: Path) -> None:
    if not os.path.exists("/proc/self/maps"):
        pytest.skip("no /proc")
    assert os.stat("/proc/self/maps").st_size == 0
    assert len(read_beginning("/proc/self/maps", 10)) == 10
    assert read_file("/proc/self/maps", 10_000_000).endswith(b"\n")
    with pytest.raises(UnfitFile, match="larger"):
        read_file("/proc/self/maps", 10)


def test_a_growing_file_is_read_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    real = os.read

    def grow(descriptor: int, count: int) -> bytes:
        with path.open("ab") as file:
            file.write(b"y" * 50)
        return real(descriptor, count)

    monkeypatch.setattr(os, "read", grow)
    assert len(read_beginning(str(path), 200)) <= 200
    with pytest.raises(UnfitFile):
        list(read_parts(str(path), 200))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs")
def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * 100)
    free = os.open(tmp_path, os.O_RDONLY)
    os.close(free)
    for name in ("pipe", "large", "none", "."):
        with pytest.raises(OSError, match=r"."):
            read_file(str(tmp_path / name), 10)
    assert next(read_parts(str(tmp_path / "large"), 100))
    again = os.open(tmp_path, os.O_RDONLY)
    os.close(again)
    assert again == free


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs")
def test_what_was_named_by_hand_may_be_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    def fill() -> None:
        (tmp_path / "pipe").write_bytes(b"text")

    writer = threading.Thread(target=fill)
    writer.start()
    assert read_given(str(tmp_path / "pipe"), 10) == b"text"
    writer.join()
    with pytest.raises(UnfitFile, match="is a device, not a regular file"):
        open_given("/dev/zero")
    with pytest.raises(IsADirectoryError):
        open_given(str(tmp_path))
