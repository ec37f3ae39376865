"""Grad mode is meant to be off, but the spelling switches nothing off."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Edit, Fix, Safety, Severity, Span
from torchmemlint.rules.api import Draft, Flow, Rule
from torchmemlint.semantics.events import GradModeMisuse

RULE = Rule(
    code="TML202",
    name="ineffective-no-grad",
    summary="Grad mode is meant to be off, but this spelling switches nothing off",
    severity=Severity.ERROR,
    fix=Safety.SAFE,
    triggers=frozenset({"no_grad", "inference_mode", "enable_grad", "volatile", "set_grad_enabled"}),
    experiment=None,
)
EVENT = GradModeMisuse

SAYINGS = {
    "statement": (
        Severity.ERROR,
        "`{name}` as a statement makes a context manager and throws it away: grad mode stays as it was",
        "write `with {name}:` around the code, or `torch.set_grad_enabled(False)` for all that follows",
    ),
    "with-uncalled": (
        Severity.ERROR,
        "`with {name}:` enters the class, not an instance of it: this raises TypeError",
        "call it: `with {name}():`",
    ),
    "async-decorator": (
        Severity.ERROR,
        "`@{name}` on an `async def` has no effect: the decorated call only makes the coroutine, its body runs later",
        "put `with torch.no_grad():` inside the body, with no `await` in it",
    ),
    "class-decorator": (
        Severity.ERROR,
        "`@{name}` on a class switches grad mode off in `__init__` alone, and turns the class into a function",
        "decorate the methods that should run without grad",
    ),
    "volatile": (
        Severity.ERROR,
        "`volatile=True` has had no effect since torch 0.4",
        "run the code under `with torch.no_grad():`",
    ),
    "generator-leak": (
        Severity.WARNING,
        "this generator yields inside `with no_grad()`: grad mode is off in its consumer as well, between two items",
        "decorate the generator with `@torch.no_grad()` instead, or close the `with` before the `yield`",
    ),
    "bare-decorator": (
        Severity.ERROR,
        "`@{name}` without parentheses fails before torch 2.1",
        "write `@{name}()`",
    ),
}


def check(event: GradModeMisuse, flow: Flow) -> Iterator[Draft]:
    if not flow.own(event.site):
        return
    if event.kind == "bare-decorator":
        target = flow.runs.world.settings.target_torch
        if target is None or target >= (2, 1):
            return
    severity, message, help_text = SAYINGS[event.kind]
    fix = None
    if event.kind in ("with-uncalled", "bare-decorator"):
        end = flow.span(event.site).end
        fix = Fix("Call it", Safety.SAFE, (Edit(Span(end, end), "()"),))
    yield Draft(
        flow.at(
            RULE, event.site, message.format(name=event.name), severity=severity, label="has no effect" if fix is None else "not called",
            cost="what runs here still builds autograd graphs" if event.kind != "generator-leak" else "the consumer's training step may run without grad",
            help=help_text.format(name=event.name), fix=fix,
        ),
        handler=event.site.handler,
    )  # fmt: skip
