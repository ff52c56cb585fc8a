"""Requests were answered: every one as expected, one at least with a 2xx, alone and in a batch."""

import shlex
from collections.abc import Iterator

from msgspec.structs import replace

from marpack.errors import MarpackError
from marpack.findings import Finding, Severity
from marpack.gate.candidate import Candidate
from marpack.gate.expectations import status_shortfalls
from marpack.gate.verdicts import CheckOutcome, counted, error_problem, judged, problem

_CODES = {"no-inputs": "inputs", "no-answer": "inputs", "gpu-unproved": "gpu"}  # by what --allow-unproved calls them


def run(candidate: Candidate) -> CheckOutcome:
    """Count what was answered; a lack that --allow-unproved names becomes a note, which stands beside the verdict."""
    found = [*_lacking(candidate), *_unbatched(candidate), *_off_gpu(candidate)]
    allowed = candidate.options.allow_unproved
    findings = [_waived(finding) if _CODES.get(finding.code) in allowed else finding for finding in found]
    answered = candidate.sample_runner.answered
    seen = [f"{counted(len(answered), 'request')} answered with a 2xx"]
    if answered and candidate.batch_size > 1:
        seen.append("a batch of 2, too")
    differing = _on_cpu(candidate)
    if differing is not None:
        seen.append(f"compared with the CPU, tolerance {candidate.options.tolerance:g}")
    return judged((*findings, *(differing or ()), *_made_up(candidate)), ", ".join(seen))


def _waived(finding: Finding) -> Finding:
    message = f"{finding.message} (--allow-unproved {_CODES[finding.code]})"
    return replace(finding, code="allowed-unproved", severity=Severity.NOTE, message=message, hint=None)


def _lacking(candidate: Candidate) -> Iterator[Finding]:
    sample_runner, unsent = candidate.sample_runner, len(candidate.packed.problems)
    missed = [
        sample
        for sample in sample_runner.samples
        if any(status_shortfalls(sample.expected.status, sample_runner.alone(sample)))
    ]
    total = len(sample_runner.samples) + unsent
    name = shlex.quote(str(candidate.resolved.project.folder if candidate.resolved.project else candidate.source))
    ask = f"marpack check {name} --input FILE; or marpack run {name} --input FILE --record, which keeps it as a sample"
    if not total:
        yield problem("no-inputs", "nothing was asked of it", hint=ask)
    elif missed or unsent:
        message = f"{len(missed) + unsent} of {counted(total, 'request')} did not get the status expected"
        yield problem("unexpected-status", message, hint="marpack check --only samples tells which, and why")
    elif not sample_runner.answered:
        yield problem("no-answer", "no request got a 2xx, as none was to", hint=ask)


def _unbatched(candidate: Candidate) -> Iterator[Finding]:
    """Send one batch of two; the check of batches tries more, and compares."""
    sample_runner = candidate.sample_runner
    if candidate.batch_size == 1 or not sample_runner.answered:
        return
    pair = sample_runner.answered[:2]
    refused = next((each for each in sample_runner.ask(pair * (3 - len(pair)), size=2) if not each.ok), None)
    if refused is not None:
        why = f": {refused.troubles[0].message}" if refused.troubles else ""
        yield problem("batch-unproved", f"a batch of 2 is answered with {refused.status}{why}")
    elif len(pair) == 1:
        message = "with one input in every row, mixed-up rows would go unseen"
        yield Finding(code="one-input", severity=Severity.NOTE, message=message)


def _off_gpu(candidate: Candidate) -> Iterator[Finding]:
    wanted = str(candidate.config.get("deviceType", "")).lower() == "gpu"
    if wanted and candidate.options.load.gpu_id is None:
        message = "deviceType is gpu, and it was asked on the CPU"
        yield problem("gpu-unproved", message, hint="check it where there is a GPU")


def _on_cpu(candidate: Candidate) -> list[Finding] | None:
    """Return where the CPU answers otherwise than a GPU did; None where there is no GPU, or the model needs it."""
    sample_runner = candidate.sample_runner
    loaded = sample_runner.loaded
    if loaded is None or loaded.device in (None, "cpu") or not sample_runner.answered:
        return None
    try:
        with sample_runner.other(gpu_id=None) as on_cpu:
            results = sample_runner.ask(sample_runner.comparable, pool=on_cpu)
    except MarpackError:
        return None
    return [
        Finding(
            code="cpu-differs",
            severity=Severity.WARNING,
            message=f"{sample.short_name} on the CPU: {sentence}, tolerance {candidate.options.tolerance:g}",
        )
        for sample, result in zip(sample_runner.comparable, results, strict=True)
        for sentence in sample_runner.contradictions(sample, result)[:1]
    ]


def _made_up(candidate: Candidate) -> Iterator[Finding]:
    """Where nobody gave anything to ask, show what made-up requests come to."""
    if candidate.samples or candidate.packed.problems or candidate.stand_ins is False:
        return
    from marpack.gate.stand_ins import send, stand_ins, withheld  # noqa: PLC0415 - few archives need any

    why = withheld(candidate) if candidate.stand_ins is None else None
    if why is not None:
        message = f"no requests were made up for it: {why}"
        yield Finding(code="no-stand-in", severity=Severity.NOTE, message=message, hint="--stand-ins on sends some")
        return
    inputs = stand_ins(candidate)
    names = " and ".join(each.name for each in inputs)
    candidate.options.announce(f"nothing was given to ask it, so {names} will be made up (--stand-ins off sends none)")
    try:
        yield from send(candidate, inputs)
    except MarpackError as error:
        yield replace(error_problem(error), severity=Severity.WARNING)
