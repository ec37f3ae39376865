"""torchmemlint: finds the mistakes in PyTorch code that waste or leak GPU memory.

    check_paths(["src"])            findings of files and folders
    check_source("import torch…")   findings of a text
    report_memory()                 where a running program's memory stands (imports torch, inside the call only)
    with watching(): …              what grows in a loop of a running program (the same)

Names are looked up on first use, so that ``import torchmemlint`` costs nothing.
"""

# Nothing is imported here: after `python -m torchmemlint` the current folder comes first in sys.path, before the standard
# library, until `__main__` has taken it out. Type checkers take this name for true, as they do typing's.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from torchmemlint.api import check_paths, check_source
    from torchmemlint.findings import Edit, Finding, Fix
    from torchmemlint.growth.watching import watching
    from torchmemlint.oom.report_memory import report_memory

__version__ = "0.1.0"

__all__ = ["Edit", "Finding", "Fix", "__version__", "check_paths", "check_source", "report_memory", "watching"]

_HOMES = {
    "check_paths": "torchmemlint.api",
    "check_source": "torchmemlint.api",
    "Edit": "torchmemlint.findings",
    "Finding": "torchmemlint.findings",
    "Fix": "torchmemlint.findings",
    "report_memory": "torchmemlint.oom.report_memory",
    "watching": "torchmemlint.growth.watching",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
