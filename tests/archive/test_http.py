import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from refusals import has_code

from marpack.archive import http
from marpack.archive.http import HttpClient, HttpError, WaitBudget, check_redirect, split_credentials

CERTIFICATE = Path(__file__).parents[1] / "data" / "loopback.pem"
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


class Site:
    """A server that keeps connections, and the requests that it got."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []  # method, target, headers, body
        self.connections = 0
        self.closing = False  # close each connection after its response, without saying so
        self.headers: dict[str, str] = {}
        self.status = 200
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                site.connections += 1

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                site.requests.append((self.command, self.path, dict(self.headers.items()), body))
                self.send_response(site.status)
                for name, value in {"Content-Length": "5", **site.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(b"hello")
                self.close_connection = site.closing

            do_HEAD = do_PUT = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = f"{'https' if tls else 'http'}://{self.host}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


@pytest.fixture
def client() -> Iterator[HttpClient]:
    with HttpClient() as client:
        yield client


def got(client: HttpClient, url: str, method: str = "GET", **options: Any) -> bytes:
    with client.request(method, url, budget=WaitBudget(5), **options) as response:
        return response.read_up_to(1000)


def test_a_connection_is_kept(site: Site, client: HttpClient):
    assert [got(client, f"{site.url}/{number}") for number in range(3)] == [b"hello"] * 3
    got(client, site.url, "HEAD")
    with client.request("GET", site.url, budget=WaitBudget(5)):
        pass  # a small rest is read
    assert got(client, site.url) == b"hello"
    assert site.connections == 1
    assert [headers["Accept-Encoding"] for _, _, headers, _ in site.requests] == ["identity"] * 6


def test_a_kept_connection_that_the_server_has_closed_is_replaced(site: Site, client: HttpClient):
    site.closing = True
    assert [got(client, site.url) for _ in range(5)] == [b"hello"] * 5


def test_compressed_bytes_stay_compressed(site: Site, client: HttpClient):
    site.headers = {"Content-Encoding": "gzip"}
    assert got(client, site.url) == b"hello"


def test_a_body_is_sent_in_pieces_of_known_length(site: Site, client: HttpClient):
    def pieces() -> Iterator[bytes]:
        return iter([b"ab", b"", b"c"])

    got(client, site.url, "PUT", headers={"Content-Length": "3"}, body=pieces)
    got(client, site.url, "PUT", body=b"")
    assert [body for _, _, _, body in site.requests] == [b"abc", b""]
    assert all("Transfer-Encoding" not in headers for _, _, headers, _ in site.requests)


def test_the_fragment_and_the_path_are_sent_as_http_spells_them(site: Site, client: HttpClient):
    got(client, f"{site.url}/a b/%20ü?q=ä&x=%2F#part")
    assert site.requests[0][1] == "/a%20b/%20%C3%BC?q=%C3%A4&x=%2F"


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
]


@pytest.mark.parametrize(("source", "target", "code"), REDIRECTS)
def test_a_redirect_never_leads_to_a_weaker_place(source: str, target: str, code: str | None):
    response: Any = SimpleNamespace(url=source, status=302)
    if code is None:
        assert check_redirect(response, target) == target
        return
    with pytest.raises(HttpError, check=has_code(code)) as caught:
        check_redirect(response, target)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed_without_the_credentials(status: int, site: Site, client: HttpClient):
    with Site() as other:
        site.status, site.headers = status, {"Location": f"{other.url}/there"}
        with client.get(f"{site.url}/x", authorization="Basic abc", budget=WaitBudget(5)) as response:
            assert response.read_up_to(10) == b"hello"
        assert "Authorization" in site.requests[0][2]
        assert "Authorization" not in other.requests[0][2]


def test_a_redirect_to_an_invalid_address_is_refused(site: Site, client: HttpClient):
    site.status, site.headers = 302, {"Location": "http://[bad/"}
    with pytest.raises(HttpError, check=has_code("invalid-address")):
        client.get(site.url, budget=WaitBudget(5))


def test_redirects_end(site: Site, client: HttpClient):
    site.status, site.headers = 302, {"Location": "/again"}
    with pytest.raises(HttpError, check=has_code("too-many-redirects", "302", "5 times")):
        client.get(site.url, budget=WaitBudget(5))
    assert len(site.requests) == 6


def test_a_proxy_of_the_environment_is_used(site: Site, client: HttpClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", site.url.replace("//", "//me:p%40ss@"))
    assert got(client, "http://far.example/x?y=1#z") == b"hello"
    method, target, headers, _ = site.requests[0]
    assert (method, target, headers["Host"]) == ("GET", "http://far.example/x?y=1", "far.example")
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


@pytest.mark.parametrize(
    ("excluded", "is_direct"),
    [("127.0.0.1", True), ("10.0.0.0/8, 127.0.0.0/8", True), ("*", True), ("example.com", False), ("", False)],
)
def test_no_proxy_excludes_hosts_and_networks(
    excluded: str, is_direct: bool, site: Site, client: HttpClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", excluded)
    if is_direct:
        assert got(client, site.url) == b"hello"
    else:
        with pytest.raises(HttpError, check=has_code("unreachable")):
            got(client, site.url)


def test_a_proxy_of_another_kind_is_refused(client: HttpClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ALL_PROXY", "socks5://me:secret@127.0.0.1:1")
    with pytest.raises(HttpError, check=has_code("unreachable", "socks5://127.0.0.1:1")) as caught:
        got(client, "http://far.example/")
    assert "secret" not in str(caught.value)


@contextmanager
def secure_site() -> Iterator[Site]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    with Site(context) as site:
        yield site


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"])
def test_certificates_come_from_the_environment(variable: str, monkeypatch: pytest.MonkeyPatch):
    with secure_site() as site:
        with HttpClient() as client, pytest.raises(HttpError, check=has_code("tls-failed", "CERTIFICATE_VERIFY")):
            got(client, site.url)
        monkeypatch.setenv(variable, str(CERTIFICATE))
        http.trusted_certificates.cache_clear()
        with HttpClient() as client:
            assert got(client, site.url) == b"hello"
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
