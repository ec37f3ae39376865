"""The project that a language server keeps: after any row of edits it answers as one that is made of the modules as they are."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from test_cache_edits import edit, some_projects
from test_dependencies import all_questions, facts_of

from torchmemlint.incremental import project_memory
from torchmemlint.incremental.findings import FileDigests
from torchmemlint.incremental.project_memory import ProjectMemory
from torchmemlint.incremental.query_results import QueryResults
from torchmemlint.index.facts import ModuleFacts
from torchmemlint.index.project import Project
from torchmemlint.index.query_log import Query

EDITS = 12


class Server:
    """Facts of files, of which those that did not change are the same objects, and the project of each state."""

    def __init__(self) -> None:
        self.memory = ProjectMemory()
        self._facts: dict[tuple[str, str], ModuleFacts] = {}

    def facts(self, files: Mapping[str, str]) -> list[ModuleFacts]:
        for path, text in files.items():
            if (path, text) not in self._facts:
                for each in facts_of({path: text}).values():
                    self._facts[path, text] = each
        return [self._facts[each] for each in files.items() if each in self._facts]


def answers(project: Project, questions: set[Query]) -> dict[Query, str]:
    results = QueryResults(project, FileDigests((), None))
    return {each: results.fingerprint(each) for each in sorted(questions, key=str)}


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))])
def test_it_answers_as_a_new_one_after_any_row_of_edits(seed: int) -> None:
    chance = random.Random(seed)
    first = some_projects(chance)
    files, server, kept = dict(first), Server(), 0
    done: list[str] = []
    for _ in range(EDITS):
        facts = server.facts(files)
        questions = {each for module in facts for each in all_questions(module)}
        project = server.memory.project(facts, (), True)
        kept += isinstance(project.earlier, project_memory._Kept) and len(project.earlier.kept)
        found, expected = answers(project, questions), answers(Project.build(facts), questions)
        wrong = [each for each in questions if found[each] != expected[each]]
        assert not wrong, (done, wrong[0], found[wrong[0]], expected[wrong[0]])
        done.append(edit(chance, files, first))
    assert kept


def test_a_comment_keeps_all_answers() -> None:
    text = "def inner(net, x):\n    return net(x)\n\n\ndef outer(net, x):\n    return inner(net, x)\n"
    server = Server()
    questions = {each for module in server.facts({"a.py": text}) for each in all_questions(module)}
    project = server.memory.project(server.facts({"a.py": text}), (), True)
    before = answers(project, questions)
    known = {each for each in questions if project.answers is not None and each in project.answers}
    after = server.memory.project(
        server.facts({"a.py": text.replace("    return net", "    # more\n    return net")}), (), True
    )
    assert known
    assert after.earlier is not None
    assert all(after.earlier.answer(each) == getattr(project, str(each[0]))(*each[1:]) for each in known)
    assert answers(after, questions) == before


def test_what_an_edit_may_have_changed_is_computed_again() -> None:
    text = "def inner(net, x):\n    return net(x)\n\n\ndef outer(net, x):\n    return inner(net, x)\n\n\ndef apart(x):\n    return x\n"
    server = Server()
    facts = server.facts({"a.py": text})
    questions = {each for module in facts for each in all_questions(module)}
    answers(server.memory.project(facts, (), True), questions)
    edited = server.facts(
        {"a.py": text.replace("return inner", "import torch\n    with torch.no_grad():\n        return inner")}
    )
    project = server.memory.project(edited, (), True)
    assert isinstance(project.earlier, project_memory._Kept)
    names = {each[1].qualname for each in project.earlier.kept if each[0] == "grad_mode"}  # type: ignore[attr-defined]
    assert names == {"<module>", "apart", "outer"}
    assert answers(project, questions) == answers(Project.build(edited), questions)


def test_another_setting_or_another_file_keeps_nothing() -> None:
    server = Server()
    facts = server.facts({"a.py": "def one(net, x):\n    return net(x)\n", "b.py": "from a import one\n"})
    first = server.memory.project(facts, (), True)
    assert first.earlier is None
    assert server.memory.project(facts, ("off",), True).earlier is None
    assert server.memory.project(facts, ("off",), True).earlier is not None
    assert server.memory.project(facts[:1], ("off",), True).earlier is None
