"""A file cannot be read, decoded or parsed.

## What it does
Reports a file that cannot be read or decoded, or is not valid Python for the interpreter that runs torchmemlint. Other
files are checked as usual. The rule is always enabled, so that such a file does not look clean; `ignore` disables it.

As much of the file as possible is checked:

- Functions, classes and statements that cannot be parsed are skipped, and the message names their lines. The rest is
  checked, with notes for findings: no Python runs such a file yet. A skipped function may do anything.
- A file for Python 2 (`print x`, `except E, e`, `0777`, indentation that mixes tabs and spaces), or with `async` as a name
  (`x.cuda(async=True)`), is checked completely. This finding, and all others of the file, are then notes, because no current
  Python runs it.

Such a file gets no fixes. It is skipped if more than twenty places cannot be parsed, or if nothing is left.

Files over 1 MB and files in UTF-16 are skipped with a message, not reported. If you name one, the run fails with exit status 2.

## What it costs
No memory. Skipped code is not checked, and its effect on other files is unknown.

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
None. If the syntax needs a newer Python, run torchmemlint with that version; the message names it.

## When to ignore
The file is test data that is broken on purpose. Better exclude it: `extend-exclude = ["tests/data"]`.

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
