"""The model that torch.compile made answers as the one it was made from."""

from marpack.gate.candidate import Candidate, compiles
from marpack.gate.verdicts import CheckOutcome, counted, failed, passed, problem, skipped

_HINT = "set pt2: {compile: {enable: false}}, or another backend"


def run(candidate: Candidate) -> CheckOutcome:
    """Ask the samples of a second worker, which leaves torch.compile out."""
    if not compiles(candidate.config.get("pt2")):
        return skipped("the config does not compile the model")
    sample_runner = candidate.sample_runner
    if not sample_runner.answered:
        return skipped("there is no sample with an answer to compare")
    if not sample_runner.comparable:
        return skipped("answers are not the same twice, so they cannot be compared")
    with sample_runner.other(compile=False) as eager:
        results = sample_runner.ask(sample_runner.comparable, pool=eager)
    problems = [
        problem("compiled-differs", f"{sample.short_name}, not compiled: {sentence}", hint=_HINT)
        for sample, result in zip(sample_runner.comparable, results, strict=True)
        for sentence in sample_runner.contradictions(sample, result)[:1]
    ]
    return failed(*problems) if problems else passed(f"{counted(len(results), 'sample')}, compiled and not")
