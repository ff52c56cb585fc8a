"""What goes into an archive, from where, under which name: decided before a byte is written."""

from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from marpack.archive.index import Metadata, Vendored
from marpack.archive.manifest import Manifest


class Format(StrEnum):
    """The original archiver's names for the forms of an archive."""

    DEFAULT = "default"
    ZIP_STORE = "zip-store"
    TGZ = "tgz"
    NO_ARCHIVE = "no-archive"


class Role(StrEnum):
    """Why a member is in the archive; weights lie first in the file, aligned to pages."""

    WEIGHTS = "weights"
    FILE = "file"
    META = "meta"  # under MAR-INF/, last


class PlannedMember(Struct, frozen=True):
    """One member to write."""

    name: str  # inside the archive, with "/"
    source: Path | bytes  # a file on disk, or content made while planning
    role: Role = Role.FILE


class Plan(Struct, frozen=True, kw_only=True):
    """Everything that writing needs; nothing in it can be wrong any more."""

    manifest: Manifest
    members: tuple[PlannedMember, ...]  # without MANIFEST.json and marpack.json, which the writer makes
    output: Path  # the .mar, .tar.gz or folder
    format: Format = Format.DEFAULT
    replace: bool = False  # an existing output may be replaced
    samples: tuple[dict[str, Any], ...] = ()  # Any: user's expectations, JSON as it stands; listed in marpack.json
    target: str = "torchserve"  # recorded in marpack.json
    metadata: Metadata | UnsetType = UNSET  # likewise
    vendored: Vendored | UnsetType = UNSET  # likewise
    source_commit: str | None = None  # likewise: 40 or 64 lower-case hexadecimal digits


class Built(Struct, frozen=True, kw_only=True):
    """What was written."""

    path: Path
    size: int  # bytes on disk
    content_digest: str  # "sha256:…" of MAR-INF/marpack.json
    members: int
    seconds: float
