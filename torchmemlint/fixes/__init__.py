"""Fixes, written into the text.

A round applies every fix that keeps clear of the others; what it left is found again in the changed text and goes into the
next round (``running/fixing.py`` has the loop). A fix after which the file no longer parses is taken back.
"""

from torchmemlint.fixes.apply import FixResult, apply_fixes
from torchmemlint.fixes.diff import unified_diff

__all__ = ["FixResult", "apply_fixes", "unified_diff"]
