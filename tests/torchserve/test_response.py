import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marpack.torchserve.context import Context, RequestProcessor
from marpack.torchserve.http import Response, ResponseChunk
from marpack.torchserve.response import (
    NEXT,
    AnswerTooLarge,
    BrokenFrame,
    ChunkSocket,
    FrontendRefusal,
    Unserialisable,
    WorkerDeath,
    assemble,
    check_sizes,
    create_predict_response,
    encode_value,
    is_final,
    response_of,
    send_intermediate_predict_response,
)

circular: list[object] = []
circular.append(circular)
deep: list[object] = []
for _ in range(100_000):
    deep = [deep]


@pytest.mark.parametrize("value", [circular, deep, "\ud800"], ids=["circular", "too deep", "surrogate"])
def test_values_that_kill_the_real_worker_kill_ours(value: object):
    with pytest.raises(WorkerDeath):
        encode_value(value)


def answered(value: object = "x", *, status: object = 200, phrase: object = None, **headers: object):
    context = Context("m", "/m", {}, 1, None, "0.12.0")
    context.request_processor = [RequestProcessor({})]
    context.request_processor[0].report_status(status, phrase)  # type: ignore[arg-type]  # that is the point
    for name, header in headers.items():
        context.set_response_header(0, name.replace("_", "-"), header)  # type: ignore[arg-type]
    return response_of(0, value, context)


@pytest.mark.parametrize(
    "case",
    [
        *({"status": status} for status in ("404", 4.0, 1 << 31, -(1 << 31) - 1)),
        *({"X_A": 1}, {"X_A": None}, *({"phrase": phrase} for phrase in (1, 0, False, b"", []))),
    ],
)
def test_what_cannot_be_encoded_kills_the_worker(case: dict[str, object]):
    with pytest.raises(WorkerDeath):
        answered(**case)


@pytest.mark.parametrize(
    "case",
    [
        {"status": -1},
        {"status": -(1 << 31)},
        *({"X_A": f"a{text}b"} for text in ("\r\n", "\n", "\r", "\0", "\x0b", "\x0c")),
        *({name: "v"} for name in ("", "a b", "a:b", "a=b", "a,b", "a;b", "\xe9", "a\0b", "a\x0bb")),
    ],
)
def test_what_the_frontend_refuses_spares_the_rows_before(case: dict[str, object]):
    with pytest.raises(FrontendRefusal):
        answered(**case)


@pytest.mark.parametrize("case", [{"status": -1}, {"X_A": "a\r\nb"}])
def test_what_is_no_json_is_found_before_what_the_frontend_refuses(case: dict[str, object]):
    with pytest.raises(Unserialisable):
        answered({1}, **case)
    with pytest.raises(BrokenFrame):  # a phrase with accents breaks the whole message
        answered(phrase="caf\xe9")


def test_json_is_written_as_a_handler_wants_it_written(monkeypatch):
    plain = json.dumps
    monkeypatch.setattr(json, "dumps", lambda value, **options: plain(value, ensure_ascii=False, **options))
    assert encode_value({"b": ["\xe9", 1]}) == '{\n  "b": [\n    "\xe9",\n    1\n  ]\n}'.encode()


def test_headers_of_the_frontends_own_are_dropped_and_latin_1_is_kept():
    response = answered(Cache_Control="max-age=1", Connection="close", Transfer_Encoding="gzip", X_Odd="é€\U0001f600")
    assert response.headers == (("X-Odd", "é??"),)
    for name in ("a(b)/c@", "a\x7fb"):
        assert answered(**{name: "b\x7f\x01c"}).headers == ((name, "b\x7f\x01c"),)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(10**400),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(), inner, max_size=4),
    max_leaves=30,
)


@given(JSON.filter(lambda value: not isinstance(value, str)))
def test_json_is_byte_for_byte_what_the_server_writes(value: object):
    assert encode_value(value) == json.dumps(value, indent=2).encode()


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
    for more in (1, "true", [True]):  # only True itself says it
        assert [response.headers for response in sent(context, ["a", "b"], more=more).values()] == [()] * 2
    for more in (True, False):
        headers = ((NEXT, str(more).lower()),)
        assert [response.headers for response in sent(context, ["a", "b"], more=more).values()] == [headers] * 2


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
    check_sizes(passed[0].responses.values(), 2)
    with pytest.raises(AnswerTooLarge, match=r"\b2\b.*\b1\b"):
        check_sizes(passed[0].responses.values(), 1)
    assert [dict(response.headers)[NEXT] for response in passed[0].responses.values()] == ["true", "true"]


MORE = Response(status=200, body=b"a", headers=((NEXT, "true"),))
LAST = Response(status=200, body=b"z", headers=((NEXT, "false"),))
PLAIN = Response(status=200, body=b"p")
ERROR = Response(status=500, body=b"e", failed=True)


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
    assert [is_final(piece) for piece in (MORE, LAST, PLAIN, ERROR)] == [False, True, True, True]


def test_an_empty_piece_is_no_chunk():
    pieces = [ResponseChunk({0: Response(status=200, body=body, headers=MORE.headers)}) for body in (b"", b"a", b"")]
    assert assemble(pieces, 0, LAST).pieces == (b"a", b"z")
    assert assemble(pieces[:1], 0, Response(status=200, body=b"", headers=LAST.headers)).pieces == ()
    assert assemble([], 0, Response(status=200, body=b"", headers=MORE.headers)).pieces == ()
    own = [ResponseChunk({0: MORE, 1: MORE}), ResponseChunk({1: MORE})]
    assert [assemble(own, index, LAST).body for index in (0, 1, 2)] == [b"az", b"aaz", b""]


def test_under_a_status_of_an_error_the_frontend_breaks_off():
    for status, streams in ((200, True), (399, True), (400, False), (500, False)):
        seen = assemble([ResponseChunk({0: Response(status=status, body=b"a", headers=MORE.headers)})], 0, LAST)
        assert (seen.status, seen.body, seen.reset) == ((status, b"az", False) if streams else (status, b"", True))
    for value in ("false", "maybe", "True"):  # a stream that never began is never delivered
        assert assemble([], 0, Response(status=200, body=b"z", headers=((NEXT, value),))).status == 0
