"""Which modules no optimizer holds: copies of a network, as a target network is, whose gradients nobody uses."""

from __future__ import annotations

import re

from torchmemlint.index.arguments import argument_for
from torchmemlint.index.facts import CallFact, FunctionFacts
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.semantics.kinds import class_kind
from torchmemlint.semantics.state import Kind
from torchmemlint.semantics.world import MODULE, World
from torchmemlint.torch_facts import TORCH

PARAMETERS = TORCH.words["parameter-iterators"]
WRITES = TORCH.words["writes-into-parameters"]
"""Words of a function that writes into parameters, and does not only go through those of two modules."""
DEEP_COPIES = tuple(f"{name}()" for name in sorted(TORCH.words["deep-copies"]))
MAX_BELOW = 60
"""Functions that are looked through for the making of an optimizer, below one that is given a module."""


def is_copy(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether the module that a function knows under a name or attribute gets its weights from another one, and no optimizer in
    sight holds them, while one holds another module's."""
    given = world.project.objects_given(ref, text) if text.isidentifier() else ()
    places = [
        (caller, name) for caller, name in given if world.facts(caller).qualname == MODULE or name not in _params(world, caller)
    ]
    if text in _params(world, ref) and not places:
        return False
    return all(_is_copy_in(world, where, name) for where, name in places or [(ref, text)])


def throws_away(world: World, ref: FunctionRef, text: str, row: int) -> bool:
    """Whether a function throws away the gradients that its backward on a row computes for a network: what it says next of the
    optimizer that holds its parameters is ``zero_grad()``, and ``step()`` only after that. Where it says nothing of it, whether
    each method that steps it does. ``text`` names the network, or a method."""
    for network in (text, text.rpartition(".")[0]):
        optimizer = optimizer_of(world, ref, network) if network not in ("", "self") else ""
        if optimizer:
            zeroed = {f"{optimizer}.zero_grad", f"{network}.zero_grad"}
            step = f"{optimizer}.step"
            rows = _rows(world, ref, zeroed | {step})
            if not rows and optimizer.startswith("self."):
                others = [
                    _rows(world, each, zeroed | {step}) for each in _scope(world, *_where(world, ref, network), optimizer)
                ]
                stepping = [told for told in others if any(callee == step for _, callee in told)]
                return bool(stepping) and all(told[0][1] in zeroed for told in stepping)
            following = [callee for at, callee in rows if at > row] or [callee for _, callee in rows]
            return bool(following) and following[0] in zeroed
    return False


def may_discard(world: World, ref: FunctionRef) -> bool:
    """Whether a function back-propagates more than once: gradients of one backward can be zeroed before the next is stepped by."""
    return sum(map(_back_propagates, world.facts(ref).calls)) > 1


def discards(world: World, ref: FunctionRef, text: str, row: int) -> bool:
    """Whether a function zeroes the gradients that its backward on a row computes for a network, before it back-propagates anew and
    steps the network's own optimizer, and reads none of them meanwhile."""
    optimizer = optimizer_of(world, ref, text)
    facts = world.facts(ref)
    if not optimizer or "grad" in facts.names:
        return False
    calls = [(at, call) for (at, _), call in zip(facts.call_rows, facts.calls, strict=True)]
    if any(arg.name == optimizer and not _makes(call) for _, call in calls for arg in call.args):
        return False  # what it is given to may step it
    zeroed, step = {f"{optimizer}.zero_grad", f"{text}.zero_grad"}, f"{optimizer}.step"
    if not any(call.callee in zeroed | {step} for _, call in calls):
        return False  # whoever zeroes them and steps may call this function in between
    here = next((call for at, call in calls if at == row and _back_propagates(call)), None)
    if here is None:
        return False
    following = [each for each in calls if each[0] > row] + [each for each in calls if each[0] < row]
    cleared = False
    for _, call in following:
        if call.callee == step:
            return False
        if call.callee in zeroed:
            cleared = cleared or here.branch[: len(call.branch)] == call.branch
        elif cleared and _back_propagates(call):
            return True
        elif not cleared and not _makes(call) and any(arg.name in (text, f"{text}.parameters()") for arg in call.args):
            return False
    return False


def _makes(call: CallFact) -> bool:
    """Whether a call makes an object, by the look of its name: an optimizer, or a scheduler of one."""
    return call.callee.rpartition(".")[2][:1].isupper()


def _back_propagates(call: CallFact) -> bool:
    return call.callee.rpartition(".")[2] in TORCH.words["trains-something"] - TORCH.words["clears-gradients"]


def _rows(world: World, ref: FunctionRef, callees: set[str]) -> list[tuple[int, str]]:
    """The calls that a function makes of any of these, each with its row, in the order of their rows."""
    facts = world.facts(ref)
    return [(at, call.callee) for (at, _), call in zip(facts.call_rows, facts.calls, strict=True) if call.callee in callees]


def is_held(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether some optimizer in a network's scope is made with its parameters."""
    places = _scope(world, *_where(world, ref, text), text)
    made = [call for place in places for call in _constructors(world, place)]
    return any(arg.name == f"{text}.parameters()" for call in made for arg in call.args)


def optimizer_of(world: World, ref: FunctionRef, text: str) -> str:
    """The name or attribute of the one optimizer that holds a network's parameters, "" where it is not known."""
    asked, found = 0, []
    for place in _scope(world, *_where(world, ref, text), text):
        facts = world.facts(place)
        made = _constructors(world, place)
        asked += sum(call.callee in {f"{text}.{name}" for name in PARAMETERS} for call in facts.calls) if made else 0
        for position, call in enumerate(made):
            if any(arg.name == f"{text}.parameters()" for arg in call.args):
                same = [each.callee for each in made[: position + 1]].count(call.callee)
                names = _assigned(world, place, facts, f"{call.callee}()")
                complete = len(names) == [each.callee for each in made].count(call.callee)
                found.append(names[same - 1] if complete else "")
    return found[0] if asked == len(found) and len(set(found)) == 1 else ""


def _assigned(world: World, ref: FunctionRef, facts: FunctionFacts, made: str) -> list[str]:
    """The names and attributes that a function assigns what the text makes, in its order."""
    names = [name for name, value in facts.bound if value == made]
    if facts.owner:
        attrs = world.project.attrs(ClassRef(ref.path, facts.owner))
        names += [f"self.{attr.name}" for attr in attrs if attr.method == facts.qualname and attr.value == made]
    return names


def _params(world: World, ref: FunctionRef) -> frozenset[str]:
    return frozenset(param.name for param in world.facts(ref).params)


def _is_copy_in(world: World, ref: FunctionRef, text: str) -> bool:
    return world.remember(_is_copy_within, (*_where(world, ref, text), text))


def _is_copy_within(world: World, key: tuple[str, str, str]) -> bool:
    path, inside, text = key
    # Few functions say the name of a module that is no local: whether it is a copy then rests on these alone.
    is_global = not inside and not text.startswith("self.")
    saying = [FunctionRef(path, name) for name in world.project.knowing(path, text)] if is_global else None
    if not _is_deep_copy(world, path, inside, text) and not any(
        _copies_into(world.facts(each), text) or _is_given_weights(world, each, text)
        for each in (_scope(world, path, inside, text) if saying is None else saying)
    ):
        return False
    places = _scope(world, path, inside, text)
    if any(_steps(call.callee, text) for each in places for call in world.facts(each).calls):
        return False  # it goes by its own optimizer (``self.critic.optimizer.step()``)
    makers = [each for each in places if world.remember(_makes_optimizer, each)]
    return bool(makers) and not any(_may_give(world, each, text) for each in makers)


def _steps(callee: str, text: str) -> bool:
    """Whether a call zeroes a module's own gradients, or steps an optimizer that it holds."""
    return callee.startswith(f"{text}.") and callee.rpartition(".")[2] in TORCH.words["optimizer-words"]


def _where(world: World, ref: FunctionRef, text: str) -> tuple[str, str]:
    """The file in which a function knows a module by a name, and the class or function that has it as an attribute or local."""
    facts = world.facts(ref)
    if text.startswith("self."):
        return ref.path, facts.owner
    return ref.path, facts.qualname if text in facts.locals and facts.qualname != MODULE else ""


def _scope(world: World, path: str, inside: str, text: str) -> list[FunctionRef]:
    """The functions in which the module goes by that name: those of the class and its bases for an attribute, else the function
    itself, and the file's own statements for what is no local of it."""
    if text.startswith("self."):
        classes = [cls for cls in world.project.mro(ClassRef(path, inside)) if isinstance(cls, ClassRef)] if inside else []
        found = [(cls.path, world.within(cls.path, cls.qualname)) for cls in classes]
    elif inside:
        found = [(path, world.within(path, inside))]
    else:
        functions = world.project.module(path).functions
        found = [(path, tuple(each for each in functions if each.qualname == MODULE or text not in each.locals))]
    return [FunctionRef(at, each.qualname) for at, functions in found for each in functions]


def _makes_optimizer(world: World, ref: FunctionRef) -> bool:
    """Whether a function calls the constructor of an optimizer."""
    return bool(_constructors(world, ref))


def _constructors(world: World, ref: FunctionRef) -> list[CallFact]:
    """The calls of a function that make optimizers, or give one more parameters."""
    names = {call.callee: world.project.resolve(ref.path, call.callee, ref.qualname) for call in world.facts(ref).calls}
    made = {callee for callee, name in names.items() if name is not None and class_kind(name) is Kind.OPTIMIZER}
    return [call for call in world.facts(ref).calls if call.callee in made or call.callee.endswith(".add_param_group")]


def _may_give(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether a function that makes optimizers may give one of them the module's parameters: it asks for them before it makes the
    last (what comes later copies weights), or hands the module to what may make one."""
    made = _constructors(world, ref)
    if _may_hold_element(world, ref, made, text):
        return True
    last = max(call.place for call in made)
    in_loop = any(call.loops for call in made)
    for call in world.facts(ref).calls:
        asks = call.callee.startswith(f"{text}.") and call.callee.rpartition(".")[2] in PARAMETERS  # of a part of it, too
        if asks and (in_loop or call.place < last):
            return True
        handed = not call.callee.endswith("load_state_dict") and any(arg.name == text for arg in call.args)
        if handed and (call in made or _may_make_optimizer(world, ref, call)):
            return True
    return False


def _may_hold_element(world: World, ref: FunctionRef, made: list[CallFact], text: str) -> bool:
    """Whether optimizers are made in a loop over networks, of which the module may be one: each with the parameters of an element
    (``for name in self.nets: Adam(self.nets[name].parameters())``), or one with those of all. Which container is meant, its last
    name tells; where it has none, as a tuple of networks, it may be any."""
    facts = world.facts(ref)
    direct = [arg.name for call in made for arg in call.args if call.loops and _asks_for_parameters(arg.name)]
    if not all(any(_asks_for_parameters(arg.name) for arg in call.args) for call in made):
        direct += [f"{call.callee}()" for call in facts.calls if call.loops and _asks_for_parameters(f"{call.callee}()")]
    container = TAKEN.sub("", text).rpartition(".")[2] if TAKEN.search(text) else ""
    sources = dict(facts.bound)
    params = {param.name for param in facts.params}
    for asked in direct:
        element = asked.rpartition(".")[0]
        if element.isidentifier() and element in facts.locals - params:
            element = sources.get(element, "[]")
        if not element.endswith("[]"):
            continue
        holder = VIEWS.sub("", element.removesuffix("[]"))
        if not holder or (container and holder.rpartition(".")[2] == container):
            return True
    return False


TAKEN = re.compile(r"(?<!^self)(\.\w+|\[[^\[\]]*\])$")
"""The end of a text that takes an element of a container, or an attribute of another object than ``self``."""
VIEWS = re.compile(r"\.(values|items|children|named_children|modules)\(\)$")
"""Ways to the elements of a container."""


def _asks_for_parameters(text: str) -> bool:
    """Whether a text is ``net.parameters()``, or the like."""
    return text.endswith("()") and text.removesuffix("()").rpartition(".")[2] in PARAMETERS


def _may_make_optimizer(world: World, ref: FunctionRef, call: CallFact) -> bool:
    """Whether what is called makes an optimizer, by itself or by what it calls in the project; out of sight it may."""
    seen = set(world.project.callees(ref.path, ref.qualname, call.callee, *call.keywords).refs)
    todo = sorted(seen)
    while todo and len(seen) <= MAX_BELOW:
        each = todo.pop()
        if world.remember(_makes_optimizer, each):
            return True
        for inner in world.facts(each).calls:
            below = set(world.project.callees(each.path, each.qualname, inner.callee, *inner.keywords).refs) - seen
            seen |= below
            todo += sorted(below)
    return not seen or bool(todo)


def _is_given_weights(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether a function hands the module to one that copies another's weights into it: ``hard_update(target, source)``."""
    for call in world.facts(ref).calls:
        if not any(arg.name == text for arg in call.args):
            continue
        for callee in world.project.callees(ref.path, ref.qualname, call.callee, *call.keywords).refs:
            facts = world.facts(callee)
            params = facts.params[bool(facts.owner) :]
            given = [param.name for param in params if getattr(argument_for(params, param.name, call.args), "name", "") == text]
            if any(_copies_into(facts, name) for name in given):
                return True
            states = any(arg.name.endswith(".state_dict()") for arg in call.args)
            if states and any(each.callee == f"{name}.load_state_dict" for name in given for each in facts.calls):
                return True
    return False


def _copies_into(facts: FunctionFacts, text: str) -> bool:
    """Whether a function copies another module's weights into this one: a state dict, parameter by parameter, or all of it."""
    for call in facts.calls:
        if call.callee == f"{text}.load_state_dict" and any(arg.name.endswith(".state_dict()") for arg in call.args):
            return True
    called = {call.callee for call in facts.calls}
    others = {callee for callee in called if callee.rpartition(".")[2] in PARAMETERS and callee.rpartition(".")[0] != text}
    if others and called & {f"{text}.{name}" for name in PARAMETERS} and facts.names & WRITES:
        return True
    return any(name == text and made.startswith(DEEP_COPIES) for name, made in (*facts.bound, *facts.rebound))


def _is_deep_copy(world: World, path: str, inside: str, text: str) -> bool:
    """Whether a class assigns its attribute a deep copy of something."""
    if not inside or not text.startswith("self."):
        return False
    held = world.project.attr(ClassRef(path, inside), text.removeprefix("self."))
    return any(fact.value.startswith(DEEP_COPIES) for fact, _ in held)
