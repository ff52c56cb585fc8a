import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from marpack.errors import UsageError
from marpack.runner.client import BatchResult
from marpack.runner.inputs import Input, check_requests, recorded_inputs
from marpack.runner.results import batched, run
from marpack.torchserve.http import Part, Response


def replayed(tmp_path: Path, *requests: dict[str, Any]) -> list[Input]:
    path = tmp_path / "requests.jsonl"
    path.write_text("\n".join(json.dumps(request) for request in requests) + "\n\n")
    return list(recorded_inputs(str(path)))


B64 = base64.b64encode(b"\x00\xff").decode()


@pytest.mark.parametrize(
    ("request_", "parts"),
    [
        ({"body": "hi", "content_type": "text/plain"}, (Part("body", b"hi", "text/plain"),)),
        ({"base64": B64}, (Part("body", b"\x00\xff", ""),)),
        ({"file": "x.bin", "content_type": "image/png"}, (Part("body", b"file", "image/png"),)),
        ({"json": {"a": [1]}}, (Part("body", b'{"a": [1]}', "application/json"),)),
        ({}, (Part("body", b"", ""),)),
        (
            {"headers": {"content-type": "application/json; x=1"}, "body": "{}"},
            (Part("body", b"{}", "application/json"),),
        ),
        (
            {"form": {"a": "1", "f": {"file": "x.bin"}}},
            (Part("a", b"1"), Part("f", b"file", "application/octet-stream")),
        ),
        (
            {"form": [{"name": "a", "value": "1"}, {"name": "a", "base64": B64, "content_type": "image/png"}]},
            (Part("a", b"\x00\xff", "image/png"),),
        ),
        (  # what a multipart body would make of them
            {"form": {"a:b": "1", "f": {"value": "x", "content_type": "text/plain; format=flowed"}, "a,b": "2"}},
            (Part("a b", b"2"), Part("f", b"x", "format=flowed")),
        ),
        (  # any of the three makes a field a file
            {
                "form": {
                    "name": {"value": "x", "filename": "x.txt"},
                    "base64": {"base64": B64},
                    "file": {"file": "x.bin"},
                    "kind": {"value": "x", "content_type": "text/x"},
                }
            },
            (
                Part("name", b"x", "application/octet-stream"),
                Part("base64", b"\x00\xff"),
                Part("file", b"file", "application/octet-stream"),
                Part("kind", b"x", "text/x"),
            ),
        ),
        ({"content_type": "application/x-www-form-urlencoded", "body": "a=1&b"}, (Part("a", b"1"),)),
    ],
)
def test_a_line_becomes_the_parts_a_server_would_hand_on(tmp_path: Path, request_: dict[str, Any], parts):
    (tmp_path / "x.bin").write_bytes(b"file")
    (item,) = replayed(tmp_path, request_)
    assert item.request.parts == parts


def test_headers_path_and_kind_are_kept(tmp_path: Path):
    (item,) = replayed(
        tmp_path,
        {"headers": [["X-A", "1"], ["X-A", "2"]], "url_path": "a/b", "explain": True, "describe": True, "id": "mine"},
    )
    assert item.request.headers == (("X-A", "1"), ("X-A", "2"), ("describe", "True"))
    assert (item.request.url_path, item.request.explain, item.request.id) == ("a/b", True, "mine")


def test_headers_are_kept_as_the_server_reads_them(tmp_path: Path):
    headers = [["X-A", " a\t"], ["X-B", "\u20ac"], ["Expect", "100-continue"]]
    (item,) = replayed(tmp_path, {"headers": headers, "content_type": "text/plain "})
    assert item.request.headers == (("Content-Type", "text/plain"), ("X-A", "a"), ("X-B", "\xe2\x82\xac"))


def test_a_form_of_fields_has_the_content_type_of_one(tmp_path: Path):
    item, typed = replayed(tmp_path, {"form": {"a": "1"}}, {"form": {"a": "1"}, "headers": {"content-type": "x/y"}})
    assert item.request.headers == (("Content-Type", "multipart/form-data; boundary=0123456789abcdef"),)
    assert typed.request.headers == (("content-type", "x/y"),)


@pytest.mark.parametrize("headers", [{"X": "a" * 8189}, {"X-\xe9": "1"}, {"X Y": "1"}, {"X\nY": "1"}])
def test_headers_that_the_frontend_refuses_are_answered_without_a_handler(tmp_path: Path, headers: dict[str, str]):
    (item,) = replayed(tmp_path, {"headers": headers, "id": "mine"})
    assert item.refused is not None
    assert (item.refused.status, item.request.id) == (400, "mine")
    assert item.why is not None
    assert item.why.kind == "refused-head"


def test_requests_with_one_batch_value_go_together(tmp_path: Path):
    items = replayed(tmp_path, {"batch": 1}, {"batch": 1}, {}, {}, {"batch": "b"}, {"batch": "b"}, {"batch": "b"})
    assert [len(group) for group in batched(items, 1)] == [2, 1, 1, 3]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "truncated"),
        ("[]", "object"),
        ('{"bodi": "x"}', "bodi"),
        ('{"body": "x", "form": {}}', "more than one"),
        ('{"base64": "!"}', "base64|padding|character"),
        ('{"form": [{"value": "x"}]}', "no name"),
        ('{"file": "nowhere"}', "cannot be read"),
        (f'{{"json": {"[" * 1500}{"]" * 1500}}}', "nested too deeply"),
    ],
)
def test_a_line_that_is_no_request_is_named_and_costs_only_itself(tmp_path: Path, line: str, words: str):
    path = tmp_path / "r.jsonl"
    path.write_text(f"{{}}\n{line}\n{{}}\n")
    first, second, third = recorded_inputs(str(path))
    assert (first.refused, third.refused) == (None, None)
    assert second.refused is not None
    assert second.refused.status == 0
    assert second.why is not None
    assert re.search(f"(?i){words}", second.why.message)
    assert second.name.endswith("r.jsonl:2")


@pytest.mark.parametrize(("text", "words"), [("a,b,c\n1,2,3\n", "no request"), ("\n\n", "no requests")])
def test_a_file_that_is_no_requests_file_is_told_at_once(tmp_path: Path, text: str, words: str):
    path = tmp_path / "r.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        check_requests(str(path))


def test_a_requests_file_that_is_not_there_is_said(tmp_path: Path):
    with pytest.raises(UsageError) as caught:
        list(recorded_inputs(str(tmp_path / "no.jsonl")))
    assert (caught.value.code, caught.value.where) == ("unreadable-requests", str(tmp_path / "no.jsonl"))


def test_a_form_that_the_frontend_refuses_is_answered_without_a_handler(tmp_path: Path):
    form = {"content_type": "application/x-www-form-urlencoded", "body": "a=%zz", "batch": 1}
    items = replayed(tmp_path, {"batch": 1}, form, {"batch": 1})
    assert [item.refused is not None for item in items] == [False, True, False]
    assert [len(group) for group in batched(items, 1)] == [3]
    assert items[1].refused is not None
    assert items[1].refused.status == 400


class Echo:
    """Answers each request with its batch's size, and remembers the batches."""

    def __init__(self):
        self.asked = []

    def outcomes(self, batches):
        for batch in batches:
            self.asked.append([request.id for request in batch])
            yield BatchResult(responses=tuple(Response(status=200, body=b"%d" % len(batch)) for _ in batch))


def test_results_stand_in_the_order_of_lines_whoever_of_a_batch_is_refused(tmp_path: Path):
    form = {"content_type": "application/x-www-form-urlencoded", "body": "a=%zz"}
    lines = [
        {"id": "a", "batch": 1},
        form | {"batch": 1},
        {"id": "b", "batch": 1},
        form | {"batch": 2},
        form,
        {"id": "c"},
    ]
    pool = Echo()
    results = list(run(pool, replayed(tmp_path, *lines)))  # type: ignore[arg-type]
    assert pool.asked == [["a", "b"], ["c"]]
    assert [(result.status, result.input[-1]) for result in results] == [
        (200, "1"), (400, "2"), (200, "3"), (400, "4"), (400, "5"), (200, "6"),
    ]  # fmt: skip
    assert [result.body for result in results if result.status == 200] == ["2", "2", "1"]
