"""A look into an archive that runs nothing, imports nothing and unpickles nothing."""

from collections.abc import Iterator
from functools import partial

import msgspec

from marpack.archive.index import Index
from marpack.archive.protocol import Archive, Progress
from marpack.archive.server_rules import require_files
from marpack.findings import Finding
from marpack.inspection.facts import ConfigFacts, Inspection, LabelFacts, MemberFacts, Verified
from marpack.inspection.handler import handler_facts
from marpack.inspection.looking import Looked, look
from marpack.inspection.nesting import Walk
from marpack.inspection.pickles import distrust, scan_of
from marpack.inspection.reading import LABELS_NAME, Signed, is_elsewhere, read_text, signed_index
from marpack.inspection.texts import config_facts, distrusted_texts, label_facts, requirement_lines
from marpack.inspection.verification import changed, digests


def inspect(
    archive: Archive, *, verify: bool = False, parse_config: bool = True, progress: Progress | None = None
) -> Inspection:
    """Look into an archive: facts, and findings about what is unsafe or not as it was signed off.

    Args:
        archive: Is read by range: its directory, the small files and the weights' headers.
        verify: Read every byte, and compare digests and CRCs.
        parse_config: Give the model config's values beside its text, which takes a YAML parser.
        progress: Is called with the number of bytes just verified, again and again.

    Raises ManifestError for a manifest that is missing, malformed, or names a file that is not there.
    """
    manifest, signed = archive.manifest, signed_index(archive)
    require_files(archive, manifest)
    sums = dict(digests(archive, progress)) if verify else {}
    walk = Walk(fetched=is_elsewhere(archive))
    looked = [look(archive, name, walk) for name in archive.entries]
    pickles = scan_of(looked, unfetched=walk.unfetched)
    index, read = signed.index or Index(members=()), partial(read_text, archive)
    labels = _labels(archive)
    config = _config(archive, manifest.model.config_file, parse=parse_config)
    return Inspection(
        source=archive.source,
        form=archive.form,
        digest=signed.digest,
        manifest=msgspec.json.decode(manifest.to_json()),
        provenance=index.provenance,
        target=index.target if signed.index else None,
        samples=len(index.samples),
        members=tuple(_members(archive, index, sums)),
        handler=handler_facts(manifest.model.handler, read),
        labels=labels,
        config=config,
        requirements=requirement_lines(read(manifest.model.requirements_file) or b""),
        weights=tuple(item.weights for item in looked if item.weights),
        pickles=pickles,
        verified=_verified(archive, signed, sums) if verify else None,
        findings=(
            *archive.oddities,
            *_integrity(archive, signed, sums, looked),
            *distrust(pickles, archive.source),
            *distrusted_texts(labels, config, archive.source),
        ),
    )


def _members(archive: Archive, index: Index, sums: dict[str, str | Finding]) -> Iterator[MemberFacts]:
    recorded = {member.name: member.sha256 for member in index.members}
    for entry in archive.entries.values():
        computed = sums.get(entry.name)
        yield MemberFacts(
            name=entry.name,
            size=entry.size,
            compressed_size=entry.compressed_size,
            method=entry.method,
            sha256=computed if isinstance(computed, str) else recorded.get(entry.name),
        )


def _labels(archive: Archive) -> LabelFacts | None:
    data = read_text(archive, LABELS_NAME)
    return None if data is None else label_facts(data)


def _config(archive: Archive, name: str | None, *, parse: bool) -> ConfigFacts | None:
    data = read_text(archive, name)
    return None if data is None or name is None else config_facts(name, data, parse=parse)


def _integrity(
    archive: Archive, signed: Signed, sums: dict[str, str | Finding], looked: list[Looked]
) -> Iterator[Finding]:
    """Yield where the archive is damaged, or not what its index says."""
    if signed.problem:
        yield signed.problem
    damaged = {item.where: item for item in sums.values() if isinstance(item, Finding)}
    damaged |= {item.damage.where: item.damage for item in looked if item.damage}
    yield from damaged.values()
    if signed.index:
        yield from changed(archive, signed.index, sums)


def _verified(archive: Archive, signed: Signed, sums: dict[str, str | Finding]) -> Verified:
    whole = all(isinstance(item, str) for item in sums.values())
    same = signed.problem is None and (signed.index is None or not any(changed(archive, signed.index, sums)))
    return Verified(
        members=len(sums),
        bytes=sum(entry.size for entry in archive.entries.values()),
        intact=whole and same,
        signed_off=signed.index is not None,
    )
