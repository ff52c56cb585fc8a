import pytest

from marpack.torchserve.frontend.headers import HeadError, TooLargeError, bare_type, check_fields, received
from marpack.torchserve.frontend.http_response import refusal
from marpack.torchserve.http import Part


@pytest.mark.parametrize(
    ("value", "read"),
    [("  a  b\t ", "a  b"), (" \t ", ""), ("\xe9", "\xe9"), ("\u20ac", "\xe2\x82\xac"), ("a: b, c", "a: b, c")],
)
def test_values_lose_the_blanks_around_them_and_arrive_in_latin_1(value: str, read: str):
    assert received([("X-A", value)]) == (("X-A", read),)


@pytest.mark.parametrize("name", ["X-\xe9", "X Y", "X\t", "X\nY", "X\r\nY", "X,", "X;", "X=", "X\0", ""])
def test_what_is_no_name_of_a_header_is_refused(name: str):
    with pytest.raises(HeadError) as caught:
        received([("X-A", "1"), (name, "1")])
    answer = refusal(caught.value)
    assert (answer.status, answer.phrase) == (400, "Bad Request")
    assert answer.body == (
        b'{\n  "code": 400,\n  "type": "BadRequestException",\n  "message": "Invalid HTTP message."\n}\n'
    )


def test_odd_names_are_names():
    odd = (("X_Under", "1"), ("x!#$%&'*+-^`|~(){}<>@[]?/\\\"", "2"))
    assert received(odd) == odd


def test_header_lines_of_8192_bytes_are_too_many():
    assert received([("A", "b" * (8191 - len("A: ")))])
    with pytest.raises(HeadError):
        received([("A", "b" * (8192 - len("A: ")))])
    with pytest.raises(HeadError):
        received([(f"X-{number}", "a" * 100) for number in range(200)])


def test_who_asks_for_consent_gets_it_from_the_frontend():
    assert received([("expect", "100-Continue"), ("X-A", "1")]) == (("X-A", "1"),)


@pytest.mark.parametrize(
    ("header", "kind"),
    [("\ttext/x\t", "text/x"), ("text/plain ;x", "text/plain "), (";", ""), ("a/b;charset=x", "a/b")],
)
def test_a_bare_type_is_what_stands_before_the_parameters(header: str, kind: str):
    assert bare_type(header) == kind


def test_fields_weigh_what_a_client_would_write_for_them():
    fields = [Part("name", b"12345", "text/plain"), Part("n", b"", "")]
    size = (4 + 5 + 10 + 110) + (1 + 110)
    check_fields(fields, size)
    with pytest.raises(TooLargeError, match=f"has {size} bytes"):
        check_fields(fields, size - 1)
