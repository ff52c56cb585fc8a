from typing import Any

import pytest

from marpack.torchserve.context import Context, RequestProcessor
from marpack.torchserve.http import Response, ResponseChunk
from marpack.torchserve.response import (
    NEXT,
    AnswerTooLarge,
    ChunkSocket,
    FrontendRefusal,
    assemble,
    create_predict_response,
    is_final,
    send_intermediate_predict_response,
)


@pytest.fixture
def context() -> Context:
    made = Context("m", "/m", {}, 1, None, "0.12.0")
    made.request_ids = {0: "one", 1: "two"}
    made.request_processor = [RequestProcessor({}), RequestProcessor({})]
    return made


def sent(context: Context | None, ret: Any, ids: Any = None, *, message: Any = "m", code: Any = 200, more: Any = True):
    ids = ids or {0: "one", 1: "two"}
    return create_predict_response(ret, ids, message, code, context, more).piece.responses


def test_a_piece_says_that_more_is_to_come_and_a_plain_answer_does_not(context: Context):
    assert [response.headers for response in sent(context, ["a", "b"]).values()] == [((NEXT, "true"),)] * 2
    assert [response.headers for response in sent(context, ["a", "b"], more=False).values()] == [((NEXT, "false"),)] * 2


@pytest.mark.parametrize("more", [1, "true", [True]])
def test_only_true_itself_says_that_more_is_to_come(context: Context, more: object):
    assert all(response.headers == () for response in sent(context, ["a", "b"], more=more).values())


@pytest.mark.parametrize(("code", "phrase"), [(500, "Internal Server Error"), (201, "Created"), (299, "")])
def test_a_code_that_is_not_200_is_an_error_for_the_whole_batch(context: Context, code: int, phrase: str):
    responses = sent(context, {0: "a"}, {0: "one"}, code=code)
    assert [(one.status, one.phrase, one.failed) for one in responses.values()] == [(code, phrase, True)] * 2
    assert b'"message": "m"' in responses[1].body


def test_a_piece_that_is_no_json_is_an_error_for_the_whole_batch(context: Context):
    responses = sent(context, ["a", {1}])
    assert [one.status for one in responses.values()] == [503, 503]
    assert b"Unsupported model output data type." in responses[0].body


@pytest.mark.parametrize(
    ("case", "error"),
    [
        ({"code": None}, Exception),
        ({"message": None}, AttributeError),
        ({"message": 5}, AttributeError),
        ({"ids": {0: None}}, AttributeError),
        ({"ret": ["\ud800", ""]}, UnicodeEncodeError),
        ({"ret": "a"}, IndexError),
    ],
)
def test_what_cannot_be_encoded_is_an_exception_in_the_handlers_hands(context: Context, case: dict[str, Any], error):
    with pytest.raises(error):
        sent(context, **({"ret": ["a", "b"]} | case))


def test_a_header_that_is_no_text_raises_what_the_server_raises(context: Context):
    context.set_response_header(0, "a", 1)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(AttributeError, match=r"^'int' object has no attribute 'encode'$"):
        sent(context, ["a", "b"])


def test_an_id_of_another_batch_ends_the_worker(context: Context):
    with pytest.raises(FrontendRefusal):
        sent(context, ["a"], {0: "nope"})


def test_the_socket_sends_as_the_servers_does(context: Context):
    passed: list[ResponseChunk] = []
    socket = ChunkSocket(passed.append)
    socket.send(create_predict_response(["a", "b"], context.request_ids, "m", 200, context, True))
    assert [piece.responses[0].body for piece in passed] == [b"a"]
    socket.places = (3, 5)  # the others of the batch have their answers
    socket.sendall(create_predict_response(["c", "d"], context.request_ids, "m", 200, context, True))
    assert {place: response.body for place, response in passed[1].responses.items()} == {3: b"c", 5: b"d"}
    assert socket.sent == passed


def test_a_piece_that_the_frontend_does_not_take_is_not_sent(context: Context):
    passed: list[ResponseChunk] = []
    socket = ChunkSocket(passed.append, limit=2)
    context.cl_socket = socket
    send_intermediate_predict_response(["ab", "cd"], context.request_ids, "m", 200, context)
    with pytest.raises(AnswerTooLarge):
        send_intermediate_predict_response(["a", "bcd"], context.request_ids, "m", 200, context)
    assert socket.sent == passed
    assert [dict(response.headers)[NEXT] for response in passed[0].responses.values()] == ["true", "true"]


MORE = Response(status=200, body=b"a", headers=((NEXT, "true"),))
LAST = Response(status=200, body=b"z", headers=((NEXT, "false"),))
PLAIN = Response(status=200, body=b"p")
ERROR = Response(status=500, body=b"e", failed=True)


@pytest.mark.parametrize(("piece", "final"), [(MORE, False), (LAST, True), (PLAIN, True), (ERROR, True)])
def test_the_frontend_waits_for_more_only_where_it_is_told_to(piece: Response, final: bool):
    assert is_final(piece) is final


@pytest.mark.parametrize(
    ("pieces", "last", "body", "reset"),
    [
        ([MORE, MORE], LAST, b"aaz", False),
        ([MORE], ERROR, b"a", True),
        ([MORE, ERROR], LAST, b"a", True),
        ([MORE, ERROR, MORE], LAST, b"a", True),
        ([PLAIN], LAST, b"p", False),
        ([ERROR], LAST, b"e", False),
        ([], PLAIN, b"p", False),
    ],
)
def test_a_client_sees_pieces_up_to_what_ends_them(pieces: list[Response], last: Response, body: bytes, reset: bool):
    seen = assemble([ResponseChunk({0: piece}) for piece in pieces], 0, last)
    assert (seen.body, seen.reset) == (body, reset)


def test_an_empty_piece_is_no_chunk():
    pieces = [ResponseChunk({0: Response(status=200, body=body, headers=MORE.headers)}) for body in (b"", b"a", b"")]
    assert assemble(pieces, 0, LAST).pieces == (b"a", b"z")
    assert assemble(pieces[:1], 0, Response(status=200, body=b"", headers=LAST.headers)).pieces == ()
    assert assemble([], 0, Response(status=200, body=b"", headers=MORE.headers)).pieces == ()


@pytest.mark.parametrize(("status", "streams"), [(200, True), (399, True), (400, False), (500, False)])
def test_under_a_status_of_an_error_the_frontend_breaks_off(status: int, streams: bool):
    seen = assemble([ResponseChunk({0: Response(status=status, body=b"a", headers=MORE.headers)})], 0, LAST)
    assert (seen.status, seen.body, seen.reset) == ((status, b"az", False) if streams else (status, b"", True))


def test_each_client_sees_its_own_pieces():
    pieces = [ResponseChunk({0: MORE, 1: MORE}), ResponseChunk({1: MORE})]
    assert [assemble(pieces, index, LAST).body for index in (0, 1, 2)] == [b"az", b"aaz", b""]


@pytest.mark.parametrize("value", ["false", "maybe", "True"])
def test_a_stream_that_never_began_is_never_delivered(value: str):
    assert assemble([], 0, Response(status=200, body=b"z", headers=((NEXT, value),))).status == 0
