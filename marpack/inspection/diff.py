"""Two archives compared: manifest, members, config, labels and tensors, without running either."""

from collections.abc import Iterator
from typing import Any

import msgspec

from marpack.archive.index import Index
from marpack.archive.protocol import INDEX_NAME, MANIFEST_NAME, Archive, Progress
from marpack.inspection.differences import Change, Diff, Difference, TensorDiff, differences, flat
from marpack.inspection.reading import LABELS_NAME, read_text, signed_index
from marpack.inspection.tensor_diff import compare_tensors
from marpack.inspection.texts import config_facts, label_mapping
from marpack.inspection.verification import member_digest

_META = (MANIFEST_NAME, INDEX_NAME)  # compared by what they say


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
        self.indexes = tuple(signed_index(archive).index or Index(members=()) for archive in self.archives)
        self._sums: tuple[dict[str, str], ...] = ({}, {})
        if not verify:
            self._sums = tuple({member.name: member.sha256 for member in index.members} for index in self.indexes)

    def members(self) -> Iterator[Difference]:
        """Yield the members that only one archive has, or that differ."""
        before, after = ([name for name in archive.entries if name not in _META] for archive in self.archives)
        for name in dict.fromkeys([*before, *after]):
            if name not in self.archives[1].entries:
                yield Difference(name=name, change=Change.REMOVED, before=self._facts(0, name))
            elif name not in self.archives[0].entries:
                yield Difference(name=name, change=Change.ADDED, after=self._facts(1, name))
            elif not self._same(name, name):
                facts = self._facts(0, name), self._facts(1, name)
                yield Difference(name=name, change=Change.CHANGED, before=facts[0], after=facts[1])

    def tensors(self, changed: set[str]) -> Iterator[TensorDiff]:
        """Yield the weights whose files differ, tensor by tensor; a serializedFile may have another name by now."""
        pairs = {name: name for name in self.archives[0].entries if name in changed}
        old, new = (archive.manifest.model.serialized_file for archive in self.archives)
        if old and new and old != new and not self._same(old, new):
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

    def _facts(self, side: int, name: str) -> dict[str, Any]:  # Any: JSON
        return {"size": self.archives[side].entries[name].size, "sha256": self._sums[side].get(name)}


def _manifest(archive: Archive) -> dict[str, Any]:  # Any: JSON
    return dict(flat(msgspec.json.decode(archive.manifest.to_json())))


def _recorded(index: Index) -> dict[str, Any]:  # Any: JSON
    samples = [msgspec.json.encode(sample, order="sorted").decode() for sample in index.samples]
    numbered = {f"samples.{number}": sample for number, sample in enumerate(samples)}
    provenance = {f"provenance.{key}": value for key, value in index.provenance.items()}
    return {**provenance, "target": index.target, **numbered} if index.members else {}


def _config(archive: Archive) -> dict[str, Any]:  # Any: JSON
    """Return the model config's values; of one that cannot be read, its text as one value."""
    name = archive.manifest.model.config_file
    data = read_text(archive, name)
    if data is None or name is None:
        return {}
    facts = config_facts(name, data)
    return {"(text)": facts.text} if facts.problem else dict(flat(facts.value))


def _labels(archive: Archive) -> dict[str, Any]:  # Any: JSON
    data = read_text(archive, LABELS_NAME)
    if data is None:
        return {}
    labels = label_mapping(data)
    return {"(text)": data.decode("utf-8", "replace")} if isinstance(labels, str) else labels
