"""The labels that answers name are those packed with the archive."""

import json
from typing import Any

from marpack.gate.subject import Subject
from marpack.gate.verdicts import Outcome, failed, passed, problem, skipped
from marpack.worker.results import Result

_LABELS = "index_to_name.json"
_CLASSIFIERS = ("image_classifier", "text_classifier")


def run(subject: Subject) -> Outcome:
    """Look for names in the answers that are no labels, and for labels that are only class numbers."""
    if _LABELS not in subject.archive.entries:
        return skipped("the archive has no labels")
    known = _known(json.loads(subject.read(_LABELS)))
    answers = [_named(subject.alone(sample)) for sample in subject.answered]
    about = [names for names in answers if names and (names & known or _is_classifier(subject))]
    if not about:
        return skipped("no answer names labels")
    strangers = sorted({name for names in about for name in names - known})
    if strangers:
        return failed(
            problem(
                "unknown-label",
                f"answers name {', '.join(strangers[:5])}, which {_LABELS} does not hold",
                hint="give the labels in the order of the model's outputs, one each",
            )
        )
    return passed(f"{len(known)} labels, {len(set().union(*about))} of them in the answers")


def _is_classifier(subject: Subject) -> bool:
    return subject.archive.manifest.model.handler in _CLASSIFIERS


def _known(mapping: dict[str, Any]) -> set[str]:
    names = mapping.get("object_type_names")
    if isinstance(names, list):
        return set(map(str, names))
    return {str(value[-1] if isinstance(value, list) and value else value) for value in mapping.values()}


def _named(result: Result) -> set[str]:
    """Return the keys of an answer of the form `{label: number}`."""
    try:
        value = json.loads(result.raw)
    except ValueError:
        return set()
    if not isinstance(value, dict) or not all(isinstance(item, float) for item in value.values()):
        return set()
    return set(value)
