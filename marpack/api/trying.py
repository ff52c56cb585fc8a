"""The commands that load a model, as functions: `check` and `run`, with their options by their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from marpack.api import arguments
from marpack.api.arguments import Name
from marpack.archive.protocol import no_progress
from marpack.errors import UsageError
from marpack.torchserve.http import MAX_BODY

if TYPE_CHECKING:
    from marpack.api.options import Key
    from marpack.api.results import GateReport, RunReport
    from marpack.api.vouching import Attester
    from marpack.findings import Finding
    from marpack.gate.candidate import CheckOptions
    from marpack.project.source import ResolvedSource


def check(
    source: Name | None = None,
    *,
    inputs: Iterable[Any] = (),  # Any: whatever JSON holds
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    seconds_per_check: float = 10.0,
    tolerance: float = 1e-3,
    allow_unproved: Sequence[str] = (),
    require_safe: bool = False,
    trust_native: bool = False,
    hermetic: bool = False,
    stand_ins: Literal["on", "off", "auto"] | None = None,
    content_type: str | None = None,
    headers: Mapping[str, str] | None = None,
    explain: bool = False,
    describe: bool = False,
    envelope: Literal["body", "json", "kserve", "kservev2"] | None = None,
    max_request_size: int = MAX_BODY,
    max_response_size: int = MAX_BODY,
    target: Literal["torchserve", "marpack"] | None = None,
    device: str = "auto",
    compile: bool = True,  # noqa: A002 - the option's name
    timeout: float | None = None,
    startup_timeout: float | None = None,
    env: Literal["current", "isolated"] = "current",
    yes: bool = False,
    trust_pickle: bool = False,
    metrics_config: Name | None = None,
    digest: str | None = None,
    trust_url: bool = False,
    allow_outside: bool = False,
    attest: Name | None = None,
    key: Key | None = None,
    key_password: str | None = None,
    max_members: int | None = None,
    max_size: int | None = None,
    max_ratio: int | None = None,
    max_opcodes: int | None = None,
) -> GateReport:
    """Say whether an archive may be deployed.

    Args:
        source: A .mar, a .tar.gz, a model folder, an address (https, s3, oci) or a project (built first if need
            be); None: the current folder's.
        inputs: What is asked beside the packed samples: of the kinds that `Model.predict` takes.
        only: Run only these checks.
        skip: Leave these checks out.
        seconds_per_check: That each check which repeats samples may take: the command's `--patience`.
        tolerance: Between numbers that agree.
        allow_unproved: "inputs", "gpu": say yes although nothing answered, or nothing on a GPU.
        require_safe: Fail for weights that need trust and for native or generated code.
        trust_native: With `require_safe`: accept native and generated code.
        hermetic: Also fail where the handler touches more than its archive, its packages and what the project allows.
        stand_ins: Whether requests are made up where there are none; None: the project's word.
        content_type: Of the inputs; None: their own.
        headers: The requests' headers.
        explain: Ask for explanations instead of predictions.
        describe: Ask the model to describe itself.
        envelope: The server's setting service_envelope.
        max_request_size: The server's setting of that name, in bytes.
        max_response_size: Likewise.
        target: Whose behaviour counts; None: the project's or the archive's.
        device: "auto", "cpu", "cuda", "cuda:1", "xpu", "xpu:1", "mps" or "xla".
        compile: False leaves torch.compile out, whatever the config says.
        timeout: Seconds for a batch; None: the config's responseTimeout, or 120.
        startup_timeout: Seconds for loading; None: the config's startupTimeout, or 120.
        env: "isolated": with the archive's requirements.
        yes: Confirm a download for it that is over 500 MB or of unknown size.
        trust_pickle: Load weights that may run code of their makers.
        metrics_config: The server's setting of that name; None: the project's.
        digest: "sha256:<hex>" of the file at an address: no other is taken.
        trust_url: Take what lies at an https or s3 address, whatever its digest.
        allow_outside: Let a project pack files from outside its folder.
        attest: A file for an attestation of what was found, for `verify`; the archive must be a file then.
        key: The private key that signs it: a file in PEM form, or its bytes; None: nobody does.
        key_password: Of that key, if it has one.
        max_members: As in `inspect`.
        max_size: Likewise.
        max_ratio: Likewise.
        max_opcodes: Likewise.

    Returns:
        The verdict, and every check with what it found; `deployable` is its yes or no.

    Raises:
        UsageError, ProjectError: the source, an input or an option. What is wrong with the archive is in the report.

    """
    options = arguments.valid(locals())
    from marpack.api import results
    from marpack.gate.candidate import Candidate
    from marpack.gate.check import CheckSelection
    from marpack.gate.check import check as examined
    from marpack.project.schema import HERMETIC

    choice = CheckSelection.of(options["only"], options["skip"], (HERMETIC,) if hermetic else ())
    chosen = _check_options(options)
    attester = _attester(options)
    with Candidate(_found(options, chosen, attester), chosen) as candidate:
        report = results.GateReport.of(examined(candidate, choice))
    attester.write(report)
    return report


def _found(options: arguments.Options, chosen: CheckOptions, attester: Attester) -> ResolvedSource:
    from marpack.project.source import resolve

    source_options = {name: options[name] for name in ("digest", "trust_url", "allow_outside")}
    found = resolve(options["source"], cache=chosen.cache, maximum=chosen.limits.total, **source_options)
    attester.look_at(found.path, no_progress)
    return found


def _check_options(options: arguments.Options) -> CheckOptions:
    from msgspec.structs import replace

    from marpack.api import requests, settings
    from marpack.gate.candidate import held_inputs

    shape = requests.shape_of(options)
    chosen = settings.check_options(
        options,
        device=options["device"],
        compiled=options["compile"],
        shape=requests.packed(shape),
        cache=settings.cache_of(),
    )
    return replace(chosen, inputs=held_inputs(requests.asked_of(options["inputs"], shape)))


def _attester(options: arguments.Options) -> Attester:
    from marpack.api.vouching import Attester, private_key

    key = None if options["key"] is None else private_key(options["key"], options["key_password"])[0]
    return Attester(options["attest"], key, option="attest", isolated=options["env"] == "isolated")


def run(
    source: Name | None = None,
    inputs: Iterable[Any] = (),  # Any: whatever JSON holds
    *,
    batch_size: int = 1,
    workers: int = 1,
    content_type: str | None = None,
    headers: Mapping[str, str] | None = None,
    explain: bool = False,
    describe: bool = False,
    envelope: Literal["body", "json", "kserve", "kservev2"] | None = None,
    max_request_size: int = MAX_BODY,
    max_response_size: int = MAX_BODY,
    timeout: float | None = None,
    startup_timeout: float | None = None,
    max_memory: int | None = None,
    fail_fast: bool = False,
    target: Literal["torchserve", "marpack"] | None = None,
    device: str = "auto",
    env: Literal["current", "isolated"] = "current",
    yes: bool = False,
    compile: bool = True,  # noqa: A002 - the option's name
    trust_pickle: bool = False,
    metrics_config: Name | None = None,
    digest: str | None = None,
    trust_url: bool = False,
    allow_outside: bool = False,
    trace: bool = False,
) -> RunReport:
    """Answer all inputs as the server would, and return every answer with what they add up to, held in memory.

    For more answers than memory holds, `load` the model: `predict_many` gives one after the other.

    Args:
        source: A .mar, a .tar.gz, a model folder, an address (https, s3, oci) or a project (built first if need
            be); None: the current folder's.
        inputs: Of the kinds that `Model.predict` takes.
        batch_size: Requests per call of the handler.
        workers: Processes that share the inputs.
        content_type: Of the inputs; None: their own.
        headers: The requests' headers.
        explain: Ask for explanations instead of predictions.
        describe: Ask the model to describe itself.
        envelope: The server's setting service_envelope.
        max_request_size: The server's setting of that name, in bytes.
        max_response_size: Likewise.
        timeout: Seconds for a batch; None: the config's responseTimeout, or 120.
        startup_timeout: Seconds for loading; None: the config's startupTimeout, or 120.
        max_memory: Bytes of data that a worker may have; None: no bound.
        fail_fast: Stop at the first input that falls short.
        target: Whose behaviour is shown; None: the project's or the archive's.
        device: "auto", "cpu", "cuda", "cuda:1", "xpu", "xpu:1", "mps" or "xla".
        env: "isolated": with the archive's requirements.
        yes: Confirm a download for it that is over 500 MB or of unknown size.
        compile: False leaves torch.compile out, whatever the config says.
        trust_pickle: Load weights that may run code of their makers.
        metrics_config: The server's setting of that name; None: the project's.
        digest: "sha256:<hex>" of the file at an address: no other is taken.
        trust_url: Take what lies at an https or s3 address, whatever its digest.
        allow_outside: Let a project pack files from outside its folder.
        trace: Tell in `hermetic` and `touched` what the handler touches outside of its archive.

    Raises:
        UsageError, ProjectError, ArchiveError: the source, an input or an option.
        LoadError: the handler could not be imported, constructed or initialised.

    """
    options = arguments.valid(locals())
    from marpack.api import requests, settings
    from marpack.api.answering import report_of

    given = iter(requests.asked_of(inputs, requests.shape_of(options)))
    first = next(given, None)
    if first is None:
        raise UsageError("there is nothing to answer", where="inputs", hint="name some: marpack.run(source, [x])")
    findings: list[Finding] = []
    with settings.session_of(options, findings.extend) as session:
        return report_of(session, chain([first], given), findings, batch_size=batch_size, fail_fast=fail_fast)
