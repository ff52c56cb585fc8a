"""What torch.save wrote before torch 1.6: five pickles in a row, then the storages, raw."""

from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

from msgspec.structs import replace

from marpack.weights.bytestream import read_at
from marpack.weights.pickle_machine import OpcodeBudget, read_pickle
from marpack.weights.pickle_stream import Stream
from marpack.weights.tensors import StoredTensor, storage_width

_MAGIC = 0x1950A86A20F9469CFC6C
_COUNT = 8  # bytes before each storage: how many elements it has
_PICKLES = 5  # magic number, protocol, system, object, storage keys


def looks_like(file: BinaryIO, head: bytes) -> bool:
    """Tell whether a file that begins with `head` begins with the pickled magic number."""
    return head[:1] in (b"\x80", b"L") and read_pickle(file, limit=4).root == _MAGIC


def read_pickles(file: BinaryIO, budget: OpcodeBudget) -> list[Stream]:
    """Read the file's pickles in order; fewer than five when one of them breaks off."""
    streams: list[Stream] = []
    end = 0
    for _ in range(_PICKLES):
        streams.append(budget.read(file, end))
        end = streams[-1].end
        if streams[-1].problem is not None:
            break
    return streams


def saved_object(streams: Sequence[Stream]) -> Stream | None:
    """Return the pickle of the saved object itself."""
    return streams[3] if len(streams) > 3 else None


def end_of_storages(file: BinaryIO, streams: Sequence[Stream]) -> int | None:
    """Return where the storages end, if all of them are there, as their lengths tell; else None."""
    saved = saved_object(streams)
    keys = streams[4].root if len(streams) == _PICKLES else None
    if saved is None or not isinstance(keys, list):
        return None
    at = streams[-1].end
    for key in keys:
        kind, count = saved.storages.get(key, (None, 0)) if isinstance(key, str) else (None, 0)
        if kind is None or read_at(file, at, _COUNT) != count.to_bytes(_COUNT, "little"):
            return None
        at += _COUNT + count * storage_width(kind)
    return at if at <= file.seek(0, 2) else None


def with_places(streams: Sequence[Stream], tensors: Iterable[StoredTensor]) -> Iterator[StoredTensor]:
    """Yield tensors with their offsets in the file, as far as the sizes of the storages before them are known."""
    found = list(tensors)
    sizes = {placed.storage: placed.storage_bytes for placed in found if placed.storage is not None}
    begins: dict[str, int] = {}
    at = streams[-1].end if streams else 0
    keys = streams[4].root if len(streams) > 4 else None  # in the order in which the storages lie in the file
    for key in keys if isinstance(keys, list) else ():
        if not isinstance(key, str) or key not in sizes:
            break
        begins[key] = at + _COUNT
        at += _COUNT + sizes[key]
    for placed in found:
        if placed.storage in begins:
            yield replace(placed, offset=begins[placed.storage] + placed.offset)
        else:
            yield replace(placed, storage=None)
