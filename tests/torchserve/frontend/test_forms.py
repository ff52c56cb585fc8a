import json

import pytest

from marpack.torchserve.frontend.forms import FORM_TYPE, parts_of, receive
from marpack.torchserve.frontend.headers import FormError, HeadError, TooLargeError
from marpack.torchserve.frontend.http_response import refusal
from marpack.torchserve.http import Part, Request

URLENCODED = "application/x-www-form-urlencoded"


def test_a_raw_body_loses_only_its_types_parameters():
    assert parts_of("application/json; charset=utf-8", b"{}") == (Part("body", b"{}", "application/json"),)
    assert parts_of(None, b"x") == (Part("body", b"x", ""),)
    assert parts_of(None, b"") == (Part("body", b"", ""),)


@pytest.mark.parametrize("kind", ["application/json ;x", URLENCODED + " ;x"])
def test_a_blank_before_the_parameters_is_part_of_the_type(kind: str):
    assert parts_of(kind, b"a=1") == (Part("body", b"a=1", kind.removesuffix(";x")),)


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        (b"a=1&b=2", (Part("a", b"1"), Part("b", b"2"))),
        (b"a=1&b=2&a=3", (Part("a", b"3"), Part("b", b"2"))),
        (b"a=x+y%21;z", (Part("a", b"x y!;z"),)),
        (b"a=", (Part("a", b""),)),
        (b'{"data": 1}', ()),
        (b"a=1&", (Part("a", b"1"),)),
        (b"a&b=2", (Part("a", b""), Part("b", b"2"))),
        (b"b=2&a", (Part("b", b"2"),)),
        (b"a=1\r\n", (Part("a", b"1"),)),
        (b"a=1\r\nb=2", (Part("a", b"1"),)),
        (b"", ()),
        (b"body=1", (Part("body", b"1"),)),
        (b"a=b=c", (Part("a", b"b=c"),)),
        (b"\na=1", (Part("a", b"1"),)),
        (b" a\t=1 ", (Part("a", b"1 "),)),
        (b"a=1\n&b=2", (Part("a", b"1"),)),
        (b"a=1\r", (Part("a", b"1"),)),
        (b"a%3Db=1", (Part("a=b", b"1"),)),
        (b"\xff=\xff", (Part("\ufffd", b"\xff"),)),
        ("\u00e9=\u4f60".encode(), (Part("\u00e9", "\u4f60".encode()),)),
        (b"a=%C3%28", (Part("a", b"\xc3("),)),
    ],
)
def test_urlencoded_forms(body: bytes, parts: tuple[Part, ...]):
    assert parts_of(URLENCODED, body) == parts


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"a=%zz", "Invalid hex byte at index '0' in string: '%zz'"),
        (b"a=%4", "Invalid hex byte at index '0' in string: '%4'"),
        (b"%zz=1", "Bad string: '%zz'"),
        (b"=1", "java.lang.IllegalArgumentException: empty name"),
        (b"&a=1", "java.lang.IllegalArgumentException: empty name"),
        (b"a=1&&b=2", "java.lang.IllegalArgumentException: empty name"),
        (b"+=1", "java.lang.IllegalArgumentException: empty name"),
        (b"\xe9%zz=1", "Bad string: '\ufffd%zz'"),
        (b"a=1&b=x%zz", "Invalid hex byte at index '1' in string: 'x%zz'"),
        (b"a=1\rb", "Bad end of line"),
        (b"a=1\r&b=2", "Bad end of line"),
    ],
)
def test_what_the_frontend_refuses_is_answered_in_its_words(body: bytes, message: str):
    with pytest.raises(FormError) as caught:
        parts_of(URLENCODED, body)
    response = refusal(caught.value)
    assert (response.status, response.phrase) == (500, "Internal Server Error")
    assert json.loads(response.body) == {"code": 500, "type": "ErrorDataDecoderException", "message": message}


def test_the_urlencoded_type_is_known_in_any_case():
    assert parts_of("Application/X-WWW-Form-Urlencoded", b"a=1") == (Part("a", b"1"),)


def test_a_request_is_received_as_it_was_sent():
    request = receive(
        [("X-A", " 1 "), ("content-type", "text/plain; x=y"), ("Expect", "100-continue")],
        b"hi",
        request_id="id",
        url_path="a/b",
        explain=True,
    )
    assert request == Request(
        id="id",
        parts=(Part("body", b"hi", "text/plain"),),
        headers=(("X-A", "1"), ("content-type", "text/plain; x=y")),
        url_path="a/b",
        explain=True,
    )


def test_a_content_type_that_no_header_names_is_added_to_them():
    request = receive([("X-A", "1")], b"hi", request_id="id", content_type="a/b;c")
    assert request.headers == (("Content-Type", "a/b;c"), ("X-A", "1"))
    assert request.parts == (Part("body", b"hi", "a/b"),)
    assert receive([], b"hi", request_id="id", content_type="").headers == ()


def test_fields_stand_for_the_body_of_a_form():
    fields = [Part("a:b", b"1"), Part("f", b"2", "text/plain; format=flowed"), Part("a b", b"3")]
    request = receive([], fields, request_id="id", content_type=FORM_TYPE)
    assert request.parts == (Part("a b", b"3"), Part("f", b"2", "format=flowed"))
    assert request.headers == (("Content-Type", FORM_TYPE),)


@pytest.mark.parametrize("content", [b"hello", [Part("a", b"hello")]])
def test_what_is_too_large_is_refused_and_a_bad_head_before_it(content: bytes | list[Part]):
    with pytest.raises(TooLargeError):
        receive([], content, request_id="id", limit=4)
    with pytest.raises(HeadError):
        receive([("X Y", "1")], content, request_id="id", limit=4)
