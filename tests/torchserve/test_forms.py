"""Forms and headers as the frontend reads them; the recordings `forms`, `form-*` and `raw` hold it to a server's."""

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


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        ("text/plain; charset=UTF-8; format=flowed", "format=flowed"),
        ('image/png; name="a;b.png"', 'name="a;b.png"'),
        ("text/plain;", ""),
        ("", ""),
    ],
)
def test_of_a_files_type_the_last_piece_counts(content_type: str, kind: str):
    assert parts_of(MULTIPART, multipart(f"{FILE}\r\nContent-Type: {content_type}\r\n\r\nhi")) == (
        Part("a", b"hi", kind),
    )
    fields = receive([], [Part("a", b"hi", content_type)], request_id="id").parts
    assert fields == (Part("a", b"hi", kind),)


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
