"""Which functions of the project cannot touch a tensor: they handle names, files and settings. A run does not follow calls of
them, which in a large package would take up a fifth of it, and much of what it may look at."""

from __future__ import annotations

import builtins
import sys

from torchmemlint.index.facts import CallFact
from torchmemlint.index.ledger import Page
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.semantics import roots
from torchmemlint.semantics.world import World

WORDS = frozenset(
    {
        "torch", "backward", "manual_backward", "no_grad", "inference_mode", "set_grad_enabled", "enable_grad", "detach", "eval",
        "train", "training", "requires_grad", "requires_grad_", "zero_grad", "state_dict", "load_state_dict", "parameters",
        "named_parameters", "modules", "children", "step", "empty_cache", "cuda", "cpu", "to", "device", "autocast", "GradScaler",
        "checkpoint", "checkpoint_sequential", "logits", "softmax", "clear", "partial",
    }
)  # fmt: skip
"""A function with one of these words works on tensors or modules, or changes what others see."""
PACKAGES = sys.stdlib_module_names | {
    "numpy", "yaml", "requests", "httpx", "tqdm", "packaging", "filelock", "regex", "jinja2", "huggingface_hub", "omegaconf",
}  # fmt: skip
"""Packages outside whose functions give no tensors or modules."""
BUILTINS = frozenset(dir(builtins))
MOST_FUNCTIONS = 100
"""Functions that are looked at for one answer."""
SMALL = 6
"""Rows of a function that is followed in any case: what a constant or an attribute it returns decides more than it costs."""


class Plumbing:
    """Answers by function, each worked out once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[FunctionRef, tuple[frozenset[str] | None, Page]] = {}
        self._own: dict[FunctionRef, tuple[tuple[frozenset[str], frozenset[FunctionRef]] | None, Page]] = {}

    def names(self, ref: FunctionRef) -> frozenset[str] | None:
        """The words of a function that cannot touch a tensor unless it is given one, or finds one in an attribute, and of all
        that it calls; None for any other function."""
        return self._world.ledger.remember(self._known, ref, lambda: self._find(ref))

    def _find(self, ref: FunctionRef) -> frozenset[str] | None:
        facts = self._world.facts(ref)
        if facts.end_row - facts.row < SMALL or facts.is_generator:
            return None
        words: set[str] = set()
        seen = {ref}
        waiting = [ref]
        while waiting:
            own = self._look(waiting.pop())
            if own is None or len(seen) > MOST_FUNCTIONS:
                return None
            words |= own[0]
            waiting += own[1] - seen
            seen |= own[1]
        return frozenset(words)

    def _look(self, ref: FunctionRef) -> tuple[frozenset[str], frozenset[FunctionRef]] | None:
        """A function's own words, and the functions that it calls; None where these words or calls may have to do with tensors."""
        return self._world.ledger.remember(self._own, ref, lambda: self._look_at(ref))

    def _look_at(self, ref: FunctionRef) -> tuple[frozenset[str], frozenset[FunctionRef]] | None:
        world, project = self._world, self._world.project
        owner = world.facts(ref).owner
        cls = ClassRef(ref.path, owner) if owner else None
        words: set[str] = set()
        called: set[FunctionRef] = set()
        for each, facts in roots.family(world, ref):
            if facts.names & WORDS:
                return None
            words |= facts.names
            kept = {use.callee for use in facts.returned} | {
                text.removesuffix("()") for _, text in (*facts.bound, *facts.rebound)
            }
            for callee, keywords, given in {(call.callee, call.keywords, _given(call)) for call in facts.calls}:
                if callee == "map":
                    if given and given not in BUILTINS:  # a lambda's calls are this function's
                        mapped = project.callees(ref.path, each.qualname, given).refs
                        if not mapped:
                            return None
                        called |= set(mapped)
                    continue
                if callee == "cls" and cls is not None and world.is_module_class(cls) is False:
                    continue
                absolute = project.resolve(ref.path, callee, each.qualname)
                if absolute is not None:
                    symbol = world.symbol(absolute)
                    if symbol is None and absolute.partition(".")[0] not in PACKAGES:
                        return None
                    if isinstance(symbol, ClassRef) and world.is_module_class(symbol) is not False:
                        return None
                found = project.callees(ref.path, each.qualname, callee, *keywords).refs
                called |= set(found)
                # Nothing runs on nothing; what such a call gives may be a module.
                if not found and absolute is None and (given is not None or callee in kept):
                    if roots.may_be_module(world, each, cls, callee):
                        return None
        return frozenset(words), frozenset(called)


def _given(call: CallFact) -> str | None:
    """Text of the first argument of a call, None where it has none but literals."""
    return call.args[0].name if any(not arg.const for arg in call.args) else None
