"""Which code runs, by whose doing, with grad mode on or off.

It chooses the roots that are worth a run, and says what can never be reached. Next to read: ``roots``.
"""

from torchmemlint.semantics.mode import purpose, root_choice
from torchmemlint.semantics.mode.cannot_run import Reason, why_not_run
from torchmemlint.semantics.mode.environments import observations
from torchmemlint.semantics.mode.exits import EXITS, is_exit
from torchmemlint.semantics.mode.grad_guards import (
    guards,
    guards_itself,
    guards_what_it_runs,
    is_called_by_what_is_handed_on,
    is_imported,
    may_guard,
    start_mode,
)
from torchmemlint.semantics.mode.grad_modes import decorated_mode, project_manager_mode
from torchmemlint.semantics.mode.phases import MAX_PHASES, assumed, decide, note_phase
from torchmemlint.semantics.mode.plumbing import plumbing_names
from torchmemlint.semantics.mode.purpose import may_be_network
from torchmemlint.semantics.mode.root_choice import (
    BACKWARD,
    DEVICE_WORDS,
    OF_EVERYTHING,
    back_propagates,
    callees,
    family,
    is_move,
    is_network,
    may_build_graphs,
    may_collect_on_device,
    mentions_devices,
    moves_in_a_loop,
    moves_something,
    names_the_host,
    reaches,
    reaches_network,
    runs_steps,
    stores_in_loop,
    trains_in_a_loop,
)

__all__ = [
    "BACKWARD",
    "DEVICE_WORDS",
    "EXITS",
    "MAX_PHASES",
    "OF_EVERYTHING",
    "Reason",
    "assumed",
    "back_propagates",
    "callees",
    "decide",
    "decorated_mode",
    "family",
    "guards",
    "guards_itself",
    "guards_what_it_runs",
    "is_called_by_what_is_handed_on",
    "is_exit",
    "is_imported",
    "is_move",
    "is_network",
    "may_be_network",
    "may_build_graphs",
    "may_collect_on_device",
    "may_guard",
    "mentions_devices",
    "moves_in_a_loop",
    "moves_something",
    "names_the_host",
    "note_phase",
    "observations",
    "plumbing_names",
    "project_manager_mode",
    "purpose",
    "reaches",
    "reaches_network",
    "root_choice",
    "runs_steps",
    "start_mode",
    "stores_in_loop",
    "trains_in_a_loop",
    "why_not_run",
]
