"""Digests of content."""

from torchmemlint.files.reading import MAX_CACHE_BYTES, read_parts


def digest(data: bytes) -> str:
    """Sixteen bytes that tell one content from another, as hexadecimal digits."""
    from hashlib import blake2b  # loads a library that a run without a cache has no need of

    return blake2b(data, digest_size=16).hexdigest()


def digest_of_file(path: str) -> str:
    """``digest`` of a cached file's content, read in parts. Raises OSError."""
    from hashlib import blake2b

    found = blake2b(digest_size=16)
    for part in read_parts(path, MAX_CACHE_BYTES):
        found.update(part)
    return found.hexdigest()
