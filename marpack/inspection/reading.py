"""The members that a look reads whole: the index of digests and the small text files."""

from msgspec import Struct

from marpack.archive.index import Index, archive_digest
from marpack.archive.protocol import INDEX_NAME, Archive, Method
from marpack.errors import DamagedArchiveError
from marpack.findings import Finding
from marpack.inspection.verification import unlisted

LABELS_NAME = "index_to_name.json"
_TEXT_LIMIT = 8 * 1024 * 1024  # bytes of one text member
_MOST_FETCHED = 64 * 1024  # bytes of a compressed member elsewhere


class Signed(Struct, frozen=True):
    """What MAR-INF/marpack.json says, if there is one."""

    digest: str | None = None  # the archive's
    index: Index | None = None
    problem: Finding | None = None


def signed_index(archive: Archive) -> Signed:
    """Read MAR-INF/marpack.json; one that cannot be read is a finding."""
    if INDEX_NAME not in archive.entries:
        return Signed()
    with archive.open(INDEX_NAME) as file:
        data = file.read()
    digest = archive_digest(data)
    try:
        return Signed(digest, Index.from_json(data))
    except DamagedArchiveError as error:
        return Signed(digest, problem=unlisted(error.what, f"{archive.source}!{INDEX_NAME}"))


def read_text(archive: Archive, name: str | None) -> bytes | None:
    """Return a small member's bytes; None when it is not there, damaged, or costs too much to fetch."""
    if name is None or name not in archive.entries or too_costly(archive, name):
        return None
    try:
        with archive.open(name) as file:
            return file.read(_TEXT_LIMIT)
    except DamagedArchiveError:  # which `look` makes a finding of
        return None


def is_elsewhere(archive: Archive) -> bool:
    """Tell whether the archive's bytes are fetched range by range."""
    return "://" in archive.source


def too_costly(archive: Archive, name: str) -> bool:
    """Tell whether looking into a member means fetching more than a look is worth."""
    entry = archive.entries[name]
    return is_elsewhere(archive) and entry.method is not Method.STORED and entry.compressed_size > _MOST_FETCHED
