"""The options of `marpack run`, in the groups that `--help` shows, and the inputs they name."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import click

from marpack.cli.options import GroupedOption, Options, seconds, size
from marpack.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from marpack.runner.inputs import Input, RequestDefaults
    from marpack.runner.sources import NameFilter

_LAST = "Other"
_Decorated = TypeVar("_Decorated")
ARCHIVES = (".mar", ".tar.gz", ".tgz")
_COLUMN = 22  # width of an option in the help
_RANGE = re.compile(r"\s+\[(?:\d+<=)?x(?:[<>]=?\d+)?\]$")
BODY_SIZE: dict[str, Any] = {  # Any: click's
    "type": size,
    "default": "6553500",
    "metavar": "SIZE",
    "help": "The server's setting of that name [6553500].",
}
YES = "Confirm a download for --env isolated that is over 500 MB or of unknown size."
TARGETS = click.Choice(["torchserve", "marpack"])
ENVELOPES = click.Choice(["body", "json", "kserve", "kservev2"])


class RunCommand(click.Command):
    """A command some of whose options take every word up to the next one, as a shell's `*.png` needs it."""

    several: ClassVar[dict[str, str]] = {"--input": "--input", "-i": "--input"}  # as it may be spelt → the option

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat such an option before each of its words; an archive among them is the SOURCE."""
        spelt: list[str] = []
        taking: str | None = None
        for word in args:
            if word in self.several:
                taking = self.several[word]
                continue
            taking = None if word.startswith("-") and word != "-" else taking
            spelt += [taking, word] if taking and not word.partition("#")[0].endswith(ARCHIVES) else [word]
        if args and args[-1] in self.several:
            spelt.append(args[-1])
        return super().parse_args(ctx, spelt)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options under their headings, in columns of one width."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                reported = _RANGE.sub("", record[1])  # click adds what nobody needs to be told
                groups.setdefault(getattr(parameter, "group", _LAST), []).append((record[0].ljust(_COLUMN), reported))
        for group in sorted(groups, key=lambda group: group == _LAST):
            with formatter.section(group):
                formatter.write_dl(groups[group], col_max=_COLUMN)


def option(*names: str, **details: Any) -> Any:  # Any: click's
    """Return what makes an option's decorator of the heading that it stands under."""
    return partial(click.option, *names, cls=GroupedOption, **details)


def grouped(groups: dict[str, tuple[Any, ...]]) -> Callable[[_Decorated], _Decorated]:  # Any: from `option`
    """Return the decorator that gives a command some options, by their headings."""

    def decorate(command: _Decorated) -> _Decorated:
        for heading, options in reversed(groups.items()):
            for make in reversed(options):
                command = make(group=heading)(command)
        return command

    return decorate


ASKING = {
    "Inputs": (
        option(
            "-i", "--input", "inputs", multiple=True, metavar="FILE…", help="Files, folders, globs, @list, URLs, -."
        ),
        option("--type", "kind", metavar="TYPE", help="Of a folder's files only these: image, .png."),
        option("--data", multiple=True, metavar="TEXT", help="A body given as such, as JSON or as text."),
        option("--form", multiple=True, metavar="K=V", help="A field of the one form; K=@FILE sends a file."),
        option("--requests", "recorded", metavar="FILE", help="Whole requests, a JSON object a line (- is stdin)."),
    ),
    "Requests": (
        option("--content-type", metavar="TYPE", help="Of the inputs [by suffix, then by content]."),
        option("-H", "--header", "headers", multiple=True, metavar="K=V", help="A request header."),
        option("--explain", is_flag=True, help="Ask for explanations instead of predictions."),
        option("--describe", is_flag=True, help="Ask the model to describe itself."),
        option("--envelope", type=ENVELOPES, help="The server's service_envelope setting [none]."),
        option("--max-request-size", **BODY_SIZE),
        option("--max-response-size", **BODY_SIZE),
    ),
}  # fmt: skip
TRUST_URL = option("--trust-url", is_flag=True, help="Run what lies at an address, whatever its digest.")
ALLOW_OUTSIDE = option("--allow-outside", is_flag=True, help="Let a project pack files from outside its folder.")
DIGEST = option("--digest", metavar="sha256:…", help="Of the file at an address: run no other.")
MODEL = (
    option("--target", type=TARGETS, help="Whose behaviour to show [the project's]."),
    option("--device", default="auto", metavar="DEVICE", help="auto, cpu, cuda, cuda:N, xpu:N, mps, xla [auto]."),
    option("--env", type=click.Choice(["current", "isolated"]), default="current", help=(
        "isolated: with the archive's requirements [current]."
    )),
    option("--yes", is_flag=True, help=YES),
    option("--no-compile", is_flag=True, help="Leave torch.compile out, whatever the config says."),
    option("--trust-pickle", is_flag=True, help="Load weights that may run code of their makers."),
    option("--metrics-config", metavar="FILE", help="The server's setting of that name [the project's]."),
    TRUST_URL,
    ALLOW_OUTSIDE,
)  # fmt: skip
_GROUPS = ASKING | {
    "Workers": (
        option("--batch-size", type=click.IntRange(1), metavar="N", help="Requests per call of handle [1]."),
        option("--workers", type=click.IntRange(1), default=1, metavar="N", help="Processes that share inputs [1]."),
        option("--timeout", type=seconds, metavar="SECONDS", help="For a batch [the config's, or 120]."),
        option("--startup-timeout", type=seconds, metavar="SECONDS", help="For loading [the config's, or 120]."),
        option("--max-memory", type=size, metavar="SIZE", help="Data a worker may have, e.g. 2GB [no bound]."),
        option("--fail-fast", is_flag=True, help="Stop at the first input that falls short."),
    ),
    "Model": (
        *MODEL,
        DIGEST,
        option("--torchserve", is_flag=True, help="Import the installed torchserve's ts, not our own."),
        option("--unpacked", is_flag=True, help="Run the project's loose files, packing nothing."),
    ),
    "Results": (
        option("--json", "as_json", is_flag=True, help="Everything as one JSON object on stdout."),
        option("--jsonl", is_flag=True, help="One JSON object a line, as soon as it is known."),
        option("--output", metavar="DIR", help="Write each answer's body to a file of its own."),
        option("--report", metavar="FILE", help="Write an HTML page with every answer drawn."),
        option("--resume", metavar="FILE", help="Append results to FILE; skip inputs with a result."),
        option("--resume-unchecked", is_flag=True, help="Also accept results without digests in FILE."),
        option("--record", is_flag=True, help="Keep answers as samples, a .mar's in a new project."),
        option("--logs", is_flag=True, help="Show what the handler prints, input by input."),
    ),
    "Debugging": (
        option("--show-data", is_flag=True, help="Show what the handler gets, without secrets."),
        option("--trace", is_flag=True, help="Tell what it touches beside its archive; native code escapes."),
        option("--in-process", is_flag=True, help="Run the handler here, so that breakpoints work."),
        option("--pdb", is_flag=True, help="Open the debugger where the handler fails."),
        option("--watch", is_flag=True, help="Run again whenever a file of the project changes."),
    ),
    "Benchmark": (
        option("--repeat", type=click.IntRange(1), metavar="N", help="Time N passes over the inputs instead."),
        option("--warmup", type=click.IntRange(0), metavar="M", help="Passes before those [1]."),
    ),
}  # fmt: skip


run_options = grouped(_GROUPS)
# Option → those that it does not go with, and why.
_APART = (
    (
        "in_process",
        ("workers", "timeout", "startup_timeout", "max_memory", "watch", "repeat", "trace"),
        "it runs the handler in this one process",
    ),
    ("isolated", ("in_process", "watch"), "it needs a process with another environment"),
    ("recorded", ("inputs", "data", "form", "kind"), "it holds whole requests"),
    ("as_json", ("jsonl",), "they are two forms of one output"),
    ("repeat", ("output", "report", "resume", "jsonl", "watch", "show_data", "trace"), "a benchmark keeps no answers"),
    ("watch", ("as_json", "jsonl", "resume", "output"), "its answers are for the eye"),
    ("unpacked", ("trace",), "only what is packed is there on a server"),
    ("record", ("watch", "repeat", "resume"), "every answer is written down once"),
    (
        "record",
        ("recorded", "form", "content_type", "headers", "explain", "describe", "envelope"),
        "a sample is the bytes of a file, sent as marpack run --input sends it",
    ),
)
_SPELT = {
    "recorded": "requests",
    "as_json": "json",
    "inputs": "input",
    "kind": "type",
    "headers": "header",
    "isolated": "env isolated",
}


def check(options: Options) -> None:
    """Raise UsageError for options that do not go together, or too few of them."""
    if not asks(options) and not options["record"]:
        raise UsageError("there is nothing to answer", hint="name inputs: marpack run --input FILE…")
    check_apart(
        {
            **options,
            "in_process": options["in_process"] or options["pdb"],
            "workers": options["workers"] > 1,
            "isolated": options["env"] == "isolated",
        }
    )
    if options["warmup"] is not None and not options["repeat"]:
        raise UsageError("--warmup belongs to a benchmark", hint="add --repeat N")
    if options["resume_unchecked"] and not options["resume"]:
        raise UsageError("--resume-unchecked requires --resume", hint="Add --resume FILE.")
    if options["resume"] == "-" or options["report"] == "-":
        raise UsageError("results go into a file of their own", hint="name a file")


def asks(options: Options) -> bool:
    """Say whether inputs are named."""
    return any(options[name] for name in ("inputs", "data", "form", "recorded"))


def check_apart(options: Options) -> None:
    """Raise UsageError for two options that do not go together."""
    for name, others, why in _APART:
        other = next((other for other in others if options.get(name) and options.get(other)), None)
        if other is not None:
            hint = f"leave one of them out: {why}"
            raise UsageError(f"{spelt(name, options)} does not go with {spelt(other, options)}", hint=hint)


def spelt(name: str, options: Options) -> str:
    """Return an option as it was given."""
    if name == "in_process" and options.get("pdb"):
        name = "pdb"
    return f"--{_SPELT.get(name, name).replace('_', '-')}"


def header(text: str) -> tuple[str, str]:
    """Return name and value of `name=value`; raises UsageError for what HTTP cannot carry."""
    from marpack.api.requests import http_header

    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError("a header is given as name=value", where=f"--header {text}")
    hint = "give it as name=value, on one line: -H 'X-Trace=7'"
    return http_header(name, value, where=f"--header {text!r}", hint=hint)


def shape_of(options: Options) -> RequestDefaults:
    """Return what every request has in common, packed samples included."""
    from marpack.runner.inputs import RequestDefaults

    headers = tuple(header(text) for text in options["headers"])
    return RequestDefaults(headers=headers, max_request_size=options["max_request_size"])


def inputs_of(options: Options) -> Iterator[Input]:
    """Return the inputs, in order.

    Raises UsageError for a missing file, before anything is loaded; only names are held, not contents.
    """
    from itertools import chain

    from msgspec.structs import replace

    from marpack.runner.inputs import as_utf8, data_inputs, file_inputs, form_input
    from marpack.runner.replay import check_requests, recorded_inputs
    from marpack.runner.sources import check_sources, paths_of

    if options["recorded"]:
        if options["recorded"] != "-":
            check_requests(options["recorded"])
        return recorded_inputs(options["recorded"], limit=options["max_request_size"])
    shape = replace(
        shape_of(options),
        content_type=as_utf8(options["content_type"] or "", "--content-type") or options["content_type"],
        explain=options["explain"],
        describe=options["describe"],
    )
    name_filter = _name_filter(options["kind"])
    check_sources(options["inputs"], name_filter=name_filter)
    paths = paths_of(options["inputs"], name_filter=name_filter)
    form = iter((form_input(options["form"], shape),)) if options["form"] else iter(())
    return chain(file_inputs(paths, shape), data_inputs(options["data"], shape), form)


def count_of(options: Options) -> int | None:
    """Return how many inputs there are, or None where only reading them would tell."""
    from marpack.runner import sources

    if options["recorded"]:
        return None
    files = sources.count_of(options["inputs"], name_filter=_name_filter(options["kind"]))
    return None if files is None else files + len(options["data"]) + bool(options["form"])


def _name_filter(kind: str | None) -> NameFilter | None:
    """Return what says of a file's name whether it is of a kind: `image`, `image/png`, `png` or `.png`."""
    if kind is None:
        return None
    from pathlib import PurePath

    from marpack.runner.inputs import type_of_suffix

    suffix = "." + kind.lstrip(".").lower()

    def is_of_kind(name: str) -> bool:
        own = PurePath(name).suffix.lower()
        known = type_of_suffix(own) or ""
        return own == suffix or known == kind or known.partition("/")[0] == kind

    return is_of_kind
