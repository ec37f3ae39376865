"""Commands with which a project's documents start a program."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from torchmemlint.budget.documented import commands

PAGE = """\
# Training

Install it, and run `python train.py --help` for the options. To train on your data:

```bash
$ CUDA_VISIBLE_DEVICES=0,1 python train.py --config configs/small.yaml \\
    --data <path to the data> --name 'a b' --workers 4 > log.txt
torchrun --nproc_per_node=4 tools/train.py --wide | tee log
python -m tools.train --deep && echo done
python evaluate.py --config configs/small.yaml
```

The file train.py takes --config too. A shorter one: `python3 train.py --quick`.
"""
SCRIPT = """\
#!/bin/sh
ROOT=runs
export NAME="first run"
# python train.py --old
python train.py --out $ROOT/a --name "$NAME" --seed $1 \\
  --here `pwd`/x
"""


@pytest.fixture
def project(tmp_path: Path) -> str:
    """Two programs of the same name, a page and a script."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "scripts").mkdir()
    for path in ("train.py", "tools/train.py"):
        (tmp_path / path).write_text("")
    (tmp_path / "README.md").write_text(PAGE)
    (tmp_path / "scripts" / "run.sh").write_text(SCRIPT)
    return str(tmp_path)


def test_of_a_page_and_of_a_script(project: str) -> None:
    found = commands(project, os.path.join(project, "train.py"))
    assert [command.arguments for command in found] == [
        ("--config", "configs/small.yaml", "--name", "a b", "--workers", "4"),
        ("--quick",),
        ("--out", "runs/a", "--name", "first run", "--here", "./x"),
    ]
    assert [(os.path.basename(command.path), command.row) for command in found] == [
        ("README.md", 6),
        ("README.md", 13),
        ("run.sh", 5),
    ]
    assert {command.folder for command in found} == {project}


def test_a_module_and_a_file_in_a_folder_are_typed_at_the_root(project: str) -> None:
    found = commands(project, os.path.join(project, "tools", "train.py"))
    wide, deep = (next(command for command in found if command.arguments == (word,)) for word in ("--wide", "--deep"))
    assert wide.folder == deep.folder == project


def test_the_nearest_page_comes_first_and_nothing_outside_of_the_project_counts(project: str) -> None:
    other = os.path.join(project, "tools", "notes.md")
    Path(other).write_text("python train.py --near\npython ../../elsewhere/train.py --far\n")
    found = commands(project, os.path.join(project, "tools", "train.py"))
    assert "--far" not in str(found)
    assert ("--near",) in [command.arguments for command in found]


@pytest.mark.parametrize("text", ["", "python", "python train.py 'unclosed", "\\", "a = `python train.py"])
def test_odd_lines_are_no_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "README.md").write_text(text)
    assert isinstance(commands(str(tmp_path), str(tmp_path / "train.py")), list)


NEEDS_A_FILE = """\
import argparse, json
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
args = parser.parse_args()
with open(args.config) as file:
    config = json.load(file)
model = nn.Linear(config["width"], config["width"], bias=False).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.zeros(4, config["width"]).cuda()).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_program_that_needs_a_file_is_started_as_its_readme_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    from torchmemlint.budget import command

    (tmp_path / "src").mkdir()
    program = tmp_path / "src" / "train.py"
    program.write_text(NEEDS_A_FILE)
    (tmp_path / "small.json").write_text('{"width": 256}')
    (tmp_path / "README.md").write_text("Run\n\n    python src/train.py --config small.json\n")
    arguments = [str(program), "--root", str(tmp_path), "--output-format", "json"]
    assert command.main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["started"] == "README.md:3: train.py --config small.json"
    assert found["parts"]["parameters"] == 256 * 256 * 4


@pytest.mark.parametrize(
    ("typed", "arguments"),
    [
        ("--model [net_small/net_large] --data [path/to/data]", ("--model", "net_small")),
        ("--model <small|large> --wide", ("--model", "small", "--wide")),
        ("--model={a,b,c}", ("--model=a",)),
        ("--size (s/m)", ()),
        ("--names [a]", ()),
        ("--steps [1000|2000] | tee log", ("--steps", "1000")),
    ],
)
def test_of_several_values_the_first(typed: str, arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "README.md").write_text(f"```\npython train.py {typed}\n```\n")
    assert [command.arguments for command in commands(str(tmp_path), str(tmp_path / "train.py"))] == [arguments]


def test_a_command_that_is_filled_in_comes_before_its_pattern(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    lines = ("--model <model> --data=<data> --fast", "--fast --data <path>", "--model net --data=x --fast", "--data=y")
    (tmp_path / "README.md").write_text("\n".join(["```", *(f"$ python train.py {line}" for line in lines), "```"]))
    found = [command.arguments for command in commands(str(tmp_path), str(tmp_path / "train.py"))]
    assert found == [("--model", "net", "--data=x", "--fast"), ("--data=y",), ("--fast",)]


PROGRAM = """\
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("width", type=int, choices=[8, 16])
width = parser.parse_args().width
net = torch.nn.Linear(width, 16).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    net(torch.zeros(4, 16, device="cuda")).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("warm_budget")
def test_an_option_that_was_taken_away_does_not_stop_a_documented_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    from torchmemlint.budget import command

    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "README.md").write_text("`python train.py 16 --old 3`\n")
    assert command.main([str(tmp_path / "train.py"), "--output-format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["started"] == "README.md:1: train.py 16 --old 3"
    assert any("'--old 3', which the program does not know" in line for line in found["assumed"])
    assert (
        command.main([str(tmp_path / "train.py"), "--", "16", "--old", "3"]) == 2
    )  # the user's own words are taken as they are
