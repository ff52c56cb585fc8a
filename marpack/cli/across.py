"""`marpack check --against OTHER`, `--device A,B` and `--compile on,off`: two ways of answering, compared."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from marpack.cli.check_options import manner_of, pair_of
from marpack.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from marpack.findings import Finding
    from marpack.gate.against import Across, Comparison
    from marpack.gate.candidate import Manner
    from marpack.runner.inputs import Input
    from marpack.runner.session import Serving

_Way = tuple[str | None, str, str, "str | None"]  # source, name, device, compiled


def across(source: str | None, options: dict[str, Any]) -> int:
    """Compare, show, and return the exit code: 0 if every input is answered alike, else 1."""
    from marpack.gate.against import Across
    from marpack.runner.session import misplaced

    ways = _ways(source, options)
    manners = [manner_of(options, device=device, compiled=compiled) for _, _, device, compiled in ways]
    if options["inputs"]:
        from marpack.runner.sources import check_sources

        check_sources(options["inputs"])
    with ExitStack() as stack:
        servings = [stack.enter_context(_serving(way[0], manner)) for way, manner in zip(ways, manners, strict=True)]
        odd = (
            misplaced(device, serving.loaded.device) for serving, (_, _, device, _) in zip(servings, ways, strict=True)
        )
        comparing = Across(servings[0], servings[1], (ways[0][1], ways[1][1]), options["tolerance"])
        comparison = _run(comparing, _inputs(servings, options), tuple(filter(None, odd)), options)
    _show(comparison, options)
    if comparison.interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.OK if comparison.alike else ExitCode.SHORT


def _ways(source: str | None, options: dict[str, Any]) -> tuple[_Way, _Way]:
    device, compiled = options["device"], options["compile"]
    if options["against"] is not None:
        other = options["against"]
        return (source, source or ".", device, compiled), (other, other, device, compiled)
    if "," in device:
        one, two = pair_of(device, "device")
        return (source, one, one, compiled), (source, two, two, compiled)
    one, two = pair_of(compiled, "compile")
    names = {"on": "compiled", "off": "not compiled"}
    return (source, names.get(one, one), device, one), (source, names.get(two, two), device, two)


def _serving(source: str | None, manner: Manner) -> Serving:
    from marpack.runner.session import Serving

    return Serving.open(source, options=manner.load, target=manner.target, settings=manner.settings, cache=manner.cache)


def _inputs(servings: list[Serving], options: dict[str, Any]) -> Callable[[], Iterable[Input]]:
    """Return what makes the inputs, from the first one on each time: those named, else the samples of the first."""
    from marpack.gate.sample_runner import packed_samples
    from marpack.runner.inputs import Shape, file_inputs
    from marpack.runner.sources import paths_of
    from marpack.torchserve.messages import MAX_BODY

    shape = Shape(max_request_size=options["max_request_size"] or MAX_BODY)
    if options["inputs"]:
        return lambda: file_inputs(paths_of(options["inputs"]), shape)
    for serving in servings:
        inputs = [sample.input for sample in packed_samples(serving.archive, shape).samples]
        if inputs:
            return lambda: inputs
    raise UsageError("there is nothing to compare", hint="no samples are packed; name inputs: --input FILE…")


def _run(
    comparing: Across, inputs: Callable[[], Iterable[Input]], findings: tuple[Finding, ...], options: dict[str, Any]
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
    return comparing.comparison(findings=findings, interrupted=interrupted)


def _show(comparison: Comparison, options: dict[str, Any]) -> None:
    if options["as_json"]:
        from marpack.render.output import show

        show(comparison)
    else:
        from marpack.render.check import show_comparison

        show_comparison(comparison)
