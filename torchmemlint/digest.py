"""Digests of content."""


def digest(data: bytes) -> str:
    """Sixteen bytes that tell one content from another, as hexadecimal digits."""
    from hashlib import blake2b  # loads a library that a run without a cache has no need of

    return blake2b(data, digest_size=16).hexdigest()
