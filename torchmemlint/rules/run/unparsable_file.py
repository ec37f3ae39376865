"""A file cannot be read, decoded or parsed.

## What it does
Reports what cannot be checked: a file that cannot be read, is not text in its encoding, or is not valid Python for the
interpreter that runs torchmemlint. The other files are checked all the same. On whatever is selected, so that such a
file does not look clean; it can be ignored by its code.

A file that does not parse is read as far as it can be:

- Functions, classes and statements that do not parse are left out, and the message names their lines. The rest is
  checked. Nothing is concluded from what a function that was left out may do.
- A file that is written for Python 2 (`print x`, `except E, e`, `0777`, margins that mix tabs and spaces) or uses `async` as a
  name (`x.cuda(async=True)`) is checked in full. This rule is a note there, and so are all findings: no Python of today runs the file.

No fix is offered in such a file. Where more than twenty places do not parse, or nothing is left, the file is left out.

Files over 1 MB are left out with a note, not reported.

## What it costs
No memory. What is left out stays unchecked, and what it tells about other files is unknown.

## Example
```python
def train(model
    pass
```

Use instead:

```python
def train(model):
    pass
```

## Fix
None is written. Syntax that is newer than the running Python needs a newer Python to run torchmemlint with; the
message says which.

## When to ignore
The file is broken on purpose, as test data. Better exclude it: `extend-exclude = ["tests/data"]`.

## References
- Python: ast.parse: https://docs.python.org/3/library/ast.html#ast.parse
"""

from torchmemlint.findings import Severity
from torchmemlint.rules.api import Rule
from torchmemlint.rules.card import About

RULE = Rule(
    code="TML000",
    name="unparsable-file",
    summary="A file cannot be read, decoded or parsed",
    severity=Severity.ERROR,
    about=About.RUN,
)
