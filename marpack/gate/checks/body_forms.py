"""One content in several forms (raw, a form's field, base64, JSON) gets one answer, where the handler takes them."""

import base64
import json
import time
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from marpack.findings import Finding, Severity
from marpack.gate.candidate import Candidate
from marpack.gate.sample_runner import Sample, SampleRunner
from marpack.gate.verdicts import CheckOutcome, judged, problem, skipped
from marpack.runner.results import Result
from marpack.torchserve.http import Part, Request
from marpack.torchserve.stock import BUILT_INS

_SAMPLES = 3
_JSON = "application/json"
_TRACES = {"base64": b"base64", "json": b".loads("}
_PICTURES = {row.name: row.cls for row in BUILT_INS.values() if row.pictures}
_HINT = "decode bytes, text and form fields alike in preprocess, or refuse what the handler does not take"


class BodyVariant(Struct, frozen=True):
    """Another form of a sample's request, and the same with nothing in it."""

    name: str
    request: Request
    empty: Request

    @property
    def size(self) -> int:
        """Bytes to be sent, about: base64 may take more than the server does."""
        return sum(len(part.value) for part in self.request.parts)


def run(candidate: Candidate) -> CheckOutcome:
    """Send a few samples in every form.

    A form that the handler refuses is not accepted, which is not a fault unless the handler's own code is broken there.
    """
    sample_runner = candidate.sample_runner
    if not sample_runner.answered:
        return skipped("there is no sample with an answer to compare")
    if not sample_runner.comparable:
        return skipped("answers are not the same twice, so they cannot be compared")
    bodies = [sample for sample in sample_runner.comparable if [part.name for part in sample.request.parts] == ["body"]]
    if not bodies:
        return skipped("what was sent are forms already")
    findings: dict[str, list[Finding]] = {}  # form → its problems; empty for an accepted form
    refused: dict[str, Finding] = {}  # form → the reason why it is not accepted
    for sample, form in _tried(candidate, bodies[:_SAMPLES]):
        if findings.get(form.name):
            continue
        (result,) = sample_runner.send([(sample.name, form.request)])
        place = f"{sample.short_name} {form.name}"
        findings[form.name] = _faults(candidate, place, result)
        if findings[form.name]:
            continue
        if not result.ok:
            refused.setdefault(form.name, _not_accepted(candidate, place, result))
        elif form.name not in refused:
            findings[form.name] = _differences(sample_runner, sample, form, result)
    found = [*(each for several in findings.values() for each in several), *refused.values()]
    accepted = [name for name, wrong in findings.items() if not wrong and name not in refused]
    return judged(tuple(found), f"{', '.join(['as a raw body', *accepted])}{_listed(refused)}")


def _tried(candidate: Candidate, samples: Sequence[Sample]) -> Iterator[tuple[Sample, BodyVariant]]:
    """Yield samples with their other forms: all of the first sample's, and those of more while there is time."""
    decoded, largest = decodes(candidate), candidate.options.shape.max_request_size
    late = time.monotonic() + candidate.sample_runner.seconds_per_check
    for number, sample in enumerate(samples):
        if number and time.monotonic() > late:
            return
        yield from ((sample, form) for form in forms(sample, decoded) if form.size <= largest)


def _listed(refused: dict[str, Finding]) -> str:
    """Return the forms that are not accepted, each with the reason, as the end of a sentence."""
    reasons = (f"{name} ({finding.message.partition(' is not accepted: ')[2]})" for name, finding in refused.items())
    return f"; not accepted: {', '.join(reasons)}" if refused else ""


def forms(sample: Sample, decoded: set[str]) -> Iterator[BodyVariant]:
    """Yield the other forms of a sample; those in JSON or base64 only for a handler that decodes them."""
    (part,) = sample.request.parts
    data, kind = part.value, part.content_type
    is_text, is_json = kind.startswith("text"), kind == _JSON
    yield _form("as a form's file", sample, "data", data, kind)
    if is_text or (is_json and "json" in decoded):
        yield _form("as a form's field", sample, "data", data)
    if not is_json or "json" in decoded:
        yield _form("without a content type", sample, "body", data)
    if is_text:
        yield _form("as a JSON string", sample, "body", json.dumps(data.decode("utf-8", "replace")).encode(), _JSON)
    elif not is_json and "base64" in decoded:
        text = base64.b64encode(data)
        yield _form("in base64", sample, "body", text, "text/plain")
        yield _form("in base64 within JSON", sample, "body", b'{"data": "%b"}' % text, _JSON)


def _form(name: str, sample: Sample, field: str, data: bytes, kind: str = "") -> BodyVariant:
    headers = tuple(header for header in sample.request.headers if header[0].lower() != "content-type")
    request = replace(sample.request, parts=(Part(field, data, kind),), headers=headers)
    return BodyVariant(name, request, replace(request, parts=(Part(field, b"", kind),)))


def decodes(candidate: Candidate) -> set[str]:
    """Return which of `base64` and `json` the handler decodes itself: a built-in does so, or its source speaks of it.

    Any bytes can be measured, hashed or summed up; that a handler answers them does not say that it takes them.
    """
    handler = candidate.inspection.handler
    sources = candidate.sources.values()
    found = {word for word, trace in _TRACES.items() if any(trace in source for source in sources)}
    if candidate.archive.manifest.model.handler in _PICTURES or any(
        base.rpartition(".")[2] in _PICTURES.values() for base in handler.bases
    ):
        found.add("base64")
    return found


def _faults(candidate: Candidate, place: str, result: Result) -> list[Finding]:
    """Return the finding for a form that kills the worker, or that reaches code which fails for every request."""
    if result.restarted:
        return [problem("form-kills", f"{place}: {result.troubles[0].message}", hint=_HINT)]
    trouble = next((trouble for trouble in result.troubles if trouble.code_fault), None)
    if trouble is None:
        return []
    where = candidate.line_of(trouble.frames)
    return [problem("form-breaks", f"{place}: {trouble.kind}: {trouble.message}", where=where, hint=trouble.hint)]


def _not_accepted(candidate: Candidate, place: str, result: Result) -> Finding:
    """Return the note on a form that the handler refuses: the exception's type and line, else the status."""
    trouble = next((trouble for trouble in result.troubles if trouble.frames), None)
    where = candidate.line_of(trouble.frames) if trouble else None
    line = f", {where.rpartition('!')[2]}" if where else ""
    message = f"{place} is not accepted: {trouble.kind if trouble else result.status}{line}"
    return Finding(code="form-not-accepted", severity=Severity.NOTE, message=message, where=where)


def _differences(sample_runner: SampleRunner, sample: Sample, form: BodyVariant, result: Result) -> list[Finding]:
    """Return where the answer to a form is not the one that the sample gets."""
    place = f"{sample.short_name} {form.name}"
    sentences = sample_runner.contradictions(sample, result)[:1]
    if sentences and not sample_runner.differences(result, sample_runner.send([(sample.name, form.empty)])[0]):
        message = f"{place} is answered as if nothing had been sent"
        return [Finding(code="form-ignored", severity=Severity.WARNING, message=message, hint=_HINT)]
    return [problem("form-differs", f"{place}: {sentence}", hint=_HINT) for sentence in sentences]
