"""index_to_name.json: its form, and the classes that it gives no name."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from marpack.findings import Finding, Severity
from marpack.inspection.lint.classes import LocalClass, ServerClass
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.model_loading import LintContext
from marpack.inspection.lint.source import walk
from marpack.protocol.targets import TargetDifference
from marpack.torchserve.labels import LABELS_NAME, MAX_LABELS, LabelsFault, json_kind, parse_labels
from marpack.torchserve.server_modules import TOPK, built_in_of

ENCODING = Code(
    "labels-encoding",
    "The labels file is not UTF-8, or begins with a byte-order mark; the server cannot decode it.",
    "Save the file as UTF-8 without a byte-order mark.",
)
SYNTAX = Code(
    "labels-syntax",
    "The labels file is not valid JSON; the worker dies.",
    "Mend the line; `python -m json.tool index_to_name.json` shows the same error.",
)
TOO_LARGE = Code(
    "labels-unchecked",
    "The labels file is larger than any hand has written, and was not looked into.",
    "Check that it is the file you mean.",
)
SHAPE = Code(
    "labels-shape",
    "The labels file is not an object of class index to label; the worker dies.",
    'Write {"0": "cat", "1": "dog"}.',
)
VALUE = Code(
    "labels-value",
    "A label is neither a string nor a list that ends in one; the worker dies.",
    'Write labels as strings: {"0": "cat"}.',
)
KEY = Code(
    "labels-key",
    "A key of the labels file is not a class index, so no prediction finds it.",
    'Write the index first, as a plain number in quotes: {"0": "cat"}.',
)
GAP = Code(
    "labels-gap",
    "Class indices between 0 and the largest have no label; predicting one of them is a 503.",
    "Name every class from 0 to the last.",
)
TWICE = Code(
    "labels-duplicate-key",
    "A class index stands twice in the labels file; the last label counts.",
    "Keep one of the two.",
)
SAME = Code(
    "labels-duplicate",
    "Classes share a label; where two of them are in one answer, they collapse into one entry.",
    "Give every class a label of its own.",
)
FEW = Code(
    "labels-few",
    "image_classifier answers with the five most probable classes, and with fewer than five every request is a 503.",
    "Derive a class from ImageClassifier and set topk, or build with target: marpack.",
)
MISNAMED = Code(
    "labels-misnamed",
    "A file that looks like labels is packed under a name, or in a folder, where the server does not look.",
    "Pack it as index_to_name.json at the archive's root.",
)

_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")
_ALIKE = re.compile(r"(ind(ex|ices)|idx|id|class(es)?|labels?)[_-]?(to|2|map)?[_-]?(names?|labels?|class(es)?)?\.json")


_FAULTS = {LabelsFault.ENCODING: ENCODING, LabelsFault.SYNTAX: SYNTAX, LabelsFault.SHAPE: SHAPE}


class LabelsCheck:
    """The labels of one archive, and who uses them."""

    def __init__(self, context: LintContext) -> None:
        self._context = context
        self._files = context.files
        self._loader = context.loader
        owner = context.owner("postprocess")
        self._classifier = built_in_of(owner.dotted) if isinstance(owner, ServerClass) else None

    def check(self) -> Iterator[Finding]:
        """Yield what the server's loader, and then the predictions, will stumble over."""
        if LABELS_NAME not in self._files:
            yield from self._misnamed()
            return
        data = self._files.read(LABELS_NAME, MAX_LABELS)
        if data is None or len(data) > MAX_LABELS:
            how = "could not be looked into" if data is None else f"is larger than {MAX_LABELS >> 20} MiB"
            yield TOO_LARGE.note(f"it {how}", LABELS_NAME)
            return
        labels = parse_labels(data)
        if labels.fault is not None and labels.problem is not None:
            where = LABELS_NAME if labels.line is None else f"{LABELS_NAME}:{labels.line}"
            yield _FAULTS[labels.fault].weigh(self._loader.severity, labels.problem, where)
            return
        for key in labels.duplicates[:10]:
            yield TWICE.weigh(self._loader.warning, f"'{key[:40]}' is there twice", LABELS_NAME)
        yield from self._names(list(labels.names.values())) if labels.listed else self._mapping(labels.names)

    def _misnamed(self) -> Iterator[Finding]:
        alike = (name for name in self._files.names if _ALIKE.fullmatch(name.lower().rpartition("/")[2]))
        name = min(alike, default=None)
        if name and not self._loader.own_way:
            message = f"'{name}' looks like labels, and the server reads only {LABELS_NAME} at the root"
            yield MISNAMED.note(message, name)

    def _mapping(self, labels: dict[str, Any]) -> Iterator[Finding]:  # Any: JSON
        yield from self._values(labels)
        wrong = [key for key in labels if not _INDEX.fullmatch(key)]
        if wrong:
            yield KEY.weigh(self._loader.warning, self._key_message(labels, wrong), _at(wrong[0]))
        else:
            yield from self._gaps({int(key) for key in labels})
        yield from self._same(list(labels.values()))
        yield from self._few(len(labels))

    @staticmethod
    def _key_message(labels: dict[str, Any], wrong: list[str]) -> str:  # Any: JSON
        inverted = all(isinstance(value, int) or _INDEX.fullmatch(str(value)) for value in labels.values())
        if inverted:
            return "it maps labels to indices; the server wants indices to labels"
        return f"'{wrong[0][:40]}' is not a class index" + (f", nor are {len(wrong) - 1} more" if wrong[1:] else "")

    def _values(self, labels: dict[str, Any]) -> Iterator[Finding]:  # Any: JSON
        wrong = [key for key, value in labels.items() if not isinstance(value, str)]
        for key in wrong[:3]:
            value = labels[key]
            what = "an empty list" if value == [] else json_kind(value)
            yield VALUE.weigh(self._loader.severity, f"the label of '{key[:40]}' is {what}, not a string", _at(key))
        if len(wrong) > 3:
            yield VALUE.weigh(self._loader.severity, f"{len(wrong) - 3} more labels are no strings", LABELS_NAME)
        if not labels:
            yield GAP.weigh(self._loader.warning, "it names no class at all", LABELS_NAME)

    def _gaps(self, indices: set[int]) -> Iterator[Finding]:
        missing = max(indices, default=-1) + 1 - len(indices)
        if not missing:
            return
        first = next(index for index in range(len(indices) + 1) if index not in indices)
        looked_up = self._classifier is not None and self._classifier.classifies
        severity = self._loader.warning if looked_up else Severity.NOTE
        more = f" and {missing - 1} more classes have" if missing > 1 else " has"
        yield GAP.weigh(severity, f"class {first}{more} no label", LABELS_NAME)

    def _names(self, names: list[Any]) -> Iterator[Finding]:  # Any: JSON
        wrong = next((name for name in names if not isinstance(name, str)), None)
        if wrong is not None or None in names:
            message = f"a label is {json_kind(wrong)}, not a string"
            yield VALUE.weigh(self._loader.warning, message, _at("object_type_names"))
        yield from self._same([name for name in names if isinstance(name, str)])
        yield from self._few(len(names))

    def _same(self, labels: list[Any]) -> Iterator[Finding]:  # Any: JSON
        counted = Counter(label for label in labels if isinstance(label, str))
        duplicates = [label for label, times in counted.items() if times > 1]
        if duplicates:
            more = f", and {len(duplicates) - 1} more such labels" if len(duplicates) > 1 else ""
            yield SAME.note(f"{counted[duplicates[0]]} classes are called '{duplicates[0][:40]}'{more}", LABELS_NAME)

    def _few(self, number: int) -> Iterator[Finding]:
        cls, context = self._loader.cls, self._context
        if not 0 < number < TOPK or context.target.has(TargetDifference.TOPK_CLAMPED) or cls is None:
            return
        topk = self._classifier is not None and self._classifier.topk is not None
        if topk and not any(isinstance(base, LocalClass) and _sets_topk(base) for base in context.library.order(cls)):
            labels = "is 1 label" if number == 1 else f"are {number} labels"
            message = f"there {labels}, and the image classifier answers with the top {TOPK}"
            yield FEW.weigh(self._loader.warning, message, LABELS_NAME)


def _sets_topk(base: LocalClass) -> bool:
    """Say whether a class mentions the number of classes to answer with."""
    nodes = walk(base.node)
    names = {getattr(node, "attr", None) or getattr(node, "id", None) for node in nodes}
    return bool(names & {"topk", "set_max_result_classes"})


def _at(key: str) -> str:
    return f"{LABELS_NAME}: {key[:40]}"
