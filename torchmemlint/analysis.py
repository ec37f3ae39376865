"""One file of a project → its findings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torchmemlint.findings import Finding

if TYPE_CHECKING:
    from torchmemlint.config import Settings
    from torchmemlint.index.project import Project


@dataclass(slots=True)
class Analysis:
    """What one file's analysis gave: findings, notes for ``-v``, and a traceback for each crash of ours."""

    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)


def analyze_module(project: Project, path: str, settings: Settings) -> Analysis:
    return Analysis()


def trace(project: Project, path: str, row: int, settings: Settings) -> str:
    return ""
