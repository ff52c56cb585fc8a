"""What a payload is, and the loaders that handlers and the server open their files with."""

import io
import pickle
import shelve
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

import joblib
import numpy as np
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


def load_pickle(path: Path) -> object:
    with path.open("rb") as file:
        return pickle.load(file)


def load_bytes(path: Path) -> object:
    return pickle.loads(path.read_bytes())


def load_python(path: Path) -> object:
    """Unpickle as Python's own unpickler does, which many subclass: cloudpickle's tools, torch.package."""
    with path.open("rb") as file:
        return pickle._load(file)


def load_latin(path: Path) -> object:
    return pickle.loads(path.read_bytes(), encoding="latin1")


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


def load_aligned(path: Path) -> object:
    """Unpickle what begins behind a header of 512 bytes."""
    with path.open("rb") as file:
        file.seek(512)
        return pickle.load(file)


def load_last(path: Path) -> object:
    """Unpickle an index whose place the last eight bytes tell."""
    data = path.read_bytes()
    return pickle.loads(data[struct.unpack("<Q", data[-8:])[0] :])


def load_records(path: Path) -> object:
    """Unpickle a list of pickled records, as datasets are kept."""
    with path.open("rb") as file:
        records = pickle.load(file)
    return [pickle.loads(item.encode("latin-1") if isinstance(item, str) else item) for item in records]


def load_buffers(path: Path) -> object:
    with path.open("rb") as file:
        return pickle.load(file, buffers=[b"abcd"] * 3)


class Lenient(pickle.Unpickler):
    """As handlers do to leave the storages out."""

    def persistent_load(self, key: object) -> object:
        return None


def load_persistent(path: Path) -> object:
    with path.open("rb") as file:
        return Lenient(file).load()


def load_again(path: Path) -> object:
    """Unpickle with Python's unpickler, and go on with C's where it fails, whatever the error is."""
    with path.open("rb") as file:
        with suppress(Exception):
            pickle._load(file)
        return pickle.load(file)


def load_frames(path: Path) -> object:
    """Unpickle two pickles with Python's unpickler, which continues behind the frame that the first one opened."""
    with path.open("rb") as file:
        return pickle._load(file), pickle._load(file)


def load_joblib(path: Path) -> object:
    return joblib.load(path)


def load_pandas(path: Path) -> object:
    """Unpickle as pandas does: with C's unpickler, and with Python's after a TypeError or ValueError."""
    return pd.read_pickle(path)


def load_torch(path: Path) -> object:
    return torch.load(path, weights_only=False)


def load_torch_then_pickle(path: Path) -> object:
    with path.open("rb") as file:
        return torch.load(file, weights_only=False), pickle.load(file)


def load_numpy(path: Path) -> object:
    return np.load(path, allow_pickle=True)


def load_npz(path: Path) -> object:
    with np.load(path, allow_pickle=True) as arrays:
        return [arrays[name] for name in arrays.files]


def load_numpy_twice(path: Path) -> object:
    with path.open("rb") as file:
        return [np.load(file, allow_pickle=True) for _ in range(2)]


def load_numpy_then_pickle(path: Path) -> object:
    with path.open("rb") as file:
        return np.load(file), pickle.load(file)


def load_arrays(path: Path) -> object:
    """Read all arrays of a file that was read into memory, as from a request or a zip."""
    return _read_arrays(io.BytesIO(path.read_bytes()))


def load_arrays_from_disk(path: Path) -> object:
    with path.open("rb") as file:
        return _read_arrays(file)


def load_zipped_arrays(path: Path) -> object:
    return _read_arrays(io.BytesIO(unzipped(path.read_bytes())))


def _read_arrays(file: BinaryIO) -> list[object]:
    """Read arrays up to the end, without those that cannot be read."""
    end = file.seek(0, io.SEEK_END)
    file.seek(0)
    arrays = []
    while file.tell() < end:
        with suppress(ValueError, OverflowError, ZeroDivisionError):
            arrays.append(np.load(file, allow_pickle=True))
    return arrays


def load_export(path: Path) -> object:
    return torch.export.load(path)


def load_package(path: Path) -> object:
    return torch.package.PackageImporter(path).load_pickle("model", "model.pkl")


def load_shelf(path: Path) -> object:
    with shelve.open(path.with_suffix("")) as shelf:
        return dict(shelf)


def expanding(
    expand: Callable[[bytes], bytes], load: Callable[[bytes], object] = pickle.loads
) -> Callable[..., object]:
    """Return a loader that expands the whole file first."""
    return lambda path: load(expand(path.read_bytes()))


def opened(opener: Callable[..., object]) -> Callable[[Path], object]:
    """Return a loader that unpickles from a decompressing file."""

    def load(path: Path) -> object:
        with opener(path, "rb") as file:
            return pickle.load(file)

    return load


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


def load_numpy_then_objects(path: Path) -> object:
    with path.open("rb") as file:
        return np.load(file, allow_pickle=True), pickle.load(file)


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
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()
