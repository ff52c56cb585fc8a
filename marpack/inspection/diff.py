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
from marpack.weights.tensors import StoredTensor, WeightsSummary

_BLOCK = 1 << 20  # bytes
_META = (MANIFEST_NAME, INDEX_NAME)  # compared by what they say


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
    uncompared: int = 0  # tensors whose numbers do not lie in the file so that they can be compared
    problem: str | None = None  # why its tensors are not known


class Diff(Struct, frozen=True, kw_only=True):
    """Everything that differs; nothing at all when they are the `same`."""

    before: str  # the first archive, as it was named
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
    """Compare two mappings key by key, in the first one's order, then what only the second has."""
    pairs = ((name, before.get(name), after.get(name)) for name in dict.fromkeys([*before, *after]))
    return tuple(
        FieldDifference(name=name, change=_change(name in before, name in after), before=old, after=new)
        for name, old, new in pairs
        if old != new or (name in before) != (name in after)  # null is a value
    )


def _change(before: object, after: object) -> Change:
    """Return how what is, or is not, in either archive differs."""
    return Change.CHANGED if before and after else Change.REMOVED if before else Change.ADDED


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:  # Any: JSON
    """Yield the leaves of nested mappings under dotted names; a list is a leaf."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from flat(item, f"{name}.{key}" if name else str(key))
    elif name:
        yield name, value


def tensor_digest(file: BinaryIO, found: Recognized, placed: StoredTensor) -> str | None:
    """Return the SHA-256 of a tensor's numbers in the order of its shape; None where they cannot be read that way.

    A tensor that is not contiguous is digested with the whole of its storage, offset and strides: two such are the
    same only when they lie the same way.
    """
    if placed.storage is None:
        return None
    try:
        if placed.inside is None:
            return _digest(file, placed)
        return _digest(found.zip.open(placed.inside), placed) if found.zip else None
    except (KeyError, NotZipError):
        return None


def _digest(file: BinaryIO, placed: StoredTensor) -> str | None:
    digest = hashlib.sha256()
    begin, one = placed.offset, placed.tensor.bytes
    if not placed.contiguous:
        digest.update(repr((placed.offset, placed.stride)).encode())
        begin, one = 0, placed.storage_bytes
    if not reaches(file, begin):
        return None
    while one:
        block = file.read(min(_BLOCK, one))
        if not block:
            return None
        digest.update(block)
        one -= len(block)
    return digest.hexdigest()


class _Opened(Struct, frozen=True):
    file: BinaryIO
    found: Recognized
    contents: WeightsSummary
    tensors: dict[str, StoredTensor]


def compare_tensors(member: str, before: BinaryIO, other: str, after: BinaryIO) -> TensorDiff | None:
    """Compare the tensors of two files, whatever formats they are in; None when neither is weights."""
    old, new = _opened(before), _opened(after)
    if old.found.kind is WeightsFormat.UNKNOWN and new.found.kind is WeightsFormat.UNKNOWN:
        return None
    found = [_compare(name, old, new) for name in dict.fromkeys([*old.tensors, *new.tensors])]
    return TensorDiff(
        member=member,
        other=other,
        same=found.count(True),
        differences=tuple(item for item in found if isinstance(item, FieldDifference)),
        uncompared=found.count(False),
        problem=old.contents.problem or new.contents.problem,
    )


def _opened(file: BinaryIO) -> _Opened:
    found = recognize(file)
    contents = read_contents(file, found)
    return _Opened(file, found, contents, {placed.tensor.name: placed for placed in contents.tensors})


def _compare(name: str, old: _Opened, new: _Opened) -> FieldDifference | bool:
    """Return how a tensor differs, or whether its numbers are known to be the same."""
    before, after = old.tensors.get(name), new.tensors.get(name)
    first = second = None
    if before is None or after is None:
        change = _change(before, after)
    elif before.tensor.shape != after.tensor.shape:
        change = Change.RESHAPED
    elif before.tensor.dtype != after.tensor.dtype:
        change = Change.RETYPED
    else:
        change = Change.CHANGED
        first = tensor_digest(old.file, old.found, before)
        second = tensor_digest(new.file, new.found, after)
        if first is None or second is None or first == second:
            return first is not None and second is not None
    return FieldDifference(name=name, change=change, before=_described(before, first), after=_described(after, second))


def _described(placed: StoredTensor | None, digest: str | None) -> Any:  # Any: JSON
    if placed is None:
        return None
    facts = {"dtype": placed.tensor.dtype, "shape": list(placed.tensor.shape)}
    return facts | {"sha256": digest} if digest else facts


def diff(before: Archive, after: Archive, *, verify: bool = False, progress: Progress | None = None) -> Diff:
    """Compare two archives.

    Args:
        before: The first archive.
        after: The second one; what only it has is "added".
        verify: Read every member; otherwise those with the same recorded digest, CRC and size count as the same.
        progress: Is called with the number of bytes just read, again and again.

    Raises ManifestError, and DamagedArchiveError when what has to be read is damaged.
    """
    comparison = _Comparison(before, after, verify=verify, progress=progress)
    members = tuple(comparison.members())
    parts: dict[str, tuple[Any, ...]] = {  # Any: Difference and TensorDiff
        "manifest": differences(_manifest(before), _manifest(after)),
        "recorded": differences(_recorded(comparison.indexes[0]), _recorded(comparison.indexes[1])),
        "members": members,
        "config": differences(_config(before), _config(after)),
        "labels": differences(_labels(before), _labels(after)),
        "tensors": tuple(comparison.tensors({item.name for item in members if item.change is Change.CHANGED})),
    }
    same = not any(parts.values())
    return Diff(before=before.source, after=after.source, same=same, **parts)


class _Comparison:
    """The two archives, and what their indexes recorded of their members."""

    def __init__(self, before: Archive, after: Archive, *, verify: bool, progress: Progress | None) -> None:
        self._progress = progress
        self.archives = before, after
        self.indexes = tuple(read_index(archive).index or Index(members=()) for archive in self.archives)
        self._sums: tuple[dict[str, str], ...] = ({}, {})
        if not verify:
            self._sums = tuple({member.name: member.sha256 for member in index.members} for index in self.indexes)

    def members(self) -> Iterator[FieldDifference]:
        """Yield the members that only one archive has, or that differ."""
        before, after = (archive.entries for archive in self.archives)
        for name in dict.fromkeys([*before, *after]):
            both = name in before and name in after
            if name not in _META and not (both and self._same(name, name)):
                change = _change(name in before, name in after)
                facts = self._facts(0, name), self._facts(1, name)
                yield FieldDifference(name=name, change=change, before=facts[0], after=facts[1])

    def tensors(self, changed: set[str]) -> Iterator[TensorDiff]:
        """Yield the weights whose files differ, tensor by tensor; a serializedFile may have another name by now."""
        pairs = {name: name for name in self.archives[0].entries if name in changed}
        old, new = (archive.manifest.model.serialized_file for archive in self.archives)
        is_renamed = old != new and old in self.archives[0].entries and new in self.archives[1].entries
        if old and new and is_renamed and not self._same(old, new):
            pairs[old] = new
        for name, other in pairs.items():
            with self.archives[0].open(name) as before, self.archives[1].open(other) as after:
                found = compare_tensors(name, before, other, after)
            if found:
                yield found

    def _same(self, name: str, other: str) -> bool:
        first, second = self.archives[0].entries[name], self.archives[1].entries[other]
        if first.size != second.size or (None not in (first.crc, second.crc) and first.crc != second.crc):
            return False
        return self._digest(0, name) == self._digest(1, other)

    def _digest(self, side: int, name: str) -> str:
        if name not in self._sums[side]:
            self._sums[side][name] = member_digest(self.archives[side], name, self._progress)
        return self._sums[side][name]

    def _facts(self, side: int, name: str) -> dict[str, Any] | None:  # Any: JSON
        entry = self.archives[side].entries.get(name)
        return {"size": entry.size, "sha256": self._sums[side].get(name)} if entry else None


def _manifest(archive: Archive) -> dict[str, Any]:  # Any: JSON
    return dict(flat(msgspec.json.decode(archive.manifest.to_json())))


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
