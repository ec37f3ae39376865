"""What is written for the user does not leave the checkout: not by its links, and not by its configuration."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hostile.program import lint

pytestmark = pytest.mark.skipif(os.name == "nt", reason="links need rights there")

MISTAKE = """import torch


def train(model, loader):
    total = 0
    for x in loader:
        loss = model(x).sum()
        loss.backward()
        total += loss
    return total
"""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of the user with a file that is old."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "precious").write_text("the user's\n")
    old = time.time() - 400 * 86400
    os.utime(folder / "precious", (old, old))
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / ".git" / "hooks").mkdir(parents=True)
    (folder / "train.py").write_text(MISTAKE)
    return folder


def holds(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [[".", "--output-file"], ["merge", "r.json", "-o"]])
@pytest.mark.parametrize("name", ["report.sarif", "folder/report.sarif", "hooks/post-checkout.sarif", "new/report.sarif"])
def test_a_report_is_not_written_through_a_link(checkout: Path, outside: Path, name: str, arguments: list[str]) -> None:
    (checkout / "r.json").write_text("[]")
    (checkout / "report.sarif").symlink_to(outside / "precious")
    (checkout / "folder").symlink_to(outside)
    (checkout / "hooks").symlink_to(".git/hooks")
    (checkout / "new").symlink_to("../outside/not/yet")
    before = holds(outside)
    for path in (name, str(checkout / name)):
        done = lint(*arguments, path, "--exit-zero", cwd=checkout)
        assert done.returncode == 2
        assert b"is a link that leads elsewhere" in done.stderr
    assert holds(outside) == before
    assert not list((checkout / ".git" / "hooks").iterdir())


@pytest.mark.slow
def test_a_place_that_the_user_names_elsewhere_may_be_a_link(checkout: Path, outside: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.sarif").symlink_to(outside / "precious")
    assert lint(".", "--no-cache", "--output-file=../mine.sarif", cwd=checkout).returncode == 1
    assert '"runs"' in (outside / "precious").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("link", [".torchmemlint_cache", "version", "kind", "segments", "two letters"])
def test_the_cache_is_not_written_through_a_link(checkout: Path, outside: Path, link: str) -> None:
    """Nor is what lies there deleted as old: the checkout can bring a whole cache in which one folder is a link."""
    cache = checkout / ".torchmemlint_cache"
    (checkout / "torchmemlint.toml").write_text("cache-in-project = true\n")
    if link == ".torchmemlint_cache":
        (checkout / "CACHEDIR.TAG").write_text("")
        cache.symlink_to(outside)
    else:
        assert lint(".", cwd=checkout).returncode == 1
        (version,) = (path for path in cache.iterdir() if path.is_dir())
        if link == "version":
            place = version
        elif link == "two letters":
            place = next((version / "facts").iterdir())
        else:
            place = version / {"kind": "results", "segments": "segments"}[link]
        for path in sorted(place.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        place.rmdir()
        place.symlink_to(outside)
        if link == "two letters":
            for other in (version / "facts").iterdir():
                if not other.is_symlink():
                    other.rename(version / "away")
    before = holds(outside)
    fresh = lint(".", "--no-cache", cwd=checkout)
    for text in (MISTAKE, MISTAKE + "\n\nx = 1\n", MISTAKE + "\n\ndef more(): pass\n"):
        (checkout / "train.py").write_text(text)
        done = lint(".", cwd=checkout)
        assert (done.returncode, done.stdout) == (1, fresh.stdout)
    assert lint("clean", cwd=checkout).returncode == (2 if link == ".torchmemlint_cache" else 0)
    assert holds(outside) == before


@pytest.mark.slow
@pytest.mark.parametrize("how", ["above", "absolute", "link", "folder", "git"])
def test_a_baseline_is_not_written_elsewhere(checkout: Path, outside: Path, how: str) -> None:
    names = {
        "above": "../outside/new.json", "absolute": str(outside / "new.json"), "link": "link.json", "folder": "folder/new.json",
        "git": ".git/new.json",
    }  # fmt: skip
    (checkout / "link.json").symlink_to(outside / "new.json")
    (checkout / "folder").symlink_to(outside)
    (checkout / "torchmemlint.toml").write_text(f'baseline = "{names[how]}"\n')
    before = holds(outside)
    done = lint("--write-baseline", cwd=checkout)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"is outside the configuration file's folder" in done.stderr
    assert holds(outside) == before
    assert not (checkout / ".git" / "new.json").exists()
    if how == "above":
        assert lint("--write-baseline", f"--baseline={names[how]}", cwd=checkout).returncode == 0
        assert (outside / "new.json").exists()


@pytest.mark.slow
def test_the_usual_baseline_is_no_link(checkout: Path, outside: Path) -> None:
    (checkout / ".torchmemlint-baseline.json").symlink_to(outside / "new.json")
    done = lint("--write-baseline", cwd=checkout)
    assert done.returncode == 2
    assert not (outside / "new.json").exists()
