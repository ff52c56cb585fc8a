import base64
import errno
import json
import os
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from refusals import has_code

from marpack.errors import UsageError
from marpack.runner.client import BatchResult
from marpack.runner.inputs import (
    Input,
    RequestDefaults,
    check_requests,
    check_sources,
    count_of,
    data_inputs,
    file_inputs,
    form_input,
    paths_of,
    read_input,
    recorded_inputs,
    refused,
    request_id,
    text_notes,
    type_of,
)
from marpack.runner.results import answered_inputs, batched
from marpack.torchserve.http import Part, Request, RequestError, Response


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.png", "a.json", "sub/c.txt", ".hidden", "sub/.x/y"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    return tmp_path


def names(folder: Path, *sources: str) -> list[str]:
    return [str(Path(path).relative_to(folder)) for path in paths_of(sources)]


def test_folders_are_walked_in_order_without_hidden_files(folder: Path):
    assert names(folder, str(folder)) == ["a.json", "b.png", "sub/c.txt"]
    assert count_of([str(folder), "https://x/y", "-"]) == 5
    only = paths_of([str(folder), f"{folder}/a.json"], name_filter=lambda name: name.endswith(".png"))
    assert [Path(path).name for path in only] == ["b.png", "a.json"]  # every file that is named itself


def test_globs_match_files_recursively_if_they_are_no_files(folder: Path):
    assert names(folder, f"{folder}/**/*.txt") == ["sub/c.txt"]
    assert count_of([f"{folder}/*.png"]) is None
    (folder / "x[1].png").touch()
    assert names(folder, f"{folder}/x[1].png") == ["x[1].png"]


def test_lists_name_further_inputs(folder: Path):
    (folder / "list").write_text(f"# comment\n{folder}/b.png\n\n{folder}/sub\n{folder}/gone.png\n{folder}/*.gone\n")
    assert names(folder, f"@{folder}/list") == ["b.png", "sub/c.txt", "gone.png", "*.gone"]


@pytest.mark.parametrize(
    ("source", "words"),
    [("nowhere.png", "the input does not exist"), ("*.nothing", "matches no file"), ("@nolist", "cannot be read")],
)
def test_what_is_not_there_is_said_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str, words: str):
    monkeypatch.chdir(folder)
    with pytest.raises(UsageError, match=words):
        check_sources(["a.json", source])
    (folder / "empty").mkdir()
    with pytest.raises(UsageError, check=has_code("no-matching-input", where="empty")):
        list(paths_of(["empty"]))


def test_links_are_followed_to_files_but_not_to_folders(folder: Path):
    (folder / "z-loop").symlink_to(folder)
    (folder / "z-link").symlink_to(folder / "a.json")
    (folder / "z-gone").symlink_to(folder / "nowhere")
    assert names(folder, str(folder)) == ["a.json", "b.png", "z-gone", "z-link", "sub/c.txt"]


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.png", b"", "image/png"),
        ("a.JPG", b"", "image/jpeg"),
        ("a.json", b"", "application/json"),
        ("a", b"\x89PNG\r\n\x1a\n...", "image/png"),
        ("a.unknown", b"\xff\xd8\xff", "image/jpeg"),
        ("a", b"GIF89a", "image/gif"),
        ("a", b"II*\0", "image/tiff"),
        ("https://host/a.txt?x=.png", b"", "text/plain"),
        ("a?.png", b"", "image/png"),
        ("a", b"???", "application/octet-stream"),
    ],
)
def test_types_go_by_suffix_then_content(name: str, data: bytes, kind: str):
    assert type_of(name, data) == kind


def test_a_file_is_read_only_when_its_turn_comes(folder: Path):
    inputs = file_inputs([str(folder / "a.json"), str(folder / "b.png")], RequestDefaults())
    assert next(inputs).request.parts == (Part("body", b"{}", "application/json"),)
    (folder / "b.png").write_bytes(b"later")
    assert next(inputs).request.parts == (Part("body", b"later", "image/png"),)


def test_a_file_that_is_gone_by_its_turn_costs_only_itself(folder: Path):
    first, gone, last = file_inputs(
        [str(folder / name) for name in ("a.json", "gone.json", "b.png")], RequestDefaults()
    )
    assert (first.refused, last.refused) == (None, None)
    assert gone.refused.status == 0
    assert (gone.why.kind, gone.why.stage) == ("unreadable-input", "read")
    assert os.strerror(errno.ENOENT) in gone.why.message


def test_a_content_type_given_by_hand_wins_and_is_sent_as_a_header(folder: Path):
    shape = RequestDefaults(
        content_type="application/json; charset=utf-8", headers=(("X", "y"),), explain=True, describe=True
    )
    (item,) = file_inputs([str(folder / "b.png")], shape)
    assert item.request.parts == (Part("body", b"{}", "application/json"),)
    assert item.request.headers == (
        ("Content-Type", "application/json; charset=utf-8"),
        ("X", "y"),
        ("describe", "True"),
    )
    assert item.request.explain


def test_text_given_as_such_is_json_where_it_is_json():
    first, second = data_inputs(['{"a": 1}', "hello"], RequestDefaults())
    assert first.request.parts[0].content_type == "application/json"
    assert second.request.parts[0].content_type == "text/plain"
    assert [first.request.id, second.request.id] == ["00000000-0000-4000-8000-000000000000", request_id(1)]
    for given in ("text/csv", ""):
        (item,) = data_inputs(["{}"], RequestDefaults(content_type=given))
        assert item.request.parts == (Part("body", b"{}", given),)


@pytest.mark.parametrize(("maximum", "taken"), [(2, True), (1, False)])
def test_a_file_larger_than_a_body_may_be_is_refused_unread(folder: Path, maximum: int, taken: bool):
    shape = RequestDefaults(max_request_size=maximum, explain=True)
    (item,) = file_inputs([str(folder / "a.json")], shape)
    assert (item.refused is None, item.outcome is None, item.request.explain) == (taken, taken, True)
    if not taken:
        assert [(response.status, response.body) for response in item.outcome.responses] == [(413, b"")]
        assert [trouble.kind for trouble in item.outcome.troubles] == ["request-too-large"]
        assert item.request.id.endswith("0")


def test_form_fields_are_one_request_as_a_form_sends_it(folder: Path):
    item = form_input([f"data=@{folder}/b.png", "k=v", "k=w"], RequestDefaults())
    assert item.request.parts == (Part("data", b"{}", "image/png"), Part("k", b"w", ""))
    item = form_input(["a:b=1", "a,b=2"], RequestDefaults())
    assert item.request.parts == (Part("a b", b"2"),)
    assert item.request.headers == (("Content-Type", "multipart/form-data; boundary=0123456789abcdef"),)
    assert form_input([" =1"], RequestDefaults()).refused.status == 400


@pytest.mark.parametrize("header", [("X", "a" * 8189), ("X-\xe9", "1")])
def test_headers_that_the_frontend_refuses_refuse_every_input(header: tuple[str, str]):
    shape = RequestDefaults(headers=(header,))
    for item in (*data_inputs(["1"], shape), form_input(["a=1"], shape)):
        assert item.refused.status == 400


@pytest.mark.parametrize("field", ["nothing", "=v", "f=@nowhere.bin"])
def test_wrong_fields_are_refused(field: str):
    with pytest.raises(UsageError):
        form_input([field], RequestDefaults())


def test_pipes_and_files_of_unknown_length_are_read_to_their_end(tmp_path: Path):
    assert read_input("/proc/self/status").startswith(b"Name:")
    (tmp_path / "empty").touch()
    assert read_input(str(tmp_path / "empty")) == b""
    os.mkfifo(tmp_path / "fifo")
    writer = threading.Thread(target=lambda: (tmp_path / "fifo").write_bytes(b"x" * 300_000))
    writer.start()
    assert read_input(str(tmp_path / "fifo")) == b"x" * 300_000
    writer.join()


def test_a_form_that_only_the_server_reads_is_not_blamed_on_the_server():
    assert refused("x", RequestError("broken"), Request(id="", parts=())).why.kind == "refused-form"


def test_text_that_begins_like_json_and_is_none_is_noted():
    for text in ('{"a": 1', " [1,, 2]", '{"a": 1}', "hello", "1.", ""):
        assert bool(list(text_notes([text], None))) is (text in {'{"a": 1', " [1,, 2]"})
        assert not list(text_notes([text], "text/plain"))


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
    headers = [["X-A", " a\t"], ["X-B", "\u20ac"], ["Expect", "100-continue"]]
    (item,) = replayed(tmp_path, {"headers": headers, "content_type": "text/plain "})
    assert item.request.headers == (("Content-Type", "text/plain"), ("X-A", "a"), ("X-B", "\xe2\x82\xac"))


@pytest.mark.parametrize("headers", [{"X": "a" * 8189}, {"X-\xe9": "1"}, {"X Y": "1"}, {"X\nY": "1"}])
def test_headers_that_the_frontend_refuses_are_answered_without_a_handler(tmp_path: Path, headers: dict[str, str]):
    (item,) = replayed(tmp_path, {"headers": headers, "id": "mine"})
    assert (item.refused.status, item.request.id) == (400, "mine")
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
        ('{"body": "x", "form": {}}', "exclude each other"),
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
    assert second.refused.status == 0
    assert re.search(f"(?i){words}", second.why.message)
    assert second.name.endswith("r.jsonl:2")


@pytest.mark.parametrize(("text", "words"), [("a,b,c\n1,2,3\n", "not a request"), ("\n\n", "no requests")])
def test_a_file_that_is_no_requests_file_is_told_at_once(tmp_path: Path, text: str, words: str):
    path = tmp_path / "r.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        check_requests(str(path))
    with pytest.raises(UsageError, check=has_code("unreadable-requests", where=str(tmp_path / "no.jsonl"))):
        list(recorded_inputs(str(tmp_path / "no.jsonl")))


def test_results_have_the_order_of_lines_if_some_of_a_batch_are_refused(tmp_path: Path):
    def outcomes(batches):
        for batch in batches:
            asked.append([request.id for request in batch])
            yield BatchResult(responses=tuple(Response(status=200, body=b"%d" % len(batch)) for _ in batch))

    form = {"content_type": "application/x-www-form-urlencoded", "body": "a=%zz"}
    first = [{"id": "a", "batch": 1}, form | {"batch": 1}, {"id": "b", "batch": 1}]
    items = replayed(tmp_path, *first, form | {"batch": 2}, form, {"id": "c"})
    asked: list[list[str]] = []
    results = [each.result for each in answered_inputs(SimpleNamespace(outcomes=outcomes), items)]
    assert asked == [["a", "b"], ["c"]]
    assert [result.status for result in results] == [200, 400, 200, 400, 400, 200]
    assert [result.input[-1] for result in results] == [*"123456"]
    assert [result.body for result in results if result.status == 200] == ["2", "2", "1"]
