"""The class hierarchy: method resolution orders, methods by inheritance, subclasses and overrides."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import heappop, heappush

from torchmemlint.index import keys
from torchmemlint.index.dependency_log import memoized
from torchmemlint.index.fact_words import AttrKind
from torchmemlint.index.facts import AttrFact
from torchmemlint.index.memo import Memo
from torchmemlint.index.reader import FactReader
from torchmemlint.index.references import ClassRef, FunctionRef, Symbol
from torchmemlint.torch_facts import TORCH

_MAX_BASES = 60
"""Classes above each other, at the most."""
_MAX_ORDER = 60
"""Classes of a method resolution order that are listed; what is above them is not visible."""
_OUT_OF_SIGHT = "<more classes>"
_MANY = 30
"""Classes below one from which a method of theirs is looked for by its name."""

_CLOSED_BASES = TORCH.words["closed-bases"]
"""Outside bases whose own bases are known to be none of interest."""


class ClassHierarchy:
    """Answers about classes. What names mean is asked of others: ``bases`` gives the bases of a class as written, ``dotted`` what
    dotted text is at module level, ``absolute`` the absolute name of a class."""

    def __init__(
        self,
        reader: FactReader,
        bases: Callable[[ClassRef], tuple[ClassRef | str, ...]],
        dotted: Callable[[str, str], Symbol | None],
        absolute: Callable[[Symbol], str],
    ) -> None:
        self._reader = reader
        self._log = log = reader.log
        self._bases = bases
        self._dotted = dotted
        self._absolute = absolute
        # A class that is below itself, which Python refuses, is cut there.
        self._mros: Memo[ClassRef, tuple[ClassRef | str, ...]] = Memo(log, self._linearise, (_OUT_OF_SIGHT,), _MAX_BASES)
        self._methods = memoized(log, self._find_method)
        self._below: dict[ClassRef, tuple[ClassRef, ...]] | None = None
        self.known_above: Callable[[], Iterable[tuple[ClassRef, Sequence[ClassRef]]]] | None = None
        """Of all classes, what is above them, where that is known."""
        self._overrides = memoized(log, self._find_overrides)
        self._having: dict[str, set[ClassRef]] | None = None

    def mro(self, ref: ClassRef) -> tuple[ClassRef | str, ...]:
        """The method resolution order, ``ref`` first; of a very long one, the nearest classes, and one that is not visible."""
        return self._mros.answer(ref)

    def _linearise(self, ref: ClassRef) -> tuple[ClassRef | str, ...]:
        """The C3 linearisation of the bases' orders."""
        bases = self._bases(ref)
        queues: list[list[ClassRef | str]] = [list(self.mro(base)) if isinstance(base, ClassRef) else [base] for base in bases]
        queues.append(list(bases))
        order = (ref, *merged(queues))
        return order if len(order) <= _MAX_ORDER else (*order[:_MAX_ORDER], _OUT_OF_SIGHT)

    def method(self, ref: ClassRef, name: str, after: ClassRef | None = None) -> FunctionRef | None:
        """The function that ``name`` is in ``ref`` or the first of its bases that has it (after ``after``, for ``super()``)."""
        return self._methods.answer((ref, name, after))

    def _find_method(self, key: tuple[ClassRef, str, ClassRef | None]) -> FunctionRef | None:
        ref, name, after = key
        order = self.mro(ref)
        if after is not None:
            order = order[order.index(after) + 1 :] if after in order else ()
        for klass in order:
            if isinstance(klass, ClassRef):
                if self._reader.has_method(klass, name):
                    return FunctionRef(klass.path, f"{klass.qualname}.{name}")
                for attr in self._reader.own_attrs(klass, name):
                    if attr.method == "" and attr.kind is AttrKind.NAME:  # `decode = decode_function`
                        given = self._dotted(klass.path, attr.value)
                        if isinstance(given, FunctionRef):
                            return given
        return None

    def subclasses(self, ref: ClassRef) -> tuple[ClassRef, ...]:
        """All classes of the project below ``ref``, sorted."""
        self._log.read(keys.BELOW, ref.path, ref.qualname)
        return self._subclasses(ref)

    def _subclasses(self, ref: ClassRef) -> tuple[ClassRef, ...]:
        if self._below is None:
            self._below = self._find_below()
        return self._below.get(ref, ())

    def _find_below(self) -> dict[ClassRef, tuple[ClassRef, ...]]:
        found: dict[ClassRef, list[ClassRef]] = defaultdict(list)
        with self._log.untracked():
            every = (ClassRef(path, qualname) for path in self._reader.modules for qualname in self._reader.classes[path])
            known = self.known_above
            for klass, above in known() if known is not None else ((each, self.classes_above(each)) for each in every):
                for base in above:
                    found[base].append(klass)
        return {base: tuple(sorted(below)) for base, below in found.items()}

    def classes_above(self, klass: ClassRef) -> list[ClassRef]:
        """The bases of a class in the project, for all of them to know who is below: a firewall of the dependency log."""
        self._log.reads = []
        above = [base for base in self.mro(klass)[1:] if isinstance(base, ClassRef)]
        values = [part for base in above for part in base[:2]]
        self._log.firewall(keys.ORDER, self._log.reads, klass[:2], values)
        return above

    def overrides(self, ref: ClassRef, name: str) -> tuple[FunctionRef, ...]:
        """The functions that the method ``name`` is in classes below ``ref`` which define it themselves."""
        return self._overrides.answer((ref, name))

    def _find_overrides(self, key: tuple[ClassRef, str]) -> tuple[FunctionRef, ...]:
        ref, name = key
        self._log.read(keys.OVERRIDES, ref, name)  # one key for all classes below, and whether they have it
        below = self._subclasses(ref)
        if len(below) < _MANY:
            methods = (FunctionRef(each.path, f"{each.qualname}.{name}") for each in below)
            return tuple(each for each in methods if each.qualname in self._reader.functions[each.path])
        words = self._reader.modules.words
        if words is not None:
            there = {*words.modules(keys.NAMED, name)}
            named = (FunctionRef(each.path, f"{each.qualname}.{name}") for each in below if each.path in there)
            return tuple(each for each in named if each.qualname in self._reader.functions[each.path])
        having = self._classes_with(name)
        return tuple(FunctionRef(each.path, f"{each.qualname}.{name}") for each in below if each in having)

    def _classes_with(self, name: str) -> Collection[ClassRef]:
        """Those that define a method of that name themselves."""
        if self._having is None:
            self._having = defaultdict(set)
            for path in self._reader.modules:
                classes = {qualname: ClassRef(path, qualname) for qualname in self._reader.classes[path]}
                for qualname in self._reader.functions[path]:
                    around, _, last = qualname.rpartition(".")
                    if around in classes:
                        self._having[last].add(classes[around])
        return self._having.get(name, ())

    def attr(self, ref: ClassRef, name: str) -> tuple[tuple[AttrFact, ClassRef], ...]:
        """Every assignment to the attribute ``name`` in the class and its bases, nearest class first."""
        return tuple(
            (fact, klass)
            for klass in self.mro(ref)
            if isinstance(klass, ClassRef)
            for fact in self._reader.own_attrs(klass, name)
        )

    def is_subclass(self, ref: ClassRef, name: str) -> bool | None:
        """Whether ``name`` (absolute) is among the bases; None when it is not, but a base is not visible."""
        order = self.mro(ref)
        for klass in order:
            if (klass if isinstance(klass, str) else self._absolute(klass)) == name:
                return True
        return None if any(isinstance(klass, str) and klass not in _CLOSED_BASES for klass in order) else False


def merged(queues: list[list[ClassRef | str]]) -> list[ClassRef | str]:
    """The C3 merge of linear orders: again and again the first head of a queue that stands behind no other's head, taken out of
    all of them. In steps that grow with the length of all queues, however many these are."""
    return _Merge(queues).run()


class _Merge:
    """Linear orders, the last item of each its head; how often each item stands behind a head; the queues with a free head."""

    def __init__(self, queues: list[list[ClassRef | str]]) -> None:
        self.queues = queues
        for queue in queues:
            queue.reverse()
        self.behind = Counter(item for queue in queues for item in queue[:-1])
        self.heads: dict[ClassRef | str, list[int]] = {}
        for number, queue in enumerate(queues):
            if queue:
                self.heads.setdefault(queue[-1], []).append(number)
        self.free = [number for number in range(len(queues)) if self.is_free(number)]

    def is_free(self, number: int) -> bool:
        queue = self.queues[number]
        return bool(queue) and not self.behind[queue[-1]]

    def run(self) -> list[ClassRef | str]:
        result: list[ClassRef | str] = []
        first = 0
        while True:
            while self.free and not self.is_free(self.free[0]):
                heappop(self.free)
            if self.free:
                head = self.queues[self.free[0]][-1]
            else:
                while first < len(self.queues) and not self.queues[first]:
                    first += 1
                if first == len(self.queues):
                    return result
                head = self.queues[first][-1]  # no order is consistent (Python would refuse the class): take what comes first
                self.set_free(head)
            result.append(head)
            self.take(head)

    def set_free(self, head: ClassRef | str) -> None:
        for queue in self.queues:
            if head in queue[:-1]:
                queue[:-1] = [item for item in queue[:-1] if item != head]
        self.behind[head] = 0

    def take(self, head: ClassRef | str) -> None:
        for number in self.heads.pop(head):
            queue = self.queues[number]
            queue.pop()
            if queue:
                after = queue[-1]
                self.behind[after] -= 1
                self.heads.setdefault(after, []).append(number)
                if not self.behind[after]:
                    for other in self.heads[after]:
                        heappush(self.free, other)
