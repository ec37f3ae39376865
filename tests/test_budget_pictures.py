"""The size of pictures that nobody has is what the program's options say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from torchmemlint.budget import command
from torchmemlint.budget.worker.pictures import of_options

PROGRAM = """\
import argparse

import torch
from torch import nn

import no_such_package

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
{options}
args = parser.parse_args()
model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)).cuda()
loader = torch.utils.data.DataLoader(no_such_package.Pictures(args), batch_size=args.batch_size)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for pictures, labels in loader:
    loss = nn.functional.cross_entropy(model(pictures.cuda()), labels.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def budget(tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str, arguments: tuple[str, ...] = ()) -> Any:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM.format(options="\n".join(f"parser.add_argument({option})" for option in options)))
    assert command.main([str(program), "--output-format", "json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "shape"),
    [
        (('"--img_height", type=int, default=48', '"--img_width", type=int, default=96'), "4,3,48,96"),
        (('"--image-size", type=int, default=64',), "4,3,64,64"),
        (('"--img_size", type=int, nargs=2, default=(40, 40)',), "4,3,40,40"),
        (('"--load_size", type=int, default=72', '"--crop_size", type=int, default=56'), "4,3,56,56"),
        (('"--patch-size", type=int, nargs=2, default=(96, 96)',), "4,3,96,96"),
        (('"--patch_size", type=int, default=16', '"--image_size", type=int, default=64'), "4,3,64,64"),
        (('"--hidden_size", type=int, default=64', '"--size", type=int, default=3'), "4,3,224,224"),
        (('"--image_size", type=int, default=4',), "4,3,224,224"),
        (('"--img_size", type=int, default=32', '"--image_size", type=int, default=64'), "4,3,224,224"),
    ],
)
def test_options_say_the_size(options: tuple[str, ...], shape: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = budget(tmp_path, capsys, *options)
    assert any(f"float32[{shape}]" in line for line in found["assumed"])


@pytest.mark.usefixtures("warm_budget")
def test_what_set_says_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = budget(tmp_path, capsys, '"--image_size", type=int, default=64', arguments=("--set", "image_size=80"))
    assert any("float32[4,3,80,80]" in line for line in found["assumed"])
    assert any("from the program's options: image_size" in line for line in found["assumed"])


def test_names_that_contradict_each_other_say_nothing() -> None:
    assert of_options({"height": 20, "width": 30, "img_size": 40}) == (20, 30, "height and width")
    assert of_options({"height": 20}) == (0, 0, "")
    assert of_options({"img_size": 32, "image_size": 64}) == (0, 0, "")
    assert of_options({"img_size": True, "resolution": "64", "image_size": 9000}) == (0, 0, "")
