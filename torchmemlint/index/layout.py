"""Which module a file is, which file an import means: from the paths alone.

A module's name follows the chain of ``__init__.py`` files above it, as far as they are among the files given; a script is
named by its stem. An import is looked up from where the importing file stands: the directory of its top package (for a
script: its own), then the directories above, then every top package of the project, then the folders of the package itself. So
``src`` layouts, namespace packages and several copies of one package side by side all resolve to the nearest. A file that only bears a library's name
(``utils/torch.py``) is not what the files around it mean by that name.
"""

from __future__ import annotations

import posixpath
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from torchmemlint.torch_facts import TORCH

_LIBRARIES = TORCH.words["adapted-packages"]
"""Names that adapters in a package often bear (``backends/numpy.py``), while its files mean the library by them."""


@dataclass(frozen=True, slots=True, order=True)
class Module:
    """A module of the project. ``path`` is "" for a directory without ``__init__.py``; ``directory`` is "" for a plain file."""

    path: str
    directory: str


class Layout:
    """The files of a project as modules and packages."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._files = {posixpath.normpath(path): path for path in sorted(paths)}
        self.directories = {above for file in self._files for above in _above(file)}
        self._located: dict[tuple[str, str], list[Module]] = {}
        self._tops: dict[str, list[str]] = defaultdict(list)
        for file in self._files:
            root = self._package_root(file)
            name = file[len(root) :].lstrip("/").partition("/")[0]
            if root not in self._tops[name.removesuffix(".py")]:
                self._tops[name.removesuffix(".py")].append(root)
        self.names = self._unique_names()
        self.path_of = {name: path for path, name in self.names.items()}

    def given(self, file: str) -> str:
        """A file as it was given, by its normal path; "" when there is none."""
        return self._files.get(file, "")

    def top_package(self, path: str) -> str:
        """The name of the package, or script, that a file belongs to."""
        return self.names[path].partition(".")[0]

    def near(self, one: str, other: str) -> bool:
        """Whether two files are of one top package, or of one folder (scripts that are run from there)."""
        return self.top_package(one) == self.top_package(other) or posixpath.dirname(one) == posixpath.dirname(other)

    def beside(self, one: str, other: str) -> bool:
        """Whether two files stand in no package, and their folders in one folder: a project that is run from there."""
        if "." in self.names[one] or "." in self.names[other]:
            return False
        return posixpath.dirname(posixpath.dirname(one)) == posixpath.dirname(posixpath.dirname(other))

    def module_of(self, path: str) -> Module:
        """The module that the file ``path`` is."""
        file = posixpath.normpath(path)
        head, tail = posixpath.split(file)
        return Module(path, head if tail == "__init__.py" else "")

    def child(self, module: Module, name: str) -> Module | None:
        """The submodule ``name`` of a package."""
        return self._child(module.directory, name) if module.directory or not module.path else None

    def relative(self, path: str, dots: int) -> Module | None:
        """The package that ``dots`` leading dots in an import of ``path`` mean."""
        directory = posixpath.dirname(posixpath.normpath(path))
        for _ in range(dots - 1):
            directory = posixpath.dirname(directory)
        if directory and directory not in self.directories:
            return None
        return Module(self._files.get(posixpath.join(directory, "__init__.py"), ""), directory)

    def lacks(self, path: str, module: str) -> bool:
        """Whether no folder has the module of an absolute import in ``path``, though its first part means packages that end above it
        with Python files of their own: without these one may hold the code of others, which is fetched apart."""
        top, *parts = module.split(".")
        places = self.candidates(path, top) if parts and top not in sys.stdlib_module_names and top not in _LIBRARIES else []
        if not places or not all(self._ends_above(place, parts) for place in places):
            return False
        below = f"/{module.replace('.', '/')}"
        return not any(f"/{each.removesuffix('.py')}".endswith(below) for each in (*self.directories, *self._files))

    def _ends_above(self, place: Module, parts: Sequence[str]) -> bool:
        for part in parts:
            below = self.child(place, part)
            if below is None:
                return bool(place.path) or any(posixpath.dirname(file) == place.directory for file in self._files)
            place = below
        return False

    def candidates(self, path: str, top: str) -> list[Module]:
        """What the first part of an absolute import in ``path`` can mean, likeliest first; empty when it is outside."""
        file = posixpath.normpath(path)
        directory = posixpath.dirname(file)
        key = (directory, top)
        found = self._located.get(key)
        if found is None:
            found = self._located[key] = list(dict.fromkeys(self._search(file, directory, top)))
        # No file imports itself: it means a library of its own name. A package's `__init__.py` imports from its own package.
        return [module for module in found if module.path != path or module.directory]

    def _search(self, file: str, directory: str, top: str) -> Iterator[Module]:
        if top == "torch":  # of PyTorch's own sources too: what they mean is in the table of torch
            return
        root = self._package_root(file)
        for above in (root, *_above(root)):
            module = self._child(above, top)
            if module is not None:
                yield module
        others = sorted(self._tops.get(top, ()), key=lambda other: (-len(posixpath.commonprefix([other, directory])), other))
        for other in others:
            module = self._child(other, top)
            if module is not None and (top not in _LIBRARIES or (module.directory and module.path)):
                yield module
        # A file of a package that is also run as a script sees its neighbours, and a folder from which scripts are run may have an
        # `__init__.py` (a whole repository may be one); the standard library and others go first.
        if directory != root and top not in sys.stdlib_module_names and top not in _LIBRARIES:
            for folder in (directory, *_above(directory)):
                if folder == root:
                    break
                module = self._child(folder, top)
                if module is not None:
                    yield module

    def _child(self, directory: str, name: str) -> Module | None:
        below = posixpath.join(directory, name)
        package = self._files.get(f"{below}/__init__.py")
        if package is not None:
            return Module(package, below)
        plain = self._files.get(f"{below}.py")
        if plain is not None:
            return Module(plain, "")
        return Module("", below) if below in self.directories else None

    def _package_root(self, file: str) -> str:
        """The directory that holds the top package of ``file``; for a script its own directory."""
        directory = posixpath.dirname(file)
        while directory.strip("/") and f"{directory}/__init__.py" in self._files:
            directory = posixpath.dirname(directory)
        return directory

    def _unique_names(self) -> dict[str, str]:
        groups: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
        for file, path in self._files.items():
            root = self._package_root(file)
            inner = file[len(root) :].lstrip("/").removesuffix(".py")
            if inner.endswith("/__init__"):
                inner = inner.removesuffix("/__init__")
            elif inner == "__init__":
                inner = posixpath.basename(root) or inner
            groups[inner.replace("/", ".")].append((root, inner, path))
        names: dict[str, str] = {}
        for name, members in groups.items():
            if len(members) == 1:
                names[members[0][2]] = name
                continue
            for root, _, path in members:
                names[path] = f"{_qualifier(root, [other for other, _, _ in members])}.{name}".lstrip(".")
        return _without_clashes(names)


def _above(path: str) -> Iterator[str]:
    """The directories above ``path``, nearest first; "" (or "/") is the last."""
    while (above := posixpath.dirname(path)) != path:
        path = above
        yield path


def _qualifier(root: str, roots: Sequence[str]) -> str:
    """The shortest tail of ``root`` that no other of ``roots`` ends with, dotted."""
    parts = [part for part in root.split("/") if part]
    for count in range(1, len(parts) + 1):
        tail = parts[-count:]
        same = sum([part for part in other.split("/") if part][-count:] == tail for other in roots)
        if same == 1:
            return ".".join(tail)
    return ".".join(parts)


def _without_clashes(names: dict[str, str]) -> dict[str, str]:
    """Names made unique for good: a later path of the same name gets its number."""
    taken: dict[str, int] = defaultdict(int)
    result: dict[str, str] = {}
    for path in sorted(names):
        name = names[path]
        taken[name] += 1
        result[path] = name if taken[name] == 1 else f"{name}~{taken[name]}"
    return result


def is_test(path: str, qualname: str) -> bool:
    """Whether a function is a unit test or part of one: what it spends nobody misses. It lies among tests, or a test runner collects
    it (https://docs.pytest.org/en/stable/explanation/goodpractices.html); ``test_net`` of ``eval.py``, and what a script
    ``test_net.py`` does, are no such thing."""
    parts = path.replace("\\", "/").split("/")
    if not {"tests", "test"}.isdisjoint(parts[:-1]):
        return True
    collected = parts[-1].startswith("test_") or parts[-1].endswith("_test.py")
    owner, _, name = qualname.rpartition(".")
    return collected and (qualname.startswith(("test_", "Test")) or (name.startswith("test_") and owner.endswith(TEST_CLASSES)))


TEST_CLASSES = tuple(sorted(TORCH.words["test-classes"]))
"""How classes are named that ``unittest`` collects beside those whose names begin with ``Test``."""
