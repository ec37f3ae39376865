"""The documentation says what the program does: pages, tables, printed output, links, codes, settings and commands."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import sys
import textwrap
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml  # type: ignore[import-untyped]

from torchmemlint import check_paths, check_source
from torchmemlint.confirm import command
from torchmemlint.project.config import KEYS
from torchmemlint.project.selection import ABOUT_THE_RUN
from torchmemlint.rules import ALL_RULES, page
from torchmemlint.rules.api import Rule

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
GUIDE = [README, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
CODES = {rule.code for rule in ALL_RULES}
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)

PAGE_HEADINGS = ("What it does", "What it costs", "Example", "Fix", "When to ignore", "References")
"""The headings of a rule's page, in this order."""

each_rule = pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.code)
each_file = pytest.mark.parametrize("path", GUIDE, ids=lambda path: path.relative_to(ROOT).as_posix())


@cache
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["generate"] = module
    spec.loader.exec_module(module)
    return module


@cache
def generated() -> dict[Path, str]:
    files: dict[Path, str] = generator().generated()
    return files


def prose(text: str) -> str:
    return FENCE.sub("", text)


def code(text: str) -> str:
    """The code blocks: those between fences, and those that are indented."""
    fenced = "\n".join(block for _, block in FENCE.findall(text))
    return fenced + "\n" + "\n".join(re.findall(r"^    .+$", prose(text), re.MULTILINE))


# --- what is generated ----------------------------------------------------------------------------------------------


def test_the_cards_are_those_of_the_rules() -> None:
    written = generator().CARDS.read_text(encoding="utf-8")
    assert written == generator().cards(), "run `python docs/generate.py`"


@pytest.mark.slow
def test_a_code_that_is_taken_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = SimpleNamespace(RULE=SimpleNamespace(code="TML308"), __name__="rules.twin")
    monkeypatch.setattr(generator(), "import_module", lambda name: twin)
    with pytest.raises(SystemExit, match=r"TML308 is taken: rules\.twin and rules\.twin have it; docs/rules/README\.md"):
        generator().rule_modules()


@pytest.mark.slow
def test_generated_files_are_current() -> None:
    stale = [
        path.relative_to(ROOT).as_posix()
        for path, text in generated().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert not stale, "run `python docs/generate.py`"


@pytest.mark.slow
def test_there_is_no_page_of_a_rule_that_is_gone() -> None:
    written = {path for path in generated() if path.parent.name == "rules"}
    assert set((ROOT / "docs" / "rules").iterdir()) == written


def test_readme_shows_what_commands_print() -> None:
    shown = [block for kind, block in FENCE.findall(README.read_text(encoding="utf-8")) if kind == "console"]
    assert shown
    for block in shown:
        assert "TML" in block.partition("\n")[2], "no finding in it"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="confirm's sandbox needs Linux")
def test_what_confirm_prints_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(ROOT)
    assert command.main(["examples/inference_without_no_grad.py:16", "--device", "cpu"]) == 0
    printed = re.sub(r"(?<=Sandbox: ).*\n", "…\n", capsys.readouterr().out)
    for path in (README, ROOT / "docs" / "confirm.md"):
        shown = [re.sub(r"(?<=Sandbox: ).*\n", "…\n", block) for _, block in FENCE.findall(path.read_text(encoding="utf-8"))]
        assert any(block.endswith(printed) for block in shown), f"{path}: {printed}"


# --- pages ----------------------------------------------------------------------------------------------------------


@each_rule
def test_a_page_has_a_summary_and_all_headings(rule: Rule) -> None:
    text = page(rule.code)
    assert tuple(re.findall(r"^## (.+)$", text, re.MULTILINE)) == PAGE_HEADINGS
    first, blank, *_ = text.split("\n")
    assert first.endswith(".")
    assert not blank
    sections = re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]
    assert all(section.strip() for section in sections), "an empty section"


@pytest.mark.parametrize(
    "rule", [rule for rule in ALL_RULES if rule.code not in ("TML001", "TML901")], ids=lambda rule: rule.code
)
def test_the_example_of_a_page_is_reported_and_its_fix_is_not(rule: Rule, tmp_path: Path) -> None:
    bad, good = (block for kind, block in FENCE.findall(page(rule.code)) if kind == "python")
    name = str(tmp_path / "example.py")
    options = {"preview": True, "extend-select": [rule.code]}
    found = check_source(bad, name, options={**options, "notes": True}, isolated=True)
    printed = [finding.severity.value for finding in found if finding.code == rule.code]
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    (shown,) = re.findall(rf"^\| \[{rule.code}\](?:[^|]*\|){{2}} (\w+)", index, re.MULTILINE)
    assert printed[:1] == [shown], "the table has the severity that the example is reported with"
    assert check_source(good, name, options=options, isolated=True) == []


@each_rule
def test_a_page_describes_a_fix_only_where_there_is_one(rule: Rule) -> None:
    fix = re.split(r"^## .+$", page(rule.code), flags=re.MULTILINE)[4].strip()
    assert fix.startswith("None") is (rule.fix.value == "none")
    if rule.fix.value != "none":
        assert rule.fix.value in fix.lower()


@each_rule
def test_a_page_names_a_source(rule: Rule) -> None:
    references = page(rule.code).partition("## References")[2]
    assert re.search(r"https://|^- measured: |^- docs/", references, re.MULTILINE)


# --- codes ----------------------------------------------------------------------------------------------------------


@each_file
def test_every_code_in_it_exists(path: Path) -> None:
    assert set(re.findall(r"\bTML\d{3}\b", path.read_text(encoding="utf-8"))) <= CODES


def test_every_rule_is_in_the_changelog_and_has_fixtures() -> None:
    assert set(re.findall(r"\bTML\d{3}\b", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))) == CODES
    fixtures = {path.name for path in (ROOT / "fixtures").iterdir() if re.fullmatch(r"TML\d{3}", path.name)}
    assert fixtures == CODES - ABOUT_THE_RUN - {"TML002", "TML901"}  # tests/test_unused.py, tests/test_run_growth.py


# --- links, settings, commands --------------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub makes of a file's headings."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_file
def test_its_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path.read_text(encoding="utf-8"))):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file), target


def test_every_page_of_the_guide_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    missing = [path.name for path in (ROOT / "docs").glob("*.md") if path.name != "index.md" and f"({path.name})" not in index]
    assert missing == []


def test_every_page_of_the_guide_is_in_the_site() -> None:
    site = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if f'"{page}"' not in site] == [], "add it to `nav`"


def test_every_setting_is_explained() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE)) == set(KEYS)


@each_file
def test_its_configuration_is_valid(path: Path) -> None:
    for kind, block in FENCE.findall(path.read_text(encoding="utf-8")):
        if kind == "toml":
            table = tomllib.loads(block).get("tool", {}).get("torchmemlint")
            if table is not None:
                check_source("", options=table, isolated=True)


@each_file
def test_its_commands_have_the_options_that_they_use(path: Path) -> None:
    from torchmemlint.cli import parsers, split_command

    made = parsers()
    for line in re.findall(
        r"^ *(?:\$ |- run: |- (?:script: )?|sh ')?(?:\w+=\S+ |\.venv/bin/)*torchmemlint (.+?)'?$",
        code(path.read_text(encoding="utf-8")),
        re.MULTILINE,
    ):
        words = shlex.split(re.split(r"\s+(?:#|>|2>|\|)\s*", line)[0])
        command, rest = split_command(words)
        if command == "run":  # what comes from the program on is the program's
            rest = rest[
                : next((at for at, word in enumerate(rest) if word in ("-m", "python", "--") or word.endswith(".py")), None)
            ]
        made[command].parse_args(rest)  # SystemExit for an option that does not exist


CHECKED = {"": str, "lua": str, "lisp": str, "sh": str, "console": str, "diff": str, "text": str, "groovy": str}
"""Kinds of blocks whose content other tests check, or that are programs of others; ``read`` knows those that are parsed."""


def read(kind: str, block: str) -> None:
    """Raises where a code block is not what it says it is."""
    if kind == "python":
        compile(block, "block.py", "exec")
    elif kind in ("json", "jsonc"):
        json.loads(re.sub(r"^\s*//.*$", "", block, flags=re.MULTILINE))
    elif kind in ("yaml", "yml"):
        yaml.safe_load(block)
    elif kind == "toml":
        tomllib.loads(block)
    else:
        assert kind in CHECKED, f"say in tests/test_docs.py how a block of kind {kind!r} is checked"


@each_file
def test_its_code_blocks_can_be_read(path: Path) -> None:
    for kind, block in FENCE.findall(path.read_text(encoding="utf-8")):
        if (path.stem, kind) != ("TML000", "python"):  # which shows what cannot be parsed
            read(kind, textwrap.dedent(block))


def test_hints_name_packages_that_can_be_installed() -> None:
    """Until there is a release, `pip install torchmemlint[…]` fails: hints name the packages of the extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.split(r"[<>=;\[ ]", one)[0] for extra in project["optional-dependencies"].values() for one in extra}
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "torchmemlint").rglob("*.py"))
    hints = re.findall(r"pip install '?([\w.-]+)", code)
    assert {"pygls", "distributed", "torch"} <= {*hints} <= names


@pytest.mark.usefixtures("nothing_around")
def test_the_advice_against_empty_cache_is_clean() -> None:
    text = (ROOT / "docs" / "empty-cache.md").read_text(encoding="utf-8")
    (block,) = (block for kind, block in FENCE.findall(text) if kind == "python")
    assert check_source(block, "advice.py", options={"notes": True}, isolated=True) == []


def blocks_of(name: str) -> list[str]:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    return [block for kind, block in FENCE.findall(text) if kind == "python"]


def test_the_program_that_checks_paths_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = blocks_of("getting-started.md")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text((ROOT / "examples" / "loss_accumulation.py").read_text())
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "block.py", "exec"), {})
    assert "src/train.py 17 TML101" in capsys.readouterr().out


def test_the_program_that_reports_memory_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks_of("oom.md")
    exec(compile(block, "block.py", "exec"), {})
    assert capsys.readouterr().out.startswith("device ")


def test_the_rule_in_the_guide_is_one() -> None:
    (block,) = blocks_of("adding-a-rule.md")
    made: dict[str, Any] = {}
    exec(compile(block, "block.py", "exec"), made)
    assert isinstance(made["RULE"], Rule)
    assert callable(made["check"])


def test_the_example_of_reused_results_is_reported(tmp_path: Path) -> None:
    for block in blocks_of("contributing/incremental.md"):
        (tmp_path / block.partition("\n")[0].removeprefix("# ")).write_text(block)
    found = check_paths([str(tmp_path)], options={"min-confidence": "low"}, isolated=True)
    assert [(Path(one.path).name, one.code) for one in found] == [("losses.py", "TML201")]


TRAINING = """import torch
def train(model, loader, optimizer, criterion):
    total = 0
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
{}
    print(total)
"""


@pytest.mark.usefixtures("nothing_around")
def test_the_comments_suppress() -> None:
    one_by_one, by_block = blocks_of("suppressing.md")
    statements = [part for part in re.split(r"(?<=TML101)\n|(?<=caller)\n\n", one_by_one) if part]
    assert len(statements) == 3
    block = by_block.replace("...", "total += loss")
    for statement, left in [("total += loss", 1), *((one, 0) for one in [*statements, block])]:
        text = TRAINING.format(textwrap.indent(statement.strip("\n"), " " * 8))
        assert len(check_source(text, "train.py", isolated=True)) == left, text


def test_the_page_of_a_package_index_has_no_relative_link(monkeypatch: pytest.MonkeyPatch) -> None:
    interface = ModuleType("hatchling.metadata.plugin.interface")
    monkeypatch.setattr(interface, "MetadataHookInterface", object, raising=False)
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = module.absolute(README.read_text(encoding="utf-8"), "https://example.org/x")
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(text))
    assert all(target.startswith(("https://", "#")) for target in targets)
    assert "https://example.org/x/docs/images/example.svg" in targets


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "images").glob("*.svg")), ids=lambda path: path.stem)
def test_a_curve_has_axes_units_and_both_schemes(path: Path) -> None:
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    words = ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert any(re.fullmatch(r"[\d.]+ (bytes|KiB|MiB|nodes)", word) for word in words)
    assert {"with the mistake", "corrected"} <= set(words)
    assert "prefers-color-scheme: dark" in path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_there_is_no_curve_of_a_rule_that_is_gone() -> None:
    assert set((ROOT / "docs" / "images").glob("*.svg")) == {path for path in generated() if path.suffix == ".svg"}


def test_ci_runs_the_tests_as_the_readme_does() -> None:
    readme, script = README.read_text(encoding="utf-8"), (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    install, tests = re.findall(r"pip install ('\.\[dev\]') && \.venv/bin/(python -m pytest.*)$", readme, re.MULTILINE)[0]
    assert install in script
    assert re.search(rf"^{re.escape(tests)}$", script, re.MULTILINE)


@each_file
def test_it_is_about_the_project_only(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"/(?:work|root|home)/|\bTODO\b|\bOUTPUT\b|\bMEASURED\b", text)
