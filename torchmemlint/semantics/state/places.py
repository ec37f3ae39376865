"""Where a bare name is bound from here."""

from __future__ import annotations

from torchmemlint.semantics.state.machine import Machine
from torchmemlint.semantics.state.world import MODULE


def place_of(m: Machine, ident: str) -> tuple[int, str]:
    """The place that a bare name is bound to from here: a local, an enclosing function's local, or a global."""
    frame = m.frame
    if m.comprehension_names and any(ident in names for names in m.comprehension_names):
        return (frame, ident)
    if ident in m.frame_closure[frame].function.locals or m.frame_closure[frame].function.name == "<lambda>":
        return (frame, ident)
    frame = m.frame_closure[frame].parent
    while frame >= 0:
        if ident in m.frame_closure[frame].function.locals:
            return (frame, ident)
        frame = m.frame_closure[frame].parent
    if m.frame_closure[m.frame].function.name == MODULE:
        return (m.frame, ident)
    return (-2, f"{m.path}:{ident}")
