"""The operation of `marpack check`: an archive and its requests become one verdict."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from marpack.api.operations import cache_of, limits_of, text_of
from marpack.api.requests import headers_of
from marpack.api.sessions import SessionExtras, isolated_python, pool_settings, resolver_of
from marpack.archive.protocol import no_progress
from marpack.errors import UsageError
from marpack.gate.candidate import Candidate
from marpack.gate.candidate import CheckOptions as GateOptions
from marpack.gate.check import check as examine
from marpack.gate.check import select_checks
from marpack.gate.verdicts import CheckProgress
from marpack.project.schema import ALIKE, HERMETIC, SAFETY
from marpack.protocol.targets import Target
from marpack.runner.inputs import RequestDefaults
from marpack.runner.session import Device

if TYPE_CHECKING:
    from marpack.api.session_options import CheckOptions
    from marpack.archive.protocol import Archive, Bar
    from marpack.gate.verdicts import GateReport
    from marpack.project.source import ResolvedSource
    from marpack.runner.inputs import Input


class CheckNotes(CheckProgress):
    """Receives the progress of a check, from finding the archive to its report."""

    bar: Bar = staticmethod(no_progress)

    def on_message(self, message: str) -> None:
        """Receive a message while an environment is made."""

    def announce(self, message: str) -> None:
        """Receive a message about generated requests before they are sent, or about an ignored setting."""

    def resolved(self, resolved: ResolvedSource) -> None:
        """Receive the archive of a source."""

    def checking(self, resolved: ResolvedSource) -> AbstractContextManager[object]:  # noqa: ARG002 - for subclasses
        """Return the context in which the checks run."""
        return nullcontext()

    def finished(self, report: GateReport) -> None:
        """Receive the report."""


def check(options: CheckOptions, inputs: tuple[Input, ...], notes: CheckNotes | None = None) -> GateReport:
    """Return the verdict on an archive; its problems are in the report.

    Raises UsageError, ProjectError and ArchiveError for the source and the options.
    """
    check_combinations(options)
    notes = notes or CheckNotes()
    optional = {HERMETIC: options.hermetic, ALIKE: options.against is not None}
    selection = select_checks(options.only, options.skip, [name for name, wanted in optional.items() if wanted])
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
    if options.against is not None:
        other = resolver(replace(options, digest=None))(os.fspath(options.against))
        notes.resolved(other)
        settings = replace(settings, against=other)
    found = resolver(options)(text_of(options.source))
    notes.resolved(found)
    with notes.checking(found), Candidate(found, settings) as candidate:
        if found.project is not None and getattr(found.project.checks, "no_slower", None) is not None:
            where = found.project.place("checks.no-slower")
            notes.announce(f"{where} is ignored, because marpack has no such check. Use marpack run --repeat.")
        report = examine(candidate, selection, notes)
    notes.finished(report)
    return report


def check_combinations(options: CheckOptions) -> None:
    """Raise UsageError for options that do not go together."""
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
