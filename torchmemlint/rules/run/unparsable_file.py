"""A file cannot be read, decoded or parsed."""

from torchmemlint.findings import Severity
from torchmemlint.rules.api import Rule

RULE = Rule(code="TML000", name="unparsable-file", summary="A file cannot be read, decoded or parsed", severity=Severity.ERROR)
