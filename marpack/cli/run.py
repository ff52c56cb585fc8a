"""The command `marpack run`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marpack.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from marpack.archive.cache import Cache
    from marpack.gate.serving import Serving
    from marpack.project.source import Resolved
    from marpack.worker.inputs import Input
    from marpack.worker.results import Result

_ARCHIVES = (".mar", ".tar.gz", ".tgz")
_SECONDS = click.FloatRange(0, min_open=True)


class ManyInputs(click.Command):
    """A command whose `--input` takes every word up to the next option, as a shell's `*.png` needs it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat `--input` before each of its words; an archive among them is the SOURCE."""
        spelt: list[str] = []
        taking = False
        for word in args:
            if word in {"--input", "-i"}:
                taking = True
                continue
            taking = taking and not (word.startswith("-") and word != "-")
            spelt += ["--input", word] if taking and not word.endswith(_ARCHIVES) else [word]
        if args and args[-1] in {"--input", "-i"}:
            spelt.append(args[-1])
        return super().parse_args(ctx, spelt)


_HELP = """Answer inputs as the server would.

\b
Examples:
  marpack run --input samples/*.png          the project in this folder
  marpack run digits.mar -i seven.png --json

SOURCE is a .mar, a .tar.gz, a model folder or a project, whose archive is built first when it is missing or stale.
The archive's handler runs in a process of its own: it is initialised once, then handles each input.
"""


@click.command(cls=ManyInputs, help=_HELP)
@click.argument("source", required=False)
@click.option("-i", "--input", "inputs", multiple=True, metavar="FILE…", help="Files, folders, globs, @list, URLs, -.")
@click.option("--data", multiple=True, metavar="TEXT", help="A body given as such: JSON where it is JSON, else text.")
@click.option("--form", multiple=True, metavar="K=V", help="A field of the one form; K=@FILE sends a file.")
@click.option("--requests", "recorded", metavar="FILE.jsonl", help="Whole requests, one a line (- is stdin).")
@click.option("--content-type", metavar="TYPE", help="Of the inputs [by suffix, then by content].")
@click.option("-H", "--header", "headers", multiple=True, metavar="K=V", help="A request header.")
@click.option("--explain", is_flag=True, help="Ask for explanations instead of predictions.")
@click.option("--describe", is_flag=True, help="Ask the model to describe itself.")
@click.option("--envelope", metavar="NAME", help="The server's service_envelope: body, json, kserve, kservev2.")
@click.option("--batch-size", type=click.IntRange(1), default=1, metavar="N", help="Requests per call of handle [1].")
@click.option("--workers", type=click.IntRange(1), default=1, metavar="N", help="Processes that share the inputs [1].")
@click.option("--timeout", type=_SECONDS, metavar="SECONDS", help="For a batch [120, as on the server].")
@click.option("--startup-timeout", type=_SECONDS, metavar="SECONDS", help="For loading the model [no bound].")
@click.option("--max-memory", metavar="SIZE", help="Data a worker may have, e.g. 2GB [no bound].")
@click.option("--target", type=click.Choice(["torchserve", "marpack"]), help="Whose behaviour to show [the project's].")
@click.option("--device", default="auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N [auto].")
@click.option("--torchserve", is_flag=True, help="Import the installed torchserve's ts, not marpack's own.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first input that falls short.")
@click.option("--logs", is_flag=True, help="Show what the handler prints and logs, with the input it belongs to.")
@click.option("--json", "as_json", is_flag=True, help="Everything as one JSON object on stdout.")
@click.option("--jsonl", is_flag=True, help="One JSON object a line, each as soon as its input is answered.")
def run(source: str | None, **options: Any) -> None:  # Any: click gives each option its own type
    """Answer inputs as the server would."""
    from marpack.render.json import show
    from marpack.render.run import RunFailure, show_load_error
    from marpack.worker.client import LoadError

    _check(options)
    inputs = _inputs(options)
    try:
        with _serving(source, options) as serving:
            code = _answer(serving, inputs, options)
    except LoadError as error:
        if options["as_json"] or options["jsonl"]:
            failure = RunFailure(
                archive=source or ".", error=str(error), status=error.status, trouble=error.trouble, logs=error.logs
            )
            show(failure)
        else:
            show_load_error(error)
        code = error.exit_code
    click.get_current_context().exit(code)


def _check(options: dict[str, Any]) -> None:
    ways = [name for name in ("inputs", "data", "form", "recorded") if options[name]]
    if not ways:
        raise UsageError("there is nothing to answer", hint="name inputs: marpack run --input FILE…")
    if "recorded" in ways and len(ways) > 1:
        raise UsageError("--requests holds whole requests and goes with no other input", hint="use one or the other")
    if options["as_json"] and options["jsonl"]:
        raise UsageError("--json and --jsonl are two forms of one output", hint="use one of them")


def _inputs(options: dict[str, Any]) -> Iterator[Input]:
    from itertools import chain

    from marpack.worker.inputs import Shape, data_inputs, file_inputs, form_input
    from marpack.worker.replay import check_requests, recorded_inputs
    from marpack.worker.sources import check_sources, paths_of

    # What is not there is said before a model is loaded; only names are held, not contents.
    if options["recorded"]:
        if options["recorded"] != "-":
            check_requests(options["recorded"])
        return recorded_inputs(options["recorded"])
    shape = Shape(
        content_type=options["content_type"],
        headers=tuple(_pair(header) for header in options["headers"]),
        explain=options["explain"],
        describe=options["describe"],
    )
    check_sources(options["inputs"])
    files = file_inputs(paths_of(options["inputs"]), shape)
    form = iter((form_input(options["form"], shape),)) if options["form"] else iter(())
    return chain(files, data_inputs(options["data"], shape), form)


def _pair(header: str) -> tuple[str, str]:
    name, equals, value = header.partition("=")
    if not equals or not name:
        raise UsageError("a header is given as name=value", where=f"--header {header}")
    return name, value


def _serving(source: str | None, options: dict[str, Any]) -> Serving:
    from marpack.gate.devices import Device
    from marpack.gate.serving import Serving
    from marpack.runtime.messages import Load
    from marpack.runtime.targets import Target
    from marpack.worker.pool import Settings

    device = Device.parse(options["device"])
    load = Load(model_dir="", gpu_id=device.gpu_id(), envelope=options["envelope"], torchserve=options["torchserve"])
    settings = Settings(
        workers=options["workers"],
        timeout=options["timeout"] or 120.0,
        startup_timeout=options["startup_timeout"],
        max_memory=_bytes(options["max_memory"]),
        environment=device.environment(),
    )
    target = Target(options["target"]) if options["target"] else None
    return Serving.open(source, options=load, target=target, settings=settings, cache=_cache(), on_resolved=_tell)


def _cache() -> Cache | None:
    from marpack.archive.cache import Cache

    folder = os.environ.get("MARPACK_CACHE_DIR")
    return Cache(Path(folder)) if folder else None


def _tell(resolved: Resolved) -> None:
    if resolved.built is None and not resolved.findings:
        return
    from marpack.render.build import show_warnings
    from marpack.render.console import talk

    if resolved.built is not None:
        talk().print(f"[dim]built {resolved.built.path}[/]")
    show_warnings(resolved.findings)


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    units = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    number = text.upper().rstrip("IB").rstrip("KMGT")
    unit = text.upper().rstrip("IB")[len(number) :]
    try:
        return int(float(number) * units[unit])
    except (ValueError, KeyError) as error:
        raise UsageError("a size is a number with K, M or G", where=f"--max-memory {text}") from error


def _answer(serving: Serving, inputs: Iterator[Input], options: dict[str, Any]) -> int:
    from marpack.render.json import show, show_line
    from marpack.render.run import Lines, RunReport
    from marpack.worker.runner import run as answers
    from marpack.worker.summary import Tally

    lines = Lines(logs=options["logs"])
    quiet = options["as_json"] or options["jsonl"]
    if not quiet:
        lines.head(serving.loaded, serving.pool.load_logs)
    tally = Tally()
    kept: list[Result] = []
    tell = kept.append if options["as_json"] else show_line if options["jsonl"] else lines.show
    code = None
    try:
        for result in answers(serving.pool, inputs, batch_size=options["batch_size"]):
            tally.add(result)
            tell(result)
            if options["fail_fast"] and not result.ok:
                break
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED  # what was answered is told all the same
        serving.pool.kill()
    else:
        serving.pool.close()
    summary = tally.summary(restarts=serving.pool.restarts, peak_memory=serving.pool.peak_memory)
    if options["as_json"]:
        show(
            RunReport(
                archive=str(serving.resolved.path),
                digest=serving.digest,
                target=serving.load.target,
                loaded=serving.loaded,
                load_logs=serving.pool.load_logs,
                results=tuple(kept),
                summary=summary,
            )
        )
    elif not quiet:
        sys.stdout.flush()
        lines.foot(summary)
    return code or (ExitCode.SHORT if summary.short else ExitCode.OK)
