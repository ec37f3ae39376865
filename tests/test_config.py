"""Settings: where they come from, what goes before what, and the messages about mistakes in them."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchmemlint.errors import ConfigError
from torchmemlint.findings import Severity
from torchmemlint.project.config import KEYS, CommandLine, Configuration, Options, Settings
from torchmemlint.project.selection import Layer, closest, enabled_codes, find_rule, prefixes
from torchmemlint.rules import ALL_RULES
from torchmemlint.rules.card import About, Rule

ALWAYS = ("TML000", "TML001")
CARDS = (
    Rule("TML000", "unparsable-file", "", Severity.ERROR, About.RUN),
    Rule("TML001", "internal-error", "", Severity.ERROR, About.RUN),
    Rule("TML101", "running-total", "", Severity.ERROR, About.GRAPH_KEPT),
    Rule("TML102", "tensor-stored", "", Severity.ERROR, About.GRAPH_KEPT),
    Rule("TML201", "inference-with-grad", "", Severity.WARNING, About.NEEDLESS_GRAPH, preview=True),
    Rule("TML301", "empty-cache-in-loop", "", Severity.WARNING, About.ALLOCATOR),
    Rule("TML308", "fraction-cap", "", Severity.NOTE, About.ALLOCATOR, default=False),
)


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from torchmemlint.project import selection

    monkeypatch.setattr(selection, "_cards", lambda: CARDS)
    selection._by_word.cache_clear()
    yield
    selection._by_word.cache_clear()


def on(*layers: Layer, preview: bool = False) -> tuple[str, ...]:
    codes = enabled_codes([(layer, "here") for layer in layers], preview)
    return tuple(code for code in codes if code not in ALWAYS)


@pytest.mark.usefixtures("cards")
@pytest.mark.parametrize(
    ("layers", "preview", "expected"),
    [
        ([], False, ("TML101", "TML102", "TML301")),
        ([], True, ("TML101", "TML102", "TML201", "TML301")),
        ([Layer(select=("ALL",))], False, ("TML101", "TML102", "TML201", "TML301", "TML308")),
        ([Layer(select=("TML",))], False, ("TML101", "TML102", "TML301", "TML308")),
        ([Layer(select=("TML2",))], False, ()),
        ([Layer(select=("TML2",))], True, ("TML201",)),
        ([Layer(select=("TML201",))], False, ("TML201",)),
        ([Layer(select=("inference-with-grad",))], False, ("TML201",)),
        ([Layer(select=("tml101",))], False, ("TML101",)),
        ([Layer(extend_select=("TML308",))], False, ("TML101", "TML102", "TML301", "TML308")),
        ([Layer(ignore=("TML1",))], False, ("TML301",)),
        ([Layer(ignore=("running-total",))], False, ("TML102", "TML301")),
        # the more specific word wins, whichever list it stands in
        ([Layer(select=("TML1",), ignore=("TML101",))], False, ("TML102",)),
        ([Layer(select=("TML101",), ignore=("TML1",))], False, ("TML101",)),
        (
            [Layer(select=("ALL",), ignore=("TML3",), extend_select=("TML308",))],
            False,
            ("TML101", "TML102", "TML201", "TML308"),
        ),
        ([Layer(select=("TML101",), ignore=("TML101",))], False, ()),
        ([Layer(select=("ALL",), ignore=("ALL",))], False, ()),
        # a layer that selects starts afresh; one that does not adds to the layer below
        ([Layer(select=("TML1",)), Layer(select=("TML3",))], False, ("TML301", "TML308")),
        ([Layer(ignore=("TML101",)), Layer(extend_select=("TML1",))], False, ("TML101", "TML102", "TML301")),
        ([Layer(select=("TML1",)), Layer(ignore=("TML102",))], False, ("TML101",)),
    ],
)
def test_selection(layers: list[Layer], preview: bool, expected: tuple[str, ...]) -> None:
    assert on(*layers, preview=preview) == expected


@pytest.mark.usefixtures("cards")
def test_the_rules_about_the_run_stay_on_whatever_is_selected() -> None:
    assert enabled_codes([(Layer(select=("TML101",)), "")], False) == (*ALWAYS, "TML101")
    assert enabled_codes([(Layer(select=("TML101",), ignore=("TML000", "TML001")), "")], False) == ("TML001", "TML101")


@pytest.mark.usefixtures("cards")
def test_unknown_selectors_name_the_closest_valid_one() -> None:
    with pytest.raises(ConfigError, match=r"here: unknown rule or prefix `TML110`; did you mean `TML10[12]`\?"):
        on(Layer(select=("TML110",)))
    with pytest.raises(ConfigError, match="did you mean `running-total`"):
        on(Layer(ignore=("runing-totals",)))
    with pytest.raises(ConfigError, match="unknown rule or prefix ``"):
        on(Layer(ignore=("",)))
    with pytest.raises(ConfigError, match=r"did you mean `TML30[18]`"):
        find_rule("TML303")
    assert find_rule("tml301").name == find_rule("empty-cache-in-loop").name == "empty-cache-in-loop"


@pytest.mark.usefixtures("cards")
def test_selectors_as_prefixes() -> None:
    assert prefixes(("ALL", "tml1", "fraction-cap"), "here") == ("TML", "TML1", "TML308")


def test_the_closest_word_is_always_one_of_the_valid_ones() -> None:
    assert closest("zzz", ["select", "ignore"]) in ("; did you mean `select`?", "; did you mean `ignore`?")


def test_every_key_is_an_option_and_every_option_reaches_the_settings() -> None:
    names = {key.replace("-", "_") for key in KEYS}
    assert names == set(Options.__dataclass_fields__)
    assert names - {"extend", "select", "extend_select", "ignore", "preview"} <= set(Settings.__dataclass_fields__)


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pkg" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings(path: str, **command_line: object) -> Settings:
    return Configuration(CommandLine(**command_line)).for_file(path)  # type: ignore[arg-type]


def test_the_nearest_file_with_our_table_decides_alone(tree: Path) -> None:
    (tree / "pyproject.toml").write_text('[tool.torchmemlint]\nfail-on = "error"\nunsafe-fixes = true\n')
    (tree / "pkg" / "pyproject.toml").write_text('[project]\nname = "other"\n')
    (tree / "pkg" / "deep" / "torchmemlint.toml").write_text('fail-on = "note"\n')
    outer, inner = settings("pkg/a.py"), settings("pkg/deep/a.py")
    assert (outer.fail_on, outer.unsafe_fixes, outer.root) == (Severity.ERROR, True, str(tree))
    assert (inner.fail_on, inner.unsafe_fixes, inner.root) == (Severity.NOTE, False, str(tree / "pkg" / "deep"))


def test_our_own_file_goes_before_a_pyproject_beside_it(tree: Path) -> None:
    (tree / "pyproject.toml").write_text('[tool.torchmemlint]\nfail-on = "error"\n')
    (tree / "torchmemlint.toml").write_text('fail-on = "note"\n')
    assert settings("a.py").fail_on is Severity.NOTE


def test_a_configuration_file_is_read_once(tree: Path) -> None:
    (tree / "pyproject.toml").write_text('[tool.torchmemlint]\nfail-on = "error"\n')
    configuration = Configuration()
    first = configuration.for_file("a.py")
    (tree / "pyproject.toml").unlink()
    assert configuration.for_file("pkg/deep/b.py") is first


def test_the_command_line_goes_before_files_and_lists_that_extend_add_up(tree: Path) -> None:
    (tree / "pyproject.toml").write_text(
        "[tool.torchmemlint]\nfail-on = 'error'\nexclude = ['old']\nextend-exclude = ['a']\nignore = ['TML101']\n"
        "[tool.torchmemlint.per-file-ignores]\n'tests/*' = ['TML1']\n"
    )
    table = {"fail-on": "note", "extend-exclude": ["b"], "per-file-ignores": {"x.py": ["ALL"]}}
    merged = settings("a.py", table=table)
    assert merged.fail_on is Severity.NOTE
    assert merged.exclude == ("old",)
    assert merged.extend_exclude == ("a", "b")
    assert merged.per_file_ignores == (("tests/*", ("TML1",)), ("x.py", ("TML",)))
    assert "TML101" not in merged.codes


def test_isolated_ignores_files(tree: Path) -> None:
    (tree / "pyproject.toml").write_text("this is not toml")
    assert settings("a.py", isolated=True) == Configuration(CommandLine(isolated=True)).default
    assert set(Configuration(CommandLine(isolated=True)).default.codes) == {
        rule.code for rule in ALL_RULES if rule.default and not rule.preview
    } | {*ALWAYS}


def test_config_takes_a_file_or_a_setting(tree: Path) -> None:
    (tree / "pyproject.toml").write_text('[tool.torchmemlint]\nfail-on = "error"\nunsafe-fixes = true\n')
    (tree / "pkg" / "ci.toml").write_text("force-exclude = true\n")
    from_file = settings("a.py", config=("pkg/ci.toml",))
    assert (from_file.force_exclude, from_file.fail_on, from_file.root) == (True, Severity.WARNING, str(tree))
    with_setting = settings("a.py", config=("fail-on = 'note'", "target-torch='2.4.1'"))
    assert (with_setting.fail_on, with_setting.unsafe_fixes, with_setting.target_torch) == (Severity.NOTE, True, (2, 4))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("selct = ['TML1']", "unknown key `selct`; did you mean `select`?"),
        ("select = 'TML1'", "`select` must be a list of strings"),
        ("select = [1]", "`select` must be a list of strings"),
        ("preview = 'yes'", "`preview` must be true or false"),
        ("fail-on = 'warn'", "`fail-on` must be one of note, warning, error; did you mean `warning`?"),
        ("fail-on = 3", "`fail-on` must be one of note, warning, error"),
        ("target-torch = 2.4", "`target-torch` must be a version in quotes"),
        ("per-file-ignores = ['a']", "`per-file-ignores` must be a table"),
        ("select = ['TML999']", "unknown rule or prefix `TML999`; did you mean"),
        ("per-file-ignores = {'a.py' = ['TLM1']}", "unknown rule or prefix `TLM1`; did you mean"),
        ("select = [", "not valid TOML"),
    ],
)
def test_mistakes_in_a_file_name_the_file_and_the_key(tree: Path, text: str, message: str) -> None:
    (tree / "torchmemlint.toml").write_text(text)
    with pytest.raises(ConfigError) as error:
        settings("pkg/a.py")
    assert message in str(error.value)
    assert str(tree / "torchmemlint.toml") in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_cannot_be_read_as_configuration(tree: Path) -> None:
    (tree / "pyproject.toml").write_bytes(b"[tool.torchmemlint]\n# \xff\n")
    with pytest.raises(ConfigError, match="not UTF-8"):
        settings("a.py")
    (tree / "pyproject.toml").write_text("[tool]\ntorchmemlint = 3\n")
    with pytest.raises(ConfigError, match="must be a table"):
        settings("a.py")
    with pytest.raises(ConfigError, match=r"`missing\.toml` does not exist"):
        settings("a.py", config=("missing.toml",))
    (tree / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    with pytest.raises(ConfigError, match=r"no \[tool\.torchmemlint\] table"):
        settings("a.py", config=("pyproject.toml",))
    with pytest.raises(ConfigError, match="neither a file nor KEY=VALUE"):
        settings("a.py", config=("fail-on=error",))


def test_a_folder_called_pyproject_is_no_configuration(tree: Path) -> None:
    (tree / "pyproject.toml").mkdir()
    assert settings("a.py").source == ""


def test_settings_can_be_sent_to_another_process_and_key_a_cache() -> None:
    default = Configuration(CommandLine(isolated=True)).default
    assert pickle.loads(pickle.dumps(default)) == default
    assert hash(default) == hash(Configuration(CommandLine(isolated=True)).default)
    assert default.root == os.getcwd()
