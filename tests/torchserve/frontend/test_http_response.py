import pytest

from marpack.torchserve.frontend.http_response import death_response, error_response, phrase_of


def test_an_error_is_the_servers_json():
    response = error_response(503, "Prediction failed")
    assert response.body == (
        b'{\n  "code": 503,\n  "type": "InternalServerException",\n  "message": "Prediction failed"\n}\n'
    )
    assert (response.status, response.phrase, response.content_type) == (503, "Service Unavailable", "application/json")


def test_messages_keep_their_letters_and_escape_what_javascript_cannot_hold():
    body = error_response(418, 'é <&> "\\ \n \u2028 \x00 \x7f').body.decode()
    assert '"message": "é <&> \\"\\\\ \\n \\u2028 \\u0000 \x7f"' in body


def test_an_error_that_claims_success_goes_out_as_a_placeholder():
    response = error_response(200, "no")
    assert (response.status, response.phrase, response.body, response.content_type) == (200, "", b"error", None)


@pytest.mark.parametrize(
    ("status", "phrase"),
    [(404, "Not Found"), (418, "Client Error (418)"), (299, "Success (299)"), (600, "Unknown Status (600)")],
)
def test_phrases_are_the_http_librarys(status: int, phrase: str):
    assert phrase_of(status) == phrase


def test_phrases_do_not_change_with_pythons():
    known = {status: phrase for status in range(600) if f"({status})" not in (phrase := phrase_of(status))}
    assert len(known) == 57
    assert known.keys().isdisjoint({208, 226, 306, 418, 451, 508})
    assert [known[status] for status in (413, 414, 416, 422, 425)] == [
        "Request Entity Too Large", "Request-URI Too Long", "Requested Range Not Satisfiable", "Unprocessable Entity",
        "Unordered Collection",
    ]  # fmt: skip


@pytest.mark.parametrize(("signal", "status"), [(None, 500), (11, 500), (9, 507)])
def test_a_dead_worker_is_500_and_out_of_memory_if_it_was_killed(signal: int | None, status: int):
    response = death_response(signal)
    assert response.status == status
    assert b'"message": "Worker died."' in response.body
