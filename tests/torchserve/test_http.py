import pytest

from marpack.torchserve.forms import bare_type, read_headers
from marpack.torchserve.http import (
    HeadError,
    TooLargeError,
    death_response,
    error_response,
    phrase_of,
    sendable_headers,
)


@pytest.mark.parametrize("name", ["X-\xe9", "X Y", "X\t", "X\nY", "X\r\nY", "X,", "X;", "X=", "X\0", ""])
def test_what_is_no_name_of_a_header_is_refused(name: str):
    with pytest.raises(HeadError) as caught:
        read_headers([("X-A", "1"), (name, "1")])
    answer = caught.value.response
    assert (answer.status, answer.phrase) == (400, "Bad Request")
    assert answer.body == (
        b'{\n  "code": 400,\n  "type": "BadRequestException",\n  "message": "Invalid HTTP message."\n}\n'
    )


def test_header_lines_of_8192_bytes_are_too_many():
    assert read_headers([("A", "b" * (8191 - len("A: ")))])
    with pytest.raises(HeadError):
        read_headers([("A", "b" * (8192 - len("A: ")))])
    with pytest.raises(HeadError):
        read_headers([(f"X-{number}", "a" * 100) for number in range(200)])


def test_odd_names_are_names_and_the_frontend_answers_expect():
    odd = (("X_Under", "1"), ("x!#$%&'*+-^`|~(){}<>@[]?/\\\"", "2"))
    assert read_headers([*odd, ("expect", "100-Continue")]) == odd
    assert read_headers([("X-A", "\u20ac")]) == (("X-A", "\xe2\x82\xac"),)  # values arrive in Latin-1


def test_a_bare_type_is_what_stands_before_the_parameters_and_phrases_are_the_standard_ones():
    kinds = {"\ttext/x\t": "text/x", "text/plain ;x": "text/plain ", ";": "", "a/b;charset=x": "a/b"}
    assert {header: bare_type(header) for header in kinds} == kinds
    phrases = {404: "Not Found", 413: "Request Entity Too Large", 422: "Unprocessable Entity", 299: "", 600: ""}
    assert {status: phrase_of(status) for status in phrases} == phrases


def test_an_error_is_the_servers_json():
    response = error_response(503, 'é <&> "\\ \n \u2028 \x00 \x7f')
    message = '"é <&> \\"\\\\ \\n \\u2028 \\u0000 \x7f"'
    body = f'{{\n  "code": 503,\n  "type": "InternalServerException",\n  "message": {message}\n}}\n'
    assert response.body == body.encode()
    assert (response.status, response.phrase, response.content_type) == (503, "Service Unavailable", "application/json")
    response = error_response(200, "no")  # one that claims success goes out as a placeholder
    assert (response.status, response.phrase, response.body, response.content_type) == (200, "", b"error", None)


def test_a_dead_worker_is_500_or_out_of_memory_and_may_take_its_request_with_it():
    assert [death_response(signal).status for signal in (None, 11, 9)] == [500, 500, 507]
    assert b'"message": "Worker died."' in death_response(9).body
    lost = death_response(9, lost=True)
    assert (lost.status, lost.body, lost.failed) == (0, b"", True)


def test_a_body_that_is_too_large_is_refused_without_a_word():
    response = TooLargeError(5, 4).response
    assert (response.status, response.phrase, response.body) == (413, "Request Entity Too Large", b"")
    assert (response.content_type, response.failed) == (None, True)
    sent = sendable_headers({"X-Score": "1", "Pragma": "mine", "x-score": "2", "X-L": "caf\xe9 \u20ac"})
    assert sent == {"x-score": "2", "X-L": "caf\xe9 ?"}  # of names that differ in case the last remains
