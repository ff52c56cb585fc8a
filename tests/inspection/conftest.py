"""Archives and files in memory to inspect, and a server that counts the bytes it sends."""

import io
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from inspection.containers import written
from lazy import torch

from marpack.archive.manifest import Manifest, ManifestModel
from marpack.inspection.nested_files import NestedScan
from marpack.inspection.pickles import PickleScan, scan_of
from marpack.project.plan import Format, Plan, PlannedMember, Role, pack
from marpack.weights.contents import recognize


@pytest.fixture(scope="session")
def scan() -> Callable[..., PickleScan]:
    """Return a function that looks into bytes under an innocent name."""

    def scan(content: bytes, name: str = "notes.bin", **options: object) -> PickleScan:
        file, walk = io.BytesIO(content), NestedScan(**options)
        return scan_of(list(walk.file(name, file, recognize(file, walk.budget))))

    return scan


@pytest.fixture(scope="session")
def saved() -> Callable[..., bytes]:
    """Return a function that writes what torch.save writes."""
    return lambda value, **options: written(lambda file: torch.save(value, file, **options))


def packed(
    output: Path,
    weights: Path,
    *more: PlannedMember,
    form: Format = Format.DEFAULT,
    samples: tuple[dict[str, Any], ...] = (),
    **model: str,
) -> Path:
    """Pack weights and a handler, with further members and fields of the model."""
    fields = {"name": "net", "handler": "handler.py", "version": "1.0", "serialized_file": weights.name, **model}
    members = (PlannedMember(weights.name, weights, Role.WEIGHTS), *more)
    manifest = Manifest(model=ManifestModel(**fields))
    pack(Plan(manifest=manifest, members=members, output=output, format=form, samples=samples))
    return output


def members_of(files: dict[str, str | bytes]) -> list[PlannedMember]:
    """Return members for files whose names are identifiers: `a__py` is `a.py`."""
    contents = {name: text.encode() if isinstance(text, str) else text for name, text in files.items()}
    return [PlannedMember(name.replace("__", "."), content) for name, content in contents.items()]


class Served:
    """A folder behind a web server on this machine, and what was asked of it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[tuple[str, str | None]] = []  # path, Range
        self.sent = 0  # bytes of bodies
        self.headers: list[dict[str, str]] = []
        self.answers: dict[str, Callable[[BaseHTTPRequestHandler], None]] = {}  # by path, in place of files


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Served]:
    """Serve tmp_path with ranges; byte counts are those of the bodies."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            served.requests.append((self.path, self.headers.get("Range")))
            served.headers.append(dict(self.headers))
            if self.path in served.answers:
                served.answers[self.path](self)
                return
            path = tmp_path / self.path.partition("?")[0].lstrip("/")
            if not path.is_file():
                self.send_error(404)
                return
            start, stop, size = _range(self.headers.get("Range"), path.stat().st_size)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
            self.send_header("Content-Length", str(stop - start))
            self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
            self.end_headers()
            served.sent += stop - start  # before it is sent: whoever has read it may look at the count at once
            with path.open("rb") as file:
                file.seek(start)
                self.wfile.write(file.read(stop - start))

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Served(f"http://127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield served
    server.shutdown()
    server.server_close()
    thread.join()


def _range(text: str | None, size: int) -> tuple[int, int, int]:
    first, _, last = (text or "bytes=0-").removeprefix("bytes=").partition("-")
    if not first:
        return max(0, size - int(last)), size, size
    return int(first), min(size, int(last) + 1) if last else size, size
