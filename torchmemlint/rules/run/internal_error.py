"""torchmemlint itself failed on a file or function.

## What it does
Says that torchmemlint failed on a file: a mistake of ours, not of the code. The rest of the run goes on, and the exit
status is 2. Inside flake8 it also tells a configuration that cannot be read.

## What it costs
No memory. The file stays unchecked.

## Example
There is none: code that shows it is a defect, and welcome as a report. `torchmemlint -v FILE` prints the traceback.

## Fix
None.

## When to ignore
Until the defect is repaired. A failure inside one function can be hidden with a comment that names it
(`# noqa: TML001`) or with `per-file-ignores`; `--ignore` and a bare `# noqa` cannot.

## References
- docs/suppressing.md
"""

from torchmemlint.findings import Severity
from torchmemlint.rules.api import Rule
from torchmemlint.rules.card import About

RULE = Rule(
    code="TML001",
    name="internal-error",
    summary="torchmemlint itself failed here",
    severity=Severity.ERROR,
    about=About.RUN,
)
