"""Where values go in the text of a function, whichever way its tests come out.

Rules and fixes ask this, where all paths count and not only those that a run took: who reads it, who frees it, who may
back-propagate it. Next to read: ``tracking``, on which most of it stands.
"""

from torchmemlint.semantics.dataflow.checkpoint_loads import keeps_a_parameter, taken_otherwise, used_otherwise
from torchmemlint.semantics.dataflow.checkpoint_saves import Saved, left_unread, nodes_of_file, saved_from_host, saves_more
from torchmemlint.semantics.dataflow.deleted_arguments import deleted, held
from torchmemlint.semantics.dataflow.emptied import emptied_by, is_constructor, is_emptied_each_batch, is_only_filled
from torchmemlint.semantics.dataflow.grad_blind import changes_the_program, seen_by
from torchmemlint.semantics.dataflow.grad_needs import (
    backward_needs,
    backward_needs_returned,
    block_needed,
    is_whole_value,
    read_before_backward,
    stored_needed,
)
from torchmemlint.semantics.dataflow.hooked_again import hooked_in_turns, is_set_again, removes_by_handle
from torchmemlint.semantics.dataflow.host_uses import met_on_device, taken_whole
from torchmemlint.semantics.dataflow.import_uses import Written, uses_of, written
from torchmemlint.semantics.dataflow.readers import OWN, goes_only_into, readers_of_attribute
from torchmemlint.semantics.dataflow.released_names import Release, is_rebound, release
from torchmemlint.semantics.dataflow.restored_state import classes_of, has_no_tensors, is_optimizer, keeps_optimizers
from torchmemlint.semantics.dataflow.surely_tensors import shown

__all__ = [
    "OWN",
    "Release",
    "Saved",
    "Written",
    "backward_needs",
    "backward_needs_returned",
    "block_needed",
    "changes_the_program",
    "classes_of",
    "deleted",
    "emptied_by",
    "goes_only_into",
    "has_no_tensors",
    "held",
    "hooked_in_turns",
    "is_constructor",
    "is_emptied_each_batch",
    "is_only_filled",
    "is_optimizer",
    "is_rebound",
    "is_set_again",
    "is_whole_value",
    "keeps_a_parameter",
    "keeps_optimizers",
    "left_unread",
    "met_on_device",
    "nodes_of_file",
    "read_before_backward",
    "readers_of_attribute",
    "release",
    "removes_by_handle",
    "saved_from_host",
    "saves_more",
    "seen_by",
    "shown",
    "stored_needed",
    "taken_otherwise",
    "taken_whole",
    "used_otherwise",
    "uses_of",
    "written",
]
