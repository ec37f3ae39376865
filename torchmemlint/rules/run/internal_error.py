"""torchmemlint itself failed on a file or function.

## What it does
Reports that torchmemlint failed on a file. This is a bug in torchmemlint, not in your code. Other files are checked, and
the exit status is 2. In flake8, it also reports a configuration that cannot be read.

## What it costs
No memory. The file is not checked.

## Example
There is none. If you have code that triggers it, please report it. `torchmemlint -v FILE` prints the traceback.

## Fix
None.

## When to ignore
Until the bug is fixed. Suppress a failure in one function with a comment that names it (`# noqa: TML001`) or with
`per-file-ignores`. `--ignore` and a bare `# noqa` have no effect.

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
