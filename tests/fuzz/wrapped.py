"""Files that wrap pickles: how each is made, and which bytes of it its real reader unpickles."""

import bz2
import gzip
import io
import lzma
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, Any, NamedTuple

import numpy as np
from fuzz import seeds
from fuzz.oracle import count, is_allowed, is_listed, some_variants
from fuzz.streams import Maker
from fuzz.unpicklers import JOBLIB, Variant, load_all
from inspection.containers import zipped
from lazy import torch

from marpack.inspection.nested_files import NestedScan
from marpack.inspection.pickles import PickleScan, PickleVerdict, scan_of
from marpack.weights.contents import recognize
from marpack.weights.pickle import ALLOWED

NAMES = ["a.pkl", "a.pt", "a.txt", "a", "a.bin", "a.pkl.gz", "a.joblib", "weights.bin", "a.npy", "a.tar", "a.PTH"]
_MAGIC = b"".join(pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))


class Wrapping(NamedTuple):
    """One way to wrap a file."""

    wrap: Callable[[bytes], bytes]
    unwrap: Callable[[bytes], Iterator[bytes]]


def drained(open_file: Callable[[], IO[bytes]]) -> bytes:
    """Return what can be read of a file before it fails, as an unpickler reads it."""
    out = bytearray()
    with suppress(Exception), open_file() as file:
        while len(out) < 1 << 16 and (byte := file.read(1)):
            out += byte
    return bytes(out)


def opened(opener: Callable[..., Any], **options: Any) -> Callable[[bytes], Iterator[bytes]]:
    def unwrap(data: bytes) -> Iterator[bytes]:
        yield drained(lambda: opener(io.BytesIO(data), "rb", **options))

    return unwrap


def inflated(data: bytes) -> Iterator[bytes]:
    engine, out = zlib.decompressobj(), bytearray()
    with suppress(zlib.error):
        for byte in data:
            out += engine.decompress(bytes([byte]))
    yield bytes(out)


def tolerant(unwrap: Callable[[bytes], Iterator[bytes]]) -> Callable[[bytes], Iterator[bytes]]:
    """Return a reader that ends where a damaged file raises anything."""

    def read(data: bytes) -> Iterator[bytes]:
        with suppress(Exception):
            yield from unwrap(data)

    return read


@tolerant
def from_zip(data: bytes) -> Iterator[bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.infolist():
            yield drained(lambda member=member: archive.open(member))  # type: ignore[misc]


@tolerant
def from_tar(data: bytes) -> Iterator[bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            if file := archive.extractfile(member):
                yield drained(lambda file=file: file)  # type: ignore[misc]


@tolerant
def from_numpy(data: bytes) -> Iterator[bytes]:
    """Yield what follows an array's header, or its numbers."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    read = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}[version[0]]
    shape, _, dtype = read(file)
    if not dtype.hasobject:
        file.seek(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize, io.SEEK_CUR)
    yield file.read()


@tolerant
def from_torch(data: bytes) -> Iterator[bytes]:
    yield torch._C.PyTorchFileReader(io.BytesIO(data)).get_record("data.pkl")


def from_values(data: bytes) -> Iterator[bytes]:
    """Yield the byte strings in a pickled list, as records of a data set are kept."""
    for variant in (Variant(True, "latin1", False, 0), Variant(False, "latin1", False, 0)):
        values: list[object] = []
        load_all(data, variant, values.append)
        for value in values:
            yield from (
                (bytes(item) for item in value if isinstance(item, bytes | bytearray)) if type(value) is list else ()
            )


def numpy_header(descr: str) -> Callable[[bytes], bytes]:
    def wrap(data: bytes) -> bytes:
        text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': (2,), }}\n".encode()
        numbers = b"" if "O" in descr or "object" in descr else bytes(16)
        return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + numbers + data

    return wrap


def torch_zip(data: bytes) -> bytes:
    return zipped({"m/data.pkl": data, "m/byteorder": b"little", "m/version": b"3\n", "m/data/0": bytes(8)})


def as_it_is(data: bytes) -> Iterator[bytes]:
    yield data


def plain_tar(data: bytes) -> bytes:
    return seeds.tarred({"x": data, "y.pkl": b"N."}, "w", tarfile.GNU_FORMAT)


WRAPPINGS = {
    "zip": Wrapping(lambda data: zipped({"x": data, "b/y.pkl": b"N."}), from_zip),
    "deflated": Wrapping(lambda data: seeds.zipped({"a.pkl": b"N.", "x": data}), from_zip),
    "zip behind something": Wrapping(lambda data: b"GIF89a" + bytes(50) + seeds.zipped({"x": data}), from_zip),
    "tar": Wrapping(plain_tar, from_tar),
    "tar.gz": Wrapping(lambda data: gzip.compress(plain_tar(data), 1, mtime=0), from_tar),
    "gzip": Wrapping(lambda data: gzip.compress(data, mtime=0), opened(gzip.open)),
    "two gzips": Wrapping(
        lambda data: gzip.compress(data[:9], mtime=0) + gzip.compress(data[9:], mtime=0), opened(gzip.open)
    ),
    "zlib": Wrapping(zlib.compress, inflated),
    "stored zlib": Wrapping(lambda data: zlib.compress(data, 0), inflated),
    "bz2": Wrapping(bz2.compress, opened(bz2.open)),
    "xz": Wrapping(lambda data: lzma.compress(data, preset=0), opened(lzma.open)),
    "lzma": Wrapping(lambda data: lzma.compress(data, lzma.FORMAT_ALONE, preset=0), opened(lzma.open)),
    "objects": Wrapping(numpy_header("'|O'"), from_numpy),
    "objects in fields": Wrapping(numpy_header("[('a', '<f8'), ('b', '|O8')]"), from_numpy),
    "numbers before": Wrapping(numpy_header("'<f8'"), from_numpy),
    "bytes before": Wrapping(numpy_header("'|S8'"), from_numpy),
    "torch": Wrapping(torch_zip, from_torch),
    "legacy torch": Wrapping(lambda data: _MAGIC + data + pickle.dumps([], 2), as_it_is),
    "behind a pickle": Wrapping(lambda data: pickle.dumps([1], 2) + b"\0\n" + data, as_it_is),
    "in a value": Wrapping(lambda data: pickle.dumps([b"\x80\4" + data, 1], 4), from_values),
    "bare": Wrapping(lambda data: data, as_it_is),
}

_TORCH = ("torch", "legacy torch")  # joblib reads none of what torch unpickles


class Case(NamedTuple):
    """A file to scan."""

    data: bytes
    chain: tuple[str, ...]  # its wrappings, the outermost first
    name: str
    variants: tuple[Variant, ...]


def made(maker: Maker) -> Case:
    """Return a pickle in up to three wrappings, either of them damaged now and then."""
    random = maker.random
    chain = tuple(random.choice(list(WRAPPINGS)) for _ in range(random.choice([1, 1, 1, 2, 2, 3])))
    data = maker.arrays() if random.random() < 0.15 else maker.stream()
    for name in reversed(chain):
        data = WRAPPINGS[name].wrap(data)
        if random.random() < 0.12:
            data = maker.damaged(data)
    return Case(data, chain, random.choice(NAMES), tuple(some_variants(random)))


def leaves(data: bytes, chain: tuple[str, ...]) -> Iterator[bytes]:
    """Yield the files that somebody unpickles who undoes the wrappings."""
    if not chain:
        yield data
        return
    for inner in WRAPPINGS[chain[0]].unwrap(data):
        yield from leaves(inner, chain[1:])


def scanned(data: bytes, name: str) -> PickleScan:
    file, walk = io.BytesIO(data), NestedScan(weights="weights.bin")
    return scan_of(list(walk.file(name, file, recognize(file, walk.budget))))


def compare_wrapped(case: Case, seen: Counter[str] | None = None) -> Iterator[str]:
    """Yield the differences that make marpack's word on a file wrong; count what was loaded."""
    scan, seen = scanned(case.data, case.name), Counter() if seen is None else seen
    seen["wrapped, not scanned completely"] += bool(scan.unscanned)
    if scan.unscanned:
        return  # which is said, and needs trust
    listed = {name for pickle in scan.pickles for name in pickle.globals}
    listed |= {name for stray in scan.stray_imports for name in stray.globals} | ALLOWED
    is_computed = any(reason.startswith("it computes") for pickle in scan.pickles for reason in pickle.reasons)
    for data in leaves(case.data, case.chain):
        by_joblib = [JOBLIB] if b"NumpyArrayWrapper" in data and case.chain[-1] not in _TORCH else []
        for variant in (*case.variants, *by_joblib):
            for load in load_all(data, variant):
                count(load, seen)
                for spellings in load.imports:
                    if not (is_computed or is_listed(spellings, lambda module, name: f"{module}.{name}" in listed)):
                        yield f"the import of {spellings[-1]} is not listed ({variant})"
                if scan.verdict is PickleVerdict.SAFE and not all(map(is_allowed, load.events)):
                    yield f"safe, but {next(event for event in load.events if not is_allowed(event))} ({variant})"
