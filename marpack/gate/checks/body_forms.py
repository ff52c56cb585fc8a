"""One content in several forms (raw, a form's field, base64, JSON) gets one answer, where the handler takes them."""

import base64
import json
import time
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from marpack.findings import Finding, Severity
from marpack.gate.candidate import Candidate
from marpack.gate.sample_runner import Sample, SampleRunner
from marpack.gate.verdicts import CheckOutcome, judged, problem, skipped
from marpack.torchserve.messages import Part, Request
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
    """Send a few samples in every form; one that is refused is not taken, one that is answered otherwise is wrong."""
    sample_runner = candidate.sample_runner
    if not sample_runner.answered:
        return skipped("there is no sample with an answer to compare")
    if not sample_runner.comparable:
        return skipped("answers are not the same twice, so they cannot be compared")
    bodies = [sample for sample in sample_runner.comparable if [part.name for part in sample.request.parts] == ["body"]]
    if not bodies:
        return skipped("what was sent are forms already")
    decoded = decodes(candidate)
    findings: list[Finding] = []
    taken: dict[str, bool] = {}
    late = time.monotonic() + sample_runner.seconds_per_check
    for sample in bodies[:_SAMPLES]:
        if taken and time.monotonic() > late:
            break
        for form in forms(sample, decoded):
            if taken.get(form.name, True) and form.size <= candidate.options.shape.max_request_size:
                found = _judged(sample_runner, sample, form)
                findings += found or ()
                taken[form.name] = found == []
    return judged(
        tuple(findings), ", ".join(["as a raw body", *(name for name, is_taken in taken.items() if is_taken)])
    )


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


def _judged(sample_runner: SampleRunner, sample: Sample, form: BodyVariant) -> list[Finding] | None:
    """Return what is wrong with the answer to a form; None if the handler does not take it."""
    (result,) = sample_runner.send([(sample.name, form.request)])
    place = f"{sample.short_name} {form.name}"
    if result.restarted:
        return [problem("form-kills", f"{place}: {result.troubles[0].message}", hint=_HINT)]
    if not result.ok:
        return None
    sentences = sample_runner.contradictions(sample, result)[:1]
    if sentences and not sample_runner.differences(result, sample_runner.send([(sample.name, form.empty)])[0]):
        message = f"{place} is answered as if nothing had been sent"
        return [Finding(code="form-ignored", severity=Severity.WARNING, message=message, hint=_HINT)]
    return [problem("form-differs", f"{place}: {sentence}", hint=_HINT) for sentence in sentences]
