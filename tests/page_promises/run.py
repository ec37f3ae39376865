"""TML000 to TML002."""

from page_promises import NOTE, SILENT, Promise

UNUSED = """
import torch

def train(model, batches, optimizer):
    total = 0.0
    for inputs in batches:
        loss = model(inputs).sum()
        loss.backward()
        optimizer.step()
        total += loss@1  # noqa: @2
    return total
"""

PROMISES = [
    Promise("a file for Python 2", "TML000", NOTE, "import torch\n\n@1\n", ("print 'hello'",), ("def train(model\n    pass",)),
    Promise(
        "async as a name",
        "TML000",
        NOTE,
        "import torch\n\ndef move(x):\n    return @1\n",
        ("x.cuda(async=True)",),
        ("x.cuda(",),
    ),
    Promise(
        "other findings of a file for Python 2",
        "TML101",
        NOTE,
        UNUSED.replace("  # noqa: @2", "") + "\n@2\n",
        ("", "print 'hello'"),
        ("", "print('hello')"),
    ),
    Promise("a code that suppresses a finding", "TML002|TML101", SILENT, UNUSED, ("", "TML101"), (".item()", "TML101")),
    Promise(
        "a comment without codes",
        "TML002|TML101",
        SILENT,
        UNUSED.replace("noqa: @2", "@2"),
        (".item()", "noqa"),
        (".item()", "noqa: TML101"),
    ),
    Promise("codes of other linters", "TML002|TML101", SILENT, UNUSED, (".item()", "E501"), (".item()", "TML101")),
    Promise(
        "a file with a function that was not analyzed completely",
        "TML002|TML101",
        SILENT,
        UNUSED + "\n@3\n",
        (".item()", "TML101", "def train(model\n    pass"),
        (".item()", "TML101", "pass"),
    ),
]
