"""How many parameters a network has, by the numbers in the code that makes it."""

from __future__ import annotations

from dataclasses import dataclass

from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.walk import nodes_of
from torchmemlint.lower.written import dotted
from torchmemlint.semantics.size.constructor_values import MOVES, UnknownPart
from torchmemlint.semantics.size.constructors import UNFOLLOWED, Constructor, Environment
from torchmemlint.semantics.size.layers import Unbounded
from torchmemlint.semantics.state import MODULE, World, memoized, memoized_with_code
from torchmemlint.torch_facts import TORCH

MAX_CALLERS = 4
"""Calls that may give a network, each of which is followed."""
CONTAINERS = TORCH.words["weightless-containers"]
FORWARD = TORCH.names["forward"]
"""A network is run by its call, or by its method."""


@dataclass(frozen=True, slots=True)
class Weights:
    """How many parameters a network has at most, buffers of its norms included, and whether any of its layers goes over positions
    (of an image, or attention over a sequence), so that the input decides how much it saves."""

    count: int
    spatial: bool


@dataclass(frozen=True, slots=True)
class Sizes:
    """The weights of what is called, None where they are not known; ``visible``: the code shows where it is made."""

    weights: Weights | None
    visible: bool


@memoized
def sizes_of(world: World, ref: FunctionRef, text: str) -> Sizes:
    """What is known of how large the network is that a function calls by a name or attribute."""
    counter = Counter(world)
    try:
        return Sizes(Weights(max(counter.counts_of(ref, text)), counter.spatial), True)
    except (*UNFOLLOWED, RecursionError):
        return Sizes(None, counter.steps > 0)


def weights_of(world: World, ref: FunctionRef, text: str) -> Weights | None:
    """The weights of what a function calls by a name or attribute; None where they are not known."""
    return sizes_of(world, ref, text).weights


class Counter(Constructor):
    """Finds where a network is made, and counts it there. ``blind``: what the outermost constructor is given is not known."""

    blind = False

    # --- where a network is made --------------------------------------------------------------------------------------

    def counts_of(self, ref: FunctionRef, text: str, up: int = 0) -> list[int]:
        """The parameters of every network that a name or attribute may stand for."""
        world, facts = self.world, self.world.facts(ref)
        ref = FunctionRef(ref.path, facts.qualname)
        if up > MAX_CALLERS:
            raise Unbounded
        text = text.removesuffix(f".{FORWARD}").partition("[")[0]  # of a container's parts, each has at most what all have
        if text == "self" and facts.owner:
            return [self.whole(ClassRef(ref.path, facts.owner))]
        if text.startswith("self.") and facts.owner:
            return self.counts_of_attribute(ClassRef(ref.path, facts.owner), text.removeprefix("self."), up)
        holder, dot, part = text.partition(".")
        owner = world.project.class_of(ref.path, ref.qualname, holder) if dot else None
        if isinstance(owner, ClassRef):
            return self.counts_of_attribute(owner, part, up)
        if self.is_parameter(ref, holder) and not self.bindings(ref, holder):
            given = world.project.objects_given(ref, holder)
            found = [each for each in given if each[0] != ref and not self.is_parameter(*each)]
            if not found or len(found) > MAX_CALLERS:
                raise Unbounded
            return [count for caller, name in found for count in self.counts_of(caller, f"{name}{dot}{part}", up + 1)]
        if not self.bindings(ref, holder if dot else text) and ref.qualname != MODULE:
            ref = FunctionRef(ref.path, MODULE)
        made = [value for value in self.bindings(ref, text) if self.makes(value, text)]
        parts = {dotted(value) for value in self.bindings(ref, text) if isinstance(value, ir.Attr)}
        if not made and not parts - {text}:
            raise Unbounded
        counts = [self.count(value, Environment(ref, {})) for value in made]
        return counts + [count for part in sorted(parts - {text}) for count in self.counts_of(ref, part, up + 1)]

    def counts_of_attribute(self, owner: ClassRef, name: str, up: int) -> list[int]:
        found: list[int] = []
        for fact, cls in self.world.project.attr(owner, name):
            maker = FunctionRef(cls.path, fact.method)
            if fact.const == "None" or not fact.method:
                continue
            for value in self.bindings(maker, f"self.{name}"):
                if isinstance(value, ir.Name):
                    found += self.counts_of(maker, value.id, up + 1)
                elif self.makes(value, f"self.{name}"):
                    found.append(self.count_part(value, maker, cls))
        if not found:
            raise Unbounded
        return found

    def count_part(self, value: ir.Expr, maker: FunctionRef, cls: ClassRef) -> int:
        """The parameters of what a method makes; of what a constructor makes of its own names, at most those of all that it makes."""
        try:
            return self.count(value, Environment(maker, {}, UnknownPart(), cls))
        except Unbounded:
            if maker != self.world.project.method(cls, "__init__"):
                raise
            return self.whole(cls)

    def whole(self, cls: ClassRef) -> int:
        """The parameters of an object of a class, whatever its constructor is given; those of its subclasses may have more."""
        project = self.world.project
        init = project.method(cls, "__init__")
        params = self.function(init).params[1:] if init is not None else ()
        self.made, self.blind = 0, True
        try:
            count = self.instance(
                cls, [], {each.name: UnknownPart() for each in params if not self.goes_by_default(each)}
            ).count
        finally:
            self.blind = False
        if not count or any(project.method(each, "__init__") != init for each in project.subclasses(cls)):
            raise Unbounded
        return count

    def goes_by_default(self, _param: ir.Param) -> bool:
        """Whether a parameter is taken for its default, where it is not known what it is given."""
        return False

    def instance(self, cls: ClassRef, args: list[object], keywords: dict[str, object]) -> UnknownPart:
        if self.blind and self.takes_parts(cls, args, keywords):
            raise Unbounded
        return super().instance(cls, args, keywords)

    def takes_parts(self, cls: ClassRef, args: list[object], keywords: dict[str, object]) -> bool:
        """Whether something unknown that a constructor is given may be a network: the class calls it, or a container holds it."""
        project = self.world.project
        init = project.method(cls, "__init__")
        if init is None:
            return False
        function = self.function(init)
        given = {**dict(zip((each.name for each in function.params[1:]), args, strict=False)), **keywords}
        names = {name for name, value in given.items() if isinstance(value, UnknownPart) and not value.count}
        if not names:
            return False
        kept = {f"self.{attr.name}" for attr in project.attrs(cls) if attr.value.partition(".")[0] in names}
        called = {call.callee for facts in self.world.project.within(cls.path, cls.qualname) for call in facts.calls}
        if kept & called or kept & {".".join(text.split(".")[:2]) for text in called}:
            return True
        return not names.isdisjoint(put_into_containers(self.world, init))

    def is_parameter(self, ref: FunctionRef, text: str) -> bool:
        return text in {param.name for param in self.world.header(ref).params}

    def makes(self, value: ir.Expr, text: str) -> bool:
        """Whether a value is new, and no other form of what the name stood for (``net = net.to(device)``)."""
        inside = unwrapped(value)
        if isinstance(inside, ir.Subscript) and isinstance(inside.index[0], ir.Const):
            inside = inside.value  # one of several that a call gives
        return isinstance(inside, ir.Call) and dotted(inside.func) != text and not dotted(inside).startswith(f"{text}.")

    def count(self, value: ir.Expr, scope: Environment) -> int:
        self.made = 0
        found = self.value(unwrapped(value), scope)
        if not isinstance(found, UnknownPart) or not max(found.count, self.made):
            raise Unbounded
        return max(found.count, self.made)


def items_of(value: ir.Expr) -> list[ir.Expr]:
    """The items of a display, or the expression itself."""
    return value.items if isinstance(value, ir.Sequence) else [value]


def unwrapped(value: ir.Expr) -> ir.Expr:
    """The network in ``DataParallel(Net()).cuda()``."""
    while isinstance(value, ir.Call):
        if isinstance(value.func, ir.Attr) and value.func.name in MOVES:
            value = value.func.value
        elif dotted(value.func).rpartition(".")[2] in TORCH.words["parallel"] and value.args:
            value = value.args[0].value
        else:
            break
    return value


@memoized_with_code
def put_into_containers(world: World, ref: FunctionRef) -> frozenset[str]:
    """The names that a function gives as parts to containers of modules: ``nn.Sequential(backbone, head)``."""
    calls = (each for each in nodes_of(world.body(ref)) if isinstance(each, ir.Call))
    containers = (each for each in calls if dotted(each.func).rpartition(".")[2] in CONTAINERS)
    held = (item for each in containers for arg in each.args for item in items_of(arg.value))
    return frozenset(item.id for item in held if isinstance(item, ir.Name))
