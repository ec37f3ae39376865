"""What the program around a candidate shows: facts that say how such code is written, whoever reports what."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.rules.card import About
from torchmemlint.rules.fact import Fact, Known
from torchmemlint.semantics.identity import says_any
from torchmemlint.semantics.roots import Runs
from torchmemlint.semantics.state import MODULE, Mode, Record, RecordFlag, World, memoized
from torchmemlint.torch_facts import TORCH

SWITCHES = TORCH.words["grad-words"]
"""Words that switch grad mode."""


def facts_of(runs: Runs, record: Record, about: About) -> Iterator[Fact]:
    """What is so of the function that was run, of its file and of the project, as far as it says something of findings about that."""
    world, root = runs.world, record.root
    if record.flags & {RecordFlag.ON_CUDA, RecordFlag.ON_SOME_DEVICE}:
        yield Fact("moves-to-a-device", "the function moves something to a device")
    if not world.project.imports(root.path):
        yield Fact("imports-nothing", unless="the code, which imports nothing, is not for torch", known_by=Known.ASSUMED)
    if about is About.NEEDLESS_GRAPH:
        if record.mode is Mode.NO_CALLERS and root.qualname != MODULE and world.project.is_imported_file(root.path):
            yield Fact("not-called", "other files use its file, and nothing visible calls the function", Known.ASSUMED)
        if says_any(world, root.path, SWITCHES):
            yield Fact("file-knows-grad-mode", "who wrote the file knows grad mode: it is switched in another place of it")
        elif _switches(world):
            yield Fact("project-knows-grad-mode", "who wrote the project knows grad mode: another file switches it")


@memoized
def _switches(world: World) -> bool:
    """Whether any function of the project switches grad mode."""
    return any(map(world.project.says, sorted(SWITCHES)))
