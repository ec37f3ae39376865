"""What a run writes down of its files, so that later edits can be followed (``followed``). Apart from that, since every run with
a cache writes it, also one in which nothing speaks of torch."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence

from torchmemlint.incremental.cache import Asked, Cache, SegmentName
from torchmemlint.workers import Checked, Scanned

RELATED, BESIDE, OTHER = "related", "beside", "other"


def kind_of(given: Scanned, fuller: Scanned) -> str:
    """``Asked.kind`` of a file."""
    if given.failed is not None or given.skipped:
        return ""
    return RELATED if given.facts is not None else BESIDE if fuller.facts is not None else OTHER


def asked_of(given: Scanned, fuller: Scanned, checked: Checked | None, segments: Mapping[str, int]) -> Asked:
    """What is kept of a file. ``given`` is what the run's own scan gave, ``fuller`` may have facts beyond that; ``segments`` are
    the places of the segments."""
    known = checked is not None and checked.asked and checked.segment in segments
    kind = kind_of(given, fuller)
    return Asked(
        segments[checked.segment] if checked is not None and known else -1,
        b64encode(checked.asked).decode() if checked is not None and known else "",
        checked.kept if checked is not None else "",
        kind,
        tuple(sorted(name.decode(errors="surrogateescape") for name in given.imports)),
    )


Written = tuple[Sequence[SegmentName], Iterable[Asked]]
"""The segments and the files of ``Trails``."""


def written(
    cache: Cache, paths: Sequence[str], asked: Callable[[str, Mapping[str, int]], Asked], checked: Iterable[Checked]
) -> Written:
    """The trails of a run that looked at all of its files: ``asked`` is given a path, and the places of the segments."""
    names = sorted({one.segment for one in checked} - {""})
    places = {name: place for place, name in enumerate(names)}
    return [cache.named(name, 0) for name in names], (asked(path, places) for path in paths)


def words(paths: Sequence[str], scanned: Iterable[Scanned]) -> bytes:
    """Which modules say a word (``index.words``), of a run over files at ``paths``."""
    from torchmemlint.index.words import written

    modules = {one.path: one for one in scanned if one.facts is not None}
    shapes = {path: modules[path].shape if path in modules else "" for path in paths}
    return written(shapes, (one.facts for one in modules.values() if one.facts is not None))
