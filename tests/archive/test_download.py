import hashlib
import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from random import Random
from types import SimpleNamespace

import fsspec
import pytest
from archive.site import Answer, Site, respond
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

DATA = Random(16).randbytes(1_100_000)  # more than one block
SHA256 = hashlib.sha256(DATA).hexdigest()


def file(data: bytes = DATA, *, length: int | None = len(DATA), **headers: object) -> Answer:
    return respond(200, data, Content_Length=length, **headers)


def endless(asked: BaseHTTPRequestHandler) -> None:
    respond(200, b"", Content_Length=None)(asked)
    while True:
        asked.wfile.write(bytes(1 << 16))


def nothing(asked: BaseHTTPRequestHandler) -> None:
    asked.close_connection = True


def no_http(asked: BaseHTTPRequestHandler) -> None:
    asked.wfile.write(b"hello\r\n")
    asked.close_connection = True


ANSWERS = {
    "/x.mar": file(ETag='"1"'),
    "/dated.mar": file(Last_Modified="Mon, 01 Jan 2024 00:00:00 GMT"),
    "/no-version.mar": file(),
    "/no-length.mar": file(length=None),
    "/moved.mar": respond(302, Location="/x.mar"),
    "/short": file(DATA[:-1]),
    "/short-without-length": file(DATA[:-1], length=None),
    "/long": file(DATA + b"x", length=len(DATA) + 1),
    "/wrong": file(DATA[:-1] + bytes([DATA[-1] ^ 1])),
    "/empty": file(b"", length=0),
    "/large": file(b"", length=1 << 40),
    "/endless": endless,
    "/broken-chunks": file(b"5\r\nhel", length=None, Transfer_Encoding="chunked"),
    "/silence": lambda _: time.sleep(0.3),
    "/nothing": nothing,
    "/no-http": no_http,
    "/404": respond(404),
    "/to-file": respond(302, Location="file:///etc/passwd?secret"),
    "/to-plain-http": respond(303, Location="http://example.invalid/secret"),
    "/to-nowhere": respond(302),
    "/to-itself": respond(308, Location="/to-itself"),
}


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        site.answers = dict(ANSWERS)
        yield site


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def fetched(address: str, cache: Cache, sha256: str | None = SHA256, maximum: int = 2 << 20) -> Path:
    return fetch_whole(address, cache, sha256=sha256, maximum=maximum)


@pytest.mark.parametrize("name", ["x.mar", "dated.mar", "no-version.mar", "no-length.mar", "moved.mar"])
def test_a_file_arrives_whole_under_its_name_and_by_its_digest_once(name: str, site: Site, cache: Cache):
    path = fetched(f"{site}/{name}?token=secret", cache)
    assert path.read_bytes() == DATA
    assert path.name == name
    assert cache.root in path.parents
    site.requests.clear()
    assert fetched(f"{site}/{name}?token=secret", cache) == path
    assert not site.requests
    other = fetched(f"{site}/{name}?token=secret", cache, None)
    assert (other.read_bytes(), other.name) == (DATA, name)
    assert not any("secret" in str(each) for each in cache.root.rglob("*"))


@pytest.mark.parametrize("name", ["x.mar", "dated.mar"])
def test_a_file_with_a_version_is_not_fetched_again(name: str, site: Site, cache: Cache):
    first = fetched(f"{site}/{name}", cache, None)
    inode = first.stat().st_ino
    site.requests.clear()
    assert fetched(f"{site}/{name}", cache, None) == first
    assert (first.stat().st_ino, len(site.requests)) == (inode, 1)  # for its version


def test_a_file_that_others_could_have_put_into_the_cache_is_refused(site: Site, cache: Cache):
    path = fetched(f"{site}/x.mar", cache)
    path.write_bytes(b"another archive")
    status, stamp = path.stat(), next(cache.root.glob("*.json"))
    forged = json.loads(stamp.read_text())
    forged["tree"] = {path.name: [status.st_size, status.st_mtime_ns, status.st_ctime_ns]}
    stamp.write_text(json.dumps(forged))
    cache.root.chmod(0o770)
    with pytest.raises(ExtractionError, check=has_code("unsafe-cache")):
        fetched(f"{site}/x.mar", cache)


def test_without_a_version_it_is_fetched_again(site: Site, cache: Cache):
    path = fetched(f"{site}/no-version.mar", cache, None)
    inode = path.stat().st_ino
    with path.open("rb"):  # so that the number is not given away again
        assert fetched(f"{site}/no-version.mar", cache, None).stat().st_ino != inode
    assert not path.exists()


def test_what_was_touched_is_fetched_again(site: Site, cache: Cache):
    def change(path: Path) -> None:
        path.write_bytes(bytes(len(DATA)))

    def remove_stamp(_: Path) -> None:
        next(cache.root.glob("*.json")).unlink()

    for touch in (change, Path.unlink, remove_stamp):
        touch(fetched(f"{site}/x.mar", cache))
        assert fetched(f"{site}/x.mar", cache).read_bytes() == DATA


def test_another_version_is_another_file(site: Site, cache: Cache):
    old = fetched(f"{site}/x.mar", cache, None)
    site.answers["/x.mar"] = file(DATA[::-1], ETag='"2"')
    new = fetched(f"{site}/x.mar", cache, None)
    assert (old.read_bytes(), new.read_bytes()) == (DATA, DATA[::-1])


def test_what_can_be_no_files_name_gets_another(site: Site, cache: Cache):
    site.default = file()
    for path in ("", "/", "/.hidden", "/a%2Fb%5Cc", f"/{'x' * 250}", "/%00"):
        kept = fetched(f"{site}{path}", cache)
        assert kept.name == "file"
        assert fetched(f"{site}{path}", cache) == kept


WRONG: list[tuple[str, type[MarpackError], str, str]] = [  # path, class, code, what the message states
    ("/short", DamagedArchiveError, "damaged-archive", "1,099,999 of 1,100,000"),
    ("/short-without-length", DamagedArchiveError, "digest-mismatch", SHA256),
    ("/long", DamagedArchiveError, "digest-mismatch", SHA256),
    ("/wrong", DamagedArchiveError, "digest-mismatch", SHA256),
    ("/empty", DamagedArchiveError, "digest-mismatch", SHA256),
    ("/large", LimitExceededError, "limit-exceeded", "1,099,511,627,776"),
    ("/endless", LimitExceededError, "limit-exceeded", "2,097,152"),
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
    path: str, kind: type[MarpackError], code: str, fact: str, site: Site, cache: Cache
):
    address = f"{site.url.replace('//', '//user:secret@')}{path}?token=secret"
    with pytest.raises(kind, check=has_code(code, fact)) as caught:
        fetched(address, cache)
    assert "secret" not in f"{caught.value} {caught.value.hint}"
    assert not cache.root.exists() or not list(cache.root.iterdir())


def test_a_server_that_says_nothing_is_not_waited_for(site: Site, cache: Cache, monkeypatch: pytest.MonkeyPatch):
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


def test_a_disk_without_room_is_said_before_it_is_full(site: Site, cache: Cache, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=5))
    with pytest.raises(ExtractionError, check=has_facts("1,100,000 bytes", " 5")):
        fetched(f"{site}/x.mar", cache)
    assert not cache.root.exists() or not list(cache.root.iterdir())
