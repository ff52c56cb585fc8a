"""A .tar.gz behind the protocol of archives: listed once, read again."""

import io
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Self

from msgspec import Struct

from marpack.archive.bytesource import ByteSource
from marpack.archive.cache import Cache, Cached
from marpack.archive.extraction import extract_blocks, make_folders
from marpack.archive.manifest import Manifest
from marpack.archive.member import spool
from marpack.archive.names import check_member_names
from marpack.archive.protocol import MANIFEST_NAME, ArchiveForm, Entry, Limits, Method, Progress, total_size
from marpack.archive.server_rules import common_root, read_manifest, refused
from marpack.archive.tar_stream import GzipStream, Record, padding, records
from marpack.errors import DamagedArchiveError, LimitExceededError, located
from marpack.findings import Finding

_RAISE = "raise the limit if you trust it: --max-"
_SMALL = 1 << 20  # bytes of a member that is kept in memory…
_ALL_SMALL = 1 << 24  # …as long as there are no more of them together


class TarListing(Struct, frozen=True, kw_only=True):
    """The members of a .tar.gz; their names are safe and unique."""

    names: Mapping[str, str]  # as a record has it → as the archive's entry is called; "" for the root folder
    entries: Mapping[str, Entry]
    folders: tuple[str, ...]
    small: Mapping[str, bytes]  # the bytes of small members, read in passing
    findings: tuple[Finding, ...]


def walk(data: ByteSource, limits: Limits) -> Iterator[tuple[Record, Iterator[memoryview]]]:
    """Yield each record with its bytes, which may be left unread; checks the end and the CRC of the stream.

    Raises ArchiveError naming the member at fault.
    """
    stream = GzipStream(data, limits)
    for record in records(stream):
        blocks = stream.blocks(record.size)
        yield record, blocks
        for _ in blocks:
            pass
        stream.read(padding(record.size))
    stream.finish()


def read_contents(data: ByteSource, limits: Limits, source: str) -> TarListing:
    """Read all records and check them together; raises ArchiveError naming the member at fault."""
    found: list[Record] = []
    small: dict[str, bytes] = {}
    room, total = _ALL_SMALL, 0
    for record, blocks in walk(data, limits):
        found.append(record)
        total += record.size
        if len(found) > limits.members:
            raise LimitExceededError(f"the tar has more than {limits.members} members", hint=_RAISE + "members")
        if total > limits.total:
            raise LimitExceededError(f"the members have more than {limits.total} bytes", hint=_RAISE + "size")
        if not record.folder and record.size <= min(_SMALL, room):
            room -= record.size
            small[record.name] = b"".join(map(bytes, blocks))
    return _contents(found, small, source)


def _contents(found: list[Record], small: dict[str, bytes], source: str) -> TarListing:
    files = [record for record in found if not record.folder]
    folders = [record.name for record in found if record.folder]
    plain = {record.name: _plain(record.name) for record in found}
    check_member_names([plain[file.name] for file in files], [plain[name] for name in folders if plain[name]])
    served = {record.name: _served(record) for record in found}
    names, findings = served, (refused("archive-suffix", source, "a .tar.gz"),) if source.endswith(".mar") else ()
    if MANIFEST_NAME not in {served[file.name] for file in files}:
        root = common_root(plain[file.name] for file in files)
        names = {name: f"{short}/".removeprefix(root).removesuffix("/") for name, short in plain.items()}
        findings = (refused("tgz-no-root-folder", source), *findings)
    check_member_names([names[file.name] for file in files], [names[name] for name in folders if names[name]])
    return TarListing(
        names=names,
        entries=MappingProxyType({names[file.name]: _entry(names[file.name], file.size) for file in files}),
        folders=tuple(names[name] for name in folders if names[name]),
        small={names[name]: content for name, content in small.items()},
        findings=findings,
    )


def _plain(name: str) -> str:
    """Return a record's name without what says nothing: "./" before it, and a folder's slash."""
    return "" if name in (".", "./") else name.removeprefix("./").removesuffix("/")


def _served(record: Record) -> str:
    """Return a record's name as the server has it: without its first step."""
    name = record.name.rstrip("/") + "/" if record.folder else record.name
    return name[name.find("/") + 1 :].removesuffix("/")


def _entry(name: str, size: int) -> Entry:
    return Entry(name=name, size=size, compressed_size=size, method=Method.DEFLATED)


class TarArchive:
    """A tar in a gzip stream; see `marpack.archive.protocol.Archive`.

    Nothing is read until something is asked for, and nothing at all when the cache has it extracted.
    """

    form = ArchiveForm.TGZ

    def __init__(self, source: str, data: ByteSource, *, limits: Limits, cache: Cache) -> None:
        """Take the file; what is wrong with it is found by the first use."""
        self.source = source
        self._data = data
        self._limits = limits
        self._cache = cache

    @cached_property
    def _contents(self) -> TarListing:
        with located(self.source):
            return read_contents(self._data, self._limits, self.source)

    @cached_property
    def _extracted(self) -> Cached | None:
        """What the cache has, as long as the archive itself was not read."""
        return None if "_contents" in vars(self) else self._cache.find(self._data.identity)

    @property
    def entries(self) -> Mapping[str, Entry]:
        """Every file by its name; see `Archive.entries`."""
        return self._contents.entries

    @property
    def server_findings(self) -> tuple[Finding, ...]:
        """What the server refuses; see `Archive.server_findings`."""
        return self._extracted.findings if self._extracted else self._contents.findings

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest; see `Archive.manifest`."""
        if not self._extracted:
            return read_manifest(self)
        data = (self._extracted.folder / MANIFEST_NAME).read_bytes()
        return Manifest.from_json(data, where=f"{self.source}!{MANIFEST_NAME}")

    def open(self, name: str) -> BinaryIO:
        """Open one member; see `Archive.open`. The gzip stream's own CRC was checked when it was first read."""
        contents = self._contents
        if name in contents.small:
            return io.BytesIO(contents.small[name])
        _ = contents.entries[name]
        with located(self.source):
            for record, blocks in walk(self._data, self._limits):
                if contents.names.get(record.name) == name:
                    return spool(blocks)
        raise self._changed()

    def materialize(self) -> Path:
        """Return the extracted folder; see `Archive.materialize`."""
        if self._extracted and not self._extracted.is_whole:
            del self._extracted
        if not self._extracted:
            _ = self.manifest  # what is wrong with it is said before anything is written
            self._extracted = self._cache.fill(self._data.identity, self._fill, size=total_size(self))
        return self._extracted.folder

    def extract(self, folder: Path, names: Collection[str] | None = None, progress: Progress | None = None) -> None:
        """Write members into a folder; see `Archive.extract`."""
        contents = self._contents
        make_folders(folder, contents.folders if names is None else ())
        with located(self.source):
            for record, blocks in walk(self._data, self._limits):
                if record.name not in contents.names:
                    raise self._changed()
                name = contents.names[record.name]
                if not record.folder and (names is None or name in names):
                    extract_blocks(blocks, folder, name, progress)

    def _fill(self, folder: Path, names: Collection[str] | None, progress: Progress | None) -> tuple[Finding, ...]:
        self.extract(folder, names, progress)
        return self._contents.findings

    def _changed(self) -> DamagedArchiveError:
        return DamagedArchiveError("the archive changed while it was being read", where=self.source)

    def close(self) -> None:
        """Let go of the file, and of the folder in the cache."""
        self._data.close()
        self._cache.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
