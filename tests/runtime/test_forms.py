import json

import pytest

from marpack.runtime.forms import FormError, parts_of
from marpack.runtime.frontend import refusal
from marpack.runtime.messages import Part

URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=XX"


def multipart(*sections: str, end: str = "--XX--\r\n") -> bytes:
    return ("".join(f"--XX\r\n{section}\r\n" for section in sections) + end).encode()


def test_a_raw_body_loses_only_its_types_parameters():
    assert parts_of("application/json; charset=utf-8", b"{}") == (Part("body", b"{}", "application/json"),)
    assert parts_of(None, b"x") == (Part("body", b"x", ""),)
    assert parts_of(None, b"") == (Part("body", b"", ""),)


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
        (b"", ()),
        (b"body=1", (Part("body", b"1"),)),
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
    ],
)
def test_what_the_frontend_refuses_is_answered_in_its_words(body: bytes, message: str):
    with pytest.raises(FormError) as caught:
        parts_of(URLENCODED, body)
    response = refusal(caught.value)
    assert (response.status, response.phrase) == (500, "Internal Server Error")
    assert json.loads(response.body) == {"code": 500, "type": "ErrorDataDecoderException", "message": message}


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("Content-Disposition: form-data", "nameAttribute"),
        ('Content-Disposition: attachment; name="a"', "nameAttribute"),
        ('Content-Disposition: form-data; name=""', "empty name"),
        ('Content-Disposition: form-data; name="a"\r\nContent-Transfer-Encoding: base64', "TransferEncoding Unknown"),
        ('Content-Disposition: form-data; name="a"\r\nContent-Type: text/plain; charset=klingon', "klingon"),
    ],
)
def test_sections_that_the_frontend_refuses(head: str, message: str):
    with pytest.raises(FormError, match=message):
        parts_of(MULTIPART, multipart(f"{head}\r\n\r\nx"))


def test_an_unknown_charset_of_the_whole_form_is_forbidden():
    with pytest.raises(FormError) as caught:
        parts_of("multipart/form-data; charset=x; boundary=XX", multipart())
    assert refusal(caught.value).status == 403
    assert json.loads(refusal(caught.value).body)["type"] == "UnsupportedCharsetException"


def test_the_urlencoded_type_is_known_in_any_case():
    assert parts_of("Application/X-WWW-Form-Urlencoded", b"a=1") == (Part("a", b"1"),)


@pytest.mark.parametrize(("written", "name"), [('"a\\"b"', "a\\b"), ('"a;b"', "a b"), ("plain", "plain")])
def test_names_lose_quotes_and_what_separates(written: str, name: str):
    (part,) = parts_of(MULTIPART, multipart(f"Content-Disposition: form-data; name={written}\r\n\r\nx"))
    assert part.name == name


@pytest.mark.parametrize("change", [lambda body: b"\r\n" + body, lambda body: body.replace(b"\r\n", b"\n")])
def test_a_leading_line_end_and_bare_line_feeds_are_fine(change):
    body = change(multipart('Content-Disposition: form-data; name="k"\r\n\r\nv'))
    assert parts_of(MULTIPART, body) == (Part("k", b"v"),)


def test_multipart_fields_have_no_type_and_files_have():
    body = multipart(
        'Content-Disposition: form-data; name="k"\r\nContent-Type: application/json\r\n\r\n{}',
        'Content-Disposition: form-data; name="f"; filename="a.png"\r\nContent-Type: image/png; q=1\r\n\r\nPNG',
        'Content-Disposition: form-data; name="g"; filename="b"\r\n\r\nB',
    )
    assert parts_of(MULTIPART, body) == (
        Part("k", b"{}", ""),
        Part("f", b"PNG", "image/png"),
        Part("g", b"B", "application/octet-stream"),
    )


@pytest.mark.parametrize("body", [b"preamble\r\n--XX\r\n", b"--YY\r\n", b"--XX"])
def test_a_broken_multipart_body_gives_no_fields(body: bytes):
    assert parts_of(MULTIPART, body) == ()


@pytest.mark.parametrize("kind", ["Multipart/Form-Data; boundary=XX", "multipart/form-data"])
def test_what_the_server_does_not_take_for_a_form_is_a_raw_body(kind: str):
    body = multipart('Content-Disposition: form-data; name="k"\r\n\r\nv')
    (part,) = parts_of(kind, body)
    assert (part.name, part.value) == ("body", body)


def test_the_last_of_duplicate_fields_wins_at_the_firsts_place():
    body = multipart(
        *(f'Content-Disposition: form-data; name="{name}"\r\n\r\n{name}{i}' for i, name in enumerate("aba"))
    )
    assert parts_of(MULTIPART, body) == (Part("a", b"a2"), Part("b", b"b1"))


def test_values_may_hold_line_ends_and_delimiters_of_others():
    body = multipart('Content-Disposition: form-data; name="k"\r\n\r\n\r\n--X\r\n\r\n')
    assert parts_of(MULTIPART, body) == (Part("k", b"\r\n--X\r\n\r\n"),)
