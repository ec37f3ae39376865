"""What the constructs of Python do to the state of a run, a file for each construct.

They register themselves in ``state.dispatch``. Next to read: ``models``, for what is called.
"""

from torchmemlint.semantics.interpret import assignment, loops, statements, with_blocks
from torchmemlint.semantics.interpret.accumulation import accumulate_into
from torchmemlint.semantics.interpret.attributes import attribute_of, object_attribute
from torchmemlint.semantics.interpret.call_effects import (
    cut_all,
    note_array,
    reaches_device,
    record_by_name,
    record_call,
    record_environment,
)
from torchmemlint.semantics.interpret.elements import adopt, copy_contents, forget, items_of, iterate, put, put_all
from torchmemlint.semantics.interpret.expressions import evaluate_constant
from torchmemlint.semantics.interpret.handlers import (
    CATCHES_OOM,
    OOM_WORDS,
    is_shown_to_run_model,
    names_oom_class,
    names_other_device,
    reads_error,
    tests_message,
)
from torchmemlint.semantics.interpret.iterations import ANY_WIDTH, width_of_loop
from torchmemlint.semantics.interpret.names import annotated_container, classify, function_value, named
from torchmemlint.semantics.interpret.narrowing import is_plain_name, is_plain_type
from torchmemlint.semantics.interpret.operators import arithmetic, in_role, made_in_mode, whole_logits
from torchmemlint.semantics.interpret.stores import FILLS_LISTS, RECORDED, STORING, makes_recorder, note_kept, record, store_in
from torchmemlint.semantics.interpret.unknown_parts import hold_loaded, leaf_tensor, note_given_away, part_of, thing_element

__all__ = [
    "ANY_WIDTH",
    "CATCHES_OOM",
    "FILLS_LISTS",
    "OOM_WORDS",
    "RECORDED",
    "STORING",
    "accumulate_into",
    "adopt",
    "annotated_container",
    "arithmetic",
    "assignment",
    "attribute_of",
    "classify",
    "copy_contents",
    "cut_all",
    "evaluate_constant",
    "forget",
    "function_value",
    "hold_loaded",
    "in_role",
    "is_plain_name",
    "is_plain_type",
    "is_shown_to_run_model",
    "items_of",
    "iterate",
    "leaf_tensor",
    "loops",
    "made_in_mode",
    "makes_recorder",
    "named",
    "names_oom_class",
    "names_other_device",
    "note_array",
    "note_given_away",
    "note_kept",
    "object_attribute",
    "part_of",
    "put",
    "put_all",
    "reaches_device",
    "reads_error",
    "record",
    "record_by_name",
    "record_call",
    "record_environment",
    "statements",
    "store_in",
    "tests_message",
    "thing_element",
    "whole_logits",
    "width_of_loop",
    "with_blocks",
]
