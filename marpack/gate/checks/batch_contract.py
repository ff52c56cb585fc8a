"""A batch is answered with a list of its length, each answer as its request gets it alone."""

from itertools import cycle, islice

from marpack.findings import Finding
from marpack.gate.comparing import differences
from marpack.gate.subject import Sample, Subject
from marpack.gate.verdicts import Outcome, failed, passed, problem, skipped

_EVERY = 8  # sizes up to here are all tried; beyond, only powers of two and the last


def run(subject: Subject) -> Outcome:
    """Send batches of each size up to the config's batchSize."""
    largest = subject.config.get("batchSize", 1)
    if not isinstance(largest, int) or largest <= 1:
        return skipped("batchSize is 1")
    if not subject.answered:
        return skipped("there is no sample with an answer to compare")
    problems: list[Finding] = []
    tried = sizes(largest)
    for size in tried:
        batch = list(islice(cycle(subject.answered), size))
        problems += _judged(subject, batch, size)
    return failed(*problems[:10]) if problems else passed(f"batches of {tried[0]} to {tried[-1]}")


def sizes(largest: int) -> list[int]:
    """Return the batch sizes to try, in order."""
    powers = {1 << bit for bit in range(3, largest.bit_length()) if 1 << bit <= largest}
    return sorted({*range(2, min(largest, _EVERY) + 1), *powers, largest})


def _judged(subject: Subject, batch: list[Sample], size: int) -> list[Finding]:
    results = subject.ask(batch, size=size)
    if not all(result.ok for result in results):
        trouble = results[0].troubles[0] if results[0].troubles else None
        message = f"a batch of {size} is answered with {results[0].status}"
        return [problem("batch-refused", f"{message}: {trouble.message}" if trouble else message, hint=_HINT)]
    return [
        problem("batch-differs", f"{sample.name} in a batch of {size}: {sentence}", hint=_HINT)
        for sample, result in zip(batch, results, strict=True)
        if subject.is_steady(sample)
        for sentence in differences(subject.alone(sample), result)[:1]
    ]


_HINT = "handle every row of `data` by itself, or set batchSize: 1"
