"""What other programs call: paths or a text in, findings out.

Import these names from ``torchmemlint``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike, fspath

from torchmemlint.errors import UsageError
from torchmemlint.findings import Finding
from torchmemlint.project.config import CommandLine, Configuration


def check_paths(
    paths: Iterable[str | PathLike[str]],
    *,
    options: Mapping[str, object] | None = None,
    isolated: bool = False,
    jobs: int = 1,
) -> list[Finding]:
    """Findings of files and folders, sorted; a file that cannot be parsed gives TML000.

    ``options`` are settings by their configuration key (``{"select": ["TML1"], "preview": True}``) and go before those of
    configuration files, which ``isolated`` leaves out. Raises ConfigError for a bad setting, and UsageError for a path that
    cannot be checked. ``jobs`` above 1 starts processes: the caller's main module must be importable.
    """
    from torchmemlint.run import check_paths as run

    outcome = run([fspath(path) for path in paths], Configuration(CommandLine(options or {}, isolated=isolated)), jobs)
    if outcome.problems:
        raise UsageError("; ".join(outcome.problems))
    return list(outcome.findings)


def check_source(
    text: str, filename: str = "<string>", *, options: Mapping[str, object] | None = None, isolated: bool = False
) -> list[Finding]:
    """Findings of a text, as if it were the content of ``filename`` in the project around that name.

    ``options`` and ``isolated`` as in ``check_paths``. Raises ConfigError for a bad setting; SourceError for a text that no
    file can hold (a null character).
    """
    from torchmemlint.run import check_text

    configuration = Configuration(CommandLine(options or {}, isolated=isolated))
    return check_text(text, filename, configuration.for_file(filename))
