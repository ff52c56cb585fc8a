"""Digests of single tensors' numbers: the same for the same numbers, whatever file and format they lie in."""

import hashlib
from typing import BinaryIO

from marpack.weights.detect import Recognized
from marpack.weights.tensors import Placed
from marpack.weights.zip_entries import NotZipError

_BLOCK = 1 << 20  # bytes


def tensor_digest(file: BinaryIO, found: Recognized, placed: Placed) -> str | None:
    """Return the SHA-256 of a tensor's numbers in the order of its shape; None where they cannot be read that way.

    A tensor that is not contiguous is digested with the whole of its storage, offset and strides: two such are the
    same only when they lie the same way.
    """
    if placed.storage is None:
        return None
    try:
        if placed.inside is None:
            return _digest(file, placed)
        return _digest(found.zip.open(placed.inside), placed) if found.zip else None
    except (KeyError, NotZipError):
        return None


def _digest(file: BinaryIO, placed: Placed) -> str | None:
    digest = hashlib.sha256()
    begin, left = placed.offset, placed.tensor.bytes
    if not placed.contiguous:
        digest.update(repr((placed.offset, placed.stride)).encode())
        begin, left = 0, placed.storage_bytes
    file.seek(begin)
    while left:
        block = file.read(min(_BLOCK, left))
        if not block:
            return None
        digest.update(block)
        left -= len(block)
    return digest.hexdigest()
