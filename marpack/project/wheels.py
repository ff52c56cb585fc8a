"""A locked wheel → the tree of files that it is at an archive's root, unpacked once into the cache."""

import csv
import hashlib
import re
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from msgspec import Struct

from marpack.archive.bytesource import LocalFile
from marpack.archive.cache import Cache, Cached
from marpack.archive.copying import file_digest
from marpack.archive.download import fetch_whole
from marpack.archive.extraction import extract_blocks
from marpack.archive.protocol import Bar, Limits, Progress, total_size
from marpack.archive.zip_reader import ZipArchive
from marpack.errors import ArchiveError, ProjectError
from marpack.findings import Finding

_BLOCK = 1 << 20  # bytes
_MAX_WHEEL = 4 << 30  # bytes of one whose size nobody has said yet
_SHARED = re.compile(r"\.(so(\.\d+)*|pyd|dylib)$")
_REDO = "marpack build --vendor resolves anew"


class LockedWheel(Struct, frozen=True, kw_only=True):
    """One line of vendor.lock."""

    name: str  # canonical
    version: str
    file: str
    url: str  # http, https or file, without credentials
    sha256: str  # lower-case hex
    size: int = 0  # bytes; 0: not known yet


def wheel_file(wheel: LockedWheel, cache: Cache, bar: Bar) -> Path:
    """Return a wheel as a file here, its bytes held to its digest; raises ProjectError, and what `fetch_whole` does."""
    if not wheel.url.startswith("file:"):
        return fetch_whole(wheel.url, cache, sha256=wheel.sha256, maximum=wheel.size or _MAX_WHEEL, bar=bar)
    path = Path(url2pathname(urlsplit(wheel.url).path))
    try:
        same = file_digest(path) == wheel.sha256
    except OSError as error:
        raise ProjectError(f"the wheel cannot be read: {error.strerror}", where=str(path), hint=_REDO) from None
    if not same:
        raise ProjectError("the wheel's SHA-256 is not the one in vendor.lock", where=str(path), hint=_REDO)
    return path


def wheel_tree(wheel: LockedWheel, cache: Cache, bar: Bar) -> Cached:
    """Return the folder of a wheel's files, under the names that they have at an archive's root.

    Raises ProjectError for a wheel that is not what it says, or native where its name says that it runs anywhere.
    """
    key = hashlib.sha256(f"wheel 1 {wheel.file} {wheel.sha256}".encode()).hexdigest()[:32]
    try:
        if (found := cache.find(key)) is not None:
            return found
        with closing(LocalFile(wheel_file(wheel, cache, bar))) as data:
            opened = ZipArchive(wheel.file, data, limits=Limits(), cache=cache)
            return cache.fill(key, partial(_extract, opened, wheel), size=total_size(opened))
    except ArchiveError as error:
        raise ProjectError(
            f"the wheel cannot be fetched or unpacked: {error.what}",
            where=wheel.file,
            hint=_REDO,
            code="unreadable-wheel",
        ) from error


def _extract(
    opened: ZipArchive, wheel: LockedWheel, folder: Path, names: Collection[str] | None, progress: Progress | None
) -> tuple[Finding, ...]:
    record = next((name for name in opened.entries if re.fullmatch(r"[^/]+\.dist-info/RECORD", name)), None)
    if record is None:
        raise _not_sound(wheel, "it has no RECORD")
    with opened.open(record) as file:
        rows = csv.reader(file.read().decode("utf-8", "replace").splitlines())
        digests = {row[0]: row[1] for row in rows if len(row) == 3}
    stem = record.removesuffix(".dist-info/RECORD")
    for name in sorted(opened.entries):
        place = _place(name, stem)
        if place and (names is None or place in names):
            extract_blocks(_verified(opened, name, digests.get(name), wheel), folder, place, progress)
    return ()


def _place(name: str, stem: str) -> str:
    """Return what a file of a wheel is called at an archive's root; "" where it has no place there."""
    top, _, rest = name.partition("/")
    kind, _, inner = rest.partition("/")
    if top == f"{stem}.data":  # scripts, headers and data lie outside of Python's path
        return inner if kind in {"purelib", "platlib"} else ""
    return "" if name.startswith(f"{stem}.dist-info/RECORD") or "__pycache__" in name.split("/") else name


def _verified(opened: ZipArchive, name: str, recorded: str | None, wheel: LockedWheel) -> Iterator[bytes]:
    """Yield a file's bytes; raises ProjectError for others than the wheel's RECORD says, and for code out of place."""
    digest = hashlib.sha256()
    with opened.open(name) as file:
        while data := file.read(_BLOCK):
            is_native = _SHARED.search(name) or (file.tell() == len(data) and data.startswith(b"\x7fELF"))
            if is_native and wheel.file.endswith("-any.whl"):
                raise _not_sound(wheel, f"its name says that it runs anywhere, and {name} is native code")
            digest.update(data)
            yield data
    if recorded != f"sha256={urlsafe_b64encode(digest.digest()).decode().rstrip('=')}":
        raise _not_sound(wheel, f"{name} is not what its RECORD says")


def _not_sound(wheel: LockedWheel, what: str) -> ProjectError:
    hint = "ask for another version in the requirements, then marpack build --vendor"
    return ProjectError(f"the wheel cannot be vendored: {what}", where=wheel.file, hint=hint)
