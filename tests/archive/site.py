"""A web server on this machine that responds as a test wants it, and remembers what it was asked for."""

import ssl
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[[BaseHTTPRequestHandler], object]


def respond(status: int = 200, body: bytes = b"hello", **headers: object) -> Answer:
    """Return an answer; with a length of its own, or None, it closes the connection without saying so."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = "Content_Length" in headers
        handler.send_response(status)
        for name, value in {"Content_Length": len(body), **headers}.items():
            if value is not None:
                handler.send_header(name.replace("_", "-"), str(value))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        pass  # the other side has had enough


class Site(AbstractContextManager["Site"]):
    """The server; it keeps connections."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []  # target, headers
        self.connections = 0
        self.answers: dict[str, Answer] = {}  # by path, without its query
        self.default = respond()
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                site.connections += 1

            def do_GET(self) -> None:
                site.requests.append((self.path, dict(self.headers.items())))
                with suppress(OSError):
                    site.answers.get(self.path.partition("?")[0], site.default)(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def __str__(self) -> str:
        return self.url

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
