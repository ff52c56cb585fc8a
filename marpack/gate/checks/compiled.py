"""The model that torch.compile made answers as the one it was made from."""

from typing import Any

from marpack.gate.candidate import Subject
from marpack.gate.verdicts import Outcome, failed, passed, problem, skipped

_HINT = "set pt2: {compile: {enable: false}}, or another backend"


def run(subject: Subject) -> Outcome:
    """Ask the samples of a second worker, which leaves torch.compile out."""
    if not compiles(subject.config.get("pt2")):
        return skipped("the config does not compile the model")
    witness = subject.witness
    if not witness.answered:
        return skipped("there is no sample with an answer to compare")
    if not witness.comparable:
        return skipped("answers are not the same twice, so they cannot be compared")
    with witness.other(compile=False) as eager:
        results = witness.ask(witness.comparable, pool=eager)
    problems = [
        problem("compiled-differs", f"{sample.short_name}, not compiled: {sentence}", hint=_HINT)
        for sample, result in zip(witness.comparable, results, strict=True)
        for sentence in witness.contradictions(sample, result)[:1]
    ]
    return failed(*problems) if problems else passed(f"{len(results)} samples, compiled and not")


def compiles(pt2: Any) -> bool:  # Any: YAML
    """Say whether a config's pt2 section has the model compiled, in any of its spellings (contract §6)."""
    if isinstance(pt2, dict) and "compile" in pt2:
        options = pt2["compile"]
        return isinstance(options, dict) and options.get("enable") is True
    return bool(pt2) and not (isinstance(pt2, dict) and "export" in pt2)
