"""What a .tar.gz holds, found by reading all of it once, within the limits."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from msgspec import Struct

from marpack.archive.bytesource import ByteSource
from marpack.archive.gzip_stream import GzipStream
from marpack.archive.limits import Limits
from marpack.archive.names import check_member_names
from marpack.archive.oddities import common_root, flat_tar, wrong_suffix
from marpack.archive.protocol import MANIFEST_NAME, Entry, Method
from marpack.archive.tar_records import Record, padding, records
from marpack.errors import LimitExceededError
from marpack.findings import Finding

_SMALL = 1 << 20  # bytes of a member that is kept in memory…
_ALL_SMALL = 1 << 24  # …as long as there are no more of them together


class Contents(Struct, frozen=True, kw_only=True):
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


def read_contents(data: ByteSource, limits: Limits, source: str) -> Contents:
    """Read all records and check them together; raises ArchiveError naming the member at fault."""
    found: list[Record] = []
    small: dict[str, bytes] = {}
    room, total = _ALL_SMALL, 0
    for record, blocks in walk(data, limits):
        found.append(record)
        total += record.size
        if len(found) > limits.members:
            raise LimitExceededError(f"the tar has more than {limits.members} members", hint=_hint("--max-members"))
        if total > limits.total:
            raise LimitExceededError(f"the members have more than {limits.total} bytes", hint=_hint("--max-size"))
        if not record.folder and record.size <= min(_SMALL, room):
            room -= record.size
            small[record.name] = b"".join(map(bytes, blocks))
    return _contents(found, small, source)


def _hint(flag: str) -> str:
    return f"raise the limit if you trust it: {flag}"


def _contents(found: list[Record], small: dict[str, bytes], source: str) -> Contents:
    files = [record for record in found if not record.folder]
    folders = [record.name for record in found if record.folder]
    plain = {record.name: _plain(record.name) for record in found}
    check_member_names([plain[file.name] for file in files], [plain[name] for name in folders if plain[name]])
    served = {record.name: _served(record) for record in found}
    names, findings = served, _suffix(source)
    if MANIFEST_NAME not in {served[file.name] for file in files}:
        names, findings = (
            _unrooted(plain, common_root(plain[file.name] for file in files)),
            (flat_tar(source), *findings),
        )
    check_member_names([names[file.name] for file in files], [names[name] for name in folders if names[name]])
    return Contents(
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


def _unrooted(plain: dict[str, str], root: str) -> dict[str, str]:
    return {name: f"{short}/".removeprefix(root).removesuffix("/") for name, short in plain.items()}


def _suffix(source: str) -> tuple[Finding, ...]:
    return (wrong_suffix(source, "a .tar.gz"),) if source.endswith(".mar") else ()


def _entry(name: str, size: int) -> Entry:
    return Entry(name=name, size=size, compressed_size=size, method=Method.DEFLATED)
