import base64
import importlib.util
import re
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import fsspec
import pytest
from archive.site import Answer, Site, respond
from fsspec.implementations.memory import MemoryFileSystem
from refusals import has_code

from marpack.archive import remote
from marpack.archive.cache import Cache
from marpack.archive.protocol import Limits
from marpack.archive.reader import open_archive
from marpack.archive.remote import (
    FetchedRange,
    HttpFetch,
    RemoteFile,
    check_address,
    fetch,
    open_remote,
)
from marpack.archive.zip_archive import ZipArchive
from marpack.errors import DamagedArchiveError, NotAnArchiveError, UsageError
from marpack.runner.inputs import RequestDefaults, check_sources, file_inputs

DATA = bytes(range(256)) * 400


def part(start: int, stop: int, size: int = len(DATA), **headers: str) -> Answer:
    return respond(206, DATA[start:stop], Content_Range=f"bytes {start}-{stop - 1}/{size}", **headers)


END = part(len(DATA) - 100, len(DATA))


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        site.answers = {
            "/moved.png": respond(302, Location="/a.png"),
            "/gone.png": respond(404),
            "/torn.png": respond(Content_Length=999),
            "/beginning": lambda asked: (END if "=-" in asked.headers["Range"] else part(0, 50))(asked),
            "/nowhere": respond(206, DATA[:10]),
            "/whole": respond(200, DATA),
            "/large": respond(200, b"", Content_Length=(32 << 20) + 1),
            "/endless": respond(206, DATA[:101], Content_Range="bytes 0-99/100", Content_Length=1 << 40),
            "/exact": END,
            "/torn": respond(200, b"", Content_Length=32 << 20),
            "/etag": part(0, 10, 10, ETag="1"),
            "/date": part(0, 10, 10, Last_Modified="1"),
        }
        yield site


def test_inputs_are_fetched_over_http(site: Site):
    there, gone, torn = file_inputs(
        [f"{site}/a.png?size=2.5", f"{site}/gone.png?key=secret", f"{site}/torn.png"], RequestDefaults()
    )
    assert there.request.parts[0].value == b"hello"
    assert there.request.parts[0].content_type == "image/png"
    assert gone.why is not None
    assert "404 Not Found" in gone.why.message
    assert torn.why is not None
    assert "5 of 999" in torn.why.message
    assert gone.why.kind == torn.why.kind == "unreadable-input"


def test_a_redirect_on_the_same_server_keeps_the_login(site: Site):
    assert fetch(f"{site.url.replace('//', '//user:se%40cret@')}/moved.png") == b"hello"
    login = f"Basic {base64.b64encode(b'user:se@cret').decode()}"
    asked = [(path, headers["Authorization"]) for path, headers in site.requests]
    assert asked == [("/moved.png", login), ("/a.png", login)]


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("http://user:secret@127.0.0.1:1/x?token=secret", "unreachable"),
        ("http://user:secret@host:port/x", "invalid-address"),
        ("http://user:secret@[host/a?key=secret", "invalid-address"),
    ],
)
def test_an_input_that_cannot_be_fetched_is_told_without_secrets(address: str, code: str):
    with pytest.raises(UsageError, check=has_code(code)) as caught:
        fetch(address)
    assert "secret" not in str(caught.value)


def test_an_input_has_a_largest_size_and_may_be_of_fsspec(site: Site):
    with fsspec.open("memory://inputs/five.txt", "wb") as file:
        file.write(b"hello")
    for address in (f"{site}/a.png", "memory://inputs/five.txt"):
        assert fetch(address, 5) == b"hello"
        with pytest.raises(UsageError, match="larger than 4 bytes"):
            fetch(address, 4)
    with pytest.raises(UsageError, check=has_code("fetch-failed")):
        fetch("memory://inputs/gone.txt")


def test_what_nothing_can_read_is_said_before_anything_is_loaded():
    with pytest.raises(UsageError, check=has_code("unknown-scheme")):
        check_sources(["nonsense://x/y"])
    check_address("https://example.invalid/x")
    try:
        import s3fs  # noqa: F401
    except ImportError:
        with pytest.raises(UsageError, match="s3fs"):
            check_sources(["s3://bucket/x"])


# --- archives, by range ---------------------------------------------------------------------------------------------


class Kept:
    """Bytes at hand, and what was asked of them."""

    def __init__(self, data: bytes = DATA, version: str = "1") -> None:
        self.data, self.version = data, version
        self.asked: list[tuple[int, int]] = []

    def close(self) -> None:
        pass

    def last(self, count: int) -> FetchedRange:
        return FetchedRange(self.data[-count:], max(0, len(self.data) - count), len(self.data), self.version)

    def part(self, start: int, stop: int) -> FetchedRange:
        self.asked.append((start, stop))
        return FetchedRange(self.data[start:stop], start, len(self.data), self.version)


TAIL = len(DATA) - 16_384


def test_who_reads_on_is_given_more_at_a_time_and_who_jumps_little():
    kept = Kept(DATA * 20)
    file = RemoteFile("x", kept)
    assert file.read_at(file.size - 16_384, 16_384) == DATA[TAIL:]
    assert (kept.asked, file.fetched) == ([], 16_384)  # the end is fetched first
    for offset in (0, 100, 512, 1536, 10_000, 10_512):
        assert file.read_at(offset, 10) == kept.data[offset : offset + 10]
    assert kept.asked == [(0, 512), (512, 1536), (1536, 3584), (10_000, 10_512), (10_512, 11_536)]
    assert file.fetched == 16_384 + 512 + 1024 + 2048 + 512 + 1024
    for offset in range(11_536, len(kept.data) - 16_384, 1000):
        file.read_at(offset, 1000)
    assert max(stop - start for start, stop in kept.asked) == 256 * 1024


def test_what_is_asked_for_comes_at_once_up_to_what_is_here_already():
    kept = Kept()
    file = RemoteFile("x", kept)
    assert file.read_at(20_000, 3000) == DATA[20_000:23_000]
    assert file.read_at(19_000, 5000) == DATA[19_000:24_000]
    assert file.read_at(TAIL - 10, 30) == DATA[TAIL - 10 : TAIL + 20]
    assert kept.asked == [(20_000, 23_000), (19_000, 20_000), (23_000, 24_000), (TAIL - 10, TAIL)]


def test_the_end_is_the_end():
    file = RemoteFile("x", Kept())
    assert file.read_at(len(DATA) - 1, 1) == DATA[-1:]
    for offset, count in ((len(DATA), 1), (len(DATA) - 1, 2)):
        with pytest.raises(DamagedArchiveError, check=has_code("damaged-archive", f" {len(DATA)},")):
            file.read_at(offset, count)


@pytest.mark.parametrize("change", [{"data": DATA + b"x"}, {"version": "2"}])
def test_a_file_that_is_replaced_meanwhile_is_told(change: dict[str, Any]):
    kept = Kept()
    file = RemoteFile("x", kept)
    vars(kept).update(change)
    with pytest.raises(DamagedArchiveError, check=has_code("file-changed")):
        file.read_at(0, 1)


def test_other_bytes_have_another_identity():
    files = [("x", Kept()), ("y", Kept()), ("x", Kept(DATA[1:])), ("x", Kept(version="2")), ("x", Kept(version=""))]
    names = [RemoteFile(where, kept).identity for where, kept in files]
    assert len(set(names)) == len(names)
    assert RemoteFile("x", Kept()).identity == names[0]


def test_the_query_is_part_of_the_identity_and_the_fragment_is_not(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(remote, "HttpFetch", lambda *_: Kept())
    addresses = [f"https://me:secret@h/m.mar{rest}" for rest in ("", "?id=1", "?id=2", "?id=1#sha256=1", "?id=1#")]
    plain, one, two, *same = (open_remote(address).identity for address in addresses)
    assert len({plain, one, two}) == 3
    assert set(same) == {one}
    assert all(re.fullmatch("[0-9a-f]{32}", identity) for identity in (plain, one, two))  # nothing in clear


def test_archives_that_only_the_query_tells_apart_are_not_mixed_up(
    make_mar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cache = Cache(tmp_path / "cache")
    for number in ("1", "2"):
        data = make_mar(f"x = {number}\n", name="m").read_bytes()  # of one size, and the server tells no version
        monkeypatch.setattr(remote, "HttpFetch", partial(lambda data, *_: Kept(data, version=""), data))
        source = open_remote(f"https://h/m.mar?id={number}")
        with ZipArchive("m.mar", source, limits=Limits(), cache=cache) as archive:
            assert (archive.materialize() / "handler.py").read_text() == f"x = {number}\n"


def test_a_server_that_sends_another_part_is_told(site: Site):
    file = open_remote(f"{site}/beginning")
    for offset, count in ((10, 5), (0, 600)):
        with pytest.raises(DamagedArchiveError, check=has_code("wrong-range")):
            file.read_at(offset, count)


def test_of_a_server_that_sends_more_than_it_was_asked_for_no_more_is_read(site: Site):
    with pytest.raises(DamagedArchiveError, check=has_code("wrong-range")):
        HttpFetch(f"{site}/endless").last(100)
    assert HttpFetch(f"{site}/exact").last(100).data == DATA[-100:]
    with pytest.raises(DamagedArchiveError, check=has_code("wrong-range")):
        HttpFetch(f"{site}/endless").part(0, 100)


def test_all_requests_together_have_one_time_which_stands_still_between_them(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    now = 0.0

    def slow(asked: Any) -> None:
        nonlocal now
        now += 50
        part(0, 10, 10)(asked)

    monkeypatch.setattr("marpack.archive.http.time", SimpleNamespace(monotonic=lambda: now))
    site.default = slow
    fetch = HttpFetch(f"{site}/slow", 120)
    for _ in range(2):
        fetch.last(10)
        now += 1000
    with pytest.raises(NotAnArchiveError, check=has_code("too-slow", "Download")):
        deque(iter(partial(fetch.last, 10), None), maxlen=0)  # requests without an end


def test_a_server_that_knows_no_ranges_sends_all_of_it_if_that_is_not_too_much(site: Site):
    assert open_remote(f"{site}/whole").read_at(7, 50) == DATA[7:57]
    with pytest.raises(NotAnArchiveError, check=has_code("no-ranges", "Download")):
        open_remote(f"{site}/large")
    with pytest.raises(NotAnArchiveError, check=has_code("connection-failed", "0 of 33,554,432")):
        open_remote(f"{site}/torn")
    with pytest.raises(NotAnArchiveError, check=has_code("wrong-range")):
        open_remote(f"{site}/nowhere")


def test_versions_are_told_by_tag_or_date(site: Site):
    first = open_remote(f"{site}/etag").identity, open_remote(f"{site}/date").identity
    site.answers |= {"/etag": part(0, 10, 10, ETag="2"), "/date": part(0, 10, 10, Last_Modified="2")}
    assert not {open_remote(f"{site}/etag").identity, open_remote(f"{site}/date").identity} & set(first)


class Odd(MemoryFileSystem):
    """A file system that says of a file what it is told to, or fails."""

    protocol = "odd"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    facts: ClassVar[dict[str, Any]] = {}
    failing: ClassVar[Exception | None] = None

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        if self.failing is not None:
            raise self.failing
        return {"name": path, "type": "file", "size": 4, **self.facts}


@pytest.fixture
def odd() -> type[Odd]:
    fsspec.register_implementation("odd", Odd, clobber=True)
    Odd.facts, Odd.failing = {}, None
    with fsspec.open("odd://x.mar", "wb") as file:
        file.write(b"PK\3\4")
    return Odd


def test_what_is_no_file_is_refused_and_versions_are_told_apart(odd: type[Odd]):
    for odd.facts in ({"type": "directory"}, {"size": None}):
        with pytest.raises(NotAnArchiveError, check=has_code("not-a-file")):
            open_remote("odd://x.mar")
    for key in ("ETag", "etag", "LastModified"):
        names = set()
        for version in ("1", "2"):
            odd.facts = {key: version}
            names.add(open_remote("odd://x.mar").identity)
        assert len(names) == 2, key


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError("no luck\nwith odd://x.mar?key=secret"), "it cannot be fetched: no luck"),
        (RuntimeError(), "it cannot be fetched: RuntimeError"),
        (OSError("no odd://x.mar?key=secret here"), "it cannot be fetched: no odd://x.mar?… here"),
    ],
)
def test_whatever_a_file_system_raises_is_one_line_without_secrets(odd: type[Odd], error: Exception, text: str):
    odd.failing = error
    with pytest.raises(NotAnArchiveError) as caught:
        open_remote("odd://x.mar?key=secret")
    assert (caught.value.what, caught.value.where) == (text, "odd://x.mar?…")


def test_a_tar_elsewhere_is_refused(odd: type[Odd]):
    with fsspec.open("odd://x.mar", "wb") as file:
        file.write(b"\x1f\x8bxx")
    with pytest.raises(NotAnArchiveError, check=has_code("no-ranges")):
        open_archive("odd://x.mar")
    with fsspec.open("odd://x.mar", "wb") as file:
        file.write(b"nozi")
    with pytest.raises(NotAnArchiveError, check=has_code("not-an-archive", "zip")):
        open_archive("odd://x.mar")


def test_a_package_that_is_missing_is_named_without_secrets():
    if importlib.util.find_spec("smbprotocol"):
        pytest.skip("smbprotocol is installed here")
    with pytest.raises(UsageError, check=has_code("missing-package", "smb://", "smbprotocol", "pip")) as caught:
        open_remote("smb://me:secret@host/x.mar")
    assert caught.value.where == "smb://host/x.mar"
