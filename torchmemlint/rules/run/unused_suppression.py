"""A comment suppresses a finding that is not there.

## What it does
Reports

- `# noqa: TML…` and `# torchmemlint: …` comments, or single codes in them, that suppress no finding;
- codes that do not exist;
- misspelled `# torchmemlint:` comments, which have no effect.

The rule is off by default; enable it with `--extend-select TML002`.

It does not report:

- codes whose rule was disabled for the file;
- a prefix (`TML1`) or a bare `# torchmemlint: ignore`, unless all of its rules that are on by default were enabled;
- a bare `# noqa`, and codes of other linters;
- comments in a file with a function that was not analyzed completely, or if the project around single files was too large
  to search completely.

## What it costs
No memory. The comment would hide the next mistake on its line.

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
Removes the code from the comment, or the whole comment with its reason. Safe: comments do not run.

## When to ignore
The code is checked with several configurations, and the comment is needed in another. Add `# noqa: TML002` to its line.

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
