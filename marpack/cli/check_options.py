"""The options of `marpack check`, in the groups that `--help` shows, and which of them go together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from marpack.cli.options import percent, seconds, tolerance
from marpack.cli.run_options import (
    ALLOW_OUTSIDE,
    ASKING,
    DIGEST,
    TARGETS,
    TRUST_URL,
    YES,
    asks,
    check_apart,
    grouped,
    option,
    spelt,
)
from marpack.errors import UsageError

if TYPE_CHECKING:
    from marpack.cli.options import Options

_GROUPS = {
    "Checks": (
        option("--only", multiple=True, metavar="CHECK", help="Run only this check (several times: these)."),
        option("--skip", multiple=True, metavar="CHECK", help="Leave this check out."),
        option("--patience", "seconds_per_check", type=seconds, default=10.0, metavar="SECONDS", help=(
            "For each check that repeats samples [10]."
        )),
        option("--tolerance", type=tolerance, default=1e-3, metavar="NUMBER", help=(
            "Between numbers that agree [0.001]."
        )),
        option("--allow-unproved", multiple=True, type=click.Choice(["inputs", "gpu"]), help=(
            "Deploy although nothing answered, or nothing on a GPU; the verdict says so."
        )),
        option("--require-safe", is_flag=True, help=(
            "Fail for weights that need trust and for native or generated code."
        )),
        option("--trust-native", is_flag=True, help="With --require-safe: accept native and generated code."),
        option("--hermetic", is_flag=True, help=(
            "Also fail where the handler touches more than its archive, its packages and what the project allows."
        )),
        option("--stand-ins", type=click.Choice(["on", "off", "auto"]), help=(
            "Make requests up where there are none, to show what fails [the project's]."
        )),
    ),
    **ASKING,
    "Model": (
        option("--target", type=TARGETS, help="Whose behaviour counts [the project's]."),
        option("--device", default="auto", metavar="DEVICE", help="auto, cpu, cuda, cuda:N, xpu:N, mps, xla [auto]."),
        option("--compile", metavar="on|off", help="off leaves torch.compile out, whatever the config says [on]."),
        option("--timeout", type=seconds, metavar="SECONDS", help=(
            "For a batch [the config's responseTimeout, or 120]."
        )),
        option("--startup-timeout", type=seconds, metavar="SECONDS", help=(
            "For loading [the config's startupTimeout, or 120]."
        )),
        option("--env", type=click.Choice(["current", "isolated"]), default="current", help=(
            "isolated: with the archive's requirements [current]."
        )),
        option("--yes", is_flag=True, help=YES),
        option("--trust-pickle", is_flag=True, help="Load weights that may run code of their makers."),
        option("--metrics-config", metavar="FILE", help="The server's setting of that name [the project's]."),
        TRUST_URL,
        ALLOW_OUTSIDE,
        DIGEST,
    ),
    "Two ways of answering, compared": (
        option("--against", metavar="OTHER", help="Another SOURCE; or give two: --device cpu,cuda, --compile on,off."),
        option("--slower", type=percent, metavar="N%", help=(
            "With --against: every check, then fail where answers differ or a request costs over N% more than by OTHER."
        )),
        option("--slower-time", type=seconds, metavar="SECONDS", help="To find out which of the two is slower [90]."),
    ),
    "Results": (
        option("--json", "as_json", is_flag=True, help="The verdict as JSON on stdout."),
        option("--report", metavar="FILE", help="Also write it as an HTML page."),
        option("--junit", metavar="FILE", help="Also write it as JUnit XML."),
        option("--sarif", metavar="FILE", help="Also write the findings as SARIF."),
        option("--attest", metavar="FILE", help="Also write who found what of which file, for marpack verify."),
        option("--key", metavar="PRIVATE", help="Sign the attestation with this key, as PEM: a file, or env:NAME."),
    ),
}  # fmt: skip

_OF_THE_GATE = (
    *("only", "skip", "allow_unproved", "hermetic", "stand_ins", "junit", "sarif", "report", "attest", "key", "digest"),
    *("require_safe", "trust_native"),
    *("max_members", "max_size", "max_ratio", "max_opcodes"),
)
_OF_INPUTS = ("kind", "content_type", "explain", "describe")

gate_options = grouped(_GROUPS)


def is_across(options: Options) -> bool:
    """Say whether two ways of answering are to be compared.

    Raises UsageError where more than one pair is named, and for options that only one of the two uses has.
    """
    pairs = [name for name in ("device", "compile") if "," in (options[name] or "")]
    pairs[:0] = ["against"] if options["against"] is not None else []
    if options["against"] is None or options["slower"] is None:
        lone = next((name for name in ("slower", "slower_time") if options[name] is not None), None)
        if lone is not None:
            lone = lone.replace("_", "-")
            raise UsageError(f"--{lone} is of the cost beside another archive", hint="add --against OTHER --slower N%")
    if len(pairs) > 1:
        raise UsageError(f"--{pairs[0]} and --{pairs[1]} are two pairs", hint="compare one pair at a time")
    wrong = next((name for name in _OF_THE_GATE if options[name]), None)
    compared = bool(pairs) and options["slower"] is None
    if compared and wrong is not None:
        wrong = wrong.replace("_", "-")
        raise UsageError(f"--{wrong} is of the gate, --{pairs[0]} compares two ways of answering", hint="use one")
    check_apart(options)
    stray = None if asks(options) else next((name for name in _OF_INPUTS if options[name]), None)
    if stray is not None:
        hint = "name some: --input FILE…; packed samples are sent as they were kept"
        raise UsageError(f"{spelt(stray, options)} is of inputs, and there are none", hint=hint)
    return compared
