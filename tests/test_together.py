"""One finding that stands for several places: a cause in several loops of a function, and what is reported once a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchmemlint.findings import Finding
from torchmemlint.project.config import CommandLine, Configuration
from torchmemlint.run import check_text, fix_paths
from torchmemlint.suppress.together import ALSO

pytestmark = pytest.mark.usefixtures("nothing_around")

LOOPS = """\
import torch
from torch import nn


def evaluate(model: nn.Module, first, second, third):{header}
    model.eval()
    kept = []
    for x in first:
        kept.append(model(x)){first}
    for x in second:
        kept.append(model(x)){second}
    for x in third:
        kept.append(model(x)){third}
    return kept
"""
NOQA = "  # noqa: TML201"
NAMES = """\
import torch


def step(model, x):
    with torch.cuda.amp.autocast():
        return model(x)


def scale(loss):
    scaler = torch.cuda.amp.GradScaler()
    scaler.scale(loss).backward()


def again(model, x):
    with torch.cuda.amp.autocast():{noqa}
        return model(x)
"""


def check(text: str, *, comments: bool = True, select: str = "TML201") -> list[Finding]:
    configuration = Configuration(CommandLine({"select": [select]}, isolated=True))
    return check_text(text, "a.py", configuration.for_file("a.py"), comments=comments)


def places(finding: Finding) -> list[int]:
    return [finding.span.start.row, *(step.span.start.row for step in finding.flow if step.message == ALSO)]


def loops(**comments: str) -> str:
    return LOOPS.format(**{"header": "", "first": "", "second": "", "third": "", **comments})


@pytest.mark.parametrize(
    ("comments", "expected"),
    [
        ({}, [9, 11, 13]),
        ({"first": NOQA}, [11, 13]),
        ({"second": NOQA}, [9, 13]),
        ({"first": NOQA, "second": NOQA}, [13]),
        ({"first": NOQA, "second": NOQA, "third": NOQA}, None),
        ({"header": NOQA}, None),
    ],
)
@pytest.mark.parametrize("own", [True, False])
def test_a_comment_silences_its_own_loop(comments: dict[str, str], expected: list[int] | None, own: bool) -> None:
    """``own`` False: flake8 applies the comments, to the row that is reported."""
    found = [places(one) for one in check(loops(**comments), comments=own)]
    if own or expected is not None:
        assert found == ([] if expected is None else [expected])


def test_no_fix_reaches_what_a_comment_keeps() -> None:
    assert check(loops())[0].fix is not None
    assert check(loops(first=NOQA))[0].fix is None


def test_a_comment_on_a_later_loop_is_used() -> None:
    found = check(loops(third=NOQA), select="TML2")
    assert [one.code for one in found] == ["TML201"]
    assert not check(loops(third=NOQA), select="TML002")


def test_a_deprecated_name_is_reported_once_a_file() -> None:
    (one,) = check(NAMES.format(noqa=""), select="TML501")
    assert places(one) == [5, 10, 15]
    assert one.fix is not None
    assert len({edit.span.start.row for edit in one.fix.edits}) == 3
    (left,) = check(NAMES.format(noqa="  # noqa: TML501"), select="TML501")
    assert places(left) == [5, 10]


def test_one_fix_renames_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(NAMES.format(noqa=""))
    options = {"select": ["TML501"], "unsafe-fixes": True}
    fixed = fix_paths([str(tmp_path)], Configuration(CommandLine(options, isolated=True)), 1)
    assert "torch.cuda.amp" not in fixed.after[str(tmp_path / "a.py")]
    assert len(fixed.applied) == 1


BESIDE = """\
import torch
from torch import nn


def shown(model: nn.Module, first, second, loader, optimizer):
    for x in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    one = model(first){first}
    other = model(second){second}
    print(one.detach().cpu().numpy(), other.detach().cpu().numpy())
"""


@pytest.mark.parametrize(
    ("comments", "expected", "guards"),
    [({}, [10, 11], 2), ({"second": NOQA}, [10], 0), ({"first": NOQA}, None, 0), ({"first": NOQA, "second": NOQA}, None, 0)],
)
def test_what_stands_beside_in_the_same_part_goes_with_it(
    comments: dict[str, str], expected: list[int] | None, guards: int
) -> None:
    """A comment on the row that is reported means all of the part, as it did before the others were named."""
    found = check(BESIDE.format(**{"first": "", "second": "", **comments}))
    assert [places(one) for one in found] == ([expected] if expected is not None else [])
    edits = [edit.content for one in found if one.fix is not None for edit in one.fix.edits]
    assert sum("no_grad" in text for text in edits) == guards
