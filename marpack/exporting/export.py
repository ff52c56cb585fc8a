"""An archive → the folder that a platform deploys, which appears whole or not at all."""

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace as replaced

from marpack.archive.copying import Copier, file_digest
from marpack.archive.protocol import Bar, Progress, no_progress
from marpack.archive.reader import open_archive
from marpack.archive.staging import refuse_folder, staged_folder
from marpack.errors import OutputError, OutputExistsError, UsageError, convert_os_errors, did_you_mean
from marpack.exporting.image import prepare_image
from marpack.exporting.plan import Content, Export, ExportOptions, Folder, read_export
from marpack.exporting.platforms import docker, kserve, ray_serve, sagemaker, unsupported
from marpack.findings import Finding
from marpack.version import __version__

MARKER = "marpack-export.json"  # in every folder that --force may replace
_BUFFER = 1 << 20  # bytes
_FILE_MODE, _FOLDER_MODE = 0o644, 0o755  # with any umask
TARGETS: dict[str, Callable[[Export], Folder]] = {
    "docker": docker,
    "kserve": kserve,
    "sagemaker": sagemaker,
    "ray-serve": ray_serve,
}
DEVICES = ("cpu", "cuda")
_WITH_IMAGE = frozenset({"docker", "kserve", "sagemaker"})


# Options that only some targets use, each with a pattern and an example of its values.
_OPTIONS: dict[str, tuple[frozenset[str], str, str]] = {
    "lock": (_WITH_IMAGE, r".*", ""),
    "image": (
        _WITH_IMAGE,
        r"[a-z0-9]+[\w./-]*(:\d+/[\w./-]+)?(:[\w.-]+)?(@sha256:[0-9a-f]{64})?",
        "Write the name as docker does: registry.example.com/team/digits:1.0",
    ),
    "storage_uri": (
        frozenset({"kserve", "sagemaker"}),
        r"(s3|gs|oci|oci\+native|oci\+fetch|pvc|hf|https?|hdfs|webhdfs|file)://[^\s'\"\\]+",
        "Write an address, such as s3://bucket/digits.mar, gs://…, pvc://…, oci+native://… or https://…",
    ),
    "role": (
        frozenset({"sagemaker"}),
        r"arn:[\w-]+:iam::\d{12}:role/[\w+=,.@/-]+",
        "Write the ARN: arn:aws:iam::123456789012:role/sagemaker",
    ),
}


class ExportedFile(Struct, frozen=True):
    """One file of the folder."""

    name: str  # with "/"
    size: int  # bytes
    sha256: str  # lower-case hex


class Exported(Struct, frozen=True, kw_only=True):
    """The result of an export."""

    archive: str
    target: str  # the value of --to
    folder: str
    files: tuple[ExportedFile, ...]  # by name
    findings: tuple[Finding, ...] = ()  # features that the platform does not support
    commands: tuple[str, ...] = ()  # the next steps, in the folder


class Marker(Struct, frozen=True, kw_only=True):
    """MARKER: the origin of the folder, and every other file in it."""

    marpack: str  # the version that wrote it
    target: str
    model: str
    content_digest: str | None  # the archive's
    files: tuple[ExportedFile, ...]


def export(
    source: Path,
    to: str,
    folder: Path | None,
    options: ExportOptions,
    *,
    replace: bool = False,
    dry_run: bool = False,
    bar: Bar = no_progress,
) -> Exported:
    """Write the folder that a platform deploys, without running anything of the archive, a .mar or a .tar.gz.

    Without `folder`, it is named after the model and the target `to`, and is in the current folder. `replace` replaces
    an earlier export whose files are unchanged; `dry_run` writes nothing, and returns the same.

    Raises UsageError, OutputExistsError, OutputError; ArchiveError for an archive that cannot be read.
    """
    _check_options(options, to)
    with open_archive(source) as archive:
        planned = read_export(archive, source, options)
    if to in _WITH_IMAGE:
        with bar("resolving with pip", 0):
            planned = replaced(planned, image=prepare_image(planned))
    files, commands = TARGETS[to](planned)
    output = folder or Path(f"{planned.slug}-{to}")
    _refuse_changed(output)
    total = sum(len(data) if isinstance(data, bytes) else data.stat().st_size for data in files.values())
    replace = replace or (output.is_dir() and not any(output.iterdir()))
    found = Exported(
        archive=str(source),
        target=to,
        folder=str(output),
        files=(),
        findings=tuple(unsupported(planned, to)),
        commands=commands,
    )
    if dry_run:
        refuse_folder(output, MARKER, replace=replace)
        return replaced(found, files=tuple(_planned_file(name, files[name]) for name in sorted(files)))
    with (
        convert_os_errors(OutputError, "the export cannot be written", where=str(output)),
        staged_folder(output, replace=replace, marker=MARKER) as staged,
        bar("exporting", total) as progress,
    ):
        written = tuple(_write(staged, name, files[name], progress) for name in sorted(files))
        marker = Marker(
            marpack=__version__, target=to, model=planned.name, files=written, content_digest=planned.content_digest
        )
        _write(staged, MARKER, msgspec.json.format(msgspec.json.encode(marker), indent=2) + b"\n", None)
        for path in (staged, *staged.rglob("*")):
            path.chmod(_FOLDER_MODE if path.is_dir() else _FILE_MODE)
    return replaced(found, files=written)


def _planned_file(name: str, content: Content) -> ExportedFile:
    if isinstance(content, bytes):
        return ExportedFile(name, len(content), hashlib.sha256(content).hexdigest())
    return ExportedFile(name, content.stat().st_size, file_digest(content))


def _check_options(options: ExportOptions, to: str) -> None:
    """Raise UsageError for an unknown target or device, an option that the target does not use, or a malformed name."""
    if to not in TARGETS:
        hint = did_you_mean(to, TARGETS) or f"Pass one of {', '.join(TARGETS)}."
        raise UsageError(f"'{to}' is not an export target", where="--to", hint=hint)
    if options.device not in DEVICES:
        hint = f"Pass one of {', '.join(DEVICES)}."
        raise UsageError(f"'{options.device}' is not a device of an image", where="--device", hint=hint)
    for name, (targets, pattern, example) in _OPTIONS.items():
        value, flag = getattr(options, name), f"--{name.replace('_', '-')}"
        if value is not None and to not in targets:
            hint = f"Leave out {flag}, or export to {' or '.join(sorted(targets))}."
            raise UsageError(f"{to} does not use {flag}", where=f"{flag} {value}", hint=hint)
        if value is not None and not re.fullmatch(pattern, str(value), re.DOTALL):
            raise UsageError(f"invalid value for {flag}", where=f"{flag} {value}", hint=example)


def _refuse_changed(folder: Path) -> None:
    """Raise OutputExistsError for an earlier export with other files or edited ones, which would be lost."""
    try:
        marker = msgspec.json.decode((folder / MARKER).read_bytes(), type=Marker)
    except (OSError, msgspec.DecodeError):  # not an export: `staged_folder` refuses it
        return
    ours = {MARKER, *(file.name for file in marker.files)}
    found = sorted(path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
    names = (path.as_posix() for path in found if "__pycache__" not in path.parts)  # left by running it
    other = next((name for name in names if name not in ours), None)
    if other is not None:
        what, hint = (
            f"contains {other}, which is not part of the export",
            "Move that file away, or choose another output.",
        )
        raise _not_replaced(folder, what, hint, code="output-holds-other-files")
    for file in marker.files:
        path = folder / file.name
        if not path.is_file():
            continue
        # Of large files only the size is compared: hashing takes seconds, and archives and wheels are not edited.
        if path.stat().st_size != file.size or (file.size <= _BUFFER and file_digest(path) != file.sha256):
            raise _not_replaced(
                folder,
                f"contains an edited {file.name}",
                "Choose another output. To discard the changes, remove that file.",
            )


def _not_replaced(folder: Path, what: str, hint: str, *, code: str | None = None) -> OutputExistsError:
    return OutputExistsError(f"the folder {what}, so it is not replaced", where=str(folder), hint=hint, code=code)


def _write(folder: Path, name: str, content: Content, progress: Progress | None) -> ExportedFile:
    """Write one file, hashed while it is copied."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
        return ExportedFile(name, len(content), hashlib.sha256(content).hexdigest())
    with content.open("rb", buffering=0) as source, path.open("wb") as copy, Copier() as copier:

        def write(block: memoryview) -> None:
            copy.write(block)
            if progress is not None:
                progress(len(block))

        size = os.fstat(source.fileno()).st_size
        return ExportedFile(name, size, copier.copy(source, size, write).sha256)
