"""A functools cache keeps modules or tensors alive.

## What it does
Reports `functools.lru_cache` and `functools.cache` on a method of an `nn.Module`, and on a function or method with a
parameter that is a tensor or a module, according to its annotation or use. The decorator may be one of the project that hands the
function to such a cache.

It does not report:

- functions whose arguments are numbers, names and devices;
- static and class methods;
- `cached_property`, whose value belongs to the object;
- `maxsize=0`.

## What it costs
The cache belongs to the function, not to the object. It keeps the arguments until enough other calls have replaced them
(128 for a plain `lru_cache`), or forever with `cache` and `maxsize=None`. Measured for a module of 65,536 bytes that is
created, called once and dropped in each step: 65,664 bytes more per step, including the result.

Tensors are hashed by identity, so a second tensor with the same values is never found in the cache. Such a cache only
keeps each argument and result, with its autograd graph if grad mode is on.

## Example
```python
from functools import lru_cache

import torch
from torch import nn


class Rotary(nn.Module):
    @lru_cache(maxsize=32)
    def table(self, length):
        return torch.arange(length).float()
```

Use instead:

```python
from functools import lru_cache

import torch
from torch import nn


@lru_cache(maxsize=32)
def table(length):
    return torch.arange(length).float()


class Rotary(nn.Module):
    def table(self, length):
        return table(length)
```

## Fix
None: the right cache key depends on the program.

## When to ignore
There is one such module, and it lives as long as the program.

## References
- functools.lru_cache, "the cache keeps references to the arguments and return values":
  https://docs.python.org/3/library/functools.html#functools.lru_cache
- Python FAQ, "How do I cache method calls?":
  https://docs.python.org/3/faq/programming.html#how-do-i-cache-method-calls
- measured: torch 2.13.0 on the CPU, see docs/costs.md; CUDA measurements are still to come
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Severity
from torchmemlint.index.arguments import argument_for
from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.rules.api import Draft, Flow, Rule
from torchmemlint.rules.assumed import ANNOTATED
from torchmemlint.rules.card import About, Advice, Correction
from torchmemlint.semantics.identity import cache_of, has_parameters
from torchmemlint.semantics.roots import Runs
from torchmemlint.semantics.state import CachedFunction
from torchmemlint.torch_facts import TORCH

RULE = Rule(
    code="TML109",
    name="cached-module-or-tensor",
    summary="A functools cache keeps modules or tensors alive",
    severity=Severity.WARNING,
    about=About.TENSORS_KEPT,
    triggers=TORCH.words["caches"],
    correction=Correction.NO_CACHE,
    advice=frozenset({Advice.NO_GRAPH_KEPT}),
)
EVENT = CachedFunction


def is_root(facts: FunctionFacts, ref: FunctionRef, runs: Runs) -> bool:
    return any(cache_of(runs.world, ref, use.callee) is not None for use in facts.decorators)


def check(event: CachedFunction, flow: Flow) -> Iterator[Draft]:
    shown = [name for name, gid in event.things if flow.shown_tensor(gid)]
    annotated = [name for name in event.tensors if not is_given_literals(name, flow)]
    tensors = [*annotated, *shown]
    if not event.modules and not tensors:
        return
    is_annotation = not event.modules and not shown
    bare = is_without_parameters(event, flow)
    if event.modules:
        held = f"`{event.modules[0]}`, a module{'' if bare else ', with all that it holds'}"
    else:
        held = f"`{tensors[0]}`, a tensor, and can find it again only by identity"
    entries = "forever" if event.entries is None else f"until {event.entries} other calls replace them"
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`{event.name}` keeps {held}",
            severity=Severity.NOTE if bare and event.entries is not None else Severity.WARNING,
            doubts=(ANNOTATED,) if is_annotation else (),
            label="keeps arguments and results alive",
            cost=f"keeps each argument and result {entries}; results keep their autograd graph if grad mode is on",
            help="cache by plain values in a separate function, or on the object (`functools.cached_property`, an attribute)",
        ),
        handler=event.site.handler,
    )


def is_without_parameters(event: CachedFunction, flow: Flow) -> bool:
    """Whether the module that is kept is the method's own object, of a class that has no parameters (a camera)."""
    world, root = flow.runs.world, flow.record.root
    header = world.header(root)
    own = header.params[0].name if header.owner and header.params else ""
    return event.modules == (own,) and not has_parameters(world, ClassRef(root.path, header.owner))


def is_given_literals(name: str, flow: Flow) -> bool:
    """Whether every visible call gives a literal for a parameter, whatever its annotation says."""
    world, root = flow.runs.world, flow.record.root
    header, callers = world.header(root), world.project.callers(root)
    params = header.params[bool(header.owner) :]
    given = [argument_for(params, name, each.call.args) for each in callers.calls]
    return bool(given) and not callers.escapes and all(arg is not None and arg.const for arg in given)
