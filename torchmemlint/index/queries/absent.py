"""What a module imports that is not there."""

from __future__ import annotations

from torchmemlint.index import keys
from torchmemlint.index.linked import Linked
from torchmemlint.index.queries.certain import file_meant, is_bound, parted
from torchmemlint.index.queries.contents import files_of_programs
from torchmemlint.torch_facts import TORCH

OLD = TORCH.words["removed-from-python"] | TORCH.words["removed-from-torch"]
SEARCHES = TORCH.words["changes-module-search"]
SEARCH_WORDS = sorted({each.rpartition(".")[2] for each in SEARCHES})


def missing_import(linked: Linked, path: str) -> str:
    """What the statements of a module import before all else that is not there, as ``module.name``; "" for nothing."""
    linked.note(keys.IMPORTS, path)
    for bound in linked.reader.whole(path).needs:
        linked.note(keys.NAME, path, bound)
        target, *others = linked.reader.import_targets[path][bound]
        if not others and (missing := not_there(linked, path, bound, target)):
            return missing
    return ""


def not_there(linked: Linked, path: str, bound: str, target: str) -> str:
    """What of ``module.name``, which a file imports as ``bound``, is not there, or of a module of which it imports all; "" where it is,
    or that is not known."""
    if bound[0] == "*":
        return "" if linked.names.file_of(path, target) or not _lacks_module(linked, path, target) else target.lstrip(".")
    module, name = parted(target)
    parts = target.split(".")
    old = next((each for count in range(len(parts), 0, -1) if (each := ".".join(parts[:count])) in OLD), "")
    if old and not linked.names.file_of(path, parts[0]):
        return old
    file = file_meant(linked, path, module)
    if not file and _is_called(linked, path, bound) and _lacks_module(linked, path, module):
        return module.lstrip(".")
    known = bool(file) and file != path
    if known and file.endswith("__init__.py"):  # a package may have parts that are no Python files, or that are generated
        known = not linked.names.file_of(path, target) and _is_called(linked, path, bound)
    return name if known and not is_bound(linked, file, name) and not is_bound(linked, file, "__getattr__") else ""


def _lacks_module(linked: Linked, path: str, module: str) -> bool:
    """Whether a package of the project, which a file means for sure, has no module of a name, or no package that it can mean has it; not
    where the project builds some, or looks for them in other places."""
    package, _, name = module.rpartition(".")
    tables, file = linked.calls.tables, file_meant(linked, path, package or module.removesuffix(name))
    if file.endswith("__init__.py"):
        lacks = not linked.names.file_of(path, module) and not is_bound(linked, file, name)
    else:
        lacks = linked.complete and module[:1] != "." and linked.names.layout.lacks(path, module)
        lacks = lacks and not (looked_for_elsewhere(linked) & files_of_programs(linked, path))
    return lacks and not tables.has_word(TORCH.names["builds-modules"])


def looked_for_elsewhere(linked: Linked) -> set[str]:
    """The modules after which others are looked for in other places."""
    return {ref.path for word in SEARCH_WORDS for ref, call in linked.calls.tables.calls(word) if call.callee in SEARCHES}


def _is_called(linked: Linked, path: str, name: str) -> bool:
    """Whether a module calls what it has by that name, which hence is none."""
    return any(ref.path == path and call.callee == name for ref, call in linked.calls.tables.calls(name))
