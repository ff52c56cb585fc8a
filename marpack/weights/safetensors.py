"""The header of a safetensors file: its tensors and metadata, without the numbers."""

from typing import Annotated, BinaryIO

import msgspec
from msgspec import Meta, Struct

from marpack.weights.tensors import SAFETENSORS_DTYPES, StoredTensor, Tensor, WeightsHeader

_HEADER_LIMIT = 100_000_000  # bytes, the format's own
_LONGEST = 16 * 1024 * 1024  # bytes that are read: a header of 100,000 tensors has about eight million
_Natural = Annotated[int, Meta(ge=0)]


class _Described(Struct):
    dtype: str
    shape: tuple[_Natural, ...]
    data_offsets: tuple[_Natural, _Natural]


def looks_like(file: BinaryIO) -> bool:
    """Tell whether a file begins as a safetensors file does: a length that fits, then a JSON object."""
    size = file.seek(0, 2)
    file.seek(0)
    head = file.read(9)
    length = int.from_bytes(head[:8], "little")
    return len(head) == 9 and head[8:] == b"{" and 2 <= length <= min(size - 8, _HEADER_LIMIT)


def read_header(file: BinaryIO) -> WeightsHeader:
    """Read the header, each tensor its own storage. Raises ValueError when it is not one."""
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if length > _LONGEST:
        raise ValueError(f"it is {length:,} bytes long, and no more than {_LONGEST:,} are read")
    fields = msgspec.json.decode(file.read(length), type=dict[str, msgspec.Raw])
    metadata = msgspec.json.decode(fields.pop("__metadata__", b"{}"), type=dict[str, str])
    tensors = (_placed(name, msgspec.json.decode(raw, type=_Described), 8 + length) for name, raw in fields.items())
    return WeightsHeader(tensors=tuple(tensors), metadata=metadata)


def is_exact(file: BinaryIO) -> bool:
    """Return whether a whole file is safetensors: its tensors fill every byte behind the header."""
    if not looks_like(file):
        return False
    try:
        tensors = read_header(file).tensors
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return False
    file.seek(0)
    end = 8 + int.from_bytes(file.read(8), "little")
    for placed in sorted(tensors, key=lambda placed: (placed.offset, placed.storage_bytes)):
        if placed.offset != end or placed.storage_bytes != placed.tensor.bytes:
            return False
        end += placed.storage_bytes
    return end == file.seek(0, 2)


def _placed(name: str, item: _Described, base: int) -> StoredTensor:
    start, end = item.data_offsets
    stride, step = [], 1
    for size in reversed(item.shape):
        stride.append(step)
        step *= size
    return StoredTensor(
        tensor=Tensor(name=name, dtype=SAFETENSORS_DTYPES.get(item.dtype, item.dtype.lower()), shape=item.shape),
        storage=name,
        storage_bytes=max(0, end - start),
        offset=base + start,
        stride=tuple(reversed(stride)),
    )
