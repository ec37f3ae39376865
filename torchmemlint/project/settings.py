"""Settings: what the user asked for, as plain data.

``config`` makes them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torchmemlint.findings import Confidence, Finding, Fix, Safety, Severity

DEFAULT_EXCLUDE = (
    ".bzr",
    ".direnv",
    ".eggs",
    ".git",
    ".git-rewrite",
    ".hg",
    ".ipynb_checkpoints",
    ".mypy_cache",
    ".nox",
    ".pants.d",
    ".pyenv",
    ".pytest_cache",
    ".pytype",
    ".ruff_cache",
    ".svn",
    ".tox",
    ".venv",
    ".vscode",
    "__pycache__",
    "__pypackages__",
    "_build",
    "buck-out",
    "build",
    "dist",
    "node_modules",
    "site-packages",
    "venv",
)
"""Names that are not entered below a given folder: ruff's list, and ``__pycache__``."""

DEFAULT_BASELINE = ".torchmemlint-baseline.json"
"""Read without being asked for where it stands at the root of the configuration, and written there."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides which findings a file has; hashable parts of it key the cache.

    codes               the enabled rule codes, sorted
    named               those of them that are selected by their full code: their notes are printed without being asked for
    per_file_ignores    (glob, code prefixes) pairs, tried in order, all that match apply
    exclude             globs of files and folders that are not walked into; ``extend_exclude`` adds to them
    force_exclude       exclusions hold for files named by hand too
    fail_on             the lightest severity that makes the exit status 1; what makes it 1 is printed
    min_confidence      the lowest confidence that is printed
    notes               print notes as well
    no_grad_wrappers    dotted names of decorators and context managers outside the tree that switch grad mode off
    detaching_calls     dotted names of functions outside the tree whose result has no graph
    recorders           dotted names of functions or methods outside the tree that keep their arguments
    target_torch        (major, minor) of the oldest torch that the code must run with: configured, or what the project requires;
                        None when unknown
    cache_in_project    keep the cache in the project, not in the user's cache folder
    fixable             code prefixes of the rules whose fixes are offered; ``unfixable`` are taken out
    extend_safe_fixes   codes of rules whose unsafe fixes the user takes for safe; ``extend_unsafe_fixes`` the other way round
    baseline            absolute path of the file of findings that are not reported, "" for none
    root                absolute folder that globs are relative to: the configuration file's, or the current one
    source              the configuration file, "" when there is none
    alone               set by a run: the only file that was given, of no project, which may be a piece of something larger
    """

    codes: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    exclude: tuple[str, ...] = DEFAULT_EXCLUDE
    extend_exclude: tuple[str, ...] = ()
    force_exclude: bool = False
    respect_gitignore: bool = True
    fail_on: Severity = Severity.WARNING
    min_confidence: Confidence = Confidence.MEDIUM
    notes: bool = False
    unsafe_fixes: bool = False
    no_grad_wrappers: tuple[str, ...] = ()
    detaching_calls: tuple[str, ...] = ()
    recorders: tuple[str, ...] = ()
    target_torch: tuple[int, int] | None = None
    cache_in_project: bool = False
    fixable: tuple[str, ...] = ("TML",)
    unfixable: tuple[str, ...] = ()
    extend_safe_fixes: tuple[str, ...] = ()
    extend_unsafe_fixes: tuple[str, ...] = ()
    baseline: str = ""
    root: str = ""
    source: str = ""
    alone: bool = False

    def of_analysis(self) -> Settings:
        """The settings that decide which findings there are, printed or not: cached results depend on these."""
        usual = Settings()
        return replace(
            self,
            named=(),
            fail_on=usual.fail_on,
            min_confidence=usual.min_confidence,
            notes=False,
            unsafe_fixes=False,
            fixable=usual.fixable,
            unfixable=(),
            extend_safe_fixes=(),
            extend_unsafe_fixes=(),
            cache_in_project=False,
        )

    def fix_of(self, finding: Finding) -> Fix | None:
        """A finding's fix, as safe as the user takes it to be; None where it is not wanted. ``unfixable`` wins over ``fixable``."""
        code, fix = finding.code, finding.fix
        if fix is None or not code.startswith(self.fixable) or (self.unfixable and code.startswith(self.unfixable)):
            return None
        moved = {Safety.SAFE: code in self.extend_safe_fixes, Safety.UNSAFE: code in self.extend_unsafe_fixes}
        return replace(fix, safety=next((safety for safety, asked in moved.items() if asked), fix.safety))

    def records(self, finding: Finding) -> bool:
        """Whether a finding is sure enough to be written anywhere."""
        return finding.confidence.weight >= self.min_confidence.weight

    def prints(self, finding: Finding) -> bool:
        """Whether a finding is printed, counts for the exit status, and may be fixed: notes are where they are asked for."""
        shown = self.notes or finding.code in self.named
        return self.records(finding) and (shown or finding.severity.weight >= min(self.fail_on.weight, Severity.WARNING.weight))
