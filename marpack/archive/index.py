"""MAR-INF/marpack.json: what an archive holds, by name, size and SHA-256; its own SHA-256 is the content digest."""

import hashlib
import zlib
from functools import partial, reduce
from typing import TYPE_CHECKING, Annotated, Any, Self

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from marpack.archive.protocol import INDEX_NAME, Archive, ArchiveForm
from marpack.errors import ArchiveError, DamagedArchiveError
from marpack.version import UPGRADE

if TYPE_CHECKING:
    from packaging.tags import Tag

_BUFFER = 1 << 20  # bytes
MAX_BYTES = 1 << 28  # of this file: the names and digests of 65,536 members have about a quarter of that
FORMAT = 1  # of this file; a reader refuses a later one, since it may define the digest anew

Size = Annotated[int, Meta(ge=0)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Member(Struct, frozen=True):
    """One member's content."""

    name: str  # inside the archive, with "/"
    size: Size  # bytes, uncompressed
    sha256: Sha256  # of the uncompressed bytes, lower-case hex


class Metadata(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The author's description of the model."""

    license: str | None = None  # an SPDX expression
    authors: tuple[str, ...] = ()  # "Name" or "Name <name@host>"
    description: str | None = None
    homepage: str | None = None  # an http or https address


class VendoredPackage(Struct, frozen=True, kw_only=True):
    """A distribution whose wheel is unpacked at the archive's root."""

    name: str  # canonical
    version: str
    file: str  # the wheel's, whose tags say where it runs
    sha256: Sha256  # of the wheel
    modules: tuple[str, ...] = ()  # at the archive's root, folders among them

    @property
    def tags(self) -> "frozenset[Tag]":
        """The platforms that the wheel's name gives; none for another file's name."""
        from packaging.utils import InvalidWheelFilename, parse_wheel_filename  # noqa: PLC0415 - few archives have any

        try:
            return parse_wheel_filename(self.file)[3]
        except InvalidWheelFilename:
            return frozenset()


class Vendored(Struct, frozen=True, kw_only=True):
    """The distributions in an archive, and the requirements that the server's own packages meet."""

    python: str  # "3.9"
    platform: str  # "linux_x86_64", "linux_aarch64" or "any"
    packages: tuple[VendoredPackage, ...] = ()
    server: tuple[str, ...] = ()  # requirements that the server meets: "numpy>=1.22.4"

    @property
    def summary(self) -> str:
        """How many there are, and for what: `vendored 4 packages for cp39 linux_x86_64`."""
        count = f"{len(self.packages)} package{'s' * (len(self.packages) != 1)}"
        return f"vendored {count} for cp{self.python.replace('.', '')} {self.platform}"


class Index(Struct, frozen=True, kw_only=True):
    """Every member but this file itself, with what the archive was made for and by."""

    members: tuple[Member, ...]  # in the archive's order
    # Any: requests, expected answers and the marks of generated samples, JSON as the project has them.
    samples: tuple[dict[str, Any], ...] = ()
    provenance: dict[str, str] = {}  # "builder": "marpack 0.2.0", "source_commit": the author's word for it
    metadata: Metadata | UnsetType = UNSET  # left out if empty, so that other archives keep their bytes
    vendored: Vendored | UnsetType = UNSET  # likewise
    target: str = "torchserve"  # the server that the author chose: torchserve or marpack
    format: int = FORMAT

    @classmethod
    def from_json(cls, data: bytes, *, where: str = INDEX_NAME) -> Self:
        """Parse the file's bytes; keys of later versions are ignored. Raises DamagedArchiveError."""
        try:
            index = msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise DamagedArchiveError(f"the index of members cannot be read: {error}", where=where) from error
        if index.format != FORMAT:
            raise DamagedArchiveError(
                f"the index of members has the format {index.format}; this marpack reads {FORMAT}",
                where=where,
                hint=UPGRADE,
            )
        names = [member.name for member in index.members]
        if len(set(names)) < len(names):
            what = f"the index lists a member twice: {max(names, key=names.count)}"
            raise DamagedArchiveError(what, where=where, hint=ArchiveError.fix)
        return index

    def to_json(self) -> bytes:
        """Return the file's bytes, always the same for the same values: sorted keys, indented by two."""
        return msgspec.json.format(msgspec.json.encode(self, order="sorted"), indent=2) + b"\n"


def index_digest(index: bytes) -> str:
    """Return the archive's content digest, `sha256:<hex>`, from the bytes of its MAR-INF/marpack.json."""
    return f"sha256:{hashlib.sha256(index).hexdigest()}"


def index_bytes(archive: Archive) -> bytes | None:
    """Return the bytes of an archive's MAR-INF/marpack.json, or None. Raises DamagedArchiveError."""
    entry = archive.entries.get(INDEX_NAME)
    if entry is None:
        return None
    if entry.size > MAX_BYTES:
        what = f"the index of members has {entry.size} bytes; the maximum is {MAX_BYTES}"
        raise DamagedArchiveError(what, where=f"{archive.source}!{INDEX_NAME}", hint=ArchiveError.fix)
    with archive.open(INDEX_NAME) as file:
        return file.read()


def index_of(archive: Archive) -> Index | None:
    """Return an archive's index, or None. Raises DamagedArchiveError."""
    data = index_bytes(archive)
    return None if data is None else Index.from_json(data)


def content_digest(archive: Archive) -> str | None:
    """Return an archive's content digest, None where it has no index. Raises DamagedArchiveError."""
    data = index_bytes(archive)
    return None if data is None else index_digest(data)


def content_identity(archive: Archive) -> str:
    """Return the archive's content digest or, without an index, a digest of its members.

    The files of a model folder can be edited without its index, so the index does not count there.

    Raises DamagedArchiveError.
    """
    digest = None if archive.form is ArchiveForm.FOLDER else content_digest(archive)
    if digest is not None:
        return digest
    content = hashlib.sha256()
    for name, entry in sorted(archive.entries.items()):
        crc = entry.crc
        if crc is None:
            with archive.open(name) as file:
                crc = reduce(lambda crc, data: zlib.crc32(data, crc), iter(partial(file.read, _BUFFER), b""), 0)
        content.update(f"{name}\0{entry.size}\0{crc:08x}\0".encode())
    return f"members:{content.hexdigest()}"
