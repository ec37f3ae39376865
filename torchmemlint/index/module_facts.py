"""Python source → the facts of its module, by one walk over the standard library's syntax tree.

This runs on every file that mentions torch, so it is written for speed (together with ``ast.parse`` about 10 µs of CPU per
line): one recursive function (``index.expressions``) visits expressions, returns their dotted text on the way up and notes
calls, words and reads; statements (``index.statements``) are dispatched by type. The tree is thrown away at the end.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from torchmemlint.errors import SourceError
from torchmemlint.index.expressions import ANY_NAME
from torchmemlint.index.facts import ModuleFacts
from torchmemlint.index.parse import parse
from torchmemlint.index.statements import block
from torchmemlint.index.walk import MAX_DEPTH, Walk, finished
from torchmemlint.torch_facts import TORCH

_ATTRIBUTE = re.compile(r"[A-Za-z]\w*(\.\w+)+")


def module_facts(path: str, text: str) -> ModuleFacts:
    """The facts of the module at ``path`` whose source is ``text``.

    Of a text that does not parse on this Python they are those of what can be read of it. Raises SourceError where that is nothing,
    or nests deeper than ``MAX_DEPTH``.
    """
    recovered = False
    try:
        tree = parse(text)
    except SourceError:
        from torchmemlint.source import tolerant  # most runs need it for no file

        reading = tolerant.read(text)
        if reading is None:
            raise
        text, recovered = reading.text, True
        tree = parse(text)
    walk = Walk(tree, text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    try:
        block(walk, tree.body, 1)
    except RecursionError:
        raise SourceError(f"is nested more than {MAX_DEPTH} levels deep") from None
    return _facts_of(walk, path, recovered)


def _facts_of(walk: Walk, path: str, recovered: bool) -> ModuleFacts:
    top = walk.top
    names = [name for name, _ in walk.imports]
    top.unsure |= top.locals.intersection(names) | (Counter(names) - Counter({*names})).keys()
    words = [top.names, *[facts.names for facts in walk.functions]]
    if (
        recovered
        or path.endswith(".ipynb")
        or any([name[0] == "*" for name in names])
        or not all(map(TORCH.words["binds-unseen"].isdisjoint, words))
    ):
        top.unsure.add(ANY_NAME)
    rows = len(walk.lines) - (not walk.lines[-1])
    functions = [finished(walk, top, None, (), "", "", rows)]
    functions += sorted(walk.functions, key=lambda facts: (facts.first_row, facts.row, facts.qualname))
    return ModuleFacts(
        path=path,
        imports=tuple(walk.imports),
        assigned=(*functions[0].bound, *_first_of_either(functions[0].rebound)),
        functions=tuple(functions),
        classes=tuple(sorted(walk.order, key=lambda facts: (facts.row, facts.qualname))),
        rows=rows,
        recovered=recovered,
        needs=tuple(walk.needs),
    )


def _first_of_either(rebound: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The names that stand for one attribute or another of a module, as by version (``inference_mode = torch.inference_mode``, or
    else ``torch.no_grad``), with the first: as of a name that is imported from one place or another."""
    texts: dict[str, list[str]] = {}
    for name, text in rebound:
        texts.setdefault(name, []).append(text)
    return [(name, each[0]) for name, each in texts.items() if all(map(_ATTRIBUTE.fullmatch, each))]
