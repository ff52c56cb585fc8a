import math
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

import pytest
from archive.site import Site, respond
from refusals import has_code

from marpack.archive import http
from marpack.archive.http import Deadline, HttpClient, HttpError, check_redirect, split_credentials

CERTIFICATE = Path(__file__).parents[1] / "data" / "loopback.pem"
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


@pytest.fixture
def client() -> Iterator[HttpClient]:
    with HttpClient() as client:
        yield client


def got(client: HttpClient, url: str, login: str | None = None) -> bytes:
    with client.get(url, authorization=login, deadline=Deadline(5)) as response:
        return response.read_up_to(1000)


def test_a_connection_is_kept(site: Site, client: HttpClient):
    assert [got(client, f"{site.url}/{number}") for number in range(3)] == [b"hello"] * 3
    with client.get(site.url, deadline=Deadline(5)):
        pass  # a small rest is read
    assert got(client, site.url) == b"hello"
    assert site.connections == 1
    assert [headers["Accept-Encoding"] for _, headers in site.requests] == ["identity"] * 5


def test_a_kept_connection_that_the_server_has_closed_is_replaced(site: Site, client: HttpClient):
    site.default = respond(Content_Length=5)
    assert [got(client, site.url) for _ in range(5)] == [b"hello"] * 5


def test_compressed_bytes_stay_compressed_and_the_path_is_quoted(site: Site, client: HttpClient):
    site.default = respond(Content_Encoding="gzip")
    assert got(client, f"{site.url}/a b/%20ü?q=ä&x=%2F#part") == b"hello"
    assert site.requests[0][0] == "/a%20b/%20%C3%BC?q=%C3%A4&x=%2F"


REDIRECTS = [
    ("https://a.example/x", "https://b.example/x", None),
    ("http://a.example/x", "https://a.example/x", None),
    ("http://a.example/x", "http://b.example/x", None),
    ("http://127.0.0.1/x", "http://localhost/x", None),
    ("https://a.example/x", "http://a.example/x", "https-downgrade"),
    ("https://a.example/x", "http://127.0.0.1/x", "https-downgrade"),
    ("http://127.0.0.1/x", "http://a.example/x", "https-downgrade"),
    ("https://a.example/x", "data:,secret", "insecure-redirect"),
    ("https://a.example/x", "file:///etc/secret", "insecure-redirect"),
    ("https://a.example/x", "https://me:secret@a.example/x", "insecure-redirect"),
    ("https://a.example/x", "https://[bad/", "invalid-address"),
]


@pytest.mark.parametrize(("source", "target", "code"), REDIRECTS)
def test_a_redirect_never_leads_to_a_weaker_place(source: str, target: str, code: str | None):
    if code is None:
        assert check_redirect(source, target, 302) == target
        return
    with pytest.raises(HttpError, check=has_code(code)) as caught:
        check_redirect(source, target, 302)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_keeps_the_login_at_the_same_port_and_loses_it_for_good_elsewhere(
    status: int, site: Site, client: HttpClient
):
    with Site() as other:
        site.answers["/x"] = respond(status, Location="/here")
        assert got(client, f"{site.url}/x", "Basic abc") == b"hello"
        site.answers["/x"] = respond(status, Location=f"{other.url}/there")
        other.default = respond(status, Location=f"{site.url}/here")
        assert got(client, f"{site.url}/x", "Basic abc") == b"hello"
        sent = [(path, headers.get("Authorization")) for path, headers in site.requests]
        assert sent == [("/x", "Basic abc"), ("/here", "Basic abc"), ("/x", "Basic abc"), ("/here", None)]
        assert [headers.get("Authorization") for _, headers in other.requests] == [None]


@pytest.mark.parametrize(
    ("source", "location", "is_kept"),
    [
        ("https://a.example/x", "//a.example/y?z", True),
        ("https://a.example/x", "HTTPS://A.example:443/y", True),
        ("http://a.example:80/x", "http://a.example/y", True),
        ("https://a.example/x", "https://a.example:444/y", False),
        ("http://a.example/x", "https://a.example/y", False),
        ("http://a.example:8080/x", "https://a.example:8080/y", False),
        ("https://a.example/x", "https://b.example/y", False),
        ("https://a.example/x", "https://sub.a.example/y", False),
        ("https://a.example/x", "https://a.example.evil/y", False),
        ("https://a.example/x", "https://a.example\\.evil/y", True),  # the path begins at the backslash
        ("https://a.example\\.evil/x", "https://a.example.evil/y", False),
        ("http://127.0.0.1/x", "http://localhost/y", False),
        ("http://127.0.0.1/x", "http://127.0.0.2/y", False),
    ],
)
def test_the_login_is_for_one_scheme_host_and_port(
    source: str, location: str, is_kept: bool, client: HttpClient, monkeypatch: pytest.MonkeyPatch
):
    sent: list[dict[str, str]] = []

    def send(url: str, headers: dict[str, str], _: Deadline) -> Any:
        sent.append(headers)
        return Moved(url, {"Location": location} if url == source else {})

    monkeypatch.setattr(client, "_send", send)
    client.get(source, authorization="Basic abc", deadline=Deadline(5))
    assert [headers.get("Authorization") for headers in sent] == ["Basic abc", "Basic abc" if is_kept else None]


class Moved(NamedTuple):
    """A response without a body."""

    url: str
    headers: dict[str, str]
    status: int = 302

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_redirects_end(site: Site, client: HttpClient):
    site.default = respond(302, Location="/again")
    with pytest.raises(HttpError, check=has_code("too-many-redirects", "302", "5 times")):
        got(client, site.url)
    assert len(site.requests) == 6


# Is it TLS, what is sent at once, and what is then sent byte by byte, without an end.
DRIPS = {
    "status": (False, b"HTTP/1.1 206 Partial Content", b"x"),
    "headers": (False, b"HTTP/1.1 200 OK\r\n", b"x"),
    "headers over TLS": (True, b"HTTP/1.1 200 OK\r\n", b"x"),
    "body": (False, b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n", b"x"),
    "size of a chunk": (False, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
}


@pytest.mark.parametrize("drip", DRIPS)
def test_a_server_that_sends_a_byte_now_and_then_is_not_waited_for(drip: str, monkeypatch: pytest.MonkeyPatch):
    is_secure, beginning, rest = DRIPS[drip]
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(CERTIFICATE))

    def serve() -> None:
        plain, _ = listener.accept()
        with suppress(OSError), tls().wrap_socket(plain, server_side=True) if is_secure else plain as connection:
            connection.recv(1 << 16)
            connection.sendall(beginning)
            for _ in range(500):
                connection.sendall(rest)
                time.sleep(0.01)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        url = f"{'https' if is_secure else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
        with HttpClient() as client, pytest.raises(HttpError, check=has_code("too-slow")):
            client.get(url, deadline=Deadline(0.15)).read_up_to(1000)
        thread.join()


def test_the_bytes_of_a_body_move_the_deadline(site: Site, client: HttpClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "time", SimpleNamespace(monotonic=lambda: 7.0))
    for slowest, more in ((5.0, 1.0), (math.inf, 0.0)):
        deadline = Deadline(5, slowest=slowest)
        with client.get(site.url, deadline=deadline) as response:
            assert response.read_up_to(1000) == b"hello"
        assert deadline.left == 5 + more


def test_connecting_ends_at_the_deadline(client: HttpClient, monkeypatch: pytest.MonkeyPatch):
    waits: list[float | None] = []

    def connect(made: socket.socket, _: object) -> None:
        waits.append(made.gettimeout())
        raise TimeoutError

    monkeypatch.setattr(socket.socket, "connect", connect)
    for seconds, code in ((60, "unreachable"), (0.5, "unreachable"), (0, "too-slow")):
        with pytest.raises(HttpError, check=has_code(code)):
            client.get("http://127.0.0.1:1/", deadline=Deadline(seconds))
    assert waits[0] == http.CONNECT
    assert 0 < (waits[1] or 0) <= 0.5
    assert len(waits) == 2


def test_a_proxy_of_the_environment_is_used(site: Site, client: HttpClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", site.url.replace("//", "//me:p%40ss@"))
    assert got(client, "http://far.example/x?y=1#z") == b"hello"
    target, headers = site.requests[0]
    assert (target, headers["Host"]) == ("http://far.example/x?y=1", "far.example")
    assert headers["Proxy-Authorization"] == split_credentials("http://me:p%40ss@h")[1]


def test_https_goes_through_a_tunnel_of_the_proxy(client: HttpClient, monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        asked: list[bytes] = []

        def refuse() -> None:
            with proxy.accept()[0] as connection:
                asked.append(connection.recv(1 << 16))
                connection.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")

        thread = threading.Thread(target=refuse)
        thread.start()
        monkeypatch.setenv("HTTPS_PROXY", f"127.0.0.1:{proxy.getsockname()[1]}")
        with pytest.raises(HttpError, check=has_code("unreachable", "403")):
            got(client, "https://far.example/secret")
        thread.join()
    assert asked[0].startswith(b"CONNECT far.example:443 HTTP/1.")
    assert b"secret" not in asked[0]


def test_no_proxy_excludes_hosts_and_networks(site: Site, client: HttpClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    for excluded in ("127.0.0.1", "10.0.0.0/8, 127.0.0.0/8", "*"):
        monkeypatch.setenv("NO_PROXY", excluded)
        assert got(client, site.url) == b"hello"
    for other in ("example.com", ""):
        monkeypatch.setenv("NO_PROXY", other)
        with pytest.raises(HttpError, check=has_code("unreachable")):
            got(client, site.url)


def test_a_proxy_of_another_kind_is_refused(client: HttpClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ALL_PROXY", "socks5://me:secret@127.0.0.1:1")
    with pytest.raises(HttpError, check=has_code("unreachable", "socks5://127.0.0.1:1")) as caught:
        got(client, "http://far.example/")
    assert "secret" not in str(caught.value)


def tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


def test_certificates_come_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    with Site(tls()) as site:
        with HttpClient() as client, pytest.raises(HttpError, check=has_code("tls-failed", "CERTIFICATE_VERIFY")):
            got(client, site.url)
        for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
            monkeypatch.setenv(variable, str(CERTIFICATE))
            http.trusted_certificates.cache_clear()
            with HttpClient() as client:
                assert got(client, site.url) == b"hello"
            monkeypatch.delenv(variable)
    http.trusted_certificates.cache_clear()


def test_certificates_that_cannot_be_read_are_named(client: HttpClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/file.pem")
    with pytest.raises(HttpError, check=has_code("tls-failed", "/no/such/file.pem")):
        got(client, "https://far.example/")


def test_addresses_are_checked_before_they_are_connected_to(site: Site):
    client = HttpClient(is_allowed=lambda address: address != "127.0.0.1")
    with client, pytest.raises(HttpError, check=has_code("forbidden-address")):
        got(client, site.url)
    assert site.connections == 0


@pytest.mark.parametrize("url", ["http://[::1/", "http://a:99999/", "http://host:port/", "http://a b/", "x://y/", ""])
def test_what_is_not_an_address_is_refused_without_being_shown(url: str, client: HttpClient):
    with pytest.raises(HttpError, check=has_code("invalid-address")):
        got(client, url)
