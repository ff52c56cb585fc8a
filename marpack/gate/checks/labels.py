"""The labels that answers name are those packed with the archive, and as many as the model has outputs."""

import re
from collections.abc import Collection, Iterator
from typing import Any

from marpack.findings import Finding, Severity
from marpack.gate.candidate import Candidate
from marpack.gate.compare import value_of
from marpack.gate.verdicts import CheckOutcome, judged, problem, skipped
from marpack.protocol.messages import ModelOutput
from marpack.torchserve.labels import LABELS_NAME, parse_labels
from marpack.torchserve.stock import BUILT_INS

_NUMBERED = re.compile(r"(class|label|idx|index)?[ _-]?\d+", re.IGNORECASE)
_ROUNDING = 0.02  # of a sum of probabilities
_COUNTS = f"the model has {{}} outputs, {LABELS_NAME} names {{}}"
_HINT = "give the labels in the order of the model's outputs, one each"

Answer = dict[str, float]  # label → probability


def run(candidate: Candidate) -> CheckOutcome:
    """Look for classes in the answers that the labels do not name, and for labels that are no class."""
    if LABELS_NAME not in candidate.archive.entries:
        return skipped("the archive has no labels")
    data = candidate.read(LABELS_NAME)
    known = known_labels(data)
    if not known:
        return skipped(f"{LABELS_NAME} holds none that can be read")
    sample_runner = candidate.sample_runner
    built_in = candidate.archive.manifest.model.handler
    answers = [
        named
        for sample in sample_runner.answered
        for named in named_in(value_of(sample_runner.alone(sample)), built_in)
    ]
    troubles = (trouble for sample in sample_runner.samples for trouble in sample_runner.alone(sample).troubles)
    lacking = any(trouble.kind == "labels-gap" for trouble in troubles)
    shares = _are_shares(answers, known)
    counted = _against_outputs(class_count(data), sample_runner.pool.outputs, lacking=lacking, shares=shares)
    findings = (*_judged(answers, known, built_in), *counted)
    used = len(known & {name for answer in answers for name in answer})
    if not used and not findings:
        return skipped("no answer names labels" if answers else "no answer is of the form {label: number}")
    return judged(findings, f"{len(known)} labels, {used} of them in the answers")


def known_labels(data: bytes) -> set[str]:
    """Return the labels that a file holds; none if it is not of a form that the server reads (contract §6)."""
    return set(map(str, parse_labels(data).names.values()))


def class_count(data: bytes) -> int | None:
    """Return how many classes a labels file numbers, from 0 on and without gaps; None: its numbers are others."""
    numbers = parse_labels(data).names.keys()
    return len(numbers) if numbers == {str(number) for number in range(len(numbers))} else None


def named_in(value: Any, handler: str) -> Iterator[Answer]:  # Any: JSON
    """Yield the parts of an answer that have the form `{label: number}`; a detector's boxes stand for numbers."""
    row = BUILT_INS.get(handler)
    if row and row.detects and isinstance(value, list):
        items = (item for item in value if isinstance(item, dict))
        yield from ({key: 0.0 for key in item if key != "score"} for item in items)
    elif isinstance(value, dict) and value and all(isinstance(number, float) for number in value.values()):
        yield value


def _judged(answers: list[Answer], known: set[str], handler: str) -> Iterator[Finding]:
    row = BUILT_INS.get(handler)
    certain = row is not None and (row.classifies or row.detects)
    wrong = sorted({name for answer in answers for name in unknown_labels(answer, known, certain=certain)})
    if wrong:
        names = ", ".join(wrong[:5])
        yield problem("unknown-label", f"answers name {names}, which {LABELS_NAME} does not hold", hint=_HINT)
    elif any(_is_distribution(answer) and not answer.keys() & known for answer in answers):
        message = f"answers name classes, and none of them by a label of {LABELS_NAME}"
        yield Finding(code="unused-labels", severity=Severity.WARNING, message=message, hint=_HINT)


def _against_outputs(
    count: int | None, outputs: Collection[ModelOutput], *, lacking: bool, shares: bool
) -> Iterator[Finding]:
    """Compare the labels with the width of the model's output, where that is certainly the number of its classes.

    It is where a classifier of the server's took it. With other handlers labels are too few where an answer failed for
    want of one (`lacking`), and too many only where every answer gives shares of a whole to labels alone (`shares`),
    as none does that comes of an embedding, a box or a mask.
    """
    widths = {output.width for output in outputs if output.classes} or {output.width for output in outputs}
    if count is None or len(widths) != 1:
        return
    (width,) = widths
    sure = any(output.classes for output in outputs)
    if width < count and (sure or (shares and width > 1)):
        yield problem("idle-label", _COUNTS.format(width, count), hint=_HINT)
    if width > count and (sure or lacking):
        yield problem("missing-label", _COUNTS.format(width, count), hint=_HINT)


def _are_shares(answers: list[Answer], known: set[str]) -> bool:
    return bool(answers) and all(
        answer.keys() <= known
        and all(0 <= value <= 1 for value in answer.values())
        and sum(answer.values()) <= 1 + _ROUNDING
        for answer in answers
    )


def unknown_labels(answer: Answer, known: set[str], *, certain: bool) -> set[str]:
    """Return the names in an answer that stand where a label should.

    Args:
        answer: Names with their numbers.
        known: The labels.
        certain: Whether every name is a class, as in the answers of the built-in classifiers. Another handler's answer
            may hold other numbers beside its classes; a class is what makes the probabilities add up.
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


def _is_distribution(answer: Answer) -> bool:
    values = answer.values()
    return all(0 <= value <= 1 for value in values) and len(answer) > 1 and abs(sum(values) - 1) <= _ROUNDING
