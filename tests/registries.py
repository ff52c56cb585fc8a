"""Registries to talk to: Debian's, and one of ours in a thread, which lies where it is asked to."""

import base64
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.request import Request, urlopen

import pytest

BINARY = shutil.which("docker-registry")
CONFIG = """version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {root}}}, delete: {{enabled: true}}}}
http: {{addr: "127.0.0.1:{port}"}}
{auth}"""
# The user "ann" with the password "secret": no tool that could hash it need be here.
HTPASSWD = "ann:$2b$05$PxQxoKjI4DJ5T1ZgrJEhzeFY/5ZkZDvvSapYAbpM8QuD8p.n8972e\n"


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@contextmanager
def running(folder: Path, *, auth: str = "") -> Iterator[str]:
    """Give the address of Debian's registry, for as long as it runs."""
    if BINARY is None:
        demanded = os.environ.get("MARPACK_REQUIRE_REGISTRY") == "1"
        (pytest.fail if demanded else pytest.skip)("no docker-registry here: nothing is pushed to a real one")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = folder / "config.yml"
    config.write_text(CONFIG.format(root=folder / "storage", port=port, auth=auth))
    process = subprocess.Popen([BINARY, "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            threading.Event().wait(0.02)
        else:
            raise AssertionError("the registry does not start")
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give host and port of a registry that lets everyone in."""
    with running(tmp_path_factory.mktemp("registry")) as address:
        yield address


@pytest.fixture(scope="session")
def private_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give host and port of a registry that knows but ann, whose password is secret."""
    folder = tmp_path_factory.mktemp("private")
    (folder / "htpasswd").write_text(HTPASSWD)
    with running(folder, auth=f"auth: {{htpasswd: {{realm: here, path: {folder / 'htpasswd'}}}}}\n") as address:
        yield address


def log_in(home: Path, host: str, user: str = "ann", password: str = "secret") -> None:
    """Leave what `docker login` leaves."""
    (home / ".docker").mkdir(parents=True, exist_ok=True)
    entry = {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}
    (home / ".docker" / "config.json").write_text(json.dumps({"auths": {host: entry}}))


class Asked(NamedTuple):
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]


class Reply(NamedTuple):
    """What is answered; of `cut` only that many bytes of the body arrive, `Content-Length` says what it would."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}
    cut: int | None = None
    wait: float = 0  # seconds between the bytes of the body


Rule = Callable[[Asked], Reply | None]


class FakeRegistry:
    """A registry in memory, which sends ranges and lists no referrers; `rules` are asked first, one after the other."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        self.rules: list[Rule] = []
        self.asked: list[Asked] = []
        self._pause = threading.Event()  # time.sleep may be kept from sleeping
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def _do(self) -> None:
                registry.respond(self)

            do_GET = do_HEAD = do_PUT = do_POST = _do

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.host = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        asked = Asked(handler.command, handler.path, dict(handler.headers.items()))
        self.asked.append(asked)
        sent = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        reply = next((reply for rule in self.rules if (reply := rule(asked))), None) or self.usual(asked, sent)
        handler.send_response(reply.status)
        for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command != "HEAD":
            with suppress(OSError):
                self._send(handler, reply)

    def _send(self, handler: BaseHTTPRequestHandler, reply: Reply) -> None:
        body = reply.body[: reply.cut]
        if not reply.wait:
            handler.wfile.write(body)
            return
        for byte in body:
            handler.wfile.write(bytes([byte]))
            handler.wfile.flush()
            self._pause.wait(reply.wait)

    def usual(self, asked: Asked, sent: bytes) -> Reply:
        """Do as a registry should."""
        path, _, query = asked.path.partition("?")
        name = path.rpartition("/")[2]
        if asked.method == "POST":
            return Reply(202, headers={"Location": f"{path}upload"})
        if asked.method == "PUT" and "/blobs/uploads/" in path:
            digest = query.rpartition("digest=")[2].replace("%3A", ":")
            if sha256(sent) != digest:
                return self.problem(400, "DIGEST_INVALID", "other bytes")
            self.blobs[digest] = sent
            return Reply(201)
        if asked.method == "PUT":
            self.manifests[name] = self.manifests[sha256(sent)] = sent
            return Reply(201, headers={"Docker-Content-Digest": sha256(sent)})
        if "/manifests/" in path and name in self.manifests:
            data = self.manifests[name]
            return Reply(200, data, {"Docker-Content-Digest": sha256(data), "Content-Type": "application/json"})
        if "/blobs/" in path and name in self.blobs:
            return self.blob(asked, name)
        return self.problem(404, "MANIFEST_UNKNOWN", "manifest unknown")

    def blob(self, asked: Asked, name: str) -> Reply:
        data, version = self.blobs[name], f'"{name}"'
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", asked.headers.get("Range", ""))
        if wanted is None or asked.headers.get("If-Range", version) != version:
            return Reply(200, data, {"ETag": version})
        start, stop = int(wanted[1]), min(int(wanted[2] or len(data)) + 1, len(data))
        placed = f"bytes {start}-{stop - 1}/{len(data)}"
        return Reply(206, data[start:stop], {"ETag": version, "Content-Range": placed})

    @staticmethod
    def problem(status: int, code: str, message: str) -> Reply:
        return Reply(status, json.dumps({"errors": [{"code": code, "message": message}]}).encode())

    def forget(self) -> None:
        self.asked.clear()

    def paths(self, method: str) -> list[str]:
        return [asked.path for asked in self.asked if asked.method == method]


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry() as registry:
        yield registry


@pytest.fixture
def other() -> Iterator[FakeRegistry]:
    """Give another host."""
    with FakeRegistry() as registry:
        yield registry


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be somebody who has never logged in anywhere."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Wait for nothing, and give the list of what would have been waited."""
    waited: list[float] = []
    monkeypatch.setattr("marpack.archive.oci.repository.time.sleep", waited.append)
    return waited


def served(address: str, path: str) -> Any:
    kinds = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json"
    with urlopen(Request(f"http://{address}{path}", headers={"Accept": kinds}), timeout=10) as answer:
        return json.load(answer)
