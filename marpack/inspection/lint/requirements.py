"""The archive's requirements: what they provide, and which lines pip will refuse on the server."""

from collections.abc import Iterator

from msgspec import Struct

from marpack.archive.manifest import Manifest
from marpack.findings import Finding
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.files import Files
from marpack.inspection.requirements import Line, LineKind, beside, read_requirements

MAX_REQUIREMENTS = 1 << 20  # bytes
MANIFEST = "MAR-INF/MANIFEST.json: model.requirementsFile"

MISSING = Code(
    "requirements-missing",
    "The requirements file, or one that it includes, is not in the archive; pip fails where it installs them.",
    "Pack the file, or leave it out of the manifest.",
)
LINE = Code(
    "requirements-line",
    "pip refuses a line of the requirements file, and the server then refuses to register the model.",
    "Write NAME, NAME==VERSION, NAME[extra]>=VERSION, or NAME @ https://….",
)
LOCAL = Code(
    "requirements-path",
    "A requirement is a path outside the archive, or one that is not packed; the server has no such file.",
    "Pack the wheel and name it by its place in the archive, or name a released version.",
)
EDITABLE = Code(
    "requirements-unnamed",
    "A requirement does not say which distribution it is, so what it provides cannot be told.",
    "Write NAME @ ADDRESS.",
)
IGNORED = Code(
    "requirements-need-setting",
    "The server installs requirements only if its config.properties says so; otherwise it ignores them silently.",
    "Set install_py_dep_per_model=true on the server, and useVenv: true in the model config for versions of your own.",
)
TOO_LARGE = Code(
    "requirements-too-large",
    "The requirements file is larger than any hand has written, and was not looked into.",
    "Check that it is the file you mean.",
)


class Requirements(Struct, frozen=True, kw_only=True):
    """What is required, and what was noticed in reading it."""

    file: str | None = None  # the one that the manifest names, if it is packed
    names: frozenset[str] = frozenset()  # distributions, canonical
    unnamed: bool = False  # some line may provide anything
    findings: tuple[Finding, ...] = ()


def requirements_of(files: Files, manifest: Manifest) -> Requirements:
    """Read the archive's requirements, the files that they include too."""
    first = manifest.model.requirements_file
    if not first:
        return Requirements()
    if first not in files:
        return Requirements(
            findings=(MISSING.warning(f"the requirements file '{first}' is not in the archive", MANIFEST),)
        )
    findings = [IGNORED.note("the server installs these only with install_py_dep_per_model=true", first)]
    names: set[str] = set()
    unnamed = False
    for member, line in read_requirements(first, lambda name: _bytes_of(files, name, findings)):
        findings.extend(_check(files, member, line))
        names |= {line.name} if line.name else set()
        unnamed = unnamed or (line.sort in (LineKind.REQUIREMENT, LineKind.PATH) and line.name is None)
    return Requirements(file=first, names=frozenset(names), unnamed=unnamed, findings=tuple(findings))


def _bytes_of(files: Files, member: str, findings: list[Finding]) -> bytes | None:
    data = files.read(member, MAX_REQUIREMENTS) if member in files else None
    if data is None or len(data) <= MAX_REQUIREMENTS:
        return data
    findings.append(TOO_LARGE.note(f"it is larger than {MAX_REQUIREMENTS >> 20} MiB", member))
    return None


def _check(files: Files, member: str, line: Line) -> Iterator[Finding]:
    where = f"{member}:{line.number}"
    if line.sort is LineKind.WRONG:
        yield LINE.error(f"pip refuses '{line.text[:60]}': {line.reason[:100]}", where)
    if line.sort in (LineKind.INCLUDE, LineKind.CONSTRAINT) and _is_missing(files, member, line.text):
        yield MISSING.warning(f"it includes '{line.text[:60]}', which is not in the archive", where)
    if line.sort is LineKind.PATH and _is_missing(files, "", line.text):  # pip runs in the model folder
        yield LOCAL.warning(f"'{line.text[:60]}' is not in the archive", where)
    if line.sort is LineKind.REQUIREMENT and line.name is None:
        yield EDITABLE.note(f"'{line.text[:60]}' does not say which distribution it is", where)


def _is_missing(files: Files, member: str, text: str) -> bool:
    return (
        "://" not in text
        and "${" not in text
        and beside(member, text) not in files
        and not _is_packed_folder(files, text)
    )


def _is_packed_folder(files: Files, text: str) -> bool:
    bare = text.removeprefix("./").rstrip("/")
    return bare in {"", "."} or files.is_folder(f"{bare}/")
