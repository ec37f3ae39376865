"""By what a detach of a value that is kept is proved to change no result: every read of it is visible, down to a number."""

from __future__ import annotations

from dataclasses import replace

from torchmemlint.findings import Fix, Safety
from torchmemlint.rules.api import Flow, NoFix
from torchmemlint.rules.fact import Known
from torchmemlint.semantics.dataflow import stored_needed
from torchmemlint.semantics.state import MODULE, Accumulate, SinkKind, Store
from torchmemlint.torch_facts import TORCH

HARMLESS = frozenset({SinkKind.CUT, SinkKind.SHOWN, SinkKind.DROPPED, SinkKind.KEPT_PART})
"""What may become of a value that is read, whether it has a graph or not."""
GOES_BY_GRAPHS = TORCH.words["graph-nodes"] | TORCH.words["gradient-flags"] | TORCH.words["gradient-hooks"]
READ = "every read of `{place}` is visible, and ends in a number or a text"


def with_reads(fix: Fix | NoFix | None, event: Accumulate | Store, flow: Flow) -> Fix | NoFix | None:
    """A fix that detaches what is added or stored, safe where that is proved."""
    world, root = flow.runs.world, flow.record.root
    if (
        not isinstance(fix, Fix)
        or (root.qualname == MODULE and world.project.is_imported_file(root.path))  # whoever imports it reads its variables
        or not event.place.isidentifier()
        or flow.frame(event.site).ref != root
    ):
        return fix
    facts = world.facts(root)
    given = {param.name for param in facts.params}
    if event.place not in facts.locals - given or facts.names & GOES_BY_GRAPHS:
        return fix
    for record in flow.runs.records(root):
        for each in record.events.values():
            if isinstance(each, Accumulate | Store) and each.site.node == event.site.node and node_of(each) == node_of(event):
                seen = {sink.kind for sink in record.sinks.get(each.mark, ())}
                if (
                    not each.sure_tensor
                    or not is_local(each)
                    or not seen <= HARMLESS
                    or not (seen or isinstance(each, Accumulate))
                ):
                    return fix
    if node_of(event) < 0 or stored_needed(world, root, node_of(event)):
        return fix
    return replace(fix, safety=Safety.SAFE, proof=((READ.format(place=event.place), Known.RESOLVED.value),))


def node_of(event: Accumulate | Store) -> int:
    """The expression that is added or stored."""
    return event.term if isinstance(event, Accumulate) else event.value


def is_local(event: Accumulate | Store) -> bool:
    """Whether a variable of the function itself holds it."""
    return event.key[0] == 0 if isinstance(event, Accumulate) else not event.external
