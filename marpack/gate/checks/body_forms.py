"""One content, sent as a raw body, as a form's file and in base64, gets one answer where the handler takes the form."""

import base64
from collections.abc import Iterator

from marpack.findings import Finding
from marpack.gate.comparing import differences
from marpack.gate.subject import Sample, Subject
from marpack.gate.verdicts import Outcome, failed, passed, problem, skipped
from marpack.runtime.messages import Part, Request

_SAMPLES = 3


def run(subject: Subject) -> Outcome:
    """Send a few samples in every form; one that is refused is not taken, one that is answered otherwise is wrong."""
    steady = [sample for sample in subject.answered if subject.is_steady(sample)][:_SAMPLES]
    if not steady:
        return skipped("there is no sample with an answer to compare")
    problems: list[Finding] = []
    taken: set[str] = set()
    for sample in steady:
        for form, request in forms(sample):
            (result,) = subject.send([(sample.name, request)])
            if result.ok:
                taken.add(form)
                problems += _judged(sample, form, differences(subject.alone(sample), result))
    if problems:
        return failed(*problems)
    return passed(f"as a raw body{''.join(f', {form}' for form in sorted(taken))}")


def forms(sample: Sample) -> Iterator[tuple[str, Request]]:
    """Yield the other forms of a sample's request, each with its name."""
    (part,) = sample.request.parts
    yield "as a form's field", Request(id="form", parts=(Part("data", part.value, part.content_type),))
    yield "without a content type", Request(id="untyped", parts=(Part("body", part.value),))
    if not part.content_type.startswith(("text/", "application/json")):
        encoded = base64.b64encode(part.value)
        yield "in base64", Request(id="base64", parts=(Part("body", encoded, "text/plain"),))


def _judged(sample: Sample, form: str, sentences: list[str]) -> list[Finding]:
    hint = "decode bytes, text and form fields alike in preprocess, or refuse what the handler does not take"
    return [problem("form-differs", f"{sample.name} {form}: {sentence}", hint=hint) for sentence in sentences[:1]]
