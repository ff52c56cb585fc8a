"""index_to_name.json: its form, and the classes that it gives no name."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from marpack.findings import Finding, Severity
from marpack.inspection.lint.classes import Library, LocalClass, ServerClass
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.files import Files
from marpack.inspection.lint.model_loading import LoadingStrategy
from marpack.inspection.syntax import walk
from marpack.torchserve.stock import TOPK, built_in_of
from marpack.torchserve.targets import Target, TargetDifference

LABELS = "index_to_name.json"
MAX_LABELS = 16 << 20  # bytes

ENCODING = Code(
    "Labels",
    "labels-encoding",
    "The labels file is not UTF-8, or begins with a byte-order mark; the server cannot decode it.",
    "Save the file as UTF-8 without a byte-order mark.",
)
SYNTAX = Code(
    "Labels",
    "labels-syntax",
    "The labels file is not valid JSON; the worker dies.",
    "Mend the line; `python -m json.tool index_to_name.json` shows the same error.",
)
TOO_LARGE = Code(
    "Labels",
    "labels-unchecked",
    "The labels file is larger than any hand has written, and was not looked into.",
    "Check that it is the file you mean.",
)
SHAPE = Code(
    "Labels",
    "labels-shape",
    "The labels file is not an object of class index to label; the worker dies.",
    'Write {"0": "cat", "1": "dog"}.',
)
VALUE = Code(
    "Labels",
    "labels-value",
    "A label is neither a string nor a list that ends in one; the worker dies.",
    'Write labels as strings: {"0": "cat"}.',
)
KEY = Code(
    "Labels",
    "labels-key",
    "A key of the labels file is not a class index, so no prediction finds it.",
    'Write the index first, as a plain number in quotes: {"0": "cat"}.',
)
GAP = Code(
    "Labels",
    "labels-gap",
    "Class indices between 0 and the largest have no label; predicting one of them is a 503.",
    "Name every class from 0 to the last.",
)
TWICE = Code(
    "Labels",
    "labels-duplicate-key",
    "A class index stands twice in the labels file; the last label counts.",
    "Keep one of the two.",
)
SAME = Code(
    "Labels",
    "labels-duplicate",
    "Classes share a label; where two of them are in one answer, they collapse into one entry.",
    "Give every class a label of its own.",
)
FEW = Code(
    "Labels",
    "labels-few",
    "image_classifier answers with the five most probable classes, and with fewer than five every request is a 503.",
    "Derive a class from ImageClassifier and set topk, or build with target: marpack.",
)
MISNAMED = Code(
    "Labels",
    "labels-misnamed",
    "A file that looks like labels is packed under a name, or in a folder, where the server does not look.",
    "Pack it as index_to_name.json at the archive's root.",
)

_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")
_ALIKE = re.compile(r"(ind(ex|ices)|idx|id|class(es)?|labels?)[_-]?(to|2|map)?[_-]?(names?|labels?|class(es)?)?\.json")


class ParsedLabels(Struct, frozen=True, kw_only=True):
    """A labels file, parsed."""

    value: Any = None  # Any: JSON
    duplicates: tuple[str, ...] = ()  # keys of the object that stand more than once
    findings: tuple[Finding, ...] = ()


def read_labels(files: Files, severity: Severity) -> ParsedLabels:
    """Read the labels file as the server would.

    Args:
        files: The members, the labels among them.
        severity: How much it weighs that the server's loader fails.
    """
    data = files.read(LABELS, MAX_LABELS)
    if data is None:
        return ParsedLabels(findings=(TOO_LARGE.note("it could not be looked into", LABELS),))
    if len(data) > MAX_LABELS:
        return ParsedLabels(findings=(TOO_LARGE.note(f"it is larger than {MAX_LABELS >> 20} MiB", LABELS),))
    if data.startswith(b"\xef\xbb\xbf"):
        return ParsedLabels(findings=(ENCODING.weigh(severity, "it begins with a byte-order mark", f"{LABELS}:1"),))
    try:
        return _parse(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        return ParsedLabels(findings=(ENCODING.weigh(severity, "it is not UTF-8", f"{LABELS}:{line}"),))
    except json.JSONDecodeError as error:
        finding = SYNTAX.weigh(severity, f"it is no valid JSON: {error.msg}", f"{LABELS}:{error.lineno}")
        return ParsedLabels(findings=(finding,))
    except (RecursionError, ValueError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:100]
        return ParsedLabels(findings=(SYNTAX.weigh(severity, reason, LABELS),))


def _parse(text: str) -> ParsedLabels:
    duplicates: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:  # Any: JSON
        duplicates[:] = [key for key, times in Counter(key for key, _ in found).items() if times > 1]
        return dict(found)

    value = json.loads(text, object_pairs_hook=pairs)
    return ParsedLabels(value=value, duplicates=tuple(duplicates))


class LabelsCheck:
    """The labels of one archive, and who uses them."""

    def __init__(self, files: Files, library: Library, loader: LoadingStrategy, target: Target) -> None:
        self._files = files
        self._library = library
        self._loader = loader
        self._target = target

    def check(self) -> Iterator[Finding]:
        """Yield what the server's loader, and then the predictions, will stumble over."""
        if LABELS not in self._files:
            yield from self._misnamed()
            return
        labels = read_labels(self._files, self._loader.severity)
        yield from labels.findings
        if labels.findings:
            return
        for key in labels.duplicates[:10]:
            yield TWICE.weigh(self._at_most(Severity.WARNING), f"'{key[:40]}' is there twice", LABELS)
        if not isinstance(labels.value, dict):
            yield SHAPE.weigh(self._loader.severity, f"it is {_kind(labels.value)}, not an object", LABELS)
        elif isinstance(labels.value.get("object_type_names"), list):
            yield from self._names(labels.value["object_type_names"])
        else:
            yield from self._mapping(labels.value)

    def _at_most(self, severity: Severity) -> Severity:
        return Severity.NOTE if self._loader.own_way else severity

    @property
    def _used_by_index(self) -> bool:
        """Whether the server's own classifiers look every class up."""
        found = self._library.find(self._loader.cls, "postprocess") if self._loader.cls else None
        owner = found.owner if found else None
        built_in = built_in_of(owner.dotted) if isinstance(owner, ServerClass) else None
        return built_in is not None and built_in.classifies

    def _misnamed(self) -> Iterator[Finding]:
        alike = (name for name in self._files.members.names if _ALIKE.fullmatch(name.lower().rpartition("/")[2]))
        name = min(alike, default=None)
        if name and not self._loader.own_way:
            yield MISNAMED.note(f"'{name}' looks like labels, and the server reads only {LABELS} at the root", name)

    def _mapping(self, labels: dict[str, Any]) -> Iterator[Finding]:  # Any: JSON
        yield from self._values(labels)
        wrong = [key for key in labels if not _INDEX.fullmatch(key)]
        if wrong:
            yield KEY.weigh(self._at_most(Severity.WARNING), self._key_message(labels, wrong), _at(wrong[0]))
        else:
            yield from self._gaps({int(key) for key in labels})
        yield from self._same([_label(value) for value in labels.values()])
        yield from self._few(len(labels))

    @staticmethod
    def _key_message(labels: dict[str, Any], wrong: list[str]) -> str:  # Any: JSON
        inverted = all(isinstance(value, int) or _INDEX.fullmatch(str(value)) for value in labels.values())
        if inverted:
            return "it maps labels to indices; the server wants indices to labels"
        return f"'{wrong[0][:40]}' is not a class index" + (f", nor are {len(wrong) - 1} more" if wrong[1:] else "")

    def _values(self, labels: dict[str, Any]) -> Iterator[Finding]:  # Any: JSON
        wrong = [key for key, value in labels.items() if not isinstance(_label(value), str)]
        for key in wrong[:3]:
            value = labels[key]
            what = "an empty list" if value == [] else _kind(_label(value))
            yield VALUE.weigh(self._loader.severity, f"the label of '{key[:40]}' is {what}, not a string", _at(key))
        if len(wrong) > 3:
            yield VALUE.weigh(self._loader.severity, f"{len(wrong) - 3} more labels are no strings", LABELS)
        if not labels:
            yield GAP.weigh(self._at_most(Severity.WARNING), "it names no class at all", LABELS)

    def _gaps(self, indices: set[int]) -> Iterator[Finding]:
        missing = max(indices, default=-1) + 1 - len(indices)
        if not missing:
            return
        first = next(index for index in range(len(indices) + 1) if index not in indices)
        severity = self._at_most(Severity.WARNING) if self._used_by_index else Severity.NOTE
        more = f" and {missing - 1} more classes have" if missing > 1 else " has"
        yield GAP.weigh(severity, f"class {first}{more} no label", LABELS)

    def _names(self, names: list[Any]) -> Iterator[Finding]:  # Any: JSON
        wrong = next((name for name in names if not isinstance(name, str)), None)
        if wrong is not None or None in names:
            message = f"a label is {_kind(wrong)}, not a string"
            yield VALUE.weigh(self._at_most(Severity.WARNING), message, _at("object_type_names"))
        yield from self._same([name for name in names if isinstance(name, str)])
        yield from self._few(len(names))

    def _same(self, labels: list[Any]) -> Iterator[Finding]:  # Any: JSON
        counted = Counter(label for label in labels if isinstance(label, str))
        duplicates = [label for label, times in counted.items() if times > 1]
        if duplicates:
            more = f", and {len(duplicates) - 1} more such labels" if len(duplicates) > 1 else ""
            yield SAME.note(f"{counted[duplicates[0]]} classes are called '{duplicates[0][:40]}'{more}", LABELS)

    def _few(self, number: int) -> Iterator[Finding]:
        if not 0 < number < TOPK or self._target.has(TargetDifference.TOPK_CLAMPED) or not self._answers_topk():
            return
        message = f"there are {number} labels, and the image classifier answers with the top {TOPK}"
        yield FEW.weigh(self._at_most(Severity.WARNING), message, LABELS)

    def _answers_topk(self) -> bool:
        """Say whether the classifier is the server's, with its own number of classes to answer with."""
        cls = self._loader.cls
        found = self._library.find(cls, "postprocess") if cls else None
        if cls is None or found is None or not isinstance(found.owner, ServerClass):
            return False
        own = [base for base in self._library.order(cls) if isinstance(base, LocalClass)]
        built_in = built_in_of(found.owner.dotted)
        return built_in is not None and built_in.topk is not None and not any(_sets_topk(base) for base in own)


def _label(value: Any) -> Any:  # Any: JSON
    return (value[-1] if value else None) if isinstance(value, list) else value


def _sets_topk(base: LocalClass) -> bool:
    """Say whether a class mentions the number of classes to answer with."""
    nodes = walk(base.node)
    names = {getattr(node, "attr", None) or getattr(node, "id", None) for node in nodes}
    return bool(names & {"topk", "set_max_result_classes"})


def _at(key: str) -> str:
    return f"{LABELS}: {key[:40]}"


def _kind(value: Any) -> str:  # Any: JSON
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return kinds.get(type(value), "null")
