"""A run with a cache prints what a run without one prints, whatever was done to the files, the settings and the cache."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TypeAlias

import bent_project
import pytest

from torchmemlint import workers
from torchmemlint.cli import main
from torchmemlint.files.digest import sealed
from torchmemlint.files.plain import from_plain, to_json
from torchmemlint.findings import Confidence, Edit, Finding, Fix, FlowStep, Position, Safety, Severity, Span
from torchmemlint.incremental import cache as cache_module
from torchmemlint.incremental import query_results
from torchmemlint.incremental.cache import Cache, clean
from torchmemlint.incremental.findings import FileDigests
from torchmemlint.incremental.location import FOLDER, KEY_FILE, KEY_VARIABLE, secret
from torchmemlint.incremental.previous_run import PreviousRun
from torchmemlint.index.dependency_log import DependencyLog
from torchmemlint.index.facts import CallableUse
from torchmemlint.index.module_facts import module_facts
from torchmemlint.index.modules import Modules
from torchmemlint.index.project import ClassRef, FunctionRef, Project
from torchmemlint.project import results


def lay_out(files: Mapping[str, str], root: Path) -> None:
    """Makes a folder hold just these Python files; those that stay the same keep their times."""
    for path in root.rglob("*.py"):
        if path.relative_to(root).as_posix() not in files:
            path.unlink()
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def kept_in(path: Path) -> bytes:
    """An entry of the cache, without its seal."""
    return path.read_bytes().partition(b"\n")[2]


def put(path: Path, data: bytes) -> None:
    """Writes an entry as its user's own: what only damages it is known by its seal, long before it is read."""
    kind, two, rest = path.parts[-3:]
    path.write_bytes(sealed(secret(), f"{kind}/{two}{rest.removesuffix('.json')}", data) + b"\n" + data)


Printed: TypeAlias = Callable[..., tuple[int, str, str]]
Agree: TypeAlias = Callable[..., str]
Inspect: TypeAlias = Callable[[workers.InspectAll, str], results.Checked]


def at_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TORCHMEMLINT_CACHE_DIR", FOLDER)  # where a test can look at it
    monkeypatch.delenv("TORCHMEMLINT_NO_CACHE", raising=False)
    lay_out(bent_project.project(()), folder)
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return at_first(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def one_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("one")


@pytest.fixture
def with_a_cache(one_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same folder, and what tests before have left in its cache."""
    return at_first(one_folder, monkeypatch)


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    def run(*arguments: str) -> tuple[int, str, str]:
        from torchmemlint.project import neighbours

        neighbours.forget()  # each run stands for a process of its own
        status = main([*arguments])
        done = capsys.readouterr()
        return status, done.out, done.err

    return run


@pytest.fixture
def agree(printed: Printed) -> Agree:
    """Runs with and without the cache, and holds one to the other; what was printed."""

    def run(*arguments: str) -> str:
        words = ("--preview", "-v", *(arguments or (".",)))
        fresh = printed(*words, "--no-cache")
        assert printed(*words) == fresh
        assert printed(*words) == fresh  # now nothing has changed
        return fresh[1]

    return run


@pytest.fixture
def finds_again(printed: Printed) -> Callable[[str], bool]:
    """Whether a run with the cache as it is prints what ``agree`` returned, and so does the next."""
    return lambda fresh: [printed("--preview", "-v", ".")[1] for _ in range(2)] == [fresh, fresh]


@pytest.fixture
def inspected(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are inspected, as they are."""
    seen: list[str] = []

    def watch(shared: workers.InspectAll, path: str, real: Inspect = workers.inspect) -> results.Checked:
        seen.append(path)
        return real(shared, path)

    monkeypatch.setattr("torchmemlint.running.inspecting.inspect", watch)
    return seen


# --- what other files say -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("switch", bent_project.SWITCHES)
def test_a_change_is_seen_wherever_it_matters(switch: str, with_a_cache: Path, agree: Agree, printed: Printed) -> None:
    before = printed(".", "--preview")
    lay_out(bent_project.project([switch]), with_a_cache)
    agree()
    lay_out(bent_project.project(()), with_a_cache)
    assert printed(".", "--preview") == before


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_any_row_of_changes(seed: int, here: Path, agree: Agree) -> None:
    chance = random.Random(seed)
    for on in bent_project.walk(seed + 100, 5):
        lay_out(bent_project.project(on), here)
        agree(*chance.choice(((), (), ("pkg", "train.py"), ("evaluate.py",), (".", "--select", "TML1,TML2"), (".", "--diff"))))


def test_the_first_caller_and_its_end(here: Path, agree: Agree, inspected: list[str]) -> None:
    alone = agree()
    assert "scores.append" not in alone
    lay_out(bent_project.project(["second_caller"]), here)
    assert "scores.append" in agree()
    inspected.clear()
    lay_out(bent_project.project(()), here)
    assert agree() == alone


def test_only_what_rests_on_the_change_is_inspected_again(here: Path, printed: Printed, inspected: list[str]) -> None:
    printed(".")
    inspected.clear()
    printed(".")
    assert inspected == []
    (here / "pkg/meters.py").write_text((here / "pkg/meters.py").read_text() + "# the end\n")
    printed(".")
    assert "train.py" in inspected
    assert "evaluate.py" not in inspected


@pytest.mark.parametrize(
    ("path", "old", "new", "again"),
    [
        ("pkg/models.py", "import torch\n", "# Models.\n\nimport torch\n", ["pkg/models.py"]),
        ("helper.py", "", "\n# the end\n", ["helper.py"]),
        ("pkg/meters.py", "self.values.append(value)", "self.values.append(value)  # kept", ["pkg/steps.py", "train.py"]),
    ],
)
def test_an_unchanged_interface_links_nothing(
    path: str,
    old: str,
    new: str,
    again: list[str] | None,
    here: Path,
    printed: Printed,
    inspected: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printed(".")
    inspected.clear()
    text = (here / path).read_text()
    assert old in text
    (here / path).write_text(text.replace(old, new, 1) if old else text + new)

    def linked(modules: Modules, log: DependencyLog) -> None:
        raise AssertionError("the project was linked")

    with monkeypatch.context() as patch:
        patch.setattr("torchmemlint.index.callees.Tables", linked)
        cached = printed(".", "-v")
    if again is not None:
        assert inspected == again
    else:
        assert (
            {"train.py", "pkg/models.py"} <= {*inspected} < {path.relative_to(here).as_posix() for path in here.rglob("*.py")}
        )
    assert cached == printed(".", "-v", "--no-cache")
    inspected.clear()
    printed(".", "-v")
    assert inspected == []


def test_why_code_does_not_run_rests_on_facts_of_other_files(here: Path, agree: Agree, inspected: list[str]) -> None:
    files = {
        "train.py": """\
import settings
import torch

def evaluate(net: torch.nn.Module, loader):
    net.eval()
    if settings.DEBUG:
        for images in loader:
            print(net(images.cuda()).argmax(1))

if __name__ == "__main__":
    evaluate(torch.load("net.pt").cuda(), [])
""",
        "settings.py": "import torch\nDEBUG = False\n",
        "more.py": "import settings\nimport torch\n",
    }
    lay_out(files, here)
    assert "TML201" not in agree()
    inspected.clear()
    lay_out(files | {"settings.py": "# no longer\nimport torch\nDEBUG = False\nother = print(1)\n"}, here)
    assert "TML201" not in agree()
    assert inspected.count("train.py") == 1  # without the cache
    for edit in ({"settings.py": "import torch\nDEBUG = True\n"}, {"more.py": files["more.py"] + "settings.DEBUG = True\n"}):
        lay_out(files | edit, here)
        assert "TML201" in agree()
        lay_out(files, here)
        assert "TML201" not in agree()


def test_a_file_without_a_word_of_torch_moves_below_those_that_run_it(here: Path, agree: Agree, inspected: list[str]) -> None:
    (here / "plain.py").write_text("def double(x):\n    return x * 2\n")
    text = "import torch\nfrom plain import double\n\n\ndef fit(model, loader, optimizer):\n    total = 0\n    for batch in loader:\n"
    text += "        loss = double(model(batch).mean())\n        loss.backward()\n        optimizer.step()\n        total += loss\n    return total\n"
    (here / "fits.py").write_text(text)
    first = agree()
    assert "fits.py" in first
    for before in ("# Plain.\n\n\n", "# Plain.\n\n\n\ndef nothing():\n    pass\n\n\n"):
        (here / "plain.py").write_text(f"{before}def double(x):\n    # twice\n    return x * 2\n")
        assert "fits.py" in agree()


def test_what_another_run_kept_meanwhile_is_not_believed(
    here: Path, printed: Printed, inspected: list[str], agree: Agree
) -> None:
    """Answers of a run over other paths are answers about another project."""
    agree()
    models = here / "pkg/models.py"
    before = models.read_text()
    lay_out(bent_project.project(["base_outside", "meter_detaches"]), here)
    printed("pkg", "train.py", "--preview")
    lay_out(bent_project.project(()), here)
    models.write_text("# once more\n" + before)
    agree()


def test_files_of_another_framework_are_not_inspected_again(here: Path, printed: Printed, inspected: list[str]) -> None:
    (here / "other.py").write_text("import tensorflow as tf\n\n\ndef no_grad(backward):\n    return backward.detach()\n")
    printed(".")
    assert "other.py" in inspected
    inspected.clear()
    (here / "pkg/meters.py").write_text((here / "pkg/meters.py").read_text() + "# the end\n")
    printed(".")
    assert inspected
    assert "other.py" not in inspected


def test_files_named_one_by_one_use_what_is_known_of_those_around(here: Path, agree: Agree, inspected: list[str]) -> None:
    agree("evaluate.py")
    inspected.clear()
    agree("evaluate.py")
    assert inspected == ["evaluate.py"]  # by the run without a cache
    lay_out(bent_project.project(["second_caller"]), here)
    assert "evaluate.py" in agree("evaluate.py")
    lay_out(bent_project.project(["second_caller", "helper_deleted"]), here)
    agree("evaluate.py")


# --- what stays the same, and what does not -------------------------------------------------------------------------


def test_a_new_time_with_the_same_content_is_no_change(here: Path, printed: Printed, inspected: list[str]) -> None:
    printed(".")
    inspected.clear()
    for path in here.rglob("*.py"):
        os.utime(path, (1, 1))
    printed(".")
    assert inspected == []


def test_a_change_that_keeps_size_and_time_at_once_is_seen(here: Path, agree: Agree) -> None:
    path = here / "pkg/steps.py"
    times = path.stat()
    agree()
    text = path.read_text()
    path.write_text(text.replace("outputs.append(model(batch))", "outputs.append(10+0+0+0+0+0)"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert path.stat().st_size == times.st_size
    assert "--> pkg/steps.py" not in agree()


@pytest.mark.slow
def test_settings_have_their_own_results(here: Path, agree: Agree) -> None:
    everything = agree()
    assert agree(".", "--ignore", "TML201") != everything
    (here / "pyproject.toml").write_text('[tool.torchmemlint]\nignore = ["TML102"]\n')
    some = agree()
    assert "TML102" not in some
    (here / "pyproject.toml").write_text('[tool.torchmemlint]\nno-grad-wrappers = ["pkg.guards.quiet"]\n')
    agree()
    (here / "pyproject.toml").unlink()
    assert agree() == everything


def test_paths_are_reported_as_given(here: Path, agree: Agree, monkeypatch: pytest.MonkeyPatch) -> None:
    agree()
    assert str(here) in agree(str(here))
    monkeypatch.chdir(here / "pkg")
    agree("..")
    agree(".")


def test_a_cache_of_another_program_is_recognized_by_all_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    package = Path(workers.__file__).parent
    files = {str(path) for path in package.rglob("*.py")} | {str(package / "torch_facts" / "torch.toml")}
    real, seen = os.stat, set()

    def watch(path: str) -> os.stat_result:
        seen.add(path)
        return real(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", watch)
        cache_module._own_digest()
    assert seen >= files


def test_another_version_of_the_program_starts_over(
    here: Path, printed: Printed, inspected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed(".")
    inspected.clear()
    monkeypatch.setattr(cache_module, "_own_digest", lambda: "other")
    printed(".")
    assert inspected


def test_a_failure_of_ours_is_not_kept(here: Path, printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("torchmemlint.analysis.analyze_module", lambda *_: 1 / 0)
        assert printed(".")[0] == 2
        assert printed(".")[0] == 2
    assert printed(".")[0] == 1


def test_skipped_and_unparsable_files_are_reported_again(here: Path, agree: Agree) -> None:
    (here / "large.py").write_text("import torch\n" + "x = 1\n" * 200_000)
    (here / "bad.py").write_text("import torch\ndef (\n")
    assert "TML000" in agree()
    (here / "large.py").write_text("import torch\n" + "y = 1\n" * 200_000)
    agree()


def test_fixes_are_the_same(here: Path, printed: Printed) -> None:
    printed(".")
    words = (".", "--diff", "--unsafe-fixes")
    assert printed(*words) == printed(*words, "--no-cache")
    assert printed(*words)[1]


# --- the folder -----------------------------------------------------------------------------------------------------


def test_the_folder_says_what_it_is(here: Path, printed: Printed) -> None:
    printed(".")
    assert (here / FOLDER / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55\n")
    assert (here / FOLDER / ".gitignore").read_text() == "*\n"


def test_by_default_it_stands_in_the_users_cache_folder(
    here: Path, printed: Printed, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """For each project apart, and nothing is written into what is linted."""
    user = tmp_path_factory.mktemp("user")
    monkeypatch.delenv("TORCHMEMLINT_CACHE_DIR")
    monkeypatch.setenv("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", str(user))
    (here / "pyproject.toml").write_text("[tool.torchmemlint]\n")
    before = sorted(here.rglob("*"))
    fresh = printed(".")
    assert sorted(here.rglob("*")) == before
    ours = user / "torchmemlint"
    (project,) = (path for path in ours.iterdir() if path.is_dir())
    assert {path.name for path in ours.iterdir()} == {"CACHEDIR.TAG", ".gitignore", KEY_FILE, project.name}
    if os.name != "nt":
        assert ours.stat().st_mode & 0o777 == 0o700
        assert (ours / KEY_FILE).stat().st_mode & 0o777 == 0o600
    monkeypatch.chdir(here / "pkg")
    printed(".")
    assert [path for path in ours.iterdir() if path.is_dir()] == [project]  # beside the configuration, wherever one stands
    other = here / "other"
    other.mkdir()
    (other / "torchmemlint.toml").write_text("")
    monkeypatch.chdir(other)
    printed(".")
    assert len([path for path in ours.iterdir() if path.is_dir()]) == 2
    monkeypatch.chdir(here)
    assert printed("clean") == (0, f"Deleted {project}.\n", "")
    assert len([path for path in ours.iterdir() if path.is_dir()]) == 1
    assert printed("clean") == (0, f"There is no cache in {project}.\n", "")
    assert printed(".") == fresh


def test_a_project_can_ask_for_it(here: Path, agree: Agree, printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHMEMLINT_CACHE_DIR")
    (here / "pyproject.toml").write_text("[tool.torchmemlint]\ncache-in-project = true\n")
    monkeypatch.chdir(here / "pkg")
    agree()
    assert [*(here / FOLDER).rglob("results/*/*.json")]
    assert not (here / "pkg" / FOLDER).exists()
    assert printed("clean")[0] == 0
    assert not (here / FOLDER).exists()


@pytest.fixture
def lying(here: Path, printed: Printed, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that hides every finding of ``here``, as an attacker with a key of their own makes one."""
    assert printed(".")[0] == 1
    shutil.rmtree(here / FOLDER)
    with monkeypatch.context() as theirs:
        theirs.setenv(KEY_VARIABLE, "what an attacker has")
        texts = {path: path.read_bytes() for path in here.rglob("*.py")}
        times = {path: path.stat().st_mtime_ns - 10**11 for path in texts}
        for path in texts:
            os.utime(path, ns=(times[path], times[path]))
        printed(".")
        for path in (here / FOLDER).rglob("results/*/*.json"):
            run = json.loads(kept_in(path))
            run[1] = run[2] = []
            put(path, json.dumps(run).encode())
        assert printed(".")[0] == 0  # it is believed by anyone who has that key
    return here / FOLDER


def test_a_planted_cache_is_not_believed(lying: Path, here: Path, agree: Agree, printed: Printed) -> None:
    assert printed(".")[0] == 1
    agree()


@pytest.mark.slow
def test_a_planted_cache_is_not_believed_under_the_users_name(lying: Path, here: Path, agree: Agree, printed: Printed) -> None:
    """The folder's name can be seen, the secret cannot be had from it."""
    (theirs,) = lying.glob("0*")
    aside = here.parent / f"{here.name}-theirs"
    theirs.rename(aside)
    assert printed(".")[0] == 1
    (mine,) = lying.glob("0*")
    for path in aside.rglob("*"):
        if path.is_file():
            target = mine / path.relative_to(aside)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    assert printed(".")[0] == 1
    agree()


def test_an_entry_in_anothers_place_is_not_there(here: Path, agree: Agree) -> None:
    fresh = agree()
    (here / "train.py").write_text((here / "train.py").read_text() + "\n")
    agree()
    paths = sorted((here / FOLDER).rglob("findings/*/*"))
    texts = [path.read_bytes() for path in paths]
    for path, text in zip(paths, texts[1:] + texts[:1], strict=True):
        path.write_bytes(text)
    for path in (here / FOLDER).rglob("results/*/*.json"):
        path.unlink()
    assert agree() == fresh


@pytest.mark.skipif(os.name == "nt", reason="there the folder's access list says who may read the key")
@pytest.mark.parametrize("wrong", ["open to all", "too short", "a link", "folder open to all"])
def test_a_key_that_others_may_know_is_not_used(
    wrong: str, here: Path, printed: Printed, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    user = tmp_path_factory.mktemp("user")
    monkeypatch.setenv("XDG_CACHE_HOME", str(user))
    fresh = printed(".")
    key = user / "torchmemlint" / KEY_FILE
    if wrong == "open to all":
        key.chmod(0o644)
    elif wrong == "too short":
        key.write_bytes(b"")
    elif wrong == "a link":
        key.rename(user / "elsewhere")
        key.symlink_to(user / "elsewhere")
    else:
        key.unlink()
        key.parent.chmod(0o777)
    status, out, err = printed(".")
    assert (status, out) == fresh[:2]
    assert err.count("nothing is cached") == 1


def test_a_key_that_is_shared(here: Path, printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    """As CI's jobs with the same secret: what one wrote serves the other."""
    monkeypatch.setenv(KEY_VARIABLE, "a secret of the organisation")
    printed(".")
    (first,) = (here / FOLDER).glob("0*")
    monkeypatch.setenv(KEY_VARIABLE, "short")
    assert "less than 16 characters" in printed(".")[2]
    monkeypatch.delenv(KEY_VARIABLE)
    printed(".")
    assert len([*(here / FOLDER).glob("0*")]) == 2
    monkeypatch.setenv(KEY_VARIABLE, "a secret of the organisation")
    before = {path: path.stat().st_mtime_ns for path in first.rglob("*") if path.is_file()}
    printed(".")
    assert {path: path.stat().st_mtime_ns for path in first.rglob("*") if path.is_file()} == before


def test_a_home_in_the_checkout_is_no_home(here: Path, printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout may bring a key of its author's."""
    (here / ".git").mkdir()
    monkeypatch.delenv("TORCHMEMLINT_CACHE_DIR")
    monkeypatch.setenv("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", str(here / "home"))
    fresh = printed(".", "--no-cache")
    status, out, err = printed(".")
    assert (status, out) == fresh[:2]
    assert "no cache folder of the user" in err
    assert not (here / "home").exists()
    assert printed("clean")[0] == 0


def test_its_place_can_be_chosen(here: Path, printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    printed(".", "--cache-dir", "elsewhere/deep")
    assert (here / "elsewhere/deep/CACHEDIR.TAG").exists()
    monkeypatch.setenv("TORCHMEMLINT_CACHE_DIR", "by_environment")
    printed(".")
    assert (here / "by_environment/CACHEDIR.TAG").exists()
    assert printed("clean") == (0, "Deleted by_environment.\n", "")
    assert not (here / "by_environment").exists()
    monkeypatch.setenv("TORCHMEMLINT_NO_CACHE", "1")
    printed(".")
    assert not (here / FOLDER).exists()
    assert not (here / "by_environment").exists()


def test_clean_deletes_our_folder_only(here: Path, printed: Printed) -> None:
    printed(".")
    assert printed("clean")[0] == 0
    assert not (here / FOLDER).exists()
    assert printed("clean")[0] == 0
    status, out, err = printed("clean", "--cache-dir", "pkg")
    assert (status, out) == (2, "")
    assert "pkg is not a cache of torchmemlint" in err
    assert (here / "pkg/steps.py").exists()
    with pytest.raises(ValueError, match="not a cache"):
        clean(str(here))


def test_a_folder_of_something_else_is_left_alone(here: Path, printed: Printed) -> None:
    fresh = printed(".", "--no-cache")
    status, out, err = printed(".", "--cache-dir", "pkg")
    assert (status, out) == fresh[:2]
    assert err.count("\n") == 1
    assert "nothing is cached" in err
    assert sorted(path.name for path in (here / "pkg").iterdir()) == [
        "__init__.py",
        "guards.py",
        "meters.py",
        "models.py",
        "steps.py",
    ]


def test_a_cache_that_cannot_be_written_costs_one_warning(here: Path, printed: Printed) -> None:
    (here / FOLDER).write_text("a file")
    fresh = printed(".", "--no-cache")
    status, out, err = printed(".")
    assert (status, out) == fresh[:2]
    assert err.count("warning") == 1
    assert printed(".", "-q")[2] == ""


@pytest.mark.slow
def test_a_damaged_cache_is_an_empty_one(here: Path, agree: Agree, finds_again: Callable[[str], bool]) -> None:
    fresh = agree()
    for damage in ("", "{", "[]", "null", '{"a": 1}', "[[1, 2], 3]", "\x00\xff", "[" * 100_000):
        for sealing in (put, Path.write_bytes):
            paths = [*(here / FOLDER).rglob("*.json")]
            assert paths
            for path in paths:
                sealing(path, damage.encode("latin-1"))
            assert finds_again(fresh), damage[:10]


@pytest.mark.slow
def test_findings_that_are_not_what_was_kept_are_not_there(
    here: Path, agree: Agree, finds_again: Callable[[str], bool]
) -> None:
    fresh = agree()
    paths = [*(here / FOLDER).rglob("findings/*/*")]
    assert paths
    damages = (
        "",
        "\n",
        "[[],[],0]",
        "[[],[],-1]",
        "[[],[],1]",
        "[[],[],1]\nx",
        "[[],[],9]\nx\ny",
        "[[1],[],0]\nx\ny",
        "\x00\xff",
    )
    plain = [damage.encode("latin-1") for damage in damages]
    for packed in (*map(zlib.compress, plain), *plain, kept_in(paths[0])[:-3]):
        for path in paths:
            put(path, packed)
        for path in (here / FOLDER).rglob("results/*/*.json"):
            path.unlink()
        assert finds_again(fresh), packed


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether edits that others see could be followed, one by one."""
    seen: list[bool] = []

    def watch(previous: PreviousRun, *arguments: object, real=PreviousRun.propagates) -> bool:  # type: ignore[no-untyped-def]
        seen.append(real(previous, *arguments))
        return seen[-1]

    monkeypatch.setattr(PreviousRun, "propagates", watch)
    return seen


ADDED = "\n\ndef added(model, x):\n    return model(x).sum()\n"


def test_an_edit_that_others_see_is_followed(here: Path, printed: Printed, followed: list[bool], inspected: list[str]) -> None:
    printed(".", "-v")
    for turn in range(3):  # each starts from what the one before it wrote down
        inspected.clear()
        (here / "pkg/meters.py").write_text((here / "pkg/meters.py").read_text() + ADDED.replace("added", f"added_{turn}"))
        cached = printed(".", "-v")
        assert inspected == ["pkg/steps.py", "train.py"]  # they rest on the text
        assert cached == printed(".", "-v", "--no-cache")
    assert followed == [True] * 3


def test_only_the_queries_that_an_edit_can_change_are_asked(
    here: Path, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed(".")
    asked: list[str] = []

    def watch(project: Project, ref: FunctionRef, real=Project.callers) -> object:  # type: ignore[no-untyped-def]
        asked.append(ref.qualname)
        return real(project, ref)

    monkeypatch.setattr(Project, "callers", watch)
    (here / "helper.py").write_text((here / "helper.py").read_text() + ADDED)
    printed(".")
    assert "train_step" not in asked


@pytest.mark.slow
def test_files_that_come_and_go_are_followed(here: Path, agree: Agree, followed: list[bool]) -> None:
    (here / "plain.py").write_text("def settings():\n    return {}\n")
    agree()
    helper = (here / "helper.py").read_text()
    states = (
        ("helper.py", f"import plain\n{helper}"),  # which puts another file beside those of torch
        ("helper.py", helper),
        ("new.py", "import torch\nfrom pkg.steps import *\nfrom pkg import models\n\n\ndef run(net, x):\n    return net(x)\n"),
        ("new.py", "import torch\n\n\ndef run(net, x:\n    return net(x)\n"),
        ("new.py", "import torch\n\n\ndef run(net, x):\n    return net(x)\n"),
        ("notes.py", "# of nothing\n"),
        ("pkg/steps.py", None),
        ("pkg/meters.py", "class ("),
        ("new.py", None),
    )
    for number, (name, text) in enumerate(states, 1):
        if text is None:
            (here / name).unlink()
        else:
            (here / name).write_text(text)
        agree()
        assert followed == [True] * number


def test_another_set_of_packages_is_not_followed(here: Path, agree: Agree, followed: list[bool]) -> None:
    agree()
    (here / "pkg/__init__.py").unlink()
    agree()
    assert followed == [False]


def test_segments_of_runs_that_did_not_end_are_let_go_of(here: Path, printed: Printed) -> None:
    printed(".")
    (folder,) = {path.parent for path in (here / FOLDER).rglob("segments/*")}
    for name, age in (("lost", 7200), ("at-work", 60)):
        (folder / name).write_bytes(b"")
        os.utime(folder / name, (time.time() - age,) * 2)
    (here / "helper.py").write_text((here / "helper.py").read_text() + ADDED)
    printed(".")
    names = {path.name for path in folder.iterdir()}
    assert "lost" not in names
    assert "at-work" in names
    assert len(names) == 3


@pytest.mark.parametrize("damage", ["gone", "cut", "flipped", "dependencies"])
def test_a_damaged_log_is_not_used(damage: str, here: Path, agree: Agree, followed: list[bool]) -> None:
    agree()
    (segment,) = (here / FOLDER).rglob("segments/*")
    data = segment.read_bytes()
    if damage == "gone":
        segment.unlink()
    elif damage == "cut":
        segment.write_bytes(data[: len(data) // 2])
    elif damage == "flipped":
        segment.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    else:
        (dependencies,) = (here / FOLDER).rglob("dependencies/*/*.json")
        put(dependencies, kept_in(dependencies) + b" ")
    (here / "pkg/meters.py").write_text((here / "pkg/meters.py").read_text() + ADDED)
    agree()
    assert followed == [False]
    (here / "pkg/meters.py").write_text((here / "pkg/meters.py").read_text() + ADDED.replace("added", "again"))
    agree()
    assert followed == [False, True]
    assert len([*(here / FOLDER).rglob("segments/*")]) == 2  # the others are released


@pytest.mark.slow
def test_damage_in_the_middle_of_a_value(here: Path, agree: Agree, printed: Printed) -> None:
    fresh = agree()
    chance = random.Random(7)
    for _ in range(6):
        for path in sorted((here / FOLDER).rglob("*.json")):
            *before, data = kept_in(path).decode().split("\n")
            value = json.loads(data)
            place = value
            while isinstance(place, list) and place:
                parent, at = place, chance.randrange(len(place))
                place = place[at]
            parent[at] = chance.choice([None, 7, "x", [], [[]], True])
            put(path, "\n".join([*before, json.dumps(value)]).encode())
        for path in sorted((here / FOLDER).rglob("findings/*/*")):
            lines = zlib.decompress(kept_in(path)).decode().split("\n")
            lines[chance.randrange(len(lines))] = chance.choice(["7", "", "[]", "x\ny", '["text",1]', lines[-1]])
            put(path, zlib.compress("\n".join(lines).encode()))
        for path in (here / FOLDER).rglob("results/*/*.json"):
            path.unlink()
        printed(".", "-q")  # must not fail; what it prints rests on facts that we have made false ourselves
        shutil.rmtree(here / FOLDER)
        assert agree() == fresh


@pytest.mark.slow
def test_runs_at_the_same_time_do_not_disturb_each_other(here: Path, agree: Agree) -> None:
    command = [sys.executable, "-m", "torchmemlint", ".", "--preview"]
    fresh = subprocess.run([*command, "--no-cache"], capture_output=True, check=False).stdout
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _ in range(3)]
    assert [one.communicate()[0] for one in both] == [fresh] * 3
    assert not [path for path in (here / FOLDER).rglob("*") if path.is_file() and path.suffix not in (".json", ".TAG", "")]
    agree()


@pytest.mark.slow
def test_several_processes_leave_the_same_cache(here: Path, agree: Agree, printed: Printed) -> None:
    one = printed(".", "-j", "1")
    files = {path.relative_to(here): path.read_bytes() for path in (here / FOLDER).rglob("findings/*/*")}
    assert files
    shutil.rmtree(here / FOLDER)
    assert printed(".", "-j", "3") == one
    assert {path.relative_to(here): path.read_bytes() for path in (here / FOLDER).rglob("findings/*/*")} == files
    agree(".", "-j", "2")


def test_what_is_old_goes(here: Path, printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    printed(".")
    before = next((here / FOLDER).glob("*-*"))
    for path in before.rglob("*"):
        if path.is_file():
            os.utime(path, (1, 1))
    monkeypatch.setattr(cache_module, "_own_digest", lambda: "newer")
    printed(".")
    assert not before.exists()
    assert [path.name for path in (here / FOLDER).glob("*-*")] != [before.name]


# --- plain data -----------------------------------------------------------------------------------------------------


def test_findings_survive() -> None:
    span = Span(Position(1, 2), Position(3, 4))
    finding = Finding(
        "TML101", "name", Severity.ERROR, Confidence.HIGH, "lone \udc80", "a.py", span, noqa_rows=frozenset({3, 1}),
        flow=(FlowStep("b.py", span, "there", 2),), fix=Fix("fix", Safety.SAFE, (Edit(span, "x"),), "torch"), cell=1,
    )  # fmt: skip
    for each in (finding, replace(finding, fix=None, flow=(), cell=None)):
        assert from_plain(Finding, json.loads(to_json(each))) == each


def test_what_is_not_a_finding_is_refused() -> None:
    good = json.loads(
        to_json(Finding("T", "n", Severity.NOTE, Confidence.HIGH, "m", "p", Span(Position(1, 1), Position(1, 1))))
    )
    assert len(good) == len(fields(Finding))
    for at in range(len(good)):
        number = fields(Finding)[at].type in ("float", float)
        for bad in (object(), {"a": 1}, [None], "high" if number else 1.5):
            with pytest.raises(ValueError, match="plain form of a Finding"):
                from_plain(Finding, [*good[:at], bad, *good[at + 1 :]])
    with pytest.raises(ValueError, match="plain form"):
        from_plain(Finding, good[:-1])


def test_questions_survive() -> None:
    use = CallableUse("torch.no_grad", (), True, CallableUse("nullcontext", (), True))
    for question in (
        ("text", 'a"\n\u1234\udc80.py'),
        ("mro", ClassRef("a.py", "\x7fC")),
        ("facts", FunctionRef("a.py", "f")),
        ("manager_effect", "a.py", "f", use),
    ):
        assert query_results.from_text(query_results.to_text(question)) == question
        parts = [part if isinstance(part, str) else [type(part).__name__, part] for part in question]
        assert query_results.to_text(question) == to_json(parts)


@pytest.mark.parametrize(
    "text", ["", "1", "[]", "{}", '["text", 1]', '["facts", ["FunctionRef", "[1]"]]', '["facts", ["os", "[]"]]']
)
def test_what_is_no_question_does_not_hold(text: str) -> None:
    known = query_results.QueryResults(Project.build([]), FileDigests((), None))
    assert not known.is_unchanged(text, "")
    assert not known.is_unchanged(text, "x")


def test_questions_only_ask() -> None:
    known = query_results.QueryResults(Project.build([module_facts("a.py", "x = 1")]), FileDigests((), None))
    for name in ("__init__", "build", "__class__", "query_log", "_names"):
        assert known.fingerprint((name, "a.py")) == query_results.MISSING_RESULT
    assert known.fingerprint(("module", "b.py")) == query_results.MISSING_RESULT
    assert known.fingerprint(("module", "a.py")) != query_results.MISSING_RESULT


def test_questions_about_what_is_gone_leave_no_trace() -> None:
    def fresh() -> Project:
        return Project.build([module_facts("a.py", "from b import f\nclass A: ...\nf()"), module_facts("b.py", "def f(): ...")])

    gone: list[tuple[object, ...]] = [
        *((name, "gone.py", "f") for name in ("resolve", "callees", "outside", "class_of", "is_function")),
        *((name, FunctionRef("gone.py", "f")) for name in ("grad_mode", "callers", "facts")),
        *((name, FunctionRef("a.py", "gone")) for name in ("grad_mode", "callers", "facts")),
        *((name, ClassRef("a.py", "Gone")) for name in ("mro", "subclasses", "facts")),
        ("method", ClassRef("gone.py", "Gone"), "f"),
        ("attr", ClassRef("gone.py", "Gone"), "f"),
    ]
    there = [("resolve", "a.py", "f"), ("callers", FunctionRef("b.py", "f")), ("mro", ClassRef("a.py", "A"))]
    wanted = [query_results.QueryResults(fresh(), FileDigests((), None)).fingerprint(question) for question in there]
    assert query_results.MISSING_RESULT not in wanted
    for question in gone:
        project = fresh()
        first = query_results.QueryResults(project, FileDigests((), None)).fingerprint(question)
        assert [query_results.QueryResults(project, FileDigests((), None)).fingerprint(each) for each in there] == wanted, (
            question
        )
        assert query_results.QueryResults(project, FileDigests((), None)).fingerprint(question) == first


def test_a_cache_in_memory_of_nothing(tmp_path: Path) -> None:
    cache = Cache.below(str(tmp_path / "new"))
    assert not cache.trouble
    assert cache.facts("ab" * 16, "a.py") is None
    facts = module_facts("a.py", "import torch\n")
    shape = cache.store_facts("ab" * 16, facts, {"f": "12"})
    assert cache.facts("ab" * 16, "other/b.py") == (replace(facts, path="other/b.py"), shape, {"f": "12"})
