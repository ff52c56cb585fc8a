import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import ClassVar

import fsspec
import pytest
from refusals import has_code, has_facts

from marpack.archive.cache import Cache, fetch_whole
from marpack.errors import (
    DamagedArchiveError,
    ExtractionError,
    LimitExceededError,
    MarpackError,
    NotAnArchiveError,
    UsageError,
)

DATA = Random(16).randbytes(3 << 20)  # the same in each process, as tests are named by its digest
SHA256 = hashlib.sha256(DATA).hexdigest()
Answer = Callable[["Liar"], None]


class Liar(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[str]] = []
    answers: ClassVar[dict[str, Answer]] = {}

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.close_connection = True
        with suppress(OSError):  # the other side has had enough
            self.answers[self.path.partition("?")[0]](self)

    def head(self, status: int, **headers: object) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def file(data: bytes = DATA, *, length: int | None = len(DATA), **headers: object) -> Answer:
    def answer(liar: Liar) -> None:
        liar.head(200, **({} if length is None else {"Content_Length": length}), **headers)
        liar.wfile.write(data)

    return answer


def refusal(status: int, **headers: object) -> Answer:
    return lambda liar: liar.head(status, Content_Length=0, **headers)


def endless(liar: Liar) -> None:
    liar.head(200)
    while True:
        liar.wfile.write(bytes(1 << 16))


def broken_chunks(liar: Liar) -> None:
    liar.head(200, Transfer_Encoding="chunked")
    liar.wfile.write(b"5\r\nhel")


def silence(liar: Liar) -> None:
    time.sleep(0.3)


Liar.answers = {
    "/x.mar": file(ETag='"1"'),
    "/dated.mar": file(Last_Modified="Mon, 01 Jan 2024 00:00:00 GMT"),
    "/no-version.mar": file(),
    "/no-length.mar": file(length=None),
    "/moved.mar": refusal(302, Location="/x.mar"),
    "/short": file(DATA[:-1]),
    "/short-without-length": file(DATA[:-1], length=None),
    "/long": file(DATA + b"x", length=len(DATA) + 1),
    "/wrong": file(DATA[:-1] + bytes([DATA[-1] ^ 1])),
    "/empty": file(b"", length=0),
    "/large": file(b"", length=1 << 40),
    "/endless": endless,
    "/broken-chunks": broken_chunks,
    "/silence": silence,
    "/nothing": lambda _: None,
    "/no-http": lambda liar: liar.wfile.write(b"hello\r\n") and None,
    "/404": refusal(404),
    "/to-file": refusal(302, Location="file:///etc/passwd?secret"),
    "/to-plain-http": refusal(303, Location="http://example.invalid/secret"),
    "/to-nowhere": refusal(302),
    "/to-itself": refusal(308, Location="/to-itself"),
}


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Liar) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def fetched(address: str, cache: Cache, sha256: str | None = SHA256, maximum: int = 4 << 20) -> Path:
    return fetch_whole(address, cache, sha256=sha256, maximum=maximum)


@pytest.mark.parametrize("name", ["x.mar", "no-version.mar", "no-length.mar", "moved.mar"])
@pytest.mark.parametrize("sha256", [SHA256, None])
def test_a_file_arrives_whole_under_its_name(name: str, sha256: str | None, site: str, cache: Cache):
    path = fetched(f"{site}/{name}?token=secret", cache, sha256)
    assert path.read_bytes() == DATA
    assert path.name == name
    assert cache.root in path.parents
    assert "secret" not in str(path)


@pytest.mark.parametrize(
    ("name", "sha256", "count"),
    [
        ("x.mar", SHA256, 1),  # by its digest nobody needs to be asked
        ("x.mar", None, 2),  # asked for its version, and left at that
        ("dated.mar", None, 2),
        ("no-version.mar", SHA256, 1),
    ],
)
def test_what_is_there_is_not_fetched_again(name: str, sha256: str | None, count: int, site: str, cache: Cache):
    first = fetched(f"{site}/{name}", cache, sha256)
    before = first.stat()
    Liar.asked.clear()
    fetched(f"{site}/{name}", cache, sha256)
    assert first.stat().st_ino == before.st_ino
    assert len(Liar.asked) == count - 1


def test_a_file_that_others_could_have_put_into_the_cache_is_refused(site: str, cache: Cache):
    fetched(f"{site}/x.mar", cache)
    cache.root.chmod(0o770)
    with pytest.raises(ExtractionError, check=has_code("unsafe-cache")):
        fetched(f"{site}/x.mar", cache)


def test_without_a_version_it_is_fetched_again(site: str, cache: Cache):
    path = fetched(f"{site}/no-version.mar", cache, None)
    inode = path.stat().st_ino
    with path.open("rb"):  # so that the number is not given away again
        assert fetched(f"{site}/no-version.mar", cache, None).stat().st_ino != inode
    assert not path.exists()


@pytest.mark.parametrize("change", ["other bytes", "gone", "no stamp"])
def test_what_was_touched_is_fetched_again(change: str, site: str, cache: Cache):
    path = fetched(f"{site}/x.mar", cache)
    {
        "other bytes": lambda: path.write_bytes(bytes(len(DATA))),
        "gone": path.unlink,
        "no stamp": next(cache.root.glob("*.json")).unlink,
    }[change]()
    assert fetched(f"{site}/x.mar", cache).read_bytes() == DATA


def test_another_version_is_another_file(site: str, cache: Cache, monkeypatch: pytest.MonkeyPatch):
    old = fetched(f"{site}/x.mar", cache, None)
    monkeypatch.setitem(Liar.answers, "/x.mar", file(DATA[::-1], ETag='"2"'))
    new = fetched(f"{site}/x.mar", cache, None)
    assert (old.read_bytes(), new.read_bytes()) == (DATA, DATA[::-1])


@pytest.mark.parametrize("path", ["", "/", "/.hidden", "/a%2Fb%5Cc", f"/{'x' * 250}", "/%00"])
def test_what_can_be_no_files_name_gets_another(path: str, site: str, cache: Cache, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(Liar.answers, path or "/", file())
    monkeypatch.setitem(Liar.answers, path, file())
    kept = fetched(f"{site}{path}", cache)
    assert kept.name == "file"
    assert fetched(f"{site}{path}", cache) == kept


WRONG: list[tuple[str, type[MarpackError], str, str]] = [  # path, class, code, what the message states
    ("/short", DamagedArchiveError, "damaged-archive", "3,145,727 of 3,145,728"),
    ("/short-without-length", DamagedArchiveError, "digest-mismatch", SHA256),
    ("/long", DamagedArchiveError, "digest-mismatch", SHA256),
    ("/wrong", DamagedArchiveError, "digest-mismatch", SHA256),
    ("/empty", DamagedArchiveError, "digest-mismatch", SHA256),
    ("/large", LimitExceededError, "limit-exceeded", "1,099,511,627,776"),
    ("/endless", LimitExceededError, "limit-exceeded", "4,194,304"),
    ("/broken-chunks", NotAnArchiveError, "connection-failed", "IncompleteRead"),
    ("/nothing", NotAnArchiveError, "connection-failed", ""),
    ("/no-http", NotAnArchiveError, "connection-failed", ""),
    ("/404", NotAnArchiveError, "unexpected-status", "404 Not Found"),
    ("/to-file", NotAnArchiveError, "unexpected-status", " file: "),
    ("/to-plain-http", NotAnArchiveError, "unexpected-status", " http: "),
    ("/to-nowhere", NotAnArchiveError, "unexpected-status", "302"),
    ("/to-itself", NotAnArchiveError, "unexpected-status", "308"),
]


@pytest.mark.parametrize(("path", "kind", "code", "fact"), WRONG, ids=[row[0] for row in WRONG])
def test_whatever_goes_wrong_is_said_and_leaves_nothing(
    path: str, kind: type[MarpackError], code: str, fact: str, site: str, cache: Cache
):
    address = f"{site.replace('//', '//user:secret@')}{path}?token=secret"
    with pytest.raises(kind, check=has_code(code, fact)) as caught:
        fetched(address, cache)
    assert "secret" not in f"{caught.value} {caught.value.hint}"
    assert not cache.root.exists() or not list(cache.root.iterdir())


def test_a_server_that_says_nothing_is_not_waited_for(site: str, cache: Cache, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("marpack.archive.http.TIMEOUT", 0.1)
    with pytest.raises(NotAnArchiveError, check=has_code("too-slow")):
        fetched(f"{site}/silence", cache)


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("http://127.0.0.1:1/x?token=secret", "unreachable"),
        ("http://user:secret@host:port/x", "invalid-address"),
        ("https://a b/x?secret", "invalid-address"),
        ("memory://none/secret-not.mar", "fetch-failed"),
        ("nonsense://x/y", "fetch-failed"),
    ],
)
def test_where_nothing_can_be_had(address: str, code: str, cache: Cache):
    with pytest.raises(NotAnArchiveError, check=has_code(code)) as caught:
        fetched(address, cache)
    assert "token=secret" not in str(caught.value)
    assert ":secret@" not in str(caught.value)


def test_other_places_are_read_by_fsspec(cache: Cache):
    with fsspec.open("memory://models/x.mar", "wb") as made:
        made.write(DATA)
    assert fetched("memory://models/x.mar", cache).read_bytes() == DATA
    with pytest.raises(LimitExceededError, check=has_facts(" 100")):
        fetched("memory://models/x.mar", cache, None, 100)
    with pytest.raises(DamagedArchiveError, check=has_code("digest-mismatch")):
        fetched("memory://models/x.mar", cache, "0" * 64)


def test_s3_without_its_package_names_the_extra(cache: Cache):
    try:
        import s3fs  # noqa: F401
    except ImportError:
        with pytest.raises(UsageError, check=has_facts("s3fs", "pip install '.[s3]'")):
            fetched("s3://bucket/x.mar", cache)


def test_a_disk_without_room_is_said_before_it_is_full(site: str, cache: Cache, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=5))
    with pytest.raises(ExtractionError, check=has_facts("3,145,728 bytes", " 5")):
        fetched(f"{site}/x.mar", cache)
    assert not cache.root.exists() or not list(cache.root.iterdir())
