"""Nothing that fails for once misleads this run or the next; and a short part of each campaign of ``benchmarks.reliability``."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from benchmarks.reliability import packages
from benchmarks.reliability.fuzz import Fuzz, parses
from benchmarks.reliability.generated import programs, reshaped
from benchmarks.reliability.project import FILES
from benchmarks.reliability.record import RECORDS, Record, run
from torchmemlint import workers
from torchmemlint.cli import main
from torchmemlint.files.reading import read_beginning
from torchmemlint.processes import forks
from torchmemlint.project import neighbours

ROOT = Path(__file__).parent.parent
PATIENCE = 1500
"""Seconds of wall time for a minute of CPU: the machine may be busy."""
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def lint(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    neighbours.forget()
    status = main([".", "-j1", "--output-format", "json", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train.py", "book.ipynb", "parts/model.py"])
def test_a_read_that_fails_once_is_reported_and_not_cached(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    expected = lint(capsys, "--no-cache")
    read = read_beginning
    for number in range(1, 20):
        left = number
        cache = str(tmp_path / f"cache{number}")

        def failing(path: str, most: int) -> bytes:
            nonlocal left
            left -= path == name
            if path == name and left == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return read(path, most)

        monkeypatch.setattr(workers, "read_beginning", failing)
        status, out, err = lint(capsys, "--cache-dir", cache)
        monkeypatch.setattr(workers, "read_beginning", read)
        assert "please report" not in err
        if (status, out) != expected[:2]:
            reported = [one for one in json.loads(out) if one["code"] == "TML000"]
            assert status == 1
            assert all("cannot be read" in one["message"] for one in reported)
            assert reported
        assert lint(capsys, "--cache-dir", cache)[:2] == expected[:2]
        if left > 0:
            assert number > 3  # it is read more than once, and each had its turn
            return
    pytest.fail("a file is read without end")


@pytest.mark.parametrize("name", ["train.py", "book.ipynb", "parts/model.py"])
@pytest.mark.parametrize("option", ["--write-baseline", "--prune-baseline"])
def test_a_file_that_is_not_read_once_changes_no_baseline(
    folder: Path, name: str, option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither by what is reported instead of its findings, nor by the findings that are missing."""
    assert main([".", "-j1", "--write-baseline"]) == 0
    baseline = Path(".torchmemlint-baseline.json")
    before = baseline.read_bytes()
    assert b"TML000" not in before
    read = read_beginning
    for number in range(1, 20):
        left = number

        def failing(path: str, most: int) -> bytes:
            nonlocal left
            left -= path == name
            if path == name and left == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return read(path, most)

        capsys.readouterr()
        monkeypatch.setattr(workers, "read_beginning", failing)
        neighbours.forget()
        status = main([".", "-j1", option])
        monkeypatch.setattr(workers, "read_beginning", read)
        assert baseline.read_bytes() == before
        if left > 0:
            assert status == 0
            assert number > 1
            return
        lines = capsys.readouterr().err.splitlines()
        assert status == 2
        assert lines
        assert all(f"{name} cannot be read: Input/output error; no baseline was written" in line for line in lines)
    pytest.fail("a file is read without end")


def test_a_file_that_may_not_be_read_or_is_none_enters_no_baseline(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("gone.py").symlink_to("gone.py")  # a loop of links
    assert main(["gone.py", ".", "-j1", "--write-baseline", "--ignore", "TML000"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("; no baseline was written")
    assert not Path(".torchmemlint-baseline.json").exists()


def test_a_folder_that_the_system_fails_to_list_does_not_look_clean(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scandir = os.scandir

    def failing(path: str) -> object:
        if path == "parts":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", failing)
    status, _, err = lint(capsys, "--no-cache")
    assert status == 2
    assert "parts/" in err


@LINUX
def test_a_child_that_cannot_be_set_up_does_not_go_on_as_its_parent() -> None:
    program = (
        "import os\n"
        "from torchmemlint.processes import forks\n"
        "def failing(*_): raise OSError(5, 'no')\n"
        "os.read = failing\n"
        "print(forks.attempt(lambda: 1), flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "None\n"
    assert forks._helpers == []


def test_a_record_goes_on_where_it_was_left_and_looks_at_failures_again(tmp_path: Path) -> None:
    path, tried = tmp_path / "record.json", []
    broken = {"a 2"}

    def check(case: str) -> list[str]:
        tried.append(case)
        return ["wrong"] if case in broken else []

    record = Record("test")
    run(record, ["a 1", "a 2", "b 1"], check, 60, path)
    assert (record.cases, record.open) == ({"a": 2, "b": 1}, {"a 2": ["wrong"]})
    broken.clear()
    tried.clear()
    again = Record.read(path, "test")
    run(again, ["a 1", "a 2", "b 1", "a 3"], check, 60, path)
    assert tried == ["a 2", "a 3"]
    assert (again.open, again.fixed) == ({}, {"a 2": ["wrong"]})


def test_a_campaign_that_fails_itself_has_written_what_it_did(tmp_path: Path) -> None:
    def check(case: str) -> list[str]:
        return [str(1 // int(case.split()[1]))]

    with pytest.raises(ZeroDivisionError):
        run(Record("test"), ["a 1", "a 0", "a 2"], check, 60, tmp_path / "record.json")
    assert Record.read(tmp_path / "record.json", "test").cases == {"a": 1}


@pytest.mark.parametrize("name", ["fuzz", "faults", "kills", "server", "long_life"])
def test_the_page_has_the_figures_of_the_record(name: str) -> None:
    record = Record.read(RECORDS / f"{name}.json", name)
    row = f"| `{name}` | {record.done:,} | {record.cpu_seconds:,.0f} | {len(record.open)} |"
    assert row in (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")


def campaign(tmp_path: Path, *arguments: str, program: str = "") -> tuple[int, dict[str, object]]:
    """The exit status of a campaign, after ``program`` in its process, and its record."""
    record = tmp_path / "record.json"
    code = f"{program}\nimport sys\nfrom benchmarks.reliability.__main__ import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *arguments, "--record", str(record)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert record.is_file(), done.stderr
    return done.returncode, json.loads(record.read_text())


@LINUX
@pytest.mark.slow
@pytest.mark.timeout(PATIENCE + 60)
@pytest.mark.parametrize(("name", "cases", "kinds"), [("fuzz", 9, 9), ("faults", 14, 14), ("kills", 28, 15)])
def test_the_first_cases_of_a_campaign_find_nothing(tmp_path: Path, name: str, cases: int, kinds: int) -> None:
    """They are the same on each machine, as many as it takes to have one of each kind; the campaigns themselves go on for hours."""
    status, record = campaign(tmp_path, name, "--most", str(cases))
    assert record["open"] == {}
    assert status == 0
    assert isinstance(record["cases"], dict)
    assert len(record["cases"]) == kinds
    assert sum(record["cases"].values()) == cases


@LINUX
@pytest.mark.slow
@pytest.mark.timeout(PATIENCE + 60)
@pytest.mark.parametrize(("name", "part"), [("server", 0.2), ("long_life", 0.1)])
def test_a_part_of_a_load_finds_nothing(tmp_path: Path, name: str, part: float) -> None:
    """Enough edits for what is left open, or lives on, with each of them, and for a text that is analysed again and kept."""
    pytest.importorskip("pygls")
    status, record = campaign(tmp_path, name, "--part", str(part))
    assert (status, record["open"]) == (0, {})


IN_PLACE = """
from torchmemlint.files import writing
def replace_file(target, data, unchanged=lambda now: True):
    with open(target, "wb") as file:
        for byte in range(0, len(data), 50):
            file.write(data[byte : byte + 50])
            file.flush()
    return True
writing.replace_file = replace_file
"""


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("name", ["faults", "kills"])
def test_a_campaign_sees_files_that_are_half_written(tmp_path: Path, name: str) -> None:
    status, record = campaign(tmp_path, name, "--cpu", "8", "--only", "fix", program=IN_PLACE)
    assert status == 1
    assert "is neither what it was nor what it was to be" in str(record["open"])


def wheel(folder: Path, name: str, source: str) -> str:
    """Writes a wheel of one file; its line in a list of packages."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    about = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/train.py", source)
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return f"{name}==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


@pytest.mark.slow
def test_findings_in_packages_are_compared_with_their_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    lines = [wheel(tmp_path, "tiny_one", FILES["train.py"]), wheel(tmp_path, "tiny_two", "import torch\n")]
    wanted, record, there = tmp_path / "packages.txt", tmp_path / "record.json", tmp_path / "there"
    wanted.write_text("# two\n" + "".join(lines))
    assert packages.main(True, there, wanted, record) == 0
    known = json.loads(record.read_text())
    assert known == {"tiny_one==1.0": ["tiny_one/train.py:13:9 TML101 warning medium"], "tiny_two==1.0": []}
    assert packages.main(False, there, wanted, record) == 0
    assert "no finding added or removed" in capsys.readouterr().out

    record.write_text(json.dumps({"tiny_one==1.0": [], "tiny_two==1.0": ["tiny_two/train.py:1:1 TML101 error high"]}))
    assert packages.main(False, there, wanted, record) == 1
    captured = capsys.readouterr()
    assert "  + tiny_one/train.py:13:9 TML101" in captured.out
    assert "  - tiny_two/train.py:1:1 TML101" in captured.out
    assert "--update" in captured.err

    # One that is gone, or is another than it was, is left out and named.
    wanted.write_text(lines[0] + lines[1].replace("sha256:", "sha256:0")[:-2] + "\nno_such==1.0 --hash=sha256:" + "0" * 64)
    record.write_text(json.dumps(known))
    assert packages.main(False, None, wanted, record) == 0
    captured = capsys.readouterr()
    assert "tiny_two==1.0: skipped: cannot be downloaded\nno_such==1.0: skipped: cannot be downloaded\n" in captured.out
    assert "| tiny_one==1.0 | 1 | 0 | 0 |" in captured.out
    assert packages.main(True, None, wanted, record) == 2
    assert json.loads(record.read_text()) == known


@pytest.mark.slow
def test_another_file_beside_the_others_seldom_changes_what_a_case_is_made_of() -> None:
    paths = [Path(f"fixtures/{number}.py") for number in range(40)]
    cases = [f"source {number}" for number in range(100)]
    before = [Fuzz.chosen(random.Random(case), paths) for case in cases]
    after = [Fuzz.chosen(random.Random(case), [Path("fixtures/new.py"), *paths]) for case in cases]
    assert len(set(before)) > 30
    assert {new for old, new in zip(before, after, strict=True) if old != new} <= {Path("fixtures/new.py")}


@pytest.mark.slow
def test_generated_code_is_the_same_for_the_same_seed_and_mostly_parses() -> None:
    """A case of a record can be run again; and code that parses gets past the parser, which damaged code seldom does."""
    found = {number: programs(random.Random(number), [FILES["train.py"], FILES["fit.py"]], 4) for number in (0, 2, 3)}
    for number in (0, 2):  # 1 and 4 draw for ten seconds and more
        assert found[number] == programs(random.Random(number), [FILES["train.py"], FILES["fit.py"]], 4)
    texts = [text for several in found.values() for text in several]
    assert len(set(texts)) > len(texts) / 2
    assert all("import torch" in text for text in texts)
    assert sum(parses(text.encode("utf-8", "surrogatepass")) for text in texts) > len(texts) / 2


def test_a_reshaped_document_is_json_of_another_shape() -> None:
    plain = json.dumps({"files": {"a.py": [{"code": "TML101", "count": 1}]}, "version": 1}).encode()
    found = {reshaped(random.Random(number), plain) for number in range(200)}
    assert len(found) > 100
    shapes = [json.loads(one) for one in found]
    objects = [one for one in shapes if isinstance(one, dict)]
    assert any("version" not in one for one in objects)
    assert any(isinstance(one.get("files"), list) for one in objects)
    assert len(objects) < len(shapes), "the document itself is another shape in some"
