import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from marpack.archive import index as index_module
from marpack.archive.index import Index, Member, Metadata, content_identity, index_digest
from marpack.archive.reader import open_archive
from marpack.errors import DamagedArchiveError
from marpack.version import UPGRADE

SHA = "0" * 64
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
MEMBERS = st.lists(
    st.builds(Member, st.text(min_size=1), st.integers(0, 2**62), st.binary(min_size=32, max_size=32).map(bytes.hex)),
    unique_by=lambda member: member.name,
    max_size=5,
)
INDICES = st.builds(
    Index,
    members=MEMBERS.map(tuple),
    samples=st.lists(st.dictionaries(st.text(), JSON, max_size=3), max_size=3).map(tuple),
    provenance=st.dictionaries(st.text(), st.text(), max_size=3),
    metadata=st.just(UNSET)
    | st.builds(
        Metadata,
        license=st.none() | st.text(),
        authors=st.lists(st.text(), max_size=2).map(tuple),
        description=st.none() | st.text(),
        homepage=st.none() | st.text(),
    ),
    target=st.sampled_from(["torchserve", "marpack"]),
    format=st.just(1),
)


@given(INDICES)
def test_index_survives_its_json(index: Index) -> None:
    assert Index.from_json(index.to_json()) == index


def test_json_is_the_same_whatever_order_a_sample_was_written_in() -> None:
    one = Index(members=(), samples=({"input": "a", "expect": {"status": 200, "json": 1}},))
    two = Index(members=(), samples=({"expect": {"json": 1, "status": 200}, "input": "a"},))
    assert one.to_json() == two.to_json()


def test_json_is_readable_and_ends_in_a_newline() -> None:
    data = Index(members=(Member("handler.py", 4, SHA),), provenance={"builder": "marpack 0"}).to_json()
    assert data.endswith(b"}\n")
    assert json.loads(data) == {
        "format": 1,
        "members": [{"name": "handler.py", "size": 4, "sha256": SHA}],
        "provenance": {"builder": "marpack 0"},
        "samples": [],
        "target": "torchserve",
    }


def test_of_metadata_only_what_is_said_is_written() -> None:
    written = json.loads(Index(members=(), metadata=Metadata(license="MIT", authors=("A",))).to_json())
    assert written["metadata"] == {"license": "MIT", "authors": ["A"]}


def test_unknown_keys_of_a_later_version_are_ignored() -> None:
    index = Index.from_json(b'{"members": [], "signature": "x", "format": 1}')
    assert index == Index(members=())


def test_a_later_format_is_refused_with_the_way_out() -> None:
    data = replace(Index(members=()), format=2).to_json()
    with pytest.raises(DamagedArchiveError, match="format 2") as caught:
        Index.from_json(data)
    assert caught.value.hint == UPGRADE


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"members": [{"name": "a", "size": -1, "sha256": "%s"}]}' % SHA.encode(),
        b'{"members": [{"name": "a", "size": 1, "sha256": "abc"}]}',
        b'{"members": [{"name": "a", "size": 1, "sha256": "%s"}]}' % (b"A" * 64),
        b'{"members": [{"name": "a", "size": "1", "sha256": "%s"}]}' % SHA.encode(),
        b'{"members": [{"name": "a", "size": 1, "sha256": "%s"}, {"name": "a", "size": 2, "sha256": "%s"}]}'
        % (SHA.encode(), SHA.encode()),
    ],
)
def test_what_is_no_index_is_refused_by_its_place(data: bytes) -> None:
    with pytest.raises(DamagedArchiveError) as caught:
        Index.from_json(data, where="x.mar!MAR-INF/marpack.json")
    assert caught.value.where == "x.mar!MAR-INF/marpack.json"


def test_an_archive_without_an_index_is_known_by_its_members(make_mar, make_folder) -> None:
    def digest(make, *args: str, **files: str) -> str:
        with open_archive(make(*args, files=files)) as archive:
            return content_identity(archive)

    first = digest(make_mar, "1", a="x", b="y")
    assert first.startswith("members:")
    assert first == digest(make_mar, "1", b="y", a="x")  # in whatever order
    others = [digest(make_mar, "2", a="x", b="y"), digest(make_mar, "1", a="x"), digest(make_mar, "1", a="y", b="x")]
    assert len({first, *others}) == 4
    assert digest(make_folder, "1", a="x", b="y") == first  # in whatever form


def test_an_archive_with_an_index_is_known_by_its_digest(make_mar) -> None:
    data = Index(members=()).to_json()
    with open_archive(make_mar("1", files={"MAR-INF/marpack.json": data})) as archive:
        assert content_identity(archive) == index_digest(data)


def test_an_index_that_is_too_large_is_not_read(make_mar, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Index(members=()).to_json()
    monkeypatch.setattr(index_module, "MAX_BYTES", len(data) - 1)
    with (
        open_archive(make_mar("1", files={"MAR-INF/marpack.json": data})) as archive,
        pytest.raises(DamagedArchiveError) as caught,
    ):
        content_identity(archive)
    assert caught.value.where == f"{archive.source}!MAR-INF/marpack.json"
