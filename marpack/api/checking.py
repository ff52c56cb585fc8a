"""The operation of `marpack check`: an archive and its requests become one verdict, which can be attested."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from marpack.api.operations import archive_file, cache_of, limits_of, text_of
from marpack.api.requests import headers_of
from marpack.api.sessions import SessionExtras, isolated_python, pool_settings, resolver_of
from marpack.archive.protocol import no_progress
from marpack.errors import UsageError
from marpack.gate.candidate import Candidate
from marpack.gate.candidate import CheckOptions as GateOptions
from marpack.gate.check import check as examine
from marpack.gate.check import select_checks
from marpack.gate.verdicts import CheckProgress
from marpack.project.schema import COMPARISONS, HERMETIC, SAFETY
from marpack.protocol.targets import Target
from marpack.runner.inputs import RequestDefaults
from marpack.runner.session import Device
from marpack.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from marpack.api.session_options import CheckOptions
    from marpack.archive.protocol import Archive, Bar
    from marpack.gate.verdicts import GateReport
    from marpack.project.source import ResolvedSource
    from marpack.runner.inputs import Input
    from marpack.trust.attestations import CheckedFile
    from marpack.trust.keys import PrivateKey


class CheckNotes(CheckProgress):
    """Receives the progress of a check, from finding the archive to its report."""

    bar: Bar = staticmethod(no_progress)

    def on_message(self, message: str) -> None:
        """Receive a message while an environment is made."""

    def announce(self, message: str) -> None:
        """Receive a message about generated requests before they are sent."""

    def resolved(self, resolved: ResolvedSource) -> None:
        """Receive the archive of a source."""

    def checking(self, resolved: ResolvedSource) -> AbstractContextManager[object]:  # noqa: ARG002 - for subclasses
        """Return the context in which the checks run."""
        return nullcontext()

    def finished(self, report: GateReport) -> None:
        """Receive the report, before an attestation is written."""


class Attester:
    """Writes an attestation of a check's result, if the file is the same before and after the check."""

    def __init__(self, file: str | None, key: PrivateKey | None, *, option: str, isolated: bool) -> None:
        """Check that the attestation can be written; with None, there is none. Raises UsageError."""
        from marpack.render.console import expect_writable

        if file is None and key is not None:
            hint = "Name the file of the attestation: --attest FILE."
            raise UsageError("--key requires --attest", hint=hint, code="key-without-attestation")
        expect_writable(file, option=option)
        self._file, self._key, self._option, self._isolated = file, key, option, isolated
        self._before: CheckedFile | None = None

    def hash(self, archive: Path, bar: Bar) -> None:
        """Hash the file before it is checked. Raises UsageError if it is not a file."""
        if self._file is not None:
            from marpack.trust.attestations import CheckedFile

            with bar("hashing", archive_file(str(archive)).stat().st_size) as progress:
                self._before = CheckedFile.of(archive, progress)

    def write(self, report: GateReport) -> None:
        """Write the attestation completely or not at all; nothing after an interrupted check.

        Raises SignatureError if the file has changed since, UsageError if the attestation cannot be written.
        """
        if self._file is None or self._before is None or report.interrupted:
            return
        import platform
        from importlib.metadata import version

        from marpack.render.console import write_whole
        from marpack.trust.attestations import attest

        versions = {"marpack": __version__}
        if not self._isolated:  # an isolated environment has other versions, which are unknown here
            versions |= {name: version(name) for name in ("torch", "onnxruntime")}
            versions["python"] = platform.python_version()
        write_whole(self._file, attest(report, self._before, self._key, versions=versions), option=self._option)


def check(
    options: CheckOptions, inputs: tuple[Input, ...], attester: Attester, notes: CheckNotes | None = None
) -> GateReport:
    """Return the verdict on an archive; its problems are in the report.

    Raises UsageError, ProjectError and ArchiveError for the source and the options.
    """
    check_combinations(options)
    notes = notes or CheckNotes()
    optional = (*((HERMETIC,) if options.hermetic else ()), *(COMPARISONS if options.slower is not None else ()))
    selection = select_checks(options.only, options.skip, optional)
    device = Device.available(options.device)

    def python(archive: Archive) -> str:
        return isolated_python(archive, notes.on_message)

    settings = GateOptions(
        load=SessionExtras().load(options, device),
        settings=pool_settings(options, device),
        device=device,
        python=python if options.env == "isolated" else None,
        shape=packed_defaults(options),
        allow_unproved=frozenset(options.allow_unproved),
        stand_ins=options.stand_ins,
        announce=notes.announce,
        target=Target(options.target) if options.target else None,
        require_safe=options.require_safe,
        trust_native=options.trust_native,
        limits=limits_of(max_members=options.max_members, max_size=options.max_size, max_ratio=options.max_ratio),
        seconds_per_check=options.seconds_per_check,
        tolerance=options.tolerance,
        max_opcodes=options.max_opcodes,
        cache=cache_of(notes.bar),
        inputs=inputs,
    )
    resolver = partial(resolver_of, bar=notes.bar, maximum=settings.limits.total)
    if options.slower is not None:
        other = resolver(replace(options, digest=None))(os.fspath(options.against or "."))
        notes.resolved(other)
        time = options.slower_time or settings.slower_time
        settings = replace(settings, against=other, slower=options.slower, slower_time=time)
    found = resolver(options)(text_of(options.source))
    notes.resolved(found)
    attester.hash(found.path, notes.bar)
    with notes.checking(found), Candidate(found, settings) as candidate:
        report = examine(candidate, selection, notes)
    notes.finished(report)
    attester.write(report)
    return report


def check_combinations(options: CheckOptions) -> None:
    """Raise UsageError for options that do not go together."""
    if options.slower is None and options.slower_time is not None:
        raise UsageError("--slower-time requires --slower", hint="Add --against ARCHIVE --slower N%.")
    if options.slower is not None and options.against is None:
        raise UsageError("--slower requires --against", hint="Add --against ARCHIVE.")
    if "inputs" in options.allow_unproved and (options.hermetic or HERMETIC in options.only):
        hint = "Name inputs, or leave one of the options out."
        raise UsageError("the check hermetic and --allow-unproved inputs exclude each other", hint=hint)
    if options.trust_native and not options.require_safe:
        raise UsageError("--trust-native has no effect without --require-safe", hint="Add --require-safe.")
    is_left_out = SAFETY in options.skip or (options.only and SAFETY not in options.only)
    if options.require_safe and is_left_out:
        hint = f"Run the check {SAFETY}, or leave --require-safe out."
        raise UsageError(f"--require-safe needs the check {SAFETY}, which is left out", hint=hint)


def packed_defaults(options: CheckOptions) -> RequestDefaults:
    """Return the common part of the requests of packed samples, which are otherwise sent as they were packed."""
    return RequestDefaults(headers=headers_of(options.headers), max_request_size=options.max_request_size)
