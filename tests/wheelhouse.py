"""Wheels of a few bytes, and the only ones that pip then knows, in a folder or on an index that states their sizes."""

import hashlib
import threading
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ELF = b"\x7fELF" + bytes(60)


def write_wheel(
    folder: Path,
    file: str,
    files: Mapping[str, bytes],
    *lines: str,
    record: str | None = None,
    left_out: tuple[str, ...] = (),
) -> Path:
    """Write a wheel of these files, with further lines of metadata; `record` takes the place of its RECORD."""
    name, version = file.split("-")[:2]
    info = f"{name}-{version}.dist-info"
    metadata = "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines, ""])
    tag = "-".join(file.removesuffix(".whl").split("-")[-3:])
    described = f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n"
    packed = {**files, f"{info}/METADATA": metadata.encode(), f"{info}/WHEEL": described.encode()}
    digests = {name: urlsafe_b64encode(hashlib.sha256(data).digest()) for name, data in packed.items()}
    rows = [f"{name},sha256={digest.decode().rstrip('=')},{len(packed[name])}" for name, digest in digests.items()]
    listed = "\n".join([*rows, f"{info}/RECORD,,", ""]) if record is None else record
    with zipfile.ZipFile(folder / file, "w") as wheel:
        for name, data in (packed | {f"{info}/RECORD": listed.encode()}).items():
            if name not in left_out:
                wheel.writestr(name, data)
    return folder / file


def only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip know nothing but a folder of wheels."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


class Index(ThreadingHTTPServer):
    """An index on this machine, with the wheels of a folder and their metadata."""

    def __init__(self, folder: Path, size: int | None, *, with_metadata: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.folder = folder
        self.size = size  # that it states for every wheel, whatever they have; None: it states none
        self.with_metadata = with_metadata  # as files of their own
        self.fetched: list[str] = []  # wheels that were downloaded

    @property
    def environ(self) -> dict[str, str]:
        """The variables by which pip finds this index only."""
        kept = {"PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": "", "PIP_NO_INDEX": "0", "PIP_NO_CACHE_DIR": "1"}
        return {**kept, "PIP_INDEX_URL": f"http://127.0.0.1:{self.server_address[1]}/simple/"}


@contextmanager
def serve_index(folder: Path, size: int | None, *, with_metadata: bool = True) -> Iterator[Index]:
    """Serve a folder of wheels as an index."""
    with Index(folder, size, with_metadata=with_metadata) as index:
        thread = threading.Thread(target=index.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield index
        finally:
            index.shutdown()
            thread.join()


class _Answers(BaseHTTPRequestHandler):
    server: Index

    def do_HEAD(self) -> None:
        size = self.server.size
        self.send_response(200)
        if size is not None:
            self.send_header("Content-Length", str(size))
        self.end_headers()

    def do_GET(self) -> None:
        name = self.path.strip("/").rpartition("/")[2]
        body = self._listed(name) if self.path.startswith("/simple/") else self._file(name)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Type", "text/html" if self.path.startswith("/simple/") else "application/zip")
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def _listed(self, project: str) -> bytes | None:
        wheels = [path.name for path in self.server.folder.iterdir() if path.name.partition("-")[0] == project]
        mark = ' data-dist-info-metadata="true"' if self.server.with_metadata else ""
        links = [f'<a href="/files/{name}"{mark}>{name}</a>' for name in wheels]
        return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode() if wheels else None

    def _file(self, name: str) -> bytes | None:
        wheel = self.server.folder / name.removesuffix(".metadata")
        if not wheel.is_file():
            return None
        if name.endswith(".metadata"):
            with zipfile.ZipFile(wheel) as archive:
                return archive.read(next(each for each in archive.namelist() if each.endswith("/METADATA")))
        self.server.fetched.append(name)
        return wheel.read_bytes()

    def log_message(self, *_: object) -> None:
        """Say nothing."""
