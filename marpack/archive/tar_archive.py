"""A .tar.gz behind the protocol of archives: decompressed once, then read by range."""

import tarfile
from collections.abc import Collection, Mapping
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from isal import isal_zlib
from msgspec import Struct

from marpack.archive.bytesource import ByteSource, Spool
from marpack.archive.cache import Cache, Cached
from marpack.archive.manifest import Manifest
from marpack.archive.protocol import (
    MANIFEST_NAME,
    MAX_NAME,
    Archive,
    ArchiveForm,
    Entry,
    Limits,
    Method,
    Progress,
    check_member_names,
    common_root,
    quoted,
    total_size,
)
from marpack.archive.sagemaker import handler_source, missing_members
from marpack.archive.staging import extract_blocks, make_folders
from marpack.errors import ArchiveError, DamagedArchiveError, LimitExceededError, UnsafeArchiveError, located
from marpack.finding_codes import ARCHIVE_SUFFIX, SAGEMAKER_LAYOUT, TGZ_NO_ROOT_FOLDER
from marpack.findings import Finding

_READ, _PIECE = 1 << 18, 1 << 20  # bytes asked of the file, and of the inflater
_GZIP = 31  # zlib's code for a gzip header and trailer with the largest window
_InflateError: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stub calls the class an instance
_ZEROS = bytes(tarfile.BLOCKSIZE)
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE)
_EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_MAX_EXTENDED = 1 << 16  # bytes of a pax record or a long name
_KINDS = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a FIFO",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}
_PACK = "Pack the file itself."


def decompress(data: ByteSource, limits: Limits, spool: Spool) -> None:
    """Write a gzip stream's content into a spool; raises ArchiveError for a stream that is damaged or too large."""
    inflater = isal_zlib.decompressobj(_GZIP)
    place = 0  # in the file
    while not inflater.eof:
        pending = inflater.unconsumed_tail
        if not pending:
            pending = data.read_at(place, min(_READ, data.size - place))
            place += len(pending)
        try:
            block: bytes = inflater.decompress(pending, _PIECE)
        except _InflateError as error:
            raise DamagedArchiveError(f"the gzip stream cannot be decompressed: {error}") from None
        if not pending and not block and not inflater.eof:
            raise DamagedArchiveError("the gzip stream is truncated")
        size = spool.size + len(block)
        if size > limits.total + limits.allowance:
            raise LimitExceededError(f"the archive's content is larger than {limits.total} bytes")
        if limits.expands_too_much(size, data.size):
            raise LimitExceededError(f"the archive's content is more than {limits.ratio} times larger than its file")
        spool.write(block)
    rest = inflater.unused_data + data.read_at(place, min(_READ, data.size - place))
    if place + _READ < data.size or rest.lstrip(b"\0"):
        what = "there are bytes after the end of the gzip stream; the server reads only the first stream"
        raise UnsafeArchiveError(what, hint="Compress the tar again as one stream.")


class Record(Struct, frozen=True):
    """A file or a folder of a tar."""

    name: str  # as in the header; a folder's may end with a slash
    size: int  # bytes
    offset: int  # of these in the tar
    folder: bool


def read_records(spool: Spool, limits: Limits) -> list[Record]:
    """Read the headers of a tar; raises ArchiveError naming the member at fault."""
    found: list[Record] = []
    total = place = 0
    pax: dict[str, str] = {}
    long_name: bytes | None = None
    while (block := spool.read(place, tarfile.BLOCKSIZE)) != _ZEROS:
        header = _parse_header(block)
        place, size = place + tarfile.BLOCKSIZE, header.size
        if header.type in _EXTENDED:
            pax, long_name = _read_extended(header, spool.read(place, min(size, _MAX_EXTENDED + 1)), pax, long_name)
        else:  # after a long name of a link, the link itself is refused here
            record = _parse_record(header, block, long_name, pax, place)
            pax, long_name, size = {}, None, record.size
            found.append(record)
            total += size
            if len(found) > limits.members:
                raise LimitExceededError(f"the tar has more than {limits.members} members")
            if total > limits.total:
                raise LimitExceededError(f"the members have more than {limits.total} bytes")
        if place + size > spool.size:
            raise DamagedArchiveError("the tar ends in the middle of a member")
        place += size + -size % tarfile.BLOCKSIZE
    if pax or long_name is not None:
        raise DamagedArchiveError("the tar ends with a header that has no member")
    if any(bytes(rest).lstrip(b"\0") for rest in spool.blocks(place, spool.size - place)):
        raise UnsafeArchiveError("there are bytes after the archive's last record")
    return found


def _read_extended(
    header: tarfile.TarInfo, data: bytes, pax: dict[str, str], long_name: bytes | None
) -> tuple[dict[str, str], bytes | None]:
    """Return the pax fields and the long name for the next member, after one more extended header."""
    if header.size > _MAX_EXTENDED:
        raise UnsafeArchiveError(f"the extended header {quoted(header.name)} has more than {_MAX_EXTENDED} bytes")
    if header.type == tarfile.GNUTYPE_LONGNAME:
        return pax, data.rstrip(b"\0")
    if header.type == tarfile.XHDTYPE:
        return _parse_pax(data, header.name), long_name
    if header.type == tarfile.XGLTYPE:
        for key in _parse_pax(data, header.name):
            if key in ("path", "size", "linkpath") or key.startswith("GNU.sparse"):
                raise UnsafeArchiveError(f"a global header of the tar sets {quoted(key)} for all members")
    return pax, long_name


def _parse_header(block: bytes) -> tarfile.TarInfo:
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.EmptyHeaderError, tarfile.TruncatedHeaderError):  # type: ignore[attr-defined]  # not in its stub
        raise DamagedArchiveError("the tar has no end: it is truncated") from None
    except tarfile.HeaderError as error:
        raise DamagedArchiveError(f"a header of the tar cannot be read, or this is not a tar: {error}") from None
    if header.size < 0:
        raise DamagedArchiveError(f"the member {quoted(header.name)} has no readable size")
    return header


def _parse_record(
    header: tarfile.TarInfo, block: bytes, long_name: bytes | None, pax: Mapping[str, str], offset: int
) -> Record:
    if long_name is None:  # GNU keeps times in the place of POSIX's prefix, which tarfile ignores
        long_name, prefix = (field.partition(b"\0")[0] for field in (block[:100], block[345:500]))
        long_name = prefix + b"/" + long_name if prefix and block[257:263] == b"ustar\0" else long_name
    name = pax["path"] if "path" in pax else _text(long_name)
    if any(key.startswith("GNU.sparse") for key in pax):
        raise UnsafeArchiveError(f"the member {quoted(name)} is a sparse file", hint=_PACK)
    if header.type not in (*_FILES, tarfile.DIRTYPE):
        kind = _KINDS.get(header.type, f"of the unknown type {header.type!r}")
        raise UnsafeArchiveError(f"the member {quoted(name)} is {kind}", hint=_PACK)
    size = pax.get("size", str(header.size))
    if not size.isascii() or not size.isdigit() or len(size) > 30:
        raise DamagedArchiveError(f"the member {quoted(name)} has no readable size")
    folder = header.type == tarfile.DIRTYPE or name.endswith("/")
    if folder and int(size):
        raise UnsafeArchiveError(f"the member {quoted(name)} is a folder with {size} bytes of data")
    return Record(name, int(size), offset, folder)


def _parse_pax(data: bytes, label: str) -> dict[str, str]:
    """Parse records of a length, a space, a key, "=", a value and a newline; tarfile skips garbled records."""
    found: dict[str, str] = {}
    while data:
        digits, _, _ = data[:21].partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        key, equals, value = data[len(digits) + 1 : length - 1].partition(b"=")
        if not equals or data[length - 1 : length] != b"\n":
            raise DamagedArchiveError(f"the extended header {quoted(label)} is garbled")
        name = _text(key)
        if name in found:
            raise UnsafeArchiveError(f"the extended header {quoted(label)} gives {quoted(name)} twice")
        found[name] = _text(value) if name in ("path", "size") else ""
        data = data[length:]
    return found


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        name = quoted(raw[:MAX_NAME].decode("latin-1"))
        raise UnsafeArchiveError(f"the member {name} has a name that is not UTF-8") from None


class TarListing(Struct, frozen=True, kw_only=True):
    """The members of a .tar.gz; their names are safe and unique."""

    files: Mapping[str, Record]
    folders: tuple[str, ...]
    findings: tuple[Finding, ...]


def list_members(found: list[Record], spool: Spool, source: str) -> TarListing:
    """Give records the names that they have in the archive; raises UnsafeArchiveError naming the member at fault.

    Members of SageMaker's layout that the tar lacks are added to it and to the spool.
    """
    files = [record for record in found if not record.folder]
    folders = [record for record in found if record.folder]

    def check(names: dict[str, str]) -> dict[str, str]:
        check_member_names([names[file.name] for file in files], filter(None, (names[each.name] for each in folders)))
        return names

    def served(name: str, *, folder: bool) -> str:
        """Return a name as the server reads it, which drops the first step."""
        name = name.rstrip("/") + "/" if folder else name
        return name[name.find("/") + 1 :].removesuffix("/")

    plain = check(
        {
            name: "" if name in (".", "./") else name.removeprefix("./").removesuffix("/")
            for name in (each.name for each in found)
        }
    )
    names = {each.name: served(each.name, folder=each.folder) for each in found}
    findings = (ARCHIVE_SUFFIX.at(source, form="a .tar.gz"),) if source.endswith(".mar") else ()
    if MANIFEST_NAME not in {names[file.name] for file in files}:
        root = common_root(plain[file.name] for file in files)
        names = {name: f"{short}/".removeprefix(root).removesuffix("/") for name, short in plain.items()}
        findings = (TGZ_NO_ROOT_FOLDER.at(source), *findings)
    check(names)
    inner = tuple(filter(None, (names[each.name] for each in folders)))
    packed = {names[file.name]: file for file in files}
    for name, data in missing_members(packed.keys(), inner).items():
        packed[name] = Record(name, len(data), spool.size, folder=False)
        spool.write(data)
        findings = (SAGEMAKER_LAYOUT.at(source),)  # SageMaker extracts the tar, so its form is not the server's concern
    return TarListing(files=packed, folders=inner, findings=findings)


class TarArchive(Archive):
    """A tar in a gzip stream; see `marpack.archive.protocol.Archive`.

    The first access to a member decompresses the whole archive, once: no member of a gzip stream can be read without
    those before it. If the cache has it extracted, nothing is read.
    """

    form = ArchiveForm.TGZ

    def __init__(self, source: str, data: ByteSource, *, limits: Limits, cache: Cache) -> None:
        self.source = source
        self._data = data
        self._limits = limits
        self._cache = cache
        self._spool = Spool()
        # The archive's name in the cache: another version of marpack may add another handler.
        self._key = blake2b(data.identity.encode() + handler_source(), digest_size=16).hexdigest()
        self._error: ArchiveError | None = None  # why the archive cannot be read: it is not decompressed again

    @cached_property
    def _contents(self) -> TarListing:
        if self._error is not None:
            raise self._error
        try:
            with located(self.source):
                decompress(self._data, self._limits, self._spool)
                return list_members(read_records(self._spool, self._limits), self._spool, self.source)
        except ArchiveError as error:
            self._error = error
            self._spool.close()
            raise

    @cached_property
    def _extracted(self) -> Cached | None:
        """The extracted archive in the cache, if the archive itself was not read."""
        return None if "_contents" in vars(self) else self._cache.find(self._key)

    @cached_property
    def entries(self) -> Mapping[str, Entry]:  # type: ignore[override]  # computed at the first use
        """Every file by its name; see `Archive.entries`."""
        return MappingProxyType(
            {
                name: Entry(name=name, size=record.size, compressed_size=record.size, method=Method.DEFLATED)
                for name, record in self._contents.files.items()
            }
        )

    @property
    def server_findings(self) -> tuple[Finding, ...]:  # type: ignore[override]  # as above
        """The findings; see `Archive.server_findings`."""
        return self._extracted.findings if self._extracted else self._contents.findings

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest; see `Archive.manifest`."""
        if not self._extracted:
            return super().manifest
        data = (self._extracted.folder / MANIFEST_NAME).read_bytes()
        return Manifest.from_json(data, where=f"{self.source}!{MANIFEST_NAME}")

    def open(self, name: str) -> BinaryIO:
        """Open one member; see `Archive.open`. The gzip stream's own CRC was checked when it was decompressed."""
        record = self._contents.files[name]
        return self._spool.open(record.offset, record.size)

    def materialize(self) -> Path:
        """Return the extracted folder; see `Archive.materialize`."""
        if self._extracted and not self._extracted.is_whole:
            del self._extracted
        if not self._extracted:
            _ = self.manifest  # report its problems before anything is written
            self._extracted = self._cache.fill(self._key, self.extract_all, size=total_size(self))
        return self._extracted.folder

    def extract(self, folder: Path, names: Collection[str] | None = None, progress: Progress | None = None) -> None:
        """Write members into a folder; see `Archive.extract`."""
        contents = self._contents
        make_folders(folder, contents.folders if names is None else ())
        for name, record in contents.files.items():
            if names is None or name in names:
                extract_blocks(self._spool.blocks(record.offset, record.size), folder, name, progress)

    def close(self) -> None:
        """Release the file, its decompressed bytes, and the folder in the cache."""
        self._spool.close()
        self._data.close()
        self._cache.close()
