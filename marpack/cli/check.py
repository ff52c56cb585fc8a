"""The command `marpack check`: one verdict on an archive, and the comparison of two ways to run it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import click
from msgspec.structs import asdict, replace

from marpack.api.declaring import Option
from marpack.api.session_options import CheckOptions
from marpack.cli.inputs import InputOptions, read_inputs, refuse_combinations
from marpack.cli.options import command
from marpack.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from marpack.archive.protocol import Archive
    from marpack.findings import Finding
    from marpack.gate.verdicts import GateReport
    from marpack.project.source import ResolvedSource
    from marpack.runner.inputs import Input
    from marpack.runner.session import Session

_HELP = """Check whether an archive is ready to deploy.

\b
Examples:
  marpack check                              the project in this folder
  marpack check model.mar --input cat.jpg    an archive without samples
  marpack check --hermetic                   also report outside access
  marpack check new.mar --against old.mar    also compare responses
  marpack check --device cpu,cuda            only compare two devices

SOURCE is a .mar, a .tar.gz, a model folder, an address (https, s3) or a project. marpack builds the archive of a
project first if it is missing or stale. Integrity, static findings and pickles come first; only an archive that passes
them is loaded. Then marpack sends its packed samples and the inputs given: alone, in batches, in other forms and
orders. Without a successful response (2xx), the archive is not proved. The exit code is 0 if the archive is ready to
deploy; otherwise that of the first failed check: 3 if it is damaged or unsafe, 4 if its handler does not load, or 1.
"""


_Results = partial(Option, group="Results")


class CheckCommandOptions(CheckOptions, frozen=True, kw_only=True):
    """The options of `marpack check`: those of Python, and those that only the command line has."""

    compile_switch: Annotated[
        str | None,
        Option(
            "Use torch.compile if the config says so: on or off, or on,off to compare both.",
            ("--compile",),
            "on|off",
            default="on",
            group="Model",
        ),
    ] = None
    as_json: Annotated[bool, _Results("Write the verdict as JSON to stdout.", ("--json",), daily=True)] = False
    report: Annotated[str | None, _Results("File for an HTML report.", metavar="FILE", daily=True)] = None
    junit: Annotated[str | None, _Results("File for a JUnit XML report.", metavar="FILE", daily=True)] = None
    sarif: Annotated[str | None, _Results("File for the findings as SARIF.", metavar="FILE")] = None


_CONFLICTS = (("recorded", ("inputs", "data", "form", "kind"), "its file has whole requests"),)
_SPELLINGS = {
    "recorded": "requests",
    "inputs": "input",
    "kind": "type",
    "headers": "header",
    "seconds_per_check": "patience",
}
_ONLY_INPUTS = ("kind", "content_type", "explain", "describe")  # options without effect on packed samples
_ONLY_VERDICT = (  # options without effect on a comparison
    *("against", "only", "skip", "allow_unproved", "hermetic", "stand_ins", "junit", "sarif", "report", "digest"),
    *("require_safe", "trust_native", "max_members", "max_size", "max_ratio", "max_opcodes"),
)


@command(InputOptions, CheckCommandOptions, help=_HELP)
def check(inputs: InputOptions, options: CheckCommandOptions) -> None:
    """Check whether an archive is ready to deploy."""
    from marpack.api.requests import defaults_of
    from marpack.gate.candidate import held_inputs

    pair = compared_option(options, inputs)
    variants = variants_of(options, pair)
    requests = held_inputs(read_inputs(inputs, defaults_of(options))) if inputs.has_inputs else ()
    code = compare_variants(variants, requests) if pair else judge(variants[0].options, requests)
    click.get_current_context().exit(code)


def compared_option(options: CheckCommandOptions, inputs: InputOptions) -> str | None:
    """Return the name of the option with two values to compare; None for a verdict on one archive.

    Raises UsageError for more than one pair, and for options that only one of the two uses has.
    """
    from marpack.api.checking import check_combinations

    check_combinations(options)
    pairs = [name for name, value in _two_valued(options).items() if "," in (value or "")]
    if len(pairs) > 1:
        raise UsageError(f"--{pairs[0]} and --{pairs[1]} both have two values", hint="Give two values to one of them.")
    compared = pairs[0] if pairs else None
    unused = next((name for name in _ONLY_VERDICT if getattr(options, name)), None)
    if compared and unused is not None:
        what = f"--{unused.replace('_', '-')} has no effect on a comparison with --{pairs[0]}"
        raise UsageError(what, hint="Leave one of them out.")
    given = asdict(options) | asdict(inputs)
    refuse_combinations(given, _CONFLICTS, _SPELLINGS)
    name = next((name for name in _ONLY_INPUTS if given[name]), None)
    if name is not None and not inputs.has_inputs:
        spelt = _SPELLINGS.get(name, name).replace("_", "-")
        hint = "Name inputs with --input FILE. Packed samples are sent as they were packed."
        raise UsageError(f"--{spelt} requires inputs", hint=hint)
    return compared


def _two_valued(options: CheckCommandOptions) -> dict[str, str | None]:
    return {"device": options.device, "compile": options.compile_switch}


class VariantOptions(NamedTuple):
    """How one of two variants is run."""

    name: str
    options: CheckCommandOptions


def variants_of(options: CheckCommandOptions, pair: str | None) -> list[VariantOptions]:
    """Return the two variants of a pair of values, or the only one; raises UsageError for unusable values."""
    values = [part.strip() for part in (_two_valued(options).get(pair or "") or "").split(",")]
    if pair in ("device", "compile") and (len(values) != 2 or not all(values) or values[0] == values[1]):
        where = f"--{pair} {_two_valued(options)[pair]}"
        hint = f"Give two different values, such as --{pair} {'cpu,cuda' if pair == 'device' else 'on,off'}."
        raise UsageError("expected two different values", where=where, hint=hint)
    switches = values if pair == "compile" else ["on" if options.compile_switch is None else options.compile_switch]
    unknown = next((switch for switch in switches if switch not in ("on", "off")), None)
    if unknown is not None:
        raise UsageError(f"{unknown!r} is not on or off", where=f"--compile {unknown}", hint="Use --compile off.")
    if pair == "compile":
        names = {"on": "compiled", "off": "not compiled"}
        return [VariantOptions(names[each], replace(options, compile=each == "on")) for each in values]
    options = replace(options, compile=switches[0] == "on")
    devices = values if pair == "device" else [options.device]
    return [VariantOptions(each, replace(options, device=each)) for each in devices]


def judge(options: CheckCommandOptions, requests: tuple[Input, ...]) -> int:
    """Check an archive, show and write the verdict, and return the exit code."""
    from marpack.api import checking
    from marpack.cli.session import print_aside, show_origin
    from marpack.gate.verdicts import CheckResult
    from marpack.project.schema import Check
    from marpack.render.check import FORMS, CheckLines, show_verdict
    from marpack.render.console import byte_bar, expect_writable, show, write_whole

    class Notes(checking.CheckNotes):
        bar = staticmethod(byte_bar)
        _lines: CheckLines

        def on_message(self, message: str) -> None:
            self._lines.stop()  # the running check is not drawn meanwhile: a question may follow
            print_aside(message)

        def announce(self, message: str) -> None:
            self._lines.announce(message)

        def resolved(self, resolved: ResolvedSource) -> None:
            show_origin(resolved)

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
            for name, file in files.items():
                write_whole(file, FORMS[name](report), option=f"--{name}")
            (show if options.as_json else show_verdict)(report)

    files = {name: file for name in FORMS if (file := getattr(options, name)) is not None}
    for name, file in files.items():
        expect_writable(file, option=f"--{name}")
    return checking.check(options, requests, Notes()).exit_code


def compare_variants(variants: list[VariantOptions], requests: tuple[Input, ...]) -> int:
    """Compare two variants, show the result, and return the exit code.

    It is 0 if all responses are equal within the tolerance and at least one succeeded, otherwise 1.
    """
    from marpack.api.checking import packed_defaults
    from marpack.api.operations import text_of
    from marpack.api.sessions import SessionExtras, open_session
    from marpack.cli.session import TerminalNotes, print_aside
    from marpack.gate.compare import VariantRunner
    from marpack.gate.samples import packed_samples
    from marpack.render.check import show_comparison, show_input_comparison
    from marpack.render.console import byte_bar, show
    from marpack.runner.session import Device

    class Notes(TerminalNotes):
        def opened(self, resolved: ResolvedSource, archive: Archive) -> None:
            """Ignore findings about the archive itself: only the responses are compared."""

    (first, options), (second, other) = variants
    for each in (options, other):
        Device.available(each.device)  # raises for a device that does not exist, before a model is loaded
    findings: list[Finding] = []
    extras = SessionExtras(bar=byte_bar, on_message=print_aside)
    interrupted = False
    with ExitStack() as stack:
        sessions: list[Session] = []
        for each in (options, other):
            notes = Notes(findings.extend, env=each.env)
            sessions.append(stack.enter_context(open_session(text_of(each.source), each, notes, extras)))
        comparing = VariantRunner(sessions[0], sessions[1], (first, second), options.tolerance)
        defaults = packed_defaults(options)
        packed = (tuple(each.input for each in packed_samples(one.archive, defaults).samples) for one in sessions)
        requests = requests or next(filter(None, packed), ())
        if not requests:
            raise UsageError("no inputs to compare", hint="No samples are packed. Name inputs with --input FILE.")
        try:
            for compared in comparing.run(requests):
                if not options.as_json:
                    show_input_comparison(compared)
        except KeyboardInterrupt:
            interrupted = True  # the comparisons so far are shown
            comparing.stop()
        comparison = comparing.comparison(findings=tuple(findings), interrupted=interrupted)
    (show if options.as_json else show_comparison)(comparison)
    if comparison.interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.OK if comparison.alike and comparison.proved else ExitCode.SHORT
