import pytest

from marpack.torchserve.context import Context, RequestProcessor, decode_part, processor_of, row_of
from marpack.torchserve.http import Part, Request


def a_context() -> Context:
    return Context("m", "/models/m", {"model": {}}, 4, None, "0.12.0")


def test_a_context_holds_what_the_servers_does_and_nothing_else():
    context = Context("m", "/models/m", {}, 4, 1, "0.12.0", False)
    assert context.system_properties == {
        "model_dir": "/models/m",
        "gpu_id": 1,
        "batch_size": 4,
        "limit_max_image_pixels": False,
        "server_name": "MMS",
        "server_version": "0.12.0",
    }
    assert list(vars(context)) == [
        "model_name", "manifest", "_system_properties", "request_ids", "_request_processor", "_metrics",
        "_limit_max_image_pixels", "model_yaml_config", "stopping_criteria", "header_key_sequence_id",
        "header_key_sequence_start", "header_key_sequence_end",
    ]  # fmt: skip


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


def test_there_are_no_requests_while_initialising():
    context = a_context()
    assert context.get_request_id() is None
    context.set_response_status(500)  # ignored, as on the server
    with pytest.raises(TypeError):
        context.get_request_header(0, "explain")
    context.request_ids = {0: "a", 1: "b"}
    assert [context.get_request_id(), context.get_request_id(1), context.get_request_id(2)] == ["a", "b", None]


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


@pytest.mark.parametrize(
    ("content_type", "raw", "value"),
    [
        ("application/json", b'{"a": [1, 2]}', {"a": [1, 2]}),
        ("application/json", b"{broken", bytearray(b"{broken")),
        ("application/json", b"\xff", bytearray(b"\xff")),
        ("application/json", b"[" * 100_000, bytearray(b"[" * 100_000)),
        ("Application/JSON", b"{}", bytearray(b"{}")),
        ("application/vnd.x+json", b"{}", bytearray(b"{}")),
        ("text/plain", "é".encode(), "é"),
        ("text/csv", b"a,b", "a,b"),
        ("text/plain", b"\xff", bytearray(b"\xff")),
        ("TEXT/plain", b"a", bytearray(b"a")),
        ("", b"a", bytearray(b"a")),
        ("image/png", b"\x89", bytearray(b"\x89")),
    ],
)
def test_values_arrive_as_on_the_server(content_type: str, raw: bytes, value: object):
    got = decode_part(Part("body", raw, content_type))
    assert got == value
    assert type(got) is type(value)


def test_of_fields_with_one_name_the_last_wins_and_decoding_can_be_switched_off():
    request = Request(id="r", parts=(Part("a", b"1"), Part("b", b"2"), Part("a", b"{}", "application/json")))
    assert row_of(request) == {"a": {}, "b": bytearray(b"2")}
    assert row_of(request, decode=False)["a"] == bytearray(b"{}")


def test_headers_hold_the_fields_types_the_clients_headers_and_the_servers_own():
    parts, headers = (Part("data", b"", "image/png"),), (("explain", "True"), ("X", "y"))
    request = Request(id="r", parts=parts, headers=headers, url_path="a/b")
    own = {"data": {"content-type": "image/png"}, "X": "y", "explain": "False", "url_path": "a/b"}
    assert processor_of(request).get_request_properties() == own
    request = Request(id="r", parts=(), headers=(("describe", "True"),), explain=True)  # which a client cannot set
    assert processor_of(request).get_request_properties() == {"describe": "True", "explain": "True", "url_path": ""}
