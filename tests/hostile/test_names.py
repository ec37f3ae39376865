"""Names that are not UTF-8, that drive a terminal, end a line, or are commands to a CI system; and paths that never ended."""

from __future__ import annotations

import json
import os
import re
import sys
import xml.etree.ElementTree as ElementTree
from importlib.util import find_spec
from pathlib import Path

import pytest

from hostile.program import lint, run
from torchmemlint.files.quoting import portable, printable, quoted, unquoted, uri_path
from torchmemlint.index.layout import Layout
from torchmemlint.reporters import FORMATS
from torchmemlint.source import normal

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes are Linux's")

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
NAMES = [
    b"caf\xe9.py",
    b"a\nb.py",
    b"\x1b[31mred.py",
    b"\x1b]8;;x:y\x07link.py",
    "r\u202eyp.py".encode(),
    b"::error::x.py",
    b" ::stop-commands::x.py",
    b"##[add-path]x.py",
    b"##vso[task.setvariable variable=PATH]x.py",
    b'quo"te.py',
    b"back\\slash.py",
    b"%0A::error::x.py",
    b"tab\t.py",
    b"\xed\xa0\x80.py",
]
CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f]")


def safe(output: bytes) -> None:
    """That what is printed drives no terminal, and commands no CI system beyond our own commands."""
    text = output.decode()  # no byte of a name is there as it is
    assert CONTROLS.search(text) is None
    for line in text.splitlines():
        assert not line.lstrip().startswith("::") or re.match(r"::(error|warning|notice) title=torchmemlint", line)
        assert "##[" not in line
        assert "##vso[" not in line or line.startswith("##vso[task.logissue ")
        assert line.count("##vso[") < 2


def write(folder: Path, name: bytes, text: str = TRAIN) -> None:
    with open(os.path.join(os.fsencode(folder), name), "w", encoding="utf-8") as file:
        file.write(text)


@pytest.fixture
def named(tmp_path: Path) -> Path:
    for name in NAMES:
        write(tmp_path, name)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("output_format", FORMATS)
def test_every_format_holds_every_name(named: Path, output_format: str) -> None:
    done = lint(".", "--output-format", output_format, "--no-cache", cwd=named)
    assert done.returncode == 1, done.stderr
    safe(done.stderr)
    text = done.stdout.decode()
    if output_format in ("json", "gitlab", "sarif", "rdjson"):
        json.loads(text)
    elif output_format in ("json-lines", "lintrunner"):
        assert len([json.loads(line) for line in text.splitlines()]) == len(NAMES)
    elif output_format == "junit":
        assert len(ElementTree.fromstring(text)) == len(NAMES)
    else:
        safe(done.stdout)
    if output_format in ("json", "json-lines", "lintrunner", "gitlab", "rdjson", "sarif"):
        text.encode("ascii")
        assert "\\udc" not in text.lower()
        assert "\\ud8" not in text.lower()
    if output_format == "json":
        paths = {os.fsencode(unquoted(entry["filename"])) for entry in json.loads(text)}
        assert paths == set(NAMES)
    if output_format == "sarif":
        (run_,) = json.loads(text)["runs"]
        uris = {result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in run_["results"]}
        assert {"caf%E9.py", "a%0Ab.py", "%250A%3A%3Aerror%3A%3Ax.py"} <= uris
        assert len(uris) == len(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_neighbour_and_the_cache(tmp_path: Path, name: bytes) -> None:
    write(tmp_path, b"train.py")
    write(tmp_path, name, "import torch\nfrom train import train\n\n\ndef main(model, loader):\n    train(model, loader)\n")
    done = lint("train.py", "--output-format", "concise", "--no-cache", cwd=tmp_path)
    assert done.stdout.startswith(b"train.py:9:9: TML101"), done.stderr
    first = lint(".", "--output-format", "concise", cwd=tmp_path)
    write(tmp_path, name, TRAIN)
    again = lint(".", "--output-format", "concise", cwd=tmp_path)
    fresh = lint(".", "--output-format", "concise", "--no-cache", "-j2", cwd=tmp_path)
    assert first.returncode == again.returncode == fresh.returncode == 1, again.stderr + fresh.stderr
    assert again.stdout == fresh.stdout
    assert fresh.stdout.count(b"TML101") == 2


@pytest.mark.slow
def test_messages_about_the_run(named: Path) -> None:
    os.mkfifo(os.path.join(os.fsencode(named), b"pipe\x1b[1m\n\xff.py"))
    os.mkdir(os.path.join(os.fsencode(named), b"f\xff\x1b"))
    write(named, b"f\xff\x1b/torchmemlint.toml", '"un\\u001bknown\\n\\u202e" = 1\n')
    done = lint("-v", ".", b"no\x1b\xff\nsuch.py", "--output-format", "concise", cwd=named)
    assert done.returncode == 2
    safe(done.stderr)
    output = done.stderr.decode()
    assert r'"pipe\033[1m\n\377.py": is a FIFO' in output
    assert r'"no\033\377\nsuch.py": no such file or directory' in output
    assert "unknown key" in output
    for arguments in (["--show-files"], ["--diff"], ["--fix", "--unsafe-fixes"]):
        done = lint(*arguments, *(["."] if arguments != ["--show-files"] else []), "--exclude", "f*", cwd=named)
        safe(done.stderr)
        if arguments != ["--fix", "--unsafe-fixes"]:
            assert CONTROLS.search(done.stdout.decode()) is None


@pytest.mark.slow
@pytest.mark.parametrize("output_format", ["full", "concise", "grouped", "github", "azure"])
def test_code_that_is_shown(tmp_path: Path, output_format: str) -> None:
    odd = "'\x1b[2J\x1b]8;;x\x07 ##vso[task.x]y ##[add-path]z \u202e\u2066'"
    text = TRAIN.replace("total += loss", f"total += loss  # {odd}").replace("(total)", f"(total, {odd})")
    write(tmp_path, b"train.py", text)
    write(tmp_path, b"broken.py", f"import torch\nx = {odd} (\n")
    done = lint(".", "--output-format", output_format, "--no-cache", cwd=tmp_path)
    assert done.returncode == 1
    safe(done.stdout + done.stderr)
    safe(lint("trace", "train.py:9", cwd=tmp_path).stdout)


@pytest.mark.slow
def test_merging(named: Path) -> None:
    report = lint(".", "--output-format", "json", cwd=named).stdout
    write(named, b"report\x1b.json", report.decode())
    done = lint("merge", b"report\x1b.json", "--output-format", "concise", cwd=named)
    alone = lint(".", "--output-format", "concise", cwd=named).stdout
    assert done.stdout.splitlines() == alone.splitlines()[: len(NAMES)]
    write(named, b"bad\x1b.json", report.decode().replace("TML101", "TML\\u001b[31m"))
    bad = lint("merge", b"bad\x1b.json", cwd=named)
    assert bad.returncode == 2
    safe(bad.stderr)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("flake8") is None, reason="needs flake8")
def test_neighbours_of_what_flake8_checks(named: Path) -> None:
    write(named, b"train.py")
    assert b"train.py:9:9: TML101" in run(["-m", "flake8", "--select", "TML", "train.py"], named).stdout


# --- paths ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_slashes_end(tmp_path: Path) -> None:
    write(tmp_path, b"train.py")
    for arguments in ([f"/{tmp_path}/train.py"], [f"/{tmp_path}"], ["-", "--stdin-filename", f"/{tmp_path}/x.py"]):
        done = lint(*arguments, "--output-format", "concise", cwd=tmp_path, stdin=TRAIN.encode())
        assert done.returncode == 1, done.stderr
        assert b":9:9: TML101" in done.stdout


def test_a_layout_of_any_path_ends() -> None:
    for path in ("//x.py", "//a/b/x.py", "/x.py", "x.py", "../x.py", "//__init__.py", "/__init__.py", "///x.py"):
        layout = Layout([path])
        assert [*layout.names] == [path]
        assert layout.candidates(path, "x") is not None


def test_the_one_name_of_a_folder() -> None:
    assert normal("//a/../b") == "/b"
    assert normal("///a") == "/a"
    assert normal("a//b/.") == "a/b"


# --- quoting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*NAMES, b"plain.py", "漢字 ü.py".encode(), b"a b.py", b'"', b'""', b"\\", b"\xff1.py"])
def test_quoting_goes_back(name: bytes) -> None:
    path = os.fsdecode(name)
    line = quoted(path)
    safe(line.encode())
    assert unquoted(line) == path
    assert unquoted(portable(path)) == path
    portable(path).encode()
    assert printable(line) == line


def test_quoting_is_that_of_git() -> None:
    assert quoted("plain.py") == "plain.py"
    assert quoted("ü 漢.py") == "ü 漢.py"
    assert quoted('a\nb\t\x1b\udce9"\\.py') == r'"a\nb\t\033\351\"\\.py"'
    assert quoted("::error::x.py") == '"::error::x.py"'
    assert quoted("##[x].py") == r'"\043#[x].py"'
    assert uri_path("a b/\udce9?.py") == "a%20b/%E9%3F.py"
