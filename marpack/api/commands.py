"""The commands that make archives and look into them, as functions, with their options by their names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from marpack.api import arguments, operations
from marpack.api.arguments import Name
from marpack.archive.protocol import no_progress
from marpack.errors import UsageError

if TYPE_CHECKING:
    from marpack.api.results import BuildReport, Diff, Exported, InitReport, Inspection, Unpacked
    from marpack.archive.protocol import Archive

_FILES = ("weights", "model_file", "labels")


def init(
    folder: Name | None = None,
    *,
    template: str | None = None,
    from_: Name | None = None,
    name: str | None = None,
    version: str | None = None,
    weights: Name | None = None,
    model_file: Name | None = None,
    handler: str | None = None,
    labels: Name | None = None,
    target: Literal["torchserve", "marpack"] | None = None,
    force: bool = False,
) -> InitReport:
    """Start a project: a marpack.yaml, and what else it needs, around the weights and labels in a folder.

    Args:
        folder: Where it goes; None: the current folder, or with `from_` a new one of the model's name.
        template: The kind of project; None: as the weights need.
        from_: An archive to turn back into the project that rebuilds it.
        name: The model's name; None: after the weights, or the folder.
        version: The model's version; None: "1.0".
        weights: The file of the weights; None: those in the folder.
        model_file: For a state_dict, the file with its class.
        handler: A built-in, "file.py" or "file.py:function".
        labels: The file of the labels; None: those in the folder.
        target: Who will serve it.
        force: Whether files that are there already are replaced.

    Returns:
        What was written, replaced and skipped, and what was noticed.

    Raises:
        UsageError: an option that cannot be.
        ScaffoldError: the files cannot be written.

    """
    options = arguments.valid(locals())
    from marpack.api import results

    place, archive = options["folder"], options["from_"]
    options |= {name: Path(options[name]) for name in _FILES if options[name] is not None}
    if archive is None:
        return results.InitReport.of(operations.project_from_template(Path(place or ""), options))
    return results.InitReport.of(operations.project_from_archive(archive, Path(place) if place else None, options))


def build(
    project: Name | None = None,
    *,
    output: Name | None = None,
    archive_format: Literal["default", "zip-store", "tgz", "no-archive"] | None = None,
    force: bool = False,
    strict: bool = False,
    allow_outside: bool = False,
    source_commit: str | None = None,
    vendor: bool = False,
    vendor_python: str | None = None,
    vendor_platform: Literal["linux_x86_64", "linux_aarch64", "any"] | None = None,
    model_name: str | None = None,
    version: str | None = None,
    handler: str | None = None,
    serialized_file: Name | None = None,
    model_file: Name | None = None,
    extra_files: Name | Sequence[Name] | None = None,
    runtime: Literal["python", "python3", "LSP"] | None = None,
    export_path: Name | None = None,
    requirements_file: Name | None = None,
    config_file: Name | None = None,
) -> BuildReport:
    """Pack a model into one archive: a project's or, in its place, what the original archiver's arguments name.

    Args:
        project: The folder of a marpack.yaml, or that file itself; None: the current folder, or the arguments below.
        output: The archive's path, or a folder to put it in; None: `<name>.mar` beside marpack.yaml.
        archive_format: A .mar, a .tar.gz or a plain folder; None: the project's.
        force: With the arguments below: replace an existing output (a project's always is).
        strict: Whether warnings stop the build, too.
        allow_outside: Whether every key of marpack.yaml may name files outside the project's folder, not only
            `weights` and `handler`.
        source_commit: The commit that the sources are of, 40 or 64 hexadecimal digits; it is recorded, never looked up.
        vendor: Resolve the project's requirements to wheels, write them down in vendor.lock, and bring them along.
        vendor_python: Whose wheels, where marpack.yaml does not say; None: "3.9".
        vendor_platform: Likewise; None: "linux_x86_64".
        model_name: Name of the model and of its archive.
        version: The model's version.
        handler: A built-in, "file.py" or "file.py:function".
        serialized_file: The weights.
        model_file: For eager models: the file with the model's class.
        extra_files: Files, globs and folders: several, or one text in which commas separate them.
        runtime: What runs the handler; None: "python".
        export_path: The folder for the archive; None: the current one.
        requirements_file: The model's requirements.txt.
        config_file: The model's configuration, as YAML.

    Returns:
        Path, format, size in bytes, digest, number of members, seconds, what was noticed.

    Raises:
        UsageError: arguments that do not go together.
        ProjectError: holding every finding that stops the build.
        BuildError: the archive cannot be written.

    """
    options = arguments.valid(locals())
    from marpack.api import results
    from marpack.project.packing import pack

    options["extra_files"] = None if extra_files is None else _joined(extra_files)
    found = operations.planned(options["project"], options, no_progress)
    return results.BuildReport.of(operations.build_report(found, pack(found.plan)))


def _joined(files: Name | Sequence[Name]) -> str:
    """Return files as the original archiver takes them; raises UsageError for a name that it would take for two."""
    if isinstance(files, str | os.PathLike):
        return arguments.named(files, "extra_files")
    names = arguments.several_names(files, "extra_files")
    torn = next((name for name in names if "," in name), None)
    if torn is not None:
        raise UsageError("a comma separates two files here", where=f"extra_files: {torn}", hint="rename the file")
    return ",".join(names)


def open(source: Name) -> Archive:  # noqa: A001 - `marpack.open` reads best
    """Open a .mar, a .tar.gz or a model folder, looking only: nothing of it is run, imported or unpickled.

    Raises NotAnArchiveError, DamagedArchiveError, UnsafeArchiveError or LimitExceededError.
    """
    from marpack.api.settings import cache_of
    from marpack.archive.reader import open_archive

    return open_archive(arguments.named(source), cache=cache_of())


def inspect(
    source: Name | None = None,
    *,
    verify: bool = False,
    sbom: Name | None = None,
    allow_outside: bool = False,
    max_members: int | None = None,
    max_size: int | None = None,
    max_ratio: int | None = None,
    max_opcodes: int | None = None,
) -> Inspection:
    """Return the contents and problems of an archive. No part of it is run, imported or unpickled.

    The result includes the findings of the static checks that a build makes.

    Args:
        source: A .mar, a .tar.gz, a model folder, an address (https, s3, oci) or a project; None: the current folder's.
        verify: Read every byte: recompute all digests and CRCs.
        sbom: A file to write what is in it to, as a CycloneDX 1.6 SBOM.
        allow_outside: Let a project pack files from outside its folder.
        max_members: Take that many members; None: 65536.
        max_size: Take that many bytes unpacked; None: 256 GiB.
        max_ratio: Take what expands that many times; None: 100.
        max_opcodes: Read that many opcodes of pickles; None: 2500000.

    Raises:
        UsageError, ProjectError: the source.
        ArchiveError: what is no archive, or none that can be opened safely.

    """
    options = arguments.valid(locals())
    from marpack.api import results
    from marpack.render.output import expect_writable

    expect_writable(options["sbom"], option="sbom")
    limits = operations.chosen_limits(max_members, max_size, max_ratio)
    seen = operations.inspected(
        options["source"],
        limits,
        no_progress,
        verify=verify,
        parse_config=True,
        max_opcodes=max_opcodes,
        sbom=options["sbom"],
        allow_outside=allow_outside,
    )
    return results.Inspection.of(seen)


def diff(
    before: Name,
    after: Name,
    *,
    verify: bool = False,
    allow_outside: bool = False,
    max_members: int | None = None,
    max_size: int | None = None,
    max_ratio: int | None = None,
) -> Diff:
    """Compare two archives: manifest, members, config, labels and, number by number, the tensors.

    Args:
        before: A .mar, a .tar.gz, a model folder, an address (https, s3, oci) or a project.
        after: Likewise.
        verify: Read every member, instead of trusting recorded digests.
        allow_outside: As in `inspect`.
        max_members: As in `inspect`.
        max_size: Likewise.
        max_ratio: Likewise.

    Raises as `inspect` does.
    """
    arguments.valid(locals())
    from marpack.api import results

    limits = operations.chosen_limits(max_members, max_size, max_ratio)
    first, second = arguments.named(before, "before"), arguments.named(after, "after")
    found = operations.compared(first, second, limits, no_progress, verify=verify, allow_outside=allow_outside)
    return results.Diff.of(found)


def unpack(
    source: Name,
    directory: Name | None = None,
    *,
    only: Sequence[str] = (),
    force: bool = False,
    allow_outside: bool = False,
    max_members: int | None = None,
    max_size: int | None = None,
    max_ratio: int | None = None,
) -> Unpacked:
    """Extract an archive into a new folder, safely, or not at all.

    Args:
        source: A .mar, a .tar.gz, a model folder or an address (https, s3, oci).
        directory: The new folder; None: one of the archive's name, in the current folder.
        only: Only members that match one of these: "*.py", "data/*", "data".
        force: Replace the folder, if it holds an archive unpacked before.
        allow_outside: As in `inspect`.
        max_members: As in `inspect`.
        max_size: Likewise.
        max_ratio: Likewise.

    Raises:
        UsageError: the source, or a folder that is there.
        ArchiveError: names that lead elsewhere, links, bombs, damaged bytes.
        ExtractionError: the files cannot be written.

    """
    options = arguments.valid(locals())
    from marpack.api import results

    name = arguments.named(source)
    folder = operations.folder_named_after(name) if directory is None else Path(options["directory"])
    if folder is None:
        raise UsageError("this has no name that a folder could have", where=name, hint="name the new folder")
    limits = operations.chosen_limits(max_members, max_size, max_ratio)
    wanted, outside = options["only"], allow_outside
    return results.Unpacked.of(
        operations.unpacked(name, folder, limits, no_progress, only=wanted, force=force, allow_outside=outside)
    )


def export(
    source: Name | None = None,
    *,
    to: str,
    output: Name | None = None,
    force: bool = False,
    allow_outside: bool = False,
    device: Literal["cpu", "cuda"] = "cpu",
    wheel: Name | None = None,
    lock: Name | None = None,
    no_lock: bool = False,
    image: str | None = None,
    storage_uri: str | None = None,
    role: str | None = None,
) -> Exported:
    """Write the folder that another platform deploys: the archive, and what it needs around it.

    Args:
        source: A .mar, a .tar.gz or a project; None: the current folder's.
        to: "docker", "kserve", "sagemaker" or "ray-serve".
        output: The new folder; None: `<name>-<to>`, in the current folder.
        force: Whether a folder that an export has written is replaced.
        allow_outside: Let a project pack files from outside its folder.
        device: Whose torch is installed.
        wheel: A wheel of marpack; None: made from the installed files.
        lock: A requirements.lock that an export before has written.
        no_lock: Whether pip is left unasked for the requirements' hashes.
        image: The image's name, with its registry.
        storage_uri: Where the platform finds the archive.
        role: The ARN of the role that SageMaker acts in.

    Returns:
        The folder, its files, what does not carry over, and the commands that come next.

    Raises:
        UsageError: an option that cannot be.
        OutputExistsError: a folder that is there.
        ArchiveError: what is no archive, or none that can be opened safely.
        OutputError: the files cannot be written.

    """
    options = arguments.valid(locals())
    from marpack.api import results

    return results.Exported.of(operations.exported(options["source"], options, no_progress))
