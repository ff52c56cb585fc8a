"""Paths into answers, and answers as columns."""

import json
from typing import Any

import pytest
from lazy import pa
from refusals import has_code

from marpack.errors import UsageError
from marpack.protocol.messages import Frame, Trouble
from marpack.scoring.mapping import AnswerColumns, AnswerField, Failure, FieldType, failure_of
from marpack.torchserve.http import Response

OK = Response(status=200, body=b'{"label": "cat", "probs": [0.5, 0.25], "a": {"b": 3}, "odd.key": true, "none": null}')


KEY_ERROR = Trouble(kind="KeyError", message="'x'", frames=(Frame("h.py", 1, "f"),))
CUT_OFF = "200 OK, broken off in the middle"


def ok(body: Any) -> Response:
    return Response(status=200, body=json.dumps(body).encode())


@pytest.mark.parametrize(
    ("path", "steps", "kind"),
    [
        ("label", ("label",), FieldType.TEXT),
        ("$", (), FieldType.TEXT),
        ("$:json", (), FieldType.JSON),
        ("$.a.b:int", ("a", "b"), FieldType.INT),
        ("probs[0]:float", ("probs", 0), FieldType.FLOAT),
        ("$[-1][2]", (-1, 2), FieldType.TEXT),
        ("[1].x", (1, "x"), FieldType.TEXT),
        ('$["a.b:c"]:bool', ("a.b:c",), FieldType.BOOL),
        ("['it is']", ("it is",), FieldType.TEXT),
        ("a b-c", ("a b-c",), FieldType.TEXT),
        ("$[00]", (0,), FieldType.TEXT),
    ],
)
def test_a_path_is_read(path: str, steps: tuple[str | int, ...], kind: FieldType) -> None:
    assert AnswerField.parse("x", path) == AnswerField(steps, kind)


@pytest.mark.parametrize("path", ["", ":int", "a..b", "a[", "a[x]", "$a", "a.", ".a.", 'a["b]', "[1]x", "a.*[]"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(UsageError, check=has_code("invalid-answer-path")):
        AnswerField.parse("x", path)
    with pytest.raises(UsageError, check=has_code("unknown-type", "flaot", " float?", where="x=a:flaot")):
        AnswerField.parse("x", "a:flaot")


@pytest.mark.parametrize(
    ("path", "values", "column"),
    [
        ("v", ["a", 1, 1.5, True, [1, {"b": "ü"}], None], ["a", "1", "1.5", "true", '[1,{"b":"ü"}]', None]),
        ("v:float", [1, 1.5, True, "2", None, 10**400, float("nan")], [1.0, 1.5, None, None, None, None, "nan"]),
        ("v:json", [[float("nan"), 10**30], float("inf")], [f"[null,{10**30}]", "null"]),
        ("v:int", [1, 2.0, 2.5, True, "3", 1 << 63, -(1 << 63)], [1, 2, None, None, None, None, -(1 << 63)]),
        ("v:bool", [True, False, 0, "true", None], [True, False, None, None, None]),
        ("v:json", ["a", [1.5], None, {"k": None}, "\ud800"], ['"a"', "[1.5]", None, '{"k":null}', '"\\ud800"']),
        ("v[1]", [[1, 2], [1], "ab", {"1": 2}], ["2", None, None, None]),
        ("v[-2]:int", [[1, 2], [1], []], [1, None, None]),
        ("v.w", [{"w": "x"}, "w", ["w"], {}], ["x", None, None, None]),
        ("$.v.w", [{"w": "x"}], ["x"]),
    ],
)
def test_what_is_selected_is_of_its_type_or_null(path: str, values: list[Any], column: list[Any]) -> None:
    answers = AnswerColumns({"x": path})
    (found, statuses, errors), failed = answers.columns([ok({"v": value}) for value in values], {})
    told = ["nan" if isinstance(each, float) and each != each else each for each in found.to_pylist()]
    assert told == column
    assert [field.type for field in answers.fields] == [found.type, statuses.type, errors.type]
    assert (failed, errors.null_count) == ({}, len(values))


def test_an_answer_that_is_no_json_is_a_failure_where_some_is_selected() -> None:
    (found, statuses, errors), failed = AnswerColumns({"x": "a"}).columns(
        [ok({"a": "b"}), Response(status=200, body=b"cat"), Response(status=200, body=b"\xff{}")], {}
    )
    assert (found.to_pylist(), statuses.to_pylist()) == (["b", None, None], [200, 200, 200])
    assert errors[0].as_py() is None
    assert errors[1].as_py() == failed[1].message
    assert {place: each.kind for place, each in failed.items()} == {1: "answer-no-json", 2: "answer-no-json"}


def test_a_failure_selects_nothing_and_is_told() -> None:
    known = {0: Failure("503", "503: it broke")}
    (found, statuses, errors), failed = AnswerColumns({"x": "code:int"}).columns(
        [Response(status=503, body=b'{"code": 503}'), ok({"code": 1})], known
    )
    assert (found.to_pylist(), statuses.to_pylist()) == ([None, 1], [503, 200])
    assert (errors.to_pylist(), failed) == (["503: it broke", None], known)


def test_without_select_the_body_is_the_column() -> None:
    bodies = [(200, "süß".encode()), (404, b"no"), (0, b""), (200, b"\xff"), (500, b"\xff")]
    responses = [Response(status=status, body=body) for status, body in bodies]
    known = {1: Failure("404", "404"), 2: Failure("x", "never"), 4: Failure("500", "500")}
    (bodies, statuses, errors), failed = AnswerColumns({}).columns(responses, known)
    assert bodies.to_pylist() == ["süß", "no", None, None, None]
    assert statuses.to_pylist() == [200, 404, 0, 200, 500]
    assert "not UTF-8" in errors[3].as_py()
    assert (failed[3].kind, failed[4].message) == ("answer-no-text", "500")


def test_binary_bodies_are_base64_only_where_that_is_asked_for() -> None:
    answers = AnswerColumns({}, encode_binary=True)
    (bodies, encodings, _, errors), failed = answers.columns([Response(status=200, body=b"\xff"), ok("a")], {})
    assert [field.name for field in answers.fields] == ["answer", "answer_encoding", "status", "error"]
    assert (bodies.to_pylist(), encodings.to_pylist()) == (["/w==", '"a"'], ["base64", "text"])
    assert (failed, errors.type) == ({}, pa.string())


@pytest.mark.parametrize(
    ("response", "troubles", "failure"),
    [
        (OK, (), None),
        (Response(status=299, body=b""), (Trouble(kind="note", message="odd"),), None),
        (Response(status=0, body=b""), (Trouble(kind="null", message="it\nis"),), Failure("null", "it is")),
        (Response(status=404, body=b"no", phrase="Not Found"), (), Failure("404 Not Found", "404 Not Found: no")),
        (Response(status=500, body=b""), (), Failure("500", "500")),
        (Response(status=300, body=b""), (), Failure("300", "300")),
        (
            Response(status=503, body=b"{}", phrase="Sad"),
            (Trouble(kind="diagnostic", message="by the way"), KEY_ERROR),
            Failure("503 Sad: KeyError", "503 Sad: KeyError: missing key 'x'"),
        ),
        (Response(status=200, body=b"half", phrase="OK", reset=True), (), Failure(CUT_OFF, f"{CUT_OFF}: half")),
    ],
)
def test_what_went_wrong_is_one_line(response: Response, troubles: tuple[Trouble, ...], failure: Failure | None):
    assert failure_of(response, troubles) == failure
    long = failure_of(Response(status=500, body=b""), (Trouble(kind="E", message="x" * 10_000),))
    assert len(long.message) == 300


@pytest.mark.parametrize(
    ("trouble", "column", "hinted"),
    [
        (Trouble(kind="KeyError", message="'x'"), "x", True),
        (Trouble(kind="TypeError", message="list indices", frames=(Frame("h.py", 1, "f", 'body["x"]'),)), "x", True),
        (Trouble(kind="KeyError", message="'y'"), "x", False),
        (Trouble(kind="ValueError", message="'x'"), "x", False),
        (Trouble(kind="KeyError", message="'x'"), None, False),
    ],
)
def test_a_handler_that_looks_up_a_bare_column_is_told(trouble: Trouble, column: str | None, *, hinted: bool) -> None:
    failure = failure_of(Response(status=503, body=b""), (trouble,), column)
    assert ("--json-object x" in failure.message) is hinted
