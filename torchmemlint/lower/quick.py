"""Lowering from ``ast``, for every candidate region: a tenth of what libcst takes.

The numbers are those that ``lower.exact`` gives, so a finding's number leads to libcst's node, once it is read
(``lowered.Lowered``). Where ``ast`` leaves open what the source says, libcst lowers the region from the start.
"""

from __future__ import annotations

from torchmemlint.errors import SourceError
from torchmemlint.index.parse import parse
from torchmemlint.lower.builder import Builder
from torchmemlint.lower.limits import TOO_DEEP, refuse_long, refuse_long_chains
from torchmemlint.lower.lowered import Lowered, from_libcst
from torchmemlint.lower.regions import Region
from torchmemlint.lower.text import Open, Text


def lower(region: Region) -> Lowered:
    """Lower a region. Raises ``SourceError`` where it cannot be parsed, or is nested too deeply."""
    try:
        refuse_long(region)
        refuse_long_chains(region)
        function = Builder(Text(region)).region(parse(region.text), region)
    except Open:
        return from_libcst(region)
    except RecursionError as error:
        raise SourceError(TOO_DEEP, region.first_row) from error
    return Lowered(region, {function.qualname: function})
