"""index_to_name.json: its form, and the classes without a label."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from marpack import finding_codes as codes
from marpack.findings import Finding, Severity
from marpack.inspection.lint.handler import LintContext, LocalClass, ServerClass
from marpack.inspection.lint.source import walk
from marpack.protocol.targets import TargetDifference
from marpack.torchserve.labels import LABELS_NAME, MAX_LABELS, LabelsFault, json_kind, parse_labels
from marpack.torchserve.server_modules import TOPK, built_in_of

_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")
_ALIKE = re.compile(r"(ind(ex|ices)|idx|id|class(es)?|labels?)[_-]?(to|2|map)?[_-]?(names?|labels?|class(es)?)?\.json")
_SHOWN = 3  # labels of a wrong type
_FAULTS = {
    LabelsFault.ENCODING: codes.LABELS_ENCODING,
    LabelsFault.SYNTAX: codes.LABELS_SYNTAX,
    LabelsFault.SHAPE: codes.LABELS_SHAPE,
}


def check_labels(context: LintContext) -> Iterator[Finding]:
    """Yield what the server's loader, and then the predictions, fail on."""
    files, loader = context.files, context.loader
    if LABELS_NAME not in files:
        name = min((name for name in files.names if _ALIKE.fullmatch(name.lower().rpartition("/")[2])), default=None)
        if name and not loader.own_way:
            yield codes.LABELS_MISNAMED.at(name, name=name)
        return
    data = files.read(LABELS_NAME, MAX_LABELS)
    if data is None:
        yield codes.LABELS_UNCHECKED.at(LABELS_NAME, problem="it cannot be read")
        return
    labels = parse_labels(data)
    if labels.fault is LabelsFault.SIZE:
        yield codes.LABELS_UNCHECKED.at(LABELS_NAME, problem=labels.problem)
        return
    if labels.fault is not None:
        where = LABELS_NAME if labels.line is None else f"{LABELS_NAME}:{labels.line}"
        yield _FAULTS[labels.fault].at(where, severity=loader.severity, problem=labels.problem)
        return
    for key in labels.duplicates[:10]:
        yield codes.LABELS_DUPLICATE_KEY.at(LABELS_NAME, severity=loader.warning, key=key[:40])
    for name in [name for name in labels.names.values() if labels.listed and not isinstance(name, str)][:1]:
        where = f"{LABELS_NAME}: object_type_names"
        yield codes.LABELS_LISTED_VALUE.at(where, severity=loader.warning, kind=json_kind(name))
    yield from () if labels.listed else _check_mapping(context, labels.names)
    texts = Counter(label for label in labels.names.values() if isinstance(label, str))
    if shared := [label for label, count in texts.items() if count > 1]:
        more = f", and {len(shared) - 1} more labels are shared" if len(shared) > 1 else ""
        yield codes.LABELS_DUPLICATE.at(LABELS_NAME, count=texts[shared[0]], label=shared[0][:40], more=more)
    yield from _check_count(context, len(labels.names))


def _check_mapping(context: LintContext, labels: dict[str, Any]) -> Iterator[Finding]:  # Any: JSON
    loader = context.loader
    wrong = [key for key, value in labels.items() if not isinstance(value, str)]
    for key in wrong[:_SHOWN]:
        kind = "an empty list" if labels[key] == [] else json_kind(labels[key])
        where = f"{LABELS_NAME}: {key[:40]}"
        yield codes.LABELS_VALUE.at(where, severity=loader.severity, key=key[:40], kind=kind)
    if wrong[_SHOWN:]:
        yield codes.LABELS_MORE_VALUES.at(LABELS_NAME, severity=loader.severity, count=len(wrong) - _SHOWN)
    if not labels:
        yield codes.LABELS_EMPTY.at(LABELS_NAME, severity=loader.warning)
    odd = [key for key in labels if not _INDEX.fullmatch(key)]
    indices = {int(key) for key in labels} if not odd else set()
    missing = max(indices, default=-1) + 1 - len(indices)
    if odd and all(isinstance(value, int) or _INDEX.fullmatch(str(value)) for value in labels.values()):
        yield codes.LABELS_INVERTED.at(f"{LABELS_NAME}: {odd[0][:40]}", severity=loader.warning)
    elif odd:
        more = f", nor are {len(odd) - 1} more keys" if odd[1:] else ""
        where = f"{LABELS_NAME}: {odd[0][:40]}"
        yield codes.LABELS_KEY.at(where, severity=loader.warning, key=odd[0][:40], more=more)
    elif missing:
        first = next(index for index in range(len(indices) + 1) if index not in indices)
        owner = context.owner("postprocess")
        classifier = built_in_of(owner.dotted) if isinstance(owner, ServerClass) else None
        severity = loader.warning if classifier and classifier.classifies else Severity.NOTE
        more = f" and {missing - 1} more classes have" if missing > 1 else " has"
        yield codes.LABELS_GAP.at(LABELS_NAME, severity=severity, missing=f"{first}{more}")


def _check_count(context: LintContext, count: int) -> Iterator[Finding]:
    """Yield too few labels for the image classifier's five classes."""
    cls, owner = context.loader.cls, context.owner("postprocess")
    classifier = built_in_of(owner.dotted) if isinstance(owner, ServerClass) else None
    if not 0 < count < TOPK or context.target.has(TargetDifference.TOPK_CLAMPED) or cls is None:
        return
    if classifier is None or classifier.topk is None:
        return
    local = [base for base in context.classes.order(cls) if isinstance(base, LocalClass)]
    names = {getattr(node, "attr", None) or getattr(node, "id", None) for base in local for node in walk(base.node)}
    if not names & {"topk", "set_max_result_classes"}:
        count_text = "is 1 label" if count == 1 else f"are {count} labels"
        yield codes.LABELS_FEW.at(LABELS_NAME, severity=context.loader.warning, count=count_text, topk=TOPK)
