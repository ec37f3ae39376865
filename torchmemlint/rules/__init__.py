"""All rules, in code order."""

from __future__ import annotations

from torchmemlint.findings import Safety, Severity
from torchmemlint.rules.api import Rule

ALL_RULES: tuple[Rule, ...] = (
    Rule("TML000", "unparsable-file", "A file cannot be read or parsed", Severity.ERROR),
    Rule("TML001", "internal-error", "torchmemlint itself failed here", Severity.ERROR),
    Rule("TML101", "graph-attached-running-total", "A running total keeps autograd graphs", Severity.ERROR, Safety.SAFE,
         triggers=frozenset({"backward", "no_grad"})),
)


def page(code: str) -> str:
    """The page of a rule: its module's docstring. Raises KeyError for an unknown code."""
    raise KeyError(code)
