"""The wire: one HTTP/1.1 exchange over a bare socket, so that nothing the server says is tidied up on its way."""

import socket
import time
from dataclasses import dataclass
from typing import BinaryIO

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Message:
    """What a client sends."""

    method: str
    target: str  # path and query
    headers: Headers = ()
    body: bytes = b""


@dataclass(frozen=True)
class Answer:
    """What came back, as it came."""

    status: int
    phrase: str
    headers: Headers  # in the server's order and spelling
    body: bytes
    pieces: tuple[bytes, ...] | None = None  # the chunks of a chunked answer
    end: str = "complete"  # or "closed" or "reset" before the announced end, "timeout"

    def header(self, name: str) -> str | None:
        """Return the first header of a name, in any case."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


def exchange(address: tuple[str, int], message: Message, *, seconds: float = 30.0) -> Answer:
    """Send one message on a connection of its own and read its answer, for at most that many seconds a read."""
    with socket.create_connection(address, timeout=seconds) as connection:
        connection.sendall(encode(message, address))
        with connection.makefile("rb") as stream:
            return read_answer(stream)


def encode(message: Message, address: tuple[str, int]) -> bytes:
    """Return the message's bytes; Host comes first and Content-Length last, the rest as given."""
    lines = [f"{message.method} {message.target} HTTP/1.1", f"Host: {address[0]}:{address[1]}"]
    lines += [f"{name}: {value}" for name, value in message.headers]
    if message.body or message.method in {"POST", "PUT"}:
        lines.append(f"Content-Length: {len(message.body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + message.body


def read_answer(stream: BinaryIO, *, bodiless: bool = False) -> Answer:
    """Read one answer, that to a HEAD without a body; an end before its time is told, never raised."""
    try:
        status, phrase = _status_line(stream)
    except ConnectionResetError:
        return Answer(0, "", (), b"", end="reset")
    except TimeoutError:
        return Answer(0, "", (), b"", end="timeout")
    headers = tuple(_header_lines(stream))
    names = {name.lower(): value for name, value in headers}
    if bodiless:
        return Answer(status, phrase, headers, b"")
    if names.get("transfer-encoding", "").lower() == "chunked":
        pieces, end = _chunks(stream)
        return Answer(status, phrase, headers, b"".join(pieces), tuple(pieces), end)
    # A 304 tells the length of a body that, by the rules of HTTP, it does not carry.
    body, end = _sized(stream, 0 if status == 304 else int(names.get("content-length", 0)))
    return Answer(status, phrase, headers, body, end=end)


def _status_line(stream: BinaryIO) -> tuple[int, str]:
    line = stream.readline()
    if not line:
        raise ConnectionResetError
    _, status, phrase = line.rstrip(b"\r\n").decode("latin-1").split(" ", 2)
    return int(status), phrase


def _header_lines(stream: BinaryIO) -> Headers:
    headers = []
    while line := stream.readline().rstrip(b"\r\n"):
        name, _, value = line.decode("latin-1").partition(":")
        headers.append((name, value.removeprefix(" ")))
    return tuple(headers)


def _chunks(stream: BinaryIO) -> tuple[list[bytes], str]:
    pieces: list[bytes] = []
    try:
        while line := stream.readline():
            size = int(line, 16)
            piece, end = _sized(stream, size)
            stream.readline()
            if end != "complete" or not size:
                return pieces, end
            pieces.append(piece)
    except ConnectionResetError:
        return pieces, "reset"
    except TimeoutError:
        return pieces, "timeout"
    return pieces, "closed"


def _sized(stream: BinaryIO, size: int) -> tuple[bytes, str]:
    body = bytearray()
    try:
        while len(body) < size:
            if not (more := stream.read1(size - len(body))):  # type: ignore[attr-defined]
                return bytes(body), "closed"
            body += more
    except ConnectionResetError:
        return bytes(body), "reset"
    except TimeoutError:
        return bytes(body), "timeout"
    return bytes(body), "complete"


def wait_for(address: tuple[str, int], target: str, headers: Headers = (), *, seconds: float) -> None:
    """Return once a GET of the target answers 200; raises TimeoutError."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        try:
            if exchange(address, Message("GET", target, headers), seconds=2.0).status == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise TimeoutError(f"no answer from {address[0]}:{address[1]}{target} within {seconds:.0f} s")
