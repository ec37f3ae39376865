"""torchmemlint itself failed on a file or function."""

from torchmemlint.findings import Severity
from torchmemlint.rules.api import Rule

RULE = Rule(code="TML001", name="internal-error", summary="torchmemlint itself failed here", severity=Severity.ERROR)
