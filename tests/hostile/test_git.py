"""``--since`` in a checkout whose git configuration and attributes name programs: none of them is run, and nothing is fetched."""

from __future__ import annotations

import os
import shutil
import subprocess
import zlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from hostile.program import lint

pytestmark = [
    pytest.mark.skipif(shutil.which("git") is None, reason="needs git"),
    pytest.mark.skipif(os.name == "nt", reason="the attacks are shell scripts"),
]

OLD = "import torch\n\ndef old(model, loader):\n    total = 0\n    for x in loader:\n        loss = model(x).sum()\n"
OLD += "        loss.backward()\n        total += loss\n    return total\n"
NEW = OLD.replace("import torch\n", "\n").replace("old", "new")
FOUND_NEW = b"a.py:17:"


def git(folder: Path, *arguments: str, stdin: bytes | None = None, env: Mapping[str, str] | None = None) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, **(env or {})}
    done = subprocess.run(["git", *who, "-C", str(folder), *arguments], input=stdin, capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """What a program of the attacker leaves behind."""
    return tmp_path / "ran"


@pytest.fixture
def script(tmp_path: Path, marker: Path) -> str:
    """A program of the attacker."""
    path = tmp_path / "attack"
    path.write_text(f"#!/bin/sh\ntouch '{marker}'\ncat 2>/dev/null\nexit 0\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Two commits of ``a.py``, and a third text of it in the work tree."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "a.py").write_text(OLD)
    (folder / "moved.py").write_text(OLD + "# moved\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    (folder / "a.py").write_text(OLD + "# then\n")
    git(folder, "commit", "-q", "-a", "-m", "second")
    (folder / "a.py").write_text(OLD + NEW)
    (folder / "moved.py").rename(folder / "here.py")
    return folder


def since(checkout: Path, revision: str = "HEAD~1", env: Mapping[str, str] | None = None) -> None:
    done = lint("--no-cache", "--output-format=concise", f"--since={revision}", ".", cwd=checkout, env=env)
    assert done.returncode == 1, done.stderr.decode()
    found = [line for line in done.stdout.splitlines() if b": TML" in line]
    assert len(found) == 1
    assert found[0].startswith(FOUND_NEW)


def test_the_attacks_are_ones(checkout: Path, script: str, marker: Path) -> None:
    """Git itself runs them where it is asked about the work tree."""
    git(checkout, "config", "filter.x.clean", script)
    (checkout / ".gitattributes").write_text("*.py filter=x\n")
    git(checkout, "diff", "HEAD~1")
    assert marker.exists()


@pytest.mark.slow
@pytest.mark.parametrize("attributes", ["filter=x diff=x merge=x", "working-tree-encoding=UTF-16 ident"])
def test_filters_and_drivers_of_diffs(checkout: Path, script: str, marker: Path, attributes: str) -> None:
    for key in ("filter.x.clean", "filter.x.smudge", "filter.x.process", "diff.x.command", "diff.x.textconv", "merge.x.driver"):
        git(checkout, "config", key, script)
    git(checkout, "config", "filter.x.required", "true")
    (checkout / ".gitattributes").write_text(f"*.py {attributes}\n")
    (checkout / ".git" / "info" / "attributes").write_text(f"* {attributes}\n")
    since(checkout)
    assert not marker.exists()


KEYS = (
        "core.fsmonitor", "core.pager", "pager.diff", "pager.rev-parse", "pager.ls-tree", "diff.external", "core.editor",
        "core.askPass", "credential.helper", "gpg.program", "gpg.ssh.program", "core.sshCommand", "core.gitProxy",
        "core.alternateRefsCommand", "sequence.editor", "uploadpack.packObjectsHook", "interactive.diffFilter",
        "alias.rev-parse", "alias.merge-base", "alias.ls-tree", "alias.cat-file", "alias.diff",
)  # fmt: skip


@pytest.mark.slow
def test_what_configuration_names(checkout: Path, script: str, marker: Path) -> None:
    for key in KEYS:
        git(checkout, "config", key, f"!{script}" if key.startswith("alias") else script)
    git(checkout, "config", "log.showSignature", "true")
    git(checkout, "config", "core.untrackedCache", "true")
    since(checkout)
    assert not marker.exists()


@pytest.mark.slow
def test_configuration_that_is_included(checkout: Path, script: str, marker: Path) -> None:
    (checkout / "more").write_text(f"[core]\n\tfsmonitor = {script}\n\tpager = {script}\n[diff]\n\texternal = {script}\n")
    git(checkout, "config", "include.path", "../more")
    git(checkout, "config", "includeIf.gitdir:/.path", str(checkout / "more"))
    git(checkout, "config", "core.worktree", "/")
    since(checkout)
    assert not marker.exists()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["hooks", "elsewhere"])
def test_hooks(checkout: Path, script: str, marker: Path, place: str) -> None:
    hooks = checkout / ".git" / place
    hooks.mkdir(exist_ok=True)
    names = ("post-index-change", "reference-transaction", "post-checkout", "pre-auto-gc", "fsmonitor-watchman", "pre-commit")
    for name in names:
        shutil.copy(script, hooks / name)
    if place == "elsewhere":
        git(checkout, "config", "core.hooksPath", str(hooks))
    since(checkout)
    assert not marker.exists()


REMOTES = {
    "ext": {"url": "ext::{script} %S"},
    "ssh": {"url": "ssh://nowhere.invalid/x"},
    "path": {"url": "{other}", "uploadpack": "{script}"},
    "git": {"url": "git://nowhere.invalid/x"},
    "helper": {"url": "attack::x"},
    "vcs": {"url": "x", "vcs": "attack"},
    "http": {"url": "http://127.0.0.1:9/x", "proxy": "http://127.0.0.1:9/"},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("remote", "version"), [("ext", "as it is"), *((remote, "without GIT_NO_LAZY_FETCH") for remote in REMOTES)]
)
def test_objects_that_would_be_fetched(
    checkout: Path, script: str, marker: Path, tmp_path: Path, remote: str, version: str
) -> None:
    """A partial clone whose remote runs a program: the objects are missing, git would fetch them, and says so instead."""
    shutil.copytree(checkout / ".git", tmp_path / "other")
    helpers = tmp_path / "helpers"
    helpers.mkdir()
    shutil.copy(script, helpers / "git-remote-attack")
    environment = {"PATH": f"{helpers}{os.pathsep}{os.environ['PATH']}"}
    if version != "as it is":  # a git that has never heard of it: a wrapper that takes it out
        real = shutil.which("git")
        (helpers / "git").write_text(f'#!/bin/sh\nunset GIT_NO_LAZY_FETCH\nexec {real} "$@"\n')
        (helpers / "git").chmod(0o755)
    for key, value in REMOTES[remote].items():
        git(checkout, "config", f"remote.origin.{key}", value.format(script=script, other=tmp_path / "other"))
    for key, value in {
        "remote.origin.promisor": "true",
        "remote.origin.partialclonefilter": "blob:none",
        "extensions.partialClone": "origin",
        "core.repositoryFormatVersion": "1",
        "core.sshCommand": script,
        "core.gitProxy": script,
        "protocol.allow": "always",
        "protocol.ext.allow": "always",
        "protocol.attack.allow": "always",
    }.items():
        git(checkout, "config", key, value)
    blob = git(checkout, "rev-parse", "HEAD~1:a.py")
    (checkout / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    done = lint("--no-cache", "--since=HEAD~1", ".", cwd=checkout, env=environment)
    assert done.returncode == 2
    assert b"nothing is fetched" in done.stderr
    assert done.stderr.count(b"\n") == 1
    tree = git(checkout, "rev-parse", "HEAD~1^{tree}")
    (checkout / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    done = lint("--no-cache", "--since=HEAD~1", ".", cwd=checkout, env=environment)
    assert done.returncode == 2
    assert done.stderr.startswith(b"torchmemlint: error: --since: git ls-tree failed")
    assert not marker.exists()


@pytest.mark.slow
def test_a_partial_clone_needs_what_it_has(checkout: Path, tmp_path: Path) -> None:
    """A file that did not change is its own old version: of the missing blobs none is needed."""
    clone = tmp_path / "clone"
    git(checkout, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--filter=blob:none", f"file://{checkout}", str(clone))
    done = lint("--no-cache", "--output-format=concise", "--since=HEAD~1", "moved.py", cwd=clone)
    assert (done.returncode, done.stdout) == (0, b"All checks passed!\n1 finding is on lines that did not change.\n")
    assert lint("--no-cache", "--since=HEAD~1", "a.py", cwd=clone).returncode == 2


@pytest.mark.slow
def test_a_repository_in_the_checkout(checkout: Path, script: str, marker: Path) -> None:
    """A folder that looks like a bare repository is none: only a ``.git`` counts."""
    for folder in (checkout / "bare", checkout):
        for name in ("objects", "refs"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "HEAD").write_text("ref: refs/heads/main\n")
        (folder / "config").write_text(f"[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tfsmonitor = {script}\n")
    (checkout / "bare" / "new.py").write_text(NEW)
    (checkout / "here.py").rename(checkout / "moved.py")
    done = lint("--no-cache", "--output-format=concise", "--since=HEAD~1", "bare", cwd=checkout)
    assert done.returncode == 1
    assert b"bare/new.py:8:" in done.stdout
    (checkout / ".git").rename(checkout.parent / "gone")
    (checkout / ".git").mkdir()
    done = lint("--no-cache", "--since=HEAD", ".", cwd=checkout)
    assert done.returncode == 2
    assert not marker.exists()


@pytest.mark.slow
def test_variables_of_another_repository(checkout: Path, script: str, marker: Path, tmp_path: Path) -> None:
    """A hook runs with git's own variables, which name one repository."""
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    git(other, "config", "core.fsmonitor", script)
    since(
        checkout,
        env={
            "GIT_DIR": str(other / ".git"), "GIT_WORK_TREE": str(other), "GIT_INDEX_FILE": str(other / "index"),
            "GIT_EXTERNAL_DIFF": script, "GIT_PAGER": script, "GIT_SSH_COMMAND": script, "GIT_TRACE": str(marker),
            "GIT_OBJECT_DIRECTORY": str(other), "GIT_NAMESPACE": "x", "GIT_DIFF_OPTS": "--unified=9",
        },
    )  # fmt: skip
    assert not marker.exists()


@pytest.mark.slow
def test_git_is_not_looked_for_in_the_checkout(checkout: Path, script: str, marker: Path) -> None:
    shutil.copy(script, checkout / "git")
    since(checkout, env={"PATH": f".{os.pathsep}{os.pathsep}{os.environ['PATH']}"})
    assert not marker.exists()


@pytest.mark.slow
def test_a_repository_of_someone_else_is_left_alone(checkout: Path) -> None:
    """As git has it; which ones are safe is in the user's configuration, which holds."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    for folder in (checkout, checkout / ".git"):
        os.chown(folder, 12345, 12345)
    done = lint("--no-cache", "--since=HEAD~1", ".", cwd=checkout, env={"GIT_CONFIG_GLOBAL": os.devnull})
    assert (done.returncode, b"dubious ownership" in done.stderr, done.stderr.count(b"\n")) == (2, True, 1)
    safe = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    since(checkout, env={"GIT_CONFIG_GLOBAL": os.devnull, **safe})


@pytest.mark.slow
def test_ends_of_lines_are_no_change(checkout: Path) -> None:
    """What ``core.autocrlf`` and ``eol`` write into a work tree; and the rows are counted as before."""
    (checkout / "a.py").write_bytes((OLD + NEW).replace("\n", "\r\n").encode())
    (checkout / "here.py").write_bytes((OLD + "# moved\n").replace("\n", "\r\n").encode())
    since(checkout)
    (checkout / "a.py").write_bytes(OLD.replace("\n", "\r\n").encode())
    done = lint("--no-cache", "--since=HEAD~1", ".", cwd=checkout)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_an_object_that_is_replaced(checkout: Path) -> None:
    """A replacement of the old commit by the new text would hide what is new."""
    blob = git(checkout, "hash-object", "-w", "--stdin", stdin=(OLD + NEW).encode())
    git(checkout, "replace", git(checkout, "rev-parse", "HEAD~1:a.py"), blob)
    since(checkout)


@pytest.mark.slow
def test_trees_that_multiply(checkout: Path) -> None:
    """A few kilobytes of trees that list a million times a million files."""
    blob = git(checkout, "hash-object", "-w", "--stdin", stdin=b"")
    entries = "".join(f"100644 blob {blob}\tf{number:02}\n" for number in range(40))
    for _ in range(7):
        tree = git(checkout, "mktree", stdin=entries.encode())
        entries = "".join(f"040000 tree {tree}\td{number:02}\n" for number in range(40))
    commit = git(checkout, "commit-tree", "-m", "bomb", git(checkout, "mktree", stdin=entries.encode()))
    git(checkout, "update-ref", "refs/heads/main", commit)
    done = lint("--no-cache", "--since=HEAD", "a.py", cwd=checkout)
    assert done.returncode == 2
    assert b"printed more than 256 MiB" in done.stderr


@pytest.mark.slow
def test_a_damaged_repository(checkout: Path) -> None:
    blob = git(checkout, "rev-parse", "HEAD~1:a.py")
    path = checkout / ".git" / "objects" / blob[:2] / blob[2:]
    path.chmod(0o644)
    path.write_bytes(zlib.compress(b"blob 99999999999\0x"))
    done = lint("--no-cache", "--since=HEAD~1", "a.py", cwd=checkout)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_git_that_waits(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configuration can include a pipe, for which git waits; not for ever."""
    from torchmemlint.errors import UsageError
    from torchmemlint.suppress import git as reading

    os.mkfifo(checkout / "pipe")
    with open(checkout / ".git" / "config", "a", encoding="utf-8") as file:
        file.write("[include]\n\tpath = ../pipe\n")
    monkeypatch.setattr(reading, "SECONDS", 1)
    with pytest.raises(UsageError, match="took more than 1 s"):
        reading.ask(str(checkout), "rev-parse", "HEAD")
