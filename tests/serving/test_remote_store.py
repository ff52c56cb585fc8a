"""Registering archives from addresses: which are fetched, and which no request may reach."""

import hashlib
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest
from serving.served import Served, pack, served

from marpack.archive.cache import Cache
from marpack.serving.loading import RemoteStore
from marpack.torchserve.http import RequestError

CERTIFICATE = Path(__file__).parents[1] / "data" / "loopback.pem"
ECHO = "def handle(data, context):\n    return [row['body'] for row in data] if data else None\n"


class Site:
    """A web server that sends one archive, redirects, and more bytes than it should."""

    def __init__(self, archive: bytes, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self.requested: list[str] = []
        self.target = ""  # of redirects
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.requested.append(self.path)
                if self.path.startswith("/moved"):
                    self.send_response(302)
                    self.send_header("Location", site.target)
                    self.end_headers()
                    return
                self.send_response(404 if self.path.startswith("/none") else 200)
                if not self.path.startswith("/endless"):
                    self.send_header("Content-Length", str(len(archive)))
                self.end_headers()
                self.wfile.write(archive)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((host, 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://{host}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def archive(tmp_path: Path) -> bytes:
    return pack(tmp_path, "probe.mar", ECHO).read_bytes()


@pytest.fixture
def site(archive: bytes) -> Iterator[Site]:
    site = Site(archive)
    yield site
    site.close()


@pytest.fixture
def digest(archive: bytes) -> str:
    return f"sha256:{hashlib.sha256(archive).hexdigest()}"


@pytest.fixture
def remote(tmp_path: Path) -> Callable[..., RemoteStore]:
    def make(*patterns: str, maximum: int = 1 << 20) -> RemoteStore:
        allowed = tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns)
        return RemoteStore(allowed=allowed, cache=lambda: Cache(tmp_path / "cache"), maximum=maximum)

    return make


def refusal(remote: RemoteStore, url: str, digest: str | None = None) -> RequestError:
    with pytest.raises(RequestError) as refused:
        remote.fetch(url, digest)
    return refused.value


def test_an_allowed_address_is_fetched_by_its_digest(
    remote, site: Site, archive: bytes, digest: str, caplog, monkeypatch
):
    caplog.set_level("INFO", "marpack.serving.loading")
    monkeypatch.delattr("hashlib.file_digest")  # the digest is known
    store = remote(f"{site.url}/.*")
    path = store.fetch(f"{site.url}/a/probe.mar?signature=secret", digest)
    assert (path.name, path.read_bytes()) == ("probe.mar", archive)
    assert store.fetch(f"{site.url}/a/probe.mar?signature=secret", digest) == path
    assert site.requested == ["/a/probe.mar?signature=secret"]
    assert (digest in caplog.text, "secret" in caplog.text) == (True, False)


@pytest.mark.parametrize(
    "url",
    [
        *("http://evil.example/probe.mar", "{host}", "ftp://{host}/a", "file:///etc/passwd", "http:///probe.mar"),
        *("http://{host}@evil.example/a.mar", "http://user:word@{host}/a.mar", "http://{host}\\@evil.example/a"),
        *("http://{host}/a#.mar", "http://{host}/a\r\nHost: evil.example", "http://{host}/ä", "http://[{host}/a"),
        *("http://evil.example/http://{host}/a", "http://{host}.evil.example/a", "s3://bucket/a.mar", "//{host}/a"),
        "http://{host}/" + "a" * 5000,
    ],
)
def test_other_addresses_are_refused_before_any_connection(remote, site: Site, digest: str, url: str):
    host = site.url.partition("://")[2]
    error = refusal(remote(f"http://{re.escape(host)}/.*"), url.replace("{host}", host), digest)
    assert (error.status, error.kind) == (404, "ModelNotFoundException")
    assert site.requested == []


def test_http_requires_a_digest_and_a_digest_has_one_form(remote, site: Site, digest: str):
    store = remote(f"{site.url}/.*")
    wrong = [
        None,
        "",
        digest[7:],
        f"sha512:{digest[7:]}",
        digest[:-1],
        f"{digest}0",
        f"{digest}\n",
        "sha256:" + "x" * 64,
    ]
    for given in wrong:
        assert refusal(store, f"{site.url}/probe.mar", given).status == 400
    assert site.requested == []


def test_other_bytes_are_refused_and_not_kept(remote, site: Site, tmp_path: Path):
    error = refusal(remote(f"{site.url}/.*"), f"{site.url}/probe.mar", f"sha256:{'0' * 64}")
    assert (error.status, error.kind) == (400, "DownloadArchiveException")
    assert not [path for path in (tmp_path / "cache").rglob("*.mar*") if path.is_file()]


@pytest.mark.parametrize("path", ["probe.mar", "endless.mar", "none.mar"])
def test_large_and_missing_archives_are_refused(remote, site: Site, digest: str, path: str):
    error = refusal(remote(f"{site.url}/.*", maximum=100), f"{site.url}/{path}", digest)
    assert (error.status, error.kind) == (400, "DownloadArchiveException")


@pytest.mark.parametrize(
    ("pattern", "is_fetched"),
    [
        ("http://127.0.0.1:{port}/.*", True),
        (r"http://127\.0\.0\.1(:\d+)?/.*", False),
        (r"http(s)?://127\.0\.0\.1:{port}/.*", True),
        ("http://.*", False),
        (r"http://127\.0\.0\..*", False),
        ("http://[0-9.]+:.*", False),
        ("(https|http)://.*", False),
        (".*", False),
    ],
)
def test_a_private_address_is_reached_only_if_a_pattern_names_it(
    remote, site: Site, digest: str, pattern: str, is_fetched: bool
):
    store, url = remote(pattern.replace("{port}", site.url.rpartition(":")[2])), f"{site.url}/probe.mar"
    if is_fetched:
        assert store.fetch(url, digest).is_file()
    else:
        assert refusal(store, url, digest).kind == "DownloadArchiveException"
        assert site.requested == []


@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]", "0.0.0.0"])
def test_a_private_address_by_another_name(remote, site: Site, digest: str, host: str):
    url = f"http://{host}:{site.url.rpartition(':')[2]}/probe.mar"
    assert refusal(remote("http://.*"), url, digest).status == 400
    assert site.requested == []


def test_a_name_that_means_a_private_address(remote, site: Site, digest: str, monkeypatch):
    resolve = socket.getaddrinfo

    def rebound(host: str, *given: object, **named: object) -> object:
        return resolve("127.0.0.1" if host == "models.example.com" else host, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", rebound)
    url = f"http://models.example.com:{site.url.rpartition(':')[2]}/probe.mar"
    assert refusal(remote(r"http://models\.example\..*"), url, digest).status == 400
    assert site.requested == []
    assert remote(r"http://models\.example\.com:.*").fetch(url, digest).is_file()


def test_a_redirect_has_to_be_allowed_as_well(remote, site: Site, archive: bytes, digest: str):
    inner = Site(archive)
    try:
        both = remote(f"{site.url}/.*", f"{inner.url}/.*")
        for target in (f"{inner.url}/probe.mar", f"http://user@{site.url[7:]}/probe.mar", "file:///etc/passwd"):
            site.target = target
            assert refusal(remote(f"{site.url}/.*"), f"{site.url}/moved", digest).kind == "DownloadArchiveException"
        assert inner.requested == []
        site.target = f"{inner.url}/probe.mar"
        assert both.fetch(f"{site.url}/moved", digest).is_file()
        site.target = f"{site.url}/moved"
        assert refusal(both, f"{site.url}/moved/again", f"sha256:{'1' * 64}").kind == "DownloadArchiveException"
    finally:
        inner.close()


def test_https_needs_no_digest_and_its_certificate_is_checked(remote, archive: bytes, digest: str, caplog, monkeypatch):
    caplog.set_level("INFO", "marpack.serving.loading")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    site = Site(archive, context)
    try:
        store, url = remote(f"{site.url}/.*"), f"{site.url}/probe.mar"
        assert refusal(store, url).kind == "DownloadArchiveException"
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(CERTIFICATE))
        assert store.fetch(url, None).read_bytes() == archive
        assert digest in caplog.text
    finally:
        site.close()


@contextmanager
def registering(folder: Path, remote: RemoteStore | None) -> Iterator[Served]:
    with served(model_store=folder, remote=remote, default_workers=1) as server:
        yield server


def test_a_model_is_registered_from_an_address(remote, site: Site, tmp_path: Path, digest: str):
    url = f"{site.url}/probe.mar?signature=secret"
    with registering(tmp_path, remote(f"{site.url}/.*")) as server:
        line = f"/models?url={quote(url, safe='')}&model_name=far&digest={digest}"
        assert server.manage("POST", line)[0] == 200
        assert server.request("POST", "/predictions/far", b"x")[2] == b"x"
        (listed,) = server.manage("GET", "/models")[1]["models"]
        assert listed["modelName"] == "far"
        assert "secret" not in listed["modelUrl"]
        assert server.manage("DELETE", "/models/far")[0] == 200
        assert server.manage("POST", f"/models?url=probe.mar&digest={digest}")[0] == 400
        assert server.manage("POST", f"/models?url={quote(url, safe='')}")[0] == 400
        assert server.manage("POST", "/models?url=probe.mar")[0] == 200


def test_without_the_option_the_refusal_names_it(site: Site, tmp_path: Path, digest: str):
    with registering(tmp_path, None) as server:
        code, found = server.manage("POST", f"/models?url={quote(site.url, safe='')}/probe.mar")
        assert (code, "--allow-remote-register" in found["message"]) == (404, True)
        assert server.manage("POST", f"/models?url={quote(site.url, safe='')}/probe.mar&digest={digest}")[0] == 400
    assert site.requested == []
