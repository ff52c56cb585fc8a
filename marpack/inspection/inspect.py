"""Archive → facts: members, weights, pickles, integrity; nothing of it is run."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import BinaryIO

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from marpack.archive.index import Index
from marpack.archive.protocol import Archive, Progress, require_files
from marpack.errors import DamagedArchiveError
from marpack.findings import Finding, Severity
from marpack.inspection.facts import HandlerFacts, Inspection, MemberFacts, TensorFacts, Verified, WeightsFacts
from marpack.inspection.lint.classes import Library, LocalClass
from marpack.inspection.lint.entry_point import EntryKind, HandlerFile, answers, decide, find_handler, search_path
from marpack.inspection.lint.files import UNREADABLE, Files
from marpack.inspection.members import (
    UNLIKE,
    IndexState,
    changed,
    config_facts,
    damaged_member,
    digests,
    is_costly,
    is_remote,
    label_facts,
    open_text,
    program_findings,
    read_index,
    read_text,
    text_findings,
)
from marpack.inspection.nested_files import NestedScan, Part
from marpack.inspection.pickles import Unscanned, distrust, scan_of
from marpack.protocol.targets import Target
from marpack.weights.contents import WeightsSummary, read_contents, recognize
from marpack.weights.kind import WeightsFormat
from marpack.weights.pickle_machine import OPCODE_LIMIT
from marpack.weights.programs import Program
from marpack.weights.tensors import StoredTensor

_LARGEST = 10
# BaseHandler's methods that archives override, in the order they run (contract §6).
_STAGES = (
    "initialize", "preprocess", "inference", "postprocess", "handle",
    "explain_handle", "get_insights", "describe_handle", "get_device",
)  # fmt: skip


def weights_facts(member: str, contents: WeightsSummary) -> WeightsFacts:
    """Sum up one weights file."""
    tensors = [placed.tensor for placed in contents.tensors]
    largest = sorted(tensors, key=lambda tensor: -tensor.bytes)[:_LARGEST]
    return WeightsFacts(
        member=member,
        kind=contents.kind,
        tensors=len(tensors),
        parameters=sum(tensor.elements for tensor in tensors),
        bytes=_stored_bytes(contents.tensors),
        dtypes=dict(Counter(tensor.dtype for tensor in tensors).most_common()),
        largest=tuple(
            TensorFacts(name=tensor.name, dtype=tensor.dtype, shape=tensor.shape, bytes=tensor.bytes)
            for tensor in largest
        ),
        methods=contents.methods,
        inputs=contents.inputs,
        outputs=contents.outputs,
        metadata=contents.metadata,
        facts=contents.facts,
        problem=contents.problem,
    )


def _stored_bytes(tensors: tuple[StoredTensor, ...]) -> int:
    """Return the bytes of all storages; two tensors that share one, as tied weights do, count once."""
    storages = {placed.storage: placed.storage_bytes for placed in tensors if placed.storage is not None}
    loose = sum(placed.storage_bytes or placed.tensor.bytes for placed in tensors if placed.storage is None)
    return sum(storages.values()) + loose


class MemberScan(Struct, frozen=True, kw_only=True):
    """What one member holds."""

    weights: WeightsFacts | None = None
    seen: tuple[Part, ...] = ()
    damage: Finding | None = None


def look(archive: Archive, name: str, walk: NestedScan) -> MemberScan:
    """Look into one member; a damaged one is a finding, not an end."""
    try:
        return _look(archive, name, walk)
    except DamagedArchiveError as error:
        return MemberScan(seen=(Unscanned(name, "it is damaged"),), damage=damaged_member(error, archive, name))


def _look(archive: Archive, name: str, walk: NestedScan) -> MemberScan:
    if is_costly(archive, name):
        return MemberScan(seen=(Unscanned(name, "it is compressed, and would have to be fetched whole"),))
    with archive.open(name) as file:
        found = recognize(file, walk.budget)
        weights = None
        if found.kind is not WeightsFormat.UNKNOWN:
            weights = weights_facts(name, read_contents(file, found))
        return MemberScan(weights=weights, seen=tuple(walk.file(name, file, found)))


def inspect(
    archive: Archive,
    *,
    verify: bool = False,
    parse_config: bool = True,
    static_checks: bool = False,
    max_opcodes: int | None = None,
    progress: Progress | None = None,
) -> Inspection:
    """Look into an archive: facts, and findings about what is unsafe or not as it was signed off.

    Args:
        archive: Is read by range: its directory, the small files and the weights' headers.
        verify: Read every byte, and compare digests and CRCs.
        parse_config: Give the model config's values beside its text, which takes a YAML parser.
        static_checks: Report what the static checks of a build find, too.
        max_opcodes: How many all pickles together may have; None: `OPCODE_LIMIT`.
        progress: Is called with the number of bytes just verified, again and again.

    Raises ManifestError for a manifest that is missing, malformed, or names a file that is not there.
    """
    manifest, signed = archive.manifest, read_index(archive)
    require_files(archive)
    sums = dict(digests(archive, progress)) if verify else {}
    walk = NestedScan(
        fetched=is_remote(archive),
        opcodes=max_opcodes or OPCODE_LIMIT,
        weights=manifest.model.serialized_file,
        members=archive.entries,
    )
    looked = [look(archive, name, walk) for name in archive.entries]
    parts = [part for item in looked for part in item.seen]
    pickles = scan_of(parts, unfetched=walk.unfetched)
    programs = tuple(dict.fromkeys(part for part in parts if isinstance(part, Program)))
    index = signed.index or Index(members=())
    labels, config = label_facts(archive), config_facts(archive, parse=parse_config)
    findings = (
        *archive.server_findings,
        *_integrity(archive, signed, sums, looked),
        *distrust(pickles, archive.source),
        *program_findings(programs, archive.source),
        *text_findings(labels, config, archive.source),
    )
    return Inspection(
        source=archive.source,
        form=archive.form,
        content_digest=signed.content_digest,
        manifest=msgspec.json.decode(manifest.to_json()),
        provenance=index.provenance,
        vendored=index.vendored or None,
        metadata=index.metadata or None,
        target=index.target if signed.index else None,
        samples=len(index.samples),
        members=tuple(_members(archive, index, sums)),
        handler=handler_facts(archive),
        labels=labels,
        config=config,
        requirements=_requirements(archive),
        weights=tuple(item.weights for item in looked if item.weights),
        pickles=pickles,
        programs=programs,
        verified=_verified(archive, signed, sums) if verify else None,
        findings=(*findings, *_static_findings(archive, index, findings)) if static_checks else findings,
    )


class _CheapView:
    """An archive's members as the static checks read them, without those that cost too much to fetch."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self.entries = archive.entries

    def open(self, name: str) -> BinaryIO:
        """Open one member; raises KeyError for one that costs too much."""
        if is_costly(self._archive, name):
            raise KeyError(name)
        return self._archive.open(name)


def _static_findings(archive: Archive, index: Index, known: Sequence[Finding]) -> Iterator[Finding]:
    """Yield what the static checks of a build find in an archive, except for what `known` says already."""
    # Imported where it is needed: running and serving an archive do without.
    from marpack.inspection.lint.linting import lint  # noqa: PLC0415
    from marpack.inspection.lint.weights import PICKLED  # noqa: PLC0415

    target = Target(index.target) if index.target in set(Target) else Target.TORCHSERVE
    for finding in lint(_CheapView(archive), archive.manifest, target=target, vendored=index.vendored):
        member = (finding.where or "").partition(":")[0]
        place = re.compile(rf"{re.escape(f'{archive.source}!{member}')}($|[!@:])")
        reported = [each for each in known if place.match(each.where or "")]
        is_repeated = any(each.severity is Severity.ERROR and each.code not in UNLIKE for each in reported)
        is_repeated |= bool(reported) and finding.code == UNREADABLE.name
        is_repeated |= bool(reported) and finding.code == PICKLED.name and finding.severity is not Severity.ERROR
        if not is_repeated:
            yield replace(finding, where=f"{archive.source}!{finding.where}" if finding.where else archive.source)


def handler_facts(archive: Archive) -> HandlerFacts:
    """Return what the manifest's `handler` names, as the server will find it."""
    files = Files(archive.entries, partial(open_text, archive), search_path(archive.manifest))
    found = find_handler(files, archive.manifest)
    if found.member is None:
        return HandlerFacts(entry_point=archive.manifest.model.handler)
    known = HandlerFacts(entry_point=archive.manifest.model.handler, file=found.member)
    try:
        return _entry(known, found, Library(files))
    except RecursionError:
        return replace(known, problem="it is nested too deeply, and was not looked into")


def _entry(known: HandlerFacts, found: HandlerFile, library: Library) -> HandlerFacts:
    entry = decide(found, library)
    if entry.kind is EntryKind.FUNCTION:
        return replace(known, function=entry.name)
    if not isinstance(entry.cls, LocalClass):
        return replace(known, problem=_told([*found.findings, *entry.findings]))
    if not answers(library, entry.cls):
        return replace(known, problem=f"the class {entry.cls.node.name} has no method 'handle'")
    local = [base for base in library.order(entry.cls) if isinstance(base, LocalClass)]
    return replace(
        known,
        class_name=entry.cls.node.name,
        bases=tuple(ast.unparse(base) for base in entry.cls.node.bases),
        stages=tuple(stage for stage in _STAGES if any(stage in base.scope.names for base in local)),
    )


def _told(findings: list[Finding]) -> str:
    """Return the last finding's sentence, with its line."""
    if not findings:
        return "it cannot be read"
    line = (findings[-1].where or "").rpartition(":")[2]
    return f"line {line}: {findings[-1].message}" if line.isdecimal() else findings[-1].message


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


def _requirements(archive: Archive) -> tuple[str, ...]:
    data = read_text(archive, archive.manifest.model.requirements_file)
    if data is None:
        return ()
    from marpack.inspection.requirements import logical_lines  # noqa: PLC0415 - most archives have none

    return tuple(text for _, text in logical_lines(data))


def _integrity(
    archive: Archive, signed: IndexState, sums: dict[str, str | Finding], looked: list[MemberScan]
) -> Iterator[Finding]:
    """Yield where the archive is damaged, or not what its index says."""
    if signed.problem:
        yield signed.problem
    damaged = {item.where: item for item in sums.values() if isinstance(item, Finding)}
    damaged |= {item.damage.where: item.damage for item in looked if item.damage}
    yield from damaged.values()
    if signed.index:
        yield from changed(archive, signed.index, sums)


def _verified(archive: Archive, signed: IndexState, sums: dict[str, str | Finding]) -> Verified:
    whole = all(isinstance(item, str) for item in sums.values())
    same = signed.problem is None and (signed.index is None or not any(changed(archive, signed.index, sums)))
    return Verified(
        members=len(sums),
        bytes=sum(entry.size for entry in archive.entries.values()),
        intact=whole and same,
        signed_off=signed.index is not None,
    )
