"""Digests of content."""

from torchmemlint.files.reading import MAX_CACHE_BYTES, read_parts


def digest(data: bytes) -> str:
    """Sixteen bytes that distinguish one content from another, as hexadecimal digits."""
    from hashlib import blake2b  # loads a library that a run without a cache has no need of

    return blake2b(data, digest_size=16).hexdigest()


def digest_of_file(path: str) -> str:
    """``digest`` of a cached file's content, read in parts. Raises OSError."""
    from hashlib import blake2b

    found = blake2b(digest_size=16)
    for part in read_parts(path, MAX_CACHE_BYTES):
        found.update(part)
    return found.hexdigest()


def sealed(secret: bytes, name: str, data: bytes) -> bytes:
    """The seal of what is kept under a name, which only those can make who have the secret."""
    from hashlib import blake2b

    found = blake2b(name.encode(), key=secret, digest_size=16)
    found.update(b"\n")
    found.update(data)
    return found.hexdigest().encode()


def same(one: bytes, other: bytes) -> bool:
    """Whether two seals are the same, in a time that does not depend on where they differ."""
    from hmac import compare_digest

    return compare_digest(one, other)
