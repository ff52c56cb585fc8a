"""The commands as functions of the Python API, with the options of the commands as arguments."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from marpack.api import operations
from marpack.api.declaring import Name, operation, valid
from marpack.api.options import (
    BuildOptions,
    DiffOptions,
    DoctorOptions,
    ExportOptions,
    InitOptions,
    InspectOptions,
    PullOptions,
    PushOptions,
    SignOptions,
    UnpackOptions,
    VerifyOptions,
)
from marpack.api.session_options import CheckOptions, RunOptions
from marpack.archive.protocol import no_progress
from marpack.errors import UsageError

if TYPE_CHECKING:
    from marpack.api.results import (
        BuildReport,
        Diff,
        DoctorReport,
        Exported,
        GateReport,
        InitReport,
        Inspection,
        PullReport,
        PushReport,
        RunReport,
        Signed,
        Unpacked,
        Verification,
    )
    from marpack.archive.protocol import Archive
    from marpack.findings import Finding


@operation(InitOptions)
def init(options: InitOptions) -> InitReport:
    """Start a project: a marpack.yaml and the files that it needs, around the weights and labels in a folder.

    Returns:
        What was written, replaced and skipped, and findings.

    Raises:
        UsageError: an option that cannot be used.
        ScaffoldError: the files cannot be written.

    """
    from marpack.api import results

    return results.InitReport.of(operations.init(options))


@operation(BuildOptions)
def build(options: BuildOptions) -> BuildReport:
    """Pack a model into one archive: that of a project, or of the arguments of torch-model-archiver.

    Returns:
        Path, format, size in bytes, digest, number of members, seconds and findings.

    Raises:
        UsageError: arguments that do not go together.
        ProjectError: holding every finding that stops the build.
        BuildError: the archive cannot be written.

    """
    from marpack.api import results
    from marpack.project.plan import pack

    found = operations.plan_build(options, no_progress)
    return results.BuildReport.of(operations.build_report(found, pack(found.plan)))


def open(source: Name) -> Archive:  # noqa: A001 - `marpack.open` reads best
    """Open a .mar, a .tar.gz or a model folder. No part of it is run, imported or unpickled.

    Raises NotAnArchiveError, DamagedArchiveError, UnsafeArchiveError or LimitExceededError.
    """
    from marpack.archive.reader import open_archive

    checked = valid(UnpackOptions(source=source))
    return open_archive(os.fspath(checked.source), cache=operations.cache_of(no_progress))


@operation(InspectOptions)
def inspect(options: InspectOptions) -> Inspection:
    """Return the contents and problems of an archive. No part of it is run, imported or unpickled.

    The result includes the findings of the static checks that a build makes.

    Raises:
        UsageError, ProjectError: the source.
        ArchiveError: a file that is not an archive, or that cannot be opened safely.

    """
    from marpack.api import results

    return results.Inspection.of(operations.inspect(options, no_progress, parse_config=True))


@operation(DiffOptions)
def diff(options: DiffOptions) -> Diff:
    """Compare two archives: manifest, members, config, labels and every number of the tensors.

    Raises the errors of `inspect`.
    """
    from marpack.api import results

    return results.Diff.of(operations.diff(options, no_progress))


@operation(UnpackOptions)
def unpack(options: UnpackOptions) -> Unpacked:
    """Extract an archive into a new folder, or nothing of it.

    Raises:
        UsageError: the source, or a folder that exists.
        ArchiveError: unsafe names, links, decompression bombs and damaged bytes.
        ExtractionError: the files cannot be written.

    """
    from marpack.api import results

    return results.Unpacked.of(operations.unpack(options, no_progress))


@operation(ExportOptions)
def export(options: ExportOptions) -> Exported:
    """Write the folder that a platform deploys: the archive and the files around it.

    Returns:
        The folder, its files, the features that the platform does not support, and the commands that deploy it.

    Raises:
        UsageError: an option that cannot be used.
        OutputExistsError: a folder that exists.
        ArchiveError: a file that is not an archive, or that cannot be opened safely.
        OutputError: the files cannot be written.

    """
    from marpack.api import results

    return results.Exported.of(operations.export(options, no_progress))


@operation(CheckOptions)
def check(options: CheckOptions) -> GateReport:
    """Check whether an archive is ready to deploy.

    Returns:
        The verdict and the result of every check; `deployable` is the verdict as a boolean.

    Raises:
        UsageError, ProjectError: the source, an input or an option. Problems of the archive are in the report.

    """
    from marpack.api import checking, results, vouching
    from marpack.api.requests import asked_of, defaults_of
    from marpack.gate.candidate import held_inputs

    if options.against is not None and options.slower is None:
        hint = "Set slower to a share such as 0.1, or use marpack check --against for other comparisons."
        raise UsageError("against requires slower", where="against", hint=hint)
    inputs = held_inputs(asked_of(options.inputs, defaults_of(options)))
    key = None if options.key is None else vouching.private_key(options.key, options.key_password)[0]
    attest = None if options.attest is None else os.fspath(options.attest)
    attester = vouching.Attester(attest, key, option="attest", isolated=options.env == "isolated")
    return results.GateReport.of(checking.check(options, inputs, attester))


@operation(RunOptions)
def run(options: RunOptions) -> RunReport:
    """Run inputs through an archive and return the server's responses with a summary, held in memory.

    For more responses than memory holds, use `load` and `Model.predict_many`, which yields one after the other.

    Raises:
        UsageError, ProjectError, ArchiveError: the source, an input or an option.
        LoadError: the handler cannot be imported, constructed or initialised.

    """
    from itertools import chain

    from marpack.api.answering import report_of
    from marpack.api.requests import asked_of, defaults_of
    from marpack.api.sessions import SessionExtras, SessionNotes, open_session

    requests = iter(asked_of(options.inputs, defaults_of(options)))
    first = next(requests, None)
    if first is None:
        raise UsageError("no inputs", where="inputs", hint="Name inputs: marpack.run(source, [x])")
    findings: list[Finding] = []
    notes = SessionNotes(findings.extend, env=options.env)
    source = None if options.source is None else os.fspath(options.source)
    with open_session(source, options, notes, SessionExtras(trace=options.trace)) as session:
        every, size = chain([first], requests), options.batch_size or 1
        return report_of(session, every, findings, batch_size=size, fail_fast=options.fail_fast)


@operation(SignOptions)
def sign(options: SignOptions) -> Signed:
    """Sign an archive's file in the OpenSSF model-signing format.

    Returns:
        The file's SHA-256, the signature's file and the signer; a finding if others can read the private key.

    Raises:
        UsageError: the archive, the key or the certificate; MissingExtraError without the extra `sign`.
        OutputExistsError: a signature that exists.
        ArchiveError: a damaged archive.

    """
    from marpack.api import results, vouching

    return results.Signed.of(vouching.sign(options, no_progress))


@operation(VerifyOptions)
def verify(options: VerifyOptions) -> Verification:
    """Verify an archive's signature, and its check result if `require_check` names an attestation.

    Returns:
        The file's SHA-256, its signer and its checker.

    Raises:
        SignatureError: no trusted signer or checker; `findings` holds every difference.
        UsageError: files that do not exist or options that do not go together; MissingExtraError without the extra
            `sign`.

    """
    from marpack.api import results, vouching

    return results.Verification.of(vouching.verify(options, no_progress))


@operation(PushOptions)
def push(options: PushOptions) -> PushReport:
    """Send an archive to an OCI registry, with the signature, attestation and SBOM beside it.

    Returns:
        The digests of the manifest and of the file, and what was sent and attached.

    Raises:
        UsageError: the file, the address or a file to attach.
        ArchiveError: a file that is not an archive.
        RegistryError: a registry that cannot be reached, refuses, or ends the connection.

    """
    from marpack.api import results

    return results.PushReport.of(operations.push(options, no_progress))


@operation(PullOptions)
def pull(options: PullOptions) -> PullReport:
    """Fetch an archive from an OCI registry with its signatures, attestations and SBOMs, and verify every digest.

    Returns:
        The manifest's digest, the file and its digest, and the attached files.

    Raises:
        UsageError: the address.
        ArchiveError: a file that is not an archive, or has another digest.
        RegistryError: a registry that cannot be reached, refuses, or ends the connection.
        OutputExistsError, OutputError: the files cannot be written.

    """
    from marpack.api import results

    return results.PullReport.of(operations.pull(options, no_progress))


@operation(DoctorOptions)
def doctor(options: DoctorOptions) -> DoctorReport:
    """Check the installation: versions, devices, the cache and optional dependencies."""
    from marpack.api import results
    from marpack.api.doctor import examine

    return results.DoctorReport.of(examine(clear_cache=options.clear_cache))
