"""The checks of the responses: labels, forms of a request, batch sizes and compiled models."""

import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gate.archives import BASE_HANDLER, HANDLER, archive, examine, failures, found, shapes

from marpack.archive.reader import open_archive
from marpack.archive.sagemaker import HANDLER as ADAPTER
from marpack.archive.sagemaker import SCRIPT, handler_source
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
def test_the_parts_of_a_response_that_may_name_labels(value: Any, detects: bool, named: list[dict[str, float]]):
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
def test_unknown_labels(answer: dict[str, float], strange: set[str], certainly: set[str]):
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


def test_other_classes_are_a_warning_and_unreadable_labels_are_not_compared(tmp_path, make_mar):
    other = HANDLER.replace('self.labels["0"]: vowels, self.labels["1"]', '"Yes": vowels, "No"')
    report = examine(archive(tmp_path / "p", other), choice=select_checks(["labels"]))
    assert failures(report) == {}
    assert [finding.code for checked in report.checks for finding in checked.findings] == ["unused-labels"]
    handler = "def handle(data, context):\n    return None\n"
    for labels in ("[]", "{", '{"object_type_names": []}'):
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
SOFTMAX = f"""
from ts.utils.util import map_class_to_label
{BASE_HANDLER}
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


COUNTED_BY_DAY = ("a classifier, one more", "all classes, one fewer", "an embedding")
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


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in COUNTED_BY_DAY else pytest.mark.slow) for case in COUNTED]
)
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
    string = dict(list_forms(sample(b"\xff", "text/plain"), set()))[STRING]  # not UTF-8
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
def test_the_decoders_in_a_handlers_source(tmp_path: Path, handler: str, found: set[str]):
    with Candidate(ResolvedSource(path=archive(tmp_path / "p", handler)), CheckOptions()) as candidate:
        assert decodes(candidate) == found


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
    way = f"({RAISING[field]} if form else {RAISING[bare]})"
    odd = f"from more import Own\n{HANDLER}"
    for old, new in (
        ("import json\n", ""),
        ("self.labels = json.load(file)", "self.labels = eval(file.read())"),
        ("self.text_of(row.get(", "self.text_of('data' in row, row.get("),
        ("(self, body)", "(self, form, body)"),
        ("else bytes(body).decode()", f"else {way}"),
    ):
        odd = odd.replace(old, new)
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


@pytest.mark.parametrize(
    ("old", "new", "codes"),
    [
        ("self.text_of(row", 'self.text_of("aeiou" if "why" in str(row.get("data")) else row', ["form-differs"] * 2),
        (
            "bytes(body).decode()",
            "(int('x') if b'bee' in body else absent)",
            ["form-breaks", "form-breaks", "form-not-accepted", "form-not-accepted"],
        ),
    ],
    ids=["not the first one differs", "one is refused"],
)
def test_a_form_is_tried_with_every_sample(tmp_path: Path, old: str, new: str, codes: list[str]):
    report = examine(archive(tmp_path / "p", HANDLER.replace(old, new)), choice=select_checks(["body-forms"]))
    assert failures(report) == {"body-forms": codes}


@pytest.mark.parametrize("is_adapter", [False, True])
def test_only_the_adapter_itself_is_not_sent_other_forms(tmp_path: Path, is_adapter: bool):
    odd = HANDLER.replace("self.text_of(row", "self.text_of(absent if 'data' in row else row")
    script = "def model_fn(folder): ...\n\n\ndef transform_fn(model, body, kind, accept): return body\n"
    files = {ADAPTER: handler_source() if is_adapter else odd, SCRIPT: script}
    report = examine(archive(tmp_path / "p", files=files, entry=ADAPTER), choice=select_checks(["body-forms"]))
    assert failures(report).get("body-forms", []) == ([] if is_adapter else ["form-breaks"] * 2)
    assert found(report, "body-forms").verdict == ("skipped" if is_adapter else "failed")


def test_an_exception_behind_the_expected_status_is_a_finding(tmp_path: Path):
    odd = HANDLER.replace(
        "return body if", "if 'bee' in body: absent\n        if 'try' in body: int('x')\n        return body if"
    )
    expect = {"bee.txt": {"status": 503}, "sky.txt": {"status": 503}}
    report = examine(archive(tmp_path / "p", odd, expect=expect), choice=select_checks(["samples"]))
    checked = found(report, "samples")
    assert [each.code for each in checked.findings] == ["sample-raised"] * 2
    assert [each.severity for each in checked.findings] == ["error", "note"]
    assert (checked.verdict, report.deployable) == ("failed", False)


def test_every_spelling_of_a_config_that_compiles():
    enabled, ours = {"enable": True}, {"backend": "inductor"}
    for pt2 in ("inductor", ours, {"compile": enabled}, {"compile": enabled, "export": {}}, {"compile": {"enable": 1}}):
        assert compiles(pt2)
    for value in ({"enable": False}, {"enable": "true"}, ours, "inductor"):
        assert not compiles({"compile": value})
    assert not any(map(compiles, (None, {}, {"export": {"aot": True}})))


SLOW = HANDLER.replace("return [self.answer", "__import__('time').sleep(0.25 * len(data))\n        return [self.answer")


@pytest.mark.slow
def test_a_slow_model_costs_no_more_than_was_granted(tmp_path: Path):
    path = archive(tmp_path / "project", SLOW, config={"batchSize": 32})
    report = examine(path, seconds_per_check=1.0)
    assert report.deployable
    batches = found(report, "batch-contract").reason
    assert ("batches of 2;" in batches, "--patience" in batches) == (True, True)  # not up to 32
    assert found(report, "memory").reason == "undecided"


def test_every_small_batch_size_is_tried_and_a_few_large_ones_as_time_allows():
    sizes = {2: [2], 9: [2, 3, 4, 5, 6, 7, 8, 9], 100: [2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 100]}
    assert {largest: list_sizes(largest) for largest in sizes} == sizes
    within = {1000: [2, 3, 4, 5, 6, 7, 8, 16], 16: [16], 21: [2, 3, 16], 10: [2, 3, 4], 2: [2], 0: [2]}
    assert {requests: affordable(list_sizes(16), requests) for requests in within} == within


# Nine levels of nine references each: a small text with far too many values.
BOMB = "a: &a0 [1]\n" + "".join(f"c{i}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" for i in range(9))


@pytest.mark.parametrize("config", ["responseTimeout: [\n", "# nothing\n", "- 1\n", BOMB + "responseTimeout: 5\n"])
def test_an_invalid_or_huge_config_leaves_the_default_timeouts(make_mar, config: str):
    with open_archive(make_mar("x", files={"c.yaml": config}, configFile="c.yaml")) as opened:
        assert model_config(opened) == {}
        assert PoolSettings().as_served(model_config(opened)).timeout == 120.0
