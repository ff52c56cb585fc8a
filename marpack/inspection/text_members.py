"""The small text members: labels, model config, requirements, the digest index."""

from collections.abc import Iterator
from io import BytesIO
from typing import Any, BinaryIO

from msgspec import Struct

from marpack.archive.index import Index, index_bytes, index_digest
from marpack.archive.protocol import INDEX_NAME, Archive, Method
from marpack.errors import DamagedArchiveError
from marpack.findings import Finding, Severity
from marpack.inspection.facts import ConfigFacts, LabelFacts
from marpack.inspection.verify import unlisted
from marpack.torchserve.labels import LABELS_NAME, parse_labels

_TEXT_LIMIT = 8 * 1024 * 1024  # bytes of one text member
_MAX_FETCHED = 64 * 1024  # bytes of a compressed member elsewhere
LABELS_UNREADABLE, CONFIG_HOSTILE = "labels-unreadable", "config-hostile"
DISTRUSTED = frozenset({LABELS_UNREADABLE, CONFIG_HOSTILE})

_SHOWN = 5
_PLAIN = (str, int, float, bool, type(None))


class Signed(Struct, frozen=True):
    """What MAR-INF/marpack.json says, if there is one."""

    content_digest: str | None = None  # the archive's
    index: Index | None = None
    problem: Finding | None = None


def signed_index(archive: Archive) -> Signed:
    """Read MAR-INF/marpack.json; one that cannot be read is a finding."""
    data = index_bytes(archive)
    if data is None:
        return Signed()
    digest = index_digest(data)
    try:
        return Signed(digest, Index.from_json(data))
    except DamagedArchiveError as error:
        return Signed(digest, problem=unlisted(error.what, f"{archive.source}!{INDEX_NAME}"))


def read_text(archive: Archive, name: str | None) -> bytes | None:
    """Return a small member's bytes; None when it is not there, damaged, or costs too much to fetch."""
    if name is None or name not in archive.entries or too_costly(archive, name):
        return None
    try:
        with archive.open(name) as file:
            return file.read(_TEXT_LIMIT)
    except DamagedArchiveError:  # which `look` makes a finding of
        return None


def open_text(archive: Archive, name: str) -> BinaryIO:
    """Open what `read_text` returns; KeyError where it returns nothing."""
    data = read_text(archive, name)
    if data is None:
        raise KeyError(name)
    return BytesIO(data)


def is_elsewhere(archive: Archive) -> bool:
    """Tell whether the archive's bytes are fetched range by range."""
    return "://" in archive.source


def too_costly(archive: Archive, name: str) -> bool:
    """Tell whether looking into a member means fetching more than a look is worth."""
    entry = archive.entries[name]
    return is_elsewhere(archive) and entry.method is not Method.STORED and entry.compressed_size > _MAX_FETCHED


def label_facts(archive: Archive) -> LabelFacts | None:
    """Return how many labels the index_to_name.json has, and the first of them (contract §6)."""
    data = read_text(archive, LABELS_NAME)
    if data is None:
        return None
    parsed = parse_labels(data)
    if parsed.problem is not None:
        return LabelFacts(problem=parsed.problem)
    labels = [parsed.names[key] for key in sorted(parsed.names, key=_by_index)]
    odd = next((label for label in labels if not isinstance(label, str)), None)
    problem = None if odd is None else f"a label is no text: {odd!r:.60}"
    return LabelFacts(count=len(labels), first=tuple(str(label) for label in labels[:_SHOWN]), problem=problem)


def labels_of(archive: Archive) -> dict[str, str]:
    """Return {class index: label}, or nothing where there are none that can be read."""
    data = read_text(archive, LABELS_NAME)
    return {} if data is None else {key: str(name) for key, name in parse_labels(data).names.items()}


def _by_index(key: str) -> tuple[int, str]:
    return (int(key), "") if key.isdecimal() and len(key) < 12 else (1 << 60, key)


def config_facts(archive: Archive, *, parse: bool = True) -> ConfigFacts | None:
    """Return the model config's text and, with `parse`, its values: read with the safe loader and within bounds."""
    file = archive.manifest.model.config_file
    data = read_text(archive, file)
    if data is None or file is None:
        return None
    text = data.decode("utf-8", "replace")
    # Plain `key: value` lines can be no attack: only what might be one has to wait for the parser.
    if not parse and not _may_attack(text):
        return ConfigFacts(file=file, text=text)
    value, problem = _parsed(data)
    return ConfigFacts(file=file, text=text, value=value, problem=problem)


def model_config(archive: Archive) -> dict[str, Any]:  # Any: JSON
    """Return the values of an archive's model config; empty where there is none that can be read, within bounds."""
    facts = config_facts(archive)
    return facts.value if facts and isinstance(facts.value, dict) else {}


def _may_attack(text: str) -> bool:
    """Say whether a YAML text holds what bombs (aliases) and made objects (tags) are written with."""
    return any(mark in text for mark in "&*!")


def distrusted_texts(labels: LabelFacts | None, config: ConfigFacts | None, source: str) -> Iterator[Finding]:
    """Yield which of the small texts are malformed in a way that no reader of the archive should go on from."""
    if labels is not None and labels.problem:
        yield _distrusted(LABELS_UNREADABLE, f"the labels cannot be read: {labels.problem}", f"{source}!{LABELS_NAME}")
    if config is not None and config.problem and _may_attack(config.text):
        yield _distrusted(CONFIG_HOSTILE, f"the model config is refused: {config.problem}", f"{source}!{config.file}")


def _distrusted(code: str, message: str, where: str) -> Finding:
    hint = "write plain values, and build the archive again: marpack build"
    return Finding(code=code, severity=Severity.ERROR, message=message, where=where, hint=hint)


def _parsed(data: bytes) -> tuple[Any, str | None]:  # Any: JSON
    # Imported where it is needed: it takes as long as everything else that inspecting needs.
    from marpack.inspection.yaml_document import MAX_BYTES, read_yaml  # noqa: PLC0415

    if len(data) > MAX_BYTES:
        return None, f"it is larger than {MAX_BYTES >> 10} KiB"
    read = read_yaml(data)
    if read.problem is None:
        return _as_json(read.value), None
    place = f"line {read.problem.line}" if read.problem.line else "it cannot be read"
    return None, f"{place}: {read.problem.reason}"


def _as_json(value: Any) -> Any:  # Any: what a YAML document may hold, and what JSON may
    if isinstance(value, dict):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_as_json(item) for item in value]
    return value if isinstance(value, _PLAIN) else str(value)
