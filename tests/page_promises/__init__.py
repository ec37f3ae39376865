"""What the rules' pages promise of findings: conditions under which one is a note, or has another severity, or is not there.

Each condition has a program that meets it and a twin that does not. They differ in what stands for the marks ``@1``, ``@2``, … of one text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from textwrap import dedent

SILENT = "silent"
"""It does not report."""
NOTE = "note"
"""At most a note: silence is as good."""
WARNING = "warning"
ERROR = "error"

MARK = re.compile(r"^( *)(.*?)@([1-9])", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Promise:
    """A condition of a page.

    code     of the rule, or of several, any of which may report it, joined by "|"
    grade    what a program that meets it gets: "silent", "note" (or less), or exactly "warning" or "error"
    program  with marks
    met      what stands for each mark where the condition is met
    twin     and where it is not: a finding of another severity, where something must be found at all
    beside   other files of the same project
    target   the setting target-torch for each of the two; "": none
    about    a part of the messages that count; "": all
    gap      the code does not keep it today
    """

    condition: str
    code: str
    grade: str
    program: str
    met: tuple[str, ...]
    twin: tuple[str, ...]
    beside: Mapping[str, str] = field(default_factory=dict)
    target: tuple[str, str] = ("", "")
    about: str = ""
    gap: bool = False

    @property
    def codes(self) -> frozenset[str]:
        """The rules whose findings count."""
        return frozenset(self.code.split("|"))

    @property
    def name(self) -> str:
        """For a test's name."""
        return f"{self.code} {self.condition}"

    def texts(self, words: tuple[str, ...]) -> dict[str, str]:
        """The files with these words for the marks."""
        return {name: filled(text, words) for name, text in {"script.py": self.program, **self.beside}.items()}


def filled(program: str, words: tuple[str, ...]) -> str:
    """A program without marks: lines of a word after its first get the indentation of the mark's line."""

    def word(mark: re.Match[str]) -> str:
        space, before, number = mark.groups()
        return f"{space}{before}" + words[int(number) - 1].replace("\n", f"\n{space}")

    text = dedent(program)
    while MARK.search(text):
        text = MARK.sub(word, text)
    return text


NET = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(3, 512, 3)
        self.head = nn.Linear(512, 1000)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))

"""
"""A network whose graph is large."""
START = """

train(DataLoader(torch.load("data.pt", map_location="cpu"), batch_size=64))
"""
