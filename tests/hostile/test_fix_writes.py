"""What ``--fix`` and its like write, and what they leave alone, whatever the checkout makes of names, links and modes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hostile.program import environment, lint
from torchmemlint.files.writing import replace_file

LEAK = """import torch

def train(model: torch.nn.Module, loader, optimizer, criterion):
    total = 0
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        total += loss
    return total
"""
FIX = ("--fix", "--unsafe-fixes", "--no-cache")
posix = pytest.mark.skipif(sys.platform == "win32", reason="links and modes as POSIX has them")


def left_over(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".torchmemlint-*")]


@pytest.mark.slow
@posix
@pytest.mark.parametrize("arguments", [(*FIX, "."), (*FIX, "link.py"), ("--add-noqa", "--no-cache", ".")])
def test_a_link_that_leads_out_is_not_followed(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "a.py").write_text(LEAK)
    (inside / "link.py").symlink_to("../outside/a.py")
    (inside / "b.py").write_text(LEAK)
    (inside / "folder").symlink_to("../outside")
    done = lint(*arguments, cwd=inside)
    assert (outside / "a.py").read_text() == LEAK
    assert (inside / "link.py").is_symlink()
    assert done.returncode == 2
    assert done.stderr.count(b"link.py: is a link that leads out of what is to be fixed\n") == 1
    assert ((inside / "b.py").read_text() != LEAK) is ("." in arguments)
    assert (b"Fixed 1 finding." in done.stdout) is (arguments == (*FIX, "."))


@pytest.mark.slow
@posix
def test_a_link_inside_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "real.data").write_text(LEAK)
    (tmp_path / "link.py").symlink_to("real.data")
    done = lint(*FIX, cwd=tmp_path)
    assert (done.returncode, b"Fixed 1 finding." in done.stdout) == (0, True)
    assert (tmp_path / "link.py").is_symlink()
    assert (tmp_path / "real.data").read_text() != LEAK


@pytest.mark.slow
@posix
@pytest.mark.parametrize("option", [FIX, ("--add-noqa",), ("--add-ignore",)])
def test_a_file_whose_mode_forbids_it_stays_for_root_too(tmp_path: Path, option: tuple[str, ...]) -> None:
    (tmp_path / "a.py").write_text(LEAK)
    (tmp_path / "a.py").chmod(0o444)
    done = lint(*option, cwd=tmp_path)
    assert (tmp_path / "a.py").read_text() == LEAK
    assert done.returncode == 2
    assert b"a.py: cannot be written: it is read-only\n" in done.stderr
    assert b"TML101" in done.stdout
    assert b"Fixed" not in done.stdout


@pytest.mark.slow
@posix
def test_mode_owner_and_attributes_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(LEAK)
    path.chmod(0o751)
    if os.geteuid() == 0:
        os.chown(path, 12345, 23456)
    attributes = hasattr(os, "setxattr")
    try:
        if attributes:
            os.setxattr(path, "user.note", b"kept")
    except OSError:  # not on this file system
        attributes = False
    before = path.stat()
    assert lint(*FIX, cwd=tmp_path).returncode == 0
    after = path.stat()
    assert path.read_text() != LEAK
    assert (stat.S_IMODE(after.st_mode), after.st_uid, after.st_gid) == (0o751, before.st_uid, before.st_gid)
    assert not attributes or os.getxattr(path, "user.note") == b"kept"


@pytest.mark.slow
@posix
def test_another_name_of_the_same_file_keeps_the_old_text(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "outside.py").write_text(LEAK)
    os.link(tmp_path / "outside.py", tmp_path / "inside" / "a.py")
    assert lint(*FIX, cwd=tmp_path / "inside").returncode == 0
    assert (tmp_path / "outside.py").read_text() == LEAK
    assert (tmp_path / "inside" / "a.py").read_text() != LEAK


@pytest.mark.slow
def test_two_runs_at_once_lose_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(LEAK + "\ntorch.cuda.amp.autocast()\n")
    commands = [
        [sys.executable, "-m", "torchmemlint", *FIX, "--select", code] for code in ("TML101", "TML501", "TML101", "TML501")
    ]
    running = [
        subprocess.Popen(one, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for one in commands
    ]
    fixed = {"TML101": False, "TML501": False}
    for command, process in zip(commands, running, strict=True):
        out, errors = process.communicate()
        assert b"Traceback" not in errors
        fixed[command[-1]] |= b"Fixed" in out
    text = (tmp_path / "a.py").read_text()
    assert (fixed["TML101"], fixed["TML501"]) == ("total += loss\n" not in text, "torch.cuda.amp" not in text)
    assert any(fixed.values())
    assert left_over(tmp_path) == []


def test_what_changes_between_the_look_and_the_write_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    looks = []

    def unchanged(now: bytes | None) -> bool:
        looks.append(now)
        path.write_bytes(b"saved by an editor")
        return now == b"old"

    assert not replace_file(str(path), b"new", unchanged)
    assert looks == [b"old", b"saved by an editor"]
    assert (path.read_bytes(), left_over(tmp_path)) == (b"saved by an editor", [])


@pytest.mark.slow
@posix
def test_a_baseline_outside_is_written_for_who_names_it(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a.py").write_text(LEAK)
    (tmp_path / "project" / "torchmemlint.toml").write_text('baseline = "../outside.json"\n')
    done = lint("--write-baseline", "--no-baseline", cwd=tmp_path / "project")
    assert not (tmp_path / "outside.json").exists()
    done = lint("--write-baseline", cwd=tmp_path / "project")
    assert (done.returncode, (tmp_path / "outside.json").exists()) == (2, False)
    assert b"is outside the configuration file's folder" in done.stderr
    assert lint("--write-baseline", "--baseline", "../outside.json", cwd=tmp_path / "project").returncode == 0
    assert (tmp_path / "outside.json").exists()


@pytest.mark.slow
@posix
def test_a_report_does_not_follow_a_link_that_leads_out(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "project" / "report.sarif").symlink_to("../precious")
    (tmp_path / "project" / "a.py").write_text(LEAK)
    done = lint("--output-file", "report.sarif", "--output-file", "report.json", cwd=tmp_path / "project")
    assert done.returncode == 2
    assert (tmp_path / "precious").read_text() == "precious"
    assert b"leads elsewhere" in done.stderr
    assert (tmp_path / "project" / "report.json").exists()
