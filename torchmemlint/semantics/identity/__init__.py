"""What an expression stands for: which class, with parameters or without, who holds them, frozen by whom.

Answered from the facts of the project and from IR, without a run. Next to read: ``mode``.
"""

from torchmemlint.semantics.identity.cached import cache_of, entries_of
from torchmemlint.semantics.identity.closures import asks_only_its_arguments, function_or_closure, handed_out
from torchmemlint.semantics.identity.constructor_options import is_never_chosen, option_of
from torchmemlint.semantics.identity.frozen_at_construction import frozen_by_arguments, made_frozen
from torchmemlint.semantics.identity.frozen_by_callers import functions_that_know, given_frozen, may_freeze
from torchmemlint.semantics.identity.frozen_on_a_branch import Freezing, condition_of, note_conditions
from torchmemlint.semantics.identity.gradient_flags import (
    FLAG,
    INPUT_GRAD,
    METHOD,
    PARAMETER_ITERATORS,
    assign_requires_grad,
    overwrite_method,
    want,
    want_in_place,
    want_object,
)
from torchmemlint.semantics.identity.kinds import MODULE_EVIDENCE, TRAINER_WORDS, class_kind, looks_like_module
from torchmemlint.semantics.identity.library_networks import is_of_library
from torchmemlint.semantics.identity.optimized import (
    DEEP_COPIES,
    asks_for_parameters,
    holds_tensors,
    is_copy,
    is_held,
    is_left_out,
)
from torchmemlint.semantics.identity.origins import files_with, is_known, is_known_package
from torchmemlint.semantics.identity.parameters import (
    HOLDERS,
    callable_given,
    callable_with,
    has_parameters,
    is_made_parametric,
    is_module_given,
    is_torch_function,
    made_bounded,
    made_constant,
    made_without_parameters,
    makes_bare,
    may_hold_module,
    module_given,
    parametric,
    parametric_attributes,
    words_given,
)
from torchmemlint.semantics.identity.put_on_classes import is_put_as_forward, put_on_class
from torchmemlint.semantics.identity.thrown_away import back_propagates, discards, is_made_beside, may_discard, throws_away
from torchmemlint.semantics.identity.variables import (
    is_free,
    may_freeze_variable,
    methods_called_on_variable,
    says_any,
    texts_of_module,
    trains_in,
)

__all__ = [
    "DEEP_COPIES",
    "FLAG",
    "HOLDERS",
    "INPUT_GRAD",
    "METHOD",
    "MODULE_EVIDENCE",
    "PARAMETER_ITERATORS",
    "TRAINER_WORDS",
    "Freezing",
    "asks_for_parameters",
    "asks_only_its_arguments",
    "assign_requires_grad",
    "back_propagates",
    "cache_of",
    "callable_given",
    "callable_with",
    "class_kind",
    "condition_of",
    "discards",
    "entries_of",
    "files_with",
    "frozen_by_arguments",
    "function_or_closure",
    "functions_that_know",
    "given_frozen",
    "handed_out",
    "has_parameters",
    "holds_tensors",
    "is_copy",
    "is_free",
    "is_held",
    "is_known",
    "is_known_package",
    "is_left_out",
    "is_made_beside",
    "is_made_parametric",
    "is_module_given",
    "is_never_chosen",
    "is_of_library",
    "is_put_as_forward",
    "is_torch_function",
    "looks_like_module",
    "made_bounded",
    "made_constant",
    "made_frozen",
    "made_without_parameters",
    "makes_bare",
    "may_discard",
    "may_freeze",
    "may_freeze_variable",
    "may_hold_module",
    "methods_called_on_variable",
    "module_given",
    "note_conditions",
    "option_of",
    "overwrite_method",
    "parametric",
    "parametric_attributes",
    "put_on_class",
    "says_any",
    "texts_of_module",
    "throws_away",
    "trains_in",
    "want",
    "want_in_place",
    "want_object",
    "words_given",
]
