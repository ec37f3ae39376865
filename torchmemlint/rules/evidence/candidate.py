"""A forward that may build its graph for nothing, with what several extractors ask of it, each answered once."""

from __future__ import annotations

from functools import cached_property

from torchmemlint.rules.api import Flow
from torchmemlint.rules.evidence.module_evidence import ModuleEvidence, evidence_of
from torchmemlint.semantics.mode import purpose
from torchmemlint.semantics.roots import Fate
from torchmemlint.semantics.state import MODULE, Graph, Mode, RecordFlag


class Candidate:
    """A forward's graph in one run of a function.

    event  the graph; flow, what may be asked of the run that has it
    root   the function that was run; name, how it is called, "" for a module's top level
    """

    def __init__(self, event: Graph, flow: Flow) -> None:
        self.event, self.flow = event, flow
        self.record, self.root = flow.record, flow.record.root
        self.world, self.project = flow.runs.world, flow.runs.world.project
        self.name = "" if self.root.qualname == MODULE else self.root.qualname

    @cached_property
    def module(self) -> ModuleEvidence:
        """How surely what is called is a module with parameters."""
        return evidence_of(self.event, self.flow)

    @cached_property
    def here(self) -> Fate:
        """What becomes of the result in the function itself."""
        return self.flow.runs.fate_here(self.record, self.event.gid)

    @cached_property
    def ends_here(self) -> bool:
        return self.here.only_cut or self.here.never_read

    @cached_property
    def evaluated(self) -> bool:
        """Whether the module was put into evaluation mode, or the phase is one that does not train."""
        return is_evaluated(self.event, self.flow)

    @cached_property
    def fate(self) -> Fate:
        """What becomes of the result in the function and its callers, who are run for it."""
        if self.ends_here:
            return self.here
        alone = not (self.evaluated or purpose.evaluates(self.name))
        return self.flow.runs.fate(self.record, self.event.gid, cuts_alone=alone)

    @cached_property
    def done(self) -> bool:
        """Whether nothing that has the graph goes anywhere: all is cut off, or nothing reads it."""
        return self.fate.only_cut or self.fate.never_read

    @cached_property
    def phase(self) -> bool:
        """Whether the same call is trained in another phase of the function."""
        return self.flow.trains_in_another_phase(self.event)

    @cached_property
    def called(self) -> bool:
        """Whether something visible calls the function, or the program begins with it."""
        return self.record.mode is not Mode.NO_CALLERS or self.flow.root_is_entry()


def is_evaluated(event: Graph, flow: Flow) -> bool:
    """Whether the module was put into evaluation mode, or the phase is one that does not train: another trains the same call."""
    if event.training is False or flow.assumed_evaluation() or flow.trains_in_another_phase(event):
        return True
    flags = flow.record.flags
    return not flow.own(event.site) and RecordFlag.EVAL in flags and RecordFlag.TRAIN not in flags


def is_of_unknown_class(event: Graph) -> bool:
    """Whether a method is called by its name, of an object of which no class is known."""
    return event.what.rpartition(".")[0] not in ("", "self") and event.cls is None
