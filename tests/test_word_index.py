"""What a project says of a word is the same, whether all modules were looked at or only those that are known to say it."""

from __future__ import annotations

import pickle
import random
import zlib
from collections.abc import Mapping

import pytest
from test_cache_edits import edit, first_files, some_projects
from test_dependencies import facts_of

from torchmemlint.incremental import word_index
from torchmemlint.index import keys
from torchmemlint.index.dependency_log import DependencyLog
from torchmemlint.index.facts import ModuleFacts
from torchmemlint.index.modules import Modules
from torchmemlint.index.names import Names
from torchmemlint.index.plain import shape
from torchmemlint.index.project import FunctionRef, Project
from torchmemlint.index.reader import FactReader
from torchmemlint.index.tables import Tables, of_one
from torchmemlint.index.views import bound_names

MANY = 1000


class Looked:
    """The facts of modules, and which were looked at."""

    def __init__(self, facts: Mapping[str, ModuleFacts]) -> None:
        self.facts = facts
        self.at: set[str] = set()

    def one(self, path: str) -> ModuleFacts:
        self.at.add(path)
        return self.facts[path]


def serialized(facts: Mapping[str, ModuleFacts]) -> bytes:
    return word_index.serialized(shapes_of(facts), facts.values())


def shapes_of(facts: Mapping[str, ModuleFacts]) -> dict[str, str]:
    return {path: shape(each) for path, each in facts.items()}


def by_words(data: bytes, looked: Looked) -> Modules:
    return Modules(looked.facts, looked.one, lambda: word_index.WordIndex(data, shapes_of(looked.facts), looked.one, MANY))


def test_the_words_of_a_module_are_those_of_which_it_says_something() -> None:
    for module in facts_of(first_files()).values():
        tables = of_one(module)
        contained = {(kind, word) for kind, several in tables.words() for word in several}
        contents = {(kind, word) for kind, word, value in tables.contents() if value}
        assert contained == {each for each in contents if each[0] != keys.READS}
        reads = {text.rpartition(".")[2] for facts in module.functions for text in facts.reads}
        assert reads <= {word for kind, word in contained if kind == keys.WORD}  # so these modules are looked at for them


def the_same(facts: Mapping[str, ModuleFacts], modules: Modules) -> None:
    known, here = Tables(Modules.of(facts.values()), DependencyLog()), Tables(modules, DependencyLog())
    names, others = (Names(FactReader(each, DependencyLog())) for each in (Modules.of(facts.values()), modules))
    every = {word for module in facts.values() for _, several in of_one(module).words() for word in several}
    every |= {name for module in facts.values() for name in bound_names(module)} | {"nobody_says_this"}
    for word in sorted(every):
        for ask in ("calls", "reads", "methods", "named", "holders"):
            assert [*getattr(here, ask)(word)] == [*getattr(known, ask)(word)], (ask, word)
        for ask in ("aliases", "is_looked_up", "is_put_together", "forms", "is_held", "has_word"):
            one, other = (getattr(tables, ask)(word) for tables in (here, known))
            assert one == other or {*one} == {*other}, (ask, word)
        assert {*others._modules_that_bind(word)} == {*names._modules_that_bind(word)}
    for ask in ("calls_of_objects", "all_forms", "switching", "gives_cuda"):
        assert getattr(here, ask)() == getattr(known, ask)(), ask


@pytest.mark.parametrize("seed", range(3))
def test_after_any_edits(seed: int) -> None:
    chance = random.Random(seed)
    first = some_projects(chance)
    files = dict(first)
    facts = facts_of(files)
    data = serialized(facts)
    for _ in range(12):
        edit(chance, files, first)  # files come and go, too
        facts = facts_of(files)
        the_same(facts, by_words(data, Looked(facts)))


def test_few_modules_are_looked_at() -> None:
    facts = facts_of(first_files())
    looked = Looked(facts)
    tables = Tables(by_words(serialized(facts), looked), DependencyLog())
    assert tables.all_forms()
    assert not tables.calls("nobody_calls_this")
    assert looked.at == set()
    word = next(word for word in sorted(tables.all_forms()) if 0 < len(tables.calls(word[1:])) < 3)[1:]
    looked.at.clear()
    tables = Tables(by_words(serialized(facts), looked), DependencyLog())
    assert {site.path for site, _ in tables.calls(word)} == looked.at


def test_what_is_damaged_or_too_old_is_not_believed() -> None:
    facts = facts_of(first_files())
    data, one = serialized(facts), facts.__getitem__
    shapes = shapes_of(facts)
    for broken in (b"", data[:-9], zlib.compress(zlib.decompress(data)[:-9]), zlib.compress(b"1 2 3\n")):
        with pytest.raises(ValueError, match=r"."):
            word_index.WordIndex(broken, shapes, one, MANY)
    gone, edited = [*shapes][:2]
    others = {path: shape for path, shape in shapes.items() if path != gone} | {edited: "another"}
    assert word_index.WordIndex(data, others, one, 2).says(keys.INDEX, "backward")
    with pytest.raises(ValueError, match="too much changed"):
        word_index.WordIndex(data, others, one, 1)


def test_another_process_is_sent_all_that_was_not_looked_at() -> None:
    facts = facts_of(first_files())
    project = Project(by_words(serialized(facts), Looked(facts)))
    functions = [FunctionRef(path, each.qualname) for path, module in facts.items() for each in module.functions]
    project.grad_mode(functions[0])
    sent, whole = pickle.loads(pickle.dumps(project)), Project.build(facts.values())
    for ref in functions[::20]:
        assert sent.callers(ref) == whole.callers(ref)
        assert sent.facts(ref) == whole.facts(ref)
