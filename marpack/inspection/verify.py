"""Reading every byte: each member's CRC and SHA-256, against what the archive says of them."""

import hashlib
from collections.abc import Iterator, Mapping

from marpack.archive.index import Index
from marpack.archive.protocol import INDEX_NAME, Archive, Progress
from marpack.errors import DamagedArchiveError
from marpack.findings import Finding, Severity

# Codes of what makes an archive no longer the one that was built.
DAMAGED, CHANGED, UNLISTED, MISSING = "damaged-member", "digest-mismatch", "unlisted-member", "missing-member"
UNLIKE = frozenset({CHANGED, UNLISTED, MISSING})  # about what the index says of a member, not about its content
UNFIT = UNLIKE | {DAMAGED}
_AGAIN = "copy or download the archive again; if it stays so, it was changed after it was built"


def digests(archive: Archive, progress: Progress | None = None) -> Iterator[tuple[str, str | Finding]]:
    """Yield each member's name with the SHA-256 of its bytes, or with what is wrong with them."""
    for name in archive.entries:
        try:
            yield name, member_digest(archive, name, progress)
        except DamagedArchiveError as error:
            yield name, damaged(error, archive, name)


def member_digest(archive: Archive, name: str, progress: Progress | None = None) -> str:
    """Read a member to its end and return its SHA-256, lower-case hex. Raises DamagedArchiveError."""
    from marpack.archive.copying import BLOCK, Copier  # noqa: PLC0415 - most looks read no member whole

    digest = hashlib.sha256()
    with archive.open(name) as file, Copier() as copier:
        at_once = archive.entries[name].size <= BLOCK
        fill = file.readinto  # type: ignore[attr-defined]  # every file has it, but not the type BinaryIO
        while block := copier.read(digest, fill, at_once=at_once)[1]:
            if progress is not None:
                progress(len(block))
        copier.join()
    return digest.hexdigest()


def changed(archive: Archive, index: Index, sums: Mapping[str, str | Finding]) -> Iterator[Finding]:
    """Yield where names, sizes and, as far as `sums` has them, digests differ from those that were signed off."""
    signed = {member.name: member for member in index.members}
    for name, entry in archive.entries.items():
        where = f"{archive.source}!{name}"
        found, member = sums.get(name), signed.get(name)
        if member is None:
            if name != INDEX_NAME:
                yield unlisted(f"{INDEX_NAME} does not list this member", where)
        elif member.size != entry.size:
            yield _error(CHANGED, f"it has {entry.size:,} bytes, {INDEX_NAME} says {member.size:,}", where)
        elif isinstance(found, str) and found != member.sha256:
            yield _error(CHANGED, f"its SHA-256 is {found}, {INDEX_NAME} says {member.sha256}", where)
    for name in sorted(signed.keys() - archive.entries.keys()):
        yield _error(MISSING, f"{INDEX_NAME} lists {name}, which is not there", archive.source)


def damaged(error: DamagedArchiveError, archive: Archive, name: str) -> Finding:
    """Return a damaged member as a finding."""
    return _error(DAMAGED, error.what, f"{archive.source}!{name}")


def unlisted(message: str, where: str) -> Finding:
    """Return what the index does not speak for as a finding."""
    return _error(UNLISTED, message, where)


def _error(code: str, message: str, where: str) -> Finding:
    return Finding(code=code, severity=Severity.ERROR, message=message, where=where, hint=_AGAIN)
