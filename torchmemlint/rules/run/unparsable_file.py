"""A file cannot be read, decoded or parsed.

## What it does
Reports a file that cannot be checked: it cannot be read, is not text in its encoding, or is not valid Python for the
interpreter that runs torchmemlint. The other files are checked all the same. On whatever is selected, so that such a
file does not look clean; it can be ignored by its code.

Files over 1 MB are left out with a note, not reported.

## What it costs
No memory. What is in the file stays unchecked, and what it tells about other files is unknown.

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
