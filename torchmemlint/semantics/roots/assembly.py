"""Every part of the engine that registers handlers, imported once; nothing that the IR or the table of torch facts has may lack one."""

from __future__ import annotations

from typing import get_args

from torchmemlint.lower import ir
from torchmemlint.semantics import interpret, models
from torchmemlint.semantics.models import check_handlers
from torchmemlint.semantics.state import EXPRESSIONS, STATEMENTS
from torchmemlint.torch_facts.words import FUNCTION_EFFECTS, METHOD_EFFECTS

PARTS = (interpret, models)


def check() -> None:
    """Raises LookupError where a node of the IR, or an effect word of the table, has no handler."""
    check_handlers(FUNCTION_EFFECTS | METHOD_EFFECTS)
    for table, kinds in ((EXPRESSIONS, get_args(ir.Expr)), (STATEMENTS, get_args(ir.Stmt))):
        missing = [kind.__name__ for kind in kinds if kind not in table]
        if missing:
            raise LookupError(f"no handler for {', '.join(missing)} of lower/ir.py: write one in semantics/")
