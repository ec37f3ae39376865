"""What a rule says, as plain data: no tree nodes, picklable, comparable.

Rows and columns are 1-based, columns count code points, and the end of a span is exclusive: reporters convert to other
units (UTF-8 bytes, UTF-16) where a format wants them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

UNPARSABLE, INTERNAL_ERROR, UNUSED_SUPPRESSION = "TML000", "TML001", "TML002"
"""Codes of the rules that are about the run itself: no event makes their findings, so the parts of the run do."""


class Severity(Enum):
    """How bad a finding is; the order of the members is the order of weight."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"

    @property
    def weight(self) -> int:
        """0 for a note, 1 for a warning, 2 for an error."""
        return ("note", "warning", "error").index(self.value)


class Confidence(Enum):
    """How likely a finding is true; the order of the members is the order of weight. ``rules.doubts`` has the criteria, and
    ``docs/accuracy.md`` the share of true findings at each level."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"

    @property
    def weight(self) -> int:
        """0 for low, 1 for medium, 2 for high."""
        return ("low", "medium", "high").index(self.value)


class Safety(Enum):
    """Whether a fix leaves every computed result as it was (safe), may change one (unsafe), or does not exist."""

    SAFE = "safe"
    UNSAFE = "unsafe"
    NONE = "none"


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a file's text: 1-based row, 1-based column in code points."""

    row: int
    column: int


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A stretch of text from ``start`` up to, not including, ``end``."""

    start: Position
    end: Position


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the text of ``span`` by ``content``; an empty span inserts."""

    span: Span
    content: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A fix: non-overlapping edits in the finding's own file, sorted by position.

    ``needs_import`` names a module that the edited file must have bound (``"torch"``); the fixer adds
    ``import torch`` where it is missing. ``proof``: by what a safe fix is proved to change no result, each as a sentence, and how
    that is known.
    """

    message: str
    safety: Safety
    edits: tuple[Edit, ...]
    needs_import: str | None = None
    proof: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class FlowStep:
    """One step of how the memory comes to be held: where, and what happens there; ``cell`` as in a finding."""

    path: str
    span: Span
    message: str
    cell: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake at one place.

    path        the file as it was named to the linter (posix separators)
    span        the flagged expression or simple statement, never a whole function
    message     one sentence: what is wrong here
    label       the words under the span in a code frame ("added here, outlives the loop")
    cost        what it costs, in the words of what was measured
    help        what to do about it, one sentence
    unless      what would make the finding false, behind "unless "; "" where the confidence is high
    function    qualified name of the enclosing function in its module, "" at module level
    statement   the flagged statement's source with white space normalised; part of the fingerprint
    noqa_rows   rows on which a suppression comment covers this finding: the physical lines of the simple statement, or
                of the compound statement's header, and the ``def`` line(s) of the enclosing function
    noqa_row    the row where a new suppression comment would be written
    flow        the steps that lead here, in order (may name other files); the span itself is not repeated
    cell        None, or the 1-based number of the notebook cell among all cells: rows count in the cell then
    occurrence  0 for the first finding of the same code, function and statement in a file, 1 for the second …
    """

    code: str
    name: str
    severity: Severity
    confidence: Confidence
    message: str
    path: str
    span: Span
    label: str = ""
    cost: str = ""
    help: str = ""
    unless: str = ""
    function: str = ""
    statement: str = ""
    noqa_rows: frozenset[int] = frozenset()
    noqa_row: int = 0
    flow: tuple[FlowStep, ...] = ()
    fix: Fix | None = None
    cell: int | None = None
    occurrence: int = 0
    evidence: tuple[tuple[str, str], ...] = ()
    probability: float = 1.0

    @property
    def sureness(self) -> str:
        """A confidence that is not high, and what would make the finding false; "" where it is high."""
        words = f"{self.confidence.value}, unless {self.unless}" if self.unless else self.confidence.value
        return "" if self.confidence is Confidence.HIGH else words

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        """What a finding shows below its message: a label, and its text."""
        parts = (("cost", self.cost), ("confidence", self.sureness), ("help", self.help))
        return tuple((word, text) for word, text in parts if text)

    @property
    def cost_key(self) -> tuple[int, int, tuple[str, int, int, int, str, str]]:
        """The costliest first: severity, then confidence, then the order of every output."""
        return (-self.severity.weight, -self.confidence.weight, self.sort_key)

    @property
    def sort_key(self) -> tuple[str, int, int, int, str, str]:
        """Path, cell, row, column, code, message: the order of every output."""
        return (self.path, self.cell or 0, self.span.start.row, self.span.start.column, self.code, self.message)
