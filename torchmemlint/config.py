"""Settings: what the user asked for, frozen."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchmemlint.findings import Severity


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides which findings a file has; hashable parts of it key the cache.

    codes               the enabled rule codes, sorted
    per_file_ignores    (glob, code prefixes) pairs, tried in order, all that match apply
    no_grad_wrappers    dotted names of decorators and context managers outside the tree that switch grad mode off
    detaching_calls     dotted names of functions outside the tree whose result has no graph
    recorders           dotted names of functions or methods outside the tree that keep their arguments
    target_torch        (major, minor) that the code is written for, None when unknown
    """

    codes: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    exclude: tuple[str, ...] = ()
    extend_exclude: tuple[str, ...] = ()
    force_exclude: bool = False
    respect_gitignore: bool = True
    fail_on: Severity = Severity.WARNING
    unsafe_fixes: bool = False
    no_grad_wrappers: tuple[str, ...] = ()
    detaching_calls: tuple[str, ...] = ()
    recorders: tuple[str, ...] = ()
    target_torch: tuple[int, int] | None = None
    extra: tuple[tuple[str, str], ...] = field(default=())
