"""The words of the table of torch knowledge: what a call does, and what a class makes.

They are closed sets: a row of a table with another word is refused when the tables are read, and an effect of a call without a
handler when the engine is put together (``semantics/roots/assembly.py``).
"""

from __future__ import annotations

from torchmemlint.str_enum import StrEnum


class Effect(StrEnum):
    """What a call does, or what reading an attribute gives."""

    KEEP = "keep"
    """The result is attached to the graphs of the tensor arguments (none of them attached: no graph)."""
    VIEW = "view"
    """``keep``, and the result may share the storage of the receiver or first tensor argument."""
    LOSS = "loss"
    """``keep``; a loss function."""
    CUT = "cut"
    """The result is a tensor without a graph, whatever the arguments."""
    SOURCE = "source"
    """A fresh tensor without a graph (a leaf that requires grad when called with ``requires_grad=True``)."""
    LEAF = "leaf"
    """A fresh leaf that requires grad."""
    MIXED_MAX = "mixed-max"
    """Several results: the values keep, the indices (integers) are cut; one result when called without a dim."""
    INPLACE = "inplace"
    """``keep``; changes the receiver or first argument, which takes the graphs of the other arguments."""
    DEVICE = "device"
    """``keep``; moves or converts the receiver (to an integer or boolean dtype: cut, see ``cut_dtypes``)."""
    ITEM = "item"
    """A plain value read from the tensor."""
    NUMBER = "number"
    """A plain value."""
    SHAPE = "shape"
    """A plain value: sizes."""
    GRAPH = "graph"
    """A node of the graph itself (``grad_fn``)."""
    DETACH_INPLACE = "detach-inplace"
    """The receiver loses its graph."""
    REQUIRES_GRAD = "requires-grad"
    """The receiver starts to require grad, or stops with ``False``."""
    HOOK = "hook"
    """Keeps the function that it is given."""
    GRAD_OFF = "grad-off"
    """Context manager or decorator that switches grad mode off (unless its argument is False)."""
    GRAD_ON = "grad-on"
    """The same, on."""
    GRAD_SET = "grad-set"
    """Grad mode becomes the argument: context manager, decorator, or a plain call for what follows."""
    AUTOCAST = "autocast"
    """Context manager or decorator."""
    BACKWARD = "backward"
    """Back-propagates the receiver (method) or the first argument (function)."""
    AUTOGRAD_GRAD = "autograd-grad"
    """Differentiates the first argument; the result has a graph only with ``create_graph=True``."""
    CHECKPOINT = "checkpoint"
    """Runs the function that is its first argument on the others; the result keeps."""
    PACK = "pack"
    """Makes a PackedSequence of its first argument: ``.data`` of it keeps the graph."""
    MODULE = "module"
    """Builds a module."""
    COMPILE = "compile"
    """Returns (a form of) the module or function that is its first argument."""
    LOAD = "load"
    """Reads a file; the result is a container of tensors without graphs."""
    RNG_STATE = "rng-state"
    """A small tensor without a graph."""
    CLIP_GRAD = "clip-grad"
    """Changes gradients in place; a tensor without a graph."""
    EMPTY_CACHE = "empty-cache"
    """The allocator's call of that name, which rules are about."""
    MEMORY_FRACTION = "memory-fraction"
    """The allocator's call of that name, which rules are about."""
    NO_EFFECT = "no-effect"
    """Neither keeps nor back-propagates its arguments; the result is of no interest."""
    BACKPROPAGATES = "backpropagates"
    """Back-propagates its first argument."""
    PASSES = "passes"
    """Returns something that is attached to its first argument."""
    WRAPS = "wraps"
    """Returns forms of its arguments, a tuple when there are several."""


class CallByName(StrEnum):
    """Effects of calls that the engine recognizes by the method's name or its receiver, and no row of the tables has."""

    OPTIMIZER_STEP = "optimizer-step"
    POSSIBLE_STEP = "possible-step"
    """``step()`` of what a call that is not visible made, and whose gradients are cleared somewhere."""
    RESTORE = "restore"
    """``load_state_dict``."""
    ZERO_GRAD = "zero-grad"
    """``zero_grad`` that is given ``set_to_none``."""
    GRADIENT_ZEROED = "gradient-zeroed"
    """``p.grad.zero_()`` of a parameter."""
    RENAMED = "renamed"
    """A deprecated name, as a decorator too."""


class ModuleEffect(StrEnum):
    """What a method of a Module does."""

    SELF = "self"
    """Returns the module."""
    EVAL = "eval"
    TRAIN = "train"
    FREEZE = "freeze"
    """Returns the module; with False nothing in it requires grad any more."""
    FORWARD = "forward"
    HOOK = "hook"
    PLAIN = "plain"


class HookEffect(StrEnum):
    """What surrounds the body of a method that a framework calls."""

    GRAD_OFF = "grad-off"
    GRAD_ON = "grad-on"
    BACKWARD_RETURN = "backward-return"
    """Grad is on, and the framework back-propagates what is returned, or its "loss" entry."""
    EVALUATION = "evaluation"
    """Grad is on, and the framework back-propagates nothing of what is returned: the guard is in the body that an override replaces."""


class ClassKind(StrEnum):
    """What a class makes."""

    MODULE = "module"
    MODULE_NOPARAM = "module-noparam"
    """A module without parameters."""
    LOSS = "loss"
    WRAPPER = "wrapper"
    EMA = "ema"
    OPTIMIZER = "optimizer"
    SCHEDULER = "scheduler"
    LOADER = "loader"
    DATASET = "dataset"
    SCALER = "scaler"
    BACKWARD_CALLABLE = "backward-callable"
    """Back-propagates what it is called on."""
    DISTRIBUTION = "distribution"
    LIGHTNING_MODULE = "lightning-module"
    LIGHTNING_CALLBACK = "lightning-callback"
    LIGHTNING_TRAINER = "lightning-trainer"
    ACCELERATOR = "accelerator"
    HF_TRAINER = "hf-trainer"
    HF_MODEL = "hf-model"
    METRIC = "metric"
    WRITER = "writer"
    PREDICTOR = "predictor"


FUNCTION_EFFECTS = frozenset(
    {
        Effect.KEEP, Effect.VIEW, Effect.LOSS, Effect.CUT, Effect.SOURCE, Effect.LEAF, Effect.MIXED_MAX, Effect.INPLACE,
        Effect.NUMBER, Effect.GRAD_OFF, Effect.GRAD_ON, Effect.GRAD_SET, Effect.AUTOCAST, Effect.BACKWARD,
        Effect.AUTOGRAD_GRAD, Effect.CHECKPOINT, Effect.PACK, Effect.MODULE, Effect.COMPILE, Effect.LOAD, Effect.RNG_STATE,
        Effect.CLIP_GRAD, Effect.EMPTY_CACHE, Effect.MEMORY_FRACTION, Effect.NO_EFFECT,
    }
)  # fmt: skip
"""What a function may do."""
METHOD_EFFECTS = frozenset(
    {
        Effect.KEEP, Effect.VIEW, Effect.CUT, Effect.SOURCE, Effect.MIXED_MAX, Effect.INPLACE, Effect.DEVICE, Effect.ITEM,
        Effect.NUMBER, Effect.SHAPE, Effect.DETACH_INPLACE, Effect.REQUIRES_GRAD, Effect.HOOK, Effect.BACKWARD,
    }
)  # fmt: skip
"""What a method of a tensor may do."""
ATTRIBUTE_EFFECTS = frozenset({Effect.CUT, Effect.VIEW, Effect.NUMBER, Effect.GRAPH})
KIND_METHOD_EFFECTS = frozenset(
    {
        Effect.KEEP, Effect.CUT, Effect.NUMBER, Effect.NO_EFFECT, Effect.BACKPROPAGATES, Effect.WRAPS, Effect.CLIP_GRAD,
        Effect.AUTOCAST,
    }
)  # fmt: skip
"""What a method of an object may do whose kind is known."""
GRAD_EFFECTS = frozenset({Effect.GRAD_OFF, Effect.GRAD_ON, Effect.GRAD_SET})
"""What sets grad mode."""
BACKWARD_EFFECTS = frozenset({Effect.BACKPROPAGATES, Effect.PASSES})
MODULE_KINDS = frozenset(
    {
        ClassKind.MODULE, ClassKind.MODULE_NOPARAM, ClassKind.LOSS, ClassKind.WRAPPER, ClassKind.EMA,
        ClassKind.LIGHTNING_MODULE, ClassKind.HF_MODEL,
    }
)  # fmt: skip
"""Kinds of classes that are torch.nn.Module and are called on tensors (metrics are too, but have no parameters)."""
