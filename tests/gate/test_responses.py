"""The checks of the responses: labels, forms of a request, batch sizes and compiled models."""

import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from days import by_day
from gate.archives import HANDLER, archive, examine, failures, found, shapes

from marpack.archive.reader import open_archive
from marpack.gate.candidate import Candidate, CheckOptions, compiles
from marpack.gate.check import select_checks
from marpack.gate.responses import (
    affordable,
    decodes,
    find_missing_label,
    find_named,
    list_forms,
    list_sizes,
    unknown_labels,
)
from marpack.gate.samples import Sample
from marpack.gate.verdicts import Verdict
from marpack.inspection.members import model_config
from marpack.project.schema import Expectation
from marpack.project.source import ResolvedSource
from marpack.protocol.messages import Trouble
from marpack.runner.inputs import Input
from marpack.runner.pool import PoolSettings
from marpack.torchserve.http import Part, Request

PETS = {"cat", "dog"}


@pytest.mark.parametrize(
    ("value", "detects", "named"),
    [
        ({"cat": 0.9}, False, [{"cat": 0.9}]),
        ({"cat": 0.9, "n": 3}, False, []),  # a count is not a probability
        ({"cat": [1, 2]}, False, []),
        ({}, False, []),
        ("cat", False, []),
        ([{"cat": [1, 2, 3, 4], "score": 0.9}, 5], True, [{"cat": 0.0}]),
        ([{"cat": [1, 2, 3, 4], "score": 0.9}], False, []),
    ],
)
def test_what_of_an_answer_may_name_labels(value: Any, detects: bool, named: list[dict[str, float]]):
    assert list(find_named(value, detects=detects)) == named


@pytest.mark.parametrize(
    ("answer", "strange", "certainly"),
    [
        ({"cat": 0.9, "bird": 0.1}, {"bird"}, {"bird"}),  # what makes them add up is a class
        ({"cat": 0.9, "dog": 0.1, "entropy": 0.5}, set(), {"entropy"}),
        ({"cat": 0.9, "entropy": 0.5}, set(), {"entropy"}),  # of a top-1
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
        ('{"0": "a", "2": "c"}', "KeyError", "'2'", None),
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


def test_classes_none_of_which_is_a_label_are_a_warning(tmp_path):
    other = HANDLER.replace('self.labels["0"]: vowels, self.labels["1"]', '"Yes": vowels, "No"')
    report = examine(archive(tmp_path, other), choice=select_checks(["labels"]))
    assert failures(report) == {}
    assert [finding.code for checked in report.checks for finding in checked.findings] == ["unused-labels"]


@pytest.mark.parametrize("labels", ["[]", "{", '{"object_type_names": []}'])
def test_labels_that_cannot_be_read_are_not_compared(make_mar, labels: str):
    handler = "def handle(data, context):\n    return None\n"
    report = examine(make_mar(handler, files={"index_to_name.json": labels}), choice=select_checks(["labels"]))
    checked = found(report, "labels")
    assert checked.verdict is Verdict.SKIPPED
    assert checked.reason.startswith("index_to_name.json ")


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
SHAPES = [f"shape {number}" for number in range(7)]


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
    "a classifier, one more": (lambda folder: shapes(folder, SHAPES), "idle-label", (6, 7)),
    "a classifier, one fewer": (lambda folder: shapes(folder, SHAPES[:5]), "missing-label", (6, 5)),
    "a classifier": (lambda folder: shapes(folder, SHAPES[:6]), None, None),
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
    report = examine(pack(tmp_path / "p"), choice=select_checks(["labels"]))
    found = [finding for checked in report.checks for finding in checked.findings]
    assert [finding.code for finding in found] == ([code] if code else [])
    if counts:
        assert tuple(map(int, re.findall(r"\d+", found[0].message))) == counts
        assert failures(report) == {"labels": [code]}


FILE, FIELD, BARE = "as a form's file", "as a form's field", "without a content type"
STRING, JSON = "as a JSON string", "application/json"
BASE64 = {"in base64": ("body", b"aGk=", "text/plain"), "in base64 within JSON": ("body", b'{"data": "aGk="}', JSON)}


def sample(data: bytes, kind: str) -> Sample:
    request = Request(
        id="1", parts=(Part("body", data, kind),), headers=(("Content-Type", kind), ("a", "b")), url_path="/x"
    )
    return Sample(name="MAR-INF/x", input=Input("x", request), expected=Expectation())


@pytest.mark.parametrize(
    ("kind", "decoded", "others"),
    [
        ("text/plain", set(), {FIELD: ("data", b"hi", ""), BARE: ("body", b"hi", ""), STRING: ("body", b'"hi"', JSON)}),
        ("image/png", set(), {BARE: ("body", b"hi", "")}),
        ("image/png", {"base64"}, {BARE: ("body", b"hi", ""), **BASE64}),
        (JSON, set(), {}),
        (JSON, {"json"}, {FIELD: ("data", b"hi", ""), BARE: ("body", b"hi", "")}),
        ("", set(), {BARE: ("body", b"hi", "")}),
    ],
)
def test_a_sample_is_sent_in_the_forms_that_its_handler_may_take(kind: str, decoded: set[str], others: dict):
    forms = dict(list_forms(sample(b"hi", kind), decoded))
    sent = {name: request.parts for name, request in forms.items()}
    assert sent == {name: (Part(*part),) for name, part in {FILE: ("data", b"hi", kind), **others}.items()}
    for request in forms.values():
        assert (request.id, request.url_path, request.headers) == ("1", "/x", (("a", "b"),))


def test_bytes_that_are_no_utf_8_are_a_json_string_all_the_same():
    string = dict(list_forms(sample(b"\xff", "text/plain"), set()))[STRING]
    assert json.loads(string.parts[0].value) == "\N{REPLACEMENT CHARACTER}"


DERIVED = "from ts.torch_handler.image_classifier import ImageClassifier\n\nclass Own(ImageClassifier): ...\n"


@pytest.mark.parametrize(
    ("handler", "found"),
    [
        (HANDLER.replace("json.load(", "dict(").replace("import json", ""), set()),
        (HANDLER.replace("json.load(", "json.loads("), {"json"}),
        ("import base64\n" + HANDLER, {"base64"}),
        (DERIVED, {"base64"}),
        ("#" * (1 << 20) + "base64", set()),  # no source that anyone wrote
        ("#" * ((1 << 20) - 6) + "base64", {"base64"}),
    ],
)
def test_what_a_handler_decodes_its_source_tells(tmp_path: Path, handler: str, found: set[str]):
    with Candidate(ResolvedSource(path=archive(tmp_path / "p", handler)), CheckOptions()) as candidate:
        assert decodes(candidate) == found


def test_forms_are_tried_with_more_than_the_first_sample(tmp_path: Path):
    odd = HANDLER.replace("self.text_of(row", 'self.text_of("aeiou" if "why" in str(row.get("data")) else row')
    report = examine(archive(tmp_path / "p", odd), choice=select_checks(["body-forms"]))
    assert failures(report) == {"body-forms": ["form-differs", "form-differs"]}


RAISING = {
    "NameError": "json.loads(body)",
    "ModuleNotFoundError": "__import__('nowhere_at_all')",
    "SyntaxError": "eval('(')",
    "Own": "(_ for _ in ()).throw(Own('of its own'))",
    "ValueError": "int('x')",
    "AttributeError": "None.decode()",
}


@pytest.mark.parametrize(
    ("field", "bare", "codes"),
    [
        ("NameError", "ModuleNotFoundError", ["form-breaks", "form-breaks"]),
        ("Own", "SyntaxError", ["form-breaks", "form-breaks"]),
        ("ValueError", "AttributeError", []),
    ],
)
def test_broken_code_in_another_form_is_a_finding_and_a_refusal_is_shown(
    tmp_path: Path, field: str, bare: str, codes: list[str]
):
    odd = HANDLER.replace("import json\n", "").replace(
        "self.labels = json.load(file)", "self.labels = eval(file.read())"
    )
    odd = odd.replace("self.text_of(row.get(", "self.text_of('data' in row, row.get(").replace(
        "(self, body)", "(self, form, body)"
    )
    way = f"({RAISING[field]} if form else {RAISING[bare]})"
    odd = odd.replace("else bytes(body).decode()", f"else {way}")
    odd = f"from more import Own\n{odd}"
    path = archive(tmp_path / "p", odd, files={"more.py": "class Own(ImportError): ...\n"})
    report = examine(path, choice=select_checks(["body-forms"]))
    line = 1 + odd.splitlines().index(f"        return body if isinstance(body, str) else {way}")
    checked = found(report, "body-forms")
    kinds = {finding.message.split(": ")[1].split(",")[0] for finding in checked.findings}
    assert failures(report).get("body-forms", []) == codes
    assert kinds == {field, bare}
    assert all(str(finding.where).startswith(f"{path}!") for finding in checked.findings)
    if not codes:
        assert {finding.code for finding in checked.findings} == {"form-not-accepted"}
        assert f"ValueError, handler.py:{line}" in checked.reason


def test_a_form_is_tried_with_every_sample_though_one_is_refused(tmp_path: Path):
    odd = HANDLER.replace("bytes(body).decode()", "(int('x') if b'bee' in body else absent)")
    report = examine(archive(tmp_path / "p", odd), choice=select_checks(["body-forms"]))
    assert failures(report) == {"body-forms": ["form-breaks", "form-breaks", "form-not-accepted", "form-not-accepted"]}


def test_an_exception_behind_the_expected_status_is_a_finding(tmp_path: Path):
    odd = HANDLER.replace(
        "return body if", "if 'bee' in body: absent\n        if 'try' in body: int('x')\n        return body if"
    )
    expect = {"bee.txt": {"status": 503}, "sky.txt": {"status": 503}}
    report = examine(archive(tmp_path / "p", odd, expect=expect), choice=select_checks(["samples"]))
    checked = found(report, "samples")
    assert [(each.code, each.severity) for each in checked.findings] == [
        ("sample-raised", "error"),
        ("sample-raised", "note"),
    ]
    assert (checked.verdict, report.deployable) == ("failed", False)


@pytest.mark.parametrize(
    ("pt2", "is_compiled"),
    [
        (None, False),
        ({}, False),
        ("inductor", True),
        ({"backend": "inductor"}, True),
        ({"compile": {"enable": True}}, True),
        ({"compile": {"enable": True}, "export": {}}, True),
        ({"compile": {"enable": False}}, False),
        ({"compile": {"enable": 1}}, False),
        ({"compile": {"backend": "inductor"}}, False),
        ({"compile": "inductor"}, False),
        ({"export": {"aot": True}}, False),
    ],
)
def test_every_spelling_of_a_config_that_compiles(pt2: Any, is_compiled: bool):
    assert compiles(pt2) is is_compiled


SLOW = HANDLER.replace("return [self.answer", "__import__('time').sleep(0.25 * len(data))\n        return [self.answer")


@pytest.mark.nightly
def test_a_slow_model_costs_no_more_than_was_granted(tmp_path: Path):
    path = archive(tmp_path / "project", SLOW, config={"batchSize": 32})
    report = examine(path, seconds_per_check=1.0)
    assert report.deployable
    batches = found(report, "batch-contract").reason
    assert ("batches of 2;" in batches, "--patience" in batches) == (True, True)  # not up to 32
    assert found(report, "memory").reason == "undecided"


@pytest.mark.parametrize(
    ("largest", "tried"),
    [(2, [2]), (9, [2, 3, 4, 5, 6, 7, 8, 9]), (100, [2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 100])],
)
def test_every_small_size_is_tried_and_of_large_ones_a_few(largest: int, tried: list[int]):
    assert list_sizes(largest) == tried


@pytest.mark.parametrize(
    ("requests", "tried"),
    [(1000, [2, 3, 4, 5, 6, 7, 8, 16]), (16, [16]), (21, [2, 3, 16]), (10, [2, 3, 4]), (2, [2]), (0, [2])],
)
def test_sizes_are_left_out_when_time_is_short(requests: int, tried: list[int]):
    assert affordable(list_sizes(16), requests) == tried


# Nine levels of nine references each: small to read, and more values than anyone could write out.
BOMB = "a: &a0 [1]\n" + "".join(f"c{i}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" for i in range(9))


@pytest.mark.parametrize("config", ["responseTimeout: [\n", "# nothing\n", "- 1\n", BOMB + "responseTimeout: 5\n"])
def test_a_config_that_cannot_be_read_within_bounds_leaves_the_servers_times(make_mar, config: str):
    with open_archive(make_mar("x", files={"c.yaml": config}, configFile="c.yaml")) as opened:
        assert model_config(opened) == {}
        assert PoolSettings().as_served(model_config(opened)).timeout == 120.0
