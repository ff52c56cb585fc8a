"""What `marpack inspect` shows, the tree of members included."""

from collections.abc import Iterator, Sequence
from itertools import islice

import click
from rich.filesize import decimal

from marpack.archive.index import Metadata
from marpack.findings import Finding
from marpack.inspection.facts import HandlerFacts, Inspection, MemberFacts, WeightsFacts
from marpack.inspection.pickles import PickleFacts, PickleScan, PickleVerdict
from marpack.render.layout import clean, fit, heading, paragraph, rows
from marpack.weights.kind import WeightsFormat
from marpack.weights.onnx import Port
from marpack.weights.programs import Program

_MAX_COUNT = 40  # files shown of one folder
_MAX_LENGTH = 200  # lines
_Folder = dict[str, "MemberFacts | _Folder"]
_COLOURS = {PickleVerdict.SAFE: "green", PickleVerdict.NEEDS_TRUST: "yellow", PickleVerdict.DANGEROUS: "red"}
_SEVERITIES = {"error": "red", "warning": "yellow", "note": "cyan"}
SAFE_COVERS = "Safe covers the weights. The handler is code and always runs."
_SHOWN = 8  # of anything that may be long
_NAMES = 12  # globals of one pickle
_LINES = 20  # of the model config


def member_tree(members: Sequence[MemberFacts], width: int) -> Iterator[str]:
    """Yield one line per member: its place, size, method and the beginning of its digest."""
    top: _Folder = {}
    for member in members:
        folder = top
        *path, name = member.name.split("/")
        for part in path:
            inner = folder.setdefault(f"{part}/", {})
            folder = inner if isinstance(inner, dict) else folder
        folder[name] = member
    table = list(islice(_lines(top, "  "), _MAX_LENGTH + 1))
    yield from rows(table[:_MAX_LENGTH], width=width, right=frozenset({1}))
    if len(table) > _MAX_LENGTH:
        yield "  … and more: --json lists all of them"


def _lines(folder: _Folder, indent: str) -> Iterator[tuple[str, str, str, str]]:
    hidden = len(folder) - _MAX_COUNT
    for number, (name, item) in enumerate(folder.items()):
        if number == _MAX_COUNT and hidden > 1:
            yield f"{indent}… and {hidden:,} more", "", "", ""
            return
        if isinstance(item, dict):
            yield indent + clean(name), "", "", ""
            yield from _lines(item, f"{indent}  ")
        else:
            yield indent + clean(name), decimal(item.size), _method(item), (item.sha256 or "")[:12]


def _method(member: MemberFacts) -> str:
    if member.compressed_size >= member.size:
        return member.method
    return f"{member.method} to {member.compressed_size / member.size:.0%}"


def inspection_lines(facts: Inspection, width: int) -> Iterator[str]:
    """Yield the page line by line, in colours that click.echo takes off again where they are not wanted."""
    yield from _summary(facts, width)
    for weights in facts.weights:
        yield ""
        yield from _weights(weights, width)
    yield ""
    yield heading("members", f"{len(facts.members):,}, {decimal(sum(member.size for member in facts.members))}")
    yield from member_tree(facts.members, width)
    yield ""
    yield from _pickles(facts.pickles, width)
    yield from _programs(facts.programs, width)
    if facts.findings:
        yield ""
        yield heading("findings")
        for finding in sorted(facts.findings, key=lambda finding: list(_SEVERITIES).index(finding.severity)):
            yield from _finding(finding, width)


def _summary(facts: Inspection, width: int) -> Iterator[str]:
    model = facts.manifest["model"]
    version = model.get("modelVersion") or ""
    yield heading(fit(clean(f"{model['modelName']} {version}".strip()), width).rstrip())
    yield click.style("  source ", dim=True) + clean(facts.source)  # a path is for copying: never broken
    for label, text in summary_of(facts):
        yield from paragraph(label, text, width=width)
    if config := facts.config:
        yield from _config(config.text, width)


def summary_of(facts: Inspection) -> Iterator[tuple[str, str]]:
    """Yield what is known of an archive as a whole, each with its label."""
    yield "digest", facts.content_digest or "none: this archive has no MAR-INF/marpack.json"
    if facts.verified:
        yield "bytes", _verified(facts)
    if text := _origin(facts):
        yield "made", text
    yield from _author_says(facts.metadata or Metadata())
    yield "entry", _entry(facts.handler)
    if labels := facts.labels:
        more = ", …" if labels.count > len(labels.first) else ""
        yield "labels", labels.problem or f"{labels.count:,}: {', '.join(labels.first)}{more}"
    if facts.vendored:
        yield "wheels", facts.vendored.summary
    if facts.requirements:
        more = f" and {len(facts.requirements) - _SHOWN} more" if len(facts.requirements) > _SHOWN else ""
        yield "needs", ", ".join(facts.requirements[:_SHOWN]) + more


def _author_says(metadata: Metadata) -> Iterator[tuple[str, str]]:
    """Yield what the author says of the model, which nobody has checked."""
    if metadata.description:
        yield "about", " ".join(metadata.description.split())
    if metadata.license:
        yield "rights", metadata.license
    if metadata.authors:
        more = f" and {len(metadata.authors) - _SHOWN} more" if len(metadata.authors) > _SHOWN else ""
        yield "author", ", ".join(metadata.authors[:_SHOWN]) + more
    if metadata.homepage:
        yield "page", metadata.homepage


def _verified(facts: Inspection) -> str:
    verified = facts.verified
    if verified is None or not verified.intact:
        return "NOT what was packed: see the findings"
    against = "as its digests say" if verified.signed_off else "as its CRCs say"
    return f"all {decimal(verified.bytes)} read, {against}; whose it is: marpack verify"


def _origin(facts: Inspection) -> str:
    manifest = facts.manifest
    by = facts.provenance.get("builder") or (
        manifest.get("archiverVersion") and f"archiver {manifest['archiverVersion']}"
    )
    parts = [
        by and f"by {by}",
        (commit := facts.provenance.get("source_commit")) and f"from commit {commit}",
        manifest.get("createdOn") and f"on {manifest['createdOn']}",
        facts.target and f"for {facts.target}",
        f"runtime {manifest.get('runtime')}",
        facts.samples and f"with {facts.samples} samples",
    ]
    return ", ".join(str(part) for part in parts if part)


def _entry(handler: HandlerFacts) -> str:
    if handler.problem:
        return f"{handler.entry_point}: {handler.problem}"
    if handler.function:
        return f"{handler.file}: function {handler.function}"
    if handler.class_name is None:
        return f"{handler.entry_point}, a handler of the server's own"
    bases = f"({', '.join(handler.bases)})" if handler.bases else ""
    stages = ", ".join(handler.stages) or "nothing"
    return f"{handler.file}: class {handler.class_name}{bases}, defines {stages}"


def _config(text: str, width: int) -> Iterator[str]:
    lines = config_lines(text)
    for number, line in enumerate(lines[:_LINES]):
        label = "config" if number == 0 else ""
        yield click.style(f"  {label:7}", dim=True) + fit(clean(line), width - 9).rstrip()
    if len(lines) > _LINES:
        yield f"         … and {len(lines) - _LINES:,} more lines"


def config_lines(text: str) -> list[str]:
    """Return a model config as its author wrote it, without comments."""
    return [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("#", "---"))]


def _weights(weights: WeightsFacts, width: int) -> Iterator[str]:
    yield heading(fit(clean(weights.member), width - 24).rstrip(), click.style(weights.kind, fg="cyan"))
    for label, text in facts_of(weights):
        yield from paragraph(label, text, width=width)
    table = [
        (f"  {clean(tensor.name)}", tensor.dtype, str(list(tensor.shape)), decimal(tensor.bytes))
        for tensor in weights.largest
    ]
    yield from rows(table, width=width, right=frozenset({3}))


def facts_of(weights: WeightsFacts) -> Iterator[tuple[str, str]]:
    """Yield what is known of one weights file but for its tensors, each with its label."""
    if weights.problem:
        yield "broken", weights.problem
    if weights.tensors:
        mixed = len(weights.dtypes) > 1
        dtypes = ", ".join(f"{name} ({count})" if mixed else name for name, count in weights.dtypes.items())
        text = f"{weights.parameters:,} parameters in {weights.tensors:,} tensors, {decimal(weights.bytes)}, {dtypes}"
        yield "holds", text
    elif weights.kind is WeightsFormat.STATE_DICT and not weights.problem:
        yield "holds", "no tensors"
    for method in weights.methods[:_SHOWN]:
        yield "method", method.name + method.signature
    for label, ports in (("input", weights.inputs), ("output", weights.outputs)):
        for port in ports[:_SHOWN]:
            yield label, _port(port)
    for key, value in (*weights.facts.items(), *weights.metadata.items()):
        yield "", f"{key}: {value:.300}"


def _port(port: Port) -> str:
    shape = "unknown rank" if port.shape is None else f"[{', '.join(map(str, port.shape))}]"
    return f"{port.name} {port.dtype} {shape}" if port.dtype else port.name


def _pickles(scan: PickleScan, width: int) -> Iterator[str]:
    yield heading("pickles", read_of(scan, click.style(scan.verdict, fg=_COLOURS[scan.verdict])))
    if scan.verdict is PickleVerdict.SAFE:
        yield from paragraph("", SAFE_COVERS, width=width)
    risky = [pickle for pickle in scan.pickles if pickle.verdict is not PickleVerdict.SAFE]
    for pickle in risky[:_SHOWN]:
        verdict = click.style(pickle.verdict, fg=_COLOURS[pickle.verdict])
        yield f"  {fit(clean(pickle.where), width - 16).rstrip()}  {verdict}"
        yield from paragraph("", risk_of(pickle), width=width)
    if len(risky) > _SHOWN:
        yield f"  … and {len(risky) - _SHOWN:,} more"


def _programs(programs: Sequence[Program], width: int) -> Iterator[str]:
    if not programs:
        return
    yield ""
    yield heading("programs", f"{len(programs):,}")
    yield from rows([(f"  {clean(each.where)}", each.kind) for each in programs[:_SHOWN]], width=width)
    if len(programs) > _SHOWN:
        yield f"  … and {len(programs) - _SHOWN:,} more"


def read_of(scan: PickleScan, verdict: str) -> str:
    """Return how many pickles were read, after the verdict as it is to be shown."""
    if not (scan.pickles or scan.unscanned or scan.expressions):
        return "none"
    count = len(scan.expressions)
    hostile = f", {count:,} dangerous expression{'' if count == 1 else 's'}" if count else ""
    unread = f", {len(scan.unscanned):,} not looked into" if scan.unscanned else ""
    rest = f"; {scan.unfetched:,} members of numbers and code, which torch never unpickles, not fetched"
    return f"{verdict}, {len(scan.pickles):,} read{hostile}{unread}{rest if scan.unfetched else ''}"


def risk_of(pickle: PickleFacts) -> str:
    """Return what a pickle that is not safe would import, or else why it is not safe."""
    more = f" and {len(pickle.globals) - _NAMES} more" if len(pickle.globals) > _NAMES else ""
    return ", ".join(pickle.globals[:_NAMES]) + more or pickle.problem or "; ".join(pickle.reasons)


def _finding(finding: Finding, width: int) -> Iterator[str]:
    severity = click.style(finding.severity, fg=_SEVERITIES[finding.severity])
    yield f"  {severity} {click.style(finding.code, dim=True)}"
    if finding.where:
        yield f"    {clean(finding.where)}"  # as above
    yield from paragraph("", finding.message, width=width, column=4)
    if finding.hint:
        yield from paragraph("  hint:", finding.hint, width=width, column=10)
