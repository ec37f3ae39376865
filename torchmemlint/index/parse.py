"""Source → syntax tree, with every failure as one error that says where."""

from __future__ import annotations

import ast
import re
import warnings

from torchmemlint.errors import SourceError
from torchmemlint.source.newer import syntax_message

_TOKEN = re.compile(r"\w+|[^\w\s]")


def most_tokens(size: int) -> int:
    """Words and signs that a text of so many characters may have. Python's tree of a text takes 500 to 700 bytes for each, up to 600 for
    a character where there is little else (``----x``). Of 51 packages and 138 repositories no code has half as many."""
    return 100_000 + size // 4


def is_dense(text: str) -> bool:
    """Whether Python's tree of a text would fill the memory."""
    most = most_tokens(len(text))
    return len(text) > most and sum(1 for _ in _TOKEN.finditer(text)) > most


def parse(text: str) -> ast.Module:
    """``ast.parse`` with every failure as a SourceError that says where."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        raise SourceError(syntax_message(error, text), error.lineno or 1, max(error.offset or 1, 1)) from None
    except ValueError as error:
        raise SourceError(f"cannot be parsed: {error}") from None
    except (RecursionError, MemoryError):
        raise SourceError("is nested too deeply to be parsed") from None
