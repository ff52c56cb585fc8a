import codecs
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marpack.torchserve.frontend.forms import parts_of
from marpack.torchserve.frontend.headers import FormError, UnreadFormError
from marpack.torchserve.frontend.http_response import refusal
from marpack.torchserve.frontend.multipart_headers import _CHARSETS, part_type
from marpack.torchserve.http import Part

MULTIPART = "multipart/form-data; boundary=XX"
NAMED = 'Content-Disposition: form-data; name="a"'
FILE = f'{NAMED}; filename="f"'


def multipart(*sections: str, end: str = "--XX--\r\n") -> bytes:
    return ("".join(f"--XX\r\n{section}\r\n" for section in sections) + end).encode()


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("Content-Disposition: form-data", "nameAttribute"),
        ('Content-Disposition: attachment; name="a"', "nameAttribute"),
        ('Content-Disposition: form-data; name=""', "empty name"),
        (f"{FILE}\r\nContent-Transfer-Encoding: base64", "TransferEncoding Unknown: base64"),
        (f"{FILE}\r\nContent-Transfer-Encoding: ", "TransferEncoding Unknown: $"),
        (f"{FILE}\r\nContent-Length: 0\r\nContent-Length: 1", "java.io.IOException: Out of size: 2 > 1"),
        (f"{FILE}\r\nContent-Type: text/plain; charset", '"field" is null'),
        (f"{FILE}\r\nContent-Type: text/plain; charset=", "^$"),
        (f"{FILE}\r\nContent-Type: text/plain; charset=utf 8", "^utf 8$"),
        (f"{FILE}\r\nContent-Type: text/plain; charset=utf-8-sig", "UnsupportedCharsetException: utf-8-sig"),
        (f"{FILE}\r\nContent-Type: ,", "Index 1 out of bounds for length 1"),
        ('Content-Disposition: form-data; name="d"; filename', "Index 1 out of bounds for length 1"),
        ('Content-Disposition: form-data; name=":"', "empty name"),
        ("Content-Disposition: form-data; name=d; filename*=x", "Index 2 out of bounds for length 1"),
        ("Content-Disposition: form-data; name=d; filename*=klingon''x", "UnsupportedCharsetException: klingon"),
        ("Content-Disposition: form-data; name=d; filename*=utf-8''%zz", "IllegalArgumentException: %zz"),
        ("Content-Disposition: form-data; name=d; filename*=utf-8''x%4", "IllegalArgumentException: x%4"),
        ('Content-Disposition: form-data; name="a"\r\nContent-Type: text/plain; charset=klingon', "klingon"),
    ],
)
def test_sections_that_the_frontend_refuses(head: str, message: str):
    with pytest.raises(FormError, match=message):
        parts_of(MULTIPART, multipart(f"{head}\r\n\r\nhi"))


def test_an_unknown_charset_of_the_whole_form_is_forbidden():
    with pytest.raises(FormError) as caught:
        parts_of("multipart/form-data; charset=x; boundary=XX", multipart())
    assert refusal(caught.value).status == 403
    assert json.loads(refusal(caught.value).body)["type"] == "UnsupportedCharsetException"


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
        'Content-Disposition: form-data; name="f"; filename="a.png"\r\nContent-Type: image/png\r\n\r\nPNG',
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


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        ("text/plain; charset=utf-8", "text/plain"),
        ('text/plain;charset="UTF-8"', "text/plain"),
        ("text/plain ; charset=utf-8", "text/plain"),
        ("text/plain; format=flowed", "format=flowed"),
        ("text/plain; charset=UTF-8; format=flowed", "format=flowed"),
        ('image/png; name="a;b.png"', 'name="a;b.png"'),
        ("text/plain, application/json", "application/json"),
        ("text/plain;", ""),
        ("; charset=utf-8", ""),
        ("", ""),
    ],
)
def test_of_a_files_type_the_last_piece_counts(content_type: str, kind: str):
    assert parts_of(MULTIPART, multipart(f"{FILE}\r\nContent-Type: {content_type}\r\n\r\nhi")) == (
        Part("a", b"hi", kind),
    )
    assert part_type(content_type) == kind


@pytest.mark.parametrize(
    "content_type",
    [
        "multipart/form-data; a=b; boundary=XX",
        "multipart/form-data;boundary=XX;charset=latin1",
        "multipart/form-data; charset=gbk; boundary=XX",
        'multipart/form-data;  BoundaryX="XX"  ',
        "multipart/form-data, multipart/form-data; boundary=XX; boundary=YY",
        "multipart/form-data-x; boundary=XX",
    ],
)
def test_boundaries_are_found_where_the_server_finds_them(content_type: str):
    assert parts_of(content_type, multipart(f"{NAMED}\r\n\r\nhi")) == (Part("a", b"hi"),)


@pytest.mark.parametrize(
    "content_type",
    [
        "multipart/form-data; boundary = XX",
        "multipart/form-data; boundary='XX'",
        "multipart/form-data; a=b; boundary=XX; c=d",
        "multipart/form-data; boundary=YY; boundary=XX",
    ],
)
def test_another_boundary_finds_no_fields(content_type: str):
    assert parts_of(content_type, multipart(f"{NAMED}\r\n\r\nhi")) == ()


@pytest.mark.parametrize(
    ("content_type", "status", "kind", "message"),
    [
        ("multipart/form-data;boundary", 500, "ErrorDataDecoderException", "Needs a boundary value"),
        ("multipart/form-data; boundary=", 500, "StringIndexOutOfBoundsException", "String index out of range: 0"),
        ("multipart/form-data; boundary=XX; charset=x", 403, "UnsupportedCharsetException", "x"),
        ("multipart/form-data; boundary=XX; charset=x y", 403, "IllegalCharsetNameException", "x y"),
        ("multipart/form-data; boundary=XX; charset=", 403, "IllegalCharsetNameException", ""),
    ],
)
def test_content_types_that_the_frontend_refuses(content_type: str, status: int, kind: str, message: str):
    with pytest.raises(FormError) as caught:
        parts_of(content_type, multipart())
    assert json.loads(refusal(caught.value).body) == {"code": status, "type": kind, "message": message}


@pytest.mark.parametrize(
    "head",
    [
        "CONTENT-DISPOSITION: FORM-DATA; NAME=a",
        "Content-Disposition:form-data;name=a",
        "Content-Disposition : form-data ; name = a",
        ' Content-Disposition: form-data; x="y"; name="a"',
        'Content-Disposition: form-data; name="d"; name="a"',
        f"{NAMED}\r\ngarbage line\r\nX-Empty:",
        f"{NAMED}\r\nContent-Length: 1",
        f"{NAMED}\r\nContent-Transfer-Encoding: base64",
        f"Content-Type: application/json\r\n{NAMED}",
    ],
)
def test_heads_of_a_field_named_a(head: str):
    assert parts_of(MULTIPART, multipart(f"{head}\r\n\r\nhi")) == (Part("a", b"hi"),)


@pytest.mark.parametrize(
    ("body", "values"),
    [
        (f"--XX  \r\n{NAMED}\r\n\r\nA\r\n--XX--\r\n", []),
        (f"--XX\r\n{NAMED}\r\n--XX--\r\n", []),
        (f"--XX\r\n{NAMED}\r\n\r\nABC", []),
        (f" \r\n--XX\r\n{NAMED}\r\n\r\nA\r\n--XX--", [b"A"]),
        (f"--XX\r\n{NAMED}\r\n\r\n--XX--", [b""]),
        (f"--XX\r\n{NAMED}\r\n\r\nA\r\r\n--XX--\r\n", [b"A\r"]),
        (f"--XX\r\n{NAMED}\r\n\r\nA\r--XX\r\nB\r\n--XX--\r\n", [b"A\r--XX\r\nB"]),
        (f"--XX\r\n{NAMED}\r\n\r\nA\r\n--X\nB\n--XX--\n", [b"A\r\n--X\nB"]),
        (f"--XX\r\n{NAMED}\r\n\r\nA\r\n--XX\r\n{FILE}\r\n\r\nABC", [b"A"]),
        (f"--XX\r\n{NAMED}\r\n\r\nA\r\n--XX--\r\n--XX\r\n{NAMED}\r\n\r\nB\r\n--XX--\r\n", [b"A"]),
    ],
)
def test_values_end_before_the_delimiter_of_a_line_and_a_cut_body_counts_as_far_as_it_went(body: str, values):
    assert [part.value for part in parts_of(MULTIPART, body.encode())] == values


def test_a_mixed_section_is_refused():
    with pytest.raises(UnreadFormError, match="multipart/mixed"):
        parts_of(MULTIPART, multipart(f"{NAMED}\r\nContent-Type: multipart/mixed; boundary=II\r\n\r\n--II--"))


@pytest.mark.parametrize("name", sorted(_CHARSETS))
def test_a_form_may_be_in_any_charset_that_clients_send(name: str):
    assert parts_of(f"{MULTIPART}; charset={name.upper()}", b"") == ()
    assert codecs.lookup(name)


PIECES = (
    *(
        b"--XX\r\n",
        b"--XX--\r\n",
        b"--XX",
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b";",
        b":",
        b"=",
        b",",
        b'"',
        b"\\",
        b"\xe9",
        b"\0",
    ),
    *(NAMED.encode() + b"\r\n\r\nx\r\n", FILE.encode(), b"Content-Type: ", b"multipart/mixed; boundary=I", b"--I\r\n"),
    *(b"Content-Disposition: ", b"form-data", b"attachment", b"name=a", b"filename=b", b"filename*=", b"utf-8''%41"),
    *(b"Content-Length: 3\r\n", b"charset=utf-8", b"charset=x"),
)


@settings(deadline=None)
@given(st.binary(max_size=300) | st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join))
def test_any_body_is_taken_apart_or_refused(body: bytes):
    try:
        parts = parts_of(MULTIPART, body)
    except FormError:
        return
    assert all(part.value in body for part in parts)
