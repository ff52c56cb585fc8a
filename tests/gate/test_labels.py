"""Which names in an answer stand where a label should, and which are other numbers beside them."""

import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from days import by_day
from gate.archives import HANDLER, archive, examine, failures

from marpack.gate.check import CheckSelection
from marpack.gate.responses import find_missing_label, find_named, known_labels, unknown_labels
from marpack.gate.verdicts import Verdict
from marpack.protocol.messages import Trouble

PETS = {"cat", "dog"}


@pytest.mark.parametrize(
    ("data", "labels"),
    [
        (b'{"0": "cat", "1": "dog"}', PETS),
        (b'{"0": ["n01", "cat"], "1": ["n02", "dog"]}', PETS),
        (b'{"object_type_names": ["cat", "dog"]}', PETS),
        (b'{"0": 5}', {"5"}),
        (b"[]", set()),
        (b"{", set()),
        (b"[" * 100_000, set()),
        (b"\xff", set()),
    ],
)
def test_the_labels_of_a_file(data: bytes, labels: set[str]):
    assert known_labels(data) == labels


@pytest.mark.parametrize(
    ("value", "handler", "named"),
    [
        ({"cat": 0.9}, "handler.py", [{"cat": 0.9}]),
        ({"cat": 0.9, "n": 3}, "handler.py", []),  # a count is no probability
        ({"cat": [1, 2]}, "handler.py", []),
        ({}, "handler.py", []),
        ("cat", "handler.py", []),
        ([{"cat": [1, 2, 3, 4], "score": 0.9}, 5], "object_detector", [{"cat": 0.0}]),
        ([{"cat": [1, 2, 3, 4], "score": 0.9}], "handler.py", []),
    ],
)
def test_what_of_an_answer_may_name_labels(value: Any, handler: str, named: list[dict[str, float]]):
    assert list(find_named(value, handler)) == named


@pytest.mark.parametrize(
    ("answer", "strange", "certainly"),
    [
        ({"cat": 0.9, "dog": 0.1}, set(), set()),
        ({"cat": 0.9, "bird": 0.1}, {"bird"}, {"bird"}),  # what makes them add up is a class
        ({"cat": 0.9, "dog": 0.1, "entropy": 0.5}, set(), {"entropy"}),
        ({"cat": 0.9, "entropy": 0.5}, set(), {"entropy"}),  # of a top-1
        ({"cat": 0.9, "7": 0.02}, {"7"}, {"7"}),
        ({"cat": 0.9, "LABEL_7": 0.02}, {"LABEL_7"}, {"LABEL_7"}),
        ({"train": 0.4, "test": 0.6}, set(), {"train", "test"}),
        ({"cat": 0.5, "bird": 0.515}, {"bird"}, {"bird"}),  # but for rounding
        ({"cat": 0.5, "bird": 0.53}, set(), {"bird"}),
        ({"cat": 0.5, "bird": 0.47}, set(), {"bird"}),
        ({"cat": 1.0, "bird": 0.0}, {"bird"}, {"bird"}),
        ({"cat": 0.5, "dog": 0.5, "bird": 0.0}, set(), {"bird"}),  # the labels do without it
        ({"cat": 2.5, "bird": -1.5}, set(), {"bird"}),  # logits add up to anything
    ],
)
def test_a_name_that_is_no_label(answer: dict[str, float], strange: set[str], certainly: set[str]):
    assert unknown_labels(answer, PETS, certain=False) == strange
    assert unknown_labels(answer, PETS, certain=True) == certainly


@pytest.mark.parametrize(
    ("labels", "kind", "message", "named"),
    [
        ('{"0": "a", "2": "c"}', "KeyError", "'3'", '"3"'),
        ('{"0": "a", "2": "c"}', "KeyError", "1", '"1"'),
        ('{"0": "a", "2": "c"}', "KeyError", "'2'", None),
        ('{"0": "a", "2": "c"}', "KeyError", "'name'", None),
        ('{"0": "a", "2": "c"}', "ValueError", "3", None),
        ('{"cat": "a"}', "KeyError", "'3'", None),
        (None, "KeyError", "'3'", None),
    ],
)
def test_the_label_that_an_exception_missed_is_named(labels: str | None, kind: str, message: str, named: str | None):
    members = {} if labels is None else {"index_to_name.json": labels.encode()}
    candidate: Any = SimpleNamespace(archive=SimpleNamespace(entries=members), read=members.__getitem__)
    hint = find_missing_label(candidate, Trouble(kind=kind, message=message))
    assert hint is None if named is None else named in str(hint)


def test_numbers_are_labels_like_any_other():
    assert unknown_labels({"3": 0.6, "4": 0.3}, {"3", "4"}, certain=False) == set()
    assert unknown_labels({"3": 0.6, "4": 0.4}, {"3"}, certain=False) == {"4"}


def test_classes_none_of_which_is_a_label_are_a_warning(tmp_path):
    other = HANDLER.replace('self.labels["0"]: vowels, self.labels["1"]', '"Yes": vowels, "No"')
    report = examine(archive(tmp_path, other), choice=CheckSelection.of(["labels"]))
    assert failures(report) == {}
    assert [finding.code for checked in report.checks for finding in checked.findings] == ["unused-labels"]


@pytest.mark.parametrize("labels", ["[]", "{", '{"object_type_names": []}'])
def test_labels_that_cannot_be_read_are_not_compared(make_mar, labels: str):
    handler = "def handle(data, context):\n    return None\n"
    report = examine(make_mar(handler, files={"index_to_name.json": labels}), choice=CheckSelection.of(["labels"]))
    (checked,) = [checked for checked in report.checks if checked.name == "labels"]
    assert checked.verdict is Verdict.SKIPPED
    assert checked.reason.startswith("index_to_name.json ")


EXAMPLES = Path(__file__).parents[2] / "examples"
MODEL = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 3)

    def forward(self, x):
        return self.layer(x)
"""
SOFTMAX = """
from ts.torch_handler.base_handler import BaseHandler
from ts.utils.util import map_class_to_label


class Handler(BaseHandler):
    def preprocess(self, data):
        return super().preprocess([row.get("data") or row.get("body") for row in data])

    def postprocess(self, data):
        return [self.answer(row) for row in data.softmax(dim=1).tolist()]

    def answer(self, row):
        return BODY
"""
EVERY = "{self.mapping[str(index)]: share for index, share in enumerate(row)}"
LIKELIEST = "dict(sorted(zip(self.mapping.values(), row), key=lambda pair: -pair[1])[:1])"
LABELS = ["cat", "dog", "bird", "fish"]


def shapes(folder: Path, count: int) -> Path:
    """Pack a built-in classifier of six shapes with so many labels."""
    example = EXAMPLES / "image_classifier"
    labels = json.dumps([f"shape {number}" for number in range(count)])
    files = {"model.pt": (example / "shapes.pt").read_bytes(), "labels.json": labels}
    samples = {"ring.jpg": (example / "samples" / "ring.jpg").read_bytes()}
    return archive(folder, samples=samples, files=files, entry="image_classifier", weights="model.pt", config=None)


def linear(folder: Path, labels: Any, body: str) -> Path:
    """Pack a model of three outputs whose handler answers with `body`."""
    import torch

    buffer = io.BytesIO()
    torch.save({"layer.weight": torch.eye(3)[:, :2].clone(), "layer.bias": torch.zeros(3)}, buffer)
    files = {"weights.pt": buffer.getvalue(), "model.py": MODEL, "labels.json": json.dumps(labels)}
    samples = {"one.json": "[1.0, 2.0]", "two.json": "[3.0, -1.0]"}
    keys = {"weights": "weights.pt", "model_file": "model.py", "config": None}
    return archive(folder, SOFTMAX.replace("BODY", body), samples=samples, files=files, **keys)


COUNTED = {
    "a classifier, one more": (lambda folder: shapes(folder, 7), "idle-label", (6, 7)),
    "a classifier, one fewer": (lambda folder: shapes(folder, 5), "missing-label", (6, 5)),
    "a classifier": (lambda folder: shapes(folder, 6), None, None),
    "all classes, one more": (lambda folder: linear(folder, LABELS, EVERY), "idle-label", (3, 4)),
    "all classes, one fewer": (lambda folder: linear(folder, LABELS[:2], EVERY), "missing-label", (3, 2)),
    "all classes": (lambda folder: linear(folder, LABELS[:3], EVERY), None, None),
    "the server's mapping": (
        lambda folder: linear(folder, LABELS, "map_class_to_label([row], self.mapping)[0]"), "idle-label", (3, 4),
    ),
    "the likeliest, one more": (lambda folder: linear(folder, LABELS, LIKELIEST), "idle-label", (3, 4)),
    "the likeliest, one fewer": (lambda folder: linear(folder, LABELS[:2], LIKELIEST), None, None),
    "an output left out": (
        lambda folder: linear(folder, LABELS[:2], "dict(zip(self.mapping.values(), row))"), None, None,
    ),
    "numbers with gaps": (lambda folder: linear(folder, dict(zip("0127", LABELS, strict=True)), EVERY), None, None),
    "an embedding": (
        lambda folder: linear(folder, LABELS, "dict.fromkeys(self.mapping.values(), 0.9 + row[0] / 100)"), None, None,
    ),
    "numbers beside labels": (
        lambda folder: linear(folder, LABELS, "{self.mapping['0']: row[0], 'x1': row[1] * 100}"), None, None,
    ),
    "another key": (lambda folder: linear(folder, LABELS[:2], "{'b': 1}['a']"), None, None),
}  # fmt: skip


@pytest.mark.parametrize("case", by_day(COUNTED, "a classifier, one more", "all classes, one fewer", "an embedding"))
def test_labels_are_as_many_as_the_models_outputs(tmp_path: Path, case: str):
    pack, code, counts = COUNTED[case]
    report = examine(pack(tmp_path / "p"), choice=CheckSelection.of(["labels"]))
    found = [finding for checked in report.checks for finding in checked.findings]
    assert [finding.code for finding in found] == ([code] if code else [])
    if counts:
        assert tuple(map(int, re.findall(r"\d+", found[0].message))) == counts
        assert failures(report) == {"labels": [code]}
