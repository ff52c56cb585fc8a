"""The commands as functions of the Python API, with the options of the commands as arguments."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from marpack.api import operations, results
from marpack.api.declaring import Name, operation, valid
from marpack.api.options import (
    BuildOptions,
    DiffOptions,
    DoctorOptions,
    ExportOptions,
    InitOptions,
    InspectOptions,
    SignOptions,
    UnpackOptions,
    VerifyOptions,
)
from marpack.api.session_options import CheckOptions, RunOptions
from marpack.archive.protocol import no_progress

if TYPE_CHECKING:
    from marpack.archive.protocol import Archive


@operation(InitOptions)
def init(options: InitOptions) -> results.InitReport:
    """Start a project: a marpack.yaml and the files that it needs, around the weights and labels in a folder.

    Raises UsageError for an option that cannot be used, ScaffoldError if the files cannot be written.
    """
    return results.InitReport.of(operations.init(options))


@operation(BuildOptions)
def build(options: BuildOptions) -> results.BuildReport:
    """Pack a model into one archive: that of a project, or of the arguments of torch-model-archiver.

    Raises UsageError for arguments that do not go together, ProjectError with every finding that stops the build,
    BuildError if the archive cannot be written.
    """
    return results.BuildReport.of(operations.pack(operations.plan_build(options, no_progress), no_progress))


@operation(BuildOptions)
def plan_build(options: BuildOptions) -> results.BuildPlan:
    """Return the archive that `build` would write, without writing anything: `marpack build --dry-run`.

    Raises UsageError and ProjectError as `build` does; UsageError for `vendor`, which writes vendor.lock.
    """
    return results.BuildPlan.of(operations.describe_plan(options, no_progress))


def open(source: Name) -> Archive:  # noqa: A001 - `marpack.open` reads best
    """Open a .mar, a .tar.gz or a model folder. No part of it is run, imported or unpickled.

    Raises NotAnArchiveError, DamagedArchiveError, UnsafeArchiveError or LimitExceededError.
    """
    from marpack.archive.reader import open_archive

    checked = valid(UnpackOptions(source=source))
    return open_archive(os.fspath(checked.source), cache=operations.cache_of())


@operation(InspectOptions)
def inspect(options: InspectOptions) -> results.Inspection:
    """Return the contents and problems of an archive. No part of it is run, imported or unpickled.

    The result includes the findings of the static checks that a build makes. Raises UsageError and ProjectError for
    the source, ArchiveError for a file that is not an archive, or that cannot be opened safely.
    """
    return results.Inspection.of(operations.inspect(options, no_progress, parse_config=True))


@operation(DiffOptions)
def diff(options: DiffOptions) -> results.Diff:
    """Compare two archives: manifest, members, config, labels and every number of the tensors.

    Raises the errors of `inspect`.
    """
    return results.Diff.of(operations.diff(options, no_progress))


@operation(UnpackOptions)
def unpack(options: UnpackOptions) -> results.Unpacked:
    """Extract an archive into a new folder, completely or not at all.

    Raises UsageError for the source and for a folder that exists, ArchiveError for unsafe names, links, decompression
    bombs and damaged bytes, ExtractionError if the files cannot be written.
    """
    return results.Unpacked.of(operations.unpack(options, no_progress))


@operation(ExportOptions)
def export(options: ExportOptions) -> results.Exported:
    """Write the folder that a platform deploys: the archive and the files around it, or nothing with `dry_run`.

    Raises UsageError for an option that cannot be used, OutputExistsError for a folder that exists, ArchiveError for
    a file that is not an archive, OutputError if the files cannot be written.
    """
    return results.Exported.of(operations.export(options, no_progress))


@operation(CheckOptions)
def check(options: CheckOptions) -> results.GateReport:
    """Check whether an archive is ready to deploy; `deployable` of the result is the verdict as a boolean.

    Raises UsageError and ProjectError for the source, an input or an option. Problems of the archive are in the report.
    """
    from marpack.api import checking
    from marpack.api.requests import defaults_of, requests_from
    from marpack.gate.candidate import held_inputs

    inputs = held_inputs(requests_from(options.inputs, defaults_of(options)))
    return results.GateReport.of(checking.check(options, inputs))


@operation(RunOptions)
def run(options: RunOptions) -> results.RunReport:
    """Run inputs through an archive and return a summary with all responses.

    If the responses do not fit into memory, use `load` and `Model.predict_many`, which yields them. Raises
    UsageError, ProjectError and ArchiveError for the source, an input or an option, LoadError if the handler cannot be
    imported, constructed or initialized.
    """
    from marpack.api.model import run_inputs

    return run_inputs(options)


@operation(SignOptions)
def sign(options: SignOptions) -> results.Signed:
    """Sign an archive's file in the OpenSSF model-signing format. A finding tells if others can read the private key.

    Raises UsageError for the archive, the key or the certificate, OutputExistsError for a signature that exists,
    ArchiveError for a damaged archive, MissingExtraError without the extra `sign`.
    """
    return results.Signed.of(operations.sign(options, no_progress))


@operation(VerifyOptions)
def verify(options: VerifyOptions) -> results.Verification:
    """Verify an archive's signature.

    Raises SignatureError without a trusted signer, with a finding for every difference; UsageError for files that do
    not exist or options that do not go together; MissingExtraError without the extra `sign`.
    """
    return results.Verification.of(operations.verify(options, no_progress))


@operation(DoctorOptions)
def doctor(options: DoctorOptions) -> results.DoctorReport:
    """Check the installation: versions, devices, the cache and optional dependencies."""
    from marpack.api.doctor import examine

    return results.DoctorReport.of(examine(clear_cache=options.clear_cache))
