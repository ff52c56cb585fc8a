"""An archive's members: their digests, its small text files, and the programs among them."""

from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, BinaryIO

from msgspec import Struct

from marpack.archive.index import Index, index_bytes, index_digest
from marpack.archive.protocol import INDEX_NAME, Archive, Method, Progress
from marpack.archive.zip_format import NotZipError, read_entries
from marpack.errors import DamagedArchiveError, join_names
from marpack.finding_codes import (
    CONFIG_HOSTILE,
    DAMAGED_MEMBER,
    DIGEST_MISMATCH,
    INDEX_UNREADABLE,
    LABELS_UNREADABLE,
    MISSING_MEMBER,
    PROGRAM,
    SIZE_MISMATCH,
    UNLISTED_MEMBER,
    WEIGHTS_UNKNOWN,
)
from marpack.findings import Finding, Severity
from marpack.inspection.facts import ConfigFacts, LabelFacts
from marpack.torchserve.labels import LABELS_NAME, MAX_LABELS, parse_labels
from marpack.weights.kind import Program, named_kind, package_kind, program_kind

# Codes for a member that differs from MAR-INF/marpack.json, and for an archive that is not the one that was built.
UNLIKE = frozenset({DIGEST_MISMATCH.name, UNLISTED_MEMBER.name, MISSING_MEMBER.name})
UNFIT = UNLIKE | {DAMAGED_MEMBER.name}
DISTRUSTED = frozenset({LABELS_UNREADABLE.name, CONFIG_HOSTILE.name})

_MAX_FETCHED = 64 * 1024  # bytes of a compressed member of a remote archive
_SHOWN_LABELS = 5
_SHOWN_PROGRAMS = 5  # in a message; the facts contain all of them
_HEAD = 512  # bytes of each member that are searched for a program
_JSON_SCALARS = (str, int, float, bool, type(None))


# Digests


class IndexState(Struct, frozen=True):
    """MAR-INF/marpack.json of an archive, if it has one."""

    content_digest: str | None = None  # the archive's
    index: Index | None = None
    problem: Finding | None = None


def read_index(archive: Archive) -> IndexState:
    """Read MAR-INF/marpack.json; an unreadable one is a finding."""
    data = index_bytes(archive)
    if data is None:
        return IndexState()
    digest = index_digest(data)
    try:
        return IndexState(digest, Index.from_json(data))
    except DamagedArchiveError as error:
        return IndexState(digest, problem=INDEX_UNREADABLE.at(f"{archive.source}!{INDEX_NAME}", reason=error.what))


def digests(archive: Archive, progress: Progress | None = None) -> Iterator[tuple[str, str | Finding]]:
    """Yield each member's name with its SHA-256, or with a finding if it cannot be read."""
    for name in archive.entries:
        try:
            yield name, member_digest(archive, name, progress)
        except DamagedArchiveError as error:
            yield name, damaged_member(error, archive, name)


def member_digest(archive: Archive, name: str, progress: Progress | None = None) -> str:
    """Read a whole member and return its SHA-256, lower-case hex. Raises DamagedArchiveError."""
    from marpack.archive.copying import stream_digest  # noqa: PLC0415 - most inspections read no member whole

    with archive.open(name) as file:
        return stream_digest(file, archive.entries[name].size, progress)


def changed(archive: Archive, index: Index, sums: Mapping[str, str | Finding]) -> Iterator[Finding]:
    """Yield how the members differ from the index in name, size and, for those in `sums`, digest."""
    recorded = {member.name: member for member in index.members}
    for name, entry in archive.entries.items():
        where = f"{archive.source}!{name}"
        found, member = sums.get(name), recorded.get(name)
        if member is None:
            if name != INDEX_NAME:
                yield UNLISTED_MEMBER.at(where)
        elif member.size != entry.size:
            yield SIZE_MISMATCH.at(where, found=entry.size, recorded=member.size)
        elif isinstance(found, str) and found != member.sha256:
            yield DIGEST_MISMATCH.at(where, found=found, recorded=member.sha256)
    for name in sorted(recorded.keys() - archive.entries.keys()):
        yield MISSING_MEMBER.at(archive.source, name=name)


def damaged_member(error: DamagedArchiveError, archive: Archive, name: str) -> Finding:
    """Return the finding for a member that cannot be read."""
    return DAMAGED_MEMBER.at(f"{archive.source}!{name}", reason=error.what)


# Text files


def is_remote(archive: Archive) -> bool:
    """Return whether the archive is fetched range by range."""
    return "://" in archive.source


def is_costly(archive: Archive, name: str) -> bool:
    """Return whether inspecting a member needs a large download."""
    entry = archive.entries[name]
    return is_remote(archive) and entry.method is not Method.STORED and entry.compressed_size > _MAX_FETCHED


def read_text(archive: Archive, name: str | None, limit: int = MAX_LABELS) -> bytes | None:
    """Return up to `limit` + 1 bytes of a small member; None if it is missing, damaged or costly to fetch."""
    if name is None or name not in archive.entries or is_costly(archive, name):
        return None
    try:
        with archive.open(name) as file:
            return file.read(limit + 1)
    except DamagedArchiveError:  # `inspect` reports it
        return None


def open_text(archive: Archive, name: str) -> BinaryIO:
    """Return what `read_text` reads, as a file. Raises KeyError where it returns None."""
    data = read_text(archive, name)
    if data is None:
        raise KeyError(name)
    return BytesIO(data)


def label_facts(archive: Archive) -> LabelFacts | None:
    """Return the number of labels in index_to_name.json, and the first of them (contract §6)."""
    data = read_text(archive, LABELS_NAME)
    if data is None:
        return None
    parsed = parse_labels(data)
    if parsed.problem is not None:
        return LabelFacts(problem=parsed.problem)
    keys = sorted(parsed.names, key=lambda key: (int(key) if key.isdecimal() and len(key) < 12 else 1 << 60, key))
    labels = [parsed.names[key] for key in keys]
    wrong = next((label for label in labels if not isinstance(label, str)), None)
    problem = None if wrong is None else f"a label is not a string: {wrong!r:.60}"
    return LabelFacts(count=len(labels), first=tuple(str(label) for label in labels[:_SHOWN_LABELS]), problem=problem)


def labels_of(archive: Archive) -> dict[str, str]:
    """Return {class index: label}; empty without readable labels."""
    data = read_text(archive, LABELS_NAME)
    return {} if data is None else {key: str(name) for key, name in parse_labels(data).names.items()}


def config_facts(archive: Archive, *, parse: bool = True) -> ConfigFacts | None:
    """Return the model config's text and, with `parse`, its values as JSON."""
    file = archive.manifest.model.config_file
    data = read_text(archive, file)
    if data is None or file is None:
        return None
    text = data.decode("utf-8", "replace")
    # Plain `key: value` lines are harmless: only a config that may be hostile has to be parsed.
    if not parse and not _may_be_hostile(text):
        return ConfigFacts(file=file, text=text)
    # Imported late: it takes as long as everything else that inspecting needs.
    from marpack.inspection.yaml_document import read_yaml  # noqa: PLC0415

    read = read_yaml(data, as_server=True)
    if read.problem is None:
        return ConfigFacts(file=file, text=text, value=_as_json(read.value))
    place = f"line {read.problem.line}: " if read.problem.line else ""
    return ConfigFacts(file=file, text=text, problem=f"{place}{read.problem.reason}")


def _may_be_hostile(text: str) -> bool:
    """Return whether a YAML text contains the marks of aliases (bombs) and tags (objects)."""
    return any(mark in text for mark in "&*!")


def _as_json(value: Any) -> Any:  # Any: the values of a YAML document, and of JSON
    if isinstance(value, dict):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_as_json(item) for item in value]
    return value if isinstance(value, _JSON_SCALARS) else str(value)


def model_config(archive: Archive) -> dict[str, Any]:  # Any: JSON
    """Return the values of an archive's model config; empty without a readable one."""
    facts = config_facts(archive)
    return facts.value if facts and isinstance(facts.value, dict) else {}


def text_findings(labels: LabelFacts | None, config: ConfigFacts | None, source: str) -> Iterator[Finding]:
    """Yield unreadable labels and a hostile model config."""
    if labels is not None and labels.problem:
        yield LABELS_UNREADABLE.at(f"{source}!{LABELS_NAME}", reason=labels.problem)
    if config is not None and config.problem and _may_be_hostile(config.text):
        yield CONFIG_HOSTILE.at(f"{source}!{config.file}", reason=config.problem)


# Programs


def find_programs(archive: Archive) -> Iterator[Program]:
    """Yield the members that are programs, and the programs in zip members, recognized by their names.

    This reads the first bytes of each member and the directory of each zip. `inspect` reads all of them.
    """
    for name in archive.entries:
        with archive.open(name) as file:
            head = file.read(_HEAD)
            if kind := program_kind(name, head, file):
                yield Program(name, kind)
            if not head.startswith(b"PK"):
                continue
            try:
                entries = read_entries(file)
            except NotZipError:
                continue
        if package := package_kind(entries):
            yield Program(name, package)
        for entry in entries:
            if inside := named_kind(entry.name):
                yield Program(f"{name}!{entry.name}", inside)


def program_findings(
    programs: Sequence[Program], source: str, *, refused: bool = False, unknown_weights: str | None = None
) -> tuple[Finding, ...]:
    """Return one finding for all programs of an archive.

    With `refused`, it is an error, and so are weights of an unknown format, which may contain code.
    """
    hint = "If you trust its author, use --trust-native." if refused else None
    unknown = WEIGHTS_UNKNOWN.at(f"{source}!{unknown_weights}", severity=Severity.ERROR, hint=hint)
    others = (unknown,) if refused and unknown_weights is not None else ()
    if not programs:
        return others
    names = join_names([f"{program.where} ({program.kind})" for program in programs], _SHOWN_PROGRAMS)
    finding = PROGRAM.at(
        f"{source}!{programs[0].where}" if len(programs) == 1 else source,
        severity=Severity.ERROR if refused else None,
        hint=hint,
        count="1 file is a program" if len(programs) == 1 else f"{len(programs):,} files are programs",
        names=names,
    )
    return (finding, *others)
