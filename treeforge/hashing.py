"""Content digests and derived seeds. One function for each, so that every digest in a run is made alike."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

import msgspec

DIGEST_SIZE = 16
_blake2b = hashlib.blake2b


def encode_text(text: str) -> bytes:
    """UTF-8; lone surrogates (a broken server's) are kept distinct rather than refused."""
    return text.encode("utf-8", "surrogatepass")


def digest(*parts: bytes) -> bytes:
    """16-byte BLAKE2b of the parts, each with its length, so that ("ab", "c") and ("a", "bc") differ."""
    h = _blake2b(digest_size=DIGEST_SIZE)
    for part in parts:
        h.update(len(part).to_bytes(8, "little"))
        h.update(part)
    return h.digest()


def chain(parent: bytes, text: str, occurrence: int = 0) -> bytes:
    """Digest of a prefix from its parent prefix's digest and the step that was added.

    `occurrence` separates byte-identical siblings that a strategy keeps apart (0 where they are merged).
    """
    salt = occurrence.to_bytes(8, "little") if occurrence else b""  # as eight zeros, and quicker
    return _blake2b(encode_text(text), key=parent, digest_size=DIGEST_SIZE, salt=salt).digest()


def request_digest(base: bytes, prefix: bytes, purpose: str, index: int, n: int) -> bytes:
    """Digest of all that determines a request's samples.

    `base` covers the policy's identity, the sampling parameters, the step format and the run seed; `prefix` is the
    chained digest of problem, prompt and steps.
    """
    h = _keyed(base, DIGEST_SIZE).copy()
    h.update(prefix + f"{purpose}:{index}:{n}".encode())
    return h.digest()


def derive_seed(run_seed: int, prefix: bytes, purpose: str, index: int) -> int:
    """A 63-bit seed from (run seed, problem and node, purpose, index)."""
    h = _keyed(run_seed.to_bytes(8, "little", signed=True), 8).copy()
    h.update(prefix + f"{purpose}:{index}".encode())
    return int.from_bytes(h.digest(), "little") >> 1


@lru_cache(maxsize=16)
def _keyed(key: bytes, size: int) -> hashlib.blake2b:
    """A hasher to copy: all requests of a run share the key, and a copy costs half as much as a new one."""
    return _blake2b(key=key, digest_size=size)


def digest_object(value: object) -> bytes:
    """Digest of a config or mapping, independent of key order."""
    return digest(msgspec.json.encode(value, order="deterministic"))


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
