import pytest

from marpack.runtime.forms import FormError, parts_of
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
        (b"body=1", (Part("body", b"1"),)),
    ],
)
def test_urlencoded_forms(body: bytes, parts: tuple[Part, ...]):
    assert parts_of(URLENCODED, body) == parts


def test_a_broken_escape_is_the_frontends_error():
    with pytest.raises(FormError, match="hexadecimal"):
        parts_of(URLENCODED, b"a=%zz")


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
