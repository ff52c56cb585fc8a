"""Whether a project's archive is still what a build would make."""

import hashlib
from pathlib import Path

import msgspec

from marpack.archive.index import Index, Member
from marpack.archive.manifest import Manifest
from marpack.archive.protocol import INDEX_NAME, MANIFEST_NAME
from marpack.archive.reader import open_archive
from marpack.errors import ArchiveError
from marpack.packing.plan import Plan, PlannedMember

_SMALL = 1 << 20  # bytes: files up to this size are compared by digest, larger ones by size and time


def is_stale(plan: Plan) -> bool:
    """Say whether the plan's output is missing, damaged, or differs from what the plan would write.

    `createdOn` does not count. Large files count as changed when they are no older than the archive.
    """
    try:
        written = plan.output.stat().st_mtime_ns
        index, manifest = _read(plan.output)
    except (OSError, ArchiveError, KeyError):
        return True
    if _undated(manifest) != _undated(plan.manifest):
        return True
    if (index.samples, index.target) != (plan.samples, plan.target):
        return True
    members = {member.name: member for member in index.members if member.name != MANIFEST_NAME}
    if members.keys() != {member.name for member in plan.members}:
        return True
    return any(_differs(member, members[member.name], written) for member in plan.members)


def _read(path: Path) -> tuple[Index, Manifest]:
    with open_archive(path) as archive:
        with archive.open(INDEX_NAME) as file:
            index = Index.from_json(file.read())
        return index, archive.manifest


def _undated(manifest: Manifest) -> Manifest:
    return msgspec.structs.replace(manifest, created_on=None)


def _differs(planned: PlannedMember, packed: Member, written: int) -> bool:
    """Say whether one member's source is not what was packed.

    Args:
        planned: The member as it would be packed now.
        packed: The member as the archive's index has it.
        written: When the archive was written, in ns.
    """
    source = planned.source
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest() != packed.sha256
    status = source.stat()
    if status.st_size != packed.size:
        return True
    if status.st_size <= _SMALL:
        return hashlib.sha256(source.read_bytes()).hexdigest() != packed.sha256
    return max(status.st_mtime_ns, status.st_ctime_ns) >= written  # ctime: an older file may have been moved here
