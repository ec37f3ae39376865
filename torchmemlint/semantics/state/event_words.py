"""The closed sets of words that events and records use."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from torchmemlint.str_enum import StrEnum


class Seen(StrEnum):
    """What was seen of the values that are attached to a graph, beside the methods called on them, which go by their names."""

    ARRAY = "array"
    """They are given to functions of numpy, or run in another library."""
    MAYBE_ARRAY = "maybe-array"
    """A test asks whether they are arrays."""
    TORCH_OP = "torch-op"
    """A function of torch takes them, which refuses anything but tensors."""
    JOINED = "joined"
    """They are put together with others (``torch.cat``)."""
    CALLED = "called"
    PART_BACKWARD = "part-backward"
    """A part of the unknown object is back-propagated (``losses["total"].backward()``)."""
    FIELDS = "fields"
    """A field of theirs is set."""
    TENSOR = "tensor"
    """An unknown object is used, or annotated, as only a tensor can be."""
    NO_TENSOR = "no-tensor"
    """An unknown object is used as no tensor can be."""
    KEYED = "keyed"
    """A part of them is read by a text: they are a mapping."""
    SEARCHED = "searched"
    """A text is looked for in them: they are a mapping, or no tensor."""
    MUST_BE_FREE = "numpy of what is attached"
    """An array is made of them, on every path, which raises with grad mode on."""


def shows_no_tensor(seen: AbstractSet[str]) -> bool:
    """Whether what was seen of an unknown object shows that it is no tensor, and no mapping of tensors."""
    return Seen.NO_TENSOR in seen or (Seen.SEARCHED in seen and Seen.KEYED not in seen)


class RecordFlag(StrEnum):
    """What is true of a whole run."""

    AUTOGRAD_GRAD = "autograd-grad"
    BACKWARD = "backward"
    CREATE_GRAPH = "create-graph"
    """A backward with ``create_graph=True``."""
    DEVICE = "device"
    """Something is moved to, or made on, a device."""
    EVAL = "eval()"
    FORWARD = "forward"
    """A module is run."""
    INPUT_GRAD = "input-grad"
    """Something that is no parameter is made to require grad."""
    LEARNED_NUMBER = "learned-number"
    """A tensor of one element is made to require grad."""
    LOGITS_USED = "logits-used"
    """The logits of all positions are used."""
    MOVED = "moved"
    """A module is moved to a device."""
    ON_CUDA = "on-cuda"
    ON_SOME_DEVICE = "on-some-device"
    TORCH = "torch"
    """torch is imported."""
    TRAIN = "train()"
    UNMARKED_INPUT_GRAD = "unmarked-input-grad"
    """What ``INPUT_GRAD`` says is so of something that the run does not follow (see ``GraphKind.WANTED``)."""
    WEIGHTS_KEPT = "weights-kept"
    """The weights of attention are kept, or given away."""


class StoreKind(StrEnum):
    """How a value is put where it outlives a loop, or the calls of a function."""

    ADD = "add"
    APPEND = "append"
    ATTR = "attr"
    EXTEND = "extend"
    GROWN = "grown"
    """Concatenated with what is there."""
    INSERT = "insert"
    ITEM = "item"
    """A subscript, or an entry of a mapping."""
    RECORDED = "recorded"
    """By a recorder that is not visible, see the setting ``recorders``."""


class Recovery(StrEnum):
    """A statement inside an ``except`` that needs memory, or means to free it."""

    CLEANUP = "cleanup"
    """A function whose name says that it frees memory."""
    COLLECT = "gc.collect"
    DELETE = "del"
    EMPTY_CACHE = "empty_cache"
    FALLBACK = "fallback"
    """What failed is done in another way, by another function."""
    UNSEEN_FALLBACK = "unseen-fallback"
    """The same, by a function that is not visible: where its result goes, and what it is given, say so."""
    HOST_RETRY = "host-retry"
    """What failed runs once more, on the host."""
    MOVE = "move"
    """Something is brought to the host."""
    RETRY = "retry"
    """What failed runs once more."""
    ZERO_GRAD = "zero_grad"


class Misuse(StrEnum):
    """A spelling that does not do to grad mode what it says."""

    STATEMENT = "statement"
    """``torch.no_grad()`` as a statement."""
    ENABLE_STATEMENT = "enable-statement"
    """``torch.enable_grad()`` as a statement."""
    ENABLE_STATEMENT_OFF = "enable-statement-off"
    """The same where grad mode is off."""
    WITH_UNCALLED = "with-uncalled"
    ASYNC_DECORATOR = "async-decorator"
    ASYNC_GENERATOR_DECORATOR = "async-generator-decorator"
    CLASS_DECORATOR = "class-decorator"
    BARE_DECORATOR = "bare-decorator"
    VOLATILE = "volatile"
    GENERATOR_LEAK = "generator-leak"
    """At the first yield of a block."""
    MODULE_FLAG = "module-flag"
    """``net.requires_grad = False``."""
    PARAMETERS_FLAG = "parameters-flag"
    """``net.parameters().requires_grad = False``."""
    METHOD_OVERWRITTEN = "method-overwritten"
    """``net.requires_grad_ = False``."""
