"""The command `marpack check`: one verdict on an archive, and the comparison of two ways to run it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, NamedTuple

import click
from msgspec.structs import asdict, replace

from marpack.api.declaring import Option
from marpack.api.session_options import CheckOptions
from marpack.cli.inputs import InputOptions, read_inputs, refuse_combinations
from marpack.cli.options import command
from marpack.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from marpack.api.checking import CheckNotes
    from marpack.api.vouching import Attester
    from marpack.archive.protocol import Archive
    from marpack.findings import Finding
    from marpack.gate.compare import Comparison, VariantRunner
    from marpack.gate.verdicts import GateReport
    from marpack.project.source import ResolvedSource
    from marpack.runner.inputs import Input
    from marpack.runner.session import Session

_HELP = """Check whether an archive is ready to deploy.

\b
Examples:
  marpack check                              the project in this folder
  marpack check model.mar --input cat.jpg    an archive without samples
  marpack check --hermetic                   also check that it needs nothing else
  marpack check new.mar --against old.mar    compare the responses of two archives
  marpack check new.mar --against old.mar --slower 10%

SOURCE is a .mar, a .tar.gz, a model folder, an address (https, s3, oci) or a project. marpack builds the archive of a
project first if it is missing or stale. Integrity, static findings and pickles come first; only an archive that passes
them is loaded. Then marpack sends its packed samples and the inputs given: alone, in batches, in other forms and
orders. Without a successful response (2xx), the archive is not proved. The exit code is 0 if the archive is ready to
deploy; otherwise that of the first failed check: 3 if it is damaged or unsafe, 4 if its handler does not load, or 1.
"""
_FILES = ("report", "junit", "sarif")  # that the verdict may be written to


class CheckCommandOptions(CheckOptions, frozen=True, kw_only=True):
    """The options of `marpack check`: those of Python, and those that only the command line has."""

    compile_switch: Annotated[
        str | None,
        Option("Use torch.compile if the config says so: on or off.", ("--compile",), "on|off", default="on",
               group="Model"),
    ] = None  # fmt: skip
    as_json: Annotated[bool, Option("Write the verdict as JSON to stdout.", ("--json",), group="Results")] = False
    report: Annotated[str | None, Option("File for an HTML report.", metavar="FILE", group="Results")] = None
    junit: Annotated[str | None, Option("File for a JUnit XML report.", metavar="FILE", group="Results")] = None
    sarif: Annotated[str | None, Option("File for the findings as SARIF.", metavar="FILE", group="Results")] = None


_CONFLICTS = (("recorded", ("inputs", "data", "form", "kind"), "its file has whole requests"),)
_SPELLINGS = {
    "recorded": "requests",
    "inputs": "input",
    "kind": "type",
    "headers": "header",
    "seconds_per_check": "patience",
}
_ONLY_VERDICT = (  # options without effect on a comparison
    *("only", "skip", "allow_unproved", "hermetic", "stand_ins", "junit", "sarif", "report", "attest", "key", "digest"),
    *("require_safe", "trust_native", "max_members", "max_size", "max_ratio", "max_opcodes"),
)


@command(InputOptions, CheckCommandOptions, help=_HELP)
def check(inputs: InputOptions, options: CheckCommandOptions) -> None:
    """Check whether an archive is ready to deploy."""
    act = compare_variants if is_comparison(options, inputs) else judge
    click.get_current_context().exit(act(options, inputs))


def is_comparison(options: CheckCommandOptions, inputs: InputOptions) -> bool:
    """Return whether two variants are compared, in place of a verdict on one archive.

    Raises UsageError for more than one pair, and for options that only one of the two uses has.
    """
    from marpack.api.checking import check_combinations

    check_combinations(options)
    pairs = [name for name, value in _pairs(options) if "," in (value or "")]
    pairs[:0] = ["against"] if options.against is not None else []
    if len(pairs) > 1:
        raise UsageError(f"--{pairs[0]} and --{pairs[1]} are two pairs", hint="Compare one pair at a time.")
    compared = bool(pairs) and options.slower is None
    unused = next((name for name in _ONLY_VERDICT if getattr(options, name)), None)
    if compared and unused is not None:
        what = f"--{unused.replace('_', '-')} has no effect on a comparison with --{pairs[0]}"
        raise UsageError(what, hint="Leave one of them out.")
    given = asdict(options) | asdict(inputs)
    refuse_combinations(given, _CONFLICTS, _SPELLINGS)
    if not inputs.are_given:
        for name in ("kind", "content_type", "explain", "describe"):
            if given[name]:
                spelt = _SPELLINGS.get(name, name).replace("_", "-")
                hint = "Name inputs: --input FILE… Packed samples are sent as they were packed."
                raise UsageError(f"--{spelt} requires inputs", hint=hint)
    return compared


def _pairs(options: CheckCommandOptions) -> tuple[tuple[str, str | None], ...]:
    return ("device", options.device), ("compile", options.compile_switch)


def _with_compile(options: CheckCommandOptions, switch: str | None) -> CheckCommandOptions:
    if switch not in (None, "on", "off"):
        raise UsageError(f"{switch!r} is not on or off", where=f"--compile {switch}", hint="Use --compile off.")
    return replace(options, compile=switch != "off")


def judge(options: CheckCommandOptions, inputs: InputOptions) -> int:
    """Check an archive, show the verdict, and return the exit code."""
    from marpack.api import checking
    from marpack.render.console import expect_writable

    options = _with_compile(options, options.compile_switch)
    requests = _held(options, inputs)
    for name in _FILES:
        expect_writable(getattr(options, name), option=f"--{name}")
    return checking.check(options, requests, _attester(options), _notes(options)).exit_code


def _held(options: CheckCommandOptions, inputs: InputOptions) -> tuple[Input, ...]:
    """Return the requests of the inputs; raises UsageError for inputs that are missing or too large to hold."""
    from marpack.api.requests import defaults_of
    from marpack.gate.candidate import held_inputs

    return held_inputs(read_inputs(inputs, defaults_of(options))) if inputs.are_given else ()


def _attester(options: CheckCommandOptions) -> Attester:
    """Return the writer of the attestation; raises UsageError for a key that cannot sign, before the check."""
    from marpack.api.vouching import Attester
    from marpack.cli.trust import read_private_key
    from marpack.render.console import show_findings

    key, findings = (None, ()) if options.key is None else read_private_key(str(options.key))
    show_findings(findings)
    attest = None if options.attest is None else os.fspath(options.attest)
    return Attester(attest, key, option="--attest", isolated=options.env == "isolated")


def _notes(options: CheckCommandOptions) -> CheckNotes:
    """Return what shows the progress of a check and writes its report."""
    from marpack.api.checking import CheckNotes
    from marpack.cli.session import tell_aside, tell_built
    from marpack.gate.verdicts import CheckResult
    from marpack.project.schema import Check
    from marpack.render.check import CheckLines
    from marpack.render.console import byte_bar

    class Notes(CheckNotes):
        bar = staticmethod(byte_bar)
        _lines: CheckLines

        def tell(self, message: str) -> None:
            self._lines.stop()  # the running check is not drawn meanwhile: a question may follow
            tell_aside(message)

        def announce(self, message: str) -> None:
            self._lines.announce(message)

        def resolved(self, resolved: ResolvedSource) -> None:
            tell_built(resolved)

        @contextmanager
        def checking(self, resolved: ResolvedSource) -> Iterator[None]:
            self._lines = CheckLines(str(resolved.path), quiet=options.as_json)
            with self._lines.shown():
                yield

        def begins(self, check: Check) -> None:
            self._lines.begins(check)

        def ends(self, checked: CheckResult) -> None:
            self._lines.ends(checked)

        def finished(self, report: GateReport) -> None:
            _write(report, options)

    return Notes()


def _write(report: GateReport, options: CheckCommandOptions) -> None:
    """Write the report in every requested format, and the verdict to stdout."""
    from marpack.render.console import show, write_whole

    for name in _FILES:
        file = getattr(options, name)
        if file:
            from marpack.render.check import FORMS

            write_whole(file, FORMS[name](report), option=f"--{name}")
    if options.as_json:
        show(report)
    else:
        from marpack.render.check import show_verdict

        show_verdict(report)


class Variant(NamedTuple):
    """One of two ways to run the same inputs."""

    name: str
    options: CheckCommandOptions


def variants_of(options: CheckCommandOptions) -> tuple[Variant, Variant]:
    """Return the two variants that the options compare; raises UsageError unless they differ."""
    if options.against is not None:
        from marpack.api.operations import shown_source

        options = _with_compile(options, options.compile_switch)
        source, other = (os.fspath(each or ".") for each in (options.source, options.against))
        return Variant(shown_source(source), options), Variant(shown_source(other), replace(options, source=other))
    name, value = next((name, value) for name, value in _pairs(options) if "," in (value or ""))
    values = [part.strip() for part in str(value).split(",")]
    if len(values) != 2 or not all(values) or values[0] == values[1]:
        hint = f"Give two different values, such as --{name} {'cpu,cuda' if name == 'device' else 'on,off'}."
        raise UsageError("expected two different values", where=f"--{name} {value}", hint=hint)
    if name == "device":
        options = _with_compile(options, options.compile_switch)
        one, two = (Variant(each, replace(options, device=each)) for each in values)
        return one, two
    names = {"on": "compiled", "off": "not compiled"}
    one, two = (Variant(names.get(each, each), _with_compile(options, each)) for each in values)
    return one, two


def compare_variants(options: CheckCommandOptions, inputs: InputOptions) -> int:
    """Compare two variants, show the result, and return the exit code.

    It is 0 if all responses are equal within the tolerance and one of them at least is a success, otherwise 1.
    """
    from marpack.api.checking import packed_defaults
    from marpack.api.sessions import SessionExtras, open_session
    from marpack.cli.session import TerminalNotes, tell_aside
    from marpack.gate.compare import VariantRunner
    from marpack.gate.samples import packed_samples
    from marpack.render.console import byte_bar
    from marpack.runner.session import Device

    class Notes(TerminalNotes):
        def opened(self, resolved: ResolvedSource, archive: Archive) -> None:
            """Ignore findings about the archive itself: only the responses are compared."""

    variants = variants_of(options)
    for variant in variants:
        Device.available(variant.options.device)  # raises for a device that does not exist, before a model is loaded
    requests = _held(options, inputs)
    findings: list[Finding] = []
    extras = SessionExtras(bar=byte_bar, tell=tell_aside)
    with ExitStack() as stack:
        sessions: list[Session] = []
        for _, each in variants:
            notes = Notes(findings.extend, env=each.env)
            source = None if each.source is None else os.fspath(each.source)
            sessions.append(stack.enter_context(open_session(source, each, notes, extras)))
        comparing = VariantRunner(sessions[0], sessions[1], (variants[0].name, variants[1].name), options.tolerance)
        defaults = packed_defaults(options)
        packed = (tuple(each.input for each in packed_samples(one.archive, defaults).samples) for one in sessions)
        requests = requests or next(filter(None, packed), ())
        if not requests:
            raise UsageError("no inputs to compare", hint="No samples are packed. Name inputs: --input FILE…")
        comparison = _run(comparing, requests, tuple(findings), as_json=options.as_json)
    if options.as_json:
        from marpack.render.console import show

        show(comparison)
    else:
        from marpack.render.check import show_comparison

        show_comparison(comparison)
    if comparison.interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.OK if comparison.alike and comparison.proved else ExitCode.SHORT


def _run(
    comparing: VariantRunner, inputs: tuple[Input, ...], findings: tuple[Finding, ...], *, as_json: bool
) -> Comparison:
    from marpack.render.check import show_input_comparison

    interrupted = False
    try:
        for compared in comparing.run(inputs):
            if not as_json:
                show_input_comparison(compared)
    except KeyboardInterrupt:
        interrupted = True  # the comparisons so far are shown
        comparing.stop()
    return comparing.comparison(findings=findings, interrupted=interrupted)
