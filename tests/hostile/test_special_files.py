"""What is no regular file where one is looked for: it is neither waited for nor read without end."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from hostile.program import lint, run

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs")

TRAIN = """import torch
from helper import step

def train(model, loader):
    total = 0
    for x in loader:
        loss = step(model, x).sum()
        loss.backward()
        total += loss
    print(total)
"""
HELPER = "import torch\n\n\ndef step(model, x):\n    return model(x)\n"
FOUND = "train.py:9:9: TML101"


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_link_to_a_fifo(path: Path) -> None:
    os.mkfifo(path.parent / "pipe.of.ours")
    path.symlink_to("pipe.of.ours")


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the names of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


def a_huge_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def a_folder(path: Path) -> None:
    path.mkdir()


def a_loop_of_links(path: Path) -> None:
    path.symlink_to(path.name)


Make = Callable[[Path], None]
SPECIAL = [a_fifo, a_link_to_a_fifo, a_device, a_socket]
EVERY = [*SPECIAL, a_huge_file, a_folder, a_loop_of_links]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("make", EVERY)
def test_a_neighbour(project: Path, make: Make) -> None:
    make(project / "helper.py")
    for paths in (["train.py"], ["."]):
        done = lint(*paths, "--output-format", "concise", cwd=project)
        assert done.returncode == 1, done.stderr
        assert FOUND in done.stdout.decode()
        assert done.stderr in (b"", b"torchmemlint: note: helper.py: skipped: larger than 1 MB\n")


@pytest.mark.slow
@pytest.mark.parametrize("make", SPECIAL)
def test_named_by_hand(project: Path, make: Make) -> None:
    make(project / "helper.py")
    done = lint("helper.py", "train.py", "--output-format", "concise", cwd=project)
    assert done.returncode == 2
    (line,) = done.stderr.decode().splitlines()
    kinds: dict[Make, str] = {a_device: "a device", a_socket: "a socket"}
    assert line == f"torchmemlint: error: helper.py: is {kinds.get(make, 'a FIFO')}, not a regular file"
    assert FOUND in done.stdout.decode()


@pytest.mark.slow
def test_below_a_folder_it_is_reported_on_request(project: Path) -> None:
    os.mkfifo(project / "helper.py")
    assert b"helper.py: is a FIFO, not a regular file" in lint("-v", cwd=project).stderr


@pytest.mark.parametrize("name", ["pyproject.toml", "torchmemlint.toml"])
@pytest.mark.parametrize("make", [*SPECIAL, a_huge_file])
def test_a_configuration(project: Path, name: str, make: Make) -> None:
    make(project / name)
    done = lint("train.py", cwd=project)
    assert done.returncode == 2
    (line,) = done.stderr.decode().splitlines()
    assert f"{name}: is " in line


@pytest.mark.slow
@pytest.mark.parametrize("name", [".gitignore", "setup.cfg", "setup.py", "requirements.txt"])
@pytest.mark.parametrize("make", EVERY)
def test_what_else_is_read_of_a_project(project: Path, name: str, make: Make) -> None:
    make(project / name)
    done = lint(".", "--exclude", "setup.py", "--output-format", "concise", cwd=project)
    assert done.returncode == 1, done.stderr
    assert FOUND in done.stdout.decode()


@pytest.mark.slow
@pytest.mark.parametrize("make", [*SPECIAL, a_huge_file])
def test_a_baseline(project: Path, make: Make) -> None:
    make(project / "known.json")
    (project / "torchmemlint.toml").write_text('baseline = "known.json"\n')
    done = lint(".", cwd=project)
    assert done.returncode == 2
    (line,) = done.stderr.decode().splitlines()
    assert "known.json` is " in line


def test_a_baseline_that_no_file_can_be(project: Path) -> None:
    (project / "torchmemlint.toml").write_text('baseline = "a\\u0000b"\n')
    done = lint(".", cwd=project)
    assert done.returncode == 2
    assert b"`baseline` must be the path of a file" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("make", [*SPECIAL, a_huge_file, a_folder])
def test_files_of_the_cache(project: Path, make: Make) -> None:
    (project / "helper.py").write_text(HELPER)
    (project / "torchmemlint.toml").write_text("cache-in-project = true\n")
    first = lint(".", "--output-format", "concise", cwd=project)
    kept = [path for path in (project / ".torchmemlint_cache").rglob("*") if path.is_file()]
    assert len(kept) > 5
    for number, path in enumerate(kept):
        path.unlink()
        if make is a_link_to_a_fifo:
            (path.parent / "pipe.of.ours").unlink(missing_ok=True)
        make(path)
        assert number < 100
    (project / "train.py").write_text(TRAIN + "\n")  # what was kept of the other file is looked at, too
    again = lint(".", "--output-format", "concise", cwd=project)
    assert again.stdout == first.stdout
    assert again.returncode == 1


@pytest.mark.slow
def test_a_cache_that_leads_elsewhere_keeps_nothing(project: Path) -> None:
    (project / "torchmemlint.toml").write_text("cache-in-project = true\n")
    lint(".", cwd=project)
    (version,) = (path for path in (project / ".torchmemlint_cache").iterdir() if path.is_dir())
    elsewhere = project / "elsewhere"
    elsewhere.mkdir()
    precious = elsewhere / "precious"
    precious.write_text("x")
    os.utime(precious, (1, 1))
    shutil.rmtree(version / "segments")
    (version / "segments").symlink_to(elsewhere)
    (project / "train.py").write_text(TRAIN + "\n")
    done = lint(".", cwd=project)
    assert done.returncode == 1
    assert b"nothing is cached: a folder in it is a link" in done.stderr
    assert [*elsewhere.iterdir()] == [precious]


@pytest.mark.slow
def test_an_environment_read_as_a_file_is_not_shown(project: Path) -> None:
    """A link out of the repository to what is no Python file: a line of it would be shown in a code frame."""
    secret = project.parent / f"{project.name}.secret"
    secret.write_text("token is hunter2 import torch backward(\n")
    try:
        (project / "x.py").symlink_to(secret)
        done = lint(".", "-v", cwd=project)
        assert b"hunter2" not in done.stdout + done.stderr
        assert b"x.py: leads out of the repository" in done.stderr
    finally:
        secret.unlink()


@pytest.mark.slow
def test_a_link_to_a_source_outside_is_followed(project: Path) -> None:
    outside = project.parent / f"{project.name}_outside.py"
    outside.write_text(TRAIN)
    try:
        (project / "x.py").symlink_to(outside)
        assert b"x.py:9:9: TML101" in lint(".", "--output-format", "concise", cwd=project).stdout
    finally:
        outside.unlink()


@pytest.mark.slow
def test_loops_of_folders(project: Path) -> None:
    (project / "package").mkdir()
    (project / "package" / "again").symlink_to("..")
    (project / "package" / "dangling.py").symlink_to("nowhere.py")
    done = lint(".", "-v", "--output-format", "concise", cwd=project)
    assert done.stdout.decode().count("TML101") == 1
    assert b"dangling.py: no such file or directory" in done.stderr


def test_a_log_may_be_a_pipe_and_is_no_device(project: Path) -> None:
    message = b"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    assert lint("oom", "/dev/stdin", cwd=project, stdin=message).returncode == 0
    zero = lint("oom", "/dev/zero", cwd=project)
    assert zero.returncode == 2
    assert zero.stderr == b"torchmemlint: error: /dev/zero: is a device, not a regular file\n"


def test_the_source_that_a_log_names(project: Path) -> None:
    os.mkfifo(project / "model.py")
    (project / "log").write_text(
        'Traceback (most recent call last):\n  File "/x/model.py", line 3, in f\n    y = x\n'
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB "
        "of which 1.00 GiB is free.\n"
    )
    assert lint("oom", "log", cwd=project).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("make", [a_device, a_socket, a_huge_file])
def test_reports_to_merge(project: Path, make: Make) -> None:
    make(project / "report.json")
    done = lint("merge", "report.json", cwd=project)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.skipif(find_spec("flake8") is None, reason="needs flake8")
@pytest.mark.parametrize("make", EVERY)
def test_beside_what_flake8_checks(project: Path, make: Make) -> None:
    make(project / "helper.py")
    done = run(["-m", "flake8", "--select", "TML", "train.py"], project)
    assert b"train.py:9:9: TML101" in done.stdout
