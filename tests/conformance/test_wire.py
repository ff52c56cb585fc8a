"""The bare client reads what a server really sends: chunks, cuts, resets and odd heads."""

import io
import socket
import struct
import threading

import pytest
from conformance.wire import Answer, Message, encode, exchange, read_answer

HEAD = b"HTTP/1.1 200 \r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
CODING = (("Transfer-Encoding", "chunked"),)


def read(data: bytes) -> Answer:
    return read_answer(io.BytesIO(data))


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (
            b"X-A: 1\r\nx-a:  two \r\nContent-Length: 2\r\n\r\nhi and more",
            Answer(200, "", (("X-A", "1"), ("x-a", " two "), ("Content-Length", "2")), b"hi"),
        ),
        (b"Content-Length: 9\r\n\r\nhi", Answer(200, "", (("Content-Length", "9"),), b"hi", end="closed")),
        (CHUNKED + b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", Answer(200, "", CODING, b"abc", (b"a", b"bc"))),
        (CHUNKED + b"1\r\na\r\n5\r\nab", Answer(200, "", CODING, b"a", (b"a",), "closed")),
    ],
)
def test_an_answer_is_read_to_its_end_or_to_its_cut(sent: bytes, answer: Answer):
    assert read(HEAD + sent) == answer
    assert answer.header(answer.headers[-1][0].upper()) == answer.headers[-1][1]


def test_nothing_at_all_and_a_304_without_its_body():
    assert read(b"") == Answer(0, "", (), b"", end="reset")
    assert read(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n").end == "complete"


@pytest.mark.parametrize("sent", [b"", HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n"])
def test_a_reset_is_told_not_raised(sent):
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_reset_after, args=(server, sent))
        thread.start()
        answer = exchange(server.getsockname(), Message("GET", "/"), seconds=5)
        thread.join()
    assert answer.end == "reset"
    assert answer.pieces == ((b"a",) if sent else None)


def _reset_after(server: socket.socket, sent: bytes) -> None:
    connection, _ = server.accept()
    connection.recv(1000)
    connection.sendall(sent)
    threading.Event().wait(0.2)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_a_silence_is_told_not_raised():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert exchange(server.getsockname(), Message("GET", "/"), seconds=0.1).end == "timeout"


def test_a_message_as_bytes():
    message = Message("POST", "/predictions/m", (("X-A", "\xe9"),), b"hi")
    sent = b"POST /predictions/m HTTP/1.1\r\nHost: h:1\r\nX-A: \xe9\r\nContent-Length: 2\r\n\r\nhi"
    assert encode(message, ("h", 1)) == sent
