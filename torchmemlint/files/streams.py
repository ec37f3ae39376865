"""Standard error, for a run that goes on without it."""

from __future__ import annotations

import io
from contextlib import suppress


class Forgiving(io.TextIOWrapper):
    """Messages for which there is no room, or no reader, are lost; the exit status still says what they would have."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()
