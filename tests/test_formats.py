"""Formats for other programs, read back by what is not ours: published schemas, an XML parser, the protocols' own rules."""

from __future__ import annotations

import codecs
import json
import os
import re
import subprocess
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import forked
import pytest
from notebooks import SETUP, TRAINING, notebook, rows

from torchmemlint.cli import check_parser
from torchmemlint.files.quoting import printable, printable_path
from torchmemlint.findings import Confidence, Edit, Finding, Fix, FlowStep, Position, Safety, Severity, Span
from torchmemlint.reporters import FORMATS, Context, render, sarif
from torchmemlint.rules import ALL_RULES, page

ROOT = Path(__file__).parent.parent
SCHEMAS = Path(__file__).parent / "schemas"

ODD = "漢字👍é\x0b\x85\u2028\ud800\x1b[31m%]];,:<&>\"'\\\n\r"
"""What a message, a path or code may hold and a format must survive."""


def span(row: int, start: int, end: int) -> Span:
    return Span(Position(row, start), Position(row, end))


def finding(**changes: object) -> Finding:
    made = Finding(
        code="TML101",
        name="graph-attached-running-total",
        severity=Severity.ERROR,
        confidence=Confidence.HIGH,
        message="`total` adds up [tensors]",
        path="src/a b.py",
        span=span(2, 5, 18),
        label="added here",
        cost="one graph a step",
        help="detach it",
        function="train",
        statement="total += loss",
        flow=(FlowStep("src/a b.py", span(1, 1, 4), "made [here]"), FlowStep("b.py", span(1, 1, 2), "passed here")),
        fix=Fix("detach it", Safety.SAFE, (Edit(span(2, 18, 18), ".detach()"),)),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


NASTY = [
    finding(),
    finding(severity=Severity.WARNING, confidence=Confidence.MEDIUM, message=ODD, path=f"src/{ODD}.py", cost=ODD, help=ODD),
    finding(severity=Severity.NOTE, code="TML308", fix=None, flow=(), cost="", help="", label="", statement=""),
    finding(code="TML000", name="unparsable-file", message="cannot be parsed", statement="", function="", fix=None, flow=()),
    finding(path="n.ipynb", cell=2, fix=replace(finding().fix, safety=Safety.UNSAFE)),  # type: ignore[type-var]
]
TEXTS = {"src/a b.py": "abc\n    total += loss\n", "n.ipynb": notebook("x", "if y:\n    total += 漢")}
CONTEXTS = [
    Context(),
    Context(text=TEXTS.get, root=os.getcwd()),
    Context(text=lambda path: "", docs="https://example.org/rules"),
]


def valid(name: str, instance: object) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((SCHEMAS / name).read_text(encoding="utf-8"))
    validator = jsonschema.validators.validator_for(schema)
    found = [f"{list(error.absolute_path)}: {error.message}"[:300] for error in validator(schema).iter_errors(instance)]
    assert found == []


@pytest.mark.parametrize("output_format", FORMATS)
@pytest.mark.parametrize("context", CONTEXTS)
def test_every_format_takes_anything(output_format: str, context: Context) -> None:
    text = render(output_format, NASTY, context)
    text.encode("utf-8", "backslashreplace")
    assert text.endswith("\n")
    assert render(output_format, [], context) in ("", "[]\n") or output_format in ("sarif", "junit", "rdjson")


# --- SARIF ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", CONTEXTS)
def test_sarif_is_valid(context: Context) -> None:
    valid("sarif-2.1.0.json", json.loads(render("sarif", NASTY, context)))
    valid("sarif-2.1.0.json", json.loads(render("sarif", [], context)))


def test_sarif_says_what_github_reads() -> None:
    (run,) = json.loads(render("sarif", NASTY, Context(text=TEXTS.get, root=os.getcwd())))["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["TML000", "TML101", "TML308"]
    for rule in rules:
        assert 0 < len(rule["shortDescription"]["text"]) <= 1024
        assert 0 < len(rule["fullDescription"]["text"]) <= 1024
        assert rule["help"]["text"]
        assert rule["help"]["markdown"].startswith(f"# {rule['id']}: ")
        assert rule["properties"]["precision"] in ("very-high", "high", "medium", "low")
        assert rule["properties"]["problem.severity"] in ("error", "warning", "recommendation")
        assert "security-severity" not in rule["properties"]
        assert len(rule["properties"]["tags"]) <= 20
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert re.fullmatch(r"[0-9a-f]{16}:\d+", result["partialFingerprints"]["primaryLocationLineHash"])
        region = result["locations"][0]["physicalLocation"]["region"]
        assert {"startLine", "startColumn", "endLine", "endColumn"} <= set(region)
    first = run["results"][0]
    artifact = first["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact == {"uri": "src/a%20b.py", "uriBaseId": "%SRCROOT%"}
    assert first["locations"][0]["physicalLocation"]["region"]["snippet"] == {"text": "total += loss"}
    assert first["locations"][0]["physicalLocation"]["contextRegion"]["snippet"] == {"text": "abc\n    total += loss\n"}


def test_sarif_leads_to_the_page_of_a_rule_with_and_without_an_address() -> None:
    def rule(docs: str | None) -> dict[str, Any]:
        (run,) = json.loads(render("sarif", [finding()], Context(docs=docs)))["runs"]
        (only,) = run["tool"]["driver"]["rules"]
        assert isinstance(only, dict)
        return only

    assert "helpUri" not in rule(None)
    for text in rule(None)["help"].values():
        assert page("TML101").strip() in text
        assert text.endswith("This page: `torchmemlint rule TML101`.")
    assert rule("https://example.org/rules")["helpUri"] == "https://example.org/rules/TML101.html"


def test_sarif_has_the_steps_and_links_them() -> None:
    (result,) = json.loads(render("sarif", [finding()], Context()))["runs"][0]["results"]
    (flow,) = result["codeFlows"]
    way = [location["location"] for location in flow["threadFlows"][0]["locations"]]
    assert [place["message"]["text"] for place in way] == ["made [here].", "passed here.", "added here."]
    assert [related["id"] for related in result["relatedLocations"]] == [1, 2]
    assert result["message"]["text"].split("\n") == [
        "`total` adds up \\[tensors\\].",
        "[made \\[here\\]](1)",
        "[passed here](2)",
        "Cost: one graph a step.",
        "Help: detach it.",
    ]
    (fix,) = result["fixes"]
    assert fix["properties"] == {"fixApplicability": "safe"}
    (replacement,) = fix["artifactChanges"][0]["replacements"]
    assert replacement == {
        "deletedRegion": {"startLine": 2, "startColumn": 18, "endLine": 2, "endColumn": 18},
        "insertedContent": {"text": ".detach()"},
    }


def test_sarif_paths() -> None:
    def artifact(path: str, root: str) -> object:
        (result,) = json.loads(render("sarif", [finding(path=path)], Context(root=root)))["runs"][0]["results"]
        return result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]

    here = os.getcwd()
    assert artifact("a.py", here) == "a.py"
    assert unquote(str(artifact("é/漢.py", here))) == "é/漢.py"
    assert artifact("a.py", os.path.dirname(here)) == f"{os.path.basename(here)}/a.py"
    assert artifact(os.path.join(here, "x", "a.py"), here) == "x/a.py"
    assert artifact("../a.py", here) == f"file://{os.path.dirname(here)}/a.py"


def test_sarif_keeps_the_heaviest_where_github_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sarif.MAX_RESULTS == 25_000
    monkeypatch.setattr(sarif, "MAX_RESULTS", 20)
    light = [finding(span=span(row, 1, 2), severity=Severity.NOTE, code="TML308") for row in range(1, 23)]
    (run,) = json.loads(render("sarif", [*light, finding(path="z.py")], Context()))["runs"]
    assert len(run["results"]) == 20
    assert run["results"][-1]["level"] == "error"
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"].startswith("3 findings of the lightest kinds are left out")


def test_every_rule_can_stand_in_sarif() -> None:
    found = [finding(code=rule.code, name=rule.name) for rule in ALL_RULES]
    whole = json.loads(render("sarif", found, Context()))
    valid("sarif-2.1.0.json", whole)
    names = [rule["name"] for rule in whole["runs"][0]["tool"]["driver"]["rules"]]
    assert all(re.fullmatch(r"(?:[A-Z][a-z0-9]*)+", name) for name in names)
    assert len(set(names)) == len(ALL_RULES)


# --- the others -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", CONTEXTS)
def test_rdjson_is_valid(context: Context) -> None:
    whole = json.loads(render("rdjson", NASTY, context))
    valid("rdjson.json", whole)
    assert [one["severity"] for one in whole["diagnostics"]] == ["ERROR", "WARNING", "INFO", "ERROR", "ERROR"]
    assert whole["diagnostics"][0]["suggestions"][0]["text"] == ".detach()"
    assert [one["message"] for one in whole["diagnostics"][0]["related_locations"]] == ["made [here]", "passed here"]


def test_gitlab_has_what_the_report_needs() -> None:
    """The required keys and their values, as the documentation of the format lists them."""
    twice = [*NASTY, finding(path="other.py"), replace(NASTY[3], message="another")]
    issues = json.loads(render("gitlab", twice, Context(root=os.getcwd())))
    for issue in issues:
        assert isinstance(issue["description"], str)
        assert isinstance(issue["check_name"], str)
        assert issue["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert not issue["location"]["path"].startswith(("./", "/"))
        assert issue["location"]["positions"]["begin"]["line"] >= 1
    assert len({issue["fingerprint"] for issue in issues}) == len(issues)
    again = json.loads(render("gitlab", [replace(one, span=span(90, 1, 2)) for one in twice[:1]], Context(root=os.getcwd())))
    assert again[0]["fingerprint"] == issues[0]["fingerprint"]


def test_junit_is_xml_that_counts_right() -> None:
    whole = ElementTree.fromstring(render("junit", NASTY, Context(text=TEXTS.get)).encode("utf-8", "backslashreplace"))
    assert whole.tag == "testsuites"
    assert whole.get("failures") == whole.get("tests") == str(len(NASTY))
    cases = [case for suite in whole for case in suite]
    assert sum(int(suite.get("failures", "")) for suite in whole) == len(cases) == len(NASTY)
    assert cases[0].get("file") == "src/a b.py"
    assert cases[0].get("line") == "2"
    failure = cases[0].find("failure")
    assert failure is not None
    assert failure.text == "src/a b.py:2:5: TML101 `total` adds up [tensors]\ncost: one graph a step\nhelp: detach it"
    (suite,) = ElementTree.fromstring(render("junit", [], Context()))
    assert (suite.get("tests"), suite.get("failures"), len(suite)) == ("1", "0", 1)


def test_junit_by_its_own_reader() -> None:
    junitparser = pytest.importorskip("junitparser")
    whole = junitparser.JUnitXml.fromstring(render("junit", NASTY, Context()).encode("utf-8", "backslashreplace"))
    assert [len(list(suite)) for suite in whole] == [1, 1, 2, 1]
    assert all(case.result[0].type in ("error", "warning", "note") for suite in whole for case in suite)


def test_azure_commands_are_read_as_the_agent_reads_them() -> None:
    """As Command.TryParse and CommandStringConvertor of microsoft/azure-pipelines-agent."""
    lines = render("azure", NASTY, Context(text=TEXTS.get)).split("\n")[:-1]
    assert len(lines) == len(NASTY)
    for line, one in zip(lines, NASTY, strict=True):
        assert line.startswith("##vso[")
        head, _, data = line[len("##vso[") :].partition("]")
        name, _, listed = head.partition(" ")
        assert name == "task.logissue"
        properties = dict(pair.split("=", 1) for pair in listed.split(";") if pair)
        unescaped = {key: _from_azure(value) for key, value in properties.items()}
        assert unescaped["sourcepath"] == printable_path(one.path)
        assert unescaped["code"] == one.code
        assert unescaped["type"] in ("error", "warning")
        assert printable(one.message) in _from_azure(data)


def _from_azure(text: str) -> str:
    for code, char in (("%3B", ";"), ("%5D", "]"), ("%0D", "\r"), ("%0A", "\n"), ("%AZP25", "%")):
        text = text.replace(code, char)
    return text


def test_grouped_and_json_lines() -> None:
    two = [finding(), finding(span=span(12, 5, 6), code="TML102"), finding(path="n.ipynb", cell=3)]
    assert render("grouped", two, Context()) == (
        "src/a b.py:\n  2:5   TML101 `total` adds up [tensors]\n  12:5  TML102 `total` adds up [tensors]\n\n"
        "n.ipynb:\n  cell 3:2:5  TML101 `total` adds up [tensors]\n"
    )
    lines = render("json-lines", NASTY, Context()).splitlines()
    assert [json.loads(line) for line in lines] == json.loads(render("json", NASTY, Context()))


def test_lintrunner_gets_one_replacement_for_a_file() -> None:
    text = "a\n    total += loss\nb\n    other += loss\n"
    second = finding(path="a.py", span=span(4, 5, 18), fix=Fix("it", Safety.SAFE, (Edit(span(4, 18, 18), ".item()"),)))
    unsafe = finding(path="a.py", span=span(3, 1, 2), fix=Fix("no", Safety.UNSAFE, (Edit(span(3, 1, 2), "c"),)))
    plain = text.replace("    ", "")
    first = finding(path="a.py", span=span(2, 1, 14), fix=Fix("it", Safety.SAFE, (Edit(span(2, 14, 14), ".detach()"),)))
    second = replace(second, span=span(4, 1, 14), fix=Fix("it", Safety.SAFE, (Edit(span(4, 14, 14), ".item()"),)))
    messages = [
        json.loads(line)
        for line in render("lintrunner", [first, unsafe, second], Context(text=lambda path: plain)).splitlines()
    ]
    assert [message["replacement"] for message in messages] == [
        "a\ntotal += loss.detach()\nb\nother += loss.item()\n",
        None,
    ]
    assert messages[0]["original"] == plain
    assert "also fixed: a.py:4:1: TML101" in messages[0]["description"]
    allowed = {"path", "line", "char", "code", "severity", "name", "description", "original", "replacement"}
    for message in messages:
        assert set(message) == allowed
        assert message["severity"] in ("error", "warning", "advice", "disabled")
        assert message["code"] == "TORCHMEMLINT"


def test_lintrunner_replaces_nothing_that_it_would_write_in_another_encoding() -> None:
    text = "# coding: latin-1\ntotal += loss\n"
    one = finding(path="a.py", span=span(2, 1, 14), fix=Fix("it", Safety.SAFE, (Edit(span(2, 14, 14), ".detach()"),)))
    (message,) = map(json.loads, render("lintrunner", [one], Context(text=lambda path: text)).splitlines())
    assert message["replacement"] is None


# --- columns --------------------------------------------------------------------------------------------------------

CODE = """import torch
model = torch.nn.Linear(3, 3)
total = 0
for batch in loader:
{indent}loss = model(batch).sum(); loss.backward()
{indent}{before}total += loss  # {before}
"""
BEFORE = ["", "x = 'é'; ", "x = '漢字'; ", "x = '👍👍'; ", "x = 'e\u0301 \\t\t'; ", "x = '👨\u200d👩\u200d👧漢é'; "]


def lint(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return forked.lint("--isolated", *arguments, cwd=cwd)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("newline", "bom", "indent"), [("\n", b"", "    "), ("\r\n", codecs.BOM_UTF8, "\t"), ("\r\n", b"", " \t")]
)
def test_columns_in_the_units_of_each_format(tmp_path: Path, newline: str, bom: bytes, indent: str) -> None:
    for at, before in enumerate(BEFORE):
        code = CODE.format(indent=indent, before=before)
        (tmp_path / f"f{at}.py").write_bytes(bom + code.replace("\n", newline).encode())
        (tmp_path / f"n{at}.ipynb").write_text(notebook("%cd é👍", rows(code)), encoding="utf-8")
    lint(
        *(".", "--output-file", "o.json", "--output-file", "o.sarif", "--output-file", "o.rdjson"),
        *("--output-file", "gitlab=o.gitlab", "--output-file", "azure=o.azure", "--output-file", "lintrunner=o.lintrunner"),
        cwd=tmp_path,
    )
    found = json.loads((tmp_path / "o.json").read_text(encoding="utf-8"))
    assert len(found) == 2 * len(BEFORE)
    results = json.loads((tmp_path / "o.sarif").read_text(encoding="utf-8"))["runs"][0]["results"]
    rdjson = json.loads((tmp_path / "o.rdjson").read_text(encoding="utf-8"))["diagnostics"]
    gitlab = json.loads((tmp_path / "o.gitlab").read_text(encoding="utf-8"))
    lintrunner = [json.loads(line) for line in (tmp_path / "o.lintrunner").read_text(encoding="utf-8").splitlines()]
    azure = (tmp_path / "o.azure").read_text(encoding="utf-8").splitlines()
    for entry, result, diagnostic, issue, message, command in zip(
        found, results, rdjson, gitlab, lintrunner, azure, strict=True
    ):
        path = tmp_path / entry["filename"]
        data = path.read_bytes().removeprefix(codecs.BOM_UTF8)
        # Without any code of ours: where the flagged bytes are, and what stands before them in their line.
        start = data.index(b"total += loss")
        row = data[:start].count(b"\n") + 1
        before = data[data.rfind(b"\n", 0, start) + 1 : start]
        columns = {
            "bytes": len(before) + 1,
            "code points": len(before.decode()) + 1,
            "UTF-16": len(before.decode().encode("utf-16-le")) // 2 + 1,
        }
        if entry["cell"] is None:
            assert entry["location"] == {"row": row, "column": columns["code points"]}
        else:
            source = json.loads(data)["cells"][entry["cell"] - 1]["source"]
            line = next(line for line in source if "total += loss" in line)
            assert entry["location"] == {"row": source.index(line) + 1, "column": line.index("total += loss") + 1}
        region = result["locations"][0]["physicalLocation"]["region"]
        assert (region["startLine"], region["startColumn"]) == (row, columns["UTF-16"])
        assert region["endColumn"] == columns["UTF-16"] + len("total += loss")
        assert region["snippet"] == {"text": "total += loss"}
        at = diagnostic["location"]["range"]["start"]
        assert at == {"line": row, "column": columns["bytes"]}
        assert issue["location"]["positions"]["begin"] == {"line": row, "column": columns["code points"]}
        assert (message["line"], message["char"]) == (row, columns["code points"])
        assert f"linenumber={row};columnnumber={columns['code points']};" in command
        # A suggestion, applied to the bytes, is the fix.
        (suggestion,) = diagnostic["suggestions"]
        lines = data.decode().split("\n")
        offsets = [
            sum(len(line.encode()) + 1 for line in lines[: at["line"] - 1]) + at["column"] - 1
            for at in (suggestion["range"]["start"], suggestion["range"]["end"])
        ]
        after = data[: offsets[0]] + suggestion["text"].encode() + data[offsets[1] :]
        assert after == data.replace(b"total += loss", b"total += loss.detach()")
        (change,) = result["fixes"][0]["artifactChanges"]
        (replacement,) = change["replacements"]
        deleted = replacement["deletedRegion"]
        wide = [line.encode("utf-16-le") for line in lines]
        head = "\n".join(lines[: deleted["startLine"] - 1]) + "\n"
        head += wide[deleted["startLine"] - 1][: 2 * (deleted["startColumn"] - 1)].decode("utf-16-le")
        tail = wide[deleted["endLine"] - 1][2 * (deleted["endColumn"] - 1) :].decode("utf-16-le")
        tail += "\n" + "\n".join(lines[deleted["endLine"] :])
        assert (head + replacement["insertedContent"]["text"] + tail).encode() == after


# --- --output-file --------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_text(f"{SETUP}\n{TRAINING}\n")
    return tmp_path


@pytest.mark.slow
def test_several_reports_and_the_usual_one(project: Path) -> None:
    plain = lint("a.py", cwd=project)
    done = lint(
        *(
            "a.py",
            "--output-file",
            "out/deep/r.sarif",
            "--output-file",
            "gl-code-quality-report.json",
            "--output-file",
            "r.xml",
        ),
        *("--output-file", "concise=r=1.log", "--output-file", "r.txt", "--output-file", "r.jsonl", "--output-file", "r.json"),
        cwd=project,
    )
    assert (done.stdout, done.stderr, done.returncode) == (plain.stdout, plain.stderr, 1)
    assert json.loads((project / "out/deep/r.sarif").read_text())["version"] == "2.1.0"
    assert json.loads((project / "gl-code-quality-report.json").read_text())[0]["check_name"] == "TML101"
    assert (project / "r.xml").read_text().startswith("<?xml")
    assert (project / "r=1.log").read_text().startswith("a.py:7:5: TML101 ")
    assert (project / "r.txt").read_text() == plain.stdout
    assert (project / "r.jsonl").read_text() == json.dumps(json.loads((project / "r.json").read_text())[0]) + "\n"
    assert sorted(path.name for path in project.iterdir() if path.name.startswith(".torchmemlint-")) == []


@pytest.mark.slow
def test_a_report_replaces_the_old_one_and_keeps_its_mode_and_link(project: Path) -> None:
    (project / "real.json").write_text("old")
    (project / "real.json").chmod(0o640)
    (project / "r.json").symlink_to("real.json")
    lint("a.py", "--output-file", "r.json", cwd=project)
    assert (project / "r.json").is_symlink()
    assert json.loads((project / "real.json").read_text())
    assert (project / "real.json").stat().st_mode & 0o777 == 0o640


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="needs /dev/stdout")
def test_a_report_into_a_pipe(project: Path) -> None:
    done = lint("a.py", "-q", "--output-format", "grouped", "--output-file", "concise=/dev/stdout", cwd=project)
    assert "a.py:7:5: TML101" in done.stdout
    assert done.returncode == 1


@pytest.mark.slow
def test_reports_after_fixing_and_of_standard_input(project: Path) -> None:
    lint("a.py", "--fix", "--output-file", "r.json", cwd=project)
    assert json.loads((project / "r.json").read_text()) == []
    arguments = ["-", "--stdin-filename", "b.py", "--isolated", "--output-file", "r.sarif"]
    forked.lint(*arguments, cwd=project, stdin=f"{SETUP}\n{TRAINING}\n".encode())
    (result,) = json.loads((project / "r.sarif").read_text())["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["region"]["snippet"] == {"text": "total += loss"}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("report", "unknown format"),
        ("serif=r.sarif", "unknown format `serif`"),
        ("sarif=", "unknown format `sarif`"),
        ("a.py/r.json", "cannot be written"),
    ],
)
def test_what_cannot_be_written_is_reported_in_one_line(project: Path, value: str, words: str) -> None:
    done = lint("a.py", "--output-file", value, cwd=project)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if "output-file" in line]
    assert words in line
    assert "Traceback" not in done.stderr


def test_one_file_twice_and_with_diff(project: Path) -> None:
    twice = lint("a.py", "--output-file", "r.json", "--output-file", "sarif=./r.json", cwd=project)
    assert twice.returncode == 2
    assert "is given twice" in twice.stderr
    assert lint("a.py", "--diff", "--output-file", "r.json", cwd=project).returncode == 2


@pytest.mark.slow
def test_paths_count_from_the_root_of_the_repository(project: Path) -> None:
    (project / ".git").mkdir()
    inner = project / "pkg" / "sub"
    inner.mkdir(parents=True)
    (inner / "a.py").write_bytes((project / "a.py").read_bytes())
    done = lint(".", "--output-format", "gitlab", cwd=inner)
    assert [issue["location"]["path"] for issue in json.loads(done.stdout)] == ["pkg/sub/a.py"]
    assert lint(".", "--output-format", "concise", cwd=inner).stdout.startswith("a.py:7:5: ")


@pytest.mark.slow
def test_paths_from_a_file(project: Path) -> None:
    (project / "list").write_text(f"{project / 'a.py'}\n")
    done = lint("--output-format", "lintrunner", "--exit-zero", "@list", cwd=project)
    assert done.returncode == 0
    assert json.loads(done.stdout)["path"] == f"{project / 'a.py'}"
    gone = lint("@nowhere", cwd=project)
    assert gone.returncode == 2
    assert "Traceback" not in gone.stderr


# --- what the documentation says ------------------------------------------------------------------------------------


def test_every_format_and_input_is_documented() -> None:
    formats = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    assert [name for name in FORMATS if f"`{name}`" not in formats] == []
    inputs = re.findall(
        r"^  ([a-z-]+):$", (ROOT / "action.yml").read_text(encoding="utf-8").partition("outputs:")[0], re.MULTILINE
    )
    recipes = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    assert inputs
    assert [name for name in inputs if name != "icon" and f"`{name}`" not in recipes] == []


def test_the_recipe_for_lintrunner_is_a_command() -> None:
    text = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    toml = re.search(r"^command = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert toml is not None
    words = re.findall(r"'([^']+)'", toml[1])
    assert words[:2] == ["torchmemlint", "check"]
    check_parser().parse_args([word for word in words[2:] if not word.startswith("@")])
