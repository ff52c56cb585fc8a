"""`marpack run --repeat N`: time an archive instead of showing its answers."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from marpack.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from marpack.cli.options import Options
    from marpack.findings import Finding
    from marpack.runner.benchmark import BenchmarkFigures, BenchmarkPlan
    from marpack.runner.inputs import Input
    from marpack.runner.session import Session

_MAX_COUNT = 10_000  # inputs: they are all held in memory


def benchmark(source: str | None, options: Options) -> int:
    """Time the inputs; return the exit code, 1 where some fell short or memory grows."""
    from marpack.cli.run_options import inputs_of
    from marpack.cli.run_output import tell_findings
    from marpack.cli.run_session import open_session
    from marpack.render.output import show
    from marpack.render.run import show_load_error
    from marpack.render.run_json import RunFailure
    from marpack.runner.client import LoadError

    findings: list[Finding] = []

    def note(noticed: Iterable[Finding]) -> None:
        findings.extend(noticed)
        tell_findings(noticed)

    inputs = _held(inputs_of(options))
    with ExitStack() as stack:
        try:
            session = stack.enter_context(open_session(source, options, stack, on_findings=note))
            figures = _measure(session, inputs, options, findings)
        except LoadError as error:
            if options["as_json"]:
                show(RunFailure.of(error, source or "."))
            else:
                show_load_error(error)
            return error.exit_code
        except KeyboardInterrupt:
            return ExitCode.INTERRUPTED
    short = any(pace.short for pace in figures.paces) or figures.findings
    return ExitCode.SHORT if short else ExitCode.OK


def _held(inputs: Any) -> list[Input]:  # Any: an iterator
    from itertools import islice

    held = list(islice(inputs, _MAX_COUNT + 1))
    if len(held) > _MAX_COUNT:
        raise UsageError(f"a benchmark takes at most {_MAX_COUNT:,} inputs", hint="it repeats them: name fewer")
    unread = next((item for item in held if item.refused is not None), None)
    if unread is not None:
        what = unread.why.message if unread.why else "the server refuses this request"
        raise UsageError(what, where=unread.name, hint="a benchmark needs every input")
    return held


def _measure(session: Session, inputs: list[Input], options: Options, findings: list[Finding]) -> BenchmarkFigures:
    from marpack.render.output import show
    from marpack.render.run import BenchmarkReport, show_columns, show_pace, show_rest
    from marpack.runner.benchmark import measure

    plan = _plan(session, options, len(inputs))
    if options["as_json"]:
        figures = measure(session.pool, inputs, plan)
        head = _head(session, findings)
        show(BenchmarkReport(**head, figures=figures))
        return figures
    show_columns()
    figures = measure(session.pool, inputs, plan, show_pace)
    show_rest(figures)
    return figures


def _plan(session: Session, options: Options, inputs: int) -> BenchmarkPlan:
    from marpack.inspection.text_members import model_config
    from marpack.runner.benchmark import BenchmarkPlan, sizes_up_to
    from marpack.torchserve.model_config import batch_size_of

    # As far as the server would go, unless the user says otherwise.
    maximum = options["batch_size"] or batch_size_of(model_config(session.archive))
    warmup = 1 if options["warmup"] is None else options["warmup"]
    maximum = min(maximum, inputs * options["repeat"])  # larger ones would never be full
    return BenchmarkPlan(sizes=sizes_up_to(maximum), repeat=options["repeat"], warmup=warmup)


def _head(session: Session, findings: list[Finding]) -> dict[str, Any]:
    return {
        "archive": str(session.resolved.path),
        "digest": session.digest,
        "target": session.load.target,
        "loaded": session.loaded,
        "load_logs": session.pool.load_logs,
        "findings": tuple(findings),
    }
