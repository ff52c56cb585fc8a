import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import fsspec
import pytest

from marpack.archive.remote import check_address, fetch
from marpack.errors import UsageError
from marpack.runner.inputs import RequestDefaults, file_inputs
from marpack.runner.sources import check_sources


class Answers(BaseHTTPRequestHandler):
    asked: ClassVar[list[tuple[str, str | None]]] = []  # path and credentials

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Authorization")))
        if self.path == "/moved.png":
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{self.server.server_port}/a.png")
            self.end_headers()
            return
        if self.path.startswith("/gone.png"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", "999" if self.path == "/torn.png" else "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_inputs_are_fetched_over_http(site: str):
    there, gone, torn = file_inputs(
        [f"{site}/a.png?size=2.5", f"{site}/gone.png?key=secret", f"{site}/torn.png"], RequestDefaults()
    )
    assert there.request.parts[0].value == b"hello"
    assert there.request.parts[0].content_type == "image/png"
    assert gone.why is not None
    assert gone.why.message == "the server answers 404 Not Found"
    assert torn.why is not None
    assert torn.why.message == "the connection broke off after 5 of 999 bytes"


def test_a_server_that_is_not_there_is_said():
    with pytest.raises(UsageError, match="cannot be reached") as caught:
        fetch("http://user:secret@127.0.0.1:1/x?token=secret")
    assert "secret" not in str(caught.value)


def test_credentials_are_for_the_host_they_are_given_for(site: str):
    Answers.asked.clear()

    assert fetch(f"{site.replace('//', '//user:se%40cret@')}/moved.png") == b"hello"

    token = base64.b64encode(b"user:se@cret").decode()
    assert Answers.asked == [("/moved.png", f"Basic {token}"), ("/a.png", None)]


@pytest.mark.parametrize("address", ["http://user:secret@host:port/x", "http://user:secret@host/a b?key=secret"])
def test_what_is_no_address_is_not_shown_either(address: str):
    with pytest.raises(UsageError, match="this is no address") as caught:
        fetch(address)
    assert "secret" not in str(caught.value)


def test_an_input_has_a_largest_size(site: str):
    with fsspec.open("memory://inputs/five.txt", "wb") as file:
        file.write(b"hello")
    for address in (f"{site}/a.png", "memory://inputs/five.txt"):
        assert fetch(address, 5) == b"hello"
        with pytest.raises(UsageError, match="larger than 4 bytes"):
            fetch(address, 4)


def test_other_addresses_go_through_fsspec():
    with fsspec.open("memory://inputs/a.txt", "wb") as file:
        file.write(b"there")
    assert fetch("memory://inputs/a.txt") == b"there"
    with pytest.raises(UsageError, match="cannot be fetched"):
        fetch("memory://inputs/gone.txt")


def test_what_nothing_can_read_is_said_before_anything_is_loaded():
    with pytest.raises(UsageError, match="such an address"):
        check_sources(["nonsense://x/y"])
    check_address("https://example.invalid/x")
    try:
        import s3fs  # noqa: F401
    except ImportError:
        with pytest.raises(UsageError, match="s3fs"):
            check_sources(["s3://bucket/x"])
