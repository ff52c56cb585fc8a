"""A batch is answered with a list of its length, each answer as its request gets it alone."""

from itertools import cycle, islice

from marpack.findings import Finding
from marpack.gate.candidate import Candidate
from marpack.gate.sample_runner import Sample, SampleRunner
from marpack.gate.verdicts import CheckOutcome, failed, passed, problem, skipped

_EVERY = 8  # sizes up to here are all tried; beyond, only powers of two and the last
_MAX_COUNT = 10  # problems told
_BYTES = 128 << 20  # of the inputs of all batches
_HINT = "handle every row of `data` by itself, or set batchSize: 1"


def run(candidate: Candidate) -> CheckOutcome:
    """Send batches of each size up to the config's batchSize."""
    largest = candidate.batch_size
    if largest == 1:
        return skipped("batchSize is 1")
    sample_runner = candidate.sample_runner
    if not sample_runner.answered:
        return skipped("there is no sample with an answer to compare")
    problems: list[Finding] = []
    tried = affordable(sizes(largest), _requests(sample_runner))
    start = 0
    for size in tried:
        batch = list(islice(cycle(sample_runner.answered), start, start + size))
        start = (start + size) % len(sample_runner.answered)
        refused, differing = _refused(sample_runner, batch)
        problems += refused or differing
        if refused:
            break  # larger ones are refused alike, and waiting for each may take long
    return failed(*problems[:_MAX_COUNT]) if problems else passed(_told(sample_runner, tried, largest))


def sizes(largest: int) -> list[int]:
    """Return the batch sizes to try, in order."""
    powers = {1 << bit for bit in range(3, largest.bit_length()) if 1 << bit <= largest}
    return sorted({*range(2, min(largest, _EVERY) + 1), *powers, largest})


def _requests(sample_runner: SampleRunner) -> int:
    """Return how many requests there is time, and memory, for."""
    weight = max(len(part.value) for sample in sample_runner.answered for part in sample.request.parts)
    return min(int(sample_runner.seconds_per_check / max(sample_runner.pace, 1e-6)), _BYTES // max(weight, 1))


def affordable(wanted: list[int], requests: int) -> list[int]:
    """Return the sizes that so many requests suffice for: the largest first, then the small ones; at least one."""
    chosen: list[int] = []
    for size in [wanted[-1], *wanted[:-1]]:
        if sum(chosen) + size <= requests:
            chosen.append(size)
    return sorted(chosen) or wanted[:1]


def _refused(sample_runner: SampleRunner, batch: list[Sample]) -> tuple[list[Finding], list[Finding]]:
    """Return the problem of a batch that is not answered, and those of its answers."""
    comparable = sample_runner.comparable
    results = sample_runner.ask(batch, size=len(batch))
    short = next((result for result in results if not result.ok), None)
    if short is not None:
        trouble = short.troubles[0] if short.troubles else None
        message = f"a batch of {len(batch)} is answered with {short.status}"
        return [problem("batch-refused", f"{message}: {trouble.message}" if trouble else message, hint=_HINT)], []
    return [], [
        problem("batch-differs", f"{sample.short_name} in a batch of {len(batch)}: {sentence}", hint=_HINT)
        for sample, result in zip(batch, results, strict=True)
        if sample in comparable
        for sentence in sample_runner.contradictions(sample, result)[:1]
    ]


def _told(sample_runner: SampleRunner, tried: list[int], largest: int) -> str:
    reach = f"batches of {tried[0]} to {tried[-1]}" if len(tried) > 1 else f"a batch of {tried[0]}"
    if tried != sizes(largest):
        reach = f"batches of {', '.join(map(str, tried))}; others would take too long (--patience)"
    if not sample_runner.comparable:
        return f"{reach}; answers are not the same twice, so only counted"
    bodies = {sample_runner.alone(sample).body for sample in sample_runner.comparable}
    return reach if len(bodies) > 1 else f"{reach}; with one answer for all samples, mixed up rows go unseen"
