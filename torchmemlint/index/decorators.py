"""What decorators do with the functions under them."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.index.facts import CallFact, Header
from torchmemlint.index.reader import FactReader, Head
from torchmemlint.index.references import FunctionRef
from torchmemlint.torch_facts import TORCH

INERT = TORCH.words["inert-decorators"]
"""Decorators that leave a function to be called by its name alone."""


def is_property(facts: Head | Header) -> bool:
    """Whether to read the attribute is to call the function."""
    return any(use.callee.rpartition(".")[2] in TORCH.words["properties"] for use in facts.decorators)


def argument_calls(reader: FactReader, decorator: FunctionRef) -> Iterator[tuple[FunctionRef, CallFact]]:
    """Where a decorator's wrapper runs what it wraps: calls, in its inner functions, of a parameter of a function around."""
    functions = reader.inside(decorator)
    for qualname, facts in functions.items():
        if not facts.parent and qualname != decorator.qualname:
            continue
        around: set[str] = set()
        outer = functions.get(facts.parent) if facts.parent else None
        while outer is not None:
            around |= {param.name for param in outer.params}
            outer = functions.get(outer.parent) if outer.parent else None
        for call in facts.calls:
            if call.callee in around and call.callee not in facts.locals:
                yield FunctionRef(decorator.path, qualname), call
