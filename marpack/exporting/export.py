"""An archive → the folder that a platform deploys, which appears whole or not at all."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace as replaced

from marpack.archive.copying import file_digest
from marpack.archive.protocol import Bar, Progress, no_progress
from marpack.archive.reader import open_archive
from marpack.archive.staging import staged_folder
from marpack.errors import OutputError, OutputExistsError, UsageError, did_you_mean
from marpack.exporting.findings import OPTIONS, common_findings
from marpack.exporting.image import image_findings, prepare_image
from marpack.exporting.plan import Export, ExportOptions, read_export
from marpack.findings import Finding
from marpack.version import __version__

MARKER = "marpack-export.json"  # which a folder has that --force may replace
_BUFFER = 1 << 20  # bytes
_FILE, _FOLDER = 0o644, 0o755  # modes, whatever the umask
# What --to takes → the module that knows what goes there: an `ExportTarget`.
TARGETS = {
    "docker": "marpack.exporting.docker",
    "kserve": "marpack.exporting.kserve",
    "sagemaker": "marpack.exporting.sagemaker",
    "ray-serve": "marpack.exporting.ray_serve",
}
_IMAGES = frozenset({"docker", "kserve", "sagemaker"})  # that run an image of ours
# An option that stands for a name → the targets that use it.
_USED_BY = {"image": _IMAGES, "storage_uri": frozenset({"kserve", "sagemaker"}), "role": frozenset({"sagemaker"})}
_FORMS = {
    "image": r"[a-z0-9]+[\w./-]*(:\d+/[\w./-]+)?(:[\w.-]+)?(@sha256:[0-9a-f]{64})?",
    "storage_uri": r"(s3|gs|oci|oci\+native|oci\+fetch|pvc|hf|https?|hdfs|webhdfs|file)://[^\s'\"\\]+",
    "role": r"arn:[\w-]+:iam::\d{12}:role/[\w+=,.@/-]+",
}
_EXAMPLES = {
    "image": "write it as docker does: registry.example.com/team/digits:1.0",
    "storage_uri": "write an address: s3://bucket/digits.mar, gs://…, pvc://…, oci+native://…, https://…",
    "role": "write its ARN: arn:aws:iam::123456789012:role/sagemaker",
}
DEVICES = ("cpu", "cuda")

Content = bytes | Path  # a file's bytes, or the file to copy


class ExportTarget(Protocol):
    """What a module of `TARGETS` offers."""

    def files(self, export: Export) -> Mapping[str, Content]:
        """Return the folder's files, README.md among them, by their names in it, with "/"."""

    def findings(self, export: Export) -> Iterable[Finding]:
        """Yield what of the archive does not carry over."""

    def commands(self, export: Export) -> tuple[str, str, str]:
        """Return the three commands of its README, from building to the first answer."""


class ExportedFile(Struct, frozen=True):
    """One file of the folder."""

    name: str  # with "/"
    size: int  # bytes
    sha256: str  # lower-case hex


class Exported(Struct, frozen=True, kw_only=True):
    """What was written."""

    archive: str
    target: str  # what --to said
    folder: str
    files: tuple[ExportedFile, ...]  # by name
    findings: tuple[Finding, ...] = ()  # what does not carry over
    commands: tuple[str, ...] = ()  # what comes next, in the folder


class Marker(Struct, frozen=True, kw_only=True):
    """MARKER: what the folder was made of, and every other file in it."""

    marpack: str  # the version that wrote it
    target: str
    model: str
    content_digest: str | None  # the archive's
    files: tuple[ExportedFile, ...]


def export(
    source: Path, to: str, folder: Path | None, options: ExportOptions, *, replace: bool = False, bar: Bar = no_progress
) -> Exported:
    """Write the folder that a platform deploys; nothing of the archive is run.

    Args:
        source: A .mar or a .tar.gz.
        to: A key of `TARGETS`.
        folder: Where it goes; None: one of the model's name and `to`, in the current folder.
        options: What the images and texts are to say.
        replace: Replace a folder that an export has written, if nothing else was put into it.
        bar: Shows how far the copying is.

    Raises UsageError, OutputExistsError, OutputError; ArchiveError for what is no archive.
    """
    target = _target(to)
    _check(options, to)
    with open_archive(source) as archive:
        planned = read_export(archive, source, options)
    if to in _IMAGES:
        with bar("asking pip for the requirements' hashes", 0):
            planned = replaced(planned, image=prepare_image(planned))
    files = target.files(planned)
    place = folder or Path(f"{planned.slug}-{to}")
    _refuse_strangers(place)
    empty = place.is_dir() and not any(place.iterdir())
    try:
        with (
            staged_folder(place, replace=replace or empty, marker=MARKER) as staged,
            bar("exporting", sum(map(_size, files.values()))) as progress,
        ):
            written = tuple(_write(staged, name, files[name], progress) for name in sorted(files))
            marker = Marker(
                marpack=__version__, target=to, model=planned.name, files=written, content_digest=planned.content_digest
            )
            _write(staged, MARKER, msgspec.json.format(msgspec.json.encode(marker), indent=2) + b"\n", None)
            _set_modes(staged)
    except OSError as error:
        raise OutputError(f"the export cannot be written: {error.strerror}", where=str(place)) from error
    return Exported(
        archive=str(source),
        target=to,
        folder=str(place),
        files=written,
        findings=(*common_findings(planned), *image_findings(planned), *target.findings(planned)),
        commands=target.commands(planned),
    )


def _target(to: str) -> ExportTarget:
    if to not in TARGETS:
        hint = did_you_mean(to, TARGETS) or f"one of {', '.join(TARGETS)}"
        raise UsageError(f"'{to}' is nothing that an archive is exported to", where="--to", hint=hint)
    return cast("ExportTarget", import_module(TARGETS[to]))  # a module offers the Protocol's functions


def _check(options: ExportOptions, to: str) -> None:
    """Raise UsageError for an option that says nothing to a target, or is not what it says."""
    if options.device not in DEVICES:
        hint = f"one of {', '.join(DEVICES)}"
        raise UsageError(f"'{options.device}' is no device that an image is made for", where="--device", hint=hint)
    if to not in _IMAGES and options.lock is not None:
        hint = f"leave it out, or export to {' or '.join(sorted(_IMAGES))}"
        raise UsageError(f"{to} has no use for it", where=f"--lock {options.lock}", hint=hint)
    for name, targets in _USED_BY.items():
        value, flag = getattr(options, name), OPTIONS[name]
        if value is None:
            continue
        if to not in targets:
            hint = f"leave it out, or export to {' or '.join(sorted(targets))}"
            raise UsageError(f"{to} has no use for it", where=f"{flag} {value}", hint=hint)
        if not re.fullmatch(_FORMS[name], value):
            raise UsageError(f"this is not what {flag} takes", where=f"{flag} {value}", hint=_EXAMPLES[name])


def _refuse_strangers(folder: Path) -> None:
    """Raise OutputExistsError for an export that somebody has put files into, or has edited: that would be lost."""
    try:
        marker = msgspec.json.decode((folder / MARKER).read_bytes(), type=Marker)
    except (OSError, msgspec.DecodeError):  # no export: `staged_folder` says so
        return
    ours = {MARKER, *(file.name for file in marker.files)}
    found = sorted(path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
    names = (path.as_posix() for path in found if "__pycache__" not in path.parts)  # which running it leaves
    other = next((name for name in names if name not in ours), None)
    if other is not None:
        raise OutputExistsError(
            f"the export's folder holds {other}, which no export has written, so it is not replaced",
            where=str(folder),
            hint="choose another output, or move that file away",
            code="output-holds-other-files",
        )
    edited = next((file.name for file in marker.files if _is_edited(folder / file.name, file)), None)
    if edited is not None:
        raise OutputExistsError(
            f"the export's folder holds an edited {edited}, so it is not replaced",
            where=str(folder),
            hint="choose another output, or remove that file if its changes are not wanted",
        )


def _is_edited(path: Path, exported: ExportedFile) -> bool:
    """Say whether a file is another one than was exported; of large ones, which nobody edits, the size has to do."""
    if not path.is_file() or path.stat().st_size != exported.size:
        return path.is_file()
    return exported.size <= _BUFFER and file_digest(path) != exported.sha256


def _size(content: Content) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def _write(folder: Path, name: str, content: Content, progress: Progress | None) -> ExportedFile:
    """Write one file, hashed while it is copied."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
        return ExportedFile(name, len(content), hashlib.sha256(content).hexdigest())
    digest, size = hashlib.sha256(), 0
    with content.open("rb") as source, path.open("wb") as copy:
        while data := source.read(_BUFFER):
            digest.update(data)
            size += copy.write(data)
            if progress is not None:
                progress(len(data))
    return ExportedFile(name, size, digest.hexdigest())


def _set_modes(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        path.chmod(_FOLDER if path.is_dir() else _FILE)
