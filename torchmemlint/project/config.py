"""Where settings come from.

For each file the nearest ``torchmemlint.toml``, or ``pyproject.toml`` with a ``[tool.torchmemlint]`` table, at or above its
folder says how it is checked; the command line comes on top. Nothing is inherited from files further up, except what the file
names with ``extend``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from torchmemlint.errors import ConfigError
from torchmemlint.files.checkout import is_inside, leads_out, repository_root
from torchmemlint.files.quoting import quoted
from torchmemlint.files.reading import MAX_SETTINGS_BYTES, read_text, reason
from torchmemlint.files.toml import parsed
from torchmemlint.findings import Confidence, Severity
from torchmemlint.project.requirement import required_torch
from torchmemlint.project.selection import Layer, closest, enabled_codes, moved_codes, named_codes, prefixes, shown
from torchmemlint.project.settings import DEFAULT_BASELINE
from torchmemlint.project.settings import DEFAULT_EXCLUDE as DEFAULT_EXCLUDE
from torchmemlint.project.settings import Settings as Settings

Table = Mapping[str, object]
"""A TOML table: keys are those of ``KEYS``."""


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _strings(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise ValueError("must be a list of strings")
    return tuple(value)


def _globs_to_selectors(value: object) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not isinstance(value, Mapping):
        raise ValueError('must be a table of globs and lists of rules, as `"tests/*" = ["TML2"]`')
    return tuple((str(glob), _strings(selectors)) for glob, selectors in value.items())


def _level(levels: type[Severity] | type[Confidence], value: object) -> Severity | Confidence:
    words = [level.value for level in levels]
    if value not in words:
        raise ValueError(f"must be one of {', '.join(words)}{closest(value, words) if isinstance(value, str) else ''}")
    return levels(value)


def _version(value: object) -> tuple[int, int]:
    major, dot, minor = str(value).partition(".")
    minor = minor.partition(".")[0]
    if not isinstance(value, str) or not dot or not (major.isdecimal() and minor.isdecimal()) or len(major + minor) > 9:
        raise ValueError('must be a version in quotes, as "2.4"')
    return int(major), int(minor)


def _path(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError("must be the path of a file, in quotes")
    return value


def _toml_path(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or not value.endswith(".toml"):
        raise ValueError("must be the path of a .toml file, in quotes")
    return value


KEYS: dict[str, Callable[[object], object]] = {
    "extend": _toml_path,
    "select": _strings,
    "extend-select": _strings,
    "ignore": _strings,
    "per-file-ignores": _globs_to_selectors,
    "exclude": _strings,
    "extend-exclude": _strings,
    "force-exclude": _flag,
    "respect-gitignore": _flag,
    "fail-on": partial(_level, Severity),
    "min-confidence": partial(_level, Confidence),
    "notes": _flag,
    "unsafe-fixes": _flag,
    "fixable": _strings,
    "unfixable": _strings,
    "extend-safe-fixes": _strings,
    "extend-unsafe-fixes": _strings,
    "preview": _flag,
    "no-grad-wrappers": _strings,
    "detaching-calls": _strings,
    "recorders": _strings,
    "target-torch": _version,
    "baseline": _path,
    "cache-in-project": _flag,
}
"""Every key of ``[tool.torchmemlint]``, and what reads its value (ValueError says what the value must be)."""


@dataclass(frozen=True, slots=True)
class Options:
    """One checked table, None where it says nothing; the names of the fields are the keys with ``_`` for ``-``."""

    extend: str | None = None
    select: tuple[str, ...] | None = None
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    exclude: tuple[str, ...] | None = None
    extend_exclude: tuple[str, ...] = ()
    force_exclude: bool | None = None
    respect_gitignore: bool | None = None
    fail_on: Severity | None = None
    min_confidence: Confidence | None = None
    notes: bool | None = None
    unsafe_fixes: bool | None = None
    fixable: tuple[str, ...] | None = None
    unfixable: tuple[str, ...] = ()
    extend_safe_fixes: tuple[str, ...] = ()
    extend_unsafe_fixes: tuple[str, ...] = ()
    preview: bool | None = None
    no_grad_wrappers: tuple[str, ...] | None = None
    detaching_calls: tuple[str, ...] | None = None
    recorders: tuple[str, ...] | None = None
    target_torch: tuple[int, int] | None = None
    baseline: str | None = None
    cache_in_project: bool | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """Where options come from, in words, and the folder that their globs are relative to; the file itself, if it is one, and
    the files that it extends, the furthest first."""

    options: Options
    where: str
    root: str
    file: str = ""
    below: tuple[Source, ...] = ()


def checked(table: Table, where: str, root: str) -> Source:
    """Reads every value of a table. Raises ConfigError for an unknown key (naming the closest) or a value of the wrong kind."""
    values = {}
    for key, value in table.items():
        if key not in KEYS:
            raise ConfigError(f"{where}: unknown key `{shown(key)}`{closest(key, KEYS)}")
        try:
            values[key.replace("-", "_")] = KEYS[key](value)
        except ValueError as error:
            raise ConfigError(f"{where}: `{key}` {error}") from None
    return Source(Options(**values), where, root)  # type: ignore[arg-type]  # KEYS gives each its type


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What the command line says about settings: ``--config`` words, ``--isolated``, and the options by their key."""

    table: Table = field(default_factory=dict)
    config: tuple[str, ...] = ()
    isolated: bool = False


class Configuration:
    """Settings by folder: finds, reads and keeps each configuration file once."""

    def __init__(self, command_line: CommandLine | None = None) -> None:
        """Raises ConfigError for a bad option or ``--config``."""
        asked = command_line or CommandLine()
        cwd = os.getcwd()
        self._search = not asked.isolated
        self._fixed: Source | None = None
        self._layers: list[Source] = []
        self._sources: dict[str, Source | ConfigError | None] = {}
        self._settings: dict[str | None, Settings] = {}
        self._required: dict[str, tuple[int, int] | None] = {}
        self._targeted: dict[tuple[str, tuple[int, int]], Settings] = {}
        for word in asked.config:
            if os.path.isfile(word) or "=" not in word:
                self._fixed = _read_named_file(word)
            else:
                self._layers.append(checked(_inline(word), f"--config {word}", cwd))
        self._layers.append(checked(asked.table, "command line", cwd))
        self.default = self._settings_of(None)  # a wrong code on the command line shows here, before any file is read

    def for_folder(self, folder: str) -> Settings:
        """The settings of files in an absolute folder; where they do not say which torch the code must run with, what its
        project requires does. Raises ConfigError when its configuration file is not valid."""
        settings = self._configured(folder)
        if settings.target_torch is not None or not self._search:
            return settings
        target = required_torch(folder, self._required)
        if target is None:
            return settings
        key = (settings.source, target)
        if key not in self._targeted:
            self._targeted[key] = replace(settings, target_torch=target)
        return self._targeted[key]

    def _configured(self, folder: str) -> Settings:
        if not self._search or self._fixed is not None:
            return self.default
        source = self._nearest(folder)
        if isinstance(source, ConfigError):
            raise source
        return self.default if source is None else self._settings_of(source)

    def for_file(self, path: str) -> Settings:
        """The settings of one file, absolute or relative to the current folder."""
        return self.for_folder(os.path.dirname(os.path.abspath(path)))

    def _nearest(self, folder: str) -> Source | ConfigError | None:
        if folder not in self._sources:
            found: Source | ConfigError | None = None
            try:
                for name in ("torchmemlint.toml", "pyproject.toml"):
                    found = found or _read_file(os.path.join(folder, name))
            except ConfigError as error:
                found = error
            parent = os.path.dirname(folder)
            self._sources[folder] = self._nearest(parent) if found is None and parent != folder else found
        return self._sources[folder]

    def _settings_of(self, source: Source | None) -> Settings:
        source = source or self._fixed
        key = source.where if source else None
        if key not in self._settings:
            layers = [*([*source.below, source] if source else []), *self._layers]
            settings = merged(layers, source)
            usual = os.path.join(settings.root, DEFAULT_BASELINE)
            if all(layer.options.baseline is None for layer in layers) and self._search and os.path.isfile(usual):
                settings = replace(settings, baseline=usual)
            self._settings[key] = settings
        return self._settings[key]


def merged(layers: Sequence[Source], file: Source | None) -> Settings:
    """Settings from layers, lowest first: a later value replaces an earlier one, ``per-file-ignores`` and ``extend-exclude``
    add up, selection follows ``selection.enabled_codes``, and which fixes are safe ``selection.moved_codes``.
    """
    given = [layer.options for layer in layers]
    values: dict[str, object] = {
        "unfixable": tuple(code for layer in layers for code in prefixes(layer.options.unfixable, layer.where))
    }
    for layer in layers:
        if layer.options.fixable is not None:
            values["fixable"] = prefixes(layer.options.fixable, layer.where)
    for options in given:
        for name in _REPLACED:
            value = getattr(options, name)
            if value is not None:
                values[name] = value
    selection = [
        (Layer(layer.options.select, layer.options.extend_select, layer.options.ignore), layer.where) for layer in layers
    ]
    safe, unsafe = moved_codes(
        [(layer.options.extend_safe_fixes, layer.options.extend_unsafe_fixes, layer.where) for layer in layers]
    )
    return Settings(
        codes=enabled_codes(selection, values.pop("preview", None) is True),
        extend_safe_fixes=safe,
        extend_unsafe_fixes=unsafe,
        named=named_codes(selection),
        per_file_ignores=tuple(
            (glob, prefixes(words, layer.where)) for layer in layers for glob, words in layer.options.per_file_ignores
        ),
        extend_exclude=tuple(glob for options in given for glob in options.extend_exclude),
        baseline=_baseline(layers),
        root=file.root if file else os.getcwd(),
        source=file.file if file else "",
        **values,  # type: ignore[arg-type]  # both dataclasses give a field the same type
    )


def _baseline(layers: Sequence[Source]) -> str:
    """The absolute path of the baseline that the highest layer names, "" where none does, or that one says there is none."""
    named = [(layer.options.baseline, layer.root) for layer in layers if layer.options.baseline is not None]
    return os.path.join(named[-1][1], named[-1][0]) if named and named[-1][0] else ""


_SELECTORS = ("select", "extend_select", "ignore", "fixable", "unfixable", "extend_safe_fixes", "extend_unsafe_fixes")
_REPLACED = tuple(
    name
    for name in Options.__dataclass_fields__
    if name not in (*_SELECTORS, "extend", "per_file_ignores", "extend_exclude", "baseline")
)


def _inline(word: str) -> Table:
    try:
        return parsed(word)
    except ValueError as error:
        raise ConfigError(
            f"--config {word}: neither a file nor KEY=VALUE as TOML ({error}); strings need quotes: 'fail-on=\"error\"'"
        ) from None


def _read_named_file(path: str) -> Source:
    """A file given to ``--config``: its globs are relative to the current folder, as the user's who named it."""
    source = _read_file(path)
    if source is None:
        missing = "has no [tool.torchmemlint] table" if os.path.isfile(path) else "does not exist"
        raise ConfigError(f"configuration file `{quoted(path)}` {missing}")
    return replace(source, root=os.getcwd())


MAX_EXTENDED = 20
"""Files that build on each other."""


def _read_file(path: str, above: tuple[str, ...] = ()) -> Source | None:
    """The table of a configuration file; None when there is no such file, or a pyproject.toml without our table."""
    shown = quoted(path)
    try:
        table = parsed(read_text(path, MAX_SETTINGS_BYTES))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{shown}: {reason(error)}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{shown}: not UTF-8: {error.reason} at byte {error.start}") from None
    except ValueError as error:
        raise ConfigError(f"{shown}: not valid TOML: {error}") from None
    if os.path.basename(path) == "pyproject.toml":
        tool = table.get("tool", {})
        own = tool.get("torchmemlint") if isinstance(tool, dict) else None
        if own is None:
            return None
        if not isinstance(own, dict):
            raise ConfigError(f"{shown}: `tool.torchmemlint` must be a table")
        table = own
    source = replace(checked(table, shown, os.path.dirname(os.path.abspath(path))), file=path)
    return replace(source, below=_extended(source, (*above, os.path.realpath(path))))


def _extended(source: Source, above: tuple[str, ...]) -> tuple[Source, ...]:
    """The files that a configuration file builds on, the furthest first. Raises ConfigError for a circle."""
    if source.options.extend is None:
        return ()
    path = os.path.join(source.root, source.options.extend)
    inside = repository_root(source.root)
    if not is_inside(path, inside) or leads_out(path, inside):
        raise ConfigError(
            f"{source.where}: `extend` leads out of {quoted(inside)}, the repository (without .git, the folder of this file)"
        )
    if os.path.realpath(path) in above or len(above) > MAX_EXTENDED:
        raise ConfigError(f"{source.where}: `extend` leads back to `{quoted(source.options.extend)}`")
    base = _read_file(path, above)
    if base is None:
        raise ConfigError(f"{source.where}: `extend` names {quoted(source.options.extend)}, which has no settings")
    return (*base.below, base)
