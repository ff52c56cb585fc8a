"""Which names in an answer stand where a label should, and which are other numbers beside them."""

from typing import Any

import pytest
from gate.archives import HANDLER, archive, examine, failures

from marpack.gate.check import CheckSelection
from marpack.gate.checks.labels import known_labels, named_in, unknown_labels

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
    assert list(named_in(value, handler)) == named


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
    assert {checked.name: checked.reason for checked in report.checks}["labels"] == (
        "index_to_name.json holds none that can be read"
    )
