import pytest

from marpack.torchserve.context import Context, RequestProcessor, processor_of
from marpack.torchserve.http import Part, Request


def a_context() -> Context:
    return Context("m", "/models/m", {"model": {}}, 4, None, "0.12.0")


def test_answers_keep_status_headers_and_content_type_apart_by_index():
    context = a_context()
    context.request_processor = [RequestProcessor({"X-Odd": "1"}), RequestProcessor({})]
    assert [context.get_request_header(0, name) for name in ("X-Odd", "x-odd")] == ["1", None]
    assert context.get_all_request_header(1) == {}
    context.set_response_status(404, "nope", 1)
    context.set_response_header(1, "X-A", "b")
    context.set_response_content_type(0, "text/plain")
    assert context.get_response_status(0) == (200, None)
    assert context.get_response_status(1) == (404, "nope")
    assert context.get_response_headers(1) == {"X-A": "b"}
    assert context.get_response_content_type(0) == "text/plain"
    context.set_all_response_status(500, "all")
    assert {context.get_response_status(index) for index in (0, 1)} == {(500, "all")}

    context.request_processor = [None, RequestProcessor({})]  # type: ignore[list-item]  # as handlers' own tests do
    context.set_response_status(500)
    context.set_response_status(404, idx=1)
    assert context.get_response_status(1) == (404, "")


def test_the_environment_may_rename_the_sequence_headers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TS_REQUEST_SEQUENCE_ID", "seq")
    context = a_context()
    context.request_processor = [RequestProcessor({"seq": "s1"})]
    assert context.get_sequence_id(0) == "s1"
    assert context.header_key_sequence_start == "ts_request_sequence_start"


def test_a_context_is_equal_by_value_and_not_hashable():
    assert a_context() == a_context()
    other = a_context()
    other.stopping_criteria = {}
    assert (a_context() == other, a_context() == object()) == (False, False)
    with pytest.raises(TypeError):
        hash(a_context())


def test_headers_hold_the_fields_types_the_clients_headers_and_the_servers_own():
    parts, headers = (Part("data", b"", "image/png"),), (("explain", "True"), ("X", "y"))
    request = Request(id="r", parts=parts, headers=headers, url_path="a/b")
    own = {"data": {"content-type": "image/png"}, "X": "y", "explain": "False", "url_path": "a/b"}
    assert processor_of(request).get_request_properties() == own
    request = Request(id="r", parts=(), headers=(("describe", "True"),), explain=True)  # which a client cannot set
    assert processor_of(request).get_request_properties() == {"describe": "True", "explain": "True", "url_path": ""}
