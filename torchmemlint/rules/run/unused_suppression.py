"""A comment suppresses a finding that is not there.

## What it does
Reports `# noqa: TML…` and `# torchmemlint: …` comments, and single codes in them, that no finding needed; codes that no
rule has; and `# torchmemlint:` comments that are misspelt and so do nothing. Off unless it is asked for
(`--extend-select TML002`).

A code is judged only where its rule was on for the file. A bare `# noqa` and codes of other linters are never touched;
a prefix (`TML1`) or a bare `# torchmemlint: ignore` is judged only where all of its rules that are on by default were.
Nothing is said about a file of which a function could not be followed to its end, nor where the project around single
files was too large to be searched whole.

## What it costs
No memory. The comment hides the next mistake on its line.

## Example
```python
import torch


def train(model, batches, optimizer):
    total = 0.0
    for inputs in batches:
        loss = model(inputs).sum()
        loss.backward()
        optimizer.step()
        total += loss.item()  # noqa: TML101
    return total
```

Use instead:

```python
import torch


def train(model, batches, optimizer):
    total = 0.0
    for inputs in batches:
        loss = model(inputs).sum()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total
```

## Fix
Takes the code out of the comment, or the comment out of the file with the reason that it gives. Safe: comments are not
run.

## When to ignore
The same code is checked with several configurations, and the comment is needed in another. `# noqa: TML002` on its line
says so.

## References
- docs/suppressing.md
"""

from torchmemlint.findings import Safety, Severity
from torchmemlint.rules.api import Rule
from torchmemlint.rules.card import About

RULE = Rule(
    code="TML002",
    name="unused-suppression",
    summary="A comment suppresses a finding that is not there",
    severity=Severity.WARNING,
    about=About.RUN,
    fix=Safety.SAFE,
    default=False,
)
