"""Addresses of rows: what is fetched, and what no row may reach."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest
from refusals import has_code

from marpack.archive.addresses import is_public
from marpack.errors import UsageError
from marpack.scoring.storage import UrlFetcher
from marpack.torchserve.http import TooLargeError

CERTIFICATE = Path(__file__).parents[1] / "data" / "loopback.pem"
CHUNKED = "Transfer-Encoding: chunked\r\n"
Talk = Callable[[socket.socket, str], None]  # a connection, and the path that was asked for


@contextmanager
def server(talk: Talk, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Answer connections one after another, byte by byte as a test wants it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            try:
                if tls is not None:
                    connection = tls.wrap_socket(connection, server_side=True)
                with connection:
                    head = connection.recv(65536).decode("latin-1")
                    talk(connection, head.split(" ")[1] if " " in head else "")
            except OSError:
                connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def answer(body: bytes = b"hello", head: str = "", status: str = "200 OK") -> Talk:
    length = "" if "Content-Length" in head or "chunked" in head else f"Content-Length: {len(body)}\r\n"
    data = f"HTTP/1.1 {status}\r\n{length}{head}\r\n".encode() + body
    return lambda connection, _: connection.sendall(data)


def place(host: str, port: int) -> tuple[object, ...]:
    return (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))


def fetched(url: str, *, allow_private: bool = True, max_bytes: int = 100, seconds: float = 5) -> bytes:
    return UrlFetcher(allow_private=allow_private, max_bytes=max_bytes, seconds=seconds).fetch(url)


@pytest.mark.parametrize(
    "talk",
    [
        answer(),
        answer(head="Content-Length: 5\r\n"),
        answer(b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", head=CHUNKED),
        lambda connection, _: connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nhello"),
    ],
)
def test_an_answer_is_read_to_its_end(talk: Talk) -> None:
    with server(talk) as url:
        assert fetched(f"{url}/a b/ü?q=1#part") == b"hello"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1",
        "100.127.255.255", "224.0.0.1", "239.255.255.250", "255.255.255.255", "198.18.0.1", "240.0.0.1", "192.0.2.1",
        "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
        "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1.1.1.1", "2002:7f00:1::", "2001:db8::1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::101:101"])
def test_addresses_that_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "[::1]", "[::ffff:127.0.0.1]"]
)
def test_this_machine_is_not_asked(host: str) -> None:
    with server(answer()) as url:
        port = url.rpartition(":")[2]
        with pytest.raises(UsageError, match="private network") as caught:
            fetched(f"http://{host}:{port}/secret?token=1", allow_private=False)
    assert "--allow-private" in str(caught.value.hint)
    assert "token" not in str(caught.value)


def test_a_public_name_of_a_private_address_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(answer()) as url:
        port = int(url.rpartition(":")[2])
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [place("127.0.0.1", port)])
        with pytest.raises(UsageError, match="private network"):
            fetched(f"http://public.example:{port}/", allow_private=False)
        assert fetched(f"http://public.example:{port}/") == b"hello"


def test_the_address_that_was_judged_is_the_one_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that means a private address from the second time on is looked up once."""
    asked = []

    def rebinding(*_: object, **__: object) -> list[object]:
        asked.append("1.1.1.1" if not asked else "127.0.0.1")
        return [place(asked[-1], 80)]

    connected: list[object] = []

    def connect(_: socket.socket, address: object) -> None:
        connected.append(address)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(UsageError, match="refused"):
        fetched("http://public.example/", allow_private=False)
    assert (asked, connected) == (["1.1.1.1"], [("1.1.1.1", 80)])


def test_the_next_address_is_tried_where_one_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(answer()) as url, socket.create_server(("127.0.0.1", 0)) as closed:
        gone, port = closed.getsockname()[1], int(url.rpartition(":")[2])
        closed.close()
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda *_, **__: [place("127.0.0.1", gone), place("127.0.0.1", port)]
        )
        assert fetched("http://two.example/") == b"hello"


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("file:///etc/hostname", "to a file: address"),
        ("ftp://127.0.0.1/x", "to a ftp: address"),
        ("http://user:secret@127.0.0.1/", "user or password"),
        ("http://[bad/", "to an invalid address"),
        ("", "responds 301"),
    ],
)
def test_what_is_redirected_to_is_judged_again(location: str, message: str) -> None:
    talk = answer(status="301 Moved", head=f"Location: {location}\r\n")
    with server(talk) as url, pytest.raises(UsageError, match=message) as caught:
        fetched(url)
    assert "secret" not in str(caught.value)


def test_a_redirect_to_this_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(answer(status="307 Moved", head="Location: http://inside.example/\r\n")) as url:
        port = int(url.rpartition(":")[2])
        monkeypatch.setattr("marpack.scoring.storage.is_public", lambda address: address == "127.0.0.1")
        hosts = {"outside.example": "127.0.0.1", "inside.example": "10.0.0.1"}
        monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_, **__: [place(hosts[host], port)])
        with pytest.raises(UsageError, match="private network"):
            fetched("http://outside.example/", allow_private=False)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file:///etc/hostname", "only http"),
        ("x.png", "only http"),
        ("http://", "not an address"),
        ("http://[::1/", "not an address"),
        ("http://a:99999/", "not an address"),
        ("http://a\r\nb/", "address|reach"),
        ("http://user@host/", "user or password"),
        ("http://" + "a" * 70 + ".ü/", "not an address"),
        ("http://name.invalid/", "cannot reach name.invalid"),
    ],
)
def test_what_is_no_address_is_told(url: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Mock(side_effect=socket.gaierror(-2, "Name or service not known")))
    with pytest.raises(UsageError, match=message):
        fetched(url)


@pytest.mark.parametrize(
    ("talk", "error", "message"),
    [
        (answer(b"x" * 101), TooLargeError, "101 bytes"),
        (answer(b"x", head="Content-Length: 1000000\r\n"), TooLargeError, "1,000,000 bytes"),
        (answer(b"70\r\n" + b"x" * 112 + b"\r\n0\r\n\r\n", head=CHUNKED), TooLargeError, "101"),
        (lambda connection, _: connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 500), TooLargeError, "101"),
        (answer(b"x", head="Content-Length: 10\r\n"), UsageError, "broke off after 1 of 10 bytes"),
        (answer(b"5\r\nab", head=CHUNKED), UsageError, "broke off"),
        (answer(b"none\r\nab", head=CHUNKED), UsageError, "broke off"),
        (answer(status="404 Not Found"), UsageError, "the server responds 404 Not Found"),
        (answer(head="Content-Encoding: gzip\r\n"), UsageError, "compressed"),
        (lambda connection, _: connection.sendall(b"SSH-2.0\r\n"), UsageError, "broke off"),
        (lambda connection, _: None, UsageError, "broke off"),
        (answer(head="X: y\r\n" * 200), UsageError, "broke off"),
    ],
)  # fmt: skip
def test_an_answer_that_is_not_what_it_should_be_is_told(talk: Talk, error: type[Exception], message: str) -> None:
    with server(talk) as url, pytest.raises(error, match=message):
        fetched(url)


def trickle(first: bytes) -> Talk:
    def talk(connection: socket.socket, _: str) -> None:
        connection.sendall(first)
        for _ in range(200):
            connection.sendall(b"x")
            time.sleep(0.02)

    return talk


@pytest.mark.parametrize(
    "talk",
    [
        trickle(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"),
        trickle(b"HTTP/1.1 200 OK\r\nX: "),
        trickle(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n"),
        lambda connection, _: connection.recv(1),  # until the client gives up
    ],
)
def test_the_whole_time_is_bounded_however_little_comes_at_a_time(talk: Talk) -> None:
    with server(talk) as url:
        started = time.monotonic()
        with pytest.raises(UsageError, check=has_code("too-slow")):
            fetched(url, max_bytes=10_000, seconds=0.1)
        assert time.monotonic() - started < 15  # all of it would take twenty


def test_https_is_fetched_and_does_not_lead_to_http(monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(CERTIFICATE))
    with server(answer(), context) as url:
        assert fetched(url) == b"hello"
    down = answer(status="302 Found", head="Location: http://127.0.0.1/\r\n")
    with server(down, context) as url, pytest.raises(UsageError, check=has_code("https-downgrade")):
        fetched(url)
