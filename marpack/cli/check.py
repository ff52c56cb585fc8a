"""The command `marpack check`, its options, and its two-way comparisons."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from marpack.cli.check_options import gate_options, is_across
from marpack.cli.completion import sources
from marpack.cli.options import limit_options, opcode_option
from marpack.cli.run_options import RunCommand, asks, inputs_of, shape_of
from marpack.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from marpack.api.vouching import Attester
    from marpack.archive.protocol import Archive
    from marpack.cli.options import Options
    from marpack.findings import Finding
    from marpack.gate.candidate import CheckOptions
    from marpack.gate.check import CheckSelection
    from marpack.gate.compare import Comparison, VariantRunner
    from marpack.gate.verdicts import GateReport
    from marpack.project.source import ResolvedSource
    from marpack.render.check import CheckLines
    from marpack.runner.inputs import Input
    from marpack.runner.session import Session

_HELP = """Say whether an archive may be deployed.

\b
Examples:
  marpack check                              the project in this folder
  marpack check model.mar --input cat.jpg    an archive without samples
  marpack check --hermetic                   and does it need nothing else?
  marpack check new.mar --against old.mar    do both answer alike?
  marpack check new.mar --against old.mar --slower 10%

SOURCE is a .mar, a .tar.gz, a model folder, an address (https, s3, oci), which is fetched, or a project, whose archive
is built first when it is missing or stale.
Integrity, static findings and pickles come first; only an archive that passes them is loaded. Then it is asked its
packed samples and the inputs given: alone, in batches, in other forms and orders. Where nothing was answered with a
2xx, it is not proved. The exit code is 0 if it may be deployed; else that of the first check that failed: 3 where the
archive is damaged or unsafe, 4 where its handler does not load, otherwise 1.
"""
_FILES = ("report", "junit", "sarif")  # that the verdict may be written to
_Way = tuple[str | None, str, str, "str | None"]  # source, name, device, compiled


@click.command(cls=RunCommand, help=_HELP)
@click.argument("source", required=False, shell_complete=sources)
@gate_options
@limit_options
@opcode_option
def check(source: str | None, **options: Any) -> None:  # Any: click gives each option its own type
    """Say whether an archive may be deployed."""
    answer = across if is_across(options) else _gate
    click.get_current_context().exit(answer(source, options))


def _pair_of(text: str, option: str) -> tuple[str, str]:
    """Return the two values of an option; raises UsageError unless there are two that differ."""
    values = [value.strip() for value in text.split(",")]
    if len(values) != 2 or not all(values) or values[0] == values[1]:
        raise UsageError("two different values can be compared", where=f"--{option} {text}")
    return values[0], values[1]


def _check_options(options: Options, device: str, compiled: str | None) -> CheckOptions:
    """Return how an archive is to be examined. Raises UsageError for what is no device and no switch."""
    from marpack.api.settings import check_options
    from marpack.cli.run_session import cache_of, tell_aside

    if compiled not in (None, "on", "off"):
        raise UsageError("this is neither on nor off", where=f"--compile {compiled}")
    return check_options(
        options, device=device, compiled=compiled != "off", shape=shape_of(options), cache=cache_of(), tell=tell_aside
    )


def _gate(source: str | None, options: Options) -> int:
    from msgspec.structs import replace

    from marpack.gate.check import CheckSelection
    from marpack.project.schema import COMPARISONS, HERMETIC
    from marpack.render.output import expect_writable

    further = (*((HERMETIC,) if options["hermetic"] else ()), *(COMPARISONS if options["slower"] is not None else ()))
    choice = CheckSelection.of(options["only"], options["skip"], further)
    settings = replace(_check_options(options, options["device"], options["compile"]), inputs=_held_inputs(options))
    for name in _FILES:
        expect_writable(options[name], option=f"--{name}")
    attester = _attester(options)
    if options["slower"] is not None:
        limits = {"slower": options["slower"], "slower_time": options["slower_time"] or settings.slower_time}
        settings = replace(settings, against=_find(options["against"], settings, options), **limits)
    found = _find(source, settings, options, digest=options["digest"])
    report = _examine(found, settings, choice, attester, quiet=options["as_json"])
    _write(report, options)
    attester.write(report)
    return report.exit_code


def _attester(options: Options) -> Attester:
    """Return who attests what is found, before anything is looked for; raises UsageError for a key that cannot sign."""
    from marpack.api.vouching import Attester
    from marpack.cli.trust import read_private_key
    from marpack.render.console import show_findings, talk

    key, findings = read_private_key(options["key"]) if options["key"] is not None else (None, ())
    show_findings(findings, talk())
    return Attester(options["attest"], key, option="--attest", isolated=options["env"] == "isolated")


def _held_inputs(options: Options) -> tuple[Input, ...]:
    """Return the inputs named; raises UsageError for what is not there, and for more than can be held."""
    from marpack.gate.candidate import held_inputs

    return held_inputs(inputs_of(options)) if asks(options) else ()


def _find(source: str | None, settings: CheckOptions, options: Options, *, digest: str | None = None) -> ResolvedSource:
    """Return what a SOURCE stands for, having said what was built for it; see `marpack.project.source.resolve`."""
    from marpack.cli.run_session import tell_built
    from marpack.project.source import resolve
    from marpack.render.progress import byte_bar

    source_options = {"digest": digest, "trust_url": options["trust_url"], "allow_outside": options["allow_outside"]}
    resolved = resolve(source, bar=byte_bar, cache=settings.cache, maximum=settings.limits.total, **source_options)
    tell_built(resolved)
    return resolved


def _examine(
    resolved: ResolvedSource, settings: CheckOptions, choice: CheckSelection, attester: Attester, *, quiet: bool
) -> GateReport:
    from msgspec.structs import replace

    from marpack.gate.candidate import Candidate
    from marpack.gate.check import check as examine
    from marpack.render.check import CheckLines
    from marpack.render.progress import byte_bar

    attester.look_at(resolved.path, byte_bar)
    lines = CheckLines(str(resolved.path), quiet=quiet)
    settings = replace(settings, announce=lines.announce)
    if settings.python is not None:
        settings = replace(settings, python=partial(_without_status, lines, settings.python))
    with lines.shown(), Candidate(resolved, settings) as candidate:
        return examine(candidate, choice, lines)


def _without_status(lines: CheckLines, make: Callable[[Archive], str], archive: Archive) -> str:
    """Return the interpreter that `make` returns; what goes on is not drawn meanwhile, as it may ask a question."""
    lines.stop()
    return make(archive)


def _write(report: GateReport, options: Options) -> None:
    """Write the report in every form that was asked for, and the verdict on stdout."""
    from marpack.render.output import show, write_whole

    for name in filter(options.get, _FILES):
        from marpack.render.check_files import FORMS

        write_whole(options[name], FORMS[name](report), option=f"--{name}")
    if options["as_json"]:
        show(report)
    else:
        from marpack.render.check import show_verdict

        show_verdict(report)


def across(source: str | None, options: Options) -> int:
    """Compare, show, and return the exit code: 0 if every input is answered alike, and one at all, else 1."""
    from marpack.gate.compare import VariantRunner
    from marpack.runner.session import misplaced

    ways = _ways(source, options)
    manners = [_check_options(options, device, compiled) for _, _, device, compiled in ways]
    given = _held_inputs(options)
    with ExitStack() as stack:
        opened = (_serving(way[0], each, options) for way, each in zip(ways, manners, strict=True))
        servings = [stack.enter_context(each) for each in opened]
        odd = (misplaced(way[2], session.loaded.device) for session, way in zip(servings, ways, strict=True))
        comparing = VariantRunner(servings[0], servings[1], (ways[0][1], ways[1][1]), options["tolerance"])
        inputs = given or _packed_inputs(servings, manners[0])
        comparison = _run(comparing, inputs, tuple(filter(None, odd)), options)
    _show(comparison, options)
    if comparison.interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.OK if comparison.alike and comparison.proved else ExitCode.SHORT


def _ways(source: str | None, options: Options) -> tuple[_Way, _Way]:
    device, compiled = options["device"], options["compile"]
    if options["against"] is not None:
        from marpack.api.operations import shown_source

        other = options["against"]
        return (source, shown_source(source or "."), device, compiled), (other, shown_source(other), device, compiled)
    if "," in device:
        one, two = _pair_of(device, "device")
        return (source, one, one, compiled), (source, two, two, compiled)
    one, two = _pair_of(compiled, "compile")
    names = {"on": "compiled", "off": "not compiled"}
    return (source, names.get(one, one), device, one), (source, names.get(two, two), device, two)


def _serving(source: str | None, settings: CheckOptions, options: Options) -> Session:
    from marpack.cli.run_session import isolated_pool
    from marpack.project.source import resolve
    from marpack.render.progress import waiting
    from marpack.runner.session import LoadProgress, Session

    class Teller(LoadProgress):
        def loading(self) -> AbstractContextManager[object]:
            return waiting("loading the model")

    pool = isolated_pool(settings.settings, yes=options["yes"]) if settings.python else settings.settings
    cache, target = settings.cache, settings.target
    source_options = {name: options[name] for name in ("trust_url", "allow_outside")}
    found = partial(resolve, cache=cache, maximum=settings.limits.total, **source_options)
    return Session.open(
        source, options=settings.load, target=target, settings=pool, cache=cache, resolver=found, listener=Teller()
    )


def _packed_inputs(servings: list[Session], settings: CheckOptions) -> tuple[Input, ...]:
    """Return the samples of the first archive that has some; raises UsageError if none has."""
    from marpack.gate.samples import packed_samples

    for session in servings:
        inputs = tuple(sample.input for sample in packed_samples(session.archive, settings.shape).samples)
        if inputs:
            return inputs
    raise UsageError("there is nothing to compare", hint="no samples are packed; name inputs: --input FILE…")


def _run(
    comparing: VariantRunner, inputs: tuple[Input, ...], findings: tuple[Finding, ...], options: Options
) -> Comparison:
    from marpack.render.check import AcrossLines

    lines = None if options["as_json"] else AcrossLines()
    interrupted = False
    try:
        for compared in comparing.run(inputs):
            if lines is not None:
                lines.show(compared)
    except KeyboardInterrupt:
        interrupted = True  # what was compared is told all the same
        comparing.stop()
    return comparing.comparison(findings=findings, interrupted=interrupted)


def _show(comparison: Comparison, options: Options) -> None:
    if options["as_json"]:
        from marpack.render.output import show

        show(comparison)
    else:
        from marpack.render.check import show_comparison

        show_comparison(comparison)
