"""The model that torch.compile made answers as the one it was made from."""

from typing import Any

from marpack.gate.comparing import differences
from marpack.gate.subject import Subject
from marpack.gate.verdicts import Outcome, failed, passed, problem, skipped


def run(subject: Subject) -> Outcome:
    """Ask every sample of a second worker, which leaves torch.compile out."""
    if not compiles(subject.config.get("pt2")):
        return skipped("the config does not compile the model")
    steady = [sample for sample in subject.answered if subject.is_steady(sample)]
    if not steady:
        return skipped("there is no sample with an answer to compare")
    with subject.other(compile=False) as eager:
        results = subject.ask(steady, pool=eager)
    problems = [
        problem("compiled-differs", f"{sample.name}, not compiled: {sentence}", hint=_HINT)
        for sample, result in zip(steady, results, strict=True)
        for sentence in differences(result, subject.alone(sample))[:1]
    ]
    return failed(*problems) if problems else passed(f"{len(steady)} samples, compiled and not")


_HINT = "set pt2: {compile: {enable: false}}, or another backend"


def compiles(pt2: Any) -> bool:  # Any: YAML
    """Say whether a config's pt2 section has the model compiled, in any of its spellings (contract §6)."""
    if isinstance(pt2, dict) and "compile" in pt2:
        options = pt2["compile"]
        return isinstance(options, dict) and options.get("enable") is True
    return bool(pt2) and not (isinstance(pt2, dict) and "export" in pt2)
