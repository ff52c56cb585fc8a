"""Archive → facts and findings: members, weights, pickles, integrity; nothing is executed."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from marpack.archive.index import Index
from marpack.archive.protocol import Archive, Progress, require_files
from marpack.archive.sagemaker import SCRIPT
from marpack.errors import DamagedArchiveError
from marpack.finding_codes import MEMBER_UNREADABLE, WEIGHTS_PICKLED
from marpack.findings import Finding, Severity
from marpack.inspection.facts import HandlerFacts, Inspection, MemberFacts, TensorFacts, Verified, WeightsFacts
from marpack.inspection.lint.handler import Classes, LocalClass, find_entry, search_path
from marpack.inspection.lint.source import Files
from marpack.inspection.members import (
    UNLIKE,
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
from marpack.inspection.pickles import PickleFacts, PickleScan, Unscanned, pickle_findings, scan_of
from marpack.inspection.requirements import logical_lines
from marpack.protocol.targets import Target
from marpack.weights.contents import read_contents, recognize
from marpack.weights.kind import Program, WeightsFormat
from marpack.weights.pickle import OPCODE_LIMIT
from marpack.weights.tensors import WeightsSummary

_LARGEST = 10
# BaseHandler's methods that archives override, in the order in which they run (contract §6).
_STAGES = (
    "initialize", "preprocess", "inference", "postprocess", "handle",
    "explain_handle", "get_insights", "describe_handle", "get_device",
)  # fmt: skip


def inspect(
    archive: Archive,
    *,
    verify: bool = False,
    parse_config: bool = True,
    static_checks: bool = False,
    max_opcodes: int | None = None,
    progress: Progress | None = None,
) -> Inspection:
    """Return an archive's facts and findings without executing anything in it.

    Directory, small files and weights headers are read, by range; with `verify`, every byte is read and compared with
    digests and CRCs. `parse_config` returns the model config's values beside its text, `static_checks` adds findings of
    a build, `max_opcodes` limits all pickles together. `progress` gets the number of bytes just verified.

    Raises ManifestError for a manifest that is missing, malformed, or names a missing file.
    """
    state = read_index(archive)
    require_files(archive)
    index = state.index or Index(members=())
    sums = dict(digests(archive, progress)) if verify else {}
    weights, pickles, programs, damaged = _scan_members(archive, max_opcodes or OPCODE_LIMIT)
    labels, config = label_facts(archive), config_facts(archive, parse=parse_config)
    needed = read_text(archive, archive.manifest.model.requirements_file)
    changes = list(changed(archive, index, sums)) if state.index else [state.problem] if state.problem else []
    unreadable = {finding.where: finding for finding in (*sums.values(), *damaged) if isinstance(finding, Finding)}
    findings = (
        *archive.server_findings,
        *unreadable.values(),
        *changes,
        *pickle_findings(pickles, archive.source),
        *program_findings(programs, archive.source),
        *text_findings(labels, config, archive.source),
    )
    if static_checks:
        findings += tuple(_static_findings(archive, index, findings))
    size = sum(entry.size for entry in archive.entries.values())
    intact = not changes and all(isinstance(item, str) for item in sums.values())
    verified = Verified(members=len(sums), bytes=size, intact=intact, signed_off=state.index is not None)
    return Inspection(
        source=archive.source,
        form=archive.form,
        content_digest=state.content_digest,
        manifest=msgspec.json.decode(archive.manifest.to_json()),
        provenance=index.provenance,
        vendored=index.vendored or None,
        metadata=index.metadata or None,
        target=index.target if state.index else None,
        samples=len(index.samples),
        members=_member_facts(archive, index, sums),
        handler=handler_facts(archive),
        labels=labels,
        config=config,
        requirements=tuple(text for _, text in logical_lines(needed)) if needed else (),
        weights=weights,
        pickles=pickles,
        programs=programs,
        verified=verified if verify else None,
        findings=findings,
    )


def _scan_members(
    archive: Archive, max_opcodes: int
) -> tuple[tuple[WeightsFacts, ...], PickleScan, tuple[Program, ...], list[Finding]]:
    """Return the weights, pickles and programs of all members, and the findings about damaged ones."""
    named = archive.manifest.model.serialized_file
    scan = NestedScan(fetched=is_remote(archive), opcodes=max_opcodes, weights=named, members=archive.entries)
    weights: list[WeightsFacts] = []
    parts: list[Part] = []
    damaged: list[Finding] = []
    unknown: str | None = None
    costly = {name for name in archive.entries if is_costly(archive, name)}
    for name in archive.entries:
        if name in costly:
            parts.append(Unscanned(name, "it is compressed, and would have to be fetched whole"))
            continue
        try:
            with archive.open(name) as file:
                found = recognize(file, scan.budget)
                contents = None if found.kind is WeightsFormat.UNKNOWN else read_contents(file, found)
                inside = list(scan.file(name, file, found))
            parts += inside
            weights += [weights_facts(name, contents)] if contents else []
            is_pickle = any(isinstance(part, PickleFacts) and part.where == name for part in inside)  # as a whole
            if name == named and not contents and not is_pickle:
                unknown = name
        except DamagedArchiveError as error:
            parts.append(Unscanned(name, "it is damaged"))
            damaged.append(damaged_member(error, archive, name))
    programs = tuple(dict.fromkeys(part for part in parts if isinstance(part, Program)))
    return tuple(weights), scan_of(parts, unfetched=scan.unfetched, unknown_weights=unknown), programs, damaged


def weights_facts(member: str, contents: WeightsSummary) -> WeightsFacts:
    """Return the facts of one weights file."""
    tensors = [placed.tensor for placed in contents.tensors]
    # Two tensors that share a storage, such as tied weights, count once.
    storages = {placed.storage: placed.storage_bytes for placed in contents.tensors if placed.storage is not None}
    loose = [placed.storage_bytes or placed.tensor.bytes for placed in contents.tensors if placed.storage is None]
    return WeightsFacts(
        member=member,
        kind=contents.kind,
        tensors=len(tensors),
        parameters=sum(tensor.elements for tensor in tensors),
        bytes=sum(storages.values()) + sum(loose),
        dtypes=dict(Counter(tensor.dtype for tensor in tensors).most_common()),
        largest=tuple(
            TensorFacts(name=tensor.name, dtype=tensor.dtype, shape=tensor.shape, bytes=tensor.bytes)
            for tensor in sorted(tensors, key=lambda tensor: -tensor.bytes)[:_LARGEST]
        ),
        methods=contents.methods,
        inputs=contents.inputs,
        outputs=contents.outputs,
        metadata=contents.metadata,
        facts=contents.facts,
        problem=contents.problem,
    )


def _member_facts(archive: Archive, index: Index, sums: dict[str, str | Finding]) -> tuple[MemberFacts, ...]:
    known = {member.name: member.sha256 for member in index.members}
    known |= {name: computed for name, computed in sums.items() if isinstance(computed, str)}
    return tuple(
        MemberFacts(
            name=entry.name,
            size=entry.size,
            compressed_size=entry.compressed_size,
            method=entry.method,
            sha256=known.get(entry.name),
        )
        for entry in archive.entries.values()
    )


def handler_facts(archive: Archive) -> HandlerFacts:
    """Return the entry point that the server finds, as far as the source shows it."""
    facts = HandlerFacts(entry_point=archive.manifest.model.handler)
    open_member = partial(open_text, archive)
    classes = Classes(Files(archive.entries, open_member, search_path(archive.manifest, open_member)))
    try:
        entry = find_entry(classes, archive.manifest)
        facts = replace(facts, file=entry.member)
        if entry.is_function:
            return replace(facts, function=entry.name)
        if entry.member is None:
            return facts
        if not isinstance(entry.cls, LocalClass):
            reason = f"calls {SCRIPT}" if entry.member == SCRIPT else "its source does not show the entry point"
            for finding in entry.findings[-1:]:
                line = (finding.where or "").rpartition(":")[2]
                reason = f"line {line}: {finding.message}" if line.isdecimal() else finding.message
            return replace(facts, problem=reason)
        if not classes.has_handle(entry.cls):
            return replace(facts, problem=f"the class {entry.cls.node.name} has no method 'handle'")
        local = [base for base in classes.order(entry.cls) if isinstance(base, LocalClass)]
    except RecursionError:
        return replace(facts, problem="it is nested too deeply and was not checked")
    return replace(
        facts,
        class_name=entry.cls.node.name,
        bases=tuple(ast.unparse(base) for base in entry.cls.node.bases),
        stages=tuple(stage for stage in _STAGES if any(stage in base.scope.names for base in local)),
    )


class _CheapView:
    """An archive's members for the static checks, without those that cost too much to fetch."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self.entries = archive.entries

    def open(self, name: str) -> BinaryIO:
        """Open one member; raises KeyError for one that costs too much."""
        if is_costly(self._archive, name):
            raise KeyError(name)
        return self._archive.open(name)


def _static_findings(archive: Archive, index: Index, known: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the findings of a build's static checks, except for those that `known` contains already."""
    # Imported late: running and serving an archive do not need it.
    from marpack.inspection.lint.linting import lint  # noqa: PLC0415

    target = Target(index.target) if index.target in set(Target) else Target.TORCHSERVE
    for finding in lint(_CheapView(archive), archive.manifest, target=target, vendored=index.vendored):
        member = (finding.where or "").partition(":")[0]
        place = re.compile(rf"{re.escape(f'{archive.source}!{member}')}($|[!@:])")
        reported = [each for each in known if place.match(each.where or "")]
        is_milder = finding.code == WEIGHTS_PICKLED.name and finding.severity is not Severity.ERROR
        is_repeated = (finding.code == MEMBER_UNREADABLE.name or is_milder) and bool(reported)
        if not is_repeated and not any(
            each.severity is Severity.ERROR and each.code not in UNLIKE for each in reported
        ):
            yield replace(finding, where=f"{archive.source}!{finding.where}" if finding.where else archive.source)
