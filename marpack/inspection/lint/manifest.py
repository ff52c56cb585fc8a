"""The manifest's own values, and the requirements file that it names."""

from collections.abc import Iterator

from msgspec import Struct

from marpack import finding_codes as codes
from marpack.archive.manifest import RUNTIMES, Manifest
from marpack.archive.protocol import MODEL_NAME
from marpack.errors import did_you_mean
from marpack.findings import Finding
from marpack.inspection.lint.source import Files
from marpack.inspection.requirements import MAX_REQUIREMENTS, Line, LineKind, beside, read_requirements

_WHERE = "MAR-INF/MANIFEST.json"
_ENVELOPES = ("base", "body", "json", "kserve", "kservev2")


def check_manifest(manifest: Manifest) -> Iterator[Finding]:
    """Yield the manifest's values that the server refuses or ignores."""
    model, runtime, envelope = manifest.model, manifest.runtime, manifest.model.envelope
    if not MODEL_NAME.fullmatch(model.name):
        code = codes.MODEL_NAME_UNREACHABLE if "/" in model.name else codes.MODEL_NAME
        yield code.at(f"{_WHERE}: model.modelName", name=model.name[:40])
    if runtime not in (*RUNTIMES, "PYTHON", "PYTHON3"):
        hint = did_you_mean(runtime, RUNTIMES, 0.7)
        yield codes.RUNTIME_UNKNOWN.at(f"{_WHERE}: runtime", hint=hint, name=runtime[:40])
    if runtime == "LSP":
        yield codes.RUNTIME_LSP.at(f"{_WHERE}: runtime")
    if envelope in _ENVELOPES:
        yield codes.ENVELOPE_IGNORED.at(f"{_WHERE}: model.envelope", name=envelope)
    elif envelope:
        hint = did_you_mean(envelope, _ENVELOPES, 0.7)
        yield codes.ENVELOPE_UNKNOWN.at(f"{_WHERE}: model.envelope", hint=hint, name=envelope[:40])


class Requirements(Struct, frozen=True, kw_only=True):
    """The archive's requirements, with the findings about them."""

    file: str | None = None  # the one that the manifest names, if it is packed
    names: frozenset[str] = frozenset()  # distributions, canonical
    unnamed: bool = False  # some line may provide anything
    findings: tuple[Finding, ...] = ()


def read_required(files: Files, manifest: Manifest) -> Requirements:
    """Read the archive's requirements, the files that they include too."""
    first = manifest.model.requirements_file
    if not first:
        return Requirements()
    if first not in files:
        where = f"{_WHERE}: model.requirementsFile"
        return Requirements(findings=(codes.REQUIREMENTS_MISSING.at(where, name=first),))
    findings = [codes.REQUIREMENTS_NEED_SETTING.at(first)]

    def read(member: str) -> bytes | None:
        data = files.read(member, MAX_REQUIREMENTS) if member in files else None
        if data is None or len(data) <= MAX_REQUIREMENTS:
            return data
        findings.append(codes.REQUIREMENTS_TOO_LARGE.at(member, limit=MAX_REQUIREMENTS >> 20))
        return None

    lines = list(read_requirements(first, read))
    findings += [finding for member, line in lines for finding in _check_line(files, member, line)]
    installed = [line for _, line in lines if line.sort in (LineKind.REQUIREMENT, LineKind.PATH)]
    return Requirements(
        file=first,
        names=frozenset(line.name for _, line in lines if line.name),
        unnamed=any(line.name is None for line in installed),
        findings=tuple(findings),
    )


def _check_line(files: Files, member: str, line: Line) -> Iterator[Finding]:
    where, text = f"{member}:{line.number}", line.text[:60]
    folder = member if line.sort in (LineKind.INCLUDE, LineKind.CONSTRAINT) else ""  # pip runs in the model folder
    inner = line.text.removeprefix("./").rstrip("/")
    is_elsewhere = "://" in line.text or "${" in line.text
    is_packed = is_elsewhere or beside(folder, line.text) in files or inner in {"", "."} or files.is_folder(f"{inner}/")
    if line.sort is LineKind.WRONG:
        yield codes.REQUIREMENTS_LINE.at(where, text=text, reason=line.reason[:100])
    elif line.sort in (LineKind.INCLUDE, LineKind.CONSTRAINT) and not is_packed:
        yield codes.REQUIREMENTS_INCLUDE_MISSING.at(where, text=text)
    elif line.sort is LineKind.PATH and not is_packed:
        yield codes.REQUIREMENTS_PATH.at(where, text=text)
    elif line.sort is LineKind.REQUIREMENT and line.name is None:
        yield codes.REQUIREMENTS_UNNAMED.at(where, text=text)
