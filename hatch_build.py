"""The README as a package index shows it: relative links lead to the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = re.compile(r"(?<=\]\()(?!https?://|#)([^)\s]+)(?=\))")


class ReadmeHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        home = metadata["urls"]["Homepage"].rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, home)}


def absolute(text: str, home: str) -> str:
    """Markdown whose relative links begin with an address."""
    return RELATIVE.sub(lambda link: f"{home}/{link[1]}", text)
