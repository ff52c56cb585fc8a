"""The checks of the responses: to samples, in batches, in other forms, repeated, compiled, and by another archive."""

import base64
import json
import re
import time
from collections.abc import Collection, Iterator, Mapping
from itertools import chain, cycle, islice
from typing import Any

from msgspec.structs import replace

from marpack import finding_codes as codes
from marpack.archive.sagemaker import has_adapter
from marpack.errors import pluralize
from marpack.findings import Finding, Severity
from marpack.gate.candidate import Candidate, compiles
from marpack.gate.compare import compare, find_shortfalls, median_milliseconds, sum_up, value_of
from marpack.gate.samples import Sample
from marpack.gate.verdicts import CheckOutcome, Variant, Verdict, append_cause, judge, skip
from marpack.protocol.messages import ModelOutput, Trouble
from marpack.runner.results import Result
from marpack.torchserve.http import Part, Request
from marpack.torchserve.labels import LABELS_NAME, parse_labels
from marpack.torchserve.response import PredictionException
from marpack.torchserve.server_modules import BUILT_INS

_NO_RESPONSE = "no sample gets a response to compare with"
_VARYING = "responses vary when a sample is sent again, so they cannot be compared"

_SIZES = 8  # batch sizes up to here are all tried; beyond, only powers of two and the largest
_BATCH_PROBLEMS = 10
_BATCH_BYTES = 128 << 20  # of the inputs of all batches

_FORM_SAMPLES = 3
_FAULTS = {codes.FORM_KILLS.name, codes.FORM_BREAKS.name}  # of the handler's code, even if it refuses other samples
_JSON = "application/json"
_TRACES = {"base64": b"base64", "json": b".loads("}
_PICTURES = {row.name: row.cls for row in BUILT_INS.values() if row.pictures}

_NUMBERED = re.compile(r"(class|label|idx|index)?[ _-]?\d+", re.IGNORECASE)
_ROUNDING = 0.02  # of a sum of probabilities

Named = dict[str, float]  # label → probability


def check_samples(candidate: Candidate) -> CheckOutcome:
    """Send the samples one by one, and compare each response with the expected one."""
    samples, unsent = candidate.samples, candidate.packed.problems
    if not samples and not unsent:
        return skip("the archive has no samples")
    found = {sample.short_name: _judge_sample(candidate, sample) for sample in samples}
    packed = len(candidate.packed.samples)
    counts = {"sample": packed, "input": len(samples) - packed}
    seen = ", ".join(pluralize(count, what) for what, count in counts.items() if count)
    outcome = judge(seen, (*unsent, *chain.from_iterable(found.values())))
    if outcome.verdict is Verdict.FAILED and not unsent:
        first = next(name for name, findings in found.items() if judge("", findings).verdict is Verdict.FAILED)
        return replace(outcome, reason=f"{first}: {outcome.reason}")
    return outcome


def _judge_sample(candidate: Candidate, sample: Sample) -> list[Finding]:
    result = candidate.sample_runner.result_of(sample)
    shortfalls = find_shortfalls(sample.expected, result)
    if shortfalls:
        cause, hint = "", None
        if result.troubles:
            trouble = result.troubles[0]
            cause = f": {trouble.kind}: {trouble.message}"
            hint = find_missing_label(candidate, trouble) or trouble.hint
        where = f"{candidate.source}!{sample.name}" if sample.is_packed else sample.name
        return [codes.SAMPLE_MISSED.at(where, hint=hint, difference=sentence, cause=cause) for sentence in shortfalls]
    # An exception may cause the expected response. A handler states its response with PredictionException.
    return [
        codes.SAMPLE_RAISED.at(
            candidate.line_of(trouble.frames),
            severity=Severity.ERROR if trouble.code_fault else Severity.NOTE,
            hint=trouble.hint,
            sample=sample.short_name,
            error=f"{trouble.kind}: {trouble.message}",
        )
        for trouble in result.troubles
        if trouble.frames and trouble.kind != PredictionException.__name__
    ]


def find_missing_label(candidate: Candidate, trouble: Trouble) -> str | None:
    """Return which label the packed labels lack, if an exception looked up a class that has none."""
    number = trouble.message.strip("'")
    if trouble.kind != "KeyError" or not number.isdecimal() or LABELS_NAME not in candidate.archive.entries:
        return None
    names = parse_labels(candidate.read(LABELS_NAME)).names
    if number in names or not all(name.isdecimal() for name in names):
        return None
    return f'{LABELS_NAME} has no label for class {number}: add "{number}" to it'


def check_batches(candidate: Candidate) -> CheckOutcome:
    """Send batches of each size up to the config's batchSize: each request must get its own response."""
    largest = candidate.batch_size
    if largest == 1:
        return skip("batchSize is 1")
    runner = candidate.sample_runner
    samples = runner.successful
    if not samples:
        return skip(_NO_RESPONSE)
    _ = runner.comparable  # sends each sample again, before any batch
    # As many requests as there is time and memory for.
    weight = max(len(part.value) for sample in samples for part in sample.request.parts)
    requests = min(int(runner.seconds_per_check / max(runner.pace, 1e-6)), _BATCH_BYTES // max(weight, 1))
    wanted = list_sizes(largest)
    tried = affordable(wanted, requests)
    problems: list[Finding] = []
    start = 0
    for size in tried:
        batch = list(islice(cycle(samples), start, start + size))
        start = (start + size) % len(samples)
        results = runner.replay(batch, size=size)
        refused = next((result for result in results if not result.ok), None)
        if refused is not None:
            why = append_cause(refused.troubles)
            problems.append(codes.BATCH_REFUSED.at(size=size, status=refused.status, reason=why))
            break  # larger batches are refused also, and waiting for each may take long
        problems += [
            codes.BATCH_DIFFERS.at(sample=sample.short_name, size=size, difference=sentence)
            for sample, sentence in runner.deviations(batch, results)
        ]
    if problems:
        return judge("", problems[:_BATCH_PROBLEMS])
    seen = f"batches of {tried[0]} to {tried[-1]}" if len(tried) > 1 else f"a batch of {tried[0]}"
    if tried != wanted:
        seen = f"batches of {', '.join(map(str, tried))}; others would take too long (--patience)"
    if not runner.comparable:
        return judge(f"{seen}; responses vary when a sample is sent again, so they were only counted")
    if len({runner.result_of(sample).body for sample in runner.comparable}) == 1:
        return judge(f"{seen}; all samples get one response, so mixed-up rows would go unnoticed")
    return judge(seen)


def list_sizes(largest: int) -> list[int]:
    """Return the batch sizes to try, in order."""
    powers = {1 << bit for bit in range(3, largest.bit_length()) if 1 << bit <= largest}
    return sorted({*range(2, min(largest, _SIZES) + 1), *powers, largest})


def affordable(wanted: list[int], requests: int) -> list[int]:
    """Return the sizes that so many requests are enough for: the largest first, then the small ones; at least one."""
    chosen: list[int] = []
    for size in [wanted[-1], *wanted[:-1]]:
        if sum(chosen) + size <= requests:
            chosen.append(size)
    return sorted(chosen) or wanted[:1]


def check_body_forms(candidate: Candidate) -> CheckOutcome:
    """Send a few samples in every form: raw, a form's field, base64, JSON. Each must get the sample's response.

    A form that the handler refuses is not accepted. That is a problem only if the handler's own code breaks there.
    """
    runner = candidate.sample_runner
    if has_adapter(candidate.archive.manifest.model.handler, candidate.archive.open):
        return skip("SageMaker sends each request as a raw body")
    if not runner.comparable:
        return skip(_VARYING if runner.successful else _NO_RESPONSE)
    bodies = [sample for sample in runner.comparable if [part.name for part in sample.request.parts] == ["body"]]
    if not bodies:
        return skip("the samples are forms already")
    decoded, largest = decodes(candidate), candidate.options.shape.max_request_size
    late = time.monotonic() + runner.seconds_per_check
    tried: dict[str, Finding | None] = {}  # None: accepted
    refused: dict[str, tuple[Finding, str]] = {}  # with the exception's type and line, or the status
    for number, sample in enumerate(bodies[:_FORM_SAMPLES]):
        if number and time.monotonic() > late:
            break
        for name, request in list_forms(sample, decoded):
            is_decided = tried.get(name) is not None
            if is_decided or sum(len(part.value) for part in request.parts) > largest:  # base64 needs more bytes
                continue
            finding, refusal = _try_form(candidate, sample, name, request)
            if finding is not None and refusal:
                refused.setdefault(name, (finding, refusal))
            elif name not in refused or (finding is not None and finding.code in _FAULTS):
                tried[name] = finding
    accepted = [name for name, finding in tried.items() if finding is None and name not in refused]
    refusals = ", ".join(f"{name} ({refusal})" for name, (_, refusal) in refused.items())
    seen = ", ".join(["as a raw body", *accepted]) + (f"; not accepted: {refusals}" if refusals else "")
    return judge(seen, filter(None, (*tried.values(), *(finding for finding, _ in refused.values()))))


def list_forms(sample: Sample, decoded: set[str]) -> Iterator[tuple[str, Request]]:
    """Yield the other forms of a sample by name; those in JSON or base64 only for a handler that decodes them."""
    (part,) = sample.request.parts
    headers = tuple(header for header in sample.request.headers if header[0].lower() != "content-type")

    def form(name: str, field: str, data: bytes, kind: str = "") -> tuple[str, Request]:
        return name, replace(sample.request, parts=(Part(field, data, kind),), headers=headers)

    data, kind = part.value, part.content_type
    is_text, is_json = kind.startswith("text"), kind == _JSON
    yield form("as a form's file", "data", data, kind)
    if is_text or (is_json and "json" in decoded):
        yield form("as a form's field", "data", data)
    if not is_json or "json" in decoded:
        yield form("without a content type", "body", data)
    if is_text:
        yield form("as a JSON string", "body", json.dumps(data.decode("utf-8", "replace")).encode(), _JSON)
    elif not is_json and "base64" in decoded:
        text = base64.b64encode(data)
        yield form("in base64", "body", text, "text/plain")
        yield form("in base64 within JSON", "body", b'{"data": "%b"}' % text, _JSON)


def decodes(candidate: Candidate) -> set[str]:
    """Return which of `base64` and `json` the handler decodes: a built-in handler does so, or its source mentions it.

    Any bytes can be measured, hashed or summed up: a response to them does not show that the handler decodes them.
    """
    handler = candidate.inspection.handler
    sources = candidate.sources.values()
    found = {word for word, trace in _TRACES.items() if any(trace in source for source in sources)}
    if candidate.archive.manifest.model.handler in _PICTURES or any(
        base.rpartition(".")[2] in _PICTURES.values() for base in handler.bases
    ):
        found.add("base64")
    return found


def _try_form(candidate: Candidate, sample: Sample, form: str, request: Request) -> tuple[Finding | None, str]:
    """Return the problem of a form, if it has one, and why the handler refuses it, if it does."""
    runner = candidate.sample_runner
    (result,) = runner.send([(sample.name, request)])
    if result.restarted:
        return codes.FORM_KILLS.at(sample=sample.short_name, form=form, reason=result.troubles[0].message), ""
    broken = next((trouble for trouble in result.troubles if trouble.code_fault), None)
    if broken is not None:  # code that fails for every request
        where, error = candidate.line_of(broken.frames), f"{broken.kind}: {broken.message}"
        code = codes.FORM_BREAKS
        return code.at(where, hint=broken.hint, sample=sample.short_name, form=form, error=error), ""
    if not result.ok:
        trouble = next((trouble for trouble in result.troubles if trouble.frames), None)
        where = candidate.line_of(trouble.frames) if trouble else None
        line = f", {where.rpartition('!')[2]}" if where else ""
        refusal = f"{trouble.kind if trouble else result.status}{line}"
        return codes.FORM_NOT_ACCEPTED.at(where, sample=sample.short_name, form=form, reason=refusal), refusal
    sentences = runner.contradictions(sample, result)
    if not sentences:
        return None, ""
    (part,) = request.parts
    (empty,) = runner.send([(sample.name, replace(request, parts=(Part(part.name, b"", part.content_type),)))])
    if runner.differences(result, empty):
        return codes.FORM_DIFFERS.at(sample=sample.short_name, form=form, difference=sentences[0]), ""
    return codes.FORM_IGNORED.at(sample=sample.short_name, form=form), ""


def check_repetition(candidate: Candidate) -> CheckOutcome:
    """Send the samples again, in reversed order and in order, and count what the other checks noticed."""
    runner = candidate.sample_runner
    if not runner.successful:
        return skip(_NO_RESPONSE)
    again = runner.comparable  # were sent in reversed order
    runner.repeat(again)
    problems = [
        codes.NOT_REPEATABLE.at(sample=name.removeprefix("MAR-INF/"), difference=sentence)
        for name, sentence in runner.unsteady.items()
    ]
    return judge(f"{pluralize(len(again), 'sample')}, each sent three times", problems)


def check_compiled(candidate: Candidate) -> CheckOutcome:
    """Send the samples to a second worker without torch.compile, and compare the responses."""
    if not compiles(candidate.config.get("pt2")):
        return skip("the config does not compile the model")
    runner = candidate.sample_runner
    if not runner.comparable:
        return skip(_VARYING if runner.successful else _NO_RESPONSE)
    with runner.other(compile=False) as eager:
        results = runner.replay(runner.comparable, pool=eager)
    problems = [
        codes.COMPILED_DIFFERS.at(sample=sample.short_name, difference=sentence)
        for sample, sentence in runner.deviations(runner.comparable, results)
    ]
    return judge(f"{pluralize(len(results), 'sample')}, compiled and not", problems)


def check_alike(candidate: Candidate) -> CheckOutcome:
    """Compare each sample's response with the other archive's; at least one of them must be a 2xx."""
    if not candidate.samples:
        return judge("", [codes.NOT_COMPARED.at()])
    others, tolerance = candidate.old_results, candidate.options.tolerance
    results = {sample.name: candidate.sample_runner.result_of(sample) for sample in candidate.samples}
    compared = [
        replace(compare(others[sample.name], results[sample.name], tolerance), input=sample.short_name)
        for sample in candidate.samples
    ]
    sides = _variant(candidate.old, others), _variant(candidate, results)
    comparison = sum_up(sides, compared, tolerance)
    problems = [
        codes.DIFFERS.at(sample=each.input, difference="; ".join(each.differences))
        for each in compared
        if not each.alike
    ]
    if comparison.alike and not comparison.proved:
        problems.append(codes.NOT_COMPARED.at())
    counts = ", ".join(f"{count} {kind}" for kind, count in comparison.counts.items() if count)
    largest = "" if comparison.largest is None else f", largest difference {comparison.largest:.2g}"
    seen = f"{pluralize(len(compared), 'response')} as from {candidate.old.source}: {counts}{largest}"
    return replace(judge(seen, problems), comparison=comparison)


def _variant(candidate: Candidate, results: Mapping[str, Result]) -> Variant:
    loaded = candidate.sample_runner.pool.loads[0]
    return Variant(
        name=candidate.source,
        archive=candidate.source,
        content_digest=candidate.identity.content_digest,
        handler=loaded.handler,
        device=loaded.device,
        milliseconds=median_milliseconds([result.seconds for result in results.values()]),
    )


def check_labels(candidate: Candidate) -> CheckOutcome:
    """Find classes in the responses that the labels do not name, and labels that are not classes."""
    if LABELS_NAME not in candidate.archive.entries:
        return skip("the archive has no labels")
    names = parse_labels(candidate.read(LABELS_NAME)).names
    known = set(map(str, names.values()))
    if not known:
        return skip(f"{LABELS_NAME} has no labels that can be read")
    runner = candidate.sample_runner
    row = BUILT_INS.get(candidate.archive.manifest.model.handler)
    results = [runner.result_of(sample) for sample in runner.samples]
    detects = row is not None and row.detects
    answers = [named for result in results if result.ok for named in find_named(value_of(result), detects=detects)]
    findings: list[Finding] = []
    certain = detects or (row is not None and row.classifies)
    wrong = sorted({name for answer in answers for name in unknown_labels(answer, known, certain=certain)})
    if wrong:
        findings.append(codes.UNKNOWN_LABEL.at(names=", ".join(wrong[:5]), file=LABELS_NAME))
    elif any(_is_distribution(answer) and not answer.keys() & known for answer in answers):
        findings.append(codes.UNUSED_LABELS.at(file=LABELS_NAME))
    # Compare the labels with the width of the model's output, where that is certainly the number of its classes.
    numbers = names.keys()
    if numbers == {str(number) for number in range(len(numbers))}:
        lacking = any(trouble.kind == "labels-gap" for result in results for trouble in result.troubles)
        shares = bool(answers) and all(
            answer.keys() <= known
            and all(0 <= value <= 1 for value in answer.values())
            and sum(answer.values()) <= 1 + _ROUNDING
            for answer in answers
        )
        findings += _compare_with_outputs(len(numbers), runner.pool.outputs, lacking=lacking, shares=shares)
    used = len(known & {name for answer in answers for name in answer})
    if not used and not findings:
        return skip("no response names labels" if answers else "no response is of the form {label: number}")
    return judge(f"{pluralize(len(known), 'label')}, {used} of them in the responses", findings)


def find_named(value: Any, *, detects: bool) -> Iterator[Named]:  # Any: JSON
    """Yield the parts of a response that have the form `{label: number}`; a detector's boxes count as numbers."""
    if detects and isinstance(value, list):
        items = (item for item in value if isinstance(item, dict))
        yield from ({key: 0.0 for key in item if key != "score"} for item in items)
    elif isinstance(value, dict) and value and all(isinstance(number, float) for number in value.values()):
        yield value


def _compare_with_outputs(
    count: int, outputs: Collection[ModelOutput], *, lacking: bool, shares: bool
) -> Iterator[Finding]:
    """Compare the number of labels with the width of the model's output.

    The width is certainly the number of classes where a classifier of the server's took it. With other handlers there
    are too few labels if a response failed because one is missing (`lacking`). There are too many only if every
    response gives shares of a whole to labels alone (`shares`), as no embedding, box or mask does.
    """
    widths = {output.width for output in outputs if output.classes} or {output.width for output in outputs}
    if len(widths) != 1:
        return
    (width,) = widths
    sure = any(output.classes for output in outputs)
    if width < count and (sure or (shares and width > 1)):
        yield codes.IDLE_LABEL.at(outputs=width, labels=count, file=LABELS_NAME)
    if width > count and (sure or lacking):
        yield codes.MISSING_LABEL.at(outputs=width, labels=count, file=LABELS_NAME)


def unknown_labels(answer: Named, known: set[str], *, certain: bool) -> set[str]:
    """Return the names in a response that are not labels but in the place of one.

    `certain`: every name is a class, as in the responses of the built-in classifiers. Another handler may also return
    other numbers; a name is a class if the probabilities add up with it.
    """
    others = answer.keys() - known
    if certain:
        return others
    if len(others) == len(answer):
        return set()
    if not any(map(_NUMBERED.fullmatch, known)) and any(map(_NUMBERED.fullmatch, others)):
        return {name for name in others if _NUMBERED.fullmatch(name)}
    labelled = {name: answer[name] for name in answer.keys() & known}
    return others if _is_distribution(answer) and not _is_distribution(labelled) else set()


def _is_distribution(answer: Named) -> bool:
    values = answer.values()
    return all(0 <= value <= 1 for value in values) and len(answer) > 1 and abs(sum(values) - 1) <= _ROUNDING
