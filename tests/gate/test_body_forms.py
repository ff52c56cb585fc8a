"""Which other forms a sample is sent in."""

import json
from pathlib import Path

import pytest
from gate.archives import HANDLER, archive, examine, failures

from marpack.gate.candidate import Candidate
from marpack.gate.check import CheckSelection
from marpack.gate.responses import decodes, list_forms
from marpack.gate.samples import Sample
from marpack.project.schema import Expectation
from marpack.project.source import ResolvedSource
from marpack.runner.inputs import Input
from marpack.torchserve.http import Part, Request

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
        ("image/png", {"json"}, {BARE: ("body", b"hi", "")}),
        ("image/png", {"base64"}, {BARE: ("body", b"hi", ""), **BASE64}),
        (JSON, set(), {}),
        (JSON, {"base64"}, {}),
        (JSON, {"json"}, {FIELD: ("data", b"hi", ""), BARE: ("body", b"hi", "")}),
        ("", set(), {BARE: ("body", b"hi", "")}),
    ],
)
def test_a_sample_is_sent_in_the_forms_that_its_handler_may_take(kind: str, decoded: set[str], others: dict):
    found = {form.name: form for form in list_forms(sample(b"hi", kind), decoded)}
    sent = {name: form.request.parts for name, form in found.items()}
    assert sent == {name: (Part(*part),) for name, part in {FILE: ("data", b"hi", kind), **others}.items()}
    for form in found.values():
        (part,) = form.request.parts
        assert form.empty.parts == (Part(part.name, b"", part.content_type),)
        assert (form.request.id, form.request.url_path) == ("1", "/x")
        assert form.request.headers == form.empty.headers == (("a", "b"),), "all but the content type, which is another"


def test_bytes_that_are_no_utf_8_are_a_json_string_all_the_same():
    string = next(form for form in list_forms(sample(b"\xff", "text/plain"), set()) if form.name == STRING)
    assert json.loads(string.request.parts[0].value) == "\N{REPLACEMENT CHARACTER}"


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
    with Candidate(ResolvedSource(path=archive(tmp_path / "p", handler))) as candidate:
        assert decodes(candidate) == found


def test_forms_are_tried_with_more_than_the_first_sample(tmp_path: Path):
    odd = HANDLER.replace("self.text_of(row", 'self.text_of("aeiou" if "why" in str(row.get("data")) else row')
    report = examine(archive(tmp_path / "p", odd), choice=CheckSelection.of(["body-forms"]))
    assert failures(report) == {"body-forms": ["form-differs", "form-differs"]}


RAISING = {
    "NameError": "json.loads(body)",
    "UnboundLocalError": "unbound()",
    "ModuleNotFoundError": "__import__('nowhere_at_all')",
    "SyntaxError": "eval('(')",
    "Own": "(_ for _ in ()).throw(Own('of its own'))",
    "IndentationError": "exec(' 1\\n  2')",
    "ValueError": "int('x')",
    "AttributeError": "None.decode()",
}


@pytest.mark.parametrize(
    ("field", "bare", "codes"),
    [
        ("NameError", "UnboundLocalError", ["form-breaks", "form-breaks"]),
        ("ModuleNotFoundError", "SyntaxError", ["form-breaks", "form-breaks"]),
        ("Own", "IndentationError", ["form-breaks", "form-breaks"]),
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
    more = "class Own(ImportError): ...\n\ndef unbound():\n    one = two\n    two = one\n"
    odd = f"from more import Own, unbound\n{odd}"
    path = archive(tmp_path / "p", odd, files={"more.py": more})
    report = examine(path, choice=CheckSelection.of(["body-forms"]))
    line = 1 + odd.splitlines().index(f"        return body if isinstance(body, str) else {way}")
    (checked,) = [each for each in report.checks if each.name == "body-forms"]
    found = {finding.message.split(": ")[1].split(",")[0] for finding in checked.findings}
    assert failures(report).get("body-forms", []) == codes
    assert found == {field, bare}
    assert all(str(finding.where).startswith(f"{path}!") for finding in checked.findings)
    if not codes:
        assert {finding.code for finding in checked.findings} == {"form-not-accepted"}
        assert f"ValueError, handler.py:{line}" in checked.reason


def test_a_form_is_tried_with_every_sample_though_one_is_refused(tmp_path: Path):
    odd = HANDLER.replace("bytes(body).decode()", "(int('x') if b'bee' in body else absent)")
    report = examine(archive(tmp_path / "p", odd), choice=CheckSelection.of(["body-forms"]))
    assert failures(report) == {"body-forms": ["form-breaks", "form-breaks", "form-not-accepted", "form-not-accepted"]}


def test_an_exception_behind_the_expected_status_is_a_finding(tmp_path: Path):
    odd = HANDLER.replace(
        "return body if", "if 'bee' in body: absent\n        if 'try' in body: int('x')\n        return body if"
    )
    expect = {"bee.txt": {"status": 503}, "sky.txt": {"status": 503}}
    report = examine(archive(tmp_path / "p", odd, expect=expect), choice=CheckSelection.of(["samples"]))
    (checked,) = [each for each in report.checks if each.name == "samples"]
    assert [(each.code, each.severity) for each in checked.findings] == [
        ("sample-raised", "error"),
        ("sample-raised", "note"),
    ]
    assert (checked.verdict, report.deployable) == ("failed", False)
