"""Whether anything that some calls run can tell that grad mode is off: asked before a fix that switches it off is called safe.

Followed are the functions of the project that a call may reach, by what it names, or, on an object of which nothing is known, by
the method's name alone. Wherever a network of the project may run, all of its forwards are looked at, as a network may hold any
other. What is not known is an answer by itself: the fix stays unsafe.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable

from torchmemlint.index.decorators import is_property
from torchmemlint.index.fact_words import AttrKind
from torchmemlint.index.facts import CallFact, FunctionFacts
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower.written import short
from torchmemlint.semantics.identity import files_with, is_known, is_known_package, looks_like_module
from torchmemlint.semantics.interpret import STORING
from torchmemlint.semantics.mode import OF_EVERYTHING, callees, family, is_network, purpose
from torchmemlint.semantics.state import World, memoized
from torchmemlint.torch_facts import TORCH

ASKS = (
    TORCH.words["asks-for-a-graph"]
    | TORCH.words["takes-gradients"]
    | TORCH.words["differentiates"]
    | TORCH.words["gradient-hooks"]
    | TORCH.words["graph-nodes"]
    | TORCH.words["gradient-flags"]
)
"""Words of code that works on graphs, or goes by whether there are any."""
BEYOND = TORCH.words["beyond-a-proof"]
TAKES = (
    ASKS
    | TORCH.words["back-propagates"]
    | TORCH.words["trains-something"]
    | TORCH.words["forward-hooks"]
    | (BEYOND - TORCH.module_methods.keys())
)
"""Words of a program in which a gradient may be taken of anything, or a forward gets a part that needs the graph, by a way that nothing
here follows."""
FAST = TORCH.words["faster-without-graphs"]
"""Layers of torch that run another computation where no graph is recorded."""
IMPLICIT = ("__getitem__", "__iter__", "__next__", "__enter__", "__exit__")
"""Methods that run where no call is written: in loops and blocks."""
FORWARD = TORCH.words["forward"]
OF_TORCH = (frozenset(TORCH.methods) | frozenset(TORCH.module_methods)) - FORWARD
"""Methods of tensors and of modules, which go by grad mode in no way that is asked about here."""
BUILTINS = frozenset(dir(builtins)) - TORCH.words["calls-by-name"] - BEYOND
MAX_FUNCTIONS = 600
"""Functions that are looked at for one answer."""
MAX_NAMESAKES = 60
"""Methods of one name that are looked at, on an object of which nothing is known."""


@memoized
def seen_by(world: World, ref: FunctionRef, rows: tuple[int, int], networks: frozenset[str]) -> str:
    """What may tell that grad mode is off in a function, or in some of its rows (the first and the last; 0 and 0 for all of it), in
    words; "" where nothing can. The texts are those of what runs networks there."""
    looking = _Looking(world, files_with(world, ref.path), networks)
    for each, facts in family(world, ref):
        where = zip(facts.calls, facts.call_places, strict=True)
        calls = [call for call, place in where if rows == (0, 0) or rows[0] <= place.row <= rows[1]]
        looking.look(each, facts, calls, whole=rows == (0, 0))
    return looking.follow()


@memoized
def changes_the_program(world: World, path: str) -> str:
    """What, of all that may be loaded together with a file, takes gradients, or makes a forward do something else without a graph, or after
    one; "" for nothing. A value reaches a backward by more ways than can be followed (a thread, a data set that trains, an attribute of
    anything), so there must be none."""
    near = files_with(world, path)
    for word in sorted(TAKES):
        if world.project.says(word) and any(ref.path in near for ref in world.project.functions_saying(word)):
            return f"the program says `{word}`"
    for name in sorted(FORWARD):
        if world.project.is_stored_by_name(name):
            return f"`{name}` is set to something else"
    for name in sorted(FAST):
        last = name.rpartition(".")[2]
        users = [ref for ref in world.project.functions_saying(last) if ref.path in near] if world.project.says(last) else []
        if any(call.callee.endswith(last) and _is(world, ref, call, name) for ref in users for call in world.facts(ref).calls):
            return f"`{last}` computes in another way where no graph is recorded"
    return ""


def _is(world: World, ref: FunctionRef, call: CallFact, name: str) -> bool:
    absolute = world.project.resolve(ref.path, call.callee, ref.qualname)
    return absolute is None or (absolute.startswith("torch.nn.") and absolute.endswith(f".{name.rpartition('.')[2]}"))


class _Looking:
    """Follows calls from function to function, until something is found that may tell."""

    def __init__(self, world: World, near: frozenset[str], networks: frozenset[str]) -> None:
        self.world, self.project, self.near, self.networks = world, world.project, near, networks
        self.why = ""
        self.todo: list[FunctionRef] = []
        self.seen: set[FunctionRef] = set()
        self.runs_networks = False

    def follow(self) -> str:
        while self.todo and not self.why:
            ref = self.todo.pop()
            if len(self.seen) > MAX_FUNCTIONS:
                return "too many functions may run there to look at each"
            for each, facts in family(self.world, ref):
                self.seen.add(each)
                self.look(each, facts, facts.calls, whole=True)
        return self.why

    def add(self, refs: Iterable[FunctionRef]) -> None:
        fresh = [ref for ref in refs if ref not in self.seen and ref.path in self.near]
        self.seen.update(fresh)
        self.todo += fresh

    def network(self) -> None:
        """A network of the project may run: then any of its forwards may."""
        if not self.runs_networks:
            self.runs_networks = True
            for name in sorted(FORWARD):
                self.add(self.world.project.methods_named(name))

    def look(self, ref: FunctionRef, facts: FunctionFacts, calls: Iterable[CallFact], whole: bool) -> None:
        """One function: its words, what it keeps where it is a network's, and what it calls."""
        if whole:
            said = {part for use in facts.decorators for part in use.callee.split(".")} | facts.names
            asked = sorted(name for name in said if name.partition("=")[0] in ASKS)
            if asked:
                self.why = self.why or f"`{short(ref.qualname)}` names `{asked[0]}`"
            self.keeps(ref, facts)
            for name in IMPLICIT:
                self.add(self.world.project.methods_named(name))
            for text in sorted(facts.reads):
                self.add(
                    m for m in self.world.project.methods_named(text.rpartition(".")[2]) if is_property(self.world.header(m))
                )
        for call in calls:
            if self.why:
                break
            self.call(ref, facts, call)

    def keeps(self, ref: FunctionRef, facts: FunctionFacts) -> None:
        """A network's method that keeps something of what it computes: the next call, or whoever reads it, may back-propagate it."""
        name = ref.qualname.rpartition(".")[2]
        if not facts.owner or name == "__init__":
            return
        cls = ClassRef(ref.path, facts.owner)
        if self.world.is_module_class(cls) is False and not any(is_network(self.world, ref, call) for call in facts.calls):
            return
        own = [attr for attr in self.project.attrs(cls) if attr.method == ref.qualname and attr.kind is not AttrKind.CONST]
        put = [
            call.callee for call in facts.calls if call.callee.startswith("self.") and call.callee.rpartition(".")[2] in STORING
        ]
        kept = [*(f"self.{attr.name}" for attr in own), *sorted(facts.stores), *put]
        if kept:
            self.why = self.why or f"`{short(ref.qualname)}` sets `{short(kept[0])}`"

    def call(self, ref: FunctionRef, facts: FunctionFacts, call: CallFact) -> None:
        text = call.callee
        parts = {part for name in (text, *(arg.name for arg in call.args)) for part in name.replace("()", "").split(".")}
        if parts & ASKS:
            self.why = f"`{short(text)}` works on gradients"
            return
        for arg in call.args:
            if arg.name:  # a function that is handed on is run
                given = self.project.callees(ref.path, ref.qualname, arg.name)
                self.add(given.refs if given.certain else ())
        found = callees(self.world, ref, call)
        self.add(found.refs)
        if any(each.qualname.rpartition(".")[2] in FORWARD for each in found.refs):
            self.network()
        if not (found.refs and found.certain) and not self.is_harmless(ref, facts, call):
            self.why = self.why or f"what `{short(text) or 'a call without a name'}` is, is not known"

    def is_harmless(self, ref: FunctionRef, facts: FunctionFacts, call: CallFact) -> bool:
        """Whether a call of what is no function of the project, or of no one function, is known not to ask for a graph."""
        text = call.callee
        receiver, _, name = text.rpartition(".")
        absolute = self.project.resolve(ref.path, text, ref.qualname)
        if absolute is not None:
            if not self.project.is_inside(absolute):
                return self.is_blind(ref, call, absolute)
            return self.project.klass(absolute) is not None or self.is_network_known(ref, facts, text)
        of_an_object = self.project.outside(ref.path, ref.qualname, text)
        if of_an_object is not None:
            return is_known_package(of_an_object)
        if not receiver:
            if text in BUILTINS and text not in facts.locals:
                return True
            return self.is_network_known(ref, facts, text)
        held = receiver.partition(".")[0] == "self" and self.project.is_attribute(name)
        runs = text in self.networks or (name not in OF_TORCH and self.is_like_a_network(ref, receiver))
        if (name in OF_TORCH or name in OF_EVERYTHING) and not (held or runs):
            return self.by_name(name)
        if name in FORWARD or self.project.is_attribute(name):
            return self.is_network_known(ref, facts, receiver if name in FORWARD else text)
        cls = self.project.class_of(ref.path, ref.qualname, receiver)
        if isinstance(cls, str) and cls not in TORCH.words["any-module"]:
            return is_known_package(cls)
        if cls is None and not self.by_name(name):
            return False
        if cls is None and runs:
            return self.is_network_known(ref, facts, receiver)
        return not self.is_given_a_network(ref, call)

    def by_name(self, name: str) -> bool:
        """Looks at every method of a name, if they are not too many."""
        named = tuple(ref for ref in self.world.project.methods_named(name) if ref.path in self.near)
        if name in OF_TORCH:
            named = tuple(m for m in named if self.world.is_of_module(m) is not False)
        self.add(named)
        return len(named) <= MAX_NAMESAKES

    def is_network_known(self, ref: FunctionRef, facts: FunctionFacts, text: str) -> bool:
        """Whether what is called, an object, is known: a part of a network, or one whose class is visible, or of a known library."""
        owner = self.world.header(self.world.outermost(ref)).owner
        self.network()
        texts = [value for name, value in (*facts.bound, *facts.rebound) if name == text] or [text]
        own = [each for each in texts if each.startswith("self.")]
        a_turn_of_a_loop = texts == [text] and text in facts.locals and not any(param.name == text for param in facts.params)
        if (
            not owner
            or not self.world.is_module_class(ClassRef(ref.path, owner))
            or not (len(own) == len(texts) or a_turn_of_a_loop)
        ):
            return is_known(self.world, ref, text)
        read = [each for each in facts.reads if each.startswith("self.")] if a_turn_of_a_loop else own
        return self.imports_known_packages(ref.path) and self.are_parts_known(ref, ClassRef(ref.path, owner), read)

    def are_parts_known(self, ref: FunctionRef, cls: ClassRef, texts: Iterable[str]) -> bool:
        """Whether what a network's constructor is given for its parts is known, too."""
        names = {each.removeprefix("self.").partition("[")[0].partition(".")[0] for each in texts}
        given = {fact.name for name in names for fact, _ in self.project.attr(cls, name) if fact.kind is AttrKind.NAME}
        return all(
            is_known(self.world, FunctionRef(ref.path, f"{cls.qualname}.__init__"), f"self.{name}") for name in sorted(given)
        )

    def imports_known_packages(self, path: str) -> bool:
        """Whether a file that makes networks has the parts of them from the project, or from libraries that are known."""
        return all(
            self.project.is_inside(target) or target.startswith(".") or is_known_package(target)
            for _, target in self.project.imports(path)
        )

    def is_blind(self, ref: FunctionRef, call: CallFact, absolute: str) -> bool:
        """Whether something of a library leaves graphs alone: one that is known, or that is no network, and is given none."""
        if absolute.startswith(tuple(TORCH.words["gradient-packages"])):
            return False
        if is_known_package(absolute):
            return True
        return (
            call.callee not in self.networks
            and not is_network(self.world, ref, call)
            and not self.is_given_a_network(ref, call)
        )

    def is_given_a_network(self, ref: FunctionRef, call: CallFact) -> bool:
        return any(arg.name in ("self", "cls") or self.is_like_a_network(ref, arg.name) for arg in call.args)

    def is_like_a_network(self, ref: FunctionRef, text: str) -> bool:
        if not text:
            return False
        cls = self.project.class_of(ref.path, ref.qualname, text)
        if isinstance(cls, ClassRef):
            return self.world.is_module_class(cls) is not False
        known = looks_like_module(self.world.evidence(ref).get(text, frozenset()))
        return known or (purpose.may_be_network(text) and cls is None)
