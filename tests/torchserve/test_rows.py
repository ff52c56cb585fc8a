import pytest

from marpack.torchserve.context import decode_part, processor_of, row_of
from marpack.torchserve.http import Part, Request


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


def test_everything_stays_bytes_when_decoding_is_switched_off():
    assert decode_part(Part("body", b"{}", "application/json"), decode=False) == bytearray(b"{}")


def test_of_fields_with_one_name_the_last_wins():
    request = Request(id="r", parts=(Part("a", b"1"), Part("b", b"2"), Part("a", b"3")))
    assert row_of(request) == {"a": bytearray(b"3"), "b": bytearray(b"2")}


def test_headers_hold_the_fields_types_the_clients_headers_and_the_servers_own():
    request = Request(
        id="r", parts=(Part("data", b"", "image/png"),), headers=(("explain", "True"), ("X", "y")), url_path="a/b"
    )
    assert processor_of(request).get_request_properties() == {
        "data": {"content-type": "image/png"},
        "X": "y",
        "explain": "False",
        "url_path": "a/b",
    }


def test_a_client_can_set_describe_but_not_explain():
    request = Request(id="r", parts=(), headers=(("describe", "True"),), explain=True)
    assert processor_of(request).get_request_property("explain") == "True"
    assert processor_of(request).get_request_property("describe") == "True"
