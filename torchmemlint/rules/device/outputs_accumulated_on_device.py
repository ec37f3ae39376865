"""The outputs of a whole data set pile up on the device."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Safety, Severity
from torchmemlint.rules.api import Draft, Flow, Rule, short
from torchmemlint.semantics.events import Store
from torchmemlint.semantics.values import INTEGER, SCALAR, VIEW

RULE = Rule(
    code="TML401",
    name="outputs-accumulated-on-device",
    summary="The outputs of a whole data set pile up on the device",
    severity=Severity.WARNING,
    fix=Safety.UNSAFE,
    triggers=frozenset({"append", "extend", "cat"}),
    experiment="tensors",
)
EVENT = Store


def check(event: Store, flow: Flow) -> Iterator[Draft]:
    record = flow.record
    forwards = [record.forwards[g] for g in sorted(event.outputs) if g in record.forwards]
    if not forwards or event.constant_key or event.loop is None or not flow.own(event.site):
        return
    if event.flags & (SCALAR | INTEGER | VIEW):
        return
    info = record.loops.get(event.loop)
    if info is None or info.kind not in ("loader",):
        return
    fix = None
    if event.how == "append" and event.value >= 0:
        fix = flow.append_to(event.site, event.value, ".cpu()", "Move the stored tensor to the CPU", Safety.UNSAFE)
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`{short(event.place)}` collects every batch's output on the device",
            label=f"stays on the device until `{short(event.place)}` is dropped",
            cost="device memory grows by one batch's output per step, for the whole data set",
            help="store `.cpu()` copies, or reduce each batch to what is needed",
            flow=[flow.step_of(forwards[0], "the output is made here")],
            fix=fix,
        ),
        frozenset(event.outputs),
        event.site.handler,
    )
