"""A small view of a large output is kept, and with it the whole output."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Safety, Severity
from torchmemlint.rules.api import Draft, Flow, Rule, short
from torchmemlint.semantics.events import Store
from torchmemlint.semantics.values import VIEW

RULE = Rule(
    code="TML402",
    name="view-keeps-storage",
    summary="A small view of a large output is kept, and with it the whole output",
    severity=Severity.WARNING,
    fix=Safety.UNSAFE,
    triggers=frozenset({"append", "extend", "no_grad", "inference_mode"}),
    experiment="tensors",
)
EVENT = Store


def check(event: Store, flow: Flow) -> Iterator[Draft]:
    record = flow.record
    forwards = [record.forwards[g] for g in sorted(event.outputs) if g in record.forwards]
    if not forwards or not event.flags & VIEW or event.constant_key or event.loop is None or not flow.own(event.site):
        return
    fix = None
    if event.how == "append" and event.value >= 0:
        fix = flow.append_to(event.site, event.value, ".clone()", "Copy the slice", Safety.UNSAFE)
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`{short(event.place)}` keeps a view: the whole output stays allocated for each slice that is stored",
            label="a slice shares the storage of the whole tensor",
            cost="keeps the whole output, as many times the slice as the output is larger (64 to 4096 times measured)",
            help="store a copy of the slice: `.clone()`",
            flow=[flow.step_of(forwards[0], "the whole output is made here")],
            fix=fix,
        ),
        frozenset(event.outputs),
        event.site.handler,
    )
