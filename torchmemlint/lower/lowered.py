"""A region in flow IR, with the way back from it to source."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from torchmemlint.errors import SourceError
from torchmemlint.findings import Span
from torchmemlint.lower import ir
from torchmemlint.lower.regions import Region

if TYPE_CHECKING:
    from torchmemlint.lower.places import Places
    from torchmemlint.lower.spans import NotedPlaces


@dataclass(slots=True)
class Lowered:
    """``functions`` holds the region's outermost function (or ``<module>``) by qualified name; closures are inside it.

    The methods take the number that an IR node carries as ``node``. The first that is called has the region lowered once more, by
    ``ast`` (``lower.spans``), and by libcst where that does not say a place; they raise ``SourceError`` where libcst cannot read it, or
    reads something else than ``ast`` did.
    """

    region: Region
    functions: dict[str, ir.Function]
    _places: Places | None = field(default=None, repr=False, compare=False)
    _refused: SourceError | None = field(default=None, repr=False, compare=False)

    @property
    def places(self) -> Places:
        if self._places is None:
            if self._refused is not None:
                raise self._refused
            try:
                self._places = self._note()
            except SourceError as error:
                self._refused = error
                raise
        return self._places

    def _note(self) -> NotedPlaces:
        from torchmemlint.lower.limits import TOO_DEEP, refuse_heavy
        from torchmemlint.lower.spans import NotedPlaces

        refuse_heavy(self.region)  # libcst may be asked
        try:
            return NotedPlaces(self.region, partial(places_by_libcst, self.region, self.functions))
        except RecursionError as error:
            raise SourceError(TOO_DEEP, self.region.first_row) from error

    def enclosing(self, node: int) -> int:
        """The simple statement, compound statement, handler, case or decorator that ``node`` belongs to (or is)."""
        return self.places.enclosing(node)

    def span(self, node: int) -> Span:
        """From the node's first to its last character, without parentheses around it; a compound statement's with its body."""
        return self.places.span(node)

    def outer_span(self, node: int) -> Span:
        """As ``span``, with the parentheses around an expression: what an edit replaces, or appends to."""
        return self.places.outer_span(node)

    def header_span(self, node: int) -> Span:
        """Of a compound statement (``node`` itself), handler or case: up to its colon. Of anything else: its span."""
        return self.places.header_span(node)

    def statement(self, node: int) -> tuple[Span, str]:
        """The enclosing simple statement or compound header, and its source with every run of white space made one space."""
        return self.places.statement(node)

    def source(self, node: int) -> str:
        """The source text of ``span(node)``; its line ends are ``\\n``."""
        return self.places.source(node)


def places_by_libcst(region: Region, functions: dict[str, ir.Function]) -> Places:
    """The places in libcst's tree of a region. Raises ``SourceError`` where it is not what was lowered to ``functions``."""
    from torchmemlint.lower.exact import read

    function, places = read(region)
    if functions != {function.qualname: function}:  # then a number may name another node there
        raise SourceError("libcst reads something else here than Python's own parser", region.first_row)
    return places


def from_libcst(region: Region) -> Lowered:
    """A region as libcst reads it. Raises ``SourceError`` where it cannot."""
    from torchmemlint.lower.exact import read

    function, places = read(region)
    return Lowered(region, {function.qualname: function}, places)
