import errno
import os
import time
from pathlib import Path

import pytest
from refusals import has_code, has_facts
from registries import Asked, FakeRegistry, Reply, sha256

from marpack.archive.addresses import Reference
from marpack.archive.cache import Cache
from marpack.archive.oci.repository import fetch_archive
from marpack.archive.oci.session import RegistrySession
from marpack.archive.oci.transfer import plan_push, push
from marpack.archive.protocol import Limits
from marpack.archive.reader import open_archive
from marpack.errors import DamagedArchiveError, ExtractionError, LimitExceededError

WEIGHTS = os.urandom(500_000)


@pytest.fixture
def mar(make_mar) -> Path:
    return make_mar("x = 1\n", name="digits", files={"w.bin": WEIGHTS})


@pytest.fixture
def address(fake: FakeRegistry, mar: Path) -> str:
    address = f"oci://{fake.host}/team/digits:1.0"
    with RegistrySession(Reference.parse(address)) as session:
        push(session, plan_push(mar))
    fake.forget()
    return address


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def fetched(address: str, cache: Cache, maximum: int = 1 << 30) -> Path:
    return fetch_archive(address, cache, maximum=maximum)[0]


def test_an_archive_is_read_by_range(address: str, fake: FakeRegistry, cache: Cache):
    with open_archive(address, limits=Limits(), cache=cache) as archive:
        assert archive.source == address
        assert archive.manifest.model.name == "digits"
        assert archive.server_findings == ()
        fake.manifests["1.0"] = b"moved"
        with archive.open("w.bin") as file:
            assert file.read() == WEIGHTS
    ranges = [asked.headers["Range"] for asked in fake.asked if "/blobs/" in asked.path]
    assert len(ranges) > 1
    assert not cache.root.exists()


def test_opening_takes_little(address: str):
    with open_archive(address) as archive:
        assert list(archive.entries) == ["handler.py", "w.bin", "MAR-INF/MANIFEST.json"]
        assert archive._data.fetched < len(WEIGHTS) / 5  # type: ignore[attr-defined]


def without_ranges(asked: Asked) -> Reply | None:
    asked.headers.pop("Range", None)  # type: ignore[attr-defined]
    return None


def test_without_ranges_it_is_fetched_whole(address: str, fake: FakeRegistry, cache: Cache):
    fake.rules = [without_ranges]
    with open_archive(address, limits=Limits(), cache=cache) as archive:
        assert archive.source == str(fetched(address, cache))
    with pytest.raises(LimitExceededError, check=has_facts(" 100")):
        open_archive(address, limits=Limits(total=100), cache=cache)


def test_all_bytes_are_read_where_they_are_to_be_verified(address: str, fake: FakeRegistry, cache: Cache, mar: Path):
    data = mar.read_bytes()
    fake.blobs[sha256(data)] = data[:10] + b"\xff" + data[11:]  # a time, which no digest of a member covers
    with open_archive(address, limits=Limits(), cache=cache) as archive:
        assert archive.manifest.model.name == "digits"
    with pytest.raises(DamagedArchiveError, check=has_code("digest-mismatch", sha256(data))):
        open_archive(address, limits=Limits(), cache=cache, whole=True)


def test_a_second_time_nothing_is_fetched(address: str, fake: FakeRegistry, cache: Cache, mar: Path):
    first = fetched(address, cache)
    assert first.read_bytes() == mar.read_bytes()
    assert first.name == "digits.mar"
    fake.forget()
    assert fetched(address, cache) == first
    assert fake.paths("GET") == ["/v2/team/digits/manifests/1.0"]


def test_a_lie_leaves_nothing(address: str, fake: FakeRegistry, cache: Cache, mar: Path):
    digest = sha256(mar.read_bytes())
    fake.blobs[digest] = mar.read_bytes()[:-1] + b"x"
    with pytest.raises(DamagedArchiveError):
        fetched(address, cache)
    assert not list(cache.root.glob("blobs/*/*"))


def test_a_cache_that_cannot_be_written(address: str, cache: Cache):
    cache.root.mkdir(mode=0o700)
    (cache.root / "blobs").write_text("")
    with pytest.raises(ExtractionError, check=has_code("extraction", os.strerror(errno.EEXIST))):
        fetched(address, cache)


def test_what_nobody_uses_makes_room(address: str, fake: FakeRegistry, cache: Cache, make_mar):
    cache.limit = 600_000
    old = fetched(address, cache)
    other = address.replace("1.0", "2.0")
    with RegistrySession(Reference.parse(other)) as session:
        push(session, plan_push(make_mar("x = 2\n", name="newer", files={"w.bin": WEIGHTS})))
    new = fetched(other, cache)
    assert old.exists()  # it was used just now, and somebody may be at it
    yesterday = time.time() - 2 * 86400
    os.utime(old.with_name("digits.mar.json"), (yesterday, yesterday))
    new.with_name("newer.mar.json").unlink()
    assert fetched(other, cache) == new
    assert new.exists()
    assert not old.parent.exists()
