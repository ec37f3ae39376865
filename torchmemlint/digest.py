"""Digests of content."""

from hashlib import blake2b


def digest(data: bytes) -> str:
    """Sixteen bytes that tell one content from another, as hexadecimal digits."""
    return blake2b(data, digest_size=16).hexdigest()
