"""The options of `marpack check`, in the groups that `--help` shows, and which of them go together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from marpack.cli.options import Options, chosen_limits, limit_options, seconds, size, tolerance
from marpack.cli.run_options import GroupedOption
from marpack.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from marpack.gate.candidate import CheckOptions

_Decorated = TypeVar("_Decorated", bound="Callable[..., Any]")
_TARGETS = click.Choice(["torchserve", "marpack"])


def _option(*names: str, **details: Any) -> Any:  # Any: click's
    return lambda group: click.option(*names, cls=type("Option", (GroupedOption,), {"group": group}), **details)


_GROUPS = {
    "Checks": (
        _option("--only", multiple=True, metavar="CHECK", help="Run only this check (several times: these)."),
        _option("--skip", multiple=True, metavar="CHECK", help="Leave this check out."),
        _option("--patience", type=seconds, default=10.0, metavar="SECONDS", help=(
            "For each check that repeats samples [10]."
        )),
        _option("--tolerance", type=tolerance, default=1e-3, metavar="NUMBER", help=(
            "Between numbers that agree [0.001]."
        )),
    ),
    "Model": (
        _option("--target", type=_TARGETS, help="Whose behaviour counts [the project's]."),
        _option("--device", default="auto", metavar="DEVICE", help="auto, cpu, cuda, cuda:N, xpu:N, mps, xla [auto]."),
        _option("--compile", metavar="on|off", help="off leaves torch.compile out, whatever the config says [on]."),
        _option("--timeout", type=seconds, metavar="SECONDS", help=(
            "For a batch [the config's responseTimeout, or 120]."
        )),
        _option("--startup-timeout", type=seconds, metavar="SECONDS", help=(
            "For loading [the config's startupTimeout, or 120]."
        )),
        _option("--max-request-size", type=size, metavar="SIZE", help="The server's setting of that name [6553500]."),
        _option("--max-response-size", type=size, metavar="SIZE", help="The server's setting of that name [6553500]."),
        _option("--trust-pickle", is_flag=True, help="Load weights that may run code of their makers."),
    ),
    "Two ways of answering, compared": (
        _option("--against", metavar="OTHER", help="Another SOURCE; or give two: --device cpu,cuda, --compile on,off."),
        _option("-i", "--input", "inputs", multiple=True, metavar="FILE…", help=(
            "Files, folders, globs, @list, URLs [the samples packed in SOURCE]."
        )),
    ),
    "Results": (
        _option("--json", "as_json", is_flag=True, help="The verdict as JSON on stdout."),
        _option("--report", metavar="FILE", help="Also write it as an HTML page."),
        _option("--junit", metavar="FILE", help="Also write it as JUnit XML."),
        _option("--sarif", metavar="FILE", help="Also write the findings as SARIF."),
    ),
}  # fmt: skip

_OF_THE_GATE = ("only", "skip", "junit", "sarif", "report", "max_members", "max_size", "max_ratio")


def check_options(command: _Decorated) -> _Decorated:
    """Give a command every option of `check`."""
    decorators = [option(heading) for heading, options in _GROUPS.items() for option in options]
    command = limit_options(command)
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def is_across(options: Options) -> bool:
    """Say whether two ways of answering are to be compared.

    Raises UsageError where more than one pair is named, and for options that only one of the two uses has.
    """
    pairs = [name for name in ("against", "device", "compile") if _is_pair(name, options[name])]
    if len(pairs) > 1:
        raise UsageError(f"--{pairs[0]} and --{pairs[1]} are two pairs", hint="compare one pair at a time")
    apart = _OF_THE_GATE if pairs else ("inputs",)
    wrong = next((name for name in apart if options[name]), None)
    if wrong is None:
        return bool(pairs)
    if pairs:
        wrong = wrong.replace("_", "-")
        raise UsageError(f"--{wrong} is of the gate, --{pairs[0]} compares two ways of answering", hint="use one")
    hint = "pack samples and name them in marpack.yaml, or compare: --against OTHER"
    raise UsageError("--input goes with --against, --device A,B or --compile on,off", hint=hint)


def _is_pair(name: str, value: str | None) -> bool:
    return value is not None and (name == "against" or "," in value)


def pair_of(text: str, option: str) -> tuple[str, str]:
    """Return the two values of an option; raises UsageError unless there are two that differ."""
    values = [value.strip() for value in text.split(",")]
    if len(values) != 2 or not all(values) or values[0] == values[1]:
        raise UsageError("two different values can be compared", where=f"--{option} {text}")
    return values[0], values[1]


def check_options_of(options: Options, *, device: str, compiled: str | None) -> CheckOptions:
    """Return how an archive is to be examined. Raises UsageError for what is no device and no switch."""
    import os
    from pathlib import Path

    from marpack.archive.cache import Cache
    from marpack.gate.candidate import CheckOptions
    from marpack.runner.pool import PoolSettings
    from marpack.runner.session import Device
    from marpack.torchserve.messages import MAX_BODY, Load
    from marpack.torchserve.targets import Target

    if compiled not in (None, "on", "off"):
        raise UsageError("this is neither on nor off", where=f"--compile {compiled}")
    chosen = Device.parse(device)
    folder = os.environ.get("MARPACK_CACHE_DIR")
    return CheckOptions(
        load=Load(
            model_dir="",
            gpu_id=chosen.gpu_id(),
            compile=compiled != "off",
            trust_pickle=options["trust_pickle"],
            max_response_size=options["max_response_size"] or MAX_BODY,
        ),
        settings=PoolSettings(
            timeout=options["timeout"],
            startup_timeout=options["startup_timeout"],
            environment=chosen.environment(),
        ),
        device=chosen,
        max_request_size=options["max_request_size"] or MAX_BODY,
        target=Target(options["target"]) if options["target"] else None,
        limits=chosen_limits(options["max_members"], options["max_size"], options["max_ratio"]),
        seconds_per_check=options["patience"],
        tolerance=options["tolerance"],
        cache=Cache(Path(folder)) if folder else None,
    )
