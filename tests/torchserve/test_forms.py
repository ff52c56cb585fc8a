import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marpack.torchserve.forms import FORM_TYPE, parts_of, receive
from marpack.torchserve.http import HeadError, Part, Request, RequestError, TooLargeError

URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=XX"
NAMED = 'Content-Disposition: form-data; name="a"'
FILE = f'{NAMED}; filename="f"'


def multipart(*sections: str, end: str = "--XX--\r\n") -> bytes:
    return ("".join(f"--XX\r\n{section}\r\n" for section in sections) + end).encode()


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        ("application/json; charset=utf-8", "application/json"),
        ("application/json ;x", "application/json "),  # a blank before the parameters is part of the type
        (f"{URLENCODED} ;x", f"{URLENCODED} "),
        ("Multipart/Form-Data; boundary=XX", "Multipart/Form-Data"),
        ("multipart/form-data", "multipart/form-data"),
        (None, ""),
    ],
)
def test_a_raw_body_loses_only_its_types_parameters(content_type: str | None, kind: str):
    for body in (b"a=1", b"", multipart(f"{NAMED}\r\n\r\nv")):
        assert parts_of(content_type, body) == (Part("body", body, kind),)


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
    "body", b"a=%zz a=%4 %zz=1 =1 &a=1 a=1&&b=2 +=1 \xe9%zz=1 a=1&b=x%zz a=1\rb a=1\r&b=2".split(b" ")
)
def test_a_malformed_urlencoded_form_is_a_bad_request(body: bytes):
    with pytest.raises(RequestError) as caught:
        parts_of(URLENCODED.title(), body)
    response = caught.value.response
    assert (response.status, response.phrase) == (400, "Bad Request")
    assert json.loads(response.body) == {"code": 400, "type": "BadRequestException", "message": caught.value.message}


def test_a_request_is_received_as_it_was_sent():
    sent = [("X-A", " 1 "), ("content-type", "text/plain; x=y"), ("Expect", "100-continue")]
    request = receive(sent, b"hi", request_id="id", url_path="a/b", explain=True)
    parts, kept = (Part("body", b"hi", "text/plain"),), (("X-A", "1"), ("content-type", "text/plain; x=y"))
    assert request == Request(id="id", parts=parts, headers=kept, url_path="a/b", explain=True)


def test_a_content_type_that_no_header_names_is_added_to_them_and_fields_stand_for_a_body():
    request = receive([("X-A", "1")], b"hi", request_id="id", content_type="a/b;c")
    assert request.headers == (("Content-Type", "a/b;c"), ("X-A", "1"))
    assert request.parts == (Part("body", b"hi", "a/b"),)
    assert receive([], b"hi", request_id="id", content_type="").headers == ()
    fields = [Part("a:b", b"1"), Part("f", b"2", "text/plain; format=flowed"), Part("a b", b"3")]
    request = receive([], fields, request_id="id", content_type=FORM_TYPE)
    assert request.parts == (Part("a b", b"3"), Part("f", b"2", "format=flowed"))
    assert request.headers == (("Content-Type", FORM_TYPE),)


def test_what_is_too_large_is_refused_and_a_bad_head_before_it():
    for content in (b"hello", [Part("a", b"hello")]):
        with pytest.raises(TooLargeError):
            receive([], content, request_id="id", limit=4)
        with pytest.raises(HeadError):
            receive([("X Y", "1")], content, request_id="id", limit=4)


def test_fields_count_with_what_a_client_writes_around_them():
    fields = [Part("name", b"12345", "text/plain"), Part("n", b"", "")]
    size = (4 + 5 + 10 + 110) + (1 + 110)
    receive([], fields, request_id="id", limit=size)
    with pytest.raises(TooLargeError, match=f"has {size} bytes"):
        receive([], fields, request_id="id", limit=size - 1)


@pytest.mark.parametrize(
    ("head", "word"),
    [
        ("Content-Disposition: form-data", "name"),
        ('Content-Disposition: attachment; name="a"', "name"),
        ('Content-Disposition: form-data; name=""', "name"),
        ('Content-Disposition: form-data; name=":"', "name"),
        ('Content-Disposition: form-data; name="d"; filename', "parameter"),
        ('Content-Disposition: form-data; name="d";', "parameter"),
        (f"{FILE}\r\nContent-Transfer-Encoding: base64", "base64"),
        (f"{NAMED}\r\nContent-Type: multipart/mixed; boundary=II", "multipart/mixed"),
    ],
)
def test_a_malformed_section_is_a_bad_request(head: str, word: str):
    with pytest.raises(RequestError, match=word) as caught:
        parts_of(MULTIPART, multipart(f"{head}\r\n\r\nhi"))
    assert caught.value.status == 400
    with pytest.raises(RequestError, match="boundary"):
        parts_of("multipart/form-data; boundary=", multipart())


def test_names_lose_quotes_and_what_separates():
    for written, name in (('"a\\"b"', "a\\b"), ('"a;b"', "a b"), ("plain", "plain")):
        (part,) = parts_of(MULTIPART, multipart(f"Content-Disposition: form-data; name={written}\r\n\r\nx"))
        assert part.name == name


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        (b"\r\n" + multipart(f"{NAMED}\r\n\r\nv"), (Part("a", b"v"),)),
        (multipart(f"{NAMED}\r\n\r\nv").replace(b"\r\n", b"\n"), (Part("a", b"v"),)),
        (
            multipart(
                'Content-Disposition: form-data; name="k"\r\nContent-Type: application/json\r\n\r\n{}',
                'Content-Disposition: form-data; name="f"; filename="a.png"\r\nContent-Type: image/png\r\n\r\nPNG',
                'Content-Disposition: form-data; name="g"; filename="b"\r\n\r\nB',
                "Content-Disposition: form-data; name=h; filename*=utf-8''%C3%A9\r\nContent-Type: a/b\r\n\r\nhi",
            ),
            (
                *(Part("k", b"{}", ""), Part("f", b"PNG", "image/png")),
                *(Part("g", b"B", "application/octet-stream"), Part("h", b"hi", "a/b")),
            ),
        ),
        (
            multipart(*(f"Content-Disposition: form-data; name={name}\r\n\r\n{i}" for i, name in enumerate("aba"))),
            (Part("a", b"2"), Part("b", b"1")),
        ),
        (multipart(f"{NAMED}\r\n\r\n\r\n--X\r\n\r\n"), (Part("a", b"\r\n--X\r\n\r\n"),)),
        *((body, ()) for body in (b"preamble\r\n--XX\r\n", b"--YY\r\n", b"--XX")),
    ],
)
def test_multipart_forms(body: bytes, parts: tuple[Part, ...]):
    assert parts_of(MULTIPART, body) == parts


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        ("text/plain; charset=utf-8", "text/plain"),
        ('text/plain;charset="UTF-8"', "text/plain"),
        ("text/plain ; charset=utf-8", "text/plain"),
        ("text/plain; format=flowed", "format=flowed"),
        ("text/plain; charset=UTF-8; format=flowed", "format=flowed"),
        ('image/png; name="a;b.png"', 'name="a;b.png"'),
        ("text/plain;", ""),
        ("; charset=utf-8", ""),
        ("", ""),
    ],
)
def test_of_a_files_type_the_last_piece_counts(content_type: str, kind: str):
    assert parts_of(MULTIPART, multipart(f"{FILE}\r\nContent-Type: {content_type}\r\n\r\nhi")) == (
        Part("a", b"hi", kind),
    )
    fields = receive([], [Part("a", b"hi", content_type)], request_id="id").parts
    assert fields == (Part("a", b"hi", kind),)


@pytest.mark.parametrize(
    "content_type",
    [
        "multipart/form-data; a=b; boundary=XX",
        "multipart/form-data;boundary=XX;charset=latin1",
        "multipart/form-data; charset=gbk; boundary=XX",
        "multipart/form-data;  Boundary=XX  ",
        "multipart/form-data-x; boundary=XX",
    ],
)
def test_boundaries_are_found_where_the_server_finds_them(content_type: str):
    body = multipart(f"{NAMED}\r\n\r\nhi")
    assert parts_of(content_type, body) == (Part("a", b"hi"),)
    assert parts_of(content_type.replace("XX", "'XX'"), body) == ()


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


PIECES = (
    *(b"--XX\r\n", b"--XX--\r\n", b"--XX", b"\r\n", *(bytes([each]) for each in b'\n\r ;:=,"\\\xe9\0')),
    *(NAMED.encode() + b"\r\n\r\nx\r\n", FILE.encode(), b"Content-Type: ", b"multipart/mixed; boundary=I", b"--I\r\n"),
    *(b"Content-Disposition: ", b"form-data", b"attachment", b"name=a", b"filename=b", b"filename*=", b"utf-8''%41"),
    *(b"Content-Length: 3\r\n", b"charset=utf-8", b"charset=x"),
)


@settings(deadline=None)
@given(st.binary(max_size=300) | st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join))
def test_any_body_is_taken_apart_or_refused(body: bytes):
    try:
        parts = parts_of(MULTIPART, body)
    except RequestError:
        return
    assert all(part.value in body for part in parts)
