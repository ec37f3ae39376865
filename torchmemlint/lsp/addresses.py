"""URIs of documents → files."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote_to_bytes, urlsplit

from torchmemlint.lsp.buffers import open_path

_DRIVE = re.compile(r"/[A-Za-z]:")


def path_of(uri: str) -> str:
    """The absolute path of a document; one that has no file on this machine stands in the current folder."""
    path = file_of(uri)
    if path is None:
        name = re.sub(r"\W+", "_", uri)[:100]
        path = os.path.abspath(f"{name}.ipynb" if "ipynb" in uri else f"{name}.py")
    return open_path(path)


def file_of(uri: str) -> str | None:
    """The absolute path that a URI of a file names, None for any other: of another scheme, of another host (on Windows, a share),
    relative, or with a null byte. Bytes that are not UTF-8 are kept, as names have them."""
    try:
        parts = urlsplit(uri)
    except ValueError:  # half an address of IPv6
        return None
    path = os.fsdecode(unquote_to_bytes(parts.path))
    if parts.scheme != "file" or "\0" in path:
        return None
    if os.name == "nt":
        path = f"//{parts.netloc}{path}" if parts.netloc else path[1:] if _DRIVE.match(path) else path
    elif parts.netloc not in ("", "localhost"):
        return None
    return os.path.normpath(path) if os.path.isabs(path) else None
