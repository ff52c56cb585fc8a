"""Two archives compared: members, manifest, tensors by name, shape and digest."""

import hashlib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from marpack.archive.bytesource import reaches
from marpack.archive.index import Index
from marpack.archive.protocol import INDEX_NAME, MANIFEST_NAME, Archive, Progress
from marpack.archive.zip_format import NotZipError
from marpack.inspection.members import config_facts, member_digest, read_index, read_text
from marpack.torchserve.labels import LABELS_NAME, parse_labels
from marpack.weights.contents import Recognized, read_contents, recognize
from marpack.weights.kind import WeightsFormat
from marpack.weights.tensors import StoredTensor

_BLOCK = 1 << 20  # bytes
_META = (MANIFEST_NAME, INDEX_NAME)  # compared by their values


class Change(StrEnum):
    """How two things differ."""

    ADDED = "added"  # only in the second archive
    REMOVED = "removed"  # only in the first
    CHANGED = "changed"
    RESHAPED = "reshaped"  # tensors
    RETYPED = "re-typed"


class FieldDifference(Struct, frozen=True, kw_only=True):
    """One difference."""

    name: str  # "model.modelVersion", "handler.py", "pt2.compile.enable", "3", "layer.0.weight"
    change: Change
    before: Any = None  # Any: JSON; of a member size and digest, of a tensor dtype and shape
    after: Any = None  # Any: as above


class TensorDiff(Struct, frozen=True, kw_only=True):
    """The tensors of one weights file that is in both archives."""

    member: str
    other: str  # its name in the second archive
    same: int  # tensors that are equal to the last bit
    differences: tuple[FieldDifference, ...] = ()
    uncompared: int = 0  # tensors with numbers that are not stored in an order that can be compared
    problem: str | None = None  # why its tensors are not known


class Diff(Struct, frozen=True, kw_only=True):
    """Everything that differs; nothing if the archives are the `same`."""

    before: str  # the first archive
    after: str
    same: bool
    manifest: tuple[FieldDifference, ...] = ()
    # in MAR-INF/marpack.json beside the members: provenance, metadata, target, samples
    recorded: tuple[FieldDifference, ...] = ()
    members: tuple[FieldDifference, ...] = ()
    config: tuple[FieldDifference, ...] = ()
    labels: tuple[FieldDifference, ...] = ()
    tensors: tuple[TensorDiff, ...] = ()


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[FieldDifference, ...]:  # Any: JSON
    """Compare two mappings key by key: in the first one's order, then the keys that only the second one has."""
    pairs = ((name, before.get(name), after.get(name)) for name in dict.fromkeys([*before, *after]))
    return tuple(
        FieldDifference(name=name, change=_change(name in before, name in after), before=old, after=new)
        for name, old, new in pairs
        if old != new or (name in before) != (name in after)  # null is a value
    )


def _change(before: object, after: object) -> Change:
    return Change.CHANGED if before and after else Change.REMOVED if before else Change.ADDED


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:  # Any: JSON
    """Yield the leaves of nested mappings under dotted names; a list is a leaf."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from flat(item, f"{name}.{key}" if name else str(key))
    elif name:
        yield name, value


# Tensors


def tensor_digest(file: BinaryIO, found: Recognized, placed: StoredTensor) -> str | None:
    """Return the SHA-256 of a tensor's numbers in the order of its shape; None if they cannot be read that way.

    The digest of a tensor that is not contiguous includes its whole storage, its offset and its strides.
    """
    try:
        inner = file if placed.inside is None else found.zip.open(placed.inside) if found.zip else None
    except (KeyError, NotZipError):
        return None
    digest, begin, left = hashlib.sha256(), placed.offset, placed.tensor.bytes
    if not placed.contiguous:
        digest.update(repr((placed.offset, placed.stride)).encode())
        begin, left = 0, placed.storage_bytes
    if placed.storage is None or inner is None or not reaches(inner, begin):
        return None
    while left:
        block = inner.read(min(_BLOCK, left))
        if not block:
            return None
        digest.update(block)
        left -= len(block)
    return digest.hexdigest()


def compare_tensors(member: str, before: BinaryIO, other: str, after: BinaryIO) -> TensorDiff | None:
    """Compare the tensors of two files of any format; None if neither contains weights."""
    first, second = recognize(before), recognize(after)
    if first.kind is WeightsFormat.UNKNOWN and second.kind is WeightsFormat.UNKNOWN:
        return None
    contents = read_contents(before, first), read_contents(after, second)
    found: list[FieldDifference] = []
    same = uncompared = 0
    old_tensors, new_tensors = ({placed.tensor.name: placed for placed in each.tensors} for each in contents)
    for name in dict.fromkeys([*old_tensors, *new_tensors]):
        old, new = old_tensors.get(name), new_tensors.get(name)
        digests: tuple[str | None, ...] = None, None
        if old is None or new is None:
            change = _change(old, new)
        elif old.tensor.shape != new.tensor.shape:
            change = Change.RESHAPED
        elif old.tensor.dtype != new.tensor.dtype:
            change = Change.RETYPED
        else:
            change = Change.CHANGED
            digests = tensor_digest(before, first, old), tensor_digest(after, second, new)
            if None in digests or digests[0] == digests[1]:
                uncompared += None in digests
                same += None not in digests
                continue
        facts = [_tensor_facts(placed, digest) for placed, digest in zip((old, new), digests, strict=True)]
        found.append(FieldDifference(name=name, change=change, before=facts[0], after=facts[1]))
    problem = contents[0].problem or contents[1].problem
    return TensorDiff(
        member=member, other=other, same=same, differences=tuple(found), uncompared=uncompared, problem=problem
    )


def _tensor_facts(placed: StoredTensor | None, digest: str | None) -> dict[str, Any] | None:  # Any: JSON
    if placed is None:
        return None
    facts = {"dtype": placed.tensor.dtype, "shape": list(placed.tensor.shape)}
    return facts | {"sha256": digest} if digest else facts


# Archives


def diff(before: Archive, after: Archive, *, verify: bool = False, progress: Progress | None = None) -> Diff:
    """Compare two archives.

    Args:
        before: The first archive.
        after: The second one; what only it has is "added".
        verify: Read every member; otherwise members with the same recorded digest, CRC and size count as the same.
        progress: Is called with the number of bytes just read.

    Raises ManifestError, and DamagedArchiveError if a member that has to be read is damaged.
    """
    archives = before, after
    indexes = [read_index(archive).index or Index(members=()) for archive in archives]
    sums = [{} if verify else {member.name: member.sha256 for member in index.members} for index in indexes]

    def digest(side: int, name: str) -> str:
        if name not in sums[side]:
            sums[side][name] = member_digest(archives[side], name, progress)
        return sums[side][name]

    def same(name: str, other: str) -> bool:
        first, second = before.entries[name], after.entries[other]
        if first.size != second.size or (None not in (first.crc, second.crc) and first.crc != second.crc):
            return False
        return digest(0, name) == digest(1, other)

    members: list[FieldDifference] = []
    pairs: dict[str, str] = {}  # weights files that may differ, by their names in both archives
    for name in dict.fromkeys([*before.entries, *after.entries]):
        sides = [archive.entries.get(name) for archive in archives]
        if name in _META or (all(sides) and same(name, name)):
            continue
        facts = [
            {"size": entry.size, "sha256": sums[side].get(name)} if entry else None for side, entry in enumerate(sides)
        ]
        members.append(FieldDifference(name=name, change=_change(*sides), before=facts[0], after=facts[1]))
        pairs |= {name: name} if all(sides) else {}
    old, new = (archive.manifest.model.serialized_file for archive in archives)
    if old and new and old != new and old in before.entries and new in after.entries and not same(old, new):
        pairs[old] = new  # renamed
    tensors: list[TensorDiff] = []
    for name, other in pairs.items():
        with before.open(name) as first, after.open(other) as second:
            found = compare_tensors(name, first, other, second)
        tensors += [found] if found else []
    parts: dict[str, tuple[Any, ...]] = {  # Any: FieldDifference and TensorDiff
        "manifest": differences(*(dict(flat(msgspec.json.decode(each.manifest.to_json()))) for each in archives)),
        "recorded": differences(*map(_recorded, indexes)),
        "members": tuple(members),
        "config": differences(*map(_config, archives)),
        "labels": differences(*map(_labels, archives)),
        "tensors": tuple(tensors),
    }
    return Diff(before=before.source, after=after.source, same=not any(parts.values()), **parts)


def _recorded(index: Index) -> dict[str, Any]:  # Any: JSON
    samples = [msgspec.json.encode(sample, order="sorted").decode() for sample in index.samples]
    numbered = {f"samples.{number}": sample for number, sample in enumerate(samples)}
    provenance = {f"provenance.{key}": value for key, value in index.provenance.items()}
    said = dict(flat(msgspec.to_builtins(index.metadata), "metadata")) if index.metadata else {}
    said |= {f"vendored.{each.name}": each.version for each in index.vendored.packages} if index.vendored else {}
    return {**provenance, **said, "target": index.target, **numbered} if index.members else {}


def _config(archive: Archive) -> dict[str, Any]:  # Any: JSON
    """Return the model config's values; of one that cannot be read, its text as one value."""
    facts = config_facts(archive)
    if facts is None:
        return {}
    return {"(text)": facts.text} if facts.problem else dict(flat(facts.value))


def _labels(archive: Archive) -> dict[str, Any]:  # Any: JSON
    data = read_text(archive, LABELS_NAME)
    if data is None:
        return {}
    labels = parse_labels(data)
    return {"(text)": data.decode("utf-8", "replace")} if labels.problem else labels.names
