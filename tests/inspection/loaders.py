"""What a payload is, and the loaders that handlers and the server open their files with."""

import io
import pickle
import shelve
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

import joblib
import numpy as np
from inspection.containers import written
from lazy import pd, torch

Found = Iterator[tuple[str, "Payload"]]
HELD = {"weights": [1.5, 2.5], "epoch": 3}  # what an honest file holds


class Payload(NamedTuple):
    """A member of an archive that runs code, and what a handler or the server opens it with."""

    content: bytes | Callable[[], bytes]  # a large one is made when it is asked for
    member: str
    load: Callable[[Path], object]
    files: Mapping[str, bytes] = {}  # packed beside it

    def make(self) -> bytes:
        """Return the member's bytes."""
        return self.content if isinstance(self.content, bytes) else self.content()


Loader = Callable[[Path], object]


def reader(read: Callable[[BinaryIO], object], name: str = "") -> Loader:
    """Return a loader that opens the file for a function; payloads have the loader's name in theirs."""

    def load(path: Path) -> object:
        with path.open("rb") as file:
            return read(file)

    load.__name__ = name
    return load


def expanding(expand: Callable[[bytes], bytes], load: Callable[[bytes], object] = pickle.loads) -> Loader:
    """Return a loader that expands the whole file first."""
    return lambda path: load(expand(path.read_bytes()))


def opened(opener: Callable[..., object]) -> Loader:
    """Return a loader that unpickles from a decompressing file."""

    def load(path: Path) -> object:
        with opener(path, "rb") as file:
            return pickle.load(file)

    return load


class Lenient(pickle.Unpickler):
    """As handlers do to leave the storages out."""

    def persistent_load(self, key: object) -> object:
        return None


load_pickle = reader(pickle.load, "load_pickle")
load_python = reader(
    pickle._load, "load_python"
)  # Python's own, which many subclass: cloudpickle's tools, torch.package
load_frames = reader(lambda file: [pickle._load(file) for _ in range(2)])  # it continues behind the first one's frame
load_buffers = reader(lambda file: pickle.load(file, buffers=[b"abcd"] * 3))
load_persistent = reader(lambda file: Lenient(file).load())
load_latin = expanding(bytes, partial(pickle.loads, encoding="latin1"))
load_aligned = expanding(lambda data: data[512:])
load_last = expanding(
    lambda data: data[struct.unpack("<Q", data[-8:])[0] :]
)  # the last eight bytes give the index's place
load_joblib: Loader = joblib.load
load_numpy: Loader = partial(np.load, allow_pickle=True)
load_numpy_twice = reader(lambda file: [np.load(file, allow_pickle=True) for _ in range(2)])
load_numpy_then_pickle = reader(lambda file: (np.load(file, allow_pickle=True), pickle.load(file)))
load_torch_then_pickle = reader(lambda file: (torch.load(file, weights_only=False), pickle.load(file)))


def load_bytes(path: Path) -> object:
    return pickle.loads(path.read_bytes())


def load_every(path: Path) -> object:
    """Unpickle one after the other up to the end, as files of records are read."""
    with path.open("rb") as file:
        records = []
        try:
            while True:
                records.append(pickle.load(file))
        except EOFError:
            return records


def load_stubborn(path: Path) -> object:
    """Unpickle again where the first reading broke off."""
    with path.open("rb") as file:
        with suppress(pickle.UnpicklingError, ValueError, KeyError):
            return pickle._load(file)
        return pickle.load(file)


def load_padded(path: Path) -> object:
    """Unpickle what follows one another with zeros or spaces between."""
    data = path.read_bytes()
    file = io.BytesIO(data)
    while file.tell() < len(data):
        if data[file.tell()] in b"\0 \n\t":
            file.seek(1, io.SEEK_CUR)
        else:
            pickle.load(file)


def load_records(path: Path) -> object:
    """Unpickle a list of pickled records, as datasets are kept."""
    with path.open("rb") as file:
        records = pickle.load(file)
    return [pickle.loads(item.encode("latin-1") if isinstance(item, str) else item) for item in records]


def load_again(path: Path) -> object:
    """Unpickle with Python's unpickler, and go on with C's where it fails, whatever the error is."""
    with path.open("rb") as file:
        with suppress(Exception):
            pickle._load(file)
        return pickle.load(file)


def load_pandas(path: Path) -> object:
    """Unpickle as pandas does: with C's unpickler, and with Python's after a TypeError or ValueError."""
    return pd.read_pickle(path)


def load_torch(path: Path) -> object:
    return torch.load(path, weights_only=False)


def load_npz(path: Path) -> object:
    with np.load(path, allow_pickle=True) as arrays:
        return [arrays[name] for name in arrays.files]


def _read_arrays(file: BinaryIO) -> list[object]:
    """Read arrays up to the end, without those that cannot be read."""
    end = file.seek(0, io.SEEK_END)
    file.seek(0)
    arrays = []
    while file.tell() < end:
        with suppress(ValueError, OverflowError, ZeroDivisionError):
            arrays.append(np.load(file, allow_pickle=True))
    return arrays


def load_arrays(path: Path) -> object:
    """Read all arrays of a file that was read into memory, as from a request or a zip."""
    return _read_arrays(io.BytesIO(path.read_bytes()))


def load_export(path: Path) -> object:
    return torch.export.load(path)


def load_package(path: Path) -> object:
    return torch.package.PackageImporter(path).load_pickle("model", "model.pkl")


def load_shelf(path: Path) -> object:
    with shelve.open(path.with_suffix("")) as shelf:
        return dict(shelf)


def from_tar(**options: object) -> Callable[[Path], object]:
    """Return a loader of every member of a tar."""

    def load(path: Path) -> object:
        with tarfile.open(path, **options) as archive:
            return [pickle.load(file) for member in archive if (file := archive.extractfile(member))]

    return load


def unzipped(data: bytes, password: bytes | None = None) -> bytes:
    """Return the last member of a zip."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read(archive.infolist()[-1], password)


load_zip = expanding(unzipped)
load_arrays_from_disk = reader(_read_arrays, "load_arrays_from_disk")
load_zipped_arrays = expanding(unzipped, lambda data: _read_arrays(io.BytesIO(data)))


def first_of(data: bytes) -> bytes:
    """Return the first member of a zip."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read(archive.infolist()[0])


def open_first(path: Path) -> object:
    """Unpickle the first member of a zip, read as far as the pickle goes."""
    with zipfile.ZipFile(path) as archive, archive.open(archive.infolist()[0]) as file:
        return pickle.load(file)


def load_storage(path: Path) -> object:
    """Unpickle what lies where torch keeps numbers."""
    with zipfile.ZipFile(path) as archive:
        return pickle.loads(archive.read("m/data/0"))


class Called:
    """Pickles to the call."""

    def __reduce__(self) -> object:
        import os

        return os.mkdir, ("canary",)


def torch_bytes(value: object, **options: object) -> bytes:
    return written(lambda file: torch.save(value, file, **options))
