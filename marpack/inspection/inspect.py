"""A look into an archive that runs nothing, imports nothing and unpickles nothing."""

from collections.abc import Iterator
from functools import partial

import msgspec
from msgspec import Struct

from marpack.archive.index import Index, archive_digest
from marpack.archive.protocol import INDEX_NAME, Archive
from marpack.errors import DamagedArchiveError
from marpack.findings import Finding
from marpack.inspection.facts import ConfigFacts, Inspection, LabelFacts, MemberFacts, Verified
from marpack.inspection.handler import handler_facts
from marpack.inspection.looking import Looked, is_elsewhere, look, too_costly
from marpack.inspection.nesting import Walk
from marpack.inspection.pickles import distrust, scan_of
from marpack.inspection.texts import config_facts, label_facts, requirement_lines
from marpack.inspection.verification import changed, digests, unlisted

_LABELS = "index_to_name.json"
_TEXT_LIMIT = 8 * 1024 * 1024  # bytes of one text member


class _Signed(Struct, frozen=True):
    """What MAR-INF/marpack.json says, if there is one."""

    digest: str | None = None
    index: Index | None = None
    problem: Finding | None = None


def inspect(archive: Archive, *, verify: bool = False, parse_config: bool = True) -> Inspection:
    """Look into an archive: facts, and findings about what is unsafe or not as it was signed off.

    Args:
        archive: Is read by range: its directory, the small files and the weights' headers.
        verify: Read every byte, and compare digests and CRCs.
        parse_config: Give the model config's values beside its text, which takes a YAML parser.

    Raises ManifestError for a manifest that is missing or malformed.
    """
    manifest, signed = archive.manifest, _signed(archive)
    sums = dict(digests(archive)) if verify else {}
    walk = Walk(fetched=is_elsewhere(archive))
    looked = [look(archive, name, walk) for name in archive.entries]
    pickles = scan_of(looked, unfetched=walk.unfetched)
    index, read = signed.index or Index(members=()), partial(_text, archive)
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
        labels=_labels(archive),
        config=_config(archive, manifest.model.config_file, parse=parse_config),
        requirements=requirement_lines(read(manifest.model.requirements_file) or b""),
        weights=tuple(item.weights for item in looked if item.weights),
        pickles=pickles,
        verified=_verified(archive, signed, sums) if verify else None,
        findings=(*archive.oddities, *_integrity(archive, signed, sums, looked), *distrust(pickles, archive.source)),
    )


def _signed(archive: Archive) -> _Signed:
    if INDEX_NAME not in archive.entries:
        return _Signed()
    with archive.open(INDEX_NAME) as file:
        data = file.read()
    digest = archive_digest(data)
    try:
        return _Signed(digest, Index.from_json(data))
    except DamagedArchiveError as error:
        return _Signed(digest, problem=unlisted(error.what, f"{archive.source}!{INDEX_NAME}"))


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


def _text(archive: Archive, name: str | None) -> bytes | None:
    if name is None or name not in archive.entries or too_costly(archive, name):
        return None
    with archive.open(name) as file:
        return file.read(_TEXT_LIMIT)


def _labels(archive: Archive) -> LabelFacts | None:
    data = _text(archive, _LABELS)
    return None if data is None else label_facts(data)


def _config(archive: Archive, name: str | None, *, parse: bool) -> ConfigFacts | None:
    data = _text(archive, name)
    return None if data is None or name is None else config_facts(name, data, parse=parse)


def _integrity(
    archive: Archive, signed: _Signed, sums: dict[str, str | Finding], looked: list[Looked]
) -> Iterator[Finding]:
    """Yield where the archive is damaged, or not what its index says."""
    if signed.problem:
        yield signed.problem
    damaged = {item.where: item for item in sums.values() if isinstance(item, Finding)}
    damaged |= {item.damage.where: item.damage for item in looked if item.damage}
    yield from damaged.values()
    if signed.index:
        yield from changed(archive, signed.index, sums)


def _verified(archive: Archive, signed: _Signed, sums: dict[str, str | Finding]) -> Verified:
    whole = all(isinstance(item, str) for item in sums.values())
    same = signed.problem is None and (signed.index is None or not any(changed(archive, signed.index, sums)))
    return Verified(
        members=len(sums),
        bytes=sum(entry.size for entry in archive.entries.values()),
        intact=whole and same,
        signed_off=signed.index is not None,
    )
