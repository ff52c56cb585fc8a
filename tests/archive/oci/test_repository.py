import hashlib
import io
from collections.abc import Callable, Iterator

import pytest
from refusals import has_code
from registries import Asked, FakeRegistry, Reply, sha256

from marpack.archive.addresses import Reference
from marpack.archive.http import WaitBudget
from marpack.archive.oci.repository import Descriptor, blob_range, copy_verified, describe, upload
from marpack.archive.oci.session import RegistrySession
from marpack.errors import DamagedArchiveError, RegistryError

DATA = bytes(range(256)) * 1000
SIZE = len(DATA)
BLOB = describe(DATA, "application/x")


@pytest.fixture
def session(fake: FakeRegistry) -> Iterator[RegistrySession]:
    with RegistrySession(Reference.parse(f"oci://{fake.host}/team/digits:1.0")) as session:
        yield session


def fetched(session: RegistrySession, digest: str = sha256(DATA), size: int = SIZE) -> bytes:
    output = io.BytesIO()
    seen: list[int] = []
    copy_verified(session, Descriptor(media_type="x", digest=digest, size=size), output, seen.append)
    assert sum(seen) == size
    return output.getvalue()


def once(reply: Reply) -> Callable[[Asked], Reply | None]:
    """Return the rule that answers the first request for a blob, and no other."""
    left = [reply]
    return lambda asked: left.pop() if left and "/blobs/" in asked.path else None


def test_a_cut_connection_is_gone_on_with(fake: FakeRegistry, session: RegistrySession, pauses: list[float]):
    fake.blobs[sha256(DATA)] = DATA
    fake.rules = [
        once(Reply(200, DATA, {"ETag": '"1"'}, cut=1000)),
        once(Reply(206, DATA[1000:], {"Content-Range": f"bytes 1000-{SIZE - 1}/{SIZE}"})),
    ]
    assert fetched(session) == DATA
    assert [(asked.headers.get("Range"), asked.headers.get("If-Range")) for asked in fake.asked] == [
        (None, None),
        ("bytes=1000-", '"1"'),
    ]
    assert len(pauses) == 1


def test_a_weak_version_is_no_condition(fake: FakeRegistry, session: RegistrySession, pauses: list[float]):
    fake.blobs[sha256(DATA)] = DATA
    fake.rules = [once(Reply(200, DATA, {"ETag": 'W/"1"'}, cut=1000))]
    assert fetched(session) == DATA
    assert "If-Range" not in fake.asked[1].headers


def test_a_blob_that_changed_begins_again(fake: FakeRegistry, session: RegistrySession, pauses: list[float]):
    fake.blobs[sha256(DATA)] = DATA  # of another version than the first answer's: it is sent whole
    fake.rules = [once(Reply(200, b"x" * SIZE, {"ETag": '"old"'}, cut=1000))]
    assert fetched(session) == DATA


def test_wrong_bytes_before_a_cut_are_refused(fake: FakeRegistry, session: RegistrySession, pauses: list[float]):
    fake.rules = [
        once(Reply(200, b"x" + DATA[1:], cut=1000)),
        once(Reply(206, DATA[1000:], {"Content-Range": f"bytes 1000-{SIZE - 1}/{SIZE}"})),
    ]
    with pytest.raises(DamagedArchiveError, check=has_code("digest-mismatch")):
        fetched(session)


def test_attempts_that_bring_much_count_as_the_first_again(
    fake: FakeRegistry, session: RegistrySession, pauses: list[float], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("marpack.archive.oci.repository._WORTH", 20_000)

    def part(asked: Asked) -> Reply:
        start = int(asked.headers.get("Range", "bytes=0-")[6:-1])
        place = {"Content-Range": f"bytes {start}-{SIZE - 1}/{SIZE}"} if start else {}
        return Reply(206 if start else 200, DATA[start:], place, cut=20_000 if SIZE - start > 20_000 else None)

    fake.rules = [part]
    assert fetched(session) == DATA
    assert len(fake.asked) == 13


def test_without_ranges_it_ends_where_it_always_breaks_off(
    fake: FakeRegistry, session: RegistrySession, pauses: list[float]
):
    fake.rules = [lambda asked: Reply(200, DATA, cut=1000)]
    with pytest.raises(RegistryError, check=has_code("download-incomplete", "1,000", "256,000")):
        fetched(session)
    assert len(fake.asked) == 5


LIES = {
    "other bytes": (Reply(200, DATA[:-1] + b"x"), "sends other bytes"),
    "fewer": (Reply(200, DATA[:-1]), "it has 255,999 bytes, and 256,000 in the manifest"),
    "more": (Reply(200, DATA + b"x"), "it has 256,001 bytes"),
    "endless": (Reply(200, DATA * 2, {"Content-Length": "999999999999999999999999"}), "999,999 bytes"),
    "empty": (Reply(200, b""), "it has 0 bytes"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_refused_at_once(name: str, fake: FakeRegistry, session: RegistrySession, pauses: list[float]):
    reply, message = LIES[name]
    fake.rules = [lambda asked: reply]
    with pytest.raises(DamagedArchiveError) as caught:
        fetched(session)
    assert message in caught.value.what
    assert len(fake.asked) == 1


PLACES = {
    "elsewhere": {"Content-Range": f"bytes 5-{SIZE - 1}/{SIZE}"},
    "nowhere": {},
    "nonsense": {"Content-Range": "bytes */7"},
}


@pytest.mark.parametrize("name", PLACES)
def test_another_range_is_refused(name: str, fake: FakeRegistry, session: RegistrySession, pauses: list[float]):
    fake.rules = [once(Reply(200, DATA, cut=1000)), lambda asked: Reply(206, DATA[1000:], PLACES[name])]
    with pytest.raises(DamagedArchiveError, check=has_code("wrong-range")):
        fetched(session)


def test_a_range_of_another_whole_is_refused(fake: FakeRegistry, session: RegistrySession, pauses: list[float]):
    whole = {"Content-Range": "bytes 1000-5/7"}
    fake.rules = [once(Reply(200, DATA, cut=1000)), lambda asked: Reply(206, DATA[1000:], whole)]
    with pytest.raises(DamagedArchiveError, match="it has 7 bytes"):
        fetched(session)


def test_a_trickle_is_not_waited_for(fake: FakeRegistry, session: RegistrySession, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("marpack.archive.oci.repository.WaitBudget", lambda: WaitBudget(0.1))
    fake.rules = [lambda asked: Reply(200, DATA, wait=0.01)]
    with pytest.raises(RegistryError, check=has_code("too-slow")):
        fetched(session)


def test_nothing_at_all_is_not_waited_for(
    fake: FakeRegistry, session: RegistrySession, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
):
    monkeypatch.setattr("marpack.archive.http.TIMEOUT", 0.05)
    fake.rules = [lambda asked: Reply(200, DATA, wait=0.5)]
    with pytest.raises(RegistryError, check=has_code("download-incomplete")):
        fetched(session)


def test_a_range_alone(fake: FakeRegistry, session: RegistrySession):
    fake.blobs[sha256(DATA)] = DATA
    assert blob_range(session, BLOB, 5, 9) == DATA[5:9]
    fake.rules = [lambda asked: Reply(200, DATA)]
    assert blob_range(session, BLOB, 5, 9) is None
    fake.rules = [lambda asked: Reply(206, DATA[5:8], {"Content-Range": f"bytes 5-7/{SIZE}"})]
    with pytest.raises(DamagedArchiveError, check=has_code("wrong-range")):
        blob_range(session, BLOB, 5, 9)


def sent(session: RegistrySession, blob: Descriptor = BLOB) -> bool:
    return upload(session, blob, lambda: io.BytesIO(DATA))


def test_what_is_there_is_not_sent_again(fake: FakeRegistry, session: RegistrySession):
    assert sent(session)
    assert fake.blobs == {sha256(DATA): DATA}
    fake.forget()
    assert not sent(session)
    assert [asked.method for asked in fake.asked] == ["HEAD"]


@pytest.mark.parametrize("place", ["/v2/elsewhere/blobs/uploads/1?state=2", "http://{host}/v2/x/blobs/uploads/1"])
def test_a_blob_goes_where_it_is_said(place: str, fake: FakeRegistry, session: RegistrySession):
    location = place.format(host=fake.host)
    fake.rules = [lambda asked: Reply(202, headers={"Location": location}) if asked.method == "POST" else None]
    assert sent(session)
    mark = "&" if "?" in place else "?"
    assert fake.paths("PUT") == [
        f"/{location.partition('/v2/')[1].strip('/')}/{location.partition('/v2/')[2]}{mark}digest={sha256(DATA)}"
    ]


def test_an_upload_that_breaks_off_is_sent_again(fake: FakeRegistry, session: RegistrySession, pauses: list[float]):
    failing = [1]

    def cut(asked: Asked) -> Reply | None:
        if asked.method == "PUT" and failing and failing.pop():
            raise ConnectionResetError
        return None

    fake.rules = [cut]
    fake._server.handle_error = lambda *_: None  # type: ignore[method-assign]
    assert sent(session)
    assert fake.blobs == {sha256(DATA): DATA}
    assert len(pauses) == 1


def test_other_bytes_than_announced_are_refused(fake: FakeRegistry, session: RegistrySession):
    digest = f"sha256:{hashlib.sha256(b'').hexdigest()}"
    with pytest.raises(RegistryError, check=has_code("upload-mismatch")):
        sent(session, Descriptor(media_type="x", digest=digest, size=SIZE))


def test_a_registry_that_says_no_place(fake: FakeRegistry, session: RegistrySession):
    fake.rules = [lambda asked: Reply(202) if asked.method == "POST" else None]
    with pytest.raises(RegistryError, check=has_code("upload-location-missing")):
        sent(session)
