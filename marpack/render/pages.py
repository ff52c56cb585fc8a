"""What a result shows, described once: `console` prints a `Page` on a terminal, `notebook` writes it as HTML."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec import Struct
from rich.filesize import decimal

from marpack.errors import join_names, pluralize
from marpack.findings import Finding
from marpack.json_text import to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from marpack.archive.reader import Unpacked
    from marpack.exporting.export import Exported
    from marpack.gate.verdicts import GateReport
    from marpack.inspection.diff import Diff, FieldDifference
    from marpack.inspection.facts import HandlerFacts, Inspection, MemberFacts, WeightsFacts
    from marpack.inspection.pickles import PickleFacts, PickleScan
    from marpack.trust import Signed, Verification

    Folder = dict[str, "MemberFacts | Folder"]

T = TypeVar("T")
Tone = Literal["", "good", "warn", "bad", "dim"]
Kind = Literal["text", "name", "number", "code"]

SAFE_COVERS = "Safe covers the weights. The handler is code and always runs."
_RISKS: dict[str, Tone] = {"safe": "good", "needs trust": "warn", "dangerous": "bad"}
_SIGNS: dict[str, tuple[str, Tone]] = {"added": ("+", "good"), "removed": ("-", "bad")}
_SEVERITIES = ("error", "warning", "note")
_MAX_ROWS = 40  # of a table
_MAX_MEMBERS = 200  # rows of the tree of members
_FEW = 8  # names in one fact, and rows of a short table
_NAMES = 12  # globals of one pickle
_LINES = 20  # of the model config


class Cell(Struct, frozen=True):
    """One text of a table."""

    text: str
    tone: Tone = ""
    kind: Kind = "text"


def number(text: str) -> Cell:
    """Return a number's cell, which is aligned right."""
    return Cell(text, kind="number")


class Fact(Struct, frozen=True):
    """One line of a page."""

    label: str
    text: str
    note: str = ""  # less important, after the text
    kind: Kind = "text"  # a name is never broken: it is for copying


class Row(Struct, frozen=True):
    """One row of a table."""

    cells: tuple[Cell, ...]
    below: str = ""  # a text of any length that belongs to the row

    @classmethod
    def of(cls, *cells: str | Cell, below: str = "") -> Row:
        """Return a row of cells, plain texts among them."""
        return cls(tuple(Cell(cell) if isinstance(cell, str) else cell for cell in cells), below)


class Table(Struct, frozen=True, kw_only=True):
    """A section of a page, with the first of its rows."""

    title: str = ""
    note: Cell = Cell("")  # beside the title
    facts: tuple[Fact, ...] = ()
    head: tuple[Cell, ...] = ()
    rows: tuple[Row, ...] = ()
    more: int = 0  # rows that are not shown

    @classmethod
    def of(
        cls, items: Sequence[T], make: Callable[[T], Row], title: str = "", *, most: int = _MAX_ROWS, **parts: Any
    ) -> Table:  # Any: further fields
        """Return a table with a row for each of the first items."""
        rows, more = tuple(map(make, items[:most])), max(0, len(items) - most)
        return cls(title=title, rows=rows, more=more, **parts)


class Page(Struct, frozen=True, kw_only=True):
    """What is shown of one result."""

    title: str = ""
    verdict: Cell | None = None  # what became of the title: "built"
    facts: tuple[Fact, ...] = ()
    checks: GateReport | None = None  # in HTML, its checks are shown
    tables: tuple[Table, ...] = ()
    findings: tuple[Finding, ...] = ()
    closing: str = ""  # the last sentence


def inspection_page(facts: Inspection) -> Page:
    """Return the page of `marpack inspect`."""
    model = facts.manifest["model"]
    lines = [
        line
        for line in (facts.config.text.splitlines() if facts.config else ())
        if line.strip() and not line.lstrip().startswith(("#", "---"))
    ]
    size = decimal(sum(member.size for member in facts.members))
    tree = [*islice(_list_members(facts.members), _MAX_MEMBERS + 1)]
    if len(tree) > _MAX_MEMBERS:
        tree[_MAX_MEMBERS:] = [Row.of(Cell("… and more: --json lists all of them", kind="code"))]
    tables = [
        *([Table.of(lines, lambda line: Row.of(Cell(line, kind="code")), "config", most=_LINES)] if lines else []),
        *map(_weights_table, facts.weights[:_FEW]),
        Table(title="members", rows=tuple(tree), note=Cell(f"{len(facts.members):,}, {size}")),
        _pickles_table(facts.pickles),
    ]
    if facts.programs:
        rows = [Row.of(Cell(each.where, kind="name"), each.kind) for each in facts.programs[:_FEW]]
        more, note = max(0, len(facts.programs) - _FEW), Cell(f"{len(facts.programs):,}")
        tables.append(Table(title="programs", note=note, rows=tuple(rows), more=more))
    return Page(
        title=f"{model['modelName']} {model.get('modelVersion') or ''}".strip(),
        facts=tuple(_list_facts(facts)),
        tables=tuple(tables),
        findings=tuple(sorted(facts.findings, key=lambda finding: _SEVERITIES.index(finding.severity))),
    )


def _list_facts(facts: Inspection) -> Iterator[Fact]:
    """Yield the facts about an archive as a whole."""
    yield Fact("source", facts.source, kind="name")
    yield Fact("digest", facts.content_digest or "none: this archive has no MAR-INF/marpack.json")
    if verified := facts.verified:
        against = "as its digests say" if verified.signed_off else "as its CRCs say"
        text = f"all {decimal(verified.bytes)} read, {against}; for its signer: marpack verify"
        yield Fact("bytes", text if verified.intact else "DIFFERENT from the packed bytes: see the findings")
    manifest, by = facts.manifest, facts.provenance.get("builder")
    if not by and manifest.get("archiverVersion"):
        by = f"archiver {manifest['archiverVersion']}"
    origin = [
        by and f"by {by}",
        (commit := facts.provenance.get("source_commit")) and f"from commit {commit}",
        manifest.get("createdOn") and f"on {manifest['createdOn']}",
        facts.target and f"for {facts.target}",
        f"runtime {manifest.get('runtime')}",
        facts.samples and f"with {facts.samples} samples",
    ]
    yield Fact("made", ", ".join(str(part) for part in origin if part))
    if metadata := facts.metadata:  # the author's own words, unchecked
        described = {
            "about": " ".join((metadata.description or "").split()),
            "rights": metadata.license,
            "author": join_names(metadata.authors),
            "page": metadata.homepage,
        }
        yield from (Fact(label, text) for label, text in described.items() if text)
    yield Fact("entry", _describe_entry(facts.handler))
    if labels := facts.labels:
        more = ", …" if labels.count > len(labels.first) else ""
        yield Fact("labels", labels.problem or f"{labels.count:,}: {', '.join(labels.first)}{more}")
    if facts.vendored:
        yield Fact("wheels", facts.vendored.summary)
    if facts.requirements:
        yield Fact("needs", join_names(facts.requirements))


def _describe_entry(handler: HandlerFacts) -> str:
    if handler.problem:
        return f"{handler.entry_point}: {handler.problem}"
    if handler.function:
        return f"{handler.file}: function {handler.function}"
    if handler.class_name is None:
        return f"{handler.entry_point}, a handler of the server's own"
    bases = f"({', '.join(handler.bases)})" if handler.bases else ""
    stages = ", ".join(handler.stages) or "nothing"
    return f"{handler.file}: class {handler.class_name}{bases}, defines {stages}"


def _list_members(members: Sequence[MemberFacts]) -> Iterator[Row]:
    """Yield the tree of members: place, size, method and the beginning of the digest; of a folder the first rows."""
    top: Folder = {}
    for member in members:
        folder = top
        *path, name = member.name.split("/")
        for part in path:
            inner = folder.setdefault(f"{part}/", {})
            folder = inner if isinstance(inner, dict) else folder
        folder[name] = member

    def list_folder(folder: Folder, indent: str) -> Iterator[Row]:
        hidden = len(folder) - _MAX_ROWS
        for shown, (name, item) in enumerate(folder.items()):
            if shown == _MAX_ROWS and hidden > 1:
                yield Row.of(Cell(f"{indent}… and {hidden:,} more", kind="code"))
                return
            place = Cell(indent + name, kind="code")
            if isinstance(item, dict):
                yield Row.of(place)
                yield from list_folder(item, f"{indent}  ")
                continue
            method: str = item.method
            if item.compressed_size < item.size:
                method += f" to {item.compressed_size / item.size:.0%}"
            digest = Cell((item.sha256 or "")[:12], kind="name")
            yield Row.of(place, number(decimal(item.size)), method, digest)

    yield from list_folder(top, "")


def _weights_table(weights: WeightsFacts) -> Table:
    facts = [Fact("broken", weights.problem)] if weights.problem else []
    if weights.tensors:
        mixed = len(weights.dtypes) > 1
        dtypes = ", ".join(f"{name} ({count})" if mixed else name for name, count in weights.dtypes.items())
        text = f"{weights.parameters:,} parameters in {weights.tensors:,} tensors, {decimal(weights.bytes)}, {dtypes}"
        facts.append(Fact("holds", text))
    elif weights.kind == "state_dict" and not weights.problem:
        facts.append(Fact("holds", "no tensors"))
    facts += [Fact("method", method.name + method.signature) for method in weights.methods[:_FEW]]
    for label, ports in (("input", weights.inputs), ("output", weights.outputs)):
        for port in ports[:_FEW]:
            shape = "unknown rank" if port.shape is None else f"[{', '.join(map(str, port.shape))}]"
            facts.append(Fact(label, f"{port.name} {port.dtype} {shape}" if port.dtype else port.name))
    facts += [Fact("", f"{key}: {value:.300}") for key, value in (*weights.facts.items(), *weights.metadata.items())]
    rows = tuple(
        Row.of(Cell(tensor.name, kind="name"), tensor.dtype, str(list(tensor.shape)), number(decimal(tensor.bytes)))
        for tensor in weights.largest
    )
    kind = Cell(weights.kind, "dim")
    return Table(title=weights.member, note=kind, facts=tuple(facts[:_MAX_ROWS]), rows=rows)


def _pickles_table(scan: PickleScan) -> Table:
    seen = "none"
    if scan.pickles or scan.unscanned:
        unread = f", {len(scan.unscanned):,} not scanned" if scan.unscanned else ""
        rest = f"; {scan.unfetched:,} members of numbers and code, which torch never unpickles, not fetched"
        seen = f"{scan.verdict}, {len(scan.pickles):,} read{unread}{rest if scan.unfetched else ''}"

    def show_pickle(pickle: PickleFacts) -> Row:
        # its imports, otherwise why it is not safe
        below = join_names(pickle.globals, _NAMES) or pickle.problem or "; ".join(pickle.reasons)
        return Row.of(Cell(pickle.where, kind="name"), Cell(pickle.verdict, _RISKS[pickle.verdict]), below=below)

    risky = [pickle for pickle in scan.pickles if pickle.verdict != "safe"]
    covers = (Fact("", SAFE_COVERS),) if scan.verdict == "safe" else ()
    note = Cell(seen, "" if seen == "none" else _RISKS[scan.verdict])
    return Table.of(risky, show_pickle, "pickles", most=_FEW, note=note, facts=covers)


def diff_page(found: Diff) -> Page:
    """Return the page of `marpack diff`."""
    parts = {title: getattr(found, title) for title in ("manifest", "recorded", "members", "config", "labels")}
    tables = [
        Table.of(differences, partial(_difference_row, title), title)
        for title, differences in parts.items()
        if differences
    ]
    for tensors in found.tensors[:_MAX_ROWS]:
        name = tensors.member if tensors.member == tensors.other else f"{tensors.member} → {tensors.other}"
        count = len(tensors.differences)
        facts = [Fact("", f"{count:,} of {tensors.same + tensors.uncompared + count:,} differ")]
        if tensors.uncompared:
            facts.append(Fact("", f"{tensors.uncompared:,} have no numbers here to compare"))
        if tensors.problem:
            facts.append(Fact("broken", tensors.problem))
        make = partial(_difference_row, "tensors")
        tables.append(Table.of(tensors.differences, make, f"tensors of {name}", facts=tuple(facts)))
    title = "the same" if found.same else "different"
    sources = (Fact("-", found.before, kind="name"), Fact("+", found.after, kind="name"))
    return Page(title=title, facts=sources, tables=tuple(tables))


def _difference_row(title: str, part: FieldDifference) -> Row:
    sign, tone = _SIGNS.get(part.change, ("~", "warn"))
    return Row.of(Cell(f"{sign} {part.name}", tone, "name"), Cell(_describe_difference(part, title), tone))


def _describe_difference(part: FieldDifference, title: str) -> str:
    """Return how one thing differs: a member, a tensor, or a value."""
    sides = (part.before, part.after)
    if title == "members":
        before, after = (side and decimal(side["size"]) for side in sides)
        if before and before == after:
            return f"{before}, other bytes"
    elif title == "tensors":
        before, after = (side and f"{side['dtype']} {side['shape']}" for side in sides)
        if part.change == "changed":
            return f"{after}, other values"
    else:
        before, after = (side if isinstance(side, str) else to_json(side).decode() for side in sides)
        if part.change in _SIGNS:
            return str(after if part.change == "added" else before)
    return f"{before} → {after}" if before and after else str(before or after)


def unpacked_page(unpacked: Unpacked) -> Page:
    """Return the page of `marpack unpack`."""
    size = f"{pluralize(len(unpacked.files), 'file')}, {decimal(unpacked.bytes)}"
    facts = (Fact("source", unpacked.source, kind="name"), Fact("size", size))
    return Page(title=unpacked.folder, verdict=Cell("unpacked", "good"), facts=facts, findings=unpacked.findings)


def exported_page(written: Exported, *, dry_run: bool = False) -> Page:
    """Return the page of `marpack export`: the folder, and the commands that come next, or the files of a dry run."""
    from shlex import quote

    size = f"{decimal(sum(file.size for file in written.files))} in {pluralize(len(written.files), 'file')}"
    if dry_run:
        table = Table.of(written.files, lambda file: Row.of(file.name, number(decimal(file.size))), most=1 << 16)
        return Page(
            title=written.folder,
            verdict=Cell("would export", "good"),
            facts=(Fact("size", size),),
            tables=(table,),
            findings=written.findings,
            closing="Nothing was written.",
        )
    commands = [f"cd {quote(written.folder)}", *written.commands]
    then = (Fact("" if at else "then", command, kind="name") for at, command in enumerate(commands))
    facts = (Fact("size", size), *then)
    return Page(title=written.folder, verdict=Cell("exported", "good"), facts=facts, findings=written.findings)


def signed_page(signed: Signed) -> Page:
    """Return the page of `marpack sign`."""
    facts = (
        Fact("archive", signed.archive, kind="name"),
        Fact("sha256", signed.sha256),
        Fact("by", str(signed.signer)),
    )
    return Page(title=signed.signature, verdict=Cell("signed", "good"), facts=facts, findings=signed.findings)


def verification_page(verification: Verification) -> Page:
    """Return the page of `marpack verify`: the signer."""
    facts = (Fact("sha256", verification.sha256), Fact("signed", f"by {verification.signer}"))
    closing = "This is the file that was signed. To see its contents: marpack inspect --verify."
    return Page(
        title=verification.archive,
        verdict=Cell("verified", "good"),
        facts=facts,
        findings=verification.findings,
        closing=closing,
    )
