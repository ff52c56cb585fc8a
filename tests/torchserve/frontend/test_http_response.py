from http import HTTPStatus

import pytest

from marpack.torchserve.context import Context, RequestProcessor
from marpack.torchserve.frontend.headers import TooLargeError
from marpack.torchserve.frontend.http_response import (
    Sequences,
    death_response,
    error_response,
    kept_headers,
    phrase_of,
    refusal,
)


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
    own = {413, 414, 416, 422, 425}
    assert all(phrase == HTTPStatus(status).phrase for status, phrase in known.items() if status not in own)
    assert known.keys().isdisjoint({208, 226, 306, 418, 451, 508})
    assert [known[status] for status in sorted(own)] == [
        "Request Entity Too Large", "Request-URI Too Long", "Requested Range Not Satisfiable", "Unprocessable Entity",
        "Unordered Collection",
    ]  # fmt: skip


@pytest.mark.parametrize(("signal", "status"), [(None, 500), (11, 500), (9, 507)])
def test_a_dead_worker_is_500_and_out_of_memory_if_it_was_killed(signal: int | None, status: int):
    response = death_response(signal)
    assert response.status == status
    assert b'"message": "Worker died."' in response.body


def test_a_worker_that_takes_its_request_with_it_leaves_no_answer():
    response = death_response(9, lost=True)
    assert (response.status, response.body, response.failed) == (0, b"", True)


def test_a_body_that_is_too_large_is_refused_without_a_word():
    response = refusal(TooLargeError(5, 4))
    assert (response.status, response.phrase, response.body) == (413, "Request Entity Too Large", b"")
    assert (response.content_type, response.failed) == (None, True)


@pytest.mark.parametrize(
    ("names", "count", "survivor"),
    [
        (["X-Score", "x-score"], 12, "x-score"),  # of 16 buckets
        (["x-score", "X-Score"], 13, "X-Score"),  # of 32
        (["X-SCORE", "X-Score"], 24, "X-Score"),
        (["X-Score", "X-SCORE"], 25, "X-SCORE"),  # of 64
    ],
)
def test_a_java_hash_map_grows_when_it_is_three_quarters_full(names: list[str], count: int, survivor: str):
    others = [f"n{number}" for number in range(count - 2)]
    kept = kept_headers(dict.fromkeys([*names, *others], "v"))
    assert kept.keys() - set(others) == {survivor}


@pytest.mark.parametrize("config", [{}, {"sequenceBatching": "true"}, {"sequenceBatching": False}])
def test_no_sequences(config):
    assert Sequences.of(config) is None


@pytest.mark.parametrize(
    ("idle", "stuck"), [(None, True), (0, True), (-1, True), (True, True), ("6000", True), (1, False), (6000, False)]
)
def test_without_an_idle_time_the_server_answers_no_sequence(idle: object, stuck: bool):
    sequences = Sequences.of({"sequenceBatching": True, "sequenceMaxIdleMSec": idle})
    assert sequences == Sequences(stuck)
    assert [answer.status for answer in sequences.refusals(2)] == [500, 500]
    assert b'"type": "NullPointerException"' in sequences.refusals(1)[0].body


def test_a_request_of_no_sequence_begins_one():
    context = Context("m", ".", {}, 1, None, "0.12.0")
    names = ("ts_request_sequence_id", "ts_request_sequence_start")
    requests = [RequestProcessor(sent) for sent in ({}, {names[0]: ""}, {names[0]: "mine"})]
    for request in requests:
        Sequences(stuck=False).enter(request, context)
    first, second, third = ([request.get_request_property(name) for name in names] for request in requests)
    assert (first[0][:7], second[0][:7], first[0] == second[0]) == ("ts-seq-", "ts-seq-", False)
    assert (first[1], second[1]) == ("true", "true")
    assert third == ["mine", None]
