"""What a trainer of transformers is made of."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.index.references import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.written import dotted, text_of
from torchmemlint.semantics.size import assignments
from torchmemlint.semantics.state import Call, Machine, Obj, TrainerMade, World, truth
from torchmemlint.torch_facts import TORCH

MODEL = TORCH.names["trainers-model"]


def record_trainer(m: Machine, made: ClassRef | str, call: Call) -> None:
    """The event of a trainer that is made."""
    given = frozenset(word for word, value in call.keywords.items() if truth(value) is not False)
    m.emit(TrainerMade(m.site(call.node), made, given, classes_of_model(m, call), bool(call.more)))


def classes_of_model(m: Machine, call: Call) -> frozenset[str]:
    """The classes outside the project of which a trainer's model is, or whose methods make it: as the run shows, or else what
    callers give."""
    project = m.world.project
    found = [m.heap[atom.oid].cls for atom in call.get(0, MODEL) or () if type(atom) is Obj]
    if not any(found):
        text = text_of(call.keyword_exprs.get(MODEL) or next(iter(call.exprs), None))
        return frozenset(name for each in project.objects_given(m.ref, text) for name in made_there(m.world, each))
    names = [base for cls in found if cls for base in (project.mro(cls) if isinstance(cls, ClassRef) else [cls])]
    return frozenset(name for name in names if isinstance(name, str))


def made_there(world: World, given: tuple[FunctionRef, str]) -> Iterator[str]:
    """What makes the value of a name of a function outside the project, by absolute name."""
    ref, text = given
    for each in assignments(world, world.outermost(ref)):
        if isinstance(each.value, ir.Call) and any(isinstance(t, ir.Name) and t.id == text for t in each.targets):
            absolute = world.project.resolve(ref.path, dotted(each.value.func), ref.qualname)
            if absolute is not None:
                yield absolute
